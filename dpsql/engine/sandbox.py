"""Queries that the stop button always ends, and databases without private data: a sandbox, a parser, an empty schema.

The query of a subsample block is the analyst's, and may invalidate DuckDB's whole instance. On the private connection every
later block and statement would observe that, so one unit's row would affect all of them; in a sandbox the next block gets a
new instance. It has one thread: with more, the order of rows (and of additions of doubles) depends on the partition of work,
which rows of other blocks may determine.

Exact queries are bound against an empty copy of the schema, since DuckDB's planner uses the least and the greatest value of a
column, and may fail on them.

A query runs in its own thread, while the caller waits and, once stopped, repeats the interrupt until it has ended: DuckDB drops
an interrupt between two of its steps, and its Python client reports one in different ways.

DuckDB instances are shared by equal users, and closed when idle: an instance takes some 4 MiB and eight operating system
threads, a cursor 20 KiB. A session's temporary views and tables belong to one cursor, and no other cursor sees them. An error
that invalidates an instance ends the queries of all its users; each of them then joins the next one and retries.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from dpsql.errors import BindError, PolicyError
from dpsql.interrupts import (
    POLL_SECONDS,
    WorkEnd,
    Worker,
    check_stop,
    is_lack_of_threads,
    is_stop_requested,
    take_worker,
)
from dpsql.late_dataclass import dataclass

MAX_IDLE = 8
"""The most idle instances of one kind that stay open."""


def close_quietly(con: duckdb.DuckDBPyConnection) -> None:
    """Close a connection in any state."""
    with contextlib.suppress(duckdb.Error):
        con.close()


class SharedInstance:
    """An instance with several users, from :func:`join_instance`.

    Args:
        key: the users' common properties.
        connections: connections to it, of which the first stays here. The others are handed out before any new cursor:
            they may have settings from before the configuration was locked.
        numbers: connections for a :class:`~dpsql.engine.duckdb.NumberCursor` each; there are no others.
    """

    def __init__(
        self,
        key: Hashable,
        connections: Sequence[duckdb.DuckDBPyConnection],
        after: Callable[[], None],
        numbers: Sequence[duckdb.DuckDBPyConnection] = (),
    ) -> None:
        self.key = key
        self.users = 0
        self._base, *self._ready = connections
        self._numbers = list(numbers)
        self._after = after

    def open_cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a cursor for exclusive use."""
        with _REGISTRY.lock:
            return self._ready.pop() if self._ready else self._base.cursor()

    def take_number_cursor(self) -> duckdb.DuckDBPyConnection | None:
        """Return a cursor for numeric columns, for exclusive use; None if none is left."""
        with _REGISTRY.lock:
            return self._numbers.pop() if self._numbers else None

    def leave(self, broken: bool = False) -> None:
        """Stop using it; the last user closes it. If ``broken``, an error invalidated it, and the next user gets a new one."""
        with _REGISTRY.lock:
            self.users -= 1
            if (broken or not self.users) and _REGISTRY.opened.get(self.key) is self:
                del _REGISTRY.opened[self.key]
            if self.users:
                return
        for con in (*self._ready, *self._numbers, self._base):
            close_quietly(con)
        self._after()


class _Registry:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.opened: dict[Hashable, SharedInstance] = {}


_REGISTRY = _Registry()
_LEFT_REGISTRIES: list[_Registry] = []
Opened = (
    tuple[Sequence[duckdb.DuckDBPyConnection], Callable[[], None]]
    | tuple[Sequence[duckdb.DuckDBPyConnection], Callable[[], None], Sequence[duckdb.DuckDBPyConnection]]
)
"""Connections to a new instance, the function to call once it is closed, and connections for numeric columns."""


def join_instance(key: Hashable, make: Callable[[], Opened]) -> SharedInstance:
    """Return the shared instance of a key, which its first user makes."""
    with _REGISTRY.lock:
        found = _REGISTRY.opened.get(key)
        if found is None:
            found = _REGISTRY.opened[key] = SharedInstance(key, *make())
        found.users += 1
        return found


MAX_AT_ONCE = 16
"""The most queries of one session that run at once; others wait."""


class Cursors:
    """The cursors of one session: its own and, while that is in use, those of ``open_another``, if any, for other threads."""

    def __init__(
        self,
        own: duckdb.DuckDBPyConnection,
        open_another: Callable[[], duckdb.DuckDBPyConnection | None] | None,
    ) -> None:
        self._own, self._open_another = own, open_another
        self._lock = threading.Lock()
        self._free: list[duckdb.DuckDBPyConnection] = []
        self._others = 0
        self._closed = False

    @contextlib.contextmanager
    def borrow(self, own_is_free: Any) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield the session's own cursor if its lock ``own_is_free``, else another, or else wait for its own."""
        other = None
        if not own_is_free.acquire(blocking=False):
            other = self._take()
            while other is None and not own_is_free.acquire(timeout=POLL_SECONDS):
                check_stop()
        try:
            yield self._own if other is None else other
        finally:
            if other is None:
                own_is_free.release()
            else:
                self._give_back(other)

    def _take(self) -> duckdb.DuckDBPyConnection | None:
        with self._lock:
            if self._free:
                return self._free.pop()
            if self._open_another is None or self._closed or self._others >= MAX_AT_ONCE - 1:
                return None
            made = self._open_another()
            self._others = self._others + 1 if made is not None else MAX_AT_ONCE
            return made

    def _give_back(self, con: duckdb.DuckDBPyConnection) -> None:
        with self._lock:
            if not self._closed:
                self._free.append(con)
                return
        close_quietly(con)

    def close(self) -> None:
        """Close all but the session's own; those in use are closed when returned."""
        with self._lock:
            self._closed = True
            for con in self._free:
                close_quietly(con)
            self._free.clear()


class Idle(ABC):
    """A holder of an unshared instance, which can be reopened at any time; a user of it has the ``lock``."""

    lock: Any

    @abstractmethod
    def close_instance(self) -> None:
        """Close the instance, if one is open."""

    def close_idle(self) -> bool:
        """Close the instance unless it is in use, and return whether it is closed."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self.close_instance()
        finally:
            self.lock.release()
        return True


class RecentlyUsed:
    """Holders of open instances; the least recently used one is asked first to close."""

    def __init__(self, most: int = MAX_IDLE) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._holders: OrderedDict[int, weakref.ref[Idle]] = OrderedDict()

    def note(self, holder: Idle) -> None:
        """Record that a holder uses its instance now, and close others' if there are too many."""
        with self._lock:
            self._holders[id(holder)] = weakref.ref(holder)
            self._holders.move_to_end(id(holder))
            others = list(self._holders.items())[: max(0, len(self._holders) - self._most)]
        for place, reference in others:
            found = reference()
            if found is None or (found is not holder and found.close_idle()):
                with self._lock:
                    self._holders.pop(place, None)

    def forget(self, holder: Idle) -> None:
        """Remove a holder that closed its instance."""
        with self._lock:
            self._holders.pop(id(holder), None)


def _forget_instances() -> None:
    """Leave the instances open in a forked process, which has none of the threads that closing one would wait for."""
    global _REGISTRY
    _LEFT_REGISTRIES.append(_REGISTRY)
    _REGISTRY = _Registry()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_instances)


FATAL_ERRORS = (duckdb.FatalException, duckdb.InternalException)
"""Errors that invalidate DuckDB's whole instance; the next query needs a new one."""


@dataclass(frozen=True)
class Outcome:
    """The end of a query: a table, a stop, or a failure with its class and DuckDB's message."""

    table: pa.Table | None = None
    stopped: bool = False
    failure: type[BaseException] | None = None
    message: str = ""

    @property
    def state(self) -> str:
        """The end in a word: ``done``, ``stopped``, ``full`` (out of memory) or ``failed``."""
        if self.stopped or self.failure is None:
            return "stopped" if self.stopped else "done"
        return "full" if issubclass(self.failure, duckdb.OutOfMemoryException) else "failed"


def fetch_settings(con: duckdb.DuckDBPyConnection, *names: str) -> tuple[Any, ...]:
    """Read settings of a connection."""
    asked = ", ".join(f"current_setting('{name}')" for name in names)
    return con.execute(f"SELECT {asked}").fetchall()[0]


def fetch_memory_limit(con: duckdb.DuckDBPyConnection) -> int:
    """Read the memory limit of a connection, in bytes."""
    query = "SELECT parse_formatted_bytes(current_setting('memory_limit'))"
    return int(con.execute(query).fetchall()[0][0])


def refuse_settings(con: duckdb.DuckDBPyConnection, wanted: Mapping[str, str]) -> None:
    """Raise PolicyError if some settings of a connection differ from the wanted ones."""
    for setting, value in wanted.items():
        row = con.execute(f"SELECT current_setting('{setting}')::VARCHAR").fetchone()
        if row is not None and row[0] != value:
            raise PolicyError(
                f"the connection has {setting} = {row[0]}, which changes what a statement means.",
                hint=f"RESET {setting} on the connection first.",
            )


def configure(con: duckdb.DuckDBPyConnection, settings: Mapping[str, str]) -> None:
    """Apply settings, except those unknown to this version of DuckDB."""
    for setting, value in settings.items():
        with contextlib.suppress(duckdb.Error):
            con.execute(f"SET {setting} = {value}")


def configure_all(con: duckdb.DuckDBPyConnection, settings: Mapping[str, str]) -> None:
    """Apply settings of an instance, which its later cursors inherit, except those of single connections."""
    for setting, value in settings.items():
        with contextlib.suppress(duckdb.Error):
            con.execute(f"SET GLOBAL {setting} = {value}")
    configure(con, settings)


def bind_query(
    con: duckdb.DuckDBPyConnection, sql: str, lent: Mapping[str, pa.Table]
) -> duckdb.DuckDBPyRelation:
    """Bind a query, with additional relations by name."""
    for name, rows in lent.items():
        con.register(name, rows)
    return con.sql(sql)


def run_query(
    con: duckdb.DuckDBPyConnection,
    sql: str,
    lent: Mapping[str, pa.Table],
    stop: threading.Event,
    limit: float | None = None,
) -> Outcome:
    """Run a query, and return its end; never raises.

    The end of a query over private data may quote values, so it stays inside the engine.

    Args:
        stop: set by another thread to end it; the stop button is also checked here.
        limit: seconds after which it fails, like any other failure.
    """
    return run_interruptibly(lambda: bind_query(con, sql, lent).to_arrow_table(), con.interrupt, stop, limit)


def run_interruptibly(
    work: Callable[[], pa.Table | None],
    interrupt: Callable[[], object],
    stop: threading.Event,
    limit: float | None = None,
) -> Outcome:
    """Run work that returns a table in its own thread, as :func:`run_query`; ``interrupt`` asks it to end.

    If no thread can be made, it runs in the caller's thread and can't be stopped, so work with a limit fails.
    """
    box: list[Outcome] = []
    done = WorkEnd()
    stopped = late = sent = False

    def task() -> None:
        box.append(Outcome(stopped=True) if stopped else _do(work))

    worker: Worker | None = None
    alone = sys.is_finalizing()
    end = None if limit is None else time.monotonic() + limit
    while True:
        try:
            if alone:
                stopped = stopped or stop.is_set() or is_stop_requested()
                failed = Outcome(stopped=True) if stopped else Outcome(failure=TimeoutError)
                return failed if stopped or limit is not None else _do(work)
            if not sent:
                worker = worker or take_worker()
                worker.jobs.put((task, done))
                sent = True
            while not done.is_set():
                stopped = stopped or stop.is_set() or is_stop_requested()
                late = late or (end is not None and time.monotonic() > end)
                if stopped or late:
                    interrupt()
                done.wait(POLL_SECONDS)
            if stopped:
                return Outcome(stopped=True)
            return Outcome(failure=TimeoutError) if late else box[0]
        except BaseException as error:  # a handler's exception may arrive anywhere here; end the query
            lacking = worker is None and is_lack_of_threads(error)
            alone, stopped = alone or lacking, stopped or not lacking


def _do(work: Callable[[], pa.Table | None]) -> Outcome:
    try:
        return Outcome(work())
    except BaseException as error:
        return Outcome(failure=type(error), message=str(error))


CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "python_enable_replacements": "false",
}
"""Options of every instance, set when it is opened."""
SETTINGS = {
    "enable_progress_bar": "false",
    "error_on_division_by_zero": "false",
    "ieee_floating_point_ops": "true",
    "preserve_insertion_order": "false",
    # Bits of a table with one place per key in a range, as large as one unit may make it: some 10 MiB.
    "perfect_ht_threshold": "17",
    "streaming_buffer_size": "'16MB'",  # a column counted in Python is fetched twice as fast
}
"""Settings that plans rely on, as far as the version of DuckDB has them."""
_PARSE = "SELECT json_serialize_sql(?::VARCHAR)"
_PARSERS: list[duckdb.DuckDBPyConnection] = []
"""Idle parsers. They belong to no thread: a forked process would close a thread's, and crash."""


def parse_to_json(sql: str) -> str:
    """Return DuckDB's own tree of a text as JSON, an object with `error` if unparsable, from an instance without names."""
    try:
        con = _PARSERS.pop()
    except IndexError:
        con = duckdb.connect(config={"threads": 1})
    tree = str(con.execute(_PARSE, [sql]).fetchall()[0][0])
    _PARSERS.append(con)
    return tree


def lock_down(con: duckdb.DuckDBPyConnection) -> None:
    """Remove a connection's access to files and the network, irrevocably."""
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")


class Sandbox(Idle):
    """An empty instance for queries over public relations alone, opened lazily."""

    def __init__(self, spill: str, resources: Mapping[str, str]) -> None:
        self._config = {**CONFIG, **resources, "temp_directory": spill, "threads": "1"}
        self._con: duckdb.DuckDBPyConnection | None = None
        self.lock = threading.Lock()

    def run(
        self, sql: str, lent: Mapping[str, pa.Table], stop: threading.Event, limit: float | None
    ) -> Outcome:
        """Run one query, as :func:`run_query`; after a failure the next has a new instance."""
        with self.lock:
            _SANDBOXES.note(self)
            if self._con is None:
                self._con = duckdb.connect(":memory:", config=self._config)
                configure(self._con, SETTINGS)
                lock_down(self._con)
            outcome = run_query(self._con, sql, lent, stop, limit)
            if outcome.state != "done":
                self.close_instance()
                return outcome
            for name in lent:
                self._con.unregister(name)
            return outcome

    def close(self) -> None:
        """Close the instance, and leave the list of those with one."""
        _SANDBOXES.forget(self)
        self.close_instance()

    def close_instance(self) -> None:
        if self._con is not None:
            close_quietly(self._con)
            self._con = None


_SANDBOXES = RecentlyUsed()


TypedColumns = Sequence[tuple[str, str]]


def quote_identifier(name: str) -> str:
    """Quote a name for SQL.

    >>> quote_identifier('a "b" c')
    '"a ""b"" c"'
    """
    return '"' + name.replace('"', '""') + '"'


def prefer_own_functions(con: duckdb.DuckDBPyConnection, home: tuple[str, str], attached: object) -> None:
    """Set DuckDB's functions to take precedence over macros, which others may create in an attached database at any time.

    The names of macros are read once. A file is open read-only, and gets no more of them. Only an attached connection
    that must be used itself, since it alone sees the tables (registered frames, temporary tables), is unchanged. A new
    macro with the name of a function would then be called: its creator can read the rows anyway.

    ``home``: the default catalog and schema, in which an owner's view still finds its names.
    """
    if con is attached:
        return
    path = f"system.main,{'.'.join(map(quote_identifier, home))}"
    con.execute(f"SET SESSION search_path = {quote_literal(path)}")


def quote_literal(text: str) -> str:
    """Quote a text as an SQL literal.

    >>> quote_literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def write_empty_query(columns: Iterable[tuple[str, str]]) -> str:
    """Return a query of no rows with these columns."""
    typed = ((name, "INTEGER" if kind.strip('"') == "NULL" else kind) for name, kind in columns)
    items = ", ".join(f"CAST(NULL AS {kind}) AS {quote_identifier(name)}" for name, kind in typed)
    return f"SELECT {items} WHERE FALSE"


def describe_table(con: duckdb.DuckDBPyConnection, table: pa.Table) -> list[tuple[str, str]]:
    """Return names and SQL types of an Arrow table's columns in DuckDB."""
    with con.cursor() as other:
        other.register("dpsql_described", table.slice(0, 0))
        return [(row[0], row[1]) for row in other.execute("DESCRIBE FROM dpsql_described").fetchall()]


NO_PLAN = '{"error":true'
"""The beginning of DuckDB's answer for a text without a plan."""
_MAX_SPARE = 4
"""The most copies kept for later sessions."""
_SPARE: dict[tuple[object, ...], SchemaReplica] = {}
_LEFT: list[dict[tuple[object, ...], SchemaReplica]] = []


_WIDE = 40
"""The most columns that a table of a copy has from the start; a wider one gets those that texts name."""
_WIDENING = threading.Lock()
_WIDENED: dict[tuple[object, ...], dict[tuple[str, str, str], set[str]]] = {}
"""The columns that each wide table of an instance has so far."""
_NAMES = re.compile(r"\w+|\"((?:[^\"]|\"\")*)\"")


class SchemaReplica:
    """A database with the private one's names and types, and no rows.

    Copies of equal tables share one instance, but not their additional relations. ``tables`` are catalog, schema and
    name of each table, with its columns.
    """

    def __init__(self, tables: Iterable[tuple[tuple[str, str, str], TypedColumns]]) -> None:
        self._tables = tuple((place, tuple(columns)) for place, columns in tables)
        self._wide = [(place, columns) for place, columns in self._tables if len(columns) > _WIDE]
        self._instance: SharedInstance
        self._closed = False
        self._con = self._open()
        self._fit: set[tuple[object, ...]] = set()
        """Queries that were bound before, with their additional relations; the copy's tables never change."""
        self._views: dict[str, str] = {}
        """The empty views for the last additional relations, by name."""

    @classmethod
    def of(cls, tables: Iterable[tuple[tuple[str, str, str], TypedColumns]]) -> SchemaReplica:
        """Return an earlier session's copy, which reveals nothing as it never had a row, or a new one."""
        wanted = tuple((place, tuple(columns)) for place, columns in tables)
        return _SPARE.pop(wanted, None) or cls(wanted)

    def _open(self) -> duckdb.DuckDBPyConnection:
        self._instance = join_instance(("replica", self._tables), self._open_instance)
        con = self._instance.open_cursor()
        for (catalog, _, name), columns in self._tables:
            if catalog == "temp":
                self._create(con, "TEMP TABLE", "temp.main", name, columns)
        return con

    def _open_instance(self) -> tuple[list[duckdb.DuckDBPyConnection], Callable[[], None]]:
        con = duckdb.connect(":memory:", config={"python_enable_replacements": "false", "threads": 1})
        configure(con, {"enable_progress_bar": "false"})
        attached = {"memory", "temp"}
        for (catalog, schema, name), columns in self._tables:
            home = f"{quote_identifier(catalog)}.{quote_identifier(schema)}"
            if catalog not in attached:
                con.execute(f"ATTACH ':memory:' AS {quote_identifier(catalog)}")
                attached.add(catalog)
            if catalog == "temp":
                continue  # each cursor has a separate one
            if schema != "main":
                con.execute(f"CREATE SCHEMA IF NOT EXISTS {home}")
            self._create(con, "TABLE", home, name, columns if len(columns) <= _WIDE else columns[:1])
        lock_down(con)
        with _WIDENING:
            _WIDENED[self._tables] = {
                place: {columns[0][0]} for place, columns in self._wide if place[0] != "temp"
            }
        return [con], lambda: None

    def _widen(self, sql: str) -> None:
        """Add the columns that a text names to wide tables, since DuckDB's planning takes time for each column."""
        if not self._wide:
            return
        named = {(found[1] or found[0]).replace('""', '"').lower() for found in _NAMES.finditer(sql)}
        with _WIDENING:
            for place, columns in self._wide:
                known = _WIDENED.get(self._tables, {}).get(place)
                wanted = {name for name, _ in columns if name.lower() in named}
                if known is None or wanted <= known:
                    continue
                home = f"{quote_identifier(place[0])}.{quote_identifier(place[1])}"
                listed = [(name, kind) for name, kind in columns if name in known or name in wanted]
                self._create(self._con, "OR REPLACE TABLE", home, place[2], listed)
                known |= wanted

    @staticmethod
    def _create(
        con: duckdb.DuckDBPyConnection, kind: str, home: str, name: str, columns: TypedColumns
    ) -> None:
        listed = ", ".join(f"{quote_identifier(column)} {kind}" for column, kind in columns)
        unless = "" if kind.startswith("OR REPLACE") else "IF NOT EXISTS "
        con.execute(f"CREATE {kind} {unless}{home}.{quote_identifier(name)} ({listed})")

    def check(self, sql: str, lent: Mapping[str, TypedColumns]) -> None:
        """Bind a query, with additional public relations by name; BindError if it would fail whatever the data."""
        if self._write_key(sql, lent) in self._fit:
            return
        message, broken = self._prepare(sql, lent)
        if broken:  # perhaps by another session's query: retry on a new instance
            message, broken = self._prepare(sql, lent)
        if message:
            raise BindError("the engine can't run this.", hint=message)
        self._note_fit(sql, lent)

    @staticmethod
    def _write_key(sql: str, lent: Mapping[str, TypedColumns]) -> tuple[object, ...]:
        return sql, *sorted((name, *map(tuple, columns)) for name, columns in lent.items())

    def _note_fit(self, sql: str, lent: Mapping[str, TypedColumns]) -> None:
        if len(self._fit) > 1000:
            self._fit.clear()
        self._fit.add(self._write_key(sql, lent))

    def _prepare(self, sql: str, lent: Mapping[str, TypedColumns]) -> tuple[str, bool]:
        """Return why a query can't be bound, in DuckDB's words, and whether the instance is invalid."""
        try:
            self._register(lent)
            self._widen(sql)
            self._con.execute(f"PREPARE dpsql_check AS {sql}")
        except FATAL_ERRORS as error:
            self._con.close()
            self._instance.leave(broken=True)
            self._con = self._open()
            self._views.clear()
            return str(error).split("\n")[0], True
        except duckdb.Error as error:
            return str(error).split("\n")[0], False
        return "", False

    def plan(self, sql: str, lent: Mapping[str, TypedColumns], of: str = "") -> str:
        """Return DuckDB's bound plan of a query as JSON, unoptimised; :data:`NO_PLAN` and more if there is none.

        ``of``: the query whose plan it is, in other words; :meth:`check` then knows that it can be bound.
        """
        self._register(lent)
        self._widen(sql)
        call = "json_serialize_plan(?, skip_null := true, skip_empty := true, optimize := false)"
        try:
            plan = str(self._con.execute(f"SELECT {call}", [sql]).fetchall()[0][0])
        except duckdb.Error:
            return NO_PLAN
        if of and not plan.startswith(NO_PLAN):
            self._note_fit(of, lent)
        return plan

    def parse(self, sql: str) -> str:
        """Return DuckDB's own tree of a text, as :func:`parse_to_json`, in this instance: parsing binds no name."""
        try:
            return str(self._con.execute(_PARSE, [sql]).fetchall()[0][0])
        except duckdb.Error:  # perhaps another session's query broke the instance
            return parse_to_json(sql)

    def shape(self, sql: str, lent: Mapping[str, TypedColumns]) -> pa.Schema:
        """Return the Arrow types of a query's columns in DuckDB."""
        self._register(lent)
        self._widen(sql)
        return self._con.sql(f"SELECT * FROM ({sql}) AS dpsql_shape LIMIT 0").to_arrow_table().schema

    def describe(self, table: pa.Table) -> list[tuple[str, str]]:
        """Return names and SQL types of an Arrow table's columns in DuckDB."""
        return describe_table(self._con, table)

    def _register(self, lent: Mapping[str, TypedColumns]) -> None:
        for name, columns in lent.items():
            empty = write_empty_query(columns)
            if self._views.get(name) != empty:
                self._views[name] = ""
                self._con.execute(f"CREATE OR REPLACE TEMP VIEW {quote_identifier(name)} AS {empty}")
                self._views[name] = empty

    def put_away(self) -> None:
        """Keep this copy for a session on equal tables; making one takes longer than most statements."""
        try:
            for name in self._views:
                self._con.execute(f"DROP VIEW IF EXISTS {quote_identifier(name)}")
        except duckdb.Error:
            self.close()
            return
        self._views.clear()
        _SPARE[self._tables] = self
        with contextlib.suppress(KeyError, StopIteration):
            while len(_SPARE) > _MAX_SPARE:
                _SPARE.pop(next(iter(_SPARE))).close()

    def close(self) -> None:
        """Close the cursor, and with the last one the database."""
        if self._closed:
            return
        self._closed = True
        self._con.close()
        self._instance.leave()


def _forget_replicas() -> None:
    """Leave the copies open in a forked process, which has none of the threads that closing one would wait for."""
    _LEFT.append(dict(_SPARE))
    _SPARE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_replicas)
