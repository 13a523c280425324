"""What a policy's parts must be: names, numbers, bounds, values, and the path to a privacy unit.

Each check gives the settled value or raises PolicyError with the key it speaks of and something to write instead.

What a policy says of sources that have no types of their own: the types of columns, and how text is written.

Both are closed lists. What is not in them is an error of the policy, never a guess over the data.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar

from dpsql.errors import PolicyError, did_you_mean
from dpsql.policy.toml import parse_number, write_decimal

Value = str | int | bool | Decimal | datetime.date | datetime.datetime
V = TypeVar("V")

_UPPER = {upper: upper + 32 for upper in range(65, 91)}
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = r'(?:"((?:[^"]|"")+)"|([A-Za-z_][A-Za-z0-9_$]*))'
_HOP = re.compile(rf"\s*{_NAME}\s*\.\s*{_NAME}\s*,\s*{_NAME}\s*")
_START = re.compile(rf"\s*{_NAME}\s*")


def fold(name: str) -> str:
    """DuckDB's equality of names: case does not matter, for ASCII letters only.

    >>> fold("Visits") == fold("VISITS"), fold("\\u212a") == fold("k")
    (True, False)
    """
    return name.translate(_UPPER)


class Names(Mapping[str, V]):
    """A read-only mapping whose keys are found whatever their case (ASCII), in the order they were given."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V]) -> None:
        self._items = {fold(name): (name, value) for name, value in items.items()}

    def __getitem__(self, name: str) -> V:
        return self._items[fold(name)][1]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and fold(name) in self._items

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items.values())

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.values()))

    def __repr__(self) -> str:
        return repr(dict(self._items.values()))


@dataclass(frozen=True)
class Hop:
    """One step of the path to the privacy unit: in ``table``, found where ``key`` matches, read ``column``.

    The first hop starts in the table itself; its key is empty.
    """

    table: str
    key: str
    column: str


def settle(target: object, key: str, value: object) -> None:
    object.__setattr__(target, key, value)  # frozen values settle their own fields, once


def require_distinct(names: Mapping[str, Any], where: str, what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if fold(name) in seen:
            raise PolicyError(f"{where} has the {what} {name} twice (case does not matter).", keys=(name,))
        seen.add(fold(name))


def require_name(name: str) -> str:
    """Refuses a table's name that is not plain: letters, digits and _ of ASCII."""
    if _TABLE_NAME.fullmatch(name) is None:
        raise PolicyError(f"{name!r} can't be the name of a table.", hint="use letters, digits and _.")
    return name


def read_fraction(key: str, value: object) -> Fraction:
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        return Fraction(value)
    with contextlib.suppress(ValueError):
        if isinstance(value, float):
            return parse_number(repr(value))
        if isinstance(value, str) and "/" in value:
            return parse_number(value)
    said = f'"{value}"' if isinstance(value, str) else repr(value)
    if not isinstance(value, str | float | bool) and len(said) > 20:
        said = "what is written"
    hint = (
        f"write {key} = 0.1, without quotes."
        if isinstance(value, str)
        else "write plain decimal digits, like 0.1 or 1e-6."
    )
    raise PolicyError(f"{key} is not a number: {said}.", keys=(key,), hint=hint)


def read_positive(key: str, value: object) -> Fraction:
    number = read_fraction(key, value)
    if number <= 0:
        raise PolicyError(f"{key} must be more than 0.", keys=(key,), hint=f"{key} = 0.1")
    return number


def read_probability(key: str, value: object) -> Fraction:
    number = read_fraction(key, value)
    if not 0 <= number < 1:
        raise PolicyError(
            f"{key} must be at least 0 and less than 1.",
            keys=(key,),
            hint="far less than one over the number of privacy units, like 1e-6.",
        )
    return number


def read_share(key: str, value: object) -> Fraction:
    """A part of a whole: at least 0, and less than 1."""
    number = read_fraction(key, value)
    if not 0 <= number < 1:
        raise PolicyError(f"{key} must be at least 0 and less than 1.", keys=(key,), hint=f"{key} = 0.5")
    return number


def require_whole(key: str, value: object) -> None:
    """Refuses what is not a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise PolicyError(f"{key} is a whole number, at least 1.", keys=(key,), hint=f"{key} = 1")


class Moment(Fraction):
    """A bound that is written as a date or a time: as a number, seconds since 1970 (of a time, since midnight).

    >>> Moment(datetime.date(1970, 1, 2)) == 86400, str(Moment(datetime.date(1970, 1, 2)))
    (True, '1970-01-02')
    """

    __slots__ = ("written",)
    written: datetime.date | datetime.time

    def __new__(cls, written: datetime.date | datetime.time) -> Moment:
        if isinstance(written, datetime.time):
            since = datetime.timedelta(
                hours=written.hour, minutes=written.minute, seconds=written.second, microseconds=written.microsecond
            )  # fmt: skip
        elif isinstance(written, datetime.datetime):
            since = written - datetime.datetime(1970, 1, 1)
        else:
            since = written - datetime.date(1970, 1, 1)
        made = super().__new__(cls, since // datetime.timedelta(microseconds=1), 10**6)
        made.written = written
        return made

    @property
    def kind(self) -> str:
        return "time" if isinstance(self.written, datetime.time) else "date"

    def __str__(self) -> str:
        return self.written.isoformat(*([" "] if isinstance(self.written, datetime.datetime) else []))

    def __repr__(self) -> str:
        return f"Moment({self.written!r})"

    def __copy__(self) -> Moment:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Moment:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Moment, (self.written,)


def write_bound(end: Fraction) -> str:
    """A bound for the eye: as it was written where that is a date or a time."""
    return str(end) if isinstance(end, Moment) else f"{float(end):g}"


def _end(item: object) -> Fraction:
    if isinstance(item, Moment):
        return item
    if isinstance(item, datetime.date | datetime.time):
        if getattr(item, "tzinfo", None) is not None:
            raise PolicyError(
                "bounds have no time zone.", keys=("bounds",), hint="bounds = [2020-01-01, 2020-12-31]"
            )
        return Moment(item)
    return read_fraction("bounds", item)


def read_bounds(value: object) -> tuple[Fraction, Fraction]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise PolicyError(
            "bounds are a lowest and a highest number.", keys=("bounds",), hint="bounds = [0, 100]"
        )
    low, high = (_end(item) for item in value)
    if getattr(low, "kind", "number") != getattr(high, "kind", "number"):
        raise PolicyError("bounds are two numbers, two dates or two times.", keys=("bounds",))
    if low > high:
        raise PolicyError(
            "the bounds are reversed: the lowest comes first.",
            keys=("bounds",),
            hint="swap the two numbers of bounds.",
        )
    return low, high


def read_values(value: object) -> tuple[Value, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise PolicyError(
            "values are a list with at least one value.", keys=("values",), hint='values = ["A", "B"]'
        )
    settled: list[Value] = []
    kinds: set[str] = set()
    for item in value:
        kind, plain = _value(item)
        if plain in settled and kind in kinds:
            raise PolicyError(f"values lists {item} twice.", keys=("values",), hint="list each value once.")
        kinds.add(kind)
        settled.append(plain)
    if len(kinds) > 1:
        raise PolicyError(f"values mixes {' and '.join(sorted(kinds))}.", keys=("values",))
    return tuple(settled)


def _value(item: object) -> tuple[str, Value]:
    """What kind of value it is, and the value; a fraction becomes the decimal that was written."""
    if isinstance(item, bool):
        return "booleans", item
    if isinstance(item, int | Decimal):
        return "numbers", item
    if isinstance(item, Fraction | float):
        number = item if isinstance(item, Fraction) else read_fraction("values", item)
        return "numbers", Decimal(write_decimal(number) or "NaN")
    if isinstance(item, str):
        return "text", item
    if isinstance(item, datetime.date):
        return ("times" if isinstance(item, datetime.datetime) else "dates"), item
    raise PolicyError(
        f"values holds something that is not text, a number, a boolean or a date: {item!r}.", keys=("values",)
    )


def parse_path(table: str, text: str) -> tuple[Hop, ...]:
    """``order_id -> orders.id, user_id`` as hops; a text without an arrow is one column's name."""
    if "->" not in text:
        found = _START.fullmatch(text)
        return (Hop(table, "", _unquoted(found[1], found[2]) if found else text),)
    first, *rest = text.split("->")
    start = _START.fullmatch(first)
    steps = [_HOP.fullmatch(step) for step in rest]
    if start is None or None in steps:
        raise PolicyError(
            f"the privacy unit of {table} is not a column or a path.",
            keys=("privacy_unit",),
            hint='a path reads "order_id -> orders.id, user_id".',
        )
    hops = [Hop(table, "", _unquoted(start[1], start[2]))]
    for step in steps:
        assert step is not None
        hops.append(
            Hop(_unquoted(step[1], step[2]), _unquoted(step[3], step[4]), _unquoted(step[5], step[6]))
        )
    return tuple(hops)


def _unquoted(quoted: str | None, bare: str | None) -> str:
    return bare if quoted is None and bare is not None else (quoted or "").replace('""', '"')


_TYPE_NAMES = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
    "UHUGEINT", "FLOAT", "DOUBLE", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS",
    "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE", "INTERVAL", "UUID", "BLOB",
)  # fmt: skip
_SPELLINGS = {
    "INT": "INTEGER", "INT1": "TINYINT", "INT2": "SMALLINT", "INT4": "INTEGER", "INT8": "BIGINT", "LONG": "BIGINT",
    "SHORT": "SMALLINT", "REAL": "FLOAT", "FLOAT4": "FLOAT", "FLOAT8": "DOUBLE", "TEXT": "VARCHAR",
    "STRING": "VARCHAR", "CHAR": "VARCHAR", "BOOL": "BOOLEAN", "DATETIME": "TIMESTAMP", "TIMESTAMPTZ":
    "TIMESTAMP WITH TIME ZONE", "BYTEA": "BLOB",
}  # fmt: skip
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)(?:\(\s*([0-9]{1,2})\s*(?:,\s*([0-9]{1,2})\s*)?\))?")
_LIST = re.compile(r"(.+?)\s*\[\s*\]", re.DOTALL)
_STRUCT_FIELD = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([A-Za-z_][A-Za-z0-9_]*))\s+(.+)', re.DOTALL)
_DEEP = 8

_ENCODINGS = ("utf-8", "latin-1", "windows-1252")
_RECORDS = ("lines", "array")
_SPECIFIER = re.compile(r"%(?:-?[dmyHIMSj]|[YbBfgnpaA%])")
_CSV_ONLY = ("delimiter", "quote", "escape", "header", "null", "quoted_newlines")


def parse_type(text: object, deep: int = 0) -> str:
    """Return DuckDB's own spelling of a type.

    Raises:
        PolicyError: it is none of those that a column may have.

    >>> type_of("int"), type_of("decimal(10, 2)"), type_of("text[]")
    ('INTEGER', 'DECIMAL(10,2)', 'VARCHAR[]')
    """
    found = _type(text.strip(), deep) if isinstance(text, str) else None
    if found is None:
        known = did_you_mean(str(text).upper(), (*_TYPE_NAMES, "DECIMAL", *_SPELLINGS))
        raise PolicyError(
            f"{text!r} is no type of a column.",
            keys=("type",),
            hint=known or 'type = "INTEGER", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP" and so on.',
        )
    return found


def _type(text: str, deep: int) -> str | None:
    if deep > _DEEP:
        return None
    listed = _LIST.fullmatch(text)
    if listed:
        element = _type(listed[1].strip(), deep + 1)
        return None if element is None else f"{element}[]"
    upper = " ".join(text.upper().split())
    if upper.startswith("STRUCT(") and text.endswith(")"):
        return _struct(text[len("STRUCT(") : -1], deep)
    number = _DECIMAL.fullmatch(upper)
    if number:
        width, scale = int(number[1] or 18), int(number[2] or 0) if number[1] else 3
        return f"DECIMAL({width},{scale})" if 0 < width <= 38 and scale <= width else None
    name = _SPELLINGS.get(upper, upper)
    return name if name in _TYPE_NAMES else None


def _struct(body: str, deep: int) -> str | None:
    fields = []
    for part in _split_fields(body):
        found = _STRUCT_FIELD.fullmatch(part)
        kind = _type(found[3].strip(), deep + 1) if found else None
        if found is None or kind is None:
            return None
        fields.append(f'"{found[1] or found[2]}" {kind}')
    return f"STRUCT({', '.join(fields)})" if fields else None


def _split_fields(body: str) -> list[str]:
    """What stands between the commas of the outermost level."""
    parts, start, depth, quoted = [], 0, 0, False
    for index, letter in enumerate(body):
        quoted ^= letter == '"'
        if not quoted:
            depth += (letter == "(") - (letter == ")")
            if letter == "," and depth == 0:
                parts.append(body[start:index])
                start = index + 1
    return [*parts, body[start:]]


def has_length(kind: str) -> bool:
    """Tell whether values of a type have a length: texts, bytes and lists."""
    return kind in ("VARCHAR", "BLOB") or kind.endswith("[]")


@dataclass(frozen=True)
class Format:
    """How a text source is written. What is left out has one fixed meaning: nothing is guessed from the file.

    Args:
        delimiter: one letter between two fields; a comma, of TSV a tab.
        quote: what encloses a field that holds the delimiter; ``""`` where nothing does.
        escape: what stands before a quote within quotes (the quote itself, or a backslash).
        header: whether the first line of each file names the columns. Without it, they come in the policy's order.
        encoding: ``"utf-8"``, ``"latin-1"`` or ``"windows-1252"``.
        null: the text without quotes that means NULL.
        date_format, timestamp_format: as strptime has them; without, ISO dates.
        quoted_newlines: whether a quoted field may go on in the next line. Then one stray quote changes the rows after
            it, so one person's row can: the check of the policy warns.
        records: of JSON: ``"lines"`` (an object on each line), or ``"array"`` (one array of objects, where one bad
            record ends the file; the check of the policy warns).
    """

    delimiter: str | None = None
    quote: str = '"'
    escape: str | None = None
    header: bool = True
    encoding: str = "utf-8"
    null: str = ""
    date_format: str | None = None
    timestamp_format: str | None = None
    quoted_newlines: bool = False
    records: str = "lines"

    def __post_init__(self) -> None:
        for key in ("header", "quoted_newlines"):
            if not isinstance(getattr(self, key), bool):
                raise PolicyError(f"{key} is true or false.", keys=(key,))
        for key, empty in (("delimiter", False), ("quote", True), ("escape", False)):
            _letter(key, getattr(self, key), empty)
        if self.quote and self.quote == self.delimiter:
            raise PolicyError("delimiter and quote are the same.", keys=("quote",))
        if self.escape is not None and (not self.quote or self.escape == self.delimiter):
            raise PolicyError("there is no such escape: it stands before a quote.", keys=("escape",))
        if self.quoted_newlines and not self.quote:
            raise PolicyError("without quotes no newline is quoted.", keys=("quoted_newlines",))
        if not isinstance(self.null, str) or "\n" in self.null or len(self.null) > 100:
            raise PolicyError("null is a short text.", keys=("null",), hint='null = "NA"')
        settle(self, "encoding", _one("encoding", self.encoding, _ENCODINGS))
        settle(self, "records", _one("records", self.records, _RECORDS))
        for key in ("date_format", "timestamp_format"):
            _pattern(key, getattr(self, key))

    def fit(self, source: str | None, text: str | None) -> Format:
        """Return this format for a source of one kind of text (``"csv"``, ``"tsv"``, ``"json"``), its defaults settled.

        Raises:
            PolicyError: the source is no text, or says what its kind has not.
        """
        if text is None:
            raise PolicyError(
                f"the source {source} has a format of its own."
                if source
                else "only a text file has a format.",
                keys=("format",),
                hint="remove format.",
            )
        odd = _CSV_ONLY if text == "json" else ("records",)
        for key in odd:
            if getattr(self, key) != type(self).__dataclass_fields__[key].default:
                raise PolicyError(
                    f"{text.upper()} has no {key}.", keys=("format", key), hint=f"remove {key}."
                )
        comma = self.delimiter or ("\t" if text == "tsv" else ",")
        if comma == self.quote:
            raise PolicyError("delimiter and quote are the same.", keys=("format", "quote"))
        made = object.__new__(Format)
        for key in type(self).__dataclass_fields__:
            settle(made, key, getattr(self, key))
        settle(made, "delimiter", comma)
        settle(made, "escape", self.escape or self.quote)
        return made


def _letter(key: str, value: object, empty: bool) -> None:
    if value is None or (empty and value == ""):
        return
    if not isinstance(value, str) or len(value) != 1 or value in "\r\n\0" or ord(value) > 126:
        raise PolicyError(f"{key} is one letter of ASCII.", keys=(key,), hint=f"{key} = ';'")


def _one(key: str, value: object, known: tuple[str, ...]) -> str:
    if isinstance(value, str) and value.lower() in known:
        return value.lower()
    raise PolicyError(
        f"there is no {key} {value!r} here.", keys=(key,), hint=f"it is one of {', '.join(known)}."
    )


def _pattern(key: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value or "%" not in value:
        raise PolicyError(f"{key} is a pattern.", keys=(key,), hint=f'{key} = "%d.%m.%Y"')
    if "%" in _SPECIFIER.sub("", value) or "\n" in value:
        raise PolicyError(f"{key} has a % that means nothing here.", keys=(key,), hint="%Y %m %d %H %M %S %f")
