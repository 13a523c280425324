"""Sums of a streaming private column clipped at each of many arbitrary thresholds.

For thresholds near each other, every integer is counted (:mod:`dpsql.mechanisms.fast.column_counts`). Otherwise rows
are counted in cells, as in :mod:`dpsql.mechanisms.fast.threshold_counts`, and each cell also has the exact sum of its
rows' distances from its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.fast.column_counts import COUNTING_THREADS, ThreadTallies, work_beside
from dpsql.mechanisms.fast.number_cells import BLOCK_ROWS, IntegerCells
from dpsql.mechanisms.fast.thresholds import Thresholds
from dpsql.numerics.exact_numbers import Integers, add_integers, multiply_integers, to_integers

FARTHEST_SUMMED = 1 << 31
"""The greatest absolute value summed here: the sum of this many rows fits 62 bits."""
_LEAST_BITS, _MOST_BITS = 13, 20
_MOST_POWER = 19
"""The binary logarithm of the most rows summed at once."""
_NONE = np.zeros(0, dtype=np.intp)


class _Tally:
    """The counts and sums of one thread, and its memory.

    A row adds one double to its bin, which counts it and contains its distance from the bin's start, less than
    ``2**shift`` either way: exact for this many rows.
    """

    def __init__(self, bins: int, classes: int, shift: int) -> None:
        power = min(_MOST_POWER, (50 - shift) // 2)
        self._bits, self._most = power + shift + 2, 1 << power
        self.block = min(BLOCK_ROWS, self._most)
        self._counts, self._rests = np.zeros(bins, dtype=np.int64), np.zeros(bins, dtype=np.int64)
        self.apart, self.sums_apart = np.zeros(classes, dtype=np.int64), np.zeros(classes, dtype=np.int64)
        self._places, self._added = np.empty(self._most, dtype=np.int64), np.empty(self._most)
        self.held, self.near = np.empty(self.block, dtype=np.int64), np.empty(self.block, dtype=np.int64)
        self._rows, self.one = 0, float(1 << self._bits)

    def take(self, size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the space for the bins of ``size`` more rows, the double ``one``, and the space for their addends."""
        if self._rows + size > self._most:
            self._fold()
        start, self._rows = self._rows, self._rows + size
        return self._places[start : self._rows], self._added[start : self._rows]

    def _fold(self) -> None:
        places, size = self._places[: self._rows], len(self._counts)
        whole = np.bincount(places, self._added[: self._rows], minlength=size).astype(np.int64)
        counts = whole + (1 << self._bits - 1) >> self._bits
        self._counts += counts
        self._rests += whole - (counts << self._bits)
        self._rows = 0

    def bins(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of rows in each bin, and the sum of their distances from its start."""
        self._fold()
        return self._counts, self._rests


class ClippedSums:
    """Counts and sums of integers between thresholds, clamped to ``low`` and ``high``."""

    def __init__(self, ends: Sequence[Thresholds], low: int, high: int) -> None:
        self._values = np.unique(np.concatenate([end.values for end in ends]))
        bits = min(max(_LEAST_BITS, (len(self._values) - 1).bit_length()), _MOST_BITS)
        while True:
            self._cells = IntegerCells(low, high, bits)
            self._numbers = self._cells.of(self._values)
            each = np.bincount(self._numbers, minlength=self._cells.count)
            if bits == _MOST_BITS or not (each > 1).any():
                break
            bits += 1
        self._crowded, self._near = each > 1, np.zeros(self._cells.count, dtype=np.int64)
        self._some_crowded = bool(self._crowded.any())
        self._known = self._cells.compared(self._values, np.empty(len(self._values), dtype=np.int64))
        self._near[self._numbers] = self._known
        self._bins = self._cells.count + 2  # the last bin is for rows outside all cells
        self._tallies = ThreadTallies(self._make_tally)

    def add(self, values: NDArray[Any]) -> None:
        """Count rows; thread-safe."""
        with self._tallies.lend() as tally:
            for start in range(0, len(values), tally.block):
                self._add(values[start : start + tally.block], tally)

    def add_all(self, arrays: Iterable[NDArray[Any]]) -> None:
        """Count all rows in other threads as this one fetches them."""
        work_beside(arrays, self.add, COUNTING_THREADS)

    def _make_tally(self) -> _Tally:
        return _Tally(self._bins, len(self._values) + 1, self._cells.shift)

    def _add(self, part: NDArray[Any], tally: _Tally) -> None:
        size = len(part)
        places, added = tally.take(size)
        x = self._cells.compared(part, tally.held[:size])
        index = self._cells.number(x, places)
        near = self._near.take(index, mode="clip", out=tally.near[:size])
        many = np.flatnonzero(self._crowded.take(index)) if self._some_crowded else _NONE
        index += x >= near
        starts = np.left_shift(index, self._cells.shift, out=near)
        np.add(np.subtract(x, starts, out=starts), tally.one, out=added)
        if len(many):
            rank = np.searchsorted(self._known, x[many], "right")
            np.add.at(tally.apart, rank, 1)
            np.add.at(tally.sums_apart, rank, x[many] + self._cells.low)
            index[many], added[many] = self._bins - 1, 0

    def clipped(self, end: Thresholds) -> Integers:
        """Return the sum of the values clipped at each b (b NULL: 0)."""
        counts, rests = np.zeros((2, self._bins), dtype=np.int64)
        apart, sums_apart = np.zeros((2, len(self._values) + 1), dtype=np.int64)
        for tally in self._tallies.all:
            for whole, part in zip((counts, rests), tally.bins(), strict=True):
                whole += part
            apart += tally.apart
            sums_apart += tally.sums_apart
        counts, rests, apart = counts[:-1], rests[:-1], np.cumsum(apart)
        sums = counts * ((np.arange(len(counts)) << self._cells.shift) + self._cells.low) + rests
        place = np.searchsorted(self._values, end.values)
        cells = self._numbers[place]
        below = np.cumsum(counts)[cells] + apart[place]
        under = np.cumsum(sums)[cells] + np.cumsum(sums_apart)[place]
        beyond = to_integers(int(counts.sum()) + int(apart[-1]) - below)
        score: Integers = add_integers(to_integers(under), multiply_integers(end.values, beyond))
        return score if end.missing is None else np.where(end.missing, 0, score)
