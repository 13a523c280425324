"""Candidates that rough counts rule out: the others have their exact gaps, and these are as far as they are said to be."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.fast import candidate_scores, column_counts, thresholds
from dpsql.mechanisms.fast.candidate_scores import (
    CANDIDATE_PLACE,
    CandidateFactor,
    CandidatePruning,
    CandidateScores,
    PrunedCandidates,
    ScoreTerm,
)
from dpsql.mechanisms.fast.thresholds import BinnedColumn, HistogramQuery, ThresholdCells, Thresholds
from dpsql.mechanisms.selection import utilities as utilities_module
from dpsql.mechanisms.selection.exponential import ExponentialChoice
from dpsql.mechanisms.selection.utilities import SCORE_GRID, ChoiceRates, compute_generalised_scores
from dpsql.noise import selection
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import compute_reach
from tests.support.candidate_rows import FACTORS, NOT_KNOWN, Rows, made
from tests.support.goodness import REFUSED, fixed, p_value
from tests.support.selection_laws import laplace

KINDS = [np.int8, np.uint8, np.int16, np.int32, np.int64]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("low", "high"), [(0, 99), (-40, 30), (7, 7), (90, 400), (-300, -200), (0, 63)])
@pytest.mark.parametrize("room", [0, 1 << 20])
def test_cells_and_what_is_in_them(
    kind: type, low: int, high: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.mechanisms.fast.thresholds._CELL_BITS", 3)
    monkeypatch.setattr(column_counts, "BLOCK_ROWS", 100)
    dice = np.random.default_rng(high + 500)
    x: np.ndarray = dice.integers(0 if kind is np.uint8 else -100, 120, 1000).astype(kind)
    thresholds = np.array([low, (low + high) // 2, high])
    _check_cells(HistogramQuery("h", "x"), x, thresholds, room)


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("room", [0, 1 << 20])
def test_cells_of_doubles(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN is the greatest value and equal to itself, 0.0 is -0.0, and huge numbers are in the cells at the ends."""
    monkeypatch.setattr("dpsql.mechanisms.fast.thresholds._CELL_BITS", 3)
    monkeypatch.setattr(column_counts, "BLOCK_ROWS", 10)
    x = np.array([NAN, -INF, INF, 0.0, -0.0, 1e308, -1e308, 5e-324, 0.1, 0.3, 0.9, 1.0, NAN, 1.1, -0.1] * 3)
    counted = HistogramQuery("h", "x", doubles=True)
    for bounds in (
        [0.0, -0.0, 0.3, 1.0, 0.30000000000000004, NAN, INF, -INF, 5e-324],
        [0.1, 0.3, 1.0], [2.0, 2.0], [0.0, 1e-320], [-1e308, 1e308], [NAN, INF], [-1.7e308, 1.7e308, 0.0],
    ):  # fmt: skip
        _check_cells(counted, x, np.array(bounds), room)


def _check_cells(counted: HistogramQuery, x: np.ndarray, thresholds: np.ndarray, room: int) -> None:
    """Compare the bounds that cells give, and the counts inside of them, with counts one by one."""
    for after in (False, True):
        known = ThresholdCells.between(counted, Thresholds(thresholds), after)
        found = BinnedColumn(known)
        found.count(iter(np.array_split(x, 4)), room)
        assert found.counts.sum() == len(x)
        size = len(found.counts)
        for v in thresholds:
            end = Thresholds(np.array([v]))
            below = sum(_below(a, v) or (after and not _below(v, a)) for a in x.tolist())
            cell = int(known.of(end)[0])
            assert found.counts[:cell].sum() <= below <= found.counts[: cell + 1].sum()
            for first, last in ((cell, cell + 1), (0, cell + 1), (cell, size), (0, size)):
                run = found.run(first, last, end)
                assert run.sums[run.place(end, after)[0]] == below
                assert run.total == len(x)


def _below(a: float, b: float) -> bool:
    return bool(a < b or (math.isnan(b) and not math.isnan(a)))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small cells, small groups of neighbours, and far begins near."""
    monkeypatch.setattr(candidate_scores, "LEAST_PRUNED", 0)
    monkeypatch.setattr(candidate_scores, "_GROUPS", 25)
    monkeypatch.setattr(thresholds, "_CELL_BITS", 5)
    monkeypatch.setattr(selection, "FAR_BITS", 2)


def test_rows_that_must_stay(small: None) -> None:
    sweep, rows = made(1, ">=", "count", False)
    rows = Rows(rows.candidates, rows.column, room=0)
    assert candidate_scores.group_countable(sweep, rows) is None
    assert rows.asked == []
    assert ThresholdCells.between(HistogramQuery("h", "x"), Thresholds(np.array([0, 1 << 62])), False) is None
    doubles = HistogramQuery("h", "x", doubles=True)
    known = ThresholdCells.between(doubles, Thresholds(np.array([0.0, 9.0])), False)
    assert known is not None
    with pytest.raises(TypeError):
        thresholds.bin_column(known, Rows(pa.table({}), np.arange(30)))


def looked_at(seed: int, op: str, factor: str, shuffled: bool, doubles: bool = False, top: int = 1) -> int:
    """Return the number of near candidates, once they are found to be what they are said to be."""
    sweep, rows = made(seed, op, factor, shuffled, doubles)
    rates = ChoiceRates(Fraction(1, 40 + seed), Fraction(1 + seed % 3, 2 * SCORE_GRID), lambda size: seed % 4)
    found = CandidatePruning(sweep, rates, top=top).take(rows, Entropy())
    assert isinstance(found, PrunedCandidates)
    assert rows.asked == ["x"]
    exact = sweep.take(rows, Entropy())
    scores = exact.scores
    if len(set(exact.sensitivities.tolist())) > 1:
        scores = compute_generalised_scores(exact.scores, exact.sensitivities, seed % 4)
        assert found.rate == rates.unequal
    gaps = int(scores.max()) - scores
    near = np.arange(len(gaps)) if found.gaps.near is None else found.gaps.near
    assert (near[1:] > near[:-1]).all()
    assert 0 in found.gaps.gaps
    assert gaps[near].tolist() == found.gaps.gaps.tolist()
    assert found.gaps.size == len(gaps)
    far = [found.gaps.beyond(j) for j in range(found.gaps.far)]
    assert sorted([*near.tolist(), *(i for i, _ in far)]) == list(range(len(gaps)))
    assert all(gap == gaps[i] > found.gaps.reach for i, gap in far)
    last = int(np.sort(gaps)[min(top, len(gaps)) - 1])  # how far below the best the last winner may be
    assert found.gaps.reach == compute_reach(found.rate) + last
    assert [found.utility(i) for i in range(len(gaps))] == exact.scores.tolist()
    assert rows.asked == ["x", "x"]  # for what is narrowed once: whatever is counted, it is of the same rows
    return len(near)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("op", [">=", ">", "<=", "<"])
def test_the_field_is_what_all_exact_scores_give(small: None, op: str, factor: str, shuffled: bool) -> None:
    near = [looked_at(seed, op, factor, shuffled) for seed in range(6)]
    assert min(near) < 50


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("op", [">=", ">", "<=", "<"])
def test_doubles(small: None, op: str, factor: str) -> None:
    near = [looked_at(seed, op, factor, seed > 1, doubles=True) for seed in range(4)]
    assert min(near) < 50


@pytest.mark.parametrize("top", [2, 7, 99, 100, 1000])
@pytest.mark.parametrize("factor", ["count", "minus"])
@pytest.mark.parametrize("op", [">=", "<"])
def test_several_winners(small: None, op: str, factor: str, top: int) -> None:
    near = [looked_at(seed, op, factor, seed % 2 == 1, seed % 4 > 1, top) for seed in range(8)]
    assert min(near) < 60 if top < 10 else min(near) >= min(top, 100)


def test_several_winners_of_unequal_candidates_are_all_scored(small: None) -> None:
    sweep, rows = made(1, ">=", "price", False)
    rates = ChoiceRates(Fraction(1, 40), Fraction(1, 2 * SCORE_GRID), lambda size: 1)
    assert CandidatePruning(sweep, rates, top=2).take(rows, Entropy()) is None
    assert rows.asked == []


@pytest.mark.parametrize("method", ["exponential", "permute_and_flip", "noisy_max", "gumbel"])
def test_pairs_of_winners(small: None, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two winners have the law of winners among all exact scores, far ones included."""
    monkeypatch.setattr(selection, "FAR_BITS", 1)
    table = pa.table({"v": np.arange(6) * 5, CANDIDATE_PLACE: np.arange(6)})
    rows = Rows(table, np.arange(30))
    term = ScoreTerm(0, FACTORS["count"], ((">=", "v"),))
    sweep = CandidateScores("c", (HistogramQuery("h", "x"),), (term,))
    op = ExponentialChoice(("c",), ("v",), 1, Fraction(1, 4), False, method, top=2, sweep=sweep)
    scores, rate, entropy = [30 - 5 * i for i in range(6)], float(op._rates.equal), fixed("pairs")
    few = op._prune(rows, entropy)
    assert few.gaps.far > 1

    def law_of(left: list[int]) -> list[float]:
        some = [scores[i] for i in left]
        if method == "noisy_max":
            return laplace(some, 1 / rate)
        w = [math.exp(rate * (s - max(some))) for s in some]
        return flipped(w) if method == "permute_and_flip" else [x / sum(w) for x in w]

    law = dict[tuple[int, int], float]()
    for i, p in enumerate(law_of(list(range(6)))):
        others = [j for j in range(6) if j != i]
        law |= {(i, j): p * q for j, q in zip(others, law_of(others), strict=True)}
    pairs = sorted(law, key=lambda pair: -law[pair])
    drawn = [op.release(rows, entropy).table.column("v").to_pylist() for _ in range(800)]
    sample = np.array([pairs.index((a // 5, b // 5)) for a, b in drawn])
    assert p_value(sample, lambda k: law[pairs[k]] if k < len(pairs) else 0.0, signed=False) > REFUSED
    assert p_value(sample, lambda k: 1 / 30 if k < 30 else 0.0, signed=False) < REFUSED
    assert {i for pair in sample for i in pairs[pair]} == set(range(6))


@pytest.mark.parametrize("factor", ["count", "price"])
def test_bounds_that_forget_something_are_found_out(
    small: None, factor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control: what is within reach, or what one unit moves candidates by, left out of what may be near."""
    monkeypatch.setattr(candidate_scores, "_GROUPS", 100)
    monkeypatch.setattr(thresholds, "_CELL_BITS", 12)
    looked_at(1, ">=", factor, False)
    kind = utilities_module.EqualNearness if factor == "count" else utilities_module.UnequalNearness

    def strict(self: Any, bounds: Any) -> Any:
        if factor == "count":
            return bounds.high >= bounds.low.max()
        return bounds.high - self.t * bounds.least >= (bounds.low - self.t * bounds.most).max()

    monkeypatch.setattr(kind, "may_hold", strict)
    with pytest.raises(AssertionError):
        looked_at(1, ">=", factor, False)


def test_wide_numbers(small: None) -> None:
    """Utilities that int64 does not hold."""
    sweep, rows = made(1, ">=", "price", False)
    table = rows.candidates.set_column(1, "f", pa.array(1 + np.arange(100) * (1 << 54)))
    term = ScoreTerm(0, CandidateFactor(1 << 12, "f", 0, 1 << 62), ((">=", "v"),))
    wide = CandidateScores("c", sweep.histograms, (term,), varying=True)
    rows = Rows(table, rows.column)
    rates = ChoiceRates(Fraction(1, 40), Fraction(1, 2 * SCORE_GRID), lambda size: 1)
    found = CandidatePruning(wide, rates).take(rows, Entropy())
    exact = wide.take(rows, Entropy())
    assert exact.scores.dtype == object
    assert exact.sensitivities is not None
    gaps = -compute_generalised_scores(exact.scores, exact.sensitivities, 1)
    assert found.gaps.near is not None
    assert gaps[found.gaps.near].tolist() == found.gaps.gaps.tolist()


@pytest.mark.parametrize("term", NOT_KNOWN)
def test_what_is_not_known_is_not_read(small: None, term: ScoreTerm) -> None:
    _, rows = made(0, ">=", "count", False)
    sweep = CandidateScores("c", (HistogramQuery("h", "x"),), (term,))
    rates = ChoiceRates(Fraction(1), Fraction(1), lambda size: 1)
    assert CandidatePruning(sweep, rates).take(rows, Entropy()) is None
    assert rows.asked == []


@pytest.mark.parametrize("method", ["exponential", "permute_and_flip", "noisy_max"])
@pytest.mark.parametrize("factor", ["count", "price"])
def test_the_law(small: None, method: Any, factor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice has the law of all exact scores, though most candidates are far and only sometimes drawn."""
    n = 12
    v = np.arange(n) * 5
    table = pa.table({"v": v, "f": v // 5 + 1, CANDIDATE_PLACE: np.arange(n)})
    rows = Rows(table, np.repeat(np.arange(60), 1))
    varying = factor == "price"
    term = ScoreTerm(0, FACTORS[factor], ((">=", "v"),))
    sweep = CandidateScores("c", (HistogramQuery("h", "x"),), (term,), varying=varying)
    choice = ExponentialChoice(("c",), ("v",), 1, Fraction(1, 10), True, method, sweep=sweep, varying=varying)
    if varying:  # a larger epsilon, and no margin: scores that differ
        choice = ExponentialChoice(
            ("c",), ("v",), 12, Fraction(1, 2), False, method, sweep=sweep, varying=True
        )
        monkeypatch.setattr(ExponentialChoice, "_margin", lambda self, size: 2)
    exact = sweep.take(rows, Entropy())
    scores, rate = exact.scores, choice._rates.equal
    if varying:
        assert exact.sensitivities is not None
        scores, rate = compute_generalised_scores(exact.scores, exact.sensitivities, 2), choice._rates.unequal
    weights = [math.exp(float(rate) * (int(s) - int(scores.max()))) for s in scores]
    law = [w / sum(weights) for w in weights] if method == "exponential" else flipped(weights)
    if method == "noisy_max":
        coarse = SCORE_GRID // 64 if varying else 1  # steps that 400 draws do not tell from finer ones
        law = laplace([round(int(s) / coarse) for s in scores], 1 / float(rate) / coarse)
    entropy = fixed("narrowed")
    few = choice._prune(rows, entropy)
    assert few.gaps.far > 2
    places = np.argsort(law)[::-1].tolist()
    drawn = [choice.release(rows, entropy).table.column("v")[0].as_py() // 5 for _ in range(400)]
    sample = np.array([places.index(i) for i in drawn])
    assert p_value(sample, lambda k: law[places[k]] if k < n else 0.0, signed=False) > REFUSED
    # Negative controls: who forgets the far ones never draws them; and not everything passes.
    assert set(drawn) > set(few.gaps.near.tolist())
    even = p_value(sample, lambda k: 1 / n if k < n else 0.0, signed=False)
    assert even < REFUSED


def flipped(w: list[float]) -> list[float]:
    """The law of permute-and-flip: by elementary symmetric polynomials of the others' weights."""
    law = []
    for r, mine in enumerate(w):
        e = [1.0]
        for i, x in enumerate(w):
            if i != r:
                e = [a + x * b for a, b in zip([*e, 0.0], [0.0, *e], strict=True)]
        law.append(mine * sum((-1) ** k / (k + 1) * c for k, c in enumerate(e)))
    return law


def test_generalised_near_ones_alone_would_not_do() -> None:
    """The scores of some candidates, without those that are near: not theirs (so near ones must be found first)."""
    dice = np.random.default_rng(3)
    own, utilities = dice.integers(1, 200, 400), dice.integers(-(10**6), 10**6, 400)
    whole = utilities_module.compute_generalised_scores(utilities, own, 5)
    some = np.flatnonzero(whole < np.sort(whole)[200])
    assert (
        utilities_module.compute_generalised_scores(utilities[some], own[some], 5).tolist()
        != whole[some].tolist()
    )
