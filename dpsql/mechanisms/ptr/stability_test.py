"""Propose, test, release: an answer is released only if the table is far from one with another answer.

A :class:`Stable` operator measures, for each of its items, the exact answer and its radius (``stability_radius.py``),
tests the radius privately, and releases the answer if the test passes: exactly, or with the noise that the proposal
allows. A failed test is NULL. Both outcomes are charged in full.

Guarantee of one item (ADD_REMOVE; radii are 1-Lipschitz and 0 wherever a neighbour's answer is farther away than
proposed): a pair of neighbours is *near*, if the answers agree up to the proposal, and only the test's decision and the
noise distinguish them; or it is *far*, and both radii are 0, so that each passes with probability at most delta. So one
pair costs the near loss or delta, never both: (epsilon_test + epsilon_release, delta), with delta as a maximum over
pairs and not as a failure inside a composition.

Sources: Dwork and Lei (2009); Dwork and Roth (2014) algorithms 12 and 13, with the thresholds repaired; the optimal
test's probabilities are those of Desfontaines, Voss, Gipson and Mandayam (2022) for partition selection.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dpsql.mechanisms.aggregation import Group, list_groups
from dpsql.mechanisms.base import ClaimedText, Operator, PublicClaim, Read, Release, RowsClaim
from dpsql.mechanisms.per_group import GaussianNoise, GroupSelector, compute_keep_probabilities
from dpsql.mechanisms.ptr.stability_radius import convert_to_units
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_rounded_gaussian
from dpsql.numerics.interval_arithmetic import find_gaussian_threshold
from dpsql.privacy.events import Event, StableTest, compose_events
from dpsql.privacy.gaussian_events import GaussianTest

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
    def event(self) -> Event:
        """The charge for all groups of one unit."""

    @property
    @abstractmethod
    def cap(self) -> int:
        """Larger radii need not be distinguished."""

    @abstractmethod
    def decide(self, radii: Sequence[int], entropy: Entropy) -> list[Decision]:
        """Return a decision for every radius."""

    def passes(self, radii: Sequence[int], entropy: Entropy) -> list[bool]:
        """Return whether each radius passes."""
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

    For radius 0, 1, 2, ... that is p(0) = delta and p(r) = min(e^epsilon p(r-1) + delta, 1 - e^-epsilon (1 - p(r-1) -
    delta), 1): the probabilities of keeping private groups, one unit later. Rounding costs power and no privacy.

    Args:
        epsilon: of the whole test; a unit in ``groups`` groups takes part in that many tests, with equal shares of
            epsilon and delta.
        slack: delta charged in addition, for failures outside the test.
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

    The noise is a rounded Gaussian on a grid of 1/1024 edit: round(radius + N) is post-processing of a Gaussian
    mechanism of sensitivity 1, hence exactly 1/sigma-GDP, and the threshold is rounded up. So the noisy distance may be
    released: near pairs pay for it, and far pairs have equal distances, 0.

    Args:
        sigma: standard deviation in edits.
        delta: of a far pair, per group.
        epsilon: the loss of a near pair in addition to delta, see :func:`make_stability_test`.
        slack: delta charged in addition, for failures outside the test.
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


STABILITY_TESTS = ("PURE", "GAUSSIAN", "AUTO")


def make_stability_test(
    kind: str, epsilon: Fraction, delta: Fraction, groups: int = 1, slack: Fraction = Fraction(0)
) -> StabilityTest:
    """Build a test that is (epsilon, delta)-DP over the groups of one unit.

    ``PURE`` keeps near pairs within epsilon and passes at the lead of proposition 7.2 in Dwork and Roth (2014), or
    sooner; ``GAUSSIAN`` is calibrated so that near pairs keep (epsilon, delta) (analytic calibration, as for noisy
    aggregates): it needs about twice the lead, and about a fifteenth of the rho. ``AUTO`` selects the one that passes
    sooner. ``slack`` is subtracted from delta, so that the charge stays (epsilon, delta).
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


class Measured(NamedTuple):
    """The measurements of an item in one group. Private: they stay inside the operator."""

    radius: int
    exact: Any


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
        """Yield every text it may read, with its claim."""
        claim = RowsClaim(self.rows, self.test.groups, keys, any_function=True)
        return [ClaimedText(text, claim) for text in self.queries(keys)]

    @abstractmethod
    def measure(
        self, read: Read, entropy: Entropy, keys: tuple[str, ...]
    ) -> tuple[pa.DataType, Mapping[Group, Measured]]:
        """Return exact answers with radii, clamped at ``test.cap``; groups without values may be missing."""

    def decide(self, measured: Sequence[Measured], entropy: Entropy) -> list[tuple[Any, Decision]]:
        """Return each group's answer, None if its test fails, and its decision."""
        decided = self.test.decide([m.radius for m in measured], entropy)
        return [(m.exact if d.passed else None, d) for m, d in zip(measured, decided, strict=True)]

    def publish(
        self, exact: Sequence[Any], type: pa.DataType, entropy: Entropy, confidence: float
    ) -> Mapping[str, pa.Array]:
        """Return columns for the groups in order; None (a failed test) stays NULL."""
        return {self.name: pa.array(exact, type)}

    @abstractmethod
    def sentences(self, confidence: float) -> tuple[str, ...]:
        """Describe proposal and test for EXPLAIN."""

    def _convert(self, radius: int, exact: Any) -> Measured:
        """Return the measurement with its radius in privacy units instead of rows."""
        return Measured(convert_to_units(radius, self.rows), exact)

    def _sentences(self, proposal: str) -> tuple[str, ...]:
        return (f"{self.name}: {proposal}; {self.test.sentence()}.",)


@dataclass(frozen=True)
class Stable(Operator):
    """``SELECT WITH PTR``: one or more items, for the whole table or for each public group.

    Args:
        keys: names of the grouping columns, in every item's values query too; () for one row.
        groups: the query of the public groups' ``keys``, in the order of the result. It must read public tables and
            literals only.

    Guarantee: the composition of the items' events. Groups are disjoint, so a unit takes part only in the tests of its
    own groups: the number each item's test and noise are calibrated to.
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
