"""Exact totals in parts of the privacy units, if the engine lacks memory for all units at once.

Totals of groups are sums of each unit's contribution, a function of its own rows. So the totals of all units are exactly
the sums of those of disjoint parts of the units. A grouping by units that exceeds memory is read in quarters, then in
sixteenths, then in sixty-fourths. A hash of the unit and of the secret salt selects its part; no release depends on it,
nor on whether parts were read. Counts of distinct values are read in parts of the values, which also add up.

The second lock proves each part's text under the plain query's claim before it is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.interrupts import check_stop
from dpsql.mechanisms import base
from dpsql.noise.entropy import Entropy

UNITS_COLUMN = "units"
"""The column of exact totals with the number of units in a group."""
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


def write_part(unit: str) -> str:
    """Return the condition that a unit, or a value, is in the requested parts.

    >>> write_part("u")
    'CAST(hash(xor(hash(u), $salt)) >> 58 AS UTINYINT) BETWEEN $first AND $last'
    """
    return f"CAST(hash(xor(hash({unit}), {base.SALT})) >> {64 - _BITS} AS UTINYINT) BETWEEN $first AND $last"


def read_totals(
    read: base.Reader, query: str, parts: str, keys: Sequence[str], streamed: bool, entropy: Entropy
) -> Iterator[pa.Table]:
    """Yield the exact totals of groups, in several tables if ``streamed``, each group once.

    Parts are read at once if a first part shows that memory for all is lacking, which saves a failing attempt.

    Args:
        parts: returns the totals of units in parts ``$first`` to ``$last``; empty if there is no such text.

    Raises:
        OutOfMemory: memory is too small even for the smallest parts, or there are too many groups.
    """
    read = base.add_salt(read, (query,), entropy)
    if parts and _exceeds(read, read.estimate_rows(query)):
        read = base.add_salt(read, (parts,), entropy)
        whole = _read_parts(read, parts, keys) if _lacks_memory(read, parts, keys) else None
        if whole is not None:
            yield whole
            return
    try:
        tables = read.stream_parts(query) if streamed else iter((read(query),))
        table = next(tables)
    except base.OutOfMemory:
        whole = _read_parts(base.add_salt(read, (parts,), entropy), parts, keys) if parts else None
        if whole is None:
            raise
        tables = iter((whole,))
        table = next(tables)
    yield table
    del table
    yield from tables


def _read_parts(read: base.Reader, text: str, keys: Sequence[str]) -> pa.Table | None:
    """Return the totals of all units, read part by part; None if there are too many groups, or keys of an unknown type."""
    found: pa.Table | None = None
    for given in read_parts(read, text):
        if not _tells_all(given, keys):
            return None
        if found is not None:
            kinds = found.schema.with_metadata(None)
            given = pa.concat_tables([found, given.select(found.column_names).cast(kinds)])
        found = _add_up(given, keys)
        if found.num_rows > max(read.room, 1):
            return None
    return found


def read_parts(read: base.Reader, text: str) -> Iterator[pa.Table]:
    """Yield a text's results for all parts, in quarters or fewer if memory lacks; OutOfMemory if one part is too large."""
    first, many = 0, PARTS // _FEWER
    while first < PARTS:
        check_stop()  # no progress is reported: reading in parts depends on the data
        try:
            given = base.bind_parameters(read, {"first": first, "last": first + many - 1})(text)
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
    return pa.concat_tables(read_parts(base.add_salt(read, (parts,), entropy), parts))


def _lacks_memory(read: base.Reader, parts: str, keys: Sequence[str]) -> bool:
    """Return whether, by one part, all units in all groups are likely to exceed memory, but the groups alone are not."""
    try:
        sample = base.bind_parameters(read, {"first": 0, "last": 0})(parts)
    except base.OutOfMemory:
        return True
    pairs = int(pc.sum(sample.column(UNITS_COLUMN)).as_py() or 0)
    few = not keys or sample.num_rows * PARTS <= read.room
    return few and _tells_all(sample, keys) and _exceeds(read, pairs * PARTS)


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
