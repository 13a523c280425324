"""A client's socket: bytes in with a limit of time and size, bytes out in one piece, TLS in between where it is asked for."""

from __future__ import annotations

import os
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from dpsql.server.postgres.messages import ProtocolError

SEND_SECONDS = 60.0
"""Seconds that a client may let an answer wait."""
_LOOK_SECONDS = 1.0
_READ = 1 << 16
_FLUSH = 1 << 18


class Gone(Exception):
    """The client is gone, or took too long."""


class Stream:
    """A socket on which messages travel.

    Args:
        sock: the socket.
        seconds: how long a message may take to come.
    """

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._socket = sock
        self._raw = sock
        self._buffer = bytearray()
        self._unsent = bytearray()
        self.end = time.monotonic() + seconds
        """The time after which the client has taken too long."""
        self.check: Callable[[], None] = lambda: None
        """Called every second while nothing comes; it raises where the connection is to end."""
        self.secured = False
        self._dropped = False

    # -- in ----------------------------------------------------------------------------------------------------------------

    @property
    def has_more(self) -> bool:
        """Tell whether bytes have come that were not taken."""
        return bool(self._buffer)

    def take(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            Gone: the client is gone or too slow.
        """
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

    def take_message(self, sizes: Mapping[bytes, int], seconds: float = 60.0) -> tuple[bytes, bytes]:
        """Return the kind and the body of the next message.

        Args:
            sizes: the most bytes of each kind that may come.
            seconds: how long the rest may take once it has begun.

        Raises:
            ProtocolError: the message is longer, or of another kind. Gone: the client is gone or too slow.
        """
        kind = self.take(1)
        self.end = min(self.end, time.monotonic() + seconds)
        limit = sizes.get(kind, 0)
        if not limit:
            raise ProtocolError("this message can't come here.")
        (size,) = struct.unpack(">i", self.take(4))
        if not 4 <= size <= limit + 4:
            raise TooLong(f"a message of {size:,} bytes is longer than the {limit:,} that it may have.")
        return kind, self.take(size - 4)

    @property
    def is_gone(self) -> bool:
        """Tell whether the client has closed the connection; what it has sent meanwhile stays to be read."""
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
        """Send what waits.

        Raises:
            Gone: the client is gone, or does not read.
        """
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
        """Go on under TLS.

        Raises:
            Gone: the client does not.
        """
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
        """The common name of the client's certificate, which the TLS handshake has proved; empty where it has none."""
        told = self._socket.getpeercert() if isinstance(self._socket, ssl.SSLSocket) else None
        pairs = [pair for part in (told or {}).get("subject", ()) for pair in part]
        names = [str(pair[1]) for pair in pairs if isinstance(pair, tuple) and pair[0] == "commonName"]
        return names[0] if len(names) == 1 else ""

    def shut(self, both: bool = True) -> None:
        """End the conversation from another thread: whoever waits for a message hears that there is none.

        Args:
            both: also what is still to be sent.
        """
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
