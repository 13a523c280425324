"""Distances of 500 random tiny tables, found by trying every sequence of edits: no formula, no shared code.

The search knows what the answer of a table is and what one edit does; it walks outwards, one edit at a time, until a
table answers differently (or, for a proposed sensitivity, until some edit moves the median too far). Values that may
come in are all that lie at, between and beyond those that are there, which is as much as any real number could do to
an answer that depends on order alone; for the interquartile range, whose bin depends on differences, they are all the
whole numbers around.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.order_statistics import Ordered
from dpsql.mechanisms.ptr.ptr_statistics import measure_bin_distance, measure_scale_radius
from dpsql.mechanisms.ptr.stability_test import (
    measure_argmax_radius,
    measure_mode_radius,
    measure_quantile_radius,
)

Multiset = tuple[Hashable, ...]
TABLES = 500


def one_edit(table: Multiset, values: list) -> Iterator[Multiset]:
    """Every table that one edit makes."""
    yield from {tuple(table[:i] + table[i + 1 :]) for i in range(len(table))}
    for value in values:
        yield tuple(sorted((*table, value)))


def edits_until(bad: Callable[[Multiset], bool], table: Multiset, values: list, most: int) -> int:
    """Return the number of edits that lead to a bad table; ``most + 1`` where more than ``most`` are needed."""
    seen, edge = {table}, [table]
    for steps in range(most + 1):
        if any(bad(t) for t in edge):
            return steps
        if steps < most:
            edge = list({new for t in edge for new in one_edit(t, values)} - seen)
            seen.update(edge)
    return most + 1


def around(table: Multiset) -> list[Fraction]:
    """Values at, between and beyond those of the table."""
    held = sorted({Fraction(v) for v in table} or {Fraction(0)})
    between = [(a + b) / 2 for a, b in itertools.pairwise(held)]
    return sorted({held[0] - 1, *held, *between, held[-1] + 1})


def quantile(table: Multiset, p: Fraction) -> Hashable:
    if not table:
        return None
    return sorted(table)[max(1, math.ceil(p * len(table))) - 1]


def mode(table: Multiset) -> Hashable:
    if not table:
        return None
    top = max(Counter(table).values())
    return min(v for v, n in Counter(table).items() if n == top)


def random_tables(seed: int, most: int, values: list[int]) -> list[Multiset]:
    rng = random.Random(seed)
    found = []
    for i in range(TABLES):
        few = rng.sample(values, rng.randrange(1, min(5, len(values)) + 1))
        weights = [rng.random() ** 3 for _ in few]
        size = i % (most + 1)
        found.append(tuple(sorted(rng.choices(few, weights, k=size))))
    return found


def radius_of_quantile(table: Multiset, p: Fraction) -> int:
    v = quantile(table, p)
    below = sum(x < v for x in table) if table else 0  # type: ignore[operator]
    upto = sum(x <= v for x in table) if table else 0  # type: ignore[operator]
    return measure_quantile_radius(len(table), below, upto, p)


@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(3, 4)])
def test_quantiles(p: Fraction) -> None:
    deep = 0
    for table in random_tables(1, 9, [0, 1, 2, 5, 9]):
        here = quantile(table, p)
        found = edits_until(lambda t, here=here: quantile(t, p) != here, table, around(table), 3)
        mine = min(radius_of_quantile(table, p), 3)
        assert mine == max(found - 1, 0), table
        deep += found >= 2
    assert deep > 30


def test_modes() -> None:
    deep = 0
    for table in random_tables(2, 10, [0, 1, 2, 5]):
        here = mode(table)
        found = edits_until(lambda t, here=here: mode(t) != here, table, around(table), 3)
        counts = sorted(Counter(table).items(), key=lambda item: (-item[1], item[0]))
        (value, top), (other, second) = (*counts, (None, 0), (None, 0))[:2]
        mine = measure_mode_radius(top, second, bool(second) and other > value)  # type: ignore[operator]
        if not table:
            assert mine == 0
            continue
        assert min(mine, 3) == max(found - 1, 0), table
        deep += found >= 3
    assert deep > 30


def test_a_row_or_none_has_no_stable_spread() -> None:
    for table in (), (4,):
        data = Ordered.all(np.array(table, dtype=np.float64))
        assert measure_scale_radius(data, 9) == 0
        for which in (1, 2):
            assert measure_bin_distance(data, which, 9) == 1


def winner(table: Multiset) -> Hashable:
    """The group with the largest sum; a row is (group, amount)."""
    sums: dict[Hashable, int] = {}
    for group, amount in table:  # type: ignore[misc]
        sums[group] = sums.get(group, 0) + amount
    best = max(sums.values(), default=0)
    return min((g for g, s in sums.items() if s == best), default=None)  # type: ignore[type-var]


def test_argmax_of_sums_claims_no_more_than_is_so() -> None:
    """A lower bound of the distance, and not a lazy one."""
    rng = random.Random(5)
    rows = [(g, a) for g in "abc" for a in (-2, 1, 2)]
    exact = 0
    for i in range(TABLES):
        likely = rng.sample(rows, 4)
        table: Multiset = tuple(sorted(rng.choices(likely, k=i % 6)))
        if not table:
            continue
        here = winner(table)
        found = edits_until(lambda t, here=here: winner(t) != here, table, rows, 2)
        sums = sorted((sum(a for g, a in table if g == k) for k in {g for g, _ in table}), reverse=True)  # type: ignore[misc]
        mine = measure_argmax_radius(sums[0], sums[1] if len(sums) > 1 else 0, 2)
        assert min(mine, 2) <= max(found - 1, 0), table
        exact += min(mine, 2) == max(found - 1, 0)
    assert exact > 250


def test_the_search_finds_a_formula_that_claims_too_much() -> None:
    """The control: one edit more than the mode's distance, claimed of all tables."""
    too_much = 0
    for table in random_tables(6, 7, [0, 1, 2, 5]):
        here = mode(table)
        counts = sorted(Counter(table).values(), reverse=True)
        found = edits_until(lambda t, here=here: mode(t) != here, table, around(table), 3)
        claimed = (
            measure_mode_radius(counts[0] + 1, counts[1] if len(counts) > 1 else 0, False) if table else 0
        )
        too_much += min(claimed, 3) > max(found - 1, 0)
    assert too_much > 20
