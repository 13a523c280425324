"""DuckDB as the engine: private data behind a locked connection that only exact queries of plans reach."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dpsql.engine.apart import Apart
from dpsql.engine.attached import attach
from dpsql.engine.base import ended
from dpsql.engine.clone import Clone, Columns, quoted
from dpsql.engine.files import found, once, version_of, versions_of
from dpsql.engine.frames import as_arrow, objects_of
from dpsql.engine.running import FATAL, configure, over, settings_of, watched
from dpsql.engine.sources import open_again, open_files, open_frame, open_table, view_of
from dpsql.engine.spill import SpillDirectory, spill_below
from dpsql.errors import PolicyError, did_you_mean
from dpsql.policy import FILES, Names, Policy, Table

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
}
# Settings that one of the supported versions does not know are left out there; the plans do not rely on them.
_SETTINGS = {
    "enable_progress_bar": "false",
    "error_on_division_by_zero": "false",
    "ieee_floating_point_ops": "true",
    "preserve_insertion_order": "false",
    # Bits of a table with a place for each key between the least and the greatest, which one unit may have: some 10 MiB.
    "perfect_ht_threshold": "17",
    "streaming_buffer_size": "'16MB'",  # a column that is counted here comes twice as fast as through the usual one
}
RESOURCES = ("memory_limit", "max_memory", "threads", "temp_directory", "max_temp_directory_size")
TIME_LIMIT = "time_limit"
EACH = 256 << 20
"""Memory for each thread, so that a query which groups or sorts more than memory holds may end: each thread of it keeps
some that no spilling lowers. With two threads, what ended with one in 96 MiB wanted twice as much."""
# Settings that change what SQL means: two people must not become one because their names differ by case.
_MEANING = {"default_collation": "", "integer_division": "false", "python_enable_replacements": "false"}
_PART = 1 << 20
"""Rows of a result that are held at once, where it is read in parts."""


def beside(spill: SpillDirectory, resources: Mapping[str, str] | None = None) -> Apart:
    """Return a database for queries over lent relations alone, with the settings that plans rely on."""
    place = {"temp_directory": spill.subdirectory("apart")}
    return Apart({**_CONFIG, **(resources or {}), **place}, _SETTINGS)


class DuckDBEngine:
    """See :class:`dpsql.engine.base.Engine`.

    Args:
        database: the path of a DuckDB file (opened read-only), ``":memory:"``, an open connection (used
            through a cursor, its settings left alone), or a mapping of table names to pandas, polars or Arrow tables.
        policy: its sources become views, before the connection is locked.
        base: the folder that relative sources start from.
        resources: DuckDB's settings of :data:`RESOURCES`, such as ``{"memory_limit": "1GiB"}``: what does not fit is
            spilled, private rows and all, to a directory below ``temp_directory`` that nobody else may enter (see
            :mod:`dpsql.engine.spill`). Without ``threads``, as many run as have :data:`EACH` of the limit. Not with an
            open connection, which has its own, and spills where its own settings say.

    Raises:
        PolicyError: the database or a source does not exist or can't be read.
    """

    dialect = "duckdb"
    lossless = True

    def __init__(
        self, database: Any, policy: Policy, base: Path, resources: Mapping[str, str | int] | None = None
    ) -> None:
        self._policy = policy
        self._resources = {str(name): str(value) for name, value in (resources or {}).items()}
        self._limit = _seconds(self._resources.pop(TIME_LIMIT, None))
        for name in self._resources:
            if name not in RESOURCES:
                raise PolicyError(
                    f"{name} is no resource that is set here.",
                    hint=did_you_mean(name, (*RESOURCES, TIME_LIMIT)),
                )
        if self._resources and isinstance(database, duckdb.DuckDBPyConnection):
            raise PolicyError(
                "an open connection has its own resources.",
                hint=f"SET {next(iter(self._resources))} on the connection itself.",
            )
        self._base = base
        self._lock = threading.RLock()
        self._attached = isinstance(database, duckdb.DuckDBPyConnection)
        self._frames: dict[str, pa.Table] = {}
        if isinstance(database, Mapping):
            self._frames = {str(name): as_arrow(str(name), frame) for name, frame in database.items()}
        self._database = ":memory:" if isinstance(database, Mapping) else database
        self._token, self._zone = uuid.uuid4().hex, ""
        self._clone: Clone | None = None
        self._spill = spill_below(self._resources.pop("temp_directory", None))
        self._scratch = beside(self._spill, self._resources)
        self._stop = threading.Event()
        self._room: int | None = None
        self._sources = {t.name: self._files(t) for t in policy.tables.values() if t.source is not None}
        digests = once()
        self._version = version_of(policy.tables.values(), self._files_of, self._token, digests)
        self.versions = versions_of(policy.tables.values(), self._files_of, self._token, digests)
        self._open()

    @property
    def _path(self) -> str | None:
        """The database file, where there is one."""
        if self._attached or str(self._database) in (":memory:", ""):
            return None
        return os.path.realpath(os.path.expanduser(str(self._database)))

    def _open(self) -> None:
        if isinstance(self._database, duckdb.DuckDBPyConnection):
            self._con = self._cursor(self._database)
        else:
            self._con = self._connect()
            for name, frame in self._frames.items():
                self._con.register(name, frame)
        row = self._con.execute("SELECT current_database(), current_schema()").fetchone()
        assert row is not None
        self._home: tuple[str, str] = (row[0], row[1])
        self._places: dict[str, tuple[str, str, str]] = {}
        for table in self._policy.tables.values():
            place = self._place(table)
            if (
                place in self._places.values()
            ):  # two tables of one source may have two privacy units: each has its own name
                place = open_again(self._con, table, ".".join(map(quoted, place)))
            self._places[table.name] = place
        if not self._attached:
            self._harden()

    def _connect(self) -> duckdb.DuckDBPyConnection:
        path = self._path
        if path is not None and not Path(path).is_file():
            raise PolicyError(
                f"there is no database {self._database}.", hint="give the path of a DuckDB file."
            )
        con: duckdb.DuckDBPyConnection | None = None
        with contextlib.suppress(duckdb.Error):
            config = {**_CONFIG, **self._resources, "temp_directory": self._spill.subdirectory("data")}
            con = duckdb.connect(":memory:", config=config)
        if con is None:
            raise PolicyError(
                f"DuckDB can't be opened with {self._resources}.", hint='resources={"memory_limit": "1GiB"}'
            )
        if path is None or attach(con, path):
            return con
        con.close()
        raise PolicyError(
            f"{self._database} can't be opened as a DuckDB database.",
            hint="where it is open in this process already, pass that connection instead of the path.",
        )

    def _cursor(self, given: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        """A cursor with settings of its own; or the connection itself, where tables live in it alone."""
        cursor = given.cursor()
        for setting, value in {**_SETTINGS, **_MEANING}.items():
            with contextlib.suppress(duckdb.Error):
                cursor.execute(f"SET SESSION {setting} = '{value}'")
        named = [
            t.source or t.name for t in self._policy.tables.values() if self._sources.get(t.name) is None
        ]
        if all(_exists(cursor, name) or not _exists(given, name) for name in named):
            return cursor
        # Registered frames and temporary tables belong to one connection; a cursor does not see them.
        cursor.close()
        for setting in ("default_collation", "integer_division"):
            row = given.execute(f"SELECT current_setting('{setting}')::VARCHAR").fetchone()
            if row is not None and row[0] != _MEANING[setting]:
                raise PolicyError(
                    f"the connection has {setting} = {row[0]}, which changes what a statement means.",
                    hint=f"RESET {setting} on the connection first.",
                )
        return given

    def _files(self, table: Table) -> list[str] | None:
        """The files of a source, or None when it is a table of the database."""
        assert table.source is not None
        if not table.file:
            return None
        if not table.source.lower().endswith(FILES):
            raise PolicyError(
                f"the source {table.source} of {table.name} is not a kind of file that is read here.",
                hint=f"known endings are {', '.join(FILES)}.",
            )
        return found(table, self._base)

    def _place(self, table: Table) -> tuple[str, str, str]:
        """Catalog, schema and name under which exact queries find a table."""
        files = self._sources.get(table.name)
        if files is not None:
            open_files(self._con, self._policy, table, files)
            return ("temp", "main", view_of(table))
        name = table.source or table.name
        parts = name.split(".")
        if _exists(self._con, name, temporary=True):
            place = ("temp", "main", name)
        else:
            catalog, schema, last = (*self._home[: max(0, 3 - len(parts))], *parts[-3:])
            place = (catalog, schema, last)
        body = ".".join(map(quoted, place))
        described = None
        with contextlib.suppress(duckdb.Error):
            described = self._con.execute(f"DESCRIBE SELECT * FROM {body}").fetchall()
        if described is None:
            raise PolicyError(
                f"the policy names {name}, which the database does not have.",
                hint=did_you_mean(name, self._existing()),
            )
        columns = {row[0]: row[1] for row in described}
        # A text is compared as it is: where a collation makes two texts equal, one row would say how all are shown.
        collated = [
            column for column, kind in columns.items() if kind == "VARCHAR" and self._collated(body, column)
        ]
        frame = Names(self._frames).get(name)
        if frame is not None or self._of_objects(place):
            open_frame(self._con, self._policy, table, body, columns, objects_of(frame))
            return ("temp", "main", view_of(table))
        made = open_table(self._con, table, body, columns, collated, not self._attached)
        return ("temp", "main", view_of(table)) if made else place

    def _of_objects(self, place: tuple[str, str, str]) -> bool:
        """Whether a relation is a pandas frame that was registered, whose types DuckDB infers from some of its rows."""
        rows = self._con.execute(
            "SELECT sql FROM duckdb_views() WHERE (database_name, schema_name, view_name) = (?, ?, ?)", place
        ).fetchall()
        return any("pandas_scan(" in row[0] for row in rows)

    def _collated(self, body: str, name: str) -> bool:
        """Whether different texts are equal in a column. Reads no row of it: its type meets texts of ours."""
        ours = "SELECT UNNEST(['a', 'A', 'e', '\u00e9', 'e\u0301', '\u00df', 'ss'])"
        query = f"SELECT {quoted(name)} AS v FROM {body} WHERE FALSE UNION ALL {ours}"
        # GROUP BY, not COUNT(DISTINCT): that one does not look at collations in every version.
        rows = self._con.execute(
            f"SELECT COUNT(*) FROM (SELECT v FROM ({query}) AS t GROUP BY v) AS texts"
        ).fetchall()
        return bool(rows[0][0] < 7)

    def _spare(self) -> None:
        """No more threads than the memory limit has room for."""
        threads, limit = settings_of(self._con, "threads", "memory_limit")
        most = max(1, _bytes(limit) // EACH)
        if most < threads:
            self._con.execute(f"SET threads = {most}")

    def _existing(self) -> list[str]:
        return [
            row[0] for row in self._con.execute("SELECT table_name FROM information_schema.tables").fetchall()
        ]

    def _harden(self) -> None:
        configure(self._con, _SETTINGS)
        if "threads" not in self._resources:
            self._spare()
        allowed = [path for files in self._sources.values() for path in files or []]
        if allowed:
            listed = ", ".join("'" + path.replace("'", "''") + "'" for path in allowed)
            self._con.execute(f"SET allowed_paths = [{listed}]")
        self._con.execute("SET enable_external_access = false")
        self._con.execute("SET lock_configuration = true")
        self._zone = settings_of(self._con, "TimeZone")[0]

    # -- the protocol ------------------------------------------------------------------------------------

    def schema(self, table: Table) -> Mapping[str, str]:
        rows = self._con.execute(f"DESCRIBE SELECT * FROM {self.relation(table)}").fetchall()
        return {row[0]: row[1] for row in rows}

    def relation(self, table: Table) -> str:
        return ".".join(map(quoted, self._places[table.name]))

    def public(self, table: Table) -> pa.Table:
        """All rows of a public table."""
        assert table.public, "only public tables are read whole"
        return self._con.sql(f"SELECT * FROM {self.relation(table)}").to_arrow_table()

    @property
    def room(self) -> int:
        """A sixteenth of DuckDB's memory limit, sorted in place and counted with a few arrays beside it."""
        if self._room is None:
            self._room = _bytes(settings_of(self._con, "memory_limit")[0]) // (16 * 8)
        return self._room

    @property
    def time_zone(self) -> str:
        """In which moments are read; that of an attached connection may change at any time."""
        return self._zone or str(settings_of(self._con, "TimeZone")[0])

    @property
    def dataset(self) -> str:
        """What the data are called in the ledger: the files they are in, or the attached database."""
        parts = self._known()
        if self._attached:
            rows = self._con.execute("SELECT path FROM duckdb_databases() WHERE NOT internal").fetchall()
            parts += [os.path.realpath(row[0]) for row in rows if row[0]] or ["attached"]
        parts += [f"frame {name}" for name in self._frames]
        return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:32]

    def _known(self) -> list[str]:
        """Every file that the data are in, as far as paths say."""
        listed = [path for files in self._sources.values() for path in files or []]
        return [*listed, self._path] if self._path is not None else listed

    def version(self) -> str:
        """Return a text that changes when the content of a file or a declared version does; as it was when the session
        began. An attached connection's data are taken for new in each session.
        """
        return self._version

    def _files_of(self, table: Table) -> list[str] | None:
        held = self._sources.get(table.name)
        return held if held is not None or self._path is None else [self._path]

    def check(self, sql: str, lent: Mapping[str, Columns], apart: bool = False) -> None:
        """Binds an exact query against an empty copy of the schema, before anything is paid.

        Raises:
            BindError: the engine would refuse it whatever the data are.
        """
        with self._lock:
            if self._clone is None:
                tables = self._policy.tables.values()
                self._clone = Clone.of((self._places[t.name], list(self.schema(t).items())) for t in tables)
            self._clone.check(sql, lent)

    def written(self, sql: str, lent: Mapping[str, pa.Table]) -> None:
        """Texts run as they are."""

    def lendable(self, table: pa.Table) -> None:
        """All is: it came from DuckDB."""

    def execute(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Runs one exact query, with public relations lent to it under their names.

        Raises:
            EngineError: anything failed; the engine's message, which may hold values, is dropped here.
            KeyboardInterrupt: the user stopped it.
        """
        with self._lending(lent or {}):
            state, table = self._step(lambda: over(self._con, sql, lent or {}).to_arrow_table())
        ended(state)
        assert table is not None
        return table

    def apart(self, sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
        """Runs a query that reads lent relations only, where no failure of it can touch the private connection.

        Raises:
            EngineError, KeyboardInterrupt: as for ``execute``.
        """
        with self._lending({}):
            outcome = self._scratch.run(sql, lent, self._stop, self._limit)
        ended(outcome.state)
        assert outcome.table is not None
        return outcome.table

    def batches(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> Iterator[pa.Table]:
        """The same rows in parts of about a million, each taken from DuckDB as it is asked for.

        Raises:
            EngineError, KeyboardInterrupt: as for ``execute``.
        """
        box: list[Any] = []
        with self._lending(lent or {}):
            state, rows = self._step(lambda: self._begin(sql, lent or {}, box))
            while rows is not None:
                yield rows
                state, rows = self._step(lambda: _next(box[0]))
        ended(state)

    @contextlib.contextmanager
    def _lending(self, lent: Mapping[str, pa.Table]) -> Iterator[None]:
        """One query at a time; what was lent to it is taken back however it ends."""
        with self._lock:
            self._stop.clear()
            try:
                yield
            finally:
                for name in lent:
                    with contextlib.suppress(duckdb.Error):
                        self._con.unregister(name)

    def _step(self, work: Callable[[], pa.Table | None]) -> tuple[str, pa.Table | None]:
        """What became of it. DuckDB's message dies with this frame."""
        outcome = watched(work, self._con.interrupt, self._stop, self._limit)
        if outcome.failure is not None and issubclass(outcome.failure, FATAL):
            self._reopen()
        return outcome.state, outcome.table

    def _begin(self, sql: str, lent: Mapping[str, pa.Table], box: list[Any]) -> pa.Table:
        box.append(over(self._con, sql, lent).to_arrow_reader(_PART))
        return _next(box[0]) or box[0].schema.empty_table()

    def _reopen(self) -> None:
        """An internal error invalidates DuckDB's whole instance; the next statement gets a new one."""
        if self._attached:
            return
        with contextlib.suppress(duckdb.Error):
            self._con.close()
        with contextlib.suppress(duckdb.Error, PolicyError):
            self._open()

    def interrupt(self) -> None:
        """Stops the running query, from any thread."""
        self._stop.set()

    def close(self) -> None:
        """Closes what this engine opened; a connection that was given stays open."""
        if self._con is not self._database:
            self._con.close()
        if self._clone is not None:
            self._clone.put_away()
            self._clone = None
        self._scratch.close()
        self._spill.close()


def _next(reader: Any) -> pa.Table | None:
    try:
        return pa.Table.from_batches([reader.read_next_batch()])
    except StopIteration:
        return None


def _seconds(text: str | None) -> float | None:
    """A time limit, in seconds."""
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise PolicyError(f"{text} is no time limit.", hint='resources={"time_limit": 60} is a minute.')


_SIZES = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def _bytes(text: str) -> int:
    """``19.2 GiB`` in bytes; 0 for what is not understood."""
    number, _, unit = text.partition(" ")
    try:
        return int(float(number) * _SIZES.get(unit, 0))
    except ValueError:
        return 0


def _exists(con: duckdb.DuckDBPyConnection, name: str, temporary: bool = False) -> bool:
    """Whether a connection has a table or view of that name, as its catalog says; reads no rows."""
    rows = con.execute(
        "SELECT temporary FROM duckdb_tables() WHERE lower(table_name) = lower(?) UNION ALL "
        "SELECT temporary FROM duckdb_views() WHERE lower(view_name) = lower(?)",
        [name.rsplit(".")[-1], name.rsplit(".")[-1]],
    ).fetchall()
    return any(row[0] for row in rows) if temporary else bool(rows)
