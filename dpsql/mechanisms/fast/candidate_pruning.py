"""Which of a million candidates may be the best or near it, out of rough counts: only those are counted finely.

How many rows are at or above a threshold falls as the threshold rises. So the counts at the ends of a cell of neighbouring
integers (:mod:`dpsql.mechanisms.fast.binned_counts`) are bounds for every candidate whose threshold is in it. Some dozen
neighbours at a time are
bounded so; together with the range of their factors, these are bounds of their utilities from both sides. Candidates
that would not be near the best at their upper bounds, were the best no better than at its lower bound, are far.

The law of the choice is the one that all exact utilities give. A :class:`~dpsql.noise.selection.Field` says the exact gaps of
near candidates; of the others that they are farther than its reach, which is proved here; and the exact gap of any that
a draw falls on: then every integer is counted. Far ones are proposed, or tossed for, with a chance that is no smaller than
theirs, and kept with the exact ratio. So how rough the counts are, and which candidates are near, changes how long a
choice takes, and nothing that is chosen, returned or charged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.base import Read
from dpsql.mechanisms.fast.binned_counts import Cells, cells
from dpsql.mechanisms.fast.candidate_scores import AFTER, LOWER, End, Scored, Sweep, Swept
from dpsql.mechanisms.selection.generalised_exponential import generalised_scores, nearest, spread_of
from dpsql.noise.selection import FEW, Field, below_top, reach_of
from dpsql.numerics.integers import SAFE, Integers, integers, largest, plus, times

_TOGETHER = 1 << 6
"""Candidates that are near, or far, together."""
_CLOSE = 8
"""Neighbours are close within so many times what they would be apart, were all thresholds spread evenly and in order."""


@dataclass(frozen=True)
class Rates:
    """What a choice asks of utilities: the ``equal`` rate of their steps, where all have one sensitivity; else the
    ``unequal`` rate of the generalised mechanism's scores, whose ``margin`` goes by the number of candidates.
    """

    equal: Fraction
    unequal: Fraction
    margin: Callable[[int], int]


@dataclass(frozen=True)
class Narrowed:
    """Candidates of which those near the best were looked at: their field, its rate, and the exact utility of any."""

    table: pa.Table
    field: Field
    rate: Fraction
    utility: Callable[[int], int]


def narrowed(sweep: Sweep, read: Read, rates: Rates, varying: bool) -> Narrowed | None:
    """The candidates of a sweep, as few of them looked at as it takes.

    None where that is not worth it or not known how, by what is public; or where the rows are doubles, and more than may be
    held: then nothing that was read is used. It is known for one count per candidate, of rows on one side of its threshold,
    times factors of one sign.
    """
    term, counted = sweep.terms[0], sweep.histograms[0]
    if len(sweep.terms) > 1 or sweep.base is not None or len(term.bounds) != 1 or term.bounds[0][0] == "=":
        return None
    met = sweep.met(read) if counted.column is not None else None
    if met is None or met[0].num_rows < FEW or counted.column is None:
        return None
    table, ends = met
    end = ends[term.bounds[0][1]]
    factor = np.broadcast_to(term.factor.of(table), table.num_rows)
    least, most = int(factor.min()), int(factor.max())
    if end.missing is not None or least < 0 < most:
        return None
    near: _Near = _Equal(rates.equal)
    one, other = (int(sweep.moved(term.moved(f))[0]) for f in (least, most))
    if varying and one != other:
        c = spread_of(rates.unequal)
        if c is None:
            return None
        near = _Unequal(rates.unequal, rates.margin(table.num_rows), c)
    found = cells(counted, end, read, counted.column)
    return None if found is None else _Rough(sweep, table, end, factor, found, varying).narrowed(near)


@dataclass(frozen=True)
class _Rough:
    """Candidates, and their statistic as far as the cells say it."""

    sweep: Sweep
    table: pa.Table
    end: End
    factor: Integers
    cells: Cells
    varying: bool

    def narrowed(self, near: _Near) -> Narrowed:
        rows, first, last = self._kept(near)
        found = self._exact(_rows(self.table, rows), first, last)
        whole = cache(lambda: self._exact(self.table, 0, len(self.cells.counts)))
        places, gaps = near.gaps(found)
        field = Field(
            self.table.num_rows, gaps, rows[places], near.reach, lambda i: near.gap(found, whole(), i)
        )

        def utility(i: int) -> int:
            at = int(np.searchsorted(rows, i))
            here = at < len(rows) and int(rows[at]) == i
            return int(found.scores[at] if here else whole().scores[i])

        return Narrowed(self.table, field, near.rate, utility)

    @property
    def _term(self) -> Swept:
        return self.sweep.terms[0]

    @property
    def _after(self) -> bool:
        return self._term.bounds[0][0] in AFTER

    def _exact(self, table: pa.Table, first: int, last: int) -> Scored:
        """Of candidates whose thresholds are in the cells from ``first`` on, up to ``last``, which is not among them."""
        ends = self.sweep.ends(table)
        assert ends is not None  # as those of all were
        return self.sweep.scored(table, ends, [self.cells.run(first, last)], self.varying)

    def _groups(self) -> _Groups:
        """Neighbours with thresholds in cells close to each other. Where one run of candidates ends and another begins, each
        stands alone; where there is no order in them, they are put in order as far as cells tell them apart."""
        size = self.table.num_rows
        starts = np.arange(0, size, _TOGETHER)
        found = self._grouped(None, starts)
        wide = found.highest - found.lowest > _CLOSE * (len(self.cells.counts) // len(starts) + 1)
        if np.count_nonzero(wide) * _CLOSE > len(starts):
            order = np.argsort(self.cells.of(self.end, self._after).astype(np.uint16), kind="stable")
            return self._grouped(order, starts)
        if not wide.any():
            return found
        alone = np.repeat(wide, _TOGETHER)[:size]
        alone[starts] = True
        return self._grouped(None, np.flatnonzero(alone))

    def _grouped(self, order: NDArray[np.intp] | None, starts: NDArray[np.intp]) -> _Groups:
        values = self.end.values if order is None else self.end.values[order]
        picked = (pick.reduceat(values, starts) for pick in (np.fmin, np.maximum))  # NaN is the greatest
        return _Groups(order, starts, *(self.cells.of(End(v, self.end.scale), self._after) for v in picked))

    def _kept(self, near: _Near) -> tuple[NDArray[np.intp], int, int]:
        """The candidates that may be near, groups at a time, and the cells that their thresholds are in."""
        groups = self._groups()
        order, starts, lowest, highest = groups.order, groups.starts, groups.lowest, groups.highest
        factor = self.factor if order is None else self.factor[order]
        below = np.concatenate([[0], np.cumsum(self.cells.counts)])
        counts = [below[lowest], below[highest + 1]]
        if self._term.bounds[0][0] in LOWER:
            counts = [below[-1] - n for n in counts]
        factors = [pick.reduceat(factor, starts) for pick in (np.minimum, np.maximum)]
        corners = [times(f, n) for f in factors for n in counts]
        moved = [self.sweep.moved(self._term.moved(f)) for f in factors]
        may = near.may(
            _Bounds(
                np.minimum.reduce(corners), np.maximum.reduce(corners), np.minimum(*moved), np.maximum(*moved)
            )
        )
        kept = np.flatnonzero(np.repeat(may, np.diff(starts, append=len(factor))))
        return (
            kept if order is None else np.sort(order[kept]),
            int(lowest[may].min()),
            int(highest[may].max()) + 1,
        )


@dataclass(frozen=True)
class _Groups:
    """Candidates in their order (None: as they come), where each group of them starts, and the cells that thresholds of
    each are between."""

    order: NDArray[np.intp] | None
    starts: NDArray[np.intp]
    lowest: NDArray[np.int64]
    highest: NDArray[np.int64]


def _rows(table: pa.Table, rows: Integers) -> pa.Table:
    """Some rows of a table, ascending: in slices, where they stand together."""
    starts = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
    if len(starts) > _TOGETHER:
        return table.take(pa.array(rows))
    lengths = np.diff(starts, append=len(rows))
    return pa.concat_tables([table.slice(int(rows[s]), int(n)) for s, n in zip(starts, lengths, strict=True)])


@dataclass(frozen=True)
class _Bounds:
    """Between which the utilities of neighbours lie, and what one unit moves them by."""

    low: Integers
    high: Integers
    least: Integers
    most: Integers


class _Near(Protocol):
    """What is near: candidates that a draw falls on now and then."""

    @property
    def rate(self) -> Fraction: ...

    @property
    def reach(self) -> int: ...

    def may(self, bounds: _Bounds) -> NDArray[np.bool_]:
        """Of which neighbours some may be near."""
        ...

    def gaps(self, found: Scored) -> tuple[NDArray[np.intp], Integers]:
        """Which of the candidates are near, the best among them, and how far below it each is."""
        ...

    def gap(self, found: Scored, whole: Scored, i: int) -> int:
        """How far below the best any is."""
        ...


@dataclass(frozen=True)
class _Equal:
    """By utilities: not more than ``reach`` below the best."""

    rate: Fraction

    @property
    def reach(self) -> int:
        return reach_of(self.rate)

    def may(self, bounds: _Bounds) -> NDArray[np.bool_]:
        return np.asarray(bounds.high >= int(bounds.low.max()) - self.reach)

    def gaps(self, found: Scored) -> tuple[NDArray[np.intp], Integers]:
        top = int(found.scores.max())
        near = np.flatnonzero(found.scores >= top - self.reach)
        return near, integers(top - found.scores[near])

    def gap(self, found: Scored, whole: Scored, i: int) -> int:
        return int(found.scores.max()) - int(whole.scores[i])


@dataclass(frozen=True)
class _Unequal:
    """By the generalised mechanism's scores: ``a_b - a_r <= c (D_r + D_b)``, as :func:`generalised_field` says.

    ``a_r = u_r - t D_r`` is at most its upper bound, and b, the one that is farthest ahead, is in a cell whose upper bound
    reaches the greatest lower bound A. So ``a_b - c D_b >= A - c max D_b``, over such cells.
    """

    rate: Fraction
    t: int
    c: int

    @property
    def reach(self) -> int:
        return reach_of(self.rate)

    def may(self, bounds: _Bounds) -> NDArray[np.bool_]:
        ahead = int(plus(bounds.low, times(bounds.most, -self.t)).max())
        upper = plus(bounds.high, times(bounds.least, -self.t))
        own = int(bounds.most[upper >= ahead].max())
        return np.asarray(plus(upper, times(bounds.most, self.c)) >= ahead - self.c * own)

    def gaps(self, found: Scored) -> tuple[NDArray[np.intp], Integers]:
        scores, own = found.scores, found.sensitivities
        assert own is not None
        if largest(scores) + 2 * (abs(self.t) + self.c) * largest(own) >= SAFE:
            scores, own = scores.astype(object), own.astype(object)
        near = nearest(scores, own, self.t, self.c)
        return near, below_top(generalised_scores(scores[near], own[near], self.t))

    def gap(self, found: Scored, whole: Scored, i: int) -> int:
        assert whole.sensitivities is not None
        return -int(generalised_scores(whole.scores, whole.sensitivities, self.t)[i])
