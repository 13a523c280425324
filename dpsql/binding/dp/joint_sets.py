"""Grouping sets measured together: the finest cells of all their keys, capped once, and all marginals by ResidualPlanner.

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

Only :mod:`dpsql.binding.dp.grouping_sets` uses it. It is apart because it binds one block, and rewrites no
statement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from itertools import pairwise

from sqlglot import exp

from dpsql.binding.dp.block_strategies import find_forced, note_strategy, refuse_unfit
from dpsql.binding.dp.noisy_block import NoisyBlock
from dpsql.binding.dp.public_groups import MAX_GROUPS, Pairs, find_public_groups
from dpsql.binding.relations.binder import Binder, BinderState
from dpsql.binding.relations.relation import column
from dpsql.errors import Error
from dpsql.exact.exact_query import GroupKey, PublicGroups
from dpsql.language.dialect import table_named, to_sql
from dpsql.language.options import Options
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.marginals import (
    SET_COLUMN,
    Marginal,
    Marginals,
    Residual,
    costs_more,
    find_shares,
    list_closure,
)
from dpsql.mechanisms.moments import Count, Output, Sum
from dpsql.mechanisms.queries import Select, Subquery, Union, cross
from dpsql.mechanisms.strategies import EVEN, MARGINALS, StrategyChoice, choose_strategy

MAX_RESIDUALS = 256
"""Residuals of one block: each has noise of its own, and is added to the marginals above it."""


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
    dearer = binder.catalog.has_rule and costs_more(operator.event, [one.event for _, one in plain])
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
    fixed = block.fixed_columns
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
    steps = output.steps if isinstance(output, Sum) else Fraction(1)
    return output.statistics[0].noise.variance / float(steps) ** 2


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
