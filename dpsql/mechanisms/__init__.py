"""Mechanisms: exact statistics in, private answers and their events out."""
