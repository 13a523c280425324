"""How often each integer of a public range occurs among the private rows: a column counted as it streams by.

Grouping a million values costs an engine a hash table, and most of its time. Where the data are on this machine, the
column itself comes in parts, narrow integers, and is counted in an array: a third of the time, in memory that goes with
the range and not with the rows. What is counted is the same; and whether it is done so depends on the range, which is
public, and on where the data are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.base import Read, parts, room_of

MOST = 1 << 22
"""Integers in a range that is counted here."""

_ROWS = 1 << 23  # counted at once: each time an array as long as the range is made and added


def tallied(read: Read, sql: str, low: int, high: int) -> NDArray[np.int64] | None:
    """How many rows have each of ``low`` to ``high``; those beyond are counted at the ends, those with NULL not at all.

    ``sql`` gives one column of integers or dates. None where rows must stay where they are, or the range is too wide:
    nothing has been read then.
    """
    if not room_of(read) or high - low >= MOST:
        return None
    return counted(streamed(read, sql), low, high)


def streamed(read: Read, sql: str, doubles: bool = False) -> Iterator[NDArray[Any]]:
    """The column in arrays of the integers that it has (``doubles``: of these), without NULLs."""
    for part in parts(read, sql):
        for chunk in part.column(0).chunks:
            yield _doubles(chunk) if doubles else _plain(chunk)


def counted(arrays: Iterable[NDArray[Any]], low: int, high: int) -> NDArray[np.int64]:
    """How many of the integers are each of ``low`` to ``high``; those beyond are counted at the ends."""
    counts = np.zeros(high - low + 1, dtype=np.int64)
    places = np.empty(_ROWS, dtype=np.int64)
    held = 0
    for values in arrays:
        for start in range(0, len(values), _ROWS):
            some = values[start : start + _ROWS]
            if held + len(some) > _ROWS:
                counts += np.bincount(places[:held], minlength=len(counts))
                held = 0
            place(some, low, high, places[held : held + len(some)])
            held += len(some)
    counts += np.bincount(places[:held], minlength=len(counts))
    return counts


def _plain(chunk: pa.Array) -> NDArray[Any]:
    if chunk.null_count:
        chunk = chunk.drop_null()
    if chunk.type == pa.date32():
        chunk = chunk.view(pa.int32())
    if pa.types.is_null(chunk.type):
        return np.empty(0, dtype=np.int64)
    if not pa.types.is_integer(chunk.type) or chunk.type == pa.uint64():
        raise TypeError("what is counted must be an integer column")
    values: NDArray[Any] = chunk.to_numpy()
    return values


def _doubles(chunk: pa.Array) -> NDArray[np.float64]:
    if chunk.type != pa.float64():
        raise TypeError("what is counted must be a column of doubles")
    values: NDArray[np.float64] = chunk.drop_null().to_numpy()
    return values


def place(values: NDArray[Any], low: int, high: int, out: NDArray[np.int64]) -> None:
    """``clip(values, low, high) - low``, held to what the values' own type has before it is widened."""
    own = np.iinfo(values.dtype)
    if low > own.max or high < own.min:  # every value is beyond the same end
        out[:] = 0 if low > own.max else high - low
        return
    if len(values) and not (low <= int(values.min()) and int(values.max()) <= high):
        # in their own type first: to clip and to widen at once takes several times as long
        values = np.clip(values, max(low, int(own.min)), min(high, int(own.max)))
    np.subtract(values, low, out=out, dtype=np.int64)
