"""Errors to expect before anything is paid, for other epsilons too: arithmetic on the plan, no data, no cost.

An operator's noise is rescaled as if its block had another epsilon (delta stays); what its own sentences say about the
error is then computed anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import singledispatch

from dpsql.mechanisms.additive import Aggregation
from dpsql.mechanisms.additive_noise import GaussianNoise, Noise, Statistic
from dpsql.mechanisms.composite import Together
from dpsql.mechanisms.estimators import Count, Mean, Output, Sum
from dpsql.mechanisms.histograms import DistinctCount, Histogram
from dpsql.mechanisms.quantile import Quantiles
from dpsql.mechanisms.selection.above_threshold import AboveThreshold
from dpsql.mechanisms.selection.exponential import ExponentialChoice

ROWS = 1000
"""Rows of a group that the error of a mean is said for: it goes down as they go up."""


@dataclass(frozen=True)
class Expected:
    """How far an answer may be off, at a confidence: ``±error`` in units of the column, or in rows of rank."""

    name: str
    error: float


def expected(operator: object, factor: Fraction, confidence: float) -> tuple[Expected, ...]:
    """Errors of the operator's answers if its epsilon were ``factor`` times what it is.

    Answers whose error depends on more than public numbers (variances, tests of stability, votes) are left out.
    """
    return tuple(_errors(operator, factor, confidence))


@singledispatch
def _errors(operator: object, factor: Fraction, confidence: float) -> Iterator[Expected]:
    return iter(())


@_errors.register
def _(operator: Aggregation, factor: Fraction, confidence: float) -> Iterator[Expected]:
    for output in operator.outputs:
        yield from _output(output, factor, confidence)


@_errors.register
def _(operator: Together, factor: Fraction, confidence: float) -> Iterator[Expected]:
    parts: Iterable[object] = operator.parts
    if operator.aggregation is not None:
        parts = (operator.aggregation, *operator.parts)
    for part in parts:
        yield from _errors(part, factor, confidence)


@_errors.register
def _(operator: DistinctCount, factor: Fraction, confidence: float) -> Iterator[Expected]:
    yield from _output(Count(operator.name, operator.statistic), factor, confidence)


@_errors.register
def _(operator: Histogram, factor: Fraction, confidence: float) -> Iterator[Expected]:
    yield Expected(f"{operator.name}, each bin", _scaled(operator.noise, factor).half_width(confidence))


@_errors.register
def _(operator: Quantiles, factor: Fraction, confidence: float) -> Iterator[Expected]:
    other = replace(operator, epsilon=operator.epsilon * factor)
    for name, rank in zip(other.names, other.ranks, strict=True):
        inward = other.inward if rank.end else 0
        yield Expected(f"{name}, in rows", inward + other.off(rank, confidence))


@_errors.register
def _(operator: AboveThreshold, factor: Fraction, confidence: float) -> Iterator[Expected]:
    noise = operator.noise
    other = replace(noise, epsilon1=noise.epsilon1 * factor, epsilon2=noise.epsilon2 * factor)
    yield Expected(
        "compared with the threshold",
        other.reach(confidence, operator.candidates or 1) / float(operator.steps),
    )


@_errors.register
def _(operator: ExponentialChoice, factor: Fraction, confidence: float) -> Iterator[Expected]:
    if not operator.varying:
        other = replace(operator, epsilon=operator.epsilon * factor)
        yield Expected("short of the best", other.behind(confidence))


def _output(output: Output, factor: Fraction, confidence: float) -> Iterator[Expected]:
    if isinstance(output, Count):
        yield Expected(output.name, _width(output.statistic, factor, confidence))
    elif isinstance(output, Sum):
        yield Expected(output.name, _width(output.statistic, factor, confidence) / float(output.steps))
    elif isinstance(output, Mean):
        part = 1 - (1 - confidence) / 2
        low, high = (float(end) for end in output.bounds)
        total = _width(output.total, factor, part) / float(output.steps * output.whole)
        count = _width(output.count, factor, part) / output.whole
        off = (total + (high - low) / 2 * count) / max(ROWS - count, 1.0)
        yield Expected(f"{output.name}, of {ROWS} rows", min(off, high - low))


def _width(statistic: Statistic, factor: Fraction, confidence: float) -> float:
    return _scaled(statistic.noise, factor).half_width(confidence)


def _scaled(noise: Noise, factor: Fraction) -> Noise:
    if isinstance(noise, GaussianNoise):
        return noise.calibrate(noise.epsilon * factor, noise.delta, noise.sensitivity, noise.groups)
    return replace(noise, epsilon=noise.epsilon * factor)
