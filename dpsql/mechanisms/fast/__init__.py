"""Quicker routes to the statistics of a mechanism: equal exactly, or in law, to the plain route."""
