"""Groups that bounds make are shown as DuckDB shows them: those without rows are left out, at no further charge."""

from __future__ import annotations

import math

import duckdb
import pytest

import dpsql
from tests.support.both import plan_of
from tests.support.fixtures import con_fixture
from tests.support.plain import policy_of

POLICY = policy_of("""
code = { bounds = [0, 99] }
d = { bounds = [2024-01-01, 2024-03-31] }
x = { bounds = [-10, 10] }
""")
ALL = "OPTIONS (group_selection_strategy = PUBLIC_GROUPS)"
TABLES = """
CREATE TABLE v AS SELECT i AS id, CASE WHEN i % 3 = 0 THEN 'A' ELSE 'B' END AS w, [3, 50, 77][i % 3 + 1] AS code,
            DATE '2024-01-10' + (i % 4 * 7)::INTEGER AS d, (i % 21) - 10 AS x
        FROM range(4200) AS t(i);
CREATE TABLE plans AS SELECT 'A' AS w;
"""
con = con_fixture(TABLES)


def _rounded(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    shown = [tuple(round(v, 3) if isinstance(v, float) else v for v in row) for row in rows]
    return sorted(shown, key=repr)


ALIKE = [
    "SELECT code, COUNT(*) AS n FROM v GROUP BY code",
    "SELECT code, SUM(x + 20) AS s FROM v GROUP BY code",
    "SELECT code, AVG(x) AS m, VAR_POP(x) AS s FROM v GROUP BY code",
    "SELECT d, COUNT(*) AS n FROM v GROUP BY d",
    "SELECT w, code, COUNT(*) AS n FROM v GROUP BY w, code",
    "SELECT code // 10 AS tens, COUNT(*) AS n FROM v GROUP BY code // 10",
    "SELECT date_trunc('week', d) AS week, COUNT(*) AS n FROM v GROUP BY week",
    "SELECT AVG(n) AS m FROM (SELECT code, COUNT(*) AS n FROM v GROUP BY code)",
    "SELECT COUNT(*) AS many FROM (SELECT code, COUNT(*) AS n FROM v GROUP BY code)",
    "SELECT code, n, RANK() OVER (ORDER BY n) AS r FROM (SELECT code, COUNT(*) AS n FROM v GROUP BY code)",
    "SELECT code, COUNT(*) AS n FROM v GROUP BY ROLLUP (code)",
    "SELECT w, code, COUNT(*) AS n FROM v GROUP BY CUBE (w, code) HAVING COUNT(*) > 1000",
    "SELECT code, n FROM (SELECT code, COUNT(*) AS n FROM v GROUP BY code) JOIN (SELECT 50 AS code) USING (code)",
]


@pytest.mark.parametrize("text", ALIKE)
def test_groups_are_those_of_duckdb(
    session: dpsql.Session, con: duckdb.DuckDBPyConnection, text: str
) -> None:
    assert _rounded(session.sql(text).fetchall()) == _rounded(con.execute(text).fetchall())


@pytest.mark.parametrize("strategy", ["EVEN", "MARGINALS"])
def test_grouping_sets_show_a_total_and_the_sets_groups(session: dpsql.Session, strategy: str) -> None:
    text = f"SELECT WITH DP OPTIONS (strategy = {strategy}) code, COUNT(*) AS n FROM v GROUP BY ROLLUP (code)"
    assert sorted(row[0] or -1 for row in session.sql(text).fetchall()) == [-1, 3, 50, 77]


def test_all_groups_are_there_and_free(session: dpsql.Session) -> None:
    """The note says how many are not shown, and what it names shows them from the stored answer."""
    shown = session.sql("SELECT code, COUNT(*) AS n FROM v GROUP BY code")
    note = next(note for note in shown.notes if "97 of 100 groups" in note)
    assert ALL in note
    every = session.sql(f"SELECT WITH DP {ALL} code, COUNT(*) AS n FROM v GROUP BY code")
    assert every.event is None
    assert len(every.fetchall()) == 100
    assert not any("not shown" in note for note in every.notes)
    again = session.sql("SELECT code, COUNT(*) AS n FROM v GROUP BY code")
    assert again.event is None
    assert again.fetchall() == shown.fetchall()


def test_the_loss_is_that_of_all_groups(session: dpsql.Session) -> None:
    shown = plan_of(session, "SELECT code, COUNT(*) AS n FROM v GROUP BY code")
    every = plan_of(session, f"SELECT WITH DP {ALL} code, COUNT(*) AS n FROM v GROUP BY code")
    assert shown.event == every.event
    assert shown.blocks[0].operator == every.blocks[0].operator


def test_declared_values_all_appear(session: dpsql.Session) -> None:
    rows = session.sql("SELECT w, COUNT(*) FILTER (WHERE x > 100) AS n FROM v GROUP BY w").fetchall()
    assert sorted(row[0] for row in rows) == ["A", "B"]


def test_a_window_in_the_order_of_a_range_has_all_steps(session: dpsql.Session) -> None:
    text = "SELECT d, SUM(n) OVER (ORDER BY d) AS r FROM (SELECT d, COUNT(*) AS n FROM v GROUP BY d)"
    rows = session.sql(text).fetchall()
    assert len(rows) == 91
    assert max(row[1] for row in rows) == 4200
    named = "SELECT d, SUM(n) OVER win AS r FROM (SELECT d, COUNT(*) AS n FROM v GROUP BY d) WINDOW win AS (ORDER BY d)"
    assert len(session.sql(named).fetchall()) == 91
    assert "since a window follows their order" in str(session.sql(f"EXPLAIN {text}"))


def test_without_a_count_all_groups_appear_and_a_note_says_why(session: dpsql.Session) -> None:
    found = session.sql("SELECT code, MEDIAN(x) AS m FROM v GROUP BY code")
    assert len(found.fetchall()) == 100
    assert any("add COUNT(*)" in note for note in found.notes)
    counted = session.sql("SELECT code, MEDIAN(x) AS m, COUNT(*) AS n FROM v GROUP BY code")
    assert sorted(row[0] for row in counted.fetchall()) == [3, 50, 77]


def test_later_private_blocks_see_the_groups_that_are_shown(session: dpsql.Session) -> None:
    text = "SELECT COUNT(*) AS n FROM v JOIN (SELECT code, COUNT(*) AS many FROM v GROUP BY code) AS g ON v.x = g.code - 47"
    assert session.sql(text).fetchall()[0][0] == 200  # of the codes that are shown, 50 alone is met


def count_shown(candidates: int, answers: int, statement: str = "COUNT(*) AS n") -> tuple[int, int]:
    """Return how many answers show a group without rows, and how many show the one of thirty units, at epsilon 1."""
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT i AS u, CAST(7 AS INTEGER) AS code, 1 AS x FROM range(30) AS r(i)"
        )
        policy = dpsql.Policy.loads(
            '[budget]\nepsilon = 1e6\naccountant = "basic"\n[tables.t]\nprivacy_unit = "u"\nmax_rows = 1\n'
            f"[tables.t.columns]\ncode = {{ bounds = [0, {candidates - 1}] }}\nx = {{ bounds = [0, 1] }}\n"
        )
        false = true = 0
        with dpsql.connect(con, policy=policy) as session:
            text = f"SELECT WITH DP OPTIONS (epsilon = 1) code, {statement} FROM t GROUP BY code"
            for _ in range(answers):
                shown = {row[0] for row in session.sql(text, fresh=True).fetchall()}
                true += 7 in shown
                false += bool(shown - {7})
        return false, true


def test_false_and_true_groups() -> None:
    false, true = count_shown(100, 60)
    assert false <= 16, "of one answer in twenty, so many come once in ten million"
    assert true >= 44


@pytest.mark.stochastic
@pytest.mark.parametrize("candidates", [10, 100, 1_000])
@pytest.mark.parametrize("statement", ["COUNT(*) AS n", "COUNT(*) AS n, SUM(x) AS s"])
def test_false_and_true_groups_of_1_000_answers(candidates: int, statement: str) -> None:
    """At most 5 answers of 100 show a group without rows; 95 of 100 show the group of thirty units."""
    false, true = count_shown(candidates, 1_000, statement)
    print(f"{candidates} candidates, {statement}: {false / 10:.1f} % false, {true / 10:.1f} % true")
    assert false <= 50 + 6 * math.sqrt(50)
    assert true >= 950 - 6 * math.sqrt(50)
