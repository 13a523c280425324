"""A policy with tables of persons and months, of persons and days, of persons through a path, and without periods."""

from __future__ import annotations

import datetime

import duckdb

from dpsql.privacy.periods import Days

POLICY = """
[budget]
epsilon = 1e30
delta = 0.99
per_period = true
accountant = "basic"
default_epsilon = 1
default_delta = 1e-6
[tables.visits]
privacy_unit = "pid"
privacy_period = "date_trunc('month', day)"
data_from = 2024-01-01
data_until = 2024-12-20
max_rows = 4
max_rows_per_group = 3
max_groups = 3
columns.ward.values = ["a", "b"]
columns.x.bounds = [0, 100]
columns.y.bounds = [0, 100]
[tables.labs]
privacy_unit = "pid"
privacy_period = "date_trunc('month', taken)"
data_from = 2024-01-01
data_until = 2024-12-20
max_rows = 4
columns.z.bounds = [0, 10]
[tables.items]
privacy_unit = "vid -> visits.vid, pid"
max_rows = 4
columns.q.bounds = [0, 10]
[tables.moments]
privacy_unit = "pid"
privacy_period = "date_trunc('day', ts)"
data_from = 2024-01-01
data_until = 2024-12-20
max_rows = 4
columns.x.bounds = [0, 100]
[tables.whole]
privacy_unit = "pid"
max_rows = 2
[tables.wards]
public = true
"""
DATED = {"visits": "day", "labs": "taken", "moments": "ts"}


def keep_days(con: duckdb.DuckDBPyConnection, days: Days) -> None:
    """Delete the rows of other days, and those without one."""
    for table, column in DATED.items():
        dates = [[datetime.date.fromordinal(day) for day in pair] for pair in days]
        kept = " OR ".join(f"({column} >= DATE '{low}' AND {column} < DATE '{high}')" for low, high in dates)
        con.execute(f"DELETE FROM {table} WHERE ({kept}) IS NOT TRUE")
