"""IN and NOT IN over lists that hold NULL, as DuckDB answers them."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

import dpsql

POLICY = """
budget = { epsilon = 1e12, delta = 0.5, accountant = "basic", default_epsilon = 1e6, default_delta = 1e-9 }
[tables]
t = { privacy_unit = "uid", max_rows = 1, max_groups = 1 }
o = { privacy_unit = "uid", max_rows = 4, max_groups = 1 }
pub = { public = true }
"""
TABLES = (
    "CREATE TABLE t AS SELECT i AS uid, CASE WHEN i % 5 > 0 THEN i % 5 END AS x, CASE WHEN i % 3 > 0 THEN i % 3 END AS y, "
    "CAST(x AS DECIMAL(4, 1)) AS z FROM range(300) r(i)",
    "CREATE TABLE o AS SELECT i AS uid, CASE WHEN i % 4 > 0 THEN i % 4 END AS x, i % 2 AS y FROM range(250) r(i) "
    "UNION ALL SELECT i, 2, 1 FROM range(150) r(i)",
    "CREATE TABLE pub AS SELECT * FROM (VALUES (1, 1, 1.5), (NULL, 2, NULL), (3, NULL, 3.0)) v(x, y, z)",
)
LISTS = (
    "x IN (SELECT x FROM pub)",
    "x IN (SELECT x FROM pub WHERE x > 0)",
    "x IN (SELECT x FROM pub WHERE false)",
    "x IN (SELECT NULL)",
    "x IN (SELECT z FROM pub)",
    "z IN (SELECT x FROM pub)",
    "x IN (SELECT CAST(x AS DOUBLE) FROM pub)",
    "x IN (SELECT MAX(x) FROM pub WHERE false)",
    "x IN (SELECT UNNEST([1, NULL]))",
    "x IN (1, NULL)",
    "x IN (NULL)",
    "(x, y) IN (SELECT x, y FROM pub)",
    "(x, 1) IN (SELECT x, 1 FROM pub)",
    "x IN (SELECT p.x FROM pub AS p WHERE p.y = t.y)",
    "x IN (SELECT o.x FROM o WHERE o.uid = t.uid)",
    "x IN (SELECT o.x FROM o WHERE o.uid = t.uid AND o.x > 100)",
    "(uid, x) IN (SELECT uid, x FROM o)",
    "(uid, x) IN (SELECT uid, MAX(x) FROM o GROUP BY uid)",
)
PLACES = (
    "{c}",
    "NOT {c}",
    "({c}) IS NULL",
    "NOT ({c} AND y = 1)",
    "NOT ({c} OR y = 1)",
    "NOT (NOT ({c}))",
    "COALESCE({c}, true)",
    "CASE WHEN {c} THEN false ELSE true END",
    "CASE WHEN NOT {c} THEN true END",
    "CASE {c} WHEN true THEN false WHEN false THEN true ELSE y = 1 END",
    "({c}) = (y = 1)",
)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[duckdb.DuckDBPyConnection, dpsql.Session]]:
    con = duckdb.connect()
    for text in TABLES:
        con.execute(text)
    with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
        yield con, session


@pytest.mark.parametrize("condition", LISTS)
def test_a_membership_is_null_where_duckdb_has_null(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Session], condition: str
) -> None:
    if condition.startswith("(uid") and duckdb.__version__ < "2":
        pytest.skip(
            "DuckDB 1.5 takes each row that a list with a NULL lacks for NULL, if its first value differs, too"
        )
    con, session = both
    counts = [f"COUNT(*) FILTER (WHERE {place.format(c=condition)})" for place in PLACES]
    text = f"SELECT {', '.join(counts)}, COUNT({condition}) FROM t"
    assert session.sql(text).fetchall() == con.execute(text).fetchall()
    text = f"SELECT COUNT(*) FROM t WHERE NOT {condition} OR y = 1"
    assert session.sql(text).fetchall() == con.execute(text).fetchall()


def test_a_condition_below_not_looks_at_a_units_rows_once(
    both: tuple[duckdb.DuckDBPyConnection, dpsql.Session],
) -> None:
    text = "SELECT COUNT(*) FROM t WHERE x NOT IN (SELECT o.x FROM o WHERE o.uid = t.uid)"
    assert str(both[1].explain(text)).count("EXISTS(") == 1
