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
from dpsql.errors import BindError, PrivacyError
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


def test_what_versions_of_duckdb_see_differently_is_total(engine: duckdb.DuckDBPyConnection) -> None:
    """-u wraps around in one of them."""
    check(engine, "-u", compare=False)


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
