"""SQLite as an engine for the noisy aggregates, in one module: what a newcomer writes, and how it is tested.

Exact SQL is translated by sqlglot's SQLite writer. What SQLite computes otherwise than DuckDB becomes functions in
Python: arithmetic (exact integers in place of 64 bits), casts, comparisons and hashes. Every kind of node that is not
on the list is refused before anything is paid.

SQLite's columns hold values of any type, so each table is read through a view in which a value of another type than
the declared one is NULL.
"""

from __future__ import annotations

import hashlib
import math
import operator
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from dpsql.engine.base import Engine, hash_lines, raise_unless_done
from dpsql.engine.sandbox import TypedColumns, quote_identifier, run_interruptibly, write_empty_query
from dpsql.engine.sources import name_view
from dpsql.errors import BindError, PolicyError
from dpsql.policy.model import Policy, Table
from tests.support.engine_contract import EngineContract, OpenEngine

_TYPES = {"INTEGER": ("BIGINT", "integer"), "REAL": ("DOUBLE", "real"), "TEXT": ("VARCHAR", "text")}
"""SQLite's declared types: DuckDB's name of each, and the storage class of its values."""
_BITS = {"INT": 32, "BIGINT": 64, "INT128": 128, "UBIGINT": 65}
_FUNCTIONS: dict[type[exp.Expr], str] = {
    exp.Add: "dp_add", exp.Sub: "dp_sub", exp.Mul: "dp_mul", exp.IntDiv: "dp_div", exp.Neg: "dp_neg",
    exp.Abs: "dp_abs", exp.Least: "dp_least", exp.Greatest: "dp_greatest", exp.Sum: "dp_sum", exp.Min: "dp_min",
    exp.Max: "dp_max", exp.BitwiseXor: "dp_xor",
    exp.GT: "dp_gt", exp.GTE: "dp_gte", exp.LT: "dp_lt", exp.LTE: "dp_lte",
}  # fmt: skip
"""Nodes that become calls of the functions below."""
_KNOWN = (
    exp.Select, exp.From, exp.Where, exp.Group, exp.Join, exp.Subquery, exp.With, exp.CTE, exp.Qualify, exp.Table,
    exp.TableAlias, exp.Identifier, exp.Column, exp.Alias, exp.Literal, exp.Null, exp.Boolean, exp.Distinct,
    exp.Limit, exp.RowNumber, exp.Star, exp.Paren, exp.And, exp.Or, exp.Not, exp.Is, exp.EQ, exp.NEQ,
    exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Case, exp.If, exp.Coalesce, exp.Count, exp.Window, exp.WindowSpec, exp.Lag,
    exp.Order, exp.Ordered, exp.Values, exp.Tuple, exp.DataType, exp.Filter,
)  # fmt: skip
"""Nodes that mean in SQLite what they mean in DuckDB."""


class SQLiteEngine(Engine):
    """Private tables of a SQLite file.

    Args:
        path: the file, opened read-only.
        policy: its tables are tables of the file.

    Raises:
        PolicyError: a table is missing.
    """

    def __init__(self, path: Path, policy: Policy) -> None:
        self._path = os.path.realpath(path)
        super().__init__(policy, path.parent)
        self._con = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, check_same_thread=False)
        self._con.execute("PRAGMA temp_store = MEMORY")
        for name, function in _SCALARS.items():
            self._con.create_function(name, -1, function, deterministic=True)
        for name, function in _AGGREGATES.items():
            self._con.create_aggregate(name, 1, type(name, (_Fold,), {"function": staticmethod(function)}))
        self._schemas = {table.name: self._open(table) for table in policy.tables.values()}

    def _open(self, table: Table) -> dict[str, str]:
        """Make the view that exact queries read; return its columns."""
        source = quote_identifier(table.source or table.name)
        columns = self._con.execute(f"PRAGMA main.table_info({source})").fetchall()
        if not columns:
            raise PolicyError(
                f"the policy names {table.source or table.name}, which the database does not have."
            )
        items, schema = [], {}
        for _, name, declared, *_ in columns:
            kind, storage = _TYPES.get(declared.upper(), ("BLOB", "blob"))
            schema[name] = kind
            value = quote_identifier(name)
            if storage == "text":
                value = f"dp_text(CAST({value} AS BLOB))"
            items.append(
                f"CASE typeof({quote_identifier(name)}) WHEN '{storage}' THEN {value} END AS {quote_identifier(name)}"
            )
        view = f"CREATE TEMP VIEW {quote_identifier(name_view(table))} AS SELECT {', '.join(items)} FROM main.{source}"
        self._con.execute(view)
        return schema

    @property
    def dataset(self) -> str:
        """The name of the data in the ledger: the file's."""
        return hash_lines([self._path])[:32]

    def files(self, table: Table) -> list[str]:
        """Return the database file."""
        return [self._path]

    def place(self, table: Table) -> tuple[str, str, str]:
        """Return the name of a table's view."""
        return ("temp", "main", name_view(table))

    def schema(self, table: Table) -> Mapping[str, str]:
        """Return column names and types as exact queries see them."""
        return self._schemas[table.name]

    def check(self, sql: str, lent: Mapping[str, TypedColumns], apart: bool = False) -> None:
        """Bind an exact query in DuckDB and in SQLite, before anything is paid.

        Raises:
            BindError: one of them would refuse it whatever the data are, or SQLite has no equal of it.
        """
        super().check(sql, lent, apart)
        if apart:
            return
        message = ""
        text = translate(sql)
        with self._lock:
            try:
                empty = {
                    name: self.replica.shape(write_empty_query(kinds), {}).empty_table()
                    for name, kinds in lent.items()
                }
                self._lend(empty)
                self._con.execute(f"EXPLAIN {text}")
            except sqlite3.Error as error:
                message = str(error)
            self._drop(lent)
        if message:
            raise BindError("the engine can't run this.", hint=message)

    def execute(self, sql: str, lent: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Run one exact query, with public relations lent to it under their names.

        Raises:
            EngineError: it failed; SQLite's message, which may hold values, is dropped.
            KeyboardInterrupt: the user stopped it.
        """
        with self._lock:
            self._stop.clear()
            outcome = run_interruptibly(lambda: self._run(sql, lent or {}), self._con.interrupt, self._stop)
            self._drop(lent or {})
        raise_unless_done(outcome.state)
        assert outcome.table is not None
        return outcome.table

    def _run(self, sql: str, lent: Mapping[str, pa.Table]) -> pa.Table:
        shape = self.replica.shape(sql, {name: _list_columns(table) for name, table in lent.items()})
        self._lend(lent)
        rows = self._con.execute(translate(sql)).fetchall()
        columns = zip(*rows, strict=True) if rows else [()] * len(shape)
        return pa.table(
            [_to_arrow(values, field.type) for values, field in zip(columns, shape, strict=True)],
            schema=shape,
        )

    def _lend(self, lent: Mapping[str, pa.Table]) -> None:
        for name, table in lent.items():
            listed = ", ".join(map(quote_identifier, table.column_names))
            self._con.execute(f"CREATE TEMP TABLE {quote_identifier(name)} ({listed})")
            rows = [tuple(_encode(value) for value in row.values()) for row in table.to_pylist()]
            places = ", ".join("?" * table.num_columns)
            self._con.executemany(f"INSERT INTO temp.{quote_identifier(name)} VALUES ({places})", rows)

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._con.execute(f"DROP TABLE IF EXISTS temp.{quote_identifier(name)}")

    def close(self) -> None:
        """Close the database."""
        self._con.close()
        super().close()


# -- the translation ----------------------------------------------------------------------------------------------


def translate(sql: str) -> str:
    """Write an exact query in SQLite's SQL.

    Raises:
        BindError: SQLite has no equal of it.
    """
    tree = sqlglot.parse_one(sql, read="duckdb")
    for node in reversed(list(tree.walk())):  # the inner ones first
        rewritten = _rewrite(node)
        if rewritten is not node:
            node.replace(rewritten)
    return tree.sql("sqlite", unsupported_level=sqlglot.ErrorLevel.RAISE)


def _rewrite(node: exp.Expr) -> exp.Expr:
    """Return the equal of one node, whose children are rewritten already."""
    if isinstance(node, exp.Cast):  # TRY_CAST too: a cast of a plan never fails
        kind = node.to.sql("duckdb")
        if kind not in (*_BITS, "DOUBLE", "TEXT"):
            raise BindError(f"a cast to {kind} has no equal on SQLite.")
        return _call("dp_cast", node.this, exp.Literal.string(kind))
    if isinstance(node, exp.Sum) and isinstance(node.parent, exp.Window):  # of counts, which 64 bits hold
        return node
    if type(node) in _FUNCTIONS:
        parts = [node.args.get("this"), node.args.get("expression"), *node.expressions]
        return _call(_FUNCTIONS[type(node)], *(part for part in parts if part is not None))
    if isinstance(node, exp.Anonymous):
        if node.name.lower() == "hash":
            return _call("dp_hash", *node.expressions)
        raise BindError(f"{node.name} has no equal on SQLite.")
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        return exp.Table(this=node.this, alias=node.args.get("alias"), joins=node.args.get("joins"))
    if isinstance(node, exp.Between):
        low, high = (node.args[name] for name in ("low", "high"))
        parts = (_call("dp_gte", node.this, low), _call("dp_lte", node.this.copy(), high))
        return exp.paren(exp.and_(*parts, wrap=False))
    if isinstance(node, exp.Select) and "qualify" in node.args and not node.is_star:
        # sqlglot's own way out of QUALIFY keeps names of tables that are out of reach.
        kept = node.args["qualify"].pop().this
        names = [exp.column(item.alias_or_name, quoted=True) for item in node.expressions]
        inner = node.copy().select(exp.alias_(kept, "dp_kept")).subquery("dp_inner")
        return exp.select(*names).from_(inner).where(exp.column("dp_kept"))
    if isinstance(node, exp.Values) and node.alias_column_names:
        # SQLite names no columns of VALUES.
        names = node.alias_column_names
        rows = [exp.select(*map(exp.alias_, row.expressions, names)) for row in node.expressions]
        return reduce(lambda a, b: exp.union(a, b, distinct=False), rows).subquery(node.alias)
    if not isinstance(node, (*_KNOWN, exp.Union)):
        raise BindError(f"{node.key} has no equal on SQLite.")
    return node


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


# -- values: integers beyond 64 bits travel as texts with a mark that no text of a table begins with -----------------

_MARK = "\x00integer "


def _encode(value: Any) -> Any:
    """Return a value as SQLite holds it."""
    if isinstance(value, Decimal):
        value = int(value)
    return f"{_MARK}{value}" if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def _decode(value: Any) -> Any:
    return int(value.removeprefix(_MARK)) if isinstance(value, str) and value.startswith(_MARK) else value


def _lift(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of Python as one of SQL: NULL where an argument is NULL, exact over integers."""

    def lifted(*args: Any) -> Any:
        if any(arg is None for arg in args):
            return None
        return _encode(function(*map(_decode, args)))

    return lifted


def _lift_extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return MIN or MAX of the arguments that are not NULL, as DuckDB's LEAST and GREATEST are."""

    def lifted(*args: Any) -> Any:
        given = [_decode(arg) for arg in args if arg is not None]
        return _encode(function(given)) if given else None

    return lifted


def _divide(a: int, b: int) -> int | None:
    """Divide towards 0; NULL by 0."""
    if b == 0:
        return None
    whole = abs(a) // abs(b)
    return whole if (a < 0) == (b < 0) else -whole


def _cast(value: Any, kind: str) -> Any:
    """Cast a value; NULL where it does not fit."""
    if kind == "TEXT":
        return str(value)
    if kind == "DOUBLE":
        return float(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        value = round(value)
    half = 2 ** (_BITS[kind] - 1)
    return value if -half <= value < half else None


def _multiply(a: Any, b: Any) -> Any:
    return a * b


def _hash(*args: Any) -> int:
    digest = hashlib.blake2b(repr(args).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _read_text(value: bytes) -> str | None:
    """Return a text that is UTF-8 and no integer of ours; NULL for any other."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if text.startswith(_MARK) else text


class _Fold:
    """An aggregate over exact integers; NULL over no value."""

    function: Callable[[Any, Any], Any]

    def __init__(self) -> None:
        self.total: Any = None

    def step(self, value: Any) -> None:
        """Add a value."""
        if value is not None:
            value = _decode(value)
            self.total = value if self.total is None else type(self).function(self.total, value)

    def finalize(self) -> Any:
        """Return the aggregate."""
        return _encode(self.total)


_AGGREGATES = {"dp_sum": operator.add, "dp_min": min, "dp_max": max}
_SCALARS: dict[str, Callable[..., Any]] = {
    "dp_add": _lift(operator.add), "dp_sub": _lift(operator.sub), "dp_mul": _lift(_multiply), "dp_div": _lift(_divide),
    "dp_neg": _lift(operator.neg), "dp_abs": _lift(abs), "dp_xor": _lift(operator.xor), "dp_gt": _lift(operator.gt),
    "dp_gte": _lift(operator.ge), "dp_lt": _lift(operator.lt), "dp_lte": _lift(operator.le),
    "dp_least": _lift_extreme(min), "dp_greatest": _lift_extreme(max), "dp_cast": _lift(_cast), "dp_hash": _hash,
    "dp_text": _lift(_read_text),
}  # fmt: skip


def _list_columns(table: pa.Table) -> list[tuple[str, str]]:
    """List names and DuckDB types of a lent relation."""
    names = {
        "int64": "BIGINT",
        "int32": "INTEGER",
        "double": "DOUBLE",
        "string": "VARCHAR",
        "bool": "BOOLEAN",
    }
    return [(field.name, names.get(str(field.type), "HUGEINT")) for field in table.schema]


def _to_arrow(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    decoded = [_decode(value) for value in values]
    if pa.types.is_decimal(kind):
        decoded = [None if value is None else Decimal(value) for value in decoded]
    if pa.types.is_boolean(kind):
        decoded = [None if value is None else bool(value) for value in decoded]
    return pa.array(decoded, kind)


# -- the contract -------------------------------------------------------------------------------------------------


class TestSQLite(EngineContract):
    """SQLite passes the contract, without patterns and subsample blocks."""

    absent: ClassVar[Mapping[str, str]] = {
        "pattern": "like has no equal",
        "blocks": "has no equal",
        "inverse sensitivity": "firstvalue has no equal",
        "best of a relation": "the engine can't run this",
    }

    @pytest.fixture
    def open_engine(self, tmp_path: Path) -> OpenEngine:
        """Write the tables into a new SQLite file."""

        def opened(tables: Mapping[str, pa.Table], policy: Policy) -> SQLiteEngine:
            path = tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite"
            con = sqlite3.connect(path)
            kinds = {pa.int64(): "INTEGER", pa.float64(): "REAL", pa.string(): "TEXT COLLATE NOCASE"}
            for name, table in tables.items():
                listed = ", ".join(f"{field.name} {kinds[field.type]}" for field in table.schema)
                con.execute(f"CREATE TABLE {name} ({listed})")
                places = ", ".join("?" * table.num_columns)
                con.executemany(
                    f"INSERT INTO {name} VALUES ({places})", [tuple(r.values()) for r in table.to_pylist()]
                )
            con.commit()
            con.close()
            return SQLiteEngine(path, policy)

        return opened
