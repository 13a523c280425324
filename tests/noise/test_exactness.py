"""The samplers where chance can't reach: error bands, boundaries, and decisions that floats may not take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.noise import samplers
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import (
    RELATIVE,
    draw_bernoulli,
    draw_bernoulli_exp,
    draw_discrete_laplace,
    draw_geometric,
    draw_rounded_gaussian,
)

ZEROS, ONES = 0, (1 << 64) - 1


def scripted(words: Sequence[int], rest: int) -> Entropy:
    """These words one by one, however many are asked for at once; then ``rest`` for ever."""
    queue = list(words)

    class Script(Entropy):
        def words(self, n: int) -> NDArray[np.uint64]:
            return np.array([queue.pop(0) if queue else rest for _ in range(n)], dtype=np.uint64)

    return Script()


def cell(u: Any) -> int:
    """The word whose upper 52 bits are those of the real ``u``, with an even sign bit."""
    return int(mpmath.floor(u * 2**52)) << 12


@pytest.fixture(autouse=True)
def _digits() -> Any:
    with mpmath.workdps(60):
        yield


UNIFORMS = np.concatenate(
    [
        (np.arange(1, 1500) - 0.5) / 1500,
        1 - 2.0 ** -np.arange(1, 52),
        2.0 ** -np.arange(1, 35) * 1.3,
        [0.149999999, 0.15, 0.150000001],
    ]
)


def worst_quantile_error() -> float:
    z = samplers.compute_half_normal_quantile(UNIFORMS)
    worst = 0.0
    for u, approximate in zip(UNIFORMS, z, strict=True):
        at = mpmath.mpf(float(approximate))
        # one Newton step from a point this near doubles its digits
        density = mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-at * at / 2)
        error = (mpmath.erfc(at / mpmath.sqrt(2)) - mpmath.mpf(float(u))) / density
        worst = max(worst, abs(float(error / at)))
    return worst


def test_the_quantile_is_well_inside_its_band() -> None:
    assert worst_quantile_error() < samplers.QUANTILE / 16


def test_the_check_of_the_quantile_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    above, under = samplers._FLANK
    monkeypatch.setattr(samplers, "_FLANK", ((*above[:-1], above[-1] * (1 + 1e-9)), under))
    assert worst_quantile_error() > samplers.QUANTILE / 16


def test_log_and_exp_are_well_inside_their_band() -> None:
    for u, log in zip(UNIFORMS, np.log(UNIFORMS), strict=True):
        true = mpmath.log(mpmath.mpf(float(u)))
        assert abs(float((mpmath.mpf(float(log)) - true) / true)) < RELATIVE / 16
    gammas = np.concatenate([UNIFORMS, np.linspace(0.01, 700, 500)])
    for g, decay in zip(gammas, np.exp(-gammas), strict=True):
        true = mpmath.exp(-mpmath.mpf(float(g)))
        assert abs(float((mpmath.mpf(float(decay)) - true) / true)) < RELATIVE / 16


@pytest.mark.parametrize("scale", [Fraction(7, 2), Fraction(1, 3), Fraction(10**6, 7), Fraction(1)])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_laplace_decides_a_boundary_by_further_bits(scale: Fraction, k: int) -> None:
    """At the u where |K| steps from k - 1 to k the first 52 bits can't tell; what follows them must."""
    rate = mpmath.mpf(scale.denominator) / scale.numerator
    u = 2 * mpmath.exp(-k * rate) / (1 + mpmath.exp(-rate))
    assert draw_discrete_laplace(scale, 1, scripted([cell(u)], ZEROS)).tolist() == [k]
    assert draw_discrete_laplace(scale, 1, scripted([cell(u)], ONES)).tolist() == [k - 1]
    assert draw_discrete_laplace(scale, 1, scripted([cell(u) | 1], ZEROS)).tolist() == [-k]
    # and the bits just around the boundary, one by one
    next_bits = int(mpmath.floor(u * 2**116)) & ONES
    assert draw_discrete_laplace(scale, 1, scripted([cell(u), next_bits - 1], ZEROS)).tolist() == [k]
    assert draw_discrete_laplace(scale, 1, scripted([cell(u), next_bits + 1], ZEROS)).tolist() == [k - 1]


@pytest.mark.parametrize("rate", [Fraction(1, 3), Fraction(5, 2), Fraction(1, 10**5)])
def test_geometric_decides_a_boundary_by_further_bits(rate: Fraction) -> None:
    u = mpmath.exp(-4 * mpmath.mpf(rate.numerator) / rate.denominator)
    assert draw_geometric(rate, 1, scripted([cell(u)], ZEROS)).tolist() == [4]
    assert draw_geometric(rate, 1, scripted([cell(u)], ONES)).tolist() == [3]


@pytest.mark.parametrize("sigma", [Fraction(3, 2), Fraction(1, 2), Fraction(12345, 7), Fraction(1 << 21)])
@pytest.mark.parametrize("k", [1, 2])
def test_gaussian_decides_a_boundary_by_further_bits(sigma: Fraction, k: int) -> None:
    u = mpmath.erfc((k - mpmath.mpf(1) / 2) * sigma.denominator / sigma.numerator / mpmath.sqrt(2))
    assert draw_rounded_gaussian(sigma, 1, scripted([cell(u)], ZEROS)).tolist() == [k]
    assert draw_rounded_gaussian(sigma, 1, scripted([cell(u)], ONES)).tolist() == [k - 1]
    assert draw_rounded_gaussian(sigma, 1, scripted([cell(u) | 1], ZEROS)).tolist() == [-k]
    next_bits = int(mpmath.floor(u * 2**116)) & ONES
    assert draw_rounded_gaussian(sigma, 1, scripted([cell(u), next_bits - 1], ZEROS)).tolist() == [k]
    assert draw_rounded_gaussian(sigma, 1, scripted([cell(u), next_bits + 1], ZEROS)).tolist() == [k - 1]


def test_bernoulli_exp_decides_a_boundary_by_further_bits() -> None:
    p = mpmath.exp(mpmath.mpf(-5) / 4)
    gamma = np.array([5])
    assert draw_bernoulli_exp(gamma, Fraction(1, 4), scripted([cell(p)], ZEROS)).tolist() == [True]
    assert draw_bernoulli_exp(gamma, Fraction(1, 4), scripted([cell(p)], ONES)).tolist() == [False]


@pytest.mark.parametrize("gamma", [10**6, 10**12, 10**40])
def test_bernoulli_exp_of_a_huge_exponent_ends(gamma: int) -> None:
    """Sixty-four zero bits are not enough to be below exp(-1e6): the decision waits for the first one bit."""
    assert draw_bernoulli_exp(
        np.array([gamma], dtype=object), Fraction(1, 1), scripted([0, 0, 0], ONES)
    ).tolist() == [False]
    assert not draw_bernoulli_exp(np.array([gamma] * 100, dtype=object), Fraction(1, 1), Entropy()).any()


def test_bernoulli_exp_of_zero_is_certain() -> None:
    assert draw_bernoulli_exp(
        np.zeros(1000, dtype=np.int64), Fraction(1, 3), Entropy(lambda n: b"\xff" * n)
    ).all()


def test_bernoulli_compares_every_bit() -> None:
    third = Fraction(1, 3)
    high = (1 << 64) // 3  # the first 64 bits of one third; they repeat 01
    assert draw_bernoulli([third], scripted([high - 1], ONES)).tolist() == [True]
    assert draw_bernoulli([third], scripted([high + 1], ZEROS)).tolist() == [False]
    assert draw_bernoulli([third], scripted([high, high, high - 1], ONES)).tolist() == [True]
    assert draw_bernoulli([third], scripted([high, high, high + 1], ZEROS)).tolist() == [False]
    half = Fraction(1, 2)
    assert draw_bernoulli([half], scripted([(1 << 63) - 1], ONES)).tolist() == [True]
    assert draw_bernoulli([half], scripted([1 << 63], ZEROS)).tolist() == [False]
    assert draw_bernoulli([Fraction(1)], scripted([ONES], ONES)).tolist() == [True]
    assert draw_bernoulli([Fraction(0)], scripted([ZEROS], ZEROS)).tolist() == [False]
    index = np.array([1, 0, 1, 0])
    assert draw_bernoulli([Fraction(0), Fraction(1)], Entropy(), index).tolist() == [True, False, True, False]


def test_a_tiny_uniform_reaches_far_into_the_tail() -> None:
    """116 leading zero bits: the value is where exact arithmetic says, and no float saw it."""
    u = mpmath.mpf(2) ** -118
    drawn = draw_geometric(Fraction(1, 3), 1, scripted([0, 0], 1 << 62))
    assert abs(drawn[0] + 3 * mpmath.log(u)) <= 1
    sigma = Fraction(1000)
    drawn = draw_rounded_gaussian(sigma, 1, scripted([0, 0], 1 << 62))
    z = float(drawn[0] / sigma)
    assert abs(math.log(math.erfc(z / math.sqrt(2))) - float(mpmath.log(u))) < 0.02


HUGE = [Fraction(1 << 50), Fraction(1 << 61), Fraction(1 << 80), Fraction(10**30, 7), Fraction(10**400)]


@pytest.mark.parametrize("scale", HUGE)
def test_huge_scales_keep_every_bit(scale: Fraction) -> None:
    """Neither the size nor the low bits are lost: a float would leave trailing zeros."""
    for drawn in (draw_discrete_laplace(scale, 400, Entropy()), draw_rounded_gaussian(scale, 400, Entropy())):
        values = [int(v) for v in drawn]
        spread = Fraction(sum(abs(v) for v in values), 400) / scale
        assert Fraction(1, 2) < spread < 2
        assert 120 < sum(v & 1 for v in values) < 280
        assert 120 < sum(v > 0 for v in values) < 280


@pytest.mark.parametrize("scale", [Fraction(1, 10**6), Fraction(1, 10**12), Fraction(1, 10**400)])
def test_tiny_scales_give_zero_at_once(scale: Fraction) -> None:
    assert not draw_discrete_laplace(scale, 10_000, Entropy()).any()
    assert not draw_rounded_gaussian(scale, 10_000, Entropy()).any()
    assert not draw_geometric(1 / scale, 10_000, Entropy()).any()


@pytest.mark.parametrize("draw", [draw_discrete_laplace, draw_rounded_gaussian, draw_geometric])
def test_no_draws_and_no_scale(draw: Any) -> None:
    assert draw(Fraction(3), 0, Entropy()).shape == (0,)
    assert draw(Fraction(1 << 70), 0, Entropy()).shape == (0,)
    with pytest.raises(ValueError, match="positive"):
        draw(Fraction(0), 1, Entropy())


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="probability"):
        draw_bernoulli([Fraction(3, 2)], Entropy())
    with pytest.raises(ValueError, match="negative"):
        draw_bernoulli_exp(np.array([-1]), Fraction(1, 2), Entropy())
    with pytest.raises(ValueError, match="rate"):
        draw_bernoulli_exp(np.array([1]), Fraction(0), Entropy())


@pytest.mark.parametrize("sigma", [Fraction(5, 7), Fraction(1 << 20)])
def test_fast_decisions_agree_with_exact_ones(sigma: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words, once with floats deciding, once with everything left to intervals."""
    raw = Entropy().words(60).tolist()
    fast = [
        draw_discrete_laplace(sigma, 60, scripted(raw, 0)),
        draw_rounded_gaussian(sigma, 60, scripted(raw, 0)),
    ]
    monkeypatch.setattr("dpsql.noise.samplers.TINY", 2.0)
    exact = [
        draw_discrete_laplace(sigma, 60, scripted(raw, 0)),
        draw_rounded_gaussian(sigma, 60, scripted(raw, 0)),
    ]
    for a, b in zip(fast, exact, strict=True):
        assert a.tolist() == b.tolist()
