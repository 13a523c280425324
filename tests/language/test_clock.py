"""The present time: a constant of the statement, and outputs without a name that DuckDB would take for references."""

from __future__ import annotations

import datetime

import duckdb
import pytest

import dpsql
from dpsql.language import statements
from tests.support.fixtures import con_fixture, session_fixture

POLICY = """
budget = { epsilon = 1e9, default_epsilon = 1e6 }
[tables]
t = { privacy_unit = "u", max_rows = 1 }
pub = { public = true }
"""
WORDS = [
    "CURRENT_DATE", "CURRENT_TIMESTAMP", "CURRENT_TIME", "LOCALTIME", "LOCALTIMESTAMP", "current_date", "today()",
    "current_date()", "current_localtime()", "current_localtimestamp()", "now()", "get_current_time()",
]  # fmt: skip
PLACES = [
    "SELECT {}", "SELECT {} FROM pub", "SELECT COUNT(*) AS n, {} FROM t", "SELECT COUNT(*), {} FROM t",
    "WITH c AS (SELECT COUNT(*) AS n FROM t) SELECT n, {} FROM c", "SELECT * FROM (SELECT COUNT(*) AS n, {} FROM t)",
    "SELECT 1 AS a, {} UNION ALL SELECT 2, {}", "SELECT {} IS NOT NULL AS known, {} FROM pub",
]  # fmt: skip
TABLES = "CREATE TABLE t AS SELECT i AS u FROM range(300) r(i); CREATE TABLE pub AS SELECT 1 AS w"
con = con_fixture(TABLES)
session = session_fixture(POLICY, ledger=True)


@pytest.mark.parametrize("word", WORDS)
def test_the_word_needs_no_name(session: dpsql.Session, con: duckdb.DuckDBPyConnection, word: str) -> None:
    for place in PLACES:
        text = place.replace("{}", word)
        plain = con.sql(text)
        result = session.sql(text)
        assert [name.lower() for name in result.columns] == [name.lower() for name in plain.columns], text
        first = [column[0].as_py() for column in plain.to_arrow_table().columns]
        assert [type(value) for value in result.fetchall()[0]] == [type(value) for value in first]


DAY, NOW = "DATE '2024-01-01'", datetime.datetime(2024, 3, 5, 12, 30, 15, tzinfo=datetime.UTC)


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[datetime.datetime]:
    """Stop the clock at the last time of a list."""
    times = [NOW]
    monkeypatch.setattr(statements, "find_now", lambda: times[-1])
    return times


@pytest.mark.parametrize(
    "word",
    ["CURRENT_DATE", "today()", "now()", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP(3)", "LOCALTIMESTAMP", "statement_timestamp()",
     "now()::DATE", "now() - INTERVAL '30 days'", "date_trunc('month', now())", "now() AT TIME ZONE 'Europe/Berlin'",
     "now() + (now() - CURRENT_TIMESTAMP)"],
)  # fmt: skip
def test_private_rows_meet_the_time(session: dpsql.Session, word: str) -> None:
    assert session.sql(f"SELECT COUNT(*) FROM t WHERE {DAY} < {word}").fetchall() == [(300,)]


def test_a_text_has_one_time(session: dpsql.Session, stopped: list[datetime.datetime]) -> None:
    asked = "SELECT now() AS a, CURRENT_TIMESTAMP AS b, CURRENT_DATE AS c, LOCALTIME AS d, now() - INTERVAL 1 MONTH AS e"
    expected = (NOW, NOW, NOW.date(), NOW.time(), NOW.replace(month=2))
    assert session.sql(asked).fetchall() == [expected]


def test_a_new_time_is_a_new_question(session: dpsql.Session, stopped: list[datetime.datetime]) -> None:
    asked = "SELECT COUNT(*) FROM t WHERE make_timestamp(2024, 3, 5, 12, 30, u::INT) < {}"

    def ask(word: str) -> tuple[int, bool]:
        result = session.sql(asked.format(word))
        return result.fetchall()[0][0], result.loss == "no charge"

    assert ask("now()") == (15, False)
    assert ask("now()") == (15, True)
    assert ask("date_trunc('hour', now())") == (0, False)
    stopped.append(NOW + datetime.timedelta(seconds=5))
    assert ask("now()") == (20, False)
    assert ask("date_trunc('hour', now())") == (0, True)
    assert "now = 2024-03-05 12:30:20 UTC" in session.ledger()[-1].text
    assert any("12:30:20 UTC here" in note for note in session.sql(asked.format("now()")).notes)


def test_outputs_alone_are_no_new_question(session: dpsql.Session, stopped: list[datetime.datetime]) -> None:
    asked = "SELECT COUNT(*) + 7 AS n, now() AS t FROM t WHERE u < 100"
    session.sql(asked)
    stopped.append(NOW + datetime.timedelta(seconds=5))
    again = session.sql(asked)
    assert again.fetchall() == [(107, stopped[-1])]
    assert again.loss == "no charge"
    assert not any("new question" in note for note in again.notes)


def test_the_time_of_a_day_has_no_zone(session: dpsql.Session) -> None:
    with pytest.raises(dpsql.Error, match="TIMETZ"):
        session.sql("SELECT COUNT(*) FROM t WHERE CURRENT_TIME > '10:00'")


def test_the_day_is_the_one_on_which_a_statement_is_asked(
    session: dpsql.Session, stopped: list[datetime.datetime]
) -> None:
    text = "SELECT COUNT(*) FROM t WHERE make_date(2024, 1, 1) + u::INT >= CURRENT_DATE"
    for day, count in ((1, 300), (2, 299), (11, 290)):
        stopped.append(datetime.datetime(2024, 1, day, tzinfo=datetime.UTC))
        assert session.sql(text).fetchall() == [(count,)]
        assert f"2024-01-{day:02}" in session.explain(text).sql[0]
