"""Records as JSON values and back: frozen dataclasses, by the types that their fields declare.

Fractions are texts, so nothing is rounded; floats that JSON does not have are texts too.

>>> from dpsql.privacy.amounts import Amount
>>> write_record(Amount("rho", Fraction(1, 3)))
{'currency': 'rho', 'total': '1/3'}
>>> read_value(Amount, {"currency": "rho", "total": "1/3"}) == Amount("rho", Fraction(1, 3))
True
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from fractions import Fraction
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import dpsql.privacy.filters  # noqa: F401 - it imports every kind of event
from dpsql.privacy.events import Event

_FRACTION = re.compile(r"-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")


def write_record(record: Any) -> dict[str, Any]:
    """Return a frozen dataclass as JSON values, by the types that its fields declare."""
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


def _read_record(kind: type, body: Any) -> Any:
    if not isinstance(body, Mapping):
        raise TypeError
    hints = _hints(kind)
    given = {
        f.name: read_value(hints[f.name], body[f.name])
        for f in fields(kind)
        if f.name in body or (f.default is MISSING and f.default_factory is MISSING)
    }
    return kind(**given)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def read_value(declared: Any, value: Any) -> Any:
    """Return a JSON value as the type that it is declared to have: a record, an event, a plain value, or lists of these.

    Fields of records that this version does not know are left out.

    Raises:
        ValueError, TypeError, KeyError, ArithmeticError: it is none, or a field is missing.
    """
    origin, inside = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        if value is None and NoneType in inside:
            return None
        (declared,) = (one for one in inside if one is not NoneType)
        return read_value(declared, value)
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError
        if inside[-1] is ...:
            return tuple(read_value(inside[0], item) for item in value)
        return tuple(read_value(one, item) for one, item in zip(inside, value, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise TypeError
        return {read_value(inside[0], key): read_value(inside[1], item) for key, item in value.items()}
    if declared is Event:
        return Event.from_json(value)
    if is_dataclass(declared) and isinstance(declared, type):
        return _read_record(declared, value)
    return _read_plain(declared, value)


def _read_plain(declared: Any, value: Any) -> Any:
    if declared is Fraction:
        if not isinstance(value, str) or not _FRACTION.fullmatch(value):
            raise ValueError
        return Fraction(value)
    if declared is float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError
        return float(value)
    if declared not in (str, int, bool) or type(value) is not declared:
        raise TypeError
    return value
