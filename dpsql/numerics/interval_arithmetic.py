"""Intervals around real numbers, for samplers, noisy moments and the calibration of Gaussian noise.

The samplers decide almost every draw in floating point, with a margin. Draws inside the margin are decided here, with
intervals that shrink until the answer is certain, so the result has exactly the stated distribution. Endpoints are
mpmath's raw floats: exact dyadic numbers with an unlimited exponent, even ``exp(-1e12)``. The functions keep no state, so
threads may share them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.numerics.exact_numbers import Floats, Integers

Raw = Any
"""One of mpmath's raw floats."""

Interval = tuple[Raw, Raw]
_EXACT = 1 << 53

GUARD_BITS = 16
"""Bits of every transcendental value that are not relied on (mpmath guarantees all except about one)."""


@cache
def libmp() -> Any:
    """Return mpmath's raw floats. They are slow to import, and most statements need none."""
    from mpmath import libmp as raw_floats

    return raw_floats


def dyadic(mantissa: int, exponent: int) -> Raw:
    """Return ``mantissa * 2**exponent``, exactly."""
    return libmp().from_man_exp(mantissa, exponent)


def shift(x: Raw, places: int) -> Raw:
    """Return ``x * 2**places``, exactly."""
    return libmp().mpf_shift(x, places)


def rational(x: Fraction, bits: int) -> Interval:
    """Enclose a fraction, to ``bits`` bits."""
    n, d = x.numerator, x.denominator
    return libmp().from_rational(n, d, bits, "f"), libmp().from_rational(n, d, bits, "c")


def _widen(low: Raw, high: Raw, bits: int) -> Interval:
    slack = dyadic(1, GUARD_BITS - bits)
    down = libmp().mpf_sub(low, libmp().mpf_mul(libmp().mpf_abs(low), slack), bits, "f")
    up = libmp().mpf_add(high, libmp().mpf_mul(libmp().mpf_abs(high), slack), bits, "c")
    return down, up


def exp(x: Interval, bits: int) -> Interval:
    """Enclose the exponential."""
    return _widen(libmp().mpf_exp(x[0], bits, "f"), libmp().mpf_exp(x[1], bits, "c"), bits)


def log(x: Interval, bits: int) -> Interval:
    """Enclose the natural logarithm; minus infinity at zero."""
    low = libmp().fninf if x[0] == libmp().fzero else libmp().mpf_log(x[0], bits, "f")
    high = libmp().mpf_log(x[1], bits, "c")
    if low == libmp().fninf:
        return low, _widen(high, high, bits)[1]
    return _widen(low, high, bits)


def tail(x: Interval, bits: int) -> Interval:
    """Enclose the probability that a standard normal variable exceeds ``x``."""
    root = libmp().mpf_sqrt(dyadic(1, -1), bits + 8, "n")
    low = libmp().mpf_erfc(libmp().mpf_mul(x[1], root, bits + 8, "n"), bits, "n")
    high = libmp().mpf_erfc(libmp().mpf_mul(x[0], root, bits + 8, "n"), bits, "n")
    # an error of 2**-(bits+6) in the argument moves erfc by a factor of about x**2 times that
    sizes = (libmp().mpf_abs(end) for end in x)
    spread = 2 * max(0, *(size[2] + size[3] for size in sizes))
    low, high = _widen(low, high, bits - spread)
    return libmp().mpf_shift(low, -1), libmp().mpf_shift(high, -1)


def add(x: Interval, y: Interval, bits: int) -> Interval:
    """Enclose the sum."""
    return libmp().mpi_add(x, y, bits)  # type: ignore[no-any-return]


def subtract(x: Interval, y: Interval, bits: int) -> Interval:
    """Enclose the difference."""
    return libmp().mpi_sub(x, y, bits)  # type: ignore[no-any-return]


def multiply(x: Interval, y: Interval, bits: int) -> Interval:
    """Enclose the product."""
    return libmp().mpi_mul(x, y, bits)  # type: ignore[no-any-return]


def divide(x: Interval, y: Interval, bits: int) -> Interval:
    """Enclose the quotient."""
    return libmp().mpi_div(x, y, bits)  # type: ignore[no-any-return]


def is_at_most(x: Raw, y: Raw) -> bool:
    """Return whether ``x <= y``."""
    return bool(libmp().mpf_le(x, y))


def floor(x: Raw) -> int:
    """Round an endpoint down to an integer."""
    return int(libmp().to_int(libmp().mpf_floor(x)))


def fraction(x: Raw) -> Fraction:
    """Return the exact value of an endpoint."""
    numerator, denominator = libmp().to_rational(x)
    return Fraction(int(numerator), int(denominator))


# -- functions of fractions -------------------------------------------------------------------------------------------

_BITS = 96
_KEPT_BITS = 32
"""Bits of a rounded end, few enough to leave room for an engine's own rounding."""
_LARGEST_EXPONENT = Fraction(200)
"""The largest power of e that is enclosed: noise for larger values would hide everything."""
_MOST_FACTORS = 16
Enclosure = tuple[Fraction, Fraction]


def round_outward(found: Enclosure) -> Enclosure:
    """Round both ends outward to a few bits."""

    def step(end: Fraction) -> Fraction:
        size = abs(end.numerator) // end.denominator
        bits = size.bit_length() if size else -(abs(end.denominator // (end.numerator or 1)).bit_length())
        return Fraction(2) ** (bits - _KEPT_BITS)

    down, up = step(found[0]), step(found[1])
    return math.floor(found[0] / down) * down, math.ceil(found[1] / up) * up


def enclose_logarithm(x: Fraction, base: Fraction | None = None) -> Enclosure | None:
    """Enclose the logarithm to a base above 1, or the natural one, of a positive number or interval."""
    if x <= 0:
        return None
    low, high = (fraction(end) for end in log(rational(x, _BITS), _BITS))
    scale = enclose_logarithm(base) if base is not None else None
    if scale is None:
        return low, high
    ends = [a / b for a in (low, high) for b in scale]
    return min(ends), max(ends)


def enclose_exponential(x: Fraction, most: Fraction | None = None) -> Enclosure | None:
    """Enclose the exponential of a number, or of an interval; None if it is too large."""
    most = x if most is None else most
    if most > _LARGEST_EXPONENT:
        return None
    if x < -_LARGEST_EXPONENT:
        return Fraction(0), Fraction(1) if most > -_LARGEST_EXPONENT else Fraction(1, 2**200)
    low, high = exp((rational(x, _BITS)[0], rational(most, _BITS)[1]), _BITS)
    return fraction(low), fraction(high)


def enclose_power(x: Fraction, exponent: Fraction) -> Enclosure | None:
    """Enclose a positive power of a non-negative number or interval; None if it is too large."""
    ends = enclose_logarithm(x)
    if ends is None:
        return Fraction(0), Fraction(0)
    if exponent.denominator == 1 and exponent <= _MOST_FACTORS:
        return x**exponent.numerator, x**exponent.numerator
    low, high = (end * exponent for end in ends)
    return enclose_exponential(low, high)


# -- Gaussian noise ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def calibrate_gaussian(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Compute the least s, up to one part in 2**31, for which N(0, s**2) hides a change of 1 to (epsilon, delta).

    The condition is ``Phi(1/2s - epsilon*s) - exp(epsilon) * Phi(-1/2s - epsilon*s) <= delta`` (Balle, Wang
    2018, theorem 8), checked in interval arithmetic at the value returned; the left side falls as s grows.

    Raises:
        ValueError: unless ``epsilon > 0`` and ``0 < delta < 1``.
    """
    if epsilon <= 0 or not 0 < delta < 1:
        raise ValueError("epsilon must be positive, and delta between 0 and 1")
    high = 0  # an exponent of 2
    while not _hides(Fraction(2) ** high, epsilon, delta):
        high += 1
    low = high - 1
    while _hides(Fraction(2) ** low, epsilon, delta):
        low, high = low - 1, low
    most, least = Fraction(2) ** high, Fraction(2) ** low
    for _ in range(32):
        middle = (most + least) / 2
        if _hides(middle, epsilon, delta):
            most = middle
        else:
            least = middle
    return 2 * most - least  # one more step, so that a check with another rounding agrees


def _hides(s: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    """Return whether the analytic condition holds for certain."""
    bits = 160 + delta.denominator.bit_length() + math.ceil(1 / epsilon).bit_length()
    half, product = 1 / (2 * s), epsilon * s
    first = tail(rational(product - half, bits), bits)
    second = tail(rational(product + half, bits), bits)
    growth = exp(rational(epsilon, bits), bits)
    left = subtract(first, multiply(growth, second, bits), bits)
    return is_at_most(left[1], rational(delta, bits)[0])


@lru_cache(maxsize=64)
def find_gaussian_threshold(sigma: Fraction, delta: Fraction) -> int:
    """Find the least integer, at least 0, that N(0, sigma**2) exceeds with probability at most ``delta`` in (0, 1)."""
    if not 0 < delta < 1:
        raise ValueError("delta must lie between 0 and 1")
    bits = 160 + 2 * delta.denominator.bit_length()
    most = rational(delta, bits)[0]

    def holds(threshold: int) -> bool:
        return is_at_most(tail(rational(threshold / sigma, bits), bits)[1], most)

    high = 1
    while not holds(high):
        high *= 2
    return bisect_left(range(high), True, key=holds)


# -- many at once -----------------------------------------------------------------------------------------------------


def divide_steps(values: Integers, steps: Fraction) -> Floats:
    """Compute ``values / steps``, correctly rounded."""
    n, d = steps.numerator, steps.denominator
    small = values.dtype == np.int64 and (not len(values) or int(np.abs(values).max()) <= _EXACT)
    if small and d == 1 and n <= _EXACT:
        return values / float(n)
    return np.array([int(v) * d / n for v in values], dtype=np.float64)


@dataclass(frozen=True)
class FloatIntervals:
    """Intervals with floats for ends, one per element, and the arithmetic that encloses a formula of them.

    The ends are rounded to nearest; displays widen them by more than the sum of these errors.
    """

    low: Floats
    high: Floats

    @classmethod
    def around(cls, values: Integers, width: float, steps: Fraction = Fraction(1)) -> FloatIntervals:
        """Return ``(values ± width) / steps``, rounded outward if a float can't represent the integers."""
        whole = int(width)
        if values.dtype == object or (len(values) and int(np.abs(values).max()) >= _EXACT) or whole >= _EXACT:
            wide = values.astype(object)
            low, high = divide_steps(wide - whole, steps), divide_steps(wide + whole, steps)
            return cls(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))
        return cls(divide_steps(values - whole, steps), divide_steps(values + whole, steps))

    def __add__(self, number: float) -> FloatIntervals:
        return FloatIntervals(self.low + number, self.high + number)

    def __sub__(self, other: FloatIntervals) -> FloatIntervals:
        return FloatIntervals(self.low - other.high, self.high - other.low)

    def __mul__(self, other: FloatIntervals) -> FloatIntervals:
        products = [p * q for p in (self.low, self.high) for q in (other.low, other.high)]
        return FloatIntervals(np.minimum.reduce(products), np.maximum.reduce(products))

    def __truediv__(self, number: float) -> FloatIntervals:
        return FloatIntervals(self.low / number, self.high / number)

    def per(self, count: FloatIntervals) -> FloatIntervals:
        """Return the quotient by a positive count."""
        low = self.low / np.where(self.low < 0, count.low, count.high)
        return FloatIntervals(low, self.high / np.where(self.high < 0, count.high, count.low))

    def square(self) -> FloatIntervals:
        sizes = np.abs(self.low), np.abs(self.high)
        nearest = np.where((self.low <= 0) & (self.high >= 0), 0.0, np.minimum(*sizes))
        return FloatIntervals(nearest**2, np.maximum(*sizes) ** 2)

    def clip(self, low: float | None, high: float | None) -> FloatIntervals:
        return FloatIntervals(np.clip(self.low, low, high), np.clip(self.high, low, high))

    def invert(self, known: NDArray[np.bool_]) -> FloatIntervals:
        """Return the reciprocals of intervals ``known`` to be positive, else 1."""
        return FloatIntervals(1 / np.where(known, self.high, 1.0), 1 / np.where(known, self.low, 1.0))
