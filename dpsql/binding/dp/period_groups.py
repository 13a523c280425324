"""Groups whose keys decide their period: ``GROUP BY day``, or ``GROUP BY year(day), month(day), ward``.

A unit with a period is in one period, so it is in no more groups than one period has. Noise on each group then depends on one
period's units alone, and an answer over several periods can be stored in parts, one for each period.

Which period a group is of is public: the keys and the period are computed together for each day that the scan may read.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.binding.dp.private_block import AggregatingBlock
from dpsql.binding.dp.public_groups import Pairs, find_public_groups, list_days, list_key_columns, quote_column
from dpsql.binding.relations.relation import Relation
from dpsql.binding.values.sql_types import Typed
from dpsql.errors import Error
from dpsql.language.dialect import to_sql
from dpsql.mechanisms.aggregation import Group, list_groups

_START = "dpsql_start"
_MODEL = ((datetime.date(2024, 1, 1).toordinal(), datetime.date(2029, 1, 1).toordinal()),)
"""Days with periods of every length. The groups of one period are counted here, so that no noise depends on the days read."""


@dataclass(frozen=True)
class PeriodGroups:
    """The keys made of the period's column, and the first day of the period of each of their values.

    ``starts`` is empty if a group has rows of several periods. ``most`` is the greatest number of groups that one period has;
    None if it is not known.
    """

    keys: tuple[str, ...]
    starts: Mapping[Group, int]
    most: int | None


def find_period_groups(block: AggregatingBlock, pairs: Pairs, ranges: int) -> PeriodGroups | None:
    """Return the periods of a block's public groups; None if no key is of a period. ``ranges``: the most groups of ranges."""
    for relation in block.bound.relations:
        period = relation.period if relation.private else None
        places = [] if period is None else list_key_columns(period)
        if period is None or len(places) != 1:
            continue
        typed = _find_typed(relation, places[0])
        own = [pair for pair in pairs if places[0] in list_key_columns(pair[1].node)]
        alone = all(list_key_columns(key.node) == places for _, key in own)
        if typed is None or typed.days is None or typed.values is not None or not own or not alone:
            continue
        names = tuple(key.name for key, _ in own)
        nodes = [*(key.node for _, key in own), period]
        items = ", ".join(
            f"{to_sql(node)} AS {name}" for node, name in zip(nodes, (*names, _START), strict=True)
        )
        source, model = (_write_days(t, places[0], nodes) for t in (typed, replace(typed, days=_MODEL)))
        if source is None or model is None:
            continue
        counted = f"SELECT COUNT(*) AS n FROM (SELECT DISTINCT {items} FROM {model}) AS d GROUP BY {_START}"
        finish = block.binder.finish
        try:
            table = finish.keep(f"SELECT DISTINCT {items} FROM {source}")
            (most,) = finish.keep(f"SELECT MAX(n) AS n FROM ({counted}) AS c").column(0).to_pylist()
        except Error:
            continue
        days = [start.toordinal() for start in table.column(_START).to_pylist()]
        starts = dict(zip(list_groups(table, names), days, strict=True))
        others = [pair for pair in pairs if pair not in own]
        found = find_public_groups(block, others, ranges) if others else None
        size = 1 if not others else None if found is None else found.size
        alone = len(starts) == len(days)
        return PeriodGroups(names, starts if alone else {}, None if size is None else most * size)
    return None


def _find_typed(relation: Relation, place: tuple[str, str]) -> Typed | None:
    nodes = ((f.typed, f.typed.node) for f in relation.fields)
    return next((t for t, n in nodes if isinstance(n, exp.Column) and (n.table, n.name) == place), None)


def _write_days(typed: Typed, place: tuple[str, str], nodes: Iterable[exp.Expr]) -> str | None:
    """Return a FROM item of a column's days, as the expressions read it."""
    uses = [c for node in nodes for c in node.find_all(exp.Column)]
    values = list_days(place[1], typed if typed.days != _MODEL else replace(typed, bounds=None), uses)
    return None if values is None else f"({values.sql}) AS {quote_column(place[0])}"
