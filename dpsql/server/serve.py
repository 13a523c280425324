"""Start a server, tell what it serves and to whom, and what is missing; then run it until SIGTERM.

One line on standard output says where it listens, once it is ready, and one more holds each link to the owner's page; the log
goes to standard error, one JSON object a line.
"""

from __future__ import annotations

import gc
import os
import queue
import resource
import signal
import ssl
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from dpsql.client.wire import waiting_in_place
from dpsql.errors import ServerError
from dpsql.server.event_log import EventLog, name_place
from dpsql.server.front import Front, withhold_tracebacks
from dpsql.server.isolation import MemoryGroups, list_unconfined, protect_memory
from dpsql.server.listening import clear_socket, is_loopback
from dpsql.server.postgres.connection import find_postgres_place, listen_postgres
from dpsql.server.served import ServedFiles, ServedPolicy, run_together

if TYPE_CHECKING:
    from dpsql.server.console import Console

PATIENCE_SECONDS = 10.0
"""Seconds that statements which have paid may take to reach their answer time when the server ends."""
SETTLE_SECONDS = 25.0
"""Seconds that the end of the server waits for all of them to be settled, whoever holds their ledgers."""
_WATCH_SECONDS, _TIDY_STEPS = 0.25, 8
_LOOK_SECONDS = 0.5
_CONNECTION_SECONDS = 1.0
_MOST_FILES = 65_536
_SOCKET_MASK = 0o117
"""The owner and the group of the socket's folder may use it."""


def find_location(listen: str, tls: bool) -> str:
    """Return where to listen as Flight writes it.

    Args:
        listen: ``unix:/path``, or ``host:port``.
        tls: whether there is a certificate.

    Raises:
        ServerError: it is neither, or others could read along.

    >>> find_location("unix:/run/dpsql/dpsql.sock", False), find_location("127.0.0.1:0", False)
    ('grpc+unix:///run/dpsql/dpsql.sock', 'grpc+tcp://127.0.0.1:0')
    """
    if listen.startswith("unix:"):
        path = listen.removeprefix("unix:")
        if not path.startswith("/"):
            path = str(Path(path).absolute())
        if tls:
            raise ServerError(
                "a socket on this machine has no TLS.", hint="leave --tls-cert and --tls-key out."
            )
        return f"grpc+unix://{path}"
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ServerError(
            f"{listen!r} is no place to listen.",
            hint="--listen unix:/run/dpsql/dpsql.sock, or --listen 127.0.0.1:31337",
        )
    if not tls and not is_loopback(host):
        raise ServerError(
            "beyond this machine a server speaks TLS alone: tokens and answers could be read on the way.",
            hint="--tls-cert cert.pem --tls-key key.pem",
        )
    return f"grpc+{'tls' if tls else 'tcp'}://{host}:{port}"


def run_server(
    places: Sequence[ServedFiles],
    listen: str,
    certificate: tuple[Path, Path] | None = None,
    out: TextIO = sys.stdout,
    err: TextIO = sys.stderr,
    client_authority: Path | None = None,
    console: str | None = None,
    postgres: str | None = None,
) -> int:
    """Serve policies until SIGTERM; return the exit status.

    Args:
        places: policies with their data and ledgers; the first part of a policy's file name is its catalog.
        listen: ``unix:/path``, or ``host:port``; port 0 takes a free one.
        certificate: the files of a TLS certificate and its key.
        out: gets one line, when the server is ready.
        err: gets the log.
        client_authority: the file of the authority that signs analysts' certificates; then nobody is let in without one.
        console: where the owner's page listens: ``host:port`` of this machine, or ``unix:/path``.
        postgres: ``host:port`` for clients of PostgreSQL's protocol; None where there is no such port.

    Raises:
        PolicyError, LedgerError, ServerError: it can't start, and says why.
    """
    location = find_location(listen, certificate is not None)
    if client_authority is not None and certificate is None:
        raise ServerError(
            "certificates of analysts are for a server that has one itself.",
            hint="--tls-cert cert.pem --tls-key key.pem --tls-client-ca ca.pem",
        )
    certificates = [_read_certificate(*certificate)] if certificate is not None else None
    authority = None if client_authority is None else _read_authority(client_authority)
    postgres_place = None if postgres is None else find_postgres_place(postgres, certificate is not None)
    names = [place.policy.stem for place in places]
    if len(set(names)) < len(names):
        raise ServerError(
            "two policies have one name.", hint="a policy's file name is its catalog: rename one."
        )
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.put(number))
    os.umask(0o077)
    protect_memory()
    _allow_files()
    withhold_tracebacks()
    log, groups = EventLog(err), MemoryGroups()
    served: list[ServedPolicy] = []
    page: Console | None = None
    try:
        for place in places:
            served.append(ServedPolicy(place, groups, log))
        for one in served:
            one.start()
        if console is not None:
            from dpsql.server.console import Console

            page = Console(console, served, log, out)
        with _Listening(location, served, log, certificates, authority) as front:
            _tell_start(served, log)
            port = None
            if postgres_place is not None:
                port = listen_postgres(postgres_place, served, log, certificate, authority)
            scheme, _, rest = location.partition("://")
            where = rest if scheme == "grpc+unix" else f"{rest.rpartition(':')[0]}:{front.port}"
            gc.collect()
            gc.freeze()  # a reply at a public time is not held up by a look through what was imported
            print(f"listening on {scheme}://{where}", file=out, flush=True)
            if port is not None:
                print(f"listening on postgresql://{port.place}", file=out, flush=True)
            if page is not None:
                page.start()
            _run(served, signals, log, certificates is not None, page, front)
            if port is not None:
                port.close()
            for one in served:
                one.give_up_reading()
            settled = run_together([partial(one.stop, PATIENCE_SECONDS) for one in served], SETTLE_SECONDS)
    finally:
        if page is not None:
            page.close()
        closed = run_together([one.close for one in served], PATIENCE_SECONDS)
    if not (settled and closed):
        said = "the ledger is held by another process: what runs stays charged, and is settled when the ledger is opened"
        log.write("failure", why=said)
    log.write("end")
    return 0


class _Listening:
    """The front while it listens, in a ``with`` block."""

    def __init__(
        self,
        location: str,
        served: Sequence[ServedPolicy],
        log: EventLog,
        certificates: Sequence[tuple[bytes, bytes]] | None,
        authority: bytes | None,
    ) -> None:
        path = location.removeprefix("grpc+unix://")
        self._socket = Path(path) if path != location else None
        if self._socket is not None:
            clear_socket(self._socket)
        mask = os.umask(_SOCKET_MASK)
        try:
            with waiting_in_place():
                self._front = Front(location, served, log, certificates, authority)
        except Exception:
            raise ServerError(
                "nothing can listen there.", hint="is the address in use, or the folder missing?"
            ) from None
        finally:
            os.umask(mask)

    def __enter__(self) -> Front:
        return self._front

    def __exit__(self, *exc: object) -> None:
        ending = threading.Thread(target=self._front.shutdown, daemon=True)
        ending.start()
        ending.join(PATIENCE_SECONDS)
        if self._socket is not None:
            with suppress(OSError):
                self._socket.unlink()


def _run(
    served: Sequence[ServedPolicy],
    signals: queue.SimpleQueue[int],
    log: EventLog,
    tls: bool,
    page: Console | None,
    front: Front,
) -> None:
    """Do what signals and time ask for, until the server is to end."""
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(served, ended, log), daemon=True, name="dpsql-watch")
    watching.start()
    looking = threading.Thread(target=_look, args=(front, ended, log), daemon=True, name="dpsql-connections")
    looking.start()
    wanted: queue.SimpleQueue[None] = queue.SimpleQueue()
    reading = threading.Thread(target=_reload, args=(served, wanted, log), daemon=True, name="dpsql-reload")
    reading.start()
    while _wait_for_signal(signals) == signal.SIGHUP:
        if tls:
            log.write("reload", why="certificates are read at the start: restart the server for new ones")
        if page is not None:
            page.print_link()
        wanted.put(None)
    ended.set()
    watching.join(PATIENCE_SECONDS)


def _reload(served: Sequence[ServedPolicy], wanted: queue.SimpleQueue[None], log: EventLog) -> None:
    """Read the policies again whenever that is wanted: it may take minutes, in which a signal is heard all the same."""
    while True:
        wanted.get()
        for one in served:
            try:
                one.reload()
            except Exception as error:
                log.write("failure", policy=one.name, why=name_place(error))


def _wait_for_signal(signals: queue.SimpleQueue[int]) -> int:
    """Return the next signal. A handler runs in the main thread, which a signal to another thread does not wake: so it looks."""
    while True:
        with suppress(queue.Empty):
            return signals.get(timeout=_LOOK_SECONDS)


def _watch(served: Sequence[ServedPolicy], ended: threading.Event, log: EventLog) -> None:
    """End sessions whose token was replaced, and tidy up."""
    step = 0
    while not ended.wait(_WATCH_SECONDS):
        step += 1
        for one in served:
            try:
                one.end_old_sessions()
                if step % _TIDY_STEPS == 0:
                    one.tidy()
            except Exception as error:
                log.write("failure", policy=one.name, why=type(error).__name__)


def _look(front: Front, ended: threading.Event, log: EventLog) -> None:
    """Look at the connections that have proved nothing yet, once a second."""
    while not ended.wait(_CONNECTION_SECONDS):
        try:
            front.look_at_connections()
        except Exception as error:
            log.write("failure", why=name_place(error))


def _allow_files() -> None:
    """Let this process open as many files as it may: each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (min(most, _MOST_FILES) if most >= 0 else _MOST_FILES, most)
        )


def _tell_start(served: Sequence[ServedPolicy], log: EventLog) -> None:
    """Say what is served and to whom, and what is missing."""
    for one in served:
        policy = one.policy
        names = [record.name for record in one.tokens.list() if not record.has_expired()]
        log.write("serve", policy=one.name, tables=", ".join(policy.tables), analysts=", ".join(names))
        if not names:
            log.write("missing", policy=one.name, why="no analyst has a token: dpsql analyst add NAME")
        if not policy.server.answer_times:
            said = "answer_times = []: answers leave when they are ready, and their times tell about the data"
            log.write("missing", policy=one.name, why=said)
    for sentence in list_unconfined(served[0].held):
        log.write("missing", why=sentence)


def _read_certificate(certificate: Path, key: Path) -> tuple[bytes, bytes]:
    """Read the files of a certificate and its key.

    Raises:
        ServerError: one can't be read.
    """
    try:
        return certificate.read_bytes(), key.read_bytes()
    except OSError as error:
        raise ServerError(f"the file {error.filename} can't be read: {error.strerror}.") from None


def _read_authority(file: Path) -> bytes:
    """Read the file of the authority that signs analysts' certificates.

    Raises:
        ServerError: it can't be read, or holds no certificate.
    """
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ServerError(f"the file {file} can't be read: {error.strerror}.") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise ServerError(
            f"{file} holds no certificate in PEM.", hint="it begins with -----BEGIN CERTIFICATE-----."
        ) from None
    return text
