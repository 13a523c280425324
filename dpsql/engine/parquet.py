"""Parquet files whose values DuckDB's reader stops at, found once per version of a file, outside any statement.

One text that is not UTF-8, or a time beyond a day, makes every query over its column fail, so one person's row would
say that it is there. A file without such values is read where it is. One with such values is read through a private
copy, a temporary table of the session's own database, in which they are NULL.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from dpsql.engine.frames import clean
from dpsql.engine.schema_replica import literal, quoted
from dpsql.errors import PolicyError
from dpsql.ledger.private_files import make_private_directory, state_directory, write_private

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_LENT = "dpsql_clean_columns"
_RULES = 1
"""Which values are looked for: what was remembered under other rules is looked for again."""
_SAFE = {
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
"""The first and the last value of a type; dates and timestamps have two infinite ones beside them."""


def scan(*paths: str, options: str = "") -> str:
    """Write SQL that reads files of the same columns: their own, and none that a folder's name would add."""
    return f"read_parquet([{', '.join(map(literal, paths))}], hive_partitioning = false{options})"


def described(con: duckdb.DuckDBPyConnection, path: str) -> dict[str, str] | None:
    """Read names and types of a file's columns; None where it can't be read."""
    with suppress(duckdb.Error):
        rows = con.execute(f"DESCRIBE SELECT * FROM {scan(path)}").fetchall()
        return {row[0]: row[1] for row in rows}
    return None


def file_columns(path: str) -> dict[str, str]:
    """Read names and types of a file's columns without a session."""
    with duckdb.connect(":memory:", config={"temp_directory": ""}) as con:
        return described(con, path) or {}


def bad_columns(path: str, columns: Mapping[str, str]) -> list[str]:
    """Find the columns with values that DuckDB can't take; remembered until the file changes."""
    stamp = _stamp(path)
    place: Path | None = None
    with suppress(OSError):
        home = state_directory() / "sources"
        make_private_directory(home)
        place = home / hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()
    if place is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads(place.read_text(encoding="utf-8"))
            if known["stamp"] == stamp and set(known["bad"]) <= set(columns):
                return [name for name in columns if name in known["bad"]]
    found = _found(path, columns)
    if place is not None and _stamp(path) == stamp:
        with suppress(OSError):
            write_private(place, json.dumps({"stamp": stamp, "bad": found}))
    return found


def _stamp(path: str) -> list[object]:
    stat = os.stat(path)
    return [_RULES, duckdb.__version__, path, stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_dev]


def _found(path: str, columns: Mapping[str, str]) -> list[str]:
    tests = {name: _test(quoted(name), kind) for name, kind in columns.items() if kind not in _SAFE}
    counts = _counted(path, list(tests.values()))
    if counts is not None:
        found = {name for name, count in zip(tests, counts, strict=True) if count}
    else:
        found = {name for name, test in tests.items() if _counted(path, [test]) != [0]}
    nested = [name for name, kind in columns.items() if name not in found and _nested(kind)]
    found |= {name for name in nested if not _all_good(path, list(columns).index(name))}
    return [name for name in columns if name in found]


def _test(column: str, kind: str) -> str:
    """SQL that reads every value of a column, and counts those that the reader lets through and others stop at.

    The hash makes it read them all: what could be told from a file's statistics would be.
    """
    kept = inside(column, kind)
    count = "0" if kept is None else f"count(*) FILTER (WHERE NOT {kept})"
    return f"[bit_xor(hash({column})), {count}]"


def inside(column: str, kind: str) -> str | None:
    """Write SQL that is false for values of a type that DuckDB holds, but fails over; None for types that have none."""
    if kind.startswith("DECIMAL("):
        width, scale = (int(part) for part in kind[8:-1].split(","))
        most = f"{'9' * (width - scale) or '0'}.{'9' * scale or '0'}"
        ends = ("-" + most, most)
    elif kind in _ENDS:
        ends = _ENDS[kind]
    else:
        return None
    low, high = (f"{literal(end)}::{kind}" for end in ends)
    infinite = (
        ""
        if kind == "TIME" or kind not in _ENDS
        else f" OR {column} IN ('infinity'::{kind}, '-infinity'::{kind})"
    )
    return f"({column} BETWEEN {low} AND {high}{infinite})"


def _nested(kind: str) -> bool:
    """Whether moments or decimals may be within other values, where the test above does not look for them."""
    within = any(word in kind for word in ("DATE", "TIMESTAMP", "DECIMAL("))
    return within and kind.endswith(("]", ")")) and not kind.startswith("DECIMAL(") | kind.startswith("ENUM")


def _counted(path: str, tests: list[str]) -> list[int] | None:
    """What the tests count, in a database of its own, which a bad value may bring down; None where it does."""
    if not tests:
        return []
    with suppress(duckdb.Error), duckdb.connect(":memory:", config={"temp_directory": ""}) as con:
        rows = con.execute(f"SELECT {', '.join(tests)} FROM {scan(path)}").fetchall()
        return [int(count) for _, count in rows[0]]
    return None


def _opened(path: str) -> ParquetFile:
    import pyarrow.parquet  # here, for it takes long, and few files need it

    return pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _all_good(path: str, place: int) -> bool:
    with suppress(pa.ArrowException, OSError, KeyError), _opened(path) as file:
        name = file.schema_arrow.names[place]
        return all(
            (column := batch.column(0)) is clean(column) for batch in file.iter_batches(columns=[name])
        )
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
    with suppress(duckdb.Error, pa.ArrowException, OSError, KeyError), _opened(path) as file:
        con.register(_LENT, _cleaned(file, [places[column] for column in bad]))
        items = [
            f"TRY_CAST(c.c{bad.index(column)} AS {kind}) AS {quoted(column)}"
            if column in bad
            else f"f.{quoted(column)}"
            for column, kind in columns.items()
        ]
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS SELECT {', '.join(items)} "
            f"FROM {scan(path, options=', file_row_number = true')} AS f JOIN {_LENT} AS c ON f.file_row_number = c.n"
        )
        con.unregister(_LENT)
        made = True
    if not made:
        raise PolicyError(f"the file {Path(path).name} can't be read.")


def _cleaned(file: ParquetFile, places: list[int]) -> pa.RecordBatchReader:
    names = [file.schema_arrow.names[place] for place in places]
    fields = [
        pa.field(f"c{index}", file.schema_arrow.field(place).type) for index, place in enumerate(places)
    ]
    schema = pa.schema([pa.field("n", pa.int64()), *fields])

    def parts() -> Iterator[pa.RecordBatch]:
        row = 0
        for batch in file.iter_batches(columns=names):
            numbers = pa.array(range(row, row + len(batch)), pa.int64())
            row += len(batch)
            yield pa.record_batch([numbers, *(clean(batch.column(name)) for name in names)], schema)

    return pa.RecordBatchReader.from_batches(schema, parts())
