"""Arrow arrays without values on which DuckDB fails.

DuckDB trusts Arrow's values: one text that is not UTF-8 ends its whole instance. Invalid values become NULL. Valid columns are
not copied.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_EACH = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST, _LAST = -9_223_372_022_400, 9_223_372_036_854
"""The first and the last whole second of DuckDB's TIMESTAMP."""
_FIRST_NS = -9_223_286_400_000_000_000
_LAST_DAY = 2**31 - 1
_INFINITE = 2**63 - 1
TEXT_TESTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
"""Tests of types of texts."""


def clean_table(table: pa.Table) -> pa.Table:
    """Replace invalid values by NULL, and return other columns unchanged."""
    for index, field in enumerate(table.schema):
        given = table.column(index).chunks
        chunks = [clean_array(chunk) for chunk in given]
        if any(new is not old for new, old in zip(chunks, given, strict=True)):
            table = table.set_column(index, field.with_nullable(True), pa.chunked_array(chunks, field.type))
    return table


def clean_array(array: pa.Array) -> pa.Array:
    """Replace invalid values by NULL; return the array itself if all are valid."""
    kind = array.type
    if isinstance(kind, pa.ExtensionType):
        given = array.storage
        storage = clean_array(given)
        return array if storage is given else pa.ExtensionArray.from_storage(kind, storage)
    if any(is_text(kind) for is_text in TEXT_TESTS):
        return array if _is_valid(array) else _clean_text(array)
    ends = _find_ends(kind)
    if ends is not None:
        return _keep_within(array, *ends)
    if pa.types.is_decimal(kind):
        return array if _is_valid(array) else _clean_decimal(array)
    if pa.types.is_dictionary(kind):
        given = array.dictionary
        inner = clean_array(given)
        return array if inner is given else _drop_words(array, inner)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        given = array.values
        inner = clean_array(given)
        if inner is given:
            return array
        if array.offset:  # a mask needs an array without an offset
            return clean_array(array.take(pa.array(np.arange(len(array)))))
        made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
        return made.from_arrays(array.offsets, inner, type=kind, mask=array.is_null())
    if pa.types.is_struct(kind):
        parts = array.flatten()
        inner = [clean_array(part) for part in parts]
        if all(new is old for new, old in zip(inner, parts, strict=True)):
            return array
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=array.is_null())
    # No expression can set single values of other types (maps, unions), so one invalid value makes the column NULL.
    return array if _is_valid(array) else pa.nulls(len(array), kind)


def _find_ends(kind: pa.DataType) -> tuple[pa.DataType, int, int] | None:
    """Return the integer type of a date or time type, and its least and greatest finite values in DuckDB."""
    if pa.types.is_time(kind):
        return (pa.int32() if kind.bit_width == 32 else pa.int64()), 0, _DAY[kind.unit]
    if pa.types.is_date32(kind):
        return pa.int32(), -_LAST_DAY, _LAST_DAY
    if pa.types.is_date64(kind):
        return pa.int64(), -_LAST_DAY * _DAY["ms"], _LAST_DAY * _DAY["ms"]
    if pa.types.is_duration(kind) or pa.types.is_timestamp(kind):
        each = _EACH[kind.unit]
        least = _FIRST_NS if kind.unit == "ns" else _FIRST * each
        return pa.int64(), least, min(_INFINITE - 1, _LAST * each + each - 1)
    return None


def _keep_within(array: pa.Array, whole: pa.DataType, least: int, most: int) -> pa.Array:
    numbers = array.view(whole)
    ends = pc.min_max(numbers)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or (least <= low and high <= most):
        return array
    inside = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most))
    if pa.types.is_timestamp(array.type):  # DuckDB's infinities
        ends = pa.array([-_INFINITE, _INFINITE], whole)
        inside = pc.or_(inside, pc.is_in(numbers, value_set=ends))
    if pc.all(inside).as_py():
        return array
    return pc.if_else(inside, numbers, pa.scalar(None, whole)).view(array.type)


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _drop_words(array: pa.DictionaryArray, words: pa.Array) -> pa.Array:
    """Make rows of a dictionary NULL if their word is NULL."""
    good = words.drop_null()
    if len(good) == 0:
        return pa.nulls(len(array), array.type)
    there = words.is_valid().take(array.indices)
    indices = pc.if_else(there, array.indices, pa.scalar(None, array.indices.type))
    return pa.DictionaryArray.from_arrays(indices, pc.fill_null(words, good[0]), ordered=array.type.ordered)


def _clean_text(array: pa.Array) -> pa.Array:
    view = pa.types.is_string_view(array.type)
    texts: list[str | None] = []
    for value in array.cast(pa.binary_view() if view else pa.large_binary()).to_pylist():
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            texts.append(None)
    return pa.array(texts, array.type)


def _clean_decimal(array: pa.Array) -> pa.Array:
    size = array.type.bit_width // 8
    given = array.buffers()[1]
    most = 10**array.type.precision
    good = np.zeros(len(array), bool)
    for index in range(len(array) if given is not None else 0):
        place = (array.offset + index) * size
        value = int.from_bytes(given[place : place + size].to_pybytes(), "little", signed=True)
        good[index] = abs(value) < most
    return pc.if_else(pa.array(good), array, pa.scalar(None, array.type))
