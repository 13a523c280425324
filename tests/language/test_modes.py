"""A mode is read wherever it stands: before its SELECT, behind its clauses, and within its own parentheses only."""

from __future__ import annotations

import pytest

import dpsql
from dpsql.catalogue.aggregate_names import MODES
from dpsql.language.advice import find_mode
from dpsql.language.dialect import mode_clauses, spell_statement
from dpsql.language.statements import parse
from tests.support.fixtures import open_session
from tests.support.policies import budget, table, write_policy


def spelling(text: str) -> str:
    (statement,) = parse(text)
    assert statement.tree is not None
    return spell_statement(statement.tree)


@pytest.mark.parametrize("options", ["", " OPTIONS (epsilon = 1, delta = 1e-6)", " OPTIONS ()"])
@pytest.mark.parametrize("mode", [*MODES, "ptr", "alarm", '"an alarm"'])
def test_every_place_of_a_mode_is_one_statement(mode: str, options: str) -> None:
    clause = f"WITH {mode}{options}"
    if mode.startswith('"'):
        with pytest.raises(dpsql.ParseError):
            parse(f"SELECT {clause} IQR(x) FROM t")  # no threshold can have this name
        return
    meant = spelling(f"SELECT {clause} k, IQR(x) AS q FROM t WHERE x > 0 GROUP BY k ORDER BY q LIMIT 3")
    assert f"'{mode}'" in meant
    for text in (
        f"{clause} SELECT k, IQR(x) AS q FROM t WHERE x > 0 GROUP BY k ORDER BY q LIMIT 3",
        f"SELECT k, IQR(x) AS q {clause} FROM t WHERE x > 0 GROUP BY k ORDER BY q LIMIT 3",
        f"SELECT k, IQR(x) AS q FROM t {clause} WHERE x > 0 GROUP BY k ORDER BY q LIMIT 3",
        f"SELECT k, IQR(x) AS q FROM t WHERE x > 0 {clause} GROUP BY k ORDER BY q LIMIT 3",
        f"SELECT k, IQR(x) AS q FROM t WHERE x > 0 GROUP BY k {clause} ORDER BY q LIMIT 3",
        f"SELECT k, IQR(x) AS q FROM t WHERE x > 0 GROUP BY k ORDER BY q {clause} LIMIT 3",
        f"SELECT k, IQR(x) AS q FROM t WHERE x > 0 GROUP BY k ORDER BY q LIMIT 3 {clause}",
        f"{clause} FROM t SELECT k, IQR(x) AS q WHERE x > 0 GROUP BY k ORDER BY q LIMIT 3",
    ):
        assert spelling(text) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("WITH c AS (WITH PTR SELECT IQR(x) AS q FROM t) SELECT q FROM c",
         "WITH c AS (SELECT WITH PTR IQR(x) AS q FROM t) SELECT q FROM c"),
        ("WITH c AS (SELECT IQR(x) AS q FROM t WITH PTR) SELECT q FROM c WITH DP",
         "WITH c AS (SELECT WITH PTR IQR(x) AS q FROM t) SELECT WITH DP q FROM c"),
        ("WITH c AS (SELECT 1 AS a) WITH PTR SELECT IQR(x) FROM t", "WITH c AS (SELECT 1 AS a) SELECT WITH PTR IQR(x) FROM t"),
        ("WITH PTR WITH c AS (SELECT 1 AS a) SELECT IQR(x) FROM t", "WITH c AS (SELECT 1 AS a) SELECT WITH PTR IQR(x) FROM t"),
        ("SELECT (SELECT IQR(x) FROM t WITH PTR) AS a, (WITH DP SELECT COUNT(*) FROM t) AS b",
         "SELECT (SELECT WITH PTR IQR(x) FROM t) AS a, (SELECT WITH DP COUNT(*) FROM t) AS b"),
        ("SELECT DISTINCT k FROM t WITH DP", "SELECT WITH DP DISTINCT k FROM t"),
        ("(SELECT IQR(x) FROM t WITH PTR) UNION ALL (WITH PTR SELECT IQR(y) FROM t)",
         "(SELECT WITH PTR IQR(x) FROM t) UNION ALL (SELECT WITH PTR IQR(y) FROM t)"),
    ],
)  # fmt: skip
def test_each_query_has_its_own(text: str, meant: str) -> None:
    assert spelling(text) == spelling(meant)


@pytest.mark.parametrize(
    "text",
    [
        "WITH PTR AS (SELECT 1 AS a) SELECT a FROM PTR",
        "WITH dp(a) AS (SELECT 1) SELECT a FROM dp",
        "WITH RECURSIVE dp AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM dp WHERE a < 3) SELECT a FROM dp",
        "SELECT CAST(a AS TIMESTAMP WITH TIME ZONE), b::TIMESTAMP WITH TIME ZONE FROM t",
        "SELECT a FROM t, UNNEST([1]) WITH ORDINALITY",
        "SELECT k, COUNT(*) FROM t GROUP BY k WITH ROLLUP",
        "SELECT 'FROM t WITH PTR' AS a",
    ],
)
def test_every_other_with_is_left_alone(text: str) -> None:
    (statement,) = parse(text)
    assert statement.tree is not None
    assert list(mode_clauses(statement.tree)) == []


INSIDE = "put the mode inside of the parentheses, or behind the first word of the query."


@pytest.mark.parametrize(
    ("text", "says", "caret"),
    [
        ("SELECT a FROM t UNION SELECT b FROM t WITH PTR", "put the mode behind the first word of each of them.", "WITH PTR"),
        ("WITH DP SELECT a FROM t EXCEPT SELECT b FROM t", "put the mode behind the first word of each of them.", "WITH DP"),
        ("SELECT WITH DP a FROM t WITH PTR", "this SELECT has two modes.", "WITH PTR"),
        ("WITH PTR SELECT a FROM t WITH SUBSAMPLE", "this SELECT has two modes.", "WITH SUBSAMPLE"),
        ("(SELECT IQR(x) FROM t) WITH PTR", INSIDE, "WITH PTR"),
        ("WITH PTR (SELECT IQR(x) FROM t)", INSIDE, "WITH PTR"),
        ("WITH SUBSAMPLE FROM t", INSIDE, "WITH SUBSAMPLE"),
        ("SELECT ptr IQR(x) FROM t", "write SELECT WITH PTR instead of SELECT ptr.", None),
        ("SELECT SUBSAMPLE CORR(x, y) FROM t", "write SELECT WITH SUBSAMPLE instead of SELECT SUBSAMPLE.", None),
        ("SELECT IQR(x) FROM t WITH PTR JOIN u USING (a)", "put the mode PTR behind the first word of its query.", None),
        ("SELECT IQR(x) FROM t WITH PTR OPTIONS (epsilon => 1)", "options are written name = value.", "=>"),
        ("SELECT WITH PTR IQR(x) FROM t OPTIONS (epsilon = 1)",
         "put the options behind the mode, which stands after the first word of the query.", None),
        ("SELECT WITH IQR(x) FROM t", "write WITH PTR before IQR.", "IQR"),
        ("SELECT WITH AVG(x) FROM t", "leave WITH out.", "AVG"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_told_with_the_mode_that_was_written(
    text: str, says: str, caret: str | None
) -> None:
    with pytest.raises(dpsql.Error) as refused:
        parse(text)
    assert says in str(refused.value)
    if caret is not None:
        assert refused.value.span is not None
        assert text[slice(*refused.value.span)] == caret


def test_the_mode_of_a_text() -> None:
    assert find_mode("select with ptr iqr(x)") == "PTR"
    assert find_mode("WITH SUBSAMPLE SELECT 1") == "SUBSAMPLE"
    assert find_mode("SELECT 1") == "DP"


BARE = write_policy(budget(10, accountant=None), t=table("ROW"))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT {}{mode} IQR(x) FROM t", "{}{mode} SELECT IQR(x) FROM t", "SELECT IQR(x) FROM t {}{mode}",
        "SELECT q FROM (SELECT IQR(x) AS q FROM t {}{mode})",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["PTR", "SUBSAMPLE"])
def test_what_the_binder_asks_for_names_the_mode(text: str, mode: str) -> None:
    text = text.format("WITH ", mode=mode).replace("IQR", "CORR" if mode == "SUBSAMPLE" else "IQR")
    text = text.replace("CORR(x)", "CORR(x, x)")
    with open_session(BARE, "CREATE TABLE t AS SELECT i::DOUBLE AS x FROM range(100) AS r(i)") as session:
        with pytest.raises(dpsql.PrivacyError, match=f"write WITH {mode} OPTIONS") as refused:
            session.sql(text)
        assert refused.value.span is not None
        assert text[slice(*refused.value.span)] == mode
