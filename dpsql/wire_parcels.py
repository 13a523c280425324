"""Several messages that travel in one piece: each that travels by itself costs a third of a millisecond or so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpsql.wire import CHUNK, Message, WireError, decode, encode, get_field

_PARCEL = "parcel"


def pack_messages(messages: Sequence[bytes]) -> Iterator[bytes]:
    """Yield parcels of encoded messages, of some :data:`~dpsql.wire.CHUNK` bytes.

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
    """Yield the messages of what :func:`pack_messages` yielded: those of a parcel, or the one that travelled by itself.

    Raises:
        WireError: they are none, or there is a parcel within a parcel.
    """
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
