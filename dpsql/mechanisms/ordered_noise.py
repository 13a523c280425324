"""Noise for numbers in the order of a public key that makes running totals and ranges more accurate.

Independent noise on steps accumulates: a running total of 365 days has that of 365 days. Here noise is added to other
integers from which the steps are computed, so that the sum of any run of steps has the noise of a few draws.

* A tree (Hay, Rastogi, Miklau, Suciu 2010): the steps, and sums of 1, b, b^2, ... neighbouring ones, all get noise. The
  shown steps are the least-squares fit to all of them: the best linear unbiased estimate of every range.
* A tree over growing time (Chan, Shi, Song 2011): a node is the sum of 1, 2, 4, ... neighbouring steps, and one node ends with
  each step. A running total is the sum of the nodes of its length's binary digits, so later steps never change it.
* The square root of the matrix of running totals (Henzinger, Upadhyay, Upadhyay 2023; Fichtenberger, Henzinger,
  Upadhyay 2023): a triangular matrix whose square adds up all steps before a step. Its product with the steps gets
  noise, and is solved for them.

Relation: ADD_REMOVE. One unit moves the exact steps by a vector v with ``|v|_1 <= s * g`` and ``|v|_2^2 <= s^2 * g``, for the
sensitivity s and the groups g that noise on the steps alone declares (``base``). It follows for the noised vectors that

* the sums of c neighbouring steps move in total by at most ``s * g`` in L1, for a sum's move is at most those of its
  steps; and by at most ``s^2 * g * min(c, g)`` in squared L2: a squared sum of c numbers is at most c times the sum of
  their squares, and no vector is longer than its L1 norm.
* the product with a triangular matrix, whose columns are one non-increasing sequence r of integers, truncated at the
  end, moves by at most ``s * g * sum(r)`` in L1. In squared L2 it is ``sum_d h_d * a_d`` over distances d. Here
  ``h_d``, the product of two columns d apart, is at most that of the first column and the one d later, so it is
  non-increasing in d. Of the ``a_d``, the products of moves that are d apart, ``a_0`` is at most ``s^2 * g``, each
  other ``2 * s^2 * g`` (Cauchy and Schwarz), and their total ``s^2 * g^2``. So the sum is at most its value with the
  nearest distances at their maxima.

Steps of several runs (a run for each value of further keys) are in different sums, and in products that share no row, so the
bounds are unchanged. Guarantee: that of the event, which costs as much as ``base``: independent noise on jointly fixed vectors.
Everything after the draw is post-processing. The caller must ensure the requirements of ``base``, and that the key's values,
and with them the places of steps, are public.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.per_group import (
    GaussianNoise,
    GaussianNoiseByMu,
    JointGaussianNoise,
    LaplaceNoise,
    Noise,
)
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import Floats, Integers, add_integers, find_largest, to_integers
from dpsql.privacy import events

StepPlaces = NDArray[np.intp]
StepRows = NDArray[np.intp]
"""The rows of one run of steps, in key order."""

_HARDLY = 1e-3
"""Noise up to this variance is nearly always 0, so that rounding adds no error."""
SAFE_INTEGERS = 1 << 61
"""Integers below this can be added and multiplied in 64 bits."""


class OrderedNoise(Noise):
    """Noise on runs of at most ``steps`` steps, in key order, at the cost, and with the claims, of ``base``."""

    base: Noise
    steps: int
    word: str

    def _validate_steps(self, most: int | None = None) -> None:
        if not isinstance(self.base, LaplaceNoise | GaussianNoise):
            raise ValueError("only independent noise can be put in order")
        if self.steps < 1 or (most is not None and self.steps > most):
            raise ValueError("the number of steps is out of range")

    @property
    def sensitivity(self) -> int:  # type: ignore[override]
        return self.base.sensitivity

    @property
    def groups(self) -> int:  # type: ignore[override]
        return self.base.groups

    @property
    def epsilon(self) -> Fraction:  # type: ignore[override]
        return self.base.epsilon

    @property
    @abstractmethod
    def vectors(self) -> tuple[Noise, ...]: ...

    @abstractmethod
    def draw_run(self, values: Integers, entropy: Entropy) -> Integers:
        """Return the steps of one run, computed from noisy integers alone."""

    @abstractmethod
    def expect_variances(self, first: StepPlaces, last: StepPlaces) -> Floats:
        """Return the variances of sums of steps, from each first one to each last one, in a run of full length."""

    @abstractmethod
    def describe_strategy(self) -> str: ...

    @property
    def event(self) -> events.Event:
        if isinstance(self.base, LaplaceNoise):
            whole = max(noise.sensitivity for noise in self.vectors)
            return events.DiscreteLaplace(self.base.epsilon, whole, len(self.vectors))
        if isinstance(self.base, GaussianNoiseByMu):
            return _hold_to(self.base, self.vectors)
        return events.compose_events(noise.event for noise in self.vectors)

    @cached_property
    def _variances(self) -> Floats:
        return np.asarray(self._unrounded + self.rounding)

    @property
    def rounding(self) -> float:
        """The variance that rounding at both ends adds to the sum of a run; 0 if there is hardly any noise to round."""
        return 1 / 6 if float(self._unrounded.max()) > _HARDLY else 0.0

    @cached_property
    def _unrounded(self) -> Floats:
        places = np.arange(self.steps)
        return self.expect_variances(places, places)

    @property
    def variance(self) -> float:
        return float(self._variances.mean())

    @property
    def largest_variance(self) -> float:
        return float(self._variances.max())

    @property
    def independent(self) -> Noise:
        return self.base

    @property
    def is_gaussian(self) -> bool:
        return self.base.is_gaussian

    @property
    def mean_error(self) -> float:
        return math.sqrt(2 / math.pi * self.variance)

    def half_width(self, confidence: float) -> float:
        return self.widen(self.largest_variance, confidence)

    def widen(self, variance: float, confidence: float) -> float:
        """Return the half width of an interval of a sum of such noise with this variance."""
        return widen_sum(self, variance, confidence)

    def on(self, base: Noise) -> OrderedNoise:
        """Return this strategy at the cost of another noise."""
        changed: OrderedNoise = replace(self, base=base)  # type: ignore[type-var]
        return changed

    def rescale(self, factor: Fraction) -> OrderedNoise:
        return self.on(self.base.rescale(factor))

    def _draw(self, n: int, entropy: Entropy) -> Integers:
        raise TypeError("noise in the order of a key needs the runs of steps")

    def _describe(self, steps: float, shared: str) -> str:
        top = self.vectors[-1]
        return f"{top._describe(steps, shared)} on {self.describe_strategy()}"

    def add_runs(
        self, values: Sequence[int] | Integers, runs: Sequence[StepRows], entropy: Entropy
    ) -> Integers:
        """Return the exact steps ``values``, one per row, with noise; each row is in one run, in key order."""
        exact = to_integers(values)
        parts: list[tuple[StepRows, Integers]] = []
        for run in runs:
            for start in range(0, len(run), self.steps):
                rows = run[start : start + self.steps]
                parts.append((rows, self.draw_run(exact[rows], entropy)))
        whole = all(found.dtype == np.int64 for _, found in parts)
        noisy: Integers = np.zeros(len(exact), dtype=np.int64 if whole else object)
        for rows, found in parts:
            noisy[rows] = found
        return noisy


def widen_sum(noise: Noise, variance: float, confidence: float) -> float:
    """Return the half width, in whole steps, of an interval of a sum of independent noise with this total variance.

    A sum of Laplace noises has tails between those of one of them and Gaussian tails; the wider is taken.
    """
    base = noise.independent
    doubt = (1 - confidence) * (1 - 1e-9)
    z = -NormalDist().inv_cdf(doubt / 2)
    if isinstance(base, LaplaceNoise):
        z = max(z, math.log(1 / doubt) / math.sqrt(2))
    return float(math.ceil(z * math.sqrt(variance) * (1 + 1e-9)))


def _hold_to(base: GaussianNoise, vectors: Sequence[Noise]) -> events.Event:
    """Return the joint event of vectors whose squared mus add up to at most that of ``base``."""
    squared = sum(
        (
            noise.groups * noise.sensitivity**2 / noise.sigma**2
            for noise in vectors
            if isinstance(noise, GaussianNoise)
        ),
        Fraction(0),
    )
    if squared > base.groups * base.sensitivity**2 / base.sigma**2:
        raise ValueError("the shares of a mu are more than the whole")
    return base.event


def share_noise(base: Noise, share: Fraction, sensitivity: int, groups: int) -> Noise:
    """Return noise for a share of the cost of ``base``, for a vector of larger sensitivity.

    Args:
        base: the noise to divide: Laplace noise by epsilon, Gaussian noise by squared mu.
        sensitivity, groups: the L1 and the squared L2 sensitivity of the vector, as each noise reads them.
    """
    if isinstance(base, LaplaceNoise):
        return LaplaceNoise(base.epsilon * share, sensitivity, groups)
    if isinstance(base, GaussianNoiseByMu):
        return GaussianNoiseByMu.of_mu(base.mu_squared * share, base.delta * share, sensitivity, groups)
    if isinstance(base, JointGaussianNoise):
        share = share * base.share
    elif not isinstance(base, GaussianNoise):
        raise ValueError("only independent noise can be shared out")
    if share == 1:
        return GaussianNoise.calibrate(base.epsilon, base.delta, sensitivity, groups)
    return JointGaussianNoise.calibrate_share(base.epsilon, base.delta, sensitivity, groups, share)


def add_rounded(values: Integers, more: Floats) -> Integers:
    """Add a correction with rounded running totals, so that the sum of any run of steps is off by at most 1."""
    ends = np.rint(np.cumsum(more))
    small = not len(ends) or np.abs(ends).max() < SAFE_INTEGERS
    whole = ends.astype(np.int64) if small else np.array([int(v) for v in ends], dtype=object)
    whole[1:] = whole[1:] - whole[:-1].copy()
    return np.asarray(add_integers(values, whole))


def add_noise(noise: Noise, exact: Integers, runs: Sequence[StepRows], entropy: Entropy) -> Integers:
    """Return values with noise, along the runs if the noise is ordered."""
    return (
        noise.add_runs(exact, runs, entropy) if isinstance(noise, OrderedNoise) else noise.add(exact, entropy)
    )


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
        sizes = [g * min(self.branches**level, g) for level in range(self.levels)]
        each = {size: share_noise(self.base, share, s, size) for size in set(sizes)}
        return tuple(each[size] for size in sizes)

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


def find_node_level(steps: int, levels: int) -> int:
    """Return the level of the node that ends with the last of ``steps`` steps. A node of level n has 2 ** n steps.

    >>> [find_node_level(n, 3) for n in range(1, 9)]
    [0, 1, 0, 2, 0, 1, 0, 2]
    """
    return min((steps & -steps).bit_length(), levels) - 1


@dataclass(frozen=True)
class GrowingTree(TreeNoise):
    """Noise on the nodes of a tree over growing time, each drawn once, with equal shares of the loss for each level.

    Guarantee: that of :class:`TreeNoise`, some of whose nodes are left out. Draws of single levels, or of some nodes of a level,
    lose the level's share, and may depend on earlier ones. A step is in one node of each level at most.

    Args:
        steps: their number so far. No node's noise depends on it.
        level: the level whose nodes are drawn, one for every ``steps`` steps: its sum is in its last step, the others are 0.
            None: all levels are drawn, and the running totals of the steps are sums of nodes.
    """

    steps: int = field(compare=False)
    level: int | None = None

    @property
    def event(self) -> events.Event:
        return super().event if self.level is None else self.vectors[self.level].event

    @property
    def rounding(self) -> float:
        return 0.0

    def at_level(self, level: int) -> GrowingTree:
        """Return the noise of the nodes of one level."""
        return replace(self, steps=self._sizes[level], level=level)

    def draw_run(self, values: Integers, entropy: Entropy) -> Integers:
        values = _widened(values)
        if self.level is not None:
            last = self.vectors[self.level].add(values.sum(keepdims=True), entropy)
            return np.asarray(np.concatenate((np.zeros_like(values[1:]), last)))
        ends = np.concatenate((np.zeros_like(values[:1]), np.cumsum(values)))
        counts = np.arange(1, len(ends))
        levels = np.array([find_node_level(int(n), self.levels) for n in counts])
        nodes = values.astype(object)
        for level, noise in enumerate(self.vectors):
            chosen = counts[levels == level]
            nodes[chosen - 1] = noise.add(ends[chosen] - ends[chosen - self._sizes[level]], entropy)
        return self.add_up(nodes)

    def add_up(self, nodes: Integers) -> Integers:
        """Return the steps whose running totals are the sums of nodes, given the node that ends with each step."""
        totals = [0]
        for count, node in enumerate(nodes.tolist(), 1):
            totals.append(totals[count - self._sizes[find_node_level(count, self.levels)]] + node)
        return to_integers([after - before for before, after in pairwise(totals)])

    def expect_variances(self, first: StepPlaces, last: StepPlaces) -> Floats:
        if self.level is not None:
            return np.full(len(first), self.vectors[self.level].variance)
        before, after = np.asarray(first), np.asarray(last) + 1
        found = np.zeros(len(before))
        for level, noise in enumerate(self.vectors):
            one, other = before >> level, after >> level
            if level == self.levels - 1:
                nodes = other - one
            else:  # those of both totals cancel out
                nodes = (one & 1) + (other & 1) - 2 * (one & 1) * (one == other)
            found += nodes * noise.variance
        return found

    def describe_strategy(self) -> str:
        return f"each of the sums of {', '.join(map(str, self._sizes))} neighbouring steps that make up running totals"


def _add_neighbours(values: Integers, count: int) -> Integers:
    if not len(values):
        return values
    return np.asarray(np.add.reduceat(values, np.arange(0, len(values), count)))


def _widened(values: Integers) -> Integers:
    """Return integers of a type that can represent their sum."""
    fits = values.dtype != np.int64 or find_largest(values) * len(values) < SAFE_INTEGERS
    return values if fits else values.astype(object)


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
    return np.asarray(np.where(np.isnan(found), apart, found))


def _step_up(part: tuple[Floats, Floats], own: Floats, beside: Floats, wide: Floats) -> tuple[Floats, Floats]:
    """Return the coefficient of the parent's sum in a part of a range, and the variance of the independent rest."""
    mixed = beside + part[0] * own
    return mixed / wide, part[1] + beside + part[0] ** 2 * own - mixed**2 / wide


@lru_cache(maxsize=64)
def choose_tree(steps: int, pure: bool, groups: int) -> tuple[int, int]:
    """Return branches and levels of the tree whose running totals have the least expected squared error."""
    places = np.linspace(0, steps - 1, min(steps, _SAMPLED)).astype(np.intp)
    # np.unique would import numpy.ma, in most sessions for this alone
    last = places[np.diff(places, prepend=-1) > 0]
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
        for length in set(lengths.tolist()):
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
    fits = values.dtype == np.int64 and find_largest(values) * int(r.sum()) < SAFE_INTEGERS
    given = values if fits else values.astype(object)
    return np.asarray(np.convolve(given, r if fits else r.astype(object))[:n])


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
