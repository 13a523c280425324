"""Queries as values are printed as DuckDB reads them, clause by clause."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest

from dpsql.mechanisms.queries import ROW_COUNT, As, Join, Query, Select, Subquery, Union, cross, write_filter

ROWS = Subquery(Select(As("i", "x"), As("range(4)", "r(i)")), "rows")
PAIRS = Select(
    ("a.x", As("b.x", "y")), cross(Subquery(Select("x", ROWS), "a"), Subquery(Select("x", ROWS), "b"))
)
TEXTS: list[tuple[Query, str, list[tuple[int, ...]]]] = [
    (Select("1"), "SELECT 1", [(1,)]),
    (
        Select(("x % 2", ROW_COUNT), ROWS, ("x > 0", "x < 3"), "x % 2", having="x % 2 = 1"),
        "SELECT x % 2, COUNT(*) AS n FROM (SELECT i AS x FROM range(4) AS r(i)) AS rows WHERE x > 0 AND x < 3 "
        "GROUP BY x % 2 HAVING x % 2 = 1",
        [(1, 1)],
    ),
    (
        Select("x", "given", order=("x DESC",), limit=1, offset=1, with_={"given": Select("x", ROWS)}),
        "WITH given AS (SELECT x FROM (SELECT i AS x FROM range(4) AS r(i)) AS rows) "
        "SELECT x FROM given ORDER BY x DESC LIMIT 1 OFFSET 1",
        [(2,)],
    ),
    (
        Select("x", ROWS, qualify="row_number() OVER (ORDER BY x) = 2", limit=0),
        "SELECT x FROM (SELECT i AS x FROM range(4) AS r(i)) AS rows QUALIFY row_number() OVER (ORDER BY x) = 2 LIMIT 0",
        [],
    ),
    (Union((Select("1"), Select("1"))), "SELECT 1 UNION ALL SELECT 1", [(1,), (1,)]),
    (Union((Select("1"), Select("1")), distinct=True), "SELECT 1 UNION SELECT 1", [(1,)]),
    (
        Select(
            "a.i",
            Join(As("range(2)", "a(i)"), As("range(1)", "b(i)"), "a.i = b.i", side="LEFT"),
            "b.i IS NULL",
        ),
        "SELECT a.i FROM range(2) AS a(i) LEFT JOIN range(1) AS b(i) ON a.i = b.i WHERE b.i IS NULL",
        [(1,)],
    ),
    (
        Select("a.i", Join(As("range(2)", "a(i)"), As("range(1)", "b(i)"), "a.i = b.i"), distinct=True),
        "SELECT DISTINCT a.i FROM range(2) AS a(i) JOIN range(1) AS b(i) ON a.i = b.i",
        [(0,)],
    ),
    (
        Select(f"COUNT(*){write_filter('x > 1')}", ROWS),
        "SELECT COUNT(*) FILTER (WHERE x > 1) FROM (SELECT i AS x FROM range(4) AS r(i)) AS rows",
        [(2,)],
    ),
]


@pytest.mark.parametrize(("query", "text", "rows"), TEXTS)
def test_a_query_is_written_as_duckdb_reads_it(query: Query, text: str, rows: list[tuple[int, ...]]) -> None:
    assert query.sql == str(query) == text
    with duckdb.connect() as con:
        assert con.execute(text).fetchall() == rows


def test_values_are_equal_and_hashed_by_their_clauses() -> None:
    again = replace(PAIRS, where="a.x < y")
    assert again != PAIRS
    assert replace(again, where=()) == PAIRS
    assert hash(replace(again, where=())) == hash(PAIRS)
    assert again.sql == f"{PAIRS} WHERE a.x < y"
