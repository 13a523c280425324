"""Python values for a statement's parameters: ``$name`` with a mapping, ``?`` or ``$1`` with a list.

They stay values: no content of an analyst's variable becomes text of a statement.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.errors import BindError

Params = Mapping[str, Any] | Sequence[Any]
"""Parameter values: by name, or in the order of the ``?`` marks."""

_MARK = re.compile(
    r"""'(?:''|[^'])*'|"(?:""|[^"])*"|`[^`]*`|(\$\w*\$).*?\1|--[^\n]*|/\*.*?\*/|(?P<mark>\?)""", re.DOTALL
)
"""Matches quoted text and comments, and the question marks outside them."""
_NUMBERED = re.compile(r"\$[0-9]")


def drop_zone(moment: datetime.datetime) -> datetime.datetime:
    """Return a moment without its zone, converted to UTC as in DuckDB's storage.

    Raises:
        OverflowError: the year in UTC is outside Python's range.

    >>> drop_zone(datetime.datetime.fromisoformat("2024-03-01 01:00:00+02:00")).isoformat(" ")
    '2024-02-29 23:00:00'
    """
    zoned = moment.tzinfo is not None and moment.utcoffset() is not None
    return (moment.astimezone(datetime.UTC) if zoned else moment).replace(tzinfo=None)


def number_marks(text: str) -> tuple[str, int]:
    """Replace the ``?`` marks of a text by ``$1``, ``$2``, ...; return it and their number."""
    number = itertools.count(1)
    named = _MARK.sub(lambda found: f"${next(number)}" if found["mark"] else found[0], text)
    return named, next(number) - 1


def name_parameters(text: str, params: Params | None) -> tuple[str, dict[str, Any]]:
    """Replace the ``?`` marks of a text by ``$1``, ``$2``, ... if the values are a list; return text and values by name.

    Raises:
        BindError: there are more or fewer marks than values, or they are neither a mapping nor a list.

    >>> name_parameters("SELECT ?, '?'", ["Delft"])
    ("SELECT $1, '?'", {'1': 'Delft'})
    >>> name_parameters("SELECT $city", {"$city": "Delft"})
    ('SELECT $city', {'city': 'Delft'})
    """
    if params is None:
        return text, {}
    if isinstance(params, Mapping):
        return text, {str(name).removeprefix("$"): value for name, value in params.items()}
    if not isinstance(params, list | tuple):
        raise BindError(
            f"parameters are a mapping or a list, not a {type(params).__name__}.",
            hint='{"city": "Delft"} for $city, or ["Delft"] for a ? mark.',
        )
    named, marks = number_marks(text)
    given = len(params)
    if marks != given and (marks or not _NUMBERED.search(text)):
        raise BindError(f"there are {marks} ? marks, but {given} parameter{'' if given == 1 else 's'}.")
    return named, {str(place): value for place, value in enumerate(params, 1)}
