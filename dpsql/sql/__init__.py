"""Statements: parsed, bound to tables and privacy units, rewritten as exact queries."""
