"""The types of values that leave an exact query, and casts back to their own types above it.

Values leave through Arrow, are read in Python, and enter another DuckDB. Arrow has no integers of 128 bits: DuckDB sends
decimals of 38 digits, so one person's greater value would end a statement with an error. Here such integers leave as
text and are cast back above the private part. If only their order counts, they are clamped to 38 digits. Lists and
structs of them are treated likewise. Floats leave with one zero.

The second lock proves of each text that no other value leaves it.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.values.coercion import refuse_moment
from dpsql.binding.values.fixed_point import unify_zeros
from dpsql.binding.values.sql_types import HUGEINT, TEXT, Bounds, Type, Typed, decimal, make_cast, read_type
from dpsql.language.dialect import is_not_null, to_sql

MAX_DECIMAL = 10**38 - 1
"""The greatest integer of 38 digits."""
_CLAMPED = Bounds(Fraction(-MAX_DECIMAL), Fraction(MAX_DECIMAL))
_WIDE = ("HUGEINT", "UHUGEINT")


def find_exit_type(kind: Type, wide: Type = TEXT) -> Type:
    """Return the type in which a value leaves: its own, with ``wide`` in place of 128-bit integers.

    >>> find_exit_type(Type.parse("STRUCT(a HUGEINT, b DATE)[]")).sql
    'STRUCT("a" VARCHAR, "b" DATE)[]'
    """
    if kind.sql in _WIDE:
        return wide
    if kind.element is not None:
        element = find_exit_type(kind.element, wide)
        return kind if element == kind.element else Type.parse(f"{element.sql}[]")
    fields = [(name, find_exit_type(inner, wide)) for name, inner in kind.fields]
    if fields == list(kind.fields):
        return kind
    named = ", ".join(f"{to_sql(exp.to_identifier(name, quoted=True))} {inner.sql}" for name, inner in fields)
    return Type.parse(f"STRUCT({named})")


def leave(typed: Typed) -> Typed:
    """Return a value as it leaves; the mapping is injective.

    Raises:
        BindError: it has a moment, which can't be shown without a time zone.
    """
    refuse_moment(typed)
    made = unify_zeros(typed)
    kind = find_exit_type(typed.type)
    if kind == typed.type:
        return made
    if typed.type == HUGEINT and typed.span is not None and _CLAMPED.holds(typed.span):
        return hold_to_38_digits(made)  # nothing changes, and the second lock sees the range
    node = make_cast(made.node, kind)
    return Typed(node, kind, None, typed.constant, nullable=typed.nullable, place=typed.place)


def come_back(node: exp.Expr, kind: Type, left: str) -> exp.Expr:
    """Return a released value in its own type, above the private part.

    Args:
        node: the column of the release.
        left: the SQL type in which the value left.
    """
    return node if left == kind.sql or find_exit_type(kind) == kind else make_cast(node, kind)


def hold_to_38_digits(typed: Typed) -> Typed:
    """Return a value that leaves as a number: a 128-bit integer is clamped to 38 digits.

    A list or a struct with a greater integer becomes NULL.
    """
    if find_exit_type(typed.type) == typed.type:
        return typed
    if typed.type.sql not in _WIDE:
        kind = find_exit_type(typed.type, decimal(38, 0))
        node = make_cast(typed.node, kind, trying=True)
        return replace(typed, node=node, type=kind, nullable=True, plain=None)
    value, most = typed.node.copy(), exp.Literal.number(MAX_DECIMAL)
    if typed.type == HUGEINT:
        made = _choose(exp.Least, _choose(exp.Greatest, value, exp.Neg(this=most)), most.copy())
    else:
        ends = [exp.Cast(this=end, to=read_type("UHUGEINT")) for end in (most, exp.Literal.number(0))]
        clamped = _choose(exp.Greatest, _choose(exp.Least, value, ends[0]), ends[1])
        made = make_cast(clamped, HUGEINT, trying=True)
    node = exp.Case(ifs=[exp.If(this=is_not_null(typed.node), true=made)])
    return replace(typed, node=node, type=HUGEINT, reach=_CLAMPED, plain=None)


def _choose(kind: type[exp.Expr], value: exp.Expr, end: exp.Expr) -> exp.Expr:
    """Return the least or the greatest of a value and an end."""
    return kind(this=value, expressions=[end], ignore_nulls=True)


def clamp_to_38_digits(sql: str) -> str:
    """Return the SQL of an integer other than NULL, clamped to 38 digits."""
    return f"LEAST(GREATEST({sql}, -{MAX_DECIMAL}), {MAX_DECIMAL})"
