"""Interval arithmetic: an operation on members of two intervals lies in the operation on the intervals."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.binding.values.sql_types import Bounds

numbers = st.fractions(min_value=-50, max_value=50, max_denominator=8)


@st.composite
def members(draw: st.DrawFn) -> tuple[Bounds, Fraction]:
    """An interval, some open at an end, and a number in it."""
    low, middle, high = sorted(draw(st.tuples(numbers, numbers, numbers)))
    cut = draw(
        st.sampled_from([(low, high), (low, high), (None, high), (low, None), (None, None), (middle, middle)])
    )
    return Bounds(*cut), middle


def inside(value: Fraction, interval: Bounds) -> bool:
    return (interval.low is None or interval.low <= value) and (
        interval.high is None or value <= interval.high
    )


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv])
@given(members(), members())
def test_arithmetic(
    op: Callable[[Any, Any], Any], a: tuple[Bounds, Fraction], b: tuple[Bounds, Fraction]
) -> None:
    if op is operator.truediv and b[1] == 0:
        return
    assert inside(op(a[1], b[1]), op(a[0], b[0]))


@given(members(), members())
def test_the_rest(a: tuple[Bounds, Fraction], b: tuple[Bounds, Fraction]) -> None:
    assert inside(-a[1], -a[0])
    assert inside(abs(a[1]), a[0].absolute())
    assert inside(a[1], a[0].union(b[0]))
    assert inside(b[1], a[0].union(b[0]))
    for rounding in (math.floor, math.ceil, round):
        assert inside(Fraction(rounding(a[1])), a[0].rounded())
    assert a[0].union(b[0]).holds(a[0])
    if b[1] != 0:
        assert inside(a[1] - b[1] * math.trunc(a[1] / b[1]), a[0].remainder(b[0]))


@given(members(), members(), st.booleans(), st.booleans())
def test_greatest_and_least_skip_what_is_missing(
    a: tuple[Bounds, Fraction], b: tuple[Bounds, Fraction], a_missing: bool, b_missing: bool
) -> None:
    given_ = [(a[0], a_missing), (b[0], b_missing)]
    for there in ([a[1], b[1]], [a[1]] if b_missing else [], [b[1]] if a_missing else []):
        if there:
            assert inside(max(there), Bounds.greatest(given_))
            assert inside(min(there), Bounds.least(given_))


def test_intervals_are_tight_and_unknown_stays_unknown() -> None:
    one_two, minus = Bounds(Fraction(1), Fraction(2)), Bounds(Fraction(-1), Fraction(3))
    assert one_two * minus == Bounds(Fraction(-2), Fraction(6))
    assert one_two / minus == Bounds()
    assert Bounds(Fraction(1), None) * Bounds.point(-2) == Bounds(None, Fraction(-2))
    assert Bounds.around([(one_two, False), (None, False)]) == Bounds()
