"""Exact queries: their shape, their normal form, and the gate before the engine."""
