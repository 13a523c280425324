"""Covariance, correlation and regression of two columns, from noisy moments about public centres.

Relation: ADD_REMOVE. Sensitivity: that of each moment (a count, sums of ``y`` and ``x`` about their centres, of their
product and of their squares), as its noise declares. Guarantee: what the events of the noises compose to; what is
computed from the noisy moments, intervals too, is post-processing. The caller must ensure that every moment runs over
the same rows, those where both columns are there, with both clamped to their bounds and each row weighing the same in all.

Intervals are interval arithmetic over those of the moments, each of which gets an equal part of the doubt: wider than
need be, never narrower. A correlation or a slope whose spread may be nothing is not known at all, and says so: the
whole of [-1, 1], or NULL. (The doubt is over all releases: those that show an interval are not chosen at random.)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.additive_noise import Statistic
from dpsql.mechanisms.estimators import Floats, Noisy, Shown, doubles, floats, named, part_of, span_of_noise

KINDS = ("covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2")
_SLACK = 1e-9
"""Relative widening of the ends, far above what rounding adds up to."""

Ends = tuple[Floats, Floats]
Known = NDArray[np.bool_]


@dataclass(frozen=True)
class Axis:
    """One column: grid steps to a unit, the centre and the bounds in units, its moments (``squares`` where needed)."""

    steps: Fraction
    centre: Fraction
    bounds: tuple[Fraction, Fraction]
    total: Statistic
    squares: Statistic | None = None

    @property
    def reach(self) -> float:
        return float(self.bounds[1] - self.bounds[0])


def _times(a: Ends, b: Ends) -> Ends:
    products = [p * q for p in a for q in b]
    return np.minimum.reduce(products), np.maximum.reduce(products)


def _minus(a: Ends, b: Ends) -> Ends:
    return a[0] - b[1], a[1] - b[0]


def _over(a: Ends, count: Ends) -> Ends:
    """A quotient by a count, which is at least 1."""
    least, most = count
    return a[0] / np.where(a[0] < 0, least, most), a[1] / np.where(a[1] < 0, most, least)


def _square(a: Ends) -> Ends:
    nearest = np.where((a[0] <= 0) & (a[1] >= 0), 0.0, np.minimum(np.abs(a[0]), np.abs(a[1])))
    return nearest**2, np.maximum(np.abs(a[0]), np.abs(a[1])) ** 2


def _held(a: Ends, low: float, high: float) -> Ends:
    return np.clip(a[0], low, high), np.clip(a[1], low, high)


@dataclass(frozen=True)
class Pair:
    """``kind`` of KINDS, of ``y`` and ``x`` in SQL's order: a regression is of y on x.

    All moments are in parts of a row, ``whole`` to each.
    """

    name: str
    kind: str
    count: Statistic
    y: Axis
    x: Axis
    product: Statistic
    whole: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}")

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        own = (self.count, self.y.total, self.x.total, self.product, self.y.squares, self.x.squares)
        return tuple(s for s in own if s is not None)

    def show(self, noisy: Noisy, confidence: float) -> Shown:
        exact = {s: (floats(noisy[s]) / self.whole,) * 2 for s in self.statistics}
        value, known = self._value(exact)
        part = part_of(confidence, len(self.statistics))
        spans = {s: span_of_noise(noisy, s, part) for s in self.statistics}
        low, high, bounded = self._ends(
            {s: (least / self.whole, most / self.whole) for s, (least, most) in spans.items()}
        )
        slack = _SLACK * np.maximum(np.abs(value), np.maximum(np.abs(low), np.abs(high)))
        low, high = np.minimum(low - slack, value), np.maximum(high + slack, value)
        if self.kind in ("corr", "regr_r2"):
            low, high = _held((low, high), -1.0 if self.kind == "corr" else 0.0, 1.0)
        bounded = bounded & known
        return Shown(doubles(value, known), doubles(low, bounded), doubles(high, bounded))

    # -- moments --------------------------------------------------------------------------------------------------

    def _count(self, spans: dict[Statistic, Ends]) -> Ends:
        low, high = spans[self.count]
        return np.maximum(low, 1.0), np.maximum(high, 1.0)

    def _mean(self, axis: Axis, spans: dict[Statistic, Ends]) -> Ends:
        """The mean about the centre."""
        low, high = spans[axis.total]
        steps, most = float(axis.steps), axis.reach
        return _held(_over((low / steps, high / steps), self._count(spans)), -most, most)

    def _covariance(self, spans: dict[Statistic, Ends]) -> Ends:
        per = float(self.y.steps * self.x.steps)
        low, high = spans[self.product]
        products = _over((low / per, high / per), self._count(spans))
        most = self.y.reach * self.x.reach / 4
        return _held(
            _minus(products, _times(self._mean(self.y, spans), self._mean(self.x, spans))), -most, most
        )

    def _variance(self, axis: Axis, spans: dict[Statistic, Ends]) -> Ends:
        assert axis.squares is not None, "a moment is missing"
        per = float(axis.steps**2)
        low, high = spans[axis.squares]
        squares = _over((np.maximum(low, 0.0) / per, np.maximum(high, 0.0) / per), self._count(spans))
        return _held(_minus(squares, _square(self._mean(axis, spans))), 0.0, axis.reach**2 / 4)

    # -- what is made of them -------------------------------------------------------------------------------------

    def _value(self, exact: dict[Statistic, Ends]) -> tuple[Floats, Known]:
        """The value, and where there is one."""
        cov = self._covariance(exact)[0]
        # of less than half a row there is no covariance, and of less than two rows nothing else
        enough = exact[self.count][0] >= (0.5 if self.kind == "covar_pop" else 1.5)
        known = enough
        if self.kind == "covar_pop":
            return cov, known
        if self.kind == "covar_samp":
            n = self._count(exact)[0]
            most = self.y.reach * self.x.reach / 2
            return np.clip(cov * n / np.maximum(n - 1, 1.0), -most, most), known
        var_x = self._variance(self.x, exact)[0]
        if self.kind in ("corr", "regr_r2"):
            spread = np.sqrt(var_x * self._variance(self.y, exact)[0])
            known = enough & (spread > 0)
            r = np.clip(cov / np.where(spread > 0, spread, 1.0), -1.0, 1.0)
            return (r**2 if self.kind == "regr_r2" else r), known
        known = enough & (var_x > 0)
        slope = cov / np.where(var_x > 0, var_x, 1.0)
        if self.kind == "regr_slope":
            return slope, known
        return self._at_zero((slope, slope), exact)[0], known

    def _ends(self, spans: dict[Statistic, Ends]) -> tuple[Floats, Floats, Known]:
        """The ends of the interval, and where it has ends."""
        cov = self._covariance(spans)
        bounded = np.ones(len(cov[0]), dtype=np.bool_)
        if self.kind == "covar_pop":
            return *cov, bounded
        if self.kind == "covar_samp":
            least, most = self._count(spans)
            limit = self.y.reach * self.x.reach / 2
            growth = (most / np.maximum(most - 1, 1.0), least / np.maximum(least - 1, 1.0))
            low, high = _held(_times(cov, growth), -limit, limit)
            return np.where(least < 2, -limit, low), np.where(least < 2, limit, high), bounded
        var_x = self._variance(self.x, spans)
        if self.kind in ("corr", "regr_r2"):
            var_y = self._variance(self.y, spans)
            least, most = (np.sqrt(a * b) for a, b in zip(var_x, var_y, strict=True))
            known = least > 0
            inverse = (1 / np.where(known, most, 1.0), 1 / np.where(known, least, 1.0))
            low, high = _held(_times(cov, inverse), -1.0, 1.0)
            low, high = np.where(known, low, -1.0), np.where(known, high, 1.0)
            return (*_square((low, high)), bounded) if self.kind == "regr_r2" else (low, high, bounded)
        bounded = var_x[0] > 0
        slope = _times(cov, (1 / np.where(bounded, var_x[1], 1.0), 1 / np.where(bounded, var_x[0], 1.0)))
        return (*slope, bounded) if self.kind == "regr_slope" else (*self._at_zero(slope, spans), bounded)

    def _at_zero(self, slope: Ends, spans: dict[Statistic, Ends]) -> Ends:
        """Where the line meets x = 0."""
        y, x = (
            (mean[0] + float(axis.centre), mean[1] + float(axis.centre))
            for axis, mean in ((self.y, self._mean(self.y, spans)), (self.x, self._mean(self.x, spans)))
        )
        return _minus(y, _times(slope, x))

    def sentences(self, confidence: float) -> tuple[str, ...]:
        part = part_of(confidence, len(self.statistics))

        def said(what: str, statistic: Statistic, steps: Fraction = Fraction(1)) -> str:
            return named(self.name, what, statistic, part, steps * self.whole)

        return (
            said("a sum of products with", self.product, self.y.steps * self.x.steps),
            *(said(f"a total about {float(a.centre):g} with", a.total, a.steps) for a in (self.y, self.x)),
            *(
                said("a sum of squares with", a.squares, a.steps**2)
                for a in (self.y, self.x)
                if a.squares is not None
            ),
            said("and a count with", self.count),
        )
