"""Noise for numbers in the order of a public key that makes running totals and ranges more accurate.

Independent noise on steps accumulates: a running total of 365 days has that of 365 days. Here noise is added to other
integers from which the steps are computed, so that the sum of any run of steps has the noise of a few draws.

* A tree (Hay, Rastogi, Miklau, Suciu 2010): the steps, and sums of 1, b, b^2, ... neighbouring ones, all get noise. The
  shown steps are the least-squares fit to all of them: the best linear unbiased estimate of every range.
* The square root of the matrix of running totals (Henzinger, Upadhyay, Upadhyay 2023; Fichtenberger, Henzinger,
  Upadhyay 2023): a triangular matrix whose square adds up all steps before a step. Its product with the steps gets
  noise, and is solved for them.

Relation: ADD_REMOVE. One unit moves the exact steps by a vector v with ``|v|_1 <= s * g`` and ``|v|_2^2 <= s^2 * g``,
for the sensitivity s and the groups g that noise on the steps alone declares (``base``) and that texts are proved to
respect. It follows for the noised vectors that

* the sums of c neighbouring steps move in total by at most ``s * g`` in L1, for a sum's move is at most those of its
  steps; and by at most ``s^2 * g * min(c, g)`` in squared L2: a squared sum of c numbers is at most c times the sum of
  their squares, and no vector is longer than its L1 norm. Eight rows in eight neighbouring steps are 8 in the sum over
  them, not the root of 8.
* the product with a triangular matrix, whose columns are one non-increasing sequence r of integers, truncated at the
  end, moves by at most ``s * g * sum(r)`` in L1. In squared L2 it is ``sum_d h_d * a_d`` over distances d. Here
  ``h_d``, the product of two columns d apart, is at most that of the first column and the one d later, so it is
  non-increasing in d. Of the ``a_d``, the products of moves that are d apart, ``a_0`` is at most ``s^2 * g``, each
  other ``2 * s^2 * g`` (Cauchy and Schwarz), and their total ``s^2 * g^2``. So the sum is at most its value with the
  nearest distances at their maxima.

Steps of several runs (a run for each value of further keys) are in different sums, and in products that share no row,
so the bounds are unchanged. Guarantee: that of the event, which costs as much as ``base``: independent noise on vectors
that were fixed and calibrated jointly. Everything after the draw, including the fit, uses the noisy integers and public
numbers. The caller must ensure the requirements of ``base``, and that the key's values, and with them the places of
steps, are public.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.per_group import (
    GaussianNoise,
    GaussianNoiseByMu,
    JointGaussianNoise,
    LaplaceNoise,
    Noise,
)
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import Floats, Integers, add_integers, to_integers
from dpsql.privacy import events

StepPlaces = NDArray[np.intp]
StepRows = NDArray[np.intp]
"""The rows of one run of steps, in key order."""

_HARDLY = 1e-3
"""Noise up to this variance is nearly always 0, so that rounding adds no error."""
SAFE_INTEGERS = 1 << 61
"""Integers below this can be added and multiplied in 64 bits."""


class OrderedNoise(Noise):
    """Noise on the steps of runs, in key order, at the cost of ``base``.

    Args:
        base: independent noise on the steps, with the calibration and the claims.
        steps: the most steps of a run; longer ones are divided.
    """

    base: Noise
    steps: int
    word: str

    def _validate_steps(self, most: int | None = None) -> None:
        if not isinstance(self.base, LaplaceNoise | GaussianNoise):
            raise ValueError("only independent noise can be put in order")
        if self.steps < 1 or (most is not None and self.steps > most):
            raise ValueError("the number of steps is out of range")

    @property
    def sensitivity(self) -> int:  # type: ignore[override]
        """The move of a step by one unit."""
        return self.base.sensitivity

    @property
    def groups(self) -> int:  # type: ignore[override]
        """The most steps of one unit."""
        return self.base.groups

    @property
    def epsilon(self) -> Fraction:  # type: ignore[override]
        """The epsilon of ``base``."""
        return self.base.epsilon

    @property
    @abstractmethod
    def vectors(self) -> tuple[Noise, ...]:
        """The noise of each noised vector."""

    @abstractmethod
    def draw_run(self, values: Integers, entropy: Entropy) -> Integers:
        """Return the steps of one run, computed from noisy integers alone."""

    @abstractmethod
    def expect_variances(self, first: StepPlaces, last: StepPlaces) -> Floats:
        """Return the variances of sums of steps, from each first one to each last one, in a run of full length."""

    @abstractmethod
    def describe_strategy(self) -> str:
        """Return EXPLAIN's sentence on the noised integers."""

    @property
    def event(self) -> events.Event:
        if isinstance(self.base, LaplaceNoise):
            whole = max(noise.sensitivity for noise in self.vectors)
            return events.DiscreteLaplace(self.base.epsilon, whole, len(self.vectors))
        if isinstance(self.base, GaussianNoiseByMu):
            return _hold_to(self.base, self.vectors)
        return events.compose_events(noise.event for noise in self.vectors)

    @cached_property
    def _variances(self) -> Floats:
        found: Floats = self._unrounded + self.rounding
        return found

    @property
    def rounding(self) -> float:
        """The variance that rounding at both ends adds to the sum of a run; 0 if there is hardly any noise to round."""
        return 1 / 6 if float(self._unrounded.max()) > _HARDLY else 0.0

    @cached_property
    def _unrounded(self) -> Floats:
        places = np.arange(self.steps)
        return self.expect_variances(places, places)

    @property
    def variance(self) -> float:
        return float(self._variances.mean())

    @property
    def largest_variance(self) -> float:
        return float(self._variances.max())

    @property
    def is_gaussian(self) -> bool:
        return self.base.is_gaussian

    @property
    def mean_error(self) -> float:
        return math.sqrt(2 / math.pi * self.variance)

    def half_width(self, confidence: float) -> float:
        return self.widen(self.largest_variance, confidence)

    def widen(self, variance: float, confidence: float) -> float:
        """Return the half width of an interval of a sum of such noise with this variance."""
        return widen_sum(self, variance, confidence)

    def on(self, base: Noise) -> OrderedNoise:
        """Return this strategy at the cost of another noise."""
        changed: OrderedNoise = replace(self, base=base)  # type: ignore[type-var]
        return changed

    def rescale(self, factor: Fraction) -> OrderedNoise:
        return self.on(self.base.rescale(factor))

    def _draw(self, n: int, entropy: Entropy) -> Integers:
        raise TypeError("noise in the order of a key needs the runs of steps")

    def _describe(self, steps: float, shared: str) -> str:
        top = self.vectors[-1]
        return f"{top._describe(steps, shared)} on {self.describe_strategy()}"

    def add_runs(
        self, values: Sequence[int] | Integers, runs: Sequence[StepRows], entropy: Entropy
    ) -> Integers:
        """Return the exact steps ``values``, one per row, with noise; each row is in one run, in key order."""
        exact = to_integers(values)
        parts: list[tuple[StepRows, Integers]] = []
        for run in runs:
            for start in range(0, len(run), self.steps):
                rows = run[start : start + self.steps]
                parts.append((rows, self.draw_run(exact[rows], entropy)))
        whole = all(found.dtype == np.int64 for _, found in parts)
        noisy: Integers = np.zeros(len(exact), dtype=np.int64 if whole else object)
        for rows, found in parts:
            noisy[rows] = found
        return noisy


def widen_sum(noise: Noise, variance: float, confidence: float) -> float:
    """Return the half width, in whole steps, of an interval of a sum of independent noise with this total variance.

    A sum of Laplace noises has tails between those of one of them and Gaussian tails; the wider is taken.
    """
    base = noise.base if isinstance(noise, OrderedNoise) else noise
    doubt = (1 - confidence) * (1 - 1e-9)
    z = -NormalDist().inv_cdf(doubt / 2)
    if isinstance(base, LaplaceNoise):
        z = max(z, math.log(1 / doubt) / math.sqrt(2))
    return float(math.ceil(z * math.sqrt(variance) * (1 + 1e-9)))


def _hold_to(base: GaussianNoise, vectors: Sequence[Noise]) -> events.Event:
    """Return the joint event of vectors whose squared mus add up to at most that of ``base``."""
    squared = sum(
        (
            noise.groups * noise.sensitivity**2 / noise.sigma**2
            for noise in vectors
            if isinstance(noise, GaussianNoise)
        ),
        Fraction(0),
    )
    if squared > base.groups * base.sensitivity**2 / base.sigma**2:
        raise ValueError("the shares of a mu are more than the whole")
    return base.event


def share_noise(base: Noise, share: Fraction, sensitivity: int, groups: int) -> Noise:
    """Return noise for a share of the cost of ``base``, for a vector of larger sensitivity.

    Args:
        base: the noise to divide: Laplace noise by epsilon, Gaussian noise by squared mu.
        sensitivity, groups: the L1 and the squared L2 sensitivity of the vector, as each noise reads them.
    """
    if isinstance(base, LaplaceNoise):
        return LaplaceNoise(base.epsilon * share, sensitivity, groups)
    if isinstance(base, GaussianNoiseByMu):
        squared = Fraction(base.groups * base.sensitivity**2) / (base.sigma * base.sigma)
        return GaussianNoiseByMu.of_mu(squared * share, base.delta * share, sensitivity, groups)
    if isinstance(base, JointGaussianNoise):
        share = share * base.share
    elif not isinstance(base, GaussianNoise):
        raise ValueError("only independent noise can be shared out")
    if share == 1:
        return GaussianNoise.calibrate(base.epsilon, base.delta, sensitivity, groups)
    return JointGaussianNoise.calibrate_share(base.epsilon, base.delta, sensitivity, groups, share)


def add_rounded(values: Integers, more: Floats) -> Integers:
    """Add a correction with rounded running totals, so that the sum of any run of steps is off by at most 1."""
    ends = np.rint(np.cumsum(more))
    small = not len(ends) or np.abs(ends).max() < SAFE_INTEGERS
    whole = ends.astype(np.int64) if small else np.array([int(v) for v in ends], dtype=object)
    whole[1:] = whole[1:] - whole[:-1].copy()
    found: Integers = add_integers(values, whole)
    return found


def add_noise(noise: Noise, exact: Integers, runs: Sequence[StepRows], entropy: Entropy) -> Integers:
    """Return values with noise, along the runs if the noise is ordered."""
    return (
        noise.add_runs(exact, runs, entropy) if isinstance(noise, OrderedNoise) else noise.add(exact, entropy)
    )
