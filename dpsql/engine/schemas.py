"""Schemas of sources: names, types and declared keys.

Only for CSV files are rows read: their formats and types are guesses from the first lines, for the data owner's eyes only.
Columns of Python objects and JSON get no types here.
"""

from __future__ import annotations

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

from dpsql.engine.arrow_tables import list_object_columns, to_arrow
from dpsql.engine.proposals import propose_format
from dpsql.engine.sandbox import quote_identifier
from dpsql.engine.sources import (
    attach_database,
    describe_file,
    describe_relation,
    is_arrow,
    simplify_type,
    use_attached,
)
from dpsql.engine.text_sources import READ_ERRORS, is_sheet, read_heading, require_reader
from dpsql.errors import PolicyError
from dpsql.late_dataclass import dataclass
from dpsql.policy.model import fold
from dpsql.policy.tables import FILE_ENDINGS, Table

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
    """Refuse files of a glob with different columns; ``nested``: whether a file may have additional ones."""
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
