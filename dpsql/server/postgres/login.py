"""The first minutes of a PostgreSQL client: TLS, its startup message, and the proof that it has an analyst's token.

Whoever is not let in hears one of a few fixed sentences, the same whether the analyst exists or not. A wrong token counts for its
address as one that came over Flight.
"""

from __future__ import annotations

import secrets
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.policy.validate import fold
from dpsql.server.desks import SessionRecord
from dpsql.server.event_log import EventLog
from dpsql.server.lapses import Refused, RightError
from dpsql.server.postgres import messages, reports
from dpsql.server.postgres.authentication import (
    MECHANISM,
    MECHANISM_BOUND,
    ScramError,
    ScramExchange,
    Verifier,
)
from dpsql.server.postgres.messages import MessageReader, ProtocolError, Stream, write_request, write_text
from dpsql.server.rights import Right
from dpsql.server.served import ServedPolicy
from dpsql.server.tokens import TokenRecord, identify_holder, shorten_address

_MOCK_SECRET = secrets.token_bytes(32)
_WRONG = "no valid token of this analyst."
_WRONG_HINT = (
    "the user is the analyst, the password the token. The owner gives one: dpsql analyst add. A token from before this port "
    "was there opens it once it is rotated: dpsql analyst rotate."
)
_AWAY = "too many wrong tokens came from your address; wait some seconds."
_DEFAULT_DATABASES = frozenset({"", "postgres", "template1"})
_ENCODINGS = frozenset({"", "utf8", "utf-8", "unicode", "sql_ascii"})


class NotLetIn(Exception):
    """A client that is not let in, for one of a few fixed reasons."""

    def __init__(self, state: str, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.state, self.sentence, self.hint = state, sentence, hint


@dataclass(frozen=True)
class LoggedIn:
    """A client that was let in: its right to ask, the session, and the parameters that it began with."""

    right: Right
    record: SessionRecord
    parameters: dict[str, str]


@dataclass(frozen=True)
class Secured:
    """The TLS of the listener.

    Args:
        context: with the server's certificate.
        binding: the certificate's digest, to which a client may bind its proof; None where its algorithm has none.
        certified: whether clients must have certificates, too; then the CN is the analyst.
    """

    context: ssl.SSLContext
    binding: bytes | None
    certified: bool


def read_first(stream: Stream, secured: Secured | None) -> tuple[int, bytes, bool]:
    """Return the code and the rest of a client's first message, after TLS where it asks for that.

    Raises:
        ProtocolError: it is no such message. NotLetIn: it came without TLS, and there is TLS alone.
    """
    asked: set[int] = set()
    while True:
        (size,) = struct.unpack(">i", stream.take(4))
        if not 8 <= size <= messages.MAX_STARTUP:
            raise ProtocolError("this is no startup message.")
        body = stream.take(size - 4)
        (code,) = struct.unpack(">i", body[:4])
        if code not in (messages.SSL_REQUEST, messages.GSS_REQUEST):
            return code, body[4:], messages.SSL_REQUEST in asked and secured is not None
        if code in asked or len(body) != 4 or (stream.secured and code == messages.SSL_REQUEST):
            raise ProtocolError("this is no startup message.")
        asked.add(code)
        if code == messages.SSL_REQUEST and secured is not None:
            if stream.has_more:
                raise ProtocolError("something came before TLS began.")
            stream.send(b"S")
            stream.secure(secured.context)
        else:
            stream.send(b"N")


def log_in(
    stream: Stream,
    body: bytes,
    version: int,
    served: Sequence[ServedPolicy],
    secured: Secured | None,
    peer: str,
    log: EventLog,
) -> LoggedIn:
    """Let a client in that proves to have an analyst's token.

    Args:
        stream: to the client.
        body: its startup message behind the version.
        version: the protocol's.
        served: the policies; ``database`` names one of them.
        secured: the listener's TLS.
        peer: the client's address, as gRPC writes addresses.
        log: where refusals are written.

    Raises:
        ProtocolError, ScramError: it breaks the protocol. NotLetIn: with the reason.
    """
    if version >> 16 != 3:
        raise NotLetIn(reports.NOT_SUPPORTED, "this server speaks version 3 of the protocol.")
    parameters = messages.read_startup(body)
    options = [name for name in parameters if name.startswith("_pq_.")]
    if version & 0xFFFF or options:
        listed = b"".join(write_text(name) for name in options)
        stream.send(messages.write(b"v", struct.pack(">ii", 0, len(options)), listed))
    if secured is not None and not stream.secured:
        raise NotLetIn(
            reports.NO_AUTHORIZATION, "this server speaks TLS alone.", "sslmode=verify-full, or require."
        )
    user, database = parameters.get("user", ""), parameters.get("database", "")
    if parameters.get("replication", "false").lower() not in ("false", "off", "no", "0"):
        raise NotLetIn(reports.NOT_SUPPORTED, "there is nothing to replicate here.")
    chosen = _find_policy(served, user, database)
    held = _prove(stream, user, chosen, served, secured, peer, log)
    if chosen is None:
        names = ", ".join(one.name for one in served if one.find_token(user) is not None)
        raise NotLetIn(reports.NO_DATABASE, "there is no such database.", f"yours are: {names}.")
    if parameters.get("client_encoding", "").strip("'\"").lower() not in _ENCODINGS:
        raise NotLetIn(reports.NOT_SUPPORTED, "texts are in UTF-8 here.", "PGCLIENTENCODING=UTF8")
    identity = identify_holder(held)
    if identity is None:
        raise NotLetIn(reports.NO_PASSWORD, _WRONG, _WRONG_HINT)
    try:
        right = Right.of(chosen, identity)
    except RightError as refusal:
        raise NotLetIn(reports.NO_AUTHORIZATION, str(refusal)) from None
    try:
        record = right.desk.open(right.mark)
    except Refused as refusal:
        raise NotLetIn(reports.TOO_MANY, str(refusal)) from None
    return LoggedIn(right, record, parameters)


def _find_policy(served: Sequence[ServedPolicy], user: str, database: str) -> ServedPolicy | None:
    """Return the policy of a database's name; where a tool names none of its own, the first that knows the user."""
    named = next((one for one in served if fold(one.name) == fold(database)), None)
    if named is not None or not (database in _DEFAULT_DATABASES or fold(database) == fold(user)):
        return named
    return next((one for one in served if one.find_token(user) is not None), served[0])


def _prove(
    stream: Stream,
    user: str,
    chosen: ServedPolicy | None,
    served: Sequence[ServedPolicy],
    secured: Secured | None,
    peer: str,
    log: EventLog,
) -> TokenRecord | None:
    """Let the client prove that it has the user's token, and return the record of the token that it has proved.

    Raises:
        NotLetIn: it has not.
    """
    place = chosen if chosen is not None else _find_policy(served, user, "") or served[0]
    held = place.find_token(user)
    verifier = (
        Verifier.read(held.scram)
        if held is not None and held.scram
        else Verifier.make_mock(_MOCK_SECRET, user)
    )
    binding = secured.binding if secured is not None else None
    exchange = ScramExchange(verifier, binding)
    mechanisms = [*([MECHANISM_BOUND] if binding is not None else []), MECHANISM]
    stream.send(write_request(10, *(write_text(name) for name in mechanisms), b"\0"))
    reader = MessageReader(stream.take_message({b"p": messages.MAX_PASSWORD})[1])
    mechanism, size = reader.name(), reader.int32()
    try:
        stream.send(write_request(11, exchange.begin(mechanism, reader.take(size))))
        final = exchange.finish(stream.take_message({b"p": messages.MAX_PASSWORD})[1])
    except ScramError:
        final = b""
    if final and secured is not None and secured.certified and fold(stream.common_name) != fold(user):
        log.write("refused certificate", address=shorten_address(peer))
        raise NotLetIn(reports.NO_AUTHORIZATION, "the token and the certificate are of two analysts.")
    if final:
        stream.send(write_request(12, final) + write_request(0))
        return held
    away = max(one.seconds_turned_away(peer) for one in served)
    for one in served:
        one.note_wrong_token(peer)
    old = held is not None and not held.scram
    why = "a token from before the PostgreSQL port: dpsql analyst rotate" if old else None
    log.write("refused token", address=shorten_address(peer), why=why)
    raise NotLetIn(reports.NO_PASSWORD, _AWAY if away else _WRONG, "" if away else _WRONG_HINT)
