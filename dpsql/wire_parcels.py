"""Batches messages: one round trip and one thread wake-up per statement.

Over loopback, each separate message and each woken thread costs a good part of a statement's round trip.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dpsql.wire import CHUNK, Message, WireError, decode, encode, get_field

_PARCEL = "parcel"
_CHOICE, _IN_PLACE = "GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener"


def pack_messages(messages: Sequence[bytes]) -> Iterator[bytes]:
    """Yield batches of encoded messages, of about :data:`~dpsql.wire.CHUNK` bytes.

    >>> [parcel] = pack_messages([encode(Message({"kind": "value"})), encode(Message({"kind": "end"}))])
    >>> [message.head["kind"] for message in unpack_messages(parcel)]
    ['value', 'end']
    """
    start = 0
    while start < len(messages):
        end, size = start + 1, len(messages[start])
        while end < len(messages) and size + len(messages[end]) <= CHUNK:
            size += len(messages[end])
            end += 1
        some, start = messages[start:end], end
        sizes = [len(message) for message in some]
        yield encode(Message({"kind": _PARCEL, "sizes": sizes}, b"".join(some))) if len(some) > 1 else some[0]


def unpack_messages(data: bytes | memoryview) -> Iterator[Message]:
    """Yield the messages of a batch, or the single message; WireError if malformed, or for a batch within a batch."""
    message = decode(data)
    if message.head.get("kind") != _PARCEL:
        yield message
        return
    start = 0
    for size in get_field(message.head, "sizes", list):
        if type(size) is not int or not 0 < size <= len(message.payload) - start:
            raise WireError("a parcel arrived whose sizes do not add up.")
        packed = decode(message.payload[start : start + size])
        if packed.head.get("kind") == _PARCEL:
            raise WireError("a parcel arrived within a parcel.")
        yield packed
        start += size
    if start != len(message.payload):
        raise WireError("a parcel arrived whose sizes do not add up.")


@contextmanager
def waiting_in_place() -> Iterator[None]:
    """Configure gRPC, if it starts within the block, to wait for messages in the threads that want them.

    By default its own threads wait and wake those, some ten times per statement. A setting in the environment is kept,
    and child processes don't inherit this one.
    """
    if _CHOICE in os.environ:
        yield
        return
    os.environ[_CHOICE] = _IN_PLACE
    try:
        yield
    finally:
        os.environ.pop(_CHOICE, None)
