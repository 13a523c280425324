"""Cells that add up: least squares against numpy's, exact sums, and estimates that are no worse than what they are made of."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.consistency import (
    AddingColumn,
    Consistent,
    GroupingSet,
    fit,
    hold_at_zero,
    round_running,
)
from dpsql.mechanisms.per_group import GaussianNoise, LaplaceNoise

SHAPES = [
    ((3, 4), [(0, 1), (0,), ()]),
    ((3, 4), [(0, 1), (0,), (1,), ()]),
    ((2, 3, 5), [(0, 1, 2), (0, 1), (2,), ()]),
    ((4, 5), [(0,), (1,), ()]),  # no set has all the keys
]


def places_of(sizes: tuple[int, ...], sets: list[tuple[int, ...]]) -> list[np.ndarray]:
    cells = list(np.ndindex(*sizes))
    out = []
    for keys in sets:
        known = {k: i for i, k in enumerate(dict.fromkeys(tuple(c[i] for i in keys) for c in cells))}
        out.append(np.array([known[tuple(c[i] for i in keys)] for c in cells], dtype=np.intp))
    return out


@pytest.mark.parametrize(("sizes", "sets"), SHAPES)
def test_it_is_weighted_least_squares(sizes: tuple[int, ...], sets: list[tuple[int, ...]]) -> None:
    random = np.random.default_rng(1)
    places, size = places_of(sizes, sets), int(np.prod(sizes))
    weights = [0.5, 4.0, 1.0, 0.01][: len(sets)]
    values = [random.normal(0, 100, int(p.max()) + 1) for p in places]
    rows = np.concatenate([np.eye(int(p.max()) + 1)[:, p] for p in places])
    root = np.sqrt(np.concatenate([np.full(len(v), w) for v, w in zip(values, weights, strict=True)]))
    wanted = np.linalg.lstsq(rows * root[:, None], np.concatenate(values) * root, rcond=None)[0]
    assert np.allclose(fit(values, weights, places, size), wanted, atol=1e-6)


def test_cells_that_add_up_are_left_alone() -> None:
    places = places_of((3, 4), [(0, 1), (0,), ()])
    table = np.arange(12, dtype=float) * 1e9
    values = [np.bincount(p, weights=table) for p in places]
    assert np.array_equal(round_running(fit(values, [1.0, 3.0, 9.0], places, 12)), table.astype(int))


def test_rounding_keeps_every_run_within_one() -> None:
    table = np.random.default_rng(2).uniform(0, 3, 500)
    whole = round_running(table)
    assert (whole >= 0).all()
    assert whole.dtype == np.int64
    for first, last in combinations(range(0, 500, 23), 2):
        assert abs(whole[first:last].sum() - table[first:last].sum()) <= 1
    far = round_running(np.array([1e30, 0.4, -1e30]))
    assert [int(v) for v in far] == [int(1e30), 0, -int(1e30)]


def test_the_nearest_table_without_negative_cells() -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        table = random.normal(1, 5, 6)
        held = hold_at_zero(table)
        total = max(table.sum(), 0)
        assert (held >= 0).all()
        assert held.sum() == pytest.approx(total, abs=1e-9)
        for _ in range(40):  # no other such table is nearer
            other = random.dirichlet(np.ones(6)) * total
            assert ((held - table) ** 2).sum() <= ((other - table) ** 2).sum() + 1e-9
    assert hold_at_zero(np.array([-1.0, -2.0])).tolist() == [0.0, 0.0]
    assert hold_at_zero(np.zeros(0)).tolist() == []


def test_variances_are_those_of_the_noise() -> None:
    from dpsql.noise.entropy import Entropy

    for noise in (
        LaplaceNoise(Fraction(1, 3), 2, 2),
        GaussianNoise(Fraction(7), 1, 1, Fraction(1), Fraction(1, 10**6)),
    ):
        drawn = noise.add([0] * 200_000, Entropy()).astype(float)
        assert noise.variance == pytest.approx(drawn.var(), rel=0.05)


def released(
    noisy: dict[str, list[int]], epsilons: dict[str, Fraction]
) -> tuple[Consistent, dict[str, pa.Table]]:
    keys = {"all": ("k", "p"), "k": ("k", None), "p": (None, "p"), "none": (None, None)}
    rows = [(k, p) for k in "ab" for p in (1, 2, 3)]
    tables = {
        "all": {"k": [k for k, _ in rows], "p": [p for _, p in rows]}, "k": {"k": ["a", "b"]}, "p": {"p": [1, 2, 3]},
        "none": {},
    }  # fmt: skip
    sets = tuple(
        GroupingSet(name, keys[name], (AddingColumn("n", LaplaceNoise(epsilons[name], 1)),)) for name in noisy
    )
    return Consistent(sets), {
        name: pa.table({**tables[name], "n": pa.array(noisy[name], pa.int64()),
                        "n__low": [float(v - 1) for v in noisy[name]], "n__high": [float(v + 1) for v in noisy[name]]})
        for name in noisy
    }  # fmt: skip


def test_releases_add_up_exactly_and_stay_as_they_were_but_for_that() -> None:
    noisy = {"all": [5, -3, 8, 1, 0, 2], "k": [20, 1], "p": [9, 9, 9], "none": [40]}
    adjust, tables = released(noisy, dict.fromkeys(noisy, Fraction(1)))
    out = adjust.applied(tables)
    fine = out["all"].to_pylist()
    total = sum(row["n"] for row in fine)
    assert out["none"].column("n").to_pylist() == [total]
    for key in ("k", "p"):
        for row in out[key].to_pylist():
            assert row["n"] == sum(cell["n"] for cell in fine if cell[key] == row[key])
    for name, table in out.items():
        assert table.column_names == tables[name].column_names
        assert table.schema == tables[name].schema
        for row in table.to_pylist():
            assert row["n__low"] <= row["n"] <= row["n__high"]
    assert out["all"].equals(adjust.applied(tables)["all"]), "the same release gives the same answer"
    assert tables["none"].column("n").to_pylist() == [40], "what was released is not touched"


def errors(
    epsilons: dict[str, Fraction], believed: dict[str, Fraction], runs: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Mean squared errors of the cells before and after, where the exact cells are all 50 (and their sums)."""
    from dpsql.noise.entropy import Entropy

    exact = {"all": [50] * 6, "k": [150] * 2, "p": [100] * 3, "none": [300]}
    entropy = Entropy()
    before, after = dict.fromkeys(exact, 0.0), dict.fromkeys(exact, 0.0)
    for _ in range(runs):
        noisy = {
            name: [int(v) for v in LaplaceNoise(epsilons[name], 1).add(values, entropy)]
            for name, values in exact.items()
        }
        adjust, tables = released(noisy, believed)
        out = adjust.applied(tables)
        for name, values in exact.items():
            before[name] += float(np.mean((np.array(noisy[name]) - values) ** 2)) / runs
            after[name] += float(np.mean((np.array(out[name].column("n").to_pylist()) - values) ** 2)) / runs
    return before, after


UNEQUAL = {"all": Fraction(1, 2), "k": Fraction(1, 20), "p": Fraction(1, 10), "none": Fraction(1, 20)}


def test_no_cell_is_worse_than_it_was() -> None:
    before, after = errors(UNEQUAL, UNEQUAL, 400)
    for name in before:
        assert after[name] < 1.15 * before[name] + 0.5, name
    assert after["k"] < 0.5 * before["k"]
    assert after["none"] < 0.5 * before["none"]


def test_with_the_wrong_weights_cells_are_worse() -> None:
    """The control: believing the coarse cells, which are the noisiest, spoils the fine ones."""
    wrong = {"all": Fraction(1, 20), "k": Fraction(1), "p": Fraction(1), "none": Fraction(1)}
    before, after = errors(UNEQUAL, wrong, 400)
    assert after["all"] > 1.5 * before["all"]


def test_margins_alone_are_fitted_too() -> None:
    """Without a set of all keys many tables fit equally well. Rounding must not carry the fit away along them."""
    rng = np.random.default_rng(0)
    for trial in range(400):
        plans, years = rng.integers(1, 7, 2)
        size = int(plans * years)
        plan, year = np.repeat(np.arange(plans), years), np.tile(np.arange(years), plans)
        places = [plan, year, np.zeros(size, dtype=np.intp)]
        values = [np.rint(rng.normal(0, 10.0 ** (trial % 12), n)) for n in (plans, years, 1)]
        weights = [1 / float(w) ** 2 for w in rng.integers(1, 5, 3)]
        fitted = fit(values, weights, places, size)
        most = max(float(np.abs(v).max()) for v in values)
        assert np.abs(fitted).max() <= 10 * most + 1
        slope = np.zeros(size)
        for weight, place, value in zip(weights, places, values, strict=True):
            slope += weight * (value - np.bincount(place, weights=fitted, minlength=len(value)))[place]
        assert np.abs(slope).max() <= 1e-9 * max(most, 1)  # the nearest table: no way is downhill


def test_the_greatest_cell_is_kept_where_rounding_hides_the_total() -> None:
    held = hold_at_zero(np.array([-1e20, 1e20 + 2**15, -(2.0**14)]))
    assert (held >= 0).all()
    assert held[0] == held[2] == 0
