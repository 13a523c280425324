"""DECLARE ... STABLE: questions that are answered exactly where blocks agree, through the language and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.errors import BindError, Error, ParseError, PrivacyError

POLICY = """
budget = { epsilon = 100, delta = 1e-3, accountant = "ACCOUNTANT" }
[tables]
visits = { privacy_unit = "person", max_rows = 2 }
wards = { public = true }
"""
DECLARE = "DECLARE alarm STABLE OPTIONS (epsilon = 40, delta = 1e-9, max_unstable = 5, blocks = 256)"
TIED = "SELECT WITH alarm MIN(person) AS first FROM visits"
"""No two blocks have the same answer."""


def connect(tmp_path: Path, accountant: str = "basic") -> dpsql.Session:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE visits AS SELECT range AS person, range % 10 AS week, 'A' AS ward FROM range(20000)"
    )
    con.execute("CREATE TABLE wards AS SELECT 'A' AS ward")
    policy = dpsql.Policy.loads(POLICY.replace("ACCOUNTANT", accountant))
    return dpsql.connect(con, policy=policy, ledger=tmp_path / "ledger")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[dpsql.Session]:
    with connect(tmp_path) as session:
        yield session


def week(number: int) -> str:
    """A question on which all blocks agree: about 8 people of each week are in each of them."""
    return f"SELECT WITH alarm COUNT(*) > {number % 2} AS busy FROM visits WHERE week <= {number}"


def run(session: dpsql.Session, questions: int, every: int) -> list[object]:
    answers = []
    for i in range(questions):
        text = TIED if i % every == every - 1 else week(1 + i % 9)
        answers.append(session.sql(text).fetchone()[0])
    return answers


@pytest.mark.parametrize(("accountant", "refresh"), [("basic", False), ("basic", True), ("zcdp", True)])
def test_a_session_is_charged_for_its_unstable_questions(
    tmp_path: Path, accountant: str, refresh: bool
) -> None:
    """Chance of another outcome below 1e-8: epsilon is large, and all blocks agree, or no two of them."""
    with connect(tmp_path, accountant) as session:
        session.sql(DECLARE.replace("blocks", "refresh = TRUE, blocks") if refresh else DECLARE)
        answers = run(session, 16, 8)
        assert answers.count(None) == 2
        assert set(answers) == {True, None}
        closed = session.sql("CLOSE alarm")
        assert closed.fetchone() == ("alarm", "closed after 2 unstable questions")
        event = session.ledger()[0].event
        assert event.hits == 2
        if refresh:  # the two rounds that ended, and the third
            assert event.basic == (Fraction(40 * 3, 5), Fraction(3, 5 * 10**9))
        else:
            assert event.basic == (event.epsilon1 + event.epsilon2 * 2 / 5, Fraction(1, 10**9))


def test_the_fifth_unstable_question_closes_it_and_a_sixth_is_refused(session: dpsql.Session) -> None:
    assert session.sql(DECLARE).fetchone() == ("alarm", "open")
    assert run(session, 10, 2).count(None) == 5
    with pytest.raises(BindError, match="closed"):
        session.sql(week(3))
    assert session.sql("CLOSE alarm").fetchone() == ("alarm", "closed after 5 unstable questions")
    assert session.ledger()[0].event.basic == (40, Fraction(1, 10**9))


def test_one_cell_declares_and_asks_and_nothing_else_is_paid(session: dpsql.Session) -> None:
    results = session.run(f"{DECLARE}; {week(2)}; {TIED}; CLOSE alarm")
    assert [r.fetchone()[0] for r in results] == ["alarm", True, None, "alarm"]
    assert "one of 5 is paid" in results[2].notes[0]
    assert not results[1].notes
    assert len(session.ledger()) == 1


def test_all_questions_meet_the_same_blocks(session: dpsql.Session) -> None:
    """A vote on who is in which block: the blocks are cut once, so each question sees the same people together."""
    session.register("fingerprint", lambda person: str(sorted(person)[:1]), returns="VARCHAR")
    alarm = "DECLARE alarm STABLE OPTIONS (epsilon = 40, delta = 1e-9, max_unstable = 50, blocks = 256)"
    session.sql(alarm)
    declared = session._pipeline.thresholds.declared["alarm"]
    salts = {declared.salt() for _ in range(3)}  # type: ignore[attr-defined]
    session.sql(week(1))
    assert {declared.salt()} == salts  # type: ignore[attr-defined]
    assert session.sql("SELECT WITH alarm fingerprint(person) AS f FROM visits").fetchone() == (None,)
    session.run("CLOSE alarm; " + alarm)
    again = session._pipeline.thresholds.declared["alarm"]
    assert again.salt() not in salts  # type: ignore[attr-defined]


def test_a_whole_query_may_stand_inside(session: dpsql.Session) -> None:
    session.sql(DECLARE)
    text = """WITH per AS (SELECT week, COUNT(*) AS n FROM visits GROUP BY week)
        SELECT WITH alarm MAX(n) > 1 AS often FROM per"""
    assert session.sql(text).fetchone() == (True,)
    joined = "SELECT WITH alarm MAX(w.ward) AS top FROM visits JOIN wards AS w USING (ward)"
    assert session.sql(joined).df().columns.tolist() == ["top"]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("DECLARE alarm STABLE 5 OPTIONS (epsilon = 1)", ParseError, "only OPTIONS follow STABLE"),
        ("DECLARE alarm STABLE OPTIONS (epsilon = 1) 5", ParseError, "only OPTIONS follow STABLE"),
        ("DECLARE alarm STABLE OPTIONS (epsilon = 1)", PrivacyError, "need a delta"),
        ("DECLARE alarm STABLE OPTIONS (delta = 1e-6)", PrivacyError, "needs an epsilon"),
        ("DECLARE alarm STABLE OPTIONS (epsilon = 1, delta = 1e-6, blocks = 1)", BindError, "between 2 and"),
        ("DECLARE alarm STABLE OPTIONS (epsilon = 1, max_hits = 3)", BindError, "no max_hits"),
        ("DECLARE ptr STABLE OPTIONS (epsilon = 1, delta = 1e-6)", BindError, "the name of a mode"),
        (f"{DECLARE}; SELECT WITH alarm COUNT(*) AS n, MAX(week) AS w FROM visits", BindError, "one output"),
        (f"{DECLARE}; SELECT WITH alarm week FROM visits", PrivacyError, "one row"),
        (f"{DECLARE}; SELECT WITH alarm OPTIONS (blocks = 9) MAX(week) FROM visits", BindError, "no blocks"),
    ],
)
def test_what_is_refused_costs_nothing(
    session: dpsql.Session, text: str, kind: type[Error], said: str
) -> None:
    with pytest.raises(kind, match=said):
        session.run(text)
    assert session.budget().spent_epsilon == 0


def test_a_session_that_ends_pays_for_what_it_was_told(tmp_path: Path) -> None:
    with connect(tmp_path) as session:
        session.run(f"{DECLARE}; {TIED}")
    with connect(tmp_path) as again:
        assert again.ledger()[0].event.hits == 1


@pytest.mark.stochastic
def test_a_thousand_questions_of_which_five_are_unstable(session: dpsql.Session) -> None:
    session.sql(DECLARE.replace("max_unstable = 5", "max_unstable = 10"))
    answers = run(session, 1000, 200)
    assert answers.count(None) == 5
    assert answers.count(True) == 995
    session.sql("CLOSE alarm")
    event = session.ledger()[0].event
    assert event.basic == (event.epsilon1 + event.epsilon2 / 2, Fraction(1, 10**9))
