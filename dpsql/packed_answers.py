"""Releases as bytes for storage: columns are named by position, not by an analyst's names."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dpsql.mechanisms.base import Release


def pack(relations: Mapping[str, pa.Table], notes: tuple[str, ...]) -> bytes:
    """Return the relations as Arrow streams, with names, lengths and notes in front.

    >>> relations, notes = unpack(pack({"a": pa.table({"n": [1]})}, ("fine",)))
    >>> relations["a"].to_pylist(), notes
    ([{'n': 1}], ('fine',))
    """
    little = sum(table.num_rows for table in relations.values()) <= _WRITTEN_ONCE
    streams = [_write_stream(table) for table in relations.values()] if little else []
    sizes = [stream.size for stream in streams] or [_measure(table) for table in relations.values()]
    text = json.dumps({"names": list(relations), "sizes": sizes, "notes": notes}).encode()
    text += b" " * (-(4 + len(text)) % 8)  # align the streams as Arrow would
    head = struct.pack(">I", len(text)) + text
    if streams:
        return b"".join((head, *streams))
    sink = io.BytesIO(head)
    sink.seek(0, io.SEEK_END)
    for table in relations.values():
        _write(table, sink)
    return sink.getvalue()


_WRITTEN_ONCE = 1000
"""Releases with at most this number of rows may be in memory twice while they are packed."""


def _write_stream(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    _write(table, sink)
    return sink.getvalue()


def _measure(table: pa.Table) -> int:
    """Return the length of a table's stream without writing it: a release may take a tenth of memory."""
    counted = pa.MockOutputStream()
    _write(table, counted)
    return int(counted.size())


def _write(table: pa.Table, sink: Any) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def unpack(stored: bytes) -> tuple[dict[str, pa.Table], tuple[str, ...]]:
    """Return the relations and notes that :func:`pack` packed."""
    (size,) = struct.unpack(">I", stored[:4])
    head = json.loads(stored[4 : 4 + size])
    relations, at = {}, 4 + size
    whole = pa.py_buffer(stored)
    for name, length in zip(head["names"], head["sizes"], strict=True):
        relations[name] = pa.ipc.open_stream(whole.slice(at, length)).read_all()
        at += length
    return relations, tuple(head["notes"])


def call_by_place(release: Release, names: Sequence[str]) -> Release:
    """Return a release with its columns, in the order of ``names``, named by position."""
    places = {name: place for place, name in enumerate(names)}
    any_name = "|".join(re.escape(name) for name in sorted(places, key=len, reverse=True))
    mention = re.compile(rf"(?<!\w)(?:{any_name})(?!\w)")
    notes = (mention.sub(lambda found: f"\x01{places[found[0]]}\x02", note) for note in release.notes)
    columns = [f"c{places[name]}" if name in places else f"x{name}" for name in release.table.column_names]
    return replace(release, table=release.table.rename_columns(columns), notes=tuple(notes))


def call_by_name(release: Release, names: Sequence[str]) -> Release:
    """Return a release with its columns named by position renamed to ``names``."""
    known = {f"c{place}": name for place, name in enumerate(names)}
    notes = (re.sub("\x01(\\d+)\x02", lambda found: names[int(found[1])], note) for note in release.notes)
    columns = [known.get(name, name[1:]) for name in release.table.column_names]
    return replace(release, table=release.table.rename_columns(columns), notes=tuple(notes))
