"""Errors in rank to expect of several quantiles that are chosen one by one, and of as many from a tree: public arithmetic.

The exponential mechanism is off by a rank of Laplace's law where rows are spread evenly, and never goes beyond them. All choices
are then sorted, which helps where quantiles are nearer to each other than their errors: the error of the k-th is that of the k-th
of all choices in order, whose law is exact here. No data are read, and no guarantee rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dpsql.mechanisms.quantile_tree import QuantileTree
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.numerics.exact_numbers import Floats

_PARTS = 2048
"""The parts of all ranks between which the law of a choice is worked out."""
_MANY = 200
"""Quantiles up to which choices in order are worked out one by one; of more, the number of choices is taken as normal."""

RankErrors = dict[str, float]
"""The root mean squared errors in rank, in rows, by released column."""


def expect_plain(part: Quantiles, rows: int | None) -> RankErrors:
    """Return the errors of quantiles that are chosen one by one.

    Args:
        part: with the exponential mechanism.
        rows: of a group; None for so many that no two choices are near each other.
    """
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
    """Return the errors of quantiles from a tree: those between the ends are told for any number of rows, the most there are."""
    most = math.inf if rows is None else rows
    return _gather(part.names, [part.measure_rank(rank, most) ** 2 for rank in part.ranks])


def _gather(names: Sequence[str], squares: Sequence[float]) -> RankErrors:
    found: dict[str, list[float]] = {}
    for name, square in zip(names, squares, strict=True):
        found.setdefault(name, []).append(square)
    return {name: math.sqrt(sum(own) / len(own)) for name, own in found.items()}


@lru_cache(maxsize=64)
def _measure_in_order(
    targets: tuple[tuple[float, float], ...], rates: tuple[float, ...], rows: int
) -> tuple[float, ...]:
    """Return the mean squared error of each choice, once all are in order.

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
    """Return the chances that a choice lies below each edge: Laplace's law between the first edge and the last."""
    off = rate * (edges - centre)
    half = 0.5 * np.exp(-np.abs(off))
    whole = np.where(off < 0, half, 1 - half)
    found: Floats = (whole - whole[0]) / max(float(whole[-1] - whole[0]), 1e-300)
    return found


def _count_reached(below: Floats) -> Floats:
    """Return the chances that at least 1, 2, ... independent events happen; ``below`` are those of each, by column."""
    many, columns = below.shape
    if many > _MANY:
        mean, spread = below.sum(axis=0), np.sqrt((below * (1 - below)).sum(axis=0) + 1e-9)
        z = (mean[None, :] - np.arange(1, many + 1)[:, None] + 0.5) / spread[None, :]
        normal: Floats = 1 / (1 + np.exp(-np.clip(1.702 * z, -700.0, 700.0)))
        return normal
    exactly = np.zeros((many + 1, columns))
    exactly[0] = 1.0
    for chance in below:
        exactly[1:] = exactly[1:] * (1 - chance) + exactly[:-1] * chance
        exactly[0] *= 1 - chance
    found: Floats = np.cumsum(exactly[::-1], axis=0)[::-1][1:]
    return found
