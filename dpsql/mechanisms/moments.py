"""COUNT, SUM, AVG, VARIANCE, COVARIANCE, CORRELATION and REGRESSION as formulas over noisy moments.

Relation: ADD_REMOVE. Sensitivity: of each moment (a count; sums of values about public centres, of their squares and
products), as its noise declares. Guarantee: the composition of the noises' events; formulas and intervals are
post-processing. The caller must ensure that all moments of one output run over the same rows (for two columns, those
with both), clamped to their bounds and with one weight per row.

Intervals cover the noise, not the bias of bounds: the exact clamped (and weighted) aggregate is inside with at least the
stated confidence, over all releases. With several noisy numbers, each gets an equal part of the miss probability
(Bonferroni), and the interval is their interval arithmetic: at least as wide as needed. A correlation or slope whose
spread may be 0 has the interval [-1, 1], or NULL.

Expected absolute errors come from public numbers alone, and no guarantee depends on them. The error of a count or a sum
is its noise. A quotient by a count depends on private rows, so its error assumes a number of rows
(:data:`TYPICAL_ROWS`), spread evenly between the bounds; for a mean, with a mean a quarter of the bounds' distance from
their middle. Functions of several noisy numbers are linearised, and squared errors add up. After release, the intervals
determine these errors (:func:`read_errors`).

The bias of caps, clipping and bounds depends on the data; ``OPTIONS (report_cut = TRUE)`` pays for a report on it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsql.catalogue.aggregate_names import kinds_of_form
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import MEAN_ROWS, Booleans, ErrorBasis, ExpectedError, Release
from dpsql.mechanisms.per_group import Noise, Statistic
from dpsql.numerics.exact_numbers import (
    INT64_MAX,
    INT64_MIN,
    Floats,
    Integers,
    make_doubles,
    make_longs,
    make_values,
    to_integers,
)
from dpsql.numerics.interval_arithmetic import FloatIntervals, divide_steps

Noisy = Mapping[Statistic, Integers]
"""The released integers of every statistic, one per group."""

_DIGITS = 10**38 - 1


# -- columns ----------------------------------------------------------------------------------------------------------


def _make_whole(values: Integers) -> pa.Array:
    """Return a column of int64 if every value fits, else of decimal128(38, 0)."""
    if values.dtype == np.int64 or all(INT64_MIN <= int(v) <= INT64_MAX for v in values):
        return make_longs(values)
    return make_values([int(v) for v in np.clip(values, -_DIGITS, _DIGITS)], pa.decimal128(38, 0))


class Estimate(NamedTuple):
    """An output's value, and the ends of its interval."""

    value: pa.Array
    low: pa.Array
    high: pa.Array

    @classmethod
    def of_one(cls, *numbers: float | None) -> Estimate:
        """Return the columns of one value and of its ends."""
        return cls(*(make_values([number], pa.float64()) for number in numbers))

    def columns(self, name: str) -> dict[str, pa.Array]:
        return {name: self.value, f"{name}__low": self.low, f"{name}__high": self.high}


# -- outputs ----------------------------------------------------------------------------------------------------------


class Moment(NamedTuple):
    """A noisy number that a formula needs: its description for EXPLAIN, and its grid steps per unit."""

    what: str
    statistic: Statistic
    steps: Fraction = Fraction(1)


class Output(ABC):
    """One aggregate of a block: the moments that it needs, and the formula over them."""

    name: str

    @property
    @abstractmethod
    def moments(self) -> tuple[Moment, ...]:
        """The moments, in the order of EXPLAIN's sentences."""

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistics of the moments, in the order in which their noise is drawn."""
        return tuple(moment.statistic for moment in self.moments)

    @property
    def shows_integers(self) -> bool:
        """Whether the value is the noisy integer of its one statistic."""
        return False

    @abstractmethod
    def show(self, noisy: Noisy, confidence: float) -> Estimate:
        """Return value and interval of every group."""

    def sentences(self, confidence: float) -> tuple[str, ...]:
        """Describe each moment for EXPLAIN, from public quantities only."""
        part = self._share(confidence)
        noises = ((m.what, m.statistic.noise.sentence(part, m.steps)) for m in self.moments)
        said = Counter(
            f"{what} {noise}." for what, noise in noises
        )  # of two columns with the same bounds some are alike
        return tuple(
            f"{self.name}: {'twice ' if many == 2 else ''}{sentence}" for sentence, many in said.items()
        )

    def errors(self, basis: ErrorBasis) -> Iterator[ExpectedError]:
        """Yield its errors; by default for assumed numbers of rows, without half widths."""
        if basis.confidence is None:
            for rows in basis.rows:
                yield ExpectedError(self.name, self._expect_error(rows))

    def _expect_error(self, rows: int) -> float:
        raise NotImplementedError

    def _share(self, confidence: float) -> float:
        """Return the confidence of each moment: an equal part of the miss probability."""
        return 1 - (1 - confidence) / len(self.statistics)

    def _spans(self, noisy: Noisy, confidence: float) -> dict[Statistic, FloatIntervals]:
        part = self._share(confidence)
        return {s: FloatIntervals.around(noisy[s], s.noise.half_width(part)) for s in self.statistics}


def _to_floats(values: Integers) -> Floats:
    return values.astype(np.float64)


@dataclass(frozen=True)
class Count(Output):
    """An integer count. Negative noisy counts stay negative."""

    name: str
    statistic: Statistic

    @property
    def moments(self) -> tuple[Moment, ...]:
        return (Moment("the count has", self.statistic),)

    @property
    def shows_integers(self) -> bool:
        return True

    def show(self, noisy: Noisy, confidence: float) -> Estimate:
        span = self._spans(noisy, confidence)[self.statistic]
        shown = make_longs(np.clip(noisy[self.statistic], INT64_MIN, INT64_MAX))
        return Estimate(shown, make_doubles(span.low), make_doubles(span.high))

    def errors(self, basis: ErrorBasis) -> Iterator[ExpectedError]:
        yield ExpectedError(self.name, basis.of(self.statistic.noise))


@dataclass(frozen=True)
class Sum(Output):
    """A sum on a grid of ``steps`` per unit.

    If rows are weighted, it is in ``whole`` parts of a step, and shown in whole steps. It is an integer if ``steps`` is
    ``whole``. The middle of its interval is the sum in parts, by which quotients are divided.
    """

    name: str
    statistic: Statistic
    steps: Fraction = Fraction(1)
    whole: int = 1
    counting: bool = False
    """True for a count of weighed rows, which is never negative."""

    @property
    def moments(self) -> tuple[Moment, ...]:
        return (Moment("the count has" if self.counting else "the sum has", self.statistic, self.steps),)

    @property
    def shows_integers(self) -> bool:
        return self.steps == 1

    def show(self, noisy: Noisy, confidence: float) -> Estimate:
        values, steps = noisy[self.statistic], self.steps
        width = self.statistic.noise.half_width(confidence)
        if self.whole > 1:  # the nearest whole steps, and an interval around the sum in parts, which has both
            width = math.ceil(max(width, self.whole / 2))
            span, steps = FloatIntervals.around(values, width, steps), steps / self.whole
            values = to_integers([(2 * int(v) + self.whole) // (2 * self.whole) for v in values])
        else:
            span = FloatIntervals.around(values, width, steps)
        value = _make_whole(values) if steps == 1 else make_doubles(divide_steps(values, steps))
        return Estimate(value, make_doubles(span.low), make_doubles(span.high))

    def errors(self, basis: ErrorBasis) -> Iterator[ExpectedError]:
        yield ExpectedError(self.name, basis.of(self.statistic.noise) / float(self.steps))


def _total_about(total: Statistic, centre: Fraction, steps: Fraction) -> Moment:
    return Moment(f"a total of differences from {float(centre):g} with", total, steps)


@dataclass(frozen=True)
class Mean(Output):
    """A noisy total over a noisy count: ``centre + total / (max(count, 1) * steps)``, clamped to the bounds.

    ``total`` is a sum about ``centre``, in grid steps, of rows or of one mean per privacy unit (``count`` then counts units).
    If rows are weighted, both are in ``whole`` parts of a row. Over a noisy count of less than half a row the mean is NULL,
    with the bounds as its interval.
    """

    name: str
    total: Statistic
    count: Statistic
    steps: Fraction
    centre: Fraction
    bounds: tuple[Fraction, Fraction]
    whole: int = 1

    @property
    def moments(self) -> tuple[Moment, ...]:
        return (
            _total_about(self.total, self.centre, self.steps * self.whole),
            Moment("divided by a count with", self.count, Fraction(self.whole)),
        )

    def _hold(self, values: Floats) -> Floats:
        return np.clip(values, float(self.bounds[0]), float(self.bounds[1]))

    def show(self, noisy: Noisy, confidence: float) -> Estimate:
        centre, steps, one = float(self.centre), float(self.steps), float(self.whole)
        count, spans = _to_floats(noisy[self.count]), self._spans(noisy, confidence)
        least = one if self.whole == 1 else one / 2  # rows of a unit above a cap may weigh less than one row
        known = 2 * count >= one
        value = self._hold(centre + _to_floats(noisy[self.total]) / (np.maximum(count, least) * steps))
        mean = spans[self.total].per(spans[self.count].clip(least, None)) / steps + centre
        # the ends are rounded more than once; a relative 1e-12 is far more than that adds up to
        slack = 1e-12 * (np.abs(value) + abs(centre))
        below = np.where(known, np.minimum(mean.low - slack, value), -np.inf)
        above = np.where(known, np.maximum(mean.high + slack, value), np.inf)
        ends = (make_doubles(self._hold(end)) for end in (below, above))
        return Estimate(make_doubles(value, known), *ends)

    def errors(self, basis: ErrorBasis) -> Iterator[ExpectedError]:
        if basis.confidence is None:
            yield from super().errors(basis)
            return
        part, reach = replace(basis, confidence=self._share(basis.confidence)), _reach(self)
        total = part.of(self.total.noise) / float(self.steps * self.whole)
        count = part.of(self.count.noise) / self.whole
        for rows in basis.rows:
            off = (total + reach / 2 * count) / max(rows - count, 1.0)
            yield ExpectedError(self.name, min(off, reach), rows)

    def _expect_error(self, rows: int) -> float:
        reach = _reach(self)
        total = _per_row(self.total, float(self.steps), self.whole, rows)
        count = _OFF_CENTRE * reach * _per_row(self.count, 1, self.whole, rows)
        return min(add_errors([total, count]), reach)


VARIANCE_KINDS = kinds_of_form("spread")


@dataclass(frozen=True)
class Variance(Output):
    """Variance or standard deviation from noisy moments about ``centre``, never negative and never NaN.

    Over a noisy count of less than half a row (of a sample: less than one and a half) it is NULL, with the widest interval
    that the bounds allow. ``squares`` is the sum of squared deviations from ``centre``, in ``square_steps`` per squared unit
    (``steps**2`` by default); ``total``, ``count`` and ``whole`` are as in :class:`Mean`. ``kind``: see :data:`VARIANCE_KINDS`.
    """

    name: str
    squares: Statistic
    total: Statistic
    count: Statistic
    steps: Fraction
    centre: Fraction
    bounds: tuple[Fraction, Fraction]
    kind: str = "var_samp"
    square_steps: Fraction | None = None
    whole: int = 1

    def __post_init__(self) -> None:
        if self.kind not in VARIANCE_KINDS:
            raise ValueError(f"kind must be one of {', '.join(VARIANCE_KINDS)}")

    @property
    def moments(self) -> tuple[Moment, ...]:
        per_square = (self.square_steps or self.steps**2) * self.whole
        return (
            Moment("a sum of squares with", self.squares, per_square),
            _total_about(self.total, self.centre, self.steps * self.whole),
            Moment("and a count with", self.count, Fraction(self.whole)),
        )

    @property
    def _of_sample(self) -> bool:
        return self.kind.endswith("samp")

    @property
    def _most(self) -> float:
        """The greatest variance that the bounds allow."""
        return _reach(self) ** 2 / (2 if self._of_sample else 4)

    def _finish(self, population: Floats, count: Floats) -> Floats:
        """Return ``kind``'s number for a population variance, clamped to what the bounds allow."""
        variance = np.clip(population, 0.0, _reach(self) ** 2 / 4)
        if self._of_sample:
            variance = np.minimum(variance * count / np.maximum(count - 1, 1.0), self._most)
        return np.sqrt(variance) if self.kind.startswith("stddev") else variance

    def show(self, noisy: Noisy, confidence: float) -> Estimate:
        per_square, steps, _ = (float(moment.steps) for moment in self.moments)
        rows, spans = _to_floats(noisy[self.count]) / self.whole, self._spans(noisy, confidence)
        known = rows >= (1.5 if self._of_sample else 0.5)
        count = np.maximum(rows, 1.0)
        mean = _to_floats(noisy[self.total]) / (count * steps)
        value = self._finish(_to_floats(noisy[self.squares]) / (count * per_square) - mean**2, count)

        counts = (spans[self.count] / self.whole).clip(1.0, None)
        squares = (spans[self.squares].clip(0.0, None) / per_square).per(counts)
        # counts enter twice, as independent extremes: wider than need be, never narrower
        population = squares - (spans[self.total] / steps).per(counts).square()
        low = np.where(known, self._finish(population.low, counts.high), 0.0)
        high = self._finish(population.high, np.maximum(counts.low, 2.0))
        ceiling = math.sqrt(self._most) if self.kind.startswith("stddev") else self._most
        high = np.where((counts.low < 2) | ~known, ceiling, high)
        slack = 1e-9 * value
        return Estimate(
            make_doubles(value, known),
            make_doubles(np.maximum(np.minimum(low, value) - slack, 0.0)),
            make_doubles(np.maximum(high, value) + slack),
        )

    def _expect_error(self, rows: int) -> float:
        reach = _reach(self)
        off, variance = _OFF_CENTRE * reach, _EVEN_VARIANCE * reach**2
        squares, total, count = self.moments
        weights = [
            (squares, float(squares.steps) / self.whole, 1.0),
            (total, float(total.steps) / self.whole, 2 * off),
            (count, 1.0, off**2 - variance),
        ]
        error = add_errors(w * _per_row(m.statistic, steps, self.whole, rows) for m, steps, w in weights)
        if self.kind.startswith("stddev"):
            return min(error / (2 * math.sqrt(variance)), reach / 2)
        return min(error, reach**2 / 4)


PAIR_KINDS = kinds_of_form("pair")
_SLACK = 1e-9
"""Relative widening of the ends, far above what rounding adds up to."""


@dataclass(frozen=True)
class Axis:
    """One column: grid steps per unit, centre and bounds in units, and its moments (``squares`` if needed)."""

    steps: Fraction
    centre: Fraction
    bounds: tuple[Fraction, Fraction]
    total: Statistic
    squares: Statistic | None = None

    @property
    def reach(self) -> float:
        return float(self.bounds[1] - self.bounds[0])


@dataclass(frozen=True)
class Pair(Output):
    """``kind`` of :data:`PAIR_KINDS`, of ``y`` and ``x`` (a regression of y on x); all moments in ``whole`` parts of a row."""

    name: str
    kind: str
    count: Statistic
    y: Axis
    x: Axis
    product: Statistic
    whole: int = 1

    def __post_init__(self) -> None:
        if self.kind not in PAIR_KINDS:
            raise ValueError(f"kind must be one of {', '.join(PAIR_KINDS)}")

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        own = (self.count, self.y.total, self.x.total, self.product, self.y.squares, self.x.squares)
        return tuple(s for s in own if s is not None)

    @property
    def moments(self) -> tuple[Moment, ...]:
        axes, whole = (self.y, self.x), self.whole
        totals = (_total_about(a.total, a.centre, a.steps * whole) for a in axes)
        squares = ((a.squares, a.steps**2 * whole) for a in axes)
        return (
            Moment("a sum of products with", self.product, self.y.steps * self.x.steps * whole),
            *totals,
            *(Moment("a sum of squares with", s, steps) for s, steps in squares if s is not None),
            Moment("and a count with", self.count, Fraction(whole)),
        )

    def show(self, noisy: Noisy, confidence: float) -> Estimate:
        points = {s: _to_floats(noisy[s]) / self.whole for s in self.statistics}
        exact = _PairFormulas(self, {s: FloatIntervals(v, v) for s, v in points.items()}, exact=True)
        # of less than half a row there is no covariance, and of less than two rows nothing else
        enough = points[self.count] >= (0.5 if self.kind == "covar_pop" else 1.5)
        found, known = exact.evaluate()
        value, known = found.low, known & enough
        spans = {s: span / self.whole for s, span in self._spans(noisy, confidence).items()}
        ends, bounded = _PairFormulas(self, spans, exact=False).evaluate()
        slack = _SLACK * np.maximum(np.abs(value), np.maximum(np.abs(ends.low), np.abs(ends.high)))
        ends = FloatIntervals(np.minimum(ends.low - slack, value), np.maximum(ends.high + slack, value))
        if self.kind in ("corr", "regr_r2"):
            ends = ends.clip(-1.0 if self.kind == "corr" else 0.0, 1.0)
        shown = (make_doubles(end, bounded & known) for end in (ends.low, ends.high))
        return Estimate(make_doubles(value, known), *shown)

    def _expect_error(self, rows: int) -> float:
        """Return the error for two independent columns, whose covariance and derivatives by variances are 0."""
        y, x = self.y, self.x
        off = {axis: _OFF_CENTRE * axis.reach for axis in (y, x)}
        product = _per_row(self.product, float(y.steps * x.steps), self.whole, rows)
        count = _per_row(self.count, 1, self.whole, rows)
        totals = {axis: _per_row(axis.total, float(axis.steps), self.whole, rows) for axis in (y, x)}
        covariance = add_errors([product, off[x] * totals[y], off[y] * totals[x], off[y] * off[x] * count])
        if self.kind.startswith("covar"):
            return min(covariance, y.reach * x.reach / 4)
        if self.kind in ("corr", "regr_r2"):
            r = covariance / (_EVEN_VARIANCE * y.reach * x.reach or 1.0)
            return min(r, 1.0)  # near one half its square moves as much, and less below
        slope = covariance / (_EVEN_VARIANCE * x.reach**2 or 1.0)
        if self.kind == "regr_slope":
            return slope
        mean = add_errors([totals[y], off[y] * count])
        return add_errors([mean, (abs(float(x.centre)) + off[x]) * slope])


@dataclass(frozen=True)
class _PairFormulas:
    """The formulas of two columns over intervals of their moments; ``exact``: over points, whose ends are equal."""

    pair: Pair
    spans: Mapping[Statistic, FloatIntervals]
    exact: bool

    @property
    def _count(self) -> FloatIntervals:
        return self.spans[self.pair.count].clip(1.0, None)

    def _mean(self, axis: Axis) -> FloatIntervals:
        """Return the mean about the centre."""
        return (self.spans[axis.total] / float(axis.steps)).per(self._count).clip(-axis.reach, axis.reach)

    def _covariance(self) -> FloatIntervals:
        y, x = self.pair.y, self.pair.x
        products = (self.spans[self.pair.product] / float(y.steps * x.steps)).per(self._count)
        most = y.reach * x.reach / 4
        return (products - self._mean(y) * self._mean(x)).clip(-most, most)

    def _sample_covariance(self) -> FloatIntervals:
        covariance, count = self._covariance(), self._count
        most = self.pair.y.reach * self.pair.x.reach / 2
        if self.exact:
            scaled = covariance.low * count.low / np.maximum(count.low - 1, 1.0)
            return FloatIntervals(scaled, scaled).clip(-most, most)
        growth = FloatIntervals(*(n / np.maximum(n - 1, 1.0) for n in (count.high, count.low)))
        ends = (covariance * growth).clip(-most, most)
        few = count.low < 2
        return FloatIntervals(np.where(few, -most, ends.low), np.where(few, most, ends.high))

    def _variance(self, axis: Axis) -> FloatIntervals:
        assert axis.squares is not None, "a moment is missing"
        squares = (self.spans[axis.squares].clip(0.0, None) / float(axis.steps**2)).per(self._count)
        return (squares - self._mean(axis).square()).clip(0.0, axis.reach**2 / 4)

    def _divide(self, above: FloatIntervals, below: FloatIntervals, known: Booleans) -> FloatIntervals:
        """Return the quotient; only divisors ``known`` to be positive count."""
        if self.exact:
            quotient = above.low / np.where(known, below.low, 1.0)
            return FloatIntervals(quotient, quotient)
        return above * below.invert(known)

    def evaluate(self) -> tuple[FloatIntervals, Booleans]:
        """Return the value of ``kind``, and whether it is known or its interval has ends."""
        pair, covariance = self.pair, self._covariance()
        always = np.ones(len(covariance.low), dtype=np.bool_)
        if pair.kind.startswith("covar"):
            return covariance if pair.kind == "covar_pop" else self._sample_covariance(), always
        variance = self._variance(pair.x)
        if pair.kind in ("corr", "regr_r2"):
            other = self._variance(pair.y)
            spread = FloatIntervals(np.sqrt(variance.low * other.low), np.sqrt(variance.high * other.high))
            known = spread.low > 0
            r = self._divide(covariance, spread, known).clip(-1.0, 1.0)
            if not self.exact:
                r = FloatIntervals(np.where(known, r.low, -1.0), np.where(known, r.high, 1.0))
            return (r.square() if pair.kind == "regr_r2" else r), known if self.exact else always
        known = variance.low > 0
        slope = self._divide(covariance, variance, known)
        if pair.kind == "regr_slope":
            return slope, known
        y, x = (self._mean(axis) + float(axis.centre) for axis in (pair.y, pair.x))
        return y - slope * x, known


TYPICAL_ROWS = MEAN_ROWS[0]
"""The assumed rows of a group for errors that depend on their number, if only one can be shown."""
_OFF_CENTRE = 1 / 4
"""The assumed distance of the rows' mean from the middle of the bounds, as a fraction of the bounds' distance."""
_EVEN_VARIANCE = 1 / 12
"""The variance of values spread evenly between the bounds, as a fraction of the squared distance."""


def read_errors(
    release: Release, name: str, noise: Noise, confidence: float | None
) -> Iterator[ExpectedError]:
    """Yield the expected absolute error behind a release's intervals: their mean half width, scaled for the kind of noise."""
    low, high = (release.table.column(name + end) for end in ("__low", "__high"))
    width = pc.mean(pc.subtract(high, low)).as_py()
    if width is not None and confidence is not None:
        yield ExpectedError(
            name, float(width) / 2 * noise.mean_error / max(noise.half_width(confidence), 1.0)
        )


def add_errors(errors: Iterable[float]) -> float:
    """Return the error of a sum of independent terms with these errors."""
    return math.sqrt(sum(error * error for error in errors))


def _reach(output: Mean | Variance) -> float:
    return float(output.bounds[1] - output.bounds[0])


def _per_row(statistic: Statistic, steps: float, whole: int, rows: int) -> float:
    """Return the error of a moment divided by the number of rows, in units."""
    return statistic.noise.mean_error / (steps * whole * rows)
