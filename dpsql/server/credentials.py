"""The headers of a call: who asks, by a token, and which session of theirs it is about.

    authorization: Bearer TOKEN                     dpsql's own client, ADBC, JDBC with a token
    authorization: Basic base64(ANALYST:TOKEN)      clients that know a user and a password only; padding may be missing

Clients that send the second form shake hands first, and go on with the token that they are told then.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow.flight as flight

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
