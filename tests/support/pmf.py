"""Exact output probabilities of the additive mechanisms, for white-box checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import mpmath

from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise

Table = tuple[tuple[tuple[int, int], ...], ...]
"""Per unit, what it adds to which group: ``((group, steps), ...)``."""


def log_laplace(noise: LaplaceNoise, k: int) -> float:
    rate = float(1 / noise.scale)
    return math.log((1 - math.exp(-rate)) / (1 + math.exp(-rate))) - abs(k) * rate


def gaussian(noise: GaussianNoise, k: int) -> float:
    s = mpmath.mpf(noise.sigma.numerator) / noise.sigma.denominator
    root = mpmath.sqrt(2) * s
    return float((mpmath.erfc((abs(k) - 0.5) / root) - mpmath.erfc((abs(k) + 0.5) / root)) / 2)


def tables(units: int, choices: Sequence[tuple[tuple[int, int], ...]]) -> Iterator[tuple[Table, Table]]:
    """All tables of up to ``units`` units, each with every neighbour that lacks its last unit."""
    for n in range(1, units + 1):
        for table in product(choices, repeat=n):
            yield table, table[:-1]


def totals(table: Table, groups: int) -> list[int]:
    out = [0] * groups
    for unit in table:
        for group, steps in unit:
            out[group] += steps
    return out


def worst_log_ratio(noise: LaplaceNoise, a: Sequence[int], b: Sequence[int], reach: int = 12) -> float:
    """The largest absolute log ratio of the probabilities of any output; groups are independent, so they
    add up."""
    outputs = range(-reach, reach + 1)
    up = sum(
        max(log_laplace(noise, o - x) - log_laplace(noise, o - y) for o in outputs)
        for x, y in zip(a, b, strict=True)
    )
    down = sum(
        max(log_laplace(noise, o - y) - log_laplace(noise, o - x) for o in outputs)
        for x, y in zip(a, b, strict=True)
    )
    return max(up, down)


def hockey_stick(
    p: Callable[[int], float], q: Callable[[int], float], epsilon: float, outputs: Sequence[int]
) -> float:
    """``sum(max(p - exp(epsilon) * q, 0))``: the delta that one ordered pair needs at ``epsilon``."""
    return math.fsum(max(p(o) - math.exp(epsilon) * q(o), 0.0) for o in outputs)
