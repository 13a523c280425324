"""Words around a private choice: names that clash, stars, aliases, subqueries and options, through a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

import dpsql

POLICY = """
budget = { epsilon = 1e12, delta = 0.5, accountant = "basic", default_epsilon = 1e6 }
[tables]
t = { privacy_unit = "u", max_rows = 2, columns = { w = { bounds = [-2, 2] } } }
c = { public = true }
"""
MANY = "COUNT(*) FILTER (WHERE s = k)"
EITHER = "COUNT(*) FILTER (WHERE s = k OR s = 'none')"  # candidate by candidate


@pytest.fixture
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (u INTEGER, s VARCHAR, x INTEGER, w DOUBLE)")
        rows = [
            (1, "a", 1, 0.5),
            (2, "b", 2, 1.5),
            (3, "b", 2, -1.0),
            (4, None, None, None),
            (5, "c", 3, 2.0),
        ]
        con.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        con.execute("CREATE TABLE c AS FROM (VALUES ('a', 1), ('b', 2), ('c', 3)) AS v(k, n)")
        yield con


NAMED = "WITH d(k, n, threshold, sensitivity, score, answer) AS (VALUES ('b', 2, 1.5, 2.5, 7, 8), ('a', 1, 0.5, 1.5, 5, 6)) "


@pytest.mark.parametrize("statistic", [MANY, EITHER, "COUNT(*) FILTER (WHERE x = n)"])
def test_candidates_keep_their_names_and_their_values(session: dpsql.Session, statistic: str) -> None:
    all_of_them = [("b", 2, 1.5, 2.5, 7, 8), ("a", 1, 0.5, 1.5, 5, 6)]
    text = f"{NAMED} SELECT ABOVE_THRESHOLD({statistic}, threshold, max_hits => 2) OVER d FROM t"
    assert [
        tuple(float(v) if i > 0 else v for i, v in enumerate(row)) for row in session.sql(text).fetchall()
    ] == (all_of_them)
    text = (
        f"{NAMED} SELECT threshold, score, sensitivity, EXPMECH(sensitivity * {statistic}, answer => TRUE) OVER d "
        "AS best FROM t"
    )
    row = session.sql(text).dicts()[0]
    assert (float(row["threshold"]), row["score"], float(row["sensitivity"])) == (1.5, 7, 2.5)
    assert row["best"] == pytest.approx(5, abs=0.01)


@pytest.mark.parametrize(
    "name", ["dpsql_ord", "dpsql_score", "dpsql_threshold", "dpsql_sensitivity", "dpsql_base"]
)
def test_columns_of_candidates_may_have_any_name(session: dpsql.Session, name: str) -> None:
    statistic = MANY.replace("c.", "d.")
    row = session.sql(
        f"WITH d(k, {name}) AS (FROM c) SELECT k, {name}, EXPMECH({statistic}) OVER d FROM t"
    ).dicts()[0]
    assert (row["k"], row[name]) == session.sql(f"SELECT k, n FROM c WHERE k = '{row['k']}'").fetchone()


BEST = f"EXPMECH({MANY}, answer => TRUE) OVER c"
AROUND: list[tuple[str, list[str], list[tuple[Any, ...]]]] = [
    (f"SELECT k, {BEST} AS a FROM t ORDER BY a DESC, 1 LIMIT 1", ["k", "a"], [("b", 2)]),
    (f"SELECT upper(k), {BEST} AS a FROM t", ["upper(k)", "a"], [("B", 2)]),
    (f"SELECT k || '!' AS n, 1 + {BEST} FROM t ORDER BY n", ["n", "expmech"], [("b!", 3)]),
    (f"SELECT (SELECT MAX(n) FROM c) AS most, {BEST} FROM t", ["most", "answer"], [(3, 2)]),
    (f"SELECT (SELECT COUNT(*) FROM t) AS most, {BEST} FROM t", ["most", "answer"], [(5, 2)]),
    (
        f"SELECT c.k, row_number() OVER (ORDER BY c.k) AS r, {BEST} FROM t",
        ["k", "r", "answer"],
        [("b", 1, 2)],
    ),
    # what the SELECT calls so, though the candidates have a column of that name
    (
        f"SELECT -n AS n, ABOVE_THRESHOLD({MANY}, 0.5, max_hits => 3) OVER c FROM t ORDER BY n",
        ["n"],
        [(-3,), (-2,), (-1,)],
    ),
    (
        f"""WITH "a""b.c"("x y") AS (VALUES ('b')) SELECT "x y", EXPMECH({MANY.replace("k", '"x y"')}) """
        """OVER "a""b.c" FROM t""",
        ["x y"],
        [("b",)],
    ),
]


@pytest.mark.parametrize(("text", "columns", "rows"), AROUND)
def test_around_a_choice(session: dpsql.Session, text: str, columns: list[str], rows: list[Any]) -> None:
    result = session.sql(text)
    assert (result.columns, result.fetchall()) == (columns, rows)


@pytest.mark.parametrize(("threshold", "above"), [("3.5", True), ("4", True), ("4.5", False), ("5", False)])
def test_a_declared_threshold_between_two_counts(session: dpsql.Session, threshold: str, above: bool) -> None:
    """As in ABOVE_THRESHOLD itself: a count of 4 is not above 4.5."""
    session.sql(f"DECLARE alarm ABOVE_THRESHOLD {threshold}")
    assert session.sql("SELECT WITH alarm COUNT(*) FROM t WHERE s IS NOT NULL").fetchone() == (above,)
    plain = session.sql(f"SELECT ABOVE_THRESHOLD(COUNT(*), {threshold}) FROM t WHERE s IS NOT NULL")
    assert plain.fetchone() == (above,)


def test_close_does_not_depend_on_the_answers(session: dpsql.Session) -> None:
    """A cell that opens, asks and closes runs through, whether or not the last hit closed the threshold before."""
    for threshold, hits in ((3, 1), (30, 0)):
        cell = f"DECLARE alarm ABOVE_THRESHOLD {threshold}; SELECT WITH alarm COUNT(*) FROM t; CLOSE alarm"
        *_, closed = session.run(cell)
        assert closed.dicts()[0]["status"].startswith(f"closed after {hits} hit")
        with pytest.raises(dpsql.BindError, match="no threshold alarm is open"):
            session.sql("CLOSE alarm")
    spent = [float(entry.event.basic[0]) for entry in session.ledger()]
    assert spent[0] == 1e6
    assert spent[1] < 1e6


@pytest.mark.parametrize(
    ("declared", "marked"),
    [
        ("(threshold => 1, max_hits => 3)", "(threshold => 1, max_hits => 3)"),
        ("(1, max_hits => 3)", "(1, max_hits => 3)"),
        ("(5, 6)", "5, 6"),
        ("()", "DECLARE alarm ABOVE_THRESHOLD()"),
        (" 5 FROM t", "5 FROM t"),
        (" 5 WHERE TRUE", "5 WHERE TRUE"),
        (" (SELECT 'a')", "'a'"),
    ],
)
def test_what_is_no_threshold_is_pointed_at(session: dpsql.Session, declared: str, marked: str) -> None:
    text = f"DECLARE alarm ABOVE_THRESHOLD{declared}"
    with pytest.raises(dpsql.Error) as caught:
        session.sql(text)
    assert caught.value.span is not None
    assert marked in text[slice(*caught.value.span)]
    assert caught.value.hint is not None
    assert session.budget().spent_epsilon == 0


@pytest.mark.parametrize(("accountant", "whole"), [("basic", False), ("zcdp", True), ("gdp", True)])
def test_the_cost_that_is_shown_is_what_is_charged(
    con: duckdb.DuckDBPyConnection, accountant: str, whole: bool
) -> None:
    """Hits that were not found are free in a basic session only, and so it says; rounds that never began are anywhere."""
    policy = dpsql.Policy.loads(POLICY.replace('"basic"', f'"{accountant}"'))
    with dpsql.connect(con, policy=policy) as session:
        choice = f"SELECT ABOVE_THRESHOLD({MANY}, 1.5, max_hits => 10, epsilon => 1000) OVER c FROM t"
        found = session.sql(choice)
        assert found.shape[0] == 1
        full, part = ("μ=89.42", "μ=39.29") if accountant == "gdp" else ("ε=1000", "ε=200")
        assert (found.loss == full) == whole
        assert f"cost {found.loss} " in found.cost_line
        assert session.sql(choice.replace("10,", "10, refresh => TRUE,")).loss == part
        session.sql("DECLARE a ABOVE_THRESHOLD 50 OPTIONS (epsilon = 1000, max_hits = 2)")
        assert (session.sql("CLOSE a").loss == full) == whole


@pytest.mark.parametrize("statistic", [MANY, EITHER])
def test_thresholds_that_are_always_or_never_reached(session: dpsql.Session, statistic: str) -> None:
    values = [
        ("a", "-1e30"),
        ("b", "'-inf'"),
        ("c", "-3"),
        ("a", "1e30"),
        ("b", "'inf'"),
        ("c", "'nan'"),
        ("a", "NULL"),
    ]
    listed = ", ".join(f"('{k}', {v}::DOUBLE)" for k, v in values)
    call = f"ABOVE_THRESHOLD({statistic}, limit_, max_hits => 7) OVER d"
    found = session.sql(f"WITH d(k, limit_) AS (VALUES {listed}) SELECT k, {call} FROM t").fetchall()
    assert found == [("a",), ("b",), ("c",)]


@pytest.mark.parametrize(
    ("accountant", "method"), [("basic", "permute and flip"), ("zcdp", "exponential"), ("gdp", "exponential")]
)
def test_the_method_that_costs_least(con: duckdb.DuckDBPyConnection, accountant: str, method: str) -> None:
    policy = dpsql.Policy.loads(POLICY.replace('"basic"', f'"{accountant}"'))
    with dpsql.connect(con, policy=policy) as session:
        assert f"candidates by {method} (" in str(session.explain(f"SELECT {BEST} FROM t"))
