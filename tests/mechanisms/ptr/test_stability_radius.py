"""Radii of quantiles, modes, argmaxes, gaps and votes against exhaustive search."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from dpsql.mechanisms.ptr.stability_test import (
    convert_to_units,
    measure_gap_radius,
    measure_votes_radius,
)


def test_gap_radius_needs_the_middle_only() -> None:
    rng = np.random.default_rng(1)
    for n in (50, 51, 400, 1001):
        values = sorted(int(v) for v in rng.integers(0, 400, n))
        for bound in (0, 2, 6, 15):
            for cap in (1, 4, 20):
                whole = measure_gap_radius(n, 1, values, bound, 10**6)
                first = max(1, n // 2 - cap - 2)
                last = min(n, n // 2 + cap + 3)
                assert measure_gap_radius(n, first, values[first - 1 : last], bound, cap) == min(whole, cap)


@pytest.mark.parametrize("runs", [1, 3])
def test_votes(runs: int) -> None:
    """One unit changes at most ``runs`` votes: the radius is 1-Lipschitz, and 0 where the winner can
    change.
    """
    rng = random.Random(2)
    changed = 0
    for _ in range(6000):
        votes = [rng.choice("aaab" if rng.random() < 0.5 else "aab") for _ in range(rng.randrange(runs, 31))]
        other = votes.copy()
        for i in rng.sample(range(len(votes)), runs):
            other[i] = rng.choice("abc")
        results = []
        for v in (votes, other):
            top = sorted(Counter(v).items(), key=lambda item: (-item[1], item[0]))
            results.append(
                (top[0][0], measure_votes_radius(top[0][1], top[1][1] if len(top) > 1 else 0, runs))
            )
        assert abs(results[0][1] - results[1][1]) <= 1
        if results[0][0] != results[1][0]:
            changed += 1
            assert results[0][1] == results[1][1] == 0
    assert changed > 20


def test_per_unit_is_a_sound_radius() -> None:
    """Rows radii m edits apart differ by at most one as unit radii; a unit radius above 0 needs m safe
    rows.
    """
    for rows in (1, 2, 5):
        for d in range(60):
            assert all(
                abs(convert_to_units(d, rows) - convert_to_units(e, rows)) <= 1
                for e in range(d, d + rows + 1)
            )
            assert convert_to_units(d, rows) == 0 or d >= rows
