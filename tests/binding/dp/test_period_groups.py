"""Groups whose keys decide their periods: how many of them one unit may be in."""

from pathlib import Path

import duckdb

import dpsql

POLICY = """
[budget]
epsilon = 1e30
per_period = true
default_epsilon = 1e6
[tables.visits]
source = "visits.parquet"
privacy_unit = "pid"
privacy_period = "date_trunc('year', day)"
data_from = 2012-01-01
data_until = 2013-12-31
max_rows = 1000
columns.day.type = "DATE"
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
