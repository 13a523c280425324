"""How a block's epsilon and delta are dealt out, within what the owner allows one query."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import BindError, BudgetExceeded, PrivacyError
from dpsql.policy import Budget
from dpsql.privacy.rounding import text
from dpsql.privacy.spent import sensible_delta
from dpsql.sql.dialect import span_of
from dpsql.sql.options import Options

if TYPE_CHECKING:
    from dpsql.sql.binder import Binder


def _without(options: Options, select: exp.Select) -> str:
    """What needs a delta here."""
    if options.get("noise") == "GAUSSIAN":
        return "Gaussian noise"
    return "private groups" if select.args.get("group") is not None else "an answer that is tested first"


def _hint(binder: Binder, grouped: bool) -> str:
    """What to write instead, with a delta that is sized from what is left for it."""
    catalog = binder.catalog
    left = catalog.delta_left() if catalog.delta_left else catalog.policy.budget.mechanism_delta
    delta = sensible_delta(left)
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
        epsilon = sum(named, Fraction(0)) if not open_parts else budget.default_epsilon
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
