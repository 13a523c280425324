"""Groups of a range that are shown: the exact probability of a false one, and of a true one, by the noise's own law."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.empty_groups import FALSE_GROUPS, find_noise_reach, find_significant
from dpsql.mechanisms.ordered_noise import OrderedNoise, make_tree
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise, Noise
from dpsql.noise.entropy import Entropy

DOUBT = float(FALSE_GROUPS)
GROUPS = (10, 100, 1_000)
NOISES: list[Noise] = [
    LaplaceNoise(Fraction(1), 1),
    LaplaceNoise(Fraction(1, 10), 1),
    LaplaceNoise(Fraction(5), 3, 2),
    GaussianNoise.calibrate(Fraction(1), Fraction(1, 10**6), 1, 1),
    GaussianNoise.calibrate(Fraction(1, 4), Fraction(1, 10**6), 2, 3),
]


def exceed(noise: Noise, reach: float) -> float:
    """Return the exact probability that noise is above ``reach``, a whole number."""
    if isinstance(noise, LaplaceNoise):
        rate = float(1 / noise.scale)
        return math.exp(-(reach + 1) * rate) / (1 + math.exp(-rate))
    assert isinstance(noise, GaussianNoise)
    return math.erfc((reach + 0.5) / float(noise.sigma) / math.sqrt(2)) / 2


def any_of(groups: int, chance: float) -> float:
    """Return the probability that any of independent groups is found."""
    return -math.expm1(groups * math.log1p(-chance))


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_false_groups_by_the_exact_law(noise: Noise, groups: int) -> None:
    """At most one answer of twenty shows a group without rows; one step lower would be too many, or nearly so."""
    reach = find_noise_reach(noise, 2 * DOUBT / groups)
    assert any_of(groups, exceed(noise, reach)) <= DOUBT
    both = find_noise_reach(noise, DOUBT / groups)
    assert any_of(groups, 2 * exceed(noise, both)) <= DOUBT
    lower = reach - max(1, round(float(noise.variance) ** 0.5 / 4))
    assert any_of(groups, exceed(noise, lower)) > DOUBT  # a reach that is a little less fails


def test_a_group_of_thirty_units_is_shown() -> None:
    """At epsilon = 1 and one row a unit, thirty units of a thousand candidate groups are shown in 95 of 100 answers."""
    noise = LaplaceNoise(Fraction(1), 1)
    reach = find_noise_reach(noise, 2 * DOUBT / 1_000)
    assert 1 - exceed(noise, 30 - reach - 1) >= 0.95
    half = LaplaceNoise(Fraction(1, 2), 1)  # beside a sum
    assert 1 - exceed(half, 30 - find_noise_reach(half, DOUBT / 1_000) - 1) >= 0.95


@pytest.mark.parametrize("groups", GROUPS)
def test_the_decision_has_that_law(groups: int) -> None:
    """Counts that are far below 0 are no sign of rows, sums are; the doubt is shared by all statistics."""
    noise = LaplaceNoise(Fraction(1), 1)
    part = DOUBT / groups / 2
    count, total = find_noise_reach(noise, 2 * part), find_noise_reach(noise, part)
    counts = np.array([count, count + 1, -(10**6), 0, 0, 0])
    sums = np.array([0, 0, 0, total, -total - 1, total + 1])
    found = find_significant([(noise, counts), (noise, sums)], [True, False], groups, DOUBT)
    assert found.tolist() == [False, True, False, False, True, True]


def _convolve(weights: list[int], rate: float, size: int) -> np.ndarray:
    """Return the law of a weighed sum of discrete Laplace noise on -size to size."""
    places = np.arange(-size, size + 1)
    whole = np.zeros(2 * size + 1)
    whole[size] = 1.0
    for weight in weights:
        law = np.where(places % weight == 0, np.exp(-rate * np.abs(places // weight)), 0.0)
        law *= (1 - math.exp(-rate)) / (1 + math.exp(-rate))
        transform = np.fft.rfft(np.fft.ifftshift(whole)) * np.fft.rfft(np.fft.ifftshift(law))
        whole = np.fft.fftshift(np.fft.irfft(transform, len(whole)))
    return whole


@dataclass(frozen=True)
class _Sum(Noise):
    """A fixed sum of Laplace noise."""

    weights: tuple[int, ...]
    epsilon: Fraction
    sensitivity: int = 1
    groups: int = 1

    @property
    def variance(self) -> float:
        return sum(w * w for w in self.weights) * LaplaceNoise(self.epsilon, 1).variance

    event = mean_error = half_width = rescale = _draw = _describe = None  # type: ignore[assignment]


@pytest.mark.parametrize("weights", [(1,), (1, 1), (1, 1, 1, 1), (3, 1, 1), (5, 4, 3, 2, 1)])
def test_a_sum_of_laplace_noise_stays_within_its_reach(weights: tuple[int, ...]) -> None:
    """The bound holds for the exact law of sums, and not with a third less."""
    size, epsilon = 1 << 13, Fraction(1, 8)
    law = _convolve(list(weights), float(epsilon), size)
    places = np.abs(np.arange(-size, size + 1))
    for doubt in (5e-2, 1e-3, 5e-5, 1e-7):
        reach = find_noise_reach(_Sum(weights, epsilon), doubt)
        tail = float(law[places > reach].sum())
        assert tail <= doubt * (1 + 1e-6) + 1e-12
        assert float(law[places > reach / 2].sum()) > doubt


def test_noise_in_an_order_stays_within_its_reach() -> None:
    """Steps of a tree: in 2,000 draws of 64 empty steps, at most about one answer of twenty has any step beyond."""
    noise = make_tree(LaplaceNoise(Fraction(1, 2), 1), 64)
    assert isinstance(noise, OrderedNoise)
    reach, draws = find_noise_reach(noise, 2 * DOUBT / 64), 2_000
    entropy = Entropy()
    exact = np.zeros(64 * draws, dtype=np.int64)
    runs = [np.arange(64 * i, 64 * (i + 1)) for i in range(draws)]
    noisy = noise.add_runs(exact, runs, entropy).reshape(draws, 64)
    false = int((noisy > reach).any(axis=1).sum())
    assert false <= DOUBT * draws + 6 * math.sqrt(DOUBT * draws)
    assert int((noisy > reach / 3).any(axis=1).sum()) > DOUBT * draws  # a third of it is too little
