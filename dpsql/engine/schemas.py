"""Names, types and declared keys of a source's tables. No row is read, and nothing that a file says about its rows.

Where a source has no types of its own (text, columns of Python objects), there are none here: they would be the rows' word.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dpsql.engine.database_files import attach_database, use_attached
from dpsql.engine.frames import list_object_columns, to_arrow
from dpsql.engine.sandbox import quote_identifier
from dpsql.engine.sources import describe_parquet, describe_relation, simplify_type
from dpsql.engine.text_sources import READ_ERRORS, read_first_record, read_heading
from dpsql.errors import PolicyError
from dpsql.policy.model import fold
from dpsql.policy.tables import FILE_ENDINGS, Format, Table

DELIMITERS = ",;\t|"
"""Letters that may stand between the names of a CSV file's columns, the usual one first."""
_MOST_NAMED = 6
"""Files that a hint names."""


@dataclass(frozen=True)
class TableSchema:
    """A table as its source describes it.

    Args:
        name: a name that SQL can take.
        source: what a policy has as its source; None for a table of a database and for a frame.
        columns: the type of each column; None where the source does not say.
        unique: columns, folded, of which the database says that no two rows have the same value.
        references: table and column that a column, folded, refers to, as the database says.
        delimiter: what stands between the fields of a CSV file where that is not the usual letter.
    """

    name: str
    source: str | None
    columns: Mapping[str, str | None]
    unique: frozenset[str] = frozenset()
    references: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    delimiter: str | None = None


def read_schemas(source: Any, base: Path) -> list[TableSchema]:
    """Read the schemas of a source's tables.

    Args:
        source: a Parquet, CSV or JSON file, a glob, a list of these, a DuckDB file or connection, a pandas, polars or Arrow
            table, or a mapping of names to such tables.
        base: the folder of the policy that will name the files.

    Raises:
        PolicyError: there is no such source, or it can't be read; or two files would be tables of one name.
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
    """Read several files or globs, each of which is a table.

    Raises:
        PolicyError: one is no file of tables, or two would have one name.
    """
    for path in paths if len(paths) > 1 else ():
        if not (path.lower().endswith(FILE_ENDINGS) or glob.has_magic(path)):
            raise PolicyError(
                f"{path} is a database, whose tables are those of the policy, beside no other file.",
                hint=f"dpsql policy init {path} alone; then add the other files to the policy as tables with a source.",
            )
    tables = [table for path in paths for table in read_schemas(path, base)]
    names = [fold(table.name) for table in tables]
    for name in names:
        if names.count(name) > 1 and len(paths) > 1:
            files = " and ".join(str(t.source) for t in tables if fold(t.name) == name)
            raise PolicyError(
                f"{files} would both be the table {name}.",
                hint="write a policy of one of them, and add the other to it under another name.",
            )
    return tables


def make_table_name(text: str) -> str:
    """Make a name that SQL takes without quotes.

    >>> make_table_name("2024 visits-v2"), make_table_name("*")
    ('t_2024_visits_v2', 'data')
    """
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or "data"
    return f"t_{name}" if name[0].isdigit() else name


_TEXTUAL = ("BIGINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP")
"""Types that texts are tried as, the narrower first."""


def propose_object_types(name: str, frame: Any) -> dict[str, str]:
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
    named = os.path.isfile(pattern)  # as data[1].csv, which as a glob is another file
    paths = sorted(glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) and not named else [pattern]
    if not paths or not all(map(os.path.isfile, paths)):
        raise PolicyError(
            f"there is no file {pattern}.",
            hint="give a Parquet, CSV or JSON file, a glob of them in quotes, or a DuckDB file.",
        )
    name = make_table_name(_name_files(pattern))
    with suppress(ValueError):  # of another drive
        near = os.path.relpath(pattern, base)
        pattern = os.path.abspath(pattern) if near.startswith(os.path.join("..", "..")) else near
    pattern = glob.escape(pattern) if named else pattern
    table = Table(name, public=True, source=Path(pattern).as_posix())
    if table.text == "json":
        return TableSchema(name, table.source, {})
    try:
        if table.text is not None:
            _check_alike(pattern, {path: list(_read_text(table, path).columns) for path in paths})
            return _read_text(table, paths[0])
        _check_alike(pattern, {path: list(describe_parquet(path)) for path in paths}, nested=True)
        columns: dict[str, str | None] = {}
        for path in paths:
            columns |= {
                c: simplify_type(kind) for c, kind in describe_parquet(path).items() if c not in columns
            }
    except READ_ERRORS:
        columns = {}
    if not columns:
        raise PolicyError(f"{paths[0]} can't be read as {'CSV' if table.text else 'Parquet'}.")
    return TableSchema(name, table.source, columns)


def _check_alike(pattern: str, headings: Mapping[str, list[str]], nested: bool = False) -> None:
    """Check that files may be one table: they have the same columns.

    Args:
        pattern: the glob that named them.
        headings: the columns of each file.
        nested: whether a file may have further columns.

    Raises:
        PolicyError: they have not.
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
    """Return what a table of these files may be called: the last part that is no pattern, without its ending."""
    parts = [re.sub(r"[*?]|\[.*?\]", "", part) for part in Path(pattern).parts]
    lowered = parts[-1].lower()
    ending = max((e for e in FILE_ENDINGS if lowered.endswith(e)), key=len, default="")
    parts[-1] = parts[-1][: len(parts[-1]) - len(ending)]
    return next((part for part in reversed(parts) if re.search("[A-Za-z0-9]", part)), "data")


def _read_text(table: Table, path: str) -> TableSchema:
    """Read a CSV file's heading, and find what stands between its names."""
    usual = Format().fit(table.source, table.text)
    line = read_first_record(path, usual) or ""
    letter = max(DELIMITERS, key=lambda d: (line.count(d), d == usual.delimiter))
    found = usual.delimiter if not line.count(letter) else letter
    written = Format(delimiter=found, quote=usual.quote).fit(table.source, table.text)
    columns: dict[str, str | None] = {}
    for place, name in enumerate(read_heading(path, written), 1):
        columns.setdefault(name if name.strip() else f"column{place}", None)
    return TableSchema(
        table.name, table.source, columns, delimiter=None if found == usual.delimiter else found
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
        body = (
            quote_identifier(name) if schema == home[1] else ".".join(map(quote_identifier, (schema, name)))
        )
        columns = describe_relation(con, body)
        if columns is None or name.startswith("dpsql_"):
            continue
        unique, references = _read_constraints(con, schema, name)
        yield TableSchema(
            name if schema == home[1] else f"{schema}.{name}",
            None,
            {column: simplify_type(kind) for column, kind in columns.items()},
            frozenset(unique),
            references,
        )


def _read_constraints(
    con: duckdb.DuckDBPyConnection, schema: str, name: str
) -> tuple[set[str], dict[str, tuple[str, str]]]:
    """Return the columns that are keys alone, and those that refer to another table's column."""
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
    """Read a frame's columns from none of its rows."""
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
