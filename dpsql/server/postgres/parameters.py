"""Parameters of a statement as a PostgreSQL client sends them: bytes with a type's number, as text or binary.

They become values of Python, which the session writes as literals; nothing that a client sends becomes text of a statement.
Binary values are read in the type that the client named, or else in the type that was described to it, as PostgreSQL reads
them: eight bytes of a float8 are a float8, and never their ASCII digits. A parameter in text whose type the client leaves
open is a text, as which it meets numbers and dates too where it reads as one.
"""

from __future__ import annotations

import datetime
import decimal
import math
import struct
import uuid
from collections.abc import Callable
from typing import Any

from dpsql.errors import BindError
from dpsql.parameters import drop_zone
from dpsql.server.postgres import types
from dpsql.server.postgres.types import ARRAYS, NAMES

MAX_ITEMS = 10_000
"""Items of one array."""
_MAX_DIGITS = 1000
_ITEMS = {array: item for item, array in ARRAYS.items()}
_EPOCH = datetime.datetime(2000, 1, 1)
_TEXTS = frozenset(
    {
        0, types.TEXT, types.UNKNOWN, types.VARCHAR, types.BPCHAR, types.NAME, types.JSON, types.UUID, types.TIME, types.INTERVAL,
    }
)  # fmt: skip


class ParameterError(BindError):
    """A value that is none of its type, with the SQLSTATE that PostgreSQL has for it."""

    def __init__(self, sentence: str, state: str) -> None:
        super().__init__(sentence, hint=_OWN_FORM)
        self.state = state


_OWN_FORM = "send the value in its type's own form."
BAD_TEXT, BAD_BINARY = "22P02", "22P03"
"""The SQLSTATE of a value that is none of its type, in text and in binary."""


def read_parameter(number: int, kind: int, form: int, data: bytes | None) -> Any:
    r"""Return the value of a parameter.

    Args:
        number: its place, for the error.
        kind: the number of its type; 0 where the client leaves it open.
        form: 0 for text, 1 for binary.
        data: its bytes; None for NULL.

    Raises:
        BindError: the type is none that a parameter may have. ParameterError: the bytes are no value of it.

    >>> read_parameter(1, types.INT4, 1, b"\0\0\0\7"), read_parameter(2, 1007, 0, b"{1,NULL,3}")
    (7, [1, None, 3])
    """
    if data is None:
        return None
    known = types.PgType(kind).spoken if kind in NAMES or kind in _ITEMS else None
    if known is None and kind != 0:
        raise BindError(
            f"${number} has a type that no parameter has here.",
            hint="send a text, number, boolean, date, timestamp, or an array of these.",
        )
    if form and kind == 0:
        raise ParameterError(f"${number} came in binary, and its type isn't known.", BAD_BINARY)
    try:
        return _read(kind, form, data)
    except (ValueError, ArithmeticError, struct.error, IndexError, OverflowError):
        state = BAD_BINARY if form else BAD_TEXT
        raise ParameterError(f"${number} is no {known or 'text'}.", state) from None


def _read(kind: int, form: int, data: bytes) -> Any:
    if kind in _ITEMS:
        return _read_array(_ITEMS[kind], data) if form else _read_array_text(_ITEMS[kind], data.decode())
    if form and kind in _BINARY:
        return _BINARY[kind](data)
    if (form and kind not in _TEXTS) or b"\0" in data:
        raise ValueError(kind)
    return _FROM_TEXT.get(kind, str)(data.decode())


_TRUTHS = dict.fromkeys(("t", "true", "1", "on", "yes", "y"), True) | dict.fromkeys(
    ("f", "false", "0", "off", "no", "n"), False
)


def _read_truth(text: str) -> bool:
    found = _TRUTHS.get(text.strip().lower())
    return _refuse() if found is None else found


def _refuse() -> Any:
    raise ValueError


def _read_whole(text: str) -> int:
    return int(text) if len(text) <= _MAX_DIGITS and text.isascii() and "_" not in text else _refuse()


def _read_number(text: str) -> decimal.Decimal:
    number = (
        decimal.Decimal(text)
        if len(text) <= _MAX_DIGITS and text.isascii() and "_" not in text
        else _refuse()
    )
    if number.is_finite() and abs(int(number.as_tuple().exponent)) > _MAX_DIGITS:
        raise ValueError
    return number


def _read_double(text: str) -> float:
    return float(text) if len(text) <= _MAX_DIGITS and text.isascii() and "_" not in text else _refuse()


def _read_moment(text: str) -> datetime.datetime:
    """Read a timestamp; one with a zone is told in UTC."""
    return drop_zone(datetime.datetime.fromisoformat(text))


_FROM_TEXT: dict[int, Callable[[str], Any]] = {
    types.BOOL: _read_truth,
    types.INT2: _read_whole, types.INT4: _read_whole, types.INT8: _read_whole, types.OID: _read_whole,
    types.FLOAT4: _read_double, types.FLOAT8: _read_double, types.NUMERIC: _read_number,
    types.DATE: datetime.date.fromisoformat, types.TIMESTAMP: _read_moment, types.TIMESTAMPTZ: _read_moment,
    types.BYTEA: lambda text: _refuse(),
}  # fmt: skip


def _unpack(form: str) -> Callable[[bytes], Any]:
    return lambda data: struct.unpack(form, data)[0]


def _read_finite(form: str) -> Callable[[bytes], float]:
    """Return a reader of doubles, which refuses NaN and infinities: SQL has no literal for them."""

    def read(data: bytes) -> float:
        (found,) = struct.unpack(form, data)
        if not math.isfinite(found):
            raise ValueError
        return float(found)

    return read


def _read_binary_number(data: bytes) -> decimal.Decimal:
    """Read a ``numeric``: digits in base ten thousand. Digits behind its scale are cut off, as PostgreSQL does."""
    count, weight, sign, scale = struct.unpack_from(">HhHH", data)
    groups = struct.unpack(f">{count}h", data[8:])
    if (
        sign not in (0, 0x4000)
        or abs(weight) > _MAX_DIGITS
        or scale > _MAX_DIGITS
        or count > _MAX_DIGITS
        or not all(0 <= group < 10_000 for group in groups)
    ):
        raise ValueError
    whole = int("".join(f"{group:04}" for group in groups) or "0")
    shift = 4 * (weight - count + 1) + scale
    whole = whole * 10**shift if shift >= 0 else whole // 10**-shift
    digits = tuple(map(int, str(whole)))
    return decimal.Decimal((1 if sign and whole else 0, digits, -scale))


def _read_micros(data: bytes) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(microseconds=struct.unpack(">q", data)[0])


def _read_time(data: bytes) -> str:
    (micros,) = struct.unpack(">q", data)
    if not 0 <= micros < 86_400_000_000:
        raise ValueError
    return str((_EPOCH + datetime.timedelta(microseconds=micros)).time())


def _read_interval(data: bytes) -> str:
    micros, days, months = struct.unpack(">qii", data)
    return f"{months} months {days} days {micros} microseconds"


_BINARY: dict[int, Callable[[bytes], Any]] = {
    types.BOOL: _unpack(">?"),
    types.INT2: _unpack(">h"), types.INT4: _unpack(">i"), types.INT8: _unpack(">q"), types.OID: _unpack(">I"),
    types.FLOAT4: _read_finite(">f"), types.FLOAT8: _read_finite(">d"), types.NUMERIC: _read_binary_number,
    types.DATE: lambda data: (_EPOCH + datetime.timedelta(days=struct.unpack(">i", data)[0])).date(),
    types.TIMESTAMP: _read_micros, types.TIMESTAMPTZ: _read_micros,
    types.TIME: _read_time,
    types.INTERVAL: _read_interval,
    types.UUID: lambda data: str(uuid.UUID(bytes=data)),
}  # fmt: skip


def _read_array(kind: int, data: bytes) -> list[Any]:
    """Read an array of one dimension or none. Its items have the type of the parameter's array."""
    dimensions, flags, item = struct.unpack_from(">iiI", data)
    count, at = (struct.unpack_from(">ii", data, 12)[0], 20) if dimensions else (0, 12)
    if dimensions not in (0, 1) or flags not in (0, 1) or item != kind or not 0 <= count <= MAX_ITEMS:
        raise ValueError
    found = []
    for _ in range(count):
        size = struct.unpack_from(">i", data, at)[0]
        at += 4
        if size > len(data) - at or size < -1:
            raise ValueError
        found.append(None if size == -1 else _read(item, 1, data[at : at + size]))
        at += max(0, size)
    if at != len(data):
        raise ValueError
    return found


def _read_array_text(kind: int, text: str) -> list[Any]:
    """Read ``{1,NULL,"a b"}``: one dimension, items in quotes where they hold other signs."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError
    found: list[Any] = []
    at, end = 1, len(text) - 1
    while at < end:
        item, quoted, at = _read_item(text, at, end)
        found.append(None if not quoted and item.upper() == "NULL" else _read(kind, 0, item.encode()))
        if len(found) > MAX_ITEMS or (at < end and text[at] != ",") or at + 1 == end:
            raise ValueError
        at += 1
    return found


def _read_item(text: str, at: int, end: int) -> tuple[str, bool, int]:
    """Return an item of an array, whether it stands in quotes, and where it ends."""
    if text[at] != '"':
        stop = min((place for sign in ",{}" if (place := text.find(sign, at, end)) >= 0), default=end)
        return text[at:stop].strip(), False, stop
    made: list[str] = []
    at += 1
    while text[at] != '"':
        at += text[at] == "\\"
        made.append(text[at])
        at += 1
    return "".join(made), True, at + 1
