"""Spark as the engine: the exact aggregates of a plan on a cluster; mechanisms, budget and post-processing stay here.

Plans don't depend on the engine. Their queries are bound against DuckDB's empty copy of the schema, which gives their columns'
types, and then translated. A query without a translation is refused before payment. Answers
have the size of a release (groups, bins, order statistics). They are cast to DuckDB's types, so mechanisms don't depend on the
engine either.

Spark's web pages and event logs show exact numbers of rows, so only the data owner should have access to them.

The translation is a walk over the few shapes in plans, which this package alone generates, with a type for every expression,
and closed by default: a node without a rewrite is refused by name before payment. The rewrites of operators, casts and
functions, each with its reason, are in the tables of :mod:`dpsql.spark.spark_values`. The output assumes Spark's ANSI mode, in
which nothing wraps around: an operation that may overflow is a ``try_`` function, which returns NULL like DuckDB's TRY.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import parquet
from sqlglot import exp

from dpsql.binding.public_statement import resolve_key
from dpsql.binding.relations.relation import fold
from dpsql.binding.values.sql_types import Type
from dpsql.engine.base import Engine, find_files, hash_lines, list_origins
from dpsql.engine.sandbox import TypedColumns, write_empty_query
from dpsql.engine.sources import name_view
from dpsql.errors import BindError, PolicyError
from dpsql.language.dialect import parse_fragment, parse_select, to_sql
from dpsql.late_dataclass import dataclass
from dpsql.policy.model import Policy, Table
from dpsql.spark.spark_expressions import compare, translate, write_direction
from dpsql.spark.spark_values import (
    LONG,
    SparkColumns,
    SparkValue,
    backquote,
    find_common_type,
    refusal,
    spark_type,
    write_cast,
)

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
        if address.startswith("sc://") and importlib.util.find_spec("grpc") is None:
            raise PolicyError("Spark Connect needs gRPC.", hint="pip install 'pyspark[connect]'")
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
        frame, coarse = self._frame(table), _find_milliseconds(self.files(table) or [])
        shown, columns = [], {}
        for given in frame.schema.fields:
            if fold(given.name) in coarse:
                continue
            name, kind = backquote(given.name), _to_duckdb_type(given.dataType)
            shown.append(f"{_write_total(name, kind)} AS {name}")
            columns[given.name] = kind
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
        """The name of the data in the ledger, from their files or pattern, or from the tables' names and Spark's address."""
        tables = self.policy.tables.values()
        parts = [
            part for t in tables if t.file for part in list_origins(t, self._sources[t.name], self._base)
        ]
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


def _find_milliseconds(paths: Iterable[str]) -> set[str]:
    """Return the columns of local Parquet files with times in milliseconds: Spark fails to read one far from 1970."""
    try:
        fields = [each for path in paths for each in parquet.read_schema(path)]
    except (pa.ArrowException, OSError):
        raise PolicyError("the types of a Parquet file can't be read.") from None
    return {fold(each.name) for each in fields if "timestamp[ms" in str(each.type)}


def _write_total(name: str, kind: str) -> str:
    """Return a column as exact queries read it, without values on which one of their functions fails."""
    if kind == "VARCHAR":
        # People must not become one because their names differ by case or an accent. Only UTF-8 has a way out of Arrow.
        return f"collate(try_validate_utf8({name}), 'UTF8_BINARY')"
    if kind in _CALENDAR:
        # Spark stores dates of other years but can't compute with them, so one row would make a query fail.
        low, high = (_CALENDAR[kind].format(day) for day in ("0001-01-01", "9999-12-31"))
        return f"CASE WHEN {name} BETWEEN {low} AND {high} THEN {name} END"
    if kind.removesuffix("[]") in (*_CALENDAR, "VARCHAR"):
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


MAX_QUERY_LENGTH = 1 << 20
"""The most characters of a translated query: a value that is used several times is written several times."""


def spark_sql(text: str, relations: Mapping[str, TypedColumns]) -> str:
    """Translate an exact query of a plan to Spark.

    Args:
        text: DuckDB SQL of a plan, with salts filled in.
        relations: every table and additional relation that it may name, by the last part of the name.

    Raises:
        BindError: Spark has no equivalent, as named in the message.

    >>> spark_sql("SELECT COUNT(*) AS n FROM t WHERE x // 2 > 1", {"t": [("x", "INTEGER")]})
    'SELECT count(1) AS `n` FROM `t` AS `t` WHERE ((CAST(`t`.`x` AS BIGINT) div 2L) > 1L)'
    """
    known = {
        fold(name): SparkQuery(backquote(name), tuple((n, Type.parse(t)) for n, t in columns))
        for name, columns in relations.items()
    }
    made = _Scope(known).query(parse_fragment(text))
    if len(made.sql) > MAX_QUERY_LENGTH:
        raise refusal("a query of this length", "compute it in steps.")
    return made.sql


class SparkQuery(NamedTuple):
    """Spark SQL, and its columns."""

    sql: str
    columns: SparkColumns


class _Source(NamedTuple):
    """A relation in FROM: its alias and columns."""

    alias: str
    columns: SparkColumns

    def values(self) -> Iterator[tuple[str, SparkValue]]:
        """Yield its columns by name."""
        for name, kind in self.columns:
            yield name, SparkValue(f"{backquote(self.alias)}.{backquote(name)}", kind)


_AS_OF: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.GTE: ">=", exp.GT: ">", exp.LTE: "<=", exp.LT: "<"}
"""Comparisons of an ASOF JOIN."""
_EXCHANGED = {"=": "=", ">=": "<=", ">": "<", "<=": ">=", "<": ">"}
_OPPOSITE = {">=": "<", ">": "<=", "<=": ">", "<": ">="}
_RELATION_PARTS = ("this", "alias", "db", "catalog", "joins")
_SELECT_PARTS = (
    *("with_", "kind", "expressions", "from_", "joins", "where", "group", "having", "qualify"),
    *("order", "limit", "distinct", "operation_modifiers"),
)


def _only(node: exp.Expr, what: str, *known: str) -> None:
    """Refuse a part of a clause without a translation."""
    for key, value in node.args.items():
        if key not in known and value not in (None, False, []):
            raise refusal(f"{key.rstrip('_').upper()} in {what}")


@dataclass
class _Scope:
    """One SELECT: the relations that its FROM may name and does name, and the outer SELECT."""

    known: dict[str, SparkQuery]
    outer: _Scope | None = None
    own: Iterator[int] = field(default_factory=count)
    sources: list[_Source] = field(default_factory=list)

    def of(self, node: exp.Expr) -> SparkValue:
        return translate(self, node)

    def nested(self, node: exp.Expr) -> SparkQuery:
        return _Scope(self.known, self, self.own).query(node)

    def column(self, node: exp.Column) -> SparkValue:
        """Return a column's value, in this scope or an outer one."""
        for source in self.sources:
            if fold(node.table) in ("", fold(source.alias)):
                for name, value in source.values():
                    if fold(name) == fold(node.name):
                        return value
        if self.outer is not None:
            return self.outer.column(node)
        raise BindError(f"there is no column {node.name} for Spark.")

    def has(self, node: exp.Column) -> bool:
        """Return whether a column is known."""
        try:
            self.column(node)
        except BindError:
            return False
        return True

    def _alias(self) -> str:
        """Return a new name for a relation, unused in the plan."""
        return f"dpsql_own_{next(self.own)}"

    # -- relations ----------------------------------------------------------------------------------------------

    def query(self, node: exp.Expr) -> SparkQuery:
        """Translate a query, in this scope if it is a SELECT."""
        if isinstance(node, exp.Subquery):
            _only(node, "a subquery", "this", "alias")
            return self.query(node.this)
        if type(node) is exp.Union:
            return self._union(node)
        if not isinstance(node, exp.Select):
            raise refusal(node.key.upper())
        return self._select(node)

    def _without_outer_columns(self, node: exp.Expr) -> SparkQuery:
        """Translate a query with the same relations, but without this one's columns."""
        return _Scope(self.known, self.outer, self.own).query(node)

    def _union(self, node: exp.Union) -> SparkQuery:
        _only(node, "UNION", "this", "expression", "distinct")
        sides = [self._without_outer_columns(side) for side in (node.this, node.expression)]
        (left, right), aliases = (side.columns for side in sides), [self._alias() for _ in sides]
        if len(left) != len(right):
            raise refusal("a UNION of unlike queries")
        kinds = [find_common_type((mine, theirs)) for (_, mine), (_, theirs) in zip(left, right, strict=True)]
        columns = tuple((name, kind) for (name, _), kind in zip(left, kinds, strict=True))
        parts = []
        for alias, (sql, given) in zip(aliases, sides, strict=True):
            values = zip(_Source(alias, given).values(), columns, strict=True)
            items = (f"{write_cast(value, kind)} AS {backquote(name)}" for (_, value), (name, kind) in values)
            parts.append(f"SELECT {', '.join(items)} FROM ({sql}) AS {backquote(alias)}")
        return SparkQuery((" UNION " if node.args.get("distinct") else " UNION ALL ").join(parts), columns)

    def _with(self, with_: exp.Expr | None) -> str:
        """Return the CTEs as text, and add them to the scope."""
        if with_ is None:
            return ""
        _only(with_, "WITH", "expressions")
        self.known, parts = dict(self.known), []
        for cte in with_.expressions:
            _only(cte, "a CTE", "this", "alias")
            made, given = self._without_outer_columns(cte.this), cte.args["alias"].args.get("columns")
            columns = _rename(made.columns, cte.args["alias"])
            name, shown = backquote(cte.alias), f" ({_list_names(columns)})" if given else ""
            parts.append(f"{name}{shown} AS ({made.sql})")
            self.known[fold(cte.alias)] = SparkQuery(name, columns)
        return f"WITH {', '.join(parts)} "

    def _relation(self, node: exp.Expr, called: str | None = None) -> tuple[str, _Source]:
        """Translate a part of FROM; ``called`` replaces its alias."""
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Func):
            made = _numbers(node.this)
        elif isinstance(node, exp.Table):
            _only(node, "FROM", *_RELATION_PARTS)
            if fold(node.name) not in self.known:
                raise BindError(f"there is no relation {node.name} for Spark.")
            made = self.known[fold(node.name)]
        elif isinstance(node, exp.Subquery | exp.Values):
            if isinstance(node, exp.Subquery):
                _only(node, "a subquery", "this", "alias")
            inner = node if isinstance(node, exp.Values) else node.this
            made = (
                self._values(inner) if isinstance(inner, exp.Values) else self._without_outer_columns(inner)
            )
            made = SparkQuery(f"({made.sql})", made.columns)
        else:
            raise refusal(f"{node.key.upper()} in FROM")
        alias, name = node.args.get("alias"), called or node.alias_or_name
        source = _Source(name, _rename(made.columns, alias))
        renamed = (
            f"({_list_names(source.columns)})" if alias is not None and alias.args.get("columns") else ""
        )
        return f"{made.sql} AS {backquote(name)}{renamed}", source

    def _values(self, node: exp.Values) -> SparkQuery:
        _only(node, "VALUES", "expressions", "alias")
        rows = [[_Scope({}).of(item) for item in row.expressions] for row in node.expressions]
        kinds = [find_common_type([row[i].type for row in rows]) for i in range(len(rows[0]))]
        shown = ((write_cast(v, k) for v, k in zip(row, kinds, strict=True)) for row in rows)
        listed = ", ".join(f"({', '.join(row)})" for row in shown)
        columns = tuple((f"col{i}", kind) for i, kind in enumerate(kinds, start=1))
        return SparkQuery(f"SELECT * FROM VALUES {listed}", columns)

    # -- SELECT -------------------------------------------------------------------------------------------------

    def _select(self, node: exp.Select) -> SparkQuery:
        _only(node, "SELECT", *_SELECT_PARTS)
        head, node = self._with(node.args.get("with_")), _rewrite_quantile(node)
        from_, distinct, qualify, limit = (
            node.args.get(key) for key in ("from_", "distinct", "qualify", "limit")
        )
        text = ""
        if from_ is not None:
            text, source = self._relation(from_.this)
            self.sources.append(source)
            text = f" FROM {text}" + "".join(self._join(join) for join in node.args.get("joins") or [])
        text += self._condition(node, "where")
        items = self._items(node)
        if group := node.args.get("group"):
            _only(group, "GROUP BY", "expressions")
            keys = (self.of(resolve_key(key, node, self.has)).sql for key in group.expressions)
            text += f" GROUP BY {', '.join(keys)}"
        text += self._condition(node, "having")
        columns = tuple((name, value.type) for name, value in items)
        shown = [f"{value.sql} AS {backquote(name)}" for name, value in items]
        if distinct and distinct.args.get("on") is not None:
            raise refusal("DISTINCT ON")
        if qualify is not None:
            # Older versions of Spark lack QUALIFY: make the choice a column, with a condition above it.
            shown.append(f"{self.of(_number_within_units(qualify.this)).sql} AS `dpsql_chosen`")
        text = f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(shown)}{text}"
        if qualify is not None:
            text = f"SELECT {_list_names(columns)} FROM ({text}) AS `q` WHERE `dpsql_chosen`"
        text += self._order(node, columns)
        if limit is not None:
            if not isinstance(limit.expression, exp.Literal):
                raise refusal("a LIMIT that is no literal")
            text += f" LIMIT {int(limit.expression.name)}"
        return SparkQuery(head + text, columns)

    def _condition(self, node: exp.Select, key: str) -> str:
        clause = node.args.get(key)
        return f" {key.upper()} {self.of(clause.this).sql}" if clause is not None else ""

    def _items(self, node: exp.Select) -> list[tuple[str, SparkValue]]:
        items: list[tuple[str, SparkValue]] = []
        for item in node.expressions:
            if item.is_star:
                _only(item if isinstance(item, exp.Star) else item.this, "*")
                table = fold(item.table) if isinstance(item, exp.Column) else ""
                items += (v for s in self.sources if table in ("", fold(s.alias)) for v in s.values())
            else:
                items.append((item.alias_or_name or f"dpsql_{len(items)}", self.of(item.unalias())))
        return items

    def _join(self, join: exp.Join) -> str:
        _only(join, "JOIN", "this", "on", "kind", "side", "method")
        side, kind, method = join.side.upper(), join.kind.upper(), join.method.upper()
        lateral, on = isinstance(join.this, exp.Lateral | exp.Unnest), join.args.get("on")
        if method == "ASOF" and on is not None and side in ("", "LEFT") and not lateral:
            return self._as_of(on, side, join.this)
        text, source = self._lateral(join.this) if lateral else self._relation(join.this)
        self.sources.append(source)
        if kind in ("SEMI", "ANTI") and on is not None and not (side or method or lateral):
            test = self.of(on).sql
            self.sources.pop()  # its columns are visible only here
            return f" LEFT {kind} JOIN {text} ON {test}"
        sides = ("", "LEFT") if lateral else ("", "LEFT", "RIGHT", "FULL")
        if method or side not in sides or kind not in ("", "INNER", "OUTER", "CROSS"):
            raise refusal(" ".join(filter(None, (method, side, kind, "JOIN"))))
        if on is None:
            if side:
                raise refusal(f"{side} JOIN without ON")
            return f" CROSS JOIN {text}"
        return f" {side + ' ' if side else ''}JOIN {text} ON {self.of(on).sql}"

    def _lateral(self, node: exp.Expr) -> tuple[str, _Source]:
        """Translate UNNEST of a list and LATERAL, which refer to preceding columns."""
        alias = node.args["alias"]
        name = backquote(alias.name)
        if isinstance(node, exp.Unnest):
            _only(node, "UNNEST", "expressions", "alias")
            (argument,) = (self.of(item) for item in node.expressions)
            if argument.type.element is None:
                raise refusal(f"UNNEST of {argument.type.sql}")
            columns = _rename((("unnest", argument.type.element),), alias)
            text = f"LATERAL explode({argument.sql}) AS {name}({_list_names(columns)})"
            return text, _Source(alias.name, columns)
        _only(node, "LATERAL", "this", "alias")
        made = self.nested(node.this)
        return f"LATERAL ({made.sql}) AS {name}", _Source(alias.name, _rename(made.columns, alias))

    def _as_of(self, on: exp.Expr, side: str, node: exp.Expr) -> str:
        """Translate ``x ASOF JOIN t ON x.k = t.k AND x.x >= t.t``, which Spark lacks.

        Each row of t gets its neighbour among those with its k; a row of x is then between the two. Rows of t are
        public, and no two have equal k and t.
        """
        text, under = self._relation(node, self._alias())
        source = _Source(node.alias_or_name, under.columns)
        there, below = (_Scope(self.known, None, self.own, [one]) for one in (source, under))
        keys, tests, nearest = [], [], []
        for part in on.flatten() if isinstance(on, exp.And) else [on]:
            own, at, word = _read_as_of(part.unnest(), source)
            moved = at.transform(
                lambda n: exp.column(n.name, under.alias, quoted=True) if isinstance(n, exp.Column) else n
            )
            mine, theirs, lower = self.of(own), there.of(at), below.of(moved)
            kind = find_common_type((mine.type, theirs.type))
            sought = write_cast(lower, kind)
            if word == "=":  # as compared, so that at most one row of each is the nearest
                keys.append(sought)
                tests.append(compare(word, mine, theirs).sql)
            else:
                nearest.append((mine, theirs, kind, word, sought))
        if len(nearest) != 1:
            raise refusal("an ASOF JOIN of this form")
        mine, theirs, kind, word, sought = nearest[0]
        name, look = backquote(source.alias), "lead" if word[0] == ">" else "lag"
        over = (f"PARTITION BY {', '.join(keys)} " if keys else "") + f"ORDER BY {sought} ASC NULLS FIRST"
        listed = [f"{value.sql} AS {backquote(column)}" for column, value in under.values()]
        listed.append(f"{look}({sought}) OVER ({over}) AS `dpsql_next`")
        following = SparkValue(f"{name}.`dpsql_next`", kind)
        beyond = compare(_OPPOSITE[word], mine, following).sql
        tests += [compare(word, mine, theirs).sql, f"({following.sql} IS NULL OR {beyond})"]
        self.sources.append(source)
        inner = f"(SELECT {', '.join(listed)} FROM {text}) AS {name}"
        return f" {side + ' ' if side else ''}JOIN {inner} ON {' AND '.join(tests)}"

    def _order(self, node: exp.Select, columns: SparkColumns) -> str:
        order, names, parts = node.args.get("order"), [fold(name) for name, _ in columns], []
        for item in order.expressions if order is not None else ():
            place = item.this
            if isinstance(place, exp.Literal) and not place.is_string:
                shown = str(int(place.name))
            elif isinstance(place, exp.Column) and fold(place.name) in names:
                shown = str(names.index(fold(place.name)) + 1)
            elif node.args.get("qualify") is not None:
                raise refusal("ORDER BY an expression that is no output, with QUALIFY,")
            else:
                shown = self.of(place).sql
            parts.append(shown + write_direction(item))
        return f" ORDER BY {', '.join(parts)}" if parts else ""


def _numbers(node: exp.Expr) -> SparkQuery:
    """Translate range(n), range(m, n): the integers below n, from m on."""
    if isinstance(node, exp.GenerateSeries) and node.args.get("is_end_exclusive"):
        ends = [node.args[key] for key in ("start", "end") if node.args.get(key) is not None]
        if all(isinstance(end, exp.Literal) for end in ends) and not node.args.get("step"):
            return SparkQuery(f"range({', '.join(str(int(end.name)) for end in ends)})", (("range", LONG),))
    raise refusal(f"{node.sql_name()} in FROM" if isinstance(node, exp.Func) else node.key)


def _read_as_of(part: exp.Expr, source: _Source) -> tuple[exp.Expr, exp.Expr, str]:
    """Return a comparison of an ASOF JOIN: our side, that of `source`, and the operator between them."""
    if type(part) in _AS_OF:
        sides, word = (part.this, part.args["expression"]), _AS_OF[type(part)]
        named = [{fold(column.table) for column in side.find_all(exp.Column)} for side in sides]
        theirs = [names == {fold(source.alias)} for names in named]
        if theirs == [False, True]:
            return *sides, word
        if theirs == [True, False]:
            return *reversed(sides), _EXCHANGED[word]
    raise refusal("an ASOF JOIN of this form")


def _list_names(columns: SparkColumns) -> str:
    return ", ".join(backquote(name) for name, _ in columns)


def _rename(columns: SparkColumns, alias: exp.Expr | None) -> SparkColumns:
    """Return columns with the first ones renamed by an alias."""
    names = [column.name for column in alias.args.get("columns") or []] if alias is not None else []
    return tuple((new, kind) for new, (_, kind) in zip(names, columns, strict=False)) + columns[len(names) :]


# -- rewrites for speed and memory ------------------------------------------------------------------------------


def _number_within_units(node: exp.Expr) -> exp.Expr:
    """Rewrite a look back in one long sort, as in plans, as numbers within each unit.

    DuckDB is fast at one long sort; Spark would run it in one task, but can sort units separately. The row n places before
    has another u if and only if fewer than n rows of this u precede. The first row n groups of peers before has another
    u if and only if fewer than n such groups precede. Several columns differ if one of them does. A hash of them may be
    between them in the order.
    """
    node = node.unnest()
    if isinstance(node, exp.And):
        return exp.And(this=_number_within_units(node.this), expression=_number_within_units(node.expression))
    looks = [_look(part) for part in (node.flatten() if isinstance(node, exp.Or) else [node])]
    columns = [look.column for look in looks if look is not None]
    first = looks[0]
    if first is None or any(look is None or look[:3] != first[:3] for look in looks):
        return node
    sorts = first.order.expressions
    rest = [item for item in sorts if item.this not in columns]
    if not rest or len(rest) + len(columns) != len(sorts) or sorts[0].this not in columns:
        return node
    own = exp.Window(
        this=exp.DenseRank() if first.ranks else exp.RowNumber(),
        partition_by=[column.copy() for column in columns],
        order=exp.Order(expressions=[item.copy() for item in rest]),
        over="OVER",
    )
    return exp.LTE(this=own, expression=exp.Literal.number(first.places))


class _Look(NamedTuple):
    """A look back: whether it counts groups of peers, its distance, its order, and its column."""

    ranks: bool
    places: str
    order: exp.Order
    column: exp.Expr


def _look(node: exp.Expr) -> _Look | None:
    if not isinstance(node, exp.NullSafeNEQ) or not isinstance(node.this, exp.Window):
        return None
    window, column = node.this, node.expression
    order, spec = window.args.get("order"), window.args.get("spec")
    if window.args.get("partition_by") or order is None or window.this.this != column:
        return None
    if isinstance(window.this, exp.Lag) and spec is None:
        return _Look(False, window.this.args["offset"].name, order, column)
    if not isinstance(window.this, exp.FirstValue) or spec is None:
        return None
    start, end = to_sql(spec.args["start"]), to_sql(spec.args["end"])
    same = spec.sql() == f"GROUPS BETWEEN {start} PRECEDING AND {start} PRECEDING"
    return _Look(True, start, order, column) if same and start == end else None


def _rewrite_quantile(node: exp.Select) -> exp.Select:
    """Rewrite ``SELECT QUANTILE_DISC(v, p ORDER BY v) AS q FROM ...`` as the first value that p of the rows reach.

    Spark supports it for doubles only, and would keep all values in one task's memory; sums over the distinct values
    may spill, and support any type.
    """
    asked = _quantile_of(node.expressions[0].unalias()) if len(node.expressions) == 1 else None
    from_ = node.args.get("from_")
    others = ("group", "joins", "with_", "qualify", "order", "limit", "distinct")
    if asked is None or from_ is None or any(node.args.get(key) for key in others):
        return node
    value, at = map(to_sql, asked)
    where = f" AND ({to_sql(node.args['where'].this)})" if node.args.get("where") is not None else ""
    counted = f"SELECT {value} AS v, COUNT(*) AS c FROM {to_sql(from_.this)} WHERE ({value}) IS NOT NULL{where} GROUP BY 1"
    summed = f"SELECT v, SUM(c) OVER (ORDER BY v) AS upto, SUM(c) OVER () AS n FROM ({counted}) AS counted"
    reached = f"CAST(upto AS DOUBLE) >= CAST({at} AS DOUBLE) * CAST(n AS DOUBLE)"
    name = node.expressions[0].alias_or_name or "q"
    return parse_select(f"SELECT MIN(v) AS {name} FROM ({summed}) AS summed WHERE {reached}")


def _quantile_of(item: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """Return the value and the share of a quantile in normal form."""
    if not isinstance(item, exp.PercentileDisc) or not isinstance(item.expression, exp.Order):
        return None
    (by, *more) = item.expression.expressions
    if more or by.args.get("desc") or by.this != item.this:
        return None
    return item.this, item.expression.this
