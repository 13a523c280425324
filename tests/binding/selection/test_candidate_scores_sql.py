"""Statistics out of histograms: the same numbers as DuckDB's own, for all that is compared there, and one scan."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.fast import candidate_scores, column_counts
from tests.support import inside
from tests.support.fixtures import session_fixture
from tests.support.policies import budget, table, write_policy

POLICY = write_policy(
    budget(1e9, 0.5, 1e6), t=table("ROW", i=(0, 50), v=(0, 50)), c=table(None, None, None, {"public": True})
)


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    dice = random.Random(11)

    def some(*values: str) -> str:
        return dice.choice(values)

    def row() -> str:
        d = some("NULL", "'NaN'", "'Infinity'", "-0.0", "0.0", "1.5", "2.5", "'-Infinity'")
        day = some("NULL", "DATE '2024-01-01'", "DATE '2024-01-02'", "DATE '2024-02-01'")
        i, price = some("NULL", "0", "1", "2", "40", "90"), some("NULL", "1.10", "2.20", "2.25")
        big = some("NULL", "9000000000000000000", "-5")
        wide = some("NULL", "9223372036854775807", "-9223372036854775808", "9000000000000000000", "-5")
        fine = some("NULL", "1.1", "1.1001", "2.1999", "2.2", "-0.0001", "99.9999")
        tiny = some("NULL", "1e-25", "-1e-25", "0", "0.9999999999999999999999999")
        deep = some("NULL", "1.0000000001", "0.9999999999", "40", "2")
        small, v = some("NULL", "0", "1", "2", "200"), some("1", "7")
        return f"({i}, {d}, {day}, {price}, {big}, {fine}, {tiny}, {deep}, {small}, {v}, {wide})"

    with duckdb.connect() as con:
        columns = "i INTEGER, d DOUBLE, day DATE, price DECIMAL(6,2), big BIGINT, "
        columns += "fine DECIMAL(9,4), tiny DECIMAL(38,30), deep DECIMAL(20,10), small UTINYINT, v INTEGER, wide BIGINT"
        con.execute(f"CREATE TABLE t ({columns})")
        con.execute(f"CREATE TABLE c (id INTEGER, {columns})")
        con.execute("INSERT INTO t VALUES " + ", ".join(row() for _ in range(80)))
        con.execute("INSERT INTO c VALUES " + ", ".join(f"({n}, {row()[1:]}" for n in range(25)))
        yield con


session = session_fixture(POLICY)


SWEPT = [
    f"COUNT(*) FILTER (WHERE t.{x} {op} c.{y})"
    for x, y in (
        ("i", "i"),
        ("d", "d"),
        ("i", "d"),
        ("d", "i"),
        ("day", "day"),
        ("big", "i"),
        ("big", "d"),
        ("wide", "d"),
        ("price", "d"),
        ("fine", "d"),
        ("tiny", "d"),
        ("deep", "d"),
        ("d", "price"),
        ("d", "fine"),
        ("d", "tiny"),
        ("d", "big"),
    )
    for op in ("=", ">=", ">", "<", "<=")
]  # fmt: skip
SWEPT += [
    f"COUNT(*) FILTER (WHERE t.{x} {op} c.{y})"
    for x, y in (
        ("price", "price"), ("price", "i"), ("i", "price"), ("price", "fine"), ("fine", "price"), ("price", "big"),
        ("i", "tiny"), ("i", "deep"), ("wide", "wide"), ("wide", "deep"), ("wide", "i"), ("small", "i"), ("i", "small"),
    )
    for op in ("=", ">=", "<=")
]  # fmt: skip
SWEPT += [
    "COUNT(*) FILTER (WHERE t.i >= c.v * 1.5)",
    "COUNT(*) FILTER (WHERE t.price >= CAST(c.i AS DOUBLE))",
    "COUNT(*) FILTER (WHERE t.d BETWEEN c.d AND c.d + 1)",
    "COUNT(*) FILTER (WHERE t.price BETWEEN c.d AND c.d * 1.5)",
    "COUNT(*) FILTER (WHERE t.i BETWEEN c.i AND c.i + 1)",
    "COUNT(*) FILTER (WHERE t.price > c.price AND t.price <= c.price + 1.15)",
    "COUNT(*) FILTER (WHERE t.day BETWEEN c.day AND c.day + 31)",
    "SUM(t.v) FILTER (WHERE t.price >= c.price)",
    "3 * COUNT(*) FILTER (WHERE t.i >= c.i) - COUNT(*) FILTER (WHERE t.price < c.price)",
]
ELSE = [
    "COUNT(*) FILTER (WHERE t.price >= c.d AND t.price <= c.price)",
    "COUNT(*) FILTER (WHERE t.d * 2 >= c.price)",
    "COUNT(*) FILTER (WHERE t.deep >= c.i)",
    "COUNT(*) FILTER (WHERE t.i * 1.5 >= c.i)",
]


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("statistic", SWEPT)
def test_equals_duckdb_by_both_routes(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, statistic: str, here: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Counted as it streams by, and grouped by the engine."""
    counted: list[bool] = []
    for name in ("_count_dense", "_count_between"):
        inner = getattr(candidate_scores, name)

        def watched(*given: Any, inner: Any = inner) -> object:
            run = inner(*given)
            counted.append(run is not None)
            return run

        monkeypatch.setattr(candidate_scores, name, watched)
    monkeypatch.setitem(vars(inside.engine(session)), "room", 1 << 20 if here else 0)
    test_equals_duckdb(con, session, statistic)
    if not here:
        assert not any(counted)
    elif re.search(r"t\.d\b", statistic) or not re.search(r"SUM|wide|tiny|deep|c\.d\b|CAST", statistic):
        assert any(counted)


@pytest.mark.parametrize("op", [">=", ">", "<=", "<"])
@pytest.mark.parametrize("x", ["i", "d", "day", "price", "fine", "small"])
@pytest.mark.parametrize("times", ["", "c.id * ", "-2 * "])
def test_the_best_of_few_equals_duckdbs(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, x: str, op: str, times: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Most candidates are ruled out by rough counts: the best, and its utility, are those of all exact counts."""
    found: list[object] = []

    inner = candidate_scores.CandidatePruning.take

    def watched(*given: Any) -> object:
        found.append(inner(*given))
        return found[-1]

    monkeypatch.setattr(candidate_scores, "LEAST_PRUNED", 0)
    monkeypatch.setattr(candidate_scores, "_GROUPS", 13)
    monkeypatch.setattr(candidate_scores.CandidatePruning, "take", watched)
    statistic = f"{times}COUNT(*) FILTER (WHERE t.{x} {op} c.{x})"
    over = f"(SELECT id + 1 AS id, {x} FROM c WHERE {x} IS NOT NULL)"
    query = f"WITH c AS {over} SELECT id, EXPMECH({statistic}, answer => TRUE) OVER c FROM t"
    row = session.sql(query, fresh=True).dicts()[0]
    asked = f"SELECT c.id, {statistic} AS n FROM {over} AS c CROSS JOIN t GROUP BY c.id"
    expected = dict(con.execute(asked).fetchall())
    assert found[0] is not None
    assert row["answer"] == expected[row["id"]] == max(expected.values())


@pytest.mark.parametrize("statistic", ELSE)
def test_equals_duckdb(con: duckdb.DuckDBPyConnection, session: dpsql.Session, statistic: str) -> None:
    query = f"SELECT id, EXPMECH({statistic}, top => 25, answer => TRUE) OVER c FROM t"
    got = {row["id"]: row["answer"] for row in session.sql(query, fresh=True).dicts()}
    expected = con.execute(f"SELECT c.id, {statistic} FROM c CROSS JOIN t GROUP BY c.id").fetchall()
    assert got == {n: value or 0 for n, value in expected}
    asked = str(session.explain(query)).count("Exact SQL")
    assert (asked > 1) is (statistic in SWEPT)


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
    assert explained.count("Exact SQL") == 3
    got = {row["id"]: round(row["answer"]) for row in session.sql(query).dicts()}
    least = "SUM(LEAST(GREATEST(t.i, 0), 50, {0}))"
    for n, clip in con.execute("SELECT id, i FROM c WHERE i IS NOT NULL").fetchall():
        other = eval(f"clip {step}")
        row = con.execute(
            f"SELECT {least.format(clip)} - {least.format(other)} FROM t WHERE t.i IS NOT NULL"
        ).fetchone()
        assert got[n] == row[0]
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
    assert float(found[1]) >= 40


def test_one_pair_takes_part_once(session: dpsql.Session) -> None:
    three = "SUM(LEAST(t.i, c.i)) - SUM(LEAST(t.i, c.i + 1)) - SUM(LEAST(t.i, c.i + 2))"
    found = re.search(
        r"moves it by at most ([0-9.e+]+)", str(session.explain(f"SELECT id, EXPMECH({three}) OVER c FROM t"))
    )
    assert float(found[1]) >= 50


def test_a_histogram_too_large_to_hold_stays_in_the_engine(
    con: duckdb.DuckDBPyConnection, session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []
    score = candidate_scores.CandidateScores.take

    def watched(self: candidate_scores.CandidateScores, *given: object) -> object:
        table = score(self, *given)  # type: ignore[arg-type]
        held.append(table is not None)
        return table

    monkeypatch.setattr(candidate_scores.CandidateScores, "take", watched)
    for most, op, wanted in ((1 << 22, ">=", True), (3, "<=", False)):
        monkeypatch.setattr(candidate_scores, "MAX_BINS", most)
        monkeypatch.setattr(column_counts, "MAX_RANGE", most)
        if not wanted:  # nothing is counted here
            monkeypatch.setitem(vars(inside.engine(session)), "room", 0)
        test_equals_duckdb(con, session, f"COUNT(*) FILTER (WHERE t.i {op} c.i)")
        assert held.pop() is wanted


@pytest.mark.parametrize("kind", ["DECIMAL(10, 2)", "DECIMAL(18, 2)", "DOUBLE", "INTEGER", "BIGINT"])
@pytest.mark.parametrize("here", [True, False])
def test_clips_far_apart(kind: str, here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of numbers in more steps than are counted one by one, with some beyond their bounds and some missing."""
    monkeypatch.setattr(column_counts, "MAX_RANGE", 1 << 10)
    used: list[bool] = []
    inner = candidate_scores._sum_between

    def watched(*given: Any) -> object:
        used.append(inner(*given) is not None)
        return inner(*given)

    monkeypatch.setattr(candidate_scores, "_sum_between", watched)
    policy = '[budget]\nepsilon = 1e11\naccountant = "basic"\ndefault_epsilon = 1e10\n[tables.w]\nprivacy_unit = "ROW"\n'
    policy += "[tables.w.columns]\nm = { bounds = [-50, 1000000] }\n[tables.k]\npublic = true\n"
    with duckdb.connect() as con:
        con.execute(
            f"""CREATE TABLE w AS SELECT CASE WHEN range % 9 > 0 THEN CAST(range * 7919 % 1000003 - 60 AS {kind}) END AS m
            FROM range(300)"""
        )
        con.execute(
            f"CREATE TABLE k AS SELECT range AS id, CAST(range * 50021 - 60 AS {kind}) AS b FROM range(22)"
        )
        with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as session:
            if not here:
                monkeypatch.setitem(vars(inside.engine(session)), "room", 0)
            query = "SELECT id, EXPMECH(SUM(LEAST(m, b)), top => 22, answer => TRUE) OVER k FROM w"
            got = {row["id"]: row["answer"] for row in session.sql(query).dicts()}
        held = "LEAST(GREATEST(m, -50), 1000000)"
        asked = (
            f"SELECT id, SUM(LEAST({held}, b))::DOUBLE FROM k CROSS JOIN w WHERE m IS NOT NULL GROUP BY id"
        )
        expected = dict(con.execute(asked).fetchall())
    assert any(used) is here
    assert got == pytest.approx(expected, abs=20)  # a little noise; a row left out is 50,000
