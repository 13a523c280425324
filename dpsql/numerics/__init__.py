"""Exact numbers: integer arrays, rounding, interval arithmetic."""
