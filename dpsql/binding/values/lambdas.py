"""Functions of a list with a lambda, and list comprehensions: the body is a total expression over one element.

Work and texts of the body count once for each element that the list may have. A lambda within a lambda is refused.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.values.coercion import Bind, CallBinder, binds_calls_of, convert, require_kind, take_value
from dpsql.binding.values.lengths import count_kept, hold, length_of, repeated
from dpsql.binding.values.sql_types import BIGINT, Bounds, Type, Typed, make_call, make_cast
from dpsql.language.dialect import bind_error, privacy_error

_ITEMS = ("BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE", "TEXT", "DATE", "TIME", "TIMESTAMP", "UUID")
_OVERHEAD = 16
_ELEMENT, _PLACE = "item", "place"
"""The parameters' names in exact queries, in which all columns are qualified."""
PARAMETER = "dpsql_parameter"
"""The key in the ``meta`` of a name that stands for a lambda's parameter, with its value."""


def bind_lambda(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``list_filter(list, lambda x : condition)`` or ``list_transform(list, lambda x : value)``."""
    name = "list_filter" if isinstance(node, exp.ArrayFilter) else "list_transform"
    return _bind(name, node, node.this, node.expression, bind)


def _binds_lambda(name: str) -> CallBinder:
    def handle(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
        return _bind(name, node, arguments[0], arguments[1], bind)

    return binds_calls_of(name, 2, f"{name} takes a list and a lambda.")(handle)


_binds_lambda("list_filter")
_binds_lambda("list_transform")


def bind_comprehension(node: exp.Comprehension, bind: Bind) -> Typed:
    """Bind ``[value FOR x IN list IF condition]``."""
    parameter, made, condition = node.expression, node.args["iterator"].copy(), node.args.get("condition")
    if not isinstance(parameter, exp.Identifier):
        raise bind_error(node, "a list comprehension has one name.", "write [x + 1 FOR x IN list].")
    if condition is not None:
        made = exp.ArrayFilter(this=made, expression=_lambda(condition, parameter))
    if isinstance(node.this, exp.Column) and node.this.name.lower() == parameter.name.lower():
        return bind(made)
    return bind(exp.Transform(this=made, expression=_lambda(node.this, parameter)))


def _lambda(body: exp.Expr, parameter: exp.Identifier) -> exp.Lambda:
    return exp.Lambda(this=body.copy(), expressions=[parameter.copy()])


def _bind(name: str, node: exp.Expr, place: exp.Expr, given: exp.Expr, bind: Bind) -> Typed:
    inner = require_kind(bind(place), ("LIST",), f"{name} needs a list here")
    if not isinstance(given, exp.Lambda) or not 1 <= len(given.expressions) <= 2:
        raise bind_error(given, f"{name} takes a lambda.", f"write {name}(x, lambda y : y > 1).", around=node)
    element = inner.type.element
    if element is None:
        return inner
    inner = hold(inner)
    item = Typed(exp.to_identifier(_ELEMENT), element, order=inner.order)
    count = Bounds(Fraction(1), Fraction(2**40))
    values = [item, Typed(exp.to_identifier(_PLACE), BIGINT, count, reach=count, nullable=False)]
    body = _name(given, values)
    with repeated(length_of(inner)):
        typed = bind(body)
        if typed.plain is not None:
            typed = convert(typed, typed.plain)
        # parts of the element are in the row already
        parts = typed.unchecked and typed.node.find(exp.Column) is None
        typed = typed if parts else hold(typed)
        count_kept(name, _OVERHEAD + (0 if parts else length_of(typed)), node)
    if typed.node.find(exp.Query) is not None:
        what = "a value of a table within a lambda can't be used."
        raise privacy_error(given, what, "write the value into it, or join the table first.", around=node)
    used = [exp.to_identifier(value.node.name) for value, _ in zip(values, given.expressions, strict=False)]
    made = make_call(name, inner.node, exp.Lambda(this=typed.node, expressions=used))
    if name == "list_filter":
        if typed.type.kind not in ("BOOLEAN", "NULL"):
            raise bind_error(given, f"a condition is needed, and this is {typed.type.sql}.", around=node)
        return replace(inner, node=made, plain=None, nullable=True)
    if typed.type.kind not in _ITEMS:
        raise bind_error(given, f"a list of {typed.type.sql} can't be made here.", around=node)
    kind = Type("LIST", f"{typed.type.sql}[]", typed.type)
    return replace(inner, node=make_cast(made, kind), type=kind, plain=None, nullable=True, order=typed.order)


def _name(given: exp.Lambda, values: list[Typed]) -> exp.Expr:
    """Return a lambda's body in which each name of a parameter carries its value."""
    named = {place.name.lower(): value for place, value in zip(given.expressions, values, strict=False)}
    body: exp.Expr = exp.Paren(this=given.this.copy())
    for part in list(body.walk()):
        if isinstance(part, exp.Lambda | exp.Comprehension):
            raise privacy_error(
                given, "a lambda within a lambda can't be used.", "compute it in steps, in CTEs."
            )
        if isinstance(part, exp.Column) and not part.table:
            part = part.this
        holder = part.parent if isinstance(part.parent, exp.Column) and not part.parent.table else part
        inside = isinstance(holder.parent, exp.Column) or (
            isinstance(holder.parent, exp.Dot) and holder.arg_key == "expression"
        )
        if isinstance(part, exp.Identifier) and part.name.lower() in named and not inside:
            column = exp.Column(this=exp.to_identifier(part.name))
            column.meta.update(part.meta)
            column.meta[PARAMETER] = named[part.name.lower()]
            holder.replace(column)
    return body


def take_parameter(node: exp.Expr) -> Typed | None:
    """Return the value of a lambda's parameter; None for other names."""
    value = node.meta.get(PARAMETER)
    return None if value is None else take_value(value, node)
