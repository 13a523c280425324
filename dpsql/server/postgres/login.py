"""The login of a PostgreSQL client: TLS, its startup message, and the proof of an analyst's token.

A failed login gets one of a few fixed sentences, which don't depend on whether the analyst exists. This module stands apart
from :mod:`dpsql.server.postgres.connection`, which handles clients after login.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Sequence

from dpsql.late_dataclass import dataclass
from dpsql.policy.validate import fold
from dpsql.server.analyst_tokens import Identity, TokenRecord, identify_holder
from dpsql.server.connections import Tls, shorten_address
from dpsql.server.event_log import EventLog
from dpsql.server.postgres import messages
from dpsql.server.postgres.authentication import (
    MECHANISM,
    MECHANISM_BOUND,
    ScramError,
    ScramExchange,
    Verifier,
)
from dpsql.server.postgres.messages import (
    MessageReader,
    ProtocolError,
    RefusedMessage,
    Stream,
    refuse_message,
    write_request,
    write_text,
)
from dpsql.server.queues import SessionRecord
from dpsql.server.rights import ANOTHERS_TOKEN, Refused, RightError
from dpsql.server.served import Right, ServedPolicy

_MOCK_SECRET = secrets.token_bytes(32)
_WRONG = "no valid token of this analyst."
_WRONG_HINT = "the user is the analyst, the password the token. The owner makes one: dpsql analyst add."
PROVIDER_USER = "oidc"
"""The user of a client whose password is a token of the identity provider; the token has the name."""
_DEFAULT_DATABASES = frozenset({"", "postgres", "template1"})
_ENCODINGS = frozenset({"", "utf8", "utf-8", "unicode", "sql_ascii"})


def refuse_login(state: str, sentence: object, hint: str = "") -> RefusedMessage:
    """Return the refusal of a login, for one of a few fixed reasons; the connection ends with it."""
    return refuse_message(state, sentence, hint, last=True)


@dataclass(frozen=True)
class LoggedIn:
    """A logged-in client: its right, its session, and its startup parameters."""

    right: Right
    record: SessionRecord
    parameters: dict[str, str]


def read_first(stream: Stream, tls: Tls | None) -> tuple[int, bytes]:
    """Return the code and the rest of a client's first message, under TLS if requested; ProtocolError if invalid."""
    asked: set[int] = set()
    while True:
        (size,) = struct.unpack(">i", stream.take(4))
        if not 8 <= size <= messages.MAX_STARTUP:
            raise ProtocolError("this is no startup message.")
        body = stream.take(size - 4)
        (code,) = struct.unpack(">i", body[:4])
        if code not in (messages.SSL_REQUEST, messages.GSS_REQUEST):
            return code, body[4:]
        if code in asked or len(body) != 4 or (stream.secured and code == messages.SSL_REQUEST):
            raise ProtocolError("this is no startup message.")
        asked.add(code)
        if code == messages.SSL_REQUEST and tls is not None:
            if stream.has_more:
                raise ProtocolError("the client sent data before TLS began.")
            stream.send(b"S")
            stream.secure(tls.context)
        else:
            stream.send(b"N")


class Login:
    """The login of one client.

    Args:
        stream: the client's bytes.
        served: the policies; ``database`` names one of them.
        tls: the listener's certificates; None without TLS.
        peer: the client's address, as gRPC writes addresses.
        log: gets refusals.
    """

    def __init__(
        self,
        stream: Stream,
        served: Sequence[ServedPolicy],
        tls: Tls | None,
        peer: str,
        log: EventLog,
    ) -> None:
        self._stream, self._served, self._tls = stream, served, tls
        self._peer, self._log = peer, log

    def run(self, body: bytes, version: int) -> LoggedIn:
        """Return the logged-in client, if it proves that it has an analyst's token.

        Args:
            body: its startup message after the version.
            version: the protocol's.

        Raises:
            ProtocolError, ScramError: the client breaks the protocol. RefusedMessage: the login fails.
        """
        if version >> 16 != 3:
            raise refuse_login(messages.NOT_SUPPORTED, "this server supports version 3 of the protocol only.")
        parameters = messages.read_startup(body)
        options = [name for name in parameters if name.startswith("_pq_.")]
        if version & 0xFFFF or options:
            listed = b"".join(write_text(name) for name in options)
            self._stream.send(messages.write(b"v", struct.pack(">ii", 0, len(options)), listed))
        if self._tls is not None and not self._stream.secured:
            raise refuse_login(
                messages.NO_AUTHORIZATION, "this server requires TLS.", "sslmode=verify-full, or require."
            )
        user, database = parameters.get("user", ""), parameters.get("database", "")
        if parameters.get("replication", "false").lower() not in ("false", "off", "no", "0"):
            raise refuse_login(messages.NOT_SUPPORTED, "replication isn't supported.")
        chosen = _find_policy(self._served, user, database)
        identity: Identity | None
        if user == PROVIDER_USER and any(one.edition.reader is not None for one in self._served):
            chosen, identity = self._prove_by_provider(chosen, database)
        else:
            identity = identify_holder(self._prove(user, chosen))
        if chosen is None:
            names = ", ".join(one.name for one in self._served if one.find_token(user) is not None)
            raise refuse_login(messages.NO_DATABASE, "there is no such database.", f"you may use: {names}.")
        if parameters.get("client_encoding", "").strip("'\"").lower() not in _ENCODINGS:
            raise refuse_login(messages.NOT_SUPPORTED, "only UTF-8 is supported.", "PGCLIENTENCODING=UTF8")
        if identity is None:
            raise refuse_login(messages.NO_PASSWORD, _WRONG, _WRONG_HINT)
        try:
            right = Right.of(chosen, identity)
        except RightError as refusal:
            raise refuse_login(messages.NO_AUTHORIZATION, refusal) from None
        try:
            record = right.queue.open(right.mark, right.member)
        except Refused as refusal:
            raise refuse_login(messages.TOO_MANY, refusal) from None
        return LoggedIn(right, record, parameters)

    def _prove(self, user: str, chosen: ServedPolicy | None) -> TokenRecord | None:
        """Return the record of the user's token, after the client has proved that it has it."""
        stream = self._stream
        place = chosen if chosen is not None else _find_policy(self._served, user, "") or self._served[0]
        held = place.find_token(user)
        verifier = Verifier.make_mock(_MOCK_SECRET, user) if held is None else Verifier.read(held.scram)
        binding = self._tls.binding if self._tls is not None else None
        exchange = ScramExchange(verifier, binding)
        mechanisms = [*([MECHANISM_BOUND] if binding is not None else []), MECHANISM]
        stream.send(write_request(10, *(write_text(name) for name in mechanisms), b"\0"))
        reader = MessageReader(stream.take_message({b"p": messages.MAX_PASSWORD})[1])
        mechanism, size = reader.name(), reader.int32()
        try:
            stream.send(write_request(11, exchange.begin(mechanism, reader.take(size))))
            final = exchange.finish(stream.take_message({b"p": messages.MAX_PASSWORD})[1])
        except ScramError:
            raise self._refuse_token() from None
        self._check_certificate(user)
        stream.send(write_request(12, final) + write_request(0))
        return held

    def _prove_by_provider(self, chosen: ServedPolicy | None, database: str) -> tuple[ServedPolicy, Identity]:
        """Return the policy and the analyst of an identity provider's token, which the client sends as it is.

        The client is asked for it only if nobody else can read it: over TLS, or on a Unix socket.
        """
        if not (self._stream.secured or self._peer.startswith("unix:")):
            sentence = "a token of the identity provider is taken over TLS or a Unix socket only."
            raise refuse_login(
                messages.NO_AUTHORIZATION, sentence, "sslmode=verify-full, if the server has TLS."
            )
        self._stream.send(write_request(3))
        body = self._stream.take_message({b"p": messages.MAX_PROVIDER_TOKEN})[1]
        token = body.removesuffix(b"\0").decode(errors="replace")
        anywhere = database in _DEFAULT_DATABASES or database == PROVIDER_USER
        for one in self._served if anywhere else filter(None, [chosen]):
            identity = one.find_by_provider(token)
            if identity is not None:
                self._check_certificate(identity.name)
                self._stream.send(write_request(0))
                return one, identity
        raise self._refuse_token()

    def _check_certificate(self, name: str) -> None:
        """Raise an error if clients have certificates, and this client's is another analyst's."""
        certified = self._tls is not None and self._tls.authority is not None
        if certified and fold(self._stream.common_name) != fold(name):
            self._log.write("refused certificate", address=shorten_address(self._peer))
            raise refuse_login(messages.NO_AUTHORIZATION, ANOTHERS_TOKEN)

    def _refuse_token(self) -> RefusedMessage:
        """Log a wrong token, and return the error for its client."""
        self._log.write("refused token", address=shorten_address(self._peer))
        return refuse_login(messages.NO_PASSWORD, _WRONG, _WRONG_HINT)


def _find_policy(served: Sequence[ServedPolicy], user: str, database: str) -> ServedPolicy | None:
    """Return the policy of a database's name; for a tool's default name, the first policy that has the user."""
    named = next((one for one in served if fold(one.name) == fold(database)), None)
    if named is not None or not (database in _DEFAULT_DATABASES or fold(database) == fold(user)):
        return named
    return next((one for one in served if one.find_token(user) is not None), served[0])
