"""Numbers of blocks combined without declared bounds: ``bounds = AUTO`` releases the blocks' consensus, or NULL.

The results of blocks are a table of k numbers, of which one unit replaces one. The answer is a trimmed mean, and the
order of magnitude of its move by one result is tested, instead of bounded by the owner (propose, test, release on the
consensus of blocks: Dwork and Roth 2014, sections 7.1 to 7.3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pyarrow as pa

from dpsql.mechanisms.moments import Estimate
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise
from dpsql.mechanisms.ptr.stability_test import NOT_STABLE, StabilityTest
from dpsql.mechanisms.ptr.stable_scale import (
    SCALE_STEPS,
    Number,
    Ranked,
    ScaleBins,
    count_trimmed,
    measure_substitution_radius,
)
from dpsql.mechanisms.subsample.votes import Combined, Combiner, ResultKind, Results
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import hold_to_doubles
from dpsql.privacy.events import Event, compose_events

_LARGEST = Fraction(2) ** 1000
_BINS = ScaleBins(2)
_BLOCKS_PER_EDIT = 8
"""The blocks needed per edit of lead for normally spread results: half a bin is an eighth of them, or more."""


@dataclass(frozen=True)
class ConsensusMean(Combiner):
    """``bounds = AUTO``: the mean of the middle results, plus noise for the scale that their spread proposes.

    Of k results the floor(trim k) smallest and largest are left out. One result moves the mean of the others by less
    than b, the upper end of a bin that contains a bound of that (see :mod:`~dpsql.mechanisms.ptr.stable_scale`). Two
    rows of bins are tested in turn, and in the first stable one the mean is released on a grid of b / 1024, with noise
    of sensitivity 1024 steps. A block without a finite number counts as more extreme than all others, on alternating
    sides: so one changed result is still one replaced, and more of them than are left out give NULL.

    Guarantee: if a pair of neighbours has one bin in a row, only the test's decision and the noise distinguish it; if
    it has two, the row passes with probability at most the test's delta on both. Loss: two tests and the noise.

    Args:
        test: of each of the two rows.
        noise: of the released mean.
        trim: the fraction left out at either end, public, below one half.
    """

    name: str
    test: StabilityTest
    noise: LaplaceNoise | GaussianNoise
    trim: Fraction = Fraction(1, 4)

    def __post_init__(self) -> None:
        if not 0 < self.trim < Fraction(1, 2):
            raise ValueError("trim must lie between 0 and one half")
        if self.noise.sensitivity != SCALE_STEPS or self.noise.groups != 1:
            raise ValueError("the noise must be made for the steps of the scale")

    @property
    def event(self) -> Event:
        return compose_events([self.test.event, self.test.event, self.noise.event])

    def combine(self, values: Results, type: ResultKind, entropy: Entropy, confidence: float) -> Combined:
        ranked = _rank(values)
        data = Ranked(len(ranked), [(1, ranked)])
        for row in (0, 1):
            radius, exponent = measure_substitution_radius(data, self.trim, _BINS, row, self.test.cap)
            if self.test.passes([radius], entropy)[0]:
                return self._release(ranked, exponent, entropy, confidence), ()
        missing = pa.array([None], pa.float64())
        return Estimate(missing, missing, missing).columns(self.name), (f"{self.name}: {NOT_STABLE}",)

    def _release(
        self, ranked: list[Number], exponent: int, entropy: Entropy, confidence: float
    ) -> dict[str, pa.Array]:
        left = count_trimmed(len(ranked), self.trim)
        kept = [Fraction(v) if not math.isinf(v) else Fraction(0) for v in ranked[left : len(ranked) - left]]
        step = Fraction(2) ** exponent / SCALE_STEPS
        place = math.floor(sum(kept, Fraction(0)) / max(len(kept), 1) / step)
        place += int(self.noise.add([0], entropy)[0])
        width = math.ceil(self.noise.half_width(confidence))
        shown = (hold_to_doubles(step * (place + shift)) for shift in (0, -width, width))
        return Estimate(*(pa.array([v], pa.float64()) for v in shown)).columns(self.name)

    def sentences(self, confidence: float, blocks: int) -> tuple[str, ...]:
        left = count_trimmed(blocks, self.trim)
        width = self.noise.half_width(confidence) / SCALE_STEPS / max(blocks - 2 * left - 1, 1)
        needed = _BLOCKS_PER_EDIT * self.test.needed(0.99)
        return (
            f"{self.name}: no bounds are declared: the mean of {blocks:,} block results without the {left:,} smallest and "
            "largest, with noise for the order of magnitude of their spread. Twice it is tested whether that is stable, in "
            f"bins that lie half a bin apart, and NULL is given where neither is; {self.test.sentence()}.",
            f"{self.name}: results that spread like a bell pass from about {needed:,} blocks. The noise is within "
            f"±{width:.3g} to ±{4 * width:.3g} of the distance between the results left "
            f"out, at {confidence:.0%}.",
        )


def _rank(values: Results) -> list[Number]:
    """Return the results in ascending order as exact numbers, those without a number half below and half above all."""
    known = sorted(number for number in map(_read, values) if number is not None)
    missing = len(values) - len(known)
    return [-math.inf] * (missing - missing // 2) + known + [math.inf] * (missing // 2)


def _read(value: Any) -> Fraction | None:
    """Return a result as an exact number; None for NULL, NaN, infinities, texts and user-defined objects."""
    if isinstance(value, str):
        return None
    try:
        return min(max(Fraction(value), -_LARGEST), _LARGEST)
    except Exception:  # a user-defined object may raise anything
        return None
