"""Checks of a policy's values: names, numbers, bounds and types.

Each takes a key and its value, and returns the settled value or raises PolicyError with a value to write instead. Types
are a closed list: any other type is an error of the policy, and none is inferred from the data.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from dpsql.errors import PolicyError, did_you_mean, find_nearest
from dpsql.policy.toml import parse_number, write_decimal, write_toml

Value = str | int | bool | Decimal | datetime.date | datetime.datetime
V = TypeVar("V")

_UPPER = {upper: upper + 32 for upper in range(65, 91)}
OTHER_SCRIPTS = "\\u00a1-\\u00ac\\u00ae-\\u1fff\\u200c\\u200d\\u2070-\\u2fff\\u3001-\\ud7ff\\ue000-\\ufefe\\uff00-\\U0010ffff"
"""A class of a regular expression: characters that names may have without quotes, and that show."""


def fold(name: str) -> str:
    r"""Return a name in lower case, for ASCII letters only, as DuckDB compares names.

    >>> fold("Visits") == fold("VISITS"), fold("\u212a") == fold("k")
    (True, False)
    """
    return name.lower() if name.isascii() else name.translate(_UPPER)


class NameMapping(Mapping[str, V]):
    """A read-only, ordered mapping that finds its keys in any (ASCII) case."""

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


def settle_names(key: str, value: Mapping[str, V]) -> NameMapping[V]:
    """Read a mapping whose keys differ by more than case."""
    seen: set[str] = set()
    for name in value:
        if fold(name) in seen:
            hint = f"remove one of the two {name}."
            raise PolicyError(f"{key} has {name} twice (case does not matter).", keys=(key, name), hint=hint)
        seen.add(fold(name))
    return NameMapping(value)


def settle_name(key: str, value: str) -> str:
    """Read the name of a table: letters, digits, _ and spaces, after an optional catalog and schema."""
    others = "" if value.isascii() else OTHER_SCRIPTS  # slow to compile
    word = rf"[A-Za-z_{others}](?:[A-Za-z0-9_ {others}]*[A-Za-z0-9_{others}])?"
    if re.fullmatch(rf"{word}(?:\.{word}){{0,2}}", value) is None:
        raise PolicyError(
            f"{value!r} can't be the {key} of a table.",
            hint="use letters, digits, _ and spaces; main.visits is visits of the schema main.",
        )
    return value


def settle_flag(key: str, value: object) -> bool:
    """Read a boolean."""
    if not isinstance(value, bool):
        raise PolicyError(f"{key} must be true or false.")
    return value


def settle_text(key: str, value: object) -> str:
    """Read a text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        shown = value if isinstance(value, int | float) else "text"
        raise PolicyError(f"{key} must be a text in quotes.", hint=f'{key} = "{shown}"')
    return value


def settle_description(key: str, value: object) -> str:
    """Read a description: one line of printable text."""
    text = settle_text(key, value).strip()
    if len(text) > _LONGEST_DESCRIPTION or not text.isprintable():
        raise PolicyError(f"{key} must be one line of at most {_LONGEST_DESCRIPTION:,} characters.")
    return text


def settle_choice(*known: str) -> Callable[[str, object], str]:
    """Return a reader that accepts these words."""

    def read(key: str, value: object) -> str:
        if isinstance(value, str) and value.lower() in known:
            return value.lower()
        near = find_nearest(str(value), known)
        hint = f"{f'did you mean {near}? ' if near else ''}it is one of {', '.join(known)}."
        raise PolicyError(f"there is no {key} {value}.", hint=hint)

    return read


def settle_letter(key: str, value: object) -> str:
    """Read one ASCII character; a quote may be empty."""
    if value == "" and key == "quote":
        return ""
    if not isinstance(value, str) or len(value) != 1 or value in "\r\n\0" or ord(value) > 126:
        raise PolicyError(f"{key} must be one ASCII character.", hint=f"{key} = ';'")
    return value


def settle_null(key: str, value: object) -> str | tuple[str, ...]:
    """Read the text that means NULL, or a list of such texts; a list of one is that one."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not 0 < len(words) <= _MOST_WORDS:
        raise PolicyError(
            f"{key} must be a text, or a list of at most {_MOST_WORDS} texts.",
            hint=f'{key} = ["", "NA", "-99"]',
        )
    for word in words:
        if not isinstance(word, str) or "\n" in word or len(word) > 100:
            hint = f'{key} = "{word}"' if isinstance(word, int) else f'{key} = ["", "NA", "-99"]'
            raise PolicyError(f"{key} must be texts of at most 100 characters on one line.", hint=hint)
    if len(set(words)) < len(words):
        raise PolicyError(f"{key} lists one text twice.", hint="list each text once.")
    return words[0] if len(words) == 1 else tuple(words)


def settle_mark(key: str, value: object) -> str:
    """Read the character of a number that is no digit: a point, a comma, a blank, an apostrophe."""
    if not isinstance(value, str) or len(value) != 1 or value.isalnum() or value in '\r\n\t\0+-\\"':
        raise PolicyError(
            f"{key} must be one character, neither a letter, a digit nor a sign.", hint=f'{key} = ","'
        )
    return value


def settle_comment(key: str, value: object) -> str:
    """Read the character that starts a line of comment."""
    letter = settle_letter(key, value)
    if not letter or letter.isalnum() or letter in " \t+-.":
        raise PolicyError(f"{key} must be a character that starts no value.", hint=f'{key} = "#"')
    return letter


_LONGEST_DESCRIPTION = 1000
_MOST_WORDS = 50
"""The most texts that may mean NULL in one file."""


def settle_pattern(key: str, value: object) -> str:
    """Read a pattern of strptime."""
    if not isinstance(value, str) or not value or "%" not in value:
        raise PolicyError(f"{key} must be a pattern of strptime.", hint=f'{key} = "%d.%m.%Y"')
    if "%" in _SPECIFIER.sub("", value) or "\n" in value:
        raise PolicyError(f"{key} has an unsupported % code.", hint="use %Y %m %d %H %M %S %f.")
    return value


def settle_fraction(key: str, value: object) -> Fraction:
    """Read a number exactly; a float counts as the decimal that prints it."""
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        return Fraction(value)
    with contextlib.suppress(ValueError):
        if isinstance(value, float):
            return parse_number(repr(value))
        if isinstance(value, str) and "/" in value:
            return parse_number(value)
    said = f'"{value}"' if isinstance(value, str) else repr(value)
    if not isinstance(value, str | float | bool) and len(said) > 20:
        said = "this value"
    hint = "write decimal digits, like 0.1 or 1e-6."
    if isinstance(value, str):
        example = "1e-6" if "delta" in key else "0.1"
        hint = f"write {key} = {_unquote(value) or example}, without quotes."
    raise PolicyError(f"{key} is not a number: {said}.", hint=hint)


def _unquote(value: object) -> str | None:
    """Return a number, a date or a time as TOML writes it, also of a text of one; None for other values."""
    text = str(value).strip()
    with contextlib.suppress(ValueError):
        parse_number(text)
        return text
    for read in (datetime.date, datetime.time, datetime.datetime):
        with contextlib.suppress(ValueError):
            return read.fromisoformat(text).isoformat()
    return None


MAX_AMOUNT = 10**300
"""The greatest amount of privacy loss, which a float can show."""


def settle_positive(key: str, value: object) -> Fraction:
    """Read a number above 0."""
    number = settle_fraction(key, value)
    if number <= 0:
        raise PolicyError(f"{key} must be more than 0.", hint=f"{key} = 0.1")
    if number > MAX_AMOUNT:
        raise PolicyError(f"{key} must be at most {MAX_AMOUNT:.0e}.", hint=f"{key} = 1")
    return number


def settle_share(key: str, value: object, hint: str | None = None) -> Fraction:
    """Read a number that is at least 0 and less than 1."""
    number = settle_fraction(key, value)
    if not 0 <= number < 1:
        raise PolicyError(f"{key} must be at least 0 and less than 1.", hint=hint or f"{key} = 0.5")
    return number


def settle_probability(key: str, value: object) -> Fraction:
    """Read a delta."""
    return settle_share(key, value, "use far less than one over the number of privacy units, like 1e-6.")


def settle_count(key: str, value: object) -> int:
    """Read a whole number, which may be 0."""
    return settle_whole(key, value, least=0)


def settle_whole(key: str, value: object, least: int = 1) -> int:
    """Read a whole number from ``least`` to 2,147,483,647."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
        quoted = isinstance(value, str) and re.fullmatch("[1-9][0-9]{0,8}", value) is not None
        hint = f"{key} = {value if quoted else 1000 if least == 0 else 1}"
        raise PolicyError(f"{key} must be a whole number, at least {least}.", hint=hint)
    return value


class DateBound(Fraction):
    """A bound given as a date or a time; its number is seconds since 1970, or since midnight.

    >>> DateBound(datetime.date(1970, 1, 2)) == 86400, str(DateBound(datetime.date(1970, 1, 2)))
    (True, '1970-01-02')
    """

    __slots__ = ("written",)
    written: datetime.date | datetime.time

    def __new__(cls, written: datetime.date | datetime.time) -> DateBound:
        if isinstance(written, datetime.time):
            since = datetime.datetime.combine(datetime.datetime.min, written) - datetime.datetime.min
        elif isinstance(written, datetime.datetime):
            since = written - datetime.datetime(1970, 1, 1)
        else:
            since = written - datetime.date(1970, 1, 1)
        made = super().__new__(cls, since // datetime.timedelta(microseconds=1), 10**6)
        made.written = written
        return made

    @property
    def kind(self) -> str:
        """The kind of bound: ``"time"`` or ``"date"``."""
        return "time" if isinstance(self.written, datetime.time) else "date"

    def __str__(self) -> str:
        return self.written.isoformat(*([" "] if isinstance(self.written, datetime.datetime) else []))

    def __repr__(self) -> str:
        return f"Moment({self.written!r})"  # the keys of stored answers contain it

    def __copy__(self) -> DateBound:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> DateBound:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return DateBound, (self.written,)


def write_bound(end: Fraction) -> str:
    """Return a bound as text: a date or a time as it was written."""
    return str(end) if isinstance(end, DateBound) else f"{float(end):g}"


def _read_end(key: str, item: object) -> Fraction:
    if isinstance(item, DateBound):
        return item
    if isinstance(item, datetime.date | datetime.time):
        if isinstance(item, datetime.datetime | datetime.time) and item.tzinfo is not None:
            raise PolicyError("bounds have no time zone.", hint="bounds = [2020-01-01, 2020-12-31]")
        return DateBound(item)
    return settle_fraction(key, item)


def settle_bounds(key: str, value: object) -> tuple[Fraction, Fraction]:
    """Read a lowest and a highest value: two numbers, two dates or two times."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise PolicyError("bounds must be a list of a lowest and a highest number.", hint="bounds = [0, 100]")
    if any(isinstance(item, str) and "/" not in item for item in value):  # a ratio is a text
        ends = [_unquote(item) for item in value]
        hint = f"write bounds = [{ends[0] or 0}, {ends[1] or 100}], without quotes."
        if ends == [None, None]:
            hint = f"the texts of a column are its values: {write_toml({'values': value}).strip()}"
        raise PolicyError("bounds are numbers, dates or times, without quotes.", hint=hint)
    low, high = (_read_end(key, item) for item in value)
    if len({end.kind if isinstance(end, DateBound) else "number" for end in (low, high)}) > 1:
        what = "bounds must be two numbers, two dates or two times."
        raise PolicyError(what, hint="bounds = [0, 100], or bounds = [2024-01-01, 2024-12-31].")
    if low > high:
        raise PolicyError(
            "the bounds are reversed: the lowest comes first.", hint="swap the two numbers of bounds."
        )
    return low, high


def settle_values(key: str, value: object) -> tuple[Value, ...]:
    """Read a list of public values, all of one kind and none twice."""
    if not isinstance(value, list | tuple) or not value:
        raise PolicyError(f"{key} must be a list of at least one value.", hint='values = ["A", "B"]')
    settled: list[Value] = []
    kinds: set[str] = set()
    for item in value:
        kind, plain = _read_value(key, item)
        if plain in settled and kind in kinds:
            raise PolicyError(f"{key} lists {item} twice.", hint="list each value once.")
        kinds.add(kind)
        settled.append(plain)
    if len(kinds) > 1:
        what, listed = f"{key} mixes {' and '.join(sorted(kinds))}.", ", ".join(f'"{v}"' for v in settled[:3])
        raise PolicyError(what, hint=f"write them alike, such as {key} = [{listed}].")
    return tuple(settled)


def _read_value(key: str, item: object) -> tuple[str, Value]:
    """Return the kind of a value, and the value; a fraction becomes its decimal."""
    if isinstance(item, bool):
        return "booleans", item
    if isinstance(item, int | Decimal):
        return "numbers", item
    if isinstance(item, Fraction | float):
        number = item if isinstance(item, Fraction) else settle_fraction(key, item)
        return "numbers", Decimal(write_decimal(number) or "NaN")
    if isinstance(item, str):
        return "text", item
    if isinstance(item, datetime.date):
        return ("times" if isinstance(item, datetime.datetime) else "dates"), item
    what = f"{key} may list texts, numbers, booleans and dates, not {item!r}."
    raise PolicyError(what, hint='values = ["A", "B"]')


_PLAIN_TYPES = """
    BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT FLOAT DOUBLE
    VARCHAR DATE TIME TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS INTERVAL UUID BLOB"""
_TYPE_NAMES = (*_PLAIN_TYPES.split(), "TIMESTAMP WITH TIME ZONE")
_SPELLINGS = {
    **dict.fromkeys(("INT", "INT4"), "INTEGER"),
    **dict.fromkeys(("INT2", "SHORT"), "SMALLINT"),
    **dict.fromkeys(("INT8", "LONG"), "BIGINT"),
    **dict.fromkeys(("REAL", "FLOAT4"), "FLOAT"),
    **dict.fromkeys(("TEXT", "STRING", "CHAR"), "VARCHAR"),
    "INT1": "TINYINT",
    "FLOAT8": "DOUBLE",
    "BOOL": "BOOLEAN",
    "DATETIME": "TIMESTAMP",
    "BYTEA": "BLOB",
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
}
_DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC)(?:\(\s*([0-9]{1,2})\s*(?:,\s*([0-9]{1,2})\s*)?\))?")
_LIST = re.compile(r"(.+?)\s*\[\s*\]", re.DOTALL)
_STRUCT_FIELD = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([A-Za-z_][A-Za-z0-9_]*))\s+(.+)', re.DOTALL)
_DEEP = 8

_SPECIFIER = re.compile(r"%(?:-?[dmyHIMSj]|[YbBfgnpaA%])")


def settle_type(key: str, value: object) -> str:
    """Read a type of a column, and return DuckDB's spelling of it.

    >>> [settle_type("type", text) for text in ("int", "decimal(10, 2)", "text[]")]
    ['INTEGER', 'DECIMAL(10,2)', 'VARCHAR[]']
    """
    found = _parse_type(value.strip(), 0) if isinstance(value, str) else None
    if found is None:
        known = did_you_mean(str(value).upper(), (*_TYPE_NAMES, "DECIMAL", *_SPELLINGS))
        raise PolicyError(
            f"{value!r} is not a column type that dpsql supports.",
            hint=known or 'type = "INTEGER", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP" and so on.',
        )
    return found


def _parse_type(text: str, deep: int) -> str | None:
    if deep > _DEEP:
        return None
    listed = _LIST.fullmatch(text)
    if listed:
        element = _parse_type(listed[1].strip(), deep + 1)
        return None if element is None else f"{element}[]"
    upper = " ".join(text.upper().split())
    if upper.startswith("STRUCT(") and text.endswith(")"):
        return _parse_struct(text[len("STRUCT(") : -1], deep)
    number = _DECIMAL.fullmatch(upper)
    if number:
        width, scale = int(number[1] or 18), int(number[2] or 0) if number[1] else 3
        return f"DECIMAL({width},{scale})" if 0 < width <= 38 and scale <= width else None
    name = _SPELLINGS.get(upper, upper)
    return name if name in _TYPE_NAMES else None


def _parse_struct(body: str, deep: int) -> str | None:
    fields = []
    for part in _split_fields(body):
        found = _STRUCT_FIELD.fullmatch(part)
        kind = _parse_type(found[3].strip(), deep + 1) if found else None
        if found is None or kind is None:
            return None
        fields.append(f'"{found[1] or found[2]}" {kind}')
    return f"STRUCT({', '.join(fields)})" if fields else None


def _split_fields(body: str) -> list[str]:
    """Split a text at the commas of its outermost level."""
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
    """Return whether values of a type have a length: texts, bytes and lists."""
    return kind in ("VARCHAR", "BLOB") or kind.endswith("[]")
