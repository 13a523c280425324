"""Caps on a unit's contribution, found before the answer: ``max_rows_contributed = AUTO``, ``max_groups_contributed = AUTO``.

A unit's rows are bounded over all of its groups together: the noise on each group is then that of the cap, for any number
of groups, and no group is left out. The number of groups is bounded too if an answer depends on it: if units are counted or
bounded per group, or if rows are bounded only per group. ``max_rows_per_group = AUTO`` caps a unit's rows in any one group.

Private groups are chosen first, as a release of their own, with a cap that suits most units. A low cap loses little, since
it reduces the noise and the counts of the choice in proportion. The groups that were kept are public from then on, and rows
in other groups use up no cap.

The searches get a stated share of the block's epsilon, and are paid first. The answers have the noise of the found caps.
The policy's caps are ceilings; without them these are :data:`MOST_ROWS` and :data:`MOST_GROUPS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from dpsql.binding.dp.aggregates import Aggregate
from dpsql.binding.dp.budget_split import BudgetShare, choose_selector, within_limit, within_limits
from dpsql.binding.dp.private_block import AggregatingBlock
from dpsql.binding.plan import Input
from dpsql.binding.public_statement import Released
from dpsql.catalogue.option_names import CAP_OPTIONS
from dpsql.exact.exact_query import UNITS_COLUMN, Exact, PublicGroups, write_first_groups, write_secret_order
from dpsql.language.dialect import bind_error
from dpsql.language.options import AUTO, Options
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.contribution_caps import SIZE, UNITS, CapLadder, CapSearch, list_caps
from dpsql.mechanisms.queries import ROW_COUNT, As, Select, Subquery
from dpsql.privacy.amounts import Amount
from dpsql.privacy.events import DiscreteLaplace, SparseVector

GROUPS, ROWS, EACH = CAP_OPTIONS
CAPS = (ROWS, GROUPS, EACH)
MOST_ROWS = 1 << 20
"""The highest cap on the rows of a unit that is tried if the policy has none."""
MOST_GROUPS = 1 << 10
"""The highest cap on the groups of a unit that is tried if the policy has none."""
SHARE, SHARE_OF_MANY = Fraction(1, 4), Fraction(1, 8)
"""The part of epsilon that finds the caps; the smaller one for more than :data:`MANY_NUMBERS` noisy numbers."""
MANY_NUMBERS = 16


@dataclass(frozen=True)
class AutoCaps:
    """The caps of a block to find: ``rows`` over all groups, ``groups``, and rows in ``each``.

    Each is the highest cap to try, or None if it is not searched for. ``given`` is the cap on groups if none is searched for
    (None if a unit may be in all groups); ``known`` are the caps on rows, in all and in one group, that are not searched for.
    ``limits`` states the owner's caps if these are the highest on rows.
    """

    rows: int | None
    groups: int | None
    each: int | None = None
    given: int | None = None
    known: tuple[int | None, int | None] = (None, None)
    limits: str = ""

    @property
    def fixed(self) -> tuple[int | None, int | None]:
        """The caps on rows, in all and in one group, with 1 for a cap to find."""
        rows, each = self.known
        return rows if self.rows is None else 1, each if self.each is None else 1

    @property
    def finds_rows(self) -> bool:
        """Whether a cap on rows is to be found."""
        return self.rows is not None or self.each is not None

    @property
    def ceiling(self) -> int | None:
        """The most rows of one unit that may count in one group; None if no cap on rows is to be found."""
        tops = [n for n in (self.rows, self.each, *self.known) if n is not None]
        return min(tops) if self.finds_rows else None


def find_auto_caps(block: AggregatingBlock) -> AutoCaps | None:
    """Return the caps that a block asks to find, with any other cap that its unit needs; None if it asks for none.

    Raises:
        BindError: another option excludes them.
    """
    options, bound = block.options, block.bound
    asked = {name for name in CAPS if options.get(name) == AUTO}
    if not asked or bound.row_level:
        return None
    for name in ("error", "consistent"):
        if options.get(name):
            what = f"{name} needs caps that are known before the answer."
            raise options.refuse(name, what, f"leave {name} out, or write caps.")
    grouped, private = bool(block.keys), bool(block.keys) and block.domain is None
    size = block.domain.size if block.domain is not None else None
    rows, each = (None if isinstance(cap, str) else cap for cap in bound.row_caps(options))
    groups = options.get(GROUPS, bound.max_groups)
    in_groups = (each is not None or EACH in asked) and (not grouped or groups is not None)
    if rows is None and not in_groups:
        asked.add(ROWS)
    if groups is None and private and rows is None:
        asked.add(GROUPS)
    given = options.get(GROUPS)
    if given is None or given == AUTO:
        needed = private or GROUPS in asked or (rows is None and ROWS not in asked)
        given = bound.max_groups if needed else None
    given = rows if given is None and private else given
    given = None if given is None or not grouped or (size is not None and size <= given) else given
    most_groups = min((n for n in (given, size) if n is not None), default=MOST_GROUPS) if grouped else 1
    owners = bound.max_rows, bound.max_rows_per_group
    product = None if owners[1] is None else owners[1] * most_groups
    most_rows = min(n for n in (MOST_ROWS, owners[0], product) if n is not None)
    most_each = min(n for n in (MOST_ROWS, rows, *owners) if n is not None)
    limits = ""
    if most_rows == owners[0]:
        limits = f"{most_rows:,} row{'s' * (most_rows > 1)}"
    elif owners[1] is not None:
        limits = f"{owners[1]:,} row{'s' * (owners[1] > 1)}"
        if grouped and most_groups > 1:
            limits += f" in each of {most_groups:,} groups"
    return AutoCaps(
        most_rows if ROWS in asked else None,
        most_groups if GROUPS in asked and grouped else None,
        most_each if EACH in asked else None,
        given,
        (None if ROWS in asked else rows, each),
        limits,
    )


def without_auto(options: Options, caps: AutoCaps | None) -> Options:
    """Return the options with 1 for each cap to find, and without AUTO."""
    values = {name: value for name, value in options.values.items() if value != AUTO or name not in CAPS}
    found = {} if caps is None else {ROWS: caps.rows, GROUPS: caps.groups, EACH: caps.each}
    values |= {name: 1 for name, top in found.items() if top is not None}
    return replace(options, values=values)


def write_unit_sizes(exact: Exact, top: int, option: str) -> str:
    """Return the query of the number of units by their rows or groups, at most ``top``, as the cap ``option`` counts them."""
    names, rows, size = exact.names, Subquery(exact.rows(inside=True), "rows"), f"LEAST(COUNT(*), {top})"
    pairs = Select(("u", *names, ROW_COUNT), rows, group=("u", *names))
    counted = Subquery(pairs, "pairs")
    if option == EACH:
        size = f"LEAST(MAX(n), {top})"
    elif option != GROUPS and names and (exact.groups is not None or exact.per_group is not None):
        if exact.groups is not None:
            kept = write_first_groups(exact.groups, write_secret_order(names))
            pairs = Select("*", counted, qualify=kept)
        n = "n" if exact.per_group is None else f"LEAST(n, {exact.per_group})"
        counted, size = Subquery(pairs, "kept"), f"CAST(LEAST(SUM({n}), {top}) AS BIGINT)"
    elif option != GROUPS:
        counted = rows
    sized = Subquery(Select(("u", As(size, SIZE)), counted, group="u"), "sized")
    return Select((SIZE, As("COUNT(*)", UNITS)), sized, group=SIZE, with_=exact.domain_by_name).sql


@dataclass
class CapBuilder:
    """Makes the operators of a block whose caps are found; its exact query is written anew for each cap."""

    block: AggregatingBlock
    exact: Exact
    caps: AutoCaps
    aggregates: Sequence[Aggregate]

    @property
    def private(self) -> bool:
        """Whether the groups have to be chosen first."""
        return bool(self.block.keys) and self.block.domain is None

    @cached_property
    def _needs_rows(self) -> bool:
        own = any(a.part is not None or a.quantile is not None for a in self.aggregates)
        return own or any(not partial.fixed for partial in self.exact.partials)

    @cached_property
    def _counts_units(self) -> bool:
        return any(partial.fixed for partial in self.exact.partials)

    @cached_property
    def _rows(self) -> int | None:
        """The highest cap on rows, if any answer depends on it."""
        return self.caps.rows if self._needs_rows else None

    @cached_property
    def _each(self) -> int | None:
        """The highest cap on the rows in one group, if any answer depends on it."""
        return self.caps.each if self._needs_rows else None

    @cached_property
    def _groups(self) -> int | None:
        """The highest cap on groups, if any answer to known groups depends on it."""
        rows, each = self.caps.known
        alone = rows is None or each is not None  # otherwise the cap on all rows is the least
        needed = self._counts_units or (self._rows is None and alone)
        return self.caps.groups if needed and self.aggregates else None

    @cached_property
    def _given(self) -> int | None:
        """The cap on groups if none is to be found: None if public groups share the rows of a cap to find."""
        shared = self.block.domain is not None and self._rows is not None and not self._counts_units
        return None if shared else self.caps.given

    @property
    def searches(self) -> int:
        """The number of searches."""
        tops = [self._rows, self._groups, self._each]
        if self.private:
            tops.append(self.caps.groups)
        return sum(top is not None and top > 1 for top in tops)

    @property
    def share(self) -> Fraction:
        """The part of the block's epsilon that the searches take together."""
        if not self.searches:
            return Fraction(0)
        domain = self.block.domain
        size = 1 if domain is None or domain.size is None else domain.size
        return SHARE_OF_MANY if size * len(self.aggregates) > MANY_NUMBERS else SHARE

    def reduce(self, options: Options) -> tuple[Options, Amount]:
        """Return the options with the loss left for the answers, and the loss of each search.

        Raises:
            BindError: the aggregates' own shares leave nothing. BudgetExceeded: it asks for more than the policy allows.
        """
        block, share = self.block, self.share
        catalog, asked = block.binder.catalog, options.amount
        named = [a.share for a in self.aggregates if a.share is not None]
        if asked is None:
            if len(named) == len(self.aggregates) and named and not self.private:
                hint = f"give the whole statement an epsilon: {share} of it finds the caps."
                what = "AUTO caps need an epsilon for the whole block."
                raise bind_error(self.aggregates[0].call.node, what, hint)
            if catalog.default_epsilon is None:
                return options, Amount("epsilon", Fraction(0))  # `deal` refuses this
            asked = Amount("epsilon", catalog.default_epsilon)
            if catalog.epsilon is None:
                block.binder.notes.append(f"ε={float(asked.total):g} is the policy's default")
        if asked.currency == "epsilon":
            within_limit(catalog.policy.budget, asked.total, options.nodes.get("epsilon"))
        else:
            within_limits(catalog, asked, options.nodes.get(asked.currency))
        left = Amount(asked.currency, asked.total * (1 - share))
        written = left.total if asked.currency == "epsilon" else left
        searched = Amount(asked.currency, asked.total * share)
        values = {**options.values, asked.currency: written}
        return replace(options, values=values), searched / max(1, self.searches)

    # -- private groups --------------------------------------------------------------------------------------------

    def select_groups(
        self, name: str, chosen: Amount, delta: Fraction, searched: Amount, sentences: tuple[str, ...]
    ) -> int:
        """Add the release ``name`` of the groups that are kept, and return the number of its searches.

        The choice of groups may lose ``chosen`` and ``delta``, the search of its cap ``searched``.
        """
        block, exact = self.block, self.exact
        keys = Exact(exact.bound, exact.where, exact.keys, exact.per_group, None)

        def build(groups: int) -> Operator:
            keys.groups = groups
            catalog = block.binder.catalog
            selection = choose_selector(block.options, UNITS_COLUMN, catalog, chosen, delta, groups)
            return Aggregation(keys.sql(), keys.names, (), selection, block.confidence)

        top = self.caps.groups
        if top is None or top == 1:
            operator = build(self.caps.given or 1)
        else:
            query, caps = write_unit_sizes(keys, top, GROUPS), list_caps(top)
            least, *between, most = map(build, caps)
            shared = GROUPS, query, caps, searched.find_epsilon(_price_search), Fraction(1), 1
            operator = CapSearch(*shared, least, most, tuple(between), halfway=True)
        released = [Released(key.name, key.type, order=key.order) for key in exact.keys]
        searches = int(isinstance(operator, CapSearch))
        whole = Amount(chosen.currency, chosen.total + searches * searched.total)
        block.binder.add_block(
            name, operator, released, block.bound.inputs, sentences, block.confidence, whole
        )
        return searches

    def keep_groups(self, name: str) -> Input:
        """Make the groups of a release the block's public groups, and return them as an input of its queries."""
        kept, names = self.block.binder.name("kept"), self.exact.names
        listed = Select(names, kept, distinct=True)
        self.exact.domain = PublicGroups(listed, None, "kept before", nullable=True)
        return Input(kept, Select(names, name).sql)

    # -- the searches -----------------------------------------------------------------------------------------------

    def search(
        self, answer: Callable[[], Operator], share: BudgetShare, searched: Amount, groups: int | str
    ) -> Operator:
        """Return the searches for each cap that is needed, first that on groups, around the operators of the answers.

        Args:
            answer: makes the operator of the aggregates, for the caps that the block's exact query has.
            share: the shares of the aggregates.
            searched: the loss of each search.
            groups: the number of groups, or a query of it.
        """
        rows, top, cost = self._rows, self._groups, self._cost(share)

        def within(cap: int | None) -> Operator:
            def within_group(each: int) -> Operator:
                def within_rows(most: int) -> Operator:
                    self._use(most, cap, each)
                    return answer()

                self._use(1, cap, each)
                return self._search(ROWS, rows, within_rows, searched, cost, groups)

            self._use(1, cap)
            return self._search(EACH, self._each, within_group, searched, cost, groups)

        if top is None:
            return within(self._given)
        return self._search(GROUPS, top, within, searched, cost, groups)

    def _search(
        self,
        option: str,
        top: int | None,
        build: Callable[[int], Operator],
        searched: Amount,
        cost: Fraction,
        groups: int | str,
    ) -> Operator:
        if top is None or top == 1:
            return build(1)
        if option == GROUPS:
            self._use(1, None)
        query, caps = write_unit_sizes(self.exact, top, option), list_caps(top)
        least, *between, most = map(build, caps)
        limits = self.caps.limits if option == ROWS else f"{top:,} groups" if top == self.caps.given else ""
        shared = option, query, caps, searched.find_epsilon(_price_search), cost, groups
        return CapSearch(*shared, least, most, tuple(between), limits=limits)

    def use_middle(self) -> None:
        """Set the exact query's caps to the middle of those that are tried."""
        middles = []
        for top, otherwise in ((self._rows, 1), (self._groups, self._given), (self._each, 1)):
            caps = list_caps(top) if top is not None else ()
            middles.append(caps[len(caps) // 2] if caps else otherwise)
        self._use(middles[0] or 1, middles[1], middles[2] or 1)

    def _use(self, rows: int, groups: int | None, each: int = 1) -> None:
        block, exact = self.block, self.exact
        if self.caps.rows is not None:
            exact.row_budget = rows if self._rows is not None else None
        if self.caps.each is not None:
            exact.per_group = each
        exact.groups = groups
        size = exact.domain.size if exact.domain is not None else None
        found = [n for n in (groups, size, exact.row_budget) if n is not None]
        block.per_unit_groups = min(found, default=1) if block.keys else 1

    def _cost(self, share: BudgetShare) -> Fraction:
        """Return the growth of the noise on a group's answer with a cap, on average over the aggregates."""
        shares = share.amounts[: len(self.aggregates)]
        epsilons = [amount.find_epsilon(lambda epsilon: DiscreteLaplace(epsilon, 1)) for amount in shares]
        return sum((1 / epsilon for epsilon in epsilons), Fraction(0)) / max(1, len(epsilons))


def _price_search(epsilon: Fraction) -> SparseVector:
    return CapLadder((1, 2), epsilon, Fraction(0)).event
