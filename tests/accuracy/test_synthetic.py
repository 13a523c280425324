"""Synthetic rows beside the private ones: how far their marginals are apart, with the package that fits models.

20,000 rows of four columns at ε = 1 (δ = 1e-6), a row for each unit: the total variation distance of the two-way marginals is
to be 0.005 at most in the mean, and that of each three-way one 0.02.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

import dpsql

ROWS = 20_000
COLUMNS = ("ward", "urgent", "age_band", "sex")
POLICY = """
budget = { epsilon = 100, delta = 1e-3, accountant = "basic" }
[tables]
visits = { privacy_unit = "patient", max_rows = 1, max_groups = 1, columns = { ward = { values = ["A", "B", "C"] }, \
    age_band = { bounds = [0, 4] }, sex = { values = ["f", "m"] } } }
"""


def make_visits() -> pa.Table:
    """Return rows in which each column depends on those before it, in threes too."""
    rng = np.random.default_rng(25)
    ward = rng.choice(3, ROWS, p=[0.5, 0.3, 0.2])
    sex = rng.random(ROWS) < 0.5 + 0.1 * (ward == 1)
    urgent = rng.random(ROWS) < np.where(ward == 0, 0.2, 0.6) + 0.15 * sex * (ward == 2)
    band = np.minimum(rng.poisson(np.where(urgent ^ sex, 3, 1.5)), 4)
    return pa.table({
        "patient": np.arange(ROWS), "ward": np.array(list("ABC"))[ward], "urgent": urgent, "age_band": band,
        "sex": np.where(sex, "f", "m"),
    })  # fmt: skip


def measure_distance(one: pa.Table, other: pa.Table, columns: Sequence[str]) -> float:
    """Return the total variation distance of two tables' marginals."""
    counts = [Counter(zip(*(t.column(c).to_pylist() for c in columns), strict=True)) for t in (one, other)]
    cells = {*counts[0], *counts[1]}
    return sum(abs(counts[0][c] / one.num_rows - counts[1][c] / other.num_rows) for c in cells) / 2


@pytest.mark.accuracy
@pytest.mark.parametrize("draw", range(3))
def test_marginals_of_synthetic_rows(draw: int) -> None:
    pytest.importorskip("mbi", reason="the extra synthetic is not installed: pip install '.[synthetic]'")
    visits = make_visits()
    with dpsql.connect({"visits": visits}, policy=dpsql.Policy.loads(POLICY)) as session:
        listed = ", ".join(COLUMNS)
        made = session.synthesise(f"SELECT WITH DP OPTIONS (epsilon = 1, delta = 1e-6) {listed} FROM visits")
        assert session.budget().left_epsilon == 99
    found = {
        size: [measure_distance(visits, made.table, c) for c in itertools.combinations(COLUMNS, size)]
        for size in (2, 3)
    }
    for size, distances in found.items():
        print(
            f"draw {draw}: {size}-way distances {[round(d, 4) for d in distances]}, mean {statistics.mean(distances):.4f}"
        )
    assert statistics.mean(found[2]) <= 0.005
    assert max(found[3]) <= 0.02
    assert abs(len(made) - ROWS) < 100
