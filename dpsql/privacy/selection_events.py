"""The event of groups that are chosen by one table of probabilities for all groups of a unit together.

What is known of the choice (:mod:`dpsql.mechanisms.renyi_selection`): apart from a probability ``aside`` in which something
may betray all, the Rényi divergence of one order is at most ``divergence``, both ways; so the whole is (epsilon, delta)-DP by
the conversion of Canonne, Kamath and Steinke 2020, which the construction checks.

Why epsilon is a pure part beside delta, as the filters need it, and not only a declared pair. Let P and Q be what two
neighbouring data sets give, with l = dP/dQ, and let both be (epsilon, d)-close. Cut l off at the t <= epsilon at which
``P - e^t Q`` has a positive part of exactly d, and 1/l in the same way; divide both measures by 1 - d. That gives P' and Q'
with ``P = (1 - d) P' + d P''`` and the same for Q, whose ratio lies between e^-epsilon and e^epsilon. Their divergence at
e^x is ``(h(x) - d) / (1 - d) <= h(x)`` between the two ends, where h is that of P and Q, and is the least that there can be
outside of them. So P' and Q' are a processing of P and Q (Blackwell), and what holds for P and Q in any currency holds for
them: one decomposition, in which the loss is at most epsilon, and rho, mu and the divergence of every order are no
larger than they were. (Where P and Q differ by less than d in all, P' = Q' does.)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.numerics.exact_numbers import shorten
from dpsql.privacy import conversions
from dpsql.privacy.events import Event, GroupSelection, require


def find_rest(delta: Fraction, aside: Fraction) -> Fraction:
    """Return the delta that is left beside another: ``1 - (1 - aside) (1 - rest)`` is delta."""
    return (delta - aside) / (1 - aside)


@dataclass(frozen=True)
class RenyiSelection(Event):
    """Groups chosen by the number of privacy units in them: of one unit, ``groups`` decisions that are accounted together.

    Outside of the probability delta the loss is at most epsilon, and the divergence of ``order`` at most ``divergence``. At each
    of ``orders`` no decision diverges by more than an (epsilon / groups)-DP one; with ``held`` none has more rho or mu either.

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
        """The squared mu, for what is composed with other Gaussian noise."""
        return self.mu * self.mu
