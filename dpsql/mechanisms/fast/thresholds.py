"""Public thresholds that a private column is compared with, and sums over the rows below each.

Comparisons are DuckDB's: integers and decimals (as integers of the finer scale), doubles (NaN is the greatest value and
equal to itself) and dates. Integers and doubles are compared as doubles: each threshold then has an equivalent integer edge.

*Rows below each of many arbitrary thresholds* are counted exactly as a column streams by. For integer thresholds near each
other, every integer is counted (:mod:`dpsql.mechanisms.fast.column_counts`). Otherwise numbers are assigned to about as many
cells as thresholds: in a cell with one threshold, a row is below, at or above it; in a cell with several, bisection finds its
place among them. No row is kept. Values affect only the time for the few rows in crowded cells.

*Coarse cells, some of which are resolved into rows afterwards* (:class:`BinnedColumn`): a few thousand cells fit the
processor's cache, which takes half the time of a million thresholds. The rows are kept with their cells, so that those of a
few cells can be resolved later, and nothing is read twice. The cell is a monotone function of the number: below a threshold
are all rows of the cells before its cell, and some of those in it. Rows that exceed the memory limit are resolved at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import Reader
from dpsql.mechanisms.fast.column_counts import (
    BLOCK_ROWS,
    COUNTING_THREADS,
    DoubleCells,
    IntegerCells,
    NumberCells,
    PlaceCounts,
    ThreadTallies,
    cut_blocks,
    stream_column,
    work_beside,
)
from dpsql.mechanisms.queries import Select, Subquery
from dpsql.numerics.exact_numbers import (
    INT64_MAX,
    SAFE,
    Integers,
    NumberArray,
    add_integers,
    find_largest,
    multiply_integers,
    to_integers,
)

MAX_BINS = 1 << 22
"""The most bins processed here; if there are more, the engine joins them with the candidates."""
_SAFE = 1 << 61
_WHOLE = 1 << 53  # below this, all integers are doubles, and no other integer becomes one of them
DOUBLE_DIGITS = 15
"""Decimals with at most this many digits become doubles as in DuckDB: by one division, rounded once."""


@dataclass(frozen=True)
class HistogramQuery:
    """A question about the private rows: the rows of each value, or the sum of another column over them.

    Args:
        query: returns the distinct ``x``, its number of rows ``n`` and, with ``sums``, the sum of ``v`` over them.
        column: returns the x of every row, if only counts are wanted.
        digits: decimal places that were made whole.
        least: lower clamping bound of x (in a clipped sum).
        doubles: whether the column has doubles, otherwise integers or dates.
        as_doubles: whether decimals of up to :data:`DOUBLE_DIGITS` digits are compared with doubles.
        places: decimal places of the column, counted as integers without their point (None: no decimals).
    """

    query: str
    column: str | None = None
    digits: int = 0
    least: int | None = None
    doubles: bool = False
    as_doubles: bool = False
    places: int | None = None
    sums: bool = False

    def can_compare(self, end: Thresholds) -> bool:
        """Return whether thresholds can be compared with its column as in the engine."""
        if self.as_doubles:
            return end.are_floats
        return not end.scale if self.doubles else not (self.digits and end.are_floats)

    @property
    def limited(self) -> str:
        """The query with a limit of the rows processed here, plus one that shows that there are more."""
        return Select("*", Subquery(self.query, "histogram"), limit=self.limit).sql

    @property
    def limit(self) -> int:
        """The query's limit: a histogram with this many rows is not used."""
        return MAX_BINS + 1


def is_comparable(kind: pa.DataType) -> bool:
    """Return whether values of a type are compared here as in DuckDB."""
    if pa.types.is_integer(kind):
        return bool(kind != pa.uint64())
    return kind in (pa.float64(), pa.date32(), pa.null()) or is_decimal(kind)


def is_decimal(kind: pa.DataType) -> bool:
    """Return whether a type is a decimal of up to 128 bits whose scale is within its precision."""
    return bool(pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision)


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of candidates: doubles, or integers of ``scale`` decimal places (NULL: any number)."""

    values: NumberArray
    scale: int = 0
    missing: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Thresholds | None:
        """Read a column; None for incomparable types, and decimals above 64 bits."""
        if not is_comparable(column.type):
            return None
        scale = column.type.scale if is_decimal(column.type) else 0
        values = _read_unscaled(column) if is_decimal(column.type) else read_numbers(column)
        if values is None or not column.null_count:
            return None if values is None else cls(values, scale)
        missing = column.is_null().to_numpy()
        there = values[~missing]
        return cls(np.where(missing, there[0] if len(there) else 0, values), scale, missing)

    @property
    def are_floats(self) -> bool:
        return self.values.dtype.kind == "f"

    @property
    def extremes(self) -> Thresholds:
        """The least and the greatest, which may be NaN."""
        return Thresholds(np.array([np.fmin.reduce(self.values), np.maximum.reduce(self.values)]), self.scale)

    def edge(self, digits: int, after: bool) -> NDArray[np.int64]:
        """Return the integer edges of values with ``digits`` places made whole.

        A value is below its edge (``after``: at most its edge) exactly if it is below the threshold (at most it). For a double
        from 2**53 on, an infinity or NaN it is an end of 64 bits, which :func:`find_span` refuses.
        """
        if self.are_floats and digits:
            return self._decimal_edge(digits, after)
        if self.are_floats:
            near = np.abs(self.values) < _WHOLE
            whole = (np.floor if after else np.ceil)(np.where(near, self.values, 0)).astype(np.int64)
            return (
                whole
                if near.all()
                else np.where(near, whole, np.where(self.values < 0, -INT64_MAX, INT64_MAX))
            )
        if self.scale <= digits:
            times = 10 ** (digits - self.scale)
            # A decimal whose places are made whole has 18 digits: the clipped values are outside their range.
            return self.values if times == 1 else np.clip(self.values, -SAFE // times, SAFE // times) * times
        by = 10 ** (self.scale - digits)
        if by > INT64_MAX:  # less than one
            return np.where(self.values < 0, -1, 0) if after else np.where(self.values > 0, 1, 0)
        return np.asarray(self.values // by if after else -(-self.values // by), dtype=np.int64)

    def _decimal_edge(self, digits: int, after: bool) -> NDArray[np.int64]:
        """Return the edges of decimals that become doubles: the first or last integer whose quotient is on that side.

        The integer nearest to the product is at most one off, for quotients of integers below 10**15 are further apart
        than two roundings. Thresholds outside their range are above, or below, all; NaN is the greatest number.
        """
        by, beyond = 10.0**digits, 10**DOUBLE_DIGITS
        with np.errstate(over="ignore"):
            scaled = self.values * by
        near = np.abs(scaled) < beyond
        guess, value = np.rint(np.where(near, scaled, 0)), np.where(near, self.values, 0)
        if after:
            edge = guess + 1 - (((guess + 1) / by > value) + (1.0 * (guess / by > value)))
        else:
            edge = guess - 1 + (((guess - 1) / by < value) + (1.0 * (guess / by < value)))
        return np.where(near, edge.astype(np.int64), np.where(self.values < 0, -beyond, beyond))


def read_numbers(column: pa.ChunkedArray) -> NumberArray:
    """Read a column of integers, dates or doubles; NULL is 0."""
    if column.type == pa.date32():
        column = column.cast(pa.int32())
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.int64)
    values = (pc.fill_null(column, 0) if column.null_count else column).to_numpy()
    return np.asarray(values, dtype=np.float64 if pa.types.is_floating(column.type) else np.int64)


def _read_unscaled(column: pa.ChunkedArray) -> NDArray[np.int64] | None:
    """Read the integers behind decimals (NULL: any number); None if they need more than 64 bits."""
    out = np.zeros(len(column), dtype=np.int64)
    at = 0
    for chunk in column.chunks:
        if chunk.null_count:
            chunk = pc.fill_null(chunk, pa.scalar(0, chunk.type))
        raw = np.frombuffer(chunk.buffers()[1], dtype=np.int64)[2 * chunk.offset :][: 2 * len(chunk)]
        if bool((raw[0::2] >> 63 != raw[1::2]).any()):
            return None
        out[at : at + len(chunk)] = raw[0::2]
        at += len(chunk)
    return out


def find_span(counted: HistogramQuery, ends: list[Thresholds]) -> tuple[int, int] | None:
    """Find the range of integers that contains all thresholds; None if these can't be counted one by one."""
    if counted.doubles or not ends or not all(len(end.values) for end in ends):
        return None
    ends = [end.extremes for end in ends]  # edges are monotone in thresholds
    low = min(int(end.edge(counted.digits, after=False)[0]) for end in ends) - 1
    high = max(int(end.edge(counted.digits, after=True)[1]) for end in ends) + 1
    if counted.least is not None:
        low, high = counted.least, max(counted.least, high)
    return None if max(-low, high) >= SAFE else (low, high)


@dataclass(frozen=True)
class PrefixSums:
    """Sorted values (or integers from ``first`` on, others at the ends), with sums of rows and addends before each."""

    x: NumberArray
    sums: Integers
    counts: Integers
    digits: int
    first: int | None = None

    @classmethod
    def dense(cls, counts: NDArray[np.int64], low: int, digits: int) -> PrefixSums:
        """Sum the counts of ``low``, ``low + 1``, ..."""
        sums = accumulate(counts)
        return cls(np.arange(low, low + len(counts)), sums, sums, digits, low)

    @classmethod
    def of(cls, x: NumberArray, counts: NDArray[np.int64], digits: int = 0) -> PrefixSums:
        """Sum the counts of sorted values."""
        sums = accumulate(counts)
        return cls(x, sums, sums, digits)

    @property
    def total(self) -> int:
        return int(self.sums[-1])

    @property
    def are_floats(self) -> bool:
        return bool(self.x.dtype.kind == "f")

    def is_comparable_with(self, end: Thresholds) -> bool:
        """Return whether such thresholds can be compared with the values as in the engine."""
        return not end.scale if self.are_floats else not (self.digits and end.are_floats)

    def place(self, end: Thresholds, after: bool) -> NDArray[np.intp]:
        """Count the values below each threshold, or at most it (``after``). NULL: any number."""
        side: Literal["left", "right"] = "right" if after else "left"
        if self.are_floats or (end.are_floats and self.first is None):
            x, found = self.x.astype(np.float64), end.values.astype(np.float64)
            x = x / 10.0**self.digits if self.digits else x
            return np.asarray(np.searchsorted(x, found, side), dtype=np.intp)
        edge = end.edge(self.digits, after)
        if self.first is None:
            return np.asarray(np.searchsorted(self.x, edge, side), dtype=np.intp)
        near = np.clip(edge, self.first - 1, self.first + len(self.x)) - self.first
        return np.clip(near + 1 if after else near, 0, len(self.x))

    def clipped(self, end: Thresholds) -> Integers:
        """Return the sum of the integer values clipped at each b (b NULL: 0)."""
        at = self.place(end, after=True)
        counts = to_integers(self.counts[1:] - self.counts[:-1])
        weighed = accumulate(multiply_integers(to_integers(self.x), counts))
        beyond = to_integers(self.counts[-1] - self.counts[at])
        score: Integers = add_integers(to_integers(weighed[at]), multiply_integers(end.values, beyond))
        return score if end.missing is None else np.where(end.missing, 0, score)


def accumulate(v: Integers) -> Integers:
    """Return the sums before each index, and the total."""
    wide = v.dtype == object or find_largest(v) * len(v) >= _SAFE
    out = np.zeros(len(v) + 1, dtype=object if wide else np.int64)
    np.cumsum(v.astype(object) if wide else v, out=out[1:])
    return out


_Part = TypeVar("_Part", bound=Sized)

Compared = tuple[Thresholds, bool]
"""Thresholds, and whether rows at most one are counted, instead of those below it."""

_LEAST_BITS, _CHEAP_BITS, _MOST_BITS = 13, 18, 21
"""The least and the most cells, and the number fast enough to look up to be tried if fewer are crowded."""
_FEW_ROWS = 1 << 17
"""The fewest rows counted at once: each time an array of all bins is made and added."""


def read_edges(end: Thresholds, after: bool, doubles: bool, digits: int) -> NumberArray:
    """Return the doubles, or the integer edges, that rows are compared with."""
    return end.values.astype(np.float64, copy=False) if doubles else end.edge(digits, after)


class SortedThresholds:
    """Distinct thresholds in ascending order, their cells, and the places of the given ones.

    Args:
        doubles: whether rows are doubles, otherwise integers whose last ``digits`` are decimal places.
        span: the ends that integers are clamped to; by default thresholds are distinguished from all below and above.
    """

    cells: NumberCells
    crowded: NDArray[np.bool_] | None = None
    """The cells with several thresholds; None if there are none."""
    known: NumberArray
    """The thresholds as they are compared."""
    near: NumberArray
    """The threshold of each cell."""
    _first: NDArray[np.int64]
    """The number of thresholds in the cells before each, if some are crowded."""
    _steps: Sequence[int]
    """The steps of a bisection among the thresholds of the most crowded cell."""

    def __init__(
        self, ends: Sequence[Compared], doubles: bool, digits: int, span: tuple[int, int] | None = None
    ) -> None:
        self._doubles, self._digits, self.sides = doubles, digits, sorted({after for _, after in ends})
        found: list[NumberArray] = []
        for edges in (read_edges(end, after, doubles, digits) for end, after in ends):
            if not any(np.array_equal(edges, known) for known in found):
                found.append(edges)
        self.values = _sort(found[0] if len(found) == 1 else np.concatenate(found))
        if not doubles:
            span = span or (int(self.values[0]) - 1, int(self.values[-1]) + 1)
        self.cells, self.numbers = self._choose_cells(span)
        self._look_up()

    def _choose_cells(self, span: tuple[int, int] | None) -> tuple[NumberCells, NDArray[np.int64]]:
        """Choose about as many cells as thresholds, more if these are uneven, and return the thresholds' cells."""
        bits = min(max(_LEAST_BITS, (len(self.values) - 1).bit_length()), _MOST_BITS)
        most = min(max(bits + 1, _CHEAP_BITS), _MOST_BITS)
        while True:
            made: NumberCells
            if span is None:
                made = DoubleCells.between(self.values, 1 << bits)
            else:
                made = IntegerCells(*span, bits)
            numbers = made.of(self.values)
            crowded = np.count_nonzero(numbers[1:] == numbers[:-1])
            if bits == most or crowded * (64 if bits < _CHEAP_BITS else 4) <= len(self.values):
                return made, numbers
            bits += 1

    def _look_up(self) -> None:
        """Make the look-up tables of cells."""
        self.known = self.cells.compared(self.values, np.empty(len(self.values), dtype=self.cells.kind))
        self.near = np.zeros(self.cells.count, dtype=self.cells.kind)
        self.near[self.numbers] = self.known
        each = np.bincount(self.numbers, minlength=self.cells.count)
        if bool((each > 1).any()):
            self.crowded = each > 1
            self._first = np.cumsum(each) - each
            self._steps = [1 << bit for bit in reversed(range(int(each.max()).bit_length()))]

    def rank(self, x: NumberArray, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of thresholds that are at most each number, given as compared, in crowded cells."""
        place, last = self._first.take(cells), len(self.known) - 1
        for step in self._steps:
            near = self.known.take(np.minimum(place + (step - 1), last))
            place += step * ((place + step <= last + 1) & (near <= x))
        return place

    def place(self, end: Thresholds, after: bool) -> NDArray[np.intp]:
        """Return the indices of the sums below thresholds, or at most them (``after``). NULL: any."""
        places = self._find(read_edges(end, after, self._doubles, self._digits)) * len(self.sides)
        return places + self.sides.index(after)

    def _find(self, edges: NumberArray) -> NDArray[np.intp]:
        known = self.values
        first = int(np.searchsorted(known, edges[0])) if len(edges) else 0
        if np.array_equal(known[first : first + len(edges)], edges):  # all given thresholds, or some in order
            return np.arange(first, first + len(edges))
        return np.searchsorted(known, edges)


@dataclass(frozen=True)
class ThresholdSums:
    """The sums of rows below each threshold, or at most it, or both, in ascending order, and of all rows."""

    _thresholds: SortedThresholds
    sums: NDArray[np.int64]

    @property
    def total(self) -> int:
        return int(self.sums[-1])

    def place(self, end: Thresholds, after: bool) -> NDArray[np.intp]:
        """Return the indices of the sums below thresholds, or at most them (``after``). NULL: any."""
        return self._thresholds.place(end, after)


class _Tally(PlaceCounts):
    def __init__(self, bins: int, classes: int, kind: np.dtype[np.generic]) -> None:
        super().__init__(bins, max(2 * bins, _FEW_ROWS) + BLOCK_ROWS)
        self.classes = np.zeros(classes, dtype=np.int64)
        self.near, self.held = np.empty((2, BLOCK_ROWS), dtype=kind)


class ThresholdCounts:
    """Counts of rows between thresholds."""

    def __init__(self, thresholds: SortedThresholds) -> None:
        self._thresholds, self._cells, self._sides = thresholds, thresholds.cells, thresholds.sides
        self._tallies = ThreadTallies(self._make_tally)

    # -- counting ------------------------------------------------------------------------------------------------

    def add(self, values: NumberArray) -> None:
        """Count rows; thread-safe."""
        with self._tallies.reserve() as tally:
            for part in cut_blocks(values):
                self._add(part, tally)

    def add_all(self, arrays: Iterable[NumberArray]) -> None:
        """Count all rows in other threads as this one fetches them."""
        self.add_parts(arrays, lambda values: values)

    def add_parts(
        self,
        parts: Iterable[_Part],
        select: Callable[[_Part], NumberArray],
        count: Callable[[_Part], int] | None = None,
    ) -> None:
        """Count the selected rows of each part in other threads as this one fetches the parts; ``count`` counts all its rows."""
        work_beside(parts, lambda part: self.add(select(part)), COUNTING_THREADS, count)
        if len(self._tallies.all) > 1:
            with ThreadPoolExecutor(COUNTING_THREADS) as beside:
                list(beside.map(_Tally.fold, self._tallies.all))

    def _make_tally(self) -> _Tally:
        known = self._thresholds
        classes = 0 if known.crowded is None else 2 * len(known.values) + 1
        return _Tally(len(self._sides) * self._cells.count + 2, classes, self._cells.kind)

    def _add(self, part: NumberArray, tally: _Tally) -> None:
        size, known = len(part), self._thresholds
        x = self._cells.compared(part, tally.held[:size])
        cells = self._cells.number(x, tally.places(size))
        many: NDArray[np.intp] | None = None
        if known.crowded is not None:
            many = np.flatnonzero(known.crowded.take(cells))
            self._add_crowded(x[many], cells[many], tally)
        near = known.near.take(cells, mode="clip", out=tally.near[:size])
        # Rows above a cell's threshold are counted with those below the next one's.
        index = cells if len(self._sides) == 1 else np.multiply(cells, 2, out=cells)
        for after in self._sides:
            index += (np.greater if after else np.greater_equal)(x, near)
        if many is not None:
            index[many] = len(self._sides) * self._cells.count + 1  # these are counted separately

    def _add_crowded(self, x: NumberArray, cells: NDArray[np.int64], tally: _Tally) -> None:
        """Count rows of cells with several thresholds: the number of these at most each row, and equality to the last."""
        known, place = self._thresholds.known, self._thresholds.rank(x, cells)
        at = (place > 0) & (known.take(np.maximum(place - 1, 0)) == x)
        np.add.at(tally.classes, 2 * place - at, 1)

    # -- sums ----------------------------------------------------------------------------------------------------

    def sums(self, below: int = 0, above: int = 0) -> ThresholdSums:
        """Return the sums, with ``below`` and ``above`` more rows below and above all thresholds."""
        known, count = self._thresholds, len(self._sides)
        bins = np.zeros(count * self._cells.count + 1, dtype=np.int64)
        for tally in self._tallies.all:
            bins += tally.bins[:-1]
        bins[0] += below
        np.cumsum(bins, out=bins)
        sums = self._pick(bins)
        if known.crowded is not None:
            classes = np.zeros(2 * len(known.values) + 1, dtype=np.int64)
            for tally in self._tallies.all:
                classes += tally.classes
            np.cumsum(classes, out=classes)
            for place, after in enumerate(self._sides):
                sums[place:-1:count] += classes[after:-1:2]
            sums[-1] += classes[-1]
        sums[-1] += above
        return ThresholdSums(known, sums)

    def _pick(self, bins: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums at thresholds, of the bins up to each, and that of all rows."""
        known, count = self._thresholds, len(self._sides)
        sums = np.empty(count * len(known.values) + 1, dtype=np.int64)
        for place, after in enumerate(self._sides):
            # A row below a threshold is on the first side of its cell, as is one at it unless another side is requested.
            sums[place:-1:count] = bins.take(known.numbers * count + place)
            if known.values[-1] != known.values[-1] and not after:
                # All rows of its cell are NaN: equal to it, though no comparison is true.
                sums[place - 1 - count] = bins[known.numbers[-1] * count - 1]
        sums[-1] = bins[-1]
        return sums


def _sort(values: NumberArray) -> NumberArray:
    """Return distinct values in ascending order, NaN last."""
    if bool((values[1:] > values[:-1]).all()):
        return values
    values = np.sort(values, kind="stable")  # merges ascending parts
    new = np.ones(len(values), dtype=bool)
    new[1:] = (values[1:] != values[:-1]) & (values[:-1] == values[:-1])
    return np.asarray(values[new])


_CELL_BITS = 13
"""There are about ``2**_CELL_BITS`` cells, so that their counts fit a core's cache."""
_WAITING = 4
"""The most parts waiting to be counted, if they are not kept."""
_NUMBER = np.dtype(np.uint16)
"""The type of a stored cell, wide enough for all cells."""
_RESERVED = 15 << 20
"""The cells for which memory is allocated at once; unwritten pages take none.

They are a little less than 32 MiB, up to which glibc learns to keep freed memory. So the parts of a column are written
to those of the last one: new pages would take the kernel half of the counting time.
"""


@dataclass(frozen=True)
class ThresholdCells:
    """The public cells of all thresholds of a column; ``after``: count rows at most a threshold, not below."""

    counted: HistogramQuery
    end: Thresholds
    after: bool
    cells: NumberCells

    @classmethod
    def between(cls, counted: HistogramQuery, end: Thresholds, after: bool) -> ThresholdCells | None:
        """Return the cells of thresholds; None if these can't be counted here."""
        cells: NumberCells
        if counted.doubles:
            cells = DoubleCells.between(read_edges(end, after, True, 0), 1 << _CELL_BITS)
        else:
            ends = find_span(counted, [end])
            if ends is None:
                return None
            cells = IntegerCells(*ends, _CELL_BITS)
        return cls(counted, end, after, cells)

    def of(self, end: Thresholds) -> NDArray[np.int64]:
        """Return the cells of some of the thresholds."""
        return self.cells.of(read_edges(end, self.after, self.counted.doubles, self.counted.digits))


class BinnedColumn:
    """The cells of thresholds, with the number of rows in each, ``counts``."""

    def __init__(self, known: ThresholdCells) -> None:
        self._known = known
        self.counts = np.zeros(known.cells.count, dtype=np.int64)
        self._held: list[tuple[NumberArray, NDArray[np.uint16]]] = []
        self._room = np.empty(0, dtype=_NUMBER)
        self._all: ThresholdCounts | None = None
        self._numbers = np.empty(BLOCK_ROWS, dtype=np.int64)
        self._compared = np.empty(BLOCK_ROWS, dtype=known.cells.kind)

    def count(self, arrays: Iterator[NumberArray], room: int) -> None:
        """Count arrays in other threads as this one fetches them, and keep up to ``room`` bytes."""
        waiting = deque[Future[None]]()
        with ThreadPoolExecutor(1) as beside:
            for values in arrays:
                room -= values.nbytes + _NUMBER.itemsize * len(values)
                if room < 0 and self._all is None:
                    self._all = self._make_counts(self._known.end)
                    waiting += [beside.submit(self._all.add, part) for part, _ in self._held]
                    self._held.clear()
                if self._all is None:
                    self._held.append((values, self._reserve(len(values))))
                    waiting.append(beside.submit(self._count, *self._held[-1]))
                    continue
                waiting += (beside.submit(self._count, values), beside.submit(self._all.add, values))
                while len(waiting) > 2 * _WAITING:
                    waiting.popleft().result()
        for task in waiting:
            task.result()

    def _make_counts(self, end: Thresholds) -> ThresholdCounts:
        known, counted = self._known, self._known.counted
        return ThresholdCounts(SortedThresholds([(end, known.after)], counted.doubles, counted.digits))

    def _reserve(self, size: int) -> NDArray[np.uint16]:
        """Return space for the cells of ``size`` rows, in large pages."""
        if size > len(self._room):
            self._room = np.empty(max(size, _RESERVED), dtype=_NUMBER)
        mine, self._room = self._room[:size], self._room[size:]
        return mine

    def _count(self, values: NumberArray, numbers: NDArray[np.uint16] | None = None) -> None:
        """Count rows, and write their cells to ``numbers``."""
        start, known = 0, self._known.cells
        for part in cut_blocks(values):
            x = known.compared(part, self._compared[: len(part)])
            cells = known.number(x, self._numbers[: len(part)])
            self.counts += np.bincount(cells, minlength=len(self.counts))
            if numbers is not None:
                numbers[start : start + len(cells)] = cells
            start += len(cells)

    def run(self, first: int, last: int, end: Thresholds) -> ThresholdSums:
        """Sum the rows in cells from ``first`` up to before ``last`` on the requested side of thresholds."""
        if self._all is not None:
            return self._all.sums()
        counts = self._make_counts(end)

        def select(part: tuple[NumberArray, NDArray[np.uint16]]) -> NumberArray:
            values, numbers = part
            # cells before the first wrap around, and so are after all
            return values[np.flatnonzero(numbers - _NUMBER.type(first) < last - first)]

        counts.add_parts(self._held, select, lambda part: len(part[0]))
        return counts.sums(int(self.counts[:first].sum()), int(self.counts[last:].sum()))


def bin_column(known: ThresholdCells, read: Reader) -> BinnedColumn:
    """Count the column of thresholds in cells."""
    made, counted = BinnedColumn(known), known.counted
    assert counted.column is not None
    made.count(stream_column(read, counted.column, counted.doubles, counted.places), 8 * read.room)
    return made
