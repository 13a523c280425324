"""Tables in memory as Arrow, once, when a session opens: what does not fit its column fails there, not in a statement."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dpsql.errors import PolicyError


def as_arrow(name: str, frame: Any) -> Any:
    """A pandas or polars frame, or anything of Arrow's, as what DuckDB reads without looking at its values first.

    A pandas column of objects is read by the values in it, row by row: one that is unlike the others would fail in the
    middle of a statement, and say so. Converted here it fails before anybody asks.

    Raises:
        PolicyError: it is no table, or a column holds values of several types.
    """
    module = type(frame).__module__.partition(".")[0]
    wrong = None
    try:
        if isinstance(frame, pa.RecordBatchReader):
            return frame.read_all()
        if isinstance(frame, pa.Table | pa.RecordBatch) or type(frame).__module__ == "pyarrow._dataset":
            return frame
        if module == "pandas":
            return pa.Table.from_pandas(frame, preserve_index=False)
        if module == "polars":
            return (frame.collect() if hasattr(frame, "collect") else frame).to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        wrong = "a column of it holds values of several types, or of one that Arrow has not"
    if wrong is not None:
        raise PolicyError(f"the table {name} can't be read: {wrong}.", hint="give each column one type.")
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    raise PolicyError(
        f"the table {name} is a {type(frame).__name__}, and that is no table.",
        hint="give a pandas, polars or Arrow table.",
    )
