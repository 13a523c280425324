"""Statements that people write about events, marks, logs, surveys and payments: answered as plain DuckDB does, or refused.

``city.sql`` has each with its outcome. ``possible`` marks a refusal of a statement that could be answered: few may be.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from tests.support.analyst import Asked, check_refusal, check_rows, read
from tests.support.city import open_city

City = tuple[duckdb.DuckDBPyConnection, dpsql.Session]
ASKED = read("corpora/city.sql")
ANSWERED = [case for case in ASKED if case.plain]
REFUSED = [case for case in ASKED if case.message and not case.possible]
POSSIBLE = [case for case in ASKED if case.possible]
FEW = 15
"""At most one in so many may be refused though possible."""


@pytest.fixture(scope="module")
def city() -> Iterator[City]:
    con, session = open_city()
    with con, session:
        yield con, session


@pytest.mark.parametrize("case", ANSWERED, ids=[case.text for case in ANSWERED])
def test_answers_are_plain_duckdbs(city: City, case: Asked) -> None:
    con, session = city
    check_rows(session.sql(case.text).fetchall(), con.execute(case.plain).fetchall())


@pytest.mark.parametrize("case", REFUSED, ids=[case.text for case in REFUSED])
def test_refusals_say_why(city: City, case: Asked) -> None:
    check_refusal(city[1], case)


@pytest.mark.parametrize("case", POSSIBLE, ids=[case.text for case in POSSIBLE])
def test_what_is_refused_though_possible_is_right_once_it_is_answered(city: City, case: Asked) -> None:
    con, session = city
    try:
        mine = session.sql(case.text).fetchall()
    except dpsql.Error as error:
        assert error.message == case.message
    else:
        check_rows(mine, con.execute(case.text).fetchall())


def test_few_are_refused_though_possible() -> None:
    assert len(ASKED) > 400
    assert len(POSSIBLE) * FEW <= len(ANSWERED) + len(POSSIBLE)
