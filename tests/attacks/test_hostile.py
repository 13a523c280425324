"""Hostile statements on neighbouring databases: the same outcome, the same words, and nothing of the data in either."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpsql
from dpsql.mechanisms.contribution_caps import CapLadder
from tests.support import inside
from tests.support.hostile_statements import CORPUS, Hostile, counted, outcome
from tests.support.neighbours import CANARY, open_neighbours


@pytest.fixture(scope="module")
def sessions() -> Iterator[tuple[dpsql.Session, dpsql.Session]]:
    pair = open_neighbours()
    yield pair
    for session in pair:
        session.close()


@pytest.fixture(scope="module")
def asked(sessions: tuple[dpsql.Session, dpsql.Session]) -> tuple[list[str], list[str]]:
    """The questions of both; each public table has been read before, which binding does once."""
    for session in sessions:
        for table in session.policy.tables.values():
            if table.public:
                session.explain(f"SELECT COUNT(*) FROM people CROSS JOIN {table.name}")
    return counted(sessions[0]), counted(sessions[1])


def test_the_corpus_is_large_and_has_both_verdicts() -> None:
    assert len(CORPUS) >= 200
    assert {item.verdict for item in CORPUS} == {"refused", "answered"}
    assert len({item.text for item in CORPUS}) == len(CORPUS)


FOUND = "_contributed = AUTO"
CASES = [(item, rung) for item in CORPUS for rung in ((0, 1, 99) if FOUND in item.text else (None,))]
"""The statements; those that find caps under the first cap, the second and the last."""


@pytest.mark.parametrize(
    ("item", "rung"), CASES, ids=[f"{item.attacks}: {item.text[:80]} {rung or ''}" for item, rung in CASES]
)
def test_neighbours_give_the_same(
    sessions: tuple[dpsql.Session, dpsql.Session],
    asked: tuple[list[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    item: Hostile,
    rung: int | None,
) -> None:
    """The same outcome, after the same number of questions to the engine: none where it is refused.

    A found cap is released, and decides which texts are read. So both neighbours find one cap, whatever the noise is.
    """
    if rung is not None:
        monkeypatch.setattr(CapLadder, "climb", lambda ladder, *_: min(rung, len(ladder.caps) - 1))
    for questions in asked:
        questions.clear()
    given, without = (outcome(session, item.text, rung is not None) for session in sessions)
    assert given[0] == item.verdict, given
    assert given == without
    assert len(asked[0]) == len(asked[1])
    if "refused" in given[0]:
        assert not asked[0]
    if CANARY not in item.text:
        assert CANARY not in " ".join(given)


def test_questions_to_the_engine_are_counted(
    sessions: tuple[dpsql.Session, dpsql.Session], asked: tuple[list[str], list[str]]
) -> None:
    asked[0].clear()
    sessions[0].sql("SELECT COUNT(*) FROM people WHERE age > 17", fresh=True)
    assert asked[0]


def test_the_unit_that_differs_would_show(sessions: tuple[dpsql.Session, dpsql.Session]) -> None:
    """The corpus can fail: without noise the two databases are far apart, and plain DuckDB raises on one of them."""
    text = "SELECT WITH DP OPTIONS (epsilon = 10) SUM(CASE WHEN person_id = 666 THEN 1 ELSE 0 END) * 1000 AS n FROM people"
    values = [session.sql(text).arrow().column(0)[0].as_py() for session in sessions]
    assert len(values) == 2
    con = inside.engine(sessions[0])._con  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="CANARY"):
        con.execute("SELECT CAST(name AS INTEGER) FROM people WHERE person_id = 666").fetchall()
    without = inside.engine(sessions[1])._con  # type: ignore[attr-defined]
    assert without.execute("SELECT CAST(name AS INTEGER) FROM people WHERE person_id = 666").fetchall() == []
