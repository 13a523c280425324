"""How a block's epsilon and delta are dealt out, within what the owner allows one query.

From a bound block to its operator: the shares of the budget, the noise, the exact queries, the columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql import plan
from dpsql.errors import BindError, BudgetExceeded, PrivacyError
from dpsql.mechanisms import additive, group_selection
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.composite import Part, Together
from dpsql.numerics.rounding import text
from dpsql.policy.model import Budget
from dpsql.privacy.accountants import suggest_delta
from dpsql.sql.dp.aggregates import Aggregate
from dpsql.sql.dp.packed_route import packed
from dpsql.sql.dp.quantiles import quantile_parts
from dpsql.sql.exact.exact_query import UNITS_COLUMN, Partial
from dpsql.sql.parse.dialect import span_of
from dpsql.sql.parse.options import Options

if TYPE_CHECKING:
    from dpsql.sql.dp.block import Block
    from dpsql.sql.relations.context import Binder


def _without(options: Options, select: exp.Select) -> str:
    """What needs a delta here."""
    if options.get("noise") == "GAUSSIAN":
        return "Gaussian noise"
    return "private groups" if select.args.get("group") is not None else "an answer that is tested first"


def _hint(binder: Binder, grouped: bool) -> str:
    """What to write instead, with a delta that is sized from what is left for it."""
    catalog = binder.catalog
    left = catalog.delta_left() if catalog.delta_left else catalog.policy.budget.mechanism_delta
    delta = suggest_delta(left)
    if not delta:
        declared = ": declare the groups' values in the policy." if grouped else "."
        return f"no delta is left for it{declared}"
    return f"write OPTIONS (delta = {text(delta)})" + (
        ", or declare the groups' values in the policy." if grouped else "."
    )


@dataclass
class Share:
    """The block's epsilon and delta, and how they are dealt out."""

    epsilon: Fraction
    delta: Fraction
    parts: list[Fraction]
    delta_parts: int


def within_limit(budget: Budget, epsilon: Fraction, asked: exp.Expr | None) -> None:
    """Refuses what is over the policy's limit per query, pointing at where it was asked for."""
    limit = budget.max_epsilon_per_query
    if limit is not None and epsilon > limit:
        raise BudgetExceeded(
            f"this query asks for ε={float(epsilon):g}; the policy allows ε={float(limit):g} per query.",
            span=span_of(asked),
            hint=f"epsilon = {float(limit):g} would fit.",
        )


def deal(
    binder: Binder, options: Options, select: exp.Select,
    shares: list[tuple[Fraction | None, exp.Expr | None]], deltas: int,
) -> Share:  # fmt: skip
    """Deals the block's epsilon: named shares first, the rest in equal parts; and checks the owner's limits.

    Raises:
        PrivacyError: there is no epsilon or no delta to deal.
        BindError: the named shares add up to more than the block's epsilon.
        BudgetExceeded: the block asks for more than the policy allows one query.
    """
    budget = binder.catalog.policy.budget
    named = [share for share, _ in shares if share is not None]
    open_parts = len(shares) - len(named)
    epsilon = options.get("epsilon")
    if epsilon is None:
        epsilon = sum(named, Fraction(0)) if not open_parts else binder.catalog.default_epsilon
    if epsilon is None:
        raise PrivacyError(
            "this needs an epsilon: the policy sets no default.",
            span=span_of(options.mode_node)
            or span_of(select.expressions[0] if select.expressions else select),
            hint="write SELECT WITH DP OPTIONS (epsilon = 0.1) ...",
        )
    if "epsilon" not in options.values and open_parts:
        binder.notes.append(f"ε={float(epsilon):g} is the policy's default")
    place = next((n for s, n in shares if s and n is not None), None)
    within_limit(budget, epsilon, options.nodes.get("epsilon") or place)
    rest = epsilon - sum(named, Fraction(0))
    if rest < 0 or (rest == 0 and open_parts):
        raise BindError(
            f"Epsilon overconsumption: the shares add up to {float(sum(named)):g} of ε={float(epsilon):g}"
            + (", and nothing is left for the rest." if rest == 0 else "."),
            span=next((span_of(node) for share, node in shares if share is not None), None),
            hint="lower the shares, or raise the epsilon of the block.",
        )
    parts = [share if share is not None else rest / open_parts for share, _ in shares]
    delta = Fraction(0)
    if deltas:
        delta = options.get("delta", budget.default_delta)
        if not delta:
            raise PrivacyError(
                f"this needs a delta: {_without(options, select)} can't be released without one.",
                span=span_of(options.nodes.get("delta")) or span_of(options.mode_node)
                or span_of(select.args.get("group")) or span_of(select),
                hint=_hint(binder, select.args.get("group") is not None),
            )  # fmt: skip
    return Share(epsilon, Fraction(delta), parts, deltas)


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
        selection = group_selection.GroupSelection(
            UNITS_COLUMN, share.parts[-1], share.delta / share.delta_parts, block.per_unit_groups,
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
