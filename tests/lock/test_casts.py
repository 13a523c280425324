"""Casts that DuckDB adds to a text: those that may fail are refused, those of whole constants are read."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.lock.casts import prove_casts
from dpsql.lock.tree import Unproved


def prove(text: str) -> None:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (n INTEGER, tiny TINYINT, x DOUBLE, s VARCHAR, day DATE)")
        plan = "SELECT json_serialize_plan(?, optimize := false)"
        prove_casts(text, lambda sql: str(con.execute(plan, [sql]).fetchall()[0][0]))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n FROM t WHERE tiny = 100",
        "SELECT n FROM t WHERE x > n",
        "SELECT n FROM t WHERE TRUE OR FALSE",
        "SELECT day + INTERVAL '3' YEAR AS d FROM t",
        "SELECT CAST(s AS INTEGER) AS i FROM t",
        "SELECT COALESCE(n, 0.5) AS y FROM t",
    ],
)
def test_casts_without_a_failing_value_are_proved(text: str) -> None:
    prove(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT n FROM t WHERE n = ANY (SELECT CAST(1 AS DECIMAL(38, 37)))",
        "SELECT n FROM t WHERE day = s",
        "SELECT n FROM t WHERE (s, 1) = (SELECT true, 1)",
        "SELECT tiny FROM t UNION ALL SELECT CAST(1 AS DECIMAL(38, 37)) FROM t",
    ],
)
def test_casts_with_a_failing_value_are_refused(text: str) -> None:
    with pytest.raises(Unproved):
        prove(text)
