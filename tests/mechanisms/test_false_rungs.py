"""AUTO does not run away: the chance of a bound that no row supports is computed, small, and never exceeded."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.mechanisms.auto_bounds import (
    ANYWHERE,
    DECLARED,
    SHARED,
    AutoBounded,
    Ladder,
    bound_chance_of_misses,
    find_exponent,
    find_tolerance,
)
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_geometric
from dpsql.noise.selection import flip_coins
from dpsql.numerics.exact_numbers import to_integers
from tests.support.goodness import fixed
from tests.support.svt_law import law_in_floats

RATES = [
    (Fraction(first), Fraction(second))
    for first, second in (("1/6", "1/6"), ("1/3", "1/9"), ("2", "1/100"), ("1/1000", "1/1000"), ("5", "7"))
]


def summed(rates: tuple[Fraction, Fraction], tolerances: tuple[int, ...]) -> mpmath.mpf:
    """The chance that all are missed, added up over the threshold's noise."""
    first, second = (mpmath.mpf(r.numerator) / r.denominator for r in rates)
    a, b = mpmath.exp(-first), mpmath.exp(-second)
    most = max(tolerances)
    end = most + math.ceil(100 / float(rates[0]))
    return mpmath.fsum(
        (1 - a) * a**z * mpmath.fprod(1 - b ** max(0, z - t) for t in tolerances)
        for z in range(most + 1, end)
    )


@pytest.mark.parametrize("rates", RATES[:3] + RATES[4:], ids=str)
@pytest.mark.parametrize("tolerances", [(0,), (40,), (3, 3, 3, 20), (0, 1, 2, 3), (5, 5)], ids=str)
def test_chance_is_the_sum(rates: tuple[Fraction, Fraction], tolerances: tuple[int, ...]) -> None:
    with mpmath.workdps(60):
        want = summed(rates, tolerances)
        got = bound_chance_of_misses(rates, tolerances)
        got = mpmath.mpf(got.numerator) / got.denominator
        assert want * (1 - mpmath.mpf(10) ** -30) <= got <= want * (1 + mpmath.mpf(10) ** -25)
        other = bound_chance_of_misses((rates[0] * 2, rates[1]), tolerances)
        assert abs(mpmath.mpf(other.numerator) / other.denominator - want) > want / 100


@pytest.mark.parametrize("rates", [*RATES, (Fraction(1, 10**9), Fraction(1, 3 * 10**8))], ids=str)
@pytest.mark.parametrize("doubt", [ANYWHERE, DECLARED, Fraction(1, 7)], ids=str)
def test_tolerance_is_the_least(rates: tuple[Fraction, Fraction], doubt: Fraction) -> None:
    tolerance = find_tolerance(rates, doubt)
    assert bound_chance_of_misses(rates, (tolerance,)) <= doubt
    if tolerance:
        assert bound_chance_of_misses(rates, (tolerance - 1,)) > doubt


def test_chances_beyond_all_count_stay_fractions() -> None:
    assert bound_chance_of_misses((Fraction(10**9), Fraction(10**9)), (5,)) == Fraction(1, 1 << 1000)


def false_chance(ladder: Ladder, counts: tuple[int, ...]) -> float:
    """Of a bound more than 4 times that of the highest rung with rows; of any bound, where there are none."""
    supported = [i for i, n in enumerate(counts) if n]
    first = supported[-1] + 1 + 3 if supported else 1
    return math.fsum(law_in_floats(ladder, counts)[first:])


@pytest.mark.parametrize("doubt", [Fraction(1, 50), Fraction(1, 10**4)], ids=str)
def test_no_data_exceed_it(doubt: Fraction) -> None:
    """Every table of a small ladder: the chance is an upper bound, and the least one."""
    ladder = Ladder(0, 4, Fraction(2), 1, doubt)
    most = max(
        false_chance(ladder, counts) for counts in itertools.product((0, 1, ladder.far, 400), repeat=5)
    )
    assert float(ladder.false_rung) * (1 - 1e-9) <= most <= float(ladder.false_rung) * (1 + 1e-9)
    assert most <= float(doubt)


def test_would_be_more_without_the_far_question() -> None:
    ladder = Ladder(0, 5, Fraction(2), 1, Fraction(1, 10**4))
    near = (ladder.near,) * 3
    assert bound_chance_of_misses(ladder.rates, near) > 50 * ladder.doubt


@pytest.mark.parametrize("epsilon", ["1/1000000000", "1/100", "1/10", "1", "10", "1000"])
@pytest.mark.parametrize("rows", [1, 7])
def test_promises(epsilon: str, rows: int) -> None:
    """Per statement of eight such aggregates on any data less than 1e-9; within declared bounds less than 1e-3 for each."""
    anywhere = AutoBounded("q", (), "a", "avg", Fraction(epsilon), -30, 64, rows)
    declared = AutoBounded(
        "q", (), "a", "avg", Fraction(epsilon), 0, 7, rows, low=Fraction(-90), high=Fraction(90)
    )
    for part, promised in ((anywhere, ANYWHERE / SHARED), (declared, DECLARED)):
        chance = sum(ladder.false_rung for ladder in part.ladders if ladder is not None)
        assert 0 < chance <= promised
    assert declared.needed[0] <= anywhere.needed[0]
    many = AutoBounded("q", (), "a", "avg", Fraction(epsilon), -30, 64, rows, beside=100)
    assert sum(ladder.false_rung for ladder in many.ladders if ladder is not None) * 100 <= ANYWHERE


def test_price() -> None:
    """Some 204 rows at epsilon 1, 103 within declared bounds (at most 400 were allowed); ten times as many at a tenth."""
    assert AutoBounded("q", (), "a", "avg", Fraction(1), -30, 64).needed == (204,)
    assert (
        AutoBounded("q", (), "a", "avg", Fraction(1), 0, 7, high=Fraction(90), low=Fraction(0)).needed[0]
        < 110
    )
    assert 2000 < AutoBounded("q", (), "a", "avg", Fraction(1, 10), -30, 64).needed[0] < 2080


def test_exponents() -> None:
    for value in (
        Fraction(1, 10**9),
        Fraction(1, 3),
        Fraction(1),
        Fraction(3, 2),
        Fraction(90),
        Fraction(2**70),
    ):
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


def old_climb(ladder: Ladder, counts: NDArray[np.int64], entropy: Entropy) -> int:
    """What the ladder was: one small tolerance for all rungs, and nothing that holds it."""
    beyond = np.append(np.cumsum(counts[::-1])[::-1], 0)
    tolerance = math.ceil(-math.log(0.05) / ladder.rates[0])
    level = int(draw_geometric(ladder.rates[0], 1, entropy)[0]) - tolerance
    found = np.flatnonzero(flip_coins(to_integers(level + beyond), ladder.rates[1], entropy))
    return int(found[0]) if len(found) else ladder.top


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("releases", [1000, pytest.param(100_000, marks=pytest.mark.stochastic)])
def test_no_false_rung(shape: str, releases: int) -> None:
    """Of both signs, at epsilon 1: 5,000 releases with a chance of less than 1e-6 of one anywhere."""
    part = AutoBounded("q", (), "a", "avg", Fraction(1), LOWEST, HIGHEST)
    counts = SHAPES[shape]
    supported = int(np.flatnonzero(counts)[-1]) + 1
    below, above = part.ladders
    assert below is not None
    assert above is not None
    if releases == 1000:
        assert releases * len(SHAPES) * (below.false_rung + above.false_rung) < Fraction(1, 10**6)
    entropy, none = fixed(f"false rungs {shape}"), np.zeros_like(counts)
    for _ in range(releases):
        assert above.climb(counts, entropy) <= supported + 2
        assert below.climb(none, entropy) == 0


def test_the_old_ladder_had_them() -> None:
    ladder = Ladder(LOWEST, HIGHEST, Fraction(1, 3), 1)
    entropy, counts = fixed("old"), SHAPES["ages"]
    supported = int(np.flatnonzero(counts)[-1]) + 1
    false = sum(old_climb(ladder, counts, entropy) > supported + 2 for _ in range(2000))
    assert false > 5


@pytest.mark.parametrize("shape", ["ages", "lognormal"])
def test_no_worse_than_the_old_ladder_but_for_runaways(shape: str) -> None:
    """The right place as often as before: what bounds are found for people's ages, and for a tail."""
    ladder = Ladder(LOWEST, HIGHEST, Fraction(1, 3), 1)
    counts = SHAPES[shape].tolist()
    tolerance = math.ceil(-math.log(0.05) / ladder.rates[0])
    old = law_in_floats(ladder, counts, [(place, place, tolerance) for place in range(ladder.top)])
    new = law_in_floats(ladder, counts)
    usual = int(np.argmax(old))
    assert int(np.argmax(new)) == usual
    assert sum(new) == pytest.approx(1)
    assert sum(new[usual - 1 : usual + 2]) >= sum(old[usual - 1 : usual + 2])
    assert new[usual] >= old[usual] - 1e-9
    false = max(i for i, n in enumerate(counts) if n) + 4
    assert sum(new[false:]) < 1e-9 < 1e-3 < sum(old[false:])
