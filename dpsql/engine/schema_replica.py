"""An empty copy of the private schema: a place where exact queries are bound before anything is paid.

Planning a query on the data themselves would read them: DuckDB's planner looks at the least and the greatest
value of a column, and may fail over them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence

import duckdb
import pyarrow as pa

from dpsql.engine.interruptible import FATAL, configure
from dpsql.errors import BindError

Columns = Sequence[tuple[str, str]]
"""Names and SQL types."""


def quoted(name: str) -> str:
    """A name as SQL writes it, whatever it is.

    >>> quoted('a "b"')
    '"a ""b\"""'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Write a text as SQL has it.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def empty(columns: Iterable[tuple[str, str]]) -> str:
    """A query of no rows with these columns."""
    typed = ((name, "INTEGER" if kind.strip('"') == "NULL" else kind) for name, kind in columns)
    items = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in typed)
    return f"SELECT {items} WHERE FALSE"


_MOST = 4
"""Copies that are kept for sessions to come."""
_SPARE: dict[tuple[object, ...], Clone] = {}
_LEFT: list[dict[tuple[object, ...], Clone]] = []


class Clone:
    """A database with the same names and no rows.

    Args:
        tables: catalog, schema and name of each table, with its columns.
    """

    def __init__(self, tables: Iterable[tuple[tuple[str, str, str], Columns]]) -> None:
        self._tables = tuple((place, tuple(columns)) for place, columns in tables)
        self._con = self._open()
        self._fit: set[tuple[object, ...]] = set()
        """Queries that were bound already, with what was lent: no table of the clone ever changes."""
        self._lent: set[str] = set()

    @classmethod
    def of(cls, tables: Iterable[tuple[tuple[str, str, str], Columns]]) -> Clone:
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
                con.execute(f"ATTACH ':memory:' AS {quoted(catalog)}")
                attached.add(catalog)
            if catalog != "temp" and schema != "main":
                con.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(catalog)}.{quoted(schema)}")
            where = ".".join(map(quoted, (catalog, schema, name)))
            listed = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns)
            kind = "TEMP TABLE" if catalog == "temp" else "TABLE"
            con.execute(f"CREATE {kind} IF NOT EXISTS {where} ({listed})")
        con.execute("SET enable_external_access = false")
        con.execute("SET lock_configuration = true")
        return con

    def check(self, sql: str, lent: Mapping[str, Columns]) -> None:
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
            if isinstance(error, FATAL):
                self.close()
                self._con = self._open()
        if message:
            raise BindError("the engine can't run this.", hint=message)
        if len(self._fit) > 1000:
            self._fit.clear()
        self._fit.add(key)

    def shape(self, sql: str, lent: Mapping[str, Columns]) -> pa.Schema:
        """The Arrow types of a query's columns, as DuckDB gives them."""
        self._lend(lent)
        return self._con.sql(f"SELECT * FROM ({sql}) AS dpsql_shape LIMIT 0").to_arrow_table().schema

    def _lend(self, lent: Mapping[str, Columns]) -> None:
        for name, columns in lent.items():
            self._con.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS {empty(columns)}")
            self._lent.add(name)

    def put_away(self) -> None:
        """Keeps it for another session on the same tables: to make one takes longer than most statements."""
        try:
            for name in self._lent:
                self._con.execute(f"DROP VIEW IF EXISTS {quoted(name)}")
        except duckdb.Error:
            self.close()
            return
        self._lent.clear()
        _SPARE[self._tables] = self
        with contextlib.suppress(KeyError, StopIteration):
            while len(_SPARE) > _MOST:
                _SPARE.pop(next(iter(_SPARE))).close()

    def close(self) -> None:
        self._con.close()


def _in_child() -> None:
    """DuckDB's threads do not live on in a forked process; closing an instance would wait for them."""
    _LEFT.append(dict(_SPARE))
    _SPARE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
