"""Files, database files and data frames as relations of a session, with the policy's columns or their own.

Text files, and Parquet files with invalid values, are copied once when the session opens, into a temporary table of the
session's own in-memory database, which no other process sees and DuckDB may spill. One text in a Parquet file that is not UTF-8,
or a time after 24:00, makes every query over its column fail: one person's row would decide how a statement ends. So columns
with such values are found once per version of a file, and the values are NULL in the copy. Other files are read in place.

Frames and Arrow files are read once when a session opens, by :mod:`dpsql.engine.arrow_tables`. Errors about a database file
come from its first bytes, the operating system and locks, never from a row.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import duckdb
import pyarrow as pa

from dpsql.engine.arrow_tables import clean_array, list_orders, make_readable
from dpsql.engine.base import find_files
from dpsql.engine.sandbox import quote_identifier, quote_literal
from dpsql.errors import PolicyError, did_you_mean
from dpsql.ledger.state_files import make_private_directory, make_state_directory, write_private
from dpsql.policy.model import Policy, Table, explain_missing_types, fold, list_types
from dpsql.policy.tables import ARROW_ENDINGS, FILE_ENDINGS, ZONED
from dpsql.privacy.periods import Days

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile


_CLEAN_COLUMNS = "dpsql_clean_columns"
_RULES = 1
"""The version of this search; cached results of other versions are ignored."""
_SAFE = """
BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT FLOAT DOUBLE BLOB UUID
"""
_SAFE_TYPES = frozenset(_SAFE.split())
_ENDS = {
    "TIME": ("00:00:00", "24:00:00"),
    "DATE": ("5877642-06-25 (BC)", "5881580-07-10"),
    "TIMESTAMP": ("290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806"),
    "TIMESTAMP_S": ("290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54"),
    "TIMESTAMP_MS": ("290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775"),
    "TIMESTAMP_NS": ("1677-09-22 00:00:00", "2262-04-11 23:47:16.854775806"),
    "TIMESTAMP WITH TIME ZONE": ("290309-12-22 (BC) 00:00:00+00", "294247-01-10 04:00:54.775806+00"),
}
"""The first and the last finite value of a type."""


def write_scan(*paths: str, folders: bool = False, options: str = "") -> str:
    """Return SQL that reads Parquet files with equal columns, with texts from the names of their folders or without."""
    partitioned = "true, hive_types_autocast = false" if folders else "false"
    return (
        f"read_parquet([{', '.join(map(quote_literal, paths))}], hive_partitioning = {partitioned}{options})"
    )


def describe_relation(con: duckdb.DuckDBPyConnection, body: str) -> dict[str, str] | None:
    """Return names and types of a relation's columns; None if it can't be read."""
    with suppress(duckdb.Error):
        return {row[0]: row[1] for row in con.execute(f"DESCRIBE SELECT * FROM {body}").fetchall()}
    return None


def open_memory() -> duckdb.DuckDBPyConnection:
    """Open an empty database in memory that spills nothing."""
    return duckdb.connect(":memory:", config={"temp_directory": ""})


def describe_parquet(path: str) -> dict[str, str]:
    """Return names and types of a Parquet file's columns; empty if it can't be read."""
    with open_memory() as con:
        return describe_relation(con, write_scan(path)) or {}


def describe_file(path: str) -> dict[str, str]:
    """Return names and types of the columns of a Parquet or Arrow file; empty if it can't be read."""
    if not is_arrow(path):
        return describe_parquet(path)
    with suppress(pa.ArrowException, OSError), open_memory() as con:
        con.register("frame", make_readable(Path(path).name, _read_arrow(path).schema.empty_table()))
        return describe_relation(con, "frame") or {}
    return {}


def is_arrow(path: str) -> bool:
    """Return whether a file is in Arrow's format, by its name."""
    return path.lower().endswith(ARROW_ENDINGS)


def _read_arrow(path: str) -> pa.Table:
    """Read a file in Arrow's file or stream format, or in Feather's first version."""
    import pyarrow.feather

    with suppress(pa.ArrowException), pa.memory_map(path) as file:
        return pa.ipc.open_stream(file).read_all()
    return pyarrow.feather.read_table(path)


_Orders = dict[str, tuple[str, ...]]
"""The labels of columns of an ordered type, in that order."""


def _copy_arrow(
    con: duckdb.DuckDBPyConnection, name: str, table: Table, path: str
) -> tuple[dict[str, str], _Orders]:
    """Create a temporary table of an Arrow file, with NULL for invalid values.

    Returns:
        Names and types of its columns, and the orders of their labels.
    """
    with suppress(pa.ArrowException, OSError, duckdb.Error):
        read = make_readable(table.name, _read_arrow(path))
        con.register(_CLEAN_COLUMNS, read)
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE {quote_identifier(name)} AS SELECT * FROM {_CLEAN_COLUMNS}"
        )
        con.unregister(_CLEAN_COLUMNS)
        return describe_relation(con, f"temp.main.{quote_identifier(name)}") or {}, list_orders(read)
    return {}, {}


_columns: dict[str, tuple[list[object], dict[str, str], list[str]]] = {}
"""The columns of Parquet files and those with invalid values, by path, with the file's stamp."""


def _describe_clean(
    con: duckdb.DuckDBPyConnection, table: Table, path: str
) -> tuple[dict[str, str], list[str]]:
    """Return names and types of a Parquet file's columns, and the columns with invalid values, cached until the file changes.

    Raises:
        PolicyError: it can't be read.
    """
    stamp = _make_stamp(path)
    known = _columns.get(path)
    if known is None or known[0] != stamp:
        found = describe_relation(con, write_scan(path))
        if found is None:
            raise PolicyError(f"the source {table.source} of {table.name} can't be read as parquet.")
        known = stamp, found, find_bad_columns(path, found)
        if _make_stamp(path) == stamp:
            _columns[path] = known
    return known[1:]


def find_bad_columns(path: str, columns: Mapping[str, str]) -> list[str]:
    """Return the columns of a Parquet file with invalid values, cached until the file changes."""
    if is_arrow(path):  # it is read as a frame
        return []
    stamp = _make_stamp(path)
    place: Path | None = None
    with suppress(OSError):
        home = make_state_directory() / "sources"
        make_private_directory(home)
        place = home / hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()
    if place is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(place.read_text(encoding="utf-8"))
            if known["stamp"] == stamp and set(known["bad"]) <= set(columns):
                return [name for name in columns if name in known["bad"]]
    found = _search(path, columns)
    if place is not None and _make_stamp(path) == stamp:
        with suppress(OSError):
            write_private(place, json.dumps({"stamp": stamp, "bad": found}))
    return found


_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9:.]+)?"
_ranges: dict[str, tuple[list[object], tuple[int, int] | None]] = {}
"""The first and the last day of a column of a file, by both, with the file's stamp; None if the file doesn't say."""


def choose_files(
    con: duckdb.DuckDBPyConnection, table: Table, files: Sequence[str], column: str, days: Days
) -> list[str]:
    """Return the files that may have rows with a date among some days, by their folders' names or their footers' statistics.

    A file is chosen if neither has dates for the column, so only the time of a query depends on this.
    """
    stamps = {path: [*_make_stamp(path), fold(column)] for path in files}
    unread = [path for path in files if _ranges.get(path, (None,))[0] != stamps[path]]
    if unread:
        query = (
            "SELECT file_name, MIN(stats_min_value)[:10], MAX(stats_max_value)[:10] FROM parquet_metadata($1) "
            "WHERE lower(path_in_schema) = lower($2) GROUP BY file_name HAVING bool_and(COALESCE(type IN ('INT32', 'INT64') "
            "AND regexp_full_match(stats_min_value, $3) AND regexp_full_match(stats_max_value, $3), FALSE))"
        )
        found: dict[str, tuple[int, int]] = {}
        with suppress(duckdb.Error, ValueError):
            for path, *ends in con.execute(query, [unread, column, _DATE]).fetchall():
                low, high = (datetime.date.fromisoformat(day).toordinal() for day in ends)
                found[path] = low, high
        for path in unread:
            _ranges[path] = stamps[path], found.get(path) or _find_folder_day(table, path, column)
    known = ((path, _ranges[path][1]) for path in files)
    return [
        path
        for path, ends in known
        if ends is None or any(ends[0] < high and low <= ends[1] for low, high in days)
    ]


def _find_folder_day(table: Table, path: str, column: str) -> tuple[int, int] | None:
    """Return the day in a folder's name as a first and a last day; None if the file has the column itself, or it is no date."""
    known = _columns.get(path)
    if known is None or known[0] != _make_stamp(path) or fold(column) in map(fold, known[1]):
        return None
    text = _read_folders(path).get(fold(column), "")
    if find_declared_type(table, column) not in ("DATE", "TIMESTAMP") or not re.fullmatch(_DATE, text):
        return None
    with suppress(ValueError):
        day = datetime.date.fromisoformat(text[:10]).toordinal()
        return day, day
    return None


def _make_stamp(path: str) -> list[object]:
    stat = os.stat(path)
    return [_RULES, duckdb.__version__, path, stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_dev]


def _search(path: str, columns: Mapping[str, str]) -> list[str]:
    """Return the columns with invalid values: each is searched separately if one of them fails."""
    unsafe = {name: kind for name, kind in columns.items() if kind not in _SAFE_TYPES}
    failing = _fails(path, unsafe)
    return [
        name
        for place, (name, kind) in enumerate(columns.items())
        if (failing and name in unsafe and _fails(path, {name: kind}))
        or (_nested(kind) and not _is_clean(path, place))
    ]


def _fails(path: str, columns: Mapping[str, str]) -> bool:
    """Return whether reading columns fails, in a separate database; a hash makes DuckDB read values, not statistics."""
    if not columns:
        return False
    items = ["0"]
    for name, kind in columns.items():
        kept = write_range_test(quote_identifier(name), kind)
        items += [f"bit_xor(hash({quote_identifier(name)}))"]
        items[0] += "" if kept is None else f" + count(*) FILTER (WHERE NOT {kept})"
    with suppress(duckdb.Error), open_memory() as con:
        rows = con.execute(f"SELECT {', '.join(items)} FROM {write_scan(path)}").fetchall()
        return bool(rows[0][0])
    return True


def write_range_test(column: str, kind: str) -> str | None:
    """Return SQL that is false for stored values on which DuckDB fails; None if the type has no such values."""
    if kind.startswith("DECIMAL("):
        width, scale = (int(part) for part in kind[8:-1].split(","))
        most = f"{'9' * (width - scale) or '0'}.{'9' * scale or '0'}"
        ends = ("-" + most, most)
    elif kind in _ENDS:
        ends = _ENDS[kind]
    else:
        return None
    low, high = (f"{quote_literal(end)}::{kind}" for end in ends)
    infinite = f" OR {column} IN ('infinity'::{kind}, '-infinity'::{kind})"
    return f"({column} BETWEEN {low} AND {high}{infinite if kind in _ENDS and kind != 'TIME' else ''})"


def _nested(kind: str) -> bool:
    """Return whether a type may contain dates, times or decimals, which the range test does not reach."""
    within = any(word in kind for word in ("DATE", "TIMESTAMP", "DECIMAL("))
    return within and kind.endswith(("]", ")")) and not kind.startswith("DECIMAL(") | kind.startswith("ENUM")


def _open(path: str) -> ParquetFile:
    import pyarrow.parquet  # slow to import, and few files need it

    return pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _is_clean(path: str, place: int) -> bool:
    with suppress(pa.ArrowException, OSError, KeyError), _open(path) as file:
        columns = (batch.column(0) for batch in file.iter_batches(columns=[file.schema_arrow.names[place]]))
        return all(column is clean_array(column) for column in columns)
    return False


def copy_cleaned(
    con: duckdb.DuckDBPyConnection, name: str, path: str, columns: Mapping[str, str], bad: list[str]
) -> None:
    """Create a temporary table of a file with NULL for invalid values; PolicyError if the whole file is damaged."""
    places = {column: index for index, column in enumerate(columns)}
    made = False
    with suppress(duckdb.Error, pa.ArrowException, OSError, KeyError), _open(path) as file:
        con.register(_CLEAN_COLUMNS, _read_clean(file, [places[column] for column in bad]))
        items = {column: f"f.{quote_identifier(column)}" for column in columns}
        for index, column in enumerate(bad):
            items[column] = f"TRY_CAST(c.c{index} AS {columns[column]}) AS {quote_identifier(column)}"
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE {quote_identifier(name)} AS SELECT {', '.join(items.values())} "
            f"FROM {write_scan(path, options=', file_row_number = true')} AS f "
            f"JOIN {_CLEAN_COLUMNS} AS c ON f.file_row_number = c.n"
        )
        con.unregister(_CLEAN_COLUMNS)
        made = True
    if not made:
        raise PolicyError(f"the file {Path(path).name} can't be read.")


def _read_clean(file: ParquetFile, places: list[int]) -> pa.RecordBatchReader:
    names = [file.schema_arrow.names[place] for place in places]
    kinds = [(f"c{index}", file.schema_arrow.types[place]) for index, place in enumerate(places)]
    schema = pa.schema([("n", pa.int64()), *kinds])

    def parts() -> Iterator[pa.RecordBatch]:
        row = 0
        for batch in file.iter_batches(columns=names):
            numbers = pa.array(range(row, row + len(batch)), pa.int64())
            row += len(batch)
            yield pa.record_batch([numbers, *(clean_array(batch.column(name)) for name in names)], schema)

    return pa.RecordBatchReader.from_batches(schema, parts())


_ENUM = re.compile(r"ENUM\((?:'(?:[^']|'')*'(?:, *)?)*\)")
_LENGTH = re.compile(r"\[\d+\]")
_ZONED_NS = re.compile(r'(?<!")\bTIMESTAMPTZ_NS\b(?!")')
_NULL = re.compile(r'(?<!")"NULL"(?![" ])')
_READ_AS = {"JSON": "VARCHAR", "TIME_NS": "TIME"}
_READ = re.compile(rf'("(?:[^"]|"")*")|\b({"|".join(_READ_AS)})(?=[\[\],)]|$)')
_PARTITION = re.compile(r"([^=/]+)=([^/]*)")
_NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_PLAIN_PARTITION = re.compile(r"\w+=(?!null$|__hive_default_partition__$)[\w .:+-]+", re.IGNORECASE)
"""Names of folders that DuckDB reads as :func:`_read_folders` does."""


def simplify_type(kind: str) -> str:
    """Return a type as exact queries see it: VARCHAR for an ENUM or JSON, TIME for TIME_NS, a list for an array of fixed
    length, INTEGER for NULL alone.

    The labels of an ENUM are data. DuckDB fails on stored JSON that is none, and on texts that it compares with JSON.
    Some of DuckDB's functions over arrays fail if there is a row. The type of values that are all NULL can't be written
    within another type.

    >>> simplify_type('STRUCT("NULL" DATE, b "NULL"[2])')
    'STRUCT("NULL" DATE, b INTEGER[])'
    >>> simplify_type('STRUCT("JSON" JSON[], JSON DATE)')
    'STRUCT("JSON" VARCHAR[], JSON DATE)'
    >>> simplify_type("TIME_NS[]")
    'TIME[]'
    """
    kind = _READ.sub(lambda found: found[1] or _READ_AS[found[2]], kind)
    kind = _ZONED_NS.sub(ZONED, _ENUM.sub("VARCHAR", kind))
    return _NULL.sub("INTEGER", _LENGTH.sub("[]", kind))


def list_labels(kind: str) -> tuple[str, ...]:
    """Return the labels of an ENUM, or of a list of it, in order; empty for other types.

    >>> list_labels("ENUM('low', 'it''s')")
    ('low', "it's")
    """
    texts = re.findall(r"'((?:[^']|'')*)'", kind) if _ENUM.fullmatch(re.sub(r"\[\d*\]$", "", kind)) else []
    return tuple(text.replace("''", "'") for text in texts)


def find_declared_type(table: Table, name: str) -> str | None:
    """Return a column's type in the policy."""
    return table.columns[name].type if name in table.columns else None


def write_typed_column(column: str, kind: str, wanted: str | None) -> str:
    """Return SQL that reads a column as its declared type, NULL if a value doesn't fit; local times are in UTC."""
    plain = simplify_type(kind)
    if wanted is None or wanted == plain:
        return column if plain == kind else f"CAST({column} AS {plain})"
    from dpsql.engine.text_sources import INTEGER_TYPE, write_text_cast, write_zoned_text

    if plain == ZONED:
        local = f"TRY(timezone('UTC', {column if kind == plain else f'CAST({column} AS {plain})'}))"
        return local if wanted == "TIMESTAMP" else f"TRY_CAST({local} AS {wanted})"
    if wanted == ZONED and plain == "VARCHAR":
        return write_zoned_text(column)
    if wanted == ZONED and plain.startswith(("DATE", "TIMESTAMP")):
        return f"TRY(timezone('UTC', TRY_CAST({column} AS TIMESTAMP)))"
    if plain == "VARCHAR":
        return write_text_cast(column, wanted)
    cast = f"TRY_CAST({column} AS {wanted})"
    fraction = INTEGER_TYPE.fullmatch(wanted) and plain.startswith(("FLOAT", "DOUBLE", "DECIMAL("))
    return f"CASE WHEN {column} = trunc({column}) THEN {cast} END" if fraction else cast


def _write_as_text(column: str, kind: str) -> str:
    """Return SQL for a column as text, with moments in UTC."""
    return f"CAST({write_typed_column(column, kind, 'TIMESTAMP') if simplify_type(kind) == ZONED else column} AS VARCHAR)"


VIEW = "dpsql_source_"


def name_view(table: Table) -> str:
    """Return the name of a source's temporary view or table."""
    return f"{VIEW}{table.name}"


def open_files(con: duckdb.DuckDBPyConnection, policy: Policy, table: Table, files: list[str]) -> _Orders:
    """Create the temporary view or table of files for exact queries, and return the orders of labels of one Arrow file.

    Raises:
        PolicyError: a file can't be read, or the policy does not declare the types of its columns.
    """
    name = name_view(table)
    if table.text is not None:
        from dpsql.engine.text_sources import copy_text

        copy_text(con, name, table, list_types(policy, table), files)
        return {}
    orders: _Orders = {}
    columns = list_types(policy, table) if table.several else None
    together: dict[tuple[object, ...], list[str]] = {}
    queries = []
    for index, path in enumerate(files):
        if is_arrow(path):
            copied = f"{name}_{index}"
            own, orders = _copy_arrow(con, copied, table, path)
            if not own:
                raise PolicyError(
                    f"the source {table.source} of {table.name} can't be read as an Arrow file."
                )
            items = _write_items(table, path, own, columns)
            queries.append(f"SELECT {items} FROM temp.main.{quote_identifier(copied)}")
            continue
        found, bad = _describe_clean(con, table, path)
        folders = () if bad or columns is None else _list_folder_columns(path, found)
        items = _write_items(table, path, found, columns, folders)
        if bad:
            copy_cleaned(con, f"{name}_{index}", path, found, bad)
            queries.append(f"SELECT {items} FROM temp.main.{quote_identifier(f'{name}_{index}')}")
        else:
            together.setdefault((items, folders, *found.items()), []).append(path)
    queries += [
        f"SELECT {items} FROM {write_scan(*paths, folders=bool(folders))}"
        for (items, folders, *_), paths in together.items()
    ]
    _create(con, table, "VIEW", " UNION ALL ".join(queries))
    return {} if table.several else orders  # files may differ


def _read_folders(path: str) -> dict[str, str]:
    """Return the values in the names of a file's folders (``year=2024``), by column, without those that stand for NULL."""
    parts = _PARTITION.findall(os.path.dirname(path))
    return {fold(unquote(key)): unquote(value) for key, value in parts if value != _NULL_PARTITION}


def _list_folder_columns(path: str, found: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that a scan of many files reads from folders' names; none if DuckDB might read other values."""
    parts = [part for part in os.path.dirname(path).split(os.sep) if "=" in part]
    keys = tuple(part.partition("=")[0] for part in parts)
    names = {fold(name) for name in (*keys, *found)}
    alone = len(names) == len(keys) + len(found)
    return keys if alone and all(map(_PLAIN_PARTITION.fullmatch, parts)) else ()


def _write_items(
    table: Table,
    path: str,
    found: Mapping[str, str],
    columns: Mapping[str, str] | None,
    folders: Sequence[str] = (),
) -> str:
    """Return the SELECT list for one Parquet file: its own columns, or the policy's if there may be several files.

    A declared column that the file lacks may be in its folders' names; otherwise it is NULL.

    Args:
        folders: the columns that the scan reads from the folders' names.
    """
    if columns is None:
        read = {
            name: write_typed_column(quote_identifier(name), kind, find_declared_type(table, name))
            for name, kind in found.items()
        }
    else:
        there = {fold(name): (name, "VARCHAR") for name in folders}
        there |= {fold(name): (name, kind) for name, kind in reversed(list(found.items()))}
        values = _read_folders(path)
        read = {}
        for name, wanted in columns.items():
            if fold(name) in there:
                own, kind = there[fold(name)]
                read[name] = write_typed_column(quote_identifier(own), kind, wanted)
            else:
                value = values.get(fold(name))
                text = quote_literal(value) if value is not None else "NULL"
                read[name] = write_typed_column(text, "VARCHAR", wanted)
    return ", ".join(f"{item} AS {quote_identifier(name)}" for name, item in read.items())


def open_table(
    con: duckdb.DuckDBPyConnection,
    table: Table,
    body: str,
    columns: Mapping[str, str],
    collated: list[str],
    checked: bool,
) -> bool:
    """Create a temporary view of a database's table if exact queries need one, and return whether they do.

    Args:
        body: its name in the database, as SQL.
        collated: columns with a collation that makes different texts equal.
        checked: whether to search for values on which DuckDB fails. An owner's open connection is not searched: its
            tables may change during the session, and the owner can read them anyway.

    Raises:
        PolicyError: it can't be read as its declared types.
    """
    read = {}
    viewed = False  # types decide, never values, since EXPLAIN shows the view's name
    for column, kind in columns.items():
        name = quote_identifier(column)
        kept = write_range_test(name, kind) if checked else None
        viewed = viewed or kept is not None
        if kept is not None and not _all_inside(con, body, kept):
            name = f"CASE WHEN {kept} THEN {name} END"
        item = write_typed_column(name, kind, find_declared_type(table, column))
        if item == quote_identifier(column) and column in collated:
            item = f'{item} COLLATE "C"'
        if item != quote_identifier(column):
            read[column] = item
    if not read and not viewed:
        return False
    replaced = ", ".join(f"{item} AS {quote_identifier(column)}" for column, item in read.items())
    _create(con, table, "VIEW", f"SELECT *{f' REPLACE ({replaced})' if read else ''} FROM {body}")
    return True


def _all_inside(con: duckdb.DuckDBPyConnection, body: str, kept: str) -> bool:
    """Return whether all values of a table pass a test."""
    with suppress(duckdb.Error):
        return con.execute(f"SELECT 1 FROM {body} WHERE NOT {kept} LIMIT 1").fetchone() is None
    return False


def open_frame(
    con: duckdb.DuckDBPyConnection,
    policy: Policy,
    table: Table,
    body: str,
    columns: Mapping[str, str],
    objects: Container[str] | None,
) -> None:
    """Create the temporary view or table of a frame for exact queries.

    Args:
        con: the connection on which the frame is registered.
        body: the frame's name, as SQL.
        columns: its columns, with DuckDB's types.
        objects: its columns of Python objects, which are texts now; None for a pandas frame on the owner's connection,
            for which DuckDB infers types.

    Raises:
        PolicyError: a column without a type has none in the policy either.
    """
    if objects is None:
        _copy_registered(con, table, body, columns, list_types(policy, table))
        return
    missing = [name for name in columns if name in objects and find_declared_type(table, name) is None]
    if missing:
        raise explain_missing_types(table, missing)
    read = {
        name: _write_through_text(quote_identifier(name), kind, find_declared_type(table, name))
        for name, kind in columns.items()
    }
    items = ", ".join(f"{item} AS {quote_identifier(name)}" for name, item in read.items())
    _create(con, table, "TABLE" if objects else "VIEW", f"SELECT {items} FROM {body}")


def _write_through_text(column: str, kind: str, wanted: str | None) -> str:
    """Return SQL that reads a frame's column as its declared type, through its text.

    A column's values decide whether it has numbers or objects. 1e15 must become an equal integer in both cases; otherwise
    one person's text would change everybody's numbers.
    """
    if wanted is None or wanted == simplify_type(kind):
        return write_typed_column(column, kind, wanted)
    if simplify_type(kind) == ZONED:
        return write_typed_column(column, kind, wanted)
    text = column if kind == "VARCHAR" else f"CAST({column} AS VARCHAR)"
    if wanted.endswith("]") or wanted.startswith("STRUCT"):
        text = f"TRY_CAST({text} AS JSON)" if kind == "VARCHAR" else column
        return f"TRY_CAST({text} AS {wanted})"
    return write_typed_column(text, "VARCHAR", wanted)


def _copy_registered(
    con: duckdb.DuckDBPyConnection,
    table: Table,
    body: str,
    columns: Mapping[str, str],
    types: Mapping[str, str],
) -> None:
    there = {fold(name): name for name in columns}
    items = []
    for name, kind in types.items():
        column = there.get(fold(name))
        text = _write_as_text(quote_identifier(column), columns[column]) if column is not None else "NULL"
        items.append(f"{write_typed_column(text, 'VARCHAR', kind)} AS {quote_identifier(name)}")
    row = con.execute("SELECT current_setting('pandas_analyze_sample')").fetchone()
    con.execute("SET pandas_analyze_sample = 0")  # all objects are texts
    try:
        _create(con, table, "TABLE", f"SELECT {', '.join(items)} FROM {body}")
    finally:
        con.execute(f"SET pandas_analyze_sample = {int(row[0]) if row else 1000}")


def open_again(con: duckdb.DuckDBPyConnection, table: Table, body: str) -> tuple[str, str, str]:
    """Create a second view of a relation that another table of the policy reads, and return its place."""
    _create(con, table, "VIEW", f"SELECT * FROM {body}")
    return ("temp", "main", name_view(table))


def _create(con: duckdb.DuckDBPyConnection, table: Table, kind: str, query: str) -> None:
    made = False
    with suppress(duckdb.Error):
        con.execute(f"CREATE OR REPLACE TEMP {kind} {quote_identifier(name_view(table))} AS {query}")
        made = True
    if not made:
        said = " with the declared types" if any(column.type for column in table.columns.values()) else ""
        raise PolicyError(f"the source {table.source or table.name} of {table.name} can't be read{said}.")


def is_collated(con: duckdb.DuckDBPyConnection, body: str, name: str) -> bool:
    """Return whether a column's collation makes different texts equal, without reading a row."""
    ours = "SELECT UNNEST(['a', 'A', 'e', '\u00e9', 'e\u0301', '\u00df', 'ss'])"
    query = f"SELECT {quote_identifier(name)} AS v FROM {body} WHERE FALSE UNION ALL {ours}"
    # GROUP BY, since COUNT(DISTINCT) ignores collations in some versions
    return len(con.execute(f"SELECT v FROM ({query}) AS t GROUP BY v").fetchall()) < 7


class Listed(NamedTuple):
    """A table or a view of a connection's catalog; ``pandas``: a registered frame, with types inferred from some rows."""

    place: tuple[str, str, str]
    temporary: bool
    pandas: bool

    @property
    def name(self) -> str:
        """Its name for comparisons."""
        return self.place[2].lower()


def list_catalog(con: duckdb.DuckDBPyConnection) -> list[Listed]:
    """Return the tables and views of a connection's catalog, without reading rows."""
    rows = con.execute(
        "SELECT database_name, schema_name, table_name, temporary, FALSE FROM duckdb_tables() UNION ALL "
        "SELECT database_name, schema_name, view_name, temporary, contains(sql, 'pandas_scan(') FROM duckdb_views()"
    ).fetchall()
    return [Listed(row[:3], bool(row[3]), bool(row[4])) for row in rows]


def find_source(table: Table, base: Path) -> list[str] | None:
    """Return the files of a table's source; None for a database's table. PolicyError if there are none, or of no known format."""
    if not table.file:
        return None
    if not (table.source or "").lower().endswith(FILE_ENDINGS):
        hint, folder = f"known endings are {', '.join(FILE_ENDINGS)}.", (table.source or "").rstrip("/")
        if (base / folder).is_dir():
            hint = f'source = "{folder}/**/*.parquet", for the files of a folder.'
        what = f"dpsql does not read files like {table.source}, the source of {table.name}."
        raise PolicyError(what, hint=hint)
    from dpsql.engine.text_sources import require_reader

    require_reader(table.source or "")
    return find_files(table, base)


# -- database files -----------------------------------------------------------------------------------------------------

_OTHER_FORMATS = {
    b"SQLite format 3\0": "an SQLite database",
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"\x1f\x8b": "a gzip archive",
}
_PART = re.compile(r'"((?:[^"]|"")+)"|([^."]+)')
_QUOTED = re.compile(rf'(?=.*")({_PART.pattern})(\.({_PART.pattern}))*')
_HOLDER = re.compile(r"Conflicting lock is held in (.*?)\(PID (\d+)\)")


def attach_database(con: duckdb.DuckDBPyConnection, path: str) -> None:
    """Attach a database file, read-only, as the default catalog.

    Several instances of one process may read a file, each with separate settings and memory. Opened by its path, a file
    would have one instance for the whole process, whose settings the first session has locked.

    Raises:
        PolicyError: it is missing, no DuckDB file, of a newer version, or open elsewhere.
    """
    if not os.path.isfile(path):
        raise PolicyError(
            f"there is no database {os.path.basename(path)}.",
            hint="give the path of a DuckDB file; without one, tables come from the policy's sources.",
        )
    reason = ""
    # The alias is for a file named like one of DuckDB's own databases.
    for alias in ("", " AS dpsql_database"):
        try:
            con.execute(f"ATTACH {quote_literal(path)}{alias} (READ_ONLY, TYPE duckdb)")
            return
        except duckdb.Error as error:
            reason = reason or str(error)
    why, hint = _find_reason(path, reason)
    raise PolicyError(f"{os.path.basename(path)} can't be opened as a DuckDB database: {why}.", hint=hint)


def use_attached(con: duckdb.DuckDBPyConnection) -> None:
    """Set the attached file as the default catalog."""
    rows = con.execute("SELECT database_name FROM duckdb_databases() WHERE path IS NOT NULL").fetchall()
    con.execute(f"USE {quote_identifier(rows[0][0])}")


def list_databases(folder: Path) -> list[str]:
    """Return the sorted DuckDB files of a folder by name, without opening any."""
    with contextlib.suppress(OSError):
        return sorted(p.name for p in folder.iterdir() if p.suffix in (".duckdb", ".ddb") and p.is_file())
    return []


def list_places(name: str, home: tuple[str, str], database: object) -> Iterator[tuple[str, str, str]]:
    """Yield the catalogs, schemas and names that a table's name may mean, in order of precedence.

    Args:
        home: the default catalog and schema.
        database: the session's database. A connection's current schema is queried last: a pending result would interfere.
    """
    parts = name.split(".")
    if _QUOTED.fullmatch(name):
        found = _PART.findall(name)
        parts = [quoted.replace('""', '"') or plain for quoted, plain in found]
    *before, last = parts[-3:]
    yield (*home[: 2 - len(before)], *before, last)  # type: ignore[misc]
    if len(before) == 1:
        yield (before[0], "main", last)
    if isinstance(database, duckdb.DuckDBPyConnection) and len(before) < 2:
        with contextlib.suppress(duckdb.Error):
            used = database.execute("SELECT current_database(), current_schema()").fetchall()[0]
            yield (*used[: 2 - len(before)], *before, last)


def explain_missing_table(
    con: duckdb.DuckDBPyConnection, table: Table, name: str, base: Path, given: bool
) -> PolicyError:
    """Return the error for a missing table, which asks for a database if none was ``given``."""
    query = "SELECT table_name, table_catalog || '.' || table_schema FROM information_schema.tables"
    rows = con.execute(query).fetchall()
    known = [row[0] for row in rows if not row[0].startswith(VIEW)]
    if known or given:
        elsewhere = [
            f"{place}.{found}" for found, place in rows if found.lower() == name.split(".")[-1].lower()
        ]
        hint = (
            f"did you mean {elsewhere[0]}?"
            if elsewhere
            else did_you_mean(name, known) or f"is this the database that holds {name}?"
        )
        return PolicyError(f"the policy names {name}, which the database does not have.", hint=hint)
    near = list_databases(base)
    path = near[0] if len(near) == 1 else "data.duckdb"
    found = f" (next to the policy: {', '.join(near)})" if near else ""
    return PolicyError(
        f"the policy names {name}, which the database does not have: no database was given{found}.",
        hint=f'connect to the database that holds {name}: dpsql.connect("{path}", policy=...), %dpsql connect {path} '
        f"--policy ..., or dpsql sql --database {path}; or name a file as the source of {table.name} in the policy.",
    )


def _find_reason(path: str, reason: str) -> tuple[str, str]:
    """Return why a file can't be attached, given DuckDB's reason, and a hint."""
    holder = _HOLDER.search(reason)
    if holder is not None:
        program = os.path.basename(holder[1].strip()) or "a program"
        return (
            f"it is locked, since another process has it open for writing ({program}, process {holder[2]})",
            "close it there, open it there read-only, or give a copy of the file.",
        )
    if "already attached" in reason or "handle conflict" in reason:
        return (
            "this process has it open already",
            "pass that connection instead of the path: dpsql.connect(con, policy=...), or %dpsql connect con ...",
        )
    if "lock" in reason.lower():
        return "it is locked by another process", "close it there, or give a copy of the file."
    head = b""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        head = file.read(16)
    if not head:
        return "it is empty or can't be read", "give the path of a DuckDB file."
    other = next((what for start, what in _OTHER_FORMATS.items() if head.startswith(start)), None)
    if other is not None:
        parquet = 'name it in the policy: source = "visits.parquet"; then no database is needed.'
        tables = "copy its tables into a DuckDB file, or into Parquet files that the policy names."
        return f"it is {other}", parquet if "Parquet" in other else tables
    if head[8:12] == b"DUCK":
        return f"DuckDB {duckdb.__version__} can't read it", "it may be of a newer version, or damaged."
    known = ".csv, .tsv, .json or .parquet"
    return (
        "it has another format",
        f"give the path of a DuckDB file, or a data file that ends in {known}.",
    )


def check_database(database: object, policy: Policy) -> None:
    """Refuse an object that is no database, without showing its content."""
    if isinstance(database, str | Path | duckdb.DuckDBPyConnection | Mapping):
        return
    kind = type(database).__name__
    names = [table.name for table in policy.tables.values() if not table.public and not table.file]
    if hasattr(database, "__arrow_c_stream__") or hasattr(database, "collect_schema"):
        hint = f'dpsql.connect({{"{(names or ["visits"])[0]}": frame}}, policy=...)'
        raise PolicyError(f"the database is a {kind} without a table name.", hint=hint)
    hint = "give the path of a DuckDB file, an open connection, or a mapping of names to frames."
    raise PolicyError(f"a {kind} is no database.", hint=hint)


def read_seconds(text: str | None) -> float | None:
    """Read a time limit in seconds."""
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise PolicyError(f"{text} is no time limit.", hint='resources={"time_limit": 60} is a minute.')
