"""Lists: written out, cut, split from a text; their elements, and whether they hold a value.

Each has a public bound on its length: the number of its items as written, the places of a cut, the ``max_length`` of a
column, the characters of a text that is split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.sql.expressions import coercion, operators, types
from dpsql.sql.expressions.lengths import count_kept, hold, length_of
from dpsql.sql.parse.dialect import bind_error, privacy_error

_ITEMS = ("BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE", "TEXT", "DATE", "TIME", "TIMESTAMP", "UUID")
_OVERHEAD = 16
"""Bytes that the engine takes for an element of a list, beside its characters."""


def bind_element(node: exp.Bracket, bind: coercion.Bind) -> types.Typed:
    """Bind ``list[3]``, where a place without an element gives NULL, or ``struct['field']``."""
    inner, keys = bind(node.this), node.expressions
    key = keys[0] if len(keys) == 1 else None
    if isinstance(key, exp.Slice):
        coercion.refuse_rest(key, "this", "expression")
        return _cut(node, inner, key.args.get("this"), key.args.get("expression"))
    negative = isinstance(key, exp.Neg) and isinstance(key.this, exp.Literal)
    if inner.type.kind == "STRUCT" and isinstance(key, exp.Literal) and key.is_string:
        return coercion.take_field(inner, key.name, node)
    coercion.require_kind(inner, ("LIST",), "only lists and structs have elements")
    if key is None or not (isinstance(key, exp.Literal) or negative) or inner.type.element is None:
        raise privacy_error(node, "an element's place must be a literal.", "write list[1].")
    digits = (key.this if negative else key).name
    if not digits.isdigit() or int(digits) > coercion.MAX_LITERAL_COUNT or (not negative and key.is_string):
        raise bind_error(node, "an element's place is a whole number.", "write list[1].")
    # sqlglot counts from zero, one less than DuckDB.
    place = (-int(digits) if negative else int(digits)) + 1
    made = types.make_call("list_extract", inner.node, exp.Literal.number(place))
    return coercion.take_value(types.Typed(made, inner.type.element, order=inner.order), node)


def bind_contains(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """Bind ``list_contains(list, literal)``."""
    inner, sought = bind(node.this), bind(node.expression)
    element = coercion.require_kind(inner, ("LIST",), "a list is needed").type.element
    if element is None:
        return types.Typed(types.make_cast(exp.Null(), types.BOOLEAN), types.BOOLEAN)
    held = coercion.take_value(types.Typed(exp.Null(), element), node.this)
    coercion.meet((replace(held, place=node.this), sought), "list_contains")
    if sought.type.numeric and (element.sql == "ENUM" or not coercion.fits(sought, element)):
        raise bind_error(node.expression, "the list holds values of another type.")
    return coercion.make_boolean(
        types.make_try(types.make_call("list_contains", inner.node, sought.node)), (inner, sought), True
    )


def bind_membership(
    value: exp.Expr, held: exp.Expr, bind: coercion.Bind, missing: bool = False
) -> types.Typed:
    """Return whether a list has a value: a list that is written out, or one of the row's.

    ``missing``: a NULL in the list makes the answer NULL where the value is not found, as in ``x = ANY(list)``.
    """
    if not isinstance(held, exp.Array):
        return bind_contains(exp.ArrayContains(this=held.copy(), expression=value.copy()), bind)
    written = exp.In(this=value.copy(), expressions=[item.copy() for item in held.expressions])
    found = operators.bind_in(written, bind)
    if missing:
        return found
    sought = bind(value)
    sure = types.make_call("coalesce", found.node, exp.false())
    known = exp.Not(this=exp.Is(this=types.parenthesise(sought.node), expression=exp.Null()))
    return coercion.make_boolean(exp.Case(ifs=[exp.If(this=known, true=sure)]), (found, sought), True)


def bind_list(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """Bind ``[x, y]``, a list of one type and of as many elements as are written."""
    if not node.expressions:
        raise bind_error(node, "an empty list has no type here.", "write its elements, as in [a, b].")
    typed = [hold(bind(item)) for item in node.expressions]
    met = coercion.meet(typed, "a list")
    if met.type.kind not in _ITEMS:
        raise bind_error(
            node, f"a list of {met.type.sql} can't be written here.", "write plain values: [a, b]."
        )
    count_kept("a list", sum(length_of(item) + _OVERHEAD for item in typed), node)
    made = exp.Array(expressions=list(met.nodes))
    kind = types.Type.parse(f"{met.type.sql}[]")
    # A cast tells the engine the type that is meant, where all items are NULL or numbers as written.
    whole = types.Typed.made_of(types.make_cast(made, kind), kind, typed, nullable=False)
    return replace(whole, length=len(typed), order=coercion.find_common_order(typed))


def bind_array_slice(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """Bind ``array_slice(list, first, last)``, a call of ``list[first:last]``."""
    return bind_slice_call(node, [node.this, node.args.get("start"), node.args.get("end")], bind)


def bind_slice_call(node: exp.Expr, arguments: Sequence[exp.Expr | None], bind: coercion.Bind) -> types.Typed:
    """Bind a call that cuts a list, by any of its names."""
    if len(arguments) != 3 or None in arguments:
        raise bind_error(node, "array_slice takes 3 arguments.", "write x[1:5].")
    whole, first, last = arguments
    assert whole is not None
    return _cut(node, bind(whole), first, last)


def _cut(node: exp.Expr, inner: types.Typed, first: exp.Expr | None, last: exp.Expr | None) -> types.Typed:
    """Return ``list[first:last]``, whose length has a public bound where both places count from one end."""
    coercion.require_kind(inner, ("LIST",), "only a list is cut by [first:last]")
    start, end = _read_place(first, 1, node), _read_place(last, -1, node)
    most = length_of(inner)
    if end >= 0 and start >= 0:
        most = min(most, max(0, end - max(start, 1) + 1))
    elif end < 0 and start < 0:
        most = min(most, max(0, end - start + 1))
    places = [exp.Literal.number(place) for place in (start, end)]
    made = types.make_call("array_slice", inner.node, *places)
    return replace(inner, node=made, length=most, unchecked=False, plain=None, nullable=True)


def _read_place(place: exp.Expr | None, default: int, node: exp.Expr) -> int:
    if place is None:
        return default
    digits = place.this if isinstance(place, exp.Neg) else place
    if not isinstance(digits, exp.Literal) or digits.is_string or not digits.name.isdigit():
        raise privacy_error(place, "the ends of a cut must be literal.", "write x[1:5].", around=node)
    if int(digits.name) > coercion.MAX_LITERAL_COUNT:
        raise bind_error(place, f"this is at most {coercion.MAX_LITERAL_COUNT}.", around=node)
    return -int(digits.name) if isinstance(place, exp.Neg) else int(digits.name)


def bind_split(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """Bind ``string_split(text, mark)``: at most one part more than the text has characters."""
    mark = node.args["expression"]
    if not isinstance(mark, exp.Literal) or not mark.is_string:
        raise privacy_error(mark, "string_split needs a literal here.", "write string_split(x, ',').")
    text = coercion.require_kind(bind(node.this), ("TEXT",), "string_split needs a text here")
    if text.type.kind == "NULL":
        text = types.Typed(types.make_cast(text.node, types.TEXT), types.TEXT, length=0)
    text = hold(text)
    most = length_of(text) // max(1, len(mark.name)) + 1
    count_kept("string_split", length_of(text) + most * _OVERHEAD, node)
    kind = types.Type.parse("VARCHAR[]")
    made = types.make_call("string_split", text.node, mark.copy())
    return replace(types.Typed.made_of(made, kind, (text,), nullable=True), length=most)
