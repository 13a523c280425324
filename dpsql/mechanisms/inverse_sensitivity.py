"""The inverse sensitivity mechanism: spreads and trimmed means, by the number of rows to change for another answer.

Let ``F`` be a statistic rounded to a public grid of answers, 0 to C. The score of the answer c is minus its *length*:
the larger of the distances from the data to the nearest table with ``F >= c`` and to the nearest one with ``F <= c``.
An answer is chosen with probability proportional to ``exp(-rate length)``, exactly.

Relation: ADD_REMOVE, over tables with values of a public grid, ``low`` to ``high``. Sensitivity: a distance to a set of
tables moves by at most 1 per added or removed row, by the triangle inequality, and so does the larger of two. So a unit
with at most ``rows`` rows in a group moves a length by at most ``rows``, and ``rate = epsilon / (2 rows groups)`` is the
exponential mechanism: pure epsilon over the groups of a unit, and of bounded range, without delta or test. (Noise scaled
to the local sensitivity would not be private: its scale would tell how far one row moves the answer.) The caller must
clamp values to the grid, leave missing ones out, and bound a unit's rows and groups by rules that depend on it alone.

Lengths follow from the answers k edits reach: with M(k) and m(k) the greatest and the least F at most k edits away, the
length of an answer above F is the least k with ``M(k) >= c``, of one below the least k with ``m(k) <= c``. The answers
between M(k - 1) and M(k) form one run, so the work grows with k and the distinct values near the answer, not the grid.

*IQR.* ``x(u) - x(l)``, l = ceil(n/4), u = ceil(3n/4), 0 of fewer than two rows; x(i) is ``low`` for i < 1, ``high`` for
i > n. Let ``net`` be the net number of added rows, l' and u' the ranks among n + net rows, and U = u' - net. The tables
k edits away reach outwards exactly the windows [x(l' - a), x(U + b)] with a + b = e = floor((k + net) / 2): e rows are
added outside the ends, and e - net removed from between, if e is larger (:mod:`dpsql.mechanisms.ptr.ptr_statistics`). They
span ``u' - l' - net + e`` ranks from l' - e or later. With net + 4 for net, l' grows by 1, u' by 3 and e by 2: the
windows span as many ranks, and begin from one rank earlier to one rank later. So only the four greatest net up to k
matter. Inwards the windows are [x(l' + a), x(U - c)] with a + c = floor((k - net) / 2), and the four least net suffice.

*Trimmed mean.* Of n rows the g = floor(p n) least and the g greatest are left out. For given numbers a of added and r
of removed rows every order statistic, and so the mean, is greatest if the least rows are removed and the new ones are
``high``. Neither edit lowers it: the mean gains a row above all others in it, or loses the least of them. So M(k) is
the best of a + r = k: a mean of the ranks s + 1 to n + k - s, with s = r + floor(p (n + a - r)). With one more row
removed s grows by 1 or 0, so it is any integer from floor(p (n + k)) to k + floor(p (n - k)). While both ends stay
among equal values the mean is a quotient of linear functions of s, which is monotone: it is evaluated at the s where an
end reaches another value. m(k) is the mirror image, with ranks k lower. A table without rows counts as having any mean,
so no answer is more than n edits away.

Source: Asi and Duchi (2020), near instance-optimality in differential privacy; McSherry and Talwar (2007).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Answered, Group
from dpsql.mechanisms.base import ErrorBasis, ExpectedError
from dpsql.mechanisms.histograms import SteppedPart
from dpsql.mechanisms.ptr.ptr_statistics import find_quartile_ranks
from dpsql.mechanisms.quantiles import RANK_CONFIDENCE
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import choose_exponential, flip_coins
from dpsql.numerics.exact_numbers import Integers, make_values
from dpsql.privacy.events import BoundedRange, Event

_NEVER = 30
"""Answers whose total probability is below exp(-30) are examined only when drawn."""
_RUNGS, _FEW_RUNGS = 256, 64
"""Numbers of edits whose reach is computed in advance; fewer if there are many edits."""
_MANY = 1 << 12
_AT_ONCE = 1 << 18
"""Places compared at a time."""
_FITS = 1 << 61

Edits = NDArray[np.int64]


class SortedRows:
    """Sorted grid values as a histogram, shifted so that the grid is 0 to ``top``; read by rank, also outside 1 to n."""

    def __init__(self, values: Integers, counts: Integers, low: int, high: int) -> None:
        self.top = high - low
        self.ends = np.concatenate([[0], np.cumsum(counts.astype(np.int64))])
        """The number of rows up to each distinct value, preceded by 0."""
        self.n = int(self.ends[-1])
        self._steps = np.concatenate([[0], values.astype(np.int64) - low, [self.top]])

    def at(self, ranks: Edits) -> Edits:
        """Return the values at ranks: 0 below rank 1, ``top`` above rank n."""
        return np.asarray(self._steps[np.searchsorted(self.ends, ranks, side="left")])

    @cached_property
    def _sums(self) -> Integers:
        """The sum of the rows up to each distinct value; Python integers if ranks up to 2 n may overflow."""
        kind = np.int64 if self.top * (2 * self.n + 1) < _FITS else object
        each = self._steps[1:-1].astype(kind) * np.diff(self.ends).astype(kind)
        return np.concatenate([np.zeros(1, dtype=kind), np.cumsum(each)])

    def sum_to(self, ranks: Edits) -> Integers:
        """Return the sums of the values up to each rank, at most 2 n, with 0 below rank 1 and ``top`` above n."""
        place = np.searchsorted(self.ends, ranks, side="left")  # of the distinct value at the rank
        before, kind = np.maximum(place - 1, 0), self._sums.dtype
        within = np.where(place > 0, ranks - self.ends[before], 0).astype(kind)
        return np.asarray(self._sums[before] + self._steps[place].astype(kind) * within)


class EditedStatistic(ABC):
    """A statistic of sorted grid values, and its range under added and removed rows."""

    @abstractmethod
    def count_cells(self, top: int) -> int:
        """Return the number of answers for values on 0 to ``top``."""

    @abstractmethod
    def reach(self, rows: SortedRows, edits: Edits) -> tuple[Integers, Integers]:
        """Return, for each number of edits, the least and the greatest answer of all tables at most that far away."""

    @abstractmethod
    def value(self, cell: int, low: int) -> Fraction:
        """Return the number that an answer represents, in steps of the values' grid, which begins at ``low``."""

    @abstractmethod
    def describe(self) -> str: ...


@dataclass(frozen=True)
class Spread(EditedStatistic):
    """``IQR(x)``: the upper quartile minus the lower one, as in PTR."""

    def count_cells(self, top: int) -> int:
        return top + 1

    def value(self, cell: int, low: int) -> Fraction:
        return Fraction(cell)

    def describe(self) -> str:
        return "the upper quartile less the lower one"

    def reach(self, rows: SortedRows, edits: Edits) -> tuple[Integers, Integers]:
        least, most = np.full(len(edits), rows.top), np.zeros(len(edits), dtype=np.int64)
        for back in range(4):
            shift = np.minimum(back, 2 * edits)  # net is between -edits and edits
            most = np.maximum(most, self._extreme(rows, edits, edits - shift, outwards=True))
            least = np.minimum(least, self._extreme(rows, edits, shift - edits, outwards=False))
        return np.where(rows.n - edits < 2, 0, least), most

    def _extreme(self, rows: SortedRows, edits: Edits, net: Edits, outwards: bool) -> Edits:
        """Return the widest or the narrowest window for each number of edits and change in the number of rows."""
        size = rows.n + net
        held: Any = np.maximum(size, 2)
        low, high = map(np.asarray, find_quartile_ranks(held))
        high = high - net
        moved = (edits + net) // 2 if outwards else (edits - net) // 2
        width = high - low + (moved if outwards else -moved)
        first = low - moved if outwards else low
        last = low if outwards else low + moved
        spread = _slide(rows, first, last, width, outwards)
        return np.where(size < 2, 0 if outwards else rows.top, np.maximum(spread, 0))


def _slide(rows: SortedRows, first: Edits, last: Edits, width: Edits, widest: bool) -> Edits:
    """Slide windows of ``width`` ranks from ``first`` to ``last``, and return the widest or the narrowest of each.

    A span changes only when an end reaches another value, so only these positions and the first are evaluated.
    """
    lows, highs = _find_begins(rows, first, last), _find_begins(rows, first + width, last + width)
    lower, upper = _tabulate(rows.at, first, last), _tabulate(rows.at, first + width, last + width)
    found, many = [], max(1, _AT_ONCE // (len(lows) + len(highs) + 1))
    for i in range(0, len(first), many):
        start, stop, wide = (part[i : i + many, None] for part in (first, last, width))
        at = np.concatenate([start, np.broadcast_to(lows, (len(start), len(lows))), highs - wide], axis=1)
        at = np.clip(at, start, stop)
        spread = upper(at + wide) - lower(at)
        found.append(spread.max(axis=1) if widest else spread.min(axis=1))
    return np.concatenate(found)


def _tabulate(
    of_ranks: Callable[[Edits], Integers], first: Edits, last: Edits
) -> Callable[[Edits], Integers]:
    """Return a function of ranks between the ends, as a look-up table if short."""
    low, high = int(first.min()), int(last.max())
    if high - low >= _AT_ONCE:
        return of_ranks
    table = of_ranks(np.arange(low, high + 1))
    return lambda ranks: table[ranks - low]


def _find_begins(rows: SortedRows, first: Edits, last: Edits) -> Edits:
    """Return the ranks, among those that a window's end reaches, at which the value changes."""
    begins = rows.ends + 1
    low, high = int(first.min()), int(last.max())
    return begins[np.searchsorted(begins, low) : np.searchsorted(begins, high, side="right")]


@dataclass(frozen=True)
class TrimmedMean(EditedStatistic):
    """``TRIMMED_MEAN(x, p)``: the mean without the floor(p n) least and greatest values, to the nearest answer.

    Args:
        part: the fraction cut off at each end, at least 0 and below 1/2.
        finer: answers to one step of the values' grid.
    """

    part: Fraction
    finer: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.part < Fraction(1, 2) or self.finer < 1:
            raise ValueError("a trimmed mean keeps some of the rows")

    def count_cells(self, top: int) -> int:
        return top * self.finer + 1

    def value(self, cell: int, low: int) -> Fraction:
        return low + Fraction(cell, self.finer)

    def describe(self) -> str:
        cut = (
            f"without the lowest and the highest {float(self.part):.4g} of the rows"
            if self.part
            else "of all rows"
        )
        return f"the mean {cut}"

    def reach(self, rows: SortedRows, edits: Edits) -> tuple[Integers, Integers]:
        least = np.zeros(len(edits), dtype=np.int64)
        most = np.full(len(edits), rows.top * self.finer, dtype=np.int64)
        few = np.flatnonzero(edits < rows.n)
        if len(few):
            k = edits[few]
            most[few] = self._extreme(rows, k, 0 * k, np.max)
            least[few] = self._extreme(rows, k, k, np.min)
        return least, most

    def _cut(self, sizes: Edits) -> Edits:
        """Return the number of rows cut off at each end, for each size."""
        wide = self.part.denominator * (int(sizes.max()) + 1) >= _FITS
        cut = self.part.numerator * (sizes.astype(object) if wide else sizes) // self.part.denominator
        return np.asarray(cut, dtype=np.int64)

    def _extreme(self, rows: SortedRows, edits: Edits, lower: Edits, pick: Callable[..., Any]) -> Integers:
        """Return the greatest or the least answer among the means of ranks s + 1 to n + k - s, minus ``lower``."""
        size = rows.n + edits
        first, last = self._cut(size), edits + self._cut(rows.n - edits)
        begins = _find_begins(rows, first - lower, last - lower + 1)
        ends = _find_begins(rows, size - last - lower, size - first - lower + 1)
        below = _tabulate(rows.sum_to, first - lower, last - lower)
        upto = _tabulate(rows.sum_to, size - last - lower, size - first - lower)
        found, many = [], max(1, _AT_ONCE // (2 * (len(begins) + len(ends) + 1)))
        for i in range(0, len(edits), many):
            start, stop, total, down = (part[i : i + many, None] for part in (first, last, size, lower))
            after, before = begins + down - 1, total - down - ends
            at = np.concatenate([start, stop, after, after - 1, before, before + 1], axis=1)
            at = np.clip(at, start, stop)
            sums = upto(total - at - down) - below(at - down)
            found.append(pick(self._round(rows.top, sums, total - 2 * at), axis=1))
        return np.concatenate(found)

    def _round(self, top: int, sums: Integers, kept: Edits) -> Integers:
        if top * (2 * self.finer + 1) * (int(kept.max()) + 1) >= _FITS:
            sums = sums.astype(object)
        return np.asarray((2 * self.finer * sums + kept) // (2 * kept))


@dataclass(frozen=True)
class AnswerRuns:
    """The answers of one table in runs, from which one is drawn with probability proportional to ``exp(-rate length)``.

    The reach is computed for some numbers of edits only. An answer between two of them is proposed with its least
    possible length and accepted with probability ``exp(-rate (its own length - that))``, otherwise everything is
    redrawn: by rejection the law is exact. Distant answers, which are rarely drawn, are handled alike.
    """

    statistic: EditedStatistic
    rows: SortedRows
    rate: Fraction
    starts: Edits
    sizes: Edits
    first: Edits
    """The least possible length of the run's answers."""
    last: Edits
    """The greatest possible length."""

    @classmethod
    def cut(cls, statistic: EditedStatistic, rows: SortedRows, rate: Fraction) -> AnswerRuns:
        """Divide the answers into runs by the reach of some numbers of edits."""
        cells, every = statistic.count_cells(rows.top), rows.n + 4  # this many edits reach every answer
        most = min(every, max(1, math.ceil((math.log(cells) + _NEVER) / rate)))
        stride = -(-most // (_FEW_RUNGS if most > _MANY else _RUNGS))
        rungs = np.arange(0, most + stride, stride)
        least, greatest = (ends.astype(np.int64) for ends in statistic.reach(rows, rungs))
        above, below = np.append(greatest, cells - 1), np.append(least, 0)
        following = np.append(rungs[1:], every)
        starts = np.concatenate([least[:1], above[:-1] + 1, below[1:]])
        sizes = np.concatenate([greatest[:1] - least[:1] + 1, np.diff(above), -np.diff(below)])
        first = np.concatenate([[0], rungs + 1, rungs + 1])
        last = np.concatenate([[0], following, following])
        held = sizes > 0
        return cls(statistic, rows, rate, starts[held], sizes[held], first[held], last[held])

    def draw(self, entropy: Entropy) -> int:
        """Draw an answer."""
        while True:
            i = choose_exponential(-self.first, self.rate, entropy, self.sizes)
            chosen = int(self.starts[i]) + int(entropy.below(int(self.sizes[i]), 1)[0])
            first, last = int(self.first[i]), int(self.last[i])
            if first >= last:
                return chosen
            more = bisect_left(range(first, last), True, key=lambda k: self._reaches(k, chosen))
            if bool(flip_coins(np.array([more], dtype=object), self.rate, entropy)[0]):
                return chosen

    def _reaches(self, edits: int, answer: int) -> bool:
        """Return whether this many edits reach an answer from both sides."""
        least, greatest = self.statistic.reach(self.rows, np.array([edits], dtype=np.int64))
        return int(least[0]) <= answer <= int(greatest[0])


@dataclass(frozen=True)
class InverseSensitivity(SteppedPart):
    """One released column: a statistic per group, chosen by the rows to change; ``low``, ``high``: the grid's end steps."""

    query: str
    keys: tuple[str, ...]
    name: str
    statistic: EditedStatistic
    low: int
    high: int
    epsilon: Fraction
    rows: int = 1
    groups: int = 1
    steps: Fraction = Fraction(1)
    column: str | None = None
    in_all: bool = False
    by_group = True

    def __post_init__(self) -> None:
        if self.low > self.high or self.epsilon <= 0 or min(self.rows, self.groups) < 1:
            raise ValueError("a choice needs a grid, an epsilon above 0, and rows and groups of at least 1")

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon, self.groups)

    @property
    def rate(self) -> Fraction:
        """The log-weight of one edit."""
        return self.epsilon / (2 * self.rows * self.groups)

    @property
    def cells(self) -> int:
        """The number of public answers."""
        return self.statistic.count_cells(self.high - self.low)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        return self._answer([self._choose(*found, entropy) for found in self.read_steps(table, groups)])

    def answer_counts(self, counts: NDArray[np.int64], entropy: Entropy) -> Answered:
        present = np.flatnonzero(counts)
        return self._answer([self._choose(present + self.low, counts[present], entropy)])

    def _choose(self, values: Integers, counts: Integers, entropy: Entropy) -> int:
        rows = SortedRows(values, counts, self.low, self.high)
        return AnswerRuns.cut(self.statistic, rows, self.rate).draw(entropy)

    def _answer(self, cells: list[int]) -> Answered:
        shown = [float(self.statistic.value(cell, self.low) / self.steps) for cell in cells]
        off = math.floor(self.bound_error(RANK_CONFIDENCE))
        note = (
            f"no interval for {self.name}: it lies between exact answers of tables at most {off} rows away, at "
            f"{RANK_CONFIDENCE:.0%}"
        )
        return Answered({self.name: make_values(shown, pa.float64())}, self.event, (note,))

    def bound_error(self, confidence: float) -> float:
        """Bound the number of rows to change to make the answer exact (Dwork and Roth, corollary 3.12)."""
        return (math.log(self.cells) - math.log(1 - confidence)) / float(self.rate)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        shared = f", shared by {self.groups} groups" if self.groups > 1 else ""
        return (
            f"Choose {self.name} ({self.statistic.describe()}) among {self.cells} public answers by inverse sensitivity "
            f"(ε={float(self.epsilon):g}{shared}): each weighs exp(-{float(self.rate):.4g} k), where k is the number of rows "
            f"to add or remove until the exact answer reaches it.",
            f"{self.name}: k is at most {self.bound_error(confidence):.4g}, with {confidence:.4g} probability; no delta is "
            f"needed, and it is never NULL.",
        )

    def errors(self, basis: ErrorBasis) -> Iterator[ExpectedError]:
        """Yield errors for rows spread evenly between the bounds: each edit moves the answer by half a rank."""
        if basis.confidence is not None:
            other = replace(self, epsilon=self.epsilon * basis.factor)
            yield ExpectedError(self.name, other.bound_error(basis.confidence), condition=", in rows")
            return
        for rows in basis.rows:
            off = min(1 / (2 * float(self.rate) * rows), 0.25)
            yield ExpectedError(self.name, off * float((self.high - self.low) / self.steps))
