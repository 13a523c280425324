"""Ordinary statements that a second reader once refused, or that ended in an exception of a library's."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from tests.support.fixtures import session_fixture

POLICY = """
budget = { epsilon = 1000000, delta = 1e-3, accountant = "basic", default_epsilon = 100, default_delta = 1e-6, \
    max_epsilon_per_query = 1000 }
[tables]
v = { privacy_unit = "u", max_rows_per_group = 60, max_groups = 40, columns.q.bounds = [0, 100], \
    columns.e.bounds = [2024-01-01, 2024-01-31] }
"""
TABLES = """
CREATE TABLE v AS SELECT i % 50 AS u, i % 7 AS w, (i * 3 % 100)::DOUBLE AS q, 'x' || (i % 3) AS txt,
    DATE '2024-01-01' + (i % 31)::INTEGER AS e FROM range(3000) AS t(i);
"""
session = session_fixture(POLICY, TABLES)


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        (
            "SELECT WITH DP OPTIONS (group_selection_strategy = PUBLIC_GROUPS) e, COUNT(*) FROM v GROUP BY e",
            31,
        ),
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


OF_EACH_UNIT = [
    "SELECT u, COUNT(*) AS n FROM v GROUP BY u HAVING n > 59",
    "SELECT u AS p, COUNT(*) AS n FROM v WHERE u < 30 GROUP BY p",
    "SELECT u, w AS k, COUNT(*) AS n FROM v GROUP BY u, k HAVING k = 3 AND n > 8",
    "SELECT u, date_trunc('week', e) AS m, COUNT(*) AS n FROM v WHERE m > DATE '2024-01-08' GROUP BY u, m",
    "SELECT u, MAX(q) AS m, m - MIN(q) AS d FROM v GROUP BY ALL HAVING d > 50",
    "SELECT u, w + 1 AS w, COUNT(*) AS n FROM v GROUP BY u, w HAVING w > 5",
]
"""Totals of each unit that speak of what their own SELECT list calls by a name."""


@pytest.mark.parametrize("statement", OF_EACH_UNIT)
def test_names_of_a_select_list_mean_in_totals_of_a_unit_what_they_mean_in_duckdb(statement: str) -> None:
    policy = POLICY.replace("max_rows = 60", "max_rows = 500").replace("_query = 1000", "_query = 100000")
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE v AS SELECT i % 50 AS u, i % 7 AS w, (i * 3 % 100)::DOUBLE AS q, "
            "DATE '2024-01-01' + (i % 31)::INTEGER AS e FROM range(3000) AS t(i)"
        )
        con.execute("INSERT INTO v SELECT u, w, q + 1, NULL FROM v WHERE u % 3 = 1")
        (exact,) = con.execute(f"SELECT COUNT(*) FROM ({statement})").fetchone() or ()
        with dpsql.connect(con, policy=dpsql.Policy.loads(policy)) as made:
            ((count,),) = made.sql(
                f"SELECT WITH DP OPTIONS (epsilon = 100000) COUNT(*) FROM ({statement})"
            ).fetchall()
    assert exact > 0
    assert count == exact


@pytest.mark.parametrize(
    "item",
    [
        "1 + (SELECT COUNT(*) FROM v)",
        "CASE WHEN (SELECT COUNT(*) FROM v) > 3 THEN 'a' END",
        "-(SELECT COUNT(*) FROM v)",
    ],
)
def test_an_expression_over_a_block_is_called_as_it_is_written(session: dpsql.Session, item: str) -> None:
    assert session.sql(f"SELECT {item}").columns == [item]
