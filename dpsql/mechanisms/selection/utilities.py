"""Utilities of candidates: their sensitivity to one row, and scores if the sensitivities are unequal.

Scores of the generalised exponential mechanism:

    s_r = min over r' of ((u_r - t D_r) - (u_r' - t D_r')) / (D_r + D_r')        (Raskhodnikova, Smith 2016)

If a unit moves each u_r by at most D_r, it moves every s_r by at most 1, for any public t: each quotient's numerator
moves by at most its denominator. So candidates that one unit hardly moves are distinguished with little noise, whatever
the others are like.

The minimum over all pairs is found in O(n log n): the r' that matter are the upper hull of the points (D_r', u_r' - t
D_r'), and a binary search along it finds the least for r.

Utilities need not be plain sums: they have absolute values, greatest and least of sums. The parts of a utility are sums over
rows, each times a public factor, and public numbers. Movements follow from those of the parts:

    sum        by the sum of the movements of its parts
    ABS        by as much as its argument, either way
    GREATEST   by no more than the part that rises most, and no less than the part that falls most; LEAST likewise
    multiple   by the factor times the movement

Movements are pairs: the greatest decrease and the greatest increase of a number by one more row. So the difference of
two counts moves by 1 and not by 2, and a utility without decreases is monotone.

Some statistics have no common row, whatever the candidate: ``x < c.v`` and ``x >= c.v``. A row then moves only the
statistics of a set without such a pair, and the movement is the greatest over these sets.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial, reduce
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import ScoresClaim
from dpsql.noise.selection import FEW_CANDIDATES, CandidateGaps, compute_reach, measure_gaps
from dpsql.numerics.exact_numbers import (
    SAFE,
    Integers,
    NumberArray,
    add_integers,
    find_largest,
    multiply_integers,
    to_integers,
)

Movement = tuple[int, int]
"""The lowest (at most 0) and the highest (at least 0) change of a number by one more row."""

MAX_SETS = 64
"""The most sets of statistics examined; if there are more, a row is assumed to move all statistics."""


@dataclass(frozen=True)
class Linear:
    """A sum of weighted statistics and of public numbers, by index."""

    terms: tuple[int, ...]
    bases: tuple[int, ...] = ()


@dataclass(frozen=True)
class Total:
    """A sum of forms."""

    parts: tuple[FormNode, ...]


@dataclass(frozen=True)
class Absolute:
    """The distance of a form from zero."""

    part: FormNode


@dataclass(frozen=True)
class Extreme:
    """The greatest of several forms, or the least."""

    parts: tuple[FormNode, ...]
    greatest: bool


@dataclass(frozen=True)
class Multiple:
    """A form times a public factor, by index."""

    factor: int
    part: FormNode


FormNode = Linear | Total | Absolute | Extreme | Multiple


def parts_of(form: FormNode) -> tuple[FormNode, ...]:
    """Return the parts of a form."""
    match form:
        case Linear():
            return ()
        case Absolute(part) | Multiple(_, part):
            return (part,)
        case Total(parts) | Extreme(parts):
            return parts


@dataclass(frozen=True)
class UtilityForm:
    """A utility over its parts.

    Args:
        moves: each statistic's movement, without its factor.
        most: the greatest move of any candidate's utility by one row.
        clipped: whether some statistics clamp values to a candidate's limit.
    """

    root: FormNode
    moves: tuple[Movement, ...]
    apart: tuple[tuple[int, int], ...] = ()
    most: int = 1
    rows: int = 1
    clipped: bool = False

    @property
    def linear(self) -> bool:
        return isinstance(self.root, Linear)

    def claim(self, plain: ScoresClaim) -> ScoresClaim:
        """Return a claim about scores that includes their form."""
        return replace(plain, rows=self.rows, moves=self.moves, apart=self.apart, clipped=self.clipped)

    def evaluate(
        self,
        terms: Sequence[Integers | int],
        bases: Sequence[Integers | int],
        factors: Sequence[Integers | int],
    ) -> Integers | int:
        """Compute the utility of every candidate, exactly; one number if all are equal."""

        def value(form: FormNode) -> Integers | int:
            match form:
                case Linear():
                    return _sum([*(terms[i] for i in form.terms), *(bases[i] for i in form.bases)])
                case Total(parts):
                    return _sum(list(map(value, parts)))
                case Absolute(part):
                    return np.abs(_array(value(part)))
                case Extreme(parts, greatest):
                    return reduce(np.maximum if greatest else np.minimum, map(_array, map(value, parts)))
                case Multiple(factor, part):
                    made: Integers | int = multiply_integers(factors[factor], value(part))
                    return made

        found = value(self.root)
        return found if isinstance(found, int) or len(found) != 1 else int(found[0])

    def bound_own(self, terms: Sequence[Integers | int], factors: Sequence[Integers | int]) -> Integers:
        """Return each candidate's sensitivity to one row, given those of its weighted statistics."""

        def size(form: FormNode) -> Integers:
            match form:
                case Linear():
                    return _array(_sum([np.abs(_array(terms[i])) for i in form.terms]))
                case Total(parts):
                    return _array(_sum(list(map(size, parts))))
                case Absolute(part):
                    return size(part)
                case Extreme(parts):
                    return reduce(np.maximum, map(size, parts))
                case Multiple(factor, part):
                    return _array(multiply_integers(np.abs(_array(factors[factor])), size(part)))

        return np.minimum(np.maximum(size(self.root), 1), _array(self.most))


def _array(value: Integers | int) -> Integers:
    return to_integers([value]) if isinstance(value, int) else value


def _sum(values: Sequence[Integers | int]) -> Integers | int:
    made: Integers | int = reduce(add_integers, values, 0)
    return made


# -- movements --------------------------------------------------------------------------------------------------------


def compute_movement(
    root: FormNode,
    terms: Sequence[Movement],
    factors: Sequence[tuple[int, int]],
    apart: Sequence[tuple[int, int]] = (),
) -> Movement:
    """Compute the movement of a utility by one more row.

    ``factors``: the ranges of the factors of multiples; ``apart``: pairs of statistics without common rows.

    >>> difference = Linear((0, 1))
    >>> compute_movement(difference, [(0, 1), (-1, 0)], [])
    (-1, 1)
    >>> both = Total((Absolute(Linear((0,))), Absolute(Linear((1,)))))
    >>> compute_movement(both, [(0, 1), (0, 1)], []), compute_movement(both, [(0, 1), (0, 1)], [], [(0, 1)])
    ((-2, 2), (-1, 1))
    """
    found = [_move(root, terms, factors, kept) for kept in find_sets(len(terms), apart)]
    return min(low for low, _ in found), max(high for _, high in found)


def _move(
    form: FormNode, terms: Sequence[Movement], factors: Sequence[tuple[int, int]], kept: frozenset[int]
) -> Movement:
    inner = [_move(part, terms, factors, kept) for part in parts_of(form)]
    lows, highs = [low for low, _ in inner], [high for _, high in inner]
    match form:
        case Linear():
            moved = [terms[i] for i in form.terms if i in kept]
            return sum(low for low, _ in moved), sum(high for _, high in moved)
        case Total():
            return sum(lows), sum(highs)
        case Absolute():
            most = max(-lows[0], highs[0])
            return -most, most
        case Extreme():
            return min(lows), max(highs)
        case Multiple(factor):
            ends = [f * v for f in factors[factor] for v in inner[0]]
            return min(ends), max(ends)


def find_sets(count: int, apart: Sequence[tuple[int, int]]) -> Iterator[frozenset[int]]:
    """Yield sets of statistics that one row may count in; every such set is part of one of them.

    >>> sorted(map(sorted, find_sets(3, [(0, 1)])))
    [[0, 2], [1, 2]]
    >>> list(map(sorted, find_sets(2, [])))
    [[0, 1]]
    """
    every = frozenset(range(count))
    sets = {every}
    for pair in apart:
        sets = {left - {gone} for left in sets for gone in (pair if left.issuperset(pair) else (-1,))}
        if len(sets) > MAX_SETS:
            yield every
            return
    for one, other in combinations(sorted(sets, key=len), 2):
        if one < other:
            sets.discard(one)
    yield from sets


SCORE_GRID = 1 << 16
"""The steps of a score of 1."""

SCORE_SENSITIVITY = SCORE_GRID + 1
"""The sensitivity of a score in steps: SCORE_GRID, and one for the rounding of the quotients.

Two scores at most GRID apart, each computed to within half a step and rounded down, are at most GRID + 1 apart. The
quotients are of exact integer differences, in doubles: their error is below 2**-49 of their size, which is clamped to
at most 2**24 units, or 2**40 steps.
"""

_FLOOR = -float(1 << 24)
_PASSES = 60
_WHOLE = 1 << 53
_BLOCK = 1 << 14  # candidates per pass: fits the cache of one core


def compute_generalised_scores(utilities: Integers, sensitivities: Integers, t: int) -> NDArray[np.int64]:
    """Compute the scores in steps of ``1 / SCORE_GRID``: int64, at most 0, of sensitivity :data:`SCORE_SENSITIVITY`.

    ``sensitivities`` and ``t`` must be public, equal for neighbouring data. A sensitivity of 0 counts as 1 step.
    """
    sensitivities = np.maximum(sensitivities, 1)
    most = find_largest(utilities) + t * int(sensitivities.max())
    narrow = most < 1 << 61 and utilities.dtype != object and sensitivities.dtype != object
    wide = np.int64 if narrow else object
    own = sensitivities.astype(wide)
    ahead = utilities.astype(wide) - own * t
    x, y = _hull(own, ahead)
    top = int(ahead.max())
    if max(top - int(ahead.min()), int(own.max())) < _WHOLE:  # then doubles are exact for these integers
        ahead, y = (ahead - top).astype(np.float64), (y - top).astype(np.float64)
        own, x = own.astype(np.float64), x.astype(np.float64)
    hull = _Hull(x, y)
    out = np.empty(len(own), dtype=np.int64)
    for start in range(0, len(own), _BLOCK):
        part = slice(start, start + _BLOCK)
        out[part] = np.floor(np.maximum(hull.least(ahead[part], own[part]), _FLOOR) * SCORE_GRID)
    return out


def compute_generalised_gaps(
    utilities: Integers, sensitivities: Integers, t: int, rate: Fraction
) -> CandidateGaps:
    """Compute the gaps of candidates by their scores; those far below the best are only counted.

    The best is b, the candidate farthest ahead (a_r = u_r - t D_r is largest): its score is 0. A candidate's score is at most
    that against b alone, so one with a_b - a_r > c (D_r + D_b) is more than c below. And no far candidate attains a near one's
    minimum: r scores at least -c against b, so s gives less only if a_b - a_s <= c (D_b - D_s), and then s is near. So the hull
    of the near ones suffices for their scores.
    """
    c = compute_spread(rate)
    if c is None or len(utilities) < FEW_CANDIDATES:
        gaps = measure_gaps(compute_generalised_scores(utilities, sensitivities, t))
        return CandidateGaps(len(utilities), gaps)
    nearness, own = UnequalNearness(rate, t, c), np.maximum(sensitivities, 1)
    near, gaps, reach = nearness.measure(utilities, own)
    all_gaps = cache(partial(nearness.measure_all, utilities, own))
    return CandidateGaps(len(utilities), gaps, near, reach, lambda i: int(all_gaps()[i]))


def compute_spread(rate: Fraction) -> int | None:
    """Compute the c of :func:`compute_generalised_gaps`, in whole scores; None: too many for doubles."""
    c = compute_reach(rate) // SCORE_GRID + 2
    return c if c < 1 << 20 else None


def find_near(utilities: Integers, own: Integers, t: int, c: int) -> NDArray[np.intp]:
    """Find the candidates without ``a_b - a_r > c (D_r + D_b)``, including b."""
    ahead = utilities - own * t
    best = int(ahead.argmax())
    ahead += own * c
    return np.flatnonzero(ahead >= int(ahead[best]) - 2 * c * int(own[best]))


class _Hull:
    """The candidates that the others are compared with, and the descending slopes from each to the next."""

    def __init__(self, x: NumberArray, y: NumberArray) -> None:
        self.last = len(x) - 1
        self.powers = [1 << k for k in reversed(range(self.last.bit_length()))]
        padding = (1 << self.last.bit_length()) - len(x)
        slopes = _ratio(y[1:] - y[:-1], x[1:] - x[:-1])
        self.x, self.y = np.append(x, [x[-1]] * padding), np.append(y, [y[-1]] * padding)
        self.slopes = np.append(slopes, [-np.inf] * (padding + 1))

    def least(self, ahead: NumberArray, own: NumberArray) -> NDArray[np.float64]:
        """Find the least quotient of each candidate.

        Along the hull, the quotient of r decreases while the hull is steeper than the line from r's mirror image, and
        increases after that: bisection finds the minimum, up to rounding.
        """
        place = np.zeros(len(own), dtype=np.int64)
        for power in self.powers:
            here = place + (power - 1)
            steep = self.slopes.take(here) * (self.x.take(here) + own) >= self.y.take(here) - ahead
            place += power * steep
        np.minimum(place, self.last, out=place)
        score = self._quotient(ahead, own, place)
        for step in (-1, 1):  # walk on while it decreases: rarely a step, never many
            left = np.arange(len(own))
            while len(left):
                near = np.clip(place[left] + step, 0, self.last)
                found = self._quotient(ahead[left], own[left], near)
                better = found < score[left]
                left, near = left[better], near[better]
                score[left], place[left] = found[better], near
        return score

    def _quotient(
        self, ahead: NumberArray, own: NumberArray, place: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        return _ratio(ahead - self.y.take(place), own + self.x.take(place))


def _ratio(numerator: NumberArray, denominator: NumberArray) -> NDArray[np.float64]:
    return np.asarray(numerator.astype(np.float64, copy=False) / denominator.astype(np.float64, copy=False))


def _hull(x: Integers, y: Integers) -> tuple[Integers, Integers]:
    """Find the rising part of the upper hull of the points, by ascending x."""
    if len(x) > 1 and not bool((x[1:] >= x[:-1]).all()):
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
    best = np.maximum.accumulate(y)
    record = np.ones(len(y), dtype=bool)
    record[1:] = y[1:] > best[:-1]
    x, y = x[record], y[record]
    last = np.ones(len(x), dtype=bool)
    last[:-1] = x[1:] != x[:-1]  # of equal x the last record is the highest
    x, y = x[last], y[last]
    for _ in range(_PASSES):
        if len(x) < 3:
            return x, y
        rise, run = y[1:] - y[:-1], x[1:] - x[:-1]
        slope = _ratio(rise, run)
        # A point below the line between any two others is not on the hull, so all that certainly are can be removed at once.
        under = slope[:-1] < slope[1:] * (1 - 2.0**-48)
        if not bool(under.any()):
            break
        keep = np.ones(len(x), dtype=bool)
        keep[1:-1] = ~under
        x, y = x[keep], y[keep]
    else:
        return _walked(x, y)
    return x, y


def _walked(x: Integers, y: Integers) -> tuple[Integers, Integers]:
    """Find the hull of the points left after many passes, one by one (Andrew's walk), in exact integers."""
    kept: list[tuple[int, int]] = []
    for px, py in zip(x.tolist(), y.tolist(), strict=True):
        while len(kept) > 1:
            (ax, ay), (bx, by) = kept[-2], kept[-1]
            if (by - ay) * (px - bx) > (py - by) * (bx - ax):
                break
            kept.pop()
        kept.append((px, py))
    return to_integers([a for a, _ in kept]), to_integers([b for _, b in kept])


# -- nearness ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChoiceRates:
    """The rates of a choice's log-weights.

    Args:
        equal: of a step of utility, if all candidates have one sensitivity.
        unequal: of a step of the generalised mechanism's scores.
        margin: the margin of that mechanism, by the number of candidates.
    """

    equal: Fraction
    unequal: Fraction
    margin: Callable[[int], int]


@dataclass(frozen=True)
class GroupBounds:
    """Bounds on the utilities and sensitivities of groups of candidates, and the groups' sizes."""

    low: Integers
    high: Integers
    least: Integers
    most: Integers
    sizes: NDArray[np.intp]

    def bound_nth_best(self, n: int) -> int:
        """Return a utility that at least ``n`` candidates reach."""
        if n == 1:
            return int(self.low.max())
        order = np.argsort(-self.low, kind="stable")
        return int(self.low[order[np.searchsorted(np.cumsum(self.sizes[order]), n)]])


@dataclass(frozen=True)
class Nearness(ABC):
    """A rule for the candidates near the best, those with a relevant probability."""

    rate: Fraction

    @property
    def reach(self) -> int:
        """The greatest distance of a near candidate below the best, if one is chosen."""
        return compute_reach(self.rate)

    @abstractmethod
    def may_hold(self, bounds: GroupBounds) -> NDArray[np.bool_]:
        """Return which groups may contain near candidates."""

    @abstractmethod
    def measure(self, utilities: Integers, own: Integers | None) -> tuple[NDArray[np.intp], Integers, int]:
        """Return the near candidates, the best among them, each one's distance below it, and a lower bound on the others'."""

    @abstractmethod
    def measure_all(self, utilities: Integers, own: Integers | None) -> Integers:
        """Return the distances of all candidates below the best."""


@dataclass(frozen=True)
class EqualNearness(Nearness):
    """Nearness by utilities: at most ``reach`` below the best that is left when ``top - 1`` are chosen."""

    top: int = 1

    def may_hold(self, bounds: GroupBounds) -> NDArray[np.bool_]:
        return np.asarray(bounds.high >= bounds.bound_nth_best(self.top) - self.reach)

    def measure(self, utilities: Integers, own: Integers | None) -> tuple[NDArray[np.intp], Integers, int]:
        best, size = int(utilities.max()), len(utilities)
        last = best if self.top == 1 else int(np.partition(utilities, size - self.top)[size - self.top])
        near = np.flatnonzero(utilities >= last - self.reach)
        return near, to_integers(best - utilities[near]), self.reach + best - last

    def measure_all(self, utilities: Integers, own: Integers | None) -> Integers:
        return np.asarray(int(utilities.max()) - utilities)


@dataclass(frozen=True)
class UnequalNearness(Nearness):
    """Nearness by the generalised scores: ``a_b - a_r <= c (D_r + D_b)``, as :func:`compute_generalised_gaps` proves.

    ``a_r = u_r - t D_r`` is at most its upper bound, and b, the one farthest ahead, is in a group whose upper bound
    reaches the greatest lower bound A. So ``a_b - c D_b >= A - c max D_b``, over such groups.
    """

    t: int
    c: int

    def may_hold(self, bounds: GroupBounds) -> NDArray[np.bool_]:
        ahead = int(add_integers(bounds.low, multiply_integers(bounds.most, -self.t)).max())
        upper = add_integers(bounds.high, multiply_integers(bounds.least, -self.t))
        own = int(bounds.most[upper >= ahead].max())
        return np.asarray(add_integers(upper, multiply_integers(bounds.most, self.c)) >= ahead - self.c * own)

    def measure(self, utilities: Integers, own: Integers | None) -> tuple[NDArray[np.intp], Integers, int]:
        assert own is not None
        if find_largest(utilities) + 2 * (abs(self.t) + self.c) * find_largest(own) >= SAFE:
            utilities, own = utilities.astype(object), own.astype(object)
        near = find_near(utilities, own, self.t, self.c)
        gaps = measure_gaps(compute_generalised_scores(utilities[near], own[near], self.t))
        return near, gaps, self.reach

    def measure_all(self, utilities: Integers, own: Integers | None) -> Integers:
        assert own is not None
        return -compute_generalised_scores(utilities, own, self.t)
