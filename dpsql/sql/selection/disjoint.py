"""Statistics without common rows: no row, for any candidate, satisfies both of their conditions.

Recognised: ``x < c.v`` and ``x >= c.v`` (comparisons with one public side), ``x < 3`` and ``x > 5`` (with integers that
are exact in any numeric type), ``g = 'a'`` and ``g = 'b'`` (texts, compared unchanged), and a condition and its
negation. Other conditions are assumed to have common rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from sqlglot import exp

from dpsql.sql.parse.dialect import to_sql
from dpsql.sql.relations.fan_out import split_conjuncts
from dpsql.sql.selection.candidates import ROWS, compare_sides
from dpsql.sql.selection.score import RowNames

_EXACT = 1 << 24
"""Integers below this are exact in every numeric type."""

_SIDES = {"<": {-1}, "<=": {-1, 0}, "=": {0}, ">=": {0, 1}, ">": {1}, "<>": {-1, 1}}
"""The possible positions of x, by operator: below the other side (-1), at it (0) or above it (1)."""

_Comparison = tuple[str, str, str, int | None, bool]
"""The SQL of x, the operator, the SQL of the other side, its integer value if any, and whether it is a text."""


def find_apart(conditions: Sequence[exp.Expr | None], names: RowNames) -> tuple[tuple[int, int], ...]:
    """Return the pairs of conditions, by index, that no row satisfies both of."""
    found = [list(_facts(condition, names)) for condition in conditions]
    negated = [
        {to_sql(part.this.unnest()) for part in _parts(c) if isinstance(part, exp.Not)} for c in conditions
    ]
    plain = [{to_sql(part) for part in _parts(c)} for c in conditions]
    return tuple(
        (i, j)
        for i, j in combinations(range(len(conditions)), 2)
        if negated[i] & plain[j]
        or plain[i] & negated[j]
        or any(_exclude(one, other) for one in found[i] for other in found[j])
    )


def _parts(condition: exp.Expr | None) -> Iterable[exp.Expr]:
    for part in split_conjuncts(condition):
        inner = part.unnest()
        if isinstance(inner, exp.Between):
            yield exp.GTE(this=inner.this.copy(), expression=inner.args["low"].copy())
            yield exp.LTE(this=inner.this.copy(), expression=inner.args["high"].copy())
        else:
            yield inner


def _facts(condition: exp.Expr | None, names: RowNames) -> Iterable[_Comparison]:
    for part in _parts(condition):
        compared = compare_sides(part)
        if compared is None:
            continue
        x, op, bound = compared
        number = int(bound.name) if isinstance(bound, exp.Literal) and bound.is_int else None
        if number is not None and number >= _EXACT:
            number = None
        column = x.unnest()
        kind = (
            names.types.get(column.name) if isinstance(column, exp.Column) and column.table == ROWS else None
        )
        text = (
            isinstance(bound, exp.Literal) and bound.is_string and kind is not None and kind.sql == "VARCHAR"
        )
        yield to_sql(x), op, to_sql(bound), number, text


def _exclude(one: _Comparison, other: _Comparison) -> bool:
    """Return whether no x satisfies both comparisons."""
    (x, op, bound, number, text), (y, op2, bound2, number2, text2) = one, other
    if x != y:
        return False
    if bound == bound2:
        return not _SIDES[op] & _SIDES[op2]
    if text and text2:
        return op == op2 == "="
    if number is None or number2 is None:
        return False
    if number > number2:
        op, op2 = op2, op
    # x is not above the lesser number, and not below the greater one
    return op in ("<", "<=", "=") and op2 in (">", ">=", "=")
