"""Numbers of blocks without bounds: the whole law of what is released, on neighbouring results, and what it gives."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.ptr.stability_test import OptimalTest, make_stability_test
from dpsql.mechanisms.ptr.trimmed import (
    SCALE_STEPS,
    Ranked,
    ScaleBins,
    count_trimmed,
    measure_substitution_radius,
)
from dpsql.mechanisms.subsample.subsample import ConsensusMean, _rank
from tests.support.goodness import fixed

DELTA = Fraction(1, 10**6)
Law = dict[object, NDArray[np.float64]]


def consensus(epsilon: Fraction = Fraction(1), trim: Fraction = Fraction(1, 4)) -> ConsensusMean:
    test = make_stability_test("AUTO", 3 * epsilon / 8, DELTA / 2)
    return ConsensusMean("m", test, LaplaceNoise(epsilon / 4, SCALE_STEPS), trim)


def combine(
    combiner: ConsensusMean, values: Sequence[object]
) -> tuple[dict[str, float | None], tuple[str, ...]]:
    made, notes = combiner.combine(values, pa.float64(), fixed(f"consensus {combiner.noise}"), 0.95)
    return {name: column.to_pylist()[0] for name, column in made.items()}, notes


# -- the law ------------------------------------------------------------------------------------------------------

TEST = OptimalTest(Fraction(1), Fraction(1, 50))
NOISE = Fraction(1)
REACH = 12 * SCALE_STEPS
TRIM = Fraction(1, 4)


def law(values: Sequence[float | None], shrunk: int = 1) -> Law:
    """The chance of NULL, and of each place on the grid by the row of bins and its exponent; ``shrunk`` noise is too little."""
    ranked = _rank(values)
    left = count_trimmed(len(ranked), TRIM)
    found: Law = {}
    reach = 1.0
    for row in (0, 1):
        radius, exponent = measure_substitution_radius(
            Ranked(len(ranked), [(1, ranked)]), TRIM, ScaleBins(2), row, TEST.cap
        )
        passed = reach * TEST.probability(radius)
        reach -= passed
        kept = [Fraction(v) if math.isfinite(v) else Fraction(0) for v in ranked[left : len(ranked) - left]]
        place = math.floor(sum(kept, Fraction(0)) / len(kept) * SCALE_STEPS / Fraction(2) ** exponent)
        ratio = math.exp(-float(NOISE) * shrunk / SCALE_STEPS)
        at = np.abs(np.arange(-REACH, REACH) - place)
        found[row, exponent] = passed * (1 - ratio) / (1 + ratio) * ratio**at
    found["null"] = np.array([reach])
    return found


def hockey_stick(one: Law, two: Law, epsilon: float) -> float:
    total = 0.0
    for key, chances in one.items():
        others = two.get(key, np.zeros(1))
        total += float(np.maximum(chances - math.exp(epsilon) * others, 0).sum())
    return total


def pairs(count: int) -> list[tuple[list[float | None], list[float | None]]]:
    """Results of blocks, and with one of them replaced, also by none."""
    rng, found = random.Random(3), []
    for i in range(count):
        spread = rng.choice([1, 2, 3, 5, 9])
        values: list[float | None] = [
            rng.choice([0, 1, 2, 3, 4]) * spread / 4 for _ in range(rng.choice([16, 20, 33]))
        ]
        if i % 4 == 0:
            values[: rng.randrange(4)] = [None] * rng.randrange(1, 4)
        other = list(values)
        other[rng.randrange(len(values))] = rng.choice([None, -100.0, 100.0, 0.0, spread, spread * 0.75])
        found.append((values, other))
    return found


def test_no_pair_of_results_is_told_apart_by_more_than_is_charged() -> None:
    charged = ConsensusMean("m", TEST, LaplaceNoise(NOISE, SCALE_STEPS), TRIM).event.basic
    assert charged[0] <= 2 * TEST.epsilon + NOISE + Fraction(1, 10**6)
    worst = wrong = 0.0
    for values, other in pairs(150):
        laws, shrunk = [[law(v, times) for v in (values, other)] for times in (1, 8)]
        for one, two in itertools.permutations((0, 1)):
            worst = max(worst, hockey_stick(laws[one], laws[two], float(charged[0])))
            wrong = max(wrong, hockey_stick(shrunk[one], shrunk[two], float(charged[0])))
    assert worst <= float(charged[1]) * (1 + 1e-9)
    assert worst > 0  # far pairs are told apart with a chance of delta
    assert wrong > float(charged[1]), "noise at an eighth of the scale would do as well"


def test_missing_results_are_one_replacement_each() -> None:
    for values in ([1.0, None, 2.0, None, None], [None], [1.0]):
        ranked = _rank(values)
        for i in range(len(values)):
            for new in (None, 7.0):
                other = _rank([*values[:i], new, *values[i + 1 :]])
                left = list(ranked)
                for value in other:
                    if value in left:
                        left.remove(value)
                assert len(left) <= 1


# -- what it gives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_blocks_that_agree_give_their_mean_at_any_scale(scale: float) -> None:
    rng = random.Random(4)
    values = [scale * (rng.gauss(0, 1) + 5) for _ in range(512)]
    row, notes = combine(consensus(Fraction(2)), values)
    assert notes == ()
    assert row["m"] is not None
    assert row["m"] / scale == pytest.approx(5, abs=1.5)
    low, high = row["m__low"], row["m__high"]
    assert low is not None
    assert high is not None
    assert low < row["m"] < high


def test_a_few_wild_results_and_a_few_missing_do_not_matter() -> None:
    rng = random.Random(5)
    values: list[object] = [rng.gauss(0, 1) for _ in range(452)]
    values += [math.inf, -math.inf, math.nan, None, "text", object()] * 5 + [1e300] * 30
    row, notes = combine(consensus(Fraction(3)), values)
    assert notes == ()
    assert row["m"] == pytest.approx(0, abs=1)


@pytest.mark.parametrize("values", [[], [1.0], [None] * 512, [1.0] * 100 + [None] * 300, [1.0, 2.0] * 8])
def test_too_little_is_null(values: list[float | None]) -> None:
    row, notes = combine(consensus(Fraction(1, 2)), values)
    assert row == {"m": None, "m__low": None, "m__high": None}
    assert "not stable" in notes[0]


def test_equal_results_are_stable() -> None:
    row, _ = combine(consensus(), [7.0] * 512)
    assert row["m"] == pytest.approx(7.0)


@pytest.mark.parametrize("trim", [Fraction(0), Fraction(1, 2)])
def test_what_can_not_be_trimmed(trim: Fraction) -> None:
    with pytest.raises(ValueError, match="trim"):
        consensus(trim=trim)
    with pytest.raises(ValueError, match="noise"):
        ConsensusMean("m", TEST, LaplaceNoise(NOISE, 5))
