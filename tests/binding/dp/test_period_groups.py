"""Groups whose keys decide their periods: how many of them one unit may be in."""

from pathlib import Path

import duckdb
import pytest

import dpsql

POLICY = """
budget = { epsilon = 1e30, per_period = true, default_epsilon = 1e6 }
[tables]
visits = { source = "visits.parquet", privacy_unit = "pid", privacy_period = "date_trunc('year', day)", \
    data_from = 2012-01-01, data_until = 2013-12-31, max_rows = 1000, columns.day.type = "DATE" }
"""


def test_a_unit_counts_in_each_week_of_a_year(tmp_path: Path) -> None:
    days = "SELECT 1 AS pid, CAST(d AS DATE) AS day FROM range(DATE '2012-01-01', DATE '2014-01-01', INTERVAL 1 DAY) AS r(d)"
    duckdb.sql(f"COPY ({days}) TO '{tmp_path / 'visits.parquet'}'")
    policy = dpsql.Policy.loads(POLICY, base=tmp_path)
    text = "SELECT WITH DP OPTIONS (max_rows_per_group = 1) {}, COUNT(*) AS n FROM visits WHERE year(day) = {} GROUP BY 1"
    with dpsql.connect(policy=policy, ledger=tmp_path / "l.ledger") as session:
        for year, weeks in ((2012, 54), (2013, 53)):
            found = session.sql(text.format("date_trunc('week', day)", year)).dicts()
            assert [round(row["n"]) for row in found] == [1] * weeks


GAPS = ["", "OPTIONS (periods = ('2012-01-01', '2012-01-03 to 2012-01-04', '2012-01-06'))"]
"""Statements read six days, or four of them."""


@pytest.mark.parametrize("asked", GAPS)
def test_rows_without_a_day_have_their_group_and_no_others_do(asked: str) -> None:
    policy = POLICY.replace("'year'", "'day'").replace("2013-12-31", "2012-01-06")
    policy = policy.replace("1000", "10").replace('source = "visits.parquet", ', "")
    labs = policy[policy.index("visits = ") :].replace("visits", "labs")
    unknown = "COALESCE({}, DATE '2000-01-01') AS d, COUNT(*) AS n FROM visits AS v"
    with duckdb.connect() as con:
        row = "SELECT i AS pid, DATE '2012-01-01' + i AS day FROM range({}) AS r(i)"
        for table, days in (("visits", 6), ("labs", 1)):
            con.execute(f"CREATE TABLE {table} AS {row.format(days)}".replace("+ i", "+ CAST(i AS INTEGER)"))
        with dpsql.connect(con, policy=dpsql.Policy.loads(policy + labs)) as session:

            def ask(text: str) -> dict[str, int]:
                found = session.sql(f"SELECT WITH DP {asked} {text} GROUP BY d ORDER BY d")
                return {str(row["d"]): round(row["n"]) for row in found.dicts()}

            days = ask("day AS d, COUNT(*) AS n FROM visits")
            assert ask(unknown.format("day")) == days == dict.fromkeys(days, 1)
            assert ask("day IS NULL AS d, COUNT(*) AS n FROM visits") == {"False": len(days)}
            joined = " LEFT JOIN labs AS l ON v.pid = l.pid"
            assert [*ask(f"l.day AS d, COUNT(*) AS n FROM visits AS v{joined}").values()][:2] == [1, 0]
            matched = {"2000-01-01": len(days) - 1, "2012-01-01": 1}
            assert ask(unknown.format("l.day") + joined) == dict.fromkeys(days, 0) | matched
