"""What stands above the groups of all grouping sets: window functions, and what ORDER BY sorts by.

Each set is a block of its own. What the statement above them is made of (keys, aggregates, GROUPING) becomes items of the
blocks; the statement above names these items.

ROLLUP, CUBE and GROUPING SETS: one private block for each grouping set, put together by UNION ALL.

A unit is in a group of every grouping set, so the sets share the block's epsilon and delta in equal parts: what they compose to
is what one block would cost whose unit touches the groups of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.mechanisms.aggregation import Aggregation, Together
from dpsql.mechanisms.consistency import CONSISTENCY_SENTENCE, AddingColumn, Consistent, GroupingSet
from dpsql.mechanisms.moments import Count, Sum
from dpsql.sql.dp.block import Block, dp_block
from dpsql.sql.dp.budget_split import within_limit
from dpsql.sql.normalize import label_of_item, make_unique, resolve_key
from dpsql.sql.parse.dialect import bind_error, remove_modes, to_sql
from dpsql.sql.parse.options import NONNEGATIVE, Options, call_of
from dpsql.sql.public_side import install
from dpsql.sql.relations.relation import Names, column, fold
from dpsql.sql.relations.windows import refuse_row_choice

if TYPE_CHECKING:
    from dpsql.sql.normalize import Env
    from dpsql.sql.relations.catalog import Binder


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
    """Say whether a window function of SQL stands in it, or the name of an item that holds one.

    A name alone behind OVER is that of a mechanism's histogram; a query has windows of its own.
    """
    own = list(node.walk(prune=lambda n: isinstance(n, exp.Query)))
    return any(
        (isinstance(n, exp.Window) and call_of(n) is None)
        or (isinstance(n, exp.Column) and not n.table and fold(n.name) in windowed)
        for n in own
    )


def sort_items(select: exp.Select, binder: Binder, windowed: Set[str]) -> list[tuple[int, exp.Ordered]]:
    """Return what ORDER BY sorts by that only a block can read, with its place in the SELECT list.

    The list gets what it lacks: what names a column by its table, or holds an aggregate, GROUPING or a key that it does not
    name.
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


_KINDS = (exp.Rollup, exp.Cube, exp.GroupingSets)
MOST = 64
"""Grouping sets in one statement: each costs its part."""


def has_sets(select: exp.Select) -> bool:
    """Say whether a SELECT groups by several sets at once."""
    group = select.args.get("group")
    return group is not None and any(isinstance(node, _KINDS) for node in _elements(group))


def _elements(group: exp.Expr) -> list[exp.Expr]:
    named = [node for key in ("rollup", "cube", "grouping_sets") for node in group.args.get(key) or []]
    return [*group.expressions, *(node for node in named if isinstance(node, exp.Expr))]


def _members(node: exp.Expr) -> tuple[exp.Expr, ...]:
    if isinstance(node, exp.Tuple):
        return tuple(node.expressions)
    return _members(node.this) if isinstance(node, exp.Paren) else (node,)


def _sets_of(node: exp.Expr) -> Iterator[tuple[exp.Expr, ...]]:
    if isinstance(node, exp.Rollup):
        for i in range(len(node.expressions), -1, -1):
            yield tuple(m for item in node.expressions[:i] for m in _members(item))
    elif isinstance(node, exp.Cube):
        for i in range(len(node.expressions), -1, -1):
            for chosen in combinations(node.expressions, i):
                yield tuple(m for item in chosen for m in _members(item))
    elif isinstance(node, exp.GroupingSets):
        for item in node.expressions:
            yield from _sets_of(item) if isinstance(item, _KINDS) else (_members(item),)
    else:
        yield (node,)


def bind_sets(binder: Binder, select: exp.Select, options: Options | None, env: Env, names: Names) -> None:
    """Replace a SELECT, in place, by the union of a block for each grouping set.

    Raises:
        BindError: too many sets, or shares of their own beside them. BudgetExceeded: over the policy's limit per query.
    """
    options = options or Options("DP", {}, {})
    written = [label_of_item(item) or remove_modes(item).sql() for item in select.expressions]
    spell_alike(select, names)
    group = select.args["group"]
    sets = [
        tuple(m for part in chosen for m in part)
        for chosen in product(*(list(_sets_of(n)) for n in _elements(group)))
    ]
    if len(sets) > MOST:
        raise bind_error(group, f"these are {len(sets)} grouping sets; at most {MOST} are answered at once.")
    shared = _shares(binder, options, len(sets), select)
    everything = list({m.sql(): m for chosen in sets for m in chosen}.values())
    windows = lift_windows(select, binder)
    sorts = sort_items(select, binder, {fold(select.expressions[i].alias) for i in windows})
    asked, hidden = len(written), select.expressions[len(written) :]
    labels = make_unique([*written, *(item.alias for item in hidden)])
    for place, node in sorts:
        node.set("this", column(labels[place]))
    parts = [_part(select, chosen, everything) for chosen in sets]
    known = {fold(f.name) for _, f in names.fields()}
    resolved = [resolve_key(n, select, lambda c: fold(c.name) in known).copy() for n in everything]
    within = resolved if options.get("consistent") else []
    blocks = []
    for part in parts:
        bound = binder.private_from(part, env)
        refuse_row_choice(part)
        blocks.append(dp_block(binder, part, bound, shared, env, within))
        for i, (item, label) in enumerate(zip(part.expressions, labels, strict=True)):
            inner = f"dpsql_above_{i}" if i in windows else label
            item.set("alias", exp.to_identifier(inner, quoted=True))
    if within:
        _adjust(binder, options, blocks, within)
    union: exp.Query = parts[0]
    for part in parts[1:]:
        union = exp.union(union, part, distinct=False, copy=False)
    install(select, union.subquery("sets", copy=False))
    if hidden or windows:
        shown: list[exp.Expr] = [column(label) for label in labels[:asked]]
        for i, above in windows.items():
            shown[i] = exp.alias_(above, labels[i], quoted=True)
        select.set("expressions", shown)


def _adjust(binder: Binder, options: Options, blocks: list[Block], within: list[exp.Expr]) -> None:
    """Make the cells of COUNT and SUM add up, after they are released."""
    sets = tuple(GroupingSet(b.name, _columns(b, within), _adding(binder, b)) for b in blocks)
    names = {tuple(c.name for c in cells.columns) for cells in sets}
    if len(names) != 1 or not sets[0].columns:
        raise options.refuse(
            "consistent", "there is nothing here that adds up.",
            "cells of COUNT and of SUM with bounds per row add up; leave consistent out for others.",
        )  # fmt: skip
    binder.adjustments.append(Consistent(sets, options.get("consistent") == NONNEGATIVE))
    last = binder.blocks[-1]
    binder.blocks[-1] = replace(last, sentences=(*last.sentences, CONSISTENCY_SENTENCE))
    binder.notes.append("the cells of COUNT and SUM were made to add up")


def _columns(block: Block, within: list[exp.Expr]) -> tuple[str | None, ...]:
    keys = (block.keys.get(block.spelling(node)) for node in within)
    return tuple(None if key is None else key.name for key in keys)


def _adding(binder: Binder, block: Block) -> tuple[AddingColumn, ...]:
    operator = next(b.operator for b in binder.blocks if b.name == block.name)
    aggregation = operator.aggregation if isinstance(operator, Together) else operator
    if not isinstance(aggregation, Aggregation):
        return ()
    fixed = {partial.name for partial in block.exact.partials if partial.fixed}
    found = []
    for output in aggregation.outputs:
        if not isinstance(output, Count | Sum) or output.statistic.column in fixed:
            continue  # a mean, or what one unit counts for once in each cell
        steps = output.steps if isinstance(output, Sum) else Fraction(1)
        found.append(AddingColumn(output.name, output.statistic.noise, steps, isinstance(output, Count)))
    return tuple(found)


def _shares(binder: Binder, options: Options, count: int, select: exp.Select) -> Options:
    budget = binder.catalog.policy.budget
    for node in select.walk():
        call = call_of(node) if isinstance(node, exp.Expr) else None
        if call is not None and "epsilon" in call.named:
            raise bind_error(
                node, "shares can't be named beside grouping sets.", "write OPTIONS (epsilon = ...)."
            )
    values = dict(options.values)
    epsilon = values.get("epsilon", binder.catalog.default_epsilon)
    if epsilon is not None:
        within_limit(budget, epsilon, options.nodes.get("epsilon"))
    for name, value in (("epsilon", epsilon), ("delta", values.get("delta", budget.default_delta))):
        if value is not None:
            values[name] = value / count
    return replace(options, values=values)


def _part(select: exp.Select, chosen: tuple[exp.Expr, ...], everything: list[exp.Expr]) -> exp.Select:
    """Return the SELECT grouped by one set, with NULL for the keys that it does not group by."""
    part = select.copy()
    for key in ("order", "limit", "offset", "qualify", "distinct"):
        part.set(key, None)
    part.set("group", exp.Group(expressions=[m.copy() for m in chosen]) if chosen else None)
    kept = [m.sql() for m in chosen]
    aliases = {fold(item.alias): item.this for item in select.expressions if isinstance(item, exp.Alias)}
    left_out = [m for m in everything if m.sql() not in kept]
    kept += [
        aliases[fold(m.name)].sql() for m in chosen if isinstance(m, exp.Column) and fold(m.name) in aliases
    ]
    left_out += [
        aliases[fold(m.name)] for m in left_out if isinstance(m, exp.Column) and fold(m.name) in aliases
    ]
    for item in list(part.expressions):
        if isinstance(item, exp.Grouping | exp.GroupingId):
            item.replace(exp.alias_(item.copy(), to_sql(item), quoted=True))
        elif any(item == m for m in left_out):
            item.replace(exp.alias_(exp.Null(), item.alias_or_name, quoted=True))
    for clause in [*part.expressions, *([part.args["having"]] if part.args.get("having") else [])]:
        _without(clause, left_out, kept)
    return part


def _without(node: exp.Expr, left_out: list[exp.Expr], kept: list[str]) -> None:
    for child in list(node.iter_expressions()):
        if isinstance(child, exp.Grouping | exp.GroupingId):
            bits = "".join("0" if item.sql() in kept else "1" for item in child.expressions)
            child.replace(exp.Literal.number(int(bits, 2)))
        elif call_of(child) is not None and isinstance(child, exp.AggFunc):
            continue
        elif any(child == m for m in left_out):
            child.replace(exp.Null())
        else:
            _without(child, left_out, kept)
