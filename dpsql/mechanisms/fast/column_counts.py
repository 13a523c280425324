"""Counts of a private column as it streams by, and cells of neighbouring numbers.

Grouping a million values takes most of an engine's time, for its hash table. For local data, the column is read in parts, as
narrow integers, and counted in an array: a third of the time, in memory that grows with the range and not with the rows. The
counts are equal, and the route depends on the public range and on the data's location.

A number's cell is a monotone function of it, so rows and thresholds in different cells need no comparison. Computing cells
takes a few operations on a block of numbers that fits a core's cache.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import Claim, ClaimedText, Read, Reader
from dpsql.mechanisms.fast import FastRoute
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import NumberArray

_Part = TypeVar("_Part", bound=Sized)
_Tally = TypeVar("_Tally")
NumberRows = Callable[[NumberArray], NDArray[np.int64]]
"""Maps doubles to integers."""

MAX_RANGE = 1 << 22
"""The most integers in a range that is counted here."""
DECIMAL_DIGITS = 18
"""Decimals with at most this many digits are 64-bit integers without their point."""

_ROWS, _FEW_ROWS = 1 << 23, 1 << 19
"""The most and the fewest rows counted at once: each time an array as long as the range is made and added."""
_MAPPED_ROWS = 1 << 16
"""The rows mapped to integers at once: three arrays of that length fit a cache."""
_ALONE = 1 << 16
"""The most rows for which no thread is started."""
COUNTING_THREADS = min(2, os.cpu_count() or 1)
"""The counting threads: those of a small machine's cores, since fetching also takes some."""
_WAITING = 4
"""The most arrays waiting to be counted."""


@dataclass(frozen=True)
class ColumnCounts(FastRoute[NDArray[np.int64]]):
    """The number of rows with each of ``low`` to ``high``; rows outside count at the ends, NULLs not at all.

    ``text`` returns one column of integers or dates, or of doubles that ``number`` maps to integers. The route is not taken,
    and nothing is read, if rows must stay in the engine or the range is too wide.
    """

    text: str
    low: int
    high: int
    number: NumberRows | None = None

    def claim(self, plain: Claim) -> ClaimedText:
        """Return the text with its claim; ``plain`` is that of the plain query."""
        return ClaimedText(self.text, plain, late=True)

    def take(self, read: Reader, entropy: Entropy) -> NDArray[np.int64] | None:
        return count_column(read, self.text, self.low, self.high, None, self.number)


def count_column(
    read: Read, sql: str, low: int, high: int, places: int | None = None, number: NumberRows | None = None
) -> NDArray[np.int64] | None:
    """Count the rows with each of ``low`` to ``high``, given decimal ``places``; None if that is impossible here."""
    reader = Reader.over(read)
    if not reader.room or high - low >= MAX_RANGE:
        return None
    return count_arrays(stream_column(reader, sql, number is not None, places), low, high, number)


def stream_column(
    read: Reader, sql: str, doubles: bool = False, places: int | None = None
) -> Iterator[NumberArray]:
    """Yield a column's non-NULL values in arrays, decimals as integers of ``places``; TypeError for other types."""
    for part in read.stream_numbers(sql):
        for chunk in part.column(0).chunks:
            kind = chunk.type
            if places is not None:
                if not (
                    pa.types.is_decimal(kind) and kind.precision <= DECIMAL_DIGITS and kind.scale == places
                ):
                    raise TypeError("a counted column must hold the decimals that are asked for")
                yield _read_decimals(chunk)
                continue
            chunk = chunk.drop_null() if chunk.null_count else chunk
            if kind == pa.date32():
                chunk = chunk.view(pa.int32())
            fits = (
                kind == pa.float64() if doubles else pa.types.is_integer(chunk.type) and kind != pa.uint64()
            )
            if fits:
                yield np.from_dlpack(chunk)  # to_numpy would import pandas
            elif doubles or not pa.types.is_null(kind):
                raise TypeError("a counted column must hold integers, or what else is asked for")


def _read_decimals(chunk: pa.Array) -> NumberArray:
    """Read the integers behind decimals that fit 64 bits, without NULLs."""
    words = max(1, chunk.type.bit_width // 64)
    held = np.frombuffer(chunk.buffers()[1], np.int32 if chunk.type.bit_width == 32 else np.int64)
    values = held[words * chunk.offset :][: words * len(chunk)]
    if words > 1:
        values = np.ascontiguousarray(values[::words])  # the lowest word; the others repeat the sign
    return values[np.asarray(chunk.is_valid())] if chunk.null_count else values


class PlaceCounts:
    """The number of rows in each of many bins; ``room`` rows are added up at once, as each time all bins are added."""

    def __init__(self, bins: int, room: int) -> None:
        self._bins = np.zeros(bins, dtype=np.int64)
        self._places = np.empty(room, dtype=np.int64)
        self._rows = 0

    def places(self, size: int) -> NDArray[np.int64]:
        """Return space for the bins of ``size`` more rows, at most ``room``."""
        if self._rows + size > len(self._places):
            self.fold()
        self._rows += size
        return self._places[self._rows - size : self._rows]

    def fold(self) -> None:
        """Count the rows in the written bins."""
        self._bins += np.bincount(self._places[: self._rows], minlength=len(self._bins))
        self._rows = 0

    @property
    def bins(self) -> NDArray[np.int64]:
        self.fold()
        return self._bins


def count_arrays(
    arrays: Iterable[NumberArray], low: int, high: int, number: NumberRows | None = None
) -> NDArray[np.int64]:
    """Count the integers equal to each of ``low`` to ``high``, in this thread, while the engine's threads fill its buffer."""
    bins = high - low + 1
    room = min(_ROWS, max(_FEW_ROWS, 2 * bins))
    found, beyond = PlaceCounts(bins, room), 0
    for values in arrays:
        for part in cut_blocks(values, room if number is None else _MAPPED_ROWS):
            places = part if number is None else number(part)
            if _are_within(places, low, high):
                np.subtract(places, low, out=found.places(len(places)), dtype=np.int64)
                continue
            below = places < high
            few = int(np.count_nonzero(below))
            if 2 * few < len(places):  # counting one place over and over takes longer than leaving it out
                beyond += len(places) - few
                places = places[below]
            clip_to_places(places, low, high, found.places(len(places)))
    counts = found.bins
    counts[-1] += beyond
    return counts


def work_beside(
    parts: Iterable[_Part],
    work: Callable[[_Part], None],
    threads: int,
    count: Callable[[_Part], int] | None = None,
) -> None:
    """Process parts of the data in other threads as this one fetches them, with a short queue.

    Until a part is large this thread processes it, which is faster than starting another.

    ``count``: counts a part's rows, if not its length.
    """
    waiting = deque[Future[None]]()
    beside: ThreadPoolExecutor | None = None
    with ExitStack() as stack:
        for part in parts:
            rows = len(part) if count is None else count(part)
            if beside is None and rows < _ALONE:
                work(part)
                continue
            beside = beside or stack.enter_context(ThreadPoolExecutor(threads))
            waiting.append(beside.submit(work, part))
            if len(waiting) > _WAITING:
                waiting.popleft().result()
        for task in waiting:
            task.result()


class ThreadTallies(Generic[_Tally]):
    """The tallies of counting threads, one for each while it counts; ``make`` makes another if all are in use."""

    def __init__(self, make: Callable[[], _Tally]) -> None:
        self._make, self._free = make, deque[_Tally]()
        self.all: list[_Tally] = []

    @contextmanager
    def reserve(self) -> Iterator[_Tally]:
        """Reserve a tally for this thread."""
        try:
            tally = self._free.pop()
        except IndexError:
            tally = self._make()
            self.all.append(tally)
        yield tally
        self._free.append(tally)


def _are_within(values: NumberArray, low: int, high: int) -> bool:
    return not len(values) or (low <= int(values.min()) and int(values.max()) <= high)


def clip_to_places(values: NumberArray, low: int, high: int, out: NDArray[np.int64]) -> None:
    """Write ``clip(values, low, high) - low`` to ``out``, clipped in the values' own type before it is widened."""
    own = np.iinfo(values.dtype)
    if low > own.max or high < own.min:  # every value is outside the same end
        out[:] = 0 if low > own.max else high - low
        return
    if not _are_within(values, low, high):
        # clip in their own type first: clipping and widening at once takes several times as long
        values = np.clip(values, max(low, int(own.min)), min(high, int(own.max)))
    np.subtract(values, low, out=out, dtype=np.int64)


BLOCK_ROWS = 1 << 15
"""Rows per block: intermediate results fit a cache."""

ROUNDING = 2.0**52
"""From here to twice this, doubles are integers in their lowest bits: adding this rounds to them, halves to even ones."""
MANTISSA = (1 << 52) - 1
"""Those bits."""


class NumberCells(ABC):
    """Cells from 0 up to before ``count``, in ascending order of the numbers in them."""

    count: int
    kind: np.dtype[np.generic]
    """The type returned by :meth:`compared`."""

    @abstractmethod
    def compared(self, part: NumberArray, out: NumberArray) -> NumberArray:
        """Return numbers as compared with thresholds of these cells; ``out`` may be used for them."""

    @abstractmethod
    def number(self, compared: NumberArray, out: NDArray[np.int64]) -> NDArray[np.int64]:
        """Write the cells of numbers, as from :meth:`compared`, to ``out``."""

    def of(self, values: NumberArray) -> NDArray[np.int64]:
        held = np.empty(len(values), dtype=self.kind)
        cells = np.empty(len(values), dtype=np.int64)
        for x, out in zip(cut_blocks(self.compared(values, held)), cut_blocks(cells), strict=True):
            self.number(x, out)
        return cells


class IntegerCells(NumberCells):
    """The integers from ``low`` to ``high``, ``2**shift`` to a cell, at most ``2**bits`` cells; others are at the ends."""

    kind = np.dtype(np.int64)

    def __init__(self, low: int, high: int, bits: int) -> None:
        self.low, self.high = low, high
        self.shift = max(0, (high - low + 1).bit_length() - bits)
        self.count = (high - low >> self.shift) + 1

    def compared(self, part: NumberArray, out: NumberArray) -> NumberArray:
        clip_to_places(part, self.low, self.high, out)
        return out

    def number(self, compared: NumberArray, out: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(np.right_shift(compared, self.shift, out=out))


class DoubleCells(NumberCells):
    """Doubles from ``low`` to ``high`` in cells of one width; then a cell for greater numbers and, after an empty one, NaN's.

    Multiplication, addition and rounding are monotone. The addend leaves the nearest integer in the lowest bits.

    ``beyond``: whether some thresholds are greater: then NaN is distinguished from greater numbers.
    """

    kind = np.dtype(np.float64)

    def __init__(self, low: float, high: float, count: int, beyond: bool = True) -> None:
        last, half = count - 1, high / 2 - low / 2
        scale = last / half / 2 if half > 0 else 1.0
        self._scale = scale if scale < math.inf else 1.0
        with np.errstate(over="ignore"):
            start = ROUNDING - np.float64(low) * self._scale
        self._start = float(start) if np.isfinite(start) else ROUNDING
        self._beyond = beyond
        self.count = last + 4
        # repeated for a block: the minimum of two arrays takes a third of the time
        self._least, self._most = np.full(BLOCK_ROWS, ROUNDING), np.full(BLOCK_ROWS, ROUNDING + last + 1)

    @classmethod
    def between(cls, values: NDArray[np.float64], count: int) -> DoubleCells:
        """Return the cells of thresholds."""
        known = values[np.isfinite(values)]
        ends = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
        made = cls(*ends, count, len(known) < len(values))
        # if rounding loses much, the greatest may be outside too
        made._beyond |= bool(made.of(np.array(ends))[1] >= made.count - 3)
        return made

    def compared(self, part: NumberArray, out: NumberArray) -> NumberArray:
        return part

    def number(self, compared: NumberArray, out: NDArray[np.int64]) -> NDArray[np.int64]:
        held = out.view(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(compared, self._scale, out=held)
            np.add(held, self._start, out=held)
            # without thresholds outside, NaN need not be distinguished
            (np.minimum if self._beyond else np.fmin)(held, self._most[: len(held)], out=held)
            np.maximum(held, self._least[: len(held)], out=held)
        np.bitwise_and(out, MANTISSA, out=out)
        if self._beyond:
            np.minimum(out, self.count - 1, out=out)  # the bits of NaN are above all others
        return out


def cut_blocks(values: NumberArray, size: int | None = None) -> Iterable[NumberArray]:
    """Yield the parts of an array, by default those that fit a cache."""
    size = size or BLOCK_ROWS
    return (values[start : start + size] for start in range(0, len(values), size))
