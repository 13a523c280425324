"""Intervals that go up through CTEs, subqueries and joins; and nothing else of them is to be seen."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from tests.support.fixtures import con_fixture, session_fixture

POLICY = """
budget = { epsilon = 1000, accountant = "basic", default_epsilon = 1 }
[tables]
t = { privacy_unit = "u", max_rows = 1, max_groups = 1, columns = { k = { values = ["a", "b", "c"] }, \
    x = { bounds = [0, 10] } } }
names = { public = true }
"""
ROWS = """
CREATE TABLE t AS SELECT i AS u, ['a', 'b', 'c'][1 + i % 3] AS k, i % 10 AS x FROM range(60) AS r(i);
CREATE TABLE names AS SELECT * FROM (VALUES ('a', 1), ('b', 2), ('c', 3)) AS v(k, place);
"""
A = "WITH a AS (SELECT k, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY k) "


con = con_fixture(ROWS)
session = session_fixture(POLICY)


CARRIED = {
    A + "SELECT k, n FROM a": ["n"],
    A + "SELECT * FROM a ORDER BY n DESC LIMIT 2": ["n", "s"],
    A + "SELECT a.k, a.n AS how_many, place FROM a JOIN names ON a.k = names.k": ["how_many"],
    A + "SELECT k, n, place FROM a JOIN names USING (k) WHERE n > 1": ["n"],
    A + "SELECT place, a.n / 2 + 1 AS half FROM names LEFT JOIN a ON a.k = names.k": ["half"],
    A + "SELECT names.*, a.n FROM a, names WHERE a.k = names.k": ["n"],
    A + ", b AS (SELECT k AS key, n AS m FROM a WHERE n > 1) SELECT key, m FROM b": ["m"],
    A + ", b AS (SELECT * FROM a) SELECT b.s, b.k FROM b": ["s"],
    A + "SELECT one.n, two.s FROM a AS one JOIN a AS two ON one.k = two.k": ["n", "s"],
    "SELECT v.n FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) AS v": ["n"],
    "SELECT n FROM (SELECT n FROM (SELECT COUNT(*) AS n FROM t))": ["n"],
    A + "SELECT k, n, (SELECT MAX(n) FROM a) AS most, RANK() OVER (ORDER BY n) AS place FROM a": ["n"],
    # >= is never empty, as > is where all are equal
    A + "SELECT k, n FROM a WHERE n >= (SELECT AVG(n) FROM a)": ["n"],
    A + 'SELECT "N" FROM A': ["n"],
    A + "SELECT -n AS n, n * s AS both, s / n AS mean FROM a": ["n", "both", "mean"],
    A
    + "SELECT k, n FROM a UNION ALL (SELECT k, n + s FROM a) UNION ALL SELECT k, place FROM names ORDER BY 2 LIMIT 5": [
        "n"
    ],
    "SELECT * FROM (" + A + "SELECT k, n FROM a UNION ALL SELECT k, n FROM a)": ["n"],
}
NOT_CARRIED = [
    A + "SELECT DISTINCT n FROM a",
    A + "SELECT k, n FROM a UNION SELECT k, n FROM a",
    A + "SELECT SUM(n) AS n FROM a",
    A + "SELECT k, MAX(n) AS n FROM a GROUP BY k",
    A + "SELECT *, 1 AS one FROM a",
    A + "SELECT * FROM a JOIN names USING (k)",
    A + "SELECT a.* FROM a",
    A + "SELECT k, n FROM a NATURAL JOIN names",
    A + "SELECT k, n, a FROM a",
    A + "SELECT v.n FROM a AS v(k, n, s)",
    A + ", b AS (SELECT DISTINCT k, n FROM a) SELECT n FROM b",
    "WITH a(k, n) AS (SELECT k, COUNT(*) FROM t GROUP BY k) SELECT n FROM a",
    A + "SELECT k, n FROM a WHERE EXISTS (SELECT *, 1 FROM a AS b WHERE b.n > a.n)",
    A + "SELECT COLUMNS(*) FROM a",
    A + "SELECT a.n FROM a JOIN (SELECT *, 2 AS two FROM a) AS b USING (k)",
]


@pytest.mark.parametrize("sql", CARRIED)
def test_a_column_that_goes_on_keeps_its_interval(session: dpsql.Session, sql: str) -> None:
    result = session.sql(sql, fresh=True)
    assert list(result.intervals) == CARRIED[sql]
    for name, pairs in result.intervals.items():
        values = result.table.column(name).to_pylist()
        assert len(values) == len(pairs)
        assert any(pairs)
        for value, pair in zip(values, pairs, strict=True):
            assert pair is None or pair[0] < value < pair[1], "each around its own number"


@pytest.mark.parametrize("sql", [*CARRIED, *NOT_CARRIED])
def test_nothing_else_changes(session: dpsql.Session, con: duckdb.DuckDBPyConnection, sql: str) -> None:
    """The columns are DuckDB's own, in its order, and no value shows the ends of an interval."""
    result = session.sql(sql)
    assert result.columns == con.sql(sql).columns
    assert "dpsql_" not in repr(result.fetchall()) + str(result.columns)
    if sql in NOT_CARRIED:
        assert not result.intervals


def test_levels_that_differ_are_not_shown_as_one(session: dpsql.Session) -> None:
    sql = """WITH a AS (SELECT WITH DP OPTIONS (confidence = 0.5) COUNT(*) AS n FROM t),
             b AS (SELECT WITH DP OPTIONS (confidence = 0.9) SUM(x) AS s FROM t) SELECT n, s FROM a, b"""
    assert not session.sql(sql).intervals


ENDS = {
    "SELECT n, INTERVAL_LOW(n), INTERVAL_HIGH(n) FROM (SELECT COUNT(*) AS n FROM t) AS r": "n",
    "SELECT COUNT(*) AS n, INTERVAL_LOW(n), interval_high(COUNT(*)) FROM t": "n",
    A
    + "SELECT a.n, INTERVAL_LOW(a.n), INTERVAL_HIGH(n) FROM a JOIN names USING (k) ORDER BY INTERVAL_LOW(n) LIMIT 1": "n",
    A
    + "SELECT *, INTERVAL_LOW(n), INTERVAL_HIGH(n) FROM (SELECT n FROM a WHERE INTERVAL_LOW(n) < 1e6) AS r LIMIT 1": "n",
}


@pytest.mark.parametrize("text", ENDS)
def test_ends_are_columns(session: dpsql.Session, text: str) -> None:
    result = session.sql(text)
    n, low, high = result.fetchall()[0]
    shown = session.sql(text.replace("INTERVAL_LOW(n)", "1", 1)).intervals
    assert low < n < high
    assert high - n == n - low
    if ENDS[text] in result.intervals:
        assert (low, high) in [tuple(pair) for pair in result.intervals[ENDS[text]]]
    assert len(result.columns) == 3, shown


def test_ends_follow_the_confidence_and_cost_nothing(session: dpsql.Session) -> None:
    text = "SELECT INTERVAL_HIGH(n) - INTERVAL_LOW(n) FROM (SELECT WITH DP OPTIONS (epsilon = 1{}) COUNT(*) AS n FROM t) AS r"
    wide, narrow = (session.sql(text.format(o)) for o in (", confidence = 0.999", ", confidence = 0.5"))
    assert wide.fetchone()[0] > narrow.fetchone()[0]
    session.sql("SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM t WHERE x > 2")
    ends = session.sql(
        "SELECT INTERVAL_LOW(n) FROM (SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM t WHERE x > 2)"
    )
    assert ends.loss == "no charge"


def test_what_has_no_interval_has_no_ends(session: dpsql.Session) -> None:
    text = "SELECT INTERVAL_LOW(m), INTERVAL_HIGH(-n) FROM (SELECT MODE(x) AS m, COUNT(*) AS n FROM t) AS r"
    ((nothing, high),) = session.sql(text).fetchall()
    assert nothing is None
    assert high < 0, "the higher end of -n is the lower end of n"
    assert session.sql("SELECT DISTINCT INTERVAL_LOW(place) FROM names").fetchall() == [(None,)]
    for wrong, message in (
        ("SELECT INTERVAL_LOW(z) FROM (SELECT COUNT(*) AS n FROM t) AS r", "no column z"),
        ("SELECT INTERVAL_LOW(1) FROM (SELECT COUNT(*) AS n FROM t) AS r", "one released column"),
        ("SELECT INTERVAL_LOW(x) FROM t", "must be a group"),
    ):
        with pytest.raises(dpsql.Error, match=message):
            session.sql(wrong)
