"""The messages between a client and an owner's server: a JSON head and opaque bytes.

    u32, big-endian: length of the head | the head, a JSON object | the payload

Input from the other side is validated, never unpickled; malformed input raises :class:`WireError`. Values stay exact:
fractions, decimals and dates are text, tables are Arrow streams.

>>> decode(encode(Message({"kind": "end"}, b"rows")))
Message(head={'kind': 'end'}, payload=b'rows')

Batches messages: one round trip and one thread wake-up per statement.

Over loopback, each separate message and each woken thread costs a good part of a statement's round trip.

Encodes what accompanies a statement: its parameters, its cell's epsilon, its expected columns.

A parameter keeps its type and all digits, so that the other side writes the same literal. The other side refuses values
that SQL can't represent, with the usual message.

Frozen dataclasses as JSON values and back, by their fields' declared types.

Fractions are texts, so nothing is rounded; so are floats that JSON doesn't have.

>>> from dpsql.privacy.amounts import Amount
>>> write_record(Amount("rho", Fraction(1, 3)))
{'currency': 'rho', 'total': '1/3'}
>>> read_value(Amount, {"currency": "rho", "total": "1/3"}) == Amount("rho", Fraction(1, 3))
True
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from fractions import Fraction
from functools import cache, partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import dpsql.privacy.filters  # noqa: F401 - it imports every kind of event
from dpsql import errors
from dpsql.errors import Error
from dpsql.language.parameter_values import drop_zone, read_name, unwrap_value
from dpsql.privacy.events import Event

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.privacy.records import BudgetState, Entry
    from dpsql.session.explanation import Explanation, Why
    from dpsql.session.result import Result


_T = TypeVar("_T")

PROTOCOL = 2
"""The version of the messages."""
MAX_HEAD = 8 << 20
"""The most bytes of a message's head."""
MAX_MESSAGE = 16 << 20
"""The most bytes of a whole message."""
CHUNK = 1 << 20
"""The most bytes of result rows in one message."""
MAX_RESULT = 256 << 20
"""The approximate limit on the bytes of a result's rows."""

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
_LENGTH = struct.Struct(">I")


class WireError(Error):
    """A message that violates the protocol. None of it was used."""


@dataclass(frozen=True)
class Message:
    """A head of JSON values, and bytes that only its reader understands."""

    head: dict[str, Any]
    payload: bytes = field(default=b"")


READING = Message({"kind": "stage", "stage": "reading"})
"""Notifies a client before private data may be read for its statement."""


def encode(message: Message) -> bytes:
    """Return a message's bytes; WireError if it is too long or its head is not JSON."""
    try:
        head = json.dumps(message.head, separators=(",", ":"), allow_nan=False).encode()
    except MALFORMED:
        raise WireError("a message holds a value that can't be sent.") from None
    if len(head) > MAX_HEAD or len(head) + len(message.payload) > MAX_MESSAGE:
        raise WireError(f"a message may have {MAX_MESSAGE:,} bytes, {MAX_HEAD:,} of them in its head.")
    return b"".join((_LENGTH.pack(len(head)), head, message.payload))


def decode(data: bytes | memoryview) -> Message:
    """Parse a message's bytes; WireError if they are no message."""
    view = memoryview(data)
    if len(view) < _LENGTH.size or len(view) > _LENGTH.size + MAX_MESSAGE:
        raise WireError("a message of the wrong length arrived.")
    (length,) = _LENGTH.unpack(view[: _LENGTH.size])
    end = _LENGTH.size + length
    if length > MAX_HEAD or end > len(view):
        raise WireError("a message of the wrong length arrived.")
    try:
        head = json.loads(bytes(view[_LENGTH.size : end]), parse_constant=_refuse_constant)
    except MALFORMED:
        raise WireError("a message arrived whose head is no JSON.") from None
    if not isinstance(head, dict):
        raise WireError("a message arrived whose head is no JSON object.")
    return Message(head, bytes(view[end:]))


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def get_field(head: Mapping[str, Any], name: str, kind: type[_T], default: _T | None = None) -> _T:
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


def write_error(error: Error) -> Message:
    """Return the message of a dpsql error: class, sentence, span, text, hint. Its ``answered`` results are sent separately."""
    kind = next((base.__name__ for base in type(error).__mro__ if base.__name__ in _KNOWN), "Error")
    head = {
        "kind": "error",
        "class": kind,
        "message": error.message,
        "span": None if error.span is None else list(error.span),
        "text": error.text,
        "hint": error.hint,
        "name": getattr(error, "name", None),
        "keys": list(error.keys),
    }
    return Message(head)


def read_error(message: Message) -> Error:
    """Parse an error written by :func:`write_error`, as :class:`~dpsql.Error` for an unknown class; WireError if malformed."""
    head = message.head
    kind = _KNOWN.get(get_field(head, "class", str), Error)
    span, keys = head.get("span"), get_field(head, "keys", list, [])
    if span is not None and not (
        isinstance(span, list) and len(span) == 2 and all(type(place) is int and place >= 0 for place in span)
    ):
        raise WireError("an error arrived with a place that is none.")
    error = kind(
        get_field(head, "message", str),
        span=None if span is None else (span[0], span[1]),
        text=_optional(head, "text"),
        hint=_optional(head, "hint"),
        keys=tuple(key for key in keys if isinstance(key, str)),
    )
    if hasattr(error, "name"):
        error.name = _optional(head, "name")
    return error


def _optional(head: Mapping[str, Any], name: str) -> str | None:
    return None if head.get(name) is None else get_field(head, name, str)


# -- records ----------------------------------------------------------------------------------------------------------


def read_event_of(body: Any) -> Event:
    """Parse an event written by :meth:`dpsql.privacy.events.Event.to_json`; WireError if malformed."""
    from dpsql.privacy.events import Event

    return _read(Event, body)


def _read(kind: type[_T], body: Any) -> _T:
    from dpsql.client.wire import read_value

    try:
        return cast(_T, read_value(kind, body))
    except MALFORMED:
        raise WireError(f"a message arrived without a proper {kind.__name__}.") from None


def write_state(state: BudgetState) -> dict[str, Any]:
    """Return a budget state as JSON values."""
    from dpsql.client.wire import write_record

    return write_record(state)


def read_state(body: Any) -> BudgetState:
    """Parse a budget state; WireError if malformed, or of an unknown accountant."""
    from dpsql.privacy.filters import ACCOUNTANTS
    from dpsql.privacy.records import BudgetState

    state = _read(BudgetState, body)
    if not all(one.accountant in ACCOUNTANTS for one in (state, state.whole or state)):
        raise WireError(
            "a budget of an unknown accountant arrived.", hint="install the server's version of dpsql."
        )
    return state


def write_entry(entry: Entry) -> dict[str, Any]:
    """Return a ledger entry as JSON values."""
    from dpsql.client.wire import write_record

    return write_record(entry)


def read_entry(body: Any) -> Entry:
    """Parse a ledger entry; WireError if malformed."""
    from dpsql.privacy.records import Entry

    entry = _read(Entry, body)
    try:
        datetime.datetime.fromisoformat(entry.when)
    except ValueError:
        raise WireError("a statement without a proper time arrived.") from None
    return entry


def write_explanation(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON values."""
    from dpsql.client.wire import write_record

    return write_record(explanation)


def read_explanation(body: Any) -> Explanation:
    """Parse an explanation; WireError if malformed."""
    from dpsql.session.explanation import Explanation

    return _read(Explanation, body)


def write_why(why: Why) -> dict[str, Any]:
    """Return a :class:`Why` as JSON values."""
    from dpsql.client.wire import write_record

    return write_record(why)


def read_why(body: Any) -> Why:
    """Parse a :class:`Why`; WireError if malformed."""
    from dpsql.session.explanation import Why

    return _read(Why, body)


# -- results ----------------------------------------------------------------------------------------------------------


def write_result(result: Result, **more: Any) -> Iterator[Message]:
    """Yield a result's messages, with at most :data:`CHUNK` bytes of rows each; ``more`` extends the first head."""
    import pyarrow as pa

    table, names = result.table, result.columns
    arrays = list(table.columns)
    for ends in result.ends.values():
        arrays += ends
    plain = pa.Table.from_arrays(arrays, names=[str(number) for number in range(len(arrays))])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, plain.schema) as writer:
        writer.write_table(plain)
    rows = memoryview(sink.getvalue())
    head = {
        "kind": "result",
        "bytes": len(rows),
        "columns": names,
        "rows": len(result),
        "intervals": list(result.ends),
        "loss": result.loss,
        "event": None if result.event is None else result.event.to_json(),
        "notes": list(result.notes),
        "statement_id": result.statement_id,
        "cost_line": result.cost_line,
        "confidence": float(result.confidence),
        "whole": result.whole,
        "expected_error": result.expected_error,
        **more,
    }
    yield Message(head, bytes(rows[:CHUNK]))
    for start in range(CHUNK, len(rows), CHUNK):
        yield Message({"kind": "rows"}, bytes(rows[start : start + CHUNK]))


def read_results(messages: Iterable[Message]) -> list[Result]:
    """Parse results written by :func:`write_result`; WireError if rows are missing, superfluous or malformed."""
    reader = ResultReader()
    for message in messages:
        reader.take(message)
    return reader.results()


class ResultReader:
    """Collects the messages of results as they arrive."""

    def __init__(self, limit: int = 2 * MAX_RESULT) -> None:
        self._limit = limit
        self._finished: list[Result] = []
        self._heads: list[dict[str, Any]] = []
        self._parts: list[bytes] = []
        self._missing = 0

    def take(self, message: Message) -> None:
        """Add a ``result`` or ``rows`` message; WireError if it is out of order or too long."""
        head = message.head
        begins = head.get("kind") == "result"
        if not begins and head.get("kind") != "rows":
            raise WireError("rows were expected, and something else arrived.")
        if begins == bool(self._missing):
            raise WireError("rows of a result are missing or superfluous.")
        if begins:
            self._missing = get_field(head, "bytes", int)
            if not 0 < self._missing <= self._limit:
                raise WireError(f"a result may have {self._limit:,} bytes.", hint="ask for fewer rows.")
            self._heads.append(head)
        self._missing -= len(message.payload)
        if self._missing < 0 or not message.payload:
            raise WireError("rows of a result are missing or superfluous.")
        self._parts.append(message.payload)
        if not self._missing:
            self._finished.append(_read_result(head if begins else self._heads[-1], b"".join(self._parts)))
            self._parts.clear()

    @property
    def finished(self) -> list[Result]:
        """The results that have arrived completely."""
        return self._finished

    @property
    def heads(self) -> list[dict[str, Any]]:
        """The heads of the results, in order."""
        return self._heads

    def results(self) -> list[Result]:
        """Return the results; WireError if rows of the last one are missing."""
        if self._missing:
            raise WireError("rows of a result are missing or superfluous.")
        return self._finished


def _read_errors(body: dict[str, Any]) -> dict[str, float]:
    return {name: get_field(body, name, float) for name in body}


def _read_result(head: dict[str, Any], rows: bytes) -> Result:
    import pyarrow as pa

    from dpsql.session.result import Result

    columns, measured = (_texts(head, name) for name in ("columns", "intervals"))
    try:
        with pa.ipc.open_stream(rows) as stream:
            table = stream.read_all()
        for column in table.columns:
            for array in column.chunks:
                _check_array(array)
        ends = table.columns[len(columns) :]
        sound = len(ends) == 2 * len(measured) and all(_is_end(end.type) for end in ends)
        if not sound or len(set(measured)) < len(measured) or not set(measured) <= set(columns):
            raise ValueError
        event = head.get("event")
        return Result(
            _check_rows(pa.Table.from_arrays(table.columns[: len(columns)], names=columns), head),
            intervals={name: (ends[2 * i], ends[2 * i + 1]) for i, name in enumerate(measured)},
            loss=get_field(head, "loss", str),
            event=None if event is None else read_event_of(event),
            notes=_texts(head, "notes"),
            statement_id=_optional(head, "statement_id"),
            cost_line=get_field(head, "cost_line", str),
            confidence=get_field(head, "confidence", float),
            whole=get_field(head, "whole", bool),
            expected_error=_read_errors(get_field(head, "expected_error", dict, {})),
        )
    except (*MALFORMED, pa.ArrowException):
        raise WireError("a result arrived whose rows can't be read.") from None


def _is_end(kind: pa.DataType) -> bool:
    """Return whether a column's type fits interval ends: numbers, dates, times, or maps of a histogram's bins to numbers."""
    import pyarrow as pa

    return bool(
        kind == pa.float64()
        or pa.types.is_temporal(kind)
        or (pa.types.is_map(kind) and kind.item_type == pa.float64())
    )


def _check_array(array: pa.Array) -> None:
    """Check that an array's offsets stay within it.

    Arrow's own check also refuses decimals of 39 digits, which DuckDB's HUGEINT has; they have no offsets.
    """
    import pyarrow as pa

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


def _check_rows(table: pa.Table, head: dict[str, Any]) -> pa.Table:
    """Check the number of rows; Arrow keeps none for a table without columns."""
    if table.num_columns and table.num_rows != get_field(head, "rows", int):
        raise ValueError
    return table


def _texts(head: Mapping[str, Any], name: str) -> list[str]:
    listed = get_field(head, name, list)
    if not all(isinstance(item, str) for item in listed):
        raise WireError(f"a message arrived without a proper {name!r}.")
    return listed


_PARCEL = "parcel"
_CHOICE, _IN_PLACE = "GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener"


def pack_messages(messages: Sequence[bytes]) -> Iterator[bytes]:
    """Yield batches of encoded messages, of about :data:`~dpsql.client.wire.CHUNK` bytes.

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


def write_params(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return ``$name`` parameters as JSON values; for a value that SQL can't represent, its type's name."""
    return (
        None if params is None else {read_name(name): _write_param(value) for name, value in params.items()}
    )


def _write_param(value: Any) -> Any:
    value = unwrap_value(value)
    if isinstance(value, list) and not any(isinstance(held, list) for held in value):
        return [_write_param(held) for held in value]
    if value is None or isinstance(value, bool | str):
        return value
    # A moment that UTC has no year for, or more digits than Python writes.
    with suppress(TypeError, ValueError, OverflowError):
        if isinstance(value, datetime.datetime):
            return {"timestamp": _check_date(drop_zone(value), datetime.datetime)}
        if isinstance(value, datetime.date):
            return {"date": _check_date(value, datetime.date)}
        if isinstance(value, float):
            return {"float": repr(value)}
        if isinstance(value, int | decimal.Decimal):
            return {"int" if isinstance(value, int) else "decimal": str(value)}
    return {"other": type(value).__name__}


def _check_date(value: datetime.date, kind: type[datetime.date]) -> str:
    text = value.isoformat()
    kind.fromisoformat(text)
    return text


def write_amount(epsilon: str | Fraction | None) -> str | dict[str, str] | None:
    """Return an epsilon, the analyst's text or exact, as a JSON value."""
    return {"fraction": str(epsilon)} if isinstance(epsilon, Fraction) else epsilon


def write_question(
    text: str, params: Mapping[str, Any] | None, epsilon: str | Fraction | None
) -> dict[str, Any]:
    """Return a statement's text, parameters by name and epsilon as JSON values."""
    return {"text": text, "params": write_params(params), "epsilon": write_amount(epsilon)}


def read_amount(body: Any) -> str | Fraction | None:
    """Parse an epsilon; WireError if malformed."""
    if isinstance(body, dict):
        from dpsql.client.wire import read_value

        try:
            return cast(Fraction, read_value(Fraction, body.get("fraction")))
        except MALFORMED:
            raise WireError("an epsilon arrived that is none.") from None
    if body is not None and not isinstance(body, str):
        raise WireError("an epsilon arrived that is none.")
    return body


def read_params(body: Any) -> dict[str, Any] | None:
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


_READ: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "decimal": decimal.Decimal,
    "timestamp": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "other": lambda name: type(name, (), {})(),  # it has only this name, by which it is refused
}


def _read_param(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    ((kind, text),) = value.items()
    if not isinstance(text, str):
        raise TypeError
    return _READ[kind](text)


def write_arrow_schemas(schemas: Iterable[pa.Schema]) -> list[str]:
    """Return columns' names and types as JSON values."""
    return [base64.b64encode(schema.serialize()).decode() for schema in schemas]


def read_arrow_schemas(body: Any) -> list[pa.Schema]:
    """Parse columns' names and types; WireError if malformed."""
    import pyarrow as pa

    try:
        return [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True))) for text in body]
    except (*MALFORMED, pa.ArrowException):
        raise WireError("columns arrived that are none.") from None


_FRACTION = re.compile(r"-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")


def write_record(record: Any) -> dict[str, Any]:
    """Return a frozen dataclass as JSON values, by its fields' declared types."""
    return {f.name: _write_value(getattr(record, f.name)) for f in fields(record)}


def _write_value(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_json()
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, tuple | list):
        return [_write_value(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _write_value(item) for key, item in value.items()}
    return write_record(value) if is_dataclass(value) else value


def read_value(declared: Any, value: Any) -> Any:
    """Return a JSON value as its declared type: a record, an event, a plain value, or lists of these.

    Unknown fields of records are ignored. ValueError, TypeError, KeyError or ArithmeticError if the value is malformed
    or a field is missing.
    """
    return _find_reader(declared)(value)


_Read = Callable[[Any], Any]


@cache
def _find_reader(declared: Any) -> _Read:
    """Return the reader of a type, cached since budget states are read often."""
    origin, inside = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        (kind,) = (one for one in inside if one is not NoneType)
        return _optional_type(kind) if NoneType in inside else _find_reader(kind)
    if origin is tuple:
        return _list_of(inside[0]) if inside[-1] is ... else _tuple_of(inside)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_of(*inside)
    if declared is Event:
        return Event.from_json
    if is_dataclass(declared) and isinstance(declared, type):
        return _record_of(declared)
    return _PLAIN[declared]


def _optional_type(kind: Any) -> _Read:
    def read(value: Any) -> Any:
        return None if value is None else _find_reader(kind)(value)

    return read


def _list_of(kind: Any) -> _Read:
    def read(value: Any) -> Any:
        return tuple(map(_find_reader(kind), _check(list, value)))

    return read


def _tuple_of(kinds: tuple[Any, ...]) -> _Read:
    def read(value: Any) -> Any:
        items = zip(kinds, _check(list, value), strict=True)
        return tuple(_find_reader(kind)(item) for kind, item in items)

    return read


def _mapping_of(key: Any, kind: Any) -> _Read:
    def read(value: Any) -> Any:
        items = _check(dict, value).items()
        return {_find_reader(key)(name): _find_reader(kind)(item) for name, item in items}

    return read


def _record_of(kind: type) -> _Read:
    known: list[tuple[str, _Read, bool]] = []

    def read(value: Any) -> Any:
        body = _check(dict, value)
        if not known:  # resolved late, because some records' types are defined after this module
            hints = get_type_hints(kind)
            known[:] = [(f.name, _find_reader(hints[f.name]), _is_needed(f)) for f in fields(kind)]
        return kind(**{name: get(body[name]) for name, get, needed in known if needed or name in body})

    return read


def _is_needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _check(kind: type[_T], value: Any) -> _T:
    if type(value) is not kind:
        raise TypeError
    return value


def _read_fraction(value: Any) -> Fraction:
    if not _FRACTION.fullmatch(_check(str, value)):
        raise ValueError
    return Fraction(value)


def _read_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return float(value)


_PLAIN: dict[Any, _Read] = {
    Fraction: _read_fraction,
    float: _read_float,
    str: partial(_check, str),
    int: partial(_check, int),
    bool: partial(_check, bool),
}
