"""Marginals of the same rows, measured together: ROLLUP, CUBE and GROUPING SETS by ResidualPlanner, on exact integers.

Let x be the sums over a product of keys with m_i values each: the finest cells, in which each unit's rows were capped once.
The residual of a set T of keys is ``P x_T``, where x_T are the sums over the other keys and P is the tensor product of
``I - J / m_i`` for the keys of T: the part of the sums that those of fewer keys don't determine. P is symmetric and
idempotent, the residuals of different sets are orthogonal, and a marginal is

    x_S = sum over the subsets T of S of P x_T, spread evenly over the cells that agree in T

(ResidualPlanner: Xiao, He, Zhang, Kifer 2023, arXiv 2305.08175). With D the product of the m_i of T, ``D P x_T`` is integer;
it is released with noise of its own.

Relation: ADD_REMOVE. Sensitivity: one cell more or less moves ``D P x_T`` by the entries ``(m_i - 1)`` and ``-1``, multiplied
over the keys of T: at most ``prod (m_i - 1)`` in any entry, ``2**|T| prod (m_i - 1)`` in L1, and ``prod m_i (m_i - 1)`` in
squared L2. A unit with cells of L1 weight w moves it by at most w times as much, by the triangle inequality, whether or not
its cells coincide. Guarantee: the composition of the residuals' noises, :class:`~dpsql.mechanisms.per_group.LaplaceNoise` or
Gaussian with the pair of one calibration. All marginals are sums of the residuals: they and their intervals are
post-processing.

The binder must ensure that the finest cells are bounded as their noise declares, that they are those of public groups, a
product of the keys' values (with an own value for further rows, if there may be any), and that marginals list public groups.

Gaussian noise of several blocks that are fixed together (of a declared plan, of grouping sets) may be calibrated together
(:func:`calibrate_together`). Their pairs (epsilon, delta) add up, and each block's share of the joint squared mu is its share of
epsilon (:class:`~dpsql.mechanisms.per_group.JointGaussianNoise`). The composed event checks that the pair covers all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations
from statistics import NormalDist
from typing import TypeGuard

import numpy as np
import pyarrow as pa

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms import base
from dpsql.mechanisms.aggregation import Aggregation, Together, list_groups, sort_by_key
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.contribution_caps import CapSearch
from dpsql.mechanisms.empty_groups import find_significant
from dpsql.mechanisms.moments import Output
from dpsql.mechanisms.ordered_noise import OrderedNoise, share_noise
from dpsql.mechanisms.per_group import (
    GaussianNoise,
    JointGaussianNoise,
    LaplaceNoise,
    Noise,
    Statistic,
    change_noise,
)
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import (
    Floats,
    Integers,
    find_largest,
    make_values,
    read_integers,
    to_integers,
    write_number,
)
from dpsql.privacy.events import Event, compose_events

KeyPlaces = tuple[int, ...]
"""A set of keys, by their places in the whole."""
_SHARE_STEPS = 1 << 30
"""The inverse of the unit of residuals' shares: floats only propose them."""
_ROUNDS, _LIMIT_MARGIN, _HEAVIEST = 400, 1e-3, 1e12
"""Rounds in which weights are found for limits, the part by which limits are undercut, and the weight that is given up at."""
_MARGIN = 1e-9
_NEGLIGIBLE = 1e-6
"""A variance in squared steps below which a rounded cell is hardly ever off: by Chebyshev, at most four times as often."""
_FREQUENCIES = 1 << 13
_FREQUENCY_STEP = 0.05
"""The grid of frequencies, in parts of one over the deviation, on which the law of a sum of Laplace noise is inverted."""


def list_closure(sets: Iterable[KeyPlaces], sizes: Sequence[int]) -> tuple[KeyPlaces, ...]:
    """Return the sets of keys whose residuals make up the marginals of ``sets``, without those that are always 0."""
    wide = {tuple(i for i in sorted(places) if sizes[i] > 1) for places in sets}
    found = {part for places in wide for n in range(len(places) + 1) for part in combinations(places, n)}
    return tuple(sorted(found, key=lambda p: (len(p), p)))


def find_reach(cells: Noise, sizes: Sequence[int], whole: bool) -> tuple[int, int]:
    """Return a residual's sensitivity times D: steps in each group, and groups.

    For Laplace noise the product is the L1 distance, and no entry moves by more than the steps; for Gaussian noise the steps
    times the root of the groups is the L2 distance.

    Args:
        cells: the noise that the finest cells would have by themselves, with a unit's bounds.
        sizes: of the keys of the residual.
        whole: whether these are all keys: then no two cells of a unit coincide, and the L2 distance of the cells themselves may
            bound that of the residual, since P makes no vector longer.
    """
    weight = cells.sensitivity * cells.groups
    if isinstance(cells, LaplaceNoise):
        return weight * math.prod(m - 1 for m in sizes), 2 ** len(sizes)
    groups, own = math.prod(m * (m - 1) for m in sizes), math.prod(sizes) * cells.sensitivity
    if whole and own**2 * cells.groups < weight**2 * groups:
        return own, cells.groups
    return weight, groups


def find_shares(
    cells: Noise,
    sizes: Sequence[int],
    residuals: Sequence[KeyPlaces],
    groups: Sequence[tuple[KeyPlaces, int]],
    limits: Sequence[float] = (),
) -> tuple[Fraction, ...] | None:
    """Return the shares of residuals with the least total squared error, at most 1 in all; None if none was found within limits.

    A share q of squared mu gives a residual noise of variance ``a / q``, so q is in proportion to the root of a; a share of
    epsilon gives ``a / q**2``, so q is in proportion to its third root.

    If marginals have limits, the Lagrangian of the least total is a total in which the marginals at their limits weigh more. Its
    multipliers are found by fixed-point iteration: a marginal above its limit gains weight, one below it loses its gain. Floats
    only propose shares here; their cost is computed exactly, and the caller checks the limits.

    Args:
        cells: the noise that the finest cells would have.
        sizes: of all keys.
        residuals: the measured sets of keys.
        groups: the requested marginals, and the number of shown cells of each.
        limits: the most variance of each marginal's cells, as a multiple of that of the finest cells' own noise.
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
    """Return the variance of each marginal's cells from each residual at a share of 1, relative to the finest cells' own."""
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
    """Return the shares for which the weighted total is least; they add up to 1."""
    found: Floats = (weights @ costs) ** power
    return np.asarray(found / found.sum())


def _round_shares(shares: Floats) -> tuple[Fraction, ...]:
    room = _SHARE_STEPS - len(shares)
    return tuple(Fraction(max(1, math.floor(share * room)), _SHARE_STEPS) for share in shares.tolist())


# -- the noise of one cell --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResidualPart:
    """The noise of a residual times D, as part of a cell of a marginal with further keys.

    Args:
        noise: of each entry.
        sizes: of the residual's keys.
        spread: the number of the marginal's cells that agree in these keys.
    """

    noise: Noise
    sizes: tuple[int, ...]
    spread: int

    @property
    def factors(self) -> Iterator[tuple[int, int]]:
        """The entries of a row of ``D P``: their sizes, and the frequency of each."""
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
    """The error of a marginal's cell: a fixed sum of the residuals' noise, rounded. Residuals are released and charged."""

    parts: tuple[ResidualPart, ...]

    @property
    def event(self) -> Event:
        """The charge of its residuals."""
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
        """Draw the errors of this many cells, each from its own residuals."""
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
    """Return the nearest integers to the quotients, exactly; a half is rounded up."""
    if divisor == 1:
        return values
    return np.asarray((2 * values + divisor) // (2 * divisor))


# -- sums of Laplace noise --------------------------------------------------------------------------------------------


def _transform(noise: MarginalNoise) -> tuple[Floats, Floats]:
    """Return frequencies, and the characteristic function of a cell's noise there, before the last rounding."""
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
    """Return the expected distance from 0 of a sum of Laplace noise, by this inversion."""
    t, values = _transform(noise)
    step = float(t[1] - t[0])
    beyond = 2 / math.pi / (float(t[-1]) + step / 2)
    return float(2 / math.pi * np.sum((1 - values) / t**2) * step) + beyond


SET_COLUMN = "dpsql_set"
"""The column of the release that tells which marginal a row belongs to, by its place."""
_EXACT_BITS = 62


@dataclass(frozen=True)
class Marginal:
    """A set of keys whose cells are shown, by their places, and the most cells.

    ``listing`` is a public query of its groups, with columns in the order of the keys; empty if they are all combinations.
    ``name`` is its name in EXPLAIN.
    """

    places: KeyPlaces
    cells: int
    listing: str = ""
    name: str = ""


@dataclass(frozen=True)
class Residual:
    """A set of keys whose residual is measured, by their places, and its share of the whole cost."""

    places: KeyPlaces
    share: Fraction


@dataclass(frozen=True)
class Marginals(base.Operator):
    """Several marginals of one private block, released together.

    Args:
        table: returns the finest cells; its noise declares a unit's bounds and the cost. That noise is never drawn: the
            residuals divide its cost.
        sizes: the number of values of each key, including one for further rows, if any.
        others: for each key, whether NULL represents rows whose value is none of its groups.
        marginals: the shown ones.
        residuals: the measured ones: for each marginal all subsets of its keys with more than one value.
    """

    table: Aggregation
    sizes: tuple[int, ...]
    others: tuple[bool, ...]
    marginals: tuple[Marginal, ...]
    residuals: tuple[Residual, ...]

    def __post_init__(self) -> None:
        places = [set(residual.places) for residual in self.residuals]
        if sum((residual.share for residual in self.residuals), Fraction(0)) > 1:
            raise ValueError("the shares of residuals add up to more than 1")
        if any(places.count(one) > 1 for one in places):
            raise ValueError("a residual is measured once")
        if self.table.selection is not None:
            raise ValueError("the finest cells must be those of public groups")

    @property
    def confidence(self) -> float:  # type: ignore[override]
        return self.table.confidence

    # -- noise ----------------------------------------------------------------------------------------------------

    @cached_property
    def noises(self) -> dict[tuple[KeyPlaces, Statistic], Noise]:
        found = {}
        for residual in self.residuals:
            sizes = [self.sizes[i] for i in residual.places]
            whole = len(sizes) == len(self.sizes)
            for statistic in self.table.statistics:
                reach = find_reach(statistic.noise, sizes, whole)
                noise = share_noise(statistic.noise, residual.share, *reach)
                found[residual.places, statistic] = noise
        return found

    def _find_parts(self, marginal: Marginal) -> Iterator[tuple[Residual, int]]:
        """Yield the residuals of a marginal, and the number of its cells that agree in the residual's keys."""
        for residual in self.residuals:
            if set(residual.places) <= set(marginal.places):
                rest = (self.sizes[i] for i in marginal.places if i not in residual.places)
                yield residual, math.prod(rest)

    def noise_of(self, marginal: Marginal, statistic: Statistic) -> MarginalNoise:
        parts = (
            ResidualPart(
                self.noises[residual.places, statistic],
                tuple(self.sizes[i] for i in residual.places),
                spread,
            )
            for residual, spread in self._find_parts(marginal)
        )
        return MarginalNoise(tuple(parts))

    @cached_property
    def outputs(self) -> tuple[tuple[Output, ...], ...]:
        """The aggregates of each marginal, with their cells' noise."""

        def change(marginal: Marginal, output: Output) -> Output:
            by_noise = {s.noise: s for s in output.statistics}
            return change_noise(output, lambda noise: self.noise_of(marginal, by_noise[noise]))

        return tuple(tuple(change(m, output) for output in self.table.outputs) for m in self.marginals)

    @cached_property
    def event(self) -> Event:
        return compose_events(noise.event for noise in self.noises.values())

    # -- what it reads ------------------------------------------------------------------------------------------------

    @property
    def _listings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(m.listing for m in self.marginals if m.listing))

    @property
    def queries(self) -> tuple[str, ...]:
        return (*self.table.queries, *self._listings)

    def claims(self) -> Iterator[base.ClaimedText]:
        yield from self.table.claims()
        for text in self._listings:
            yield base.ClaimedText(text, base.PublicClaim())

    # -- releasing ----------------------------------------------------------------------------------------------------

    def release(self, read: base.Read, entropy: Entropy) -> base.Release:
        reader = base.Reader.over(read)
        rows = self.table.read_kept(reader, entropy)
        axes = tuple(self._index(rows, place) for place in range(len(self.sizes)))
        noisy: dict[tuple[int, Statistic], Integers] = {}
        for statistic in self.table.statistics:
            values = read_integers(rows.column(statistic.column))
            cells: Integers = np.zeros(self.sizes, dtype=values.dtype)  # combinations without a row are 0
            cells[tuple(index for index, _ in axes)] = values
            measured = {r.places: self._measure(cells, r, statistic, entropy) for r in self.residuals}
            for at, marginal in enumerate(self.marginals):
                noisy[at, statistic] = self._put_together(marginal, measured)
        parts: list[pa.Table] = []
        kept: dict[Statistic, list[Integers]] = {s: [] for s in self.table.statistics}
        for at, marginal in enumerate(self.marginals):
            keys, order = self._list_cells(rows, axes, marginal, reader)
            ordered = sort_by_key(keys.append_column("at", pa.array(order)), self.table.keys)
            place = ordered.column("at").to_numpy()
            shown = {s: to_integers(noisy[at, s].reshape(-1)[place]) for s in self.table.statistics}
            parts.append(self._show(at, ordered.select(self.table.keys), shown))
            for statistic, column in shown.items():
                kept[statistic].append(column)
        table = pa.concat_tables(parts, promote_options="permissive")
        whole = {statistic: to_integers(np.concatenate(columns)) for statistic, columns in kept.items()}
        return base.Release(table, self.event, (), self.table.pack_noisy(whole))

    def _index(self, rows: pa.Table, place: int) -> tuple[Integers, dict[object, int]]:
        """Return the index of each row's value of a key, and the indices of its values; the NULL of other rows is last."""
        groups = list_groups(rows, (self.table.keys[place],))
        values = sorted({group for group in groups if group != (None,)}, key=repr)
        if (None,) in groups or self.others[place]:
            values.append((None,))
        found: dict[object, int] = {value: i for i, value in enumerate(values)}
        if len(found) > self.sizes[place]:
            raise ValueError("a key has more values than its noise is made for")
        return np.array([found[group] for group in groups], dtype=np.intp), found

    def _measure(
        self, cells: Integers, residual: Residual, statistic: Statistic, entropy: Entropy
    ) -> Integers:
        """Return ``D P x_T`` with noise: integers, one per combination of the residual's keys."""
        sums = _sum_others(cells, residual.places)
        exact = _apply(sums, [self.sizes[i] for i in residual.places])
        noise = self.noises[residual.places, statistic]
        return noise.add(to_integers(exact.reshape(-1)), entropy).reshape(exact.shape)

    def _put_together(self, marginal: Marginal, measured: Mapping[KeyPlaces, Integers]) -> Integers:
        """Return the cells of a marginal: the nearest integers to the sum of its noisy residuals, computed exactly."""
        shape = [self.sizes[i] for i in marginal.places]
        whole = math.prod(shape)
        total: Integers = np.zeros(shape, dtype=np.int64)
        for residual, spread in self._find_parts(marginal):
            # D P y, in units of D twice and of the cells that share it: ``whole`` is D times these
            again = _apply(measured[residual.places], [self.sizes[i] for i in residual.places])
            axes = [self.sizes[i] if i in residual.places else 1 for i in marginal.places]
            total = _add(total, again.reshape(axes), spread)
        return divide_rounded(
            total if _fits(total, 4) and whole < 1 << 30 else total.astype(object), whole**2
        )

    def _list_cells(
        self,
        rows: pa.Table,
        axes: Sequence[tuple[Integers, Mapping[object, int]]],
        marginal: Marginal,
        read: base.Reader,
    ) -> tuple[pa.Table, Integers]:
        """Return the keys of a marginal's shown cells, and the place of each among all of its combinations."""
        shape = [self.sizes[i] for i in marginal.places]
        index = np.zeros(rows.num_rows, dtype=np.intp)
        shown = np.ones(rows.num_rows, dtype=bool)
        for place, size in zip(marginal.places, shape, strict=True):
            own, found = axes[place]
            index = index * size + own
            if self.others[place]:
                shown &= own != found[(None,)]
        if marginal.listing:
            shown &= np.isin(index, self._read_listing(marginal, axes, read))
        _, first = np.unique(np.where(shown, index, -1), return_index=True)
        first = first[shown[first]]
        taken = rows.select(self.table.keys).take(pa.array(first))
        for place, name in enumerate(self.table.keys):
            if place not in marginal.places:
                taken = taken.set_column(place, name, pa.nulls(len(first), taken.schema.field(name).type))
        return taken, index[first]

    def _read_listing(
        self, marginal: Marginal, axes: Sequence[tuple[Integers, Mapping[object, int]]], read: base.Reader
    ) -> Integers:
        listed = read(marginal.listing)
        columns = [list_groups(listed, (name,)) for name in listed.column_names]
        places = []
        for group in zip(*columns, strict=True):
            at: int | None = 0
            for place, value in zip(marginal.places, group, strict=True):
                own = axes[place][1].get(value)
                at = None if at is None or own is None else at * self.sizes[place] + own
            places += [] if at is None else [at]
        return np.array(places, dtype=np.intp)

    # -- showing ------------------------------------------------------------------------------------------------------

    def _show(self, at: int, keys: pa.Table, values: Mapping[Statistic, Integers]) -> pa.Table:
        columns: dict[str, pa.Array] = {SET_COLUMN: make_values([at] * keys.num_rows, pa.int32())}
        columns |= {name: keys.column(name) for name in keys.column_names}
        for plain, output in zip(self.table.outputs, self.outputs[at], strict=True):
            pairs = zip(plain.statistics, output.statistics, strict=True)
            noisy = {own: values[s] for s, own in pairs}
            columns |= output.show(noisy, self.table.confidence).columns(output.name)
        return pa.table(columns)

    @property
    def can_show_again(self) -> bool:
        return True

    def show_again(self, released: pa.Table, noisy: pa.Table | None) -> pa.Table:
        found = self.table.read_noisy(released, noisy)
        sets = read_integers(released.column(SET_COLUMN))
        parts = []
        for at in range(len(self.marginals)):
            own = np.nonzero(sets == at)[0]
            keys = released.select(self.table.keys).take(pa.array(own))
            parts.append(self._show(at, keys, {s: to_integers(v[own]) for s, v in found.items()}))
        return pa.concat_tables(parts, promote_options="permissive")

    def find_filled(self, release: base.Release, keys: tuple[str, ...], doubt: float) -> base.Booleans | None:
        noisy = self.table.read_noisy(release.table, release.noisy)
        sets = read_integers(release.table.column(SET_COLUMN))
        ranged = {i for i, key in enumerate(self.table.keys) if key in keys}
        own = [at for at, marginal in enumerate(self.marginals) if ranged & set(marginal.places)]
        found = np.ones(len(sets), dtype=np.bool_)
        many = int(np.isin(sets, own).sum())
        counting = [s in self.table.counts for s in self.table.presence]
        for at in own:
            rows = np.nonzero(sets == at)[0]
            columns = [
                (self.noise_of(self.marginals[at], s), to_integers(noisy[s][rows]))
                for s in self.table.presence
            ]
            found[rows] = find_significant(columns, counting, many, doubt)
        return found

    def sentences(self, confidence: float) -> tuple[str, ...]:
        noise = self.table.statistics[0].noise
        loss = f"ε={write_number(noise.epsilon)}"
        said = [
            f"All {len(self.marginals)} grouping sets are computed from {len(self.residuals)} noisy residuals of one table "
            f"of finest cells, in which caps apply once; together they cost {loss}, as one table would."
        ]
        for marginal, outputs in zip(self.marginals, self.outputs, strict=True):
            told = ("; ".join(output.sentences(confidence)).rstrip(".") for output in outputs)
            said.append(f"By {marginal.name or 'nothing'}, {'; '.join(told)}.")
        return tuple(said)

    def errors(self, basis: base.ErrorBasis) -> Iterator[base.ExpectedError]:
        """Yield the error of each aggregate in the marginal where it is largest."""
        own = replace(basis, factor=Fraction(1))
        for column, plain in zip(zip(*self.outputs, strict=True), self.table.outputs, strict=True):
            most = max((e for output in column for e in output.errors(own)), key=lambda one: one.error)
            # all residuals' noise is in proportion to that of the finest cells
            noise = plain.statistics[0].noise
            ratio = 1.0 if basis.factor == 1 else noise.rescale(basis.factor).variance / noise.variance
            yield replace(most, error=most.error * math.sqrt(ratio))


# -- exact arithmetic -------------------------------------------------------------------------------------------------


def _fits(values: Integers, factor: int) -> bool:
    """Return whether 64 bits suffice for the values times ``factor``."""
    return values.dtype != object and bool(values.size) and find_largest(values) * factor < 1 << _EXACT_BITS


def _sum_others(cells: Integers, places: KeyPlaces) -> Integers:
    """Return the sums over all other keys."""
    exact = cells if _fits(cells, cells.size) else cells.astype(object)
    other = tuple(i for i in range(cells.ndim) if i not in places)
    summed: Integers = exact.sum(axis=other) if other else exact
    return np.asarray(summed)


def _apply(values: Integers, sizes: Sequence[int]) -> Integers:
    """Return ``D P`` times the values: along each axis, m times each less the sum of all."""
    made = values if _fits(values, math.prod(2 * m for m in sizes)) else values.astype(object)
    for axis, size in enumerate(sizes):
        made = size * made - made.sum(axis=axis, keepdims=True)
    return np.asarray(made)


def _add(total: Integers, values: Integers, factor: int) -> Integers:
    """Return the total plus ``factor`` times the values, spread along axes of one cell."""
    small = _fits(values, 2 * factor) and _fits(total, 2)
    if not small:
        total, values = total.astype(object), values.astype(object)
    return np.asarray(total + values * factor)


_NO_DEARER = 1 + Fraction(1, 10**9)
"""The most that the residuals may cost, relative to the sets one by one: 1, and a margin for rounding."""


def costs_more(joint: Event, single: Sequence[Event]) -> bool:
    """Return whether one block for all sets would cost a session that sums rho or mu more than blocks one by one."""
    plain = compose_events(single)
    return joint.rho > plain.rho * _NO_DEARER or joint.mu > plain.mu * _NO_DEARER


def calibrate_together(operators: Sequence[Operator]) -> list[Operator]:
    """Return operators (distinct, fixed before any answer) with one Gaussian calibration, at the sum of their pairs."""
    pairs = [find_pair(operator) for operator in operators]
    known = [pair for pair in pairs if pair is not None]
    if len(known) < 2:
        return list(operators)
    epsilon, delta = (sum(amounts, Fraction(0)) for amounts in zip(*known, strict=True))
    return [
        operator if pair is None else _calibrate(operator, pair[0] / epsilon, epsilon, delta)
        for operator, pair in zip(operators, pairs, strict=True)
    ]


def find_pair(operator: Operator) -> tuple[Fraction, Fraction] | None:
    """Return the pair charged for a block's Gaussian noise, its share if calibrated jointly; None if it has no such noise."""
    if isinstance(operator, CapSearch):  # its choices are calibrated alike
        return find_pair(operator.least)
    noises = _list_noises(operator)
    found = {(noise.epsilon, noise.delta) for noise in noises if _has_pair(noise)}
    if len(found) != 1:
        return None
    (epsilon, delta), whole = found.pop(), _sum_shares(noises)
    return epsilon * whole, delta * whole


def _list_noises(operator: Operator) -> list[Noise]:
    if isinstance(operator, Marginals):  # its residuals share the table's calibration
        return _list_noises(operator.table)
    aggregation = operator.aggregation if isinstance(operator, Together) else operator
    if not isinstance(aggregation, Aggregation):
        return []
    return [statistic.noise.independent for statistic in aggregation.statistics]


def _sum_shares(noises: Iterable[Noise]) -> Fraction:
    """Return a block's share of a joint calibration; 1 if it was calibrated alone."""
    shares = [noise.share for noise in noises if isinstance(noise, JointGaussianNoise)]
    return sum(shares, Fraction(0)) if shares else Fraction(1)


def _has_pair(noise: Noise) -> TypeGuard[GaussianNoise]:
    """Return whether noise was calibrated for a pair; noise for a mu declares a pair but is calibrated otherwise."""
    return type(noise) in (GaussianNoise, JointGaussianNoise)


def _calibrate(operator: Operator, part: Fraction, epsilon: Fraction, delta: Fraction) -> Operator:
    whole = _sum_shares(_list_noises(operator))

    def change(noise: Noise) -> Noise:
        if isinstance(noise, OrderedNoise):
            return noise.on(change(noise.base))
        if not _has_pair(noise):
            return noise
        share = part * (noise.share / whole if isinstance(noise, JointGaussianNoise) else 1)
        return JointGaussianNoise.calibrate_share(epsilon, delta, noise.sensitivity, noise.groups, share)

    def change_table(aggregation: Aggregation) -> Aggregation:
        outputs = tuple(change_noise(output, change) for output in aggregation.outputs)
        return replace(aggregation, outputs=outputs)

    match operator:
        case CapSearch(choices=choices):
            least, *between, most = (_calibrate(choice, part, epsilon, delta) for choice in choices)
            return replace(operator, least=least, most=most, between=tuple(between))
        case Marginals(table=table):
            return replace(operator, table=change_table(table))
        case Together(aggregation=Aggregation() as table):
            return replace(operator, aggregation=change_table(table))
        case Aggregation():
            return change_table(operator)
    return operator
