"""What is inside of columns: fields of structs, elements of lists; and types that are changed on the way out."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError, did_you_mean
from dpsql.sql.dialect import span_of
from dpsql.sql.expressions import lengths
from dpsql.sql.expressions.functions import MOST
from dpsql.sql.expressions.meeting import Bind, call, cast, need, refuse_rest
from dpsql.sql.expressions.types import TEXT, TIMESTAMP, Typed


def taken(typed: Typed, node: exp.Expr) -> Typed:
    kind = typed.type
    if kind.kind == "OTHER":
        raise PrivacyError(
            f"{node.sql(dialect='duckdb')} is of type {kind.sql}, whose values can't be used.",
            span=span_of(node),
        )
    made = typed.node.copy()
    if kind.sql == "ENUM":
        return lengths.read(Typed(cast(made, TEXT), TEXT, None, typed.constant, typed.values))
    if (
        kind.kind == "TIMESTAMP" and kind.sql != "TIMESTAMP"
    ):  # to microseconds; far ones of another unit don't fit
        return Typed(cast(made, TIMESTAMP, trying=True), TIMESTAMP, typed.bounds, typed.constant)
    return lengths.read(replace(typed, node=made))


def field(typed: Typed, name: str, node: exp.Expr) -> Typed:
    for known, kind in typed.type.fields:
        if known.lower() == name.lower():
            made = call("struct_extract", typed.node.copy(), exp.Literal.string(known))
            return taken(Typed(made, kind), node)
    hint = did_you_mean(name, [known for known, _ in typed.type.fields])
    raise BindError(f"the struct has no field {name}.", span=span_of(node), hint=hint)


def dot(node: exp.Dot, bind: Bind) -> Typed:
    inner = bind(node.this)
    need(inner, node.this, ("STRUCT",), "only a struct has fields")
    if not isinstance(node.expression, exp.Identifier) or inner.type.kind == "NULL":
        raise BindError("this is no field.", span=span_of(node))
    return field(inner, node.expression.name, node)


def bracket(node: exp.Bracket, bind: Bind) -> Typed:
    """``list[3]``, where a place without an element gives NULL; ``struct['field']``."""
    refuse_rest(node, "this", "expressions", "offset", "safe")
    inner, keys = bind(node.this), node.expressions
    key = keys[0] if len(keys) == 1 else None
    negative = isinstance(key, exp.Neg) and isinstance(key.this, exp.Literal)
    if inner.type.kind == "STRUCT" and isinstance(key, exp.Literal) and key.is_string:
        return field(inner, key.name, node)
    need(inner, node.this, ("LIST",), "only lists and structs have elements")
    if key is None or not (isinstance(key, exp.Literal) or negative) or inner.type.element is None:
        raise PrivacyError("an element's place must be a literal.", span=span_of(node), hint="write list[1].")
    digits = (key.this if negative else key).name
    if not digits.isdigit() or int(digits) > MOST or (not negative and key.is_string):
        raise BindError("an element's place is a whole number.", span=span_of(node), hint="write list[1].")
    # sqlglot counts from zero, one less than DuckDB.
    place = (-int(digits) if negative else int(digits)) + 1
    made = call("list_extract", inner.node, exp.Literal.number(place))
    return taken(Typed(made, inner.type.element), node)
