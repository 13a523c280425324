"""The periods of a block's groups, and the periods that each block reads and can be divided by.

Groups whose keys decide their periods: ``GROUP BY day``, or ``GROUP BY year(day), month(day), ward``.

A unit with a period is in one period, so it is in no more groups than one period has. Noise on each group then depends on the
units of its own periods alone, and an answer over several periods can be stored in parts: one for each period or, if a group has
rows of several periods, one for each class of periods that have groups in common.

Which period a group is of is public: the keys and the period are computed together for each day that the scan may read.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from dpsql.binding.dp.private_block import AggregatingBlock
from dpsql.binding.dp.public_groups import (
    Pairs,
    find_public_groups,
    is_strict,
    list_days,
    list_key_columns,
    quote_column,
)
from dpsql.binding.plan import PeriodParts, PrivateBlock
from dpsql.binding.public_statement import FORETOLD
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.plan_size import write_shared
from dpsql.binding.relations.scanned_periods import Scan, find_scans
from dpsql.errors import Error
from dpsql.language.dialect import quote_where_needed, to_sql
from dpsql.language.options import Options
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Aggregation, Group, list_groups, sort_by_key
from dpsql.mechanisms.base import Operator, list_claims
from dpsql.mechanisms.moments import Count, Sum
from dpsql.mechanisms.queries import ROW_COUNT, As, Select, Subquery
from dpsql.privacy.periods import FIRST, find_day_after, find_first_day, unite, unite_periods

_START = "dpsql_start"

_MODEL = ((datetime.date(2012, 1, 1).toordinal(), datetime.date(2040, 1, 1).toordinal()),)
"""Years of each length that begin on each day of the week: 28, since 2012 is a leap year of 54 weeks. The groups of one period
are counted here, so that no noise depends on the days read."""


@dataclass(frozen=True)
class PeriodGroups:
    """The keys made of the period's column, and the periods of their values.

    Args:
        starts: the first day of the first period of each class; a class has no group, and no period, in common with another.
        classes: the first days of the periods of each class, in order.
        most: the greatest number of groups that one period has; None if it is not known.
    """

    keys: tuple[str, ...]
    starts: Mapping[Group, int]
    classes: tuple[tuple[int, ...], ...]
    most: int | None


def find_period_groups(block: AggregatingBlock, pairs: Pairs, ranges: int) -> PeriodGroups | None:
    """Return the periods of a block's public groups; None if no key is of a period. ``ranges``: the most groups of ranges."""
    period = block.bound.period
    if period is None:
        return None
    fields = (f.typed for relation in block.bound.relations for f in relation.fields)
    dated = {(t.node.table, t.node.name): t for t in fields if t.days and isinstance(t.node, exp.Column)}
    for place, typed in dated.items():
        own = [pair for pair in pairs if place in list_key_columns(pair[1].node)]
        if (
            not own
            or any(list_key_columns(key.node) != [place] for _, key in own)
            or typed.values is not None
            or (typed.nullable and not all(is_strict(key.node) for _, key in own))
        ):
            continue  # rows without a day may be of any period
        uses = [use for _, key in own for use in key.node.find_all(exp.Column)]
        days = list_days(place[1], typed, uses)
        model = list_days(place[1], replace(typed, days=_MODEL, bounds=None), uses)
        if days is None or model is None:
            continue
        alias, name = map(quote_column, place)
        start = As(f"CAST(date_trunc('{period.part}', {alias}.{name}) AS DATE)", _START)
        items = (*(As(to_sql(key.node), name.name) for name, key in own), start)
        listed, every = (Select(items, Subquery(v.query(), alias), distinct=True) for v in (days, model))
        counted = Select(ROW_COUNT, Subquery(every, "d"), group=_START)
        greatest = Select(As("MAX(n)", "n"), Subquery(counted, "c"))
        try:
            table = block.binder.finish.keep(listed.sql)
            (most,) = block.binder.finish.keep(greatest.sql).column(0).to_pylist()
        except Error:
            continue
        names = tuple(key.name for key, _ in own)
        first = [day.toordinal() for day in table.column(_START).to_pylist()]
        starts, classes = _find_classes(list_groups(table, names), first)
        others = [pair for pair in pairs if pair not in own]
        found = find_public_groups(block, others, ranges) if others else None
        size = 1 if not others else None if found is None else found.size
        return PeriodGroups(names, starts, classes, None if size is None else most * size)
    return None


def _find_classes(
    groups: Iterable[Group], first: Iterable[int]
) -> tuple[dict[Group, int], tuple[tuple[int, ...], ...]]:
    """Return the class of each group, and the periods of each class, given the pairs of a group and a period's first day."""
    found: dict[Group, set[int]] = {}
    of: dict[int, int] = {}
    for group, day in zip(groups, first, strict=True):
        found.setdefault(group, set()).add(day)

    def find(day: int) -> int:
        while of.setdefault(day, day) != day:
            day = of[day]
        return day

    for days in found.values():
        roots = [find(day) for day in days]
        of |= dict.fromkeys(roots, min(roots))
    members: dict[int, list[int]] = {}
    for day in sorted(of):
        members.setdefault(find(day), []).append(day)
    return {group: find(min(days)) for group, days in found.items()}, tuple(map(tuple, members.values()))


def date_blocks(binder: Binder) -> tuple[PrivateBlock, ...]:
    """Return the blocks, each with the periods that it reads; prepaid ones are paid by all periods."""
    if binder.today is None:
        return tuple(binder.blocks)
    return tuple(_date_block(binder, block) for block in binder.blocks)


def _find_own_scans(binder: Binder, block: PrivateBlock) -> list[Scan]:
    texts = [*block.operator.checked, *(claimed.text for claimed in list_claims(block.operator))]
    whole = " ".join(write_shared(text, binder.catalog.shared) for text in dict.fromkeys(texts))
    return find_scans(binder.scans, whole)


def _date_block(binder: Binder, block: PrivateBlock) -> PrivateBlock:
    scans = _find_own_scans(binder, block)
    every = block.prepaid or not scans
    periods = None if every else unite_periods(scan.periods for scan in scans)
    parts = None if every else _find_parts(binder, block, scans, binder.period_groups.get(block.name))
    sets = tuple(_date_block(binder, one) for one in block.sets)
    return replace(block, periods=periods, parts=parts, sets=sets, closed=_find_closed(binder, scans))


def _find_closed(binder: Binder, scans: Iterable[Scan]) -> frozenset[str]:
    """Return the tables that declare the periods of scans, if none of the days that are read may change."""
    tables, today = binder.catalog.policy.tables, binder.today
    assert today is not None
    dated = [scan for scan in scans if scan.periods is not None]
    still = {scan.holder for scan in dated if scan.days[-1][1] > tables[scan.holder].find_closed(today)}
    return frozenset(scan.holder for scan in dated) - still


def _find_parts(
    binder: Binder, block: PrivateBlock, scans: Sequence[Scan], found: PeriodGroups | None
) -> PeriodParts | None:
    """Return the parts of a block: it must read equal periods of all tables, and no earlier release."""
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
    levels = binder.growing.get(block.name, 0)
    return PeriodParts(period.part, found.keys, found.starts, found.classes, tuple(sorted(read)), levels)


def find_growing(
    binder: Binder, block: PrivateBlock, found: PeriodGroups, groups: str, options: Options
) -> PeriodParts | None:
    """Return the parts of a block with a growing tree, which begins with the first period; None for any other block.

    Args:
        found: its groups' periods.
        groups: the query of its groups.

    Raises:
        BindError: it begins with the first period, which is closed, but it doesn't fit such a tree.
    """
    scans = _find_own_scans(binder, block)
    parts = _find_parts(binder, block, scans, found) if scans else None
    if parts is None:
        return None
    tables, unit = binder.catalog.policy.tables, parts.part
    begun = max(day.toordinal() for scan in scans if (day := tables[scan.holder].data_from) is not None)
    read = unite(pair for days in parts.list_parts() for pair in days)
    first, end = find_first_day(begun, unit), find_first_day(parts.closed, unit)
    if not binder.narrowed and (len(read) > 1 or read[0][0] != first or end <= first):
        return None
    misfit = _find_misfit(block.operator, parts, _list_groups(binder, groups, parts), binder.catalog.has_rule)
    if misfit is None and end < read[-1][1]:
        column = tables[scans[0].holder].declared_period.column  # type: ignore[union-attr]
        hint = f"add the condition {quote_where_needed(column)} < DATE '{datetime.date.fromordinal(end)}'"
        misfit = f"it has closed {unit}s alone, and later ones may still change", hint
    if misfit is not None:
        if binder.narrowed:
            return None
        what = f"TREE keeps running totals while {unit}s are added: {misfit[0]}."
        raise options.refuse("strategy", what, f"{misfit[1]}.")
    steps = -(-HORIZON // (find_day_after(FIRST, unit) - FIRST))
    binder.growing[block.name], binder.period_groups[block.name] = (steps - 1).bit_length() + 1, found
    return _find_parts(binder, block, scans, found)


def _list_groups(binder: Binder, groups: str, parts: PeriodParts) -> list[Group]:
    """Return all groups, in the order of releases: conditions on a key leave some out. None are returned if they aren't known."""
    try:
        return list_groups(sort_by_key(binder.finish.keep(groups), parts.keys), parts.keys)
    except Error:
        return []


def _find_misfit(
    operator: Operator, parts: PeriodParts, groups: Sequence[Group], has_rule: bool
) -> tuple[str, str] | None:
    """Return why a growing tree has no such block, and a hint; None if it fits."""
    even = f"leave strategy out: each {parts.part} is stored and paid once"
    if not isinstance(operator, Aggregation) or not all(isinstance(o, Count | Sum) for o in operator.outputs):
        return "it keeps counts and sums alone", f"ask for the others apart, or {even}"
    if len(operator.keys) > 1 or [(parts.starts.get(group),) for group in groups] != [*parts.classes]:
        return f"it has one key, whose values are all {parts.part}s in their order", even
    if not has_rule and any(s.noise.is_gaussian for s in operator.statistics):
        return "sums of ε charge Gaussian noise in full for each node", f"write noise = 'laplace', or {even}"
    return None


HORIZON = 4096
"""The days of the longest node of a growing tree, eleven years: later on, errors grow with the number of such nodes."""
