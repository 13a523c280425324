"""Spark as the engine: the exact aggregates of a plan on a cluster; mechanisms, budget and post-processing stay here.

Plans don't depend on the engine. Their queries are bound against DuckDB's empty copy of the schema, which gives their columns'
types, and then translated (:mod:`dpsql.spark.spark_writer`). A query without a translation is refused before payment. Answers
have the size of a release (groups, bins, order statistics). They are cast to DuckDB's types, so mechanisms don't depend on the
engine either.

Spark's web pages and event logs show exact numbers of rows, so only the data owner should have access to them.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

from dpsql.binding.values.sql_types import Type
from dpsql.engine.base import Engine, find_files, hash_lines
from dpsql.engine.sandbox import TypedColumns, write_empty_query
from dpsql.engine.sources import name_view
from dpsql.errors import BindError, PolicyError
from dpsql.policy.model import Policy, Table
from dpsql.spark.spark_values import backquote, spark_type
from dpsql.spark.spark_writer import spark_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
"""Settings that the translation relies on, in a separate session."""
ROWS_PER_BATCH = 1 << 20
"""Approximate rows per part of an answer that is read in parts."""
MAX_TRANSLATIONS = 500
"""Cached translations."""


class SparkEngine(Engine):
    """Private tables of Spark's catalog, temporary views of a session, or Parquet files.

    Args:
        database: a master (``"spark://host:7077"``, ``"local[2]"``), a Spark Connect address (``"sc://host"``), or a
            SparkSession, classic or Connect; it is used through a separate session, with unchanged settings.
        base: the folder that relative sources start from.

    Raises:
        PolicyError: PySpark is not installed, or the session or a source does not exist or can't be read.
    """

    def __init__(self, database: str | SparkSession, policy: Policy, base: Path) -> None:
        self._started = False
        self._address = database if isinstance(database, str) else "session"
        self._given: SparkSession = self._start(database) if isinstance(database, str) else database
        self._session: SparkSession = self._given.newSession()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one setting is deprecated, and still affects the meaning of SQL
            for setting, value in _SETTINGS.items():
                self._session.conf.set(setting, value)
        self._global_views: list[str] = []
        self._sources = {t.name: _find_source(t, base) for t in policy.tables.values() if t.file}
        super().__init__(policy, base)
        self._schemas = {table.name: self._open(table) for table in policy.tables.values()}

    def _start(self, address: str) -> SparkSession:
        if importlib.util.find_spec("pyspark") is None:
            raise PolicyError("PySpark is not installed.", hint="pip install 'dpsql[spark]'")
        from pyspark.sql import SparkSession

        with contextlib.suppress(Exception):
            if address.startswith("sc://"):
                from pyspark.sql.connect.session import SparkSession as Remote

                place = urlsplit(address)  # connect first, since Spark's client would retry for minutes
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
        """Create the view that exact queries read, and return its columns with DuckDB's types."""
        frame = self._frame(table)
        shown, columns = [], {}
        for field in frame.schema.fields:
            name, kind = backquote(field.name), _to_duckdb_type(field.dataType)
            shown.append(f"{_write_total(name, kind)} AS {name}")
            columns[field.name] = kind
        frame.selectExpr(*shown).createOrReplaceTempView(name_view(table))
        return columns

    def _frame(self, table: Table) -> DataFrame:
        source = table.source or table.name
        if table.file:
            with contextlib.suppress(Exception):
                return _resolve(self._session.read.parquet(*self._sources[table.name]))
            raise PolicyError(f"the source {source} of {table.name} can't be read as parquet.")
        with contextlib.suppress(Exception):
            return _resolve(self._session.table(source))
        with contextlib.suppress(Exception):
            # A temporary view belongs to the owner's session; a global view makes it visible in ours.
            shared = f"dpsql_{self._token}_{len(self._global_views)}"
            self._given.table(source).createGlobalTempView(shared)
            self._global_views.append(shared)
            return _resolve(self._session.table(f"global_temp.{shared}"))
        raise PolicyError(f"the policy names {source}, which Spark does not have.")

    # -- the engine -------------------------------------------------------------------------------------------

    def schema(self, table: Table) -> Mapping[str, str]:
        """Return column names and types as exact queries see them."""
        return self._schemas[table.name]

    def place(self, table: Table) -> tuple[str, str, str]:
        """Return the name of a table's view, in the catalog and schema of DuckDB's temporary views."""
        return ("temp", "main", name_view(table))

    @property
    def dataset(self) -> str:
        """The name of the data in the ledger, from files, or from the names of tables and Spark's address."""
        tables = self.policy.tables.values()
        parts = [path for t in tables if t.file for path in self._sources[t.name]]
        parts += [f"{self._address} {t.source or t.name}" for t in tables if not t.file]
        return hash_lines(sorted(parts))[:32]

    def files(self, table: Table) -> list[str] | None:
        """Return a table's files if all are on this machine."""
        paths = self._sources.get(table.name, [])
        return paths if paths and all(os.path.isfile(path) for path in paths) else None

    def check(self, sql: str, lent: Mapping[str, TypedColumns], apart: bool = False) -> str | None:
        """Bind an exact query in DuckDB and in Spark on empty tables, before payment, and return Spark's text.

        With ``apart`` only DuckDB runs it.

        Raises:
            BindError: an engine refuses it whatever the data, or Spark has no equivalent.
        """
        with self._lock:
            super().check(sql, lent, apart)
            if apart:
                return None
            # Passed relations have Arrow's types when the query runs, which may differ from those of the text.
            shapes = {name: self.replica.shape(write_empty_query(given), {}) for name, given in lent.items()}
            empty = {name: shape.empty_table() for name, shape in shapes.items()}
            text = self.translate(sql, empty)
            message = ""
            for name, table in empty.items():
                self._register(name, table)
            try:
                _resolve(self._session.sql(text))
            except Exception as error:
                message = str(error).split("\n")[0][:200]
            self._unregister(lent)
        if message:
            raise BindError("the engine can't run this.", hint=message)
        return text

    def check_lent(self, table: pa.Table) -> None:
        """Refuse a relation with a type that Spark lacks, or with an integer of more than 38 digits."""
        self._list_columns(table)
        with contextlib.suppress(pa.ArrowInvalid):
            table.validate(full=True)
            return
        raise BindError("an integer of more than 38 digits isn't supported on Spark.")

    def translate(self, sql: str, lent: Mapping[str, pa.Table]) -> str:
        """Return Spark's text of an exact query, which is proved and then run."""
        known = {name: self._list_columns(table) for name, table in lent.items()}
        known |= {name_view(t): list(self._schemas[t.name].items()) for t in self.policy.tables.values()}
        return _translate(sql, tuple((name, tuple(columns)) for name, columns in known.items()))

    def execute(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        (table,) = self._run_parts(self._answer(sql, lent or {}, None), self._session.interruptAll)
        return table

    def batches(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> Iterator[pa.Table]:
        """Yield the rows of an exact query in parts; the other parts stay on the cluster."""
        return self._run_parts(self._answer(sql, lent or {}, ROWS_PER_BATCH), self._session.interruptAll)

    def _answer(self, sql: str, lent: Mapping[str, pa.Table], rows: int | None) -> Generator[pa.Table]:
        """Yield the rows of a query in DuckDB's types, some ``rows`` at a time or all at once."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._unregister, lent)
            text = self.translate(sql, lent)
            shape = self.replica.shape(sql, {name: self._list_columns(table) for name, table in lent.items()})
            for name, table in lent.items():
                self._register(name, table)
            frame, parts = self._session.sql(text), 1
            if rows is not None:
                stack.callback(frame.persist().unpersist)
                parts = max(1, -(-frame.count() // rows))
            names = ", ".join(map(backquote, frame.columns))
            for i in range(parts):
                part = frame if parts == 1 else frame.where(f"pmod(xxhash64({names}), {parts}L) = {i}L")
                yield cast_to_schema(part.toArrow(), shape)

    def _list_columns(self, table: pa.Table) -> list[tuple[str, str]]:
        """Return names and DuckDB types of an Arrow table's columns; BindError if Spark lacks a type."""
        columns = self.replica.describe(table)
        for _, kind in columns:
            with contextlib.suppress(BindError):
                spark_type(Type.parse(kind))
                continue
            raise BindError(f"Spark has no type for a relation's column of type {kind}.")
        return [(name, kind.replace("DECIMAL(38,0)", "HUGEINT")) for name, kind in columns]

    def _register(self, name: str, table: pa.Table) -> None:
        columns = self._list_columns(table)
        listed = ", ".join(f"{backquote(column)} {spark_type(Type.parse(kind))}" for column, kind in columns)
        rows = table if table.num_rows else table.schema.empty_table()
        self._session.createDataFrame(rows, listed).createOrReplaceTempView(name)

    def _unregister(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(Exception):
                self._session.catalog.dropTempView(name)

    def close(self) -> None:
        """Drop our views, and stop Spark if this engine started it."""
        with contextlib.suppress(Exception):
            self._unregister(name_view(table) for table in self.policy.tables.values())
            for name in self._global_views:
                self._session.catalog.dropGlobalTempView(name)
        super().close()
        if self._started:
            for session in {id(s): s for s in (self._session, self._given)}.values():
                with contextlib.suppress(Exception):
                    session.stop()


@lru_cache(MAX_TRANSLATIONS)
def _translate(sql: str, relations: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]) -> str:
    return spark_sql(sql, dict(relations))


def _resolve(frame: DataFrame) -> DataFrame:
    """Return a frame with resolved columns; Spark Connect reports missing relations only then."""
    frame.schema  # noqa: B018
    return frame


def _write_total(name: str, kind: str) -> str:
    """Return a column as exact queries read it, without values on which one of their functions fails."""
    if kind == "VARCHAR":
        # People must not become one because their names differ by case or an accent.
        return f"collate({name}, 'UTF8_BINARY')"
    if kind in _CALENDAR:
        # Spark stores dates of other years but can't compute with them, so one row would make a query fail.
        low, high = (_CALENDAR[kind].format(day) for day in ("0001-01-01", "9999-12-31"))
        return f"CASE WHEN {name} BETWEEN {low} AND {high} THEN {name} END"
    if kind.removesuffix("[]") in _CALENDAR:
        return f"transform({name}, v -> {_write_total('v', kind.removesuffix('[]'))})"
    return name


_CALENDAR = {"DATE": "DATE '{}'", "TIMESTAMP": "TIMESTAMP_NTZ '{} 00:00:00'"}
"""Types whose values are NULL outside the years 1 to 9999, and their literals of a day."""


def _find_source(table: Table, base: Path) -> list[str]:
    """Return the real paths of local files; the address of a remote store is unchanged."""
    source = table.source or ""
    if not source.lower().endswith(".parquet") and "://" not in source:
        raise PolicyError(
            f"the source {source} of {table.name} is not Parquet, the only file format that dpsql reads on Spark.",
            hint="write it as Parquet or as a table. Text has no types, so two engines may read it differently.",
        )
    return [source] if "://" in source else find_files(table, base)


_TYPES = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "date": "DATE",
    "timestamp_ntz": "TIMESTAMP",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "binary": "BLOB",
}


def _to_duckdb_type(kind: Any) -> str:
    """Return DuckDB's name of a Spark type; BLOB, which no expression accepts, if it has none."""
    name = str(kind.typeName())
    if name == "decimal":
        return f"DECIMAL({kind.precision},{kind.scale})"
    if name == "array":
        return f"{_to_duckdb_type(kind.elementType)}[]"
    return "VARCHAR" if name in ("char", "varchar") else _TYPES.get(name, "BLOB")


def cast_to_schema(table: pa.Table, shape: pa.Schema) -> pa.Table:
    """Cast Spark's rows to DuckDB's types."""
    columns = [table.column(i).cast(field.type) for i, field in enumerate(shape)]
    return pa.table(columns, names=shape.names)
