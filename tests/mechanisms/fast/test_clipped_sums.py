"""Clipped sums of what streams by: those of each row by itself, in crowded cells and in others."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dpsql.mechanisms.fast import clipped_sums
from dpsql.mechanisms.fast.clipped_sums import ClippedSums
from dpsql.mechanisms.fast.thresholds import Thresholds


@pytest.mark.parametrize("seed", range(30))
def test_the_same_sums(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(clipped_sums, "_LEAST_BITS", dice.choice([1, 3, 13]))
    monkeypatch.setattr(clipped_sums, "_MOST_BITS", dice.choice([14, 20]))
    monkeypatch.setattr(clipped_sums, "_ROWS", dice.choice([1, 50, 1 << 20]))
    if seed % 3 == 0:  # several thresholds in a cell
        monkeypatch.setattr(clipped_sums, "_MOST_BITS", clipped_sums._LEAST_BITS)
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
