"""Values of parameters as SQL literals: data, never text."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Mapping, Sequence
from itertools import pairwise

from sqlglot import exp
from sqlglot.tokens import Token  # type: ignore[attr-defined]

from dpsql.errors import BindError, Error, Span, did_you_mean
from dpsql.language.dialect import find_nodes, mode_clauses, span_of, text_literal
from dpsql.language.parameter_values import StandIn, drop_zone, number_marks, unwrap_value
from dpsql.language.postgres_texts import write_values
from dpsql.language.tokens import MAX_DIGITS, MAX_INTEGER, tokenize

STAND_IN = "stand_in"
"""The key in the ``meta`` of a literal that is no value of the analyst's."""


def put_values(tree: exp.Expr, params: Mapping[str, object], text: str) -> exp.Expr:
    """Replace each ``$name`` by a literal of its value, data and never text; then read intervals and arrays in texts."""
    places = [tree, *(option for clause in mode_clauses(tree) for option in clause.options)]
    marks = [found for place in places for found in find_nodes(place, exp.Placeholder, exp.Parameter)]
    for node in marks:
        name = node.name if isinstance(node, exp.Placeholder) else node.this.name
        span = span_of(node) or _find_parameter(text, name)
        if name not in params:
            hint = did_you_mean(name, params) if params else f"assign {name} first, or pass params."
            if name.isdigit():
                hint = "give a list of values, or write $name."
            raise BindError(f"the parameter ${name} has no value.", span=span, hint=hint)
        value = make_literal(params[name], name, span)
        value.meta["parameter"] = True
        if span:
            value.meta.update(start=span[0], end=span[1] - 1)
        node.replace(value)
        _join_texts(value)
    if marks:
        write_values(find_nodes(tree, exp.Cast, exp.Any, exp.DateBin))
    return _write_out_lists(tree)


def _join_texts(value: exp.Expr) -> None:
    """Replace ``'%' || $1::VARCHAR || '%'`` by one literal, which a pattern must be: SQLAlchemy writes the former."""
    while value.is_string and isinstance(value.parent, exp.Cast | exp.DPipe):
        around = value.parent
        if isinstance(around, exp.Cast):
            if type(around) is not exp.Cast or around.to != _TEXT or around.args.get("format"):
                return
            joined = value
        elif around.left.is_string and around.right.is_string:
            joined = exp.Literal.string(around.left.name + around.right.name)
            joined.meta.update(value.meta)
        else:
            return
        around.replace(joined)
        value = joined


_TEXT = exp.DataType.build("VARCHAR", dialect="duckdb")
_CONSTANTS = (exp.Literal, exp.Boolean, exp.Neg, exp.Cast, exp.Interval, exp.Null)


def _write_out_lists(tree: exp.Expr) -> exp.Expr:
    """Rewrite ``x IN [1, 2]``, ``list_contains([1, 2], x)`` and ``x = ANY([1, 2])`` of constants as ``x IN (1, 2)``.

    As in DuckDB, NULL in the list matters in the last form only, and an empty list contains nothing.
    """
    for node in find_nodes(tree, exp.In, exp.ArrayContains, exp.EQ):
        some = node.expression if isinstance(node, exp.EQ) else None
        if some is not None and not isinstance(some, exp.Any):
            continue
        sought = node.expression if isinstance(node, exp.ArrayContains) else node.this
        held = node.args.get("field") if isinstance(node, exp.In) else (some or node).this
        if held is None and isinstance(node, exp.In) and len(node.expressions) == 1:  # x IN ($list)
            held = node.expressions[0] if node.expressions[0].meta.get("parameter") else None
        held = held.unnest() if isinstance(held, exp.Expr) else None
        if not isinstance(held, exp.Array):
            continue
        items = [item for item in held.expressions if some is not None or not isinstance(item, exp.Null)]
        constants = [item for item in items if isinstance(item, _CONSTANTS) and item.find(exp.Column) is None]
        if len(constants) < len(items):
            continue
        sought = exp.paren(sought.copy()) if isinstance(sought, exp.Binary) else sought.copy()
        if items:
            node.replace(exp.In(this=sought, expressions=[item.copy() for item in items]))
        elif some is not None:
            node.replace(exp.false())
        else:
            known = exp.Not(this=exp.Is(this=sought, expression=exp.Null()))
            node.replace(exp.Case(ifs=[exp.If(this=known, true=exp.false())]))
    return tree


def _find_parameter(text: str, name: str) -> Span | None:
    at = text.find("$" + name)
    return None if at < 0 else (at, at + len(name) + 1)


MAX_LIST_PARAMETER = 10_000
"""The most values of a list parameter."""


def make_literal(value: object, name: str = "", span: Span | None = None) -> exp.Expr:
    """Return a SQL literal of a Python value; BindError for NaN, infinities, long numbers and other types."""
    if isinstance(value, StandIn):
        made = make_literal(value.value, name, span)
        for node in made.walk():
            node.meta[STAND_IN] = True
        return made
    value = unwrap_value(value)
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, str):
        return text_literal(value, name, span)
    if isinstance(value, datetime.datetime):
        try:
            local = drop_zone(value)
            offset = "" if value.utcoffset() is None else "+00"  # a moment, which is compared as one
            return exp.cast(exp.Literal.string(local.isoformat(" ") + offset), "TIMESTAMP")
        except OverflowError:
            what = f"${name} holds a moment outside the years 1 to 9999 of UTC."
            raise BindError(what, span=span) from None
    if isinstance(value, datetime.date):
        return exp.cast(exp.Literal.string(value.isoformat()), "DATE")
    if isinstance(value, datetime.time) and value.tzinfo is None:
        return exp.cast(exp.Literal.string(value.isoformat()), "TIME")
    if isinstance(value, bytes):
        written = "".join(f"\\x{byte:02X}" for byte in value)
        return exp.cast(exp.Literal.string(written), "BLOB", dialect="duckdb")
    if isinstance(value, uuid.UUID):
        return exp.cast(exp.Literal.string(str(value)), "UUID")
    if isinstance(value, datetime.timedelta):
        return _make_interval(value, name, span)
    if isinstance(value, list) and not any(isinstance(held, list) for held in value):
        if len(value) > MAX_LIST_PARAMETER:
            what = f"${name} holds {len(value):,} values; the limit is {MAX_LIST_PARAMETER:,}."
            hint = "put them in a public table, or keep a result, and join it."
            raise BindError(what, span=span, hint=hint)
        return exp.Array(expressions=[make_literal(held, name, span) for held in value])
    if isinstance(value, int) and abs(value) >= MAX_INTEGER:
        what = f"${name} holds an integer that does not fit 128 bits."
        raise BindError(what, span=span, hint="give a float.")
    numeric = isinstance(value, int | float | decimal.Decimal)
    signalling = isinstance(value, decimal.Decimal) and value.is_snan()  # isfinite raises an error for it
    if isinstance(value, int | float | decimal.Decimal) and not signalling and math.isfinite(value):
        size = value.copy_abs() if isinstance(value, decimal.Decimal) else abs(value)  # abs rounds a Decimal
        written = repr(size) if isinstance(value, float) else str(size)
        if len(written) > MAX_DIGITS:
            what = f"${name} holds a number of {len(written):,} characters; the limit is {MAX_DIGITS}."
            raise BindError(what, span=span, hint="leave digits out.")
        number = exp.Literal.number(written)
        return exp.Neg(this=number) if value < 0 else number
    what = f"${name} holds {'no finite number' if numeric else type(value).__name__}."
    hint = "parameters are numbers, strings, bytes, booleans, dates, times, intervals, UUIDs, None or lists of these."
    raise BindError(what, span=span, hint=hint)


def _make_interval(value: datetime.timedelta, name: str, span: Span | None) -> exp.Expr:
    """Return a literal of an interval, in days if it is whole days."""
    seconds = value.days * 86_400 + value.seconds
    if value.microseconds or getattr(value, "nanoseconds", 0):
        what = f"${name} holds an interval with parts of a second."
        raise BindError(what, span=span, hint="give whole seconds.")
    size, unit = (abs(seconds) // 86_400, "DAY") if seconds % 86_400 == 0 else (abs(seconds), "SECOND")
    made = exp.Interval(this=exp.Literal.string(str(size)), unit=exp.var(unit))
    return exp.Neg(this=made) if seconds < 0 else made


def list_parameters_named(tokens: Sequence[Token]) -> list[str]:
    """Return the names after a ``$``, without duplicates, in order."""
    pairs = pairwise(tokens)
    names = (after.text for sign, after in pairs if sign.text == "$" and after.start == sign.end + 1)
    return list(dict.fromkeys(names))


def list_parameter_names(text: str) -> tuple[str, ...]:
    """Return the names of a cell's parameters, without duplicates, in order; ``?`` marks are named ``1``, ``2``, ...

    Raises:
        ParseError: a quote or a comment does not end, or the text is too long.

    >>> list_parameter_names("SELECT $city, '$x'"), list_parameter_names("SELECT ?, ?")
    (('city',), ('1', '2'))
    """
    try:
        return tuple(list_parameters_named(tokenize(number_marks(text)[0])))
    except Error as error:
        raise error.located(text) from None
