"""Marginals by ResidualPlanner: what one unit moves, exact losses on small tables, closed forms, and the law of a cell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import ErrorBasis, SumsClaim
from dpsql.mechanisms.marginals import (
    SET_COLUMN,
    Marginal,
    MarginalNoise,
    Marginals,
    Residual,
    calibrate_together,
    divide_rounded,
    find_pair,
    find_shares,
    list_closure,
)
from dpsql.mechanisms.moments import Count, Sum
from dpsql.mechanisms.per_group import (
    GaussianNoise,
    GaussianNoiseByMu,
    JointGaussianNoise,
    LaplaceNoise,
    Noise,
    Statistic,
)
from dpsql.noise.entropy import Entropy
from tests.support.goodness import fixed
from tests.support.residuals import residual_of, used_of

ONE, TINY, HUGE = Fraction(1), Fraction(1, 10**6), Fraction(10**12)
Sets = Sequence[tuple[int, ...]]
CUBE3 = [places for n in range(4) for places in combinations(range(3), n)]
ROLLUP3 = [(), (0,), (0, 1), (0, 1, 2)]


def planned(noise: Noise, sizes: Sequence[int], sets: Sets, other: bool = False) -> Marginals:
    """Make the operator as the binder makes it."""
    keys = tuple(f"k{i}" for i in range(len(sizes)))
    table = Aggregation("SELECT", keys, (Count("n", Statistic("p0", noise)),))
    shown = [math.prod(sizes[i] - other for i in places) for places in sets]
    residuals = list_closure(sets, sizes)
    shares = find_shares(noise, sizes, residuals, list(zip(sets, shown, strict=True)))
    marginals = tuple(Marginal(places, n) for places, n in zip(sets, shown, strict=True))
    measured = tuple(Residual(p, s) for p, s in zip(residuals, shares, strict=True))
    return Marginals(table, tuple(sizes), (other,) * len(sizes), marginals, measured)


def cells_of(sizes: Sequence[int], counts: Sequence[int], other: bool = False) -> pa.Table:
    """Make the exact table of the finest cells: values from 0, the last NULL where it stands for other rows."""
    groups = list(product(*(range(m) for m in sizes)))
    named = [[None if other and v == m - 1 else v for v, m in zip(g, sizes, strict=True)] for g in groups]
    columns = {f"k{i}": [group[i] for group in named] for i in range(len(sizes))}
    return pa.table({**columns, "p0": list(counts)})


def units(sizes: Sequence[int], rows: int) -> Iterator[np.ndarray]:
    """Yield what units with so many rows at most add to the finest cells: all in one cell, in one parent, and in several."""
    flat = math.prod(sizes)
    for places in combinations(range(flat), min(rows, 3)):
        for split in product(range(rows + 1), repeat=len(places)):
            if 0 < sum(split) <= rows:
                cells = np.zeros(flat, dtype=np.int64)
                cells[list(places)] = split
                yield cells.reshape(sizes)


# -- what one unit moves ----------------------------------------------------------------------------------------


NOISES = [
    LaplaceNoise(ONE, 2, 2),
    GaussianNoise.calibrate(ONE, TINY, 2, 2),
    GaussianNoiseByMu.of_mu(Fraction(1, 3), TINY, 4, 1),
    JointGaussianNoise.calibrate_share(ONE, TINY, 2, 1, Fraction(1, 3)),
]


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: type(noise).__name__)
@pytest.mark.parametrize("sizes", [(2, 3), (3,), (2, 2, 2)])
def test_noise_covers_all_that_a_unit_moves(noise: Noise, sizes: tuple[int, ...]) -> None:
    """At most 4 rows, 2 in each of 2 cells where there are caps on both: in one parent cell, or in several."""
    every = [places for n in range(len(sizes) + 1) for places in combinations(range(len(sizes)), n)]
    operator = planned(noise, sizes, every)
    statistic = operator.table.statistics[0]
    worst = dict.fromkeys(every, Fraction(0))
    rows = noise.sensitivity * noise.groups
    for cells in units(sizes, rows):
        if (cells**2).sum() > noise.sensitivity**2 * noise.groups:
            continue  # beyond the caps of the finest cells
        for places in every:
            moved, own = residual_of(cells, places), operator.noises[places, statistic]
            loss = used_of(own, moved)
            assert loss <= 1
            worst[places] = max(worst[places], loss)
    # a unit whose rows fall together in the coarse cells needs all of it: nothing less would do
    assert all(
        worst[places] == 1 for places in every if len(places) < len(sizes) or rows == noise.sensitivity
    )


def test_the_root_of_the_groups_would_not_cover_it() -> None:
    """The control: as for cells apart, C times the root of the groups; a unit with all rows in one parent moves more."""
    noise = GaussianNoise.calibrate(ONE, TINY, 2, 4)
    cells = np.zeros((4, 3), dtype=np.int64)
    cells[:, 0] = 2  # two rows in each of four cells, which share their second key
    apart = Fraction(noise.sensitivity**2 * noise.groups)
    for places in [(), (1,)]:
        moved = residual_of(cells, places)
        sizes = [cells.shape[i] for i in places]
        norm = Fraction(math.prod(m * (m - 1) for m in sizes))  # of one row
        assert sum(v * v for v in moved) > apart * norm
        operator = planned(noise, (4, 3), [places, (0, 1)])
        own = operator.noises[places, operator.table.statistics[0]]
        assert sum(v * v for v in moved) <= own.sensitivity**2 * own.groups


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2)])
@pytest.mark.parametrize("rows", [1, 2])
def test_exact_losses_on_small_tables(sizes: tuple[int, ...], rows: int) -> None:
    """The supremum of the loss over all outputs and units is epsilon for Laplace noise, and mu for Gaussian noise."""
    every = [places for n in range(len(sizes) + 1) for places in combinations(range(len(sizes)), n)]
    pure = planned(LaplaceNoise(ONE, rows, 1), sizes, every)
    normal = planned(GaussianNoise.calibrate(ONE, TINY, rows, 1), sizes, every)
    losses, squares = [Fraction(0)], [Fraction(0)]
    for cells in units(sizes, rows):
        loss = square = Fraction(0)
        for places in every:
            moved = residual_of(cells, places)
            scale = pure.noises[places, pure.table.statistics[0]].scale  # type: ignore[attr-defined]
            sigma = normal.noises[places, normal.table.statistics[0]].sigma  # type: ignore[attr-defined]
            loss += sum(abs(v) for v in moved) / scale
            square += sum(v * v for v in moved) / sigma**2
        losses.append(loss)
        squares.append(square)
    charged, mu = pure.event.basic[0], normal.event.mu
    # exactly what is charged: one step less of noise, and it would be more
    assert max(losses) == charged <= 1
    assert float(max(squares)) == pytest.approx(float(mu * mu), rel=1e-9)
    assert max(squares) <= mu * mu
    assert normal.event.basic == (1, TINY)


def test_claims_are_those_of_the_finest_cells() -> None:
    operator = planned(LaplaceNoise(ONE, 3, 2), (2, 3), [(), (0,), (0, 1)])
    (claimed,) = operator.claims()
    assert isinstance(claimed.claim, SumsClaim)
    assert [(c.steps, c.groups) for _, c in claimed.claim.columns] == [(3, 2)]
    with pytest.raises(ValueError, match="more than 1"):
        replace(operator, residuals=(Residual((), ONE), Residual((0,), TINY)))
    with pytest.raises(ValueError, match="once"):
        replace(operator, residuals=(Residual((0, 1), TINY), Residual((1, 0), TINY)))


# -- what is released -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("most", [9, 2**40, 2**80])
def test_without_noise_marginals_are_the_exact_sums(other: bool, most: int) -> None:
    sizes, dice = (3, 2, 4), np.random.default_rng(7)
    counts = [int(n) * most // 9 for n in dice.integers(0, 9, math.prod(sizes))]
    operator = planned(LaplaceNoise(HUGE * most, 1, 1), sizes, CUBE3, other)
    cells = cells_of(sizes, counts if most < 2**60 else [0] * len(counts), other)
    if most > 2**60:
        wide = pa.array([str(n) for n in counts]).cast(pa.decimal128(38, 0))
        cells = cells.set_column(cells.column_names.index("p0"), "p0", wide)
        table = replace(operator.table, outputs=(Sum("n", operator.table.statistics[0]),))
        operator = replace(operator, table=table)
    released = operator.release(lambda sql: cells, Entropy()).table.to_pylist()
    assert len(released) == sum(marginal.cells for marginal in operator.marginals)
    values = dict(zip(product(*map(range, sizes)), counts, strict=True))
    for row in released:
        places = operator.marginals[row[SET_COLUMN]].places
        fits = [n for g, n in values.items() if all(g[i] == row[f"k{i}"] for i in places)]
        assert row["n"] == sum(fits)
        assert all(row[f"k{i}"] is None for i in range(3) if i not in places)


def test_intervals_at_another_confidence_come_from_the_same_numbers() -> None:
    operator = planned(GaussianNoise.calibrate(ONE, TINY, 1, 1), (3, 2), [(), (0,), (0, 1)])
    release = operator.release(lambda sql: cells_of((3, 2), range(6)), Entropy())
    wider = replace(operator, table=replace(operator.table, confidence=0.99))
    again = wider.show_again(release.table, release.noisy)
    assert again.column("n").to_pylist() == release.table.column("n").to_pylist()
    width = [
        h - v
        for h, v in zip(release.table["n__high"].to_pylist(), release.table["n"].to_pylist(), strict=True)
    ]
    more = [h - v for h, v in zip(again["n__high"].to_pylist(), again["n"].to_pylist(), strict=True)]
    assert all(a < b for a, b in zip(width, more, strict=True))


def test_a_listing_says_which_cells_are_shown() -> None:
    operator = planned(LaplaceNoise(HUGE, 1, 1), (3, 2), [(), (0, 1)])
    marginals = (operator.marginals[0], replace(operator.marginals[1], cells=2, listing="LIST"))
    listed = pa.table({"a": [2, 0, 7], "b": [1, 0, 0]})
    answers = {"LIST": listed, "SELECT": cells_of((3, 2), range(6))}
    rows = replace(operator, marginals=marginals).release(answers.__getitem__, Entropy()).table.to_pylist()
    assert [(row["k0"], row["k1"], row["n"]) for row in rows] == [(None, None, 15), (0, 0, 0), (2, 1, 5)]


# -- closed forms -----------------------------------------------------------------------------------------------


def closed_form(sizes: Sequence[int], sets: Sets) -> float:
    """Return ResidualPlanner's least total variance at a squared mu of 1, over the cells: (sum of roots of v p) squared."""
    roots = 0.0
    for places in list_closure(sets, sizes):
        p = math.prod(1 - 1 / sizes[i] for i in places)
        v = sum(
            math.prod(sizes[i] for i in s) * p / math.prod(sizes[i] for i in s if i not in places) ** 2
            for s in sets
            if set(places) <= set(s)
        )
        roots += math.sqrt(v * p)
    return roots**2 / sum(math.prod(sizes[i] for i in s) for s in sets)


PAIRS6 = list(combinations(range(6), 2))


@pytest.mark.parametrize(
    ("sizes", "sets", "rmse", "even"),
    [
        ((5, 12, 30), ROLLUP3, 1.185, 2.0),
        ((5, 10, 20), CUBE3, 1.591, math.sqrt(8)),
        ((2, 4, 5, 10), [p for n in range(5) for p in combinations(range(4), n)], 1.806, 4.0),
        ((10,) * 6, PAIRS6, 3.459, math.sqrt(15)),
    ],
)
def test_the_errors_are_those_of_the_closed_form(
    sizes: tuple[int, ...], sets: Sets, rmse: float, even: float
) -> None:
    """Figures of record, in units of one count's deviation at equal zCDP."""
    assert math.sqrt(closed_form(sizes, sets)) == pytest.approx(rmse, rel=1e-3)
    wide = Fraction(1, 10**6)  # so that rounding is nothing beside the noise
    noise = GaussianNoiseByMu.of_mu(wide, TINY, 1, 1)
    operator = planned(noise, sizes, sets)
    statistic = operator.table.statistics[0]
    total = sum(m.cells * operator.noise_of(m, statistic).variance for m in operator.marginals)
    found = math.sqrt(total / sum(m.cells for m in operator.marginals) * float(wide))
    assert found == pytest.approx(rmse, rel=2e-3)
    assert found < even


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_released_cells_are_off_by_what_is_told(kind: str) -> None:
    """The mean square over releases; with 0.9 or 1.1 times the noise it would be another."""
    noise = LaplaceNoise(ONE / 5, 1, 1) if kind == "laplace" else GaussianNoise.calibrate(ONE, TINY, 1, 1)
    operator = planned(noise, (12, 15), [(), (0,), (1,), (0, 1)])
    statistic, cells = operator.table.statistics[0], cells_of((12, 15), [5] * 180)
    told = [operator.noise_of(m, statistic).variance for m in operator.marginals]
    ratios, inside, entropy = [], [], fixed(f"cells {kind}")
    for _ in range(100):
        table = operator.release(lambda sql: cells, entropy).table
        sets, n = (table[name].to_numpy() for name in (SET_COLUMN, "n"))
        exact = np.array([900, 75, 60, 5])[sets]
        ratios.append((n - exact) ** 2 / np.array(told)[sets])
        inside.append((table["n__low"].to_numpy() <= exact) & (exact <= table["n__high"].to_numpy()))
    found = np.array(ratios)
    assert 0.94 < np.mean(inside) < 0.975
    ratio, chance = found.mean(), found.mean(axis=1).std() / math.sqrt(len(found))
    assert chance < 0.03
    assert abs(ratio - 1) < 4 * chance
    for arm in (0.9, 1.1):
        assert abs(ratio / arm**2 - 1) > 4 * chance
    for at in range(4):
        own = found[:, sets == at]
        each = own.mean(axis=1)  # squares of noise have long tails: few of them tell too small a deviation
        deviation = max(each.std(), math.sqrt(2 / own.shape[1]))
        assert abs(each.mean() - 1) < 5 * deviation / math.sqrt(len(each))


def test_the_interval_of_a_sum_of_laplace_noise_is_that_of_its_law() -> None:
    operator = planned(LaplaceNoise(ONE / 3, 2, 1), (2, 3), [(), (0,), (0, 1)])
    entropy = fixed("sums of Laplace noise")
    for marginal in operator.marginals:
        noise = operator.noise_of(marginal, operator.table.statistics[0])
        drawn = np.abs(np.asarray(noise.add([0] * 40_000, entropy), dtype=np.float64))
        assert np.mean(drawn**2) == pytest.approx(noise.variance, rel=0.06)
        assert np.mean(drawn) == pytest.approx(noise.mean_error, rel=0.03)
        for confidence in (0.5, 0.9, 0.99):
            width = noise.half_width(confidence)
            assert np.mean(drawn <= width) > confidence - 4 * math.sqrt(0.25 / len(drawn))
            assert np.mean(drawn <= 0.9 * width - 1) < confidence


def test_rounding_is_exact() -> None:
    values = np.array([-3, -2, -1, 0, 1, 2, 3, 2**90 + 1], dtype=object)
    assert list(divide_rounded(values, 2)) == [-1, -1, 0, 0, 1, 1, 2, 2**89 + 1]
    assert list(divide_rounded(values, 1)) == list(values)


def test_statements_of_a_plan_are_calibrated_together() -> None:
    """Two blocks of (1/2, delta/2) each are one calibration of (1, delta), and all residuals of both are charged once."""
    half = GaussianNoise.calibrate(ONE / 2, TINY / 2, 1, 1)
    apart = planned(half, (3, 2), [(), (0, 1)]), planned(half, (4,), [(), (0,)])
    both = calibrate_together(apart)
    assert [find_pair(one) for one in both] == [(ONE / 2, TINY / 2)] * 2
    errors = [
        error.error for one in (*apart, *both) for error in one.errors(ErrorBasis()) if error.name == "n"
    ]
    assert errors[2] < errors[0]
    assert errors[3] < errors[1]
    assert isinstance(both[0], Marginals)
    assert isinstance(both[0].noise_of(both[0].marginals[0], both[0].table.statistics[0]), MarginalNoise)
