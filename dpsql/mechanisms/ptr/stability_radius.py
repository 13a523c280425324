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


@dataclass(frozen=True)
class Ordered:
    """Some order statistics of n finite doubles: ascending windows of ranks.

    ``windows`` are pairs (first rank, values); ranks below 1 and above n read as the ends of the domain.
    """

    n: int
    windows: tuple[tuple[int, NDArray[np.float64]], ...]
    ends: tuple[float, float] = (-math.inf, math.inf)

    @staticmethod
    def all(values: NDArray[np.float64]) -> Ordered:
        """Return all order statistics, from sorted values."""
        return Ordered(len(values), ((1, values),))

    def within(self, low: float, high: float) -> Ordered:
        """Return the order statistics of the same values, each held to the domain [low, high]."""
        held = ((first, np.clip(values, low, high)) for first, values in self.windows)
        return Ordered(self.n, tuple(held), (low, high))

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
        before = np.full(max(0, min(last, 0) - first + 1), self.ends[0])
        after = np.full(max(0, last - max(first, self.n + 1) + 1), self.ends[1])
        return np.concatenate([before, middle, after])

    def at(self, position: int) -> float:
        """Return the value of a rank."""
        return float(self.slice(position, position)[0])
