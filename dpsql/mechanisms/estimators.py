"""What an aggregate shows of its noisy integers: a value and an interval, all of it post-processing.

Intervals cover the noise, not the bias that bounds may cause: the exact (clamped) aggregate lies inside
with at least the stated confidence; where rows are weighed, that is the aggregate of the weighted rows. Where several
noisy numbers meet, each gets an equal part of the doubt (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.additive_noise import Statistic
from dpsql.numerics.integers import Integers

Floats = NDArray[np.float64]
Noisy = Mapping[Statistic, Integers]
"""The released integers of every statistic, one per group."""

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_EXACT = 1 << 53
_DIGITS = 10**38 - 1


class Shown(NamedTuple):
    """An output's value, and the ends of its interval."""

    value: pa.Array
    low: pa.Array
    high: pa.Array


class Output(Protocol):
    """One aggregate of the block: which statistics it needs, and what it makes of them."""

    @property
    def name(self) -> str: ...

    @property
    def statistics(self) -> tuple[Statistic, ...]: ...

    def show(self, noisy: Noisy, confidence: float) -> Shown: ...

    def sentences(self, confidence: float) -> tuple[str, ...]:
        """For EXPLAIN: one sentence per statistic; public quantities only."""
        ...


def _over(values: Integers, steps: Fraction) -> Floats:
    """``values / steps``, correctly rounded."""
    n, d = steps.numerator, steps.denominator
    small = values.dtype == np.int64 and (not len(values) or int(np.abs(values).max()) <= _EXACT)
    if small and d == 1 and n <= _EXACT:
        return values / float(n)
    return np.array([int(v) * d / n for v in values], dtype=np.float64)


def _interval(values: Integers, width: float, steps: Fraction) -> tuple[Floats, Floats]:
    """``(values - width, values + width) / steps``, rounded outward where a float can't hold the integers."""
    whole = int(width)
    if values.dtype == object or (len(values) and int(np.abs(values).max()) >= _EXACT) or whole >= _EXACT:
        wide = values.astype(object)
        low, high = _over(wide - whole, steps), _over(wide + whole, steps)
        return np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    return _over(values - whole, steps), _over(values + whole, steps)


def _counts(values: Integers) -> pa.Array:
    if values.dtype == object:
        values = np.array([min(max(int(v), _INT64_MIN), _INT64_MAX) for v in values], dtype=np.int64)
    return _column(values, pa.int64())


def _whole(values: Integers) -> pa.Array:
    """int64 where every value fits, else decimal128(38, 0)."""
    if values.dtype == np.int64:
        return _column(values, pa.int64())
    if all(_INT64_MIN <= int(v) <= _INT64_MAX for v in values):
        return pa.array([int(v) for v in values], type=pa.int64())
    clamped = [str(min(max(int(v), -_DIGITS), _DIGITS)) for v in values]
    return pa.array(clamped, type=pa.string()).cast(pa.decimal128(38, 0))


def doubles(values: Floats, present: NDArray[np.bool_] | None = None) -> pa.Array:
    """A column of floats, NULL where they are not ``present``."""
    return _column(values.astype(np.float64), pa.float64(), present)


def longs(values: Integers, present: NDArray[np.bool_] | None = None) -> pa.Array:
    """A column of 64-bit integers, NULL where they are not ``present``."""
    return _column(values.astype(np.int64), pa.int64(), present)


def _column(values: NDArray[Any], kind: pa.DataType, present: NDArray[np.bool_] | None = None) -> pa.Array:
    """An Arrow column over numpy's memory. ``pa.array`` would import pandas first, for half a second."""
    held = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [held, pa.py_buffer(np.ascontiguousarray(values))])


def part_of(confidence: float, parts: int) -> float:
    return 1 - (1 - confidence) / parts


def named(
    name: str, what: str, statistic: Statistic, confidence: float, steps: Fraction = Fraction(1)
) -> str:
    return f"{name}: {what} {statistic.noise.sentence(confidence, steps)}."


@dataclass(frozen=True)
class Count:
    """An integer count. Negative noisy counts stay negative."""

    name: str
    statistic: Statistic

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        return (self.statistic,)

    def show(self, noisy: Noisy, confidence: float) -> Shown:
        values = noisy[self.statistic]
        low, high = _interval(values, self.statistic.noise.half_width(confidence), Fraction(1))
        return Shown(_counts(values), doubles(low), doubles(high))

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return (named(self.name, "the count with", self.statistic, confidence),)


@dataclass(frozen=True)
class Sum:
    """A sum on a grid of ``steps`` per unit, moved by a public ``offset`` (units); whole if steps is 1."""

    name: str
    statistic: Statistic
    steps: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        return (self.statistic,)

    @property
    def whole(self) -> bool:
        """Whether its value is the noisy integer itself."""
        return self.steps == 1 and not self.offset

    def show(self, noisy: Noisy, confidence: float) -> Shown:
        values, steps = noisy[self.statistic], self.steps
        if self.offset:
            moved = self.offset * steps
            steps = steps * moved.denominator
            values = values.astype(object) * moved.denominator + moved.numerator
        width = self.statistic.noise.half_width(confidence) * float(steps / self.steps)
        low, high = _interval(values, width, steps)
        value = _whole(values) if steps == 1 else doubles(_over(values, steps))
        return Shown(value, doubles(low), doubles(high))

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return (named(self.name, "the sum with", self.statistic, confidence, self.steps),)


def span_of_noise(noisy: Noisy, statistic: Statistic, confidence: float) -> tuple[Floats, Floats]:
    return _interval(noisy[statistic], statistic.noise.half_width(confidence), Fraction(1))


def floats(values: Integers) -> Floats:
    return values.astype(np.float64)


@dataclass(frozen=True)
class Mean:
    """A noisy total over a noisy count: ``centre + total / (max(count, 1) * steps)``, held to the bounds.

    ``total`` is the sum of what is averaged, about ``centre``, in grid steps. What is averaged may be rows,
    or one mean per privacy unit: then ``count`` counts units. Where rows are weighed, both are in parts of a row,
    ``whole`` to each. Over a noisy count of 0 or less (of less than half a row) there is no mean: NULL, as of nothing,
    with the bounds for an interval.
    """

    name: str
    total: Statistic
    count: Statistic
    steps: Fraction
    centre: Fraction
    bounds: tuple[Fraction, Fraction]
    whole: int = 1

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        return self.total, self.count

    def _held(self, values: Floats) -> Floats:
        return np.clip(values, float(self.bounds[0]), float(self.bounds[1]))

    def show(self, noisy: Noisy, confidence: float) -> Shown:
        centre, steps, part = float(self.centre), float(self.steps), part_of(confidence, 2)
        count, one = floats(noisy[self.count]), float(self.whole)
        known = 2 * count >= one
        value = centre + floats(noisy[self.total]) / (np.maximum(count, one) * steps)
        least, most = (np.maximum(end, one) for end in span_of_noise(noisy, self.count, part))
        low, high = span_of_noise(noisy, self.total, part)
        below = centre + low / np.where(low < 0, least, most) / steps
        above = centre + high / np.where(high < 0, most, least) / steps
        value = self._held(value)
        # the ends are rounded more than once; a relative 1e-12 is far more than that adds up to
        slack = 1e-12 * (np.abs(value) + abs(centre))
        below, above = np.minimum(below - slack, value), np.maximum(above + slack, value)
        below, above = np.where(known, below, -np.inf), np.where(known, above, np.inf)
        return Shown(doubles(value, known), doubles(self._held(below)), doubles(self._held(above)))

    def sentences(self, confidence: float) -> tuple[str, ...]:
        part = part_of(confidence, 2)
        return (
            named(
                self.name,
                f"a total about {float(self.centre):g} with",
                self.total,
                part,
                self.steps * self.whole,
            ),
            named(self.name, "divided by a count with", self.count, part, Fraction(self.whole)),
        )


KINDS = ("var_pop", "var_samp", "stddev_pop", "stddev_samp")


@dataclass(frozen=True)
class Variance:
    """Variance or standard deviation from noisy moments about ``centre``, never negative and never NaN.

    Where the noisy count is of less than half a row (of a sample: of less than one and a half), there is none: NULL, as
    :class:`Mean` has it, with all that the bounds allow for an interval.

    ``squares`` is the sum of squared deviations from ``centre``, in ``square_steps`` per squared unit
    (``steps**2`` unless given); ``total``, ``count`` and ``whole`` are as in :class:`Mean`. ``kind`` is one of KINDS.
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
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}")

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        return self.squares, self.total, self.count

    @property
    def _fewest(self) -> float:
        """The noisy count of rows from which on there is a value."""
        return 1.5 if self.kind.endswith("samp") else 0.5

    @property
    def _per_square(self) -> Fraction:
        return (self.square_steps or self.steps**2) * self.whole

    @property
    def _per_unit(self) -> Fraction:
        return self.steps * self.whole

    def _finished(self, population: Floats, count: Floats) -> Floats:
        """From the population variance to what ``kind`` asks for, held to what the bounds allow."""
        reach = float(self.bounds[1] - self.bounds[0]) ** 2
        variance = np.clip(population, 0.0, reach / 4)
        if self.kind.endswith("samp"):
            variance = np.minimum(variance * count / np.maximum(count - 1, 1.0), reach / 2)
        return np.sqrt(variance) if self.kind.startswith("stddev") else variance

    def show(self, noisy: Noisy, confidence: float) -> Shown:
        part, steps, per_square = part_of(confidence, 3), float(self._per_unit), float(self._per_square)
        rows = floats(noisy[self.count]) / self.whole
        known = rows >= self._fewest
        count = np.maximum(rows, 1.0)
        mean = floats(noisy[self.total]) / (count * steps)
        value = self._finished(floats(noisy[self.squares]) / (count * per_square) - mean**2, count)

        least, most = (np.maximum(end / self.whole, 1.0) for end in span_of_noise(noisy, self.count, part))
        s_low, s_high = (
            np.maximum(end, 0.0) / per_square for end in span_of_noise(noisy, self.squares, part)
        )
        t_low, t_high = (end / steps for end in span_of_noise(noisy, self.total, part))
        farthest = np.maximum(np.abs(t_low), np.abs(t_high)) / least
        nearest = (
            np.where((t_low <= 0) & (t_high >= 0), 0.0, np.minimum(np.abs(t_low), np.abs(t_high))) / most
        )
        # counts enter twice, as independent extremes: wider than need be, never narrower
        low = self._finished(s_low / most - farthest**2, most)
        reach = float(self.bounds[1] - self.bounds[0]) ** 2
        high = self._finished(s_high / least - nearest**2, np.maximum(least, 2.0))
        ceiling = reach / 2 if self.kind.endswith("samp") else reach / 4
        ceiling = math.sqrt(ceiling) if self.kind.startswith("stddev") else ceiling
        high = np.where((least < 2) | ~known, ceiling, high)
        low = np.where(known, low, 0.0)
        slack = 1e-9 * value
        return Shown(
            doubles(value, known),
            doubles(np.maximum(np.minimum(low, value) - slack, 0.0)),
            doubles(np.maximum(high, value) + slack),
        )

    def sentences(self, confidence: float) -> tuple[str, ...]:
        part = part_of(confidence, 3)
        return (
            named(self.name, "a sum of squares with", self.squares, part, self._per_square),
            named(self.name, f"a total about {float(self.centre):g} with", self.total, part, self._per_unit),
            named(self.name, "and a count with", self.count, part, Fraction(self.whole)),
        )


def exact_integers(column: pa.ChunkedArray) -> NDArray[Any]:
    """An exact column as integers: int64 where all fit, else Python ints; NULL is 0.

    Raises TypeError for a column that is neither whole numbers nor decimals without places: the plan is
    wrong.
    """
    kind = column.type
    whole = pa.types.is_integer(kind) or pa.types.is_null(kind)
    if not whole and not (pa.types.is_decimal(kind) and kind.scale == 0):
        raise TypeError("an exact statistic must be an integer column")
    try:
        if not column.null_count:
            chunks = [np.from_dlpack(chunk) for chunk in column.cast(pa.int64()).chunks if len(chunk)]
            return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.int64)
    except pa.ArrowInvalid:
        pass
    values: list[Any] = column.to_pylist()
    whole_values = [int(v) if v is not None else 0 for v in values]
    if all(_INT64_MIN <= v <= _INT64_MAX for v in whole_values):
        return np.array(whole_values, dtype=np.int64)
    out = np.empty(len(values), dtype=object)
    out[:] = whole_values
    return out
