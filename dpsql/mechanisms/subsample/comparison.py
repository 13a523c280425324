"""Expected errors of each combiner of block results, before any are seen: for EXPLAIN, from public numbers only."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.subsample.subsample import BlockMedian, ResultRange

SPREAD = Fraction(1, 40)
"""The deviation of block results, in parts of their bounds, at which combiners are compared before any are seen."""


def expect_combined(
    kind: str, bounds: ResultRange, epsilon: Fraction, blocks: int, trim: Fraction | None, confidence: float
) -> float:
    """Return how far noise moves what a combiner makes of results that spread like a bell of :data:`SPREAD`.

    This compares combiners from public numbers. That of the mean and of the trimmed mean holds for all results; of the
    other two it falls as results come closer together.

    Args:
        kind: ``'mean'``, ``'trimmed_mean'``, ``'winsorized_mean'`` or ``'median'``.
        bounds: of the results.
        epsilon: what the combiner has.
        blocks: how many results there are.
        trim: the part of results cut off or moved at each end; None where it was not given.
        confidence: with which the error is no larger.
    """
    width, doubt = float(bounds.high - bounds.low), 1 - confidence
    deviation = width * float(SPREAD)
    if kind == "median":
        made = BlockMedian.with_interval("", bounds, epsilon, blocks, confidence)
        return _expect_median(width, deviation, float(made.epsilon), blocks, doubt)
    if kind == "winsorized_mean":
        middle = NormalDist().inv_cdf(0.75 if trim is None else float(1 - trim))
        off = _expect_median(width, deviation, float(epsilon) / 4, blocks, 0.5)  # of each limit
        reach = 2 * (deviation * middle + off) * (2 * math.ceil(2 * blocks ** (1 / 3)) if trim is None else 1)
        return min(width, reach) / blocks * 2 / float(epsilon) * math.log(1 / doubt)
    cut = math.floor((trim or Fraction(1, 10)) * blocks) if kind == "trimmed_mean" else 0
    noise = LaplaceNoise(epsilon, bounds.points)
    return noise.half_width(confidence) * float(bounds.step) / max(1, blocks - 2 * cut)


def _expect_median(width: float, deviation: float, epsilon: float, blocks: int, doubt: float) -> float:
    """Return the distance beyond which a median by the exponential mechanism is with probability ``doubt``."""
    away = np.geomspace(width * 1e-6, width / 2, 2000)
    bell = NormalDist(0.0, deviation)
    ranks = blocks * np.array([bell.cdf(distance) - 0.5 for distance in away])
    mass = np.cumsum(np.exp(-epsilon / 2 * ranks) * np.gradient(away))
    return float(away[min(int(np.searchsorted(mass, (1 - doubt) * mass[-1])), len(away) - 1)])


_WIDER = {
    True: "The answer's interval also holds how far results really spread, and may be far wider.",
    False: "The answer's interval is for that noise, and not for how far results spread.",
}
"""The intervals of an answer beside these figures: of a median, and of means."""


def compare_combiners(
    name: str, chosen: str, bounds: ResultRange, epsilon: Fraction, blocks: int, trim: Fraction | None, confidence: float
) -> str:  # fmt: skip
    """Say what error to expect of each combiner, the chosen one first."""
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
