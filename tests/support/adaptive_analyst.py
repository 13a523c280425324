"""The cleverest adaptive analyst, by exact dynamic programming.

Each mechanism is played on one of two neighbouring data sets; the analyst sees every outcome and chooses the next
mechanism, or stops, so as to make ``delta(E) = E[(1 - e^(E - loss))+]`` as large as a filter allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Game:
    """A mechanism as its losses: (probability, loss), where the loss may be infinite."""

    name: Hashable
    outcomes: tuple[tuple[float, float], ...]


def response(epsilon: float, delta: float = 0.0) -> Game:
    """Randomised response, betraying everything with probability delta."""
    up = (1 - delta) / (1 + math.exp(-epsilon))
    outcomes = [(up, epsilon), (1 - delta - up, -epsilon)]
    return Game((epsilon, delta), tuple(outcomes + ([(delta, math.inf)] if delta else [])))


def peeling(epsilon: float, share: float) -> Game:
    """A mechanism of bounded range: losses t and t - epsilon with t = share * epsilon."""
    t = share * epsilon
    up = -math.expm1(t - epsilon) / -math.expm1(-epsilon)
    return Game((epsilon, "range", share), ((up, t), (1 - up, t - epsilon)))


def worst_delta(
    games: Sequence[Game], admits: Callable[[tuple[int, ...], int], bool], epsilon: float
) -> float:
    """The largest delta at ``epsilon`` over all adaptive analysts.

    ``admits(counts, i)`` is the filter: whether game i may follow when game j was played ``counts[j]`` times.
    """

    @cache
    def allowed(counts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(i for i in range(len(games)) if admits(counts, i))

    @cache
    def value(counts: tuple[int, ...], loss: float) -> float:
        if loss == math.inf:
            return 1.0
        best = -math.expm1(epsilon - loss) if loss > epsilon else 0.0
        for i in allowed(counts):
            after = tuple(n + (j == i) for j, n in enumerate(counts))
            best = max(best, sum(p * value(after, round(loss + x, 10)) for p, x in games[i].outcomes))
        return best

    return value((0,) * len(games), 0.0)
