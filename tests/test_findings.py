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
from dpsql.policy.init import init_policy
from dpsql.policy.lint import check_policy
from dpsql.privacy import records

POLICY = """
[budget]
epsilon = 1e7
default_epsilon = 1e6
[tables.v]
privacy_unit = "id"
max_rows = 2
max_groups = 1
[tables.v.columns]
day = { bounds = [2024-01-01, 2024-03-31] }
[tables.w]
privacy_unit = "id"
max_rows = 2
"""


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """Private tables whose units are an INTEGER and a BIGINT."""
    con = duckdb.connect()
    con.execute("CREATE TABLE v AS SELECT range::INTEGER AS id, DATE '2024-02-05' AS day FROM range(40)")
    con.execute("CREATE TABLE w AS SELECT range::BIGINT AS id FROM range(20, 70)")
    with dpsql.connect(con, policy=Policy.loads(POLICY)) as opened:
        yield opened


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
