"""Counts of a private column as it streams by.

Grouping a million values costs an engine a hash table, and most of its time. Where the data are on this machine, the
column itself comes in parts, narrow integers, and is counted in an array: a third of the time, in memory that grows with
the range and not with the rows. The counts are the same, and the choice of route depends on the range, which is public,
and on where the data are.
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
"""Decimals of so many digits are integers of 64 bits, once their places are made whole."""

_ROWS, _FEW_ROWS = 1 << 23, 1 << 19
"""The most and the fewest rows that are counted at once: each time an array as long as the range is made and added."""
_ALONE = 1 << 16
"""Rows for which no thread is begun."""
COUNTING_THREADS = min(2, os.cpu_count() or 1)
"""The threads that count: as many as there are cores of a small machine, for while rows are fetched others wait."""
_WAITING = 4
"""Arrays that wait to be counted: those that came sooner than they were counted."""


@dataclass(frozen=True)
class ColumnCounts(FastRoute[NDArray[np.int64]]):
    """The number of rows with each of ``low`` to ``high``; rows beyond count at the ends, NULLs not at all.

    ``text`` gives one column of integers or dates. The route is not taken, and nothing is read, where rows must stay
    where they are or the range is too wide.
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
    """Count the rows of a column with each of ``low`` to ``high``; None where it can't be counted here.

    ``places`` are those of its decimals, as :func:`stream_column` has them.
    """
    reader = Reader.over(read)
    if not reader.room or high - low >= MAX_RANGE:
        return None
    return count_arrays(stream_column(reader, sql, places=places), low, high)


def stream_column(
    read: Reader, sql: str, doubles: bool = False, places: int | None = None
) -> Iterator[NDArray[Any]]:
    """Yield a column in arrays, without NULLs; decimals with ``places`` are the integers that they are without their point.

    Raises:
        TypeError: the values are no integers, dates or such decimals of 64 bits (no doubles, if these are asked for).
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
        values = np.ascontiguousarray(values[::words])  # the lowest word, of which the others repeat the sign
    return values[np.asarray(chunk.is_valid())] if chunk.null_count else values


class _RangeCounts:
    """The number of integers that are each of ``low`` to ``high``; those beyond count at the ends."""

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
        """Add what is held."""
        self.counts += np.bincount(self._places[: self._held], minlength=len(self.counts))
        self._held = 0


def count_arrays(arrays: Iterable[NDArray[Any]], low: int, high: int) -> NDArray[np.int64]:
    """Count the integers that are each of ``low`` to ``high``, beside the thread that fetches them."""
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
    """Do work on parts of the data in threads of its own, as this one fetches them; only a few wait for it.

    Until a part is large this thread does it: to begin another one takes longer.

    Args:
        parts: in the order in which they come.
        work: what is done with each.
        threads: how many do it.
        count: counts a part's rows, where these are not its length.
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
    """The tallies that threads count in: each has one of its own while it counts.

    Args:
        make: makes one more, where all are lent.
    """

    def __init__(self, make: Callable[[], _Tally]) -> None:
        self._make, self._free = make, deque[_Tally]()
        self.all: list[_Tally] = []

    @contextmanager
    def lend(self) -> Iterator[_Tally]:
        """Lend one to this thread."""
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
    if low > own.max or high < own.min:  # every value is beyond the same end
        out[:] = 0 if low > own.max else high - low
        return
    if len(values) and not (low <= int(values.min()) and int(values.max()) <= high):
        # in their own type first: to clip and to widen at once takes several times as long
        values = np.clip(values, max(low, int(own.min)), min(high, int(own.max)))
    np.subtract(values, low, out=out, dtype=np.int64)
