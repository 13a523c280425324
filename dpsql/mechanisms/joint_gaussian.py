"""Gaussian noise of several blocks under one calibration: those of a declared plan, and of grouping sets.

Relation: ADD_REMOVE. Guarantee: blocks that are fixed together may be calibrated together. Their pairs (epsilon, delta)
add up, and each block's share of the joint squared mu is its share of epsilon
(:class:`~dpsql.mechanisms.per_group.JointGaussianNoise`). The composed event checks that the pair covers all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeGuard

from dpsql.mechanisms.aggregation import Aggregation, Together
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.contribution_caps import CapSearch
from dpsql.mechanisms.marginals import Marginals
from dpsql.mechanisms.ordered_noise import OrderedNoise
from dpsql.mechanisms.per_group import GaussianNoise, JointGaussianNoise, Noise, change_noise


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
    return [_find_base(statistic.noise) for statistic in aggregation.statistics]


def _sum_shares(noises: Iterable[Noise]) -> Fraction:
    """Return a block's share of a joint calibration; 1 if it was calibrated alone."""
    shares = [noise.share for noise in noises if isinstance(noise, JointGaussianNoise)]
    return sum(shares, Fraction(0)) if shares else Fraction(1)


def _find_base(noise: Noise) -> Noise:
    return noise.base if isinstance(noise, OrderedNoise) else noise


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

    if isinstance(operator, CapSearch):
        least, *between, most = (_calibrate(choice, part, epsilon, delta) for choice in operator.choices)
        return replace(operator, least=least, most=most, between=tuple(between))
    if isinstance(operator, Marginals):
        return replace(operator, table=_change(operator.table, change))
    if isinstance(operator, Together):
        inner = operator.aggregation
        return operator if inner is None else replace(operator, aggregation=_change(inner, change))
    assert isinstance(operator, Aggregation)
    return _change(operator, change)


def _change(aggregation: Aggregation, change: Callable[[Noise], Noise]) -> Aggregation:
    return replace(aggregation, outputs=tuple(change_noise(output, change) for output in aggregation.outputs))
