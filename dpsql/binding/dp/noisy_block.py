"""A noisy block: SELECT WITH DP over private rows, its aggregates by name, and the operator that releases them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import partial
from typing import ClassVar

from sqlglot import exp

from dpsql.binding.dp.aggregates import NAMED_ARGUMENTS, Aggregate, AggregateCall
from dpsql.binding.dp.block_strategies import (
    MAKERS,
    SOME_SHOWN,
    StepBlock,
    choose_order,
    choose_quantiles,
    find_forced,
    keep_even,
    refuse_unfit,
    show_ranges,
)
from dpsql.binding.dp.budget_split import BudgetShare, choose_selector, deal, find_groups
from dpsql.binding.dp.noise_choice import (
    FittedOutputs,
    MomentNoise,
    NoiseChoice,
    NoiseMaker,
    check_fits,
    deal_epsilons,
    fit_outputs,
)
from dpsql.binding.dp.noisy_aggregates import MOMENTS, NOISY_AGGREGATES, read_as_mean
from dpsql.binding.dp.period_groups import PeriodGroups, find_growing, find_period_groups
from dpsql.binding.dp.private_block import AggregatingBlock
from dpsql.binding.dp.public_groups import MAX_GROUPS, MAX_RANGE_GROUPS, Pairs, find_public_groups
from dpsql.binding.dp.row_queries import quantile_parts, split_quantiles
from dpsql.binding.dp.unit_caps import (
    AutoCaps,
    CapBuilder,
    describe_caps,
    find_auto_caps,
    find_report_share,
    list_cuts,
    make_cut_report,
    note_costly_caps,
    without_auto,
)
from dpsql.exact.exact_query import Exact, GroupKey, write_packed_route
from dpsql.language.dialect import (
    privacy_error,
    to_sql,
)
from dpsql.language.options import Call, Options, call_of, refuse_equals
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Aggregation, NoiseReducedAggregation, Part, Together
from dpsql.mechanisms.base import Operator


@dataclass
class NoisyBlock(AggregatingBlock):
    """A block of noisy aggregates."""

    known: ClassVar[Mapping[str, Callable[[AggregateCall], Aggregate]]] = NOISY_AGGREGATES
    """The supported aggregates, by name."""
    every: Sequence[exp.Expr] = ()
    """The keys of all grouping sets, if it is a block of one of these."""
    blocks: int = 1
    """The number of grouping sets whose noise is calibrated together."""
    noise: MomentNoise | None = None
    """The noise of its moments; before it is bound, that of the first of these blocks."""
    open_keys: tuple[bool, ...] = ()
    """For each key of all grouping sets, whether rows may have values that no group has; set if cells must add up."""
    exact: Exact = field(init=False)
    key_types: Pairs = field(default_factory=list)
    periods: PeriodGroups | None = None
    """The periods of its groups, if the keys decide them and each period has a budget of its own."""
    caps: AutoCaps | None = None
    """The caps on a unit that are found before the answer."""

    def bind(self) -> None:
        """Bind the keys first, by which rows are capped, then every clause above them."""
        if self.blocks == 1:
            refuse_unfit(self.options, MAKERS)
        condition = self.where()
        distinct = self.select.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            what = "DISTINCT ON would choose private rows."
            hint = "aggregate in a subquery first, and choose from its answer."
            raise privacy_error(distinct.args["on"], what, hint)
        if distinct and not self.select.args.get("group"):
            self.select.set("group", exp.Group(all=True))
            self.select.set("distinct", None)
        if self.every and self.options.get("consistent"):
            self.open_keys = self._find_open_keys(self.every)
        expressions = self.group_expressions()
        self.names.check_unit(self.options, self.bound.subject)
        keys, typed = self.bind_keys(expressions)
        keys = self.place_groups(keys, typed)
        self.key_types = typed
        if self.keys and self.domain is None and (keeping := self.find_keeping_join(expressions)):
            self.binder.notes.append(
                f"these groups are private, and small ones left out: {keeping} shows all"
            )
        self._check_strategy()
        self.caps = find_auto_caps(self)
        if self.caps is None:
            self._find_periods()
        self.options = without_auto(self.options, self.caps)
        groups = self._groups() if self.caps is None else self.caps.given
        size = self.domain.most if self.domain is not None else None
        rows, each = self.bound.row_caps(self.options) if self.caps is None else self.caps.fixed
        free = size is not None and groups is not None and size <= groups
        if self.domain is not None and self.domain.per_unit is not None:
            # the text's groups are those of many periods
            groups, free = min(self.domain.per_unit, groups or self.domain.per_unit), False
        known = [n for n in (groups, size, rows) if n is not None]
        self.per_unit_groups = min(known, default=1) if keys else 1
        if keys and self.domain is None and self.per_unit_groups > 1 and groups is None:
            self.binder.notes.append(self._say_many_groups(self.per_unit_groups))
        most_groups = None if free or not keys else groups
        ceiling = None if self.caps is None else self.caps.ceiling
        shares = self.caps is not None or self.options.get("max_groups_contributed") is None
        self.exact = Exact(
            self.bound, condition, keys, each, most_groups, rows, self.domain, ceiling, shares=shares
        )
        consistent = bool(self.options.get("consistent"))  # cells add up exactly in the steps of a plain sum
        calls = self._list_row_numbers()
        sums = (call for call in calls if call.name not in ("COUNT", "COUNT_IF"))
        self.summed = frozenset(self._spell(node) for call in sums for node in call.args)
        calls = [] if consistent else calls
        self.weighs_rows = len({self.write_call(call) for call in calls}) > 1
        self.weighs_all = len({self._spell_rows(call) for call in calls}) > 1
        self.bind_clauses()
        if self.domain is not None and self._hides():
            ranged = self.domain.ranged
            shown = tuple(key.name for key, _ in typed if key.name in ranged)
            self.binder.when_whole.append(partial(show_ranges, self.binder, self.name, shown, ranged))

    def _find_periods(self) -> None:
        """Find the periods of public groups, by which a unit is in the groups of one of them alone."""
        if (
            self.domain is None
            or self.binder.today is None
            or self.blocks > 1
            or type(self) is not NoisyBlock
        ):
            return
        self.periods = find_period_groups(self, self.key_types, self.range_groups())
        if self.periods is None:
            return
        of_period = all(self.bound.is_key_of_period(typed) for _, typed in self.key_types)
        self.domain = replace(self.domain, per_unit=self.periods.most, is_period=of_period)
        if self.periods.starts and find_forced(self.options) is None:
            # noise over several periods is drawn anew for each
            self.binder.period_groups[self.name] = self.periods
            self.options = keep_even(self.options)

    def _hides(self) -> bool:
        """Return whether groups of ranges that look empty are hidden unless a window needs them."""
        every = self.options.get("group_selection_strategy") == "PUBLIC_GROUPS" or self.options.get(
            "consistent"
        )
        return self.domain is not None and bool(self.domain.ranged) and not every

    def _spell_rows(self, call: Call) -> tuple[str, ...]:
        """Return the rows that a number describes: those with its arguments present and its FILTER true."""
        nodes = [*call.args, *([] if call.where is None else [call.where])]
        return tuple("*" if node.is_star else self._spell(node) for node in nodes)

    def _spell(self, node: exp.Expr) -> str:
        return self.find_spelling(node) or to_sql(node)

    def _list_places(self) -> list[exp.Expr]:
        """Return the items and clauses that may contain aggregates."""
        clauses = (self.select.args.get(key) for key in ("having", "order", "qualify"))
        return [*self.select.expressions, *filter(None, clauses)]

    def _list_row_numbers(self) -> list[Call]:
        """Return the calls of aggregates that are numbers of rows: counts, sums and formulas of them."""
        found = []
        for place in self._list_places():
            for node in place.walk(prune=lambda n: isinstance(n, exp.Query)):
                inside = isinstance(node.parent, exp.Filter) and node is node.parent.this
                call = None if inside or isinstance(node, exp.Window) else self.call_of(node)
                if call is None or call.name not in MOMENTS or call.distinct:
                    continue
                if "contribution_bounds_per_group" not in call.named:
                    found.append(call)
        return found

    def place_groups(self, keys: tuple[GroupKey, ...], typed: Pairs) -> tuple[GroupKey, ...]:
        """Find the public groups, if all groups are public, and return the keys of the exact query."""
        self.domain = find_public_groups(self, typed, self.range_groups()) if keys else None
        for name in self.domain.left_out if self.domain is not None else ():
            self.binder.notes.append(f"rows whose {self.spell_key(name)} is NULL are in no group")
        return keys

    def _say_many_groups(self, rows: int) -> str:
        """Return the note that private groups are chosen for units in as many groups as rows."""
        return (
            f"private groups are chosen as if one {self.bound.unit_name} were in {rows:,} of them, one for each row, so "
            "small groups are left out: a lower max_groups_contributed shows smaller ones, and counts a unit in fewer groups"
        )

    def _find_open_keys(self, keys: Sequence[exp.Expr]) -> tuple[bool, ...]:
        """Return for each key whether rows may have values that no group has; PrivacyError unless all groups are public."""
        pairs = self._name_keys(keys)
        if find_public_groups(self, pairs, self.range_groups()) is None:
            what = "cells can only add up if all groups are public."
            hint = "ask the owner to declare the columns' values."
            raise self.options.refuse("consistent", what, f"leave consistent out, or {hint}", private=True)
        alone = [find_public_groups(self, [pair], self.range_groups()) for pair in pairs]
        return tuple(found is None or not found.complete for found in alone)

    def range_groups(self) -> int:
        """Return the most public groups of ranges: 0 if the analyst asks for private groups."""
        strategy = self.options.get("group_selection_strategy")
        if strategy == "PUBLIC_GROUPS":
            return MAX_GROUPS
        private = {"min_privacy_units_per_group", "group_selection_epsilon"}
        asked = strategy is not None or not private.isdisjoint(self.options.values)
        if asked or not any(map(self._has_aggregate, self._list_places())):
            return 0  # the statement asks only for the groups, or says how to choose them
        return MAX_RANGE_GROUPS

    def _check_strategy(self) -> None:
        options, public = self.options, bool(self.keys) and self.domain is not None
        if options.get("group_selection_strategy") == "PUBLIC_GROUPS" and self.keys and not public:
            keeping = self.find_keeping_join(self.group_expressions())
            joined = "join a public table of the groups, and keep all of its rows"
            joined = joined if keeping is None else f"write {keeping.rstrip(',')}"
            hint = f"{joined}, or ask the owner to declare the column's values."
            what = "these groups are not public."
            raise options.refuse("group_selection_strategy", what, hint, private=True)
        if self.blocks > 1:  # of grouping sets, some may have no private groups
            return
        if "group_selection_epsilon" in options.values and (public or not self.keys):
            why = "these groups are public: nothing is spent on choosing them."
            raise options.refuse(
                "group_selection_epsilon",
                why if public else "there are no groups to choose.",
                "leave it out.",
            )
        if "min_privacy_units_per_group" in options.values and public:
            why = "these groups are public: all of them appear, with any number of units."
            hint = "leave it out, or keep groups by a noisy count of their units."
            raise options.refuse("min_privacy_units_per_group", why, hint)

    def _groups(self) -> int | None:
        """Return the cap on a unit's groups; None if there are no groups, or the cap on its rows bounds them."""
        if not self.bound.row_level and not self.keys:
            return None
        return find_groups(self.bound, self.options, self.select.args.get("group") or self.select)

    @property
    def public_key_nodes(self) -> Sequence[exp.Expr]:
        """The keys of all grouping sets, if these are public together: a total counts the rows of their groups."""
        if not self.every:
            return super().public_key_nodes
        pairs = self._name_keys(self.every)
        found = find_public_groups(self, pairs, self.range_groups())
        return () if found is None else [typed.node for _, typed in pairs]

    def _name_keys(self, nodes: Sequence[exp.Expr]) -> Pairs:
        typed = enumerate(self.expression(node) for node in nodes)
        return [(GroupKey(f"w{i}", to_sql(t.node), t.type.sql, t.label_order), t) for i, t in typed]

    # -- the clauses above --------------------------------------------------------------------------------------

    def call_of(self, node: exp.Expr) -> Call | None:
        """Return the call of a noisy aggregate; None for any other node."""
        call = call_of(node)
        return call if call is not None and call.name in self.known else None

    def above(self, node: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        """Return a quotient that is a mean as AVG, and a list of quantiles as a list; other nodes as any block does."""
        mean = read_as_mean(self, node)
        node = node if mean is None else mean
        call = None if isinstance(node, exp.Window) else self.call_of(node)
        if call is not None and (listed := split_quantiles(node, call)):
            return exp.Array(expressions=[self.above(one, aliases) for one in listed])
        return super().above(node, aliases)

    def bind_call(self, call: Call, name: str) -> Aggregate:
        refuse_equals(call, NAMED_ARGUMENTS)
        options = call.read(NAMED_ARGUMENTS)
        return self.known[call.name](AggregateCall(self, call, name, options, self.exact))

    # -- the loss -----------------------------------------------------------------------------------------------

    def build_operator(self) -> None:
        """Divide the budget, make the operator, and add the block to the plan."""
        aggregates = [item for item in self.asked.values() if isinstance(item, Aggregate)]
        private = bool(self.keys) and self.domain is None
        if not aggregates and not private:
            if self.domain is None or self.blocks > 1:
                self.refuse_misspelt()
                hint = "add COUNT(*) to SELECT, or another aggregate: rows themselves are not shown."
                raise privacy_error(self.select, "there is nothing noisy to release here.", hint)
            self.read_public_groups(self.key_types)
            return
        if self.options.get("error") is not None:
            if self.options.amount is not None and self.options.amount.currency != "epsilon":
                currency = self.options.amount.currency
                what = f"error needs an epsilon as its limit, not a {currency}."
                raise self.options.refuse("error", what, "give an epsilon, as the most that may be spent.")
            if self.options.get("report_cut"):
                what = "error takes the least epsilon, and report_cut a share of the whole."
                raise self.options.refuse("report_cut", what, "ask for one of the two.")
            check_fits(aggregates)
        finds_groups = self.caps is not None and self.caps.groups is not None
        own_queries = any(item.formula is None for item in aggregates)
        unasked = all(self.options.get(name) is None for name in ("report_cut", "error"))
        self.binder.notes += list_cuts(self.exact, own_queries, finds_groups, advises=unasked)
        more = tuple(describe_caps(self.exact, self.per_unit_groups))
        self.binder.notes += note_costly_caps(self.exact, self.per_unit_groups)
        moments = any(item.formula is not None for item in aggregates)
        choice = NoiseChoice(
            self._maker, self.options, self.binder.catalog, private, moments, self.blocks, self.noise
        )
        shares: list[tuple[Fraction | None, exp.Expr | None]] = [(a.share, a.call.node) for a in aggregates]
        if private:
            name = "group_selection_epsilon"
            shares.append((self.options.get(name), self.options.nodes.get(name)))
        deltas = choice.delta_parts + private
        said = (*(f"{a.label}: {a.said}." for a in aggregates), *more)
        apart = find_report_share(self.options)
        split = partial(deal, self.binder, select=self.select, shares=shares, deltas=deltas, apart=apart)
        if self.caps is not None:
            if self.blocks == 1:
                refuse_unfit(self.options, why="here its caps are found privately")
            self._find_caps(CapBuilder(self, self.exact, self.caps, aggregates), split, choice, said)
            return
        share = split(self.options)
        fitted = self._fit(aggregates, share, private, choice)
        share = _free_delta(share, choice, fitted, private)
        operator = self._operator(aggregates, share, private, fitted)
        sentences = (*self._protection(), *said, *fitted.sentences)
        self.binder.add_block(
            self.name, operator, self.released, self.bound.inputs, sentences, self.confidence, share.whole
        )
        self._choose_strategies(share.whole.currency)

    def _choose_strategies(self, currency: str) -> None:
        """Take quantiles from a tree, and make noise follow the order of a public key, if that is better or requested."""
        if self.blocks > 1 or type(self) is not NoisyBlock:
            return
        if self.options.get("error") is not None:
            refuse_unfit(self.options, why="here the noise is that of an error")
            return
        fits = choose_quantiles(self.binder, self.name, self.options, currency)
        if self.domain is None or self.domain.size is None:
            refuse_unfit(self.options, fits, "here no key has values that are known before the answer")
            return
        kinds = {key.name: typed.type.kind for key, typed in self.key_types}
        labels = {name: to_sql(node) for name, node in self.key_sources.items()}
        found, grow = self.periods, None
        if found is not None:
            grow = partial(
                find_growing, self.binder, found=found, groups=self.domain.sql, options=self.options
            )
        block = StepBlock(
            self.name,
            self.options,
            kinds,
            self._count_steps,
            labels,
            self.domain.nullable,
            fits,
            grow,
        )
        self.binder.when_whole.append(partial(choose_order, self.binder, block))

    def _count_steps(self, name: str) -> int | None:
        if len(self.key_types) == 1:
            return None if self.domain is None else self.domain.size
        pairs = [pair for pair in self.key_types if pair[0].name == name]
        found = find_public_groups(self, pairs, self.range_groups())
        return None if found is None else found.size

    @property
    def fixed_columns(self) -> set[str]:
        """The statistics that are numbers of units, which don't add up over groups."""
        return {partial.name for partial in self.exact.partials if partial.fixed}

    @property
    def _maker(self) -> NoiseMaker:
        return NoiseMaker(self.exact, self.per_unit_groups)

    def _find_caps(
        self,
        caps: CapBuilder,
        split: Callable[[Options], BudgetShare],
        choice: NoiseChoice,
        said: tuple[str, ...],
    ) -> None:
        """Add the operator that finds the caps to the plan, after the choice of private groups.

        Args:
            caps: makes the operators.
            split: divides the budget that the searches leave.
            choice: of the noise, which is made once, for caps in the middle.
            said: EXPLAIN's sentences on the aggregates.
        """
        aggregates, private = list(caps.aggregates), caps.private
        options, searched = caps.reduce(self.options)
        share = split(options)
        caps.use_middle()
        fitted = self._fit(aggregates, share, private, replace(choice, maker=self._maker))
        share, chosen = _free_delta(share, choice, fitted, private), self.noise

        def answer() -> Operator:
            noise = replace(choice, maker=self._maker, chosen=chosen)
            return self._operator(aggregates, share, False, self._fit(aggregates, share, False, noise))

        inputs, groups = self.bound.inputs, caps.count_groups()
        protection, searches = self._protection(), 0
        if private:
            name = self.binder.name("keys") if aggregates else self.name
            searches = caps.select_groups(name, share.amounts[-1], share.delta_part, searched, protection)
            if not aggregates:
                return
            kept = caps.keep_groups(name)
            inputs, groups, protection = (*inputs, kept), caps.count_groups(kept), ()
        operator = caps.search(answer, share, searched, groups)
        self.noise = chosen
        asked = caps.add_up(share, searched, caps.searches - searches)
        sentences = (*protection, *said, *fitted.sentences)
        self.binder.add_block(self.name, operator, self.released, inputs, sentences, self.confidence, asked)

    def _fit(
        self, aggregates: list[Aggregate], share: BudgetShare, private: bool, choice: NoiseChoice
    ) -> FittedOutputs:
        """Return the outputs of formulas, with the noise of their shares or of the requested error."""
        if self.options.get("error") is not None and aggregates:
            taken = share.parts[-1] if private else Fraction(0)
            taken += share.apart.total if share.apart is not None else 0
            most, delta = share.epsilon - taken, share.delta_part if choice.delta_parts else None
            return fit_outputs(self.options, aggregates, most, delta, self._maker)
        amounts = zip(aggregates, share.amounts, strict=False)
        dealt = [(a, amount) for a, amount in amounts if a.formula is not None]
        noise = self.noise = choice.choose(dealt, share, len(self.asked))
        outputs = tuple(noise.build(a) for a, _ in dealt)
        return FittedOutputs(outputs, (), (noise.said,) if noise.said else (), noise.is_gaussian)

    def _operator(
        self, aggregates: list[Aggregate], share: BudgetShare, private: bool, fitted: FittedOutputs
    ) -> Operator:
        own = [(a, amount) for a, amount in zip(aggregates, share.amounts, strict=False) if a.formula is None]
        dealt = deal_epsilons(own, share.whole.currency, self._list_parts)
        outputs = fitted.outputs
        selection, self.autos = None, None
        if private:
            selection = choose_selector(
                self.options,
                self.binder.catalog,
                share.amounts[-1],
                share.delta_part,
                self.per_unit_groups,
            )
        keys, parts = self.exact.names, self._list_parts(dealt)
        if self.options.get("report_cut") and share.apart is not None:
            groups, confidence = self.per_unit_groups, self.confidence
            parts = (*parts, make_cut_report(self.exact, groups, self.options, share.apart, confidence))
        if not outputs and not keys:
            return Together(None, parts)
        packed = write_packed_route(self.exact) if not parts else None
        shared = self.exact.sql(), keys, outputs, selection, self.confidence, packed
        by_unit = self.exact.write_unit_parts()
        if fitted.reduced:
            error = self.options.get("error")
            return NoiseReducedAggregation(*shared, unit_parts=by_unit, error=error, reduced=fitted.reduced)
        aggregation = Aggregation(*shared, unit_parts=by_unit)
        return Together(aggregation, parts) if parts else aggregation

    def _list_parts(self, dealt: Sequence[tuple[Aggregate, Fraction]]) -> tuple[Part, ...]:
        """Return the mechanisms of aggregates with exact queries of their own."""
        exact, own = self.exact, (a.part(epsilon) for a, epsilon in dealt if a.part is not None)
        quantiles = quantile_parts(exact, exact.names, dealt, self.per_unit_groups, self.confidence)
        return (*quantiles, *own)

    def _protection(self) -> tuple[str, ...]:
        """Return EXPLAIN's sentences on the privacy unit and the groups."""
        found = self.caps is not None and self.caps.finds_rows
        groups = self.per_unit_groups if self.keys and self.caps is None else 1
        said = self.exact.describe_unit(found, groups)
        if not self.keys:
            return said
        shown = "Groups are private: each is shown by the number of its privacy units"
        if self.domain is not None:
            which = SOME_SHOWN if self._hides() else "all of them appear"
            shown = f"Groups are public ({self.domain.origin}): {which}"
        if self.caps is not None:
            return (*said, f"{shown}.")
        if (shared := self.exact.shared_rows) is not None:
            less = f"max_groups_contributed = {self.per_unit_groups} would leave out whole groups, at the same noise"
            return (*said, f"{shown}, and share {shared:,} rows of one privacy unit at most ({less}).")
        counted = f"{shown}; one privacy unit counts in at most {self.per_unit_groups} of them."
        if self.domain is not None or self.exact.groups is not None or self.per_unit_groups == 1:
            return (*said, counted)
        return (*said, counted, f"P{self._say_many_groups(self.per_unit_groups)[1:]}.")


def _free_delta(share: BudgetShare, choice: NoiseChoice, fitted: FittedOutputs, private: bool) -> BudgetShare:
    """Return the shares with all of delta for the choice of groups, if the chosen noise needs none."""
    if not choice.delta_parts or fitted.is_gaussian:
        return share
    return replace(share, delta_parts=int(private), delta=share.delta if private else Fraction(0))
