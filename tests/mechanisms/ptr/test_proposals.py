"""Proposed sensitivities: exact distances against a search of every table, and controls that the search must catch."""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dpsql.mechanisms.order_statistics import find_rank
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.ptr import stability_test
from dpsql.mechanisms.ptr.ptr_statistics import (
    ProposedIqr,
    ProposedMode,
    ProposedQuantile,
    choose_proposal_grid,
)
from dpsql.mechanisms.ptr.stability_test import (
    CountLevel,
    OptimalTest,
    Stable,
    StableItem,
    measure_gap_radius,
    measure_jump_radius,
)
from tests.support.exhaustive import Table, distances, neighbours, tables
from tests.support.goodness import fixed

FAR = 10**6
LARGE = 10**9
DOMAIN = (-FAR, 0, 1, 3, FAR)
INNER = tuple(v for v in DOMAIN if abs(v) < FAR)
QUARTILES = Fraction(1, 4), Fraction(3, 4)
ONE = Fraction(1)
Measure = Callable[[Table, int, int], int]


def quantile(table: Table, p: Fraction) -> float | None:
    return table[find_rank(len(table), p) - 1] if table else None


def spread(table: Table) -> float | None:
    if not table:
        return None
    low, high = (table[find_rank(len(table), p) - 1] for p in QUARTILES)
    return high - low


def mode(table: Table) -> float | None:
    return min(Counter(table).items(), key=lambda item: (-item[1], item[0]))[0] if table else None


def sensitivity(answer: Callable[[Table], float | None], table: Table) -> float:
    """The farthest that one row moves the answer; infinite where a neighbour has none, or one as far as you like."""
    here = answer(table)
    if here is None:
        return math.inf
    moves = [answer(other) for other in neighbours(table, DOMAIN, "add_remove", LARGE)]
    worst = max(math.inf if there is None else abs(there - here) for there in moves)
    return math.inf if worst >= FAR / 2 else worst


def search(answer: Callable[[Table], float | None], bound: int, size: int) -> dict[Table, int]:
    """The edits to the nearest table with a neighbour whose answer is farther away than the bound, where they fit."""
    bad = [t for t in tables(DOMAIN, size) if sensitivity(answer, t) > bound]
    found = distances(bad, DOMAIN, "add_remove", size)
    inner = tables(INNER, size)
    return {t: found.get(t, LARGE) for t in inner if len(t) + found.get(t, LARGE) <= size}


def gap_radius(p: Fraction) -> Measure:
    return lambda t, bound, cap: measure_gap_radius(len(t), 1, [int(v) for v in t], bound, cap, p)


def spread_radius(table: Table, bound: int, cap: int) -> int:
    return min(gap_radius(p)(table, bound, cap) for p in QUARTILES)


def levels_of(table: Table) -> list[CountLevel]:
    held: dict[int, list[int]] = {}
    for value, count in Counter(table).items():
        held.setdefault(count, []).append(int(value))
    return [CountLevel(count, len(vs), min(vs), max(vs)) for count, vs in held.items()]


def jump_radius(table: Table, bound: int, cap: int) -> int:
    return measure_jump_radius(levels_of(table), bound, cap)


PROBABILITIES = [Fraction(1, 2), *QUARTILES, Fraction(1, 3), Fraction(9, 10), Fraction(0), Fraction(1)]


@pytest.mark.parametrize("bound", [0, 1, 2])
@pytest.mark.parametrize("p", PROBABILITIES)
def test_distances_of_quantiles_equal_exhaustive_search(p: Fraction, bound: int) -> None:
    found = search(lambda t: quantile(t, p), bound, 12)
    for table, truth in found.items():
        assert gap_radius(p)(table, bound, 50) == truth, table
        assert gap_radius(p)(table, bound, 1) == min(truth, 1)
    assert len(found) > 50
    assert p in (0, 1, Fraction(9, 10)) or max(found.values()) > 1


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_distances_of_spreads_are_never_too_long(bound: int) -> None:
    found = search(spread, bound, 12)
    short = Counter(truth - spread_radius(table, bound, 50) for table, truth in found.items())
    assert min(short) >= 0  # so it is 0 at every bad table
    assert max(short) <= 2
    assert short[0] > 0.5 * len(found)


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_distances_of_modes_are_never_too_long(bound: int) -> None:
    found = search(mode, bound, 12)
    short = Counter(truth - jump_radius(table, bound, 50) for table, truth in found.items())
    assert min(short) >= 0
    assert max(short) <= 1
    assert short[0] > 0.5 * len(found)
    for table, truth in found.items():
        assert jump_radius(table, bound, 1) == min(jump_radius(table, bound, 50), 1), truth


@pytest.mark.parametrize("bound", [0, 1, 2, 3])
@pytest.mark.parametrize("measure", [*map(gap_radius, PROBABILITIES), spread_radius, jump_radius])
def test_one_row_moves_a_distance_by_one(measure: Measure, bound: int) -> None:
    for table in tables(INNER, 6):
        here = measure(table, bound, 50)
        for other in neighbours(table, INNER, "add_remove", LARGE):
            assert abs(measure(other, bound, 50) - here) <= 1, (table, other)


def _only_the_upper(table: Table, bound: int, cap: int) -> int:
    return gap_radius(QUARTILES[1])(table, bound, cap)


def _as_for_the_median(table: Table, bound: int, cap: int) -> int:
    return gap_radius(Fraction(1, 2))(table, bound, cap)


def _rivals_of_the_mode_only(table: Table, bound: int, cap: int) -> int:
    """Two values near the mode may be far from each other, and lead when rows of the mode go."""
    counts, here = Counter(table), mode(table)
    if here is None:
        return 0
    far = [count for value, count in counts.items() if abs(value - here) > bound]
    return max(counts[here] - max(far, default=0), 1) - 1


def _a_rival_in_a_row_of_lead(table: Table, bound: int, cap: int) -> int:
    """The lead over a far value, as if a lead of one row were enough."""
    counts, here = Counter(table), mode(table)
    if here is None:
        return 0
    far = [count for value, count in counts.items() if abs(value - here) > bound]
    return counts[here] - max(far, default=0)


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        (_only_the_upper, spread),
        (_as_for_the_median, lambda t: quantile(t, QUARTILES[0])),
        (_rivals_of_the_mode_only, mode),
        (_a_rival_in_a_row_of_lead, mode),
        (lambda t, bound, cap: gap_radius(QUARTILES[0])(t, bound, cap) + 1, lambda t: quantile(t, QUARTILES[0])),
    ],
)  # fmt: skip
def test_the_search_finds_distances_that_are_too_long(
    wrong: Measure, answer: Callable[[Table], float | None]
) -> None:
    found = search(answer, 2, 12)
    assert any(wrong(table, 2, 50) > truth for table, truth in found.items())


@pytest.mark.parametrize("p", [*QUARTILES, Fraction(9, 10), Fraction(1, 100)])
def test_gap_radius_needs_ranks_near_the_quantile_only(p: Fraction) -> None:
    rng = random.Random(4)
    for n in (50, 51, 202):
        values = sorted(rng.choices(range(200), k=n))
        for bound in (0, 2, 6, 15):
            for cap in (1, 4, 20):
                whole = measure_gap_radius(n, 1, values, bound, 10**6, p)
                rank = find_rank(n, p)
                first, last = max(1, rank - cap - 2), min(n, rank + cap + 3)
                near = measure_gap_radius(n, first, values[first - 1 : last], bound, cap, p)
                assert near == min(whole, cap), (n, bound, cap)


def test_distances_of_modes_equal_the_search_over_all_pairs() -> None:
    """The nearest table in which two far values lead within one row: by trying every height and every two values."""
    rng = random.Random(5)
    for _ in range(300):
        table = tuple(sorted(rng.choices([0, 1, 2, 4, 7, 9], [1, 5, 4, 3, 5, 1], k=rng.randrange(40))))
        bound = rng.choice([0, 1, 2, 4, 6])
        counts = Counter(table)
        values = [*counts, 10**6]
        best = 0 if not table else LARGE
        for most in range(1, len(table) + 1):
            removed = sum(max(count - most, 0) for count in counts.values())
            pairs = [(v, w) for v in values for w in values if abs(v - w) > bound]
            lacking = min(max(most - 1 - counts[v], 0) + max(most - 1 - counts[w], 0) for v, w in pairs)
            best = min(best, removed + lacking)
        assert jump_radius(table, bound, 10**6) == best, (table, bound)
        assert jump_radius(table, bound, 3) == min(best, 3)


# -- released -----------------------------------------------------------------------------------------------------

GENEROUS = OptimalTest(Fraction(40), Fraction(1, 10**6))
EPSILON = Fraction(50)


def release(item: StableItem, values: list[float], label: str = "") -> dict[str, Any]:
    def read(sql: str, lent: object = None, /) -> pa.Table:
        with duckdb.connect() as con:
            con.execute("CREATE TABLE t AS SELECT UNNEST(?::DOUBLE[]) AS v", [values])
            return con.sql(sql).to_arrow_table()

    made = Stable((item,)).release(read, fixed(f"{item} {label}"))
    row: dict[str, Any] = made.table.to_pylist()[0]
    return row


def test_what_is_released_lies_near_the_answer() -> None:
    step, bound = choose_proposal_grid(Fraction(4), EPSILON)
    given = "m", "SELECT v FROM t", step, bound, GENEROUS, LaplaceNoise(EPSILON, bound)
    even = [v / 4 for v in range(400)]
    for item, answer in (
        (ProposedQuantile(*given, probability=Fraction(9, 10)), 89.75),
        (ProposedIqr(*given), 50.0),
        (ProposedMode(*given), 30.0),
    ):
        values = even if not isinstance(item, ProposedMode) else [*[30.0] * 90, *[31.0] * 90, *even]
        row = release(item, values)
        assert row["m"] == pytest.approx(answer, abs=3)
        assert row["m__low"] < row["m"] < row["m__high"]
        strict = dataclasses.replace(item, test=OptimalTest(ONE, Fraction(1, 10**30)))
        torn = [0.0] * 70 + [10.0] * 30 + [100.0] * 70 + [200.0] * 19
        assert release(strict, torn)["m"] is None
        for nothing in ([], [1.0], [math.nan, math.inf]):
            assert release(strict, nothing)["m"] is None
        assert math.isfinite(release(item, [1e300] * 60 + [-1e300] * 60 + [1e300] * 60)["m"] or 0)


def test_a_range_is_never_below_zero() -> None:
    step, bound = choose_proposal_grid(Fraction(4), ONE)
    item = ProposedIqr("m", "SELECT v FROM t", step, bound, GENEROUS, LaplaceNoise(Fraction(1, 100), bound))
    rows = [release(item, [7.0] * 99, str(i)) for i in range(60)]
    assert all(0 <= row["m__low"] <= row["m"] for row in rows)
    assert {row["m__low"] for row in rows if row["m"] == 0} == {0}, (
        "half of the noise is below 0, and is held to it"
    )


def test_the_places_of_gaps_of_a_median_are_its_middle() -> None:
    assert [stability_test._gap_places(m, Fraction(1, 2)) for m in range(2, 7)] == [{1}, {1}, {2}, {2}, {3}]
