"""Frozen dataclasses as JSON values and back, by their fields' declared types.

Events, sums, records and messages are written this way. Fractions are texts, so nothing is rounded; so are floats that JSON
doesn't have. A class with ``to_json`` and ``from_json`` has a form of its own. Input is checked, never coerced.

>>> from dpsql.privacy.amounts import Amount
>>> write_record(Amount("rho", Fraction(1, 3)))
{'currency': 'rho', 'total': '1/3'}
>>> read_value(Amount, {"currency": "rho", "total": "1/3"}) == Amount("rho", Fraction(1, 3))
True
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from fractions import Fraction
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin, get_type_hints

_T = TypeVar("_T")
_FRACTION = re.compile(r"-?[0-9]{1,4000}(/0*[1-9][0-9]{0,3999})?")


class _Codec(NamedTuple):
    """Writes the values of one type as JSON values, and reads them."""

    write: Callable[[Any], object]
    read: Callable[[object], object]


def write_record(record: object) -> dict[str, object]:
    """Convert a dataclass to JSON values."""
    return {
        name: codec.write(getattr(record, name)) for name, codec, _ in _find_fields(cast(Any, type(record)))
    }


def write_as(declared: object, value: object) -> object:
    """Convert a value of a declared type to a JSON value."""
    return _find_codec(declared).write(value)


def read_value(declared: type[_T], value: object) -> _T:
    """Convert a JSON value to its declared type: a record, an event, a plain value, or lists of these.

    Unknown fields of records are ignored. ValueError, TypeError, KeyError or ArithmeticError if the value is malformed
    or a field is missing.
    """
    return cast(_T, _find_codec(cast(Any, declared)).read(value))


def read_record(kind: type[_T], value: object) -> _T:
    """Convert JSON values to a dataclass; errors are those of :func:`read_value`."""
    body = _check(dict, value)
    known = _find_fields(cast(Any, kind))
    return kind(**{name: codec.read(body[name]) for name, codec, needed in known if needed or name in body})


@cache
def _find_fields(kind: Any) -> tuple[tuple[str, _Codec, bool], ...]:
    """Return the fields of a dataclass with their codecs, and whether they are required."""
    hints = get_type_hints(kind)
    return tuple(
        (f.name, _find_codec(hints[f.name]), f.default is MISSING and f.default_factory is MISSING)
        for f in fields(kind)
    )


@cache
def _find_codec(declared: Any) -> _Codec:
    origin, inside = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        (kind,) = (one for one in inside if one is not NoneType)
        return _optional(_find_codec(kind)) if NoneType in inside else _find_codec(kind)
    if origin is tuple:
        return (
            _list_of(_find_codec(inside[0])) if inside[-1] is ... else _tuple_of([*map(_find_codec, inside)])
        )
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_of(*map(_find_codec, inside))
    if hasattr(declared, "from_json"):
        return _Codec(lambda value: value.to_json(), declared.from_json)
    return _PLAIN[declared] if declared in _PLAIN else _Codec(write_record, partial(read_record, declared))


def _optional(one: _Codec) -> _Codec:
    return _Codec(*(lambda value, do=do: None if value is None else do(value) for do in one))


def _list_of(one: _Codec) -> _Codec:
    return _Codec(
        lambda value: [one.write(item) for item in value],
        lambda value: tuple(map(one.read, _check(list, value))),
    )


def _tuple_of(all_: list[_Codec]) -> _Codec:
    return _Codec(
        lambda value: [one.write(item) for one, item in zip(all_, value, strict=True)],
        lambda value: tuple(one.read(item) for one, item in zip(all_, _check(list, value), strict=True)),
    )


def _mapping_of(key: _Codec, one: _Codec) -> _Codec:
    return _Codec(
        lambda value: {key.write(name): one.write(item) for name, item in value.items()},
        lambda value: {key.read(name): one.read(item) for name, item in _check(dict, value).items()},
    )


def _check(kind: type[_T], value: object) -> _T:
    if type(value) is not kind:
        raise TypeError
    return value


def _read_fraction(value: object) -> Fraction:
    if not _FRACTION.fullmatch(_check(str, value)):
        raise ValueError
    return Fraction(cast(str, value))


def _read_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    if isinstance(value, str) and value not in _NOT_FINITE:
        raise ValueError
    return float(value)


_NOT_FINITE = ("inf", "-inf", "nan")


_PLAIN: dict[object, _Codec] = {
    Fraction: _Codec(lambda value: str(Fraction(value)), _read_fraction),
    float: _Codec(lambda value: value if math.isfinite(value) else str(value), _read_float),
    **{kind: _Codec(lambda value: value, partial(_check, kind)) for kind in (str, int, bool, bytes, dict)},
}


def add_codec(kind: type[_T], write: Callable[[_T], object], read: Callable[[object], _T]) -> None:
    """Add functions that write and read the values of a library's type; errors of ``read`` are those of :func:`read_value`."""
    _PLAIN[kind] = _Codec(write, read)
