"""When a block's totals can be had from packed rows instead of a grouping by unit and key, and the SQL of that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.mechanisms.packed import TOTALS, Packed, Tally, Value

if TYPE_CHECKING:
    from dpsql.sql.rewrite import Exact, Partial

_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_PRESENT = re.compile(r"COUNT\((y\d+)\)\Z")


def packed(exact: Exact) -> Packed | None:
    """The packed route to the same totals, or None where the block has no such shape.

    It takes one table whose unit is a small integer, public groups of any type or private ones of integers, and
    aggregates that count rows or add clamped values: what a GROUP BY of two columns would spend its time on.
    """
    bound = exact.bound
    kind = bound.unit_type
    plain = not bound.joins and not any(isinstance(n, exp.Join | exp.Group) for n in bound.source.walk())
    if not exact.keys or bound.unit is None or exact.row_budget is not None or not plain:
        return None
    if kind is None or kind.sql not in _WHOLE:
        return None
    if exact.domain is None and any(key.type not in _WHOLE for key in exact.keys):
        return None
    values: dict[str, Value] = {}
    places: dict[str, int] = {}
    for partial in exact.partials:
        if partial.adds is not None:
            y, low, high, _ = partial.adds
            places.setdefault(y, len(values))
            values.setdefault(y, Value(_held(y, low, high), high - low + 1))
    tallies = [_tally(exact, partial, places, values) for partial in exact.partials]
    if None in tallies:
        return None
    names = [key.name for key in exact.keys]
    head, codes = "", "code"
    source = exact.rows(inside=False)
    if exact.domain is not None:
        listed = ", ".join(names)
        ordered = f"SELECT row_number() OVER (ORDER BY {listed}) - 1 AS {codes}, * FROM (SELECT DISTINCT * FROM domain)"
        head = f"WITH domain AS ({exact.domain}), codes AS ({ordered})"
        on = " AND ".join(f"rows.{name} = codes.{name}" for name in names)
        ranges = (
            f"{head} SELECT COUNT(*) AS n, MIN(u) AS u_low, MAX(u) AS u_high, 0 AS {codes}_low, "
            f"(SELECT COUNT(*) - 1 FROM codes) AS {codes}_high FROM ({source}) AS rows"
        )
        source = f"{head} SELECT * FROM ({source}) AS rows JOIN codes ON {on}"
        columns = [f"codes.{name}" for name in names]
        columns += [f"COALESCE({TOTALS}.{t.name}, 0) AS {t.name}" for t in tallies if t is not None]
        columns.append(f"COALESCE({TOTALS}.units, 0) AS units")
        final = f"{head} SELECT {', '.join(columns)} FROM codes LEFT JOIN {TOTALS} ON {TOTALS}.{codes} = codes.{codes}"
        names = [codes]
    else:
        ends = ", ".join(f"MIN({name}) AS {name}_low, MAX({name}) AS {name}_high" for name in names)
        ranges = f"SELECT COUNT(*) AS n, MIN(u) AS u_low, MAX(u) AS u_high, {ends} FROM ({source}) AS rows"
        columns = [f"CAST({key.name} AS {key.type}) AS {key.name}" for key in exact.keys]
        columns += [t.name for t in tallies if t is not None]
        final = f"SELECT {', '.join([*columns, 'units'])} FROM {TOTALS}"
    return Packed(
        ranges, source, tuple(names), tuple(values.values()), tuple(t for t in tallies if t is not None), final,
        "units", exact.groups,
    )  # fmt: skip


def _held(y: str, low: int, high: int) -> str:
    """A value clamped to its bounds, counted from 1; 0 where there is none. No branch per row."""
    return f"COALESCE((ABS({y} - ({low})) - ABS({y} - ({high})) + {high - low + 2}) // 2, 0)"


def _tally(exact: Exact, partial: Partial, places: dict[str, int], values: dict[str, Value]) -> Tally | None:
    rows = 1 if partial.fixed else exact.max_rows
    if rows is None:
        return None
    low, high = partial.low * rows, partial.high * rows
    if partial.adds is not None:
        y, least, _, centre = partial.adds
        return Tally(partial.name, low, high, places[y], True, centre + 1 - least)
    if partial.inner == "COUNT(*)":
        return Tally(partial.name, low, high)
    found = _PRESENT.match(partial.inner)
    if found is None:
        return None
    if found[1] not in places:
        places[found[1]] = len(values)
        values[found[1]] = Value(f"CASE WHEN {found[1]} IS NULL THEN 0 ELSE 1 END", 1)
    return Tally(partial.name, low, high, places[found[1]])
