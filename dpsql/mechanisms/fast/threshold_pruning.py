"""The candidates that a noisy threshold may find, separated by coarse counts from those far below it.

As for a choice (:mod:`dpsql.mechanisms.fast.candidate_pruning`), the counts of a few thousand cells bound the
statistics of some dozen neighbours at a time. Neighbours whose upper bounds are all far below the level are far; and
once enough neighbours reach it at their lower bounds, none after these is asked. The rest is scored exactly.

The law of the hits is that of all exact statistics: the coin of a far candidate has a probability proved here to be
below that of a rare one, and heads there are kept with the exact ratio (:func:`~dpsql.noise.selection.find_heads`).
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
from dpsql.mechanisms.fast.candidate_pruning import CandidateCells, group_countable, take_rows
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_PLACE, CandidateScores
from dpsql.mechanisms.fast.thresholds import bin_column
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import CandidateGaps, compute_reach
from dpsql.numerics.exact_numbers import Integers, add_integers, multiply_integers, read_integers


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

    The route exists for the same statistics as a choice's (:class:`~dpsql.mechanisms.fast.candidate_pruning.CandidatePruning`).

    Args:
        level: the noisy level that a statistic reaches, or may still be found below.
        rate: of the noise: the probability to be found is ``exp(-rate * short)``.
    """

    scores: CandidateScores
    level: int
    rate: Fraction
    most: int

    @property
    def queries(self) -> tuple[str, ...]:
        return self.scores.queries

    def claims(self, plain: Claim) -> Iterator[ClaimedText]:
        yield from self.scores.claims(plain)

    def take(self, read: Reader, entropy: Entropy) -> AskedCandidates | None:
        known, column = group_countable(self.scores, read), self.scores.histograms[0].column
        if known is None:
            return None
        assert column is not None
        cells = bin_column(known.cells, read, column)
        if cells is None:
            return None
        return _Cells(self.scores, known, cells, False).ask(self.level, self.rate, self.most)


class _Cells(CandidateCells):
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
