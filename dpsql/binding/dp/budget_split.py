"""The split of a block's epsilon and delta, within what the owner allows one query, and the caps on one unit's rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from sqlglot import exp

from dpsql.binding.relations.relation import From, find_least
from dpsql.errors import BindError, BudgetExceeded, PrivacyError, Span
from dpsql.exact.exact_query import UNITS_COLUMN
from dpsql.language.dialect import bind_error, privacy_error, span_of, to_sql
from dpsql.language.options import AUTO, Options
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.per_group import GroupSelector, make_group_selector
from dpsql.numerics.exact_numbers import round_significant, write_number
from dpsql.policy.model import Budget
from dpsql.privacy.accountants import RuleAccountant, suggest_delta
from dpsql.privacy.amounts import Amount
from dpsql.privacy.conversions import find_largest_rho, gaussian_mu
from dpsql.privacy.events import Event, GroupSelection
from dpsql.privacy.filters import ACCOUNTANTS, open_filter

if TYPE_CHECKING:
    from dpsql.binding.relations.binder import Binder
    from dpsql.binding.relations.catalog import Catalog


def require_rows(
    bound: From,
    options: Options,
    place: exp.Expr | None,
    hint: str = "write OPTIONS (max_rows_contributed = AUTO) to find it privately, or ask the owner for max_rows.",
) -> int:
    """Return the number of rows of one unit that count without groups; PrivacyError if nothing bounds them."""
    if bound.row_level:
        return 1
    refuse_auto(options, "max_rows_contributed")
    refuse_auto(options, "max_rows_per_group")
    rows = find_least(*bound.row_caps(options))
    if rows is None:
        unbounded = f"{bound.subject} needs a limit on the rows of one privacy unit."
        raise privacy_error(place, unbounded, hint)
    return int(rows)


def find_groups(bound: From, options: Options, place: exp.Expr | None) -> int | None:
    """Return the cap on the groups of one unit; None if the cap on its rows in all bounds them, PrivacyError if none does."""
    if bound.row_level:
        return 1
    refuse_auto(options, "max_groups_contributed")
    groups: int | None = options.get("max_groups_contributed", bound.max_groups)
    rows = options.get("max_rows_contributed", bound.max_rows)
    if groups is None and not isinstance(rows, int):
        what = "this needs a limit on the groups of one privacy unit."
        hint = "write OPTIONS (max_groups_contributed = AUTO) to find it privately, or ask the owner for max_rows."
        raise privacy_error(place, what, hint)
    return groups


def refuse_auto(options: Options, name: str) -> None:
    """Raise PrivacyError for AUTO if a cap has to be known before the answer."""
    if options.get(name) == AUTO:
        what = f"{name} = AUTO is for counts, sums and formulas of them, in SELECT WITH DP."
        raise options.refuse(name, what, "write a number instead of AUTO.", private=True)


@dataclass
class BudgetShare:
    """The block's epsilon and delta, and their shares."""

    whole: Amount
    delta: Fraction
    amounts: list[Amount]
    delta_parts: int
    apart: Amount | None = None
    """The amount that is set apart for a report with the answers."""

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


def divide_for_answers(
    place: exp.Expr | None, epsilon: Fraction, answer: bool | None, shares: tuple[Fraction, ...] | None
) -> tuple[Fraction, Fraction]:
    """Return the epsilons of the comparisons and of fresh answers: the third share, or half; 0 without answers.

    Raises:
        BindError: there is not a share for each stage.
    """
    if shares is not None and (len(shares) == 3) != bool(answer):
        stages = "threshold, the questions and the answers" if answer else "threshold and the questions"
        hint = "write (0.2, 0.3, 0.5) with answer, (0.3, 0.7) without."
        raise bind_error(place, f"budget_split has a share for each of the {stages}.", hint)
    if not answer:
        return epsilon, Fraction(0)
    answers = epsilon / 2 if shares is None else epsilon * shares[2]
    return epsilon - answers, answers


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
    """Raise BudgetExceeded, with the largest epsilon that is allowed, for more than the policy's limit per query."""
    per_query, scope = budget.max_epsilon_per_query, "per query"
    largest = max(_LARGEST_EPSILON, budget.default_epsilon or Fraction(0))
    if per_query is None and epsilon > largest:  # less than this may still cost less than it asks for
        per_query, scope = min(budget.epsilon, largest), "in all"
    if per_query is not None and epsilon > per_query:
        most = write_number(per_query, up=False)
        shown = f"ε={float(epsilon):g}" if epsilon < 10**300 else "an ε above all numbers"
        what = f"this query asks for {shown}; the policy allows ε={most} {scope}."
        raise BudgetExceeded(what, span=span_of(asked), hint=f"write epsilon = {most}.")


def within_limits(catalog: Catalog, asked: Amount, place: exp.Expr | None) -> None:
    """Refuse a mu or a rho that the session can't count, or whose epsilon at the budget's delta is over the limit per query.

    Raises:
        PrivacyError: the accountant sums epsilon alone.
        BudgetExceeded: the owner allows less for one query.
    """
    budget, accountant = catalog.policy.budget, ACCOUNTANTS[catalog.accountant]
    if asked.currency == "epsilon":
        within_limit(budget, asked.total, place)
        return
    epsilon = asked.bound_epsilon(budget.at_delta)
    if not accountant.has_rule or not (budget.delta or budget.own):
        who = "a budget without delta" if accountant.has_rule else f"the accountant {accountant.name}"
        # A small mu or rho is within delta alone, and an epsilon of 0 can't be asked for.
        least = Fraction(math.sqrt(asked.total)) if asked.currency == "mu" else asked.total
        about = write_number(round_significant(max(epsilon, least), 2, up=True))
        delta = f", delta = {write_number(suggest_delta(budget.delta))}" if budget.delta else ""
        hint = f"write epsilon = {about}{delta}, or ask the owner for {_OWNERS[asked.currency]}."
        raise privacy_error(place, f"{who} does not count in {asked.currency}.", hint)
    most = budget.max_epsilon_per_query
    if most is not None and epsilon > most:
        at = budget.at_delta
        allowed = f"the policy allows ε={write_number(most, up=False)} per query."
        what = f"{asked} is ε={write_number(epsilon)} at δ={write_number(at)}; {allowed}"
        exact = find_largest_rho(most, at) if asked.currency == "rho" else gaussian_mu(most, at)
        hint = f"write {asked.currency} = {write_number(round_significant(exact, 3), up=False)}."
        raise BudgetExceeded(what, span=span_of(place), hint=hint)


_OWNERS = {"mu": 'accountant = "gdp"', "rho": 'accountant = "zcdp" with a delta'}
"""The lines that an owner writes for a session that counts in a currency."""


def choose_declared_delta(budget: Budget, options: Options) -> Fraction:
    """Return the delta of the pair that basic composition adds for Gaussian noise asked for in mu or rho."""
    written = options.get("delta") or budget.default_delta
    return Fraction(written or suggest_delta(budget.at_delta))


def deal(
    binder: Binder,
    options: Options,
    select: exp.Select,
    shares: Sequence[tuple[Fraction | None, exp.Expr | None]],
    deltas: int,
    apart: Fraction = Fraction(0),
) -> BudgetShare:
    """Divide the block's epsilon, without the part ``apart``: named shares first, the rest in equal parts.

    Raises:
        PrivacyError: there is no epsilon or no delta to divide.
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
        reserved = Amount(asked.currency, asked.total * apart)
        left = Amount(asked.currency, asked.total - reserved.total)
        return BudgetShare(asked, delta, [left / len(shares)] * len(shares), deltas, reserved)
    epsilon = options.get("epsilon")
    if epsilon is None:
        epsilon = sum(named, Fraction(0)) / (1 - apart) if not open_parts else binder.catalog.default_epsilon
    if epsilon is None:
        what = "this needs an epsilon: the policy sets no default."
        first = select.expressions[0] if select.expressions else select
        hint = f"{_how_to_add('epsilon = 0.1', options, select)}."
        raise privacy_error(options.mode_node, what, hint, around=select.meta.get("pivot", first))
    if "epsilon" not in options.values and open_parts and binder.catalog.epsilon is None:
        binder.notes.append(f"ε={float(epsilon):g} is the policy's default")
    place = next((n for s, n in shares if s and n is not None), None)
    within_limit(budget, epsilon, options.nodes.get("epsilon") or place)
    reserved = Amount("epsilon", epsilon * apart)
    rest = epsilon - reserved.total - sum(named, Fraction(0))
    if rest < 0 or (rest == 0 and open_parts):
        what = f"Epsilon overconsumption: the shares add up to {float(sum(named)):g} of ε={float(epsilon):g}"
        if apart:
            what += f", and ε={write_number(reserved.total)} is reserved for the report of cuts"
        what += ", and nothing is left for the rest." if rest == 0 else "."
        span = next((span_of(node) for share, node in shares if share is not None), None)
        raise BindError(what, span=span, hint="lower the shares, or raise the epsilon of the block.")
    parts = [share if share is not None else rest / open_parts for share, _ in shares]
    delta = _find_delta(binder, options, select) if deltas else Fraction(0)
    amounts = [Amount("epsilon", part) for part in parts]
    return BudgetShare(Amount("epsilon", epsilon), delta, amounts, deltas, reserved)


def _how_to_add(option: str, options: Options, select: exp.Select) -> str:
    if options.values:
        return f"add {option} to OPTIONS"
    if "pivot" in select.meta:
        return f"write SELECT WITH DP OPTIONS ({option}) * FROM {to_sql(select.meta['pivot'])}"
    if span_of(options.mode_node) is None:
        return f"write SELECT WITH DP OPTIONS ({option}) instead of SELECT"
    given = f"WITH {options.mode.upper()}"
    return f"write {given} OPTIONS ({option}) instead of {given}"


def _find_delta(binder: Binder, options: Options, select: exp.Select) -> Fraction:
    catalog, group = binder.catalog, select.args.get("group")
    if delta := options.get("delta", catalog.policy.budget.default_delta):
        return Fraction(delta)
    suggested, declare = _suggest_delta(catalog), "declare the groups' values in the policy"
    hint = "no delta is left for it" + (f": {declare}." if group is not None else ".")
    if suggested:
        hint = _how_to_add(f"delta = {write_number(suggested)}", options, select) + (
            f", or {declare}." if group is not None else "."
        )
    user = "private groups" if group is not None else "an answer that is tested first"
    user = "Gaussian noise" if options.get("noise") == "GAUSSIAN" else user
    what = f"this needs a delta: {user} can't be released without one."
    places = (options.nodes.get("delta"), options.mode_node, group, select)
    raise PrivacyError(what, span=next(filter(None, map(span_of, places)), None), hint=hint)


def _suggest_delta(catalog: Catalog) -> Fraction:
    """Return the delta that a refusal proposes: a part of the rest; 0 if nothing is left."""
    left = catalog.delta_left() if catalog.delta_left else catalog.policy.budget.mechanism_delta
    return suggest_delta(left)


def require_declared_delta(options: Options, catalog: Catalog, span: Span | None, what: str) -> Fraction:
    """Return the delta of a DECLARE; PrivacyError if there is none."""
    delta: Fraction | None = options.get("delta", catalog.policy.budget.default_delta)
    if delta:
        return delta
    suggested = _suggest_delta(catalog)
    hint = f"write OPTIONS (delta = {write_number(suggested)})." if suggested else "no delta is left for it."
    raise PrivacyError(what, span=span_of(options.nodes.get("delta")) or span, hint=hint)


def find_declared_amount(options: Options, catalog: Catalog, span: Span | None, hint: str) -> Amount:
    """Return the loss of a DECLARE, within the owner's limit; PrivacyError if none is given."""
    asked, default = options.amount, catalog.default_epsilon
    if asked is None and default is not None:
        asked = Amount("epsilon", default)
    if asked is None:
        raise PrivacyError("this needs an epsilon.", span=span, hint=hint)
    within_limits(catalog, asked, options.nodes.get(asked.currency))
    return asked


def choose_selector(
    options: Options, catalog: Catalog, amount: Amount, delta: Fraction, groups: int
) -> GroupSelector:
    """Return the mechanism that chooses a block's private groups: the one that keeps most groups.

    With ``group_selection_strategy = OPTIMAL``, the default, that is the optimum for one decision if a unit is in one or
    two groups; for more, it is a table that is accounted for all of them together (:mod:`dpsql.mechanisms.per_group`).
    In the session's currency (divergences of fixed orders, rho or mu), the table costs no more than even shares of epsilon
    would. The choice depends on the statement and the policy's budget, not on data or on the budget spent.

    Args:
        options: of the block.
        catalog: with the session's accountant and budget.
        amount: the loss of the choice.
        delta: its delta.
        groups: groups that one unit may be in.
    """
    epsilon = amount.find_epsilon(lambda e: GroupSelection(e, delta, groups))
    strategy = (options.get("group_selection_strategy") or "OPTIMAL").lower()
    minimum = options.get("min_privacy_units_per_group", 1)
    shared = GroupSelector(UNITS_COLUMN, epsilon, delta, groups, strategy, minimum)
    budget, has_rule = catalog.policy.budget, catalog.has_rule
    orders: tuple[Fraction, ...] = ()
    if has_rule and budget.own is None and amount.currency == "epsilon":
        whole = budget.epsilon, budget.delta, budget.mechanism_delta_share
        opened = open_filter(catalog.accountant, *whole)
        orders = opened.orders if isinstance(opened, RuleAccountant) and len(opened.orders) == 1 else ()
    return make_group_selector(shared, has_rule and not orders, orders)
