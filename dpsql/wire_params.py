"""Encodes what accompanies a statement: its parameters, its cell's epsilon, its expected columns.

A parameter keeps its type and all digits, so that the other side writes the same literal. The other side refuses values
that SQL can't represent, with the usual message.
"""

from __future__ import annotations

import base64
import datetime
import decimal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

from dpsql.parameters import drop_zone, read_name, unwrap_value
from dpsql.wire import MALFORMED, WireError

if TYPE_CHECKING:
    import pyarrow as pa


def write_params(params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return ``$name`` parameters as JSON values; for a value that SQL can't represent, its type's name."""
    return (
        None if params is None else {read_name(name): _write_param(value) for name, value in params.items()}
    )


def _write_param(value: Any) -> Any:
    value = unwrap_value(value)
    if isinstance(value, list) and not any(isinstance(held, list) for held in value):
        return [_write_param(held) for held in value]
    if value is None or isinstance(value, bool | str):
        return value
    # A moment that UTC has no year for, or more digits than Python writes.
    with suppress(TypeError, ValueError, OverflowError):
        if isinstance(value, datetime.datetime):
            return {"timestamp": _check_date(drop_zone(value), datetime.datetime)}
        if isinstance(value, datetime.date):
            return {"date": _check_date(value, datetime.date)}
        if isinstance(value, float):
            return {"float": repr(value)}
        if isinstance(value, int | decimal.Decimal):
            return {"int" if isinstance(value, int) else "decimal": str(value)}
    return {"other": type(value).__name__}


def _check_date(value: datetime.date, kind: type[datetime.date]) -> str:
    text = value.isoformat()
    kind.fromisoformat(text)
    return text


def write_amount(epsilon: str | Fraction | None) -> str | dict[str, str] | None:
    """Return an epsilon, the analyst's text or exact, as a JSON value."""
    return {"fraction": str(epsilon)} if isinstance(epsilon, Fraction) else epsilon


def write_question(
    text: str, params: Mapping[str, Any] | None, epsilon: str | Fraction | None
) -> dict[str, Any]:
    """Return a statement's text, parameters by name and epsilon as JSON values."""
    return {"text": text, "params": write_params(params), "epsilon": write_amount(epsilon)}


def read_amount(body: Any) -> str | Fraction | None:
    """Parse an epsilon; WireError if malformed."""
    if isinstance(body, dict):
        from dpsql.record_codec import read_value

        try:
            return cast(Fraction, read_value(Fraction, body.get("fraction")))
        except MALFORMED:
            raise WireError("an epsilon arrived that is none.") from None
    if body is not None and not isinstance(body, str):
        raise WireError("an epsilon arrived that is none.")
    return body


def read_params(body: Any) -> dict[str, Any] | None:
    """Parse parameters; WireError if malformed. A value that SQL can't represent becomes one of an equally named type."""
    if body is None:
        return None
    if not isinstance(body, dict):
        raise WireError("parameters arrived that are none.")
    try:
        return {
            name: [_read_param(item) for item in value] if isinstance(value, list) else _read_param(value)
            for name, value in body.items()
        }
    except MALFORMED:
        raise WireError("parameters arrived that are none.") from None


_READ: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "decimal": decimal.Decimal,
    "timestamp": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "other": lambda name: type(name, (), {})(),  # it has only this name, by which it is refused
}


def _read_param(value: Any) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    ((kind, text),) = value.items()
    if not isinstance(text, str):
        raise TypeError
    return _READ[kind](text)


def write_arrow_schemas(schemas: Iterable[pa.Schema]) -> list[str]:
    """Return columns' names and types as JSON values."""
    return [base64.b64encode(schema.serialize()).decode() for schema in schemas]


def read_arrow_schemas(body: Any) -> list[pa.Schema]:
    """Parse columns' names and types; WireError if malformed."""
    import pyarrow as pa

    try:
        return [pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True))) for text in body]
    except (*MALFORMED, pa.ArrowException):
        raise WireError("columns arrived that are none.") from None
