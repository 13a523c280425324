"""Exact totals without a hash table: one integer per row, sorted.

Bounding contributions needs the totals of every unit, or of every pair of unit and group: a grouping of millions, the most
expensive step. If the unit, the group and the values of a row fit 63 bits together, one sorted array takes a third of the
time. It is read some 250,000 rows at a time, and yields totals in parts of whole units. Other data are read by the plan's own
query.

Route and query give totals with equally distributed bounds: per unit clamped or weighted, and at most ``groups`` groups of
each unit, or a number of rows shared by all its groups, by independent random numbers. The route depends on exact numbers
(ranges, the number of rows) that stay in here: both release the same distribution, and read equally often.

*Codes of units that are no small integers: texts, UUIDs, wide integers, timestamps.* Two units of one code would be bounded
as one, and move an answer twice as far as its noise is made for. So all distinct units of a table's column are hashed once
(:attr:`CodedUnit.hashes`); if two have equal hashes, there are no codes. Otherwise a unit's code is the rank of its hash.
Codes are inaccessible to SQL, and belong to one state of the data (:attr:`dpsql.mechanisms.base.Reader.unit_memory`). If
others may change the data, they are made for one statement, whose texts all see one state
(:attr:`dpsql.mechanisms.base.Reader.snapshot`). A hash without a code ends the route: the plain query is read.
"""

from __future__ import annotations

import contextlib
import math
import threading
from _thread import LockType
from collections.abc import Generator, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms import base
from dpsql.mechanisms.fast import FastRoute
from dpsql.mechanisms.queries import As, Select, Subquery
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import IntegerArray, choose_groups, find_runs, share_rows
from dpsql.numerics.exact_numbers import NumberArray, make_longs, make_values

Hashes = NDArray[np.uint64]

_ROOM_SHARE = 4
"""Codes may take one part in this many of the reader's room, each as much as two rows."""
_WORTH = 4
"""A statement that reads fewer than one in this many rows of the table makes no codes."""
_KEPT_CODES = 2
"""The most columns per table with cached codes."""
_CODE_BLOCK = 1 << 15
_STEPS = 4
"""Hashes skipped one by one before bisection: few share the bits used in the first look-up."""
_LAST = (1 << 64) - 1


class ChangedData(Exception):
    """The rows differ from those examined before: a unit has no code."""


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


@dataclass(frozen=True)
class CodedUnit:
    """A table's unit column, and the texts that make its codes.

    ``hashes`` returns the hash of each distinct unit, once; ``counts`` the number of the table's rows. The second lock requires
    this text and the packed rows to read ``place``, the table's path and the column.
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
        turn = memory.setdefault(f"making {self.hashes}", threading.Lock())
        assert isinstance(turn, LockType)
        if not turn.acquire(blocking=False):
            return  # another thread makes them: answer this statement without codes
        try:
            whole = int(read(self.counts).column(0)[0].as_py() or 0)
            if rows * _WORTH < whole or self.hashes in memory:
                return
            _keep(memory, self.hashes, self._read(read), UnitCodes, _KEPT_CODES)
        finally:
            turn.release()

    def _read(self, read: base.Reader) -> UnitCodes | None:
        parts: list[Hashes] = []
        with contextlib.closing(stream_columns(read, self.hashes)) as tables:
            for table in tables:
                parts += list_chunks(table.column(0))
                if sum(map(len, parts)) * _ROOM_SHARE > read.room:
                    return None
        return UnitCodes.of(np.concatenate([np.empty(0, dtype=np.uint64), *parts]))


def _keep(memory: MutableMapping[str, object], key: str, value: object, kind: type, most: int) -> None:
    """Cache a value, and at most this many of a kind."""
    known = [name for name, held in list(memory.items()) if isinstance(held, kind)]
    for name in known[: max(0, len(known) + 1 - most)]:
        memory.pop(name, None)
    memory[key] = value


def stream_columns(read: base.Reader, sql: str) -> Generator[pa.Table]:
    """Yield the rows of a query in parts, until the generator is closed."""
    yield from read.stream_parts(sql)


def list_chunks(column: pa.ChunkedArray) -> list[NumberArray]:
    """Return the parts of a column of numbers as arrays, without a copy."""
    return [np.from_dlpack(chunk) for chunk in column.chunks if len(chunk)]  # to_numpy would import pandas


BITS = 63
GROUP_BITS = 24
"""The most bits of group codes for which an array of all groups is worthwhile."""
_PART = 1 << 16
"""Rows of one part: arrays below a few hundred KiB reuse memory."""
_HALVED = 1 << 18
"""The most rows sorted by one thread."""
_BLOCK = 1 << 16
"""Rows processed at once, fitting a core's cache."""


@dataclass(frozen=True)
class PackedRoute:
    """One way to the totals: the source of packed rows, and the query that finishes their totals.

    ``source`` selects ``u``, the integer ``keys`` and the columns in the values' SQL. ``final`` turns the totals (the keys'
    columns, each tally, the units) into the rows of the plan's query. ``dense``: only if the public groups are all numbers
    between the keys' ends.
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
    """

    route: PackedRoute
    low: int
    lows: tuple[int, ...]
    sizes: tuple[int, ...]
    units: int
    value_bits: tuple[int, ...]

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
    def kind(self) -> type[np.generic]:
        """The narrowest type for the integers: less memory, faster sorting."""
        return np.uint32 if self.bits <= 32 else np.int64

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
        ChangedData: a row's unit has no code.
    """
    with contextlib.closing(stream_columns(read, sql)) as tables:
        parts = (part for table in tables for part in _list_packed(table, layout, codes))
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


def split_keys(codes: IntegerArray, layout: Layout) -> Iterator[tuple[str, IntegerArray, NDArray[np.bool_]]]:
    """Yield each key's values of group codes, and which of them are not NULL, the last key first."""
    for key, least, many in layout.fields():
        own = codes & ((1 << count_bits(many)) - 1)
        yield key, own - 1 + least, own > 0
        codes = codes >> count_bits(many)


# -- aggregation -------------------------------------------------------------------------------------------------------

PACKED_TOTALS = "dpsql_totals"
"""The name of the relation of totals."""

_SAFE = 1 << 62
_FEW_ROWS = 1 << 18
"""With fewer rows, one grouping by unit is as fast."""
_KEPT = 50
"""The most texts per table with cached ranges."""


@dataclass(frozen=True)
class PackedValue:
    """A packed value: ``sql`` is 0 for a row without one, else 1 to ``most``."""

    sql: str
    most: int


class PackedValues:
    """The packed values, each once per pair of clamping bounds."""

    def __init__(self) -> None:
        self.packed: list[PackedValue] = []
        self._places: dict[tuple[str, int, int], int] = {}
        self._first: dict[str, int] = {}

    @property
    def fit(self) -> bool:
        """Whether they leave a bit for the unit in one integer."""
        return sum(value.most.bit_length() for value in self.packed) < BITS

    def add_held(self, y: str, low: int, high: int) -> int:
        """Return the index of a value clamped to these bounds, added if new."""
        place = self._places.get((y, low, high))
        if place is not None:
            return place
        self._places[y, low, high] = len(self.packed)
        return self._append(y, PackedValue(_held(y, low, high), 2 * (high - low + 1)))

    def add_present(self, y: str) -> int:
        """Return the index of a value with any bounds, added if new: it is only counted."""
        if (place := self._first.get(y)) is not None:
            return place
        return self._append(y, PackedValue(f"CASE WHEN {y} IS NULL THEN 0 ELSE 1 END", 1))

    def _append(self, y: str, value: PackedValue) -> int:
        self._first.setdefault(y, len(self.packed))
        self.packed.append(value)
        return len(self.packed) - 1


def _held(y: str, low: int, high: int) -> str:
    """Return twice a value clamped to its bounds, counted from 1, without branch or shift; 0 for a missing value."""
    return f"COALESCE(ABS({y} - ({low})) - ABS({y} - ({high})) + {high - low + 2}, 0)"


@dataclass(frozen=True)
class UnitTotal:
    """One exact integer per group: the total of a unit's rows in it, clamped to ``[low, high]``.

    Without a ``value`` it counts rows; else it counts the rows with the value or, with ``adds``, adds the value less ``less``.
    With ``rows``, it is weighed instead: each of a unit's n rows that have the value weighs ``min(1, rows / n)``, in parts of
    ``scale``, a power of two, rounded down. Such a total may be too wide for 64 bits, so it is two: of wholes, and of what is
    left of each unit's below one (:attr:`columns`).
    """

    name: str
    low: int
    high: int
    value: int | None = None
    adds: bool = False
    less: int = 0
    rows: int | None = None
    scale: int = 1
    all_rows: bool = False
    """Whether the weight is by all rows of the unit in the group, and not by those that have the value."""

    @property
    def far(self) -> int:
        """The sensitivity to one unit, in parts if it is weighted."""
        return self.scale * max(abs(self.low), abs(self.high))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its total: one, or the wholes and the rest."""
        return (self.name,) if self.rows is None else (self.name, f"{self.name}_rest")

    def total(self, whole: int, rest: int = 0) -> int:
        return whole * self.scale + rest

    @property
    def sql(self) -> str:
        halves = f"CAST({self.name} AS HUGEINT) * {self.scale} + {self.name}_rest"
        return self.name if self.rows is None else halves


@dataclass(frozen=True)
class PackedAggregation(FastRoute[pa.Table]):
    """The totals of the plain query, computed from packed rows.

    ``ranges`` returns one row: ``n``, ``u_low``, ``u_high``, the least and the greatest value of each key (for coded groups 0
    and the last code), and ``listed``, the number of public groups. Without keys there is one route, whose totals are the
    answer.
    """

    ranges: str
    routes: tuple[PackedRoute, ...]
    values: tuple[PackedValue, ...]
    tallies: tuple[UnitTotal, ...]
    units: str
    groups: int | None
    shared: tuple[int, int] | None = None
    """The most rows of a unit in one group, and in all, if its groups share them."""
    coded: CodedUnit | None = None
    """The codes of the units, if these are no small integers: then rows are a unit's hash and an integer."""
    wide: PackedAggregation | None = None
    """The route by groups with codes, for integer units with wide gaps."""

    def claims(self, plain: base.SumsClaim) -> Iterator[base.ClaimedText]:
        """Yield the texts with their claims; ``plain`` is that of the plain query. Packed rows have zeros for the ranges."""
        yield base.ClaimedText(self.ranges, base.RouteClaim(), late=True)
        place = None
        if self.coded is not None:
            place = self.coded.place
            yield base.ClaimedText(self.coded.hashes, base.CodesClaim(place), late=True)
            yield base.ClaimedText(self.coded.counts, base.RouteClaim(), late=True)
        tallies = (*((t.name, t.far) for t in self.tallies), (self.units, 1))
        halves = {t.name: (t.columns[1], t.scale) for t in self.tallies if len(t.columns) > 1}
        most = tuple(v.most for v in self.values)
        for route in self.routes:
            keys = len(route.keys)
            packing = base.PackingClaim(keys, most, tallies, plain.columns, self.groups, place)
            rows = self._rows(Layout(route, 0, (0,) * keys, (1,) * keys, 1, ()))
            yield base.ClaimedText(rows, packing, late=True)
            if keys:
                totals = base.LentTotals(
                    route.keys, dict(tallies), self.groups, halves, self.shared is not None
                )
                yield base.ClaimedText(route.final, plain, {PACKED_TOTALS: totals}, late=True)
        if self.wide is not None:
            yield from self.wide.claims(plain)

    def take(self, read: base.Reader, entropy: Entropy) -> pa.Table | None:
        with self._hold_still(read) as still:
            found = self._layout(still)
            parts = None if found is None else self._read_parts(still, *found)
        wide = self.wide if found is None else None
        if wide is not None and (wide._may_keep(read) or read.snapshot is not None):
            return wide.take(read, entropy)
        if found is None or parts is None:
            self._read_none(read)
            return None
        layout, _, _ = found
        if not layout.route.keys:
            return self._whole(parts)
        totals = _Totals(1 << layout.group_bits, self.columns)
        for part in parts:
            totals.add(*self._bound(part, entropy))
        return read(layout.route.final, {PACKED_TOTALS: self._table(totals, layout)})

    def _read_parts(
        self, read: base.Reader, layout: Layout, rows: int, codes: UnitCodes | None
    ) -> Iterator[UnitPart] | None:
        """Read all rows, and return their totals; None if the data changed meanwhile."""
        with contextlib.suppress(ChangedData):
            parts = total_parts(read, self._rows(layout), layout, rows, codes)
            if self.coded is None or self.coded.recall(read) is codes:
                return parts
        return None

    def _may_keep(self, read: base.Reader) -> bool:
        return self.coded is not None and read.remember(self.coded.hashes, units=True) is not None

    def is_worth_reading(self, read: base.Reader, plain: str) -> bool:
        """Return whether this is likely faster than the plain query: rows may leave the engine, and are not few.

        Without groups the plain query is faster for more rows, and if units need codes that can't be cached.
        """
        if not read.room or read.reads_little(plain):
            return False
        if self.routes[-1].keys:
            return True
        few = 0 < read.estimate_rows(plain) < _FEW_ROWS
        return not few and (self.coded is None or self._may_keep(read))

    @contextlib.contextmanager
    def _hold_still(self, read: base.Reader) -> Iterator[base.Reader]:
        """Return a reader whose texts see one state of the data, if codes are needed and none can be cached."""
        if self.coded is None or read.snapshot is None or self._may_keep(read):
            yield read
            return
        with read.snapshot(read.write(self.coded.hashes)) as memory:
            yield read if memory is None else replace(read, memory=None, unit_memory=lambda _: memory)

    def _read_none(self, read: base.Reader) -> None:
        """Read as often as if the data fit."""
        if self.routes[-1].keys:
            read(self.routes[-1].final, {PACKED_TOTALS: self._table(_Totals(0, self.columns))})

    def _bound(self, part: UnitPart, entropy: Entropy) -> tuple[IntegerArray, list[IntegerArray]]:
        """Return the kept groups of each unit in a part, and its contribution to each column there."""
        codes, count, sums = part.codes, part.rows, part.sums
        rows, kept = None, None
        if self.shared is not None:
            most, budget = self.shared
            rows = share_rows(part.units, np.minimum(count, most), budget, entropy)
            kept = None if rows is None else rows > 0
        elif self.groups is not None:
            kept = choose_groups(part.units, self.groups, entropy)
        if kept is not None:
            places = np.flatnonzero(kept)  # looking these up is faster than applying a mask five times
            codes, count, sums = codes.take(places), count.take(places), [s.take(places) for s in sums]
            rows = None if rows is None else rows.take(places)
        return codes, [added for _, added in _contributions(self.tallies, count, sums, rows, self.shared)]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for tally in self.tallies for name in tally.columns)

    # -- packing ------------------------------------------------------------------------------------------------

    def _layout(self, read: base.Reader) -> tuple[Layout, int, UnitCodes | None] | None:
        """Return the position of a row's parts, the number of rows, and the codes of units, if any."""
        row = self._find_ranges(read)
        n, low, high = row["n"], row["u_low"], row["u_high"]
        if not n or n > read.room or low is None:
            return None
        most = max([1, *(v.most for v in self.values), *(max(abs(t.low), abs(t.high)) for t in self.tallies)])
        if n * most >= _SAFE or any(t.far >= _SAFE for t in self.tallies):
            return None
        bits = tuple(v.most.bit_length() for v in self.values)
        codes = None if self.coded is None else self.coded.find(read, n)
        if self.coded is not None and codes is None:
            return None
        units = int(high) - int(low) + 1 if codes is None else codes.size
        for route in self.routes:
            ends = [(row[f"{key}_low"], row[f"{key}_high"]) for key in route.keys]
            lows = tuple(0 if least is None else int(least) for least, _ in ends)
            # 0 represents NULL
            sizes = tuple(2 if least is None else int(last) - int(least) + 2 for least, last in ends)
            if route.dense and math.prod(size - 1 for size in sizes) != row["listed"]:
                continue
            layout = Layout(route, int(low), lows, sizes, units, bits)
            if layout.group_bits <= GROUP_BITS and layout.bits <= BITS:
                return layout, n, codes
        return None

    def _find_ranges(self, read: base.Reader) -> Mapping[str, Any]:
        """Read the ranges; once, if the data are unchanged and the text reads nothing else."""
        memory = None if read.lent else read.remember(self.ranges)
        found = None if memory is None else memory.get(self.ranges)
        if not isinstance(found, _Ranges):
            found = _Ranges(read(self.ranges).to_pylist()[0])
            if memory is not None:
                _keep(memory, self.ranges, found, _Ranges, _KEPT)
        return found.row

    def _rows(self, layout: Layout) -> str:
        """Return the query for the packed rows, without rows outside the ranges read before."""
        shift = layout.shift
        route, parts, inside = layout.route, [], []
        if self.coded is None:
            inside.append(f"u BETWEEN {layout.low} AND {layout.low + layout.units - 1}")
        for key, least, size in reversed(list(zip(route.keys, layout.lows, layout.sizes, strict=True))):
            code = f"COALESCE(CAST({key} AS BIGINT) - ({least}) + 1, 0)"
            parts.append(f"{code} * {1 << shift}")
            null = "" if route.dense else f"{key} IS NULL OR "
            inside.append(f"({null}{key} BETWEEN {least} AND {least + size - 2})")
            shift += count_bits(size)
        if self.coded is None:
            parts.append(f"(CAST(u AS BIGINT) - ({layout.low})) * {1 << shift}")
        shift = 0
        for value, bits in zip(self.values, layout.value_bits, strict=False):
            parts.append(f"({value.sql}) * {1 << shift}")
            shift += bits
        items = [] if self.coded is None else [As("HASH(u)", "h")]
        items += [As(" + ".join(parts), "p")] if parts else []
        return Select(tuple(items), Subquery(route.source, "rows"), tuple(inside)).sql

    # -- adding up ----------------------------------------------------------------------------------------------

    def _whole(self, parts: Iterable[UnitPart]) -> pa.Table:
        totals, units = dict.fromkeys(self.columns, 0), 0
        for part in parts:
            units += len(part.rows)
            for name, added in _contributions(self.tallies, part.rows, part.sums):
                totals[name] += int(added.sum())
        columns = {t.name: _integer(t.total(*(totals[name] for name in t.columns))) for t in self.tallies}
        return pa.table({**columns, self.units: make_longs(np.array([units]))})

    def _table(self, totals: _Totals, layout: Layout | None = None) -> pa.Table:
        present = np.flatnonzero(totals.units)
        columns: dict[str, pa.Array] = {}
        for key, own, there in [] if layout is None else split_keys(present, layout):
            columns[key] = make_longs(own, there)
        for key in self.routes[-1].keys if layout is None else ():
            columns[key] = make_longs(present)
        for name, sums in totals.sums.items():
            columns[name] = make_longs(sums[present])
        columns[self.units] = make_longs(totals.units[present])
        return pa.table(columns)


@dataclass(frozen=True)
class _Ranges:
    row: Mapping[str, object]


class _Totals:
    """The totals of all groups by code: exact as long as a column's total stays within 62 bits."""

    def __init__(self, size: int, names: Iterable[str]) -> None:
        self.units = np.zeros(size, dtype=np.int64)
        self.sums = {name: np.zeros(size, dtype=np.int64) for name in names}

    def add(self, codes: IntegerArray, added: Sequence[IntegerArray]) -> None:
        """Add each unit's contribution to each column in a group."""
        np.add.at(self.units, codes, 1)
        for sums, values in zip(self.sums.values(), added, strict=True):
            np.add.at(sums, codes, values)


def _contributions(
    tallies: Sequence[UnitTotal],
    rows: IntegerArray,
    sums: list[IntegerArray],
    counted: IntegerArray | None = None,
    shared: tuple[int, int] | None = None,
) -> Iterator[tuple[str, IntegerArray]]:
    """Yield each unit's contribution to each column of the tallies.

    Args:
        rows: of each unit and group.
        sums: for each value the rows that have it, and their sum.
        counted: the number of rows that count, if different; the tallies are for the first number of ``shared``.
    """
    weights: dict[tuple[int | None, int, bool], tuple[NDArray[np.intp], IntegerArray]] = {}
    for tally in tallies:
        many = rows if tally.value is None else sums[2 * tally.value]
        exact = many
        if tally.adds and tally.value is not None:
            exact = (sums[2 * tally.value + 1] >> 1) - tally.less * many  # the sums are doubled
        if tally.rows is None:
            low, high = (
                end if counted is None or shared is None else end // shared[0] * counted
                for end in (tally.low, tally.high)
            )
            yield tally.name, np.clip(exact, low, high)
            continue
        key = (tally.value, tally.rows, tally.all_rows)
        of = rows if tally.all_rows else many
        if key not in weights:
            most = tally.rows if counted is None else counted
            above = np.flatnonzero(of > most)
            weights[key] = above, np.full(len(above), most) if isinstance(most, int) else most[above]
        above, most_rows = weights[key]
        whole, rest = exact, np.zeros(len(exact), dtype=np.int64)
        if len(above):
            whole = exact.copy()
            whole[above], rest[above] = _weigh(
                exact[above], many[above], most_rows, tally.scale, of[above] if tally.all_rows else None
            )
        yield from zip(tally.columns, (whole, rest), strict=True)


def _weigh(
    total: IntegerArray, many: IntegerArray, most: IntegerArray, scale: int, of: IntegerArray | None = None
) -> tuple[IntegerArray, IntegerArray]:
    """Return totals of ``many`` rows that weigh ``most / of`` each, in parts of ``scale``: wholes, and the parts above them.

    All is rounded down as in the plain query: first the weight of the rows, then the total. Without ``of``, the rows are
    those of the unit. The size of a total is at most ``many`` times that of a value, so the wholes are within 62 bits.
    """
    if of is not None:
        n = np.maximum(many, 1).astype(object)
        weight = many.astype(object) * most * scale // of
        parts = total.astype(object) // n * weight + total.astype(object) % n * weight // n
        return (parts // scale).astype(np.int64), (parts % scale).astype(np.int64)
    wide = int(many.max()) * max(int(most.max()), scale) >= _SAFE
    kind = object if wide else np.int64
    size, n, m = (values.astype(kind) for values in (total, many, most))
    left = size % n * m
    whole, rest = size // n * m + left // n, left % n * scale // n
    return whole.astype(np.int64), rest.astype(np.int64)


def _integer(value: int) -> pa.Array:
    """Return a column of one integer, in 64 bits if it fits."""
    wide = not -_SAFE < value < _SAFE
    return make_values([value], pa.decimal128(38, 0)) if wide else make_longs(np.array([value]))
