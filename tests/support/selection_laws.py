"""Laws of selection mechanisms in rational numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpsql.mechanisms.selection.exponential import ExponentialChoice


def em(weights: Sequence[Fraction]) -> list[Fraction]:
    return [w / sum(weights) for w in weights]


def pf(weights: Sequence[Fraction]) -> list[Fraction]:
    """Accept each with its weight, and choose evenly among those accepted (McKenna, Sheldon 2020)."""
    out = []
    for i, w in enumerate(weights):
        others = [Fraction(1)]  # probabilities of how many others are accepted
        for j, v in enumerate(weights):
            if j != i:
                others = [a * (1 - v) + b * v for a, b in zip([*others, 0], [0, *others], strict=True)]
        out.append(w * sum((p / (k + 1) for k, p in enumerate(others)), Fraction(0)))
    return out


def laplace(scores: Sequence[int], scale: float) -> list[float]:
    """Return each score's chance of being the largest after discrete Laplace noise, ties broken evenly, summed over the grid."""
    q = math.exp(-1 / scale)
    grid = np.arange(-int(40 * scale) - 60, int(40 * scale) + 61)

    def at(d: np.ndarray) -> np.ndarray:
        return np.asarray((1 - q) / (1 + q) * q ** np.abs(d))

    def below(d: np.ndarray) -> np.ndarray:  # Pr[noise < d]
        return np.where(d <= 0, q ** (1.0 - d) / (1 + q), 1 - q ** np.maximum(d, 0.0) / (1 + q))

    out = []
    for i, score in enumerate(scores):
        ties = [np.ones(len(grid))]
        for j, other in enumerate(scores):
            if j != i:
                less, equal = below(grid - other), at(grid - other)
                zero = np.zeros(len(grid))
                ties = [a * less + b * equal for a, b in zip([*ties, zero], [zero, *ties], strict=True)]
        out.append(float(sum((at(grid - score) * t / (k + 1)).sum() for k, t in enumerate(ties))))
    return out


def weights(scores: Sequence[int], x: Fraction) -> list[Fraction]:
    return [x ** (max(scores) - s) for s in scores]


def choice(
    method: str, epsilon: Fraction = Fraction(1), monotone: bool = False, sensitivity: int = 1, **more: object
) -> ExponentialChoice:
    return ExponentialChoice(("q",), ("k",), sensitivity, epsilon, monotone, method, **more)  # type: ignore[arg-type]
