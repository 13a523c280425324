"""What conditions on rows say of the public groups that rows are in, without looking at a row."""

from __future__ import annotations

from collections.abc import Container, Mapping

from sqlglot import exp

from dpsql.sql.parse.dialect import expression_of, to_sql
from dpsql.sql.relations.relation import column

Place = tuple[str, str]
"""A column of the exact query: its table's alias there, and its name."""

_COMPARED = (exp.GT, exp.GTE, exp.LT, exp.LTE)


def with_keys(node: exp.Expr, held: Mapping[str, Place]) -> exp.Expr:
    """The condition with the keys that it holds, spelled as they are in the exact query, as columns of their own."""
    holder = exp.Paren(this=node.copy())
    for found in list(holder.this.walk()) if held else []:
        place = held.get(to_sql(found))
        if place is not None:
            found.replace(column(place[1], place[0]))
    inner: exp.Expr = holder.this
    return inner


def by_days(node: exp.Expr, daily: Container[Place]) -> list[exp.Expr]:
    """The condition as conditions on days, where it compares a time whose day alone is known with something that names no
    column: some time of a day is before another time if the day's first is, and after it if the day's last is.

    What says nothing of days stays as it is, and so does every other condition.
    """
    bare = _unwrapped(node)
    if isinstance(bare, exp.Between) and _is_daily(bare.this, daily):
        low, high = bare.args["low"], bare.args["high"]
        parts: list[exp.Expr] = [
            exp.GTE(this=bare.this, expression=low),
            exp.LTE(this=bare.this, expression=high),
        ]
    elif isinstance(bare, exp.EQ) and any(_is_daily(side, daily) for side in (bare.this, bare.expression)):
        parts = [kind(this=bare.this, expression=bare.expression) for kind in (exp.GTE, exp.LTE)]
    else:
        parts = [bare]
    return [_on_a_day(part, daily) for part in parts]


def _on_a_day(node: exp.Expr, daily: Container[Place]) -> exp.Expr:
    if not isinstance(node, _COMPARED):
        return node
    sides = [node.this, node.expression]
    ours = [_is_daily(side, daily) for side in sides]
    other = sides[ours.index(False)] if sum(ours) == 1 else None
    if other is None or other.find(exp.Column) is not None:
        return node
    place, before = sides[ours.index(True)], ours[0] == isinstance(node, exp.LT | exp.LTE)
    day = f"CAST({to_sql(place)} AS DATE)"
    if before:  # the first time of the day
        sign = "<" if isinstance(node, exp.LT | exp.GT) else "<="
        return expression_of(f"CAST({day} AS TIMESTAMP) {sign} ({to_sql(other)})")
    # Where the bound is the day's last microsecond and is not meant, the day stays.
    return expression_of(f"CAST({day} + CAST(1 AS INTEGER) AS TIMESTAMP) > ({to_sql(other)})")


def _is_daily(node: exp.Expr, daily: Container[Place]) -> bool:
    node = _unwrapped(node)
    return isinstance(node, exp.Column) and (node.table, node.name) in daily


def _unwrapped(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node
