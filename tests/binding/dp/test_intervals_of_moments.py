"""Intervals of dates, times and durations: their ends are of the column's own kind."""

from __future__ import annotations

import datetime
from typing import Any, cast

import duckdb
import pytest

import dpsql
from dpsql.notebook.render import make_result_sheet
from tests.support.fixtures import con_fixture

POLICY = """
budget = { epsilon = 1e9, accountant = "basic", default_epsilon = 4 }
[tables]
t = { privacy_unit = "u", max_rows = 1, columns = { day = { bounds = [2024-01-01, 2024-12-31] }, \
    moment = { bounds = [2024-01-01, 2024-12-31] }, clock = { bounds = [08:00:00, 18:00:00] }, \
    took = { bounds = [0, 6000] }, w = { values = [0, 1, 2] } } }
"""
CALLS = [
    "MEDIAN(day)", "QUANTILE_DISC(day, 0.9)", "MIN(day)", "MAX(day)", "AVG(day)", "MEDIAN(moment)", "MAX(moment)", "AVG(moment)",
    "MEDIAN(clock)", "MIN(clock)", "MEDIAN(took)", "AVG(took)", "SUM(took)",
]  # fmt: skip
TABLES = """
CREATE TABLE t AS SELECT i AS u, DATE '2024-01-01' + (i * 37 % 366)::INTEGER AS day, day::TIMESTAMP AS moment,
            TIME '08:00:00' + INTERVAL (i % 600) MINUTE AS clock, INTERVAL (i % 90) MINUTE AS took, i % 3 AS w
            FROM range(6000) AS r(i);
"""
con = con_fixture(TABLES)


@pytest.mark.parametrize("call", CALLS)
def test_ends_are_of_the_values_kind(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, call: str
) -> None:
    answer = session.sql(f"SELECT WITH DP OPTIONS (epsilon = 20) {call} AS v FROM t")
    ((value,),), ends = answer.fetchall(), answer.intervals["v"]
    low, high = cast(Any, ends[0])
    assert type(low) is type(high) is type(value)
    assert low <= value <= high
    assert not any("no interval" in note for note in answer.notes)
    if "day" in call and not call.startswith("AVG"):
        slack, (plain,) = datetime.timedelta(days=3), con.sql(f"SELECT {call} FROM t").fetchall()[0]
        assert low - slack <= plain <= high + slack
    text = str(answer)
    shown = [str(end).removesuffix(" 00:00:00") for end in (low, high)]
    assert f"{shown[0]} to {shown[1]}" in text or f"{low} to {high}" in text
    assert "95% interval" in text


def test_one_for_each_group(session: dpsql.Session) -> None:
    answer = session.sql("SELECT w, MAX(day) AS last, COUNT(*) AS n FROM t GROUP BY w")
    assert len(answer.intervals["last"]) == 3
    assert all(high == datetime.date(2024, 12, 31) for _, high in answer.intervals["last"])  # type: ignore[misc]
    assert len(make_result_sheet(answer).columns) == 5
    names = answer.arrow(intervals=True).column_names
    assert names == ["w", "last", "last_low", "last_high", "n", "n_low", "n_high"]
