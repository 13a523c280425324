"""TPC-H with customers as privacy units: each query is answered as plain DuckDB answers it, or refused for a true reason.

The data come from tpchgen-cli, once per machine: at scale factor 0.01, and 0.1 with the long tests.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pytest

import dpsql
from tests.support.tpch import HERE, QUERIES, TABLES, Query, data

PAGE = HERE.parents[2] / "notebooks" / "docs" / "tpch.md"


Tpch = tuple[dpsql.Session, duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module", params=["0.01", pytest.param("0.1", marks=pytest.mark.stochastic)])
def tpch(request: pytest.FixtureRequest) -> Iterator[Tpch]:
    folder = data(request.param)
    policy = dpsql.Policy.loads(
        (HERE / "policy.toml").read_text().replace('source = "', f'source = "{folder}/')
    )
    with duckdb.connect() as con, dpsql.connect(policy=policy) as session:
        for name in TABLES:
            con.execute(f"CREATE VIEW {name} AS FROM '{folder / name}.parquet'")
        yield session, con


def test_the_caps_clip_nothing(tpch: Tpch) -> None:
    _, con = tpch
    ((orders, lines),) = con.sql(
        "SELECT MAX(o), MAX(l) FROM (SELECT COUNT(DISTINCT o_orderkey) AS o, COUNT(*) AS l "
        "FROM orders JOIN lineitem ON l_orderkey = o_orderkey GROUP BY o_custkey)"
    ).fetchall()
    assert 1 < orders <= 50
    assert 1 < lines <= 300


def close(ours: Any, theirs: Any, slack: float) -> bool:
    if theirs is None:  # a mean or share of nothing: whatever came is noise
        return True
    if isinstance(theirs, Decimal | float | int):
        return math.isclose(float(ours), float(theirs), rel_tol=1e-9, abs_tol=slack)
    return bool(ours == theirs)


# What a share of noisy sums may be off by, times the lines that there are: it has no interval of its own.
SHARES = {"mkt_share": 18_000.0, "promo_revenue": 3_000.0}


def compare(session: dpsql.Session, con: duckdb.DuckDBPyConnection, query: Query) -> None:
    """The same groups, and in them the same values, as near as their intervals say."""
    result = session.sql(query.answered)
    ((lines,),) = con.sql("SELECT COUNT(*) FROM lineitem").fetchall()
    plain = re.sub(r", contribution_bounds_per_row => \([^)]*\)", "", query.plain or query.answered)
    columns, expected = list(result.columns), con.sql(plain).fetchall()
    keys = [i for i, name in enumerate(columns) if name not in result.intervals and name not in SHARES]
    ours = {tuple(row[i] for i in keys): row for row in result.fetchall()}
    assert len(ours) == result.shape[0]
    assert len(expected) > 0
    assert sorted(map(str, ours)) == sorted(str(tuple(row[i] for i in keys)) for row in expected)
    for row in expected:
        mine = ours[tuple(row[i] for i in keys)]
        place = result.fetchall().index(mine)
        for i, name in enumerate(columns):
            slack = SHARES.get(name, 0.0) / lines
            if name in result.intervals:
                low, high = result.intervals[name][place]
                slack = 4 * (high - low) + 1e-6  # eight half-widths: far beyond any noise
            assert close(mine[i], row[i], slack), (name, mine, row)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_answers_are_plain_duckdbs(tpch: Tpch, query: Query) -> None:
    compare(*tpch, query)


@pytest.mark.parametrize(
    ("cap", "name"),
    [("max_rows_per_group = 300", "Q1"), ("max_rows_per_group = 50", "Q4"), ("max_groups = 50", "Q9")],
)
def test_the_comparison_notices_a_cap_that_clips(tpch: Tpch, cap: str, name: str) -> None:
    text = (HERE / "policy.toml").read_text().replace('source = "', f'source = "{data("0.01")}/')
    policy = dpsql.Policy.loads(text.replace(cap, f"{cap.split()[0]} = 1"))
    query = next(query for query in QUERIES if query.name == name)
    with dpsql.connect(policy=policy) as session, pytest.raises(AssertionError):
        compare(session, tpch[1], query)


@pytest.mark.parametrize(
    "query", [q for q in QUERIES if q.verdict == "refused"], ids=lambda query: query.name
)
def test_refusals_say_why(tpch: Tpch, query: Query) -> None:
    with pytest.raises(dpsql.PrivacyError) as caught:
        tpch[0].sql(query.written)
    assert caught.value.message == query.reason


def table() -> str:
    """Return the table that the documentation shows."""
    lines = ["| query | as written | |", "|---|---|---|"]
    for query in QUERIES:
        said = (
            f"“{query.reason}” Answered in this form: {query.form}."
            if query.reason
            else "equals plain DuckDB"
        )
        lines.append(f"| {query.name} {query.title} | {query.verdict} | {said} |")
    return "\n".join(lines) + "\n"


def test_every_query_has_a_verdict_and_the_readme_shows_it() -> None:
    assert [q.name for q in QUERIES] == [
        f"Q{n}" for n in (1, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 18, 19, 22)
    ]
    assert all(q.verdict == "answered" or (q.reason and q.private) for q in QUERIES)
    assert table() in PAGE.read_text(encoding="utf-8"), f"{PAGE.name} lacks this table:\n{table()}"
