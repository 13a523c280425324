"""Exact vectorised samplers over the integers."""
