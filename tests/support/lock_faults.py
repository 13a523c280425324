# ruff: noqa: E501 - a text stands on one line
"""Faults of a deceived binder, each as a change to what it writes, and the small clinic that they are tried on."""

from __future__ import annotations

import duckdb

POLICY = """
budget = { epsilon = 1000, delta = 1e-3, default_epsilon = 1, default_delta = 1e-6 }
[tables]
visits = { privacy_unit = "patient_id", max_rows_per_group = 3, max_groups = 2, columns.amount.bounds = [0, 100], \
    columns.ward.values = [0, 1, 2] }
wards = { public = true }
"""

BUDGETED = (
    "SELECT WITH DP OPTIONS (max_rows_contributed = 4) note, SUM(ward, contribution_bounds_per_row => (-3, 2)) AS s "
    "FROM visits GROUP BY note"
)
"""Values of both signs, of so many rows of a unit in all its groups."""
PRICES = "WITH p(x, k) AS (VALUES (1.0, 2), (2.5, 1)) SELECT EXPMECH({}) OVER p AS w FROM visits"
"""A choice of a price, by a statistic."""
ABOVE = PRICES.format("COUNT(*) FILTER (WHERE amount >= x)")
BETWEEN = PRICES.format("COUNT(*) FILTER (WHERE amount > x AND amount < k)")
CLIPPED = PRICES.format("SUM(LEAST(amount, x))")
EQUAL = PRICES.format("COUNT(*) FILTER (WHERE ward = k)")
LOOPED = PRICES.format("COUNT(*) FILTER (WHERE amount * x > 5)")
ROLLED = (
    "SELECT WITH DP OPTIONS (strategy = MARGINALS, max_rows_contributed = 4) COUNT(*) AS n FROM visits "
    "GROUP BY ROLLUP (ward, CASE WHEN amount > 50 THEN 1 ELSE 0 END)"
)
"""Nested sets under one cap on rows: those of declared wards are kept first."""
IN_GROUPS = ROLLED.replace("max_rows_contributed = 4", "max_groups_contributed = 2")
MOMENTS = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 10, bounds = (0, 100)) VARIANCE(amount) AS v FROM visits"
"""A moment that is added up as integers, in layers."""
OWN_GRIDS = "SELECT WITH SUBSAMPLE OPTIONS (blocks = 10, bounds = (0, 100)) CORR(EXP(amount), patient_id) AS v FROM visits"
"""A moment on grids that the blocks' own rows choose."""
FAULTS = {
    "a row more in all groups": (BUDGETED, r"4 - COALESCE", "5 - COALESCE"),
    "a lower end further away": (BUDGETED, r"-6 \* counted", "-8 * counted"),
    "an upper end further away": (BUDGETED, r"4 \* counted", "8 * counted"),
    "a lower end by rows that don't count": (BUDGETED, r"-6 \* counted", "-6 * n"),
    "an upper end by rows that don't count": (BUDGETED, r"4 \* counted", "4 * n"),
    "a count held to one row more": ("SELECT COUNT(*) AS n FROM visits", r"LEAST\((\S+), 3\)", r"LEAST(\1, 4)"),
    "the unit forged by another column": ("SELECT COUNT(*) AS n FROM visits", r'"patient_id" AS dpsql_unit', '"ward" AS dpsql_unit'),
    "groups without their key": ("SELECT note, COUNT(*) AS n FROM visits GROUP BY note", r"^SELECT k0,", "SELECT NULL AS k0,"),
    "groups under a coarser key": ("SELECT note, COUNT(*) AS n FROM visits GROUP BY note", r"^SELECT k0,", "SELECT LEFT(k0, 1) AS k0,"),
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
    "different values counted a thousand times": ("SELECT SUM(DISTINCT ward) AS s FROM visits", r"COUNT\(\*\) AS count", "COUNT(*) * 1000 AS count"),
    "different values by the greatest": (
        "SELECT SUM(DISTINCT ward) AS s FROM visits",
        r"^SELECT (.*?) AS value, (.*) GROUP BY value$", r"SELECT MAX(\1) AS value, \2 GROUP BY \1 // 7",
    ),
    "a running sum a thousand times": (ABOVE, r"t0_all\.upto - a0\.under AS", "1000 * (t0_all.upto - a0.under) AS"),
    "bins a thousand times": (ABOVE, r"SUM\(t0_x\.v\) AS s", "1000 * SUM(t0_x.v) AS s"),
    "groups a thousand times": (ABOVE, r"SUM\(1\) AS v", "1000 * SUM(1) AS v"),
    "one bin twice": (ABOVE, r"own \+ after", "own + own"),
    "bins of other thresholds": (ABOVE, r"t0_b ON t0_b\.t = t0_t\.t", "t0_b ON t0_b.t * 2 = t0_t.t"),
    "bins of all ends": (ABOVE, r"FILTER \(WHERE NOT edge\)", "FILTER (WHERE TRUE)"),
    "bins where they are many": (ABOVE, r"FILTER \(WHERE edge\), 0\) AS own", "FILTER (WHERE s > 100), 0) AS own"),
    "bins beside many rows": (ABOVE, r"ON t0_x\.x >= t0_t\.t", "ON t0_x.x >= t0_t.t CROSS JOIN range(1000) AS m(i)"),
    "a running sum where it is great": (ABOVE, r"t0_all\.upto - a0\.under AS", "CASE WHEN a0.under > 100 THEN a0.upto ELSE 0 END AS"),
    "a running sum that is joined by itself": (ABOVE, r"ON a0\.t = ", "ON a0.under > 100 AND a0.t = "),
    "all rows but those that count": (ABOVE, r"AS upto FROM rows WHERE", "AS upto FROM rows WHERE x0 < 50 AND"),
    "scores where they are great": (ABOVE, r"LEFT JOIN t0 ON ", "LEFT JOIN t0 ON t0.v > 100 AND "),
    "scores of many alone": (EQUAL, r"(.*) ORDER BY dpsql_c.dpsql_ord$", r"\1 WHERE t0.v > 100 ORDER BY dpsql_c.dpsql_ord"),
    "thresholds that follow from rows": (ABOVE, r"SELECT t, \(SELECT", "SELECT CASE WHEN own > 100 THEN t END AS t, (SELECT"),
    "bins that end elsewhere under a clip": (CLIPPED, r"ON t0_x\.x >= t0_t\.t", "ON t0_x.x > t0_t.t"),
    "equals that are more under a clip": (CLIPPED, r"t0_x\.x = t0_t\.t AS edge", "t0_x.x >= t0_t.t AS edge"),
    "a slice between sums of others": (BETWEEN, r"a1\.under - a0\.upto", "a1.under - 5 * a0.upto"),
    "a clip twice": (CLIPPED, r"t0_all\.n - t0_at\.n_upto", "2 * t0_all.n - 2 * t0_at.n_upto"),
    "a clip that is greater": (CLIPPED, r"\* \(t0_all\.n", "* 2 * (t0_all.n"),
    "groups of equals a thousand times": (EQUAL, r"SUM\(t0_g\.v\) AS v", "1000 * SUM(t0_g.v) AS v"),
    "groups of equals beside many rows": (EQUAL, r"ON t0_g\.k = ", "ON TRUE CROSS JOIN range(1000) AS m(i) WHERE t0_g.k = "),
    "groups of equals where they are many": (EQUAL, r"ON t0_g\.k = ", "ON t0_g.v > 100 AND t0_g.k = "),
    "a loop a thousand times": (LOOPED, r"COALESCE\(looped\.v0", "1000 * COALESCE(looped.v0"),
    "a loop's sum a thousand times": (LOOPED, r"SUM\((CASE .*? END)\) AS v0", r"1000 * SUM(\1) AS v0"),
    "a row more of each unit in a loop": (LOOPED, r"lag\(u, 3\)", "lag(u, 4)"),
    "a row more of each unit for a choice": (EQUAL, r"lag\(u, 3\)", "lag(u, 4)"),
    "cells that go first by others' rows": (
        ROLLED, r"CASE WHEN (k\d) IS NULL THEN 1 ELSE 0 END AS later", r"COUNT(*) OVER (PARTITION BY \1) AS later",
    ),
    "cells that go first by the number of all": (
        ROLLED, r"CASE WHEN k\d IS NULL THEN 1 ELSE 0 END AS later", "SUM(n) OVER () AS later",
    ),
    "rows for each place in the order of cells": (ROLLED, r"PARTITION BY u ORDER BY later", "PARTITION BY u, later ORDER BY later"),
    "a row more of the cells that go first": (ROLLED, r"4 - COALESCE", "5 - COALESCE"),
    "an order of cells before that of units": (IN_GROUPS, r"ORDER BY u, later", "ORDER BY later, u"),
    "a group more of the cells that go first": (IN_GROUPS, r"lag\(u, 2\)", "lag(u, 3)"),
    "an order of cells without the salt": (IN_GROUPS, r"\$salt", "7"),
    "a block by the ward": (
        "SELECT WITH SUBSAMPLE OPTIONS (blocks = 10, bounds = (0, 100)) AVG(amount) AS a FROM visits",
        r'CAST\((\S+)\."dpsql_unit" AS BIGINT\)', r'CAST(\1."c1" AS BIGINT)',
    ),
    "exact moments of blocks by the ward": (MOMENTS, r'CAST\((\S+)\."dpsql_unit" AS BIGINT\)', r'CAST(\1."c1" AS BIGINT)'),
    "exact moments of blocks without the salt": (MOMENTS, r"\$salt", "7"),
    "exact moments of all blocks together": (MOMENTS, r"SUM\(rows\.y\) AS", "SUM(SUM(rows.y)) OVER () AS"),
    "exact moments of rows that stand before others": (
        MOMENTS, r"AS y FROM", "AS y, lag(c2) OVER (ORDER BY c2) AS z FROM",
    ),
    "a moment as the number of its block": (MOMENTS, r"SELECT dpsql_block, (CASE .*? END) AS a0", r"SELECT \1 AS dpsql_block, \1 AS a0"),
    "blocks that others' moments leave out": (MOMENTS, r"AS sums\)", "AS sums QUALIFY row_number() OVER (ORDER BY a0_n) > 2)"),
    "a grid of another block": (OWN_GRIDS, r"ON ends\.dpsql_block = rows\.dpsql_block", "ON ends.dpsql_block <> rows.dpsql_block"),
    "a grid of the block before": (OWN_GRIDS, r"ON ends\.dpsql_block = rows\.dpsql_block", "ON ends.dpsql_block = rows.dpsql_block - 1"),
    "a grid of all blocks": (OWN_GRIDS, r"ON ends\.dpsql_block = rows\.dpsql_block", "ON TRUE"),
    "a grid of whoever has the greatest number": (
        OWN_GRIDS, r"SELECT given\.dpsql_block AS dpsql_block, (.*?) GROUP BY given\.dpsql_block",
        r"SELECT MAX(given.dpsql_block) AS dpsql_block, \1 GROUP BY given.y",
    ),
    "grids of blocks by the ward": (OWN_GRIDS, r'CAST\((\S+)\."dpsql_unit" AS BIGINT\)', r'CAST(\1."c1" AS BIGINT)'),
    "grids of blocks without the salt": (OWN_GRIDS, r"\$salt", "7"),
    "the grid as the number of its block": (
        OWN_GRIDS, r"SELECT stepped\.dpsql_block AS dpsql_block, (.*?) GROUP BY stepped\.dpsql_block",
        r"SELECT CAST(stepped.sy AS BIGINT) AS dpsql_block, \1 GROUP BY stepped.sy",
    ),
    "a moment of each block beside others": (MOMENTS, r"ON g\.dpsql_block = every\.dpsql_block", "ON g.dpsql_block <> every.dpsql_block"),
}  # fmt: skip
"""A statement, a pattern in its exact texts, and what a deceived binder writes there, by name."""


def make_visits(con: duckdb.DuckDBPyConnection) -> None:
    """Make the tables of the policy."""
    con.execute(
        "CREATE TABLE visits AS SELECT i // 3 AS patient_id, i % 3 AS ward, (i * 7 % 100)::DOUBLE AS amount, "
        "'n' || (i % 4) AS note FROM range(900) t(i)"
    )
    con.execute("CREATE TABLE wards AS SELECT i AS ward, 'w' || i AS name FROM range(3) t(i)")
