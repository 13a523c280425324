"""Statistics that rest on an exact histogram of each group: distinct counts and sums, binned counts, quantiles.

``COUNT(DISTINCT x)``: the number of different values in a group, with discrete Laplace noise.

Relation: ADD_REMOVE. Sensitivity: a unit with at most ``rows`` rows in a group brings or takes at most ``rows`` values
there, in at most ``groups`` groups. Guarantee: epsilon-DP. The caller must bound the rows and groups of a unit by rules
that look at that unit alone.

``SUM(DISTINCT x)``: the sum of the different values in a group, with discrete Laplace noise.

Relation: ADD_REMOVE. Sensitivity: a unit with at most ``rows`` rows in a group brings at most so many values that are not
there without it, and takes none away. So it moves the sum by at most that of the largest values above 0, or of the least below
0, at most ``rows`` of either (:func:`bound_distinct_sum`), in at most ``groups`` groups. Guarantee: epsilon-DP. The caller must
bound the rows and groups of a unit by rules that look at that unit alone; values are held to a public grid here.

``HISTOGRAM(x)``: the number of rows in each of a list of public bins, with discrete Laplace noise.

Relation: ADD_REMOVE. Sensitivity: a unit with at most ``rows`` rows in a group moves the bins there by at most ``rows`` in
L1, however they are spread, in at most ``groups`` groups. Guarantee: epsilon-DP (the L1 form of the Laplace
mechanism), charged as noise on one bin of each group where a unit has one row there, and as pure epsilon where its rows
may be spread. The caller must bound the rows and groups of a unit by rules that look at that unit alone, and choose the
bins without looking at the data.

Quantiles, the median, the least and the greatest value, by the exponential mechanism over a public grid:

    u(v) = -max(0, L - t, t - (L + E))     L values below v, E values equal to v, t the wanted rank

The grid is every integer from ``low`` to ``high``. All points between two neighbouring values of the data share one
utility, so the work grows with the number of distinct values, not with the length of the grid. Values that occur often
keep their weight: the mechanism whose candidates are the *intervals* between values (Smith 2011) would never answer 5
for a hundred copies of 5.

Relation: ADD_REMOVE. Sensitivity for ``t = p n``: adding a row moves ``L - p n`` by ``1 - p`` or by ``-p``, so
``max(p, 1 - p)``, times the rows a unit may have. Guarantee: pure epsilon and of bounded range, divided equally over the
quantiles of a column and over the groups of a unit. The caller must clamp values to the grid, leave missing ones out, and
bound the rows of a unit in each group and the groups of a unit.

The least value is asked for as the rank ``min(k, n / 2)`` for a public k, so large that the points outside the data have
negligible weight: at rank 0 every point below the data would be as good as the true minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.aggregation import Answered, Group, Part, index_groups
from dpsql.mechanisms.base import ClaimedText, ExpectedError, RowsClaim
from dpsql.mechanisms.fast.column_counts import ColumnCounts
from dpsql.mechanisms.mean_errors import TYPICAL_ROWS
from dpsql.mechanisms.moments import Count, Sum
from dpsql.mechanisms.order_statistics import GeometricGrid, WantedRank, choose_step
from dpsql.mechanisms.per_group import LaplaceNoise, Statistic
from dpsql.noise.entropy import Entropy
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.exact_numbers import Integers, read_integers, to_integers
from dpsql.privacy.events import BoundedRange, Event, PureDP

_NO_ROWS = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True)
class DistinctCount(Part):
    """One released column; ``query`` gives the keys and the exact number ``n`` of each group that has rows."""

    query: str
    keys: tuple[str, ...]
    name: str
    noise: LaplaceNoise
    confidence: float = 0.95
    in_all: bool = False
    """True where the rows of the noise's sensitivity are those of all groups together."""

    @property
    def event(self) -> Event:
        return self.noise.event

    @property
    def _count(self) -> Count:
        return Count(self.name, Statistic("n", self.noise))

    def claims(self) -> Iterator[ClaimedText]:
        rows, groups = self.noise.sensitivity, self.noise.groups
        claim = RowsClaim(rows, groups, self.keys, moves=(("n", 1),), in_all=self.in_all)
        yield ClaimedText(self.query, claim)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        rows = index_groups(table, self.keys)
        counts = read_integers(table.column("n"))
        exact = [int(sum(int(counts[i]) for i in rows.get(group, _NO_ROWS))) for group in groups]
        return Answered(self._show(self.noise.add(to_integers(exact), entropy)), self.event)

    @property
    def can_redraw(self) -> bool:
        return True

    def redraw(self, released: pa.Table) -> Mapping[str, pa.Array]:
        return self._show(read_integers(released.column(self.name)))

    def _show(self, noisy: Integers) -> Mapping[str, pa.Array]:
        count = self._count
        return count.show({count.statistic: noisy}, self.confidence).columns(self.name)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return self._count.sentences(confidence)

    def expect_errors(self, factor: Fraction, confidence: float) -> Iterator[ExpectedError]:
        yield from self._count.expect_errors(factor, confidence)

    @property
    def mean_errors(self) -> Mapping[str, float]:
        return {self.name: self.noise.mean_error}


BIN, BIN_ROWS = "bin", "n"
"""Columns of the query: the place of a bin, from 0, and the number of rows in it."""


@dataclass(frozen=True)
class Histogram(Part):
    """One released column, a list of ``bins`` noisy counts; ``query`` gives keys, :data:`BIN` and :data:`BIN_ROWS`."""

    query: str
    keys: tuple[str, ...]
    name: str
    bins: int
    noise: LaplaceNoise
    in_all: bool = False
    """True where the rows of the noise's sensitivity are those of all groups together."""

    @property
    def event(self) -> Event:
        return self.noise.event if self.noise.sensitivity == 1 else PureDP(self.noise.epsilon)

    def claims(self) -> Iterator[ClaimedText]:
        rows, groups = self.noise.sensitivity, self.noise.groups
        claim = RowsClaim(rows, groups, self.keys, moves=((BIN_ROWS, 1),), in_all=self.in_all)
        yield ClaimedText(self.query, claim)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        rows = index_groups(table, self.keys)
        places, counts = read_integers(table.column(BIN)), read_integers(table.column(BIN_ROWS))
        exact = np.zeros((len(groups), self.bins), dtype=np.int64)
        for i, group in enumerate(groups):
            held = rows.get(group, _NO_ROWS)
            np.add.at(exact[i], places[held].astype(np.int64), counts[held].astype(np.int64))
        noisy = self.noise.add(exact.reshape(-1), entropy)
        lists = [[int(v) for v in row] for row in noisy.reshape(exact.shape)]
        return Answered({self.name: pa.array(lists, pa.list_(pa.int64()))}, self.event)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        noise = self.noise.sentence(confidence)
        return (f"{self.name}: the count of each of {self.bins} bins with {noise}.",)

    def expect_errors(self, factor: Fraction, confidence: float) -> Iterator[ExpectedError]:
        yield ExpectedError(f"{self.name}, each bin", self.noise.rescale(factor).half_width(confidence))

    @property
    def mean_errors(self) -> Mapping[str, float]:
        return {self.name: self.noise.mean_error}


GRID_STEP, STEP_ROWS = "value", "count"
"""Columns of the histogram: a grid step, and the number of rows that have it (NULL or 0 in a group without any)."""

RANK_CONFIDENCE = 0.95
"""The confidence of the note beside a released quantile."""

_DOUBT = Fraction(1, 1000)
"""The approximate chance that a least or greatest value falls outside the data after all."""
OUTSIDE = Fraction(1, 10**9)
"""The chance that another quantile falls outside the data, from :meth:`Quantiles.count_needed` rows on."""


def bound_distinct_sum(
    rows: int, low: int, high: int, values: Sequence[int] | None = None, spread: bool = False
) -> int:
    """Return how far ``rows`` values that were not there can move a sum of different values.

    Args:
        rows: the number of new values, at most.
        low: the least of all integers that may occur, where ``values`` does not list them.
        high: the greatest of them.
        values: the only values that may occur.
        spread: whether they may be in as many groups, of whose sums the changes are added up.

    >>> bound_distinct_sum(2, -1, 4), bound_distinct_sum(2, -9, 4), bound_distinct_sum(9, 0, 3)
    (7, 17, 6)
    >>> bound_distinct_sum(2, 0, 100, [5, 7, 100]), bound_distinct_sum(2, 0, 100, [5, 7, 100], spread=True)
    (107, 200)
    """
    if spread:
        return rows * bound_distinct_sum(1, low, high, values)
    if values is not None:
        held = sorted({min(max(v, low), high) for v in values})
        above = [v for v in held if v > 0][-rows:]
        below = [-v for v in held if v < 0][:rows]
        return max(sum(above), sum(below))
    return max(_add_largest(rows, low, high), _add_largest(rows, -high, -low))


def _add_largest(rows: int, low: int, high: int) -> int:
    """Add up the largest ``rows`` integers above 0 between two ends."""
    first = max(1, low, high - rows + 1)
    return (first + high) * (high - first + 1) // 2 if high >= first else 0


@dataclass(frozen=True)
class DistinctSum(Part):
    """One released column, the noisy sum of the different values of each group.

    Args:
        query: gives the keys, :data:`GRID_STEP` and ``STEP_ROWS``, a row per group and value.
        keys: names of the grouping columns.
        name: of the released column.
        low: the first step of the grid, to which values are held.
        high: its last step.
        rows: rows of one privacy unit in one group.
        noise: of the sum, in grid steps; its sensitivity is at least that of :func:`bound_distinct_sum`.
        steps: grid steps to a unit.
        values: the only values that count, in grid steps; None where all between the ends do.
        in_all: whether ``rows`` are those of all groups together: spread over groups, each may bring the largest value.
    """

    query: str
    keys: tuple[str, ...]
    name: str
    low: int
    high: int
    rows: int
    noise: LaplaceNoise
    steps: Fraction = Fraction(1)
    values: tuple[int, ...] | None = None
    confidence: float = 0.95
    in_all: bool = False

    def __post_init__(self) -> None:
        least = bound_distinct_sum(self.rows, self.low, self.high, self.values, self.in_all)
        if self.low > self.high or self.rows < 1 or self.noise.sensitivity < least:
            raise ValueError("a sum of different values needs a grid, and noise for what one unit can bring")

    @property
    def event(self) -> Event:
        return self.noise.event

    @property
    def _sum(self) -> Sum:
        return Sum(self.name, Statistic(self.name, self.noise), self.steps)

    def claims(self) -> Iterator[ClaimedText]:
        yield ClaimedText(self.query, RowsClaim(self.rows, self.noise.groups, self.keys, in_all=self.in_all))

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        rows = index_groups(table, self.keys)
        values, counts = read_integers(table.column(GRID_STEP)), read_integers(table.column(STEP_ROWS))
        exact = [self._add(values[held], counts[held]) for held in (rows.get(g, _NO_ROWS) for g in groups)]
        return Answered(self._show(self.noise.add(to_integers(exact), entropy)), self.event)

    def _add(self, values: Integers, counts: Integers) -> int:
        present = set(np.unique(np.clip(values[counts > 0], self.low, self.high)).tolist())
        return sum(present if self.values is None else present.intersection(self.values))

    @property
    def can_redraw(self) -> bool:
        return self.steps == 1  # else the column holds quotients

    def redraw(self, released: pa.Table) -> Mapping[str, pa.Array]:
        return self._show(read_integers(released.column(self.name)))

    def _show(self, noisy: Integers) -> Mapping[str, pa.Array]:
        return self._sum.show({self._sum.statistic: noisy}, self.confidence).columns(self.name)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return self._sum.sentences(confidence)

    def expect_errors(self, factor: Fraction, confidence: float) -> Iterator[ExpectedError]:
        yield from self._sum.expect_errors(factor, confidence)

    @property
    def mean_errors(self) -> Mapping[str, float]:
        return {self.name: self.noise.mean_error / float(self.steps)}


def read_histogram(values: Integers, counts: Integers, low: int, high: int) -> tuple[Integers, Integers]:
    """Return distinct ascending grid steps between two ends and their counts, in whatever order the query gave them."""
    held = counts > 0
    v, c = np.clip(values[held], low, high).astype(np.int64), counts[held]
    if len(v) and not bool((v[1:] > v[:-1]).all()):
        order = np.argsort(v, kind="stable")
        v, c = v[order], c[order]
        v, first = np.unique(v, return_index=True)
        c = np.add.reduceat(c, first)
    return v, c


@dataclass(frozen=True)
class Quantiles(Part):
    """Quantiles of one column, per group, out of one histogram.

    Args:
        query: gives the keys, :data:`GRID_STEP` and :data:`STEP_ROWS`, one row per group and distinct value.
        names: of the released columns, one for each rank; the values of ranks that share a name are a list.
        ranks: the ranks wanted.
        low: the first step of the grid.
        high: its last step.
        epsilon: for all of them; each gets an equal part of it in each of at most ``groups`` groups.
        rows: rows of one privacy unit in one group.
        groups: groups that one privacy unit may be in.
        steps: grid steps to a unit.
        whole: show integers (where ``steps`` is 1).
        column: gives :data:`GRID_STEP` of every row, where nothing is grouped: not clamped yet, NULL where missing.
        geometric: what steps stand for, where the bounds are nobody's: utilities and charge are the same on any grid.
        in_all: whether ``rows`` are those of all groups together; then ``groups`` is 1.
    """

    assumes_rows = True

    query: str
    keys: tuple[str, ...]
    names: tuple[str, ...]
    ranks: tuple[WantedRank, ...]
    low: int
    high: int
    epsilon: Fraction
    rows: int = 1
    groups: int = 1
    steps: Fraction = Fraction(1)
    whole: bool = False
    column: str | None = None
    geometric: GeometricGrid | None = None
    in_all: bool = False

    def __post_init__(self) -> None:
        if self.low > self.high or self.epsilon <= 0 or min(self.rows, self.groups, len(self.names)) < 1:
            raise ValueError("a quantile needs a grid, an epsilon above 0, and rows and groups of at least 1")
        if len(self.names) != len(self.ranks):
            raise ValueError("a name for each quantile")

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon, self.groups * len(self.ranks))

    def claims(self) -> Iterator[ClaimedText]:
        claim = RowsClaim(self.rows, self.groups, self.keys, in_all=self.in_all)
        yield ClaimedText(self.query, claim)
        if self.column_route is not None:
            yield from self.column_route.claims(claim)

    @property
    def column_route(self) -> ColumnCounts | None:
        return None if self.column is None else ColumnCounts(self.column, self.low, self.high)

    @property
    def _grid(self) -> int:
        """The number of grid points."""
        return self.high - self.low + 1

    @property
    def part(self) -> Fraction:
        """The epsilon of one quantile in one group."""
        return self.epsilon / (self.groups * len(self.ranks))

    @property
    def inward(self) -> int:
        """The number of values by which the least and the greatest are passed, so that they stay within the data."""
        return math.ceil(2 * self.rows / float(self.part) * math.log(self._grid / float(_DOUBT)) + 0.5)

    def rate(self, rank: WantedRank) -> Fraction:
        """Return the log-weight of one step of scaled utility."""
        return self.part / (2 * rank.sensitivity * self.rows)

    def count_needed(self, rank: WantedRank) -> int | None:
        """Count the rows that keep the answer between the least and the greatest value; None if no number does.

        Grid points outside the data have a scaled utility of -n times ``p`` or ``1 - p``, the nearer of which is meant, and
        some point has 0: so they are chosen with a chance of at most ``grid exp(-rate miss n)``, at most :data:`OUTSIDE`.
        The least and the greatest value pass enough rows that it is at most a thousandth, if there are that many.
        """
        if rank.end:
            return 2 * self.inward - 1
        miss = min(rank.p.numerator, rank.p.denominator - rank.p.numerator)
        if not miss:
            return None
        bits = 128 + max(0, self.rate(rank).denominator.bit_length())
        ratio = ia.log(ia.rational(self._grid / OUTSIDE, bits), bits)[1]
        return math.ceil(ia.fraction(ratio) / (self.rate(rank) * miss))

    def bound_error(self, rank: WantedRank, confidence: float) -> float:
        """Bound the distance of the answer's rank from the wanted one, in rows (Dwork and Roth, corollary 3.12)."""
        log = math.log(self._grid) - math.log(1 - confidence)
        return float(log / self.rate(rank)) / rank.scale

    def _bound_miss(self, rank: WantedRank, confidence: float) -> float:
        """Bound the same distance from the rank that is called for: the ends are passed by some rows."""
        return self.bound_error(rank, confidence) + (self.inward if rank.end else 0)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        rows = index_groups(table, self.keys)
        values, counts = read_integers(table.column(GRID_STEP)), read_integers(table.column(STEP_ROWS))
        held = (rows.get(group, _NO_ROWS) for group in groups)
        histograms = (read_histogram(values[i], counts[i], self.low, self.high) for i in held)
        return self._answer([self._choose(v, c, entropy) for v, c in histograms])

    def answer_counts(self, counts: NDArray[np.int64], entropy: Entropy) -> Answered:
        return self._answer([self._choose(np.arange(self.low, self.high + 1), counts, entropy)])

    def _answer(self, steps: list[list[int]]) -> Answered:
        kind = pa.int64() if self.whole and self.steps == 1 else pa.float64()
        shown: Callable[[int], float] = int if kind == pa.int64() else lambda v: float(v / self.steps)
        if self.geometric is not None:
            grid = self.geometric
            shown = (lambda v: int(grid.value(v))) if kind == pa.int64() else lambda v: float(grid.value(v))
        columns = {}
        for name, places in self._places().items():
            lists = [[shown(row[i]) for i in places] for row in steps]
            alone = len(places) == 1
            columns[name] = (
                pa.array([v for (v,) in lists], kind) if alone else pa.array(lists, pa.list_(kind))
            )
        return Answered(columns, self.event, self._notes())

    def _places(self) -> Mapping[str, list[int]]:
        """Return the ranks of each released column, by their places."""
        found: dict[str, list[int]] = {}
        for i, name in enumerate(self.names):
            found.setdefault(name, []).append(i)
        return found

    def _notes(self) -> tuple[str, ...]:
        """Explain that there is no interval: only the error in rank is known."""
        by_error: dict[int, list[str]] = {}
        for name, places in self._places().items():
            off = max(math.ceil(self._bound_miss(self.ranks[i], RANK_CONFIDENCE)) for i in places)
            by_error.setdefault(off, []).append(name)
        return tuple(
            f"no interval for {', '.join(names)}: off by at most {off} rows in rank, at {RANK_CONFIDENCE:.0%}"
            for off, names in by_error.items()
        )

    def _choose(self, values: Integers, counts: Integers, entropy: Entropy) -> list[int]:
        """Choose once per rank, and sort the choices by quantile: free, and never out of order."""
        chosen = [
            choose_step(values, counts, self.low, self.high, rank, self.rate(rank), entropy, self.inward)
            for rank in self.ranks
        ]
        order = sorted(range(len(chosen)), key=lambda i: self.ranks[i].p)
        out = [0] * len(chosen)
        for i, value in zip(order, sorted(chosen), strict=True):
            out[i] = value
        return out

    def sentences(self, confidence: float) -> tuple[str, ...]:
        shared = f", shared by {len(self.ranks)} quantiles of one column" if len(self.ranks) > 1 else ""
        shared += f" and {self.groups} groups" if self.groups > 1 else ""
        said = [
            f"Choose {', '.join(self._places())} among {self._grid} grid points by the exponential mechanism "
            f"(ε={float(self.epsilon):g}{shared})."
        ]
        if self.geometric is not None:
            said.append(
                f"The points lie a part 2^-{self.geometric.BITS} of their size apart, up to 2^{self.geometric.highest} of either "
                "sign: no bounds are needed."
            )
        for name, places in self._places().items():
            rank = self.ranks[places[0]]
            if len(places) > 1:
                off = max(self._bound_miss(self.ranks[i], confidence) for i in places)
                said.append(
                    f"{name}: {len(places)} values, from the least to the greatest, each within {off:.4g} rows of its rank, "
                    f"with {confidence:.4g} probability."
                )
                continue
            off = self.bound_error(rank, confidence)
            which = f"the value that {float(rank.p):g} of the rows lie below"
            if rank.end:
                side = "below" if rank.end == "min" else "above"
                which = (
                    f"a value with about {self.inward} rows {side} it (half of the rows, if there are fewer)"
                )
            said.append(f"{name}: {which}, within {off:.4g} rows, with {confidence:.4g} probability.")
            said.append(self._describe_strays(name, rank))
        return tuple(said)

    def _describe_strays(self, name: str, rank: WantedRank) -> str:
        """Say when an answer stays within the data: only the utility bound of the exponential mechanism keeps it there."""
        rows = self.count_needed(rank)
        if rows is None:
            return f"{name}: it may be anywhere between the bounds and the data; MIN and MAX stay within the data."
        chance = float(_DOUBT if rank.end else OUTSIDE)
        return (
            f"{name}: from {rows} rows on, it falls outside the data with a chance of at most {chance:g}; with fewer "
            f"it may fall anywhere between the bounds."
        )

    def expect_errors(self, factor: Fraction, confidence: float) -> Iterator[ExpectedError]:
        other = replace(self, epsilon=self.epsilon * factor)
        for name, places in other._places().items():
            off = max(other._bound_miss(other.ranks[i], confidence) for i in places)
            yield ExpectedError(f"{name}, in rows", off)

    @property
    def mean_errors(self) -> Mapping[str, float]:
        """Those of rows that are spread evenly between the bounds: ranks are off by the weight of one row."""
        found = {}
        for name, places in self._places().items() if self.geometric is None else ():
            ranks = (self.ranks[i] for i in places)
            off = max(1 / float(self.rate(r) * r.scale) + (self.inward if r.end else 0) for r in ranks)
            found[name] = min(off / TYPICAL_ROWS, 0.25) * float((self.high - self.low) / self.steps)
        return found
