"""The probabilities of each candidate under the selection mechanisms, for teaching and for tests.

Utilities are plain numbers and the noise is continuous; the product draws exactly from integers. The rate is lambda:
epsilon / (2 D) for utilities that one privacy unit moves by at most D, epsilon / D if it moves all of them in one direction.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Chances = NDArray[np.float64]

_NODES = 64


def exponential_probabilities(utilities: Sequence[float], rate: float) -> Chances:
    """Compute the probabilities under the exponential mechanism: proportional to ``exp(rate * utility)``.

    >>> exponential_probabilities([0, 1], 1.0).round(3).tolist()
    [0.269, 0.731]
    """
    weights = np.exp(-_behind(utilities, rate))
    return np.asarray(weights / weights.sum())


def permute_and_flip_probabilities(utilities: Sequence[float], rate: float) -> Chances:
    """Compute the probabilities under permute-and-flip, which is noisy max with one-sided exponential noise.

    With t = exp(-rate (x - best)) for the winner's noisy utility x, candidate r of weight a wins with probability
    ``integral over 0 < t < 1 of a_r times the product of 1 - a_j t over the others``, a polynomial.

    >>> permute_and_flip_probabilities([0, 1], 1.0).round(3).tolist()
    [0.184, 0.816]
    """
    weights = np.exp(-_behind(utilities, rate))
    nodes, masses = np.polynomial.legendre.leggauss(len(weights) // 2 + 1)
    t, masses = (nodes + 1) / 2, masses / 2
    factors = 1 - np.outer(t, weights)
    chances = [w * float(masses @ np.delete(factors, r, axis=1).prod(axis=1)) for r, w in enumerate(weights)]
    return np.array(chances)


def noisy_max_probabilities(utilities: Sequence[float], rate: float) -> Chances:
    """Compute each candidate's probability of the largest utility after Laplace noise of scale ``1 / rate``.

    >>> noisy_max_probabilities([0, 0, 0], 1.0).round(3).tolist()
    [0.333, 0.333, 0.333]
    """
    places = -_behind(utilities, rate)
    ends = np.unique(np.concatenate([places, [places.max() + 40, places.min() - 40]]))
    nodes, masses = np.polynomial.legendre.leggauss(_NODES)
    total = np.zeros(len(places))
    for low, high in itertools.pairwise(ends):
        for start, stop in _cut(float(low), float(high)):
            x = (stop - start) / 2 * nodes + (start + stop) / 2
            away = x[:, None] - places
            tail = np.exp(-np.abs(away)) / 2
            below = np.where(away < 0, tail, 1 - tail)
            for r in range(len(places)):
                others = np.delete(below, r, axis=1).prod(axis=1)
                total[r] += (stop - start) / 2 * float(masses @ (tail[:, r] * others))
    return total


def _cut(low: float, high: float) -> list[tuple[float, float]]:
    """Divide an interval, inside which the integrand is smooth, into pieces of at most 4."""
    edges = np.linspace(low, high, max(1, int(np.ceil((high - low) / 4))) + 1)
    return [(float(a), float(b)) for a, b in itertools.pairwise(edges)]


def _behind(utilities: Sequence[float], rate: float) -> Chances:
    """Return the distance of each candidate from the best, times the rate."""
    values = np.asarray(utilities, dtype=np.float64)
    if len(values) == 0 or not np.isfinite(values).all() or not rate > 0:
        raise ValueError("finite utilities of one candidate or more, and a rate above 0")
    return np.asarray((values.max() - values) * rate)
