# ruff: noqa: E501 - a text stands on one line
"""Faults of a deceived binder, each as a change to what it writes, and the small clinic that they are tried on."""

from __future__ import annotations

import duckdb

POLICY = """
[budget]
epsilon = 1000
delta = 1e-3
default_epsilon = 1
default_delta = 1e-6
[tables.visits]
privacy_unit = "patient_id"
max_rows = 3
max_groups = 2
columns.amount.bounds = [0, 100]
columns.ward.values = [0, 1, 2]
[tables.wards]
public = true
"""

BUDGETED = (
    "SELECT WITH DP OPTIONS (max_rows_contributed = 4) note, SUM(ward, contribution_bounds_per_row => (-3, 2)) AS s "
    "FROM visits GROUP BY note"
)
"""Values of both signs, of so many rows of a unit in all its groups."""
FAULTS = {
    "a row more in all groups": (BUDGETED, r"4 - COALESCE", "5 - COALESCE"),
    "a lower end further away": (BUDGETED, r"-6 \* counted", "-8 * counted"),
    "an upper end further away": (BUDGETED, r"4 \* counted", "8 * counted"),
    "a lower end by rows that don't count": (BUDGETED, r"-6 \* counted", "-6 * n"),
    "an upper end by rows that don't count": (BUDGETED, r"4 \* counted", "4 * n"),
    "a count held to one row more": ("SELECT COUNT(*) AS n FROM visits", r"LEAST\((\S+), 3\)", r"LEAST(\1, 4)"),
    "the unit forged by another column": ("SELECT COUNT(*) AS n FROM visits", r'"patient_id" AS dpsql_unit', '"ward" AS dpsql_unit'),
    "a group more": ("SELECT note, COUNT(*) AS n FROM visits GROUP BY note", r"lag\(u, 2\)", "lag(u, 3)"),
    "rows of nobody": ("SELECT COUNT(*) AS n FROM visits", r'NOT \S+ IS NULL|"\w+"\."dpsql_unit" IS NOT NULL', "1 = 1"),
    "an order without the salt": ("SELECT note, COUNT(*) AS n FROM visits GROUP BY note", r"\$salt", "7"),
    "a row more of each unit's in a spread": ("SELECT WITH STABLE IQR(amount) AS w FROM visits", r"lag\(u, 3\)", "lag(u, 4)"),
    "a row more of each unit": ("SELECT MEDIAN(amount) AS m FROM visits", r"lag\(u, 3\)", "lag(u, 4)"),
    "values counted a thousand times": ("SELECT MEDIAN(amount) AS m FROM visits", r"COUNT\(\*\) AS count", "COUNT(*) * 1000 AS count"),
    "values counted by a row far away": (
        "SELECT MEDIAN(amount) AS m FROM visits",
        r"COUNT\(\*\) AS count", "CASE WHEN MAX(v) > 90 THEN 1000000 ELSE 0 END AS count",
    ),
    "values of a spread counted a thousand times": (
        "SELECT WITH STABLE IQR(amount) AS w FROM visits", r"COUNT\(\*\) AS count", "COUNT(*) * 1000 AS count",
    ),
    "values by the number of all rows": (
        "SELECT MEDIAN(amount) AS m FROM visits",
        r"\(SELECT v FROM \(SELECT \*", "(SELECT CASE WHEN COUNT(*) OVER () % 2 = 0 THEN 0 ELSE 90 END AS v FROM (SELECT *",
    ),
    "a block by the ward": (
        "SELECT WITH SUBSAMPLE OPTIONS (blocks = 10, bounds = (0, 100)) AVG(amount) AS a FROM visits",
        r'CAST\((\S+)\."dpsql_unit" AS BIGINT\)', r'CAST(\1."c1" AS BIGINT)',
    ),
}  # fmt: skip
"""A statement, a pattern in its exact texts, and what a deceived binder writes there, by name."""


def make_visits(con: duckdb.DuckDBPyConnection) -> None:
    """Make the tables of the policy."""
    con.execute(
        "CREATE TABLE visits AS SELECT i // 3 AS patient_id, i % 3 AS ward, (i * 7 % 100)::DOUBLE AS amount, "
        "'n' || (i % 4) AS note FROM range(900) t(i)"
    )
    con.execute("CREATE TABLE wards AS SELECT i AS ward, 'w' || i AS name FROM range(3) t(i)")
