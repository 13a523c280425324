"""Charges are for what was done: every part of a loss is in the event, and every part of a mechanism keeps to its share."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any
from unittest import mock

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.per_group import LaplaceNoise, calibrate_gaussian
from dpsql.mechanisms.ptr import ptr_statistics, trimmed
from dpsql.mechanisms.ptr.stability_test import (
    OptimalTest,
    Stable,
    StableItem,
    ThresholdTest,
    make_stability_test,
)
from dpsql.mechanisms.subsample import subsample
from dpsql.mechanisms.subsample.subsample import ResultRange, WinsorizedMean
from dpsql.noise.entropy import Entropy

EPSILON, DELTA = Fraction(3, 2), Fraction(1, 10**5)


@pytest.mark.parametrize("kind", ["PURE", "GAUSSIAN"])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("slack", [Fraction(0), DELTA / 4])
def test_a_test_is_charged_for_all_its_groups_and_for_what_may_go_wrong_outside(
    kind: str, groups: int, slack: Fraction
) -> None:
    test = make_stability_test(kind, EPSILON, DELTA, groups, slack)
    assert test.event.basic == (EPSILON, DELTA)
    assert test.event.delta == DELTA
    if isinstance(test, ThresholdTest):
        share = EPSILON / groups, (DELTA - slack) / groups
        # one group: hides a distance of 1, and a radius of 0 passes rarely enough
        assert test.sigma >= calibrate_gaussian(*share)
        assert test.delta == share[1]
        assert test.event.rho is not None
        assert test.event.rho >= groups / (2 * test.sigma**2)
        assert float(test.event.rho) == pytest.approx(float(groups / (2 * test.sigma**2)))
        if slack == 0:  # what is set aside is no one's loss that deviations measure
            alone = make_stability_test(kind, share[0], share[1])
            assert isinstance(alone, ThresholdTest)
            assert alone.sigma == test.sigma
    else:
        assert isinstance(test, OptimalTest)
        assert kind == "PURE"
        assert test.share.delta * groups + slack == DELTA
        assert test.share.epsilon * groups == EPSILON


@pytest.mark.parametrize("trim", [None, Fraction(1, 5)])
def test_a_winsorised_mean_pays_for_its_limits_and_for_noise_that_fits_them(trim: Fraction | None) -> None:
    """For all limits: one result moves what noise is added to by at most what the noise is made for."""
    points, blocks = 6, 3
    mean = WinsorizedMean(
        "a", ResultRange(Fraction(0), Fraction(points), points), EPSILON, widening=1, trim=trim
    )
    asked: list[tuple[Fraction, Fraction]] = []
    made: list[tuple[Fraction, int, int]] = []

    class Noise(LaplaceNoise):
        def add(self, values: Any, entropy: Entropy) -> Any:
            made.append((self.epsilon, self.sensitivity, int(values[0])))
            return np.array(values)

    def summed(places: tuple[int, ...], limits: tuple[int, int]) -> tuple[Fraction, int, int]:
        left = list(limits)

        def drawn(places: Any, p: Fraction, points: int, epsilon: Fraction, entropy: Entropy) -> int:
            asked.append((p, epsilon))
            return left.pop(0)

        asked.clear()
        with (
            mock.patch.object(subsample, "choose_grid_quantile", drawn),
            mock.patch.object(subsample, "LaplaceNoise", Noise),
        ):
            mean.combine(places, None, Entropy(), 0.95)
        return made[-1]

    part = Fraction(1, 4) if trim is None else trim
    tight = 0
    for limits in itertools.product((0, 1, 4, points), repeat=2):
        sums = {z: summed(z, limits) for z in itertools.product((0, 3, points), repeat=blocks)}
        assert [p for p, _ in asked] == [part, 1 - part]
        for z, (epsilon, sensitivity, total) in sums.items():
            assert epsilon + sum(e for _, e in asked) == EPSILON
            for v in (0, 3, points):
                moved = abs(sums[(*z[:-1], v)][2] - total)
                assert moved <= sensitivity
                tight += moved == sensitivity
    assert tight, "the noise is for more than one result can move"
    assert mean.event.epsilon is not None
    assert EPSILON <= mean.event.epsilon <= EPSILON * (1 + Fraction(1, 10**9))


VALUES = "SELECT CASE WHEN i < 200 THEN 5 + i % 3 / 100 ELSE i END AS v, 1 + (i < 200)::INTEGER AS amount FROM range(300) t(i)"
SMOOTH = "SELECT i * i // 8 AS v FROM range(-200, 200) t(i)"
ONE = Fraction(1)
TEST = OptimalTest(Fraction(1, 10), DELTA)  # knows distances of some two hundred


def _items(rows: int) -> list[StableItem]:
    group = VALUES.replace("i % 3 / 100", "i % 2 * 0")
    noise, half, quarter = LaplaceNoise(EPSILON, 100 * rows), Fraction(1, 2), Fraction(1, 4)
    wide, smooth = LaplaceNoise(EPSILON, 400 * rows), LaplaceNoise(EPSILON, 1024)
    some, far = group.replace("i < 200", "i < 150"), Fraction(4_000_000 * rows)
    return [
        ptr_statistics.Quantile("a", group, Fraction(1, 2), TEST, rows),
        ptr_statistics.Mode("a", group, TEST, rows),
        ptr_statistics.ArgMax("a", group, 2, TEST, rows),
        ptr_statistics.Iqr("a", VALUES, TEST, LaplaceNoise(EPSILON, ptr_statistics.iqr_sensitivity()), rows),
        ptr_statistics.ProposedMedian("a", VALUES, half, 100 * rows, TEST, noise, rows),
        ptr_statistics.ProposedQuantile("a", VALUES, half, 100 * rows, TEST, noise, rows, Fraction(2, 5)),
        ptr_statistics.ProposedIqr("a", VALUES, half, 400 * rows, TEST, wide, rows),
        ptr_statistics.ProposedMode("a", some, half, 100 * rows, TEST, noise, rows),
        trimmed.Trimmed("a", SMOOTH, ONE, 1, quarter, TEST, smooth, rows),
        trimmed.Trimmed("a", SMOOTH, ONE, 2, quarter, TEST, smooth, rows, far),
    ]


@pytest.mark.parametrize("which", range(10))
def test_distances_are_in_units_where_a_unit_has_several_rows(which: int) -> None:
    with duckdb.connect() as con:

        def read(sql: str, lent: object = None, /) -> pa.Table:
            return con.sql(sql).to_arrow_table()

        def radius(rows: int) -> int:
            _, found = _items(rows)[which].measure(read, Entropy(), ())  # type: ignore[arg-type]
            return found[()].radius

        one = radius(1)
        assert one > 12
        assert [radius(rows) for rows in (2, 3, 7)] == [one // 2, one // 3, one // 7]


def test_all_items_of_a_block_are_charged() -> None:
    items = tuple(_items(1))
    assert Stable(items).event.basic[1] == 11 * DELTA
    assert Stable(items).event.basic[0] >= 11 * TEST.epsilon + 7 * EPSILON
