"""Data that stay as they are while a session lasts, so that what was found out of them may be kept.

A file tells by its state whether it is another one. Of data in memory nothing does: whoever has a frame may write into the
memory that it shares with an Arrow table, and a file that is mapped into memory changes with its content. So nothing is kept of
them but what rests on copies of ours. The codes of units rest on the units alone: their column is copied, once, when a session
opens, and the rest is read where it is.

A table that was given over an open connection may change with every statement of others, unless its database was attached for
reading alone. But all texts of one transaction see the same rows of DuckDB's own tables, and the same tables, whatever others
commit meanwhile: what was found out of them holds until it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import duckdb
import pyarrow as pa

from dpsql.engine.base import find_states
from dpsql.engine.frames import list_object_columns
from dpsql.policy.model import Table, fold

_READ_ONLY = """
SELECT d.path, d.database_oid FROM duckdb_databases() AS d JOIN duckdb_tables() AS t ON d.database_name = t.database_name
WHERE d.readonly AND d.type = 'duckdb' AND d.path IS NOT NULL AND NOT t.temporary
AND (t.database_name, t.schema_name, t.table_name) = (?, ?, ?)
"""


_OWN_TABLES = """
SELECT COUNT(*) FROM duckdb_databases() AS d JOIN duckdb_tables() AS t ON d.database_name = t.database_name
WHERE d.type = 'duckdb' AND NOT t.temporary AND (t.database_name, t.schema_name, t.table_name) = (?, ?, ?)
"""
_Place = tuple[str, str, str]
"""The catalog, schema and name of a table."""


def copy_units(frames: dict[str, pa.Table], tables: Iterable[Table]) -> dict[str, bool]:
    """Replace the units' columns of frames by copies that nobody else has.

    Args:
        frames: by their names; columns are replaced in it.
        tables: those of the policy.

    Returns:
        For each table with such a copy whether all of its columns are one: frames with columns of objects are read as DuckDB's
        own tables.
    """
    names = {fold(name): name for name in frames}
    copied: dict[str, bool] = {}
    for table in tables:
        name = names.get(fold(table.source or table.name))
        if name is None or len(table.unit_path) != 1:
            continue
        frame = frames[name]
        if list_object_columns(frame):
            copied[table.name] = True
            continue
        unit = fold(table.unit_path[0].column)
        places = [place for place, column in enumerate(frame.column_names) if fold(column) == unit]
        for place in places:
            own = copy_columns(frame.select([place]))
            frame = frame.set_column(place, own.schema.field(0), own.column(0))
        frames[name] = frame
        copied[table.name] = False
    return copied


def copy_columns(table: pa.Table) -> pa.Table:
    """Return the same table in memory of its own."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def find_read_only(con: duckdb.DuckDBPyConnection, place: _Place) -> object:
    """Return the state of a table in a database that was attached for reading alone; None of every other relation.

    A view is none: it may read whatever others can change. Which attachment it is matters beside the file: where another file
    took the path, rows are those of the old one until it is attached anew.
    """
    with suppress(duckdb.Error):
        for path, attachment in con.execute(_READ_ONLY, place).fetchall():
            state = find_states([str(path)])
            return None if state is None else (attachment, state)
    return None


@contextmanager
def hold_transaction(
    con: duckdb.DuckDBPyConnection, lock: Any, places: Collection[_Place]
) -> Iterator[dict[str, object] | None]:
    """Let a cursor see one state of DuckDB's own tables, with a place for what is found out of it.

    There is None where another thread has the cursor, or where one of the relations is no such table: a view may read what has
    no transactions.

    Args:
        con: a cursor that nobody uses without the lock.
        lock: which this thread may take several times.
        places: of the relations.
    """
    with ExitStack() as stack:
        if not places or not lock.acquire(blocking=False):
            yield None
            return
        stack.callback(lock.release)
        still = False
        with suppress(duckdb.Error):
            con.execute("BEGIN TRANSACTION")
            stack.callback(_end, con)
            still = all(con.execute(_OWN_TABLES, place).fetchall() == [(1,)] for place in places)
        yield {} if still else None


def _end(con: duckdb.DuckDBPyConnection) -> None:
    with suppress(duckdb.Error):  # an error has ended it
        con.execute("ROLLBACK")
