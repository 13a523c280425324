"""Codes of privacy units that are no small integers: texts, UUIDs, wide integers, timestamps.

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
import threading
from collections.abc import Generator, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms import base
from dpsql.noise.group_sampling import IntegerArray

Hashes = NDArray[np.uint64]

_ROOM_SHARE = 4
"""Codes may take one part in this many of the reader's room, each as much as two rows."""
_WORTH = 4
"""A statement that reads fewer than one in this many rows of the table makes no codes."""
_KEPT = 2
"""The most columns per table with cached codes."""
_BLOCK = 1 << 15
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
        for start in range(0, len(hashes), _BLOCK):
            some, place = hashes[start : start + _BLOCK], codes[start : start + _BLOCK]
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
