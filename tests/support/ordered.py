"""The vectors that noise in the order of a key is added to, seen from inside, and the errors of what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.ordered_noise import OrderedNoise
from dpsql.mechanisms.per_group import Noise
from dpsql.noise.entropy import Entropy

Vector = NDArray[np.int64]
Add = Callable[[Noise, Vector, Entropy], Vector]


@contextmanager
def added_by(add: Add) -> Iterator[None]:
    """Let exact vectors get their noise from a function of a test."""
    before = Noise.add
    Noise.add = add  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Noise.add = before  # type: ignore[method-assign]


def list_vectors(noise: OrderedNoise, values: Sequence[int], runs: int = 1) -> list[Vector]:
    """Return the exact vectors that get noise, for so many runs of equal length, each vector of all runs in one."""
    found: list[Vector] = []

    def add(_: Noise, exact: Vector, __: Entropy) -> Vector:
        found.append(np.asarray(exact))
        return np.asarray(exact)

    with added_by(add):
        noise.add_runs(list(values), np.split(np.arange(len(values)), runs), Entropy())
    each = len(noise.vectors)
    return [np.concatenate(found[place::each]) for place in range(each)]


def list_moves(steps: int, sensitivity: int, groups: int) -> Iterator[Vector]:
    """Yield how one unit may move the steps: by so much in each of so many, all it has in one, and mixtures of these.

    All keep what a text is proved to do: ``|v|_1 <= s * g`` and ``|v|_2^2 <= s^2 * g``.
    """
    sizes = sorted({1, sensitivity, sensitivity + 1, sensitivity * groups})
    for count in range(1, min(groups, steps) + 1):
        for places in combinations(range(steps), count):
            for moved in product(sizes, repeat=count):
                if sum(moved) > sensitivity * groups or sum(m * m for m in moved) > sensitivity**2 * groups:
                    continue
                signs = product((1, -1), repeat=count) if count <= 2 else ((1,) * count,)
                for sign in signs:
                    vector = np.zeros(steps, dtype=np.int64)
                    vector[list(places)] = np.array(moved) * np.array(sign)
                    yield vector


def measure_pure(noise: OrderedNoise, move: Vector, runs: int = 1) -> Fraction:
    """Return the exact loss of Laplace noise where the steps move so: that of the likeliest output to tell."""
    still = list_vectors(noise, [0] * len(move), runs)
    moved = list_vectors(noise, [int(v) for v in move], runs)
    return sum(
        (
            Fraction(int(np.abs(b - a).sum())) / one.scale  # type: ignore[attr-defined]
            for one, a, b in zip(noise.vectors, still, moved, strict=True)
        ),
        Fraction(0),
    )


def measure_gaussian(noise: OrderedNoise, move: Vector, runs: int = 1) -> Fraction:
    """Return the exact squared mu of Gaussian noise where the steps move so."""
    still = list_vectors(noise, [0] * len(move), runs)
    moved = list_vectors(noise, [int(v) for v in move], runs)
    return sum(
        (
            Fraction(int(((b - a).astype(object) ** 2).sum())) / one.sigma**2  # type: ignore[attr-defined]
            for one, a, b in zip(noise.vectors, still, moved, strict=True)
        ),
        Fraction(0),
    )


def draw_errors(
    noise: OrderedNoise, draws: int, entropy: Entropy, factor: float = 1.0
) -> NDArray[np.float64]:
    """Return the errors of steps in so many draws, shape ``(draws, steps)``; ``factor`` makes the noise larger or smaller."""

    def add(one: Noise, exact: Vector, source: Entropy) -> Vector:
        return np.asarray(exact) + np.rint(factor * one._draw(len(exact), source).astype(np.float64)).astype(
            np.int64
        )

    zeros = np.zeros(noise.steps * draws, dtype=np.int64)
    with added_by(add):
        found = noise.add_runs(zeros, np.split(np.arange(len(zeros)), draws), entropy)
    return found.reshape(draws, noise.steps).astype(np.float64)


def read_root(errors: NDArray[np.float64], first: NDArray[np.intp], last: NDArray[np.intp]) -> float:
    """Return the root mean squared error of sums of steps."""
    before = np.concatenate((np.zeros((len(errors), 1)), np.cumsum(errors, axis=1)), axis=1)
    return float(np.sqrt(((before[:, last + 1] - before[:, first]) ** 2).mean()))
