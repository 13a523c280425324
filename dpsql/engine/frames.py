"""Tables in memory as Arrow, read once when a session opens, without the values that make DuckDB fail.

DuckDB takes Arrow's values on trust: one text that is not UTF-8 ends its whole instance. Such values become NULL, as do
times beyond a day and their like; good columns are passed on without a copy.

A column of Python objects has the type of its values, so one person's value would decide it. Here it becomes text,
value by value, and the policy says what type it is read as.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import numbers
import uuid
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpsql.errors import PolicyError

_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_EACH = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FIRST, _LAST = -9_223_372_022_400, 9_223_372_036_854
"""The first and the last whole second of DuckDB's TIMESTAMP."""
_FIRST_NS = -9_223_286_400_000_000_000
_LAST_DAY = 2**31 - 1
_INFINITE = 2**63 - 1
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def clean_table(table: pa.Table) -> pa.Table:
    """Replace values that DuckDB can't take by NULL; other columns are passed on."""
    for index, field in enumerate(table.schema):
        held = table.column(index).chunks
        chunks = [clean_array(chunk) for chunk in held]
        if any(new is not old for new, old in zip(chunks, held, strict=True)):
            table = table.set_column(index, field.with_nullable(True), pa.chunked_array(chunks, field.type))
    return table


def clean_array(array: pa.Array) -> pa.Array:
    """Replace values that DuckDB can't take by NULL; return the array itself where all are good."""
    kind = array.type
    if isinstance(kind, pa.ExtensionType):
        held = array.storage
        storage = clean_array(held)
        return array if storage is held else pa.ExtensionArray.from_storage(kind, storage)
    if any(is_text(kind) for is_text in _TEXTS):
        return array if _is_valid(array) else _clean_text(array)
    ends = _find_ends(kind)
    if ends is not None:
        return _keep_within(array, *ends)
    if pa.types.is_decimal(kind):
        return array if _is_valid(array) else _clean_decimal(array)
    if pa.types.is_dictionary(kind):
        held = array.dictionary
        inner = clean_array(held)
        return array if inner is held else _drop_words(array, inner)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        held = array.values
        inner = clean_array(held)
        if inner is held:
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
    # No expression takes a value of the rest (maps, unions): where one is wrong, the column is NULL.
    return array if _is_valid(array) else pa.nulls(len(array), kind)


def _find_ends(kind: pa.DataType) -> tuple[pa.DataType, int, int] | None:
    """Return the integer type behind moments, and the least and greatest that are finite in DuckDB."""
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
    if pa.types.is_timestamp(array.type):  # DuckDB's infinite ones
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
    """Make rows of a dictionary NULL where their word is; all others keep theirs."""
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
    held = array.buffers()[1]
    most = 10**array.type.precision
    good = np.zeros(len(array), bool)
    for index in range(len(array) if held is not None else 0):
        place = (array.offset + index) * size
        value = int.from_bytes(held[place : place + size].to_pybytes(), "little", signed=True)
        good[index] = abs(value) < most
    return pc.if_else(pa.array(good), array, pa.scalar(None, array.type))


def _finish(name: str, table: pa.Table) -> pa.Table:
    """Return a table of types that DuckDB reads, without values that it can't take; half floats become floats.

    Raises:
        PolicyError: a column has no such type.
    """
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_float16(field.type):
            table = table.set_column(place, field.with_type(pa.float32()), _widen_halves(column))
        elif pa.types.is_decimal(field.type) and field.type.bit_width > 128:
            table = table.set_column(place, field.with_type(pa.float64()), _to_doubles(column))
    for field in table.schema:
        if not _is_read(field.type):
            raise PolicyError(
                f"the column {field.name} of {name} is of Arrow's type {field.type}, which can't be read.",
                hint="cast it to numbers, texts, dates or lists of these, or leave it out.",
            )
    return clean_table(table)


def _widen_halves(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return half floats as floats."""
    chunks = [pa.array(chunk.to_pylist(), pa.float32()) for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.float32())


def _to_doubles(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return decimals of more than 38 digits as doubles."""
    values = ([None if v is None else float(v) for v in chunk.to_pylist()] for chunk in column.chunks)
    return pa.chunked_array([pa.array(chunk, pa.float64()) for chunk in values], pa.float64())


_PLAIN_TYPES = (
    pa.types.is_integer, pa.types.is_boolean, pa.types.is_float32, pa.types.is_float64, pa.types.is_string, pa.types.is_date,
    pa.types.is_large_string, pa.types.is_timestamp,
)  # fmt: skip


def _is_read(kind: pa.DataType) -> bool:
    """Return whether DuckDB reads a type: it is asked, except for plain types."""
    if any(is_kind(kind) for is_kind in _PLAIN_TYPES):
        return True
    try:
        with duckdb.connect(":memory:") as con:
            con.register("frame", pa.schema([("x", kind)]).empty_table())
            con.execute("SELECT x FROM frame").fetchall()
    except (duckdb.Error, pa.ArrowException, NotImplementedError, ValueError, TypeError):
        return False
    return True


_OBJECTS = b"dpsql objects"


def to_arrow(name: str, frame: Any) -> pa.Table:
    """Convert a frame, lists by the names of columns, or anything of Arrow's, to what DuckDB reads without looking at values.

    Lists and columns of objects become texts (see :func:`list_object_columns`); values that DuckDB can't take become NULL.

    Raises:
        PolicyError: it is no table, or has a column that Arrow can't hold.
    """
    module = type(frame).__module__.partition(".")[0]
    wrong = None
    try:
        if module == "pandas":
            return _finish(name, _convert(_list_pandas(frame)))
        if module == "polars":
            return _finish(
                name, _convert(_list_polars(frame.collect() if hasattr(frame, "collect") else frame))
            )
        if isinstance(frame, Mapping):
            return _finish(name, _convert((str(column), values, True) for column, values in frame.items()))
        if type(frame).__module__ == "pyarrow._dataset":
            return _finish(name, frame.to_table())
        if hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__"):
            return _finish(name, frame if isinstance(frame, pa.Table) else pa.table(frame))
    except (pa.ArrowException, ValueError, TypeError, NotImplementedError):
        wrong = "a column of it is of a type that Arrow has not"
    if wrong is not None:
        raise PolicyError(f"the table {name} can't be read: {wrong}.", hint="give each column one type.")
    raise PolicyError(
        f"the table {name} is a {type(frame).__name__}, and that is no table.",
        hint="give a pandas, polars or Arrow table, or a dict of lists.",
    )


_DIGESTED = 1 << 20
"""Rows of a frame that are copied at once for its digest."""


class _Hash:
    """A file whose bytes are hashed and not kept."""

    closed = False

    def __init__(self) -> None:
        self.made = hashlib.sha256()

    def write(self, content: Any) -> int:
        """Hash some bytes."""
        self.made.update(content)
        return len(content)

    def flush(self) -> None:
        """Do nothing: nothing is kept back."""

    def close(self) -> None:
        """Do nothing: there is no file."""


def digest_table(table: pa.Table) -> str | None:
    """Return the SHA-256 of a table's schema and rows; None where Arrow can't write them.

    Equal digests mean equal rows. The same rows may have two digests, as where a missing value has other bytes behind it.
    """
    table, found = table.replace_schema_metadata(None), _Hash()
    with contextlib.suppress(pa.ArrowException):
        with pa.ipc.new_stream(pa.PythonFile(found, mode="w"), table.schema) as writer:
            for start in range(0, table.num_rows, _DIGESTED):
                rows = table.slice(start, _DIGESTED).combine_chunks()
                if rows.num_rows < _DIGESTED:  # bits behind the last row may be anything
                    rows = rows.take(pa.array(np.arange(rows.num_rows)))
                writer.write_table(rows)
        return found.made.hexdigest()
    return None


def list_object_columns(frame: Any) -> set[str] | None:
    """Return the columns of a table of :func:`to_arrow` that were objects; None where there is no table."""
    if frame is None:
        return None
    return {field.name for field in frame.schema if (field.metadata or {}).get(_OBJECTS)}


def list_orders(frame: pa.Table) -> dict[str, tuple[str, ...]]:
    """Return the categories of a table's ordered dictionaries of texts; none where two of its parts have others.

    Whether a column is among them depends on its type alone, since statements are refused by that.
    """
    found = {}
    for place, field in enumerate(frame.schema):
        kind = field.type
        if (
            pa.types.is_dictionary(kind)
            and kind.ordered
            and any(is_text(kind.value_type) for is_text in _TEXTS)
        ):
            chunks = frame.column(place).chunks
            listed = {tuple(dict.fromkeys(chunk.dictionary.to_pylist())) for chunk in chunks}
            found[field.name] = listed.pop() if len(listed) == 1 else ()
    return found


_Columns = Iterator[tuple[str, Any, bool]]
"""Names and values of columns, and whether these are Python objects."""


def _list_pandas(frame: Any) -> _Columns:
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place]
        kinds = (column.dtype, getattr(getattr(column.dtype, "categories", None), "dtype", None))
        if any(kind == np.dtype(object) for kind in kinds if isinstance(kind, np.dtype)):
            yield str(name), column.astype(object), True
        else:
            yield str(name), pa.Table.from_pandas(column.to_frame(), preserve_index=False).column(0), False


def _list_polars(frame: Any) -> _Columns:
    for column in frame.get_columns():
        objects = str(column.dtype) == "Object"
        yield column.name, column.to_list() if objects else column.to_arrow(), objects


def _convert(columns: _Columns) -> pa.Table:
    """Return a table, in which objects are texts."""
    arrays, fields = [], []
    for name, values, objects in columns:
        arrays.append(pa.array(map(write_value, values), pa.large_string()) if objects else values)
        fields.append(pa.field(name, arrays[-1].type, metadata={_OBJECTS: b"1"} if objects else None))
    return pa.table(arrays, pa.schema(fields))


def write_value(value: Any) -> str | None:
    """Write a Python value as the text that its type is read from; None where it has none.

    >>> [write_value(value) for value in (2.5, True, [1, "a"], object(), float("nan"))]
    ['2.5', 'true', '[1, "a"]', None, None]
    """
    try:
        text = _write(value)
        return text if text is None or text.isascii() or text.encode() else None
    except Exception:  # a value may be of any class
        return None


def _write(value: Any) -> str | None:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, default=_write)
    found = next((write for kind, write in _WRITERS if isinstance(value, kind)), None)
    return None if found is None or value != value else found(value)  # NaN and NaT differ from themselves


_WRITERS: tuple[tuple[Any, Callable[[Any], str | None]], ...] = (
    (str, str),
    (bool, lambda value: "true" if value else "false"),
    (numbers.Integral, lambda value: str(int(value))),
    (float, lambda value: repr(float(value))),
    (Decimal, lambda value: str(value) if value.is_finite() else None),
    (datetime.datetime, lambda value: value.isoformat(sep=" ")),
    ((datetime.date, datetime.time), lambda value: value.isoformat()),
    (datetime.timedelta, lambda value: f"{value // datetime.timedelta(microseconds=1)} microseconds"),
    (uuid.UUID, str),
    (bytes, lambda value: "".join(f"\\x{byte:02X}" for byte in value)),
)
"""Classes of values, the narrower first, and the texts that DuckDB reads as their types."""
