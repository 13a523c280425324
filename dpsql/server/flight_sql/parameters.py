"""Values that a client binds to a prepared statement: one row of an Arrow table, read with care."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dpsql.errors import BindError
from dpsql.wire_params import write_params

MAX_PARAMETERS = 1000
"""Parameters of one statement."""
_ONE_ROW = "one row of values is bound at a time, and {} rows arrived."


def read_parameters(reader: Any, most_bytes: int) -> dict[str, Any]:
    """Read the one row of values that a client sends, and return them as JSON values by their columns' names.

    Columns whose names are not their own alone are called by their places, from 1.

    Args:
        reader: what Arrow Flight reads the client's batches with.
        most_bytes: how much the owner allows.

    Raises:
        BindError: there is no row, there are several, or they are too large or none that can be read.
    """
    found: pa.RecordBatch | None = None
    while (batch := _read_batch(reader)) is not None:
        if batch.nbytes > most_bytes or batch.num_columns > MAX_PARAMETERS:
            raise BindError(f"the parameters have more than the {most_bytes:,} bytes that the owner allows.")
        if batch.num_rows and found is not None:
            raise BindError(_ONE_ROW.format("several"), hint="execute the statement once for each row.")
        found = batch if batch.num_rows or found is None else found
    if found is None or found.num_rows != 1:
        rows = 0 if found is None else found.num_rows
        raise BindError(_ONE_ROW.format(f"{rows:,}"), hint="execute the statement once for each row.")
    values = [_read_value(column) for column in found.columns]
    names = found.schema.names
    if len(set(names)) < len(names):
        names = [str(place) for place in range(1, len(values) + 1)]
    return write_params(dict(zip(names, values, strict=True))) or {}


def _read_batch(reader: Any) -> pa.RecordBatch | None:
    """Return the next batch, checked; None after the last one.

    Raises:
        BindError: it can't be read.
    """
    try:
        batch = reader.read_chunk().data
        if batch is not None:
            batch.validate(full=True)
        return batch
    except StopIteration:
        return None
    except Exception:  # whatever Arrow says of bytes that are none
        raise BindError("the values of the parameters can't be read.") from None


def _read_value(column: pa.Array) -> Any:
    """Return the one value of a column.

    Raises:
        BindError: Python has none for it.
    """
    try:
        value = column[0].as_py()
    except Exception:  # a time that Python does not have, a type without a value
        raise BindError("the values of the parameters can't be read.") from None
    return value
