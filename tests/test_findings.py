"""Stumbling blocks of new users: each with the sentence that helps them on."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql import ParseError, Policy, PolicyError, Session
from dpsql.owner.policy_check import check_policy
from dpsql.owner.policy_init import init_policy
from dpsql.privacy import records
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 1e7, default_epsilon = 1e6 }
[tables]
v = { privacy_unit = "id", max_rows_per_group = 2, max_groups = 1, columns = { \
    day = { bounds = [2024-01-01, 2024-03-31] } } }
w = { privacy_unit = "id", max_rows = 2 }
"""
TABLES = """
CREATE TABLE v AS SELECT range::INTEGER AS id, DATE '2024-02-05' AS day FROM range(40);
CREATE TABLE w AS SELECT range::BIGINT AS id FROM range(20, 70);
"""
# Private tables whose units are an INTEGER and a BIGINT.
session = session_fixture(POLICY, TABLES)


@pytest.mark.parametrize(
    ("text", "marked", "hint"),
    [
        ("SELECT SUM(select) FROM v", "select", 'the column of that name is written "select".'),
        (
            "SELECT COUNT(*) FROM v WHERE id IN (SELECT)",
            "SELECT",
            'the column of that name is written "SELECT".',
        ),
    ],
)
def test_a_select_without_columns_has_a_caret(session: Session, text: str, marked: str, hint: str) -> None:
    with pytest.raises(ParseError, match="this SELECT has no columns") as caught:
        session.sql(text)
    assert caught.value.span is not None
    assert text[slice(*caught.value.span)] == marked
    assert caught.value.hint == hint


def test_a_text_between_dollars_is_a_text(session: Session) -> None:
    one, other = (
        session.sql(f"SELECT date_trunc({word}, day) AS m, COUNT(*) AS n FROM v GROUP BY 1")
        for word in ("'month'", "$$month$$")
    )
    assert one.fetchall() == other.fetchall()
    assert session.sql("SELECT $$it's$$ AS a, $tag$b$$c$tag$ AS b").fetchall() == [("it's", "b$$c")]


@pytest.mark.parametrize("join", ["JOIN w USING (id)", "NATURAL JOIN w", "JOIN w ON v.id = w.id"])
def test_units_of_two_widths_meet(session: Session, join: str) -> None:
    assert round(session.sql(f"SELECT COUNT(*) AS n FROM v {join}").item()) == 20


def test_a_file_of_an_unknown_kind(tmp_path: Path) -> None:
    place = tmp_path / "nothing.txt"
    place.write_text("a,b\n")
    with pytest.raises(PolicyError) as caught:
        init_policy(str(place))
    assert caught.value.hint is not None
    assert ".csv" in caught.value.hint


def test_a_privacy_unit_in_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPSQL_STATE", str(tmp_path / "state"))
    source = tmp_path / "v.parquet"
    duckdb.sql('SELECT 1 AS "Kunden Nr.", 3 AS x').write_parquet(str(source))
    text = '[budget]\nepsilon = 1\n[tables.v]\nsource = "v.parquet"\nmax_rows = 1\nprivacy_unit = \'"{}"\'\n'
    policy = tmp_path / "p.toml"
    policy.write_text(text.format("Kunden Nr."))
    assert not any("is not a column" in line for line in check_policy(policy).missing)
    policy.write_text(text.format("Kunden Nr"))
    (told,) = [line for line in check_policy(policy).missing if "is not a column" in line]
    assert "Write privacy_unit = '\"Kunden Nr.\"'." in told
    with dpsql.connect(policy=policy) as session, pytest.raises(PolicyError) as caught:
        session.sql("SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM v")
    assert caught.value.hint == "did you mean Kunden Nr.? Then write privacy_unit = '\"Kunden Nr.\"'."


def test_a_server_names_its_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.datetime.now(datetime.UTC).isoformat()
    assert re.fullmatch(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d", records.format_local_time(now))
    monkeypatch.setitem(records._zone, "told", False)
    records.tell_time_zone()
    zone = datetime.datetime.now().astimezone().tzname()
    assert records.format_local_time(now).endswith(f" {zone}")


def test_a_unit_that_is_text_has_no_extreme_and_the_hint_says_what_counts_units() -> None:
    policy = Policy.loads('[budget]\nepsilon = 1\n[tables.v]\nprivacy_unit = "id"\nmax_rows = 1')
    con = duckdb.connect()
    con.execute("CREATE TABLE v AS SELECT 'p' || range AS id FROM range(40)")
    with (
        dpsql.connect(con, policy=policy) as opened,
        pytest.raises(dpsql.BindError, match="MAX needs") as caught,
    ):
        opened.sql("SELECT WITH DP OPTIONS (epsilon = 1) MAX(id) FROM v")
    assert caught.value.hint == "write COUNT(DISTINCT id) instead of MAX(id): no privacy unit is released."


@pytest.fixture
def attached(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection in memory, to which a file is attached."""
    path = tmp_path / "clinic.duckdb"
    with duckdb.connect(str(path)) as file:
        file.execute("CREATE TABLE visits AS SELECT range AS id FROM range(300)")
        file.execute('CREATE SCHEMA "My Schema"')
        file.execute('CREATE TABLE "My Schema"."t 1" AS SELECT range AS id FROM range(70)')
        file.execute("CREATE VIEW young AS SELECT * FROM visits WHERE id < 20")
    with duckdb.connect() as con:
        con.execute(f"ATTACH '{path}' AS clinic (READ_ONLY)")
        con.execute("CREATE SCHEMA other")
        con.execute("CREATE TABLE other.visits AS SELECT range AS id FROM range(40)")
        yield con


def count_rows(con: duckdb.DuckDBPyConnection, source: str) -> int:
    text = f"[budget]\nepsilon = 1e6\n[tables.t]\nprivacy_unit = 'id'\nmax_rows = 1\nsource = {source!r}"
    with dpsql.connect(con, policy=Policy.loads(text)) as opened:
        (count,) = opened.sql("SELECT WITH DP OPTIONS (epsilon = 1e5) COUNT(*) FROM t").fetchone() or ()
    return int(count)


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        ("clinic.main.visits", 300),
        ("clinic.visits", 300),
        ("clinic.young", 20),
        ("other.visits", 40),
        ("clinic.My Schema.t 1", 70),
        ('clinic."My Schema"."t 1"', 70),
    ],
)
def test_a_table_of_an_attached_database_has_duckdbs_names(
    attached: duckdb.DuckDBPyConnection, source: str, rows: int
) -> None:
    assert count_rows(attached, source) == rows


@pytest.mark.parametrize(
    ("source", "rows"), [("visits", 300), ("My Schema.t 1", 70), ("memory.other.visits", 40)]
)
def test_names_follow_what_the_connection_uses(
    attached: duckdb.DuckDBPyConnection, source: str, rows: int
) -> None:
    attached.execute("USE clinic")
    assert count_rows(attached, source) == rows
    attached.execute("USE memory.other")
    assert count_rows(attached, "visits") == 40


def test_a_table_that_is_elsewhere_is_named_with_its_place(attached: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(PolicyError, match="which the database does not have") as caught:
        count_rows(attached, "t 1")
    assert caught.value.hint == "did you mean clinic.My Schema.t 1?"
