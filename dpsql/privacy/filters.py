"""Filters: what decides whether the next statement may still run.

In a notebook each query, and its epsilon, may be chosen from earlier answers. A filter keeps running sums and
admits an event only while they stay below limits that are solved once, when it is opened; the guarantee
(epsilon, delta) then holds for the whole adaptive session, wherever it stops. Three such rules are proved:

``basic``  sums of epsilon and of delta (Rogers et al. 2016). Pure losses may be summed path by path, which is
           why a sparse vector that found fewer hits may be settled with less: on every path the loss is at
           most the sum of what that path was charged, and the reservation was admitted in full before it ran.
``zcdp``   the sum of rho, and of the deltas set aside (Feldman-Zrnic 2021; Whitehouse et al. 2023)
``gdp``    the sum of mu squared, and of the deltas set aside (Smith-Thakurta 2022; Koskela et al. 2023)

Under ``zcdp`` and ``gdp`` a path that holds pure mechanisms only may also go on while the plain sum of its
epsilons is at most epsilon: *pure sum OR the rule*. Proof. Split any set S of outcomes by paths: B, on which
the rule holds at the end, and the rest, which are pure with a sum of at most epsilon. On the rest the
likelihood ratio is at most
``e^epsilon``, so it adds nothing to ``P(S) - e^epsilon Q(S)``. The sums only grow, so the paths of B satisfy
the rule all along: they are paths, with the same probabilities, of the mechanism that the rule alone would
have stopped, hence ``P(S and B) - e^epsilon Q(S and B) <= delta``. Other unions of filters are *not* valid in
general, and "admit while the composed privacy loss distribution so far is fine" is not a filter at all (the
tests exceed it by 47 %).

Of delta, a tenth is kept for mechanisms that have one of their own; the rest pays for the conversion. Without
delta only pure mechanisms are admitted.

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from statistics import NormalDist
from typing import Any, Protocol

from dpsql.privacy import constants, zcdp
from dpsql.privacy.events import DeclaredPlan, Event, PureDP, SparseVector
from dpsql.privacy.rounding import bounded, significant, text

ACCOUNTANTS = ("zcdp", "basic", "gdp")
"""The names that a policy may write; the first is the default."""

MANY = 10**9
"""What :meth:`Filter.more` answers for an event that never uses anything up."""

_NOTHING = Fraction(0)


@dataclass(frozen=True)
class Spent:
    """The running sums of everything charged so far: all that any accountant needs, of any number of
    statements.

    ``epsilon`` and ``delta`` are what basic composition adds; ``pure`` the sum of pure losses, None once a
                mechanism had
    none; ``rho``, ``mu_squared`` the concentrated currencies, and ``aside`` the deltas set aside by both.
    """

    count: int = 0
    epsilon: Fraction = _NOTHING
    delta: Fraction = _NOTHING
    pure: Fraction | None = _NOTHING
    rho: Fraction = _NOTHING
    mu_squared: Fraction = _NOTHING
    aside: Fraction = _NOTHING

    def plus(self, event: Event) -> Spent:
        """The sums with one more event in them. Exact where the numbers are short, else rounded up.

        Raises:
            TypeError: it is not an event: an approximation, say, which nothing may be charged by.
        """
        if not isinstance(event, Event):
            raise TypeError(f"only events are charged, not a {type(event).__name__}")
        epsilon, delta = event.basic
        pure = None if self.pure is None or event.pure is None else bounded(self.pure + event.pure)
        return Spent(
            self.count + 1,
            bounded(self.epsilon + epsilon),
            bounded(self.delta + delta),
            pure,
            bounded(self.rho + event.rho),
            bounded(self.mu_squared + event.mu**2),
            bounded(self.aside + event.delta),
        )

    def to_json(self) -> dict[str, Any]:
        """Strings, an int and perhaps a null."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: str(v) if isinstance(v, Fraction) else v for name, v in values.items()}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Spent:
        """The sums that :meth:`to_json` wrote; KeyError or ValueError for anything else."""
        pure = None if body["pure"] is None else Fraction(body["pure"])
        numbers = {name: Fraction(body[name]) for name in ("epsilon", "delta", "rho", "mu_squared", "aside")}
        spent = Spent(int(body["count"]), pure=pure, **numbers)
        if spent.count < 0 or min(*numbers.values(), pure or _NOTHING) < 0:
            raise ValueError("nobody spends less than nothing")
        return spent


@dataclass(frozen=True)
class Room:
    """What is left: ``epsilon_left`` is the largest pure epsilon that one more statement may have.

    Under ``zcdp`` many small statements fit where one large one does not, so this is not what a thousand more
    would add up to: ask :meth:`Filter.more` for that.
    """

    epsilon: Fraction
    epsilon_spent: Fraction
    epsilon_left: Fraction
    delta_left: Fraction
    sentence: str


class Filter(Protocol):
    """A rule that holds for adaptively chosen mechanisms and parameters. The state is in ``Spent``."""

    @property
    def name(self) -> str: ...

    @property
    def epsilon(self) -> Fraction: ...

    @property
    def delta(self) -> Fraction: ...

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

    def admits(self, spent: Spent, event: Event) -> bool:
        after = spent.plus(event)
        return self._pure_holds(after) or self._rule_holds(after) or self._whole_plan(spent, event)

    def fits(self, spent: Spent) -> Fraction:
        exact = self.epsilon - spent.pure if spent.pure is not None else _NOTHING
        return max(_NOTHING, exact, self._largest(spent))

    def more(self, spent: Spent, event: Event) -> int:
        by_rule, by_pure = self._copies(spent, event), 0
        if spent.pure is not None and event.pure is not None:
            by_pure = _times(self.epsilon - spent.pure, event.pure)
        return max(by_rule, by_pure)

    def room(self, spent: Spent) -> Room:
        left = self.fits(spent)
        sentence = f"ε={text(left, up=False)} of ε={text(self.epsilon)} left"
        delta_left = max(_NOTHING, self._delta_left(spent))
        return Room(self.epsilon, self.epsilon - left, left, delta_left, sentence)

    def _pure_holds(self, after: Spent) -> bool:
        return after.pure is not None and after.pure <= self.epsilon

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

    def _rule_holds(self, after: Spent) -> bool:
        raise NotImplementedError

    def _largest(self, spent: Spent) -> Fraction:
        raise NotImplementedError

    def _copies(self, spent: Spent, event: Event) -> int:
        raise NotImplementedError

    def _delta_left(self, spent: Spent) -> Fraction:
        raise NotImplementedError


@dataclass(frozen=True)
class Basic(_Sums):
    """Sums of epsilon and delta."""

    name: str = "basic"

    def _pure_holds(self, after: Spent) -> bool:
        return False  # the rule below is never weaker

    def _rule_holds(self, after: Spent) -> bool:
        return after.epsilon <= self.epsilon and after.delta <= self.delta

    def _largest(self, spent: Spent) -> Fraction:
        return self.epsilon - spent.epsilon if spent.delta <= self.delta else _NOTHING

    def fits(self, spent: Spent) -> Fraction:
        return max(_NOTHING, self._largest(spent))

    def more(self, spent: Spent, event: Event) -> int:
        return self._copies(spent, event)

    def _copies(self, spent: Spent, event: Event) -> int:
        epsilon, delta = event.basic
        return min(_times(self.epsilon - spent.epsilon, epsilon), _times(self.delta - spent.delta, delta))

    def _delta_left(self, spent: Spent) -> Fraction:
        return self.delta - spent.delta

    def sentence(self, spent: Spent) -> str:
        used = f"ε={text(spent.epsilon)} of {text(self.epsilon)} used"
        return used + (f", δ={text(spent.delta)} of {text(self.delta)} used" if self.delta else "")


@dataclass(frozen=True)
class Concentrated(_Sums):
    """Pure sum OR the sum of rho (``zcdp``) or of mu squared (``gdp``), and the deltas set aside."""

    limit: Fraction = _NOTHING
    aside: Fraction = _NOTHING

    @property
    def _gaussian(self) -> bool:
        return self.name == "gdp"

    def _used(self, spent: Spent) -> Fraction:
        return spent.mu_squared if self._gaussian else spent.rho

    def _cost(self, event: Event) -> Fraction:
        return event.mu**2 if self._gaussian else event.rho

    def _rule_holds(self, after: Spent) -> bool:
        return self.limit > 0 and self._used(after) <= self.limit and after.aside <= self.aside

    def _copies(self, spent: Spent, event: Event) -> int:
        if self.limit == 0:
            return 0
        within = _times(self.limit - self._used(spent), self._cost(event))
        return min(within, _times(self.aside - spent.aside, event.delta))

    def _largest(self, spent: Spent) -> Fraction:
        if self.limit == 0 or spent.aside > self.aside:
            return _NOTHING
        left = self.limit - self._used(spent)
        return _largest_pure(self._gaussian, left) if left > 0 else _NOTHING

    def _delta_left(self, spent: Spent) -> Fraction:
        return self.aside - spent.aside

    def sentence(self, spent: Spent) -> str:
        currency = "μ²" if self._gaussian else "ρ"
        parts = []
        if spent.pure is not None:
            parts.append(f"sum of ε {text(spent.pure)} of {text(self.epsilon)}")
        if self.limit:
            parts.append(f"{currency}={text(self._used(spent))} of {text(self.limit, up=False)}")
        if self.aside:
            parts.append(f"δ of mechanisms {text(spent.aside)} of {text(self.aside)}")
        return ", ".join(parts) + " used" if parts else "a mechanism without pure loss ran without delta"


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


def open_filter(accountant: str, epsilon: Fraction, delta: Fraction) -> Filter:
    """A filter for a budget; its limits are solved here, once, and never at a time that depends on data.

    Args:
        accountant: one of :data:`ACCOUNTANTS`.
        epsilon, delta: the guarantee for the whole session. With delta 0 only pure mechanisms are admitted.

    Raises:
        ValueError: an unknown accountant, an epsilon that is not above 0, a delta outside [0, 1).

    >>> open_filter("zcdp", Fraction(1), Fraction(1, 10**6)).more(Spent(), PureDP(Fraction("0.01")))
    482
    """
    if accountant not in ACCOUNTANTS:
        raise ValueError(f"there is no accountant {accountant!r}; there is {', '.join(ACCOUNTANTS)}")
    if epsilon <= 0 or not 0 <= delta < 1:
        raise ValueError("a budget needs epsilon > 0 and 0 <= delta < 1")
    if accountant == "basic":
        return Basic(epsilon, delta)
    if delta == 0:
        return Concentrated(epsilon, delta, accountant)
    aside = delta / 10
    if accountant == "zcdp":
        limit = zcdp.largest_rho(epsilon, delta - aside)
    else:
        limit = constants.gaussian_mu(epsilon, delta - aside) ** 2
    return Concentrated(epsilon, delta, accountant, limit, aside)


def spend(events: Iterable[Event]) -> Spent:
    """The sums of a list of events, for reading a ledger under any accountant."""
    spent = Spent()
    for event in events:
        spent = spent.plus(event)
    return spent


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


def _largest_pure(gaussian: bool, limit: Fraction) -> Fraction:
    """The largest four-digit pure epsilon within ``limit``: guessed with floats, decided exactly."""
    low, high = 0.0, 64.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = NormalDist().inv_cdf(max(1 / (1 + math.exp(middle)), 1e-300)) if gaussian else 0.0
        cost = 4 * tail * tail if gaussian else middle * math.tanh(middle / 2)
        low, high = (middle, high) if cost <= limit else (low, middle)
    epsilon = significant(Fraction(low))
    while epsilon > 0 and (PureDP(epsilon).mu ** 2 if gaussian else PureDP(epsilon).rho) > limit:
        epsilon = significant(epsilon * Fraction(9995, 10000)) if epsilon > Fraction(1, 10**9) else _NOTHING
    return epsilon
