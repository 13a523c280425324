"""Keys that may be NULL, and rows of nobody: what is public about them, and that neither is lost in silence."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from tests.support import inside
from tests.support.fixtures import con_fixture

POLICY = """
budget = {{ epsilon = 1e12, delta = 0.9, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-9 }}
[tables]
t = {{ privacy_unit = "u", max_rows_per_group = 4, max_groups = {groups}, columns = {{ x = {{ bounds = [0, 100] }}, \
    k = {{ values = ["a", "b", "c"] }}, w = {{ values = [1, 2, 3] }} }} }}
named = {{ privacy_unit = "u", max_rows_per_group = 4, max_groups = {groups}, columns = {{ x = {{ bounds = [0, 100] }}, \
    k = {{ values = ["a", "b", "c"] }}, w = {{ values = [1, 2, 3] }} }} }}
p = {{ public = true, columns = {{ v = {{ bounds = [0, 100] }} }} }}
"""
TABLES = """
CREATE TABLE t AS SELECT i // 4 AS u, CASE WHEN i % 7 > 0 THEN i % 100 END AS x,
    ['a', 'b', 'c', 'z', NULL][1 + i % 5] AS k, [1, 2, 3, NULL][1 + i % 4] AS w FROM range(400) AS r(i);
CREATE TABLE named AS SELECT 'u' || u AS u, x, k, w FROM t;
CREATE TABLE p AS SELECT * FROM (VALUES ('a', 1), ('a', 2), ('b', 3), ('q', 4)) AS v(k, v);
"""
con = con_fixture(TABLES, scope="function")


def session(con: duckdb.DuckDBPyConnection, groups: int = 8) -> dpsql.Session:
    return dpsql.connect(con, policy=dpsql.Policy.loads(POLICY.format(groups=groups)))


KEYS = [
    "NULLIF(k, 'a')",
    "CASE k WHEN 'a' THEN 'x' WHEN 'b' THEN 'y' END",
    "CASE w WHEN 1 THEN 1 WHEN 2 THEN 2 END",
    "NULLIF(COALESCE(w, 3), 3)",
    "x > 50",
    "x > 50 AND k = 'a'",
    "x IS NULL",
    "TRY_CAST(NULLIF(k, 'b') AS INTEGER)",
]


@pytest.mark.parametrize("table", ["t", "named"])  # packed rows, and SQL
@pytest.mark.parametrize("key", KEYS)
def test_no_row_is_lost_where_a_key_is_null(con: duckdb.DuckDBPyConnection, table: str, key: str) -> None:
    declared = "k IN ('a', 'b', 'c')" if "k" in key else "TRUE"
    text = f"SELECT {key} AS g, COUNT(*), COUNT(x), SUM(x), MIN(x) FROM {table} WHERE {declared} GROUP BY g"
    with session(con) as ours:
        mine = ours.sql(text).fetchall()
    theirs = {row[0]: row[1:] for row in con.execute(text).fetchall()}
    assert {row[0] for row in mine} >= set(theirs)
    for g, *row in mine:
        many, present, total, least = theirs.get(g, (0, 0, 0, None))
        assert row[:2] == [many, present]
        assert row[2] == pytest.approx(total or 0)
        assert not present or row[3] == least


def test_what_is_not_declared_is_left_out_of_a_plain_column(con: duckdb.DuckDBPyConnection) -> None:
    with session(con) as ours:
        assert sorted(ours.sql("SELECT k, COUNT(*) FROM t GROUP BY k").fetchall()) == [(k, 80) for k in "abc"]
        # nothing that is declared becomes NULL: there is no such group, and it costs no join that is null-safe
        (block,) = inside.bind(ours, "SELECT upper(k), COUNT(*) FROM t GROUP BY 1").blocks
        assert "NOT DISTINCT" not in str(block.operator)
        (block,) = inside.bind(ours, "SELECT NULLIF(k, 'a'), COUNT(*) FROM t GROUP BY 1").blocks
        assert "NOT DISTINCT" in str(block.operator)


@pytest.mark.parametrize("table", ["t", "named"])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_the_missing_group_counts_as_one_of_a_units_groups(
    con: duckdb.DuckDBPyConnection, table: str, groups: int
) -> None:
    """Each unit is in true, false and NULL; what it adds over all groups is bounded by how many it may touch."""
    con.execute(
        "DELETE FROM t; INSERT INTO t SELECT i // 3, [10, 90, NULL][1 + i % 3], 'a', 1 FROM range(300) AS r(i)"
    )
    con.execute("DELETE FROM named; INSERT INTO named SELECT 'u' || u, x, k, w FROM t")
    with session(con, groups) as ours:
        rows = ours.sql(f"SELECT x > 50 AS g, COUNT(DISTINCT u) FROM {table} GROUP BY g").fetchall()
    assert {g for g, _ in rows} == {True, False, None}
    assert sum(n for _, n in rows) == 100 * groups
    assert groups == 3 or all(n < 100 for _, n in rows), "which of its groups is each unit's own lot"


ADDED = [  # what a row of nobody adds nothing to, or is kept apart from
    "SELECT COUNT(t.x), SUM(t.x), AVG(t.x + 1), COUNT(DISTINCT t.u) FROM p LEFT JOIN t ON p.k = t.k",
    "SELECT COUNT(*) FROM p LEFT JOIN t ON p.k = t.k WHERE t.x > 3",
    "SELECT COUNT(*), SUM(p.v) FROM p LEFT JOIN t ON p.k = t.k WHERE t.u IS NOT NULL AND p.v < 9",
    "SELECT COUNT(*) FILTER (WHERE t.x < 50), SUM(CASE WHEN t.x > 9 THEN p.v END) FROM t RIGHT JOIN p USING (k)",
    "SELECT COUNT(n) FROM (SELECT t.x AS n, p.v FROM t RIGHT JOIN p USING (k))",
    "SELECT COUNT(*) FROM (SELECT t.x AS n, p.v FROM t RIGHT JOIN p USING (k)) WHERE n > 3",
    "SELECT COUNT(*) FROM t RIGHT JOIN p ON t.k = p.k JOIN t AS o ON o.u = t.u WHERE o.w = 1 AND t.w = 1",
    "SELECT COUNT(*), SUM(p.v) FROM t LEFT JOIN p USING (k)",
]
REFUSED = [
    "SELECT COUNT(*) FROM p LEFT JOIN t ON p.k = t.k",
    "SELECT COUNT(*) FROM t RIGHT JOIN p USING (k)",
    "SELECT COUNT(*) FROM p FULL JOIN t ON p.k = t.k",
    "SELECT COUNT(*) FROM p LEFT JOIN t ON p.k = t.k WHERE t.x IS NULL",
    "SELECT COUNT(*) FROM p LEFT JOIN t ON p.k = t.k WHERE t.x > 3 OR p.v = 1",
    "SELECT COUNT(*) FROM p LEFT JOIN t ON p.k = t.k WHERE COALESCE(t.x, 9) > 3",
    "SELECT SUM(p.v) FROM p LEFT JOIN t ON p.k = t.k",
    "SELECT SUM(COALESCE(t.x, 1)) FROM p LEFT JOIN t ON p.k = t.k",
    "SELECT COUNT(DISTINCT p.v) FROM p LEFT JOIN t ON p.k = t.k",
    "SELECT MEDIAN(p.v) FROM p LEFT JOIN t ON p.k = t.k",
    "SELECT p.k, COUNT(*) FROM p LEFT JOIN t ON p.k = t.k AND p.v > t.x GROUP BY p.k",
    "SELECT p.v, COUNT(*) FROM p LEFT JOIN t ON p.k = t.k GROUP BY p.v",
    "SELECT p.k, COUNT(*) FROM p LEFT JOIN t ON p.k = t.k WHERE t.x IS NULL GROUP BY p.k",
    "SELECT COUNT(*) FROM (SELECT p.v FROM t RIGHT JOIN p USING (k))",
    "SELECT COUNT(*) FROM (SELECT p.v FROM t RIGHT JOIN p USING (k) UNION ALL SELECT x FROM t)",
]


@pytest.mark.parametrize("text", ADDED)
def test_rows_of_nobody_that_change_nothing(con: duckdb.DuckDBPyConnection, text: str) -> None:
    con.execute("UPDATE t SET k = 'c' WHERE k = 'b'")  # so that a public row is met by none
    with session(con) as ours:
        text = text.replace("SELECT", "SELECT WITH DP OPTIONS (max_rows_per_group = 99)", 1)
        mine = ours.sql(text).fetchall()
    theirs = con.execute(text.replace("WITH DP OPTIONS (max_rows_per_group = 99)", "")).fetchall()
    for a, b in zip(mine[0], theirs[0], strict=True):
        assert a == pytest.approx(b, rel=1e-3)


@pytest.mark.parametrize("text", REFUSED)
def test_rows_of_nobody_are_not_lost_in_silence(con: duckdb.DuckDBPyConnection, text: str) -> None:
    with session(con) as ours, pytest.raises(dpsql.PrivacyError) as caught:
        ours.sql(text.replace("SELECT", "SELECT WITH DP OPTIONS (max_rows_per_group = 99)", 1))
    assert caught.value.message.startswith("public rows without a matching private row would count here")
    assert caught.value.span is not None
    assert caught.value.hint


def test_public_groups_are_met_as_a_whole_or_empty(con: duckdb.DuckDBPyConnection) -> None:
    with session(con) as ours:
        text = "SELECT p.k, COUNT(*), COUNT(t.u) FROM t RIGHT JOIN p USING (k) GROUP BY p.k ORDER BY 1"
        assert ours.sql(text).fetchall() == [("a", 160, 160), ("b", 80, 80), ("q", 0, 0)]
