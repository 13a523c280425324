"""A statement over a wide table costs what the columns that it names cost."""

from __future__ import annotations

import duckdb
import pytest

import dpsql
from dpsql.binding.public_statement import find_named
from dpsql.binding.relations.catalog import WIDE
from dpsql.language.dialect import list_nodes
from dpsql.language.statements import parse
from tests.support.clinic import BUDGET

POLICY = (
    BUDGET
    + """
[tables]
t = { privacy_unit = "uid", max_rows = 2, max_groups = 2, columns = { c2 = { bounds = [0, 5] } } }
pub = { public = true }
"""
)
Wide = tuple[duckdb.DuckDBPyConnection, dpsql.Session]


def opened(count: int) -> Wide:
    con = duckdb.connect()
    columns = ", ".join(f"i % {j + 2} AS c{j}" for j in range(count))
    con.execute(f"CREATE TABLE t AS SELECT i // 2 AS uid, {columns} FROM range(60) r(i)")
    con.execute(f"CREATE TABLE pub AS SELECT i AS uid, {columns} FROM range(9) r(i)")
    return con, dpsql.connect(con, policy=dpsql.Policy.loads(POLICY))


@pytest.fixture(scope="module")
def wide() -> Wide:
    return opened(400)


@pytest.fixture(scope="module")
def narrow() -> dpsql.Session:
    return opened(WIDE - 1)[1]


STATEMENTS = [
    "SELECT COUNT(*) FROM t",
    "SELECT COUNT(*) FROM (SELECT * FROM t) WHERE c3 = 1",
    "SELECT SUM(c2), COUNT(DISTINCT UID) FROM (SELECT * EXCLUDE (c4) FROM t WHERE C4 = 1) AS x WHERE x.C3 = 1",
    "WITH x AS (SELECT * FROM t) SELECT AVG(s) FROM (SELECT uid, SUM(c2) AS s FROM x GROUP BY uid)",
    "SELECT COUNT(*) FROM t AS a JOIN t AS b USING (uid) WHERE b.c3 = 1",
    "SELECT COUNT(*) FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY uid ORDER BY c3) AS r FROM t) WHERE r = 1",
    "SELECT COUNT(*) FROM (SELECT * REPLACE (c3 + 1 AS c3) FROM t) WHERE c3 = 2",
    "SELECT COUNT(*) FROM t JOIN pub USING (uid) WHERE pub.c8 = 1",
    "SELECT COUNT(*) FROM t WHERE EXISTS (SELECT * FROM pub WHERE pub.uid = t.uid AND pub.c5 = 1)",
]  # fmt: skip


@pytest.mark.parametrize("text", STATEMENTS)
def test_answers_are_those_of_a_narrow_table_and_so_is_the_exact_sql(
    wide: Wide, narrow: dpsql.Session, text: str
) -> None:
    con, session = wide
    plain = sorted(con.execute(text).fetchall())
    assert [tuple(map(float, row)) for row in sorted(session.sql(text).fetchall())] == [
        tuple(pytest.approx(float(value), abs=0.01) for value in row) for row in plain
    ]
    assert len(session.explain(text).sql[0]) <= len(narrow.explain(text).sql[0])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM (SELECT DISTINCT * FROM t)",
        "SELECT COUNT(*) FROM (SELECT * FROM t UNION ALL SELECT * FROM t)",
        "SELECT COUNT(*) FROM (SELECT * FROM t) AS x(a, b)",
        "SELECT COUNT(*) FROM t NATURAL JOIN pub",
        "SELECT COUNT(*) FROM (SELECT COLUMNS('c1.*') FROM t)",
        "SELECT * FROM t PIVOT (COUNT(*) FOR c1 IN (0, 1) GROUP BY c2)",
        "SELECT * FROM (SELECT * FROM t) GROUP BY ALL",
    ],
)
def test_columns_that_are_read_by_place_or_pattern_are_kept(text: str) -> None:
    (statement,) = parse(text)
    assert statement.tree is not None
    assert find_named(list_nodes(statement.tree)) is None


def test_a_misspelt_column_is_compared_with_all(wide: Wide) -> None:
    with pytest.raises(dpsql.BindError, match="there is no column c334x") as caught:
        wide[1].sql("SELECT COUNT(c334x) FROM t")
    assert caught.value.hint == "did you mean c334?"


def test_the_copy_of_the_schema_has_the_columns_that_were_named(wide: Wide) -> None:
    session = opened(101)[1]
    for name in ("c7", "c100", "c7"):
        assert session.sql(f"SELECT COUNT(*) FROM t WHERE {name} >= 0").fetchall() == [(60,)]
