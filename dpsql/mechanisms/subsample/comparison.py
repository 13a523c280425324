"""Expected errors of each combiner of block results, for EXPLAIN, from public numbers only."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.subsample.subsample import BlockMedian, ResultRange

SPREAD = Fraction(1, 40)
"""The assumed deviation of block results, as a fraction of their bounds, in comparisons of combiners."""


def expect_combined(
    kind: str, bounds: ResultRange, epsilon: Fraction, blocks: int, trim: Fraction | None, confidence: float
) -> float:
    """Return the error of a combiner due to noise, for results with a normal spread of :data:`SPREAD`.

    For the mean and the trimmed mean it is valid for all results; for the other two it decreases with the results' spread.

    Args:
        kind: ``'mean'``, ``'trimmed_mean'``, ``'winsorized_mean'`` or ``'median'``.
        trim: the fraction of results cut off or moved at each end; None if not given.
        confidence: the probability that the error is no larger.
    """
    width, doubt = float(bounds.high - bounds.low), 1 - confidence
    deviation = width * float(SPREAD)
    if kind == "median":
        made = BlockMedian.with_interval("", bounds, epsilon, blocks, confidence)
        return _expect_median(width, deviation, float(made.epsilon), blocks, doubt)
    if kind == "winsorized_mean":
        middle = NormalDist().inv_cdf(0.75 if trim is None else float(1 - trim))
        off = _expect_median(width, deviation, float(epsilon) / 4, blocks, 0.5)  # for each limit
        reach = 2 * (deviation * middle + off) * (2 * math.ceil(2 * blocks ** (1 / 3)) if trim is None else 1)
        return min(width, reach) / blocks * 2 / float(epsilon) * math.log(1 / doubt)
    cut = math.floor((trim or Fraction(1, 10)) * blocks) if kind == "trimmed_mean" else 0
    noise = LaplaceNoise(epsilon, bounds.points)
    return noise.half_width(confidence) * float(bounds.step) / max(1, blocks - 2 * cut)


def _expect_median(width: float, deviation: float, epsilon: float, blocks: int, doubt: float) -> float:
    """Return the error that a median by the exponential mechanism exceeds with probability ``doubt``."""
    away = np.geomspace(width * 1e-6, width / 2, 2000)
    bell = NormalDist(0.0, deviation)
    ranks = blocks * np.array([bell.cdf(distance) - 0.5 for distance in away])
    mass = np.cumsum(np.exp(-epsilon / 2 * ranks) * np.gradient(away))
    return float(away[min(int(np.searchsorted(mass, (1 - doubt) * mass[-1])), len(away) - 1)])


_WIDER = {
    True: "The answer's interval also holds how far results really spread, and may be far wider.",
    False: "The answer's interval is for that noise, and not for how far results spread.",
}
"""The sentences comparing these figures to the interval of a median, and of means."""


def compare_combiners(
    name: str, chosen: str, bounds: ResultRange, epsilon: Fraction, blocks: int, trim: Fraction | None, confidence: float
) -> str:  # fmt: skip
    """Return a sentence on each combiner's expected error, the chosen one first."""
    others = (kind for kind in ("median", "mean", "trimmed_mean", "winsorized_mean") if kind != chosen)
    parts = (
        f"{kind} ±{expect_combined(kind, bounds, epsilon, blocks, trim, confidence):.3g}"
        for kind in (chosen, *others)
    )
    spread = float(SPREAD * (bounds.high - bounds.low))
    return (
        f"{name}: only the data know how far block results spread. Assuming a bell of deviation {spread:.3g}, the noise of each "
        f"combiner at {confidence:.0%} is: {', '.join(parts)}. {_WIDER[chosen == 'median']}"
    )
