"""Ordinary statements that a second reader once refused, or that ended in an exception of a library's."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql

POLICY = """
[budget]
epsilon = 1000000
delta = 1e-3
accountant = "basic"
default_epsilon = 100
default_delta = 1e-6
max_epsilon_per_query = 1000
[tables.v]
privacy_unit = "u"
max_rows = 60
max_groups = 40
columns.q.bounds = [0, 100]
columns.e.bounds = [2024-01-01, 2024-01-31]
"""


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE v AS SELECT i % 50 AS u, i % 7 AS w, (i * 3 % 100)::DOUBLE AS q, 'x' || (i % 3) AS txt, "
            "DATE '2024-01-01' + (i % 31)::INTEGER AS e FROM range(3000) AS t(i)"
        )
        with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as made:
            yield made


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("SELECT e, COUNT(*) FROM v GROUP BY e", 31),
        ("SELECT e, MEDIAN(q) FROM v GROUP BY e", 31),
        ("SELECT NULL AS k, COUNT(*) FROM v GROUP BY k", 1),
        ("SELECT year(e) AS m, COUNT(DISTINCT txt) FROM v GROUP BY m", 1),
        ("SELECT w + 1 AS g, MEDIAN(q) FROM v GROUP BY g", 7),
        ("SELECT upper(txt) AS g, COUNT(DISTINCT w) FROM v GROUP BY g", 3),
        ("SELECT CASE WHEN q < 18 THEN 'low' ELSE 'high' END AS g, MEDIAN(q) FROM v GROUP BY g", 2),
        ("SELECT w // 2 AS g, AVG(q, contribution_bounds_per_row => AUTO) FROM v GROUP BY g", 4),
        (
            "SELECT WITH DP OPTIONS (max_rows_contributed = 60) txt, COUNT(q), COUNT_IF(q > 3) FROM v GROUP BY txt",
            3,
        ),
        (
            "SELECT WITH DP OPTIONS (max_rows_contributed = 60) txt, COUNT(*) FILTER (WHERE q > 3) FROM v GROUP BY txt",
            3,
        ),
    ],
)
def test_it_is_answered(session: dpsql.Session, statement: str, rows: int) -> None:
    assert len(session.sql(statement).fetchall()) == rows
