"""The event of groups chosen by one table of probabilities for all groups of a unit together.

By :mod:`dpsql.mechanisms.renyi_selection`, outside a probability ``aside`` of revealing everything, the Rényi divergence of one
order is at most ``divergence``, both ways; so the whole is (epsilon, delta)-DP by the conversion of Canonne, Kamath and
Steinke 2020, which the construction checks.

Why epsilon is a pure part outside delta, as the filters need it, and not only a declared pair. Let P and Q be the output
distributions of two neighbouring data sets, with l = dP/dQ, and let both be (epsilon, d)-close. Cut l off at the t <= epsilon
at which ``P - e^t Q`` has a positive part of exactly d, and 1/l likewise; divide both measures by 1 - d. This defines P' and Q'
with ``P = (1 - d) P' + d P''`` and likewise for Q, whose ratio is between e^-epsilon and e^epsilon. Their divergence at e^x is
``(h(x) - d) / (1 - d) <= h(x)`` between the two ends, where h is that of P and Q, and is the least possible outside of them.
So P' and Q' are a processing of P and Q (Blackwell), and bounds on P and Q in any currency hold for them: one decomposition,
in which the loss is at most epsilon, and rho, mu and the divergence of every order are no larger than before. (If P and Q
differ by less than d in all, P' = Q' does.)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.numerics.exact_numbers import shorten
from dpsql.privacy import conversions
from dpsql.privacy.events import Event, GroupSelection, require


def find_rest(delta: Fraction, aside: Fraction) -> Fraction:
    """Return the rest of a delta after ``aside``: ``1 - (1 - aside) (1 - rest)`` is delta."""
    return (delta - aside) / (1 - aside)


@dataclass(frozen=True)
class RenyiSelection(Event):
    """Groups chosen by the number of privacy units in them: of one unit, ``groups`` decisions that are accounted together.

    Outside the probability delta the loss is at most epsilon, and the divergence of ``order`` at most ``divergence``. At each of
    ``orders`` no decision diverges by more than an (epsilon / groups)-DP one; with ``held`` none has more rho or mu either.

    Raises:
        ValueError: the divergence does not imply the pair.
    """

    kind: ClassVar[str] = "renyi_selection"
    positive = ("epsilon", "groups", "divergence", "aside")
    epsilon: Fraction
    delta: Fraction
    groups: int
    order: Fraction
    divergence: Fraction
    aside: Fraction
    held: bool
    orders: tuple[Fraction, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.aside < self.delta, "aside: below delta")
        require(min(self.order, *self.orders, self.order) > 1, "orders: above 1")
        limit = conversions.find_renyi_limit(self.order, self.epsilon, find_rest(self.delta, self.aside))
        require(self.divergence <= limit, "the divergence is too large for the pair")

    @property
    def repeats(self) -> int:
        return self.groups if self.held else 1

    def renyi(self, order: Fraction) -> Fraction:
        found = [order * self.rho, conversions.pure_renyi(self.epsilon, order)]
        if order <= self.order:
            found.append(self.divergence)
        even = GroupSelection(self.epsilon, self.delta, self.groups)
        found += (even.renyi(known) for known in self.orders if order <= known)
        return shorten(min(found))

    @property
    def mu_squared(self) -> Fraction:
        """The squared mu, for composition with other Gaussian noise."""
        return self.mu * self.mu
