"""ROLLUP, CUBE and GROUPING SETS: one private block for each grouping set, combined by UNION ALL.

A unit is in a group of every grouping set, so the sets share the block's epsilon and delta in equal parts: together they
cost as much as one block whose unit is in the groups of all of them. Keys, aggregates and GROUPING that window functions or
ORDER BY need become items of the blocks; the statement above names these items.

The sets may also be measured together: :mod:`dpsql.binding.dp.joint_sets`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Set
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from typing import TYPE_CHECKING, NamedTuple

from sqlglot import exp

from dpsql.binding.dp.block_strategies import find_forced, keep_even, refuse_unfit
from dpsql.binding.dp.budget_split import within_limit, within_limits
from dpsql.binding.dp.joint_sets import (
    JointBlock,
    MarginalsChoice,
    choose_for_sets,
    find_operator,
    read_marginal,
)
from dpsql.binding.dp.noisy_aggregates import NOISY_AGGREGATES
from dpsql.binding.dp.noisy_block import NoisyBlock
from dpsql.binding.public_statement import (
    inner_queries,
    install,
    label_of_item,
    make_unique,
    resolve_key,
    spell,
)
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.relation import Names, column, fold
from dpsql.binding.relations.subqueries import ONCE
from dpsql.binding.relations.windows import refuse_row_choice
from dpsql.language.dialect import bind_error, to_sql
from dpsql.language.options import NONNEGATIVE, Options, call_of
from dpsql.mechanisms.consistency import CONSISTENCY_SENTENCE, Consistent, GroupingSet, list_adding
from dpsql.mechanisms.marginals import (
    Marginals,
    calibrate_together,
)
from dpsql.mechanisms.strategies import MARGINALS

if TYPE_CHECKING:
    from dpsql.binding.public_statement import Env


_SHARED = ("epsilon", "delta", "mu", "rho")
"""Options that are shared by all sets."""
_STRUCTURE = (exp.Order, exp.Ordered, exp.WindowSpec, exp.Where)
_AROUND = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)
"""The nodes that may wrap a window's own function."""


def spell_alike(select: exp.Select, names: Names) -> None:
    """Spell each column as GROUP BY does, since keys are found by their spelling."""
    group = select.args["group"]
    aliases = {fold(item.alias) for item in select.expressions if isinstance(item, exp.Alias)}
    spelled: dict[str, exp.Column] = {}
    clauses = (select.args.get(key) for key in ("having", "order", "qualify"))
    for clause in (group, *select.expressions, *filter(None, clauses)):
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
                same.this.meta.update(found.this.meta)  # a caret points to the spelling here
                found.replace(same)


def lift_windows(select: exp.Select, binder: Binder) -> dict[int, exp.Expr]:
    """Move window functions out of the SELECT list and QUALIFY, to run over the groups of all sets.

    Their parts become items after the others. Return the expressions above the blocks, by the place of their item, which
    becomes NULL.
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
            return node  # the name of another item above
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
    """Return whether an expression contains a window function, or an item's name with one; a bare name after OVER is none."""
    for part in node.walk(prune=lambda n: isinstance(n, exp.Query)):
        if isinstance(part, exp.Window) and call_of(part) is None:
            return True
        if isinstance(part, exp.Column) and not part.table and fold(part.name) in windowed:
            return True
    return False


def sort_items(select: exp.Select, binder: Binder, windowed: Set[str]) -> list[tuple[int, exp.Ordered]]:
    """Return the nodes of ORDER BY that only a block can read, with their places in the SELECT list, which gets missing ones.

    These name a column by its table, or contain an aggregate, GROUPING or a key that the list does not name.
    """
    order = select.args.get("order")
    names = {fold(item.alias_or_name) for item in select.expressions}
    found: list[tuple[int, exp.Ordered]] = []
    for node in order.expressions if order is not None else []:
        wanted = node.this
        fixed = isinstance(wanted, exp.Literal | exp.Star) or wanted.find(exp.Query)
        if not isinstance(node, exp.Ordered) or fixed or is_above(wanted, windowed):
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
"""The most grouping sets in one statement."""
_COUNTED = 10**9
"""The number of grouping sets from which on it is not stated exactly."""


def has_sets(select: exp.Select) -> bool:
    """Return whether a SELECT groups by several sets at once."""
    group = select.args.get("group")
    return group is not None and any(isinstance(node, _KINDS) for node in _elements(group))


def _elements(group: exp.Expr) -> list[exp.Expr]:
    named = [node for key in ("rollup", "cube", "grouping_sets") for node in group.args.get(key) or []]
    return [*group.expressions, *(node for node in named if isinstance(node, exp.Expr))]


def _members(node: exp.Expr) -> tuple[exp.Expr, ...]:
    inner = node.unnest()
    return tuple(inner.expressions) if isinstance(inner, exp.Tuple) else (inner,)


def _sets_of(node: exp.Expr) -> Iterator[tuple[exp.Expr, ...]]:
    if isinstance(node, exp.Rollup | exp.Cube):
        items = node.expressions
        for i in range(len(items), -1, -1):
            whole = [items[:i]] if isinstance(node, exp.Rollup) else combinations(items, i)
            yield from (tuple(m for item in chosen for m in _members(item)) for chosen in whole)
    elif isinstance(node, exp.GroupingSets):
        for item in node.expressions:
            yield from _sets_of(item) if isinstance(item, _KINDS) else (_members(item),)
    else:
        yield (node,)


def _count_sets(node: exp.Expr) -> int:
    """Return the number of sets of an element of GROUP BY, without making any: CUBE doubles it with each key."""
    if isinstance(node, exp.Cube):
        return 1 << len(node.expressions)
    if isinstance(node, exp.Rollup):
        return len(node.expressions) + 1
    if isinstance(node, exp.GroupingSets):
        return sum(_count_sets(item) for item in node.expressions)
    return 1


class Key(NamedTuple):
    """A key of a grouping set: an expression over rows, or an item by name or place. As in DuckDB, equal items are two keys."""

    node: exp.Expr
    item: int | None = None

    @property
    def identity(self) -> int | str:
        """The mark that tells it from other keys."""
        return self.node.sql() if self.item is None else self.item


def _find_key(node: exp.Expr, select: exp.Select, names: Names, places: bool = True) -> Key:
    """Return the key of a node; ``places``: whether a number is an item. A column of the rows precedes an item's name."""
    items = select.expressions
    if places and isinstance(node, exp.Literal) and node.name.isdigit() and not node.is_string:
        return Key(resolve_key(node, select).copy(), int(node.name) - 1)
    if isinstance(node, exp.Column) and not node.table and names.known(node) is None:
        named = {fold(item.alias): i for i, item in enumerate(items) if isinstance(item, exp.Alias)}
        if (place := named.get(fold(node.name))) is not None:
            return Key(items[place].unalias().copy(), place)
    return Key(node)


def bind_sets(binder: Binder, select: exp.Select, options: Options, env: Env, names: Names) -> None:
    """Replace a SELECT, in place, by the union of a block for each grouping set.

    Raises:
        BindError: too many sets, or shares of epsilon. BudgetExceeded: over the policy's limit per query.
    """
    for query in inner_queries(select):  # asked once, whatever the number of sets
        query.meta[ONCE] = binder.name("once")
    if binder.by_sets and find_forced(options) is None:
        options = keep_even(options)
    if "error" in options.values:
        hint = "leave error out, or ask for one grouping at a time."
        raise options.refuse("error", "several grouping sets have several accuracies.", hint)
    refuse_unfit(options, (MARGINALS,))
    written = [label_of_item(item) or item.sql() for item in select.expressions]
    spell_alike(select, names)
    group = select.args["group"]
    many = math.prod(_count_sets(node) for node in _elements(group))
    if many > MOST:
        number = f"{many:,}" if many < _COUNTED else "billions of"
        raise bind_error(group, f"these are {number} grouping sets; at most {MOST} are answered at once.")
    sets = [
        tuple(_find_key(m, select, names) for part in chosen for m in part)
        for chosen in product(*(list(_sets_of(n)) for n in _elements(group)))
    ]
    shared = _shares(binder, options, len(sets), select)
    everything = list({key.identity: key for chosen in sets for key in chosen}.values())
    windows = lift_windows(select, binder)
    sorts = sort_items(select, binder, {fold(select.expressions[i].alias) for i in windows})
    asked, hidden = len(written), select.expressions[len(written) :]
    labels = make_unique([*written, *(item.alias for item in hidden)])
    for place, node in sorts:
        node.set("this", column(labels[place]))
    parts = [_part(select, chosen, everything, names) for chosen in sets]
    blocks: list[NoisyBlock] = []
    for part in parts:
        bound = binder.private_from(part, env)
        refuse_row_choice(part)
        chosen = blocks[0].noise if blocks else None
        if blocks and shared.get("report_cut"):  # for the first set only
            shared = replace(shared, values={**shared.values, "report_cut": False})
        nodes = [key.node for key in everything]
        block = NoisyBlock(binder, part, bound, shared, env, every=nodes, blocks=len(parts), noise=chosen)
        blocks.append(block)
        block.bind()
        for i, (item, label) in enumerate(zip(part.expressions, labels, strict=True)):
            inner = f"dpsql_above_{i}" if i in windows else label
            item.set("alias", exp.to_identifier(inner, quoted=True))
    _refuse_no_choice(options, blocks)
    _calibrate(binder, blocks)

    def join() -> JointBlock:
        # In a canonical order, so that CUBE (w, k) finds the release of CUBE (k, w).
        whole = _part(select, tuple(sorted(everything, key=lambda key: key.node.sql())), everything, names)
        values = {k: v for k, v in shared.values.items() if k not in ("report_cut", "strategy")}
        values |= {k: v / Fraction(1, len(parts)) for k, v in values.items() if k in _SHARED}
        bound, undivided = binder.private_from(whole, env), replace(shared, values=values)
        return JointBlock(binder, whole, bound, undivided, env, noise=blocks[0].noise)

    taken = choose_for_sets(binder, options, blocks, join)
    if taken.joint is not None:
        for part, block, place in zip(parts, blocks, taken.places, strict=True):
            read_marginal(part, block, taken.joint, place)
    if options.get("consistent"):
        _adjust(binder, options, blocks, [key.node for key in everything], taken)
    union: exp.Query = parts[0]
    for part in parts[1:]:
        union = exp.union(union, part, distinct=False, copy=False)
    install(select, union.subquery("sets", copy=False))
    if hidden or windows:
        shown: list[exp.Expr] = [column(label) for label in labels[:asked]]
        for i, above in windows.items():
            shown[i] = exp.alias_(above, labels[i], quoted=True)
        select.set("expressions", shown)


def _refuse_no_choice(options: Options, blocks: list[NoisyBlock]) -> None:
    """Raise BindError for options of private groups if no grouping set has any."""
    if len(blocks) > 1 and not any(block.keys and block.domain is None for block in blocks):
        for name in ("group_selection_epsilon", "min_privacy_units_per_group"):
            if name in options.values:
                what = "the groups of all sets are public: none is chosen."
                raise options.refuse(name, what, "leave it out.")


def _calibrate(binder: Binder, blocks: list[NoisyBlock]) -> None:
    names = {block.name for block in blocks}
    places = [place for place, block in enumerate(binder.blocks) if block.name in names]
    operators = calibrate_together([binder.blocks[place].operator for place in places])
    for place, operator in zip(places, operators, strict=True):
        binder.blocks[place] = replace(binder.blocks[place], operator=operator)


def _adjust(
    binder: Binder, options: Options, blocks: list[NoisyBlock], keys: list[exp.Expr], chosen: MarginalsChoice
) -> None:
    """Make the cells of COUNT and SUM add up, after they are released."""
    open_keys = blocks[0].open_keys
    if chosen.joint is None:
        found = ((b, find_operator(binder, b)) for b in blocks)
        sets = tuple(
            GroupingSet(b.name, _columns(b, keys), list_adding(operator, b.fixed_columns))
            for b, operator in found
        )
    else:
        sets = tuple(_list_joint_sets(binder, chosen, blocks, keys))
    names = {tuple(c.name for c in cells.columns) for cells in sets}
    if len(names) != 1 or not sets[0].columns:
        hint = "cells of COUNT and of SUM with bounds per row add up; leave consistent out for others."
        raise options.refuse("consistent", "no cells here add up.", hint)
    binder.adjustments.append(Consistent(sets, options.get("consistent") == NONNEGATIVE, open_keys))
    last = binder.blocks[-1]
    binder.blocks[-1] = replace(last, sentences=(*last.sentences, CONSISTENCY_SENTENCE))
    note = "the cells of COUNT and SUM were made to add up"
    if any(open_keys):
        named = " or ".join(spell(key) for key, other in zip(keys, open_keys, strict=True) if other)
        note += f"; totals also count rows in no group of {named}, if these exceed the noise"
    binder.notes.append(note)


def _columns(block: NoisyBlock, nodes: list[exp.Expr]) -> tuple[str | None, ...]:
    keys = (block.keys.get(block.spelling(node)) for node in nodes)
    return tuple(None if key is None else key.name for key in keys)


def _list_joint_sets(
    binder: Binder, chosen: MarginalsChoice, blocks: list[NoisyBlock], nodes: list[exp.Expr]
) -> Iterator[GroupingSet]:
    joint = chosen.joint
    assert joint is not None
    operator, names = find_operator(binder, joint), _columns(joint, nodes)
    assert isinstance(operator, Marginals)
    for place in dict.fromkeys(chosen.places):
        own = _columns(blocks[chosen.places.index(place)], nodes)
        keys = tuple(name if has is not None else None for name, has in zip(names, own, strict=True))
        table = replace(operator.table, outputs=operator.outputs[place])
        yield GroupingSet(joint.name, keys, list_adding(table, joint.fixed_columns), place)


def _shares(binder: Binder, options: Options, count: int, select: exp.Select) -> Options:
    budget = binder.catalog.policy.budget
    for node in select.walk():
        call = call_of(node)
        if call is not None and "epsilon" in call.named:
            what = "an aggregate over several grouping sets takes no epsilon of its own."
            raise bind_error(node, what, "leave epsilon out, and give one for all of them in OPTIONS.")
    values, asked = dict(options.values), options.amount
    if asked is not None and asked.currency != "epsilon":
        within_limits(binder.catalog, asked, options.nodes.get(asked.currency))
        values[asked.currency] = asked / count
    epsilon = values.get("epsilon", None if asked is not None else binder.catalog.default_epsilon)
    if epsilon is not None:
        if "epsilon" not in values and binder.catalog.epsilon is None:
            binder.notes.append(f"ε={float(epsilon):g} is the policy's default")
        within_limit(budget, epsilon, options.nodes.get("epsilon"))
    for name, value in (("epsilon", epsilon), ("delta", values.get("delta", budget.default_delta))):
        if value is not None:
            values[name] = value / count
    if "group_selection_epsilon" in values:  # each set's share is divided as the whole
        chosen = values["group_selection_epsilon"]
        if epsilon is not None and chosen >= epsilon:
            what = f"groups are chosen with ε={float(chosen):g} of ε={float(epsilon):g}: nothing is left for the aggregates."
            raise options.refuse("group_selection_epsilon", what, "lower it, or raise epsilon.")
        values["group_selection_epsilon"] = chosen / count
    return replace(options, values=values)


def _part(select: exp.Select, chosen: tuple[Key, ...], everything: list[Key], names: Names) -> exp.Select:
    """Return the SELECT grouped by one set, with NULL for the keys that it does not group by."""
    part = select.copy()
    for key in ("order", "limit", "offset", "qualify", "distinct"):
        part.set(key, None)
    one = _Set(select, frozenset(key.identity for key in chosen), everything, names)
    grouped = list({key.node.sql(): key.node.copy() for key in chosen}.values())
    part.set("group", exp.Group(expressions=grouped) if grouped else None)
    for i, item in enumerate(list(part.expressions)):
        if i in one.items and i in one.chosen:
            continue
        made = exp.null() if i in one.items else one.without(item)
        name = to_sql(item) if isinstance(item, exp.Grouping | exp.GroupingId) else item.alias_or_name
        if made is not item:
            item.replace(exp.alias_(made, name, quoted=True) if name else made)
    if part.args.get("having"):
        part.args["having"].set("this", one.without(part.args["having"].this))
    return part


class _Set:
    """One grouping set: its keys, and the replacement of others."""

    def __init__(
        self, select: exp.Select, chosen: frozenset[int | str], everything: list[Key], names: Names
    ) -> None:
        self.select, self.chosen, self.names = select, chosen, names
        self.items = {key.item for key in everything if key.item is not None}
        spelled: dict[str, list[Key]] = {}
        for key in everything:
            spelled.setdefault(key.node.sql(), []).append(key)
        # A key that is spelled out counts itself; otherwise an expression is the key of any equal item.
        self.present = {
            text: any(key.identity in chosen for key in [k for k in keys if k.item is None] or keys)
            for text, keys in spelled.items()
        }

    def has(self, node: exp.Expr) -> bool | None:
        """Return whether the set groups by a node; None if no set does."""
        key = _find_key(node, self.select, self.names, places=False)
        if key.item is not None and key.item in self.items:
            return key.item in self.chosen
        return self.present.get(node.sql())

    def without(self, node: exp.Expr) -> exp.Expr:
        """Return the node with NULL for keys that the set does not group by; aggregates read the rows unchanged."""
        if isinstance(node, exp.Grouping | exp.GroupingId):
            return self._bits(node)
        call = call_of(node)
        if call is not None and (isinstance(node, exp.AggFunc) or call.name in NOISY_AGGREGATES):
            return node
        if self.has(node) is False:
            return exp.Null()
        for child in list(node.iter_expressions()):
            made = self.without(child)
            if made is not child:
                child.replace(made)
        return node

    def _bits(self, node: exp.Expr) -> exp.Expr:
        found = [self.has(item) for item in node.expressions]
        if None in found:
            item = node.expressions[found.index(None)]
            raise bind_error(item, f"{to_sql(item)} is not in GROUP BY.", around=node)
        return exp.Literal.number(int("".join("0" if there else "1" for there in found), 2))
