"""Parses a cell's text into statements: dialect, clauses, options."""
