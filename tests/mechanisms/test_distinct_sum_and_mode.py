"""The sum of different values and the most frequent one: what one unit moves, the losses of a choice, and both contracts."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.aggregation import Together
from dpsql.mechanisms.histograms import BIN, BIN_ROWS, GRID_STEP, STEP_ROWS, DistinctSum, bound_distinct_sum
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.selection.exponential import MostFrequent
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import BoundedRange
from tests.support.goodness import REFUSED, fixed, p_value
from tests.support.operator_contract import OperatorContract

EPSILON = Fraction(1, 2)


@pytest.mark.parametrize("values", [[0, 1, 2, 3], [-3, -1, 2], [-2, -1], [0], [5, 7, 100], [-1, 0, 1, 2]])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_what_one_unit_moves_over_all_small_tables(values: list[int], rows: int) -> None:
    """A unit brings up to ``rows`` values: no sum moves by more than is declared, and one by as much."""
    most = 0
    for here in itertools.product([False, True], repeat=len(values)):
        present = set(itertools.compress(values, here))
        for more in itertools.combinations_with_replacement(values, rows):
            most = max(most, abs(sum(present | {*more}) - sum(present)))
    assert most == bound_distinct_sum(rows, min(values), max(values), values)
    if values == list(range(min(values), max(values) + 1)):
        assert most == bound_distinct_sum(rows, min(values), max(values))
    if rows == 2 and len(values) > 1:
        assert most > bound_distinct_sum(1, min(values), max(values), values), (
            "the control: one value is not all"
        )


@pytest.mark.parametrize("values", [[0, 1, 2], [-3, -1, 2], [5, 7, 100]])
def test_what_one_unit_moves_where_its_rows_are_spread(values: list[int]) -> None:
    """Two rows in all, in either of two groups: their sums together move by as much as is declared, and no further."""
    sets = [set(itertools.compress(values, here)) for here in itertools.product([False, True], repeat=3)]
    most = 0
    for present in itertools.product(sets, repeat=2):
        for more in itertools.product(itertools.product(range(2), values), repeat=2):
            after = [one | {v for group, v in more if group == place} for place, one in enumerate(present)]
            most = max(most, sum(abs(sum(b) - sum(a)) for a, b in zip(present, after, strict=True)))
    assert most == bound_distinct_sum(2, min(values), max(values), values, spread=True)
    assert most > bound_distinct_sum(2, min(values), max(values), values), "the control: of one group"


def test_noise_below_what_one_unit_brings_is_refused() -> None:
    with pytest.raises(ValueError, match="sensitivity to one unit"):
        DistinctSum("SELECT", (), "s", 0, 10, 2, LaplaceNoise(EPSILON, 18))
    assert DistinctSum("SELECT", (), "s", 0, 10, 2, LaplaceNoise(EPSILON, 19)).event.basic == (EPSILON, 0)


def law(counts: tuple[int, ...], rate: Fraction) -> list[float]:
    weights = [math.exp(float(rate) * count) for count in counts]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_loss_of_a_choice_over_all_small_counts(rows: int) -> None:
    operator = MostFrequent("SELECT", (), "m", 3, EPSILON, rows)
    worst = dict.fromkeys((operator.rate, operator.rate * 2), 0.0)
    for counts in itertools.product(range(4), repeat=3):
        for more in itertools.product(range(rows + 1), repeat=3):
            if sum(more) <= rows:
                there = tuple(a + b for a, b in zip(counts, more, strict=True))
                for rate in worst:
                    pairs = zip(law(counts, rate), law(there, rate), strict=True)
                    worst[rate] = max(worst[rate], *(abs(math.log(p / q)) for p, q in pairs))
    assert worst[operator.rate] <= float(EPSILON)
    assert worst[operator.rate * 2] > float(EPSILON), "the control: twice the rate costs more"
    assert operator.event == BoundedRange(EPSILON, 1)


@pytest.mark.parametrize("slip", [Fraction(1), Fraction(2)])
def test_the_choice_has_its_law(slip: Fraction) -> None:
    counts, draws, entropy = (2, 5, 4), 20_000, fixed("mode")
    table = pa.table({BIN: [0, 1, 2, 1], BIN_ROWS: [2, 4, 4, 1]})
    operator = MostFrequent("SELECT", (), "m", 3, EPSILON * slip)
    chosen = operator.answer(table, [()] * draws, entropy).columns["m"].to_pylist()
    expected = law(counts, EPSILON)
    p = p_value(np.array(chosen), lambda place: expected[place] if place < 3 else 0.0, signed=False)
    assert (p > REFUSED) == (slip == 1)


def test_values_outside_count_as_the_ends_and_those_undeclared_not_at_all() -> None:
    table = pa.table({GRID_STEP: [-50, 2, 3, 99], STEP_ROWS: [1, 0, 2, 1]})
    quiet = LaplaceNoise(Fraction(10**9), 100)
    whole = DistinctSum("SELECT", (), "s", 0, 10, 2, quiet)
    assert whole.answer(table, [()], Entropy()).columns["s"].to_pylist() == [13]
    declared = DistinctSum("SELECT", (), "s", 0, 10, 2, quiet, Fraction(2), (0, 3, 4))
    assert declared.answer(table, [()], Entropy()).columns["s"].to_pylist() == [1.5]
    assert not declared.can_redraw
    assert whole.redraw(pa.table({"s": [13]}))["s"].to_pylist() == [13]


class TestDistinctSum(OperatorContract):
    part = DistinctSum("SELECT value", (), "s", -3, 10, 2, LaplaceNoise(EPSILON, 19))
    operator = Together(None, (part,))

    def exact(self, text: str) -> pa.Table:
        return pa.table({GRID_STEP: [1, 2, 7], STEP_ROWS: [1, 4, 1]})


class TestMostFrequent(OperatorContract):
    operator = Together(None, (MostFrequent("SELECT bin", (), "m", 4, EPSILON, 2),))

    def exact(self, text: str) -> pa.Table:
        return pa.table({BIN: [0, 3], BIN_ROWS: [3, 5]})
