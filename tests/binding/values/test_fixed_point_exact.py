"""Values on their grid against exact arithmetic in Python: decimals, floats, integers and dates of all sizes."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from fractions import Fraction

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from dpsql.binding.values.fixed_point import Grid, choose_grid, place_on_line, write_steps
from dpsql.binding.values.sql_types import Type, Typed
from dpsql.errors import BindError
from dpsql.language.dialect import to_sql

CON = duckdb.connect()


def steps_of(kind: str, literals: list[str], grid: Grid) -> list[int | None]:
    """Return the steps that the engine makes of the values, in order."""
    typed = place_on_line(Typed(exp.column("x"), Type.parse(kind)), Fraction(0), Fraction(0)).typed
    rows = ", ".join(f"({i}, CAST({text} AS {kind}))" for i, text in enumerate(literals))
    sql = f"SELECT {to_sql(write_steps(typed, grid))} FROM (VALUES {rows}) t(i, x) ORDER BY i"
    return [row[0] for row in CON.execute(sql).fetchall()]


def held(y: int, grid: Grid) -> int:
    return max(grid.low, min(grid.high, y))


@pytest.mark.parametrize("digits", [(4, 1), (10, 2), (15, 3), (18, 6), (18, 2), (38, 10), (38, 2)])
def test_decimals_are_exact(digits: tuple[int, int]) -> None:
    width, scale = digits
    chance = random.Random(width)
    far = min(10**width, 2**50) - 1
    integers = [0, 1, -1, far, -far, far // 3, *(chance.randint(-far, far) for _ in range(300))]
    texts = [f"'{Decimal(n).scaleb(-scale):f}'" for n in integers]
    bound = Fraction(far, 10**scale)
    grid = choose_grid(Type.parse(f"DECIMAL({width},{scale})"), -bound, bound)
    assert grid.steps == 10**scale
    assert (grid.low, grid.high) == (-far, far)
    for n, y in zip(integers, steps_of(f"DECIMAL({width},{scale})", texts, grid), strict=True):
        assert y == n


def test_decimals_beyond_the_grid_are_missing_or_clamped_never_wrapped() -> None:
    for kind in ("DECIMAL(38,0)", "DECIMAL(38,10)", "DECIMAL(18,6)"):
        grid = choose_grid(Type.parse(kind), Fraction(0), Fraction(100))
        whole = Type.parse(kind).digits[0]
        assert steps_of(kind, [f"'{'9' * whole}'", f"'-{'9' * whole}'", "NULL"], grid) == [None, None, None]


@settings(max_examples=150, deadline=None)
@given(
    st.floats(-1e15, 1e15) | st.sampled_from([0.0, -0.0, 5e-324, 1e-300, 1e308, -1e308]),
    st.floats(-1e12, 1e12), st.floats(-1e12, 1e12),
)  # fmt: skip
def test_floats_are_rounded_once(x: float, a: float, b: float) -> None:
    low, high = sorted((Fraction(a), Fraction(b)))
    try:
        grid = choose_grid(Type.parse("DOUBLE"), low, high)
    except BindError:
        return
    (y,) = steps_of("DOUBLE", [repr(x) if x != 0 else f"'{x}'"], grid)
    exact = Fraction(x) * grid.steps
    if abs(exact) < grid.farthest * grid.steps - 1:
        assert y is not None
        assert abs(y - exact) <= Fraction(1, 2)
        assert abs(held(y, grid) - max(low * grid.steps, min(high * grid.steps, exact))) <= 1
    elif abs(exact) > grid.farthest * grid.steps + 1:
        assert y is None


@given(st.fractions(-(10**9), 10**9, max_denominator=1000), st.fractions(0, 10**6, max_denominator=10**6))
def test_close_bounds_far_from_zero_keep_steps_between_them(low: Fraction, width: Fraction) -> None:
    grid = choose_grid(Type.parse("DOUBLE"), low, low + width)
    most = max(abs(grid.low), abs(grid.high))
    assert most <= 2**50
    assert width == 0 or width * grid.steps >= 2**10 or most >= 2**49, "as many steps as exact sums allow"
    assert grid.steps == 2 ** round(math.log2(grid.steps)), "a product with the steps is exact"


def test_what_is_not_finite_is_missing() -> None:
    for kind in ("DOUBLE", "FLOAT"):
        grid = choose_grid(Type.parse(kind), Fraction(0), Fraction(1000))
        assert steps_of(kind, ["'nan'", "'inf'", "'-inf'", "NULL"], grid) == [None] * 4
        assert steps_of(kind, ["'-0.0'"], grid) == [0]


@pytest.mark.parametrize(
    ("kind", "values"),
    [("TINYINT", [127, -128]), ("INTEGER", [2**31 - 1, -(2**31)]), ("BIGINT", [2**63 - 1, -(2**63), 2**31 - 1, 2**31]),
     ("HUGEINT", [2**127 - 1, -(2**127), 12]), ("UBIGINT", [2**64 - 1, 0]), ("UHUGEINT", [2**128 - 1, 3])],
)  # fmt: skip
def test_integers_are_themselves_or_missing(kind: str, values: list[int]) -> None:
    for top in (100, 10**12):
        grid = choose_grid(Type.parse(kind), Fraction(0), Fraction(top))
        for n, y in zip(values, steps_of(kind, [f"'{n}'" for n in values], grid), strict=True):
            assert y == n or (y is None and abs(n) >= grid.farthest - 1)


def test_dates_are_days_and_times_are_seconds() -> None:
    grid = choose_grid(Type.parse("BIGINT"), Fraction(0), Fraction(40000))
    assert steps_of("DATE", ["'1970-01-01'", "'2000-01-01'", "'infinity'", "'5877642-06-25 (BC)'", "NULL"], grid) == [
        0, 10957, None, -2147483646, None,
    ]  # fmt: skip
    grid = choose_grid(Type.parse("DOUBLE"), Fraction(0), Fraction(2**20))
    moments = ["'1970-01-02 00:00:00.5'", "'infinity'", "'290309-12-22 (BC) 00:00:00'", "NULL"]
    assert steps_of("TIMESTAMP", moments, grid)[0] == round(Fraction(172801, 2) * grid.steps)
    assert steps_of("TIMESTAMP", moments, grid)[1::2] == [None, None]
    assert steps_of("INTERVAL", ["'1 day'", "'178000000 years'"], grid) == [86400 * grid.steps, None]
    assert steps_of("BOOLEAN", ["TRUE", "FALSE", "NULL"], grid) == [grid.steps, 0, None]
