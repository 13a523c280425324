"""The messages between a client and an owner's server: a JSON head and opaque bytes.

    u32, big-endian: length of the head | u32: length of the payload | the head, a JSON object | the payload

A reply is one message after another. The front and its processes exchange them over sockets, too (:mod:`dpsql.server.frames`).

Input from the other side is validated, never unpickled; malformed input raises :class:`WireError`. Values stay exact:
fractions, decimals and dates are text, tables are Arrow streams. A parameter keeps its type and all digits, so that the other
side writes the same literal, or refuses a value that SQL can't represent.

>>> decode(encode(Message({"kind": "end"}, b"rows")))
Message(head={'kind': 'end'}, payload=b'rows')
"""

from __future__ import annotations

import base64
import datetime
import decimal
import itertools
import json
import os
import struct
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa

from dpsql import errors
from dpsql.errors import Error
from dpsql.language.parameter_values import drop_zone, name_parameters, read_name, unwrap_value
from dpsql.late_dataclass import dataclass
from dpsql.privacy.codec import add_codec, read_value, write_as
from dpsql.privacy.events import Event
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.privacy.records import BudgetState, Entry
from dpsql.session.result import Result

if TYPE_CHECKING:
    from dpsql.session.interface import Question

_T = TypeVar("_T")

Head = Mapping[str, Any]
"""A JSON object, such as a message's head."""

PROTOCOL = 5
"""The version of the messages."""
MAX_HEAD = 64 << 20
"""The most bytes of a message's head."""
MAX_RESULT = 256 << 20
"""The approximate limit on the bytes of a result's rows."""
MAX_PAYLOAD = 2 * MAX_RESULT
"""The most bytes of a message's payload."""

MALFORMED = (
    ArithmeticError,
    AttributeError,
    KeyError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    MemoryError,
)
"""Python errors that mean only that the input is malformed."""
LENGTHS = struct.Struct(">II")
"""The lengths of a message's head and payload."""


class WireError(Error):
    """A message that violates the protocol. None of it was used."""


@dataclass(frozen=True)
class Message:
    """A head of JSON values, and bytes that only its reader understands."""

    head: dict[str, Any]
    payload: bytes = field(default=b"")


READING = Message({"kind": "stage", "stage": "reading"})
"""Notifies a client before private data may be read for its statement."""


def make_value(payload: bytes = b"", /, **values: object) -> Message:
    """Return a message with values.

    >>> make_value(count=2)
    Message(head={'kind': 'value', 'count': 2}, payload=b'')
    """
    return Message({"kind": "value", **values}, payload)


def encode(message: Message) -> bytes:
    """Return a message's bytes; WireError if it is too long or its head is not JSON."""
    head = encode_head(message.head)
    if len(head) > MAX_HEAD or len(message.payload) > MAX_PAYLOAD:
        raise WireError(
            f"a message's head may have {MAX_HEAD:,} bytes, its payload {MAX_PAYLOAD:,}.",
            hint="ask for less; of the ledger, for the last statements only: ledger(1000).",
        )
    return b"".join((LENGTHS.pack(len(head), len(message.payload)), head, message.payload))


def encode_head(head: Head) -> bytes:
    """Return a head's bytes; WireError if it is not JSON."""
    try:
        return json.dumps(head, separators=(",", ":"), allow_nan=False).encode()
    except MALFORMED:
        raise WireError("a message holds a value that can't be sent.") from None


def decode(data: bytes | memoryview) -> Message:
    """Parse the bytes of one message; WireError if they are anything else."""
    found = list(itertools.islice(decode_all(data), 2))
    if len(found) != 1:
        raise WireError("a message of the wrong length arrived.")
    return found[0]


def decode_all(data: bytes | memoryview) -> Iterator[Message]:
    """Yield the messages that follow one another in some bytes; WireError if they are anything else.

    >>> [message.head["kind"] for message in decode_all(encode(Message({"kind": "value"})) + encode(Message({"kind": "end"})))]
    ['value', 'end']
    """
    view = memoryview(data)
    while view:
        if len(view) < LENGTHS.size:
            raise WireError("a message of the wrong length arrived.")
        length, size = LENGTHS.unpack(view[: LENGTHS.size])
        if length > MAX_HEAD or size > MAX_PAYLOAD or LENGTHS.size + length + size > len(view):
            raise WireError("a message of the wrong length arrived.")
        head, view = view[LENGTHS.size : LENGTHS.size + length], view[LENGTHS.size + length :]
        yield Message(decode_head(bytes(head)), bytes(view[:size]))
        view = view[size:]


def decode_head(data: bytes) -> dict[str, Any]:
    """Parse a head's bytes; WireError if they are no JSON object."""
    try:
        head = json.loads(data, parse_constant=_refuse_constant)
    except MALFORMED:
        raise WireError("a message arrived whose head is no JSON.") from None
    if not isinstance(head, dict):
        raise WireError("a message arrived whose head is no JSON object.")
    return head


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def get_field(head: Head, name: str, kind: type[_T], default: _T | None = None) -> _T:
    """Return a value of a message's head, or of an object in it.

    Args:
        kind: the required type; True and False are not ints.
        default: replaces a missing or null value; None if the value is required.

    Raises:
        WireError: it is missing, or of another type.
    """
    value = head.get(name)
    if value is None and default is not None:
        return default
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise WireError(f"a message arrived without a proper {name!r}.")
    return value


# -- errors -----------------------------------------------------------------------------------------------------------

_KNOWN = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, Error)
}


_PARTS: dict[str, Any] = {
    "message": str,
    "span": tuple[int, int] | None,
    "text": str | None,
    "hint": str | None,
    "keys": tuple[str, ...],
    "sqlstate": str,
}
"""The attributes of an error, with their types."""


def write_error(error: Error) -> Message:
    """Return the message of a dpsql error: class, sentence, span, text, hint. Its ``answered`` results are sent separately."""
    kind = next((base.__name__ for base in type(error).__mro__ if base.__name__ in _KNOWN), "Error")
    known = {"kind": "error", "class": kind, "name": vars(error).get("name")}
    return Message(known | _write_attributes(error, _PARTS))


def read_error(message: Message) -> Error:
    """Parse an error written by :func:`write_error`, as :class:`~dpsql.Error` for an unknown class; WireError if malformed."""
    try:
        parts = _read_attributes(message.head, _PARTS)
        if min(parts.get("span") or (0,)) < 0:
            raise ValueError
        error = _KNOWN.get(read_value(str, message.head.get("class")), Error)(**parts)
        if hasattr(error, "name"):
            error.name = read_value(cast(Any, str | None), message.head.get("name"))
    except MALFORMED:
        raise WireError("an error arrived that is none.") from None
    return error


def _write_attributes(value: object, declared: Mapping[str, Any]) -> dict[str, object]:
    return {name: write_as(kind, getattr(value, name)) for name, kind in declared.items()}


def _read_attributes(head: Head, declared: Mapping[str, Any]) -> dict[str, Any]:
    return {name: read_value(kind, head[name]) for name, kind in declared.items() if name in head}


# -- records ----------------------------------------------------------------------------------------------------------


def read_as(kind: type[_T], body: object) -> _T:
    """Parse an event or a record, as :mod:`dpsql.privacy.codec` writes it; WireError if malformed."""
    try:
        return read_value(kind, body)
    except MALFORMED:
        raise WireError(f"a message arrived without a proper {kind.__name__}.") from None


def read_state(body: object) -> BudgetState:
    """Parse a budget state; WireError if malformed, or of an unknown accountant."""
    return check_state(read_as(BudgetState, body))


def check_state(state: BudgetState) -> BudgetState:
    """Return a budget state; WireError if its accountant is unknown."""
    if not all(one.accountant in ACCOUNTANTS for one in (state, state.whole or state)):
        raise WireError(
            "a budget of an unknown accountant arrived.", hint="install the server's version of dpsql."
        )
    return state


def read_entry(body: object) -> Entry:
    """Parse a ledger entry; WireError if malformed."""
    entry = read_as(Entry, body)
    try:
        datetime.datetime.fromisoformat(entry.when)
    except ValueError:
        raise WireError("a statement without a proper time arrived.") from None
    return entry


# -- results ----------------------------------------------------------------------------------------------------------


_FACTS: dict[str, Any] = {
    "loss": str,
    "event": Event | None,
    "notes": tuple[str, ...],
    "statement_id": str | None,
    "cost_line": str,
    "confidence": float,
    "whole": bool,
    "expected_error": dict[str, float],
}
"""The attributes of a result beside its rows and intervals, with their types."""


def write_result(result: Result, **more: object) -> Message:
    """Return a result's message; ``more`` extends the head."""
    table, names = result.table, result.columns
    arrays = list(table.columns)
    for ends in result.ends.values():
        arrays += ends
    plain = pa.Table.from_arrays(arrays, names=[str(number) for number in range(len(arrays))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, plain.schema) as writer:
        writer.write_table(plain)
    head: dict[str, object] = {
        "kind": "result",
        "columns": names,
        "rows": len(result),
        "intervals": list(result.ends),
    }
    return Message({**head, **_write_attributes(result, _FACTS), **more}, sink.getvalue().to_pybytes())


def parse_result(message: Message) -> Result:
    """Parse a result's message; WireError if malformed."""
    head = message.head
    try:
        columns, measured = (
            list(read_value(tuple[str, ...], head.get(name))) for name in ("columns", "intervals")
        )
        with pa.ipc.open_stream(message.payload) as stream:
            table = stream.read_all()
        for column in table.columns:
            for array in column.chunks:
                _check_array(array)
        ends = table.columns[len(columns) :]
        sound = len(ends) == 2 * len(measured) and all(_is_end(end.type) for end in ends)
        if not sound or len(set(measured)) < len(measured) or not set(measured) <= set(columns):
            raise ValueError
        if columns and table.num_rows != get_field(head, "rows", int):  # Arrow keeps none without columns
            raise ValueError
        return Result(
            pa.Table.from_arrays(table.columns[: len(columns)], names=columns),
            intervals={name: (ends[2 * i], ends[2 * i + 1]) for i, name in enumerate(measured)},
            **_read_attributes(head, _FACTS),
        )
    except (*MALFORMED, pa.ArrowException):
        raise WireError("a result arrived whose rows can't be read.") from None


def _is_end(kind: pa.DataType) -> bool:
    """Return whether a column's type fits interval ends: numbers, dates, times, or maps of a histogram's bins to numbers."""
    return bool(
        kind == pa.float64()
        or pa.types.is_temporal(kind)
        or (pa.types.is_map(kind) and kind.item_type == pa.float64())
    )


def _check_array(array: pa.Array) -> None:
    """Check that an array's offsets stay within it; Arrow's own check would also refuse HUGEINT's decimals of 39 digits."""
    kind = array.type
    array.validate()
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            _check_array(array.field(number))
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        ends = array.offsets.to_numpy(zero_copy_only=False)
        inside = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
        if (ends[1:] < ends[:-1]).any() or ends[0] < 0 or any(ends[-1] > len(one) for one in inside):
            raise ValueError
        for one in inside:
            _check_array(one)
    elif not pa.types.is_decimal(kind):
        array.validate(full=True)


_CHOICE, _IN_PLACE = "GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener"


def cut_bytes(sizes: object, content: bytes) -> list[bytes]:
    """Return bytes in pieces of some sizes; WireError if they are no sizes, or don't add up."""
    listed = sizes if isinstance(sizes, list) else [-1]
    if not all(type(size) is int and size >= 0 for size in listed) or sum(listed) != len(content):
        raise WireError("the sizes in a message don't add up.")
    ends = itertools.accumulate(listed)
    return [content[end - size : end] for end, size in zip(ends, listed, strict=True)]


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


def write_params(params: Mapping[str, object] | None) -> dict[str, object] | None:
    """Return ``$name`` parameters as JSON values; for a value that SQL can't represent, its type's name."""
    return (
        None if params is None else {read_name(name): _write_param(value) for name, value in params.items()}
    )


def _write_param(value: object) -> object:
    value = unwrap_value(value)
    if isinstance(value, list) and not any(isinstance(held, list) for held in value):
        return [_write_param(held) for held in value]
    if value is None or isinstance(value, bool | str):
        return value
    # A moment that UTC has no year for, or more digits than Python writes.
    with suppress(TypeError, ValueError, OverflowError):
        if isinstance(value, datetime.datetime):
            zone = None if value.utcoffset() is None else datetime.UTC
            return {"timestamp": _check_date(drop_zone(value).replace(tzinfo=zone), datetime.datetime)}
        if isinstance(value, datetime.date):
            return {"date": _check_date(value, datetime.date)}
        if isinstance(value, datetime.time) and value.tzinfo is None:
            return {"time": value.isoformat()}
        if isinstance(value, datetime.timedelta) and not getattr(value, "nanoseconds", 0):
            return {"interval": str(value // datetime.timedelta(microseconds=1))}
        if isinstance(value, uuid.UUID):
            return {"uuid": str(value)}
        if isinstance(value, bytes):
            return {"bytes": value.hex()}
        if isinstance(value, float):
            return {"float": repr(value)}
        if isinstance(value, int | decimal.Decimal):
            return {"int" if isinstance(value, int) else "decimal": str(value)}
    return {"other": type(value).__name__}


def _check_date(value: datetime.date, kind: type[datetime.date]) -> str:
    text = value.isoformat()
    kind.fromisoformat(text)
    return text


def write_question(question: Question) -> dict[str, Any]:
    """Return a cell's text, parameters, epsilon, and synthetic flag as JSON; BindError if parameters don't fit it."""
    text, named = name_parameters(question.text, question.params)
    params = None if question.params is None else write_params(named)
    epsilon = question.epsilon
    amount = {"fraction": str(epsilon)} if isinstance(epsilon, Fraction) else epsilon
    synthetic = {"synthetic": True, "rows": question.rows} if question.synthetic else {}
    return {"text": text, "params": params, "epsilon": amount, **synthetic}


def read_amount(body: object) -> str | Fraction | None:
    """Parse an epsilon; WireError if malformed."""
    if isinstance(body, dict):
        try:
            return read_value(Fraction, body.get("fraction"))
        except MALFORMED:
            raise WireError("an epsilon arrived that is none.") from None
    if body is not None and not isinstance(body, str):
        raise WireError("an epsilon arrived that is none.")
    return body


def read_params(body: object) -> dict[str, object] | None:
    """Parse parameters; WireError if malformed. A value that SQL can't represent becomes one of an equally named type."""
    if body is None:
        return None
    if not isinstance(body, dict):
        raise WireError("parameters arrived that are none.")
    try:
        return {
            name: [_read_param(item) for item in value] if isinstance(value, list) else _read_param(value)
            for name, value in body.items()
        }
    except MALFORMED:
        raise WireError("parameters arrived that are none.") from None


_READ: dict[str, Callable[[str], object]] = {
    "int": int,
    "float": float,
    "decimal": decimal.Decimal,
    "timestamp": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "interval": lambda text: datetime.timedelta(microseconds=int(text)),
    "uuid": uuid.UUID,
    "bytes": bytes.fromhex,
    "other": lambda name: type(name, (), {})(),  # it has only this name, by which it is refused
}


def _read_param(value: Any) -> object:
    if value is None or isinstance(value, bool | str):
        return value
    ((kind, text),) = value.items()
    if not isinstance(text, str):
        raise TypeError
    return _READ[kind](text)


def _write_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _read_schema(body: object) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(read_value(str, body), validate=True)))
    except pa.ArrowException:
        raise ValueError("no schema") from None


add_codec(pa.Schema, _write_schema, _read_schema)
