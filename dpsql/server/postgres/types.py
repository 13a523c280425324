"""Types and values of PostgreSQL's protocol: columns and their values as text or binary, and parameters.

No value is rounded: integers above 64 bits are ``numeric``, doubles have all significant digits, and dates outside Python's years
are counted in days. Structs, maps and nested lists are ``json``.

Parameters become Python values, which the session writes as literals; no byte of a client becomes text of a statement. A binary
value has the type that the client named, or else the type that was described to it: eight bytes of a float8 are a float8, never
ASCII digits. A text parameter without a type is a text, which may be compared with numbers and dates if it reads as one.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
import struct
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from dpsql.errors import BindError
from dpsql.language.parameter_values import drop_zone
from dpsql.language.postgres_texts import MAX_ITEMS, read_interval, split_array
from dpsql.late_dataclass import dataclass
from dpsql.server.postgres.messages import ResultField

BOOL, BYTEA, INT8, INT2, INT4, TEXT, OID, JSON, FLOAT4, FLOAT8 = 16, 17, 20, 21, 23, 25, 26, 114, 700, 701
DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, NUMERIC, UUID = 1082, 1083, 1114, 1184, 1186, 1700, 2950
UNKNOWN, VARCHAR, BPCHAR, NAME = 705, 1043, 1042, 19
_TYPES = """
    bool 16 1000 1 boolean
    bytea 17 1001 -1
    int8 20 1016 8 bigint
    int2 21 1005 2 smallint
    int4 23 1007 4 integer
    text 25 1009 -1
    oid 26 1028 4
    json 114 199 -1
    float4 700 1021 4 real
    float8 701 1022 8 double precision
    date 1082 1182 4
    time 1083 1183 8 time without time zone
    timestamp 1114 1115 8 timestamp without time zone
    timestamptz 1184 1185 8 timestamp with time zone
    interval 1186 1187 16
    numeric 1700 1231 -1
    uuid 2950 2951 16
    unknown 705 0 -1
    varchar 1043 1015 -1 character varying
    bpchar 1042 1014 -1 character
    name 19 1003 64
"""
_ROWS = [line.split(maxsplit=4) for line in _TYPES.strip().splitlines()]
NAMES = {int(row[1]): row[0] for row in _ROWS}
"""The names of types in ``pg_type``."""
ARRAYS = {int(row[1]): int(row[2]) for row in _ROWS if row[2] != "0"}
"""The arrays of types."""
_ITEMS = {array: item for item, array in ARRAYS.items()}
_SIZES = {int(row[1]): int(row[3]) for row in _ROWS}
SPOKEN = {int(row[1]): row[4] for row in _ROWS if len(row) > 4}
"""The names of types in SQL, if they differ."""

_EPOCH_DAYS = 10_957
"""Days from 1970 to 2000, where PostgreSQL begins to count."""
_DAY_MICROS = 86_400_000_000
_LAST_DAY = 2**31 - 1


@dataclass(frozen=True)
class PgType:
    """A type of PostgreSQL: its number, and its modifier (digits of a numeric; -1: none)."""

    kind: int
    modifier: int = -1

    def name_field(self, name: str) -> ResultField:
        """Return a column of this type."""
        return ResultField(name, self.kind, _SIZES.get(self.kind, -1), self.modifier)

    @property
    def spoken(self) -> str:
        """The type as SQL writes it."""
        if self.kind in _ITEMS:
            return f"{PgType(_ITEMS[self.kind]).spoken}[]"
        if self.kind == NUMERIC and self.modifier >= 0:
            width, scale = divmod(self.modifier - 4, 1 << 16)
            return f"numeric({width},{scale})"
        return SPOKEN.get(self.kind, NAMES.get(self.kind, "text"))


_BY_SQL = {name.upper(): kind for kind, name in NAMES.items()}
_BY_SQL |= {spoken.partition(" ")[0].upper(): kind for kind, spoken in SPOKEN.items()}
_BY_SQL |= {
    "BOOLEAN": BOOL, "TINYINT": INT2, "SMALLINT": INT2, "INTEGER": INT4, "BIGINT": INT8, "HUGEINT": NUMERIC, "UTINYINT": INT2,
    "USMALLINT": INT4, "UINTEGER": INT8, "UBIGINT": NUMERIC, "UHUGEINT": NUMERIC, "BIGNUM": NUMERIC, "FLOAT": FLOAT4,
    "DOUBLE": FLOAT8, "DATE": DATE, "TIME": TIME, "TIMESTAMP": TIMESTAMP, "TIMESTAMP_S": TIMESTAMP, "TIMESTAMP_MS": TIMESTAMP,
    "TIMESTAMP_NS": TIMESTAMP, "TIMESTAMP WITH TIME ZONE": TIMESTAMPTZ, "INTERVAL": INTERVAL, "BLOB": BYTEA, "UUID": UUID,
    "JSON": JSON, "VARCHAR": TEXT, "INT": INT4, "DECIMAL": NUMERIC,
}  # fmt: skip
"""Types by their names in DuckDB, and further ones by those in PostgreSQL."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")
_LIST = re.compile(r"(.+)\[\d*\]", re.DOTALL)
_NESTED = re.compile(r"(STRUCT|MAP|UNION)\b")


def find_sql_type(kind: str, unknown: int = TEXT) -> PgType:
    """Return the type of a column by its type in SQL, in capitals; ``unknown`` is the number of any other.

    >>> find_sql_type("DECIMAL(9,2)").spoken, find_sql_type("INTEGER[]").spoken, find_sql_type("MAP(VARCHAR, INTEGER)").spoken
    ('numeric(9,2)', 'integer[]', 'json')
    """
    if (listed := _LIST.fullmatch(kind)) is not None:
        item = find_sql_type(listed[1], unknown).kind
        return PgType(ARRAYS[item] if item in ARRAYS and item != JSON else JSON)
    if (number := _DECIMAL.fullmatch(kind)) is not None:
        return _make_numeric(int(number[1]), int(number[2]))
    return PgType(JSON if _NESTED.match(kind) else _BY_SQL.get(kind, unknown))


def _make_numeric(width: int, scale: int) -> PgType:
    return PgType(NUMERIC, (width << 16 | scale) + 4)


_BY_ARROW: tuple[tuple[Callable[[pa.DataType], bool], int], ...] = (
    (pa.types.is_boolean, BOOL),
    (lambda kind: kind in (pa.int8(), pa.uint8(), pa.int16()), INT2),
    (lambda kind: kind in (pa.uint16(), pa.int32()), INT4),
    (lambda kind: kind in (pa.uint32(), pa.int64()), INT8),
    (lambda kind: kind == pa.uint64(), NUMERIC),
    (lambda kind: pa.types.is_float16(kind) or pa.types.is_float32(kind), FLOAT4),
    (pa.types.is_float64, FLOAT8),
    (pa.types.is_date, DATE),
    (pa.types.is_time, TIME),
    (lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None, TIMESTAMPTZ),
    (pa.types.is_timestamp, TIMESTAMP),
    (lambda kind: pa.types.is_interval(kind) or pa.types.is_duration(kind), INTERVAL),
    (lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind), BYTEA),
    (lambda kind: pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_union(kind), JSON),
)


def find_arrow_type(kind: pa.DataType) -> PgType:
    """Return the type of an answer's column by its Arrow type."""
    if pa.types.is_decimal(kind):
        return (
            PgType(NUMERIC)
            if kind.scale == 0 and kind.precision >= 38
            else _make_numeric(kind.precision, kind.scale)
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        item = find_arrow_type(kind.value_type).kind
        return PgType(ARRAYS[item] if item in ARRAYS and item != JSON else JSON)
    return PgType(next((number for test, number in _BY_ARROW if test(kind)), TEXT))


# -- values of a column ---------------------------------------------------------------------------------------------------


def read_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python's; dates are days and timestamps microseconds since 1970."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return read_values(column.cast(kind.value_type))
    if pa.types.is_date(kind):
        return list(column.cast(pa.date32()).cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(kind):
        return _count_micros(column.cast(pa.int64()).to_pylist(), kind.unit)
    if pa.types.is_time(kind):
        return _count_micros(
            column.cast(pa.int64() if kind.bit_width == 64 else pa.int32()).to_pylist(), kind.unit
        )
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if find_arrow_type(kind).kind == JSON:  # which needs nested lists as Python's
            return list(column.to_pylist())
        return [read_values(pa.chunked_array([item.values])) if item.is_valid else None for item in column]
    return list(column.to_pylist())


def _count_micros(counts: Sequence[int | None], unit: str) -> list[int | None]:
    factor, divisor = {"s": (10**6, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}[unit]
    return [None if count is None else count * factor // divisor for count in counts]


Encoder = Callable[[Any], bytes]


def find_encoder(kind: int, form: int, iso_intervals: bool = False) -> Encoder:
    """Return the encoder of a type: text for ``form`` 0, binary for 1."""
    item = _ITEMS.get(kind)
    if form:
        return _BINARY.get(kind, _write_plain) if item is None else lambda value: _write_array(item, value)
    say = _TEXTS.get(kind if item is None else item, _say_plain)
    if iso_intervals and say is _say_interval:
        say = _say_iso_interval
    if item is not None:
        return lambda values: _write_array_text(say, values).encode()
    return lambda value: say(value).encode(errors="replace")


def _say_plain(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _write_plain(value: Any) -> bytes:
    return value if isinstance(value, bytes) else _say_plain(value).encode(errors="replace")


def say_double(value: float) -> str:
    """Return a double's shortest text.

    >>> say_double(150.0), say_double(1e300), say_double(float("-inf"))
    ('150', '1e+300', '-Infinity')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(float(value)).removesuffix(".0")


def _say_single(value: float) -> str:
    return say_double(value) if not math.isfinite(value) else str(np.float32(value)).removesuffix(".0")


def _say_decimal(value: Any) -> str:
    return f"{value:f}" if isinstance(value, decimal.Decimal) and value.is_finite() else str(value)


def _say_date(days: int) -> str:
    """Return the text of a date by its days since 1970; DuckDB's first and last dates mean infinity."""
    if abs(days) >= _LAST_DAY:
        return "infinity" if days > 0 else "-infinity"
    year, month, day = str(np.datetime64(days, "D")).rsplit("-", 2)
    return f"{year}-{month}-{day}" if int(year) > 0 else f"{1 - int(year):04}-{month}-{day} BC"


def _say_time(micros: int) -> str:
    seconds, rest = divmod(micros, 10**6)
    sentence = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{sentence}.{rest:06}".rstrip("0") if rest else sentence


def _say_timestamp(micros: int, zone: str = "") -> str:
    if abs(micros) >= 2**63 - 1:
        return "infinity" if micros > 0 else "-infinity"
    days, rest = divmod(micros, _DAY_MICROS)
    date, _, era = _say_date(days).partition(" ")
    return f"{date} {_say_time(rest)}{zone}{f' {era}' if era else ''}"


def _split_interval(value: Any) -> tuple[int, int, int]:
    """Return months, days and microseconds."""
    if isinstance(value, datetime.timedelta):
        return 0, value.days, value.seconds * 10**6 + value.microseconds
    months, days, nanos = value
    return months, days, nanos // 1000


def _say_interval(value: Any) -> str:
    """Return an interval as ``1 year 2 mons 3 days 04:05:06``."""
    years, months, days, micros = _split_years(value)
    units = ((years, "year"), (months, "mon"), (days, "day"))
    parts = [f"{count} {unit}{'' if count == 1 else 's'}" for count, unit in units if count]
    if micros or not parts:
        parts.append(f"{'-' if micros < 0 else ''}{_say_time(abs(micros))}")
    return " ".join(parts)


def _split_years(value: Any) -> tuple[int, int, int, int]:
    """Return years, months, days and microseconds."""
    months, days, micros = _split_interval(value)
    return int(months / 12), int(math.fmod(months, 12)), days, micros


def _say_iso_interval(value: Any) -> str:
    """Return an interval as ISO 8601 has it.

    >>> _say_iso_interval((14, -3, 3_601_500_000_000)), _say_iso_interval(datetime.timedelta())
    ('P1Y2M-3DT1H1.5S', 'PT0S')
    """
    years, months, days, micros = _split_years(value)
    seconds, rest = divmod(abs(micros), 10**6)
    sign = "-" if micros < 0 else ""
    dates = ((years, "Y"), (months, "M"), (days, "D"))
    clock = "".join(
        f"{sign}{count}{unit}" for count, unit in ((seconds // 3600, "H"), (seconds // 60 % 60, "M")) if count
    )
    if seconds % 60 or rest:
        clock += f"{sign}{seconds % 60}{f'.{rest:06}'.rstrip('0') if rest else ''}S"
    date = "".join(f"{count}{unit}" for count, unit in dates if count)
    return f"P{date}T{clock}" if clock else f"P{date}" if date else "PT0S"


def _say_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(_make_plain(value), ensure_ascii=False)


def _make_plain(value: Any) -> Any:
    """Return a nested value for JSON; values and numbers that JSON doesn't have become texts."""
    if isinstance(value, dict):
        return {_say_key(key): _make_plain(item) for key, item in value.items()}
    if (
        isinstance(value, list)
        and value
        and all(isinstance(item, tuple) and len(item) == 2 for item in value)
    ):
        return {_say_key(key): _make_plain(item) for key, item in value}  # a map, as Arrow gives it
    if isinstance(value, list | tuple):
        return [_make_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else say_double(value)
    if isinstance(value, decimal.Decimal):
        return (
            int(value)
            if value == value.to_integral_value() and value.as_tuple().exponent == 0
            else str(value)
        )
    return value.hex() if isinstance(value, bytes) else str(value)


def _say_key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(_make_plain(key))


_TEXTS: dict[int, Callable[[Any], str]] = {
    BOOL: lambda value: "t" if value else "f",
    BYTEA: lambda value: "\\x" + bytes(value).hex(),
    FLOAT4: _say_single, FLOAT8: say_double, NUMERIC: _say_decimal, DATE: _say_date, TIME: _say_time, TIMESTAMP: _say_timestamp,
    TIMESTAMPTZ: lambda micros: _say_timestamp(micros, "+00"),
    INTERVAL: _say_interval, JSON: _say_json,
}  # fmt: skip


def _write_date(days: int) -> bytes:
    if abs(days) >= _LAST_DAY:
        return struct.pack(">i", _LAST_DAY if days > 0 else -_LAST_DAY - 1)
    return struct.pack(">i", days - _EPOCH_DAYS)


def _write_timestamp(micros: int) -> bytes:
    if abs(micros) >= 2**63 - 1:
        return struct.pack(">q", 2**63 - 1 if micros > 0 else -(2**63))
    return struct.pack(">q", max(-(2**63) + 1, micros - _EPOCH_DAYS * _DAY_MICROS))


def _write_interval(value: Any) -> bytes:
    months, days, micros = _split_interval(value)
    return struct.pack(">qii", micros, days, months)


def _write_numeric(value: Any) -> bytes:
    """Write a number in PostgreSQL's base of ten thousand: how many digits, the first one's weight, sign, scale, digits."""
    number = value if isinstance(value, decimal.Decimal) else decimal.Decimal(value)
    if not number.is_finite():
        return struct.pack(">hhHh", 0, 0, 0xC000, 0)
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    scale, whole = max(0, -exponent), int("".join(map(str, digits))) * 10 ** max(0, exponent)
    padding = -scale % 4
    whole *= 10**padding
    groups = []
    while whole:
        whole, rest = divmod(whole, 10_000)
        groups.append(rest)
    weight = len(groups) - 1 - (scale + padding) // 4
    while groups and groups[0] == 0:
        groups.pop(0)
    head = struct.pack(">hhHh", len(groups), weight if groups else 0, 0x4000 if sign else 0, scale)
    return head + struct.pack(f">{len(groups)}h", *reversed(groups))


_BINARY: dict[int, Encoder] = {
    BOOL: lambda value: b"\1" if value else b"\0",
    INT2: lambda value: struct.pack(">h", value),
    INT4: lambda value: struct.pack(">i", value),
    OID: lambda value: struct.pack(">I", value),
    INT8: lambda value: struct.pack(">q", value),
    FLOAT4: lambda value: struct.pack(">f", value),
    FLOAT8: lambda value: struct.pack(">d", value),
    NUMERIC: _write_numeric,
    DATE: _write_date,
    TIMESTAMP: _write_timestamp,
    TIMESTAMPTZ: _write_timestamp,
    TIME: lambda micros: struct.pack(">q", micros),
    INTERVAL: _write_interval,
    UUID: lambda value: uuid.UUID(str(value)).bytes,
    JSON: lambda value: _say_json(value).encode(errors="replace"),
}

_BARE = re.compile(r"[^\s{}\",\\]+")


def _write_array_text(say: Callable[[Any], str], values: Sequence[Any]) -> str:
    return "{" + ",".join("NULL" if value is None else _quote_item(say(value)) for value in values) + "}"


def _quote_item(text: str) -> str:
    if _BARE.fullmatch(text) and text.upper() != "NULL":
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _write_array(kind: int, values: Sequence[Any]) -> bytes:
    write = find_encoder(kind, 1)
    empty = any(value is None for value in values)
    head = struct.pack(">iiI", 1 if values else 0, empty, kind) + (
        struct.pack(">ii", len(values), 1) if values else b""
    )
    written = [None if value is None else write(value) for value in values]
    return head + b"".join(
        b"\xff\xff\xff\xff" if w is None else struct.pack(">i", len(w)) + w for w in written
    )


_MAX_DIGITS = 1000
_EPOCH = datetime.datetime(2000, 1, 1)
_TEXT_READERS = frozenset({0, TEXT, UNKNOWN, VARCHAR, BPCHAR, NAME, JSON, UUID, TIME, INTERVAL})


_OWN_FORM = "send the value in its type's own form."
BAD_TEXT, BAD_BINARY = "22P02", "22P03"
"""The SQLSTATE of a value that is none of its type, in text and in binary."""


def read_parameter(number: int, kind: int, form: int, data: bytes | None) -> Any:
    r"""Return the value of a parameter.

    Args:
        number: its place, for the error.
        kind: the number of its type; 0 if the client leaves it open.
        form: 0 for text, 1 for binary.
        data: its bytes; None for NULL.

    Raises:
        BindError: the type is none that a parameter may have, or the bytes are no value of it.

    >>> read_parameter(1, INT4, 1, b"\0\0\0\7"), read_parameter(2, 1007, 0, b"{1,NULL,3}")
    (7, [1, None, 3])
    >>> read_parameter(1, 1009, 0, b'{ "a b" , c, " d" }')
    ['a b', 'c', ' d']
    """
    if data is None:
        return None
    known = PgType(kind).spoken if kind in NAMES or kind in _ITEMS else None
    if known is None and kind != 0:
        raise BindError(
            f"${number} has a type that no parameter has here.",
            hint="send a text, number, boolean, date, timestamp, or an array of these.",
        )
    if form and kind == 0:
        raise BindError(
            f"${number} came in binary, and its type isn't known.", hint=_OWN_FORM, sqlstate=BAD_BINARY
        )
    try:
        return _read(kind, form, data)
    except (ValueError, ArithmeticError, struct.error, IndexError, OverflowError):
        state = BAD_BINARY if form else BAD_TEXT
        raise BindError(
            f"${number} is not a valid {known or 'text'}.", hint=_OWN_FORM, sqlstate=state
        ) from None


def needs_type(kind: int, data: bytes | None) -> bool:
    """Return whether a text without a type is read in the type that its place has; JDBC writes dates with a zone.

    >>> needs_type(BOOL, b"t"), needs_type(DATE, b"2025-01-31 +01"), needs_type(DATE, b"2025-01-31")
    (True, True, False)
    """
    return kind in (BOOL, BYTEA, *_ITEMS) or (kind == DATE and _ZONED_DATE.fullmatch(data or b"") is not None)


_ZONE = r" [+-](0[0-9]|1[0-5])(:[0-5][0-9]){0,2}\Z"
_ZONED_DATE = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}" + _ZONE.encode())


def _read(kind: int, form: int, data: bytes) -> Any:
    if kind in _ITEMS:
        item = _ITEMS[kind]
        if form:
            return _read_array(item, data)
        return [
            None if text is None else _read(item, 0, text.encode()) for text in split_array(data.decode())
        ]
    if form and kind in _BINARY_READERS:
        return _BINARY_READERS[kind](data)
    if (form and kind not in _TEXT_READERS) or b"\0" in data:
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


def _check_digits(text: str) -> str:
    """Return the text of a number if it has no underscores, which Python would read, and not too many digits."""
    return text if len(text) <= _MAX_DIGITS and text.isascii() and "_" not in text else _refuse()


def _read_number(text: str) -> decimal.Decimal:
    number = decimal.Decimal(_check_digits(text))
    if number.is_finite() and abs(int(number.as_tuple().exponent)) > _MAX_DIGITS:
        raise ValueError
    return number


def _read_moment(text: str) -> datetime.datetime:
    """Read a timestamp; one with a zone becomes a moment in UTC."""
    moment = datetime.datetime.fromisoformat(text)
    return moment if moment.utcoffset() is None else drop_zone(moment).replace(tzinfo=datetime.UTC)


def _read_bytes(text: str) -> bytes:
    r"""Read bytes in hexadecimal form, ``\x00ff``."""
    return bytes.fromhex(text[2:]) if text.startswith("\\x") else _refuse()


def _read_span(text: str) -> Any:
    """Read an interval; one with months, or of another form, stays a text.

    >>> _read_span("-1 day 23:00:00") == datetime.timedelta(hours=-1), _read_span("1 month")
    (True, '1 month')
    """
    with suppress(ValueError):
        months, micros = read_interval(text)
        return text if months else datetime.timedelta(microseconds=micros)
    return text


_FROM_TEXT: dict[int, Callable[[str], Any]] = {
    BOOL: _read_truth,
    **dict.fromkeys((INT2, INT4, INT8, OID), lambda text: int(_check_digits(text))),
    **dict.fromkeys((FLOAT4, FLOAT8), lambda text: float(_check_digits(text))), NUMERIC: _read_number,
    DATE: lambda text: datetime.date.fromisoformat(re.sub(_ZONE, "", text)), TIMESTAMP: _read_moment, TIMESTAMPTZ: _read_moment,
    BYTEA: _read_bytes, INTERVAL: _read_span, UUID: lambda text: str(uuid.UUID(text)),
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


def _read_interval(data: bytes) -> Any:
    micros, days, months = struct.unpack(">qii", data)
    if months:
        return f"{months} months {days} days {micros} microseconds"
    return datetime.timedelta(days, microseconds=micros)


_BINARY_READERS: dict[int, Callable[[bytes], Any]] = {
    BOOL: _unpack(">?"),
    INT2: _unpack(">h"), INT4: _unpack(">i"), INT8: _unpack(">q"), OID: _unpack(">I"),
    FLOAT4: _read_finite(">f"), FLOAT8: _read_finite(">d"), NUMERIC: _read_binary_number,
    DATE: lambda data: (_EPOCH + datetime.timedelta(days=struct.unpack(">i", data)[0])).date(),
    TIMESTAMP: _read_micros, TIMESTAMPTZ: lambda data: _read_micros(data).replace(tzinfo=datetime.UTC),
    TIME: _read_time,
    INTERVAL: _read_interval,
    UUID: lambda data: str(uuid.UUID(bytes=data)),
    BYTEA: bytes,
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
