"""Exact numbers: integers in arrays and columns, and fractions rounded in favour of privacy.

Arrays have int64 values if all fit with room to add, else Python integers. A loss is a :class:`~fractions.Fraction`, rounded
up; a remaining budget is rounded down. :mod:`decimal` evaluates transcendental functions, with correctly rounded exp and
ln. Its digits suffice for a margin, added before rounding, that exceeds the error.
"""

from __future__ import annotations

import decimal
import operator
import re
import sys
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from math import isqrt
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# -- integers in arrays -----------------------------------------------------------------------------------------------

Integers = NDArray[Any]
"""One-dimensional integers: int64, or Python integers in an object array."""
Floats = NDArray[np.float64]
NumberArray = NDArray[Any]
"""One-dimensional integers of any width, or doubles."""

SAFE = 1 << 62
"""Two numbers below this in size add up within int64."""
_NARROW = 1 << 61
"""Sums and products below this stay in int64: the result of one more step fits it too."""
_LAST_DOUBLE = Fraction(sys.float_info.max)


def to_integers(values: Sequence[int] | Integers) -> Integers:
    """Return a one-dimensional integer array: int64 if all values are within ±2**62, else Python integers.

    Raises:
        TypeError: a value is no integer.

    >>> to_integers([1, 2**70]).dtype, to_integers([1, 2]).dtype
    (dtype('O'), dtype('int64'))
    """
    array: Integers = np.asarray(values)
    if array.dtype.kind in "iub":
        if array.dtype.kind == "u" and array.size and int(array.max()) >= SAFE:
            return array.astype(object)
        array = array.astype(np.int64, copy=False)
        fits = not array.size or -SAFE < int(array.min()) <= int(array.max()) < SAFE
        return array if fits else array.astype(object)
    # numpy mixes 0 and 2**63 as floats, so the given values decide
    wide = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        try:
            wide[i] = operator.index(value)
        except TypeError:
            raise TypeError("an exact statistic must be an integer") from None
    return wide.astype(np.int64) if all(-SAFE < v < SAFE for v in wide) else wide


def multiply_integers(a: Integers | int, b: Integers | int) -> Any:
    """Multiply numbers or arrays of one length, in int64 if all products certainly fit.

    >>> multiply_integers(to_integers([3, 4]), 1 << 60).tolist() == [3 << 60, 4 << 60]
    True
    """
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if isinstance(a, int) and a == 1:
        return b
    if isinstance(b, int) and b == 1:
        return a
    if _wide(a, b) or find_largest(a) * find_largest(b) >= _NARROW:
        return _objects(a) * _objects(b)
    return a * b


def add_integers(a: Integers | int, b: Integers | int) -> Any:
    """Add numbers or arrays of one length, in int64 if all sums certainly fit."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if isinstance(a, int) and a == 0:
        return b
    if _wide(a, b) or find_largest(a) + find_largest(b) >= _NARROW:
        return to_integers(_objects(a) + _objects(b))
    return a + b


def find_largest(v: Integers | int) -> int:
    """Return the greatest absolute value."""
    if isinstance(v, int):
        return abs(v)
    return max(abs(int(v.max())), abs(int(v.min()))) if v.size else 0


def _wide(*numbers: Integers | int) -> bool:
    return any(not isinstance(v, int) and v.dtype == object for v in numbers)


def _objects(v: Integers | int) -> Any:
    return v if isinstance(v, int) else v.astype(object)


# -- columns ----------------------------------------------------------------------------------------------------------

_NUMBERS = {pa.int64(): np.int64, pa.int32(): np.int32, pa.float64(): np.float64}
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_FEW = 8
"""Number of values up to which reading in Python is faster than a cast in Arrow."""


def read_integers(column: pa.ChunkedArray) -> Integers:
    """Read an exact column as int64 or, if need be, Python integers, NULL as 0; TypeError for other columns."""
    kind = column.type
    whole = pa.types.is_integer(kind) or pa.types.is_null(kind)
    if not whole and not (pa.types.is_decimal(kind) and kind.scale == 0):
        raise TypeError("an exact statistic must be an integer column")
    try:
        if not column.null_count and len(column) > _FEW:
            chunks = [np.from_dlpack(chunk) for chunk in column.cast(pa.int64()).chunks if len(chunk)]
            return np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.int64)
    except pa.ArrowInvalid:
        pass
    values = [int(v) if v is not None else 0 for v in column.to_pylist()]
    fits = all(INT64_MIN <= v <= INT64_MAX for v in values)
    out = np.empty(len(values), dtype=np.int64 if fits else object)
    out[:] = values
    return out


def make_doubles(values: NumberArray, present: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return a column of floats, NULL unless ``present``."""
    return _make_column(values.astype(np.float64), pa.float64(), present)


def make_longs(values: Integers, present: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return a column of 64-bit integers, NULL unless ``present``."""
    return _make_column(values.astype(np.int64), pa.int64(), present)


def to_mask(values: NDArray[np.bool_]) -> pa.Array:
    """Return a column of truth values."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _pack(values)])


def make_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of Python's values: integers, doubles, truth values, texts, integers as decimals of 38 digits, or lists
    of these, or maps as lists of pairs.

    ``pa.array`` would import pandas first, if it is installed: it makes the columns of other kinds alone.

    Raises:
        OverflowError: an integer has too many bits or digits.

    >>> make_values([1, None, 10**37], pa.decimal128(38, 0)).to_pylist()
    [Decimal('1'), None, Decimal('10000000000000000000000000000000000000')]
    >>> make_values([[0.5], None, []], pa.list_(pa.float64())).to_pylist()
    [[0.5], None, []]
    >>> make_values([[("a", 1)], None], pa.map_(pa.string(), pa.int64())).to_pylist()
    [[('a', 1)], None]
    """
    nested = pa.types.is_list(kind) or pa.types.is_map(kind)
    if not (nested or kind in _NUMBERS or kind in (pa.string(), pa.bool_(), pa.decimal128(38, 0))):
        return pa.array(values, kind)
    there = np.array([value is not None for value in values], dtype=np.bool_)
    held = None if there.all() else _pack(there)
    if nested:
        lists = [value or [] for value in values]
        ends = np.cumsum([0, *map(len, lists)])
        buffers = [held, pa.py_buffer(ends.astype(np.int32))]
        items = _make_items([*chain.from_iterable(lists)], kind)
        return pa.Array.from_buffers(kind, len(values), buffers, children=[items])
    if kind == pa.string():
        texts = [b"" if value is None else value.encode() for value in values]
        ends = np.cumsum([0, *map(len, texts)])
        if int(ends[-1]) >= 1 << 31:
            raise OverflowError("texts of 2 GiB")
        buffers = [pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(texts))]
    elif kind == pa.decimal128(38, 0):
        buffers = [pa.py_buffer(b"".join(_write_decimal(value or 0) for value in values))]
    elif kind == pa.bool_():
        buffers = [_pack(np.array([bool(value) for value in values], dtype=np.bool_))]
    else:
        filled = [0 if value is None else value for value in values]
        buffers = [pa.py_buffer(np.array(filled, dtype=_NUMBERS[kind]))]
    return pa.Array.from_buffers(kind, len(values), [held, *buffers])


def _make_items(items: list[Any], kind: pa.DataType) -> pa.Array:
    """Return the items of all lists of this type, or the pairs of all maps."""
    if not pa.types.is_map(kind):
        return make_values(items, kind.value_type)
    fields = [kind.key_field, kind.item_field]
    columns = [make_values([pair[i] for pair in items], field.type) for i, field in enumerate(fields)]
    return pa.StructArray.from_arrays(columns, fields=fields)


def _write_decimal(value: int) -> bytes:
    if abs(value) >= 10**38:
        raise OverflowError("more than 38 digits")
    return value.to_bytes(16, "little", signed=True)


def _pack(values: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _make_column(values: NumberArray, kind: pa.DataType, present: NDArray[np.bool_] | None) -> pa.Array:
    """Return an Arrow column over numpy's memory. ``pa.array`` would import pandas first: 30 MiB, and half a second."""
    held = None if present is None else _pack(present)
    return pa.Array.from_buffers(kind, len(values), [held, pa.py_buffer(np.ascontiguousarray(values))])


# -- amounts as people read them --------------------------------------------------------------------------------------

NEAR = Context(prec=4, rounding=ROUND_HALF_EVEN)
UP = Context(prec=4, rounding=ROUND_CEILING)
DOWN = Context(prec=4, rounding=ROUND_FLOOR)


def parse_amount(text: object) -> Fraction:
    """Parse a non-negative exact number.

    Raises:
        ValueError: the text is anything else (NaN, infinity, a sign).

    >>> parse_amount("1/10")
    Fraction(1, 10)
    """
    if not isinstance(text, str) or not text.isascii() or not text.replace("/", "", 1).isdigit():
        raise ValueError(text)
    return Fraction(text)


def write_short(value: Fraction, rounding: Context = NEAR) -> str:
    """Write a number to four digits: spent amounts are rounded ``UP``, remaining ones ``DOWN``.

    >>> write_short(Fraction(1, 10)), write_short(Fraction(3)), write_short(Fraction(1, 3), UP)
    ('0.1', '3', '0.3334')
    """
    rounded = rounding.divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{float(rounded):.4g}"


def write_pair(epsilon: Fraction, delta: Fraction, rounding: Context = NEAR) -> str:
    """Write ``"ε=0.1"``, or ``"ε=0.1, δ=1e-07"`` where delta is not 0."""
    text = f"ε={write_short(epsilon, rounding)}"
    return text if delta == 0 else f"{text}, δ={write_short(delta, rounding)}"


@lru_cache(maxsize=1024)
def write_number(value: Fraction, *, up: bool = True) -> str:
    """Write a number exactly if it is a short decimal, else rounded (up by default).

    >>> write_number(Fraction(1, 10)), write_number(Fraction(3)), write_number(Fraction(1, 10**7))
    ('0.1', '3', '1e-07')
    >>> write_number(Fraction(1, 3))
    '0.3334'
    """
    shortest = repr(float(value))
    exact = Fraction(shortest) == value and len(shortest.replace(".", "").strip("0")) <= 10
    shown = float(Fraction(shortest) if exact else round_significant(value, up=up))
    if shown == 0 or 1e-4 <= abs(shown) < 1e15:
        return f"{shown:.10g}"
    mantissa, _, exponent = f"{shown:.9e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}"


_EXACT = re.compile(r"([0-9]+)(?:/([0-9]+)|e-([0-9]{1,3}))?")


def write_exactly(value: Fraction) -> str:
    """Write a number that is not below 0 exactly, in short: with a power of ten if that is its denominator's multiple.

    >>> write_exactly(Fraction(1, 3)), write_exactly(Fraction(1, 8)), write_exactly(Fraction(7))
    ('1/3', '125e-3', '7')
    """
    places = _count_places(value.denominator)
    if not places:
        return str(value)
    return f"{value.numerator * 10**places // value.denominator}e-{places}"


def read_exactly(text: str) -> Fraction:
    """Read a number of :func:`write_exactly`; ValueError or ZeroDivisionError if it is none."""
    found = _EXACT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    above, below, places = found.groups()
    return Fraction(int(above), 10 ** int(places) if places else int(below or 1))


@lru_cache(maxsize=1024)
def _count_places(denominator: int) -> int:
    """Return the places of decimals with a denominator; 0 for a whole number, and if they never end."""
    most = denominator.bit_length() - 1
    return next((n for n in range(most + 1) if 10**n % denominator == 0), 0) if most < 1000 else 0


# -- rounding ---------------------------------------------------------------------------------------------------------

GRID = 10**30
"""NumberArray that are not exact are whole multiples of one part in ``GRID``, so that sums stay cheap."""

MARGIN = Decimal(10) ** -45
"""More than the error of any constant that is evaluated with :data:`DIGITS`."""

DIGITS = 110

_LONGEST_DENOMINATOR = 256  # bits above which an exact number is replaced by a coarser one
EXACT = decimal.Context(
    prec=DIGITS, rounding=decimal.ROUND_HALF_EVEN, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[]
)


def to_decimal(value: Fraction | int) -> Decimal:
    """Return the nearest number with :data:`DIGITS` digits."""
    value = Fraction(value)
    return EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))


def round_up(value: Decimal | Fraction) -> Fraction:
    """Return the smallest multiple of ``1/GRID`` that is not below ``value`` (a Decimal gets the margin first).

    >>> round_up(Fraction(1, 3)) - Fraction(1, 3) < Fraction(1, GRID)
    True
    """
    if isinstance(value, Decimal):
        value = Fraction(EXACT.add(value, MARGIN))
    return Fraction(-(-value.numerator * GRID // value.denominator), GRID)


def round_down(value: Decimal | Fraction) -> Fraction:
    """Return the largest multiple of ``1/GRID`` that is not above ``value`` (a Decimal loses the margin first)."""
    if isinstance(value, Decimal):
        value = Fraction(EXACT.subtract(value, MARGIN))
    return Fraction(value.numerator * GRID // value.denominator, GRID)


def shorten(value: Fraction) -> Fraction:
    """Return ``value``, rounded up to the grid if its denominator grew long; so ten times 0.1 stays exactly 1."""
    return value if is_short(value.denominator) else round_up(value)


def is_short(denominator: int) -> bool:
    """Return whether :func:`shorten` keeps fractions with a denominator, or a divisor of it."""
    return denominator.bit_length() <= _LONGEST_DENOMINATOR


def compute_root(value: Fraction) -> Fraction:
    """Compute the square root, rounded up; exact if it is rational.

    >>> compute_root(Fraction(9, 4))
    Fraction(3, 2)
    """
    top, bottom = isqrt(value.numerator), isqrt(value.denominator)
    if top * top == value.numerator and bottom * bottom == value.denominator:
        return Fraction(top, bottom)
    return Fraction(isqrt(value.numerator * GRID * GRID // value.denominator) + 1, GRID)


def round_significant(value: Fraction, digits: int = 4, *, up: bool = False) -> Fraction:
    """Round ``value`` down (or up) to a number of significant decimal digits.

    >>> round_significant(Fraction(2, 3)), round_significant(Fraction(2, 3), 2, up=True)
    (Fraction(3333, 5000), Fraction(67, 100))
    """
    if value == 0:
        return value
    context = decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR)
    return Fraction(context.divide(Decimal(value.numerator), Decimal(value.denominator)))


def floor_log2(value: Fraction) -> int:
    """Return the largest e with ``2**e <= value``, for a value above 0.

    >>> floor_log2(Fraction(1, 3)), floor_log2(Fraction(8))
    (-2, 3)
    """
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def hold_to_doubles(value: Fraction) -> float:
    """Return the nearest double, or the largest one for larger numbers.

    >>> hold_to_doubles(Fraction(1, 2)), hold_to_doubles(Fraction(-(10**400)))
    (0.5, -1.7976931348623157e+308)
    """
    return float(min(max(value, -_LAST_DOUBLE), _LAST_DOUBLE))


def pack_integers(values: Integers) -> pa.Array:
    """Return a column of integers of any size: of text if some take more than 64 bits."""
    if values.dtype == np.int64:
        return make_longs(values)
    return pa.array([str(int(v)) for v in values], pa.string())


def unpack_integers(column: pa.ChunkedArray) -> Integers:
    """Read the integers that :func:`pack_integers` wrote."""
    if pa.types.is_string(column.type):
        return to_integers([int(v) for v in column.to_pylist()])
    return read_integers(column)
