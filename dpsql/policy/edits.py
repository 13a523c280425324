"""Edits of a policy's text: values are set, and comments, order and spelling of everything else stay.

An edit is checked: the new text has the intended values and no other change, or the edit is refused.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from dpsql.errors import PolicyError
from dpsql.policy.toml import DOTTED_KEY, Keys, find_places, parse_toml, write_toml

_MARGIN = 40
_HEADER = re.compile(r"\s*\[")
_ASSIGNED = re.compile(rf"{DOTTED_KEY}\s*=")


def set_values(text: str, name: str, changes: Mapping[Keys, Any], comment: str) -> str:
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


def _put(data: dict[str, Any], keys: Keys, value: Any) -> None:
    for key in keys[:-1]:
        data = data.setdefault(key, {})
    data[keys[-1]] = value


def _write(value: Any) -> str:
    return write_toml({"x": value}, frozenset(value) if isinstance(value, Mapping) else frozenset()).strip()[
        4:
    ]


def _key(name: str) -> str:
    return write_toml({name: 1}).partition(" = ")[0]


def _set(text: str, keys: Keys, value: Any, comment: str) -> str:
    """Set one value: replace it, add it to its inline table or section, or add the section of its table."""
    places = find_places(text)
    if keys in places:
        start = _start_of_value(text, places[keys][0])
        end = _end_of_value(text, start)
        return _comment(f"{text[:start]} {_write(value)}{text[end:]}", start, comment)
    parent = keys[:-1]
    if any(section == parent for section, _ in _list_sections(text)):
        return _append(text, parent, f"{_key(keys[-1])} = {_write(value)}", comment)
    found = places.get(parent)
    if found is not None and not _HEADER.match(text, text.rfind("\n", 0, found[0]) + 1):
        start = _start_of_value(text, found[0])
        brace = text.index("{", start)
        item = f" {_key(keys[-1])} = {_write(value)}"
        rest = text[brace + 1 :]
        comma = " " if rest.startswith("}") else "" if rest.lstrip().startswith("}") else ","
        return _comment(f"{text[: brace + 1]}{item}{comma}{rest}", start, comment)
    nearest = next((there for there in places if there[: len(parent)] == parent), None)
    if nearest is not None and len(nearest) > len(parent):  # dotted keys: columns.day.bounds = ...
        start = places[nearest][0]
        line = text.rfind("\n", 0, start) + 1
        section = _section_of(text, line)
        dotted = ".".join(map(_key, keys[len(section) :]))
        if not _HEADER.match(text, line):
            return f"{text[:line]}{_pad(f'{dotted} = {_write(value)}', comment)}\n{text[line:]}"
    if len(parent) < 2:
        raise PolicyError(f"the policy has no section [{'.'.join(keys)}].")
    if len(parent) == 3 and parent[2] == "columns":
        head = f"[{'.'.join(map(_key, parent))}]"
        line_of = _pad(f"{_key(keys[-1])} = {_write(value)}", comment)
        end = _end_of_sections(text, parent[:2])
        return f"{text[:end].rstrip()}\n\n{head}\n{line_of}\n{text[end:] and chr(10)}{text[end:]}"
    return _set(text, parent, {keys[-1]: value}, comment)


def _start_of_value(text: str, start: int) -> int:
    """Return the end of an assignment's equals sign, given the start of its key."""
    found = _ASSIGNED.match(text, start)
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
