"""Subsample and aggregate: any query, run exactly on blocks of privacy units, combined privately.

Guarantee: that of the combiner if one of the k block results is replaced by any other (a unit is in one block, k is public
and fixed). Numbers are clamped to public bounds and rounded to a public grid of ``points`` steps; a block without a usable
number counts as the public default. With ``bounds = AUTO`` (:class:`ConsensusMean`) the order of magnitude of a trimmed
mean's move by one result is tested instead (propose, test, release: Dwork and Roth 2014, sections 7.1 to 7.3).

Sensitivities if one of k numbers in a range R changes (checked exhaustively in the tests): mean R/k; mean without the m
smallest and largest R/(k - 2m); winsorised by limits taken from the numbers themselves (m+1)R/k, which is why that one uses
private limits instead; median R, which is why that one uses the exponential mechanism.

Sources: Nissim, Raskhodnikova and Smith (2007); Smith (2011); Dwork and Roth (2014) section 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import (
    ClaimedText,
    ParticipationClaim,
    Read,
    Release,
    add_salt,
    bind_parameters,
)
from dpsql.mechanisms.moments import Estimate
from dpsql.mechanisms.order_statistics import GeometricGrid, WantedRank, cut_segments
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise, Noise
from dpsql.mechanisms.ptr.stability_test import NOT_STABLE, StabilityTest, make_test_and_noise
from dpsql.mechanisms.ptr.trimmed import (
    SCALE_STEPS,
    Number,
    Ranked,
    ScaleBins,
    count_trimmed,
    measure_substitution_radius,
)
from dpsql.mechanisms.subsample.blocks import (
    BlockOperator,
    Combined,
    Combiner,
    Participation,
    ResultKind,
    Results,
    StableMode,
)
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import choose_exponential
from dpsql.numerics.exact_numbers import hold_to_doubles, make_values, round_significant, write_number
from dpsql.privacy.conversions import bounded_range_rho, find_smallest_epsilon
from dpsql.privacy.events import BoundedRange, Event, PureDP, compose_events
from dpsql.privacy.pld import DeclaredPlan


def read_result(value: Any) -> Fraction | None:
    """Return a block result as an exact number; None for NULL, NaN, infinities, texts and user-defined objects."""
    try:
        return None if isinstance(value, str) else Fraction(value)
    except Exception:  # a user-defined object may raise anything
        return None


@dataclass(frozen=True)
class ResultRange:
    """Public bounds to which results are clamped, and the grid between; no finite result counts as the middle."""

    low: Fraction
    high: Fraction
    points: int

    def __post_init__(self) -> None:
        if not self.low < self.high or self.points < 1:
            raise ValueError("the bounds must be in order, and the grid must have a step")

    @property
    def step(self) -> Fraction:
        """The width of a grid step."""
        return (self.high - self.low) / self.points

    def place(self, value: object) -> int:
        """Return the grid position 0..points of a result."""
        if type(value) is float and math.isfinite(value):  # in integers, as there may be a million blocks
            top, bottom = value.as_integer_ratio()
            (low, parts), (step, of) = self._ratios
            divisor = bottom * parts * step
            whole, rest = divmod((top * parts - low * bottom) * of, divisor)
            return min(max(whole + (2 * rest + (whole & 1) > divisor), 0), self.points)  # round half to even
        exact = read_result(value)
        if exact is None:
            exact = (self.low + self.high) / 2
        return min(max(round((exact - self.low) / self.step), 0), self.points)

    @cached_property
    def _ratios(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The lower bound and the step as ratios of integers."""
        return self.low.as_integer_ratio(), self.step.as_integer_ratio()

    def value(self, position: Fraction | int) -> float:
        """Return the number at a grid position."""
        return float(self.low + self.step * position)

    def show_mean(
        self, name: str, places: Sequence[int], noise: Noise, entropy: Entropy, confidence: float
    ) -> dict[str, pa.Array]:
        """Release the mean of some grid positions, with noise added to their sum, and its interval."""
        total, width = int(noise.add([sum(places)], entropy)[0]), math.ceil(noise.half_width(confidence))
        means = (self.value(Fraction(total + shift, len(places))) for shift in (0, -width, width))
        return Estimate.of_one(*means).columns(name)


@dataclass(frozen=True)
class UnboundedRange:
    """A grid for results without known bounds: :class:`GeometricGrid`, from 0. No finite number counts as 0."""

    grid: GeometricGrid = GeometricGrid(-30, 64)

    @property
    def points(self) -> int:
        return 2 * self.grid.last

    @property
    def low(self) -> Fraction:
        return -self.high

    @property
    def high(self) -> Fraction:
        return Fraction(2) ** self.grid.highest

    def place(self, value: object) -> int:
        return self.grid.find_step(read_result(value) or Fraction(0)) + self.grid.last

    def value(self, position: int) -> float:
        return float(self.grid.value(position - self.grid.last))


def choose_grid_quantile(
    places: Sequence[int], probability: Fraction, points: int, epsilon: Fraction, entropy: Entropy
) -> int:
    """Choose a quantile by the exponential mechanism over the grid 0..points, exactly.

    Utility of a point v: minus the number of places that would have to change for v to be a quantile, max(0, L - p k, p
    k - (L + E)) with L places below v and E on it. Replacing one place moves it by at most 1: weights exp(epsilon u /
    2). Pure epsilon, of range at most epsilon. Points between two places share their utility, so the work is O(k log k).
    """
    values, counts = np.unique(np.asarray(places, dtype=np.int64), return_counts=True)
    starts, sizes, scores = cut_segments(values, counts, 0, points, WantedRank(probability))
    chosen = choose_exponential(scores, epsilon / (2 * probability.denominator), entropy, sizes)
    return int(starts[chosen]) + int(entropy.below(int(sizes[chosen]), 1)[0])


@dataclass(frozen=True)
class BlockMean(Combiner):
    """``'mean'`` and ``'trimmed_mean'``: the mean without the ``trim`` smallest and largest results, plus noise.

    ``noise`` is added to the sum in grid steps: its sensitivity must be ``bounds.points``. (Replacing one result moves
    the sum of the k - 2m middle ones by at most the range.) Loss: the noise's.
    """

    name: str
    bounds: ResultRange
    noise: LaplaceNoise | GaussianNoise
    trim: int = 0

    @classmethod
    def calibrate(cls, name: str, bounds: ResultRange, epsilon: Fraction, trim: int = 0) -> BlockMean:
        """Return a mean with Laplace noise."""
        return cls(name, bounds, LaplaceNoise(epsilon, bounds.points), trim)

    def __post_init__(self) -> None:
        if self.noise.sensitivity != self.bounds.points or self.noise.groups != 1:
            raise ValueError("the noise must be made for the whole range")

    @property
    def event(self) -> Event:
        return self.noise.event

    def combine(self, values: Results, type: ResultKind, entropy: Entropy, confidence: float) -> Combined:
        places = sorted(self.bounds.place(v) for v in values)
        kept = places[self.trim : len(places) - self.trim]
        if not kept:
            raise ValueError("trimming leaves no block")
        return self.bounds.show_mean(self.name, kept, self.noise, entropy, confidence), ()

    def sentences(self, confidence: float, blocks: int) -> tuple[str, ...]:
        width = self.noise.half_width(confidence) * float(self.bounds.step) / (blocks - 2 * self.trim)
        kind = f"mean without the {self.trim} smallest and largest" if self.trim else "mean"
        return (
            f"{self.name}: the {kind} of {blocks:,} block results clamped to {_shown(self.bounds)}, with noise within "
            f"±{width:.4g} at {confidence:.0%}.",
        )


@dataclass(frozen=True)
class MedianReach:
    """The private choice of an interval around a released median that contains the median of the results.

    Candidates are half widths of the interval, each about 1.4 times the previous one, up to the whole grid. For each,
    the results outside the interval are counted on the side that has more of them; wanted is the first candidate with
    at most ``level``. Utility: minus the number of results that would have to change for a candidate to be that one.
    Replacing one result moves it by at most 1, and one candidate has utility 0: weights exp(epsilon u / 2), pure
    epsilon, of range at most epsilon.

    The interval misses the median (both of them, if the number of results is even) only if more than ``level + margin``
    results are outside one end, so only if the utility is below ``-margin``. Such candidates are chosen with total
    probability at most their number times exp(-epsilon margin / 2), whatever the results.

    ``level``: the results allowed outside either end; ``margin``: the greatest error of the choice.
    """

    epsilon: Fraction
    level: int
    margin: int

    @classmethod
    def plan(cls, epsilon: Fraction, blocks: int, points: int, confidence: float) -> MedianReach | None:
        """Return the choice at a confidence; None if there are too few blocks for any interval."""
        others = len(_list_reaches(points)) - 1
        margin = math.ceil(2 / float(epsilon) * math.log(max(1, others) / (1 - confidence)) * (1 + 1e-9))
        level = (blocks - 1) // 2 - margin
        return cls(epsilon, level, margin) if level >= 0 else None

    def choose(self, places: Sequence[int], middle: int, points: int, entropy: Entropy) -> int:
        """Return the half width of the interval around ``middle``, in grid steps."""
        reaches = _list_reaches(points)
        half, away = np.array(reaches), np.sort(np.asarray(places, dtype=np.int64) - middle)
        above = len(away) - np.searchsorted(away, half, "right")
        beyond = np.maximum(np.searchsorted(away, -half), above)
        before = np.concatenate([[len(places) + self.level + 1], beyond[:-1]])
        scores = -np.maximum(0, np.maximum(beyond - self.level, self.level + 1 - before))
        return reaches[choose_exponential(scores, self.epsilon / 2, entropy)]


@lru_cache(maxsize=8)
def _list_reaches(points: int) -> tuple[int, ...]:
    """Return the possible half widths of an interval: 0, 1, 2, 3, 4, 6, 8, 12 and so on, and the whole grid."""
    powers = (size for i in range(points.bit_length()) for size in (1 << i, 3 << i >> 1))
    return (*sorted({0, *(size for size in powers if size < points)}), points)


@dataclass(frozen=True)
class BlockMedian(Combiner):
    """``'median'``: the exponential mechanism on the grid. Loss: epsilon, of bounded range, and that of ``reach``, if any."""

    name: str
    bounds: ResultRange | UnboundedRange
    epsilon: Fraction
    reach: MedianReach | None = None

    @classmethod
    def with_interval(
        cls, name: str, bounds: ResultRange, epsilon: Fraction, blocks: int, confidence: float
    ) -> BlockMedian:
        """Return a median with an interval from a quarter of epsilon, or without one if there are too few blocks."""
        reach = MedianReach.plan(epsilon / 4, blocks, bounds.points, confidence)
        return cls(name, bounds, epsilon if reach is None else epsilon * 3 / 4, reach=reach)

    @property
    def event(self) -> Event:
        chosen = () if self.reach is None else (BoundedRange(self.reach.epsilon),)
        return compose_events([BoundedRange(self.epsilon), *chosen])

    def combine(self, values: Results, type: ResultKind, entropy: Entropy, confidence: float) -> Combined:
        places, points = [self.bounds.place(v) for v in values], self.bounds.points
        chosen = choose_grid_quantile(places, Fraction(1, 2), points, self.epsilon, entropy)
        if self.reach is None:
            return {self.name: make_values([self.bounds.value(chosen)], pa.float64())}, ()
        half = self.reach.choose(places, chosen, points, entropy)
        shown = (min(max(chosen + side, 0), points) for side in (0, -half, half))
        return Estimate.of_one(*map(self.bounds.value, shown)).columns(self.name), ()

    def sentences(self, confidence: float, blocks: int) -> tuple[str, ...]:
        error = 2 / float(self.epsilon) * (math.log(self.bounds.points + 1) - math.log(1 - confidence))
        return (
            f"{self.name}: the median of {blocks:,} block results clamped to {_shown(self.bounds)}, by the exponential "
            f"mechanism; off by at most {error:.1f} ranks of {blocks:,} at {confidence:.0%}.",
            *self._say_reach(blocks),
        )

    def _say_reach(self, blocks: int) -> tuple[str, ...]:
        if self.reach is None:
            return (f"{self.name}: {blocks:,} blocks are too few for an interval at this epsilon.",)
        spent = write_number(self.reach.epsilon)
        return (
            f"{self.name}: the interval ends where about {self.reach.level:,} of {blocks:,} results are outside, chosen with "
            f"ε={spent}; it contains their median at the stated confidence.",
        )


@dataclass(frozen=True)
class WinsorizedMean(Combiner):
    """``'winsorized_mean'``: the mean of the results clamped to private limits, plus noise for those limits (Smith 2011).

    a and b are the quartiles by the exponential mechanism at epsilon / 4 each; the limits are (a + b) / 2 plus and
    minus ``widening`` times max(b - a, one step), inside the bounds. Given the limits, one result moves the sum by at
    most their distance, and Laplace noise for that is added at epsilon / 2. Composition: epsilon. (Limits taken from
    the results themselves would make the sensitivity of the mean (m+1)R/k.) ``widening`` is public, 2 k^(1/3) by
    Smith's rate if None.

    With ``trim`` (public, below 1/2) a and b are the quantiles of ``trim`` and ``1 - trim`` instead, and are the
    limits. Composition is unchanged.
    """

    name: str
    bounds: ResultRange
    epsilon: Fraction
    widening: int | None = None
    trim: Fraction | None = None

    @property
    def event(self) -> Event:
        quarter = BoundedRange(self.epsilon / 4)
        return compose_events([quarter, quarter, PureDP(self.epsilon / 2)])

    def _widening(self, blocks: int) -> int:
        return self.widening or math.ceil(2 * blocks ** (1 / 3))

    def combine(self, values: Results, type: ResultKind, entropy: Entropy, confidence: float) -> Combined:
        places = [self.bounds.place(v) for v in values]
        points = self.bounds.points
        part = Fraction(1, 4) if self.trim is None else self.trim
        a, b = (choose_grid_quantile(places, p, points, self.epsilon / 4, entropy) for p in (part, 1 - part))
        reach = self._widening(len(places)) * max(b - a, 1) if self.trim is None else abs(b - a) // 2
        low = min(max((a + b) // 2 - reach, 0), points - 1)
        high = max(min(-(-(a + b) // 2) + reach, points), low + 1)
        noise = LaplaceNoise(self.epsilon / 2, high - low)
        held = [min(max(v, low), high) for v in places]
        return self.bounds.show_mean(self.name, held, noise, entropy, confidence), ()

    def sentences(self, confidence: float, blocks: int) -> tuple[str, ...]:
        limits = f"{self._widening(blocks)} interquartile ranges either side of the middle"
        if self.trim is not None:
            limits = f"the {float(self.trim):.4g} and {float(1 - self.trim):.4g} quantiles"
        return (
            f"{self.name}: the mean of {blocks:,} block results clamped to private limits inside {_shown(self.bounds)}: "
            f"{limits}, found with ε/2; the noise uses the other half and fits those limits.",
        )


@dataclass(frozen=True)
class Coordinates(Combiner):
    """Vectors of public length, combined coordinate by coordinate into one.

    ``parts`` combine one coordinate each, with a share of the loss; they compose, for a changed block changes all. A
    block without a vector counts as the default in each. With a ``declared`` pair of epsilon and delta the shares are
    those of :func:`split_by_rho`, for a list of mechanisms that is fixed before the first answer.
    """

    name: str
    parts: tuple[BlockMean | BlockMedian | WinsorizedMean, ...]
    declared: tuple[Fraction, Fraction] | None = None

    @property
    def event(self) -> Event:
        events = tuple(part.event for part in self.parts)
        return compose_events(events) if self.declared is None else DeclaredPlan(events, *self.declared)

    def combine(self, values: Results, type: ResultKind, entropy: Entropy, confidence: float) -> Combined:
        found, ends = [], []
        for i, part in enumerate(self.parts):
            own = [value[i] if value is not None else None for value in values]
            made = {name: c[0].as_py() for name, c in part.combine(own, None, entropy, confidence)[0].items()}
            found.append(made[part.name])
            if f"{part.name}__low" in made:
                ends.append(f"[{made[f'{part.name}__low']:.4g}, {made[f'{part.name}__high']:.4g}]")
        said = (f"{self.name}, at {confidence:.0%} each: {', '.join(ends)}",) if ends else ()
        return {self.name: make_values([found], pa.list_(pa.float64()))}, said

    def sentences(self, confidence: float, blocks: int) -> tuple[str, ...]:
        each = self.parts[0].sentences(confidence, blocks)[0].partition(": ")[2]
        how = "with an equal share"
        if self.declared is not None:
            share = write_number(self.parts[0].event.basic[0])
            how = f"with ε={share} each, which compose to ε={write_number(self.declared[0])} at this delta"
        return (f"{self.name}: each of {len(self.parts)} coordinates separately, {how}: {each}",)


@lru_cache(maxsize=64)
def split_by_rho(epsilon: Fraction, delta: Fraction, count: int) -> Fraction:
    """Return the epsilon of each of ``count`` exponential mechanisms by their concentrated losses, rounded down.

    An (epsilon, delta)-DP statement may spend more on many mechanisms than equal parts of epsilon, as their losses
    rarely all add up.
    """
    low, high = epsilon / count, epsilon
    for _ in range(24):
        middle = round_significant((low + high) / 2, 6)
        rho = count * bounded_range_rho(middle)
        low, high = (middle, high) if find_smallest_epsilon(rho, delta) <= epsilon else (low, middle)
    return low


def _shown(bounds: ResultRange | UnboundedRange) -> str:
    return f"[{float(bounds.low):.6g}, {float(bounds.high):.6g}]"


@dataclass(frozen=True)
class SubsampleAggregate(BlockOperator):
    """``SELECT WITH SUBSAMPLE``: one row, one released value per combiner.

    Args:
        source: returns the block results; a combiner reads the column of its name.
        combiners: each with its share of the loss; they compose.
        participation: for independent subsamples, the check that no unit is in too many; if one is, all is NULL.
    """

    combiners: tuple[Combiner, ...]
    confidence: float = 0.95
    participation: Participation | None = None

    def __post_init__(self) -> None:
        check = self.participation
        for combiner in self.combiners if check else ():
            if not isinstance(combiner, StableMode) or combiner.rounds != check.cap:  # type: ignore[union-attr]
                raise ValueError("independent subsamples are for the stable mode, with the cap as its rounds")
            if combiner.test.slack < check.failure:  # type: ignore[union-attr]
                raise ValueError(
                    "the chance that a unit is in too many subsamples must be set aside from delta"
                )

    @property
    def event(self) -> Event:
        return compose_events([combiner.event for combiner in self.combiners])

    @property
    def queries(self) -> tuple[str, ...]:
        check = (self.participation.query,) if self.participation else ()
        return (*check, *super().queries)

    def claims(self) -> Iterator[ClaimedText]:
        if self.participation is not None:
            yield ClaimedText(self.participation.query, ParticipationClaim())
            yield from self.source.claims(None)
            return
        rounds = [c.rounds for c in self.combiners if isinstance(c, StableMode)]
        yield from self.source.claims(min(rounds) if len(rounds) == len(self.combiners) else 1)

    def release(self, read: Read, entropy: Entropy) -> Release:
        fits = True
        if self.participation:
            # one salt for all texts: the check must count the subsamples that are run
            read = add_salt(read, self.queries, entropy)
            every = bind_parameters(read, {"first": 0, "last": self.participation.runs})
            fits = self.participation.holds(every, self.participation.query)
        results = self.source.results(read, entropy)
        columns: dict[str, pa.Array] = {}
        notes: list[str] = []
        for combiner in self.combiners:
            values = results.columns[combiner.name] if fits else []
            made, said = combiner.combine(values, results.types.get(combiner.name), entropy, self.confidence)
            columns |= made
            notes.extend(said)
        return Release(pa.table(columns), self.event, tuple(notes))

    def sentences(self, confidence: float) -> tuple[str, ...]:
        said = [self.source.sentence()]
        if self.participation:
            q, runs = float(self.participation.q), self.participation.runs
            said.append(
                f"each unit joins each of {runs:,} runs with probability {q:.3g}; NULL if one is in more than "
                f"{self.participation.cap:,} of them. 'rounds' needs far fewer runs."
            )
        for combiner in self.combiners:
            said.extend(combiner.sentences(confidence, self.source.blocks))
        return tuple(said)


_LARGEST = Fraction(2) ** 1000
_BINS = ScaleBins(2)
_BLOCKS_PER_EDIT = 8
"""The blocks needed per edit of lead for normally spread results: half a bin is an eighth of them, or more."""


@dataclass(frozen=True)
class ConsensusMean(Combiner):
    """``bounds = AUTO``: the mean of the middle results, plus noise for the scale that their spread proposes.

    Of k results the floor(trim k) smallest and largest are left out. One result moves the mean of the others by less
    than b, the upper end of a bin that contains a bound of that (see :mod:`~dpsql.mechanisms.ptr.trimmed`). Two
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

    @classmethod
    def calibrate(cls, name: str, epsilon: Fraction, delta: Fraction, trim: Fraction | None) -> ConsensusMean:
        """Return a mean whose tests and noise together lose epsilon and delta."""
        test, noise = make_test_and_noise("AUTO", epsilon, delta, 1, SCALE_STEPS, tests=2)
        return cls(name, test, noise, trim or Fraction(1, 4))

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
        return Estimate.of_one(None, None, None).columns(self.name), (f"{self.name}: {NOT_STABLE}",)

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
        return Estimate.of_one(*shown).columns(self.name)

    def sentences(self, confidence: float, blocks: int) -> tuple[str, ...]:
        left = count_trimmed(blocks, self.trim)
        width = self.noise.half_width(confidence) / SCALE_STEPS / max(blocks - 2 * left - 1, 1)
        needed = _BLOCKS_PER_EDIT * self.test.needed(0.99)
        return (
            f"{self.name}: no bounds are declared: the mean of {blocks:,} block results without the {left:,} smallest and "
            "largest, with noise for the order of magnitude of their spread. Two tests, with bins half "
            f"a bin apart, check whether that is stable; if neither passes, it is NULL; {self.test.sentence()}.",
            f"{self.name}: normally distributed results pass from about {needed:,} blocks. The noise is within "
            f"±{width:.3g} to ±{4 * width:.3g} of the distance between the results left "
            f"out, at {confidence:.0%}.",
        )


def _rank(values: Results) -> list[Number]:
    """Return the results in ascending order as exact numbers, those without a number half below and half above all."""
    exact = (number for number in map(read_result, values) if number is not None)
    known = sorted(min(max(number, -_LARGEST), _LARGEST) for number in exact)
    missing = len(values) - len(known)
    return [-math.inf] * (missing - missing // 2) + known + [math.inf] * (missing // 2)
