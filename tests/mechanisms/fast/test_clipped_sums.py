"""Clipped sums of what streams by: those of each row by itself, in crowded cells and in others."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dpsql.mechanisms.fast import candidate_scores, thresholds
from dpsql.mechanisms.fast.candidate_scores import ClippedSums
from dpsql.mechanisms.fast.thresholds import Thresholds


@pytest.mark.parametrize("seed", range(30))
def test_the_same_sums(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(thresholds, "_LEAST_BITS", dice.choice([1, 3, 13]))
    monkeypatch.setattr(thresholds, "_MOST_BITS", dice.choice([14, 20]))
    monkeypatch.setattr(candidate_scores, "_MOST_POWER", dice.choice([0, 1, 6, 19]))
    monkeypatch.setattr(candidate_scores, "BLOCK_ROWS", dice.choice([40, 1 << 15]))
    if seed % 3 == 0:  # several thresholds in a cell
        monkeypatch.setattr(thresholds, "_MOST_BITS", thresholds._LEAST_BITS)
    low, width = dice.choice([0, -50, 1000, -(2**30)]), dice.choice([5, 300, 2**20, 2**30])
    near = [low + dice.randint(-3, width) for _ in range(12)]
    clips = np.array(dice.choices(near, k=9))
    x = np.array(dice.choices([*near, low - 7, 2**62, -(2**62), low + 2 * width], k=200))
    high = max(low, int(clips.max()) + 1)
    missing = np.arange(9) == 4 if seed % 2 else None
    end, other = Thresholds(clips, 0, missing), Thresholds(clips[:3] + 1)
    sums = ClippedSums([end, other], low, max(high, int(clips[:3].max()) + 2))
    for part in (x[:0], x[:70], x[70:]):
        sums.add(part)
    for ends in (end, other):
        wanted = [sum(min(max(a, low), b) for a in x.tolist()) for b in ends.values.tolist()]
        if ends.missing is not None:
            wanted[4] = 0
        assert sums.clipped(ends).tolist() == wanted


@pytest.mark.parametrize("high", [10**8, 2**31 - 1])
def test_as_many_rows_as_are_summed_at_once(high: int) -> None:
    """All of them as far from the starts of their cells as can be, and more than are summed at once: exact all the same."""
    low = -high if high > 10**9 else 0
    clips = np.array([1, high // 3, high - 5])
    sums = ClippedSums([Thresholds(clips)], low, high)
    rows = {high: 700_000, low: 600_000, high // 3 - 1: 530_000, high // 3: 540_000}
    sums.add_all(np.full(n, value) for value, n in rows.items())
    wanted = [sum(n * min(value, clip) for value, n in rows.items()) for clip in clips.tolist()]
    assert sums.clipped(Thresholds(clips)).tolist() == wanted
