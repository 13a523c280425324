"""Exact order statistics, read with few passes and little memory; public grids; the private choice of one grid point.

Propose-test-release needs a few hundred values around given quantiles, out of any number of rows. Up to :data:`MAX_FETCHED`
rows of a whole column are fetched, and numpy sorts those near the wanted ranks. If there are more, or groups, one window query
returns only the wanted ranks.

Values are finite doubles: NULL, NaN and infinities are missing. No text depends on the data.

*Graded grids.* Declared bounds are often far wider than the values: of amounts up to a million most are near 20, where an
even grid of some ten thousand points has one point. So the part of the grid near 0 has points eight times as close, the
part of that near 0 again, and so on: a value is off by at most half an even step, and by at most a part ``2**-8`` of itself.

The exponential mechanism's probability of a point is also proportional to its public weight (McSherry and Talwar's base
measure), which leaves the guarantee unchanged. With equal weights, a gap between two values of the data would weigh more the
nearer it is to 0, and medians near 0 would be drawn to it. So a point of three levels weighs as much as its step is wide: the
law of the answer is that of the even grid, only finer. Beyond the third level points weigh the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Group, list_groups
from dpsql.mechanisms.base import Read, Reader
from dpsql.mechanisms.fast.column_counts import MANTISSA, ROUNDING
from dpsql.mechanisms.queries import ROW_COUNT, As, Select, Subquery
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import choose_exponential, flip_coins
from dpsql.numerics.exact_numbers import Integers, floor_log2

FINER = 8
"""The steps of one level to a step of the level before it."""
REACH = 128
"""The steps of the previous level at which a finer level ends."""
_EACH = REACH * FINER - REACH
"""The points of a level on one side, without those that the next one has in their place."""
DEPTH = 8
"""The finer levels unless values are known to be coarser."""
_WEIGHED = 3
"""The finer levels whose points weigh as much as they are wide; those of the others weigh as much as the last of these."""


@dataclass(frozen=True)
class PointWeights:
    """Public weights of grid points, positive integers: ``weights[i]`` of each from ``starts[i]`` on."""

    starts: tuple[int, ...]
    weights: tuple[int, ...]
    end: int

    def __post_init__(self) -> None:
        ends = (*self.starts[1:], self.end)
        if min(self.weights) < 1 or any(a >= b for a, b in zip(self.starts, ends, strict=True)):
            raise ValueError("weights are whole numbers above 0, of runs of points in order")

    @cached_property
    def _before(self) -> NDArray[np.int64]:
        sizes = np.diff(np.array(self.starts, dtype=np.int64)) * np.array(self.weights[:-1], dtype=np.int64)
        return np.append(np.int64(0), np.cumsum(sizes))

    @property
    def total(self) -> int:
        return int(self.add_before(np.array([self.end]))[0])

    def add_before(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the weight of all points before each of these."""
        piece = np.searchsorted(np.array(self.starts), steps, side="right") - 1
        weights, starts = np.array(self.weights, dtype=np.int64), np.array(self.starts, dtype=np.int64)
        return np.asarray(self._before[piece] + (steps - starts[piece]) * weights[piece])

    def find_point(self, start: int, weight: int) -> int:
        """Return the point at which the weight from ``start`` on exceeds ``weight``."""
        at = int(self.add_before(np.array([start]))[0]) + weight
        piece = int(np.searchsorted(self._before, at, side="right")) - 1
        return self.starts[piece] + (at - int(self._before[piece])) // self.weights[piece]


@dataclass(frozen=True)
class GradedGrid:
    """Numbered points of a grid, 0 at zero; ``low``, ``high``: the bounds in even steps; ``levels``: of finer points."""

    steps: Fraction
    low: int
    high: int
    levels: int

    def __post_init__(self) -> None:
        if self.levels < 1 or self.low > self.high or self.steps <= 0:
            raise ValueError("a graded grid needs bounds, and a finer level")

    @classmethod
    def refine(cls, steps: Fraction, low: int, high: int, finest: Fraction) -> GradedGrid | None:
        """Return an even grid with finer points near 0; None if it is as fine as the values, or far from 0.

        ``finest`` is the least distance of two values; 0 if they have any number of digits.
        """
        far = low * high > 0 and min(abs(low), abs(high)) >= REACH
        levels = DEPTH
        while levels and 1 / (steps * FINER ** (levels - 1)) <= finest:
            levels -= 1
        return None if far or not levels else cls(steps, low, high, levels)

    @property
    def first(self) -> int:
        return self.find_step(self.low / self.steps)

    @property
    def last(self) -> int:
        return self.find_step(self.high / self.steps)

    @cached_property
    def weights(self) -> PointWeights:
        """The weights of the points: the width of their steps, but at least that of the third level, which is 1."""
        finest = min(self.levels, _WEIGHED)
        each = [FINER ** (finest - min(level, finest)) for level in range(self.levels + 1)]
        ends = [REACH + self._before(level) for level in range(self.levels)]  # from here on, level by level
        runs = {self.first - ends[0]: each[0]}
        runs |= {1 - end: weight for end, weight in zip(ends, each[1:], strict=True)}
        runs |= dict(zip(reversed(ends), reversed(each[:-1]), strict=True))
        at_first = max(start for start in runs if start <= self.first)
        within = {start: weight for start, weight in runs.items() if self.first < start <= self.last}
        runs = {self.first: runs[at_first], **within}
        least = min(runs.values())
        return PointWeights(tuple(runs), tuple(w // least for w in runs.values()), self.last + 1)

    def _scale(self, level: int) -> Fraction:
        """Return the steps of a level per unit; level 0 is even."""
        return self.steps * Fraction(FINER) ** level

    def _end(self, level: int) -> Fraction:
        return REACH / self._scale(level - 1)

    def _before(self, level: int) -> int:
        """Return the number of points, in addition to its own steps, before a point of a level."""
        return (self.levels - level) * _EACH

    def find_step(self, value: Fraction) -> int:
        """Return the number of the point that a value is rounded to, in exact arithmetic."""
        size = abs(value)
        level = next((level for level in range(self.levels, 0, -1) if size < self._end(level)), 0)
        step = math.floor(size * self._scale(level) + Fraction(1, 2)) + self._before(level)
        return step if value > 0 else -step

    def value(self, step: int) -> Fraction:
        size, level = abs(step), self.levels
        while level and size - self._before(level) > REACH * FINER:
            level -= 1
        found = (size - self._before(level)) / self._scale(level)
        return found if step > 0 else -found

    def number(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the numbers of points, as :meth:`write_step`'s SQL computes them, of the doubles whose even step has 31 bits."""
        least, most = _find_extremes(values)
        return self._number(self._leave_out_far(values, least, most), signed=not least >= 0)

    def number_clamped(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the numbers of points, between the first and the last, of the same doubles."""
        low, high = float(self.low / self.steps), float(self.high / self.steps)
        least, most = _find_extremes(values)
        if not (low <= least and most <= high):  # or NaN is among them
            values = np.clip(self._leave_out_far(values, least, most), low, high)
        return self._number(values, signed=not least >= 0)

    def _leave_out_far(self, values: NDArray[np.float64], least: float, most: float) -> NDArray[np.float64]:
        scale, far = float(self._scale(0)), 2.0**31
        if -far <= least * scale and most * scale < far - 0.5:
            return values
        with np.errstate(over="ignore"):
            steps = values * scale
        return values[(steps >= -far - 0.5) & (steps < far - 0.5)]

    def _number(self, values: NDArray[np.float64], signed: bool) -> NDArray[np.int64]:
        """Return the numbers of points; ``signed``: whether a value may be below 0."""
        scale = float(self._scale(0))
        size = np.abs(values) if signed else values
        # the addend is even, so that halves are rounded to even steps, and leaves them in the lowest bits
        steps = size * scale
        steps += ROUNDING + self._before(0)
        near = np.arange(0)
        for level in range(1, self.levels + 1):
            closer = np.flatnonzero(size < float(self._end(level)))
            near, size = closer if level == 1 else near[closer], size[closer]
            if not len(near):
                break
            steps[near] = size * float(self._scale(level)) + (ROUNDING + self._before(level))
        numbers = steps.view(np.int64)
        np.bitwise_and(numbers, MANTISSA, out=numbers)
        if signed:
            np.negative(numbers, out=numbers, where=values < 0)
        return numbers

    def write_step(self, v: str) -> str:
        """Write SQL for the number of the point that a double is rounded to; NULL if its even step exceeds 31 bits."""
        cases = []
        for level in range(self.levels + 1):
            step = f"CAST(TRY_CAST(ABS({v}) * {_write(self._scale(level))} AS INTEGER) AS BIGINT)"
            if before := self._before(level):
                step += f" + {before}"
            last = level == self.levels
            cases.append(
                f"ELSE {step}" if last else f"WHEN ABS({v}) >= {_write(self._end(level + 1))} THEN {step}"
            )
        return f"CASE {' '.join(cases)} END * SIGN({v})"

    def describe(self) -> str:
        """Describe the points for EXPLAIN."""
        return (
            f"The points are {float(1 / self.steps):g} apart, and closer near 0, with less weight there: a "
            f"value is off by at most 1/{2 * REACH} of itself, down to {float(REACH / self._scale(self.levels)):g}."
        )


def _find_extremes(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the least and the greatest; NaN if it is among them."""
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)


def _write(number: Fraction) -> str:
    return f"CAST('{float(number)!r}' AS DOUBLE)"


MAX_FETCHED = 1 << 25
"""The most rows that are fetched and sorted in memory (16 bytes each)."""

_LEAST = 1 << 22
_AT_ONCE = 1 << 20
_SAMPLE = 1 << 15
_SLACK = 6 * 181  # six standard deviations of a sampled rank, and more at the ends
_FINITE = "ABS(CAST(v AS DOUBLE)) < CAST('Infinity' AS DOUBLE)"


def quote_name(name: str) -> str:
    """Quote an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_names(names: Sequence[str]) -> tuple[str, ...]:
    """Quote SQL identifiers."""
    return tuple(map(quote_name, names))


def select_finite(query: str, keys: Sequence[str] = ()) -> Select:
    """Write a query's values ``v`` as finite doubles, with the ``keys``."""
    value = As("CAST(v AS DOUBLE)", "v")
    return Select((*quote_names(keys), value), Subquery(query, "given"), where=_FINITE)


def write_order_queries(
    query: str, keys: Sequence[str], centres: Sequence[Fraction], reach: int
) -> tuple[str, ...]:
    """Write the count and the fetch; with keys, the one query of the wanted ranks."""
    if keys:
        return (_write_ranks(query, keys, centres, reach),)
    values = select_finite(query)
    return Select(ROW_COUNT, Subquery(values, "found")).sql, values.sql


def read_cells(column: pa.ChunkedArray, other: object = None) -> list[Any]:
    """Read a column as Python values, ``other`` where Python has none: Arrow would raise, and reveal something about a row."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        values = []
        for scalar in column:
            try:
                values.append(scalar.as_py())
            except (OverflowError, ValueError):
                values.append(other)
        return values


def find_rank(n: int, probability: Fraction) -> int:
    """Return the rank of the quantile among n ascending values: ``max(1, ceil(p n))``, DuckDB's ``quantile_disc``.

    >>> [find_rank(n, Fraction(1, 2)) for n in (1, 2, 3, 4)]
    [1, 1, 2, 2]
    """
    return max(1, -(-probability.numerator * n // probability.denominator))


@dataclass(frozen=True)
class Ordered:
    """Order statistics of n finite doubles: ``windows`` of (first rank, ascending values), infinite outside ranks 1 to n."""

    n: int
    windows: tuple[tuple[int, NDArray[np.float64]], ...]
    ends: tuple[float, float] = (-math.inf, math.inf)

    @staticmethod
    def all(values: NDArray[np.float64]) -> Ordered:
        """Return all order statistics, from sorted values."""
        return Ordered(len(values), ((1, values),))

    def within(self, low: float, high: float) -> Ordered:
        """Return the order statistics of the values clamped to the domain [low, high]."""
        held = ((first, np.clip(values, low, high)) for first, values in self.windows)
        return Ordered(self.n, tuple(held), (low, high))

    def slice(self, first: int, last: int) -> NDArray[np.float64]:
        """Return the values of ranks first..last; LookupError if they were not read."""
        inside_first, inside_last = max(first, 1), min(last, self.n)
        middle = np.empty(0)
        if inside_first <= inside_last:
            for start, values in self.windows:
                if start <= inside_first and inside_last < start + len(values):
                    middle = values[inside_first - start : inside_last - start + 1]
                    break
            else:
                raise LookupError("these order statistics were not read")
        before = np.full(max(0, min(last, 0) - first + 1), self.ends[0])
        after = np.full(max(0, last - max(first, self.n + 1) + 1), self.ends[1])
        return np.concatenate([before, middle, after])

    def at(self, position: int) -> float:
        return float(self.slice(position, position)[0])


def read_order_statistics(
    read: Read,
    query: str,
    keys: Sequence[str],
    centres: Sequence[Fraction],
    reach: int,
    fetch: int = MAX_FETCHED,
) -> dict[Group, Ordered]:
    """Return one :class:`Ordered` per group that has a finite value, with the values within ``reach`` ranks of each quantile.

    Args:
        query: returns a numeric column ``v`` and the key columns; salts filled in.
        centres: quantiles in [0, 1]; rank ``max(1, ceil(p n))``.
        reach: ranks on either side of each centre.
        fetch: the most rows in memory; fewer if the engine has little.
    """
    read = Reader.over(read)
    if keys:
        return _ranked_groups(read(_write_ranks(query, keys, centres, reach)), keys)
    counted, values = write_order_queries(query, keys, centres, reach)
    if read.room:  # at 16 bytes each, half of the engine's limit in this process, or 64 MiB
        fetch = min(fetch, max(_LEAST, 4 * read.room))
    n = int(read(counted).column("n")[0].as_py())
    if n > fetch:
        return _ranked_groups(read(_write_ranks(query, keys, centres, reach)), keys)
    column = _fetch(read, values, n)
    return {(): _select(column, centres, reach)} if len(column) else {}


def _fetch(read: Reader, values: str, rows: int) -> NDArray[np.float64]:
    """Return a column of this many rows; a large one is copied part by part."""
    if rows <= _AT_ONCE:
        return np.asarray(read(values).column("v"), dtype=np.float64)
    column, filled, more = np.empty(rows, dtype=np.float64), 0, []
    for part in read.stream_parts(values):
        found = np.asarray(part.column("v"), dtype=np.float64)
        held = found[: rows - filled]
        column[filled : filled + len(held)] = held
        filled += len(held)
        if len(held) < len(found):  # of rows that were added since they were counted
            more.append(found[len(held) :])
    return np.concatenate([column[:filled], *more]) if more else column[:filled]


def _select(column: NDArray[np.float64], centres: Sequence[Fraction], reach: int) -> Ordered:
    """Return the values near the quantiles, in order."""
    n = len(column)
    middles = [find_rank(n, centre) for centre in centres]
    windows = [(max(1, middle - reach - 1), min(n, middle + reach + 1)) for middle in middles]
    return Ordered(n, tuple((first, _sort_near(column, first, last)) for first, last in windows))


def _sort_near(column: NDArray[np.float64], first: int, last: int) -> NDArray[np.float64]:
    """Return ranks first..last: sort the values in a range guessed from a sample, or all if the guess is wrong."""
    n = len(column)
    if n > 16 * _SAMPLE:
        sample = np.sort(column[:: n // _SAMPLE])
        low, high = (
            float(sample[min(max(int(r / n * len(sample)) + side, 0), len(sample) - 1)])
            for r, side in ((first, -_SLACK), (last, _SLACK))
        )
        below = int(np.count_nonzero(column < low))
        if below < first:
            near = column[(column >= low) & (column <= high)]
            if below + len(near) >= last:
                near.sort()
                return near[first - 1 - below : last - below]
    return np.sort(column)[first - 1 : last]


def _write_ranks(query: str, keys: Sequence[str], centres: Sequence[Fraction], reach: int) -> str:
    """Write the query of the values within ``reach`` ranks of each quantile, with their ranks and each group's number."""
    names = quote_names(keys)
    near = " OR ".join(
        f"ABS({p.denominator} * i - {p.numerator} * n) <= {p.denominator * (reach + 2)}" for p in centres
    )
    part = f"PARTITION BY {', '.join(names)} " if keys else ""
    numbers = As(f"ROW_NUMBER() OVER ({part}ORDER BY v)", "i"), As(f"COUNT(*) OVER ({part.rstrip()})", "n")
    numbered = Subquery(
        Select((*names, "v", *numbers), Subquery(select_finite(query, keys), "found")), "numbered"
    )
    return Select((*names, "n", "i", "v"), numbered, near, order=(*names, "i")).sql


def _ranked_groups(table: pa.Table, keys: Sequence[str]) -> dict[Group, Ordered]:
    rows: dict[Group, tuple[int, dict[int, float]]] = {}
    columns = (table.column(name).to_pylist() for name in ("n", "i", "v"))
    for key, n, i, v in zip(list_groups(table, keys), *columns, strict=True):
        rows.setdefault(key, (n, {}))[1][i] = v
    found = {}
    for key, (n, ranked) in rows.items():
        ranks = np.array(sorted(ranked))
        pieces = np.split(ranks, np.flatnonzero(np.diff(ranks) > 1) + 1)
        found[key] = Ordered(n, tuple((int(p[0]), np.array([ranked[int(i)] for i in p])) for p in pieces))
    return found


def choose_spacing(scale: Fraction) -> Fraction:
    """Return a power of two of at most ``scale / 1024``: the grid on which noise of that scale is added.

    >>> choose_spacing(Fraction(2))
    Fraction(1, 512)
    """
    if scale <= 0:
        raise ValueError("scale must be positive")
    return Fraction(2) ** floor_log2(scale / 1024)


# -- a grid for values without known bounds ---------------------------------------------------------------------------


@dataclass(frozen=True)
class GeometricGrid:
    """A public grid of both signs for all doubles: steps grow with the values, as in a float.

    Step 0 represents sizes below ``2**lowest``; each power of two up to ``2**highest`` is divided into ``2**BITS`` equal steps,
    and a step represents its end nearer to 0. So a value is off by at most a part ``2**-BITS`` of itself; whole numbers up to
    ``2**BITS`` and the powers of two are exact. Larger sizes count as the last step.
    """

    lowest: int
    highest: int

    BITS: ClassVar[int] = 10

    def __post_init__(self) -> None:
        if self.lowest >= self.highest:
            raise ValueError("a geometric grid needs a power of two")

    @property
    def last(self) -> int:
        """The last step; the first is its negative."""
        return (self.highest - self.lowest) << self.BITS

    def describe(self) -> str:
        """Describe the points for EXPLAIN."""
        return (
            f"The points are 2^-{self.BITS} of their size apart, up to 2^{self.highest} of either sign: no bounds are "
            "needed."
        )

    def find_step(self, value: Fraction) -> int:
        """Return the step of a number, in exact arithmetic."""
        size, cells = abs(value), 1 << self.BITS
        if size < Fraction(2) ** self.lowest:
            return 0
        power = min(floor_log2(size), self.highest - 1)
        part = min(cells - 1, math.floor((size / Fraction(2) ** power - 1) * cells))
        step = (power - self.lowest) * cells + part + 1
        return step if value > 0 else -step

    def value(self, step: int) -> Fraction:
        if step == 0:
            return Fraction(0)
        power, part = divmod(abs(step) - 1, 1 << self.BITS)
        size = Fraction(2) ** (self.lowest + power) * (1 + Fraction(part, 1 << self.BITS))
        return size if step > 0 else -size

    def write_step(self, v: str) -> str:
        """Write SQL for the step of a finite double: a function of this value alone, whatever the logarithm's last digit."""
        cells = 1 << self.BITS
        power = f"LEAST(GREATEST(FLOOR(TRY(LOG2(ABS({v})))), {self.lowest}), {self.highest - 1})"
        part = f"LEAST(GREATEST(FLOOR((ABS({v}) / POW(2.0, {power}) - 1) * {cells}), 0), {cells - 1})"
        step = f"CAST(({power} - {self.lowest}) * {cells} + {part} + 1 AS INTEGER)"
        return (
            f"CASE WHEN ABS({v}) < POW(2.0, {self.lowest}) THEN 0 WHEN {v} > 0 THEN {step} ELSE -{step} END"
        )


# -- ranks and the choice of a grid step ------------------------------------------------------------------------------

_SMALL = 1 << 61
_NEVER = 30
"""Grid points whose total probability is below exp(-30) are examined only if one is drawn."""


@dataclass(frozen=True)
class WantedRank:
    """A request for the quantile ``p``, or for the least (``end = 'min'``) or greatest (``'max'``) value."""

    p: Fraction
    end: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1 or self.end not in (None, "min", "max"):
            raise ValueError("a quantile lies between 0 and 1")

    @classmethod
    def least(cls) -> WantedRank:
        return cls(Fraction(0), "min")

    @classmethod
    def greatest(cls) -> WantedRank:
        return cls(Fraction(1), "max")

    @property
    def scale(self) -> int:
        """The factor that makes ranks integers."""
        return 2 if self.end else self.p.denominator

    @property
    def sensitivity(self) -> int:
        """The sensitivity of the scaled utility to one row."""
        return 2 if self.end else max(self.p.numerator, self.p.denominator - self.p.numerator)

    def target(self, n: int, inward: int) -> int:
        """Return the scaled rank among ``n`` values; the ends pass ``inward`` values."""
        if self.end is None:
            return self.p.numerator * n
        # Half a value less: at a whole rank, every point up to the next value would be as good as the value itself.
        inner = min(2 * inward - 1, n)
        return inner if self.end == "min" else 2 * n - inner


def cut_segments(
    values: Integers, counts: Integers, low: int, high: int, rank: WantedRank, inward: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64], Integers]:
    """Return ``(starts, sizes, scaled utilities)`` of runs of grid points; ``values`` ascend within ``[low, high]``."""
    n, upto = accumulate_counts(counts, rank.scale)
    return _cut_runs(values, upto, 0, low, high, rank.scale, rank.target(n, inward))


def accumulate_counts(counts: Integers, scale: int) -> tuple[int, Integers]:
    """Return the number of values, and the number up to each."""
    n = int(sum(map(int, counts))) if counts.dtype == object else int(counts.sum())
    return n, np.cumsum(counts.astype(object if scale * max(n, 1) >= _SMALL else np.int64))


def _cut_runs(
    values: Integers, upto: Integers, before: int, low: int, high: int, scale: int, target: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Integers]:
    """Cut ``low`` to ``high`` into runs: ``before`` values are below ``low``, and ``upto`` at or below each value."""
    size = 2 * len(values) + 1
    starts = np.empty(size, dtype=np.int64)
    starts[1::2] = values
    starts[0] = low
    starts[2::2] = values + 1
    ends = np.empty(size, dtype=np.int64)
    ends[1::2] = values + 1
    ends[0:-1:2] = values
    ends[-1] = high + 1
    less = np.full(size, before, dtype=upto.dtype)  # values below the segment
    less[2::2] = upto
    less[3::2] = upto[:-1]
    less_or_equal = np.full(size, before, dtype=upto.dtype)
    less_or_equal[1::2] = upto
    less_or_equal[2::2] = upto
    miss = np.maximum(less * scale - target, target - less_or_equal * scale)
    utility = -np.maximum(miss, 0)
    held = ends > starts
    return starts[held], (ends - starts)[held], utility[held]


def choose_step(
    values: Integers,
    counts: Integers,
    low: int,
    high: int,
    rank: WantedRank,
    rate: Fraction,
    entropy: Entropy,
    inward: int = 0,
    weights: PointWeights | None = None,
) -> int:
    """Choose a grid step with probability proportional to ``exp(rate * scaled utility)``, and to its weight, exactly.

    Some grid point always has utility 0, so those with a utility below ``-reach`` are together very improbable. They form two
    runs of utility ``-reach``; a point drawn from one of these is kept with probability ``exp(rate * (its own utility +
    reach))``, otherwise everything is redrawn: by rejection the law is exact.

    ``target`` is a scaled rank in place of that of ``rank``, between 0 and ``scale`` times the number of values.
    """
    n, upto = accumulate_counts(counts, rank.scale)
    scale, target = rank.scale, rank.target(n, inward)
    size = high - low + 1 if weights is None else weights.total
    reach = max(0, min(math.ceil((math.log(size) + _NEVER) / rate), scale * n + 1))
    # Points up to values[first - 1] have too few values up to them, points from values[last] on too many below.
    first = int(np.searchsorted(upto, -((reach - target) // scale), side="left"))
    last = min(len(values), 1 + int(np.searchsorted(upto, (target + reach) // scale, side="right")))
    before = int(upto[first - 1]) if first else 0
    left = int(values[first - 1]) + 1 if first else low
    right = int(values[last]) - 1 if last < len(values) else high
    near = _cut_runs(values[first:last], upto[first:last], before, left, right, scale, target)
    far = [(start, size) for start, size in ((low, left - low), (right + 1, high - right)) if size]
    starts = np.append(near[0], np.array([start for start, _ in far], dtype=np.int64))
    sizes = np.append(near[1], np.array([size for _, size in far], dtype=np.int64))
    utility = np.append(near[2], np.array([-reach] * len(far), dtype=near[2].dtype))
    if weights is not None:
        sizes = weights.add_before(starts + sizes) - weights.add_before(starts)
    while True:
        i = choose_exponential(utility, rate, entropy, sizes)
        place = int(entropy.below(int(sizes[i]), 1)[0])
        chosen = int(starts[i]) + place if weights is None else weights.find_point(int(starts[i]), place)
        if i < len(near[0]):
            return chosen
        at = int(np.searchsorted(values, chosen, side="left"))
        less = int(upto[at - 1]) if at else 0
        equal = int(upto[at]) - less if at < len(values) and int(values[at]) == chosen else 0
        miss = max(less * scale - target, target - (less + equal) * scale)
        if bool(flip_coins(np.array([miss - reach], dtype=object), rate, entropy)[0]):
            return chosen
