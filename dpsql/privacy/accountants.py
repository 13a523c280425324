"""The contract of accountants: their sums, the remaining budget, and the decision about the next event.

An accountant is opened once for a budget. It then admits events, one after another, while its sums stay below fixed
limits. The rules, and the proofs that they hold for adaptively chosen events, are in :mod:`dpsql.privacy.filters`. A new
accountant is one subclass of :class:`Accountant`, or of :class:`RuleAccountant` if the plain sum of epsilon may go on
in addition, and one row of :data:`dpsql.privacy.filters.ACCOUNTANTS`. Its proof is its docstring, its test subclasses
``AccountantContract``, and ``notebooks/docs/explanation/budget.md`` says when to use it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from functools import lru_cache, partial
from math import lcm
from operator import le
from statistics import NormalDist
from typing import Any, ClassVar, Self

from dpsql.late_dataclass import dataclass
from dpsql.numerics.exact_numbers import (
    is_short,
    read_exactly,
    round_significant,
    shorten,
    write_exactly,
    write_number,
)
from dpsql.privacy.amounts import OwnRoom, format_percent, say_what_is_left
from dpsql.privacy.codec import read_record, write_record
from dpsql.privacy.events import OPEN_ENDED, Event, NoiseReduction, PureDP

MANY = 10**9
"""The count that :meth:`Accountant.more` returns for an event without cost."""

AddUp = Callable[[Callable[[Event], Fraction]], Fraction]

_NOTHING = Fraction(0)


@dataclass(frozen=True)
class Spent:
    """The sums of all charges, which suffice for every accountant and any number of statements.

    Args:
        count: number of events.
        epsilon, delta: the sums of basic composition.
        near: sum of the losses outside delta; None once an event had none.
        rho: sum of the zCDP losses.
        mu_squared: sum of the squared Gaussian-DP losses.
        aside: sum of the mechanisms' own deltas.
        renyi: sums of the Renyi divergences, one for each of the accountant's fixed ``orders``.
    """

    count: int = 0
    epsilon: Fraction = _NOTHING
    delta: Fraction = _NOTHING
    near: Fraction | None = _NOTHING
    rho: Fraction = _NOTHING
    mu_squared: Fraction = _NOTHING
    aside: Fraction = _NOTHING
    renyi: tuple[Fraction, ...] = ()
    orders: tuple[Fraction, ...] = ()

    def plus(self, event: Event, times: int = 1) -> Spent:
        """Return the sums after ``times`` equal events: exact while the numbers are short, else rounded up.

        Raises:
            TypeError: not an event, but an approximation, which must not be charged.
        """
        if not isinstance(event, Event):
            raise TypeError(f"only events are charged, not a {type(event).__name__}")
        epsilon, delta, loss, rho, mu_squared, aside, divergences = _find_costs(event, self.orders)
        return Spent(
            count=self.count + times,
            epsilon=_grow(self.epsilon, epsilon, times),
            delta=_grow(self.delta, delta, times),
            near=None if self.near is None or loss is None else _grow(self.near, loss, times),
            rho=_grow(self.rho, rho, times),
            mu_squared=_grow(self.mu_squared, mu_squared, times),
            aside=_grow(self.aside, aside, times),
            renyi=tuple(_grow(old, new, times) for old, new in zip(self.renyi, divergences, strict=True)),
            orders=self.orders,
        )

    @property
    def amounts(self) -> tuple[Fraction | None, ...]:
        """All sums, in the order of an event's costs."""
        return (self.epsilon, self.delta, self.near, self.rho, self.mu_squared, self.aside, *self.renyi)

    def to_json(self) -> dict[str, object]:
        """Return the sums for a checkpoint: exact fractions, as texts."""
        return write_record(self)

    @classmethod
    def from_json(cls, body: Mapping[str, object]) -> Spent | None:
        """Read the sums of :meth:`to_json` (None: another version's); ValueError, TypeError or ZeroDivisionError if invalid."""
        if body.keys() != {item.name for item in fields(cls)}:
            return None
        return read_record(cls, body)._checked()

    def to_text(self) -> str:
        """Return the sums without their orders as numbers in one line, exactly.

        >>> Spent(2, Fraction(1, 3), Fraction(1, 8), None, renyi=(Fraction(3, 1000),), orders=(Fraction(2),)).to_text()
        '2 1/3 125e-3 - 0 0 0 3e-3'
        """
        return " ".join([str(self.count), *("-" if n is None else write_exactly(n) for n in self.amounts)])

    @classmethod
    def read_text(cls, text: str, orders: tuple[Fraction, ...]) -> Spent:
        """Read the sums of :meth:`to_text`; ValueError or ZeroDivisionError if they aren't sums of these orders."""
        count, *numbers = text.split(" ")
        if len(numbers) < _SINGLE:
            raise ValueError(text)
        amounts: list[Any] = [None if number == "-" else read_exactly(number) for number in numbers]
        single: dict[str, Any] = dict(zip(SUM_NAMES, amounts, strict=False))
        return cls(int(count), renyi=tuple(amounts[_SINGLE:]), orders=orders, **single)._checked()

    def _checked(self) -> Self:
        """Return these sums; ValueError if they can't be sums."""
        needed = [amount for name, amount in zip(SUM_NAMES, self.amounts, strict=False) if name != "near"]
        if None in needed or None in self.renyi or len(self.renyi) != len(self.orders):
            raise ValueError("sums are missing")
        if self.count < 0 or any(amount is not None and amount < 0 for amount in self.amounts):
            raise ValueError("sums are not below 0")
        return self


SUM_NAMES = ("epsilon", "delta", "near", "rho", "mu_squared", "aside")
"""The names of the sums besides the Renyi divergences."""
_SINGLE = len(SUM_NAMES)


def _grow(total: Fraction, cost: Fraction, times: int) -> Fraction:
    if not cost:
        return total  # it is short already
    return shorten(total + (cost if times == 1 else times * cost))


_Costs = tuple[Fraction, Fraction, Fraction | None, Fraction, Fraction, Fraction, tuple[Fraction, ...]]


@lru_cache(maxsize=4096)
def _find_costs(event: Event, orders: tuple[Fraction, ...]) -> _Costs:
    """Return the summands of an event, cached since a log repeats its events."""
    epsilon, delta = event.basic
    divergences = tuple(event.renyi(order) for order in orders)
    return epsilon, delta, event.epsilon, event.rho, event.mu**2, event.delta, divergences


class Batch:
    """Events in order that are added to many sums: all at once if no sum on the way is rounded.

    Each sum on the way is a fraction over the common denominator of the first one and all costs. If that is short, none is
    rounded, so the result is that of adding the events one by one, to the last digit.
    """

    def __init__(self, held: Accountant, events: Sequence[Event]) -> None:
        self._held, self._events = held, events
        found = (_find_costs(held.charge(event), held.start.orders) for event in events)
        columns = [*zip(*((*one[:-1], *one[-1]) for one in found), strict=True)]
        self._costs = [None if None in column else sum(column, _NOTHING) for column in columns]
        self._common = [lcm(*(cost.denominator for cost in column if cost)) for column in columns]

    def add_to(self, spent: Spent) -> Spent:
        """Return the sums after the events, which began as the accountant's."""
        after: list[Any] = []
        for total, cost, common in zip(spent.amounts, self._costs, self._common, strict=True):
            if total is not None and not is_short(lcm(common, total.denominator)):
                break
            after.append(None if total is None or cost is None else total + cost if cost else total)
        else:
            count = spent.count + len(self._events)
            return Spent(count, *after[:6], renyi=tuple(after[6:]), orders=spent.orders)  # type: ignore[misc]
        for event in self._events:
            spent = self._held.add(spent, event)
        return spent


@dataclass(frozen=True)
class Room:
    """The room left of a budget.

    Args:
        epsilon: the whole.
        epsilon_left: the largest pure epsilon of one more statement.
        delta_left: room for the mechanisms' own deltas.
        rule: the used part of the rule's limit, if the rule and not the plain sum decides. Many small statements may then fit
            although a large one does not (:meth:`Accountant.more` counts them).
    """

    epsilon: Fraction
    epsilon_left: Fraction
    delta_left: Fraction
    rule: Fraction | None = None
    own: OwnRoom | None = None
    """The room in the rule's own currency, if the accountant displays it."""

    @property
    def sentence(self) -> str:
        """The room as ``"ε=0.8 of ε=1 left"`` or ``"μ=0.8 of μ=1 left"``; by the rule also the used part of the rule."""
        if self.own is not None:
            return self.own.say(self.epsilon)
        return say_what_is_left(self.epsilon_left, self.epsilon, self.rule)


@dataclass(frozen=True)
class Accountant:
    """A rule for adaptively chosen events, for the guarantee (``epsilon``, ``delta``); stateless: the sums are :class:`Spent`."""

    name: ClassVar[str] = ""
    """The name that a policy writes."""
    summary: ClassVar[str] = ""
    """One phrase for the reference."""
    has_rule: ClassVar[bool] = False
    """Whether something sharper than the plain sums counts. Delta then has two parts (see ``filters``), mechanisms
    with good concentrated losses are preferred, and hits that one noisy threshold did not find are charged."""
    currency: ClassVar[str] = ""
    """The option by which a budget may be given in the rule's own currency: ``mu`` or ``rho``."""
    symbol: ClassVar[str] = "ε"
    """The sign of the currency."""

    epsilon: Fraction
    delta: Fraction

    @classmethod
    def open(cls, epsilon: Fraction, delta: Fraction, share: Fraction) -> Self:
        """Return the accountant for a budget. Its limits are solved here, so never at a time that depends on data."""
        return cls(epsilon, delta)

    @classmethod
    def charge(cls, event: Event) -> Event:
        """Return the charge for an event. Divergences average over paths, so a rule also charges hits that were not found."""
        return event.in_full() if cls.has_rule else event

    @classmethod
    def split(cls, delta: Fraction, share: Fraction) -> Fraction:
        """Return the part of delta for mechanisms with their own delta."""
        return delta * share if cls.has_rule else delta

    @property
    def mechanism_delta(self) -> Fraction:
        """The limit of the mechanisms' own deltas."""
        return self.delta

    @property
    def speaks(self) -> bool:
        """Whether amounts are displayed in :attr:`symbol` instead of epsilon."""
        return False

    @property
    def promises_rule(self) -> bool:
        """Whether the rule's own limit is guaranteed instead of the pair (epsilon, delta)."""
        return False

    def write_charge(self, event: Event) -> str:
        """Return the charge of an event for display."""
        return self.charge(event).sentence()

    def own_room(self, spent: Spent) -> OwnRoom | None:
        """Return the room in the rule's own currency; None if it is not displayed."""
        return None

    @property
    def start(self) -> Spent:
        return Spent()

    def admits(self, spent: Spent, event: Event) -> bool:
        """Return whether an event may run after these charges, in exact arithmetic."""
        return self.holds(self.add(spent, event)) or self._admits_whole_plan(spent, event)

    def add(self, spent: Spent, event: Event, times: int = 1) -> Spent:
        """Return the sums after ``times`` equal events, admitted or not: a log is folded as it is."""
        return spent.plus(event, times)

    def fold(self, events: Iterable[Event]) -> Spent:
        spent = self.start
        for event in events:
            spent = self.add(spent, event)
        return spent

    def holds(self, spent: Spent) -> bool:
        raise NotImplementedError

    def more(self, spent: Spent, event: Event) -> int:
        """Return how many more such statements would be admitted, one after another; at most :data:`MANY`."""
        raise NotImplementedError

    def sentence(self, spent: Spent) -> str:
        """Return the used amount in the accountant's own currency."""
        raise NotImplementedError

    def spent_delta(self, spent: Spent) -> Fraction:
        """Return the sum that :attr:`mechanism_delta` limits."""
        return spent.delta

    def own_delta(self, event: Event) -> Fraction:
        """Return the summand of an event in :meth:`spent_delta`."""
        return event.basic[1]

    def used_by(self, event: Event) -> Fraction | None:
        """Return the part of the rule's limit that an event uses; None without a rule."""
        return None

    def used(self, spent: Spent) -> Fraction | None:
        """Return the used part of the rule's limit; None without a rule."""
        return None

    def left_by_sum(self, spent: Spent) -> Fraction:
        """Return the largest pure epsilon that the plain sum still admits; below 0 if it is overdrawn."""
        raise NotImplementedError

    def left_by_rule(self, spent: Spent, above: Fraction = _NOTHING) -> Fraction:
        """Return the largest pure epsilon that the rule still admits; 0 or more if that is not above ``above``."""
        return _NOTHING

    def fits(self, spent: Spent) -> Fraction:
        """Return the largest pure epsilon of one more statement: exact, or rounded down to four digits."""
        by_sum = max(_NOTHING, self.left_by_sum(spent))
        return max(by_sum, self.left_by_rule(spent, by_sum))

    def room(self, spent: Spent) -> Room:
        by_sum = max(_NOTHING, self.left_by_sum(spent))
        by_rule = self.left_by_rule(spent, by_sum)
        delta_left = max(_NOTHING, self.mechanism_delta - self.spent_delta(spent))
        rule = self.used(spent) if by_rule > by_sum else None
        return Room(self.epsilon, max(by_sum, by_rule), delta_left, rule, self.own_room(spent))

    def _admits_whole_plan(self, spent: Spent, event: Event) -> bool:
        """Return whether a declared plan, as the whole session, fits by its loss distribution.

        The choice precedes the first answer, so it is the bound of one fixed list. Nothing else is ever admitted after it unless
        the running sums allow it too. Settling a sparse vector or noise reduction would make them smaller, so a plan with one of
        these has to fit the rule.
        """
        if spent.count or self.promises_rule:
            return False
        from dpsql.privacy.pld import DeclaredPlan  # for the first charge that the sums refuse

        if not isinstance(event, DeclaredPlan):
            return False
        if any(isinstance(part, (*OPEN_ENDED, NoiseReduction)) for part in event.leaves()):
            return False
        epsilon, delta = event.basic
        return epsilon <= self.epsilon and delta <= self.delta


@dataclass(frozen=True)
class RuleAccountant(Accountant):
    """An accountant that admits by the plain sum or by a rule, with a separate limit for the mechanisms' deltas.

    The rule is one or several sums, each with its own limit; one of them within its limit is enough. The proof and the
    equations of the limits are in :mod:`dpsql.privacy.filters`.

    Args:
        limit: of the rule's currency; 0 without a delta to convert with.
        aside: the delta of all mechanisms with their own delta.
        plain: whether the plain sum may also admit. It may not if the rule's limit itself is guaranteed: then epsilon is only
            the equivalent of that limit at a delta, for comparison.
    """

    has_rule = True

    limit: Fraction = _NOTHING
    aside: Fraction = _NOTHING
    plain: bool = True

    @classmethod
    def open(cls, epsilon: Fraction, delta: Fraction, share: Fraction) -> Self:
        aside = cls.split(delta, share)
        return cls.solve(epsilon, aside, delta - aside) if delta else cls(epsilon, delta)

    @classmethod
    def solve(cls, epsilon: Fraction, aside: Fraction, rest: Fraction) -> Self:
        """Return the accountant with the rule's limits; delta, which is above 0, is ``aside`` for mechanisms and the ``rest``."""
        raise NotImplementedError

    @classmethod
    def find_epsilon(cls, add_up: AddUp, rest: Fraction) -> Fraction:
        """Return the epsilon at a delta of events that were fixed in advance, by the rule alone.

        Args:
            add_up: adds up a cost over the events.
            rest: the delta, without the mechanisms' own.
        """
        raise NotImplementedError

    @classmethod
    def open_own(cls, limit: Fraction, epsilon: Fraction, delta: Fraction) -> Self:
        """Return the accountant for a budget in its own currency: the rule alone admits, and all of delta is for mechanisms."""
        return cls(epsilon, delta, limit, delta, plain=False)

    @property
    def promises_rule(self) -> bool:
        return not self.plain

    @property
    def orders(self) -> tuple[Fraction, ...]:
        """The Renyi orders whose divergences are summed."""
        return ()

    @property
    def limits(self) -> tuple[Fraction, ...]:
        """The limits of the rule's sums."""
        return (self.limit,) if self.limit else ()

    @property
    def rule_text(self) -> str:
        """The rule's currency and limit, in a few words."""
        raise NotImplementedError

    def rule_costs(self, event: Event) -> tuple[Fraction, ...]:
        """Return the summands of an event in the rule's sums."""
        return tuple(event.renyi(order) for order in self.orders)

    def rule_sums(self, spent: Spent) -> tuple[Fraction, ...]:
        return spent.renyi

    def guess_costs(self) -> tuple[Guess, ...]:
        """Return an estimate of a pure epsilon's summand, for each of the rule's sums."""
        return tuple(partial(guess_renyi, float(order)) for order in self.orders)

    @property
    def start(self) -> Spent:
        return Spent(renyi=(_NOTHING,) * len(self.orders), orders=self.orders)

    @property
    def mechanism_delta(self) -> Fraction:
        return self.aside

    def add(self, spent: Spent, event: Event, times: int = 1) -> Spent:
        """Return the sums after an event, missing hits charged; ValueError for sums of another filter's orders."""
        return self._own(spent).plus(self.charge(event) if isinstance(event, Event) else event, times)

    def holds(self, spent: Spent) -> bool:
        plain = self.plain and spent.near is not None and spent.near <= self.epsilon
        return spent.aside <= self.aside and (plain or any(left >= 0 for left in self._left(spent)))

    def more(self, spent: Spent, event: Event) -> int:
        counts = [0, *map(count_repeats, self._left(spent), self.rule_costs(event))]
        if self.plain and spent.near is not None and event.epsilon is not None:
            counts.append(count_repeats(self.epsilon - spent.near, event.epsilon))
        return min(max(counts), count_repeats(self.aside - spent.aside, event.delta))

    def sentence(self, spent: Spent) -> str:
        parts = []
        if self.plain and spent.near is not None:
            parts.append(f"sum of ε {write_number(spent.near)} of {write_number(self.epsilon)}")
        used = self.used(spent)
        if used is not None and (used <= 1 or not parts):  # above it, only the sum decides what fits
            parts.append(f"{format_percent(used)} of the rule ({self.rule_text})")
        if self.aside:
            parts.append(f"δ of mechanisms {write_number(spent.aside)} of {write_number(self.aside)}")
        return ", ".join(parts) + " used" if parts else "a mechanism without pure loss ran without delta"

    def spent_delta(self, spent: Spent) -> Fraction:
        return spent.aside

    def own_delta(self, event: Event) -> Fraction:
        return event.delta

    def used_by(self, event: Event) -> Fraction | None:
        return min(map(Fraction.__truediv__, self.rule_costs(event), self.limits), default=None)

    def used(self, spent: Spent) -> Fraction | None:
        return min(map(Fraction.__truediv__, self.rule_sums(self._own(spent)), self.limits), default=None)

    def left_by_sum(self, spent: Spent) -> Fraction:
        closed = not self.plain or spent.near is None or spent.aside > self.aside
        return _NOTHING if closed or spent.near is None else self.epsilon - spent.near

    def left_by_rule(self, spent: Spent, above: Fraction = _NOTHING) -> Fraction:
        """Return the largest four-digit pure epsilon that the rule admits: guessed with floats, decided exactly."""
        left = self._left(spent)
        over = spent.aside > self.aside or above >= LARGEST_EPSILON
        if over or max(left, default=_NOTHING) <= 0:
            return _NOTHING
        epsilon = round_significant(Fraction(find_most(self.guess_costs(), left, above)))
        while epsilon > 0 and not any(map(le, self.rule_costs(PureDP(epsilon)), left)):
            less = round_significant(epsilon * Fraction(9995, 10000))
            epsilon = less if epsilon > Fraction(1, 10**9) else _NOTHING
        return epsilon

    def own_room(self, spent: Spent) -> OwnRoom | None:
        if not self.speaks:
            return None
        used = self.rule_sums(self._own(spent))[0]
        over = spent.aside > self.aside
        left = _NOTHING if over else max(_NOTHING, self.limit - used)
        by_sum = None if not self.plain or spent.near is None else max(_NOTHING, self.left_by_sum(spent))
        amounts = self.own_amount(self.limit), self.own_amount(used, up=True), self.own_amount(left)
        return OwnRoom(self.symbol, *amounts, by_sum)

    def own_amount(self, total: Fraction, *, up: bool = False) -> Fraction:
        """Return a sum of the rule for display, rounded down, or up."""
        return total

    def own_cost(self, event: Event) -> Fraction:
        """Return the cost of an event in the rule's own currency, rounded up."""
        return self.own_amount(self.rule_costs(self.charge(event))[0], up=True)

    def write_charge(self, event: Event) -> str:
        if not self.speaks:
            return super().write_charge(event)
        delta = self.charge(event).delta
        text = f"{self.symbol}={write_number(self.own_cost(event))}"
        return text + (f", δ={write_number(delta)}" if delta else "")

    def _own(self, spent: Spent) -> Spent:
        """Return the sums, if they are of this filter's orders: others would seem to have used nothing."""
        if spent.orders == self.orders:
            return spent
        if spent.count:
            raise ValueError("these sums were begun for another filter: fold the events anew")
        return self.start

    def _left(self, spent: Spent) -> list[Fraction]:
        sums = self.rule_sums(self._own(spent))
        return [limit - total for limit, total in zip(self.limits, sums, strict=False)]


def count_repeats(left: Fraction, each: Fraction) -> int:
    """Return how often an amount fits into the remaining one; at most :data:`MANY`."""
    if left < 0:
        return 0
    return MANY if each <= 0 else min(MANY, int(left // each))


def suggest_delta(left: Fraction) -> Fraction:
    """Return a delta for one statement: a fiftieth of the room for mechanisms, rounded down to one digit.

    >>> write_number(suggest_delta(Fraction(5, 10**7))), suggest_delta(Fraction(0))
    ('1e-08', Fraction(0, 1))
    """
    return round_significant(max(_NOTHING, left) / 50, 1)


LARGEST_EPSILON = 64
"""The largest epsilon that is reported as admitted by a rule."""
_GUESSED_WELL, _SURELY = Fraction(1, 1000), 1.000_001
"""From the first epsilon on, an estimate's error is far below the change in cost when epsilon changes by the second factor."""

Guess = Callable[[float], float]
"""A float estimate of a rule's cost of a pure epsilon. It decides nothing: exact costs decide whether a guessed epsilon fits."""


def guess_rho(epsilon: float) -> float:
    """Estimate the rho of a pure epsilon."""
    return epsilon * math.tanh(epsilon / 2)


def guess_renyi(order: float, epsilon: float) -> float:
    """Estimate the Renyi divergence of an order of a pure epsilon."""
    lost = math.log1p(math.exp(-epsilon)) - math.log1p(math.exp(-(2 * order - 1) * epsilon))
    return min(order * guess_rho(epsilon), epsilon - lost / (order - 1))


def guess_mu_squared(epsilon: float) -> float:
    """Estimate the square of the Gaussian-DP loss of a pure epsilon."""
    return 4 * NormalDist().inv_cdf(max(1 / (1 + math.exp(epsilon)), 1e-300)) ** 2


def find_most(costs: Iterable[Guess], left: Iterable[Fraction], above: Fraction) -> float:
    """Return approximately the largest epsilon with one cost within its remaining amount; 0 if it is not ``above``.

    The first cost takes one search, and each further cost only if it admits more than those before it.
    """
    found = 0.0
    start = float(above) / _SURELY if above > _GUESSED_WELL else 0.0
    for cost, most in zip(costs, map(float, left), strict=True):
        if found < LARGEST_EPSILON and cost(max(found, start)) <= most:
            found = max(found, _search(cost, most))
    return found


def _search(cost: Guess, most: float) -> float:
    if cost(LARGEST_EPSILON) <= most:
        return LARGEST_EPSILON
    low, high = 0.0, float(LARGEST_EPSILON)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= most else (low, middle)
    return low
