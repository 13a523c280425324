"""TOML with exact numbers and known positions: the text behind a policy, read and written.

The standard library's reader gives values but not where they stand, and floats that are no longer what was
written. Here every number is a ``Fraction`` of its own digits (or an ``int``), and :meth:`Document.error` draws
a caret under the key that is wrong.
"""

from __future__ import annotations

import datetime
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dpsql.errors import PolicyError, Span

Keys = tuple[str, ...]

_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE]([+-]?\d{1,4}))?", re.ASCII)
_RATIO = re.compile(r"[+-]?\d{1,400}/\d{1,400}", re.ASCII)
_MAX_EXPONENT = 400
_POSITION = re.compile(r"\(at line (\d+), column (\d+)\)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_DOTTED = re.compile(rf"\s*{_KEY}(?:\s*\.\s*{_KEY})*\s*")
_PART = re.compile(_KEY)
_LEAF = {"type", "bounds", "values", "max_length"}


class NotExact:
    """What stands where TOML has ``nan`` or ``inf``: a value that no field accepts."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def parse_number(text: str) -> Fraction:
    """The number that ASCII decimal digits (or a ratio of two integers) write, exactly.

    Raises:
        ValueError: anything else: nan, inf, other digits, or an exponent beyond 400.

    >>> exact("1e-6")
    Fraction(1, 1000000)
    >>> exact("1/3")
    Fraction(1, 3)
    """
    found = _DECIMAL.fullmatch(text)
    if found is None and _RATIO.fullmatch(text) is None:
        raise ValueError("not a decimal number")
    if found is not None and (abs(int(found[4] or 0)) > _MAX_EXPONENT or len(text) > 1000):
        raise ValueError("the exponent is too large")
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise ValueError("a ratio over zero") from None


def _number(text: str) -> Fraction | NotExact:
    try:
        return parse_number(text.replace("_", ""))
    except ValueError:
        return NotExact(text)


@dataclass(frozen=True)
class Document:
    """Parsed TOML, its text, and a name for messages (a file's name)."""

    data: Mapping[str, Any]
    text: str
    name: str

    def error(self, keys: Keys, message: str, hint: str | None = None) -> PolicyError:
        """A policy error that points at ``keys``, or at the nearest key above it that stands in the text."""
        return PolicyError(
            f"{self.name}: {message}", span=self.span(keys), hint=hint, text=self.text, keys=keys
        )

    def span(self, keys: Keys) -> Span | None:
        while keys:
            found = _positions(self.text).get(keys)
            if found is not None:
                return found
            keys = keys[:-1]
        return None


def parse_toml(text: str, name: str) -> Document:
    """Reads TOML.

    Raises:
        PolicyError: the text is not TOML, with a caret where it stops being so.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        return Document(tomllib.loads(text, parse_float=_number), text, name)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        reason = str(error)
    place = _POSITION.search(reason)
    span = None
    if place is not None:
        lines = text.split("\n")
        start = sum(len(line) + 1 for line in lines[: int(place[1]) - 1]) + int(place[2]) - 1
        span = (start, start + 1)
    elif "end of document" in reason:
        span = (len(text), len(text))
    sentence = _POSITION.sub("", reason).replace("(at end of document)", "at the end of the file").strip()
    raise PolicyError(
        f"{name}: not TOML: {sentence[:1].lower()}{sentence[1:]}.",
        span=span,
        text=text,
        hint='a line is a [section] or key = value; text stands in "quotes".',
    )


def _positions(text: str) -> dict[Keys, Span]:
    """Where each key stands. Best effort over the lines: it serves carets, never values."""
    places: dict[Keys, Span] = {}
    section: Keys = ()
    offset = 0
    for line in text.split("\n"):
        body = line.strip()
        if body.startswith("["):
            inner = line.find("[") + (2 if body.startswith("[[") else 1)
            found = _DOTTED.match(line, inner)
            if found is not None:
                section = _keys(found[0])
                start = offset + inner + len(found[0]) - len(found[0].lstrip())
                for depth in range(1, len(section) + 1):
                    places.setdefault(section[:depth], (start, start + len(found[0].strip())))
        elif body and not body.startswith("#"):
            _entries(line, 0, offset, section, places)
        offset += len(line) + 1
    return places


def _entries(line: str, at: int, offset: int, section: Keys, places: dict[Keys, Span]) -> None:
    """``key = value`` at a position of a line, and the keys of an inline table in its value."""
    found = _DOTTED.match(line, at)
    if found is None or not line[found.end() :].startswith("="):
        return
    keys = section + _keys(found[0])
    start = found.start() + len(found[0]) - len(found[0].lstrip())
    end = len(line.rstrip()) if at == 0 else start + len(found[0].strip())
    places.setdefault(keys, (offset + start, offset + end))
    value = found.end() + 1
    brace = value + len(line[value:]) - len(line[value:].lstrip())
    if not line[brace:].startswith("{"):
        return
    depth, quote = 0, ""
    for index in range(brace, len(line)):
        letter = line[index]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        if not quote and depth == 1 and letter in "{,":
            _entries(line, index + 1, offset, keys, places)


def _keys(dotted: str) -> Keys:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def write_toml(data: Mapping[str, Any]) -> str:
    """TOML that :func:`parse` reads back as ``data``: sections for mappings, the innermost ones inline."""
    lines: list[str] = []
    _section(data, (), lines)
    return "\n".join(lines).strip() + "\n"


def _section(data: Mapping[str, Any], keys: Keys, lines: list[str]) -> None:
    plain = {key: value for key, value in data.items() if not _is_section(value)}
    if keys and (plain or not data):
        lines.extend(["", f"[{'.'.join(map(_name, keys))}]"])
    lines.extend(f"{_name(key)} = {_value(value)}" for key, value in plain.items())
    for key, value in data.items():
        if _is_section(value):
            _section(value, (*keys, key), lines)


def _is_section(value: Any) -> bool:
    """A mapping that is not a leaf: leaves (what is said of a column) are written on one line."""
    return isinstance(value, Mapping) and not (set(value) <= _LEAF and bool(value))


def _name(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(value: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(
        escapes.get(c) or (f"\\u{ord(c):04X}" if ord(c) < 32 or ord(c) == 127 else c) for c in value
    ) + '"'  # fmt: skip


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return str(value).lower()
    if hasattr(value, "written"):  # a bound that is a date or a time
        return _value(value.written)
    if isinstance(value, Fraction):
        return write_decimal(value) or f'"{value.numerator}/{value.denominator}"'
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_name(k)} = {_value(v)}" for k, v in value.items()) + " }"
    return "[" + ", ".join(_value(item) for item in value) + "]"


def write_decimal(number: Fraction) -> str | None:
    """The shortest exact decimal, or None for a number that has none.

    >>> decimal(Fraction(1, 1000000)), decimal(Fraction(3)), decimal(Fraction(5, 2)), decimal(Fraction(1, 3))
    ('1e-6', '3', '2.5', None)
    """
    rest, twos, fives = number.denominator, 0, 0
    while rest % 2 == 0:
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return None
    places = max(twos, fives)
    digits = str(abs(number.numerator) * 10**places // number.denominator)
    sign = "-" if number < 0 else ""
    if places == 0:
        return sign + digits
    if len(digits) <= places - 3:
        return f"{sign}{digits[0]}{'.' + digits[1:] if digits[1:] else ''}e-{places - len(digits) + 1}"
    digits = digits.rjust(places + 1, "0")
    return f"{sign}{digits[:-places]}.{digits[-places:]}"
