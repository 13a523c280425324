"""Quantiles, the median, the least and the greatest value, by the exponential mechanism over a public grid.

    u(v) = -max(0, L - t, t - (L + E))     L values below v, E values equal to v, t the wanted rank

The grid is every integer from ``low`` to ``high``; all points between two neighbouring values of the data share
one utility, so the work goes with the number of distinct values, not with the length of the grid. Values that
occur often keep their weight: the mechanism whose candidates are the *intervals* between values (Smith 2011)
would never answer 5 for a hundred copies of 5.

Relation: ADD_REMOVE. Sensitivity for ``t = p n``: adding a row moves ``L - p n`` by ``1 - p`` or by ``-p``, so
``max(p, 1 - p)``, times the rows a unit may have. Guarantee: pure epsilon and of bounded range, divided equally
over the quantiles of a column and over the groups of a unit. Caller: clamp values to the grid, leave missing ones
out, bound the rows of a unit in each group and the groups of a unit.

The least value is asked for as the rank ``min(k, n / 2)`` for a public k, so many that the points outside the
data have no weight worth naming: at rank 0 every point below the data would be as good as the true minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.base import Read
from dpsql.mechanisms.composite import Answered, Group, Together, rows_of
from dpsql.mechanisms.estimators import exact_integers
from dpsql.mechanisms.fast.stream_counts import tallied
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import exponential, flips
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.integers import Integers
from dpsql.privacy.events import BoundedRange, Event

VALUE, COUNT = "value", "count"
"""Columns of the histogram: a grid step, and how many rows have it (NULL or 0 in a group without any)."""

SURE = 0.95
"""Confidence of what is said of a released quantile."""

_DOUBT = Fraction(1, 1000)
"""Chance, about, that a least or greatest value falls outside the data after all."""
OUTSIDE = Fraction(1, 10**9)
"""Chance that another quantile falls outside the data, from :meth:`Quantiles.held_by` rows on."""
_SMALL = 1 << 61
_NEVER = 30
"""Grid points whose utility is so low that all of them together are drawn once in exp(30) times are looked at only then."""


@dataclass(frozen=True)
class Rank:
    """What is asked: the quantile ``p``, or the least (``end = 'min'``) or greatest (``'max'``) value."""

    p: Fraction
    end: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1 or self.end not in (None, "min", "max"):
            raise ValueError("a quantile lies between 0 and 1")

    @classmethod
    def least(cls) -> Rank:
        return cls(Fraction(0), "min")

    @classmethod
    def greatest(cls) -> Rank:
        return cls(Fraction(1), "max")

    @property
    def scale(self) -> int:
        """What ranks are multiplied by, to be integers."""
        return 2 if self.end else self.p.denominator

    @property
    def sensitivity(self) -> int:
        """How far one row moves the scaled utility."""
        return 2 if self.end else max(self.p.numerator, self.p.denominator - self.p.numerator)

    def target(self, n: int, inward: int) -> int:
        """The scaled rank among ``n`` values; ``inward`` is how many values the ends are passed by."""
        if self.end is None:
            return self.p.numerator * n
        # Half a value less: beside a whole rank, every point up to the next value would be as good as the value itself.
        inner = min(2 * inward - 1, n)
        return inner if self.end == "min" else 2 * n - inner


def segments(
    values: Integers, counts: Integers, low: int, high: int, rank: Rank, inward: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64], Integers]:
    """``(starts, sizes, scaled utilities)`` of the runs of grid points that share a utility.

    ``values`` are distinct, ascending, within ``[low, high]``; ``counts`` not negative.
    """
    n = int(sum(map(int, counts))) if counts.dtype == object else int(counts.sum())
    scale, target = rank.scale, rank.target(n, inward)
    wide = object if scale * max(n, 1) >= _SMALL else np.int64
    upto = np.cumsum(counts.astype(wide))
    return _runs(values, upto, 0, low, high, scale, target)


def _runs(
    values: Integers, upto: Integers, before: int, low: int, high: int, scale: int, target: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Integers]:
    """Those from ``low`` to ``high``: ``before`` values lie below, ``upto`` each of these values or below it."""
    size = 2 * len(values) + 1
    starts = np.empty(size, dtype=np.int64)
    starts[1::2] = values
    starts[0] = low
    starts[2::2] = values + 1
    ends = np.empty(size, dtype=np.int64)
    ends[1::2] = values + 1
    ends[0:-1:2] = values
    ends[-1] = high + 1
    less = np.full(size, before, dtype=upto.dtype)  # values below the segment
    less[2::2] = upto
    less[3::2] = upto[:-1]
    less_or_equal = np.full(size, before, dtype=upto.dtype)
    less_or_equal[1::2] = upto
    less_or_equal[2::2] = upto
    miss = np.maximum(less * scale - target, target - less_or_equal * scale)
    utility = -np.maximum(miss, 0)
    held = ends > starts
    return starts[held], (ends - starts)[held], utility[held]


def choose(
    values: Integers, counts: Integers, low: int, high: int, rank: Rank, rate: Fraction, entropy: Entropy,
    inward: int = 0,
) -> int:  # fmt: skip
    """A grid step chosen with probability proportional to ``exp(rate * scaled utility)``, exactly.

    Some grid point always has utility 0, so those whose utility is below ``-reach`` are together so improbable that they
    are hardly ever looked at. They take part as two runs of utility ``-reach``; a point drawn from one of these is kept
    with probability ``exp(rate * (its own utility + reach))``, else all is drawn anew: rejection, so the law is the same.
    """
    n = int(sum(map(int, counts))) if counts.dtype == object else int(counts.sum())
    scale, target = rank.scale, rank.target(n, inward)
    upto = np.cumsum(counts.astype(object if scale * max(n, 1) >= _SMALL else np.int64))
    reach = max(0, min(math.ceil((math.log(high - low + 1) + _NEVER) / rate), scale * n + 1))
    # What is at most values[first - 1] has too few values up to it, what is at least values[last] too many below it.
    first = int(np.searchsorted(upto, -((reach - target) // scale), side="left"))
    last = min(len(values), 1 + int(np.searchsorted(upto, (target + reach) // scale, side="right")))
    before = int(upto[first - 1]) if first else 0
    left = int(values[first - 1]) + 1 if first else low
    right = int(values[last]) - 1 if last < len(values) else high
    near = _runs(values[first:last], upto[first:last], before, left, right, scale, target)
    far = [(start, size) for start, size in ((low, left - low), (right + 1, high - right)) if size]
    starts = np.append(near[0], np.array([start for start, _ in far], dtype=np.int64))
    sizes = np.append(near[1], np.array([size for _, size in far], dtype=np.int64))
    utility = np.append(near[2], np.array([-reach] * len(far), dtype=near[2].dtype))
    while True:
        i = exponential(utility, rate, entropy, sizes)
        chosen = int(starts[i]) + int(entropy.below(int(sizes[i]), 1)[0])
        if i < len(near[0]):
            return chosen
        at = int(np.searchsorted(values, chosen, side="left"))
        less = int(upto[at - 1]) if at else 0
        equal = int(upto[at]) - less if at < len(values) and int(values[at]) == chosen else 0
        miss = max(less * scale - target, target - (less + equal) * scale)
        if bool(flips(np.array([miss - reach], dtype=object), rate, entropy)[0]):
            return chosen


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of one column, per group, out of one histogram.

    Args:
        query: gives the keys, :data:`VALUE` and :data:`COUNT`, one row per group and distinct value.
        names, ranks: one released column for each.
        low, high: the grid's ends, in steps.
        epsilon: for all of them; each gets an equal part of it in each of at most ``groups`` groups.
        rows: rows of one privacy unit in one group.
        steps: grid steps to a unit. ``whole``: show integers (where ``steps`` is 1).
        column: gives :data:`VALUE` of every row, where nothing is grouped: not clamped to the grid yet, NULL where missing.
    """

    query: str
    keys: tuple[str, ...]
    names: tuple[str, ...]
    ranks: tuple[Rank, ...]
    low: int
    high: int
    epsilon: Fraction
    rows: int = 1
    groups: int = 1
    steps: Fraction = Fraction(1)
    whole: bool = False
    column: str | None = None

    def __post_init__(self) -> None:
        if self.low > self.high or self.epsilon <= 0 or min(self.rows, self.groups, len(self.names)) < 1:
            raise ValueError("a quantile needs a grid, an epsilon above 0, and rows and groups of at least 1")
        if len(self.names) != len(self.ranks):
            raise ValueError("a name for each quantile")

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon, self.groups * len(self.ranks))

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,) if self.column is None else (self.query, self.column)

    def counted(self, read: Read, column: str) -> NDArray[np.int64] | None:
        """How many values each grid step has, out of :attr:`column` (salted), where rows may be counted here."""
        return tallied(read, column, self.low, self.high)

    @property
    def part(self) -> Fraction:
        """Epsilon of one quantile in one group."""
        return self.epsilon / (self.groups * len(self.ranks))

    @property
    def inward(self) -> int:
        """Values that the least and the greatest are passed by, so that they stay within the data."""
        grid = self.high - self.low + 1
        return math.ceil(2 * self.rows / float(self.part) * math.log(grid / float(_DOUBT)) + 0.5)

    def rate(self, rank: Rank) -> Fraction:
        return self.part / (2 * rank.sensitivity * self.rows)

    def held_by(self, rank: Rank) -> int | None:
        """Compute how many rows hold the answer between the least and the greatest value; None: no number does.

        Grid points outside the data have a scaled utility of -n times ``p`` or ``1 - p``, the nearer of which is meant, and
        some point has 0: so they are chosen with a chance of at most ``grid exp(-rate miss n)``, at most :data:`OUTSIDE`.
        The least and the greatest value pass so many rows by that it is at most a thousandth, if there are that many.
        """
        if rank.end:
            return 2 * self.inward - 1
        miss = min(rank.p.numerator, rank.p.denominator - rank.p.numerator)
        if not miss:
            return None
        grid = self.high - self.low + 1
        bits = 128 + max(0, self.rate(rank).denominator.bit_length())
        ratio = ia.log(ia.rational(grid / OUTSIDE, bits), bits)[1]
        return math.ceil(ia.fraction(ratio) / (self.rate(rank) * miss))

    def off(self, rank: Rank, confidence: float) -> float:
        """How many rows the answer's rank may be off by (Dwork and Roth, corollary 3.12)."""
        log = math.log(self.high - self.low + 1) - math.log(1 - confidence)
        return float(log / self.rate(rank)) / rank.scale

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        rows = rows_of(table, self.keys)
        values, counts = exact_integers(table.column(VALUE)), exact_integers(table.column(COUNT))
        nothing = np.zeros(0, dtype=np.intp)
        histograms = (self._histogram(values, counts, rows.get(group, nothing)) for group in groups)
        return self._answered([self._ordered(v, c, entropy) for v, c in histograms])

    def answer_counted(self, counts: NDArray[np.int64], entropy: Entropy) -> Answered:
        """The same from the count of every grid step, 0 or not."""
        return self._answered([self._ordered(np.arange(self.low, self.high + 1), counts, entropy)])

    def _answered(self, steps: list[list[int]]) -> Answered:
        kind = pa.int64() if self.whole and self.steps == 1 else pa.float64()
        shown: Callable[[int], float] = int if kind == pa.int64() else lambda v: float(v / self.steps)
        columns = {
            name: pa.array([shown(row[i]) for row in steps], kind) for i, name in enumerate(self.names)
        }
        return Answered(columns, self.event, self._notes())

    def _notes(self) -> tuple[str, ...]:
        """Why there is no interval: what is known is how far the rank may be off."""
        said: dict[int, list[str]] = {}
        for name, rank in zip(self.names, self.ranks, strict=True):
            off = math.ceil(self.off(rank, SURE) + (self.inward if rank.end else 0))
            said.setdefault(off, []).append(name)
        return tuple(
            f"no interval for {', '.join(names)}: off by at most {off} rows in rank, at {SURE:.0%}"
            for off, names in said.items()
        )

    def _histogram(
        self, values: Integers, counts: Integers, rows: NDArray[np.intp]
    ) -> tuple[Integers, Integers]:
        """Distinct ascending grid steps and their counts, however the query gave them."""
        v, c = values[rows], counts[rows]
        held = c > 0
        v, c = np.clip(v[held], self.low, self.high).astype(np.int64), c[held]
        if len(v) and not bool((v[1:] > v[:-1]).all()):
            order = np.argsort(v, kind="stable")
            v, c = v[order], c[order]
            v, first = np.unique(v, return_index=True)
            c = np.add.reduceat(c, first)
        return v, c

    def _ordered(self, values: Integers, counts: Integers, entropy: Entropy) -> list[int]:
        """One choice per rank. Larger quantiles are given the larger choices: free, and never out of order."""
        chosen = [
            choose(values, counts, self.low, self.high, rank, self.rate(rank), entropy, self.inward)
            for rank in self.ranks
        ]
        order = sorted(range(len(chosen)), key=lambda i: self.ranks[i].p)
        out = [0] * len(chosen)
        for i, value in zip(order, sorted(chosen), strict=True):
            out[i] = value
        return out

    def sentences(self, confidence: float) -> tuple[str, ...]:
        grid = self.high - self.low + 1
        shared = f", shared by {len(self.ranks)} quantiles of one column" if len(self.ranks) > 1 else ""
        shared += f" and {self.groups} groups" if self.groups > 1 else ""
        said = [
            f"Choose {', '.join(self.names)} among {grid} grid points by the exponential mechanism "
            f"(ε={float(self.epsilon):g}{shared})."
        ]
        for name, rank in zip(self.names, self.ranks, strict=True):
            off = self.off(rank, confidence)
            which = f"the value that {float(rank.p):g} of the rows lie below"
            if rank.end:
                side = "below" if rank.end == "min" else "above"
                which = (
                    f"a value with about {self.inward} rows {side} it (half of the rows, if there are fewer)"
                )
            said.append(f"{name}: {which}, within {off:.4g} rows, with {confidence:.4g} probability.")
            said.append(self._strays(name, rank))
        return tuple(said)

    def _strays(self, name: str, rank: Rank) -> str:
        """How far from all rows an answer may fall: the utility bound of the exponential mechanism is all that holds it."""
        rows = self.held_by(rank)
        if rows is None:
            return f"{name}: it may be anywhere between the bounds and the data; MIN and MAX stay within the data."
        chance = float(_DOUBT if rank.end else OUTSIDE)
        return (
            f"{name}: from {rows} rows on, it falls outside the data with a chance of at most {chance:g}; with fewer "
            f"it may fall anywhere between the bounds."
        )

    def alone(self) -> Together:
        """An operator that releases just these, ungrouped."""
        return Together(None, (self,))
