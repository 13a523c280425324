"""Published splits of epsilon between threshold and statistics, and how seldom a ladder stops too early."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpsql.mechanisms.selection.above_threshold import ThresholdNoise, split_epsilon

VECTORS = json.loads((Path(__file__).parents[1] / "published" / "vectors" / "vectors_svt.json").read_text())


@pytest.mark.parametrize("row", VECTORS["budget_split_eps1"], ids=lambda r: f"{r['c']} {r['kind']}")
def test_published_splits_and_what_they_gain(row: dict) -> None:
    c, monotone = row["c"], row["kind"] == "monotone"
    first, second = split_epsilon(Fraction(1), c, monotone)
    assert float(first) == pytest.approx(row["eps1_frac"], rel=1e-3)

    def deviation(e1: float, e2: float, laplace: bool = True) -> float:
        b1, b2 = 1 / e1, (1 if monotone else 2) * c / e2
        return math.sqrt((2 if laplace else 1) * (b1 * b1 + b2 * b2))

    best = deviation(float(first), float(second))
    assert best == pytest.approx(row["sd_gap_noise"], rel=1e-5)
    assert deviation(0.5, 0.5) == pytest.approx(row["sd_equal_split"])
    noise = ThresholdNoise(1, first, second, c, monotone)
    ours = math.hypot(float(1 / noise.threshold_rate), float(1 / noise.query_rate))
    assert ours == pytest.approx(row["exp_noise_sd"], rel=1e-5)
    assert math.sqrt(2) * math.hypot(2 * c, 4 * c) == pytest.approx(row["DR_restart_sd"])
    assert ours <= best <= row["sd_equal_split"] + 1e-9
    assert best <= row["DR_restart_sd"]
    for e1 in (0.8 * float(first), 1.2 * float(first)):  # there is no better one
        assert deviation(e1, 1 - e1) > best


@pytest.mark.parametrize("case", VECTORS["tutorial_false_stop"], ids=lambda c: f"{c['k']}")
def test_published_false_stops(case: dict) -> None:
    """With 50 rows above every bound, a ladder stops too early more seldom than the textbook's, and within its stated reach."""
    alpha = 8 * (math.log(case["k"]) + math.log(2 / 0.05)) / case["eps_svt"]
    assert alpha == pytest.approx(case["DR_alpha_beta05"])
    first, second = split_epsilon(Fraction(1, 3), 1, monotone=True)
    noise = ThresholdNoise(1, first, second, 1, monotone=True)
    assert noise.reach(0.95, case["k"]) < 0.6 * alpha
    a, b = (math.exp(-float(r)) for r in (noise.threshold_rate, noise.query_rate))
    z = np.arange(400)
    hit = b ** np.maximum(0, z + noise.centre - case["true_value"])
    ours = 1 - float(((1 - a) * a**z * (1 - hit) ** case["k"]).sum())
    assert ours < case["prob_false_stop"]
