"""Values on a public grid, and their exact clamp."""

from __future__ import annotations

from fractions import Fraction

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.binding.values.fixed_point import Grid, choose_grid, write_clamped, write_doubled_sum
from dpsql.binding.values.sql_types import Type
from dpsql.errors import BindError

CON = duckdb.connect()
ends = st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=1000)
KINDS = ["DOUBLE", "INTEGER", "DECIMAL(18,3)"]


@given(st.sampled_from(KINDS), ends, ends)
def test_bounds_are_rounded_outward_to_the_grid(kind: str, a: Fraction, b: Fraction) -> None:
    low, high = min(a, b), max(a, b)
    grid = choose_grid(Type.parse(kind), low, high)
    assert Fraction(grid.low) <= low * grid.steps < grid.low + 1
    assert grid.high - 1 < high * grid.steps <= Fraction(grid.high)
    assert max(abs(low), abs(high)) < grid.farthest, "what is within the bounds is never missing"


def test_doubles_get_fine_steps_and_wide_bounds_get_wide_integers() -> None:
    grid = choose_grid(Type.parse("DOUBLE"), Fraction(0), Fraction(1000))
    assert grid.steps == 1024
    assert 2**19 < grid.high <= 2**20
    assert not grid.wide
    assert choose_grid(Type.parse("BIGINT"), Fraction(0), Fraction(10**12)).wide
    with pytest.raises(BindError):
        choose_grid(Type.parse("BIGINT"), Fraction(0), Fraction(10**18))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)), max_size=8),
    st.integers(-900, 900),
    st.integers(0, 900),
)
def test_the_branch_free_clamp_is_exact(values: list[int | None], low: int, width: int) -> None:
    grid = Grid(Fraction(1), low, low + width)
    rows = ", ".join(f"({'NULL' if v is None else v})" for v in [None, *values])
    sums = f"SELECT {write_doubled_sum('y', grid)}, {write_doubled_sum('y', grid, 7)}, SUM({write_clamped('y', grid)})"
    ((total, about, held),) = CON.sql(
        f"{sums} FROM (SELECT v::BIGINT AS y FROM (VALUES {rows}) t(v))"
    ).fetchall()
    expected = sum(min(max(v, grid.low), grid.high) for v in values if v is not None)
    count = sum(v is not None for v in values)
    assert total == 2 * expected
    assert about == 2 * (expected - 7 * count)
    assert (held or 0) == expected, "a missing value is skipped, never a bound"


def test_bounds_far_from_0_are_refused_with_what_to_write() -> None:
    low = Fraction(10**17)
    with pytest.raises(BindError, match="too far from 0") as caught:
        choose_grid(Type.parse("BIGINT"), low, low + 100)
    assert caught.value.hint is not None
    assert f"AVG(x - {low}) + {low}" in caught.value.hint
    assert choose_grid(Type.parse("BIGINT"), Fraction(10**15), Fraction(10**15 + 100)).high == 10**15 + 100
