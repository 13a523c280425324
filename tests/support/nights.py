"""A table of visits that grows by a file every night, with a budget for each day."""

from __future__ import annotations

import datetime
from pathlib import Path

import duckdb

POLICY = """
[budget]
epsilon = 1e30
delta = 0.1
per_period = true
accountant = "basic"
default_epsilon = 1e6
[tables.visits]
source = "visits/*/*.parquet"
privacy_unit = "pid"
privacy_period = "date_trunc('day', day)"
data_from = 2024-01-30
data_until = "yesterday"
max_rows = 40
columns.day.type = "DATE"
columns.pid.type = "BIGINT"
columns.ward.type = "VARCHAR"
columns.ward.values = ["a", "b"]
columns.note.type = "VARCHAR"
columns.x.type = "BIGINT"
columns.x.bounds = [0, 100]
"""
FIRST = datetime.date(2024, 1, 30)
CLOSED = POLICY.replace('data_until = "yesterday"', 'closed_before = "today"\ndata_until = "closed"')
"""Without days that may still change."""
TOTALS = "SELECT WITH DP OPTIONS (strategy = TREE) day, SUM(COUNT(*)) OVER (ORDER BY day) AS t FROM visits GROUP BY day"
DAILY = "SELECT day, COUNT(*) AS n FROM visits GROUP BY day"


def write_day(folder: Path, number: int, rows: int = 20) -> None:
    """Write the file of a day, counted from the first."""
    day = FIRST + datetime.timedelta(days=number)
    place = folder / "visits" / f"of={day}"
    place.mkdir(parents=True, exist_ok=True)
    row = (
        f"i % 7 AS pid, DATE '{day}' AS day, 'n' AS note, (i * 7 + {number}) % 100 AS x, "
        "CASE WHEN i % 3 = 0 THEN 'a' ELSE 'b' END AS ward"
    )
    duckdb.sql(f"COPY (SELECT {row} FROM range({rows}) AS r(i)) TO '{place / 'f.parquet'}'")
