"""Candidates that a noisy threshold may find: those near it have their exact statistics, and hits the law of all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.fast import candidate_scores, thresholds
from dpsql.mechanisms.fast.candidate_scores import (
    CANDIDATE_PLACE,
    AskedCandidates,
    CandidateCells,
    CandidateFactor,
    CandidateScores,
    ScoreTerm,
    ThresholdPruning,
)
from dpsql.mechanisms.fast.thresholds import HistogramQuery
from dpsql.mechanisms.selection.above_threshold import AboveThreshold, ThresholdNoise
from dpsql.noise import selection
from dpsql.noise.entropy import Entropy
from tests.support.candidate_rows import FACTORS, NOT_KNOWN, Rows, made
from tests.support.goodness import REFUSED, fixed, p_value
from tests.support.svt_law import paths, probability

RATE = Fraction(1, 12)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small cells, small groups of neighbours, and far begins near."""
    monkeypatch.setattr(candidate_scores, "FEW_CANDIDATES", 0)
    monkeypatch.setattr(candidate_scores, "_GROUPS", 25)
    monkeypatch.setattr(thresholds, "_CELL_BITS", 5)
    monkeypatch.setattr(selection, "FAR_BITS", 2)


def looked_at(seed: int, op: str, factor: str, shuffled: bool, doubles: bool = False) -> AskedCandidates:
    """Return the candidates, once they are found to be what they are said to be."""
    sweep, rows = made(seed, op, factor, shuffled, doubles)
    dice = np.random.default_rng(seed)
    places = dice.permutation(100) * 3 if seed % 4 > 1 else np.arange(100)
    rows = Rows(rows.candidates.set_column(2, CANDIDATE_PLACE, pa.array(places)), rows.column, rows.room)
    exact = sweep.take(rows, Entropy())
    scores = exact.scores[np.argsort(places)]
    level, most = int(dice.choice(scores)) + seed % 3, 1 + seed % 5
    rows.asked.clear()
    found = ThresholdPruning(sweep, level, RATE, most).take(rows, Entropy())
    assert isinstance(found, AskedCandidates)
    assert rows.asked == ["x"]
    size, near = found.short.size, found.short.near
    assert size == 100 or np.count_nonzero(scores[:size] >= level) >= most
    assert [found.row_of(place) for place in range(size)] == np.argsort(places)[:size].tolist()
    assert found.short.gaps.tolist() == (level - scores[near]).tolist()
    far = [found.short.beyond(j) for j in range(found.short.far)]
    assert sorted([*near.tolist(), *(place for place, _ in far)]) == list(range(size))
    assert all(short == level - scores[place] > found.short.reach for place, short in far)
    assert [found.score_of(place) for place in range(size)] == scores[:size].tolist()
    assert rows.asked == ["x"]  # whatever is counted, it is of the same rows
    return found


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("op", [">=", ">", "<=", "<"])
def test_the_field_is_what_all_exact_scores_give(small: None, op: str, factor: str, shuffled: bool) -> None:
    found = [looked_at(seed, op, factor, shuffled) for seed in range(8)]
    assert min(len(one.short.gaps) for one in found) < 50
    assert min(one.short.size for one in found) < 100


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("op", [">=", "<"])
def test_doubles(small: None, op: str, factor: str) -> None:
    found = [looked_at(seed, op, factor, seed > 2, doubles=True) for seed in range(6)]
    assert min(len(one.short.gaps) for one in found) < 50


def test_bounds_that_forget_something_are_found_out(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls: no reach; and candidates that perhaps reach the level taken for ones that do."""
    find_near = CandidateCells._find_near

    def strict(self: Any, level: int, reach: int, most: int) -> Any:
        return find_near(self, level, 0, most)

    with monkeypatch.context() as patched:
        patched.setattr(CandidateCells, "_find_near", strict)
        with pytest.raises(AssertionError):
            for seed in range(8):
                looked_at(seed, ">=", "count", False)
    corners = candidate_scores.CandidateCells._find_corners

    def high(self: Any) -> Any:
        return [np.maximum.reduce(corners(self))]

    monkeypatch.setattr(candidate_scores.CandidateCells, "_find_corners", high)
    with pytest.raises(AssertionError):
        for seed in range(8):
            looked_at(seed, ">=", "count", False)


@pytest.mark.parametrize(("level", "near"), [(10**9, 0), (-(10**9), 1), (1 << 70, 0)])
def test_all_far_and_all_above(small: None, level: int, near: int) -> None:
    sweep, rows = made(1, ">=", "count", False)
    found = ThresholdPruning(sweep, level, RATE, 1).take(rows, Entropy())
    assert len(found.short.gaps) == near
    assert found.short.size == (100 if not near else 1)


@pytest.mark.parametrize("term", NOT_KNOWN)
def test_what_is_not_known_is_not_read(small: None, term: ScoreTerm) -> None:
    _, rows = made(0, ">=", "count", False)
    sweep = CandidateScores("c", (HistogramQuery("h", "x"),), (term,))
    assert ThresholdPruning(sweep, 3, RATE, 1).take(rows, Entropy()) is None
    assert rows.asked == []


SCORES = [3, 6, 1, 4, 2]
NOISE = ThresholdNoise(1, Fraction(1, 2), Fraction(3, 4), 2, monotone=True)


def operator(noise: ThresholdNoise, **more: Any) -> tuple[AboveThreshold, Rows]:
    """Return an operator over candidates of :data:`SCORES`, in an order of their own."""
    table = pa.table({"k": list("abcde"), "v": [-s for s in SCORES], CANDIDATE_PLACE: [0, 2, 4, 6, 8]})
    sweep = CandidateScores(
        "c", (HistogramQuery("h", "x"),), (ScoreTerm(0, CandidateFactor(1), ((">", "v"),)),)
    )
    # of -5, -4, ..., 0 above -s there are s: one that is beyond all thresholds is not there
    rows = Rows(table.take([4, 2, 0, 1, 3]), np.arange(-5, 1).astype(np.int32))
    return AboveThreshold(("c",), ("k",), 4, noise, sweep=sweep, **more), rows


def sample(op: AboveThreshold, rows: Rows, n: int, label: str) -> np.ndarray:
    labels = {tuple("abcde"[j] for j, above in enumerate(p) if above): i for i, p in enumerate(paths(5, 2))}
    entropy = fixed(label)
    return np.array(
        [labels[tuple(op.release(rows, entropy).table.column("k").to_pylist())] for _ in range(n)]
    )


def test_releases_follow_the_exact_law(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hits have the law of all exact statistics, though some candidates are far; and forgetting these is found out."""
    monkeypatch.setattr(candidate_scores, "_GROUPS", 5)
    monkeypatch.setattr(selection, "FAR_BITS", 1)
    op, rows = operator(NOISE)
    far = [few.short.far for level in range(1, 9) if (few := op._prune(rows, level, Entropy())) is not None]
    assert len(far) == 8
    assert max(far) > 2
    a, b = (Fraction(math.exp(-r)) for r in (NOISE.threshold_rate, NOISE.query_rate))
    over = tuple(s - 4 - NOISE.centre for s in SCORES)
    law = [float(probability(a, b, over, answers)) for answers in paths(5, 2)]
    drawn = sample(op, rows, 1000, "few")
    assert p_value(drawn, lambda i: law[i] if i < len(law) else 0.0, signed=False) > REFUSED
    monkeypatch.setattr(selection, "toss_rare_coins", lambda *given: [])
    assert (
        p_value(sample(op, rows, 1000, "few"), lambda i: law[i] if i < len(law) else 0.0, signed=False)
        < REFUSED
    )


def test_who_is_missed_is_asked_again(small: None) -> None:
    """With two passes, the law of hits is that of candidates asked twice, one after another."""
    noise = replace(NOISE, asked_again=1)
    op, rows = operator(noise)
    entropy = fixed("again")
    plain = replace(op, sweep=None)
    exact = op.sweep.take(rows, Entropy()) if op.sweep is not None else None
    scored = rows.candidates.append_column("dpsql_score", pa.array(exact.scores))
    n = 500
    counts = [
        np.bincount(
            [ord(k) - 97 for _ in range(n) for k in one.release(read, entropy).table.column("k").to_pylist()]
        )
        for one, read in ((op, rows), (plain, lambda sql: scored))
    ]
    width = 5 * math.sqrt(n / 2)  # of a difference five deviations, at most
    assert np.abs(counts[0] - counts[1]).max() < width
    assert (
        np.abs(counts[0] - np.bincount(sample(replace(op, noise=NOISE), rows, n, "once") % 5)).max() > width
    )


def test_answers_and_gaps_are_of_the_hits(small: None) -> None:
    sharp = ThresholdNoise(1, Fraction(1000), Fraction(10**6), 2, monotone=True)
    op, rows = operator(sharp, gap="gap", answer=("answer", Fraction(1000)))
    released = op.release(rows, Entropy()).table
    assert released.column("k").to_pylist() == ["b", "d"]
    assert released.column("answer").to_pylist() == [6, 4]
    assert released.column("gap").to_pylist() == [2.0, 0.0]


def test_other_thresholds_are_asked_one_by_one(small: None) -> None:
    for op, rows in (operator(replace(NOISE, refresh=True)), operator(NOISE)):
        other = op if op.noise.refresh else replace(op, threshold=None)
        assert other._prune(rows, 4, Entropy()) is None
    assert rows.asked == []
