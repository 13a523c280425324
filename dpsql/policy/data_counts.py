"""Exact counts of what a policy leaves out of the data, for ``dpsql policy check --data``: for the owner's eyes only.

Nothing of it is private and nothing of it may be published: a policy that is chosen by these numbers tells a little about
the data. They show mistakes, such as a bound in another unit of measure or a cap that leaves out most rows.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Any

from dpsql.engine.duckdb import DuckDBEngine
from dpsql.engine.sandbox import quote_identifier, quote_literal
from dpsql.policy.column_checks import find_kind
from dpsql.policy.model import Column, NameMapping, Table
from dpsql.policy.validate import write_bound

_CAPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
"""Caps on the rows of a unit that are compared with the declared one."""
_MOST_CAPS = 6


def count_misfits(engine: DuckDBEngine, table: Table, schema: Mapping[str, str]) -> Iterator[str]:
    """Yield what of a private table's rows never counts, or counts as another value, in sentences."""
    if table.public:
        return
    unit = table.unit_path[0].column if table.unit_path else None
    if unit is not None and unit in NameMapping(schema):
        yield from _count_without_unit(engine, table, unit)
        if len(table.unit_path) == 1 and table.period is None:
            yield from _count_capped(engine, table, unit)
        else:
            yield f"{table.name}: rows of one unit are not counted here, for the unit is not a column alone"
    yield from _count_outside(engine, table, schema)


def _count_without_unit(engine: DuckDBEngine, table: Table, unit: str) -> Iterator[str]:
    (none, rows) = _ask(engine, table, f"COUNT(*) FILTER (WHERE {quote_identifier(unit)} IS NULL), COUNT(*)")
    if none:
        yield f"{table.name}: {_share(none, rows)} have no {unit}: they are in no answer"


def _count_capped(engine: DuckDBEngine, table: Table, unit: str) -> Iterator[str]:
    """Count what caps on the rows of a unit leave out, in all and in groups of declared values."""
    name = quote_identifier(unit)
    of_units = (
        f"(SELECT COUNT(*) AS n FROM {engine.relation(table)} WHERE {name} IS NOT NULL GROUP BY {name})"
    )
    cap = table.max_rows
    caps = sorted({*_CAPS, *([] if cap is None else [cap])})
    sums = ", ".join(f"COUNT(*) FILTER (WHERE n > {c}), SUM(GREATEST(n - {c}, 0))" for c in caps)
    units, rows, *found = _read(engine, f"SELECT COUNT(*), SUM(n), {sums} FROM {of_units}")
    if not rows:
        return
    above = dict(zip(caps, zip(found[::2], found[1::2], strict=True), strict=True))
    if cap is not None:
        yield (
            f"{table.name}: {above[cap][0]:,} of {units:,} units have more than max_rows = {cap} rows; without groups "
            f"{_share(above[cap][1], rows)} are left out"
        )
    others = [c for c in caps if c != cap and above[c][0]][-_MOST_CAPS:]
    if others:
        told = ", ".join(f"{_percent(above[c][1], rows)} above {c:,}" for c in others)
        yield f"{table.name}: rows that other caps would leave out without groups: {told}"
    for column, declared in table.columns.items():
        if declared.values is not None and table.max_groups is not None and cap is not None:
            yield from _count_grouped(engine, table, unit, column, declared)


def _count_grouped(
    engine: DuckDBEngine, table: Table, unit: str, column: str, declared: Column
) -> Iterator[str]:
    """Count what is left out where a column's declared values are the groups: those of one unit share their rows."""
    rows, most = table.max_rows or 0, table.max_groups or 0
    name, key = quote_identifier(unit), quote_identifier(column)
    wanted = f"{name} IS NOT NULL AND {_write_among(key, declared)}"
    cells = f"(SELECT {name} AS u, COUNT(*) AS n FROM {engine.relation(table)} WHERE {wanted} GROUP BY {name}, {key})"
    units = f"(SELECT COUNT(*) AS g, SUM(n) AS n, LEAST(SUM(LEAST(n, {rows})), {rows * most}) AS kept FROM {cells} GROUP BY u)"
    count, many, total, kept = _read(
        engine, f"SELECT COUNT(*), COUNT(*) FILTER (WHERE g > {most}), SUM(n), SUM(kept) FROM {units}"
    )
    if total:
        yield (
            f"{table.name} by {column}: {many:,} of {count:,} units are in more than max_groups = {most} groups; "
            f"{_share(total - kept, total)} are left out under both caps"
        )


def _count_outside(engine: DuckDBEngine, table: Table, schema: Mapping[str, str]) -> Iterator[str]:
    """Count values outside of the bounds, and such as are not declared; NULLs are neither."""
    kinds = NameMapping(schema)
    for name, column in table.columns.items():
        if name not in kinds:
            continue
        key = quote_identifier(name)
        if column.bounds is not None:
            test = _write_outside(key, find_kind(kinds[name]), column)
            low, high = map(write_bound, column.bounds)
            told = f"are outside of {low} to {high}, and count as the nearest of them"
        elif column.values is not None:
            test, told = (
                f"NOT {_write_among(key, column)}",
                "are none of the declared values, and in no public group",
            )
        else:
            continue
        many, rows = _ask(
            engine, table, f"COUNT(*) FILTER (WHERE {key} IS NOT NULL AND {test}), COUNT({key})"
        )
        if many:
            yield f"{table.name}.{name}: {_share(many, rows, 'values')} {told}"


def _write_outside(key: str, kind: str, column: Column) -> str:
    assert column.bounds is not None
    number = f"epoch({key})" if kind in ("date", "time", "interval") else f"CAST({key} AS DOUBLE)"
    low, high = (float(end) for end in column.bounds)
    return f"({number} < {low!r} OR {number} > {high!r})"


def _write_among(key: str, column: Column) -> str:
    assert column.values is not None
    listed = ", ".join(quote_literal(_write_value(value)) for value in column.values)
    return f"COALESCE(CAST({key} AS VARCHAR) IN ({listed}), FALSE)"


def _write_value(value: Any) -> str:
    """Write a value as the engine casts it to text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ")
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


def _ask(engine: DuckDBEngine, table: Table, items: str) -> list[int]:
    return _read(engine, f"SELECT {items} FROM {engine.relation(table)}")


def _read(engine: DuckDBEngine, sql: str) -> list[int]:
    found = engine.execute(sql).columns
    return [int(column[0].as_py() or 0) for column in found]


def _share(part: int, whole: int, what: str = "rows") -> str:
    return f"{part:,} of {whole:,} {what} ({_percent(part, whole)})"


def _percent(part: int, whole: int) -> str:
    """Write a part in per cent, and never as 0 or 100 where it is neither.

    >>> [_percent(part, 1000000) for part in (0, 1, 7000, 123456, 999999, 1000000)]
    ['0%', '<0.1%', '0.7%', '12.3%', '>99.9%', '100%']
    """
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.1:
        return "<0.1%"
    if 99.9 < share < 100:
        return ">99.9%"
    return f"{share:.1f}".removesuffix(".0") + "%"
