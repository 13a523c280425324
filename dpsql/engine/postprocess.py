"""An embedded DuckDB without private data: releases, public tables, and the SQL over them."""

from __future__ import annotations

import decimal
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import duckdb
import pyarrow as pa

from dpsql.engine import sandbox
from dpsql.engine.base import SpillDirectory, make_spill_directory
from dpsql.engine.public_sql import (
    MAX_BINDING_SECONDS,
    CastCheck,
    PublicProcess,
    PublicQuery,
    Sent,
    check_public,
)
from dpsql.engine.sandbox import (
    RecentlyUsed,
    SharedInstance,
    TypedColumns,
    join_instance,
    quote_identifier,
    write_empty_query,
)
from dpsql.errors import BindError, find_nearest
from dpsql.language.labels import (
    list_ordered_columns,
    name_label_type,
    order_labels,
    show_label_types,
    spell_labels,
)
from dpsql.policy.model import Policy, Table

_LOST = re.compile("UUID|HUGEINT")
"""Types that Arrow lacks; columns of them are cast back."""
_MAX_TABLES, _MAX_BYTES = 4, 1 << 26
"""The most cached public relations, and bytes of one."""
_MAX_ROWS_OF_ONE = 1000
"""The most cached relations of one row, in addition."""
_MAX_REMEMBERED = 1000
MAX_PUBLIC_SECONDS = 12
"""The most seconds of a query over releases and public tables."""
MAX_PUBLIC_MEMORY = 256 << 20
"""Its most bytes in memory; more are spilled to the session's spill directory."""
MAX_PUBLIC_ANSWER = 256 << 20
"""The most bytes of its answer."""
_LOADING, _LABELLED = "dpsql_loading", "_labelled"


class PublicTables(Protocol):
    """A source of public tables: an engine, or copies."""

    def schema(self, table: Table) -> Mapping[str, str]:
        """Return names and types of a table's columns."""

    def public(self, table: Table) -> pa.Table:
        """Return a public table's rows."""

    def orders(self, table: Table) -> Mapping[str, tuple[str, ...]]:
        """Return the labels of a table's columns of an ordered type, in that order."""


class Finisher(sandbox.Idle):
    """The database of public SQL: releases, public tables, and queries over them.

    Statements are bound against empty relations before payment, and run over released ones. They run in the session's
    own in-memory database, without access to files, network or settings. It is opened lazily, since that takes longer
    than most statements and many need none, and closed when least recently used. They are bound in one shared by all
    sessions, since it never has a row: each has separate temporary tables and views.

    ``apart``: whether queries that may make long texts run in a separate process.
    """

    def __init__(self, engine: PublicTables, policy: Policy, apart: bool = True) -> None:
        self._engine = engine
        self._tables = {table.name: table for table in policy.tables.values() if table.public}
        self.lock = threading.RLock()
        self._opened: _Connections | None = None
        self._binder: tuple[SharedInstance, duckdb.DuckDBPyConnection] | None = None
        self._loaded: set[str] = set()
        self._described: dict[str, list[tuple[str, str]]] = {}
        self._checked: dict[tuple[str, ...], PublicQuery] = {}
        self._spill: SpillDirectory | None = None
        self._kept: dict[str, pa.Table] = {}
        self._added: dict[str, pa.Table | TypedColumns] = {}
        self._casts = CastCheck()
        self._process = PublicProcess() if apart else None

    @property
    def _open(self) -> _Connections:
        if self._opened is None:
            self._spill = self._spill or make_spill_directory(None)
            self._opened = _connect(self._spill.subdirectory("data"))
        return self._opened

    @property
    def _binding(self) -> duckdb.DuckDBPyConnection:
        if self._binder is None:
            instance = join_instance("binding", lambda: ([_open_public("")], lambda: None))
            self._binder = (instance, instance.open_cursor())
        return self._binder[1]

    def describe(
        self, sql: str, relations: Mapping[str, Sequence[tuple[str, str]]], public: Iterable[str] = ()
    ) -> list[tuple[str, str]]:
        """Bind a query, and return names and SQL types of its columns; BindError if it does not fit the relations."""
        key = repr((sql, sorted((name, tuple(columns)) for name, columns in relations.items())))
        with self.lock:
            if key in self._described:
                return self._described[key]
            public = tuple(public)
            names = {name: [c for c, _ in columns] for name, columns in relations.items()}
            if self._check(sql, names, public).grows and self._process is not None:
                kinds = {name: (list(self._columns(name)), None) for name in public}
                sent = Sent("describe", sql, {name: list(given) for name, given in relations.items()}, kinds)
                answer, _ = self._process.ask(sent, MAX_BINDING_SECONDS)
                self._described[key] = [(name, kind) for name, kind in answer["columns"]]
                return self._described[key]
            found, broken = self._describe(sql, relations, public)
            if broken:  # perhaps by another session's query: retry on a new instance
                found, broken = self._describe(sql, relations, public)
            if isinstance(found, str):
                known = [column for columns in relations.values() for column, _ in columns]
                known += [column for name in public for column, _ in self._columns(name)]
                raise _make_error(found, [name for name in known if not _OWN_NAME.search(name)])
            if len(self._described) > _MAX_REMEMBERED:
                self._described.clear()
            self._casts.check(self._binding, sql)
            self._described[key] = found
            return found

    def describe_shown(
        self, sql: str, relations: Mapping[str, Sequence[tuple[str, str]]], public: Iterable[str] = ()
    ) -> list[tuple[str, str]]:
        """Return names and types as :meth:`describe`, with texts for types of labels, as engines and analysts read them."""
        return [(name, show_label_types(kind)) for name, kind in self.describe(sql, relations, public)]

    def find_schema(
        self, sql: str, relations: Mapping[str, Sequence[tuple[str, str]]], public: Iterable[str] = ()
    ) -> pa.Schema:
        """Bind a query, and return the Arrow schema of :meth:`finish`'s answer; BindError if it does not fit the relations."""
        columns = self.describe_shown(sql, relations, public)
        with self.lock, self._binding.cursor() as con:
            types = con.sql(write_empty_query(columns)).to_arrow_reader(1).schema.types
        untyped = [kind.strip('"') == "NULL" for _, kind in columns]
        pairs = zip(columns, types, untyped, strict=True)
        return pa.schema([(name, pa.null() if none else found) for (name, _), found, none in pairs])

    def _describe(
        self, sql: str, relations: Mapping[str, TypedColumns], public: Iterable[str]
    ) -> tuple[list[tuple[str, str]] | str, bool]:
        """Return names and types of a query's columns, or DuckDB's message; and whether the instance is invalid."""
        try:
            con = self._binding
            for name in public:
                empty = write_empty_query(self._columns(name))
                con.execute(f"CREATE TEMP TABLE IF NOT EXISTS {quote_identifier(name)} AS {empty}")
            for name, given in relations.items():
                empty = write_empty_query(given)
                con.execute(f"CREATE OR REPLACE TEMP VIEW {quote_identifier(name)} AS {empty}")
            rows = con.execute(f"DESCRIBE {sql}").fetchall()
            return [(row[0], row[1]) for row in rows], False
        except sandbox.FATAL_ERRORS as error:
            self._close_binder(broken=True)
            return str(error), True
        except duckdb.Error as error:
            return str(error), False

    def _columns(self, name: str) -> TypedColumns:
        """Return names and SQL types of a public table, or of a kept relation."""
        added = self._added.get(name)
        if added is None:
            orders = self._find_orders(name)
            columns = self._engine.schema(self._tables[name]).items()
            return [(c, name_label_type(orders[c]) if c in orders else kind) for c, kind in columns]
        if not isinstance(added, pa.Table):
            return added
        kinds = {c: name_label_type(tuple(listed)) for c, listed in list_ordered_columns(added).items()}
        described = sandbox.describe_table(self._binding, added)
        return [(column, kinds.get(column, kind)) for column, kind in described]

    def hold(self, name: str, relation: pa.Table | TypedColumns) -> None:
        """Add a relation under a name, like a public table; columns alone are one without rows."""
        with self.lock:
            self._added.setdefault(name, relation)

    def finish(
        self, sql: str, relations: Mapping[str, pa.Table], public: Iterable[str] = (), most: int | None = None
    ) -> pa.Table:
        """Run a query over released and public relations, up to ``most`` rows plus one; BindError if it fails."""
        return self._run("running", sql, relations, public, most)

    def repeats(self, sql: str, public: Iterable[str] = ()) -> bool:
        """Return whether a query over public tables depends on neither chance nor the clock; BindError if it is refused."""
        with self.lock:
            return self._check(sql, {}, tuple(public)).repeats

    def keep(self, sql: str, public: Iterable[str] = ()) -> pa.Table:
        """Run a query over public tables whose answer never changes, and cache its rows for the session.

        They are cached if they are few, and have equal types from either connection. Raises as :meth:`finish`.
        """
        public = tuple(public)
        table = self.finish(sql, {}, public)
        if sql in self._kept or table.nbytes > _MAX_BYTES:
            return table
        other = {field.name for field in table.schema if not _is_plain(field.type)}  # a text may be a UUID
        described = self.describe(sql, {}, public) if other else ()
        if all(kind == "VARCHAR" for name, kind in described if name in other):
            single = table.num_rows == 1
            alike = [key for key, added in self._kept.items() if (added.num_rows == 1) == single]
            if len(alike) >= (_MAX_ROWS_OF_ONE if single else _MAX_TABLES):
                self._kept.pop(alike[0])
            self._kept[sql] = table = table.combine_chunks()
        return table

    def lend(self, sql: str, relations: Mapping[str, pa.Table], public: Iterable[str] = ()) -> pa.Table:
        """Run a query as :meth:`finish`, with columns that another DuckDB reads back with unchanged types."""
        return self._run("lending", sql, relations, public)

    def _run(
        self,
        which: Literal["running", "lending"],
        sql: str,
        relations: Mapping[str, pa.Table],
        public: Iterable[str],
        most: int | None = None,
    ) -> pa.Table:
        with self.lock:
            if not relations and sql in self._kept:
                return self._kept[sql]
            _FINISHERS.note(self)
            con = self._open.running if which == "running" else self._open.lending
            public = tuple(public)
            names = {name: table.column_names for name, table in relations.items()}
            if self._check(sql, names, public).grows and self._process is not None:
                copies = {name: (list(self._columns(name)), self._copy(name)) for name in public}
                sent = Sent(which, sql, dict(relations), copies, most)
                table = self._process.ask(sent, MAX_PUBLIC_SECONDS)[1]
                assert table is not None
                return table
            self._load(public)
            outcome = sandbox.run_interruptibly(
                lambda: _fetch(con, sql, relations, most),
                con.interrupt,
                threading.Event(),
                MAX_PUBLIC_SECONDS,
            )
            for name in relations:
                con.unregister(name)
            self._reopen(outcome.failure)
        if outcome.stopped:
            raise KeyboardInterrupt
        if outcome.table is None:
            raise _make_limit_error(outcome) or _make_error(outcome.message)
        return outcome.table

    def _copy(self, name: str) -> pa.Table | None:
        """Return the rows of a public table, or of a kept relation; None for columns without rows."""
        added = self._added.get(name)
        if added is None:
            return self._read(name)
        return added if isinstance(added, pa.Table) else None

    def _read(self, name: str) -> pa.Table:
        """Return the rows of a public table of the policy, with columns of labels in the order of their types."""
        rows, orders = self._engine.public(self._tables[name]), self._find_orders(name)
        return order_labels({name: rows}, {name: tuple(orders.items())})[name] if orders else rows

    def _find_orders(self, name: str) -> dict[str, tuple[str, ...]]:
        """Return the columns of a public table that have labels, in the order of their types."""
        table = self._tables[name]
        orders = self._engine.orders(table)
        kinds = self._engine.schema(table) if orders else {}
        return {column: order for column, order in orders.items() if kinds.get(column) == "VARCHAR"}

    def _check(self, sql: str, relations: Mapping[str, Sequence[str]], public: Sequence[str]) -> PublicQuery:
        """Refuse a query that does more than compute from these relations."""
        key = (sql, *sorted(repr((name, tuple(names))) for name, names in relations.items()), *sorted(public))
        if key in self._checked:
            return self._checked[key]
        columns = [column for names in relations.values() for column in names]
        columns += [column for name in public for column, _ in self._columns(name)]
        found = check_public(sql, (*relations, *public), columns)
        if len(self._checked) > _MAX_REMEMBERED:
            self._checked.clear()
        self._checked[key] = found
        return found

    def _reopen(self, failure: type[BaseException] | None) -> None:
        """Open a new instance for the next statement after an error that invalidates the old one."""
        if failure is not None and issubclass(failure, sandbox.FATAL_ERRORS):
            self.close_instance()

    def _load(self, public: Iterable[str]) -> None:
        con = self._open.running
        for name in public:
            if name in self._loaded:
                continue
            added, casts = self._added.get(name), list[str]()
            if added is None:
                added, kinds = self._read(name), self._columns(name)
                lost = ((quote_identifier(column), kind) for column, kind in kinds if _LOST.search(kind))
                casts = [f"CAST({column} AS {kind}) AS {column}" for column, kind in lost]
            if isinstance(added, pa.Table):
                casts += _cast_labels(added)
                columns = f"* REPLACE ({', '.join(casts)})" if casts else "*"
                con.register(_LOADING, added)
                con.execute(
                    f"CREATE OR REPLACE TABLE {quote_identifier(name)} AS SELECT {columns} FROM {_LOADING}"
                )
                con.unregister(_LOADING)
            else:
                con.execute(f"CREATE OR REPLACE TABLE {quote_identifier(name)} AS {write_empty_query(added)}")
            self._loaded.add(name)

    def forget_tables(self) -> None:
        """Forget public tables, which have been read again; kept relations stay."""
        with self.lock:
            self.close_instance()
            self._close_binder()
            for known in (self._described, self._checked, self._kept):
                known.clear()

    def close(self) -> None:
        """Close the database."""
        _FINISHERS.forget(self)
        self.close_instance()
        if self._process is not None:
            self._process.close()
        self._close_binder()
        if self._spill is not None:
            self._spill.close()

    def close_instance(self) -> None:
        for con in self._opened or ():
            con.close()
        self._opened = None
        self._loaded.clear()

    def _close_binder(self, broken: bool = False) -> None:
        if self._binder is not None:
            instance, con = self._binder
            self._binder = None
            con.close()
            instance.leave(broken)


_FINISHERS = RecentlyUsed()


class _Connections(NamedTuple):
    """Connections to one database; the Arrow tables of `lending` keep DuckDB's types."""

    running: duckdb.DuckDBPyConnection
    lending: duckdb.DuckDBPyConnection


def _open_public(spill: str) -> duckdb.DuckDBPyConnection:
    config = {
        **sandbox.CONFIG,
        "enable_external_access": "false",
        "temp_directory": spill,
        "memory_limit": f"{MAX_PUBLIC_MEMORY >> 20}MiB",
    }
    con = duckdb.connect(":memory:", config=config)
    # without ipywidgets DuckDB has no progress bar to disable
    sandbox.configure(con, {"enable_progress_bar": "false"})
    if not spill:
        con.execute("SET lock_configuration = true")
    return con


def _connect(spill: str) -> _Connections:
    con = _open_public(spill)
    exact = con.cursor()
    exact.execute("SET SESSION arrow_lossless_conversion = true")
    con.execute("SET lock_configuration = true")
    return _Connections(con, exact)


def _is_plain(kind: pa.DataType) -> bool:
    """Return whether columns of this Arrow type have it from either connection, for all SQL types."""
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    decimal = pa.types.is_decimal128(kind) and kind.scale > 0  # with scale 0 it may be a HUGEINT
    return bool(whole or decimal or kind in (pa.float64(), pa.date32()))


_MISSING = (
    (re.compile(r'(?i)referenced column "(.*?)" not found'), "there is no column {} above the private part"),
    (re.compile(r'(?i)does not have a column named "(.*?)"'), "there is no column {} above the private part"),
    (re.compile(r'(?i)referenced table "(.*?)" not found'), "there is no table {} above the private part"),
    (re.compile(r"(?i)(order) term out of range"), "ORDER BY counts the columns from 1"),
)


def _fetch(
    con: duckdb.DuckDBPyConnection, sql: str, relations: Mapping[str, pa.Table], most: int | None
) -> pa.Table:
    """Return a query's answer, read up to the size limit and up to ``most`` rows, plus one."""
    labels = {name: casts for name, table in relations.items() if (casts := _cast_labels(table))}
    for name, casts in labels.items():
        con.register(f"{name}{_LABELLED}", relations[name])
        body = f"SELECT * REPLACE ({', '.join(casts)}) FROM {quote_identifier(name + _LABELLED)}"
        con.execute(f"CREATE OR REPLACE TEMP VIEW {quote_identifier(name)} AS {body}")
    try:
        return _read_answer(con, sql, {n: table for n, table in relations.items() if n not in labels}, most)
    finally:
        for name in labels:
            con.execute(f"DROP VIEW IF EXISTS temp.main.{quote_identifier(name)}")
            con.unregister(f"{name}{_LABELLED}")


def _cast_labels(table: pa.Table) -> list[str]:
    """Write casts of a table's ordered dictionaries, which DuckDB reads as texts, to an ENUM of their labels."""
    casts = []
    for name, listed in list_ordered_columns(table).items():
        column, labels = quote_identifier(name), ", ".join(map(sandbox.quote_literal, listed))
        casts.append(f"CAST({column} AS ENUM({labels})) AS {column}")
    return casts


def _read_answer(
    con: duckdb.DuckDBPyConnection, sql: str, relations: Mapping[str, pa.Table], most: int | None
) -> pa.Table:
    """Return the rows of a query, up to the limits of :func:`_fetch`."""
    query = sandbox.bind_query(con, sql, relations)
    with query.to_arrow_reader(_BATCH) as reader:
        batches, size, rows = [], 0, 0
        for batch in reader:
            batches.append(batch)
            size, rows = size + batch.nbytes, rows + batch.num_rows
            if size > MAX_PUBLIC_ANSWER:
                raise MemoryError
            if most is not None and rows > most:
                break
        return spell_labels(_restore_unsigned(pa.Table.from_batches(batches, reader.schema), query.types))


_UNSIGNED_TYPE = pa.decimal256(39, 0)


def _restore_unsigned(table: pa.Table, kinds: Sequence[object]) -> pa.Table:
    """Return an answer with unsigned 128-bit integers from 2 ** 127 on restored, which Arrow reads as negative."""
    for place, kind in enumerate(kinds):
        field = table.schema.field(place)
        found = _find_restorer(field.type, kind) if "UHUGEINT" in str(kind) else None
        if found is None:
            continue
        values = table.column(place).to_pylist()
        whole = [_restore(found[1], value) for value in values]
        if whole != values:
            made = pa.chunked_array([pa.array(whole, found[0])])
            table = table.set_column(place, pa.field(field.name, made.type), made)
    return table


_SIZES = ("tinyint", "smallint", "integer", "bigint")
_PLAIN_IDS = ("varchar", "boolean", "double", *(f"{sign}{size}" for sign in ("", "u") for size in _SIZES))
_Restorer = Callable[[object], object]


def _restore(restorer: _Restorer, value: object) -> object:
    return None if value is None else restorer(value)


def _find_restorer(given: pa.DataType, kind: Any) -> tuple[pa.DataType, _Restorer] | None:
    """Return the restored values' type and a function for one value; None if none is (dates have a larger range in DuckDB)."""
    if kind.id == "uhugeint" and pa.types.is_decimal128(given):
        return _UNSIGNED_TYPE, lambda value: decimal.Decimal(int(value) % 2**128)
    if kind.id == "hugeint" or kind.id in _PLAIN_IDS:
        return (_UNSIGNED_TYPE if kind.id == "hugeint" else given), lambda value: value
    if kind.id not in ("list", "struct", "map"):
        return None
    names, inner = zip(*kind.children, strict=True)
    if kind.id == "list":
        types = [given.value_type]
    else:
        types = (
            [given.key_type, given.item_type] if kind.id == "map" else [given.field(n).type for n in names]
        )
    found = [_find_restorer(part, own) for part, own in zip(types, inner, strict=True)]
    known = [item for item in found if item is not None]
    if len(known) < len(found):
        return None
    made, parts = [own for own, _ in known], [restorer for _, restorer in known]
    if kind.id == "list":
        return pa.list_(made[0]), lambda value: [_restore(parts[0], item) for item in value]
    if kind.id == "map":
        return pa.map_(*made), lambda value: [tuple(map(_restore, parts, pair)) for pair in value]
    fields = dict(zip(names, parts, strict=True))
    return (
        pa.struct(list(zip(names, made, strict=True))),
        lambda value: {name: _restore(part, value[name]) for name, part in fields.items()},
    )


_BATCH = 1 << 16


def _make_limit_error(outcome: sandbox.Outcome) -> BindError | None:
    """Return the error of a query that reached a limit; None if it failed otherwise."""
    if outcome.failure is None:
        return None
    what = ""
    if issubclass(outcome.failure, TimeoutError):
        what = f"it takes longer than {MAX_PUBLIC_SECONDS} seconds."
    elif issubclass(outcome.failure, MemoryError):
        what = f"its answer is larger than {MAX_PUBLIC_ANSWER >> 20} MiB."
    elif outcome.state == "full":
        what = f"it needs more memory than {MAX_PUBLIC_MEMORY >> 20} MiB."
    return BindError(f"above the private part: {what}", hint="ask for fewer rows.") if what else None


_OWN_NAME = re.compile(r"^dpsql_|__(low|high)$")


def _make_error(message: str, known: Sequence[str] = ()) -> BindError:
    """Return DuckDB's message without its class and SQL excerpt; the nearest ``known`` column name is suggested."""
    text = re.sub(r"^[A-Z]\w*( \w+)? Error: ", "", show_label_types(message).split("\n")[0]).rstrip("!")
    for pattern, said in _MISSING:
        if (found := pattern.search(text)) is not None:
            near = find_nearest(found[1], known) if "column {}" in said else None
            hint = f"did you mean {near}?" if near and near.lower() != found[1].lower() else None
            state = "42703" if "column {}" in said else "42P01" if "table {}" in said else ""
            error = BindError(f"{said.format(found[1])}.", hint=hint, sqlstate=state)
            error.name = {"order": "order by"}.get(found[1].lower(), found[1].lower())
            return error
    sentence = re.sub(r"dpsql_\w+", "the release", text[:1].lower() + text[1:]) or "it can't be run."
    return BindError(f"above the private part: {sentence}")
