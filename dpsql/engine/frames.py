"""Tables in memory as Arrow, once, when a session opens: what an engine would stop at is NULL, and no value makes a type.

A column of Python objects has the type of its values, so one person's value would decide it. Here it becomes text,
value by value, and the policy says what type it is read as.
"""

from __future__ import annotations

import datetime
import json
import math
import numbers
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from dpsql.engine.clean import cleaned
from dpsql.errors import PolicyError

_OBJECTS = b"dpsql objects"


def as_arrow(name: str, frame: Any) -> Any:
    """A pandas or polars frame, or anything of Arrow's, as what DuckDB reads without looking at its values first.

    Columns of objects are texts in it (see :func:`objects_of`); texts that are not UTF-8, times beyond a day and the like
    are NULL.

    Raises:
        PolicyError: it is no table, or has a column that Arrow can't hold.
    """
    module = type(frame).__module__.partition(".")[0]
    wrong = None
    try:
        if isinstance(frame, pa.RecordBatchReader):
            return cleaned(frame.read_all())
        if type(frame).__module__ == "pyarrow._dataset":
            return cleaned(frame.to_table())
        if isinstance(frame, pa.Table | pa.RecordBatch):
            return cleaned(frame if isinstance(frame, pa.Table) else pa.Table.from_batches([frame]))
        if module == "pandas":
            return cleaned(_of_pandas(frame))
        if module == "polars":
            return cleaned(_of_polars(frame.collect() if hasattr(frame, "collect") else frame))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        wrong = "a column of it is of a type that Arrow has not"
    if wrong is not None:
        raise PolicyError(f"the table {name} can't be read: {wrong}.", hint="give each column one type.")
    if hasattr(frame, "__arrow_c_stream__"):
        return cleaned(pa.table(frame))
    raise PolicyError(
        f"the table {name} is a {type(frame).__name__}, and that is no table.",
        hint="give a pandas, polars or Arrow table.",
    )


def objects_of(frame: Any) -> set[str] | None:
    """Return the columns of a table of :func:`as_arrow` that were objects; None where there is no table."""
    if frame is None:
        return None
    return {field.name for field in frame.schema if (field.metadata or {}).get(_OBJECTS)}


def _of_pandas(frame: Any) -> pa.Table:
    fields, columns = [], []
    for place, name in enumerate(frame.columns):
        column = frame.iloc[:, place]
        kinds = (column.dtype, getattr(getattr(column.dtype, "categories", None), "dtype", None))
        if any(kind == np.dtype(object) for kind in kinds if isinstance(kind, np.dtype)):
            columns.append(_texts(column.astype(object)))
            fields.append(pa.field(str(name), pa.large_string(), metadata={_OBJECTS: b"1"}))
        else:
            array = pa.Table.from_pandas(column.to_frame(), preserve_index=False).column(0)
            columns.append(array)
            fields.append(pa.field(str(name), array.type))
    return pa.table(columns, pa.schema(fields))


def _of_polars(frame: Any) -> pa.Table:
    fields, columns = [], []
    for column in frame.get_columns():
        objects = str(column.dtype) == "Object"
        array = _texts(column.to_list()) if objects else column.to_arrow()
        columns.append(array)
        fields.append(pa.field(column.name, array.type, metadata={_OBJECTS: b"1"} if objects else None))
    return pa.table(columns, pa.schema(fields))


def _texts(values: Any) -> pa.Array:
    return pa.array([text_of(value) for value in values], pa.large_string())


def text_of(value: Any) -> str | None:
    """Return a Python value as the text that its type is read from; None for one that has no such text.

    >>> text_of(2.5), text_of(True), text_of([1, "a"]), text_of(object()), text_of(float("nan"))
    ('2.5', 'true', '[1, "a"]', None, None)
    """
    try:
        text = _text(value)
        return text if text is None or text.isascii() or text.encode() else None
    except Exception:  # whatever a value of somebody's class does
        return None


def _text(value: Any) -> str | None:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, float):
        return None if math.isnan(value) else repr(float(value))
    if isinstance(value, Decimal):
        return str(value) if value.is_finite() else None
    if isinstance(value, datetime.datetime):
        return None if value != value else value.isoformat(sep=" ")  # NaT differs from itself
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return None if value != value else f"{value // datetime.timedelta(microseconds=1)} microseconds"
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, bytes):
        return "".join(f"\\x{byte:02X}" for byte in value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, default=_text)
    return None
