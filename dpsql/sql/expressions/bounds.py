"""Interval arithmetic on what is public about values: the ranges that the policy declares, carried through expressions.

Ends are exact fractions, None where there is no end. An interval speaks of values after clamping: the expression over
clamped columns lies in it, and the expression's own values are clamped to it before anything is added up. It speaks of
values that are there: NULL, NaN and the infinities are missing, and lie in no interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

BoundsEnd = Fraction | None


def _least(a: BoundsEnd, b: BoundsEnd) -> BoundsEnd:
    return None if a is None or b is None else min(a, b)


def _most(a: BoundsEnd, b: BoundsEnd) -> BoundsEnd:
    return None if a is None or b is None else max(a, b)


def _least_known(a: BoundsEnd, b: BoundsEnd) -> BoundsEnd:
    return b if a is None else a if b is None else min(a, b)


@dataclass(frozen=True)
class Bounds:
    """``[low, high]``; an end of None is open.

    >>> Bounds(Fraction(1), Fraction(2)) * Bounds(Fraction(-1), Fraction(3))
    Bounds(low=Fraction(-2, 1), high=Fraction(6, 1))
    """

    low: BoundsEnd = None
    high: BoundsEnd = None

    @classmethod
    def point(cls, value: Fraction | int) -> Bounds:
        """Return the interval of one value."""
        return cls(Fraction(value), Fraction(value))

    @property
    def bounded(self) -> bool:
        """True where both ends are known."""
        return self.low is not None and self.high is not None

    def __neg__(self) -> Bounds:
        return Bounds(None if self.high is None else -self.high, None if self.low is None else -self.low)

    def __add__(self, other: Bounds) -> Bounds:
        low = None if self.low is None or other.low is None else self.low + other.low
        high = None if self.high is None or other.high is None else self.high + other.high
        return Bounds(low, high)

    def __sub__(self, other: Bounds) -> Bounds:
        return self + -other

    def __mul__(self, other: Bounds) -> Bounds:
        if not (self.bounded and other.bounded):
            return self._scaled(other) or other._scaled(self) or Bounds()
        ends = [
            a * b
            for a in (self.low, self.high)
            for b in (other.low, other.high)
            if a is not None and b is not None
        ]
        return Bounds(min(ends), max(ends))

    def _scaled(self, factor: Bounds) -> Bounds | None:
        """Return a half-open interval times a constant."""
        if factor.low is None or factor.low != factor.high:
            return None
        c = factor.low
        if c == 0:
            return Bounds.point(0)
        ends = (None if self.low is None else self.low * c, None if self.high is None else self.high * c)
        return Bounds(*ends) if c > 0 else Bounds(ends[1], ends[0])

    def __truediv__(self, other: Bounds) -> Bounds:
        """Divide by an interval that does not hold zero; by any other the result is unbounded."""
        if other.low is None or other.high is None or other.low <= 0 <= other.high:
            return Bounds()
        return self * Bounds(1 / other.high, 1 / other.low)

    def absolute(self) -> Bounds:
        """Return the interval of absolute values."""
        if self.low is not None and self.low >= 0:
            return self
        if self.high is not None and self.high <= 0:
            return -self
        return Bounds(Fraction(0), _most(self.high, None if self.low is None else -self.low))

    def union(self, other: Bounds) -> Bounds:
        """Return the smallest interval around both."""
        return Bounds(_least(self.low, other.low), _most(self.high, other.high))

    def remainder(self, divisor: Bounds) -> Bounds:
        """``a % b``: nearer to zero than both, with the sign of ``a``."""
        far = _least_known(self.absolute().high, divisor.absolute().high)
        low = Fraction(0) if self.low is not None and self.low >= 0 else None if far is None else -far
        high = Fraction(0) if self.high is not None and self.high <= 0 else far
        return Bounds(low, high)

    def holds(self, other: Bounds) -> bool:
        """Return whether all of ``other`` lies inside."""
        above = self.low is None or (other.low is not None and self.low <= other.low)
        return above and (self.high is None or (other.high is not None and other.high <= self.high))

    def rounded(self) -> Bounds:
        """Round outward to whole numbers, within which FLOOR, CEIL, ROUND and casts to integers stay."""
        low = None if self.low is None else Fraction(math.floor(self.low))
        high = None if self.high is None else Fraction(math.ceil(self.high))
        return Bounds(low, high)


UNKNOWN = Bounds()


def union(intervals: Iterable[Bounds | None]) -> Bounds:
    """Return the smallest interval around all; unknown when one of them is."""
    return reduce(lambda a, b: a.union(b), [i or UNKNOWN for i in intervals])


def greatest(items: Iterable[tuple[Bounds | None, bool]]) -> Bounds:
    """GREATEST(...) of intervals, each with whether its value may be missing.

    The function skips NULLs, so a value that may be missing lifts nothing: the low end is the highest among those
    that are surely there.
    """
    given = [(i or UNKNOWN, nullable) for i, nullable in items]
    sure = [i.low for i, nullable in given if not nullable and i.low is not None]
    low = max(sure) if sure else reduce(_least, [i.low for i, _ in given])
    return Bounds(low, reduce(_most, [i.high for i, _ in given]))


def least(items: Iterable[tuple[Bounds | None, bool]]) -> Bounds:
    """LEAST(...), likewise."""
    return -greatest((-(i or UNKNOWN), nullable) for i, nullable in items)
