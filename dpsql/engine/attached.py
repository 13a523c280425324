"""A database file, read by an instance of DuckDB that belongs to one session."""

from __future__ import annotations

import contextlib

import duckdb

from dpsql.engine.clone import quoted

_OTHER_NAME = "dpsql_database"


def attach(con: duckdb.DuckDBPyConnection, path: str) -> bool:
    """Attach a database file, read-only, and make it the one that names without a catalog mean; False if it can't be.

    Each engine has an instance of its own: DuckDB lets several of one process read the same file, and each keeps its
    own settings, views and memory. Opened by its path, a file would have one instance for the whole process, whose
    settings the first session has locked.
    """
    literal = "'" + path.replace("'", "''") + "'"
    for alias in (
        "",
        f" AS {_OTHER_NAME}",
    ):  # the second where the file is called like a database of DuckDB's own
        with contextlib.suppress(duckdb.Error):
            con.execute(f"ATTACH {literal}{alias} (READ_ONLY)")
            rows = con.execute(
                "SELECT database_name FROM duckdb_databases() WHERE path IS NOT NULL"
            ).fetchall()
            con.execute(f"USE {quoted(rows[0][0])}")
            return True
    return False
