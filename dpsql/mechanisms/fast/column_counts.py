"""Counts of a private column as it streams by, and their comparison with public thresholds.

Grouping a million values costs an engine a hash table, and most of its time. Where the data are on this machine, the
column itself comes in parts, narrow integers, and is counted in an array: a third of the time, in memory that grows with
the range and not with the rows. The counts are the same, and the choice of route depends on the range, which is public,
and on where the data are.

A count of each of a million integers wants as many places in memory, and every row goes to another of them. A few thousand
cells of neighbouring numbers stay in the processor's cache: half the time. The rows that came are held, so that those of
a few cells can be told apart afterwards. Nothing is read twice, so every count is of the same rows. A number's cell never
falls as the number grows, be it a row's or a threshold: below a threshold are all rows of the cells before its own, and
some of those in its own.

Comparisons are DuckDB's: integers and decimals (as integers of the finer scale), doubles (NaN is the greatest value and
equal to itself) and dates.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.mechanisms.base import Claim, ClaimedText, Read, Reader
from dpsql.mechanisms.fast import FastRoute
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import (
    INT64_MAX,
    SAFE,
    Integers,
    add_integers,
    find_largest,
    multiply_integers,
    to_integers,
)

MAX_RANGE = 1 << 22
"""The most integers in a range that is counted here."""

_ROWS = 1 << 23  # counted at once: each time an array as long as the range is made and added
_SAFE = 1 << 61
_CELL_BITS = 13
"""There are up to ``2**_CELL_BITS`` cells: their counts stay in a cache of the core."""
_BLOCK = 1 << 17  # rows at once: what stays in a cache, or nearly

# -- streams ----------------------------------------------------------------------------------------------------------

MAX_BINS = 1 << 22
"""The most bins that are held here; where there are more, the engine joins them with the candidates."""


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


def count_column(read: Read, sql: str, low: int, high: int) -> NDArray[np.int64] | None:
    """Count the rows of a column with each of ``low`` to ``high``; None where it can't be counted here."""
    reader = Reader.over(read)
    if not reader.room or high - low >= MAX_RANGE:
        return None
    return count_arrays(stream_column(reader, sql), low, high)


def stream_column(read: Reader, sql: str, doubles: bool = False) -> Iterator[NDArray[Any]]:
    """Yield a column in arrays, without NULLs.

    Raises:
        TypeError: the values are no integers or dates (no doubles, if these are asked for).
    """
    for part in read.stream_parts(sql):
        for chunk in part.column(0).chunks:
            kind = chunk.type
            chunk = chunk.drop_null() if chunk.null_count else chunk
            if kind == pa.date32():
                chunk = chunk.view(pa.int32())
            fits = (
                kind == pa.float64() if doubles else pa.types.is_integer(chunk.type) and kind != pa.uint64()
            )
            if fits:
                yield chunk.to_numpy()
            elif doubles or not pa.types.is_null(kind):
                raise TypeError("a counted column must hold integers, or doubles where these are asked for")


def count_arrays(arrays: Iterable[NDArray[Any]], low: int, high: int) -> NDArray[np.int64]:
    """Count the integers that are each of ``low`` to ``high``; those beyond count at the ends."""
    counts = np.zeros(high - low + 1, dtype=np.int64)
    places = np.empty(_ROWS, dtype=np.int64)
    held = 0
    for values in arrays:
        for start in range(0, len(values), _ROWS):
            some = values[start : start + _ROWS]
            if held + len(some) > _ROWS:
                counts += np.bincount(places[:held], minlength=len(counts))
                held = 0
            clip_to_places(some, low, high, places[held : held + len(some)])
            held += len(some)
    counts += np.bincount(places[:held], minlength=len(counts))
    return counts


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


# -- thresholds -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HistogramQuery:
    """A question to the private rows: the rows of each value, or the sum of another column over them.

    Args:
        query: gives the distinct ``x``, the number of rows that have it ``n`` and, unless rows are counted, the sum of ``v``.
        column: gives the x of every row, where only counts are wanted.
        digits: places of a decimal that were made whole.
        least: x is held to it from below (in a clipped sum).
        doubles: the column has these, and otherwise integers or dates.
    """

    query: str
    column: str | None = None
    digits: int = 0
    least: int | None = None
    doubles: bool = False

    @property
    def limited(self) -> str:
        """The query, of which no more rows come than are held here, and one that says that there are more."""
        return f"SELECT * FROM ({self.query}) AS histogram LIMIT {self.limit}"

    @property
    def limit(self) -> int:
        """The rows that are asked for: a histogram of so many is not used."""
        return MAX_BINS + 1


def is_comparable(kind: pa.DataType) -> bool:
    """Return whether values of a type are compared here as DuckDB compares them."""
    if pa.types.is_integer(kind):
        return bool(kind != pa.uint64())
    return kind in (pa.float64(), pa.date32(), pa.null()) or is_decimal(kind)


def is_decimal(kind: pa.DataType) -> bool:
    """Return whether a type is a decimal of up to 128 bits with its places inside."""
    return bool(pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision)


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of candidates: doubles, or integers of ``scale`` places (NULL: any number)."""

    values: NDArray[Any]
    scale: int = 0
    missing: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Thresholds | None:
        """Read a column; None for types that are not compared here, and decimals beyond 64 bits."""
        if not is_comparable(column.type):
            return None
        scale = column.type.scale if is_decimal(column.type) else 0
        values = _read_unscaled(column) if is_decimal(column.type) else read_numbers(column)
        if values is None or not column.null_count:
            return None if values is None else cls(values, scale)
        missing = column.is_null().to_numpy()
        there = values[~missing]
        return cls(np.where(missing, there[0] if len(there) else 0, values), scale, missing)

    @property
    def are_floats(self) -> bool:
        """True where the thresholds are doubles."""
        return self.values.dtype.kind == "f"

    def edge(self, digits: int, after: bool) -> NDArray[np.int64]:
        """Return the integer edges of values that have ``digits`` places made whole.

        A value is below its edge (``after``: at most its edge) exactly if it is below the threshold (at most it).
        """
        if self.scale <= digits:
            times = 10 ** (digits - self.scale)
            # A decimal whose places are made whole has 15 digits: all that is cut off here is beyond them.
            return self.values if times == 1 else np.clip(self.values, -SAFE // times, SAFE // times) * times
        by = 10 ** (self.scale - digits)
        if by > INT64_MAX:  # less than one
            return np.where(self.values < 0, -1, 0) if after else np.where(self.values > 0, 1, 0)
        return np.asarray(self.values // by if after else -(-self.values // by), dtype=np.int64)


def read_numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """Read a column of integers, dates or doubles; NULL is 0."""
    if column.type == pa.date32():
        column = column.cast(pa.int32())
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64)
    values = (pc.fill_null(column, 0) if column.null_count else column).to_numpy()
    return np.asarray(values, dtype=np.float64 if pa.types.is_floating(column.type) else np.int64)


def _read_unscaled(column: pa.ChunkedArray) -> NDArray[np.int64] | None:
    """Read the integers behind decimals (NULL: any number); None where they need more than 64 bits."""
    out = np.zeros(len(column), dtype=np.int64)
    at = 0
    for chunk in column.chunks:
        if chunk.null_count:
            chunk = pc.fill_null(chunk, pa.scalar(0, chunk.type))
        raw = np.frombuffer(chunk.buffers()[1], dtype=np.int64)[2 * chunk.offset :][: 2 * len(chunk)]
        if bool((raw[0::2] >> 63 != raw[1::2]).any()):
            return None
        out[at : at + len(chunk)] = raw[0::2]
        at += len(chunk)
    return out


def find_span(counted: HistogramQuery, ends: list[Thresholds]) -> tuple[int, int] | None:
    """Find the integers between which all thresholds lie; None where they can't be counted one by one."""
    if counted.doubles or not ends or any(end.are_floats or not len(end.values) for end in ends):
        return None
    low = min(int(end.edge(counted.digits, after=False).min()) for end in ends) - 1
    high = max(int(end.edge(counted.digits, after=True).max()) for end in ends) + 1
    if counted.least is not None:
        low, high = counted.least, max(counted.least, high)
    return None if max(-low, high) >= SAFE else (low, high)


@dataclass(frozen=True)
class PrefixSums:
    """Values in order, with sums over those before each (and over all): of what is added, and of rows.

    ``first``: the values are ``first``, ``first + 1``, ..., and rows beyond count at the ends.
    """

    x: NDArray[Any]
    sums: Integers
    counts: Integers
    digits: int
    first: int | None = None

    @classmethod
    def dense(cls, counts: NDArray[np.int64], low: int, digits: int) -> PrefixSums:
        """Sum the counts of ``low``, ``low + 1``, ..."""
        return replace(cls.of(np.arange(low, low + len(counts)), counts, digits), first=low)

    @classmethod
    def of(cls, x: NDArray[Any], counts: NDArray[np.int64], digits: int = 0) -> PrefixSums:
        """Sum the counts of values that are in order."""
        sums = accumulate(counts)
        return cls(x, sums, sums, digits)

    @property
    def total(self) -> int:
        """The sum over all values."""
        return int(self.sums[-1])

    @property
    def are_floats(self) -> bool:
        """True where the values are doubles."""
        return bool(self.x.dtype.kind == "f")

    def is_comparable_with(self, end: Thresholds) -> bool:
        """Return whether such thresholds are compared with the values as the engine would."""
        return not end.scale if self.are_floats else not (self.digits and end.are_floats)

    def place(self, end: Thresholds, after: bool) -> NDArray[np.intp]:
        """Count the values below each threshold, or at most it (``after``). NULL: any number."""
        side: Literal["left", "right"] = "right" if after else "left"
        if self.are_floats or end.are_floats:
            x, found = self.x.astype(np.float64), end.values.astype(np.float64)
            return np.asarray(np.searchsorted(x, found, side), dtype=np.intp)
        edge, size = end.edge(self.digits, after), len(self.x)
        if self.first is not None:
            return _place_from(edge, self.first, size, after)
        if not size or int(self.x[-1]) - int(self.x[0]) >= 4 * size + (1 << 16):
            return np.asarray(np.searchsorted(self.x, edge, side), dtype=np.intp)
        first, width = int(self.x[0]), int(self.x[-1]) - int(self.x[0]) + 1
        table = np.zeros(width + 1, dtype=np.intp)  # table[k]: how many values are below first + k
        table[self.x - first + 1] = 1
        np.cumsum(table, out=table)
        return np.asarray(table[_place_from(edge, first, width, after)], dtype=np.intp)

    def clipped(self, end: Thresholds) -> Integers:
        """Return the sum of the values, each held to at most b (b NULL: 0): values are integers here."""
        at = self.place(end, after=True)
        counts = to_integers(self.counts[1:] - self.counts[:-1])
        weighed = accumulate(multiply_integers(to_integers(self.x), counts))
        beyond = to_integers(self.counts[-1] - self.counts[at])
        score: Integers = add_integers(to_integers(weighed[at]), multiply_integers(end.values, beyond))
        return score if end.missing is None else np.where(end.missing, 0, score)


def _place_from(edge: NDArray[np.int64], first: int, width: int, after: bool) -> NDArray[np.intp]:
    """Count those of ``first``, ``first + 1``, ... (``width`` of them) below each edge, or at most it (``after``)."""
    near = np.clip(edge, max(first - 1, -INT64_MAX - 1), min(first + width, INT64_MAX)) - first
    return np.clip(near + 1 if after else near, 0, width)


def accumulate(v: Integers) -> Integers:
    """Return the sums before each place, and the whole."""
    wide = v.dtype == object or find_largest(v) * len(v) >= _SAFE
    out = np.zeros(len(v) + 1, dtype=object if wide else np.int64)
    np.cumsum(v.astype(object) if wide else v, out=out[1:])
    return out


# -- cells ------------------------------------------------------------------------------------------------------------


class BinnedColumn(ABC):
    """Cells of neighbouring numbers; ``counts`` holds the number of rows in each."""

    def __init__(self, count: int) -> None:
        self.counts = np.zeros(count, dtype=np.int64)
        self._held: list[NDArray[Any]] = []

    def count(self, arrays: Iterator[NDArray[Any]], room: int) -> bool:
        """Count what comes, beside the thread that fetches it.

        Returns:
            False where that is more bytes than ``room``: then not all of it was counted.
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
        for part in _cut_blocks(values):
            self.counts += np.bincount(self._number(part), minlength=len(self.counts))

    @abstractmethod
    def of(self, end: Thresholds, after: bool) -> NDArray[np.int64]:
        """Return the cells of thresholds. ``after``: rows at most a threshold are asked for, not those below it."""

    @abstractmethod
    def run(self, first: int, last: int) -> PrefixSums:
        """Tell apart the rows of the cells from ``first`` up to before ``last``; those beyond count at the ends."""

    @abstractmethod
    def _number(self, part: NDArray[Any]) -> NDArray[np.int64]:
        """Return the cells of some rows."""

    def _surround(self, first: int, last: int, inside: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the counts, with those of what lies beyond at either end."""
        return np.concatenate([[self.counts[:first].sum()], inside, [self.counts[last:].sum()]])


def bin_column(counted: HistogramQuery, end: Thresholds, read: Reader, text: str) -> BinnedColumn | None:
    """Count the column ``text`` in cells for its thresholds.

    None where rows must stay where they are, or thresholds are too far apart; or where there are more doubles than may
    be held.
    """
    made = BinnedDoubles.between(end) if counted.doubles else BinnedIntegers.between(counted, end)
    if not read.room or made is None:
        return None
    return made if made.count(stream_column(read, text, counted.doubles), 8 * read.room) else None


class BinnedIntegers(BinnedColumn):
    """The integers from ``low`` on, ``2**shift`` to a cell; what lies beyond is in the cells at the ends."""

    def __init__(self, low: int, high: int, digits: int) -> None:
        self.low, self.size, self._digits = low, high - low + 1, digits
        self.shift = max(0, self.size.bit_length() - _CELL_BITS)
        self._fine: NDArray[np.int64] | None = None
        self._places = np.empty(_BLOCK, dtype=np.int64)
        super().__init__((self.size - 1 >> self.shift) + 1)

    @classmethod
    def between(cls, counted: HistogramQuery, end: Thresholds) -> BinnedIntegers | None:
        """Make the cells of thresholds; None where these are too far apart."""
        ends = find_span(counted, [end])
        return None if ends is None or ends[1] - ends[0] >= MAX_RANGE else cls(*ends, counted.digits)

    def count(self, arrays: Iterator[NDArray[Any]], room: int) -> bool:
        if not super().count(arrays, room):  # too much to be held: counted one by one, as it comes
            self._fine = count_arrays(chain(self._held, arrays), self.low, self.low + self.size - 1)
            self._held.clear()
            self.counts = np.add.reduceat(self._fine, np.arange(0, self.size, 1 << self.shift))
        return True

    def of(self, end: Thresholds, after: bool) -> NDArray[np.int64]:
        cell: NDArray[np.int64] = end.edge(self._digits, after) - (self.low - after)
        return np.right_shift(cell, self.shift, out=cell)

    def run(self, first: int, last: int) -> PrefixSums:
        start, stop = first << self.shift, min(last << self.shift, self.size)
        if self._fine is not None:
            inside = self._fine[start:stop]
        else:
            # what lies beyond the cells is in those at the ends
            least = self.low + start if first else -INT64_MAX - 1
            most = self.low + stop - 1 if stop < self.size else INT64_MAX
            blocks = chain.from_iterable(map(_cut_blocks, self._held))
            within = (part[(part >= least) & (part <= most)] for part in blocks)
            inside = count_arrays(within, self.low + start, self.low + stop - 1)
        return PrefixSums.dense(self._surround(first, last, inside), self.low + start - 1, self._digits)

    def _number(self, part: NDArray[Any]) -> NDArray[np.int64]:
        numbers = self._places[: len(part)]
        clip_to_places(part, self.low, self.low + self.size - 1, numbers)
        return np.right_shift(numbers, self.shift, out=numbers)


class BinnedDoubles(BinnedColumn):
    """Doubles in cells of one width from ``low`` on.

    To subtract ``low``, to multiply and to round down never changes the order of two numbers; infinities are in the
    cells at the ends, and NaN, the greatest value, is in the last.
    """

    def __init__(self, low: float, scale: float) -> None:
        self._low, self._scale = low, scale
        super().__init__(1 << _CELL_BITS)

    @classmethod
    def between(cls, end: Thresholds) -> BinnedDoubles | None:
        """Make the cells of thresholds; None where these don't spread."""
        values = end.values[np.isfinite(end.values)]
        if end.scale or not len(values):
            return None
        low, width = float(values.min()), float(values.max()) - float(values.min())
        scale = (1 << _CELL_BITS) / width if width else 0.0
        return cls(low, scale) if 0 < scale < math.inf else None

    def of(self, end: Thresholds, after: bool) -> NDArray[np.int64]:
        return self._number(end.values.astype(np.float64))

    def run(self, first: int, last: int) -> PrefixSums:
        blocks = chain.from_iterable(map(_cut_blocks, self._held))
        numbered = ((part, self._number(part)) for part in blocks)
        parts = [part[(numbers >= first) & (numbers < last)] for part, numbers in numbered]
        x = np.sort(np.concatenate([*parts, np.empty(0)]))
        around = self._surround(first, last, np.ones(len(x), dtype=np.int64))
        return PrefixSums.of(np.concatenate([[-np.inf], x, [np.nan]]), around)

    def _number(self, part: NDArray[Any]) -> NDArray[np.int64]:
        with np.errstate(over="ignore"):
            number = (part - self._low) * self._scale
        return np.fmax(np.fmin(number, len(self.counts) - 1), 0).astype(np.int64)


def _cut_blocks(values: NDArray[Any]) -> Iterable[NDArray[Any]]:
    return (values[start : start + _BLOCK] for start in range(0, len(values), _BLOCK))
