"""Errors in rank of many quantiles of one column, from a tree and one by one. ``pytest -m accuracy -s`` has all draws."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql.mechanisms.order_statistics import WantedRank
from dpsql.mechanisms.quantile_tree import QuantileTree, expect_plain, expect_tree, make_tree_of
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.noise.entropy import Entropy
from tests.support.accuracy import Table
from tests.support.goodness import fixed

POINTS, ROWS, ONE = 1 << 15, 20_000, Fraction(1)


@cache
def rows_of(shape: str) -> NDArray[np.int64]:
    """Return the rows of each point."""
    rng = np.random.default_rng(9)
    places = {
        "even": np.arange(ROWS) * POINTS // ROWS,
        "skewed": np.minimum(np.exp(rng.normal(6, 1.5, ROWS)).astype(np.int64), POINTS - 1),
        "few values": rng.integers(0, 400, ROWS) * 80,
    }[shape]
    return np.bincount(places, minlength=POINTS)


def measure(part: Quantiles, shape: str, draws: int, entropy: Entropy) -> float:
    """Return the root mean squared distance in rank from the wanted ones, in rows: 0 at a value that holds the rank."""
    counts = rows_of(shape)
    held = np.flatnonzero(counts), counts[counts > 0]
    upto = np.cumsum(counts)
    targets = np.array([float(rank.p) * ROWS for rank in part.ranks])
    if isinstance(part, QuantileTree):
        found = np.array(part.read([held] * draws, entropy))
    else:
        found = np.array([part._choose(*held, entropy) for _ in range(draws)])
    miss = np.maximum(np.maximum(upto[found] - counts[found] - targets, targets - upto[found]), 0.0)
    return math.sqrt(float((miss**2).mean()))


@pytest.mark.parametrize("shape", ["even", "skewed", "few values"])
@pytest.mark.parametrize(("many", "most", "least"), [(5, 3.0, 0.3), (20, 0.75, 0.1), (99, 0.35, 0.03)])
@pytest.mark.parametrize("draws", [12, pytest.param(300, marks=pytest.mark.accuracy)])
def test_a_tree_is_better_from_some_number_on(
    accuracy: Table, many: int, most: float, least: float, shape: str, draws: int
) -> None:
    """As the figures of EXPLAIN say, which choose: five quantiles are better one by one, twenty from a tree."""
    ranks = tuple(WantedRank(Fraction(i, many + 1)) for i in range(1, many + 1))
    plain = Quantiles("q", (), ("q",) * many, ranks, 0, POINTS - 1, ONE)
    tree = make_tree_of(plain, ONE, 2)
    errors = [measure(part, shape, draws, fixed(f"{many} {shape} {draws}")) for part in (plain, tree)]
    told = [expect_plain(plain, ROWS)["q"], expect_tree(tree, ROWS)["q"]]
    assert least < errors[1] / errors[0] < most
    assert (told[1] < told[0]) == (many > 9)
    slack = 0.06 if draws > 100 else 0.3
    assert errors[1] < told[1] * (1 + slack)  # less where nodes hold fewer rows than their noise
    if shape == "even":
        assert abs(errors[0] / told[0] - 1) < slack
        assert errors[1] > 0.6 * told[1]
        assert (errors[1] < errors[0]) == (many > 9) or draws < 100
    if draws > 100:
        label = f"{many} quantiles of {ROWS:,} rows, {shape}: root mean square in rank"
        accuracy.lines.append((label, f"{errors[0]:.3g} (EVEN)", f"{errors[1]:.3g}", f"{told[1]:.3g}", ""))
