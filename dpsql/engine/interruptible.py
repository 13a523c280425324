"""Running one query so that the stop button always works.

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
"""What invalidates DuckDB's whole instance: the next query needs a new one."""
_POLL = 0.1  # seconds between two looks at whether somebody wants the query stopped


@dataclass(frozen=True)
class Outcome:
    """What became of a query: a table, or stopped, or a failure (its class, and DuckDB's own words)."""

    table: pa.Table | None = None
    stopped: bool = False
    failure: type[BaseException] | None = None
    message: str = ""

    @property
    def state(self) -> str:
        """``done``, ``stopped``, ``full`` (it wanted more memory than it may have) or ``failed``."""
        if self.stopped or self.failure is None:
            return "stopped" if self.stopped else "done"
        return "full" if issubclass(self.failure, duckdb.OutOfMemoryException) else "failed"


def read_settings(con: duckdb.DuckDBPyConnection, *names: str) -> tuple[Any, ...]:
    """What a connection's settings are."""
    asked = ", ".join(f"current_setting('{name}')" for name in names)
    row: tuple[Any, ...] = con.execute(f"SELECT {asked}").fetchall()[0]
    return row


def configure(con: duckdb.DuckDBPyConnection, settings: Mapping[str, str]) -> None:
    """Makes these settings; one that this version of DuckDB does not know is left out."""
    for setting, value in settings.items():
        with contextlib.suppress(duckdb.Error):
            con.execute(f"SET {setting} = {value}")


def bind_query(
    con: duckdb.DuckDBPyConnection, sql: str, lent: Mapping[str, pa.Table]
) -> duckdb.DuckDBPyRelation:
    """A query, not yet run, with relations lent to it under their names."""
    for name, rows in lent.items():
        con.register(name, rows)
    return con.sql(sql)


def run_query(
    con: duckdb.DuckDBPyConnection, sql: str, lent: Mapping[str, pa.Table], stop: threading.Event,
    limit: float | None = None,
) -> Outcome:  # fmt: skip
    """Runs a query, with relations lent to it; never raises. ``stop`` is the wish of another thread; the stop button is
    seen here.

    The outcome of a query over private data may quote values: it stays inside the engine. One that took longer than
    ``limit`` seconds failed, like any other.
    """
    return run_interruptibly(lambda: bind_query(con, sql, lent).to_arrow_table(), con.interrupt, stop, limit)


def run_interruptibly(
    work: Callable[[], pa.Table | None], interrupt: Callable[[], object], stop: threading.Event,
    limit: float | None = None,
) -> Outcome:  # fmt: skip
    """Does what gives a table in a thread of its own, as :func:`run`; ``interrupt`` asks it to end."""
    box: list[Outcome] = []
    done = threading.Event()
    stopped = late = sent = False

    def task() -> None:
        box.append(Outcome(stopped=True) if stopped else _outcome(work))

    worker: _Worker | None = None
    end = None if limit is None else time.monotonic() + limit
    while True:
        try:
            if not sent:
                worker = worker or _worker()
                worker.jobs.put((task, done))
                sent = True
            while not done.is_set():
                stopped = stopped or stop.is_set()
                late = late or (end is not None and time.monotonic() > end)
                if stopped or late:
                    interrupt()
                done.wait(_POLL)
            if stopped:
                return Outcome(stopped=True)
            return Outcome(failure=TimeoutError) if late else box[0]
        except KeyboardInterrupt:  # wherever in here the button finds us, the query is ours to end
            stopped = True


def _outcome(work: Callable[[], pa.Table | None]) -> Outcome:
    try:
        return Outcome(work())
    except BaseException as error:
        return Outcome(failure=type(error), message=str(error))


class _Worker:
    """A thread that does one job after another: DuckDB takes a third longer in a thread that is new to it."""

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
            kept = len(_IDLE) < _MOST
            if kept:
                _IDLE.append(self)
            done.set()
            if not kept:
                return


_MOST = 4
_IDLE: list[_Worker] = []


def _worker() -> _Worker:
    try:
        return _IDLE.pop()
    except IndexError:
        return _Worker()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)  # threads do not live on in a forked process
