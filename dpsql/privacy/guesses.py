"""Float estimates of the cost of a pure epsilon by the rules of accountants. They decide nothing.

An accountant that displays the remaining budget searches the largest epsilon that its rule admits. These estimates are
sharper than the display; exact costs then decide whether that epsilon is admitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from statistics import NormalDist

LARGEST_EPSILON = 64
"""The largest epsilon that a rule is said to admit."""
_GUESSED_WELL, _SURELY = Fraction(1, 1000), 1.000_001
"""From this epsilon on estimates are wrong by far less than a cost changes by where epsilon is changed by this factor."""

Guess = Callable[[float], float]
"""A cost of a pure epsilon, which grows with it."""


def guess_rho(epsilon: float) -> float:
    """Estimate the rho of a pure epsilon."""
    return epsilon * math.tanh(epsilon / 2)


def guess_renyi(order: float, epsilon: float) -> float:
    """Estimate the Renyi divergence of an order of a pure epsilon."""
    lost = math.log1p(math.exp(-epsilon)) - math.log1p(math.exp(-(2 * order - 1) * epsilon))
    return min(order * guess_rho(epsilon), epsilon - lost / (order - 1))


def guess_mu_squared(epsilon: float) -> float:
    """Estimate the square of the Gaussian-DP loss of a pure epsilon."""
    return 4 * NormalDist().inv_cdf(max(1 / (1 + math.exp(epsilon)), 1e-300)) ** 2


def find_most(costs: Iterable[Guess], left: Iterable[Fraction], above: Fraction) -> float:
    """Return approximately the largest epsilon with one cost within its remaining amount; 0 if it is not ``above``.

    The first cost takes one search, and each further cost only if it admits more than those before it.
    """
    found = 0.0
    start = float(above) / _SURELY if above > _GUESSED_WELL else 0.0
    for cost, most in zip(costs, map(float, left), strict=True):
        if found < LARGEST_EPSILON and cost(max(found, start)) <= most:
            found = max(found, _search(cost, most))
    return found


def _search(cost: Guess, most: float) -> float:
    if cost(LARGEST_EPSILON) <= most:
        return LARGEST_EPSILON
    low, high = 0.0, float(LARGEST_EPSILON)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= most else (low, middle)
    return low
