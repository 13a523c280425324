"""Expressions over a row: types, bounds, and calls that cannot fail."""
