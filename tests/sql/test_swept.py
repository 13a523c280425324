"""Statistics out of histograms: the same numbers as DuckDB's own, for all that is compared there, and one scan."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.mechanisms import sweep

POLICY = """
[budget]
epsilon = 1e9
delta = 0.5
accountant = "basic"
default_epsilon = 1e6
[tables.t]
privacy_unit = "ROW"
[tables.t.columns]
i = { bounds = [0, 50] }
[tables.c]
public = true
"""


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    dice = random.Random(11)

    def some(*values: str) -> str:
        return dice.choice(values)

    def row() -> str:
        d = some("NULL", "'NaN'", "'Infinity'", "-0.0", "0.0", "1.5", "2.5", "'-Infinity'")
        day = some("NULL", "DATE '2024-01-01'", "DATE '2024-01-02'", "DATE '2024-02-01'")
        i, price = some("NULL", "0", "1", "2", "40", "90"), some("NULL", "1.10", "2.20", "2.25")
        return f"({i}, {d}, {day}, {price}, {some('NULL', '9000000000000000000', '-5')})"

    with duckdb.connect() as con:
        columns = "i INTEGER, d DOUBLE, day DATE, price DECIMAL(6,2), big BIGINT"
        con.execute(f"CREATE TABLE t ({columns})")
        con.execute(f"CREATE TABLE c (id INTEGER, {columns})")
        con.execute("INSERT INTO t VALUES " + ", ".join(row() for _ in range(80)))
        con.execute("INSERT INTO c VALUES " + ", ".join(f"({n}, {row()[1:]}" for n in range(25)))
        yield con


@pytest.fixture
def session(con: duckdb.DuckDBPyConnection) -> Iterator[dpsql.Session]:
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        yield session


SWEPT = [
    f"COUNT(*) FILTER (WHERE t.{x} {op} c.{y})"
    for x, y in (("i", "i"), ("d", "d"), ("i", "d"), ("d", "i"), ("day", "day"), ("big", "i"), ("big", "d"))
    for op in ("=", ">=", ">", "<", "<=")
]
ELSE = [
    "COUNT(*) FILTER (WHERE t.price >= c.price)",
    "COUNT(*) FILTER (WHERE t.price < c.i)",
    "COUNT(*) FILTER (WHERE t.i > c.price)",
]


@pytest.mark.parametrize("statistic", SWEPT + ELSE)
def test_equals_duckdb(con: duckdb.DuckDBPyConnection, session: dpsql.Session, statistic: str) -> None:
    query = f"SELECT id, EXPMECH({statistic}, top => 25, answer => TRUE) OVER c FROM t"
    got = {row["id"]: row["answer"] for row in session.sql(query).dicts()}
    assert got == dict(con.execute(f"SELECT c.id, {statistic} FROM c CROSS JOIN t GROUP BY c.id").fetchall())
    asked = str(session.explain(query)).count("Exact SQL")
    assert asked == (2 if statistic in SWEPT else 1)


def test_types_that_are_not_compared_here_come_from_sql(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should a plan think otherwise, the release still asks in SQL."""
    monkeypatch.setattr(sweep, "_comparable", lambda kind: False)
    statistic = "COUNT(*) FILTER (WHERE t.i >= c.i)"
    got = session.sql(f"SELECT id, EXPMECH({statistic}, top => 25, answer => TRUE) OVER c FROM t").dicts()
    expected = con.execute(f"SELECT c.id, {statistic} FROM c CROSS JOIN t GROUP BY c.id").fetchall()
    assert {row["id"]: row["answer"] for row in got} == dict(expected)


CLIPPED = "SUM(LEAST(t.i, c.i)) - SUM(LEAST(t.i, c.i {}))"


@pytest.mark.parametrize(
    ("step", "moved", "width"), [("+ 1", "1, always the same way", 1), ("- 3", "3, always the same way", 3)]
)
def test_difference_of_two_near_clips(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, step: str, moved: str, width: int
) -> None:
    """One row moves it by their distance, however far the clips reach; and one histogram serves both."""
    statistic = CLIPPED.format(step)
    query = f"SELECT id, EXPMECH({statistic}, top => 25, answer => TRUE) OVER c FROM t"
    explained = str(session.explain(query))
    assert f"moves it by at most {moved}" in explained
    assert explained.count("Exact SQL") == 2
    got = {row["id"]: round(row["answer"]) for row in session.sql(query).dicts()}
    least = "SUM(LEAST(GREATEST(t.i, 0), 50, {0}))"
    for n, clip in con.execute("SELECT id, i FROM c WHERE i IS NOT NULL").fetchall():
        other = eval(f"clip {step}")
        row = con.execute(
            f"SELECT {least.format(clip)} - {least.format(other)} FROM t WHERE t.i IS NOT NULL"
        ).fetchone()
        assert row is not None and got[n] == row[0]
        for value in range(-3, 60):
            one = [min(max(value, 0), 50, c) for c in (clip, other)]
            assert abs(one[0] - one[1]) <= width


@pytest.mark.parametrize(
    "statistic",
    [
        "SUM(LEAST(t.i, c.i)) + SUM(LEAST(t.i, c.i + 1))",
        "SUM(LEAST(t.i, c.i)) - SUM(LEAST(t.i, c.big))",
        "SUM(LEAST(t.i, c.big)) - SUM(LEAST(t.i, c.big + 1))",
        "SUM(LEAST(t.i, c.i)) - SUM(LEAST(t.i, c.i * 2))",
        "SUM(LEAST(t.i, c.i)) - 2 * SUM(LEAST(t.i, c.i + 1))",
        "SUM(LEAST(t.i, c.i)) - SUM(LEAST(t.i, c.i + 1)) FILTER (WHERE t.i > 3)",
    ],
)
def test_what_is_no_such_difference(session: dpsql.Session, statistic: str) -> None:
    explained = str(session.explain(f"SELECT id, EXPMECH({statistic}) OVER c FROM t"))
    found = re.search(r"moves it by at most ([0-9.e+]+)", explained)
    assert found is not None and float(found[1]) >= 40


def test_one_pair_takes_part_once(session: dpsql.Session) -> None:
    three = "SUM(LEAST(t.i, c.i)) - SUM(LEAST(t.i, c.i + 1)) - SUM(LEAST(t.i, c.i + 2))"
    found = re.search(
        r"moves it by at most ([0-9.e+]+)", str(session.explain(f"SELECT id, EXPMECH({three}) OVER c FROM t"))
    )
    assert found is not None and float(found[1]) >= 50


def test_a_histogram_too_large_to_hold_stays_in_the_engine(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []
    score = sweep.Sweep.score

    def watched(self: sweep.Sweep, *given: object) -> object:
        table = score(self, *given)  # type: ignore[arg-type]
        held.append(table is not None)
        return table

    monkeypatch.setattr(sweep.Sweep, "score", watched)
    for most, op, wanted in ((1 << 22, ">=", True), (3, "<=", False)):
        monkeypatch.setattr(sweep, "MOST", most)
        test_equals_duckdb(con, session, f"COUNT(*) FILTER (WHERE t.i {op} c.i)")
        assert held.pop() is wanted
