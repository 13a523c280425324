"""Exact integers in arrays: int64 where all fit with room to add, else Python integers."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[Any]
"""One-dimensional integers: int64, or Python integers in an object array."""

SAFE = 1 << 62
"""Two numbers below this in size add up within int64."""
_NARROW = 1 << 61
"""Below this int64 is kept to: the result of one more step fits it too."""


def integers(values: Sequence[int] | Integers) -> Integers:
    """A one-dimensional integer array: int64 where all values lie within ±2**62, else Python integers.

    Raises:
        TypeError: a value is no integer.

    >>> integers([1, 2**70]).dtype, integers([1, 2]).dtype
    (dtype('O'), dtype('int64'))
    """
    array: Integers = np.asarray(values)
    if array.dtype.kind in "iub":
        if array.dtype.kind == "u" and array.size and int(array.max()) >= SAFE:
            return array.astype(object)
        array = array.astype(np.int64, copy=False)
        fits = not array.size or -SAFE < int(array.min()) <= int(array.max()) < SAFE
        return array if fits else array.astype(object)
    # numpy mixes 0 and 2**63 as floats: what was given decides, not what numpy made of it
    wide = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        try:
            wide[i] = operator.index(value)
        except TypeError:
            raise TypeError("an exact statistic must be an integer") from None
    return wide.astype(np.int64) if all(-SAFE < v < SAFE for v in wide) else wide


def times(a: Integers | int, b: Integers | int) -> Any:
    """The product, of numbers or of arrays of one length, in int64 where all of it certainly fits.

    >>> times(integers([3, 4]), 1 << 60).tolist() == [3 << 60, 4 << 60]
    True
    """
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if isinstance(a, int) and a == 1:
        return b
    if isinstance(b, int) and b == 1:
        return a
    if _wide(a, b) or largest(a) * largest(b) >= _NARROW:
        return _objects(a) * _objects(b)
    return a * b


def plus(a: Integers | int, b: Integers | int) -> Any:
    """The sum, likewise."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if isinstance(a, int) and a == 0:
        return b
    if _wide(a, b) or largest(a) + largest(b) >= _NARROW:
        return integers(_objects(a) + _objects(b))
    return a + b


def largest(v: Integers | int) -> int:
    """How far from 0 they go."""
    if isinstance(v, int):
        return abs(v)
    return max(abs(int(v.max())), abs(int(v.min()))) if len(v) else 0


def _wide(*numbers: Integers | int) -> bool:
    return any(not isinstance(v, int) and v.dtype == object for v in numbers)


def _objects(v: Integers | int) -> Any:
    return v if isinstance(v, int) else v.astype(object)
