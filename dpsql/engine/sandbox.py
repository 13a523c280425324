"""DuckDB's own parser, apart from any data: the tree of a text, for the second lock to read.

A database of its own for queries over lent relations alone: what breaks it breaks nothing else.

The query of a subsample block is the analyst's, and may do what makes DuckDB give up its whole instance. On the private
connection that would be seen by every later block and statement, so one unit's row would speak for all of them. Here
the next block finds a new instance.

It has one thread: with more, which rows come first (and in which order doubles are added) is decided by how work is cut,
which rows of other blocks may do.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping

import duckdb
import pyarrow as pa

from dpsql.engine.interruptible import Outcome, configure, run

_LOCAL = threading.local()


def serialise(sql: str) -> str:
    """Return the tree of a text in JSON, as DuckDB's parser makes it; an object that says ``error`` where it makes none.

    It runs in a database in memory that has nothing in it, so no name of the owner's can change what is read.
    """
    con = getattr(_LOCAL, "con", None)
    if con is None:
        con = _LOCAL.con = duckdb.connect(config={"threads": 1})
    found = con.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()
    assert found is not None
    return str(found[0])


class Apart:
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

        outcome = run(con, sql, lent, stop, limit)
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
