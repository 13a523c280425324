"""Zero-concentrated DP to (epsilon, delta) and back, rounded to the safe side.

The conversion is that of Canonne, Kamath and Steinke (2020): rho-zCDP implies, at every alpha > 1,

    epsilon = rho * alpha + ln(1 - 1/alpha) - ln(delta * alpha) / (alpha - 1).

*Every* alpha gives a true statement. So a good alpha is looked for with floats, and the number that counts is
then worked out at that alpha, as an exact fraction, with far more digits than are kept and rounded to the
safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache

from dpsql.numerics.rounding import EXACT, ceiling, floor, to_decimal
from dpsql.privacy.constants import exp, ln


@lru_cache(maxsize=256)
def best_order(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The order alpha at which the conversion to (epsilon, delta) allows the most rho, to eight digits of alpha - 1.

    Any order is safe, but a ledger must be folded at the same one on every machine. So floats only say where to look, and
    exact values decide which of the numbers with eight digits is the best.

    >>> round(float(best_order(Fraction(1), Fraction(9, 10**7))), 2)
    22.18

    Raises:
        ValueError: delta is not strictly between 0 and 1, or epsilon is not above 0.
    """
    _check(delta)
    if epsilon <= 0:
        raise ValueError("epsilon must be above 0")
    e, log_delta = float(epsilon), float(ln(to_decimal(delta)))

    def reached(order: float) -> float:
        alpha = 1 + math.exp(order)
        return (e - math.log1p(-1 / alpha) + (log_delta + math.log(alpha)) / (alpha - 1)) / alpha

    guess, exponent = f"{math.exp(_maximum(reached)):.7e}".split("e")
    unit = Fraction(10) ** (int(exponent) - 7)

    @cache
    def exactly(digits: int) -> Decimal:
        return _rho_at(1 + digits * unit, epsilon, delta) if digits > 0 else Decimal("-Infinity")

    best = int(guess.replace(".", ""))
    for step in (1 << k for k in range(20, -1, -1)):
        while exactly(best + step) > exactly(best):
            best += step
        while exactly(best - step) > exactly(best):
            best -= step
    return 1 + best * unit


@lru_cache(maxsize=256)
def largest_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest rho (rounded down) such that rho-zCDP is certain to imply (epsilon, delta)-DP.

    A mechanism whose Renyi divergence of order ``best_order(epsilon, delta)`` is at most that order times this rho is
    (epsilon, delta)-DP too: the conversion looks at one order only.

    >>> round(float(largest_rho(Fraction(1), Fraction(1, 10**6))), 8)
    0.02435597

    Raises:
        ValueError: delta is not strictly between 0 and 1, or epsilon is not above 0.
    """
    return max(Fraction(0), floor(_rho_at(best_order(epsilon, delta), epsilon, delta)))


@lru_cache(maxsize=4096)
def smallest_epsilon(rho: Fraction, delta: Fraction) -> Fraction:
    """The epsilon (rounded up) that rho-zCDP implies at ``delta``.

    >>> float(smallest_epsilon(Fraction(1, 20), Fraction(1, 10**6)))
    1.471594750532416

    Raises:
        ValueError: delta is not strictly between 0 and 1, or rho is negative.
    """
    _check(delta)
    if rho < 0:
        raise ValueError("rho can't be negative")
    if rho == 0:
        return Fraction(0)
    r, log_delta = float(rho), float(ln(to_decimal(delta)))

    def reached(order: float) -> float:
        alpha = 1 + math.exp(order)
        return -(r * alpha + math.log1p(-1 / alpha) - (log_delta + math.log(alpha)) / (alpha - 1))

    alpha = _order(_maximum(reached))
    return max(Fraction(0), ceiling(EXACT.add(to_decimal(rho * alpha), _overhead(alpha, delta))))


def delta_of(rho: Fraction, epsilon: Fraction) -> Fraction:
    """The delta (rounded up) that rho-zCDP implies at ``epsilon``: the same conversion, solved for delta."""
    r, e = float(rho), float(epsilon)
    if rho == 0:
        return Fraction(0)

    def log_delta(alpha: float) -> float:
        return (alpha - 1) * (alpha * r - e + math.log1p(-1 / alpha)) - math.log(alpha)

    alpha = _order(_maximum(lambda order: -log_delta(1 + math.exp(order))))
    a = to_decimal(alpha)
    inner = EXACT.add(
        to_decimal(rho * alpha - epsilon), ln(EXACT.subtract(Decimal(1), EXACT.divide(Decimal(1), a)))
    )
    power = EXACT.subtract(EXACT.multiply(to_decimal(alpha - 1), inner), ln(a))
    return min(Fraction(1), ceiling(exp(power)))


def _check(delta: Fraction) -> None:
    if not 0 < delta < 1:
        raise ValueError("the conversion needs a delta strictly between 0 and 1")


def _overhead(alpha: Fraction, delta: Fraction) -> Decimal:
    """``ln(1 - 1/alpha) - ln(delta * alpha) / (alpha - 1)`` with all digits."""
    gain = ln(to_decimal((alpha - 1) / alpha))
    return EXACT.subtract(gain, EXACT.divide(ln(to_decimal(delta * alpha)), to_decimal(alpha - 1)))


def _rho_at(alpha: Fraction, epsilon: Fraction, delta: Fraction) -> Decimal:
    """The rho that the conversion to (epsilon, delta) allows at one order, with all digits; it may be below 0."""
    return EXACT.divide(EXACT.subtract(to_decimal(epsilon), _overhead(alpha, delta)), to_decimal(alpha))


def _order(log_excess: float) -> Fraction:
    """alpha as an exact number, from the logarithm of alpha - 1."""
    return 1 + Fraction(math.exp(log_excess)).limit_denominator(10**12)


def _maximum(f: Callable[[float], float], low: float = -16.0, high: float = 30.0) -> float:
    """Where a unimodal function of log(alpha - 1) is largest: a grid, then golden sections."""
    points = [low + (high - low) * i / 184 for i in range(185)]
    best = max(points, key=f)
    a, b = best - 0.25, best + 0.25
    ratio = (math.sqrt(5) - 1) / 2
    c, d = b - ratio * (b - a), a + ratio * (b - a)
    while b - a > 1e-9:
        if f(c) > f(d):
            b, d = d, c
            c = b - ratio * (b - a)
        else:
            a, c = c, d
            d = a + ratio * (b - a)
    return (a + b) / 2
