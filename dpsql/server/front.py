"""The front: an Arrow Flight server that knows who asks, and passes what they ask on to the worker of their desk, unread.

Actions ``dpsql.open``, ``dpsql.close`` and ``dpsql.interrupt`` are its own; every other ``dpsql.`` action goes to a worker. It
neither parses a statement nor opens the data. Errors of ours travel inside the reply. A Flight error is one fixed sentence:
pyarrow sends the traceback of any exception to the client, with paths and values, unless it is one of Flight's own, so
every handler and every generator is run inside :func:`_guarded`.

The headers of a call: who asks, by a token, and which session of theirs it is about.

    authorization: Bearer TOKEN                     dpsql's own client, ADBC, JDBC with a token
    authorization: Basic base64(ANALYST:TOKEN)      clients that know a user and a password only; padding may be missing

Clients that send the second form shake hands first, and go on with the token that they are told then.
"""

from __future__ import annotations

import base64
import binascii
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.flight as flight

from dpsql.client.wire import (
    PROTOCOL,
    Message,
    WireError,
    decode,
    encode,
    get_field,
    pack_messages,
    write_error,
)
from dpsql.errors import Error
from dpsql.server.arrivals import Arrivals, SocketWatch, log_dropped
from dpsql.server.desks import SessionRecord
from dpsql.server.event_log import EventLog, name_place
from dpsql.server.flight_sql.messages import is_flight_sql
from dpsql.server.flight_sql.service import ACTIONS, FlightSqlService
from dpsql.server.lapses import Lapse, Refused, RightError
from dpsql.server.rights import Right
from dpsql.server.served import ServedPolicy
from dpsql.server.tokens import shorten_address

MAX_HEADER = 4096
NO_TOKEN = "no valid token; the owner gives one: dpsql analyst add."


class CallHeaders(flight.ServerMiddleware):  # type: ignore[misc]
    """The headers that we read.

    Args:
        token: the token; empty where there is none.
        session: the handle of a session of a dpsql client.
        user: the analyst's name, where the token came as a password; empty otherwise.
    """

    def __init__(self, token: str = "", session: str = "", user: str = "") -> None:
        self.token, self.session, self.user = token, session, user
        self._told: dict[str, str] = {}

    def tell_token(self) -> None:
        """Let the reply name the token, for a client that sends it from then on."""
        self._told = {"authorization": f"Bearer {self.token}"}

    def sending_headers(self) -> dict[str, str]:
        """Return what the reply's headers add."""
        return self._told


class HeaderReader(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """A collector of headers for the handlers. Its only exception is Flight's own: others would reach the client as they are.

    Args:
        greet: called with the token and the user of a client that shakes hands; it raises a Flight error where they are nobody's.
    """

    def __init__(self, greet: Callable[[str, str], None]) -> None:
        self._greet = greet

    def start_call(self, info: Any, headers: Any) -> CallHeaders:
        """Return the headers of a call, empty where they are missing or odd.

        Raises:
            FlightError: a client shakes hands with a token that gives no right to ask.
        """
        try:
            token, user = read_authorization(_first(headers, "authorization"))
            read = CallHeaders(token, _first(headers, "dpsql-session"), user)
        except Exception:
            read = CallHeaders()
        if info.method == flight.FlightMethod.HANDSHAKE:
            self._greet(read.token, read.user)
            read.tell_token()
        return read


class HandshakeAnswer(flight.ServerAuthHandler):  # type: ignore[misc]
    """The answer to a handshake, which says nothing itself: headers tell who asks, in each call."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Let a handshake end."""

    def is_valid(self, token: bytes) -> bytes:
        """Leave a call to its handler, which reads the headers."""
        return b""


def read_authorization(value: str) -> tuple[str, str]:
    """Return the token and the user of an authorization header; both are empty where it is none.

    >>> read_authorization("Bearer dpsql_x"), read_authorization("Basic YWRhOmRwc3FsX3g")
    (('dpsql_x', ''), ('dpsql_x', 'ada'))
    """
    scheme, _, rest = value.partition(" ")
    rest = rest.strip()
    if scheme.lower() == "bearer":
        return rest, ""
    if scheme.lower() != "basic":
        return "", ""
    try:
        bare = rest.rstrip("=")
        user, _, token = (
            base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True).decode().partition(":")
        )
    except (binascii.Error, ValueError):
        return "", ""
    return (token, user) if user else ("", "")


def _first(headers: Mapping[str, Sequence[object]], name: str) -> str:
    """Return the value of a header that is given once and is no longer than it may be."""
    found = next((values for key, values in headers.items() if key.lower() == name), [])
    value = found[0] if len(found) == 1 else ""
    return value if isinstance(value, str) and len(value) <= MAX_HEADER else ""


PREFIX = "dpsql."
_MIDDLEWARE = "dpsql"
_FAILED = "the server could not do this, for a reason that it keeps to itself."
_NO_ANALYST = (
    "your certificate is of no analyst of this server; its CN is the name that the owner's policy has."
)
_ANOTHERS_TOKEN = "the token and the certificate are of two analysts."
_WHICH_POLICY = "several policies of this server know you; send the token of the one that you mean."
_TURNED_AWAY = "too many wrong tokens came from your address; wait some seconds."
_NOT_SERVED = "this server answers clients of dpsql and of Flight SQL."
_NO_MESSAGE = "this is no message of a dpsql client."
_OLD_CLIENT = "the client and the server are of different versions; install the server's."


class Front(flight.FlightServerBase):  # type: ignore[misc]
    """The Flight server.

    Args:
        location: where it listens, as Flight writes it.
        served: the policies; a token belongs to one of them.
        log: where events are written.
        certificates: pairs of a TLS certificate and its key.
        client_authority: certificates, in PEM, of those who sign analysts' own; without one of these nobody is let in then.
    """

    def __init__(
        self,
        location: str,
        served: Sequence[ServedPolicy],
        log: EventLog,
        certificates: Sequence[tuple[bytes, bytes]] | None = None,
        client_authority: bytes | None = None,
    ) -> None:
        self._served, self._log = served, log
        self._certified = client_authority is not None
        self._flight_sql = FlightSqlService()
        self._watch: SocketWatch | None = None
        self._has_port = not location.startswith("grpc+unix:")
        super().__init__(
            location,
            tls_certificates=list(certificates) if certificates else None,
            verify_client=self._certified,
            root_certificates=client_authority,
            middleware={_MIDDLEWARE: HeaderReader(self._greet)},
            # with one, pyarrow would not tell the names in certificates
            auth_handler=None if self._certified else HandshakeAnswer(),
        )

    def look_at_connections(self) -> None:
        """Drop connections that have not proved whose they are: those that took too long, and the oldest of too many.

        A socket of the file system needs no such look: its folder's mode says who may use it.
        """
        if self._has_port:
            if self._watch is None:
                self._watch = SocketWatch(self.port, Arrivals(partial(log_dropped, self._log), "Flight"))
            self._watch.look()

    # -- actions ------------------------------------------------------------------------------------------------

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Answer an action: each result is a message."""
        return _guarded_stream(self._log, lambda: self._act(context, action))

    def _act(self, context: Any, action: Any) -> Iterator[Any]:
        caller = self._authenticate(context)
        kind, body = str(action.type), action.body
        if kind in ACTIONS:
            yield from self._act_for_flight_sql(caller, context, kind, body)
            return
        if not kind.startswith(PREFIX):
            raise flight.FlightServerError(_NOT_SERVED)
        operation = kind[len(PREFIX) :][:40]
        perform = OWN_ACTIONS.get(operation)
        try:
            caller.take(len(body), counts=operation != "interrupt")
        except RightError as refusal:
            if refusal.lapse is not Lapse.TOO_LARGE:
                raise
            yield flight.Result(encode(write_error(Error(str(refusal)))))
            return
        content = body.to_pybytes()
        replies = (
            self._pass_on(caller, context, operation, content)
            if perform is None
            else pack_messages([*perform(self, caller, context, content)])
        )
        for reply in replies:
            yield flight.Result(reply)

    def _open(self, caller: Right, context: Any, body: bytes) -> Iterator[bytes]:
        from dpsql import __version__

        head = decode(body).head
        if get_field(head, "protocol", int, 0) != PROTOCOL:
            yield encode(write_error(Error(_OLD_CLIENT, hint=f"pip install dpsql=={__version__}")))
            return
        desk = caller.desk
        record = desk.open(caller.mark)
        policy = desk.edition.policy
        self._log.write("open", analyst=desk.analyst, session=record.log_name, policy=caller.served.name)
        yield encode(
            Message(
                {
                    "kind": "value",
                    "protocol": PROTOCOL,
                    "session": record.handle,
                    "analyst": desk.analyst,
                    "catalog": caller.served.name,
                    "policy": policy.for_analyst(desk.analyst).dumps(),
                    "version": __version__,
                    "answers": policy.budget.answers,
                    "answer_times": [float(item) for item in policy.server.answer_times],
                    "expires": caller.expires,
                }
            )
        )
        yield _END

    def _close(self, caller: Right, context: Any, body: bytes) -> Iterator[bytes]:
        record = self._find_session(caller, context)
        caller.desk.close_session(record)
        self._log.write(
            "close", analyst=caller.desk.analyst, session=record.log_name, policy=caller.served.name
        )
        yield _END

    def _interrupt(self, caller: Right, context: Any, body: bytes) -> Iterator[bytes]:
        record = self._find_session(caller, context)
        stopped = caller.desk.interrupt(record.handle)
        yield encode(Message({"kind": "value", "stopped": stopped}))
        yield _END

    def _pass_on(self, caller: Right, context: Any, operation: str, body: bytes) -> Iterator[bytes]:
        desk = caller.desk
        record = self._find_session(caller, context)
        call = desk.make_call(operation, record.handle)
        call.is_abandoned = context.is_cancelled
        yield from desk.answer_and_log(call, record, body)

    # -- who asks -----------------------------------------------------------------------------------------------

    def _authenticate(self, context: Any) -> Right:
        """Return who calls.

        Raises:
            FlightUnauthenticatedError: the token or the certificate is wrong, or the address is turned away.
            RightError: the analyst is paused, or has no share in the policy.
        """
        peer = context.peer()
        peer = peer.decode(errors="replace") if isinstance(peer, bytes) else str(peer)
        right = self._find_right(context, peer)
        if self._watch is not None:
            self._watch.note_known(peer)
        return right

    def _find_right(self, context: Any, peer: str) -> Right:
        """Return the right of who calls, by the token or the certificate."""
        headers = context.get_middleware(_MIDDLEWARE)
        token, user = (headers.token, headers.user) if headers is not None else ("", "")
        certified = self._read_common_name(context) if self._certified else None
        if certified is not None and not token:
            return self._find_certified(certified, peer)
        turned_away = max(served.seconds_turned_away(peer) for served in self._served)
        for served in self._served:
            identity = served.identify(token, peer)
            if identity is None or user not in ("", identity.name):
                continue
            if certified is not None and certified != identity.name:
                self._log.write("refused certificate", analyst=certified, address=shorten_address(peer))
                raise flight.FlightUnauthenticatedError(_ANOTHERS_TOKEN)
            return Right.of(served, identity)
        if turned_away:
            raise flight.FlightUnauthenticatedError(_TURNED_AWAY)
        self._log.write("refused token", address=shorten_address(peer))
        raise flight.FlightUnauthenticatedError(NO_TOKEN)

    def _greet(self, token: str, user: str) -> None:
        """Shake hands with the holder of a token, who is the named analyst where one is named.

        Raises:
            FlightError: nobody holds it who may ask now.
        """

        def answer() -> None:
            found = [(served, served.tokens.identify(token)) for served in self._served]
            held = [(served, one) for served, one in found if one is not None and user in ("", one.name)]
            if not held:
                raise flight.FlightUnauthenticatedError(NO_TOKEN)
            Right.of(*held[0])

        _guarded(self._log, answer)

    def _read_common_name(self, context: Any) -> str:
        """Return the common name of the caller's certificate, which the TLS handshake has proved; empty where it has none.

        gRPC tells a subject alternative name in its place where the certificate has one. So the authority of analysts must
        sign none: the certificate is of whom it is told to be of.
        """
        told = context.peer_identity()
        return told.decode(errors="replace") if isinstance(told, bytes) else str(told or "")

    def _find_certified(self, name: str, peer: str) -> Right:
        """Return the analyst of a certificate that came without a token. Removed and expired tokens end it, too.

        Raises:
            FlightUnauthenticatedError: it is nobody's, or several policies know the name.
        """
        known = [(served, served.find_holder(name)) for served in self._served]
        found = [(served, identity) for served, identity in known if identity is not None]
        if len(found) == 1:
            return Right.of(*found[0])
        self._log.write("refused certificate", analyst=name, address=shorten_address(peer))
        raise flight.FlightUnauthenticatedError(_WHICH_POLICY if found else _NO_ANALYST)

    def _find_session(self, caller: Right, context: Any) -> SessionRecord:
        headers = context.get_middleware(_MIDDLEWARE)
        return caller.desk.find(headers.session if headers is not None else "")

    # -- Flight SQL ---------------------------------------------------------------------------------------------

    def _act_for_flight_sql(self, caller: Right, context: Any, kind: str, body: Any) -> Iterator[Any]:
        caller.take(len(body), counts=not kind.startswith("Cancel"))
        for answer in self._flight_sql.act(caller, context, kind, body.to_pybytes()):
            yield flight.Result(answer)

    def _admit_command(self, context: Any, command: bytes | None) -> Right:
        """Return who asks, where a command or a ticket is one of Flight SQL.

        Raises:
            FlightError: it is none, or its analyst may not ask it now.
        """
        caller = self._authenticate(context)
        if not command or not is_flight_sql(command):
            raise flight.FlightServerError(_NOT_SERVED)
        caller.take(len(command))
        return caller

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Tell where the rows of a command of Flight SQL are."""

        def answer() -> Any:
            return self._flight_sql.make_info(self._admit_command(context, descriptor.command), descriptor)

        return _guarded(self._log, answer)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Return the columns of a command of Flight SQL, and none to everybody else.

        Of this call alone pyarrow sends a traceback for Flight's own errors, too; :func:`withhold_tracebacks` holds it back, and
        who has no token gets no error at all.
        """

        def answer() -> Any:
            caller = self._admit_command(context, descriptor.command)
            return flight.SchemaResult(self._flight_sql.find_schema(caller, context, descriptor))

        try:
            self._authenticate(context)
        except Exception:
            return _NO_SCHEMA
        if not is_flight_sql(descriptor.command or b""):
            return _NO_SCHEMA
        return _guarded(self._log, answer)

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Return the rows of a command of Flight SQL."""

        def answer() -> Any:
            data = ticket.ticket
            return self._flight_sql.fetch(self._admit_command(context, data), context, data)

        return _guarded(self._log, answer)

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> Any:
        """Take the values of parameters from a Flight SQL client."""

        def answer() -> Any:
            caller = self._admit_command(context, descriptor.command)
            return self._flight_sql.put(caller, context, descriptor, reader, writer)

        return _guarded(self._log, answer)

    def list_actions(self, context: Any) -> Any:
        """List the actions of Flight SQL."""
        _guarded(self._log, lambda: self._authenticate(context))
        return list(ACTIONS.items())

    # -- what is not served -------------------------------------------------------------------------------------

    def list_flights(self, context: Any, criteria: Any) -> Any:
        """Refuse, with a fixed sentence."""
        return _guarded(self._log, lambda: self._refuse(context))

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> Any:
        """Refuse, with a fixed sentence."""
        return _guarded(self._log, lambda: self._refuse(context))

    def _refuse(self, context: Any) -> NoReturn:
        self._authenticate(context)
        raise flight.FlightServerError(_NOT_SERVED)


OWN_ACTIONS: dict[str, Callable[[Front, Right, Any, bytes], Iterator[bytes]]] = {
    "open": Front._open,
    "close": Front._close,
    "interrupt": Front._interrupt,
}
"""The actions of dpsql's own clients that the front does by itself; all others go to a worker."""


def withhold_tracebacks() -> None:
    """Let this process write no traceback as text, for good: pyarrow would send one for what goes wrong before a handler runs.

    A header that is no ASCII is enough. The class and the words of such an exception still arrive; they are about what the
    client has sent.
    """
    traceback.format_exception = _format_nothing


def _format_nothing(*given: object, **named: object) -> list[str]:
    return []


def _guarded(log: EventLog, work: Callable[[], Any]) -> Any:
    """Do work, and let out only what is meant for a client.

    Raises:
        FlightError: one of ours, or the fixed sentence.
    """
    said: flight.FlightError
    try:
        return work()
    except RightError as refusal:
        said = _LAPSES.get(refusal.lapse, flight.FlightServerError)(str(refusal))
    except Refused as refusal:
        said = flight.FlightServerError(str(refusal))
    except WireError:
        said = flight.FlightServerError(_NO_MESSAGE)
    except (
        flight.FlightUnauthenticatedError,
        flight.FlightUnauthorizedError,
        flight.FlightUnavailableError,
    ) as error:
        said = type(error)(str(error))
    except flight.FlightServerError as error:
        said = flight.FlightServerError(str(error))
    except Exception as error:
        log.write("failure", why=name_place(error))
        said = flight.FlightServerError(_FAILED)
    raise said


def _guarded_stream(log: EventLog, work: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Yield what a generator yields, guarded at each step."""
    steps = _guarded(log, work)
    try:
        while (step := _guarded(log, lambda: next(steps, None))) is not None:
            yield step
    finally:
        _guarded(log, steps.close)


_LAPSES: dict[Lapse, type[flight.FlightError]] = {
    Lapse.ENDED: flight.FlightUnauthenticatedError,
    Lapse.NO_SHARE: flight.FlightUnauthorizedError,
    Lapse.PAUSED: flight.FlightUnauthorizedError,
    Lapse.TOO_MANY: flight.FlightUnavailableError,
}
"""How Flight tells that a right does not hold."""
_NO_SCHEMA = flight.SchemaResult(pa.schema([]))
_END = encode(Message({"kind": "end"}))
