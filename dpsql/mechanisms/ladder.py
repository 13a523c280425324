"""Sums and means whose clipping bounds are found privately, on a ladder of powers of two: ``AUTO``.

One histogram holds all that is needed: rows by sign and by rung (rung j holds sizes above 2**(j-1), up to 2**j),
with the exact sum of each rung in steps of 2**(j - PLACES). From it follow, without another look at the data,
how many rows lie beyond any bound, and the sum clipped to any bound, exactly.

Bounds: for each sign the sparse vector technique asks, from zero upward, whether no more than ``tolerance`` rows
lie beyond the bound. The statistics are counts: sensitivity ``rows``, monotone. A row has one sign, so the two
ladders together cost what one costs: if a unit has m of its ``rows`` on the positive side, that side's loss is
at most m / rows of epsilon.

Relation: ADD_REMOVE. Guarantee: pure epsilon, of the sparse vector (epsilon of the bounds) and of exact discrete
Laplace noise on the clipped total, and for a mean on the count. The total is rounded down to a grid of which the
bound is a whole number of steps, which keeps its sensitivity: if a <= b + k with k whole, floor(a) <= floor(b) + k.
Caller: missing values are left out, rows of a unit are bounded over all groups (``rows * groups``).

No float is compared with a bound: a difference of two clipped float sums may move by more than the textbook's 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.above_threshold import split
from dpsql.mechanisms.outputs import Mean, Sum, exact_integers
from dpsql.mechanisms.perturbation import LaplaceNoise, Statistic
from dpsql.mechanisms.together import Answered, Group, Together, rows_of
from dpsql.noise.discrete import geometric
from dpsql.noise.entropy import Entropy
from dpsql.noise.integers import integers
from dpsql.noise.selection import flips
from dpsql.privacy.events import Event, SparseVector, compose

SIGN, RUNG, ROWS, TOTAL = "sign", "rung", "n", "total"
"""Columns of the histogram: -1, 0 or 1; j; rows; their sizes' sum in steps of ``2**(j - PLACES)``."""

PLACES = 20
"""A size on rung j is a whole number of steps of 2**(j - PLACES): it keeps about six digits."""

FINE = 30
"""A bound is 2**FINE steps of the grid that the total is rounded to."""

_DOUBT = 0.05


@dataclass(frozen=True)
class Ladder:
    """The rungs ``lowest..highest`` (bounds ``2**j``), below them the bound 0, and the budget to climb it."""

    lowest: int
    highest: int
    epsilon: Fraction
    rows: int

    def __post_init__(self) -> None:
        if self.lowest > self.highest or self.epsilon <= 0 or self.rows < 1:
            raise ValueError("a ladder needs a rung, an epsilon above 0 and at least one row")

    @property
    def shares(self) -> tuple[Fraction, Fraction]:
        return split(self.epsilon, 1, monotone=True)

    @property
    def event(self) -> Event:
        return SparseVector(*self.shares, 1)

    @property
    def rates(self) -> tuple[Fraction, Fraction]:
        """Of the threshold's and of the counts' geometric noise, per row."""
        first, second = self.shares
        return first / self.rows, second / self.rows

    @property
    def tolerance(self) -> int:
        """Rows that may lie beyond a bound: so many that a bound with none beyond is taken."""
        return math.ceil(-math.log(_DOUBT) / float(self.rates[0]))

    @property
    def beyond(self) -> float:
        """Rows that may be clipped, with 95 % confidence: the tolerance, and what the noise may hide."""
        return self.tolerance + math.log((self.highest - self.lowest + 2) / _DOUBT) / float(self.rates[1])

    def climb(self, counts: NDArray[np.int64], entropy: Entropy) -> int | None:
        """The first rung whose bound leaves few rows beyond it: an index into ``[0, 2**lowest, ...]``.

        ``counts`` are the rows of one sign by rung. None: none was found, and the highest bound holds.
        """
        after = np.cumsum(counts[::-1])[::-1]
        beyond = np.append(after, 0)  # rows above 0, above 2**lowest, ..., above 2**highest
        level = int(geometric(self.rates[0], 1, entropy)[0]) - self.tolerance
        found = np.flatnonzero(flips(integers(level + beyond), self.rates[1], entropy))
        return int(found[0]) if len(found) else None

    def bound(self, place: int | None) -> Fraction:
        """The bound at an index of :meth:`climb`."""
        if place == 0:
            return Fraction(0)
        return Fraction(2) ** (self.highest if place is None else self.lowest + place - 1)


@dataclass(frozen=True)
class AutoBounded:
    """``SUM`` or ``AVG`` of a column with ``contribution_bounds_per_row => AUTO``: one pair of bounds for all groups.

    Args:
        query: gives the keys, :data:`SIGN`, :data:`RUNG` (``lowest`` at least), :data:`ROWS` and :data:`TOTAL`; each
            row's size in steps is rounded and held to ``2**PLACES`` before it is added, so no row is above its rung.
        epsilon: of all: a third for the bounds, the rest for the sum, or a third each for sum and count.
        rows: rows of one privacy unit in one group; ``groups`` the groups it may be in.
        lowest, highest: the ladder's ends, as exponents of two.
    """

    query: str
    keys: tuple[str, ...]
    name: str
    kind: Literal["sum", "avg"]
    epsilon: Fraction
    lowest: int
    highest: int
    rows: int = 1
    groups: int = 1
    confidence: float = 0.95

    @property
    def ladder(self) -> Ladder:
        return Ladder(self.lowest, self.highest, self.epsilon / 3, self.rows * self.groups)

    @property
    def _rest(self) -> Fraction:
        return self.epsilon - self.epsilon / 3

    @property
    def _noise(self) -> LaplaceNoise:
        share = self._rest if self.kind == "sum" else self._rest / 2
        return LaplaceNoise(share, self.rows << FINE, self.groups)

    @property
    def total(self) -> Statistic:
        """The clipped total, or the total about the middle of the bounds: on its grid, whatever the bounds."""
        return Statistic(TOTAL, self._noise)

    @property
    def count(self) -> Statistic:
        return Statistic(ROWS, LaplaceNoise(self._rest / 2, self.rows, self.groups))

    @property
    def event(self) -> Event:
        noisy = [self.total] if self.kind == "sum" else [self.total, self.count]
        return compose([self.ladder.event, *(s.noise.event for s in noisy)])

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        sign, rung = (exact_integers(table.column(c)).astype(np.int64) for c in (SIGN, RUNG))
        n, total = exact_integers(table.column(ROWS)).astype(np.int64), exact_integers(table.column(TOTAL))
        place = np.clip(rung, self.lowest, self.highest) - self.lowest
        width = self.highest - self.lowest + 1
        bounds, hit = [], []
        for side in (-1, 1):
            mine = np.where(sign == side, n, 0)
            counts = np.zeros(width, dtype=np.int64)
            np.add.at(counts, place, mine)
            found = self.ladder.climb(counts, entropy)
            bounds.append(self.ladder.bound(found))
            hit.append(found is not None)
        low, high = -bounds[0], bounds[1]
        by_group = rows_of(table, self.keys)
        exact, counted = [], []
        for group in groups:
            rows = by_group.get(group, np.zeros(0, dtype=np.intp))
            exact.append(self._clipped(sign[rows], rung[rows], n[rows], total[rows], low, high))
            counted.append(int(n[rows].sum()))
        columns = self._shown(exact, counted, low, high, entropy)
        note = (
            f"{self.name}: values were clipped to [{float(low):g}, {float(high):g}], bounds found privately"
        )
        if not all(hit):
            note += " (no bound was found on the ladder, so its end holds: too few rows for this epsilon)"
        return Answered(columns, self.event, (note,))

    def _clipped(
        self, sign: NDArray[np.int64], rung: NDArray[np.int64], n: NDArray[np.int64], total: NDArray[np.int64],
        low: Fraction, high: Fraction,
    ) -> Fraction:  # fmt: skip
        """The exact sum of the values held to ``[low, high]``."""
        out = Fraction(0)
        for s, j, rows, steps in zip(sign.tolist(), rung.tolist(), n.tolist(), total.tolist(), strict=True):
            if s == 0 or not rows:
                continue
            bound = high if s > 0 else -low
            size = Fraction(2) ** max(j, self.lowest)
            # What a rung's rows add up to can't be more than the rung allows, whatever the query says.
            held = min(int(steps) * size / (1 << PLACES), size * rows) if size <= bound else bound * rows
            out += s * held
        return out

    def _shown(
        self, exact: list[Fraction], counted: list[int], low: Fraction, high: Fraction, entropy: Entropy
    ) -> dict[str, pa.Array]:
        centre = (low + high) / 2 if self.kind == "avg" else Fraction(0)
        reach = max(high - centre, centre - low)
        steps = Fraction(1 << FINE) / reach if reach else Fraction(1)
        totals = integers([math.floor((t - centre * n) * steps) for t, n in zip(exact, counted, strict=True)])
        noisy = {self.total: self.total.noise.add(totals, entropy)}
        if self.kind == "sum":
            if not reach:  # every value is clipped to 0, and so is the sum
                noisy[self.total] = noisy[self.total] * 0
            shown = Sum(self.name, self.total, steps).show(noisy, self.confidence)
        else:
            noisy[self.count] = self.count.noise.add(integers(counted), entropy)
            mean = Mean(self.name, self.total, self.count, steps, centre, (low, high))
            shown = mean.show(noisy, self.confidence)
        value = shown.value.cast(pa.float64())
        return {self.name: value, f"{self.name}__low": shown.low, f"{self.name}__high": shown.high}

    def sentences(self, confidence: float) -> tuple[str, ...]:
        ladder = self.ladder
        what = "sum" if self.kind == "sum" else "mean (a sum about the middle of the bounds, over a count)"
        return (
            f"{self.name}: find clipping bounds among 0 and the powers of two from 2^{self.lowest} to "
            f"2^{self.highest}, for each sign, by ABOVE_THRESHOLD (ε={float(ladder.epsilon):g}); with 95% "
            f"probability at most {ladder.beyond:.4g} rows of a sign are clipped.",
            f"{self.name}: the {what} of the clipped values with discrete Laplace noise of scale "
            f"{float(self._noise.scale) / (1 << FINE):.6g} times "
            f"{'the larger bound' if self.kind == 'sum' else 'half the distance of the bounds'} "
            f"(ε={float(self._rest):g}).",
        )

    def alone(self) -> Together:
        """An operator that releases just this, ungrouped."""
        return Together(None, (self,))
