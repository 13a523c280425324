"""The rows below each of many arbitrary thresholds, counted exactly as a column streams by.

For integer thresholds near each other, every integer is counted (:mod:`dpsql.mechanisms.fast.column_counts`). Otherwise
numbers are assigned to cells (:mod:`dpsql.mechanisms.fast.number_cells`), about as many as there are thresholds. In a
cell with one threshold, a row is below, at or above it: one look-up and a comparison or two. In a cell with several,
bisection finds a row's place among them, for a whole block of rows at once.

No row is kept. Values affect only the time for the few rows in crowded cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.fast.column_counts import COUNTING_THREADS, ThreadTallies, work_beside
from dpsql.mechanisms.fast.number_cells import (
    BLOCK_ROWS,
    IntegerCells,
    IntegerRungs,
    NumberCells,
    RungCells,
    choose_double_cells,
    cut_blocks,
)
from dpsql.mechanisms.fast.thresholds import Thresholds

_Part = TypeVar("_Part", bound=Sized)

Compared = tuple[Thresholds, bool]
"""Thresholds, and whether rows at most one are counted, instead of those below it."""

_LEAST_BITS, _CHEAP_BITS, _MOST_BITS = 13, 18, 21
"""The least and the most cells, and the number fast enough to look up to be tried if fewer are crowded."""
_FEW_ROWS = 1 << 19
"""The fewest rows counted at once: each time an array of all bins is made and added."""


def read_edges(end: Thresholds, after: bool, doubles: bool, digits: int) -> NDArray[Any]:
    """Return the doubles, or the integer edges, that rows are compared with."""
    return end.values.astype(np.float64, copy=False) if doubles else end.edge(digits, after)


class SortedThresholds:
    """Distinct thresholds in ascending order, their cells, and the places of the given ones.

    All of it is public, so it may be kept for other statements. Look-up tables are made only if the thresholds are no
    arithmetic sequence.

    ``doubles``: rows are doubles, otherwise integers whose last ``digits`` are decimal places.
    """

    cells: NumberCells
    ladder_start: int | None = None
    """The cell of the first threshold, if the cells after it have the others, one each, in order."""
    crowded: NDArray[np.bool_] | None = None
    """The cells with several thresholds; None if there are none."""
    first: NDArray[np.int64] | None = None
    """The number of thresholds in the cells before each, if some are crowded."""
    near: NDArray[Any] | None = None
    """The threshold of each cell, if it is looked up."""

    def __init__(self, ends: Sequence[Compared], doubles: bool, digits: int) -> None:
        self._doubles, self._digits, self.sides = doubles, digits, sorted({after for _, after in ends})
        found: list[NDArray[Any]] = []
        for edges in (read_edges(end, after, doubles, digits) for end, after in ends):
            if not any(np.array_equal(edges, known) for known in found):
                found.append(edges)
        self.values = _sort(found[0] if len(found) == 1 else np.concatenate(found))
        ladder = RungCells.of_rungs(self.values) if doubles else IntegerRungs.of_rungs(self.values)
        self.known, self.numbers, self.steps = self.values[:0], np.zeros(0, dtype=np.int64), list[int]()
        if ladder is not None:
            self.cells, self.ladder_start = ladder, int(ladder.of(self.values[:1])[0])
        else:
            self.cells, self.numbers = self._choose_cells()
            self._look_up()
        self._given: list[tuple[Thresholds, bool, NDArray[np.intp]]] = []
        self._most_given = sum(len(end.values) for end, _ in ends)

    def _choose_cells(self) -> tuple[NumberCells, NDArray[np.int64]]:
        """Choose about as many cells as thresholds, more if these are uneven, and return the thresholds' cells."""
        bits = min(max(_LEAST_BITS, (len(self.values) - 1).bit_length()), _MOST_BITS)
        most = min(max(bits + 1, _CHEAP_BITS), _MOST_BITS)
        while True:
            made = self._make_cells(bits)
            numbers = made.of(self.values)
            crowded = np.count_nonzero(numbers[1:] == numbers[:-1])
            if bits == most or crowded * (64 if bits < _CHEAP_BITS else 4) <= len(self.values):
                return made, numbers
            bits += 1

    def _make_cells(self, bits: int) -> NumberCells:
        if self._doubles:
            return choose_double_cells(self.values, 1 << bits)
        return IntegerCells(int(self.values[0]) - 1, int(self.values[-1]) + 1, bits)

    def _look_up(self) -> None:
        """Make the look-up tables of cells that are no arithmetic sequence."""
        known = self.cells.compared(self.values, np.empty(len(self.values), dtype=self.cells.kind))
        self.near = np.zeros(self.cells.count, dtype=self.cells.kind)
        self.near[self.numbers] = known
        each = np.bincount(self.numbers, minlength=self.cells.count)
        if bool((each > 1).any()):
            self.known, self.crowded = known, each > 1
            self.first = np.cumsum(each) - each  # the number of thresholds in the cells before
            self.steps = [1 << bit for bit in reversed(range(int(each.max()).bit_length()))]

    @property
    def nbytes(self) -> int:
        """The bytes in memory, once all places were requested."""
        held = [self.values, self.numbers, self.known, self.crowded, self.first, self.near]
        return sum(array.nbytes for array in held if array is not None) + 8 * self._most_given

    def place(self, end: Thresholds, after: bool) -> NDArray[np.intp]:
        """Return the indices of the sums below thresholds, or at most them (``after``). NULL: any."""
        for known, side, places in self._given:
            if known is end and side == after:
                return places
        places = self._find(read_edges(end, after, self._doubles, self._digits)) * len(self.sides)
        places += self.sides.index(after)
        self._given.append((end, after, places))
        return places

    def _find(self, edges: NDArray[Any]) -> NDArray[np.intp]:
        known = self.values
        first = int(np.searchsorted(known, edges[0])) if len(edges) else 0
        if np.array_equal(known[first : first + len(edges)], edges):  # all given thresholds, or some in order
            return np.arange(first, first + len(edges))
        if self.ladder_start is not None:
            return self.cells.of(edges) - self.ladder_start
        return np.searchsorted(known, edges)


class ThresholdSums:
    """The sums of rows below each threshold, or at most it, or both, in ascending order, and of all rows."""

    def __init__(self, thresholds: SortedThresholds, sums: NDArray[np.int64]) -> None:
        self._thresholds, self.sums = thresholds, sums

    @property
    def total(self) -> int:
        """The number of all rows."""
        return int(self.sums[-1])

    def place(self, end: Thresholds, after: bool) -> NDArray[np.intp]:
        """Return the indices of the sums below thresholds, or at most them (``after``). NULL: any."""
        return self._thresholds.place(end, after)


class _Tally:
    def __init__(self, bins: int, classes: int, kind: np.dtype[Any]) -> None:
        self._bins = np.zeros(bins, dtype=np.int64)
        self.classes = np.zeros(classes, dtype=np.int64)
        self.near = np.empty(BLOCK_ROWS, dtype=kind)
        self.held = np.empty(BLOCK_ROWS, dtype=kind)
        self._places = np.empty(max(2 * bins, _FEW_ROWS) + BLOCK_ROWS, dtype=np.int64)
        self._rows = 0

    @property
    def bins(self) -> NDArray[np.int64]:
        """The number of rows in each bin."""
        self.fold()
        return self._bins

    def fold(self) -> None:
        """Count the rows in the written bins."""
        self._bins += np.bincount(self._places[: self._rows], minlength=len(self._bins))
        self._rows = 0

    def places(self, size: int) -> NDArray[np.int64]:
        """Return space for the bins of ``size`` more rows, at most a block."""
        if self._rows + BLOCK_ROWS > len(self._places):
            self.fold()
        self._rows += size
        return self._places[self._rows - size : self._rows]


class ThresholdCounts:
    """Counts of rows between thresholds."""

    def __init__(self, thresholds: SortedThresholds) -> None:
        self._thresholds, self._cells, self._sides = thresholds, thresholds.cells, thresholds.sides
        self._tallies = ThreadTallies(self._make_tally)

    # -- counting ------------------------------------------------------------------------------------------------

    def add(self, values: NDArray[Any]) -> None:
        """Count rows; thread-safe."""
        with self._tallies.lend() as tally:
            for part in cut_blocks(values):
                self._add(part, tally)

    def add_all(self, arrays: Iterable[NDArray[Any]]) -> None:
        """Count all rows in other threads as this one fetches them."""
        self.add_parts(arrays, lambda values: values)

    def add_parts(
        self,
        parts: Iterable[_Part],
        select: Callable[[_Part], NDArray[Any]],
        count: Callable[[_Part], int] | None = None,
    ) -> None:
        """Count the selected rows of each part in other threads as this one fetches the parts; ``count`` counts all its rows."""
        work_beside(parts, lambda part: self.add(select(part)), COUNTING_THREADS, count)
        if len(self._tallies.all) > 1:
            with ThreadPoolExecutor(COUNTING_THREADS) as beside:
                list(beside.map(_Tally.fold, self._tallies.all))

    def _make_tally(self) -> _Tally:
        known = self._thresholds
        classes = 0 if known.crowded is None else 2 * len(known.values) + 1
        return _Tally(len(self._sides) * self._cells.count + 2, classes, self._cells.kind)

    def _add(self, part: NDArray[Any], tally: _Tally) -> None:
        size, known = len(part), self._thresholds
        x = self._cells.compared(part, tally.held[:size])
        cells = self._cells.number(x, tally.places(size))
        many: NDArray[np.intp] | None = None
        if known.crowded is not None:
            many = np.flatnonzero(known.crowded.take(cells))
            self._add_crowded(x[many], cells[many], tally)
        near = self._cells.near(cells, tally.near[:size])
        if near is None:
            assert known.near is not None
            near = known.near.take(cells, mode="clip", out=tally.near[:size])
        # Rows above a cell's threshold are counted with those below the next one's.
        index = cells if len(self._sides) == 1 else np.multiply(cells, 2, out=cells)
        for after in self._sides:
            if not after and self._cells.starts_with_threshold:
                index += 1
            else:
                index += (np.greater if after else np.greater_equal)(x, near)
        if many is not None:
            index[many] = len(self._sides) * self._cells.count + 1  # these are counted separately

    def _add_crowded(self, x: NDArray[Any], cells: NDArray[np.int64], tally: _Tally) -> None:
        """Count rows of cells with several thresholds: the number of these at most each row, and equality to the last."""
        known = self._thresholds.known
        assert self._thresholds.first is not None
        place, last = self._thresholds.first.take(cells), len(known) - 1
        for step in self._thresholds.steps:
            near = known.take(np.minimum(place + (step - 1), last))
            place += step * ((place + step <= last + 1) & (near <= x))
        at = (place > 0) & (known.take(np.maximum(place - 1, 0)) == x)
        np.add.at(tally.classes, 2 * place - at, 1)

    # -- sums ----------------------------------------------------------------------------------------------------

    def sums(self, below: int = 0, above: int = 0) -> ThresholdSums:
        """Return the sums, with ``below`` and ``above`` more rows below and above all thresholds."""
        known, count = self._thresholds, len(self._sides)
        bins = np.zeros(count * self._cells.count + 1, dtype=np.int64)
        for tally in self._tallies.all:
            bins += tally.bins[:-1]
        bins[0] += below
        np.cumsum(bins, out=bins)
        sums = self._pick(bins) if known.ladder_start is None else bins[count * known.ladder_start :]
        if known.crowded is not None:
            classes = np.zeros(2 * len(known.values) + 1, dtype=np.int64)
            for tally in self._tallies.all:
                classes += tally.classes
            np.cumsum(classes, out=classes)
            for place, after in enumerate(self._sides):
                sums[place:-1:count] += classes[after:-1:2]
            sums[-1] += classes[-1]
        sums[-1] += above
        return ThresholdSums(known, sums)

    def _pick(self, bins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums at thresholds, of the bins up to each, and that of all rows."""
        known, count = self._thresholds, len(self._sides)
        sums = np.empty(count * len(known.values) + 1, dtype=np.int64)
        for place, after in enumerate(self._sides):
            # A row below a threshold is on the first side of its cell, as is one at it unless another side is requested.
            sums[place:-1:count] = bins.take(known.numbers * count + place)
            if known.values[-1] != known.values[-1] and not after:
                # All rows of its cell are NaN: equal to it, though no comparison is true.
                sums[place - 1 - count] = bins[known.numbers[-1] * count - 1]
        sums[-1] = bins[-1]
        return sums


def _sort(values: NDArray[Any]) -> NDArray[Any]:
    """Return distinct values in ascending order, NaN last."""
    if bool((values[1:] > values[:-1]).all()):
        return values
    values = np.sort(values, kind="stable")  # merges ascending parts
    new = np.ones(len(values), dtype=bool)
    new[1:] = (values[1:] != values[:-1]) & (values[:-1] == values[:-1])
    return np.asarray(values[new])
