"""Statements that an analyst of DuckDB or BigQuery would write: answered as plain DuckDB answers, or refused kindly.

The statements stand in ``analyst.sql``, each with its outcome: answered (as another statement, where plain DuckDB doesn't know
it as it is), or refused with these words and this hint. There is a section of what the hints say to write instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from tests.support.analyst import ANSWERED, ASKED, Asked, check_refusal, check_rows
from tests.support.case_files import internal_names
from tests.support.clinic import open_clinic

Clinic = tuple[duckdb.DuckDBPyConnection, dpsql.Session]


REFUSED = [case for case in ASKED if case.message]


@pytest.fixture(scope="module")
def clinic() -> Iterator[Clinic]:
    con, session = open_clinic()
    with con, session:
        yield con, session


@pytest.mark.parametrize("case", ANSWERED, ids=[case.text for case in ANSWERED])
def test_answers_are_plain_duckdbs(clinic: Clinic, case: Asked) -> None:
    con, session = clinic
    check_rows(session.sql(case.text).fetchall(), con.execute(case.plain).fetchall())


@pytest.mark.parametrize("case", REFUSED, ids=[case.text for case in REFUSED])
def test_refusals_say_why_and_what_to_write(clinic: Clinic, case: Asked) -> None:
    check_refusal(clinic[1], case)


def test_a_name_of_ours_would_show() -> None:
    said = "there is no column x; there is dpsql_derived_4, c0 and <class 'sqlglot'> TokenType.VAR"
    assert internal_names(said, "SELECT x") == ["dpsql_derived_4", "c0", "<class", "TokenType"]
    assert internal_names("c0 is not a column", "SELECT c0") == []


def test_each_refusal_points_at_something(clinic: Clinic) -> None:
    bare = []
    for case in REFUSED:
        try:
            clinic[1].sql(case.text)
        except dpsql.Error as error:
            if error.span is None:
                bare.append(case.text)
    assert not bare


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("var_samp(age), STDDEV(age), countif(age > 3)", ["var_samp(age)", "stddev(age)", "countif(age > 3)"]),
        ("SUM(age::INT), COUNT(DISTINCT sex)", ["sum(CAST(age AS INTEGER))", "count(DISTINCT sex)"]),
        ("SUM(age) FILTER (WHERE age > 3), COUNT(*) * 2", ["sum(age) FILTER (WHERE age > 3)", "count_star() * 2"]),
        ("Round(AVG(age), 1), median(age)", ["round(avg(age), 1)", "median(age)"]),
    ],
)  # fmt: skip
def test_columns_are_called_as_duckdb_calls_them(clinic: Clinic, text: str, names: list[str]) -> None:
    assert list(clinic[1].sql(f"SELECT {text} FROM patients").columns) == names
