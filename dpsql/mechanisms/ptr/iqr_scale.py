"""The Scale algorithm: the stability of the interquartile range's order of magnitude.

``IQR(x) = x(u) - x(l)`` with ranks l = ceil(n/4), u = ceil(3n/4), in one floating subtraction (which is monotone in
both operands, so the window arguments hold for doubles); with fewer than two rows it is 0. Its *bin* is the interval of
logarithms to a public base that contains it: [k - s, k + 1 - s) in the discretisation with shift s, and a separate bin
for 0. The statistic A0 is the number of edits after which the bin changes. The texts take the larger of two
discretisations, s = 0 and s = 1/2; more of them put a range closer to the middle of some bin, at no cost in privacy.

Bins are intervals between doubles, those nearest to the powers of the base; a range's bin is found by comparing
doubles. Differences that overflow count as infinity, which has a separate bin, and so have all ranges below the least
normal double.

Source: Dwork and Lei (2009), algorithm 12 of Dwork and Roth (2014), with the threshold repaired (the printed one, 1 +
ln(1/delta), lacks a division by epsilon: at epsilon = 0.1 a far pair passes 235,000 times too often); the text asks for
a base near 1 + 1 / ln n.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.ptr.stability_test import Neighbours, Ordered

LOG_GRID = 1024
"""Steps per unit of the logarithm in the released range."""

NEVER = 10**9
"""More edits than any table has rows: the bin can't change."""

SHIFTS = 8
"""The number of discretisations, the best of which is tested."""

BASES = (1 + Fraction(1, 1 << 16), Fraction(2))
"""The smallest and the largest base."""

_EDITS_TO_RANGE = 10
"""The fraction of the base's logarithm moved by one edit of n rows, times n: see :func:`choose_base`."""

_LEAST = 2.0**-1021
_EXACT = Context(prec=50, Emax=MAX_EMAX, Emin=MIN_EMIN)


def find_quartile_ranks(n: int) -> tuple[int, int]:
    """Return the ranks of the lower and the upper quartile among n >= 1 values.

    >>> find_quartile_ranks(40)
    (10, 30)
    """
    return (n + 3) // 4, (3 * n + 3) // 4


def compute_iqr(data: Ordered) -> float:
    """Compute x(u) - x(l), 0 for fewer than two values, infinity if the difference overflows."""
    if data.n < 2:
        return 0.0
    low, high = find_quartile_ranks(data.n)
    with np.errstate(over="ignore"):
        return data.at(high) - data.at(low)


@dataclass(frozen=True)
class LogScale:
    """Logarithms of ranges to a public base: in bins for the test, in steps of 1/1024 for the release.

    Two ranges in one bin are at most ``LOG_GRID + 1`` steps apart: the edges of a bin differ by a factor of the base up to the
    rounding of doubles, and steps are rounded by a monotone function that commutes with whole units. One more step covers both
    roundings and the error of the floating logarithm, which are below a thousandth of a step.
    """

    base: Fraction = Fraction(2)
    shifts: int = 2

    def __post_init__(self) -> None:
        if not BASES[0] <= self.base <= BASES[1] or self.shifts < 1:
            raise ValueError("base: out of range")

    @cached_property
    def _exact(self) -> Decimal:
        return _EXACT.divide(Decimal(self.base.numerator), Decimal(self.base.denominator))

    @cached_property
    def _bits(self) -> float:
        return math.log2(self.base)

    def find_edge(self, k: int, discretisation: int) -> float:
        """Return the lower edge of a bin: the double nearest to base ** (k - s)."""
        back = _EXACT.divide(Decimal(discretisation - 1), Decimal(self.shifts))
        return float(_EXACT.power(self._exact, _EXACT.subtract(Decimal(k), back)))

    def find_bin(self, spread: float, discretisation: int) -> tuple[float, float] | None:
        """Find the bin [low, high) of a range; high is NaN if no range leaves it upwards. None: the bin of 0."""
        if spread == 0:
            return None
        if math.isinf(spread):
            return math.inf, math.nan
        if spread < _LEAST:
            return math.ulp(0.0), _LEAST
        k = math.floor(math.log2(spread) / self._bits + (discretisation - 1) / self.shifts)
        while self.find_edge(k, discretisation) > spread:
            k -= 1
        while self.find_edge(k + 1, discretisation) <= spread:
            k += 1
        return max(self.find_edge(k, discretisation), _LEAST), self.find_edge(k + 1, discretisation)

    def order(self, spread: float) -> list[int]:
        """Return the discretisations, those with the range nearest to the middle of its bin first."""
        if spread == 0 or math.isinf(spread):
            return list(range(1, self.shifts + 1))
        place = math.log2(spread) / self._bits
        return sorted(
            range(1, self.shifts + 1), key=lambda d: abs((place + (d - 1) / self.shifts) % 1 - 1 / 2)
        )

    def to_steps(self, spread: float) -> int:
        """Convert a range to its logarithm in steps, clamped to the normal doubles."""
        if math.isinf(spread):
            return self._to_steps(1024)
        return min(max(self._to_steps(math.log2(spread)), self._to_steps(-1021)), self._to_steps(1024))

    def from_steps(self, steps: int) -> float:
        """Convert a (noisy) number of steps to a range, clamped to the doubles."""
        held = min(max(steps, self._to_steps(-1021)), self._to_steps(1024) - 1)
        whole, part = divmod(held * self._bits / LOG_GRID, 1)
        return math.ldexp(2.0**part, int(whole))

    def _to_steps(self, bits: float) -> int:
        return round(bits / self._bits * LOG_GRID)


def choose_base(rows: int, edits: int) -> Fraction:
    """Choose a base for which smooth data of ``rows`` rows are ``edits`` edits from another bin.

    One edit moves a range by about 1 / (n f r) of itself, with f the density at a quartile in units of the range r; the best of
    the discretisations has its nearest edge 7/16 of a bin away. The tests show that the constant covers usual laws.

    >>> float(choose_base(32_561, 36)) < 1.012
    True
    """
    base = 1 + Fraction(math.ceil(_EDITS_TO_RANGE * edits * (1 << 16) / max(rows, 1)), 1 << 16)
    return min(max(base, BASES[0]), BASES[1])


def count_rows_needed(base: Fraction, edits: int) -> int:
    """Return the number of rows from which smooth data are ``edits`` edits from another bin.

    >>> count_rows_needed(Fraction(102, 100), 36)
    18000
    """
    return math.ceil(_EDITS_TO_RANGE * edits / (base - 1))


BASE_TWO = LogScale()
"""Powers of two, as in the texts."""


@dataclass(frozen=True)
class _Reach:
    """The rank of the upper end that meets a condition, for each rank first, first + 1, ... of the lower end."""

    first: int
    partner: NDArray[np.int64]

    def outwards(self, low: int, high: int) -> int:
        """Minimise a + c over a, c >= 0 such that rank high + c suffices for rank low - a."""
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


def _find_first(lower: NDArray[np.float64], upper: NDArray[np.float64], edge: float) -> NDArray[np.int64]:
    """Return for each lower value the place of the first upper one at least ``edge`` above it (above it, for edge 0)."""
    ends, places, j = upper.tolist(), [], 0
    for x in lower.tolist():
        # the difference of two equal infinities is NaN, which is not above anything
        while j < len(ends) and not (ends[j] - x >= edge and ends[j] - x > 0):
            j += 1
        places.append(j)
    return np.array(places, dtype=np.int64)


def measure_bin_distance(
    data: Ordered, discretisation: int, relation: Neighbours, cap: int, scale: LogScale = BASE_TWO
) -> int:
    """Measure A0, the edits until the bin of the IQR changes: exact up to ``cap``, else ``cap``.

    Reads only ranks within :func:`bound_reach` of the two quartiles.

    SUBSTITUTE. With k replacements the windows that can become [x(l), x(u)] are exactly [x(l-a), x(u+b)] (move a low rows below,
    b high rows above, taking them from between) and [x(l+a), x(u-b)], a + b = k.

    ADD_REMOVE. Let ``net`` be the change of n, l' the new lower rank and U = u(n + net) - net. Reaching an outer window that
    lacks e ranks takes e additions outside the ends and e - net removals from between, hence max(net, 2e - net) edits; reaching
    an inner one takes max(-net, 2s + net). With fewer than two rows left the range is 0. With fewer than two rows the answer is
    1: at most two additions leave the bin, and calling the empty table unstable keeps the statistic 1-Lipschitz.
    """
    n = data.n
    if n <= 1:
        return NEVER if relation is Neighbours.SUBSTITUTE else 1
    low, high = find_quartile_ranks(n)
    span = bound_reach(cap)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = compute_iqr(data)
        bounds = scale.find_bin(spread, discretisation)
        first, start = max(low - span, 0), max(high - span, 0)
        lower = data.slice(first, min(low + span, n))
        upper = data.slice(start, min(high + span, n + 1))
        beyond = _find_first(lower, upper, bounds[1] if bounds else 0.0)
        out = _Reach(first, np.where(beyond < len(upper), start + beyond, NEVER))
        into = None
        if bounds:
            within = _find_first(lower, upper, bounds[0]) - 1
            into = _Reach(first, np.where(within >= 0, start + within, -NEVER))
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
    """Return how many ranks from the quartiles :func:`measure_bin_distance` reads for distances up to ``cap``."""
    return 2 * cap + 4


def measure_scale_radius(
    data: Ordered, cap: int, relation: Neighbours = Neighbours.ADD_REMOVE, scale: LogScale = BASE_TWO
) -> int:
    """Measure the edits that certainly keep the IQR within a factor of the base: max A0 - 1 over both bins, at most ``cap``.

    1-Lipschitz as a maximum of 1-Lipschitz statistics. Above 0 some discretisation has A0 >= 2, so every neighbour is
    in the same bin and its logarithm differs by at most 1 (and a range of 0 stays 0).
    """
    if data.n <= 1:
        return 0
    best = 0
    for which in scale.order(compute_iqr(data)):
        best = max(best, measure_bin_distance(data, which, relation, cap + 1, scale))
        if best > cap:
            break
    return best - 1
