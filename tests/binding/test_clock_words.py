"""CURRENT_DATE and its like as outputs without a name: DuckDB would take the name for a reference to the output."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.binding.values import temporal

POLICY = """
[budget]
epsilon = 1e9
default_epsilon = 1e6
[tables.t]
privacy_unit = "u"
max_rows = 1
[tables.pub]
public = true
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


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT i AS u FROM range(300) r(i); CREATE TABLE pub AS SELECT 1 AS w")
    return con


@pytest.fixture(scope="module")
def session(
    con: duckdb.DuckDBPyConnection, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dpsql.Session]:
    folder: Path = tmp_path_factory.mktemp("clock")
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY), ledger=folder / "ledger") as made:
        yield made


@pytest.mark.parametrize("word", WORDS)
def test_the_word_needs_no_name(session: dpsql.Session, con: duckdb.DuckDBPyConnection, word: str) -> None:
    for place in PLACES:
        text = place.replace("{}", word)
        plain = con.sql(text)
        result = session.sql(text)
        assert [name.lower() for name in result.columns] == [name.lower() for name in plain.columns], text
        first = [column[0].as_py() for column in plain.to_arrow_table().columns]
        assert [type(value) for value in result.fetchall()[0]] == [type(value) for value in first]


def test_private_rows_take_the_day_and_no_clock(session: dpsql.Session) -> None:
    day = "DATE '2024-01-01'"
    for word in (
        "CURRENT_DATE",
        "today()",
        "current_date()",
        "now()::DATE",
        "CAST(CURRENT_TIMESTAMP AS DATE)",
    ):
        assert (
            session.sql(f"SELECT COUNT(*), CURRENT_DATE FROM t WHERE {day} < {word}").fetchall()[0][0] == 300
        )
    for word in ("now()", "CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "CURRENT_TIME"):
        with pytest.raises(dpsql.PrivacyError, match="can't be used on private rows: each run"):
            session.sql(f"SELECT COUNT(*) FROM t WHERE {day} < {word}")


def test_the_day_is_the_one_on_which_a_statement_is_asked(
    session: dpsql.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "SELECT COUNT(*) FROM t WHERE make_date(2024, 1, 1) + u::INT >= CURRENT_DATE"
    for day, count in ((1, 300), (2, 299), (11, 290)):
        monkeypatch.setattr(temporal, "find_today", lambda day=day: datetime.date(2024, 1, day))
        assert session.sql(text).fetchall() == [(count,)]
        assert f"2024-01-{day:02}" in session.explain(text).sql[0]
