"""Plans are bound once where they depend on the text alone, and anew where they depend on more."""

from __future__ import annotations

import pytest

import dpsql
from dpsql.binding.plan import Plan
from tests.support import inside
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 1000, accountant = "basic", default_epsilon = 1 }
[tables]
t = { privacy_unit = "u", max_rows = 2, columns = { x = { bounds = [0, 3] } } }
g = { public = true }
"""
TABLES = """
CREATE TABLE t AS SELECT range AS u, 1.5::DOUBLE AS x FROM range(9);
CREATE TABLE g AS SELECT 1.5::DOUBLE AS x;
"""
session = session_fixture(POLICY, TABLES, scope="function")


def again(session: dpsql.Session, text: str, params: dict[str, object] | None = None) -> bool:
    """Return whether binding a text twice gives one plan."""
    first, second = (inside.planned(session, text, params) for _ in range(2))
    assert first == second
    return first is second


def test_a_text_is_bound_once(session: dpsql.Session) -> None:
    assert again(session, "SELECT COUNT(*), SUM(x), AVG(x) FROM t")
    one, other = (inside.planned(session, f"SELECT COUNT(*) FROM t WHERE x > {n}") for n in (1, 2))
    assert one != other


def test_candidates_that_a_session_reads_once_are_bound_once(session: dpsql.Session) -> None:
    choice = "SELECT EXPMECH(COUNT(*) FILTER (WHERE t.x >= {0}.x)) OVER {0} FROM t"
    assert again(session, choice.format("g"))
    assert session.sql(choice.format("g")).fetchall() == [(1.5,)]
    assert again(session, f"WITH h AS (SELECT * FROM g) {choice.format('h')}")
    assert not again(session, f"WITH h AS (SELECT random() AS x) {choice.format('h')}")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM t WHERE x > $least",
        "SELECT COUNT(*) FROM t SEMI JOIN g ON t.x = g.x",
        "SELECT COUNT(*) FROM t JOIN (SELECT x FROM g) AS h ON t.x = h.x",
    ],
)
def test_what_depends_on_more_is_bound_anew(session: dpsql.Session, text: str) -> None:
    assert not again(session, text, {"least": 1})


def test_another_default_epsilon_is_another_price(session: dpsql.Session) -> None:
    text = "SELECT COUNT(*) FROM t"
    losses = [
        result.loss for given in (None, "2", None) for result in session.run(text, fresh=True, epsilon=given)
    ]
    assert losses == ["ε=1", "ε=2", "ε=1"]


def test_a_refusal_is_logged_each_time(session: dpsql.Session) -> None:
    for _ in range(2):
        with pytest.raises(dpsql.PrivacyError):
            session.sql("SELECT * FROM t")
    assert len(session.ledger()) == 2


def test_an_answer_that_only_has_other_names_needs_no_sql(session: dpsql.Session) -> None:
    for text in ("SELECT COUNT(*), SUM(x), AVG(x) FROM t", "SELECT SUM(x) AS s FROM t"):
        plan = inside.planned(session, text)
        assert isinstance(plan, Plan)
        assert plan.renamed is not None
