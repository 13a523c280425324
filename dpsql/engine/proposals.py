"""Formats and types proposed for sources from their rows, for the data owner's eyes only.

A session never guesses: it reads by the policy's format and types. A proposal is checked by the SQL that a session runs, so
no value of the sample would be NULL under it, except for words that it proposes as ``null``.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

import duckdb
import pyarrow as pa

from dpsql.engine.arrow_tables import list_object_columns, to_arrow
from dpsql.engine.sandbox import quote_identifier, quote_literal
from dpsql.engine.sources import describe_file, describe_relation, is_arrow, open_memory, simplify_type
from dpsql.engine.text_sources import (
    READ_ERRORS,
    RECORDS,
    is_sheet,
    open_packed,
    read_heading,
    read_keys,
    read_source,
    split_record,
    write_query,
    write_typed_field,
)
from dpsql.errors import PolicyError
from dpsql.late_dataclass import dataclass
from dpsql.policy.model import Format, NameMapping, Table, fold
from dpsql.policy.validate import settle_type

SAMPLE_ROWS = 10_000
_HEAD_BYTES, _HEAD_LINES = 1 << 20, 1000
_MOST_SKIPPED = 50
"""The most lines before the one that names the columns."""
_DELIMITERS = "\t;|,"
"""Possible delimiters. A comma comes last, since it may be within numbers."""
_NULL_WORDS = r"""
NA N/A n/a na NULL Null null None none nan NaN NAN NaT #N/A #NULL! - -- . ? \N <NA> (null) nil missing Missing N.A. k.A.
"""
_WORDS = frozenset(_NULL_WORDS.split())
"""Words that mean NULL if all other values of a column are numbers, dates, times or truths."""
_MARKS = (
    *((".", None), (",", None), (",", "."), (".", ","), (",", " "), (",", "\u00a0")),
    *((",", "\u202f"), (".", " "), (".", "'"), (".", "\u2019")),
)
"""Characters before the fraction and between groups of digits, the usual ones first."""
_DAYS = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y.%m.%d", "%d.%m.%y", "%d/%m/%y"),
    *("%m/%d/%y", "%d-%m-%y", "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y"),
)
_CLOCKS = ("%H:%M:%S", "%H:%M", "%I:%M:%S %p", "%I:%M %p", "%H:%M:%S.%f")
_MOMENTS = (
    *(f"{day}{sep}{clock}" for day in _DAYS for clock in _CLOCKS for sep in (" ", "T")),
    *(f"%Y/%m/%d {clock}" for clock in _CLOCKS),
)
_SWAPPED = str.maketrans("dm", "md")
_WHOLE = re.compile(r"\s*[+-]?(?:0|[1-9][0-9]{0,17})\s*")
_REAL = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_CODE = re.compile(r"\s*[+-]?(?:0[0-9]+|[0-9]{19,})\s*")
"""A text of digits that is no number: an identifier with leading zeros, or one too long for BIGINT."""
_TRUTH = re.compile(r"(?:true|false|t|f)", re.IGNORECASE)
_ISO_DAY = re.compile(r"[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}")
_ISO_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?Z?")
_ISO_ZONED = re.compile(_ISO_MOMENT.pattern.removesuffix("Z?") + r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)")
_CLOCK = re.compile(r"(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?")
_PLAIN = (
    ("BIGINT", _WHOLE),
    ("DOUBLE", _REAL),
    ("BOOLEAN", _TRUTH),
    ("DATE", _ISO_DAY),
    ("TIMESTAMP", _ISO_MOMENT),
    ("TIMESTAMP WITH TIME ZONE", _ISO_ZONED),
    ("TIME", _CLOCK),
)
"""Types whose values are read without a format, narrower ones first."""


@dataclass(frozen=True)
class TextProposal:
    """A format and types of a text source.

    Args:
        form: the format: given settings, and proposed ones.
        settings: the proposed settings that differ from the given ones.
        types: the type of each column.
        notes: doubts about columns.
        rows: records in the sample.
        named: whether the first line names the columns.
    """

    form: Format
    settings: Mapping[str, object]
    types: Mapping[str, str]
    notes: Mapping[str, str] = field(default_factory=dict)
    rows: int = 0
    named: bool = True


@dataclass(frozen=True)
class Losses:
    """Losses of a sample of text files under a format and types.

    Args:
        rows: records in the sample.
        unread: records of which nothing can be read.
        lost: by column, values that would be NULL and all values, if there are any of the former.
    """

    rows: int
    unread: int
    lost: Mapping[str, tuple[int, int]]

    @property
    def weight(self) -> tuple[int, int]:
        """The number of records of which nothing can be read, and of lost values."""
        return self.unread, sum(lost for lost, _ in self.lost.values())


def count_losses(
    table: Table, files: Collection[str], types: Mapping[str, str], limit: int | None = SAMPLE_ROWS
) -> Losses | None:
    """Count values of the first ``limit`` records (None: all) that would be NULL; None if files can't be read."""
    with suppress(PolicyError, duckdb.Error, *READ_ERRORS):
        return _count(table, files, types, limit)
    return None


def _count(table: Table, files: Collection[str], types: Mapping[str, str], limit: int | None) -> Losses:
    text = (table.format or Format()).fit(table.source, table.text)
    total, unread = 0, 0
    lost, there = Counter[str](), Counter[str]()
    for path in files:
        with duckdb.connect(":memory:") as con:
            sample = _take(path, table, text, None if limit is None else max(limit // len(files), 1))
            con.register(RECORDS, sample)
            con.execute(f"CREATE TABLE t AS {write_query(path, table, text, types, raw=True)}")
            items = [
                f", COUNT({name}), COUNT({write_typed_field(name, kind, text)})"
                for name, kind in ((quote_identifier(name), kind) for name, kind in types.items())
            ]
            (row,) = con.execute(
                f"SELECT COUNT(*), COUNT(*) FILTER (WHERE dpsql_unread){''.join(items)} FROM t"
            ).fetchall()
        total, unread = total + row[0], unread + row[1]
        for place, name in enumerate(types):
            there[name] += row[2 + 2 * place]
            lost[name] += row[2 + 2 * place] - row[3 + 2 * place]
    return Losses(total, unread, {name: (lost[name], there[name]) for name in types if lost[name]})


def _take(path: str, table: Table, text: Format, limit: int | None) -> pa.Table | pa.RecordBatchReader:
    """Return the first records of a file; all if there is no limit."""
    reader = read_source(path, table, text)
    if limit is None:
        return reader
    batches, rows = [], 0
    for batch in reader:
        batches.append(batch)
        rows += len(batch)
        if rows >= limit:
            break
    return pa.Table.from_batches(batches, reader.schema).slice(0, limit)


def propose_format(table: Table, files: Collection[str], wanted: Iterable[str] = ()) -> TextProposal | None:
    """Propose a format and types of CSV files (None if unreadable); ``wanted``: the columns that the policy names."""
    with suppress(PolicyError, duckdb.Error, *READ_ERRORS):
        return _propose(table, files, list(wanted))
    return None


def _propose(table: Table, files: Collection[str], wanted: list[str]) -> TextProposal | None:
    given = table.format or Format()
    path = next(iter(files))
    if is_sheet(path):
        names = [name for name in read_heading(path, given.fit(table.source, table.text)) if name]
        names = names if given.header else wanted
        texts, rows = _read_texts(replace(table, format=given, columns={}), files, names)
        return replace(_propose_types(texts, given, names, table, files), rows=rows, named=given.header)
    lines, encoding = _read_lines(path, given)
    if (joined := _join_lines(lines, given, table)) is not None:
        lines, given = joined, replace(given, quoted_newlines=True)
    form = _find_shape(
        given if encoding == given.encoding else replace(given, encoding=encoding), table, lines, wanted
    )
    if form is None:
        return None
    if form.escape != given.escape:  # a backslash before a quote may also be the end of a text
        plain = replace(form, escape=given.escape)
        unread = [
            _count(replace(table, format=f, columns={}), files, {}, SAMPLE_ROWS).unread for f in (form, plain)
        ]
        form = form if unread[0] < unread[1] else plain
    text = form.fit(table.source, table.text)
    if form.header:
        heading = read_heading(path, text)
        names = [*NameMapping({name: None for name in reversed(heading) if name.strip()})][::-1]
    else:
        width = len(split_record(next((line for line in lines[form.skip :] if line), ""), text))
        names = wanted if len(wanted) == width else [f"column{place}" for place in range(1, width + 1)]
    texts, rows = _read_texts(replace(table, format=form, columns={}), files, names)
    found = _propose_types(texts, form, names, table, files)
    return replace(found, rows=rows, named=form.header)


def _read_lines(path: str, given: Format) -> tuple[list[str], str]:
    """Return the first lines of a file, and its encoding."""
    with open_packed(path) as file:
        head = file.read(_HEAD_BYTES)
    encoding = given.encoding
    if encoding == "utf-8":
        if head.startswith((b"\xff\xfe", b"\xfe\xff")) or head[1:200:2].count(0) > len(head[:200]) // 4:
            encoding = "utf-16"
        else:
            encoding = next((code for code in ("utf-8", "windows-1252") if _decodes(head, code)), "latin-1")
    codec = "utf-16-le" if encoding == "utf-16" else encoding
    if encoding == "utf-16" and head.startswith(b"\xfe\xff"):
        codec = "utf-16-be"
    text = head.decode(codec, "replace").removeprefix("\ufeff")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return (lines[:-1] if len(head) == _HEAD_BYTES else lines)[:_HEAD_LINES], encoding


def _decodes(head: bytes, encoding: str) -> bool:
    cut = head.rfind(b"\n") + 1 if len(head) == _HEAD_BYTES else len(head)
    try:
        head[:cut].decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _join_lines(lines: list[str], given: Format, table: Table) -> list[str] | None:
    """Return records whose quoted fields contain newlines; None if no two records do, or if their widths differ."""
    quote = given.quote
    if not quote or given.comment is not None or given.skip or not lines:
        return None
    joined = list[str]()
    inside = False
    for line in lines:
        if inside:
            joined[-1] += f"\n{line}"
        else:
            joined.append(line)
        inside ^= line.count(quote) % 2 == 1
    if inside:
        joined.pop()  # the sample ends within it
    joined = [line for line in joined if line.strip()]
    if sum("\n" in line for line in joined) < 2:
        return None
    for letter in [given.delimiter] if given.delimiter is not None else _DELIMITERS:
        text = replace(given, delimiter=letter, quoted_newlines=True).fit(table.source, table.text)
        widths = {len(split_record(line, text)) for line in joined}
        if len(widths) == 1 and widths != {1}:
            return joined
    return None


def _find_shape(given: Format, table: Table, lines: list[str], wanted: list[str]) -> Format | None:
    """Return a format with delimiter, quotes, comments, skipped lines and header; None if no line has anything."""
    usual = given.fit(table.source, table.text)
    whole = "\n".join(lines)
    changes: dict[str, Any] = {}
    said = re.fullmatch(r'\s*"?sep=(.)"?\s*', lines[0]) if lines else None  # a first line of Excel's
    if said is not None and given == replace(given, delimiter=None, skip=0):
        given = replace(given, delimiter=said[1], skip=1)
    if (
        given.quote == '"'
        and '"' not in whole
        and len(re.findall(r"(?:^|[,;\t|])'[^'\n]*'(?=[,;\t|]|$)", whole, re.M)) > 1
    ):
        changes["quote"] = "'"
        given = replace(given, quote="'")
    escaped = f"\\{given.quote}"
    if (
        given.escape is None
        and given.quote
        and escaped in whole
        and given.quote * 2 not in whole.replace(escaped, "")
    ):
        changes["escape"] = "\\"
    mark = given.comment or ("#" if any(line.startswith("#") for line in lines) else None)
    if mark is not None and given.comment is None and _names_columns(lines, mark, usual):
        mark = None
    plain = [line for line in lines if line.strip() and not (mark and line.startswith(mark))]
    if not plain:
        return None
    best: tuple[tuple[float, ...], str | None, int] | None = None
    for letter in [given.delimiter] if given.delimiter is not None else _DELIMITERS:
        text = replace(given, delimiter=letter, comment=None).fit(table.source, table.text)
        widths = Counter(len(split_record(line, text)) for line in plain)
        width, many = max(widths.items(), key=lambda item: (item[0] > 1, item[1]))
        if width < 2 and given.delimiter is None:
            continue
        met = max((_count_met(split_record(line, text), wanted) for line in lines[:_MOST_SKIPPED]), default=0)
        score = (
            float(min(met, 2)),
            many / len(plain),
            float(letter == usual.delimiter and many == len(plain)),
        )
        if many * 2 >= len(plain) and (best is None or score[:2] > best[0][:2]):
            best = (score, letter, width)
    chosen, width = (usual.delimiter or ",", 1) if best is None else best[1:]
    if chosen != usual.delimiter:
        changes["delimiter"] = chosen
    if given.skip or not given.header or given.comment:
        form = replace(given, **changes)
        return replace(form, comment=mark) if mark and not given.quoted_newlines else form
    text = replace(given, **changes, comment=None).fit(table.source, table.text)
    split = [split_record(line, text) for line in lines]
    named = [
        place for place, fields in enumerate(split[:_MOST_SKIPPED]) if wanted and _count_met(fields, wanted)
    ]
    fitting = [place for place, fields in enumerate(split) if len(fields) == width and lines[place].strip()]
    rows = [place for place in fitting if not (mark and lines[place].startswith(mark))]
    if rows and all(split[place][-1] == "" for place in rows):  # each row but the first ends in a delimiter
        above = next((place for place in reversed(range(rows[0])) if lines[place].strip()), None)
        if above is not None and len(split[above]) == width - 1 and all(split[above]):
            split = [fields[:-1] if len(fields) == width else fields for fields in split]
            rows, width = [above, *rows], width - 1
    start = named[0] if named else rows[0] if rows else 0
    before = [line for line in lines[:start] if line.strip()]
    if mark is not None:
        within = any(line.startswith(mark) for line in lines[start:])
        if lines[start].startswith(mark) or not (within or all(line.startswith(mark) for line in before)):
            mark = None  # also #id,name names columns
    if mark is not None and given.comment is None and not given.quoted_newlines:
        changes["comment"] = mark
    if (
        start
        and not (mark and all(line.startswith(mark) for line in before))
        and start <= _MOST_SKIPPED
        and before
    ):
        changes["skip"] = start
    later = [split[place] for place in rows if place > start]
    if not named and later and _is_row(split[start], later):
        changes["header"] = False
    return replace(given, **changes)


def _names_columns(lines: list[str], mark: str, usual: Format) -> bool:
    """Return whether the last line of comment before the rows names their columns, such as ``#id,name``."""
    rows = [line for line in lines if line.strip() and not line.startswith(mark)]
    start = next((place for place, line in enumerate(lines) if line.strip() and not line.startswith(mark)), 0)
    if start == 0 or len(rows) < 1:
        return False
    for letter in [usual.delimiter] if usual.delimiter != "," else _DELIMITERS:
        text = replace(usual, delimiter=letter)
        split = [split_record(line, text) for line in [lines[start - 1], *rows]]
        if len(split[0]) > 1 and len({len(fields) for fields in split}) == 1:
            return _is_row(split[1], split[2:] or split[1:]) and not _is_row(split[0], split[1:])
    return False


def _count_met(fields: list[str], wanted: list[str]) -> int:
    known = set(map(fold, fields))
    return sum(fold(name) in known for name in wanted)


def _is_row(first: list[str], later: list[list[str]]) -> bool:
    """Return whether a first line looks like a row: where the column's other values are numbers or dates, so is its own."""
    found = False
    years = [text for text in first if re.fullmatch("(?:19|20)[0-9]{2}", text)]
    if len(years) > 1 and len(set(years)) == len(years):
        return False
    for place, text in enumerate(first):
        values = {row[place].strip() for row in later if len(row) == len(first)} - _WORDS - {""}
        if not values or not all(re.match(r"[+-]?[.,]?[0-9]", value) for value in values):
            continue
        if not re.match(r"[+-]?[.,]?[0-9]", text.strip()):
            return False
        found = True
    return found


def _read_texts(table: Table, files: Collection[str], names: list[str]) -> tuple[dict[str, set[str]], int]:
    """Return the distinct texts of each column in a sample, and the number of its records."""
    text = replace(table.format or Format(), null="").fit(table.source, table.text)
    found: dict[str, set[str]] = {name: set() for name in names}
    rows = 0
    for path in files:
        sample = _take(path, table, text, max(SAMPLE_ROWS // len(files), 1))
        rows += len(sample)
        with duckdb.connect(":memory:") as con:
            con.register(RECORDS, sample)
            # BIGINT, whose NULL may be in quotes
            query = write_query(path, table, text, dict.fromkeys(names, "BIGINT"), raw=True)
            read = con.execute(query).fetchall()
        for place, name in enumerate(names):
            found[name].update(row[place] for row in read if row[place] is not None)
    return found, rows


def guess_type(values: Collection[str], words: Collection[str] = _WORDS) -> tuple[str, set[str]]:
    """Return the type that reads all texts but the words for NULL without a format, and the words that occur.

    >>> guess_type({"1", "NA"}), guess_type({"007"}), guess_type({"2024-12-31T10:00:00Z"})
    (('BIGINT', {'NA'}), ('VARCHAR', set()), ('TIMESTAMP', set()))
    """
    blank = {value for value in values if not value.strip()}
    met = {value for value in values if value.strip() in words} | blank
    rest = [value for value in values if value not in met]
    if rest and not any(map(_CODE.fullmatch, rest)):
        for kind, pattern in _PLAIN:
            if all(map(pattern.fullmatch, rest)):
                return kind, met - {""}
    return "VARCHAR", set()


def _fits_marks(values: Iterable[str], decimal: str, thousands: str | None) -> bool:
    """Return whether all texts are numbers with these marks."""
    point, digits = re.escape(decimal), "[0-9]+"
    if thousands is not None:
        digits = f"(?:[0-9]{{1,3}}(?:{re.escape(thousands)}[0-9]{{3}})+|[0-9]+)"
    pattern = re.compile(rf"\s*[+-]?(?:{digits}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
    return all(map(pattern.fullmatch, values)) and not any(map(_CODE.fullmatch, values))


def _fits_pattern(values: Iterable[str], pattern: str) -> bool:
    try:
        for value in values:
            datetime.datetime.strptime(value, pattern)
    except ValueError:
        return False
    return True


def _choose(
    options: Iterable[object],
    columns: Mapping[str, Collection[str]],
    fits: Callable[[Collection[str], Any], bool],
) -> Any:
    """Return the option that fits most columns, the first of equals; None if there are no columns."""
    best, most = None, 0
    for option in options:
        many = sum(fits(values, option) for values in columns.values())
        if many > most:
            best, most = option, many
    return best


def _propose_types(
    texts: Mapping[str, set[str]], form: Format, names: list[str], table: Table, files: Collection[str]
) -> TextProposal:
    """Return types for texts, with the marks of numbers and the patterns of dates that fit most columns."""
    words = _WORDS | set(form.words)
    types, notes, used = {}, {}, set[str]()
    for name in names:
        types[name], met = guess_type(texts[name], words)
        used |= met
    changes: dict[str, Any] = {}
    left = {name: {v for v in texts[name] if v.strip() and v.strip() not in words} for name in names}
    digits = {name: values for name, values in left.items() if any(c.isdigit() for v in values for c in v)}
    unread = {name: digits[name] for name in digits if types[name] == "VARCHAR"}
    if (form.decimal, form.thousands) == (".", None):
        numbers = {name: digits[name] for name in digits if types[name] in ("VARCHAR", "BIGINT", "DOUBLE")}
        marks = _choose(_MARKS, numbers, lambda values, option: _fits_marks(values, *option)) or (".", None)
    else:
        marks = (form.decimal, form.thousands)
    if marks != (form.decimal, form.thousands):
        changes |= {"decimal": marks[0]} if marks[0] != "." else {}
        changes |= {"thousands": marks[1]} if marks[1] is not None else {}
    if marks != (".", None):
        for name, values in digits.items():
            if types[name] not in ("VARCHAR", "DOUBLE", "BIGINT"):
                continue
            fits = _fits_marks(values, *marks)
            whole = fits and not any(marks[0] in value or "e" in value.lower() for value in values)
            types[name] = "VARCHAR" if not fits else "BIGINT" if whole else "DOUBLE"
            if fits:
                used |= {value for value in texts[name] if value not in values} - {""}
                unread.pop(name, None)
                other = next(
                    (m for m in _MARKS if m != marks and m[0] != marks[0] and _fits_marks(values, *m)), None
                )
                if other is not None and not whole:
                    notes[name] = f"each number also fits decimal = {_quote(other[0])}" + (
                        f", thousands = {_quote(other[1])}" if other[1] else ""
                    )
    for kind, key, patterns in (("DATE", "date_format", _DAYS), ("TIMESTAMP", "timestamp_format", _MOMENTS)):
        usual, given = [n for n in names if types[n] == kind], getattr(form, key)
        dated = {name: values for name, values in unread.items() if any(len(v) >= 6 for v in values)}
        chosen = given or _choose(patterns, dated, _fits_pattern)
        fitting = [name for name, values in dated.items() if chosen and _fits_pattern(values, chosen)]
        if given is None and (not fitting or len(usual) >= len(fitting)):
            notes |= dict.fromkeys(
                fitting, f"its {kind}s have the pattern {chosen}, others are ISO: a file has one {key}"
            )
            continue
        if given is None:
            changes[key] = chosen
        for name in usual:
            if not _fits_pattern(left[name], chosen):
                types[name] = "VARCHAR"
                notes[name] = f"its {kind}s are ISO, others have the pattern {chosen}: a file has one {key}"
        for name in fitting:
            types[name] = kind
            used |= {value for value in texts[name] if value not in left[name]} - {""}
            unread.pop(name)
            swapped = chosen.translate(_SWAPPED)
            if "%m" in chosen and swapped != chosen and _fits_pattern(left[name], swapped):
                notes[name] = f"each value also fits {swapped}"
    new = sorted(used - set(form.words))
    if new:
        changes["null"] = [*form.words, *new]
    made = replace(form, **changes)
    losses = _count(replace(table, format=made, columns={}), files, types, SAMPLE_ROWS)
    for name in losses.lost:
        types[name] = "VARCHAR"
    given = (table.format or Format()).collect()
    settings = {key: value for key, value in made.collect().items() if given.get(key) != value}
    return TextProposal(made, settings, types, notes)


def _quote(letter: str) -> str:
    return f'"{letter}"'


# -- types from rows ----------------------------------------------------------------------------------------------------


def propose_types(table: Table, files: list[str]) -> dict[str, str]:
    """Propose types, from rows, for JSON and several Parquet files, whose types the policy must declare; empty if unreadable."""
    listed = f"[{', '.join(map(quote_literal, files))}]"
    if table.text is None and is_arrow(files[0]):
        return {
            name: _fold_type(simplify_type(kind))
            for path in files
            for name, kind in describe_file(path).items()
        }
    if table.text is None:
        body = f"read_parquet({listed}, union_by_name = true, hive_partitioning = true)"
    else:
        body = f"read_json({listed}, sample_size = -1, union_by_name = true, ignore_errors = true, format = 'auto')"
    with open_memory() as con:
        described = describe_relation(con, body) or {}
        if table.text == "json" and list(described) == ["json"] and not read_keys(table, files[0]):
            return {}  # DuckDB's name for values that are no objects
        found = {name: _fold_type(kind) for name, kind in described.items()}
    if table.text == "json":
        losses = count_losses(table, files, found, None) if found else None
        found |= dict.fromkeys(losses.lost if losses else (), "VARCHAR")
    return found


def _fold_type(kind: str) -> str:
    with suppress(PolicyError):
        return settle_type("type", kind)
    return "VARCHAR"


_TEXTUAL = ("BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP")
"""Types that texts are tried as, narrower ones first."""


def propose_object_types(name: str, frame: object) -> dict[str, str]:
    """Propose types of a frame's columns of Python objects, from their values: for the data owner's eyes only."""
    table = to_arrow(name, frame)
    found: dict[str, str] = {}
    with duckdb.connect(":memory:") as con:
        con.register("frame", table)
        for column in sorted(list_object_columns(table) or (), key=table.column_names.index):
            text = quote_identifier(column)
            tries = ", ".join(f"COUNT({text}) = COUNT(TRY_CAST({text} AS {kind}))" for kind in _TEXTUAL)
            (row,) = con.execute(f"SELECT COUNT({text}) > 0, {tries} FROM frame").fetchall()
            fitting = [kind for kind, fits in zip(_TEXTUAL, row[1:], strict=True) if fits and row[0]]
            found[column] = fitting[0] if fitting else "VARCHAR"
    return found
