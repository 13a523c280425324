"""A private column in coarse cells, some of which are resolved into rows afterwards.

Counts for a million thresholds need as many places in memory, accessed at random. A few thousand cells of neighbouring
numbers fit the processor's cache, which takes half the time. The rows are kept with their cells, so that those of a few
cells can be resolved later. Nothing is read twice, so all counts are of the same rows. The cell is a monotone function
of the number, for rows and thresholds: below a threshold are all rows of the cells before its cell, and some of those
in it. Rows that exceed the memory limit are resolved as they arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.base import Reader
from dpsql.mechanisms.fast.column_counts import stream_column
from dpsql.mechanisms.fast.number_cells import (
    BLOCK_ROWS,
    IntegerCells,
    NumberCells,
    choose_double_cells,
    cut_blocks,
)
from dpsql.mechanisms.fast.threshold_counts import (
    SortedThresholds,
    ThresholdCounts,
    ThresholdSums,
    read_edges,
)
from dpsql.mechanisms.fast.thresholds import HistogramQuery, Thresholds, find_span

_CELL_BITS = 13
"""There are about ``2**_CELL_BITS`` cells, so that their counts fit a core's cache."""
_WAITING = 4
"""The most parts waiting to be counted, if they are not kept."""
_NUMBER = np.dtype(np.uint16)
"""The type of a stored cell, wide enough for all cells."""
_RESERVED = 15 << 20
"""The cells for which memory is allocated at once; unwritten pages take none.

They are a little less than 32 MiB, up to which glibc learns to keep freed memory. So the parts of a column are written
to those of the last one: new pages would take the kernel half of the counting time.
"""


@dataclass(frozen=True)
class ThresholdCells:
    """The public, cacheable cells of all thresholds of a column; ``after``: count rows at most a threshold, not below."""

    counted: HistogramQuery
    end: Thresholds
    after: bool
    cells: NumberCells

    @classmethod
    def between(cls, counted: HistogramQuery, end: Thresholds, after: bool) -> ThresholdCells | None:
        """Return the cells of thresholds; None if these can't be counted here."""
        cells: NumberCells
        if counted.doubles:
            cells = choose_double_cells(read_edges(end, after, True, 0), 1 << _CELL_BITS)
        else:
            ends = find_span(counted, [end])
            if ends is None:
                return None
            cells = IntegerCells(*ends, _CELL_BITS)
        return cls(counted, end, after, cells)

    def of(self, end: Thresholds) -> NDArray[np.int64]:
        """Return the cells of some of the thresholds."""
        return self.cells.of(read_edges(end, self.after, self.counted.doubles, self.counted.digits))


class BinnedColumn:
    """The cells of thresholds, with the number of rows in each, ``counts``."""

    def __init__(self, known: ThresholdCells) -> None:
        self._known = known
        self.counts = np.zeros(known.cells.count, dtype=np.int64)
        self._held: list[tuple[NDArray[Any], NDArray[np.uint16]]] = []
        self._room = np.empty(0, dtype=_NUMBER)
        self._all: ThresholdCounts | None = None
        self._numbers = np.empty(BLOCK_ROWS, dtype=np.int64)
        self._compared = np.empty(BLOCK_ROWS, dtype=known.cells.kind)

    def count(self, arrays: Iterator[NDArray[Any]], room: int) -> None:
        """Count arrays in other threads as this one fetches them, and keep up to ``room`` bytes."""
        waiting = deque[Future[Any]]()
        with ThreadPoolExecutor(1) as beside:
            for values in arrays:
                room -= values.nbytes + _NUMBER.itemsize * len(values)
                if room < 0 and self._all is None:
                    self._all = self._make_counts(self._known.end)
                    waiting += [beside.submit(self._all.add, part) for part, _ in self._held]
                    self._held.clear()
                if self._all is None:
                    self._held.append((values, self._reserve(len(values))))
                    waiting.append(beside.submit(self._count, *self._held[-1]))
                    continue
                waiting += (beside.submit(self._count, values), beside.submit(self._all.add, values))
                while len(waiting) > 2 * _WAITING:
                    waiting.popleft().result()
        for task in waiting:
            task.result()

    def _make_counts(self, end: Thresholds) -> ThresholdCounts:
        known, counted = self._known, self._known.counted
        return ThresholdCounts(SortedThresholds([(end, known.after)], counted.doubles, counted.digits))

    def _reserve(self, size: int) -> NDArray[np.uint16]:
        """Return space for the cells of ``size`` rows, in large pages."""
        if size > len(self._room):
            self._room = np.empty(max(size, _RESERVED), dtype=_NUMBER)
        mine, self._room = self._room[:size], self._room[size:]
        return mine

    def _count(self, values: NDArray[Any], numbers: NDArray[np.uint16] | None = None) -> None:
        """Count rows, and write their cells to ``numbers``."""
        start, known = 0, self._known.cells
        for part in cut_blocks(values):
            x = known.compared(part, self._compared[: len(part)])
            cells = known.number(x, self._numbers[: len(part)])
            self.counts += np.bincount(cells, minlength=len(self.counts))
            if numbers is not None:
                numbers[start : start + len(cells)] = cells
            start += len(cells)

    def run(self, first: int, last: int, end: Thresholds) -> ThresholdSums:
        """Sum the rows in cells from ``first`` up to before ``last`` on the requested side of thresholds."""
        if self._all is not None:
            return self._all.sums()
        counts = self._make_counts(end)

        def select(part: tuple[NDArray[Any], NDArray[np.uint16]]) -> NDArray[Any]:
            values, numbers = part
            # cells before the first wrap around, and so are after all
            return values[np.flatnonzero(numbers - _NUMBER.type(first) < last - first)]

        counts.add_parts(self._held, select, lambda part: len(part[0]))
        return counts.sums(int(self.counts[:first].sum()), int(self.counts[last:].sum()))


def bin_column(known: ThresholdCells, read: Reader, text: str) -> BinnedColumn | None:
    """Count the column ``text`` in cells; None if rows must stay in the engine."""
    if not read.room:
        return None
    made, counted = BinnedColumn(known), known.counted
    made.count(stream_column(read, text, counted.doubles, counted.places), 8 * read.room)
    return made
