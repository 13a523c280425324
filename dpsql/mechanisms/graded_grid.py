"""A public grid between two bounds that is even far from 0, and ever finer near it.

Bounds that an owner declares are often far wider than the values: of amounts up to a million most are near 20, and an even
grid of some ten thousand points has one of them there. So the part of it near 0 has points eight times as near to each other,
of that the part near 0 again, and so on. A value is off by at most half an even step, and by at most a part ``2**-8`` of itself.

The exponential mechanism takes a point with a probability proportional to a public weight of the point, too (McSherry and
Talwar's base measure): any weights leave the guarantee as it is. If all weighed the same, a gap between two values of the data
would weigh more the nearer it is to 0, and medians near 0 would be drawn to it, of narrow bounds as of wide ones. So a point of
three levels weighs as much as it is wide, and the law of the answer is that of the even grid, only finer. Beyond the third
level points weigh the same: that is a few even steps in all, and values that are a billionth of the bounds still count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

FINER = 8
"""The steps of one level to a step of the level before it."""
REACH = 128
"""Each finer level ends at so many steps of the level before it."""
_EACH = REACH * FINER - REACH
"""The points of a level on one side, without those that the next one has in their place."""
DEPTH = 8
"""The finer levels where nothing says that values are coarser."""
_WEIGHED = 3
"""Points of so many finer levels weigh as much as they are wide; those of the others as much as the last of these."""


@dataclass(frozen=True)
class PointWeights:
    """Public weights of grid points, above 0 and whole: ``weights[i]`` of each from ``starts[i]`` on."""

    starts: tuple[int, ...]
    weights: tuple[int, ...]
    end: int

    def __post_init__(self) -> None:
        ends = (*self.starts[1:], self.end)
        if min(self.weights) < 1 or any(a >= b for a, b in zip(self.starts, ends, strict=True)):
            raise ValueError("weights are whole numbers above 0, of runs of points in order")

    @cached_property
    def _before(self) -> NDArray[np.int64]:
        sizes = np.diff(np.array(self.starts, dtype=np.int64)) * np.array(self.weights[:-1], dtype=np.int64)
        return np.append(np.int64(0), np.cumsum(sizes))

    @property
    def total(self) -> int:
        """The weight of all points."""
        return int(self.add_before(np.array([self.end]))[0])

    def add_before(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the weight of all points before each of these."""
        piece = np.searchsorted(np.array(self.starts), steps, side="right") - 1
        weights, starts = np.array(self.weights, dtype=np.int64), np.array(self.starts, dtype=np.int64)
        found: NDArray[np.int64] = self._before[piece] + (steps - starts[piece]) * weights[piece]
        return found

    def find_point(self, start: int, weight: int) -> int:
        """Return the point that is reached where this weight is passed from a point on."""
        at = int(self.add_before(np.array([start]))[0]) + weight
        piece = int(np.searchsorted(self._before, at, side="right")) - 1
        return self.starts[piece] + (at - int(self._before[piece])) // self.weights[piece]


@dataclass(frozen=True)
class GradedGrid:
    """The points of a grid, numbered from the one at 0 on.

    Args:
        steps: even steps to a unit.
        low: the even step of the lower bound.
        high: that of the upper one.
        levels: the finer levels.
    """

    steps: Fraction
    low: int
    high: int
    levels: int

    def __post_init__(self) -> None:
        if self.levels < 1 or self.low > self.high or self.steps <= 0:
            raise ValueError("a graded grid needs bounds, and a finer level")

    @classmethod
    def refine(cls, steps: Fraction, low: int, high: int, finest: Fraction) -> GradedGrid | None:
        """Return an even grid with finer points near 0; None where it is as fine as the values, or far from 0.

        Args:
            steps: even steps to a unit.
            low: the first of them.
            high: the last.
            finest: the least distance of two values; 0 where they have any number of digits.
        """
        far = low * high > 0 and min(abs(low), abs(high)) >= REACH
        levels = DEPTH
        while levels and 1 / (steps * FINER ** (levels - 1)) <= finest:
            levels -= 1
        return None if far or not levels else cls(steps, low, high, levels)

    @property
    def first(self) -> int:
        """The number of the point at the lower bound."""
        return self.find_step(self.low / self.steps)

    @property
    def last(self) -> int:
        """The number of the point at the upper bound."""
        return self.find_step(self.high / self.steps)

    @cached_property
    def weights(self) -> PointWeights:
        """The weights of the points: the width of their steps, but no finer than that of the third level, which is 1."""
        finest = min(self.levels, _WEIGHED)
        each = [FINER ** (finest - min(level, finest)) for level in range(self.levels + 1)]
        ends = [REACH + self._before(level) for level in range(self.levels)]  # from here on, level by level
        runs = {self.first - ends[0]: each[0]}
        runs |= {1 - end: weight for end, weight in zip(ends, each[1:], strict=True)}
        runs |= dict(zip(reversed(ends), reversed(each[:-1]), strict=True))
        at_first = max(start for start in runs if start <= self.first)
        within = {start: weight for start, weight in runs.items() if self.first < start <= self.last}
        runs = {self.first: runs[at_first], **within}
        least = min(runs.values())
        return PointWeights(tuple(runs), tuple(w // least for w in runs.values()), self.last + 1)

    def _scale(self, level: int) -> Fraction:
        """Return the steps of a level to a unit; level 0 is even."""
        return self.steps * Fraction(FINER) ** level

    def _end(self, level: int) -> Fraction:
        """Return the size at which a finer level ends."""
        return REACH / self._scale(level - 1)

    def _before(self, level: int) -> int:
        """Return how many points more than its own steps lie before one of a level."""
        return (self.levels - level) * _EACH

    def find_step(self, value: Fraction) -> int:
        """Return the number of the point that a value is rounded to, in exact arithmetic."""
        size = abs(value)
        level = next((level for level in range(self.levels, 0, -1) if size < self._end(level)), 0)
        step = math.floor(size * self._scale(level) + Fraction(1, 2)) + self._before(level)
        return step if value > 0 else -step

    def value(self, step: int) -> Fraction:
        """Return the point of a number."""
        size, level = abs(step), self.levels
        while level and size - self._before(level) > REACH * FINER:
            level -= 1
        found = (size - self._before(level)) / self._scale(level)
        return found if step > 0 else -found

    def write_step(self, v: str) -> str:
        """Write SQL for the number of the point that a double is rounded to; NULL where its even step has over 31 bits."""
        cases = []
        for level in range(self.levels + 1):
            step = f"TRY_CAST(ABS({v}) * {_write(self._scale(level))} AS INTEGER)"
            if before := self._before(level):
                step += f" + {before}"
            last = level == self.levels
            cases.append(
                f"ELSE {step}" if last else f"WHEN ABS({v}) >= {_write(self._end(level + 1))} THEN {step}"
            )
        return f"CASE {' '.join(cases)} END * SIGN({v})"

    def describe(self) -> str:
        """Say for EXPLAIN where the points lie."""
        return (
            f"The points lie {float(1 / self.steps):g} apart, and near 0 ever nearer to each other, where they weigh less: a "
            f"value is off by at most 1/{2 * REACH} of itself, down to {float(REACH / self._scale(self.levels)):g}."
        )


def _write(number: Fraction) -> str:
    return f"CAST('{float(number)!r}' AS DOUBLE)"
