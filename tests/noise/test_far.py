"""Candidates far below the best are counted, not looked at: the laws stay what they are, to the last bit of probability."""

from __future__ import annotations

import itertools
import math
import os
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.selection import generalised_exponential
from dpsql.mechanisms.selection.generalised_exponential import (
    SCORE_GRID,
    compute_generalised_gaps,
    compute_generalised_scores,
)
from dpsql.noise import selection
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import (
    CandidateGaps,
    choose_exponential,
    compute_reach,
    permute_and_flip,
    toss_rare_coins,
)
from tests.support.goodness import REFUSED, fixed, p_value

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
    for sampler in (permute_and_flip, choose_exponential):
        assert sampler(scores, Fraction(1), entropy) == 123_456
    assert sum(drawn) <= 1 << 17


def test_places_of_the_far_ones() -> None:
    field = CandidateGaps(10, np.array([0, 1, 2]), np.array([0, 4, 9]), 5, lambda i: 100 + i)
    assert [field.beyond(j) for j in range(field.far)] == [(i, 100 + i) for i in (1, 2, 3, 5, 6, 7, 8)]


@pytest.mark.parametrize("seed", range(8))
def test_unequal_candidates(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The near ones' scores are those of all together; the others are farther than they are said to be."""
    monkeypatch.setattr(generalised_exponential, "FEW_CANDIDATES", 0)
    dice = np.random.default_rng(seed)
    own = dice.integers(0, 200, 400)
    utilities = dice.integers(-(10**6), 10**6, 400) if seed % 2 else own * dice.integers(0, 10**4, 400)
    rate, t = Fraction(1, 2 * SCORE_GRID) * (1 + seed % 3), 5
    field = compute_generalised_gaps(utilities, own, t, rate)
    whole = compute_generalised_scores(utilities, own, t)
    gaps = int(whole.max()) - whole
    assert field.near is not None
    assert 0 < len(field.near) < 400
    assert gaps[field.near].tolist() == field.gaps.tolist()
    far = [field.beyond(j) for j in range(field.far)]
    assert sorted([*field.near.tolist(), *(i for i, _ in far)]) == list(range(400))
    assert all(gap == gaps[i] > compute_reach(rate) for i, gap in far)
