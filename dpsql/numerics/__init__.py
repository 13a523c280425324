"""Exact and rigorous numbers: integer arrays, rounding, interval arithmetic."""
