"""Filters: what decides whether the next statement may still run.

In a notebook each query, and its epsilon, may be chosen from earlier answers. A filter keeps running sums and
admits an event only while they stay below limits that are solved once, when it is opened; the guarantee
(epsilon, delta) then holds for the whole adaptive session, wherever it stops. Three such rules are proved:

``basic``  sums of epsilon and of delta (Rogers et al. 2016). Pure losses may be summed path by path, which is
           why a sparse vector that found fewer hits may be settled with less: on every path the loss is at
           most the sum of what that path was charged, and the reservation was admitted in full before it ran.
``zcdp``   the sum of rho, and of the deltas set aside (Feldman-Zrnic 2021; Whitehouse et al. 2023)
``gdp``    the sum of mu squared, and of the deltas set aside (Smith-Thakurta 2022; Koskela et al. 2023)

Under ``zcdp`` and ``gdp`` delta has two parts: ``aside`` for mechanisms with a delta of their own, the rest for
the conversion of the rule. The next event is admitted when, with it counted, the deltas fit ``aside`` and

    the plain sum of the epsilons is at most epsilon, OR the rule holds.

The plain sum counts the epsilon of every event, also of those with a delta; an event that has none (Gaussian
noise) ends it for good. All deltas together are at most ``aside``, whichever of the two admits.

Proof. Every event comes apart in the same way under two neighbouring data sets: with a probability of at most
its delta something happens that may betray all; otherwise the answer has the likelihood ratios that epsilon
and rho (or mu) describe. So a whole session goes well with a probability w of at least ``1 - aside``, w being
the same under both. What is left to show is that sessions in which all went well are (epsilon, rest)-close.
Those that end with the plain sum within epsilon have a likelihood ratio of at most ``e^epsilon`` and add
nothing to ``P(S) - e^epsilon Q(S)``. Those that end with the rule within its limit had it there all along, for
its sums only grow: they happen, with the same probabilities, in a session that the rule alone would have
stopped, and add at most what that one is promised to. A session ends in at least one of the two ways, hence
``delta <= 1 - (1 - aside)(1 - rest) <= aside + rest``.

The same proof takes any rule whose sums only grow. Of zCDP's conversion to (epsilon, delta) only one order
counts: the one at which it allows the most. ``zcdp`` therefore fixes this order when it is opened, and sums the
Renyi divergences of that order instead of rho: never more than order times rho, and for one large pure loss
far less, which is where rho is wasteful. What the sum of rho would admit is always admitted.

What must not be done, for an analyst who knows the rule gets more than delta (the tests play these games): give
all of delta to the plain sum as well as to the rule; solve the limit anew from the delta that is left; pass
over Gaussian noise in the plain sum, or count its declared epsilon there while its declared delta shares
``aside``; go on while any of several orders has room; go on while the composed privacy loss distribution so far
is fine.

Without delta only pure mechanisms are admitted.

>>> budget = open_filter("basic", Fraction(1), Fraction(0))
>>> spent = budget.start
>>> for _ in range(10):
...     assert budget.admits(spent, PureDP(Fraction("0.1")))
...     spent = budget.add(spent, PureDP(Fraction("0.1")))
>>> budget.room(spent).sentence, budget.admits(spent, PureDP(Fraction("0.001")))
('ε=0 of ε=1 left', False)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Protocol

from dpsql.numerics.rounding import significant, text
from dpsql.privacy import constants, zcdp
from dpsql.privacy.events import DeclaredPlan, Event, PureDP, SparseVector, charged
from dpsql.privacy.spent import Room, Spent, percent

ACCOUNTANTS = ("zcdp", "basic", "gdp")
"""The names that a policy may write; the first is the default."""

MECHANISM_SHARE = Fraction(1, 2)
"""The part of delta that is kept for mechanisms with a delta of their own, where the owner does not say."""

MANY = 10**9
"""What :meth:`Filter.more` answers for an event that never uses anything up."""

_NOTHING = Fraction(0)


class Filter(Protocol):
    """A rule that holds for adaptively chosen mechanisms and parameters. The state is in ``Spent``."""

    @property
    def name(self) -> str: ...

    @property
    def epsilon(self) -> Fraction: ...

    @property
    def delta(self) -> Fraction: ...

    @property
    def mechanism_delta(self) -> Fraction:
        """The limit of the deltas that mechanisms have of their own."""
        ...

    @property
    def start(self) -> Spent:
        """Nothing spent."""
        ...

    def admits(self, spent: Spent, event: Event) -> bool:
        """Whether the event may run after what was spent. Decided in exact arithmetic."""
        ...

    def add(self, spent: Spent, event: Event) -> Spent:
        """The sums after it ran, admitted or not (a log is folded as it is)."""
        ...

    def fold(self, events: Iterable[Event]) -> Spent:
        """The sums of a list of events, for reading a log."""
        ...

    def part(self, event: Event) -> Fraction | None:
        """The part of the rule's limit that an event uses; None for an accountant that has no rule beside the sum."""
        ...

    def used(self, spent: Spent) -> Fraction | None:
        """The part of the rule's limit that is used; None for an accountant that has no rule beside the sum."""
        ...

    def fits(self, spent: Spent) -> Fraction:
        """The largest pure epsilon of one more statement: exact, or rounded down to four digits."""
        ...

    def more(self, spent: Spent, event: Event) -> int:
        """How many more such statements would be admitted, one after another; at most :data:`MANY`."""
        ...

    def room(self, spent: Spent) -> Room:
        """What is left, and the sentence that says so."""
        ...

    def sentence(self, spent: Spent) -> str:
        """What was used, in the accountant's own currency."""
        ...


@dataclass(frozen=True)
class _Sums:
    """What the three rules share: they differ in the limits that they hold against the sums."""

    epsilon: Fraction
    delta: Fraction
    name: str = ""

    @property
    def start(self) -> Spent:
        return Spent()

    def add(self, spent: Spent, event: Event) -> Spent:
        return spent.plus(event)

    def fold(self, events: Iterable[Event]) -> Spent:
        spent = self.start
        for event in events:
            spent = self.add(spent, event)
        return spent

    def admits(self, spent: Spent, event: Event) -> bool:
        return self._holds(self.add(spent, event)) or self._whole_plan(spent, event)

    def fits(self, spent: Spent) -> Fraction:
        return max(_NOTHING, self._by_sum(spent), self._by_rule(spent))

    def room(self, spent: Spent) -> Room:
        by_sum, by_rule = self._by_sum(spent), self._by_rule(spent)
        left = max(_NOTHING, by_sum, by_rule)
        rule = self.used(spent) if by_rule > max(by_sum, _NOTHING) else None
        return Room(self.epsilon, self.epsilon - left, left, max(_NOTHING, self._delta_left(spent)), rule)

    def _whole_plan(self, spent: Spent, event: Event) -> bool:
        """A plan declared before anything was spent may be charged by its loss distribution, and be the whole
        session.

        The choice is made before the first answer, so it is the bound of one fixed list. Nothing else is ever
        admitted after it unless the running sums allow it too; a sparse vector would make them shrink when it
        is settled, so a plan with one inside has to fit the rule.
        """
        if spent.count or not isinstance(event, DeclaredPlan):
            return False
        if any(isinstance(part, SparseVector) for part in _flat(event.events)):
            return False
        epsilon, delta = event.basic
        return epsilon <= self.epsilon and delta <= self.delta

    def _holds(self, after: Spent) -> bool:
        raise NotImplementedError

    def _by_sum(self, spent: Spent) -> Fraction:
        """The largest pure epsilon that the plain sum still admits."""
        raise NotImplementedError

    def _by_rule(self, spent: Spent) -> Fraction:
        """The largest pure epsilon that the rule still admits."""
        raise NotImplementedError

    def used(self, spent: Spent) -> Fraction | None:
        raise NotImplementedError

    def _delta_left(self, spent: Spent) -> Fraction:
        raise NotImplementedError


@dataclass(frozen=True)
class Basic(_Sums):
    """Sums of epsilon and delta."""

    name: str = "basic"

    @property
    def mechanism_delta(self) -> Fraction:
        return self.delta

    def part(self, event: Event) -> Fraction | None:
        return None

    def used(self, spent: Spent) -> Fraction | None:
        return None

    def more(self, spent: Spent, event: Event) -> int:
        epsilon, delta = event.basic
        return min(_times(self.epsilon - spent.epsilon, epsilon), _times(self.delta - spent.delta, delta))

    def sentence(self, spent: Spent) -> str:
        used = f"ε={text(spent.epsilon)} of {text(self.epsilon)} used"
        return used + (f", δ={text(spent.delta)} of {text(self.delta)} used" if self.delta else "")

    def _holds(self, after: Spent) -> bool:
        return after.epsilon <= self.epsilon and after.delta <= self.delta

    def _by_sum(self, spent: Spent) -> Fraction:
        return self.epsilon - spent.epsilon if spent.delta <= self.delta else _NOTHING

    def _by_rule(self, spent: Spent) -> Fraction:
        return _NOTHING

    def _delta_left(self, spent: Spent) -> Fraction:
        return self.delta - spent.delta


@dataclass(frozen=True)
class Concentrated(_Sums):
    """The plain sum OR the rule, and the deltas set aside within theirs: see the head of this module.

    Args:
        limit: of rho (``zcdp``) or of mu squared (``gdp``); 0 where there is no delta to convert with.
        aside: the delta of all mechanisms that have one of their own.
        order: the Renyi order whose divergences ``zcdp`` sums, up to ``order * limit``; None for the sum of rho itself.
    """

    limit: Fraction = _NOTHING
    aside: Fraction = _NOTHING
    order: Fraction | None = None

    @property
    def start(self) -> Spent:
        return Spent(order=self.order)

    def add(self, spent: Spent, event: Event) -> Spent:
        """As the rule counts it: hits that a sparse vector did not find are not free.

        Raises:
            ValueError: the sums were begun for another filter, whose order is not this one's.
        """
        return self._own(spent).plus(charged(event, self.name) if isinstance(event, Event) else event)

    @property
    def mechanism_delta(self) -> Fraction:
        return self.aside

    def part(self, event: Event) -> Fraction | None:
        return None if self.limit == 0 else self._cost(event) / self._limit

    def used(self, spent: Spent) -> Fraction | None:
        return None if self.limit == 0 else self._sum(spent) / self._limit

    def more(self, spent: Spent, event: Event) -> int:
        by_sum = 0
        if spent.near is not None and event.epsilon is not None:
            by_sum = _times(self.epsilon - spent.near, event.epsilon)
        by_rule = 0 if self.limit == 0 else _times(self._limit - self._sum(spent), self._cost(event))
        return min(max(by_sum, by_rule), _times(self.aside - spent.aside, event.delta))

    def sentence(self, spent: Spent) -> str:
        parts = []
        if spent.near is not None:
            parts.append(f"sum of ε {text(spent.near)} of {text(self.epsilon)}")
        if self.limit:
            parts.append(f"{percent(self._sum(spent) / self._limit)} of the rule ({self._rule_text})")
        if self.aside:
            parts.append(f"δ of mechanisms {text(spent.aside)} of {text(self.aside)}")
        return ", ".join(parts) + " used" if parts else "a mechanism without pure loss ran without delta"

    @property
    def _gaussian(self) -> bool:
        return self.name == "gdp"

    @property
    def _limit(self) -> Fraction:
        return self.limit if self.order is None else self.order * self.limit

    @property
    def _rule_text(self) -> str:
        if self.order is not None:
            return f"Rényi divergence of order {text(self.order)}, {text(self._limit, up=False)} in all"
        return f"{'μ²' if self._gaussian else 'ρ'}, {text(self.limit, up=False)} in all"

    def _own(self, spent: Spent) -> Spent:
        """The sums, if they are of this filter's order: others would seem to have used nothing."""
        if spent.order == self.order:
            return spent
        if spent.count:
            raise ValueError("these sums were begun for another filter: fold the events anew")
        return self.start

    def _sum(self, spent: Spent) -> Fraction:
        spent = self._own(spent)
        return spent.mu_squared if self._gaussian else spent.rho if self.order is None else spent.renyi

    def _cost(self, event: Event) -> Fraction:
        if self._gaussian:
            return event.mu**2
        return event.rho if self.order is None else event.renyi(self.order)

    def _holds(self, after: Spent) -> bool:
        if after.aside > self.aside:
            return False
        plain = after.near is not None and after.near <= self.epsilon
        return plain or (self.limit > 0 and self._sum(after) <= self._limit)

    def _by_sum(self, spent: Spent) -> Fraction:
        return _NOTHING if spent.near is None or spent.aside > self.aside else self.epsilon - spent.near

    def _by_rule(self, spent: Spent) -> Fraction:
        left = self._limit - self._sum(spent)
        return _NOTHING if self.limit == 0 or left <= 0 or spent.aside > self.aside else self._largest(left)

    def _delta_left(self, spent: Spent) -> Fraction:
        return self.aside - spent.aside

    def _largest(self, left: Fraction) -> Fraction:
        """The largest four-digit pure epsilon within what is left: guessed with floats, decided exactly."""
        low, high, about = 0.0, 64.0, float(left)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._guess(middle) <= about else (low, middle)
        epsilon = significant(Fraction(low))
        while epsilon > 0 and self._cost(PureDP(epsilon)) > left:
            epsilon = (
                significant(epsilon * Fraction(9995, 10000)) if epsilon > Fraction(1, 10**9) else _NOTHING
            )
        return epsilon

    def _guess(self, epsilon: float) -> float:
        """What a pure epsilon costs by this rule, nearly."""
        if self._gaussian:
            return 4 * NormalDist().inv_cdf(max(1 / (1 + math.exp(epsilon)), 1e-300)) ** 2
        rho = epsilon * math.tanh(epsilon / 2)
        if self.order is None:
            return rho
        order = float(self.order)
        lost = math.log1p(math.exp(-epsilon)) - math.log1p(math.exp(-(2 * order - 1) * epsilon))
        return min(order * rho, epsilon - lost / (order - 1))


@dataclass(frozen=True)
class Share:
    """Two limits that both hold: an analyst's own, and that of the whole.

    The intersection of filters is a filter: it stops no later than each of them. Each keeps sums of its own,
    because the whole also counts what others asked.
    """

    own: Filter
    whole: Filter

    def admits(self, own: Spent, whole: Spent, event: Event) -> bool:
        """Whether both admit the event."""
        return self.own.admits(own, event) and self.whole.admits(whole, event)

    def add(self, own: Spent, whole: Spent, event: Event) -> tuple[Spent, Spent]:
        """Both sums with the event in them."""
        return self.own.add(own, event), self.whole.add(whole, event)

    def fits(self, own: Spent, whole: Spent) -> Fraction:
        """The largest pure epsilon that both still have room for."""
        return min(self.own.fits(own), self.whole.fits(whole))

    def more(self, own: Spent, whole: Spent, event: Event) -> int:
        """How many more such statements both admit."""
        return min(self.own.more(own, event), self.whole.more(whole, event))

    def room(self, own: Spent, whole: Spent) -> Room:
        """The narrower of the two rooms."""
        return min(self.own.room(own), self.whole.room(whole), key=lambda room: room.epsilon_left)


def open_filter(
    accountant: str, epsilon: Fraction, delta: Fraction, share: Fraction = MECHANISM_SHARE
) -> Filter:
    """A filter for a budget; its limits are solved here, once, and never at a time that depends on data.

    Args:
        accountant: one of :data:`ACCOUNTANTS`.
        epsilon, delta: the guarantee for the whole session. With delta 0 only pure mechanisms are admitted.
        share: the part of delta for mechanisms that have one of their own (``basic`` sums all deltas and needs none).

    Raises:
        ValueError: an unknown accountant, an epsilon that is not above 0, a delta or a share outside [0, 1).

    >>> open_filter("zcdp", Fraction(1), Fraction(1, 10**6)).more(Spent(), PureDP(Fraction("0.01")))
    462
    """
    if accountant not in ACCOUNTANTS:
        raise ValueError(f"there is no accountant {accountant!r}; there is {', '.join(ACCOUNTANTS)}")
    if epsilon <= 0 or not 0 <= delta < 1 or not 0 <= share < 1:
        raise ValueError("a budget needs epsilon > 0, 0 <= delta < 1 and 0 <= share < 1")
    if accountant == "basic":
        return Basic(epsilon, delta)
    if delta == 0:
        return Concentrated(epsilon, delta, accountant)
    aside = delta * share
    rest = delta - aside
    if accountant == "gdp":
        return Concentrated(epsilon, delta, "gdp", constants.gaussian_mu(epsilon, rest) ** 2, aside)
    order = zcdp.best_order(epsilon, rest)
    return Concentrated(epsilon, delta, "zcdp", zcdp.largest_rho(epsilon, rest), aside, order)


def _flat(events: Iterable[Event]) -> Iterable[Event]:
    for event in events:
        inner: tuple[Event, ...] | None = getattr(event, "events", None)
        if inner is None:
            yield event
        else:
            yield from _flat(inner)


def _times(left: Fraction, each: Fraction) -> int:
    if left < 0:
        return 0
    return MANY if each <= 0 else min(MANY, int(left // each))
