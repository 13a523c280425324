"""The noise of the answers beside a choice: each from its own share, which all that are answered have in common."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_SCORE
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.queries import CANDIDATE_PLACE
from dpsql.mechanisms.selection.above_threshold import AboveThreshold, ThresholdNoise
from dpsql.mechanisms.selection.exponential import ExponentialChoice
from dpsql.noise.entropy import Entropy

SHARE, SENSITIVITY = Fraction(1, 4), 7
TABLE = pa.table(
    {"k": [0, 1, 2, 3], CANDIDATE_PLACE: [0, 1, 2, 3], CANDIDATE_SCORE: [50_000, 10, 60_000, 70_000]}
)


@pytest.fixture
def scales(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Fraction, list[int]]]:
    """The scale of the noise of each draw, and what it was added to."""
    found: list[tuple[Fraction, list[int]]] = []
    drawn = LaplaceNoise.add

    def add(noise: LaplaceNoise, values: Sequence[int], entropy: Entropy) -> np.ndarray:
        found.append((noise.scale, [int(v) for v in values]))
        return drawn(noise, values, entropy)

    monkeypatch.setattr(LaplaceNoise, "add", add)
    return found


@pytest.mark.parametrize(
    ("allowed", "hits"), [(1, [50_000]), (2, [50_000, 60_000]), (9, [50_000, 60_000, 70_000])]
)
@pytest.mark.parametrize("refresh", [False, True])
def test_hits_share_it(
    scales: list[tuple[Fraction, list[int]]], allowed: int, hits: list[int], refresh: bool
) -> None:
    noise = ThresholdNoise(SENSITIVITY, Fraction(100), Fraction(1000), allowed, True, refresh)
    AboveThreshold(("q",), ("k",), 30_000, noise, answer=("a", SHARE)).release(lambda sql: TABLE, Entropy())
    assert scales == [(len(hits) * SENSITIVITY / SHARE, hits)]


@pytest.mark.parametrize("method", ["exponential", "permute_and_flip", "noisy_max"])
@pytest.mark.parametrize("top", [1, 3])
def test_winners_share_it(scales: list[tuple[Fraction, list[int]]], method: str, top: int) -> None:
    choice = ExponentialChoice(
        ("q",), ("k",), SENSITIVITY, Fraction(100), True, method, top, answer=("a", SHARE)  # type: ignore[arg-type]
    )  # fmt: skip
    choice.release(lambda sql: TABLE, Entropy())
    assert scales == [(top * SENSITIVITY / SHARE, [70_000, 60_000, 50_000][:top])]
