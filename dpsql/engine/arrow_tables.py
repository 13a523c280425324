"""Frames and Arrow objects as tables that DuckDB can read, without values on which it fails.

DuckDB trusts Arrow's values: one text that is not UTF-8 ends its whole instance. Invalid values become NULL. Valid columns are
not copied. A column of Python objects takes its type from its values, so one person's value would decide it. It becomes text
instead, value by value, and the policy declares its type.
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

_KNOWN_EXTENSIONS = ("arrow.uuid", "arrow.json")
"""Extension types that DuckDB reads as types of its own; DuckDB 1.5 fails on booleans of eight bits."""


def _simplify(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in a type that DuckDB reads: storage for extensions, floats for halves and wide decimals."""
    kind = column.type
    inner = kind.value_type if pa.types.is_dictionary(kind) else None
    plain = inner is None or any(is_text(inner) for is_text in TEXT_TESTS) or pa.types.is_primitive(inner)
    if inner is not None and not plain:  # DuckDB fails on words of some types
        chunks = [chunk.dictionary.take(chunk.indices) for chunk in column.chunks]
        return _simplify(pa.chunked_array(chunks, inner))
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name not in _KNOWN_EXTENSIONS:
        stored = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
        return stored.cast(pa.bool_()) if kind.extension_name == "arrow.bool8" else _simplify(stored)
    half = pa.types.is_float16(kind)
    if half or (pa.types.is_decimal(kind) and kind.bit_width > 128):
        wanted = pa.float32() if half else pa.float64()
        lists = (chunk.to_pylist() for chunk in column.chunks)
        return pa.chunked_array(
            [pa.array([None if v is None else float(v) for v in each], wanted) for each in lists], wanted
        )
    return column


def make_readable(name: str, table: pa.Table) -> pa.Table:
    """Return a table that DuckDB can read, without invalid values; PolicyError if it can't read a column's type."""
    for place, field in enumerate(table.schema):
        column = table.column(place)
        with _naming(field.name, field.type):
            made = _simplify(column)
        if made is not column:
            table = table.set_column(place, field.with_type(made.type), made)
    for field in table.schema:
        if not _is_read(field.type):
            raise PolicyError(
                f"dpsql can't read Arrow's type {field.type} of the column {field.name} of {name}.",
                hint="cast it to numbers, texts, dates or lists of these, or leave it out.",
            )
    return clean_table(table)


_PLAIN_TYPES = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_date,
    pa.types.is_large_string,
    pa.types.is_timestamp,
)


def _is_read(kind: pa.DataType) -> bool:
    """Return whether DuckDB reads a type."""
    if any(is_kind(kind) for is_kind in _PLAIN_TYPES):
        return True
    if pa.types.is_union(kind):
        return False
    try:
        with duckdb.connect(":memory:") as con:
            con.register("frame", pa.Table.from_batches([], pa.schema([("x", kind)])))
            con.execute("SELECT x FROM frame").fetchall()
    except (duckdb.Error, pa.ArrowException, NotImplementedError, ValueError, TypeError):
        return False
    return True


_OBJECTS = b"dpsql objects"


def to_arrow(name: str, frame: Any) -> pa.Table:
    """Convert a frame, mapping or Arrow object (objects to texts, invalid values to NULL); PolicyError if Arrow can't."""
    module = type(frame).__module__.partition(".")[0]
    wrong = None
    what = f"the table {name} is a {type(frame).__name__}, which is no table."
    if hasattr(type(frame), "to_frame"):  # a Series or an Index
        raise PolicyError(what, hint="give its to_frame(), a table of one column.")
    try:
        if module == "pandas":
            return make_readable(name, _convert(_list_pandas(frame)))
        if module == "polars":
            collected = frame.collect() if hasattr(frame, "collect") else frame
            return make_readable(name, _convert(_list_polars(collected)))
        if isinstance(frame, Mapping):
            return make_readable(
                name, _convert((str(column), values, True) for column, values in frame.items())
            )
        if type(frame).__module__ == "pyarrow._dataset":
            return make_readable(name, frame.to_table())
        if hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__"):
            return make_readable(name, frame if isinstance(frame, pa.Table) else pa.table(frame))
    except (pa.ArrowException, ValueError, TypeError, NotImplementedError, OverflowError):
        wrong = "Arrow has no type for one of its columns"
    except AttributeError:  # another object of pandas or polars
        pass
    if wrong is not None:
        raise PolicyError(f"the table {name} can't be read: {wrong}.", hint="give each column one type.")
    raise PolicyError(what, hint="give a pandas, polars or Arrow table, or a dict of lists.")


_DIGESTED = 1 << 20
"""Rows of a frame copied at once for its digest."""


class _Hash:
    """A file that only hashes its bytes."""

    closed = False

    def __init__(self) -> None:
        self.made = hashlib.sha256()

    def write(self, content: Any) -> int:
        """Hash some bytes."""
        self.made.update(content)
        return len(content)

    def flush(self) -> None:
        """Flush nothing: there is no buffer."""

    def close(self) -> None:
        """Close nothing: there is no file."""


def digest_table(table: pa.Table) -> str | None:
    """Return the SHA-256 of schema and rows; None if Arrow can't write them. Equal digests mean equal rows, not vice versa."""
    table, found = table.replace_schema_metadata(None), _Hash()
    with contextlib.suppress(pa.ArrowException):
        with pa.ipc.new_stream(pa.PythonFile(found, mode="w"), table.schema) as writer:
            for start in range(0, table.num_rows, _DIGESTED):
                rows = table.slice(start, _DIGESTED).combine_chunks()
                if rows.num_rows < _DIGESTED:  # bits after the last row may be anything
                    rows = rows.take(pa.array(np.arange(rows.num_rows)))
                writer.write_table(rows)
        return found.made.hexdigest()
    return None


def list_object_columns(frame: Any) -> set[str] | None:
    """Return the columns of a table of :func:`to_arrow` that were objects; None if there is no table."""
    if frame is None:
        return None
    return {field.name for field in frame.schema if (field.metadata or {}).get(_OBJECTS)}


def list_orders(frame: pa.Table) -> dict[str, tuple[str, ...]]:
    """Return the categories of ordered dictionaries of texts, by column type alone; empty if chunks have different ones."""
    found = {}
    for place, field in enumerate(frame.schema):
        kind = field.type
        ordered = pa.types.is_dictionary(kind) and kind.ordered
        if ordered and any(is_text(kind.value_type) for is_text in TEXT_TESTS):
            chunks = frame.column(place).chunks
            listed = {tuple(dict.fromkeys(chunk.dictionary.to_pylist())) for chunk in chunks}
            found[field.name] = listed.pop() if len(listed) == 1 else ()
    return found


_Columns = Iterator[tuple[str, Any, bool]]
"""Names and values of columns, and whether these are Python objects."""


@contextlib.contextmanager
def _naming(name: str, kind: object) -> Iterator[None]:
    """Name the column in an error of Arrow, pandas or polars, which may quote a value."""
    wrong = False
    try:
        yield
    except (pa.ArrowException, ValueError, TypeError, NotImplementedError, OverflowError, AttributeError):
        wrong = True
    if wrong:
        raise PolicyError(
            f"dpsql can't read the type {kind} of the column {name}, because Arrow has no such type.",
            hint="cast it to numbers, texts, dates or lists of these, or leave it out.",
        )


def _list_pandas(frame: Any) -> _Columns:
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place]
        if hasattr(column.dtype, "fill_value"):
            column = column.sparse.to_dense()
        categories = getattr(column.dtype, "categories", None)
        if isinstance(column.dtype, np.dtype) and column.dtype == np.dtype(object):
            yield str(name), column, True
        elif categories is not None and categories.dtype == np.dtype(object):
            words = pa.array(map(write_value, categories), pa.large_string())
            codes = pa.array(column.cat.codes, mask=column.isna())
            yield str(name), pa.DictionaryArray.from_arrays(codes, words, ordered=column.cat.ordered), False
        else:
            if column.dtype == np.dtype(np.longdouble):
                column = column.astype(np.float64)
            with _naming(str(name), column.dtype):
                made = pa.Table.from_pandas(column.to_frame(), preserve_index=False).column(0)
            yield str(name), made, False


def _list_polars(frame: Any) -> _Columns:
    for column in frame.get_columns():
        objects = str(column.dtype) == "Object"
        with _naming(column.name, column.dtype):
            if str(column.dtype) in (
                "Int128",
                "UInt128",
            ):  # Arrow has decimals of 128 bits, and no such integers
                import polars

                column = column.cast(polars.Decimal(38, 0), strict=False)
            made = column.to_list() if objects else column.to_arrow()
            if str(column.dtype).startswith("Enum"):  # older versions of polars lose the order
                made = pa.DictionaryArray.from_arrays(made.indices, made.dictionary, ordered=True)
        yield column.name, made, objects


def _convert(columns: _Columns) -> pa.Table:
    """Return a table of columns, with texts for objects."""
    arrays, fields = [], []
    for name, values, objects in columns:
        arrays.append(pa.array(map(write_value, values), pa.large_string()) if objects else values)
        fields.append(pa.field(name, arrays[-1].type, metadata={_OBJECTS: b"1"} if objects else None))
    return pa.table(arrays, pa.schema(fields))


def write_value(value: object) -> str | None:
    """Return a Python value as the text that DuckDB reads as its type; None if there is none.

    >>> [write_value(value) for value in (2.5, True, [1, "a"], object(), float("nan"))]
    ['2.5', 'true', '[1, "a"]', None, None]
    """
    try:
        text = _write(value)
        return text if text is None or text.isascii() or text.encode() else None
    except Exception:  # a value may be of any class
        return None


def _write(value: object) -> str | None:
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
"""Classes of values, narrower ones first, and functions that return DuckDB's texts for them."""


# -- values on which DuckDB fails ---------------------------------------------------------------------------------------

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
    """Replace the rows of a dictionary whose word is NULL by NULL."""
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
