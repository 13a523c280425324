"""Exact amounts as text, and amounts as people read them.

Exact numbers with a bounded size: rounded to where privacy loses nothing, and written for people.

A loss is a :class:`~fractions.Fraction`, rounded up; what is left of a budget is rounded down. Transcendental
functions are evaluated by :mod:`decimal`, whose exp and ln are correctly rounded, with so many digits that
the margin added before rounding is wider than anything lost on the way.
"""

from __future__ import annotations

import decimal
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

NEAR = Context(prec=4, rounding=ROUND_HALF_EVEN)
UP = Context(prec=4, rounding=ROUND_CEILING)
DOWN = Context(prec=4, rounding=ROUND_FLOOR)


def amount(text: object) -> Fraction:
    """A non-negative exact number from its text; ValueError for anything else (NaN, infinity, a sign).

    >>> amount("1/10")
    Fraction(1, 10)
    """
    if not isinstance(text, str) or not text.isascii() or not text.replace("/", "", 1).isdigit():
        raise ValueError(text)
    return Fraction(text)


def short(value: Fraction, rounding: Context = NEAR) -> str:
    """A number as people write it, to four digits: what was spent is rounded ``UP``, what is left ``DOWN``.

    >>> short(Fraction(1, 10)), short(Fraction(3)), short(Fraction(1, 10**6)), short(Fraction(1, 3), UP)
    ('0.1', '3', '1e-06', '0.3334')
    """
    rounded = rounding.divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{float(rounded):.4g}"


def pair(epsilon: Fraction, delta: Fraction, rounding: Context = NEAR) -> str:
    """``"ε=0.1"``, or ``"ε=0.1, δ=1e-07"`` where delta is not 0."""
    text = f"ε={short(epsilon, rounding)}"
    return text if delta == 0 else f"{text}, δ={short(delta, rounding)}"


GRID = 10**30
"""Numbers that are not exact are whole multiples of one part in ``GRID``, so that sums stay cheap."""

MARGIN = Decimal(10) ** -45
"""More than the error of any constant that is evaluated with :data:`DIGITS`."""

DIGITS = 110

_LONG = 256  # bits of a denominator above which an exact number is replaced by a coarser one
EXACT = decimal.Context(
    prec=DIGITS, rounding=decimal.ROUND_HALF_EVEN, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[]
)


def to_decimal(value: Fraction | int) -> Decimal:
    """The nearest number with :data:`DIGITS` digits."""
    value = Fraction(value)
    return EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))


def ceiling(value: Decimal | Fraction) -> Fraction:
    """The smallest multiple of ``1/GRID`` that is not below ``value`` (a Decimal gets the margin first).

    >>> ceiling(Fraction(1, 3)) - Fraction(1, 3) < Fraction(1, GRID)
    True
    """
    if isinstance(value, Decimal):
        value = Fraction(EXACT.add(value, MARGIN))
    return Fraction(-(-value.numerator * GRID // value.denominator), GRID)


def floor(value: Decimal | Fraction) -> Fraction:
    """The largest multiple of ``1/GRID`` that is not above ``value`` (a Decimal loses the margin first)."""
    if isinstance(value, Decimal):
        value = Fraction(EXACT.subtract(value, MARGIN))
    return Fraction(value.numerator * GRID // value.denominator, GRID)


def bounded(value: Fraction) -> Fraction:
    """``value`` itself, or rounded up to the grid when its denominator grew long.

    Epsilons written by people stay exact: ten times 0.1 is 1.
    """
    return value if value.denominator.bit_length() <= _LONG else ceiling(value)


def root(value: Fraction) -> Fraction:
    """The square root, rounded up; exact where it is rational.

    >>> root(Fraction(9, 4))
    Fraction(3, 2)
    """
    from math import isqrt

    top, bottom = isqrt(value.numerator), isqrt(value.denominator)
    if top * top == value.numerator and bottom * bottom == value.denominator:
        return Fraction(top, bottom)
    return Fraction(isqrt(value.numerator * GRID * GRID // value.denominator) + 1, GRID)


def text(value: Fraction, digits: int = 4, *, up: bool = True) -> str:
    """A number as people write it: exact when it is a short decimal, else rounded (up, unless told
    otherwise).

    >>> text(Fraction(1, 10)), text(Fraction(3)), text(Fraction(1, 10**7)), text(Fraction(1, 3))
    ('0.1', '3', '1e-07', '0.3334')
    """
    shortest = repr(float(value))
    exact = Fraction(shortest) == value and len(shortest.replace(".", "").strip("0")) <= 10
    rounded = Fraction(shortest) if exact else significant(value, digits, up=up)
    shown = float(rounded)
    return f"{shown:.10g}" if shown == 0 or 1e-4 <= abs(shown) < 1e15 else _power(shown)


def significant(value: Fraction, digits: int = 4, *, up: bool = False) -> Fraction:
    """``value`` with so many significant decimal digits, rounded down (or up).

    >>> significant(Fraction(2, 3)), significant(Fraction(2, 3), 2, up=True)
    (Fraction(3333, 5000), Fraction(67, 100))
    """
    if value == 0:
        return value
    context = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR)
    return Fraction(context.divide(Decimal(value.numerator), Decimal(value.denominator)))


def _power(value: float) -> str:
    mantissa, _, exponent = f"{value:.9e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}"
