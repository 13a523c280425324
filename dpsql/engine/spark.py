"""Spark as the engine: the exact aggregates of a plan on a cluster; mechanisms, budget and finishing stay here.

The plan is the same value as for DuckDB. Its queries are bound against DuckDB's empty copy of the schema, which says
what types their columns have; then they are written in Spark's SQL (:mod:`dpsql.sql.spark.writer`), where whatever has no
equal is refused before it is paid. What comes back has the size of the answer (groups, bins, order statistics), and is
brought to the types that DuckDB would have given, so no mechanism knows which engine it reads from.

Spark's own pages and event logs show how many rows each stage had. Who may read them sees exact numbers: they belong
to the data owner.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
import uuid
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from dpsql.engine.base import ended
from dpsql.engine.clone import Clone, Columns, empty, quoted
from dpsql.engine.duckdb import beside
from dpsql.engine.files import found, version_of, versions_of
from dpsql.engine.running import watched
from dpsql.engine.spill import spill_below
from dpsql.errors import BindError, PolicyError
from dpsql.policy import Policy, Table
from dpsql.sql.expressions.types import Type
from dpsql.sql.spark.values import identifier, spark_type
from dpsql.sql.spark.writer import spark_sql

# What the translation supposes. Ours is a session of its own, so nobody else's settings change.
_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.orderByOrdinal": "true",
}
BATCH = 1 << 20
"""Rows of a result that are held at once, where whoever reads it can take it in parts."""
MAX_WRITTEN = 500
"""Texts that are remembered in Spark's SQL."""


class SparkEngine:
    """See :class:`dpsql.engine.base.Engine`.

    Args:
        database: a master (``"spark://host:7077"``, ``"local[2]"``), a Spark Connect address (``"sc://host"``), or a
            SparkSession, classic or Connect; it is used through a session of our own, its settings left alone.
        policy: its sources are tables of Spark's catalog, temporary views of the session, or Parquet files.
        base: the folder that relative sources start from.

    Raises:
        PolicyError: PySpark is not installed, or the session or a source does not exist or can't be read.
    """

    dialect = "duckdb"
    lossless = False
    room = 0
    """Rows stay on the cluster."""
    time_zone = _SETTINGS["spark.sql.session.timeZone"]

    def __init__(self, database: Any, policy: Policy, base: Path) -> None:
        self._policy = policy
        self._base = base
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._token = uuid.uuid4().hex
        self._clone: Clone | None = None
        self._started = False
        self._address = database if isinstance(database, str) else "session"
        self._given = self._start(database) if isinstance(database, str) else database
        self._session = self._given.newSession()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one of them is deprecated, and still decides what a text means
            for setting, value in _SETTINGS.items():
                self._session.conf.set(setting, value)
        self._lent_globally: list[str] = []
        self._written: dict[tuple[object, ...], str] = {}
        self._spill = spill_below(None)
        self._scratch = beside(self._spill)
        self._sources = {table.name: self._paths(table) for table in policy.tables.values() if table.file}
        self._version = version_of(policy.tables.values(), self._files_of, self._token)
        self.versions = versions_of(policy.tables.values(), self._files_of, self._token)
        self._schemas = {table.name: self._open(table) for table in policy.tables.values()}

    def _start(self, address: str) -> Any:
        try:
            from pyspark.sql import SparkSession
        except ImportError:
            SparkSession = None
        if SparkSession is None:
            raise PolicyError("PySpark is not installed.", hint="pip install 'dpsql[spark]'")
        with contextlib.suppress(Exception):
            if address.startswith("sc://"):
                from pyspark.sql.connect.session import SparkSession as Remote

                place = urlsplit(address)  # asked first, for Spark's client would go on asking for minutes
                socket.create_connection((place.hostname or "", place.port or 15002), 10).close()
                session = Remote.builder.remote(address).create()
                self._started = True
                return session
            self._started = SparkSession.getActiveSession() is None
            builder = SparkSession.builder.master(address).appName("dpsql")
            session = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
            if self._started:
                session.sparkContext.setLogLevel("OFF")  # a message of Spark's may quote a row
            return session
        raise PolicyError(f"there is no Spark at {address}.", hint="start it, or pass a SparkSession.")

    # -- tables -------------------------------------------------------------------------------------------------

    def _open(self, table: Table) -> dict[str, str]:
        """Makes the view that exact queries read; its columns, as DuckDB spells their types."""
        frame = self._frame(table)
        shown, columns = [], {}
        for field in frame.schema.fields:
            name, kind = identifier(field.name), _duckdb_type(field.dataType)
            shown.append(f"{_total(name, kind)} AS {name}")
            columns[field.name] = kind
        frame.selectExpr(*shown).createOrReplaceTempView(_view(table))
        return columns

    def _frame(self, table: Table) -> Any:
        source = table.source or table.name
        if table.file:
            return self._files(table)
        with contextlib.suppress(Exception):
            return _there(self._session.table(source))
        with contextlib.suppress(Exception):
            # A temporary view belongs to the session that was given; a global name carries it over to ours.
            shared = f"dpsql_{self._token}_{len(self._lent_globally)}"
            self._given.table(source).createGlobalTempView(shared)
            self._lent_globally.append(shared)
            return _there(self._session.table(f"global_temp.{shared}"))
        raise PolicyError(f"the policy names {source}, which Spark does not have.")

    def _files(self, table: Table) -> Any:
        with contextlib.suppress(Exception):
            return _there(self._session.read.parquet(*self._sources[table.name]))
        raise PolicyError(f"the source {table.source} of {table.name} can't be read as parquet.")

    def _paths(self, table: Table) -> list[str]:
        """Files of this machine by their real names; an address of some store as it is."""
        source = table.source or ""
        if not source.lower().endswith(".parquet") and "://" not in source:
            raise PolicyError(
                f"the source {source} of {table.name} is not Parquet, which is what is read on Spark.",
                hint="write it as Parquet, or as a table: text has no types, and two engines would read two.",
            )
        return [source] if "://" in source else found(table, self._base)

    # -- the protocol -------------------------------------------------------------------------------------------

    def schema(self, table: Table) -> Mapping[str, str]:
        return self._schemas[table.name]

    def relation(self, table: Table) -> str:
        return ".".join(map(quoted, _place(table)))

    def public(self, table: Table) -> pa.Table:
        """All rows of a public table."""
        assert table.public, "only public tables are read whole"
        return self.execute(f"SELECT * FROM {self.relation(table)}")

    @property
    def dataset(self) -> str:
        """What the data are called in the ledger: the files, or the tables' names and where Spark is."""
        parts = [path for t in self._policy.tables.values() if t.file for path in self._sources[t.name]]
        names = [t.source or t.name for t in self._policy.tables.values() if not t.file]
        parts += [f"{self._address} {name}" for name in names]
        return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:32]

    def version(self) -> str:
        """Return a text that changes with the content of this machine's files, or with the version that the policy
        declares. Other data are taken for new in each session.
        """
        return self._version

    def _files_of(self, table: Table) -> list[str] | None:
        paths = self._sources.get(table.name, [])
        return paths if paths and all(os.path.isfile(path) for path in paths) else None

    def check(self, sql: str, lent: Mapping[str, Columns], apart: bool = False) -> str | None:
        """Bind an exact query in DuckDB and in Spark, on nothing, before anything is paid; return Spark's text.

        One that is run apart, over the rows of one block that are here already, is DuckDB's alone.

        Raises:
            BindError: one of them would refuse it whatever the data are, or the other has no equal of it.
        """
        with self._lock:
            self._shapes().check(sql, lent)
            if apart:
                return None
            # Lent as they will be: in the types that Arrow gives them, which are not those of the text.
            lend = {
                name: self._shapes().shape(empty(columns), {}).empty_table() for name, columns in lent.items()
            }
            text = self.written(sql, lend)
            message = ""
            for name, table in lend.items():
                self._lend(name, table)
            try:
                self._session.sql(text).schema  # noqa: B018 - analysed, not run
            except Exception as error:
                message = str(error).split("\n")[0][:200]
            self._forget(lent)
        if message:
            raise BindError("the engine can't run this.", hint=message)
        return text

    def lendable(self, table: pa.Table) -> None:
        """
        Raises:
            BindError: a whole number of more than 38 digits, which is what Spark has.
        """
        fits = False
        with contextlib.suppress(pa.ArrowInvalid):
            _plain(table).validate(full=True)
            fits = True
        if not fits:
            raise BindError("a whole number of more than 38 digits has no equal on Spark.")

    def translated(self, sql: str, lent: Mapping[str, Columns] | None = None) -> str:
        """The query as Spark gets it."""
        return self._translated(sql, lent or {})

    def written(self, sql: str, lent: Mapping[str, pa.Table]) -> str:
        """Return Spark's text of an exact query: the one that is proved is the one that runs."""
        key = (sql, *((name, *_columns(table)) for name, table in sorted(lent.items())))
        found = self._written.get(key)
        if found is None:
            found = self._translated(sql, {name: _columns(table) for name, table in lent.items()})
            if len(self._written) >= MAX_WRITTEN:
                self._written.clear()
            self._written[key] = found
        return found

    def _translated(self, sql: str, lent: Mapping[str, Columns]) -> str:
        known: dict[str, Columns] = dict(lent)
        for table in self._policy.tables.values():
            known[_view(table)] = list(self._schemas[table.name].items())
        return spark_sql(sql, known)

    def _shapes(self) -> Clone:
        if self._clone is None:
            tables = self._policy.tables.values()
            self._clone = Clone.of((_place(t), list(self._schemas[t.name].items())) for t in tables)
        return self._clone

    def execute(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Runs one exact query, with public relations lent to it under their names.

        Raises:
            EngineError: anything failed; Spark's message, which may hold values, is dropped here.
            KeyboardInterrupt: the user stopped it.
        """
        tables = list(self.batches(sql, lent, None))
        return tables[0]

    def apart(self, sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
        """Runs a query that reads lent relations only, in a DuckDB of its own: what is lent is here, and small.

        Raises:
            EngineError, KeyboardInterrupt: as for ``execute``.
        """
        with self._lock:
            self._stop.clear()
            outcome = self._scratch.run(sql, lent, self._stop, None)
        ended(outcome.state)
        assert outcome.table is not None
        return outcome.table

    def batches(
        self, sql: str, lent: Mapping[str, pa.Table] | None = None, rows: int | None = BATCH
    ) -> Iterator[pa.Table]:
        """The same rows in parts of about ``rows``, in no order; the whole result stays on the cluster meanwhile.

        Raises:
            EngineError, KeyboardInterrupt: as for ``execute``.
        """
        made: list[Any] = []
        with self._lock:
            self._stop.clear()
            try:
                state, _ = self._step(lambda: self._prepare(sql, lent or {}, rows, made))
                for i in range(made[2] if state == "done" else 0):
                    state, part = self._step(lambda i=i: self._slice(made, i))
                    if part is None:
                        break
                    yield part
            finally:
                self._step(lambda: self._done(made, lent or {}))
        ended(state)

    def _step(self, work: Any) -> tuple[str, pa.Table | None]:
        """What became of it, and its rows. Spark's message dies with this frame."""
        outcome = watched(work, self._session.interruptAll, self._stop)
        return outcome.state, outcome.table

    def _prepare(self, sql: str, lent: Mapping[str, pa.Table], rows: int | None, made: list[Any]) -> pa.Table:
        """Fills ``made`` with the frame, the columns' types as DuckDB has them, and the number of parts."""
        text = self.written(sql, lent)
        shape = self._shapes().shape(sql, {name: _columns(table) for name, table in lent.items()})
        for name, table in lent.items():
            self._lend(name, table)
        frame = self._session.sql(text)
        slices = 1
        if rows is not None:
            frame = frame.persist()
            slices = max(1, -(-frame.count() // rows))
        made += [frame, shape, slices]
        return shape.empty_table()

    def _slice(self, made: list[Any], i: int) -> pa.Table:
        frame, shape, slices = made
        if slices > 1:
            names = ", ".join(identifier(name) for name in frame.columns)
            frame = frame.where(f"pmod(xxhash64({names}), {slices}L) = {i}L")
        return conformed(frame.toArrow(), shape)

    def _done(self, made: list[Any], lent: Mapping[str, Any]) -> pa.Table:
        if made:
            made[0].unpersist()
        self._forget(lent)
        return pa.table({})

    def _lend(self, name: str, table: pa.Table) -> None:
        listed = ", ".join(f"{identifier(n)} {spark_type(Type.parse(kind))}" for n, kind in _columns(table))
        self._session.createDataFrame(_plain(table), listed).createOrReplaceTempView(name)

    def _forget(self, lent: Mapping[str, Any]) -> None:
        for name in lent:
            with contextlib.suppress(Exception):
                self._session.catalog.dropTempView(name)

    def interrupt(self) -> None:
        """Stops the running query, from any thread."""
        self._stop.set()

    def close(self) -> None:
        """Drops our views; stops Spark where this engine started it."""
        with contextlib.suppress(Exception):
            self._forget({_view(table): None for table in self._policy.tables.values()})
            for name in self._lent_globally:
                self._session.catalog.dropGlobalTempView(name)
        self._scratch.close()
        self._spill.close()
        if self._clone is not None:
            self._clone.put_away()
            self._clone = None
        if self._started:
            for session in {id(s): s for s in (self._session, self._given)}.values():
                with contextlib.suppress(Exception):
                    session.stop()


def _there(frame: Any) -> Any:
    """The frame, once its columns are known: over Spark Connect, what is missing is noticed only then."""
    frame.schema  # noqa: B018
    return frame


def _total(name: str, kind: str) -> str:
    """A column as exact queries read it: with values that no function of theirs fails over."""
    if kind == "VARCHAR":
        # People must not become one because their names differ by case or an accent.
        return f"collate({name}, 'UTF8_BINARY')"
    if kind in _CALENDAR:
        # Spark holds dates of other years, and fails where it computes with them: one row would be seen.
        low, high = (_CALENDAR[kind].format(day) for day in ("0001-01-01", "9999-12-31"))
        return f"CASE WHEN {name} BETWEEN {low} AND {high} THEN {name} END"
    if kind.removesuffix("[]") in _CALENDAR:
        return f"transform({name}, v -> {_total('v', kind.removesuffix('[]'))})"
    return name


_CALENDAR = {"DATE": "DATE '{}'", "TIMESTAMP": "TIMESTAMP_NTZ '{} 00:00:00'"}
"""Types whose values are missing outside the years 1 to 9999, and how a day is written in them."""


def _view(table: Table) -> str:
    return f"dpsql_source_{table.name}"


def _place(table: Table) -> tuple[str, str, str]:
    return ("temp", "main", _view(table))


_TYPES = {
    "boolean": "BOOLEAN", "byte": "TINYINT", "short": "SMALLINT", "integer": "INTEGER", "long": "BIGINT",
    "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "date": "DATE", "timestamp_ntz": "TIMESTAMP",
    "timestamp": "TIMESTAMP WITH TIME ZONE", "binary": "BLOB",
}  # fmt: skip


def _duckdb_type(kind: Any) -> str:
    """DuckDB's spelling of one of Spark's types; a BLOB, which no expression takes, for what it has no name for."""
    name = str(kind.typeName())
    if name == "decimal":
        return f"DECIMAL({kind.precision},{kind.scale})"
    if name == "array":
        return f"{_duckdb_type(kind.elementType)}[]"
    return "VARCHAR" if name in ("char", "varchar") else _TYPES.get(name, "BLOB")


def _columns(table: pa.Table) -> list[tuple[str, str]]:
    """Names and DuckDB types of an Arrow table."""
    return [(field.name, _arrow_name(field.type)) for field in table.schema]


_ARROW = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT",
    "uint8": "UTINYINT", "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT", "float": "FLOAT",
    "double": "DOUBLE", "string": "VARCHAR", "large_string": "VARCHAR", "string_view": "VARCHAR",
    "date32[day]": "DATE", "timestamp[us]": "TIMESTAMP", "null": '"NULL"',
}  # fmt: skip


def _arrow_name(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return (
            "HUGEINT"
            if (kind.precision, kind.scale) == (38, 0)
            else f"DECIMAL({kind.precision},{kind.scale})"
        )
    if pa.types.is_dictionary(kind):
        return _arrow_name(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"{_arrow_name(kind.value_type)}[]"
    name = _ARROW.get(str(kind))
    if name is None:
        raise BindError(f"a relation with {kind} can't be lent to Spark.")
    return name


_SIMPLE = {
    "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(), "UTINYINT": pa.int16(),
    "USMALLINT": pa.int32(), "UINTEGER": pa.int64(), "UBIGINT": pa.decimal128(38, 0),
    "HUGEINT": pa.decimal128(38, 0), "UHUGEINT": pa.decimal128(38, 0), "FLOAT": pa.float32(), "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(), "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"), "BOOLEAN": pa.bool_(),
    "NULL": pa.string(),
}  # fmt: skip


def _plain_type(kind: str) -> pa.DataType:
    """The Arrow type in which Spark takes a column of one of DuckDB's types."""
    typed = Type.parse(kind)
    spark_type(typed)
    if typed.kind == "DECIMAL":
        return pa.decimal128(sum(typed.digits), typed.digits[1])
    if typed.element is not None:
        return pa.list_(_plain_type(typed.element.sql))
    return _SIMPLE[typed.sql]


def _plain(table: pa.Table) -> pa.Table:
    """The same rows in types that Spark takes."""
    columns = {}
    for field in table.schema:
        column = table.column(field.name).cast(_plain_type(_arrow_name(field.type)))
        columns[field.name] = column if column.num_chunks else pa.array([], column.type)
    return pa.table(columns)


def conformed(table: pa.Table, shape: pa.Schema) -> pa.Table:
    """Spark's rows in the types that DuckDB would have given."""
    columns = [table.column(i).cast(field.type) for i, field in enumerate(shape)]
    return pa.table(columns, names=shape.names)
