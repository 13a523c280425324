"""The few candidates that may win, found by rough counts.

Pruning: the number of rows at or above a threshold falls as the threshold rises. So the counts at the ends of a cell of
neighbouring integers (:mod:`dpsql.mechanisms.fast.binned_columns`) bound every candidate whose threshold is in it. Some
dozen neighbours at a time are bounded so; with the range of their factors, these are bounds of their utilities from both
sides. Candidates are far that would not be near the best at their upper bounds, were the best at its lower bound.

The law of the choice is the one that all exact utilities give. :class:`~dpsql.noise.selection.CandidateGaps` holds the
exact gaps of near candidates; of the others that they are farther than its reach, which is proved here; and the exact gap
of any that a draw falls on, for which every integer is counted. Far ones are proposed, or tossed for, with a chance no
smaller than theirs, and kept with the exact ratio. So rough counts only change the time that a choice takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.base import Claim, ClaimedText, Reader
from dpsql.mechanisms.fast import FastRoute
from dpsql.mechanisms.fast.binned_columns import BinnedColumn, bin_column
from dpsql.mechanisms.fast.candidate_scores import (
    BOUNDS_FROM_BELOW,
    UP_TO_BOUND,
    CandidateScores,
    PublicCandidates,
    ScoredCandidates,
    ScoreTerm,
)
from dpsql.mechanisms.fast.thresholds import Thresholds
from dpsql.mechanisms.selection.generalised_exponential import (
    ChoiceRates,
    EqualNearness,
    GroupBounds,
    Nearness,
    UnequalNearness,
    compute_spread,
)
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import FEW_CANDIDATES, CandidateGaps
from dpsql.numerics.exact_numbers import Integers, multiply_integers

_GROUPS = 1 << 14
"""The groups of neighbouring candidates that are near, or far, together: no more than so many."""
_CLOSE = 8
"""The multiple of evenly spread thresholds' distance up to which neighbours are still close."""
_SLICES = 1 << 6
"""The most slices of which rows are put together, rather than taken one by one."""


@dataclass(frozen=True)
class PrunedCandidates:
    """Candidates of which only those near the best were scored: their gaps, the rate, and the exact utility of any."""

    table: pa.Table
    gaps: CandidateGaps
    rate: Fraction
    utility: Callable[[int], int]


@dataclass(frozen=True)
class CandidatePruning(FastRoute[PrunedCandidates]):
    """The candidates of a choice of ``top`` winners, with as few of them scored as possible; ``size`` is their number if known.

    The route exists for one count per candidate, of rows on one side of its threshold, times factors of one sign. It is
    not taken where there are few candidates, nor where there are more doubles than may be held; nor for several winners
    of unequal sensitivities: each that leaves changes the others' scores.
    """

    scores: CandidateScores
    rates: ChoiceRates
    varying: bool
    top: int = 1
    size: int | None = None

    @property
    def queries(self) -> tuple[str, ...]:
        return self.scores.queries

    def claims(self, plain: Claim) -> Iterator[ClaimedText]:
        yield from self.scores.claims(plain)

    def take(self, read: Reader, entropy: Entropy) -> PrunedCandidates | None:
        term, counted = self.scores.terms[0], self.scores.histograms[0]
        few = self.size is not None and self.size < FEW_CANDIDATES
        unequal = self.top > 1 and self.varying and term.factor.column is not None
        found = None if few or unequal else read_countable(self.scores, read)
        if found is None:
            return None
        table, end = found.table, found.ends[term.bounds[0][1]]
        factor = np.broadcast_to(term.factor.of(table), table.num_rows)
        least, most = int(factor.min()), int(factor.max())
        if end.missing is not None or least < 0 < most or not counted.can_compare(end):
            return None
        near: Nearness = EqualNearness(self.rates.equal, min(self.top, table.num_rows))
        one, other = (int(self.scores.bound_unit_moves(term.bound_moves(f))[0]) for f in (least, most))
        if self.varying and one != other:
            c = compute_spread(self.rates.unequal)
            if c is None:
                return None
            near = UnequalNearness(self.rates.unequal, self.rates.margin(table.num_rows), c)
        assert counted.column is not None
        cells = bin_column(counted, end, term.bounds[0][0] in UP_TO_BOUND, read, counted.column)
        if cells is None:
            return None
        return CandidateCells(self.scores, table, end, factor, cells, self.varying).prune(near)


def read_countable(scores: CandidateScores, read: Reader) -> PublicCandidates | None:
    """Read candidates of one count each, of rows on one side of a threshold, and their thresholds; None of others, and of few."""
    if len(scores.terms) != 1 or scores.base is not None or scores.form is not None:
        return None
    bounds = scores.terms[0].bounds
    if len(bounds) != 1 or bounds[0][0] == "=" or scores.histograms[0].column is None:
        return None
    found = scores.read_candidates(read)
    return None if found is None or found.table.num_rows < FEW_CANDIDATES else found


@dataclass(frozen=True)
class CandidateCells:
    """Candidates, and their statistic as far as the cells determine it."""

    scores: CandidateScores
    table: pa.Table
    end: Thresholds
    factor: Integers
    cells: BinnedColumn
    varying: bool

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

    @property
    def _after(self) -> bool:
        """True where rows at most a threshold are asked for, not those below it."""
        return self._term.bounds[0][0] in UP_TO_BOUND

    @property
    def _together(self) -> int:
        """The candidates of one group."""
        return (int(self.table.num_rows) - 1) // _GROUPS + 1

    def _score(self, table: pa.Table, first: int, last: int) -> ScoredCandidates:
        """Score candidates whose thresholds are in the cells from ``first`` up to before ``last``."""
        ends = self.scores.read_thresholds(table)
        assert ends is not None  # as those of all were
        run = self.cells.run(first, last, ends[self._term.bounds[0][1]], self._after)
        return self.scores.score(table, ends, [run], self.varying)

    def _group(self) -> CandidateGroups:
        """Group neighbours with thresholds in close cells; unordered candidates are sorted by cells before."""
        size = self.table.num_rows
        starts = np.arange(0, size, self._together)
        found = self._bound_groups(None, starts)
        wide = found.highest - found.lowest > _CLOSE * (len(self.cells.counts) // len(starts) + 1)
        if np.count_nonzero(wide) * _CLOSE > len(starts):
            order = np.argsort(self._find_cells(self.end).astype(np.uint16), kind="stable")
            return self._bound_groups(order, starts)
        if not wide.any():
            return found
        alone = np.repeat(wide, self._together)[:size]
        alone[starts] = True
        return self._bound_groups(None, np.flatnonzero(alone))

    def _find_cells(self, end: Thresholds) -> NDArray[np.int64]:
        return self.cells.of(end, self._after)

    def _bound_groups(self, order: NDArray[np.intp] | None, starts: NDArray[np.intp]) -> CandidateGroups:
        values = self.end.values if order is None else self.end.values[order]
        ends = (pick.reduceat(values, starts) for pick in (np.fmin, np.maximum))  # NaN is the greatest
        return CandidateGroups(
            order, starts, *(self._find_cells(Thresholds(v, self.end.scale)) for v in ends)
        )

    def _keep(self, near: Nearness) -> tuple[NDArray[np.intp], int, int]:
        """Return the candidates that may be near, groups at a time, and the cells of their thresholds."""
        groups = self._group()
        order, starts, lowest, highest = groups.order, groups.starts, groups.lowest, groups.highest
        factor = self.factor if order is None else self.factor[order]
        factors, corners = self._find_corners(groups, factor)
        moved = [self.scores.bound_unit_moves(self._term.bound_moves(f)) for f in factors]
        low, high = np.minimum.reduce(corners), np.maximum.reduce(corners)
        sizes = np.diff(starts, append=len(factor))
        may = near.may_hold(GroupBounds(low, high, np.minimum(*moved), np.maximum(*moved), sizes))
        kept = np.flatnonzero(np.repeat(may, sizes))
        rows = kept if order is None else np.sort(order[kept])
        return rows, int(lowest[may].min()), int(highest[may].max()) + 1

    def _find_corners(
        self, groups: CandidateGroups, factor: Integers
    ) -> tuple[list[Integers], list[Integers]]:
        """Return the least and greatest factors of groups, and numbers between whose extremes their statistics are."""
        below = np.concatenate([[0], np.cumsum(self.cells.counts)])
        counts = [below[groups.lowest], below[groups.highest + 1]]
        if self._term.bounds[0][0] in BOUNDS_FROM_BELOW:
            counts = [below[-1] - n for n in counts]
        factors = [pick.reduceat(factor, groups.starts) for pick in (np.minimum, np.maximum)]
        return factors, [multiply_integers(f, n) for f in factors for n in counts]


@dataclass(frozen=True)
class CandidateGroups:
    """Candidates in an order (None: as they came), the start of each group, and the cells of its thresholds."""

    order: NDArray[np.intp] | None
    starts: NDArray[np.intp]
    lowest: NDArray[np.int64]
    highest: NDArray[np.int64]


def take_rows(table: pa.Table, rows: Integers) -> pa.Table:
    """Take some rows of a table, ascending: in slices, where they stand together."""
    starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    if len(starts) > _SLICES:
        return table.take(pa.array(rows))
    lengths = np.diff(starts, append=len(rows))
    return pa.concat_tables([table.slice(int(rows[s]), int(n)) for s, n in zip(starts, lengths, strict=True)])
