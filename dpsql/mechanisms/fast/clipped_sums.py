"""Sums of a private column clipped at each of many thresholds, as it streams by, wherever these are.

Where thresholds are near each other, every integer is counted (:mod:`dpsql.mechanisms.fast.column_counts`). Else rows fall into
cells, as in :mod:`dpsql.mechanisms.fast.threshold_counts`, and beside its rows each cell has the sum of what they are above its
lower end. That is less than a cell's width, so sums of a few million rows are exact as doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.fast.number_cells import BLOCK_ROWS, IntegerCells, cut_blocks
from dpsql.mechanisms.fast.thresholds import Thresholds
from dpsql.numerics.exact_numbers import Integers, add_integers, multiply_integers, to_integers

FARTHEST_SUMMED = 1 << 31
"""The farthest number from 0 that is added up here: the sum of so many rows fits 62 bits."""
_LEAST_BITS, _MOST_BITS = 13, 20
_ROWS = 1 << 20  # summed at once


class ClippedSums:
    """Counts and sums of integers from ``low`` to ``high`` between thresholds: what is beyond counts as these are."""

    def __init__(self, ends: Sequence[Thresholds], low: int, high: int) -> None:
        self._values = np.unique(np.concatenate([end.values for end in ends]))
        bits = _LEAST_BITS
        while True:
            self._cells = IntegerCells(low, high, bits)
            self._numbers = self._cells.of(self._values)
            each = np.bincount(self._numbers, minlength=self._cells.count)
            if bits == _MOST_BITS or not (each > 1).any():
                break
            bits += 1
        self._crowded, self._near = each > 1, np.zeros(self._cells.count, dtype=np.int64)
        self._known = self._cells.compared(self._values, np.empty(len(self._values), dtype=np.int64))
        self._near[self._numbers] = self._known
        bins, classes = self._cells.count + 2, len(self._values) + 1  # what is apart goes to the last bin
        self._counts, self._rests = np.zeros(bins, dtype=np.int64), np.zeros(bins, dtype=np.int64)
        self._apart, self._sums_apart = np.zeros(classes, dtype=np.int64), np.zeros(classes, dtype=np.int64)
        self._places = np.empty(_ROWS + BLOCK_ROWS, dtype=np.int64)
        self._above, self._rows = np.empty(_ROWS + BLOCK_ROWS, dtype=np.float64), 0

    def add(self, values: NDArray[Any]) -> None:
        """Count rows."""
        for part in cut_blocks(values):
            held = slice(self._rows, self._rows + len(part))
            x = self._cells.compared(part, np.empty(len(part), dtype=np.int64))
            index = self._cells.number(x, self._places[held])
            many = np.flatnonzero(self._crowded.take(index))
            index += x >= self._near.take(index)
            self._above[held] = x - (index << self._cells.shift)
            if len(many):
                rank = np.searchsorted(self._known, x[many], "right")
                np.add.at(self._apart, rank, 1)
                np.add.at(self._sums_apart, rank, x[many] + self._cells.low)
                index[many], self._above[held.start + many] = len(self._counts) - 1, 0
            self._rows = held.stop
            if self._rows >= _ROWS:
                self._fold()

    def _fold(self) -> None:
        places, size = self._places[: self._rows], len(self._counts)
        self._counts += np.bincount(places, minlength=size)
        self._rests += np.bincount(places, self._above[: self._rows], minlength=size).astype(np.int64)
        self._rows = 0

    def clipped(self, end: Thresholds) -> Integers:
        """Return the sum of the values, each held to at most b (b NULL: 0)."""
        self._fold()
        starts = (np.arange(len(self._counts) - 1) << self._cells.shift) + self._cells.low
        counts, sums = self._counts[:-1], self._counts[:-1] * starts + self._rests[:-1]
        apart, place = np.cumsum(self._apart), np.searchsorted(self._values, end.values)
        cells = self._numbers[place]
        below = np.cumsum(counts)[cells] + apart[place]
        under = np.cumsum(sums)[cells] + np.cumsum(self._sums_apart)[place]
        beyond = to_integers(int(counts.sum()) + int(apart[-1]) - below)
        score: Integers = add_integers(to_integers(under), multiply_integers(end.values, beyond))
        return score if end.missing is None else np.where(end.missing, 0, score)
