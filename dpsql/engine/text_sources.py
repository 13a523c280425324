"""Text files as typed tables: each record is parsed independently, by the policy's columns and format.

Usual CSV readers match quotes across lines, so one stray quote consumes the following lines, and they stop at bytes that are
not UTF-8. Here lines are split first, as bytes: one line is one record, and no record affects another. No value makes the
SQL fail: a field that does not fit its column is NULL, and an unreadable record is a row of NULLs.

A row of a spreadsheet is a record of texts, as the library fastexcel writes its cells; none of them fails.

If the first line of a CSV file ends in a carriage return alone, so do all lines. Only a first line that names the columns, or is
skipped, may decide this: a first row is one person's.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import importlib.util
import io
import itertools
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from dpsql.engine.sandbox import quote_identifier, quote_literal
from dpsql.errors import PolicyError, clip, find_nearest
from dpsql.policy.model import Format, Table, fold
from dpsql.policy.tables import ZONED

BLOCK_BYTES = 8 << 20
MAX_RECORD_BYTES = 4 << 20
"""The most bytes of one record; a longer one is a row of NULLs."""
UNDECODABLE = "\U0010ffff"
"""A character that no text has, in place of undecodable bytes; its field becomes NULL."""
READ_ERRORS = (OSError, EOFError, zlib.error, pa.ArrowException)
_SURROGATES = re.compile("[\ud800-\udfff]+")
_BATCH_ROWS = 1 << 14
_BOM = b"\xef\xbb\xbf"
LINE_SCHEMA = pa.schema([("line", pa.large_string())])
FIELDS_SCHEMA = pa.schema([("fields", pa.list_(pa.large_string()))])


def open_packed(path: str) -> IO[bytes]:
    """Open a file, decompressed."""
    lowered = path.lower()
    if lowered.endswith(".zst"):
        return pa.input_stream(path, compression="zstd")  # type: ignore[no-any-return]
    return gzip.open(path) if lowered.endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


_PEEKED = 1 << 16
"""Bytes in which the first line's end is sought."""


def _open(path: str, text: Format) -> IO[bytes]:
    """Open a file, decompressed, without its skipped lines; UTF-16 becomes UTF-8, and carriage returns may become newlines."""
    with open_packed(path) as file:
        head = file.read(_PEEKED)
    wide = text.encoding == "utf-16"
    if wide:
        order = "utf-16-be" if head.startswith(codecs.BOM_UTF16_BE) else "utf-16-le"
        head = (
            codecs.getincrementaldecoder(order)("surrogatepass").decode(head).encode("utf-8", "surrogatepass")
        )
    returns = (text.header or text.skip > 0) and _ends_in_return(head)
    file = open_packed(path)
    if not (wide or returns or text.skip):
        return file

    def parts() -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(order)("surrogatepass") if wide else None
        left, first = text.skip, True
        with file:
            while part := file.read(BLOCK_BYTES):
                if decoder is not None:
                    part = _SURROGATES.sub(UNDECODABLE, decoder.decode(part)).encode()
                if first and part:
                    part, first = part.removeprefix(_BOM), False
                if returns:
                    part = part.replace(b"\r", b"\n")
                while left and (cut := part.find(b"\n") + 1):
                    part, left = part[cut:], left - 1
                if not left:
                    yield part

    return io.BufferedReader(_Parts(parts()), 1 << 16)


class _Parts(io.RawIOBase):
    """A file of bytes that come in parts."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._rest = parts, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes."""
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = part
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _ends_in_return(head: bytes) -> bool:
    """Return whether a text's first line ends in a carriage return alone."""
    place = head.find(b"\r")
    return place >= 0 and b"\n" not in head[: place + 2]


def _blocks(file: IO[bytes]) -> Iterator[bytes | None]:
    """Yield blocks of whole lines; None for a line that is too long."""
    rest, lost = b"", False
    first = True
    while block := file.read(BLOCK_BYTES):
        if first:
            block, first = block.removeprefix(_BOM), False
        cut = block.rfind(b"\n") + 1
        if cut == 0:
            lost = lost or len(rest) + len(block) > MAX_RECORD_BYTES
            rest = b"" if lost else rest + block
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


def _decode(block: bytes, encoding: str) -> str:
    text = block.decode(encoding, "surrogateescape")
    return _SURROGATES.sub(UNDECODABLE, text)


def _split_lines(block: bytes, text: Format) -> pa.Array:
    """Return the lines of a block that are neither blank nor comments."""
    encoding = text.encoding
    if encoding not in ("utf-8", "utf-16"):  # UTF-16 is UTF-8 by now
        block = _decode(block, encoding).encode()
    if block.endswith(b"\n"):
        block = block[:-1]
    lines = pc.split_pattern(pa.array([block], pa.large_binary()), b"\n").flatten()
    try:
        texts = lines.cast(pa.large_string())
    except pa.ArrowInvalid:
        lines = pa.array([_decode(block, "utf-8").encode()], pa.large_binary())
        texts = pc.split_pattern(lines, b"\n").flatten().cast(pa.large_string())
    if b"\r" in block:
        texts = pc.ascii_rtrim(texts, characters="\r")
    length = pc.binary_length(texts)
    longest = pc.max(length).as_py() or 0
    if longest > MAX_RECORD_BYTES:
        texts = pc.if_else(pc.greater(length, MAX_RECORD_BYTES), pa.scalar(None, pa.large_string()), texts)
    kept = pc.not_equal(length, 0)
    if text.comment is not None:
        kept = pc.and_not(kept, pc.fill_null(pc.starts_with(texts, text.comment), False))
    return texts.filter(kept)


def read_records(path: str, text: Format, skip: bool) -> pa.RecordBatchReader:
    """Return the records of a file as a column `line`, with NULL for unreadable records.

    Args:
        path: the file, decompressed if its name ends in ``.gz`` or ``.zst``.
        skip: whether to skip the first record, which names the columns.
    """

    def parts() -> Iterator[pa.RecordBatch]:
        left = skip
        with _open(path, text) as file:
            for block in _blocks(file):
                lines = pa.nulls(1, pa.large_string())
                if block is not None:
                    lines = _split_lines(block, text)
                if left and len(lines):
                    lines, left = lines.slice(1), False
                yield pa.record_batch([lines], LINE_SCHEMA)

    return pa.RecordBatchReader.from_batches(LINE_SCHEMA, parts())


def read_first_record(path: str, text: Format) -> str | None:
    """Return the first line that is neither blank nor a comment; None if there is none, or it can't be read."""
    with _open(path, text) as file:
        for block in _blocks(file):
            if block is None:
                return None
            lines = _split_lines(block[: MAX_RECORD_BYTES + 1], text)
            if len(lines):
                return lines[0].as_py()  # type: ignore[no-any-return]
    return None


def is_sheet(path: str) -> bool:
    """Return whether a file is a spreadsheet, by its name."""
    return path.lower().endswith(".xlsx")


def require_reader(path: str) -> None:
    """Raise PolicyError if a file is a spreadsheet, and the library that reads these is not installed."""
    if is_sheet(path) and importlib.util.find_spec("fastexcel") is None:
        what = f"{Path(path).name} needs the library fastexcel, which is not installed."
        raise PolicyError(what, hint="pip install 'dpsql[excel]'")


def _read_sheet(path: str, text: Format) -> Iterator[list[str | None]]:
    """Yield a spreadsheet's rows with a value, as wide as the one of names; OSError if unreadable or without the sheet."""
    import fastexcel

    read = None
    with contextlib.suppress(Exception):  # of several classes
        book = fastexcel.read_excel(path)
        place = text.sheet if text.sheet is not None else 0
        read = book.load_sheet(place, header_row=None, skip_rows=0, dtypes="string").to_arrow()
    if read is None:
        raise OSError("no spreadsheet, or no such sheet")
    columns = [pc.replace_substring_regex(c, _MIDNIGHT, r"\1") for c in read.columns]
    width = 0 if text.header else len(columns)
    for number, cells in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
        if number < text.skip or not any(cells):
            continue
        width = width or max(place for place, cell in enumerate(cells, start=1) if cell)
        yield list(cells[:width])


_MIDNIGHT = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}) 00:00:00$"
"""A cell with a date."""


def read_heading(path: str, text: Format) -> list[str]:
    """Return the stripped column names of a file's first record; PolicyError for NUL or a line's end within one."""
    if is_sheet(path):
        return [(name or "").strip() for name in next(_read_sheet(path, text), [])]
    line = read_first_record(path, text)
    with contextlib.suppress(csv.Error):
        return [name.strip() for name in next(_read_csv(iter([line]), text), [])] if line is not None else []
    raise PolicyError(
        f"the first line of {Path(path).name} can't be read as names of columns: it has NUL in it, or \\r within a name.",
        hint="write the file as UTF-8 text with lines that end in \\n, or set encoding in its format.",
    )


def _read_csv(lines: Iterator[str], text: Format) -> Iterator[list[str]]:
    alone = text.escape == text.quote
    return csv.reader(
        lines,
        delimiter=text.delimiter or ",",
        quotechar=text.quote or None,
        quoting=csv.QUOTE_MINIMAL if text.quote else csv.QUOTE_NONE,
        doublequote=alone,
        escapechar=None if alone else text.escape,
    )


def read_quoted_records(path: str, text: Format, skip: bool) -> pa.RecordBatchReader:
    """Return records, with quoted fields that may span lines, as a column `fields` of lists of texts."""

    def rows() -> Iterator[list[str | None] | None]:
        if is_sheet(path):
            yield from _read_sheet(path, text)
            return
        encoding = "utf-8" if text.encoding == "utf-16" else text.encoding
        with io.TextIOWrapper(_open(path, text), encoding, "surrogateescape", newline="") as file:
            lines = _read_csv(file, text)
            while True:
                try:
                    row = next(lines, None)
                except csv.Error:  # a field that is too long: a stray quote
                    yield None
                    continue
                if row is None:
                    return
                if row:
                    yield [f if f.isascii() else _SURROGATES.sub(UNDECODABLE, f) for f in row]

    def records() -> Iterator[list[str | None] | None]:
        for index, row in enumerate(rows()):
            if index == 0 and row and row[0]:
                row[0] = row[0].removeprefix("\ufeff")
            if index or not skip:
                yield row

    return _batch(records(), FIELDS_SCHEMA)


def _batch(records: Iterator[object], schema: pa.Schema) -> pa.RecordBatchReader:
    """Return records as batches of one column, at least one batch."""

    def parts() -> Iterator[pa.RecordBatch]:
        while True:
            held = list(itertools.islice(records, _BATCH_ROWS))
            yield pa.record_batch([pa.array(held, schema.field(0).type)], schema)
            if len(held) < _BATCH_ROWS:
                return

    return pa.RecordBatchReader.from_batches(schema, parts())


def read_array_records(path: str, text: Format) -> pa.RecordBatchReader:
    """Return the records of a JSON array as a column `line`, up to the first invalid one."""

    def objects() -> Iterator[str | None]:
        with _open(path, text) as file:
            encoding = "utf-8" if text.encoding == "utf-16" else text.encoding
            whole = _decode(file.read().removeprefix(_BOM), encoding)
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
            yield whole[place:end] if end - place <= MAX_RECORD_BYTES else None
            place = end

    return _batch(objects(), LINE_SCHEMA)


RECORDS = "dpsql_records"
"""The relation that :func:`write_query` reads."""


def copy_text(
    con: duckdb.DuckDBPyConnection, name: str, table: Table, columns: Mapping[str, str], files: Iterable[str]
) -> None:
    """Create a temporary table of the records of text files; PolicyError if a file is unreadable or lacks a column."""
    text = (table.format or Format()).fit(table.source, table.text)
    files = list(files)
    check_heading(table, text, columns, files)
    listed = ", ".join(f"{quote_identifier(column)} {kind}" for column, kind in columns.items())
    con.execute(f"CREATE OR REPLACE TEMP TABLE {quote_identifier(name)} ({listed})")
    read = False
    with contextlib.suppress(duckdb.Error, *READ_ERRORS):
        for path in files:
            con.register(RECORDS, read_source(path, table, text))
            rows = write_query(path, table, text, columns)
            con.execute(f"INSERT INTO temp.main.{quote_identifier(name)} {rows}")
            con.unregister(RECORDS)
        read = True
    if not read:
        raise PolicyError(f"the source {table.source} of {table.name} can't be read.")


_SAMPLE = 100
"""Records of a text file that are read for the owner's check."""


def check_heading(table: Table, text: Format, columns: Mapping[str, str], files: Iterable[str]) -> None:
    """Check that CSV files name the policy's columns in their first lines.

    No other line is read, since one person's row would decide whether a session opens. :func:`describe_records` reads the
    first rows, for the owner alone.

    A first line without names may be a person's row. So the message repeats at most one name similar to the missing one, and
    only if the line has another of the policy's columns.

    Raises:
        PolicyError: a file lacks a declared column, or all files are empty.
    """
    files = list(files)
    if table.text == "json" or not text.header:
        return
    if files and all(map(_is_blank, files)):
        raise PolicyError(
            f"{table.source} of {table.name} is empty: it has no first line with the names of its columns.",
            hint="write that line, or set header = false in its format.",
        )
    for path in files:
        with contextlib.suppress(*READ_ERRORS):
            missing, names = _find_missing(text, columns, path)
            if missing is None:
                continue
            heading = not {fold(name) for name in names}.isdisjoint(map(fold, columns))
            near = find_nearest(missing, names) if heading else None
            said = f" Did you mean {near}?" if near is not None else ""
            if not heading or len(names) < 2:
                said += " Its format may say delimiter, quote, encoding or header = false."
            raise PolicyError(
                f"{table.name}.{missing} is in the policy but not in {Path(path).name}.{said}",
                hint="dpsql policy check shows the data owner what the file has in place of it.",
                keys=("tables", table.name, "columns", missing),
            )


def reads_columns(table: Table, columns: Iterable[str], files: Iterable[str]) -> bool:
    """Return whether the first lines of CSV files name columns, as their format is declared."""
    text, listed = (table.format or Format()).fit(table.source, table.text), list(columns)
    if table.text == "json" or not text.header:
        return True
    try:
        return not any(_find_missing(text, listed, path)[0] for path in files)
    except PolicyError:
        return False


def _find_missing(text: Format, columns: Iterable[str], path: str) -> tuple[str | None, list[str]]:
    """Return the first column that a file's first line lacks, if any, and the names in that line."""
    names = read_heading(path, text)
    known = set(map(fold, names))
    missing = next((column for column in columns if fold(column.strip()) not in known), None)
    return (None if missing is None or _is_empty(path) else missing), names


def show_headings(table: Table, columns: Iterable[str], files: Iterable[str]) -> list[str]:
    """Return sentences with the names in files that lack a column, to be shown only to the data owner."""
    text, listed, said = (table.format or Format()).fit(table.source, table.text), list(columns), []
    for path in files:
        with contextlib.suppress(*READ_ERRORS, PolicyError):
            missing, names = _find_missing(text, listed, path)
            if missing is not None:
                shown = ", ".join(clip(name) for name in names[:8]) + (", ..." if len(names) > 8 else "")
                said.append(
                    f"{Path(path).name} has {shown or 'no names'} where names of columns are expected."
                )
    return said


def describe_records(table: Table, files: Iterable[str]) -> list[str]:
    """Return sentences on text files without a usable record among the first, to be shown only to the data owner.

    Rows of a CSV file have one field for each name in its first line; records of JSON have the privacy unit's column.
    """
    text = (table.format or Format()).fit(table.source, table.text)
    keys = [way[0].column for way in table.unit_paths[:1] if way] if table.text == "json" else []
    said = []
    for path in files:
        with contextlib.suppress(*READ_ERRORS, PolicyError):
            name = Path(path).name
            if table.text == "json" and _is_empty(path):
                said.append(f"{name} is empty.")
            elif table.text == "json":
                found = {fold(key) for key in read_keys(table, path)}
                said += [
                    f"none of the first {_SAMPLE} records of {name} has {key}, the privacy unit's column."
                    for key in keys
                    if fold(key) not in found
                ]
            elif text.header and _fits_nowhere(path, table, text):
                said.append(
                    f"none of the first {_SAMPLE} rows of {name} has as many fields as its first line. Give each row one field "
                    "for each name, or set delimiter, quote or escape in its format."
                )
    return said


def _fits_nowhere(path: str, table: Table, text: Format) -> bool:
    """Return whether there are records, and none of the first has as many fields as the first line."""
    width, seen = len(read_heading(path, text)), 0
    for batch in read_source(path, table, text):
        for found in batch.column(0).slice(0, _SAMPLE - seen).to_pylist():
            seen += 1
            with contextlib.suppress(csv.Error):
                fields = next(_read_csv(iter([found]), text), []) if isinstance(found, str) else found
                if fields is not None and len(fields[:-1] if fields[width:] == [""] else fields) == width:
                    return False
        if seen >= _SAMPLE:
            break
    return seen > 0


def _is_blank(path: str) -> bool:
    """Return whether a file can be read and has nothing in it."""
    with contextlib.suppress(*READ_ERRORS):
        return _is_empty(path)
    return False


def _is_empty(path: str) -> bool:
    with open_packed(path) as file:
        return not file.read(len(_BOM) + 1).removeprefix(_BOM)


def read_keys(table: Table, path: str) -> list[str]:
    """Return the names in the first records of a JSON file."""
    text = (table.format or Format()).fit(table.source, table.text)
    read = read_array_records(path, text) if text.records == "array" else read_records(path, text, False)
    names: dict[str, None] = {}
    left = _SAMPLE
    for batch in read:
        for line in batch.column(0).slice(0, left).to_pylist():
            with contextlib.suppress(ValueError, RecursionError, TypeError):
                found = json.loads(line)
                names |= dict.fromkeys(found) if isinstance(found, dict) else {}
        left -= len(batch)
        if left <= 0:
            break
    return list(names)


def split_record(line: str, text: Format) -> list[str]:
    """Return the fields of a line; none if it is no CSV."""
    with contextlib.suppress(csv.Error):
        return next(_read_csv(iter([line]), text), [])
    return []


def read_source(path: str, table: Table, text: Format) -> pa.RecordBatchReader:
    """Return the records of a file, without the one that names the columns."""
    if table.text == "json":
        return read_array_records(path, text) if text.records == "array" else read_records(path, text, False)
    read = read_quoted_records if text.quoted_newlines else read_records
    return read(path, text, text.header)


def write_query(path: str, table: Table, text: Format, columns: Mapping[str, str], raw: bool = False) -> str:
    """Return SQL that reads the columns of a file's records.

    Args:
        raw: whether to return their texts, and whether a record could be read as ``dpsql_unread``.
    """
    if table.text == "json":
        return _write_objects(columns, text, raw)
    names = [fold(name.strip()) for name in (read_heading(path, text) if text.header else columns)]
    places = {name: index for index, name in reversed(list(enumerate(names, start=1)))}
    items = [f"NULL::{'VARCHAR' if raw else kind}" for kind in columns.values()]
    for index, (name, kind) in enumerate(columns.items()):
        if (place := places.get(fold(name.strip()))) is not None:
            field = _write_unquoted(f"f[{place}]", kind, text)
            items[index] = field if raw else write_typed_field(field, kind, text)
    if raw:
        items = [*_name_items(items, columns), "f IS NULL AS dpsql_unread"]
    width = len(names)  # a row may end in one more delimiter
    fitting = [f"(len(f) = {width} OR (len(f) = {width + 1} AND f[-1] = ''))"] if text.header else []
    if text.quoted_newlines:
        fields = f"SELECT fields AS f FROM {RECORDS}"
    else:
        fields = f"SELECT line, {_write_fields(text)} AS f FROM {RECORDS}"
        # The fields joined must be the line; otherwise there is text next to a quote.
        fitting.append(f"array_to_string(f, {quote_literal(text.delimiter or ',')}) = line")
    whole = f"CASE WHEN {' AND '.join(fitting)} THEN f END" if fitting else "f"
    return f"SELECT {', '.join(items)} FROM (SELECT {whole} AS f FROM ({fields}) AS a) AS b"


def _write_fields(text: Format) -> str:
    """Return SQL for the fields of a line, with their quotes."""
    comma = quote_literal(text.delimiter or ",")
    plain = f"string_split(line, {comma})"
    if not text.quote:
        return plain
    d, q, e = map(_write_class, (text.delimiter or ",", text.quote, text.escape or text.quote))
    inside = f"(?:[^{q}]|[{q}][{q}])" if e == q else f"(?:[^{q}{e}]|[{e}].)"
    pattern = f"(?s)[{d}]([{q}]{inside}*[{q}]|[^{d}{q}][^{d}]*|)"
    matched = f"regexp_extract_all(concat({comma}, line), {quote_literal(pattern)}, 1)"
    return f"CASE WHEN contains(line, {quote_literal(text.quote)}) THEN {matched} ELSE {plain} END"


def _write_class(letter: str) -> str:
    """Return a letter for the brackets of a regular expression."""
    return f"\\x{{{ord(letter):x}}}"


def _write_unquoted(field: str, kind: str, text: Format) -> str:
    """Return SQL for a field without its quotes, with NULL for the words that mean it."""
    if not text.quote or text.quoted_newlines:
        return _write_null(field, text.words)
    quote, escape = text.quote, text.escape or text.quote
    inner = f"{field}[2:-2]"
    if escape == quote:
        inner = f"replace({inner}, {quote_literal(quote * 2)}, {quote_literal(quote)})"
    else:
        inner = f"regexp_replace({inner}, {quote_literal(f'(?s)[{_write_class(escape)}](.)')}, '\\1', 'g')"
    if kind != "VARCHAR":
        inner = _write_null(inner, text.words)
    bare = _write_null(field, text.words)
    return f"CASE WHEN starts_with({field}, {quote_literal(quote)}) THEN {inner} ELSE {bare} END"


_LOCAL_TIME = r"\s*\d+-\d+-\d+([ T]+[0-9:.]+)?\s*"


def write_zoned_text(value: str) -> str:
    """Return SQL that reads a text as a TIMESTAMP WITH TIME ZONE: in UTC unless it says an offset."""
    local = f"regexp_full_match({value}, {quote_literal(_LOCAL_TIME)})"
    utc = f"TRY(timezone('UTC', TRY_CAST({value} AS TIMESTAMP)))"
    return f"CASE WHEN {local} THEN {utc} ELSE TRY_CAST({value} AS {ZONED}) END"


def _write_null(field: str, words: tuple[str, ...]) -> str:
    """Return SQL for a field, with NULL for words."""
    if len(words) < 2:
        return f"nullif({field}, {quote_literal(words[0])})" if words else field
    return f"CASE WHEN {field} NOT IN ({', '.join(map(quote_literal, words))}) THEN {field} END"


INTEGER_TYPE = re.compile(r"U?(?:(?:TINY|SMALL|BIG|HUGE)INT|INTEGER)")
_NUMERIC = re.compile(rf"{INTEGER_TYPE.pattern}$|FLOAT$|DOUBLE$|DECIMAL\(")


def _write_number(value: str, text: Format) -> str:
    """Return SQL for a number with a decimal point and no other mark, with NULL for one that is not in the declared format."""
    if text.decimal == "." and text.thousands is None:
        return value
    digits = "[0-9]+"
    if text.thousands is not None:
        comma = f"[{_write_class(text.thousands)}]"
        digits = f"(?:[0-9]+|[0-9]{{1,3}}(?:{comma}[0-9]{{2,3}})*{comma}[0-9]{{3}})"
    fraction = f"[{_write_class(text.decimal)}]"
    pattern = rf"\s*[+-]?(?:{digits}(?:{fraction}[0-9]*)?|{fraction}[0-9]+)(?:[eE][+-]?[0-9]+)?\s*"
    plain = value if text.thousands is None else f"replace({value}, {quote_literal(text.thousands)}, '')"
    plain = plain if text.decimal == "." else f"replace({plain}, {quote_literal(text.decimal)}, '.')"
    return f"CASE WHEN regexp_full_match({value}, {quote_literal(pattern)}) THEN {plain} END"


_ZERO_FRACTION = r"\s*[+-]?(0[xX][0-9a-fA-F_]+|[0-9_]*\.?0*([eE]\+?[0-9]+)?)\s*"
_POWER = r"\s*[+-]?[0-9]*\.[0-9]{0,12}[eE]\+?[0-9]+\s*"


def write_text_cast(value: str, kind: str) -> str:
    """Return SQL that casts a text to a type, with NULL if it does not fit: a number with a fraction is no integer.

    DuckDB's cast rounds such a number. Powers of ten are compared as decimals, which hold twelve digits of a fraction.
    """
    cast = f"TRY_CAST({value} AS {kind})"
    if not INTEGER_TYPE.fullmatch(kind):
        return cast
    marked = " OR ".join(f"contains({value}, '{mark}')" for mark in ".eE")
    exact = f"TRY_CAST({value} AS DECIMAL(38, 12))"
    whole = (
        f"regexp_full_match({value}, {quote_literal(_ZERO_FRACTION)}) OR "
        f"(regexp_full_match({value}, {quote_literal(_POWER)}) AND {exact} = trunc({exact}))"
    )
    return f"CASE WHEN NOT ({marked}) OR {whole} THEN {cast} END"


def write_typed_field(value: str, kind: str, text: Format) -> str:
    """Return SQL that reads a text as a type, with NULL if it does not fit."""
    pattern = text.date_format if kind == "DATE" else text.timestamp_format if "TIMESTAMP" in kind else None
    if pattern is not None:
        value = f"TRY_STRPTIME({value}, {quote_literal(pattern)})"
    if kind == ZONED:
        return f"TRY(timezone('UTC', {value}))" if pattern is not None else write_zoned_text(value)
    if kind == "VARCHAR":
        return f"CASE WHEN NOT contains({value}, {quote_literal(UNDECODABLE)}) THEN {value} END"
    if _NUMERIC.match(kind) and not kind.endswith("]"):
        value = _write_number(value, text)
    return write_text_cast(value, kind)


def _name_items(items: Iterable[str], columns: Iterable[str]) -> list[str]:
    return [f"{item} AS {quote_identifier(name)}" for item, name in zip(items, columns, strict=True)]


def _write_objects(columns: Mapping[str, str], text: Format, raw: bool) -> str:
    nested = {name for name, kind in columns.items() if kind.endswith("]") or kind.startswith("STRUCT")}
    shape = json.dumps({name: "JSON" if name in nested else "VARCHAR" for name in columns})
    items = [
        value
        if raw
        else f"TRY_CAST({value} AS {kind})"
        if name in nested
        else write_typed_field(value, kind, text)
        for name, kind in columns.items()
        for value in (f"struct_extract(r, {quote_literal(name)})",)
    ]
    if raw:
        items = [*_name_items(items, columns), "r IS NULL AS dpsql_unread"]
    objects = "CASE WHEN json_valid(line) THEN line END"
    return f"SELECT {', '.join(items)} FROM (SELECT json_transform({objects}, {quote_literal(shape)}) AS r FROM {RECORDS}) AS a"
