"""A private column in rough cells, of which the rows of some are told apart afterwards.

A count for each of a million thresholds wants as many places in memory, and every row goes to another of them. A few thousand
cells of neighbouring numbers stay in the processor's cache: half the time. The rows that came are held, so that those of
a few cells can be told apart afterwards. Nothing is read twice, so every count is of the same rows. A number's cell never
falls as the number grows, be it a row's or a threshold: below a threshold are all rows of the cells before its own, and
some of those in its own. Where more rows come than may be held, all are told apart as they come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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
    Compared,
    SortedThresholds,
    ThresholdCounts,
    ThresholdSums,
    read_edges,
)
from dpsql.mechanisms.fast.thresholds import HistogramQuery, Thresholds, find_span

_CELL_BITS = 13
"""There are about ``2**_CELL_BITS`` cells: their counts stay in a cache of the core."""
_WAITING = 4
"""Parts that wait to be counted, where they are not held."""


class BinnedColumn:
    """The cells of thresholds; ``counts`` holds the number of rows in each."""

    def __init__(self, counted: HistogramQuery, all_ends: Compared, cells: NumberCells) -> None:
        self._counted, self._all_ends, self._cells = counted, all_ends, cells
        self.counts = np.zeros(cells.count, dtype=np.int64)
        self._held: list[NDArray[Any]] = []
        self._all: ThresholdCounts | None = None
        self._numbers = np.empty(BLOCK_ROWS, dtype=np.int64)
        self._compared = np.empty(BLOCK_ROWS, dtype=cells.kind)

    @classmethod
    def between(cls, counted: HistogramQuery, end: Thresholds, after: bool) -> BinnedColumn | None:
        """Make the cells of thresholds; None where these can't be counted here."""
        cells: NumberCells
        if counted.doubles:
            cells = choose_double_cells(read_edges(end, after, True, 0), 1 << _CELL_BITS)
        else:
            ends = find_span(counted, [end])
            if ends is None:
                return None
            cells = IntegerCells(*ends, _CELL_BITS)
        return cls(counted, (end, after), cells)

    def count(self, arrays: Iterator[NDArray[Any]], room: int) -> None:
        """Count what comes, beside the thread that fetches it, and hold it as long as it is not more bytes than ``room``."""
        waiting = deque[Future[None]]()
        with ThreadPoolExecutor(1) as beside:
            for values in arrays:
                waiting.append(beside.submit(self._count, values))
                room -= values.nbytes
                if room < 0 and self._all is None:
                    self._all = self._make_counts(self._all_ends)
                    for part in self._held:
                        waiting.append(beside.submit(self._all.add, part))
                    self._held.clear()
                if self._all is None:
                    self._held.append(values)
                    continue
                waiting.append(beside.submit(self._all.add, values))
                while len(waiting) > 2 * _WAITING:
                    waiting.popleft().result()
        for task in waiting:
            task.result()

    def _make_counts(self, ends: Compared) -> ThresholdCounts:
        return ThresholdCounts(SortedThresholds([ends], self._counted.doubles, self._counted.digits))

    def _count(self, values: NDArray[Any]) -> None:
        for part in cut_blocks(values):
            x = self._cells.compared(part, self._compared[: len(part)])
            cells = self._cells.number(x, self._numbers[: len(part)])
            self.counts += np.bincount(cells, minlength=len(self.counts))

    def of(self, end: Thresholds, after: bool) -> NDArray[np.int64]:
        """Return the cells of thresholds. ``after``: rows at most a threshold are asked for, not those below it."""
        return self._cells.of(read_edges(end, after, self._counted.doubles, self._counted.digits))

    def run(self, first: int, last: int, end: Thresholds, after: bool) -> ThresholdSums:
        """Sum the rows below thresholds in the cells from ``first`` up to before ``last``, or at most these (``after``)."""
        if self._all is not None:
            return self._all.sums()
        counts = self._make_counts((end, after))
        counts.add_all(self._held, self._cells.selector(first, last))
        return counts.sums(int(self.counts[:first].sum()), int(self.counts[last:].sum()))


def bin_column(
    counted: HistogramQuery, end: Thresholds, after: bool, read: Reader, text: str
) -> BinnedColumn | None:
    """Count the column ``text`` in cells for its thresholds.

    None where rows must stay where they are, or thresholds are beyond what is compared here.
    """
    made = BinnedColumn.between(counted, end, after) if read.room else None
    if made is not None:
        made.count(stream_column(read, text, counted.doubles, counted.places), 8 * read.room)
    return made
