"""Rows of nobody: public rows that an outer join keeps though no private row meets them.

Private rows alone decide which these are, and they belong to no unit, so they are left out of what is counted. An answer
in which they would count is refused, for it would be another than SQL's. Two kinds are none of these: what a row of nobody
adds nothing to, as the count of a private column; and public groups that private rows meet as a whole or not at all, where
an empty group counts 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

_STRICT = (
    exp.Paren, exp.Cast, exp.TryCast, exp.Try, exp.Neg, exp.Not, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.ILike, exp.Abs, exp.Round, exp.Floor, exp.Ceil,
    exp.Lower, exp.Upper, exp.Length, exp.TimestampTrunc, exp.DateTrunc,
)  # fmt: skip
"""What is NULL where a part of it is."""
_STRICT_CALLS = (
    "abs", "round", "floor", "ceil", "ceiling", "sqrt", "lower", "upper", "length", "strlen", "date_trunc", "date_part",
    "year", "month", "day", "hour", "minute", "second", "epoch", "trim", "substring", "sign", "trunc", "ln", "exp",
)  # fmt: skip

Lost = frozenset[tuple[str, str]]
"""Columns of the exact query that are NULL in rows of nobody, by their tables' aliases there and their names."""


@dataclass(frozen=True)
class Unmatched:
    """The outer join that keeps public rows, as it was written, and the conditions by which private rows meet them."""

    join: exp.Join
    on: tuple[exp.Expr, ...]
    inside: bool = False
    """Whether it stands in a subquery: nothing is known here of what its rows are."""


def after_join(
    before: Unmatched | None, join: exp.Join, on: Iterable[exp.Expr], private: tuple[bool, bool],
    lost: Lost,
) -> Unmatched | None:  # fmt: skip
    """Return which rows of nobody there are after a join.

    Args:
        before: those that there were.
        on: the join's conditions in the exact query.
        private: whether its left and its right side are private.
        lost: as :func:`places_lost` gives them, with those of the right side.
    """
    side, kind = (str(join.args.get(key) or "").upper() for key in ("side", "kind"))
    left, right = private
    known = tuple(on)
    if left != right and side in ("FULL", "RIGHT" if left else "LEFT"):
        return Unmatched(join, (*(before.on if before is not None else ()), *known))
    inner = not side and kind in ("", "INNER", "SEMI") and any(fails(node, lost) for node in known)
    return None if inner or (side == "RIGHT" and right) else before


def is_null(node: exp.Expr | None, lost: Lost) -> bool:
    """Say whether an expression of the exact query is certain to be NULL on a row of nobody."""
    if isinstance(node, exp.Column):
        return (node.table, node.name) in lost
    if isinstance(node, exp.Null):
        return True
    if isinstance(node, exp.Case):
        ifs = node.args["ifs"]
        if node.this is not None and is_null(node.this, lost):
            return is_null(node.args.get("default") or exp.Null(), lost)
        outcomes = [branch.args["true"] for branch in ifs if node.this or not fails(branch.this, lost)]
        return all(is_null(found, lost) for found in (*outcomes, node.args.get("default") or exp.Null()))
    if isinstance(node, exp.Between | exp.In):
        return is_null(node.this, lost)
    if isinstance(node, exp.Anonymous) and node.name.lower() not in _STRICT_CALLS:
        return False
    if isinstance(node, (*_STRICT, exp.Anonymous)):
        return any(is_null(part, lost) for part in node.iter_expressions())
    return False


def fails(node: exp.Expr, lost: Lost) -> bool:
    """Say whether a condition of the exact query is certain not to be true on a row of nobody."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And | exp.Or):
        both = [fails(side, lost) for side in (node.this, node.expression)]
        return any(both) if isinstance(node, exp.And) else all(both)
    if isinstance(node, exp.Boolean):
        return not node.this
    if isinstance(node, exp.Not) and isinstance(bare := node.this.unnest(), exp.Is):
        return isinstance(bare.expression, exp.Null) and is_null(bare.this, lost)
    return is_null(node, lost)


def asks_for_them(node: exp.Expr, lost: Lost) -> bool:
    """Say whether a condition asks for rows of nobody: that a private column is NULL."""
    node = node.unnest()
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null) and is_null(node.this, lost)


def met_as_a_whole(found: Unmatched, keys: Iterable[exp.Expr], lost: Lost) -> bool:
    """Say whether private rows meet all public rows of a group or none: public columns by which they meet are keys."""
    held = {(key.table, key.name) for key in keys if isinstance(key, exp.Column)}
    columns = (column for node in found.on for column in node.find_all(exp.Column))
    return not found.inside and all((c.table, c.name) in held | lost for c in columns)
