"""Statements: parsed, bound to tables and privacy units, and rewritten as exact queries."""
