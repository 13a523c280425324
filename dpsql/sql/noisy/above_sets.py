"""What stands above the groups of all grouping sets: window functions, and what ORDER BY sorts by.

Each set is a block of its own. What the statement above them is made of (keys, aggregates, GROUPING) becomes items of the
blocks; the statement above names these items.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.sql.dialect import to_sql
from dpsql.sql.options import call_of
from dpsql.sql.relations.relation import Names, column, fold

if TYPE_CHECKING:
    from dpsql.sql.binder import Binder

_STRUCTURE = (exp.Order, exp.Ordered, exp.WindowSpec, exp.Where)
_AROUND = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)
"""What may stand around a window's own function."""


def spell_alike(select: exp.Select, names: Names) -> None:
    """Spell each column as GROUP BY does, for a key is looked for by its spelling."""
    group = select.args["group"]
    aliases = {fold(item.alias) for item in select.expressions if isinstance(item, exp.Alias)}
    spelled: dict[str, exp.Column] = {}
    clauses = (select.args.get(key) for key in ("having", "order", "qualify"))
    for clause in (group, *select.expressions, *(node for node in clauses if node is not None)):
        for found in list(clause.find_all(exp.Column)):
            if not found.table and fold(found.name) in aliases:
                continue
            if found.find_ancestor(exp.Select) is not select or (field := names.known(found)) is None:
                continue
            meant = to_sql(field.typed.node)
            first = spelled.setdefault(meant, found) if clause is group else spelled.get(meant)
            if first is not None and first is not found:
                same = first.copy()
                for part in same.parts:
                    part.meta.clear()
                same.this.meta.update(found.this.meta)  # so that a caret points to what is written here
                found.replace(same)


def lift_windows(select: exp.Select, binder: Binder) -> dict[int, exp.Expr]:
    """Take window functions out of the SELECT list and out of QUALIFY: they run over the groups of all sets.

    What they are made of becomes items behind the others.

    Returns:
        What stands above the blocks, by the places of items with a window function. NULL is left there.
    """
    added: dict[str, exp.Expr] = {}
    windowed: set[str] = set()

    def lift(node: exp.Expr, function: bool = False) -> exp.Expr:
        if not function and not isinstance(node, _STRUCTURE) and not is_above(node, windowed):
            if node.find(exp.Column, exp.AggFunc, exp.Grouping, exp.GroupingId) is None:
                return node
            if node.sql() not in added:
                added[node.sql()] = exp.alias_(node.copy(), binder.name("part"), quoted=True)
            return column(added[node.sql()].alias)
        if isinstance(node, exp.Column):
            return node  # the name of an item that stands above, too
        wraps = isinstance(node, exp.Window) or (function and isinstance(node, _AROUND))
        for child in list(node.iter_expressions()):
            new = lift(child, function=wraps and child is node.this)
            if new is not child:
                child.replace(new)
        return node

    found: dict[int, exp.Expr] = {}
    for place, item in enumerate(list(select.expressions)):
        if is_above(item, windowed):
            found[place] = lift(item.unalias().copy())
            name = item.alias or f"item {place}"
            windowed |= {fold(item.alias)} if item.alias else set()
            item.replace(exp.alias_(exp.Null(), name, quoted=True))
    qualify = select.args.get("qualify")
    if qualify is not None and is_above(qualify, windowed):
        qualify.set("this", lift(qualify.this.copy()))
    select.set("expressions", [*select.expressions, *added.values()])
    return found


def is_above(node: exp.Expr, windowed: Set[str]) -> bool:
    """Whether a window function of SQL stands in it, or the name of an item that holds one.

    A name alone behind OVER is that of a mechanism's histogram; a query has windows of its own.
    """
    own = list(node.walk(prune=lambda n: isinstance(n, exp.Query)))
    return any(
        (isinstance(n, exp.Window) and call_of(n) is None)
        or (isinstance(n, exp.Column) and not n.table and fold(n.name) in windowed)
        for n in own
    )


def sort_items(select: exp.Select, binder: Binder, windowed: Set[str]) -> list[tuple[int, exp.Ordered]]:
    """Return what ORDER BY sorts by that only a block can read, with its place in the SELECT list, which gets what it lacks.

    That is what names a column by its table, or holds an aggregate, GROUPING or a key that the SELECT list does not name.
    """
    order = select.args.get("order")
    names = {fold(item.alias_or_name) for item in select.expressions}
    found: list[tuple[int, exp.Ordered]] = []
    for node in order.expressions if order is not None else []:
        wanted = node.this if isinstance(node, exp.Ordered) else None
        if wanted is None or wanted.find(exp.Query) or isinstance(wanted, exp.Literal | exp.Star):
            continue
        if is_above(wanted, windowed):
            continue
        inside = any(call_of(n) is not None or isinstance(n, exp.AggFunc) for n in wanted.walk())
        if not inside and all(not c.table and fold(c.name) in names for c in wanted.find_all(exp.Column)):
            continue
        items = [item.unalias() for item in select.expressions]
        if wanted not in items:
            added = exp.alias_(wanted.copy(), binder.name("order"), quoted=True)
            select.set("expressions", [*select.expressions, added])
            items.append(wanted)
        found.append((items.index(wanted), node))
    return found
