"""Scores for candidates that differ in sensitivity: the generalised exponential mechanism's.

    s_r = min over r' of ((u_r - t D_r) - (u_r' - t D_r')) / (D_r + D_r')        (Raskhodnikova, Smith 2016)

However a unit moves each u_r by at most its own D_r, it moves every s_r by at most 1, for any public t: each
quotient's numerator moves by at most its denominator. So candidates that one unit hardly moves are told apart
with little noise, whatever the others are like.

The minimum over all pairs is found in O(n log n): the r' that matter are the upper hull of the points
(D_r', u_r' - t D_r'), and which of them is least for r follows from a binary search along it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpsql.noise.selection import Integers, integers

GRID = 1 << 16
"""Steps of a score of 1."""

SENSITIVITY = GRID + 1
"""Steps that one unit moves a score by: GRID, and one for the last bits of the quotients.

Two scores at most GRID apart, each computed to within half a step and rounded down, are at most GRID + 1 apart.
The quotients are of exact integer differences, in doubles: their error is below 2**-49 of their size, which is held
to at most 2**24 units, or 2**40 steps.
"""

_FLOOR = -float(1 << 24)
_PASSES = 60
_BLOCK = 1 << 14  # candidates per pass: what stays in the cache of one core


def generalised_scores(utilities: Integers, sensitivities: Integers, t: int) -> NDArray[np.int64]:
    """The scores in steps of ``1 / GRID``: int64, at most 0, of sensitivity :data:`SENSITIVITY`.

    ``sensitivities`` must be public: they and ``t`` are the same for neighbouring data. One of 0 counts as 1 step.
    """
    sensitivities = np.maximum(sensitivities, 1)
    most = max(abs(int(utilities.max())), abs(int(utilities.min()))) + t * int(sensitivities.max())
    wide = (
        np.int64 if most < 1 << 61 and utilities.dtype != object and sensitivities.dtype != object else object
    )
    own = sensitivities.astype(wide)
    ahead = utilities.astype(wide) - own * t
    x, y = _hull(own, ahead)
    slopes = _ratio(y[1:] - y[:-1], x[1:] - x[:-1])
    out = np.empty(len(own), dtype=np.int64)
    for start in range(0, len(own), _BLOCK):
        part = slice(start, start + _BLOCK)
        out[part] = _scores(ahead[part], own[part], x, y, slopes)
    return out


def _scores(
    ahead: Integers, own: Integers, x: Integers, y: Integers, slopes: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The scores of some candidates against the hull ``x, y``."""
    place = np.zeros(len(own), dtype=np.int64)
    for power in reversed(
        range(len(slopes).bit_length())
    ):  # how many of the hull's slopes exceed the way to r
        further = place + (1 << power)
        here = np.minimum(further, len(slopes)) - 1
        steep = slopes[here] >= _ratio(y[here] - ahead, x[here] + own)
        place = np.where(steep & (further <= len(slopes)), further, place)
    score = _quotient(ahead, own, x, y, place)
    for near in (place - 1, place + 1):  # a last bit may have sent the search one point astray
        score = np.minimum(score, _quotient(ahead, own, x, y, np.clip(near, 0, len(x) - 1)))
    scaled: NDArray[np.int64] = np.floor(np.maximum(score, _FLOOR) * GRID).astype(np.int64)
    return scaled


def _quotient(
    ahead: Integers, own: Integers, x: Integers, y: Integers, place: NDArray[np.int64]
) -> NDArray[np.float64]:
    return _ratio(ahead - y[place], own + x[place])


def _ratio(numerator: Integers, denominator: Integers) -> NDArray[np.float64]:
    return np.asarray(numerator.astype(np.float64) / denominator.astype(np.float64))


def _hull(x: Integers, y: Integers) -> tuple[Integers, Integers]:
    """The rising part of the upper hull of the points, by ascending x."""
    if len(x) > 1 and not bool((x[1:] >= x[:-1]).all()):
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
    best = np.maximum.accumulate(y)
    record = np.ones(len(y), dtype=bool)
    record[1:] = y[1:] > best[:-1]
    x, y = x[record], y[record]
    last = np.ones(len(x), dtype=bool)
    last[:-1] = x[1:] != x[:-1]  # of equal x the last record is the highest
    x, y = x[last], y[last]
    for _ in range(_PASSES):
        if len(x) < 3:
            return x, y
        rise, run = y[1:] - y[:-1], x[1:] - x[:-1]
        slope = _ratio(rise, run)
        # A point below the line between any two others is not on the hull, so all that certainly are can go at once.
        under = slope[:-1] < slope[1:] * (1 - 2.0**-48)
        if not bool(under.any()):
            break
        keep = np.ones(len(x), dtype=bool)
        keep[1:-1] = ~under
        x, y = x[keep], y[keep]
    else:
        return _walked(x, y)
    return x, y


def _walked(x: Integers, y: Integers) -> tuple[Integers, Integers]:
    """The hull of what many passes left over, point by point (Andrew's walk), in exact integers."""
    kept: list[tuple[int, int]] = []
    for px, py in zip(x.tolist(), y.tolist(), strict=True):
        while len(kept) > 1:
            (ax, ay), (bx, by) = kept[-2], kept[-1]
            if (by - ay) * (px - bx) > (py - by) * (bx - ax):
                break
            kept.pop()
        kept.append((px, py))
    return integers([a for a, _ in kept]), integers([b for _, b in kept])
