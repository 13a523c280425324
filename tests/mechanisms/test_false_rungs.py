"""AUTO does not run away: the chance of a bound that no row supports is small, said, and not exceeded, whatever the data are."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.mechanisms.auto_bounds import (
    ANYWHERE,
    BEYOND,
    DECLARED,
    SEARCH,
    SHARED,
    AutoBounded,
    find_exponent,
)
from dpsql.mechanisms.contribution_caps import find_tolerance
from tests.support.goodness import fixed

RATES = [
    (Fraction(first), Fraction(second))
    for first, second in (("1/6", "1/6"), ("1/3", "1/9"), ("2", "1/100"), ("1/1000", "1/1000"), ("5", "7"))
]


def missed(rates: tuple[Fraction, Fraction], tolerance: int) -> mpmath.mpf:
    """The chance that 0 rows miss a tolerance: the threshold's noise is above it by more than the statistic's own."""
    a, b = (mpmath.exp(-mpmath.mpf(r.numerator) / r.denominator) for r in rates)
    return a ** (tolerance + 1) * (1 - b) / (1 - a * b)


@pytest.mark.parametrize("rates", [*RATES, (Fraction(1, 10**9), Fraction(1, 3 * 10**8))], ids=str)
@pytest.mark.parametrize("doubt", [ANYWHERE, Fraction(1, 1000), Fraction(1, 7)], ids=str)
def test_tolerance_is_the_least(rates: tuple[Fraction, Fraction], doubt: Fraction) -> None:
    """Check that one row less would be missed more often than ``doubt``."""
    with mpmath.workdps(60):
        tolerance, limit = find_tolerance(rates, doubt), mpmath.mpf(doubt.numerator) / doubt.denominator
        assert missed(rates, tolerance) <= limit
        if tolerance:
            assert missed(rates, tolerance - 1) > limit


@pytest.mark.parametrize("epsilon", ["1/1000000000", "1/100", "1/10", "1", "10", "1000"])
@pytest.mark.parametrize("rows", [1, 7])
def test_promises(epsilon: str, rows: int) -> None:
    """Per statement of eight such aggregates on any data at most 1e-9; within declared bounds at most 1e-6 for each."""
    anywhere = AutoBounded("q", (), "a", "avg", Fraction(epsilon), -30, 64, rows)
    declared = AutoBounded(
        "q", (), "a", "avg", Fraction(epsilon), 0, 7, rows, low=Fraction(-90), high=Fraction(90)
    )
    for part, promised in ((anywhere, ANYWHERE / SHARED), (declared, DECLARED)):
        chance = Fraction(0)
        scale = rows / (Fraction(epsilon) * SEARCH)
        for ladder in part.ladders:
            first = ladder.list_thresholds(scale)[0]
            chance += ladder.doubt
            # One rung without rows reaches its threshold with probability p**k / (1 + p).
            assert ladder.top * math.exp(-first / scale) / (1 + math.exp(-1 / scale)) <= float(ladder.doubt)
        assert 0 < chance <= promised
    assert declared.needed[0] <= anywhere.needed[0]
    many = AutoBounded("q", (), "a", "avg", Fraction(epsilon), -30, 64, rows, beside=100)
    assert sum(ladder.doubt for ladder in many.ladders if ladder is not None) * 100 <= ANYWHERE


def test_price() -> None:
    """Some 211 rows between two powers of two at epsilon 1, 134 within declared bounds; ten times as many at a tenth."""
    (needed,) = AutoBounded("q", (), "a", "avg", Fraction(1), -30, 64).needed
    assert needed < 220
    within = AutoBounded("q", (), "a", "avg", Fraction(1), 0, 7, high=Fraction(90), low=Fraction(0))
    assert within.needed[0] < 145
    (tenth,) = AutoBounded("q", (), "a", "avg", Fraction(1, 10), -30, 64).needed
    assert abs(tenth - 10 * needed) < 20


def test_exponents() -> None:
    for value in map(Fraction, ("1/1000000000", "1/3", "1", "3/2", "90", 2**70)):
        for close in (value, value * (1 + Fraction(1, 10**6)), value * (1 - Fraction(1, 10**6))):
            j = find_exponent(close)
            assert Fraction(2) ** (j - 1) < close <= Fraction(2) ** j


LOWEST, HIGHEST = -30, 64


def counted(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rows on each rung of a double's ladder."""
    rungs = np.clip(np.ceil(np.log2(values)), LOWEST, HIGHEST).astype(np.int64) - LOWEST
    return np.bincount(rungs, minlength=HIGHEST - LOWEST + 1).astype(np.int64)


def shapes() -> dict[str, NDArray[np.int64]]:
    rng = np.random.default_rng(15)
    return {
        "constant": counted(np.full(1000, 37.0)),
        "ages": counted(np.clip(np.round(rng.gamma(8, 4.8, 32_561)), 17, 90)),
        "lognormal": counted(rng.lognormal(0, 2, 10_000)),
        "two points": counted(np.array([0.001] * 5000 + [1e6] * 500)),
        "heavy tail": counted(rng.pareto(0.7, 10_000) + 1),
    }


SHAPES = shapes()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("releases", [200, pytest.param(20_000, marks=pytest.mark.stochastic)])
def test_no_false_rung(shape: str, releases: int) -> None:
    """At epsilon 1: a sign has no bound farther than three rungs beyond its last row, and one without rows has hardly any."""
    part = AutoBounded("q", (), "a", "avg", Fraction(1), LOWEST, HIGHEST)
    counts, search = SHAPES[shape], part.search()
    supported = int(np.flatnonzero(counts)[-1]) + 1
    entropy, none = fixed(f"false rungs {shape}"), np.zeros_like(counts)
    farther, stray = 0, 0
    for _ in range(releases):
        found = search.find([none, counts], entropy)
        assert found[1] <= Fraction(2) ** (LOWEST + supported - 1 + BEYOND)
        farther += found[1] > Fraction(2) ** (LOWEST + supported)
        stray += found[0] > 0
    assert farther <= 0.03 * releases
    assert stray <= 0.002 * releases + 2
