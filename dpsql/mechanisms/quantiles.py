"""Quantiles, the median, the least and the greatest value, by the exponential mechanism over a public grid.

    u(v) = -max(0, L - t, t - (L + E))     L values below v, E values equal to v, t the wanted rank

The grid is every integer from ``low`` to ``high``. All points between two neighbouring values share one utility, so the
work grows with the distinct values, not with the grid. Frequent values keep their weight; a mechanism over the
*intervals* between values (Smith 2011) would never answer 5 for a hundred copies of 5.

Relation: ADD_REMOVE. Sensitivity for ``t = p n``: adding a row moves ``L - p n`` by ``1 - p`` or by ``-p``, so
``max(p, 1 - p)``, times the rows of a unit. Guarantee: pure epsilon and bounded range, divided equally over the quantiles
of a column and over the groups of a unit. The caller must clamp values to the grid, omit missing ones, and bound the rows
of a unit in each group and its groups.

The least value has the rank ``min(k, n / 2)`` for a public k, so large that points outside the data have negligible
weight: at rank 0 every point below the data would be as good as the true minimum.

*Intervals.* A single quantile's interval is one more choice of this mechanism, for :data:`END_SHARE` of the quantile's
epsilon for each end, so the quantile's own error in rank grows by a third at most. The choice is among nested intervals
around the released q, whose ends grow away from q by about a half each (:meth:`Quantiles.list_nested`). An end half of
the way to its bound or farther is the bound; the last interval is the whole grid. Interval k is to reach b rows beyond the
wanted rank on both sides, and the one before it is not to. Its reach g(k) is the lesser of the rows between the wanted
rank and its ends, negative if they are outside; an end at its bound does not limit it.

    g(k) = min(U_k - t, t - L_k)     U_k values up to the interval's upper end, L_k values below its lower end
    u(k) = -max(0, b - g(k), g(k - 1) - b)

One row moves t by p, and U_k and L_k by 0 or 1, so it moves every g, and every u, by at most ``max(p, 1 - p)``: the
sensitivity above. Publicly known rows move no score. Both ends share one choice, so each is twice as exact as alone.

Coverage, for any data and any q: g ascends with k, the last one has no limit, and the first that is b or more has utility 0.
Let k be the first interval that contains the exact quantile x. Those before it have a reach of 0 at most, so they miss by
b, and the interval with utility 0 is k or a later one. Each interval weighs at least a third more than the one before it
(:func:`weigh_nested`), so all wrong ones weigh at most three times as much as the right one: x is missed with odds of at
most ``3 exp(-rate b)``, which determines b. (b has :data:`BETWEEN` more, since x may be between two rows.)

One row may be anywhere, so the least value's lower end is the lower bound. Its other end is the value itself if there are
enough rows that it is not below the data, and the upper bound otherwise: a choice between the scores n - m and 0, for n
rows and a public m. One row moves only one of them, by 1, so its rate is epsilon. The value is below the data with
probability at most ``points exp(-r n)`` for its own rate r (:meth:`Quantiles.count_needed`), which is 1 at some n. There
the value is taken with probability 0.05 by the choice of m; with more rows this grows slower than the other probability
falls, since r is the greater rate. So the interval misses with probability 0.05 at most. The greatest value's ends are the
mirror image.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import takewhile

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Answered, Group
from dpsql.mechanisms.base import ErrorBasis, ExpectedError
from dpsql.mechanisms.fast.column_counts import NumberRows
from dpsql.mechanisms.histograms import SteppedPart
from dpsql.mechanisms.order_statistics import (
    GeometricGrid,
    GradedGrid,
    PointWeights,
    WantedRank,
    accumulate_counts,
    choose_step,
)
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import choose_exponential
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.exact_numbers import Integers, make_values, to_integers
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
_SAY_INTERVAL = "Each interval of {} is a choice of its own, which takes ε={:g} of this in each group."


@dataclass(frozen=True)
class Quantiles(SteppedPart):
    """Quantiles of one column, per group, from one histogram.

    Args:
        names: of the released columns, one for each rank; the values of ranks that share a name are a list.
        low, high: the ends of the grid.
        epsilon: for all of them; each gets an equal part of it in each of at most ``groups`` groups.
        whole: whether integers are shown (if ``steps`` is 1).
        geometric: the values of uneven steps; utilities and charge are the same on any grid.
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
    by_group = True

    def __post_init__(self) -> None:
        if self.low > self.high or self.epsilon <= 0 or min(self.rows, self.groups, len(self.names)) < 1:
            raise ValueError("a quantile needs a grid, an epsilon above 0, and rows and groups of at least 1")
        if len(self.names) != len(self.ranks):
            raise ValueError("a name for each quantile")

    @property
    def event(self) -> Event:
        parts = Counter([*map(self.part_of, range(len(self.ranks))), *self._interval_parts.values()])
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

    @property
    def doubt(self) -> float:
        """The miss probability of an interval, at :data:`DRAWN_LEVEL` or more: a stored answer serves all lower levels."""
        assert self.confidence is not None
        return 1 - max(self.confidence, DRAWN_LEVEL)

    @property
    def can_redraw(self) -> bool:
        return self.confidence is None or self.confidence <= DRAWN_LEVEL

    def weights(self, rank: WantedRank) -> PointWeights | None:
        """Return the public weights of the points; None if all weigh the same.

        The least and the greatest value have equal weights: they are outside most of the values, and their distance from the
        outermost ones grows with the ratio of all points' weight to the lightest point's.
        """
        return self.geometric.weights if isinstance(self.geometric, GradedGrid) and rank.end is None else None

    @property
    def number(self) -> NumberRows | None:
        return self.geometric.number_clamped if isinstance(self.geometric, GradedGrid) else None

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

    @cached_property
    def _interval_parts(self) -> Mapping[int, Fraction]:
        """The epsilon of each released interval in one group, by the index of its rank."""
        return {i: self._each * END_SHARE * many for i, many in Counter(own for own, _ in self.ends).items()}

    def part_of(self, place: int) -> Fraction:
        """Return the epsilon of the choice of one quantile in one group."""
        return self._each - self._interval_parts.get(place, 0)

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

    def find_rows_beyond(self, place: int) -> int:
        """Return the rows b that an interval is to have between the wanted rank and each of its ends.

        Of the least and the greatest value: the rows from which on the end is more probably the value than the bound.
        """
        rank = self.ranks[place]
        odds = 1 / self.doubt - 1
        log = math.log(odds * (1 if rank.end else 3)) * (1 + 1e-9)
        if rank.end:
            few = math.log(self._points) / float(self.part_of(place) / (2 * rank.sensitivity * self.rows))
            return math.ceil(few * (1 + 1e-9) + log / float(self.rate_interval(place)))
        return math.ceil(log / float(self.rate_interval(place) * rank.scale)) + BETWEEN

    def rate_interval(self, place: int) -> Fraction:
        """Return the log-weight of one step of an interval's scaled utility: of one row, for the least and the greatest value."""
        rank = self.ranks[place]
        return self._interval_parts[place] / (self.rows if rank.end else 2 * rank.sensitivity * self.rows)

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
        """Bound the distance from the target rank, which lies a few rows inside the data for the least and the greatest value."""
        return self.bound_error(rank, confidence) + (self.inward if rank.end else 0)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        return self._answer([self._choose(*found, entropy) for found in self.read_steps(table, groups)])

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
                make_values([v for (v,) in lists], kind) if alone else make_values(lists, pa.list_(kind))
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
            found[f"{name}__{end}"] = make_values([float(shown(step)) for step in held], pa.float64())
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
        """Choose once per rank, and put the choices in order, which is free."""
        rest = (entropy, self.inward)
        chosen = [
            choose_step(values, counts, self.low, self.high, rank, self.rate(rank), *rest, self.weights(rank))
            for rank in self.ranks
        ]
        out: list[int] = order_steps(np.array([chosen]), self.ranks)[0].tolist()
        ends: list[int] = []
        for i in self._interval_parts:
            if self.ranks[i].end:
                ends.append(self._choose_far_end(int(counts.sum()), chosen[i], i, entropy))
            else:
                ends += self._choose_interval(values, counts, out[i], i, entropy)
        return [*out, *ends]

    def _choose_far_end(self, rows: int, chosen: int, place: int, entropy: Entropy) -> int:
        """Choose the end of the least or greatest value's interval: its own choice, or the bound if there may be too few rows."""
        enough = np.array([rows - self.find_rows_beyond(place), 0], dtype=object)
        if choose_exponential(enough, self.rate_interval(place), entropy) == 0:
            return chosen
        return self.high if self.ranks[place].end == "min" else self.low

    def _choose_interval(
        self, values: Integers, counts: Integers, chosen: int, place: int, entropy: Entropy
    ) -> tuple[int, int]:
        """Choose one of the nested intervals around a released step."""
        lows, highs = self.list_nested(chosen)
        utility = self.score_nested(values, counts, lows, highs, place)
        weights = np.array(weigh_nested(len(lows)), dtype=np.int64)
        k = choose_exponential(utility, self.rate_interval(place), entropy, weights)
        return int(lows[k]), int(highs[k])

    def list_nested(self, chosen: int) -> tuple[Integers, Integers]:
        """Return the lower and the upper ends of the nested intervals around a step; the last one is the whole grid."""
        below, above = chosen - self.low, self.high - chosen
        far = np.array(list_distances(max(below, above)), dtype=np.int64)
        lows = np.where(2 * far >= below, self.low, chosen - far)
        return lows, np.where(2 * far >= above, self.high, chosen + far)

    def score_nested(
        self, values: Integers, counts: Integers, lows: Integers, highs: Integers, place: int
    ) -> Integers:
        """Return the scaled utilities of nested intervals: how far their reach is from the wanted number of rows."""
        rank, more = self.ranks[place], self.find_rows_beyond(place)
        every, upto = accumulate_counts(np.append(counts, to_integers([more])), rank.scale)
        upto, target = np.append(np.zeros_like(upto[:1]), upto), rank.p.numerator * (every - more)
        less = upto[np.searchsorted(values, lows, side="left")]
        most = upto[np.searchsorted(values, highs, side="right")]
        down = np.where(lows == self.low, rank.scale * every, target - rank.scale * less)
        up = np.where(highs == self.high, rank.scale * every, rank.scale * most - target)
        beyond = np.minimum(down, up) - rank.scale * more
        found: Integers = np.minimum(beyond, 0)
        found[1:] -= np.maximum(beyond[:-1], 0)
        return found

    def sentences(self, confidence: float) -> tuple[str, ...]:
        shared = f", shared by {len(self.ranks)} quantiles of one column" if len(self.ranks) > 1 else ""
        shared += f" and {self.groups} groups" if self.groups > 1 else ""
        said = [
            f"Choose {', '.join(self._places())} among {self._points} grid points by the exponential mechanism "
            f"(ε={float(self.epsilon):g}{shared})."
        ]
        parts = self._interval_parts
        for own in dict.fromkeys(parts.values()):
            names = ", ".join(self.names[i] for i, part in parts.items() if part == own)
            said.append(_SAY_INTERVAL.format(names, float(own)))
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
            which = self._describe_rank(rank)
            said.append(f"{name}: {which}, within {off:.4g} rows, with {confidence:.4g} probability.")
            said.append(self._describe_strays(name, rank))
        return tuple(said)

    def _describe_rank(self, rank: WantedRank) -> str:
        if not rank.end:
            return f"the value that {float(rank.p):g} of the rows lie below"
        side = "below" if rank.end == "min" else "above"
        return f"a value with about {self.inward} rows {side} it (half of the rows, if there are fewer)"

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
        """Return the mean absolute error in rank, in rows; that of a tree also depends on how many rows there are."""
        return 1 / float(self.rate(rank) * rank.scale) + (self.inward if rank.end else 0)


def note_far_end(name: str, rank: WantedRank, off: int) -> str:
    """Return a note on how few rows make the least or greatest value miss its rank by more than a tenth."""
    side, p = ("below", "0.1") if rank.end == "min" else ("above", "0.9")
    better = f"with fewer than {10 * off:,} rows in all, QUANTILE_CONT(..., {p}) is more exact"
    return f"up to {off:,} rows may be {side} {name}; {better}"


def order_steps(steps: NDArray[np.int64], ranks: Sequence[WantedRank]) -> NDArray[np.int64]:
    """Return each row's steps in the order of their ranks; the least and greatest value never move another quantile."""
    inner = sorted((i for i, rank in enumerate(ranks) if not rank.end), key=lambda i: ranks[i].p)
    found = steps.copy()
    found[:, inner] = np.sort(steps[:, inner], axis=1)
    for end, extreme in (("min", steps.min(axis=1)), ("max", steps.max(axis=1))):
        found[:, [i for i, rank in enumerate(ranks) if rank.end == end]] = extreme[:, None]
    return found


@lru_cache(maxsize=1024)
def list_distances(farthest: int) -> tuple[int, ...]:
    """Return distances from a point that grow by about a half, up to the first that is half of the farthest or more.

    >>> list_distances(20)
    (0, 1, 2, 3, 4, 6, 8, 12)
    """
    steps = dict.fromkeys((0, *(d for i in range(farthest.bit_length() + 1) for d in (1 << i, 3 << i >> 1))))
    return (*takewhile(lambda d: 2 * d < farthest, steps), next(d for d in steps if 2 * d >= farthest))


@lru_cache(maxsize=256)
def weigh_nested(cells: int) -> tuple[int, ...]:
    """Return weights of nested intervals: each at least a third more than the one before it.

    >>> weigh_nested(6)
    (1, 2, 3, 4, 6, 8)
    """
    weights = [1]
    while len(weights) < cells:
        weights.append(-(-4 * weights[-1] // 3))
    return tuple(weights)


def note_rank_error(names: Sequence[str], off: float) -> str:
    """Return a note that columns have no interval, and how many rows they may be off in rank."""
    return (
        f"no interval for {', '.join(names)}: off by at most {math.ceil(off)} rows in rank, at {RANK_CONFIDENCE:.0%}; "
        "quantiles whose ranks are more rows below and above enclose it"
    )
