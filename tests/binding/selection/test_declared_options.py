"""Options of DECLARE and its questions, and released numbers where literals stand: through a session and its ledger."""

from __future__ import annotations

from fractions import Fraction

import pytest

import dpsql
from dpsql.privacy.events import GaussianSparseVector
from tests.support import inside
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 1e7, delta = 1e-2, accountant = "basic" }
[tables]
t = { privacy_unit = "u", max_rows = 1, columns = { x = { bounds = [0, 100] } } }
limits = { public = true }
"""
TABLES = """
CREATE TABLE t AS SELECT range AS u, range % 100 AS x, ['A', 'B'][1 + range % 2] AS w FROM range(1000);
CREATE TABLE limits AS SELECT 700 AS most, 50.5 AS top;
"""
session = session_fixture(POLICY, TABLES, scope="function")


def test_hits_have_gaps_and_answers_that_are_paid_with_them(session: dpsql.Session) -> None:
    options = "epsilon = 4000, max_hits = 4, gap = TRUE, answer = TRUE, budget_split = (0.25, 0.25, 0.5)"
    session.sql(f"DECLARE alarm ABOVE_THRESHOLD 700 OPTIONS ({options})")
    (hit,) = session.sql("SELECT WITH alarm COUNT(*) AS busy FROM t").df().to_dict("records")
    assert hit["busy"]
    assert abs(hit["gap"] - 300) < 1
    assert hit["answer"] == 1000
    (miss,) = session.sql("SELECT WITH alarm COUNT(*) FROM t WHERE w = 'A'").fetchall()
    assert miss == (False, None, None)
    session.sql("CLOSE alarm")
    assert session.ledger()[0].event.basic == (1000 + Fraction(3000, 4), 0)


def test_each_question_may_have_a_threshold_of_its_own(session: dpsql.Session) -> None:
    session.sql("DECLARE alarm ABOVE_THRESHOLD 700 OPTIONS (epsilon = 4000, max_hits = 2)")
    ask = "SELECT WITH alarm OPTIONS (threshold = {}) COUNT(*) FROM t"
    assert session.sql(ask.format(1100)).fetchone() == (False,)
    assert session.sql(ask.format(900)).fetchone() == (True,)
    assert session.sql(ask.format("(SELECT 2 * most FROM limits)")).fetchone() == (False,)


def test_a_gaussian_threshold_is_charged_in_its_own_words(session: dpsql.Session) -> None:
    session.sql(
        "DECLARE alarm ABOVE_THRESHOLD 700 OPTIONS (epsilon = 1000, delta = 1e-6, noise = GAUSSIAN, max_hits = 2)"
    )
    assert session.sql("SELECT WITH alarm COUNT(*) FROM t").fetchone() == (True,)
    session.sql("CLOSE alarm")
    event = session.ledger()[0].event
    assert isinstance(event, GaussianSparseVector)
    assert event.hits == 1
    assert event.basic[0] < 1000
    assert event.basic[1] == Fraction(1, 10**6)


def test_passes_and_a_gaussian_threshold_of_candidates(session: dpsql.Session) -> None:
    text = """WITH c(w) AS (VALUES ('A'), ('B'), ('C')) SELECT WITH DP OPTIONS (delta = 1e-6, noise = GAUSSIAN)
        ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE t.w = c.w), 100, epsilon => 1000, max_hits => 3, passes => 3) OVER c FROM t"""
    assert "asked again, 3 times" in str(session.explain(text))
    assert sorted(session.sql(text).fetchall()) == [("A",), ("B",)]
    with pytest.raises(dpsql.BindError, match="at most 100 passes"):
        session.sql(text.replace("passes => 3", "passes => 101"))


@pytest.mark.parametrize(
    ("shares", "said"),
    [("(0.3, 0.6)", "add up to 0.9"), ("(0.3, 0.7, 0.1)", "add up to 1.1"), ("1", "each stage"),
     ("(0.2, 0.3, 0.5)", "the threshold and the questions"), ("(1.5, -0.5)", "above 0")],
)  # fmt: skip
def test_shares_are_public_and_add_up(session: dpsql.Session, shares: str, said: str) -> None:
    for text in (
        f"DECLARE alarm ABOVE_THRESHOLD 5 OPTIONS (epsilon = 1, budget_split = {shares})",
        f"SELECT ABOVE_THRESHOLD(COUNT(*), 5, epsilon => 1, budget_split => {shares}) FROM t",
        f"DECLARE alarm STABLE OPTIONS (epsilon = 1, delta = 1e-6, budget_split = {shares})",
    ):
        with pytest.raises(dpsql.BindError, match=said):
            session.sql(text)
    assert session.budget().spent_epsilon == 0


def test_shares_are_what_is_charged(session: dpsql.Session) -> None:
    session.sql("DECLARE one ABOVE_THRESHOLD 5 OPTIONS (epsilon = 1, budget_split = (0.3, 0.7))")
    session.sql("DECLARE two STABLE OPTIONS (epsilon = 1, delta = 1e-6, budget_split = (0.4, 0.6))")
    one, two = (entry.event for entry in session.ledger())
    assert (one.epsilon1, one.epsilon2) == (Fraction(3, 10), Fraction(7, 10))
    assert (two.epsilon1, two.epsilon2) == (Fraction(4, 10), Fraction(6, 10))


# -- released numbers ----------------------------------------------------------------------------------------------


@pytest.fixture
def released(session: dpsql.Session) -> dpsql.Session:
    session.run("best << SELECT WITH DP OPTIONS (epsilon = 1e6) COUNT(*) / 10.0 AS t FROM t")
    return session


@pytest.mark.parametrize(
    "text",
    [
        "SELECT WITH DP OPTIONS (epsilon = 1000) SUM(x, contribution_bounds_per_row => (0, {})) FROM t",
        "SELECT WITH DP OPTIONS (epsilon = 1000) AVG(x, contribution_bounds_per_row => (-1, {})) FROM t",
        "WITH c(w) AS (VALUES ('A')) SELECT ABOVE_THRESHOLD(COUNT(*) FILTER (WHERE x = 1), {} * 4, epsilon => 1) OVER c FROM t",
        "SELECT WITH DP OPTIONS (epsilon = {}) COUNT(*) FROM t",
        "WITH c(v) AS (VALUES ({}), (3)) SELECT EXPMECH(COUNT(*) FILTER (WHERE x < v), epsilon => 9) OVER c FROM t",
        "SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1, bounds = (0, {})) AVG(x) AS a FROM t",
    ],
)  # fmt: skip
def test_a_number_that_was_released_stands_for_its_literal(released: dpsql.Session, text: str) -> None:
    query = released.explain(text.replace("{}", "(SELECT t FROM best)"))
    literal = released.explain(text.replace("{}", "100.0"))
    assert query.event == literal.event
    if "WITH c(v)" not in text:
        assert query.sentences == literal.sentences


def test_it_may_come_from_a_public_table_a_cte_or_the_result_of_a_choice(released: dpsql.Session) -> None:
    bounded = "SUM(x, contribution_bounds_per_row => (0, (SELECT {} FROM {})))"
    for name, source, front in (
        ("most", "limits", ""), ("v", "k", "WITH k AS (SELECT 40 AS v) "), ("t", "best", "WITH best AS (SELECT 7 AS t) "),
    ):  # fmt: skip
        text = f"{front}SELECT WITH DP OPTIONS (epsilon = 1) {bounded.format(name, source)} FROM t"
        said = " ".join(released.explain(text).sentences)
        held = {"limits": 700, "k": 40, "best": 7}[source]
        assert f"clamped to [0, {held}]" in said, "a CTE comes before a kept result"
    released.run(
        "price << WITH c(v) AS (VALUES (10), (20)) SELECT EXPMECH(v * COUNT(*), epsilon => 100) OVER c FROM t"
    )
    said = released.explain(
        f"SELECT WITH DP OPTIONS (epsilon = 1) {bounded.format('v', 'price')} FROM t"
    ).sentences
    assert any("clamped to [0, 20]" in sentence for sentence in said)


def test_a_declared_threshold_may_be_released(released: dpsql.Session) -> None:
    released.sql("DECLARE alarm ABOVE_THRESHOLD 5 + (SELECT t FROM best) OPTIONS (epsilon = (SELECT 1))")
    assert inside.declared(released)["alarm"].threshold == 105  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("(SELECT t FROM best WHERE t < 0)", "NULL"),
        ("(SELECT t FROM best UNION ALL SELECT 1)", "more than one row"),
        ("(SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) FROM t)", "not released yet"),
        ("(SELECT x FROM t)", "x"),
        ("(SELECT t FROM nothing)", "nothing"),
        ("(SELECT 'ten')", "must be a number"),
    ],
)
def test_what_is_no_public_number_is_refused_and_costs_nothing(
    released: dpsql.Session, query: str, said: str
) -> None:
    before = released.budget().spent_epsilon
    for text in (
        f"SELECT WITH DP OPTIONS (epsilon = 1) SUM(x, contribution_bounds_per_row => (0, {query})) FROM t",
        f"DECLARE alarm ABOVE_THRESHOLD {query} OPTIONS (epsilon = 1)",
    ):
        with pytest.raises(dpsql.Error, match=said):
            released.sql(text)
    assert released.budget().spent_epsilon == before
