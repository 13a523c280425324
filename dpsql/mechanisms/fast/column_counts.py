"""Counts of a private column as it streams by.

Grouping a million values costs an engine a hash table, and most of its time. For local data, the column is read in
parts, as narrow integers, and counted in an array: a third of the time, in memory that grows with the range and not
with the rows. The counts are equal, and the choice of route depends on the range, which is public, and on the data's location.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.base import Claim, ClaimedText, Read, Reader
from dpsql.mechanisms.fast import FastRoute
from dpsql.noise.entropy import Entropy

_Part = TypeVar("_Part", bound=Sized)
_Tally = TypeVar("_Tally")

MAX_RANGE = 1 << 22
"""The most integers in a range that is counted here."""
DECIMAL_DIGITS = 18
"""Decimals with at most this many digits are 64-bit integers without their point."""

_ROWS, _FEW_ROWS = 1 << 23, 1 << 19
"""The most and the fewest rows counted at once: each time an array as long as the range is made and added."""
_ALONE = 1 << 16
"""The most rows for which no thread is started."""
COUNTING_THREADS = min(2, os.cpu_count() or 1)
"""The counting threads: those of a small machine's cores, since fetching also takes some."""
_WAITING = 4
"""The most arrays waiting to be counted."""


@dataclass(frozen=True)
class ColumnCounts(FastRoute[NDArray[np.int64]]):
    """The number of rows with each of ``low`` to ``high``; rows outside count at the ends, NULLs not at all.

    ``text`` returns one column of integers or dates. The route is not taken, and nothing is read, if rows must stay in
    the engine or the range is too wide.
    """

    text: str
    low: int
    high: int

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.text,)

    def claims(self, plain: Claim) -> Iterator[ClaimedText]:
        yield ClaimedText(self.text, plain)

    def take(self, read: Reader, entropy: Entropy) -> NDArray[np.int64] | None:
        return count_column(read, self.text, self.low, self.high)


def count_column(
    read: Read, sql: str, low: int, high: int, places: int | None = None
) -> NDArray[np.int64] | None:
    """Count the rows with each of ``low`` to ``high``, given decimal ``places``; None if that is impossible here."""
    reader = Reader.over(read)
    if not reader.room or high - low >= MAX_RANGE:
        return None
    return count_arrays(stream_column(reader, sql, places=places), low, high)


def stream_column(
    read: Reader, sql: str, doubles: bool = False, places: int | None = None
) -> Iterator[NDArray[Any]]:
    """Yield a column in arrays, without NULLs; decimals with ``places`` are integers without their point.

    Raises:
        TypeError: the values are no integers, dates or such decimals of 64 bits (or no doubles, if these are requested).
    """
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


def _read_decimals(chunk: pa.Array) -> NDArray[Any]:
    """Read the integers behind decimals that fit 64 bits, without NULLs."""
    words = max(1, chunk.type.bit_width // 64)
    held = np.frombuffer(chunk.buffers()[1], np.int32 if chunk.type.bit_width == 32 else np.int64)
    values = held[words * chunk.offset :][: words * len(chunk)]
    if words > 1:
        values = np.ascontiguousarray(values[::words])  # the lowest word; the others repeat the sign
    return values[np.asarray(chunk.is_valid())] if chunk.null_count else values


class _RangeCounts:
    """Counts the integers equal to each of ``low`` to ``high``; others count at the ends."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high
        self.counts = np.zeros(high - low + 1, dtype=np.int64)
        self._places = np.empty(min(_ROWS, max(_FEW_ROWS, 2 * len(self.counts))), dtype=np.int64)
        self._held = 0

    def add(self, values: NDArray[Any]) -> None:
        """Count some more."""
        size = len(self._places)
        for start in range(0, len(values), size):
            some = values[start : start + size]
            if self._held + len(some) > size:
                self.fold()
            clip_to_places(some, self._low, self._high, self._places[self._held : self._held + len(some)])
            self._held += len(some)

    def fold(self) -> None:
        """Add the pending values."""
        self.counts += np.bincount(self._places[: self._held], minlength=len(self.counts))
        self._held = 0


def count_arrays(arrays: Iterable[NDArray[Any]], low: int, high: int) -> NDArray[np.int64]:
    """Count the integers equal to each of ``low`` to ``high`` in other threads as this one fetches them."""
    found = _RangeCounts(low, high)
    work_beside(arrays, found.add, 1)
    found.fold()
    return found.counts


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
    def lend(self) -> Iterator[_Tally]:
        """Reserve a tally for this thread."""
        try:
            tally = self._free.pop()
        except IndexError:
            tally = self._make()
            self.all.append(tally)
        yield tally
        self._free.append(tally)


def clip_to_places(values: NDArray[Any], low: int, high: int, out: NDArray[np.int64]) -> None:
    """Write ``clip(values, low, high) - low`` to ``out``, clipped in the values' own type before it is widened."""
    own = np.iinfo(values.dtype)
    if low > own.max or high < own.min:  # every value is outside the same end
        out[:] = 0 if low > own.max else high - low
        return
    if len(values) and not (low <= int(values.min()) and int(values.max()) <= high):
        # clip in their own type first: clipping and widening at once takes several times as long
        values = np.clip(values, max(low, int(own.min)), min(high, int(own.max)))
    np.subtract(values, low, out=out, dtype=np.int64)
