"""Packed rows: the layout of a row in an integer of 63 bits, and the totals of each unit and group.

Rows are read about 250,000 at a time and stored compactly. If units (and their groups) are numbers without wide gaps,
each row is counted in an array of all of them. Otherwise the integers are kept, eight bytes a row, and sorted in place.
Either way totals are yielded in parts of whole units, so intermediate results are small.

Codes of privacy units that are no small integers: texts, UUIDs, wide integers, timestamps.

A packed row needs its unit as a small integer that belongs to that unit alone: two units of one code would be bounded
as one, and each would then move an answer twice as far as its noise is made for. So hashes are not assumed to be
distinct. All distinct units of a table's column are hashed once (:attr:`CodedUnit.hashes`, without condition or input
of other statements); if two of them have equal hashes, there are no codes. Otherwise a unit's code is the rank of its
hash among all: an injective map, in some fourteen bytes a unit, inaccessible to SQL.

That is valid for the examined rows, so codes belong to one state of the data, whose lifetime the engine determines
(:attr:`dpsql.mechanisms.base.Reader.unit_memory`). If others may change the data, codes are made for one statement, and
only if all its texts see one state (:attr:`dpsql.mechanisms.base.Reader.snapshot`). A hash without a code ends the
route: the plain query is read.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Generator, Iterable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms import base
from dpsql.noise.group_sampling import IntegerArray, find_runs

Hashes = NDArray[np.uint64]

_ROOM_SHARE = 4
"""Codes may take one part in this many of the reader's room, each as much as two rows."""
_WORTH = 4
"""A statement that reads fewer than one in this many rows of the table makes no codes."""
_KEPT = 2
"""The most columns per table with cached codes."""
_CODE_BLOCK = 1 << 15
_STEPS = 4
"""Hashes skipped one by one before bisection: few share the bits used in the first look-up."""
_LAST = (1 << 64) - 1


class ChangedData(Exception):
    """The rows differ from those examined before: a unit has no code, or there are many more rows."""


class UnitCodes:
    """An injective map of distinct ascending ``hashes`` to the integers from 0.

    >>> codes = UnitCodes(np.array([3, 9, 2**63], dtype=np.uint64))
    >>> codes.encode(np.array([9, 2**63, 9, 3], dtype=np.uint64)).tolist()
    [1, 2, 1, 0]
    """

    def __init__(self, hashes: Hashes) -> None:
        self.size = len(hashes)
        self._shift = np.uint64(64 - max(1, self.size.bit_length()))
        # The last is never skipped, so every search ends.
        self._hashes = np.append(hashes, np.uint64(_LAST))
        many = np.bincount((hashes >> self._shift).view(np.int64), minlength=1 << (64 - int(self._shift)))
        self._starts = np.cumsum(many, dtype=np.int32 if self.size < 1 << 31 else np.int64)
        np.subtract(self._starts, many, out=self._starts, casting="same_kind")

    @classmethod
    def of(cls, hashes: Hashes) -> UnitCodes | None:
        """Return the codes of units with these hashes, in any order; None if two units share one."""
        hashes = np.sort(hashes)
        return None if (hashes[1:] == hashes[:-1]).any() else cls(hashes)

    def encode(self, hashes: Hashes) -> IntegerArray:
        """Return the code of each hash; ChangedData if one has none."""
        codes = np.empty(len(hashes), dtype=np.int64)
        for start in range(0, len(hashes), _CODE_BLOCK):
            some, place = hashes[start : start + _CODE_BLOCK], codes[start : start + _CODE_BLOCK]
            place[:] = self._starts.take((some >> self._shift).view(np.int64), mode="clip")
            found = self._hashes.take(place, mode="clip")
            behind = np.flatnonzero(found < some)
            if len(behind):
                self._go_on(some.take(behind), behind, place, found)
            if (found != some).any() or int(place.max()) >= self.size:
                raise ChangedData
        return codes

    def _go_on(self, sought: Hashes, behind: IntegerArray, place: IntegerArray, found: Hashes) -> None:
        """Skip hashes before those sought, and record the places of those found."""
        at = place.take(behind)
        for _ in range(_STEPS):
            at += 1
            here = self._hashes.take(at, mode="clip")
            place[behind], found[behind] = at, here
            left = np.flatnonzero(here < sought)
            if not len(left):
                return
            behind, at, sought = behind.take(left), at.take(left), sought.take(left)
        place[behind] = np.searchsorted(self._hashes, sought)
        found[behind] = self._hashes[place[behind]]


class _Turn:
    """The right to make codes, which one thread has at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


@dataclass(frozen=True)
class CodedUnit:
    """A table's unit column, and the texts that make its codes.

    ``hashes`` returns the hash of each distinct unit, once; ``counts`` the number of the table's rows. ``place``, the
    table's path and the column, is what the second lock requires both this text and the packed rows to read.
    """

    hashes: str
    counts: str
    place: base.UnitPlace

    def find(self, read: base.Reader, rows: int) -> UnitCodes | None:
        """Return the codes, made if worthwhile for a statement of this many rows; None if there are none."""
        memory = read.remember(self.hashes, units=True)
        if memory is not None and self.hashes not in memory:
            self._make(read, rows, memory)
        return self.recall(read)

    def recall(self, read: base.Reader) -> UnitCodes | None:
        """Return the cached codes of the current data."""
        found = (read.remember(self.hashes, units=True) or {}).get(self.hashes)
        return found if isinstance(found, UnitCodes) else None

    def _make(self, read: base.Reader, rows: int, memory: MutableMapping[str, object]) -> None:
        turn = memory.setdefault(f"making {self.hashes}", _Turn())
        assert isinstance(turn, _Turn)
        if not turn.lock.acquire(blocking=False):
            return  # another thread makes them: answer this statement without codes
        try:
            whole = int(read(self.counts).column(0)[0].as_py() or 0)
            if rows * _WORTH < whole or self.hashes in memory:
                return
            found = self._read(read)
            kept = [key for key, value in list(memory.items()) if isinstance(value, UnitCodes)]
            for key in kept[: len(kept) + 1 - _KEPT]:
                del memory[key]
            memory[self.hashes] = found
        finally:
            turn.lock.release()

    def _read(self, read: base.Reader) -> UnitCodes | None:
        parts: list[Hashes] = []
        with contextlib.closing(stream_columns(read, self.hashes)) as tables:
            for table in tables:
                parts += list_chunks(table.column(0))
                if sum(map(len, parts)) * _ROOM_SHARE > read.room:
                    return None
        return UnitCodes.of(np.concatenate([np.empty(0, dtype=np.uint64), *parts]))


def stream_columns(read: base.Reader, sql: str) -> Generator[pa.Table]:
    """Yield the rows of a query in parts, until the generator is closed."""
    yield from read.stream_parts(sql)


def list_chunks(column: pa.ChunkedArray) -> list[NDArray[Any]]:
    """Return the parts of a column of numbers as arrays, without a copy."""
    return [np.from_dlpack(chunk) for chunk in column.chunks if len(chunk)]  # to_numpy would import pandas


BITS = 63
GROUP_BITS = 24
"""The most bits of group codes for which an array of all groups is worthwhile."""
_SPARSE = 4
"""The most cells per row, in arrays of all units and groups, for which rows are counted instead of sorted."""
_PART = 1 << 16
"""Rows or cells of one part: arrays below a few hundred KiB reuse memory."""
_HALVED = 1 << 18
"""The most rows sorted by one thread."""
_BLOCK = 1 << 16
"""Rows processed at once, fitting a core's cache."""


@dataclass(frozen=True)
class PackedRoute:
    """One way to the totals: the source of packed rows, and the query that finishes their totals.

    ``source`` is a SELECT of ``u``, the integer ``keys`` and the columns in the values' SQL. ``final`` turns the totals
    (the keys' columns, each tally, the units) into the rows of the plan's query. ``dense``: only if the public groups
    are all numbers between the keys' ends.
    """

    keys: tuple[str, ...]
    source: str
    final: str
    dense: bool = False


@dataclass(frozen=True)
class Layout:
    """The layout of the bits: from the top the unit, the keys, and the values with the first lowest.

    Args:
        low, units: the least unit, and the size of the range of units.
        lows, sizes: for each key its least value, and the number of its values including NULL, which is 0.
        counted: whether arrays of all units and groups are worthwhile.
    """

    route: PackedRoute
    low: int
    lows: tuple[int, ...]
    sizes: tuple[int, ...]
    units: int
    value_bits: tuple[int, ...]
    counted: bool = False

    @property
    def group_bits(self) -> int:
        return sum(map(count_bits, self.sizes))

    @property
    def shift(self) -> int:
        """The bits of all values, which are the lowest."""
        return sum(self.value_bits)

    @property
    def bits(self) -> int:
        return count_bits(self.units) + self.group_bits + self.shift

    @property
    def cells(self) -> int:
        """The groups of all units, including those without rows."""
        return self.units * math.prod(self.sizes)

    @property
    def kind(self) -> type[Any]:
        """The narrowest type for the integers: less memory, faster sorting."""
        return np.uint32 if self.bits <= 32 else np.int64

    def counts_for(self, rows: int) -> bool:
        """Return whether arrays of all cells are worthwhile for this many rows."""
        return self.cells * (1 + len(self.value_bits)) <= _SPARSE * rows

    def fields(self) -> list[tuple[str, int, int]]:
        """Return each key with its least value and the number of its values, the lowest bits first."""
        return list(zip(self.route.keys, self.lows, self.sizes, strict=True))[::-1]

    def values(self) -> Iterator[tuple[int, int]]:
        """Yield the first bit of each value, and its mask."""
        at = 0
        for bits in self.value_bits:
            yield at, (1 << bits) - 1
            at += bits


def count_bits(size: int) -> int:
    """Return the bits needed for ``size`` values."""
    return (size - 1).bit_length()


@dataclass(frozen=True)
class UnitPart:
    """Totals of some units, one entry per unit and group; ``sums``: each value's number of rows, and their sum."""

    units: IntegerArray
    codes: IntegerArray
    rows: IntegerArray
    sums: list[IntegerArray]


def total_parts(
    read: base.Reader, sql: str, layout: Layout, rows: int, codes: UnitCodes | None = None
) -> Iterator[UnitPart]:
    """Yield the totals of all units and groups, part by part.

    ``sql``: returns one integer per row, or the hash of a unit and an integer without the unit.

    Raises:
        ChangedData: a row's unit has no code, or the number of rows has changed.
    """
    with contextlib.closing(stream_columns(read, sql)) as tables:
        parts = (part for table in tables for part in _list_packed(table, layout, codes))
        if layout.counted:
            cells = CellCounts(layout, 2 * rows)
            cells.add_all(parts)
            return cells.parts()
        return sort_pairs(_gather(parts, layout, rows), layout, read.threads)


def _list_packed(table: pa.Table, layout: Layout, codes: UnitCodes | None) -> Iterator[IntegerArray]:
    if codes is None:
        yield from list_chunks(table.column(0).cast(pa.int64()))
        return
    top = layout.group_bits + layout.shift
    rest = list_chunks(table.column(1).cast(pa.int64())) if top else []
    for at, hashes in enumerate(list_chunks(table.column(0))):
        if top and (len(rest[at]) != len(hashes) or int(rest[at].min()) < 0 or int(rest[at].max()) >> top):
            raise ChangedData
        for start in range(0, len(hashes), _BLOCK):
            packed = codes.encode(hashes[start : start + _BLOCK])
            if top:
                packed <<= top
                packed |= rest[at][start : start + _BLOCK]
            yield packed


def _gather(parts: Iterable[IntegerArray], layout: Layout, rows: int) -> IntegerArray:
    """Concatenate parts into one array, made for ``rows`` rows and extended if there are more."""
    whole = np.empty(rows, dtype=layout.kind)
    at = 0
    for part in parts:
        if at + len(part) > len(whole):
            whole = np.concatenate([whole[:at], np.empty(len(part) + at // 8, dtype=whole.dtype)])
        whole[at : at + len(part)] = part
        at += len(part)
    return whole[:at]


# -- sorting ----------------------------------------------------------------------------------------------------------


def sort_pairs(packed: IntegerArray, layout: Layout, threads: int = 1) -> Iterator[UnitPart]:
    """Sort packed rows in place, and yield their totals part by part."""
    _sort(packed, threads)
    top = layout.group_bits + layout.shift
    at = 0
    while at < len(packed):
        end = min(len(packed), at + _PART)
        following = ((int(packed[end - 1]) >> top) + 1) << top
        if following > int(packed[-1]):
            end = len(packed)
        else:
            end = at + int(np.searchsorted(packed[at:], packed.dtype.type(following)))
        yield _add_up(packed[at:end], layout)
        at = end


def _sort(values: IntegerArray, threads: int) -> None:
    """Sort an array in place: partitioned at its middle, the halves are sorted concurrently."""
    middle = len(values) // 2
    if threads < 2 or middle < _HALVED:
        values.sort()
        return
    values.partition(middle)
    with ThreadPoolExecutor(1) as beside:
        other = beside.submit(_sort, values[:middle], threads // 2)
        _sort(values[middle:], threads - threads // 2)
        other.result()


def _add_up(packed: IntegerArray, layout: Layout) -> UnitPart:
    starts = find_runs(packed, layout.shift)
    rows = np.diff(starts, append=len(packed))
    pairs = packed[starts].astype(np.int64) >> layout.shift
    sums: list[IntegerArray] = []
    for at, mask in layout.values():
        value = packed >> at if at else packed
        value = value & mask
        there = value > 0
        sums.append(rows if there.all() else np.add.reduceat(there, starts, dtype=np.int64))
        sums.append(np.add.reduceat(value, starts, dtype=np.int64))
    return UnitPart(pairs >> layout.group_bits, pairs & ((1 << layout.group_bits) - 1), rows, sums)


# -- counting ---------------------------------------------------------------------------------------------------------


@dataclass
class CellCounts:
    """Arrays over all groups of all units, into which rows are counted: without sorting, and exactly.

    If the rows and the sum of the first value fit one integer, they share an array: uncached access dominates the time.
    """

    layout: Layout
    most_rows: int
    """The most rows expected."""
    rows: IntegerArray = field(init=False)
    sums: list[IntegerArray] = field(init=False)
    absent: list[IntegerArray | None] = field(init=False)
    """For each value that may be missing, the rows without it."""
    shared: int = 0
    """The bits below the rows in their array for the first sum; 0 if it has a separate array."""

    def __post_init__(self) -> None:
        self._left = self.most_rows
        bits = self.layout.value_bits
        if bits and bits[0] + 2 * self.most_rows.bit_length() <= BITS:
            self.shared = bits[0] + self.most_rows.bit_length()
        self.rows = self._array()
        self.sums = [self._array() for _ in bits[1 if self.shared else 0 :]]
        self.absent = [None] * len(bits)

    def _array(self) -> IntegerArray:
        return np.zeros(self.layout.cells, dtype=np.int64)

    def add_all(self, parts: Iterable[IntegerArray]) -> None:
        """Count packed rows; ChangedData if there are more than expected, whose sums might overflow."""
        for part in parts:
            self._left -= len(part)
            if self._left < 0:
                raise ChangedData
            for start in range(0, len(part), _BLOCK):
                self.add(part[start : start + _BLOCK])

    def add(self, packed: IntegerArray) -> None:
        """Count some packed rows that fit a core's cache."""
        cell = self._place(packed >> self.layout.shift)
        own = list(self.sums)
        for i, (at, mask) in enumerate(self.layout.values()):
            value = (packed >> at if at else packed) & mask
            lacking = np.flatnonzero(value == 0)
            if len(lacking):
                missing = self.absent[i]
                if missing is None:
                    missing = self.absent[i] = self._array()
                np.add.at(missing, cell[lacking], 1)
            if i == 0 and self.shared:
                value |= 1 << self.shared
                np.add.at(self.rows, cell, value)
            else:
                np.add.at(own.pop(0), cell, value)
        if not self.shared:
            np.add.at(self.rows, cell, 1)

    def _place(self, pairs: IntegerArray) -> IntegerArray:
        """Return the cells of units with their groups' bits: numbers without gaps, in unchanged order."""
        if not self.layout.sizes:
            return pairs
        at = self.layout.group_bits
        cell = pairs >> at
        for size in self.layout.sizes:
            at -= count_bits(size)
            cell *= size
            cell += (pairs >> at) & ((1 << count_bits(size)) - 1)
        return cell

    def parts(self) -> Iterator[UnitPart]:
        """Yield the totals of whole units."""
        codes = self._list_codes()
        size = len(codes)
        many = max(1, _PART // size)
        for start in range(0, len(self.rows), many * size):
            part = slice(start, start + many * size)
            there = np.flatnonzero(self.rows[part] != 0)  # six times as fast as on the integers
            rows, sums = self.rows[part].take(there), [total[part].take(there) for total in self.sums]
            if self.shared:
                sums.insert(0, rows & ((1 << self.shared) - 1))
                rows >>= self.shared
            each: list[IntegerArray] = []
            for total, absent in zip(sums, self.absent, strict=True):
                each += [rows if absent is None else rows - absent[part].take(there), total]
            units = there // size if size > 1 else there
            yield UnitPart(units + start // size, codes.take(there - units * size), rows, each)

    def _list_codes(self) -> IntegerArray:
        """Return the bits of all groups of one unit, in the order of its cells."""
        codes = np.zeros(1, dtype=np.int64)
        for size in self.layout.sizes:
            codes = ((codes << count_bits(size))[:, None] | np.arange(size)).ravel()
        return codes


def split_keys(codes: IntegerArray, layout: Layout) -> Iterator[tuple[str, IntegerArray, NDArray[np.bool_]]]:
    """Yield each key's values of group codes, and which of them are not NULL, the last key first."""
    for key, least, many in layout.fields():
        own = codes & ((1 << count_bits(many)) - 1)
        yield key, own - 1 + least, own > 0
        codes = codes >> count_bits(many)
