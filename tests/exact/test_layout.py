"""Exact SQL as EXPLAIN shows it: short to read, and the same query."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pytest

import dpsql
from dpsql.exact.normal_form import MAX_LINE_WIDTH, format_sql
from dpsql.language.statements import parse
from dpsql.mechanisms.base import SALT
from tests.support import inside
from tests.support.corpora import CORPORA, POLICY, cases


@pytest.fixture(scope="module")
def session() -> Iterator[dpsql.Session]:
    with duckdb.connect() as con:
        con.execute((CORPORA / "schema.sql").read_text())
        with dpsql.connect(con, policy=POLICY) as session:
            yield session


def test_what_is_shown_is_what_is_run(session: dpsql.Session) -> None:
    """Every exact query of the corpora, as it is and as it is shown, on the same rows under one salt."""
    run = shown = changed = 0
    for case in cases("plan"):
        if case.keys.get("policy", "usual") != "usual":
            continue
        (statement,) = parse(case.text, case.params)
        plan = inside.bind(session, statement)
        for block in plan.blocks:
            if block.operator.provides or any("dpsql_block" in i.sql for i in block.inputs):
                continue  # it reads what is only there while it runs
            lent = {i.name: inside.finisher(session).finish(i.sql, {}, plan.public) for i in block.inputs}
            for query in block.operator.queries:
                if "__dpsql" in query.replace(SALT, ""):
                    continue
                filled = query.replace(SALT, "4711")
                first = inside.engine(session).execute(filled, lent)
                second = inside.engine(session).execute(format_sql(filled), lent)
                assert first.column_names == second.column_names
                assert sorted(map(repr, first.to_pylist())) == sorted(map(repr, second.to_pylist())), query
                run += 1
                shown += first.num_rows > 0
                changed += format_sql(filled) != filled
    assert run > 40
    assert shown > run // 2
    assert changed == run


def test_only_the_columns_that_are_asked_for(session: dpsql.Session) -> None:
    (query,) = session.explain("SELECT SUM(amount) FROM visits WHERE ward = 'A'").sql
    text = format_sql(query)
    inner = text[: text.index(" AS dpsql_unit")].replace(",", "").split()
    assert {"r3.ward", "r3.amount"} <= set(inner)
    assert "note" not in text
    assert "patient_id AS dpsql_unit" in text
    assert ".*" not in text
    assert '"' not in text
    assert all(len(line) <= MAX_LINE_WIDTH + 40 for line in text.splitlines())


@pytest.mark.parametrize(
    "sql",
    [
        'SELECT "a b", "select", "ünder", "x" FROM "Order" AS "t"',
        "SELECT 'line one\nline two (' AS s, 'it''s' AS q FROM t",
        "SELECT t.*, b.x FROM (SELECT b.* FROM t AS b) AS t JOIN b ON t.x = b.x",
        "SELECT COUNT(*) FROM (SELECT b.*, b.u AS dpsql_unit FROM t AS b) AS v",
    ],
)
def test_names_strings_and_stars_stay(sql: str) -> None:
    """DuckDB reads the same from both."""
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS x, 2 AS u; CREATE TABLE b AS SELECT 1 AS x")
        con.execute('CREATE TABLE "Order" AS SELECT 1 AS "a b", 2 AS "select", 3 AS "ünder", 4 AS x')
        assert con.execute(sql).fetchall() == con.execute(format_sql(sql)).fetchall()


def test_text_that_nobody_can_read_is_shown_as_it_is() -> None:
    assert format_sql("SELECT FROM WHERE (") == "SELECT FROM WHERE ("


def test_names_that_are_reserved_are_known() -> None:
    """The list of words that need quotes is DuckDB's own."""
    from dpsql.exact.normal_form import _RESERVED

    asked = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    assert {row[0] for row in duckdb.sql(asked).fetchall()} <= _RESERVED


@pytest.mark.parametrize(
    "condition",
    [
        "a AND (b OR c)",
        "(a OR b) AND c",
        "NOT (a OR b) AND c",
        "(a + b) * c > -(a - b)",
        "(u = 1) AND (k IS NULL OR k BETWEEN 0 AND 3)",
        "((a OR b)) AND (((c)))",
    ],
)
def test_what_is_shown_means_what_is_run(condition: str) -> None:
    plain = f"SELECT x FROM t WHERE ({condition})"
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (x INT, a INT, b INT, c INT, u INT, k INT)")
        asked = [
            con.execute("SELECT json_serialize_sql($q)", {"q": q}).fetchall()
            for q in (plain, format_sql(plain))
        ]
    found = [re.sub(r'"query_location(_length)?":\d+', "", rows[0][0]) for rows in asked]
    assert found[0] == found[1]
