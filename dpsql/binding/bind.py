"""Binds statements to plans and caches the plans."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from dpsql.binding.dp.period_groups import date_blocks
from dpsql.binding.intervals import OutputFacts
from dpsql.binding.plan import Plan
from dpsql.binding.public_statement import (
    Cte,
    Finish,
    NamedResult,
    OwnNames,
    find_held_columns,
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
)
from dpsql.binding.relations.relation import fold
from dpsql.binding.relations.scanned_periods import mark_scans
from dpsql.binding.statement_binder import StatementBinder
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
from dpsql.privacy.periods import Days


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
                made = _bind(statement, catalog, finish, thresholds, today, only=days, whole=plan)
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
    whole: Plan | None = None,
) -> Plan:
    """Return the plan of a query.

    Args:
        today: in the policy's time zone, with a budget per period.
        by_sets: as for :class:`StatementBinder`.
        only: as for :func:`mark_scans`.
        whole: the plan over all days asked for, of which only the blocks are replaced by those over the days of ``only``.
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
            narrowed=only is not None,
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
        _refuse_frames(nodes)
        refuse_repeated_names(nodes)
        with one_statement(), note_in(binder.notes, binder.limits):
            if binder.query(tree, env, inner=False) is not None:
                raise AssertionError("private rows left the statement")
            _note_time(binder, statement, times)
            prepend_kept_results(tree, kept)
            refuse_public_joins(tree)
            for choose in binder.when_whole:
                choose(tree)
            if whole is not None:
                return replace(whole, blocks=date_blocks(binder))
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


_MOST_DISTANCE = 2**63 - 1
"""The greatest number in a frame, as DuckDB reads it."""


def _refuse_frames(nodes: Iterable[exp.Expr]) -> None:
    """Raise BindError for frames that SQL doesn't have: they end before they start, or their numbers are too large."""
    for window in nodes:
        spec = window.args.get("spec") if isinstance(window, exp.Window) else None
        if spec is None:
            continue
        shown, places = [], []
        for key in ("start", "end"):
            end, side = spec.args.get(key) or "CURRENT ROW", str(spec.args.get(f"{key}_side") or "").upper()
            text = to_sql(end) if isinstance(end, exp.Expr) else str(end).upper()
            size = 2 if text == "UNBOUNDED" else 1
            places.append({"PRECEDING": -size, "FOLLOWING": size}.get(side, 0))
            shown.append(f"{text} {side}".strip())
            if isinstance(end, exp.Literal) and end.name.isdigit() and int(end.name) > _MOST_DISTANCE:
                what = "this number of rows in a frame is too large."
                raise bind_error(window, what, "write UNBOUNDED instead of it.")
        if places[0] > places[1] or places[0] == 2 or places[1] == -2:
            what = f"a frame can't start at {shown[0]} and end at {shown[1]}."
            hint = "write the earlier end first, such as ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING."
            raise bind_error(window, what, hint)


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
    facts = OutputFacts.of(tree, binder, kept)
    if binder.key_values:
        _refuse_undeclared(tree, binder, facts)
    intervals, missing = facts.write_intervals()
    finish = write_public(tree)
    direct = renamed(tree, binder.blocks) if not binder.adjustments else None
    if direct is not None and all(item.fits for item in direct):
        shown = [item.name for item in direct]
    else:
        described = public_columns(binder.finish, finish, [*binder.blocks, *facts.widths], binder.public)
        shown = [name for name, _ in described]
    hidden_names = {key for item in intervals for key in (item.low, item.high)}
    columns = tuple(name for name in shown if name not in hidden_names)
    traced, spreads = facts.trace(columns)
    return Plan(
        text, date_blocks(binder), finish, columns, tuple(binder.public), tuple(intervals), facts.confidence,
        tuple(dict.fromkeys([*binder.notes, *missing])), tuple(binder.adjustments), direct,
        limits=tuple(dict.fromkeys(binder.limits)), shared=tuple(binder.shared),
        traced=traced, ranged=tuple(binder.ranged), size=binder.written.size, widths=facts.widths,
        window_errors=facts.window_errors, spreads=spreads,
    )  # fmt: skip


def _refuse_undeclared(tree: exp.Expr, binder: StatementBinder, facts: OutputFacts) -> None:
    """Raise BindError for a comparison of a released key with a constant that is not among its declared values."""
    for select in tree.find_all(exp.Select):

        def find(node: exp.Column, select: exp.Select = select) -> Declared | None:
            released = facts.known.find_term(select, node)
            return None if released is None else binder.key_values.get(released)

        check_released(select, find)


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
