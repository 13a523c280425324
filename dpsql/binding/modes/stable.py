"""SELECT WITH STABLE: medians, quantiles, spreads, modes and trimmed means by inverse sensitivity.

An answer is chosen among public ones by the number of rows to add or remove to make it the exact one. So it is as near
as the data allow, without a test that may fail: pure epsilon, no delta, never NULL. MEDIAN and the quantiles are those
of mode DP, whose score, the distance in rank, is minus that number (times a public constant); MODE chooses by counts,
which only grow with rows, so each row may weigh twice as much.

Otherwise it is a noisy block: with its groups, which must be public, its caps on a unit's rows and groups, and the
clauses above it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import ClassVar

from sqlglot import exp

from dpsql.binding.dp.aggregates import Aggregate, AggregateCall
from dpsql.binding.dp.grouping_sets import has_sets
from dpsql.binding.dp.noisy_aggregates import NOISY_AGGREGATES
from dpsql.binding.dp.noisy_block import NoisyBlock
from dpsql.binding.dp.private_block import AggregatingBlock, name_unnoised
from dpsql.binding.dp.row_queries import choose_points, split_quantiles, write_points
from dpsql.binding.values import fixed_point as grids
from dpsql.catalogue.aggregate_names import names_of
from dpsql.language import options as opt
from dpsql.language.dialect import bind_error, privacy_error, to_sql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.inverse_sensitivity import (
    EditedStatistic,
    InverseSensitivity,
    Spread,
    TrimmedMean,
)

_FINEST = 1 << 15
"""About the least number of answers between the bounds, for a statistic between values."""


def _spread(asked: AggregateCall) -> Aggregate:
    asked.call.require(1)
    return _edited(asked, lambda grid: Spread())


def _trimmed_mean(asked: AggregateCall) -> Aggregate:
    """Bind ``TRIMMED_MEAN(x, p)``, which cuts off the fraction p at each end."""
    asked.call.require(2, "give the part that is cut off at each end after the value, such as 0.1.")
    place = asked.call.args[1]
    part = opt.read_number(place, "the trimmed part")
    if not 0 <= part < Fraction(1, 2):
        hint = f"write TRIMMED_MEAN({asked.source()}, 0.1): a tenth is cut off at each end."
        raise bind_error(place, "the trimmed part must be at least 0 and below 0.5.", hint)

    def between(grid: grids.Grid) -> EditedStatistic:
        finer = 1
        while (grid.high - grid.low) * finer < _FINEST and grid.high > grid.low:
            finer *= 2
        return TrimmedMean(part, finer)

    return _edited(asked, between)


def _edited(asked: AggregateCall, statistic_on: Callable[[grids.Grid], EditedStatistic]) -> Aggregate:
    """Bind a statistic with known distances to other answers, on the grid of its column."""
    call = asked.call
    asked.refuse_distinct()
    asked.refuse_group_bounds()
    asked.require_rows()
    typed = asked.block.expression(call.args[0])
    low, high, origin = asked.bounds(typed)
    grid = choose_points(typed.type, low, high)
    steps = (grids.write_steps(typed, grid, narrow) for narrow in (False, True))
    y, narrow = (asked.block.filtered(call, to_sql(node)) for node in steps)
    statistic, exact = statistic_on(grid), asked.exact

    def part(epsilon: Fraction) -> InverseSensitivity:
        query, column = write_points(exact, y, narrow, grid, asked.groups)
        return InverseSensitivity(
            query,
            exact.names,
            asked.name,
            statistic,
            grid.low,
            grid.high,
            epsilon,
            exact.rows_per_unit,
            asked.groups,
            Fraction(grid.steps),
            column,
            exact.budgeted,
        )

    said = (
        f"{statistic.describe()}, of {asked.source()} clamped to [{float(low):g}, {float(high):g}] ({origin})"
    )
    return asked.make("DOUBLE", said, part=part, intervals=False)


STABLE_AGGREGATES: Mapping[str, Callable[[AggregateCall], Aggregate]] = {
    "IQR": _spread,
    "TRIMMED_MEAN": _trimmed_mean,
    **{name: NOISY_AGGREGATES[name] for name in NOISY_AGGREGATES if name in names_of("STABLE")},
}
"""The statistics of mode STABLE, one row each."""


@dataclass
class StableBlock(NoisyBlock):
    """A block of answers by inverse sensitivity."""

    known: ClassVar[Mapping[str, Callable[[AggregateCall], Aggregate]]] = STABLE_AGGREGATES

    def bind(self) -> None:
        if has_sets(self.select):
            hint = "write one SELECT for each grouping set, or SELECT WITH DP."
            group = self.select.args["group"]
            raise privacy_error(group, "STABLE has no grouping sets.", hint, around=self.select)
        super().bind()

    def _check_strategy(self) -> None:
        group = self.select.args.get("group")
        if self.keys and self.domain is None:
            what = "STABLE needs public groups: private ones would need a delta."
            hint = "ask the owner to declare the column's values, or join a public table and keep all of its rows."
            raise privacy_error(group or self.select, what, hint, around=self.select)

    def above(self, node: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        """Return a list of quantiles unchanged, and other nodes as any block does."""
        call = None if isinstance(node, exp.Window) else opt.call_of(node)
        name = name_unnoised(node) if call is None else call.name
        if call is not None and name in self.known:
            if listed := split_quantiles(node, call):
                return exp.Array(expressions=[self.above(one, aliases) for one in listed])
        elif name in names_of("DP") or (name_unnoised(node) and not isinstance(node.parent, exp.Window)):
            noisy = name in names_of("DP")
            other = "SELECT WITH DP answers it" if noisy else "SELECT WITH SUBSAMPLE takes any query"
            hint = f"{other}; STABLE knows {', '.join(self.known)}."
            raise privacy_error(node, f"{name} is not known with STABLE.", hint)
        return AggregatingBlock.above(self, node, aliases)

    def build_operator(self) -> None:
        if not self.asked:
            hint = f"STABLE knows {', '.join(self.known)}."
            raise privacy_error(self.select, "this SELECT has no statistic to answer.", hint)
        super().build_operator()
