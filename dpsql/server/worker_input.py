"""Checks of what a worker says, before the front uses it: events, texts, keys and digests within public limits.

An event is read by its own parser, whose fields are typed and checked; the limits here see to it that no event takes long to
read or to add up, and that whatever is written can be read and added up again, under every accountant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import dpsql.privacy.filters  # noqa: F401 - it imports every kind of event
from dpsql.privacy.events import Event
from dpsql.wire import MALFORMED, WireError, get_field

MAX_EVENT_PARTS = 5000
"""Values of an event, counted through all that it is composed of."""
MAX_REPEATS = 10**6
"""Repetitions that one event may stand for: hits, groups, coordinates."""
MAX_LOGGED_TEXT = 200_000
"""Characters of a text that is logged."""
MAX_KEYS = 10_000
"""Blocks of one statement."""

_LEAST, _MOST = Fraction(1, 10**100), Fraction(10**15)
_MOST_STEPS = 10**60
"""A sensitivity in steps of the noise, or its square."""
_NUMBER = re.compile(r"[0-9]{1,1000}(/0{0,9}[1-9][0-9]{0,999})?")
_REPEATED = frozenset({"count", "max_hits", "hits", "groups"})
_HEX = re.compile(r"[0-9a-f]{64}")
_EVENT = "an event arrived that no mechanism has."


def read_worker_event(body: Any) -> Event:
    """Read an event that a worker sent.

    Raises:
        WireError: it is none, or beyond the limits.
    """
    try:
        _check_values(body)
        event = Event.from_json(body)
        epsilon, delta = event.basic
    except MALFORMED:
        raise WireError(_EVENT) from None
    if epsilon < 0 or not 0 <= delta <= 1:
        raise WireError(_EVENT)
    return event


def read_worker_events(body: Any, most: int = 1000) -> list[Event]:
    """Read a list of events.

    Raises:
        WireError: it is none, or longer than ``most``.
    """
    if not isinstance(body, list) or len(body) > most:
        raise WireError("a message arrived without a proper list of events.")
    return [read_worker_event(item) for item in body]


def _check_values(body: Any) -> None:
    todo: list[tuple[str, Any]] = [("", body)]
    count = 0
    while todo:
        name, value = todo.pop()
        count += 1
        if count > MAX_EVENT_PARTS:
            raise ValueError("too large")
        if isinstance(value, dict):
            todo += value.items()
        elif isinstance(value, list):
            todo += (("", item) for item in value)
        else:
            _check_value(name, value)


def _check_value(name: str, value: Any) -> None:
    if isinstance(value, str) and name != "kind":
        if not _NUMBER.fullmatch(value):
            raise ValueError(name)
        amount = Fraction(value)
        if amount and not _LEAST <= amount <= _MOST:
            raise ValueError(name)
    elif isinstance(value, int) and abs(value) > (MAX_REPEATS if name in _REPEATED else _MOST_STEPS):
        raise ValueError(name)
    elif isinstance(value, float):
        raise TypeError(name)


def read_text(head: Mapping[str, Any], name: str) -> str:
    """Return a text that can be written down, of at most :data:`MAX_LOGGED_TEXT` characters.

    Raises:
        WireError: there is none of that name.
    """
    return get_field(head, name, str)[:MAX_LOGGED_TEXT].encode(errors="replace").decode()


def read_key(value: Any) -> str:
    """Return a key of a block or a question: 64 hexadecimal digits.

    Raises:
        WireError: it is none.
    """
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise WireError("a message arrived without a proper key.")
    return value


def read_digests(body: Any) -> dict[str, str]:
    """Return digests of stored answers by their keys.

    Raises:
        WireError: they are none, or more than :data:`MAX_KEYS`.
    """
    if not isinstance(body, dict) or len(body) > MAX_KEYS:
        raise WireError("a message arrived without proper digests.")
    return {read_key(key): read_key(digest) for key, digest in body.items()}


def cut_pieces(listed: Any, content: bytes) -> list[tuple[list[Any], bytes]]:
    """Cut bytes as a list of ``[key, size, ...]`` says, and return each item with its bytes.

    Raises:
        WireError: the sizes do not add up to the bytes.
    """
    if not isinstance(listed, list) or len(listed) > MAX_KEYS or not all(_has_size(item) for item in listed):
        raise WireError("a message arrived without a proper list of sizes.")
    if sum(item[1] for item in listed) != len(content):
        raise WireError("a message arrived whose sizes do not add up.")
    pieces, start = [], 0
    for item in listed:
        pieces.append((item, content[start : start + item[1]]))
        start += item[1]
    return pieces


def _has_size(item: Any) -> bool:
    return isinstance(item, list) and len(item) >= 2 and type(item[1]) is int and item[1] >= 0


def conceal_paths(text: str, paths: Iterable[str]) -> str | None:
    """Return a text without the paths of the owner's files; None where more of them is left than that."""
    for path in sorted(paths, key=len, reverse=True):
        text = text.replace(f" {path}", "").replace(path, "")
    return None if re.search(r"[\w.-]*[/\\][\w.-]+", text) else text
