"""Chi-square goodness of fit of integer samples, with reproducible entropy that is not the product's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
from numpy.typing import NDArray

from dpsql.noise.entropy import Entropy

REFUSED = 1e-6
"""The p-value below which a sampler is called wrong: a few hundred tests then cry wolf once in a thousand
runs."""


def fixed(label: str) -> Entropy:
    """Entropy that is the same in every run: SHAKE-256 of a label and a counter."""
    count = [0]

    def source(n: int) -> bytes:
        count[0] += 1
        return hashlib.shake_256(f"{label}/{count[0]}".encode()).digest(n)

    return Entropy(source)


def p_value(sample: NDArray[np.int64], pmf: Callable[[int], float], signed: bool = True) -> float:
    """Return the p-value of the chi-square statistic over all cells that expect ten draws, the tails pooled."""
    n = len(sample)
    high = 0
    while pmf(high) * n >= 10:
        high += 1
    cells = range(1 - high if signed else 0, high)
    expected = np.array([pmf(k) * n for k in cells])
    inside = sample[(sample >= cells[0]) & (sample <= cells[-1])]
    observed = np.bincount(inside - cells[0], minlength=len(cells)).astype(float)
    rest = n - expected.sum()
    if rest >= 10:
        expected, observed = np.append(expected, rest), np.append(observed, n - len(inside))
    chi2 = float(((observed - expected) ** 2 / expected).sum())
    return float(mpmath.gammainc((len(expected) - 1) / 2, chi2 / 2, mpmath.inf, regularized=True))


def laplace_pmf(scale: Fraction) -> Callable[[int], float]:
    q = np.exp(-1 / float(scale))
    return lambda k: float((1 - q) / (1 + q) * q ** abs(k))


def geometric_pmf(rate: Fraction) -> Callable[[int], float]:
    q = np.exp(-float(rate))
    return lambda k: float((1 - q) * q**k)


def gaussian_pmf(sigma: Fraction) -> Callable[[int], float]:
    def cdf(x: float) -> float:
        return float(mpmath.ncdf(x / float(sigma)))

    return lambda k: cdf(0.5 - abs(k)) - cdf(-0.5 - abs(k))
