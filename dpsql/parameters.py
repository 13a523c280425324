"""Values from Python for a statement's parameters: ``$name`` with a mapping, ``?`` or ``$1`` with a list.

They stay values from here on: nothing that an analyst's variable holds becomes text of a statement.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpsql.errors import BindError

Params = Mapping[str, Any] | Sequence[Any]
"""Values of parameters: by name, or in the order of the ``?`` marks."""

_MARK = re.compile(
    r"""'(?:''|[^'])*'|"(?:""|[^"])*"|`[^`]*`|(\$\w*\$).*?\1|--[^\n]*|/\*.*?\*/|(?P<mark>\?)""", re.DOTALL
)
"""The texts that may hold a question mark that is none, or one that is."""
_NUMBERED = re.compile(r"\$[0-9]")


def drop_zone(moment: datetime.datetime) -> datetime.datetime:
    """Return a moment without a zone: one that has a zone is told in UTC, as DuckDB stores it.

    Raises:
        OverflowError: UTC's year for it is not one that Python has.

    >>> drop_zone(datetime.datetime.fromisoformat("2024-03-01 01:00:00+02:00")).isoformat(" ")
    '2024-02-29 23:00:00'
    """
    zoned = moment.tzinfo is not None and moment.utcoffset() is not None
    return (moment.astimezone(datetime.UTC) if zoned else moment).replace(tzinfo=None)


def number_marks(text: str) -> tuple[str, int]:
    """Write the ``?`` marks of a text as ``$1``, ``$2``, ...; return it and how many there are."""
    number = itertools.count(1)
    named = _MARK.sub(lambda found: f"${next(number)}" if found["mark"] else found[0], text)
    return named, next(number) - 1


def name_parameters(text: str, params: Params | None) -> tuple[str, dict[str, Any]]:
    """Write the ``?`` marks of a text as ``$1``, ``$2``, ... where values come in a list; return them by name.

    Raises:
        BindError: there are more or fewer marks than values, or it is neither a mapping nor a list.

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
