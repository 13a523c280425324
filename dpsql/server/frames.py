"""Messages between the front and a worker, over a socket pair.

    u64, big-endian: length of the rest | u32: length of the head | the head, a JSON object | the payload

The front never unpickles what a worker sends, and checks it before it is used: a worker that an analyst has taken over can lie
in it, and no more.
"""

from __future__ import annotations

import itertools
import json
import select
import socket
import struct
import threading
from contextlib import suppress
from typing import Any

from dpsql.client.wire import Message

MAX_FRAME = 1 << 30
"""Bytes of one frame."""
_MAX_FRAME_HEAD = 64 << 20
_READ = 1 << 16
_LENGTHS = struct.Struct(">QI")
_HEAD_LENGTH = 4


class FrameError(Exception):
    """The other process is gone, or sent what is no frame."""


def read_lines(frame: Message) -> list[bytes]:
    """Cut a frame's payload into the lines whose sizes its head lists.

    Raises:
        FrameError: the sizes do not fit.
    """
    sizes = frame.head.get("sizes")
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise FrameError("a journal without sizes")
    if sum(sizes) != len(frame.payload):
        raise FrameError("a journal of the wrong size")
    ends = list(itertools.accumulate(sizes))
    return [frame.payload[end - size : end] for size, end in zip(sizes, ends, strict=True)]


class Frames:
    """A socket on which frames travel in both directions; any thread may send, one at a time receives."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._sending = threading.Lock()
        self._buffer = bytearray()
        self._unsent = bytearray()

    def send(self, head: dict[str, Any], payload: bytes = b"", *, later: bool = False) -> None:
        """Send one frame.

        Args:
            head: its head.
            payload: its payload.
            later: the next frame follows soon, and small ones may travel together.

        Raises:
            FrameError: the other process is gone.
        """
        written = json.dumps(head, separators=(",", ":")).encode()
        start = _LENGTHS.pack(_HEAD_LENGTH + len(written) + len(payload), len(written)) + written
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
            timeout: seconds to wait for each of its parts; None waits for ever.

        Raises:
            FrameError: the other process is gone, or broke the protocol. TimeoutError: nothing came in time.
        """
        self._fill(_LENGTHS.size, timeout)
        rest, length = _LENGTHS.unpack(self._buffer[: _LENGTHS.size])
        if length > _MAX_FRAME_HEAD or rest > MAX_FRAME or rest < _HEAD_LENGTH + length:
            raise FrameError("a frame of the wrong length")
        end = _LENGTHS.size - _HEAD_LENGTH + rest
        self._fill(end, timeout)
        with memoryview(self._buffer) as view:
            written = bytes(view[_LENGTHS.size : _LENGTHS.size + length])
            payload = bytes(view[_LENGTHS.size + length : end])
        del self._buffer[:end]
        try:
            head = json.loads(written)
        except (ValueError, RecursionError):
            raise FrameError("a frame without a head") from None
        if not isinstance(head, dict) or not isinstance(head.get("kind"), str):
            raise FrameError("a frame without a kind")
        return Message(head, payload)

    def wait(self, seconds: float) -> bool:
        """Wait until something can be read, and tell whether it can. What others send meanwhile is not held to this time."""
        if self._buffer:
            return True
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(1000 * seconds))

    def _fill(self, size: int, timeout: float | None) -> None:
        """Read until so many bytes are in the buffer."""
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
        """End the conversation, whoever holds the other end: who waits for a frame hears that there is none."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
