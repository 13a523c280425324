"""GoogleSQL's documentation: its 50 examples of differential privacy run in their shapes, or say what to paste."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import pytest

import dpsql
from tests.support.fixtures import con_fixture
from tests.support.pasting import paste

STATEMENTS = [
    statement.strip()
    for statement in (Path(__file__).parent / "statements.sql").read_text(encoding="utf-8").split(";")
    if "SELECT" in statement
]
POLICY = """
budget = {{ epsilon = 1e6, delta = {delta}, accountant = "basic", max_epsilon_per_query = 10 }}
"""
TABLE = """
[tables.{name}]
source = "{source}"
privacy_unit = "reader"
max_rows_per_group = 5
max_groups = 3
[tables.{name}.columns]
pages = {{ bounds = [0, 300] }}
"""
ROWS = """
CREATE TABLE loans AS SELECT i % 61 AS reader, ['maps', 'plays', 'verse', 'songs'][1 + (i * i) % 4] AS shelf,
    (i * 37) % 211 AS pages FROM range(240) AS r(i);
CREATE TABLE returns AS FROM loans WHERE pages % 3 = 0;
CREATE SCHEMA library;
CREATE VIEW library.loans_view AS FROM loans;
CREATE VIEW library.returns_view AS FROM returns;
"""
SOURCES = {
    "loans": "loans",
    "returns": "returns",
    "loans_view": "library.loans_view",
    "returns_view": "library.returns_view",
}
LEFT = {  # not answered, and why: GoogleSQL refuses these, too
    "must be a group": 2,  # no GROUP BY
    "private tables are joined": 1,  # the documentation's example of an error
    "no column shelf": 1,  # UNNEST gives its column no name
}


con = con_fixture(ROWS)


def opened(con: duckdb.DuckDBPyConnection, delta: str) -> dpsql.Session:
    tables = (TABLE.format(name=name, source=source) for name, source in SOURCES.items())
    return dpsql.connect(con, policy=dpsql.Policy.loads(POLICY.format(delta=delta) + "".join(tables)))


def test_at_least_45_of_50_examples(con: duckdb.DuckDBPyConnection) -> None:
    assert len(STATEMENTS) == 50
    came: Counter[str] = Counter()
    with opened(con, "0.9") as session:
        for text in STATEMENTS:
            try:
                session.sql(text)
                came["answered"] += 1
            except dpsql.BudgetExceeded as error:
                assert error.hint == "write epsilon = 10."
                answer_or_count(session, next(paste(text, error)), came, "pasted")
            except dpsql.Error as error:
                came[next(why for why in LEFT if why in error.message)] += 1
    assert came["answered"] + came["pasted"] >= 45
    assert came == {"answered": 24, "pasted": 22, **LEFT}


def answer_or_count(session: dpsql.Session, text: str, came: Counter[str], word: str) -> None:
    try:
        session.sql(text)
    except dpsql.Error as error:
        word = next(why for why in LEFT if why in error.message)
    came[word] += 1


def test_a_delta_above_the_owners_says_what_would_fit(con: duckdb.DuckDBPyConnection) -> None:
    with opened(con, "1e-6") as session, pytest.raises(dpsql.BudgetExceeded) as told:
        session.sql(STATEMENTS[0])
    assert "delta = 1e-06 would fit" in str(told.value.hint)
