"""Engines: where private data lie, and where public SQL runs."""
