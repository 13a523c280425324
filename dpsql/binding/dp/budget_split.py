"""The split of a block's epsilon and delta, within what the owner allows one query, and the caps on one unit's rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from sqlglot import exp

from dpsql.binding import public_statement
from dpsql.binding.relations.relation import From
from dpsql.errors import BindError, BudgetExceeded, PrivacyError
from dpsql.language.dialect import bind_error, privacy_error, span_of, to_sql
from dpsql.language.functions import NO_NOISY_FORM
from dpsql.language.options import AUTO, Options
from dpsql.mechanisms.per_group import GroupSelector
from dpsql.mechanisms.renyi_selection import make_group_selector
from dpsql.numerics.exact_numbers import round_significant, write_number
from dpsql.policy.model import Budget
from dpsql.privacy.accountants import RuleAccountant, suggest_delta
from dpsql.privacy.amounts import Amount
from dpsql.privacy.conversions import find_largest_rho, gaussian_mu
from dpsql.privacy.events import Event, GroupSelection
from dpsql.privacy.filters import ACCOUNTANTS, open_filter

if TYPE_CHECKING:
    from dpsql.binding.relations.catalog import Binder, Catalog


def require_rows(
    bound: From, options: Options, place: exp.Expr | None,
    hint: str = "write OPTIONS (max_rows_contributed = AUTO) to find it privately, or ask the owner for max_rows.",
) -> int:  # fmt: skip
    """Return how many rows of one unit count where nothing is grouped: the whole is one group.

    Raises:
        PrivacyError: nothing bounds them.
    """
    if bound.row_level:
        return 1
    refuse_auto(options, "max_rows_contributed")
    refuse_auto(options, "max_rows_per_group")
    rows = min((n for n in bound.row_caps(options) if n is not None), default=None)
    if rows is None:
        unbounded = f"nothing bounds how many rows of {bound.subject} one privacy unit has."
        raise privacy_error(place, unbounded, hint)
    return int(rows)


def find_groups(bound: From, options: Options, place: exp.Expr | None) -> int | None:
    """Return the cap on the groups of one unit; None where the cap on its rows in all bounds them.

    Raises:
        PrivacyError: nothing bounds them.
    """
    if bound.row_level:
        return 1
    refuse_auto(options, "max_groups_contributed")
    groups: int | None = options.get("max_groups_contributed", bound.max_groups)
    rows = options.get("max_rows_contributed", bound.max_rows)
    if groups is None and not isinstance(rows, int):
        what = "nothing says how many groups one privacy unit may be in."
        hint = "write OPTIONS (max_groups_contributed = AUTO) to find it privately, or ask the owner for max_rows."
        raise privacy_error(place, what, hint)
    return groups


def refuse_auto(options: Options, name: str) -> None:
    """Refuse AUTO where a cap has to be known before anything is answered.

    Raises:
        PrivacyError: AUTO is asked for.
    """
    if options.get(name) == AUTO:
        what = f"{name} = AUTO is for counts, sums and what is made of them, in SELECT WITH DP."
        raise options.refuse(name, what, "write a number instead of AUTO.", PrivacyError)


def _without(options: Options, select: exp.Select) -> str:
    """Return what needs a delta here."""
    if options.get("noise") == "GAUSSIAN":
        return "Gaussian noise"
    return "private groups" if select.args.get("group") is not None else "an answer that is tested first"


def _hint(binder: Binder, grouped: bool) -> str:
    """Return what to write instead, with a delta that is sized from what is left for it."""
    catalog = binder.catalog
    left = catalog.delta_left() if catalog.delta_left else catalog.policy.budget.mechanism_delta
    delta = suggest_delta(left)
    if not delta:
        declared = ": declare the groups' values in the policy." if grouped else "."
        return f"no delta is left for it{declared}"
    return f"write OPTIONS (delta = {write_number(delta)})" + (
        ", or declare the groups' values in the policy." if grouped else "."
    )


@dataclass
class BudgetShare:
    """The block's epsilon and delta, and how they are dealt out."""

    whole: Amount
    delta: Fraction
    amounts: list[Amount]
    delta_parts: int
    apart: Amount | None = None
    """The amount that is set apart for something beside the answers."""

    @property
    def epsilon(self) -> Fraction:
        """The whole of a block that was given an epsilon."""
        return _as_epsilon(self.whole)

    @property
    def parts(self) -> list[Fraction]:
        """The shares of a block that was given an epsilon."""
        return [_as_epsilon(amount) for amount in self.amounts]

    @property
    def delta_part(self) -> Fraction:
        """One of the equal parts of delta."""
        return self.delta / max(self.delta_parts, 1)


def _as_epsilon(amount: Amount) -> Fraction:
    if amount.currency != "epsilon":
        raise AssertionError("a mechanism that knows epsilon only was given another currency")
    return amount.total


class Priced(Protocol):
    """A mechanism with a loss."""

    @property
    def event(self) -> Event:
        """Its loss."""
        ...


def price_of(build: Callable[[Fraction], Priced]) -> Callable[[Fraction], Event]:
    """Return the loss of what ``build`` makes of an epsilon."""
    return lambda epsilon: build(epsilon).event


_LARGEST_EPSILON = Fraction(10**9)
"""No epsilon above this but the policy's own default: exp(-epsilon) is 0 to every purpose long before."""


def within_limit(budget: Budget, epsilon: Fraction, asked: exp.Expr | None) -> None:
    """Refuse what is over the policy's limit per query, pointing at where it was asked for.

    Raises:
        BudgetExceeded: with the largest epsilon that may be asked for, as text to paste.
    """
    per_query, what = budget.max_epsilon_per_query, "per query"
    largest = max(_LARGEST_EPSILON, budget.default_epsilon or Fraction(0))
    if per_query is None and epsilon > largest:  # less than this may still cost less than it asks for
        per_query, what = min(budget.epsilon, largest), "in all"
    if per_query is not None and epsilon > per_query:
        most = write_number(per_query, up=False)
        shown = f"ε={float(epsilon):g}" if epsilon < 10**300 else "more ε than numbers go"
        raise BudgetExceeded(
            f"this query asks for {shown}; the policy allows ε={most} {what}.",
            span=span_of(asked), hint=f"write epsilon = {most}.",
        )  # fmt: skip


def within_limits(catalog: Catalog, asked: Amount, place: exp.Expr | None) -> None:
    """Refuse a mu or a rho that the session can't count, or whose epsilon at the budget's delta is over the limit per query.

    Raises:
        PrivacyError: the accountant sums epsilon alone.
        BudgetExceeded: the owner allows one query less.
    """
    budget, held = catalog.policy.budget, ACCOUNTANTS[catalog.accountant]
    if asked.currency == "epsilon":
        within_limit(budget, asked.total, place)
        return
    epsilon = asked.bound_epsilon(budget.at_delta)
    if not held.has_rule or not (budget.delta or budget.own):
        why = f"the accountant {held.name} does" if not held.has_rule else "a budget without delta does"
        # A small mu or rho is within delta alone, and an epsilon of 0 can't be asked for.
        least = Fraction(math.sqrt(asked.total)) if asked.currency == "mu" else asked.total
        about = write_number(round_significant(max(epsilon, least), 2, up=True))
        raise privacy_error(
            place, f"{why} not count in {asked.currency}.",
            f"write epsilon = {about}" + (f", delta = {write_number(suggest_delta(budget.delta))}" if budget.delta else "")
            + f", or ask the owner for {_OWNERS[asked.currency]}.",
        )  # fmt: skip
    most = budget.max_epsilon_per_query
    if most is not None and epsilon > most:
        raise BudgetExceeded(
            f"{asked} is ε={write_number(epsilon)} at δ={write_number(budget.at_delta)}; the policy allows "
            f"ε={write_number(most, up=False)} per query.",
            span=span_of(place), hint=f"write {asked.currency} = {_find_largest(asked.currency, most, budget.at_delta)}.",
        )  # fmt: skip


_OWNERS = {"mu": 'accountant = "gdp"', "rho": 'accountant = "zcdp" with a delta'}
"""The lines that an owner writes for a session that counts in a currency."""


def _find_largest(currency: str, epsilon: Fraction, delta: Fraction) -> str:
    """Return the largest mu or rho, to three digits, that comes to at most this epsilon."""
    exact = find_largest_rho(epsilon, delta) if currency == "rho" else gaussian_mu(epsilon, delta)
    return write_number(round_significant(exact, 3), up=False)


def choose_declared_delta(budget: Budget, options: Options) -> Fraction:
    """Return the delta of the pair that basic composition adds for Gaussian noise asked for in mu or rho."""
    written = options.get("delta") or budget.default_delta
    return Fraction(written or suggest_delta(budget.at_delta))


def deal(
    binder: Binder, options: Options, select: exp.Select,
    shares: Sequence[tuple[Fraction | None, exp.Expr | None]], deltas: int, apart: Fraction = Fraction(0),
) -> BudgetShare:  # fmt: skip
    """Deal the block's epsilon: named shares first, the rest in equal parts; and checks the owner's limits.

    A part of the whole may be set ``apart`` before that.

    Raises:
        PrivacyError: there is no epsilon or no delta to deal.
        BindError: the named shares add up to more than the block's epsilon.
        BudgetExceeded: the block asks for more than the policy allows one query.
    """
    budget = binder.catalog.policy.budget
    named = [share for share, _ in shares if share is not None]
    open_parts = len(shares) - len(named)
    asked = options.amount
    if asked is not None and asked.currency != "epsilon":
        if named:
            place = next(n for s, n in shares if s is not None)
            what = f"shares are parts of an epsilon, and this block has a {asked.currency}."
            raise bind_error(place or select, what, f"leave epsilon out: {asked} is split evenly.")
        within_limits(binder.catalog, asked, options.nodes.get(asked.currency))
        delta = _find_delta(binder, options, select) if deltas else Fraction(0)
        held = Amount(asked.currency, asked.total * apart)
        left = Amount(asked.currency, asked.total - held.total)
        return BudgetShare(asked, delta, [left / len(shares)] * len(shares), deltas, held)
    epsilon = options.get("epsilon")
    if epsilon is None:
        epsilon = sum(named, Fraction(0)) / (1 - apart) if not open_parts else binder.catalog.default_epsilon
    if epsilon is None:
        what = "this needs an epsilon: the policy sets no default."
        hint = "add epsilon = 0.1 to OPTIONS."
        if not options.values:
            given = f"WITH {options.mode.upper()}" if options.mode_node is not None else "SELECT"
            hint = f"write {'SELECT WITH DP' if given == 'SELECT' else given} OPTIONS (epsilon = 0.1) instead of {given}."
        first = select.expressions[0] if select.expressions else select
        raise privacy_error(options.mode_node, what, hint, around=first)
    if "epsilon" not in options.values and open_parts and binder.catalog.epsilon is None:
        binder.notes.append(f"ε={float(epsilon):g} is the policy's default")
    place = next((n for s, n in shares if s and n is not None), None)
    within_limit(budget, epsilon, options.nodes.get("epsilon") or place)
    held = Amount("epsilon", epsilon * apart)
    rest = epsilon - held.total - sum(named, Fraction(0))
    if rest < 0 or (rest == 0 and open_parts):
        what = f"Epsilon overconsumption: the shares add up to {float(sum(named)):g} of ε={float(epsilon):g}"
        if apart:
            what += f", and ε={write_number(held.total)} is set apart for what is cut"
        what += ", and nothing is left for the rest." if rest == 0 else "."
        span = next((span_of(node) for share, node in shares if share is not None), None)
        raise BindError(what, span=span, hint="lower the shares, or raise the epsilon of the block.")
    parts = [share if share is not None else rest / open_parts for share, _ in shares]
    delta = _find_delta(binder, options, select) if deltas else Fraction(0)
    amounts = [Amount("epsilon", part) for part in parts]
    return BudgetShare(Amount("epsilon", epsilon), delta, amounts, deltas, held)


def _find_delta(binder: Binder, options: Options, select: exp.Select) -> Fraction:
    delta = options.get("delta", binder.catalog.policy.budget.default_delta)
    if not delta:
        raise PrivacyError(
            f"this needs a delta: {_without(options, select)} can't be released without one.",
            span=span_of(options.nodes.get("delta")) or span_of(options.mode_node)
            or span_of(select.args.get("group")) or span_of(select),
            hint=_hint(binder, select.args.get("group") is not None),
        )  # fmt: skip
    return Fraction(delta)


def choose_selector(
    options: Options, units: str, catalog: Catalog, amount: Amount, delta: Fraction, groups: int
) -> GroupSelector:
    """Return the mechanism that chooses a block's private groups, the one of these that keeps most.

    With ``group_selection_strategy = OPTIMAL``, the default, that is the optimum for one decision where a unit is in one or
    two groups, and where it may be in more a table that is accounted for all of them together, see
    :mod:`dpsql.mechanisms.renyi_selection`. Whatever the session sums (divergences of fixed orders, rho or mu), the table has no
    more of it than even shares of epsilon would have: a statement is admitted wherever it was. Which one it is depends on
    the statement and on the policy's budget, on no data and not on what was spent.

    Args:
        options: of the block.
        units: the column with the number of units in each group.
        catalog: with the session's accountant and budget.
        amount: what the choice may lose.
        delta: its delta.
        groups: groups that one unit may be in.
    """
    epsilon = amount.find_epsilon(lambda e: GroupSelection(e, delta, groups))
    strategy = (options.get("group_selection_strategy") or "OPTIMAL").lower()
    minimum = options.get("min_privacy_units_per_group", 1)
    shared = GroupSelector(units, epsilon, delta, groups, strategy, minimum)
    budget, has_rule = catalog.policy.budget, ACCOUNTANTS[catalog.accountant].has_rule
    orders: tuple[Fraction, ...] = ()
    if has_rule and budget.own is None and amount.currency == "epsilon":
        whole = budget.epsilon, budget.delta, budget.mechanism_delta_share
        opened = open_filter(catalog.accountant, *whole)
        orders = opened.orders if isinstance(opened, RuleAccountant) and len(opened.orders) == 1 else ()
    return make_group_selector(shared, has_rule and not orders, orders)


# -- aggregates without a noisy form -----------------------------------------------------------------------------

_NAMES: dict[type[exp.Expr], str] = {
    exp.ArrayAgg: "LIST",
    exp.GroupConcat: "STRING_AGG",
    exp.LogicalOr: "BOOL_OR",
    exp.LogicalAnd: "BOOL_AND",
    exp.BitwiseAndAgg: "BIT_AND",
    exp.BitwiseOrAgg: "BIT_OR",
    exp.BitwiseXorAgg: "BIT_XOR",
    exp.ArgMax: "ARG_MAX",
    exp.ArgMin: "ARG_MIN",
}
_ELSEWHERE = "write an aggregate that has one, such as a sum, a mean or a quantile."
_COUNTED = "group by its values, and count the rows of each."
_TYPICAL = "write MEDIAN({x}): it is a value in the middle; a mode, under PTR, is the most common one."
_INSTEAD = {
    **dict.fromkeys(
        ("LIST", "STRING_AGG", "MAP_AGG", "JSON_GROUP_ARRAY", "BITSTRING_AGG", "APPROX_TOP_K"), _COUNTED
    ),
    **dict.fromkeys(("FIRST", "LAST", "ANY_VALUE", "ARBITRARY"), _TYPICAL),
    **dict.fromkeys(
        ("ARG_MAX", "ARG_MIN"),
        "the row of an extreme is one person's: group by it, and order the groups by a mean.",
    ),
    "BOOL_OR": "write COUNT_IF({x}) > 0: the noisy count may be compared freely.",
    "BOOL_AND": "write COUNT_IF(NOT {x}) <= 0: the noisy count may be compared freely.",
    "RESERVOIR_QUANTILE": "write QUANTILE_CONT({x}, 0.5).",
    **dict.fromkeys(("FSUM", "KAHAN_SUM", "SUMKAHAN"), "write SUM({x}): it is exact before the noise."),
    **dict.fromkeys(("GROUPING", "GROUPING_ID"), "without ROLLUP, CUBE or GROUPING SETS it is 0 everywhere."),
    "FAVG": "write AVG({x}).",
    "IQR": "write SELECT WITH STABLE IQR({x}), or QUANTILE_CONT({x}, 0.75) - QUANTILE_CONT({x}, 0.25).",
    "TRIMMED_MEAN": "write SELECT WITH STABLE TRIMMED_MEAN({x}, 0.1).",
}


def refuse_elsewhere(node: exp.Expr) -> None:
    """Refuse an aggregate that has no noisy form, and say what to write.

    Raises:
        PrivacyError: always for such an aggregate; never for another node.
    """
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls | exp.Filter | exp.WithinGroup):
        node = node.this
    if isinstance(node, exp.AggFunc):
        name = _NAMES.get(type(node), node.sql_name())
    elif isinstance(node, exp.Anonymous) and node.name.upper() in {*_INSTEAD, *NO_NOISY_FORM}:
        name = node.name.upper()
    else:
        return
    argument = node.this if isinstance(node.this, exp.Expr) else next(iter(node.expressions), None)
    if isinstance(argument, exp.Distinct):
        argument = argument.expressions[0]
    if isinstance(argument, exp.Order):
        argument = argument.this
    plain = isinstance(argument, exp.Column | exp.Binary | exp.Paren) and not argument.find(
        exp.Query, exp.AggFunc
    )
    shown = to_sql(argument) if plain and isinstance(argument, exp.Expr) else "x"
    shown = shown if len(shown) <= 60 else "x"
    written = node.meta.get("called", name).upper() if isinstance(node, exp.AggFunc) else name
    select = node.find_ancestor(exp.Select)
    hint = _INSTEAD.get(name, _ELSEWHERE).format(x=shown)
    if name not in _INSTEAD and isinstance(node, exp.AggFunc):
        mode = select.args.get("mode") if select is not None else None
        given = "SELECT" if mode is None else f"SELECT WITH {mode.name}"
        hint = f"write SELECT WITH SUBSAMPLE instead of {given}: it takes this aggregate, on blocks of privacy units."
    by, whole = node.args.get("expression"), None
    if select is not None and shown != "x" and _INSTEAD.get(name) is _COUNTED:
        whole = public_statement.write_over_rows(select, f"{shown}, COUNT(*)", f"GROUP BY {shown}")
    elif select is not None and shown != "x" and name in ("ARG_MAX", "ARG_MIN") and isinstance(by, exp.Expr):
        after = f"GROUP BY {shown} ORDER BY 2{' DESC' if name == 'ARG_MAX' else ''} LIMIT 1"
        whole = public_statement.write_over_rows(select, f"{shown}, AVG({to_sql(by)})", after)
    if whole is not None:
        counts = (
            "it counts how often each value occurs" if by is None else "the row of an extreme is one person's"
        )
        hint = f"write {whole}: {counts}."
    raise privacy_error(node, f"{written} has no noisy form.", hint)
