"""PostgreSQL connections: the listener, a thread per client, prepared statements, portals, and requests to the worker.

    Parse -> Bind -> (Describe) -> Execute -> ... -> Sync       or       Query

The front doesn't read statements: it passes texts and values to the worker, and the worker's bytes to the client. After an error
it skips messages up to the next Sync, as the protocol demands. The worker describes statements in a call that can't pay; a portal
that is described and executed at once takes one call.

Limits on clients that have not logged in ensure that they can't block others (:mod:`dpsql.server.connections`).
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

from dpsql.client.wire import Message, WireError, encode, get_field
from dpsql.errors import Error, ServerError
from dpsql.late_dataclass import dataclass
from dpsql.server.connections import (
    LOGIN_SECONDS,
    SOCKET_MASK,
    Arrivals,
    ListenPlace,
    Tls,
    find_peer,
    log_dropped,
    open_listener,
    read_place,
)
from dpsql.server.event_log import EventLog, name_place
from dpsql.server.postgres import messages
from dpsql.server.postgres.authentication import ScramError
from dpsql.server.postgres.commands import REPORTED, ClientSettings, Done, run_transaction
from dpsql.server.postgres.login import LoggedIn, Login, read_first
from dpsql.server.postgres.messages import (
    BindMessage,
    Gone,
    ParseMessage,
    ProtocolError,
    RefusedMessage,
    Stream,
    TooLong,
    refuse_message,
    refuse_right,
    write_complete,
    write_own_error,
    write_problem,
    write_ready,
    write_status,
)
from dpsql.server.rights import FAILED, Refused, RightError
from dpsql.server.served import ServedPolicy

MAX_PREPARED = 2000
"""Most prepared statements of a connection."""
MAX_PREPARED_BYTES = 8 << 20
"""Most bytes of their texts."""
MAX_PORTALS = 100
MAX_PORTAL_BYTES = 64 << 20
"""Most bytes of all portals' values and unfetched rows."""


@dataclass
class PreparedStatement:
    """A prepared statement.

    ``described`` is the description that was sent to the client, with the columns ``fields`` and the parameters' types
    ``told_kinds``.
    """

    text: str
    kinds: tuple[int, ...]
    fields: list[Any] | None = None
    described: bytes | None = None
    told_kinds: list[int] = field(default_factory=list)


@dataclass
class Portal:
    """A statement with its values, and its unfetched rows after it was executed.

    ``describing`` is True while the client waits for its columns; ``tail`` follows its last row.
    """

    statement: PreparedStatement
    bound: BindMessage
    describing: bool = False
    rows: bytes | None = None
    at: int = 0
    tail: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of its values and unfetched rows."""
        return sum(len(value or b"") for value in self.bound.values) + len(self.rows or b"")


class Portals:
    """Statements and portals by name. The empty name may be replaced; other names are unique."""

    def __init__(self) -> None:
        self._statements: dict[str, PreparedStatement] = {}
        self._portals: dict[str, Portal] = {}

    def prepare(self, parsed: ParseMessage) -> None:
        """Keep a statement; ProtocolError if its name is in use, RefusedMessage if there are too many."""
        if parsed.name and parsed.name in self._statements:
            raise ProtocolError("there is a prepared statement of this name already.")
        held = sum(len(statement.text) for statement in self._statements.values())
        if len(self._statements) >= MAX_PREPARED or held + len(parsed.text) > MAX_PREPARED_BYTES:
            raise refuse_message(messages.TOO_MANY, "too many prepared statements.", "DEALLOCATE ALL")
        self._statements[parsed.name] = PreparedStatement(parsed.text, parsed.kinds)

    def find_statement(self, name: str) -> PreparedStatement:
        """Return a statement; RefusedMessage if the name is unknown."""
        statement = self._statements.get(name)
        if statement is None:
            raise refuse_message(messages.UNKNOWN_STATEMENT, "there is no such prepared statement.")
        return statement

    def bind(self, bound: BindMessage) -> None:
        """Keep a portal.

        Raises:
            ProtocolError: its name is in use. RefusedMessage: the statement is unknown, or portals are too large.
        """
        statement = self.find_statement(bound.statement)
        if bound.portal and bound.portal in self._portals:
            raise ProtocolError("there is a portal of this name already.")
        self._portals[bound.portal] = Portal(statement, bound)
        self.check_size()

    def find_portal(self, name: str) -> Portal:
        """Return a portal; RefusedMessage if the name is unknown."""
        if name not in self._portals:
            raise refuse_message(messages.UNKNOWN_PORTAL, "there is no such portal.")
        return self._portals[name]

    def has_portal(self, name: str) -> bool:
        """Return whether there is a portal of this name."""
        return name in self._portals

    def check_size(self) -> None:
        """Close all portals, and raise RefusedMessage, if they are too large."""
        if (
            len(self._portals) > MAX_PORTALS
            or sum(portal.size for portal in self._portals.values()) > MAX_PORTAL_BYTES
        ):
            self._portals.clear()
            hint = "fetch all rows at once: paid answers are stored, and free."
            raise refuse_message(messages.TOO_MANY, "portals are too large.", hint)

    def list_describing(self) -> list[Portal]:
        """Return the portals that wait for their description."""
        return [portal for portal in self._portals.values() if portal.describing]

    def close(self, kind: str, name: str) -> None:
        """Forget a statement (``S``) or a portal (``P``), if there is one."""
        held: dict[str, Any] = self._statements if kind == "S" else self._portals
        held.pop(name, None)

    def end_portals(self) -> None:
        """Forget all portals at the end of a transaction."""
        self._portals.clear()

    def forget(self, name: str) -> None:
        """Forget a prepared statement; ``*`` means all, and an empty name none."""
        if name == "*":
            self._statements.clear()
        elif name:
            self._statements.pop(name, None)


_ENDED = "this session has ended; connect again."
_IDLE = "the session was idle for too long; connect again."

_PLAIN = re.compile(
    r"\s*((?:BEGIN|START|COMMIT|END|ROLLBACK|ABORT|SAVEPOINT|RELEASE)\b[\w\s]*);?\s*", re.IGNORECASE
)
"""Texts that tools send around each statement, which need no worker."""


def _find_command(text: str) -> Done | None:
    """Return the outcome of a command about transactions; None for another text."""
    found = _PLAIN.fullmatch(text)
    return None if found is None else run_transaction(found[1].split())


_LETTING_GO = frozenset({b"C", b"H", b"S"})
"""Messages that a pause allows: Close, Flush and Sync."""


class PostgresConnection:
    """A client's connection, from ReadyForQuery to its end. One thread runs it; any other may stop it.

    Args:
        stream: the client's bytes.
        opened: the logged-in client.
        key: the number and the secret for requests to cancel.
        log: gets events.
    """

    def __init__(self, stream: Stream, opened: LoggedIn, key: tuple[int, bytes], log: EventLog) -> None:
        self.stream, self._opened, self._key, self._log = stream, opened, key, log
        self.number = key[0]
        self._right, self._queue, self._record = opened.right, opened.right.queue, opened.record
        self._held = Portals()
        self._transaction = "I"
        self._skipping = False
        self._ending = ""
        self._timeout = 0
        """The milliseconds after which a request is stopped; 0 for none."""
        rules = self._queue.edition.policy.server
        self._idle = 60.0 * rules.max_idle_minutes
        most = rules.max_statement_bytes + rules.max_parameter_bytes + 4 * (1 << 14)
        self._sizes = dict.fromkeys((b"Q", b"P", b"B"), most) | dict.fromkeys((b"D", b"E", b"C"), 1 << 12)
        self._sizes |= dict.fromkeys((b"H", b"S", b"X", b"c"), 1 << 4) | dict.fromkeys((b"F", b"d"), 1 << 16)
        self._sizes[b"f"] = 1 << 12

    # -- its life ----------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Answer messages until the client or the server ends it."""
        stream = self.stream
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
                stream.send(write_problem("FATAL", messages.SHUTDOWN, self._ending))

    def end(self, why: str) -> None:
        """End the connection at its next message, and wake it."""
        self._ending = why
        self.stream.shut(both=False)

    def cancel(self, secret: bytes) -> bool:
        """Stop the running request if the secret is right."""
        try:
            self._right.check(letting_go=True)
        except RightError:
            return False  # its end stops everything
        return hmac.compare_digest(secret, self._key[1]) and self._queue.interrupt(self._record.handle)

    def leave(self) -> None:
        """Close the session."""
        with suppress(Refused):
            self._queue.close_session(self._record)

    def _greet(self) -> None:
        named = {
            **self._opened.parameters,
            "application_name": self._opened.parameters.get("application_name", "")[:64],
        }
        settings = ClientSettings.begin(self._queue.analyst, named)
        self._timeout = settings.timeout
        for name, shown in REPORTED.items():
            self.stream.write(write_status(shown, settings.get(name)))
        self.stream.write(messages.write(b"K", struct.pack(">i", self._key[0]), self._key[1]))
        self.stream.write(write_ready("I"))

    def _check(self) -> None:
        """Check that the connection may go on."""
        if self._record.ended or self._ending:
            raise refuse_message(messages.SHUTDOWN, self._ending or _ENDED, last=True)
        self._ask_right(letting_go=True)
        if time.monotonic() > self.stream.end - 1.5:
            raise refuse_message(messages.IDLE, _IDLE, last=True)

    def _ask_right(self, letting_go: bool) -> None:
        try:
            self._right.check(letting_go)
        except RightError as refusal:
            raise refuse_right(refusal) from None

    # -- messages ----------------------------------------------------------------------------------------------------------

    def _take(self) -> bool:
        """Answer one message; return False after the last."""
        try:
            kind, body = self.stream.take_message(self._sizes)
        except TooLong as error:
            raise refuse_message(messages.TOO_LARGE, error, last=True) from None
        except ProtocolError as error:
            raise refuse_message(messages.PROTOCOL_VIOLATION, error, last=True) from None
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
            self.stream.write(failed.report)
            self._skipping = not ready
            for portal in self._held.list_describing():
                portal.describing = False
        if ready:
            self._skipping = False
            if self._transaction == "I":
                self._held.end_portals()
            self.stream.write(write_ready(self._transaction))
        return True

    def _answer(self, kind: bytes, body: bytes) -> None:
        self._ask_right(letting_go=kind in _LETTING_GO)
        try:
            if kind != b"E" and not self._skipping:
                self._resolve()
            if kind not in HANDLERS:
                sentence = "this server answers queries only: COPY and function calls aren't supported."
                raise refuse_message(messages.NOT_SUPPORTED, sentence)
            HANDLERS[kind](self, body)
        except ProtocolError as error:
            raise refuse_message(messages.PROTOCOL_VIOLATION, error) from None
        except (RefusedMessage, Gone):
            raise
        except Exception as error:
            self._log.write("failure", why=name_place(error))
            raise refuse_message(messages.INTERNAL, FAILED) from None

    def _query(self, body: bytes) -> None:
        """Answer a simple query: all statements of a text, with all of their rows."""
        text = messages.read_query(body)
        self._held.close("P", "")
        if self._run_known(text):
            return
        for message in self._ask("postgres_run", {"text": text, "simple": True}, text):
            part = message.head.get("part")
            if part in ("fields", "rows", "copy"):
                self.stream.write(message.payload)
            elif part == "end":
                self.stream.write(self._read_end(message))

    def _run_known(self, text: str) -> bool:
        """Answer a command about transactions; return whether the text is one."""
        known = _find_command(text)
        if known is None:
            return False
        self._transaction = known.transaction or self._transaction
        self.stream.write(write_complete(known.tag))
        return True

    def _parse(self, body: bytes) -> None:
        self._held.prepare(ParseMessage.read(body))
        self.stream.write(messages.PARSE_COMPLETE)

    def _bind(self, body: bytes) -> None:
        self._held.bind(BindMessage.read(body))
        self.stream.write(messages.BIND_COMPLETE)

    def _describe(self, body: bytes) -> None:
        kind, name = messages.read_target(body)
        if kind == "P" and name and not self._held.has_portal(name):  # a cursor is a portal
            head: dict[str, Any] = {"text": "", "cursor": name, "portal": True}
            self.stream.write(self._ask_description(head, "")[0])
            return
        if kind == "P":
            self._held.find_portal(name).describing = True  # sent with its rows if Execute comes next
            return
        statement = self._held.find_statement(name)
        if statement.described is None:
            head = {"text": statement.text, "kinds": list(statement.kinds)}
            description = self._ask_description(head, statement.text)
            statement.described, statement.fields, statement.told_kinds = description
        self.stream.write(statement.described)

    def _resolve(self) -> None:
        """Describe the portals that wait for it and aren't executed next."""
        for portal in self._held.list_describing():
            portal.describing = False
            if portal.rows is not None:
                raise ProtocolError("a portal is described before it is executed.")
            head = {**self._write_bound(portal), "portal": True}
            described, _, _ = self._ask_description(head, portal.statement.text)
            self.stream.write(described)

    def _ask_description(self, head: dict[str, Any], text: str) -> tuple[bytes, list[Any] | None, list[int]]:
        """Return the messages that describe a statement or a portal, its columns, and the types of its parameters."""
        if _find_command(text) is not None:
            return (
                (b"" if "portal" in head else messages.write_parameter_kinds(())) + messages.NO_DATA,
                None,
                [],
            )
        (message,) = self._ask("postgres_describe", head, text)
        kinds = get_field(message.head, "kinds", list)
        return message.payload, get_field(message.head, "fields", list, []) or None, kinds

    def _write_bound(self, portal: Portal) -> dict[str, Any]:
        """Return a portal's statement and values for the worker."""
        bound, statement = portal.bound, portal.statement
        return {
            "text": statement.text,
            "kinds": list(statement.kinds),
            "described": statement.told_kinds,
            "values": [None if value is None else base64.b64encode(value).decode() for value in bound.values],
            "formats": messages.spread_formats(bound.formats, len(bound.values)),
            "result_formats": list(bound.result_formats),
        }

    def _execute(self, body: bytes) -> None:
        name, most = messages.read_execute(body)
        portal = self._held.find_portal(name)
        if any(other is not portal for other in self._held.list_describing()):
            self._resolve()
        if portal.rows is None and not self._start_portal(portal):
            return
        rows = portal.rows or b""
        end = messages.find_row_end(rows, portal.at, most or len(rows))
        self.stream.write(rows[portal.at : end])
        portal.at = end
        if end < len(rows):
            portal.rows, portal.at = rows[end:], 0
            self._held.check_size()
            self.stream.write(messages.PORTAL_SUSPENDED)
            return
        self.stream.write(portal.tail)
        portal.rows, portal.at, portal.tail = b"", 0, write_complete("SELECT 0")

    def _start_portal(self, portal: Portal) -> bool:
        """Run a portal's statement, and keep its rows; return False if it is a command about transactions."""
        describing, portal.describing = portal.describing, False
        text = portal.statement.text
        if _find_command(text) is not None:
            self.stream.write(messages.NO_DATA if describing else b"")
            return not self._run_known(text)
        head = self._write_bound(portal)
        if portal.statement.fields is not None:
            head["fields"] = portal.statement.fields
        rows: list[bytes] = []
        has_fields = False
        for message in self._ask("postgres_run", head, text):
            part = message.head.get("part")
            if part == "fields":
                has_fields = True
                self.stream.write(message.payload if describing else b"")
            elif part == "copy":
                self.stream.write(messages.NO_DATA if describing and not has_fields else b"")
                self.stream.write(message.payload)
                has_fields = True
            elif part == "rows":
                rows.append(message.payload)
            elif part == "end":
                self.stream.write(messages.NO_DATA if describing and not has_fields else b"")
                portal.tail = self._read_end(message)
        portal.rows = b"".join(rows)
        return True

    def _close(self, body: bytes) -> None:
        self._held.close(*messages.read_target(body))
        self.stream.write(messages.CLOSE_COMPLETE)

    def _flush(self, body: bytes) -> None:
        self.stream.flush()

    def _sync(self, body: bytes) -> None:
        """Do nothing, since the reply to every Sync follows anyway."""

    def _read_end(self, message: Message) -> bytes:
        """Return the messages at a statement's end (notices, settings, tag), and apply its effects to the connection."""
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
        self._timeout = get_field(head, "timeout", int, self._timeout)
        return b"".join([*parts, write_complete(tag) if tag else messages.EMPTY_QUERY])

    # -- the worker --------------------------------------------------------------------------------------------------------

    def _ask(self, operation: str, head: dict[str, Any], text: str) -> Iterator[Message]:
        """Ask the worker, and yield its messages."""
        startup = {
            name: value for name, value in self._opened.parameters.items() if name not in ("user", "database")
        }
        try:
            body = encode(Message({**head, "startup": startup, "database": self._right.served.name}))
        except WireError:
            raise refuse_message(messages.TOO_LARGE, "the statement is too large.") from None
        try:
            self._right.take(len(body))
            for message in self._pass_on(operation, body):
                if message.head.get("kind") == "value":
                    yield message
        except RightError as refusal:
            raise refuse_right(refusal) from None
        except Refused as refusal:
            ended = self._record.ended
            raise refuse_message(messages.SHUTDOWN if ended else "53400", refusal, last=ended) from None
        except Error as error:
            raise RefusedMessage(write_own_error(error, text)) from None

    def _pass_on(self, operation: str, body: bytes) -> Iterator[Message]:
        """Yield the messages of the reply to one request, which the client's timeout stops."""
        queue, record = self._queue, self._record
        if record.ended:
            raise Refused(_ENDED)
        call = queue.make_call(operation, record.handle)
        call.is_abandoned = lambda: self.stream.is_gone
        self.stream.flush()
        timer = threading.Timer(self._timeout / 1000, queue.stop_call, (call,)) if self._timeout else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            yield from queue.ask(call, record, body)
        finally:
            if timer is not None:
                timer.cancel()


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
"""The supported messages and their methods."""


_SOCKET = ".s.PGSQL."
"""The start of a socket's name, before the port."""
MAX_CLIENTS = 500
"""Most logged-in connections."""
_BACKLOG = 128


def read_postgres_place(listen: str, tls: bool) -> ListenPlace:
    """Return the address of a port for PostgreSQL's clients: ``host:port``, or ``unix:`` with a folder.

    Clients look for a socket by its folder and port: ``psql -h /run/dpsql`` for ``/run/dpsql/.s.PGSQL.5432``.

    Raises:
        ServerError: the address is invalid, or needs TLS.

    >>> read_postgres_place("unix:/run/dpsql", False).name, read_postgres_place("127.0.0.1:5432", False)
    ('.s.PGSQL.5432', ('127.0.0.1', 5432))
    """
    place = read_place(listen, tls, "--pg 127.0.0.1:5432, or --pg unix:/run/dpsql")
    if isinstance(place, Path) and not place.name.startswith(_SOCKET):
        return place / f"{_SOCKET}5432"
    return place


class PostgresListener:
    """A port that speaks PostgreSQL's protocol.

    Args:
        place: host and port, where port 0 takes a free one, or the path of a Unix socket.
        served: the policies.
        log: gets events.
        tls: the certificates of TLS, which a port then requires, and a Unix socket has not.

    Raises:
        ServerError: the address can't be used.
    """

    def __init__(
        self, place: ListenPlace, served: Sequence[ServedPolicy], log: EventLog, tls: Tls | None
    ) -> None:
        self._path = place if isinstance(place, Path) else None
        if self._path is not None and tls is not None and tls.authority is not None:
            sentence = "analysts' certificates need TLS, which a Unix socket has not."
            raise ServerError(sentence, hint="--pg 0.0.0.0:5432")
        self._served, self._log = served, log
        self.tls = tls if self._path is None else None
        self._lock = threading.Lock()
        self._open: dict[int, PostgresConnection] = {}
        self._streams: set[Stream] = set()
        self._arrivals = Arrivals(partial(log_dropped, log), "PostgreSQL")
        self._closed = False
        self._socket = open_listener(place, SOCKET_MASK, _BACKLOG)
        if isinstance(place, Path):
            port = place.name.removeprefix(_SOCKET)
            self.place = f"/?host={place.parent}" + (f"&port={port}" if port != "5432" else "")
        else:
            self.place = f"{place[0]}:{self._socket.getsockname()[1]}"
        """Its address, as URIs of PostgreSQL have it."""
        threading.Thread(target=self._accept, daemon=True, name="dpsql-postgres").start()

    def close(self) -> None:
        """Stop listening, and end all connections."""
        with self._lock:
            self._closed = True
            connections, streams = list(self._open.values()), list(self._streams)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._socket.close()
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()
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
                time.sleep(0.05)  # for example, no file descriptor is free
                continue
            with self._lock:
                full = len(self._open) >= MAX_CLIENTS or self._closed
            if full:
                _refuse(sock)
                continue
            stream, peer = Stream(sock, LOGIN_SECONDS), find_peer(sock, address)
            self._arrivals.add(stream, peer, stream.shut)
            task = threading.Thread(target=self._serve, args=(sock, stream, peer), daemon=True)
            try:
                task.start()
            except RuntimeError:  # no thread can be started
                self._arrivals.let_in(stream)
                _refuse(sock)

    def _serve(self, sock: socket.socket, stream: Stream, peer: str) -> None:
        """Serve one client from login to its end."""
        with self._lock:
            self._streams.add(stream)
        try:
            with suppress(OSError):
                if self._path is None:
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
                stream.send(write_problem("FATAL", messages.INTERNAL, FAILED))
        finally:
            self._arrivals.leave(stream)
            with self._lock:
                self._streams.discard(stream)
            stream.close()

    def _let_in(self, stream: Stream, peer: str) -> PostgresConnection | None:
        """Return an analyst's connection; None after a request to cancel or a failed login."""
        try:
            tls = self.tls  # it may be renewed meanwhile
            code, body = read_first(stream, tls)
            if code == messages.CANCEL_REQUEST:
                self._cancel(body)
                return None
            opened = Login(stream, self._served, tls, peer, self._log).run(body, code)
        except RefusedMessage as refused:
            stream.send(refused.report)
            return None
        except (ProtocolError, ScramError) as error:
            sentence = str(error) or "the password exchange breaks the rules."
            stream.send(write_problem("FATAL", messages.PROTOCOL_VIOLATION, sentence))
            return None
        with self._lock:
            number = secrets.randbelow((1 << 31) - 1) + 1
            while number in self._open:
                number = secrets.randbelow((1 << 31) - 1) + 1
            key = (number, secrets.token_bytes(4))
            connection = self._open[number] = PostgresConnection(stream, opened, key, self._log)
        return connection

    def _run(self, connection: PostgresConnection) -> None:
        try:
            connection.run()
        finally:
            with self._lock:
                self._open.pop(connection.number, None)
            connection.leave()

    def _cancel(self, body: bytes) -> None:
        """Stop a connection's request if its number and secret are right. The client gets no reply."""
        if len(body) != 8:
            return
        (number,) = struct.unpack(">i", body[:4])
        with self._lock:
            connection = self._open.get(number)
        if connection is not None:
            connection.cancel(body[4:])


def _refuse(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.settimeout(0.1)
        sock.sendall(write_problem("FATAL", messages.TOO_MANY, "too many connections; try again later."))
    sock.close()
