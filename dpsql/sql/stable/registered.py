"""``session.register``: a Python function by name, with the type of what it returns."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

from dpsql.errors import BindError, PolicyError
from dpsql.mechanisms.returned import Kind, Registered, Returns
from dpsql.sql.expressions.types import BIGINT, BOOLEAN, DOUBLE, TEXT, Type

_PYTHON: dict[Any, Type] = {float: DOUBLE, int: BIGINT, str: TEXT, bool: BOOLEAN}
_KINDS: dict[str, Kind] = {
    "DOUBLE": "DOUBLE", "DECIMAL": "DOUBLE", "INTEGER": "BIGINT", "TEXT": "VARCHAR", "BOOLEAN": "BOOLEAN",
}  # fmt: skip
_TYPES = {"DOUBLE": DOUBLE, "BIGINT": BIGINT, "VARCHAR": TEXT, "BOOLEAN": BOOLEAN}
_LONGEST = 1000
_HINT = "write returns='DOUBLE', 'BIGINT', 'VARCHAR' or 'BOOLEAN', or a list of these such as 'VARCHAR[]'."


def registered(name: str, function: Callable[..., object], returns: Any, length: int | None) -> Registered:
    """Reads what ``session.register`` was given.

    Raises:
        PolicyError: the name can't be one of a function.
        BindError: a type or a length that results can't have.
    """
    if not name.isidentifier():
        raise PolicyError(f"{name!r} can't be the name of a function.")
    if returns is None:
        if length is not None:
            raise BindError(
                "a length needs the type of the elements.", hint="write returns='DOUBLE', length=3."
            )
        return Registered(function)
    kind = _type_of(returns)
    element = kind.element if kind is not None and kind.kind == "LIST" else kind
    known = _KINDS.get(element.kind) if element is not None else None
    if kind is None or known is None:
        raise BindError(f"{name} can't return {returns!r}.", hint=_HINT)
    if length is not None and (
        isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= _LONGEST
    ):
        raise BindError(f"the length of a result lies between 1 and {_LONGEST}.", hint="write length=3.")
    return Registered(function, Returns(known, kind.kind == "LIST" or length is not None, length))


def _type_of(returns: Any) -> Type | None:
    if isinstance(returns, str):
        return Type.parse(returns)
    if typing.get_origin(returns) in (list, tuple):
        inside = [part for part in typing.get_args(returns) if part is not Ellipsis]
        element = _PYTHON.get(inside[0]) if len(set(inside)) == 1 else None
        return Type("LIST", f"{element.sql}[]", element) if element is not None else None
    return _PYTHON.get(returns) if isinstance(returns, type) else None


def sql_type(returns: Returns) -> Type:
    """The SQL type of a declared result."""
    element = _TYPES[returns.kind]
    return Type("LIST", f"{element.sql}[]", element) if returns.many else element
