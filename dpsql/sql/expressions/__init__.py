"""Expressions over rows: types, bounds and calls that can't fail whatever the data."""
