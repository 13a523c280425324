"""One PostgreSQL client that was let in: its prepared statements and portals, and its questions to the analyst's desk.

    Parse -> Bind -> (Describe) -> Execute -> ... -> Sync       or       Query

The front does not read what a client asks: texts and values go to the worker as they came, and its answer's bytes to the client.
After an error everything up to the next Sync is skipped, as the protocol has it. Statements are described by the worker in a call
that can pay nothing; a portal that is described and executed in one go is asked once.

The port where PostgreSQL's clients arrive: a thread for each of them, and their requests to cancel.

Clients that have not proved to have a token yet are few and have little time: they keep nobody out
(:mod:`dpsql.server.arrivals`).
"""

from __future__ import annotations

import base64
import hmac
import secrets
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dpsql.client.wire import Message, WireError, encode, get_field, read_error, unpack_messages
from dpsql.errors import Error, ServerError
from dpsql.server.arrivals import LOGIN_SECONDS, Arrivals, log_dropped, write_peer
from dpsql.server.event_log import EventLog, name_place
from dpsql.server.lapses import Refused, RightError
from dpsql.server.listening import is_loopback
from dpsql.server.postgres import messages, reports
from dpsql.server.postgres.authentication import ScramError, digest_certificate
from dpsql.server.postgres.commands import FIXED, REPORTED, SERVER_VERSION
from dpsql.server.postgres.login import LoggedIn, NotLetIn, Secured, log_in, read_first
from dpsql.server.postgres.messages import (
    BindMessage,
    Gone,
    ParseMessage,
    ProtocolError,
    Stream,
    TooLong,
    write_complete,
    write_ready,
    write_status,
)
from dpsql.server.postgres.reports import (
    RefusedMessage,
    refuse_right,
    write_bad_parameter,
    write_own_error,
    write_problem,
)
from dpsql.server.served import ServedPolicy

MAX_PREPARED = 2000
"""Prepared statements of a connection."""
MAX_PREPARED_BYTES = 8 << 20
"""Bytes of their texts, all together."""
MAX_PORTALS = 100
MAX_PORTAL_BYTES = 64 << 20
"""Bytes of values, and of rows still to be fetched, that portals hold all together."""


@dataclass
class PreparedStatement:
    """A prepared statement.

    ``fields`` are its columns and ``told_kinds`` the types of its parameters, once the client was told of them with
    ``described``.
    """

    text: str
    kinds: tuple[int, ...]
    fields: list[Any] | None = None
    described: bytes | None = None
    told_kinds: list[int] = field(default_factory=list)


@dataclass
class Portal:
    """A statement with its values; and what is left of its rows, once it was executed.

    ``describing`` says that the client waits for its columns; ``tail`` is what follows its last row.
    """

    statement: PreparedStatement
    bound: BindMessage
    describing: bool = False
    rows: bytes | None = None
    at: int = 0
    tail: list[bytes] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The bytes that it holds."""
        return sum(len(value or b"") for value in self.bound.values) + len(self.rows or b"")


class Portals:
    """Statements and portals by their names. The empty name is taken again and again; any other is taken once."""

    def __init__(self) -> None:
        self._statements: dict[str, PreparedStatement] = {}
        self._portals: dict[str, Portal] = {}

    def prepare(self, parsed: ParseMessage) -> None:
        """Keep a statement.

        Raises:
            ProtocolError: its name is taken. RefusedMessage: there are too many.
        """
        if parsed.name and parsed.name in self._statements:
            raise ProtocolError("there is a prepared statement of this name already.")
        held = sum(len(statement.text) for statement in self._statements.values())
        if len(self._statements) >= MAX_PREPARED or held + len(parsed.text) > MAX_PREPARED_BYTES:
            said = write_problem("ERROR", reports.TOO_MANY, "too many prepared statements.", "DEALLOCATE ALL")
            raise RefusedMessage(said)
        self._statements[parsed.name] = PreparedStatement(parsed.text, parsed.kinds)

    def find_statement(self, name: str) -> PreparedStatement:
        """Return a statement.

        Raises:
            RefusedMessage: there is none of that name.
        """
        statement = self._statements.get(name)
        if statement is None:
            said = "there is no such prepared statement."
            raise RefusedMessage(write_problem("ERROR", reports.UNKNOWN_STATEMENT, said))
        return statement

    def bind(self, bound: BindMessage) -> None:
        """Keep a portal.

        Raises:
            ProtocolError: its name is taken. RefusedMessage: there is no such statement, or portals hold too much.
        """
        statement = self.find_statement(bound.statement)
        if bound.portal and bound.portal in self._portals:
            raise ProtocolError("there is a portal of this name already.")
        self._portals[bound.portal] = Portal(statement, bound)
        self.check_size()

    def find_portal(self, name: str) -> Portal:
        """Return a portal.

        Raises:
            RefusedMessage: there is none of that name.
        """
        portal = self._portals.get(name)
        if portal is None:
            raise RefusedMessage(write_problem("ERROR", reports.UNKNOWN_PORTAL, "there is no such portal."))
        return portal

    def check_size(self) -> None:
        """End all portals where they hold too much.

        Raises:
            RefusedMessage: they did.
        """
        if (
            len(self._portals) > MAX_PORTALS
            or sum(portal.size for portal in self._portals.values()) > MAX_PORTAL_BYTES
        ):
            self._portals.clear()
            hint = "fetch all rows at once: what was paid is stored, and free."
            raise RefusedMessage(write_problem("ERROR", reports.TOO_MANY, "portals hold too much.", hint))

    def list_describing(self) -> list[Portal]:
        """Return the portals whose columns the client waits for."""
        return [portal for portal in self._portals.values() if portal.describing]

    def close(self, kind: str, name: str) -> None:
        """Forget a statement (``S``) or a portal (``P``); where there is none, nothing happens."""
        held: dict[str, Any] = self._statements if kind == "S" else self._portals
        held.pop(name, None)

    def end_portals(self) -> None:
        """Forget all portals, as the end of a transaction does."""
        self._portals.clear()

    def forget(self, name: str) -> None:
        """Forget a prepared statement; ``*`` stands for all, and an empty name for none."""
        if name == "*":
            self._statements.clear()
        elif name:
            self._statements.pop(name, None)


FAILED = "the server could not do this, for a reason that it keeps to itself."
_ENDED = "this session has ended; connect again."

_COMMANDS = {
    "BEGIN": ("BEGIN", "T"), "BEGIN TRANSACTION": ("BEGIN", "T"), "BEGIN READ ONLY": ("BEGIN", "T"),
    "START TRANSACTION": ("START TRANSACTION", "T"), "COMMIT": ("COMMIT", "I"), "END": ("COMMIT", "I"),
    "ROLLBACK": ("ROLLBACK", "I"), "COMMIT TRANSACTION": ("COMMIT", "I"), "ROLLBACK TRANSACTION": ("ROLLBACK", "I"),
}  # fmt: skip
"""Whole texts that tools send around each statement: their tags, and whether a transaction block is open then."""


_LETTING_GO = frozenset({b"C", b"H", b"S"})
"""Messages that ask nothing: a statement is forgotten, what waits is sent, and a client is told that it may go on."""


class PostgresConnection:
    """A client's connection, from ReadyForQuery to its end. Its own thread runs it; any other may stop it.

    Args:
        stream: to the client.
        opened: who it is.
        key: the number and the secret that a request to cancel names.
        log: where events are written.
    """

    def __init__(self, stream: Stream, opened: LoggedIn, key: tuple[int, bytes], log: EventLog) -> None:
        self.stream, self._opened, self._key, self._log = stream, opened, key, log
        self._stream = stream
        self.number = key[0]
        self._right, self._desk, self._record = opened.right, opened.right.desk, opened.record
        self._held = Portals()
        self._transaction = "I"
        self._skipping = False
        self._ending = ""
        rules = self._desk.edition.policy.server
        self._idle = 60.0 * rules.max_idle_minutes
        limits = self._desk.edition.limits
        most = limits.statement_bytes + limits.parameter_bytes + 4 * (1 << 14)
        self._sizes = dict.fromkeys((b"Q", b"P", b"B"), most) | dict.fromkeys((b"D", b"E", b"C"), 1 << 12)
        self._sizes |= dict.fromkeys((b"H", b"S", b"X"), 1 << 4) | {
            b"F": 1 << 16,
            b"d": 1 << 16,
            b"c": 1 << 4,
            b"f": 1 << 12,
        }

    # -- its life ----------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Answer messages until the client or the server ends it."""
        stream = self._stream
        self._greet()
        stream.check = self._check
        try:
            while True:
                if not stream.has_more:
                    stream.flush()
                stream.end = time.monotonic() + self._idle
                if not self._take():
                    return
        except RefusedMessage as failed:
            stream.send(failed.report)
        except Gone:
            if self._ending:
                stream.send(write_problem("FATAL", reports.SHUTDOWN, self._ending))

    def end(self, why: str) -> None:
        """Let the connection end once it is asked, and wake it."""
        self._ending = why
        self._stream.shut(both=False)

    def cancel(self, secret: bytes) -> bool:
        """Stop what is being answered, for who knows the secret."""
        try:
            self._right.check(letting_go=True)
        except RightError:
            return False  # its end stops everything
        return hmac.compare_digest(secret, self._key[1]) and self._desk.interrupt(self._record.handle)

    def leave(self) -> None:
        """Leave the desk."""
        with suppress(Refused):
            self._desk.close_session(self._record)
        known = {
            "analyst": self._desk.analyst,
            "session": self._record.log_name,
            "policy": self._right.served.name,
        }
        self._log.write("close", **known)

    def _greet(self) -> None:
        known = {
            **{name: values[0] for name, values in FIXED.items()},
            "datestyle": "ISO, MDY",
            "timezone": "UTC",
        }
        known |= {
            "server_version": SERVER_VERSION,
            "is_superuser": "off",
            "session_authorization": self._desk.analyst,
        }
        known |= {"default_transaction_read_only": "on", "in_hot_standby": "off"}
        known["application_name"] = self._opened.parameters.get("application_name", "")[:64]
        for name, shown in REPORTED.items():
            self._stream.write(write_status(shown, known[name]))
        self._stream.write(messages.write(b"K", struct.pack(">i", self._key[0]), self._key[1]))
        self._stream.write(write_ready("I"))

    def _check(self) -> None:
        """End the connection where its session has ended, or nothing came for long.

        Raises:
            RefusedMessage: it ends.
        """
        if self._record.ended or self._ending:
            raise RefusedMessage(write_problem("FATAL", reports.SHUTDOWN, self._ending or _ENDED), last=True)
        self._ask_right(letting_go=True)
        if time.monotonic() > self._stream.end - 1.5:
            raise RefusedMessage(
                write_problem("FATAL", reports.IDLE, "nothing was asked for long; connect again."), last=True
            )

    def _ask_right(self, letting_go: bool) -> None:
        """Ask whether the analyst has a right to go on.

        Raises:
            RefusedMessage: they have not; the connection ends where the right has.
        """
        try:
            self._right.check(letting_go)
        except RightError as refusal:
            raise refuse_right(refusal) from None

    # -- messages ----------------------------------------------------------------------------------------------------------

    def _take(self) -> bool:
        """Take one message, and answer it; False where it was the last.

        Raises:
            RefusedMessage: the connection ends.
        """
        try:
            kind, body = self._stream.take_message(self._sizes)
        except TooLong as error:
            raise RefusedMessage(write_problem("FATAL", reports.TOO_LARGE, str(error)), last=True) from None
        except ProtocolError as error:
            raise RefusedMessage(
                write_problem("FATAL", reports.PROTOCOL_VIOLATION, str(error)), last=True
            ) from None
        if kind == b"X":
            return False
        if self._skipping and kind != b"S":
            return True
        ready = kind in (b"Q", b"S")
        try:
            self._answer(kind, body)
        except RefusedMessage as failed:
            if failed.last:
                raise
            self._stream.write(failed.report)
            self._skipping = not ready
            for portal in self._held.list_describing():
                portal.describing = False
        if ready:
            self._skipping = False
            if self._transaction == "I":
                self._held.end_portals()
            self._stream.write(write_ready(self._transaction))
        return True

    def _answer(self, kind: bytes, body: bytes) -> None:
        """Answer a message.

        Raises:
            RefusedMessage: with an error of ours, or the fixed sentence.
        """
        self._ask_right(letting_go=kind in _LETTING_GO)
        try:
            if kind != b"E" and not self._skipping:
                self._resolve()
            if kind not in HANDLERS:
                state, said = (
                    reports.NOT_SUPPORTED,
                    "this server answers queries alone: no COPY, no function calls.",
                )
                raise RefusedMessage(write_problem("ERROR", state, said))
            HANDLERS[kind](self, body)
        except ProtocolError as error:
            raise RefusedMessage(write_problem("ERROR", reports.PROTOCOL_VIOLATION, str(error))) from None
        except (RefusedMessage, Gone):
            raise
        except Exception as error:
            self._log.write("failure", why=name_place(error))
            raise RefusedMessage(write_problem("ERROR", reports.INTERNAL, FAILED)) from None

    def _query(self, body: bytes) -> None:
        """Answer a simple query: all statements of a text, and all of their rows."""
        text = messages.read_query(body)
        self._held.close("P", "")
        if self._run_known(text):
            return
        for message in self._ask("postgres_run", {"text": text, "simple": True}, text):
            part = message.head.get("part")
            if part in ("fields", "rows"):
                self._stream.write(message.payload)
            elif part == "end":
                self._write_end(message)

    def _run_known(self, text: str) -> bool:
        """Answer a text that is the same each time, and True; False for any other."""
        known = _COMMANDS.get(text.strip().removesuffix(";").upper())
        if known is None:
            return False
        tag, self._transaction = known
        self._stream.write(write_complete(tag))
        return True

    def _parse(self, body: bytes) -> None:
        self._held.prepare(ParseMessage.read(body))
        self._stream.write(messages.PARSE_COMPLETE)

    def _bind(self, body: bytes) -> None:
        self._held.bind(BindMessage.read(body))
        self._stream.write(messages.BIND_COMPLETE)

    def _describe(self, body: bytes) -> None:
        kind, name = messages.read_target(body)
        if kind == "P":
            self._held.find_portal(
                name
            ).describing = True  # told with its rows, where these are asked for next
            return
        statement = self._held.find_statement(name)
        if statement.described is None:
            head = {"text": statement.text, "kinds": list(statement.kinds)}
            told = self._ask_description(head, statement.text)
            statement.described, statement.fields, statement.told_kinds = told
        self._stream.write(statement.described)

    def _resolve(self) -> None:
        """Describe portals that were to be described, and are not executed next."""
        for portal in self._held.list_describing():
            portal.describing = False
            if portal.rows is not None:
                raise ProtocolError("a portal is described before it is executed.")
            head = self._write_bound(portal)
            described, _, _ = self._ask_description(head, portal.statement.text, parameters=False)
            self._stream.write(described)

    def _ask_description(
        self, head: dict[str, Any], text: str, parameters: bool = True
    ) -> tuple[bytes, list[Any] | None, list[int]]:
        """Return what a statement's columns are told with, the columns, and the types of its parameters."""
        if text.strip().removesuffix(";").upper() in _COMMANDS:
            return (messages.write_parameter_kinds(()) if parameters else b"") + messages.NO_DATA, None, []
        told, fields, kinds = bytearray(), None, []
        for message in self._ask("postgres_describe", head, text):
            part = message.head.get("part")
            if part == "notice" or (part == "parameters" and parameters):
                told += message.payload
            if part == "parameters":
                kinds = get_field(message.head, "kinds", list)
            elif part == "no data":
                told += messages.NO_DATA
            elif part == "fields":
                told += message.payload
                fields = get_field(message.head, "fields", list)
        return bytes(told), fields, kinds

    def _write_bound(self, portal: Portal) -> dict[str, Any]:
        """Return a portal's statement and values for the worker."""
        bound, statement = portal.bound, portal.statement
        head = {
            "text": statement.text,
            "kinds": list(statement.kinds),
            "described": statement.told_kinds,
            "values": [None if value is None else base64.b64encode(value).decode() for value in bound.values],
            "formats": messages.spread_formats(bound.formats, len(bound.values)),
            "result_formats": list(bound.result_formats),
        }
        return head

    def _execute(self, body: bytes) -> None:
        name, most = messages.read_execute(body)
        portal = self._held.find_portal(name)
        if any(other is not portal for other in self._held.list_describing()):
            self._resolve()
        if portal.rows is None and not self._start_portal(portal):
            return
        rows = portal.rows or b""
        end, _count = messages.count_rows(rows, portal.at, most or len(rows))
        self._stream.write(rows[portal.at : end])
        portal.at = end
        if end < len(rows):
            portal.rows, portal.at = rows[end:], 0
            self._held.check_size()
            self._stream.write(messages.PORTAL_SUSPENDED)
            return
        tail, portal.tail = portal.tail, [write_complete("SELECT 0")]
        portal.rows, portal.at = b"", 0
        for part in tail:
            self._stream.write(part)

    def _start_portal(self, portal: Portal) -> bool:
        """Ask a portal's statement, and keep its rows; False where it has answered already."""
        describing, portal.describing = portal.describing, False
        text = portal.statement.text
        if text.strip().removesuffix(";").upper() in _COMMANDS:
            self._stream.write(messages.NO_DATA if describing else b"")
            return not self._run_known(text)
        head = self._write_bound(portal)
        if portal.statement.fields is not None:
            head["fields"] = portal.statement.fields
        rows: list[bytes] = []
        told = False
        for message in self._ask("postgres_run", head, text):
            part = message.head.get("part")
            if part == "fields":
                told = True
                self._stream.write(message.payload if describing else b"")
            elif part == "rows":
                rows.append(message.payload)
            elif part == "end":
                self._stream.write(messages.NO_DATA if describing and not told else b"")
                portal.tail = self._read_end(message)
        portal.rows = b"".join(rows)
        return True

    def _close(self, body: bytes) -> None:
        self._held.close(*messages.read_target(body))
        self._stream.write(messages.CLOSE_COMPLETE)

    def _flush(self, body: bytes) -> None:
        self._stream.flush()

    def _sync(self, body: bytes) -> None:
        """Do nothing: what is told then is told after each Sync."""

    def _write_end(self, message: Message) -> None:
        for part in self._read_end(message):
            self._stream.write(part)

    def _read_end(self, message: Message) -> list[bytes]:
        """Return what ends a statement: notices, changed settings, its tag. Do what it means for the connection."""
        head = message.head
        tag = get_field(head, "tag", str)
        notice = get_field(head, "notice", list, [])
        parts = [messages.write_notice(*(str(text) for text in notice[:2]))] if notice else []
        for pair in get_field(head, "changed", list, []):
            name, value = (str(text)[:2000] for text in pair)
            parts.append(write_status(name, value))
        if (transaction := get_field(head, "transaction", str, "")) in ("I", "T"):
            self._transaction = transaction
        self._held.forget(get_field(head, "forget", str, ""))
        return [*parts, write_complete(tag) if tag else messages.EMPTY_QUERY]

    # -- the desk ----------------------------------------------------------------------------------------------------------

    def _ask(self, operation: str, head: dict[str, Any], text: str) -> Iterator[Message]:
        """Ask the worker, and yield its messages.

        Raises:
            RefusedMessage: with its error, or because it was not asked.
        """
        startup = {
            name: value for name, value in self._opened.parameters.items() if name not in ("user", "database")
        }
        try:
            body = encode(Message({**head, "startup": startup, "database": self._right.served.name}))
        except WireError:
            raise RefusedMessage(
                write_problem("ERROR", reports.TOO_LARGE, "the statement is too large.")
            ) from None
        try:
            self._right.take(len(body))
            for message in (
                told for reply in self._pass_on(operation, body) for told in unpack_messages(reply)
            ):
                if message.head.get("kind") == "error":
                    raise RefusedMessage(write_own_error(read_error(message), text))
                if message.head.get("part") == "no parameter":
                    raise RefusedMessage(write_bad_parameter(message))
                if message.head.get("kind") == "value":
                    yield message
        except RightError as refusal:
            raise refuse_right(refusal) from None
        except Refused as refusal:
            ended = self._record.ended
            raise RefusedMessage(
                write_problem(
                    "FATAL" if ended else "ERROR", reports.SHUTDOWN if ended else "53400", str(refusal)
                ),
                last=ended,
            ) from None
        except Error as error:
            raise RefusedMessage(write_own_error(error, text)) from None

    def _pass_on(self, operation: str, body: bytes) -> Iterator[bytes]:
        """Yield the replies of the desk."""
        desk, record = self._desk, self._record
        if record.ended:
            raise Refused(_ENDED)
        call = desk.make_call(operation, record.handle)
        call.is_abandoned = lambda: self._stream.is_gone
        self._stream.flush()
        yield from desk.answer_and_log(call, record, body)


HANDLERS: dict[bytes, Callable[[PostgresConnection, bytes], None]] = {
    b"Q": PostgresConnection._query,
    b"P": PostgresConnection._parse,
    b"B": PostgresConnection._bind,
    b"D": PostgresConnection._describe,
    b"E": PostgresConnection._execute,
    b"C": PostgresConnection._close,
    b"H": PostgresConnection._flush,
    b"S": PostgresConnection._sync,
}
"""The messages that are answered, each by a method."""


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
