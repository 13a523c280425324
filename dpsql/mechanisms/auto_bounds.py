"""Sums, means and variances whose clipping bounds are found privately, on a ladder of powers of two: ``AUTO``.

One histogram holds all that is needed: rows by sign and by rung (rung j holds sizes above 2**(j-1), up to 2**j),
with the exact sum of each rung in steps of 2**(j - PLACES). From it follow, without another look at the data,
how many rows lie beyond any bound, and the sum clipped to any bound, exactly; for a variance, the sum of squares too.

Bounds: for each sign the sparse vector technique climbs from zero upward, with one noisy threshold, and stops at the
first of these questions that is answered yes (each has a public tolerance of its own):

* at 0: do no more than ``least`` rows have this sign?
* at each rung: do no more than ``near`` rows lie beyond its bound? Do no more than ``far`` rows lie beyond a quarter of it?

``near`` is small: it decides where a ladder usually ends, so few rows are clipped. ``far`` keeps the ladder from running
away: where the threshold's noise is so large that no bound looks good, the third question still stops it within four
times the largest value there is. For a bound farther out, all of ``near`` at three rungs and ``far`` at the last of
them must be missed by statistics that are 0, which has the chance of :func:`chance_of_misses`, whatever the data are.
``far`` is the least tolerance that keeps it below ``doubt``. ``least`` is larger by what the noise of all the later
questions may hide, so that few rows give no bound (and then no answer), and hardly ever one that is far too low.

The statistics are counts: sensitivity ``rows``, monotone. A row has one sign, so the two ladders together cost what one
costs: if a unit has m of its ``rows`` on the positive side, that side's loss is at most m / rows of epsilon. The
tolerances are public, and the proof of the sparse vector technique allows each question its own.

Relation: ADD_REMOVE. Guarantee: pure epsilon, of the sparse vector (epsilon of the bounds) and of exact discrete
Laplace noise on the clipped total, for a mean on the count, and for a variance on the squares about the middle of the
bounds, which a row moves by the square of half their distance at most. A total is rounded down to a grid of which the
bound is a whole number of steps, which keeps its sensitivity: if a <= b + k with k whole, floor(a) <= floor(b) + k.
Both outcomes of the search, bounds or none, are charged alike.
Caller: missing values are left out, rows of a unit are bounded over all groups (``rows * groups``), and values are held
to the declared bounds, where there are any.

No float is compared with a bound: a difference of two clipped float sums may move by more than the textbook's 1.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.mechanisms.aggregation import Answered, Group, Part, index_groups
from dpsql.mechanisms.base import ClaimedText, Release, RowsClaim
from dpsql.mechanisms.mean_errors import read_mean_error
from dpsql.mechanisms.moments import Estimate, Mean, Output, Sum, Variance
from dpsql.mechanisms.per_group import LaplaceNoise, Statistic
from dpsql.mechanisms.selection.above_threshold import split_epsilon
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_geometric
from dpsql.noise.selection import flip_coins
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.exact_numbers import read_integers, to_integers
from dpsql.privacy.events import Event, SparseVector, compose_events

SIGN, RUNG, RUNG_ROWS, RUNG_TOTAL, RUNG_SQUARES = "sign", "rung", "n", "total", "squares"
"""Columns of the histogram: -1, 0 or 1; j; rows; the sum of their sizes in steps of ``2**(j - PLACES)``, and of its squares."""

AutoKind = Literal["sum", "avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp"]
_NOISY = {"sum": 1, "avg": 2}
_SPREAD = 3
"""The noisy numbers behind a variance; :data:`_NOISY` those of the others."""

PLACES = 20
"""A size on rung j is a whole number of steps of 2**(j - PLACES): it keeps about six digits."""

BOUND_BITS = 30
"""A bound is 2**BOUND_BITS steps of the grid that the total is rounded to."""

ANYWHERE = Fraction(1, 10**9)
"""The greatest chance, per statement without declared bounds, of a bound more than 4 times the largest value."""

DECLARED = Fraction(1, 1000)
"""The same, per aggregate, within declared bounds."""

SHARED = 8
"""The least number of aggregates that share :data:`ANYWHERE`: so equal aggregates are equal in most statements."""

_DOUBT = 0.05

_TINY = 1000
"""Chances below 2**-1000 are not told apart."""


def bound_chance_of_misses(rates: tuple[Fraction, Fraction], tolerances: Sequence[int]) -> Fraction:
    """Compute the chance that statistics of 0 rows all miss their tolerances, rounded up: by 2**-100 of it, or to 2**-1000.

    A threshold noise z has probability (1 - a) a**z, and a statistic misses its tolerance t with probability
    1 - b**max(z - t, 0), where a and b are exp(-rate). So none misses unless z = T + m, with T the largest tolerance and
    m at least 1. The product of the misses is a polynomial in b**m, each power of which is one geometric series:

        (1 - a) a**T  sum over S  (-1)**|S| b**(sum of T - t in S)  a b**|S| / (1 - a b**|S|)

    Args:
        rates: of the threshold's and of the statistics' geometric noise, per row.
        tolerances: how many rows each statistic may have.
    """
    most = max(tolerances)
    bits = 160 + sum(max(r.denominator.bit_length() - r.numerator.bit_length(), 0) for r in rates) * 8
    # Terms of both signs: the interval shows the cost of cancelling, and more bits make up for it.
    while True:
        one = ia.rational(Fraction(1), bits)
        total = ia.rational(Fraction(0), bits)
        for size in range(len(tolerances) + 1):
            for chosen in itertools.combinations(tolerances, size):
                away = sum(most - t for t in chosen)
                step = ia.exp(ia.rational(-rates[0] - size * rates[1], bits), bits)
                term = ia.divide(step, ia.subtract(one, step, bits), bits)
                term = ia.multiply(term, ia.exp(ia.rational(-away * rates[1], bits), bits), bits)
                total = (ia.subtract if size % 2 else ia.add)(total, term, bits)
        a = ia.exp(ia.rational(-rates[0], bits), bits)
        first = ia.exp(ia.rational(-most * rates[0], bits), bits)
        out = ia.multiply(ia.multiply(ia.subtract(one, a, bits), first, bits), total, bits)
        if ia.is_at_most(out[1], ia.dyadic(1, -_TINY)):
            return Fraction(1, 1 << _TINY)
        low, high = ia.fraction(out[0]), ia.fraction(out[1])
        if low > 0 and (high - low) * (1 << 100) < low:
            return high
        bits *= 2


@functools.lru_cache(maxsize=256)
def find_tolerance(rates: tuple[Fraction, Fraction], doubt: Fraction) -> int:
    """Compute the least tolerance that a statistic of 0 rows misses with a chance of at most ``doubt``.

    The chance is a**(t + 1) (1 - b) / (1 - a b), so its logarithm is solved for t, with directed rounding.
    """
    bits = 160 + 4 * sum(max(r.denominator.bit_length() - r.numerator.bit_length(), 0) for r in rates)
    one = ia.rational(Fraction(1), bits)
    b = ia.exp(ia.rational(-rates[1], bits), bits)
    ab = ia.exp(ia.rational(-rates[0] - rates[1], bits), bits)
    factor = ia.divide(ia.subtract(one, b, bits), ia.subtract(one, ab, bits), bits)
    excess = ia.log(ia.divide(factor, ia.rational(doubt, bits), bits), bits)
    return max(0, math.ceil(ia.fraction(ia.divide(excess, ia.rational(rates[0], bits), bits)[1])) - 1)


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
class Ladder:
    """The rungs ``lowest..highest`` (bounds ``2**j``) of one sign, below them the bound 0, and the budget to climb it.

    Args:
        rows: of one privacy unit, over all groups.
        doubt: greatest chance of a bound more than 4 times the largest value there is.
        end: the declared bound, if there is one: the highest rung's bound, instead of its power of two.
    """

    lowest: int
    highest: int
    epsilon: Fraction
    rows: int
    doubt: Fraction = ANYWHERE
    end: Fraction | None = None

    def __post_init__(self) -> None:
        if self.lowest > self.highest or self.epsilon <= 0 or self.rows < 1:
            raise ValueError("a ladder needs a rung, an epsilon above 0 and at least one row")
        if not 0 < self.doubt < 1 or (
            self.end is not None and not 0 < self.end <= Fraction(2) ** self.highest
        ):
            raise ValueError("a ladder needs a doubt between 0 and 1, and an end on its highest rung")

    @property
    def rates(self) -> tuple[Fraction, Fraction]:
        """The rates of the threshold's and of the counts' geometric noise, per row."""
        first, second = split_epsilon(self.epsilon, 1, monotone=True)
        return first / self.rows, second / self.rows

    @property
    def top(self) -> int:
        """The place of the highest rung: it is taken where no other is, without a question of its own."""
        return self.highest - self.lowest + 1

    @property
    def near(self) -> int:
        """The rows that may lie beyond a bound: enough that a bound with none beyond is mostly taken."""
        return round(-math.log(_DOUBT) / self.rates[0])

    @property
    def far(self) -> int:
        """The rows that may lie beyond a quarter of a bound: enough that only ``doubt`` passes a bound with none beyond."""
        return max(self.near, find_tolerance(self.rates, self.doubt))

    @property
    def least(self) -> int:
        """Rows of a sign that give no bound: ``far``, and what the noise of the later questions may hide."""
        return self.far + max(0, math.ceil(math.log(2 * (self.top + 1) / _DOUBT) / self.rates[1]) - 1)

    @property
    def needed(self) -> int:
        """Rows beyond a bound from which the ladder climbs past it, or beyond 0 from which it finds one, with 95 % confidence."""
        return self.least + max(1, math.ceil(-math.log(_DOUBT) / self.rates[1]))

    @property
    def false_rung(self) -> Fraction:
        """The chance of a bound more than 4 times the largest value there is (any, if there is none), at most and exactly.

        The least upper bound over all data: rungs that many rows support are passed for sure. It is rounded up.
        """
        chance = bound_chance_of_misses(self.rates, (self.least,))
        if self.top < 4:
            return chance
        return max(chance, bound_chance_of_misses(self.rates, (self.near, self.near, self.near, self.far)))

    @property
    def questions(self) -> tuple[tuple[int, int, int], ...]:
        """The questions in order: the place that a yes takes, the place beyond which rows count, and the tolerance."""
        near, far = self.near, self.far
        asked = [(0, 0, self.least)]
        for place in range(1, self.top):
            asked.append((place, place, near))
            if place > 2:
                asked.append((place, place - 2, far))
        return tuple(asked)

    def climb(self, counts: NDArray[np.int64], entropy: Entropy) -> int:
        """Find the first bound that leaves few rows beyond it, as a place in ``[0, 2**lowest, ..., 2**highest]``.

        ``counts`` are the rows of one sign by rung.
        """
        after = np.cumsum(counts[::-1])[::-1].tolist()  # rows above 0, above 2**lowest, ...
        noise = int(draw_geometric(self.rates[0], 1, entropy)[0])
        asked = self.questions
        short = to_integers([noise - tolerance + after[beyond] for _, beyond, tolerance in asked])
        # Rows and their noise reach the noisy threshold with probability exp(-rate * short), or 1: one exact coin each.
        found = np.flatnonzero(flip_coins(short, self.rates[1], entropy))
        return asked[int(found[0])][0] if len(found) else self.top

    def bound(self, place: int) -> Fraction:
        """Return the bound at a place of :meth:`climb`; a declared end is rounded up to a step of its rung."""
        if place == 0:
            return Fraction(0)
        if place == self.top and self.end is not None:
            step = Fraction(2) ** (self.highest - PLACES)
            return math.ceil(self.end / step) * step
        return Fraction(2) ** (self.lowest + place - 1)


@dataclass(frozen=True)
class AutoBounded(Part):
    """A sum, mean or variance with ``contribution_bounds_per_row => AUTO``: one pair of bounds for all groups.

    Args:
        query: gives the keys, :data:`SIGN`, :data:`RUNG` (``lowest`` at least), rows and total, and for a variance the
            squares; each row's size in steps is rounded and held to ``2**PLACES`` first, so no row is above its rung.
        epsilon: of all: a third for the bounds, the rest in equal parts for sum, count and squares, where they are needed.
        rows: rows of one privacy unit in one group; ``groups`` the groups it may be in.
        lowest, highest: the ladder's ends, as exponents of two.
        low, high: the declared bounds, where there are any: the query holds values to them, and the ladders end there.
        beside: aggregates with AUTO in the statement, which share the chance of a bound far too wide (:data:`SHARED` at least).
        in_all: whether ``rows`` are those of all groups together; then ``groups`` is 1.
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
        return Ladder(self.lowest, highest, self.epsilon / 3, self.rows * self.groups, doubt / 2, end)

    @property
    def needed(self) -> tuple[int, ...]:
        """Rows of a sign from which it gets a bound above 0, with 95 % confidence: one number, or one for each sign."""
        return tuple(sorted({ladder.needed for ladder in self.ladders if ladder is not None}))

    @property
    def _rest(self) -> Fraction:
        return self.epsilon - self.epsilon / 3

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
        search = SparseVector(*split_epsilon(self.epsilon / 3, 1, monotone=True), 1)
        return compose_events([search, *(s.noise.event for s in noisy)])

    def claims(self) -> Iterator[ClaimedText]:
        moves = [(RUNG_ROWS, 1), (RUNG_TOTAL, 1 << PLACES)]
        if self.kind not in _NOISY:
            moves.append((RUNG_SQUARES, 1 << 2 * PLACES))
        yield ClaimedText(
            self.query, RowsClaim(self.rows, self.groups, self.keys, moves=tuple(moves), in_all=self.in_all)
        )

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        sign, rung = (read_integers(table.column(c)).astype(np.int64) for c in (SIGN, RUNG))
        n = read_integers(table.column(RUNG_ROWS)).astype(np.int64)
        sums = [
            read_integers(table.column(c))
            for c in (RUNG_TOTAL, RUNG_SQUARES)[: 1 + (self.kind not in _NOISY)]
        ]
        bounds = []
        for side, ladder in zip((-1, 1), self.ladders, strict=True):
            if ladder is None:
                bounds.append(Fraction(0))
                continue
            counts = np.zeros(ladder.top, dtype=np.int64)
            place = np.clip(rung, ladder.lowest, ladder.highest) - ladder.lowest
            np.add.at(counts, place, np.where(sign == side, n, 0))
            bounds.append(ladder.bound(ladder.climb(counts, entropy)))
        low, high = -bounds[0], bounds[1]
        if low == high:
            return self._unanswered(len(groups))
        by_group = index_groups(table, self.keys)
        exact: list[list[Fraction]] = [[] for _ in sums]
        counted = []
        for group in groups:
            rows = by_group.get(group, np.zeros(0, dtype=np.intp))
            for power, (held, of) in enumerate(zip(exact, sums, strict=True), 1):
                held.append(self._clipped(sign[rows], rung[rows], n[rows], of[rows], low, high, power))
            counted.append(int(n[rows].sum()))
        columns = self._shown(exact[0], counted, low, high, entropy, exact[-1])
        ends = f"[{float(low):g}, {float(high):g}]"
        note = f"{self.name}: values were clipped to {ends}, bounds found privately"
        return Answered(columns, self.event, (note,))

    def _unanswered(self, groups: int) -> Answered:
        """Answer NULL for every group: neither sign got a bound above 0, and no more is revealed."""
        note = (
            f"{self.name} is NULL: no bounds were found, because too few rows lie beyond 0 "
            f"(AUTO needs {self._rows} of one sign here); a larger epsilon needs fewer, and bounds that are given need none"
        )
        empty = pa.nulls(groups, pa.float64())
        return Answered(Estimate(empty, empty, empty).columns(self.name), self.event, (note,))

    @property
    def _rows(self) -> str:
        """The rows that AUTO needs, in words."""
        if not self.needed:
            return "some rows"
        return f"about {' or '.join(map(str, self.needed))} row{'s' if self.needed[-1] > 1 else ''}"

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
        squares: Sequence[Fraction] = (),
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
            noisy[self.count] = self.count.noise.add(to_integers(counted), entropy)
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
            f"by ABOVE_THRESHOLD (ε={float(self.epsilon / 3):g}).",
            f"{self.name}: AUTO needs {self._rows} of a sign beyond a bound to go past it, with 95% probability: so "
            f"many may be clipped, and where neither sign has so many beyond 0 the answer is NULL.",
            f"{self.name}: a bound more than 4 times the largest value that occurs has a chance of at most "
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
        chance = sum((ladder.false_rung for ladder in self.ladders if ladder is not None), Fraction(0))
        if not chance:
            return "0"
        digits = -math.floor(math.log10(chance)) + 1
        return f"{math.ceil(chance * 10**digits) / 10**digits:.2g}"
