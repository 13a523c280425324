"""Cells of neighbouring numbers: the cell is a monotone function of the number.

So rows and thresholds in different cells need no comparison. Computing the cell takes a few operations on a whole block
of numbers, which fits a core's cache.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.fast.column_counts import clip_to_places
from dpsql.numerics.exact_numbers import INT64_MAX, SAFE

BLOCK_ROWS = 1 << 17
"""Rows per block: intermediate results fit a cache."""

_MAGIC = 2.0**52  # from here to twice this, doubles are integers in their lowest bits
_MANTISSA = (1 << 52) - 1
_MAGIC_BITS = int(np.array(_MAGIC).view(np.int64))
_MOST_SHIFT = 50
"""The most dropped bits of a double: infinity and NaN stay in separate cells."""
_FEW_RUNGS = 1 << 10
"""Fewer thresholds are fast to look up."""


class NumberCells(ABC):
    """Cells from 0 up to before ``count``, in ascending order of the numbers in them."""

    count: int
    kind: np.dtype[Any]
    """The type returned by :meth:`compared`."""
    starts_with_threshold = False
    """Whether no number of a cell is below its :meth:`near`."""

    @abstractmethod
    def compared(self, part: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        """Return numbers as compared with thresholds of these cells; ``out`` may be used for them."""

    @abstractmethod
    def number(self, compared: NDArray[Any], out: NDArray[np.int64]) -> NDArray[np.int64]:
        """Write the cells of numbers, as from :meth:`compared`, to ``out``."""

    def near(self, cells: NDArray[np.int64], out: NDArray[Any]) -> NDArray[Any] | None:
        """Return the compared thresholds in cells, if these are faster computed than looked up."""
        return None

    def of(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Return the cells of numbers."""
        held = np.empty(len(values), dtype=self.kind)
        cells = np.empty(len(values), dtype=np.int64)
        for x, out in zip(cut_blocks(self.compared(values, held)), cut_blocks(cells), strict=True):
            self.number(x, out)
        return cells


class IntegerCells(NumberCells):
    """The integers from ``low`` to ``high``, ``2**shift`` to a cell, at most ``2**bits`` cells; others are at the ends."""

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


class IntegerRungs(IntegerCells):
    """The cells from one threshold of an arithmetic sequence of integers up to before the next, which is computed."""

    starts_with_threshold = True

    def __init__(self, first: int, last: int, step: int) -> None:
        super().__init__(first - step, last + 1, 0)
        self._step = step
        self.count = (self.high - self.low) // step + 1

    @classmethod
    def of_rungs(cls, values: NDArray[np.int64]) -> IntegerRungs | None:
        """Return the cells of distinct ascending thresholds; None if these are no such sequence."""
        if len(values) < _FEW_RUNGS:
            return None
        first, step = int(values[0]), int(values[1]) - int(values[0])
        if first - step <= -SAFE or not bool((values[1:] - values[:-1] == step).all()):
            return None
        return cls(first, int(values[-1]), step)

    def number(self, compared: NDArray[Any], out: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(np.floor_divide(compared, self._step, out=out))

    def near(self, cells: NDArray[np.int64], out: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.multiply(cells, self._step, out=out))


class DoubleCells(NumberCells):
    """Doubles from ``low`` to ``high`` in cells of one width; then a cell for greater numbers and, after an empty one, NaN's.

    Multiplication, addition and rounding are monotone. The addend leaves the nearest integer in the lowest bits.

    ``beyond``: whether some thresholds are greater: then NaN is distinguished from greater numbers.
    """

    kind = np.dtype(np.float64)

    def __init__(self, low: float, high: float, count: int, beyond: bool = True) -> None:
        last, half = count - 1, high / 2 - low / 2
        scale = last / half / 2 if half > 0 else 1.0
        self._scale = scale if scale < math.inf else 1.0
        with np.errstate(over="ignore"):
            start = _MAGIC - np.float64(low) * self._scale
        self._start = float(start) if np.isfinite(start) else _MAGIC
        self._beyond = beyond
        self.count = last + 4
        self._least, self._most = _repeat(_MAGIC), _repeat(_MAGIC + last + 1)

    @classmethod
    def between(cls, values: NDArray[np.float64], count: int) -> DoubleCells:
        """Return the cells of thresholds."""
        known = values[np.isfinite(values)]
        ends = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
        made = cls(*ends, count, len(known) < len(values))
        # if rounding loses much, the greatest may be outside too
        made._beyond |= bool(made.of(np.array(ends))[1] >= made.count - 3)
        return made

    def compared(self, part: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
        return part

    def number(self, compared: NDArray[Any], out: NDArray[np.int64]) -> NDArray[np.int64]:
        held = out.view(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(compared, self._scale, out=held)
            np.add(held, self._start, out=held)
            # without thresholds outside, NaN need not be distinguished
            _pick(np.minimum if self._beyond else np.fmin, held, self._most)
            _pick(np.maximum, held, self._least)
        np.bitwise_and(out, _MANTISSA, out=out)
        if self._beyond:
            np.minimum(out, self.count - 1, out=out)  # the bits of NaN are above all others
        return out


class LogCells(DoubleCells):
    """Cells whose width doubles as numbers do, for thresholds above 0: the top bits of a number, minus the least's."""

    def __init__(self, low: float, high: float, count: int) -> None:
        least, most = _key(low), _key(high)
        self._shift = min(max(0, (most - least).bit_length() - (count.bit_length() - 1)), _MOST_SHIFT)
        self._base, self._beyond = least >> self._shift, True
        last = (most >> self._shift) - self._base
        self._least = _repeat(low)
        self._most = _repeat(_double(min(last + 1 + self._base << self._shift, _key(math.inf))))
        self.count = last + 4

    def number(self, compared: NDArray[Any], out: NDArray[np.int64]) -> NDArray[np.int64]:
        held = out.view(np.float64)
        _pick(np.maximum, compared, self._least, held)
        _pick(np.minimum, held, self._most)
        np.bitwise_and(out, INT64_MAX, out=out)  # NaN may have a sign
        np.right_shift(out, self._shift, out=out)
        np.subtract(out, self._base, out=out)
        return np.asarray(np.minimum(out, self.count - 1, out=out))


def choose_double_cells(values: NDArray[np.float64], count: int) -> DoubleCells:
    """Return about ``count`` cells with the fewest thresholds in shared cells."""
    made = DoubleCells.between(values, count)
    some = values[:: len(values) // count + 1]
    alone = _count_alone(made, some)
    if alone * 4 < 3 * len(some) and bool(((values > 0) & (values < math.inf)).all()):
        other = LogCells(float(values.min()), float(values.max()), count)
        if _count_alone(other, some) > alone:
            return other
    return made


def _count_alone(cells: NumberCells, values: NDArray[np.float64]) -> int:
    return int(np.count_nonzero(np.bincount(cells.of(values), minlength=cells.count)))


class RungCells(DoubleCells):
    """The cells around the thresholds of an arithmetic sequence, one each; the threshold is computed."""

    def __init__(self, values: NDArray[np.float64], step: float, first: float, way: str) -> None:
        self._step, self._first, self._way = step, first, way
        super().__init__(float(values[0]), float(values[-1]), len(values), beyond=False)

    @classmethod
    def of_rungs(cls, values: NDArray[np.float64]) -> RungCells | None:
        """Return the cells of distinct ascending thresholds; None if these are no such sequence."""
        size = len(values)
        if size < _FEW_RUNGS or not (np.isfinite(values[0]) and np.isfinite(values[-1])):
            return None
        step = (float(values[-1]) - float(values[0])) / (size - 1)
        if not 0 < step < math.inf or abs(float(values[0])) / step > 2.0**50:
            return None
        first = float(np.rint(values[0] / step))
        bit = 1 << max(1, int(first) + size - 1).bit_length() - 1
        whole = float(values[bit - int(first)]) / bit if first <= bit < first + size else step
        ways = [
            ("times", whole, first),
            ("over", float(np.rint(1 / whole)), first),
            ("from", step, float(values[0])),
        ]
        for way, by, start in ways:
            made = cls(values, by, start, way) if by > 0 else None
            if made is not None and made._is_of(values):
                return made
        return None

    def _is_of(self, values: NDArray[np.float64]) -> bool:
        places = np.arange(len(values))
        if not all(
            bool((self.near(places[part], np.empty(len(places[part]))) == values[part]).all())
            for part in (slice(0, BLOCK_ROWS), slice(BLOCK_ROWS, None))
        ):
            return False
        return bool((self.of(values) == places).all())

    def near(self, cells: NDArray[np.int64], out: NDArray[Any]) -> NDArray[Any]:
        held = out.view(np.int64)
        np.bitwise_or(cells, _MAGIC_BITS, out=held)
        np.subtract(out, _MAGIC if self._way == "from" else _MAGIC - self._first, out=out)
        (np.divide if self._way == "over" else np.multiply)(out, self._step, out=out)
        if self._way == "from":
            np.add(out, self._first, out=out)
        return out


def _key(value: float) -> int:
    """Return the rank of a double among all doubles; ``-0.0`` is just below ``0.0``."""
    bits = int(np.array(value).view(np.int64))
    return bits if bits >= 0 else -(bits & INT64_MAX) - 1


def _double(key: int) -> float:
    """Return the double of a rank; the one after infinity is NaN."""
    bits = key if key >= 0 else (-key - 1) | -INT64_MAX - 1
    return float(np.array(bits, dtype=np.int64).view(np.float64))


def _repeat(value: float) -> NDArray[np.float64]:
    """Return a number repeated for a block: the minimum of two arrays takes a third of the time."""
    return np.full(BLOCK_ROWS, value)


def _pick(
    pick: np.ufunc, values: NDArray[Any], bounds: NDArray[Any], out: NDArray[Any] | None = None
) -> None:
    """Clamp numbers, at most a block, to a repeated bound, in place or in ``out``."""
    pick(values, bounds[: len(values)], out=values if out is None else out)


def cut_blocks(values: NDArray[Any]) -> Iterable[NDArray[Any]]:
    """Yield the parts of an array that fit a cache."""
    return (values[start : start + BLOCK_ROWS] for start in range(0, len(values), BLOCK_ROWS))
