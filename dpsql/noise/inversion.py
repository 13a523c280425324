"""Integers as decreasing functions of a uniform real: quickly where floats are certain, else exactly.

A distribution gives two views of the same function ``U -> floor(x(U))``: ``estimate``, in floats with an
error band, and ``exact``, on an interval of U. The band decides all but a few draws in a million.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.noise.enclosure import Interval, Uniform
from dpsql.noise.entropy import Entropy

Floats = NDArray[np.float64]

CHUNK = 1 << 15
"""Draws made at once: few enough to stay in the processor's cache."""

RELATIVE = 2.0**-46
"""Error granted to a float computation, relative to its result: some 64 units in the last place, where
numpy's log, exp and sqrt are documented to stay within 4."""

ABSOLUTE = 2.0**-50
"""Error granted to a probability, and to the logarithm of one near 1. It covers the 2**-53 by which the
middle of a cell of uniforms differs from its ends."""

TINY = 2.0**-35
"""Uniforms below this are always decided exactly: a float knows too few of their leading bits."""

INT64 = 1 << 62
"""Results at or above this leave int64, so that a later sum can't overflow."""


def floor_of(
    n: int,
    entropy: Entropy,
    estimate: Callable[[Floats], tuple[Floats, Floats]],
    exact: Callable[[Interval, int], tuple[int, int]],
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Draws ``n`` values of ``floor(x(U))``, U uniform in (0, 1), ``x >= 0``, and a fair bit beside each.

    Args:
        estimate: gives ``x(u)`` and a bound of its error over all U within 2**-53 of ``u``, for u >= TINY.
        exact: given an interval of U and a precision in bits, the least and greatest value of the floor.

    Returns an int64 array (object where a value does not fit) and a boolean array.
    """
    out: NDArray[Any] = np.empty(n, dtype=np.int64)
    bits = np.empty(n, dtype=np.bool_)
    for start in range(0, n, CHUNK):
        words = entropy.words(min(CHUNK, n - start))
        stop = start + len(words)
        bits[start:stop] = words & np.uint64(1)
        cells = words >> np.uint64(12)
        u = cells.astype(np.float64)
        u += 0.5
        u *= 2.0**-52
        x, band = estimate(u)
        np.maximum(x, 0.5, out=x)  # x(U) is never negative: 0 has no lower edge to be near to
        whole = np.floor(x)
        x -= whole
        x -= 0.5
        np.abs(x, out=x)
        x += band
        out[start:stop] = whole
        for i in np.flatnonzero((x >= 0.5) | (u < TINY)):
            value = _refined(Uniform(int(cells[i]), 52, entropy), exact)
            if value >= INT64 and out.dtype != object:
                out = out.astype(object)
            out[start + int(i)] = value
    return out, bits


def _refined(u: Uniform, exact: Callable[[Interval, int], tuple[int, int]]) -> int:
    while True:
        if u.known:
            least, greatest = exact(u.interval(), u.bits + 64)
            if least == greatest:
                return least
        u.draw()


def accepted(
    p: Floats, band: Floats, n: int, entropy: Entropy, exact: Callable[[int, Uniform], bool]
) -> NDArray[np.bool_]:
    """Draws ``n`` booleans, TRUE with a probability within ``band`` of ``p``; ``exact`` settles the close."""
    out = np.empty(n, dtype=np.bool_)
    for start in range(0, n, CHUNK):
        words = entropy.words(min(CHUNK, n - start))
        stop = start + len(words)
        cells = words >> np.uint64(12)
        u = (cells.astype(np.float64) + 0.5) * 2.0**-52
        u -= p[start:stop]
        out[start:stop] = u < 0
        for i in np.flatnonzero(np.abs(u) <= band[start:stop]):
            out[start + int(i)] = exact(start + int(i), Uniform(int(cells[i]), 52, entropy))
    return out
