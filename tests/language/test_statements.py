"""Statements of a cell, and parameters."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pytest
from sqlglot import exp

import dpsql
from dpsql.language.dialect import to_sql
from dpsql.language.parameters import make_literal
from dpsql.language.statements import parse


def test_a_cell_holds_statements_with_their_places() -> None:
    text = (
        "SELECT 1; -- one\n;;\n SHOW BUDGET;EXPLAIN (FORMAT JSON) SELECT WITH DP COUNT(*) FROM t; CLOSE alarm"
    )
    found = parse(text)
    assert [s.kind for s in found] == ["query", "show", "explain", "close"]
    assert [s.source for s in found] == [
        "SELECT 1", "SHOW BUDGET", "EXPLAIN (FORMAT JSON) SELECT WITH DP COUNT(*) FROM t", "CLOSE alarm",
    ]  # fmt: skip
    assert found[2].json
    assert found[1].name == "BUDGET"
    assert found[3].name == "alarm"
    assert parse("") == []
    assert parse(" ;; -- nothing\n") == []


def test_equal_statements_have_one_spelling() -> None:
    trees = [
        parse(text)[0].tree
        for text in ("select  a, count(*) from t -- c\n where b=1", "SELECT a, COUNT(*) FROM t WHERE b = 1")
    ]
    assert len({to_sql(tree) for tree in trees if tree is not None}) == 1
    other = parse("SELECT a, COUNT(*) FROM t WHERE b = 2")[0].tree
    assert other is not None
    assert to_sql(other) != to_sql(trees[0])


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (1, "1"), (-1, "-1"), (1.5, "1.5"), (-0.25, "-0.25"), (True, "TRUE"), (None, "NULL"), ("it's",
        "'it''s'"),
        (decimal.Decimal("1.10"), "1.10"), (datetime.date(2024, 2, 29), "CAST('2024-02-29' AS DATE)"),
        (datetime.datetime(2024, 3, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
         "CAST('2024-02-29 23:00:00+00' AS TIMESTAMP)"),
        (np.int64(7), "7"), (np.float64(2.5), "2.5"), (np.bool_(True), "TRUE"),
        ([1, None, "a"], "[1, NULL, 'a']"), ((), "[]"), (np.array([1, 2]), "[1, 2]"),
    ],
)  # fmt: skip
def test_values_become_literals(value: Any, sql: str) -> None:
    assert to_sql(make_literal(value)) == sql
    tree = parse("SELECT a FROM t WHERE b = $value", {"value": value})[0].tree
    assert tree.find(exp.Placeholder, exp.Parameter) is None
    assert sql in to_sql(tree)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), [[1]], [object()], {"a": 1}, object(), np.array([[1]]), [0] * 10_001],
)
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(dpsql.BindError) as caught:
        parse("SELECT a FROM t WHERE b = $value", {"value": value})
    assert caught.value.span is not None


@pytest.mark.parametrize(
    "text",
    ["COPY t TO 'x'", "ATTACH 'x'", "PRAGMA x", "SET x = 1", "INSERT INTO t SELECT 1", "DROP TABLE t",
    "DESCRIBE t u", "SUMMARIZE", "CREATE TABLE t AS", "VACUUM",
     "SHOW ME", "SHOW BUDGET NOW", "CLOSE", "DECLARE", "DECLARE a EXPMECH 1", "EXPLAIN",
     "EXPLAIN SHOW BUDGET", "nonsense",
     "EXPLAIN ANALYZE SELECT 1", "EXPLAIN (FORMAT XML) SELECT 1", "LOAD x", "BEGIN", "CALL f()",
     "SELECT 1 SELECT 2"],
)  # fmt: skip
def test_other_statements_are_refused(text: str) -> None:
    with pytest.raises(dpsql.ParseError) as caught:
        parse(text)
    assert caught.value.text or caught.value.span is None


def test_cursors_are_told_to_ask_the_select() -> None:
    with pytest.raises(dpsql.ParseError) as caught:
        parse("DECLARE c NO SCROLL CURSOR FOR SELECT 1")
    assert "without a cursor" in str(caught.value.hint)
