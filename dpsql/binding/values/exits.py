"""The way out of the engine: the form in which every value leaves an exact query, and the way back above it.

Values leave through Arrow, are read in Python, and go back into another DuckDB. Integers of 128 bits have no type there: they
come as decimals of 38 digits, which hold fewer values, so that one person's value could end a statement with an error. Here they
leave as text, and are cast back above the private part; where only their order counts, they are held to 38 digits. Lists and
structs of them leave likewise. Numbers with two zeros leave with one.

The second lock proves of each text that no other value leaves it.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.values.fixed_point import unify_zeros
from dpsql.binding.values.sql_types import HUGEINT, TEXT, Bounds, Type, Typed, decimal, make_cast
from dpsql.language.dialect import expression_of, to_sql

MAX_DECIMAL = 10**38 - 1
"""The greatest integer that a decimal holds."""
_HELD = Bounds(Fraction(-MAX_DECIMAL), Fraction(MAX_DECIMAL))
_WIDE = ("HUGEINT", "UHUGEINT")


def find_exit_type(kind: Type, wide: Type = TEXT) -> Type:
    """Return the type in which a value of a type leaves: the type itself, or one with another in place of 128-bit integers.

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
    """Return a value in the form in which it leaves. Equal values have equal forms, and others have others."""
    made = unify_zeros(typed)
    kind = find_exit_type(typed.type)
    if kind == typed.type:
        return made
    if typed.type == HUGEINT and typed.span is not None and _HELD.holds(typed.span):
        return hold_to_38_digits(made)  # nothing is changed, and the second lock sees it
    return Typed(
        make_cast(made.node, kind), kind, None, typed.constant, nullable=typed.nullable, place=typed.place
    )


def come_back(node: exp.Expr, kind: Type, left: str) -> exp.Expr:
    """Return a released value in its own type, above the private part.

    Args:
        node: the column of the release.
        kind: the value's own type.
        left: the SQL type in which it left.
    """
    return node if left == kind.sql or find_exit_type(kind) == kind else make_cast(node, kind)


def hold_to_38_digits(typed: Typed) -> Typed:
    """Return a value that leaves as a number: a 128-bit integer of more than 38 digits becomes the nearest of 38 digits.

    A list or a struct with such an integer is missing.
    """
    if find_exit_type(typed.type) == typed.type:
        return typed
    if typed.type.sql not in _WIDE:
        kind = find_exit_type(typed.type, decimal(38, 0))
        return replace(
            typed, node=make_cast(typed.node, kind, trying=True), type=kind, nullable=True, plain=None
        )
    sql = to_sql(typed.node)
    if typed.type == HUGEINT:
        made = clamp_to_38_digits(sql)
    else:
        made = f"TRY_CAST(GREATEST(LEAST({sql}, CAST({MAX_DECIMAL} AS UHUGEINT)), CAST(0 AS UHUGEINT)) AS HUGEINT)"
    node = expression_of(f"CASE WHEN NOT {sql} IS NULL THEN {made} END")
    return replace(typed, node=node, type=HUGEINT, reach=_HELD, plain=None)


def clamp_to_38_digits(sql: str) -> str:
    """Return the SQL of the integer of 38 digits that is nearest to an integer that is there."""
    return f"LEAST(GREATEST({sql}, -{MAX_DECIMAL}), {MAX_DECIMAL})"
