"""Exact amounts as text, and amounts as people read them."""

from __future__ import annotations

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
