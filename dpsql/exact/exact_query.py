"""The exact query of a private block: contributions bounded per privacy unit, sums as integers on a grid.

The query is DuckDB SQL; other engines get a translation. Its subqueries, from the inside out:

    rows     one line per private row: its unit, its group, the grid integers and conditions that aggregates need
    units    one line per unit and group: the unit's own aggregates
    kept     the groups and rows of each unit within the caps. A secret hash of the group orders the unit's groups (never row
             order), and groups are taken until the caps are reached. If cells of several grouping sets are capped together,
             cells that more of the sets show come first
    totals   one line per group: the sum of each unit's clamped or weighed aggregates, and the number of units
    domain   with public groups: all of them, also those without rows

The module also writes the packed route to these totals for :mod:`dpsql.mechanisms.fast`: one integer per row, from the same
partials. It exists for rows of one table grouped by few keys, for which a GROUP BY is slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property

from sqlglot import exp

from dpsql.binding.relations.plan_size import is_shared, refuse_written
from dpsql.binding.relations.relation import UNIT, From
from dpsql.binding.relations.unit_rows import RowCaps, describe_protection, secret_hash
from dpsql.binding.values.sql_types import SMALL_INTEGERS
from dpsql.language.dialect import list_nodes, to_sql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.contribution_caps import ClippedValue
from dpsql.mechanisms.fast import packed_aggregation as packed
from dpsql.mechanisms.fast.packed_aggregation import CodedUnit, PackedRoute
from dpsql.mechanisms.queries import ROW_COUNT, As, Join, Query, Select, Source, Subquery
from dpsql.mechanisms.unit_parts import KEY_PART_COLUMN, write_key_part, write_part
from dpsql.mechanisms.unit_parts import UNITS_COLUMN as UNITS_COLUMN

_U = "u"


def write_secret_order(names: Iterable[str]) -> str:
    """Return a number that orders a unit's own groups or rows unpredictably, and differently for each unit."""
    return secret_hash([_U, *names])


def write_first_groups(groups: int, order: str) -> str:
    """Return the condition that a row, one for each unit and group, is among the unit's first ``groups`` in an order."""
    return f"lag({_U}, {groups}) OVER (ORDER BY {_U}, {order}) IS DISTINCT FROM {_U}"


@dataclass(frozen=True)
class GroupKey:
    """A grouping key: its expression over the rows, and its name and type in the exact query."""

    name: str
    sql: str
    type: str
    order: tuple[str, ...] | None = field(default=None, compare=False, repr=False)
    """The labels of an ENUM in the type's order, for SQL above the release."""


@dataclass(frozen=True)
class PublicGroups:
    """A query of all public groups, their largest number (None: unknown), and their origin."""

    query: Query
    size: int | None
    origin: str
    nullable: bool = False
    """Whether a group's key may be NULL; it is then the group of the rows without a value."""
    complete: bool = False
    """Whether the groups have all values of the rows, as for booleans and literal outcomes of a CASE."""
    left_out: tuple[str, ...] = ()
    """Names of the keys that may be NULL in rows without having a NULL group."""
    ranged: frozenset[str] = frozenset()
    """Keys from bounds: an answer shows only those of their groups that differ from a group without rows."""
    per_unit: int | None = None
    """The most of these groups that one unit may be in, if its period decides that; their total number then doesn't matter."""
    is_period: bool = False
    """Whether a group is a period of the units, so that each unit is in one group by definition."""

    @property
    def sql(self) -> str:
        """The query's text."""
        return self.query.sql

    @property
    def most(self) -> int | None:
        """The most groups that one unit may be in; None if unknown."""
        return self.size if self.per_unit is None else self.per_unit

    def holds(
        self, values: Sequence[str], keys: Sequence[GroupKey], alias: str, groups: str | None = None
    ) -> str:
        """Return a condition that is true if these key values are a public group; ``groups``: the query's name, if any."""
        if self.nullable:
            pairs = zip(values, keys, strict=True)
            same = tuple(f"g.{key.name} IS NOT DISTINCT FROM {value}" for value, key in pairs)
            source: Source = Subquery(self.query, "g") if groups is None else As(groups, "g")
            return f"EXISTS ({Select('1', source, where=same)})"
        names = ", ".join(key.name for key in keys)
        source = groups or Subquery(self.query, alias)
        if len(values) == 1:
            return f"{values[0]} IN ({Select(names, source)})"
        return f"({', '.join(values)}) IN ({Select(f'({names})', source)})"

    def joins(self, keys: Sequence[GroupKey], left: str, right: str) -> str:
        """Return a condition that is true if two relations' keys are equal; NULL-safe if a key may be NULL."""
        equal = "IS NOT DISTINCT FROM" if self.nullable else "="
        return " AND ".join(f"{left}.{key.name} {equal} {right}.{key.name}" for key in keys)


@dataclass(frozen=True)
class Weighing:
    """The weight of a unit's rows in the moments of one aggregate.

    Let n be the number of the unit's rows in the group with a non-NULL ``y``, m the number that may count, and N = n (or,
    with ``all_rows``, all rows of the unit in the group, so that a share is a share of one set of rows). Each row has the
    weight ``min(1, m / N)``: a cap lowers the unit's weight in a mean, but never biases its value. Weights are in units of
    ``1 / scale``: the n rows weigh ``W = scale * n`` for N <= m, and ``scale * m * n / N``, rounded down, otherwise. If the n
    values add up to S, a moment is ``W * S / n``, rounded down once. Rounding down, unlike rounding towards 0, keeps sums
    about different centres apart by exactly W times the difference, so a sum over a count is the mean.

    Sensitivity: ``|S / n| <= most``, so a unit moves a moment by at most ``W * most <= scale * m * most``, an integer, so
    rounding down doesn't enlarge it. A count has n terms of 1, so it is exactly W. Terms between integers a and b add up to
    between ``a * W`` and ``b * W``, so the quotient of a sum and the count is between a and b. If groups share a total, m is
    the group's part of it; the parts add up to at most the total, and so do the changes.
    """

    y: str
    scale: int
    all_rows: bool = False
    """Whether N counts all rows of the unit in the group."""

    @property
    def present(self) -> str:
        """The column with the number of a unit's rows that enter the moment."""
        return f"{self.y}_rows"

    @property
    def columns(self) -> dict[str, str]:
        """The numbers of a unit's rows that are needed, as SQL over them, by column."""
        found = {self.present: f"COUNT({self.y})"}
        return {**found, "unit_rows": "COUNT(*)"} if self.all_rows else found

    def sql(self, total: str, most: int | str, low: int) -> str:
        """Return a unit's moment in units of ``1 / scale``, from a sum over all of its rows, if ``most`` rows count.

        The quotient and the remainder of the mean are weighed separately, so no product needs more than 128 bits.
        Each term is at least ``low``; the sum less ``low`` per row is positive, so division rounds it down.
        """
        weight = self.count(most)
        if low < 0:
            above = self.sql(f"({total} - {low} * CAST({self.present} AS HUGEINT))", most, 0)
            return f"{above} + {low} * {weight}"
        count = f"GREATEST({self.present}, 1)"
        steps = f"({total} // {count})"
        return f"{steps} * {weight} + (({total} - {steps} * {count}) * {weight}) // {count}"

    def count(self, most: int | str) -> str:
        """Return the weight of a unit's rows that enter the moment, in units of ``1 / scale``."""
        if not self.all_rows:
            return f"(LEAST({self.present}, {most}) * CAST({self.scale} AS HUGEINT))"
        parts = f"CAST({self.scale} AS HUGEINT) * {most} * {self.present}"
        return f"(({parts}) // GREATEST(unit_rows, {most}))"


FINEST_WEIGHT = 1 << 20
"""The largest ``scale`` of a weighing. A unit with a million times the rows that count has no weight."""
_UNIT_BITS = 92
"""The most bits that one unit adds to a moment: sums over 2**34 units fit 128 bits."""


@dataclass(frozen=True)
class Partial:
    """One exact integer per group.

    ``inner`` aggregates the rows of a unit (or of the group, if rows are units). A unit's value is clamped to
    ``[low, high]`` if ``fixed``, otherwise to that range times the unit's rows that count. With a ``weighing`` it is
    weighed instead, and one row's part of it is within ``[low, high]``.
    """

    inner: str
    low: int
    high: int
    fixed: bool = False
    doubled: bool = False
    """Whether ``inner`` is twice the integer, which is halved once per group rather than once per unit."""
    adds: tuple[str, int, int, int] | None = None
    """For a sum of clamped values: the value, its bounds, and the number subtracted from each."""
    weighing: Weighing | None = None
    nullable: bool = False
    """Whether ``inner`` is NULL for a unit without values, which adds nothing even if the bounds exclude 0."""
    name: str = ""
    """Its column in the totals."""

    @property
    def counts_weighed_rows(self) -> bool:
        """Whether it is the count of the rows in its own weighing."""
        return self.weighing is not None and self.inner == f"COUNT({self.weighing.y})"


@dataclass
class Exact:
    """Collects the values and partials of a block's aggregates, then writes one query for all of them."""

    bound: From
    where: str | None
    keys: tuple[GroupKey, ...]
    per_group: int | None
    """Cap on one unit's rows in one group; None if there is none."""
    groups: int | None
    """Cap on one unit's groups; None if there is none."""
    row_budget: int | None = None
    """Cap on one unit's rows in total; None if there is none."""
    domain: PublicGroups | None = None
    ceiling: int | None = None
    """The highest row budget that may be chosen later, which weights allow for."""
    shares: bool = False
    """Whether public groups of a unit may share its rows, since the statement names no number of groups."""
    later: Sequence[str] = ()
    """Conditions on the keys: caps keep a unit's groups that meet fewer of them first, by the unit's own rows alone."""
    _values: dict[str, str] = field(default_factory=dict)
    _partials: dict[Partial, Partial] = field(default_factory=dict)
    _size: int = 0
    clipped: list[ClippedValue] = field(default_factory=list)
    """The values that are clamped to bounds."""

    def value(self, sql: str) -> str:
        """Return the column of an expression over the rows; equal expressions share one."""
        if sql not in self._values:
            self._count(sql)
            self._values[sql] = f"y{len(self._values)}"
        return self._values[sql]

    def add(self, partial: Partial) -> Partial:
        """Return the partial with its column's name; equal partials share one."""
        if partial not in self._partials:
            self._count(partial.inner)
            self._partials[partial] = replace(partial, name=f"p{len(self._partials)}")
        return self._partials[partial]

    def clip(
        self, y: str, ends: tuple[int, int], steps: Fraction, source: str, farthest: Fraction | None
    ) -> None:
        """Record that a column of the rows is clamped, in grid steps: see :class:`ClippedValue`."""
        self.clipped.append(ClippedValue(y, *ends, steps, source, farthest))

    def describe_unit(self, found: bool = False, groups: int = 1) -> tuple[str, ...]:
        """Return EXPLAIN's sentence on the privacy unit and its rows that count; ``found``: their caps are found privately."""
        return describe_protection(self.bound, None if found else self.caps, bool(self.keys), groups)

    def _count(self, sql: str) -> None:
        """Count the text's length and refuse a text that is too long early."""
        self._size += len(sql)
        refuse_written(self._size)

    def weighing(self, y: str, most: int, all_rows: bool = False) -> Weighing | None:
        """Return the weighing of moments over the rows with a non-NULL ``y``; None if each row is a unit.

        Args:
            y: a column from :meth:`value`.
            most: the largest absolute value that one row adds to any of the moments, in grid steps.
            all_rows: whether all rows of a unit are weighed alike, including those with a NULL ``y``.
        """
        if self.bound.unit is None:
            return None
        rows = self.rows_in_group if self.ceiling is None else self.ceiling
        bits = _UNIT_BITS - (2 * max(1, most) * rows).bit_length()
        scale = min(FINEST_WEIGHT, 1 << max(0, min(bits, 62 - rows.bit_length())))
        return Weighing(y, scale, all_rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the keys."""
        return tuple(key.name for key in self.keys)

    @property
    def caps(self) -> RowCaps:
        """The caps in force: one group without GROUP BY, and at most the number of public groups."""
        if self.bound.row_level:
            return RowCaps(1, 1, 1)
        if not self.keys:
            return RowCaps(self.row_budget, self.per_group, 1)
        most = None if self.domain is None else self.domain.most
        groups = min((n for n in (self.groups, most) if n is not None), default=None)
        return RowCaps(self.row_budget, self.per_group, groups)

    @property
    def budgeted(self) -> bool:
        """Whether the cap on a unit's rows in total is lower than what the caps on its groups and rows in each imply."""
        return bool(self.keys) and self.caps.binds_total

    @property
    def counts_rows(self) -> bool:
        """Whether a partial depends on the number of a unit's rows rather than only on the unit's presence."""
        return any(not partial.fixed for partial in self._partials)

    @property
    def row_total(self) -> int | None:
        """Rows that the groups of a unit share, in the text of the sums; None if caps on groups and rows suffice."""
        if not self.counts_rows or self.bound.unit is None:
            return None
        return self.caps.total if self.budgeted else self.shared_rows

    @property
    def _in_one_group(self) -> bool:
        """Whether each unit is in one group by definition."""
        return not self.keys or (self.domain is not None and self.domain.is_period)

    @property
    def kept_groups(self) -> int | None:
        """Cap on the groups of a unit that are kept whole, while others are dropped; None if there is none."""
        if self._in_one_group or self.bound.unit is None:
            return None
        if not self.counts_rows:  # a unit has at most as many groups as rows
            most = min((n for n in (self.groups, self.row_budget) if n is not None), default=None)
            size = None if self.domain is None else self.domain.size
            return None if size is not None and most is not None and size <= most else most
        shared = self.budgeted and self._may_share
        return None if shared or self.shared_rows is not None else self._cut_groups(self.groups)

    def _cut_groups(self, groups: int | None) -> int | None:
        """Return a cap on groups; None if the cap on all rows implies it."""
        total = self.caps.total
        implied = self.budgeted and total is not None and groups is not None and total <= groups
        return None if implied else groups

    @property
    def _may_share(self) -> bool:
        """Whether public groups of a unit may share its rows: if noise is scaled to rows, not to a number of groups."""
        fixed = any(partial.fixed for partial in self._partials)
        return self.shares and self.domain is not None and bool(self.keys) and self.counts_rows and not fixed

    @property
    def partials(self) -> tuple[Partial, ...]:
        """The partials, in the order of their first use."""
        return tuple(self._partials.values())

    @property
    def rows_per_unit(self) -> int:
        """Rows of one unit that may count in a group, or in total if the cap on all rows is the lower one."""
        return self.caps.bounds[0] if self.budgeted else self.rows_in_group

    @property
    def rows_in_group(self) -> int:
        """Rows of one unit that may count in one group; their total may be unbounded while the groups are not chosen."""
        rows = self.caps.each
        assert rows is not None, "rows per unit are unbounded"
        return rows

    @property
    def cuts_rows(self) -> bool:
        """Whether a unit may have more rows than the cap; not if each row is a unit, or if the query's shape implies fewer."""
        certain, caps = self.bound.certain_rows, (self.caps.total, self.caps.each)
        return not self.bound.row_level and (
            certain is None or any(cap is None or cap < certain for cap in caps)
        )

    @property
    def shared_rows(self) -> int | None:
        """Rows of one unit that its public groups share without a cap on all rows; None if whole groups are dropped.

        With caps of C rows in each of L0 groups, noise is scaled to an L1 distance of C L0 rows and an L2 distance of C
        sqrt(L0). Instead of L0 whole groups, a unit may keep c(g) <= C rows in each of all its groups, with a sum of at most
        C L0: both distances stay, see :class:`.RowCaps`. For a unit with n(g) <= C rows in each of m > L0 groups,
        choosing L0 groups, or a weight of L0/m, keeps L0/m of the sum of n(g) on average. Sharing keeps it up to C L0, which
        is at least as much since the sum is at most m C. So sharing is never worse at equal noise.

        The loss of Laplace noise with one epsilon in all L0 groups is convex in each number's movement, and 0 without
        movement, so it is largest if L0 numbers move by C. Numbers that each unit moves by 1, whatever its rows, have no such
        bound; with one of these, groups are chosen.
        """
        capped = self.groups is not None and self.per_group is not None and self.per_group > 1
        if not capped or self.budgeted or not self._may_share or self.bound.unit is None:
            return None
        return self.caps.total

    def sensitivity(self, partial: Partial) -> int:
        """Return how far one unit moves a partial in one group, in grid steps (times ``scale`` if weighed)."""
        return self._step(partial) * (1 if partial.fixed else self.rows_in_group)

    def reach(self, partial: Partial, groups: int, gaussian: bool) -> tuple[int, int]:
        """Return how far one unit moves a partial in one group, and in how many, exactly as in :meth:`RowCaps.reach`."""
        step = max(1, self._step(partial))
        if partial.fixed:
            return step, groups
        rows, many = self.caps.reach(gaussian)
        return step * rows, many

    @staticmethod
    def _step(partial: Partial) -> int:
        """Return how far one row, or one unit for a fixed partial, moves the partial."""
        most = max(abs(partial.low), abs(partial.high))
        return most if partial.weighing is None else most * partial.weighing.scale

    # -- writing ------------------------------------------------------------------------------------------------

    def rows(self, inside: bool | None = None, in_parts: bool = False) -> Select:
        """Return a query of the rows with the values of aggregates.

        Args:
            inside: whether to drop rows outside of the public groups; by default if they would use up a cap.
            in_parts: whether to read only the units of the parts that a release asks for (:func:`write_part`); if each row
                is a unit, those with keys in these parts.
        """
        values = {name: sql for sql, name in self._values.items()}
        more = []
        if inside is None:
            inside = not self._in_one_group and (self.groups is not None or self.row_budget is not None)
        if inside and self.domain is not None:
            more = [self.domain.holds([f"({k.sql})" for k in self.keys], self.keys, "domain", "domain")]
        if in_parts:
            unit = self.bound.unit
            more.append(write_part(*([to_sql(unit)] if unit is not None else [k.sql for k in self.keys])))
        return _write_rows(self.bound, self.keys, values, [self.where, *more], self._source)

    @cached_property
    def _source(self) -> str:
        """The text after FROM, which a block's texts share."""
        return self.bound.sql

    def held(self, value: str, groups: int, in_parts: bool = False) -> Select:
        """Return a query of the bounded rows for mechanisms that need them: the keys, and ``value`` as ``v``.

        Under a row budget a unit has that number of rows over all groups, and up to one group per row. ``in_parts``
        blanks the values outside of the parts that a release asks for (:func:`write_part`), and keeps their rows.
        """
        most, each = None if self._in_one_group or self.budgeted else groups, None
        if self.budgeted:
            free = self.shares and self.domain is not None
            most = None if free else self._cut_groups(self.groups)
            if self.per_group is not None and self.per_group < self.rows_per_unit:
                each = self.per_group
        rows = (self.bound, self.where, self.keys, {"v": value}, self.rows_per_unit)
        return write_bounded_rows(*rows, most, self.domain, self.budgeted, in_parts, each)

    def one_row(self, value: str) -> Select:
        """Return a query of one row per unit with a finite ``value``, as ``v``; a secret hash chooses it."""
        finite = f"ABS({value}) < CAST('Infinity' AS DOUBLE)"
        where = finite if self.where is None else f"({self.where}) AND {finite}"
        return write_bounded_rows(self.bound, where, self.keys, {"v": value}, 1, None, self.domain, True)

    def plain(self, value: str) -> Select:
        """Return a query of all rows with ``value`` as ``v``, for routes that count them."""
        return _write_rows(self.bound, (), {"v": value}, [self.where], self._source)

    def write_unit_parts(self) -> str:
        """Return the query over the units of some parts, whose totals add up; empty if rows are the units of a single group."""
        return "" if self.bound.unit is None and not self.keys else self.sql(in_parts=True)

    def sql(self, in_parts: bool = False) -> str:
        """Return the block's query."""
        if self.bound.unit is None:
            sums = (f"({p.inner}) // 2" if p.doubled else p.inner for p in self.partials)
            totals = self._totals(sums, Subquery(self.rows(in_parts=in_parts), "rows"), in_parts)
        else:
            totals = self._user_level(in_parts)
        if self.domain is None:
            return totals.sql
        names = (*(p.name for p in self.partials), UNITS_COLUMN)
        shown = (As(f"COALESCE(totals.{n}, 0)", n) for n in names)
        whole = Join("domain", "totals", self.domain.joins(self.keys, "domain", "totals"), side="LEFT")
        named = {**self.domain_by_name, "totals": totals}
        return Select((*(f"domain.{key.name}" for key in self.keys), *shown), whole, with_=named).sql

    @property
    def domain_by_name(self) -> Mapping[str, Query]:
        """The query of the public groups, under the name by which :meth:`rows` refers to it."""
        return {} if self.domain is None else {"domain": self.domain.query}

    def _totals(self, sums: Iterable[str], rows: Subquery, in_parts: bool) -> Select:
        items = [As(sql, p.name) for sql, p in zip(sums, self.partials, strict=True)]
        items.append(As("COUNT(*)", UNITS_COLUMN))
        if in_parts and self.names and self.domain is None:
            items.append(As(write_key_part(self.names), KEY_PART_COLUMN))
        return Select((*self.names, *items), rows, group=self.names)

    def _user_level(self, in_parts: bool) -> Select:
        names, budget, kept = self.names, self.row_total, self.kept_groups
        budgeted = budget is not None
        weighings = dict.fromkeys(p.weighing for p in self.partials if p.weighing is not None)
        items: list[str | As] = [_U, *names]
        items += [As(p.inner, p.name) for p in self.partials if not p.counts_weighed_rows]
        items += dict.fromkeys(As(sql, name) for w in weighings for name, sql in w.columns.items())
        if budgeted:
            each = self.rows_in_group
            items.append(As("COUNT(*)" if each == budget else f"LEAST(COUNT(*), {each})", "n"))
        rows = Subquery(self.rows(in_parts=in_parts), "rows")
        units = Select(tuple(items), rows, group=(_U, *names))
        chosen = write_secret_order(names)
        if self.later and (budgeted or kept is not None):
            met = " + ".join(f"CASE WHEN {condition} THEN 1 ELSE 0 END" for condition in self.later)
            units = Select(("*", As(met, "later")), Subquery(units, "units"))
            chosen = f"later, {chosen}"
        if kept is not None:
            units = Select("*", Subquery(units, "units"), qualify=write_first_groups(kept, chosen))
        if budgeted:
            # The rows of the unit that may still count in this group, with its groups in a secret order.
            before = f"SUM(n) OVER (PARTITION BY {_U} ORDER BY {chosen} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
            most = f"CAST(LEAST(n, GREATEST({budget} - COALESCE({before}, 0), 0)) AS BIGINT)"
            counted = Select(("*", As(most, "counted")), Subquery(units, "units"))
            units = Select("*", Subquery(counted, "kept"), where="counted > 0")
        bounded = (f"COALESCE(SUM({self._bounded(p, budgeted)}), 0)" for p in self.partials)
        pairs = zip(bounded, self.partials, strict=True)
        sums = (f"{sql} // 2" if p.doubled and p.weighing is None else sql for sql, p in pairs)
        return self._totals(sums, Subquery(units, "kept"), in_parts)

    def _bounded(self, partial: Partial, budgeted: bool) -> str:
        """Return a unit's own value, weighed if it has a weighing and clamped otherwise."""
        weighing = partial.weighing
        if weighing is None:
            return self._clamp(partial, budgeted)
        most = "counted" if budgeted else self.rows_in_group
        if partial.counts_weighed_rows:
            weighed = weighing.count(most)
        else:
            total = f"CAST({partial.name} AS HUGEINT)"
            weighed = weighing.sql(f"({total} // 2)" if partial.doubled else total, most, partial.low)
        # By Weighing's argument no value reaches these ends; they bound the text for the second lock.
        low, high = self._write_ends(partial, weighing.scale, "CAST(counted AS HUGEINT)" if budgeted else "")
        return f"LEAST(GREATEST({weighed}, {low}), {high})"

    def _write_ends(self, partial: Partial, times: int, counted: str) -> tuple[str, str]:
        """Return the ends of a unit's value, ``times`` those of a row for each row that counts."""
        ends = (partial.low * times, partial.high * times)
        if partial.fixed and partial.weighing is None:
            low, high = map(str, ends)
        elif counted:
            low, high = (f"{end} * {counted}" for end in ends)
        else:
            low, high = (str(end * self.rows_in_group) for end in ends)
        return low, high

    def _clamp(self, partial: Partial, budgeted: bool) -> str:
        low, high = self._write_ends(partial, 2 if partial.doubled else 1, "counted" if budgeted else "")
        value = partial.name
        if not (partial.low == 0 and not partial.fixed and partial.inner.startswith("COUNT")):
            value = f"GREATEST({value}, {low})"
        clamped = f"LEAST({value}, {high})"
        return f"CASE WHEN {partial.name} IS NOT NULL THEN {clamped} END" if partial.nullable else clamped


def _write_rows(
    bound: From,
    keys: Iterable[GroupKey],
    values: Mapping[str, str],
    conditions: Sequence[str | None],
    source: str = "",
) -> Select:
    """Return a query of the rows: their unit, their keys, and these values by name."""
    named = {**{key.name: key.sql for key in keys}, **values}
    items = [As(f"({sql})", name) for name, sql in named.items()]
    where, *more = conditions
    if bound.unit is not None:
        unit = to_sql(bound.unit)
        items.insert(0, As(unit, _U))
        more.insert(0, f"{unit} IS NOT NULL")
    asked = tuple(f"({condition})" for condition in (where, *more) if condition)
    return Select(tuple(items) or As("1", "one"), source or bound.sql, asked)


def write_bounded_rows(
    bound: From,
    where: str | None,
    keys: tuple[GroupKey, ...],
    values: Mapping[str, str],
    rows: int | None,
    groups: int | None,
    domain: PublicGroups | None = None,
    in_all: bool = False,
    in_parts: bool = False,
    each: int | None = None,
) -> Select:
    """Return a query of private rows, for mechanisms that need rows rather than sums.

    A unit keeps at most ``rows`` rows in a group and ``groups`` groups. With ``in_all``, ``rows`` bounds the unit's rows in
    total and ``each`` those in one group. A secret hash of the unit's own values chooses the rows, so no other unit's rows
    affect the choice. ``values`` maps column names to SQL. With ``in_parts``, values outside of the parts that a release
    asks for are NULL, so the sort doesn't carry them.
    """
    names = [key.name for key in keys]
    query = _write_rows(bound, keys, values, [where])
    if domain is not None and names:
        inside = domain.holds([f"rows.{n}" for n in names], keys, "domain")
        query = Select("*", Subquery(query, "rows"), where=inside)
    shown = [As(f"CASE WHEN {write_part(v)} THEN {v} END", v) if in_parts else v for v in values]
    if bound.unit is None:
        return Select((*names, *shown), Subquery(query, "rows")) if in_parts else query
    if in_all and (groups is not None or each is not None):
        kept = _keep_some(query, names, values, each, groups, False, list(values))
        query = Select((_U, *names, *values), Subquery(kept, "kept"))  # the next cap has its own hashes
        groups = None
    query = _keep_some(query, names, values, rows, groups, in_all, shown, in_parts)
    return Select((*names, *values), Subquery(query, "bounded"))


def _keep_some(
    query: Select,
    names: list[str],
    values: Iterable[str],
    rows: int | None,
    groups: int | None,
    in_all: bool,
    shown: Sequence[str | As],
    in_parts: bool = False,
) -> Select:
    """Return a query of at most ``rows`` rows per unit in a group (or ``in_all``), in at most ``groups`` groups."""
    # One sort by unit, group and row, and a window that looks back in it: this takes a twentieth of the time of a
    # million small partitions, and DuckDB can spill all of it.
    hashes, order, conditions = [], [_U], []
    if groups is not None and names:
        hashes.append(As(write_secret_order(names), f"{_U}_groups"))
        order += [f"{_U}_groups", *names]
        before = f"GROUPS BETWEEN {groups} PRECEDING AND {groups} PRECEDING"
        conditions.append(
            f"first_value({_U}) OVER (ORDER BY {', '.join(order)} {before}) IS DISTINCT FROM {_U}"
        )
    elif not in_all:
        order += names
    if rows is not None:
        hashed = [*names, *values] if in_all else values
        hashes.append(As(write_secret_order(hashed), f"{_U}_rows"))
        by = ", ".join([*order, f"{_U}_rows"])
        same = (_U,) if in_all else (_U, *names)
        other = [f"lag({c}, {rows}) OVER (ORDER BY {by}) IS DISTINCT FROM {c}" for c in same]
        conditions.append(other[0] if len(other) == 1 else f"({' OR '.join(other)})")
    if hashes:
        query = Select(("*", *hashes), Subquery(query, "rows"))
    if in_parts:
        query = Select((_U, *names, *shown, *(one.name for one in hashes)), Subquery(query, "rows"))
    if conditions:
        query = Select("*", Subquery(query, "rows"), qualify=tuple(conditions))
    return query


CODED_UNIT_TYPES = (
    *("VARCHAR", "UUID", "BLOB", "UBIGINT", "HUGEINT", "UHUGEINT"),
    *("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE"),
)
"""SQL types of units whose equal values have equal hashes, so units may have codes; BIGINT has them too if gaps are wide."""

_PRESENT = re.compile(r"COUNT\((y\d+)\)\Z")


def write_packed_route(exact: Exact) -> packed.PackedAggregation | None:
    """Return the packed route to a block's totals, or None if the block has another shape.

    The block must read one table whose unit is a small integer or has codes. It may have public groups of any type, or
    private groups of integers. Its aggregates must count rows or add clamped values.
    """
    bound = exact.bound
    kind = bound.unit_type.sql if bound.unit is not None and bound.unit_type is not None else ""
    if bound.joins or kind not in (*SMALL_INTEGERS, *CODED_UNIT_TYPES):
        return None
    if any(isinstance(n, exp.Join | exp.Group) or is_shared(n) for n in list_nodes(bound.source)):
        return None
    coded = write_coded_unit(bound.source) if kind in CODED_UNIT_TYPES else None
    if kind not in SMALL_INTEGERS and coded is None:
        return None
    total, kept = exact.row_total, exact.kept_groups
    if exact.later and (total is not None or kept is not None):
        return None  # the packed route can't order groups so
    if total is not None:
        units = exact.domain is None or any(partial.fixed for partial in exact.partials)
        if units or kept is not None or total % exact.rows_in_group:
            return None  # its claims cover rows shared in equal parts, and no counts of units
    rows, names = exact.rows(inside=False), exact.names
    whole = all(key.type in SMALL_INTEGERS for key in exact.keys)
    if SALT in rows.sql or (exact.domain is None and not whole):
        return None  # the route reads rows twice, and rows chosen by a secret hash are read once
    values = packed.PackedValues()
    for y, low, high, _ in (p.adds for p in exact.partials if p.adds is not None):
        values.add_held(y, low, high)
    tallies = [t for partial in exact.partials if (t := _tally(exact, partial, values)) is not None]
    if len(tallies) < len(exact.partials) or not values.fit:
        return None
    least, greatest = ("MIN(u)", "MAX(u)") if coded is None else ("0", "0")
    known = [ROW_COUNT, As(least, "u_low"), As(greatest, "u_high")]
    ends = [As(f"{f}({n})", f"{n}_{at}") for n in names for f, at in (("MIN", "low"), ("MAX", "high"))]
    listed: dict[str, Query | str] = {}
    if exact.domain is None:
        columns: list[str | As] = [As(f"TRY_CAST({key.name} AS {key.type})", key.name) for key in exact.keys]
        columns += [As(t.sql, t.name) if t.rows is not None else t.name for t in tallies]
        final = Select((*columns, UNITS_COLUMN), packed.PACKED_TOTALS)
        routes = [PackedRoute(names, rows.sql, final.sql)]
        known += ends
    else:
        listed = {"domain": exact.domain.query, "listed": Select("*", "domain", distinct=True)}
        routes = []
        count, last = (Select(sql, "listed") for sql in ("COUNT(*)", "COUNT(*) - 1"))
        known += [As(f"({count})", "listed"), As("0", "code_low"), As(f"({last})", "code_high")]
        if whole and not exact.domain.nullable:  # integers without gaps are their own codes; NULL has none
            on = " AND ".join(f"{packed.PACKED_TOTALS}.{name} = listed.{name}" for name in names)
            final = _all_groups(names, tallies, "listed", on, listed)
            routes.append(PackedRoute(names, rows.sql, final.sql, dense=True))
            known += [As(f"({Select(end.sql, 'listed')})", end.name) for end in ends]
        # Groups of other types are numbered in the order of their values.
        code = As(f"row_number() OVER (ORDER BY {', '.join(names)}) - 1", "code")
        numbered = {**listed, "codes": Select((code, "*"), "listed")}
        source = Join(Subquery(rows, "rows"), "codes", exact.domain.joins(exact.keys, "rows", "codes"))
        on = f"{packed.PACKED_TOTALS}.code = codes.code"
        final = _all_groups(names, tallies, "codes", on, numbered)
        routes.append(PackedRoute(("code",), Select("*", source, with_=numbered).sql, final.sql))
    ranges = Select(tuple(known), Subquery(rows, "rows"), with_=listed).sql
    shared, groups = None, kept
    if total is not None:
        shared, groups = (exact.rows_in_group, total), total // exact.rows_in_group
    route = packed.PackedAggregation(
        ranges, tuple(routes), tuple(values.packed), tuple(tallies), UNITS_COLUMN, groups, shared, coded
    )
    wide = write_coded_unit(bound.source) if kind == "BIGINT" and exact.keys else None
    return route if wide is None else replace(route, wide=replace(route, coded=wide))


def write_coded_unit(source: exp.Expr) -> CodedUnit | None:
    """Return the queries for codes of a source's units; None unless the unit is an unchanged column of one table."""
    tables = list(source.find_all(exp.Table))
    inner = tables[0].find_ancestor(exp.Select) if len(tables) == 1 else None
    if inner is None or source.find(exp.SetOperation) is not None:
        return None
    named = [item for item in source.find_all(exp.Alias) if item.alias == UNIT]
    own = next((item.this for item in named if item.parent is inner), None)
    if not all(isinstance(item.this, exp.Column) for item in named) or not isinstance(own, exp.Column):
        return None
    table, column = to_sql(tables[0]), to_sql(own)
    place = tuple(part.name for part in tables[0].parts), own.name
    there = f"{column} IS NOT NULL"
    units = Select(As(column, "u"), table, where=there, distinct=True)
    hashes = Select(As("hash(rows.u)", "h"), Subquery(units, "rows"))
    return CodedUnit(hashes.sql, Select(ROW_COUNT, table, where=there).sql, place)


def _all_groups(
    names: Sequence[str],
    tallies: Iterable[packed.UnitTotal],
    groups: str,
    on: str,
    named: Mapping[str, Query | str],
) -> Select:
    totals = [(t.sql if t.rows is not None else f"{packed.PACKED_TOTALS}.{t.name}", t.name) for t in tallies]
    totals.append((f"{packed.PACKED_TOTALS}.{UNITS_COLUMN}", UNITS_COLUMN))
    shown = (As(f"COALESCE({sql}, 0)", name) for sql, name in totals)
    whole = Join(groups, packed.PACKED_TOTALS, on, side="LEFT")
    return Select((*(f"{groups}.{name}" for name in names), *shown), whole, with_=named)


def _tally(exact: Exact, partial: Partial, values: packed.PackedValues) -> packed.UnitTotal | None:
    """Return the total that gives a partial from the packed values, after adding a value that is only counted."""
    rows = 1 if partial.fixed else exact.rows_in_group
    low, high = partial.low * rows, partial.high * rows
    weighing = partial.weighing
    most, scale = (None, 1) if weighing is None else (rows, weighing.scale)
    every = weighing is not None and weighing.all_rows
    if partial.adds is not None:
        y, least, greatest, centre = partial.adds
        place = values.add_held(y, least, greatest)
        return packed.UnitTotal(partial.name, low, high, place, True, centre + 1 - least, most, scale, every)
    if partial.inner == "COUNT(*)":
        return packed.UnitTotal(partial.name, low, high)
    found = _PRESENT.match(partial.inner)
    if found is None:
        return None
    place = values.add_present(found[1])
    return packed.UnitTotal(partial.name, low, high, place, rows=most, scale=scale, all_rows=every)
