"""A connection for each test that asks, without a new DuckDB for each: what is temporary is seen by its connection alone."""

from __future__ import annotations

import duckdb

_ONE = duckdb.connect()


def fresh() -> duckdb.DuckDBPyConnection:
    """A connection that sees no table but the temporary ones that it makes."""
    return _ONE.cursor()
