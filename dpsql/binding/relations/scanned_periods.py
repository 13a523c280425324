"""The periods that a statement reads: folded from its public conditions before it is bound, and enforced by each scan.

With a budget per period, every FROM item of a private table is marked with its days: those of the table's ``data_from`` to
``data_until`` that the WHERE of its own SELECT and ``OPTIONS (periods = ...)`` leave. The scan keeps these days only, so a
condition that is read too narrowly changes an answer, and never a charge. A condition that is not understood leaves all days.

In one FROM, private rows meet only with equal units, and so within one period: a condition on one table's period holds for
all of them, and one of a query for its subqueries, if these keep their rows. Within SUBSAMPLE any rows of a block may meet, so
a condition holds for its own table. Options hold for all that is inside their SELECT.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce

from sqlglot import exp

from dpsql.binding.public_statement import from_items
from dpsql.language.dialect import ModeClause, bind_error, find_nodes, join_word
from dpsql.language.options import is_private_call, mode_of, read_periods
from dpsql.late_dataclass import dataclass
from dpsql.policy.model import Policy, Table, fold
from dpsql.privacy.periods import (
    FIRST,
    LAST,
    PAYING_PARTS,
    Days,
    find_day_after,
    find_first_day,
    intersect,
    remove_days,
    say_periods,
    unite,
    unite_periods,
    widen_to_periods,
)

DAYS = "dpsql_days"
"""The mark of a FROM item: the days that its scan may read."""
_OPTION = "periods"
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?))?"
)
_TURNED: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_OPPOSITES: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
}
_MOMENTS = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
MOST_RANGES = 64
"""The most ranges that one scan's condition lists; sets with more are read and charged from their first day to their last."""


_BASE = re.compile(r'"?base[0-9]*"?\.')
"""The name of a table in its own scan, where the condition on its days is."""


@dataclass(frozen=True)
class Scan:
    """What a scan of a private table reads: its whole periods; None: all.

    ``text`` is the condition on its days, or the table's place if it has none: exact texts with it have such a scan. ``holder``
    is the table that declares the period, and ``days`` are those of its rows that are read.
    """

    text: str
    periods: Days | None
    holder: str = ""
    days: Days = ()


def mark_scans(
    tree: exp.Expr,
    policy: Policy,
    today: datetime.date | None,
    kept: Iterable[str],
    is_date: Callable[[Table, str], bool],
    only: Days | None = None,
) -> None:
    """Mark each FROM item of a private table, in place; BindError if no day is left.

    Args:
        tree: a statement whose names of tables are the policy's.
        today: today in the policy's time zone; None without a budget per period.
        kept: folded names that are no tables.
        is_date: returns whether a table's column is a date.
        only: days to read instead. Conditions that all rows of the statement's own days meet are then removed, so that the text
            is the same question about other days.
    """
    others = {*kept, *(fold(cte.alias) for cte in find_nodes(tree, exp.CTE))} if today is not None else set()
    for select in find_nodes(tree, exp.Select):
        if today is not None:
            _mark(select, policy, today, others, is_date, only)
        elif (own := _find_option(select)) is not None:
            raise bind_error(
                own, "periods needs a budget per period.", "leave it out, and write a condition."
            )


def _mark(
    select: exp.Select,
    policy: Policy,
    today: datetime.date,
    others: Collection[str],
    is_date: Callable[[Table, str], bool],
    only: Days | None,
) -> None:
    dated = _list_dated(select, policy, others)
    if not dated:
        return
    left, by_block = [], False
    around: exp.Select | None = select
    while around is not None:
        if (option := _find_option(around)) is not None:
            left.append(read_periods(option, _OPTION))
        by_block = by_block or mode_of(around) == "SUBSAMPLE"
        around = around.find_ancestor(exp.Select)

    def read(inner: exp.Select, found: Collection[tuple[exp.Table, Table, Table]]) -> _Columns:
        holders = (h for _, _, h in found)
        dates = all(is_date(h, h.declared_period.column) for h in holders if h.declared_period is not None)
        return _Columns(inner, found, dates)

    def fold_where(inner: exp.Select, found: Collection[tuple[exp.Table, Table, Table]]) -> list[Days]:
        where = inner.args.get("where")
        folded = None if where is None else read(inner, found).fold(where.this)
        return [] if folded is None else [folded]

    for inner in _list_coupled(select) if not by_block else ():
        left += fold_where(inner, _list_dated(inner, policy, others))
    own: list[tuple[int, int]] = []
    for item, table, holder in dated:
        period = holder.declared_period
        assert period is not None
        domain = holder.find_days(today)
        days = domain
        for some in [*left, *(fold_where(select, [(item, table, holder)]) if by_block else ())]:
            days = intersect(days, widen_to_periods(some, period.part))
        if not days:
            if not domain:
                what = f"{item.name} has no day yet: its data begin on {holder.data_from}."
                raise bind_error(item, what, "ask again after that day.")
            what = f"no day of {item.name} is left: its data are those of {say_periods(domain)}."
            raise bind_error(item, what, "change the condition on its period, or OPTIONS (periods = ...).")
        days = days if len(days) <= MOST_RANGES else intersect(domain, [(days[0][0], days[-1][1])])
        own += days
        item.meta[DAYS] = days if only is None else intersect(domain, only) or days
    if only is not None and not by_block:
        _drop_met(select, read(select, dated), unite(own))


def _drop_met(select: exp.Select, columns: _Columns, days: Days) -> None:
    """Remove, in place, the conditions of a SELECT that each row of these days meets: not beside rows without a match."""
    where = select.args.get("where")
    joins = (join for join in select.find_all(exp.Join) if join.find_ancestor(exp.Select) is select)
    if where is None or any(join_word(join, "side") for join in joins):
        return
    whole = where.this.unnest()
    parts = [*whole.flatten()] if isinstance(whole, exp.And) else [whole]
    left = [part for part in parts if remove_days(days, columns.find_met(part))]
    select.set("where", exp.Where(this=exp.and_(*left, copy=False)) if left else None)


def _list_coupled(select: exp.Select) -> Iterator[exp.Select]:
    """Yield a SELECT, and those around it whose rows meet its own with equal units only, as it keeps its rows."""
    inner: exp.Expr | None = select
    while isinstance(inner, exp.Select):
        yield inner
        keeps = not (inner.args.get("mode") or inner.args.get("group") or inner.args.get("having"))
        nodes = (n for item in inner.expressions for n in item.walk(prune=lambda n: isinstance(n, exp.Query)))
        if not keeps or any(map(is_private_call, nodes)):
            return
        inner = inner.find_ancestor(exp.Select, exp.CTE)


def _find_option(select: exp.Expr) -> exp.Expr | None:
    clause: ModeClause | None = select.args.get("mode")
    for option in () if clause is None else clause.options:
        if isinstance(option, exp.EQ) and fold(option.this.name) == _OPTION:
            value: exp.Expr = option.expression
            return value
    return None


def _list_dated(
    select: exp.Select, policy: Policy, others: Collection[str]
) -> list[tuple[exp.Table, Table, Table]]:
    """Return the FROM items of private tables whose units have periods, with the table and the holder of its period."""
    found = []
    for item in from_items(select):
        for node in item.find_all(exp.Table):
            table = policy.tables.get(node.name) if isinstance(node.this, exp.Identifier) else None
            if table is None or table.public or fold(node.name) in others:
                continue
            holder = policy.find_holder(table)
            if holder.declared_period is not None and node.find_ancestor(exp.Select) is select:
                found.append((node, table, holder))
    return found


class _Columns:
    """Reads conditions on the period columns of one FROM."""

    def __init__(
        self, select: exp.Select, dated: Iterable[tuple[exp.Table, Table, Table]], dates: bool
    ) -> None:
        self.dates = dates
        """Whether all period columns are dates."""
        known: list[tuple[str, str]] = []
        for item, table, holder in dated:
            if table is holder and holder.declared_period is not None:
                known.append((fold(item.alias_or_name), fold(holder.declared_period.column)))
        self._qualified = {*known}
        names = [name for _, name in known]
        joins = select.args.get("joins") or []
        merged = {fold(using.name) for join in joins for using in join.args.get("using") or ()}
        natural = any(join_word(join, "method") == "NATURAL" for join in joins)
        self._bare = {n for n in names if names.count(n) == 1 and n not in merged and not natural}

    def _is_period(self, node: exp.Expr) -> bool:
        if not isinstance(node, exp.Column) or node.args.get("db") is not None:
            return False
        if not node.table:
            return fold(node.name) in self._bare
        return (fold(node.table), fold(node.name)) in self._qualified

    def fold(self, node: exp.Expr, holds: bool = True) -> Days | None:
        """Return days that contain every row for which a condition holds (``holds`` False: doesn't); None if not understood."""
        node = node.unnest()
        if isinstance(node, exp.And | exp.Or):
            sides = [self.fold(side, holds) for side in (node.left, node.right)]
            return _join(sides, isinstance(node, exp.And) == holds)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            ends = ((exp.GTE, node.args["low"]), (exp.LTE, node.args["high"]))
            return _join([self._compare(kind, node.this, end, holds) for kind, end in ends], holds)
        if isinstance(node, exp.In) and node.expressions:
            items = [self._compare(exp.EQ, node.this, item, holds) for item in node.expressions]
            return _join(items, not holds)
        return self._compare(type(node), node.this, node.expression, holds) if type(node) in _TURNED else None

    def find_met(self, node: exp.Expr) -> Days:
        """Return days of which every row meets a condition, as far as it is understood."""
        failing = self.fold(node, holds=False)
        return () if failing is None else remove_days(((FIRST, LAST),), failing)

    def _compare(
        self, kind: type[exp.Expr], value: exp.Expr, other: exp.Expr, holds: bool = True
    ) -> Days | None:
        if not holds and kind is exp.EQ:
            return _join([self._compare(apart, value, other) for apart in (exp.LT, exp.GT)], False)
        kind = kind if holds else _OPPOSITES[kind]
        found = self._read(kind, value.unnest(), other.unnest())
        return self._read(_TURNED[kind], other.unnest(), value.unnest()) if found is None else found

    def _read(self, kind: type[exp.Expr], value: exp.Expr, other: exp.Expr) -> Days | None:
        """Return the days that a comparison of a period's column, or a part of it, with a constant leaves."""
        if self._is_period(value):
            return _apply(kind, _read_day(other), "day", self.dates)
        if isinstance(value, exp.Cast) and value.to.this == exp.DType.DATE and self._is_period(value.this):
            return _apply(kind, _read_day(other), "day")
        if isinstance(value, exp.TimestampTrunc | exp.DateTrunc) and self._is_period(value.this):
            part = fold(value.unit.name) if value.unit is not None else ""
            if part in PAYING_PARTS and value.args.get("zone") is None:
                return _apply(kind, _read_day(other), part)
        year = isinstance(value, exp.Extract) and value.name.upper() == "YEAR"
        inner = value.expression if year else value.this if isinstance(value, exp.Year) else None
        if isinstance(inner, exp.Expr) and self._is_period(inner):
            return _apply(kind, _read_year(other), "year")
        return None


def _join(sides: Sequence[Days | None], every: bool) -> Days | None:
    """Return the days on all sides as far as these are known, or on any side; None if they are not known."""
    known = [side for side in sides if side is not None]
    return (reduce(intersect, known) if known else None) if every else unite_periods(sides)


def _apply(
    kind: type[exp.Expr], constant: tuple[int, bool] | None, part: str, whole: bool = True
) -> Days | None:
    """Return the days that a comparison with a constant leaves.

    Args:
        constant: its day, and whether it is the start of that day.
        part: the periods whose starts are compared with it.
        whole: whether only these starts are compared, and no times between.
    """
    if constant is None:
        return None
    day, starts = constant
    low, high = find_first_day(day, part), find_day_after(day, part)
    if kind is exp.EQ:
        return unite([(low, high)])
    if kind in (exp.LT, exp.LTE):
        return unite([(FIRST, low if kind is exp.LT and starts and low == day else high)])
    return unite([(high if kind is exp.GT and whole else low, LAST)])


def _read_day(node: exp.Expr) -> tuple[int, bool] | None:
    """Return the day of a constant date or timestamp, and whether it is the start of that day."""
    if isinstance(node, exp.Cast) and node.to.this in _MOMENTS:
        node = node.this
    found = _MOMENT.fullmatch(node.name) if isinstance(node, exp.Literal) and node.is_string else None
    try:
        if found is None:
            return None
        return datetime.date.fromisoformat(found[1]).toordinal(), not (found[2] or "").strip("0:.")
    except ValueError:
        return None


def _read_year(node: exp.Expr) -> tuple[int, bool] | None:
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdecimal():
        return None
    year = int(node.name)
    return (datetime.date(year, 1, 1).toordinal(), True) if 1 <= year < datetime.MAXYEAR else None


def write_days(days: Days, when: exp.Expr, sql_type: str) -> exp.Expr:
    """Return the condition that keeps the rows of some days, as the second lock reads it.

    Args:
        when: the column of the period.
        sql_type: its type, DATE or TIMESTAMP.
    """

    def write(day: int) -> exp.Expr:
        text = datetime.date.fromordinal(day).isoformat()
        text += " 00:00:00" if sql_type == "TIMESTAMP" else ""
        return exp.cast(exp.Literal.string(text), sql_type, dialect="duckdb")

    ranges = [
        exp.And(
            this=exp.GTE(this=when.copy(), expression=write(low)),
            expression=exp.LT(this=when.copy(), expression=write(high)),
        )
        for low, high in days
    ]
    return (
        ranges[0] if len(ranges) == 1 else exp.paren(exp.or_(*map(exp.paren, ranges), copy=False), copy=False)
    )


def find_scans(scans: Iterable[Scan], texts: str) -> list[Scan]:
    """Return the scans in a block's texts: their periods pay for it, all if one has none.

    If no scan is found, all scans of the statement count. If one is overlooked, the second lock refuses the statement.
    """
    plain = _BASE.sub("", texts)
    scans = [*scans]
    return [scan for scan in scans if _BASE.sub("", scan.text) in plain] or scans
