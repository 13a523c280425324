"""The front: an Arrow Flight server that authenticates each call, and passes it to the analyst's worker unread.

It answers the actions ``dpsql.open``, ``dpsql.close`` and ``dpsql.interrupt`` itself; every other ``dpsql.`` action goes to a
worker. The front neither parses a statement nor opens the data. A reply carries errors of ours. A Flight error is one fixed
sentence: pyarrow would send the client the traceback of any other exception, with paths and values. So every handler
and every generator runs inside :func:`_guarded`.

Headers of a call:

    authorization: Bearer TOKEN                     dpsql's own client, ADBC, JDBC with a token
    authorization: Basic base64(ANALYST:TOKEN)      clients with a user and a password only; padding may be missing
    dpsql-session: HANDLE                           dpsql's own client

Clients that send the second form shake hands first, and continue with the token from the reply.
"""

from __future__ import annotations

import base64
import binascii
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from dpsql.client.wire import (
    PROTOCOL,
    Message,
    WireError,
    decode,
    encode,
    get_field,
    make_value,
    waiting_in_place,
    write_error,
)
from dpsql.errors import BindError, Error, ParseError, PrivacyError, ServerError
from dpsql.server.analyst_tokens import Identity
from dpsql.server.connections import (
    SOCKET_MASK,
    Arrivals,
    SocketWatch,
    Tls,
    clear_socket,
    log_dropped,
    shorten_address,
)
from dpsql.server.event_log import EventLog, name_place
from dpsql.server.flight.flight_sql import ACTIONS, FlightSqlService, write_flight_error
from dpsql.server.flight.protobuf import MissingProtobuf, NotFlightSql, is_flight_sql
from dpsql.server.queues import SessionRecord
from dpsql.server.rights import ANOTHERS_TOKEN, FAILED, Lapse, Refused, RightError, count_body_bytes
from dpsql.server.served import Right, ServedPolicy

MAX_HEADER = 8192
NO_TOKEN = "no valid token; the owner gives one: dpsql analyst add."


class CallHeaders(flight.ServerMiddleware):  # type: ignore[misc]
    """The headers of a call.

    Args:
        token: empty if there is none.
        session: the handle of a dpsql client's session.
        user: the analyst's name if the token came as a password; empty otherwise.
    """

    def __init__(self, token: str = "", session: str = "", user: str = "") -> None:
        self.token, self.session, self.user = token, session, user
        self._added: dict[str, str] = {}

    def return_token(self) -> None:
        """Add the token to the reply's headers, for a client that sends it from then on."""
        self._added = {"authorization": f"Bearer {self.token}"}

    def sending_headers(self) -> dict[str, str]:
        """Return the additional headers of the reply."""
        return self._added


class HeaderReader(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Collects headers for the handlers. It raises only Flight's own exceptions, since others would reach the client.

    Args:
        greet: called with the token and the user of a handshake; raises a Flight error if the token is invalid.
    """

    def __init__(self, greet: Callable[[str, str], None]) -> None:
        self._greet = greet

    def start_call(self, info: Any, headers: Any) -> CallHeaders:
        """Return the headers of a call, empty if they are missing or invalid.

        Raises:
            FlightError: a handshake has a token without a right to ask.
        """
        try:
            token, user = read_authorization(_first(headers, "authorization"))
            read = CallHeaders(token, _first(headers, "dpsql-session"), user)
        except Exception:
            read = CallHeaders()
        if info.method == flight.FlightMethod.HANDSHAKE:
            self._greet(read.token, read.user)
            read.return_token()
        return read


class HandshakeAnswer(flight.ServerAuthHandler):  # type: ignore[misc]
    """Accepts every handshake and call, since handlers check the headers of each call."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Accept a handshake."""

    def is_valid(self, token: bytes) -> bytes:
        """Accept a call; its handler reads the headers."""
        return b""


def read_authorization(value: str) -> tuple[str, str]:
    """Return the token and the user of an authorization header; both are empty if it is invalid.

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
    """Return the value of a header; empty if it is missing, repeated or too long."""
    found = next((values for key, values in headers.items() if key.lower() == name), [])
    value = found[0] if len(found) == 1 else ""
    return value if isinstance(value, str) and len(value) <= MAX_HEADER else ""


PREFIX = "dpsql."
_MIDDLEWARE = "dpsql"
_NO_ANALYST = "your certificate names no analyst of this server; its CN must be the analyst's name in the owner's policy."
_WHICH_POLICY = "several policies of this server have you as an analyst; send the token of one."
_NOT_SERVED = "this server answers clients of dpsql and of Flight SQL only."
_NO_MESSAGE = "the message is not one of a dpsql client."
_OLD_CLIENT = "the client and the server have different versions; install the server's."


def _safe(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of the front that raises nothing but exceptions that are safe for a client."""

    @wraps(method)
    def run(front: Front, *given: Any) -> Any:
        return _guarded(front._log, lambda: method(front, *given))

    return run


class Front(flight.FlightServerBase):  # type: ignore[misc]
    """The Flight server.

    Args:
        location: the address, as Flight writes it.
        served: the policies; a token belongs to one of them.
        log: gets events.
        tls: the certificates; None on loopback and Unix sockets.
        before: the server that had the address before, with its Flight SQL sessions and its known connections.
    """

    def __init__(
        self,
        location: str,
        served: Sequence[ServedPolicy],
        log: EventLog,
        tls: Tls | None = None,
        before: Front | None = None,
    ) -> None:
        self._served, self._log = served, log
        self._certified = tls is not None and tls.authority is not None
        self._flight_sql: FlightSqlService = FlightSqlService() if before is None else before._flight_sql
        self._watch: SocketWatch | None = None if before is None else before._watch
        super().__init__(
            location,
            tls_certificates=[(tls.certificate, tls.key)] if tls is not None else None,
            verify_client=self._certified,
            root_certificates=tls.authority if tls is not None else None,
            middleware={_MIDDLEWARE: HeaderReader(self._greet)},
            # with a handler, pyarrow would hide the names in certificates
            auth_handler=None if self._certified else HandshakeAnswer(),
        )
        if self._watch is None and not location.startswith(_UNIX):
            arrivals = Arrivals(partial(log_dropped, log), "Flight")
            self._watch = SocketWatch(self.port, arrivals, self._find_most)

    def look_at_connections(self) -> None:
        """Drop connections that are slow to log in, and the oldest of too many; a Unix socket is limited by its folder's mode."""
        if self._watch is not None:
            self._watch.look()

    def _find_most(self) -> int:
        """Return the most bytes of one request under any policy, twice over for the protocol's own."""
        return 2 * max(count_body_bytes(one.policy.server) for one in self._served)

    # -- actions ------------------------------------------------------------------------------------------------

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        """Answer an action: each result is a message."""
        return _guarded_stream(self._log, lambda: self._act(context, action))

    def _act(self, context: Any, action: Any) -> Iterator[Any]:
        caller = self._authenticate(context)
        kind, body = str(action.type), action.body
        operation = kind[len(PREFIX) :][:40] if kind.startswith(PREFIX) else ""
        if not operation and kind not in ACTIONS:
            raise flight.FlightServerError(_NOT_SERVED)
        caller.take(len(body), counts=operation != "interrupt")
        content = body.to_pybytes()
        replies: Iterable[bytes]
        if not operation:
            replies = self._flight_sql.act(caller, context, kind, content)
        elif operation in OWN_ACTIONS:
            replies = [b"".join(OWN_ACTIONS[operation](self, caller, context, content))]
        else:
            replies = self._pass_on(caller, context, operation, content)
        yield from map(flight.Result, replies)

    def _open(self, caller: Right, context: Any, body: bytes) -> Iterator[bytes]:
        from dpsql import __version__

        head = decode(body).head
        if get_field(head, "protocol", int, 0) != PROTOCOL:
            yield encode(write_error(Error(_OLD_CLIENT, hint=f"pip install dpsql=={__version__}")))
            return
        queue = caller.queue
        record = queue.open(caller.mark, caller.member)
        policy = queue.edition.policy
        opened = make_value(
            protocol=PROTOCOL,
            session=record.handle,
            analyst=queue.analyst,
            catalog=caller.served.name,
            policy=policy.for_analyst(queue.analyst).dumps(),
            version=__version__,
            answers=policy.budget.answers,
            answer_times=[float(item) for item in policy.server.answer_times],
            expires=caller.expires.isoformat(),
        )
        yield encode(opened)
        yield _END

    def _close(self, caller: Right, context: Any, body: bytes) -> Iterator[bytes]:
        caller.queue.close_session(self._find_session(caller, context))
        yield _END

    def _interrupt(self, caller: Right, context: Any, body: bytes) -> Iterator[bytes]:
        record = self._find_session(caller, context)
        stopped = caller.queue.interrupt(record.handle)
        yield encode(make_value(stopped=stopped))
        yield _END

    def _pass_on(self, caller: Right, context: Any, operation: str, body: bytes) -> Iterator[bytes]:
        queue = caller.queue
        record = self._find_session(caller, context)
        call = queue.make_call(operation, record.handle)
        call.is_abandoned = context.is_cancelled
        yield from queue.answer_and_log(call, record, body)

    # -- authentication -----------------------------------------------------------------------------------------

    def _authenticate(self, context: Any) -> Right:
        peer = context.peer()
        peer = peer.decode(errors="replace") if isinstance(peer, bytes) else str(peer)
        right = self._find_right(context, peer)
        if self._watch is not None:
            self._watch.note_known(peer)
        return right

    def _find_right(self, context: Any, peer: str) -> Right:
        """Return the caller's right, by the token or the certificate."""
        headers = context.get_middleware(_MIDDLEWARE)
        token, user = (headers.token, headers.user) if headers is not None else ("", "")
        certified = self._read_common_name(context) if self._certified else None
        if certified is not None and not token:
            return self._find_certified(certified, peer)
        found = self._identify(token, user)
        if found is None:
            self._log.write("refused token", address=shorten_address(peer))
            raise flight.FlightUnauthenticatedError(NO_TOKEN)
        if certified is not None and certified != found[1].name:
            self._log.write("refused certificate", analyst=certified, address=shorten_address(peer))
            raise flight.FlightUnauthenticatedError(ANOTHERS_TOKEN)
        return Right.of(*found)

    def _identify(self, token: str, user: str) -> tuple[ServedPolicy, Identity] | None:
        """Return the policy and the analyst of a token; None if it is invalid, or of another user."""
        found = ((served, served.identify(token)) for served in self._served)
        return next(
            ((served, one) for served, one in found if one is not None and user in ("", one.name)), None
        )

    @_safe
    def _greet(self, token: str, user: str) -> None:
        """Check the token of a handshake, and the analyst's name if there is one."""
        found = self._identify(token, user)
        if found is None:
            raise flight.FlightUnauthenticatedError(NO_TOKEN)
        Right.of(*found)

    def _read_common_name(self, context: Any) -> str:
        """Return the common name of the caller's certificate, which TLS has verified; empty if it has none.

        gRPC returns a subject alternative name instead if the certificate has one. So the authority must sign none for analysts.
        """
        name = context.peer_identity()
        return name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")

    def _find_certified(self, name: str, peer: str) -> Right:
        """Return the right of a certificate without a token. It needs a valid token of its analyst in the policy."""
        known = [(served, served.find_holder(name)) for served in self._served]
        found = [(served, identity) for served, identity in known if identity is not None]
        if len(found) == 1:
            return Right.of(*found[0])
        self._log.write("refused certificate", analyst=name, address=shorten_address(peer))
        raise flight.FlightUnauthenticatedError(_WHICH_POLICY if found else _NO_ANALYST)

    def _find_session(self, caller: Right, context: Any) -> SessionRecord:
        headers = context.get_middleware(_MIDDLEWARE)
        return caller.queue.find(headers.session if headers is not None else "")

    # -- Flight SQL ---------------------------------------------------------------------------------------------

    def _admit_command(self, context: Any, command: bytes | None) -> Right:
        """Return the right to ask a command or a ticket of Flight SQL."""
        caller = self._authenticate(context)
        if not command or not is_flight_sql(command):
            raise flight.FlightServerError(_NOT_SERVED)
        caller.take(len(command))
        return caller

    @_safe
    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """Return where to fetch the rows of a Flight SQL command."""
        return self._flight_sql.make_info(self._admit_command(context, descriptor.command), descriptor)

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        """Return the columns of a Flight SQL command; no columns without a valid token.

        For this call only, pyarrow adds a traceback to Flight's own errors, too, which :func:`withhold_tracebacks` removes.
        """
        try:
            self._authenticate(context)
        except Exception:
            return _NO_SCHEMA
        return (
            self._find_schema(context, descriptor) if is_flight_sql(descriptor.command or b"") else _NO_SCHEMA
        )

    @_safe
    def _find_schema(self, context: Any, descriptor: Any) -> Any:
        caller = self._admit_command(context, descriptor.command)
        return flight.SchemaResult(self._flight_sql.find_schema(caller, context, descriptor))

    @_safe
    def do_get(self, context: Any, ticket: Any) -> Any:
        """Return the rows of a Flight SQL command."""
        data = ticket.ticket
        return self._flight_sql.fetch(self._admit_command(context, data), context, data)

    @_safe
    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> Any:
        """Store the values of parameters of a Flight SQL client."""
        caller = self._admit_command(context, descriptor.command)
        return self._flight_sql.put(caller, context, descriptor, reader, writer)

    @_safe
    def list_actions(self, context: Any) -> Any:
        """List the actions of Flight SQL."""
        self._authenticate(context)
        return list(ACTIONS.items())

    # -- unsupported calls --------------------------------------------------------------------------------------

    @_safe
    def list_flights(self, context: Any, given: Any, *more: Any) -> Any:
        """Refuse the call."""
        self._authenticate(context)
        raise flight.FlightServerError(_NOT_SERVED)

    do_exchange = list_flights


class FlightListener:
    """The Flight server at an address. :meth:`renew` exchanges its certificates.

    Args:
        location: the address, as Flight writes it.
        served: the policies.
        log: gets events.
        tls: the certificates; None on loopback and Unix sockets.

    Raises:
        ServerError: the address can't be used.
    """

    def __init__(self, location: str, served: Sequence[ServedPolicy], log: EventLog, tls: Tls | None) -> None:
        self._served, self._log = served, log
        self._path = Path(location.removeprefix(_UNIX)) if location.startswith(_UNIX) else None
        if self._path is not None:
            clear_socket(self._path)
        mask = os.umask(SOCKET_MASK)
        try:
            with waiting_in_place():
                self._front = Front(location, served, log, tls)
        except Exception:
            hint = "free the address, or make the socket's folder."
            raise ServerError("the server can't listen there.", hint=hint) from None
        finally:
            os.umask(mask)
        self.location = location if self._path else f"{location.rpartition(':')[0]}:{self._front.port}"
        """The address with the port that was taken."""

    def look_at_connections(self) -> None:
        """Drop connections that have not logged in in time."""
        self._front.look_at_connections()

    def renew(self, tls: Tls) -> None:
        """Serve new connections with other certificates. Running calls end under the old ones; clients then connect again.

        gRPC can't exchange certificates, so another server takes the port once the old one listens no more.

        Raises:
            ServerError: the port was not free in time.
        """
        end = time.monotonic() + _RENEW_SECONDS
        threading.Thread(target=self._front.shutdown, daemon=True, name="dpsql-old-certificate").start()
        while True:
            try:
                with waiting_in_place():
                    self._front = Front(self.location, self._served, self._log, tls, before=self._front)
                return
            except Exception:
                if time.monotonic() > end:
                    raise ServerError("the port could not be taken again: restart the server.") from None
                time.sleep(_RETRY_SECONDS)

    def close(self, patience: float) -> None:
        """Shut down, in some seconds at most."""
        ending = threading.Thread(target=self._front.shutdown, daemon=True, name="dpsql-shutdown")
        ending.start()
        ending.join(patience)
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()


_UNIX = "grpc+unix://"
_RENEW_SECONDS, _RETRY_SECONDS = 30.0, 0.02


OWN_ACTIONS: dict[str, Callable[[Front, Right, Any, bytes], Iterator[bytes]]] = {
    "open": Front._open,
    "close": Front._close,
    "interrupt": Front._interrupt,
}
"""The actions of dpsql's own clients that the front answers; all others go to a worker."""


def withhold_tracebacks() -> None:
    """Stop this process from formatting tracebacks, since pyarrow would send them for errors before a handler runs.

    A header outside ASCII is such an error. The client still gets the exception's class and message, which are about its input.
    """
    traceback.format_exception = _format_nothing


def _format_nothing(*given: object, **named: object) -> list[str]:
    return []


def _guarded(log: EventLog, work: Callable[[], Any]) -> Any:
    """Return the result of ``work``; replace every exception by one that is safe for a client."""
    safe: flight.FlightError
    try:
        return work()
    except RightError as refusal:
        safe = _LAPSES.get(refusal.lapse, flight.FlightServerError)(str(refusal))
    except Refused as refusal:
        safe = flight.FlightServerError(str(refusal))
    except WireError:
        safe = flight.FlightServerError(_NO_MESSAGE)
    except (BindError, ParseError, PrivacyError, MissingProtobuf, NotFlightSql) as error:
        safe = write_flight_error(error)  # about the client's text; errors of other classes may have paths
    except (
        flight.FlightUnauthenticatedError,
        flight.FlightUnauthorizedError,
        flight.FlightUnavailableError,
    ) as error:
        safe = type(error)(str(error))
    except flight.FlightServerError as error:
        safe = flight.FlightServerError(str(error))
    except Exception as error:
        log.write("failure", why=name_place(error))
        safe = flight.FlightServerError(FAILED)
    raise safe


def _guarded_stream(log: EventLog, work: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """Yield a generator's items, each step guarded."""
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
"""Flight's error for each lapse of a right."""
_NO_SCHEMA = flight.SchemaResult(pa.schema([]))
_END = encode(Message({"kind": "end"}))
