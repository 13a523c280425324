"""The Scale statistic against exhaustive search, the published vectors, and its Lipschitz property."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from dpsql.mechanisms.ptr import stability_radius
from dpsql.mechanisms.ptr.stability_radius import (
    NEVER,
    Neighbours,
    Ordered,
    measure_bin_distance,
    measure_scale_radius,
)
from tests.support.exhaustive import edits_to_another_answer

VECTORS = Path(__file__).parents[2] / "published" / "vectors"
AR, SUB = Neighbours.ADD_REMOVE, Neighbours.SUBSTITUTE


def ordered(values: object) -> Ordered:
    return Ordered.all(np.sort(np.asarray(values, dtype=np.float64)))


def exact_bin(values: tuple[float, ...], which: int) -> float:
    """The bin, from integers and squares only (values are integers here)."""
    n = len(values)
    if n < 2:
        return -math.inf
    ranked = sorted(values)
    spread = int(ranked[math.ceil(3 * n / 4) - 1]) - int(ranked[math.ceil(n / 4) - 1])
    if spread == 0:
        return -math.inf
    k = -2
    if which == 1:
        while spread >= 2 ** (k + 1):
            k += 1
    else:
        while spread * spread >= 2.0 ** (2 * (k + 1) - 1):
            k += 1
    return k


@pytest.mark.parametrize("case", json.loads((VECTORS / "vectors_iqr_scale.json").read_text())["vectors"])
def test_equals_published_distances(case: dict) -> None:
    data = ordered(case["x"])
    assert stability_radius.compute_iqr(data) == case["iqr"]
    for which in (1, 2):
        for relation, name in ((SUB, "sub"), (AR, "addrem")):
            expected = case[f"A0_{name}_disc{which}"]
            assert (
                min(measure_bin_distance(data, which, relation, 200), 200) == min(expected, 200)
                or expected == NEVER
            )
            assert measure_bin_distance(data, which, relation, 3) == (
                expected if expected == NEVER else min(expected, 3)
            )


DOMAINS = [
    (-(10**6), 0, 1, 2, 3, 10**6),
    (-(10**6), 0, 3, 4, 10, 10**6),
    (-(10**6), 0, 8, 9, 17, 10**6),
    (-(10**6), -5, 1, 7, 8, 10**6),
]


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("domain", DOMAINS)
def test_add_remove_equals_exhaustive_search(domain: tuple[int, ...], which: int) -> None:
    size = 9
    truth = edits_to_another_answer(lambda t: exact_bin(t, which), domain, "add_remove", size)
    checked = 0
    for table, edits in truth.items():
        if len(table) >= 2 and len(table) + edits <= size and all(abs(v) < 10**6 for v in table):
            assert measure_bin_distance(ordered(table), which, AR, 50) == edits, table
            assert measure_bin_distance(ordered(table), which, AR, 2) == min(edits, 2), table
            checked += 1
    assert checked > 60


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("domain", DOMAINS)
def test_substitution_equals_exhaustive_search(domain: tuple[int, ...], which: int) -> None:
    truth = edits_to_another_answer(lambda t: exact_bin(t, which), domain, "substitute", 6)
    for table, edits in truth.items():
        if len(table) >= 2 and all(abs(v) < 10**6 for v in table):
            assert measure_bin_distance(ordered(table), which, SUB, 50) == edits, table


def neighbour(rng: random.Random, values: list[float], pool: list[float]) -> list[float]:
    if values and rng.random() < 0.5:
        values = values.copy()
        values.pop(rng.randrange(len(values)))
        return values
    return [*values, rng.choice(pool)]


def test_one_edit_moves_the_radius_by_at_most_one_and_the_range_by_a_factor_of_two() -> None:
    rng = random.Random(5)
    moved = 0
    for _ in range(600):
        n = rng.randrange(0, 60)
        pool = [rng.choice([0, 1, 2, 4, 7, rng.randrange(100), rng.random() * 50]) for _ in range(12)] + [
            -1e9,
            1e9,
        ]
        x = [rng.choice(pool) for _ in range(n)]
        y = neighbour(rng, x, pool)
        a, b = ordered(x), ordered(y)
        first, second = measure_scale_radius(a, 60), measure_scale_radius(b, 60)
        assert abs(first - second) <= 1
        assert measure_scale_radius(a, 4) == min(first, 4)
        moved += first != second
        if first >= 1:
            p, q = stability_radius.compute_iqr(a), stability_radius.compute_iqr(b)
            assert (p == 0) == (q == 0)
            if p:
                assert max(p, q) / min(p, q) < 2
                assert (
                    abs(stability_radius.to_log_steps(p) - stability_radius.to_log_steps(q))
                    <= stability_radius.LOG_GRID + 1
                )
    assert moved > 40


def test_substitution_moves_the_add_remove_distance_by_two() -> None:
    """The witness that the two statistics must not be mixed up."""
    trap = json.loads((VECTORS / "vectors_iqr_relation_trap.json").read_text())
    assert trap["random"]["A0_addrem_change_under_substitution_max"] == 2
    rng = random.Random(0)
    worst = 0
    for _ in range(4000):
        x = sorted(rng.randrange(0, 61) for _ in range(53))
        y = sorted([*x[:29], *x[30:], rng.choice([-600, 600])])
        for which in (1, 2):
            a, b = (measure_bin_distance(ordered(v), which, AR, 60) for v in (x, y))
            worst = max(worst, abs(a - b))
            c, d = (measure_bin_distance(ordered(v), which, SUB, 60) for v in (x, y))
            assert abs(c - d) <= 1
        if worst == 2:
            return
    pytest.fail("no witness found")


def test_windows_are_enough() -> None:
    rng = np.random.default_rng(3)
    values = np.sort(rng.normal(size=5001))
    whole = ordered(values)
    for cap in (1, 5, 40):
        width = stability_radius.bound_reach(cap + 1)
        parts = []
        for r in stability_radius.find_quartile_ranks(whole.n):
            parts.append((r - width, values[r - width - 1 : r + width]))
        assert measure_scale_radius(Ordered(whole.n, tuple(parts)), cap) == measure_scale_radius(whole, cap)


def test_extremes() -> None:
    big = 1.7e308
    assert measure_scale_radius(ordered([]), 9) == measure_scale_radius(ordered([4.0]), 9) == 0
    assert measure_scale_radius(ordered([7.0] * 200), 9) == 9
    overflow = ordered([-big] * 50 + [big] * 50)
    assert math.isinf(stability_radius.compute_iqr(overflow))
    assert measure_scale_radius(overflow, 9) == 9
    assert stability_radius.from_log_steps(stability_radius.to_log_steps(math.inf)) < math.inf
    tiny = ordered([0.0] * 50 + [5e-324] * 50)
    assert measure_scale_radius(tiny, 9) >= 0
    assert stability_radius.to_log_steps(5e-324) == stability_radius.to_log_steps(2.0**-1021)
    assert stability_radius.from_log_steps(stability_radius.to_log_steps(20.0)) == pytest.approx(20, rel=1e-3)


def test_edges_are_exact() -> None:
    for j in (-40, -1, 0, 1, 52):
        low = math.ldexp(1.4142135623730951, j)
        below = math.nextafter(low, 0)
        assert stability_radius.find_bin(low, 2) == (low, 2 * low)
        assert stability_radius.find_bin(below, 2) == (low / 2, low)
        assert stability_radius.find_bin(2.0**j, 1) == (2.0**j, 2.0 ** (j + 1))
        assert stability_radius.find_bin(math.nextafter(2.0**j, 0), 1) == (2.0 ** (j - 1), 2.0**j)
