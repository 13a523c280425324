"""Text sources as typed tables: each record is parsed on its own, by the policy's columns and format.

The SQL here raises on no value: a field that does not fit its column is NULL, a record that can't be read is a row of
NULLs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa

from dpsql.engine.clone import literal, quoted
from dpsql.engine.lines import BAD, DAMAGED, array_records, heading, quoted_records, records
from dpsql.errors import PolicyError
from dpsql.policy import Format, Table, fold

_LENT = "dpsql_records"


def read_text(
    con: duckdb.DuckDBPyConnection, name: str, table: Table, columns: Mapping[str, str], files: Iterable[str]
) -> None:
    """Make a temporary table of the records of text files, which lives as long as the connection.

    Args:
        con: where it is made.
        name: of the temporary table.
        table: the policy's table, whose source is text.
        columns: names and types, all that the table will have.
        files: where the records are.

    Raises:
        PolicyError: a file can't be read at all.
    """
    text = (table.format or Format()).fit(table.source, table.text)
    listed = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns.items())
    con.execute(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} ({listed})")
    read = False
    try:
        for path in files:
            con.register(_LENT, _source(path, table, text))
            con.execute(f"INSERT INTO temp.main.{quoted(name)} {_query(path, table, text, columns)}")
            con.unregister(_LENT)
        read = True
    except (duckdb.Error, *DAMAGED):
        pass
    if not read:
        raise PolicyError(f"the source {table.source} of {table.name} can't be read.")


def _source(path: str, table: Table, text: Format) -> pa.RecordBatchReader:
    if table.text == "json":
        return array_records(path, text) if text.records == "array" else records(path, text, False)
    read = quoted_records if text.quoted_newlines else records
    return read(path, text, text.header)


def _query(path: str, table: Table, text: Format, columns: Mapping[str, str]) -> str:
    if table.text == "json":
        return _objects(columns, text)
    names = [fold(name) for name in heading(path, text)] if text.header else [fold(name) for name in columns]
    places = {name: index for index, name in reversed(list(enumerate(names, start=1)))}
    items = [
        fitted(_unquoted(f"f[{places[fold(name)]}]", text), kind, text)
        if fold(name) in places
        else f"NULL::{kind}"
        for name, kind in columns.items()
    ]
    fitting = [f"len(f) = {len(names)}"] if text.header else []
    if text.quoted_newlines:
        fields = f"SELECT fields AS f FROM {_LENT}"
    else:
        fields = f"SELECT line, {_fields(text)} AS f FROM {_LENT}"
        # Put together again the fields must be the line; else something stands beside a quote.
        fitting.append(f"array_to_string(f, {literal(text.delimiter or ',')}) = line")
    whole = f"CASE WHEN {' AND '.join(fitting)} THEN f END" if fitting else "f"
    return f"SELECT {', '.join(items)} FROM (SELECT {whole} AS f FROM ({fields}) AS a) AS b"


def _fields(text: Format) -> str:
    """The fields of a line, quotes and all."""
    comma = literal(text.delimiter or ",")
    plain = f"string_split(line, {comma})"
    if not text.quote:
        return plain
    d, q, e = (_class(letter) for letter in (text.delimiter or ",", text.quote, text.escape or text.quote))
    inside = f"(?:[^{q}]|[{q}][{q}])" if e == q else f"(?:[^{q}{e}]|[{e}].)"
    pattern = f"(?s)[{d}]([{q}]{inside}*[{q}]|[^{d}{q}][^{d}]*|)"
    matched = f"regexp_extract_all(concat({comma}, line), {literal(pattern)}, 1)"
    return f"CASE WHEN contains(line, {literal(text.quote)}) THEN {matched} ELSE {plain} END"


def _class(letter: str) -> str:
    """A letter within the brackets of a regular expression."""
    return f"\\x{ord(letter):02x}"


def _unquoted(field: str, text: Format) -> str:
    bare = f"nullif({field}, {literal(text.null)})"
    if not text.quote or text.quoted_newlines:
        return bare
    quote, escape = text.quote, text.escape or text.quote
    inner = f"{field}[2:-2]"
    if escape == quote:
        inner = f"replace({inner}, {literal(quote * 2)}, {literal(quote)})"
    else:
        inner = f"regexp_replace({inner}, {literal(f'(?s)[{_class(escape)}](.)')}, '\\1', 'g')"
    return f"CASE WHEN starts_with({field}, {literal(quote)}) THEN {inner} ELSE {bare} END"


def fitted(value: str, kind: str, text: Format) -> str:
    """Write SQL that reads a text as a type; NULL where it does not fit, or was no text of the encoding."""
    pattern = text.date_format if kind == "DATE" else text.timestamp_format if "TIMESTAMP" in kind else None
    if pattern is not None:
        value = f"TRY_STRPTIME({value}, {literal(pattern)})"
    if kind == "VARCHAR":
        return f"CASE WHEN NOT contains({value}, {literal(BAD)}) THEN {value} END"
    return f"TRY_CAST({value} AS {kind})"


def _objects(columns: Mapping[str, str], text: Format) -> str:
    nested = {name for name, kind in columns.items() if kind.endswith("]") or kind.startswith("STRUCT")}
    shape = json.dumps({name: "JSON" if name in nested else "VARCHAR" for name in columns})
    items = [
        f"TRY_CAST({value} AS {kind})" if name in nested else fitted(value, kind, text)
        for name, kind in columns.items()
        for value in (f"struct_extract(r, {literal(name)})",)
    ]
    objects = "CASE WHEN json_valid(line) THEN line END"
    return f"SELECT {', '.join(items)} FROM (SELECT json_transform({objects}, {literal(shape)}) AS r FROM {_LENT}) AS a"
