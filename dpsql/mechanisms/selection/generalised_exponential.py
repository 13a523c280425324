"""Scores for candidates that differ in sensitivity: the generalised exponential mechanism's.

    s_r = min over r' of ((u_r - t D_r) - (u_r' - t D_r')) / (D_r + D_r')        (Raskhodnikova, Smith 2016)

However a unit moves each u_r by at most its own D_r, it moves every s_r by at most 1, for any public t: each
quotient's numerator moves by at most its denominator. So candidates that one unit hardly moves are told apart
with little noise, whatever the others are like.

The minimum over all pairs is found in O(n log n): the r' that matter are the upper hull of the points
(D_r', u_r' - t D_r'), and which of them is least for r follows from a binary search along it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.noise.selection import FEW, Field, below_top, reach_of
from dpsql.numerics.integers import Integers, integers, largest

GRID = 1 << 16
"""Steps of a score of 1."""

SENSITIVITY = GRID + 1
"""Steps that one unit moves a score by: GRID, and one for the last bits of the quotients.

Two scores at most GRID apart, each computed to within half a step and rounded down, are at most GRID + 1 apart.
The quotients are of exact integer differences, in doubles: their error is below 2**-49 of their size, which is held
to at most 2**24 units, or 2**40 steps.
"""

_FLOOR = -float(1 << 24)
_FAR = 1 << 39
_PASSES = 60
_WHOLE = 1 << 53
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
    top = int(ahead.max())
    if (
        top - int(ahead.min()) < _WHOLE and int(own.max()) < _WHOLE
    ):  # then doubles hold these integers exactly
        ahead, y = (ahead - top).astype(np.float64), (y - top).astype(np.float64)
        own, x = own.astype(np.float64), x.astype(np.float64)
    hull = _Hull(x, y)
    out = np.empty(len(own), dtype=np.int64)
    for start in range(0, len(own), _BLOCK):
        part = slice(start, start + _BLOCK)
        out[part] = np.floor(np.maximum(hull.least(ahead[part], own[part]), _FLOOR) * GRID)
    return out


def generalised_field(utilities: Integers, sensitivities: Integers, t: int, rate: Fraction) -> Field:
    """The candidates by their scores, of which those far below the best are counted only.

    The best is b, the candidate farthest ahead (a_r = u_r - t D_r is largest): its score is 0. Against b alone a candidate
    gets at least its score, so one with a_b - a_r > c (D_r + D_b) is more than c below. And no far candidate is what
    a near one scores least against: as r gets at least -c against b, s gives less only if
    a_b - a_s <= c (D_b - D_s), and then s is near itself. So the hull of the near ones is enough for their scores.
    """
    c = spread_of(rate)
    if (
        c is not None
        and utilities.dtype == np.int64
        and sensitivities.dtype == np.int64
        and len(utilities) >= FEW
    ):
        own = np.maximum(sensitivities, 1)
        if abs(t) < _FAR and largest(utilities) + 2 * (abs(t) + c) * int(own.max()) < 1 << 61:
            near = nearest(utilities, own, t, c)
            if len(near) < len(utilities):
                gaps = below_top(generalised_scores(utilities[near], own[near], t))

                def gap_of(i: int) -> int:
                    return -int(generalised_scores(utilities, own, t)[i])

                return Field(len(utilities), gaps, near, reach_of(rate), gap_of)
    return Field(len(utilities), below_top(generalised_scores(utilities, sensitivities, t)))


def spread_of(rate: Fraction) -> int | None:
    """The c of :func:`generalised_field`: whole scores that are more than what is within reach. None: too many for doubles."""
    c = reach_of(rate) // GRID + 2
    return c if c < 1 << 20 else None


def nearest(utilities: Integers, own: Integers, t: int, c: int) -> NDArray[np.intp]:
    """The candidates that are not ``a_b - a_r > c (D_r + D_b)`` behind, b among them."""
    ahead = utilities - own * t
    best = int(ahead.argmax())
    ahead += own * c
    return np.flatnonzero(ahead >= int(ahead[best]) - 2 * c * int(own[best]))


class _Hull:
    """The candidates that the others are measured against, and the slopes from each to the next, falling."""

    def __init__(self, x: Any, y: Any) -> None:
        self.last = len(x) - 1
        self.powers = [1 << k for k in reversed(range(self.last.bit_length()))]
        padding = (1 << self.last.bit_length()) - len(x)
        slopes = _ratio(y[1:] - y[:-1], x[1:] - x[:-1])
        self.x, self.y = np.append(x, [x[-1]] * padding), np.append(y, [y[-1]] * padding)
        self.slopes = np.append(slopes, [-np.inf] * (padding + 1))

    def least(self, ahead: Any, own: Any) -> NDArray[np.float64]:
        """The least quotient of each candidate.

        As r is compared with points ever further along the hull, the quotient falls as long as the hull is steeper
        than the way from r's mirror image, and rises after that: bisection finds the turn, but for the last bits.
        """
        place = np.zeros(len(own), dtype=np.int64)
        for power in self.powers:
            here = place + (power - 1)
            steep = self.slopes.take(here) * (self.x.take(here) + own) >= self.y.take(here) - ahead
            place += power * steep
        np.minimum(place, self.last, out=place)
        score = self._quotient(ahead, own, place)
        for step in (-1, 1):  # walk on while it falls: seldom a step, never many
            left = np.arange(len(own))
            while len(left):
                near = np.clip(place[left] + step, 0, self.last)
                found = self._quotient(ahead[left], own[left], near)
                better = found < score[left]
                left, near = left[better], near[better]
                score[left], place[left] = found[better], near
        return score

    def _quotient(self, ahead: Any, own: Any, place: NDArray[np.int64]) -> NDArray[np.float64]:
        return _ratio(ahead - self.y.take(place), own + self.x.take(place))


def _ratio(numerator: Any, denominator: Any) -> NDArray[np.float64]:
    return np.asarray(numerator.astype(np.float64, copy=False) / denominator.astype(np.float64, copy=False))


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
