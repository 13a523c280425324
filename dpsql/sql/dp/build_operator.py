"""From a bound block to its operator: the noise, the exact queries, and the packed route to the same totals."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.mechanisms import group_selection
from dpsql.mechanisms.additive_noise import GaussianNoise, LaplaceNoise, Statistic
from dpsql.mechanisms.aggregation import Aggregation, Part, Together
from dpsql.mechanisms.base import SALT, Operator
from dpsql.mechanisms.fast.packed_aggregation import (
    PACKED_TOTALS,
    PackedAggregation,
    PackedRoute,
    PackedValue,
    UnitTotal,
)
from dpsql.sql.dp.aggregates import Aggregate
from dpsql.sql.dp.budget_split import Share, deal
from dpsql.sql.dp.own_queries import quantile_parts
from dpsql.sql.exact.exact_query import UNITS_COLUMN, Exact, Partial, equality_operator
from dpsql.sql.normalize import label_of
from dpsql.sql.parse.dialect import privacy_error
from dpsql.sql.relations.unit_rows import WHOLE_UNIT_TYPES

if TYPE_CHECKING:
    from dpsql.sql.dp.block import Block


def release(block: Block) -> None:
    """Deal out the budget, make the operator, and give the block to the plan."""
    aggregates = [item for item in block.asked.values() if isinstance(item, Aggregate)]
    private = bool(block.keys) and block.domain is None
    if not aggregates and not private:
        why = "these groups are public, they all appear." if block.keys else "rows themselves are not shown."
        raise privacy_error(
            block.select,
            "there is nothing noisy to release here.",
            f"add an aggregate, such as COUNT(*): {why}",
        )
    gaussian = block.options.get("noise") == "GAUSSIAN"
    noisy = sum(item.build is not None for item in aggregates) if gaussian else 0
    shares: list[tuple[Fraction | None, exp.Expr | None]] = [(a.share, a.call.node) for a in aggregates]
    share = deal(
        block.binder, block.options, block.select, shares + [(None, None)] * private, noisy + private
    )
    operator = _operator(block, aggregates, share, private, gaussian)
    sentences = block.sentences(tuple(f"{label_of(a.call)}: {a.said}." for a in aggregates))
    block.binder.add_block(
        block.name, operator, block.released, block.bound.inputs, sentences, block.confidence
    )


def _operator(
    block: Block, aggregates: list[Aggregate], share: Share, private: bool, gaussian: bool
) -> Operator:
    dealt = list(zip(aggregates, share.parts, strict=False))
    outputs = tuple(
        a.build(_noise(block, epsilon, share.delta_part, gaussian))
        for a, epsilon in dealt
        if a.build is not None
    )
    selection = None
    if private:
        selection = group_selection.GroupSelection(
            UNITS_COLUMN, share.parts[-1], share.delta_part, block.per_unit_groups,
            (block.options.get("group_selection_strategy") or "OPTIMAL").lower(),
            block.options.get("min_privacy_units_per_group", 1),
        )  # fmt: skip
    keys = tuple(key.name for key in block.keys.values())
    parts: tuple[Part, ...] = (
        *quantile_parts(block.exact, keys, dealt, block.per_unit_groups),
        *(a.part(epsilon) for a, epsilon in dealt if a.part is not None),
    )
    if not outputs and not keys:
        return Together(None, parts)
    aggregation = Aggregation(
        block.exact.sql(), keys, outputs, selection, block.confidence,
        packed(block.exact) if not parts else None,  # parts bound contributions as the query does
    )  # fmt: skip
    return Together(aggregation, parts) if parts else aggregation


def _noise(
    block: Block, epsilon: Fraction, delta: Fraction, gaussian: bool
) -> Callable[[Partial, int], Statistic]:
    """Return what makes a partial noisy with one of so many equal parts of the aggregate's share."""
    groups = 1 if block.exact.row_budget is not None else block.per_unit_groups

    def make(partial: Partial, parts: int) -> Statistic:
        sensitivity = max(1, block.exact.sensitivity(partial))
        count = block.per_unit_groups if partial.fixed else groups
        noise: LaplaceNoise | GaussianNoise
        if gaussian:
            noise = GaussianNoise.calibrate(epsilon / parts, delta / parts, sensitivity, count)
        else:
            noise = LaplaceNoise(epsilon / parts, sensitivity, count)
        return Statistic(partial.name, noise)

    return make


# -- the packed route -------------------------------------------------------------------------------------------

Held = tuple[str, int, int]
"""A value, and the bounds that it is held to."""
_PRESENT = re.compile(r"COUNT\((y\d+)\)\Z")


def packed(exact: Exact) -> PackedAggregation | None:
    """Return the packed route to the same totals, or None where the block has no such shape.

    It takes one table whose unit is a small integer, and no groups, public ones of any type or private ones of integers,
    and aggregates that count rows or add clamped values: what a GROUP BY would spend its time on.
    """
    bound = exact.bound
    plain = not bound.joins and not any(isinstance(n, exp.Join | exp.Group) for n in bound.source.walk())
    if (
        bound.unit is None
        or exact.row_budget is not None
        or not plain
        or bound.unit_type is None
        or bound.unit_type.sql not in WHOLE_UNIT_TYPES
        or SALT in exact.rows(inside=False)  # rows that are chosen by a secret hash are read once
    ):
        return None
    whole = all(key.type in WHOLE_UNIT_TYPES for key in exact.keys)
    if exact.domain is None and not whole:
        return None
    adds = [p.adds for p in exact.partials if p.adds is not None]
    values = {(y, low, high): PackedValue(_held(y, low, high), high - low + 1) for y, low, high, _ in adds}
    made = [_tally(exact, partial, values) for partial in exact.partials]
    tallies = [tally for tally in made if tally is not None]
    if len(tallies) < len(made):
        return None
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
    return PackedAggregation(
        ranges, tuple(routes), tuple(values.values()), tuple(tallies), UNITS_COLUMN, exact.groups
    )


_CODE = "code"
_LISTED = "listed AS (SELECT DISTINCT * FROM domain)"
_BOTH = (("MIN", "low"), ("MAX", "high"))


def _ends(name: str) -> str:
    return ", ".join(f"{end}({name}) AS {name}_{at}" for end, at in _BOTH)


def _private(exact: Exact, tallies: list[UnitTotal]) -> PackedRoute:
    """Private groups of integers, or no groups."""
    columns = [f"CAST({key.name} AS {key.type}) AS {key.name}" for key in exact.keys]
    columns += [f"{t.sql} AS {t.name}" if t.rows is not None else t.name for t in tallies]
    final = f"SELECT {', '.join([*columns, UNITS_COLUMN])} FROM {PACKED_TOTALS}"
    return PackedRoute(tuple(key.name for key in exact.keys), exact.rows(inside=False), final)


def _public(exact: Exact, tallies: list[UnitTotal]) -> PackedRoute:
    """Public groups that are integers without gaps: they are their own codes."""
    names = tuple(key.name for key in exact.keys)
    on = " AND ".join(f"{PACKED_TOTALS}.{name} = listed.{name}" for name in names)
    head = f"WITH domain AS ({exact.domain}), {_LISTED}"
    return PackedRoute(
        names, exact.rows(inside=False), f"{head} {_all_groups(exact, tallies, 'listed', on)}", dense=True
    )


def _coded(exact: Exact, tallies: list[UnitTotal]) -> PackedRoute:
    """Public groups of any type, numbered in the order of their values."""
    listed = ", ".join(key.name for key in exact.keys)
    codes = f"codes AS (SELECT row_number() OVER (ORDER BY {listed}) - 1 AS {_CODE}, * FROM listed)"
    head = f"WITH domain AS ({exact.domain}), {_LISTED}, {codes}"
    on = " AND ".join(
        f"rows.{key.name} {equality_operator(exact.nullable)} codes.{key.name}" for key in exact.keys
    )
    source = f"{head} SELECT * FROM ({exact.rows(inside=False)}) AS rows JOIN codes ON {on}"
    final = _all_groups(exact, tallies, "codes", f"{PACKED_TOTALS}.{_CODE} = codes.{_CODE}")
    return PackedRoute((_CODE,), source, f"{head} {final}")


def _all_groups(exact: Exact, tallies: list[UnitTotal], groups: str, on: str) -> str:
    columns = [f"{groups}.{key.name}" for key in exact.keys]
    totals = [(t.sql if t.rows is not None else f"{PACKED_TOTALS}.{t.name}", t.name) for t in tallies]
    columns += [
        f"COALESCE({sql}, 0) AS {name}"
        for sql, name in (*totals, (f"{PACKED_TOTALS}.{UNITS_COLUMN}", UNITS_COLUMN))
    ]
    return f"SELECT {', '.join(columns)} FROM {groups} LEFT JOIN {PACKED_TOTALS} ON {on}"


def _held(y: str, low: int, high: int) -> str:
    """Return a value clamped to its bounds, counted from 1, without branch or division; 0 where there is none."""
    return f"COALESCE((ABS({y} - ({low})) - ABS({y} - ({high})) + {high - low + 2}) >> 1, 0)"


def _tally(exact: Exact, partial: Partial, values: dict[Held, PackedValue]) -> UnitTotal | None:
    """Return how a partial is had from the packed values; a value that is only counted is added to them."""
    rows = 1 if partial.fixed else exact.max_rows
    if rows is None:
        return None
    low, high = partial.low * rows, partial.high * rows
    weighing = partial.weighing
    most, scale = (None, 1) if weighing is None else (rows, weighing.scale)
    if partial.adds is not None:
        held, centre = partial.adds[:3], partial.adds[3]
        return UnitTotal(
            partial.name, low, high, list(values).index(held), True, centre + 1 - held[1], most, scale
        )
    if partial.inner == "COUNT(*)":
        return UnitTotal(partial.name, low, high)
    found = _PRESENT.match(partial.inner)
    if found is None:
        return None
    y = found[1]
    held = next((known for known in values if known[0] == y), (y, 0, 0))
    values.setdefault(held, PackedValue(f"CASE WHEN {y} IS NULL THEN 0 ELSE 1 END", 1))
    return UnitTotal(partial.name, low, high, list(values).index(held), rows=most, scale=scale)
