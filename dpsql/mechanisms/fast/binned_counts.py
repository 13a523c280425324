"""A column of private numbers, counted roughly as it streams by, and finely only where that is asked for.

A count of each of a million integers wants as many places in memory, and every row goes to another of them. A few thousand
cells of neighbouring numbers stay in the processor's cache: half the time. The rows that came are held, so that
those of a few cells can be told apart afterwards. Nothing is read twice: whatever is counted, it is of the same rows.

A number's cell never falls as the number grows, be it a row's or a threshold: below a threshold are all rows of the cells
before its own, and some of those in its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.base import Read, room_of
from dpsql.mechanisms.fast.candidate_scores import Counted, End, Running, span
from dpsql.mechanisms.fast.stream_counts import MOST, counted, place, streamed

_BITS = 13
"""There are up to ``2**_BITS`` cells: their counts stay in a cache of the core."""
_BLOCK = 1 << 17  # rows at once: what stays in a cache, or nearly


class Cells(ABC):
    """Cells of numbers; ``counts`` says how many rows are in each."""

    def __init__(self, count: int) -> None:
        self.counts = np.zeros(count, dtype=np.int64)
        self._held: list[NDArray[Any]] = []

    def count(self, arrays: Iterator[NDArray[Any]], room: int) -> bool:
        """Counts what comes, beside the thread that fetches it. False where that is more bytes than ``room``: then not all of
        it was counted.
        """
        done = []
        with ThreadPoolExecutor(1) as beside:
            for values in arrays:
                self._held.append(values)
                room -= values.nbytes
                if room < 0:
                    break
                done.append(beside.submit(self._count, values))
        for task in done:
            task.result()
        return room >= 0

    def _count(self, values: NDArray[Any]) -> None:
        for part in _blocks(values):
            self.counts += np.bincount(self._numbers(part), minlength=len(self.counts))

    @abstractmethod
    def of(self, end: End, after: bool) -> NDArray[np.int64]:
        """The cells of thresholds. ``after``: rows that are at most a threshold are asked for, not those below it."""

    @abstractmethod
    def run(self, first: int, last: int) -> Running:
        """The rows of the cells from ``first`` on, up to ``last``, which is not among them, told apart; those beyond count at
        the ends."""

    @abstractmethod
    def _numbers(self, part: NDArray[Any]) -> NDArray[np.int64]:
        """The cells of some rows."""

    def _around(self, first: int, last: int, inside: NDArray[np.int64]) -> NDArray[np.int64]:
        """Counts, and at either end those of what lies beyond."""
        return np.concatenate([[self.counts[:first].sum()], inside, [self.counts[last:].sum()]])


def cells(counted: Counted, end: End, read: Read, text: str) -> Cells | None:
    """The column ``text`` of what is counted, in cells for its thresholds. None where rows must stay where they are, or
    thresholds are too far apart for them; or where there are more doubles than may be held.
    """
    made = Doubles.between(end) if counted.doubles else Whole.between(counted, end)
    if not room_of(read) or made is None:
        return None
    return made if made.count(streamed(read, text, counted.doubles), 8 * room_of(read)) else None


class Whole(Cells):
    """Of the integers from ``low`` on, ``2**shift`` to a cell; what lies beyond is in the cells at the ends."""

    def __init__(self, low: int, high: int, digits: int) -> None:
        self.low, self.size, self._digits = low, high - low + 1, digits
        self.shift = max(0, self.size.bit_length() - _BITS)
        self._fine: NDArray[np.int64] | None = None
        self._places = np.empty(_BLOCK, dtype=np.int64)
        super().__init__((self.size - 1 >> self.shift) + 1)

    @classmethod
    def between(cls, counted: Counted, end: End) -> Whole | None:
        ends = span(counted, [end])
        return None if ends is None or ends[1] - ends[0] >= MOST else cls(*ends, counted.digits)

    def count(self, arrays: Iterator[NDArray[Any]], room: int) -> bool:
        """Always True: what is too much to be held is counted one by one, as it comes."""
        if not super().count(arrays, room):
            self._fine = counted(chain(self._held, arrays), self.low, self.low + self.size - 1)
            self._held.clear()
            self.counts = np.add.reduceat(self._fine, np.arange(0, self.size, 1 << self.shift))
        return True

    def of(self, end: End, after: bool) -> NDArray[np.int64]:
        cell: NDArray[np.int64] = end.edge(self._digits, after) - (self.low - after)
        return np.right_shift(cell, self.shift, out=cell)

    def run(self, first: int, last: int) -> Running:
        start, stop = first << self.shift, min(last << self.shift, self.size)
        if self._fine is not None:
            inside = self._fine[start:stop]
        else:
            least = self.low + start if first else None
            most = self.low + stop - 1 if stop < self.size else None
            inside = counted(self._within(least, most), self.low + start, self.low + stop - 1)
        return Running.dense(self._around(first, last, inside), self.low + start - 1, self._digits)

    def _numbers(self, part: NDArray[Any]) -> NDArray[np.int64]:
        numbers = self._places[: len(part)]
        place(part, self.low, self.low + self.size - 1, numbers)
        return np.right_shift(numbers, self.shift, out=numbers)

    def _within(self, least: int | None, most: int | None) -> Iterable[NDArray[Any]]:
        """The rows from ``least`` to ``most``. None: without an end."""
        if least is None and most is None:
            return self._held
        blocks = chain.from_iterable(map(_blocks, self._held))
        if least is None:
            return (part[part <= most] for part in blocks)
        if most is None:
            return (part[part >= least] for part in blocks)
        return (part[(part >= least) & (part <= most)] for part in blocks)


class Doubles(Cells):
    """Of doubles, in cells of one width from ``low`` on. To take ``low`` off, to multiply and to round down never changes the
    order of two numbers; infinities are in the cells at the ends, and NaN, the greatest value, is in the last.
    """

    def __init__(self, low: float, scale: float) -> None:
        self._low, self._scale = low, scale
        super().__init__(1 << _BITS)

    @classmethod
    def between(cls, end: End) -> Doubles | None:
        values = end.values[np.isfinite(end.values)]
        if end.scale or not len(values):
            return None
        low, width = float(values.min()), float(values.max()) - float(values.min())
        scale = (1 << _BITS) / width if width else 0.0
        return cls(low, scale) if 0 < scale < math.inf else None

    def of(self, end: End, after: bool) -> NDArray[np.int64]:
        return self._numbers(end.values.astype(np.float64))

    def run(self, first: int, last: int) -> Running:
        parts = [
            part[(numbers >= first) & (numbers < last)]
            for part in chain.from_iterable(map(_blocks, self._held))
            for numbers in [self._numbers(part)]
        ]
        x = np.sort(np.concatenate([*parts, np.empty(0)]))
        around = self._around(first, last, np.ones(len(x), dtype=np.int64))
        return Running.of(np.concatenate([[-np.inf], x, [np.nan]]), around)

    def _numbers(self, part: NDArray[Any]) -> NDArray[np.int64]:
        with np.errstate(over="ignore"):
            number = (part - self._low) * self._scale
        return np.fmax(np.fmin(number, len(self.counts) - 1), 0).astype(np.int64)


def _blocks(values: NDArray[Any]) -> Iterable[NDArray[Any]]:
    return (values[start : start + _BLOCK] for start in range(0, len(values), _BLOCK))
