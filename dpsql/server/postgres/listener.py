"""The port where PostgreSQL's clients arrive: a thread for each of them, and their requests to cancel.

Clients that have not proved to have a token yet are few and have little time: they keep nobody out
(:mod:`dpsql.server.arrivals`).
"""

from __future__ import annotations

import secrets
import socket
import ssl
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from dpsql.errors import ServerError
from dpsql.server.arrivals import LOGIN_SECONDS, Arrivals, log_dropped, write_peer
from dpsql.server.event_log import EventLog, name_place
from dpsql.server.listening import is_loopback
from dpsql.server.postgres import messages, reports
from dpsql.server.postgres.authentication import ScramError, digest_certificate
from dpsql.server.postgres.connection import FAILED, PostgresConnection
from dpsql.server.postgres.login import NotLetIn, Secured, log_in, read_first
from dpsql.server.postgres.messages import ProtocolError
from dpsql.server.postgres.reports import write_problem
from dpsql.server.postgres.stream import Gone, Stream
from dpsql.server.served import ServedPolicy

MAX_CLIENTS = 500
"""Connections that were let in."""
_BACKLOG = 128


def find_postgres_place(listen: str, tls: bool) -> tuple[str, int]:
    """Return the host and the port for clients of PostgreSQL's protocol.

    Args:
        listen: ``host:port``.
        tls: whether there is a certificate.

    Raises:
        ServerError: it is none, or others could read along.

    >>> find_postgres_place("127.0.0.1:5432", False)
    ('127.0.0.1', 5432)
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ServerError(f"{listen!r} is no place to listen.", hint="--pg 127.0.0.1:5432")
    if not tls and not is_loopback(host):
        raise ServerError(
            "beyond this machine a server speaks TLS alone: answers could be read on the way.",
            hint="--tls-cert cert.pem --tls-key key.pem",
        )
    return host, int(port)


def secure(certificate: Path, key: Path, client_authority: bytes | None = None) -> Secured:
    """Make the TLS of the listener.

    Args:
        certificate: the file of the server's certificate, PEM.
        key: the file of its key.
        client_authority: certificates, in PEM, of those who sign analysts' own; without one of these nobody is let in then.

    Raises:
        ServerError: the files do not fit.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
        first = certificate.read_text().partition("-----BEGIN CERTIFICATE-----")
        der = ssl.PEM_cert_to_DER_cert(
            f"{first[1]}{first[2].partition('-----END')[0]}-----END CERTIFICATE-----\n"
        )
        if client_authority is not None:
            context.load_verify_locations(cadata=client_authority.decode("ascii", "replace"))
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError):
        raise ServerError(f"{certificate} and {key} are no certificate and its key.") from None
    return Secured(context, digest_certificate(der), client_authority is not None)


class PostgresListener:
    """A port that speaks PostgreSQL's protocol.

    Args:
        host, port: where; port 0 takes a free one.
        served: the policies.
        log: where events are written.
        secured: TLS, without which nobody is let in then; None on loopback alone.

    Raises:
        ServerError: nothing can listen there.
    """

    def __init__(
        self, host: str, port: int, served: Sequence[ServedPolicy], log: EventLog, secured: Secured | None
    ) -> None:
        self._served, self._log, self._secured = served, log, secured
        self._lock = threading.Lock()
        self._open: dict[int, PostgresConnection] = {}
        self._streams: set[Stream] = set()
        self._arrivals = Arrivals(partial(log_dropped, log), "PostgreSQL")
        self._closed = False
        name = host.strip("[]")
        family = socket.AF_INET6 if ":" in name else socket.AF_INET
        try:
            self._socket = socket.create_server((name, port), family=family, backlog=_BACKLOG)
        except (OSError, OverflowError):
            raise ServerError("nothing can listen there.", hint=f"is {host}:{port} in use?") from None
        self.place = f"{host}:{self._socket.getsockname()[1]}"
        """The address that it listens at, ``host:port``."""
        threading.Thread(target=self._accept, daemon=True, name="dpsql-postgres").start()

    def close(self) -> None:
        """Let nobody in any more, and end all connections."""
        with self._lock:
            self._closed = True
            connections, streams = list(self._open.values()), list(self._streams)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._socket.close()
        for connection in connections:
            connection.end("the server ends.")
        running = {connection.stream for connection in connections}
        for stream in streams:
            if stream not in running:
                stream.shut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                sock, address = self._socket.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.05)  # no file is left for it, say
                continue
            with self._lock:
                full = len(self._open) >= MAX_CLIENTS or self._closed
            if full:
                _refuse(sock)
                continue
            stream, peer = Stream(sock, LOGIN_SECONDS), write_peer(address)
            self._arrivals.add(stream, peer, stream.shut)
            task = threading.Thread(target=self._serve, args=(sock, stream, peer), daemon=True)
            try:
                task.start()
            except RuntimeError:  # no thread is left for it
                self._arrivals.let_in(stream)
                _refuse(sock)

    def _serve(self, sock: socket.socket, stream: Stream, peer: str) -> None:
        """Serve one client, from its first byte to its last."""
        with self._lock:
            self._streams.add(stream)
        try:
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection = self._let_in(stream, peer)
            if connection is not None:
                self._arrivals.let_in(stream)
                self._run(connection)
        except Gone:
            pass
        except Exception as error:
            self._log.write("failure", why=name_place(error))
            with suppress(Gone):
                stream.send(write_problem("FATAL", reports.INTERNAL, FAILED))
        finally:
            self._arrivals.leave(stream)
            with self._lock:
                self._streams.discard(stream)
            stream.close()

    def _let_in(self, stream: Stream, peer: str) -> PostgresConnection | None:
        """Return a connection of an analyst; None where the client only came to cancel something, or was not let in."""
        try:
            code, body, _ = read_first(stream, self._secured)
            if code == messages.CANCEL_REQUEST:
                self._cancel(body)
                return None
            opened = log_in(stream, body, code, self._served, self._secured, peer, self._log)
        except NotLetIn as refused:
            stream.send(write_problem("FATAL", refused.state, refused.sentence, refused.hint))
            return None
        except (ProtocolError, ScramError) as error:
            said = str(error) or "the password exchange breaks the rules."
            stream.send(write_problem("FATAL", reports.PROTOCOL_VIOLATION, said))
            return None
        with self._lock:
            number = secrets.randbelow((1 << 31) - 1) + 1
            while number in self._open:
                number = secrets.randbelow((1 << 31) - 1) + 1
            key = (number, secrets.token_bytes(4))
            connection = self._open[number] = PostgresConnection(stream, opened, key, self._log)
        right = opened.right
        known = {"analyst": right.desk.analyst, "policy": right.served.name}
        self._log.write("open", session=opened.record.log_name, **known)
        return connection

    def _run(self, connection: PostgresConnection) -> None:
        try:
            connection.run()
        finally:
            with self._lock:
                self._open.pop(connection.number, None)
            connection.leave()

    def _cancel(self, body: bytes) -> None:
        """Stop what a connection asks, for who names its number and its secret. Nothing is said of whether that was right."""
        if len(body) != 8:
            return
        (number,) = struct.unpack(">i", body[:4])
        with self._lock:
            connection = self._open.get(number)
        if connection is not None:
            connection.cancel(body[4:])


def listen_postgres(
    place: tuple[str, int],
    served: Sequence[ServedPolicy],
    log: EventLog,
    certificate: tuple[Path, Path] | None,
    authority: bytes | None,
) -> PostgresListener:
    """Listen for clients of PostgreSQL's protocol, and tell the owner whose token is too old for them.

    Args:
        place: host and port.
        served: the policies.
        log: where events are written.
        certificate: the files of a TLS certificate and its key.
        authority: certificates, in PEM, of those who sign analysts' own; then nobody is let in without one.

    Raises:
        ServerError: nothing can listen there, or the certificate can't be used.
    """
    listener = PostgresListener(
        *place, served, log, None if certificate is None else secure(*certificate, authority)
    )
    for one in served:
        old = [record.name for record in one.tokens.list() if not record.scram and not record.has_expired()]
        if old:
            why = "tokens from before the PostgreSQL port do not open it: dpsql analyst rotate NAME"
            log.write("missing", policy=one.name, analysts=", ".join(old), why=why)
    return listener


def _refuse(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.settimeout(0.1)
        sock.sendall(write_problem("FATAL", reports.TOO_MANY, "too many connections; come back later."))
    sock.close()
