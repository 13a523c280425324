"""Units that are one person's rows within one period: what meets, what is refused, and which words are said."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.errors import Error
from dpsql.owner.policy_check import check_policy
from dpsql.policy.model import list_untyped
from tests.support.fixtures import both_fixture
from tests.support.policies import budget, table, write_policy

POLICY = write_policy(
    budget(1e30, 0.999, 1e9, 1e-9),
    visits=table("pid", 9, 9, {"privacy_period": "date_trunc('month', day)"}, x=(0, 100)),
    labs=table("pid", None, None, {"privacy_period": "DATE_TRUNC('MONTH', day)", "max_rows": 9}),
    items=table("vid -> visits.vid, pid", None, None, {"max_rows": 9}),
    weekly=table("pid", None, None, {"privacy_period": "date_trunc('week', day)", "max_rows": 9}),
    whole=table("pid", None, None, {"max_rows": 9}),
    zoned=table("pid", None, None, {"privacy_period": "date_trunc('month', day)", "max_rows": 9}),
    timed=table("pid", None, None, {"privacy_period": "date_trunc('month', day)", "max_rows": 9}),
)
DATA = """
CREATE TABLE visits AS FROM (VALUES (1, 10, DATE '2020-01-02', 5), (1, 10, '2020-01-09', 6), (1, 10, '2020-02-02', 7),
    (2, 12, '2020-01-05', 8), (NULL, 13, '2020-01-05', 9), (2, 14, NULL, 10)) AS t(pid, vid, day, x);
CREATE TABLE labs AS FROM (VALUES (1, DATE '2020-01-30', 5), (1, '2020-03-09', 6), (2, '2020-01-05', 8)) AS t(pid, day, y);
CREATE TABLE weekly AS FROM labs; CREATE TABLE whole AS FROM labs;
CREATE TABLE zoned AS SELECT pid, day::TIMESTAMPTZ AS day FROM labs;
CREATE TABLE timed AS SELECT pid, day::TIMESTAMP AS day FROM labs;
CREATE TABLE items AS FROM (VALUES (10, 1), (10, 2), (12, 4), (13, 5), (14, 6), (99, 7)) AS t(vid, q);
CREATE VIEW v AS SELECT *, date_trunc('month', day) AS m FROM visits WHERE pid IS NOT NULL AND day IS NOT NULL;
CREATE VIEW l AS SELECT *, date_trunc('month', day) AS m FROM labs;
"""
MONTH = "date_trunc('month', day)"
Opened = tuple[duckdb.DuckDBPyConnection, dpsql.Session]


opened = both_fixture(POLICY, DATA)


@pytest.mark.parametrize(
    ("source", "plain"),
    [
        ("visits", "v"),  # a NULL part drops the row
        ("visits a JOIN labs b USING (pid)", "v JOIN l USING (pid, m)"),
        ("visits a LEFT JOIN labs b ON a.pid = b.pid", "v LEFT JOIN l USING (pid, m)"),
        ("visits a WHERE EXISTS (SELECT 1 FROM labs b WHERE b.pid = a.pid)", "v SEMI JOIN l USING (pid, m)"),
        # A key that stands in several rows: each pair of a person and a month once.
        ("items", "items JOIN (SELECT DISTINCT vid, pid, m FROM v) USING (vid)"),
        ("items i JOIN visits v USING (vid)", "items JOIN (SELECT DISTINCT vid, pid, m FROM v) USING (vid)"),
        (f"(SELECT pid, {MONTH} AS m, COUNT(*) AS n FROM visits GROUP BY pid, {MONTH})", "(SELECT DISTINCT pid, m FROM v)"),
        (f"(SELECT DISTINCT pid, {MONTH} FROM visits)", "(SELECT DISTINCT pid, m FROM v)"),
        (f"(SELECT pid, {MONTH} AS m, x FROM visits) a JOIN (SELECT pid, {MONTH} AS m FROM labs GROUP BY ALL) b USING (pid, m)",
         "v JOIN (SELECT DISTINCT pid, m FROM l) USING (pid, m)"),
        ("(SELECT vid, COUNT(*) AS n FROM items GROUP BY vid)", "(SELECT DISTINCT vid, pid, m FROM items JOIN v USING (vid))"),
        (f"(SELECT * FROM visits QUALIFY row_number() OVER (PARTITION BY pid, {MONTH} ORDER BY x) = 1)",
         "(SELECT DISTINCT pid, m FROM v)"),
        ("(SELECT pid FROM visits UNION ALL SELECT pid FROM labs)", "(SELECT pid FROM v UNION ALL SELECT pid FROM l)"),
    ],
)  # fmt: skip
def test_all_parts_are_equated(opened: Opened, source: str, plain: str) -> None:
    con, session = opened
    found = session.sql(f"SELECT COUNT(*) FROM {source}").fetchall()
    assert found == con.sql(f"SELECT COUNT(*) FROM {plain}").fetchall()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT COUNT(*) FROM visits a JOIN weekly b USING (pid)", "different periods"),
        ("SELECT COUNT(*) FROM whole a JOIN visits b USING (pid)", "whole has no period"),
        ("SELECT COUNT(*) FROM items a JOIN whole b ON a.vid = b.pid", "different periods"),
        ("SELECT COUNT(*) FROM visits WHERE pid IN (SELECT pid FROM whole)", "different periods"),
        ("SELECT COUNT(*) FROM (SELECT pid FROM visits UNION ALL SELECT pid FROM weekly)", "different privacy units"),
        ("SELECT COUNT(*) FROM (SELECT pid, COUNT(*) FROM visits GROUP BY pid)", "within one month"),
        ("SELECT COUNT(*) FROM (SELECT pid, COUNT(*) FROM visits GROUP BY pid, date_trunc('year', day))", "within one month"),
        ("SELECT COUNT(*) FROM (SELECT x, row_number() OVER (PARTITION BY pid ORDER BY x) FROM visits)", "several units"),
        ("SELECT pid, COUNT(*) FROM visits GROUP BY pid", "leads to one privacy unit"),
        ("SELECT COUNT(*) FROM zoned", "TIMESTAMP WITH TIME ZONE"),
        ("SELECT COUNT(*) FROM visits JOIN timed USING (pid)", "of different types, DATE and TIMESTAMP"),
        ("SELECT COUNT(*) FROM items LEFT JOIN timed ON items.vid = timed.pid", "of different types, DATE and TIMESTAMP"),
        ("SELECT COUNT(*) FROM timed t WHERE pid IN (SELECT pid FROM visits)", "of different types, TIMESTAMP and DATE"),
        ("SELECT COUNT(*) FROM (SELECT pid FROM visits UNION ALL SELECT pid FROM timed)", "their periods differ"),
    ],
)  # fmt: skip
def test_what_would_mix_periods_is_refused(opened: Opened, text: str, said: str) -> None:
    with pytest.raises(Error, match=said):
        opened[1].sql(text)


@pytest.mark.parametrize(
    "period",
    ["date_trunc('hour', day)", "year(day)", "quarter(day)", "month(day)", "week(day)", "dayofweek(day)", "dayofyear(day)",
     "day(day)", "x", "day"],
)  # fmt: skip
def test_every_period_is_proved(opened: Opened, period: str) -> None:
    con, _ = opened
    policy = dpsql.Policy.loads(POLICY.replace("date_trunc('month', day)", period, 1))
    with dpsql.connect(con, policy=policy) as session:
        found = session.sql("SELECT COUNT(*) FROM items").fetchall()
        part = "within one hour" if "hour" in period else f"with one value of {period}"
        assert f"One pid's rows {part} in visits are protected" in str(
            session.explain("SELECT COUNT(*) FROM visits")
        )
    pairs = f"SELECT DISTINCT vid, pid, {period} AS p FROM visits WHERE pid IS NOT NULL AND p IS NOT NULL"
    assert found == con.sql(f"SELECT COUNT(*) FROM items JOIN ({pairs}) USING (vid)").fetchall()


@pytest.mark.parametrize(
    ("period", "said"),
    [
        ("dya", "no column dya"),
        ("month(pid)", "a date is needed"),
        ("nano", "TIMESTAMP_NS"),
        ("month(nano)", "TIMESTAMP_NS"),
        ("month(zoned)", "TIME ZONE"),
    ],
)
def test_a_period_that_is_none_is_refused_and_found_by_the_check(
    tmp_path: Path, period: str, said: str
) -> None:
    text = "[budget]\nepsilon = 1\n[tables.t]\nprivacy_unit = 'pid'\nmax_rows = 1\nprivacy_period = '{}'\n"
    place, data = tmp_path / "policy.toml", tmp_path / "data.duckdb"
    place.write_text(text.format(period))
    with duckdb.connect(str(data)) as con:
        con.execute("CREATE TABLE t (pid INTEGER, day DATE, nano TIMESTAMP_NS, zoned TIMESTAMPTZ)")
        with (
            dpsql.connect(con, policy=dpsql.Policy.load(place)) as session,
            pytest.raises(dpsql.PolicyError, match=said),
        ):
            session.explain("SELECT COUNT(*) FROM t")
    assert any(said in line or "is not a column" in line for line in check_policy(place, str(data)).missing)
    place.write_text(text.format("month(day)"))
    assert check_policy(place, str(data)).missing == []


def test_the_type_of_a_period_is_asked_for() -> None:
    policy = dpsql.Policy.loads(
        "[budget]\nepsilon = 1\n[tables.t]\nprivacy_unit = 'pid'\nsource = 't.csv'\nprivacy_period = 'month(day)'\n"
    )
    assert list_untyped(policy, policy.tables["t"]) == ["pid", "day"]


def test_what_is_said_of_the_unit(opened: Opened) -> None:
    _, session = opened
    assert "One pid's rows within one month in visits are protected" in str(
        session.explain("SELECT COUNT(*) FROM visits")
    )
    assert ("visits", "privacy_period", "one pid's rows within one month") in session.sql(
        "SHOW POLICY"
    ).fetchall()
    assert ("items", "private", "vid -> visits.vid, pid within one month", 9, None, None) in session.sql(
        "SHOW TABLES"
    ).fetchall()


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ('privacy_period = "month(day)"', "", ("pid with month", "is now pid")),
        (
            'privacy_period = "month(day)"',
            'privacy_period = "year(day)"',
            ("pid with month", "pid with year"),
        ),
        ('privacy_period = "month(day)"', 'privacy_period = "month(other)"', ("month.day", "month.other")),
        ('determines = ["a -> pid"]', 'privacy_period = "month(day)"', ("was pid", "pid with month")),
    ],
)
def test_a_ledger_refuses_another_unit(
    tmp_path: Path, before: str, after: str, named: tuple[str, str]
) -> None:
    budget = "[budget]\nepsilon = 1\n[tables.visits]\nprivacy_unit = 'pid'\n"
    with duckdb.connect() as con:
        con.execute("CREATE TABLE visits (pid INTEGER, a INTEGER, day DATE, other DATE)")
        ledger = tmp_path / "ledger.sqlite"
        dpsql.connect(con, policy=dpsql.Policy.loads(budget + before), ledger=ledger).close()
        for word in named:
            with pytest.raises(dpsql.LedgerError, match=word):
                dpsql.connect(con, policy=dpsql.Policy.loads(budget + after), ledger=ledger)


def test_a_ledger_refuses_another_first_path(tmp_path: Path) -> None:
    budget = "[budget]\nepsilon = 1\n[tables.visits]\nprivacy_unit = "
    with duckdb.connect() as con:
        con.execute("CREATE TABLE visits (pid INTEGER, a INTEGER)")
        ledger = tmp_path / "ledger.sqlite"
        dpsql.connect(con, policy=dpsql.Policy.loads(f"{budget}'pid'"), ledger=ledger).close()
        dpsql.connect(
            con, policy=dpsql.Policy.loads(f"{budget}['pid', 'a']"), ledger=ledger
        ).close()  # promises no less
        with pytest.raises(dpsql.LedgerError, match="was pid and is now a"):
            dpsql.connect(con, policy=dpsql.Policy.loads(f"{budget}['a', 'pid']"), ledger=ledger)
