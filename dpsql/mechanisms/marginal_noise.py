"""The noise of marginals that are put together from residuals, and the shares of the budget that make it least.

Let x be the sums over a product of keys with m_i values each. The residual of a set T of keys is ``P x_T``, where x_T are the
sums over the other keys and P is the tensor product of ``I - J / m_i`` for the keys of T: what the sums say beyond those of
fewer keys. P is symmetric and idempotent, the residuals of different sets are orthogonal, and a marginal is

    x_S = sum over the subsets T of S of P x_T, spread evenly over the cells that agree in T

(ResidualPlanner: Xiao, He, Zhang, Kifer 2023, arXiv 2305.08175). With D the product of the m_i of T, ``D P x_T`` is whole. A
cell more or less moves it by the entries ``(m_i - 1)`` and ``-1``, multiplied over the keys of T: at most ``prod (m_i - 1)`` in
any entry, ``2**|T| prod (m_i - 1)`` in L1, and ``prod m_i (m_i - 1)`` in squared L2. A unit with cells of L1 weight w moves it by
w times as much, by the triangle inequality, however its cells fall together.

Relation: ADD_REMOVE. Guarantee: that of :class:`~dpsql.mechanisms.per_group.LaplaceNoise` and of its Gaussian fellows for these
sensitivities; everything above a noisy residual is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from statistics import NormalDist

import numpy as np

from dpsql.mechanisms.per_group import (
    GaussianNoise,
    GaussianNoiseByMu,
    JointGaussianNoise,
    LaplaceNoise,
    Noise,
)
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import Floats, Integers, to_integers
from dpsql.privacy.events import Event, compose_events

KeyPlaces = tuple[int, ...]
"""A set of keys, by their places in the whole."""
_SHARE_STEPS = 1 << 30
"""The shares of residuals are multiples of one part in so many: floats only propose them."""
_ROUNDS, _LIMIT_MARGIN, _HEAVIEST = 400, 1e-3, 1e12
"""Rounds in which weights are found for limits, the part by which limits are undercut, and the weight that is given up at."""
_MARGIN = 1e-9
_NEGLIGIBLE = 1e-6
"""A variance in squared steps below which a rounded cell is hardly ever off: by Chebyshev, at most four times as often."""
_FREQUENCIES = 1 << 13
_FREQUENCY_STEP = 0.05
"""The grid of frequencies, in parts of one over the deviation, on which the law of a sum of Laplace noise is inverted."""


def list_closure(sets: Iterable[KeyPlaces], sizes: Sequence[int]) -> tuple[KeyPlaces, ...]:
    """Return the sets of keys whose residuals make up the marginals of ``sets``; those that are always 0 are left out."""
    wide = {tuple(i for i in sorted(places) if sizes[i] > 1) for places in sets}
    found = {part for places in wide for n in range(len(places) + 1) for part in combinations(places, n)}
    return tuple(sorted(found, key=lambda p: (len(p), p)))


def find_reach(cells: Noise, sizes: Sequence[int], whole: bool) -> tuple[int, int]:
    """Return how far a unit moves a residual times D: so many steps in each of so many groups.

    For Laplace noise the product is the L1 distance, and no entry moves by more than the steps; for Gaussian noise the steps
    times the root of the groups is the L2 distance.

    Args:
        cells: the noise that the finest cells would have by themselves, with what a unit moves them by.
        sizes: of the keys of the residual.
        whole: whether these are all keys: then no two cells of a unit fall together, and the L2 distance of the cells
            themselves may bound what a unit moves, for P makes no vector longer.
    """
    weight = cells.sensitivity * cells.groups
    if isinstance(cells, LaplaceNoise):
        return weight * math.prod(m - 1 for m in sizes), 2 ** len(sizes)
    groups, own = math.prod(m * (m - 1) for m in sizes), math.prod(sizes) * cells.sensitivity
    if whole and own**2 * cells.groups < weight**2 * groups:
        return own, cells.groups
    return weight, groups


def make_residual_noise(cells: Noise, reach: tuple[int, int], share: Fraction) -> Noise:
    """Return the noise of what a unit moves this far, for a share of what noise on the finest cells costs.

    Args:
        cells: the noise that the finest cells would have.
        reach: steps and groups, as :func:`find_reach` gives them.
        share: of its epsilon, or of its squared mu.
    """
    if isinstance(cells, LaplaceNoise):
        return LaplaceNoise(cells.epsilon * share, *reach)
    if isinstance(cells, GaussianNoiseByMu):
        squared = Fraction(cells.groups * cells.sensitivity**2) / (cells.sigma * cells.sigma)
        return GaussianNoiseByMu.of_mu(squared * share, cells.delta * share, *reach)
    assert isinstance(cells, GaussianNoise)
    share *= cells.share if isinstance(cells, JointGaussianNoise) else 1
    return JointGaussianNoise.calibrate_share(cells.epsilon, cells.delta, *reach, share)


def find_shares(
    cells: Noise,
    sizes: Sequence[int],
    residuals: Sequence[KeyPlaces],
    groups: Sequence[tuple[KeyPlaces, int]],
    limits: Sequence[float] = (),
) -> tuple[Fraction, ...] | None:
    """Return the shares of residuals for which the total squared error is least; they add up to at most 1.

    A share q of squared mu gives a residual noise of variance ``a / q``, so q is in proportion to the root of a; a share of
    epsilon gives ``a / q**2``, so q is in proportion to its third root.

    Where marginals have limits, the Lagrangian of the least total is a total in which the marginals at their limits weigh more.
    Its multipliers are found by fixed-point iteration: a marginal above its limit gains weight, one below it loses what it has
    gained. Floats only propose shares here; what these cost is computed exactly, and the caller checks the limits.

    Args:
        cells: the noise that the finest cells would have.
        sizes: of all keys.
        residuals: the sets of keys that are measured.
        groups: the marginals that are asked for, and how many cells of each are shown.
        limits: the most variance of each marginal's cells, in parts of that of the finest cells' own noise; none by default.

    Returns:
        None where no shares were found that meet the limits.
    """
    laplace = isinstance(cells, LaplaceNoise)
    power, costs = 1 / 3 if laplace else 1 / 2, _find_costs(cells, sizes, residuals, groups)
    counts = np.array([float(count) for _, count in groups])
    weights = counts
    found = _share_out(costs, weights, power)
    if not limits:
        return _round_shares(found)
    most = np.array(limits) * (1 - _LIMIT_MARGIN)
    for _ in range(_ROUNDS):
        ratios = costs @ found ** (1 - 1 / power) / most
        if ratios.max() <= 1 and np.all(
            (ratios >= 1 - _LIMIT_MARGIN) | (weights <= counts * (1 + _LIMIT_MARGIN))
        ):
            break
        weights = np.maximum(counts, weights * ratios)
        if weights.max() > _HEAVIEST * counts.max():
            return None
        found = _share_out(costs, weights, power)
    ratios = costs @ found ** (1 - 1 / power) / np.array(limits)
    return _round_shares(found) if ratios.max() <= 1 else None


def _find_costs(
    cells: Noise,
    sizes: Sequence[int],
    residuals: Sequence[KeyPlaces],
    groups: Sequence[tuple[KeyPlaces, int]],
) -> Floats:
    """Return the variance of each marginal's cells from each residual at a share of 1, in parts of the finest cells' own."""
    laplace = isinstance(cells, LaplaceNoise)
    own = cells.sensitivity**2 * (cells.groups**2 if laplace else cells.groups)
    costs = np.zeros((len(groups), len(residuals)))
    for at, places in enumerate(residuals):
        held = [sizes[i] for i in places]
        steps, many = find_reach(cells, held, len(places) == len(sizes))
        variance = steps**2 * (many**2 if laplace else many) / own
        spread = math.prod(1 - 1 / m for m in held) / math.prod(held) ** 2
        for row, (asked, _) in enumerate(groups):
            if set(places) <= set(asked):
                shared = math.prod(sizes[i] for i in asked if i not in places)
                costs[row, at] = spread * variance / shared**2
    return costs


def _share_out(costs: Floats, weights: Floats, power: float) -> Floats:
    """Return the shares for which the weighed total is least; they add up to 1."""
    found: Floats = (weights @ costs) ** power
    return np.asarray(found / found.sum())


def _round_shares(shares: Floats) -> tuple[Fraction, ...]:
    room = _SHARE_STEPS - len(shares)
    return tuple(Fraction(max(1, math.floor(share * room)), _SHARE_STEPS) for share in shares.tolist())


# -- the noise of one cell --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResidualPart:
    """The noise of a residual times D, as it comes to a cell of a marginal that also has other keys.

    Args:
        noise: of each entry.
        sizes: of the residual's keys.
        spread: how many cells of the marginal agree in these keys.
    """

    noise: Noise
    sizes: tuple[int, ...]
    spread: int

    @property
    def factors(self) -> Iterator[tuple[int, int]]:
        """The entries of a row of ``D P``: their sizes, and how often each occurs."""
        for n in range(len(self.sizes) + 1):
            for other in combinations(range(len(self.sizes)), n):
                same = (m for i, m in enumerate(self.sizes) if i not in other)
                yield math.prod(m - 1 for m in same), math.prod(self.sizes[i] - 1 for i in other)

    @property
    def unit(self) -> int:
        """The divisor of the entries in a cell: D twice, once for P, and the cells that share them."""
        return math.prod(self.sizes) ** 2 * self.spread


@dataclass(frozen=True)
class MarginalNoise(Noise):
    """The noise of a cell of a marginal: a fixed sum of the residuals' noise, rounded to a whole number of grid steps.

    It says how far off a released cell may be. The residuals are what is released and charged.
    """

    parts: tuple[ResidualPart, ...]

    @property
    def event(self) -> Event:
        """The charge of the residuals that it is made of."""
        return compose_events(part.noise.event for part in self.parts)

    @property
    def variance(self) -> float:
        spread = self._spread_variance
        return spread if self._is_one else spread + min(1 / 12, spread)

    @property
    def _spread_variance(self) -> float:
        return math.fsum(
            part.noise.variance * math.fsum(n * (size / part.unit) ** 2 for size, n in part.factors)
            for part in self.parts
        )

    @property
    def mean_error(self) -> float:
        if self._is_one:
            return self.parts[0].noise.mean_error
        if self.is_gaussian:
            return math.sqrt(2 / math.pi * self.variance)
        return self.variance if self.variance < _NEGLIGIBLE else find_mean_distance(self)

    @property
    def is_gaussian(self) -> bool:
        return isinstance(self.parts[0].noise, GaussianNoise)

    @property
    def _is_one(self) -> bool:
        return len(self.parts) == 1 and self.parts[0].unit == 1

    def half_width(self, confidence: float) -> float:
        if self._is_one:
            return self.parts[0].noise.half_width(confidence)
        if not self.is_gaussian:
            return (
                0.0 if self.variance < _NEGLIGIBLE * (1 - confidence) else find_half_width(self, confidence)
            )
        z = -NormalDist().inv_cdf((1 - confidence) * (1 - _MARGIN) / 2)
        normal = sum(
            float(part.noise.sigma) ** 2 * sum(n * (size / part.unit) ** 2 for size, n in part.factors)
            for part in self.parts
            if isinstance(part.noise, GaussianNoise)
        )
        # each entry of a residual was rounded by a half at most, and so is the cell
        rounded = sum(size * n / part.unit for part in self.parts for size, n in part.factors) / 2
        return float(max(0, math.ceil((math.sqrt(normal) * z + rounded) * (1 + _MARGIN) - 0.5)))

    def rescale(self, factor: Fraction) -> MarginalNoise:
        if factor == 1:
            return self
        parts = (replace(part, noise=part.noise.rescale(factor)) for part in self.parts)
        return MarginalNoise(tuple(parts))

    def _draw(self, n: int, entropy: Entropy) -> Integers:
        """Draw what so many cells are off by, each from residuals of its own."""
        whole = math.lcm(*(part.unit for part in self.parts))
        total: Integers = np.zeros(n, dtype=object)
        for part in self.parts:
            for size, many in part.factors:
                drawn = part.noise.add(np.zeros(n * many, dtype=np.int64), entropy).astype(object)
                total = total + drawn.reshape(n, many).sum(axis=1) * (size * (whole // part.unit))
        return to_integers(divide_rounded(total, whole))

    def _describe(self, steps: float, shared: str) -> str:
        kind = "rounded Gaussian" if self.is_gaussian else "discrete Laplace"
        deviation = math.sqrt(self.variance) / steps
        return (
            f"noise of deviation {deviation:.6g}, from {len(self.parts)} residuals with {kind} noise{shared}"
        )

    def sentence(self, confidence: float, steps: Fraction = Fraction(1)) -> str:
        reach = f"within ±{self.half_width(confidence) / float(steps):.6g} with {confidence:.4g} probability"
        return f"{self._describe(float(steps), '')}; {reach}"


def divide_rounded(values: Integers, divisor: int) -> Integers:
    """Return the nearest integers to the quotients, exactly; a half goes up."""
    if divisor == 1:
        return values
    return np.asarray((2 * values + divisor) // (2 * divisor))


# -- sums of Laplace noise --------------------------------------------------------------------------------------------


def _transform(noise: MarginalNoise) -> tuple[Floats, Floats]:
    """Return frequencies, and the characteristic function of a cell's noise there, without the last rounding."""
    step = _FREQUENCY_STEP / math.sqrt(max(noise._spread_variance, 1e-30))
    t: Floats = (np.arange(_FREQUENCIES, dtype=np.float64) + 0.5) * step
    logs: Floats = np.zeros(_FREQUENCIES)
    for part in noise.parts:
        assert isinstance(part.noise, LaplaceNoise)
        narrow = math.sinh(min(float(1 / part.noise.scale) / 2, 300.0)) ** 2
        for size, many in part.factors:
            logs += many * np.log1p(np.sin(t * (size / part.unit) / 2) ** 2 / narrow)
    values: Floats = np.exp(-logs)
    return t, values


@lru_cache(maxsize=256)
def find_half_width(noise: MarginalNoise, confidence: float) -> float:
    """Return the whole number of steps that a sum of Laplace noise stays within, by inversion of its transform."""
    t, values = _transform(noise)
    needed = 1 - (1 - confidence) * (1 - 1e-3)

    def inside(reach: float) -> float:
        return float(2 / math.pi * np.sum(values * np.sin(t * (reach + 0.5)) / t) * (t[1] - t[0]))

    high = math.ceil(math.sqrt(noise._spread_variance)) or 1
    while inside(high) < needed and high < 1 << 60:
        high *= 2
    low = -1
    while high - low > max(1, high >> 30):
        middle = (low + high) // 2
        low, high = (low, middle) if inside(middle) >= needed else (middle, high)
    return float(high)


@lru_cache(maxsize=256)
def find_mean_distance(noise: MarginalNoise) -> float:
    """Return the expected distance from 0 of a sum of Laplace noise, by the same inversion."""
    t, values = _transform(noise)
    step = float(t[1] - t[0])
    beyond = 2 / math.pi / (float(t[-1]) + step / 2)
    return float(2 / math.pi * np.sum((1 - values) / t**2) * step) + beyond
