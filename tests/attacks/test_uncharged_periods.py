# ruff: noqa: E501 - statements are easier to read when each has one line
"""Ways to read a period that isn't charged: what a statement answers depends on rows of the periods that pay for it alone.

Each way is asked of all rows, of those of the charged periods alone, and with others in all other periods. At an ε so large that
noise doesn't matter, the answers, the charges and the errors must be equal.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import reduce

import duckdb
import pytest

import dpsql
from dpsql.binding.relations.catalog import Catalog
from dpsql.errors import Error
from dpsql.privacy.periods import Days, list_periods, say_periods, unite_periods
from dpsql.session.session import Session
from tests.support import dated_tables
from tests.support.dated_tables import keep_days

WIDE = {
    "default_epsilon = 1\n": "default_epsilon = 1e7\n",
    "default_delta = 1e-6": "default_delta = 1e-3",
    "max_rows = 4": "max_rows = 60",
    "max_rows_per_group = 3": "max_rows_per_group = 30",
    "max_groups = 3": "max_groups = 20",
    "columns.y.bounds = [0, 100]\n": "",
}
"""What the policy of the other tests has, and what this one has instead: little noise, and caps that nothing meets."""
POLICY = reduce(lambda text, change: text.replace(*change), WIDE.items(), dated_tables.POLICY)
DATA = """
CREATE TABLE visits AS SELECT i % 7 AS pid, i % 90 AS vid, DATE '2023-12-03' + CAST(i * 3 % 420 AS INTEGER) AS day,
    ['a', 'b', 'c'][1 + i % 3] AS ward, i * 11 % 100 AS x FROM range(300) AS r(i);
INSERT INTO visits VALUES (1, 5, NULL, 'a', 9), (2, 6, 'infinity', 'a', 9), (3, 7, '-infinity', 'b', 9), (NULL, 8, '2024-03-03', 'b', 9);
CREATE TABLE labs AS SELECT i % 7 AS pid, DATE '2023-12-05' + CAST(i * 5 % 420 AS INTEGER) AS taken, i % 11 AS z FROM range(200) AS r(i);
CREATE TABLE items AS SELECT i % 100 AS vid, i % 11 AS q FROM range(200) AS r(i);
CREATE TABLE moments AS SELECT i % 7 AS pid, TIMESTAMP '2024-02-27 00:00:00' + INTERVAL (i * 8) HOUR AS ts, i AS x FROM range(60) AS r(i);
CREATE TABLE whole AS FROM labs;
CREATE TABLE wards AS FROM (VALUES ('a', 1), ('b', 2)) AS t(ward, w);
"""
MARCH = "v.day >= DATE '2024-03-01' AND v.day < DATE '2024-04-01'"
EVERY_OTHER = [f"DATE '{datetime.date(2024, 1, 2) + datetime.timedelta(days=2 * i)}'" for i in range(80)]
FIRST, LAST = datetime.date(2023, 12, 1), datetime.date(2025, 2, 1)


def exchange(con: duckdb.DuckDBPyConnection, days: Days) -> None:
    """Put other rows into all other days."""
    keep_days(con, days)
    paid = " OR ".join(
        f"(d >= DATE '{datetime.date.fromordinal(low)}' AND d < DATE '{datetime.date.fromordinal(high)}')"
        for low, high in days
    )
    dates = f"SELECT CAST(d AS DATE) AS d, p FROM range(DATE '{FIRST}', DATE '{LAST}', INTERVAL 1 DAY) AS r(d), (VALUES (1), (77)) AS t(p) WHERE ({paid}) IS NOT TRUE UNION ALL VALUES (NULL, 1), (DATE 'infinity', 1)"
    con.execute(f"INSERT INTO visits SELECT p, 5, d, 'c', 100 FROM ({dates})")
    con.execute(f"INSERT INTO labs SELECT p, d, 10 FROM ({dates})")
    con.execute(f"INSERT INTO moments SELECT p, d, 100 FROM ({dates})")


def ask(way: list[str], change: Callable[[duckdb.DuckDBPyConnection], None]) -> tuple[list[str], Days | None]:
    """Return what statements answer in turn, with their charges, and all charged days (None: all that there are)."""
    with duckdb.connect() as con:
        con.execute(DATA)
        change(con)
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
            said = [answer(session, text) for text in way]
            events = [entry.event for entry in session.ledger() if entry.event is not None]
    charged = [list_periods(event) for event in events]
    said.append(", ".join(map(say_periods, charged)))
    return said, unite_periods(charged) if charged else ()


def answer(session: Session, text: str) -> str:
    """Return the rounded rows of an answer, or an error's whole message."""
    try:
        found = session.sql(text)
    except Error as error:
        return f"{type(error).__name__}: {error}"
    return repr(
        sorted(
            repr({k: round(v, 2) if isinstance(v, float) else v for k, v in row.items()})
            for row in found.dicts()
        )
    )


WAYS = {
    "a condition under OR": [f"SELECT COUNT(*) AS n FROM visits v WHERE {MARCH} OR x >= 0"],
    "a condition under NOT": ["SELECT COUNT(*) AS n FROM visits v WHERE NOT (v.day < DATE '2024-03-01' OR v.day >= DATE '2024-04-01')"],
    "a condition in CASE": [f"SELECT COUNT(*) AS n FROM visits v WHERE CASE WHEN {MARCH} THEN x < 0 ELSE x >= 0 END"],
    "a condition that is NULL": ["SELECT COUNT(*) AS n FROM visits v WHERE v.day >= DATE '2024-03-01' AND (v.day < NULL) IS NULL"],
    "rows without a day": ["SELECT COUNT(*) AS n FROM visits v WHERE COALESCE(v.day, DATE '2024-03-05') = DATE '2024-03-05'"],
    "days without an end": ["SELECT COUNT(*) AS n FROM visits v WHERE v.day > DATE '2024-12-01'", "SELECT COUNT(*) AS n FROM visits v WHERE v.day = DATE 'infinity'"],
    "days before the first": ["SELECT COUNT(*) AS n FROM visits v WHERE v.day < DATE '2024-01-02'"],
    "only days after the last": ["SELECT COUNT(*) AS n FROM visits v WHERE v.day > DATE '2024-12-31'"],
    "a week over two months": ["SELECT COUNT(*) AS n FROM visits v WHERE date_trunc('week', v.day) = DATE '2024-02-26'"],
    "the last moment of a day": ["SELECT COUNT(*) AS n, SUM(x) AS s FROM moments WHERE ts >= '2024-03-01' AND ts <= TIMESTAMP '2024-03-02 00:00:00'"],
    "a moment before midnight": ["SELECT COUNT(*) AS n FROM moments WHERE ts > TIMESTAMP '2024-03-01 23:59:59.999999' AND ts < TIMESTAMP '2024-03-02 00:00:00.000001'"],
    "a moment as a date": ["SELECT COUNT(*) AS n FROM moments WHERE CAST(ts AS DATE) = DATE '2024-03-01'"],
    "a fraction of a year": ["SELECT COUNT(*) AS n FROM visits v WHERE year(v.day) < 2024.5 AND year(v.day) > 2023.5"],
    "a list with NULL": ["SELECT COUNT(*) AS n FROM visits v WHERE v.day IN (DATE '2024-03-02', NULL)", "SELECT COUNT(*) AS n FROM visits v WHERE v.day NOT IN (DATE '2024-03-02', NULL)"],
    "names that change places": ["SELECT COUNT(*) AS n FROM visits AS labs JOIN labs AS visits ON labs.pid = visits.pid WHERE visits.taken < DATE '2024-02-01'"],
    "an alias like the column": [f"SELECT DATE '2024-03-01' AS day, COUNT(*) AS n FROM visits v WHERE {MARCH} GROUP BY day"],
    "an alias in WHERE": ["SELECT x AS day, COUNT(*) AS n FROM (SELECT DATE '2024-03-02' AS day, x FROM visits) AS v WHERE v.day = DATE '2024-03-02' GROUP BY ALL"],
    "a CTE like the table": [f"WITH visits AS (SELECT * FROM visits) SELECT COUNT(*) AS n FROM visits v WHERE {MARCH}"],
    "a quoted name": ["SELECT COUNT(*) AS n FROM \"visits\" AS \"V\" WHERE \"V\".\"DAY\" = DATE '2024-03-02'"],
    "a condition in ON": [f"SELECT COUNT(*) AS n FROM labs l LEFT JOIN visits v ON v.pid = l.pid AND {MARCH}"],
    "no match in the period": [f"SELECT COUNT(*) AS n FROM labs l LEFT JOIN visits v ON v.pid = l.pid AND {MARCH} WHERE v.pid IS NULL"],
    "the nullable side": ["SELECT COUNT(*) AS n, SUM(l.z) AS s FROM visits v LEFT JOIN labs l ON v.pid = l.pid WHERE l.taken < DATE '2024-02-01' OR l.taken IS NULL"],
    "a full join": [f"SELECT COUNT(*) AS n FROM visits v FULL JOIN labs l ON v.pid = l.pid WHERE {MARCH}"],
    "an anti join": [f"SELECT COUNT(*) AS n FROM visits v ANTI JOIN labs l ON v.pid = l.pid WHERE {MARCH}"],
    "NOT IN another table": [f"SELECT COUNT(*) AS n FROM visits v WHERE {MARCH} AND v.pid NOT IN (SELECT pid FROM labs)"],
    "a correlated count": [f"SELECT SUM(LEAST((SELECT COUNT(*) FROM labs l WHERE l.pid = v.pid), 9), contribution_bounds_per_row => (0, 9)) AS n FROM visits v WHERE {MARCH}"],
    "an exact number in a condition": [f"SELECT COUNT(*) AS n FROM visits v WHERE {MARCH} AND x > (SELECT MAX(z) FROM labs)"],
    "the table itself": ["SELECT COUNT(*) AS n FROM visits a JOIN visits b ON a.pid = b.pid WHERE a.day < DATE '2024-02-01'"],
    "the nearest earlier row": [f"SELECT SUM(l.z) AS n FROM visits v ASOF JOIN labs l ON v.pid = l.pid AND v.day >= l.taken WHERE {MARCH}"],
    "a lateral subquery": [f"SELECT SUM(c, contribution_bounds_per_row => (0, 9)) AS n FROM visits v, LATERAL (SELECT COUNT(*) AS c FROM labs l WHERE l.pid = v.pid) AS t WHERE {MARCH}"],
    "the row before": [f"SELECT SUM(p, contribution_bounds_per_row => (0, 100)) AS n FROM (SELECT day, LAG(x) OVER (PARTITION BY pid ORDER BY day) AS p FROM visits) AS v WHERE {MARCH}"],
    "the row before in its month": [f"SELECT SUM(p, contribution_bounds_per_row => (0, 100)) AS n FROM (SELECT day, LAG(x) OVER (PARTITION BY pid, date_trunc('month', day) ORDER BY day, vid) AS p FROM visits) AS v WHERE {MARCH}"],
    "a column of both tables": ["SELECT COUNT(*) AS n FROM visits v JOIN (SELECT pid, taken AS day FROM labs) AS l USING (pid, day) WHERE day < DATE '2024-02-01'"],
    "a path of keys": ["SELECT WITH DP OPTIONS (periods = '2024-03') SUM(q) AS n FROM items", f"SELECT SUM(q) AS n FROM items JOIN visits v USING (vid) WHERE {MARCH}"],
    "a set operation": [f"SELECT COUNT(*) AS n FROM (SELECT pid, x FROM visits v WHERE {MARCH} UNION ALL SELECT pid, z FROM labs)"],
    "options inside options": ["SELECT WITH DP OPTIONS (periods = '2024-03') COUNT(*) AS n FROM (SELECT WITH DP OPTIONS (periods = '2024-05') day, COUNT(*) AS n FROM visits GROUP BY day)"],
    "a range the wrong way": ["SELECT WITH DP OPTIONS (periods = '2024-05 to 2024-03') COUNT(*) AS n FROM visits"],
    "a range in part": ["SELECT WITH DP OPTIONS (periods = '2024-03-31 to 2024-04-01') COUNT(*) AS n FROM visits"],
    "no period": ["SELECT WITH DP OPTIONS (periods = ()) COUNT(*) AS n FROM visits", "SELECT WITH DP OPTIONS (periods = '') COUNT(*) AS n FROM visits"],
    "private groups": [f"SELECT WITH DP OPTIONS (delta = 0.1) v.vid % 2 AS k, COUNT(*) AS n FROM visits v WHERE {MARCH} GROUP BY k", f"SELECT WITH DP OPTIONS (delta = 0.1) v.day > DATE '2024-03-15' AS d, v.vid % 2 AS k, COUNT(*) AS n FROM visits v WHERE {MARCH} GROUP BY ALL"],
    "a group of rows without a match": ["SELECT COALESCE(l.taken, DATE '2024-01-01') AS d, COUNT(*) AS n FROM visits v LEFT JOIN labs l ON v.pid = l.pid AND v.x < l.z WHERE v.day < DATE '2024-02-01' GROUP BY d"],
    "HAVING by another table": [f"SELECT ward, COUNT(*) AS n FROM visits v WHERE {MARCH} GROUP BY ward HAVING COUNT(*) > (SELECT COUNT(*) FROM labs)"],
    "an aggregate's FILTER": ["SELECT COUNT(*) FILTER (WHERE day < DATE '2024-02-01') AS n FROM visits"],
    "caps that are found": [f"SELECT WITH DP OPTIONS (max_rows_contributed = AUTO) COUNT(*) > 0 AS n FROM visits v WHERE {MARCH}"],
    "bounds that are found": [f"SELECT MAX(x, contribution_bounds_per_row => AUTO) IS NULL AS n FROM visits v WHERE {MARCH}"],
    "a report of what is cut": [f"SELECT WITH DP OPTIONS (report_cut = TRUE) COUNT(*) AS n FROM visits v WHERE {MARCH}"],
    "a choice among candidates": [f"WITH p(c) AS (VALUES (1.0), (50.5)) SELECT EXPMECH(COUNT(*) FILTER (WHERE x >= c)) OVER p AS n FROM visits v WHERE {MARCH}"],
    "a threshold": ["DECLARE t ABOVE_THRESHOLD 5 OPTIONS (epsilon = 1e6, max_hits = 3, periods = '2024-03')", "DECLARE t ABOVE_THRESHOLD 5 OPTIONS (epsilon = 1e6, max_hits = 3)", "SELECT WITH t COUNT(*) AS n FROM visits WHERE day < DATE '2024-02-01'"],
    "rows of several periods": ["SELECT WITH SUBSAMPLE OPTIONS (epsilon = 1e6, blocks = 2, bounds = (0, 100)) COALESCE(AVG(x), 1) > 0 AS n FROM visits v JOIN labs l ON v.x = l.z WHERE v.day < DATE '2024-02-01' AND l.taken >= DATE '2024-12-01'"],
    "a table without periods": [f"SELECT COUNT(*) AS n FROM visits v JOIN whole w ON v.pid = w.pid WHERE {MARCH}"],
    "a part of a stored period": [f"SELECT date_trunc('month', day) AS m, COUNT(*) AS n FROM visits v WHERE {MARCH} GROUP BY m", "SELECT date_trunc('month', day) AS m, COUNT(*) AS n FROM visits v WHERE v.day < DATE '2024-04-15' AND v.day >= DATE '2024-03-01' GROUP BY m"],
    "other words for a stored period": [f"SELECT day, COUNT(*) AS n FROM visits v WHERE {MARCH} GROUP BY day", "SELECT day, COUNT(*) AS n FROM visits v WHERE v.day >= DATE '2024-03-01' AND v.day < DATE '2024-04-01' AND (v.day < DATE '2024-03-15' OR v.x > 50) GROUP BY day"],
    "a release": [f"CREATE RELEASE r AS SELECT day, COUNT(*) AS n FROM visits v WHERE {MARCH} GROUP BY day", "SELECT SUM(n) AS n FROM r", "REFRESH RELEASE r", "SELECT SUM(n) AS n FROM r WHERE day >= DATE '2024-05-01'"],
    "what is said without asking": ["EXPLAIN SELECT COUNT(*) AS n FROM visits v WHERE v.day < DATE '2024-02-01'", "SHOW TABLES", "DESCRIBE visits", "SHOW BUDGET", "SHOW PLAN", "SUMMARIZE visits"],
    "grouping sets": [f"SELECT ward, date_trunc('month', day) AS m, COUNT(*) AS n FROM visits v WHERE {MARCH} GROUP BY GROUPING SETS ((ward), (m), ())"],
    "the present": ["SELECT COUNT(*) AS n FROM visits v WHERE v.day >= CURRENT_DATE - INTERVAL 100000 DAY AND v.day < DATE '2024-02-01'", "SELECT COUNT(*) AS n FROM visits v WHERE v.day = CURRENT_DATE"],
    "a text as a date": ["SELECT COUNT(*) AS n FROM visits v WHERE v.day >= '2024-03-01' AND v.day < '2024-04-01'", "SELECT COUNT(*) AS n FROM visits v WHERE CAST(v.day AS VARCHAR) < '2024-02-01'"],
    "more ranges than a scan lists": [f"SELECT COUNT(*) AS n FROM moments WHERE ts::DATE IN ({', '.join(EVERY_OTHER)})"],
    "blocks of two periods": [f"SELECT (SELECT WITH DP COUNT(*) FROM visits v WHERE {MARCH}) AS n, (SELECT WITH DP COUNT(*) FROM visits v WHERE v.day < DATE '2024-02-01') AS m", f"SELECT COUNT(*) AS n FROM visits v WHERE {MARCH} AND x > (SELECT WITH DP AVG(x) FROM visits WHERE day < DATE '2024-02-01')"],
    "a sample": [f"SELECT COUNT(*) AS n FROM (SELECT * FROM visits USING SAMPLE 50%) AS v WHERE {MARCH}"],
    "a recursive CTE": [f"WITH RECURSIVE v AS (SELECT day, pid FROM visits UNION ALL SELECT day, pid FROM v WHERE false) SELECT COUNT(*) AS n FROM v WHERE {MARCH}"],
    "a view": ["CREATE VIEW w AS SELECT * FROM visits", f"SELECT COUNT(*) AS n FROM w AS v WHERE {MARCH}"],
    "a setting": ["SET TimeZone = 'Pacific/Apia'", "SET VARIABLE day = 3", f"SELECT COUNT(*) AS n FROM visits v WHERE {MARCH}"],
    "another place of the table": [f"SELECT COUNT(*) AS n FROM memory.main.visits v WHERE {MARCH}", "SELECT COUNT(*) AS n FROM main.visits WHERE main.visits.day < DATE '2024-02-01'"],
    "PTR": [f"SELECT WITH PTR OPTIONS (epsilon = 1e6) MEDIAN(x) AS n FROM visits v WHERE {MARCH}"],
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_a_way(name: str) -> None:
    whole, days = ask(WAYS[name], lambda con: None)
    if days is None:
        return
    for change in (keep_days, exchange):
        found, _ = ask(WAYS[name], lambda con, change=change: change(con, days) if days else None)  # type: ignore[misc]
        assert found == whole


def test_the_ways_see_a_scan_of_days_that_do_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Catalog, "within", lambda *_: [])
    monkeypatch.setattr("dpsql.lock.from_clause._check_paid", lambda *_: None)
    for name in ("a range in part", "a path of keys"):
        with pytest.raises(AssertionError):
            test_a_way(name)
