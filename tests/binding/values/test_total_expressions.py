"""Total expressions over all pairs of nasty values: none makes the engine raise, and where plain DuckDB gives a value ours is the
same."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pytest
from sqlglot import exp

from dpsql.binding.values.row_functions import ROW_FUNCTIONS
from dpsql.binding.values.sql_types import Typed
from dpsql.binding.values.total_expressions import make_total
from dpsql.catalogue.date_units import DATE_UNITS
from dpsql.errors import BindError, PrivacyError
from dpsql.language.dialect import to_sql
from dpsql.language.statements import parse
from tests.support.nasty import NastyScope, fill

LONGEST = 1000


class ShortTexts(NastyScope):
    """The nasty columns, with a bound on the length of texts that all functions accept."""

    def column(self, node: exp.Column) -> Typed:
        return replace(super().column(node), length=LONGEST, unchecked=True)


def expression(text: str) -> exp.Expr:
    return parse(f"SELECT {text}")[0].tree.expressions[0]


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as con:
        fill(con)
        yield con


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
    made = to_sql(make_total(tree, ShortTexts()).node)
    names = sorted({column.name for column in tree.find_all(exp.Column)})
    read = {"s": f"left(s, {LONGEST}) AS s"}
    source = ", ".join(f"(SELECT DISTINCT {read.get(name, name)} FROM t)" for name in names) or "(SELECT 1)"
    rows: list[Any] | None = None
    if compare:
        try:
            rows = con.sql(f"SELECT {made}, {', '.join([text, *names])} FROM {source}").fetchall()
        except duckdb.Error:
            pass
    if rows is None:  # plain DuckDB raises
        return sum(mine is not None for (mine,) in con.sql(f"SELECT {made} FROM {source}").fetchall())
    for mine, other, *row in rows:
        missing = mine is None and isinstance(other, float) and not math.isfinite(other)
        agrees = missing or (mine is None and other is None)
        assert agrees or (mine is not None and other is not None and same(mine, other)), (
            f"{text} on {row}: {mine!r}, DuckDB says {other!r}; {made}"
        )
    return len(rows)


OF_KIND = {
    "INTEGER": ["i", "b", "u", "h", "ti"], "DECIMAL": ["z", "w"], "DOUBLE": ["d", "f"], "TEXT": ["s"], "DATE": ["dt"],
    "TIMESTAMP": ["ts"], "TIME": ["tm"], "BOOLEAN": ["p"], "LIST": ["l"],
}  # fmt: skip
LITERALS = {"INTEGER": ["2", "0", "30"], "TEXT": ["'a'", "''"]}


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
                out.append(f"{name}({arguments})")
    return out


@pytest.mark.parametrize("name", list(ROW_FUNCTIONS))
def test_functions_are_total_and_agree(engine: duckdb.DuckDBPyConnection, name: str) -> None:
    assert sum(check(engine, text) for text in calls(name)) > 0, "nothing was compared"


# FLOATs are added and multiplied as DOUBLE here: nearer to the truth than DuckDB's own answers, so not compared.
NUMBERS = ["ti", "i", "b", "u", "h", "z", "w", "d", "f"]


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
    for left, right in (
        ("s", "'a'"), ("dt", "'2020-02-29'"), ("dt", "ts"), ("ts", "dt"), ("p", "TRUE"), ("tm", "tm"),
        ("g", "'00000000-0000-0000-0000-000000000000'"), ("ts", "'2020-02-29 10:00:00'"),
    ):  # fmt: skip
        check(engine, f"{left} {operator} {right}")


@pytest.mark.parametrize("column", [*NUMBERS, "s", "dt", "ts", "tm", "p", "g"])
def test_casts_never_raise(engine: duckdb.DuckDBPyConnection, column: str) -> None:
    answered = 0
    kinds = "TINYINT INTEGER BIGINT UBIGINT HUGEINT DECIMAL(10,2) DECIMAL(38,0) DOUBLE FLOAT VARCHAR BOOLEAN DATE TIMESTAMP"
    for target in kinds.split():
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
    for column in ("dt", "ts"):
        check(engine, f"date_trunc('{unit.lower()}', {column})")


@pytest.mark.parametrize("call", ["date_diff('day', dt, dt + to_days({}))", "list_position([{}], 1)"])
def test_each_argument_is_bound_once(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Otherwise each level of nested calls takes twice as long to bind."""
    read, column = list[str](), NastyScope.column

    def noting(self: NastyScope, node: exp.Column) -> Typed:
        read.append(node.name)
        return column(self, node)

    monkeypatch.setattr(NastyScope, "column", noting)
    make_total(expression(call.format(call.format("i"))), NastyScope())
    assert read.count("i") == 1


@pytest.mark.parametrize("part", [unit.name for unit in DATE_UNITS])
def test_parts_of_dates(engine: duckdb.DuckDBPyConnection, part: str) -> None:
    for column in ("dt", "ts"):
        check(engine, f"extract({part.lower()} FROM {column})")
