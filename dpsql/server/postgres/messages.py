"""Messages of PostgreSQL's protocol, version 3: reading, writing, their stream, and errors.

This module doesn't read statements. It checks each length and count from a client against the bytes that have arrived, so no
message takes more memory than its size. An error has a severity, a SQLSTATE, a sentence, a hint, and a place in the text.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from dpsql import errors
from dpsql.errors import Error
from dpsql.late_dataclass import dataclass
from dpsql.server.rights import Lapse, RightError

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
MAX_STARTUP = 10_000
"""Bytes of a client's first message."""
MAX_PASSWORD = 4096
"""Bytes of a message of the password exchange."""
MAX_PROVIDER_TOKEN = 10_000
"""Bytes of a message with a token of the identity provider."""
_MAX_NAME = 256
_ENDED = "the message ends too early."


class ProtocolError(Exception):
    """A message that does not follow the protocol; its text is one of ours and repeats nothing of it."""


class MessageReader:
    r"""A cursor over the body of one message.

    >>> reader = MessageReader(b"ada\0" + struct.pack(">h", 7))
    >>> reader.text(), reader.int16(), reader.end()
    ('ada', 7, None)
    """

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def take(self, size: int) -> bytes:
        """Return the next bytes; ProtocolError if fewer bytes are left."""
        if size < 0 or size > len(self._body) - self._at:
            raise ProtocolError(_ENDED)
        self._at += size
        return self._body[self._at - size : self._at]

    def int16(self) -> int:
        """Return the next two bytes as an integer with a sign."""
        return int(struct.unpack(">h", self.take(2))[0])

    def int32(self) -> int:
        """Return the next four bytes as an integer with a sign."""
        return int(struct.unpack(">i", self.take(4))[0])

    def count(self, least_bytes: int) -> int:
        """Return the count of the items that follow, each with at least ``least_bytes``.

        Raises:
            ProtocolError: the message has too few bytes for the count.
        """
        found = self.int16()
        if found < 0 or found * least_bytes > len(self._body) - self._at:
            raise ProtocolError(_ENDED)
        return found

    def text(self) -> str:
        """Return the text up to the next zero byte; ProtocolError if there is no zero byte, or the text isn't UTF-8."""
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise ProtocolError("a text in the message has no end.")
        found = self._body[self._at : end]
        self._at = end + 1
        try:
            return found.decode()
        except UnicodeDecodeError:
            raise ProtocolError("a text in the message is not UTF-8.") from None

    def name(self) -> str:
        """Return the name of a statement or a portal; ProtocolError as for :meth:`text`, and if it is too long."""
        found = self.text()
        if len(found) > _MAX_NAME:
            raise ProtocolError(f"a name may have {_MAX_NAME} characters.")
        return found

    def rest(self) -> bytes:
        """Return all bytes that are left."""
        return self.take(len(self._body) - self._at)

    def end(self) -> None:
        """Raise ProtocolError if bytes are left."""
        if self._at != len(self._body):
            raise ProtocolError("the message is longer than its parts.")


@dataclass(frozen=True)
class ParseMessage:
    """A client's ``Parse``: the text of a statement, its name, and the types that are known of its parameters."""

    name: str
    text: str
    kinds: tuple[int, ...]

    @classmethod
    def read(cls, body: bytes) -> ParseMessage:
        """Read the body of the message."""
        reader = MessageReader(body)
        name, text = reader.name(), reader.text()
        kinds = tuple(reader.int32() & 0xFFFFFFFF for _ in range(reader.count(4)))
        reader.end()
        return cls(name, text, kinds)


@dataclass(frozen=True)
class BindMessage:
    """A client's ``Bind``: values for a statement's parameters, and the formats of values and results (0 text, 1 binary)."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]

    @classmethod
    def read(cls, body: bytes) -> BindMessage:
        """Read the body of the message."""
        reader = MessageReader(body)
        portal, statement = reader.name(), reader.name()
        formats = _read_formats(reader)
        values = []
        for _ in range(reader.count(4)):
            size = reader.int32()
            values.append(None if size == -1 else reader.take(size))
        result_formats = _read_formats(reader)
        reader.end()
        if len(formats) > 1 and len(formats) != len(values):
            raise ProtocolError("there are more or fewer formats than parameters.")
        return cls(portal, statement, formats, tuple(values), result_formats)


def _read_formats(reader: MessageReader) -> tuple[int, ...]:
    found = tuple(reader.int16() for _ in range(reader.count(2)))
    if not {*found} <= {0, 1}:
        raise ProtocolError("a format is neither text nor binary.")
    return found


def spread_formats(formats: Sequence[int], count: int) -> list[int]:
    """Return a format for each value: text if no format is given; a single format applies to all.

    Raises:
        ProtocolError: the number of formats differs.

    >>> spread_formats((), 2), spread_formats((1,), 2)
    ([0, 0], [1, 1])
    """
    if len(formats) <= 1:
        return [formats[0] if formats else 0] * count
    if len(formats) != count:
        raise ProtocolError("there are more or fewer formats than columns.")
    return list(formats)


def read_target(body: bytes) -> tuple[str, str]:
    """Read a ``Describe`` or ``Close``: ``S`` (statement) or ``P`` (portal) and a name; else ProtocolError."""
    reader = MessageReader(body)
    kind, name = reader.take(1), reader.name()
    reader.end()
    if kind not in (b"S", b"P"):
        raise ProtocolError("only statements and portals can be described or closed.")
    return kind.decode(), name


def read_execute(body: bytes) -> tuple[str, int]:
    """Read an ``Execute``: the portal, and the most rows (0: all)."""
    reader = MessageReader(body)
    portal, most = reader.name(), reader.int32()
    reader.end()
    return portal, max(0, most)


def read_query(body: bytes) -> str:
    """Read a simple query's text."""
    reader = MessageReader(body)
    text = reader.text()
    reader.end()
    return text


def read_startup(body: bytes) -> dict[str, str]:
    """Read the parameters of a startup message after its version; ProtocolError unless they are pairs of texts."""
    reader = MessageReader(body)
    found: dict[str, str] = {}
    while name := reader.text():
        found[name] = reader.text()
    reader.end()
    return found


# -- messages to the client ----------------------------------------------------------------------------------------------


def write(kind: bytes, *parts: bytes) -> bytes:
    """Return a message: its kind, its length, its parts."""
    body = b"".join(parts)
    return kind + struct.pack(">i", len(body) + 4) + body


def write_text(text: str) -> bytes:
    """Return a text as the protocol has it: UTF-8 up to a zero byte."""
    return text.encode(errors="replace").replace(b"\0", b"?") + b"\0"


def write_request(code: int, *parts: bytes) -> bytes:
    """Return an ``Authentication`` message."""
    return write(b"R", struct.pack(">i", code), *parts)


def write_status(name: str, value: str) -> bytes:
    """Return a ``ParameterStatus``."""
    return write(b"S", write_text(name), write_text(value))


def write_ready(transaction: str) -> bytes:
    """Return ``ReadyForQuery``: ``I`` outside a transaction block, ``T`` inside."""
    return write(b"Z", transaction.encode())


def write_complete(tag: str) -> bytes:
    """Return ``CommandComplete``."""
    return write(b"C", write_text(tag))


@dataclass(frozen=True)
class ResultField:
    """A column of an answer: its name, its type's number, the bytes of a value (-1: they vary) and the type's modifier."""

    name: str
    kind: int
    size: int = -1
    modifier: int = -1


def write_description(fields: Sequence[ResultField], formats: Sequence[int]) -> bytes:
    """Return ``RowDescription``."""
    parts = [struct.pack(">h", len(fields))]
    for field, form in zip(fields, formats, strict=True):
        parts.append(write_text(field.name))
        parts.append(struct.pack(">ihIhih", 0, 0, field.kind, field.size, field.modifier, form))
    return write(b"T", *parts)


def write_parameter_kinds(kinds: Sequence[int]) -> bytes:
    """Return ``ParameterDescription``."""
    return write(b"t", struct.pack(">h", len(kinds)), *(struct.pack(">I", kind) for kind in kinds))


def write_row(values: Iterable[bytes | None]) -> bytes:
    r"""Return a ``DataRow``; None is NULL.

    >>> write_row([b"A", None])
    b'D\x00\x00\x00\x0f\x00\x02\x00\x00\x00\x01A\xff\xff\xff\xff'
    """
    parts = [b"\xff\xff\xff\xff" if v is None else struct.pack(">i", len(v)) + v for v in values]
    return write(b"D", struct.pack(">h", len(parts)), *parts)


COPY_SIGNATURE, COPY_TRAILER = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
"""The first and the last bytes of a COPY in binary."""
_ESCAPES = {ord(sign): rf"\{letter}" for sign, letter in zip("\\\n\r\t\b\f\v", "\\nrtbfv", strict=True)}


def write_copy_text(values: Sequence[bytes | None]) -> bytes:
    r"""Return a row of COPY as text.

    >>> write_copy_text([b"a\tb", None])
    b'a\\tb\t\\N\n'
    """
    written = (r"\N" if v is None else v.decode(errors="replace").translate(_ESCAPES) for v in values)
    return "\t".join(written).encode() + b"\n"


def write_copy_csv(values: Sequence[bytes | None]) -> bytes:
    r"""Return a row of COPY as CSV; NULL is an empty field without quotes.

    >>> write_copy_csv([b'a"b', b"", None, b"c"])
    b'"a""b","",,c\n'
    """
    return b",".join(b"" if value is None else _quote_field(value) for value in values) + b"\n"


def _quote_field(value: bytes) -> bytes:
    plain = value not in (b"", rb"\.") and not set(value) & set(b'",\r\n')
    return value if plain else b'"' + value.replace(b'"', b'""') + b'"'


def write_copy_tuple(values: Sequence[bytes | None]) -> bytes:
    """Return a row of COPY in binary, which is the body of a ``DataRow``."""
    return write_row(values)[5:]


def write_response(kind: bytes, fields: Iterable[tuple[str, str]]) -> bytes:
    """Return an ``ErrorResponse`` (``E``) or a ``NoticeResponse`` (``N``) of the fields that aren't empty, by letter."""
    parts = [letter.encode() + write_text(value) for letter, value in fields if value]
    return write(kind, *parts, b"\0")


def write_notice(sentence: str, detail: str = "") -> bytes:
    """Return a ``NoticeResponse`` of a sentence and its details."""
    severity = [("S", "NOTICE"), ("V", "NOTICE"), ("C", "00000")]
    return write_response(b"N", [*severity, ("M", sentence), ("D", detail)])


def find_row_end(rows: bytes, start: int, most: int) -> int:
    """Return the end of at most ``most`` rows from ``start``; ProtocolError if the bytes aren't rows."""
    at = start
    while at < len(rows) and most > 0:
        if rows[at : at + 1] != b"D" or at + 5 > len(rows):
            raise ProtocolError(_ENDED)
        at += 1 + int(struct.unpack_from(">i", rows, at + 1)[0])
        most -= 1
    if at > len(rows):
        raise ProtocolError(_ENDED)
    return at


PARSE_COMPLETE, BIND_COMPLETE, CLOSE_COMPLETE = write(b"1"), write(b"2"), write(b"3")
NO_DATA, EMPTY_QUERY, PORTAL_SUSPENDED = write(b"n"), write(b"I"), write(b"s")


SEND_SECONDS = 60.0
"""Seconds that a client may let an answer wait."""
MESSAGE_SECONDS = 60.0
"""Seconds that a message may take once it has begun."""
_LOOK_SECONDS = 1.0
_READ = 1 << 16
_FLUSH = 1 << 18


class Gone(Exception):
    """The client is gone, or took too long."""


class Stream:
    """A socket for messages; ``seconds``: the longest that a message may take to arrive."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._socket = sock
        self._raw = sock
        self._buffer = bytearray()
        self._unsent = bytearray()
        self.end = time.monotonic() + seconds
        """The deadline of the client's next message."""
        self.check: Callable[[], None] = lambda: None
        """Called every second without a message; it raises if the connection must end."""
        self.secured = False
        self._dropped = False

    # -- in ----------------------------------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """Whether unread bytes are in the buffer."""
        return bool(self._buffer)

    def take(self, size: int) -> bytes:
        """Return the next bytes; Gone if the client is gone or too slow."""
        while len(self._buffer) < size:
            self._fill()
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    def _fill(self) -> None:
        """Read what has come, and wait for it."""
        while True:
            rest = self.end - time.monotonic()
            if rest <= 0:
                raise Gone
            self._socket.settimeout(min(rest, _LOOK_SECONDS))
            try:
                piece = self._socket.recv(_READ)
            except (TimeoutError, ssl.SSLWantReadError):
                self.check()
                continue
            except (OSError, ValueError):
                raise Gone from None
            if not piece:
                raise Gone
            self._buffer += piece
            return

    def take_message(self, sizes: Mapping[bytes, int]) -> tuple[bytes, bytes]:
        """Return the kind and the body of the next message.

        Args:
            sizes: the most bytes of each kind that may come.

        Raises:
            ProtocolError: the message is longer, or of another kind. Gone: the client is gone or too slow.
        """
        kind = self.take(1)
        self.end = min(self.end, time.monotonic() + MESSAGE_SECONDS)
        limit = sizes.get(kind, 0)
        if not limit:
            raise ProtocolError("this message can't come here.")
        (size,) = struct.unpack(">i", self.take(4))
        if not 4 <= size <= limit + 4:
            raise TooLong(f"a message of {size:,} bytes is longer than the {limit:,} that it may have.")
        return kind, self.take(size - 4)

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed the connection; its unread bytes stay."""
        try:
            if self._raw.fileno() < 0:
                return True
            ready, _, _ = select.select([self._raw.fileno()], [], [], 0)
            return bool(ready) and self._raw.fileno() >= 0 and not _peek(self._raw)
        except (OSError, ValueError):
            return True

    # -- out ---------------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send bytes with those that follow."""
        self._unsent += data
        if len(self._unsent) > _FLUSH:
            self.flush()

    def flush(self) -> None:
        """Send the buffered bytes; Gone if the client is gone or doesn't read."""
        if self._unsent:
            data, self._unsent = bytes(self._unsent), bytearray()
            self._socket.settimeout(SEND_SECONDS)
            try:
                self._socket.sendall(data)
            except (OSError, ValueError):
                raise Gone from None

    def send(self, data: bytes) -> None:
        """Send bytes at once."""
        self.write(data)
        self.flush()

    # -- TLS and the end ---------------------------------------------------------------------------------------------------

    def secure(self, context: ssl.SSLContext) -> None:
        """Continue under TLS; Gone if the client doesn't."""
        self._socket.settimeout(max(0.1, self.end - time.monotonic()))
        try:
            wrapped = context.wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
            self._socket = self._raw = (
                wrapped  # from here on it can be shut, however long the handshake takes
            )
            if self._dropped:
                raise Gone
            wrapped.do_handshake()
        except (OSError, ValueError):
            raise Gone from None
        self.secured = True

    @property
    def common_name(self) -> str:
        """The common name of the client's certificate, which TLS has verified; empty if it has none."""
        certificate = self._socket.getpeercert() if isinstance(self._socket, ssl.SSLSocket) else None
        pairs = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
        names = [str(pair[1]) for pair in pairs if isinstance(pair, tuple) and pair[0] == "commonName"]
        return names[0] if len(names) == 1 else ""

    def shut(self, both: bool = True) -> None:
        """End the connection from another thread, and wake a waiting reader; ``both``: drop unsent bytes, too."""
        self._dropped = True
        with suppress(OSError, ValueError):
            socket.socket.shutdown(self._raw, socket.SHUT_RDWR if both else socket.SHUT_RD)

    def close(self) -> None:
        """Close the socket."""
        with suppress(OSError, ValueError):
            self._socket.close()


class TooLong(ProtocolError):
    """A message that is longer than it may be."""


def _peek(sock: socket.socket) -> bytes:
    """Return a byte that has come, without taking it; of TLS its own bytes count."""
    copy = socket.socket(fileno=os.dup(sock.fileno()))
    try:
        copy.setblocking(False)
        return copy.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return b"?"
    finally:
        copy.close()


# -- Errors as PostgreSQL's clients get them: severity, SQLSTATE, sentence, hint, and the place in the client's text.
SQLSTATES: dict[type[Error], str] = {
    errors.ParseError: "42601",
    errors.BindError: "42000",
    errors.PrivacyError: "42501",
    errors.BudgetExceeded: "53400",
    errors.PolicyError: "F0000",
    errors.LedgerError: "58000",
    errors.ServerError: "08004",
    errors.EngineError: "58000",
    errors.PostprocessingError: "22000",
    errors.Interrupted: "57014",
}
"""Codes of our classes of errors: syntax, names and types, privileges, limits, configuration, system, data, canceled."""
PROTOCOL_VIOLATION, NO_PASSWORD, NO_AUTHORIZATION, NO_DATABASE = "08P01", "28P01", "28000", "3D000"
TOO_MANY, TOO_LARGE, NOT_SUPPORTED, INTERNAL = "53300", "54000", "0A000", "XX000"
SHUTDOWN, IDLE, UNKNOWN_STATEMENT, UNKNOWN_PORTAL = "57P01", "57P05", "26000", "34000"
_NARROWER = frozenset(
    {"22007", "22023", "22P02", "22P03", "26000", "34000", "42601", "42703", "42704", "42P01", "42P05"}
)
"""The codes that an error may have in place of its class's."""


_LAPSES = {
    Lapse.ENDED: SHUTDOWN,
    Lapse.NO_SHARE: NO_AUTHORIZATION,
    Lapse.PAUSED: NO_AUTHORIZATION,
    Lapse.TOO_MANY: "53400",
    Lapse.TOO_LARGE: TOO_LARGE,
}
"""The SQLSTATE that tells why a right does not hold."""


class RefusedMessage(Exception):
    """A client's message that is answered with an error, as bytes; ``last`` says that the connection ends with it."""

    def __init__(self, report: bytes, last: bool = False) -> None:
        super().__init__()
        self.report, self.last = report, last


def write_problem(severity: str, state: str, sentence: str, hint: str = "", position: int = 0) -> bytes:
    """Return an ``ErrorResponse``.

    Args:
        severity: ``ERROR``, or ``FATAL`` if the connection ends.
        state: the SQLSTATE.
        sentence, hint: the error's.
        position: the error's character in the client's text, counted from 1; 0 for none.
    """
    fields = [("S", severity), ("V", severity), ("C", state), ("M", sentence), ("H", hint)]
    return write_response(b"E", [*fields, ("P", str(position) if position > 0 else "")])


def refuse_message(state: str, sentence: object, hint: str = "", last: bool = False) -> RefusedMessage:
    """Return the refusal of a message; ``last``: the connection ends with it."""
    return RefusedMessage(write_problem("FATAL" if last else "ERROR", state, str(sentence), hint), last)


def refuse_right(refusal: RightError) -> RefusedMessage:
    """Return the refusal of a message without a right to it; the connection ends if the right has ended."""
    return refuse_message(_LAPSES[refusal.lapse], refusal, last=refusal.is_final)


def write_own_error(error: Error, asked: str) -> bytes:
    """Return the ``ErrorResponse`` of our error, with its place in the text ``asked``, if that is within it."""
    states = (SQLSTATES[kind] for kind in type(error).__mro__ if kind in SQLSTATES)
    state = error.sqlstate if error.sqlstate in _NARROWER else next(states, INTERNAL)
    place = 0 if error.span is None or error.span[0] >= len(asked) else error.span[0] + 1
    return write_problem("ERROR", state, error.message, error.hint or "", place)
