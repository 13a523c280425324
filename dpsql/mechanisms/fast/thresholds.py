"""Public thresholds that a private column is compared with, and sums over the rows below each.

Comparisons are DuckDB's: integers and decimals (as integers of the finer scale), doubles (NaN is the greatest value and
equal to itself) and dates. Integers and doubles are compared as doubles: each threshold then has an equivalent integer edge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.numerics.exact_numbers import (
    INT64_MAX,
    SAFE,
    Integers,
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
        query: returns the distinct ``x``, its number of rows ``n`` and, unless rows are counted, the sum of ``v``.
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

    def can_compare(self, end: Thresholds) -> bool:
        """Return whether thresholds can be compared with its column as in the engine."""
        if self.as_doubles:
            return end.are_floats
        return not end.scale if self.doubles else not (self.digits and end.are_floats)

    @property
    def limited(self) -> str:
        """The query with a limit of the rows processed here, plus one that shows that there are more."""
        return f"SELECT * FROM ({self.query}) AS histogram LIMIT {self.limit}"

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

    values: NDArray[Any]
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
        """Whether the thresholds are doubles."""
        return self.values.dtype.kind == "f"

    @property
    def extremes(self) -> Thresholds:
        """The least and the greatest, which may be NaN."""
        return Thresholds(np.array([np.fmin.reduce(self.values), np.maximum.reduce(self.values)]), self.scale)

    def edge(self, digits: int, after: bool) -> NDArray[np.int64]:
        """Return the integer edges of values with ``digits`` places made whole.

        A value is below its edge (``after``: at most its edge) exactly if it is below the threshold (at most it). For a
        double from 2**53 on, an infinity or NaN it is an end of 64 bits, which :func:`find_span` refuses; for values
        with places, a number greater than all of them.
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


def read_numbers(column: pa.ChunkedArray) -> NDArray[Any]:
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

    x: NDArray[Any]
    sums: Integers
    counts: Integers
    digits: int
    first: int | None = None

    @classmethod
    def dense(cls, counts: NDArray[np.int64], low: int, digits: int) -> PrefixSums:
        """Sum the counts of ``low``, ``low + 1``, ..."""
        return replace(cls.of(np.arange(low, low + len(counts)), counts, digits), first=low)

    @classmethod
    def of(cls, x: NDArray[Any], counts: NDArray[np.int64], digits: int = 0) -> PrefixSums:
        """Sum the counts of sorted values."""
        sums = accumulate(counts)
        return cls(x, sums, sums, digits)

    @property
    def total(self) -> int:
        """The sum over all values."""
        return int(self.sums[-1])

    @property
    def are_floats(self) -> bool:
        """Whether the values are doubles."""
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
        edge, size = end.edge(self.digits, after), len(self.x)
        if self.first is not None:
            return _place_from(edge, self.first, size, after)
        if not size or int(self.x[-1]) - int(self.x[0]) >= 4 * size + (1 << 16):
            return np.asarray(np.searchsorted(self.x, edge, side), dtype=np.intp)
        first, width = int(self.x[0]), int(self.x[-1]) - int(self.x[0]) + 1
        table = np.zeros(width + 1, dtype=np.intp)  # table[k]: the number of values below first + k
        table[self.x - first + 1] = 1
        np.cumsum(table, out=table)
        return np.asarray(table[_place_from(edge, first, width, after)], dtype=np.intp)

    def clipped(self, end: Thresholds) -> Integers:
        """Return the sum of the integer values clipped at each b (b NULL: 0)."""
        at = self.place(end, after=True)
        counts = to_integers(self.counts[1:] - self.counts[:-1])
        weighed = accumulate(multiply_integers(to_integers(self.x), counts))
        beyond = to_integers(self.counts[-1] - self.counts[at])
        score: Integers = add_integers(to_integers(weighed[at]), multiply_integers(end.values, beyond))
        return score if end.missing is None else np.where(end.missing, 0, score)


def _place_from(edge: NDArray[np.int64], first: int, width: int, after: bool) -> NDArray[np.intp]:
    """Count those of ``first``, ``first + 1``, ... (``width`` of them) below each edge, or at most it (``after``)."""
    near = np.clip(edge, max(first - 1, -INT64_MAX - 1), min(first + width, INT64_MAX)) - first
    return np.clip(near + 1 if after else near, 0, width)


def accumulate(v: Integers) -> Integers:
    """Return the sums before each index, and the total."""
    wide = v.dtype == object or find_largest(v) * len(v) >= _SAFE
    out = np.zeros(len(v) + 1, dtype=object if wide else np.int64)
    np.cumsum(v.astype(object) if wide else v, out=out[1:])
    return out
