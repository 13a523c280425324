"""Many quantiles of one column, read from one noisy tree of counts (Hay, Rastogi, Miklau, Suciu 2010).

The points of the public grid are the leaves. Each node has ``branches`` children, and its number of rows gets noise, at each
of ``levels`` levels, the leaves included. All quantiles are post-processing of these noisy integers: more of them are free,
whereas the exponential mechanism (:mod:`dpsql.mechanisms.quantiles`) divides epsilon among them. :class:`KeptTree` draws all
nodes and stores them, so that later quantiles of the column are free.

Relation: ADD_REMOVE. Sensitivity: a unit with at most w rows in a group moves the counts of one level there by at most w in
L1, and is in at most g groups. So noise of scale ``w * g * levels / epsilon`` on every count makes each level
``epsilon / levels``-DP over all groups. Guarantee: epsilon-DP, charged as noise on one number per level and group if a unit
has one row in a group, else as a pure loss for each of these. The caller must clamp values to the grid, omit missing ones,
and bound the rows of a unit in each group and its groups (or its rows over all groups, which move a level by at most w too).

Noise of an unread node is not drawn: it is independent of all that decides where to look, so the answers have the law of a
fully drawn tree. This allows grids of millions of points and thousands of groups.

*Reading* starts from the top. The children of a node get equal parts of their sum's deficit; their sums from the left are
clamped to those at the node's ends, and made ascending: the mean of the running maximum and of the running minimum from the
right. The child in which the wanted rank is reached is next. None of the three steps moves the sums further from the true
ones than the farthest of them was, since the true ones ascend between the same ends. So at the found point they are off by
at most the largest error of a sum of children on the way, added up over levels, whatever the data
(:meth:`QuantileTree.bound_error`). A level's noise is independent of the way to it.

*The ends of an interval* are free. An end has its own way from the top, on which the sums at a node's edges are linear in
the noise: children get equal parts of the deficit, and nothing is clamped. So each edge's sum, less p times the sum of all,
has known noise: of level k with m children, j of them before the edge and a part f of the next,

    j + f^2 - (j + f)^2 / m     of a count's variance; at the top  j + f^2 - 2 p (j + f) + m p^2

The upper end goes to the last child at whose start the sum isn't above the wanted rank by more than a margin, the lower end
to the first at whose end it isn't below it by more. Coverage, for any data: the exact quantile x lies in one node of each
level. The upper end leaves these nodes for a point below x only if at the start of one of them the sum is above its exact
value by the margin, since no more rows than the wanted ones precede x. So the two ends, with one edge a level each, share
5 % (:func:`find_margins`). But many far edges have much noise, and one of them may look near: so an end does not go past an
edge whose sum is above the wanted rank by a wider margin, by which all edges of the nodes of x miss in a tenth of the cases.

An edge's noise is a sum of independent Laplace noise with weights of at most 1. If it has the variance of n counts or more,
its tail at a probability of 1/22 or less is no greater than that of n equal weights with the same variance, which has a
closed form (:func:`_find_tail`). This is tested by the exact law, over trees of seven shapes; there is no proof of it.

*Expected errors in rank*, from public numbers alone: if rows are spread evenly, the exponential mechanism's error in rank
has Laplace's law between the outermost rows. Sorting all choices helps if quantiles are nearer to each other than their
errors: the error of the k-th is that of the k-th of all choices in order, whose law is computed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from functools import cached_property, lru_cache, partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms import base
from dpsql.mechanisms.aggregation import Answered, Group, Part, Together
from dpsql.mechanisms.histograms import StepHistogram
from dpsql.mechanisms.moments import TYPICAL_ROWS
from dpsql.mechanisms.order_statistics import WantedRank
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.quantiles import (
    BETWEEN,
    ENDS_DOUBT,
    RANK_CONFIDENCE,
    Quantiles,
    note_rank_error,
    order_steps,
)
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import Floats, Integers, pack_integers, unpack_integers
from dpsql.privacy.amounts import Amount
from dpsql.privacy.events import DiscreteLaplace, Event, PureDP, compose_events

_MOST_BRANCHES = 1024
_MOST_LEVELS = 40
_MOST_PARTS = 64
"""Pure losses of one level in one group up to which they are charged apart; more are charged by level."""
_AT_ONCE = 1 << 21
"""Sums of children in memory at once: groups are read in parts."""
_EQUAL = (1, 2, 4, 8)
"""The numbers of equal weights whose tails bound the tail of an edge's noise."""
_WIDE = 0.1
"""The part of an end's miss probability that the wider margin takes."""
_MOST_DOUBT = 1 / 22
"""The probability up to which fewer weights have a greater tail."""
_TRIED = 96
"""Rates at which the error is bounded: each bound is valid, and the least is used."""

PointPlaces = NDArray[np.int64]
Present = NDArray[np.bool_]
Look = Callable[[PointPlaces, PointPlaces, Present, int], Integers]
"""Returns the noisy counts of nodes that are present, by the group of each row of edges, the edges, and the points of a node."""


@dataclass(frozen=True)
class QuantileTree(Quantiles):
    """Quantiles of one column, per group, from one noisy tree over its grid; ``branches ** levels`` is at least its points."""

    branches: int = 2
    levels: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.branches < 2 or self.levels < 1 or self.branches**self.levels < self._points:
            raise ValueError("a tree has two branches at least, and a leaf for each point")

    @cached_property
    def noise(self) -> LaplaceNoise:
        """The noise of every count."""
        return LaplaceNoise(self.epsilon / self.levels, self.rows, self.groups)

    @property
    def event(self) -> Event:
        numbers = self.levels * self.groups
        if self.rows == 1:
            return DiscreteLaplace(self.epsilon, 1, numbers)
        parts = numbers if numbers <= _MOST_PARTS else self.levels
        return compose_events([PureDP(self.epsilon / parts)] * parts)

    # -- drawing ------------------------------------------------------------------------------------------------

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        return self._answer(self.read(list(self.read_steps(table, groups)), entropy))

    def answer_counts(self, counts: NDArray[np.int64], entropy: Entropy) -> Answered:
        return self._answer(self.read([self.list_held(counts)], entropy))

    def list_held(self, counts: NDArray[np.int64]) -> StepHistogram:
        """Return the histogram of rows counted at every point."""
        held = np.flatnonzero(counts)
        return held + self.low, counts[held]

    def draw_all(self, histogram: StepHistogram, entropy: Entropy) -> Integers:
        """Return the noisy counts of all nodes, level by level from the top."""
        exact = _ExactCounts.of([histogram], self.low, self._points)
        edges = (np.minimum(np.arange(n + 1) * width, self._points) for n, width in self._list_levels())
        counts = [exact.count(own[None, :])[0] for own in edges]
        return self.noise.add(np.concatenate(counts), entropy)

    def answer_all(self, noisy: Integers) -> Answered:
        """Return the columns read from the noisy counts of all nodes."""
        first, starts = 0, {}
        for n, width in self._list_levels():
            starts[width] = first
            first += n
        if len(noisy) != first:
            raise ValueError("these are not the counts of this tree")

        def look(_: PointPlaces, edges: PointPlaces, present: Present, width: int) -> Integers:
            return np.asarray(noisy[starts[width] + edges[:, :-1][present] // width])

        return self._answer(self._read_part(look, 1))

    def _list_levels(self) -> Iterator[tuple[int, int]]:
        """Yield the nodes of each level from the top, and the points of each."""
        for level in reversed(range(self.levels)):
            yield -(-self._points // self.branches**level), self.branches**level

    def read(self, histograms: Sequence[StepHistogram], entropy: Entropy) -> list[list[int]]:
        """Return the grid steps of all ranks, for each group's exact histogram."""
        many = max(1, _AT_ONCE // (len(self.ranks) * self.branches))
        parts = (histograms[i : i + many] for i in range(0, len(histograms), many))
        return [row for part in parts for row in self._read_part(self._look_into(part, entropy), len(part))]

    def _look_into(self, histograms: Sequence[StepHistogram], entropy: Entropy) -> Look:
        """Return a function that draws the noisy counts of nodes when they are read, each once."""
        exact = _ExactCounts.of(histograms, self.low, self._points)

        def look(group: PointPlaces, edges: PointPlaces, present: Present, _: int) -> Integers:
            counts = exact.count(group[:, None] * self._points + edges)
            return self.noise.add(counts[present], entropy)

        return look

    def _read_part(self, look: Look, groups: int) -> list[list[int]]:
        values, ranks = len(self.ranks), len(self.ranks) + len(self.ends)
        group = np.repeat(np.arange(groups, dtype=np.int64), ranks)
        start = np.zeros(groups * ranks, dtype=np.int64)
        is_end = np.tile(np.arange(ranks) >= values, groups)
        low, high, target = np.zeros((3, groups * values))
        ends = _TreeEnds(self, groups)
        for level in reversed(range(self.levels)):
            width = self.branches**level
            nodes, own = np.unique(group * self._points + start, return_inverse=True)
            sums, there = self._find_sums(look, nodes, width)
            first = np.zeros((2, len(nodes)))
            outer, own = own[is_end], own[~is_end]
            if level == self.levels - 1:
                totals = np.maximum(sums[np.arange(len(sums)), there - 1], 0.0)
                high = totals[own]
                target = self._find_targets(totals)
            first[:, own] = low, high  # equal for all ranks in a node
            moves = np.zeros(groups * ranks, dtype=np.int64)
            moves[is_end] = ends.descend(sums[outer], there[outer])
            sums = _ascend(sums, there, first[0], first[1])
            child = np.minimum((sums[own] < target[:, None]).sum(axis=1), there[own] - 1)
            before = np.concatenate((first[0][:, None], sums), axis=1)
            low, high = before[own, child], before[own, child + 1]
            moves[~is_end] = child
            start += moves * width
        points = start.reshape(groups, ranks)
        empty = target.reshape(groups, values).max(axis=1) <= 0
        points[empty, :values] = [round(float(rank.p) * (self._points - 1)) for rank in self.ranks]
        points[:, :values] = order_steps(points[:, :values], self.ranks)
        return [[int(v) + self.low for v in row] for row in points]

    def _find_sums(self, look: Look, nodes: PointPlaces, width: int) -> tuple[Floats, PointPlaces]:
        """Return the noisy sums of each node's children from the left, and the number of its children."""
        group, start = np.divmod(nodes, self._points)
        branches = min(self.branches, -(-self._points // width))
        there = np.minimum(branches, -(-(self._points - start) // width))
        edges = np.minimum(start[:, None] + width * np.arange(branches + 1), self._points)
        present = np.arange(branches) < there[:, None]
        found = np.zeros(present.shape)
        found[present] = look(group, edges, present, width).astype(np.float64)
        return np.cumsum(found, axis=1), there

    def _find_targets(self, totals: Floats) -> Floats:
        """Return the wanted number of rows up to each quantile, for the noisy number of rows of each group."""
        found = []
        for rank in self.ranks:
            if rank.end is None:
                found.append(totals * rank.p.numerator / rank.p.denominator)
                continue
            inner = np.minimum(float(self.inward), totals / 2)
            found.append(inner if rank.end == "min" else totals - inner)
        return np.stack(found, axis=1).reshape(-1)

    # -- how far off --------------------------------------------------------------------------------------------

    @cached_property
    def inward(self) -> int:
        """The rows that the least and the greatest pass, so that they stay within the data."""
        return math.ceil(self.bound_error(WantedRank.least(), 1 - float(ENDS_DOUBT)))

    def count_needed(self, rank: WantedRank) -> int | None:
        """Return the rows that keep the least and the greatest value within the data, nearly always."""
        return 2 * self.inward if rank.end else None

    def bound_error(self, rank: WantedRank, confidence: float) -> float:
        """Bound the distance of the answer's rank from the wanted one, in rows, whatever the data."""
        p = 0.0 if rank.end else float(min(rank.p, 1 - rank.p))
        top = -(-self._points // self.branches ** (self.levels - 1))
        logs, rates = _find_log_moments(self.branches, self.levels, top, p)
        doubt = -math.log((1 - confidence) * (1 - 1e-9))
        return float(((logs + doubt) / rates).min() * float(self.noise.scale))

    def _notes(self) -> tuple[str, ...]:
        """Return the note that there is no interval but one error in rank for all quantiles between the ends."""
        by_kind: dict[bool, dict[str, float]] = {}
        for name, places in self._places().items():
            if self._has_bar(places):
                continue
            ends = any(self.ranks[i].end for i in places)
            off = max(self._bound_miss(self.ranks[i], RANK_CONFIDENCE) for i in places)
            by_kind.setdefault(ends, {})[name] = off
        told = (note_rank_error(list(own), max(own.values())) for own in by_kind.values())
        return (*told, *self._note_ends())

    def measure_rank(self, rank: WantedRank, rows: float = math.inf) -> float:
        """Return the root mean squared error in rank, in rows, for this many rows spread over many points."""
        factor = _find_factor(self._points, self.branches, self.levels, rank)
        return math.sqrt(self.noise.variance * factor) + (min(self.inward, rows / 2) if rank.end else 0)

    def _expect_miss(self, rank: WantedRank, rows: int) -> float:
        return math.sqrt(2 / math.pi) * self.measure_rank(rank, rows)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        shared = f", over {self.groups} groups" if self.groups > 1 else ""
        said = [
            f"Read {', '.join(self._places())} from one noisy tree of counts over {self._points} grid points: {self.levels} "
            f"levels, {self.branches} branches, discrete Laplace noise of scale {float(self.noise.scale):.6g} on each count "
            f"(ε={float(self.epsilon):g} for all {len(self.ranks)} quantiles{shared})."
        ]
        if self.geometric is not None:
            said.append(self.geometric.describe())
        for name, places in self._places().items():
            off = max(self._bound_miss(self.ranks[i], confidence) for i in places)
            which = f"{len(places)} values, from the least to the greatest, each"
            if len(places) == 1:
                which = f"{self._describe_rank(self.ranks[places[0]])},"
            said.append(
                f"{name}: {which} within {off:.4g} rows of its rank, with {confidence:.4g} probability."
            )
        return tuple(said)


class _TreeEnds:
    """The ends of intervals of all groups on their ways from the top: a row for each group and end."""

    def __init__(self, tree: QuantileTree, groups: int) -> None:
        ends = [(tree.ranks[place], side) for place, side in tree.ends]
        self.side = np.tile(np.array([side for _, side in ends], dtype=np.int64), groups)
        self.p = np.tile(np.array([float(rank.p) for rank, _ in ends]), groups)
        doubts = [tree.doubt / (1 if rank.end else 2) for rank, _ in ends]
        margins = np.array([find_margins(tree.levels, tree.branches, doubt) for doubt in doubts])
        margins = margins.reshape(len(ends), tree.levels + 1, len(_EQUAL)) * float(tree.noise.scale)
        self.margins = np.tile(margins, (groups, 1, 1))
        self.low, self.high, self.wanted = np.zeros((3, len(self.side)))
        self.way: list[tuple[PointPlaces, PointPlaces]] = []

    def descend(self, sums: Floats, there: PointPlaces) -> PointPlaces:
        """Return each end's child, by the noisy sums of its node's children from the left; those after them repeat the last."""
        rows, level = np.arange(len(self.side)), len(self.way)
        whole = sums[:, -1]
        if not level:
            self.high, self.wanted = whole, whole * self.p
        places = np.minimum(np.arange(sums.shape[1] + 1), there[:, None]).astype(np.float64)
        lacking = (self.high - self.low - whole) / there
        edges = self.low[:, None] + np.pad(sums, ((0, 0), (1, 0))) + lacking[:, None] * places
        variance = self.measure_edges(places, there)
        equal = np.searchsorted(_EQUAL[1:], variance, side="right")
        near, wide = (
            self.margins[rows[:, None], i, equal] * np.sqrt(variance) + BETWEEN for i in (level, -1)
        )
        over = (edges - self.wanted[:, None]) * self.side[:, None]
        fits, past = over < near, (over >= wide) & (places > 0) & (places < there[:, None])
        fits[rows, 0] = fits[rows, there] = True
        place = np.arange(sums.shape[1])
        first = np.where(past.any(axis=1), np.argmax(past, axis=1), there)
        final = np.where(past.any(axis=1), sums.shape[1] - np.argmax(past[:, ::-1], axis=1), 0)
        up = np.where(fits[:, :-1] & (place < first[:, None]), place, 0).max(axis=1)
        down = np.argmax(fits[:, 1:] & (place >= final[:, None]), axis=1)
        child: PointPlaces = np.where(self.side > 0, up, down)
        self.low, self.high = edges[rows, child], edges[rows, child + 1]
        self.way.append((child, there))
        return child

    def measure_edges(self, places: Floats, there: PointPlaces) -> Floats:
        """Return the variance of the noise of the sums at a node's edges, less p times the sum of all, in that of one count."""
        p, found, part = self.p[:, None], np.zeros(places.shape), np.zeros(places.shape)
        before, many = places, there
        for level in reversed(range(len(self.way) + 1)):
            at = before + part
            found += before + part**2 - (at**2 / many[:, None] if level else p * (2 * at - many[:, None] * p))
            part = at / many[:, None]
            if level:
                child, many = self.way[level - 1]
                before = child[:, None].astype(np.float64)
        return np.maximum(found, 0.0)


def _ascend(sums: Floats, there: PointPlaces, low: Floats, high: Floats) -> Floats:
    """Return sums of children from the left that ascend from ``low`` to ``high``.

    Args:
        sums: as drawn, from 0 on; those after a node's children repeat its last.
        there: the number of children of each node.
        low, high: the sums before each node, and up to its end.
    """
    places = np.minimum(np.arange(1, sums.shape[1] + 1), there[:, None])
    lacking = (high - low - sums[:, -1]) / there
    held = np.clip(low[:, None] + sums + lacking[:, None] * places, low[:, None], high[:, None])
    held[places == there[:, None]] = np.broadcast_to(high[:, None], held.shape)[places == there[:, None]]
    up = np.maximum.accumulate(held, axis=1)
    down = np.minimum.accumulate(held[:, ::-1], axis=1)[:, ::-1]
    return np.asarray((up + down) / 2)


@dataclass(frozen=True)
class _ExactCounts:
    """The rows of all groups, in order: their places, group by group, and the rows before each."""

    places: PointPlaces
    before: Integers

    @classmethod
    def of(cls, histograms: Sequence[StepHistogram], low: int, points: int) -> _ExactCounts:
        places = [values - low + group * points for group, (values, _) in enumerate(histograms)]
        counts = [counts for _, counts in histograms]
        wide = any(c.dtype == object for c in counts) or sum(int(c.sum()) for c in counts) >= 1 << 61
        every = np.concatenate([np.zeros(1, dtype=np.int64), *counts]).astype(object if wide else np.int64)
        return cls(np.concatenate([np.zeros(0, dtype=np.int64), *places]).astype(np.int64), np.cumsum(every))

    def count(self, edges: PointPlaces) -> Integers:
        """Return the rows between neighbouring edges, of each row of edges."""
        upto = self.before[np.searchsorted(self.places, edges)]
        return np.asarray(upto[:, 1:] - upto[:, :-1])


@lru_cache(maxsize=64)
def find_margins(levels: int, branches: int, doubt: float) -> tuple[tuple[float, ...], ...]:
    """Return margins of one end, in standard deviations over sqrt(2), by the numbers of equal weights in :data:`_EQUAL`.

    The first are those of the levels, the last is the wider one. All together miss with a probability of ``doubt`` at most. The
    variance of an edge's noise grows with its level about evenly, so the levels' parts of it are chosen so that their margins are
    about the same number of rows.
    """
    wide, doubt = doubt * _WIDE, doubt * (1 - _WIDE)
    grow = [math.sqrt(levels / (level + 1)) for level in range(levels)]
    most = _solve(lambda x: sum(_find_tail(1, x * g) for g in grow), doubt)
    doubts = [min(_find_tail(1, most * g), _MOST_DOUBT) for g in grow]
    doubts.append(wide / (levels * branches))
    return tuple(tuple(_solve(partial(_find_tail, n), own) for n in _EQUAL) for own in doubts)


def _solve(falls: Callable[[float], float], wanted: float) -> float:
    least, most = 0.0, 1000.0
    for _ in range(60):
        middle = (least + most) / 2
        least, most = (least, middle) if falls(middle) <= wanted else (middle, most)
    return most


def _find_tail(equal: int, x: float) -> float:
    """Return the probability that the sum of so many Laplace variables, over the root of their number, exceeds x scales.

    The sum is the difference of two gamma variables. The first exceeds the second by y if fewer than n events of a Poisson
    process are within y (a Poisson number) and the second variable (a negative binomial number) together.
    """
    y, n = x * math.sqrt(equal), equal
    many = [math.comb(n + m - 1, m) / 2 ** (n + m) for m in range(n)]
    return math.exp(-y) * math.fsum(y**j / math.factorial(j) * sum(many[: n - j]) for j in range(n))


# -- which tree -------------------------------------------------------------------------------------------------------


def _find_factor(points: int, branches: int, levels: int, rank: WantedRank | None) -> float:
    """Return the variance of an answer's rank as a multiple of one count's noise variance, averaged over its place in its nodes.

    A sum up to a fraction u of a node with b children, fitted to the node's own, has their noise with weights of ``1 - u`` before
    it and ``-u`` after it: that is ``b u (1 - u)`` at their ends, and ``(b - 1) / 6`` on average. At the top the fraction is p,
    since ranks refer to the sum of all. ``rank``: the wanted one; None for the average.
    """
    top = -(-points // branches ** (levels - 1))
    p = 0.0 if rank is None or rank.end else float(rank.p)
    spread = 1 / 6 if rank is None else p * (1 - p)
    return float(top * spread + (levels - 1) * (branches - 1) / 6)


@lru_cache(maxsize=256)
def _find_log_moments(branches: int, levels: int, top: int, p: float) -> tuple[Floats, Floats]:
    """Return bounds on the logarithm of E exp(rate * error), for noise of scale 1, and the rates.

    The error is at most the sum over levels of the largest of a node's sums, each of independent noise with weights of ``1 - u``
    on j children and ``-u`` on the others. The largest exponential is at most the sum of all of them; of both signs, hence the 2.
    Discrete Laplace noise has a smaller moment generating function than continuous one, ``1 / (1 - rate^2)``.
    """
    rates = np.linspace(0.01, 0.99, _TRIED)
    inner = _log_largest(branches, np.arange(1, branches) / branches, np.arange(1, branches), rates)
    outer = _log_largest(top, np.full(top + 1, p), np.arange(top + 1), rates)
    return outer + (levels - 1) * inner, rates


def _log_largest(children: int, fractions: Floats, before: PointPlaces, rates: Floats) -> Floats:
    if not len(before):
        return np.zeros(len(rates))
    squared = rates[:, None] ** 2
    logs = -before * np.log1p(-squared * (1 - fractions) ** 2)
    logs = logs - (children - before) * np.log1p(-squared * fractions**2)
    most = logs.max(axis=1)
    return np.asarray(most + np.log(2 * np.exp(logs - most[:, None]).sum(axis=1)))


def list_shapes(points: int) -> Iterator[tuple[int, int]]:
    """Yield branches and levels of the trees over this many points, the flattest first."""
    seen = set()
    for levels in range(1, _MOST_LEVELS + 1):
        branches = max(2, math.ceil(points ** (1 / levels) - 1e-9))
        branches += branches**levels < points
        if branches in seen:
            continue
        seen.add(branches)
        if branches <= _MOST_BRANCHES:
            yield branches, levels
        if branches == 2:
            return


@lru_cache(maxsize=256)
def choose_shape(points: int, power: int) -> tuple[int, int]:
    """Return branches and levels of the tree with the least expected squared error over all ranks.

    It does not depend on the requested ranks, so that a stored tree serves others. ``power``: the exponent of the number of
    levels in a count's variance at a fixed price: 2 for pure epsilon, 1 for rho and mu.
    """

    def measure(shape: tuple[int, int]) -> float:
        branches, levels = shape
        return float(levels**power * _find_factor(points, branches, levels, None))

    return min(list_shapes(points), key=measure)


def make_tree_of(part: Quantiles, epsilon: Fraction, power: int) -> QuantileTree:
    """Return the best tree for the quantiles of a part, at an epsilon for all of them."""
    points = part.high - part.low + 1
    branches, levels = choose_shape(points, power)
    known = {item.name: getattr(part, item.name) for item in fields(part)}
    return QuantileTree(**known | {"epsilon": epsilon, "branches": branches, "levels": levels})


def make_tree_within(part: Quantiles, currencies: Iterable[str], whole: Amount | None = None) -> QuantileTree:
    """Return the best tree for a part's quantiles that costs no more than they do one by one, in any of these currencies.

    ``whole``: their requested loss, if nothing else shares it: a tree of that loss serves other quantiles as well.
    """
    ruled = [word for word in dict.fromkeys(currencies) if word != "epsilon"]
    tree = make_tree_of(part, part.epsilon, 1 if ruled else 2)
    for word in ruled:
        if whole is not None and word == whole.currency:
            tree = replace(tree, epsilon=whole.find_epsilon(_price(tree)))
            continue
        most = Amount(word, Amount(word, Fraction(1)).cost(part.event))
        if not most.covers(tree.event):
            tree = replace(tree, epsilon=min(tree.epsilon, most.find_epsilon(_price(tree))))
    return tree


def _price(tree: QuantileTree) -> Callable[[Fraction], Event]:
    return lambda epsilon: replace(tree, epsilon=epsilon).event


MAX_KEPT_POINTS = 1 << 16
"""The most points of a grid whose whole tree is stored: some 300 KB."""
_NODES = "nodes"


@dataclass(frozen=True)
class KeptTree(Together):
    """Quantiles of one column over all rows, and their noisy tree. ``parts`` is the tree alone, without keys or aggregation."""

    def __post_init__(self) -> None:
        if self.aggregation is not None or len(self.parts) != 1 or self.tree.keys:
            raise ValueError("a tree that is kept stands alone, without groups")

    @property
    def tree(self) -> QuantileTree:
        (part,) = self.parts
        if not isinstance(part, QuantileTree):
            raise ValueError("only a tree is kept")
        return part

    def release(self, read: base.Read, entropy: Entropy) -> base.Release:
        reader, tree = base.add_salt(read, self.queries, entropy), self.tree
        route = tree.column_route
        counts = None if route is None else route.follow(reader, entropy)
        if counts is not None:
            histogram = tree.list_held(counts)
        else:
            (histogram,) = tree.read_steps(reader(tree.query), [()])
        return self.read_again(_pack_nodes(tree.draw_all(histogram, entropy)))

    def read_again(self, noisy: pa.Table) -> base.Release:
        """Return the release with quantiles read from a stored tree: post-processing."""
        answered = self.tree.answer_all(unpack_integers(noisy.column(_NODES)))
        return base.Release(pa.table(dict(answered.columns)), answered.event, answered.notes, noisy)

    @property
    def can_show_again(self) -> bool:
        return True

    def show_again(self, released: pa.Table, noisy: pa.Table | None) -> pa.Table:
        if noisy is None:
            raise ValueError("the tree was not kept")
        return self.read_again(noisy).table


def exchange_parts(operator: Together, others: Mapping[Part, Part]) -> Together:
    """Return a block with other parts; a single tree over few enough points is stored with its answers."""
    parts = tuple(others.get(part, part) for part in operator.parts)
    alone = parts[0] if len(parts) == 1 and operator.aggregation is None else None
    if isinstance(alone, QuantileTree) and alone.high - alone.low < MAX_KEPT_POINTS:
        return KeptTree(None, parts)
    return replace(operator, parts=parts)


def _pack_nodes(noisy: Integers) -> pa.Table:
    """Return a relation of the counts of all nodes, of 32 bits if they fit."""
    small = noisy.dtype == np.int64 and bool((np.abs(noisy) < 1 << 31).all())
    column = pack_integers(noisy)
    return pa.table({_NODES: column.cast(pa.int32()) if small else column})


_PARTS = 2048
"""The parts of all ranks between which the law of a choice is worked out."""
_MANY = 200
"""Quantiles up to which choices in order are worked out one by one; of more, the number of choices is taken as normal."""

RankErrors = dict[str, float]
"""The root mean squared errors in rank, in rows, by released column."""


def expect_plain(part: Quantiles, rows: int | None) -> RankErrors:
    """Return the errors of quantiles chosen one by one; ``rows`` None: so many that no two choices are near each other."""
    rates = tuple(float(part.rate(rank)) * rank.scale for rank in part.ranks)
    ends = tuple(part.inward if rank.end else 0 for rank in part.ranks)
    if rows is None:
        squares: Sequence[float] = [2 / r**2 + end**2 for r, end in zip(rates, ends, strict=True)]
    else:
        targets = tuple(
            (float(rank.p) * rows, min(end, rows / 2) if rank.end == "min" else -min(end, rows / 2))
            for rank, end in zip(part.ranks, ends, strict=True)
        )
        squares = _measure_in_order(targets, rates, rows)
    return _gather(part.names, squares)


def expect_tree(part: QuantileTree, rows: int | None) -> RankErrors:
    """Return the errors of quantiles from a tree: those between the ends are the largest for any number of rows."""
    most = math.inf if rows is None else rows
    return _gather(part.names, [part.measure_rank(rank, most) ** 2 for rank in part.ranks])


def expect_chosen(parts: Iterable[Quantiles], chosen: Mapping[Part, Part]) -> RankErrors:
    """Return the errors of quantiles by the strategy that was chosen for each part."""
    found: RankErrors = {}
    for part in parts:
        tree = chosen.get(part)
        of_tree = expect_tree(tree, TYPICAL_ROWS) if isinstance(tree, QuantileTree) else None
        found |= expect_plain(part, TYPICAL_ROWS) if of_tree is None else of_tree
    return found


def _gather(names: Sequence[str], squares: Sequence[float]) -> RankErrors:
    found: dict[str, list[float]] = {}
    for name, square in zip(names, squares, strict=True):
        found.setdefault(name, []).append(square)
    return {name: math.sqrt(sum(own) / len(own)) for name, own in found.items()}


@lru_cache(maxsize=64)
def _measure_in_order(
    targets: tuple[tuple[float, float], ...], rates: tuple[float, ...], rows: int
) -> tuple[float, ...]:
    """Return the mean squared error of each choice, once all are sorted.

    Args:
        targets: the true rank of each, and how far from it the choice is aimed.
        rates: of Laplace's law.
        rows: within which the choices are.
    """
    edges = np.linspace(0.0, float(rows), _PARTS + 1)
    order = sorted(range(len(rates)), key=lambda i: targets[i][0])
    below = np.stack([_find_chances(edges, sum(targets[i]), rates[i]) for i in order])
    reached = _count_reached(below)  # of each edge: the chance that at least k choices lie below it
    middle = (edges[1:] + edges[:-1]) / 2
    found = [0.0] * len(rates)
    for place, i in enumerate(order):
        chances = np.diff(reached[place])
        found[i] = float((chances * (middle - targets[i][0]) ** 2).sum() / max(chances.sum(), 1e-12))
    return tuple(found)


def _find_chances(edges: Floats, centre: float, rate: float) -> Floats:
    """Return the probability of a choice below each edge: Laplace's law between the first edge and the last."""
    off = rate * (edges - centre)
    half = 0.5 * np.exp(-np.abs(off))
    whole = np.where(off < 0, half, 1 - half)
    return np.asarray((whole - whole[0]) / max(float(whole[-1] - whole[0]), 1e-300))


def _count_reached(below: Floats) -> Floats:
    """Return the probabilities that at least 1, 2, ... independent events happen; ``below`` are those of each, by column."""
    many, columns = below.shape
    if many > _MANY:
        mean, spread = below.sum(axis=0), np.sqrt((below * (1 - below)).sum(axis=0) + 1e-9)
        z = (mean[None, :] - np.arange(1, many + 1)[:, None] + 0.5) / spread[None, :]
        return np.asarray(1 / (1 + np.exp(-np.clip(1.702 * z, -700.0, 700.0))))
    exactly = np.zeros((many + 1, columns))
    exactly[0] = 1.0
    for chance in below:
        exactly[1:] = exactly[1:] * (1 - chance) + exactly[:-1] * chance
        exactly[0] *= 1 - chance
    return np.asarray(np.cumsum(exactly[::-1], axis=0)[::-1][1:])
