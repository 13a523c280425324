"""A threshold with Gaussian noise, candidates that are asked again, and gaps and answers of interactive thresholds."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_SCORE
from dpsql.mechanisms.queries import CANDIDATE_PLACE
from dpsql.mechanisms.selection.above_threshold import (
    AboveThreshold,
    InteractiveThreshold,
    Probe,
    ThresholdNoise,
    split_epsilon,
)
from dpsql.noise.entropy import Entropy
from dpsql.privacy import conversions
from dpsql.privacy.events import GaussianSparseVector, RoundedGaussian, SparseVector
from dpsql.privacy.pld import find_cost
from tests.support.goodness import REFUSED, fixed, p_value
from tests.support.operator_contract import OperatorContract
from tests.support.svt_law import Answers, neighbours, paths, probability

HALF, TINY = Fraction(1, 2), Fraction(1, 10**6)
SIGMA, B = 2.0, math.exp(-0.2)
"""The deviation of the threshold's noise, in sensitivities of one step; exp(-rate) of the statistics' noise."""
Z = np.arange(-40, 41)
_NORMAL = NormalDist()


def law(over: tuple[int, ...], answers: Answers, sigma: float = SIGMA, b: float = B) -> float:
    """The probability of these answers under rounded Gaussian noise of the threshold."""
    cumulated = np.array([_NORMAL.cdf((z + 0.5) / sigma) for z in range(Z[0] - 1, Z[-1] + 1)])
    out = np.diff(cumulated)
    for q, above in zip(over, answers, strict=False):
        survival = b ** np.maximum(0, Z - q)
        out = out * (survival if above else 1 - survival)
    return float(out.sum())


def profile(mu: float, x: float) -> float:
    """The hockey-stick divergence of the Gaussian mechanism, also below 0."""
    return _NORMAL.cdf(-x / mu + mu / 2) - math.exp(x) * _NORMAL.cdf(-x / mu - mu / 2)


def pairs(length: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Neighbours: all of a few statistics, and long runs of misses that end in a hit, which lose most."""
    found = [
        (over, other)
        for over in itertools.product(range(-1, 2), repeat=length)
        for other in neighbours(over, 1, monotone=False)
    ]
    runs = [((0,) * k + (-3,), (1,) * k + (-4,)) for k in (1, 5, 9)]
    return [*found, *runs, *((y, x) for x, y in runs)]


def laws(most: int) -> list[tuple[list[tuple[float, float, int]], int]]:
    """P, Q and the hits of every path, for every pair; and how many statistics there are."""
    found = []
    for x, y in pairs(2):
        all_paths = paths(len(x), most) if len(x) < 8 else iter([(False,) * (len(x) - 1) + (True,)])
        found.append(([(law(x, t), law(y, t), sum(t)) for t in all_paths], len(x)))
    return found


@pytest.mark.parametrize("most", [1, 2])
def test_no_neighbours_lose_more_than_is_charged(most: int) -> None:
    mu, each = 1 / SIGMA, 0.4  # a hit moves by two steps
    e2 = each * most
    event = GaussianSparseVector(Fraction(SIGMA), Fraction(e2), most, *(f := (Fraction(1), Fraction(1, 10))))
    assert float(f[1]) >= profile(mu, 1.0)
    for seen, length in laws(most):
        if length < 8:
            assert sum(p for p, _, _ in seen) == pytest.approx(1)
        for x in (0.0, 0.3, 0.8, 1.5):
            beyond = sum(max(0.0, p - math.exp(x) * q) for p, q, _ in seen)
            assert beyond <= profile(mu, x - e2) + 1e-12
            assert beyond <= profile(float(event.mu), x) + 1e-12
            by_path = sum(max(0.0, p - math.exp(x + h * each) * q) for p, q, h in seen)
            assert by_path <= profile(mu, x) + 1e-12
        if length < 8:
            for order in (1.01, 2, 8):
                divergence = math.log(sum(p**order * q ** (1 - order) for p, q, _ in seen)) / (order - 1)
                assert divergence <= float(event.renyi(Fraction(order))) + 1e-9
                assert divergence <= order * float(event.rho) + 1e-9


def test_controls_lose_more() -> None:
    """Noise of half the deviation that is charged, and a hit that is not paid. Each shows itself on one path."""
    mu, sharp = 1 / SIGMA, math.exp(-8)

    def moved(sigma: float) -> float:
        here, there = (law((q,), (False,), sigma, sharp) for q in (0, 1))
        return abs(here - there)

    assert moved(SIGMA) <= profile(mu, 0.0) < moved(SIGMA / 2)
    path = (False,) * 5 + (True,)
    p, q = (law(over, path, SIGMA, math.exp(-1.5)) for over in ((0,) * 5 + (0,), (1,) * 5 + (-1,)))
    assert p - math.exp(2 + 3) * q <= profile(mu, 2.0) < p - math.exp(2) * q


def test_what_a_gaussian_threshold_is_charged() -> None:
    noise = ThresholdNoise(3, HALF, Fraction(3, 4), 3, False, False).with_gaussian(TINY)
    event = noise.event()
    assert noise.sigma == conversions.gaussian_sigma(HALF, TINY)
    assert event.basic == (HALF + Fraction(3, 4), TINY)
    assert noise.event(1).basic == (HALF + Fraction(1, 4), TINY)
    assert (event.epsilon, event.pure) == (None, None)
    alone = RoundedGaussian(noise.sigma, 1, HALF, TINY)
    assert event.rho >= alone.rho + Fraction(3, 4)
    assert noise.event(1).in_full() == event
    rounds = ThresholdNoise(1, HALF, Fraction(3, 4), 3, False, True).with_gaussian(TINY)
    assert rounds.event(1).basic == ((HALF + Fraction(3, 4)) * Fraction(2, 3), TINY * Fraction(2, 3))
    assert rounds.event().basic == (HALF + Fraction(3, 4), TINY)
    with pytest.raises(ValueError, match="sigma is too small"):
        GaussianSparseVector(Fraction(1), HALF, 1, HALF, TINY)


def test_a_declared_plan_knows_its_loss() -> None:
    """Ten of them by their loss distribution: at least the Gaussians' share, and the sum of the rest."""
    event = ThresholdNoise(1, Fraction(1, 10), Fraction(1, 100), 1, False, False).with_gaussian(TINY).event()
    cost = find_cost([event] * 10, Fraction(1, 10**5))
    gaussians = find_cost([RoundedGaussian(event.sigma, 1, Fraction(1, 10), TINY)] * 10, Fraction(1, 10**5))
    assert gaussians + Fraction(1, 10) <= cost < gaussians + Fraction(11, 100)


def test_a_gaussian_level_follows_its_law() -> None:
    noise = ThresholdNoise(2, Fraction(3), Fraction(3), 1, False, False).with_gaussian(Fraction(1, 100))
    assert noise.sigma is not None
    entropy = fixed("gaussian level")
    drawn = np.array([noise.draw_threshold(entropy) for _ in range(3000)])
    deviation = float(noise.sigma) * 2

    def chance(z: int, wide: float = 1.0) -> float:
        return _NORMAL.cdf((z + 0.5) / deviation / wide) - _NORMAL.cdf((z - 0.5) / deviation / wide)

    assert p_value(drawn, chance) > REFUSED
    assert p_value(drawn, lambda z: chance(z, 1.3)) < REFUSED


@pytest.mark.parametrize("gaussian", [False, True])
def test_the_public_shift_makes_a_statistic_at_the_threshold_a_hit_half_the_time(gaussian: bool) -> None:
    shared = (1, Fraction(1, 20), Fraction(1, 20), 1, True, False)
    noise = ThresholdNoise(*shared).with_gaussian(Fraction(gaussian, 1000))
    entropy, operator = fixed(f"shift {gaussian}"), AboveThreshold(("q",), ("v",), 0, noise)
    hits = sum(operator.release(one_candidate, entropy).table.num_rows for _ in range(2000))
    assert abs(hits - 1000) < 6 * math.sqrt(500)


def one_candidate(text: str, lent: object = None) -> pa.Table:
    return pa.table({"v": [1], CANDIDATE_PLACE: [0], CANDIDATE_SCORE: [0]})


def many(text: str, lent: object = None) -> pa.Table:
    return pa.table({"v": range(40), CANDIDATE_PLACE: range(40), CANDIDATE_SCORE: [0] * 40})


def test_asking_again_finds_more_and_is_charged_alike() -> None:
    """Forty statistics at the threshold, forty hits allowed: what one pass misses a later one finds."""
    found = {}
    for passes in (1, 4):
        noise = ThresholdNoise(1, Fraction(2), Fraction(2), 40, True, asked_again=passes - 1)
        entropy, count = fixed(f"again {passes}"), 0
        for _ in range(60):
            release = AboveThreshold(("q",), ("v",), 0, noise).release(many, entropy)
            values = release.table.column("v").to_pylist()
            assert len(set(values)) == len(values), "no candidate is found twice"
            assert release.event == SparseVector(Fraction(2), Fraction(2), 40, len(values))
            count += len(values)
        found[passes] = count / 60
    assert found[4] > found[1] + 5


def test_asking_again_loses_no_more_than_once() -> None:
    """Exactly: a stream in which missed statistics come back is a stream, and misses stay free."""
    a, b = Fraction(3, 5), Fraction(2, 3)
    for over in itertools.product(range(-1, 2), repeat=2):
        for other in neighbours(over, 1, monotone=False):
            for first in paths(2, 2):
                hits = sum(first)
                left = [i for i, hit in enumerate(first) if not hit]
                for second in paths(len(left), 2 - hits) if left and hits < 2 else [()]:
                    again = tuple(left[: len(second)])
                    answers = (*first, *second)
                    p, q = (
                        probability(a, b, (*x[: len(first)], *(x[i] for i in again)), answers)
                        for x in (over, other)
                    )
                    assert p <= q / a / b ** (2 * sum(answers))


# -- interactive ---------------------------------------------------------------------------------------------------


def test_gaps_are_whole_steps_of_the_sensitivity() -> None:
    """Statistics that differ by less than the sensitivity are not told apart by the remainder of the gap."""
    gaps = {}
    for value in (700, 701, 702):
        entropy = fixed("gap")
        stream = InteractiveThreshold(HALF, HALF, 1, False, entropy)
        gaps[value] = stream.compare(value, 0, 3)
        assert isinstance(gaps[value], int)
    assert gaps[701] - gaps[700] in (341, 342)  # type: ignore[operator]
    assert gaps[702] - gaps[700] in (682, 683)  # type: ignore[operator]


def test_answers_are_paid_with_their_hits() -> None:
    stream = InteractiveThreshold(HALF, HALF, 2, False, Entropy(), answers=Fraction(1))
    assert stream.event == SparseVector(HALF, Fraction(3, 2), 2, 0)
    assert stream.ask(10**9, 0, 1)
    assert stream.event.basic == (HALF + Fraction(3, 4), 0)
    gaussian = InteractiveThreshold(HALF, HALF, 2, False, Entropy(), TINY, Fraction(1))
    assert isinstance(gaussian.event, GaussianSparseVector)
    assert gaussian.event.epsilon2 == Fraction(3, 2)


class TestProbe(OperatorContract):
    noise = split_epsilon(Fraction(40), 100, monotone=False)
    stream = InteractiveThreshold(*noise, 100, False, Entropy())
    operator = Probe(
        ("SELECT 1",), 3, 2, "alarm", SparseVector(*noise, 100),
        lambda value, threshold, moved: TestProbe.stream.compare(value, threshold, moved),
        Fraction(2), True, Fraction(1),
    )  # fmt: skip

    def exact(self, text: str) -> pa.Table:
        return pa.table({CANDIDATE_PLACE: [0], CANDIDATE_SCORE: [50]})

    def release(self, entropy: Entropy, empty: bool = False):  # type: ignore[no-untyped-def]
        """Ask a stream of the given entropy; a statistic always has one row."""
        type(self).stream = InteractiveThreshold(*self.noise, 100, False, entropy)
        return super().release(entropy)

    def test_a_miss_has_neither_gap_nor_answer(self) -> None:
        type(self).stream = InteractiveThreshold(*self.noise, 100, False, Entropy())
        low = pa.table({CANDIDATE_PLACE: [0], CANDIDATE_SCORE: [-(10**6)]})
        (row,) = self.operator.release(lambda text, lent=None: low, Entropy()).table.to_pylist()
        assert row.pop("above") is False
        assert set(row.values()) == {None}
        assert set(row) == {"gap", "answer", "answer__low", "answer__high"}
