"""Total expressions over the nastiest table there is, in whichever DuckDB is installed.

Nothing may raise: not while the engine runs, and not while it plans with a column's statistics. Values and types are
those of plain DuckDB wherever plain DuckDB raises nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.catalogue.row_names import NOT_LISTED, ROW_NAMES, ROW_OF_NAME, ROW_WORDS, TOTALITY
from dpsql.errors import Error
from dpsql.language.dialect import to_sql
from tests.support.nasty import COMPARED, EXPRESSIONS, ROWS, bound, fill

SOME_ROWS = (1, 3, 5, 6, 8, 13, 30)
"""Rows compared one by one where plain DuckDB raises on the whole table."""


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        fill(made)
        yield made


@pytest.fixture(scope="module")
def plain(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """The same tables, where nothing that would raise is optimised away: what DuckDB really says of an expression."""
    made = con.cursor()
    made.execute("PRAGMA disable_optimizer")
    return made


def same(ours: str | None, theirs: str | None) -> bool:
    """Equal as text, or as numbers of different types."""
    if ours == theirs:
        return True
    try:
        return ours is not None and theirs is not None and Decimal(ours) == Decimal(theirs)
    except InvalidOperation:
        return False


def column(con: duckdb.DuckDBPyConnection, sql: str, table: str) -> list[str | None] | None:
    try:
        return [
            row[0]
            for row in con.execute(f"SELECT CAST(({sql}) AS VARCHAR) FROM {table} ORDER BY id").fetchall()
        ]
    except duckdb.Error:
        return None


@pytest.mark.parametrize("start", range(0, len(EXPRESSIONS), 40))
def test_nothing_raises_whatever_the_data_and_their_statistics(
    con: duckdb.DuckDBPyConnection, start: int
) -> None:
    made = [(text, to_sql(bound(text).node)) for text in EXPRESSIONS[start : start + 40]]
    listed = ", ".join(f"({sql}) AS c{i}" for i, (_, sql) in enumerate(made))
    for table in ("t", "(SELECT * FROM t WHERE FALSE)", *(f"t{i}" for i in range(ROWS))):
        try:
            con.execute(f"CREATE OR REPLACE TEMP TABLE made AS SELECT {listed} FROM {table}")
        except duckdb.Error:
            for text, sql in made:
                con.execute(f"CREATE OR REPLACE TEMP TABLE made AS SELECT {sql} AS {'c'} FROM {table}")
                assert text


def test_what_is_shared_between_expressions_stays_total(con: duckdb.DuckDBPyConnection) -> None:
    """DuckDB computes once what stands in two places, and takes it out of the TRY that it stood in."""
    older = tuple(map(int, duckdb.__version__.split(".")[:3])) < (2, 0, 1)  # which leaves it in there
    assert shared_raises(con, "TRY(h + TRY(h + y)), TRY(h - y)") or not older, (
        "so TRY around more than one operation is not enough"
    )
    listed = [f"({to_sql(bound(text).node)}) AS c{i}" for i, text in enumerate(EXPRESSIONS)]
    assert not shared_raises(con, ", ".join(listed))
    twice = [f"i + (({a}) - ({b}))" for a in NUMERIC for b in NUMERIC]
    made = [to_sql(bound(text).node) for text in (*twice, *NUMERIC)]
    assert not shared_raises(con, ", ".join(f"({sql}) AS c{i}" for i, sql in enumerate(made)))


NUMERIC = [
    "h + y",
    "h * y",
    "x + z",
    "z * z",
    "h + h",
    "b * b",
    "u + u",
    "h - x",
    "w * w",
    "i * z",
    "h % y",
    "x // y",
    "f + h",
]


def shared_raises(con: duckdb.DuckDBPyConnection, listed: str) -> bool:
    try:
        con.execute(f"SELECT {listed} FROM t").fetchall()
    except duckdb.Error:
        return True
    except (OverflowError, ValueError):  # Python has no such date
        return False
    return False


@pytest.mark.parametrize("text", COMPARED)
def test_values_are_those_of_plain_duckdb(con: duckdb.DuckDBPyConnection, text: str) -> None:
    typed = bound(text)
    sql = to_sql(typed.node)
    theirs = column(con, text, "t")
    tables = ["t"] if theirs is not None else [f"t{i}" for i in SOME_ROWS]
    for table in tables:
        theirs = column(con, text, table)
        if theirs is None:  # plain DuckDB raises on this row
            continue
        ours = column(con, sql, table)
        assert ours is not None
        assert all(map(same, ours, theirs)), f"{sql} on {table}: {ours} is not {theirs}"


@pytest.mark.parametrize("text", COMPARED)
def test_types_are_known(con: duckdb.DuckDBPyConnection, text: str) -> None:
    typed = bound(text)
    others = ("z+z", "bit_count(u)", ".5", "s->'$.a'")  # the last is JSON, which is text here
    if typed.type.kind in ("NULL", "LIST", "STRUCT") or text in others or "null" in text.lower():
        return  # the first two have another width in each version; sqlglot writes .5 as 0.5
    ours, theirs = (
        con.execute(f"DESCRIBE SELECT {sql} AS v FROM t").fetchall()[0][1]
        for sql in (to_sql(typed.node), text)
    )
    assert ours == typed.type.sql
    assert theirs == typed.shown.sql or typed.type.kind == "TIMESTAMP"


def test_every_function_on_the_list_is_tried() -> None:
    tried = " ".join(EXPRESSIONS).lower()
    for row in ROW_NAMES:
        if row.signature or row.unit:
            assert f"{row.name}(" in tried, row.name
    assert not ROW_WORDS & NOT_LISTED.keys()
    assert len(ROW_OF_NAME) == len(ROW_NAMES), "a function has two rows"
    assert {row.total for row in ROW_NAMES if row.total in TOTALITY or row.signature} == TOTALITY.keys()
    assert all(len(why) > 15 for why in TOTALITY.values())


@pytest.mark.parametrize("text", sorted(NOT_LISTED))
def test_missing_functions_say_why(text: str) -> None:
    with pytest.raises(Error):
        bound(f"{text}(i)")
    assert NOT_LISTED[text]


REFUSED = [
    ("s ~ 'a'", "version"), ("uh > i", "UHUGEINT"), ("s LIKE s2", "literal"), ("regexp_matches(s, s2)", "literal"),
    ("regexp_matches(s, '(')", "character|expression"), ("regexp_matches(s, '(?=a)')", "character"),
    ("regexp_matches(s, '(a)\\1')", "character"), ("regexp_matches(s, 'a*+')", "character"),
    ("regexp_matches(s, '[a--b]')", "character"), ("regexp_matches(s, '[[:nope:]]')", "character"),
    ("regexp_matches(s, 'a{2000}')", "repeats"), ("regexp_matches(s, '((a{500}){500})')", "repeats"),
    ("regexp_matches(s, 'a', 'z')", "flags"), ("regexp_replace(s, 'a', '\\1')", "group"),
    ("regexp_extract(s, 'a', 1)", "groups"), ("s LIKE 'a$' ESCAPE '$'", "escape"),
    ("s LIKE 'a$b' ESCAPE '$'", "escape"), ("s LIKE 'a' ESCAPE ''", "escape"), ("i = s", "compar"),
    ("CASE WHEN p THEN s ELSE i END", "combines"), ("COALESCE(s, 5)", "combines"),
    ("GREATEST(s, 5)", "combines"), ("NULLIF(s, 5)", "combines"), ("i + s", "numbers"), ("s + 1", "numbers"),
    ("p + 1", "numbers"), ("i AND p", "condition"), ("CAST('x' AS INTEGER)", "valid INTEGER"),
    ("'2020-02-30'::DATE", "valid DATE"), ("dt = 'yesterday'", "valid DATE"),
    ("300::TINYINT + '1e400'::DOUBLE", "valid DOUBLE"), ("1e400", "large"),
    ("s::JSON", "cast"),
    ("s::BLOB", "cast"), ("s::BIT", "cast"), ("s::BIGNUM", "cast"), ("s::INTEGER[]", "cast"), ("i::DATE", "cast"),
    ("s::INTERVAL", "cast"), ("s::TIMESTAMPTZ", "cast"), ("l::VARCHAR", "cast"), ("i::DECIMAL(50, 2)", "cast"),
    ("dt AT TIME ZONE 'Nowhere'", "TIME ZONE"), ("l[i]", "literal"), ("l[i:2]", "literal"), ("st.nope", "no"),
    ("st['nope']", "no field"), ("i.a", "no column"), ("list_transform(l, x -> l)", "list"),
    ("list_transform(l, lambda x: len(list_filter(l, lambda y: y > x)))", "lambda within"),
    ("list_filter(l, lambda x: x)", "condition"),
    ("list_reduce(l, lambda x, y: x + y)", "list_reduce|lambda"), ("list_transform(ls, lambda x: concat(x, s))", "characters"),
    ("(SELECT 1)", "subquery"), ("EXISTS (SELECT 1)", "EXISTS"),
    ("i IN (SELECT 1)", "list of values"), ("sum(i)", "be used here"), ("count(*)", "be used here"),
    ("sum(i) OVER ()", "window"), ("*", "can't be used"), ("t.*", "released"), ("COLUMNS('a')", "COLUMNS"),
    ("$x", "parameter"), ("(i, b) = (1, 2)", "row of"), ("i > ANY ([1])", "ANY"), ("s COLLATE NOCASE", "COLLATE"),
    ("s->'$.*'", "path of JSON"), ("s->>s2", "path of JSON"), ("i->>'a'", "JSON text"),
    ("json_extract(s, '$[*]')", "path of JSON"), ("json_keys(s)", "no JSON"),
    ("i BETWEEN SYMMETRIC 2 AND 1", "symmetric"),
    ("random()", "rows"), ("uuid()", "rows"), ("getenv('HOME')", "rows"),
    ("read_text('/etc/passwd')", "files"), ("error('x')", "noise"), ("sleep_ms(i)", "noise"),
    ("repeat(s, i)", "cost"), ("lpad(s, i, 'x')", "literal"), ("rpad(s, 3, s)", "literal"), ("hash(i)", "versions"),
    ("strptime(s, '%q')", "format"), ("strftime(dt, s)", "literal"), ("strftime(dt, '%q')", "format"),
    ("date_trunc(lower(s), dt)", "literal|unit"), ("date_trunc('fortnight', dt)", "unit"),
    ("date_part('epoch_ns', dt)", "unit"), ("epoch_ns(ts)", "plans"), ("INTERVAL (s) DAY", "add up|whole"),
    ("INTERVAL '1 month 2 hours'", "interval|unit|whole"), ("time_bucket(INTERVAL 0 DAY, ts)", "width"),
    ("time_bucket(INTERVAL -1 DAY, ts)", "width"), ("time_bucket(INTERVAL '-1' MONTH, dt)", "width"),
    ("time_bucket(iv, ts)", "literal"), ("dt + '1 day'", "add up"), ("substr(s, 9223372036854775807)", "most"),
    ("left(s, i)", "literal"), ("round(d, i)", "literal"), ("nosuch(i)", "list"),
    ("lower(s, s)", "more values here than it takes"),
    ("strlen(s, s)", "takes"), ("lower(x => s)", "named"), ("i ! ", "read"), ("typeof(i)", "rows"),
    ("query('SELECT 1')", "files"), ("unnest(l)", "unnest"), ("{'a': 1}", "struct"), ("[]", "list"),
    ("[[1], [2]]", "list"), ("string_split(t, t)", "literal"),
    ("MAP {'a': 1}['a']", "map"), ("'a\x00b'", "NUL"), ("rowid", "no column"), ("greatest(l, l)", "order"),
    ("+".join(["i"] * 300), "deep"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"), REFUSED, ids=[text[:60].replace("\x00", "0") for text, _ in REFUSED]
)
def test_refusals_say_why(text: str, says: str) -> None:
    with pytest.raises(Error, match=f"(?i){says}"):
        bound(text)


def test_every_refusal_has_a_place_in_the_text() -> None:
    for text in ("i + nosuch(b)", "lower(s) = 5", "i + CASE WHEN p THEN s ELSE i END"):
        with pytest.raises(Error) as caught:
            bound(text)
        assert caught.value.span is not None


def test_long_chains_of_conditions_stay_shallow(con: duckdb.DuckDBPyConnection) -> None:
    text = " OR ".join(f"i = {n}" for n in range(2000))
    assert column(con, to_sql(bound(text).node), "t") is not None


ATOMS = [
    "i", "b", "h", "u", "ti", "d", "f", "y", "z", "x", "w", "s", "p", "dt", "ts", "tm", "iv", "l[1]", "st.a", "NULL",
    "0", "1", "-1", "7", "2.5", "1e300", "'a'", "'5'", "'2020-01-01'", "TRUE", "INTERVAL 1 MONTH",
    "9223372036854775807",
]  # fmt: skip
SHAPES = [
    "({} + {})", "({} - {})", "({} * {})", "({} / {})", "({} // {})", "({} % {})", "(-({}))", "abs({})", "({} = {})",
    "({} < {})", "({} AND {})", "(NOT {})", "CASE WHEN {} THEN {} ELSE {} END", "COALESCE({}, {})",
    "GREATEST({}, {})", "LEAST({}, {})", "NULLIF({}, {})", "({} IS NULL)", "CAST({} AS INTEGER)",
    "CAST({} AS DOUBLE)", "CAST({} AS VARCHAR)", "CAST({} AS DECIMAL(10,2))", "CAST({} AS BOOLEAN)", "round({}, 1)",
    "floor({})", "sqrt({})", "ln({})", "lower({})", "length({})", "({} || {})", "year({})", "date_trunc('month', {})",
    "epoch({})", "date_diff('day', {}, {})", "({} BETWEEN {} AND {})", "({} IN ({}, {}))", "concat({}, {})",
    "({} LIKE '%a')", "pow({}, {})", "sign({})", "CAST({} AS TIMESTAMP)", "CAST({} AS DATE)", "CAST({} AS HUGEINT)",
    "CAST({} AS UBIGINT)", "last_day({})", "({} & {})", "TRY({})",
]  # fmt: skip


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(ATOMS))
    shape = draw(st.sampled_from(SHAPES))
    return shape.format(*(draw(expressions(depth=depth - 1)) for _ in range(shape.count("{}"))))


@settings(max_examples=400, deadline=None)
@given(text=expressions())
def test_random_expressions(
    con: duckdb.DuckDBPyConnection, plain: duckdb.DuckDBPyConnection, text: str
) -> None:
    """Refused by us, or total; and where plain DuckDB answers on a row, the answer is the same."""
    try:
        typed = bound(text)
    except Error:
        return
    sql = to_sql(typed.node)
    con.execute(f"CREATE OR REPLACE TEMP TABLE made AS SELECT {sql} AS v FROM t")
    for row in (5, 12, 16):  # where h has no 39 digits, which DuckDB multiplies with zero and we find missing
        con.execute(f"CREATE OR REPLACE TEMP TABLE made AS SELECT {sql} AS v FROM t{row}")
        theirs, ours = column(plain, text, f"t{row}"), column(con, sql, f"t{row}")
        if theirs is not None and "TRY(" not in text and "(-(" not in text:  # -u wraps around in one version
            assert ours is not None
            assert all(map(same, ours, theirs)), f"{text} on row {row}: {ours} is not {theirs}"
