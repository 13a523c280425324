"""ROLLUP, CUBE and GROUPING SETS give what DuckDB gives, at an epsilon that hides nothing."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import dpsql

VISITS = Path(dpsql.__file__).parent / "demo" / "visits.parquet"
POLICY = f"""
[budget]
epsilon = 1e9
accountant = "basic"
default_epsilon = 1e7

[tables.visits]
source = "{VISITS}"
privacy_unit = "person_id"
max_rows = 5
max_groups = 5
[tables.visits.columns]
plan = {{ values = ["free", "25%", "50%", "95%", "deductible"] }}
year = {{ values = [1, 2, 3, 4, 5] }}
"""


@pytest.mark.parametrize(
    "query",
    [
        "SELECT plan, year, COUNT(*) AS n FROM visits GROUP BY ROLLUP (plan, year)",
        "SELECT plan, female, COUNT(*) AS n FROM visits GROUP BY CUBE (plan, female)",
        "SELECT plan, year, COUNT(*) AS n, GROUPING(plan) AS g FROM visits GROUP BY GROUPING SETS ((plan), (year), ())",
        "SELECT year, female, COUNT(*) AS n FROM visits GROUP BY year, ROLLUP (female)",
        "SELECT plan AS p, COUNT(*) AS n FROM visits GROUP BY ROLLUP (plan) HAVING COUNT(*) > 3000",
    ],
)
def test_grouping_sets_equal_duckdb(query: str) -> None:
    with dpsql.connect(policy=dpsql.Policy.loads(POLICY)) as session:
        mine = session.sql(query).fetchall()
    visits = duckdb.read_parquet(str(VISITS))
    theirs = visits.query("visits", query).fetchall()
    assert sorted(mine, key=repr) == sorted(theirs, key=repr)


def test_the_sets_share_the_epsilon() -> None:
    with dpsql.connect(policy=dpsql.Policy.loads(POLICY)) as session:
        result = session.sql(
            "SELECT WITH DP OPTIONS (epsilon = 3) plan, COUNT(*) FROM visits GROUP BY ROLLUP (plan)"
        )
        assert result.event.basic == (3, 0)


def test_shares_beside_sets_are_refused() -> None:
    with (
        dpsql.connect(policy=dpsql.Policy.loads(POLICY)) as session,
        pytest.raises(dpsql.BindError, match="shares"),
    ):
        session.sql("SELECT plan, COUNT(*, epsilon => 1) FROM visits GROUP BY CUBE (plan)")
