"""Total expressions: no value makes the engine raise, and where plain DuckDB gives a value ours is the
same."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest
from sqlglot import exp

from dpsql.binding.values.row_functions import ROW_FUNCTIONS
from dpsql.binding.values.sql_types import Type, Typed
from dpsql.binding.values.total_expressions import make_total
from dpsql.catalogue.date_units import DATE_UNITS
from dpsql.errors import BindError, Error, PrivacyError
from dpsql.language.dialect import to_sql
from dpsql.language.statements import parse

COLUMNS = {
    "ti": ("TINYINT", ["0", "1", "-1", "127", "-128"]),
    "i": ("INTEGER", ["0", "1", "-1", "7", "2147483647", "-2147483648"]),
    "b": ("BIGINT", ["0", "1", "-1", "9223372036854775807", "-9223372036854775808", "86400"]),
    "u": ("UBIGINT", ["0", "1", "18446744073709551615"]),
    "h": ("HUGEINT", ["0", "1", "-1", "170141183460469231731687303715884105727",
    "-170141183460469231731687303715884105728"]),
    "d": ("DECIMAL(18,3)", ["0", "1.5", "-0.001", "999999999999999.999", "-999999999999999.999"]),
    "dd": ("DECIMAL(38,10)", ["0", "0.5", "9999999999999999999999999999.9999999999",
    "-9999999999999999999999999999.9999999999"]),
    "x": ("DOUBLE", ["0", "-0.0", "1.5", "-2", "1e308", "-1e308", "1e-300", "'nan'", "'inf'", "'-inf'",
    "710", "0.1", "4294967296.5"]),
    "f": ("FLOAT", ["0", "1.5", "3e38", "'nan'", "'-inf'"]),
    "t": ("VARCHAR", ["''", "'a'", "'Ada Lovelace'", "'ä€😀'", "'12'", "'1e999'", "'nan'", "'2024-02-30'",
    "'2024-02-29'", "'%_'", "'(('", "'TRUE'"]),
    "day": ("DATE", ["'1970-01-01'", "'2024-02-29'", "'infinity'", "'-infinity'", "'5877642-06-25 (BC)'",
    "'5881580-07-10'", "'0001-01-01'"]),
    "ts": ("TIMESTAMP", ["'1970-01-01'", "'2024-02-29 23:59:59.999999'", "'infinity'", "'-infinity'",
    "'290309-12-22 (BC) 00:00:00'", "'294247-01-10 04:00:54.775806'"]),
    "tm": ("TIME", ["'00:00:00'", "'23:59:59.999999'"]),
    "q": ("BOOLEAN", ["TRUE", "FALSE"]),
    "li": ("INTEGER[]", ["[]", "[1, NULL, 3]"]),
    "id": ("UUID", ["'00000000-0000-0000-0000-000000000000'"]),
}  # fmt: skip


@dataclass
class Columns:
    """A scope of the columns above."""

    def column(self, node: exp.Column) -> Typed:
        if node.name not in COLUMNS:
            raise BindError(f"there is no column {node.name}.")
        kind = Type.parse(COLUMNS[node.name][0])
        return Typed(
            exp.column(node.name),
            kind,
            length=1000 if kind.kind in ("TEXT", "LIST") else None,
            unchecked=True,
        )


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """A table per column with its nasty values, set up as the engine sets up its connection."""
    with duckdb.connect() as con:
        for setting, value in {
            "error_on_division_by_zero": "false",
            "ieee_floating_point_ops": "true",
        }.items():
            try:
                con.execute(f"SET {setting} = {value}")
            except duckdb.Error:
                pass
        for name, (kind, values) in COLUMNS.items():
            rows = ", ".join(f"(CAST({value} AS {kind}))" for value in ["NULL", *values])
            con.execute(f"CREATE TABLE t_{name} AS SELECT * FROM (VALUES {rows}) AS v({name})")
        yield con


def expression(text: str) -> exp.Expression:
    tree = parse(f"SELECT {text}")[0].tree
    assert tree is not None
    item = tree.expressions[0]
    assert isinstance(item, exp.Expression)
    return item


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-300) or (
            math.isnan(ours) and math.isnan(theirs)
        )
    if isinstance(ours, int | float) and not isinstance(ours, bool) and not isinstance(theirs, str | bool):
        return math.isclose(float(ours), float(theirs), rel_tol=1e-9)
    return bool(str(ours)[:10] == str(theirs)[:10])  # a date and a timestamp of the same day are the same


def check(con: duckdb.DuckDBPyConnection, text: str, compare: bool = True) -> int:
    """Runs an expression over every combination of its columns' values; how many plain DuckDB gave too."""
    tree = expression(text)
    made = make_total(tree, Columns())
    names = sorted({column.name for column in tree.find_all(exp.Column)})
    source = ", ".join(f"t_{name}" for name in names) or "(SELECT 1)"
    listed = "".join(f", {name}" for name in names)
    rows = con.sql(f"SELECT {to_sql(made.node)} AS o{listed} FROM {source}").fetchall()
    agreed = 0
    plain: list[Any] | None
    try:
        plain = con.sql(f"SELECT {text} AS o{listed} FROM {source}").fetchall()
    except duckdb.Error:
        plain = None
    if plain is not None and compare:
        assert len(plain) == len(rows)
        for (mine, *_), (other, *row) in zip(rows, plain, strict=True):
            missing = mine is None and isinstance(other, float) and not math.isfinite(other)
            assert (
                (mine is None and other is None)
                or missing
                or (mine is not None and other is not None and same(mine, other))
            ), f"{text} on {row}: {mine!r}, DuckDB says {other!r}; {to_sql(made.node)}"
            agreed += 1
        return agreed
    return sum(mine is not None for mine, *_ in rows)


OF_KIND = {
    "INTEGER": ["i", "b", "u", "h", "ti"], "DECIMAL": ["d", "dd"], "DOUBLE": ["x", "f"], "TEXT": ["t"],
    "DATE": ["day"],
    "TIMESTAMP": ["ts"], "TIME": ["tm"], "BOOLEAN": ["q"], "LIST": ["li"],
}  # fmt: skip
LITERALS = {"INTEGER": ["2", "0", "30"], "TEXT": ["'a'", "''"]}
SPELLED = {"STARTSWITH": "starts_with", "ENDSWITH": "ends_with", "SPLITPART": "split_part",
"STRPOSITION": "strpos",
           "DAYOFWEEKISO": "isodow", "LASTDAY": "last_day", "DAY_OF_WEEK": "dayofweek",
           "DAY_OF_YEAR": "dayofyear",
           "DAY_OF_MONTH": "dayofmonth"}  # fmt: skip


def calls(name: str) -> list[str]:
    """Calls of a function with each kind of argument that it takes."""
    known = ROW_FUNCTIONS[name]
    if not known.arguments:
        return [f"{name}()"]
    out = []
    for count in range(len(known.arguments) - known.optional, len(known.arguments) + 1):
        for first in (column for kind in known.arguments[0] for column in OF_KIND[kind]):
            rest = []
            for place in range(1, count):
                kind = known.arguments[place][0]
                rest.append(LITERALS[kind] if place in known.literal else OF_KIND[kind][:1])
            for i in range(max([len(r) for r in rest], default=1)):
                arguments = ", ".join([first, *(r[i % len(r)] for r in rest)])
                out.append(f"{SPELLED.get(name, name).lower()}({arguments})")
    return out


@pytest.mark.parametrize("name", list(ROW_FUNCTIONS))
def test_functions_are_total_and_agree(engine: duckdb.DuckDBPyConnection, name: str) -> None:
    assert sum(check(engine, text) for text in calls(name)) > 0, "nothing was compared"


# FLOATs are added and multiplied as DOUBLE here: nearer to the truth than DuckDB's own answers, so not compared.
NUMBERS = ["ti", "i", "b", "u", "h", "d", "dd", "x", "f"]


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "//", "%"])
@pytest.mark.parametrize("left", NUMBERS)
def test_arithmetic_is_total(engine: duckdb.DuckDBPyConnection, left: str, operator: str) -> None:
    for right in [*NUMBERS, "2", "0", "1.5", "1e200", "NULL"]:
        check(engine, f"{left} {operator} {right}", compare="f" not in (left, right))


@pytest.mark.parametrize(
    "operator", ["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
)
def test_comparisons_are_total(engine: duckdb.DuckDBPyConnection, operator: str) -> None:
    for left in NUMBERS:
        for right in [*NUMBERS, "0", "1.5", "1e200"]:
            check(engine, f"{left} {operator} {right}")
    for left, right in (("t", "'a'"), ("day", "'2024-02-29'"), ("day", "ts"), ("ts", "day"), ("q",
    "TRUE"), ("tm", "tm"),
                        ("id", "'00000000-0000-0000-0000-000000000000'"), ("ts",
                        "'2024-02-29 10:00:00'")):  # fmt: skip
        check(engine, f"{left} {operator} {right}")


@pytest.mark.parametrize("column", [c for c in COLUMNS if c != "li"])
def test_casts_never_raise(engine: duckdb.DuckDBPyConnection, column: str) -> None:
    answered = 0
    for target in ("TINYINT", "INTEGER", "BIGINT", "UBIGINT", "HUGEINT", "DECIMAL(10,2)", "DECIMAL(38,0)",
    "DOUBLE",
                   "FLOAT", "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP"):  # fmt: skip
        for cast in ("CAST", "TRY_CAST"):
            try:
                check(engine, f"{cast}({column} AS {target})")
                answered += 1
            except (PrivacyError, BindError):
                continue
            except duckdb.BinderException:
                raise AssertionError(
                    f"{column} to {target} was let through, and DuckDB can't bind it"
                ) from None
    assert answered > 0


@pytest.mark.parametrize(
    "text",
    [
        "-i", "-b", "-h", "-d", "-x", "-ti", "abs(ti)", "abs(i)", "abs(b)", "abs(h)", "abs(d)", "abs(x)",
        "abs(dd)",
        "CASE WHEN q THEN i ELSE x END", "CASE i WHEN 0 THEN 'a' ELSE t END", "CASE WHEN i > 0 THEN 1 END",
        "CASE WHEN i > 0 THEN b ELSE u END", "CASE WHEN q THEN h ELSE u END", "IF(q, d, dd)",
        "IF(q, day, ts)",
        "COALESCE(i, b)", "COALESCE(x, 0)", "COALESCE(t, 'none')", "GREATEST(i, x)", "LEAST(b, u)",
        "LEAST(d, 3)",
        "GREATEST(x, NULL)", "NULLIF(i, 0)", "NULLIF(t, '')", "i BETWEEN 0 AND b",
        "x NOT BETWEEN 0 AND 1", "i IN (0, 1, NULL)",
        "x IN (0, 1.5)", "t IN ('a', '12')", "t NOT IN ('a')", "day IN ('2024-02-29')", "t LIKE '%a%'",
        "t ILIKE 'A%'",
        "t NOT LIKE '_'", "t GLOB 'a*'", "regexp_matches(t, '^[aA]')", "t || 'x'", "t || t", "q AND i > 0",
        "q OR NULL", "NOT q", "q IS TRUE", "q IS NOT FALSE", "i IS NULL", "x IS NOT NULL",
        "i + 1 > 0 AND (b - 1 < 0 OR h * h > 3)",
        "day + INTERVAL 1 DAY", "day - INTERVAL 3 MONTH", "ts + INTERVAL 5 HOUR",
        "ts - INTERVAL 999999 YEAR", "day + i",
        "day - day", "date_diff('day', day, ts)", "date_diff('second', ts, ts)",
        "date_diff('month', day, day)",
        "i * i * i * i * i", "b + b + b + b", "u - u", "h + 1", "(ti + ti) * ti", "i::DOUBLE / 0",
        "x // 0", "i % 0", "b // -1",
        "d * dd", "dd * dd", "d / d", "dd + d", "u * u", "-(-b)", "abs(-i)", "1 - u", "(q::INTEGER) * 2",
    ],
)  # fmt: skip
def test_expressions_are_total_and_agree(engine: duckdb.DuckDBPyConnection, text: str) -> None:
    check(engine, text)


def test_what_versions_of_duckdb_see_differently_is_total(engine: duckdb.DuckDBPyConnection) -> None:
    """-u wraps around in one of them."""
    check(engine, "-u", compare=False)


def test_a_pattern_that_versions_read_differently_is_refused() -> None:
    with pytest.raises(PrivacyError, match="version"):
        make_total(expression("t ~ 'a+'"), Columns())


@pytest.mark.parametrize("text", ["x BETWEEN SYMMETRIC 1 AND 0", "t LIKE ANY ('a', 'b')", "i < ANY ([1])"])
def test_parts_that_would_be_dropped_are_refused(text: str) -> None:
    with pytest.raises(Error):
        make_total(expression(text), Columns())


@pytest.mark.parametrize("unit", [unit.name for unit in DATE_UNITS if unit.measures])
def test_dates_are_truncated_totally(engine: duckdb.DuckDBPyConnection, unit: str) -> None:
    for column in ("day", "ts"):
        check(engine, f"date_trunc('{unit.lower()}', {column})")


@pytest.mark.parametrize("call", ["date_diff('day', day, day + to_days({}))", "list_position([{}], 1)"])
def test_each_argument_is_bound_once(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Otherwise each level of nested calls takes twice as long to bind."""
    read, column = list[str](), Columns.column

    def noting(self: Columns, node: exp.Column) -> Typed:
        read.append(node.name)
        return column(self, node)

    monkeypatch.setattr(Columns, "column", noting)
    make_total(expression(call.format(call.format("i"))), Columns())
    assert read.count("i") == 1


@pytest.mark.parametrize("part", [unit.name for unit in DATE_UNITS])
def test_parts_of_dates(engine: duckdb.DuckDBPyConnection, part: str) -> None:
    for column in ("day", "ts"):
        check(engine, f"extract({part.lower()} FROM {column})")


@pytest.mark.parametrize(
    "text",
    [
        "random()", "now()", "current_time", "getenv('HOME')", "error('x')", "read_text('x')",
        "pragma_version()", "repeat(t, 3)",
        "lpad(t, 10, t)", "range(i)", "generate_series(1, i)", "list_value()", "[]", "l[i:2]", "{'a': i}",
        "json_keys(t)",
        "t::JSON", "t::BLOB", "current_setting('threads')", "nextval('s')", "txid_current()",
        "i << 70",
        "factorial(i)", "strptime(t, t)", "EXISTS (SELECT 1)",
        "row_number() OVER ()", "sum(i)",
        "t LIKE t", "t LIKE 'a' ESCAPE 'xx'", "regexp_matches(t, t)", "regexp_matches(t, '(')",
        "t ~ '(?=a)'", "i + t", "i = t",
        "t > 5", "day > 'yesterday'", "day = 5", "q + 1", "t AND q", "i AND q", "NOT i", "id > 'x'",
        "x IS TRUE",
        "nosuch(i)", "columns(*)", "*", "chr(i)", "hash(i)", "typeof(i)", "sleep_ms(i)", "query('x')",
    ],
)  # fmt: skip
def test_what_is_not_listed_is_refused(text: str) -> None:
    with pytest.raises(Error) as caught:
        make_total(expression(text), Columns())
    assert isinstance(caught.value, PrivacyError | BindError)
