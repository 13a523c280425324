"""Radii of quantiles, modes, argmaxes, gaps and votes against exhaustive search."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.order_statistics import find_rank
from dpsql.mechanisms.ptr.stability_test import (
    convert_to_units,
    measure_gap_radius,
    measure_mode_radius,
    measure_quantile_radius,
    measure_votes_radius,
)
from tests.support.exhaustive import Table, neighbours


def quantile_of(x: object, p: Fraction, cap: int | None = None) -> int:
    values = sorted(x)  # type: ignore[call-overload]
    if not values:
        return 0
    v = values[find_rank(len(values), p) - 1]
    return measure_quantile_radius(
        len(values), sum(y < v for y in values), sum(y <= v for y in values), p, cap
    )


def mode_of(x: object) -> int:
    counts = sorted(Counter(x).items(), key=lambda item: (-item[1], item[0]))  # type: ignore[call-overload]
    if not counts:
        return 0
    if len(counts) == 1:
        return measure_mode_radius(counts[0][1], 0, False)
    return measure_mode_radius(counts[0][1], counts[1][1], counts[1][0] > counts[0][0])


def quantile(p: Fraction, table: Table) -> Hashable:
    return table[find_rank(len(table), p) - 1] if table else None


def mode(table: Table) -> Hashable:
    return min(Counter(table).items(), key=lambda item: (-item[1], item[0]))[0] if table else None


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


def test_five_hundred_random_tables_under_one_edit() -> None:
    """Larger tables than exhaustive search reaches: Lipschitz, and 0 where the answer changes."""
    rng = random.Random(9)
    changes = Counter()  # type: ignore[var-annotated]
    p_of = {"median": Fraction(1, 2), "q": Fraction(9, 10)}
    for _ in range(500):
        pool = [rng.randrange(6) for _ in range(4)]
        x = tuple(sorted(rng.choice(pool) for _ in range(rng.randrange(0, 40))))
        for y in neighbours(x, [-9, *set(pool), 99], "add_remove", 100):
            for name, p in p_of.items():
                a, b = quantile_of(x, p), quantile_of(y, p)
                assert abs(a - b) <= 1
                if quantile(p, x) != quantile(p, y):
                    changes[name] += 1
                    assert a == b == 0
            a, b = mode_of(x), mode_of(y)
            assert abs(a - b) <= 1
            if mode(x) != mode(y):
                changes["mode"] += 1
                assert a == b == 0
            a, b = (measure_gap_radius(len(t), 1, [int(v) for v in t], 2, 99) for t in (x, y))
            assert abs(a - b) <= 1
            f, g = quantile(Fraction(1, 2), x), quantile(Fraction(1, 2), y)
            if f is None or g is None or abs(f - g) > 2:  # type: ignore[operator]
                changes["gap"] += 1
                assert a == b == 0
    assert min(changes.values()) > 20
    assert len(changes) == 4
