"""Filters: the rules that decide whether the next statement may still run, and their proofs.

In a notebook each query, and its epsilon, may be chosen from earlier answers. A filter keeps running sums and admits an
event only while they stay below limits that are solved once, when it is opened; the guarantee (epsilon, delta) then holds
for the whole adaptive session, wherever it stops. These rules are proved:

``basic``
    Sums of epsilon and of delta (Rogers et al. 2016). Pure losses may be summed path by path, which is why a sparse vector
    that found fewer hits may be settled with less: on every path the loss is at most the sum of that path's charges, and
    the reservation was admitted in full before it ran.
``zcdp``
    The sum of rho, and of the deltas set aside (Feldman-Zrnic 2021; Whitehouse et al. 2023).
``gdp``
    The sum of mu squared, and of the deltas set aside (Smith-Thakurta 2022; Koskela et al. 2023).
``rdp``
    Sums of Renyi divergences, one of which is within its limit: see :class:`Rdp`.

Except under ``basic``, delta has two parts: ``aside`` for mechanisms with their own delta, the rest for the conversion of
the rule. The next event is admitted when, with it counted, the deltas fit ``aside`` and

    the plain sum of the epsilons is at most epsilon, OR the rule holds.

The plain sum counts the epsilon of every event, also of those with a delta; an event without one (Gaussian noise) ends it
for good. All deltas together are at most ``aside``, whichever of the two admits.

Proof. Every event decomposes alike under two neighbouring data sets: with probability at most its delta the output may
reveal everything; otherwise the answer has the likelihood ratios that epsilon and rho (or mu) describe. So a whole session
goes well with a probability w of at least ``1 - aside``, equal under both. It remains to show that sessions in which all
went well are (epsilon, rest)-close. Those that end with the plain sum within epsilon have a likelihood ratio of at most
``e^epsilon`` and add nothing to ``P(S) - e^epsilon Q(S)``. Those that end with the rule within its limit had it there all
along, because its sums only grow: they happen, with unchanged probabilities, in a session that the rule alone would have
stopped, and add at most that session's delta. A session ends in at least one of the two ways, hence ``delta <= 1 - (1 -
aside)(1 - rest) <= aside + rest``. (For noise that is reduced step by step, epsilon is that of the path, which is all that
the first way requires; the rule is charged the stages that were begun, see :class:`dpsql.privacy.events.NoiseReduction`.)

A budget may also be given in the currency of its rule, as a mu or a rho (:func:`open_own_filter`). Then that limit itself is
guaranteed, ``G_mu`` composed with ``f_{0, aside}``, for every epsilon instead of a single one. An additional plain sum would
spoil that: a session of one pure loss within epsilon is below ``G_mu`` elsewhere on the curve. So the rule alone admits, and
no delta is needed for conversion: all of it is ``aside``.

This proof covers any rule whose sums only grow. Of zCDP's conversion to (epsilon, delta) only one order counts: the one that
allows the most. ``zcdp`` therefore fixes this order when it is opened, and sums the Renyi divergences of that order instead
of rho: never more than order times rho, and far less for one large pure loss, for which rho is wasteful. Everything that the
sum of rho would admit is admitted.

The following give an analyst who knows the rule more than delta (the tests play these games): all of delta to the plain sum
and also to the rule; a limit solved anew from the remaining delta; a plain sum that omits Gaussian noise, or counts its
declared epsilon while its declared delta shares ``aside``; going on while any of several orders has room, each with all of
delta; going on while the composed privacy loss distribution so far fits.

Without delta only pure mechanisms are admitted.

>>> from dpsql.privacy.events import PureDP
>>> budget = open_filter("basic", Fraction(1), Fraction(0))
>>> spent = budget.start
>>> for _ in range(10):
...     assert budget.admits(spent, PureDP(Fraction("0.1")))
...     spent = budget.add(spent, PureDP(Fraction("0.1")))
>>> budget.room(spent).sentence, budget.admits(spent, PureDP(Fraction("0.001")))
('ε=0 of ε=1 left', False)
"""

from __future__ import annotations

from fractions import Fraction
from operator import methodcaller
from typing import Self

from dpsql.late_dataclass import dataclass
from dpsql.numerics.exact_numbers import GRID, compute_root, write_number
from dpsql.privacy import conversions
from dpsql.privacy.accountants import (
    Accountant,
    AddUp,
    Guess,
    RuleAccountant,
    Spent,
    count_repeats,
    guess_mu_squared,
    guess_rho,
)
from dpsql.privacy.amounts import GaussianByMu
from dpsql.privacy.events import Event

MECHANISM_SHARE = Fraction(1, 2)
"""The part of delta for mechanisms with a delta of their own, unless the owner sets it."""

_NOTHING = Fraction(0)


@dataclass(frozen=True)
class Basic(Accountant):
    """The sums of epsilon and of delta."""

    name = "basic"
    summary = "sums of epsilon and delta"

    def holds(self, spent: Spent) -> bool:
        return spent.epsilon <= self.epsilon and spent.delta <= self.delta

    def more(self, spent: Spent, event: Event) -> int:
        epsilon, delta = event.basic
        by_epsilon = count_repeats(self.epsilon - spent.epsilon, epsilon)
        return min(by_epsilon, count_repeats(self.delta - spent.delta, delta))

    def sentence(self, spent: Spent) -> str:
        used = f"ε={write_number(spent.epsilon)} of {write_number(self.epsilon)} used"
        by_delta = f", δ={write_number(spent.delta)} of {write_number(self.delta)} used"
        return used + by_delta if self.delta else used

    def left_by_sum(self, spent: Spent) -> Fraction:
        return self.epsilon - spent.epsilon if spent.delta <= self.delta else _NOTHING


@dataclass(frozen=True)
class Zcdp(RuleAccountant):
    """The plain sum, or the Renyi divergences of one order (never more than order times rho), or rho itself.

    Args:
        order: the Renyi order whose divergences are summed, up to ``order * limit``; None for the sum of rho itself.
    """

    name = "zcdp"
    summary = "pure sums or zero-concentrated, whichever is less"
    currency = "rho"
    symbol = "ρ"

    order: Fraction | None = None

    @property
    def speaks(self) -> bool:
        return self.promises_rule

    @classmethod
    def solve(cls, epsilon: Fraction, aside: Fraction, rest: Fraction) -> Self:
        order = conversions.find_best_order(epsilon, rest)
        return cls(epsilon, aside + rest, conversions.find_largest_rho(epsilon, rest), aside, order=order)

    @classmethod
    def find_epsilon(cls, add_up: AddUp, rest: Fraction) -> Fraction:
        return conversions.find_smallest_epsilon(add_up(lambda event: event.rho), rest)

    @property
    def orders(self) -> tuple[Fraction, ...]:
        return () if self.order is None else (self.order,)

    @property
    def limits(self) -> tuple[Fraction, ...]:
        return tuple(order * self.limit for order in self.orders if self.limit) or super().limits

    @property
    def rule_text(self) -> str:
        limit = write_number(self.limits[0], up=False)
        if self.order is None:
            return f"ρ, {limit} in all"
        return f"Rényi divergence of order {write_number(self.order)}, {limit} in all"

    def rule_costs(self, event: Event) -> tuple[Fraction, ...]:
        return super().rule_costs(event) or (event.rho,)

    def rule_sums(self, spent: Spent) -> tuple[Fraction, ...]:
        return super().rule_sums(spent) or (spent.rho,)

    def guess_costs(self) -> tuple[Guess, ...]:
        return super().guess_costs() or (guess_rho,)

    def write_charge(self, event: Event) -> str:
        if self.speaks or not any(isinstance(leaf, GaussianByMu) for leaf in event.leaves()):
            return super().write_charge(event)
        text = f"ρ={write_number(event.rho)}"  # it was asked for in mu or rho, and has no pure loss
        return text + (f", δ={write_number(event.delta)}" if event.delta else "")


@dataclass(frozen=True)
class Gdp(RuleAccountant):
    """The plain sum, or the sum of mu squared."""

    name = "gdp"
    summary = "pure sums or Gaussian, whichever is less"
    currency = "mu"
    symbol = "μ"

    @classmethod
    def solve(cls, epsilon: Fraction, aside: Fraction, rest: Fraction) -> Self:
        return cls(epsilon, aside + rest, conversions.gaussian_mu(epsilon, rest) ** 2, aside)

    @classmethod
    def find_epsilon(cls, add_up: AddUp, rest: Fraction) -> Fraction:
        return conversions.gaussian_epsilon(compute_root(add_up(lambda event: event.mu**2)), rest)

    @property
    def speaks(self) -> bool:
        return self.limit > 0

    def own_amount(self, total: Fraction, *, up: bool = False) -> Fraction:
        root = compute_root(total)
        return root if up or root * root == total else max(_NOTHING, root - Fraction(1, GRID))

    @property
    def rule_text(self) -> str:
        return f"μ², {write_number(self.limit, up=False)} in all"

    def rule_costs(self, event: Event) -> tuple[Fraction, ...]:
        return (event.mu**2,)

    def rule_sums(self, spent: Spent) -> tuple[Fraction, ...]:
        return (spent.mu_squared,)

    def guess_costs(self) -> tuple[Guess, ...]:
        return (guess_mu_squared,)


RENYI_ORDERS = tuple(map(Fraction, (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 4096)))
"""The public orders of ``rdp``. They never change: a ledger is folded at the orders that it was opened with."""


@dataclass(frozen=True)
class Rdp(RuleAccountant):
    """The plain sum, or the Renyi divergences of one of several fixed orders.

    The rest of delta, after ``aside``, is divided among :data:`RENYI_ORDERS` when the budget is opened: half to the order that
    allows the most rho, the other half in equal parts to the others. The limit of each order is solved from its own delta alone;
    orders whose limit is not above 0 are omitted. ``curve`` has the orders with their limits.

    Proof. As in this module's docstring, only sessions in which all went well matter, and those that end with the plain sum
    within epsilon add nothing. Assign each other session to one order that is within its limit when the session ends. The sums
    only grow, so that order was within its limit all along: the session happens, with unchanged probabilities, in one that the
    filter of that order alone would have stopped. That filter has a fixed order and a fixed limit, so it holds for adaptive
    choices (Feldman-Zrnic 2021), and its conversion gives the order's own delta (Canonne, Kamath and Steinke 2020). The sessions
    of one order therefore add at most its delta, and those of all orders at most the sum of the deltas, which is the rest. With
    all of the rest for every order the proof fails, and so does the rule: an analyst reaches 1.15 times delta (the tests play
    that game).
    """

    name = "rdp"
    summary = "pure sums or the Rényi divergences of one of several orders, whichever is less"

    curve: tuple[tuple[Fraction, Fraction], ...] = ()

    @classmethod
    def solve(cls, epsilon: Fraction, aside: Fraction, rest: Fraction) -> Self:
        shares = cls.deal(epsilon, rest).items()
        limits = ((a, conversions.find_renyi_limit(a, epsilon, own)) for a, own in shares)
        return cls(epsilon, aside + rest, aside=aside, curve=tuple((a, b) for a, b in limits if b > 0))

    @classmethod
    def find_epsilon(cls, add_up: AddUp, rest: Fraction) -> Fraction:
        sums = ((order, add_up(methodcaller("renyi", order))) for order in RENYI_ORDERS)
        least = min(total - conversions.find_renyi_limit(order, _NOTHING, rest) for order, total in sums)
        return max(_NOTHING, least)

    @staticmethod
    def deal(epsilon: Fraction, rest: Fraction) -> dict[Fraction, Fraction]:
        """Return each order's part of delta; the parts add up to ``rest``."""
        half = rest / 2
        best = max(RENYI_ORDERS, key=lambda a: conversions.find_renyi_limit(a, epsilon, half) / a)
        return {a: half if a == best else half / (len(RENYI_ORDERS) - 1) for a in RENYI_ORDERS}

    @property
    def orders(self) -> tuple[Fraction, ...]:
        return tuple(order for order, _ in self.curve)

    @property
    def limits(self) -> tuple[Fraction, ...]:
        return tuple(limit for _, limit in self.curve)

    @property
    def rule_text(self) -> str:
        return f"the least used of {len(self.curve)} Rényi orders"


_KINDS: tuple[type[Accountant], ...] = (Zcdp, Basic, Gdp, Rdp)
ACCOUNTANTS = {kind.name: kind for kind in _KINDS}
"""The accountants, by the names that a policy may write; the first is the default."""


def open_filter(
    accountant: str, epsilon: Fraction, delta: Fraction, share: Fraction = MECHANISM_SHARE
) -> Accountant:
    """Open an accountant, one of :data:`ACCOUNTANTS`, for a budget.

    Args:
        epsilon, delta: the guarantee for the whole session. With delta 0 only pure mechanisms are admitted.
        share: the part of delta for mechanisms with their own (``basic`` sums all deltas and needs none).

    Raises:
        ValueError: an unknown accountant, an epsilon that is not above 0, a delta or a share outside [0, 1).

    >>> from dpsql.privacy.events import PureDP
    >>> open_filter("zcdp", Fraction(1), Fraction(1, 10**6)).more(Spent(), PureDP(Fraction("0.01")))
    462
    """
    if accountant not in ACCOUNTANTS:
        raise ValueError(f"there is no accountant {accountant!r}; there is {', '.join(ACCOUNTANTS)}")
    if epsilon <= 0 or not 0 <= delta < 1 or not 0 <= share < 1:
        raise ValueError("a budget needs epsilon > 0, 0 <= delta < 1 and 0 <= share < 1")
    return ACCOUNTANTS[accountant].open(epsilon, delta, share)


def open_own_filter(currency: str, amount: Fraction, epsilon: Fraction, delta: Fraction) -> RuleAccountant:
    """Open the accountant of a budget in ``"mu"`` or ``"rho"``.

    Args:
        amount: the mu or rho of the whole session.
        epsilon: its equivalent at a delta, for comparison; it admits nothing.
        delta: for mechanisms with their own delta.

    Raises:
        ValueError: no such currency, an amount that is not above 0, or a delta outside [0, 1).

    >>> held = open_own_filter("mu", Fraction(1), Fraction(5), Fraction(0))
    >>> half = GaussianByMu(Fraction(2), 1, Fraction(3), Fraction(1, 10**6))
    >>> held.more(held.start, half), held.write_charge(half), held.room(held.fold([half] * 3)).sentence
    (4, 'μ=0.5', 'μ=0.5 of μ=1 left')
    """
    kinds = {kind.currency: kind for kind in ACCOUNTANTS.values() if issubclass(kind, RuleAccountant)}
    if currency not in kinds or not currency:
        raise ValueError(f"no accountant counts in {currency!r}")
    if amount <= 0 or epsilon <= 0 or not 0 <= delta < 1:
        raise ValueError("a budget needs an amount above 0, and 0 <= delta < 1")
    return kinds[currency].open_own(amount**2 if currency == "mu" else amount, epsilon, delta)
