# ruff: noqa: E501 - a text stands on one line
"""The second lock proves from the text which periods a scan reads, and refuses those that do not pay."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import dpsql
from dpsql.lock.from_clause import _period_of
from dpsql.lock.lock import Lock
from dpsql.lock.tree import Unproved
from dpsql.mechanisms.base import ClaimedText, PublicClaim, list_claims
from dpsql.privacy.periods import PAYING_PARTS, Days, find_day_after, find_first_day, parse_periods
from tests.support import inside
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 9, per_period = true, accountant = "basic", default_epsilon = 1 }
[tables]
visits = { privacy_unit = "pid", privacy_period = "date_trunc('month', day)", data_from = 2024-01-01, \
    data_until = 2024-12-31, max_rows = 3 }
items = { privacy_unit = "vid -> visits.vid, pid", max_rows = 3 }
weeks = { privacy_unit = "pid", privacy_period = "date_trunc('week', ts)", data_from = 2024-01-01, \
    data_until = 2024-12-31, max_rows = 3 }
whole = { privacy_unit = "pid", max_rows = 3 }
wards = { public = true }
"""
TABLES = """
CREATE TABLE visits(pid BIGINT, vid BIGINT, day DATE, left_on DATE, ward VARCHAR);
CREATE TABLE items(vid BIGINT, q BIGINT);
CREATE TABLE weeks(pid BIGINT, ts TIMESTAMP);
CREATE TABLE whole(pid BIGINT);
CREATE TABLE wards(ward VARCHAR);
"""
MARCH = parse_periods(["2024-03"])
FILTER = "(r3.day >= CAST('2024-03-01' AS DATE) AND r3.day < CAST('2024-04-01' AS DATE))"
PAIR = "row(r3.pid, TRY(DATE_TRUNC('MONTH', TRY(r3.day))))"
THERE = "NOT r3.pid IS NULL AND NOT TRY(DATE_TRUNC('MONTH', TRY(r3.day))) IS NULL"
SCAN = f"SELECT {PAIR} AS u FROM memory.main.visits AS r3 WHERE {THERE} AND {FILTER}"
SUM = "SELECT COALESCE(SUM(LEAST(r0.p0, 3)), 0) AS p0, COUNT(*) AS units FROM (SELECT r1.u AS u, COUNT(*) AS p0 FROM ({}) AS r1 GROUP BY r1.u) AS r0"


session = session_fixture(POLICY, TABLES)


def prove(session: dpsql.Session, text: str, periods: Days | None, asked: str = "visits") -> None:
    """Prove a text under the claim of a count, as if these periods paid for it."""
    (block,) = inside.planned(session, f"SELECT COUNT(*) FROM {asked}").blocks
    claimed = next(c for c in list_claims(block.operator) if not c.late)
    lock: Lock = inside.gate(session)._lock
    lock.prove(replace(claimed, text=text, periods=periods), {})


def test_the_text_with_its_filter_is_proved(session: dpsql.Session) -> None:
    for periods in (
        MARCH,
        parse_periods(["2024-02 to 2024-03"]),
        parse_periods(["2023"]) + parse_periods(["2024"]),
        None,
    ):
        prove(session, SUM.format(SCAN), periods)


FORGED = {
    "missing": SCAN.replace(f" AND {FILTER}", ""),
    "wider": SCAN.replace("2024-04-01", "2024-04-02"),
    "earlier": SCAN.replace("2024-03-01", "2024-02-29"),
    "half": SCAN.replace(FILTER, "r3.day >= CAST('2024-03-01' AS DATE)"),
    "wrong column": SCAN.replace("(r3.day >=", "(r3.left_on >=").replace("r3.day <", "r3.left_on <"),
    "under OR": SCAN.replace(FILTER, f"({FILTER} OR r3.vid > 3)"),
    "under NOT": SCAN.replace(FILTER, f"NOT {FILTER}"),
    "only in ON of an outer join": f"SELECT {PAIR} AS u FROM memory.main.wards AS r4 LEFT JOIN memory.main.visits AS r3 ON r4.ward = r3.ward AND {FILTER} WHERE {THERE}",
    "on the nullable side": f"SELECT {PAIR} AS u FROM memory.main.wards AS r4 LEFT JOIN memory.main.visits AS r3 ON r4.ward = r3.ward WHERE {THERE} AND {FILTER}",
    "after the scan": f"SELECT r2.u AS u FROM (SELECT {PAIR} AS u, r3.day AS d FROM memory.main.visits AS r3 WHERE {THERE}) AS r2 WHERE (r2.d >= CAST('2024-03-01' AS DATE) AND r2.d < CAST('2024-04-01' AS DATE))",
    "another type": SCAN.replace("'2024-03-01' AS DATE", "'2024-03-01 00:00:00' AS TIMESTAMP"),
    "no constant": SCAN.replace("CAST('2024-04-01' AS DATE)", "r3.left_on"),
    "no date": SCAN.replace("'2024-04-01'", "'2024-04-31'"),
    "in a window's SELECT": f"SELECT r2.u AS u FROM (SELECT {PAIR} AS u, row_number() OVER (PARTITION BY r3.pid ORDER BY r3.day) AS n FROM memory.main.visits AS r3 WHERE {THERE}) AS r2 WHERE r2.n <= 3",
    "in the other scan": f"SELECT r5.u AS u FROM ({SCAN}) AS r5 WHERE r5.u IN (SELECT {PAIR.replace('r3', 'r6')} AS w FROM memory.main.visits AS r6 WHERE {THERE.replace('r3', 'r6')})",
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_text_is_refused(session: dpsql.Session, name: str) -> None:
    with pytest.raises(Unproved) as refused:
        prove(session, SUM.format(FORGED[name]), MARCH)
    assert refused.value.why in ("a scan of periods that do not pay", "a scan whose periods have no end")


def test_it_is_the_periods_that_are_refused(session: dpsql.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.lock.from_clause._check_paid", lambda *_: None)
    for name in ("missing", "wider", "half", "wrong column", "under OR", "after the scan"):
        prove(session, SUM.format(FORGED[name] + " AND r3.vid > 77" * ("after" not in name)), MARCH)


def test_a_proof_for_some_periods_is_none_for_others(session: dpsql.Session) -> None:
    prove(session, SUM.format(SCAN), MARCH)
    april = SUM.format(SCAN.replace("2024-04-01", "2024-05-01").replace("2024-03-01", "2024-04-01"))
    for text, periods in (
        (SUM.format(SCAN), parse_periods(["2024-04"])),
        (april, MARCH),
        (SUM.format(SCAN), ()),
    ):
        with pytest.raises(Unproved, match="could not be proved"):
            prove(session, text, periods)
    # until its block sets them, it may read no private row
    assert ClaimedText("", PublicClaim()).periods == ()


@pytest.mark.parametrize("part", PAYING_PARTS)
def test_the_lock_and_the_binder_mean_the_same_periods(part: str) -> None:
    for day in random.Random(part).sample(range(700_000, 760_000), 300):
        assert _period_of(day, part) == (find_first_day(day, part), find_day_after(day, part))


def test_a_part_of_a_period_is_the_period(session: dpsql.Session) -> None:
    part = SUM.format(SCAN.replace("2024-03-01", "2024-03-05").replace("2024-04-01", "2024-03-06"))
    prove(session, part, MARCH)
    with pytest.raises(Unproved):
        prove(session, part, parse_periods(["2024-03-05"]))
    week = "SELECT row(r3.pid, TRY(DATE_TRUNC('WEEK', TRY(r3.ts)))) AS u FROM memory.main.weeks AS r3 WHERE NOT r3.pid IS NULL AND NOT TRY(DATE_TRUNC('WEEK', TRY(r3.ts))) IS NULL AND (r3.ts >= CAST('2024-03-05 00:00:00' AS TIMESTAMP) AND r3.ts < CAST('2024-03-06 00:00:00' AS TIMESTAMP))"  # fmt: skip
    prove(session, SUM.format(week), parse_periods(["2024-03-04 to 2024-03-10"]), "weeks")
    with pytest.raises(Unproved):
        prove(session, SUM.format(week), parse_periods(["2024-03-05 to 2024-03-11"]), "weeks")
    with pytest.raises(Unproved):  # another time of the day than its start
        prove(
            session, SUM.format(week.replace("06 00:00:00", "06 00:00:01")), parse_periods(["2024"]), "weeks"
        )


def test_tables_without_a_period_are_paid_by_all(session: dpsql.Session) -> None:
    text = SUM.format("SELECT r3.pid AS u FROM memory.main.whole AS r3 WHERE NOT r3.pid IS NULL")
    prove(session, text, None, "whole")
    with pytest.raises(Unproved) as refused:
        prove(session, text, parse_periods(["1900 to 2900"]), "whole")
    assert refused.value.why == "rows without a period, which all periods pay for"


def test_the_rows_that_a_path_finds_are_those_of_their_own_scan(session: dpsql.Session) -> None:
    (block,) = inside.planned(
        session, "SELECT WITH DP OPTIONS (periods = '2024-03') COUNT(*) FROM items"
    ).blocks
    assert block.periods == MARCH
    claimed = next(c for c in list_claims(block.operator) if not c.late)
    text = inside.gate(session).exact(claimed.text, {})
    lock: Lock = inside.gate(session)._lock
    lock.prove(replace(claimed, text=text, periods=MARCH), {})
    with pytest.raises(Unproved):
        lock.prove(replace(claimed, text=text.replace("2024-04-01", "2024-05-01"), periods=MARCH), {})
