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
