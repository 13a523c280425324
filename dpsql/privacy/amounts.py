"""Amounts of privacy loss of a statement, in the requested currency: epsilon, mu or rho.

An amount is stored as the number that adds up under composition: epsilon, mu squared, rho. So its equal parts are equal
shares, and their costs add up to the whole.

Gaussian noise gets the sigma that makes it exactly mu-GDP. A pure mechanism gets the largest epsilon whose proved cost, as
the accountant will charge it, is within its share: searched with floats, decided exactly, rounded down.

>>> from dpsql.privacy.events import BoundedRange, PureDP
>>> half = Amount.of_mu(Fraction(1, 2))
>>> [round(float(half.find_epsilon(event)), 6) for event in (PureDP, BoundedRange)]
[0.400078, 0.800155]
>>> str(half / 4), str(Amount("rho", Fraction(1, 100)))
('μ=0.25', 'ρ=0.01')
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar

from dpsql.late_dataclass import dataclass
from dpsql.numerics.exact_numbers import compute_root, round_significant, write_number
from dpsql.privacy import conversions
from dpsql.privacy.events import Event, RoundedGaussian

SYMBOLS = {"epsilon": "ε", "mu": "μ", "rho": "ρ"}
"""The signs of the currencies."""
LARGEST = {"mu": Fraction(1000), "rho": Fraction(500_000)}
"""The largest mu and rho that a statement may ask for: far below that, nothing is hidden any more."""
SMALLEST = {"mu": Fraction(1, 10**15), "rho": Fraction(1, 10**30)}
"""The smallest ones: their noise would not fit the machine's integers."""
_DIGITS = 9
"""Digits of an epsilon found by search: so few that the floats of every machine lead to one result."""
_MORE_DIGITS = 14
_STEPS = 24


@dataclass(frozen=True)
class GaussianByMu(RoundedGaussian):
    """Rounded Gaussian noise for a requested mu or rho, shown as such; the declared pair is its equivalent at some delta."""

    kind: ClassVar[str] = "gaussian_by_mu"


@dataclass(frozen=True)
class Amount:
    """A loss in one currency: ``"epsilon"``, ``"mu"`` or ``"rho"``. ``total`` is epsilon, mu squared, or rho."""

    currency: str
    total: Fraction

    @classmethod
    def of_mu(cls, mu: Fraction) -> Amount:
        return cls("mu", mu * mu)

    def __truediv__(self, parts: int) -> Amount:
        return Amount(self.currency, self.total / parts)

    def times(self, factor: Fraction) -> Amount:
        """Return the amount for noise of one part in ``factor`` of the deviation: rho grows by its square."""
        return Amount(self.currency, self.total * (factor if self.currency == "epsilon" else factor * factor))

    def __str__(self) -> str:
        return f"{SYMBOLS[self.currency]}={write_number(self.amount)}"

    @property
    def amount(self) -> Fraction:
        """The number for display: mu instead of its square, rounded up."""
        return compute_root(self.total) if self.currency == "mu" else self.total

    @property
    def mu_squared(self) -> Fraction | None:
        """The square of the mu for Gaussian noise: twice the rho. None for an epsilon."""
        return {"mu": self.total, "rho": 2 * self.total}.get(self.currency)

    def cost(self, event: Event) -> Fraction:
        if self.currency == "mu":
            return event.mu**2
        return event.rho if self.currency == "rho" else event.basic[0]

    def covers(self, event: Event) -> bool:
        """Return whether an event costs no more than this, in exact arithmetic."""
        return self.cost(event) <= self.total

    def bound_epsilon(self, delta: Fraction) -> Fraction:
        """Return the epsilon, rounded up, at ``delta`` of every event that costs no more than this."""
        if self.currency == "mu":
            return conversions.gaussian_epsilon(compute_root(self.total), delta)
        return conversions.find_smallest_epsilon(self.total, delta) if self.currency == "rho" else self.total

    def find_epsilon(self, price: Callable[[Fraction], Event]) -> Fraction:
        """Return the largest epsilon, to nine digits, whose event ``price(epsilon)`` is within this amount."""
        if self.currency == "epsilon":
            return self.total
        target = math.log(float(self.total))
        at = 0.5 * target + (
            0.35 if self.currency == "rho" else -0.23
        )  # rho is about epsilon^2 / 2, mu about 1.25 epsilon
        epsilon, before, slope = Fraction(0), None, 2.0
        for _ in range(_STEPS):
            epsilon = round_significant(Fraction(math.exp(at)), _MORE_DIGITS)
            off = math.log(float(self.cost(price(epsilon)))) - target
            if before is not None and at != before[0] and off != before[1]:
                slope = min(2.5, max(0.5, (off - before[1]) / (at - before[0])))
            if abs(off) < 1e-12:
                break
            before, at = (at, off), at - off / slope
        epsilon, less = round_significant(epsilon, _DIGITS), Fraction(1, 10**_DIGITS)
        while not self.covers(price(epsilon)):
            epsilon = round_significant(epsilon * (1 - min(less, Fraction(1, 2))), _DIGITS)
            less *= 2
        return epsilon


@dataclass(frozen=True)
class OwnRoom:
    """The room left of a limit in mu or rho.

    Args:
        symbol: the currency's sign.
        limit, spent, left: the whole, rounded down; the used amount, rounded up; the room for one more statement, rounded
            down.
        by_sum: the epsilon that the plain sum would still admit; None without such a sum.
    """

    symbol: str
    limit: Fraction
    spent: Fraction
    left: Fraction
    by_sum: Fraction | None = None

    def say(self, epsilon: Fraction, whose: str = "") -> str:
        left, limit = (write_number(amount, up=False) for amount in (self.left, self.limit))
        text = f"{self.symbol}={left} of {whose}{self.symbol}={limit} left"
        if self.by_sum is None or self.by_sum <= 0:
            return text
        return f"{text}, or ε={write_number(self.by_sum, up=False)} of ε={write_number(epsilon)} by the plain sum"


def say_what_is_left(left: Fraction, epsilon: Fraction, rule: Fraction | None, whose: str = "") -> str:
    """Return the sentence about the remaining amount, as in every display."""
    amounts = f"ε={write_number(left, up=False)} of {whose}ε={write_number(epsilon)}"
    if rule is None or left == 0:
        return f"{amounts} left"
    return f"{amounts} left for one more, {format_percent(rule)} of the rule used"


def format_percent(part: Fraction) -> str:
    """Format a part of a limit in percent, with two digits, rounded up.

    >>> format_percent(Fraction(1, 450)), format_percent(Fraction(211, 1000)), format_percent(Fraction(1))
    ('0.23%', '22%', '100%')
    """
    return f"{write_number(round_significant(100 * part, 2 if part < 1 else 4, up=True))}%"
