"""The databases of sessions: DuckDB files, attached read-only, and the reasons why one can't be opened.

The reasons come from the file's first bytes, from the operating system, and from locks, never from a row.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb

from dpsql.engine.sandbox import quote_identifier, quote_literal
from dpsql.errors import PolicyError, did_you_mean
from dpsql.policy.model import Policy, Table

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
    # The second is for a file with the name of one of DuckDB's own databases.
    for alias in ("", " AS dpsql_database"):
        try:
            con.execute(f"ATTACH {quote_literal(path)}{alias} (READ_ONLY, TYPE duckdb)")
            return
        except duckdb.Error as error:
            reason = reason or str(error)
    raise _explain(path, reason)


def use_attached(con: duckdb.DuckDBPyConnection) -> None:
    """Make the attached file the default catalog."""
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
    known = [row[0] for row in rows]
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
    found = f" (beside the policy: {', '.join(near)})" if near else ""
    return PolicyError(
        f"the policy names {name}, which the database does not have: no database was given{found}.",
        hint=f'connect to the database that holds {name}: dpsql.connect("{path}", policy=...), %dpsql connect {path} '
        f"--policy ..., or dpsql sql --database {path}; or name a file as the source of {table.name} in the policy.",
    )


def _explain(path: str, reason: str) -> PolicyError:
    """Return the error for a file that can't be attached, given DuckDB's reason."""
    why, hint = _find_reason(path, reason)
    return PolicyError(f"{os.path.basename(path)} can't be opened as a DuckDB database: {why}.", hint=hint)


def _find_reason(path: str, reason: str) -> tuple[str, str]:
    """Return why a file can't be attached, and a hint."""
    holder = _HOLDER.search(reason)
    if holder is not None:
        program = os.path.basename(holder[1].strip()) or "a program"
        return (
            f"it is locked, since another process has it open for writing ({program}, process {holder[2]})",
            "close it there, open it there read-only, or give a copy of the file.",
        )
    if "already attached" in reason or "handle conflict" in reason:
        return (
            "it is open in this process already",
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
        return f"it is {other}", _suggest(other)
    if head[8:12] == b"DUCK":
        return f"DuckDB {duckdb.__version__} can't read it", "it may be of a newer version, or damaged."
    known = ".csv, .tsv, .json or .parquet"
    return (
        "it is none",
        f"give the path of a DuckDB file; a file of text or of columns is known by its ending: {known}.",
    )


def _suggest(other: str) -> str:
    if "Parquet" in other:
        return 'name it in the policy: source = "visits.parquet"; then no database is needed.'
    return "copy its tables into a DuckDB file, or into Parquet files that the policy names."


def check_database(database: Any, policy: Policy) -> None:
    """Refuse an object that is no database, without showing its content."""
    if isinstance(database, str | Path | duckdb.DuckDBPyConnection | Mapping):
        return
    kind = type(database).__name__
    names = [table.name for table in policy.tables.values() if not table.public and not table.file]
    if hasattr(database, "__arrow_c_stream__") or hasattr(database, "collect_schema"):
        hint = f'dpsql.connect({{"{(names or ["visits"])[0]}": frame}}, policy=...)'
        raise PolicyError(f"the database is a {kind}, and which table it is does not stand there.", hint=hint)
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
