"""DuckDB's own parser, apart from any data: the tree of a text, for the second lock to read.

A database of its own for queries over lent relations alone: what breaks it breaks nothing else.

The query of a subsample block is the analyst's, and may do what makes DuckDB give up its whole instance. On the private
connection that would be seen by every later block and statement, so one unit's row would speak for all of them. Here
the next block finds a new instance.

It has one thread: with more, which rows come first (and in which order doubles are added) is decided by how work is cut,
which rows of other blocks may do.

An empty copy of the private schema: a place where exact queries are bound before anything is paid.

Planning a query on the data themselves would read them: DuckDB's planner looks at the least and the greatest
value of a column, and may fail over them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Mapping, Sequence

import duckdb
import pyarrow as pa

from dpsql.engine.interruptible import FATAL_ERRORS, Outcome, configure, run_query
from dpsql.errors import BindError

_LOCAL = threading.local()


def parse_to_json(sql: str) -> str:
    """Return the tree of a text in JSON, as DuckDB's parser makes it; an object that says ``error`` where it makes none.

    It runs in a database in memory that has nothing in it, so no name of the owner's can change what is read.
    """
    con = getattr(_LOCAL, "con", None)
    if con is None:
        con = _LOCAL.con = duckdb.connect(config={"threads": 1})
    found = con.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
    assert found is not None
    return str(found[0])


class Sandbox:
    """An empty in-memory instance, opened when it is first needed.

    Args:
        config: of the instance, as it is opened. settings: made then; those that it does not know are left out.
    """

    def __init__(
        self, config: Mapping[str, str | bool | int | float | list[str]], settings: Mapping[str, str]
    ) -> None:
        self._config, self._settings = dict(config), dict(settings)
        self._con: duckdb.DuckDBPyConnection | None = None

    def run(
        self, sql: str, lent: Mapping[str, pa.Table], stop: threading.Event, limit: float | None
    ) -> Outcome:
        """Runs one query, as :func:`dpsql.engine.interruptible.run`. After a failure the next one starts anew."""
        if self._con is None:
            self._con = self._open()
        con = self._con

        outcome = run_query(con, sql, lent, stop, limit)
        if outcome.state != "done":
            self.close()
            return outcome
        for name in lent:
            con.unregister(name)
        return outcome

    def _open(self) -> duckdb.DuckDBPyConnection:
        con = duckdb.connect(":memory:", config={**self._config, "threads": "1"})
        configure(con, self._settings)
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
        return con

    def close(self) -> None:
        if self._con is not None:
            with contextlib.suppress(duckdb.Error):
                self._con.close()
            self._con = None


ColumnTypes = Sequence[tuple[str, str]]
"""Names and SQL types."""


def quote_name(name: str) -> str:
    """A name as SQL writes it, whatever it is.

    >>> quoted('a "b"')
    '"a ""b\"""'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Write a text as SQL has it.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def write_empty_query(columns: Iterable[tuple[str, str]]) -> str:
    """A query of no rows with these columns."""
    typed = ((name, "INTEGER" if kind.strip('"') == "NULL" else kind) for name, kind in columns)
    items = ", ".join(f"CAST(NULL AS {kind}) AS {quote_name(name)}" for name, kind in typed)
    return f"SELECT {items} WHERE FALSE"


_MAX_SPARE = 4
"""Copies that are kept for sessions to come."""
_SPARE: dict[tuple[object, ...], SchemaReplica] = {}
_LEFT: list[dict[tuple[object, ...], SchemaReplica]] = []


class SchemaReplica:
    """A database with the same names and no rows.

    Args:
        tables: catalog, schema and name of each table, with its columns.
    """

    def __init__(self, tables: Iterable[tuple[tuple[str, str, str], ColumnTypes]]) -> None:
        self._tables = tuple((place, tuple(columns)) for place, columns in tables)
        self._con = self._open()
        self._fit: set[tuple[object, ...]] = set()
        """Queries that were bound already, with what was lent: no table of the clone ever changes."""
        self._lent: set[str] = set()

    @classmethod
    def of(cls, tables: Iterable[tuple[tuple[str, str, str], ColumnTypes]]) -> SchemaReplica:
        """One that an earlier session put away, where it is of the same names and types; else a new one.

        It tells nothing of that session: no row was ever in it, and queries are bound in it all the same.
        """
        wanted = tuple((place, tuple(columns)) for place, columns in tables)
        return _SPARE.pop(wanted, None) or cls(wanted)

    def _open(self) -> duckdb.DuckDBPyConnection:
        config: dict[str, str | bool | int | float | list[str]] = {"python_enable_replacements": "false"}
        con = duckdb.connect(":memory:", config=config)
        configure(con, {"enable_progress_bar": "false"})
        attached = {"memory", "temp"}
        for (catalog, schema, name), columns in self._tables:
            if catalog not in attached:
                con.execute(f"ATTACH ':memory:' AS {quote_name(catalog)}")
                attached.add(catalog)
            if catalog != "temp" and schema != "main":
                con.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_name(catalog)}.{quote_name(schema)}")
            where = ".".join(map(quote_name, (catalog, schema, name)))
            listed = ", ".join(f"{quote_name(column)} {kind}" for column, kind in columns)
            kind = "TEMP TABLE" if catalog == "temp" else "TABLE"
            con.execute(f"CREATE {kind} IF NOT EXISTS {where} ({listed})")
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
        return con

    def check(self, sql: str, lent: Mapping[str, ColumnTypes]) -> None:
        """Binds a query, with public relations lent to it under their names.

        Raises:
            BindError: it would fail whatever the data are.
        """
        key = (sql, *sorted((name, *map(tuple, columns)) for name, columns in lent.items()))
        if key in self._fit:
            return
        message = ""
        self._lend(lent)
        try:
            self._con.execute(f"PREPARE dpsql_check AS {sql}")
        except duckdb.Error as error:
            message = str(error).split("\n")[0]
            if isinstance(error, FATAL_ERRORS):
                self.close()
                self._con = self._open()
        if message:
            raise BindError("the engine can't run this.", hint=message)
        if len(self._fit) > 1000:
            self._fit.clear()
        self._fit.add(key)

    def shape(self, sql: str, lent: Mapping[str, ColumnTypes]) -> pa.Schema:
        """The Arrow types of a query's columns, as DuckDB gives them."""
        self._lend(lent)
        return self._con.sql(f"SELECT * FROM ({sql}) AS dpsql_shape LIMIT 0").to_arrow_table().schema

    def _lend(self, lent: Mapping[str, ColumnTypes]) -> None:
        for name, columns in lent.items():
            self._con.execute(
                f"CREATE OR REPLACE TEMP VIEW {quote_name(name)} AS {write_empty_query(columns)}"
            )
            self._lent.add(name)

    def put_away(self) -> None:
        """Keeps it for another session on the same tables: to make one takes longer than most statements."""
        try:
            for name in self._lent:
                self._con.execute(f"DROP VIEW IF EXISTS {quote_name(name)}")
        except duckdb.Error:
            self.close()
            return
        self._lent.clear()
        _SPARE[self._tables] = self
        with contextlib.suppress(KeyError, StopIteration):
            while len(_SPARE) > _MAX_SPARE:
                _SPARE.pop(next(iter(_SPARE))).close()

    def close(self) -> None:
        self._con.close()


def _forget_replicas() -> None:
    """DuckDB's threads do not live on in a forked process; closing an instance would wait for them."""
    _LEFT.append(dict(_SPARE))
    _SPARE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_replicas)
