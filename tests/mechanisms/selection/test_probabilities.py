"""The chances of candidates, against closed forms, enumeration of permutations, and the shipped samplers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.selection.exponential import (
    exponential_probabilities,
    noisy_max_probabilities,
    permute_and_flip_probabilities,
)
from dpsql.noise.selection import choose_exponential, permute_and_flip
from tests.support.goodness import fixed

UTILITIES = [0.0, 3.0, 2.5, 3.0, -1.0]
ALL = [exponential_probabilities, permute_and_flip_probabilities, noisy_max_probabilities]


@pytest.mark.parametrize("chances", ALL)
def test_chances_add_up_and_follow_the_utilities(chances: object) -> None:
    for rate in (0.01, 1.0, 7.0):
        found = chances(UTILITIES, rate)
        assert found.sum() == pytest.approx(1, abs=1e-9)
        assert found[1] == pytest.approx(found[3])
        assert found[1] > found[2] > found[0] > found[4] > 0
    assert chances([4.0], 1.0).tolist() == pytest.approx([1.0])
    for wrong in (([], 1.0), ([1.0, math.nan], 1.0), ([1.0], 0.0)):
        with pytest.raises(ValueError, match="rate"):
            chances(*wrong)


def test_permute_and_flip_equals_its_definition() -> None:
    """Candidates in a random order, each taken with the chance of its weight; again until one is."""
    weights = [math.exp(u - max(UTILITIES)) for u in UTILITIES]
    taken = np.zeros(len(weights))
    orders = list(itertools.permutations(range(len(weights))))
    for order in orders:
        left = 1.0
        for r in order:
            taken[r] += left * weights[r] / len(orders)
            left *= 1 - weights[r]
    assert permute_and_flip_probabilities(UTILITIES, 1.0) == pytest.approx(taken)


def test_noisy_max_of_two_has_a_closed_form() -> None:
    for gap in (0.0, 0.7, 3.0):
        first = 1 - math.exp(-gap) * (2 + gap) / 4
        assert noisy_max_probabilities([gap, 0.0], 1.0)[0] == pytest.approx(first, rel=1e-9)


@pytest.mark.parametrize(
    ("draw", "chances", "other"),
    [
        (choose_exponential, exponential_probabilities, permute_and_flip_probabilities),
        (permute_and_flip, permute_and_flip_probabilities, exponential_probabilities),
    ],
)
def test_the_shipped_samplers_have_these_chances(draw: object, chances: object, other: object) -> None:
    """The chances hold by a chi-square test, with the other mechanism's chances as the control."""
    scores, n = np.array([0, 3, 2, 3, -1]), 15_000
    entropy = fixed(f"chances {draw.__name__}")  # type: ignore[attr-defined]
    seen = Counter(draw(scores, Fraction(1, 2), entropy) for _ in range(n))
    deviations = [
        sum((seen[r] - n * p) ** 2 / (n * p) for r, p in enumerate(law(scores.tolist(), 0.5)))
        for law in (chances, other)
    ]
    assert deviations[0] < 33  # a chance of 1e-6 with four degrees of freedom
    assert deviations[1] > 60  # about a hundred and thirty
