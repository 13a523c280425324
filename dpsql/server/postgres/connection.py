"""One PostgreSQL client that was let in: its prepared statements and portals, and its questions to the analyst's desk.

    Parse -> Bind -> (Describe) -> Execute -> ... -> Sync       or       Query

The front does not read what a client asks: texts and values go to the worker as they came, and its answer's bytes to the client.
After an error everything up to the next Sync is skipped, as the protocol has it. Statements are described by the worker in a call
that can pay nothing; a portal that is described and executed in one go is asked once.
"""

from __future__ import annotations

import base64
import hmac
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from dpsql.errors import Error
from dpsql.server.event_log import EventLog, name_place
from dpsql.server.lapses import Refused, RightError
from dpsql.server.postgres import messages, reports
from dpsql.server.postgres.commands import FIXED, REPORTED, SERVER_VERSION
from dpsql.server.postgres.login import LoggedIn
from dpsql.server.postgres.messages import (
    BindMessage,
    ParseMessage,
    ProtocolError,
    write_complete,
    write_ready,
    write_status,
)
from dpsql.server.postgres.portals import Portal, Portals
from dpsql.server.postgres.reports import (
    RefusedMessage,
    refuse_right,
    write_bad_parameter,
    write_own_error,
    write_problem,
)
from dpsql.server.postgres.stream import Gone, Stream, TooLong
from dpsql.wire import Message, WireError, encode, get_field, read_error
from dpsql.wire_parcels import unpack_messages

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
