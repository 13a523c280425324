"""Cells of neighbouring numbers: which cell a number is in never falls as the number grows.

So of the rows and thresholds in two cells it is known how they compare, and only those of one cell are looked at. What a cell
is costs a few operations of a whole block of numbers at once, which stays in a cache of the core.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.fast.column_counts import clip_to_places
from dpsql.numerics.exact_numbers import INT64_MAX

BLOCK_ROWS = 1 << 15
"""Rows at once: what is made of them stays in a cache."""

_MAGIC = 2.0**52  # added to a double from 0 to 2**51, it leaves the nearest integer in the lowest bits
_MANTISSA = (1 << 52) - 1


class NumberCells(ABC):
    """Cells from 0 up to before ``count``, in ascending order of the numbers in them."""

    count: int
    kind: np.dtype[Any]
    """The type of what :meth:`compared` gives."""

    @abstractmethod
    def compared(self, part: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        """Return numbers as they are compared with thresholds of these cells; ``out`` may hold them."""

    @abstractmethod
    def number(self, compared: NDArray[Any], out: NDArray[np.int64]) -> NDArray[np.int64]:
        """Write the cells of numbers, as :meth:`compared` gives them, to ``out``."""

    @abstractmethod
    def select(self, part: NDArray[Any], first: int, last: int) -> NDArray[Any]:
        """Return the numbers in the cells from ``first`` up to before ``last``."""

    def of(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the cells of numbers."""
        held = np.empty(len(values), dtype=self.kind)
        return self.number(self.compared(values, held), np.empty(len(values), dtype=np.int64))


class IntegerCells(NumberCells):
    """The integers from ``low`` to ``high``, ``2**shift`` to a cell, at most ``2**bits`` cells; what is beyond is at the ends."""

    kind = np.dtype(np.int64)

    def __init__(self, low: int, high: int, bits: int) -> None:
        self.low, self.high = low, high
        self.shift = max(0, (high - low + 1).bit_length() - bits)
        self.count = (high - low >> self.shift) + 1

    def compared(self, part: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        clip_to_places(part, self.low, self.high, out)
        return out

    def number(self, compared: NDArray[Any], out: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(np.right_shift(compared, self.shift, out=out))

    def select(self, part: NDArray[Any], first: int, last: int) -> NDArray[Any]:
        own = np.iinfo(part.dtype)
        # what is beyond the cells is in those at the ends
        least = self.low + (first << self.shift) if first else -INT64_MAX - 1
        most = self.low + (last << self.shift) - 1 if last < self.count else INT64_MAX
        if least > own.max or most < own.min:
            return part[:0]
        return _between(part, None if least <= own.min else least, None if most >= own.max else most)


class DoubleCells(NumberCells):
    """Doubles from ``low`` to ``high`` in ``2**bits`` cells of one width; one cell is for what is above, and one for NaN.

    To subtract ``low``, to multiply and to round never changes the order of two numbers.
    """

    kind = np.dtype(np.float64)

    def __init__(self, low: float, high: float, bits: int) -> None:
        last, half = (1 << bits) - 1, high / 2 - low / 2
        scale = last / half / 2 if half > 0 else 1.0
        self._low, self._scale, self._beyond = low, scale if scale < math.inf else 1.0, last + 1
        self.count = last + 3

    @classmethod
    def between(cls, values: NDArray[np.float64], bits: int) -> DoubleCells:
        """Make the cells of thresholds."""
        known = values[np.isfinite(values)]
        return cls(*((float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)), bits)

    def compared(self, part: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        return part

    def number(self, compared: NDArray[Any], out: NDArray[np.int64]) -> NDArray[np.int64]:
        held = out.view(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(compared, self._low, out=held)
            np.multiply(held, self._scale, out=held)
            np.minimum(held, self._beyond, out=held)
            np.maximum(held, 0.0, out=held)
            np.add(held, _MAGIC, out=held)
        np.bitwise_and(out, _MANTISSA, out=out)
        return np.asarray(np.minimum(out, self._beyond + 1, out=out))  # the bits of NaN are beyond all others

    def select(self, part: NDArray[Any], first: int, last: int) -> NDArray[Any]:
        above = None if first == 0 else ~_is_below(part, self._find_first(first))
        if last >= self.count:
            return part if above is None else part[above]
        below = _is_below(part, self._find_first(last))
        return part[below if above is None else above & below]

    def _find_first(self, cell: int) -> float:
        """Find the least double whose cell is at least this one (NaN: none is); ``cell`` is above 0."""
        low, high = 0, _key(math.inf) - _key(-math.inf) + 1
        while low < high:
            middle = (low + high) // 2
            inside = int(self.of(np.array([_double(_key(-math.inf) + middle)]))[0]) >= cell
            low, high = (low, middle) if inside else (middle + 1, high)
        return _double(_key(-math.inf) + low)


def _key(value: float) -> int:
    """Return the place of a double among all doubles, from the least to the greatest; ``-0.0`` is just below ``0.0``."""
    bits = int(np.array(value).view(np.int64))
    return bits if bits >= 0 else -(bits & INT64_MAX) - 1


def _double(key: int) -> float:
    """Return the double at a place; the one after infinity is NaN."""
    bits = key if key >= 0 else (-key - 1) | -INT64_MAX - 1
    return float(np.array(bits, dtype=np.int64).view(np.float64))


def _is_below(part: NDArray[Any], value: float) -> NDArray[np.bool_]:
    return np.asarray(part == part if math.isnan(value) else part < value)


def _between(part: NDArray[Any], least: int | None, most: int | None) -> NDArray[Any]:
    if least is None and most is None:
        return part
    if least is None or most is None:
        return part[part >= least] if most is None else part[part <= most]
    return part[(part >= least) & (part <= most)]


def cut_blocks(values: NDArray[Any]) -> Iterable[NDArray[Any]]:
    """Yield the parts of an array that stay in a cache."""
    return (values[start : start + BLOCK_ROWS] for start in range(0, len(values), BLOCK_ROWS))
