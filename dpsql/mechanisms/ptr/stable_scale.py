"""The effect of one change on a trimmed mean or variance, and the stability of its order of magnitude.

Of n values, the floor(trim n) smallest and largest are left out; m are kept. Let w be the distance between the last
value left out below and the first one above (infinite if none is left out). Then one change moves

    the mean of those kept by at most       w / (m - 1),
    their sample variance by at most        w^2 / (m - 1)          (m >= 3),

whether a row is added, removed, or replaced. Proof for the mean, of kept values W with ends lo <= hi and an added row
y: if the number left out is unchanged, W gains the middle one of y and the two values next to W, which is at most w
from the mean, and the mean moves by at most w / (m + 1). If one more is left out at each end, W loses one end, or gains
y between lo and hi and loses both; the sum of the moves is ((y - lo) + (mean - hi)) / (m - 1), of absolute value at
most (hi - lo) / (m - 1). Removal is the inverse of addition, and the smaller table's window is within w. A replaced row
keeps n, and moves one value of W by at most w: w / m. For the variance, the sum of squares S about the mean replaces
the sum: it grows by at most w^2 if a value within w is added, shrinks by at most w^2 if both ends are removed for one
between them, and S <= m w^2 / 4 bounds the effect of the divisor. Tests compare both bounds with every small table.

So U = w^p / (m - 1) bounds the local sensitivity. U is put into *bins* between powers of two, 2^(bits j) to 2^(bits (j
+ 1)); a second row of bins is shifted by half a bin. The distance to a table in another bin is measured exactly; if it
is above 1, every neighbour has the same bin, and noise for the bin's upper end may be added, whatever that is: the
scale of the noise needs no proposal. A value in the middle of a bin of one row is at an edge of the other row, so both
rows are tested in turn, and the first that passes gives the scale.

Sources: Dwork and Lei (2009) for the Scale test, applied here to a sensitivity instead of a range; Dwork and Roth
(2014) section 7.2; Bun and Steinke (2019) for trimmed means. Their smooth sensitivity needs a bounded range (an
unbounded value may be added as often as values are left out, which no e^-k compensates); a test does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

Number: TypeAlias = int | Fraction | float
"""An exact number, or an infinity."""
SCALE_STEPS = 1024
"""The grid steps in the largest move that the scale allows: the sensitivity of the noise."""
LEAST_EXPONENT = -1200
"""Smaller powers of two are in the bottom bin."""


@dataclass(frozen=True)
class ScaleBins:
    """Bins of the bound U on a local sensitivity.

    Args:
        bits: the binary logarithm of the base; even, so that half a bin is a whole power of two.
        power: 1 for a mean, 2 for a variance.
    """

    bits: int
    power: int = 1

    def __post_init__(self) -> None:
        if self.bits < 2 or self.bits % 2 or self.power not in (1, 2):
            raise ValueError("bins: an even number of bits, and a power of 1 or 2")

    @property
    def fewest(self) -> int:
        """The fewest kept values for which U is a bound."""
        return 2 if self.power == 1 else 3

    def find_ends(self, width: Number, kept: int, row: int) -> tuple[int | None, int] | None:
        """Find the powers of two around U in a row of bins; None if U is infinite, and for the bottom bin's lower one."""
        if kept < self.fewest or math.isinf(width):
            return None
        bound = Fraction(width) ** self.power / (kept - 1)
        exponent = LEAST_EXPONENT if bound == 0 else max(_floor_log2(bound), LEAST_EXPONENT)
        offset = row * self.bits // 2
        start = (exponent - offset) // self.bits * self.bits + offset
        return (start if start > LEAST_EXPONENT else None), start + self.bits

    def reaches(self, width: Number, kept: int, limit: Fraction) -> bool:
        """Return whether U is at least ``limit``."""
        if kept < self.fewest or math.isinf(width):
            return True
        if isinstance(width, int):
            return bool(width**self.power * limit.denominator >= limit.numerator * (kept - 1))
        return Fraction(width) ** self.power >= limit * (kept - 1)


def _floor_log2(value: Fraction) -> int:
    """Return the largest e with 2^e <= value, for a value above 0."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def count_trimmed(n: int, trim: Fraction) -> int:
    """Count the values left out at each end of n.

    >>> count_trimmed(39, Fraction(1, 20))
    1
    """
    return trim.numerator * n // trim.denominator


class Ranked:
    """Ascending values of ranks 1..n, some of them known, with infinities below and above."""

    def __init__(self, n: int, windows: Sequence[tuple[int, Sequence[Number]]]) -> None:
        self.n = n
        self._windows = windows

    def at(self, rank: int) -> Number:
        """Return the value of a rank; LookupError if it was not read."""
        if rank < 1 or rank > self.n:
            return -math.inf if rank < 1 else math.inf
        for first, values in self._windows:
            if first <= rank < first + len(values):
                return values[rank - first]
        raise LookupError("this rank was not read")


def _outwards(
    data: Ranked, low: int, high: int, bins: ScaleBins, kept: int, limit: Fraction, most: int
) -> int:
    """Count the least a + c such that the values of ranks low - a and high + c make U reach a limit; most + 1 if above."""
    best = c = most + 1
    for a in range(most + 1):
        lower = data.at(low - a)
        while c > 0 and bins.reaches(_distance(data.at(high + c - 1), lower), kept, limit):
            c -= 1
        best = min(best, a + c)
        if c == 0:
            break
    return best


def _inwards(
    data: Ranked, low: int, high: int, bins: ScaleBins, kept: int, limit: Fraction, most: int
) -> int:
    """Count the least a + c such that the values of ranks low + a and high - c keep U below a limit; most + 1 if above."""
    best = c = most + 1
    for a in range(min(most, high - low) + 1):
        lower = data.at(low + a)
        while c > 0 and not bins.reaches(_distance(data.at(max(high - c + 1, low + a)), lower), kept, limit):
            c -= 1
        best = min(best, a + c)
        if c == 0:
            break
    return best


def _distance(upper: Number, lower: Number) -> Number:
    """Return a difference; infinite if either is, for no bounded window has an infinite end."""
    if any(isinstance(end, float) and math.isinf(end) for end in (upper, lower)):
        return math.inf
    return upper - lower


def measure_substitution_radius(
    data: Ranked, trim: Fraction, bins: ScaleBins, row: int, cap: int
) -> tuple[int, int]:
    """Measure the replacements that certainly leave U in its bin, clamped at ``cap``, and the power of its upper end.

    With k replacements the windows that can replace ranks low and high are exactly those of low - a and high + c (a
    small and c large values are added, for values between) and of low + a and high - c, a + c <= k.
    """
    low, high, kept = _window(data.n, trim)
    width = _distance(data.at(high), data.at(low))
    ends = bins.find_ends(width, kept, row)
    if ends is None:
        return 0, 0
    distance = _outwards(data, low, high, bins, kept, Fraction(2) ** ends[1], cap)
    if ends[0] is not None:
        distance = min(distance, _inwards(data, low, high, bins, kept, Fraction(2) ** ends[0], cap))
    return min(distance - 1, cap), ends[1]


def measure_addition_radius(
    data: Ranked, trim: Fraction, bins: ScaleBins, row: int, cap: int
) -> tuple[int, int]:
    """Measure the added or removed rows that certainly leave U in its bin, up to ``cap``, and the power of its upper end."""
    low, high, kept = _window(data.n, trim)
    ends = bins.find_ends(_distance(data.at(high), data.at(low)), kept, row)
    if ends is None:
        return 0, 0
    below = Fraction(2) ** ends[0] if ends[0] is not None else None
    return max(_count_edits(data, trim, bins, below, Fraction(2) ** ends[1], cap + 1) - 1, 0), ends[1]


def measure_proposal_radius(
    data: Ranked, trim: Fraction, bins: ScaleBins, proposed: Fraction, cap: int
) -> int:
    """Measure the added or removed rows before U reaches the proposed value, up to ``cap``."""
    return _count_edits(data, trim, bins, None, proposed, cap)


def _count_edits(
    data: Ranked, trim: Fraction, bins: ScaleBins, below: Fraction | None, limit: Fraction, most: int
) -> int:
    """Count the added or removed rows until U is at least ``limit``, or less than ``below``, up to ``most``.

    For each change ``net`` of n, let low' and high' be the ranks of n + net rows, high' less ``net`` since rows are
    counted from below. An outer window that lacks e ranks takes at least e rows added at its ends, and the removal of e
    - net of those between: max(|net|, 2e - net) edits. An inner one with s ranks too many takes at least s removals,
    and s + net additions between: max(|net|, 2s + net). A table with too few kept rows has no bound, and takes ``|net|``.
    """
    best = most
    change = 0
    while change < best:
        for net in {change, -change} if change <= data.n else {change}:
            low, high, kept = _window(data.n + net, trim)
            if kept < bins.fewest:
                best = min(best, change)
                continue
            gap = _outwards(data, low, high - net, bins, kept, limit, max((best + net) // 2, 0))
            best = min(best, max(change, 2 * gap - net))
            if below is not None:
                gap = _inwards(data, low, high - net, bins, kept, below, max((best - net) // 2, 0))
                best = min(best, max(change, 2 * gap + net))
        change += 1
    return best


def _window(n: int, trim: Fraction) -> tuple[int, int, int]:
    """Return the ranks of the last value left out below and of the first above, and the number kept between."""
    left = count_trimmed(n, trim)
    return left, n - left + 1, n - 2 * left
