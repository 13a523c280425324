"""The Scale algorithm: how stable is the order of magnitude of the interquartile range?

``IQR(x) = x(u) - x(l)`` with ranks l = ceil(n/4), u = ceil(3n/4), in one floating subtraction (which is
monotone in both operands, so the window arguments hold for doubles as they stand); of no rows or one it is 0.
Its *bin* is the interval of base-2 logarithms it falls into: [k, k+1) in the first discretisation, [k-1/2,
k+1/2) in the second, and a bin of its own for 0. The statistic A0 is the number of edits after which the bin
changes.

Edges are exact: powers of two by ``frexp``; for the second discretisation the least double above sqrt(2) 2^j
(no double equals it). Differences that overflow count as infinity: the bin [1024, 1025) and the last one.

Source: Dwork and Lei (2009), algorithm 12 of Dwork and Roth (2014), with the threshold repaired (the printed
one, 1 + ln(1/delta), lacks a division by epsilon: at epsilon = 0.1 a far pair passes 235,000 times too
often).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.ptr.stability_radius import Relation

GRID = 1024
"""Steps per unit of log2 on which the logarithm of the range is released."""

NEVER = 10**9
"""More edits than any table has rows: the bin can't change."""

_ROOT = 1.4142135623730951  # the least double above the square root of two
_LOWEST, _HIGHEST = -1021 * GRID, 1024 * GRID


@dataclass(frozen=True)
class Ordered:
    """Some order statistics of n finite doubles: ascending windows of ranks.

    ``windows`` are pairs (first rank, values); ranks below 1 and above n read as minus and plus infinity.
    """

    n: int
    windows: tuple[tuple[int, NDArray[np.float64]], ...]

    @staticmethod
    def all(values: NDArray[np.float64]) -> Ordered:
        """Everything, from sorted values."""
        return Ordered(len(values), ((1, values),))

    def slice(self, first: int, last: int) -> NDArray[np.float64]:
        """Values of ranks first..last. Raises LookupError when they were not read."""
        inside_first, inside_last = max(first, 1), min(last, self.n)
        middle = np.empty(0)
        if inside_first <= inside_last:
            for start, values in self.windows:
                if start <= inside_first and inside_last < start + len(values):
                    middle = values[inside_first - start : inside_last - start + 1]
                    break
            else:
                raise LookupError("these order statistics were not read")
        before = np.full(max(0, min(last, 0) - first + 1), -math.inf)
        after = np.full(max(0, last - max(first, self.n + 1) + 1), math.inf)
        return np.concatenate([before, middle, after])

    def at(self, position: int) -> float:
        return float(self.slice(position, position)[0])


def quartile_ranks(n: int) -> tuple[int, int]:
    """Ranks of the lower and the upper quartile among n >= 1 values.

    >>> quartile_ranks(40)
    (10, 30)
    """
    return (n + 3) // 4, (3 * n + 3) // 4


def interquartile_range(data: Ordered) -> float:
    """x(u) - x(l), 0 for fewer than two values, infinity where the difference overflows."""
    if data.n < 2:
        return 0.0
    low, high = quartile_ranks(data.n)
    with np.errstate(over="ignore"):
        return data.at(high) - data.at(low)


def steps(spread: float) -> int:
    """log2 of a positive range on the release grid, clamped to the normal doubles.

    Two ranges within a factor of two are at most ``GRID + 1`` steps apart: rounding is monotone and commutes
    with whole steps, and one more step covers the error of the floating logarithm.
    """
    if math.isinf(spread):
        return _HIGHEST
    return min(max(round(math.log2(spread) * GRID), _LOWEST), _HIGHEST)


def from_steps(value: int) -> float:
    """The range meant by a (noisy) number of steps; beyond the doubles it is held at the last one."""
    value = min(max(value, _LOWEST), _HIGHEST - 1)
    whole, part = divmod(value, GRID)
    return math.ldexp(2.0 ** (part / GRID), whole)


def edges(spread: float, discretisation: int) -> tuple[float, float] | None:
    """The bin [low, high) of a positive range; high is NaN where nothing can leave upwards. None: the bin of
    0.
    """
    if spread == 0:
        return None
    if math.isinf(spread):
        return (math.inf, math.nan) if discretisation == 1 else (math.ldexp(_ROOT, 1023), math.nan)
    fraction, exponent = math.frexp(spread)
    if discretisation == 1:
        low = exponent - 1
        return math.ldexp(1.0, low), math.ldexp(1.0, low + 1) if low < 1023 else math.inf
    low = exponent - 1 if fraction >= _ROOT / 2 else exponent - 2
    return math.ldexp(_ROOT, low), math.ldexp(_ROOT, low + 1) if low < 1023 else math.nan


@dataclass(frozen=True)
class _Reach:
    """For ranks first, first + 1, ... of the lower end: which rank of the upper end meets the condition."""

    first: int
    partner: NDArray[np.int64]

    def outwards(self, low: int, high: int) -> int:
        """min a + c over a, c >= 0 such that rank high + c is enough for rank low - a."""
        take = self.partner[: max(0, low - self.first + 1)][::-1]
        if not len(take):
            return NEVER
        skipped = max(0, low - (self.first + len(self.partner) - 1))
        return int(np.min(np.arange(len(take)) + np.maximum(take - high, 0))) + skipped

    def inwards(self, low: int, high: int) -> int:
        """min a + c over a, c >= 0 such that rank high - c is small enough for rank low + a."""
        take = self.partner[max(0, low - self.first) :]
        if not len(take):
            return NEVER
        skipped = max(0, self.first - low)
        return int(np.min(np.arange(len(take)) + np.maximum(high - take, 0))) + skipped


def _expansion(
    lower: NDArray[np.float64], first: int, upper: NDArray[np.float64], start: int, edge: float
) -> _Reach:
    """For each lower rank the least upper rank with a difference of at least ``edge`` (above 0 for edge
    0).
    """
    partner = [NEVER] * len(lower)
    ends = upper.tolist()
    j = 0
    for i, x in enumerate(lower.tolist()):
        while j < len(ends):
            difference = ends[j] - x  # NaN where both are the same infinity: then the condition fails
            if difference >= edge and difference > 0:
                break
            j += 1
        if j < len(ends):
            partner[i] = start + j
    return _Reach(first, np.array(partner, dtype=np.int64))


def _contraction(
    lower: NDArray[np.float64], first: int, upper: NDArray[np.float64], start: int, edge: float
) -> _Reach:
    """For each lower rank the greatest upper rank with a difference below ``edge``."""
    partner = [-NEVER] * len(lower)
    ends = upper.tolist()
    j = -1
    for i, x in enumerate(lower.tolist()):
        while j + 1 < len(ends) and not ends[j + 1] - x >= edge:
            j += 1
        if j >= 0:
            partner[i] = start + j
    return _Reach(first, np.array(partner, dtype=np.int64))


def bin_distance(data: Ordered, discretisation: int, relation: Relation, cap: int) -> int:
    """A0: edits until the bin of log2 IQR changes, exact up to ``cap``, else ``cap``.

    Reads ranks within ``reach(cap)`` of the two quartiles only.

    SUBSTITUTE. With k replacements the windows that can become [x(l), x(u)] are exactly [x(l-a), x(u+b)]
    (move a low rows below, b high rows above, taking them from between) and [x(l+a), x(u-b)], a + b = k.

    ADD_REMOVE. Let ``net`` be the change of n, l' the new lower rank and U = u(n + net) - net. To reach an
    outer window that lacks e ranks takes e additions beyond the ends and e - net removals from between, hence
    max(net, 2e - net) edits; to reach an inner one max(-net, 2s + net). With one row left or none the range
    is 0.

    With no row or one the answer under ADD_REMOVE is 1: two additions at most leave the bin, and calling the
    empty table unstable keeps the statistic 1-Lipschitz, since its neighbours have one row.
    """
    n = data.n
    if n <= 1:
        return NEVER if relation is Relation.SUBSTITUTE else 1
    low, high = quartile_ranks(n)
    span = reach(cap)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = interquartile_range(data)
        bounds = edges(spread, discretisation)
        first, start = max(low - span, 0), max(high - span, 0)
        lower = data.slice(first, min(low + span, n))
        upper = data.slice(start, min(high + span, n + 1))
        out = _expansion(lower, first, upper, start, bounds[1] if bounds else 0.0)
        into = _contraction(lower, first, upper, start, bounds[0]) if bounds else None
    if relation is Relation.SUBSTITUTE:
        return min(out.outwards(low, high), into.inwards(low, high) if into else NEVER, cap)
    best = cap
    change = 0
    while change < best:
        for net in {change, -change}:
            size = n + net
            if size < 2:
                if bounds:
                    best = min(best, n if size == 0 else abs(net))
                continue
            new_low, new_high = quartile_ranks(size)
            new_high -= net
            gap = out.outwards(new_low, new_high)
            best = min(best, max(net, 2 * gap - net))
            if into:
                gap = into.inwards(new_low, new_high)
                best = min(best, max(-net, 2 * gap + net))
        change += 1
    return max(best, 1)


def reach(cap: int) -> int:
    """How far from the quartiles :func:`bin_distance` may look for distances up to ``cap``."""
    return 2 * cap + 4


def scale_radius(data: Ordered, cap: int, relation: Relation = Relation.ADD_REMOVE) -> int:
    """How many edits certainly keep the interquartile range within a factor of two: max A0 - 1 over both
    bins.

    1-Lipschitz as a maximum of 1-Lipschitz statistics. Above 0 some discretisation has A0 >= 2, so every
    neighbour lies in the same bin and its log2 differs by less than 1 (and a range of 0 stays 0). Clamped at
    ``cap``.
    """
    if data.n <= 1:
        return 0
    return max(bin_distance(data, which, relation, cap + 1) for which in (1, 2)) - 1
