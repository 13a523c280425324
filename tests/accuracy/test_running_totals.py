"""Errors of running totals and of all ranges by each strategy, beside closed forms. Run with ``pytest -m accuracy -s``."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.ordered_noise import OrderedNoise, make_square_root, make_tree
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise, Noise
from tests.support.accuracy import Table
from tests.support.goodness import fixed
from tests.support.ordered import draw_errors, read_root

PAIR = (Fraction(1), Fraction(1, 10**6))
CASES: dict[str, tuple[Callable[[Noise, int], OrderedNoise], Noise]] = {
    "TREE, Laplace": (make_tree, LaplaceNoise(Fraction(1), 1, 1)),
    "TREE, Gaussian": (make_tree, GaussianNoise.calibrate(*PAIR, 1, 1)),
    "SQUARE_ROOT, Gaussian": (make_square_root, GaussianNoise.calibrate(*PAIR, 1, 1)),
}


@pytest.mark.accuracy
@pytest.mark.parametrize("what", ["running totals", "all ranges"])
@pytest.mark.parametrize("steps", [12, 365, 1096])
@pytest.mark.parametrize("name", CASES)
def test_sums_are_off_by_the_closed_form(accuracy: Table, name: str, steps: int, what: str) -> None:
    """Within 5 % of it; a tenth more noise, or less, is not."""
    make, base = CASES[name]
    noise = make(base, steps)
    if what == "running totals":
        first, last = np.zeros(steps, dtype=np.intp), np.arange(steps)
    else:
        ends = np.unique(np.linspace(0, steps - 1, 60).astype(np.intp))
        first, last = (
            np.array(side) for side in zip(*[(a, b) for a in ends for b in ends if a <= b], strict=True)
        )
    rounded = 1 / 12 if what == "running totals" else 1 / 6
    closed = math.sqrt(noise.expect_variances(first, last).mean() + rounded)
    plain = math.sqrt(base.variance * np.mean(last - first + 1.0))
    roots = {}
    for factor in (0.9, 1.0, 1.1):
        errors = draw_errors(noise, 2500, fixed(f"{name} {steps} {what} {factor}"), factor)
        roots[factor] = read_root(errors, first, last)
    assert abs(roots[1.0] / closed - 1) < 0.05
    assert abs(roots[0.9] / closed - 1) > 0.05
    assert abs(roots[1.1] / closed - 1) > 0.05
    label = f"{what} of {steps:,} steps, {name}: root mean square"
    accuracy.lines.append((label, f"{plain:.3g} (EVEN)", f"{roots[1.0]:.3g}", f"{closed:.3g}", ""))
