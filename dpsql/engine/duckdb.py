"""DuckDB as the engine: private data behind a locked connection that only the exact queries of plans reach.

**Small queries.** Planning a text may take longer than running it, and DuckDB's client plans a text twice to return a table, and
once to return rows. So texts that read little, or returned few rows before, are fetched as rows. A repeated text is prepared
if the data can't change, since a prepared plan may depend on the least and greatest values of a column. Either way the
table is equal. The engine's own estimate of rows, which reads at most a file's footer, says which relations are large.

**Numeric columns.** DuckDB widens decimals of up to 18 digits to 128 bits for Arrow, unless a connection asks for the format
version with narrower ones, which takes a third of the time but changes other types: numeric columns have their own cursors.

**Cached facts.** Facts found in the data may be cached while the data can't change. A file's state shows a change. A frame may
change unnoticed, so only facts about copies of ours are cached: the unit column is copied once when a session opens. Tables of
an open connection may change with every statement of others, unless their database is attached read-only; but one transaction
sees one state of DuckDB's own tables, so its facts hold until it ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import OrderedDict
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dpsql.engine import sandbox, sources
from dpsql.engine.arrow_tables import digest_table, list_object_columns, list_orders, to_arrow
from dpsql.engine.base import (
    Engine,
    find_states,
    hash_lines,
    list_origins,
    look_at_files,
    raise_unless_done,
    write_absolute,
)
from dpsql.engine.sandbox import Cursors, Opened, SharedInstance, join_instance
from dpsql.errors import PolicyError, did_you_mean
from dpsql.numerics.exact_numbers import make_values
from dpsql.policy.model import NameMapping, Policy, Table, fold
from dpsql.privacy.periods import Days

MAX_PREPARED, MAX_SEEN = 16, 64
"""Prepared texts per cursor, and texts remembered there."""
MAX_ROWS = 1000
_KINDS = {
    "BIGINT": pa.int64(),
    "HUGEINT": pa.decimal128(38, 0),
    "INTEGER": pa.int32(),
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE": pa.float64(),
}
"""Types with exact Python values, and DuckDB's Arrow types for them."""


_NUMBER = re.compile("[0-9]+")


def _shape(sql: str) -> str:
    return _NUMBER.sub("?", sql)


_ROWS = re.compile(r'"Estimated Cardinality": "~?([0-9]+)"')


def estimate_rows(ask: Callable[[str], Sequence[Sequence[object]]], relation: str) -> int:
    """Return the approximate number of rows of a relation from its query plan; 0 if the plan has none."""
    with contextlib.suppress(duckdb.Error):
        plan = ask(f"EXPLAIN (FORMAT JSON) SELECT * FROM {relation}")
        return max((int(rows) for row in plan for rows in _ROWS.findall(str(row[-1]))), default=0)
    return 0


class LittleQueries:
    """The small queries of a cursor that nothing else prepares on; ``steady``: the data can't change while it is open."""

    def __init__(self, con: duckdb.DuckDBPyConnection, steady: bool) -> None:
        self.con, self._steady = con, steady
        self._fit: OrderedDict[str, bool] = OrderedDict()
        """Known texts, and whether their answers are small."""
        self._prepared: OrderedDict[str, str] = OrderedDict()
        self._made = 0

    def ask(self, sql: str) -> pa.Table | None:
        """Return the rows of a text; None if there are many, or their types need Arrow."""
        known = self._fit.get(sql)
        if known is False or (known is None and self._fit.get(_shape(sql)) is False):
            return None
        if known and self._steady and sql not in self._prepared:
            self._prepare(sql)
        found = self._run(f"EXECUTE {self._prepared[sql]}" if sql in self._prepared else sql)
        self._remember(sql, found is not None)
        if found is None:
            self._remember(_shape(sql), False)  # don't try texts that differ in numbers only
        return found

    def knows(self, sql: str) -> bool:
        """Return whether a text's answer is known to be small."""
        return self._fit.get(sql, False)

    def note(self, sql: str, found: pa.Table) -> None:
        """Remember whether a text's answer, fetched as a table, is small."""
        few = found.num_rows <= MAX_ROWS and all(kind in _KINDS.values() for kind in found.schema.types)
        self._remember(sql, few)

    def _remember(self, sql: str, fits: bool) -> None:
        self._fit[sql] = fits
        while len(self._fit) > MAX_SEEN:
            self._fit.popitem(last=False)

    def _run(self, sql: str) -> pa.Table | None:
        found = self.con.execute(sql)
        described = [(str(column[0]), str(column[1])) for column in found.description or ()]
        known = all(kind in _KINDS for _, kind in described)
        rows = found.fetchmany(MAX_ROWS + 1) if known else []
        if not known or len(rows) > MAX_ROWS:
            if hasattr(
                self.con, "abort"
            ):  # DuckDB 2 needs all rows fetched before the cursor's next statement
                self.con.abort()
            return None
        columns = zip(*rows, strict=True) if rows else [()] * len(described)
        pairs = zip(columns, described, strict=True)
        made = [make_values(values, _KINDS[kind]) for values, (_, kind) in pairs]
        return pa.table(made, names=[name for name, _ in described])

    def _prepare(self, sql: str) -> None:
        self._made += 1
        name = f"dpsql_exact_{self._made}"
        self.con.execute(f"PREPARE {name} AS {sql}")
        self._prepared[sql] = name
        while len(self._prepared) > MAX_PREPARED:
            _, oldest = self._prepared.popitem(last=False)
            with contextlib.suppress(duckdb.Error):
                self.con.execute(f"DEALLOCATE {oldest}")


ARROW_VERSION = "'1.5'"
"""The first Arrow format version with decimals of 32 and 64 bits."""


def ask_for_narrow_decimals(con: duckdb.DuckDBPyConnection) -> bool:
    """Set a connection to return decimals in no more bits than needed, and return whether it supports that."""
    with contextlib.suppress(duckdb.Error):
        if hasattr(pa, "decimal64"):
            con.execute(f"SET SESSION arrow_output_version = {ARROW_VERSION}")
            return True
    return False


class NumberCursor:
    """A lazily opened cursor for one query at a time; ``open_cursor`` returns None if there can be none."""

    def __init__(self, open_cursor: Callable[[], duckdb.DuckDBPyConnection | None] | None) -> None:
        self._open = open_cursor
        self._con: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def borrow(self) -> Iterator[duckdb.DuckDBPyConnection | None]:
        """Yield the cursor; None if there is none, or another query has it."""
        if not self._lock.acquire(blocking=False):
            yield None
            return
        try:
            if self._con is None and self._open is not None:
                self._con, self._open = self._open(), None
            yield self._con
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the cursor; a query that has it ends."""
        con, self._con, self._open = self._con, None, None
        if con is not None:
            sandbox.close_quietly(con)


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


def copy_units(frames: dict[str, pa.Table], tables: Iterable[Table]) -> dict[str, bool]:
    """Replace the unit columns of frames by private copies, in place.

    Returns:
        For each table with such a copy, whether all of its columns are copies: a frame with object columns is read into a
        DuckDB table.
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
    """Return a copy of a table that shares no memory."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def find_read_only(con: duckdb.DuckDBPyConnection, place: _Place) -> object:
    """Return the state of a table in a database attached read-only; None for other relations.

    Views have no state, since they may read data that others can change. The state includes the attachment: if another
    file takes the path, rows come from the old file until it is attached again.
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
    """Hold a transaction, in which a cursor sees one state of DuckDB's own tables, and yield a cache for that state.

    It yields None if another thread has the cursor, or if a relation is no such table: a view may read data without
    transactions.

    Args:
        con: a cursor that is used only under the lock.
        lock: its reentrant lock.
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
    with suppress(duckdb.Error):  # an error may have ended it
        con.execute("ROLLBACK")


RESOURCES = ("memory_limit", "max_memory", "threads", "temp_directory", "max_temp_directory_size")
TIME_LIMIT = "time_limit"
MEMORY_PER_THREAD = 256 << 20
"""Bytes per thread, so that a query can group or sort more rows than fit memory.

Each thread needs some memory that spilling doesn't reduce: a query that took 96 MiB with one thread took twice that with two.
"""
_MEANING = {"default_collation": "", "integer_division": "false", "python_enable_replacements": "false"}
"""Settings that change the meaning of SQL: a collation could merge people whose names differ by case."""
_BATCH_ROWS = 1 << 18
_CONFIGURED, _OF_NUMBERS = 4, 2
"""Cursors made before an instance is locked, for settings that later ones can't have; and cursors for numbers."""


class _OwnCursor(threading.local):
    """The cursor whose views read the files of some days, in the thread that has its lock."""

    cursor: duckdb.DuckDBPyConnection | None = None
    busy = False


class DuckDBEngine(Engine):
    """Private tables of a DuckDB file, an open connection, data frames, or files.

    Args:
        database: the path of a DuckDB file (opened read-only), ``":memory:"``, an open connection (used through a
            cursor, with unchanged settings), or a mapping of table names to pandas, polars or Arrow tables.
        policy: its sources become views before the connection is locked.
        base: the folder that relative sources start from.
        resources: DuckDB's settings of :data:`RESOURCES`, such as ``{"memory_limit": "1GiB"}``. Rows that do not fit, also
            private ones, are spilled below ``temp_directory`` (see :mod:`dpsql.engine.base`). By default each thread
            has :data:`MEMORY_PER_THREAD` of the limit. An open connection keeps its own resources.

    Raises:
        PolicyError: the database or a source does not exist or can't be read.
    """

    lossless = parallel = wide_integers = True

    def __init__(
        self,
        database: str | Path | duckdb.DuckDBPyConnection | Mapping[str, object],
        policy: Policy,
        base: Path,
        resources: Mapping[str, str | int] | None = None,
    ) -> None:
        sources.check_database(database, policy)
        given = {str(name): str(value) for name, value in (resources or {}).items()}
        limit = sources.read_seconds(given.pop(TIME_LIMIT, None))
        self._attached = isinstance(database, duckdb.DuckDBPyConnection)
        for name in given:
            if name not in RESOURCES:
                hint = did_you_mean(name, (*RESOURCES, TIME_LIMIT))
                raise PolicyError(f"dpsql has no resource {name}.", hint=hint)
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
        self._dated: duckdb.DuckDBPyConnection | None = None
        """The cursor whose views read the files of some days, for the thread that has its lock."""
        self._dated_lock, self._mine = threading.Lock(), _OwnCursor()
        self._patterns = [write_absolute(t, base) for t in policy.tables.values() if t.file]
        self._looked: object = look_at_files(self._patterns)
        self._sources = self._find_sources(policy, base)
        super().__init__(policy, base, given, limit)
        opened = False
        with contextlib.suppress(duckdb.Error):
            self._open()
            opened = True
        if not opened:
            raise PolicyError("the database can't be used.", hint="is the connection closed?")

    def _find_sources(self, policy: Policy, base: Path) -> dict[str, list[str] | None]:
        return {t.name: sources.find_source(t, base) for t in policy.tables.values() if t.source is not None}

    def read_again(self, before: Callable[[], None]) -> bool:
        found = look_at_files(self._patterns)
        if found == self._looked:
            return False
        before()
        with self._lock:
            self._looked = None
            with contextlib.suppress(duckdb.Error, PolicyError):
                self._sources = self._find_sources(self.policy, self._base)
                self._leave()
                self._forget()
                self._fingerprint()
                self._open()
                self._looked = found
        if self._looked is None:  # without names of files or columns, since an analyst sees it
            raise PolicyError(
                "the policy's files have changed, and can't be read as the policy says.",
                hint="dpsql policy check tells the data owner why. Ask again when the files are whole.",
            )
        return True

    @property
    def _path(self) -> str | None:
        """The database file; None if there is none."""
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
        """The key of the shared instance: the files it reads, and its resources. An engine with frames has its own."""
        if self._frames:
            return object()
        file = find_states([] if self._path is None else [self._path])
        sources_read = tuple(sorted(path for files in self._sources.values() for path in files or []))
        place = str(self._spill.path.parent)
        return ("data", self._path, file, sources_read, place, tuple(sorted(self._resources.items())))

    def _open_instance(self) -> Opened:
        user = object()
        con = self._connect()
        settings = {**sandbox.SETTINGS, "TimeZone": "'UTC'"}  # the machine's zone means nothing
        sandbox.configure_all(con, settings)
        cursors = [con.cursor() for _ in range(_CONFIGURED + _OF_NUMBERS)]
        for cursor in cursors:
            sandbox.configure(cursor, settings)
        numbers = [cursor for cursor in cursors[_CONFIGURED:] if ask_for_narrow_decimals(cursor)]
        if not self._frames:
            self._harden(con)
        spill = self._spill
        spill.keep_for(user)
        return [con, *cursors[:_CONFIGURED]], lambda: spill.close(user), numbers

    def _prepare(self, con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        if self._path is not None:
            sources.use_attached(con)
        for name, frame in self._frames.items():
            con.register(name, frame)
        return con

    def _leave(self, broken: bool = False) -> None:
        """Close this engine's cursors, and leave the instance."""
        self._little.clear()
        self._cursors.close()
        self._numbers.close()
        if self._con is not self._database:
            sandbox.close_quietly(self._con)
        if self._dated is not None:
            sandbox.close_quietly(self._dated)
            self._dated = None
        if self._instance is not None:
            self._instance.leave(broken)
            self._instance = None

    def _open_another(self, views: Sequence[str], numbers: bool = False) -> duckdb.DuckDBPyConnection | None:
        """Return a cursor that sees the own cursor's relations, or None; ``numbers``: whether it is for numeric columns."""
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
        listed = sources.list_catalog(self._con) if self._list_named() else []
        for table in self.policy.tables.values():
            place = self._find_place(table, listed)
            # Two tables of one source may have different privacy units, so each has its own name.
            if place in self._places.values():
                place = sources.open_again(self._con, table, ".".join(map(sandbox.quote_identifier, place)))
            self._places[table.name] = place
        views = self._views = self._list_views()
        self._cursors = Cursors(self._con, None if views is None else lambda: self._open_another(views))
        self._numbers = NumberCursor(None if views is None else lambda: self._open_another(views, True))

    def _list_views(self) -> list[str] | None:
        """Return the temporary views that another cursor needs; None if it also needs temporary tables, which it can't see."""
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
                sources.attach_database(con, path)
            except PolicyError:
                con.close()
                raise
        return con

    def _open_cursor(self, given: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        """Return a cursor with its own settings, or the connection itself if only it sees the tables."""
        cursor = given.cursor()
        for setting, value in {**sandbox.SETTINGS, **_MEANING, "TimeZone": "UTC"}.items():
            with contextlib.suppress(duckdb.Error):
                cursor.execute(f"SET SESSION {setting} = '{value}'")
        missing = {name.rsplit(".")[-1].lower() for name in self._list_named()}
        missing -= {item.name for item in sources.list_catalog(cursor)}
        if not missing or missing.isdisjoint(item.name for item in sources.list_catalog(given)):
            self._zone = "UTC"
            return cursor
        # Registered frames and temporary tables belong to one connection; a cursor does not see them.
        cursor.close()
        sandbox.refuse_settings(given, {s: _MEANING[s] for s in ("default_collation", "integer_division")})
        return given

    def _list_named(self) -> list[str]:
        """Return the names of the policy's tables that are in no file."""
        tables = self.policy.tables.values()
        return [t.source or t.name for t in tables if self._sources.get(t.name) is None]

    def _find_place(self, table: Table, listed: Sequence[sources.Listed]) -> tuple[str, str, str]:
        """Open a table's source, and return its catalog, schema and name in exact queries."""
        files = self._sources.get(table.name)
        if files is not None:
            self._orders[table.name] = sources.open_files(self._con, self.policy, table, files)
            return ("temp", "main", sources.name_view(table))
        name = table.source or table.name
        temporary = "." not in name and any(i.temporary and i.name == name.lower() for i in listed)
        places = sources.list_places(name, self._home, self._database)
        for place in [("temp", "main", name)] if temporary else places:
            body = ".".join(map(sandbox.quote_identifier, place))
            if (columns := sources.describe_relation(self._con, body)) is not None:
                break
        else:
            given = self._path is not None or self._attached or bool(self._frames)
            raise sources.explain_missing_table(self._con, table, name, self._base, given)
        if not temporary:
            self._paths[table.name] = place
        # Texts are compared exactly: if a collation made two equal, one row would decide how all are shown.
        texts = [column for column, kind in columns.items() if kind == "VARCHAR"]
        collated = [column for column in texts if sources.is_collated(self._con, body, column)]
        frame = NameMapping(self._frames).get(name)
        pandas = frame is None and any(item.pandas and item.place == place for item in listed)
        if not pandas:  # categories of a registered pandas frame may have no order
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
            hint="its file, table or connection has changed since the session began. Connect again.",
        )

    def place(self, table: Table) -> tuple[str, str, str]:
        return self._places[table.name]

    def orders(self, table: Table) -> Mapping[str, tuple[str, ...]]:
        return self._orders.get(table.name, {})

    @property
    def home(self) -> tuple[str, ...]:
        """The default catalog and schema."""
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
        """Run a query about names and settings, on a cursor for exclusive use."""
        with self._cursors.borrow(self._lock) as con:
            return con.execute(query).fetchall()

    @cached_property
    def macros(self) -> frozenset[str]:
        """Functions of the file or the attached database; later ones: :func:`dpsql.engine.sandbox.prefer_own_functions`."""
        if not self._attached and self._path is None:
            return frozenset()  # there are none, and the query is slow
        query = "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE NOT internal"
        return frozenset(row[0] for row in self._ask(query))

    @property
    def time_zone(self) -> str:
        """The time zone of the session's cursors; an owner's own connection may change it at any time."""
        return self._zone or str(self._ask("SELECT current_setting('TimeZone')")[0][0])

    @property
    def dataset(self) -> str:
        """The name of the data in the ledger, from the paths or patterns of their files, or the attached databases."""
        tables, parts = self.policy.tables, []
        for name, files in self._sources.items():
            parts += list_origins(tables[name], files or [], self._base)
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
        """Return a digest of a frame's rows when the session opens."""
        frame = NameMapping(self._frames).get(table.source or table.name)
        return None if frame is None or self._sources.get(table.name) else digest_table(frame)

    def hold_snapshot(
        self, sql: str
    ) -> contextlib.AbstractContextManager[MutableMapping[str, object] | None]:
        places = [p for t, p in self._paths.items() if self.relation(self.policy.tables[t]) in sql]
        mine = self._attached and self._con is not self._database
        return hold_transaction(self._con, self._lock, places if mine else ())

    def find_state(self, table: Table) -> object:
        """Return the state of a table's files, or of its database if it is attached read-only."""
        if self._attached and (place := self._paths.get(table.name)) is not None:
            with self._cursors.borrow(self._lock) as con:
                return find_read_only(con, place)
        return "a copy" if self._copied.get(table.name) else super().find_state(table)

    def find_state_of_units(self, table: Table) -> object:
        return "a copy" if table.name in self._copied else self.find_state(table)

    def execute(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        (table,) = self._run(sql, lent or {}, None)
        return table

    def batches(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> Iterator[pa.Table]:
        return self._run(sql, lent or {}, _BATCH_ROWS)

    def numbers(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> Iterator[pa.Table]:
        return self._run(sql, lent or {}, _BATCH_ROWS, True)

    @contextlib.contextmanager
    def within(self, days: Days | None) -> Iterator[None]:
        if days is None or self._views is None or not self._dated_lock.acquire(blocking=False):
            yield
            return
        try:
            with contextlib.suppress(duckdb.Error, PolicyError):
                con = self._dated = self._dated or self._open_another(self._views)
                if con is not None:
                    fewer = self._choose_files(con, days)
                    for name, files in fewer.items():
                        sources.open_files(con, self.policy, self.policy.tables[name], files)
                    self._mine.cursor = con if fewer else None
            yield
        finally:
            self._mine.cursor = None
            self._dated_lock.release()

    def _choose_files(self, con: duckdb.DuckDBPyConnection, days: Days) -> dict[str, list[str]]:
        """Return the files with rows of some days of all tables whose own column decides the period; empty if that is all."""
        read = [*self._sources.values()]
        periods = {name: self.policy.tables[name].declared_period for name in self._sources}
        fewer = {
            name: sources.choose_files(con, self.policy.tables[name], files, period.column, days) or files[:1]
            for name, files in self._sources.items()
            if files is not None and (period := periods[name]) is not None and read.count(files) == 1
        }
        return fewer if any(files != self._sources[name] for name, files in fewer.items()) else {}

    @contextlib.contextmanager
    def _borrow(self, numbers: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        mine = self._mine
        if (
            mine.cursor is not None and not mine.busy
        ):  # a query in the midst of another one's rows has another cursor
            mine.busy = True
            try:
                yield mine.cursor
            finally:
                mine.busy = False
            return
        with self._numbers.borrow() if numbers else contextlib.nullcontext() as con:
            if con is not None:
                yield con
                return
        with self._cursors.borrow(self._lock) as con:
            yield con

    def _run(
        self, sql: str, lent: Mapping[str, pa.Table], rows: int | None, numbers: bool = False
    ) -> Iterator[pa.Table]:
        """Yield the parts of a query, on a cursor for exclusive use.

        If the instance broke before the first part, perhaps by another session's query, a new instance runs it again.
        """
        state, begun = "failed", False
        little = self.reads_little(sql, {})  # before a cursor is borrowed, since it may borrow one
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
                self._mine.cursor = None
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
                with contextlib.suppress(duckdb.Error):  # a missing one must not keep the others
                    con.unregister(name)

    def _find_little(self, con: duckdb.DuckDBPyConnection) -> LittleQueries | None:
        """Return the small queries of a cursor; None for the owner's own connection."""
        if con is self._database:
            return None
        if con not in self._little:  # source files may be rewritten
            self._little[con] = LittleQueries(con, not self._attached and not self._sources)
        return self._little[con]

    def _replace(self, broken: SharedInstance | None) -> None:
        """Join a new instance after an error that invalidated one, unless another thread has done so."""
        with self._lock:
            if broken is not None and self._instance is broken:
                self._leave(broken=True)
                self._memories.clear()  # the path may have another file now
                with contextlib.suppress(duckdb.Error, PolicyError):
                    self._open()

    def close(self) -> None:
        """Close the engine's own resources; the owner's connection stays open."""
        self._leave()
        super().close()
