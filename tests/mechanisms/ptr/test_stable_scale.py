"""Trimmed means and variances: what one row moves, and how far another scale of that is, by searching every table."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest

from dpsql.mechanisms.ptr import trimmed
from dpsql.mechanisms.ptr.trimmed import (
    Ranked,
    ScaleBins,
    count_trimmed,
    measure_addition_radius,
    measure_proposal_radius,
    measure_substitution_radius,
)
from tests.support.exhaustive import Table, distances, neighbours, tables

FAR = 10**9
LARGE = 10**9
TRIMS = [Fraction(1, 4), Fraction(1, 3), Fraction(2, 5)]
Answer = Callable[[Table, Fraction], Fraction | None]


def kept(table: Table, trim: Fraction) -> list[Fraction]:
    left = count_trimmed(len(table), trim)
    return [Fraction(v) for v in table[left : len(table) - left]]


def mean(table: Table, trim: Fraction) -> Fraction | None:
    values = kept(table, trim)
    return sum(values, Fraction(0)) / len(values) if values else None


def variance(table: Table, trim: Fraction) -> Fraction | None:
    values = kept(table, trim)
    middle = mean(table, trim)
    if len(values) < 2 or middle is None:
        return None
    return sum(((v - middle) ** 2 for v in values), Fraction(0)) / (len(values) - 1)


def population(table: Table, trim: Fraction) -> Fraction | None:
    values, found = kept(table, trim), variance(table, trim)
    return None if found is None else found * (len(values) - 1) / len(values)


def bound(table: Table, trim: Fraction, bins: ScaleBins, less: int = 1) -> Fraction | float:
    left = count_trimmed(len(table), trim)
    many = len(table) - 2 * left
    if left < 1 or many < bins.fewest:
        return math.inf
    return Fraction(table[-left] - table[left - 1]) ** bins.power / (many - less)


CASES = [(mean, ScaleBins(2)), (variance, ScaleBins(2, 2)), (population, ScaleBins(2, 2))]


def _moves(
    answer: Answer, trim: Fraction, relation: str, domain: Table, size: int
) -> Iterator[tuple[Table, Fraction]]:
    for table in tables(domain, size):
        here = answer(table, trim)
        for other in neighbours(table, domain, relation, size + 1):
            there = answer(other, trim)
            if here is not None and there is not None:
                yield table, abs(there - here)


@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
@pytest.mark.parametrize("trim", TRIMS)
@pytest.mark.parametrize(("answer", "bins"), CASES)
def test_one_row_moves_an_answer_by_no_more_than_the_bound(
    answer: Answer, bins: ScaleBins, trim: Fraction, relation: str
) -> None:
    close = 0.0
    for table, moved in _moves(answer, trim, relation, (0, 1, 4, 9), 9):
        most = bound(table, trim, bins)
        assert moved <= most, table
        if 0 < most < math.inf:
            close = max(close, float(moved / most))
    assert close > 0.3


@pytest.mark.parametrize(("answer", "bins"), CASES)
def test_a_smaller_bound_would_be_caught(answer: Answer, bins: ScaleBins) -> None:
    """The distance of the kept ends, instead of the first values that are left out, does not bound it."""

    def inner(table: Table) -> Fraction | float:
        values = kept(table, TRIMS[0])
        if len(values) < bins.fewest:
            return math.inf
        return (values[-1] - values[0]) ** bins.power / (len(values) - 1)

    assert any(
        moved > inner(table) for table, moved in _moves(answer, TRIMS[0], "add_remove", (0, 1, 4, 9), 9)
    )


def ranked(table: Table) -> Ranked:
    return Ranked(len(table), [(1, [int(v) if abs(v) < FAR else v * math.inf for v in table])])


def bin_of(table: Table, trim: Fraction, bins: ScaleBins, row: int) -> tuple[int | None, int] | None:
    worst = bound(table, trim, bins)
    if worst == math.inf or worst >= FAR / 100:
        return None
    if worst == 0:
        return None, 0
    lower = row * bins.bits // 2 - 40 * bins.bits
    while Fraction(2) ** (lower + bins.bits) <= worst:
        lower += bins.bits
    return lower, lower + bins.bits


DOMAIN = (-FAR, 0, 1, 2, 4, 9, FAR)
INNER = tuple(v for v in DOMAIN if abs(v) < FAR)


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("bins", [ScaleBins(2), ScaleBins(2, 2), ScaleBins(4)])
@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_distances_to_another_bin_equal_exhaustive_search(relation: str, bins: ScaleBins, row: int) -> None:
    trim, size = TRIMS[0], 8
    every = tables(DOMAIN, size)
    by_bin: dict[tuple[int | None, int] | None, list[Table]] = {}
    for table in every:
        by_bin.setdefault(bin_of(table, trim, bins, row), []).append(table)
    measure = measure_addition_radius if relation == "add_remove" else measure_substitution_radius
    deep = checked = 0
    for here, members in by_bin.items():
        if here is None:
            assert all(measure(ranked(t), trim, bins, row, 9)[0] == 0 for t in members)
            continue
        found = distances([t for b, ts in by_bin.items() if b != here for t in ts], DOMAIN, relation, size)
        for table in members:
            truth = found.get(table, LARGE)
            if any(v not in INNER for v in table) or (relation == "add_remove" and len(table) + truth > size):
                continue
            radius, exponent = measure(ranked(table), trim, bins, row, 9)
            if here[0] is not None:
                assert exponent == here[1]
            # values between those of the domain may lead out of a bin sooner than the search finds
            assert radius <= truth - 1, table
            assert measure(ranked(table), trim, bins, row, 1)[0] == min(radius, 1)
            deep += radius == truth - 1
            checked += 1
    assert checked > 100
    assert deep > 0.6 * checked


@pytest.mark.parametrize("proposed", [Fraction(1, 2), Fraction(3), Fraction(20)])
@pytest.mark.parametrize("bins", [ScaleBins(2), ScaleBins(2, 2)])
def test_distances_to_a_larger_bound_than_proposed_equal_exhaustive_search(
    bins: ScaleBins, proposed: Fraction
) -> None:
    trim, size = TRIMS[0], 9
    domain = (-FAR, 0, 1, 3, 7, FAR)
    bad = [t for t in tables(domain, size) if bound(t, trim, bins) >= proposed]
    found = distances(bad, domain, "add_remove", size)
    checked = 0
    for table in tables(domain[1:-1], size):
        truth = found.get(table, LARGE)
        if len(table) + truth <= size:
            assert measure_proposal_radius(ranked(table), trim, bins, proposed, 20) == truth, table
            assert measure_proposal_radius(ranked(table), trim, bins, proposed, 1) == min(truth, 1)
            checked += 1
    assert checked > 100


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("bins", [ScaleBins(2), ScaleBins(2, 2)])
@pytest.mark.parametrize("relation", ["add_remove", "substitute"])
def test_near_pairs_share_a_bin_and_far_pairs_have_no_lead(relation: str, bins: ScaleBins, row: int) -> None:
    """All that the guarantee needs, on random tables of real size: radii move by one, and are 0 where bins differ."""
    measure = measure_addition_radius if relation == "add_remove" else measure_substitution_radius
    rng = random.Random(7)
    differ = apart = 0
    for _ in range(400):
        n = rng.randrange(20, 70)
        table = tuple(sorted(round(2 ** rng.uniform(0, 6)) for _ in range(n)))
        other = list(table)
        if relation == "substitute" or rng.random() < 0.5:
            other.pop(rng.choice([0, n // 2, n - 1, n // 4, 3 * n // 4]))
        if relation == "substitute" or len(other) == n:
            other.append(rng.choice([-(10**6), 0, table[n // 2], 10**6]))
        one, two = (measure(ranked(t), TRIMS[0], bins, row, 30) for t in (table, tuple(sorted(other))))
        assert abs(one[0] - two[0]) <= 1
        if one[1] != two[1]:
            assert one[0] == two[0] == 0
            apart += 1
        differ += one[0] != two[0]
    assert differ > 20
    assert apart > 0


def test_a_lead_that_looks_upwards_only_is_too_long() -> None:
    """A table may leave its bin downwards too: such a lead would be above 0 where the bins of neighbours differ."""
    bins, trim, rng = ScaleBins(2), TRIMS[0], random.Random(9)
    fooled = 0
    for _ in range(300):
        table = tuple(sorted(rng.randrange(40) for _ in range(24)))
        here = bin_of(table, trim, bins, 0)
        for other in neighbours(table, (0, table[12], 40), "substitute", LARGE):
            there = bin_of(other, trim, bins, 0)
            if here and there and here[1] > there[1]:
                low, high = 6, 19
                upwards = trimmed._outwards(ranked(table), low, high, bins, 12, Fraction(2) ** here[1], 9) - 1
                fooled += upwards > 0
                assert measure_substitution_radius(ranked(table), trim, bins, 0, 9)[0] == 0
    assert fooled > 0


def test_known_windows_are_enough() -> None:
    rng = random.Random(8)
    for n in (60, 61, 200, 401):
        table = tuple(sorted(rng.randrange(10**4) for _ in range(n)))
        left = count_trimmed(n, TRIMS[0])
        for cap in (1, 5, 20):
            reach = cap + 3
            windows = []
            for centre in (left, n - left + 1):
                first, last = max(1, centre - reach), min(n, centre + reach)
                windows.append((first, [int(v) for v in table[first - 1 : last]]))
            for measure in (measure_addition_radius, measure_substitution_radius):
                for row in (0, 1):
                    whole = measure(ranked(table), TRIMS[0], ScaleBins(2), row, cap)
                    assert measure(Ranked(n, windows), TRIMS[0], ScaleBins(2), row, cap) == whole
