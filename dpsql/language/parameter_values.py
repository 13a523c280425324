"""Python values for a statement's parameters: ``$name`` with a mapping, ``?`` or ``$1`` with a list.

They stay values: no content of an analyst's variable becomes text of a statement.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from dpsql.errors import BindError
from dpsql.late_dataclass import dataclass

Params = Mapping[str, object] | Sequence[object]
"""Parameter values: by name, or in the order of the ``?`` marks."""


@dataclass(frozen=True)
class StandIn:
    """A value of a parameter's type, which describes a statement before the parameter's own value is known."""

    value: object


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


def unwrap_value(value: object) -> object:
    """Return the value of a parameter in a plain type, by the value itself and never by its ``str()``.

    Members of ``class Ward(str, Enum)``, of an ``IntEnum`` and of other subclasses become values of the base. Scalars of
    numpy become Python's, and ``NaT`` and ``NA`` of pandas NULL. A list, a tuple, an array and a series of one dimension
    become a list. Other values, which have no literals, are returned unchanged.

    >>> class Ward(str):
    ...     def __str__(self) -> str:
    ...         return "Ward A"
    >>> unwrap_value(Ward("a")), type(unwrap_value(Ward("a"))).__name__
    ('a', 'str')
    """
    if value is None or type(value) in _PLAIN:
        return value
    read = next((read for kind, read in _READERS if isinstance(value, kind)), None)
    if read is not None:
        return read(value)
    if isinstance(value, list | tuple) or (isinstance(value, _Array) and len(value.shape) == 1):
        return [unwrap_value(item) for item in cast(Iterable[object], value)]
    if _is_missing(value):
        return None
    if not isinstance(value, _Scalar) or value.shape != ():
        return value
    kind = getattr(value.dtype, "kind", "")
    if kind == "m":  # in nanoseconds, a duration's item is an integer
        found = value.astype("timedelta64[us]").item()
        return found if found is None or value == value.astype("timedelta64[us]") else value
    found = value.item()
    if kind == "M" and not isinstance(found, datetime.date):  # so is a moment's
        found = value.astype("datetime64[us]").item()
    return found if type(found) is type(value) else unwrap_value(found)


@runtime_checkable
class _Array(Protocol):
    """An array of numpy, or a series of pandas."""

    shape: tuple[int, ...]

    def tolist(self) -> object: ...


@runtime_checkable
class _Scalar(_Array, Protocol):
    """A scalar of numpy, or an array with one."""

    dtype: object

    def item(self) -> object: ...
    def astype(self, dtype: str) -> _Scalar: ...


_PLAIN = frozenset({str, bool, int, float, decimal.Decimal, datetime.date, datetime.datetime})


def _read_moment(value: datetime.datetime) -> datetime.datetime | None:
    if _is_missing(value):
        return None
    return datetime.datetime.combine(datetime.datetime.date(value), datetime.datetime.timetz(value))


_READERS: tuple[tuple[Any, Callable[[Any], object]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (decimal.Decimal, decimal.Decimal),
    (datetime.datetime, _read_moment),
    (datetime.date, lambda value: datetime.date.fromordinal(datetime.date.toordinal(value))),
    (datetime.timedelta, lambda value: None if _is_missing(value) else value),
    (bytes | bytearray | memoryview, lambda value: bytes(memoryview(value))),
)
"""Readers of a subclass's value by its base, which call no method of the subclass."""


def _is_missing(value: object) -> bool:
    """Return whether a value is pandas' ``NaT`` or ``NA``."""
    kind = type(value)
    return kind.__name__ in ("NaTType", "NAType") and kind.__module__.partition(".")[0] == "pandas"


def read_name(name: object) -> str:
    """Return a parameter's name as plain text, also for a subclass of ``str``."""
    return (str.__str__(name) if isinstance(name, str) else str(name)).removeprefix("$")


def number_marks(text: str) -> tuple[str, int]:
    """Replace the ``?`` marks of a text by ``$1``, ``$2``, ...; return it and their number."""
    number = itertools.count(1)
    named = _MARK.sub(lambda found: f"${next(number)}" if found["mark"] else found[0], text)
    return named, next(number) - 1


def name_parameters(text: str, params: Params | None) -> tuple[str, dict[str, object]]:
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
        return text, {read_name(name): value for name, value in params.items()}
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
