"""Answers as Flight SQL clients get them: the columns, with the loss, the cost line and the intervals in the schema's metadata.

dpsql.loss          what the answer was charged
dpsql.cost_line     that, and what is left
dpsql.confidence    the level of the intervals
dpsql.intervals     JSON: by column, one [low, high] or null for each row
dpsql.notes         JSON: sentences beside the answer
dpsql.statement_id  its number in the ledger
dpsql.price         of a statement that is only prepared: what it would be charged
"""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa

from dpsql.result import Result

MAX_INTERVALS = 10_000
"""Rows whose intervals stand in the metadata."""
BATCH_BYTES = 1 << 20
"""Bytes of one batch of rows, or so: clients take no messages of any size."""
_LEFT_OUT = (
    "the intervals of {:,} rows are left out: INTERVAL_LOW(column) and INTERVAL_HIGH(column) select them."
)


def write_answer(result: Result) -> pa.Table:
    """Return a result's table with what else is known of it in the schema's metadata."""
    notes = list(result.notes)
    metadata = {
        "loss": result.loss,
        "cost_line": result.cost_line,
        "confidence": str(float(result.confidence)),
    }
    if result.statement_id is not None:
        metadata["statement_id"] = result.statement_id
    if len(result) <= MAX_INTERVALS:
        metadata["intervals"] = json.dumps(_plain(result.intervals))
    elif result.ends:
        notes.append(_LEFT_OUT.format(len(result)))
    metadata["notes"] = json.dumps(notes)
    return result.table.replace_schema_metadata({f"dpsql.{key}": text for key, text in metadata.items()})


def write_prepared(schema: pa.Schema, price: str) -> pa.Schema:
    """Return the columns of a statement that is only prepared, with its price in the metadata."""
    return schema.with_metadata({"dpsql.price": price})


def cut_batches(table: pa.Table) -> pa.RecordBatchReader:
    """Return a table in batches that every client takes."""
    each = max(1, table.nbytes // max(1, len(table)))
    batches = table.to_batches(max_chunksize=max(1, BATCH_BYTES // each))
    return pa.RecordBatchReader.from_batches(table.schema, batches)


def _plain(value: Any) -> Any:
    """Return ends of intervals as JSON values; an end beyond all numbers is null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, int | float | str) else str(value)
