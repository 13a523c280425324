"""Quantiles, the median, the least and the greatest value, by the exponential mechanism over a public grid.

    u(v) = -max(0, L - t, t - (L + E))     L values below v, E values equal to v, t the wanted rank

The grid is every integer from ``low`` to ``high``. All points between two neighbouring values of the data share one
utility, so the work grows with the number of distinct values, not with the length of the grid. Frequent values keep their
weight; a mechanism over the *intervals* between values (Smith 2011) would never answer 5 for a hundred copies of 5.

Relation: ADD_REMOVE. Sensitivity for ``t = p n``: adding a row moves ``L - p n`` by ``1 - p`` or by ``-p``, so
``max(p, 1 - p)``, times the rows of a unit. Guarantee: pure epsilon and bounded range, divided equally over the quantiles
of a column and over the groups of a unit. The caller must clamp values to the grid, omit missing ones, and bound the rows
of a unit in each group and the groups of a unit.

The least value has the rank ``min(k, n / 2)`` for a public k, so large that points outside the data have negligible
weight: at rank 0 every point below the data would be as good as the true minimum.

Intervals. The ends of a single quantile's interval are two more choices of this mechanism. Each takes :data:`END_SHARE` of
the quantile's epsilon, so the quantile's own error in rank grows by a third at most. The released quantile q is public, so
an end is chosen among cells that grow with their distance from q, each by about a half (:func:`list_edges`). Cell 0 ends at
q; the interval reaches to the far edge of the chosen cell. Each cell weighs at least a third more than the one before it
(:func:`weigh_cells`), so all cells before it weigh at most three times as much as it does. An end is aimed b rows beyond the
wanted rank, of the data with b more rows in the last cell, so some cell always has utility 0.

Coverage, for any data and any q: let the exact quantile x be in cell k > 0 on one side of q. The cells before k are the
wrong ones. Each misses by b rows or more, so none of them has utility 0, and the cell that has it weighs as much as cell k
at least. So an end is wrong with probability at most ``3 exp(-rate b)``, which determines b without the number of grid
points. The interval contains q, so it misses x only on the side of q where x is: each end may miss as often as the interval.

Publicly known rows move no score, so the sensitivity is as above.

One row may be anywhere, so the least value's lower end is the lower bound. Its other end is the value itself if there are
enough rows that it is not below the data (:meth:`Quantiles.count_needed`), and the upper bound otherwise. This is a choice
between two candidates: n - m, and 0, for n rows and a public m. One row moves only one of the two scores, and only by 1, so
its rate is epsilon. With too few rows the value is taken with probability at most ``exp(-rate (m - count))``. The
greatest value's ends are the mirror image.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import count, takewhile

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.aggregation import Answered, Group, Part, index_groups
from dpsql.mechanisms.base import ClaimedText, ErrorBasis, ExpectedError, RowsClaim
from dpsql.mechanisms.fast.column_counts import ColumnCounts
from dpsql.mechanisms.histograms import GRID_STEP, STEP_ROWS, read_histogram
from dpsql.mechanisms.order_statistics import GeometricGrid, GradedGrid, PointWeights, WantedRank, choose_step
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import choose_exponential
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.exact_numbers import Integers, read_integers
from dpsql.privacy.events import BoundedRange, Event, compose_events

RANK_CONFIDENCE = 0.95
"""The confidence of the note on a released quantile."""

ENDS_DOUBT = Fraction(1, 1000)
"""The approximate chance that a least or greatest value falls outside the data after all."""
OUTSIDE = Fraction(1, 10**9)
"""The chance that another quantile falls outside the data, from :meth:`Quantiles.count_needed` rows on."""

END_SHARE = Fraction(1, 8)
"""The part of a quantile's epsilon that each end of its interval takes."""
DRAWN_LEVEL = 0.95
"""The level that intervals are drawn at, unless more is asked for: a stored answer serves all lower levels."""
BETWEEN = 1
"""The rows by which a quantile between two neighbouring values may be off its rank."""
_SAY_ENDS = "Each end of an interval is a choice of its own, which takes ε={:g} of this in each group."

_NO_ROWS = np.zeros(0, dtype=np.intp)


@dataclass(frozen=True)
class Quantiles(Part):
    """Quantiles of one column, per group, from one histogram.

    Args:
        query: returns the keys, :data:`GRID_STEP` and :data:`STEP_ROWS`, one row per group and distinct value.
        names: of the released columns, one for each rank; the values of ranks that share a name are a list.
        low, high: the ends of the grid.
        epsilon: for all of them; each gets an equal part of it in each of at most ``groups`` groups.
        whole: whether integers are shown (if ``steps`` is 1).
        column: returns :data:`GRID_STEP` of every row if nothing is grouped: not yet clamped, NULL if missing.
        geometric: the values of uneven steps; utilities and charge are the same on any grid.
        in_all: whether ``rows`` covers all groups together; then ``groups`` is 1.
        bars: for each rank, whether it has an interval; empty if all have that are not in lists.
    """

    query: str
    keys: tuple[str, ...]
    names: tuple[str, ...]
    ranks: tuple[WantedRank, ...]
    low: int
    high: int
    epsilon: Fraction
    rows: int = 1
    groups: int = 1
    steps: Fraction = Fraction(1)
    whole: bool = False
    column: str | None = None
    geometric: GeometricGrid | GradedGrid | None = None
    in_all: bool = False
    confidence: float | None = None
    bars: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if self.low > self.high or self.epsilon <= 0 or min(self.rows, self.groups, len(self.names)) < 1:
            raise ValueError("a quantile needs a grid, an epsilon above 0, and rows and groups of at least 1")
        if len(self.names) != len(self.ranks):
            raise ValueError("a name for each quantile")

    @property
    def event(self) -> Event:
        parts = Counter([*map(self.part_of, range(len(self.ranks))), *([self._end_part] * len(self.ends))])
        many = ((part, self.groups * count) for part, count in parts.items())
        return compose_events(BoundedRange(part * count, count) for part, count in many)

    @cached_property
    def ends(self) -> tuple[tuple[int, int], ...]:
        """The ends of released intervals: the index of the rank, and -1 for the lower end, 1 for the upper."""
        if self.confidence is None:
            return ()
        alone = [places[0] for places in self._places().values() if self._has_bar(places)]
        open_end = {"min": -1, "max": 1}
        return tuple((i, s) for i in alone for s in (-1, 1) if open_end.get(self.ranks[i].end or "") != s)

    def _has_bar(self, places: list[int]) -> bool:
        alone = self.confidence is not None and len(places) == 1
        return alone and (not self.bars or self.bars[places[0]])

    def _find_doubt(self, rank: WantedRank) -> float:
        """Return the miss probability of one end of a rank's interval, which misses on one side of the quantile only.

        Intervals of up to :data:`DRAWN_LEVEL` are drawn at that level, so that a stored answer serves all of these.
        """
        assert self.confidence is not None
        return 1 - max(self.confidence, DRAWN_LEVEL)

    @property
    def can_redraw(self) -> bool:
        return self.confidence is None or self.confidence <= DRAWN_LEVEL

    def claims(self) -> Iterator[ClaimedText]:
        claim = RowsClaim(self.rows, self.groups, self.keys, in_all=self.in_all)
        yield ClaimedText(self.query, replace(claim, moves=((STEP_ROWS, 1),)))
        if self.column_route is not None:
            yield self.column_route.claim(claim)

    @property
    def column_route(self) -> ColumnCounts | None:
        return None if self.column is None else ColumnCounts(self.column, self.low, self.high)

    def weights(self, rank: WantedRank) -> PointWeights | None:
        """Return the public weights of the points; None if all weigh the same.

        The least and the greatest value have equal weights: they are outside most of the values, and their distance from the
        outermost ones grows with the ratio of all points' weight to the lightest point's.
        """
        return self.geometric.weights if isinstance(self.geometric, GradedGrid) and rank.end is None else None

    @property
    def even_ends(self) -> tuple[int, int, Fraction] | None:
        """The even steps of the bounds, and their number per unit; None without bounds."""
        if isinstance(self.geometric, GradedGrid):
            return self.geometric.low, self.geometric.high, self.geometric.steps
        return None if self.geometric is not None else (self.low, self.high, self.steps)

    @property
    def _points(self) -> int:
        return self.high - self.low + 1

    def _total(self, rank: WantedRank) -> int:
        """Return the ratio of all grid points' weight to the lightest point's."""
        weights = self.weights(rank)
        return self._points if weights is None else weights.total

    @property
    def _each(self) -> Fraction:
        """The epsilon of one quantile in one group, with that of its interval."""
        return self.epsilon / (self.groups * len(self.ranks))

    @property
    def _end_part(self) -> Fraction:
        """The epsilon of one end of an interval in one group."""
        return self._each * END_SHARE

    def part_of(self, place: int) -> Fraction:
        """Return the epsilon of the choice of one quantile in one group."""
        return self._each * (1 - END_SHARE * sum(own == place for own, _ in self.ends))

    @cached_property
    def _parts(self) -> Mapping[WantedRank, Fraction]:
        """The least epsilon of the choice of a rank in one group."""
        found: dict[WantedRank, Fraction] = {}
        for place, rank in enumerate(self.ranks):
            found[rank] = min(self.part_of(place), found.get(rank, self._each))
        return found

    @property
    def inward(self) -> int:
        """The number of values that the least and the greatest pass, so that they stay within the data."""
        return math.ceil(
            2 * self.rows / float(min(self._parts.values())) * math.log(self._points / float(ENDS_DOUBT))
            + 0.5
        )

    def rate(self, rank: WantedRank) -> Fraction:
        """Return the log-weight of one step of scaled utility."""
        return self._parts.get(rank, self._each) / (2 * rank.sensitivity * self.rows)

    def _find_rows_off(self, rank: WantedRank) -> int:
        """Return the rows b by which the ends of a rank's interval are aimed outside it.

        Of the least and the greatest value: the rows from which on the end is more probably the value than the bound.
        """
        log = math.log((1 if rank.end else 3) / self._find_doubt(rank)) * (1 + 1e-9)
        if rank.end:
            return 2 * self.inward - 1 + math.ceil(log / float(self._rate_end(rank)))
        return math.ceil(log / float(self._rate_end(rank) * rank.scale)) + BETWEEN

    def _rate_end(self, rank: WantedRank) -> Fraction:
        """Return the log-weight of one step of scaled utility of an end: of one row, for the least and the greatest value."""
        return self._end_part / (self.rows if rank.end else 2 * rank.sensitivity * self.rows)

    def count_needed(self, rank: WantedRank) -> int | None:
        """Return the rows that keep the answer between the least and the greatest value; None if no number does.

        Grid points outside the data have a scaled utility of at most -n times the lesser of ``p`` and ``1 - p``, and some point
        has 0: so they are chosen with probability at most ``weight exp(-rate miss n)``, at most :data:`OUTSIDE`. The least
        and the greatest value pass enough rows that it is at most a thousandth, if there are that many.
        """
        if rank.end:
            return 2 * self.inward - 1
        miss = min(rank.p.numerator, rank.p.denominator - rank.p.numerator)
        if not miss:
            return None
        bits = 128 + max(0, self.rate(rank).denominator.bit_length())
        ratio = ia.log(ia.rational(self._total(rank) / OUTSIDE, bits), bits)[1]
        return math.ceil(ia.fraction(ratio) / (self.rate(rank) * miss))

    def bound_error(self, rank: WantedRank, confidence: float) -> float:
        """Bound the distance of the answer's rank from the wanted one, in rows (Dwork and Roth, corollary 3.12)."""
        log = math.log(self._total(rank)) - math.log(1 - confidence)
        return float(log / self.rate(rank)) / rank.scale

    def _bound_miss(self, rank: WantedRank, confidence: float) -> float:
        """Bound that distance from the rank that is aimed at: the ends pass some rows."""
        return self.bound_error(rank, confidence) + (self.inward if rank.end else 0)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        rows = index_groups(table, self.keys)
        values, counts = read_integers(table.column(GRID_STEP)), read_integers(table.column(STEP_ROWS))
        held = (rows.get(group, _NO_ROWS) for group in groups)
        histograms = (read_histogram(values[i], counts[i], self.low, self.high) for i in held)
        return self._answer([self._choose(v, c, entropy) for v, c in histograms])

    def answer_counts(self, counts: NDArray[np.int64], entropy: Entropy) -> Answered:
        return self._answer([self._choose(np.arange(self.low, self.high + 1), counts, entropy)])

    def _answer(self, steps: list[list[int]]) -> Answered:
        kind = pa.int64() if self.whole and self.steps == 1 else pa.float64()
        shown: Callable[[int], float] = int if kind == pa.int64() else lambda v: float(v / self.steps)
        if self.geometric is not None:
            grid = self.geometric
            shown = (lambda v: int(grid.value(v))) if kind == pa.int64() else lambda v: float(grid.value(v))
        columns = {}
        for name, places in self._places().items():
            lists = [[shown(row[i]) for i in places] for row in steps]
            alone = len(places) == 1
            columns[name] = (
                pa.array([v for (v,) in lists], kind) if alone else pa.array(lists, pa.list_(kind))
            )
            if self._has_bar(places):
                columns |= self._show_ends(name, places[0], steps, shown)
        return Answered(columns, self.event, self._notes())

    def _show_ends(
        self, name: str, place: int, steps: list[list[int]], shown: Callable[[int], float]
    ) -> dict[str, pa.Array]:
        """Return the columns of one quantile's interval, which contains its value; ends are a grid step farther out."""
        first = len(self.ranks)
        at = {side: first + i for i, (own, side) in enumerate(self.ends) if own == place}
        farther = 0 if self.whole and self.steps == 1 and self.geometric is None else 1
        found = {}
        for end, side, outmost, choose in (("low", -1, self.low, min), ("high", 1, self.high, max)):
            held = [choose(row[place], row[at[side]]) if side in at else outmost for row in steps]
            held = [min(max(step + side * farther, self.low), self.high) for step in held]
            found[f"{name}__{end}"] = pa.array([float(shown(step)) for step in held], pa.float64())
        return found

    def _places(self) -> Mapping[str, list[int]]:
        """Return the indices of the ranks of each released column."""
        found: dict[str, list[int]] = {}
        for i, name in enumerate(self.names):
            found.setdefault(name, []).append(i)
        return found

    def _notes(self) -> tuple[str, ...]:
        """Explain that there is no interval: only the error in rank is known."""
        by_error: dict[int, list[str]] = {}
        for name, places in self._places().items():
            if self._has_bar(places):
                continue
            off = max(math.ceil(self._bound_miss(self.ranks[i], RANK_CONFIDENCE)) for i in places)
            by_error.setdefault(off, []).append(name)
        told = (note_rank_error(names, off) for off, names in by_error.items())
        return (*told, *self._note_ends())

    def _note_ends(self) -> Iterator[str]:
        """Yield notes on how many rows make another quantile better than the least or greatest value."""
        for name, places in self._places().items():
            rank = self.ranks[places[0]]
            if rank.end and self._has_bar(places):
                off = math.ceil(self._bound_miss(rank, RANK_CONFIDENCE))
                yield note_far_end(name, rank, off)

    def _choose(self, values: Integers, counts: Integers, entropy: Entropy) -> list[int]:
        """Choose once per rank, and sort the choices by quantile, which is free."""
        rest = (entropy, self.inward)
        chosen = [
            choose_step(values, counts, self.low, self.high, rank, self.rate(rank), *rest, self.weights(rank))
            for rank in self.ranks
        ]
        order = sorted(range(len(chosen)), key=lambda i: self.ranks[i].p)
        out = [0] * len(chosen)
        for i, value in zip(order, sorted(chosen), strict=True):
            out[i] = value
        around = [chosen[i] if self.ranks[i].end else out[i] for i, _ in self.ends]
        outer = [
            self._choose_end(values, counts, step, i, side, entropy)
            for step, (i, side) in zip(around, self.ends, strict=True)
        ]
        return [*out, *outer]

    def _choose_end(
        self, values: Integers, counts: Integers, chosen: int, place: int, side: int, entropy: Entropy
    ) -> int:
        """Choose an end of an interval: a cell on its side of a released step, with some more rows in the last of them.

        Of the least or greatest value, for which ``chosen`` is its own choice: this, or the bound if there may be too few rows.
        """
        rank = self.ranks[place]
        rate, off = self._rate_end(rank), self._find_rows_off(rank)
        if rank.end:
            enough = np.array([int(counts.sum()) - off, 0], dtype=object)
            if choose_exponential(enough, rate, entropy) == 0:
                return chosen
            return self.high if side > 0 else self.low
        edges = list_edges(self.high - chosen if side > 0 else chosen - self.low)
        cells, rows = count_cells(edges, (values - chosen) * side, counts, off)
        ahead = rank.p.numerator if side > 0 else rank.p.denominator - rank.p.numerator
        target, weights = ahead * int(counts.sum()) + rank.scale * off, weigh_cells(len(edges) - 1)
        cell = choose_step(cells, rows, 0, len(edges) - 2, rank, rate, entropy, 0, weights, target)
        return chosen + side * (edges[cell + 1] - 1)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        shared = f", shared by {len(self.ranks)} quantiles of one column" if len(self.ranks) > 1 else ""
        shared += f" and {self.groups} groups" if self.groups > 1 else ""
        said = [
            f"Choose {', '.join(self._places())} among {self._points} grid points by the exponential mechanism "
            f"(ε={float(self.epsilon):g}{shared})."
        ]
        said += [_SAY_ENDS.format(float(self._end_part))] if self.ends else []
        if self.geometric is not None:
            said.append(self.geometric.describe())
        for name, places in self._places().items():
            rank = self.ranks[places[0]]
            if len(places) > 1:
                off = max(self._bound_miss(self.ranks[i], confidence) for i in places)
                said.append(
                    f"{name}: {len(places)} values, from the least to the greatest, each within {off:.4g} rows of its rank, "
                    f"with {confidence:.4g} probability."
                )
                continue
            off = self.bound_error(rank, confidence)
            which = f"the value that {float(rank.p):g} of the rows lie below"
            if rank.end:
                side = "below" if rank.end == "min" else "above"
                which = (
                    f"a value with about {self.inward} rows {side} it (half of the rows, if there are fewer)"
                )
            said.append(f"{name}: {which}, within {off:.4g} rows, with {confidence:.4g} probability.")
            said.append(self._describe_strays(name, rank))
        return tuple(said)

    def _describe_strays(self, name: str, rank: WantedRank) -> str:
        """Describe when an answer stays within the data: only the exponential mechanism's utility bound ensures that."""
        rows = self.count_needed(rank)
        if rows is None:
            return f"{name}: it may be anywhere between the bounds and the data; MIN and MAX stay within the data."
        chance = float(ENDS_DOUBT if rank.end else OUTSIDE)
        return (
            f"{name}: from {rows} rows on, it falls outside the data with a chance of at most {chance:g}; with fewer "
            f"it may fall anywhere between the bounds."
        )

    def errors(self, basis: ErrorBasis) -> Iterator[ExpectedError]:
        """Yield errors for rows spread evenly between the bounds: ranks are off by the weight of one row."""
        other, confidence = replace(self, epsilon=self.epsilon * basis.factor), basis.confidence
        for name, places in other._places().items():
            ranks = [other.ranks[i] for i in places]
            if confidence is not None:
                yield ExpectedError(
                    name, max(other._bound_miss(r, confidence) for r in ranks), condition=", in rows"
                )
            elif self.even_ends is not None:
                low, high, steps = self.even_ends
                for rows in basis.rows:
                    off = max(self._expect_miss(r, rows) for r in ranks) / rows
                    yield ExpectedError(name, min(off, 0.25) * float((high - low) / steps))

    def _expect_miss(self, rank: WantedRank, rows: int) -> float:
        """Return the mean absolute error in rank, in rows."""
        return 1 / float(self.rate(rank) * rank.scale) + (self.inward if rank.end else 0)


def note_far_end(name: str, rank: WantedRank, off: int) -> str:
    """Return a note on how few rows make the least or greatest value miss its rank by more than a tenth."""
    side, p = ("below", "0.1") if rank.end == "min" else ("above", "0.9")
    better = f"with fewer than {10 * off:,} rows in all, QUANTILE_CONT(..., {p}) is more exact"
    return f"up to {off:,} rows may be {side} {name}; {better}"


@lru_cache(maxsize=1024)
def list_edges(farthest: int) -> tuple[int, ...]:
    """Return distances from a point at which cells begin, and one more than the farthest distance.

    >>> list_edges(20)
    (0, 1, 2, 3, 4, 6, 8, 12, 16, 21)
    """
    steps = takewhile(lambda d: d <= farthest, (d for i in count() for d in (1 << i, 3 << i >> 1)))
    return (0, *dict.fromkeys(steps), farthest + 1)


@lru_cache(maxsize=256)
def weigh_cells(cells: int) -> PointWeights:
    """Return the weights of cells: each at least a third more than the one before it.

    >>> weigh_cells(6).weights
    (1, 2, 3, 4, 6, 8)
    """
    weights = [1]
    while len(weights) < cells:
        weights.append(-(-4 * weights[-1] // 3))
    return PointWeights(tuple(range(cells)), tuple(weights), cells)


def count_cells(
    edges: Sequence[int], far: Integers, counts: Integers, more: int
) -> tuple[Integers, Integers]:
    """Return the cells that have rows, and their rows; ``more`` rows are added to the last. Negative distances are in cell 0.

    ``far``: distances, ascending or descending.
    """
    cells = np.searchsorted(
        np.array(edges[1:-1], dtype=np.int64), np.append(far, edges[-1] - 1), side="right"
    )
    rows = np.append(counts, np.array([more], dtype=counts.dtype))
    order = np.argsort(cells, kind="stable")
    found, starts = np.unique(cells[order], return_index=True)
    return found.astype(np.int64), np.add.reduceat(rows[order], starts)


def note_rank_error(names: Sequence[str], off: float) -> str:
    """Return a note that columns have no interval, and how many rows they may be off in rank."""
    return (
        f"no interval for {', '.join(names)}: off by at most {math.ceil(off)} rows in rank, at {RANK_CONFIDENCE:.0%}; "
        "quantiles whose ranks are more rows below and above enclose it"
    )
