"""An empty copy of the private schema: a place where exact queries are bound before anything is paid.

Planning a query on the data themselves would read them: DuckDB's planner looks at the least and the greatest
value of a column, and may fail over them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence

import duckdb
import pyarrow as pa

from dpsql.errors import BindError

Columns = Sequence[tuple[str, str]]
"""Names and SQL types."""


def quoted(name: str) -> str:
    """A name as SQL writes it, whatever it is.

    >>> quoted('a "b"')
    '"a ""b\"""'
    """
    return '"' + name.replace('"', '""') + '"'


def empty(columns: Iterable[tuple[str, str]]) -> str:
    """A query of no rows with these columns."""
    items = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in columns)
    return f"SELECT {items} WHERE FALSE"


class Clone:
    """A database with the same names and no rows.

    Args:
        tables: catalog, schema and name of each table, with its columns.
    """

    def __init__(self, tables: Iterable[tuple[tuple[str, str, str], Columns]]) -> None:
        config: dict[str, str | bool | int | float | list[str]] = {"python_enable_replacements": "false"}
        self._con = duckdb.connect(":memory:", config=config)
        with contextlib.suppress(
            duckdb.Error
        ):  # in a kernel without ipywidgets there is no bar to switch off
            self._con.execute("SET enable_progress_bar = false")
        attached = {"memory", "temp"}
        for (catalog, schema, name), columns in tables:
            if catalog not in attached:
                self._con.execute(f"ATTACH ':memory:' AS {quoted(catalog)}")
                attached.add(catalog)
            if catalog != "temp" and schema != "main":
                self._con.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(catalog)}.{quoted(schema)}")
            where = ".".join(map(quoted, (catalog, schema, name)))
            listed = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns)
            kind = "TEMP TABLE" if catalog == "temp" else "TABLE"
            self._con.execute(f"CREATE {kind} IF NOT EXISTS {where} ({listed})")
        self._con.execute("SET enable_external_access = false")
        self._con.execute("SET lock_configuration = true")
        self._fit: set[tuple[object, ...]] = set()
        """Queries that were bound already, with what was lent: no table of the clone ever changes."""

    def check(self, sql: str, lent: Mapping[str, Columns]) -> None:
        """Binds a query, with public relations lent to it under their names.

        Raises:
            BindError: it would fail whatever the data are.
        """
        key = (sql, *sorted((name, *map(tuple, columns)) for name, columns in lent.items()))
        if key in self._fit:
            return
        message = ""
        for name, columns in lent.items():
            self._con.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS {empty(columns)}")
        try:
            self._con.execute(f"PREPARE dpsql_check AS {sql}")
        except duckdb.Error as error:
            message = str(error).split("\n")[0]
        if message:
            raise BindError("the engine can't run this.", hint=message)
        if len(self._fit) > 1000:
            self._fit.clear()
        self._fit.add(key)

    def shape(self, sql: str, lent: Mapping[str, Columns]) -> pa.Schema:
        """The Arrow types of a query's columns, as DuckDB gives them."""
        for name, columns in lent.items():
            self._con.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS {empty(columns)}")
        return self._con.sql(f"SELECT * FROM ({sql}) AS dpsql_shape LIMIT 0").to_arrow_table().schema

    def close(self) -> None:
        self._con.close()
