"""Frozen dataclasses as JSON values and back, by their fields' declared types.

Fractions are texts, so nothing is rounded; so are floats that JSON doesn't have.

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
from dataclasses import MISSING, Field, fields, is_dataclass
from fractions import Fraction
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import dpsql.privacy.filters  # noqa: F401 - it imports every kind of event
from dpsql.privacy.events import Event

_T = TypeVar("_T")
_FRACTION = re.compile(r"-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")


def write_record(record: Any) -> dict[str, Any]:
    """Return a frozen dataclass as JSON values, by its fields' declared types."""
    return {f.name: _write_value(getattr(record, f.name)) for f in fields(record)}


def _write_value(value: Any) -> Any:
    if isinstance(value, Event):
        return value.to_json()
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, tuple | list):
        return [_write_value(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _write_value(item) for key, item in value.items()}
    return write_record(value) if is_dataclass(value) else value


def read_value(declared: Any, value: Any) -> Any:
    """Return a JSON value as its declared type: a record, an event, a plain value, or lists of these.

    Unknown fields of records are ignored. ValueError, TypeError, KeyError or ArithmeticError if the value is malformed
    or a field is missing.
    """
    return _find_reader(declared)(value)


_Read = Callable[[Any], Any]


@cache
def _find_reader(declared: Any) -> _Read:
    """Return the reader of a type, cached since budget states are read often."""
    origin, inside = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        (kind,) = (one for one in inside if one is not NoneType)
        return _optional(kind) if NoneType in inside else _find_reader(kind)
    if origin is tuple:
        return _list_of(inside[0]) if inside[-1] is ... else _tuple_of(inside)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping_of(*inside)
    if declared is Event:
        return Event.from_json
    if is_dataclass(declared) and isinstance(declared, type):
        return _record_of(declared)
    return _PLAIN[declared]


def _optional(kind: Any) -> _Read:
    def read(value: Any) -> Any:
        return None if value is None else _find_reader(kind)(value)

    return read


def _list_of(kind: Any) -> _Read:
    def read(value: Any) -> Any:
        return tuple(map(_find_reader(kind), _check(list, value)))

    return read


def _tuple_of(kinds: tuple[Any, ...]) -> _Read:
    def read(value: Any) -> Any:
        items = zip(kinds, _check(list, value), strict=True)
        return tuple(_find_reader(kind)(item) for kind, item in items)

    return read


def _mapping_of(key: Any, kind: Any) -> _Read:
    def read(value: Any) -> Any:
        items = _check(dict, value).items()
        return {_find_reader(key)(name): _find_reader(kind)(item) for name, item in items}

    return read


def _record_of(kind: type) -> _Read:
    known: list[tuple[str, _Read, bool]] = []

    def read(value: Any) -> Any:
        body = _check(dict, value)
        if not known:  # resolved late, because some records' types are defined after this module
            hints = get_type_hints(kind)
            known[:] = [(f.name, _find_reader(hints[f.name]), _is_needed(f)) for f in fields(kind)]
        return kind(**{name: get(body[name]) for name, get, needed in known if needed or name in body})

    return read


def _is_needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _check(kind: type[_T], value: Any) -> _T:
    if type(value) is not kind:
        raise TypeError
    return value


def _read_fraction(value: Any) -> Fraction:
    if not _FRACTION.fullmatch(_check(str, value)):
        raise ValueError
    return Fraction(value)


def _read_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return float(value)


_PLAIN: dict[Any, _Read] = {
    Fraction: _read_fraction,
    float: _read_float,
    str: partial(_check, str),
    int: partial(_check, int),
    bool: partial(_check, bool),
}
