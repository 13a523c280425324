"""A noisy block: SELECT WITH DP over private rows, its aggregates by name, and the operator that releases them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import ClassVar

from sqlglot import exp

from dpsql.binding.dp.aggregates import NAMED_ARGUMENTS, Aggregate, AggregateCall
from dpsql.binding.dp.auto_caps import AutoCaps, CapBuilder, find_auto_caps, without_auto
from dpsql.binding.dp.budget_split import BudgetShare, choose_selector, deal, find_groups
from dpsql.binding.dp.cap_advice import describe_caps, note_costly_caps
from dpsql.binding.dp.cut_queries import list_cuts, make_cut_report
from dpsql.binding.dp.moment_aggregates import MOMENTS, read_as_mean
from dpsql.binding.dp.noise_choice import (
    FittedOutputs,
    MomentNoise,
    NoiseChoice,
    NoiseMaker,
    check_fits,
    fit_outputs,
)
from dpsql.binding.dp.ordered_steps import MAKERS, StepBlock, choose_order, refuse_unfit
from dpsql.binding.dp.own_queries import OWN_QUERIES
from dpsql.binding.dp.private_block import AggregatingBlock
from dpsql.binding.dp.public_groups import MAX_GROUPS, MAX_RANGE_GROUPS, Pairs, find_public_groups
from dpsql.binding.dp.quantile_calls import choose_quantiles, quantile_parts, split_quantiles
from dpsql.binding.public.window_sums import WindowFinder
from dpsql.binding.public_statement import label_of, spell
from dpsql.binding.relations.relation import INTERNAL
from dpsql.binding.relations.unit_rows import check_unit, describe_protection, name_unit
from dpsql.binding.values.sql_types import Typed
from dpsql.errors import PrivacyError
from dpsql.exact import exact_query
from dpsql.exact.exact_query import Exact, GroupKey, write_packed_route
from dpsql.language.dialect import join_word, privacy_error, to_sql
from dpsql.language.options import Call, Options, call_of, refuse_equals
from dpsql.mechanisms.aggregation import Aggregation, Part, Together
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.contribution_caps import CUT_SHARE
from dpsql.mechanisms.empty_groups import RangedGroups
from dpsql.mechanisms.noise_reduction import NoiseReducedAggregation
from dpsql.mechanisms.strategies import TREE
from dpsql.privacy.amounts import Amount
from dpsql.privacy.events import Event, compose_events

NOISY_AGGREGATES: dict[str, Callable[[AggregateCall], Aggregate]] = {**MOMENTS, **OWN_QUERIES}
"""Every noisy aggregate: to add one is to add a row to one of the two."""


_SOME_SHOWN = "those that differ from a group without rows appear"
_STEPS_SHOWN = "all of them appear, since a window goes by their order"
_CLOSE = 1 - Fraction(1, 10**7)
"""The part of its amount that a block must use at least."""


@dataclass
class NoisyBlock(AggregatingBlock):
    """A block of noisy aggregates."""

    known: ClassVar[Mapping[str, Callable[[AggregateCall], Aggregate]]] = NOISY_AGGREGATES
    """The aggregates that may be asked for, by name."""
    every: Sequence[exp.Expr] = ()
    """The keys of all grouping sets, where it is a block of one of these."""
    blocks: int = 1
    """The number of blocks, of grouping sets, whose noise is calibrated together."""
    noise: MomentNoise | None = None
    """The noise of its moments; before it is bound, what was chosen for the first of these blocks."""
    open_keys: tuple[bool, ...] = ()
    """For each key of all grouping sets, whether rows may have values that no group has: known where cells add up."""
    exact: Exact = field(init=False)
    key_types: list[tuple[GroupKey, Typed]] = field(default_factory=list)
    caps: AutoCaps | None = None
    """The caps on a unit that are found before the answer."""

    def bind(self) -> None:
        """Bind the keys first (they decide the bounding), then every clause above them."""
        if self.blocks == 1:
            refuse_unfit(self.options, MAKERS)
        condition = self.where()
        distinct = self.select.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            what = "DISTINCT ON chooses rows, and here they are private."
            hint = "aggregate in a subquery first, and choose from its answer."
            raise privacy_error(distinct.args["on"], what, hint)
        if distinct and not self.select.args.get("group"):
            self.select.set("group", exp.Group(all=True))
            self.select.set("distinct", None)
        if self.every and self.options.get("consistent"):
            self.open_keys = self._find_open_keys(self.every)
        expressions = self.group_expressions()
        check_unit(self.options, self.names, self.bound.subject)
        keys, typed = self.bind_keys(expressions)
        keys = self.place_groups(keys, typed)
        self.key_types = typed
        if self.keys and self.domain is None and (keeping := self._join_that_keeps(expressions)):
            self.binder.notes.append(
                f"these groups are private, and small ones left out: {keeping} shows all"
            )
        self._check_strategy()
        self.caps = find_auto_caps(self)
        self.options = without_auto(self.options, self.caps)
        groups = self._groups() if self.caps is None else self.caps.given
        size = self.domain.size if self.domain is not None else None
        rows, each = self.bound.row_caps(self.options) if self.caps is None else self.caps.fixed
        free = size is not None and groups is not None and size <= groups
        self.per_unit_groups = (
            min((x for x in (groups, size, rows) if x is not None), default=1) if keys else 1
        )
        if keys and self.domain is None and self.per_unit_groups > 1 and groups is None:
            self.binder.notes.append(self._say_many_groups(self.per_unit_groups))
        self.exact = Exact(
            self.bound, condition, keys, each, None if free or not keys else groups, rows,
            self.domain, None if self.caps is None else self.caps.ceiling,
            shares=self.caps is not None or self.options.get("max_groups_contributed") is None,
        )  # fmt: skip
        consistent = bool(self.options.get("consistent"))  # cells add up exactly in the steps of a plain sum
        self.weighs_rows = not consistent and self._has_several()
        self.bind_clauses()
        self.binder.when_whole.append(self._show_filled)

    def _show_filled(self, tree: exp.Expr) -> None:
        """Show, of groups that a range makes, those that differ from a group without rows.

        A window in the order of such a key needs all steps, and cells of grouping sets add up only where all are there.
        """
        there = any(block.name == self.name for block in self.binder.blocks)
        if self.domain is None or not self._hides() or not there:
            return
        ranged = self.domain.ranged
        if not WindowFinder(tree, self.name, ranged, frozenset()).has_ordered(ranged):
            keys = tuple(key.name for key, _ in self.key_types if key.name in ranged)
            self.binder.ranged.append(RangedGroups(self.name, keys))
            return
        self.binder.blocks[:] = [
            replace(
                block,
                sentences=tuple(
                    line.replace(_SOME_SHOWN, _STEPS_SHOWN) if _SOME_SHOWN in line else line
                    for line in block.sentences
                ),
            )
            if block.name == self.name
            else block
            for block in self.binder.blocks
        ]

    def _hides(self) -> bool:
        """Return whether groups of ranges that look empty are left out where no window needs them."""
        every = self.options.get("group_selection_strategy") == "PUBLIC_GROUPS" or bool(
            self.options.get("consistent")
        )
        return self.domain is not None and bool(self.domain.ranged) and not every

    def _has_several(self) -> bool:
        """Tell whether several numbers of rows are asked for: counts, sums and what is made of them."""
        clauses = (self.select.args.get(key) for key in ("having", "order", "qualify"))
        found: set[str] = set()
        for place in (*self.select.expressions, *(node for node in clauses if node is not None)):
            for node in place.walk(prune=lambda n: isinstance(n, exp.Query)):
                call = None if isinstance(node, exp.Window) else self.call_of(node)
                if call is None or call.name not in MOMENTS or call.distinct:
                    continue
                if "contribution_bounds_per_group" not in call.named:
                    found.add(to_sql(call.node))
        return len(found) > 1

    def place_groups(self, keys: tuple[GroupKey, ...], typed: Pairs) -> tuple[GroupKey, ...]:
        """Find the public groups, if all of them are, and return the keys as the exact query has them."""
        self.domain = find_public_groups(self, typed, self.range_groups()) if keys else None
        for name in self.domain.left_out if self.domain is not None else ():
            self.binder.notes.append(f"rows whose {spell(self.key_sources[name])} is NULL are in no group")
        return keys

    def _say_many_groups(self, rows: int) -> str:
        """Say that a cap on rows alone leaves a unit in many private groups, of which few are then large enough to be shown."""
        return (
            f"private groups are chosen as if one {name_unit(self.bound)} were in {rows:,} of them, as many as its rows, so "
            "small groups are left out: a lower max_groups_contributed shows smaller ones, and counts it in fewer"
        )

    def _join_that_keeps(self, keys: Sequence[exp.Expr]) -> str | None:
        """Return the join by which all groups of a public table would appear; None where keys are not of one joined here."""
        relations, fields = self.bound.relations, [self.names.known(key) for key in keys]
        public = [r for r in relations if not r.private and any(f is g for f in r.fields for g in fields)]
        joins = self.select.args.get("joins") or []
        for join in joins:
            if join_word(join, "side") and (key := self.public_key(join)) is not None:
                return f"GROUP BY {key}"
        inner = len(joins) == 1 and not join_word(joins[0], "side")
        if len(relations) != 2 or len(public) != 1 or public[0].alias.startswith(INTERNAL) or not inner:
            return None
        side = "LEFT" if public[0] is relations[0] else "RIGHT"
        return f"{side} JOIN in place of JOIN, with keys from {public[0].alias},"

    def _find_open_keys(self, keys: Sequence[exp.Expr]) -> tuple[bool, ...]:
        """Return for each key whether rows may have values that no group has.

        Raises:
            PrivacyError: the groups are not all public, so cells can't be made to add up.
        """
        pairs = self._name_keys(keys)
        if find_public_groups(self, pairs, self.range_groups()) is None:
            raise self.options.refuse(
                "consistent", "cells are made to add up only where all groups are public.",
                "leave consistent out, or ask the owner to declare the columns' values.", PrivacyError,
            )  # fmt: skip
        alone = [find_public_groups(self, [pair], self.range_groups()) for pair in pairs]
        return tuple(found is None or not found.complete for found in alone)

    def range_groups(self) -> int:
        """Return how many public groups ranges may be made into: none where the analyst asks for private ones."""
        strategy = self.options.get("group_selection_strategy")
        if strategy == "PUBLIC_GROUPS":
            return MAX_GROUPS
        private = {"min_privacy_units_per_group", "group_selection_epsilon"}
        asked = strategy is not None or not private.isdisjoint(self.options.values)
        clauses = (self.select.args.get(key) for key in ("having", "order", "qualify"))
        places = [*self.select.expressions, *(node for node in clauses if node is not None)]
        if asked or not any(self._has_aggregate(node) for node in places):
            return 0  # which groups there are is all that is asked for, or how they are found
        return MAX_RANGE_GROUPS

    def _check_strategy(self) -> None:
        strategy = self.options.get("group_selection_strategy")
        if strategy == "PUBLIC_GROUPS" and self.keys and self.domain is None:
            keeping = self._join_that_keeps(self.group_expressions())
            joined = (
                f"write {keeping.rstrip(',')}"
                if keeping
                else "join a public table of the groups, and keep all of its rows"
            )
            hint = f"{joined}, or ask the owner to declare the column's values."
            raise self.options.refuse(
                "group_selection_strategy", "these groups are not public.", hint, PrivacyError
            )
        if self.blocks > 1:  # of grouping sets, some may have no private groups
            return
        if "group_selection_epsilon" in self.options.values and (not self.keys or self.domain is not None):
            why = (
                "these groups are public: nothing is spent on choosing them."
                if self.keys
                else "there are no groups to choose."
            )
            raise self.options.refuse("group_selection_epsilon", why, "leave it out.")
        if "min_privacy_units_per_group" in self.options.values and self.keys and self.domain is not None:
            raise self.options.refuse(
                "min_privacy_units_per_group", "these groups are public: all of them appear, however few units they have.",
                "leave it out, or keep groups by a noisy count of their units.",
            )  # fmt: skip

    def _groups(self) -> int | None:
        """Return how many groups a unit may touch; None where nothing needs to bound them, or the cap on its rows does."""
        if not self.bound.row_level and not self.keys:
            return None
        return find_groups(self.bound, self.options, self.select.args.get("group") or self.select)

    @property
    def public_key_nodes(self) -> Sequence[exp.Expr]:
        """The keys of all grouping sets, where these are public together: a total counts what their groups count."""
        if not self.every:
            return super().public_key_nodes
        pairs = self._name_keys(self.every)
        found = find_public_groups(self, pairs, self.range_groups())
        return () if found is None else [typed.node for _, typed in pairs]

    def _name_keys(self, nodes: Sequence[exp.Expr]) -> list[tuple[GroupKey, Typed]]:
        typed = [self.expression(node) for node in nodes]
        return [
            (GroupKey(f"w{i}", to_sql(t.node), t.type.sql, t.label_order), t) for i, t in enumerate(typed)
        ]

    # -- the clauses above --------------------------------------------------------------------------------------

    def call_of(self, node: exp.Expr) -> Call | None:
        """Return the call of a noisy aggregate; None for any other node."""
        call = call_of(node)
        return call if call is not None and call.name in self.known else None

    def above(self, node: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        """Return a quotient that is a mean, and a list of quantiles, as what they are; all else as any block does."""
        mean = read_as_mean(self, node)
        node = node if mean is None else mean
        call = None if isinstance(node, exp.Window) else self.call_of(node)
        if call is not None and (listed := split_quantiles(node, call)):
            return exp.Array(expressions=[self.above(one, aliases) for one in listed])
        return super().above(node, aliases)

    def bind_call(self, call: Call, name: str) -> Aggregate:
        """Bind one call.

        Raises:
            BindError: wrong number or type of arguments.
            PrivacyError: no bounds, or no bound on the rows of a unit.
        """
        refuse_equals(call, NAMED_ARGUMENTS)
        options = call.read(NAMED_ARGUMENTS)
        return self.known[call.name](AggregateCall(self, call, name, options, self.exact))

    # -- the price ----------------------------------------------------------------------------------------------

    def build_operator(self) -> None:
        """Deal out the budget, make the operator, and give the block to the plan."""
        aggregates = [item for item in self.asked.values() if isinstance(item, Aggregate)]
        private = bool(self.keys) and self.domain is None
        if not aggregates and not private:
            why = "rows themselves are not shown."
            if self.domain is not None and self.keys:
                ranged = bool(self.domain.ranged)
                why = (
                    "these groups are all values within public bounds, and counts show which have rows."
                    if ranged
                    else "these groups are public, they all appear."
                )
            what = "there is nothing noisy to release here."
            raise privacy_error(self.select, what, f"add COUNT(*) to SELECT, or another aggregate: {why}")
        if self.options.get("error") is not None:
            if self.options.amount is not None and self.options.amount.currency != "epsilon":
                currency = self.options.amount.currency
                what = f"the noise of an error is looked for up to an epsilon, not a {currency}."
                raise self.options.refuse("error", what, "give an epsilon, as the most that may be spent.")
            if self.options.get("report_cut"):
                what = "error takes as little as it can, and the report of what is cut a share of the whole."
                raise self.options.refuse("report_cut", what, "ask for one of the two.")
            check_fits(aggregates)
        finds_groups = self.caps is not None and self.caps.groups is not None
        cuts = list(list_cuts(self.exact, any(item.formula is None for item in aggregates), finds_groups))
        self.binder.notes += cuts
        more = tuple(describe_caps(self.exact, self.per_unit_groups))
        self.binder.notes += note_costly_caps(self.exact, self.per_unit_groups)
        moments = any(item.formula is not None for item in aggregates)
        choice = NoiseChoice(
            self._maker, self.options, self.binder.catalog, private, moments, self.blocks, self.noise
        )
        shares: list[tuple[Fraction | None, exp.Expr | None]] = [(a.share, a.call.node) for a in aggregates]
        selecting = (
            self.options.get("group_selection_epsilon"),
            self.options.nodes.get("group_selection_epsilon"),
        )
        deltas, said = (
            choice.delta_parts + private,
            (*(f"{label_of(a.call)}: {a.said}." for a in aggregates), *more),
        )
        apart = CUT_SHARE if self.options.get("report_cut") else Fraction(0)
        dealt = shares + [selecting] * private
        split = partial(deal, self.binder, select=self.select, shares=dealt, deltas=deltas, apart=apart)
        if self.caps is not None:
            if self.blocks == 1:
                refuse_unfit(self.options, why="here its caps are found privately")
            self._find_caps(CapBuilder(self, self.exact, self.caps, aggregates), split, choice, said)
            return
        share = split(self.options)
        fitted = self._fit(aggregates, share, private, choice)
        share = _free_delta(share, choice, fitted, private)
        operator = self._operator(aggregates, share, private, fitted)
        sentences = (*self._protection(), *said, *fitted.sentences, *self._compare(operator))
        self.binder.add_block(
            self.name, operator, self.released, self.bound.inputs, sentences, self.confidence, share.whole
        )
        self._choose_strategies(share.whole.currency)

    def _choose_strategies(self, currency: str) -> None:
        """Take quantiles from a tree, and let noise follow the order of a public key, where that is better or asked for."""
        if self.blocks > 1 or type(self) is not NoisyBlock:
            return
        if self.options.get("error") is not None:
            refuse_unfit(self.options, why="here the noise is that of an error")
            return
        fits = (TREE,) if choose_quantiles(self.binder, self.name, self.options, currency) else ()
        if self.domain is None or self.domain.size is None:
            why = "here no key has values that are known before the answer"
            refuse_unfit(self.options, fits, why)
            return
        kinds = {key.name: typed.type.kind for key, typed in self.key_types}
        labels = {name: to_sql(node) for name, node in self.key_sources.items()}
        block = StepBlock(
            self.name, self.options, kinds, self._count_steps, labels, self.domain.nullable, fits
        )
        self.binder.when_whole.append(partial(choose_order, self.binder, block))

    def _count_steps(self, name: str) -> int | None:
        """Return the most values of a key of public groups."""
        if len(self.key_types) == 1:
            return None if self.domain is None else self.domain.size
        pairs = [pair for pair in self.key_types if pair[0].name == name]
        found = find_public_groups(self, pairs, self.range_groups())
        return None if found is None else found.size

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
        """Give the plan the operator that finds the caps, and before it, where they are private, the choice of groups.

        Args:
            caps: makes the operators.
            split: deals the budget that is left by the searches.
            choice: of the noise, which is made once, for caps in the middle.
            said: what EXPLAIN says of the aggregates.
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

        inputs, groups = self.bound.inputs, self._count_groups()
        told, searches = self._protection(), 0
        if private:
            name = self.binder.name("keys") if aggregates else self.name
            searches = caps.select_groups(name, share.amounts[-1], share.delta_part, searched, told)
            if not aggregates:
                return
            lent = caps.keep_groups(name)
            inputs, groups, told = (*inputs, lent), f"SELECT COUNT(*) AS n FROM {lent.name}", ()
        operator = caps.search(answer, share, searched, groups)
        self.noise = chosen
        amounts = [*share.amounts[: len(aggregates)], *([] if share.apart is None else [share.apart])]
        answers = sum((amount.total for amount in amounts), Fraction(0))
        asked = Amount(searched.currency, answers + searched.total * (caps.searches - searches))
        sentences = (*told, *said, *fitted.sentences)
        self.binder.add_block(self.name, operator, self.released, inputs, sentences, self.confidence, asked)

    def _count_groups(self) -> int | str:
        """Return how many public groups there are, or a query of it where the policy does not say."""
        if not self.keys or self.domain is None:
            return 1
        return self.domain.size or f"SELECT COUNT(*) AS n FROM ({self.domain.sql}) AS listed"

    def _compare(self, operator: Operator) -> Iterator[str]:
        """Yield sentences that compare the operator with others, for EXPLAIN."""
        yield from ()

    def _fit(
        self, aggregates: list[Aggregate], share: BudgetShare, private: bool, choice: NoiseChoice
    ) -> FittedOutputs:
        """Return the outputs of formulas, with the noise of their shares or of the error that is asked for."""
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
        dealt = self._deal_epsilons(aggregates, share)
        outputs = fitted.outputs
        selection, self.autos = None, None
        if private:
            selection = choose_selector(
                self.options, exact_query.UNITS_COLUMN, self.binder.catalog,
                share.amounts[-1], share.delta_part, self.per_unit_groups,
            )  # fmt: skip
        keys = self.exact.names
        parts: tuple[Part, ...] = (
            *quantile_parts(self.exact, keys, dealt, self.per_unit_groups, self.confidence),
            *(a.part(epsilon) for a, epsilon in dealt if a.part is not None),
        )
        if self.options.get("report_cut") and share.apart is not None:
            report = make_cut_report(
                self.exact, self.per_unit_groups, self.options, share.apart, self.confidence
            )
            parts = (*parts, report)
        if not outputs and not keys:
            return Together(None, parts)
        # parts bound contributions as the query does
        packed = write_packed_route(self.exact) if not parts else None
        aggregation = Aggregation(
            self.exact.sql(), keys, outputs, selection, self.confidence, packed,
            unit_parts=self.exact.write_unit_parts(),
        )  # fmt: skip
        if fitted.reduced:
            return NoiseReducedAggregation(
                aggregation.query, keys, outputs, selection, self.confidence, packed,
                unit_parts=aggregation.unit_parts, error=self.options.get("error"), reduced=fitted.reduced,
            )  # fmt: skip
        return Together(aggregation, parts) if parts else aggregation

    def _deal_epsilons(
        self, aggregates: list[Aggregate], share: BudgetShare
    ) -> list[tuple[Aggregate, Fraction]]:
        """Return the epsilon of each aggregate with an exact query of its own.

        Quantiles of one column become one mechanism. In mu or rho it costs another amount than they would apart: then the
        epsilons of all are moved until together they cost their shares.
        """
        own = [(a, amount) for a, amount in zip(aggregates, share.amounts, strict=False) if a.formula is None]

        def price(dealt: list[tuple[Aggregate, Fraction]]) -> Event:
            quantiles = quantile_parts(
                self.exact, self.exact.names, dealt, self.per_unit_groups, self.confidence
            )
            parts = (a.part(epsilon) for a, epsilon in dealt if a.part is not None)
            return compose_events(part.event for part in (*quantiles, *parts))

        def price_one(item: Aggregate) -> Callable[[Fraction], Event]:
            return lambda epsilon: price([(item, epsilon)])

        dealt = [(a, amount.find_epsilon(price_one(a))) for a, amount in own]
        if not own or share.whole.currency == "epsilon":
            return dealt
        together = Amount(share.whole.currency, sum((amount.total for _, amount in own), Fraction(0)))
        if together.covers(price(dealt)) and together.cost(price(dealt)) > together.total * _CLOSE:
            return dealt
        moved = together.find_epsilon(lambda factor: price([(a, epsilon * factor) for a, epsilon in dealt]))
        return [(a, epsilon * moved) for a, epsilon in dealt]

    def _protection(self) -> tuple[str, ...]:
        """Return what EXPLAIN says of who is protected, and which groups there are."""
        found = self.caps is not None and self.caps.finds_rows
        groups = self.per_unit_groups if self.keys and self.caps is None else 1
        said = describe_protection(self.bound, None if found else self.exact.caps, bool(self.keys), groups)
        if not self.keys:
            return said
        shown = "Groups are private: each is shown by the number of its privacy units"
        if self.domain is not None:
            which = _SOME_SHOWN if self._hides() else "all of them appear"
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
    """Return the shares with all of delta for the choice of groups, where the noise that was chosen needs none."""
    if not choice.delta_parts or fitted.is_gaussian:
        return share
    return replace(share, delta_parts=int(private), delta=share.delta if private else Fraction(0))
