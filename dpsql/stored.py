"""How releases are kept for replay: released relations and their notes, as bytes. Nothing exact is in them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

import pyarrow as pa


def pack(relations: Mapping[str, pa.Table], notes: tuple[str, ...]) -> bytes:
    """The relations as Arrow streams, each behind its length; names and notes in front.

    >>> relations, notes = unpack(pack({"a": pa.table({"n": [1]})}, ("fine",)))
    >>> relations["a"].to_pylist(), notes
    ([{'n': 1}], ('fine',))
    """
    streams = []
    for table in relations.values():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        streams.append(sink.getvalue().to_pybytes())
    head = json.dumps({"names": list(relations), "sizes": [len(s) for s in streams], "notes": notes}).encode()
    return struct.pack(">I", len(head)) + head + b"".join(streams)


def unpack(stored: bytes) -> tuple[dict[str, pa.Table], tuple[str, ...]]:
    """What :func:`pack` packed."""
    (size,) = struct.unpack(">I", stored[:4])
    head = json.loads(stored[4 : 4 + size])
    relations, at = {}, 4 + size
    for name, length in zip(head["names"], head["sizes"], strict=True):
        relations[name] = pa.ipc.open_stream(stored[at : at + length]).read_all()
        at += length
    return relations, tuple(head["notes"])
