"""Refusals and their reasons: each citation is held against its verdict, and what could be private is counted."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import duckdb
import pytest
from sqlglot.errors import SqlglotError

from tests.support import peers

MOST_REFUSED = 50
"""The number of statements that can be private for each one of them that may be refused."""


def refused() -> list[peers.Case]:
    return [case for case in peers.cases() if case.verdict != peers.ANSWERED]


def test_each_citation_speaks_of_its_verdict() -> None:
    wrong = []
    for case in peers.cases():
        cited = case.keys.get("reason")
        if cited is not None and not peers.is_cited_rightly(cited, case.verdict):
            wrong.append(f"{case}: {cited} and {case.verdict}")
    assert not wrong


def test_every_reason_is_used_or_general() -> None:
    used = {case.keys["reason"] for case in refused() if "reason" in case.keys}
    assert used <= set(peers.reasons())
    assert set(peers.reasons()) - used <= {"template", "statement"}, "no statement of a suite has these"


def test_at_most_one_in_fifty_that_can_be_private_is_refused() -> None:
    possible = [case for case in refused() if "reason" not in case.keys]
    answered = sum(case.verdict == peers.ANSWERED for case in peers.cases())
    named = "\n".join(f"{case}: {case.verdict}" for case in possible)
    assert len(possible) * MOST_REFUSED <= answered + len(possible), (
        f"{len(possible)} of {answered}:\n{named}"
    )


def asked_of_duckdb(case: peers.Case) -> str:
    """The statement itself without our clauses, whatever is asked instead of it where answers are compared."""
    with contextlib.suppress(SqlglotError):
        keys = {key: value for key, value in case.keys.items() if key not in ("plain", "seen")}
        return peers.plain_of(replace(case, keys=keys))
    return peers.without_mode(case.text)


def test_duckdb_refuses_what_is_said_to_be_its_own_fault() -> None:
    answered = []
    for suite in sorted({case.suite for case in refused()}):
        with duckdb.connect() as con:
            con.execute(peers.data_of(suite))
            for case in (
                c for c in refused() if c.suite == suite and c.keys.get("reason") == peers.OWN_FAULT
            ):
                with contextlib.suppress(duckdb.Error):
                    con.execute(asked_of_duckdb(case), case.params or {}).fetchall()
                    answered.append(str(case))
    assert not answered


@pytest.mark.parametrize(
    ("reason", "verdict", "right"),
    [
        ("rows", "refused: PrivacyError: rows of visits can't be released.", True),
        ("rows", "refused: PrivacyError: AVG(x) needs bounds for x; the policy declares", False),
        ("rows", "answered", False),
        ("join", "refused: PrivacyError: rows of visits can't be released.", False),
    ],
)
def test_a_citation_can_be_wrong(reason: str, verdict: str, right: bool) -> None:
    assert peers.is_cited_rightly(reason, verdict) is right
