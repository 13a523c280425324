"""The report of rows, groups and values that caps and bounds leave out (``OPTIONS (report_cut = TRUE)``), and advice on caps.

The report adds up, per unit, the rows above the cap on rows, the groups above the cap on groups, and the excess of values
over an aggregate's bounds. Each unit's number is clamped to its caps. The notes under every answer (:func:`list_cuts`), the
caps' price in noise and the one change of them that would help most are public, and depend on no data: a change is named with
the rows that it would cost a unit, and how many such units there are is left to the analyst and the owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.relations.unit_rows import name_unit
from dpsql.binding.values.sql_types import Typed
from dpsql.errors import BindError
from dpsql.exact.exact_query import Exact
from dpsql.language.options import Options
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.contribution_caps import ClippedValue, CutNumber, CutReport
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.queries import As, Select, Subquery
from dpsql.privacy.amounts import Amount
from dpsql.privacy.events import DiscreteLaplace

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


def make_cut_report(
    exact: Exact, groups: int, options: Options, amount: Amount, confidence: float
) -> CutReport:
    """Return the report of a block's exact query, whose units count in ``groups`` groups; BindError if nothing is cut."""
    cuts = [*_list_cap_cuts(exact, groups), *_list_clips(exact, groups)]
    if not cuts:
        what = "nothing is cut here: no cap and no bound applies."
        raise options.refuse("report_cut", what, "leave report_cut out.", BindError)
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
    """Return the SQL of a row's excess over the bounds, clamped to a unit's ``most``, so that it can't overflow.

    ``LEAST`` skips NULL, so a row without a value is left out first.
    """
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
    unit, capped = name_unit(exact.bound), []
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
        yield f"one {unit} adds to a sum at most what {many} at the bounds add{'s' if rows == 1 else ''}{where}"


def _say_clamp(clip: ClippedValue) -> str:
    low, high = (float(end / clip.steps) for end in (clip.low, clip.high))
    lost = "" if clip.farthest is None else f" (missing beyond ±{float(clip.farthest):g})"
    return f"{clip.source} to [{low:g}, {high:g}]{lost}"


def is_surely_within(typed: Typed) -> bool:
    """Return whether an expression is within its bounds for all values of columns: if columns are only compared.

    ``CASE WHEN x > 60 THEN 1 ELSE 0 END``, for example, is 0 or 1.
    """
    return typed.type.kind == "BOOLEAN" or not any(_find_values(typed.node))


def _find_values(node: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns whose own value an expression may have, or compute with."""
    if isinstance(node, exp.Column):
        yield node
    elif isinstance(node, exp.If | exp.Case):
        values = [node.args.get("true"), node.args.get("false"), node.args.get("default")]
        values += [branch.args.get("true") for branch in node.args.get("ifs") or []]
        for value in filter(None, values):
            yield from _find_values(value)
    elif not isinstance(node, exp.Predicate | exp.Connector | exp.Not):
        for child in node.iter_expressions():
            yield from _find_values(child)


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
    """Return the change of a cap that would help most; None where each unit is one row, or caps are found privately.

    Caps on groups and on the rows in each multiply. So where no cap on all rows holds, one of as many rows as the larger of the
    two helps most: it loses nothing of a unit that fills one group, or has a row in each. Else half of the cap is proposed.

    Args:
        exact: the block's exact query, with all that its aggregates ask for.
        groups: the groups that one unit counts in.
    """
    if exact.bound.row_level or exact.ceiling is not None or exact.bound.unit is None:
        return None
    unit, caps = name_unit(exact.bound), exact.caps
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
            f"{change.loses}. OPTIONS (report_cut = TRUE) tells about how many rows the caps leave out."
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
    """Return how many rows the noise would be for without each of several caps; empty where one cap alone is in force."""
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
