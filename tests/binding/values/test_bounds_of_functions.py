"""Bounds of functions hold what DuckDB computes within the arguments' bounds, and little more."""

from __future__ import annotations

import itertools
import random
from datetime import datetime, timedelta
from fractions import Fraction

import duckdb
import pytest
from sqlglot import exp

from dpsql.binding.values import temporal
from dpsql.binding.values.row_functions import ROW_FUNCTIONS
from dpsql.binding.values.sql_types import DOUBLE, Bounds, Typed
from dpsql.catalogue.date_units import DATE_UNITS

RANGES = [(0, 120), (1, 100), (-50, 70), (-9, -2), (-3, 0), (Fraction(1, 1000), Fraction(1, 3)), (2, 2)]
FUNCTIONS = [
    *(f"{name}(x)" for name in ("ln", "log2", "log10", "sqrt", "cbrt", "exp")),
    *(f"pow(x, {c})" for c in ("2", "3", "0.5", "1.7", "40")), "pow(2, x)", "pow(10.5, x)", "log(3, x)", "log(0.5, x)",
]  # fmt: skip


def _number(text: str) -> Typed:
    return Typed(exp.Literal.number(text), DOUBLE, Bounds.point(Fraction(text)), True)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_numbers_lie_within(function: str) -> None:
    for low, high in RANGES:
        points = [low + (high - low) * Fraction(i, 64) for i in range(65)]
        listed = ", ".join(f"{float(point)!r}" for point in points)
        sql = f"SELECT list(y) FROM (SELECT TRY({function}) AS y FROM (SELECT unnest([{listed}]::DOUBLE[]) AS x))"
        found = [Fraction(y) for y in duckdb.sql(f"{sql} WHERE isfinite(y)").fetchall()[0][0] or []]
        name, _, rest = function[:-1].partition("(")
        x = Typed(exp.column("x"), DOUBLE, Bounds(Fraction(low), Fraction(high)))
        bounds = ROW_FUNCTIONS[name].bounds(
            [x if part == "x" else _number(part) for part in rest.split(", ")]
        )
        assert all(bounds.low is None or bounds.low <= y for y in found), (function, low, high)
        assert all(bounds.high is None or y <= bounds.high for y in found), (function, low, high)
        size = max(map(abs, found), default=Fraction(0)) * (1 + Fraction(1, 2**29))
        if bounds.low is not None and bounds.high is not None and found:
            assert max(abs(bounds.low), abs(bounds.high)) <= size, "wider than what occurs"


@pytest.mark.parametrize("elapsed", [False, True])
def test_dates_lie_within(elapsed: bool) -> None:
    chance = random.Random(3)
    name = "date_sub" if elapsed else "date_diff"
    start = datetime(1890, 3, 1)
    for _ in range(60):
        ends = sorted(
            start + timedelta(seconds=chance.randrange(10 ** chance.randint(3, 10))) for _ in range(4)
        )
        a, b = (ends[:2], ends[2:]) if chance.random() < 0.4 else (ends[::2], ends[1::2])
        if chance.random() < 0.5:
            a, b = b, a
        sides = [
            Bounds(*(Fraction((t - datetime(1970, 1, 1)) // timedelta(seconds=1)) for t in side))
            for side in (a, b)
        ]
        points = [[side[0], side[1], side[0] + (side[1] - side[0]) * chance.random()] for side in (a, b)]
        shown = [
            f"{name}('{{unit}}', TIMESTAMP '{x}', TIMESTAMP '{y}')" for x, y in itertools.product(*points)
        ]
        units = [unit.name for unit in DATE_UNITS if unit.measures]
        row = duckdb.sql(
            "SELECT " + ", ".join(item.format(unit=unit) for unit in units for item in shown)
        ).fetchall()[0]
        for place, unit in enumerate(units):
            found = row[place * len(shown) : (place + 1) * len(shown)]
            bounds = temporal.bound_dates_apart(unit, *sides, elapsed)
            slack = 2 if unit == "WEEK" else 1
            assert bounds.low <= min(found) <= bounds.low + slack, (unit, a, b)
            assert bounds.high - slack <= max(found) <= bounds.high, (unit, a, b)
    assert temporal.bound_dates_apart("DAY", None, sides[0], elapsed) is None
    assert (
        temporal.bound_dates_apart("YEAR", Bounds(Fraction(-(10**15)), None), sides[0], elapsed) == Bounds()
    )
