"""The releases that a model of synthetic rows is fitted to, and the shape of such a model.

Everything here is public: sizes of domains, noisy counts, and their sums. A fit gets nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, combinations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

MarginalColumns = tuple[int, ...]
"""Indices of columns, ascending: a marginal over these."""

MAX_MARGINAL = 1 << 16
"""The most cells of a candidate marginal."""
MAX_CANDIDATE_CELLS = 1 << 24
"""The most cells of all candidate marginals together: their exact counts are kept during all rounds."""
MAX_MODEL = 1 << 21
"""The most cells of all cliques of a model: eight bytes each, several times over during a fit."""
MAX_MODEL_ROWS = 1 << 46
"""The most rows that a model represents: this many in each cell of a marginal add up within 64 bits."""
MAX_TOGETHER = 3
"""The most columns of a candidate marginal."""


@dataclass(frozen=True)
class ReleasedMarginal:
    """A noisy marginal: one count for each combination of its columns' values, the last column's varying fastest.

    ``columns`` are the indices of its columns; ``deviation`` is the standard deviation of each count's noise.
    """

    columns: MarginalColumns
    counts: tuple[int, ...]
    deviation: float


class Model(Protocol):
    """A distribution over all columns, fitted to releases."""

    def project(self, columns: MarginalColumns) -> NDArray[np.float64]:
        """Return the expected counts of a marginal's cells, in their order."""
        ...

    def draw_rows(self, rows: int) -> NDArray[np.int64]:
        """Return rows of the model, shape ``(rows, columns)``: each entry the index of a value in its domain."""
        ...


class Fitter(Protocol):
    """Fits models, given releases only."""

    def fit(self, sizes: tuple[int, ...], released: Sequence[ReleasedMarginal], total: int) -> Model:
        """Return the model of ``total`` rows (at least 1) nearest to the releases; ``sizes`` counts each column's values."""
        ...


def list_marginals(sizes: Sequence[int]) -> tuple[MarginalColumns, ...]:
    """Return the candidate marginals: of two and three columns, as far as their cells are not too many.

    If all together are too many, those of two columns precede those of three, and small ones large ones.

    >>> list_marginals((2, 3, 4))
    ((0, 1), (0, 2), (1, 2), (0, 1, 2))
    >>> list_marginals((2, 3, 60_000))
    ((0, 1),)
    """
    places = range(len(sizes))
    known = [c for n in range(2, MAX_TOGETHER + 1) for c in combinations(places, n)]
    cells = {c: math.prod(sizes[i] for i in c) for c in known}
    ordered = sorted((c for c in known if cells[c] <= MAX_MARGINAL), key=lambda c: (len(c), cells[c], c))
    upto = accumulate(cells[c] for c in ordered)
    found = (c for c, held in zip(ordered, upto, strict=True) if held <= MAX_CANDIDATE_CELLS)
    return tuple(sorted(found, key=lambda c: (len(c), c)))


def count_model_cells(sizes: Sequence[int], measured: Iterable[MarginalColumns]) -> int:
    """Count the cells of the cliques of a model of these marginals, by greedy elimination of columns.

    >>> count_model_cells((10, 10, 10), [(0, 1), (1, 2)]), count_model_cells((10, 10, 10), [(0, 1), (1, 2), (0, 2)])
    (210, 1110)
    """
    factors = {frozenset(columns) for columns in measured} | {frozenset([i]) for i in range(len(sizes))}
    left, cells = set(range(len(sizes))), 0

    def clique_of(column: int) -> frozenset[int]:
        return frozenset().union(*(factor for factor in factors if column in factor))

    while left:
        sized = {i: math.prod(sizes[j] for j in clique_of(i)) for i in left}
        best = min(sized, key=lambda i: (sized[i], i))
        clique = clique_of(best)
        cells += sized[best]
        factors = {factor for factor in factors if best not in factor} | {clique - {best}}
        left.remove(best)
    return cells


def estimate_total(singles: Sequence[ReleasedMarginal]) -> int:
    """Estimate the number of rows from released marginals of single columns: post-processing, from 1 to MAX_MODEL_ROWS.

    Each sum of a marginal's counts estimates it; weights are inverse to the numbers of cells, as the variances are
    proportional to these, in exact fractions.

    >>> estimate_total([ReleasedMarginal((0,), (4, 5), 1.0), ReleasedMarginal((1,), (1, 2, 3, 6), 1.0)])
    10
    """
    weights = [Fraction(1, len(marginal.counts)) for marginal in singles]
    sums = sum((w * sum(m.counts) for w, m in zip(weights, singles, strict=True)), Fraction(0))
    return min(max(1, round(sums / sum(weights))), MAX_MODEL_ROWS)
