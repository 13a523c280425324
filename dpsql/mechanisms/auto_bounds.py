"""Sums, means and variances whose clipping bounds are found privately, on a ladder of powers of two: ``AUTO``.

One histogram holds all that is needed: rows by sign and by rung (rung j holds sizes above 2**(j-1), up to 2**j),
with the exact sum of each rung in steps of 2**(j - PLACES). From it follow, without another look at the data,
how many rows lie beyond any bound, and the sum clipped to any bound, exactly; for a variance, the sum of squares too.

Bounds: :data:`SEARCH` of epsilon is noise on the rungs of one row of each unit, of both signs, and the bounds are chosen from
these noisy numbers (:mod:`dpsql.mechanisms.rung_search`). The row is chosen by the secret hash, so a unit moves one number by 1,
whatever the caps on its rows are: their noise does not grow with the caps. A bound without a row that supports it has a chance
that the noise's law gives (:data:`ANYWHERE`, :data:`DECLARED`), for any data. Where a number of rows is released too, it comes
first, and says how many rows one of the sample stands for; where none is, the root of the caps stands in. The bounds are
constants afterwards: cost and release are one event, adaptive.

Relation: ADD_REMOVE. Guarantee: pure epsilon, of the noisy numbers (epsilon of the bounds) and of exact discrete
Laplace noise on the clipped total, for a mean on the count, and for a variance on the squares about the middle of the
bounds, which a row moves by the square of half their distance at most. A total is rounded down to a grid of which the
bound is a whole number of steps, which keeps its sensitivity: if a <= b + k with k whole, floor(a) <= floor(b) + k.
Both outcomes of the search, bounds or none, are charged alike.
Caller: missing values are left out, rows of a unit are bounded over all groups (``rows * groups``), and values are held
to the declared bounds, where there are any.

No float is compared with a bound: a difference of two clipped float sums may move by more than the textbook's 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.mechanisms.aggregation import Answered, Group, Part, index_groups
from dpsql.mechanisms.base import ClaimedText, Reader, Release, RowsClaim
from dpsql.mechanisms.mean_errors import read_mean_error
from dpsql.mechanisms.moments import Estimate, Mean, Output, Sum, Variance
from dpsql.mechanisms.per_group import LaplaceNoise, Statistic
from dpsql.mechanisms.rung_search import PLACES, Ladder, RungSearch
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import Integers, read_integers, to_integers
from dpsql.privacy.events import Event, compose_events

SIGN, RUNG, RUNG_ROWS, RUNG_TOTAL, RUNG_SQUARES = "sign", "rung", "n", "total", "squares"
"""Columns of the histogram: -1, 0 or 1; j; rows; the sum of their sizes in steps of ``2**(j - PLACES)``, and of its squares."""

AutoKind = Literal["sum", "avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp"]
_NOISY = {"sum": 1, "avg": 2}
_SPREAD = 3
"""The noisy numbers behind a variance; :data:`_NOISY` those of the others."""

BOUND_BITS = 30
"""A bound is 2**BOUND_BITS steps of the grid that the total is rounded to."""

ANYWHERE = Fraction(1, 10**9)
"""The greatest chance, per statement without declared bounds, of a bound more than 8 times the largest value."""

DECLARED = Fraction(1, 10**6)
"""The same, per aggregate, within declared bounds."""

SHARED = 8
"""The least number of aggregates that share :data:`ANYWHERE`: so equal aggregates are equal in most statements."""

SEARCH = Fraction(3, 20)
"""The part of epsilon that the bounds get."""


_SAMPLED = "dpsql_sampled"
"""The column that tells the rungs of one row of each unit from those of all rows."""


def _part_sample(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rungs of all rows, and those that bounds are found from."""
    if _SAMPLED not in table.column_names:
        return table, table
    own = table.column(_SAMPLED)
    return table.filter(pc.invert(own)), table.filter(own)


def _read_rungs(table: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return signs, rungs and numbers of rows."""
    sign, rung, n = (read_integers(table.column(c)).astype(np.int64) for c in (SIGN, RUNG, RUNG_ROWS))
    return sign, rung, n


def find_exponent(value: Fraction) -> int:
    """Find the least j with ``value <= 2**j``, for a value above 0.

    >>> [find_exponent(Fraction(v)) for v in (90, 64, 1)], find_exponent(Fraction(1, 3))
    ([7, 6, 0], -1)
    """
    j = value.numerator.bit_length() - value.denominator.bit_length() - 1
    while value > Fraction(2) ** j:
        j += 1
    return j


@dataclass(frozen=True)
class AutoBounded(Part):
    """A sum, mean or variance with ``contribution_bounds_per_row => AUTO``: one pair of bounds for all groups.

    Args:
        query: gives the keys, :data:`SIGN`, :data:`RUNG` (``lowest`` at least), rows and total, and for a variance the
            squares; each row's size in steps is rounded and held to ``2**PLACES`` first, so no row is above its rung.
        epsilon: of all: :data:`SEARCH` of it for the bounds, the rest in equal parts for sum, count and squares, where they
            are needed.
        rows: rows of one privacy unit in one group; ``groups`` the groups it may be in.
        lowest, highest: the ladder's ends, as exponents of two.
        low, high: the declared bounds, where there are any: the query holds values to them, and the ladders end there.
        beside: aggregates with AUTO in the statement, which share the chance of a bound far too wide (:data:`SHARED` at least).
        in_all: whether ``rows`` are those of all groups together; then ``groups`` is 1.
        sample: gives the same numbers of rows by sign and rung, of one row of each unit; empty where a unit has no more.
    """

    query: str
    keys: tuple[str, ...]
    name: str
    kind: AutoKind
    epsilon: Fraction
    lowest: int
    highest: int
    rows: int = 1
    groups: int = 1
    confidence: float = 0.95
    low: Fraction | None = None
    high: Fraction | None = None
    beside: int = SHARED
    in_all: bool = False
    sample: str = ""

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query, self.sample) if self.sample else (self.query,)

    @property
    def ladders(self) -> tuple[Ladder | None, Ladder | None]:
        """The ladders of the negative and of the positive values; None where the declared bounds leave no such values."""
        return self._ladder(None if self.low is None else -self.low), self._ladder(self.high)

    def _ladder(self, end: Fraction | None) -> Ladder | None:
        doubt, highest = ANYWHERE / self.beside, self.highest
        if end is not None:
            if end <= 0:
                return None
            doubt, highest = DECLARED, min(self.highest, max(self.lowest, find_exponent(end)))
            end = min(end, Fraction(2) ** highest)
        return Ladder(self.lowest, highest, doubt / 2, end)

    def search(self, groups: int = 1, rows_each: Fraction | None = None) -> RungSearch:
        """Return the search for bounds that are good for the noise of so many groups' totals together.

        Args:
            groups: how many are answered.
            rows_each: the rows that one row of the sample stands for; by default the root of the most that it may.
        """
        most = self.rows * self.groups
        rows, noise = most, max(1, groups) * most / self._share
        if self.sample:
            each = Fraction(math.isqrt(most)) if rows_each is None else rows_each
            rows, noise = 1, noise / min(max(each, Fraction(1)), Fraction(most))
        width, squares = self.kind != "sum", self.kind not in _NOISY
        # A mean has noise of half the distance on its sum, and of up to as much by its count; a spread has it squared.
        part = Fraction(1, 4) if squares else Fraction(7, 10) if width else Fraction(1)
        return RungSearch(self.ladders, self.epsilon * SEARCH, rows, noise * part, width, squares)

    @property
    def needed(self) -> tuple[int, ...]:
        """The rows on one rung that give its sign a bound above 0, with 95 % confidence: one number, or one for each sign."""
        return self.search().needed

    @property
    def _rest(self) -> Fraction:
        return self.epsilon * (1 - SEARCH)

    @property
    def _share(self) -> Fraction:
        """The epsilon of each noisy number."""
        return self._rest / _NOISY.get(self.kind, _SPREAD)

    @property
    def _noise(self) -> LaplaceNoise:
        return LaplaceNoise(self._share, self.rows << BOUND_BITS, self.groups)

    @property
    def total(self) -> Statistic:
        """The clipped total, or the total about the middle of the bounds: on its grid, whatever the bounds."""
        return Statistic(RUNG_TOTAL, self._noise)

    @property
    def count(self) -> Statistic:
        return Statistic(RUNG_ROWS, LaplaceNoise(self._share, self.rows, self.groups))

    @property
    def squares(self) -> Statistic:
        """The sum of squares about the middle of the bounds: a row moves it by no more of its steps than the total of its."""
        return Statistic(RUNG_SQUARES, self._noise)

    @property
    def event(self) -> Event:
        noisy = [self.total, self.count, self.squares][: _NOISY.get(self.kind, _SPREAD)]
        return compose_events([self.search().event, *(s.noise.event for s in noisy)])

    def claims(self) -> Iterator[ClaimedText]:
        moves = [(RUNG_ROWS, 1), (RUNG_TOTAL, 1 << PLACES)]
        if self.kind not in _NOISY:
            moves.append((RUNG_SQUARES, 1 << 2 * PLACES))
        yield ClaimedText(
            self.query, RowsClaim(self.rows, self.groups, self.keys, moves=tuple(moves), in_all=self.in_all)
        )
        if self.sample:
            yield ClaimedText(self.sample, RowsClaim(1, moves=((RUNG_ROWS, 1),)))

    def read_exact(self, read: Reader, entropy: Entropy) -> pa.Table:
        table = read(self.query)
        if not self.sample:
            return table
        sample = read(self.sample).select([SIGN, RUNG, RUNG_ROWS])
        marked = [
            part.append_column(_SAMPLED, pa.array([flag] * part.num_rows, pa.bool_()))
            for part, flag in ((table, False), (sample, True))
        ]
        return pa.concat_tables(marked, promote_options="permissive")

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        table, held = _part_sample(table)
        counts = [self._count_rungs(held, side) for side in (0, 1)]
        sign, rung, n = _read_rungs(table)
        sums = [
            read_integers(table.column(c))
            for c in (RUNG_TOTAL, RUNG_SQUARES)[: 1 + (self.kind not in _NOISY)]
        ]
        by_group = index_groups(table, self.keys) if table.num_rows else {}
        none = np.zeros(0, dtype=np.intp)
        counted = [int(n[by_group.get(group, none)].sum()) for group in groups]
        many = (
            None
            if self.kind == "sum" or not self.sample
            else self.count.noise.add(to_integers(counted), entropy)
        )
        search = self.search(len(groups))
        noisy = search.draw(counts, entropy)
        if many is not None:
            units = max(1, sum(sum(side) for side in noisy))
            search = self.search(len(groups), Fraction(max(1, int(many.sum())), units))
        found = search.choose(noisy)
        if found is None:
            return self._unanswered(len(groups))
        low, high = -found[0], found[1]
        exact: list[list[Fraction]] = [[] for _ in sums]
        for group in groups:
            rows = by_group.get(group, none)
            for power, (totals, of) in enumerate(zip(exact, sums, strict=True), 1):
                totals.append(self._clipped(sign[rows], rung[rows], n[rows], of[rows], low, high, power))
        columns = self._shown(exact[0], counted, low, high, entropy, exact[-1], many)
        ends = f"[{float(low):g}, {float(high):g}]"
        note = f"{self.name}: values were clipped to {ends}, bounds found privately"
        return Answered(columns, self.event, (note,))

    def _count_rungs(self, table: pa.Table, side: int) -> NDArray[np.int64]:
        """Return the rows on the rungs of one sign: the negative (0) or the positive values (1)."""
        ladder = self.ladders[side]
        if ladder is None:
            return np.zeros(0, dtype=np.int64)
        sign, rung, n = _read_rungs(table)
        own = sign == (-1, 1)[side]
        return ladder.count(rung[own], n[own])

    def _unanswered(self, groups: int) -> Answered:
        """Answer NULL for every group: neither sign got a bound above 0, and no more is revealed."""
        note = (
            f"{self.name} is NULL: no bounds were found, because too few values are of one size (AUTO needs {self._rows} "
            f"between one power of two and the next here); a larger epsilon needs fewer, and bounds that are given need none"
        )
        empty = pa.nulls(groups, pa.float64())
        return Answered(Estimate(empty, empty, empty).columns(self.name), self.event, (note,))

    @property
    def _rows(self) -> str:
        """The rows that AUTO needs, in words; of one row of each unit, they are units."""
        what = "privacy unit" if self.sample else "row"
        if not self.needed:
            return f"some {what}s"
        return f"about {' or '.join(map(str, self.needed))} {what}{'s' if self.needed[-1] > 1 else ''}"

    def _clipped(
        self, sign: NDArray[np.int64], rung: NDArray[np.int64], n: NDArray[np.int64], total: NDArray[np.int64],
        low: Fraction, high: Fraction, power: int = 1,
    ) -> Fraction:  # fmt: skip
        """Compute the exact sum of the values held to ``[low, high]``, or of their squares where ``power`` is 2."""
        out = Fraction(0)
        # Values are held to a declared end before they are counted: none is beyond it, though its rung goes farther.
        below, above = (
            ladder is not None and ladder.end is not None and bound == ladder.bound(ladder.top)
            for ladder, bound in zip(self.ladders, (-low, high), strict=True)
        )
        for s, j, rows, steps in zip(sign.tolist(), rung.tolist(), n.tolist(), total.tolist(), strict=True):
            if s == 0 or not rows:
                continue
            bound = high if s > 0 else -low
            size = Fraction(2) ** max(j, self.lowest)
            # What a rung's rows add up to can't be more than the rung allows, whatever the query says.
            inside = size <= bound or (above if s > 0 else below)
            most = min(size, bound) ** power * rows
            out += s**power * (min(int(steps) * (size / (1 << PLACES)) ** power, most) if inside else most)
        return out

    def _shown(
        self, exact: list[Fraction], counted: list[int], low: Fraction, high: Fraction, entropy: Entropy,
        squares: Sequence[Fraction] = (), many: Integers | None = None,
    ) -> dict[str, pa.Array]:  # fmt: skip
        centre = Fraction(0) if self.kind == "sum" else (low + high) / 2
        reach = max(high - centre, centre - low)
        steps = Fraction(1 << BOUND_BITS) / reach
        pairs = zip(exact, counted, strict=True)
        totals = to_integers([math.floor((t - centre * n) * steps) for t, n in pairs])
        noisy = {self.total: self.total.noise.add(totals, entropy)}
        if self.kind == "sum":
            shown = Sum(self.name, self.total, steps).show(noisy, self.confidence)
        else:
            noisy[self.count] = self.count.noise.add(to_integers(counted), entropy) if many is None else many
            made: Output = Mean(self.name, self.total, self.count, steps, centre, (low, high))
            if self.kind != "avg":
                per_square, three = steps / reach, zip(squares, exact, counted, strict=True)
                about = [math.floor((s - 2 * centre * t + centre**2 * n) * per_square) for s, t, n in three]
                noisy[self.squares] = self.squares.noise.add(to_integers(about), entropy)
                made = Variance(
                    self.name, self.squares, self.total, self.count, steps, centre, (low, high), self.kind, per_square
                )  # fmt: skip
            shown = made.show(noisy, self.confidence)
        return shown._replace(value=shown.value.cast(pa.float64())).columns(self.name)

    def find_errors(self, release: Release) -> Mapping[str, float]:
        found = read_mean_error(release.table, self.name, self._noise, self.confidence)
        return {} if found is None else {self.name: found}

    def sentences(self, confidence: float) -> tuple[str, ...]:
        about = "a sum about the middle of the bounds"
        what, times = {
            "sum": ("sum", "the larger bound"),
            "avg": (f"mean ({about}, over a count)", "half the distance of the bounds"),
        }.get(
            self.kind,
            (f"spread ({about}, one of squares about it, and a count)",
             "half the distance of the bounds, of the squares times half the distance squared, of the count times 1"),
        )  # fmt: skip
        return (
            f"{self.name}: find clipping bounds among 0 and the powers of two {self._range}, "
            f"from noisy numbers of {'one row of each privacy unit' if self.sample else 'rows'} between them "
            f"(ε={float(self.epsilon * SEARCH):g}).",
            f"{self.name}: AUTO needs {self._rows} between one power of two and the next, with 95% probability: where neither "
            f"sign has so many the answer is NULL. Of fewer rows that are far larger than all others, all may be clipped.",
            f"{self.name}: a bound more than 8 times the largest value that occurs has a chance of at most "
            f"{self._chance}.",
            f"{self.name}: the {what} of the clipped values with discrete Laplace noise of scale "
            f"{float(self._noise.scale) / (1 << BOUND_BITS):.6g} times {times} (ε={float(self._rest):g}).",
        )

    @property
    def _range(self) -> str:
        """The ends of the ladders, in words."""
        below, above = self.ladders
        start = f"from 2^{self.lowest}"
        if below == above and below is not None:
            end = f"2^{below.highest}" if below.end is None else f"{float(below.end):g}, which is declared"
            return f"{start} to {end}, for each sign"
        ends = []
        for way, sign, ladder in (("up to", "", above), ("down to", "-", below)):
            if ladder is None:
                ends.append(f"none {'above' if way == 'up to' else 'below'} 0")
            else:
                end = f"{sign}2^{ladder.highest}" if ladder.end is None else f"{sign}{float(ladder.end):g}"
                ends.append(f"{way} {end}")
        return f"{start}, {' and '.join(ends)}, by the declared bounds"

    @property
    def _chance(self) -> str:
        """The chance of a bound that is far too wide on either side, in two digits, rounded up."""
        chance = sum((ladder.doubt for ladder in self.ladders if ladder is not None), Fraction(0))
        if not chance:
            return "0"
        digits = -math.floor(math.log10(chance)) + 1
        return f"{math.ceil(chance * 10**digits) / 10**digits:.2g}"
