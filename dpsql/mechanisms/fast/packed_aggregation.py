"""Exact totals without a hash table: one integer per row, sorted or counted.

Bounding what a privacy unit moves needs the totals of every unit, or of every pair of unit and group: a grouping of
millions, which costs the most. Where the unit, the group and the values of a row fit 63 bits together, one sorted
array says the same in a third of the time; and where units alone are numbers without wide gaps, counting by them needs
no sorting either. It holds a few times eight bytes a row, so it is for engines on this machine and for as many rows as
their memory allows; else the plan's own query is read, which may spill. Both give totals that are bounded alike: per
unit clamped or weighed, and at most ``groups`` groups of each unit, or so many rows shared by all its groups, by random
numbers of its own.

What the route depends on (ranges, the number of rows) is exact and stays in here: both routes release the same
distribution, and read as often.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms import base
from dpsql.mechanisms.fast import FastRoute
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import IntegerArray, choose_groups, find_runs, share_rows
from dpsql.numerics.exact_numbers import make_longs

PACKED_TOTALS = "dpsql_totals"
"""The name under which the totals are lent."""

_BITS = 63
_GROUP_BITS = 24
"""The bits of group codes beyond which an array of all groups would be larger than its content."""
_SPARSE = 4
"""The most unit numbers per row for which units are counted by number."""
_SAFE = 1 << 62
_EXACT = 1 << 53
_HALF = 26


@dataclass(frozen=True)
class PackedValue:
    """A packed value: ``sql`` is 0 where a row has none, else 1 to ``most``."""

    sql: str
    most: int


class PackedValues:
    """The values that are packed, each once for each pair of bounds that it is held to."""

    def __init__(self) -> None:
        self.packed: list[PackedValue] = []
        self._places: dict[tuple[str, int, int], int] = {}
        self._first: dict[str, int] = {}

    @property
    def fit(self) -> bool:
        """Return whether they leave a bit for the unit in one integer."""
        return sum(value.most.bit_length() for value in self.packed) < _BITS

    def add_held(self, y: str, low: int, high: int) -> int:
        """Return the place of a value that is held to these bounds; it is added if it is new."""
        place = self._places.get((y, low, high))
        if place is not None:
            return place
        self._places[y, low, high] = len(self.packed)
        return self._append(y, PackedValue(_held(y, low, high), high - low + 1))

    def add_present(self, y: str) -> int:
        """Return a place where a value is packed, held to whatever bounds; what is only counted is added."""
        if (place := self._first.get(y)) is not None:
            return place
        return self._append(y, PackedValue(f"CASE WHEN {y} IS NULL THEN 0 ELSE 1 END", 1))

    def _append(self, y: str, value: PackedValue) -> int:
        self._first.setdefault(y, len(self.packed))
        self.packed.append(value)
        return len(self.packed) - 1


def _held(y: str, low: int, high: int) -> str:
    """Return a value clamped to its bounds, counted from 1, without branch or division; 0 where there is none."""
    return f"COALESCE((ABS({y} - ({low})) - ABS({y} - ({high})) + {high - low + 2}) >> 1, 0)"


@dataclass(frozen=True)
class UnitTotal:
    """One exact integer per group: the total of a unit's rows in it, clamped to ``[low, high]``.

    ``value`` None counts rows; else the rows that have it, or (``adds``) the sum of it, each less ``less``.

    With ``rows``, it is weighed instead of clamped: each of a unit's n rows that have the value weighs
    ``floor(scale * min(1, rows / n))``, where ``scale`` is a power of two. Such a total may be too wide for 64 bits, so it
    is two: of wholes, and of what is left of each unit's below one (:attr:`columns`).
    """

    name: str
    low: int
    high: int
    value: int | None = None
    adds: bool = False
    less: int = 0
    rows: int | None = None
    scale: int = 1

    @property
    def far(self) -> int:
        """The distance that one unit moves it, in parts where it is weighed."""
        return self.scale * max(abs(self.low), abs(self.high))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of its total: one, or the wholes and the rest."""
        return (self.name,) if self.rows is None else (self.name, f"{self.name}_rest")

    def total(self, whole: int, rest: int = 0) -> int:
        """Return the total of its columns."""
        return whole * self.scale + rest

    @property
    def sql(self) -> str:
        """The total in SQL."""
        halves = f"CAST({self.name} AS HUGEINT) * {self.scale} + {self.name}_rest"
        return self.name if self.rows is None else halves


@dataclass(frozen=True)
class PackedRoute:
    """One way to the totals: the source of packed rows, and the query that finishes their totals.

    ``source`` is a SELECT of ``u``, the integer ``keys`` and what the values' SQL needs. ``final`` turns
    :data:`PACKED_TOTALS` (the keys' columns, each tally, the units) into the rows of the plan's query. ``dense``: only where
    the public groups are all there is between the keys' ends.
    """

    keys: tuple[str, ...]
    source: str
    final: str
    dense: bool = False


@dataclass(frozen=True)
class PackedAggregation(FastRoute[pa.Table]):
    """The same totals as the query beside it, by way of packed rows.

    ``ranges`` gives one row: ``n``, ``u_low``, ``u_high``, by key of any route its least and greatest (for coded groups 0
    and the last code), and ``listed``, how many public groups there are. Without keys there is one route, whose totals
    are the answer.
    """

    ranges: str
    routes: tuple[PackedRoute, ...]
    values: tuple[PackedValue, ...]
    tallies: tuple[UnitTotal, ...]
    units: str
    groups: int | None
    shared: tuple[int, int] | None = None
    """The rows of a unit that count in one group, and in all, where its groups share them."""

    @property
    def queries(self) -> tuple[str, ...]:
        """The text that is read, with zeros for what the ranges would say."""
        found = [self.ranges]
        for route in self.routes:
            keys = len(route.keys)
            found.append(self._rows(_Layout(route, 0, (0,) * keys, (1,) * keys, 1, ())))
            found += [route.final] if route.keys else []
        return tuple(found)

    @property
    def provides(self) -> Mapping[str, base.Columns]:
        keys = dict.fromkeys(key for route in self.routes for key in route.keys)
        names = [*keys, *(c for t in self.tallies for c in t.columns), self.units]
        return {PACKED_TOTALS: [(name, "BIGINT") for name in names]} if keys else {}

    def claims(self, plain: base.Claim) -> Iterator[base.ClaimedText]:
        assert isinstance(plain, base.SumsClaim)
        ranges, *texts = self.queries
        yield base.ClaimedText(ranges, base.RouteClaim())
        tallies = (*((t.name, t.far) for t in self.tallies), (self.units, 1))
        halves = {t.name: (t.columns[1], t.scale) for t in self.tallies if len(t.columns) > 1}
        most = tuple(v.most for v in self.values)
        for route in self.routes:
            packing = base.PackingClaim(len(route.keys), most, tallies, plain.columns, self.groups)
            yield base.ClaimedText(texts.pop(0), packing)
            if route.keys:
                totals = base.LentTotals(
                    route.keys, dict(tallies), self.groups, halves, self.shared is not None
                )
                lent = {PACKED_TOTALS: totals}
                yield base.ClaimedText(texts.pop(0), plain, lent)

    def take(self, read: base.Reader, entropy: Entropy) -> pa.Table | None:
        """Return the rows that the query would give, or None where the data do not fit, or are few."""
        if not read.room or _reads_little(read, self.ranges):
            return None
        layout = self._layout(read)
        if layout is None:
            if self.routes[-1].keys:
                none = np.empty(0, dtype=np.int64)
                nothing = self._totals(none, [none for tally in self.tallies for _ in tally.columns])
                read(self.routes[-1].final, {PACKED_TOTALS: nothing})
            return None
        packed = read(self._rows(layout))
        if not layout.route.keys:
            return self._whole(*(_count_units if layout.counted else _sort_pairs)(packed, layout)[1:])
        pairs, count, sums = _sort_pairs(packed, layout)
        del packed
        codes = pairs & ((1 << layout.group_bits) - 1)
        rows, kept = None, None
        if self.shared is not None:
            most, budget = self.shared
            rows = share_rows(pairs >> layout.group_bits, np.minimum(count, most), budget, entropy)
            kept = None if rows is None else rows > 0
        elif self.groups is not None:
            kept = choose_groups(pairs >> layout.group_bits, self.groups, entropy)
        if kept is not None:
            codes, count, sums = codes[kept], count[kept], [s[kept] for s in sums]
            rows = None if rows is None else rows[kept]
        clamped = [part for _, part in _contributions(self.tallies, count, sums, rows, self.shared)]
        return read(layout.route.final, {PACKED_TOTALS: self._totals(codes, clamped, layout)})

    # -- packing ------------------------------------------------------------------------------------------------

    def _layout(self, read: base.Reader) -> _Layout | None:
        row = read(self.ranges).to_pylist()[0]
        n, low, high = row["n"], row["u_low"], row["u_high"]
        if not n or n > read.room or low is None:
            return None
        most = max([1, *(v.most for v in self.values), *(max(abs(t.low), abs(t.high)) for t in self.tallies)])
        if n * most >= _SAFE or any(t.far >= _SAFE for t in self.tallies):
            return None
        bits = tuple(v.most.bit_length() for v in self.values)
        units = int(high) - int(low) + 1
        for route in self.routes:
            ends = [(row[f"{key}_low"], row[f"{key}_high"]) for key in route.keys]
            lows = tuple(0 if least is None else int(least) for least, _ in ends)
            # 0 stands for NULL
            sizes = tuple(2 if least is None else int(last) - int(least) + 2 for least, last in ends)
            if route.dense and math.prod(size - 1 for size in sizes) != row["listed"]:
                continue
            counted = units <= _SPARSE * n and n * most < _EXACT
            layout = _Layout(route, int(low), lows, sizes, units, bits, counted)
            if layout.group_bits <= _GROUP_BITS and layout.bits <= _BITS:
                return layout
        return None

    def _rows(self, layout: _Layout) -> str:
        """Write the query for one integer per row. Rows that left the ranges since they were read are left out."""
        shift = sum(layout.value_bits)
        route, parts = layout.route, []
        inside = [f"u BETWEEN {layout.low} AND {layout.low + layout.units - 1}"]
        for key, least, size in reversed(list(zip(route.keys, layout.lows, layout.sizes, strict=True))):
            code = f"COALESCE(CAST({key} AS BIGINT) - ({least}) + 1, 0)"
            parts.append(f"{code} * {1 << shift}")
            null = "" if route.dense else f"{key} IS NULL OR "
            inside.append(f"({null}{key} BETWEEN {least} AND {least + size - 2})")
            shift += _bits(size)
        parts.append(f"(CAST(u AS BIGINT) - ({layout.low})) * {1 << shift}")
        shift = 0
        for value, bits in zip(self.values, layout.value_bits, strict=False):
            parts.append(f"({value.sql}) * {1 << shift}")
            shift += bits
        return f"SELECT {' + '.join(parts)} AS p FROM ({route.source}) AS rows WHERE {' AND '.join(inside)}"

    # -- adding up ----------------------------------------------------------------------------------------------

    def _whole(self, rows: IntegerArray, sums: list[IntegerArray]) -> pa.Table:
        """Return the totals of all units, in one row."""
        totals = {name: int(part.sum()) for name, part in _contributions(self.tallies, rows, sums)}
        columns = {t.name: _integer(t.total(*(totals[name] for name in t.columns))) for t in self.tallies}
        return pa.table({**columns, self.units: make_longs(np.array([len(rows)]))})

    def _totals(
        self, codes: IntegerArray, clamped: list[IntegerArray], layout: _Layout | None = None
    ) -> pa.Table:
        size = 0 if layout is None else 1 << layout.group_bits
        units = np.bincount(codes, minlength=size)
        present = np.flatnonzero(units)
        columns: dict[str, Any] = {}
        code = present
        for key, least, many in [] if layout is None else layout.fields():
            own = code & ((1 << _bits(many)) - 1)
            columns[key] = make_longs(own - 1 + least, own > 0)
            code = code >> _bits(many)
        for key in self.routes[-1].keys if layout is None else ():
            columns[key] = make_longs(present)
        names = [name for tally in self.tallies for name in tally.columns]
        for name, values in zip(names, clamped, strict=True):
            columns[name] = make_longs(sum_by_code(codes, values, size)[present])
        columns[self.units] = make_longs(units[present])
        return pa.table(columns)


def _reads_little(read: base.Reader, sql: str) -> bool:
    """Tell whether a query reads small relations alone, where one query is quicker than two."""
    if read.little is None:
        return False
    return read.little(sql if read.exact is None else read.exact(sql, read.lent), read.lent)


def _contributions(
    tallies: Sequence[UnitTotal],
    rows: IntegerArray,
    sums: list[IntegerArray],
    counted: IntegerArray | None = None,
    shared: tuple[int, int] | None = None,
) -> Iterator[tuple[str, IntegerArray]]:
    """Yield what each unit adds to each column of the tallies.

    Args:
        tallies: what is added up.
        rows: of each unit and group.
        sums: for each value the rows that have it, and their sum.
        counted: how many of the rows count, where that differs; the tallies are for the first number of ``shared``.
        shared: as of :class:`PackedAggregation`.
    """
    weights: dict[tuple[int | None, int, int], tuple[NDArray[np.intp], IntegerArray]] = {}
    for tally in tallies:
        many = rows if tally.value is None else sums[2 * tally.value]
        exact = many
        if tally.adds and tally.value is not None:
            exact = sums[2 * tally.value + 1] - tally.less * many
        if tally.rows is None:
            low, high = (
                end if counted is None or shared is None else end // shared[0] * counted
                for end in (tally.low, tally.high)
            )
            yield tally.name, np.clip(exact, low, high)
            continue
        key = (tally.value, tally.rows, tally.scale)
        if key not in weights:
            most = tally.rows if counted is None else counted
            above = np.flatnonzero(many > most)
            taken = most if isinstance(most, int) else most[above]
            weights[key] = above, tally.scale * taken // many[above]
        above, weight = weights[key]
        # All of a unit's rows together weigh ``scale * rows`` at most, so this is at most ``tally.far``: within 62 bits.
        weighed = exact[above] * weight
        whole, rest = exact, np.zeros(len(exact), dtype=np.int64)
        if len(above):
            whole = exact.copy()
            whole[above] = weighed >> (tally.scale.bit_length() - 1)
            rest[above] = weighed & (tally.scale - 1)
        yield from zip(tally.columns, (whole, rest), strict=True)


def _integer(value: int) -> pa.Array:
    """Make a column of one integer, in 64 bits where it fits."""
    wide = not -_SAFE < value < _SAFE
    return pa.array([value], type=pa.decimal128(38, 0)) if wide else make_longs(np.array([value]))


@dataclass(frozen=True)
class _Layout:
    """The layout of the bits: from the top the unit, the keys, and the values with the first lowest."""

    route: PackedRoute
    low: int
    lows: tuple[int, ...]
    sizes: tuple[int, ...]
    units: int
    value_bits: tuple[int, ...]
    counted: bool = False
    """True where arrays of all units are worth having."""

    @property
    def group_bits(self) -> int:
        return sum(map(_bits, self.sizes))

    @property
    def bits(self) -> int:
        return _bits(self.units) + self.group_bits + sum(self.value_bits)

    def fields(self) -> list[tuple[str, int, int]]:
        """Return each key with its least value and the number of its values, the lowest bits first."""
        return list(zip(self.route.keys, self.lows, self.sizes, strict=True))[::-1]

    def values(self) -> Iterator[tuple[int, int]]:
        """Yield the start of each value, and its mask."""
        at = 0
        for bits in self.value_bits:
            yield at, (1 << bits) - 1
            at += bits


def _bits(size: int) -> int:
    return (size - 1).bit_length()


def _chunks(table: pa.Table) -> Iterator[IntegerArray]:
    for chunk in table.column(0).cast(pa.int64()).chunks:
        if len(chunk):
            whole: IntegerArray = np.from_dlpack(chunk)  # type: ignore[assignment]  # to_numpy would import pandas
            yield whole


def _sort_pairs(table: pa.Table, layout: _Layout) -> tuple[IntegerArray, IntegerArray, list[IntegerArray]]:
    """Total by unit and group: the pairs, their rows, and for each value the rows that have it and their sum."""
    packed = np.concatenate([np.empty(0, dtype=np.int64), *_chunks(table)])
    packed.sort()
    shift = sum(layout.value_bits)
    starts = find_runs(packed, shift)
    rows = np.diff(starts, append=len(packed))
    pairs = packed[starts] >> shift
    sums: list[IntegerArray] = []
    fields = list(layout.values())
    for at, mask in fields:
        last = at == fields[-1][0]  # new memory is dear: the array itself is used up at the end
        value = np.right_shift(packed, at, out=packed if last else None) if at else packed
        value = np.bitwise_and(value, mask, out=packed if last else None)
        there = value > 0
        sums.append(rows if there.all() else np.add.reduceat(there, starts, dtype=np.int64))
        sums.append(np.add.reduceat(value, starts))
    return pairs, rows, sums


def _count_units(table: pa.Table, layout: _Layout) -> tuple[IntegerArray, IntegerArray, list[IntegerArray]]:
    """Total by unit alone, without sorting: an array of all units is counted into.

    Sums are taken in doubles, which is exact: all the values together are below 2**53.
    """
    n, shift = table.num_rows, sum(layout.value_bits)
    unit = np.empty(n, dtype=np.int64)
    values = [np.empty(n) for _ in layout.value_bits]
    full = [True] * len(values)
    at = 0
    for part in _chunks(table):
        end = at + len(part)
        np.right_shift(part, shift, out=unit[at:end])
        for i, (low, mask) in enumerate(layout.values()):
            held = (part >> low) & mask if low else part & mask
            full[i] = full[i] and bool(held.all())
            values[i][at:end] = held
        at = end

    def total(weights: NDArray[np.float64] | None = None) -> IntegerArray:
        return np.bincount(unit, weights=weights, minlength=layout.units).astype(np.int64, copy=False)

    rows = total()
    units = np.flatnonzero(rows)
    counts = rows[units]
    sums: list[IntegerArray] = []
    for value, everywhere in zip(values, full, strict=True):
        sums.append(counts if everywhere else total((value > 0).astype(np.float64))[units])
        sums.append(total(value)[units])
    return units, counts, sums


def sum_by_code(codes: IntegerArray, values: IntegerArray, size: int) -> IntegerArray:
    """Sum integers by code, exactly as long as all of them together stay within 62 bits.

    Adding is done on doubles, at once where no sum can leave 53 bits. Else in two halves that are both exact: each term is
    below 2**26 or 2**36 in size, and a partial sum stays below 2**53 for up to 2**27 terms; more are taken in turns.
    """
    out = np.zeros(size, dtype=np.int64)
    if not values.any():
        return out
    if max(int(values.max()), -int(values.min())) * len(values) < _EXACT:
        return np.bincount(codes, weights=values, minlength=size).astype(np.int64)
    for start in range(0, len(codes), 1 << _HALF):
        some, what = codes[start : start + (1 << _HALF)], values[start : start + (1 << _HALF)]
        low = what & ((1 << _HALF) - 1)
        high = what >> _HALF
        out += np.bincount(some, weights=low, minlength=size).astype(np.int64)
        if int(np.abs(high).max()) * len(high) < _EXACT:
            out += np.bincount(some, weights=high, minlength=size).astype(np.int64) << _HALF
        else:
            np.add.at(out, some, high << _HALF)
    return out
