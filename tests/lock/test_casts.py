"""Casts that DuckDB adds to a text, and calls that fail inside TRY: those that may fail for some value are refused."""

from __future__ import annotations

import pytest

from dpsql.lock.tree import Unproved
from tests.support.casts import prove


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


@pytest.mark.parametrize("kind", ["SEMI", "ANTI"])
def test_joins_of_intervals_that_fail_when_there_is_a_row_are_refused(kind: str) -> None:
    text = f"SELECT a.n FROM t AS a {kind} JOIN t AS b ON "
    for condition in ("a.iv = b.iv", "a.iv = b.iv AND a.n < b.n", "EPOCH(a.iv) < EPOCH(b.iv)"):
        prove(text + condition)
    for condition in (
        "a.iv < b.iv",
        "a.n = b.n AND a.iv >= b.iv",
        "a.iv IS DISTINCT FROM b.iv",
        "a.iv = b.iv OR a.n = 1",
        "a.ts - b.ts < INTERVAL '1' DAY",
    ):
        with pytest.raises(Unproved):
            prove(text + condition)


@pytest.mark.parametrize(
    ("proved", "refused"),
    [
        ("TRY(time_bucket(INTERVAL '1' DAY, ts))", "TRY(time_bucket(INTERVAL '-1' DAY, ts))"),
        ("TRY(time_bucket(INTERVAL '2' MONTH, ts))", "TRY(time_bucket(INTERVAL '0' MONTH, ts))"),
        ("TRY(time_bucket(INTERVAL '2' HOUR, ts))", "TRY(time_bucket(iv, ts))"),
        ("TRY(date_part('hour', hm))", "TRY(date_part('day', hm))"),
        ("TRY(date_part('week', day))", "TRY(date_part(s, hm))"),
        ("TRY(dayofweek(ts))", "TRY(dayofweek(iv))"),
        ("TRY(date_diff('day', ts, ts))", "TRY(date_diff('day', hm, hm))"),
        ("TRY(date_trunc('day', ts))", "TRY(date_trunc('era', iv))"),
        ("s LIKE 'x' ESCAPE '!'", "s LIKE 'x' ESCAPE '!!'"),
        ("s NOT ILIKE 'x' ESCAPE '!'", "s NOT ILIKE 'x' ESCAPE s"),
    ],
)
def test_calls_that_fail_inside_try_are_refused(proved: str, refused: str) -> None:
    prove(f"SELECT {proved} AS y FROM t")
    with pytest.raises(Unproved):
        prove(f"SELECT {refused} AS y FROM t")
