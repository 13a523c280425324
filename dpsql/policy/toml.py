"""TOML with exact numbers and positions, and the frozen sections of a policy.

The standard library's reader gives no positions, and rounds decimals to floats. Here each number is the ``Fraction`` of
its digits (or an ``int``), and :meth:`Document.error` draws a caret under the wrong key.

:func:`set_values` edits a policy's text: comments, order and spelling of everything else stay. An edit is checked: the new text
has the intended values and no other change, or the edit is refused.
"""

from __future__ import annotations

import copy
import datetime
import re
import tomllib
from collections.abc import Callable, Mapping, Set
from dataclasses import MISSING, field, fields
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar

from dpsql.errors import PolicyError, Span, did_you_mean
from dpsql.late_dataclass import dataclass

Keys = tuple[str, ...]

TODO = "TODO"
"""Placeholder in a policy for a value that its owner has not decided yet; it declares nothing."""

_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE]([+-]?\d{1,4}))?", re.ASCII)
_RATIO = re.compile(r"[+-]?\d{1,400}/\d{1,400}", re.ASCII)
_MAX_EXPONENT = 400
_POSITION = re.compile(r"\(at line (\d+), column (\d+)\)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
DOTTED_KEY = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_HEAD = re.compile(rf"\s*\[\[?\s*({DOTTED_KEY})")
_ASSIGNED = re.compile(rf"\s*{DOTTED_KEY}\s*=")
_ITEM = re.compile(rf"""(?P<key>{DOTTED_KEY})\s*=|"(?:[^"\\]|\\.)*"|'[^']*'|[\[\]{{}}]|\#.*""")
_PART = re.compile(_KEY)


class NotExact:
    """The value of TOML's ``nan`` and ``inf``, which no field accepts."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def parse_number(text: str) -> Fraction:
    """Parse ASCII decimal digits, or a ratio of two integers, as an exact number.

    Raises:
        ValueError: anything else: nan, inf, other digits, or an exponent above 400.

    >>> parse_number("1e-6")
    Fraction(1, 1000000)
    >>> parse_number("1/3")
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


def _read_number(text: str) -> Fraction | NotExact:
    try:
        return parse_number(text.replace("_", ""))
    except ValueError:
        return NotExact(text)


@dataclass(frozen=True)
class Document:
    """Parsed TOML with its text, and a name for messages."""

    data: Mapping[str, object]
    text: str
    name: str

    def section(self, keys: Keys) -> Mapping[str, object]:
        """Return the section of these keys; PolicyError if they name a value."""
        found: Any = self.data
        for key in keys:
            found = found[key]
        if not isinstance(found, Mapping):
            plain = isinstance(found, int | Decimal | float) and not isinstance(found, bool)
            example = "{ bounds = [0, 100] }" if "columns" in keys else "{ key = value }"
            if "columns" in keys and isinstance(found, list) and found:
                ends = len(found) == 2 and not any(isinstance(item, str) for item in found)
                example = f"{{ {'bounds' if ends else 'values'} = {_write_value(found)} }}"
            if keys[0] == "analysts" and len(keys) == 2:
                example = f"{{ epsilon = {found if plain else 1} }}"
            raise self.error(keys, f"{keys[-1]} is not a section.", f"write {keys[-1]} = {example}.")
        return found

    def error(self, keys: Keys, message: str, hint: str | None = None) -> PolicyError:
        """Return a policy error that points at a key, or at the nearest one above it in the text."""
        return PolicyError(
            f"{self.name}: {message}", span=self.span(keys), hint=hint, text=self.text, keys=keys
        )

    def span(self, keys: Keys) -> Span | None:
        """Return the position of a key, or of the nearest one above it."""
        while keys:
            found = find_places(self.text).get(keys)
            if found is not None:
                return found
            keys = keys[:-1]
        return None


@dataclass(frozen=True)
class Section:
    """A frozen part of a policy that is read, checked and written by the declarations of its fields."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value, read = getattr(self, item.name), item.metadata.get("read")
            if read is not None and (value is not None or item.default is not None):
                try:
                    assign(self, item.name, read(item.name, value))
                except PolicyError as error:
                    error.keys = error.keys or (item.name,)
                    raise
        self._check_together()

    def _check_together(self) -> None:
        """Check that the fields, once each is settled, agree with each other."""

    def find_given(self, only: str) -> list[str]:
        """List the fields with values that only one kind of section may have."""
        mine = (item for item in fields(self) if item.metadata.get("only") == only)
        return [item.name for item in mine if getattr(self, item.name) != item.default]

    def collect(self) -> dict[str, object]:
        """Return the fields that differ from their defaults, in order, without the name, which is the section's key."""
        said: dict[str, object] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Section):
                value = value.collect()
            elif isinstance(value, Mapping):
                value = {name: part.collect() for name, part in value.items()}
            if item.name != "name" and value is not None and value != {} and value != item.default:
                said[item.name] = value
        return said


S = TypeVar("S", bound=Section)


def declare_field(
    read: Callable[[str, Any], object] | None,
    default: object = None,
    *,
    section: type[Section] | None = None,
    sections: type[Section] | None = None,
    start: str | None = None,
    only: str | None = None,
    todo: bool = False,
) -> Any:
    """Declare a field of a section.

    Args:
        read: settles a value, given its key, or raises PolicyError.
        default: the value if it is left out; None for no value, ``MISSING`` if it is required.
        section: the type of its section.
        sections: the type of its sections, by name.
        start: the hint if the field is missing.
        only: the only kind of section that may have the field.
        todo: whether it may be :data:`TODO`, which is read as if the field were left out.
    """
    about = {
        "read": read,
        "section": section,
        "sections": sections,
        "start": start,
        "only": only,
        "todo": todo,
    }
    if sections is not None:
        return field(default_factory=dict, metadata=about)
    return field(default=default, metadata=about)


def assign(target: object, key: str, value: object) -> None:
    """Set a field of a frozen value while it is constructed."""
    object.__setattr__(target, key, value)


def read_section(document: Document, keys: Keys, kind: type[S], **extra: object) -> S:
    """Build a section from a document's values below these keys; PolicyError, with the position, for wrong ones."""
    given = document.section(keys)
    known = {item.name: item for item in fields(kind) if item.name not in extra}
    if "name" in known:
        extra["name"] = keys[-1]
        del known["name"]
    for key, value in given.items():
        if key not in known:
            place = f"[{'.'.join(keys)}]" if keys else "the policy"
            raise document.error((*keys, key), f"unknown key {key} in {place}.", did_you_mean(key, known))
        if not (value == TODO and known[key].metadata["todo"]):
            extra[key] = _read_part(document, (*keys, key), known[key].metadata, value)
    for name, item in known.items():
        if name not in given and item.default is MISSING and item.default_factory is MISSING:
            wrong = f"[{'.'.join(keys)}] has no {name}." if keys else f"there is no [{name}]."
            raise document.error(keys, wrong, item.metadata["start"])
    try:
        return kind(**extra)
    except PolicyError as error:
        message, hint = error.message, error.hint
        if error.keys and given.get(error.keys[0]) == TODO:
            message = f"{error.keys[0]} of {keys[-1]} is still {TODO}: the data owner has to decide it."
            hint = f"dpsql policy check {document.name} lists all open decisions."
        raise document.error((*keys, *error.keys), message, hint) from None


def _read_part(document: Document, keys: Keys, about: Mapping[str, Any], value: object) -> object:
    if about["section"] is not None:
        return read_section(document, keys, about["section"])
    if about["sections"] is None:
        return value
    names = document.section(keys)
    return {name: read_section(document, (*keys, name), about["sections"]) for name in names}


def parse_toml(text: str, name: str) -> Document:
    """Parse TOML; PolicyError, with the position, for other text."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        return Document(tomllib.loads(text, parse_float=_read_number), text, name)
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
        hint='a line is a [section] or key = value, with texts in "quotes".',
    )


_SAID = re.compile(r"""(?:[^#"']|"(?:\\.|[^"\\])*"|'[^']*')*""")
"""The part of a line before a comment."""


def find_places(text: str) -> dict[Keys, Span]:
    """Return the positions of keys, by a best effort over the lines: they serve for carets, never for values."""
    places: dict[Keys, Span] = {}
    section: Keys = ()
    offset = 0
    for line in text.split("\n"):
        if head := _HEAD.match(line):
            section = _split_keys(head[1])
            for depth in range(1, len(section) + 1):
                places.setdefault(section[:depth], (offset + head.start(1), offset + head.end(1)))
        elif _ASSIGNED.match(line):
            within, keys = [section], section  # the prefixes of keys, by depth of inline tables; the last key
            for found in _ITEM.finditer(line):
                if found["key"]:
                    keys = within[-1] + _split_keys(found["key"])
                    end = _find_end(line) if len(within) == 1 else found.end("key")
                    places.setdefault(keys, (offset + found.start("key"), offset + end))
                elif found[0] in "[{":
                    within.append(keys)
                elif found[0] in "]}" and len(within) > 1:
                    within.pop()
        offset += len(line) + 1
    return places


def _find_end(line: str) -> int:
    """Return the end of an assignment, without the comment and the blanks before it."""
    found = _SAID.match(line)
    return len((line if found is None else found[0]).rstrip())


def _split_keys(dotted: str) -> Keys:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def write_toml(data: Mapping[str, object], inline: Set[str] = frozenset()) -> str:
    """Return TOML that :func:`parse_toml` reads back as ``data``; mappings with only ``inline`` keys are written on one line."""
    lines: list[str] = []
    _write_section(data, (), inline, lines)
    return "\n".join(lines).strip() + "\n"


def _write_section(data: Mapping[str, object], keys: Keys, inline: Set[str], lines: list[str]) -> None:
    parts = {
        key: value
        for key, value in data.items()
        if isinstance(value, Mapping) and not (value and value.keys() <= inline)
    }
    plain = {key: value for key, value in data.items() if key not in parts}
    if keys and (plain or not data):
        lines.extend(["", f"[{'.'.join(map(_write_key, keys))}]"])
    lines.extend(f"{_write_key(key)} = {_write_value(value)}" for key, value in plain.items())
    for key, value in parts.items():
        _write_section(value, (*keys, key), inline, lines)


def _write_key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _write_text(key)


def _write_text(value: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    written = (escapes.get(c) or (f"\\u{ord(c):04X}" if ord(c) < 32 or ord(c) == 127 else c) for c in value)
    return f'"{"".join(written)}"'


def _write_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return str(value).lower()
    if hasattr(value, "written"):  # a bound that is a date or a time
        return _write_value(value.written)
    if isinstance(value, Fraction):
        return write_decimal(value) or f'"{value.numerator}/{value.denominator}"'
    if isinstance(value, str):
        return _write_text(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_write_key(k)} = {_write_value(v)}" for k, v in value.items()) + " }"
    return "[" + ", ".join(_write_value(item) for item in value) + "]"


def write_decimal(number: Fraction) -> str | None:
    """Return a number as its shortest exact decimal; None if it has none.

    >>> [write_decimal(Fraction(text)) for text in ("1/1000000", "3", "5/2", "1/3")]
    ['1e-6', '3', '2.5', None]
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


_MARGIN = 40
_HEADER = re.compile(r"\s*\[")
_ASSIGNED_KEY = re.compile(rf"{DOTTED_KEY}\s*=")


def set_values(text: str, name: str, changes: Mapping[Keys, object], comment: str) -> str:
    r"""Return a policy's text with values set.

    Args:
        name: the policy's name in messages.
        changes: values by their keys, such as ``("tables", "visits", "columns", "day", "type")``.
        comment: the comment on lines that are new or have none.

    Raises:
        PolicyError: the text can't be edited safely.

    >>> print(set_values("[a]\nx = { y = 1 }  # mine\n", "p", {("a", "x", "z"): 2, ("a", "w"): 3}, "new"), end="")
    [a]
    x = { z = 2, y = 1 }  # mine
    w = 3                                     # new
    """
    wanted = copy.deepcopy(dict(parse_toml(text, name).data))
    marked = text.startswith("\ufeff")
    plain = text.removeprefix("\ufeff")
    returns = "\r\n" in plain
    made = plain.replace("\r\n", "\n")
    made = made if made.endswith("\n") or not made else made + "\n"
    for keys, value in changes.items():
        _put(wanted, keys, value)
    try:
        for keys, value in changes.items():
            made = _set(made, keys, value, comment)
        done = parse_toml(made, name).data == parse_toml(write_toml(wanted), name).data
    except (PolicyError, ValueError, IndexError):
        done = False
    if not done:
        raise PolicyError(
            f"{name} can't be edited safely, because its lines are written in an unusual way.",
            hint="paste the lines that dpsql policy check prints.",
        )
    made = made.replace("\n", "\r\n") if returns else made
    return f"\ufeff{made}" if marked else made


def _put(data: dict[str, Any], keys: Keys, value: object) -> None:
    for key in keys[:-1]:
        data = data.setdefault(key, {})
    data[keys[-1]] = value


def _write(value: object) -> str:
    return write_toml({"x": value}, frozenset(value) if isinstance(value, Mapping) else frozenset()).strip()[
        4:
    ]


def write_key(name: str) -> str:
    """Return a key, in quotes if it needs them."""
    return write_toml({name: 1}).partition(" = ")[0]


def _set(text: str, keys: Keys, value: object, comment: str) -> str:
    """Set one value: replace it, add it to its inline table or section, or add the section of its table."""
    places = find_places(text)
    if keys in places:
        start = _start_of_value(text, places[keys][0])
        end = _end_of_value(text, start)
        return _comment(f"{text[:start]} {_write(value)}{text[end:]}", start, comment)
    parent = keys[:-1]
    if any(section == parent for section, _ in _list_sections(text)):
        return _append(text, parent, f"{write_key(keys[-1])} = {_write(value)}", comment)
    found = places.get(parent)
    if found is not None and not _HEADER.match(text, text.rfind("\n", 0, found[0]) + 1):
        start = _start_of_value(text, found[0])
        brace = text.index("{", start)
        item = f" {write_key(keys[-1])} = {_write(value)}"
        rest = text[brace + 1 :]
        comma = " " if rest.startswith("}") else "" if rest.lstrip().startswith("}") else ","
        return _comment(f"{text[: brace + 1]}{item}{comma}{rest}", start, comment)
    nearest = next((there for there in places if there[: len(parent)] == parent), None)
    if nearest is not None and len(nearest) > len(parent):  # dotted keys: columns.day.bounds = ...
        start = places[nearest][0]
        line = text.rfind("\n", 0, start) + 1
        section = _section_of(text, line)
        dotted = ".".join(map(write_key, keys[len(section) :]))
        if not _HEADER.match(text, line):
            return f"{text[:line]}{_pad(f'{dotted} = {_write(value)}', comment)}\n{text[line:]}"
    if len(parent) < 2:
        raise PolicyError(f"the policy has no section [{'.'.join(keys)}].")
    if len(parent) == 3 and parent[2] == "columns":
        head = f"[{'.'.join(map(write_key, parent))}]"
        line_of = _pad(f"{write_key(keys[-1])} = {_write(value)}", comment)
        end = _end_of_sections(text, parent[:2])
        return f"{text[:end].rstrip()}\n\n{head}\n{line_of}\n{text[end:] and chr(10)}{text[end:]}"
    return _set(text, parent, {keys[-1]: value}, comment)


def _start_of_value(text: str, start: int) -> int:
    """Return the end of an assignment's equals sign, given the start of its key."""
    found = _ASSIGNED_KEY.match(text, start)
    if found is None:
        raise ValueError("no assignment")
    return found.end()


def _end_of_value(text: str, start: int) -> int:
    """Return the end of the value that starts here."""
    deep, place = 0, start
    while place < len(text):
        letter = text[place]
        if letter in "\"'":
            place = _end_of_text(text, place)
            continue
        if letter in "[{":
            deep += 1
        elif letter in "]}":
            if deep == 0:
                break
            deep -= 1
        elif deep == 0 and letter in ",\n#":
            break
        elif letter == "#":
            place = text.index("\n", place)
        place += 1
    return len(text[:place].rstrip(" \t"))


def _end_of_text(text: str, place: int) -> int:
    mark = text[place]
    if text.startswith(mark * 3, place):
        return text.index(mark * 3, place + 3) + 3
    place += 1
    while text[place] != mark:
        place += 2 if mark == '"' and text[place] == "\\" else 1
    return place + 1


def _pad(line: str, comment: str) -> str:
    return f"{line:<{_MARGIN}}  # {comment}"


def _comment(text: str, place: int, comment: str) -> str:
    """Add a comment to a line that has none."""
    start, end = text.rfind("\n", 0, place) + 1, _end_of_value(text, place)
    end_of_line = text.find("\n", end)
    end_of_line = len(text) if end_of_line < 0 else end_of_line
    if "\n" in text[start:end_of_line] or "#" in text[end:end_of_line]:
        return text
    return f"{text[:start]}{_pad(text[start:end_of_line].rstrip(), comment)}{text[end_of_line:]}"


def _list_sections(text: str) -> list[tuple[Keys, int]]:
    """Return the keys and the start of each section."""
    found, offset = [], 0
    for line in text.split("\n"):
        if _HEADER.match(line) and (places := find_places(line)):
            found.append((max(places, key=len), offset))
        offset += len(line) + 1
    return found


def _section_of(text: str, place: int) -> Keys:
    return next((keys for keys, start in reversed(_list_sections(text)) if start <= place), ())


def _end_of_sections(text: str, prefix: Keys) -> int:
    """Return the end of the last section whose keys start with a prefix."""
    sections = _list_sections(text)
    end = len(text)
    for place, (keys, _) in enumerate(sections):
        if keys[: len(prefix)] == prefix:
            end = sections[place + 1][1] if place + 1 < len(sections) else len(text)
    return _before_comments(text, end)


def _before_comments(text: str, end: int) -> int:
    """Return the end of the lines before the blank lines and comments that precede the next section."""
    lines = text[:end].split("\n")
    while (
        len(lines) > 1 and end < len(text) and (not lines[-1].strip() or lines[-1].lstrip().startswith("#"))
    ):
        lines.pop()
    return end if end == len(text) else len("\n".join(lines)) + 1


def _append(text: str, section: Keys, line: str, comment: str) -> str:
    """Add a line at the end of a section, or after ``source`` if it is a format."""
    sections = _list_sections(text)
    places = find_places(text)
    source = places.get((*section, "source"))
    if source is not None and line.startswith("format"):
        end = text.find("\n", source[1]) + 1
        return f"{text[:end]}{_pad(line, comment)}\n{text[end:]}"
    at = next(place for place, (keys, _) in enumerate(sections) if keys == section)
    end = sections[at + 1][1] if at + 1 < len(sections) else len(text)
    start = sections[at][1]
    kept = start + len(text[start : _before_comments(text, end)].rstrip("\n"))
    return f"{text[:kept]}\n{_pad(line, comment)}{text[kept:] or chr(10)}"
