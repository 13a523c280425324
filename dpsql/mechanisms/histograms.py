"""Distinct counts, distinct sums and binned counts, from an exact histogram of each group, with discrete Laplace noise.

Relation: ADD_REMOVE. Guarantee: epsilon-DP. The caller must bound a unit to ``rows`` rows in each of ``groups`` groups by
rules that use that unit alone, and choose bins without the data. Sensitivity in each group:

* ``COUNT(DISTINCT x)``: ``rows`` values.
* ``SUM(DISTINCT x)``: a unit adds at most ``rows`` values that are missing without it, and removes none. So it moves the
  sum by at most that of the largest ``rows`` values above 0, or of the least below 0 (:func:`bound_distinct_sum`). Values
  are clamped to a public grid here.
* ``HISTOGRAM(x)``: ``rows`` in L1 over all bins. It is charged as noise on one bin per group if a unit has one row there,
  else as pure epsilon.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Answered, Group, Part, find_rows
from dpsql.mechanisms.base import ClaimedText, ErrorBasis, ExpectedError, Reader, RouteClaim, RowsClaim
from dpsql.mechanisms.fast.column_counts import ColumnCounts, NumberRows
from dpsql.mechanisms.moments import Count, Sum
from dpsql.mechanisms.per_group import LaplaceNoise, Statistic
from dpsql.mechanisms.unit_parts import read_distinct
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import Integers, make_values, read_integers, to_integers
from dpsql.privacy.events import Event, PureDP


class _NoisyNumber(Part):
    """A part whose column is one count or sum."""

    name: str
    noise: LaplaceNoise
    confidence: float
    by_group = True

    @property
    @abstractmethod
    def _output(self) -> Count | Sum: ...

    @property
    def event(self) -> Event:
        return self.noise.event

    @property
    def can_redraw(self) -> bool:
        return self._output.shows_integers

    def redraw(self, released: pa.Table) -> Mapping[str, pa.Array]:
        return self._show(read_integers(released.column(self.name)))

    def _release(self, exact: Sequence[int], entropy: Entropy) -> Answered:
        return Answered(self._show(self.noise.add(to_integers(exact), entropy)), self.event)

    def _show(self, noisy: Integers) -> Mapping[str, pa.Array]:
        output = self._output
        return output.show({output.statistic: noisy}, self.confidence).columns(self.name)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return self._output.sentences(confidence)

    def errors(self, basis: ErrorBasis) -> Iterator[ExpectedError]:
        return self._output.errors(basis)


@dataclass(frozen=True)
class DistinctCount(_NoisyNumber):
    """One released column; ``query`` returns the keys and the exact number ``n`` of each group with rows."""

    query: str
    keys: tuple[str, ...]
    name: str
    noise: LaplaceNoise
    confidence: float = 0.95
    in_all: bool = False
    """Whether the noise's sensitivity covers all groups together."""
    parts: str = field(default="", compare=False, repr=False)
    """``query`` over some of the values (:mod:`~dpsql.mechanisms.unit_parts`); empty if it has no such form."""
    probe: str = field(default="", compare=False, repr=False)
    """About how many values there are, ``n``."""

    @property
    def _output(self) -> Count:
        return Count(self.name, Statistic("n", self.noise))

    def claims(self) -> Iterator[ClaimedText]:
        rows, groups = self.noise.sensitivity, self.noise.groups
        claim = RowsClaim(rows, groups, self.keys, moves=(("n", 1),), in_all=self.in_all)
        yield ClaimedText(self.query, claim)
        if self.parts:
            yield ClaimedText(self.probe, RouteClaim())

    def read_exact(self, read: Reader, entropy: Entropy) -> pa.Table:
        if not self.parts:
            return read(self.query)
        return read_distinct(read, self.query, self.probe, self.parts, entropy)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        counts = read_integers(table.column("n"))
        rows = find_rows(table, self.keys, groups)
        return self._release([sum(map(int, counts[own])) for own in rows], entropy)


BIN, BIN_ROWS = "bin", "n"
"""Columns of the query: the place of a bin, from 0, and the number of rows in it."""
EACH_BIN = ", each bin"
"""The note on the error of a histogram's counts."""


def count_bins(table: pa.Table, keys: tuple[str, ...], groups: list[Group], bins: int) -> NDArray[np.int64]:
    """Return the exact rows of each group in each bin."""
    places, counts = (read_integers(table.column(name)).astype(np.int64) for name in (BIN, BIN_ROWS))
    exact = np.zeros((len(groups), bins), dtype=np.int64)
    for own, rows in zip(exact, find_rows(table, keys, groups), strict=True):
        np.add.at(own, places[rows], counts[rows])
    return exact


@dataclass(frozen=True)
class Histogram(Part):
    """One released column, a list of ``bins`` noisy counts; ``query`` returns keys, :data:`BIN` and :data:`BIN_ROWS`."""

    query: str
    keys: tuple[str, ...]
    name: str
    bins: int
    noise: LaplaceNoise
    in_all: bool = False
    """Whether the noise's sensitivity covers all groups together."""

    by_group = True

    @property
    def event(self) -> Event:
        return self.noise.event if self.noise.sensitivity == 1 else PureDP(self.noise.epsilon)

    def claims(self) -> Iterator[ClaimedText]:
        rows, groups = self.noise.sensitivity, self.noise.groups
        claim = RowsClaim(rows, groups, self.keys, moves=((BIN_ROWS, 1),), in_all=self.in_all)
        yield ClaimedText(self.query, claim)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        exact = count_bins(table, self.keys, groups, self.bins)
        noisy = self.noise.add(exact.reshape(-1), entropy)
        lists = [[int(v) for v in row] for row in noisy.reshape(exact.shape)]
        return Answered({self.name: make_values(lists, pa.list_(pa.int64()))}, self.event)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        noise = self.noise.sentence(confidence)
        return (f"{self.name}: the count of each of {self.bins} bins with {noise}.",)

    def errors(self, basis: ErrorBasis) -> Iterator[ExpectedError]:
        yield ExpectedError(self.name, basis.of(self.noise), condition=EACH_BIN)


GRID_STEP, STEP_ROWS = "value", "count"
"""Columns of the histogram: a grid step, and the number of rows that have it (NULL or 0 in a group without any)."""


def bound_distinct_sum(
    rows: int, low: int, high: int, values: Sequence[int] | None = None, spread: bool = False
) -> int:
    """Return how far ``rows`` additional values can move a sum of distinct values.

    Args:
        rows: the most additional values.
        low, high: the least and the greatest possible integer, unless ``values`` lists them.
        values: the only possible values.
        spread: whether they may be in as many groups, whose changes are added up.

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
    first = max(1, low, high - rows + 1)
    return (first + high) * (high - first + 1) // 2 if high >= first else 0


@dataclass(frozen=True)
class DistinctSum(_NoisyNumber):
    """One released column, the noisy sum of the distinct values of each group.

    Args:
        query: returns the keys, :data:`GRID_STEP` and ``STEP_ROWS``, a row per group and value.
        low, high: the ends of the grid, to which values are clamped.
        noise: of the sum, in grid steps; its sensitivity is at least that of :func:`bound_distinct_sum`.
        values: the only values that count, in grid steps (None: all between the ends).
        in_all: whether ``rows`` covers all groups together: each row may then add the largest value to another group.
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
            raise ValueError(
                "a sum of distinct values needs a grid, and noise for its sensitivity to one unit"
            )

    @property
    def _output(self) -> Sum:
        return Sum(self.name, Statistic(self.name, self.noise), self.steps)

    def claims(self) -> Iterator[ClaimedText]:
        moves = ((STEP_ROWS, 1),)
        claim = RowsClaim(self.rows, self.noise.groups, self.keys, moves=moves, in_all=self.in_all)
        yield ClaimedText(self.query, claim)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        values, counts = read_integers(table.column(GRID_STEP)), read_integers(table.column(STEP_ROWS))
        rows = find_rows(table, self.keys, groups)
        return self._release([self._add(values[own], counts[own]) for own in rows], entropy)

    def _add(self, values: Integers, counts: Integers) -> int:
        present = set(np.unique(np.clip(values[counts > 0], self.low, self.high)).tolist())
        return sum(present if self.values is None else present.intersection(self.values))


StepHistogram = tuple[Integers, Integers]
"""Distinct grid steps of one group, ascending, and the rows that have each."""


class SteppedPart(Part):
    """A part over the number of rows at each step of a public grid, by SQL or counted in this process.

    ``query`` returns the keys, :data:`GRID_STEP` and ``STEP_ROWS``, one row per group and distinct value. ``column`` returns
    :data:`GRID_STEP` of every row if nothing is grouped: not yet clamped, NULL if missing. It returns doubles if there is a
    :attr:`number`.
    """

    low: int
    high: int
    rows: int
    groups: int
    in_all: bool
    column: str | None

    @property
    def column_route(self) -> ColumnCounts | None:
        return None if self.column is None else ColumnCounts(self.column, self.low, self.high, self.number)

    @property
    def number(self) -> NumberRows | None:
        """Maps the column's doubles to grid steps; None if it has grid steps."""
        return None

    def claims(self) -> Iterator[ClaimedText]:
        claim = RowsClaim(self.rows, self.groups, self.keys, in_all=self.in_all)
        yield ClaimedText(self.query, replace(claim, moves=((STEP_ROWS, 1),)))
        if self.column_route is not None:
            yield self.column_route.claim(claim)

    def read_steps(self, table: pa.Table, groups: list[Group]) -> Iterator[StepHistogram]:
        """Yield the histogram of each group, within the grid."""
        values, counts = read_integers(table.column(GRID_STEP)), read_integers(table.column(STEP_ROWS))
        for rows in find_rows(table, self.keys, groups):
            yield _read_histogram(values[rows], counts[rows], self.low, self.high)


def _read_histogram(values: Integers, counts: Integers, low: int, high: int) -> StepHistogram:
    held = counts > 0
    v, c = np.clip(values[held], low, high).astype(np.int64), counts[held]
    if len(v) and not bool((v[1:] > v[:-1]).all()):
        order = np.argsort(v, kind="stable")
        v, c = v[order], c[order]
        v, first = np.unique(v, return_index=True)
        c = np.add.reduceat(c, first)
    return v, c
