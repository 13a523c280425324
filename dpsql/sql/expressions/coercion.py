"""Coercion of types: values that may meet, the type that they get, and whether that can fail.

DuckDB casts implicitly, row by row: text that meets a number is read as one, and raises on the first row that is none.
Here only types of one family meet. The rules for the result are DuckDB's own, so that values and types come out the
same; where its implicit casts may overflow, a TRY_CAST stands in their place.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce

from sqlglot import exp

from dpsql.errors import BindError
from dpsql.sql.expressions.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    NULL,
    TIME,
    TIMESTAMP,
    UUID,
    Bounds,
    Type,
    Typed,
    decimal,
)
from dpsql.sql.parse.dialect import bind_error, span_of

Bind = Callable[[exp.Expr], Typed]
"""Makes a part of an expression total, in the scope at hand."""
ORDERED_KINDS = (
    "INTEGER",
    "DECIMAL",
    "DOUBLE",
    "TEXT",
    "DATE",
    "TIME",
    "TIMESTAMP",
    "BOOLEAN",
    "INTERVAL",
    "UUID",
)
"""Kinds that can be compared, and written as text."""
PlacedValue = tuple[Typed, exp.Expr]
"""A bound value, and the analyst's node that it came from (for carets)."""


# -- building nodes ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _data_type(sql: str) -> exp.DataType:
    return exp.DataType.build(sql, dialect="duckdb")


def make_cast(node: exp.Expr, kind: Type, trying: bool = False) -> exp.Expr:
    """Return a cast that the types prove total, or one that gives NULL where it fails."""
    made = exp.TryCast if trying else exp.Cast
    return made(this=node, to=_data_type(kind.sql).copy())


def make_try(node: exp.Expr) -> exp.Expr:
    """TRY(...): NULL where the engine would raise."""
    return node if isinstance(node, exp.Try) else exp.Try(this=node)


_ATOMS = (
    exp.Column,
    exp.Literal,
    exp.Paren,
    exp.Func,
    exp.Cast,
    exp.Boolean,
    exp.Null,
    exp.Bracket,
    exp.Case,
)


def parenthesise(node: exp.Expr) -> exp.Expr:
    """Return the node in parentheses unless it may stand beside an operator."""
    connector = isinstance(node, exp.Binary)  # AND, OR and some operators are functions to sqlglot
    return node if isinstance(node, _ATOMS) and not connector else exp.Paren(this=node)


def make_call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """Return a call by DuckDB's own name, in its order of arguments: nothing is left to be translated."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def cast_to_double(typed: Typed) -> exp.Expr:
    """Return the value's node as a DOUBLE."""
    return typed.node if typed.type.sql == "DOUBLE" else make_cast(typed.node, DOUBLE)


def refuse_rest(node: exp.Expr, *known: str) -> None:
    """Raise BindError when a node has parts that its handler does not look at.

    A part that is not looked at would be dropped in silence, and the statement would mean something else.
    """
    for key, value in node.args.items():
        if key not in known and value is not None and value is not False and value != []:
            raise bind_error(node, f"{key.replace('_', ' ')} is not known here.")


# -- families ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommonType:
    """The nodes, brought to the common type where DuckDB's implicit cast might fail; that type, as ours and as the
    analyst's is in DuckDB; and whether no cast can fail (else values that don't fit are missing).
    """

    nodes: list[exp.Expr]
    type: Type
    plain: Type
    safe: bool = True


def unify(given: Sequence[PlacedValue], what: str) -> tuple[list[exp.Expr], Type]:
    """Return the nodes brought to one type explicitly, and that type; see :func:`meet`.

    Raises:
        BindError: types that would only meet by reading text as something else.
    """
    met = meet(given, what)
    if met.type.kind == "NULL":
        return met.nodes, met.type
    return [
        make_cast(node, met.type)
        if typed.type.numeric and typed.type != met.type and fits(typed, met.type)
        else node
        for node, (typed, _) in zip(met.nodes, given, strict=True)
    ], met.type


def meet(given: Sequence[PlacedValue], what: str, compared: bool = False) -> CommonType:
    """Bring values of one family together.

    Decimals that are compared keep all their digits after the point, where others give room to those before.

    Raises:
        BindError: types that would only meet by reading text as something else.
    """
    nodes = [typed.node for typed, _ in given]
    known = [(typed, place) for typed, place in given if typed.type.kind != "NULL"]
    kinds = {typed.type.kind for typed, _ in known}
    if not known:
        return CommonType(nodes, NULL, NULL)
    if kinds <= {"INTEGER", "DECIMAL", "DOUBLE"}:
        values = [typed for typed, _ in known]
        if _unclear(values):
            raise bind_error(
                given[0][1],
                f"{what} meets UHUGEINT with signed integers, and no type holds both.",
                "write TRY_CAST(... AS HUGEINT).",
                around=given[-1][1],
            )
        kind, plain = find_common_number(values), find_common_number(values, shown=True)
        if compared and kind.kind == "DECIMAL":
            scale = max(typed.type.digits[1] for typed in values)
            kind = kind if kind.digits[1] == scale else decimal(38, scale)
        safe = all(fits(typed, kind) for typed in values)
        nodes = [
            typed.node
            if typed.type.kind == "NULL" or fits(typed, kind)
            else make_cast(typed.node, kind, trying=True)
            for typed, _ in given
        ]
        return CommonType(nodes, kind, plain, safe)
    moments = kinds & {"DATE", "TIME", "TIMESTAMP", "UUID"}
    if moments and kinds <= moments | {"TEXT"} and (len(moments) == 1 or moments == {"DATE", "TIMESTAMP"}):
        wanted = (
            TIMESTAMP if "TIMESTAMP" in moments else {"DATE": DATE, "TIME": TIME, "UUID": UUID}[min(moments)]
        )
        return CommonType([_as(typed, place, wanted, what) for typed, place in given], wanted, wanted)
    first = known[0][0].type
    if len(kinds) == 1 and (first.kind not in ("LIST", "STRUCT") or all(t.type == first for t, _ in known)):
        return CommonType(nodes, first, first)
    raise _mismatch(given, what)


def find_common_number(values: Sequence[Typed], shown: bool = False) -> Type:
    """Return DuckDB's common type of numbers; an integer literal takes the other's type where it fits."""
    fixed = [v.shown if shown else v.type for v in values if not _literal(v)]
    literals = [v for v in values if _literal(v)]
    if not fixed:
        return reduce(_common, [v.type for v in literals])
    kind = reduce(_common, fixed)
    for value in literals:
        if kind.kind != "INTEGER" or not fits(value, kind):
            kind = _common(kind, value.type)
    return kind


def _literal(value: Typed) -> bool:
    return value.type.kind == "INTEGER" and isinstance(value.node, exp.Literal | exp.Neg)


def _unclear(values: Sequence[Typed]) -> bool:
    """Return whether UHUGEINT meets signed integers, for which no type holds both."""
    sqls = {v.type.sql for v in values}
    return "UHUGEINT" in sqls and any(v.type.sql in _SIGNED and not fits(v, _UHUGEINT) for v in values)


def _common(a: Type, b: Type) -> Type:
    """Return the type that DuckDB brings two numbers to."""
    if a == b:
        return a
    if "DOUBLE" in (a.sql, b.sql):
        return DOUBLE
    if "FLOAT" in (a.sql, b.sql):
        return FLOAT
    if "DECIMAL" in (a.kind, b.kind):
        (before, after), (more, further) = a.digits, b.digits
        scale = max(after, further)
        width = max(before, more) + scale
        if width <= 38:
            return decimal(width, scale)
        return decimal(38, scale if "INTEGER" in (a.kind, b.kind) else 38 - max(before, more))
    return _common_integer(a, b)


_SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")
_UHUGEINT = Type("INTEGER", "UHUGEINT")


def _common_integer(a: Type, b: Type) -> Type:
    for family in (_SIGNED, _UNSIGNED):
        if a.sql in family and b.sql in family:
            return a if family.index(a.sql) > family.index(b.sql) else b
    signed, unsigned = (a, b) if a.sql in _SIGNED else (b, a)
    if unsigned.sql == "UHUGEINT":
        return unsigned
    wider = _SIGNED[_UNSIGNED.index(unsigned.sql) + 1]
    return Type("INTEGER", wider if _SIGNED.index(wider) > _SIGNED.index(signed.sql) else signed.sql)


def fits(value: Typed, into: Type) -> bool:
    """Return whether every value of a number casts to another type without an error."""
    kind = value.type
    if kind == into or into.sql == "DOUBLE":
        return True
    if into.sql == "FLOAT":
        return kind.sql not in ("DOUBLE", "UHUGEINT")
    if kind.kind == "DOUBLE":
        return False
    if into.kind == "DECIMAL":
        (before, after), (room, behind) = kind.digits, into.digits
        if kind.kind == "DECIMAL":
            return before <= room and after <= behind
        most = Bounds(Fraction(1 - 10**room), Fraction(10**room - 1))
        return value.span is not None and most.holds(value.span)
    span = value.span
    return kind.kind == "INTEGER" and into.reach is not None and span is not None and into.reach.holds(span)


def _as(typed: Typed, place: exp.Expr, wanted: Type, what: str) -> exp.Expr:
    if typed.type.kind in ("NULL", wanted.kind):
        return typed.node
    if typed.type.kind == "TEXT":
        if not isinstance(typed.node, exp.Literal):
            raise bind_error(
                place, f"{what} meets text with a {wanted.sql}.", f"write TRY_CAST(... AS {wanted.sql})."
            )
        return read_moment(typed.node, wanted, place)
    # A date at the end of the calendar is no timestamp.
    return make_cast(typed.node, wanted, trying=True)


_EXAMPLES = {
    "DATE": "write '2024-03-01'.", "TIMESTAMP": "write '2024-03-01 12:00:00'.", "TIME": "write '12:00:00'.",
    "UUID": "write 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'.",
}  # fmt: skip


def read_moment(text: exp.Expr, wanted: Type, place: exp.Expr) -> exp.Expr:
    """Return a text literal that stands for a date, a time or a UUID, read at plan time: the engine would raise on a bad one.

    Raises:
        BindError: it is none.
    """
    try:
        return make_cast(exp.Literal.string(_READERS[wanted.kind](text.name.strip())), wanted)
    except ValueError:
        hint = _EXAMPLES.get(wanted.kind)
    raise bind_error(place, f"'{text.name}' is no {wanted.sql}.", hint)


def _date(text: str) -> str:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}", text):
        raise ValueError
    return datetime.date(*map(int, text.split("-"))).isoformat()


def _time(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?", text):
        raise ValueError
    return datetime.time.fromisoformat(text.zfill(5) if text[1] != ":" else "0" + text).isoformat()


def _timestamp(text: str) -> str:
    day, _, clock = text.replace("T", " ").partition(" ")
    return f"{_date(day)} {_time(clock) if clock.strip() else '00:00:00'}"


def _uuid(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text):
        raise ValueError
    return str(uuid.UUID(text))


_READERS: dict[str, Callable[[str], str]] = {
    "DATE": _date,
    "TIME": _time,
    "TIMESTAMP": _timestamp,
    "UUID": _uuid,
}


def _mismatch(given: Sequence[PlacedValue], what: str) -> BindError:
    known = [(typed, place) for typed, place in given if typed.type.kind != "NULL"]
    first = known[0][0].type
    other, place = next(((t.type, p) for t, p in known if t.type.kind != first.kind), (first, known[-1][1]))
    both = {first.kind, other.kind}
    if "TEXT" in both and any(t.numeric for t in (first, other)):
        words = [p for t, p in known if t.type.kind == "TEXT"]
        hint = "text and numbers are not compared: write '5' for text, or TRY_CAST(... AS INTEGER)."
        if all(isinstance(p, exp.Literal) for p in words):
            hint = "text and numbers are not compared: write the number without quotes."
    elif "BOOLEAN" in both:
        hint = "compare with TRUE or FALSE, or write CASE WHEN ... THEN 1 ELSE 0 END."
    else:
        hint = "cast one of the two."
    parent = place.parent
    span = span_of(parent) if isinstance(parent, exp.Expr) else None
    return BindError(f"{what} meets {first.sql} with {other.sql}.", span=span or span_of(place), hint=hint)


def make_boolean(node: exp.Expr, parts: Sequence[Typed], nullable: bool | None = None) -> Typed:
    """Return a truth value made of parts."""
    missing = any(part.nullable for part in parts) if nullable is None else nullable
    return Typed(node, BOOLEAN, None, all(part.constant for part in parts), nullable=missing)


def require_kind(
    typed: Typed, place: exp.Expr, kinds: Sequence[str], message: str, hint: str | None = None
) -> None:
    """Raise BindError unless the value is of one of the kinds, or NULL."""
    if typed.type.kind not in kinds and typed.type.kind != "NULL":
        raise bind_error(place, f"{message}, and this is {typed.type.sql}.", hint)
