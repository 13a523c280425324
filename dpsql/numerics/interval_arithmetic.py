"""Intervals that certainly contain a real number.

The samplers decide almost every draw in floating point, with a margin. What falls inside the margin is
decided here, with intervals that shrink until the answer is certain; so the result has exactly the stated
distribution. Endpoints are mpmath's raw floats: exact dyadic numbers with an unlimited exponent
(``exp(-1e12)`` is no trouble). The functions keep no state, so threads may share them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from mpmath import libmp

Raw = Any
"""One of mpmath's raw floats."""

Interval = tuple[Raw, Raw]

GUARD = 16
"""Bits of every transcendental value that are not relied on (mpmath promises all but about one)."""


def dyadic(mantissa: int, exponent: int) -> Raw:
    """``mantissa * 2**exponent``, exactly."""
    return libmp.from_man_exp(mantissa, exponent)


def shifted(x: Raw, places: int) -> Raw:
    """``x * 2**places``, exactly."""
    return libmp.mpf_shift(x, places)


def rational(x: Fraction, bits: int) -> Interval:
    """Encloses a fraction, to ``bits`` bits."""
    n, d = x.numerator, x.denominator
    return libmp.from_rational(n, d, bits, "f"), libmp.from_rational(n, d, bits, "c")


def _widened(low: Raw, high: Raw, bits: int) -> Interval:
    slack = dyadic(1, GUARD - bits)
    down = libmp.mpf_sub(low, libmp.mpf_mul(libmp.mpf_abs(low), slack), bits, "f")
    up = libmp.mpf_add(high, libmp.mpf_mul(libmp.mpf_abs(high), slack), bits, "c")
    return down, up


def exp(x: Interval, bits: int) -> Interval:
    return _widened(libmp.mpf_exp(x[0], bits, "f"), libmp.mpf_exp(x[1], bits, "c"), bits)


def log(x: Interval, bits: int) -> Interval:
    """Natural logarithm; minus infinity at zero."""
    low = libmp.fninf if x[0] == libmp.fzero else libmp.mpf_log(x[0], bits, "f")
    high = libmp.mpf_log(x[1], bits, "c")
    if low == libmp.fninf:
        return low, _widened(high, high, bits)[1]
    return _widened(low, high, bits)


def tail(x: Interval, bits: int) -> Interval:
    """The probability that a standard normal variable exceeds ``x``."""
    root = libmp.mpf_sqrt(dyadic(1, -1), bits + 8, "n")
    low = libmp.mpf_erfc(libmp.mpf_mul(x[1], root, bits + 8, "n"), bits, "n")
    high = libmp.mpf_erfc(libmp.mpf_mul(x[0], root, bits + 8, "n"), bits, "n")
    # an error of 2**-(bits+6) in the argument moves erfc by a factor of about x**2 times that
    spread = 2 * max(
        0, libmp.mpf_abs(x[1])[2] + libmp.mpf_abs(x[1])[3], libmp.mpf_abs(x[0])[2] + libmp.mpf_abs(x[0])[3]
    )
    low, high = _widened(low, high, bits - spread)
    return libmp.mpf_shift(low, -1), libmp.mpf_shift(high, -1)


def add(x: Interval, y: Interval, bits: int) -> Interval:
    return libmp.mpi_add(x, y, bits)  # type: ignore[no-any-return]


def subtract(x: Interval, y: Interval, bits: int) -> Interval:
    return libmp.mpi_sub(x, y, bits)  # type: ignore[no-any-return]


def multiply(x: Interval, y: Interval, bits: int) -> Interval:
    return libmp.mpi_mul(x, y, bits)  # type: ignore[no-any-return]


def divide(x: Interval, y: Interval, bits: int) -> Interval:
    return libmp.mpi_div(x, y, bits)  # type: ignore[no-any-return]


def below(x: Raw, y: Raw) -> bool:
    """Whether ``x <= y``."""
    return bool(libmp.mpf_le(x, y))


def floor(x: Raw) -> int:
    return int(libmp.to_int(libmp.mpf_floor(x)))


def fraction(x: Raw) -> Fraction:
    """The exact value of an endpoint."""
    numerator, denominator = libmp.to_rational(x)
    return Fraction(int(numerator), int(denominator))
