"""Propose, test, release: the test, and the statistics that use it."""
