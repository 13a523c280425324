# ruff: noqa: E501 - a text stands on one line
"""The second lock proves that a pair of a person and a period is in one group of its own period, and in no case more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import pytest

import dpsql
from dpsql.lock.lock import Lock
from dpsql.lock.tree import Unproved
from dpsql.mechanisms.base import SensitivityClaim, SumsClaim, list_claims
from tests.support import inside

POLICY = """
budget = { epsilon = 1e30, delta = 1e-9, per_period = true, accountant = "basic", default_epsilon = 1e6 }
[tables]
days = { privacy_unit = "pid", privacy_period = "date_trunc('day', day)", data_from = 2024-01-01, \
    data_until = 2024-01-03, max_rows = 3 }
more = { privacy_unit = "pid", privacy_period = "date_trunc('day', day)", data_from = 2024-01-01, \
    data_until = 2024-01-03, max_rows = 3 }
stamps = { privacy_unit = "pid", privacy_period = "date_trunc('day', day)", data_from = 2024-01-01, \
    data_until = 2024-01-03, max_rows = 3 }
months = { privacy_unit = "pid", privacy_period = "date_trunc('month', day)", data_from = 2024-01-01, \
    data_until = 2024-02-29, max_rows = 3 }
two = { privacy_unit = ["pid", "other"], privacy_period = "date_trunc('day', day)", data_from = 2024-01-01, \
    data_until = 2024-01-03, max_rows = 3 }
"""
ROWS = "FROM (VALUES (1, 1, DATE '2024-01-01', DATE '2024-01-02'), (1, 2, '2024-01-01', '2024-01-03'), (1, 1, '2024-01-02', '2024-01-02'), (2, 1, '2024-01-03', '2024-01-03'), (2, 1, NULL, '2024-01-03')) AS t(pid, other, day, left_on)"
TABLES = ("days", "more", "stamps", "months", "two")
DAYS = "date_trunc('day', day)"


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    with duckdb.connect() as con:
        for table in TABLES:
            con.execute(f"CREATE TABLE {table} AS {ROWS}")
        con.execute("ALTER TABLE stamps ALTER day TYPE TIMESTAMP")
        con.execute("CREATE VIEW seen AS SELECT * FROM days")
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            yield session


def texts(session: dpsql.Session, asked: str) -> list[str]:
    (block,) = inside.planned(session, asked).blocks
    return [inside.gate(session).exact(claimed.text, {}) for claimed in list_claims(block.operator)]


@pytest.mark.parametrize(
    ("asked", "groups"),
    [
        ("SELECT day, COUNT(*) AS n FROM days GROUP BY day", [2, 1, 1]),
        ("SELECT day, COUNT(DISTINCT pid) AS n FROM days GROUP BY day", [1, 1, 1]),
        ("SELECT DATE_TRUNC('DAY', day) AS d, COUNT(*) AS n FROM days GROUP BY d", [2, 1, 1]),
        ("SELECT day, date_trunc('day', day) AS d, COUNT(*) AS n FROM days GROUP BY ALL", [2, 1, 1]),
        (f"SELECT {DAYS} AS d, COUNT(*) AS n FROM stamps GROUP BY d", [2, 1, 1]),
        ("SELECT day, COUNT(*) AS n FROM two GROUP BY day", [2, 1, 1]),
        ("SELECT date_trunc('month', day) AS m, COUNT(*) AS n FROM months GROUP BY m", [4, 0]),
        ("SELECT d.day, COUNT(*) AS n FROM days AS d JOIN more AS m USING (pid) GROUP BY d.day", [4, 1, 1]),
        ("SELECT d.day, COUNT(*) AS n FROM days AS d LEFT JOIN more AS m ON d.pid = m.pid GROUP BY d.day", [4, 1, 1]),
        ("SELECT m.day, COUNT(*) AS n FROM days AS d LEFT JOIN more AS m ON d.pid = m.pid GROUP BY m.day", [4, 1, 1]),
        ("SELECT m.day, COUNT(*) AS n FROM days AS d LEFT JOIN more AS m ON d.pid = m.pid AND d.other < m.other GROUP BY m.day", [1, 0, 0]),
        ("SELECT d, COUNT(*) AS n FROM (SELECT day AS d, other FROM days WHERE other < 9) GROUP BY d", [2, 1, 1]),
        ("WITH w AS (SELECT * FROM days) SELECT w.day, COUNT(*) AS n FROM w JOIN w AS v USING (pid) GROUP BY w.day", [4, 1, 1]),
        ("SELECT day, COUNT(*) AS n FROM (SELECT pid, day FROM days UNION ALL SELECT pid, day FROM more) GROUP BY day", [4, 2, 2]),
        ("SELECT day, COUNT(*) AS n FROM days WHERE EXISTS (SELECT 1 FROM more WHERE more.pid = days.pid) GROUP BY day", [2, 1, 1]),
        ("SELECT date_trunc('month', day) AS m, COUNT(*) AS n FROM days GROUP BY m", [4]),
        ("SELECT day, other > 1 AS k, COUNT(*) AS n FROM days GROUP BY ALL", [1, 1, 1, 0, 0, 0, 0, 0, 1]),
        ("SELECT day, MEDIAN(other, contribution_bounds_per_row => (0, 9)) AS n FROM days GROUP BY day", None),
    ],
)  # fmt: skip
def test_what_is_asked_is_proved(session: dpsql.Session, asked: str, groups: list[int] | None) -> None:
    if not asked.startswith("WITH"):
        asked = asked.replace("SELECT ", "SELECT WITH DP OPTIONS (max_rows_contributed = 9) ", 1)
    found = session.sql(asked)
    assert groups is None or sorted(round(row["n"]) for row in found.dicts()) == sorted(groups)


DAY = "SELECT day, COUNT(*) AS n FROM days GROUP BY day"
STAMP = "SELECT date_trunc('day', day) AS d, COUNT(*) AS n FROM stamps GROUP BY d"
MONTH = "SELECT date_trunc('month', day) AS m, COUNT(*) AS n FROM {} GROUP BY m"


def test_no_group_is_chosen_if_the_period_decides_it(session: dpsql.Session) -> None:
    for asked in (DAY, STAMP, MONTH.format("months")):
        assert not any("LAG(" in text for text in texts(session, asked))
    assert all("LAG(" in text for text in texts(session, MONTH.format("days")))


SCAN = "SELECT {pair} AS u, {key} AS k FROM memory.main.{table} AS r3 WHERE {there} AND (r3.day >= CAST('{low}' AS {type}) AND r3.day < CAST('{high}' AS {type}))"
COUNTED = "SELECT r1.k AS k0, COUNT(*) AS units FROM (SELECT r0.u AS u, r0.k AS k FROM ({}) AS r0 GROUP BY r0.u, r0.k) AS r1 GROUP BY r1.k"
WHOLE = f"WITH r9 AS ({COUNTED}) SELECT r10.k0 AS k0, COALESCE(r11.units, 0) AS units FROM (SELECT DISTINCT r12.v AS k0 FROM (VALUES (CAST('2024-01-01' AS DATE)), (CAST('2024-01-02' AS DATE))) AS r12(v)) AS r10 LEFT JOIN r9 AS r11 ON r10.k0 = r11.k0"


def write_scan(table: str = "days", part: str = "day", key: str = "r3.day", **given: str) -> str:
    period = f"TRY(DATE_TRUNC('{part}', TRY(r3.day)))"
    parts = {"pair": f"row(r3.pid, {period})", "there": f"NOT r3.pid IS NULL AND NOT {period} IS NULL"}
    when = {"type": "DATE", "low": "2024-01-01", "high": "2024-01-03"}
    if table == "stamps":
        when = {"type": "TIMESTAMP", "low": "2024-01-01 00:00:00", "high": "2024-01-03 00:00:00"}
    return SCAN.format(table=table, key=key, **{**parts, **when, **given})


def prove(session: dpsql.Session, scan: str, groups: int) -> None:
    """Prove a count of pairs by a key of a scan as if one pair were in so many groups."""
    (block,) = inside.planned(session, DAY.replace("*", "DISTINCT pid")).blocks
    claimed = next(c for c in list_claims(block.operator) if not c.late)
    claim = SumsClaim(("k0",), (("units", SensitivityClaim(1, groups)),), False)
    lock: Lock = inside.gate(session)._lock
    lock.prove(replace(claimed, text=WHOLE.format(scan), claim=claim, periods=None), {})


TRUNCATED = "TRY(DATE_TRUNC('{}', TRY(r3.day)))"
OTHER = write_scan("more").replace("r3", "r4").replace(" AS k ", " AS l ")
PROVED = {
    "the date": write_scan(),
    "the day": write_scan(key=TRUNCATED.format("day")),
    "the day of a timestamp": write_scan("stamps", key=TRUNCATED.format("day")),
    "the month": write_scan("months", "month", TRUNCATED.format("month")),
    "through a join": f"SELECT r5.u AS u, r5.k AS k FROM ({write_scan()}) AS r5 INNER JOIN ({OTHER}) AS r6 ON r5.u = r6.u",
    "of the kept side": f"SELECT r5.u AS u, r5.k AS k FROM ({write_scan()}) AS r5 LEFT JOIN ({OTHER}) AS r6 ON r5.u = r6.u AND r5.k < r6.l",
}  # fmt: skip
FORGED = {
    "a timestamp": write_scan("stamps"),
    "the hour": write_scan("stamps", key=TRUNCATED.format("hour")),
    "the date of a month": write_scan("months", "month"),
    "the day of a month": write_scan("months", "month", TRUNCATED.format("day")),
    "a longer part": write_scan(key=TRUNCATED.format("month")),
    "another date": write_scan(key="r3.left_on"),
    "another date's day": write_scan(key=TRUNCATED.format("day").replace("r3.day", "r3.left_on")),
    "with another date": write_scan(key="row(r3.day, r3.left_on)"),
    "swapped parts": write_scan(pair=f"row({TRUNCATED.format('day')}, r3.pid)"),
    "another unit": write_scan("two", pair=f"row(r3.other, {TRUNCATED.format('day')})", there=f"NOT r3.other IS NULL AND NOT {TRUNCATED.format('day')} IS NULL"),
    "the person": write_scan(pair="r3.pid"),
    "a pair of another part": write_scan(pair=f"row(r3.pid, {TRUNCATED.format('month')})"),
    "pairs without a day": write_scan(there="NOT r3.pid IS NULL"),
    "pairs without a person": write_scan(there=f"NOT {TRUNCATED.format('day')} IS NULL"),
    "days that may be missing": write_scan(there=f"(NOT r3.pid IS NULL OR NOT {TRUNCATED.format('day')} IS NULL)"),
    "of the nullable side": f"SELECT r6.u AS u, r5.k AS k FROM ({OTHER}) AS r6 LEFT JOIN ({write_scan()}) AS r5 ON r6.u = r5.u AND r6.l < r5.k",
    "of both sides": f"SELECT COALESCE(r5.u, r6.u) AS u, r5.k AS k FROM ({write_scan()}) AS r5 FULL JOIN ({OTHER}) AS r6 ON r5.u = r6.u WHERE NOT COALESCE(r5.u, r6.u) IS NULL",
    "of a set operation": f"{write_scan()} UNION ALL {write_scan('more').replace('r3', 'r4')}",
    "filled in": f"SELECT r6.u AS u, COALESCE(r5.k, r6.l) AS k FROM ({OTHER}) AS r6 LEFT JOIN ({write_scan()}) AS r5 ON r6.u = r5.u",
    "of another row": f"SELECT r5.u AS u, LAG(r5.k, 1) OVER (ORDER BY r5.u) AS k FROM ({write_scan()}) AS r5",
    "shifted": write_scan(key="r3.day + CAST(r3.other AS INT)"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVED)
def test_one_group_is_proved(session: dpsql.Session, name: str) -> None:
    prove(session, PROVED[name], 1)


@pytest.mark.parametrize("name", FORGED)
def test_one_group_is_refused(session: dpsql.Session, name: str) -> None:
    with pytest.raises(Unproved) as refused:
        prove(session, FORGED[name], 1)
    if refused.value.why == "one unit moves a sum by more than is charged":
        prove(session, FORGED[name], 2)  # only the number of groups was wrong: there are two
    else:
        assert refused.value.why in (
            "nothing bounds what one unit moves a sum by",
            "rows without a unit are added up",
            "a group may have several rows",
        )


def test_different_dates_have_different_days() -> None:
    far = "VALUES (DATE '-infinity'), (DATE 'infinity'), (DATE '5877642-06-25 (BC)'), (DATE '5881580-07-10')"
    many = "SELECT DATE '1970-01-01' + CAST(i * 11731 AS INTEGER) FROM range(-183000, 183000) AS r(i)"
    near = "SELECT DATE '1500-01-01' + CAST(i AS INTEGER) FROM range(400000) AS r(i)"
    day = "TRY(date_trunc('day', TRY(d)))"
    counted = f"SELECT COUNT(*), COUNT(DISTINCT {day}) FROM (SELECT DISTINCT d FROM ({far} UNION ALL {many} UNION ALL {near}) AS t(d)) WHERE {day} IS NOT NULL"
    dates, days = duckdb.sql(counted).fetchall()[0]
    assert dates == days > 400_000
