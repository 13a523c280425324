"""Rows below thresholds, as they stream by: the same numbers as comparing each row with each threshold."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from dpsql.mechanisms.fast import column_counts, thresholds
from dpsql.mechanisms.fast.thresholds import (
    HistogramQuery,
    PrefixSums,
    SortedThresholds,
    ThresholdCounts,
    Thresholds,
    find_span,
)

NAN, INF = math.nan, math.inf
NASTY = [
    NAN,
    INF,
    -INF,
    0.0,
    -0.0,
    1e308,
    -1.7e308,
    1.7e308,
    5e-324,
    -5e-324,
    0.1,
    0.3,
    1.0,
    2.0**53,
    2.0**53 + 2,
]


def is_below(a: float, b: float) -> bool:
    """Compare as DuckDB does: NaN is the greatest value, and equal to itself."""
    return bool(a < b or (math.isnan(b) and not math.isnan(a)))


def check(x: np.ndarray, values: np.ndarray, sides: list[bool], digits: int = 0) -> None:
    end = Thresholds(values)
    known = SortedThresholds([(end, after) for after in sides], x.dtype.kind == "f", digits)
    counts = ThresholdCounts(known)
    counts.add_all([x[:0], *np.array_split(x, 3)])
    found = counts.sums(3, 4)
    assert found.total == len(x) + 7
    for after in sides:
        wanted = [
            3 + sum(is_below(a, v) or (after and not is_below(v, a)) for a in x.tolist())
            for v in values.tolist()
        ]
        assert found.sums[found.place(end, after)].tolist() == wanted


@pytest.mark.parametrize("seed", range(60))
def test_nasty_numbers(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubles and integers of every width; crowded cells and few, in blocks of few rows, and counts that are folded."""
    dice = random.Random(seed)
    monkeypatch.setattr(thresholds, "_LEAST_BITS", dice.choice([1, 3, 13]))
    monkeypatch.setattr(thresholds, "_CHEAP_BITS", dice.choice([1, 18]))
    monkeypatch.setattr(thresholds, "_FEW_ROWS", dice.choice([5, 1 << 19]))
    for module in (thresholds, column_counts):
        monkeypatch.setattr(
            module, "BLOCK_ROWS", dice.choice([7, 1 << 15]) if module is column_counts else 1 << 15
        )
    sides = dice.choice([[False], [True], [False, True]])
    size = dice.randint(1, 14)
    if seed % 2:
        pool = [
            *dice.sample(NASTY, 6),
            *(dice.gauss(0, 1) for _ in range(6)),
            *(dice.randrange(8) / 4 for _ in range(5)),
        ]
        check(np.array(dice.choices(pool, k=60)), np.array(dice.choices(pool, k=size)), sides)
        return
    low, width = dice.choice([0, -5, -(2**61), 2**40]), dice.choice([3, 50, 2**33, 2**61])
    near = [low + dice.randint(0, width) for _ in range(12)] + [low, low + width]
    kind: Any = dice.choice([np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64])
    own = np.iinfo(kind)
    held = [
        min(max(v, int(own.min)), int(own.max)) for v in dice.choices([*near, 2**63 - 1, -(2**63), 0], k=60)
    ]
    check(np.array(held, dtype=kind), np.array(dice.choices(near, k=size)), sides)


@pytest.mark.parametrize("sides", [[False], [True], [False, True]])
@pytest.mark.parametrize("way", ["times", "over", "from", "bent", "short"])
def test_even_ladders(way: str, sides: list[bool]) -> None:
    rungs = {
        "times": np.arange(1, 41) * 0.01, "over": np.arange(-3, 37) / 100, "from": np.arange(40) * 0.1 + 0.7,
        "bent": np.append(np.arange(1, 40) * 0.01, np.nextafter(0.4, 1)), "short": np.arange(7) / 100,
    }[way]  # fmt: skip
    near = np.concatenate([rungs, np.nextafter(rungs, INF), np.nextafter(rungs, -INF), rungs + 0.004])
    check(np.concatenate([near, NASTY]), rungs, sides)


@pytest.mark.parametrize("sides", [[False], [True], [False, True]])
@pytest.mark.parametrize(("first", "step"), [(-7, 1), (5, 3), (2**40, 2**33), (-(2**61), 2**55), (100, 7)])
def test_even_ladders_of_integers(first: int, step: int, sides: list[bool]) -> None:
    rungs = first + step * np.arange(30)
    x = np.concatenate([rungs, rungs - 1, rungs + 1, [0, 2**63 - 1, -(2**63)]])
    check(x, rungs, sides)
    narrow = np.clip(x, -128, 127).astype(np.int8)
    check(narrow, rungs, sides)


def test_ladders_far_from_zero_and_unusual_ones() -> None:
    for rungs in (
        [1e308, 1.1e308], [-1.7e308, 1.7e308], [0.0, 5e-324], [5e-324, 1e-323], [1e300, 1e300 + 1e290], [-INF, 0.0, INF],
        [2.0**60, 2.0**60 + 256, 2.0**60 + 512], [-0.0, 1.0, 2.0], [-3.0, -2.0, -1.0], [-0.5, -0.25, -0.0], [-9e9, -8e9],
    ):  # fmt: skip
        values = np.array(rungs)
        x = np.concatenate([values, np.nextafter(values, INF), np.nextafter(values, -INF), NASTY])
        check(x, values, [False, True])


@pytest.mark.parametrize(
    "ends", [(1.0, 1e6), (5e-324, 1e-300), (1e-300, 1.7e308), (1e307, 1.79e308), (3.0, 3.0)]
)
def test_ladders_of_equal_ratios(ends: tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Crowded cells, NaN of either sign, numbers below 0 and the ends of doubles."""
    monkeypatch.setattr(thresholds, "_LEAST_BITS", 5)
    monkeypatch.setattr(thresholds, "_CHEAP_BITS", 5)
    values = np.exp2(np.linspace(math.log2(ends[0]), math.log2(ends[1]) - 1e-9, 30))
    values[[0, -1]] = ends
    x = np.concatenate(
        [values, np.nextafter(values, INF), np.nextafter(values, -INF), NASTY, [-NAN, 1.79e308, -3.0]]
    )
    for sides in ([False], [True], [False, True]):
        check(x, values, sides)


def test_integers_meet_doubles() -> None:
    """A double has an edge among integers: the same are below it as below the double, and none where doubles lose digits."""
    values = np.array([1.5, -1.5, 2.0, -0.0, 2.0**53 - 1, 1 - 2.0**53, 0.1])
    end, x = Thresholds(values), np.array([-(2**53), -2, -1, 0, 1, 2, 3, 2**53 - 1, 2**53, 2**53 + 1, 2**62])
    for after in (False, True):
        edge = end.edge(0, after)
        for v, e in zip(values, edge, strict=True):
            assert [bool(a <= e if after else a < e) for a in x] == [
                bool(a <= v if after else a < v) for a in x.astype(float)
            ]
    for wide in (NAN, INF, -INF, 2.0**53, -(2.0**53)):
        assert find_span(HistogramQuery("h", "x"), [Thresholds(np.array([wide, 1.0]))]) is None


@pytest.mark.parametrize("digits", [1, 2, 9, 15])
def test_decimals_meet_doubles(digits: int) -> None:
    """A double has an edge among decimals, whose quotients are the doubles that DuckDB makes of them."""
    dice = np.random.default_rng(digits)
    most = 10**15 - 1
    x = np.concatenate(
        [dice.integers(-most, most, 60), dice.integers(-300, 300, 60), [-most, 1 - most, 0, most]]
    )
    quotients = x / 10.0**digits
    near = [quotients, np.nextafter(quotients, INF), np.nextafter(quotients, -INF)]
    far = [NAN, INF, -INF, -0.0, 1e300, -1e300, 5e-324, -5e-324, 10.0**15 / 10.0**digits]
    values = np.concatenate([*near, far])
    end = Thresholds(values)
    for after in (False, True):
        edge = end.edge(digits, after)
        for v, e in zip(values.tolist(), edge.tolist(), strict=True):
            wanted = [is_below(a, v) or (after and not is_below(v, a)) for a in quotients.tolist()]
            assert [bool(a <= e if after else a < e) for a in x.tolist()] == wanted
    check_as_doubles(x, values[: len(x)], digits)


def check_as_doubles(x: np.ndarray, values: np.ndarray, digits: int) -> None:
    """Count by cells, and by sums of a histogram, what is below doubles."""
    counted = HistogramQuery("h", "x", digits, as_doubles=True, places=digits)
    end, quotients = Thresholds(values), x / 10.0**digits
    assert counted.can_compare(end)
    assert not counted.can_compare(Thresholds(x))
    counts = ThresholdCounts(SortedThresholds([(end, False), (end, True)], False, digits))
    counts.add(x)
    distinct, n = np.unique(x, return_counts=True)
    for found in (counts.sums(), PrefixSums.of(distinct, n, digits)):
        for after in (False, True):
            sides = quotients <= values[:, None] if after else quotients < values[:, None]
            assert found.sums[found.place(end, after)].tolist() == sides.sum(axis=1).tolist()
