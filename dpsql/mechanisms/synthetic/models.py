"""Models of synthetic rows: the releases that one is fitted to, its size, and the fit by the package ``mbi``.

This module stands apart from :mod:`~dpsql.mechanisms.synthetic.rounds` since everything here is public (sizes of domains, noisy
counts and their sums): it imports no engine, query or operator, so it never sees a private row. The package is an extra, imported
when a model is fitted.

Source: McKenna, Sheldon, Miklau, *Graphical-model based estimation and inference for differential privacy*, ICML 2019.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, combinations
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass

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


PACKAGE, MAJOR = "mbi", "2"
ITERATIONS = 2_000
"""The most steps of the fit, which ends earlier once it converges."""
_TOLERANCE = 1e-9
MAX_COUNTED = 200_000
"""The most model rows that are counted instead of its cells, if these are too many."""
MAX_JOINT = 1 << 20
"""The most cells of the joint distribution that are kept in memory."""


def require_package() -> None:
    """Import the package before payment; ImportError if it is missing, or has another interface."""
    _import()
    version = importlib.metadata.version(PACKAGE)
    if version.partition(".")[0] != MAJOR:
        raise ImportError(f"{PACKAGE} {version} is installed, and {MAJOR}.x is needed.")


def _import() -> Any:
    """Import the package without its warnings about settings that each fit makes here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(PACKAGE)


@contextmanager
def _in_doubles() -> Iterator[None]:
    """Compute in doubles within the block: single precision stalls above some 100,000 rows."""
    jax = importlib.import_module("jax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with jax.enable_x64(True):
            yield


@dataclass(frozen=True)
class GraphicalModel:
    """A fitted model: the distribution of largest entropy among those nearest to the releases."""

    sizes: tuple[int, ...]
    fitted: Any
    total: int

    @cached_property
    def _joint(self) -> NDArray[np.float64] | None:
        """All cells, if they are few: summing these is faster than computing marginals."""
        if math.prod(self.sizes) > MAX_JOINT:
            return None
        names = tuple(_name(i) for i in range(len(self.sizes)))
        with _in_doubles():
            factor = self.fitted.project(names).transpose(names)
            return np.asarray(factor.datavector(), dtype=np.float64).reshape(self.sizes)

    def project(self, columns: MarginalColumns) -> NDArray[np.float64]:
        if self._joint is None:
            return self._count(columns)
        others = tuple(i for i in range(len(self.sizes)) if i not in columns)
        return np.asarray(self._joint.sum(axis=others).ravel())

    @cached_property
    def _drawn(self) -> NDArray[np.int64]:
        return self.draw_rows(min(self.total, MAX_COUNTED))

    def _count(self, columns: MarginalColumns) -> NDArray[np.float64]:
        """Count rows of the model, since a sum over a large model is compiled anew for each marginal."""
        place = np.ravel_multi_index(tuple(self._drawn[:, columns].T), [self.sizes[i] for i in columns])
        counted = np.bincount(place, minlength=math.prod(self.sizes[i] for i in columns))
        return np.asarray(counted * np.float64(self.total / len(self._drawn)))

    def draw_rows(self, rows: int) -> NDArray[np.int64]:
        with _in_doubles():
            data = self.fitted.synthetic_data(rows=rows, method="round").to_dict()
        return np.stack([np.asarray(data[_name(i)], dtype=np.int64) for i in range(len(self.sizes))], axis=1)


@dataclass(frozen=True)
class GraphicalFitter:
    """Fits by mirror descent."""

    def fit(self, sizes: tuple[int, ...], released: Sequence[ReleasedMarginal], total: int) -> Model:
        mbi = _import()
        with _in_doubles():
            domain = mbi.Domain([_name(i) for i in range(len(sizes))], list(sizes))
            given = [
                mbi.LinearMeasurement(
                    np.asarray(marginal.counts, dtype=np.float64),
                    tuple(map(_name, marginal.columns)),
                    stddev=marginal.deviation,
                )
                for marginal in released
            ]
            fitted = mbi.estimation.MirrorDescent().estimate(
                domain, given, known_total=float(total), iters=ITERATIONS, tol=_TOLERANCE
            )
        return GraphicalModel(sizes, fitted, total)


def _name(place: int) -> str:
    return f"c{place:04d}"
