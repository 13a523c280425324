"""Inverse sensitivity: lengths against every tiny table, losses of all five statistics, the law of the draw, the contract."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms import inverse_sensitivity
from dpsql.mechanisms.histograms import GRID_STEP, STEP_ROWS
from dpsql.mechanisms.inverse_sensitivity import (
    AnswerRuns,
    EditedStatistic,
    InverseSensitivity,
    SortedRows,
    Spread,
    TrimmedMean,
)
from dpsql.mechanisms.order_statistics import WantedRank, cut_segments
from dpsql.mechanisms.quantiles import Quantiles
from dpsql.mechanisms.selection.exponential import MostFrequent
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import BoundedRange
from tests.support.adult import ADULT_AGES
from tests.support.exhaustive import Table, distances, tables
from tests.support.goodness import REFUSED, fixed, p_value
from tests.support.operator_contract import OperatorContract

TOP = 2
"""The greatest value of tiny tables; the least is 0."""
PARTS = [Fraction(0), Fraction(1, 10), Fraction(1, 4), Fraction(2, 5), Fraction(49, 100)]
STATISTICS: list[EditedStatistic] = [Spread(), *(TrimmedMean(part, 2) for part in PARTS)]


def sorted_rows(table: Sequence[float], top: int = TOP) -> SortedRows:
    values, counts = np.unique(np.array(table, dtype=np.int64), return_counts=True)
    return SortedRows(values, counts, 0, top)


def answer_cell(statistic: EditedStatistic, table: Table) -> int | None:
    """Answer as the definition has it, without the code under test; None for a table without an answer."""
    n = len(table)
    if isinstance(statistic, Spread):
        return int(table[math.ceil(3 * n / 4) - 1] - table[math.ceil(n / 4) - 1]) if n > 1 else 0
    assert isinstance(statistic, TrimmedMean)
    kept = table[math.floor(statistic.part * n) : n - math.floor(statistic.part * n)]
    return math.floor(Fraction(int(sum(kept)), len(kept)) * statistic.finer + Fraction(1, 2)) if n else None


def lengths(statistic: EditedStatistic, table: Table, top: int = TOP) -> list[int]:
    """Return the length of every answer, from what each number of edits reaches."""
    edits = np.arange(len(table) + 5)
    least, most = statistic.reach(sorted_rows(table, top), edits)
    cells = range(statistic.count_cells(top))
    return [int(np.flatnonzero((least <= c) & (c <= most))[0]) for c in cells]


@pytest.mark.parametrize("statistic", STATISTICS, ids=str)
def test_lengths_are_the_distances_that_a_search_finds(statistic: EditedStatistic) -> None:
    """To the nearest table with at least that answer, and to the nearest with at most that, whichever is farther."""
    domain, size, checked = tuple(range(TOP + 1)), 9, 0
    cells = {table: answer_cell(statistic, table) for table in tables(domain, size)}
    for c in range(statistic.count_cells(TOP)):
        up = [t for t, v in cells.items() if v is None or v >= c]
        down = [t for t, v in cells.items() if v is None or v <= c]
        away = [distances(side, domain, "add_remove", size) for side in (up, down)]
        for table in tables(domain, 5):
            searched = max(found[table] for found in away)
            # else a nearer table may be larger than those that were searched
            if len(table) + searched <= size:
                assert lengths(statistic, table)[c] == searched, (table, c)
                checked += 1
    assert checked > 150


def slide_every_window(table: Sequence[int], edits: int, top: int) -> tuple[int, int]:
    """Return the least and the greatest spread, from the windows of every change in the number of rows."""
    n, least, most = len(table), top, 0

    def at(i: int) -> int:
        return 0 if i < 1 else top if i > n else table[i - 1]

    for net in range(max(-edits, -n), edits + 1):
        if (size := n + net) < 2:
            least = 0
            continue
        low, high = math.ceil(size / 4), math.ceil(3 * size / 4) - net
        out, into = (edits + net) // 2, (edits - net) // 2
        most = max(most, *(at(high + out - a) - at(low - a) for a in range(out + 1)))
        least = min(least, *(max(at(high - into + a) - at(low + a), 0) for a in range(into + 1)))
    return least, most


def average_every_cut(table: Sequence[int], edits: int, top: int, statistic: TrimmedMean) -> tuple[int, int]:
    """Return the least and the greatest trimmed mean, where so many greatest or least rows go and others come."""
    n = len(table)
    if edits >= n:
        return 0, top * statistic.finer
    tried = [
        made
        for removed in range(edits + 1)
        for made in (
            (*table[removed:], *[top] * (edits - removed)),
            (*[0] * (edits - removed), *table[: n - removed]),
        )
    ]
    found = [answer_cell(statistic, made) for made in tried]
    assert None not in found
    return min(found), max(found)  # type: ignore[type-var, return-value]


@pytest.mark.parametrize("at_once", [1 << 18, 1])
def test_what_edits_reach_in_larger_tables(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Against every window and every cut, which the code under test mostly leaves out; also where parts are small."""
    monkeypatch.setattr(inverse_sensitivity, "_AT_ONCE", at_once)
    rng = np.random.default_rng(19)
    for _ in range(60):
        top, n = int(rng.choice([1, 3, 30])), int(rng.integers(0, 60))
        table = sorted(rng.integers(0, top + 1, n).tolist())
        edits = np.sort(rng.choice(70, 6, replace=False))
        least, most = Spread().reach(sorted_rows(table, top), edits)
        assert [slide_every_window(table, int(k), top) for k in edits] == list(zip(least, most, strict=True))
        trimmed = TrimmedMean(PARTS[int(rng.integers(len(PARTS)))], int(rng.choice([1, 8])))
        least, most = trimmed.reach(sorted_rows(table, top), edits)
        expected = [average_every_cut(table, int(k), top, trimmed) for k in edits]
        assert expected == list(zip(least, most, strict=True))


def test_sums_beyond_64_bits_are_exact() -> None:
    top = 1 << 40
    rows = SortedRows(np.array([0, top]), np.array([1 << 20, 1 << 20]), 0, top)
    least, most = TrimmedMean(Fraction(1, 10), 1 << 20).reach(rows, np.array([0]))
    assert least[0] == most[0] == top * (1 << 20) // 2
    awkward = TrimmedMean(Fraction(123456789012345678901234567, 10**27), 2)
    least, most = awkward.reach(sorted_rows([0, 1, 1, 2] * 5), np.array([0]))
    assert least[0] == most[0] == 2


# -- losses -----------------------------------------------------------------------------------------------------------

X = Fraction(4, 5)
"""exp(-rate): so exp(epsilon) is X ** -2, rate being epsilon / 2."""


def normalise(weights: Sequence[Fraction]) -> list[Fraction]:
    return [w / sum(weights) for w in weights]


def quantile_law(p: Fraction) -> Callable[[Table, int], list[Fraction]]:
    rank = WantedRank(p)

    def law(table: Table, harder: int) -> list[Fraction]:
        values, counts = np.unique(np.array(table, dtype=np.int64), return_counts=True)
        _, sizes, scores = cut_segments(values, counts, 0, TOP, rank)
        each = [int(s) for s, size in zip(scores, sizes, strict=True) for _ in range(size)]
        # one step of the score weighs X, so a row moves the weight by X ** sensitivity
        return normalise([X ** (-harder * score) for score in each])

    return law


def edited_law(statistic: EditedStatistic) -> Callable[[Table, int], list[Fraction]]:
    return lambda table, harder: normalise([X ** (harder * k) for k in lengths(statistic, table)])


def mode_law(table: Table, harder: int) -> list[Fraction]:
    return normalise([X ** (-2 * harder * table.count(v)) for v in range(TOP + 1)])


LAWS: dict[str, tuple[Callable[[Table, int], list[Fraction]], int]] = {
    "MEDIAN": (quantile_law(Fraction(1, 2)), 1),
    "QUANTILE": (quantile_law(Fraction(3, 4)), 3),
    "IQR": (edited_law(Spread()), 1),
    "MODE": (mode_law, 1),
    "TRIMMED_MEAN": (edited_law(TrimmedMean(Fraction(1, 4), 2)), 1),
}
"""The law of each statistic in rational numbers (scores taken so many times), and its sensitivity in the score's steps."""


def worst_loss(law: Callable[[Table, int], list[Fraction]], harder: int) -> Fraction:
    """Return the largest ratio of chances over all tables of up to five rows and one row more."""
    worst = Fraction(1)
    for table in tables(tuple(range(TOP + 1)), 5):
        here = law(table, harder)
        for value in range(TOP + 1):
            there = law(tuple(sorted((*table, value))), harder)
            worst = max(worst, *(max(p / q, q / p) for p, q in zip(here, there, strict=True)))
    return worst


@pytest.mark.parametrize("name", LAWS)
def test_loss_over_all_tiny_tables(name: str) -> None:
    """At most epsilon; and with half the distances charged, that is, twice the rate, more than epsilon."""
    law, sensitivity = LAWS[name]
    allowed = X ** (-2 * sensitivity)
    assert 1 < worst_loss(law, 1) <= allowed
    assert worst_loss(law, 2) > allowed, "the control: twice the weight of a distance costs more"


def test_the_distance_of_answers_is_no_score() -> None:
    """The control of the score: how far an answer lies from the exact one moves by more than 1."""

    def law(table: Table, harder: int) -> list[Fraction]:
        exact = answer_cell(TrimmedMean(Fraction(1, 4), 2), table) or 0
        return normalise([X ** (harder * abs(c - exact)) for c in range(2 * TOP + 1)])

    assert worst_loss(law, 1) > X**-2


def test_rates_are_those_of_the_laws() -> None:
    """The operators weigh a distance with the laws' rates, for a unit of three rows in two groups."""
    epsilon = Fraction(3, 2)
    edited = InverseSensitivity("q", ("k",), "a", Spread(), 0, 9, epsilon, 3, 2)
    assert edited.rate == epsilon / (2 * 3 * 2)
    assert edited.event == BoundedRange(epsilon, 2)
    assert edited.event.basic == (epsilon, Fraction(0))
    ranks = Quantiles("q", ("k",), ("a",), (WantedRank(Fraction(3, 4)),), 0, 9, epsilon, 3, 2)
    assert ranks.rate(ranks.ranks[0]) == epsilon / (2 * 3 * 3 * 2)
    assert MostFrequent("q", ("k",), "a", 3, epsilon, 3, 2).rate == epsilon / (3 * 2)


# -- the draw ---------------------------------------------------------------------------------------------------------

FEW = (0, 3, 3, 4, 9, 9, 12)


def exact_law(statistic: EditedStatistic, rate: Fraction, top: int) -> list[float]:
    weights = [math.exp(-float(rate) * k) for k in lengths(statistic, FEW, top)]
    return [w / sum(weights) for w in weights]


@pytest.mark.parametrize("slip", [1, Fraction(9, 10), Fraction(11, 10)])
@pytest.mark.parametrize("statistic", [Spread(), TrimmedMean(Fraction(1, 4), 2)], ids=str)
@pytest.mark.parametrize("n", [4_000, pytest.param(200_000, marks=pytest.mark.stochastic)])
def test_answers_follow_the_exact_law(statistic: EditedStatistic, slip: Fraction, n: int) -> None:
    """And noise at 0.9 or 1.1 of the scale does not: the long form tells these apart."""
    if slip != 1 and n < 100_000:
        slip = slip**8
    rate, entropy = Fraction(1, 3), fixed("inverse sensitivity")
    runs = AnswerRuns.cut(statistic, sorted_rows(FEW, 12), rate * slip)
    sample = np.array([runs.draw(entropy) for _ in range(n)])
    law = exact_law(statistic, rate, 12)
    p = p_value(sample, lambda c: law[c] if c < len(law) else 0.0, signed=False)
    assert (p > REFUSED) == (slip == 1)


@pytest.mark.parametrize(("rungs", "never"), [(3, 30), (256, -2.4)])
def test_rungs_and_far_answers_leave_the_law_alone(
    monkeypatch: pytest.MonkeyPatch, rungs: int, never: float
) -> None:
    """However few numbers of edits are looked at beforehand: without rejection some answers would have too much."""
    monkeypatch.setattr(inverse_sensitivity, "_RUNGS", rungs)
    monkeypatch.setattr(inverse_sensitivity, "_NEVER", never)
    statistic, rate, entropy = Spread(), Fraction(1, 3), fixed("rungs")
    runs = AnswerRuns.cut(statistic, sorted_rows(FEW, 12), rate)
    law = exact_law(statistic, rate, 12)

    def draw(n: int) -> float:
        sample = np.array([runs.draw(entropy) for _ in range(n)])
        return p_value(sample, lambda c: law[c] if c < len(law) else 0.0, signed=False)

    assert draw(400) > REFUSED
    monkeypatch.setattr(inverse_sensitivity, "flip_coins", lambda *_: np.array([True]))
    assert draw(400) < REFUSED, "the control: every proposal is kept"


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**12), Fraction(1, 100), Fraction(10**9)])
@pytest.mark.parametrize("table", [(), (1,), (0, 12), FEW], ids=len)
def test_every_table_has_an_answer(epsilon: Fraction, table: tuple[int, ...]) -> None:
    for statistic in (Spread(), TrimmedMean(Fraction(0), 8)):
        chosen = AnswerRuns.cut(statistic, sorted_rows(table, 12), epsilon).draw(Entropy())
        assert 0 <= chosen < statistic.count_cells(12)
        met = AnswerRuns.cut(statistic, sorted_rows([0] * len(table), 0), epsilon)
        assert met.draw(Entropy()) == 0, "bounds that meet leave one answer"


def test_the_spread_of_ages() -> None:
    """Without delta, 95 of 100 answers lie within a tenth of the exact 20 at epsilon 1, fewer at 1/1000."""
    rows = SortedRows(np.arange(17, 91), np.array(ADULT_AGES), 0, 120)
    assert rows.n == 32_561
    near = {}
    for epsilon in (Fraction(1), Fraction(1, 1000)):
        part = InverseSensitivity("q", (), "spread", Spread(), 0, 120, epsilon)
        assert part.event.basic == (epsilon, Fraction(0))
        runs, entropy = AnswerRuns.cut(part.statistic, rows, part.rate), fixed("ages")
        near[epsilon] = sum(18 <= runs.draw(entropy) <= 22 for _ in range(100))
    assert near[Fraction(1)] >= 95
    assert near[Fraction(1, 1000)] < 95, "the control: with so little epsilon they do not"


def test_rows_in_any_order_and_beyond_the_bounds() -> None:
    part = InverseSensitivity(
        "q", ("k",), "m", TrimmedMean(Fraction(0), 4), 0, 10, Fraction(10**6), steps=Fraction(2)
    )
    table = pa.table({"k": ["a", "b", "a", "a"], GRID_STEP: [99, 5, 0, -7], STEP_ROWS: [1, 3, 1, 2]})
    answered = part.answer(table, [("a",), ("b",)], Entropy())
    assert answered.columns["m"].to_pylist() == [1.25, 2.5]


class TestSpread(OperatorContract):
    operator = InverseSensitivity(
        "SELECT v", (), "w", Spread(), -5, 90, Fraction(1), 2, column="SELECT c"
    ).alone()

    def exact(self, text: str) -> pa.Table:
        if text == "SELECT c":
            return pa.table({"value": [1, 5, 40]})
        return pa.table({GRID_STEP: [1, 5, 40], STEP_ROWS: [4, 1, 6]})


class TestTrimmedMean(OperatorContract):
    operator = InverseSensitivity(
        "SELECT v", (), "m", TrimmedMean(Fraction(1, 10), 16), -5, 90, Fraction(1, 2)
    ).alone()

    def exact(self, text: str) -> pa.Table:
        return pa.table({GRID_STEP: [1, 5, 40], STEP_ROWS: [4, 1, 6]})
