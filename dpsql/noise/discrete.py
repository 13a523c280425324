"""Exact vectorised samplers over the integers.

Every function draws from exactly the distribution that its docstring states: parameters are rationals,
floats are trusted only outside a certified error band, and what falls inside it is settled with intervals
that shrink until the answer is certain (interval refining, after Haney et al. 2022). Results are int64
arrays, or object arrays of Python ints where a value may not fit. Running time depends on the parameters
and on the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.noise.entropy import Entropy, Uniform
from dpsql.noise.gaussian import ABSOLUTE, INT64, RELATIVE, Floats, draw_accepted, draw_floor
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.interval_arithmetic import Interval

SLOWEST = Fraction(1, 1 << 26)
"""Least rate that is inverted directly: below it a float would leave too many draws undecided."""

FASTEST = 1 << 60
"""Rates above this look like this one to a float: any value but 0 is then left to exact arithmetic."""


def draw_bernoulli(
    p: Sequence[Fraction], entropy: Entropy, index: NDArray[np.intp] | None = None
) -> NDArray[np.bool_]:
    """Draw independent booleans, TRUE with probability ``p[i]``, or ``p[index[i]]`` where an index is given.

    >>> draw_bernoulli([Fraction(0), Fraction(1)], Entropy()).tolist()
    [False, True]
    """
    if any(not 0 <= x <= 1 for x in p):
        raise ValueError("a probability must lie between 0 and 1")
    n = len(p) if index is None else len(index)
    scaled = [(x.numerator << 64) // x.denominator for x in p]
    thresholds = np.array([min(x, (1 << 64) - 1) for x in scaled], dtype=np.uint64)
    certain = np.array([x == 1 for x in p], dtype=np.bool_)
    if index is not None:
        thresholds, certain = thresholds[index], certain[index]
    words = entropy.words(n)
    out = (words < thresholds) | certain
    for i in np.flatnonzero((words == thresholds) & ~certain):
        k = int(i) if index is None else int(index[i])
        out[i] = _tied(p[k] * (1 << 64) - scaled[k], entropy)
    return out


def _tied(rest: Fraction, entropy: Entropy) -> bool:
    """Decide whether a uniform real is below ``rest``, 64 bits at a time."""
    while rest:
        rest *= 1 << 64
        whole, word = math.floor(rest), int(entropy.words(1)[0])
        if word != whole:
            return word < whole
        rest -= whole
    return False


def draw_bernoulli_exp(
    gamma_numerators: NDArray[Any], gamma_denominator: int, entropy: Entropy
) -> NDArray[np.bool_]:
    """Draw independent booleans, TRUE with probability ``exp(-numerator / denominator)``.

    Args:
        gamma_numerators: non-negative integers (int64, or object holding Python ints), shape ``(n,)``.
        gamma_denominator: a positive integer.

    >>> draw_bernoulli_exp(np.array([0, 0]), 7, Entropy()).tolist()
    [True, True]
    """
    if gamma_denominator < 1:
        raise ValueError("the denominator must be positive")
    if len(gamma_numerators) and gamma_numerators.min() < 0:
        raise ValueError("an exponent must not be negative")
    return _decays(gamma_numerators, Fraction(1, gamma_denominator), entropy)


def _decays(values: NDArray[Any], rate: Fraction, entropy: Entropy) -> NDArray[np.bool_]:
    """Draw booleans, TRUE with probability ``exp(-value * rate)``."""

    def exact(i: int, u: Uniform) -> bool:
        gamma = int(values[i]) * rate
        while gamma:
            low, high = u.interval()
            bits = u.bits + 64
            p = ia.exp(ia.rational(-gamma, bits), bits)
            if ia.is_at_most(high, p[0]):
                return True
            if ia.is_at_most(p[1], low):
                return False
            u.draw()
        return True

    gamma = _floats(values, rate)
    p = np.exp(-gamma)
    # a relative error e of gamma moves exp(-gamma) by gamma * e of itself; for large gamma p is 0 already
    band = p * (RELATIVE + np.minimum(gamma, 1e3) * RELATIVE) + ABSOLUTE
    return draw_accepted(p, band, len(values), entropy, exact)


def _floats(values: NDArray[Any], rate: Fraction) -> Floats:
    """Compute ``values * rate`` in floats, within 4 units in the last place (or at least 1e300, where it is more)."""
    if values.dtype == object:
        n, d = rate.numerator, rate.denominator
        cap = 10**300 * d // n + 1
        return np.array([min(int(v), cap) * n / d for v in values], dtype=np.float64)
    return values.astype(np.float64) * float(min(rate, Fraction(10**280)))


def draw_geometric(rate: Fraction, n: int, entropy: Entropy) -> NDArray[Any]:
    """Draw ``n`` times from the geometric distribution: ``Pr[k]`` proportional to ``exp(-k * rate)`` for ``k >= 0``.

    ``rate`` may be any positive number.

    >>> draw_geometric(Fraction(10**6), 3, Entropy()).tolist()
    [0, 0, 0]
    """
    if rate <= 0:
        raise ValueError("rate must be positive")
    if rate < SLOWEST:
        return _in_two_digits(rate, n, entropy)
    # Pr[K >= k] = exp(-k * rate), so K = floor(-ln(U) / rate)
    return _inverted_exponential(rate, False, n, entropy)[0]


def draw_discrete_laplace(scale: Fraction, n: int, entropy: Entropy) -> NDArray[Any]:
    """Draw ``n`` times from the discrete Laplace distribution: ``Pr[k]`` proportional to ``exp(-abs(k) / scale)``.

    >>> draw_discrete_laplace(Fraction(1, 10**6), 3, Entropy()).tolist()
    [0, 0, 0]
    """
    if scale <= 0:
        raise ValueError("scale must be positive")
    rate = 1 / scale
    if rate >= SLOWEST:
        # Pr[|K| >= k] = 2 exp(-k * rate) / (1 + exp(-rate)) for k >= 1: one inversion, and a fair sign
        size, sign = _inverted_exponential(rate, True, n, entropy)
        np.negative(size, out=size, where=sign)
        return size
    out = _in_two_digits(rate, n, entropy)
    sign = (entropy.words(n) & np.uint64(1)).astype(np.bool_)
    again = np.flatnonzero(sign & (out == 0))  # else zero would have both signs, and twice its probability
    np.negative(out, out=out, where=sign)
    if len(again):
        fresh = draw_discrete_laplace(scale, len(again), entropy)
        out = out.astype(object) if fresh.dtype == object else out
        out[again] = fresh
    return out


def _inverted_exponential(
    rate: Fraction, two_sided: bool, n: int, entropy: Entropy
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Draw ``floor((c - ln U) / rate)``: c is 0, or ln(2 / (1 + exp(-rate))) for a two-sided variable's size."""
    scale = float(1 / min(rate, Fraction(FASTEST)))
    offset = math.log(2 / (1 + math.exp(-1 / scale))) if two_sided else 0.0

    def estimate(u: Floats) -> tuple[Floats, Floats]:
        x = np.log(u)
        np.subtract(offset, x, out=x)
        x *= scale
        band = (ABSOLUTE * scale) / u
        band += x * RELATIVE
        return x, band

    def exact(u: Interval, bits: int) -> tuple[int, int]:
        bits += max(0, math.ceil(1 / rate).bit_length()) + 16
        x = ia.subtract((ia.dyadic(0, 0),) * 2, ia.log(u, bits), bits)
        if two_sided:
            one, two = (ia.dyadic(1, 0),) * 2, (ia.dyadic(2, 0),) * 2
            decay = ia.exp(ia.rational(-min(rate, Fraction(FASTEST)), bits), bits)
            if rate > FASTEST:
                decay = ia.dyadic(0, 0), decay[1]
            x = ia.add(x, ia.log(ia.divide(two, ia.add(one, decay, bits), bits), bits), bits)
        x = ia.divide(x, ia.rational(rate, bits), bits)
        return max(0, ia.floor(x[0])), max(0, ia.floor(x[1]))

    return draw_floor(n, entropy, estimate, exact)


def _in_two_digits(rate: Fraction, n: int, entropy: Entropy) -> NDArray[Any]:
    """Draw a slow geometric variable as ``high * 2**shift + low``: two independent digits.

    The high digit is geometric with a rate near 2**-10; the low one is uniform, accepted with a probability
    of exp(-low * rate), which is nearly 1.
    """
    shift = max(0, math.ceil(1 / rate).bit_length() - 10)
    high = draw_geometric(rate * (1 << shift), n, entropy)
    low = entropy.below(1 << shift, n)
    pending = np.flatnonzero(~_decays(low, rate, entropy))
    while len(pending):
        low[pending] = entropy.below(1 << shift, len(pending))
        pending = pending[~_decays(low[pending], rate, entropy)]
    fits = low.dtype == high.dtype == np.int64 and int(high.max(initial=0)) + 1 < INT64 >> shift
    out: NDArray[Any] = high << shift if fits else high.astype(object) * (1 << shift)
    out = out + low
    return out
