"""The few candidates that may win, or may be found by a noisy threshold, from coarse counts.

The number of rows at or above a threshold is non-increasing in the threshold. So the counts at the ends of a cell of
neighbouring integers (:mod:`dpsql.mechanisms.fast.thresholds`) bound the statistics of every candidate with a threshold in
it, some dozen neighbours at a time; with the range of their factors, they bound the utilities from both sides.

*Choices.* Candidates are far if they would not be near the best even at their upper bounds, with the best at its lower
bound. The law of the choice is that of all exact utilities: :class:`~dpsql.noise.selection.CandidateGaps` has the exact
gaps of near candidates; that the others' exceed its reach, which is proved here; and the exact gap of any that is drawn, for
which every integer is counted. Far ones are proposed with at least their probability and accepted with the exact ratio.

*Thresholds.* Neighbours whose upper bounds are all far below the level are far; once enough neighbours reach it at their
lower bounds, none after these is asked. The law of the hits is that of all exact statistics: the coin of a far candidate has
a probability proved here to be below that of a rare one, and heads there are kept with the exact ratio
(:func:`~dpsql.noise.selection.find_heads`).

So coarse counts only change the time of a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.base import Reader
from dpsql.mechanisms.fast import FastRoute
from dpsql.mechanisms.fast.candidate_scores import (
    BOUNDS_FROM_BELOW,
    CANDIDATE_PLACE,
    UP_TO_BOUND,
    CandidateScores,
    ScoredCandidates,
    ScoreTerm,
)
from dpsql.mechanisms.fast.thresholds import BinnedColumn, ThresholdCells, Thresholds, bin_column
from dpsql.mechanisms.selection.generalised_exponential import (
    ChoiceRates,
    EqualNearness,
    GroupBounds,
    Nearness,
    UnequalNearness,
    compute_spread,
)
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import FEW_CANDIDATES, CandidateGaps, compute_reach
from dpsql.numerics.exact_numbers import Integers, add_integers, multiply_integers, read_integers

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

    The route exists for one count per candidate, of rows on one side of its threshold, times factors of one sign. It is
    not taken for few candidates, for more doubles than fit memory, nor for several winners of unequal sensitivities:
    each winner's removal changes the others' scores.
    """

    scores: CandidateScores
    rates: ChoiceRates
    top: int = 1
    size: int | None = None

    def take(self, read: Reader, entropy: Entropy) -> PrunedCandidates | None:
        term, varying = self.scores.terms[0], self.scores.varying
        few = self.size is not None and self.size < FEW_CANDIDATES
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
class AskedCandidates:
    """The relevant candidates in asking order, with their distances below the level.

    Args:
        short: by index in that order; at most 0 if the level is reached.
        row_of: returns the row of the table at an index.
        score_of: returns the exact statistic at an index.
    """

    table: pa.Table
    level: int
    short: CandidateGaps
    row_of: Callable[[int], int]
    score_of: Callable[[int], int]


@dataclass(frozen=True)
class ThresholdPruning(FastRoute[AskedCandidates]):
    """The candidates that are compared with one level, with few of them scored.

    The route exists for the same statistics as a choice's (:class:`CandidatePruning`).

    Args:
        level: the noisy level that a statistic reaches, or may still be found below.
        rate: of the noise: the probability to be found is ``exp(-rate * short)``.
    """

    scores: CandidateScores
    level: int
    rate: Fraction
    most: int

    def take(self, read: Reader, entropy: Entropy) -> AskedCandidates | None:
        known = group_countable(self.scores, read)
        if known is None:
            return None
        cells = CandidateCells(self.scores, known, bin_column(known.cells, read))
        return cells.ask(self.level, self.rate, self.most)


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
    """Group candidates with one count each, on one side of a threshold, times factors of one sign.

    None for others, for few candidates, for incomparable types, and if rows must stay in the engine.
    """
    if not read.room or len(scores.terms) != 1 or scores.base is not None or scores.form is not None:
        return None
    term, counted = scores.terms[0], scores.histograms[0]
    if len(term.bounds) != 1 or term.bounds[0][0] == "=" or counted.column is None:
        return None
    found = scores.read_candidates(read)
    if found is None or found.table.num_rows < FEW_CANDIDATES:
        return None
    op, column = term.bounds[0]
    end = found.ends[column]
    if end.missing is not None or not counted.can_compare(end):
        return None
    cells = ThresholdCells.between(counted, end, op in UP_TO_BOUND)
    if cells is None:
        return None
    factor = np.broadcast_to(term.factor.of(found.table), found.table.num_rows)
    known = GroupedCandidates.of(found.table, cells, factor)
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
        whole = cache(lambda: self._score(self.table, 0, len(self.cells.counts)))
        all_gaps = cache(lambda: near.measure_all(whole().scores, whole().sensitivities))
        places, gaps, reach = near.measure(found.scores, found.sensitivities)

        def utility(i: int) -> int:
            at = int(np.searchsorted(rows, i))
            here = at < len(rows) and int(rows[at]) == i
            return int(found.scores[at] if here else whole().scores[i])

        size = self.table.num_rows
        held = CandidateGaps(size, gaps, rows[places], reach, lambda i: int(all_gaps()[i]))
        return PrunedCandidates(self.table, held, near.rate, utility)

    @property
    def _term(self) -> ScoreTerm:
        return self.scores.terms[0]

    def _score(self, table: pa.Table, first: int, last: int) -> ScoredCandidates:
        """Score candidates whose thresholds are in the cells from ``first`` up to before ``last``."""
        ends = self.scores.read_thresholds(table)
        assert ends is not None  # as those of all were
        run = self.cells.run(first, last, ends[self._term.bounds[0][1]])
        return self.scores.score(table, ends, [run])

    def _keep(self, near: Nearness) -> tuple[NDArray[np.intp], int, int]:
        """Return the candidates that may be near, by groups, and the cells of their thresholds."""
        known, corners = self.known, self._find_corners()
        moved = [self.scores.bound_unit_moves(self._term.bound_moves(f)) for f in known.factors]
        low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
        may = near.may_hold(GroupBounds(low, high, np.minimum(*moved), np.maximum(*moved), known.sizes))
        kept = np.flatnonzero(np.repeat(may, known.sizes))
        rows = kept if known.order is None else np.sort(known.order[kept])
        return rows, int(known.lowest[may].min()), int(known.highest[may].max()) + 1

    def _find_corners(self) -> list[Integers]:
        """Return numbers whose extremes bound the statistics of each group."""
        below = np.concatenate([[0], np.cumsum(self.cells.counts)])
        counts = [below[self.known.lowest], below[self.known.highest + 1]]
        if self._term.bounds[0][0] in BOUNDS_FROM_BELOW:
            counts = [below[-1] - n for n in counts]
        return [multiply_integers(f, n) for f in self.known.factors for n in counts]

    def ask(self, level: int, rate: Fraction, most: int) -> AskedCandidates:
        """Score the candidates near or above the level, among the first ones of which ``most`` certainly reach it."""
        order, near, size = self._find_near(level, compute_reach(rate), most)
        rows = near if order is None else order[near]
        whole = cache(lambda: self._score(self.table, 0, len(self.cells.counts)).scores)
        scores = self._score_rows(rows)

        def row_of(place: int) -> int:
            return place if order is None else int(order[place])

        def score_of(place: int) -> int:
            at = int(np.searchsorted(near, place))
            here = at < len(near) and int(near[at]) == place
            return int(scores[at] if here else whole()[row_of(place)])

        def short_of(place: int) -> int:
            return level - score_of(place)

        short = np.asarray(add_integers(multiply_integers(scores, -1), level))
        field = CandidateGaps(size, short, near, compute_reach(rate), short_of)
        return AskedCandidates(self.table, level, field, row_of, score_of)

    def _find_near(
        self, level: int, reach: int, most: int
    ) -> tuple[NDArray[np.intp] | None, NDArray[np.intp], int]:
        """Find the candidates that may be within ``reach`` of the level, or above.

        Returns:
            The rows in asking order (None: original order), the indices there of those candidates, and the number of
            indices after which ``most`` have certainly reached the level.
        """
        known, corners = self.known, self._find_corners()
        places = read_integers(self.table.column(CANDIDATE_PLACE))
        order = None if bool((places[1:] > places[:-1]).all()) else np.argsort(places, kind="stable")

        def spread(of_groups: NDArray[np.bool_]) -> NDArray[np.intp]:
            """Return the indices of all candidates of some groups."""
            if not of_groups.any():
                return np.zeros(0, dtype=np.intp)
            held = np.repeat(of_groups, known.sizes)
            rows = np.empty(len(held), dtype=bool)
            rows[slice(None) if known.order is None else known.order] = held
            return np.flatnonzero(rows if order is None else rows[order])

        size = self.table.num_rows
        sure = spread(np.asarray(np.minimum.reduce(corners) >= level))
        if len(sure) >= most:
            size = int(sure[most - 1]) + 1
        near = spread(np.asarray(np.maximum.reduce(corners) >= level - reach))
        return order, near[: np.searchsorted(near, size)], size

    def _score_rows(self, rows: NDArray[np.intp]) -> Integers:
        if not len(rows):
            return np.zeros(0, dtype=np.int64)
        ascending = np.sort(rows)
        table = take_rows(self.table, ascending)
        ends = self.scores.read_thresholds(table)
        assert ends is not None  # as those of all were
        cells = self.known.cells.of(ends[self._term.bounds[0][1]])
        found = self._score(table, int(cells.min()), int(cells.max()) + 1).scores
        return found[np.searchsorted(ascending, rows)]


def take_rows(table: pa.Table, rows: Integers) -> pa.Table:
    """Take some rows of a table, ascending: in slices, if they are contiguous."""
    starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    if len(starts) > _SLICES:
        return table.take(pa.array(rows))
    lengths = np.diff(starts, append=len(rows))
    return pa.concat_tables([table.slice(int(rows[s]), int(n)) for s, n in zip(starts, lengths, strict=True)])
