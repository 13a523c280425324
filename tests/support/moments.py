"""Moments of groups of rows by DuckDB itself, which other ways to write them are compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from dpsql.binding.values.sql_types import DOUBLE, Type

ALL = (
    "VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP", "COVAR_POP", "COVAR_SAMP", "CORR", "REGR_SLOPE",
    "REGR_INTERCEPT", "REGR_R2", "REGR_AVGX", "REGR_AVGY",
)  # fmt: skip
Value = float | int | None
Row = tuple[int, Value, Value]
"""A group, y and x."""
Answers = dict[str, dict[int, float | None]]
"""Aggregates by name and group."""
DOUBLES = (DOUBLE, DOUBLE)


def list_odd_groups(far: float) -> list[Row]:
    """Return groups without rows, without spread, of one row, of values that do not count, and of pairs on one line."""
    nan, inf = math.nan, math.inf
    groups: list[list[tuple[Value, Value]]] = [
        [(None, None)], [(1.5, 2.5)], [(1.5, 2.5), (1.5, 3.5)], [(1.5, 2.5), (3.5, 2.5)], [(0.1, 0.3)] * 3,
        [(nan, 1.0), (inf, 2.0), (-inf, 3.0)], [(far, 1.0), (1.25, inf), (2.5, 3.0), (4.0, 9.0)],
        [(1.0, None), (2.0, 3.0), (None, 7.0)], [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)], [(1.0, -1.0), (2.0, -2.0)],
        [(0.0, 0.0), (-0.0, 1.0), (0.0, -1.0)],
    ]  # fmt: skip
    return [(g, y, x) for g, group in enumerate(groups) for y, x in group]


def assert_same(mine: Answers, theirs: Answers, near: Mapping[str, float], least: float) -> None:
    """Compare to ``least`` of the value, or to what ``near`` says of the aggregate: sums of products may cancel.

    Groups of which no row counts may be there or not: nobody asks for them.
    """
    for name, groups in theirs.items():
        off = near.get(name, least)
        for group, value in groups.items():
            told = mine[name].get(group)
            if value is None or told is None:
                assert value is told, (name, group, told, value)
            elif not (math.isnan(value) and math.isnan(told)):
                assert math.isclose(told, value, rel_tol=least, abs_tol=off), (name, group, told, value)


def axes_of(name: str) -> str:
    """Return the columns that an aggregate takes."""
    return "y" if name.startswith(("VAR", "STD")) else "yx"


def fill(con: duckdb.DuckDBPyConnection, rows: Sequence[Row], kinds: tuple[Type, Type] = DOUBLES) -> None:
    """Make the table of the rows, in their order."""
    g, y, x = zip(*rows, strict=True)
    sides = (pa.array([None if v is None else float(v) for v in side], pa.float64()) for side in (y, x))
    con.register("given", pa.table([pa.array(g, pa.int32()), *sides], names=["g", "y", "x"]))
    casts = ", ".join(f"CAST({name} AS {kind.sql}) AS {name}" for name, kind in zip("yx", kinds, strict=True))
    con.execute(f"CREATE TABLE t AS SELECT g, {casts} FROM given")


def ask_plainly(
    rows: Sequence[Row], value: str, where: str = "", kinds: tuple[Type, Type] = DOUBLES
) -> Answers:
    """Return DuckDB's own aggregates, of each group by itself; ``value``: the SQL of a number that counts."""
    found: Answers = {name: {} for name in ALL}
    for group in {g for g, _, _ in rows}:
        with duckdb.connect() as con:
            fill(con, [row for row in rows if row[0] == group], kinds)
            for name in ALL:
                call = f"{name}({', '.join(map(value.format, axes_of(name)))})"
                (found[name][group],) = con.execute(f"SELECT {call} FROM t{where}").fetchone() or (None,)
    return found
