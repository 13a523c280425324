"""The figures of a budget: the guarantee and the charges, as curves, errors, groups and sums side by side.

They use the currency of the session. For a budget in mu, or a session that only the Gaussian rule can admit, the curve is
``G_mu`` itself. k people together have k times mu; rho grows with the square of k. All figures are floats for display,
computed from exact sums; the filters decide charges.

A ledger of a million statements has few distinct prices, so figures are computed from these without walking it again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.late_dataclass import dataclass
from dpsql.numerics.exact_numbers import compute_root, write_number
from dpsql.privacy import conversions
from dpsql.privacy.accountants import Accountant, RuleAccountant, Spent
from dpsql.privacy.events import Event, PureDP
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.privacy.pld import compute_loss, find_cost
from dpsql.privacy.tradeoff import BesideDelta, TradeOff, from_epsilon_delta, from_profile, gaussian
from dpsql.report.tables import Figures

if TYPE_CHECKING:
    from dpsql.ledger.ledger import Ledger


PrivacyProfile = Callable[[float], float]
"""Delta as a function of epsilon: smaller is more private."""

_ORDERS = tuple(1 + 10 ** (k / 16 - 3) for k in range(112))


def approximate_profile(epsilon: float, delta: float) -> PrivacyProfile:
    """Return the profile that (epsilon, delta) alone guarantees: randomised response, and with probability delta everything."""

    def profile(x: float) -> float:
        inside = max(0.0, -math.expm1(min(0.0, x - epsilon))) / (1 + math.exp(-epsilon))
        return min(1.0, delta + (1 - delta) * inside)

    return profile


def concentrated_profile(rho: float, delta: float = 0.0) -> PrivacyProfile:
    """Return the profile of rho-zCDP (Canonne, Kamath and Steinke 2020, Prop. 12), plus a delta."""

    def profile(x: float) -> float:
        if rho == 0:
            return delta
        least = min(
            (a - 1) * (a * rho - x) + a * math.log1p(-1 / a) - math.log(a - 1)
            for a in (*_ORDERS, max(1.0001, (x + rho) / (2 * rho)))
        )
        return min(1.0, delta + math.exp(min(0.0, least)))

    return profile


def gaussian_profile(mu: float) -> PrivacyProfile:
    """Return the profile of mu-GDP (Dong, Roth and Su 2022, Cor. 1)."""

    def tail(x: float) -> float:
        return math.erfc(x / math.sqrt(2)) / 2

    def profile(x: float) -> float:
        if mu == 0:
            return 0.0
        second = tail(x / mu + mu / 2)
        return max(0.0, tail(x / mu - mu / 2) - (math.exp(x + math.log(second)) if second > 0 else 0.0))

    return profile


def spent_profile(charged: Charges) -> PrivacyProfile:
    """Return the best profile of three sums over the charges: pure, zCDP, Gaussian."""
    epsilon, both = charged.add_up_pairs()
    profiles = [approximate_profile(epsilon, min(1.0, both))]
    delta = float(charged.add_up(lambda e: e.delta))
    profiles.append(concentrated_profile(float(charged.add_up(lambda e: e.rho)), min(1.0, delta)))
    if delta == 0:
        profiles.append(gaussian_profile(math.sqrt(charged.add_up(lambda e: e.mu**2))))
    return lambda x: min(profile(x) for profile in profiles)


def compute_tradeoff(profile: PrivacyProfile, epsilon: float, points: int = 101) -> list[tuple[float, float]]:
    """Compute the least type II error for each type I error: the upper hull of the profile's supporting lines."""
    span = min(max(4 * epsilon, 4.0), 60.0)
    curve = from_profile(profile, (span * (i / 120) ** 2 for i in range(121)))
    return [(i / (points - 1), min(1.0, curve(i / (points - 1)))) for i in range(points)]


def compute_certainty(epsilon: float) -> float:
    """Compute the highest certainty about one bit of one unit, after even odds: e^ε / (1 + e^ε).

    >>> f"{compute_certainty(0):.0%} {compute_certainty(1):.0%}"
    '50% 73%'
    """
    return 1 / (1 + math.exp(-epsilon))


def certainty_text(share: float) -> str:
    """Format a certainty for display; never rounded up to 100%.

    >>> certainty_text(0.731), certainty_text(0.9526), certainty_text(0.99999)
    ('73%', '95.3%', 'over 99.9%')
    """
    if share > 0.999:
        return "over 99.9%"
    return f"{share:.1%}" if share > 0.95 else f"{share:.0%}"


def compute_group_loss(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """Compute the loss of ``size`` units together: k·ε and δ·(e^{kε} - 1)/(e^ε - 1), at most 1.

    >>> compute_group_loss(1.0, 0.0, 3)
    (3.0, 0.0)
    """
    if delta == 0 or size == 1:
        return size * epsilon, delta
    if epsilon == 0:
        return 0.0, min(1.0, size * delta)
    ratio = math.log(-math.expm1(-size * epsilon)) - math.log(-math.expm1(-epsilon))
    return size * epsilon, math.exp(min(0.0, math.log(delta) + (size - 1) * epsilon + ratio))


ALPHAS = (0.01, 0.05, 0.1)
"""The type I errors with a least type II error in reports."""
PEOPLE = 5
"""Largest group of privacy units in reports."""
_MOST_EPSILON = 500.0
"""Larger epsilons hide nothing; their curves are drawn at this one."""


@dataclass(frozen=True)
class BudgetLoss:
    """A loss, promised or spent, in the session's currency.

    Args:
        currency: ``"epsilon"``, ``"mu"`` or ``"rho"``.
        amount: the epsilon, mu or rho.
        delta: probability of the event outside which the loss holds.
        profile: a sharper profile than the amount's, if one is known.
    """

    currency: str
    amount: float
    delta: float
    profile: PrivacyProfile | None = None

    @property
    def curve(self) -> TradeOff:
        """The trade-off curve: ``G_mu`` in closed form, other currencies by their profile."""
        if self.currency == "mu":
            curve = gaussian(self.amount)
            return BesideDelta(curve, self.delta) if self.delta else curve
        if self.profile is None and self.currency == "epsilon":
            return from_epsilon_delta(min(self.amount, _MOST_EPSILON), self.delta)
        span = min(max(8 * self.profile_span, 4.0), 60.0)
        return from_profile(self.find_profile(), (span * (i / 120) ** 2 for i in range(121)))

    @property
    def profile_span(self) -> float:
        """The epsilon up to which the profile changes noticeably."""
        return self.amount if self.currency == "epsilon" else self.amount + math.sqrt(2 * self.amount)

    def find_profile(self) -> PrivacyProfile:
        """Return delta as a function of epsilon."""
        if self.profile is not None:
            return self.profile
        if self.currency == "epsilon":
            return approximate_profile(self.amount, self.delta)
        if self.currency == "rho":
            return concentrated_profile(self.amount, self.delta)
        inner, outside = gaussian_profile(self.amount), self.delta
        return lambda x: outside + (1 - outside) * inner(x)

    def group(self, k: int) -> BudgetLoss:
        """Return the loss of k units: k epsilon, k mu, k squared rho; with a delta, only :meth:`group_curve` is known."""
        if self.currency == "epsilon":
            epsilon, delta = compute_group_loss(self.amount, self.delta, k)
            return BudgetLoss("epsilon", epsilon, delta)
        return BudgetLoss(self.currency, self.amount * (k if self.currency == "mu" else k * k), self.delta)

    def group_curve(self, k: int) -> TradeOff:
        """Return the trade-off curve of k units together."""
        outside = self.currency != "epsilon" and self.delta
        return self.curve.group(k) if k > 1 and outside else self.group(k).curve

    @property
    def certainty(self) -> float:
        """The highest certainty about one unit after even odds.

        For an epsilon it is the posterior e^ε / (1 + e^ε). Under mu and rho rare answers may reveal more, so it is the
        probability that the best test is right, 1/2 + TV/2, which is Φ(μ/2).
        """
        if self.currency == "epsilon":
            return compute_certainty(self.amount)
        return min(1.0, 0.5 + self.find_profile()(0.0) / 2)

    def pair(self, k: int, at_delta: float) -> tuple[float | None, float | None]:
        """Return epsilon and delta of k units, mu and rho converted at ``at_delta``; with a delta, only a curve is known."""
        together = self.group(k)
        if self.currency == "epsilon":
            return together.amount, together.delta
        if self.delta and k > 1:
            return None, None
        amount, at = Fraction(together.amount), Fraction(at_delta)
        if self.currency == "mu":
            epsilon = conversions.gaussian_epsilon(amount, at)
        else:
            epsilon = conversions.find_smallest_epsilon(amount, at)
        return float(epsilon), at_delta + self.delta


def find_promise(ledger: Ledger, charges: Charges) -> BudgetLoss:
    """Return the loss that the whole budget guarantees.

    A budget in mu or rho guarantees that amount. So does gdp if the first statement had no pure loss: it was chosen before any
    answer, and after it the plain sum admits nothing in any continuation, so only the rule admits statements. Otherwise the
    pair (epsilon, delta) is proved.
    """
    held = ledger.accountant
    first = charges.first
    alone = held.promises_rule or (held.speaks and first is not None and first.epsilon is None)
    if alone and isinstance(held, RuleAccountant):
        return BudgetLoss(held.currency, float(held.own_amount(held.limit)), float(held.aside))
    return BudgetLoss("epsilon", float(held.epsilon), float(held.delta))


def find_rule_curve(ledger: Ledger, promise: BudgetLoss) -> TradeOff | None:
    """Return the curve of the rule's limit, if the promise is of another kind; else None."""
    held = ledger.accountant
    if not held.speaks or not isinstance(held, RuleAccountant) or promise.currency == held.currency:
        return None
    return BudgetLoss(held.currency, float(held.own_amount(held.limit)), float(held.aside)).curve


def find_spent(ledger: Ledger, charges: Charges) -> BudgetLoss:
    """Return the charges so far in the session's currency, as the loss of a list fixed in advance."""
    held = ledger.accountant
    charged = charges.counted_by(held)
    if held.speaks:
        outside = min(1.0, float(charged.add_up(lambda e: e.delta)))
        if held.currency == "mu":
            return BudgetLoss("mu", math.sqrt(charged.add_up(lambda e: e.mu**2)), outside)
        return BudgetLoss("rho", float(charged.add_up(lambda e: e.rho)), outside)
    epsilon, delta = charged.add_up_pairs()
    return BudgetLoss("epsilon", epsilon, min(1.0, delta), spent_profile(charged))


def list_curve(ledger: Ledger, spent: bool) -> Figures:
    """Return columns and rows of ``SHOW TRADEOFF``, and of ``SHOW TRADEOFF SPENT``."""
    charges = count_charges(ledger)
    loss = (find_spent if spent else find_promise)(ledger, charges)
    curves = [loss.curve]
    names = ["type_i_error", "type_ii_error"]
    rule = None if spent else find_rule_curve(ledger, loss)
    if rule is not None:
        curves.append(rule)
        names.append("type_ii_error_by_rule")
    return tuple(names), [(i / 50, *(float(curve(i / 50)) for curve in curves)) for i in range(51)]


_ERRORS = ("type_ii_at_1", "type_ii_at_5", "type_ii_at_10")
GROUP_FIGURES = ("epsilon", "delta", "mu", "rho", "certainty", *_ERRORS)
"""The figures of several units together, as :func:`describe_group` yields them."""


def list_unit_groups(ledger: Ledger) -> Figures:
    """Return columns and rows of ``SHOW GROUPS``: one to five units together, for budget and charges."""
    at_delta, charges = find_conversion_delta(ledger), count_charges(ledger)
    losses = {"budget": find_promise(ledger, charges), "spent": find_spent(ledger, charges)}
    rows: list[tuple[str | int | float | None, ...]] = [
        (name, k, *describe_group(loss, k, at_delta))
        for name, loss in losses.items()
        for k in range(1, PEOPLE + 1)
    ]
    return ("loss", "units", *GROUP_FIGURES), rows


def find_conversion_delta(ledger: Ledger) -> float:
    """Return the delta at which the rule's currency is shown as an epsilon: the rule's part of the budget's delta."""
    held = ledger.accountant
    return float(held.delta - held.mechanism_delta or ledger.terms.at_delta)


def describe_group(loss: BudgetLoss, k: int, at_delta: float) -> Iterator[float | None]:
    """Yield epsilon, delta, mu, rho, certainty and type II errors of k units together."""
    together = loss.group(k)
    yield from loss.pair(k, at_delta)
    yield from (together.amount if loss.currency == own else None for own in ("mu", "rho"))
    yield together.certainty if k == 1 or not loss.delta else _guess(loss, k)
    curve = loss.group_curve(k)
    yield from (float(curve(alpha)) for alpha in ALPHAS)


def _guess(loss: BudgetLoss, k: int) -> float:
    """Return the certainty about k units with a delta set aside, which grows with their number."""
    if loss.currency == "epsilon":
        return loss.group(k).certainty
    return min(1.0, 0.5 + loss.group_curve(k).total_variation / 2)


def list_accountants(ledger: Ledger, charges: Charges | None = None) -> Figures:
    """Return columns and rows of ``SHOW ACCOUNTANTS``: the charges so far under each accountant.

    ``epsilon`` is at the budget's delta: the loss of a session with these charges. ``left_epsilon`` is the largest pure epsilon
    of one more statement, ``more_like_last`` the number of further statements like the last one that would be admitted. ``pld``
    is the loss distribution of this list if it had been declared before the first answer; no session may count so.
    """
    names = ("accountant", "session", "spent", "epsilon", "delta", "within", "left_epsilon", "more_like_last")
    terms, own = ledger.terms, ledger.accountant.name
    delta = terms.at_delta
    charges = count_charges(ledger) if charges is None else charges
    rows: list[tuple[str | int | float | bool | None, ...]] = []
    for name, kind in ACCOUNTANTS.items():
        held = ledger.accountant if name == own else terms.counted_by(name).open_filter()
        spent = charges.fold(held)
        events = charges.counted_by(kind)
        more = None if events.last is None else held.more(spent, events.last)
        epsilon = _at_delta(kind, events, delta)
        summed = events.add_up(lambda e: e.basic[1]) if not held.has_rule else delta
        pair = (None if epsilon is None else float(epsilon), float(summed))
        figures = (*pair, held.holds(spent), float(held.fits(spent)), more)
        rows.append((name, name == own, _write_spent(held, events), *figures))
    rows.append(("pld", False, "declared as one list", *_describe_plan(charges, terms.epsilon, delta)))
    return names, rows


def _write_spent(held: Accountant, events: Charges) -> str:
    """Return the sum in the accountant's own currency."""
    if held.currency == "mu":
        return f"μ={write_number(compute_root(events.add_up(lambda e: e.mu**2)))}"
    if held.currency == "rho":
        return f"ρ={write_number(events.add_up(lambda e: e.rho))}"
    if held.has_rule:
        return held.sentence(events.fold(held))
    return f"ε={write_number(events.add_up(lambda e: e.basic[0]))}"


def _at_delta(kind: type[Accountant], events: Charges, delta: Fraction) -> Fraction | None:
    """Return the epsilon of a list of events at a delta under one accountant; None if it has none."""
    if not issubclass(kind, RuleAccountant) or not events.counts:
        return events.add_up(lambda e: e.basic[0])
    rest = delta - events.add_up(lambda e: e.delta)
    return kind.find_epsilon(events.add_up, rest) if rest > 0 else None


_TRIES = 10
_COARSE = 3000
_MOST_REPEATS = 1024
_MOST_EVENTS = 1000


def _describe_plan(
    charges: Charges, limit: Fraction, delta: Fraction
) -> tuple[float | None, float, bool, float | None, int | None]:
    """Return the cost of a declared list of these events at delta, and the room that it would have left."""
    if charges.add_up(lambda e: e.basic[0]) > _MOST_EPSILON:
        return None, float(delta), False, None, None
    events = [event for event, times in charges.counts.items() for _ in range(times)]
    try:
        now = find_cost(events, delta) if events else Fraction(0)
    except ValueError:
        return None, float(delta), False, 0.0, 0
    if now > limit:
        return float(now), float(delta), False, 0.0, 0
    if limit > _MOST_EPSILON or len(events) > _MOST_EVENTS:  # slow and uninformative
        return float(now), float(delta), True, None, None
    base = compute_loss(events or [PureDP(limit / 64)], points=_COARSE)
    coarse = 2 * float(limit) / _COARSE  # a fitting list is about as wide as the limit, even for small events
    if base.step < coarse:
        base = compute_loss(events or [PureDP(limit / 64)], step=coarse)
    most, at = float(limit), math.nextafter(float(delta), 0.0)

    def fits(more: Event, times: int = 1) -> bool:
        added = compute_loss([more], step=base.step).times(times)
        return (base.with_(added) if events else added).epsilon(at) <= most

    low, high = Fraction(0), limit
    for _ in range(_TRIES):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(PureDP(middle)) else (low, middle)
    return (
        float(now),
        float(delta),
        True,
        float(low),
        None if charges.last is None else _count_more(fits, charges.last),
    )


def _count_more(fits: Callable[[Event, int], bool], last: Event) -> int:
    """Count further events like the last one for which a list would have had room, up to a limit."""
    low, high = 0, 1
    while high <= _MOST_REPEATS and fits(last, high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(last, middle) else (low, middle)
    return low


FIGURES: Mapping[str, Callable[[Ledger], Figures]] = {
    "TRADEOFF": lambda ledger: list_curve(ledger, spent=False),
    "TRADEOFF SPENT": lambda ledger: list_curve(ledger, spent=True),
    "GROUPS": list_unit_groups,
    "ACCOUNTANTS": list_accountants,
}
"""The functions that make SHOW's tables over all analysts' statements, by the word after SHOW."""


def list_figures(ledger: Ledger, what: str) -> Figures:
    """Return columns and rows of one of :data:`FIGURES`, of the whole ledger."""
    return ledger.tabulate(what, FIGURES[what])


# -- the charges of a ledger ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Charges:
    """The distinct charged events, the oldest first, with the number of statements each. No sum depends on their order."""

    counts: Mapping[Event, int] = field(default_factory=dict)
    last: Event | None = None

    @property
    def first(self) -> Event | None:
        """The oldest event; None if there is none."""
        return next(iter(self.counts), None)

    def add_up(self, cost: Callable[[Event], Fraction]) -> Fraction:
        """Add up a cost over all statements."""
        return sum((times * cost(event) for event, times in self.counts.items()), Fraction(0))

    def add_up_pairs(self) -> tuple[float, float]:
        """Add up the pairs (epsilon, delta) of all statements."""
        return float(self.add_up(lambda e: e.basic[0])), float(self.add_up(lambda e: e.basic[1]))

    def counted_by(self, rule: type[Accountant] | Accountant) -> Charges:
        """Return the charges as an accountant counts them."""
        counts: Counter[Event] = Counter()
        for event, times in self.counts.items():
            counts[rule.charge(event)] += times
        return Charges(counts, None if self.last is None else rule.charge(self.last))

    def fold(self, rule: Accountant) -> Spent:
        """Return an accountant's sums of all charges."""
        spent = rule.start
        for event, times in self.counts.items():
            spent = rule.add(spent, event, times)
        return spent


def count_charges(ledger: Ledger) -> Charges:
    """Count the charges of all statements of a ledger, in one pass."""
    counts: Counter[Event] = Counter()
    last = None
    for entry in ledger.walk(1, ledger.count):
        if entry.event is not None:
            counts[entry.event] += 1
            last = entry.event
    return Charges(counts, last)
