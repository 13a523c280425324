"""Declared sensitivities of statistics, against sensitivities worked out by hand: bounds below zero, keys with two faces."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.mechanisms.selection.above_threshold import AboveThreshold
from tests.support import inside
from tests.support.fixtures import open_session, session_fixture

POLICY = """
[budget]
epsilon = 1e9
delta = 1e-3
accountant = "basic"
default_epsilon = 1e6
default_delta = 1e-6
[tables.t]
privacy_unit = "u"
max_rows_per_group = 3
max_groups = 3
[tables.t.columns]
loss = { bounds = [-10, 2] }
x = { bounds = [0, 10] }
y = { bounds = [0, 10] }
"""
TABLES = """
CREATE TABLE t AS SELECT i // 3 AS u, -(i % 11) AS loss, i % 11 AS x, 10 - i % 11 AS y,
    INTERVAL (i) DAY AS gap, i * 0.5::DOUBLE AS d, [i * 0.5::DOUBLE] AS many FROM range(300) AS r(i);
"""
session = session_fixture(POLICY, TABLES)


def test_a_sum_of_numbers_below_zero_moves_by_the_farther_bound(session: dpsql.Session) -> None:
    text = "WITH c(b) AS (VALUES (1), (2)) SELECT ABOVE_THRESHOLD(SUM(loss), -100) OVER c FROM t"
    operator = inside.bind(session, text).blocks[0].operator
    assert isinstance(operator, AboveThreshold)
    assert operator.noise.sensitivity == 30 * operator.steps
    assert not operator.noise.monotone  # the bounds lie on both sides of zero


@pytest.mark.parametrize(
    ("call", "expected"), [("COVAR_POP(x, y)", None), ("CORR(x, y)", -1.0), ("REGR_SLOPE(y, x)", -1.0)]
)
def test_columns_that_go_against_each_other(
    session: dpsql.Session, call: str, expected: float | None
) -> None:
    """Products about the centres are negative then: a unit's own total of them is clamped below zero, not at it."""
    (found,) = session.sql(f"SELECT {call} AS a FROM t").fetchone() or (None,)
    if expected is None:
        plain = duckdb.sql("SELECT COVAR_POP(i % 11, 10 - i % 11) FROM range(300) AS r(i)").fetchall()
        expected = plain[0][0]
    assert found == pytest.approx(expected, rel=0.01)


def test_both_sides_of_union_all_count(session: dpsql.Session) -> None:
    """A unit has as many rows as both sides may have: three of each here."""
    text = "SELECT COUNT(*) AS n FROM (SELECT u, x FROM t UNION ALL SELECT u, x FROM t) AS twice"
    assert session.sql(text).fetchone() == (600,)


def test_the_limit_of_a_query_holds_for_all_of_its_grouping_sets() -> None:
    limited = POLICY.replace("accountant", "max_epsilon_per_query = 1\naccountant").replace("1e6", "1")
    policy = dpsql.Policy.loads(limited)
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (u INTEGER, loss INTEGER, x INTEGER, y INTEGER)")
        with dpsql.connect(con, policy=policy) as session:
            for groups in ("x", "ROLLUP (x, y)", "CUBE (x, y)", "GROUPING SETS ((x), (y), ())"):
                text = f"SELECT WITH DP OPTIONS (epsilon = 1.5) COUNT(*) AS n FROM t GROUP BY {groups}"
                with pytest.raises(dpsql.BudgetExceeded, match="per query"):
                    session.sql(text)


def test_nothing_is_read_before_the_charge_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at any point after the data were touched, the ledger knows of it; what does not fit touches nothing."""
    with open_session(POLICY, "CREATE TABLE t (u INTEGER, loss INTEGER, x INTEGER, y INTEGER)") as session:
        engine = inside.engine(session)
        read = engine.execute
        known: list[list[str]] = []

        def watched(sql: str, lent: Any = None) -> Any:
            known.append([entry.text for entry in session.ledger()])
            return read(sql, lent)

        monkeypatch.setattr(engine, "execute", watched)
        text = "SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM t"
        session.sql(text)
        assert known
        assert all(text in texts for texts in known)
        known.clear()
        with session.plan() as plan:
            plan.sql(text.replace("= 1)", "= 2)"))
            plan.sql(text.replace("= 1)", "= 3)"))
        assert known
        assert all("epsilon = 3" in texts[-1] for texts in known)
        known.clear()
        with pytest.raises(dpsql.BudgetExceeded):
            session.sql(text.replace("= 1)", "= 1e9)"))
        assert not known
