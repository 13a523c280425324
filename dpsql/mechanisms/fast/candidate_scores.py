"""One statistic for each of many candidates, from histograms.

The private rows are scanned once. For local data and counts, the compared column is counted as it streams by; else the engine
returns, for every distinct value x, the number of rows and the sum of the added column. Then ``COUNT(*) FILTER (WHERE x >=
c.v)``, ranges, equality and ``SUM(LEAST(x, c.b))`` are differences of running sums: exact, in integers. The route depends on
types and on the candidates, never on private values. Sums clipped at many arbitrary thresholds (:class:`ClippedSums`) count
rows in cells, with the exact sum of each cell's distances from its start.

:class:`CandidatePruning` finds the few of very many candidates that may win. The number of rows at or above a threshold is
non-increasing in the threshold, so the counts at the ends of a cell bound the statistics of every candidate with a threshold
in it; with the range of their factors, they bound the utilities from both sides. Candidates are far if they would not be near
the best even at their upper bounds, with the best at its lower bound. The law of the choice is that of all exact utilities:
:class:`~dpsql.noise.selection.CandidateGaps` has the exact gaps of near candidates, that the others' exceed its reach, which
is proved here, and the exact gap of any that is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, reduce

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import ClaimedText, PublicClaim, Reader, RowsClaim
from dpsql.mechanisms.fast import FastRoute
from dpsql.mechanisms.fast.column_counts import (
    BLOCK_ROWS,
    COUNTING_THREADS,
    IntegerCells,
    PlaceCounts,
    ThreadTallies,
    count_column,
    stream_column,
    work_beside,
)
from dpsql.mechanisms.fast.thresholds import (
    MAX_BINS,
    BinnedColumn,
    HistogramQuery,
    PrefixSums,
    SortedThresholds,
    ThresholdCells,
    ThresholdCounts,
    Thresholds,
    ThresholdSums,
    accumulate,
    bin_column,
    find_span,
    is_comparable,
    is_decimal,
    read_numbers,
)
from dpsql.mechanisms.queries import CANDIDATE_PLACE
from dpsql.mechanisms.selection.utilities import (
    ChoiceRates,
    EqualNearness,
    GroupBounds,
    Linear,
    Nearness,
    UnequalNearness,
    UtilityForm,
    compute_spread,
)
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import CandidateGaps
from dpsql.numerics.exact_numbers import (
    Integers,
    NumberArray,
    add_integers,
    multiply_integers,
    read_integers,
    to_integers,
)

FARTHEST_SUMMED = 1 << 31
"""The greatest absolute value summed here: the sum of this many rows fits 62 bits."""
_MOST_POWER = 19
"""The binary logarithm of the most rows summed at once."""
_NONE = np.zeros(0, dtype=np.intp)


class _Tally(PlaceCounts):
    """The counts and sums of one thread, and its memory.

    A row adds one double to its bin, which counts it and contains its distance from the bin's start, less than
    ``2**shift`` either way: exact for this many rows.
    """

    def __init__(self, bins: int, classes: int, shift: int) -> None:
        power = min(_MOST_POWER, (50 - shift) // 2)
        super().__init__(bins, 1 << power)
        self._bits, self.block = power + shift + 2, min(BLOCK_ROWS, 1 << power)
        self.rests, self._added = np.zeros(bins, dtype=np.int64), np.empty(1 << power)
        self.apart, self.sums_apart = np.zeros((2, classes), dtype=np.int64)
        self.held, self.near = np.empty((2, self.block), dtype=np.int64)
        self.one = float(1 << self._bits)

    def take(self, size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the space for the bins of ``size`` more rows, and for their addends."""
        places = self.places(size)
        return places, self._added[self._rows - size : self._rows]

    def fold(self) -> None:
        added = self._added[: self._rows]
        whole = np.bincount(self._places[: self._rows], added, minlength=len(self._bins)).astype(np.int64)
        counts = whole + (1 << self._bits - 1) >> self._bits
        self._bins += counts
        self.rests += whole - (counts << self._bits)
        self._rows = 0


class ClippedSums:
    """Counts and sums of integers between thresholds, clamped to ``low`` and ``high``."""

    def __init__(self, ends: Sequence[Thresholds], low: int, high: int) -> None:
        self._thresholds = known = SortedThresholds([(end, True) for end in ends], False, 0, (low, high))
        assert isinstance(known.cells, IntegerCells)
        self._cells, self._bins = (
            known.cells,
            known.cells.count + 2,
        )  # the last bin is for rows of crowded cells
        self._tallies = ThreadTallies(self._make_tally)

    def add(self, values: NumberArray) -> None:
        """Count rows; thread-safe."""
        with self._tallies.reserve() as tally:
            for start in range(0, len(values), tally.block):
                self._add(values[start : start + tally.block], tally)

    def add_all(self, arrays: Iterable[NumberArray]) -> None:
        """Count all rows in other threads as this one fetches them."""
        work_beside(arrays, self.add, COUNTING_THREADS)

    def _make_tally(self) -> _Tally:
        return _Tally(self._bins, len(self._thresholds.values) + 1, self._cells.shift)

    def _add(self, part: NumberArray, tally: _Tally) -> None:
        size, known = len(part), self._thresholds
        places, added = tally.take(size)
        x = self._cells.compared(part, tally.held[:size])
        index = self._cells.number(x, places)
        near = known.near.take(index, mode="clip", out=tally.near[:size])
        many = _NONE if known.crowded is None else np.flatnonzero(known.crowded.take(index))
        rank = known.rank(x[many], index[many]) if len(many) else _NONE
        index += x >= near
        starts = np.left_shift(index, self._cells.shift, out=near)
        np.add(np.subtract(x, starts, out=starts), tally.one, out=added)
        if len(many):
            np.add.at(tally.apart, rank, 1)
            np.add.at(tally.sums_apart, rank, x[many] + self._cells.low)
            index[many], added[many] = self._bins - 1, 0

    def clipped(self, end: Thresholds) -> Integers:
        """Return the sum of the values clipped at each b (b NULL: 0)."""
        known = self._thresholds
        counts, rests = np.zeros((2, self._bins), dtype=np.int64)
        apart, sums_apart = np.zeros((2, len(known.values) + 1), dtype=np.int64)
        for tally in self._tallies.all:
            counts += tally.bins
            rests += tally.rests  # after the bins, which fold what is left
            apart += tally.apart
            sums_apart += tally.sums_apart
        counts, rests, apart = counts[:-1], rests[:-1], np.cumsum(apart)
        sums = counts * ((np.arange(len(counts)) << self._cells.shift) + self._cells.low) + rests
        place = known.place(end, after=True)
        cells = known.numbers[place]
        below = np.cumsum(counts)[cells] + apart[place]
        under = np.cumsum(sums)[cells] + np.cumsum(sums_apart)[place]
        beyond = to_integers(int(counts.sum()) + int(apart[-1]) - below)
        score: Integers = add_integers(to_integers(under), multiply_integers(end.values, beyond))
        return score if end.missing is None else np.where(end.missing, 0, score)


CANDIDATE_BASE = "dpsql_base"
"""The candidates' column of a number added to every score."""
CANDIDATE_SCORE, CANDIDATE_THRESHOLD = "dpsql_score", "dpsql_threshold"
CANDIDATE_SENSITIVITY = "dpsql_sensitivity"
"""Columns that queries add to the candidates: the statistic, and each candidate's threshold and sensitivity."""


BOUNDS_FROM_BELOW = (">", ">=")
"""Operators between x and a lower bound."""
UP_TO_BOUND = (">", "<=")
"""Operators for which an x equal to the bound is on its lower side."""
_SAFE = 1 << 61


Sums = PrefixSums | ThresholdSums | ClippedSums


# -- scores -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CandidateFactor:
    """A public integer of each candidate: ``times`` its ``column``, if any, clamped to ``[low, high]``; NULL is 0."""

    times: int
    column: str | None = None
    low: int = 0
    high: int = 0

    def of(self, table: pa.Table) -> Integers | int:
        if self.column is None:
            return self.times
        column = table.column(self.column)
        held = read_numbers(column) if pa.types.is_integer(column.type) else read_integers(column)
        if len(held) and not (self.low <= int(held.min()) and int(held.max()) <= self.high):
            held = np.clip(held, self.low, self.high)
        return held if self.times == 1 else np.asarray(multiply_integers(held, self.times))


@dataclass(frozen=True)
class ScoreTerm:
    """``factor * aggregate`` of a candidate.

    Args:
        histogram: the index of the aggregated histogram.
        bounds: pairs of an operator (``x op column``) and a column.
        clip: the column b of ``SUM(LEAST(x, b))``.
        row: the aggregate's sensitivity to one row.
    """

    histogram: int
    factor: CandidateFactor
    bounds: tuple[tuple[str, str], ...] = ()
    clip: str | None = None
    row: int = 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of thresholds."""
        return (*(name for _, name in self.bounds), *((self.clip,) if self.clip is not None else ()))

    @property
    def compared(self) -> Iterator[tuple[str, bool]]:
        """The threshold columns that rows are compared with, and whether rows at most these are counted."""
        for op, name in self.bounds:
            yield from ((name, after) for after in (False, True) if op == "=" or after == (op in UP_TO_BOUND))

    def bound_moves(self, factor: Integers | int) -> Integers | int:
        """Return the sensitivity to one row of candidates with these factors."""
        size = abs(factor) if isinstance(factor, int) else np.abs(factor)
        moved: Integers | int = multiply_integers(size, self.row)
        return moved

    def aggregate(self, run: Sums, found: Mapping[str, Thresholds]) -> Integers | int:
        if self.clip is not None:
            assert not isinstance(run, ThresholdSums)  # counts of rows have no clipped sums
            return run.clipped(found[self.clip])
        assert not isinstance(run, ClippedSums)
        if not self.bounds:
            return run.total
        low = high = None
        for op, name in self.bounds:
            if op == "=":
                low, high = run.place(found[name], after=False), run.place(found[name], after=True)
            elif op in BOUNDS_FROM_BELOW:
                low = run.place(found[name], after=op in UP_TO_BOUND)
            else:
                high = run.place(found[name], after=op in UP_TO_BOUND)
        score: Integers
        if high is None:
            score = run.total - run.sums[low]
        elif low is None:
            score = run.sums[high]
        else:  # an empty range, with ends in any order, has no rows
            score = np.where(low < high, run.sums[high] - run.sums[low], 0)
        for _, name in self.bounds:
            if (missing := found[name].missing) is not None:
                score = np.where(missing, 0, score)
        return score


@dataclass(frozen=True)
class ScoredCandidates:
    """Candidates in their original order, their order's indices, and their exact statistic."""

    table: pa.Table
    places: Integers
    scores: Integers
    sensitivities: Integers | None = None

    @property
    def order(self) -> NDArray[np.intp] | None:
        """The permutation that sorts the candidates; None if they are sorted."""
        ascending = bool((self.places[1:] > self.places[:-1]).all())
        return None if ascending else np.argsort(self.places, kind="stable")


@dataclass(frozen=True)
class CandidateScores(FastRoute[ScoredCandidates]):
    """The queries of the candidates and of the histograms, and the formula that joins them.

    Args:
        terms: the formula; ``base`` is added to it.
        rows: rows of one unit, in unequal sensitivities of candidates.
        varying: whether candidates have different sensitivities.
        form: combines the terms, if the utility is no plain sum; then ``bases`` are columns of public numbers, and
            ``multiples`` the public factors of nonlinear forms.
    """

    candidates: str
    histograms: tuple[HistogramQuery, ...]
    terms: tuple[ScoreTerm, ...]
    base: str | None = None
    rows: int = 1
    varying: bool = False
    form: UtilityForm | None = None
    bases: tuple[str, ...] = ()
    multiples: tuple[CandidateFactor, ...] = ()

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.candidates, *(h.query for h in self.histograms), *self.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The texts of columns, which may be counted in this process."""
        return tuple(h.column for h in self.histograms if h.column is not None)

    def claims(self) -> Iterator[ClaimedText]:
        yield ClaimedText(self.candidates, PublicClaim(), late=True)
        for place, counted in enumerate(self.histograms):
            moved = max((t.row for t in self.terms if t.histogram == place and t.clip is None), default=None)
            sums = (("v", moved),) if moved is not None and counted.sums else ()
            claim = RowsClaim(self.rows, moves=(("n", 1), *sums), limit=counted.limit)
            yield ClaimedText(counted.limited, claim, late=True)
            if counted.column is not None:
                yield ClaimedText(counted.column, RowsClaim(self.rows), late=True)

    def take(self, read: Reader, entropy: Entropy) -> ScoredCandidates | None:
        """Return the scored candidates, or None for incomparable types and more than :data:`MAX_BINS` bins."""
        table = read(self.candidates)
        ends = self.read_thresholds(table)
        if ends is None:
            return None
        runs: list[Sums] = []
        for i, counted in enumerate(self.histograms):
            terms = [t for t in self.terms if t.histogram == i]
            mine = [ends[c] for t in terms for c in t.columns]
            run: Sums | None = _count_dense(counted, mine, read)
            run = run or _count_between(counted, terms, ends, read)
            run = run or _sum_between(counted, terms, mine, read)
            if run is None:
                histogram = read(counted.limited)
                # A HUGEINT is returned as a decimal, which may not fit 64 bits.
                kind = histogram.schema.field("x").type
                if histogram.num_rows > MAX_BINS or not is_comparable(kind) or is_decimal(kind):
                    return None
                run = _sum_histogram(counted, histogram)
                if not all(counted.as_doubles or run.is_comparable_with(end) for end in mine):
                    return None
            runs.append(run)
        return self.score(table, ends, runs)

    def read_thresholds(self, table: pa.Table) -> Mapping[str, Thresholds] | None:
        """Read the thresholds of candidates by column; None for incomparable types."""
        names = dict.fromkeys(c for t in self.terms for c in t.columns)
        ends = {name: end for name in names if (end := Thresholds.of(table.column(name))) is not None}
        return None if len(ends) < len(names) else ends

    def score(
        self,
        table: pa.Table,
        ends: Mapping[str, Thresholds],
        runs: Sequence[Sums],
    ) -> ScoredCandidates:
        """Compute the statistic of candidates with thresholds ``ends`` from the counts of each histogram."""
        form = self.form or UtilityForm(Linear(tuple(range(len(self.terms)))), ())
        factors = [term.factor.of(table) for term in self.terms]
        found = [term.aggregate(runs[term.histogram], ends) for term in self.terms]
        terms = list(map(multiply_integers, factors, found))
        bases = [read_integers(table.column(name)) for name in self.bases]
        multiples = [factor.of(table) for factor in self.multiples]
        score: Integers | int = 0 if self.base is None else read_integers(table.column(self.base))
        score = add_integers(score, form.evaluate(terms, bases, multiples))
        places, size, mine = read_integers(table.column(CANDIDATE_PLACE)), table.num_rows, None
        if self.varying:
            moved = [term.bound_moves(factor) for term, factor in zip(self.terms, factors, strict=True)]
            own = reduce(add_integers, moved) if self.form is None else form.bound_own(moved, multiples)
            mine = self.bound_unit_moves(spread_integers(own, size))
        return ScoredCandidates(table, places, spread_integers(score, size), mine)

    def bound_unit_moves(self, rows: Integers | int) -> Integers:
        """Return the sensitivity to one unit of candidates, given that to one row: at least one step."""
        return spread_integers(multiply_integers(np.maximum(np.atleast_1d(rows), 1), self.rows), 0)


def _count_dense(counted: HistogramQuery, ends: list[Thresholds], read: Reader) -> PrefixSums | None:
    """Count the column itself, if all thresholds are near each other."""
    if counted.column is None or not all(map(counted.can_compare, ends)):
        return None
    if (between := find_span(counted, ends)) is None:
        return None
    counts = count_column(read, counted.column, *between, counted.places)
    return None if counts is None else PrefixSums.dense(counts, between[0], counted.digits)


def _count_between(
    counted: HistogramQuery, terms: Sequence[ScoreTerm], found: Mapping[str, Thresholds], read: Reader
) -> ThresholdSums | None:
    """Count the rows of the column itself between arbitrary thresholds."""
    compared = [(found[name], after) for term in terms for name, after in term.compared]
    if counted.column is None or not read.room or not compared or any(t.clip is not None for t in terms):
        return None
    ends = [end for end, _ in compared]
    if not all(counted.can_compare(end) and len(end.values) for end in ends):
        return None
    if not counted.doubles and find_span(counted, ends) is None:
        return None
    counts = ThresholdCounts(SortedThresholds(compared, counted.doubles, counted.digits))
    counts.add_all(stream_column(read, counted.column, counted.doubles, counted.places))
    return counts.sums()


def _sum_between(
    counted: HistogramQuery, terms: Sequence[ScoreTerm], ends: list[Thresholds], read: Reader
) -> ClippedSums | None:
    """Sum the column itself, clipped at arbitrary thresholds."""
    if counted.column is None or not read.room or not all(t.clip is not None and not t.bounds for t in terms):
        return None
    if any(end.are_floats or end.scale for end in ends) or (between := find_span(counted, ends)) is None:
        return None
    if max(-between[0], between[1]) >= FARTHEST_SUMMED or counted.digits:
        return None
    sums = ClippedSums(ends, *between)
    sums.add_all(stream_column(read, counted.column, places=counted.places))
    return sums


def _sum_histogram(counted: HistogramQuery, table: pa.Table) -> PrefixSums:
    x, n = read_numbers(table.column("x")), read_integers(table.column("n"))
    v = read_integers(table.column("v")) if "v" in table.column_names else n
    order = np.argsort(x, kind="stable")
    return PrefixSums(x[order], accumulate(v[order]), accumulate(n[order]), counted.digits)


def spread_integers(v: Integers | int, size: int) -> Integers:
    """Return an array of numbers, or one number repeated ``size`` times."""
    if not isinstance(v, int):
        return v
    return np.full(size, v, dtype=np.int64 if abs(v) < _SAFE else object)


LEAST_PRUNED = 1 << 17
"""The candidates from which on few are scored; fewer are sooner scored all: 10,000 in 0.8 to 1.1 times the time."""
_GROUPS = 1 << 14
"""The most groups of neighbouring candidates that are near, or far, together."""
_CLOSE = 8
"""Neighbours are close up to this multiple of evenly spread thresholds' distance."""
_SLICES = 1 << 6
"""The most slices from which rows are concatenated, instead of taken one by one."""


@dataclass(frozen=True)
class PrunedCandidates:
    """Candidates of which only those near the best were scored: their gaps, the rate, and the exact utility of any."""

    table: pa.Table
    gaps: CandidateGaps
    rate: Fraction
    utility: Callable[[int], int]


@dataclass(frozen=True)
class CandidatePruning(FastRoute[PrunedCandidates]):
    """The candidates of a choice of ``top`` winners, with few of them scored; ``size`` is their number if known.

    The route exists for one count per candidate, of rows on one side of its threshold, times factors of one sign. It is not
    taken for few candidates, nor for several winners of unequal sensitivities, each of whose removals changes the others' scores.
    """

    scores: CandidateScores
    rates: ChoiceRates
    top: int = 1
    size: int | None = None

    def take(self, read: Reader, entropy: Entropy) -> PrunedCandidates | None:
        term, varying = self.scores.terms[0], self.scores.varying
        few = self.size is not None and self.size < LEAST_PRUNED
        unequal = self.top > 1 and varying and term.factor.column is not None
        known = None if few or unequal else group_countable(self.scores, read)
        if known is None:
            return None
        near: Nearness = EqualNearness(self.rates.equal, min(self.top, known.table.num_rows))
        ends = (known.least, known.most)
        one, other = (int(self.scores.bound_unit_moves(term.bound_moves(f))[0]) for f in ends)
        if varying and one != other:
            c = compute_spread(self.rates.unequal)
            if c is None:
                return None
            near = UnequalNearness(self.rates.unequal, self.rates.margin(known.table.num_rows), c)
        return CandidateCells(self.scores, known, bin_column(known.cells, read)).prune(near)


@dataclass(frozen=True)
class GroupedCandidates:
    """Candidates in groups of neighbours, with thresholds in close cells.

    Args:
        least, most: the ends of the candidates' factors.
        order: their permutation in the groups (None: the original order).
        lowest, highest: the cells of its thresholds.
        factors: the least and the greatest of each group.
    """

    table: pa.Table
    cells: ThresholdCells
    least: int
    most: int
    order: NDArray[np.intp] | None
    starts: NDArray[np.intp]
    lowest: NDArray[np.int64]
    highest: NDArray[np.int64]
    factors: tuple[Integers, Integers]

    @property
    def sizes(self) -> NDArray[np.intp]:
        """The number of candidates in each group."""
        return np.diff(self.starts, append=self.table.num_rows)

    @classmethod
    def of(cls, table: pa.Table, cells: ThresholdCells, factor: Integers) -> GroupedCandidates:
        """Group candidates, sorted by cells if they are unordered."""
        size, values = table.num_rows, cells.end.values
        together = (size - 1) // _GROUPS + 1
        starts, order = np.arange(0, size, together), None

        def find_ends() -> Iterator[NDArray[np.int64]]:
            ordered = values if order is None else values[order]
            for pick in (np.fmin, np.maximum):  # NaN is the greatest
                yield cells.of(Thresholds(pick.reduceat(ordered, starts), cells.end.scale))

        lowest, highest = find_ends()
        wide = highest - lowest > _CLOSE * (cells.cells.count // len(starts) + 1)
        if np.count_nonzero(wide) * _CLOSE > len(starts):
            order = np.argsort(cells.of(cells.end).astype(np.uint16), kind="stable")
        elif wide.any():
            alone = np.repeat(wide, together)[:size]
            alone[starts] = True
            starts = np.flatnonzero(alone)
        if wide.any():
            lowest, highest = find_ends()
        ordered = factor if order is None else factor[order]
        low, high = (pick.reduceat(ordered, starts) for pick in (np.minimum, np.maximum))
        ends = (int(low.min()), int(high.max()))
        return cls(table, cells, *ends, order, starts, lowest, highest, (low, high))


def group_countable(scores: CandidateScores, read: Reader) -> GroupedCandidates | None:
    """Group candidates with one count on one side of a threshold, times factors of one sign; None if the route isn't for them."""
    if not read.room or len(scores.terms) != 1 or scores.base is not None or scores.form is not None:
        return None
    term, counted = scores.terms[0], scores.histograms[0]
    if len(term.bounds) != 1 or term.bounds[0][0] == "=" or counted.column is None:
        return None
    table = read(scores.candidates)
    ends = scores.read_thresholds(table)
    if ends is None or table.num_rows < LEAST_PRUNED:
        return None
    op, column = term.bounds[0]
    end = ends[column]
    if end.missing is not None or not counted.can_compare(end):
        return None
    cells = ThresholdCells.between(counted, end, op in UP_TO_BOUND)
    if cells is None:
        return None
    factor = np.broadcast_to(term.factor.of(table), table.num_rows)
    known = GroupedCandidates.of(table, cells, factor)
    return None if known.least < 0 < known.most else known


@dataclass(frozen=True)
class CandidateCells:
    """Candidates, and their statistics as far as the cells determine them."""

    scores: CandidateScores
    known: GroupedCandidates
    cells: BinnedColumn

    @property
    def table(self) -> pa.Table:
        """The candidates in their original order."""
        return self.known.table

    def prune(self, near: Nearness) -> PrunedCandidates:
        rows, first, last = self._keep(near)
        found = self._score(take_rows(self.table, rows), first, last)
        whole = cache(lambda: self._score(self.table))
        all_gaps = cache(lambda: near.measure_all(whole().scores, whole().sensitivities))
        places, gaps, reach = near.measure(found.scores, found.sensitivities)

        def utility(i: int) -> int:
            at = int(np.searchsorted(rows, i))
            here = at < len(rows) and int(rows[at]) == i
            return int(found.scores[at] if here else whole().scores[i])

        size = self.table.num_rows
        held = CandidateGaps(size, gaps, rows[places], reach, lambda i: int(all_gaps()[i]))
        return PrunedCandidates(self.table, held, near.rate, utility)

    def _score(self, table: pa.Table, first: int = 0, last: int | None = None) -> ScoredCandidates:
        """Score candidates with thresholds in the cells from ``first`` up to before ``last``, by default in any."""
        ends = self._read_ends(table)
        run = self.cells.run(first, len(self.cells.counts) if last is None else last, *ends.values())
        return self.scores.score(table, ends, [run])

    def _read_ends(self, table: pa.Table) -> Mapping[str, Thresholds]:
        ends = self.scores.read_thresholds(table)
        assert ends is not None  # as those of all were
        return ends

    def _keep(self, near: Nearness) -> tuple[NDArray[np.intp], int, int]:
        """Return the candidates that may be near, by groups, and the cells of their thresholds."""
        known, corners = self.known, self._find_corners()
        moved = [self.scores.bound_unit_moves(self.scores.terms[0].bound_moves(f)) for f in known.factors]
        low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
        may = near.may_hold(GroupBounds(low, high, np.minimum(*moved), np.maximum(*moved), known.sizes))
        kept = np.flatnonzero(np.repeat(may, known.sizes))
        rows = kept if known.order is None else np.sort(known.order[kept])
        return rows, int(known.lowest[may].min()), int(known.highest[may].max()) + 1

    def _find_corners(self) -> list[Integers]:
        """Return numbers whose extremes bound the statistics of each group."""
        below = np.concatenate([[0], np.cumsum(self.cells.counts)])
        counts = [below[self.known.lowest], below[self.known.highest + 1]]
        if self.scores.terms[0].bounds[0][0] in BOUNDS_FROM_BELOW:
            counts = [below[-1] - n for n in counts]
        return [multiply_integers(f, n) for f in self.known.factors for n in counts]


def take_rows(table: pa.Table, rows: Integers) -> pa.Table:
    """Take some rows of a table, ascending: in slices, if they are contiguous."""
    starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    if len(starts) > _SLICES:
        return table.take(pa.array(rows))
    lengths = np.diff(starts, append=len(rows))
    return pa.concat_tables([table.slice(int(rows[s]), int(n)) for s, n in zip(starts, lengths, strict=True)])
