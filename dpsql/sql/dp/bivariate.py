"""COVAR_POP, COVAR_SAMP, CORR and the REGR_ functions: noisy moments of two columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.errors import BindError, PrivacyError
from dpsql.mechanisms import additive, bivariate
from dpsql.sql.dp.aggregates import (
    Aggregate,
    Bounded,
    NoiseOf,
    bounds_of,
    deviation,
    parts_of_a_row,
    range_text,
    rows_bounded,
    say_weighing,
    sum_of_products,
    total_about,
)
from dpsql.sql.exact.exact_query import Partial, Weighing
from dpsql.sql.expressions import fixed_point as grids
from dpsql.sql.parse.dialect import span_of, to_sql
from dpsql.sql.parse.options import Call

if TYPE_CHECKING:
    from dpsql.sql.dp.block import Block

_SQUARES = {
    "corr": (True, True),
    "regr_r2": (True, True),
    "regr_slope": (False, True),
    "regr_intercept": (False, True),
}
"""Which of y and x need a sum of squares."""


def _pair(kind: str) -> Callable[[Block, Call, str, dict[str, Any]], Aggregate]:
    def bind(block: Block, call: Call, name: str, options: dict[str, Any]) -> Aggregate:
        y, x = _columns(block, call, options)
        dy, dx = deviation(y, y.centre), deviation(x, x.centre)
        ends = [p * q for p in (y.grid.low - y.centre, y.grid.high - y.centre)
                for q in (x.grid.low - x.centre, x.grid.high - x.centre)]  # fmt: skip
        farthest = max(max(item.grid.high - item.centre, item.centre - item.grid.low) ** 2 for item in (y, x))
        weighing = block.exact.weighing(y.y, farthest)  # y is there where x is: both are weighed alike
        count = block.exact.partial(f"COUNT({y.y})", 0, 1, weighing=weighing)
        product = block.exact.partial(
            sum_of_products(dy, dx), min(0, *ends), max(0, *ends), weighing=weighing
        )
        squares = [
            _squares(block, item, weighing) if wanted else None
            for item, wanted in zip((y, x), _SQUARES.get(kind, (False, False)), strict=True)
        ]
        parts = 4 + sum(item is not None for item in squares)

        def build(noise: NoiseOf) -> additive.Output:
            axes = [
                bivariate.Axis(
                    item.grid.steps, Fraction(item.centre) / item.grid.steps,
                    (Fraction(item.grid.low) / item.grid.steps, Fraction(item.grid.high) / item.grid.steps),
                    noise(total_about(block, item, item.centre, weighing), parts),
                    None if partial is None else noise(partial, parts),
                )
                for item, partial in zip((y, x), squares, strict=True)
            ]  # fmt: skip
            return bivariate.Pair(
                name,
                kind,
                noise(count, parts),
                axes[0],
                axes[1],
                noise(product, parts),
                parts_of_a_row(weighing),
            )

        for item in (y, x):
            total_about(block, item, item.centre, weighing)
        said = " and ".join(
            f"{block.source(arg)} held to {range_text(item)} ({item.origin})"
            for arg, item in zip(call.args, (y, x), strict=True)
        )
        return Aggregate(
            name, call, options.get("epsilon"), build, "DOUBLE", block.label(call),
            f"{call.name} from {parts} noisy moments, {said}{say_weighing(block, weighing)}", options.get("report_format"),
        )  # fmt: skip

    return bind


def _columns(block: Block, call: Call, options: dict[str, Any]) -> tuple[Bounded, Bounded]:
    """Both columns on their grids, missing where either is.

    Raises:
        BindError: not two numbers, or bounds per group. PrivacyError: no bounds, of values or of a unit's rows.
    """
    if len(call.args) != 2:
        raise BindError(f"{call.name} takes two arguments.", span=span_of(call.node))
    if call.distinct:
        raise PrivacyError(
            f"{call.name}(DISTINCT ...) has no bounded sensitivity here.",
            span=span_of(call.node),
            hint=f"write {call.name} without DISTINCT.",
        )
    if options.get("contribution_bounds_per_group") is not None:
        raise BindError(f"{call.name} takes bounds per row only.", span=span_of(call.node))
    rows_bounded(block, call)
    items = []
    for place in call.args:
        typed = block.expression(place)
        low, high, origin = bounds_of(block, call, options, typed, place)
        grid = grids.coarsen_for_products(grids.choose_grid(typed.type, low, high), low, high)
        items.append(Bounded(typed, to_sql(grids.write_steps(typed, grid)), grid, False, origin))
    both = " AND ".join(f"({item.y}) IS NOT NULL" for item in items)
    if call.where is not None:
        both = f"({to_sql(block.condition(call.where).node)}) AND {both}"
    y, x = (replace(item, y=block.exact.value(f"CASE WHEN {both} THEN {item.y} END")) for item in items)
    return y, x


def _squares(block: Block, item: Bounded, weighing: Weighing | None) -> Partial:
    away = deviation(item, item.centre)
    most = max(item.grid.high - item.centre, item.centre - item.grid.low) ** 2
    return block.exact.partial(sum_of_products(away, away), 0, most, weighing=weighing)


TABLE: dict[str, Callable[[Any, Call, str, dict[str, Any]], Aggregate]] = {
    kind.upper(): _pair(kind) for kind in bivariate.KINDS
}
