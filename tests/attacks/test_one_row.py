"""Work that one row can make the engine do is bounded by public numbers: lengths of texts, and steps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import duckdb
import pytest

import dpsql
from dpsql.binding.values import declared_values, total_expressions
from dpsql.binding.values.row_functions import ROW_FUNCTIONS, RowFunction
from dpsql.binding.values.sql_types import Typed
from dpsql.binding.values.total_expressions import make_total
from dpsql.errors import Error, PrivacyError
from dpsql.language.dialect import to_sql
from dpsql.language.statements import parse
from tests.support.fixtures import open_session
from tests.support.one_row import Composer, Row, worst

SHORT = 40
POLICY = """
budget = { epsilon = 1e6, delta = 1e-3, accountant = "basic", default_epsilon = 1 }
[tables]
visits = { privacy_unit = "patient_id", max_rows_per_group = 3, max_groups = 2 }
"""
ALARM = 4242
LETTERS = "k" * 25_000


def bound(text: str, row: Row | None = None) -> Typed:
    [statement] = parse(f"SELECT {text}")
    return make_total(statement.tree.expressions[0].unalias(), row or Row())


@pytest.fixture(scope="module")
def rows() -> Iterator[duckdb.DuckDBPyConnection]:
    """Rows at the public length, and beyond it by one."""
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE t (s VARCHAR, s2 VARCHAR, li VARCHAR[], q BOOLEAN, n INTEGER, ts TIMESTAMP)"
        )
        for text in [*worst(SHORT), *worst(SHORT + 1), "", "a"]:
            con.execute(
                "INSERT INTO t VALUES ($1, reverse($1), [$1, $1], TRUE, -2147483648, '290309-12-22 (BC) 00:00:00'), "
                "($1, $1, NULL, FALSE, NULL, '294247-01-10 04:00:54.775806')",
                [text],
            )
        yield con


def lie(con: duckdb.DuckDBPyConnection, seeds: range) -> tuple[list[str], int]:
    """The compositions that some row makes longer than their public bound, and how many were looked at."""
    wrong, tried = [], 0
    for seed in seeds:
        text = Composer(seed).text(4)
        try:
            typed = bound(text, Row(SHORT))
        except PrivacyError as error:
            assert "could" in str(error), text
            continue
        tried += 1
        typed = declared_values.hold(typed)
        query = f"SELECT coalesce(max(length(v)), 0) FROM (SELECT {to_sql(typed.node)} AS v FROM t)"
        longest = con.execute(query).fetchall()[0][0]
        if longest > declared_values.length_of(typed):
            wrong.append(text)
    return wrong, tried


def test_no_composition_is_longer_than_its_public_bound(rows: duckdb.DuckDBPyConnection) -> None:
    wrong, tried = lie(rows, range(250))
    assert not wrong
    assert tried > 160


_LITERALS = {"TEXT": ("''", "'a'", "'😀xyz'"), "INTEGER": ("0", "-1", "5", "100")}
_ODD_LETTERS = [
    chr(code) * SHORT for code in (0xDF, 0x130, 0x149, 0x390, 0x3B0, 0x1E9E, 0x1F82, 0xFB03, 0xFDFA, 0x10400)
]


def texts_of(function: RowFunction) -> Iterator[str]:
    """Yield calls of a function of texts: of the column, with several literals where it takes some."""
    places = [
        _LITERALS[kinds[0]] if place in function.literal else ("s",)
        for place, kinds in enumerate(function.arguments)
        if place
    ]
    for given in range(len(places) - function.optional, len(places) + 1):
        for rest in product(*places[:given]):
            yield f"{function.row.name}({', '.join(('s', *rest))})"


def test_each_function_s_result_is_at_most_as_long_as_its_public_bound() -> None:
    """Every function that returns a text, so that a new one with a false bound is found."""
    wrong, tried = [], set()
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (s VARCHAR)")
        con.executemany("INSERT INTO t VALUES (?)", [[text] for text in (*worst(SHORT), *_ODD_LETTERS)])
        for function in (one for one in ROW_FUNCTIONS.values() if one.result.kind == "TEXT"):
            for text in texts_of(function):
                try:
                    typed = declared_values.hold(bound(text, Row(SHORT)))
                except Error:
                    continue
                tried.add(function.row.name)
                query = f"SELECT coalesce(max(length({to_sql(typed.node)})), 0) FROM t"
                if con.execute(query).fetchall()[0][0] > declared_values.length_of(typed):
                    wrong.append(text)
    assert not wrong
    assert len(tried) > 12


def test_without_the_check_of_columns_some_are_longer(
    rows: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declared_values, "_checked", lambda node, kind, length: node)
    wrong, _ = lie(rows, range(300))
    assert wrong


@pytest.mark.parametrize(
    "text", ["replace(s, 'a', 'bb')", "s || ''", "lower(s)", "regexp_replace(s, 'a', 'b')", "concat(s)"]
)
def test_a_longer_value_is_null_for_a_function(rows: duckdb.DuckDBPyConnection, text: str) -> None:
    made = to_sql(bound(text, Row(SHORT)).node)
    cases = rows.execute(f"SELECT length(s) > {SHORT}, coalesce({made}, '') = '', s = '' FROM t").fetchall()
    assert all(none == (long or empty) for long, none, empty in cases)


@pytest.mark.parametrize(
    "text", ["s", "s = 'a'", "s LIKE '%a%b%'", "s LIKE 'a_b'", "s ILIKE '%a%'", "length(s)", "left(s, 10)", "coalesce(s, s2)",
             "substring(s, 2, 3)", "md5(s)", "s IN ('a', 'b')", "starts_with(s, 'a')", "TRY_CAST(s AS DOUBLE)", "li[1]"],
)  # fmt: skip
def test_what_needs_no_bound_is_not_checked(text: str) -> None:
    assert "strlen" not in to_sql(bound(text).node).lower()


AMPLIFIED = {
    "replace": (
        f"length(replace(replace(CASE WHEN patient_id = {ALARM} THEN 'xxxxxxxx' ELSE '' END, 'x', 'yy{LETTERS}'), "
        f"'y', '{LETTERS}')) > 5"
    ),
    "||": " || ".join(["note"] * 17) + " > 'a'",
    "concat": f"concat({', '.join(['note'] * 17)}) > 'a'",
    "concat_ws": f"concat_ws({', '.join(['note'] * 12)}) > 'a'",
    "regexp_replace": f"regexp_replace(note, 'x', '{'k' * 900}', 'g') > 'a'",
    "regexp_replace with 'g'": "regexp_replace(note, 'a(.*b)?', 'x', 'g') > 'a'",
    "a regular expression": "regexp_matches(note, 'a[ab]{900}c')",
    "nfc_normalize": "nfc_normalize(note) > 'a'",
    "levenshtein": f"levenshtein(note, '{LETTERS}') > 5",
    "LIKE": "note LIKE '%a%a_b'",
    "ILIKE": "note ILIKE '%a%a_b'",
    "GLOB": "note GLOB '*a*a*b'",
    "strip_accents": "strip_accents(" * 16 + "note || note" + ")" * 16 + " > 'a'",
    "lower": " OR ".join(f"lower(note || '{i}') = 'a'" for i in range(150)),
}  # fmt: skip


@pytest.mark.parametrize("name", AMPLIFIED)
def test_amplification_is_refused_with_the_function_s_name(name: str) -> None:
    """Whoever is in the data: the same refusal, with a caret, at no cost."""
    said = []
    for person in (True, False):
        with duckdb.connect() as con:
            con.execute(
                "CREATE TABLE visits AS SELECT r % 100 AS patient_id, 'x' || r AS note FROM range(300) t(r)"
            )
            if person:
                con.execute(f"INSERT INTO visits SELECT {ALARM}, repeat('a', 65536) FROM range(5)")
            with dpsql.connect(con, policy=dpsql.Policy.loads(POLICY)) as session:
                with pytest.raises(PrivacyError) as caught:
                    session.sql(f"SELECT WITH DP COUNT(*) FROM visits WHERE {AMPLIFIED[name]}")
                assert session.budget().spent_epsilon == 0
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert f"{name} could" in said[0] or f"with {name}," in said[0]
    assert "LEFT first" in said[0]


REMEDIES = (
    "length(replace(LEFT(note, 1000), 'x', 'yyyyy')) > 5", "note LIKE '%a%b%c'", "note ILIKE '%a%b%'", "note LIKE '%a_b'",
    "LEFT(note, 1000) LIKE '%a%a_b'", "nfc_normalize(LEFT(note, 1000)) > 'a'", "regexp_replace(note, '[^0-9]+', '', 'g') = '1'",
    "regexp_replace(LEFT(note, 1000), '(a|b)+', '', 'g') = '1'", "note || '-' || note > 'a'", "lower(note) = 'a'",
    "levenshtein(note, 'word') < 3", "contains(note, reverse(note))",
)  # fmt: skip


@pytest.mark.parametrize("condition", REMEDIES)
def test_common_words_and_what_hints_say_are_answered(condition: str) -> None:
    with open_session(
        POLICY,
        "CREATE TABLE visits AS SELECT r % 100 AS patient_id, 'x' || r AS note FROM range(300) t(r)",
        f"INSERT INTO visits SELECT {ALARM}, repeat('a', 65537) FROM range(5)",
    ) as session:
        assert len(session.sql(f"SELECT WITH DP COUNT(*) AS n FROM visits WHERE {condition}").fetchall()) == 1


def test_the_policy_s_max_length_is_read() -> None:
    class Declared:
        max_length = 12

    assert declared_values.column_length(Declared()) == 12
    assert declared_values.column_length(None) == declared_values.DEFAULT_MAX_LENGTH


def test_texts_of_one_statement_are_counted_together() -> None:
    with declared_values.one_statement():
        for i in range(declared_values.MAX_WRITTEN // declared_values.MAX_TEXT):
            bound(" " * i + "concat(" + ", ".join(["s"] * 16) + ")")
            bound(" " * i + "concat(" + ", ".join(["s"] * 16) + ")")  # at the same place: counted once
    with declared_values.one_statement(), pytest.raises(PrivacyError, match="this statement"):
        for i in range(declared_values.MAX_WRITTEN // declared_values.MAX_TEXT + 1):
            bound(" " * i + "concat(" + ", ".join(["s"] * 16) + ")")


PLAIN = (
    "[^0-9]+",
    "\\s+",
    "<[^>]*>",
    "([a-z]+)@([a-z]+)",
    "a.*b",
    "(a)(b)*",
    "a*",
    "a|b",
    "(?:a|b)c",
    "a{3}",
    "(ab)+",
)
AGAIN = ("a(.*b)?", "a(b*c)*", "a.*b|c", "(a|b)+", "(?:a(?:b*c))?", "(a+)+", "x(y{2,}z)?")


def test_patterns_that_read_on_are_told_from_others() -> None:
    assert [p for p in PLAIN if total_expressions._reads_on(p)] == []
    assert [p for p in AGAIN if not total_expressions._reads_on(p)] == []


@pytest.mark.parametrize(
    ("pattern", "size"),
    [("abc", 1), ("a[bc]d", 3), ("a{10}", 10), ("(a{10}b){10}", 110), (".{3}", 15), ("a|b*", 2), ("\\D+", 5)],
)
def test_patterns_have_a_size(pattern: str, size: int) -> None:
    assert total_expressions._size(pattern) == size
