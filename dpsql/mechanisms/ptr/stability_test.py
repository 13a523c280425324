"""Propose, test, release: an answer is released only if the table is far from one with another answer.

A :class:`Stable` operator measures, for each of its items, the exact answer and its radius, tests the radius privately, and
releases the answer if the test passes: exactly, or with the noise that the proposal allows. A failed test is NULL. Both
outcomes are charged in full.

The *radius* of a table x for a function g is the largest k such that g is constant on all tables within k edits of x. An edit
adds or removes one row. Every measuring function here returns that radius, or a lower bound that is 1-Lipschitz and 0 wherever
a neighbour's answer differs (or, with a proposal, is farther away than proposed). Domains are unbounded, which can only shorten
a distance.

Guarantee of one item: a pair of neighbours is *near*, if the answers agree up to the proposal, and only the test's decision
and the noise distinguish them, with radii that differ by at most 1; or it is *far*, and both radii are 0, so that each passes
with probability at most delta. So one pair costs the near loss or delta, never both: (epsilon_test + epsilon_release, delta),
with delta as a maximum over pairs and not as a failure inside a composition.

Sources: Dwork and Lei (2009); Dwork and Roth (2014) section 7.2, proposition 7.2, algorithms 12 and 13, with the thresholds
repaired; Smith and Thakurta (2013); the optimal test's probabilities are those of Desfontaines, Voss, Gipson and Mandayam
(2022) for partition selection. The tests check the formulas against exhaustive search.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.catalogue.option_names import ARGUMENT_NAMES
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Group, list_groups
from dpsql.mechanisms.base import ClaimedText, Operator, PublicClaim, Read, Release, RowsClaim
from dpsql.mechanisms.order_statistics import find_rank
from dpsql.mechanisms.per_group import GaussianNoise, GroupSelector, LaplaceNoise, compute_keep_probabilities
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_rounded_gaussian
from dpsql.numerics.interval_arithmetic import find_gaussian_threshold
from dpsql.privacy.events import Event, GaussianTest, StableTest, compose_events


def convert_to_units(radius: int, rows: int) -> int:
    """Convert a radius in rows to one in privacy units with at most ``rows`` rows each.

    Unit-level neighbours are at most m = ``rows`` row edits apart, so the row radius d moves by at most m, and floor(d / m) by at
    most 1. If one answers differently, a table within m row edits does, so d <= m - 1 and floor(d / m) = 0.
    """
    return radius // rows


def measure_quantile_radius(
    n: int, below: int, upto: int, probability: Fraction, cap: int | None = None
) -> int:
    """Measure the exact radius of the order statistic of rank ``ceil(p n)``, at most ``cap``.

    ``below`` values are smaller than the quantile, ``upto`` not larger. The value stays as long as its rank is in [below + 1,
    upto]. After k edits the target rank and the value's ranks move furthest if all k rows are added or all removed, on one side.
    The conditions are monotone in k, so bisection finds the largest k.
    """
    if n == 0 or not below < find_rank(n, probability) <= upto:
        return 0
    first, last = below + 1, upto

    def moves(k: int) -> bool:
        fewer, more = find_rank(n - k, probability), find_rank(n + k, probability)
        return min(fewer, more - k) < first or max(fewer + k, more) > last

    most = n - 1 if cap is None else min(n - 1, cap)
    return bisect_left(range(1, most + 1), True, key=moves)


def measure_mode_radius(top: int, second: int, second_larger: bool) -> int:
    """Measure the exact radius of the mode of ``top`` rows (0: no rows); the smallest value wins ties.

    ``second`` is the next largest count (of the smallest value among equals), 0 if there is no other value, and
    ``second_larger`` whether that value loses ties with the mode. A rival r needs ``top - count(r)`` edits to tie and one more if
    it loses ties; the runner-up by (count, value) is a cheapest rival. A smaller value not yet present needs ``top``.
    """
    if top == 0:
        return 0
    rivals = [top]
    if second:
        rivals.append(top - second + int(second_larger))
    return max(min(rivals) - 1, 0)


def measure_argmax_radius(top: int, second: int, bound: int) -> int:
    """Measure the radius of the group with the largest sum; the smallest key wins ties.

    ``top`` and ``second`` are the two largest sums (an absent group counts as 0), and one row moves the sum of its group by at
    most ``bound``. So the gap moves by at most ``bound`` per added or removed row, and the winner can't change before it is
    closed.
    """
    gap = top - max(second, 0)
    return max(-(-gap // bound) - 1, 0) if bound > 0 else 0


def measure_votes_radius(top: int, second: int, per_block: int = 1) -> int:
    """Measure the radius, in privacy units, of the winning vote; a unit changes at most ``per_block`` votes (J).

    A changed vote moves the gap by at most 2, so the winner is fixed for fewer than gap / (2 J) units: ``ceil((c1 - c2) / (2 J))
    - 1``, the book's distance rounded to an integer, which keeps it 1-Lipschitz. The relation is substitution of block results.
    """
    return max(-(-(top - second) // (2 * per_block)) - 1, 0)


def measure_gap_radius(
    n: int,
    first: int,
    values: Sequence[int] | NDArray[np.object_],
    bound: int,
    cap: int,
    probability: Fraction = Fraction(1, 2),
) -> int:
    """Measure the row edits, at most ``cap``, to a table whose quantile has local sensitivity above ``bound`` (ADD_REMOVE).

    Args:
        n: number of values.
        first: the rank of the first of ``values``.
        values: ascending, at least those within ``cap + 3`` of the quantile's rank (ranks outside 1..n may be left out).
        bound: in the units of ``values`` (integers, so the comparison is exact).
        probability: of the quantile, the value of rank r(n) = :func:`find_rank`.

    If a row is added or removed, the value of rank r(n) moves across one of two gaps, and in the worst case all the way: across
    the gap below if r(n + 1) = r(n) or r(n - 1) = r(n) - 1, across the gap above if r(n + 1) = r(n) + 1 or r(n - 1) = r(n).
    z(0) is minus infinity and z(n+1) infinity; a table of one row has a neighbour without an answer, and counts as bad.

    So the bad tables are those with a gap wider than ``bound`` that has s values on its left and m - s on its right, s being one
    of the :func:`_gap_places` of m. To make one out of x keep x(1..i) on the left and x(j..n) on the right with x(j) - x(i) >
    bound (x(0) and x(n+1) are infinite), remove the j-i-1 values between, and restore the balance with one edit for each row too
    many or too few on either side. Fewer do not suffice: in a bad table d edits away, let x(i) be the last value kept on the left
    and x(j) the first kept on the right; all between were removed, and each side has changed its number by the edits made there.
    For given i a larger j never helps, as each step removes one row more and restores at most one. The minimum is the distance
    to a set, hence 1-Lipschitz.
    """
    if n < 2:
        return 0
    last = first + len(values) - 1

    def at(position: int) -> int | None:
        return values[position - first] if 1 <= position <= n else None

    middle = find_rank(n, probability)
    best = cap = min(cap, n)  # the empty table is bad
    sizes, below, above = _list_gap_places(max(0, n - 2 * cap), n + cap, probability)
    low = max(0, middle - cap - 2)
    high = min(n, middle + cap + 1)
    low = low if first <= max(low, 1) else first
    j = low + 1
    for i in range(low, high + 1):
        j = max(j, i + 1)
        left = at(i)
        while left is not None and j <= min(n, last):
            right = at(j)
            if right is None or right - left > bound:
                break
            j += 1
        if left is None and j > i + 1:
            j = i + 1
        if j > last and j <= n:
            break  # the gap would take more than cap removals
        removed = j - i - 1
        if removed < best:
            right_side = n - j + 1
            edits = [np.abs(i - places) + np.abs(right_side - (sizes - places)) for places in (below, above)]
            best = min(best, removed + int(min(edits[0].min(), edits[1].min())))
    return max(best, 0)


def _gap_places(m: int, probability: Fraction) -> set[int]:
    """Return the possible numbers of values, of m, below a gap that the quantile may cross if a row is added or removed."""
    if m == 0:
        return {0}
    rank, more, fewer = (find_rank(size, probability) for size in (m, m + 1, m - 1))
    below = more == rank or (m > 1 and fewer == rank - 1)
    above = more == rank + 1 or fewer == rank
    return ({rank - 1} if below else set()) | ({rank} if above else set())


def _list_gap_places(
    least: int, most: int, probability: Fraction
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the sizes from ``least`` to ``most`` with the smallest and the largest of their gap places."""
    sizes = range(least, most + 1)
    places = [_gap_places(size, probability) for size in sizes]
    columns = (sizes, map(min, places), map(max, places))
    first, second, third = (np.array(list(column), dtype=np.int64) for column in columns)
    return first, second, third


class CountLevel(NamedTuple):
    """The values that occur equally often."""

    rows: int
    """The number of occurrences of each."""
    many: int
    """The number of these values."""
    low: int
    high: int
    """The smallest and the largest of them."""


def measure_jump_radius(levels: Sequence[CountLevel], bound: int, cap: int) -> int:
    """Measure the row edits to a table whose mode may jump farther than ``bound`` (ADD_REMOVE), up to ``cap``.

    ``levels`` are all counts that occur, each once; ``bound`` is in the units of the values (integers, so comparisons are exact).
    If a row is added or removed, only a value whose count is at most 1 below the largest can become the mode. So the mode can
    jump farther than ``bound`` only if, for some T >= 1, no count is above T and two values farther apart than that have T - 1 or
    more; absent values have 0, and are arbitrarily far away. The result is exactly the distance to the nearest such table: for
    given T and two values, the rows above T are removed, and the missing ones added. A distance to a set is 1-Lipschitz. (The
    direction of ties is ignored: the set may contain tables one edit from a bad one.)
    """
    levels = sorted(levels, reverse=True)
    if not levels:
        return 0
    top = levels[0].rows
    levels = [level for level in levels if level.rows >= top - 2 * cap - 2]
    # for each level the best other one with a value far enough away: the first, as they are sorted
    pairs = [
        (one.rows, other.rows)
        for i, one in enumerate(levels)
        if (other := next((o for o in levels[i:] if _lie_far(one, o, bound)), None)) is not None
    ]
    pairs.append((top, 0))  # an absent value
    best, removed, above = cap, 0, 0
    remaining = iter(levels)
    following = next(remaining, None)
    for most in range(top, 0, -1):
        removed += above
        if removed >= best:
            break
        best = min(best, removed + min(max(most - 1 - a, 0) + max(most - 1 - b, 0) for a, b in pairs))
        while following is not None and following.rows >= most:
            above += following.many
            following = next(remaining, None)
    return max(best, 0)


def _lie_far(one: CountLevel, other: CountLevel, bound: int) -> bool:
    """Return whether some value of one level is farther from some value of the other than the bound."""
    return max(one.high - other.low, other.high - one.low) > bound


NOT_STABLE = "not stable enough to release"

_FINE = 1 << 10  # steps per edit of the noisy distance


class Decision(NamedTuple):
    """The outcome of a test, which is public."""

    passed: bool
    distance: str | None = None
    """The noisy and the needed distance, if the test paid for the distance and not only for its comparison."""


class StabilityTest(ABC):
    """A private decision whether a radius is above 0."""

    groups: int
    """The most groups of one unit."""
    slack: Fraction
    """Delta charged in addition, for failures outside the test."""

    @property
    @abstractmethod
    def event(self) -> Event: ...

    @property
    @abstractmethod
    def cap(self) -> int:
        """Larger radii need not be distinguished."""

    @abstractmethod
    def decide(self, radii: Sequence[int], entropy: Entropy) -> list[Decision]:
        """Return a decision for every radius."""

    def passes(self, radii: Sequence[int], entropy: Entropy) -> list[bool]:
        return [decision.passed for decision in self.decide(radii, entropy)]

    @abstractmethod
    def needed(self, probability: float) -> int:
        """Return the radius from which the test passes with at least this probability."""

    @abstractmethod
    def sentence(self, far: str = "another answer", near: str = "the answer is not stable") -> str:
        """Describe the test for EXPLAIN: ``far`` is the target of the distance, ``near`` the meaning of a distance of 0."""

    def describe_proposal(self) -> str:
        """Describe a test of how far one unit can move an answer."""
        return self.sentence("data where one unit can move it further", "one unit can")

    def _leads(self, far: str) -> str:
        """Return the sentence on the required distance."""
        shown = ", ".join(f"{self.needed(p)} units ({p:.0%} of runs)" for p in (0.5, 0.95, 0.99))
        return f"from {shown} away from {far}"


@dataclass(frozen=True)
class OptimalTest(StabilityTest):
    """Passes with the largest probability that (epsilon, delta) allows, for every radius at once.

    That is p(0) = delta and p(r) = min(e^epsilon p(r-1) + delta, 1 - e^-epsilon (1 - p(r-1) - delta), 1): the probabilities of
    keeping private groups, one unit later. Rounding costs power and no privacy. ``epsilon`` and ``delta`` are of the whole test,
    in equal shares for the ``groups`` groups of a unit.
    """

    epsilon: Fraction
    delta: Fraction
    groups: int = 1
    slack: Fraction = Fraction(0)

    @property
    def share(self) -> GroupSelector:
        """One group's test: passing with radius r has the probability of keeping a group of r + 1 units."""
        return GroupSelector("radius", self.epsilon / self.groups, self.delta / self.groups)

    @property
    def event(self) -> Event:
        one = self.share
        return compose_events([StableTest(one.epsilon, one.delta + self.slack)] * self.groups)

    @property
    def cap(self) -> int:
        one = self.share
        table = compute_keep_probabilities(one.epsilon, one.delta)
        return len(table) - 2 if table is not None else one.threshold + math.ceil(64 / one.epsilon)

    def probability(self, radius: int) -> float:
        """Return the probability that the test passes."""
        return self.share.probability(min(max(radius, 0), self.cap) + 1)

    def decide(self, radii: Sequence[int], entropy: Entropy) -> list[Decision]:
        cap = self.cap
        held = np.array([min(max(r, 0), cap) + 1 for r in radii], dtype=np.int64)
        return [Decision(bool(kept)) for kept in self.share.keep(held, entropy)]

    def needed(self, probability: float) -> int:
        return bisect_left(range(self.cap), True, key=lambda r: self.probability(r) >= probability)

    def sentence(self, far: str = "another answer", near: str = "the answer is not stable") -> str:
        return (
            f"the test passes {self._leads(far)} (with certainty from {self.cap}), and with probability at most "
            f"{float(self.delta / self.groups):.3g} where {near}"
        )


@dataclass(frozen=True)
class ThresholdTest(StabilityTest):
    """Passes if radius plus Gaussian noise exceeds a threshold that noise alone exceeds with probability delta.

    On a grid of 1/1024 edit, round(radius + N) is post-processing of a Gaussian mechanism of sensitivity 1, hence exactly
    1/sigma-GDP, and the threshold is rounded up. So the noisy distance may be released: near pairs pay for it, and far pairs have
    equal distances, 0. ``sigma`` is in edits, ``delta`` that of a far pair and ``epsilon`` the loss of a near pair, per group.
    """

    sigma: Fraction
    delta: Fraction
    epsilon: Fraction
    groups: int = 1
    slack: Fraction = Fraction(0)

    @property
    def event(self) -> Event:
        one = GaussianTest(sigma=self.sigma, delta=self.delta + self.slack, declared_epsilon=self.epsilon)
        return compose_events([one] * self.groups)

    @property
    def threshold(self) -> int:
        """The threshold in steps of the fine grid, rounded up."""
        return find_gaussian_threshold(self.sigma * _FINE, self.delta)

    @property
    def cap(self) -> int:
        return math.ceil(Fraction(self.threshold, _FINE) + 9 * self.sigma)

    def decide(self, radii: Sequence[int], entropy: Entropy) -> list[Decision]:
        noise = draw_rounded_gaussian(self.sigma * _FINE, len(radii), entropy)
        noisy = [min(r, self.cap) * _FINE + int(z) for r, z in zip(radii, noise, strict=True)]
        needed = self.threshold / _FINE
        return [Decision(z > self.threshold, f"{z / _FINE:.3g} of {needed:.3g} needed") for z in noisy]

    def needed(self, probability: float) -> int:
        return math.ceil(self.threshold / _FINE + float(self.sigma) * NormalDist().inv_cdf(probability))

    def sentence(self, far: str = "another answer", near: str = "the answer is not stable") -> str:
        return (
            f"the test compares the noisy distance (Gaussian noise, σ = {float(self.sigma):.3g}) with "
            f"{self.threshold / _FINE:.3g}; it passes {self._leads(far)}, and with probability at most "
            f"{float(self.delta):.3g} where {near}"
        )


STABILITY_TESTS = tuple(word.upper() for row in ARGUMENT_NAMES if row.name == "test" for word in row.words)


def make_stability_test(
    kind: str, epsilon: Fraction, delta: Fraction, groups: int = 1, slack: Fraction = Fraction(0)
) -> StabilityTest:
    """Build a test that is (epsilon, delta)-DP over the groups of one unit, ``slack`` included.

    ``PURE`` keeps near pairs within epsilon and passes at the lead of proposition 7.2 in Dwork and Roth (2014), or sooner;
    ``GAUSSIAN`` is calibrated so that near pairs keep (epsilon, delta): it needs about twice the lead, and about a fifteenth of
    the rho. ``AUTO`` selects the one that passes sooner.
    """
    if not 0 <= slack < delta:
        raise ValueError("no delta is left for the test")
    if kind == "AUTO":
        tests = [make_stability_test(each, epsilon, delta, groups, slack) for each in ("PURE", "GAUSSIAN")]
        return min(tests, key=lambda test: test.needed(0.99))
    delta -= slack
    if kind == "PURE":
        return OptimalTest(epsilon, delta, groups, slack / groups)
    share = epsilon / groups, delta / groups
    sigma = GaussianNoise.calibrate(epsilon=share[0], delta=share[1], sensitivity=1, groups=1).sigma
    return ThresholdTest(sigma, share[1], share[0], groups, slack / groups)


def make_test_and_noise(
    kind: str, epsilon: Fraction, delta: Fraction, groups: int, sensitivity: int, tests: int = 1
) -> tuple[StabilityTest, LaplaceNoise | GaussianNoise]:
    """Build a test, which is run ``tests`` times, and noise of its kind; Laplace noise needs no delta.

    One test and the noise have half of epsilon each; two tests have three eighths each, and the noise a quarter.
    """
    share, rest = (epsilon / 2, epsilon / 2) if tests == 1 else (3 * epsilon / 8, epsilon / 4)
    if kind == "GAUSSIAN":
        part = delta / (tests + 1)
        noise = GaussianNoise.calibrate(rest, part, sensitivity, groups)
        return make_stability_test(kind, share, part, groups), noise
    return make_stability_test(kind, share, delta / tests, groups), LaplaceNoise(rest, sensitivity, groups)


Answer: TypeAlias = Any
"""An exact answer of an item, of a type of its own; None for no answer."""


class Measured(NamedTuple):
    """The measurements of an item in one group. Private: they stay inside the operator."""

    radius: int
    exact: Answer


UNMEASURED = Measured(0, None)


class StableItem(ABC):
    """One output column of a stable block: its measurement, and its release once the test has passed."""

    name: str
    values: str
    test: StabilityTest
    rows: int
    """The most rows of one unit in a group."""

    @property
    def event(self) -> Event:
        """The charge: the test, for an exact answer."""
        return self.test.event

    @property
    def largest_radius(self) -> int:
        """Larger radii in rows need not be distinguished."""
        return (self.test.cap + 1) * self.rows

    @abstractmethod
    def queries(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return the exact SQL, for EXPLAIN."""

    def claims(self, keys: tuple[str, ...]) -> Iterable[ClaimedText]:
        claim = RowsClaim(self.rows, self.test.groups, keys, any_function=True)
        return [ClaimedText(text, claim) for text in self.queries(keys)]

    @abstractmethod
    def measure(
        self, read: Read, entropy: Entropy, keys: tuple[str, ...]
    ) -> tuple[pa.DataType, Mapping[Group, Measured]]:
        """Return exact answers with radii, clamped at ``test.cap``; groups without values may be missing."""

    def decide(self, measured: Sequence[Measured], entropy: Entropy) -> list[tuple[Answer, Decision]]:
        """Return each group's answer, None if its test fails, and its decision."""
        decided = self.test.decide([m.radius for m in measured], entropy)
        return [(m.exact if d.passed else None, d) for m, d in zip(measured, decided, strict=True)]

    def publish(
        self, exact: Sequence[Answer], type: pa.DataType, entropy: Entropy, confidence: float
    ) -> Mapping[str, pa.Array]:
        """Return columns for the groups in order; None (a failed test) stays NULL."""
        return {self.name: pa.array(exact, type)}

    @abstractmethod
    def sentences(self, confidence: float) -> tuple[str, ...]: ...

    def _convert(self, radius: int, exact: Answer) -> Measured:
        """Return the measurement with its radius in privacy units instead of rows."""
        return Measured(convert_to_units(radius, self.rows), exact)

    def _sentences(self, proposal: str) -> tuple[str, ...]:
        return (f"{self.name}: {proposal}; {self.test.sentence()}.",)


@dataclass(frozen=True)
class Stable(Operator):
    """``SELECT WITH PTR``: one or more items, for the whole table or for each public group.

    ``groups`` is the query of the public groups' ``keys``, in the order of the result; it must read public tables and literals
    only. Guarantee: the composition of the items' events. Groups are disjoint, so a unit takes part only in the tests of its own
    groups: the number each item's test and noise are calibrated to.
    """

    items: tuple[StableItem, ...]
    keys: tuple[str, ...] = ()
    groups: str | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if bool(self.keys) != (self.groups is not None):
            raise ValueError("keys need a query of the public groups, and only keys do")

    @property
    def event(self) -> Event:
        return compose_events([item.event for item in self.items])

    @property
    def queries(self) -> tuple[str, ...]:
        texts = [text for item in self.items for text in item.queries(self.keys)]
        return tuple(dict.fromkeys([self.groups, *texts] if self.groups else texts))

    def claims(self) -> Iterator[ClaimedText]:
        if self.groups is not None:
            yield ClaimedText(self.groups, PublicClaim())
        for item in self.items:
            yield from item.claims(self.keys)

    def release(self, read: Read, entropy: Entropy) -> Release:
        columns: dict[str, pa.Array | pa.ChunkedArray] = {}
        names: list[Group] = [()]
        if self.groups is not None:
            groups = read(self.groups)
            names = list_groups(groups, self.keys)
            columns = {key: groups.column(key) for key in self.keys}
        notes = []
        for item in self.items:
            type_, found = item.measure(read, entropy, self.keys)
            measured = [found.get(name, UNMEASURED) for name in names]
            decided = item.decide(measured, entropy)
            exact = [value for value, _ in decided]
            columns |= item.publish(exact, type_, entropy, self.confidence)
            missing = sum(value is None for value in exact)
            if missing and self.groups is None:
                distance = decided[0][1].distance
                shown = f" (noisy distance {distance})" if distance is not None else ""
                notes.append(f"{item.name}: {NOT_STABLE}{shown}")
            elif missing:
                notes.append(f"{item.name}: {missing} of {len(names)} groups are {NOT_STABLE}")
        return Release(pa.table(columns), self.event, tuple(notes))

    def sentences(self, confidence: float) -> tuple[str, ...]:
        said = [text for item in self.items for text in item.sentences(confidence)]
        charge = "A test that fails gives NULL, and is charged like one that passes."
        return (*said, charge)
