"""Types that the rows of an untyped source suggest. For the data owner's eyes only: they tell about the rows.

Sources that are files, as relations of a session: their columns are the policy's, or the file's own types.

What is read through a private copy (all text; a Parquet file with values that DuckDB can't take) is read once, when the
session opens. The copy is a temporary table of the session's own database in memory: no other process sees it, it is
gone with the session, and what DuckDB spills of it goes where everything else is spilled.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Container, Mapping
from urllib.parse import unquote

import duckdb

from dpsql.engine.parquet import bad_columns, copy_cleaned, described, inside, scan
from dpsql.engine.schema_replica import literal, quoted
from dpsql.engine.text_sources import read_text
from dpsql.errors import PolicyError
from dpsql.policy.columns import needs_types, types_of
from dpsql.policy.model import Format, Policy, Table, fold
from dpsql.policy.source_types import type_of


def propose_types(table: Table, files: list[str]) -> dict[str, str]:
    """Read a source whose types the policy must declare, and give what its rows look like; empty where they can't be read."""
    listed = f"[{', '.join(map(literal, files))}]"
    text = (table.format or Format()).fit(table.source, table.text) if table.text is not None else Format()
    if table.text is None:
        body = f"read_parquet({listed}, union_by_name = true, hive_partitioning = true)"
    elif table.text == "json":
        body = f"read_json({listed}, sample_size = -1, union_by_name = true, ignore_errors = true, format = 'auto')"
    else:
        quotes = f"quote = {literal(text.quote)}, escape = {literal(text.escape or '')}"
        body = (
            f"read_csv({listed}, sample_size = -1, union_by_name = true, ignore_errors = true, null_padding = true, "
            f"delim = {literal(text.delimiter or ',')}, {quotes}, header = {text.header}, nullstr = {literal(text.null)})"
        )
    with contextlib.suppress(duckdb.Error), duckdb.connect(":memory:", config={"temp_directory": ""}) as con:
        rows = con.execute(f"DESCRIBE SELECT * FROM {body}").fetchall()
        return {row[0]: _known(row[1]) for row in rows}
    return {}


def _known(kind: str) -> str:
    with contextlib.suppress(PolicyError):
        return type_of(kind)
    return "VARCHAR"


_ENUM = re.compile(r"ENUM\((?:'(?:[^']|'')*'(?:, *)?)*\)")
_LENGTH = re.compile(r"\[\d+\]")
_PARTITION = re.compile(r"([^=/]+)=([^/]*)")


def plain(kind: str) -> str:
    """Return a type as exact queries see it.

    The labels of an ENUM are data: a column of one shows its text only. An array of fixed length is a list: some of
    what DuckDB does with arrays fails once there is a row.
    """
    return _LENGTH.sub("[]", _ENUM.sub("VARCHAR", kind))


def declared(table: Table, name: str) -> str | None:
    """Return the type that the policy gives a column."""
    return table.columns[name].type if name in table.columns else None


def fitting(column: str, kind: str, wanted: str | None) -> str:
    """Write SQL that reads a column of one type as the type that the policy declares; NULL where a value does not fit."""
    if wanted is None or wanted == plain(kind):
        return column if plain(kind) == kind else f"CAST({column} AS {plain(kind)})"
    return f"TRY_CAST({column} AS {wanted})"


def view_of(table: Table) -> str:
    """Return the name of the temporary view (or table) that a source is read through."""
    return f"dpsql_source_{table.name}"


def open_files(con: duckdb.DuckDBPyConnection, policy: Policy, table: Table, files: list[str]) -> None:
    """Make the temporary view or table that exact queries read.

    Raises:
        PolicyError: a file can't be read, or the policy does not say what types its columns have.
    """
    name = view_of(table)
    if table.text is not None:
        read_text(con, name, table, types_of(policy, table), files)
        return
    columns = types_of(policy, table) if table.several else None
    together: dict[tuple[str, ...], list[str]] = {}
    queries = []
    for index, path in enumerate(files):
        found = described(con, path)
        if found is None:
            raise PolicyError(f"the source {table.source} of {table.name} can't be read as parquet.")
        items = _items(table, path, found, columns)
        bad = bad_columns(path, found)
        if bad:
            copy_cleaned(con, f"{name}_{index}", path, found, bad)
            queries.append(f"SELECT {items} FROM temp.main.{quoted(f'{name}_{index}')}")
        else:
            together.setdefault((items, *found, *found.values()), []).append(path)
    queries += [f"SELECT {shape[0]} FROM {scan(*paths)}" for shape, paths in together.items()]
    _made(con, table, "VIEW", " UNION ALL ".join(queries))


def _items(table: Table, path: str, found: Mapping[str, str], columns: Mapping[str, str] | None) -> str:
    """What is selected from one Parquet file: its own columns, or those of the policy where there may be several.

    A declared column that is not in the file may be in the names of its folders (``year=2024``); else it is NULL.
    """
    if columns is None:
        read = {name: fitting(quoted(name), kind, declared(table, name)) for name, kind in found.items()}
    else:
        there = {fold(name): (name, kind) for name, kind in reversed(list(found.items()))}
        folders = {
            fold(unquote(key)): unquote(value) for key, value in _PARTITION.findall(os.path.dirname(path))
        }
        read = {}
        for name, wanted in columns.items():
            if fold(name) in there:
                own, kind = there[fold(name)]
                read[name] = fitting(quoted(own), kind, wanted)
            else:
                value = folders.get(fold(name))
                read[name] = f"TRY_CAST({literal(value) if value is not None else 'NULL'} AS {wanted})"
    return ", ".join(f"{item} AS {quoted(name)}" for name, item in read.items())


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
        checked: look for values that DuckDB holds but fails over. Not in a connection that was given: its tables may
            change under the session, and whoever gave it can read them.

    Raises:
        PolicyError: it can't be read as the types that the policy declares.
    """
    read = {}
    viewed = False  # for its kind, never for its values: the view's name is in EXPLAIN
    for column, kind in columns.items():
        name = quoted(column)
        kept = inside(name, kind) if checked else None
        viewed = viewed or kept is not None
        if kept is not None and not _all_inside(con, body, kept):
            name = f"CASE WHEN {kept} THEN {name} END"
        item = fitting(name, kind, declared(table, column))
        if item == quoted(column) and column in collated:
            item = f'{item} COLLATE "C"'
        if item != quoted(column):
            read[column] = item
    if not read and not viewed:
        return False
    replaced = ", ".join(f"{item} AS {quoted(column)}" for column, item in read.items())
    _made(con, table, "VIEW", f"SELECT *{f' REPLACE ({replaced})' if read else ''} FROM {body}")
    return True


def _all_inside(con: duckdb.DuckDBPyConnection, body: str, kept: str) -> bool:
    """Whether a table of the database holds only values that DuckDB has; what a table's statistics say is not read."""
    with contextlib.suppress(duckdb.Error):
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
        policy: the whole.
        table: the policy's table.
        body: the frame's name, as SQL.
        columns: its columns, with the types that DuckDB sees.
        objects: those of Python objects, which are texts now; None for a pandas frame that somebody else registered, of
            which DuckDB infers the types.

    Raises:
        PolicyError: the policy leaves out the type of a column that has none.
    """
    if objects is None:
        _copy_registered(con, table, body, columns, types_of(policy, table))
        return
    missing = [name for name in columns if name in objects and declared(table, name) is None]
    if missing:
        raise needs_types(table, missing)
    read = {name: _through_text(quoted(name), kind, declared(table, name)) for name, kind in columns.items()}
    items = ", ".join(f"{item} AS {quoted(name)}" for name, item in read.items())
    _made(con, table, "TABLE" if objects else "VIEW", f"SELECT {items} FROM {body}")


def _through_text(column: str, kind: str, wanted: str | None) -> str:
    """A frame's column as the declared type, by way of its text.

    Whether a column of a frame holds numbers or objects is decided by its values: 2.5 must become the same whole number
    in both, or one person's text would change what everybody else's numbers are.
    """
    if wanted is None or wanted == plain(kind):
        return fitting(column, kind, wanted)
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
    items = [
        f"TRY_CAST({f'CAST({quoted(there[fold(name)])} AS VARCHAR)' if fold(name) in there else 'NULL'} AS {kind}) "
        f"AS {quoted(name)}"
        for name, kind in types.items()
    ]
    row = con.execute("SELECT current_setting('pandas_analyze_sample')").fetchone()
    con.execute("SET pandas_analyze_sample = 0")  # objects are texts, whatever they are
    try:
        _made(con, table, "TABLE", f"SELECT {', '.join(items)} FROM {body}")
    finally:
        con.execute(f"SET pandas_analyze_sample = {int(row[0]) if row else 1000}")


def open_again(con: duckdb.DuckDBPyConnection, table: Table, body: str) -> tuple[str, str, str]:
    """Give a relation that another table of the policy reads already a name of this table's own."""
    _made(con, table, "VIEW", f"SELECT * FROM {body}")
    return ("temp", "main", view_of(table))


def _made(con: duckdb.DuckDBPyConnection, table: Table, kind: str, query: str) -> None:
    made = False
    with contextlib.suppress(duckdb.Error):
        con.execute(f"CREATE OR REPLACE TEMP {kind} {quoted(view_of(table))} AS {query}")
        made = True
    if not made:
        said = " with the declared types" if any(column.type for column in table.columns.values()) else ""
        raise PolicyError(f"the source {table.source or table.name} of {table.name} can't be read{said}.")
