"""Public thresholds that a private column is compared with, and sums over what is below each.

Comparisons are DuckDB's: integers and decimals (as integers of the finer scale), doubles (NaN is the greatest value and
equal to itself) and dates. Integers and doubles meet as doubles: each threshold then has an integer edge, which tells the
same integers apart.
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
"""The most bins that are held here; where there are more, the engine joins them with the candidates."""
_SAFE = 1 << 61
_WHOLE = 1 << 53  # below this, all integers are doubles, and no other integer becomes one of them
DOUBLE_DIGITS = 15
"""Decimals of so many digits become doubles as DuckDB's do: by one division, which is rounded once."""


@dataclass(frozen=True)
class HistogramQuery:
    """A question to the private rows: the rows of each value, or the sum of another column over them.

    Args:
        query: gives the distinct ``x``, the number of rows that have it ``n`` and, unless rows are counted, the sum of ``v``.
        column: gives the x of every row, where only counts are wanted.
        digits: places of a decimal that were made whole.
        least: x is held to it from below (in a clipped sum).
        doubles: the column has these, and otherwise integers or dates.
        as_doubles: decimals of up to :data:`DOUBLE_DIGITS` digits are compared with doubles.
        places: the column has decimals with so many, which are counted as integers without their point (None: it has none).
    """

    query: str
    column: str | None = None
    digits: int = 0
    least: int | None = None
    doubles: bool = False
    as_doubles: bool = False
    places: int | None = None

    def can_compare(self, end: Thresholds) -> bool:
        """Return whether thresholds are compared with its column as the engine would."""
        if self.as_doubles:
            return end.are_floats
        return not end.scale if self.doubles else not (self.digits and end.are_floats)

    @property
    def limited(self) -> str:
        """The query, of which no more rows come than are held here, and one that says that there are more."""
        return f"SELECT * FROM ({self.query}) AS histogram LIMIT {self.limit}"

    @property
    def limit(self) -> int:
        """The rows that are asked for: a histogram of so many is not used."""
        return MAX_BINS + 1


def is_comparable(kind: pa.DataType) -> bool:
    """Return whether values of a type are compared here as DuckDB compares them."""
    if pa.types.is_integer(kind):
        return bool(kind != pa.uint64())
    return kind in (pa.float64(), pa.date32(), pa.null()) or is_decimal(kind)


def is_decimal(kind: pa.DataType) -> bool:
    """Return whether a type is a decimal of up to 128 bits with its places inside."""
    return bool(pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision)


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of candidates: doubles, or integers of ``scale`` places (NULL: any number)."""

    values: NDArray[Any]
    scale: int = 0
    missing: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Thresholds | None:
        """Read a column; None for types that are not compared here, and decimals beyond 64 bits."""
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
        """True where the thresholds are doubles."""
        return self.values.dtype.kind == "f"

    @property
    def extremes(self) -> Thresholds:
        """The least and the greatest: NaN is that."""
        return Thresholds(np.array([np.fmin.reduce(self.values), np.maximum.reduce(self.values)]), self.scale)

    def edge(self, digits: int, after: bool) -> NDArray[np.int64]:
        """Return the integer edges of values that have ``digits`` places made whole.

        A value is below its edge (``after``: at most its edge) exactly if it is below the threshold (at most it). Of a double
        from 2**53 on, an infinity or NaN it is an end of 64 bits, which :func:`find_span` refuses; where values have places,
        a number beyond them all.
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
            # A decimal whose places are made whole has 18 digits: all that is cut off here is beyond them.
            return self.values if times == 1 else np.clip(self.values, -SAFE // times, SAFE // times) * times
        by = 10 ** (self.scale - digits)
        if by > INT64_MAX:  # less than one
            return np.where(self.values < 0, -1, 0) if after else np.where(self.values > 0, 1, 0)
        return np.asarray(self.values // by if after else -(-self.values // by), dtype=np.int64)

    def _decimal_edge(self, digits: int, after: bool) -> NDArray[np.int64]:
        """Return the edges of decimals, which become doubles: the first or last integer whose quotient is on that side.

        The integer nearest to the product is at most one off, for quotients of integers below 10**15 are further apart than
        two roundings. What is beyond these is above, or below, them all; NaN is the greatest number.
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
    """Read the integers behind decimals (NULL: any number); None where they need more than 64 bits."""
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
    """Find the integers between which all thresholds lie; None where they can't be counted one by one."""
    if counted.doubles or not ends or not all(len(end.values) for end in ends):
        return None
    ends = [end.extremes for end in ends]  # a greater threshold has no lesser edge
    low = min(int(end.edge(counted.digits, after=False)[0]) for end in ends) - 1
    high = max(int(end.edge(counted.digits, after=True)[1]) for end in ends) + 1
    if counted.least is not None:
        low, high = counted.least, max(counted.least, high)
    return None if max(-low, high) >= SAFE else (low, high)


@dataclass(frozen=True)
class PrefixSums:
    """Values in order, with sums over those before each (and over all): of what is added, and of rows.

    ``first``: the values are ``first``, ``first + 1``, ..., and rows beyond count at the ends.
    """

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
        """Sum the counts of values that are in order."""
        sums = accumulate(counts)
        return cls(x, sums, sums, digits)

    @property
    def total(self) -> int:
        """The sum over all values."""
        return int(self.sums[-1])

    @property
    def are_floats(self) -> bool:
        """True where the values are doubles."""
        return bool(self.x.dtype.kind == "f")

    def is_comparable_with(self, end: Thresholds) -> bool:
        """Return whether such thresholds are compared with the values as the engine would."""
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
        table = np.zeros(width + 1, dtype=np.intp)  # table[k]: how many values are below first + k
        table[self.x - first + 1] = 1
        np.cumsum(table, out=table)
        return np.asarray(table[_place_from(edge, first, width, after)], dtype=np.intp)

    def clipped(self, end: Thresholds) -> Integers:
        """Return the sum of the values, each held to at most b (b NULL: 0): values are integers here."""
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
    """Return the sums before each place, and the whole."""
    wide = v.dtype == object or find_largest(v) * len(v) >= _SAFE
    out = np.zeros(len(v) + 1, dtype=object if wide else np.int64)
    np.cumsum(v.astype(object) if wide else v, out=out[1:])
    return out
