"""Gaussian noise of one calibration: its loss from exact probabilities and by other software, and what it is calibrated to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpsql.mechanisms.aggregation import Aggregation, Together
from dpsql.mechanisms.base import ErrorBasis
from dpsql.mechanisms.marginals import calibrate_together, find_pair
from dpsql.mechanisms.moments import Count, Sum
from dpsql.mechanisms.per_group import (
    GaussianNoise,
    GaussianNoiseByMu,
    JointGaussianNoise,
    LaplaceNoise,
    Statistic,
)
from dpsql.privacy.conversions import gaussian_mu
from dpsql.privacy.events import Event, JointGaussian, PureDP, RoundedGaussian, compose_events
from tests.support.goodness import REFUSED, fixed, gaussian_pmf, p_value
from tests.support.pmf import gaussian

ONE, TINY = Fraction(1), Fraction(1, 10**6)


def joint(
    epsilon: Fraction, delta: Fraction, reaches: Sequence[tuple[int, int]], shares: Sequence[int] = ()
) -> list[JointGaussianNoise]:
    """Noise of several numbers: by (sensitivity, groups) of each, and its weight."""
    weights = shares or [1] * len(reaches)
    return [
        JointGaussianNoise.calibrate_share(epsilon, delta, *reach, Fraction(weight, sum(weights)))
        for reach, weight in zip(reaches, weights, strict=True)
    ]


# -- calibration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "deviation", "alone"), [(1, 4.2247, 4.2247), (2, 5.97, 8.35), (4, 8.45, 16.6), (16, 16.9, 66.1)]
)
def test_the_figures_of_record(k: int, deviation: float, alone: float) -> None:
    """Figures at ε = 1, δ = 1e-6: what k counts have together, and what each had of (ε/k, δ/k)."""
    noises = joint(ONE, TINY, [(1, 1)] * k)
    assert [float(noise.sigma) for noise in noises] == pytest.approx([deviation] * k, rel=1e-3)
    assert float(GaussianNoise.calibrate(ONE / k, TINY / k, 1, 1).sigma) == pytest.approx(alone, rel=3e-3)
    assert compose_events(noise.event for noise in noises).basic == (ONE, TINY)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**6), Fraction(1, 10), ONE, Fraction(20)])
@pytest.mark.parametrize("delta", [Fraction(1, 100), TINY, Fraction(1, 10**20)])
@pytest.mark.parametrize("shares", [(1, 1), (1, 2, 3), (1, 1000), tuple(range(1, 30))])
def test_all_numbers_together_keep_the_pair_and_hardly_more(
    epsilon: Fraction, delta: Fraction, shares: tuple[int, ...]
) -> None:
    reaches = [((1, 1), (3, 2), (10**6, 5), (1 << 50, 1))[i % 4] for i in range(len(shares))]
    noises = joint(epsilon, delta, reaches, shares)
    event = compose_events(noise.event for noise in noises)
    assert isinstance(event, JointGaussian)
    assert event.basic == (epsilon, delta)
    assert float(event.mu) == pytest.approx(float(gaussian_mu(epsilon, delta)), rel=1e-8)
    for noise, weight in zip(noises, shares, strict=True):  # proportional to what one unit moves each by
        alone = GaussianNoise.calibrate(epsilon, delta, noise.sensitivity, noise.groups)
        assert float(noise.sigma / alone.sigma) == pytest.approx(math.sqrt(sum(shares) / weight), rel=1e-8)
    less = [(noise.sigma * Fraction(9, 10), noise.groups * noise.sensitivity**2) for noise in noises]
    with pytest.raises(ValueError, match="noise too small"):
        JointGaussian(*zip(*less, strict=True), epsilon, delta)  # type: ignore[arg-type]


def test_no_split_of_the_pair_is_better() -> None:
    """Joint noise is never more than that of parts of the pair, dealt as shares are."""
    pairs = [(e, d) for e in (Fraction(1, 100), ONE, Fraction(8)) for d in (Fraction(1, 1000), TINY)]
    for (epsilon, delta), shares in product(pairs, [(1, 1), (1, 9), (1, 99)]):
        for noise, weight in zip(joint(epsilon, delta, [(1, 1)] * len(shares), shares), shares, strict=True):
            part = Fraction(weight, sum(shares))
            assert noise.sigma < GaussianNoise.calibrate(epsilon * part, delta * part, 1, 1).sigma


# -- the loss, from exact probabilities -------------------------------------------------------------------------


def needed_delta(noises: Sequence[GaussianNoise], moved: Sequence[int], epsilon: float) -> float:
    """The delta that one ordered pair of exact vectors needs: the sum over all outputs of max(p - e^epsilon q, 0)."""
    p, q = np.ones(1), np.ones(1)
    for noise, shift in zip(noises, moved, strict=True):
        reach = math.ceil(7 * float(noise.sigma)) + abs(shift)
        outputs = range(-reach, reach + 1)
        mine, other = (np.array([gaussian(noise, o - by) for o in outputs]) for by in (0, shift))
        p, q = np.multiply.outer(p, mine).ravel(), np.multiply.outer(q, other).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


CASES = [
    (ONE, Fraction(1, 100), [(1, 1), (1, 1)], (1, 1)),
    (ONE, Fraction(1, 100), [(1, 1), (2, 1)], (1, 1)),
    (Fraction(2), Fraction(1, 1000), [(1, 2), (1, 1)], (1, 2)),  # one in two groups, the other in one
]


@pytest.mark.parametrize(("epsilon", "delta", "reaches", "shares"), CASES)
def test_no_neighbour_needs_more_than_the_pair(
    epsilon: Fraction, delta: Fraction, reaches: list[tuple[int, int]], shares: tuple[int, ...]
) -> None:
    """Two or three numbers, one unit more or less: every way that it may move them, over all outputs."""
    noises = joint(epsilon, delta, reaches, shares)
    cells = [noise for noise in noises for _ in range(noise.groups)]
    moves = [range(-noise.sensitivity, noise.sensitivity + 1) for noise in cells]
    found = [needed_delta(cells, moved, float(epsilon)) for moved in product(*moves)]
    assert max(found) <= float(delta) * (1 + 1e-9)
    assert max(found) > float(delta) / 2, "the noise is for what one unit can do, and hardly for more"
    less = [GaussianNoise(n.sigma * Fraction(9, 10), n.sensitivity, n.groups, epsilon, delta) for n in cells]
    most = tuple(noise.sensitivity for noise in cells)
    assert needed_delta(less, most, float(epsilon)) > float(delta), (
        "the control must fail: a tenth less noise"
    )


@pytest.mark.parametrize("k", [2, 5, 16])
def test_other_software_agrees(k: int) -> None:
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant  # type: ignore[import-untyped]
    from dp_accounting.pld.privacy_loss_distribution import (  # type: ignore[import-untyped]
        from_discrete_gaussian_mechanism,
    )

    reaches = [((1, 1), (7, 2))[i % 2] for i in range(k)]
    noises = joint(ONE, TINY, reaches)

    def epsilon_of(factor: float) -> float:
        account = PLDAccountant(value_discretization_interval=1e-3)
        for noise in noises:
            reach = noise.sensitivity * math.sqrt(noise.groups)
            account.compose(accounting.GaussianDpEvent(factor * float(noise.sigma) / reach))
        return float(account.get_epsilon(float(TINY)))

    assert epsilon_of(1.0) == pytest.approx(1.0, abs=2e-3)
    assert epsilon_of(0.9) > 1.05, "the control must fail"
    # of noise this fine, the discrete Gaussian of other software is as good as the rounded one
    discrete = None
    for noise in noises:
        for _ in range(noise.groups):
            made = from_discrete_gaussian_mechanism(
                float(noise.sigma), noise.sensitivity, value_discretization_interval=1e-3
            )
            discrete = made if discrete is None else discrete.compose(made)
    assert discrete.get_epsilon_for_delta(float(TINY)) == pytest.approx(1.0, abs=2e-2)


# -- one event --------------------------------------------------------------------------------------------------


def test_only_what_the_pair_covers_is_one_event() -> None:
    noises = joint(ONE, TINY, [(1, 1)] * 3)
    events = [noise.event for noise in noises]
    others: list[Event] = [PureDP(Fraction(1, 2)), RoundedGaussian(noises[0].sigma, 1, ONE, TINY)]
    whole = compose_events([others[0], *events[:2], others[1], events[2]])
    assert [part.kind for part in whole.parts] == ["pure", "joint_gaussian", "rounded_gaussian"]
    assert whole.basic == (Fraction(5, 2), 2 * TINY)
    assert compose_events(events[:2]).basic == (ONE, TINY)  # fewer of them, and no more than that
    twice = compose_events([*events, *events])
    assert [part.kind for part in twice.parts] == ["joint_gaussian"] * 6, "no pair covers them twice"
    assert twice.basic[0] == 6
    another = joint(ONE, 2 * TINY, [(1, 1)] * 2)[0].event
    assert len(compose_events([events[0], another]).parts) == 2
    assert float(compose_events(events).rho) == pytest.approx(
        float(gaussian_mu(ONE, TINY)) ** 2 / 2, rel=1e-8
    )


@pytest.mark.parametrize(
    "fields",
    [
        ((), ()),
        ((ONE,), ()),
        ((ONE,), (0,)),
        ((Fraction(0),), (1,)),
        ((ONE, ONE), (1,)),
        ((Fraction(4),), (1,)),
    ],
)
def test_an_event_that_does_not_fit_is_refused(fields: tuple[tuple[Fraction, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError):
        JointGaussian(*fields, ONE, TINY)


def test_shares_are_parts() -> None:
    for share in (Fraction(0), Fraction(-1), Fraction(3, 2)):
        with pytest.raises(ValueError, match="share"):
            JointGaussianNoise.calibrate_share(ONE, TINY, 1, 1, share)
    noise = JointGaussianNoise.calibrate_share(ONE, TINY, 3, 2, Fraction(1, 4))
    double = noise.rescale(Fraction(2))
    assert double == JointGaussianNoise.calibrate_share(Fraction(2), TINY, 3, 2, Fraction(1, 4))
    assert "jointly ε=1, δ=1e-06, over 2 groups" in noise.sentence(0.95)


# -- several blocks ---------------------------------------------------------------------------------------------


def block(*noises: GaussianNoise | LaplaceNoise) -> Aggregation:
    columns = (Statistic(f"p{i}", noise) for i, noise in enumerate(noises))
    return Aggregation("SELECT", (), tuple(Count(f"n{i}", column) for i, column in enumerate(columns)))


def test_blocks_that_are_declared_together_are_calibrated_together() -> None:
    one = block(GaussianNoise.calibrate(ONE, TINY, 1, 1))
    two = block(*joint(Fraction(3), TINY, [(2, 1), (5, 3)], (1, 2)))
    laplace = block(LaplaceNoise(ONE, 1))
    by_mu = block(GaussianNoiseByMu.of_mu(ONE, TINY, 1, 1))
    operators = [one, laplace, Together(two, ()), by_mu]
    made = calibrate_together(operators)
    assert made[1] is laplace
    assert made[3] is by_mu
    assert [find_pair(made[i]) for i in (0, 2)] == [(Fraction(1), TINY / 2), (Fraction(3), 3 * TINY / 2)]
    again = calibrate_together(made)  # together with nothing else they cost no more than before
    assert compose_events([again[0].event, again[2].event]) == compose_events([made[0].event, made[2].event])
    event = compose_events([made[0].event, made[2].event])
    assert isinstance(event, JointGaussian)
    assert event.basic == (Fraction(4), 2 * TINY)
    assert float(event.mu) == pytest.approx(float(gaussian_mu(Fraction(4), 2 * TINY)), rel=1e-8)
    inner = made[2].aggregation if isinstance(made[2], Together) else None
    noises = [s.noise for s in inner.statistics]
    assert [n.share for n in noises if isinstance(n, JointGaussianNoise)] == [Fraction(1, 4), Fraction(1, 2)]
    for before, after in zip(
        (*one.statistics, *two.statistics), (*made[0].statistics, *inner.statistics), strict=True
    ):  # type: ignore[attr-defined]
        assert after.noise.sigma < before.noise.sigma  # type: ignore[attr-defined]
    assert calibrate_together([one, laplace]) == [one, laplace]


# -- the distribution -------------------------------------------------------------------------------------------


def test_draws_have_the_distribution_that_is_charged() -> None:
    noises = joint(ONE, Fraction(1, 1000), [(1, 1), (3, 2), (1, 1)], (1, 1, 2))
    for i, noise in enumerate(noises):
        sample = np.asarray(noise.add(np.zeros(200_000, dtype=np.int64), fixed(f"joint {i}")))
        assert p_value(sample, gaussian_pmf(noise.sigma)) > REFUSED
        for wrong in (Fraction(9, 10), Fraction(11, 10)):
            assert p_value(sample, gaussian_pmf(noise.sigma * wrong)) < REFUSED


@pytest.mark.parametrize("sigma", [Fraction(1, 5), Fraction(1), Fraction(7, 2), Fraction(5), Fraction(300)])
def test_the_mean_error_is_that_of_the_distribution(sigma: Fraction) -> None:
    noise = GaussianNoise(sigma, 1, 1, ONE, Fraction(1, 2))
    reach = math.ceil(12 * float(sigma)) + 2
    truth = math.fsum(abs(k) * gaussian(noise, k) for k in range(-reach, reach + 1))
    assert noise.mean_error == pytest.approx(truth, rel=2e-5)
    scale = LaplaceNoise(1 / sigma, 1)
    q = math.exp(-1 / float(sigma))
    most = math.ceil(60 * float(sigma)) + 5
    truth = math.fsum(2 * k * q**k for k in range(1, most)) * (1 - q) / (1 + q)
    assert scale.mean_error == pytest.approx(truth, rel=1e-9)


def test_outputs_tell_the_same_of_joint_noise() -> None:
    noise = joint(ONE, TINY, [(10, 1)] * 4)[0]
    total = Sum("s", Statistic("p0", noise), Fraction(4))
    (said,) = total.errors(ErrorBasis(confidence=0.95))
    assert said.error == noise.half_width(0.95) / 4
    assert "jointly" in total.sentences(0.95)[0]
