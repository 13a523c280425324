"""Events of Gaussian noise on jointly calibrated numbers, and of a noisy test.

Independent Gaussian noise on several numbers that were fixed jointly is one Gaussian mechanism: with ``mu`` for each of them
the whole is ``sqrt(sum of mu**2)``-GDP, exactly (Dong, Roth, Su 2022, corollary 2.1). So one analytic calibration at the
requested (epsilon, delta) covers all of them, and basic composition adds that pair once.

>>> from dpsql.privacy.events import compose_events
>>> pair = (Fraction(1), Fraction(1, 10**6))
>>> two = [JointGaussian((sigma,), (square,), *pair) for sigma, square in ((Fraction(6), 1), (Fraction(12), 4))]
>>> compose_events(two) == JointGaussian((Fraction(6), Fraction(12)), (1, 4), *pair)
True
>>> compose_events(two).basic == pair, compose_events(two).rho == Fraction(1, 36)
(True, True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dpsql.numerics.exact_numbers import compute_root, shorten, write_number
from dpsql.privacy import conversions
from dpsql.privacy.events import Event, require

_BITS = 192
"""Significant bits of each number's squared mu, which is rounded up."""


@dataclass(frozen=True)
class JointGaussian(Event):
    """Rounded Gaussian noise on several integers, calibrated together.

    Number i has noise of deviation ``sigmas[i]``, and one privacy unit moves it by at most the root of ``squares[i]`` in L2,
    over all groups, in its own grid steps. ``basic`` adds the declared pair once for all numbers, which the construction
    checks by the analytic formula (Balle, Wang 2018). As post-processing of the continuous mechanism it is exactly mu-GDP.

    Raises:
        ValueError: the noise is too small for the declared pair, or the numbers do not match.
    """

    kind: ClassVar[str] = "joint_gaussian"
    epsilon = None
    delta = Fraction(0)
    sigmas: tuple[Fraction, ...]
    squares: tuple[int, ...]
    declared_epsilon: Fraction
    declared_delta: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < len(self.sigmas) == len(self.squares), "as many deviations as sensitivities")
        require(min(self.sigmas) > 0 and min(self.squares) > 0, "sigmas, squares: above 0")
        require(self.declared_epsilon >= 0 and 0 < self.declared_delta < 1, "declared pair out of range")
        require(
            conversions.gaussian_delta(self.mu, self.declared_epsilon) <= self.declared_delta,
            f"noise too small for ε={write_number(self.declared_epsilon)}, δ={write_number(self.declared_delta)}",
        )

    @cached_property
    def mu_squared(self) -> Fraction:
        """The squared mu of all numbers together, rounded up."""
        alike = Counter(zip(self.sigmas, self.squares, strict=True))
        each = (_round_up(Fraction(n * square) / (sigma * sigma)) for (sigma, square), n in alike.items())
        return sum(each, Fraction(0))

    @cached_property
    def mu(self) -> Fraction:
        return shorten(compute_root(self.mu_squared))

    @property
    def rho(self) -> Fraction:
        return shorten(self.mu_squared / 2)

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        return self.declared_epsilon, self.declared_delta

    @property
    def calibration(self) -> object:
        return self.kind, self.declared_epsilon, self.declared_delta

    def join(self, others: Iterable[Event]) -> Event | None:
        """Return the event of all numbers, if the declared pair covers them together. It is exact for any such list."""
        listed = [self, *(other for other in others if isinstance(other, JointGaussian))]
        try:
            return replace(
                self,
                sigmas=tuple(sigma for event in listed for sigma in event.sigmas),
                squares=tuple(square for event in listed for square in event.squares),
            )
        except ValueError:
            return None


def _round_up(value: Fraction) -> Fraction:
    places = _BITS - value.numerator.bit_length() + value.denominator.bit_length()
    if places <= 0 or value.denominator.bit_length() <= _BITS:
        return value
    return Fraction(-(-(value.numerator << places) // value.denominator), 1 << places)


@dataclass(frozen=True)
class GaussianTest(Event):
    """A propose-test-release test with Gaussian noise of ``sigma`` on a distance that moves by one.

    Near pairs are ``1 / sigma``-GDP, far pairs differ with ``delta`` only. ``basic`` adds the declared epsilon, and the
    delta that is true for it: both kinds of pair are covered.
    """

    kind: ClassVar[str] = "gaussian_test"
    positive = ("sigma",)
    epsilon = None
    sigma: Fraction
    delta: Fraction
    declared_epsilon: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.delta < 1 and self.declared_epsilon >= 0, "delta: out of range")

    @property
    def rho(self) -> Fraction:
        return shorten(1 / (2 * self.sigma * self.sigma))

    @property
    def mu(self) -> Fraction:
        return shorten(1 / self.sigma)

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        near = conversions.gaussian_delta(self.mu, self.declared_epsilon)
        return self.declared_epsilon, self.delta if near <= self.delta else self.delta + near
