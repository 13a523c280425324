"""Text files as records that stand alone: one physical line is one record, whatever is in it.

Readers of CSV look for quotes across lines, so that one stray quote swallows the lines after it, and stop at a text
that is not UTF-8. Here lines are cut first, as bytes, and what is in one can't be seen from another.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.policy import Format

BLOCK = 8 << 20
"""Bytes of a file that are looked at together."""
LONGEST = 4 << 20
"""Bytes of one record; a longer one is a row of NULLs."""
BAD = "\U0010ffff"
"""Stands for bytes that are no text of the encoding (no text holds it: it is no character); its field becomes NULL."""
DAMAGED = (OSError, EOFError, zlib.error)
"""What a file raises that can't be read as a whole."""
_SURROGATES = re.compile("[\udc80-\udcff]+")
_BOM = b"\xef\xbb\xbf"
LINE = pa.schema([("line", pa.large_string())])
FIELDS = pa.schema([("fields", pa.list_(pa.large_string()))])


def _opened(path: str) -> IO[bytes]:
    return gzip.open(path) if path.lower().endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def _blocks(file: IO[bytes]) -> Iterator[bytes | None]:
    """Whole lines, some millions of bytes at a time; None for one that is too long."""
    rest, lost = b"", False
    first = True
    while block := file.read(BLOCK):
        if first:
            block, first = block.removeprefix(_BOM), False
        cut = block.rfind(b"\n") + 1
        if cut == 0:
            rest, lost = (b"", True) if lost or len(rest) + len(block) > LONGEST else (rest + block, False)
            continue
        whole = rest + block[:cut]
        if lost:
            whole, lost = whole[whole.find(b"\n") + 1 :], False
            yield None
        rest = block[cut:]
        if whole:
            yield whole
    if lost:
        yield None
    elif rest:
        yield rest


def _decoded(block: bytes, encoding: str) -> str:
    text = block.decode(
        {"latin-1": "latin-1", "windows-1252": "cp1252"}.get(encoding, encoding), "surrogateescape"
    )
    return _SURROGATES.sub(BAD, text)


def _texts(block: bytes, encoding: str) -> pa.Array:
    """The lines of a block. A blank one is no record."""
    if encoding != "utf-8":
        block = _decoded(block, encoding).encode()
    if block.endswith(b"\n"):
        block = block[:-1]
    lines = pc.split_pattern(pa.array([block], pa.large_binary()), b"\n").flatten()
    try:
        texts = lines.cast(pa.large_string())
    except pa.ArrowInvalid:
        lines = pa.array([_decoded(block, "utf-8").encode()], pa.large_binary())
        texts = pc.split_pattern(lines, b"\n").flatten().cast(pa.large_string())
    if b"\r" in block:
        texts = pc.ascii_rtrim(texts, characters="\r")
    length = pc.binary_length(texts)
    longest = pc.max(length).as_py() or 0
    if longest > LONGEST:
        texts = pc.if_else(pc.greater(length, LONGEST), pa.scalar(None, pa.large_string()), texts)
    return texts.filter(pc.not_equal(length, 0))


def records(path: str, text: Format, skip: bool) -> pa.RecordBatchReader:
    """Read the records of a file in parts: a column ``line``, where a record that can't be read is NULL.

    Args:
        path: the file; one that ends in ``.gz`` is unpacked.
        text: how it is written.
        skip: leave out the first record, which names the columns.
    """

    def parts() -> Iterator[pa.RecordBatch]:
        left = skip
        with _opened(path) as file:
            for block in _blocks(file):
                lines = pa.nulls(1, pa.large_string()) if block is None else _texts(block, text.encoding)
                if left and len(lines):
                    lines, left = lines.slice(1), False
                yield pa.record_batch([lines], LINE)

    return pa.RecordBatchReader.from_batches(LINE, parts())


def first_record(path: str, text: Format) -> str | None:
    """Read the first line of a file that is not blank; None where there is none, or it can't be read."""
    with _opened(path) as file:
        for block in _blocks(file):
            if block is None:
                return None
            lines = _texts(block[: LONGEST + 1], text.encoding)
            if len(lines):
                return lines[0].as_py()  # type: ignore[no-any-return]
    return None


def heading(path: str, text: Format) -> list[str]:
    """Read the names of a file's columns, as its first record has them."""
    line = first_record(path, text)
    if line is None:
        return []
    return next(_reader(iter([line]), text), [])


def _reader(lines: Iterator[str], text: Format) -> Any:
    alone = text.escape == text.quote
    return csv.reader(
        lines,
        delimiter=text.delimiter or ",",
        quotechar=text.quote or None,
        quoting=csv.QUOTE_MINIMAL if text.quote else csv.QUOTE_NONE,
        doublequote=alone,
        escapechar=None if alone else text.escape,
    )


def quoted_records(path: str, text: Format, skip: bool) -> pa.RecordBatchReader:
    """Read the records of a file whose quoted fields may go on in the next line: a column ``fields``, each a list of texts."""

    def rows() -> Iterator[list[str] | None]:
        with io.TextIOWrapper(
            _opened(path),
            {"windows-1252": "cp1252"}.get(text.encoding, text.encoding),
            "surrogateescape",
            newline="",
        ) as file:
            lines = _reader(file, text)
            while True:
                try:
                    row = next(lines, None)
                except csv.Error:  # a field that is too long: a stray quote
                    yield None
                    continue
                if row is None:
                    return
                if row:
                    yield [f if f.isascii() else _SURROGATES.sub(BAD, f) for f in row]

    def parts() -> Iterator[pa.RecordBatch]:
        held: list[list[str] | None] = []
        for index, row in enumerate(rows()):
            if index == 0 and row:
                row[0] = row[0].removeprefix("\ufeff")
            if index or not skip:
                held.append(row)
            if len(held) >= 1 << 14:
                yield pa.record_batch([pa.array(held, FIELDS.field(0).type)], FIELDS)
                held = []
        yield pa.record_batch([pa.array(held, FIELDS.field(0).type)], FIELDS)

    return pa.RecordBatchReader.from_batches(FIELDS, parts())


def array_records(path: str, text: Format) -> pa.RecordBatchReader:
    """Read the records of a file that is one JSON array: a column ``line``. What follows a record that is not JSON is lost."""

    def objects() -> Iterator[str]:
        with _opened(path) as file:
            whole = _decoded(file.read().removeprefix(_BOM), text.encoding)
        decoder, blank = json.JSONDecoder(), re.compile(r"[\s,]*")
        found = re.match(r"\s*\[", whole)
        place = found.end() if found else len(whole)
        while True:
            here = blank.match(whole, place)
            place = here.end() if here else place
            if place >= len(whole) or whole[place] == "]":
                return
            try:
                _, end = decoder.raw_decode(whole, place)
            except (ValueError, RecursionError):
                return
            yield whole[place:end]
            place = end

    def parts() -> Iterator[pa.RecordBatch]:
        held: list[str | None] = []
        for item in objects():
            held.append(item if len(item) <= LONGEST else None)
            if len(held) >= 1 << 14:
                yield pa.record_batch([pa.array(held, pa.large_string())], LINE)
                held = []
        yield pa.record_batch([pa.array(held, pa.large_string())], LINE)

    return pa.RecordBatchReader.from_batches(LINE, parts())
