"""Exact totals of groups without a hash table: one integer per row, sorted.

Bounding how many groups a privacy unit touches needs the pairs of unit and group, millions of them, and a grouping by
two columns is what costs most. Where the unit, the group and the values of a row fit 63 bits together, one sorted array
says the same in a third of the time. It holds eight bytes a row, so it is for engines on this machine and for as many rows as
their memory allows; else the plan's own query is read, which may spill. Both give totals that are bounded alike: per
unit clamped, and at most ``groups`` groups of each unit, chosen by random numbers of its own.

What the route depends on (ranges, the number of rows) is exact and stays in here: both routes release the same
distribution, and read as often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.base import Read
from dpsql.noise.entropy import Entropy

Integers = NDArray[np.int64]

TOTALS = "dpsql_totals"
"""What the totals are lent as."""

_BITS = 63
_GROUP_BITS = 24
"""Beyond so many possible groups, an array of all of them would be larger than what is in it."""
_SAFE = 1 << 62
_HALF = 26


@dataclass(frozen=True)
class Value:
    """A packed value: ``sql`` is 0 where a row has none, else 1 to ``most``."""

    sql: str
    most: int


@dataclass(frozen=True)
class Tally:
    """One exact integer per group: what a unit's rows in it add up to, clamped to ``[low, high]``.

    ``value`` None counts rows; else the rows that have it, or (``adds``) the sum of it, each less ``less``.
    """

    name: str
    low: int
    high: int
    value: int | None = None
    adds: bool = False
    less: int = 0


@dataclass(frozen=True)
class Packed:
    """The same totals as the query beside it, by way of packed rows.

    ``ranges`` gives one row: ``n``, ``u_low``, ``u_high`` and, by key, its least and greatest (for coded groups 0 and the
    last code). ``rows`` is a SELECT over ``{source}`` columns ``u``, the key columns and the values. ``final`` makes of
    :data:`TOTALS` (the keys' columns, each tally, ``units``) what the query would have given.
    """

    ranges: str
    source: str
    keys: tuple[str, ...]
    values: tuple[Value, ...]
    tallies: tuple[Tally, ...]
    final: str
    units: str
    groups: int | None

    @property
    def queries(self) -> tuple[str, ...]:
        """What is read, with zeros for what the ranges would say."""
        return (
            self.ranges,
            self._rows(_Layout(0, (0,) * len(self.keys), (1,) * len(self.keys), 1, ())),
            self.final,
        )

    @property
    def lends(self) -> Mapping[str, list[tuple[str, str]]]:
        names = [*self.keys, *(t.name for t in self.tallies), self.units]
        return {TOTALS: [(name, "BIGINT") for name in names]}

    def table(self, read: Read, entropy: Entropy) -> pa.Table | None:
        """The rows that the query would give, or None where the data do not fit: then the query must be read."""
        layout = self._layout(read)
        if layout is None:
            read(self.final, {TOTALS: self._totals(*_nothing(len(self.tallies)), None)})
            return None
        packed = _column(read(self._rows(layout)))
        packed.sort()
        units, codes, rows, sums = self._pairs(packed, layout)
        if self.groups is not None:
            kept = choose(units, self.groups, entropy)
            if kept is not None:
                codes, rows, sums = codes[kept], rows[kept], [s[kept] for s in sums]
        clamped = [self._clamp(tally, rows, sums) for tally in self.tallies]
        return read(self.final, {TOTALS: self._totals(codes, clamped, layout)})

    # -- packing ------------------------------------------------------------------------------------------------

    def _layout(self, read: Read) -> _Layout | None:
        row = read(self.ranges).to_pylist()[0]
        room = getattr(read, "room", 0)
        n, low, high = row["n"], row["u_low"], row["u_high"]
        if not n or n > room or low is None:
            return None
        lows, sizes = [], []
        for key in self.keys:
            least, most = row[f"{key}_low"], row[f"{key}_high"]
            lows.append(0 if least is None else int(least))
            sizes.append(2 if least is None else int(most) - int(least) + 2)  # 0 stands for NULL
        bits = tuple(v.most.bit_length() for v in self.values)
        layout = _Layout(int(low), tuple(lows), tuple(sizes), int(high) - int(low) + 1, bits)
        most = max((max(abs(t.low), abs(t.high)) for t in self.tallies), default=1)
        fits = layout.group_bits <= _GROUP_BITS and layout.bits <= _BITS and n * most < _SAFE
        return layout if fits and n * max((v.most for v in self.values), default=1) < _SAFE else None

    def _rows(self, layout: _Layout) -> str:
        """One integer per row. What fell outside the ranges since they were read is left out."""
        shift = sum(layout.value_bits)
        parts = []
        inside = [f"u BETWEEN {layout.low} AND {layout.low + layout.units - 1}"]
        for key, least, size in reversed(list(zip(self.keys, layout.lows, layout.sizes, strict=True))):
            code = f"COALESCE(CAST({key} AS BIGINT) - ({least}) + 1, 0)"
            parts.append(f"{code} * {1 << shift}")
            inside.append(f"({key} IS NULL OR {key} BETWEEN {least} AND {least + size - 2})")
            shift += _bits(size)
        parts.append(f"(CAST(u AS BIGINT) - ({layout.low})) * {1 << shift}")
        shift = 0
        for value, bits in zip(self.values, layout.value_bits, strict=False):
            parts.append(f"({value.sql}) * {1 << shift}")
            shift += bits
        return f"SELECT {' + '.join(parts)} AS p FROM ({self.source}) AS rows WHERE {' AND '.join(inside)}"

    # -- adding up ----------------------------------------------------------------------------------------------

    def _pairs(
        self, packed: Integers, layout: _Layout
    ) -> tuple[Integers, Integers, Integers, list[Integers]]:
        """By unit and group: its unit, its group, its rows; and by value, the rows that have it and their sum."""
        shift = sum(layout.value_bits)
        pair = packed >> shift if shift else packed
        starts = _starts(pair)
        rows = np.diff(starts, append=len(packed))
        sums: list[Integers] = []
        low = 0
        for bits in layout.value_bits:
            value = (packed >> low) & ((1 << bits) - 1)
            low += bits
            there = value > 0
            sums.append(rows if there.all() else np.add.reduceat(there, starts, dtype=np.int64))
            sums.append(np.add.reduceat(value, starts))
        pair = pair[starts]
        return pair >> layout.group_bits, pair & ((1 << layout.group_bits) - 1), rows, sums

    def _clamp(self, tally: Tally, rows: Integers, sums: list[Integers]) -> Integers:
        if tally.value is None:
            exact = rows
        elif tally.adds:
            exact = sums[2 * tally.value + 1] - tally.less * sums[2 * tally.value]
        else:
            exact = sums[2 * tally.value]
        return np.clip(exact, tally.low, tally.high)

    def _totals(self, codes: Integers, clamped: list[Integers], layout: _Layout | None) -> pa.Table:
        size = 0 if layout is None else 1 << layout.group_bits
        units = np.bincount(codes, minlength=size)
        present = np.flatnonzero(units)
        columns: dict[str, Any] = {}
        code = present
        for key, least, many in reversed(
            list(zip(self.keys, layout.lows, layout.sizes, strict=True)) if layout is not None else []
        ):
            own = code & ((1 << _bits(many)) - 1)
            columns[key] = pa.array(own - 1 + least, pa.int64(), mask=own == 0)
            code = code >> _bits(many)
        for key in self.keys:
            columns.setdefault(key, pa.array([], pa.int64()))
        for tally, values in zip(self.tallies, clamped, strict=True):
            columns[tally.name] = pa.array(add_up(codes, values, size)[present], pa.int64())
        columns[self.units] = pa.array(units[present], pa.int64())
        return pa.table(columns)


@dataclass(frozen=True)
class _Layout:
    """Where the bits are: from the top the unit, the keys, and the values with the first lowest."""

    low: int
    lows: tuple[int, ...]
    sizes: tuple[int, ...]
    units: int
    value_bits: tuple[int, ...]

    @property
    def group_bits(self) -> int:
        return sum(map(_bits, self.sizes))

    @property
    def bits(self) -> int:
        return _bits(self.units) + self.group_bits + sum(self.value_bits)


def _bits(size: int) -> int:
    return (size - 1).bit_length()


def _column(table: pa.Table) -> Integers:
    chunks = [chunk.to_numpy(zero_copy_only=False) for chunk in table.column(0).chunks]
    return np.concatenate([np.empty(0, dtype=np.int64), *chunks]).astype(np.int64, copy=False)


def _starts(ordered: Integers) -> Integers:
    """Where each run of equal integers begins."""
    if not len(ordered):
        return np.empty(0, dtype=np.int64)
    change = np.empty(len(ordered), dtype=bool)
    change[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=change[1:])
    return np.flatnonzero(change)


def _nothing(tallies: int) -> tuple[Integers, list[Integers]]:
    none = np.empty(0, dtype=np.int64)
    return none, [none] * tallies


def choose(units: Integers, groups: int, entropy: Entropy) -> NDArray[np.bool_] | None:
    """Which of each unit's groups are kept: at most ``groups`` of them, each choice as likely. None keeps all.

    ``units`` is sorted: one entry per unit and group. A unit's choice is made by random numbers that belong to its own
    entries, so no other unit takes part in it.
    """
    starts = _starts(units)
    sizes = np.diff(starts, append=len(units))
    many = sizes > groups
    if not many.any():
        return None
    crowded = np.repeat(many, sizes)
    places = np.flatnonzero(crowded)
    owner = np.repeat(np.arange(int(many.sum())), sizes[many])
    order = places[_shuffled(owner, entropy)]
    counts = sizes[many]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = ~crowded
    kept[order[rank < groups]] = True
    return kept


def _shuffled(owner: Integers, entropy: Entropy) -> Integers:
    """Positions in the order of their (ascending) owners, at random within each.

    How many bits a ticket has depends on how many entries there are, so two that are equal must be told apart by further
    bits: were it by their places, one unit more could take a bit from everybody, and with it move what others choose.
    """
    n = len(owner)
    place, who = (n - 1).bit_length(), int(owner[-1]).bit_length()
    chance = min(32, _BITS - place - who)
    words = entropy.words((n + 1) // 2).view(np.uint32)[:n].astype(np.int64)
    if chance < 16:  # too many for one word each: slower, and the same
        return np.lexsort((entropy.words(n), words, owner)).astype(np.int64)
    tickets = (owner << (chance + place)) | ((words >> (32 - chance)) << place) | np.arange(n)
    tickets.sort()
    order = tickets & ((1 << place) - 1)
    tickets >>= place
    same = np.concatenate([[False], tickets[1:] == tickets[:-1], [False]])
    tied = np.flatnonzero(same[1:] | same[:-1])
    if len(tied):
        few = order[tied]
        order[tied] = few[np.lexsort((entropy.words(len(few)), words[few], tickets[tied]))]
    return order


def add_up(codes: Integers, values: Integers, size: int) -> Integers:
    """Sums of integers by code, exact as long as all of them together stay within 62 bits.

    Adding is done on doubles, in two halves that are both exact: each term is below 2**26 or 2**36 in size, and a partial
    sum stays below 2**53 for up to 2**27 terms; more are taken in turns.
    """
    out = np.zeros(size, dtype=np.int64)
    for start in range(0, len(codes), 1 << _HALF):
        some, what = codes[start : start + (1 << _HALF)], values[start : start + (1 << _HALF)]
        low = what & ((1 << _HALF) - 1)
        high = what >> _HALF
        out += np.bincount(some, weights=low, minlength=size).astype(np.int64)
        if high.any():
            if int(np.abs(high).max()) * len(high) < 1 << 53:
                out += np.bincount(some, weights=high, minlength=size).astype(np.int64) << _HALF
            else:
                np.add.at(out, some, high << _HALF)
    return out
