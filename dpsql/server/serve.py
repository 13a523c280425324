"""Starting the server, and running it until SIGTERM.

When it is ready, it prints the address, and each link to the owner's page, as a line on standard output. The log goes to standard
error, one JSON object per line. systemd hears when the server is ready, reads policies again, and ends (``Type=notify``), and
that it still works (``WatchdogSec=``).
"""

from __future__ import annotations

import gc
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dpsql.errors import ServerError
from dpsql.server.connections import Tls, TlsFiles, read_place
from dpsql.server.event_log import AlertProgram, EventLog, name_place
from dpsql.server.flight.front import FlightListener, withhold_tracebacks
from dpsql.server.isolation import MemoryGroups, list_unconfined, protect_memory
from dpsql.server.postgres.connection import PostgresListener, read_postgres_place
from dpsql.server.served import ServedFiles, ServedPolicy, run_together
from dpsql.server.worker_process import select_environment

if TYPE_CHECKING:
    from dpsql.server.console.console import Console

PATIENCE_SECONDS = 10.0
"""Seconds that paid statements may take to reach their answer time when the server ends."""
SETTLE_SECONDS = 25.0
"""Seconds that the server waits at its end for all settlements, even if another process locks a ledger."""
_WATCH_SECONDS, _CONNECTION_SECONDS, _TIDY_SECONDS = 0.25, 1.0, 2.0
_LOOK_SECONDS = 0.5
_MOST_FILES = 65_536


def find_location(listen: str, tls: bool) -> str:
    """Return the address to listen at, as Flight writes it.

    Args:
        listen: ``unix:/path``, or ``host:port``.
        tls: whether there is a certificate.

    Raises:
        ServerError: the address is invalid, or needs TLS.

    >>> find_location("unix:/run/dpsql/dpsql.sock", False), find_location("127.0.0.1:0", False)
    ('grpc+unix:///run/dpsql/dpsql.sock', 'grpc+tcp://127.0.0.1:0')
    """
    place = read_place(listen, tls, "--listen unix:/run/dpsql/dpsql.sock, or --listen 127.0.0.1:31337")
    if not isinstance(place, Path):
        return f"grpc+{'tls' if tls else 'tcp'}://{place[0]}:{place[1]}"
    if tls:
        raise ServerError("a Unix socket has no TLS.", hint="leave --tls-cert and --tls-key out.")
    return f"grpc+unix://{place}"


def run_server(
    places: Sequence[ServedFiles],
    listen: str,
    certificate: tuple[Path, Path] | None = None,
    out: TextIO = sys.stdout,
    client_authority: Path | None = None,
    console: str | None = None,
    postgres: str | None = None,
    alert: Path | None = None,
    metrics: str | None = None,
    metrics_token: Path | None = None,
) -> int:
    """Serve policies until SIGTERM; return the exit status.

    Args:
        places: policies with their data and ledgers; the first part of a policy's file name is its catalog.
        listen: ``unix:/path``, or ``host:port``; port 0 takes a free one.
        certificate: the files of a TLS certificate and its key.
        out: gets one line, when the server is ready.
        client_authority: the file of the authority that signs analysts' certificates, which are then required.
        console: the address of the owner's page: ``host:port`` of this machine, or ``unix:/path``.
        postgres: ``host:port`` for clients of PostgreSQL's protocol, or ``unix:`` and a folder; None for no such port.
        alert: a program that is run for each alert, with the log's line as its input.
        metrics: the address of figures for Prometheus: ``host:port``, or ``unix:/path``.
        metrics_token: the file with the token that a scrape of a port needs.

    Raises:
        PolicyError, LedgerError, ServerError: the server can't start.
    """
    if client_authority is not None and certificate is None:
        raise ServerError(
            "client certificates need a certificate of the server.",
            hint="--tls-cert cert.pem --tls-key key.pem --tls-client-ca ca.pem",
        )
    files = None if certificate is None else TlsFiles(*certificate, client_authority)
    location = find_location(listen, files is not None)
    tls = None if files is None else files.read()
    postgres_place = None if postgres is None else read_postgres_place(postgres, tls is not None)
    if alert is not None and not os.access(alert, os.X_OK):
        raise ServerError(f"{alert} is no program that can be run.", hint=f"chmod +x {alert}")
    names = [place.policy.stem for place in places]
    if len(set(names)) < len(names):
        raise ServerError(
            "two policies have the same name.", hint="a policy's file name is its catalog: rename one."
        )
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.put(number))
    os.umask(0o077)
    protect_memory()
    _allow_files()
    withhold_tracebacks()
    program = None if alert is None else AlertProgram(alert.absolute(), select_environment())
    log, groups = EventLog(sys.stderr, program), MemoryGroups()
    served: list[ServedPolicy] = []
    page: Console | None = None
    try:
        for place in places:
            served.append(ServedPolicy(place, groups, log))
        for one in served:
            one.start()
        renewal = _Renewal(files, tls, log)
        if console is not None or metrics is not None:
            from dpsql.server.console.console import Console, MetricsPlace

            figures = None if metrics is None else MetricsPlace(metrics, metrics_token, files)
            page = Console(console, served, log, out, figures, renewal.find_ends)
        front = FlightListener(location, served, log, tls)
        port: PostgresListener | None = None
        try:
            _tell_start(served, log)
            if postgres_place is not None:
                port = PostgresListener(postgres_place, served, log, tls)
            gc.collect()
            gc.freeze()  # garbage collection of imported modules must not delay a reply at a public time
            print(f"listening on {front.location}", file=out, flush=True)
            if port is not None:
                print(f"listening on postgresql://{port.place}", file=out, flush=True)
            if page is not None:
                page.start()
            tell_systemd("READY=1")
            _run(served, signals, log, partial(renewal.read, front, port), page, front)
            tell_systemd("STOPPING=1")
            if port is not None:
                port.close()
            for one in served:
                one.give_up_reading()
            settled = run_together([partial(one.stop, PATIENCE_SECONDS) for one in served], SETTLE_SECONDS)
        finally:
            front.close(PATIENCE_SECONDS)
    finally:
        if page is not None:
            page.close()
        closed = run_together([one.close for one in served], PATIENCE_SECONDS)
    if not (settled and closed):
        why = "another process locks the ledger: running statements stay charged, and are settled when it is next opened"
        log.write("failure", why=why)
    log.write("end")
    return 0


def _start_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True, name=f"dpsql-{name}")
    thread.start()
    return thread


def _run(
    served: Sequence[ServedPolicy],
    signals: queue.SimpleQueue[int],
    log: EventLog,
    renew: Callable[[], None],
    page: Console | None,
    front: FlightListener,
) -> None:
    """Handle signals and periodic tasks until the server is to end."""
    ended = threading.Event()
    wanted: queue.SimpleQueue[None] = queue.SimpleQueue()
    periodic: list[tuple[str, float, list[Callable[[], None]]]] = [
        ("watch", _WATCH_SECONDS, [one.end_old_sessions for one in served]),
        ("connections", _CONNECTION_SECONDS, [front.look_at_connections]),
        ("tidy", _TIDY_SECONDS, [*(one.tidy for one in served), partial(tell_systemd, "WATCHDOG=1")]),
    ]
    watching = [
        _start_thread(name, partial(_repeat, seconds, tasks, ended, log)) for name, seconds, tasks in periodic
    ]
    _start_thread("reload", partial(_reload, served, wanted, log, renew))
    while _wait_for_signal(signals) == signal.SIGHUP:
        if page is not None:
            page.print_link()
        wanted.put(None)
    ended.set()
    for thread in watching:
        thread.join(PATIENCE_SECONDS)


def _reload(
    served: Sequence[ServedPolicy],
    wanted: queue.SimpleQueue[None],
    log: EventLog,
    renew: Callable[[], None],
) -> None:
    """Read certificates and policies again on request, in a thread, since it may take minutes and signals must still work."""
    while True:
        wanted.get()
        tell_systemd(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        _run_all([renew, *(one.reload for one in served)], log)
        tell_systemd("READY=1")


class _Renewal:
    """Exchanges certificates whose files have changed, on all ports."""

    def __init__(self, files: TlsFiles | None, tls: Tls | None, log: EventLog) -> None:
        self._files, self._tls, self._log = files, tls, log

    def find_ends(self) -> dict[str, datetime]:
        """Return when the present certificates expire."""
        return {} if self._tls is None else self._tls.list_ends()

    def read(self, front: FlightListener, port: PostgresListener | None) -> None:
        """Read the files again; keep the old certificates if they can't be used."""
        if self._files is None or self._tls is None:
            return
        try:
            new = self._files.read()
            if new.same_as(self._tls):
                return
            front.renew(new)
        except ServerError as error:
            self._log.write("certificate not taken", why=error.message)
            return
        if port is not None and port.tls is not None:
            port.tls = new
        self._tls = new
        self._log.write("certificate taken", why=f"it ends on {min(new.list_ends().values()):%Y-%m-%d}")


def tell_systemd(state: str) -> None:
    """Send systemd the server's state if it waits for it."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(state.encode(), f"\0{place[1:]}" if place.startswith("@") else place)


def _wait_for_signal(signals: queue.SimpleQueue[int]) -> int:
    """Return the next signal. Wait with a timeout, since a signal to another thread doesn't wake the main thread."""
    while True:
        with suppress(queue.Empty):
            return signals.get(timeout=_LOOK_SECONDS)


def _repeat(
    seconds: float, tasks: Sequence[Callable[[], None]], ended: threading.Event, log: EventLog
) -> None:
    """Run tasks again and again until the server is to end."""
    while not ended.wait(seconds):
        _run_all(tasks, log)


def _run_all(tasks: Sequence[Callable[[], None]], log: EventLog) -> None:
    """Run tasks one after another, and log those that fail."""
    for task in tasks:
        try:
            task()
        except Exception as error:
            log.write("failure", why=name_place(error))


def _allow_files() -> None:
    """Raise this process's limit of open files, since each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (min(most, _MOST_FILES) if most >= 0 else _MOST_FILES, most)
        )


def _tell_start(served: Sequence[ServedPolicy], log: EventLog) -> None:
    """Log the served policies and their analysts, and missing settings."""
    for one in served:
        policy = one.policy
        names = [record.name for record in one.tokens.list() if not record.has_expired()]
        log.write("serve", policy=one.name, tables=", ".join(policy.tables), analysts=", ".join(names))
        if not names:
            log.write("missing", policy=one.name, why="no analyst has a token: dpsql analyst add NAME")
        if not policy.server.answer_times:
            why = "answer_times = []: answers leave when they are ready, and their times reveal something about the data"
            log.write("missing", policy=one.name, why=why)
        readable = one.list_readable()
        if readable:
            more = f" and {len(readable) - 3} more" if len(readable) > 3 else ""
            why = f"other users can read the data: chmod 600 {' '.join(readable[:3])}{more}"
            log.write("missing", policy=one.name, why=why)
    for sentence in list_unconfined(served[0].held, served[0].policy.server.max_memory_mb):
        log.write("missing", why=sentence)
