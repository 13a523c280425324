"""From a bound block to its operator: the shares of the budget, the noise, the exact queries, the columns."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql import plan
from dpsql.errors import PrivacyError
from dpsql.mechanisms import additive, partition
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.together import Part, Together
from dpsql.sql.dialect import span_of
from dpsql.sql.noisy.aggregates import Aggregate
from dpsql.sql.noisy.deal import Share, deal
from dpsql.sql.noisy.packing import packed
from dpsql.sql.noisy.quantiles import quantile_parts
from dpsql.sql.rewrite import UNITS, Partial

if TYPE_CHECKING:
    from dpsql.sql.noisy.block import Block


def release(block: Block) -> None:
    """Deals out the budget, makes the operator, and gives the block to the plan."""
    aggregates = list(block.aggregates.values())
    private = bool(block.keys) and block.domain is None
    if not aggregates and not private:
        raise PrivacyError(
            "there is nothing noisy to release here.",
            span=span_of(block.select),
            hint="add an aggregate, such as COUNT(*): "
            + (
                "these groups are public, they all appear."
                if block.keys
                else "rows themselves are not shown."
            ),
        )
    gaussian = block.options.get("noise") == "GAUSSIAN"
    noisy = sum(item.build is not None for item in aggregates) if gaussian else 0
    wanted: list[tuple[Fraction | None, exp.Expr | None]] = [(a.share, a.call.node) for a in aggregates]
    wanted += [(None, None)] * private
    share = deal(block.binder, block.options, block.select, wanted, noisy + private)
    operator = _operator(block, aggregates, share, private, gaussian)
    columns = [(key.name, key.type) for key in block.keys.values()]
    for item in aggregates:
        columns.append((item.name, item.type))
        if item.intervals:
            columns += [(f"{item.name}__low", "DOUBLE"), (f"{item.name}__high", "DOUBLE")]
    domain = block.domain.inputs if block.domain is not None else ()
    inputs = tuple(dict.fromkeys((*block.bound.inputs, *block.binder.lent_inputs, *domain)))
    block.binder.blocks.append(
        plan.Block(
            block.name, operator, tuple(columns), inputs, block.sentences(aggregates), block.confidence
        )
    )


def _operator(
    block: Block, aggregates: list[Aggregate], share: Share, private: bool, gaussian: bool
) -> Operator:
    outputs = []
    asked = []
    ladders: list[Part] = []
    for item, epsilon in zip(aggregates, share.parts, strict=False):
        if item.build is not None:
            outputs.append(
                item.build(_noise(block, epsilon, share.delta / max(share.delta_parts, 1), gaussian))
            )
        elif item.auto is not None:
            ladders.append(item.auto(epsilon))
        else:
            asked.append((item, epsilon))
    selection = None
    if private:
        selection = partition.GroupSelection(
            UNITS, share.parts[-1], share.delta / share.delta_parts, block.per_unit_groups,
            (block.options.get("group_selection_strategy") or "OPTIMAL").lower(),
            block.options.get("min_privacy_units_per_group", 1),
        )  # fmt: skip
    keys = tuple(key.name for key in block.keys.values())
    parts: tuple[Part, ...] = (*quantile_parts(block.exact, keys, asked, block.per_unit_groups), *ladders)
    if not outputs and not keys:
        return Together(None, parts)
    aggregation = additive.Aggregation(
        block.exact.sql(), keys, tuple(outputs), selection, block.confidence,
        packed(block.exact) if not parts else None,  # parts bound contributions as the query does
    )  # fmt: skip
    return Together(aggregation, parts) if parts else aggregation


def _noise(
    block: Block, epsilon: Fraction, delta: Fraction, gaussian: bool
) -> Callable[[Partial, int], additive.Statistic]:
    """Makes a partial noisy with one of so many equal parts of the aggregate's share."""
    groups = 1 if block.exact.row_budget is not None else block.per_unit_groups

    def make(partial: Partial, parts: int) -> additive.Statistic:
        sensitivity = max(1, block.exact.sensitivity(partial))
        count = block.per_unit_groups if partial.fixed else groups
        noise: additive.LaplaceNoise | additive.GaussianNoise
        if gaussian:
            noise = additive.GaussianNoise.calibrate(epsilon / parts, delta / parts, sensitivity, count)
        else:
            noise = additive.LaplaceNoise(epsilon / parts, sensitivity, count)
        return additive.Statistic(partial.name, noise)

    return make
