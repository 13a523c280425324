"""Noise on a tree of sums of neighbouring steps, and the least-squares fit to it (Hay, Rastogi, Miklau, Suciu 2010).

Relation, sensitivity and guarantee: :mod:`dpsql.mechanisms.ordered_noise`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from dpsql.mechanisms.ordered_noise import SAFE_INTEGERS, OrderedNoise, StepPlaces, add_rounded, share_noise
from dpsql.mechanisms.per_group import LaplaceNoise, Noise
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import Floats, Integers

_SAMPLED = 1024
"""The most running totals by which trees are compared."""
_MOST_BRANCHES = 16
_LEAST = 1e-30
"""Lower bound on variances, so that they can be divisors."""


@dataclass(frozen=True)
class TreeNoise(OrderedNoise):
    """Noise on the steps and on sums of 1, b, b^2, ... neighbouring ones, with equal shares of the loss.

    See the module for the guarantee. ``branches`` is b, ``levels`` the number of noised vectors, including the steps.
    """

    word = "TREE"
    base: Noise
    steps: int
    branches: int
    levels: int

    def __post_init__(self) -> None:
        self._validate_steps()
        if self.branches < 2 or not 2 <= self.levels <= 64:
            raise ValueError("a tree has two branches and two levels at least")

    @cached_property
    def vectors(self) -> tuple[Noise, ...]:
        """The noise of each level, the steps first."""
        share = Fraction(1, self.levels)
        s, g = self.base.sensitivity, self.base.groups
        if isinstance(self.base, LaplaceNoise):
            return (share_noise(self.base, share, s * g, 1),) * self.levels
        sizes = (self.branches**level for level in range(self.levels))
        return tuple(share_noise(self.base, share, s, g * min(size, g)) for size in sizes)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """The steps per node at each level."""
        return tuple(min(self.branches**level, 1 << 40) for level in range(self.levels))

    def draw_run(self, values: Integers, entropy: Entropy) -> Integers:
        sums = [_widened(values)]
        for _ in range(1, self.levels):
            sums.append(_add_neighbours(sums[-1], self.branches))
        noisy = [noise.add(exact, entropy) for noise, exact in zip(self.vectors, sums, strict=True)]
        return self.fit(noisy)

    def fit(self, noisy: Sequence[Integers]) -> Integers:
        """Return the integer steps that best fit all noisy sums, by weighted least squares, for numbers of any size."""
        steps, weights = _widened(noisy[0]), self._weights
        rest, sums = [np.zeros(len(steps))], steps
        for level in noisy[1:]:
            sums = _add_neighbours(sums, self.branches)
            rest.append((level - sums).astype(np.float64))
        return add_rounded(steps, _fit_tree(rest, weights, self.branches))

    def expect_variances(self, first: StepPlaces, last: StepPlaces) -> Floats:
        return _find_tree_variances(self.steps, self.branches, self._weights, first, last)

    @property
    def _weights(self) -> list[float]:
        return [max(noise.variance, _LEAST) for noise in self.vectors]

    def describe_strategy(self) -> str:
        return f"each step and on each sum of {', '.join(str(size) for size in self._sizes[1:])} neighbouring steps"


def _add_neighbours(values: Integers, count: int) -> Integers:
    if not len(values):
        return values
    sums: Integers = np.add.reduceat(values, np.arange(0, len(values), count))
    return sums


def _widened(values: Integers) -> Integers:
    """Return integers of a type that can represent their sum."""
    if values.dtype == np.int64 and len(values):
        most = max(abs(int(values.max())), abs(int(values.min())))
        if most * len(values) >= SAFE_INTEGERS:
            return values.astype(object)
    return values


def _fit_tree(noisy: Sequence[Floats], weights: Sequence[float], branches: int) -> Floats:
    """Return the steps that best fit a tree's noisy sums; ``weights`` are the variances of the levels."""
    best, spread = [noisy[0]], [np.full(len(noisy[0]), weights[0])]
    below: list[tuple[Floats, Floats]] = []
    for values, own in zip(noisy[1:], weights[1:], strict=True):
        starts = np.arange(0, len(best[-1]), branches)
        total, wide = np.add.reduceat(best[-1], starts), np.add.reduceat(spread[-1], starts)
        below.append((total, wide))
        best.append(total + wide / (wide + own) * (values - total))
        spread.append(wide * own / (wide + own))
    fitted = best[-1]
    for level in range(len(below) - 1, -1, -1):
        (total, wide), parent = below[level], np.arange(len(best[level])) // branches
        fitted = best[level] + spread[level] / wide[parent] * (fitted - total)[parent]
    return fitted


def _find_tree_variances(
    steps: int, branches: int, weights: Sequence[float], first: StepPlaces, last: StepPlaces
) -> Floats:
    """Return the variances of sums of fitted steps, from first to last.

    The fit and its covariance are those of a Gaussian posterior with a flat prior. Given a node's sum x, its children
    are independent of the rest; so within a node the part of a range is ``a * x`` plus an independent term of variance b.
    """
    spread = [np.full(steps, weights[0])]
    for own in weights[1:]:
        wide = np.add.reduceat(spread[-1], np.arange(0, len(spread[-1]), branches))
        spread.append(wide * own / (wide + own))
    wides = [np.add.reduceat(v, np.arange(0, len(v), branches)) for v in spread[:-1]]
    known = [spread[-1]]  # the variances of nodes given all
    for level in range(len(wides) - 1, -1, -1):
        parent = np.arange(len(spread[level])) // branches
        part = spread[level] / wides[level][parent]
        known.append(spread[level] * (1 - part) + part**2 * known[-1][parent])
    known.reverse()
    first, last = np.asarray(first, dtype=np.intp), np.asarray(last, dtype=np.intp)
    found = np.where(first == last, known[0][first], np.nan)
    left, right = (np.ones(len(first)), np.zeros(len(first))), (np.ones(len(first)), np.zeros(len(first)))
    a, b = first.copy(), last.copy()
    for level, wide in enumerate(wides):
        before = np.concatenate(([0.0], np.cumsum(spread[level])))
        up_a, up_b = a // branches, b // branches
        start, end = up_b * branches, np.minimum((up_a + 1) * branches, len(spread[level]))
        meet = (up_a == up_b) & (a != b)
        inner = before[b] - before[np.minimum(a + 1, b)]
        all_of, of_a, of_b = wide[up_a], spread[level][a], spread[level][b]
        mixed = inner + left[0] * of_a + right[0] * of_b
        squares = inner + left[0] ** 2 * of_a + right[0] ** 2 * of_b
        own = left[1] + right[1] + squares - mixed**2 / all_of
        joined = (mixed / all_of) ** 2 * known[level + 1][up_a] + own
        found = np.where(meet & np.isnan(found), joined, found)
        left = _step_up(left, of_a, before[end] - before[a + 1], wide[up_a])
        right = _step_up(right, of_b, before[b] - before[start], wide[up_b])
        a, b = up_a, up_b
    before = np.concatenate(([0.0], np.cumsum(known[-1])))
    apart = left[0] ** 2 * known[-1][a] + right[0] ** 2 * known[-1][b] + left[1] + right[1]
    apart = apart + before[b] - before[np.minimum(a + 1, b)]
    whole: Floats = np.where(np.isnan(found), apart, found)
    return whole


def _step_up(part: tuple[Floats, Floats], own: Floats, beside: Floats, wide: Floats) -> tuple[Floats, Floats]:
    """Return the coefficient of the parent's sum in a part of a range, and the variance of the independent rest."""
    mixed = beside + part[0] * own
    return mixed / wide, part[1] + beside + part[0] ** 2 * own - mixed**2 / wide


@lru_cache(maxsize=64)
def choose_tree(steps: int, pure: bool, groups: int) -> tuple[int, int]:
    """Return branches and levels of the tree whose running totals have the least expected squared error."""
    last = np.unique(np.linspace(0, steps - 1, min(steps, _SAMPLED)).astype(np.intp))
    first = np.zeros(len(last), dtype=np.intp)

    def measure(shape: tuple[int, int]) -> float:
        branches, levels = shape
        sizes = [min(branches**level, 1 << 40) for level in range(levels)]
        weights = [levels**2 if pure else levels * min(size, groups) for size in sizes]
        return float(_find_tree_variances(steps, branches, weights, first, last).mean())

    return min(_list_shapes(steps), key=measure)


def _list_shapes(steps: int) -> Iterator[tuple[int, int]]:
    for branches in range(2, _MOST_BRANCHES + 1):
        levels = 2
        while levels == 2 or branches ** (levels - 1) < steps * branches:
            yield branches, levels
            levels += 1


def make_tree(base: Noise, steps: int) -> TreeNoise:
    """Return the best tree for running totals of this many steps, at the cost of ``base``."""
    return TreeNoise(base, steps, *choose_tree(steps, isinstance(base, LaplaceNoise), base.groups))
