"""JSON texts and maps: the parts at a literal path, and the entries of a key.

DuckDB raises on text that is no JSON, so a text is tried as JSON first and is NULL otherwise. A path is a literal of plain
keys and places, which DuckDB reads without fail. A part is written in at most :data:`_GROWTH` times the characters of the
whole, since a number of few digits may have a long exponent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.values.coercion import (
    Bind,
    binds_calls_of,
    cast_fitting,
    make_boolean,
    meet,
    require_kind,
    take_value,
)
from dpsql.binding.values.lengths import count_written, hold, length_of, limit_steps, mark_length
from dpsql.binding.values.sql_types import (
    BIGINT,
    BOOLEAN,
    NULL,
    TEXT,
    Bounds,
    Type,
    Typed,
    make_call,
    make_cast,
    make_try,
)
from dpsql.language.dialect import privacy_error

_GROWTH = 8
_WEIGHT = 16
"""Characters in memory for each character of a text that is read as JSON."""
_KEY = re.compile(r'[^"\\*\x00-\x1f]+')
_JSON = Type("OTHER", "JSON")


def bind_json(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``x -> 'key'`` and ``x ->> 'key'``, a part of a JSON text as JSON, or as text."""
    name = "->>" if isinstance(node, exp.JSONExtractScalar) else "->"
    path = exp.Literal.string(_write_path(node))
    text = require_kind(bind(node.this), ("TEXT",), f"{name} takes a part of a JSON text")
    if text.type == NULL:
        return Typed(make_cast(exp.Null(), TEXT), TEXT, length=0)
    text = hold(text)
    length = length_of(text)
    limit_steps(name, _WEIGHT * length, node)
    count_written(name, length, node, _GROWTH + _WEIGHT)
    whole = make_cast(make_cast(text.node, TEXT), _JSON, trying=True)
    made = make_try(type(node)(this=whole, expression=path))
    made = made if name == "->>" else make_cast(made, TEXT)
    return mark_length(Typed(made, TEXT, None, text.constant, length=length, unchecked=True))


def _write_path(node: exp.Expr) -> str:
    path, written = node.expression, "$"
    for step in path.expressions[1:] if isinstance(path, exp.JSONPath) else (None,):
        inner = step.this if step is not None else None
        if isinstance(step, exp.JSONPathKey) and isinstance(inner, str) and _KEY.fullmatch(inner):
            written += f'."{inner}"'
        elif isinstance(step, exp.JSONPathSubscript) and isinstance(inner, int) and 0 <= inner < 10**6:
            written += f"[{inner}]"
        else:
            hint = "write '$.name', '$.name.other' or '$.names[0]'."
            raise privacy_error(path, "a path of JSON is a literal of keys and places.", hint, around=node)
    return written


# -- maps -----------------------------------------------------------------------------------------------------------


_Parts = Callable[[exp.Expr, Typed, Sequence[exp.Expr], Bind], Typed]


def _binds_map(name: str, key: bool, missing: Type | None = None) -> Callable[[_Parts], _Parts]:
    """Register the binder of a function of a map, and of a key if ``key`` is set, in SQL's order.

    Of NULL it is NULL of the type ``missing``, or of no type.
    """

    def register(function: _Parts) -> _Parts:
        def handle(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
            inner = require_kind(bind(arguments[0]), ("MAP",), f"{name} takes a map")
            if inner.type != NULL:
                return function(node, inner, arguments[1:], bind)
            return inner if missing is None else Typed(make_cast(exp.Null(), missing), missing)

        takes = f"{name} takes a map and a key." if key else f"{name} takes a map."
        binds_calls_of(name, 2 if key else 1, takes)(handle)
        return function

    return register


def _find(node: exp.Expr, inner: Typed, place: exp.Expr, bind: Bind) -> tuple[exp.Expr, Typed]:
    """Return the list of a map's values of one key, and the key."""
    kind = inner.type.fields[0][1]
    held = take_value(Typed(exp.Null(), kind), node)
    sought = bind(place)
    meet((replace(held, place=node), sought), "the key of a map")
    key = cast_fitting(sought, held.type)
    return make_try(make_call("map_extract", inner.node, key)), sought


def take_entry(node: exp.Expr, inner: Typed, place: exp.Expr, bind: Bind) -> Typed:
    """Return ``map[key]``, which is NULL without such a key."""
    found, _ = _find(node, inner, place, bind)
    made = make_call("list_extract", found, exp.Literal.number(1))
    return take_value(Typed(made, inner.type.fields[1][1]), node)


@_binds_map("map_extract_value", key=True)
def _take_value_of(node: exp.Expr, inner: Typed, keys: Sequence[exp.Expr], bind: Bind) -> Typed:
    return take_entry(node, inner, keys[0], bind)


@_binds_map("map_extract", key=True)
def _take_list_of(node: exp.Expr, inner: Typed, keys: Sequence[exp.Expr], bind: Bind) -> Typed:
    """Bind ``map_extract(map, key)``, a list of at most one value."""
    found, _ = _find(node, inner, keys[0], bind)
    value = inner.type.fields[1][1]
    return replace(take_value(Typed(found, _list_of(value)), node), length=1, unchecked=False)


@_binds_map("map_contains", key=True, missing=BOOLEAN)
def _contains(node: exp.Expr, inner: Typed, keys: Sequence[exp.Expr], bind: Bind) -> Typed:
    found, sought = _find(node, inner, keys[0], bind)
    made = exp.GT(this=make_call("len", found), expression=exp.Literal.number(0))
    return make_boolean(exp.Paren(this=made), (inner, sought), True)


def _binds_side(name: str, place: int) -> None:
    """Register the binder of the list of a map's keys, or of its values."""

    @_binds_map(name, key=False)
    def handle(node: exp.Expr, inner: Typed, keys: Sequence[exp.Expr], bind: Bind) -> Typed:
        return take_value(Typed(make_call(name, inner.node), _list_of(inner.type.fields[place][1])), node)


_binds_side("map_keys", 0)
_binds_side("map_values", 1)


@_binds_map("cardinality", key=False, missing=BIGINT)
def _cardinality(node: exp.Expr, inner: Typed, keys: Sequence[exp.Expr], bind: Bind) -> Typed:
    made = make_try(make_call("cardinality", inner.node))
    return Typed(
        made, Type.parse("UBIGINT"), Bounds(low=Fraction(0)), reach=Bounds(Fraction(0), Fraction(2**40))
    )


def _list_of(element: Type) -> Type:
    return Type("LIST", f"{element.sql}[]", element)
