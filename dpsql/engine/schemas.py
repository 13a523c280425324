"""Schemas of sources (names, types, declared keys), and DuckDB files attached read-only.

Only for CSV files are rows read: their formats and types are guesses from the first lines, for the data owner's eyes only.
Columns of Python objects and JSON get no types here. Errors about a file come from its first bytes, the operating system and
locks, never from a row.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dpsql.engine.sandbox import quote_identifier, quote_literal
from dpsql.engine.sources import (
    describe_file,
    describe_relation,
    is_arrow,
    list_object_columns,
    simplify_type,
    to_arrow,
)
from dpsql.engine.text_proposals import propose_format
from dpsql.engine.text_sources import READ_ERRORS, is_sheet, read_heading, require_reader
from dpsql.errors import PolicyError, did_you_mean
from dpsql.late_dataclass import dataclass
from dpsql.policy.model import Policy, fold
from dpsql.policy.tables import FILE_ENDINGS, Table

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


_MOST_NAMED = 6


@dataclass(frozen=True)
class TableSchema:
    """A table as its source describes it.

    Args:
        name: its name in SQL.
        source: its source in a policy; None for a table of a database and for a frame.
        columns: the type of each column; None if the source has none.
        unique: folded columns that the database declares unique.
        references: by folded column, the table and column that it refers to in the database.
        guessed: records of a CSV file from which its format and types are guessed; 0 if they are none.
        settings: the settings of its format that are not the usual ones.
        notes: by column, a doubt about its type.
    """

    name: str
    source: str | None
    columns: Mapping[str, str | None]
    unique: frozenset[str] = frozenset()
    references: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    guessed: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


def read_schemas(source: object, base: Path) -> list[TableSchema]:
    """Read the schemas of a source's tables.

    Args:
        source: a Parquet, CSV or JSON file, a glob, a list of these, a DuckDB file or connection, a pandas, polars or Arrow
            table, or a mapping of names to such tables.
        base: the folder of the policy that will name the files.

    Raises:
        PolicyError: a source is missing or unreadable, or two files would be tables of one name.
    """
    if isinstance(source, list | tuple):
        return _read_each([os.path.expanduser(os.fspath(path)) for path in source], base)
    if isinstance(source, str | os.PathLike):
        path = os.path.expanduser(os.fspath(source))
        if path.lower().endswith(FILE_ENDINGS) or glob.has_magic(path):
            return [_read_files(path, base)]
        return _open_database(path)
    if isinstance(source, duckdb.DuckDBPyConnection):
        return list(_read_database(source))
    frames = source if isinstance(source, Mapping) else {"data": source}
    return [_read_frame(str(name), frame) for name, frame in frames.items()]


def _read_each(paths: list[str], base: Path) -> list[TableSchema]:
    """Read several files or globs, one table each; PolicyError if one is a database, or two would have one name."""
    for path in paths if len(paths) > 1 else ():
        if not (path.lower().endswith(FILE_ENDINGS) or glob.has_magic(path)):
            raise PolicyError(
                f"a list of files can't include a database, and {path} is one.",
                hint=f"run dpsql policy init {path}, then add the other files to the policy as tables with a source.",
            )
    tables = [table for path in paths for table in read_schemas(path, base)]
    names = [fold(table.name) for table in tables]
    for name in names:
        if names.count(name) > 1 and len(paths) > 1:
            files = " and ".join(str(t.source) for t in tables if fold(t.name) == name)
            raise PolicyError(
                f"{files} would both be the table {name}.",
                hint="write a policy for one of them, and add the other under another name.",
            )
    return tables


def make_table_name(text: str) -> str:
    """Return a name that SQL accepts without quotes.

    >>> make_table_name("2024 visits-v2"), make_table_name("*")
    ('t_2024_visits_v2', 'data')
    """
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or "data"
    return f"t_{name}" if name[0].isdigit() else name


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


def _read_files(pattern: str, base: Path) -> TableSchema:
    named = os.path.isfile(pattern)  # such as data[1].csv, which is also a glob
    paths = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) and not named else [pattern]
    if not paths or not all(map(os.path.isfile, paths)):
        raise PolicyError(
            f"there is no file {pattern}.",
            hint="give a Parquet, CSV or JSON file, a glob of them in quotes, or a DuckDB file.",
        )
    name = make_table_name(_name_files(pattern))
    with suppress(ValueError):  # on another drive
        near = os.path.relpath(pattern, base)
        pattern = os.path.abspath(pattern) if near.startswith(os.path.join("..", "..")) else near
    pattern = glob.escape(pattern) if named else pattern
    table = Table(name, public=True, source=Path(pattern).as_posix())
    if table.text == "json":
        return TableSchema(name, table.source, {})
    require_reader(pattern)
    try:
        if table.text is not None:
            return _read_text(table, pattern, paths)
        _check_alike(pattern, {path: list(describe_file(path)) for path in paths}, nested=True)
        columns: dict[str, str | None] = {}
        for path in paths:
            columns |= {c: simplify_type(kind) for c, kind in describe_file(path).items() if c not in columns}
    except READ_ERRORS:
        columns = {}
    if not columns:
        raise PolicyError(
            f"{paths[0]} can't be read as {'CSV' if table.text else 'Arrow' if is_arrow(paths[0]) else 'Parquet'}."
        )
    return TableSchema(name, table.source, columns)


def _check_alike(pattern: str, headings: Mapping[str, list[str]], nested: bool = False) -> None:
    """Refuse files with different columns, which can't be one table.

    Args:
        pattern: the glob that matched them.
        nested: whether a file may have additional columns.
    """
    (first, names), *rest = headings.items()
    mine = {fold(name) for name in names}
    for path, others in rest:
        theirs = {fold(name) for name in others}
        if mine == theirs or (nested and (mine <= theirs or theirs <= mine)):
            continue
        files = (
            " ".join(map(shlex.quote, sorted(headings))) if len(headings) <= _MOST_NAMED else "a.csv b.csv"
        )
        raise PolicyError(
            f"{os.path.basename(first)} and {os.path.basename(path)} have different columns: the files of {pattern} "
            "are not one table.",
            hint=f"make a table of each: dpsql policy init {files} -o policy.toml",
        )


def _name_files(pattern: str) -> str:
    """Return a table name for files: the last part of the path that is no pattern, without its ending."""
    parts = [re.sub(r"[*?]|\[.*?\]", "", part) for part in Path(pattern).parts]
    lowered = parts[-1].lower()
    ending = max((e for e in FILE_ENDINGS if lowered.endswith(e)), key=len, default="")
    parts[-1] = parts[-1][: len(parts[-1]) - len(ending)]
    return next((part for part in reversed(parts) if re.search("[A-Za-z0-9]", part)), "data")


def _read_text(table: Table, pattern: str, paths: list[str]) -> TableSchema:
    """Read the names of CSV files' columns, and guess their format and types."""
    found = propose_format(table, paths)
    if found is None:
        raise PolicyError(f"{paths[0]} can't be read as {'XLSX' if is_sheet(paths[0]) else 'CSV'}.")
    if found.named:
        text = found.form.fit(table.source, table.text)
        _check_alike(pattern, {path: read_heading(path, text) for path in paths})
    columns = {name: kind if found.rows else None for name, kind in found.types.items()}
    return TableSchema(
        table.name,
        table.source,
        columns,
        guessed=found.rows,
        settings=found.settings,
        notes=found.notes,
    )


def _open_database(path: str) -> list[TableSchema]:
    with duckdb.connect(":memory:") as con:
        attach_database(con, os.path.realpath(path))
        use_attached(con)
        return list(_read_database(con))


def _read_database(con: duckdb.DuckDBPyConnection) -> Iterator[TableSchema]:
    home = con.execute("SELECT current_database(), current_schema()").fetchall()[0]
    rows = con.execute(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = ? OR table_catalog = 'temp' "
        "ORDER BY table_schema <> ?, table_schema, table_name",
        home,
    ).fetchall()
    for schema, name in rows:
        plain = schema == home[1]
        body = quote_identifier(name) if plain else ".".join(map(quote_identifier, (schema, name)))
        columns = describe_relation(con, body)
        if columns is None or name.startswith("dpsql_"):
            continue
        unique, references = _read_constraints(con, schema, name)
        yield TableSchema(
            name if plain else f"{schema}.{name}",
            None,
            {column: simplify_type(kind) for column, kind in columns.items()},
            frozenset(unique),
            references,
        )


def _read_constraints(
    con: duckdb.DuckDBPyConnection, schema: str, name: str
) -> tuple[set[str], dict[str, tuple[str, str]]]:
    """Return the columns that are keys on their own, and those that refer to another table's column."""
    unique: set[str] = set()
    references: dict[str, tuple[str, str]] = {}
    rows = con.execute(
        "SELECT constraint_type, constraint_column_names, referenced_table, referenced_column_names "
        "FROM duckdb_constraints() WHERE schema_name = ? AND table_name = ?",
        [schema, name],
    ).fetchall()
    for kind, columns, table, there in rows:
        if len(columns) == 1 and kind in ("PRIMARY KEY", "UNIQUE"):
            unique.add(fold(columns[0]))
        elif len(columns) == 1 and kind == "FOREIGN KEY":
            references[fold(columns[0])] = (table, there[0])
    return unique, references


def _read_frame(name: str, frame: Any) -> TableSchema:
    """Read a frame's columns without its rows."""
    if type(frame).__module__.partition(".")[0] == "pandas":
        frame = frame.iloc[:0]
    elif hasattr(frame, "head") and type(frame).__module__.partition(".")[0] == "polars":
        frame = frame.head(0)
    elif isinstance(getattr(frame, "schema", None), pa.Schema):
        frame = frame.schema.empty_table()
    table = to_arrow(name, frame).slice(0, 0)
    objects = list_object_columns(table) or set()
    with duckdb.connect(":memory:") as con:
        con.register("frame", table)
        columns = describe_relation(con, "frame") or {}
    return TableSchema(
        make_table_name(name),
        None,
        {column: None if column in objects else simplify_type(kind) for column, kind in columns.items()},
    )
