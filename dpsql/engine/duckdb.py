"""DuckDB as the engine: private data behind a locked connection that only exact queries of plans reach."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator, Mapping, MutableMapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dpsql.engine import database_files, sandbox, sources
from dpsql.engine.base import Engine, find_states, hash_lines, raise_unless_done
from dpsql.engine.frames import digest_table, list_object_columns, list_orders, to_arrow
from dpsql.engine.instances import Cursors, Opened, SharedInstance, join_instance
from dpsql.engine.little_queries import LittleQueries, estimate_rows
from dpsql.engine.number_cursor import NumberCursor, ask_for_narrow_decimals
from dpsql.engine.steady_data import copy_units, find_read_only, hold_transaction
from dpsql.errors import PolicyError, did_you_mean
from dpsql.policy.model import NameMapping, Policy, Table

RESOURCES = ("memory_limit", "max_memory", "threads", "temp_directory", "max_temp_directory_size")
TIME_LIMIT = "time_limit"
MEMORY_PER_THREAD = 256 << 20
"""Bytes for each thread, so that a query which groups or sorts more than memory holds may end.

Each thread keeps some memory that no spilling lowers: with two, what ended with one in 96 MiB wanted twice as much.
"""
_MEANING = {"default_collation": "", "integer_division": "false", "python_enable_replacements": "false"}
"""Settings that change what SQL means: two people must not become one because their names differ by case."""
_BATCH_ROWS = 1 << 18
_CONFIGURED, _OF_NUMBERS = 4, 2
"""Cursors that are made before an instance is locked, with the settings that no later one can have; others for numbers."""


class DuckDBEngine(Engine):
    """Private tables of a DuckDB file, an open connection, data frames, or files.

    Args:
        database: the path of a DuckDB file (opened read-only), ``":memory:"``, an open connection (used
            through a cursor, its settings left alone), or a mapping of table names to pandas, polars or Arrow tables.
        policy: its sources become views, before the connection is locked.
        base: the folder that relative sources start from.
        resources: DuckDB's settings of :data:`RESOURCES`, such as ``{"memory_limit": "1GiB"}``. What does not fit is
            spilled, private rows and all, below ``temp_directory`` (see :mod:`dpsql.engine.spill`). Without ``threads``,
            as many run as have :data:`MEMORY_PER_THREAD` of the limit. An open connection has its own resources.

    Raises:
        PolicyError: the database or a source does not exist or can't be read.
    """

    lossless = parallel = wide_integers = True

    def __init__(
        self,
        database: str | Path | duckdb.DuckDBPyConnection | Mapping[str, Any],
        policy: Policy,
        base: Path,
        resources: Mapping[str, str | int] | None = None,
    ) -> None:
        database_files.check_database(database, policy)
        given = {str(name): str(value) for name, value in (resources or {}).items()}
        limit = database_files.read_seconds(given.pop(TIME_LIMIT, None))
        self._attached = isinstance(database, duckdb.DuckDBPyConnection)
        for name in given:
            if name not in RESOURCES:
                hint = did_you_mean(name, (*RESOURCES, TIME_LIMIT))
                raise PolicyError(f"{name} is no resource that is set here.", hint=hint)
            if self._attached:
                hint = f"SET {name} on the connection itself."
                raise PolicyError("an open connection has its own resources.", hint=hint)
        self._frames: dict[str, pa.Table] = {}
        if isinstance(database, Mapping):
            self._frames = {str(name): to_arrow(str(name), frame) for name, frame in database.items()}
        self._copied = copy_units(self._frames, policy.tables.values())
        self._database = ":memory:" if isinstance(database, Mapping) else database
        self._zone = ""
        self._little: dict[duckdb.DuckDBPyConnection, LittleQueries] = {}
        self._instance: SharedInstance | None = None
        self._sources = {
            t.name: sources.find_source(t, base) for t in policy.tables.values() if t.source is not None
        }
        super().__init__(policy, base, given, limit)
        opened = False
        with contextlib.suppress(duckdb.Error):
            self._open()
            opened = True
        if not opened:
            raise PolicyError("the database can't be used.", hint="is the connection closed?")

    @property
    def _path(self) -> str | None:
        """The database file, where there is one."""
        if self._attached or str(self._database) in (":memory:", ""):
            return None
        return os.path.realpath(os.path.expanduser(str(self._database)))

    def _open(self) -> None:
        given = self._database
        if isinstance(given, duckdb.DuckDBPyConnection):
            self._con = self._open_cursor(given)
            self._find_places()
            sandbox.prefer_own_functions(self._con, self._home, given)
            return
        instance = self._instance = join_instance(self._instance_key, self._open_instance)
        try:
            self._con = instance.open_cursor()
            self._cursors, self._numbers = Cursors(self._con, None), NumberCursor(None)
            self._prepare(self._con)
            self._find_places()
            if self._frames:
                self._harden(self._con)
            self._zone = sandbox.fetch_settings(self._con, "TimeZone")[0]
        except BaseException:
            self._leave()
            raise

    @property
    def _instance_key(self) -> object:
        """The common state of one instance's engines: all that it reads, from the very same file, and its resources.

        Frames are in memory, and belong to one engine.
        """
        if self._frames:
            return object()
        file = find_states([] if self._path is None else [self._path])
        sources_read = tuple(sorted(path for files in self._sources.values() for path in files or []))
        place = str(self._spill.path.parent)
        return ("data", self._path, file, sources_read, place, tuple(sorted(self._resources.items())))

    def _open_instance(self) -> Opened:
        user = object()
        con = self._connect()
        sandbox.configure_all(con, sandbox.SETTINGS)
        cursors = [con.cursor() for _ in range(_CONFIGURED + _OF_NUMBERS)]
        for cursor in cursors:
            sandbox.configure(cursor, sandbox.SETTINGS)
        numbers = [cursor for cursor in cursors[_CONFIGURED:] if ask_for_narrow_decimals(cursor)]
        if not self._frames:
            self._harden(con)
        spill = self._spill
        spill.keep_for(user)
        return [con, *cursors[:_CONFIGURED]], lambda: spill.close(user), numbers

    def _prepare(self, con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        if self._path is not None:
            database_files.use_attached(con)
        for name, frame in self._frames.items():
            con.register(name, frame)
        return con

    def _leave(self, broken: bool = False) -> None:
        """Close the cursors of this engine, and its part in the instance."""
        self._little.clear()
        self._cursors.close()
        self._numbers.close()
        with contextlib.suppress(duckdb.Error):
            if self._con is not self._database:
                self._con.close()
        if self._instance is not None:
            self._instance.leave(broken)
            self._instance = None

    def _open_another(self, views: Sequence[str], numbers: bool = False) -> duckdb.DuckDBPyConnection | None:
        """Return a cursor that sees what the engine's own does; None where there can be none.

        Args:
            views: texts of what it needs besides. numbers: whether it is for columns of numbers.
        """
        with contextlib.suppress(duckdb.Error, PolicyError):
            if isinstance(self._database, duckdb.DuckDBPyConnection):
                con = self._open_cursor(self._database)
                if numbers:
                    ask_for_narrow_decimals(con)
            elif self._instance is not None:
                found = self._instance.take_number_cursor() if numbers else self._instance.open_cursor()
                if found is None:
                    return None
                con = self._prepare(found)
            else:
                return None
            for text in views:
                con.execute(text)
            if self._attached:
                sandbox.prefer_own_functions(con, self._home, self._database)
            return con
        return None

    def _find_places(self) -> None:
        self._home: tuple[str, str] = self._con.execute(
            "SELECT current_database(), current_schema()"
        ).fetchall()[0]
        self._places: dict[str, tuple[str, str, str]] = {}
        self._paths: dict[str, tuple[str, str, str]] = {}
        self._orders: dict[str, Mapping[str, tuple[str, ...]]] = {}
        for table in self.policy.tables.values():
            place = self._find_place(table)
            # Two tables of one source may have two privacy units, so each has its own name.
            if place in self._places.values():
                place = sources.open_again(self._con, table, ".".join(map(sandbox.quote_identifier, place)))
            self._places[table.name] = place
        views = self._list_views()
        self._cursors = Cursors(self._con, None if views is None else lambda: self._open_another(views))
        self._numbers = NumberCursor(None if views is None else lambda: self._open_another(views, True))

    def _list_views(self) -> list[str] | None:
        """Return the texts of what a further cursor needs; None where it would need rows, which one cursor holds."""
        if self._con is self._database:
            return None
        if self._con.execute("SELECT 1 FROM duckdb_tables() WHERE temporary LIMIT 1").fetchall():
            return None
        query = "SELECT view_name, sql FROM duckdb_views() WHERE temporary AND NOT internal ORDER BY view_oid"
        rows = self._con.execute(query).fetchall()
        return [sql for name, sql in rows if name not in self._frames]

    def _connect(self) -> duckdb.DuckDBPyConnection:
        path = self._path
        con: duckdb.DuckDBPyConnection | None = None
        with contextlib.suppress(duckdb.Error):
            config = {**sandbox.CONFIG, **self._resources, "temp_directory": self._spill.subdirectory("data")}
            con = duckdb.connect(":memory:", config=config)
        if con is None:
            hint = 'resources={"memory_limit": "1GiB"}'
            raise PolicyError(f"DuckDB can't be opened with {self._resources}.", hint=hint)
        if path is not None:
            try:
                database_files.attach_database(con, path)
            except PolicyError:
                con.close()
                raise
        return con

    def _open_cursor(self, given: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        """Return a cursor with settings of its own, or the connection itself where it alone sees the tables."""
        cursor = given.cursor()
        zone = self._zone or sandbox.fetch_settings(cursor, "TimeZone")[0]
        for setting, value in {**sandbox.SETTINGS, **_MEANING, "TimeZone": zone}.items():
            with contextlib.suppress(duckdb.Error):
                cursor.execute(f"SET SESSION {setting} = '{value}'")
        tables = self.policy.tables.values()
        named = [t.source or t.name for t in tables if self._sources.get(t.name) is None]
        if all(
            sources.exists_in_catalog(cursor, name) or not sources.exists_in_catalog(given, name)
            for name in named
        ):
            self._zone = zone
            return cursor
        # Registered frames and temporary tables belong to one connection; a cursor does not see them.
        cursor.close()
        sandbox.refuse_settings(given, {s: _MEANING[s] for s in ("default_collation", "integer_division")})
        return given

    def _find_place(self, table: Table) -> tuple[str, str, str]:
        """Make a table readable; return the catalog, schema and name under which exact queries find it."""
        files = self._sources.get(table.name)
        if files is not None:
            sources.open_files(self._con, self.policy, table, files)
            return ("temp", "main", sources.name_view(table))
        name = table.source or table.name
        temporary = "." not in name and sources.exists_in_catalog(self._con, name, temporary=True)
        places = database_files.list_places(name, self._home, self._database)
        for place in [("temp", "main", name)] if temporary else places:
            body = ".".join(map(sandbox.quote_identifier, place))
            if (columns := sources.describe_relation(self._con, body)) is not None:
                break
        else:
            given = self._path is not None or self._attached or bool(self._frames)
            raise database_files.explain_missing_table(self._con, table, name, self._base, given)
        if not temporary:
            self._paths[table.name] = place
        # Texts are compared as they are: where a collation makes two equal, one row would say how all are shown.
        texts = [column for column, kind in columns.items() if kind == "VARCHAR"]
        collated = [column for column in texts if sources.is_collated(self._con, body, column)]
        frame = NameMapping(self._frames).get(name)
        pandas = frame is None and sources.is_pandas(self._con, place)
        if not pandas:  # the categories of a registered one may be without an order
            found = {column: sources.list_labels(kind) for column, kind in columns.items()}
            self._orders[table.name] = {column: order for column, order in found.items() if order}
        if frame is not None:
            self._orders[table.name] = list_orders(frame)
        if frame is not None or pandas:
            sources.open_frame(self._con, self.policy, table, body, columns, list_object_columns(frame))
            return ("temp", "main", sources.name_view(table))
        made = sources.open_table(self._con, table, body, columns, collated, not self._attached)
        return ("temp", "main", sources.name_view(table)) if made else place

    def _harden(self, con: duckdb.DuckDBPyConnection) -> None:
        if "threads" not in self._resources:
            # No more threads than the memory limit has room for.
            most = max(1, sandbox.fetch_memory_limit(con) // MEMORY_PER_THREAD)
            if most < sandbox.fetch_settings(con, "threads")[0]:
                con.execute(f"SET threads = {most}")
        allowed = [path for files in self._sources.values() for path in files or []]
        if allowed:
            con.execute(f"SET allowed_paths = [{', '.join(map(sandbox.quote_literal, allowed))}]")
        sandbox.lock_down(con)

    # -- the engine -------------------------------------------------------------------------------------------

    def schema(self, table: Table) -> Mapping[str, str]:
        """Return column names and types as exact queries see them."""
        with contextlib.suppress(duckdb.Error):
            return {row[0]: row[1] for row in self._ask(f"DESCRIBE SELECT * FROM {self.relation(table)}")}
        raise PolicyError(
            f"the data of {table.name} can't be read any more.",
            hint="its file, table or connection is gone or was changed since the session began: connect again.",
        )

    def place(self, table: Table) -> tuple[str, str, str]:
        return self._places[table.name]

    def orders(self, table: Table) -> Mapping[str, tuple[str, ...]]:
        return self._orders.get(table.name, {})

    @property
    def home(self) -> tuple[str, ...]:
        """The catalog and schema of names that have none."""
        return self._home

    def path(self, table: Table) -> tuple[str, str, str] | None:
        """Return the catalog, schema and name of a table in the owner's database; None for a file or a frame."""
        return self._paths.get(table.name)

    @cached_property
    def room(self) -> int:
        """A sixteenth of DuckDB's memory limit, in rows of eight bytes."""
        with self._cursors.borrow(self._lock) as con:
            return sandbox.fetch_memory_limit(con) // (16 * 8)

    @cached_property
    def threads(self) -> int:
        return int(self._ask("SELECT current_setting('threads')")[0][0])

    def estimate_rows(self) -> Mapping[tuple[str, ...], int]:
        query = "SELECT database_name, schema_name, table_name, estimated_size FROM duckdb_tables()"
        with contextlib.suppress(duckdb.Error):
            return {tuple(found[:3]): found[3] for found in self._ask(query)}
        return {}

    def estimate(self, relation: str) -> int:
        return estimate_rows(self._ask, relation)

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        """Run a query about names and settings, on a cursor that nobody else uses meanwhile."""
        with self._cursors.borrow(self._lock) as con:
            return con.execute(query).fetchall()

    @cached_property
    def macros(self) -> frozenset[str]:
        """Functions of the file or the attached database; later ones: :func:`dpsql.engine.sandbox.prefer_own_functions`."""
        if not self._attached and self._path is None:
            return frozenset()  # the query is slow, and nobody else defines any
        query = "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE NOT internal"
        return frozenset(row[0] for row in self._ask(query))

    @property
    def time_zone(self) -> str:
        """The time zone of the session's cursors; that of an owner's own connection may change at any time."""
        return self._zone or str(self._ask("SELECT current_setting('TimeZone')")[0][0])

    @property
    def dataset(self) -> str:
        """The name of the data in the ledger: from the files they are in, or from the attached database."""
        parts = [path for files in self._sources.values() for path in files or []]
        if self._path is not None:
            parts.append(self._path)
        if self._attached:
            rows = self._ask("SELECT path FROM duckdb_databases() WHERE NOT internal")
            parts += [os.path.realpath(row[0]) for row in rows if row[0]] or ["attached"]
        return hash_lines(sorted([*parts, *(f"frame {name}" for name in self._frames)]))[:32]

    def files(self, table: Table) -> list[str] | None:
        found = self._sources.get(table.name)
        return found if found is not None or self._path is None else [self._path]

    def digest_frame(self, table: Table) -> str | None:
        """Return a digest of a table's rows as the frame has them when the session opens."""
        frame = NameMapping(self._frames).get(table.source or table.name)
        return None if frame is None or self._sources.get(table.name) else digest_table(frame)

    def hold_snapshot(
        self, sql: str
    ) -> contextlib.AbstractContextManager[MutableMapping[str, object] | None]:
        places = [p for t, p in self._paths.items() if self.relation(self.policy.tables[t]) in sql]
        mine = self._attached and self._con is not self._database
        return hold_transaction(self._con, self._lock, places if mine else ())

    def find_state(self, table: Table) -> object:
        """Return the state of a table's files, or of its database, where it was attached for reading alone."""
        if self._attached and (place := self._paths.get(table.name)) is not None:
            with self._cursors.borrow(self._lock) as con:
                return find_read_only(con, place)
        return "a copy" if self._copied.get(table.name) else super().find_state(table)

    def find_state_of_units(self, table: Table) -> object:
        return "a copy" if table.name in self._copied else self.find_state(table)

    def execute(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Run one exact query, with public relations lent to it under their names.

        Raises:
            EngineError: it failed; DuckDB's message, which may hold values, is dropped.
            KeyboardInterrupt: the user stopped it.
        """
        (table,) = self._run(sql, lent or {}, None)
        return table

    def batches(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of an exact query a quarter of a million or so at a time, as they are asked for.

        Raises:
            EngineError, KeyboardInterrupt: as for :meth:`execute`.
        """
        return self._run(sql, lent or {}, _BATCH_ROWS)

    def numbers(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> Iterator[pa.Table]:
        """Yield one column of numbers as :meth:`batches` does, decimals in no more bits than they need.

        Raises:
            EngineError, KeyboardInterrupt: as for :meth:`execute`.
        """
        return self._run(sql, lent or {}, _BATCH_ROWS, True)

    @contextlib.contextmanager
    def _borrow(self, numbers: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._numbers.borrow() if numbers else contextlib.nullcontext() as con:
            if con is not None:
                yield con
                return
        with self._cursors.borrow(self._lock) as con:
            yield con

    def _run(
        self, sql: str, lent: Mapping[str, pa.Table], rows: int | None, numbers: bool = False
    ) -> Iterator[pa.Table]:
        """Yield the parts of a query, on a cursor that nobody else uses meanwhile.

        Where the instance broke before the first part came, perhaps over another's query, a new one is asked once more.
        """
        state, begun = "failed", False
        little = self.reads_little(sql, {})  # asked before there is a cursor, since it may ask itself
        for _ in range(2):
            instance = self._instance
            with self._borrow(numbers) as con:
                parts = self._answer(con, sql, lent, rows, little)
                steps = self._run_steps(parts, con.interrupt, rows is None)
                try:
                    while True:
                        part = next(steps)
                        begun = True
                        yield part
                        del part
                except StopIteration as end:
                    state, broken = end.value
                finally:
                    steps.close()
            if broken:
                self._replace(instance)
            if not broken or begun or self._attached:
                break
        raise_unless_done(state)

    def _answer(
        self,
        con: duckdb.DuckDBPyConnection,
        sql: str,
        lent: Mapping[str, pa.Table],
        rows: int | None,
        little: bool,
    ) -> Generator[pa.Table]:
        try:
            known = None if lent or not (little or rows is None) else self._find_little(con)
            few = known.ask(sql) if known is not None and (little or known.knows(sql)) else None
            if few is not None:
                yield few
                return
            found = sandbox.bind_query(con, sql, lent)
            if rows is None:
                whole = found.to_arrow_table()
                if known is not None:
                    known.note(sql, whole)
                yield whole
                return
            reader = found.to_arrow_reader(rows)
            parts = (pa.Table.from_batches([batch]) for batch in reader)
            yield next(parts, None) or reader.schema.empty_table()
            yield from parts
        finally:
            for name in lent:
                with contextlib.suppress(duckdb.Error):  # one that is not there must not keep the others
                    con.unregister(name)

    def _find_little(self, con: duckdb.DuckDBPyConnection) -> LittleQueries | None:
        """Return the little queries of a cursor; None of the owner's own."""
        if con is self._database:
            return None
        if con not in self._little:  # files may be written anew
            self._little[con] = LittleQueries(con, not self._attached and not self._sources)
        return self._little[con]

    def _replace(self, broken: SharedInstance | None) -> None:
        """Join a new instance after an error that invalidated one, unless another thread has done so."""
        with self._lock:
            if broken is not None and self._instance is broken:
                self._leave(broken=True)
                self._memories.clear()  # the path may be another file's since it was opened
                with contextlib.suppress(duckdb.Error, PolicyError):
                    self._open()

    def close(self) -> None:
        """Close what this engine opened; a connection that was given stays open."""
        self._leave()
        super().close()
