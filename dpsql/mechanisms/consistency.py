"""Consistent cells of grouping sets: the least-squares table behind the released cells.

Every cell is a sum over one table of finest cells, so the released cells are noisy sums of an unknown table. Its
least-squares fit, with weights inverse to each grouping set's public noise variance, yields the best linear unbiased
estimate of every cell: none is worse than the released cell (Hay, Rastogi, Miklau, Suciu 2010, for trees; here for any
sets).

A key may have values without a group: NULL, or undeclared values. Their rows count in the totals. If the released cells
show more of them than noise explains, each such key has one more value in the table, OTHER, whose cells no set shows.
Otherwise there are none, and the groups add up to the totals.

Relation and guarantee: none. This is post-processing of released and public numbers, without randomness. The caller must
ensure that all cells of public groups are present, and that exact cells add up, except for cuts by contribution bounds.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Aggregation, Group, Together, list_groups
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.moments import Count, Sum
from dpsql.mechanisms.per_group import Noise
from dpsql.numerics.exact_numbers import Floats, Integers, make_values

Places = NDArray[np.intp]

_ROUNDS = 300
_GOOD = 1e-13
_ORDER = {bool: 0, int: 1, float: 1, str: 2}
_HIDDEN = -1
"""The index of a finest cell that a set does not show."""


class _Other:
    """Represents the values of a key that no group has."""

    def __repr__(self) -> str:
        return "OTHER"


_OTHER = _Other()


@dataclass(frozen=True)
class AddingColumn:
    """A released column with cells that add up: ``steps`` to a unit, ``whole`` if it counts."""

    name: str
    noise: Noise
    steps: Fraction = Fraction(1)
    whole: bool = True


def list_adding(operator: Operator, fixed: Container[str]) -> tuple[AddingColumn, ...]:
    """Return a release's columns with cells that add up; ``fixed``: statistics of units, which count once in each cell."""
    aggregation = operator.aggregation if isinstance(operator, Together) else operator
    if not isinstance(aggregation, Aggregation):
        return ()
    found = []
    for output in aggregation.outputs:
        if isinstance(output, Count | Sum) and output.statistic.column not in fixed:
            steps = output.steps if isinstance(output, Sum) else Fraction(1)
            found.append(AddingColumn(output.name, output.statistic.noise, steps, isinstance(output, Count)))
    return tuple(found)


@dataclass(frozen=True)
class GroupingSet:
    """One grouping set's release: its relation, its column for each key of the whole (None: summed over), its sums.

    If a relation has several sets, its first column numbers the rows of each, ``place`` for this one.
    """

    relation: str
    keys: tuple[str | None, ...]
    columns: tuple[AddingColumn, ...]
    place: int | None = None

    def rows_of(self, relations: Mapping[str, pa.Table]) -> pa.Table:
        table = relations[self.relation]
        return table if self.place is None else table.filter(pc.equal(table.column(0), self.place))


@dataclass(frozen=True)
class _Fitted:
    """A column's fitted table, the released values, and the weight of each set."""

    table: Floats
    values: Sequence[Floats]
    weights: Sequence[float]

    def misfit(self, places: Sequence[Places]) -> float:
        """Return the squared distances of the released values from their fitted sums, in variances of their noise."""
        fitted = sum_places(self.table, places, self.values)
        parts = zip(self.weights, self.values, fitted, strict=True)
        return sum(weight * float(np.square(value - near).sum()) for weight, value, near in parts)


_SIGNIFICANT = 64.0
"""The least improvement of the fit, in variances, that justifies hidden cells, plus three for each: above any noise."""


@dataclass(frozen=True)
class Consistent:
    """The grouping sets of one statement.

    Args:
        nonnegative: whether the finest cells of counts are at least 0.
        open: for each key, whether rows may have values without a group; none has if this is empty.
    """

    sets: tuple[GroupingSet, ...]
    nonnegative: bool = False
    open: tuple[bool, ...] = ()

    def applied(self, relations: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Return releases with cells that add up exactly; intervals are widened if they would exclude a value."""
        tables = [cells.rows_of(relations) for cells in self.sets]
        whole: dict[str, list[pa.Table]] = {}
        for cells, table in zip(self.sets, self._adjust(tables), strict=True):
            whole.setdefault(cells.relation, []).append(table)
        return {**relations, **{name: pa.concat_tables(parts) for name, parts in whole.items()}}

    def _adjust(self, tables: list[pa.Table]) -> list[pa.Table]:
        finest, places, fitted = self._fit(tables, False)
        if any(self.open):
            others = self._fit(tables, True)
            limit = _SIGNIFICANT + 3 * (len(others[0]) - len(finest))
            pairs = zip(fitted, others[2], strict=True)
            if any(a.misfit(places) - b.misfit(others[1]) > limit for a, b in pairs):
                finest, places, fitted = others
        out = list(tables)
        for j, (column, found) in enumerate(zip(self.sets[0].columns, fitted, strict=True)):
            table = found.table
            if self.nonnegative and column.whole and column.steps == 1:
                table = hold_at_zero(table)
            exact = round_running(table)
            for at, (cells, place) in enumerate(zip(self.sets, places, strict=True)):
                sums = np.zeros(tables[at].num_rows, dtype=exact.dtype)
                shown = place != _HIDDEN
                np.add.at(sums, place[shown], exact[shown])
                out[at] = _replace_column(out[at], cells.columns[j], sums)
        return out

    def _fit(self, tables: list[pa.Table], others: bool) -> tuple[list[Group], list[Places], list[_Fitted]]:
        """Return the finest cells, their places in each set, and the fitted table of each column; ``others``: with OTHER."""
        finest = self._finest(tables, others)
        places = [self._places(cells, finest, table) for cells, table in zip(self.sets, tables, strict=True)]
        fitted = []
        for j, column in enumerate(self.sets[0].columns):
            steps = float(column.steps)
            cells = (t.column(column.name).to_pylist() for t in tables)
            values = [np.array(list(map(float, own)), dtype=np.float64) * steps for own in cells]
            weights = [1 / item.columns[j].noise.variance for item in self.sets]
            fitted.append(_Fitted(fit(values, weights, places, len(finest)), values, weights))
        return finest, places, fitted

    def _finest(self, tables: list[pa.Table], others: bool) -> list[Group]:
        """Return the finest cells in key order: the join of the sets on their common keys."""
        width = len(self.sets[0].keys)
        known: list[int] = []
        cells: list[dict[int, object]] = [{}]
        pairs = zip(self.sets, tables, strict=True)
        for item, table in sorted(pairs, key=lambda pair: -sum(key is not None for key in pair[0].keys)):
            mine = [i for i, key in enumerate(item.keys) if key is not None]
            if set(mine) <= set(known):
                continue
            shared = [i for i in mine if i in known]
            by: dict[tuple[object, ...], list[dict[int, object]]] = {}
            groups: Iterable[Group] = self._groups(item, table)
            for group in self._with_others(mine, groups) if others else groups:
                values = dict(zip(mine, group, strict=True))
                by.setdefault(tuple(values[i] for i in shared), []).append(values)
            cells = [c | more for c in cells for more in by.get(tuple(c[i] for i in shared), [])]
            known += [i for i in mine if i not in known]
        finest = [tuple(c.get(i) for i in range(width)) for c in cells]
        return sorted(finest, key=lambda group: tuple(map(_sortable, group)))

    def _groups(self, cells: GroupingSet, table: pa.Table) -> list[Group]:
        keys = tuple(key for key in cells.keys if key is not None)
        return list_groups(table, keys)

    def _with_others(self, keys: Sequence[int], groups: Iterable[Group]) -> Iterable[Group]:
        """Return the groups of a set, and those with OTHER in the place of some values."""
        found: dict[Group, None] = dict.fromkeys(groups)
        for place, key in enumerate(keys):
            if self.open[key]:
                others = [(*group[:place], _OTHER, *group[place + 1 :]) for group in found]
                found |= dict.fromkeys(others)
        return found

    def _places(self, cells: GroupingSet, finest: Sequence[Group], table: pa.Table) -> Places:
        """Return the row of this set that each finest cell is summed into, if it shows the cell."""
        mine = [i for i, key in enumerate(cells.keys) if key is not None]
        rows = {group: row for row, group in enumerate(self._groups(cells, table))}
        found = (tuple(group[i] for i in mine) for group in finest)
        return np.array([rows.get(group, _HIDDEN) for group in found], dtype=np.intp)


def fit(values: Sequence[Floats], weights: Sequence[float], places: Sequence[Places], size: int) -> Floats:
    """Fit the table of ``size`` finest cells whose sums are nearest to the values, by weighted least squares.

    Of several best fits (if no set has all the keys), return the one spread most evenly. Conjugate gradients from zero need
    at most one round per distinct eigenvalue: at most as many as sets of keys if the cells are a product.
    """
    top = max(weights)
    weighed = [w / top for w in weights]

    def spread(parts: Iterable[Floats]) -> Floats:
        total = np.zeros(size)
        for weight, place, part in zip(weighed, places, parts, strict=True):
            total += weight * np.append(part, 0.0)[place]  # the last is for hidden cells
        return total

    table = np.zeros(size)
    goal: float | None = None
    for _ in range(2):  # the second time for rounding errors
        rest = spread(v - s for v, s in zip(values, sum_places(table, places, values), strict=True))
        way, square = rest.copy(), float(rest @ rest)
        # Both rounds share the first one's goal: anything smaller is rounding, and may lead to cells without weight.
        if goal is None:
            goal = _GOOD**2 * max(square, 1e-300)
        for _ in range(_ROUNDS):
            if square <= goal:
                break
            image = spread(sum_places(way, places, values))
            slope = float(way @ image)
            if slope <= 0:
                break
            pace = square / slope
            table = table + pace * way
            rest = rest - pace * image
            before, square = square, float(rest @ rest)
            way = rest + square / before * way
    return table


def sum_places(table: Floats, places: Sequence[Places], values: Sequence[Floats]) -> list[Floats]:
    """Return the sums of finest cells in the places of each set; hidden cells are in none."""
    return [
        np.bincount(place % (len(value) + 1), weights=table, minlength=len(value) + 1)[: len(value)].astype(
            np.float64
        )
        for place, value in zip(places, values, strict=True)
    ]


def hold_at_zero(table: Floats) -> Floats:
    """Return the nearest table without negative cells that has the same total (at least 0). This is biased."""
    total = max(float(table.sum()), 0.0)
    if not len(table) or total == 0.0:
        return np.zeros(len(table))
    falling = np.sort(table)[::-1]
    upto = np.cumsum(falling) - total
    above = np.nonzero(falling > upto / np.arange(1, len(table) + 1))[0]
    kept = int(above[-1]) if len(above) else 0  # keep the greatest even if rounding hides it
    return np.asarray(np.maximum(table - upto[kept] / (kept + 1), 0.0))


def round_running(table: Floats) -> Integers:
    """Round running totals (the cells of a ROLLUP), so that runs are off by at most 1 and nothing at least 0 gets negative."""
    running = np.cumsum(table)
    if len(table) and np.abs(running).max() < 2**62:
        ends = np.rint(running).astype(np.int64)
    else:
        ends = np.array([round(Fraction(v)) for v in running], dtype=object)
    return ends - np.concatenate((np.zeros(1, dtype=ends.dtype), ends[:-1]))


def _sortable(value: object) -> tuple[int, object]:
    if value is None:
        return (9, 0)
    rank = _ORDER.get(type(value), 5)
    return (rank, value) if rank < 5 else (5, str(value))


def _replace_column(table: pa.Table, column: AddingColumn, sums: Integers) -> pa.Table:
    """Return the table with a column's new values, and intervals that include them."""
    steps = column.steps
    shown = [int(v) for v in sums] if steps == 1 else [float(int(v) / steps) for v in sums]
    kind = table.schema.field(column.name).type
    whole = steps == 1 and not pa.types.is_floating(kind)
    new = {column.name: make_values(shown if whole else [float(v) for v in shown], kind)}
    for end, choose in (("low", min), ("high", max)):
        name = f"{column.name}__{end}"
        if name in table.column_names:
            ends = zip(table.column(name).to_pylist(), shown, strict=True)
            new[name] = make_values(
                [None if e is None else float(choose(e, v)) for e, v in ends], pa.float64()
            )
    for name, array in new.items():
        table = table.set_column(table.column_names.index(name), name, array)
    return table


CONSISTENCY_SENTENCE = (
    "The cells of the grouping sets are then made to add up "
    "(weighted least squares over what was released: free)."
)
