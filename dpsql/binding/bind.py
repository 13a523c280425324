"""Binds statements to plans and caches the plans."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from dpsql.binding.dp.public_groups import PeriodGroups
from dpsql.binding.intervals import (
    Shapes,
    divide_exactly,
    propagate_intervals,
    propagate_union_intervals,
    replace_interval_calls,
)
from dpsql.binding.plan import IntervalColumns, PeriodParts, Plan, PrivateBlock
from dpsql.binding.public_statement import (
    FORETOLD,
    Cte,
    Finish,
    NamedResult,
    OwnNames,
    find_named,
    label_of_item,
    list_taken,
    name_kept_results,
    prepend_kept_results,
    public_columns,
    renamed,
    spell,
)
from dpsql.binding.relations.catalog import Catalog, resolve_table_names
from dpsql.binding.relations.plan_size import (
    refuse_public_joins,
    refuse_repeated_names,
    write_public,
    write_shared,
)
from dpsql.binding.relations.relation import fold
from dpsql.binding.relations.scanned_periods import Scan, find_scans, mark_scans
from dpsql.binding.relations.unit_rows import find_held_columns
from dpsql.binding.relations.windows import refuse_frames
from dpsql.binding.statement_binder import StatementBinder
from dpsql.binding.traced_columns import Facts, PublicColumns, WindowEnds, list_facts
from dpsql.binding.values.declared_values import Declared, check_released, note_in, one_statement
from dpsql.errors import BindError, Error
from dpsql.language.advice import advise_on_function, advise_on_mechanism, advise_on_sign, is_aggregate_name
from dpsql.language.dialect import (
    bind_error,
    copy_tree,
    list_nodes,
    span_of_word,
    spell_statement,
    to_sql,
)
from dpsql.language.spellings import fold_clocks
from dpsql.language.statements import Statement
from dpsql.mechanisms.base import ErrorBasis, list_claims
from dpsql.mechanisms.histograms import EACH_BIN
from dpsql.mechanisms.window_widths import WindowWidths
from dpsql.privacy.periods import Days, unite_periods


def bind(
    statement: Statement,
    catalog: Catalog,
    finish: Finish,
    thresholds: dict[str, Any] | None = None,
    narrowed: dict[Days, Plan] | None = None,
) -> Plan:
    """Return the plan of a query: its private blocks, and the SQL over their releases.

    Args:
        narrowed: the statement's plans over other days, also those of earlier calls, to which further ones are added.

    Raises:
        BindError: names, types or options that don't fit.
        PrivacyError: it can't be released privately.
    """
    today = catalog.policy.today_per_period
    plan = _bind(statement, catalog, finish, thresholds, today)
    if any(block.parts is not None for block in plan.blocks):
        known = {} if narrowed is None else narrowed

        def narrow(days: Days) -> Plan:
            made = known.get(days)
            if made is None:
                made = _bind(statement, catalog, finish, thresholds, today, only=days)
                scans = [read for block in made.blocks if block.parts for _, read, _ in block.parts.scans]
                if all(read == days for read in scans):  # not if the data end before
                    if len(known) >= _NARROWED:
                        known.clear()
                    known[days] = made
            return made

        return replace(plan, narrow=narrow)
    together = [block.strategy for block in plan.blocks if block.sets and block.strategy is not None]
    if not together:
        return plan

    def bind_by_sets() -> Plan:
        made = _bind(statement, catalog, finish, thresholds, today, by_sets=True)
        gain = f"MARGINALS would have {min(choice.gain for choice in together):.3g} times less error"
        note = f"this stored answer has each number measured alone: asked again as fresh, {gain}"
        return replace(made, notes=(*made.notes, note), limits=(*made.limits, f"Strategy: {note}."))

    return replace(plan, by_sets=bind_by_sets)


_NARROWED = 8
"""The most plans of a statement over other days that are cached."""


def _bind(
    statement: Statement,
    catalog: Catalog,
    finish: Finish,
    thresholds: dict[str, Any] | None,
    today: datetime.date | None,
    by_sets: bool = False,
    only: Days | None = None,
) -> Plan:
    """Return the plan of a query.

    Args:
        today: in the policy's time zone, with a budget per period.
        by_sets: as for :class:`StatementBinder`.
        only: as for :func:`mark_scans`.
    """
    assert statement.tree is not None
    tree = copy_tree(statement.tree)
    try:
        resolve_table_names(tree, catalog)
    except Error as error:
        raise error.located(statement.text) from None
    try:
        nodes = list_nodes(tree)
        names = OwnNames(list_taken(nodes, catalog.kept.values()))
        held = find_held_columns(nodes)
        binder = StatementBinder(
            catalog,
            finish,
            thresholds or {},
            held=held,
            own_names=names,
            by_sets=by_sets,
            named=find_named(nodes),
            today=today,
        )
        times = _fold_clocks(tree, statement, finish)
        mark_scans(tree, catalog.policy, today, catalog.kept, catalog.is_date, only)
        text = spell_statement(tree)
        kept = name_kept_results(tree, catalog.kept, names.taken)
        binder.public.update((item.kept.table, None) for item in kept)
        env = {fold(item.cte.alias): Cte(item.cte.alias, tree=item.cte) for item in kept}
        nodes = list_nodes(tree)  # without the clocks, and with the days
        if any(isinstance(node, exp.Into | exp.DML | exp.Command | exp.Create | exp.Copy) for node in nodes):
            raise BindError("only SELECT is answered.", hint="dpsql only answers questions: write a query.")
        _refuse_other_names(nodes, catalog.functions)
        refuse_frames(nodes)
        refuse_repeated_names(nodes)
        with one_statement(), note_in(binder.notes, binder.limits):
            if binder.query(tree, env, inner=False) is not None:
                raise AssertionError("private rows left the statement")
            _note_time(binder, statement, times)
            return _plan(binder, tree, text, kept)
    except RecursionError:
        raise BindError("the statement is nested too deeply.", text=statement.text) from None
    except Error as error:
        if isinstance(error, BindError) and error.name is not None and error.span is None:
            error.span = span_of_word(statement.text, error.name)
        if error.span is not None:
            error.hint = advise_on_sign(statement.text, error.span) or error.hint
        raise error.located(statement.text) from None


def _fold_clocks(tree: exp.Expr, statement: Statement, finish: Finish) -> list[str]:
    """Replace the present time by the statement's own, in place; return the texts of times within an hour."""
    if statement.now is None:
        return []
    return fold_clocks(
        tree,
        statement.now,
        lambda sql: finish.keep(sql).column(0)[0].as_py(),
        lambda n: label_of_item(n) or spell(n),
    )


def _note_time(binder: StatementBinder, statement: Statement, times: Collection[str]) -> None:
    """Note a time in the exact queries, by which the statement is a new question whenever it is asked."""
    texts = [text for block in binder.blocks for text in block.operator.checked]
    if any(time in text for time in times for text in texts):
        binder.notes.append(
            f"now is {statement.now:%Y-%m-%d %H:%M:%S} UTC here: later it is a new question; CURRENT_DATE and "
            "date_trunc('day', now()) repeat for a day"
        )


def fold_scalars(select: exp.Select, catalog: Catalog, finish: Finish) -> None:
    """Replace queries of released numbers in a DECLARE by their values; BindError or PrivacyError for other queries."""
    with one_statement():
        names = OwnNames(list_taken(list_nodes(select), catalog.kept.values()))
        StatementBinder(catalog, finish, {}, own_names=names).fold_threshold(select)


def _refuse_other_names(nodes: Iterable[exp.Expr], registered: Collection[str]) -> None:
    """Raise BindError, with DuckDB's name, for other systems' function names and misspelt mechanisms, unless registered."""
    for node in nodes:
        if not isinstance(node, exp.Func):
            continue
        name = node.meta.get("called", "")
        advice = advise_on_function(name, partial(_write_argument, node))
        if advice is None and isinstance(node, exp.Anonymous) and not is_aggregate_name(name):
            advice = advise_on_mechanism(name)
        if advice is not None and fold(name) not in map(fold, registered):
            raise bind_error(node, *advice)


def _write_argument(call: exp.Func) -> str:
    """Return the text of a call's first argument for a hint; ``x`` if it is a star, has a query, or is missing."""
    argument = next(call.iter_expressions(), None)
    return "x" if argument is None or argument.is_star or argument.find(exp.Query) else to_sql(argument)


def _plan(binder: StatementBinder, tree: exp.Expr, text: str, kept: list[NamedResult]) -> Plan:
    prepend_kept_results(tree, kept)
    refuse_public_joins(tree)
    for choose in binder.when_whole:
        choose(tree)
    levels = {item.kept.confidence for item in kept}
    intervals: list[IntervalColumns] = []
    results = {item.kept.table: {name: (low, high) for name, low, high in item.kept.ends} for item in kept}
    all_levels = {block.confidence for block in binder.blocks} | levels
    level = next(iter(all_levels)) if len(all_levels) == 1 else None
    wholes = {
        block.name: {name for name, kind in block.columns if kind in ("BIGINT", "HUGEINT")}
        for block in binder.blocks
    }
    relations = _list_relations(binder, kept)
    known = PublicColumns(tree, relations)
    if binder.key_values:
        _refuse_undeclared(tree, binder, known)
    windows = WindowEnds(tree, binder.ordered_releases, binder.noise_steps, binder.name, known)
    shapes = Shapes(
        known,
        binder.intervals,
        results,
        binder.name,
        windows.find,
        binder.noise_steps,
        wholes,
        level,
        binder.rounded,
    )
    replace_interval_calls(tree, shapes, spell)
    missing: list[str] = []
    if isinstance(tree, exp.Select):
        _name_items(tree, binder)
        ends, missing = propagate_intervals(tree, shapes)
        for name, low, high in ends:
            keys = (binder.name("low"), binder.name("high"))
            for key, node in zip(keys, (low, high), strict=True):
                tree.append("expressions", exp.alias_(node, key, quoted=True, copy=False))
            intervals.append(IntervalColumns(name, *keys))
    else:
        found = propagate_union_intervals(tree, shapes)
        intervals += [IntervalColumns(*ends) for ends in found]
    divide_exactly(tree, shapes, spell)
    finish = write_public(tree)
    direct = renamed(tree, binder.blocks) if not binder.adjustments else None
    if direct is not None and all(item.fits for item in direct):
        shown = [item.name for item in direct]
    else:
        released: list[PrivateBlock | WindowWidths] = [*binder.blocks, *windows.widths.values()]
        shown = [name for name, _ in public_columns(binder.finish, finish, released, binder.public)]
    hidden_names = {key for item in intervals for key in (item.low, item.high)}
    columns = tuple(name for name in shown if name not in hidden_names)
    confidence = binder.blocks[-1].confidence if binder.blocks else next(iter(levels), 0.95)
    outputs = PublicColumns(tree, relations, windows.name_window)
    traced = outputs.trace_outputs()
    widths = [
        (name, facts[0].widths)
        for name in columns
        if columns.count(name) == 1 and (facts := outputs.find_columns(tree, name))
    ]
    return Plan(
        text, _date_blocks(binder), finish, columns, tuple(binder.public), tuple(intervals), confidence,
        tuple(dict.fromkeys([*binder.notes, *missing])), tuple(binder.adjustments), direct,
        limits=tuple(dict.fromkeys(binder.limits)), shared=tuple(binder.shared),
        traced=traced, ranged=tuple(binder.ranged), size=binder.written.size, widths=tuple(windows.widths.values()),
        window_errors=tuple(windows.named.values()),
        spreads=tuple((name, width) for name, both in widths if len(both) == 1 for width in both),
    )  # fmt: skip


def _date_blocks(binder: StatementBinder) -> tuple[PrivateBlock, ...]:
    """Return the blocks, each with the periods that it reads; prepaid ones are paid by all periods."""
    if binder.today is None:
        return tuple(binder.blocks)
    return tuple(_date_block(binder, block) for block in binder.blocks)


def _date_block(binder: StatementBinder, block: PrivateBlock) -> PrivateBlock:
    texts = [*block.operator.checked, *(claimed.text for claimed in list_claims(block.operator))]
    whole = " ".join(write_shared(text, binder.catalog.shared) for text in dict.fromkeys(texts))
    scans = find_scans(binder.scans, whole)
    every = block.prepaid or not scans
    periods = None if every else unite_periods(scan.periods for scan in scans)
    parts = None if every else _find_parts(binder, block, scans)
    sets = tuple(_date_block(binder, one) for one in block.sets)
    return replace(block, periods=periods, parts=parts, sets=sets, closed=_find_closed(binder, scans))


def _find_closed(binder: StatementBinder, scans: Iterable[Scan]) -> frozenset[str]:
    """Return the tables that declare the periods of scans, if none of the days that are read may change."""
    tables, today = binder.catalog.policy.tables, binder.today
    assert today is not None
    dated = [scan for scan in scans if scan.periods is not None]
    still = {scan.holder for scan in dated if scan.days[-1][1] > tables[scan.holder].find_closed(today)}
    return frozenset(scan.holder for scan in dated) - still


def _find_parts(binder: StatementBinder, block: PrivateBlock, scans: Sequence[Scan]) -> PeriodParts | None:
    """Return the parts of a block: it must read equal periods of all tables, and no earlier release."""
    found: PeriodGroups | None = binder.period_groups.get(block.name)
    if found is None or not block.operator.divides or len({scan.periods for scan in scans}) > 1:
        return None
    names = [other.name for other in binder.blocks]
    if any(FORETOLD in item.sql or any(name in item.sql for name in names) for item in block.inputs):
        return None
    tables, today = binder.catalog.policy.tables, binder.today
    period = tables[scans[0].holder].declared_period if scans[0].periods is not None else None
    if period is None or today is None:
        return None
    read = ((scan.holder, scan.days, tables[scan.holder].find_closed(today)) for scan in scans)
    return PeriodParts(period.part, found.keys, found.starts, found.classes, tuple(sorted(read)))


def _refuse_undeclared(tree: exp.Expr, binder: StatementBinder, known: PublicColumns) -> None:
    """Raise BindError for a comparison of a released key with a constant that is not among its declared values."""
    for select in tree.find_all(exp.Select):

        def find(node: exp.Column, select: exp.Select = select) -> Declared | None:
            released = known.find_term(select, node)
            return None if released is None else binder.key_values.get(released)

        check_released(select, find)


def _list_relations(
    binder: StatementBinder, kept: Iterable[NamedResult]
) -> dict[str, list[tuple[str, Facts]]]:
    """Return the facts about the columns of releases and kept results; kept results have no traces."""
    bins = _list_bins(binder.blocks)
    found = {}
    for block in binder.blocks:
        names, steps = [name for name, _ in block.columns], binder.noise_steps.get(block.name, {})
        shown = binder.intervals.get(block.name, ())
        found[block.name] = list_facts(block.name, names, steps, bins[block.name], shown)
    for item in (one.kept for one in kept):
        listed = list_facts(item.table, item.columns, {}, dict(item.bins), {name for name, *_ in item.ends})
        found[item.table] = [(name, replace(facts, sums=(), released=None)) for name, facts in listed]
    return found


def _name_items(tree: exp.Select, binder: StatementBinder) -> None:
    """Give items without an alias, in place, the engine's names, by which intervals find their columns."""
    items = tree.expressions
    kinds = (exp.Alias, exp.Column)
    named = [isinstance(i, kinds) or (isinstance(i, exp.Subquery) and bool(i.alias)) for i in items]
    stars = [at for at, item in enumerate(items) if item.is_star]
    if len(stars) > 1 or all(named) or any(item.find(exp.Columns, exp.Unnest) for item in items):
        return  # an item of many columns hides the others' positions
    shown = public_columns(binder.finish, to_sql(tree), binder.blocks, binder.public)
    spread = len(shown) - len(items)
    for at, item in enumerate(items):
        if not named[at] and not item.is_star:
            name, _ = shown[at + spread if stars and at > stars[0] else at]
            alias = exp.Alias(alias=exp.to_identifier(name, quoted=True))
            item.replace(alias)
            alias.set("this", item)


def _list_bins(blocks: Sequence[PrivateBlock]) -> dict[str, dict[str, float]]:
    """Return the half widths of histograms' counts, by the relation of a block and its column."""
    bases = {block.name: ErrorBasis(confidence=block.confidence) for block in blocks}
    return {
        b.name: {e.name: e.error for e in b.operator.errors(bases[b.name]) if e.condition == EACH_BIN}
        for b in blocks
    }


# -- the cache of plans -----------------------------------------------------------------------------------------

_MAX_PLANS = 200


class _Watched:
    """Records whether a finisher read public rows that may change; ``kept`` are cached queries, and their tables."""

    def __init__(self, finisher: Finish) -> None:
        self._finisher = finisher
        self.looked = False
        self.kept: set[str] = set()

    def steady(self, plan: Plan) -> bool:
        """Return whether rebinding would give this plan again."""
        needed = {*plan.public, *(item.sql for block in plan.blocks for item in block.inputs)}
        return not self.looked and needed <= self.kept

    def describe(
        self, sql: str, relations: Mapping[str, Sequence[tuple[str, str]]], public: Iterable[str] = ()
    ) -> list[tuple[str, str]]:
        return self._finisher.describe(sql, relations, public)

    def finish(self, sql: str, relations: Mapping[str, pa.Table], public: Iterable[str] = ()) -> pa.Table:
        self.looked = True
        return self._finisher.finish(sql, relations, public)

    def repeats(self, sql: str, public: Iterable[str] = ()) -> bool:
        return self._finisher.repeats(sql, public)

    def keep(self, sql: str, public: Iterable[str] = ()) -> pa.Table:
        self.kept |= {sql, *public}
        return self._finisher.keep(sql, public)


class Plans:
    """Binds statements, each text once for each default epsilon.

    A plan depends on the statement's text, the policy and the schema, which a catalog caches. Statements with further
    inputs are bound anew: parameters, the present day, thresholds, registered functions, kept results, and public rows
    that the session doesn't cache. So are refusals.

    ``check`` refuses a plan that would not run, before any price is named: a cached plan was checked.
    """

    def __init__(self, finisher: Finish, check: Callable[[Plan], None]) -> None:
        self._finisher, self._check = finisher, check
        self._kept: dict[tuple[object, ...], Plan] = {}
        self._narrowed: dict[tuple[object, ...], dict[Days, Plan]] = {}
        """Plans of statements over other days, which are of every present day."""

    def fold_scalars(self, select: exp.Select, catalog: Catalog) -> None:
        """Replace queries of released numbers in a DECLARE: as :func:`fold_scalars`."""
        fold_scalars(select, catalog, self._finisher)

    def bind(self, statement: Statement, catalog: Catalog, declared: dict[str, Any]) -> Plan:
        """Return the checked plan of a query; errors as for :func:`bind` and of the check."""
        varies = "$" in statement.source or statement.now is not None
        if catalog.functions or catalog.kept or declared or varies:
            plan = bind(statement, catalog, self._finisher, declared)
            self._check(plan)
            return plan
        asked = statement.synthetic, statement.rows
        every = (statement.text, statement.span, asked, catalog.default_epsilon, catalog.epsilon is None)
        key = (every, catalog.policy.today_per_period)
        known = self._kept.get(key)
        if known is not None:
            return known
        watched, narrowed = _Watched(self._finisher), self._narrowed.get(every, {})
        plan = bind(statement, catalog, watched, declared, narrowed)
        self._check(plan)
        if watched.steady(plan):
            if len(self._kept) >= _MAX_PLANS:
                self._kept.clear()
                self._narrowed.clear()
            self._kept[key], self._narrowed[every] = plan, narrowed
        return plan
