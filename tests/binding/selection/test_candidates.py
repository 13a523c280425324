"""Statistics of candidates: each shape's one pass equals a query per candidate, and moves by no more than is claimed."""

from __future__ import annotations

import random
import re
from typing import Any

import duckdb
import pytest

import dpsql

POLICY = """
budget = { epsilon = 1e7, delta = 0.5, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-6 }
[tables]
t = { privacy_unit = "ROW", columns = { x = { bounds = [-2, 5] }, y = { bounds = [0, 9] }, w = { bounds = [-3, 3] } } }
c = { public = true }
"""
SHAPES = {
    "COUNT(*)": "constant",
    "SUM(y)": "constant",
    "COUNT(*) FILTER (WHERE x = k)": "equality",
    "SUM(w) FILTER (WHERE x = k)": "equality",
    "COUNT(*) FILTER (WHERE x = k AND y > 3)": "equality",
    "COUNT(*) FILTER (WHERE x > k)": "one-sided",
    "COUNT(*) FILTER (WHERE x >= k)": "one-sided",
    "COUNT(*) FILTER (WHERE k > x)": "one-sided",
    "COUNT(*) FILTER (WHERE x <= k)": "one-sided",
    "k * COUNT(*) FILTER (WHERE x >= k)": "one-sided",
    "b * SUM(w) FILTER (WHERE x >= k)": "one-sided",
    "SUM(w) FILTER (WHERE x > k) - SUM(w) FILTER (WHERE x <= k)": "one-sided",
    "COUNT(*) FILTER (WHERE x BETWEEN lo AND hi)": "two-sided",
    "COUNT(*) FILTER (WHERE x > lo AND x <= hi)": "two-sided",
    "COUNT(*) FILTER (WHERE x > lo AND x < hi)": "two-sided",
    "COUNT(*) FILTER (WHERE x >= lo AND x <= hi AND y > 3)": "two-sided",
    "SUM(w) FILTER (WHERE x BETWEEN lo AND hi)": "two-sided",
    "SUM(w) FILTER (WHERE x > lo AND x < hi)": "two-sided",
    "SUM(w) FILTER (WHERE x >= lo AND x < hi)": "two-sided",
    "SUM(LEAST(y, b))": "clipped sum",
    "SUM(LEAST(y, b)) FILTER (WHERE x > 0)": "clipped sum",
    "SUM(LEAST(y, b)) - SUM(LEAST(y, lo))": "clipped sum",
    "SUM(LEAST(y, b)) FILTER (WHERE x > k)": "nested loop",
    "COUNT(*) FILTER (WHERE x + lo > k)": "nested loop",
    "COUNT(*) FILTER (WHERE x > lo OR y < hi)": "nested loop",
    "COUNT(*) FILTER (WHERE x > k AND y < hi)": "several ranges",
    "SUM(w) FILTER (WHERE x BETWEEN lo AND hi AND y >= k)": "several ranges",
    "COUNT(*) FILTER (WHERE x = k AND y < hi AND w > 0)": "several ranges",
    "COUNT(*) FILTER (WHERE x NOT BETWEEN lo AND hi)": "nested loop",
}
Row = tuple[int | None, ...]


def _some(dice: random.Random, low: int, high: int) -> int | None:
    return dice.choice([None, *range(low, high + 1)])


def _rows(dice: random.Random, n: int) -> list[Row]:
    return [(_some(dice, -2, 5), _some(dice, 0, 9), _some(dice, -3, 3)) for _ in range(n)]


def _candidates(dice: random.Random, n: int) -> list[Row]:
    """Few different values: duplicates, ties with the rows, empty and reversed ranges, NULL keys."""
    pick = dice.choice
    return [
        (i, pick([None, -1, 0, 1, 3, 5]), pick([0, 1, 3, 4]), pick([0, 1, 3, 4]), pick([0, 2, 9, 12]))
        for i in range(n)
    ]


def _fill(con: duckdb.DuckDBPyConnection, table: str, columns: str, rows: list[Row]) -> None:
    con.execute(f"CREATE OR REPLACE TABLE {table} ({columns})")
    if rows:
        values = ", ".join(
            "(" + ", ".join("NULL" if v is None else str(v) for v in row) + ")" for row in rows
        )
        con.execute(f"INSERT INTO {table} VALUES {values}")


def _brute(con: duckdb.DuckDBPyConnection, statistic: str, candidate: Row) -> int:
    """The statistic as plain SQL, with one candidate's values pasted in; a sum of nothing is 0."""
    values = dict(zip(("k", "lo", "hi", "b"), candidate[1:], strict=True))
    text = re.sub(
        r"\b(k|lo|hi|b)\b",
        lambda m: "CAST(NULL AS INTEGER)" if values[m[1]] is None else f"({values[m[1]]})",
        statistic,
    )
    # LEAST passes over NULLs, a sum does not.
    source = "t WHERE y IS NOT NULL" if "LEAST" in text else "t"
    total = 0
    for sign, term in zip((1, -1), text.split(" - SUM"), strict=False):
        row = con.execute(f"SELECT {term if sign > 0 else 'SUM' + term} FROM {source}").fetchone()
        total += sign * int(row[0] or 0)
    return total


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def _tables(con: duckdb.DuckDBPyConnection, rows: list[Row], candidates: list[Row]) -> dpsql.Session:
    _fill(con, "t", "x INTEGER, y INTEGER, w INTEGER", rows)
    _fill(con, "c", "id INTEGER, k INTEGER, lo INTEGER, hi INTEGER, b INTEGER", candidates)
    return dpsql.connect(con, policy=dpsql.Policy.loads(POLICY))


@pytest.mark.parametrize("statistic", SHAPES)
def test_shape_equals_a_query_per_candidate(con: duckdb.DuckDBPyConnection, statistic: str) -> None:
    dice = random.Random(statistic)
    for size, many in ((0, 1), (12, 5)):
        candidates = _candidates(dice, many)
        query = f"SELECT id, EXPMECH({statistic}, top => {many}, answer => TRUE) OVER c FROM t"
        with _tables(con, _rows(dice, size), candidates) as session:
            assert f"({SHAPES[statistic]})" in str(session.explain(query))
            got: dict[Any, Any] = {row["id"]: row["answer"] for row in session.sql(query).dicts()}
        wanted = {c[0]: _brute(con, statistic, c) for c in candidates}
        assert {i: round(float(v)) for i, v in got.items()} == wanted


@pytest.mark.parametrize("statistic", SHAPES)
def test_one_row_moves_it_by_no_more_than_the_sensitivity(
    con: duckdb.DuckDBPyConnection, statistic: str
) -> None:
    dice = random.Random("neighbours" + statistic)
    candidates = _candidates(dice, 4)
    with _tables(con, [], candidates) as session:
        said = str(session.explain(f"SELECT id, EXPMECH({statistic}) OVER c FROM t"))
    found = re.search(r"one \w+ moves it by at most ([0-9.e+]+)(, always the same way)?\.", said)
    assert found is not None, said
    most, moves = float(found[1]), set()
    for _ in range(8):
        rows = _rows(dice, dice.choice([1, 2, 6]))
        _fill(con, "t", "x INTEGER, y INTEGER, w INTEGER", rows)
        whole = [_brute(con, statistic, c) for c in candidates]
        _fill(con, "t", "x INTEGER, y INTEGER, w INTEGER", rows[1:])
        moves |= {a - _brute(con, statistic, c) for a, c in zip(whole, candidates, strict=True)}
    assert max(map(abs, moves)) <= most
    if found[2]:
        assert min(moves) >= 0 or max(moves) <= 0
