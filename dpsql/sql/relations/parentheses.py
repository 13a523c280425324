"""Joins in parentheses, written out: ``FROM (a JOIN b ON ...) JOIN c``, ``FROM a JOIN (b JOIN c ON ...) ON ...``.

Joins bind from left to right, one table at a time. Every rewriting here is an identity of joins, whatever the data.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.errors import BindError
from dpsql.sql.dialect import span_of

_MIRROR = {"": "", "LEFT": "RIGHT", "RIGHT": "LEFT", "FULL": "FULL"}
_HINT = "write it as a CTE: WITH pair AS (SELECT ... FROM a JOIN b ON ...), then join pair."


def without_parentheses(select: exp.Select) -> None:
    """Rewrites the FROM of a SELECT in place.

    Raises:
        BindError: parentheses that can't be taken off without changing what the join means.
    """
    from_ = select.args.get("from_")
    if from_ is None:
        return
    while (opened := _opened(from_.this)) is not None:
        item, inner = opened
        from_.set("this", item)
        select.set("joins", [*inner, *(select.args.get("joins") or [])])
    joins: list[exp.Join] = list(select.args.get("joins") or [])
    place = 0
    while place < len(joins):
        opened = _opened(joins[place].this)
        if opened is None:
            place += 1
            continue
        item, inner = opened
        if not inner:
            joins[place].set("this", item)
        elif place == 0 and _mirrored(select, joins[0]):
            _swap(joins[0], from_)
            from_.set("this", item)
            joins = [*inner, *joins]
            while (opened := _opened(from_.this)) is not None:
                from_.set("this", opened[0])
                joins = [*opened[1], *joins]
        else:
            joins[place : place + 1] = _spread(select, joins, place, item, inner)
        select.set("joins", joins)


def _opened(node: exp.Expr) -> tuple[exp.Expr, list[exp.Join]] | None:
    """A parenthesised join's first item and its joins; None for anything else. One with an alias becomes a SELECT."""
    if not isinstance(node, exp.Subquery) or isinstance(
        node.this, exp.Select | exp.SetOperation | exp.Values
    ):
        return None
    inner = node.this
    if not isinstance(inner, exp.Table | exp.Subquery):
        return None
    joins = list(inner.args.get("joins") or [])
    if node.alias or any(node.args.get(key) for key in ("pivots", "sample")):
        inner.set("joins", None)
        made = exp.Select(expressions=[exp.Star()]).from_(inner, copy=False)
        made.set("joins", joins or None)
        node.set("this", made)
        return None
    if (
        isinstance(inner, exp.Subquery)
        and not joins
        and isinstance(inner.this, exp.Select)
        and not inner.alias
    ):
        return None  # ((SELECT ...))
    inner.set("joins", None)
    return inner, [*joins, *(node.args.get("joins") or [])]


def _word(join: exp.Join, key: str) -> str:
    return str(join.args.get(key) or "").upper()


def _mirrored(select: exp.Select, join: exp.Join) -> bool:
    """Whether the two sides of a join may change places: all that changes is the order of the columns in ``*``."""
    starred = any(item.is_star and not isinstance(item, exp.Column) for item in select.expressions)
    return (
        not starred and not _word(join, "method") and _word(join, "kind") in ("", "INNER", "CROSS", "OUTER")
    )


def _swap(join: exp.Join, from_: exp.Expr) -> None:
    join.set("this", from_.this)
    join.set("side", _MIRROR[_word(join, "side")] or None)


def _spread(
    select: exp.Select, joins: list[exp.Join], place: int, item: exp.Expr, inner: list[exp.Join]
) -> list[exp.Join]:
    """Inner joins are associative: the tables one by one, and the condition of the whole in WHERE."""
    join = joins[place]
    outer = [j for j in joins[place + 1 :] if _word(j, "side") in ("RIGHT", "FULL")]
    kinds = [_word(j, "kind") in ("", "INNER", "CROSS") and not _word(j, "side") for j in (join, *inner)]
    simple = not any(j.args.get("using") or _word(j, "method") for j in (join, *inner))
    if outer or not all(kinds) or not simple:
        raise BindError("such joins in parentheses are not known here.", span=span_of(join.this), hint=_HINT)
    on = join.args.get("on")
    if on is not None:
        select.where(on, copy=False)
    return [exp.Join(this=item), *inner]
