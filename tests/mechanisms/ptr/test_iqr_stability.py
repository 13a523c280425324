"""The Scale statistic against exhaustive search, and its Lipschitz property."""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from dpsql.mechanisms.order_statistics import Ordered
from dpsql.mechanisms.ptr.ptr_statistics import (
    BASE_TWO,
    BASES,
    LOG_GRID,
    SHIFTS,
    LogScale,
    bound_reach,
    choose_base,
    compute_iqr,
    find_quartile_ranks,
    measure_bin_distance,
    measure_scale_radius,
)
from tests.support.exhaustive import edits_to_another_answer


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
            assert measure_bin_distance(ordered(table), which, 50) == edits, table
            assert measure_bin_distance(ordered(table), which, 2) == min(edits, 2), table
            checked += 1
    assert checked > 60


def bin_of_base(values: tuple[float, ...], scale: LogScale, which: int) -> float:
    """The bin of any base, by powers of fractions."""
    n = len(values)
    spread = int(values[math.ceil(3 * n / 4) - 1]) - int(values[math.ceil(n / 4) - 1]) if n > 1 else 0
    return _bin(spread, scale, which) if spread else -math.inf


@cache
def _bin(spread: int, scale: LogScale, which: int) -> int:
    k = 0
    while Fraction(spread) ** scale.shifts >= scale.base ** ((k + 1) * scale.shifts - which + 1):
        k += 1
    return k


@pytest.mark.parametrize(
    ("base", "shifts", "which"),
    [(Fraction(5, 4), 2, 1), (Fraction(5, 4), 2, 2), (Fraction(3, 2), 8, 4), (Fraction(51, 50), 8, 6)],
)
def test_other_bases_equal_exhaustive_search(base: Fraction, shifts: int, which: int) -> None:
    size, scale, domain = 9, LogScale(base, shifts), DOMAINS[3]
    truth = edits_to_another_answer(lambda t: bin_of_base(t, scale, which), domain, "add_remove", size)
    found = Counter[int]()
    for table, edits in truth.items():
        if len(table) >= 2 and len(table) + edits <= size and all(abs(v) < 10**6 for v in table):
            assert measure_bin_distance(ordered(table), which, 50, scale) == edits, table
            found[edits] += 1
    assert min(found[1], found[2]) > 20


def test_declared_bounds_equal_exhaustive_search_inside_them() -> None:
    """Nothing can be added beyond the bounds, so some distances are longer; a wider domain is the control."""
    size, domain = 14, (0, 2, 3)
    truth = edits_to_another_answer(lambda t: exact_bin(t, 1), domain, "add_remove", size)
    longer = 0
    for table, edits in truth.items():
        if len(table) >= 2 and len(table) + edits <= size:
            assert measure_bin_distance(ordered(table).within(0, 3), 1, 50) == edits, table
            longer += measure_bin_distance(ordered(table), 1, 50) < edits
    assert longer >= 3
    assert ordered([-5.0, 1, 2, 99]).within(0, 11).slice(1, 4).tolist() == [0, 1, 2, 11]


SMOOTH = {
    "normal": lambda rng, n: rng.normal(size=n),
    "uniform": lambda rng, n: rng.random(n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "Laplace": lambda rng, n: rng.laplace(size=n),
    "Cauchy": lambda rng, n: rng.standard_cauchy(n),
    "lognormal": lambda rng, n: rng.lognormal(size=n),
}


def test_the_chosen_base_lets_smooth_data_pass() -> None:
    """In nearly all of 150 tables; with half the base a quarter of them would fail."""
    rng, edits = np.random.default_rng(1), 36
    passed = Counter[str]()
    for n in (1_000, 30_000):
        base = choose_base(n, edits)
        half = 1 + (base - 1) / 2
        for draw in SMOOTH.values():
            for _ in range(12):
                data = ordered(draw(rng, n))
                for name, b in (("chosen", base), ("half", half)):
                    radius = measure_scale_radius(data, edits + 2, scale=LogScale(b, SHIFTS))
                    passed[name] += radius >= edits
    assert passed["chosen"] >= 0.97 * 144
    assert passed["half"] < 0.8 * 144


def test_steps_of_ranges_in_one_bin() -> None:
    """At most LOG_GRID + 1 for every base, from the least double to infinity; and back again within a step."""
    rng = random.Random(2)
    for base in (BASES[0], Fraction(1002, 1000), Fraction(51, 50), Fraction(17, 10), BASES[1]):
        scale = LogScale(base, SHIFTS)
        for _ in range(300):
            spread = math.ldexp(rng.uniform(1, 2), rng.randrange(-1074, 1024))
            low, high = scale.find_bin(spread, rng.randrange(1, SHIFTS + 1))
            assert low <= spread < high
            top = min(math.nextafter(high, 0), sys.float_info.max)
            assert scale.to_steps(top) - scale.to_steps(low) <= LOG_GRID + 1
            if spread >= 2.0**-1021:
                back = scale.from_steps(scale.to_steps(spread))
                assert abs(math.log2(back) - math.log2(spread)) <= 2 * math.log2(base) / LOG_GRID
    with pytest.raises(ValueError, match="base"):
        LogScale(Fraction(1))


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
            p, q = compute_iqr(a), compute_iqr(b)
            assert (p == 0) == (q == 0)
            if p:
                assert max(p, q) / min(p, q) < 2
                assert abs(BASE_TWO.to_steps(p) - BASE_TWO.to_steps(q)) <= LOG_GRID + 1
    assert moved > 40


def test_windows_are_enough() -> None:
    rng = np.random.default_rng(3)
    values = np.sort(rng.normal(size=5001))
    whole = ordered(values)
    for cap in (1, 5, 40):
        width = bound_reach(cap + 1)
        parts = []
        for r in find_quartile_ranks(whole.n):
            parts.append((r - width, values[r - width - 1 : r + width]))
        assert measure_scale_radius(Ordered(whole.n, tuple(parts)), cap) == measure_scale_radius(whole, cap)


def test_extremes() -> None:
    big = 1.7e308
    assert measure_scale_radius(ordered([]), 9) == measure_scale_radius(ordered([4.0]), 9) == 0
    assert measure_scale_radius(ordered([7.0] * 200), 9) == 9
    overflow = ordered([-big] * 50 + [big] * 50)
    assert math.isinf(compute_iqr(overflow))
    assert measure_scale_radius(overflow, 9) == 9
    assert BASE_TWO.from_steps(BASE_TWO.to_steps(math.inf)) < math.inf
    tiny = ordered([0.0] * 50 + [5e-324] * 50)
    assert measure_scale_radius(tiny, 9) >= 0
    assert BASE_TWO.to_steps(5e-324) == BASE_TWO.to_steps(2.0**-1021)
    assert BASE_TWO.from_steps(BASE_TWO.to_steps(20.0)) == pytest.approx(20, rel=1e-3)


def test_edges_are_exact() -> None:
    for j in (-40, -1, 0, 1, 52):
        low = math.ldexp(1.4142135623730951, j)
        below = math.nextafter(low, 0)
        assert BASE_TWO.find_bin(low, 2) == (low, 2 * low)
        assert BASE_TWO.find_bin(below, 2) == (low / 2, low)
        assert BASE_TWO.find_bin(2.0**j, 1) == (2.0**j, 2.0 ** (j + 1))
        assert BASE_TWO.find_bin(math.nextafter(2.0**j, 0), 1) == (2.0 ** (j - 1), 2.0**j)
