"""Statistics over public values: the sum of those that occur, and the one that occurs most often.

``SUM(DISTINCT x)``: the sum of the different values in a group, with discrete Laplace noise.

Relation: ADD_REMOVE. Sensitivity: a unit with at most ``rows`` rows in a group brings at most so many values that are not
there without it, and takes none away. So it moves the sum by at most that of the largest values above 0, or of the least below
0, at most ``rows`` of either (:func:`bound_distinct_sum`), in at most ``groups`` groups. Guarantee: epsilon-DP. The caller must
bound the rows and groups of a unit by rules that look at that unit alone; values are held to a public grid here.

``MODE(x)``: one of a list of public values, by the exponential mechanism over how often each occurs.

Relation: ADD_REMOVE. Sensitivity: a unit with at most ``rows`` rows in a group adds at most ``rows`` to any value's count, and
takes from none. The counts are monotone, so the weight of a value is ``exp(epsilon count / rows)``. Guarantee: pure epsilon and
of bounded range, divided equally over the groups of a unit. The same law as the largest of a histogram with Gumbel noise; with
Laplace noise of the same epsilon on every count the largest is no nearer to the most frequent. The caller must choose the
values without looking at the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa

from dpsql.mechanisms.aggregation import Answered, Group, Part, index_groups
from dpsql.mechanisms.base import ClaimedText, ExpectedError, RowsClaim
from dpsql.mechanisms.histograms import BIN, BIN_ROWS, GRID_STEP, STEP_ROWS
from dpsql.mechanisms.moments import Sum
from dpsql.mechanisms.per_group import LaplaceNoise, Statistic
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import choose_exponential
from dpsql.numerics.exact_numbers import Integers, read_integers, to_integers
from dpsql.privacy.events import BoundedRange, Event

_NO_ROWS = np.zeros(0, dtype=np.intp)


def bound_distinct_sum(rows: int, low: int, high: int, values: Sequence[int] | None = None) -> int:
    """Return how far ``rows`` values that were not there can move a sum of different values.

    Args:
        rows: the number of new values, at most.
        low: the least of all integers that may occur, where ``values`` does not list them.
        high: the greatest of them.
        values: the only values that may occur.

    >>> bound_distinct_sum(2, -1, 4), bound_distinct_sum(2, -9, 4), bound_distinct_sum(9, 0, 3)
    (7, 17, 6)
    >>> bound_distinct_sum(2, 0, 100, [5, 7, 100])
    107
    """
    if values is not None:
        held = sorted({min(max(v, low), high) for v in values})
        above = [v for v in held if v > 0][-rows:]
        below = [-v for v in held if v < 0][:rows]
        return max(sum(above), sum(below))
    return max(_add_largest(rows, low, high), _add_largest(rows, -high, -low))


def _add_largest(rows: int, low: int, high: int) -> int:
    """Add up the largest ``rows`` integers above 0 between two ends."""
    first = max(1, low, high - rows + 1)
    return (first + high) * (high - first + 1) // 2 if high >= first else 0


@dataclass(frozen=True)
class DistinctSum(Part):
    """One released column, the noisy sum of the different values of each group.

    Args:
        query: gives the keys, :data:`~dpsql.mechanisms.histograms.GRID_STEP` and ``STEP_ROWS``, a row per group and value.
        keys: names of the grouping columns.
        name: of the released column.
        low: the first step of the grid, to which values are held.
        high: its last step.
        rows: rows of one privacy unit in one group.
        noise: of the sum, in grid steps; its sensitivity is at least that of :func:`bound_distinct_sum`.
        steps: grid steps to a unit.
        values: the only values that count, in grid steps; None where all between the ends do.
    """

    query: str
    keys: tuple[str, ...]
    name: str
    low: int
    high: int
    rows: int
    noise: LaplaceNoise
    steps: Fraction = Fraction(1)
    values: tuple[int, ...] | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        least = bound_distinct_sum(self.rows, self.low, self.high, self.values)
        if self.low > self.high or self.rows < 1 or self.noise.sensitivity < least:
            raise ValueError("a sum of different values needs a grid, and noise for what one unit can bring")

    @property
    def event(self) -> Event:
        return self.noise.event

    @property
    def _sum(self) -> Sum:
        return Sum(self.name, Statistic(self.name, self.noise), self.steps)

    def claims(self) -> Iterator[ClaimedText]:
        yield ClaimedText(self.query, RowsClaim(self.rows, self.noise.groups, self.keys))

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        rows = index_groups(table, self.keys)
        values, counts = read_integers(table.column(GRID_STEP)), read_integers(table.column(STEP_ROWS))
        exact = [self._add(values[held], counts[held]) for held in (rows.get(g, _NO_ROWS) for g in groups)]
        return Answered(self._show(self.noise.add(to_integers(exact), entropy)), self.event)

    def _add(self, values: Integers, counts: Integers) -> int:
        present = set(np.unique(np.clip(values[counts > 0], self.low, self.high)).tolist())
        return sum(present if self.values is None else present.intersection(self.values))

    @property
    def can_redraw(self) -> bool:
        return self.steps == 1  # else the column holds quotients

    def redraw(self, released: pa.Table) -> Mapping[str, pa.Array]:
        return self._show(read_integers(released.column(self.name)))

    def _show(self, noisy: Integers) -> Mapping[str, pa.Array]:
        return self._sum.show({self._sum.statistic: noisy}, self.confidence).columns(self.name)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return self._sum.sentences(confidence)

    def expect_errors(self, factor: Fraction, confidence: float) -> Iterator[ExpectedError]:
        yield from self._sum.expect_errors(factor, confidence)


@dataclass(frozen=True)
class MostFrequent(Part):
    """One released column, the place of a chosen value in the list of public ones.

    Args:
        query: gives the keys, :data:`~dpsql.mechanisms.histograms.BIN` and ``BIN_ROWS``.
        keys: names of the grouping columns.
        name: of the released column.
        bins: the number of public values.
        epsilon: for all groups of a unit together.
        rows: rows of one privacy unit in one group.
        groups: groups that one privacy unit may be in.
    """

    query: str
    keys: tuple[str, ...]
    name: str
    bins: int
    epsilon: Fraction
    rows: int = 1
    groups: int = 1

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or min(self.bins, self.rows, self.groups) < 1:
            raise ValueError("a choice needs values, an epsilon above 0, and rows and groups of at least 1")

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon, self.groups)

    @property
    def rate(self) -> Fraction:
        """The log-weight of one row."""
        return self.epsilon / (self.groups * self.rows)

    def claims(self) -> Iterator[ClaimedText]:
        claim = RowsClaim(self.rows, self.groups, self.keys, moves=((BIN_ROWS, 1),))
        yield ClaimedText(self.query, claim)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        rows = index_groups(table, self.keys)
        places, counts = read_integers(table.column(BIN)), read_integers(table.column(BIN_ROWS))
        chosen = []
        for group in groups:
            held, exact = rows.get(group, _NO_ROWS), np.zeros(self.bins, dtype=np.int64)
            np.add.at(exact, places[held].astype(np.int64), counts[held].astype(np.int64))
            chosen.append(int(choose_exponential(exact, self.rate, entropy)))
        note = f"no interval for {self.name}: it is a choice, and of no rows any value is as likely"
        return Answered({self.name: pa.array(chosen, pa.int64())}, self.event, (note,))

    def bound_error(self, confidence: float) -> float:
        """Bound how many more rows the most frequent value has than the chosen one (Dwork and Roth, corollary 3.12)."""
        return (math.log(self.bins) - math.log(1 - confidence)) / float(self.rate)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        shared = f", shared by {self.groups} groups" if self.groups > 1 else ""
        return (
            f"Choose {self.name} among {self.bins} public values by the exponential mechanism "
            f"(ε={float(self.epsilon):g}{shared}).",
            f"{self.name}: at most {self.bound_error(confidence):.4g} rows behind the most frequent value, with "
            f"{confidence:.4g} probability.",
        )  # fmt: skip

    def expect_errors(self, factor: Fraction, confidence: float) -> Iterator[ExpectedError]:
        other = replace(self, epsilon=self.epsilon * factor)
        yield ExpectedError(f"{self.name}, in rows", other.bound_error(confidence))
