"""Candidates far below the best are counted, not looked at: the laws stay what they are, to the last bit of probability."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.mechanisms.selection import utilities as utilities_module
from dpsql.mechanisms.selection.utilities import (
    SCORE_GRID,
    compute_generalised_gaps,
    compute_generalised_scores,
)
from dpsql.noise import selection
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import (
    CandidateGaps,
    choose_exponential,
    choose_noisy_max,
    compute_reach,
    permute_and_flip,
    toss_rare_coins,
)
from tests.support.goodness import REFUSED, fixed, p_value
from tests.support.selection_laws import laplace

SCORES = np.array([3, 9, 0, 8, 5, 9, 1, 2, 7])
RATE = Fraction(1, 3)


def weights(scores: np.ndarray) -> list[float]:
    return [math.exp(float(RATE) * (int(s) - int(scores.max()))) for s in scores]


def flipped(w: list[float]) -> list[float]:
    """Permute-and-flip, by inclusion and exclusion over those that come before."""
    law = []
    for r, mine in enumerate(w):
        others = [x for i, x in enumerate(w) if i != r]
        subsets = (s for k in range(len(others) + 1) for s in itertools.combinations(others, k))
        law.append(mine * sum((-1) ** len(s) / (len(s) + 1) * math.prod(s) for s in subsets))
    return law


@pytest.mark.parametrize("bits", [1, 2, 3])
@pytest.mark.parametrize("sampler", [permute_and_flip, choose_exponential])
def test_the_law_is_the_same_wherever_far_begins(
    sampler: object, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "FEW_CANDIDATES", 0)
    monkeypatch.setattr(selection, "FAR_BITS", bits)
    assert 0 < CandidateGaps.of(SCORES, RATE).far < len(SCORES)
    entropy, w = fixed("far"), weights(SCORES)
    sample = np.array([sampler(SCORES, RATE, entropy) for _ in range(3000)])  # type: ignore[operator]
    total = sum(w)
    law = flipped(w) if sampler is permute_and_flip else [x / total for x in w]
    assert sum(law) == pytest.approx(1)
    assert p_value(sample, lambda v: law[v] if v < 9 else 0.0, signed=False) > REFUSED
    near = [x if s >= 9 - compute_reach(RATE) else 0.0 for x, s in zip(w, SCORES, strict=True)]
    cut = flipped(near) if sampler is permute_and_flip else [x / sum(near) for x in near]
    if bits < 3:  # forgetting the far ones is another law
        assert max(abs(a - b) for a, b in zip(law, cut, strict=True)) > 0.01
        held = sample[np.isin(sample, np.flatnonzero(np.array(cut) == 0))]
        assert len(held) > 0


def field_of(scores: Sequence[int], reach: int) -> CandidateGaps:
    best = max(scores)
    near = np.array([i for i, s in enumerate(scores) if s >= best - reach])
    gaps = np.array([best - scores[i] for i in near])
    return CandidateGaps(len(scores), gaps, near, reach, lambda i: best - scores[i])


@pytest.mark.parametrize("reach", [1, 2, 3, 4])
@pytest.mark.parametrize("scores", [(9, 3, 8, 4, 5, 4, 9, 4), (4, 9), (4, 4, 9, 4)])
def test_the_noisy_maximum_wherever_far_begins(scores: tuple[int, ...], reach: int) -> None:
    entropy, field = fixed(f"noisy {reach}"), field_of(scores, reach)
    assert field.far >= len(scores) // 2
    sample = np.array([choose_noisy_max(field, 1 / RATE, entropy) for _ in range(3000)])
    assert fits(sample, laplace(scores, 3.0))
    assert not fits(sample, laplace(scores, 2.2))


def fits(sample: np.ndarray, law: Sequence[float]) -> bool:
    """Compare draws with a law by a chi-square test, the likeliest first."""
    order = np.argsort(law)[::-1]
    rank = np.argsort(order)[sample]
    return p_value(rank, lambda v: law[order[v]] if v < len(law) else 0.0, signed=False) > REFUSED


@pytest.mark.parametrize("forgotten", ["_draw_great", "_draw_small"])
def test_noise_of_the_far_ones_that_is_forgotten_is_found_out(
    forgotten: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: neither the great noise of far candidates nor the small may be left out."""
    none = {"_draw_great": lambda *_: {}, "_draw_small": lambda bound, scale, n, entropy: [-(10**6)] * n}
    monkeypatch.setattr(selection, forgotten, none[forgotten])
    scores, entropy = (9, 5, 5), fixed("forgotten")
    sample = np.array([choose_noisy_max(field_of(scores, 3), 1 / RATE, entropy) for _ in range(3000)])
    assert not fits(sample, laplace(scores, 3.0))


@pytest.mark.parametrize(("least", "rate"), [(1, Fraction(1, 3)), (2, Fraction(2)), (5, Fraction(1, 4))])
def test_great_noise(least: int, rate: Fraction) -> None:
    """It is the upper tail of a discrete Laplace variable, and small noise is the rest of it."""
    entropy, n, times = fixed("great"), 12, 500
    x, sample = math.exp(-float(rate)), list[int]()
    chance = x**least / (1 + x)
    for _ in range(times):
        found = selection._draw_great(n, least, rate, entropy)
        assert list(found) == sorted(found)
        assert all(0 <= j < n for j in found)
        sample += found.values()
    assert abs(len(sample) - n * times * chance) < 6 * math.sqrt(n * times * chance)
    beyond = np.array(sample) - least
    assert p_value(beyond, lambda k: (1 - x) * x**k, signed=False) > REFUSED
    small = least - 1 - np.array(selection._draw_small(least, 1 / rate, n * times, entropy))
    whole = (1 - x) / (1 + x) / (1 - chance)
    assert p_value(small, lambda k: whole * x ** abs(least - 1 - k), signed=False) > REFUSED


def test_great_noise_of_extreme_rates() -> None:
    entropy = Entropy()
    assert selection._draw_great(10**6, 1, Fraction(10**9), entropy) == {}
    some = [len(selection._draw_great(4, 1, Fraction(1, 10**30), entropy)) for _ in range(250)]
    assert 350 < sum(some) < 650
    assert choose_noisy_max(np.array([0, *[-5] * 5000]), Fraction(1, 10**6), entropy) == 0


@pytest.mark.parametrize("top", [1, 2, 3, 6])
@pytest.mark.parametrize("sampler", [permute_and_flip, choose_exponential, "noisy"])
def test_those_that_are_left(sampler: Any, top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of the gaps after winners of any place are the gaps of what is left."""
    monkeypatch.setattr(selection, "FEW_CANDIDATES", 0)
    monkeypatch.setattr(selection, "FAR_BITS", 2)
    dice = np.random.default_rng(top)
    for _ in range(60):
        scores = dice.integers(0, 30, 12) if dice.random() < 0.5 else dice.integers(0, 4, 12) * 9
        field, left = CandidateGaps.of(scores, RATE, top), list(range(12))
        for _ in range(top - 1):
            gone = int(dice.choice(left))
            left.remove(gone)
            field = field.without(gone)
            best = max(int(scores[i]) for i in left)
            near = {field.index(k): int(gap) for k, gap in enumerate(field.gaps)}
            far = dict(field.beyond(j) for j in range(field.far))
            assert 0 in near.values()
            assert near | far == {i: best - int(scores[i]) for i in left}
            assert dict(field.list_far() if field.far else ()) == far
            assert all(gap > field.reach for gap in far.values())
            assert not far or field.reach >= compute_reach(RATE)
        draw = (lambda f, rate, e: choose_noisy_max(f, 1 / rate, e)) if sampler == "noisy" else sampler
        assert draw(field, RATE, Entropy()) in left


def test_the_law_of_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "FEW_CANDIDATES", 0)
    monkeypatch.setattr(selection, "FAR_BITS", 1)
    field = CandidateGaps.of(SCORES, RATE, 2).without(1).without(2)  # one of the best, and 0, which is far
    assert field.far > 2
    left = [i for i in range(9) if i not in (1, 2)]
    entropy, others = fixed("left"), [int(SCORES[i]) for i in left]
    w = weights(np.array(others))
    laws = {
        permute_and_flip: flipped(w),
        choose_exponential: [x / sum(w) for x in w],
        choose_noisy_max: laplace(others, 3.0),
    }
    for sampler, law in laws.items():
        rate = 1 / RATE if sampler is choose_noisy_max else RATE
        sample = np.array([left.index(sampler(field, rate, entropy)) for _ in range(3000)])
        assert fits(sample, law), sampler
        assert not fits(sample, [1 / 7] * 7)


@pytest.mark.parametrize(("coins", "bits"), [(1, 1), (3, 1), (4, 2), (5, 3)])
def test_rare_coins_are_independent(coins: int, bits: int) -> None:
    entropy, p = fixed("rare"), 2.0**-bits
    sample = np.array([sum(1 << i for i in toss_rare_coins(coins, bits, entropy)) for _ in range(3000)])
    law = [p ** v.bit_count() * (1 - p) ** (coins - v.bit_count()) for v in range(1 << coins)]
    assert p_value(sample, lambda v: law[v] if v < len(law) else 0.0, signed=False) > REFUSED
    even = [1 / len(law)] * len(law)
    if bits > 1:
        assert p_value(sample, lambda v: even[v] if v < len(even) else 0.0, signed=False) < REFUSED


@pytest.mark.parametrize(("coins", "bits"), [(1, 1), (7, 1), (10, 3), (1000, 12), (10**6, 60)])
def test_the_chance_of_none_is_enclosed(coins: int, bits: int) -> None:
    exact = (1 - Fraction(1, 1 << bits)) ** coins if coins < 2000 else None
    for b in (0, 1, 30, 64, 200):
        low, high = selection._none_of(coins, bits)(b)
        assert 0 <= high - low <= 3
        assert high <= 1 << b
        if exact is not None:
            assert low <= exact * 2**b <= high


def test_few_bits_are_needed() -> None:
    """Among a million candidates far below the best, none costs a draw of its own."""
    scores = np.zeros(1_000_000, dtype=np.int64)
    scores[123_456] = 10**6
    drawn: list[int] = []

    def source(n: int) -> bytes:
        drawn.append(n)
        return os.urandom(n)

    entropy = Entropy(source)
    for sampler in (permute_and_flip, choose_exponential, choose_noisy_max):
        assert sampler(scores, Fraction(1), entropy) == 123_456
    assert sum(drawn) <= 1 << 17


def test_places_of_the_far_ones() -> None:
    field = CandidateGaps(10, np.array([0, 1, 2]), np.array([0, 4, 9]), 5, lambda i: 100 + i)
    assert [field.beyond(j) for j in range(field.far)] == [(i, 100 + i) for i in (1, 2, 3, 5, 6, 7, 8)]


@pytest.mark.parametrize("seed", range(8))
def test_unequal_candidates(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The near ones' scores are those of all together; the others are farther than they are said to be."""
    monkeypatch.setattr(utilities_module, "FEW_CANDIDATES", 0)
    dice = np.random.default_rng(seed)
    own = dice.integers(0, 200, 400)
    utilities = dice.integers(-(10**6), 10**6, 400) if seed % 2 else own * dice.integers(0, 10**4, 400)
    rate, t = Fraction(1, 2 * SCORE_GRID) * (1 + seed % 3), 5
    field = compute_generalised_gaps(utilities, own, t, rate)
    whole = compute_generalised_scores(utilities, own, t)
    gaps = int(whole.max()) - whole
    assert 0 < len(field.near) < 400
    assert gaps[field.near].tolist() == field.gaps.tolist()
    far = [field.beyond(j) for j in range(field.far)]
    assert sorted([*field.near.tolist(), *(i for i, _ in far)]) == list(range(400))
    assert all(gap == gaps[i] > compute_reach(rate) for i, gap in far)
