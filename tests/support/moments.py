"""Moments of groups of rows by DuckDB itself, which other ways to write them are compared with."""

from __future__ import annotations

from collections.abc import Sequence

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
