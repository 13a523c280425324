"""Rewrites spellings of DuckDB into plainer ones of equal meaning, so that binding needs to know one of each.

A row of values compared with others becomes comparisons of its parts. As in DuckDB, a NULL inside a row equals a NULL.
Aggregates with a plainer form take it, under the output name that DuckDB gives to what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

_SUMS = ("fsum", "kahan_sum", "sumkahan")


def spell_plainly(tree: exp.Expr) -> None:
    """Rewrite the spellings in a query, in place."""
    for node in list(tree.find_all(*_REWRITES)):
        _REWRITES[type(node)](node)


def _group(group: exp.Group) -> None:
    """Remove the empty set of keys: ``GROUP BY ()`` is one group of all rows."""
    empty = [key for key in group.expressions if isinstance(key, exp.Tuple) and not key.expressions]
    others = any(value for key, value in group.args.items() if key != "expressions")
    select = group.parent
    if empty and len(empty) == len(group.expressions) and not others and isinstance(select, exp.Select):
        select.set("group", None)


def _row(node: exp.Expr) -> list[exp.Expr] | None:
    """Return the parts of a row of at least two values; None for other nodes."""
    node = node.unnest()
    called = isinstance(node, exp.Anonymous) and node.name.lower() == "row"
    if isinstance(node, exp.Tuple) or called:
        return list(node.expressions) if len(node.expressions) > 1 else None
    return None


def _equal(left: Sequence[exp.Expr], right: Sequence[exp.Expr]) -> exp.Expr:
    """Return the condition that two rows are equal, part by part."""
    pairs = zip(left, right, strict=True)
    return exp.paren(
        exp.and_(*(exp.NullSafeEQ(this=a.copy(), expression=b.copy()) for a, b in pairs)), copy=False
    )


def _comparison(node: exp.Expr) -> None:
    left, right = _row(node.this), _row(node.expression)
    if left is None or right is None or len(left) != len(right):
        return
    equal = _equal(left, right)
    _put(node, equal if isinstance(node, exp.EQ) else exp.paren(exp.not_(equal, copy=False), copy=False))


def _membership(node: exp.In) -> None:
    left, rows = _row(node.this), [_row(item) for item in node.expressions]
    if node.find_ancestor(exp.Pivot, exp.Window, exp.Select) is not node.find_ancestor(exp.Select):
        return  # PIVOT's values, or candidates
    if left is None or not rows or any(node.args.get(key) for key in ("query", "unnest", "field")):
        return
    if all(row is not None and len(row) == len(left) for row in rows):
        made = exp.or_(*(_equal(left, row) for row in rows if row is not None))
        _put(node, exp.paren(made, copy=False))


def _interval(node: exp.Interval) -> None:
    """Write ``INTERVAL (1) DAY`` as ``INTERVAL 1 DAY``."""
    if node.this is None:
        return
    amount = node.this.unnest()
    negative = isinstance(amount, exp.Neg) and isinstance(amount.this, exp.Literal)
    if negative and not amount.this.is_string:
        amount = exp.Literal.string(f"-{amount.this.name}")
    if isinstance(amount, exp.Literal) and amount is not node.this:
        node.set("this", amount)


def _regr_count(node: exp.RegrCount) -> None:
    """Write REGR_COUNT as the number of rows in which both values are known."""
    both = [
        exp.Not(this=exp.Is(this=part.copy(), expression=exp.Null())) for part in (node.this, node.expression)
    ]
    _put(node, exp.CountIf(this=exp.and_(*both, copy=False)))


def _count(node: exp.Count) -> None:
    """Count distinct rows of values as distinct texts, each part after its length, so that no two rows look alike."""
    distinct = node.this
    if not isinstance(distinct, exp.Distinct) or len(distinct.expressions) != 1:
        return
    parts = _row(distinct.expressions[0])
    if parts is None or any(part.is_star or part.find(exp.Query) for part in parts):
        return
    texts = [exp.cast(part.copy(), "VARCHAR", dialect="duckdb") for part in parts]
    pieces = [
        piece for text in texts for piece in (exp.Length(this=text.copy()), exp.Literal.string(":"), text)
    ]
    made = exp.Distinct(expressions=[exp.Concat(expressions=pieces, safe=True, coalesce=True)])
    counted = exp.Count(this=made, big_int=True)
    counted.meta.update(node.meta)
    _put(node, counted)


def _anonymous(node: exp.Anonymous) -> None:
    """Write the exact sums and means of floats as SUM and AVG, which are exact before the noise."""
    name = node.name.lower()
    if len(node.expressions) != 1 or name not in (*_SUMS, "favg"):
        return
    made = (exp.Avg if name == "favg" else exp.Sum)(this=node.expressions[0].copy())
    made.meta.update(node.meta)
    _put(node, made)


def _windows(select: exp.Select) -> None:
    """Write named windows where they are used."""
    named = {window.name.lower(): window for window in select.args.get("windows") or []}
    if not named:
        return
    used = [node for node in select.find_all(exp.Window) if node.find_ancestor(exp.Select) is select]
    for node in used:
        _open_window(node, named, len(named))
    select.set("windows", None)


def _open_window(node: exp.Window, named: dict[str, exp.Window], depth: int) -> None:
    alias = node.args.get("alias")
    base = named.get(alias.name.lower()) if alias is not None else None
    if base is None or base is node or depth < 0:
        return
    _open_window(base, named, depth - 1)
    node.set("alias", None)
    for key in ("partition_by", "order", "spec"):
        part = base.args.get(key)
        if part and not node.args.get(key):
            node.set(key, [item.copy() for item in part] if isinstance(part, list) else part.copy())


def _put(node: exp.Expr, made: exp.Expr) -> None:
    """Replace a node; an output that it is keeps its name."""
    if isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
        name = node.sql(dialect="duckdb", comments=False, normalize_functions="lower")
        made = exp.alias_(made, name, quoted=True, copy=False)
    span: dict[str, Any] = {key: node.meta[key] for key in ("start", "end") if key in node.meta}
    for part in made.walk() if span else ():
        if isinstance(part, exp.Func | exp.Binary):
            part.meta.update({**span, **part.meta})
    node.replace(made)


_REWRITES: dict[type[exp.Expr], Callable[..., None]] = {
    exp.Group: _group, exp.EQ: _comparison, exp.NEQ: _comparison, exp.In: _membership, exp.Interval: _interval,
    exp.RegrCount: _regr_count, exp.Count: _count, exp.Anonymous: _anonymous, exp.Select: _windows,
}  # fmt: skip
