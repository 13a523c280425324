"""Sums, means and variances whose clipping bounds are found privately, on a ladder of powers of two: ``AUTO``.

One histogram has the rows by sign and by rung (rung j has sizes above 2**(j-1), up to 2**j), with the exact sum of each
rung in steps of 2**(j - PLACES), and for a variance the sum of squares. It determines, exactly, how many rows are outside
any bound, and the sum clipped to any bound.

*The search.* :data:`SEARCH` of epsilon pays for discrete Laplace noise on the rungs of both signs, of one row of each unit,
chosen by a secret hash. So a unit moves one number by 1, and the noise doesn't grow with the caps. If a number of rows is
also released, it comes first and determines how many rows one row of the sample represents; otherwise the root of the caps
is used. The bounds are constants afterwards; bounds or none are charged alike.

*How far.* A bound may be at most three rungs above a rung that certainly has a row on it or on the three above: one, two or
four neighbouring numbers add up to more than noise alone reaches anywhere, except with a public probability ``doubt``
(:data:`ANYWHERE`, :data:`DECLARED`). So a bound of more than 8 times the largest value (rounded up to a power of two) has
at most that probability, whatever the data. A sign without such a rung may have bounds as large as the other sign's.

*Which.* Of these bounds, the pair with the least expected bias and noise is taken: cuts on the two sides offset each other
up to chance and model error. Too few rows are far out to show under noise. So the last visible rungs are continued by tails
of many forms, each weighted by its likelihood under the noisy numbers of these and later rungs. From rung to rung the
logarithm of the rows falls by a slope that bends by a constant (lognormal), by more each time (exponential, normal) or not
at all (powers), or the rows break off. A wrong guess costs error, never privacy.

Relation: ADD_REMOVE. Sensitivity: a unit with at most ``rows`` rows moves the rungs by at most ``rows`` in L1, over rungs
and signs together. Guarantee: pure epsilon, of the noisy numbers (charged as noise on one number if a unit has one row,
else as pure epsilon) and of exact discrete Laplace noise on the clipped total, for a mean on the count, and for a variance
on the squares about the middle of the bounds, which a row moves by at most the square of half their distance. Search and
release are one adaptive event. A total is rounded down to a grid of which the bound is a whole number of steps, which keeps
its sensitivity: if a <= b + k with k whole, floor(a) <= floor(b) + k. No float is compared with a bound: a difference of two
clipped float sums may move by more than the textbook's 1.

The caller must omit missing values, bound the rows of a unit over all groups (``rows * groups``), and clamp values to the
declared bounds, if any.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Answered, Group, Part, find_rows
from dpsql.mechanisms.base import ClaimedText, ErrorBasis, ExpectedError, Reader, RowsClaim
from dpsql.mechanisms.moments import Estimate, Mean, Output, Sum, Variance, read_errors
from dpsql.mechanisms.per_group import LaplaceNoise, Statistic
from dpsql.noise.entropy import Entropy
from dpsql.numerics import interval_arithmetic as ia
from dpsql.numerics.exact_numbers import Integers, floor_log2, read_integers, to_integers
from dpsql.privacy.events import Event, PureDP, compose_events

PLACES = 20
"""A size on rung j is a whole number of steps of 2**(j - PLACES): it keeps about six digits."""

BEYOND = 3
"""The rungs that a bound may be above a rung that certainly has a row."""
_WINDOWS = (1, 2, 4)
"""The numbers of neighbouring rungs whose rows are added up."""
_TILT = Fraction(9, 10)
"""The part of the noise's rate at which its sums are bounded (Chernoff)."""
_SEEN = 4
"""A number above this many scales of the noise is taken for rows."""
_STRAY = Fraction(1, 1000)
"""The chance that noise alone is taken for rows on a rung without a neighbouring rung that has rows."""
_AHEAD = 8
"""The number of rungs for which tails continue the visible ones."""
_BACK = 6
"""The number of last visible rungs that tails are fitted to."""
_BENDS = np.concatenate([[0.05], 0.1 * 1.3 ** np.arange(18)])
"""The additional falls of the logarithm of the rows from the last rung to the next."""
_GROWTHS = np.array([1, 1.5, 2, 2.5, 3, 4])
"""The factors from one bend to the next."""
_STRAIGHT = 0.7
"""The prior chance of a tail that does not bend."""
_BREAK = 0.05
"""The chance of no rows at all after the last visible rung."""
_MISFIT = 0.12
"""The likely error of the best tail on a rung, as a fraction of its rows."""
_ROUGH = 0.2
"""The likely error of a cut on visible rungs, as a fraction."""
_CERTAIN = 0.5
"""The least fraction of both sides' cuts that counts as bias, however even the sides look."""
_LEVELS, _BEFORE = np.array([-2, -1, 0, 1, 2]), np.array([-1.5, 0, 1.5])
"""Standard deviations by which the rows on the last rung, and on that before it, may differ from the noisy numbers."""
_STEEPEST = -8.0
"""The least logarithm of the ratio of a rung's rows to the previous rung's."""


def _list_bends() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the shapes of tails: the fall due to bending, forwards and backwards, and each shape's probability."""
    bends = np.append(0.0, np.repeat(_BENDS, len(_GROWTHS)))[:, None]
    growths = np.append(1.0, np.tile(_GROWTHS, len(_BENDS)))[:, None]
    forwards = bends * growths ** np.arange(_AHEAD)
    backwards = bends * growths ** -np.arange(1.0, _BACK - 1)
    others = (1 - _STRAIGHT) / (len(bends) - 1)
    chances = np.append(_STRAIGHT, np.full(len(bends) - 1, others))
    return forwards.cumsum(axis=1).cumsum(axis=1), backwards.cumsum(axis=1).cumsum(axis=1), chances


_FALLS, _RISES, _CHANCES = _list_bends()
_erf = np.vectorize(math.erf, otypes=[np.float64])


@functools.lru_cache(maxsize=256)
def find_threshold(scale: Fraction, window: int, doubt: Fraction) -> int:
    """Return a number that a sum of discrete Laplace noises reaches with probability at most ``doubt``, by Chernoff's bound.

    For one noise with ``p = exp(-1 / scale)``, E[exp(t X)] is ``(1 - p)**2 / ((1 - p e**t) (1 - p e**-t))``. One noise alone
    reaches k with probability ``p**k / (1 + p)``, which is below ``p**k``. ``window`` is the number of noises.
    """
    bits = 200 + 4 * (scale.numerator.bit_length() + scale.denominator.bit_length())
    one = ia.rational(Fraction(1), bits)
    missing = ia.log(ia.rational(1 / doubt, bits), bits)
    if window == 1:
        return max(1, math.ceil(ia.fraction(missing[1]) * scale))
    gap, near, far = (
        ia.subtract(one, ia.exp(ia.rational(-rate / scale, bits), bits), bits)
        for rate in (Fraction(1), 1 - _TILT, 1 + _TILT)
    )
    moment = ia.divide(ia.multiply(gap, gap, bits), ia.multiply(near, far, bits), bits)
    more = ia.fraction(ia.log(moment, bits)[1]) * window
    return max(1, math.ceil((ia.fraction(missing[1]) + more) * scale / _TILT))


def _find_middles(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean size of a rung's rows, as a fraction of its bound; rungs are the last axis.

    The density is ``exp(s u)`` at ``2**u`` times the lower end, u from 0 to 1, with s from the rows on the rung before: where
    rows fall off, most are near the lower end.
    """
    held = np.log(np.maximum(rows, 1e-9))
    s = np.clip(np.diff(held, prepend=held[..., :1]), _STEEPEST, -1e-6)
    tilted = s + math.log(2.0)
    tilted = np.where(np.abs(tilted) < 1e-6, 1e-6, tilted)
    return np.asarray(0.5 * (np.expm1(tilted) / tilted) / (np.expm1(s) / s))


def _weigh(seen: NDArray[np.float64], rows: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Return the log-likelihood of noisy numbers, given the expected rows, which vary by chance and by the tail's misfit."""
    spread = np.sqrt(scale**2 + rows / 2 + (_MISFIT * rows) ** 2 / 2)
    return np.asarray(-(np.abs(seen - rows) / spread + np.log(spread)).sum(axis=-1))


def _expect_size(mean: NDArray[np.float64], deviation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the expected absolute value of a normal number."""
    deviation = np.maximum(deviation, 1e-300)
    z = mean / deviation
    near = deviation * math.sqrt(2 / math.pi) * np.exp(-z * z / 2)
    return np.asarray(near + mean * _erf(z / math.sqrt(2)))


class _Cut(NamedTuple):
    """The amounts that bounds are expected to cut off, and their standard deviations."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]


@dataclass(frozen=True)
class Ladder:
    """The rungs ``lowest..highest`` (bounds ``2**j``) of one sign, and below them the bound 0.

    Args:
        doubt: the greatest probability of a bound more than 8 times the largest value.
        end: the declared bound, if any: the highest rung's bound, instead of its power of two.
    """

    lowest: int
    highest: int
    doubt: Fraction
    end: Fraction | None = None

    def __post_init__(self) -> None:
        if self.lowest > self.highest:
            raise ValueError("a ladder needs a rung")
        if not 0 < self.doubt < 1 or (
            self.end is not None and not 0 < self.end <= Fraction(2) ** self.highest
        ):
            raise ValueError("a ladder needs a doubt between 0 and 1, and an end on its highest rung")

    @property
    def top(self) -> int:
        """The place of the highest rung; 0 is the place of the bound 0."""
        return self.highest - self.lowest + 1

    def bound(self, place: int) -> Fraction:
        """Return the bound at a place; a declared end is rounded up to a step of its rung."""
        if place == 0:
            return Fraction(0)
        if place == self.top and self.end is not None:
            step = Fraction(2) ** (self.highest - PLACES)
            return math.ceil(self.end / step) * step
        return Fraction(2) ** (self.lowest + place - 1)

    def count(self, rung: NDArray[np.int64], n: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows on each rung; those outside the ends count on the outermost."""
        counts = np.zeros(self.top, dtype=np.int64)
        np.add.at(counts, np.clip(rung, self.lowest, self.highest) - self.lowest, n)
        return counts

    def list_thresholds(self, scale: Fraction) -> tuple[int, ...]:
        """Return the rows of one, two and four neighbouring rungs that prove a row there."""
        doubt = self.doubt / (self.top * len(_WINDOWS))
        return tuple(find_threshold(scale, window, doubt) for window in _WINDOWS)

    def find_certain(self, noisy: Sequence[int], scale: Fraction) -> int:
        """Return the place of the highest rung on or above which there certainly is a row; 0 if none."""
        thresholds = self.list_thresholds(scale)
        for place in range(self.top, 0, -1):
            for window, threshold in zip(_WINDOWS, thresholds, strict=True):
                if place - 1 + window <= self.top and sum(noisy[place - 1 : place - 1 + window]) >= threshold:
                    return place
        return 0


@dataclass(frozen=True)
class RungSearch:
    """The search for a bound of each sign.

    Args:
        ladders: of the negative and of the positive values; None if public bounds exclude such values.
        epsilon: of the noise on all numbers of rows.
        rows: of one privacy unit, over all groups.
        noise: the expected noise in all groups' sums together, as a multiple of the larger bound.
        width: whether it is a multiple of the distance of the bounds instead.
        squares: whether squares are added: the cuts and the noise are theirs.
    """

    ladders: tuple[Ladder | None, Ladder | None]
    epsilon: Fraction
    rows: int
    noise: Fraction
    width: bool = False
    squares: bool = False

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or self.rows < 1 or self.noise <= 0:
            raise ValueError("a search needs an epsilon and noise above 0, and at least one row")

    @property
    def _counts(self) -> LaplaceNoise:
        return LaplaceNoise(self.epsilon, self.rows)

    @property
    def event(self) -> Event:
        return self._counts.event if self.rows == 1 else PureDP(self.epsilon)

    @property
    def scale(self) -> Fraction:
        return self._counts.scale

    @property
    def needed(self) -> tuple[int, ...]:
        """The rows on one rung that give its sign a bound with 95 % confidence: one number, or one for each sign."""
        more = math.ceil(float(self.scale) * math.log(10))
        held = (ladder for ladder in self.ladders if ladder is not None)
        return tuple(sorted({ladder.list_thresholds(self.scale)[0] + more for ladder in held}))

    def find(self, counts: Sequence[NDArray[np.int64]], entropy: Entropy) -> tuple[Fraction, Fraction] | None:
        """Return the sizes of the lower and of the upper bound; None if no rung of either sign certainly has a row.

        ``counts`` are the rows of each sign's rungs; empty for a sign without a ladder.
        """
        return self.choose(self.draw(counts, entropy))

    def draw(self, counts: Sequence[NDArray[np.int64]], entropy: Entropy) -> list[list[int]]:
        """Return the noisy numbers of rows of each sign's rungs; the arguments are those of :meth:`find`."""
        first = len(counts[0])
        drawn = self._counts.add(to_integers([int(n) for c in counts for n in c]), entropy).tolist()
        return [drawn[:first], drawn[first:]]

    def choose(self, noisy: Sequence[Sequence[int]]) -> tuple[Fraction, Fraction] | None:
        """Choose the bounds from the noisy numbers alone."""
        certain = [
            0 if ladder is None else ladder.find_certain(numbers, self.scale)
            for ladder, numbers in zip(self.ladders, noisy, strict=True)
        ]
        if not any(certain):
            return None
        farthest = max(
            ladder.lowest + place
            for ladder, place in zip(self.ladders, certain, strict=True)
            if ladder is not None and place
        )
        bounds, cuts = [], []
        for ladder, numbers, place in zip(self.ladders, noisy, certain, strict=True):
            if ladder is None:
                bounds.append([Fraction(0)])
                cuts.append(_Cut(np.zeros(1), np.zeros(1)))
                continue
            reach = min(ladder.top, place + BEYOND if place else max(0, farthest - ladder.lowest))
            bounds.append([ladder.bound(i) for i in range(reach + 1)])
            cuts.append(self._expect_cut(ladder, numbers, place, bounds[-1]))
        below, above = (np.array([float(b) for b in side]) for side in bounds)
        size = below[:, None] + above[None, :] if self.width else np.maximum(below[:, None], above[None, :])
        noise = float(self.noise) * (size**2 if self.squares else size)
        bias = self._expect_bias(*cuts)
        error = bias + noise * np.exp(-np.divide(bias, noise, out=np.zeros_like(bias), where=noise > 0))
        error[0, 0] = math.inf  # without bounds there is no answer
        i, j = np.unravel_index(int(np.argmin(error)), error.shape)
        return bounds[0][i], bounds[1][j]

    def _expect_bias(self, below: _Cut, above: _Cut) -> NDArray[np.float64]:
        """Return the expected error of each pair of bounds: squares are lost on both sides, cuts of sums offset each other."""
        whole = below.mean[:, None] + above.mean[None, :]
        if self.squares:
            return whole
        mean = np.abs(below.mean[:, None] - above.mean[None, :])
        apart = _expect_size(mean, np.hypot(below.deviation[:, None], above.deviation[None, :]))
        return np.clip(apart, _CERTAIN * whole, whole)

    def _expect_cut(
        self, ladder: Ladder, noisy: Sequence[int], certain: int, bounds: Sequence[Fraction]
    ) -> _Cut:
        """Return the expected total cut of each bound, from the place 0 on."""
        reach, least = len(bounds) - 1, _SEEN * float(self.scale)
        ends = np.array([float(b) for b in bounds])
        rows = np.zeros(ladder.top + 1)  # by places
        far = max(least, find_threshold(self.scale, 1, _STRAY / ladder.top))
        rows[1 : reach + 1] = [n if n > far else 0 for n in noisy[:reach]]
        last = certain
        if certain:
            while last < reach and noisy[last] > least:
                last += 1
            rows[1 : last + 1] = [n if n > least else 0 for n in noisy[:last]]
        tops = np.exp2(ladder.lowest + np.arange(len(rows)) - 1.0)
        mean, squared = self._cut_off(rows, _find_middles(rows) * tops, ends)
        squared += (_ROUGH * mean) ** 2
        if not certain or last == ladder.top:
            return _Cut(mean, np.sqrt(squared))
        tails, weights = self._continue(noisy, last)
        tails = tails[:, : ladder.top - last]
        joined = np.concatenate([np.full((len(tails), 1), max(float(noisy[last - 1]), 1.0)), tails], axis=1)
        sizes = _find_middles(joined)[:, 1:] * tops[last + 1 : last + 1 + tails.shape[1]]
        means, squares = self._cut_off(tails, sizes, ends)
        beyond = weights @ means
        squared += weights @ (squares + (means - beyond) ** 2)
        return _Cut(mean + beyond, np.sqrt(squared))

    def _cut_off(
        self, rows: NDArray[np.float64], sizes: NDArray[np.float64], ends: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the cut at each end of this many rows of these sizes, and its squared deviation: rows vary by chance.

        A number of rows whose expectation is r is off by the root of r on average, or by 2 r if that is less.
        """
        over = np.maximum(sizes[..., None, :] - ends[:, None], 0)
        if self.squares:
            over = over * sizes[..., None, :]
        by_chance = np.minimum(rows, 4 * rows**2)[..., None, :]
        return (over * rows[..., None, :]).sum(axis=-1), (over**2 * by_chance).sum(axis=-1)

    def _continue(self, noisy: Sequence[int], last: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the rows on the rungs after the last visible one, for each possible tail, and the tails' probabilities."""
        scale = float(self.scale)
        past = np.array([float(noisy[i]) if i >= 0 else 0.0 for i in range(last - 1, last - 1 - _BACK, -1)])
        following = np.array(noisy[last : last + _AHEAD], dtype=float)
        here, before = (
            np.log(np.maximum(n + steps * math.sqrt(max(n, 1.0) + 2 * scale**2), 0.5))
            for n, steps in zip(past[:2], (_LEVELS, _BEFORE), strict=True)
        )
        here, before = here[:, None, None, None], before[None, :, None, None]
        slope, ahead = here - before, np.arange(1, _AHEAD + 1)
        rows = np.exp(np.clip(here + np.minimum(slope, 0) * ahead - _FALLS, -700, 700))
        back = before - slope * np.arange(1, _BACK - 1) - _RISES
        shape = (*rows.shape[:-1], 1)
        logs = [np.broadcast_to(here, shape), np.broadcast_to(before, shape), back]
        explained = _weigh(past, np.exp(np.clip(np.concatenate(logs, axis=-1), -50, 50)), scale) + np.log(
            _CHANCES
        )
        nothing = float(_weigh(following, np.zeros(len(following)), scale))
        more = _weigh(following, rows[..., : len(following)], scale) - nothing
        weights = np.exp(explained - explained.max())
        weights *= (1 - _BREAK) / weights.sum() * np.exp(np.minimum(more, 600))
        weights = np.append(weights, _BREAK)
        likely = weights > weights.max() * 1e-5
        weights = weights[likely] / weights[likely].sum()
        return np.append(rows.reshape(-1, _AHEAD), np.zeros((1, _AHEAD)), axis=0)[likely], weights


SIGN, RUNG, RUNG_ROWS, RUNG_TOTAL, RUNG_SQUARES = "sign", "rung", "n", "total", "squares"
"""Columns of the histogram: -1, 0 or 1; j; rows; the sum of their sizes in steps of ``2**(j - PLACES)``, and of its squares."""

_NOISY = {"sum": 1, "avg": 2}
_SPREAD = 3
"""The noisy numbers behind a variance; :data:`_NOISY` those of the others."""

BOUND_BITS = 30
"""A bound is 2**BOUND_BITS steps of the grid that the total is rounded to."""

ANYWHERE = Fraction(1, 10**9)
"""The greatest chance, per statement without declared bounds, of a bound more than 8 times the largest value."""

DECLARED = Fraction(1, 10**6)
"""This probability, per aggregate, within declared bounds."""

SHARED = 8
"""The least number of aggregates that share :data:`ANYWHERE`: so equal aggregates are equal in most statements."""

SEARCH = Fraction(3, 20)
"""The part of epsilon that the bounds get."""


_SAMPLED = "dpsql_sampled"
"""The column that distinguishes the sample's rungs (one row of each unit) from those of all rows."""


def _part_sample(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the histogram of all rows, and that of the sample from which bounds are found."""
    if _SAMPLED not in table.column_names:
        return table, table
    own = table.column(_SAMPLED)
    return table.filter(pc.invert(own)), table.filter(own)


def _read_rungs(table: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    sign, rung, n = (read_integers(table.column(c)).astype(np.int64) for c in (SIGN, RUNG, RUNG_ROWS))
    return sign, rung, n


def find_exponent(value: Fraction) -> int:
    """Find the least j with ``value <= 2**j``, for a value above 0.

    >>> [find_exponent(Fraction(v)) for v in (90, 64, 1)], find_exponent(Fraction(1, 3))
    ([7, 6, 0], -1)
    """
    j = floor_log2(value)
    return j + (value > Fraction(2) ** j)


@dataclass(frozen=True)
class AutoBounded(Part):
    """A sum, mean or variance with ``contribution_bounds_per_row => AUTO``: one pair of bounds for all groups.

    Args:
        query: returns the keys, :data:`SIGN`, :data:`RUNG` (at least ``lowest``), rows and total, and for a variance the
            squares; each row's size in steps is rounded and clamped to ``2**PLACES`` first, so no row is above its rung.
        epsilon: of all: :data:`SEARCH` of it for the bounds, the rest in equal parts for sum, count and squares, as needed.
        lowest, highest: the ladder's ends, as exponents of two.
        low, high: the declared bounds, if any: the query clamps values to them, and the ladders end there.
        beside: aggregates with AUTO in the statement, which share the probability of a bound far too wide (at least
            :data:`SHARED`).
        in_all: whether ``rows`` covers all groups together; then ``groups`` is 1.
        sample: returns the numbers of rows by sign and rung for one row of each unit; empty if a unit has no more.
    """

    query: str
    keys: tuple[str, ...]
    name: str
    kind: str
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
        """The ladders of the negative and of the positive values; None if the declared bounds exclude such values."""
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
        """Return the search for bounds that suit the noise of this many groups' totals together.

        ``rows_each``: the rows that one row of the sample represents; by default the root of the most possible.
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
        """The clipped total, or the total about the middle of the bounds, on a grid that depends on no bounds."""
        return Statistic(RUNG_TOTAL, self._noise)

    @property
    def count(self) -> Statistic:
        return Statistic(RUNG_ROWS, LaplaceNoise(self._share, self.rows, self.groups))

    @property
    def squares(self) -> Statistic:
        """The sum of squares about the middle of the bounds, whose sensitivity in steps is that of the total."""
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
        rows_of = list(find_rows(table, self.keys, groups))
        counted = [int(n[rows].sum()) for rows in rows_of]
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
        for rows in rows_of:
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
            f"{self.name} is NULL: no bounds were found (AUTO needs {self._rows} between one power of two and the next); "
            f"a larger epsilon needs fewer, and declared bounds need none"
        )
        empty = pa.nulls(groups, pa.float64())
        return Answered(Estimate(empty, empty, empty).columns(self.name), self.event, (note,))

    @property
    def _rows(self) -> str:
        """The number of rows that AUTO needs, in words; with one row of each unit, they are units."""
        what = "privacy unit" if self.sample else "row"
        if not self.needed:
            return f"some {what}s"
        return f"about {' or '.join(map(str, self.needed))} {what}{'s' if self.needed[-1] > 1 else ''}"

    def _clipped(
        self,
        sign: NDArray[np.int64],
        rung: NDArray[np.int64],
        n: NDArray[np.int64],
        total: NDArray[np.int64],
        low: Fraction,
        high: Fraction,
        power: int = 1,
    ) -> Fraction:
        """Return the exact sum of the values clamped to ``[low, high]``, or of their squares if ``power`` is 2."""
        out = Fraction(0)
        # Values are clamped to a declared end before they are counted, though its rung goes farther.
        below, above = (
            ladder is not None and ladder.end is not None and bound == ladder.bound(ladder.top)
            for ladder, bound in zip(self.ladders, (-low, high), strict=True)
        )
        for s, j, rows, steps in zip(sign.tolist(), rung.tolist(), n.tolist(), total.tolist(), strict=True):
            if s == 0 or not rows:
                continue
            bound = high if s > 0 else -low
            size = Fraction(2) ** max(j, self.lowest)
            # A rung's total can't exceed its largest size times its rows, even if the query returns more.
            inside = size <= bound or (above if s > 0 else below)
            most = min(size, bound) ** power * rows
            out += s**power * (min(int(steps) * (size / (1 << PLACES)) ** power, most) if inside else most)
        return out

    def _shown(
        self,
        exact: list[Fraction],
        counted: list[int],
        low: Fraction,
        high: Fraction,
        entropy: Entropy,
        squares: Sequence[Fraction] = (),
        many: Integers | None = None,
    ) -> dict[str, pa.Array]:
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
                moments = (self.squares, self.total, self.count)
                made = Variance(self.name, *moments, steps, centre, (low, high), self.kind, per_square)
            shown = made.show(noisy, self.confidence)
        return shown._replace(value=shown.value.cast(pa.float64())).columns(self.name)

    def errors(self, basis: ErrorBasis) -> Iterator[ExpectedError]:
        if basis.release is not None:
            yield from read_errors(basis.release, self.name, self._noise, self.confidence)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        about = "a sum about the middle of the bounds"
        what, times = {
            "sum": ("sum", "the larger bound"),
            "avg": (f"mean ({about}, over a count)", "half the distance of the bounds"),
        }.get(
            self.kind,
            (
                f"spread ({about}, one of squares about it, and a count)",
                "half the distance of the bounds, of the squares times half the distance squared, of the count times 1",
            ),
        )
        return (
            f"{self.name}: find clipping bounds among 0 and the powers of two {self._range}, "
            f"from noisy numbers of {'one row of each privacy unit' if self.sample else 'rows'} between them "
            f"(ε={float(self.epsilon * SEARCH):g}).",
            f"{self.name}: AUTO needs {self._rows} between one power of two and the next, with 95% probability: if neither "
            f"sign has that many, the answer is NULL. Fewer rows that are far larger than all others may all be clipped.",
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
        """The probability of a bound that is far too wide on either side, in two digits, rounded up."""
        chance = sum((ladder.doubt for ladder in self.ladders if ladder is not None), Fraction(0))
        if not chance:
            return "0"
        digits = -math.floor(math.log10(chance)) + 1
        return f"{math.ceil(chance * 10**digits) / 10**digits:.2g}"
