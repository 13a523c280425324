"""The cleverest adaptive analyst on a grid of losses: the search of ``adaptive_analyst``, a whole grid at once.

Filters look at sums only, so the state of a game is how often each mechanism was played. Of each state the value is worked
out for all losses together, which makes games of some thousand states quick.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

Counts = tuple[int, ...]
Rule = Callable[[Counts, Counts], bool]
"""A rule that admits so many plays of each mechanism or not: before the next one, and with it."""


@dataclass(frozen=True)
class Play:
    """A mechanism as its finite losses (probability, loss), and the probability that it betrays everything."""

    outcomes: tuple[tuple[float, Fraction], ...]
    betrays: float = 0.0


def answered(epsilon: Fraction, delta: Fraction = Fraction(0)) -> Play:
    """Randomised response that betrays everything with probability delta."""
    up = float(1 - delta) / (1 + math.exp(-epsilon))
    return Play(((up, epsilon), (float(1 - delta) - up, -epsilon)), float(delta))


def worst(plays: Sequence[Play], admits: Rule, epsilon: Fraction) -> float:
    """The largest delta at ``epsilon`` over all analysts whom the rule admits."""
    losses = [loss for play in plays for _, loss in play.outcomes]
    step = Fraction(
        math.gcd(
            *(
                loss.numerator * (math.lcm(*(x.denominator for x in losses)) // loss.denominator)
                for loss in losses
            )
        ),
        math.lcm(*(x.denominator for x in losses)),
    )
    shifts = [[(p, int(loss / step)) for p, loss in play.outcomes] for play in plays]
    widest = [max(abs(shift) for _, shift in found) for found in shifts]

    @cache
    def following(counts: Counts) -> tuple[tuple[int, Counts], ...]:
        after = [tuple(n + (j == i) for j, n in enumerate(counts)) for i in range(len(plays))]
        return tuple((i, more) for i, more in enumerate(after) if admits(counts, more))

    @cache
    def reach(counts: Counts) -> int:
        return max((widest[i] + reach(after) for i, after in following(counts)), default=0)

    start = (0,) * len(plays)
    far = reach(start)
    grid = np.arange(-far, far + 1) * float(step)
    stop = np.maximum(0.0, -np.expm1(float(epsilon) - grid))

    @cache
    def value(counts: Counts) -> NDArray[np.float64]:
        best = stop
        for i, after in following(counts):
            padded = np.pad(value(after), widest[i], mode="edge")  # what is beyond the grid is never reached
            total = np.full(len(grid), plays[i].betrays)
            for p, shift in shifts[i]:
                total = total + p * padded[widest[i] + shift : widest[i] + shift + len(grid)]
            best = np.maximum(best, total)
        return best

    return float(value(start)[far])
