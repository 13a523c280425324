"""Exact totals in parts of the privacy units, if the engine lacks memory for all units at once.

Totals of groups are sums of each unit's contribution, a function of its own rows. So the totals of all units are exactly
the sums of those of disjoint parts of the units. A grouping by units that exceeds memory is read in quarters, then in
sixteenths, then in sixty-fourths. A hash of the unit and of the secret salt selects its part (of the keys, if each row is
a unit); no release depends on it, nor on whether parts were read. Counts of distinct values are read in parts of the
values, which also add up.

Private groups may be more than memory holds as well. The totals of each part of the units are then written to a file,
divided by a hash of the group's keys, and added up for one part of the groups after another. Each group is in one of these
parts, so that its noise is drawn once.

The second lock proves each part's text under the plain query's claim before it is read, and that the keys decide a group's
part.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsql.interrupts import check_stop
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms import base
from dpsql.noise.entropy import Entropy

_T = TypeVar("_T")

UNITS_COLUMN = "units"
"""The column of exact totals with the number of units in a group."""
KEY_PART_COLUMN = "key_part"
"""The column of exact totals with the number of the part that a private group is in."""
_BITS = 6
PARTS = 1 << _BITS
"""The number of parts of the units; several are read together as long as memory suffices."""
_FEWER = 4
"""The number of parts into which a part too large for memory is divided."""
_LEAST_BYTES = 12
"""Memory per distinct text of a grouping that spilling can't lower, with two threads."""
_ROOM_PART = 128
"""The bytes of the engine's memory per row of a reader's room."""
_EXACT = pa.decimal128(38, 0)
"""The type of sums, equal to the engine's."""


def write_key_part(keys: Sequence[str]) -> str:
    """Return the number of the part that a group of these keys is in.

    >>> write_key_part(["k0", "k1"])
    'CAST(hash(xor(hash(k0, k1), $salt)) >> 58 AS UTINYINT)'
    """
    return f"CAST(hash(xor(hash({', '.join(keys)}), {base.SALT})) >> {64 - _BITS} AS UTINYINT)"


def write_part(*unit: str) -> str:
    """Return the condition that a unit, or values together, are in the requested parts.

    >>> write_part("u")
    'CAST(hash(xor(hash(u), $salt)) >> 58 AS UTINYINT) BETWEEN $first AND $last'
    """
    return f"{write_key_part(unit)} BETWEEN $first AND $last"


def read_totals(
    read: base.Reader, query: str, parts: str, keys: Sequence[str], streamed: bool, entropy: Entropy
) -> Iterator[pa.Table]:
    """Yield the exact totals of groups, in several tables if ``streamed``, each group once.

    Parts are read at once if a first part shows that memory for all is lacking, which saves a failing attempt.

    Args:
        parts: returns the totals of units in parts ``$first`` to ``$last``; empty if there is no such text. If
            ``streamed``, it has the column :data:`KEY_PART_COLUMN`.

    Raises:
        OutOfMemory: memory is too small even for the smallest parts, or there are too many groups to add them up.
    """
    read = base.add_salt(read, (query,), entropy)
    spill = read.spill if streamed and keys and read.room else None
    found: Iterator[pa.Table] | None = None
    if parts and _exceeds(read, read.estimate_rows(query)):
        read = base.add_salt(read, (parts,), entropy)
        if _lacks_memory(read, parts, keys, spill is not None):
            found = _read_parts(read, parts, keys, spill)
    if found is None:
        try:
            tables = read.stream_parts(query) if streamed else iter((read(query),))
            table = next(tables)
        except base.OutOfMemory:
            found = _read_parts(base.add_salt(read, (parts,), entropy), parts, keys, spill) if parts else None
            if found is None:
                raise
        else:
            yield table
            del table
            found = tables
    yield from found


def _read_parts(
    read: base.Reader, text: str, keys: Sequence[str], spill: Callable[[], Path] | None
) -> Iterator[pa.Table] | None:
    """Return the totals of all units, read part by part; None if there are too many groups, or keys of an unknown type.

    ``spill`` makes the directory in which they are collected; without it, they are collected in memory.
    """
    if spill is not None:
        return _add_up_on_disk(read, text, keys, spill)
    found: pa.Table | None = None
    for given in read_parts(read, text, base.Reader.__call__):
        if not _tells_all(given, keys):
            return None
        if found is not None:
            kinds = found.schema.with_metadata(None)
            given = pa.concat_tables([found, given.select(found.column_names).cast(kinds)])
        found = _add_up(given, keys)
        if found.num_rows > max(read.room, 1):
            return None
    return None if found is None else iter((found,))


def _add_up_on_disk(
    read: base.Reader, text: str, keys: Sequence[str], spill: Callable[[], Path]
) -> Iterator[pa.Table] | None:
    """Return the totals of the groups of one part of the keys after another; None if the keys have an unknown type."""
    totals = _SpilledTotals(spill())
    try:
        for told in read_parts(
            read, text, lambda reader, part: totals.write(reader.stream_parts(part), keys)
        ):
            if not told:
                totals.close()
                return None
    except BaseException:
        totals.close()
        raise
    return totals.add_up(keys)


@dataclass
class _SpilledTotals:
    """Totals of unit parts in private files, divided by key part; one key part in :data:`PARTS` is read at a time."""

    folder: Path
    _runs: list[tuple[Path, list[list[int]]]] = field(default_factory=list)
    """The files, each with the numbers of the record batches of each part of the keys."""

    def write(self, tables: Iterator[pa.Table], keys: Sequence[str]) -> bool:
        """Write the totals of one part of the units; False if they can't be added up. A part that fails leaves no file."""
        first = next(tables)
        if not _tells_all(first, keys):
            return False
        path = self.folder / str(len(self._runs))
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            with pa.ipc.new_file(str(path), first.drop_columns([KEY_PART_COLUMN]).schema) as writer:
                self._runs.append((path, _write_divided(itertools.chain([first], tables), writer)))
        except BaseException as error:
            path.unlink()
            if isinstance(error, OSError):
                raise base.OutOfMemory("the disk is full") from None
            raise
        return True

    def add_up(self, keys: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the totals of each part of the keys, at least one table, and remove the files."""
        try:
            for part in range(PARTS):
                check_stop()
                tables: list[pa.Table] = []
                for path, batches in self._runs:
                    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as file:
                        found = [file.get_batch(number) for number in batches[part]]
                        tables.append(pa.Table.from_batches(found, file.schema))
                yield _add_up(pa.concat_tables(tables), keys)
        finally:
            self.close()

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _write_divided(tables: Iterable[pa.Table], writer: pa.RecordBatchFileWriter) -> list[list[int]]:
    """Write tables, divided by the part of the keys; return the numbers of each part's record batches."""
    numbers: list[list[int]] = [[] for _ in range(PARTS)]
    written = itertools.count()
    for table in tables:
        check_stop()
        parts = table.column(KEY_PART_COLUMN).to_numpy()
        order = np.argsort(parts, kind="stable")
        table = table.drop_columns([KEY_PART_COLUMN]).take(pa.array(order))
        ends = np.searchsorted(parts[order], np.arange(PARTS + 1))
        for part, (start, end) in enumerate(itertools.pairwise(ends)):
            for batch in table.slice(start, end - start).combine_chunks().to_batches():
                writer.write_batch(batch)
                numbers[part].append(next(written))
    return numbers


def read_parts(read: base.Reader, text: str, take: Callable[[base.Reader, str], _T]) -> Iterator[_T]:
    """Yield a text's results for all parts, in quarters or fewer if memory lacks; OutOfMemory if one part is too large.

    ``take`` reads one part; if it raises OutOfMemory, it is called again for fewer.
    """
    first, many = 0, PARTS // _FEWER
    while first < PARTS:
        check_stop()  # no progress is reported: reading in parts depends on the data
        try:
            given = take(base.bind_parameters(read, {"first": first, "last": first + many - 1}), text)
        except base.OutOfMemory:
            if many == 1:
                raise
            many //= _FEWER
            continue
        first += many
        yield given


def read_distinct(read: base.Reader, query: str, probe: str, parts: str, entropy: Entropy) -> pa.Table:
    """Return the exact counts of distinct values, with several rows per group if they were read in parts.

    Parts are read at once if a sketch of the values shows that memory for all is lacking: an attempt takes as long as the
    answer.

    Args:
        probe: returns about how many there are, ``n``.
        parts: returns the counts of those in parts ``$first`` to ``$last``.

    Raises:
        OutOfMemory: memory is too small even for the smallest parts.
    """
    read = base.add_salt(read, (query,), entropy)
    scarce = _exceeds(read, read.estimate_rows(query))
    if not scarce or not _exceeds(read, read(probe).column("n")[0].as_py()):
        with contextlib.suppress(base.OutOfMemory):
            return read(query)
    return pa.concat_tables(read_parts(base.add_salt(read, (parts,), entropy), parts, base.Reader.__call__))


def _lacks_memory(read: base.Reader, parts: str, keys: Sequence[str], spilled: bool) -> bool:
    """Return whether one part shows that all units in all groups exceed memory; many groups do, unless ``spilled``."""
    try:
        sample = base.bind_parameters(read, {"first": 0, "last": 0})(parts)
    except base.OutOfMemory:
        return True
    pairs = int(pc.sum(sample.column(UNITS_COLUMN)).as_py() or 0)
    few = not keys or sample.num_rows * PARTS <= read.room
    if not _tells_all(sample, keys) or not (few or spilled):
        return False
    return not few or _exceeds(read, pairs * PARTS)


def _exceeds(read: base.Reader, values: int) -> bool:
    """Return whether a grouping of ``values`` texts is likely to exceed the engine's total memory."""
    return values * _LEAST_BYTES > read.room * _ROOM_PART


_IS_COMPARED = (
    *(pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_decimal, pa.types.is_date, pa.types.is_timestamp),
)
"""Tests of the types of which Arrow and the engine agree on equal values (zeros of two signs may differ)."""


def _tells_all(table: pa.Table, keys: Sequence[str]) -> bool:
    kinds = [table.schema.field(key).type for key in keys]
    return all(any(is_kind(kind) for is_kind in _IS_COMPARED) for kind in kinds)


def _add_up(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return one row per group with its totals added up; NULL counts as 0."""
    sums = [name for name in table.column_names if name not in keys]
    columns = {
        name: table.column(name) if name in keys else pc.fill_null(table.column(name).cast(_EXACT), 0)
        for name in table.column_names
    }
    exact = pa.table(columns)
    if not keys:
        added = {name: pa.array([pc.sum(exact.column(name)).as_py()], _EXACT) for name in sums}
        return pa.table(added)
    grouped = exact.group_by(list(keys), use_threads=False).aggregate([(name, "sum") for name in sums])
    return pa.table(
        {name: grouped.column(name if name in keys else f"{name}_sum") for name in table.column_names}
    )
