"""What was spent, as the running sums that a filter decides on, and what is left, in the words of every display."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from dpsql.numerics.rounding import bounded, significant, text
from dpsql.privacy.events import Event

_NOTHING = Fraction(0)


@dataclass(frozen=True)
class Spent:
    """The running sums of everything charged so far: all that any accountant needs, of any number of statements.

    ``epsilon`` and ``delta`` are what basic composition adds; ``near`` the sum of the losses outside delta, None once
    a mechanism had none; ``rho``, ``mu_squared`` and ``renyi`` (of one ``order``, if there is one) the currencies of the
    rules, and ``aside`` the deltas that they set aside.
    """

    count: int = 0
    epsilon: Fraction = _NOTHING
    delta: Fraction = _NOTHING
    near: Fraction | None = _NOTHING
    rho: Fraction = _NOTHING
    mu_squared: Fraction = _NOTHING
    aside: Fraction = _NOTHING
    renyi: Fraction = _NOTHING
    order: Fraction | None = None

    def plus(self, event: Event) -> Spent:
        """The sums with one more event in them. Exact where the numbers are short, else rounded up.

        Raises:
            TypeError: it is not an event: an approximation, say, which nothing may be charged by.
        """
        if not isinstance(event, Event):
            raise TypeError(f"only events are charged, not a {type(event).__name__}")
        epsilon, delta = event.basic
        loss = event.epsilon
        return Spent(
            count=self.count + 1,
            epsilon=bounded(self.epsilon + epsilon),
            delta=bounded(self.delta + delta),
            near=None if self.near is None or loss is None else bounded(self.near + loss),
            rho=bounded(self.rho + event.rho),
            mu_squared=bounded(self.mu_squared + event.mu**2),
            aside=bounded(self.aside + event.delta),
            renyi=self.renyi if self.order is None else bounded(self.renyi + event.renyi(self.order)),
            order=self.order,
        )

    def to_json(self) -> dict[str, Any]:
        """Strings, an int and perhaps nulls."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: str(v) if isinstance(v, Fraction) else v for name, v in values.items()}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Spent:
        """The sums that :meth:`to_json` wrote; KeyError or ValueError for anything else, sums of an older version among
        it: these can only be made again, from the events.
        """
        near, order = (None if body[name] is None else Fraction(body[name]) for name in ("near", "order"))
        names = ("epsilon", "delta", "rho", "mu_squared", "aside", "renyi")
        numbers = {name: Fraction(body[name]) for name in names}
        spent = Spent(int(body["count"]), near=near, order=order, **numbers)
        if spent.count < 0 or min(*numbers.values(), near or _NOTHING) < 0:
            raise ValueError("nobody spends less than nothing")
        return spent


@dataclass(frozen=True)
class Room:
    """What is left: ``epsilon_left`` is the largest pure epsilon that one more statement may have, ``delta_left`` what is
    left for mechanisms with a delta of their own.

    Where the plain sum says how much fits, ``rule`` is None. Where the rule does, it is the part of the rule's limit that
    is used: many small statements fit then where one large one does not (:meth:`Filter.more` counts them).
    """

    epsilon: Fraction
    epsilon_spent: Fraction
    epsilon_left: Fraction
    delta_left: Fraction
    rule: Fraction | None = None

    @property
    def sentence(self) -> str:
        """``"ε=0.8 of ε=1 left"``; by the rule ``"ε=0.19 of ε=1 left for one more, 21% of the rule used"``."""
        return left_sentence(self.epsilon_left, self.epsilon, self.rule)


def left_sentence(left: Fraction, epsilon: Fraction, rule: Fraction | None, whose: str = "") -> str:
    """What is left, in the words that every display uses."""
    if rule is None or left == 0:
        return f"ε={text(left, up=False)} of {whose}ε={text(epsilon)} left"
    return f"ε={text(left, up=False)} of {whose}ε={text(epsilon)} left for one more, {percent(rule)} of the rule used"


def percent(part: Fraction) -> str:
    """A part of a limit in percent, two digits, rounded up.

    >>> percent(Fraction(1, 450)), percent(Fraction(211, 1000)), percent(Fraction(1))
    ('0.23%', '22%', '100%')
    """
    return f"{text(significant(100 * part, 2 if part < 1 else 4, up=True))}%"


def sensible_delta(left: Fraction) -> Fraction:
    """A delta for one statement, of what is left for mechanisms that have one of their own: a fiftieth, to one digit.

    >>> text(sensible_delta(Fraction(5, 10**7))), sensible_delta(Fraction(0))
    ('1e-08', Fraction(0, 1))
    """
    return significant(max(_NOTHING, left) / 50, 1)
