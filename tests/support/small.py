"""A small schema for properties of exact queries: two tables of the same units, one of rows, one public."""

from __future__ import annotations

from pathlib import Path

import duckdb

import dpsql

COLUMNS_OF_T = """k = { values = ["a", "b", "c"] }
x = { bounds = [-2, 5] }
n = { bounds = [1, 7] }"""
"""The declarations of the columns that every file's table of numbers has."""
POLICY = f"""
[budget]
epsilon = 1000
delta = 1e-3
accountant = "basic"
default_epsilon = 1
default_delta = 1e-6

[tables.t]
privacy_unit = "unit"
max_rows_per_group = 2
max_groups = 2
[tables.t.columns]
{COLUMNS_OF_T}
d = {{ bounds = [-1.5, 2] }}

[tables.s]
privacy_unit = "unit"
max_rows_per_group = 2
max_groups = 2
[tables.s.columns]
y = {{ bounds = [0, 3] }}

[tables.r]
privacy_unit = "ROW"
[tables.r.columns]
{COLUMNS_OF_T}
d = {{ bounds = [-1.5, 2] }}

[tables.g]
public = true
"""
COLUMNS = "unit INTEGER, k VARCHAR, p INTEGER, x DOUBLE, n INTEGER, b BIGINT, d DECIMAL(10,2), f BOOLEAN"


def open_small(ledger: Path | None = None) -> tuple[duckdb.DuckDBPyConnection, dpsql.Session]:
    con = duckdb.connect()
    con.execute(
        f"CREATE TABLE t ({COLUMNS}); CREATE TABLE r ({COLUMNS}); CREATE TABLE s (unit INTEGER, y INTEGER)"
    )
    con.execute("CREATE TABLE g AS SELECT * FROM (VALUES ('a', 1), ('b', 2), ('z', 3)) AS v(k, label)")
    return con, dpsql.connect(con, policy=dpsql.Policy.loads(POLICY), ledger=ledger)
