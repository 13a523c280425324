"""Messages between the front and a process of the server, over a socket pair; each has a kind.

The front never unpickles a frame, and checks each before use, so that a worker under an attacker's control can only lie.
"""

from __future__ import annotations

import json
import re
import select
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress

from dpsql.client.wire import LENGTHS, MAX_HEAD, Message, WireError, decode_head, encode_head

MAX_FRAME = 1 << 30
"""Bytes of one frame."""
_READ = 1 << 16


class FrameError(Exception):
    """The other process has ended, or sent an invalid frame."""


class Frames:
    """A socket for frames in both directions. Any thread may send; one at a time receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.Lock()
        self._buffer = bytearray()
        self._unsent = bytearray()

    def send(self, head: dict[str, object], payload: bytes = b"", *, later: bool = False) -> None:
        """Send one frame.

        Args:
            head, payload: its parts.
            later: wait for the next frame, which follows soon, if this one is small.

        Raises:
            FrameError: the other process has ended.
        """
        written = encode_head(head)
        start = LENGTHS.pack(len(written), len(payload)) + written
        try:
            with self._sending:
                self._unsent += start
                if len(self._unsent) + len(payload) < _READ:
                    self._unsent += payload
                    payload = b""
                if not later or payload:
                    self._socket.sendall(self._unsent)
                    self._unsent.clear()
                if payload:
                    self._socket.sendall(payload)
        except OSError:
            raise FrameError("gone") from None

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next frame.

        Args:
            timeout: seconds to wait for each of its parts; None is without limit.

        Raises:
            FrameError: the other process has ended, or broke the protocol. TimeoutError: no frame came in time.
        """
        self._fill(LENGTHS.size, timeout)
        length, size = LENGTHS.unpack(self._buffer[: LENGTHS.size])
        if length > MAX_HEAD or size > MAX_FRAME:
            raise FrameError("a frame of the wrong length")
        start, end = LENGTHS.size + length, LENGTHS.size + length + size
        self._fill(end, timeout)
        with memoryview(self._buffer) as view:
            written, payload = bytes(view[LENGTHS.size : start]), bytes(view[start:end])
        del self._buffer[:end]
        try:
            head = decode_head(written)
        except WireError as error:
            raise FrameError(str(error)) from None
        if not isinstance(head.get("kind"), str):
            raise FrameError("a frame without a kind")
        return Message(head, payload)

    def wait(self, seconds: float) -> bool:
        """Return whether a part of a frame arrives within some seconds."""
        if self._buffer:
            return True
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(1000 * seconds))

    def _fill(self, size: int, timeout: float | None) -> None:
        """Read until the buffer has ``size`` bytes."""
        while len(self._buffer) < size:
            try:
                self._socket.settimeout(timeout)
                part = self._socket.recv(max(_READ, min(size - len(self._buffer), 1 << 20)))
            except TimeoutError:
                raise
            except OSError:
                raise FrameError("gone") from None
            if not part:
                raise FrameError("gone")
            self._buffer += part

    def shut(self) -> None:
        """Shut the socket down, even if another process still has the other end; a waiting reader gets an error."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


# -- Placeholder in a worker's reply for the remaining budget; the front fills it in.
_BRACKET = "\ue000"
_MARK = re.compile(rb"\\ue000left:([0-9]{1,18})\\ue000")


def mark_left(number: int) -> str:
    """Return the placeholder for the budget left after a statement is settled.

    A settlement is written at a public time, long after the worker has made its reply (:mod:`dpsql.server.calls`). The budget
    left depends on other analysts, too, so the front fills it in at that time.
    """
    return f"{_BRACKET}left:{number}{_BRACKET}"


def fill_left(reply: bytes, left: Mapping[int, str]) -> bytes:
    """Return an encoded message with its placeholders of settled statements filled in.

    Args:
        reply: from :func:`dpsql.client.wire.encode`.
        left: sentences by the numbers of statements.

    >>> from dpsql.client.wire import Message, decode, encode
    >>> reply = encode(Message({"cost_line": f"cost 1, {mark_left(7)}"}, b"rows"))
    >>> decode(fill_left(reply, {7: "\N{GREEK SMALL LETTER EPSILON}=2 left"}))
    Message(head={'cost_line': 'cost 1, \N{GREEK SMALL LETTER EPSILON}=2 left'}, payload=b'rows')
    """
    length, size = LENGTHS.unpack(reply[: LENGTHS.size])
    start = LENGTHS.size + length
    head = reply[LENGTHS.size : start]

    def write(found: re.Match[bytes]) -> bytes:
        sentence = left.get(int(found[1]))
        return found[0] if sentence is None else json.dumps(sentence)[1:-1].encode()

    filled = _MARK.sub(write, head)
    return reply if filled == head else LENGTHS.pack(len(filled), size) + filled + reply[start:]
