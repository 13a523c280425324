"""How releases are kept for replay: released relations and their notes, as bytes. Nothing exact is in them."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import Any

import pyarrow as pa


def pack(relations: Mapping[str, pa.Table], notes: tuple[str, ...]) -> bytes:
    """The relations as Arrow streams, each behind its length; names and notes in front.

    >>> relations, notes = unpack(pack({"a": pa.table({"n": [1]})}, ("fine",)))
    >>> relations["a"].to_pylist(), notes
    ([{'n': 1}], ('fine',))
    """
    head = {"names": list(relations), "sizes": [_size(table) for table in relations.values()], "notes": notes}
    text = json.dumps(head).encode()
    text += b" " * (-(4 + len(text)) % 8)  # streams begin where Arrow would begin them
    sink = io.BytesIO(struct.pack(">I", len(text)) + text)
    sink.seek(0, io.SEEK_END)
    for table in relations.values():
        _write(table, sink)
    return sink.getvalue()


def _size(table: pa.Table) -> int:
    """Bytes of its stream. A release may be a tenth of what memory holds: it is written once, where it stays."""
    counted = pa.MockOutputStream()
    _write(table, counted)
    return int(counted.size())


def _write(table: pa.Table, sink: Any) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def unpack(stored: bytes) -> tuple[dict[str, pa.Table], tuple[str, ...]]:
    """What :func:`pack` packed."""
    (size,) = struct.unpack(">I", stored[:4])
    head = json.loads(stored[4 : 4 + size])
    relations, at = {}, 4 + size
    whole = pa.py_buffer(stored)
    for name, length in zip(head["names"], head["sizes"], strict=True):
        relations[name] = pa.ipc.open_stream(whole.slice(at, length)).read_all()
        at += length
    return relations, tuple(head["notes"])
