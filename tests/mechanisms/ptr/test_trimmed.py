"""Trimmed means and variances as items: exact answers from the queries, radii in units, and the noise of the scale."""

from __future__ import annotations

import dataclasses
import math
import random
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.ptr.stability_test import OptimalTest, Stable
from dpsql.mechanisms.ptr.trimmed import SCALE_STEPS, Trimmed
from dpsql.noise.entropy import Entropy
from tests.support.goodness import fixed

EPSILON = Fraction(50)
GENEROUS = OptimalTest(Fraction(40), Fraction(1, 10**6))
STRICT = OptimalTest(Fraction(1), Fraction(1, 10**30))
NOISE = LaplaceNoise(EPSILON, SCALE_STEPS)
MEAN = Trimmed("m", "SELECT v FROM t", Fraction(1), 1, Fraction(1, 10), GENEROUS, NOISE)
VARIANCE = dataclasses.replace(MEAN, power=2, sample=True)


class Table:
    """A table of whole numbers, and groups of them."""

    def __init__(self, values: list[int | None]) -> None:
        self.con = duckdb.connect()
        self.con.execute("CREATE TABLE t AS SELECT UNNEST(?::BIGINT[]) AS v", [values])

    def __call__(self, sql: str, lent: object = None, /) -> pa.Table:
        return self.con.sql(sql).to_arrow_table()


def release(item: Trimmed, values: list[int | None]) -> dict[str, Any]:
    made = Stable((item,)).release(Table(values), fixed(f"{item}"))
    row: dict[str, Any] = made.table.to_pylist()[0]
    return row


def middle(values: list[int], trim: Fraction) -> list[int]:
    left = math.floor(trim * len(values))
    return sorted(values)[left : len(values) - left]


@pytest.mark.parametrize("trim", [Fraction(1, 10), Fraction(1, 3), Fraction(17, 1000)])
@pytest.mark.parametrize("many", [4, pytest.param(15, marks=pytest.mark.stochastic)])
def test_answers_are_exact_in_and_out_of_groups(trim: Fraction, many: int) -> None:
    rng = random.Random(1)
    for _ in range(many):
        values = [rng.randrange(-(2**40), 2**40) for _ in range(rng.randrange(100, 300))]
        kept = middle(values, trim)
        mean = Fraction(sum(kept), len(kept))
        about = sum((v - mean) ** 2 for v in kept)
        for item, answer in (
            (MEAN, mean),
            (VARIANCE, about / (len(kept) - 1)),
            (dataclasses.replace(VARIANCE, sample=False), about / len(kept)),
        ):
            item = dataclasses.replace(item, trim=trim)
            read = Table([*values, None])
            _, alone = item.measure(read, Entropy(), ())
            grouped = dataclasses.replace(item, values="SELECT 1 AS k, v FROM t UNION ALL SELECT 2, 5")
            _, found = grouped.measure(read, Entropy(), ("k",))
            assert [scaled.answer for _, scaled in alone[()].exact] == [answer, answer]
            assert found[(1,)] == alone[()]


def test_what_is_released_lies_near_the_answer() -> None:
    values: list[int | None] = [i * i for i in range(-200, 200)]
    kept = middle([v for v in values if v is not None], MEAN.trim)
    mean = sum(kept) / len(kept)
    spread = sum((v - mean) ** 2 for v in kept) / (len(kept) - 1)
    for item, answer, near in (
        (MEAN, mean, 500),
        (VARIANCE, spread, 0.2 * spread),
        (dataclasses.replace(VARIANCE, root=True), math.sqrt(spread), 0.1 * math.sqrt(spread)),
        (dataclasses.replace(MEAN, proposed=Fraction(500)), mean, 500),
        (dataclasses.replace(MEAN, steps=Fraction(8), proposed=Fraction(500)), mean / 8, 60),
    ):
        row = release(item, values)
        assert row["m"] == pytest.approx(answer, abs=near)
        assert row["m__low"] < row["m"] < row["m__high"]


@pytest.mark.parametrize("item", [MEAN, VARIANCE, dataclasses.replace(MEAN, proposed=Fraction(1))])
@pytest.mark.parametrize("values", [[], [None, None], [7], [7, 8], list(range(30)), [0] * 55 + [10**9] * 45])
def test_too_little_or_too_torn_is_null(item: Trimmed, values: list[int | None]) -> None:
    answer = release(dataclasses.replace(item, test=STRICT), values)
    assert answer == dict.fromkeys(("m", "m__low", "m__high"))


@pytest.mark.parametrize("item", [MEAN, VARIANCE])
@pytest.mark.parametrize("proposed", [None, Fraction(1)])
def test_what_has_no_answer_is_null_where_the_test_passes(item: Trimmed, proposed: Fraction | None) -> None:
    """A test passes with probability delta whatever the radius: here nearly always."""
    passing = dataclasses.replace(STRICT, delta=1 - Fraction(1, 10**12))
    made = dataclasses.replace(item, test=passing, proposed=proposed)
    assert release(made, []) == release(made, [None]) == {"m": None, "m__low": None, "m__high": None}


def test_farthest_values_do_not_matter() -> None:
    values: list[int | None] = [*range(1000), *[2**50] * 40, *[-(2**50)] * 40]
    assert release(MEAN, values)["m"] == pytest.approx(499.5, abs=60)


def test_the_noise_has_the_scale_of_the_bin() -> None:
    """The scale is a bound of what one row moves, and at most the base above it."""
    values: list[int | None] = [i * i for i in range(-300, 300)]
    mean = dataclasses.replace(MEAN, test=OptimalTest(Fraction(1, 10), Fraction(1, 10**6)))
    _, found = mean.measure(Table(values), Entropy(), ())
    ranked = sorted(v for v in values if v is not None)
    bound = Fraction(ranked[-60] - ranked[59], 480 - 1)
    for _, scaled in found[()].exact:
        assert bound < scaled.scale <= 4 * bound
    _, of_units = dataclasses.replace(mean, rows=3).measure(Table(values), Entropy(), ())
    for (radius, scaled), (most, whole) in zip(of_units[()].exact, found[()].exact, strict=True):
        assert scaled.scale == 3 * whole.scale
        assert radius == most // 3


def test_two_tests_are_charged_without_a_proposal() -> None:
    assert MEAN.event.basic[1] == 2 * GENEROUS.delta
    assert dataclasses.replace(MEAN, proposed=Fraction(1)).event.basic[1] == GENEROUS.delta


@pytest.mark.parametrize("trim", [Fraction(0), Fraction(1, 2)])
def test_what_can_not_be_left_out(trim: Fraction) -> None:
    with pytest.raises(ValueError, match="trim"):
        dataclasses.replace(MEAN, trim=trim)
    with pytest.raises(ValueError, match="noise"):
        dataclasses.replace(MEAN, noise=LaplaceNoise(EPSILON, 5))
