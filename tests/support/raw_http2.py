"""A gRPC request written by hand, with headers that no client library would send."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, CONTINUATION = 0, 1, 4, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return an HTTP/2 frame."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def pack_headers(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return headers in HPACK, each as a literal that is never indexed, without Huffman codes."""
    return b"".join(b"\x10" + _text(name) + _text(value) for name, value in headers)


def _text(value: bytes) -> bytes:
    size = len(value)
    if size < 127:
        return bytes([size]) + value
    rest, out = size - 127, bytearray([127])
    while rest >= 128:
        out.append(rest % 128 | 128)
        rest //= 128
    out.append(rest)
    return bytes(out) + value


def request(
    port: int, path: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes, seconds: float = 5
) -> bytes:
    """Send one request over a connection of its own; return all that comes back until the server has said all."""
    known = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"localhost")]
    known += [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
    message = b"\0" + struct.pack(">I", len(body)) + body
    sent = PREFACE + frame(SETTINGS, 0, 0, b"")
    sent += frame(HEADERS, END_HEADERS, 1, pack_headers([*known, *headers]))
    sent += frame(DATA, END_STREAM, 1, message)
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as sock:
        try:
            sock.sendall(sent)
            while True:
                part = sock.recv(65536)
                if not part:
                    break
                got += part
                if has_ended(got):
                    break
        except OSError:
            pass
    return got


def has_ended(got: bytes) -> bool:
    """Tell whether a frame ends stream 1 or the connection."""
    place = 0
    while place + 9 <= len(got):
        size = int.from_bytes(got[place : place + 3], "big")
        kind, flags = got[place + 3], got[place + 4]
        stream = int.from_bytes(got[place + 5 : place + 9], "big")
        if (stream == 1 and kind in (DATA, HEADERS) and flags & END_STREAM) or kind in (3, 7):
            return True
        place += 9 + size
    return False
