"""When a block's totals can be had from packed rows instead of a grouping by unit and key, and the SQL of that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.fast.packed_aggregation import TOTALS, Packed, Route, Tally, Value
from dpsql.sql.exact.exact_query import UNITS_COLUMN, equality_operator
from dpsql.sql.relations.privacy_unit import WHOLE_UNIT_TYPES

if TYPE_CHECKING:
    from dpsql.sql.exact.exact_query import Exact, Partial

Held = tuple[str, int, int]
"""A value, and the bounds that it is held to."""
_PRESENT = re.compile(r"COUNT\((y\d+)\)\Z")


def packed(exact: Exact) -> Packed | None:
    """The packed route to the same totals, or None where the block has no such shape.

    It takes one table whose unit is a small integer, and no groups, public ones of any type or private ones of integers,
    and aggregates that count rows or add clamped values: what a GROUP BY would spend its time on.
    """
    bound = exact.bound
    kind = bound.unit_type
    plain = not bound.joins and not any(isinstance(n, exp.Join | exp.Group) for n in bound.source.walk())
    if (
        bound.unit is None
        or exact.row_budget is not None
        or not plain
        or kind is None
        or kind.sql not in WHOLE_UNIT_TYPES
        or SALT in exact.rows(inside=False)  # rows that are chosen by a secret hash are read once
    ):
        return None
    whole = all(key.type in WHOLE_UNIT_TYPES for key in exact.keys)
    if exact.domain is None and not whole:
        return None
    values = {
        p.adds[:3]: Value(_held(*p.adds[:3]), p.adds[2] - p.adds[1] + 1)
        for p in exact.partials
        if p.adds is not None
    }
    tallies: list[Tally] = []
    for partial in exact.partials:
        tally = _tally(exact, partial, values)
        if tally is None:
            return None
        tallies.append(tally)
    known = ["COUNT(*) AS n, MIN(u) AS u_low, MAX(u) AS u_high"]
    if exact.domain is None:
        routes = [_private(exact, tallies)]
        known += [_ends(key.name) for key in exact.keys]
        head = ""
    else:
        head = f"WITH domain AS ({exact.domain}), {_LISTED} "
        # NULL is no integer: where it is a group, groups are numbered
        whole = whole and not exact.nullable
        routes = [*([_public(exact, tallies)] if whole else []), _coded(exact, tallies)]
        known += [
            f"(SELECT COUNT(*) FROM listed) AS listed, 0 AS {_CODE}_low, (SELECT COUNT(*) - 1 FROM listed) AS {_CODE}_high"
        ]
        if whole:
            ends = ((f"{end}({key.name})", f"{key.name}_{at}") for key in exact.keys for end, at in _BOTH)
            known += [f"(SELECT {sql} FROM listed) AS {name}" for sql, name in ends]
    ranges = f"{head}SELECT {', '.join(known)} FROM ({exact.rows(inside=False)}) AS rows"
    return Packed(ranges, tuple(routes), tuple(values.values()), tuple(tallies), UNITS_COLUMN, exact.groups)


_CODE = "code"
_LISTED = "listed AS (SELECT DISTINCT * FROM domain)"
_BOTH = (("MIN", "low"), ("MAX", "high"))


def _ends(name: str) -> str:
    return ", ".join(f"{end}({name}) AS {name}_{at}" for end, at in _BOTH)


def _private(exact: Exact, tallies: list[Tally]) -> Route:
    """Private groups of integers, or no groups."""
    columns = [f"CAST({key.name} AS {key.type}) AS {key.name}" for key in exact.keys]
    columns += [f"{t.sql} AS {t.name}" if t.rows is not None else t.name for t in tallies]
    final = f"SELECT {', '.join([*columns, UNITS_COLUMN])} FROM {TOTALS}"
    return Route(tuple(key.name for key in exact.keys), exact.rows(inside=False), final)


def _public(exact: Exact, tallies: list[Tally]) -> Route:
    """Public groups that are integers without gaps: they are their own codes."""
    names = tuple(key.name for key in exact.keys)
    on = " AND ".join(f"{TOTALS}.{name} = listed.{name}" for name in names)
    head = f"WITH domain AS ({exact.domain}), {_LISTED}"
    return Route(
        names, exact.rows(inside=False), f"{head} {_all_groups(exact, tallies, 'listed', on)}", dense=True
    )


def _coded(exact: Exact, tallies: list[Tally]) -> Route:
    """Public groups of any type, numbered in the order of their values."""
    listed = ", ".join(key.name for key in exact.keys)
    codes = f"codes AS (SELECT row_number() OVER (ORDER BY {listed}) - 1 AS {_CODE}, * FROM listed)"
    head = f"WITH domain AS ({exact.domain}), {_LISTED}, {codes}"
    on = " AND ".join(
        f"rows.{key.name} {equality_operator(exact.nullable)} codes.{key.name}" for key in exact.keys
    )
    source = f"{head} SELECT * FROM ({exact.rows(inside=False)}) AS rows JOIN codes ON {on}"
    final = _all_groups(exact, tallies, "codes", f"{TOTALS}.{_CODE} = codes.{_CODE}")
    return Route((_CODE,), source, f"{head} {final}")


def _all_groups(exact: Exact, tallies: list[Tally], groups: str, on: str) -> str:
    columns = [f"{groups}.{key.name}" for key in exact.keys]
    totals = [(t.sql if t.rows is not None else f"{TOTALS}.{t.name}", t.name) for t in tallies]
    columns += [
        f"COALESCE({sql}, 0) AS {name}" for sql, name in (*totals, (f"{TOTALS}.{UNITS_COLUMN}", UNITS_COLUMN))
    ]
    return f"SELECT {', '.join(columns)} FROM {groups} LEFT JOIN {TOTALS} ON {on}"


def _held(y: str, low: int, high: int) -> str:
    """A value clamped to its bounds, counted from 1; 0 where there is none. No branch per row, and no division."""
    return f"COALESCE((ABS({y} - ({low})) - ABS({y} - ({high})) + {high - low + 2}) >> 1, 0)"


def _tally(exact: Exact, partial: Partial, values: dict[Held, Value]) -> Tally | None:
    """How a partial is had from the packed values; a value that is only counted is added to them."""
    rows = 1 if partial.fixed else exact.max_rows
    if rows is None:
        return None
    low, high = partial.low * rows, partial.high * rows
    weighing = partial.weighing
    most, scale = (None, 1) if weighing is None else (rows, weighing.scale)
    if partial.adds is not None:
        held, centre = partial.adds[:3], partial.adds[3]
        return Tally(
            partial.name, low, high, list(values).index(held), True, centre + 1 - held[1], most, scale
        )
    if partial.inner == "COUNT(*)":
        return Tally(partial.name, low, high)
    found = _PRESENT.match(partial.inner)
    if found is None:
        return None
    y = found[1]
    held = next((known for known in values if known[0] == y), (y, 0, 0))
    values.setdefault(held, Value(f"CASE WHEN {y} IS NULL THEN 0 ELSE 1 END", 1))
    return Tally(partial.name, low, high, list(values).index(held), rows=most, scale=scale)
