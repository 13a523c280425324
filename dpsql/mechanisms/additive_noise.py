"""Integer noise for integer statistics: the scale that a sensitivity and a loss ask for, and what it costs.

Both kinds add independent noise to every group's statistic. Sensitivities are in grid steps, under
ADD_REMOVE: how far one privacy unit's presence moves the statistic of any one group, while it touches at
most ``groups`` groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

from dpsql.noise.discrete import discrete_laplace, rounded_gaussian
from dpsql.noise.entropy import Entropy
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.integers import SAFE, Integers, integers
from dpsql.privacy import events

MARGIN = 1e-9
"""Relative widening of an interval's width, far above the rounding of the floats that it is computed in."""


def _sum(values: Integers, noise: Integers) -> Integers:
    """``values + noise``, leaving int64 before it could overflow."""
    for part in (values, noise):
        if part.dtype == object or (len(part) and not -SAFE < int(part.min()) <= int(part.max()) < SAFE):
            return integers(values.astype(object) + noise.astype(object))
    return values + noise


def _declared(sensitivity: int, groups: int) -> None:
    if sensitivity < 1 or groups < 1:
        raise ValueError("sensitivity and groups must be at least 1")


@dataclass(frozen=True)
class LaplaceNoise:
    """Discrete Laplace noise of scale ``groups * sensitivity / epsilon`` on every group's integer.

    Relation: ADD_REMOVE. Sensitivity: at most ``sensitivity`` steps in each of at most ``groups`` groups, so
    ``groups * sensitivity`` in L1. Guarantee: epsilon-DP (Ghosh, Roughgarden, Sundararajan 2009), for
    ``Pr[k] / Pr[k + d] <= exp(d / scale)``. The caller must ensure both bounds, that the statistics are exact
    integers, and that no noisy value is drawn twice from one event.
    """

    epsilon: Fraction
    sensitivity: int
    groups: int = 1

    def __post_init__(self) -> None:
        _declared(self.sensitivity, self.groups)
        if self.epsilon <= 0:
            raise ValueError("epsilon must be positive")

    @property
    def scale(self) -> Fraction:
        """In grid steps."""
        return self.groups * self.sensitivity / self.epsilon

    @property
    def event(self) -> events.Event:
        return events.DiscreteLaplace(self.epsilon, self.sensitivity, self.groups)

    def add(self, values: Sequence[int] | Integers, entropy: Entropy) -> Integers:
        """The values, each with fresh noise: int64 where all fit, else Python ints."""
        exact = integers(values)
        return _sum(exact, discrete_laplace(self.scale, len(exact), entropy))

    def half_width(self, confidence: float) -> float:
        """The whole number of grid steps that the noise stays within, with at least this probability."""
        rate = float(1 / self.scale)
        # Pr[|noise| > w] = 2 exp(-(w + 1) * rate) / (1 + exp(-rate))
        reach = math.log(2 / ((1 + math.exp(-rate)) * (1 - confidence) * (1 - MARGIN))) / rate
        return float(max(0, math.ceil(reach * (1 + MARGIN)) - 1))

    def sentence(self, confidence: float, steps: Fraction = Fraction(1)) -> str:
        """Says the distribution and its reach, in units of ``1 / steps``."""
        per = float(steps)
        shared = f", over {self.groups} groups" if self.groups > 1 else ""
        return (
            f"discrete Laplace noise of scale {float(self.scale) / per:.6g} "
            f"(ε={float(self.epsilon):g}{shared}); "
            f"within ±{self.half_width(confidence) / per:.6g} with {confidence:.4g} probability"
        )


@dataclass(frozen=True)
class GaussianNoise:
    """Gaussian noise of deviation ``sigma``, rounded to an integer, on every group's integer.

    Relation: ADD_REMOVE. Sensitivity: at most ``sensitivity`` steps in each of at most ``groups`` groups,
    so ``sensitivity * sqrt(groups)`` in L2. Guarantee: that ratio to sigma is mu, and the release is mu-GDP
    (Dong, Roth, Su 2022), as post-processing of the continuous mechanism; it is (epsilon, delta)-DP for the
    declared pair, which :meth:`calibrate` proves by the analytic formula (Balle, Wang 2018). The caller
    must ensure both bounds, that the statistics are exact integers, and that no noisy value is drawn twice
    from one event.
    """

    sigma: Fraction
    sensitivity: int
    groups: int
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        _declared(self.sensitivity, self.groups)
        if self.sigma <= 0:
            raise ValueError("sigma must be positive")

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction, sensitivity: int, groups: int) -> GaussianNoise:
        """The least noise that is (epsilon, delta)-DP, with sigma rounded up by less than one part in 2**30.

        Raises:
            ValueError: unless ``epsilon > 0`` and ``0 < delta < 1``.
        """
        _declared(sensitivity, groups)
        norm = groups * sensitivity**2
        root = Fraction(math.isqrt(norm << 80), 1 << 40)
        if root * root != norm:
            root += Fraction(1, 1 << 40)
        sigma = _rounded_up(noise_multiplier(epsilon, delta) * root)
        return cls(sigma, sensitivity, groups, epsilon, delta)

    @property
    def event(self) -> events.Event:
        return events.RoundedGaussian(self.sigma, self.groups * self.sensitivity**2, self.epsilon, self.delta)

    def add(self, values: Sequence[int] | Integers, entropy: Entropy) -> Integers:
        """The values, each with fresh noise: int64 where all fit, else Python ints."""
        exact = integers(values)
        return _sum(exact, rounded_gaussian(self.sigma, len(exact), entropy))

    def half_width(self, confidence: float) -> float:
        """The whole number of grid steps that the noise stays within, with at least this probability."""
        z = -NormalDist().inv_cdf((1 - confidence) * (1 - MARGIN) / 2)
        return float(max(0, math.ceil(float(self.sigma) * z * (1 + MARGIN) - 0.5)))

    def sentence(self, confidence: float, steps: Fraction = Fraction(1)) -> str:
        """Says the distribution and its reach, in units of ``1 / steps``."""
        per = float(steps)
        shared = f", over {self.groups} groups" if self.groups > 1 else ""
        return (
            f"rounded Gaussian noise of deviation {float(self.sigma) / per:.6g} "
            f"(ε={float(self.epsilon):g}, δ={float(self.delta):g}{shared}); "
            f"within ±{self.half_width(confidence) / per:.6g} with {confidence:.4g} probability"
        )


Noise = LaplaceNoise | GaussianNoise


@dataclass(frozen=True)
class Statistic:
    """A column of exact integers, one per group, and the noise that it leaves with."""

    column: str
    noise: Noise


def _rounded_up(x: Fraction, bits: int = 40) -> Fraction:
    """The next number that is short to print: ``bits`` significant bits."""
    places = bits - (math.floor(x) or 1).bit_length()
    if x < 1:
        places += math.floor(1 / x).bit_length()
    unit = Fraction(1, 1 << places) if places >= 0 else Fraction(1 << -places)
    return math.ceil(x / unit) * unit


@lru_cache(maxsize=256)
def noise_multiplier(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The least s, up to one part in 2**31, for which N(0, s**2) hides a change of 1 to (epsilon, delta).

    The condition is ``Phi(1/2s - epsilon*s) - exp(epsilon) * Phi(-1/2s - epsilon*s) <= delta`` (Balle, Wang
    2018, theorem 8), checked in interval arithmetic at the value returned; the left side falls as s grows.
    """
    if epsilon <= 0 or not 0 < delta < 1:
        raise ValueError("epsilon must be positive, and delta between 0 and 1")
    low = high = 0  # exponents of 2
    while not _hides(_power(high), epsilon, delta):
        high += 1
    low = high - 1
    while _hides(_power(low), epsilon, delta):
        low, high = low - 1, low
    most, least = _power(high), _power(low)
    for _ in range(32):
        middle = (most + least) / 2
        if _hides(middle, epsilon, delta):
            most = middle
        else:
            least = middle
    return 2 * most - least  # a step to spare: whoever checks this with a rounding of their own finds it true


def _power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def _hides(s: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Whether the analytic condition holds for certain."""
    bits = 160 + delta.denominator.bit_length() + math.ceil(1 / epsilon).bit_length()
    half, shift = 1 / (2 * s), epsilon * s
    first = ia.tail(ia.rational(shift - half, bits), bits)
    second = ia.tail(ia.rational(shift + half, bits), bits)
    growth = ia.exp(ia.rational(epsilon, bits), bits)
    left = ia.subtract(first, ia.multiply(growth, second, bits), bits)
    return ia.below(left[1], ia.rational(delta, bits)[0])
