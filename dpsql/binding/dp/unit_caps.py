"""Caps on a unit's contribution: those found before the answer, the report of what caps leave out, and advice on them.

``max_rows_contributed = AUTO`` and ``max_groups_contributed = AUTO`` find caps.
A unit's rows are bounded over all of its groups together: the noise on each group is then that of the cap, for any number
of groups, and no group is left out. The number of groups is bounded too if an answer depends on it: if units are counted or
bounded per group, or if rows are bounded only per group. ``max_rows_per_group = AUTO`` caps a unit's rows in any one group.

Private groups are chosen first, as a release of their own, with a cap that suits most units. A low cap loses little, since
it reduces the noise and the counts of the choice in proportion. The groups that were kept are public from then on, and rows
in other groups use up no cap.

The searches get a stated share of the block's epsilon, and are paid first. The answers have the noise of the found caps.
The policy's caps are ceilings; without them these are :data:`MOST_ROWS` and :data:`MOST_GROUPS`.

``OPTIONS (report_cut = TRUE)`` reports the rows, groups and values that caps and bounds leave out.
The report adds up, per unit, the rows above the cap on rows, the groups above the cap on groups, and the excess of values
over an aggregate's bounds. Each unit's number is clamped to its caps. The notes under every answer (:func:`list_cuts`), the
caps' price in noise and the one change of them that would help most are public, and depend on no data: a change is named with
the rows that it would cost a unit, and how many such units there are is left to the analyst and the owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from dpsql.binding.dp.aggregates import Aggregate
from dpsql.binding.dp.budget_split import BudgetShare, choose_selector, within_limit, within_limits
from dpsql.binding.dp.private_block import AggregatingBlock
from dpsql.binding.plan import Input
from dpsql.catalogue.option_names import CAP_OPTIONS
from dpsql.exact.exact_query import Exact, PublicGroups, write_first_groups, write_secret_order
from dpsql.language.dialect import bind_error
from dpsql.language.options import AUTO, Options
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.contribution_caps import (
    CUT_SHARE,
    SIZE,
    UNITS,
    CapLadder,
    CapSearch,
    ClippedValue,
    CutNumber,
    CutReport,
    list_caps,
)
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.queries import ROW_COUNT, As, Select, Subquery
from dpsql.privacy.amounts import Amount
from dpsql.privacy.events import DiscreteLaplace, SparseVector

_WIDEST = 1 << 90
"""The most steps that count of one unit: the sum over 10^10 units fits 128 bits."""
_LONG = 1 << 61
_SHOWN_CLAMPS = 3
"""Clamped values that one note names."""


@dataclass(frozen=True)
class _Cut:
    """A number that is left out, described by ``what``.

    ``of_group`` is SQL over the rows of one unit in one group; ``of_unit`` makes a unit's number of the sum ``{}`` of that
    over its groups. At most ``most`` grid steps (``counted`` in words) count of one unit; ``steps`` are grid steps to one.
    """

    of_group: str
    of_unit: str
    most: int
    what: str
    counted: str
    steps: Fraction = Fraction(1)


def find_report_share(options: Options) -> Fraction:
    """Return the part of a block's budget that its report of cuts takes."""
    return CUT_SHARE if options.get("report_cut") else Fraction(0)


def make_cut_report(
    exact: Exact, groups: int, options: Options, amount: Amount, confidence: float
) -> CutReport:
    """Return the report of a block's exact query, whose units count in ``groups`` groups; BindError if nothing is cut."""
    cuts = [*_list_cap_cuts(exact, groups), *_list_clips(exact, groups)]
    if not cuts:
        what = "nothing is cut here: no cap and no bound applies."
        raise options.refuse("report_cut", what, "leave report_cut out.")
    numbers = []
    for place, cut in enumerate(cuts):
        most = cut.most
        epsilon = (amount / len(cuts)).find_epsilon(lambda e, most=most: DiscreteLaplace(e, most))  # type: ignore[misc]
        numbers.append(CutNumber(f"c{place}", cut.what, cut.counted, LaplaceNoise(epsilon, most), cut.steps))
    return CutReport(_write_query(exact, cuts).sql, tuple(numbers), confidence, str(amount))


def _list_cap_cuts(exact: Exact, groups: int) -> list[_Cut]:
    if exact.bound.row_level:
        return []
    budget, rows = exact.caps.total if exact.budgeted else None, exact.caps.each
    found = []
    if rows is not None and rows != budget:
        what = f"rows beyond {rows:,} of one privacy unit in {'one group' if exact.keys else 'all'}"
        most = exact.caps.total or rows * groups
        found.append(_Cut(f"GREATEST(COUNT(*) - {rows}, 0)", "{}", most, what, f"{most:,} rows"))
    if budget is not None:
        what = f"rows beyond {budget:,} of one privacy unit in all"
        capped = "COUNT(*)" if rows == budget else f"LEAST(COUNT(*), {rows})"
        found.append(_Cut(capped, f"GREATEST({{}} - {budget}, 0)", budget, what, f"{budget:,} rows"))
    if (shared := exact.shared_rows) is not None:
        what = f"shared rows beyond {shared:,} of one privacy unit in all groups"
        capped = f"LEAST(COUNT(*), {rows})"
        found.append(_Cut(capped, f"GREATEST({{}} - {shared}, 0)", shared, what, f"{shared:,} rows"))
    elif exact.keys and (cap := exact.kept_groups) is not None:
        what = f"groups beyond {cap:,} of one privacy unit"
        found.append(_Cut("1", f"GREATEST({{}} - {cap}, 0)", cap, what, f"{cap:,} groups"))
    return found


def _list_clips(exact: Exact, groups: int) -> list[_Cut]:
    rows = exact.caps.total or groups
    found: dict[str, _Cut] = {}
    for clip in exact.clipped:
        most = min(max(1, abs(clip.low), abs(clip.high)) * rows, _WIDEST)
        low, high = (float(Fraction(end) / clip.steps) for end in (clip.low, clip.high))
        what = f"{clip.source} beyond [{low:g}, {high:g}], added up"
        excess = f"COALESCE(SUM({_write_excess(clip, most)}), 0)"
        found.setdefault(what, _Cut(excess, "{}", most, what, f"{float(most / clip.steps):g}", clip.steps))
    return list(found.values())


def _write_excess(clip: ClippedValue, most: int) -> str:
    """Return SQL for a row's excess over the bounds, clamped to a unit's ``most``; NULL first, since ``LEAST`` skips it."""
    y = f"CAST({clip.y} AS HUGEINT)" if max(abs(clip.low), abs(clip.high)) + most > _LONG else clip.y
    near = f"LEAST(GREATEST({y}, {clip.low}), {clip.high})"
    far = f"LEAST(GREATEST({y}, {clip.low - most}), {clip.high + most})"
    return f"CASE WHEN {clip.y} IS NOT NULL THEN LEAST(ABS({far} - {near}), {most}) END"


def _write_query(exact: Exact, cuts: Sequence[_Cut]) -> Select:
    def number(letter: str, items: Iterable[str]) -> tuple[As, ...]:
        return tuple(As(sql, f"{letter}{i}") for i, sql in enumerate(items))

    rows = Subquery(exact.rows(inside=True), "rows")
    of_groups = [cut.of_group for cut in cuts]
    if exact.bound.row_level:  # each row is a unit, and clamped already
        return Select(number("c", of_groups), rows, with_=exact.domain_by_name)
    if exact.keys:
        pairs = Select(("u", *number("e", of_groups)), rows, group=("u", *exact.names))
        rows, of_groups = Subquery(pairs, "pairs"), [f"SUM(e{i})" for i in range(len(cuts))]
    own = (cut.of_unit.format(sql) for cut, sql in zip(cuts, of_groups, strict=True))
    units = Subquery(Select(("u", *number("s", own)), rows, group="u"), "units")
    sums = (f"COALESCE(SUM(LEAST(GREATEST(s{i}, 0), {cut.most})), 0)" for i, cut in enumerate(cuts))
    return Select(number("c", sums), units, with_=exact.domain_by_name)


# -- in words ----------------------------------------------------------------------------------------------------------


def list_cuts(
    exact: Exact, drops_rows: bool, finds_groups: bool = False, advises: bool = False
) -> Iterator[str]:
    """Yield the notes on rows and values that caps and bounds leave out of a block's numbers.

    Args:
        exact: the block's exact query, with all that its aggregates ask for.
        drops_rows: whether an aggregate has a query of its own, which leaves rows out.
        finds_groups: whether the cap on groups is found privately, and reported with the answer.
        advises: whether to name the option that estimates them.
    """
    yield from _list_caps(exact, drops_rows, finds_groups, advises)
    clamps = list(dict.fromkeys(map(_say_clamp, exact.clipped)))
    if clamps:
        more = ", and others" if len(clamps) > _SHOWN_CLAMPS else ""
        yield f"values are clamped: {', '.join(clamps[:_SHOWN_CLAMPS])}{more}"


def _list_caps(exact: Exact, drops_rows: bool, finds_groups: bool, advises: bool) -> Iterator[str]:
    if exact.bound.row_level or exact.ceiling is not None:
        return
    unit, capped = exact.bound.unit_name, []
    plain = [p for p in exact.partials if not p.fixed and p.weighing is None]
    caps = exact.caps
    rows = caps.each if exact.cuts_rows else None
    where = "" if rows == caps.total else " in one group"
    if rows is not None and (drops_rows or any(p.adds is None for p in plain)):
        capped.append(f"{rows:,} row{'s' if rows > 1 else ''}{where}")
    if finds_groups:
        pass
    elif rows is not None and (shared := exact.shared_rows) is not None:
        capped.append(f"{shared:,} rows in all groups" if not capped else f"{shared:,} in all groups")
    elif rows is not None and exact.budgeted and rows != caps.total and exact.counts_rows:
        capped.append(f"{caps.total:,} in all" if capped else f"{caps.total:,} rows in all")
    groups = None if finds_groups or exact.shared_rows is not None else exact.kept_groups
    certain = exact.bound.certain_rows
    if groups is not None and (certain is None or groups < certain):
        capped.append(f"{groups:,} group{'s' if groups > 1 else ''}")
    if capped:
        one = len(capped) == 1 and capped[0].startswith("1 ")
        used = f"only {' and '.join(capped)} per {unit} {'is' if one else 'are'} used"
        yield f"{used}{' (report_cut = TRUE estimates the rest)' * advises}"
    if rows is not None and plain and all(p.adds is not None for p in plain):
        many = f"{rows:,} row{'s' if rows > 1 else ''}"
        yield f"one {unit} adds at most as much to a sum as {many} at the bounds{where}"


def _say_clamp(clip: ClippedValue) -> str:
    low, high = (float(end / clip.steps) for end in (clip.low, clip.high))
    lost = "" if clip.farthest is None else f" (missing beyond ±{float(clip.farthest):g})"
    return f"{clip.source} to [{low:g}, {high:g}]{lost}"


# -- the price of caps -------------------------------------------------------------------------------------------------

COSTLY = 2
"""The factor of noise from which on the footer names the change, too."""


@dataclass(frozen=True)
class CapChange:
    """A change of one cap.

    Args:
        option: as it can be pasted, such as ``max_rows_contributed = 8``.
        factor: how many times less noise there is with it.
        loses: which rows or groups are left out, as a clause.
        free: whether it loses nothing of a unit that fills one group, or is once in each.
    """

    option: str
    factor: float
    loses: str
    free: bool


def find_cap_change(exact: Exact, groups: int) -> CapChange | None:
    """Return the change of a cap that would help most; None if each unit is one row, or caps are found privately.

    Caps on groups and on the rows in each multiply. So where no cap on all rows holds, one of as many rows as the larger of the
    two helps most: it loses nothing of a unit that fills one group, or has a row in each. Else half of the cap is proposed.

    Args:
        exact: the block's exact query, with all that its aggregates ask for.
        groups: the groups that one unit counts in.
    """
    if exact.bound.row_level or exact.ceiling is not None or exact.bound.unit is None:
        return None
    unit, caps = exact.bound.unit_name, exact.caps
    if not exact.counts_rows:
        if groups < 2 or not exact.keys:
            return None
        half = groups // 2
        return CapChange(
            f"max_groups_contributed = {half}",
            groups / half,
            f"one {unit} counts in {half} of its groups",
            False,
        )
    total, each = caps.total, caps.each
    if total is None or each is None or total < 2:
        return None
    most = max(each, total // each)
    # an owner who gives a cap on all rows knows that units have so many
    free = most < total and caps.in_all is None
    rows = most if free else total // 2
    loses = f"rows of one {unit} above {rows:,} in all are left out"
    return CapChange(f"max_rows_contributed = {rows}", total / rows, loses, free)


def describe_caps(exact: Exact, groups: int) -> Iterator[str]:
    """Yield for EXPLAIN which caps are used, and how many rows the noise is for because of each.

    Args:
        exact: the block's exact query, with all that its aggregates ask for.
        groups: the groups that one unit counts in.
    """
    if exact.bound.row_level or exact.ceiling is not None or exact.bound.unit is None:
        return
    caps, names = exact.caps, _name_caps(exact)
    if exact.counts_rows and caps.total is not None and names:
        many = f"{caps.total:,} row{'s' * (caps.total > 1)}"
        why = "" if len(names) == 1 else f", the least that they allow ({_say_product(exact)})"
        yield f"Caps: {', '.join(names)}. The noise is that of {many} of one privacy unit{why}.{_say_parts(exact)}"
    elif names and exact.keys and groups > 1:
        yield f"Caps: {', '.join(names)}. The noise is that of {groups:,} groups of one privacy unit."
    change = find_cap_change(exact, groups)
    if change is not None:
        yield (
            f"The cap that would help most: try {change.option}, which has {1 / change.factor:.2g} times the noise; "
            f"{change.loses}. OPTIONS (report_cut = TRUE) estimates how many rows the caps leave out."
        )


def note_costly_caps(exact: Exact, groups: int) -> Iterator[str]:
    """Yield the note of a footer where caps cost more than half of the noise, and a change loses little."""
    change = find_cap_change(exact, groups)
    if change is not None and change.free and change.factor > COSTLY:
        yield (
            f"caps make the noise {change.factor:.3g} times that of {change.option.rpartition(' ')[2]} rows: "
            f"try {change.option} ({change.loses})"
        )


def _name_caps(exact: Exact) -> list[str]:
    caps = (
        ("max_rows", exact.row_budget),
        ("max_rows_per_group", exact.per_group),
        ("max_groups", exact.groups if exact.keys else None),
    )
    return [f"{name} = {cap:,}" for name, cap in caps if cap is not None]


def _say_product(exact: Exact) -> str:
    caps = exact.caps
    parts = [] if caps.in_all is None else [f"{caps.in_all:,} in all"]
    if caps.per_group is not None and caps.groups is not None:
        many = f" in each of {caps.groups:,} groups" if caps.groups > 1 else " in one group"
        parts.append(f"{caps.per_group:,}{many}")
    return ", ".join(parts)


def _say_parts(exact: Exact) -> str:
    """Return how many rows the noise would cover without each of several caps; empty if only one cap is in force."""
    own = exact.caps
    found = []
    for name, cap in (("in_all", "max_rows"), ("per_group", "max_rows_per_group"), ("groups", "max_groups")):
        if getattr(own, name) is None or (name == "groups" and exact.groups is None):
            continue
        total = replace(own, **{name: None}).total
        if total == own.total:
            found.append(f"{cap} changes nothing")
        elif total is not None:
            found.append(f"without {cap} it would be that of {total:,}")
    if len(found) > 1 and all(part.endswith("changes nothing") for part in found):
        return " Each of these caps could be left out without a change."
    return f" Of these caps, {'; '.join(found)}." if len(found) > 1 else ""


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
            selection = choose_selector(block.options, catalog, chosen, delta, groups)
            return Aggregation(keys.sql(), keys.names, (), selection, block.confidence)

        top = self.caps.groups
        if top is None or top == 1:
            operator = build(self.caps.given or 1)
        else:
            query, caps = write_unit_sizes(keys, top, GROUPS), list_caps(top)
            least, *between, most = map(build, caps)
            shared = GROUPS, query, caps, searched.find_epsilon(_price_search), Fraction(1), 1
            operator = CapSearch(*shared, least, most, tuple(between), halfway=True)
        searches = int(isinstance(operator, CapSearch))
        whole = Amount(chosen.currency, chosen.total + searches * searched.total)
        block.binder.add_block(
            name, operator, block.released_keys, block.bound.inputs, sentences, block.confidence, whole
        )
        return searches

    def keep_groups(self, name: str) -> Input:
        """Make the groups of a release the block's public groups, and return them as an input of its queries."""
        kept, names = self.block.binder.name("kept"), self.exact.names
        listed = Select(names, kept, distinct=True)
        self.exact.domain = PublicGroups(listed, None, "kept before", nullable=True)
        return Input(kept, Select(names, name).sql)

    def count_groups(self, kept: Input | None = None) -> int | str:
        """Return the number of the answer's groups, which are ``kept`` ones, or public; or a query of it."""
        if kept is not None:
            return Select(ROW_COUNT, kept.name).sql
        domain = self.block.domain
        if not self.block.keys or domain is None:
            return 1
        return domain.size or Select(ROW_COUNT, Subquery(domain.query, "listed")).sql

    def add_up(self, share: BudgetShare, searched: Amount, searches: int) -> Amount:
        """Return the loss of the answers and a report, and of further searches."""
        amounts = [*share.amounts[: len(self.aggregates)], *([] if share.apart is None else [share.apart])]
        answers = sum((amount.total for amount in amounts), Fraction(0))
        return Amount(searched.currency, answers + searched.total * searches)

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
