"""ROLLUP, CUBE and GROUPING SETS: one private block for each grouping set, combined by UNION ALL.

A unit is in a group of every grouping set, so the sets share the block's epsilon and delta in equal parts: together they
cost as much as one block whose unit is in the groups of all of them. Keys, aggregates and GROUPING that window functions or
ORDER BY need become items of the blocks; the statement above names these items.

The sets may also be one private block: the finest cells of all their keys, capped once, and all marginals by ResidualPlanner.
If groups are public and the aggregates add up over them (counts, and sums with bounds per row), the sets may be measured
together (:mod:`dpsql.mechanisms.marginals`). The keys' values are crossed. A row with a value outside of a key's groups gets
NULL for it, so that the row counts in the sets without that key, as it does set by set.

Caps apply once, to the finest cells, and keep those of a unit first that more of the sets show. A set shows a cell or hides
it. If the sets are nested (of any two that hide some cells, one hides all that the other does), then no unit counts with
fewer rows in COUNT(*) of any set than in the set alone:

* Under a cap of B rows in all, a set alone keeps min(B, N) of the N rows that it shows. These come before all others, whose
  cells fewer of the sets show, so of the B rows that are kept together min(B, N) are its own.
* Under caps of C rows in each of L groups, which share C times L rows, it keeps the least of C L and the sum of min(C, n) over
  its groups of n rows. A group consists of finest cells, whose sum of min(C, n) is no less, and these come first as above.
* With C = 1 this applies to the number of groups, at most L of them, instead of rows.

That order depends on the unit's own rows and on public values, so a unit's sensitivity is unchanged. Other aggregates may
lose: a sum alone is clamped to B rows' bounds, from all rows, and together it is the sum of B of them. If sets are not nested,
cells of declared values in all keys come first: every set shows these. A set that shows rows outside of another set's values
may then lose some of them, of units that have more rows than the caps allow.

The shares of the residuals' noise minimise the total squared error, with no set above :data:`WORST_SET` times its own error
alone. AUTO takes MARGINALS if such shares exist and the total is less than that of EVEN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from fractions import Fraction
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING, NamedTuple

from sqlglot import exp

from dpsql.binding.dp.block_strategies import find_forced, keep_even, note_strategy, refuse_unfit
from dpsql.binding.dp.budget_split import within_limit, within_limits
from dpsql.binding.dp.noisy_aggregates import NOISY_AGGREGATES
from dpsql.binding.dp.noisy_block import NoisyBlock
from dpsql.binding.dp.public_groups import MAX_GROUPS, Pairs, find_public_groups
from dpsql.binding.public_statement import (
    inner_queries,
    install,
    label_of_item,
    make_unique,
    resolve_key,
    spell,
)
from dpsql.binding.relations.binder import Binder, BinderState
from dpsql.binding.relations.relation import Names, column, fold
from dpsql.binding.relations.subqueries import ONCE
from dpsql.binding.relations.windows import refuse_row_choice
from dpsql.errors import Error
from dpsql.exact.exact_query import GroupKey, PublicGroups
from dpsql.language.dialect import bind_error, table_named, to_sql
from dpsql.language.options import NONNEGATIVE, Options, call_of
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Aggregation, Together
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.consistency import CONSISTENCY_SENTENCE, AddingColumn, Consistent, GroupingSet
from dpsql.mechanisms.marginals import (
    SET_COLUMN,
    Marginal,
    Marginals,
    Residual,
    calibrate_together,
    find_shares,
    list_closure,
)
from dpsql.mechanisms.moments import Count, Output, Sum
from dpsql.mechanisms.per_group import Noise
from dpsql.mechanisms.queries import Select, Subquery, Union, cross
from dpsql.mechanisms.strategies import EVEN, MARGINALS, StrategyChoice, choose_strategy
from dpsql.privacy.events import Event, compose_events

if TYPE_CHECKING:
    from dpsql.binding.public_statement import Env

MAX_RESIDUALS = 256
"""Residuals of one block: each has noise of its own, and is added to the marginals above it."""
_NO_DEARER = 1 + Fraction(1, 10**9)
"""The most that the residuals may cost, relative to the sets one by one: 1, and a margin for rounding."""


class Unfit(Exception):
    """Raised internally if MARGINALS does not fit; the reason is public, and a clause."""


@dataclass
class JointBlock(NoisyBlock):
    """The block of the finest cells: the product of the values of all keys."""

    sizes: list[int] = field(default_factory=list)
    others: list[bool] = field(default_factory=list)
    sets: Sequence[NoisyBlock] = ()
    """The blocks of the grouping sets, bound."""

    @property
    def others_use_caps(self) -> bool:
        """Whether a unit's rows with undeclared values, which few sets show, compete with others for its caps."""
        return self.exact.bound.unit is not None and any(self.others)

    def place_groups(self, keys: tuple[GroupKey, ...], typed: Pairs) -> tuple[GroupKey, ...]:
        """Cross the values of all keys, each with a group for rows with other values if there may be any."""
        placed, queries, origins = [], [], []
        nullable, ranged = False, frozenset[str]()
        for key, pair in zip(keys, typed, strict=True):
            own = find_public_groups(self, [pair], self.range_groups())
            if own is None or own.size is None:
                raise Unfit(f"nothing public says how many values {to_sql(self.key_sources[key.name])} has")
            other = not own.complete
            if other and own.nullable:
                raise Unfit(f"NULL is a group of {to_sql(self.key_sources[key.name])}")
            self.sizes.append(own.size + other)
            self.others.append(other)
            nullable = nullable or other or own.nullable
            ranged |= own.ranged
            origins.append(own.origin)
            query = own.query
            if other:
                within, missing = own.holds([f"({key.sql})"], [key], "within"), f"CAST(NULL AS {key.type})"
                key = replace(key, sql=f"CASE WHEN {within} THEN {key.sql} END")
                both = Union((Select(key.name, Subquery(own.query, "listed")), Select(missing)))
                query = Select(key.name, Subquery(both, "extended"), distinct=True)
            placed.append(key)
            queries.append(query)
        whole = math.prod(self.sizes)
        if whole > MAX_GROUPS:
            raise Unfit(f"the product of the keys' values has more than {MAX_GROUPS:,} cells")
        origin = " and ".join(dict.fromkeys(origins))
        crossed = cross(*(Subquery(query, f"d{i}") for i, query in enumerate(queries)))
        domain = Select(tuple(key.name for key in placed), crossed)
        self.domain = PublicGroups(domain, whole, origin, nullable, ranged=ranged)
        self.keys = dict(zip(self.keys, placed, strict=True))
        return tuple(placed)

    def bind_clauses(self) -> None:
        self.exact.later = tuple(self._list_hidden())
        super().bind_clauses()

    def _list_hidden(self) -> Iterator[str]:
        """Yield the conditions under which each set hides a cell; if sets aren't nested, those of undeclared values."""
        named = {text: key.name for text, key in self.keys.items()}
        open_keys = {name for name, other in zip(named.values(), self.others, strict=True) if other}
        if not self.is_nested:
            yield from (f"{name} IS NULL" for name in named.values() if name in open_keys)
            return
        seen: set[str] = set()
        for block in self.sets:
            parts = [f"{named[text]} IS NULL" for text in block.keys if named[text] in open_keys]
            if block.domain is not None and self.has_listing(block):
                values = [named[text] for text in block.keys]
                parts.append(f"NOT {block.domain.holds(values, tuple(block.keys.values()), 'shown')}")
            if parts and (condition := " OR ".join(sorted(parts))) not in seen:
                seen.add(condition)
                yield condition

    def has_listing(self, block: NoisyBlock) -> bool:
        """Return whether a set has fewer groups than its keys' values crossed."""
        places = [list(self.keys).index(text) for text in block.keys]
        full = math.prod(self.sizes[i] - self.others[i] for i in places)
        return block.domain is not None and block.domain.size != full

    @property
    def is_nested(self) -> bool:
        """Whether of any two sets that hide cells one hides all that the other does."""
        others = dict(zip(self.keys, self.others, strict=True))
        listings = [block for block in self.sets if self.has_listing(block)]
        if any(block.domain is not None and block.domain.nullable for block in listings):
            return False
        hiding = [
            {text for text in block.keys if listings or others[text]}
            for block in self.sets
            if block in listings or any(others[text] for text in block.keys)
        ]
        hiding.sort(key=len)
        return all(one <= other for one, other in pairwise(hiding))

    def _protection(self) -> tuple[str, ...]:
        if not self.exact.later or self.exact.bound.unit is None:
            return super()._protection()
        if not self.is_nested:
            return (*super()._protection(), _LAST)
        first = "If caps leave out rows, a privacy unit's rows that more of the grouping sets show are kept first."
        return (*super()._protection(), first)


@dataclass
class MarginalsChoice:
    """The choice for grouping sets: their blocks one by one, or one block ``joint`` for all.

    ``choice`` is the strategy, with the errors of all that fit (None if only EVEN does); ``places`` has each set's marginal.
    """

    choice: StrategyChoice | None = None
    joint: JointBlock | None = None
    places: Sequence[int] = ()


def choose_for_sets(
    binder: Binder, options: Options, blocks: Sequence[NoisyBlock], join: Callable[[], JointBlock]
) -> MarginalsChoice:
    """Choose how grouping sets are measured; under MARGINALS, one block replaces those of the plan.

    Args:
        binder: of the statement, whose plan has the blocks.
        options: of the statement.
        blocks: of the sets one by one, bound, with their noise calibrated together.
        join: makes the block of the finest cells, not bound yet.

    Raises:
        BindError: MARGINALS is requested, and does not fit.
    """
    if find_forced(options) == EVEN and "strategy" not in options.nodes:
        return MarginalsChoice()  # the errors of other strategies are not needed
    before = BinderState(binder)
    try:
        operator, places, joint = _plan(binder, blocks, join)
    except (Unfit, Error) as reason:
        before.restore()
        refuse_unfit(options, (), reason.message.rstrip(".") if isinstance(reason, Error) else str(reason))
        return MarginalsChoice()
    plain = [(block, find_operator(binder, block)) for block in blocks]
    cells = [_count_cells(block) for block in blocks]
    joined = [operator.outputs[at] for at in places]
    errors = {
        EVEN: _measure(zip((_outputs_of(one) for _, one in plain), cells, strict=True), blocks[0]),
        MARGINALS: _measure(zip(joined, cells, strict=True), blocks[0]),
    }
    forced = find_forced(options)
    dearer = _costs_more(binder, operator.event, [one.event for _, one in plain])
    loss = _find_loss(joint)
    choice = choose_strategy(errors, forced)
    ratios = _find_worst(operator, [(places[i], one) for i, (_, one) in enumerate(plain)])
    if forced is None and choice.chosen == MARGINALS and max(ratios.values()) > WORST_SET:
        loss = _ONE_SET.format(max(ratios, key=lambda name: ratios[name]))
    if forced is None and choice.chosen == MARGINALS and (dearer or loss):
        before.restore()
        if not dearer:
            binder.limits.append(_LESS_NOISE.format(loss))
        return MarginalsChoice()
    if choice.chosen != MARGINALS:
        before.restore()
        note_strategy(binder, blocks[0].name, choice)
        return MarginalsChoice(choice)
    own = next(block for block in binder.blocks if block.name == joint.name)
    gone = {block.name for block in blocks}
    for name in gone:
        binder.intervals.pop(name, None)
        binder.noise_steps.pop(name, None)
    kept = [block for block in binder.blocks if block.name not in gone and block.name != joint.name]
    sentences, columns = (*own.sentences, *_say_worse(ratios)), ((SET_COLUMN, "INTEGER"), *own.columns)
    sets = () if choice.forced else tuple(block for block in binder.blocks if block.name in gone)
    own = replace(own, columns=columns, operator=operator, strategy=choice, sentences=sentences, sets=sets)
    binder.blocks[:] = [*kept, own]
    return MarginalsChoice(choice, joint, places)


def _say_worse(ratios: Mapping[str, float]) -> Iterator[str]:
    """Yield sentences on the sets whose numbers are less exact than alone, and on the bound that all sets meet."""
    worse = {name: ratio for name, ratio in ratios.items() if ratio > _NOTABLY}
    if worse:
        yield _WORSE.format(", ".join(f"{name} ({ratio:.3g} times)" for name, ratio in worse.items()))
        if max(worse.values()) <= WORST_SET:
            yield f"The noise of each set is chosen so that no set has more than {WORST_SET:g} times its own error alone."


def find_operator(binder: Binder, block: NoisyBlock) -> Operator:
    """Return the operator of a block of the plan."""
    return next(item.operator for item in binder.blocks if item.name == block.name)


def _outputs_of(operator: Operator) -> tuple[Output, ...]:
    assert isinstance(operator, Aggregation)
    return operator.outputs


def _plan(
    binder: Binder, blocks: Sequence[NoisyBlock], join: Callable[[], JointBlock]
) -> tuple[Marginals, list[int], JointBlock]:
    """Bind the block of the finest cells, and return the operator of all marginals, with each set's place among them.

    Raises:
        Unfit: the sets are not public, or do not add up.
    """
    if not binder.catalog.engine.lossless:
        raise Unfit("an engine other than DuckDB answers set by set")
    for block in blocks:
        _check_adds_up(block, find_operator(binder, block))
    if len({frozenset(block.keys) for block in blocks}) < 2:
        raise Unfit("there is one set of keys here")
    joint = join()
    joint.sets = blocks
    joint.bind()
    if joint.others_use_caps and joint.exact.groups is None and not joint.exact.budgeted:
        raise Unfit("the cap on groups is as large as the number of all cells")
    table = find_operator(binder, joint)
    _check_adds_up(joint, table)
    assert isinstance(table, Aggregation)
    order = {text: place for place, text in enumerate(joint.keys)}
    asked = [tuple(sorted(order[text] for text in block.keys)) for block in blocks]
    marginals: dict[tuple[int, ...], Marginal] = {}
    for places, block in sorted(zip(asked, blocks, strict=True), key=lambda pair: (-len(pair[0]), pair[0])):
        marginals.setdefault(places, _make_marginal(places, block, joint))
    residuals = list_closure(marginals, joint.sizes)
    if len(residuals) > MAX_RESIDUALS:
        raise Unfit(f"they have more than {MAX_RESIDUALS} sets of keys in common")
    if len(residuals) < 2:
        raise Unfit("no key has two values")
    groups = [(places, _count_cells(block)) for places, block in zip(asked, blocks, strict=True)]
    plain = [_outputs_of(find_operator(binder, block)) for block in blocks]
    limits = [_find_limit(outputs, table.outputs) for outputs in plain]
    noise = table.statistics[0].noise
    shares = find_shares(noise, joint.sizes, residuals, groups, limits)
    shares = shares or find_shares(noise, joint.sizes, residuals, groups)
    assert shares is not None
    measured = tuple(Residual(p, share) for p, share in zip(residuals, shares, strict=True))
    sizes, others = tuple(joint.sizes), tuple(joint.others)
    operator = Marginals(table, sizes, others, tuple(marginals.values()), measured)
    found = list(marginals)
    return operator, [found.index(places) for places in asked], joint


def _find_limit(plain: Sequence[Output], table: Sequence[Output]) -> float:
    """Return the most variance of a set's cells, in parts of the finest cells' own: for the output with the least room."""
    pairs = zip(plain, table, strict=True)
    return WORST_SET**2 * min(_variance(own) / _variance(finest) for own, finest in pairs)


def _find_worst(operator: Marginals, plain: Sequence[tuple[int, Operator]]) -> dict[str, float]:
    """Return the ratio of each set's error to that of the set alone, by name; ``plain``: its marginal's place, and operator."""
    found: dict[str, float] = {}
    for place, one in plain:
        pairs = zip(operator.outputs[place], _outputs_of(one), strict=True)
        ratio = math.sqrt(max(_variance(mine) / _variance(its) for mine, its in pairs))
        found[operator.marginals[place].name or "nothing"] = ratio
    return found


def _make_marginal(places: tuple[int, ...], block: NoisyBlock, joint: JointBlock) -> Marginal:
    names = list(joint.keys.values())
    own = {key.name: text for text, key in block.keys.items()}
    order = sorted(own, key=lambda name: list(joint.keys).index(own[name]))
    listing = ""
    if block.domain is not None and joint.has_listing(block):
        listing = Select(tuple(order), Subquery(block.domain.query, "listed")).sql
    shown = ", ".join(to_sql(joint.key_sources[names[i].name]) for i in places)
    return Marginal(places, _count_cells(block), listing, shown)


def _count_cells(block: NoisyBlock) -> int:
    return 1 if block.domain is None or block.domain.size is None else block.domain.size


def _check_adds_up(block: NoisyBlock, operator: Operator) -> None:
    """Raise Unfit unless a block has public groups, and cells of counts and sums that add up."""
    if type(operator) is not Aggregation or not operator.outputs:
        raise Unfit("an aggregate is no count or sum with known caps")
    if block.keys and (block.domain is None or block.domain.size is None):
        raise Unfit("not all groups are public")
    fixed = {partial.name for partial in block.exact.partials if partial.fixed}
    for output in operator.outputs:
        if not isinstance(output, Count | Sum) or output.statistic.column in fixed:
            raise Unfit(f"{output.name} does not add up over groups")


def _measure(sets: Iterable[tuple[Sequence[Output], int]], block: NoisyBlock) -> dict[str, float]:
    """Return the root mean squared error of one cell by column, over all cells of all sets."""
    sets = list(sets)
    cells = sum(count for _, count in sets)
    found = {}
    for place, item in enumerate(block.asked.values()):
        total = math.fsum(count * _variance(outputs[place]) for outputs, count in sets)
        found[item.name] = math.sqrt(total / cells)
    return found


def _variance(output: Output) -> float:
    noise: Noise = output.statistics[0].noise
    steps = output.steps if isinstance(output, Sum) else Fraction(1)
    return noise.variance / float(steps) ** 2


WORST_SET = 1.3
"""The largest ratio of a set's error to its error alone that AUTO accepts."""
_NOTABLY = 1.05
"""The ratio above which EXPLAIN names a set as less exact than alone."""
_WORSE = (
    "All numbers together have less squared error, but those by {} are less exact than set by set: OPTIONS (strategy = EVEN), or "
    "a statement for these sets alone, has less error there."
)
_LESS_NOISE = (
    "These grouping sets would have less noise if they were measured together (strategy = MARGINALS), but {}: so that is done "
    "only on request."
)
_WHOLE_CELLS = "whole cells of all keys would then be left out"
_ONE_SET = f"the numbers by {{}} would then have more than {WORST_SET:g} times their error"
_LAST = (
    "If caps leave out rows, a privacy unit's rows with declared values in all keys are kept first; rows with other values may "
    "be left out of sets that would show them alone."
)


def _find_loss(joint: JointBlock) -> str:
    """Return the loss of units compared with the sets one by one, as a clause; empty if there is none."""
    exact = joint.exact
    many = exact.bound.unit is not None and exact.rows_in_group != 1 and not exact.budgeted
    return _WHOLE_CELLS if many and exact.groups is not None and exact.shared_rows is None else ""


def _costs_more(binder: Binder, joint: Event, single: Sequence[Event]) -> bool:
    """Return whether one block for all sets would cost a session that sums rho or mu more than blocks one by one."""
    if not binder.catalog.has_rule:
        return False
    plain = compose_events(single)
    return joint.rho > plain.rho * _NO_DEARER or joint.mu > plain.mu * _NO_DEARER


# -- the statement above ----------------------------------------------------------------------------------------------


def read_marginal(part: exp.Select, block: NoisyBlock, joint: JointBlock, place: int) -> None:
    """Make the SELECT of one grouping set read its rows of the joint release, by the names of its own block."""
    texts = list(joint.asked)
    pairs = [(joint.keys[text].name, key.name) for text, key in block.keys.items()]
    pairs += [(joint.asked[text].name, item.name) for text, item in block.asked.items() if text in texts]
    inner = exp.Select(
        expressions=[exp.alias_(column(theirs), own, quoted=True) for theirs, own in pairs]
    ).from_(table_named(joint.name), copy=False)
    inner = inner.where(exp.EQ(this=column(SET_COLUMN), expression=exp.Literal.number(place)), copy=False)
    part.args["from_"].set("this", inner.subquery(block.name, copy=False))


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
    """Return whether an expression contains a SQL window function, or the name of an item with one.

    A bare name after OVER is that of a mechanism's histogram; a query has windows of its own.
    """
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
    """One key of a grouping set: an expression over rows, or an item by its name or place.

    Two items that are equal are two keys, as for DuckDB: ``SELECT w AS a, w AS b ... ROLLUP (a, b)``.
    """

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
    """Calibrate Gaussian noise once for all sets."""
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
        sets = tuple(GroupingSet(b.name, _columns(b, keys), _adding(b, operator)) for b, operator in found)
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
    """Yield the sets that one block releases."""
    joint = chosen.joint
    assert joint is not None
    operator, names = find_operator(binder, joint), _columns(joint, nodes)
    assert isinstance(operator, Marginals)
    for place in dict.fromkeys(chosen.places):
        own = _columns(blocks[chosen.places.index(place)], nodes)
        keys = tuple(name if has is not None else None for name, has in zip(names, own, strict=True))
        table = replace(operator.table, outputs=operator.outputs[place])
        yield GroupingSet(joint.name, keys, _adding(joint, table), place)


def _adding(block: NoisyBlock, operator: Operator) -> tuple[AddingColumn, ...]:
    aggregation = operator.aggregation if isinstance(operator, Together) else operator
    if not isinstance(aggregation, Aggregation):
        return ()
    fixed = {partial.name for partial in block.exact.partials if partial.fixed}
    found = []
    for output in aggregation.outputs:
        if not isinstance(output, Count | Sum) or output.statistic.column in fixed:
            continue  # a mean, or a number of units, each of which counts once in each cell
        steps = output.steps if isinstance(output, Sum) else Fraction(1)
        found.append(AddingColumn(output.name, output.statistic.noise, steps, isinstance(output, Count)))
    return tuple(found)


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
