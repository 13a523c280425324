"""A grid that is finer near 0: numbers go up with the values, points are near them, and SQL numbers them alike."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms import order_statistics
from dpsql.mechanisms.order_statistics import (
    DEPTH,
    REACH,
    GradedGrid,
    PointWeights,
    WantedRank,
    choose_step,
    cut_segments,
)
from tests.support.goodness import REFUSED, fixed, p_value

WIDE = GradedGrid(Fraction(1, 32), 0, 31_250, DEPTH)
BOTH = GradedGrid(Fraction(1, 2), -500, 700, 2)
GRIDS = [WIDE, BOTH, GradedGrid(Fraction(1, 100), -3, 50_000, 1), GradedGrid(Fraction(4), 90, 30_000, DEPTH)]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_points_are_numbered_without_gaps(grid: GradedGrid) -> None:
    near = range(max(grid.first, -9000), min(grid.last, 9000))
    numbers = sorted({grid.first, *near, *range(grid.first, grid.last, 97), grid.last})
    points = [grid.value(number) for number in numbers]
    assert all(a < b for a, b in itertools.pairwise(points))
    assert [grid.find_step(point) for point in points] == numbers
    assert points[0] == grid.low / grid.steps
    assert points[-1] == grid.high / grid.steps


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_a_value_is_off_by_half_a_step_and_a_part_of_itself(grid: GradedGrid) -> None:
    rng = np.random.default_rng(1)
    low, high = float(grid.low / grid.steps), float(grid.high / grid.steps)
    spread = [*rng.uniform(low, high, 300), *(rng.lognormal(0, 8, 600) * rng.choice([-1, 1], 600))]
    values = sorted(v for v in spread if low <= v <= high)
    assert len(values) > 300
    least = Fraction(1) / (grid.steps * 8**grid.levels)
    before = grid.first
    for value in map(Fraction, values):
        number = grid.find_step(value)
        assert number >= before
        before = number
        off = abs(grid.value(number) - value)
        assert off <= 1 / (2 * grid.steps)
        assert off <= max(abs(value) / (2 * REACH), least / 2)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_sql_numbers_points_alike(grid: GradedGrid) -> None:
    """But for values in the middle between two points, which are rounded to either."""
    rng = np.random.default_rng(2)
    values = [
        *rng.uniform(-1000, 10**6, 300).tolist(),
        *rng.lognormal(0, 8, 700).tolist(),
        0.0,
        -0.0,
        5.0,
        100.0,
    ]
    values += [-v for v in values[:50]]
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (i INTEGER, v DOUBLE)")
        con.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(values)))
        got = con.sql(f"SELECT v, {grid.write_step('v')} FROM t ORDER BY i").fetchall()
        assert con.sql(f"SELECT {grid.write_step('CAST(NULL AS DOUBLE)')}").fetchall() == [(None,)]
    for value, number in got:
        if number is None:
            assert abs(Fraction(value)) * grid.steps > 2**31 - 1
            continue
        want = grid.find_step(Fraction(value))
        assert abs(number - want) <= (
            abs(grid.value(number) - Fraction(value)) == abs(grid.value(want) - Fraction(value))
        )


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_both_routes_number_points_equally(grid: GradedGrid) -> None:
    """Bit for bit: also between two points, where a level ends, and at the ends of 31 bits."""
    rng = np.random.default_rng(3)
    halves = (2 * rng.integers(-2000, 2000, 20_000) + 1) / 2
    scales = np.array([float(grid.steps) * 8.0**level for level in range(grid.levels + 1)])
    ends = np.concatenate([128 / scales, 2.0**31 / scales, (2.0**31 - 0.5) / scales])
    near = np.concatenate([np.nextafter(ends, 0), ends, np.nextafter(ends, np.inf)])
    spread = rng.lognormal(0, 8, 50_000) * rng.choice([-1, 1], 50_000)
    values = np.concatenate(
        [halves / rng.choice(scales, len(halves)), near, -near, spread, [0.0, -0.0, 5e-324]]
    )
    held = pa.table({"i": np.arange(len(values)), "v": values})
    with duckdb.connect() as con:
        con.register("held", held)
        text = f"SELECT v, {grid.write_step('v')} AS step FROM held ORDER BY i"
        found = con.sql(f"SELECT v, step FROM ({text}) WHERE step IS NOT NULL").to_arrow_table()
    assert found.num_rows > 60_000
    steps = np.asarray(found.column("step"))
    with_points = np.asarray(found.column("v"))
    assert (grid.number(with_points) == steps).all()
    for outside in (np.nan, np.inf, -np.inf, 1e308, 2.0**32 / scales[0]):
        assert (grid.number(np.append(with_points, outside)) == steps).all()
        assert (grid.number(np.append(outside, with_points)) == steps).all()
        clamped = grid.number_clamped(np.append(with_points, outside))
        assert (clamped == np.clip(steps, grid.first, grid.last)).all()
    within = with_points[(steps >= grid.first) & (steps <= grid.last)]
    assert (grid.number_clamped(within) == grid.number(within)).all()
    assert len(grid.number(np.empty(0))) == len(grid.number_clamped(np.empty(0))) == 0


def test_where_it_is_no_finer_there_is_none() -> None:
    steps = Fraction(1, 32)
    assert GradedGrid.refine(steps, 0, 31_250, Fraction(0)) == WIDE
    assert GradedGrid.refine(steps, 200, 31_250, Fraction(0)) is None  # far from 0
    assert GradedGrid.refine(steps, -31_250, -200, Fraction(0)) is None
    assert GradedGrid.refine(Fraction(1), 0, 120, Fraction(1)) is None  # whole numbers
    assert GradedGrid.refine(Fraction(100), 0, 120, Fraction(1, 100)) is None  # cents
    coarse = GradedGrid.refine(Fraction(1, 1024), 0, 10**6, Fraction(1))
    assert 1 / (coarse.steps * 8**coarse.levels) <= 1 < 1 / (coarse.steps * 8 ** (coarse.levels - 1))
    with pytest.raises(ValueError, match="finer level"):
        GradedGrid(steps, 0, 1, 0)


def test_a_quarter_more_points() -> None:
    """Check their cost: the logarithm of the number of points decides how far off in rank an answer is."""
    more = (WIDE.last - WIDE.first + 1) / 31_251
    assert more < 1.25
    assert math.log(more) < 0.22


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_a_point_weighs_as_much_as_it_is_wide(grid: GradedGrid) -> None:
    """Down to the third level: beyond it, points weigh what those of the third do."""
    numbers = np.unique(np.linspace(grid.first + 1, grid.last - 1, 4001).astype(np.int64))
    weights = grid.weights
    found = weights.add_before(numbers + 1) - weights.add_before(numbers)
    least = grid.steps * 8 ** min(grid.levels, 3)
    if abs(grid.low) * 8**3 > REACH * 8 and grid.low > 0:
        least = grid.steps * 8  # it begins on the first finer level
    for number, weight in zip(numbers.tolist(), found.tolist(), strict=True):
        width = min(grid.value(number) - grid.value(number - 1), grid.value(number + 1) - grid.value(number))
        assert Fraction(weight) in {max(Fraction(1), width * least), max(Fraction(1), width * least * 8)}
    assert weights.total == int(weights.add_before(np.array([grid.last + 1]))[0]) > grid.last - grid.first


def test_weights_find_the_points_that_they_count() -> None:
    weights = PointWeights((-5, -1, 2), (3, 1, 4), 4)
    spelled = [p for p, w in zip(range(-5, 4), (3, 3, 3, 3, 1, 1, 1, 4, 4), strict=True) for _ in range(w)]
    assert weights.total == len(spelled)
    for start in range(-5, 4):
        rest = spelled[spelled.index(start) :]
        assert [weights.find_point(start, i) for i in range(len(rest))] == rest
    with pytest.raises(ValueError, match="above 0"):
        PointWeights((0, 1), (1, 0), 2)


@pytest.mark.parametrize("reach", [None, 1])
def test_choices_follow_the_weighed_law(monkeypatch: pytest.MonkeyPatch, reach: int | None) -> None:
    """Check the law however near points begin to count as far; without the weights it is another."""
    weights, values, counts = (
        PointWeights((0, 3, 6), (5, 1, 9), 13),
        np.array([3, 5, 7, 10]),
        np.array([3, 1, 1, 1]),
    )
    if reach is not None:
        monkeypatch.setattr(order_statistics, "_NEVER", reach - math.log(weights.total))
    rank, rate, entropy = WantedRank(Fraction(1, 2)), Fraction(1, 3), fixed("weighed")
    drawn = [choose_step(values, counts, 0, 12, rank, rate, entropy, 0, weights) for _ in range(3000)]
    _, sizes, utility = cut_segments(values, counts, 0, 12, rank)
    plain = np.repeat(np.exp(utility / 3), sizes)
    weighed = plain * np.diff(weights.add_before(np.arange(14)))
    for law, right in ((weighed, True), (plain, False)):
        chances = (law / law.sum()).tolist()
        p = p_value(np.array(drawn), lambda v, p=chances: p[v] if v < 13 else 0.0, signed=False)
        assert (p > REFUSED) is right
