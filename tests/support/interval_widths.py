"""Intervals of quantiles by their exact laws: how often they miss, their widths, and the best interval from the same release.

*The best two-sided interval from the same release* is tuned to the data at hand, which no released interval can be: it would
miss other data far too often. It spends what the interval does, contains the exact quantile in 95 of 100 releases of these data,
and is the narrowest in the mean of a family:

* **the exponential mechanism**: two ends, each chosen among all grid points for half of the interval's epsilon, and aimed the
  fewest rows beyond the quantile with which it misses one time in forty (:func:`find_best_ends`);
* **the tree**: two ends, each behind all edges at which the sum of the nodes before the edge, less p times the sum of all, is
  below the 97.5 % quantile of the exact law of its noise. So an end would miss one time in forty if no sum of an edge before
  the quantile were above that of the quantile's own edge (:func:`find_best_of_tree`);
* **the least and the greatest value**: from the bound to the value itself, if that covers it (:func:`find_best_width`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.order_statistics import WantedRank, cut_segments
from dpsql.mechanisms.quantile_tree import QuantileTree
from dpsql.mechanisms.quantiles import Quantiles

Law = NDArray[np.float64]
"""Probabilities of all grid points, from the lowest; or of intervals."""
Steps = NDArray[np.int64]

TOP, FINE = 4_000, 1 << 15
NAMES = ("least", "lower", "median", "upper", "greatest")
RANKS = (
    WantedRank.least(),
    WantedRank(Fraction(1, 10)),
    WantedRank(Fraction(1, 2)),
    WantedRank(Fraction(9, 10)),
    WantedRank.greatest(),
)
KINDS = ("dense", "skewed", "ties", "two heaps", "one value", "few rows", "far tail", "fine grid")


@lru_cache
def list_steps(kind: str) -> Steps:
    """Return the ascending grid steps of the rows of one kind of data."""
    rng, n = np.random.default_rng(7), 1_500
    drawn: dict[str, Callable[[], np.ndarray]] = {
        "dense": lambda: rng.integers(0, TOP + 1, n),
        "skewed": lambda: rng.exponential(60, n),
        "ties": lambda: rng.choice([5, 70, 71, 3_000], n, p=[0.3, 0.3, 0.3, 0.1]),
        "two heaps": lambda: np.where(np.arange(n) < n // 2, 40, 3_900) + rng.integers(0, 20, n),
        "one value": lambda: np.full(n, 777),
        "few rows": lambda: rng.integers(1_000, 1_100, 12),
        "far tail": lambda: 20 * rng.pareto(1.1, n),
        "fine grid": lambda: rng.normal(FINE / 2, FINE / 20, 10_000),
    }
    steps: Steps = np.sort(np.clip(np.rint(drawn[kind]()), 0, find_top(kind))).astype(np.int64)
    return steps


def find_top(kind: str) -> int:
    return FINE if kind == "fine grid" else TOP


def make_part(kind: str, each: Fraction) -> Quantiles:
    """Return the five quantiles of one column, each with its own epsilon."""
    return Quantiles("", (), NAMES, RANKS, 0, find_top(kind), each * len(RANKS), confidence=0.95)


def find_exact(values: Steps, rank: WantedRank) -> float:
    return float(np.quantile(values, float(rank.p)))


# -- the exponential mechanism ----------------------------------------------------------------------------------------


class Aimed(WantedRank):
    """A rank with a scaled target of its own."""

    def target(self, n: int, inward: int) -> int:
        return inward


def find_law(
    rank: WantedRank, values: Steps, more: tuple[int, int], target: int, top: int, rate: float
) -> Law:
    """Return the exact law of a choice among points of equal weight; ``more``: a point, and the rows added to it."""
    steps, counts = np.unique(np.append(values, np.full(more[1], more[0])), return_counts=True)
    _, sizes, utility = cut_segments(steps, counts, 0, top, Aimed(rank.p, rank.end), target)
    law = np.repeat(np.exp(rate * (utility - utility.max()).astype(np.float64)), sizes)
    found: Law = law / law.sum()
    return found


def find_value_law(part: Quantiles, values: Steps, place: int) -> Law:
    rank = part.ranks[place]
    target = rank.target(len(values), part.inward)
    return find_law(rank, values, (0, 0), target, part.high, float(part.rate(rank)))


def list_around(chosen: int, top: int) -> tuple[Steps, Steps]:
    """Return the ends of the nested intervals around a point: an end that is half of the way to its bound is the bound."""
    far = [0, 1]
    while 2 * far[-1] < max(chosen, top - chosen):
        power = 1 << (far[-1].bit_length() - 1)
        far.append(far[-1] + max(1, power // 2))
    if 2 * far[0] >= max(chosen, top - chosen):
        far = [0]
    lows = [0 if 2 * d >= chosen else chosen - d for d in far]
    highs = [top if 2 * d >= top - chosen else chosen + d for d in far]
    return np.array(lows), np.array(highs)


def score_around(
    values: Steps, lows: Steps, highs: Steps, top: int, p: float, beyond: float
) -> NDArray[np.float64]:
    """Return the utilities of nested intervals, in rows: the module's description, number by number."""
    wanted, scores, before = p * len(values), [], -math.inf
    for low, high in zip(lows, highs, strict=True):
        up = math.inf if high == top else np.searchsorted(values, high, side="right") - wanted
        down = math.inf if low == 0 else wanted - np.searchsorted(values, low, side="left")
        reach = min(up, down)
        scores.append(-max(0.0, beyond - reach, before - beyond))
        before = reach
    return np.array(scores)


def find_interval_law(
    part: Quantiles, values: Steps, place: int, chosen: int, beyond: float | None = None
) -> tuple[Steps, Steps, Law]:
    """Return the intervals around a released point and their exact law; ``beyond``: the rows they are aimed beyond the rank."""
    rank = part.ranks[place]
    most = part.find_rows_beyond(place) if beyond is None else beyond
    if rank.end:
        short = float(part.rate_interval(place)) * (most - len(values))
        odds = np.exp(-np.array([max(short, 0), max(-short, 0)]))
        ends = (np.array([0, 0]), np.array([chosen, part.high]))
        lows, highs = ends if rank.end == "min" else (np.array([chosen, 0]), np.array([part.high] * 2))
        return lows, highs, odds / odds.sum()
    lows, highs = list_around(chosen, part.high)
    weights = [1]
    while len(weights) < len(lows):
        weights.append(math.ceil(Fraction(4, 3) * weights[-1]))
    rate = float(part.rate_interval(place) * rank.scale)
    law = np.array(weights) * np.exp(rate * score_around(values, lows, highs, part.high, float(rank.p), most))
    return lows, highs, law / law.sum()


def measure_interval(
    part: Quantiles, values: Steps, place: int, beyond: float | None = None
) -> tuple[float, float]:
    """Return the exact probability that an interval misses, and its mean width; ends are shown a step farther out."""
    exact, missed, width = find_exact(values, part.ranks[place]), 0.0, 0.0
    for chosen, chance in enumerate(find_value_law(part, values, place)):
        if chance < 1e-7:
            continue
        lows, highs, law = find_interval_law(part, values, place, chosen, beyond)
        lows, highs = np.maximum(lows - 1, 0), np.minimum(highs + 1, part.high)
        missed += chance * float(law[(exact < lows) | (exact > highs)].sum())
        width += chance * float((law * (highs - lows)).sum())
    return missed, width


def find_end_law(part: Quantiles, values: Steps, place: int, side: int, off: int) -> Law:
    """Return the law of an end chosen among all points for half of an interval's epsilon, ``off`` rows beyond the rank."""
    rank, bound = part.ranks[place], part.high if side > 0 else 0
    target = rank.p.numerator * len(values) + (rank.scale * off if side > 0 else 0)
    return find_law(rank, values, (bound, off), target, part.high, float(part.rate_interval(place) / 2))


def measure_end(part: Quantiles, values: Steps, place: int, side: int, off: int) -> tuple[float, float]:
    """Return the probability that such an end misses, and its mean place; it is shown a step farther out."""
    law = find_end_law(part, values, place, side, off)
    shown = np.clip(np.arange(part.high + 1) + side, 0, part.high)
    missed = (find_exact(values, part.ranks[place]) - shown) * side > 0
    return float(law[missed].sum()), float((law * shown).sum())


def tune_end(part: Quantiles, values: Steps, place: int, side: int) -> int:
    """Return the fewest rows with which such an end misses one time in forty."""
    return bisect_left(
        range(1 << 12), True, key=lambda off: measure_end(part, values, place, side, off)[0] <= 0.025
    )


def find_best_ends(part: Quantiles, values: Steps, place: int) -> float:
    """Return the mean width between two such ends."""
    ends = (
        measure_end(part, values, place, side, tune_end(part, values, place, side))[1] for side in (-1, 1)
    )
    low, high = ends
    return high - low


def find_best_width(part: Quantiles, values: Steps, place: int) -> float:
    """Return the mean width of the best interval by the exponential mechanism, for these data."""
    rank = part.ranks[place]
    if rank.end is None:
        return find_best_ends(part, values, place)
    exact, grid = find_exact(values, rank), np.arange(part.high + 1)
    law, far = find_value_law(part, values, place), grid if rank.end == "min" else part.high - grid
    missed = float(law[far + 1 < abs(exact - (0 if rank.end == "min" else part.high))].sum())
    return float(part.high) if missed > 0.05 else 1 + float((law * far).sum())


# -- the tree -----------------------------------------------------------------------------------------------------------

Weights = list[tuple[float, int]]
"""Weights of independent noise, and how many counts have each."""


def list_edge_weights(tree: QuantileTree, edge: int, p: float) -> list[Weights]:
    """Return by level the weights of the nodes' noise in the sum before a point's leaf, less p times the sum of all.

    The way goes to the leaf after the edge. The children of a node get equal parts of their sum's deficit, so a sum up to a part
    t of m children has 1 - t / m of the noise before it, and takes t / m of the noise after it.
    """
    start, nodes = 0, list[tuple[int, int]]()
    for level in reversed(range(tree.levels)):
        width = tree.branches**level
        many = -(-(tree.high - tree.low + 1 - start) // width)
        many = many if level == tree.levels - 1 else min(tree.branches, many)
        child = (edge - start) // width
        nodes.append((child, many))
        start += child * width
    found: list[Weights] = []
    part = 0.0
    for depth in reversed(range(tree.levels)):
        child, many = nodes[depth]
        share = p if depth == 0 else (child + part) / many
        found.append([(1 - share, child), (part - share, 1), (-share, many - child - 1)])
        part = (child + part) / many
    return found[::-1]


_RATES = (np.arange(1 << 11) + 0.5) / 64
LIMITS = np.linspace(-60, 60, 481)
_KERNEL = np.sin(np.outer(LIMITS, _RATES)) / _RATES / 64 / math.pi


def find_tails(weights: Sequence[Sequence[Weights]]) -> NDArray[np.float64]:
    """Return the probabilities that sums of weighted Laplace noise of scale 1 exceed each of ``LIMITS`` (Gil-Pelaez 1951)."""
    logs = [
        sum(n * np.log1p((w * _RATES) ** 2) for level in own for w, n in level if n and abs(w) > 1e-12)
        for own in weights
    ]
    found: NDArray[np.float64] = 0.5 - (_KERNEL @ np.exp(-np.array(logs)).T).T
    return found


def find_best_of_tree(tree: QuantileTree, values: Steps, place: int) -> float:
    """Return the mean width of the best interval from the tree's counts, at each edge by the exact law of its noise."""
    rank, scale, top = tree.ranks[place], float(tree.noise.scale), tree.high
    ends, grid = {-1: 0.0, 1: float(top)}, np.arange(1, top + 1)
    before = (np.searchsorted(values, grid, side="left") - float(rank.p) * len(values)) / scale
    unsure = np.flatnonzero(np.abs(before) < 40)
    # of a sum below the margin, above minus the margin
    chance = np.where(before[:, None] < 0, [1.0, 1.0], [0.0, 0.0])
    for own in np.array_split(unsure, 1 + len(unsure) // 256):
        weights = [list_edge_weights(tree, int(grid[i]), float(rank.p)) for i in own]
        for i, tails in zip(own, find_tails(weights) if len(own) else (), strict=True):
            margin = LIMITS[int(np.argmax(tails <= (0.05 if rank.end else 0.025)))]
            chance[i] = [1 - np.interp(side * margin - before[i], LIMITS, tails) for side in (1, -1)]
    for side in [own for place_of, own in tree.ends if place_of == place]:
        ends[side] = min(max(float(chance[:, 0 if side > 0 else 1].sum()) + side, 0), top)
    return ends[1] - ends[-1]
