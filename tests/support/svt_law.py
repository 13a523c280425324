"""Exact probabilities of what the sparse vector technique says, in rational numbers.

A threshold noise z has probability (1 - a) a**z, a statistic's noise survives t with probability b**max(t, 0).
With a, b rational every probability of a path of answers is rational: below the largest statistic it is a finite
sum, above it a sum of geometric series.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

Answers = tuple[bool, ...]


def paths(length: int, max_hits: int | None) -> Iterator[Answers]:
    """Every sequence of answers to ``length`` statistics, cut off at the last hit allowed."""
    for answers in itertools.product((False, True), repeat=length):
        hits = list(itertools.accumulate(answers))
        end = length if max_hits is None or hits[-1] < max_hits else hits.index(max_hits) + 1
        if not any(answers[end:]):
            yield answers[:end]


@functools.lru_cache(maxsize=1 << 16)
def probability(
    a: Fraction,
    b: Fraction,
    over: tuple[int, ...],
    answers: Answers,
    gaps: tuple[int, ...] | None = None,
    value: int | None = None,
) -> Fraction:
    """Return the probability of these answers; ``over`` says how far each statistic is above the (centred) threshold.

    ``gaps``: what each hit is above the noisy threshold by. ``value``: the broken variant that releases the last
    compared value itself.
    """
    top = max([0, *over[: len(answers)]]) + (sum(gaps) if gaps else 0) + abs(value or 0) + 1
    if value is not None:
        finite = sum(
            ((1 - a) * a**z * _at(b, over, answers, z, gaps, value) for z in range(max(value, -1) + 1)),
            Fraction(0),
        )
        return finite  # a value is only seen at or above the noisy threshold
    total = sum(((1 - a) * a**z * _at(b, over, answers, z, gaps, None) for z in range(top)), Fraction(0))
    # Beyond top every survival is b**(z - over): a polynomial in y = b**z, one geometric series for each power.
    series = {0: Fraction(1)}
    taken = 0
    for q, above in zip(over, answers, strict=False):
        weight = b ** (-q)
        if above and gaps is not None:
            weight *= (1 - b) * b ** gaps[taken]
            taken += 1
        new: dict[int, Fraction] = {}
        for power, c in series.items():
            new[power + 1] = new.get(power + 1, Fraction(0)) + (c * weight if above else -c * weight)
            if not above:
                new[power] = new.get(power, Fraction(0)) + c
        series = new
    for power, c in series.items():
        step = a * b**power
        total += (1 - a) * c * step**top / (1 - step)
    return total


def _at(
    b: Fraction, over: Sequence[int], answers: Answers, z: int, gaps: Sequence[int] | None, value: int | None
) -> Fraction:
    out, taken = Fraction(1), 0
    for i, (q, above) in enumerate(zip(over, answers, strict=False)):
        survival = b ** max(0, z - q)
        if not above:
            out *= 1 - survival
        elif value is not None and i == len(answers) - 1:
            out *= (1 - b) * b ** (value - q) if value >= max(q, z) else 0
        elif gaps is not None:
            noise = gaps[taken] + z - q
            out *= (1 - b) * b**noise if noise >= 0 else 0
            taken += 1
        else:
            out *= survival
    return out


def gapped(a: float, b: float, c: float, over: Sequence[int], answers: Answers, gap: int) -> float:
    """Return the probability of these answers, in floats; the last is a hit ``gap`` above the noisy threshold.

    ``c``: the base of the gap's noise. It is b where that is what is left of the comparison's own; anything else is broken.
    """
    z = np.arange(400)
    out = (1 - a) * a**z
    for q, above in zip(over, answers, strict=True):
        survival = b ** np.maximum(0, z - q)
        left = gap - np.maximum(0, q - z)
        noise = np.where(left >= 0, (1 - c) * c ** np.maximum(0, left), 0.0)
        out = out * (survival * noise if above else 1 - survival)
    return float(out.sum())


def refreshed(a: Fraction, b: Fraction, over: tuple[int, ...], answers: Answers) -> Fraction:
    """With a threshold noise of its own for every round."""
    out, start = Fraction(1), 0
    for i, above in enumerate(answers):
        if above or i == len(answers) - 1:
            out *= probability(a, b, over[start : i + 1], answers[start : i + 1])
            start = i + 1
    return out


def neighbours(over: Sequence[int], sensitivity: int, monotone: bool) -> Iterator[tuple[int, ...]]:
    """Yield the statistics to which a unit's presence may move these: all up, or anywhere."""
    moves = range(0 if monotone else -sensitivity, sensitivity + 1)
    for move in itertools.product(moves, repeat=len(over)):
        yield tuple(q + m for q, m in zip(over, move, strict=True))
