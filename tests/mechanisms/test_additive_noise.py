"""Noise of statistics: its loss from exact probabilities, its calibration, intervals and arithmetic."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product
from pathlib import Path

import mpmath
import numpy as np
import pytest

from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise, calibrate_gaussian
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import to_integers
from dpsql.privacy import events
from tests.support.pmf import gaussian, hockey_stick, log_laplace, tables, totals, worst_log_ratio

GDP = json.loads((Path(__file__).parents[1] / "published" / "vectors" / "vectors_samplers.json").read_text())[
    "rounded_gaussian_vs_gdp"
]

# what one unit may do: nothing, one group, or both, with up to two steps in each
CHOICES = [tuple((g, s) for g, s in enumerate(steps) if s) for steps in product((-2, 0, 1, 2), repeat=2)]


def worst_over_tables(noise: LaplaceNoise) -> float:
    return max(worst_log_ratio(noise, totals(a, 2), totals(b, 2)) for a, b in tables(2, CHOICES))


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(3)])
def test_laplace_loses_no_more_than_epsilon_on_any_pair_of_tables(epsilon: Fraction) -> None:
    assert worst_over_tables(LaplaceNoise(epsilon, sensitivity=2, groups=2)) == pytest.approx(
        float(epsilon), rel=1e-9
    )


@pytest.mark.parametrize("wrong", [LaplaceNoise(Fraction(1), 1, 2), LaplaceNoise(Fraction(1), 2, 1)])
def test_a_sensitivity_or_a_group_too_few_is_found_out(wrong: LaplaceNoise) -> None:
    assert worst_over_tables(wrong) > 1.5


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(Fraction(1), Fraction(1, 10**4)), (Fraction(1, 2), Fraction(1, 100))]
)
@pytest.mark.parametrize("sensitivity", [1, 3])
def test_rounded_gaussian_keeps_its_declared_pair(
    epsilon: Fraction, delta: Fraction, sensitivity: int
) -> None:
    noise = GaussianNoise.calibrate(epsilon, delta, sensitivity, 1)
    reach = math.ceil(12 * float(noise.sigma)) + sensitivity
    pmf = {k: gaussian(noise, k) for k in range(-reach - 9, reach + 10)}

    def needed(shift: int) -> float:
        outputs = range(-reach, reach + 1)
        return hockey_stick(lambda o: pmf[o], lambda o: pmf[o - shift], float(epsilon), outputs)

    assert all(needed(shift) <= float(delta) * (1 + 1e-9) for shift in range(-sensitivity, sensitivity + 1))
    assert needed(2 * sensitivity) > float(delta), "the control must fail"


@pytest.mark.parametrize("case", GDP, ids=str)
def test_rounded_gaussian_profile_is_the_published_one(case: dict[str, float]) -> None:
    noise = GaussianNoise(Fraction(case["sigma"]), int(case["D"]), 1, Fraction(1), Fraction(1, 2))
    pmf = {k: gaussian(noise, k) for k in range(-60, 61)}
    found = hockey_stick(lambda o: pmf[o], lambda o: pmf[o - noise.sensitivity], case["x"], range(-50, 51))
    assert found == pytest.approx(case["rounded"], abs=1e-12)
    assert found <= case["gdp"] + 1e-12


def analytic_delta(s: Fraction, epsilon: Fraction) -> mpmath.mpf:
    """Balle and Wang's formula, written down a second time."""
    s, e = mpmath.mpf(s.numerator) / s.denominator, mpmath.mpf(epsilon.numerator) / epsilon.denominator
    return mpmath.ncdf(1 / (2 * s) - e * s) - mpmath.exp(e) * mpmath.ncdf(-1 / (2 * s) - e * s)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**4), Fraction(1, 10), Fraction(1), Fraction(30)])
@pytest.mark.parametrize("delta", [Fraction(1, 10), Fraction(1, 10**6), Fraction(1, 10**12)])
def test_the_multiplier_is_enough_and_hardly_more(epsilon: Fraction, delta: Fraction) -> None:
    with mpmath.workdps(60):
        s = calibrate_gaussian(epsilon, delta)
        bound = mpmath.mpf(delta.numerator) / delta.denominator
        assert analytic_delta(s, epsilon) <= bound
        assert analytic_delta(s * (1 - Fraction(1, 1 << 28)), epsilon) > bound


def test_known_multiplier() -> None:
    assert float(calibrate_gaussian(Fraction(1), Fraction(1, 10**6))) == pytest.approx(
        1 / 0.236704380663, rel=1e-9
    )


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**9), Fraction(10**6)])
def test_calibration_ends_for_extreme_losses(epsilon: Fraction) -> None:
    noise = GaussianNoise.calibrate(epsilon, Fraction(1, 10**9), 1 << 50, 3)
    assert noise.sigma > 0
    assert noise.event.basic == (epsilon, Fraction(1, 10**9))


def test_sigma_covers_the_l2_norm() -> None:
    one = GaussianNoise.calibrate(Fraction(1), Fraction(1, 10**6), 1, 1)
    for sensitivity, groups in [(3, 1), (1, 2), (5, 7), (1 << 40, 3)]:
        noise = GaussianNoise.calibrate(Fraction(1), Fraction(1, 10**6), sensitivity, groups)
        assert float(noise.sigma / one.sigma) == pytest.approx(sensitivity * groups**0.5, rel=1e-8)
        assert noise.event == events.RoundedGaussian(
            noise.sigma, groups * sensitivity**2, Fraction(1), Fraction(1, 10**6)
        )
        assert noise.sigma.numerator.bit_length() + noise.sigma.denominator.bit_length() < 140, (
            "short to print"
        )


def test_laplace_event_is_what_was_declared() -> None:
    assert LaplaceNoise(Fraction(1, 2), 3, 4).event == events.DiscreteLaplace(Fraction(1, 2), 3, 4)
    assert LaplaceNoise(Fraction(1, 2), 3, 4).scale == 24


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.999])
@pytest.mark.parametrize("scale", [Fraction(1, 5), Fraction(1), Fraction(7, 2), Fraction(200)])
def test_laplace_width_covers_and_is_the_least_that_does(scale: Fraction, confidence: float) -> None:
    noise = LaplaceNoise(1 / scale, 1)
    width = int(noise.half_width(confidence))

    def inside(w: int) -> float:
        return math.fsum(math.exp(log_laplace(noise, k)) for k in range(-w, w + 1))

    assert inside(width) >= confidence
    assert width == 0 or inside(width - 1) < confidence, "a narrower interval covers less: the check can fail"


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("sigma", [Fraction(1, 5), Fraction(3, 2), Fraction(100)])
def test_gaussian_width_covers_and_is_the_least_that_does(sigma: Fraction, confidence: float) -> None:
    noise = GaussianNoise(sigma, 1, 1, Fraction(1), Fraction(1, 2))
    width = int(noise.half_width(confidence))

    def inside(w: int) -> float:
        return math.erf((w + 0.5) / float(sigma) / math.sqrt(2))

    assert inside(width) >= confidence
    assert width == 0 or inside(width - 1) < confidence, "a narrower interval covers less: the check can fail"


def test_sums_leave_int64_before_they_overflow() -> None:
    still = LaplaceNoise(Fraction(10**6), 1)
    top = 1 << 62
    values = np.array([top - 1, -top, 5], dtype=np.int64)
    assert still.add(values, Entropy()).tolist() == [top - 1, -top, 5]
    assert still.add([1 << 100, -3], Entropy()).tolist() == [1 << 100, -3]
    assert still.add([], Entropy()).tolist() == []
    wide = LaplaceNoise(Fraction(1, 1 << 70), 1).add(np.zeros(5, dtype=np.int64), Entropy())
    assert wide.dtype == object
    assert all(type(v) is int for v in wide)
    assert to_integers([1, 2]).dtype == np.int64
    assert to_integers([0, 2**63]).tolist() == [0, 2**63]  # numpy alone would make floats of these
    assert to_integers([0, 2**64 + 1]).tolist() == [0, 2**64 + 1]
    assert to_integers([]).tolist() == []


def test_floats_and_empty_declarations_are_refused() -> None:
    with pytest.raises(TypeError, match="integer"):
        to_integers([1.5])  # type: ignore[list-item]
    for bad in [(Fraction(0), 1, 1), (Fraction(1), 0, 1), (Fraction(1), 1, 0)]:
        with pytest.raises(ValueError, match="must be"):
            LaplaceNoise(*bad)
    with pytest.raises(ValueError, match="must be"):
        GaussianNoise.calibrate(Fraction(1), Fraction(0), 1, 1)
    with pytest.raises(ValueError, match="must be"):
        GaussianNoise(Fraction(0), 1, 1, Fraction(1), Fraction(1, 2))
