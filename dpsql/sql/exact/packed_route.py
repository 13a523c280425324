"""The packed route of an exact query: the same totals by way of one integer per row, for :mod:`dpsql.mechanisms.fast`.

It is written beside the query that it stands for, from the same partials, and only where rows of one table are grouped by few
keys: what a GROUP BY would spend its time on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.fast import packed_aggregation as packed
from dpsql.mechanisms.fast.packed_rows import PackedRoute
from dpsql.mechanisms.fast.unit_codes import CodedUnit
from dpsql.sql.exact.exact_query import UNITS_COLUMN, Exact, Partial
from dpsql.sql.parse.dialect import to_sql
from dpsql.sql.relations.plan_size import is_shared
from dpsql.sql.relations.relation import UNIT
from dpsql.sql.relations.unit_rows import WHOLE_UNIT_TYPES

CODED_UNIT_TYPES = (
    *("VARCHAR", "UUID", "BLOB", "UBIGINT", "HUGEINT", "UHUGEINT"),
    *("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
)
"""SQL types of units whose equal values have one hash, so that different ones may have codes; BIGINT may where gaps are wide."""

_PRESENT = re.compile(r"COUNT\((y\d+)\)\Z")


def write_packed_route(exact: Exact) -> packed.PackedAggregation | None:
    """Return the packed route to the same totals, or None where the block has no such shape.

    It takes one table whose unit is a small integer or has codes, and no groups, public ones of any type or private ones of
    integers, and aggregates that count rows or add clamped values: what a GROUP BY would spend its time on.
    """
    bound = exact.bound
    plain = not bound.joins and not any(
        isinstance(n, exp.Join | exp.Group) or is_shared(n) for n in bound.source.walk()
    )
    kind = bound.unit_type.sql if bound.unit is not None and bound.unit_type is not None else ""
    coded = write_coded_unit(bound.source) if kind in CODED_UNIT_TYPES and plain else None
    if (kind not in WHOLE_UNIT_TYPES and coded is None) or not plain:
        return None
    total, kept = exact.row_total, exact.kept_groups
    if exact.later and (total is not None or kept is not None):
        return None  # it draws groups alike
    if total is not None:
        units = exact.domain is None or any(partial.fixed for partial in exact.partials)
        if units or kept is not None or total % exact.rows_in_group:
            return None  # its claims are about rows that are shared in equal parts, and no numbers of units
    rows, names = exact.rows(inside=False), exact.names
    whole = all(key.type in WHOLE_UNIT_TYPES for key in exact.keys)
    if SALT in rows or (exact.domain is None and not whole):
        return None  # rows that are chosen by a secret hash are read once
    values = packed.PackedValues()
    for y, low, high, _ in (p.adds for p in exact.partials if p.adds is not None):
        values.add_held(y, low, high)
    tallies = [t for partial in exact.partials if (t := _tally(exact, partial, values)) is not None]
    if len(tallies) < len(exact.partials) or not values.fit:
        return None
    least, greatest = ("MIN(u)", "MAX(u)") if coded is None else ("0", "0")
    known, head = [f"COUNT(*) AS n, {least} AS u_low, {greatest} AS u_high"], ""
    ends = [(f"{f}({name})", f"{name}_{at}") for name in names for f, at in (("MIN", "low"), ("MAX", "high"))]
    if exact.domain is None:
        columns = [f"CAST({key.name} AS {key.type}) AS {key.name}" for key in exact.keys]
        columns += [f"{t.sql} AS {t.name}" if t.rows is not None else t.name for t in tallies]
        final = f"SELECT {', '.join([*columns, UNITS_COLUMN])} FROM {packed.PACKED_TOTALS}"
        routes = [PackedRoute(names, rows, final)]
        known += [f"{sql} AS {name}" for sql, name in ends]
    else:
        listed = f"WITH domain AS ({exact.domain.sql}), listed AS (SELECT DISTINCT * FROM domain)"
        routes, head = [], f"{listed} "
        known.append(
            "(SELECT COUNT(*) FROM listed) AS listed, 0 AS code_low, (SELECT COUNT(*) - 1 FROM listed) AS code_high"
        )
        if (
            whole and not exact.domain.nullable
        ):  # integers without gaps are their own codes; NULL is no integer
            on = " AND ".join(f"{packed.PACKED_TOTALS}.{name} = listed.{name}" for name in names)
            routes.append(
                PackedRoute(names, rows, f"{listed} {_all_groups(names, tallies, 'listed', on)}", dense=True)
            )
            known += [f"(SELECT {sql} FROM listed) AS {name}" for sql, name in ends]
        # Groups of any type are numbered in the order of their values.
        numbered = f"{listed}, codes AS (SELECT row_number() OVER (ORDER BY {', '.join(names)}) - 1 AS code, * FROM listed)"
        source = f"{numbered} SELECT * FROM ({rows}) AS rows JOIN codes ON {exact.domain.joins(exact.keys, 'rows', 'codes')}"
        final = _all_groups(names, tallies, "codes", f"{packed.PACKED_TOTALS}.code = codes.code")
        routes.append(PackedRoute(("code",), source, f"{numbered} {final}"))
    ranges = f"{head}SELECT {', '.join(known)} FROM ({rows}) AS rows"
    shared, groups = None, kept
    if total is not None:
        shared, groups = (exact.rows_in_group, total), total // exact.rows_in_group
    route = packed.PackedAggregation(
        ranges, tuple(routes), tuple(values.packed), tuple(tallies), UNITS_COLUMN, groups, shared, coded
    )
    wide = write_coded_unit(bound.source) if kind == "BIGINT" and exact.keys else None
    return route if wide is None else replace(route, wide=replace(route, coded=wide))


def write_coded_unit(source: exp.Expr) -> CodedUnit | None:
    """Return how the codes of a source's units are made; None where these are not a table's column as it is."""
    tables = list(source.find_all(exp.Table))
    inner = tables[0].find_ancestor(exp.Select) if len(tables) == 1 else None
    if inner is None or source.find(exp.SetOperation) is not None:
        return None
    named = [item for item in source.find_all(exp.Alias) if item.alias == UNIT]
    own = next((item.this for item in named if item.parent is inner), None)
    if not all(isinstance(item.this, exp.Column) for item in named) or not isinstance(own, exp.Column):
        return None
    table, column = to_sql(tables[0]), to_sql(own)
    place = tuple(part.name for part in tables[0].parts), own.name
    return CodedUnit(
        f"SELECT hash(rows.u) AS h FROM (SELECT DISTINCT {column} AS u FROM {table} WHERE {column} IS NOT NULL) AS rows",
        f"SELECT COUNT(*) AS n FROM {table} WHERE {column} IS NOT NULL",
        place,
    )


def _all_groups(names: Sequence[str], tallies: Iterable[packed.UnitTotal], groups: str, on: str) -> str:
    totals = [(t.sql if t.rows is not None else f"{packed.PACKED_TOTALS}.{t.name}", t.name) for t in tallies]
    totals.append((f"{packed.PACKED_TOTALS}.{UNITS_COLUMN}", UNITS_COLUMN))
    columns = [
        *(f"{groups}.{name}" for name in names),
        *(f"COALESCE({sql}, 0) AS {name}" for sql, name in totals),
    ]
    return f"SELECT {', '.join(columns)} FROM {groups} LEFT JOIN {packed.PACKED_TOTALS} ON {on}"


def _tally(exact: Exact, partial: Partial, values: packed.PackedValues) -> packed.UnitTotal | None:
    """Return how a partial is had from the packed values; a value that is only counted is added to them."""
    rows = 1 if partial.fixed else exact.rows_in_group
    low, high = partial.low * rows, partial.high * rows
    weighing = partial.weighing
    most, scale = (None, 1) if weighing is None else (rows, weighing.scale)
    if partial.adds is not None:
        y, least, greatest, centre = partial.adds
        place = values.add_held(y, least, greatest)
        return packed.UnitTotal(partial.name, low, high, place, True, centre + 1 - least, most, scale)
    if partial.inner == "COUNT(*)":
        return packed.UnitTotal(partial.name, low, high)
    found = _PRESENT.match(partial.inner)
    if found is None:
        return None
    place = values.add_present(found[1])
    return packed.UnitTotal(partial.name, low, high, place, rows=most, scale=scale)
