"""Noise on the product of steps with the square root of the matrix of running totals, and its solution.

Henzinger, Upadhyay, Upadhyay (2023); Fichtenberger, Henzinger, Upadhyay (2023). Relation, sensitivity and guarantee:
:mod:`dpsql.mechanisms.ordered_noise`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.ordered_noise import SAFE_INTEGERS, OrderedNoise, StepPlaces, add_rounded, share_noise
from dpsql.mechanisms.per_group import LaplaceNoise, Noise
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import Floats, Integers

ROOT_GRID = 1 << 16
"""The first number of the square root's columns, whose integers are multiples of its inverse."""
MAX_SQUARE_ROOT_STEPS = 4096
"""The most steps for the square root, whose time is quadratic in them."""
_EXACT = 1 << 48
"""Integers below this are exact as floats, and are divided as such."""


@lru_cache(maxsize=8)
def list_square_root(steps: int) -> NDArray[np.int64]:
    """Return the columns' non-increasing sequence: ``C(2k, k) / 4^k`` in parts of :data:`ROOT_GRID`, rounded."""
    exact, found = Fraction(ROOT_GRID), [ROOT_GRID]
    for k in range(1, steps):
        exact = exact * (2 * k - 1) / (2 * k)
        if k % 32 == 0:  # a public sequence of our choice; short fractions suffice
            exact = Fraction(math.floor(exact * (1 << 64)), 1 << 64)
        found.append(min(found[-1], round(exact)))
    return np.array(found, dtype=np.int64)


@lru_cache(maxsize=64)
def find_root_reach(steps: int, groups: int) -> int:
    """Return the squared L2 sensitivity of the product, to moves with ``|v|_1 <= groups`` and ``|v|_2^2 <= groups``."""
    r = list_square_root(steps)
    left, found = groups * groups, 0
    for distance in range(steps):
        most = groups if distance == 0 else min(2 * groups, left)
        found += most * int(r[: steps - distance] @ r[distance:])
        left -= most
        if not left:
            break
    return found


@lru_cache(maxsize=8)
def _invert(steps: int) -> Floats:
    """Return the coefficients of the reciprocal of the columns' power series."""
    r = list_square_root(steps).astype(np.float64)
    found = np.zeros(steps)
    found[0] = 1 / r[0]
    for k in range(1, steps):
        found[k] = -(r[1 : k + 1] @ found[k - 1 :: -1]) / r[0]
    return found


@dataclass(frozen=True)
class SquareRootNoise(OrderedNoise):
    """Noise on the product of the steps with the square root of the matrix of running totals.

    See the module for the guarantee. The matrix has integers in parts of :data:`ROOT_GRID`. Their rounding affects only
    the error, for the sensitivity is that of the integers.
    """

    word = "SQUARE_ROOT"
    base: Noise
    steps: int

    def __post_init__(self) -> None:
        self._validate_steps(MAX_SQUARE_ROOT_STEPS)

    @cached_property
    def vectors(self) -> tuple[Noise, ...]:
        s, g = self.base.sensitivity, self.base.groups
        if isinstance(self.base, LaplaceNoise):
            whole = s * g * int(list_square_root(self.steps).sum())
            return (share_noise(self.base, Fraction(1), whole, 1),)
        return (share_noise(self.base, Fraction(1), s, find_root_reach(self.steps, g)),)

    def draw_run(self, values: Integers, entropy: Entropy) -> Integers:
        return self.solve(self.vectors[0].add(_multiply(values), entropy))

    def solve(self, noisy: Integers) -> Integers:
        """Return the integer steps whose product is nearest to the noisy one, exactly for numbers of any size."""
        near = _divide(noisy)
        rest = (noisy - _multiply(near)).astype(np.float64)
        return add_rounded(near, np.convolve(_invert(len(rest)), rest)[: len(rest)])

    def expect_variances(self, first: StepPlaces, last: StepPlaces) -> Floats:
        totals = np.cumsum(_invert(self.steps))
        found = np.zeros(len(first))
        lengths = np.asarray(last) - np.asarray(first) + 1
        for length in np.unique(lengths):
            shifted = np.concatenate((np.zeros(length), totals[: self.steps - length]))
            squares = np.cumsum((totals - shifted) ** 2)
            chosen = lengths == length
            found[chosen] = squares[np.asarray(last)[chosen]]
        return found * self.vectors[0].variance

    def describe_strategy(self) -> str:
        return f"the product of the steps with the square root of the matrix of running totals, in parts of 1/{ROOT_GRID}"


def _multiply(values: Integers) -> Integers:
    """Return the exact product of the matrix with the steps."""
    n = len(values)
    if not n:
        return values
    r = list_square_root(n)
    fits = values.dtype == np.int64
    if fits:
        most = max(abs(int(values.max())), abs(int(values.min())))
        fits = most * int(r.sum()) < SAFE_INTEGERS
    given = values if fits else values.astype(object)
    made: Integers = np.convolve(given, r if fits else r.astype(object))[:n]
    return made


def _divide(noisy: Integers) -> Integers:
    """Return integer steps, of any size, whose product is near a noisy one."""
    n = len(noisy)
    r = list_square_root(n)
    if noisy.dtype == np.int64 and int(np.abs(noisy).max()) < _EXACT:
        return np.rint(np.convolve(_invert(n), noisy.astype(np.float64))[:n]).astype(np.int64)
    near, exact, columns = np.zeros(n, dtype=object), noisy.astype(object), r.astype(object)
    for k in range(n):
        known = columns[1 : k + 1] @ near[k - 1 :: -1] if k else 0
        near[k] = (exact[k] - known + ROOT_GRID // 2) // ROOT_GRID
    return near


def make_square_root(base: Noise, steps: int) -> SquareRootNoise:
    """Return the square root for this many steps, at the cost of ``base``."""
    return SquareRootNoise(base, steps)
