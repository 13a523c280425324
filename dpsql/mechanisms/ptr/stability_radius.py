"""Distances to instability, exact, from a handful of exact statistics.

The *radius* of a table x for a function g is the largest k such that g is constant on all tables within k
edits of x; 0 means that some neighbour has another answer. An edit adds or removes one row (``ADD_REMOVE``)
or replaces one (``SUBSTITUTE``, size n public). Every function here returns that radius, or a lower bound
that is 1-Lipschitz under the relation and 0 wherever a neighbour's answer differs; this is all that
propose-test-release needs:

    neighbours x, y with g(x) = g(y): only the radius differs, by at most 1, so the test decides the cost;
    neighbours x, y with g(x) != g(y): both radii are 0, so each passes with probability at most delta.

Domains are unbounded (values beyond every value seen may be added), which can only shorten a distance.
Sources: Dwork and Roth (2014) section 7.2 and proposition 7.2; Smith and Thakurta (2013). The order statistic
and mode formulas are checked against exhaustive search in the tests of this module.

The Scale algorithm measures how stable the order of magnitude of the interquartile range is.

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
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


class Neighbours(Enum):
    """The edits that lead to a neighbouring table."""

    ADD_REMOVE = "add_remove"
    SUBSTITUTE = "substitute"


def find_rank(n: int, probability: Fraction) -> int:
    """Return the rank of the quantile among n ascending values: ``max(1, ceil(p n))``, DuckDB's ``quantile_disc``.

    >>> [find_rank(n, Fraction(1, 2)) for n in (1, 2, 3, 4)]
    [1, 1, 2, 2]
    """
    return max(1, -(-probability.numerator * n // probability.denominator))


def convert_to_units(radius: int, rows: int) -> int:
    """Convert a radius in rows to one in privacy units, where a unit has at most ``rows`` rows.

    Proof. Unit-level neighbours are at most m = ``rows`` row edits apart, so the row radius d moves by at
    most m, and floor(d / m) by at most 1. If a unit-level neighbour answers differently, a table within m row
    edits does, so d <= m - 1 and floor(d / m) = 0.
    """
    return radius // rows


def measure_quantile_radius(
    n: int,
    below: int,
    upto: int,
    probability: Fraction,
    relation: Neighbours = Neighbours.ADD_REMOVE,
    cap: int | None = None,
) -> int:
    """Measure the exact radius of the order statistic of rank ``ceil(p n)``.

    Args:
        n: number of values.
        below: how many are smaller than the quantile.
        upto: how many are not larger.
        probability: of the quantile.
        relation: what one edit is.
        cap: the largest radius that is of interest.

    With first = below + 1 and last = upto the value keeps its place as long as its rank stays in [first,
    last]. After k edits the rank meant and the ranks held move furthest when all k rows are added or all
    removed, on the same side; the conditions below are monotone in k, so the largest k is found by bisection.
    """
    if n == 0 or not below < find_rank(n, probability) <= upto:
        return 0
    first, last = below + 1, upto
    if relation is Neighbours.SUBSTITUTE:
        r = find_rank(n, probability)
        radius = min(r - first, last - r)
        return radius if cap is None else min(radius, cap)

    def moves(k: int) -> bool:
        fewer, more = find_rank(n - k, probability), find_rank(n + k, probability)
        return min(fewer, more - k) < first or max(fewer + k, more) > last

    most = n - 1 if cap is None else min(n - 1, cap)
    return bisect_left(range(1, most + 1), True, key=moves)


def measure_mode_radius(
    top: int, second: int, second_larger: bool, relation: Neighbours = Neighbours.ADD_REMOVE
) -> int:
    """Measure the exact radius of the mode, ties going to the smallest value.

    Args:
        top: count of the mode (0: no rows). second: the next largest count, 0 when there is no other value;
            among equals, that of the smallest value.
        second_larger: the second value is larger than the mode, so it loses ties.

    A rival r needs ``top - count(r)`` edits to draw level and one more if it loses ties; the runner-up by
    (count, value) is a cheapest rival. A smaller value never seen needs ``top``. Under SUBSTITUTE one edit
    closes the gap by two.
    """
    if top == 0:
        return 0
    rivals = [top]
    if second:
        rivals.append(top - second + int(second_larger))
    cost = min(rivals)
    if relation is Neighbours.SUBSTITUTE:
        cost = -(-cost // 2)
    return max(cost - 1, 0)


def measure_argmax_radius(
    top: int, second: int, bound: int, relation: Neighbours = Neighbours.ADD_REMOVE
) -> int:
    """Measure the radius of the group with the largest sum, ties going to the smallest key.

    Args:
        top, second: the two largest group sums. A group that isn't there counts as a sum of 0, so ``second``
            is taken as at least 0.
        bound: the largest absolute contribution of one row to the sum of its one group.

    The gap between the largest and the second largest sum moves by at most ``bound`` when a row comes or goes
    (by twice that when one is replaced), and the winner can't change before the gap is closed.
    """
    gap = top - max(second, 0)
    step = bound if relation is Neighbours.ADD_REMOVE else 2 * bound
    return max(-(-gap // step) - 1, 0) if step > 0 else 0


def measure_votes_radius(top: int, second: int, per_block: int = 1) -> int:
    """Measure the radius, in privacy units, of the winning vote, where a unit changes at most ``per_block`` votes.

    A changed vote moves the gap by at most 2, so the winner is fixed for fewer than gap / (2 J) units; this
    is ``ceil((c1 - c2) / (2 J)) - 1``, the book's distance for J runs rounded to an integer (a ceiling of a
    1-Lipschitz function of integers steps is 1-Lipschitz). The relation is substitution of block results: the
    number of votes is public.
    """
    return max(-(-(top - second) // (2 * per_block)) - 1, 0)


def measure_gap_radius(
    n: int, first: int, values: Sequence[int] | NDArray[np.object_], bound: int, cap: int
) -> int:
    """Measure the row edits to the nearest table whose median has local sensitivity above ``bound`` (ADD_REMOVE).

    Args:
        n: number of values; ``values`` holds the ascending values of ranks ``first``, ``first + 1``, ..., at
            least those within ``cap + 2`` of n/2 (ranks outside 1..n may be left out).
        bound: in the units of ``values`` (integers, so the comparison is exact).
        cap: result is clamped to this.

    The lower median of z (rank ceil(n/2)) moves by at most z(s+1) - z(s), s = floor(n/2), when a row comes or
    goes, and by exactly that in the worst case: for even n = 2k a removal moves between z(k) and z(k+1), an
    addition lands anywhere between them; for odd n = 2k+1 the same two values bound it. z(0) is minus
    infinity: with fewer than two rows the local sensitivity is infinite.

    So the bad tables are those with a gap wider than ``bound`` that has l values on its left, r on its right,
    and r = l or r = l + 1. To make one out of x keep x(1..i) on the left and x(j..n) on the right with x(j) -
    x(i) > bound (x(0) and x(n+1) are infinite), remove the j-i-1 values between, and mend the balance with
    one edit for each row too many: r - l - 1 or l - r. For given i a larger j never helps, as each step
    removes one row more and mends at most one. The minimum over i is the distance. It is a distance to a set,
    hence 1-Lipschitz.
    """
    if n < 2:
        return 0
    last = first + len(values) - 1

    def at(position: int) -> int | None:
        return values[position - first] if 1 <= position <= n else None

    middle = n // 2
    best = cap
    low = max(0, middle - cap - 1)
    high = min(n, middle + cap + 1)
    low = low if first <= max(low, 1) else first
    j = low + 1
    for i in range(low, high + 1):
        j = max(j, i + 1)
        left = at(i)
        while left is not None and j <= min(n, last):
            right = at(j)
            if right is None or right - left > bound:
                break
            j += 1
        if left is None and j > i + 1:
            j = i + 1
        if j > last and j <= n:
            break  # the gap would take more than cap removals
        l, r = i, n - j + 1  # noqa: E741
        best = min(best, (j - i - 1) + max(r - l - 1, l - r))
    return max(best, 0)


LOG_GRID = 1024
"""The steps per unit of log2 on which the logarithm of the range is released."""

NEVER = 10**9
"""More edits than any table has rows: the bin can't change."""

_ROOT = 1.4142135623730951  # the least double above the square root of two
_LOWEST, _HIGHEST = -1021 * LOG_GRID, 1024 * LOG_GRID


@dataclass(frozen=True)
class Ordered:
    """Some order statistics of n finite doubles: ascending windows of ranks.

    ``windows`` are pairs (first rank, values); ranks below 1 and above n read as minus and plus infinity.
    """

    n: int
    windows: tuple[tuple[int, NDArray[np.float64]], ...]

    @staticmethod
    def all(values: NDArray[np.float64]) -> Ordered:
        """Return all order statistics, from sorted values."""
        return Ordered(len(values), ((1, values),))

    def slice(self, first: int, last: int) -> NDArray[np.float64]:
        """Return the values of ranks first..last.

        Raises:
            LookupError: they were not read.
        """
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
        """Return the value of a rank."""
        return float(self.slice(position, position)[0])


def find_quartile_ranks(n: int) -> tuple[int, int]:
    """Return the ranks of the lower and the upper quartile among n >= 1 values.

    >>> find_quartile_ranks(40)
    (10, 30)
    """
    return (n + 3) // 4, (3 * n + 3) // 4


def compute_iqr(data: Ordered) -> float:
    """Compute x(u) - x(l), 0 for fewer than two values, infinity where the difference overflows."""
    if data.n < 2:
        return 0.0
    low, high = find_quartile_ranks(data.n)
    with np.errstate(over="ignore"):
        return data.at(high) - data.at(low)


def to_log_steps(spread: float) -> int:
    """Convert a positive range to log2 on the release grid, clamped to the normal doubles.

    Two ranges within a factor of two are at most ``GRID + 1`` steps apart: rounding is monotone and commutes
    with whole steps, and one more step covers the error of the floating logarithm.
    """
    if math.isinf(spread):
        return _HIGHEST
    return min(max(round(math.log2(spread) * LOG_GRID), _LOWEST), _HIGHEST)


def from_log_steps(value: int) -> float:
    """Convert a (noisy) number of steps to a range; beyond the doubles it is held at the last one."""
    value = min(max(value, _LOWEST), _HIGHEST - 1)
    whole, part = divmod(value, LOG_GRID)
    return math.ldexp(2.0 ** (part / LOG_GRID), whole)


def find_bin(spread: float, discretisation: int) -> tuple[float, float] | None:
    """Find the bin [low, high) of a range; high is NaN where nothing can leave upwards. None: the bin of 0."""
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
        """Minimise a + c over a, c >= 0 such that rank high + c is enough for rank low - a."""
        take = self.partner[: max(0, low - self.first + 1)][::-1]
        if not len(take):
            return NEVER
        skipped = max(0, low - (self.first + len(self.partner) - 1))
        return int(np.min(np.arange(len(take)) + np.maximum(take - high, 0))) + skipped

    def inwards(self, low: int, high: int) -> int:
        """Minimise a + c over a, c >= 0 such that rank high - c is small enough for rank low + a."""
        take = self.partner[max(0, low - self.first) :]
        if not len(take):
            return NEVER
        skipped = max(0, self.first - low)
        return int(np.min(np.arange(len(take)) + np.maximum(high - take, 0))) + skipped


def _expansion(
    lower: NDArray[np.float64], first: int, upper: NDArray[np.float64], start: int, edge: float
) -> _Reach:
    """Find for each lower rank the least upper rank with a difference of at least ``edge`` (above 0 for edge 0)."""
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
    """Find for each lower rank the greatest upper rank with a difference below ``edge``."""
    partner = [-NEVER] * len(lower)
    ends = upper.tolist()
    j = -1
    for i, x in enumerate(lower.tolist()):
        while j + 1 < len(ends) and not ends[j + 1] - x >= edge:
            j += 1
        if j >= 0:
            partner[i] = start + j
    return _Reach(first, np.array(partner, dtype=np.int64))


def measure_bin_distance(data: Ordered, discretisation: int, relation: Neighbours, cap: int) -> int:
    """Measure A0, the edits until the bin of log2 IQR changes: exact up to ``cap``, else ``cap``.

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
        return NEVER if relation is Neighbours.SUBSTITUTE else 1
    low, high = find_quartile_ranks(n)
    span = bound_reach(cap)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = compute_iqr(data)
        bounds = find_bin(spread, discretisation)
        first, start = max(low - span, 0), max(high - span, 0)
        lower = data.slice(first, min(low + span, n))
        upper = data.slice(start, min(high + span, n + 1))
        out = _expansion(lower, first, upper, start, bounds[1] if bounds else 0.0)
        into = _contraction(lower, first, upper, start, bounds[0]) if bounds else None
    if relation is Neighbours.SUBSTITUTE:
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
            new_low, new_high = find_quartile_ranks(size)
            new_high -= net
            gap = out.outwards(new_low, new_high)
            best = min(best, max(net, 2 * gap - net))
            if into:
                gap = into.inwards(new_low, new_high)
                best = min(best, max(-net, 2 * gap + net))
        change += 1
    return max(best, 1)


def bound_reach(cap: int) -> int:
    """Return how far from the quartiles :func:`measure_bin_distance` may look for distances up to ``cap``."""
    return 2 * cap + 4


def measure_scale_radius(data: Ordered, cap: int, relation: Neighbours = Neighbours.ADD_REMOVE) -> int:
    """Measure the edits that certainly keep the IQR within a factor of two: max A0 - 1 over both bins.

    1-Lipschitz as a maximum of 1-Lipschitz statistics. Above 0 some discretisation has A0 >= 2, so every
    neighbour lies in the same bin and its log2 differs by less than 1 (and a range of 0 stays 0). Clamped at
    ``cap``.
    """
    if data.n <= 1:
        return 0
    return max(measure_bin_distance(data, which, relation, cap + 1) for which in (1, 2)) - 1
