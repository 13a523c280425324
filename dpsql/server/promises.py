"""A worker's words on a budget that it does not know yet: a mark in its reply, which the front fills in.

A settlement is written at a public time, long after the worker has made its reply (:mod:`dpsql.server.calls`). What is left then,
others have a part in: it must be read at that time and not when the statement happens to be done.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping

_LENGTH = struct.Struct(">I")
_BRACKET = "\ue000"
_MARK = re.compile(rb"\\ue000left:([0-9]{1,18})\\ue000")


def mark_left(number: int) -> str:
    """Return the mark for what is left after a statement was settled."""
    return f"{_BRACKET}left:{number}{_BRACKET}"


def fill_left(reply: bytes, left: Mapping[int, str]) -> bytes:
    """Return an encoded message with its marks filled in, where it has any.

    Args:
        reply: what :func:`dpsql.client.wire.encode` gave. A mark of a statement that was not settled stays.
        left: sentences by the numbers of statements.

    >>> from dpsql.client.wire import Message, decode, encode
    >>> reply = encode(Message({"cost_line": f"cost 1, {mark_left(7)}"}, b"rows"))
    >>> decode(fill_left(reply, {7: "\N{GREEK SMALL LETTER EPSILON}=2 left"}))
    Message(head={'cost_line': 'cost 1, \N{GREEK SMALL LETTER EPSILON}=2 left'}, payload=b'rows')
    """
    (length,) = _LENGTH.unpack(reply[: _LENGTH.size])
    head = reply[_LENGTH.size : _LENGTH.size + length]

    def write(found: re.Match[bytes]) -> bytes:
        sentence = left.get(int(found[1]))
        return found[0] if sentence is None else json.dumps(sentence)[1:-1].encode()

    filled = _MARK.sub(write, head)
    if filled == head:
        return reply
    return _LENGTH.pack(len(filled)) + filled + reply[_LENGTH.size + length :]
