"""A column of private integers, counted roughly as it streams by, and finely only where that is asked for.

A count of each of a million integers wants as many places in memory, and every row goes to another of them. A few thousand
cells of neighbouring integers stay in the processor's cache: half the time. The rows that came are held, so that
the integers of a few cells can be told apart afterwards; where they are more than may be held, all integers are
counted as ever. Nothing is read twice: whatever is counted, it is of the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.base import Read
from dpsql.mechanisms.tally import MOST, counted, near, place, streamed

_BITS = 12
"""There are up to ``2**_BITS`` cells: their counts fit the cache next to the core."""
_BLOCK = 1 << 15  # rows at once, for the same reason


class Cells:
    """How many rows have each of ``low`` to ``high``, by cells of ``2**shift`` integers; those beyond are counted at the ends.

    ``counts`` are the rows of each cell.
    """

    def __init__(self, low: int, high: int, arrays: Iterator[NDArray[Any]], room: int) -> None:
        """``room``: bytes that may be held."""
        self.low, self.size = low, high - low + 1
        self.shift = max(0, self.size.bit_length() - _BITS)
        self._held: list[NDArray[Any]] = []
        self._fine: NDArray[np.int64] | None = None
        self.counts = np.zeros((self.size - 1 >> self.shift) + 1, dtype=np.int64)
        places = np.empty(_BLOCK, dtype=np.int64)
        for values in arrays:
            self._held.append(values)
            room -= values.nbytes
            if room < 0:
                self._count_all(arrays)
                return
            for part in _blocks(values):
                at = places[: len(part)]
                place(part, low, high, at)
                np.right_shift(at, self.shift, out=at)
                self.counts += np.bincount(at, minlength=len(self.counts))

    def _count_all(self, more: Iterator[NDArray[Any]]) -> None:
        self._fine = counted(chain(self._held, more), self.low, self.low + self.size - 1)
        self._held.clear()
        self.counts = np.add.reduceat(self._fine, np.arange(0, self.size, 1 << self.shift))

    @classmethod
    def read(cls, read: Read, sql: str, low: int, high: int) -> Cells | None:
        """The only column of ``sql``, without its NULLs; None as in :func:`dpsql.mechanisms.tally.tallied`."""
        if not near(read) or high - low >= MOST:
            return None
        return cls(low, high, streamed(read, sql), 8 * getattr(read, "room", 0))

    def fine(self, first: int, last: int) -> tuple[NDArray[np.int64], int]:
        """How many rows have each of the integers of the cells from ``first`` on, up to ``last``, which is not among them; and
        of one integer more at either end, which stands for all beyond it. The second answer is the first of the integers.
        """
        start, stop = first << self.shift, min(last << self.shift, self.size)
        if self._fine is not None:
            inside = self._fine[start:stop]
        else:
            # what is beyond the ends of all is counted at the ends
            least = self.low + start if first else None
            most = self.low + stop - 1 if stop < self.size else None
            inside = counted(_within(self._held, least, most), self.low + start, self.low + stop - 1)
        ends = self.counts[:first].sum(), self.counts[last:].sum()
        return np.concatenate([ends[:1], inside, ends[1:]]), self.low + start - 1


def _blocks(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    return (values[start : start + _BLOCK] for start in range(0, len(values), _BLOCK))


def _within(arrays: list[NDArray[Any]], least: int | None, most: int | None) -> Iterator[NDArray[Any]]:
    """The values from ``least`` to ``most``. None: without an end."""
    if least is None and most is None:
        yield from arrays
        return
    for part in chain.from_iterable(map(_blocks, arrays)):
        inside = np.ones(len(part), dtype=bool) if least is None else part >= least
        if most is not None:
            inside &= part <= most
        yield part[inside]
