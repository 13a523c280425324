"""Bounds of monotone functions of bounded values: logarithms, roots and powers of numbers, distances between dates.

The ends are enclosed by rigorous interval arithmetic and rounded outward to fractions, so no floating-point number decides
what values are clamped to. Where a function has no finite end (a logarithm near zero), that end is open. Values outside
of a function's domain are missing, and say nothing about its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from fractions import Fraction

from dpsql.numerics import interval_arithmetic as enclosures
from dpsql.sql.expressions.types import UNKNOWN, Bounds, BoundsEnd, Typed

_BITS = 96
_KEPT_BITS = 32
"""Bits of an end that are kept: outward rounding to so few leaves room for the engine's own rounding."""
_LARGEST_EXPONENT = Fraction(200)
"""Beyond e to this power an end is open: noise for such values would hide everything."""
_MOST_FACTORS = 16
Enclosure = tuple[Fraction, Fraction]
BoundsOf = Callable[[Sequence[Typed]], Bounds | None]


def _outward(found: Enclosure) -> Enclosure:
    """Round both ends outward to a few bits."""
    low, high = found

    def step(end: Fraction) -> Fraction:
        size = abs(end.numerator) // end.denominator
        bits = size.bit_length() if size else -(abs(end.denominator // (end.numerator or 1)).bit_length())
        return Fraction(2) ** (bits - _KEPT_BITS)

    down, up = step(low), step(high)
    return math.floor(low / down) * down, math.ceil(high / up) * up


def enclose_logarithm(x: Fraction) -> Enclosure:
    """Enclose the natural logarithm of a positive number."""
    low, high = enclosures.log(enclosures.rational(x, _BITS), _BITS)
    return enclosures.fraction(low), enclosures.fraction(high)


def enclose_exponential(x: Enclosure) -> Enclosure:
    """Enclose the exponential of an interval of moderate numbers."""
    given = enclosures.rational(x[0], _BITS)[0], enclosures.rational(x[1], _BITS)[1]
    low, high = enclosures.exp(given, _BITS)
    return enclosures.fraction(low), enclosures.fraction(high)


def _given(typed: Typed) -> Bounds:
    return typed.bounds if typed.bounds is not None else UNKNOWN


def _constant(typed: Typed) -> Fraction | None:
    """Return the value of a constant number."""
    point = _given(typed)
    return point.low if typed.constant and point.low is not None and point.low == point.high else None


def _monotone(
    bounds: Bounds, low: Fraction | None, enclose: Callable[[Fraction], Enclosure | None]
) -> Bounds:
    """Return the bounds of a rising function.

    Args:
        bounds: those of its argument. low: where its domain begins. enclose: the function, None where it has no finite value.
    """
    start = bounds.low if low is None or (bounds.low is not None and bounds.low > low) else low
    ends = [None if end is None else enclose(end) for end in (start, bounds.high)]
    first, last = (None if end is None else _outward(end) for end in ends)
    return Bounds(None if first is None else first[0], None if last is None else last[1])


def _positive(enclose: Callable[[Fraction], Enclosure | None]) -> Callable[[Fraction], Enclosure | None]:
    return lambda x: enclose(x) if x > 0 else None


def bound_logarithm(base: int | None = None) -> BoundsOf:
    """Return the bounds of a logarithm to a base, or of the natural one."""
    scale = None if base is None else enclose_logarithm(Fraction(base))

    def enclose(x: Fraction) -> Enclosure:
        return _quotient(enclose_logarithm(x), scale) if scale is not None else enclose_logarithm(x)

    return lambda given: _monotone(_given(given[0]), None, _positive(enclose))


def _quotient(x: Enclosure, y: Enclosure) -> Enclosure:
    ends = [a / b for a in x for b in y]
    return min(ends), max(ends)


def bound_any_logarithm(given: Sequence[Typed]) -> Bounds | None:
    """Return the bounds of a logarithm to a constant base, which comes first."""
    base = _constant(given[0])
    if base is None or base <= 0 or base == 1:
        return None
    scale = enclose_logarithm(base)
    made = _monotone(
        _given(given[1]), None, _positive(lambda x: _quotient(enclose_logarithm(x), scale)) if base > 1
        else _positive(lambda x: _quotient(enclose_logarithm(x), (-scale[1], -scale[0])))
    )  # fmt: skip
    return made if base > 1 else -made


def _exponential(x: Fraction) -> Enclosure | None:
    if x > _LARGEST_EXPONENT:
        return None
    return enclose_exponential((x, x)) if x > -_LARGEST_EXPONENT else (Fraction(0), Fraction(1, 2**200))


def bound_exponential(given: Sequence[Typed]) -> Bounds | None:
    """Return the bounds of an exponential."""
    made = _monotone(_given(given[0]), None, _exponential)
    return Bounds(max(made.low or Fraction(0), Fraction(0)), made.high)


def _power(exponent: Fraction) -> Callable[[Fraction], Enclosure | None]:
    """Return a positive power of what is not negative."""

    def enclose(x: Fraction) -> Enclosure | None:
        if x <= 0:
            return Fraction(0), Fraction(0)
        if exponent.denominator == 1 and exponent <= _MOST_FACTORS:
            return x**exponent.numerator, x**exponent.numerator
        low, high = enclose_logarithm(x)
        if max(abs(low), abs(high)) * exponent > _LARGEST_EXPONENT:
            return None
        return enclose_exponential((low * exponent, high * exponent))

    return enclose


def bound_root(degree: int) -> BoundsOf:
    """Return the bounds of a square root, or of a cubic one, which negative numbers have too."""
    enclose = _power(Fraction(1, degree))

    def root(x: Fraction) -> Enclosure | None:
        found = enclose(abs(x))
        return found if x >= 0 or found is None else (-found[1], -found[0])

    def handle(given: Sequence[Typed]) -> Bounds | None:
        if degree % 2 == 0:
            return _monotone(_given(given[0]), Fraction(0), enclose)
        return _monotone(_given(given[0]), None, root)

    return handle


def bound_power(given: Sequence[Typed]) -> Bounds | None:
    """Return the bounds of a power with a constant exponent, or of a constant base."""
    base, exponent = _given(given[0]), _constant(given[1])
    if exponent is None:
        constant = _constant(given[0])
        if constant is None or constant <= 1:
            return None
        scale = enclose_logarithm(constant)[1]
        ends = [None if end is None else end * scale for end in (_given(given[1]).low, _given(given[1]).high)]
        made = _monotone(Bounds(*ends), None, _exponential)
        return Bounds(Fraction(0), made.high)
    if exponent < 0:
        return None
    if exponent == 0:
        return Bounds.point(1)
    if base.low is not None and base.low >= 0:
        return _monotone(base, Fraction(0), _power(exponent))
    if exponent.denominator != 1:
        return _monotone(Bounds(Fraction(0), base.high), Fraction(0), _power(exponent))
    far = _monotone(base.absolute(), Fraction(0), _power(exponent))
    if exponent % 2 == 0:
        return Bounds(Fraction(0), far.high)
    return Bounds(None if far.high is None else -far.high, far.high)


# -- dates --------------------------------------------------------------------------------------------------------

_SECONDS = {
    "DAY": Fraction(86_400), "HOUR": Fraction(3_600), "MINUTE": Fraction(60), "SECOND": Fraction(1),
    "MILLISECOND": Fraction(1, 1_000), "MICROSECOND": Fraction(1, 1_000_000),
}  # fmt: skip
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "DECADE": 120, "CENTURY": 1_200, "MILLENNIUM": 12_000}
_EPOCH = date(1970, 1, 1)


def _place(unit: str, seconds: Fraction) -> int | None:
    """Return the number of borders of a unit before a time; None beyond the years that are known here."""
    days = math.floor(seconds / _SECONDS["DAY"])
    if unit in _SECONDS:
        return math.floor(seconds / _SECONDS[unit])
    if unit == "WEEK":
        return (days + 3) // 7  # weeks begin on Mondays, and 1970 on a Thursday
    try:
        day = _EPOCH + timedelta(days=days)
    except OverflowError:
        return None
    return (day.year * 12 + day.month - 1) // _MONTHS[unit]


def bound_dates_apart(unit: str, start: Bounds | None, end: Bounds | None, elapsed: bool) -> Bounds | None:
    """Return the bounds of the borders of a unit between two times; of the whole units that elapsed where that is asked.

    Of those there is one less at most than there are borders crossed.
    """
    if start is None or end is None:
        return None
    least, most = _apart(unit, start.high, end.low), _apart(unit, start.low, end.high)
    if unit == "WEEK":  # before 1970 DuckDB's count of weeks is one off at times
        least, most = None if least is None else least - 1, None if most is None else most + 1
    if elapsed:
        least = least - 1 if least is not None and least > 0 else least
        most = most + 1 if most is not None and most < 0 else most
    return Bounds(None if least is None else Fraction(least), None if most is None else Fraction(most))


def _apart(unit: str, start: BoundsEnd, end: BoundsEnd) -> int | None:
    places = [None if moment is None else _place(unit, moment) for moment in (start, end)]
    return None if places[0] is None or places[1] is None else places[1] - places[0]
