"""Distances of all tiny tables, found by trying every sequence of edits: no formula, no shared code.

Values that may come in are all that lie at, between and beyond those of the tables, which is as much as any real number could
do to an answer that depends on order alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpsql.mechanisms.order_statistics import Ordered
from dpsql.mechanisms.ptr.ptr_statistics import measure_bin_distance, measure_scale_radius
from dpsql.mechanisms.ptr.stability_test import (
    measure_argmax_radius,
    measure_mode_radius,
    measure_quantile_radius,
)
from tests.support.exhaustive import Table, edits_to_another_answer

INNER = (0, 1, 2)
AROUND = (-1, 0, 0.5, 1, 1.5, 2, 3)
"""The values at, between and beyond the inner ones."""


def find_radii(answer: Callable[[Any], Hashable], domain: Sequence[Any], size: int) -> dict[Table, int]:
    """Return how many edits change nothing, whichever they are, of tables whose first change fits into the size."""
    found = edits_to_another_answer(answer, domain, "add_remove", size)
    return {table: edits - 1 for table, edits in found.items() if len(table) + edits <= size}


def of_inner(radii: dict[Table, int]) -> dict[Table, int]:
    return {table: radius for table, radius in radii.items() if set(table) <= set(INNER)}


def quantile(table: Table, p: Fraction) -> float | None:
    return table[max(1, math.ceil(p * len(table))) - 1] if table else None


def mode(table: Table) -> float | None:
    return min(Counter(table).items(), key=lambda item: (-item[1], item[0]))[0] if table else None


def winner(table: Sequence[tuple[str, int]]) -> str | None:
    """The group with the largest sum; a row is (group, amount)."""
    sums = Counter[str]()
    for group, amount in table:
        sums[group] += amount
    return min(sums, key=lambda group: (-sums[group], group), default=None)


@pytest.mark.parametrize("p", [Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)])
def test_quantiles(p: Fraction) -> None:
    radii = of_inner(find_radii(lambda t: quantile(t, p), AROUND, 8))
    for table, radius in radii.items():
        value = quantile(table, p)
        below, upto = (sum(x < value for x in table), sum(x <= value for x in table)) if table else (0, 0)
        assert measure_quantile_radius(len(table), below, upto, p) == radius, table
    assert Counter(radii.values())[1] > 10


def measure_mode(table: Table, more: int = 0) -> int:
    counts = sorted(Counter(table).items(), key=lambda item: (-item[1], item[0]))
    (value, top), (other, second) = (*counts, (0, 0), (0, 0))[:2]
    return measure_mode_radius(top + more, second, bool(second) and other > value)


def test_modes() -> None:
    radii = of_inner(find_radii(mode, (*INNER, 3), 11))
    assert [table for table, radius in radii.items() if table and measure_mode(table) != radius] == []
    assert Counter(radii.values())[2] > 10
    too_long = [table for table, radius in radii.items() if table and measure_mode(table, 1) > radius]
    assert len(too_long) > 20, "the control: a lead of a row more, claimed of all tables"


def test_a_row_or_none_has_no_stable_spread() -> None:
    for table in (), (4,):
        data = Ordered.all(np.array(table, dtype=np.float64))
        assert measure_scale_radius(data, 9) == 0
        for which in (1, 2):
            assert measure_bin_distance(data, which, 9) == 1


def test_argmax_of_sums_claims_no_more_than_is_so() -> None:
    """A lower bound of the distance, and not a lazy one."""
    rows = [(g, a) for g in "abc" for a in (-2, 1, 2)]
    exact = Counter[bool]()
    for table, radius in find_radii(winner, rows, 6).items():
        groups: Sequence[Any] = table
        sums = sorted((sum(a for g, a in groups if g == k) for k in {g for g, _ in groups}), reverse=True)
        if sums:
            mine = measure_argmax_radius(sums[0], sums[1] if len(sums) > 1 else 0, 2)
            assert mine <= radius, table
            exact[mine == radius] += 1
    assert exact[True] > exact[False]
