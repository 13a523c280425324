"""Exact totals in parts of the privacy units, where the engine lacks memory for all units at once.

Totals of groups are sums of what each unit adds to them, and what a unit adds is a function of its own rows: so the totals of
all units are the sums of those of disjoint parts of the units, exactly, for they are integers. A grouping by units, of which
there may be more than memory holds where they are long texts, is so read in a quarter of them at a time, then a sixteenth,
then a sixty-fourth. Which part a unit is in is decided by a hash of it and of the secret salt; nothing that is released
depends on it, nor on whether parts were read.

Counts of different values are read so in parts of the values: a value is in one part, so the counts of disjoint parts add up.

Each text of a part reads some of the rows of the plain query, and does the same to them: the second lock proves it under the
claim of the plain query before it is read.
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
"""The column of exact totals that says how many units are in a group."""
_BITS = 6
PARTS = 1 << _BITS
"""The parts that units are in, of which several are read together as long as memory holds them."""
_FEWER = 4
"""The number of parts into which those are divided that memory does not hold."""
_LEAST_BYTES = 12
"""Memory for each different text of a grouping that no spilling lowers, of two threads."""
_ROOM_PART = 128
"""The bytes of the engine's memory for each row of a reader's room."""
_EXACT = pa.decimal128(38, 0)
"""The type of sums: that of the engine's own."""


def write_part(unit: str) -> str:
    """Write that a unit, or a value, is in one of the parts that a release asks for.

    >>> write_part("u")
    'CAST(hash(xor(hash(u), $salt)) >> 58 AS UTINYINT) BETWEEN $first AND $last'
    """
    return f"CAST(hash(xor(hash({unit}), {base.SALT})) >> {64 - _BITS} AS UTINYINT) BETWEEN $first AND $last"


def read_totals(
    read: base.Reader, query: str, parts: str, keys: Sequence[str], streamed: bool, entropy: Entropy
) -> Iterator[pa.Table]:
    """Yield the exact totals of groups, in several tables where they are ``streamed``, each group once.

    Parts are read at once where one of them says that the engine lacks the memory for all: to find out would take longer.

    Args:
        read: reads exact rows.
        query: gives the totals of all units.
        parts: gives those of the units in parts ``$first`` to ``$last``; empty where there is no such text.
        keys: the columns that name a group; all others are added up.
        streamed: whether there may be too many groups to have them all in memory.
        entropy: for the salt.

    Raises:
        OutOfMemory: the engine lacks the memory even for the smallest parts, or there are too many groups.
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
    """Return the totals of all units, read part by part; None where their groups are too many, or of a type unknown here."""
    found: pa.Table | None = None
    for given in read_parts(read, text):
        if not _tells_all(given, keys):
            return None
        found = _add_up(given if found is None else _join(found, given), keys)
        if found.num_rows > max(read.room, 1):
            return None
    return found


def read_parts(read: base.Reader, text: str) -> Iterator[pa.Table]:
    """Yield what a text gives of all parts, each read once: a quarter of them at a time, or fewer where memory lacks.

    Raises:
        OutOfMemory: the engine lacks the memory even for a single part.
    """
    first, many = 0, PARTS // _FEWER
    while first < PARTS:
        check_stop()  # no progress is told: that parts are read says something of the data
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
    """Return the exact counts of different values, with several rows of a group where they were read in parts.

    The parts are read at once where a sketch of the values says that the engine lacks the memory for all: to find out would
    take as long as to answer.

    Args:
        read: reads exact rows.
        query: gives the counts of all values.
        probe: gives about how many there are, ``n``.
        parts: gives the counts of those in parts ``$first`` to ``$last``.
        entropy: for the salt.

    Raises:
        OutOfMemory: the engine lacks the memory even for the smallest parts.
    """
    read = base.add_salt(read, (query,), entropy)
    scarce = _exceeds(read, read.estimate_rows(query))
    if not scarce or not _exceeds(read, read(probe).column("n")[0].as_py()):
        with contextlib.suppress(base.OutOfMemory):
            return read(query)
    return pa.concat_tables(read_parts(base.add_salt(read, (parts,), entropy), parts))


def _lacks_memory(read: base.Reader, parts: str, keys: Sequence[str]) -> bool:
    """Tell by one part whether all units in all groups are likely to be too many, and the groups themselves are not."""
    try:
        sample = base.bind_parameters(read, {"first": 0, "last": 0})(parts)
    except base.OutOfMemory:
        return True
    pairs = int(pc.sum(sample.column(UNITS_COLUMN)).as_py() or 0)
    few = not keys or sample.num_rows * PARTS <= read.room
    return few and _tells_all(sample, keys) and _exceeds(read, pairs * PARTS)


def _exceeds(read: base.Reader, values: int) -> bool:
    """Tell whether a grouping of so many texts is likely to take more memory than the engine has for all it does."""
    return values * _LEAST_BYTES > read.room * _ROOM_PART


def _tells_all(table: pa.Table, keys: Sequence[str]) -> bool:
    return all(_tells_groups(table.schema.field(key).type) for key in keys)


def _tells_groups(kind: pa.DataType) -> bool:
    """Tell whether Arrow has equal values of a type where the engine has: there are no zeros of two signs, say."""
    plain = (
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_decimal,
    )
    return any(test(kind) for test in (*plain, pa.types.is_date, pa.types.is_timestamp))


def _join(found: pa.Table, given: pa.Table) -> pa.Table:
    names = found.column_names
    return pa.concat_tables([found, given.select(names).cast(found.schema.with_metadata(None))])


def _add_up(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return one row for each group, its totals added up; NULL counts as 0."""
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
