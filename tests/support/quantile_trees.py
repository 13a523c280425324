"""A tree of counts over a grid, spelled out: all of its nodes, how far a unit moves them, and how quantiles are read from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np

from dpsql.mechanisms.order_statistics import WantedRank
from dpsql.mechanisms.quantile_tree import QuantileTree

Counts = Sequence[Sequence[int]]
"""The rows of each point, by group."""


def make_part(
    points: int, levels: Sequence[Fraction | float], epsilon: Fraction, branches: int, depth: int, **more: Any
) -> QuantileTree:
    """Return a tree over the points from 0 on."""
    ranks = tuple(WantedRank(Fraction(p).limit_denominator(1000)) for p in levels)
    names = tuple(f"q{i}" for i in range(len(ranks)))
    return QuantileTree(
        "q", (), names, ranks, 0, points - 1, epsilon, branches=branches, levels=depth, **more
    )


def list_nodes(part: QuantileTree, counts: Counts) -> list[list[int]]:
    """Return the exact counts of all nodes of all groups, level by level from the top."""
    found = []
    for level in reversed(range(part.levels)):
        width = part.branches**level
        found.append([sum(own[i : i + width]) for own in counts for i in range(0, len(own), width)])
    return found


def list_unit_moves(points: int, groups: int, rows: int, reached: int, in_all: bool) -> Iterator[Counts]:
    """Yield every way in which one unit's rows may lie: ``rows`` in each of ``reached`` groups, or in all of them together."""
    own = [c for n in range(rows + 1) for c in combinations_with_replacement(range(points), n)]
    for places in product(own, repeat=groups):
        if in_all and sum(map(len, places)) > rows:
            continue
        if not in_all and sum(map(bool, places)) > reached:
            continue
        yield [[group.count(point) for point in range(points)] for group in places]


def measure_loss(part: QuantileTree, moved: Counts, factor: Fraction = Fraction(1)) -> Fraction:
    """Return the exact loss of the whole noisy tree where a unit brings these rows, at so many times the noise.

    Of independent discrete Laplace noise the likeliest output to tell has the sum of the moves over the scale.
    """
    nodes = list_nodes(part, moved)
    return Fraction(sum(map(sum, nodes))) / (part.noise.scale * factor)


def read_tree(part: QuantileTree, noisy: Sequence[Sequence[float]]) -> list[int]:
    """Return the quantiles of one group from the noisy counts of all nodes: as the description has it, number by number."""
    whole = max(0.0, float(sum(noisy[0])))
    if whole <= 0:
        return [round(float(rank.p) * (part.high - part.low)) + part.low for rank in part.ranks]
    found = []
    for rank in part.ranks:
        target = whole * rank.p.numerator / rank.p.denominator
        if rank.end:
            inner = min(float(part.inward), whole / 2)
            target = inner if rank.end == "min" else whole - inner
        start, low, high, node = 0, 0.0, whole, 0
        for depth, level in enumerate(noisy):
            width = part.branches ** (part.levels - 1 - depth)
            first = start // width
            children = level[first : first + (part.branches if depth else len(level))]
            lacking = (high - low - sum(children)) / len(children)
            sums = [low + sum(children[: j + 1]) + lacking * (j + 1) for j in range(len(children))]
            sums = [min(max(s, low), high) for s in sums]
            sums[-1] = high
            up = [max(sums[: j + 1]) for j in range(len(sums))]
            down = [min(sums[j:]) for j in range(len(sums))]
            ends = [low] + [(a + b) / 2 for a, b in zip(up, down, strict=True)]
            node = next((j for j in range(len(children)) if ends[j + 1] >= target - 1e-9), len(children) - 1)
            low, high, start = ends[node], ends[node + 1], start + node * width
        found.append(start + part.low)
    order = sorted(range(len(found)), key=lambda i: part.ranks[i].p)
    values = [0] * len(found)
    for i, value in zip(order, sorted(found), strict=True):
        values[i] = value
    return values


def find_law(part: QuantileTree, counts: Sequence[int], scale: float, reach: int) -> dict[int, float]:
    """Return the law of one quantile from a tree of two levels and four points, over all noise of at most ``reach``."""
    q = math.exp(-1 / scale)
    steps = np.arange(-reach, reach + 1)
    chance = (1 - q) / (1 + q) * q ** np.abs(steps)
    (rank,) = part.ranks
    law: dict[int, float] = {}
    exact = list_nodes(part, [counts])
    drawn = list(zip(steps.tolist(), chance.tolist(), strict=True))
    pairs = [(a, b, pa * pb) for a, pa in drawn for b, pb in drawn]
    below: dict[tuple[float, float, float, int], dict[int, float]] = {}
    for a, b, p in pairs:
        top = (exact[0][0] + a, exact[0][1] + b)
        whole = max(0, sum(top))
        if whole == 0:
            place = round(float(rank.p) * 3)
            law[place] = law.get(place, 0.0) + p
            continue
        target = whole * rank.p.numerator / rank.p.denominator
        middle = min(max(float(top[0]), 0.0), float(whole))
        side = int(middle < target - 1e-9)
        low, high = (middle, float(whole)) if side else (0.0, middle)
        key = (low, high, target, side)
        if key not in below:
            left, right = exact[1][2 * side] + steps[:, None], exact[1][2 * side + 1] + steps[None, :]
            edge = np.clip(low + left + (high - low - left - right) / 2, low, high)
            second = float((np.outer(chance, chance) * (edge < target - 1e-9)).sum() / chance.sum() ** 2)
            below[key] = {2 * side: 1 - second, 2 * side + 1: second}
        for point, own in below[key].items():
            law[point] = law.get(point, 0.0) + p * own
    whole_law = sum(law.values())
    return {point: p / whole_law for point, p in law.items()}
