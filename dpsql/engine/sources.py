"""Files and data frames as relations of a session, with the policy's columns or their own.

Sources that can't be read where they are (all text; a Parquet file with values that DuckDB can't take) are copied once,
when the session opens. The copy is a temporary table of the session's own database in memory: no other process sees it,
it is gone with the session, and DuckDB spills it where everything else is spilled.

One text in a Parquet file that is not UTF-8, or a time beyond a day, makes every query over its column fail, so one
person's row would say that it is there. Such columns are found once per version of a file, outside any statement, and
their bad values are NULL in the copy. A file without any is read in place.

Types proposed from the rows of a source are for the data owner's eyes only, since they tell about the rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import duckdb
import pyarrow as pa

from dpsql.engine.base import find_files
from dpsql.engine.frames import clean_array
from dpsql.engine.sandbox import quote_identifier, quote_literal
from dpsql.engine.text_sources import copy_text
from dpsql.errors import PolicyError
from dpsql.ledger.state_files import make_private_directory, make_state_directory, write_private
from dpsql.policy.model import Format, Policy, Table, explain_missing_types, fold, list_types
from dpsql.policy.tables import FILE_ENDINGS
from dpsql.policy.validate import settle_type

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile


_LENT_COLUMNS = "dpsql_clean_columns"
_RULES = 1
"""The version of what is looked for; columns that were remembered under another are read again."""
_SAFE_TYPES = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
    "UHUGEINT", "FLOAT", "DOUBLE", "BLOB", "UUID",
}  # fmt: skip
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


def write_scan(*paths: str, options: str = "") -> str:
    """Write SQL that reads files of the same columns, without those that a folder's name would add."""
    return f"read_parquet([{', '.join(map(quote_literal, paths))}], hive_partitioning = false{options})"


def describe_relation(con: duckdb.DuckDBPyConnection, body: str) -> dict[str, str] | None:
    """Read names and types of a relation's columns; None where it can't be read."""
    with suppress(duckdb.Error):
        return {row[0]: row[1] for row in con.execute(f"DESCRIBE SELECT * FROM {body}").fetchall()}
    return None


def _open_memory() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config={"temp_directory": ""})


def describe_parquet(path: str) -> dict[str, str]:
    """Read names and types of a file's columns without a session."""
    with _open_memory() as con:
        return describe_relation(con, write_scan(path)) or {}


def find_bad_columns(path: str, columns: Mapping[str, str]) -> list[str]:
    """Find the columns with values that DuckDB can't take, and remember them until the file changes."""
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


def _make_stamp(path: str) -> list[object]:
    stat = os.stat(path)
    return [_RULES, duckdb.__version__, path, stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_dev]


def _search(path: str, columns: Mapping[str, str]) -> list[str]:
    """Return the columns with bad values, each looked for on its own."""
    places = enumerate(columns.items())
    return [
        name
        for place, (name, kind) in places
        if (kind not in _SAFE_TYPES and _fails(path, quote_identifier(name), kind))
        or (_nested(kind) and not _is_clean(path, place))
    ]


def _fails(path: str, column: str, kind: str) -> bool:
    """Read every value of a column in a database of its own, which a bad one may bring down.

    The hash makes it read them all, where DuckDB would answer from a file's statistics.
    """
    kept = write_range_test(column, kind)
    count = "0" if kept is None else f"count(*) FILTER (WHERE NOT {kept})"
    with suppress(duckdb.Error), _open_memory() as con:
        rows = con.execute(f"SELECT bit_xor(hash({column})), {count} FROM {write_scan(path)}").fetchall()
        return bool(rows[0][1])
    return True


def write_range_test(column: str, kind: str) -> str | None:
    """Write SQL that is false for values that DuckDB holds but fails over; None for types that have none."""
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
    """Tell whether moments or decimals may be within other values, where the test does not look."""
    within = any(word in kind for word in ("DATE", "TIMESTAMP", "DECIMAL("))
    return within and kind.endswith(("]", ")")) and not kind.startswith("DECIMAL(") | kind.startswith("ENUM")


def _open(path: str) -> ParquetFile:
    import pyarrow.parquet  # here, since it takes long and few files need it

    return pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _is_clean(path: str, place: int) -> bool:
    with suppress(pa.ArrowException, OSError, KeyError), _open(path) as file:
        columns = (batch.column(0) for batch in file.iter_batches(columns=[file.schema_arrow.names[place]]))
        return all(column is clean_array(column) for column in columns)
    return False


def copy_cleaned(
    con: duckdb.DuckDBPyConnection, name: str, path: str, columns: Mapping[str, str], bad: list[str]
) -> None:
    """Make a temporary table of a file, with its columns and types, in which bad values are NULL.

    Raises:
        PolicyError: the file is damaged, beyond single values.
    """
    places = {column: index for index, column in enumerate(columns)}
    made = False
    with suppress(duckdb.Error, pa.ArrowException, OSError, KeyError), _open(path) as file:
        con.register(_LENT_COLUMNS, _read_clean(file, [places[column] for column in bad]))
        items = {column: f"f.{quote_identifier(column)}" for column in columns}
        for index, column in enumerate(bad):
            items[column] = f"TRY_CAST(c.c{index} AS {columns[column]}) AS {quote_identifier(column)}"
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE {quote_identifier(name)} AS SELECT {', '.join(items.values())} "
            f"FROM {write_scan(path, options=', file_row_number = true')} AS f "
            f"JOIN {_LENT_COLUMNS} AS c ON f.file_row_number = c.n"
        )
        con.unregister(_LENT_COLUMNS)
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


def propose_types(table: Table, files: list[str]) -> dict[str, str]:
    """Propose types from the rows of a source whose types the policy must declare; none where it can't be read."""
    listed = f"[{', '.join(map(quote_literal, files))}]"
    text = (table.format or Format()).fit(table.source, table.text) if table.text is not None else Format()
    if table.text is None:
        body = f"read_parquet({listed}, union_by_name = true, hive_partitioning = true)"
    elif table.text == "json":
        body = f"read_json({listed}, sample_size = -1, union_by_name = true, ignore_errors = true, format = 'auto')"
    else:
        quotes = f"quote = {quote_literal(text.quote)}, escape = {quote_literal(text.escape or '')}"
        body = (
            f"read_csv({listed}, sample_size = -1, union_by_name = true, ignore_errors = true, null_padding = true, "
            f"delim = {quote_literal(text.delimiter or ',')}, {quotes}, header = {text.header}, "
            f"nullstr = {quote_literal(text.null)})"
        )
    with _open_memory() as con:
        return {name: _fold_type(kind) for name, kind in (describe_relation(con, body) or {}).items()}


def _fold_type(kind: str) -> str:
    with suppress(PolicyError):
        return settle_type("type", kind)
    return "VARCHAR"


_ENUM = re.compile(r"ENUM\((?:'(?:[^']|'')*'(?:, *)?)*\)")
_LENGTH = re.compile(r"\[\d+\]")
_PARTITION = re.compile(r"([^=/]+)=([^/]*)")


def simplify_type(kind: str) -> str:
    """Return a type as exact queries see it: an ENUM as text, an array of fixed length as a list.

    The labels of an ENUM are data, and some of DuckDB's functions over arrays fail once there is a row.
    """
    return _LENGTH.sub("[]", _ENUM.sub("VARCHAR", kind))


def list_labels(kind: str) -> tuple[str, ...]:
    """Return the labels of an ENUM, or of a list of it, in its order; none of another type.

    >>> list_labels("ENUM('low', 'it''s')")
    ('low', "it's")
    """
    texts = re.findall(r"'((?:[^']|'')*)'", kind) if _ENUM.fullmatch(re.sub(r"\[\d*\]$", "", kind)) else []
    return tuple(text.replace("''", "'") for text in texts)


def find_declared_type(table: Table, name: str) -> str | None:
    """Return the type that the policy gives a column."""
    return table.columns[name].type if name in table.columns else None


def write_typed_column(column: str, kind: str, wanted: str | None) -> str:
    """Write SQL that reads a column as the type that the policy declares, NULL where a value does not fit."""
    if wanted is None or wanted == simplify_type(kind):
        return column if simplify_type(kind) == kind else f"CAST({column} AS {simplify_type(kind)})"
    return f"TRY_CAST({column} AS {wanted})"


def name_view(table: Table) -> str:
    """Return the name of the temporary view (or table) that a source is read through."""
    return f"dpsql_source_{table.name}"


def open_files(con: duckdb.DuckDBPyConnection, policy: Policy, table: Table, files: list[str]) -> None:
    """Make the temporary view or table that exact queries read.

    Raises:
        PolicyError: a file can't be read, or the policy does not say what types its columns have.
    """
    name = name_view(table)
    if table.text is not None:
        copy_text(con, name, table, list_types(policy, table), files)
        return
    columns = list_types(policy, table) if table.several else None
    together: dict[tuple[str, ...], list[str]] = {}
    queries = []
    for index, path in enumerate(files):
        found = describe_relation(con, write_scan(path))
        if found is None:
            raise PolicyError(f"the source {table.source} of {table.name} can't be read as parquet.")
        items = _write_items(table, path, found, columns)
        if bad := find_bad_columns(path, found):
            copy_cleaned(con, f"{name}_{index}", path, found, bad)
            queries.append(f"SELECT {items} FROM temp.main.{quote_identifier(f'{name}_{index}')}")
        else:
            together.setdefault((items, *found, *found.values()), []).append(path)
    queries += [f"SELECT {shape[0]} FROM {write_scan(*paths)}" for shape, paths in together.items()]
    _create(con, table, "VIEW", " UNION ALL ".join(queries))


def _write_items(table: Table, path: str, found: Mapping[str, str], columns: Mapping[str, str] | None) -> str:
    """Write what is selected from one Parquet file: its own columns, or the policy's where there may be several.

    A declared column that is not in the file may be in the names of its folders (``year=2024``); else it is NULL.
    """
    if columns is None:
        read = {
            name: write_typed_column(quote_identifier(name), kind, find_declared_type(table, name))
            for name, kind in found.items()
        }
    else:
        there = {fold(name): (name, kind) for name, kind in reversed(list(found.items()))}
        parts = _PARTITION.findall(os.path.dirname(path))
        folders = {fold(unquote(key)): unquote(value) for key, value in parts}
        read = {}
        for name, wanted in columns.items():
            if fold(name) in there:
                own, kind = there[fold(name)]
                read[name] = write_typed_column(quote_identifier(own), kind, wanted)
            else:
                value = folders.get(fold(name))
                read[name] = f"TRY_CAST({quote_literal(value) if value is not None else 'NULL'} AS {wanted})"
    return ", ".join(f"{item} AS {quote_identifier(name)}" for name, item in read.items())


def open_table(
    con: duckdb.DuckDBPyConnection,
    table: Table,
    body: str,
    columns: Mapping[str, str],
    collated: list[str],
    checked: bool,
) -> bool:
    """Make the temporary view that exact queries read, where a table of the database is not read as it is.

    Args:
        con: where it is made.
        table: the policy's table.
        body: its name in the database, as SQL.
        columns: its columns and their types.
        collated: those whose collation makes different texts equal.
        checked: whether to look for values that DuckDB holds but fails over. Not in a connection that was given: its
            tables may change during the session, and whoever gave it can read them.

    Raises:
        PolicyError: it can't be read as the types that the policy declares.
    """
    read = {}
    viewed = False  # decided by types, never by values, since the view's name is in EXPLAIN
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
    """Tell whether a table holds only values that a test keeps."""
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
    """Make the temporary view (or table) that exact queries read of a frame.

    Args:
        con: where it is made, and where the frame is registered.
        policy: the owner's declaration.
        table: the policy's table.
        body: the frame's name, as SQL.
        columns: its columns, with the types that DuckDB sees.
        objects: those of Python objects, which are texts now; None for a pandas frame that somebody else registered,
            whose types DuckDB infers.

    Raises:
        PolicyError: the policy leaves out the type of a column that has none.
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
    """Write SQL that reads a frame's column as the declared type, by way of its text.

    Whether a column of a frame holds numbers or objects is decided by its values: 2.5 must become the same whole number
    in both, or one person's text would change what everybody else's numbers are.
    """
    if wanted is None or wanted == simplify_type(kind):
        return write_typed_column(column, kind, wanted)
    text = column if kind == "VARCHAR" else f"CAST({column} AS VARCHAR)"
    if wanted.endswith("]") or wanted.startswith("STRUCT"):
        text = f"TRY_CAST({text} AS JSON)" if kind == "VARCHAR" else column
    return f"TRY_CAST({text} AS {wanted})"


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
        text = f"CAST({quote_identifier(column)} AS VARCHAR)" if column is not None else "NULL"
        items.append(f"TRY_CAST({text} AS {kind}) AS {quote_identifier(name)}")
    row = con.execute("SELECT current_setting('pandas_analyze_sample')").fetchone()
    con.execute("SET pandas_analyze_sample = 0")  # objects are texts, whatever they are
    try:
        _create(con, table, "TABLE", f"SELECT {', '.join(items)} FROM {body}")
    finally:
        con.execute(f"SET pandas_analyze_sample = {int(row[0]) if row else 1000}")


def open_again(con: duckdb.DuckDBPyConnection, table: Table, body: str) -> tuple[str, str, str]:
    """Give a relation that another table of the policy reads already a name of this table's own."""
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
    """Tell whether different texts are equal in a column, from texts of ours in its type; reads no row."""
    ours = "SELECT UNNEST(['a', 'A', 'e', '\u00e9', 'e\u0301', '\u00df', 'ss'])"
    query = f"SELECT {quote_identifier(name)} AS v FROM {body} WHERE FALSE UNION ALL {ours}"
    # GROUP BY, for COUNT(DISTINCT) does not look at collations in every version.
    return len(con.execute(f"SELECT v FROM ({query}) AS t GROUP BY v").fetchall()) < 7


def exists_in_catalog(con: duckdb.DuckDBPyConnection, name: str, temporary: bool = False) -> bool:
    """Tell whether a connection's catalog has a table or view of that name; reads no rows."""
    rows = con.execute(
        "SELECT temporary FROM duckdb_tables() WHERE lower(table_name) = lower(?) UNION ALL "
        "SELECT temporary FROM duckdb_views() WHERE lower(view_name) = lower(?)",
        [name.rsplit(".")[-1]] * 2,
    ).fetchall()
    return any(row[0] for row in rows) if temporary else bool(rows)


def is_pandas(con: duckdb.DuckDBPyConnection, place: tuple[str, str, str]) -> bool:
    """Tell whether a relation is a registered pandas frame, whose types DuckDB infers from some of its rows."""
    query = "SELECT sql FROM duckdb_views() WHERE (database_name, schema_name, view_name) = (?, ?, ?)"
    return any("pandas_scan(" in row[0] for row in con.execute(query, place).fetchall())


def find_source(table: Table, base: Path) -> list[str] | None:
    """Return the files of a table's source, or None when it is a table of the database.

    Raises:
        PolicyError: there are none, or they are of a kind that is not read.
    """
    if not table.file:
        return None
    if not (table.source or "").lower().endswith(FILE_ENDINGS):
        raise PolicyError(
            f"the source {table.source} of {table.name} is not a kind of file that is read here.",
            hint=f"known endings are {', '.join(FILE_ENDINGS)}.",
        )
    return find_files(table, base)
