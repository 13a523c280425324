"""Integer noise for integer statistics: the scale that a sensitivity and a loss ask for, and its cost.

Both kinds add independent noise to every group's statistic. Sensitivities are in grid steps, under ADD_REMOVE: how far one
privacy unit's presence moves the statistic of any one group, while it touches at most ``groups`` groups.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from dpsql.noise.discrete import draw_discrete_laplace
from dpsql.noise.entropy import Entropy
from dpsql.noise.gaussian import draw_rounded_gaussian
from dpsql.numerics.exact_numbers import Integers, add, to_integers
from dpsql.numerics.interval_arithmetic import calibrate_gaussian
from dpsql.privacy import events

MARGIN = 1e-9
"""Relative widening of an interval's width, far above the rounding of the floats that it is computed in."""


class Noise(ABC):
    """Independent noise of one distribution on every group's integer, calibrated to a sensitivity."""

    sensitivity: int
    groups: int
    epsilon: Fraction

    def _validate(self, positive: Fraction, name: str) -> None:
        if self.sensitivity < 1 or self.groups < 1:
            raise ValueError("sensitivity and groups must be at least 1")
        if positive <= 0:
            raise ValueError(f"{name} must be positive")

    @property
    @abstractmethod
    def event(self) -> events.Event:
        """What the accountant charges for it."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance of one draw, in squared grid steps."""

    @abstractmethod
    def half_width(self, confidence: float) -> float:
        """Return the whole number of grid steps that the noise stays within, with at least this probability."""

    @abstractmethod
    def rescale(self, factor: Fraction) -> Noise:
        """Return the noise for ``factor`` times its epsilon."""

    @abstractmethod
    def _draw(self, n: int, entropy: Entropy) -> Integers: ...

    @abstractmethod
    def _describe(self, steps: float, shared: str) -> str: ...

    def add(self, values: Sequence[int] | Integers, entropy: Entropy) -> Integers:
        """Return the values, each with fresh noise: int64 where all fit, else Python integers."""
        exact = to_integers(values)
        noisy: Integers = add(exact, self._draw(len(exact), entropy))
        return noisy

    def sentence(self, confidence: float, steps: Fraction = Fraction(1)) -> str:
        """Describe the distribution and its reach, in units of ``1 / steps``."""
        shared = f", over {self.groups} groups" if self.groups > 1 else ""
        reach = f"within ±{self.half_width(confidence) / float(steps):.6g} with {confidence:.4g} probability"
        return f"{self._describe(float(steps), shared)}; {reach}"


@dataclass(frozen=True)
class LaplaceNoise(Noise):
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
        self._validate(self.epsilon, "epsilon")

    @property
    def scale(self) -> Fraction:
        """The scale of the distribution, in grid steps."""
        return self.groups * self.sensitivity / self.epsilon

    @property
    def event(self) -> events.Event:
        return events.DiscreteLaplace(self.epsilon, self.sensitivity, self.groups)

    @property
    def variance(self) -> float:
        rate = float(1 / self.scale)
        return max(2 * float(np.exp(-rate)) / float(np.expm1(-rate)) ** 2, 1e-300)

    def rescale(self, factor: Fraction) -> LaplaceNoise:
        return replace(self, epsilon=self.epsilon * factor)

    def _draw(self, n: int, entropy: Entropy) -> Integers:
        return draw_discrete_laplace(self.scale, n, entropy)

    def half_width(self, confidence: float) -> float:
        rate = float(1 / self.scale)
        # Pr[|noise| > w] = 2 exp(-(w + 1) * rate) / (1 + exp(-rate))
        reach = math.log(2 / ((1 + math.exp(-rate)) * (1 - confidence) * (1 - MARGIN))) / rate
        return float(max(0, math.ceil(reach * (1 + MARGIN)) - 1))

    def _describe(self, steps: float, shared: str) -> str:
        scale = f"discrete Laplace noise of scale {float(self.scale) / steps:.6g}"
        return f"{scale} (ε={float(self.epsilon):g}{shared})"


@dataclass(frozen=True)
class GaussianNoise(Noise):
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
        self._validate(self.sigma, "sigma")

    @classmethod
    def calibrate(cls, epsilon: Fraction, delta: Fraction, sensitivity: int, groups: int) -> GaussianNoise:
        """Return the least noise that is (epsilon, delta)-DP, its sigma rounded up by less than one part in 2**30.

        Raises:
            ValueError: unless ``epsilon > 0`` and ``0 < delta < 1``.
        """
        if sensitivity < 1 or groups < 1:
            raise ValueError("sensitivity and groups must be at least 1")
        norm = groups * sensitivity**2
        root = Fraction(math.isqrt(norm << 80), 1 << 40)
        if root * root != norm:
            root += Fraction(1, 1 << 40)
        sigma = _round_up(calibrate_gaussian(epsilon, delta) * root)
        return cls(sigma, sensitivity, groups, epsilon, delta)

    @property
    def event(self) -> events.Event:
        return events.RoundedGaussian(self.sigma, self.groups * self.sensitivity**2, self.epsilon, self.delta)

    @property
    def variance(self) -> float:
        return float(self.sigma) ** 2 + 1 / 12

    def rescale(self, factor: Fraction) -> GaussianNoise:
        return self.calibrate(self.epsilon * factor, self.delta, self.sensitivity, self.groups)

    def _draw(self, n: int, entropy: Entropy) -> Integers:
        return draw_rounded_gaussian(self.sigma, n, entropy)

    def half_width(self, confidence: float) -> float:
        z = -NormalDist().inv_cdf((1 - confidence) * (1 - MARGIN) / 2)
        return float(max(0, math.ceil(float(self.sigma) * z * (1 + MARGIN) - 0.5)))

    def _describe(self, steps: float, shared: str) -> str:
        deviation = f"rounded Gaussian noise of deviation {float(self.sigma) / steps:.6g}"
        return f"{deviation} (ε={float(self.epsilon):g}, δ={float(self.delta):g}{shared})"


@dataclass(frozen=True)
class Statistic:
    """A column of exact integers, one per group, and the noise that it leaves with."""

    column: str
    noise: Noise


def _round_up(x: Fraction, bits: int = 40) -> Fraction:
    """Return the next number with ``bits`` significant bits, which is short to print."""
    places = bits - (math.floor(x) or 1).bit_length()
    if x < 1:
        places += math.floor(1 / x).bit_length()
    unit = Fraction(2) ** -places
    return math.ceil(x / unit) * unit
