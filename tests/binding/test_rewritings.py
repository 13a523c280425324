"""Rewritings of the statements that analysts bring have their answers: comments, case, qualification, nesting, ordinals."""

from __future__ import annotations

import re
from collections.abc import Iterator
from zlib import crc32

import pytest

import dpsql
from tests.support.analyst import ANSWERED, Asked, close, ordered, read
from tests.support.city import open_city
from tests.support.clinic import open_clinic
from tests.support.rewritings import REWRITINGS

PART, LONG_PART = 60, 6
"""The default selection tries one in so many statements with each rewriting, ``-m long`` more of them. All take an hour."""
ALONE = re.compile(
    r"(?i)UNPIVOT|^PIVOT|list_contains|\bIN \[|,\s+FROM|'day', month|\(\S+, MONTH\)"
    r"|0\.5 ORDER BY|WITHIN GROUP|--|tags|SELECT n, COUNT|OVER \(|`"
)
"""Statements that these rewritings would make others: names become values, sqlglot writes lists as rows, a month is a word."""


CITY = [case for case in read("corpora/city.sql") if case.plain]
Brought = tuple[dpsql.Session, list[Asked]]


@pytest.fixture(scope="module", params=["clinic", "city"])
def brought(request: pytest.FixtureRequest) -> Iterator[Brought]:
    """A session, and the statements about its data."""
    con, session = open_clinic() if request.param == "clinic" else open_city()
    with con, session:
        yield session, ANSWERED if request.param == "clinic" else CITY


def compare(session: dpsql.Session, name: str, texts: list[str]) -> tuple[int, list[str]]:
    """The number of rewritten statements, and those with other answers."""
    tried, wrong = 0, []
    for text in texts:
        if ALONE.search(text):
            continue
        made = REWRITINGS[name](text)
        if made is None:
            continue
        tried += 1
        plain = ordered(session.sql(text).fetchall())
        try:
            rows = ordered(session.sql(made).fetchall())
        except dpsql.Error as error:
            wrong.append(f"{made}: {error.message}")
            continue
        same = len(rows) == len(plain) and all(map(close, rows, plain))
        wrong += [] if same else [f"{made}: {rows} for {plain}"]
    return tried, wrong


def chosen(cases: list[Asked], name: str, part: int) -> list[str]:
    """One in ``part`` of the statements, by a hash, so that a new statement doesn't change which others are tried."""
    return [case.text for case in cases if crc32(f"{name} {case.text}".encode()) % part == 0]


@pytest.mark.parametrize("name", REWRITINGS)
def test_a_part_of_the_statements(brought: Brought, name: str) -> None:
    session, answered = brought
    _, wrong = compare(session, name, chosen(answered, name, PART))
    assert not wrong


@pytest.mark.parametrize("name", REWRITINGS)
def test_a_larger_part_of_the_statements(brought: Brought, name: str) -> None:
    session, answered = brought
    tried, wrong = compare(session, name, chosen(answered, name, LONG_PART))
    assert not wrong
    assert tried
