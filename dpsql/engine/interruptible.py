"""Queries that the stop button always ends.

DuckDB drops an interrupt that arrives between two of its steps, and its Python client reports one in different
ways. So the query runs in a thread of its own, while the caller waits and, once stopped, asks until it has ended.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import duckdb
import pyarrow as pa

FATAL_ERRORS = (duckdb.FatalException, duckdb.InternalException)
"""Errors that invalidate DuckDB's whole instance; the next query needs a new one."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Outcome:
    """The end of a query: a table, a stop, or a failure with its class and DuckDB's own words."""

    table: pa.Table | None = None
    stopped: bool = False
    failure: type[BaseException] | None = None
    message: str = ""

    @property
    def state(self) -> str:
        """The end in a word: ``done``, ``stopped``, ``full`` (for want of memory) or ``failed``."""
        if self.stopped or self.failure is None:
            return "stopped" if self.stopped else "done"
        return "full" if issubclass(self.failure, duckdb.OutOfMemoryException) else "failed"


def fetch_settings(con: duckdb.DuckDBPyConnection, *names: str) -> tuple[Any, ...]:
    """Read settings of a connection."""
    asked = ", ".join(f"current_setting('{name}')" for name in names)
    return con.execute(f"SELECT {asked}").fetchall()[0]


def configure(con: duckdb.DuckDBPyConnection, settings: Mapping[str, str]) -> None:
    """Make settings; one that this version of DuckDB does not know is left out."""
    for setting, value in settings.items():
        with contextlib.suppress(duckdb.Error):
            con.execute(f"SET {setting} = {value}")


def bind_query(
    con: duckdb.DuckDBPyConnection, sql: str, lent: Mapping[str, pa.Table]
) -> duckdb.DuckDBPyRelation:
    """Bind a query, with relations lent to it under their names."""
    for name, rows in lent.items():
        con.register(name, rows)
    return con.sql(sql)


def run_query(
    con: duckdb.DuckDBPyConnection, sql: str, lent: Mapping[str, pa.Table], stop: threading.Event,
    limit: float | None = None,
) -> Outcome:  # fmt: skip
    """Run a query, and return its end; never raises.

    The end of a query over private data may quote values, so it stays inside the engine.

    Args:
        con: where it runs.
        sql: the query.
        lent: relations that it reads besides the connection's.
        stop: the wish of another thread to end it; the stop button is seen here.
        limit: seconds after which it fails, like any other.
    """
    return run_interruptibly(lambda: bind_query(con, sql, lent).to_arrow_table(), con.interrupt, stop, limit)


def run_interruptibly(
    work: Callable[[], pa.Table | None], interrupt: Callable[[], object], stop: threading.Event,
    limit: float | None = None,
) -> Outcome:  # fmt: skip
    """Do work that gives a table in a thread of its own, as :func:`run_query`; `interrupt` asks it to end."""
    box: list[Outcome] = []
    done = threading.Event()
    stopped = late = sent = False

    def task() -> None:
        box.append(Outcome(stopped=True) if stopped else _do(work))

    worker: _Worker | None = None
    end = None if limit is None else time.monotonic() + limit
    while True:
        try:
            if not sent:
                worker = worker or (_IDLE.pop() if _IDLE else _Worker())
                worker.jobs.put((task, done))
                sent = True
            while not done.is_set():
                stopped = stopped or stop.is_set()
                late = late or (end is not None and time.monotonic() > end)
                if stopped or late:
                    interrupt()
                done.wait(_POLL_SECONDS)
            if stopped:
                return Outcome(stopped=True)
            return Outcome(failure=TimeoutError) if late else box[0]
        except KeyboardInterrupt:  # wherever in here the button finds us, the query is ours to end
            stopped = True


def _do(work: Callable[[], pa.Table | None]) -> Outcome:
    try:
        return Outcome(work())
    except BaseException as error:
        return Outcome(failure=type(error), message=str(error))


class _Worker:
    """A thread that does one job after another, since DuckDB takes a third longer in a new thread."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[tuple[Callable[[], None], threading.Event]] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="dpsql-query").start()

    def _run(self) -> None:
        while True:
            task, done = self.jobs.get()
            if done.is_set():
                continue  # the stop button came between two lines: it was sent twice
            task()
            del task  # nothing of a query is held while there is none
            kept = len(_IDLE) < _MAX_IDLE
            if kept:
                _IDLE.append(self)
            done.set()
            if not kept:
                return


_MAX_IDLE = 4
_IDLE: list[_Worker] = []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)  # threads do not live on in a forked process
