"""The mode clause and named arguments on the token stream; nothing of sqlglot is subclassed."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from sqlglot import exp
from sqlglot.tokens import TokenType

import dpsql
from dpsql.errors import BindError
from dpsql.language.dialect import (
    copy_tree,
    mode_clauses,
    name_called,
    parse_tokens,
    span_of,
    to_sql,
    write_column,
)
from dpsql.language.statements import parse
from dpsql.language.tokens import tokenize

READERS = {"language", "binding", "exact", "spark", "lock", "pg_catalog.py"}
"""The folders that import sqlglot."""


def read(text: str) -> exp.Expression:
    return parse_tokens(tokenize(text), text)


def test_a_select_with_a_mode_is_never_written_for_an_engine() -> None:
    tree = read("SELECT WITH DP OPTIONS (epsilon = 0.5) COUNT(*) FROM t")
    (clause,) = mode_clauses(tree)
    assert clause.name == "DP"
    assert [option.sql() for option in clause.options] == ["epsilon = 0.5"]
    assert [item.sql() for item in tree.expressions] == ["COUNT(*)"]
    for query in (tree, tree.copy(), exp.select("*").from_(tree.copy().subquery("s"))):
        with pytest.raises(BindError, match="private SELECT"):
            to_sql(query)


def test_words_that_begin_other_statements_name_columns_as_in_duckdb() -> None:
    for word in ("Alter", "drop", "force", "grant", "insert", "install", "revoke", "rollback"):
        query = f"SELECT {word}, AVG({word}) AS a FROM t WHERE {word} > 60 AND t.{word} < 70 GROUP BY {word}"
        written = to_sql(read(query))
        con = duckdb.connect()
        con.execute(f'CREATE TABLE t AS SELECT 65 AS "{word}"')
        assert con.execute(written).fetchall() == con.execute(query).fetchall() == [(65, 65.0)]


def test_what_looks_like_our_own_words_is_no_mode() -> None:
    tree = read("SELECT dpsql__mode('DP', epsilon = 0.5), COUNT(*) FROM t")
    assert not list(mode_clauses(tree))
    with pytest.raises(duckdb.Error, match="dpsql__mode"):
        duckdb.sql(to_sql(tree).replace("FROM t", "FROM range(3) AS t"))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT WITH DP COUNT(*) FROM t",
        "SELECT WITH DP OPTIONS () COUNT(*) FROM t",
        "SELECT WITH differential_privacy OPTIONS (epsilon = 1e-3, delta=.5) a, COUNT(*) FROM t GROUP BY a",
        "SELECT a FROM (SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS a FROM t) AS s",
        "WITH c AS (SELECT WITH PTR IQR(x) FROM t) SELECT * FROM c UNION ALL SELECT WITH DP COUNT(*) FROM t",
    ],
)
def test_modes_stand_at_any_depth(text: str) -> None:
    assert len(list(mode_clauses(read(text)))) == text.count("SELECT WITH")


def test_named_arguments_survive_known_functions() -> None:
    tree = read("SELECT AVG(x, contribution_bounds_per_row => (0, 1), epsilon => 0.1) + SUM(y) FROM t")
    call = next(call for call in tree.find_all(exp.Anonymous))
    assert call.name == "dpsql__avg"
    assert [a.this.name for a in call.expressions[1:]] == ["contribution_bounds_per_row", "epsilon"]
    assert tree.find(exp.Sum) is not None, "a call without named arguments stays what it is"


CALLS = [
    "chr(x)", "initcap(arg_max(x, y))", "string_agg(x, ',')", "max_by(x::INT, y)", "map(x, y)", "overlay(x, 1, 2)",
    "json_object('a', x)", "approx_quantile(x, 0.5)", "chr((x + 1)::INT)",
]  # fmt: skip


@pytest.mark.parametrize(
    "part", [*CALLS, "AVG(x)", "SUM(a, epsilon => 0.1)", "COUNT(DISTINCT unit)", "vislts"]
)
def test_spans_cover_whole_calls(part: str) -> None:
    text = f"SELECT WITH DP OPTIONS (epsilon = 1)\n  1,\n  {part} -- the part\nFROM t"
    item = read(text).expressions[1]
    span = span_of(item)
    assert span is not None
    assert text[slice(*span)] == part
    if part in CALLS:
        assert name_called(item) == part.partition("(")[0]


@pytest.mark.parametrize("part", ["x ^@ 'a'", "x::INT", "x AND y", "x COLLATE nocase", "[x]"])
def test_spans_of_operators_leave_out_the_call_around_them(part: str) -> None:
    text = f"SELECT foo({part}), (({part})) FROM t"
    for item in read(text).expressions:
        inner = item.expressions[0] if isinstance(item, exp.Anonymous) else item.unnest()
        span = span_of(inner)
        assert span is not None
        assert "(" not in text[slice(*span)]


@pytest.mark.parametrize(
    ("text", "under"),
    [
        ("SELECT {{name}} FROM t", "{{name}}"),
        ("SELECT WITH", "WITH"),
        ("SELECT a FROM t WHERE b = :name", ":name"),
        ("SELECT a FROM t WHERE b = ?", "?"),
        ("SELECT 'abc", ""),
        ("SELECT /* abc", ""),
        ("SELECT a FROM t WHERE", ""),
        ("SELECT " + "(" * 41 + "1" + ")" * 41, ""),
        ("SELECT 1" + " " * 70000, ""),
    ],
)
def test_what_is_not_sql_is_a_parse_error(text: str, under: str) -> None:
    with pytest.raises(dpsql.ParseError) as caught:
        read(text)
    if under and caught.value.span is not None:
        assert under in text[slice(*caught.value.span)] or text[slice(*caught.value.span)] in under


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT f($a,$b), g($a,$c)", "abac"),
        ("SELECT $1,$2,$3", "123"),
        ("SELECT x$y$z, $a+$b", "ab"),
        (r"SELECT E'it\'s $c,$d', '\', $a*$b -- $e,$f", "ab"),
        ("SELECT $$ $c,$d $$, $t$ $c,$d $t$, $a,$b", "ab"),
        ("EXPLAIN SELECT $a,$b, '$c,$d'", "ab"),
    ],
)
def test_signs_of_parameters_open_no_string(text: str, names: str) -> None:
    """A string between ``$tag$`` has a tag that is a name: ``a,`` is none."""
    tokens = tokenize(text)
    found = [after.text for sign, after in pairwise(tokens) if sign.token_type == TokenType.PARAMETER]
    assert found == list(names)


def test_long_chains_are_not_deep() -> None:
    read("SELECT COUNT(*) FROM t WHERE " + " OR ".join(f"a = {i}" for i in range(2000)))


def test_sqlglot_is_neither_subclassed_nor_imported_elsewhere() -> None:
    """Subclasses of its Parser, Generator or Expression fail at run time with the compiled extension."""
    package = Path(dpsql.__file__).parent
    for path in (found.relative_to(package) for found in package.rglob("*.py")):
        tree = ast.parse((package / path).read_text())
        names = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        names += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        if any(name.split(".")[0] == "sqlglot" for name in names):
            assert READERS & set(path.parts), path
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and READERS & set(path.parts):
                assert not any(
                    "exp." in ast.unparse(base) or "Parser" in ast.unparse(base) for base in node.bases
                ), path


WORDS = ("current_date", "CURRENT_TIME", "current_timestamp", "localtime", "localtimestamp", "current_user", "session_user",
         "current_catalog", "today()", "now()", "current_localtimestamp()", "localtimestamp(3)")  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("before", ["", "'{}' < ", '"{}" < ', "today() < "])
def test_a_word_that_is_a_call_has_its_place(word: str, before: str) -> None:
    """Also behind a text or a name of the same letters, and behind another such call."""
    text = f"SELECT x FROM t WHERE {before.format(word)}{word}"
    (statement,) = parse(text)
    where = statement.tree.args["where"].this
    start, end = span_of(where.expression if before else where) or (0, 0)
    assert text[start:end] == word


@pytest.mark.parametrize(
    "name", ["a", "_b1", "Total", "select", "order", "a b", 'a"b', "é", "1a", "count", "group", "x.y", ""]
)
@pytest.mark.parametrize("quoted", [True, False])
@pytest.mark.parametrize("table", [None, "t", "From"])
def test_a_column_is_written_as_the_generator_writes_it(name: str, quoted: bool, table: str | None) -> None:
    node = exp.column(exp.to_identifier(name, quoted=quoted), table=table)
    found = write_column(node)
    assert found is None or found == node.sql(dialect="duckdb")
    assert found is not None or not quoted or table == "From"


def test_a_copy_has_positions_and_nothing_of_the_original() -> None:
    tree = read(
        "SELECT WITH DP OPTIONS (epsilon = 1) k, SUM(x + LOG2(y)) AS s FROM t WHERE k IN (1, 2) GROUP BY k"
    )
    made = copy_tree(tree)
    assert made == tree
    pairs = list(zip(made.walk(), tree.walk(), strict=True))
    assert all(one is not other and one.meta == other.meta for one, other in pairs)
    assert not any(one.meta is other.meta for one, other in pairs if other.meta)
    assert all(one.parent is None or one.root() is made for one, _ in pairs)
    assert repr(made) == repr(tree.copy())
