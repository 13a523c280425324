"""Noise that is taken away step by step: each step has its law, and all together tell what the last one tells."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import NoiseChain, draw_added, enclose_stay
from dpsql.numerics import interval_arithmetic as ia
from tests.support.goodness import fixed, laplace_pmf, p_value

P, Q = Fraction(1, 3), Fraction(1, 2)


def laplace(p: Fraction, k: int) -> Fraction:
    return (1 - p) / (1 + p) * p ** abs(k)


def stay(p: Fraction, q: Fraction) -> Fraction:
    return p / q * ((1 - q) / (1 - p)) ** 2


def coarser(s: Fraction, k: int, reach: int = 60) -> Fraction:
    """The probability of k after noise of ratio P, and with probability 1 - s noise of ratio Q on top."""
    around = (laplace(P, j) * laplace(Q, k - j) for j in range(-reach, reach + 1))
    return s * laplace(P, k) + (1 - s) * sum(around)


def test_fine_noise_and_what_is_added_are_coarse_noise() -> None:
    s = stay(P, Q)
    for k in range(-6, 7):
        assert abs(coarser(s, k) - laplace(Q, k)) < Fraction(1, 10**25)  # what the sum leaves out
    continuous = (Fraction(math.log(2)) / Fraction(math.log(3))) ** 2
    assert max(abs(coarser(continuous, k) - laplace(Q, k)) for k in range(4)) > Fraction(1, 200)


@pytest.mark.parametrize("scales", [("1", "2"), ("3/7", "1/2"), ("1e9", "1.04e9"), ("1/500", "1/400")])
def test_the_probability_to_stay_is_enclosed(scales: tuple[str, str]) -> None:
    fine, coarse = map(Fraction, scales)
    low, high = (float(ia.fraction(end)) for end in enclose_stay(fine, coarse, 400))
    p, q = math.exp(-1 / fine), math.exp(-1 / coarse)
    about = math.exp(1 / coarse - 1 / fine) * (math.expm1(-1 / coarse) / math.expm1(-1 / fine)) ** 2
    assert low <= high <= low * (1 + 1e-15)
    assert about == pytest.approx(low, rel=1e-12)
    assert p < q or fine > 10**6 or coarse < Fraction(1, 100)


def test_looks_tell_what_the_last_one_tells() -> None:
    fine, coarse = Fraction(2), Fraction(5)
    p, q = (math.exp(-1 / float(scale)) for scale in (fine, coarse))
    s = p / q * ((1 - q) / (1 - p)) ** 2

    def law(ratio: float, k: int) -> float:
        return (1 - ratio) / (1 + ratio) * ratio ** abs(k)

    def chained(first: int, last: int, x: int) -> float:
        added = first - last
        return law(p, last - x) * ((s if added == 0 else 0) + (1 - s) * law(q, added))

    def fresh(first: int, last: int, x: int) -> float:
        return law(q, first - x) * law(p, last - x)

    seen = list(itertools.product(range(-6, 7), repeat=2))
    for x in (1, -1):
        worst = {f: max(abs(math.log(f(a, b, 0) / f(a, b, x))) for a, b in seen) for f in (chained, fresh)}
        assert worst[chained] == pytest.approx(1 / 2)  # the last look alone
        assert worst[fresh] == pytest.approx(1 / 2 + 1 / 5)  # fresh noise at each look is paid each time


def test_a_look_after_another_is_pure_with_the_sum_of_both() -> None:
    fine, coarse = 2.0, 3.2
    p, q = math.exp(-1 / fine), math.exp(-1 / coarse)
    s = p / q * ((1 - q) / (1 - p)) ** 2

    def law(ratio: float, k: int) -> float:
        return (1 - ratio) / (1 + ratio) * ratio ** abs(k)

    def given(last: int, first: int, x: int) -> float:
        """The probability of the last look where the first was this one."""
        added = (s if first == last else 0) + (1 - s) * law(q, first - last)
        return law(p, last - x) * added / law(q, first - x)

    losses = [
        abs(math.log(given(last, first, 0) / given(last, first, 1)))
        for first, last in itertools.product(range(-8, 9), repeat=2)
    ]
    assert sum(given(last, 2, 0) for last in range(-80, 80)) == pytest.approx(1)
    assert max(losses) <= 1 / fine + 1 / coarse + 1e-12
    assert max(losses) > 1.5 / fine  # the finer epsilon alone does not bound it


@pytest.mark.parametrize("scales", [("5", "2", "2/3"), ("40", "38.5", "7")])
def test_every_step_has_its_law(scales: tuple[str, ...]) -> None:
    falling = tuple(map(Fraction, scales))
    chain, laws = NoiseChain(falling, 20_000, fixed(f"chain {scales}")), list(falling)
    for i, scale in enumerate(laws):
        if i:
            chain.step()
        assert p_value(chain.noise, laplace_pmf(scale)) > 1e-6
        assert p_value(chain.noise, laplace_pmf(scale * Fraction(11, 10))) < 1e-6
        assert p_value(chain.noise, laplace_pmf(scale * Fraction(9, 10))) < 1e-6


def test_what_is_taken_away_does_not_depend_on_what_stays() -> None:
    chain = NoiseChain((Fraction(6), Fraction(3)), 40_000, fixed("independence"))
    first = chain.noise
    chain.step()
    added = first - chain.noise
    assert abs(np.corrcoef(added, chain.noise)[0, 1]) < 0.03
    assert abs(np.corrcoef(np.abs(added), np.abs(chain.noise))[0, 1]) < 0.03
    assert np.corrcoef(first, chain.noise)[0, 1] > 0.4  # fresh noise would not be


def test_scales_fall() -> None:
    with pytest.raises(ValueError, match="falling"):
        NoiseChain((Fraction(1), Fraction(1)), 1, Entropy())
    with pytest.raises(ValueError, match="in order"):
        draw_added(Fraction(2), Fraction(1), 1, Entropy())
    assert len(draw_added(Fraction(2), Fraction(2), 5, Entropy()).places) == 0


def test_a_close_call_draws_further_bits() -> None:
    low = ia.floor(ia.shift(enclose_stay(Fraction(1), Fraction(2), 400)[0], 64))
    cells = iter([low, 0, low, (1 << 64) - 1])

    def source(size: int) -> bytes:
        return b"".join(next(cells, 12345).to_bytes(8, "little") for _ in range(size // 8))

    entropy = Entropy(source)
    assert len(draw_added(Fraction(1), Fraction(2), 1, entropy).places) in (0, 1)
