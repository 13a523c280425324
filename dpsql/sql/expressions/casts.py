"""Literals and casts: constants are read at plan time, casts that may fail give NULL.

What is inside of columns: fields of structs, elements of lists; and types that are changed on the way out.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import did_you_mean
from dpsql.sql.expressions import lengths
from dpsql.sql.expressions.coercion import (
    Bind,
    fits,
    make_call,
    make_cast,
    make_try,
    parenthesise,
    read_moment,
    require_kind,
)
from dpsql.sql.expressions.fixed_point import moment_of
from dpsql.sql.expressions.functions import MAX_LITERAL_COUNT
from dpsql.sql.expressions.types import BIGINT, DOUBLE, INTEGER, TEXT, TIMESTAMP, Bounds, Type, Typed, decimal
from dpsql.sql.parse.dialect import bind_error, privacy_error

_SIMPLE = ("BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE")
_SOURCES: dict[str, tuple[str, ...]] = {
    "INTEGER": (*_SIMPLE, "TEXT"), "DECIMAL": (*_SIMPLE, "TEXT"), "DOUBLE": (*_SIMPLE, "TEXT"),
    "BOOLEAN": (*_SIMPLE, "TEXT"),
    "TEXT": (*_SIMPLE, "TEXT", "DATE", "TIME", "TIMESTAMP", "INTERVAL", "UUID"),
    "DATE": ("DATE", "TIMESTAMP", "TEXT"), "TIMESTAMP": ("DATE", "TIMESTAMP", "TEXT"),
    "TIME": ("TIME", "TIMESTAMP", "TEXT"), "UUID": ("UUID", "TEXT"), "INTERVAL": ("INTERVAL",),
}  # fmt: skip
"""Kinds that may be cast to each kind. Text to INTERVAL is left out: no reader of ours agrees with DuckDB's."""


def bind_literal(node: exp.Expr) -> Typed:
    """Return a number or a text, with DuckDB's own type of it.

    Raises:
        BindError: it does not fit 64 bits, or is not finite.
    """
    if node.args.get("is_string"):
        return bind_text(node.name, node)
    written = node.name
    if re.fullmatch(r"[0-9]+", written):
        value = int(written)
        if value >= 2**63:
            raise bind_error(node, "this number does not fit 64 bits.")
        point = Bounds.point(value)
        return Typed(node.copy(), INTEGER if value < 2**31 else BIGINT, point, True, None, point, False)
    if not re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", written):
        raise bind_error(node, "this is not a number that SQL knows.")
    before, _, after = written.partition(".")
    if "e" not in written.lower() and len(before) + len(after) <= 38:
        width = len(before) + len(after)
        point = Bounds.point(Fraction(written + ("0" if not after else "")))
        return Typed(node.copy(), decimal(max(width, 1), len(after)), point, True, nullable=False)
    near = float(written)
    if not abs(near) < float("inf"):
        raise bind_error(node, "this number is too large.")
    return Typed(make_cast(node.copy(), DOUBLE), DOUBLE, Bounds.point(Fraction(near)), True, nullable=False)


def bind_text(value: str, node: exp.Expr) -> Typed:
    """Bind a text constant, which has no NUL in it."""
    if "\x00" in value:
        raise bind_error(node, "a text has no NUL in it.")
    return Typed(exp.Literal.string(value), TEXT, None, True, nullable=False, length=len(value))


def bind_cast(node: exp.Expr, bind: Bind) -> Typed:
    """CAST, TRY_CAST and ``::``."""
    inner = bind(node.this)
    written = node.args["to"].sql(dialect="duckdb")
    kind = Type.parse(written)
    if kind.kind == "OTHER" or kind.sql.startswith("TIMESTAMP_") or written.upper().startswith("ENUM"):
        raise privacy_error(
            node,
            f"a cast to {written} is not known here.",
            "cast to BIGINT, DOUBLE, DECIMAL(18,2), VARCHAR, BOOLEAN, DATE, TIME, TIMESTAMP or UUID.",
        )
    if inner.type.kind == "NULL":
        return Typed(make_cast(exp.Null(), kind), kind, None, True, length=0)
    if inner.type.kind not in _SOURCES.get(kind.kind, ()):
        raise bind_error(node, f"there is no cast from {inner.type.sql} to {kind.sql}.")
    if isinstance(inner.node, exp.Literal) and inner.type.kind == "TEXT":
        return read_constant(inner.node, kind, node)
    return convert(inner, kind)


def convert(inner: Typed, kind: Type) -> Typed:
    """Return a cast between kinds that may be cast."""
    if inner.type == kind:
        return inner
    if kind.kind == "TEXT":
        return Typed(
            write_as_text(inner),
            TEXT,
            None,
            inner.constant,
            nullable=inner.nullable,
            length=lengths.length_of(inner),
        )
    bounds, reach = inner.bounds, inner.reach
    if inner.type.kind == "BOOLEAN" and kind.numeric:
        bounds = reach = Bounds(Fraction(0), Fraction(1))
    elif kind.kind == "INTEGER":
        bounds = None if bounds is None else bounds.rounded()
        reach = reach if inner.type.kind == "INTEGER" else None
    elif kind.kind == "DECIMAL" and bounds is not None:
        bounds = _coarse(bounds, 10 ** kind.digits[1])
    elif bounds is not None and kind.kind in _DAYS and inner.type.kind in _DAYS:
        bounds = bounds if kind.kind == "TIMESTAMP" else _whole_days(bounds)
    elif not kind.numeric:
        bounds = None
    if kind.kind != "INTEGER":
        reach = None
    safe = inner.type.kind == "BOOLEAN" and kind.kind in ("INTEGER", "DOUBLE")
    safe = safe or (inner.type.numeric and kind.numeric and fits(inner, kind))
    if reach is not None and kind.reach is not None and not kind.reach.holds(reach):
        reach = None
    made = make_cast(inner.node, kind, not safe)
    if kind.kind == "TIME":  # of an infinite timestamp: an error that the cast alone does not catch
        made = make_try(made)
    return Typed(made, kind, bounds, inner.constant, None, reach, inner.nullable or not safe)


_DAYS = ("DATE", "TIMESTAMP")


def _whole_days(bounds: Bounds) -> Bounds:
    """Round seconds down to days, as a timestamp's date does."""
    ends = (None if end is None else end // 86_400 * Fraction(86_400) for end in (bounds.low, bounds.high))
    return Bounds(*ends)


def _coarse(bounds: Bounds, steps: int) -> Bounds:
    scaled = (bounds * Bounds.point(steps)).rounded()
    return scaled * Bounds.point(Fraction(1, steps))


_RANGES = {"TIMESTAMP": ("-infinity", "infinity"), "TIME": ("00:00:00", "24:00:00")}
"""Files can hold times and timestamps out of these ranges; to show one ends the engine's process."""


def write_as_text(inner: Typed) -> exp.Expr:
    """Return what DuckDB writes for a value."""
    if inner.type == TEXT:
        return inner.node
    if inner.type.kind not in _RANGES or inner.constant:
        return make_cast(inner.node, TEXT)
    # Inside the cast, for the engine may cast a dictionary's values before it looks at which are wanted.
    low, high = (make_cast(exp.Literal.string(end), inner.type) for end in _RANGES[inner.type.kind])
    sane = exp.Between(this=parenthesise(inner.node), low=low, high=high)
    return make_cast(exp.Case(ifs=[exp.If(this=sane, true=inner.node.copy())]), TEXT)


_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def read_constant(place: exp.Literal, kind: Type, node: exp.Expr) -> Typed:
    """Read a text constant as a value of a type: one that can't be read would fail on each row that comes to it."""
    written = place.name.strip()
    if kind.kind == "TEXT":
        return bind_text(place.name, node)
    if kind.kind in ("DATE", "TIME", "TIMESTAMP", "UUID"):
        made = read_moment(place, kind, node)
        known = moment_of(made)
        bounds = None if known is None else Bounds.point(Fraction(known[1]))
        return Typed(made, kind, bounds, True, nullable=False)
    if kind.kind == "BOOLEAN":
        if written.lower() not in ("true", "false", "t", "f", "1", "0", "yes", "no", "y", "n"):
            raise bind_error(node, f"'{place.name}' is not a BOOLEAN.", "write TRUE or FALSE.")
        return Typed(make_cast(place.copy(), kind, True), kind, None, True)
    if (
        kind.numeric
        and _NUMBER.fullmatch(written)
        and len(written) <= 60
        and abs(float(written)) < float("inf")
    ):
        near = Fraction(float(written)) if kind.kind == "DOUBLE" else Fraction(written.rstrip("."))
        bounds = convert(Typed(place, decimal(38, 19), Bounds.point(near)), kind).bounds
        if kind.reach is None or (bounds is not None and kind.reach.holds(bounds)):
            return Typed(make_cast(place.copy(), kind, True), kind, bounds, True, nullable=True)
    raise bind_error(node, f"'{place.name}' is no {kind.sql}.")


def take_value(typed: Typed, node: exp.Expr) -> Typed:
    """Return a value that is read from a column, a list or a struct, in a type that expressions take."""
    kind = typed.type
    if kind.kind == "OTHER":
        raise privacy_error(
            node, f"{node.sql(dialect='duckdb')} is of type {kind.sql}, whose values can't be used."
        )
    made = typed.node.copy()
    if kind.sql == "ENUM":
        return lengths.mark_length(Typed(make_cast(made, TEXT), TEXT, None, typed.constant, typed.values))
    if (
        kind.kind == "TIMESTAMP" and kind.sql != "TIMESTAMP"
    ):  # to microseconds; far ones of another unit don't fit
        return Typed(make_cast(made, TIMESTAMP, trying=True), TIMESTAMP, typed.bounds, typed.constant)
    return lengths.mark_length(replace(typed, node=made))


def take_field(typed: Typed, name: str, node: exp.Expr) -> Typed:
    """Return a field of a struct."""
    for known, kind in typed.type.fields:
        if known.lower() == name.lower():
            made = make_call("struct_extract", typed.node.copy(), exp.Literal.string(known))
            return take_value(Typed(made, kind), node)
    hint = did_you_mean(name, [known for known, _ in typed.type.fields])
    raise bind_error(node, f"the struct has no field {name}.", hint)


def bind_field(node: exp.Dot, bind: Bind) -> Typed:
    """Bind ``struct.field``."""
    inner = bind(node.this)
    require_kind(inner, node.this, ("STRUCT",), "only a struct has fields")
    if not isinstance(node.expression, exp.Identifier) or inner.type.kind == "NULL":
        raise bind_error(node, "this is no field.")
    return take_field(inner, node.expression.name, node)


def bind_element(node: exp.Bracket, bind: Bind) -> Typed:
    """``list[3]``, where a place without an element gives NULL; ``struct['field']``."""
    inner, keys = bind(node.this), node.expressions
    key = keys[0] if len(keys) == 1 else None
    negative = isinstance(key, exp.Neg) and isinstance(key.this, exp.Literal)
    if inner.type.kind == "STRUCT" and isinstance(key, exp.Literal) and key.is_string:
        return take_field(inner, key.name, node)
    require_kind(inner, node.this, ("LIST",), "only lists and structs have elements")
    if key is None or not (isinstance(key, exp.Literal) or negative) or inner.type.element is None:
        raise privacy_error(node, "an element's place must be a literal.", "write list[1].")
    digits = (key.this if negative else key).name
    if not digits.isdigit() or int(digits) > MAX_LITERAL_COUNT or (not negative and key.is_string):
        raise bind_error(node, "an element's place is a whole number.", "write list[1].")
    # sqlglot counts from zero, one less than DuckDB.
    place = (-int(digits) if negative else int(digits)) + 1
    made = make_call("list_extract", inner.node, exp.Literal.number(place))
    return take_value(Typed(made, inner.type.element), node)
