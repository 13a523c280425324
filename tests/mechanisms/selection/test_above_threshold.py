"""The sparse vector technique: exact laws, exact losses path by path, and the literature's broken variants."""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_SCORE, CANDIDATE_THRESHOLD
from dpsql.mechanisms.selection import above_threshold
from dpsql.mechanisms.selection.above_threshold import (
    AboveThreshold,
    InteractiveThreshold,
    ThresholdNoise,
    split_epsilon,
)
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_geometric
from dpsql.privacy.events import DiscreteLaplace, SparseVector, compose_events
from tests.support.goodness import REFUSED, fixed, p_value
from tests.support.operator_contract import OperatorContract
from tests.support.svt_law import Answers, gapped, neighbours, paths, probability, refreshed

VECTORS = json.loads((Path(__file__).parents[2] / "published" / "vectors" / "vectors_svt.json").read_text())
HALF = Fraction(1, 2)
A, B = Fraction(3, 5), Fraction(2, 3)
"""exp(-rate) of the threshold's and of the statistics' noise in the exact checks: any rationals do."""


def worst(
    over_values: range, length: int, sensitivity: int, monotone: bool, max_hits: int, refresh: bool
) -> Fraction:
    """The largest ratio of probabilities, as a part of what its path is charged. Raises if any is above 1."""
    factor = 1 if monotone else 2
    law = refreshed if refresh else probability
    most = Fraction(0)
    for over in itertools.product(over_values, repeat=length):
        for other in neighbours(over, sensitivity, monotone):
            for answers in paths(length, max_hits):
                hits = sum(answers)
                rounds = min(hits + 1, max_hits) if refresh else 1
                charged = A ** (-sensitivity * rounds) * B ** (
                    -factor * sensitivity * (rounds if refresh else hits)
                )
                p, q = law(A, B, over, answers), law(A, B, other, answers)
                assert p <= charged * q, (over, other, answers)
                assert q <= charged * p, (over, other, answers)
                most = max(most, p / q / charged, q / p / charged)
    return most


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("max_hits", [1, 2, 3])
def test_no_path_loses_more_than_it_is_charged(monotone: bool, max_hits: int) -> None:
    assert worst(range(-1, 2), 3, 1, monotone, max_hits, refresh=False) > Fraction(1, 2)


@pytest.mark.parametrize("monotone", [False, True])
def test_with_a_sensitivity_of_two(monotone: bool) -> None:
    worst(range(-1, 2), 2, 2, monotone, 2, refresh=False)


@pytest.mark.parametrize("max_hits", [1, 2])
def test_rounds_are_charged_as_they_begin(max_hits: int) -> None:
    worst(range(-1, 2), 3, 1, False, max_hits, refresh=True)


def test_the_paths_are_all_there_is() -> None:
    over = (1, -2, 0, 3)
    for max_hits in (1, 2, 4):
        assert sum(probability(A, B, over, p) for p in paths(4, max_hits)) == 1
        assert sum(refreshed(A, B, over, p) for p in paths(4, max_hits)) == 1


def test_gaps_are_free() -> None:
    """The gap of a hit above the noisy threshold costs nothing more (Ding et al. 2019)."""
    for over in itertools.product(range(-1, 2), repeat=2):
        for other in neighbours(over, 1, monotone=False):
            for answers in paths(2, 2):
                hits = sum(answers)
                for gaps in itertools.product(range(4), repeat=hits):
                    p, q = probability(A, B, over, answers, gaps), probability(A, B, other, answers, gaps)
                    assert p <= q / A / B ** (2 * hits)


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("refresh", [False, True])
def test_rates_are_those_of_the_losses(monotone: bool, refresh: bool) -> None:
    """The exact checks' A ** -D and B ** -2D are exp(epsilon1) and exp(epsilon2 / c)."""
    for c, d in ((1, 1), (7, 3)):
        e1, e2 = split_epsilon(Fraction(3, 10), 1 if refresh else c, monotone)
        noise = ThresholdNoise(d, e1, e2, c, monotone, refresh)
        assert e1 + e2 == Fraction(3, 10)
        assert noise.threshold_rate * d * (c if refresh else 1) == e1
        assert noise.query_rate * d * (1 if monotone else 2) * c == e2


def test_three_hits_of_ten() -> None:
    """Charged epsilon1 + 3 epsilon2 / 10, which some path of three hits really loses; with refresh four tenths."""
    noise = ThresholdNoise(1, Fraction(1), Fraction(2), 10, monotone=False)
    found = SparseVector(noise.epsilon1, noise.epsilon2, 10, 3)
    assert found.basic == (1 + Fraction(6, 10), 0)
    assert SparseVector(HALF, HALF, 10, 3, refresh=True).basic == (Fraction(4, 10), 0)
    a, b = (Fraction(math.exp(-r)) for r in (noise.threshold_rate, noise.query_rate))
    most = 0.0
    for misses in (0, 5, 40):
        for q in (0, -8):
            over = (0,) * misses + (q,) * 3
            other = (1,) * misses + (q - 1,) * 3
            answers = (False,) * misses + (True,) * 3
            most = max(most, math.log(probability(a, b, over, answers) / probability(a, b, other, answers)))
    assert 1.6 * 0.99 < most <= 1.6 + 1e-9


def loss(
    over: tuple[int, ...], other: tuple[int, ...], answers: Answers, a: Fraction, b: Fraction, **more: int
) -> float:
    return math.log(probability(a, b, over, answers, **more) / probability(a, b, other, answers, **more))


class TestBrokenVariants:
    """Each of these is in print, claims epsilon1 + epsilon2 = 1, and loses more. Noise e^-1/2 a step, e^-1/4 for 2 D."""

    a, b = Fraction(math.exp(-0.5)), Fraction(math.exp(-0.25))

    def test_the_right_one(self) -> None:
        for k in (1, 10, 30):
            right = loss((0,) * k + (-3,), (1,) * k + (-4,), (False,) * k + (True,), self.a, self.b)
            assert right <= 1 + 1e-9

    def test_no_threshold_noise(self) -> None:
        assert loss((-2,) * 20, (-1,) * 20, (False,) * 20, Fraction(0), self.b) > 4

    def test_no_cut_off(self) -> None:
        k, c = 30, 10
        assert (
            loss((0,) * k + (-3,) * c, (1,) * k + (-4,) * c, (False,) * k + (True,) * c, self.a, self.b) > 2.9
        )

    def test_query_noise_without_the_number_of_hits(self) -> None:
        k, c = 30, 3
        assert (
            loss((0,) * k + (-3,) * c, (1,) * k + (-4,) * c, (False,) * k + (True,) * c, self.a, self.b) > 1.2
        )

    def test_compared_value_released(self) -> None:
        k = 30
        lost = loss((0,) * k + (0,), (1,) * k + (0,), (False,) * k + (True,), self.a, self.b, value=4)
        assert lost > 1.5

    @pytest.mark.parametrize(("power", "least", "most"), [(1, 0.99, 1 + 1e-9), (2, 1.49, 1.51), (40, 6, 1e9)])
    def test_gap_with_less_noise(self, power: float, least: float, most: float) -> None:
        """Half of it, and hardly any: the gap alone then says more than the comparison was charged. The right one does not."""
        lost = 0.0
        a, b = float(self.a), float(self.b)
        path = (0, 1, -2), (False, False, True)
        assert gapped(a, b, b, *path, 3) == pytest.approx(float(probability(self.a, self.b, *path, (3,))))
        for q, k, gap in ((-3, 60, 21), (30, 5, 39), (30, 5, 24), (3, 5, 0), (8, 0, 9)):
            for d in (-1, 1):
                said = (False,) * k + (True,)
                p = gapped(a, b, b**power, (0,) * k + (q,), said, gap)
                lost = max(lost, abs(math.log(p / gapped(a, b, b**power, (-d,) * k + (q + d,), said, gap))))
        assert least < lost < most

    def test_monotone_noise_for_what_is_not_monotone(self) -> None:
        b = Fraction(math.exp(-0.5))
        over, other = (0,) * 30 + (-6,), (1,) * 30 + (-7,)
        assert loss(over, other, (False,) * 30 + (True,), self.a, b) > 1.4
        assert loss(over, (1,) * 30 + (-6,), (False,) * 30 + (True,), self.a, b) <= 1 + 1e-9

    def test_yes_or_no_is_not_for_epsilon1_only(self) -> None:
        assert loss((0,) * 30 + (-3,), (1,) * 30 + (-4,), (False,) * 30 + (True,), self.a, self.b) > 0.9


def test_published_probabilities() -> None:
    """One-sided exponential noise, as geometric noise on a grid of 400 steps to a unit, without centring."""
    cases = [v for v in VECTORS["vectors"] if "exponential" in v["mech"]]
    assert len(cases) == 3
    m = 400
    noise = ThresholdNoise(m, HALF, HALF, 1, monotone=False)
    a, b = math.exp(-noise.threshold_rate), math.exp(-noise.query_rate)
    z = np.arange(60 * m)
    weight = (1 - a) * a**z
    for case in cases:
        alive = np.ones(len(z))
        for q, expected in zip(case["q"], case["first_above_index_pmf"], strict=True):
            hit = b ** np.maximum(0, z - (q - case["T"]) * m)
            assert float((weight * alive * hit).sum()) == pytest.approx(expected, abs=1.5 / m)
            alive = alive * (1 - hit)
        assert float((weight * alive).sum()) == pytest.approx(case["none"], abs=1.5 / m)


def test_the_centre_makes_ties_even() -> None:
    for noise in (
        ThresholdNoise(10, Fraction(1, 10), Fraction(1, 10), 1, True),
        ThresholdNoise(3, Fraction(1, 100), Fraction(1, 40), 5, False),
    ):
        a, b = (Fraction(math.exp(-r)) for r in (noise.threshold_rate, noise.query_rate))
        assert float(probability(a, b, (-noise.centre,), (True,))) == pytest.approx(0.5, abs=0.02)


# -- the operator --------------------------------------------------------------------------------------------------


def relation(scores: list[int | None], **columns: list[object]) -> pa.Table:
    table = {"k": pa.array([f"c{i}" for i in range(len(scores))], pa.string())}
    table |= {name: pa.array(values) for name, values in columns.items()}
    order, made = pa.array(range(len(scores)), pa.int64()), pa.array(scores, pa.int64())
    return pa.table({**table, "dpsql_ord": order, CANDIDATE_SCORE: made})


def operator(noise: ThresholdNoise, threshold: int | None = 0, **more: object) -> AboveThreshold:
    return AboveThreshold(("q",), ("k",), threshold, noise, **more)  # type: ignore[arg-type]


SHARP = ThresholdNoise(1, Fraction(1000), Fraction(10**6), 3, monotone=True)


def test_hits_in_order_and_cut_off() -> None:
    table = relation([-9, 9, None, 8, 7, 9])
    shuffled = table.take([5, 3, 0, 1, 4, 2])
    release = operator(SHARP, threshold=5, gap="gap").release(lambda sql: shuffled, Entropy())
    assert release.table.to_pydict() == {"k": ["c1", "c3", "c4"], "gap": [4.0, 3.0, 2.0]}
    assert release.event == SparseVector(SHARP.epsilon1, SHARP.epsilon2, 3, 3)


def test_thresholds_of_candidates_and_steps() -> None:
    table = relation([10, 10, 10], **{CANDIDATE_THRESHOLD: [20, 5, 10]})
    release = operator(SHARP, None, gap="g", steps=Fraction(4)).release(lambda sql: table, Entropy())
    assert release.table.to_pydict() == {"k": ["c1", "c2"], "g": [1.25, 0.0]}


def test_batches_are_read_while_hits_are_wanted() -> None:
    read: list[str] = []

    def batch(sql: str) -> pa.Table:
        read.append(sql)
        return relation([9] if sql == "b" else [-9])

    noise = ThresholdNoise(1, Fraction(1000), Fraction(1000), 1, monotone=True)
    release = AboveThreshold(("a", "b", "c"), ("k",), 0, noise).release(batch, Entropy())
    assert (read, release.table.num_rows) == (["a", "b"], 1)


@pytest.mark.parametrize("scores", [[], [-50], [None, -50]])
def test_no_hit_is_no_row_and_says_so(scores: list[int | None]) -> None:
    release = operator(SHARP, answer=("answer", HALF), gap="gap", threshold=10).release(
        lambda sql: relation(scores), Entropy()
    )
    assert release.table.num_rows == 0
    assert release.table.schema.field("k").type == pa.string()
    assert release.table.schema.field("answer").type == pa.int64()
    assert "no candidate was found above the threshold" in release.notes[0]
    assert compose_events([release.event]).basic[0] == SHARP.epsilon1 + HALF


def test_answers_are_fresh_and_shared_among_the_hits() -> None:
    op = operator(SHARP, answer=("answer", Fraction(100)))
    assert op.event == compose_events(
        [SparseVector(SHARP.epsilon1, SHARP.epsilon2, 3), DiscreteLaplace(Fraction(100), 1)]
    )
    release = op.release(lambda sql: relation([40, 30]), Entropy())
    assert release.table.column("answer").to_pylist() == [40, 30]
    low, high = (
        release.table.column("answer__low").to_pylist(),
        release.table.column("answer__high").to_pylist(),
    )
    assert all(lo <= v <= hi for lo, v, hi in zip(low, [40, 30], high, strict=True))


def test_fresh_answers_are_not_the_compared_values() -> None:
    """A compared value is never below the threshold; fresh ones are, half the time for a statistic at it."""
    noise = ThresholdNoise(1, Fraction(1, 4), Fraction(1, 4), 1, monotone=True)
    op = operator(noise, answer=("answer", Fraction(1, 20)))
    entropy = fixed("fresh")
    answers = []
    for _ in range(200):
        answers += op.release(lambda sql: relation([2] * 40), entropy).table.column("answer").to_pylist()
    assert len(answers) > 100
    assert 0.3 < sum(v < 0 for v in answers) / len(answers) < 0.6


def test_a_stream_of_one_is_true_or_false() -> None:
    for score, expected in ((50, True), (-50, False)):
        release = operator(ThresholdNoise(1, Fraction(10), Fraction(10), 1, True), flag="above").release(
            lambda sql, s=score: relation([s]), Entropy()
        )
        assert release.table.to_pydict() == {"above": [expected]}


def test_scores_beyond_64_bits() -> None:
    far = pa.array([-(10**30), 10**30], pa.decimal128(38, 0))
    wide = pa.table({"k": ["a", "b"], "dpsql_ord": [0, 1], CANDIDATE_SCORE: far})
    assert operator(SHARP).release(lambda sql: wide, Entropy()).table.column("k").to_pylist() == ["b"]


def drawn(
    op: AboveThreshold, table: pa.Table, n: int, label: str, labels: dict[tuple[str, ...], int]
) -> np.ndarray:
    entropy = fixed(label)
    found = (op.release(lambda sql: table, entropy).table.column("k") for _ in range(n))
    return np.array([labels[tuple(column.to_pylist())] for column in found])


SAMPLED = [
    pytest.param(
        monotone, refresh, n, marks=mark, id=f"{'monotone' if monotone else 'general'}-{refresh}-{n}"
    )
    for monotone in (False, True)
    for refresh in (False, True)
    for n, mark in ((2_000, ()), (20_000, pytest.mark.stochastic))
]


@pytest.mark.parametrize(("monotone", "refresh", "n"), SAMPLED)
def test_releases_follow_the_exact_law(monotone: bool, refresh: bool, n: int) -> None:
    noise = ThresholdNoise(1, Fraction(1, 2), Fraction(3, 4), 2, monotone, refresh)
    scores = [3, 6, 4, 2]
    a, b = (Fraction(math.exp(-r)) for r in (noise.threshold_rate, noise.query_rate))
    over = tuple(s - 4 - noise.centre for s in scores)
    law, labels = [], {}
    for i, answers in enumerate(paths(4, 2)):
        labels[tuple(f"c{j}" for j, above in enumerate(answers) if above)] = i
        law.append(float((refreshed if refresh else probability)(a, b, over, answers)))
    sample = drawn(operator(noise, threshold=4), relation(scores), n, f"svt {monotone} {refresh}", labels)
    assert p_value(sample, lambda i: law[i] if i < len(law) else 0.0, signed=False) > REFUSED
    control = [float(probability(a, b, tuple(o + 1 for o in over), answers)) for answers in paths(4, 2)]
    assert p_value(sample, lambda i: control[i] if i < len(law) else 0.0, signed=False) < REFUSED


@pytest.mark.parametrize("wrong", ["nothing", "half the noise", "no noise", "from the threshold itself"])
def test_gaps_follow_the_exact_law(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And gaps that are made otherwise do not: those with less noise, and those that give the threshold's noise away."""
    noise = ThresholdNoise(1, Fraction(1, 2), Fraction(1, 3), 1, monotone=True)
    op, entropy = operator(noise, threshold=0, gap="gap"), fixed("gaps")
    levels: list[int] = []

    def drawn(rate: Fraction, n: int, entropy: Entropy) -> np.ndarray:
        if rate == noise.threshold_rate:
            levels.append(noise.centre + int(draw_geometric(rate, 1, entropy)[0]))
            return np.array([levels[-1] - noise.centre])
        if wrong == "from the threshold itself":
            return np.asarray(draw_geometric(rate, n, entropy) + levels[-1])
        return np.asarray(
            draw_geometric(rate * {"half the noise": 2, "no noise": 99}.get(wrong, 1), n, entropy)
        )

    monkeypatch.setattr(above_threshold, "draw_geometric", drawn)
    a, b = (Fraction(math.exp(-r)) for r in (noise.threshold_rate, noise.query_rate))
    gaps: list[int] = []
    while len(gaps) < 1000:
        table = op.release(lambda sql: relation([6]), entropy).table
        gaps += [int(g) for g in table.column("gap").to_pylist()]
    whole = float(probability(a, b, (6 - noise.centre,), (True,)))
    law = [float(probability(a, b, (6 - noise.centre,), (True,), (g,))) / whole for g in range(60)]
    places = np.argsort(law)[::-1].tolist()
    sample = np.array([places.index(g) if g < 60 else g for g in gaps])
    fits = p_value(sample, lambda k: law[places[k]] if k < 60 else 0.0, signed=False) > REFUSED
    assert fits is (wrong == "nothing")


def test_the_stated_reach_holds() -> None:
    noise = ThresholdNoise(1, Fraction(1, 4), Fraction(1, 4), 1, monotone=True)
    entropy, k = fixed("reach"), 50
    reach = math.ceil(noise.reach(0.9, k))
    op = operator(noise, threshold=0)
    scores = [-reach] * (k - 1) + [reach]
    wrong = sum(
        op.release(lambda sql: relation(scores), entropy).table.column("k").to_pylist() != [f"c{k - 1}"]
        for _ in range(300)
    )
    assert wrong <= 60  # 30 are allowed on average, 60 never
    near = [-reach // 4] * (k - 1) + [reach]
    wrong = sum(
        op.release(lambda sql: relation(near), entropy).table.column("k").to_pylist() != [f"c{k - 1}"]
        for _ in range(300)
    )
    assert wrong > 60


# -- interactive ---------------------------------------------------------------------------------------------------


def test_stream_follows_the_exact_law() -> None:
    """A question of sensitivity 3 is compared in steps of 3 / 1024."""
    e1, e2 = Fraction(1, 2), Fraction(3, 4)
    entropy, n = fixed("stream"), 1500
    seen = []
    for _ in range(n):
        stream = InteractiveThreshold(e1, e2, 1, False, entropy)
        answers = [stream.ask(6, 3, 3), None if stream.exhausted else stream.ask(30, 30, 10)]
        seen.append(0 if answers[0] else 1 if answers[1] else 2)
    noise = stream.noise
    a, b = math.exp(-noise.threshold_rate), math.exp(-noise.query_rate)
    z = np.arange(200_000)
    weight = (1 - a) * a**z
    first, second = (b ** np.maximum(0, z + noise.centre - over) for over in (1024, 0))
    law = [float((weight * w).sum()) for w in (first, (1 - first) * second, (1 - first) * (1 - second))]
    assert sum(law) == pytest.approx(1)
    assert p_value(np.array(seen), lambda i: law[i] if i < 3 else 0.0, signed=False) > REFUSED
    assert p_value(np.array(seen), lambda i: law[2 - i] if i < 3 else 0.0, signed=False) < REFUSED


def test_stream_closes_itself() -> None:
    stream = InteractiveThreshold(HALF, HALF, 2, False, Entropy())
    while not stream.exhausted:
        stream.ask(10**9, 0, 1)
    assert (stream.hits, stream.event) == (2, SparseVector(HALF, HALF, 2, 2))
    with pytest.raises(ValueError, match="closed"):
        stream.ask(0, 0, 1)


def test_stream_is_never_copied() -> None:
    stream = InteractiveThreshold(HALF, HALF, 1, False, Entropy())
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="one process"):
            copied(stream)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_stream_is_closed_in_a_forked_child() -> None:
    stream = InteractiveThreshold(HALF, HALF, 1, False, Entropy())
    child = os.fork()
    if child == 0:
        os._exit(7 if stream.exhausted else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert not stream.exhausted


@pytest.mark.parametrize("threshold", [0, 3 * 10**17, -3 * 10**17, 1 << 62, 1 << 70])
@pytest.mark.parametrize("column", [False, True])
def test_scores_at_the_ends_of_64_bits_are_compared_as_numbers(threshold: int, column: bool) -> None:
    """Nothing wraps around: a score far below its threshold would be a hit, and exactly from some count on."""
    if column and threshold > 1 << 62:
        pytest.skip("a column of thresholds holds 64 bits")
    scores = [-(1 << 63), -9 * 10**18, -5 * 10**18, 5 * 10**18, (1 << 63) - 1]
    given = {CANDIDATE_SCORE: scores, CANDIDATE_THRESHOLD: [min(threshold, 1 << 62)] * 5}
    table = pa.table({"v": range(5), "dpsql_ord": range(5), **given})
    noise = ThresholdNoise(4 * 10**15, Fraction(1), Fraction(1), 5, True)
    operator = AboveThreshold(("q",), ("v",), None if column else threshold, noise)
    found = operator.release(lambda text, lent=None: table, Entropy()).table.column("v").to_pylist()
    assert found == [i for i, score in enumerate(scores) if score > threshold]


@pytest.mark.parametrize("refresh", [False, True])
def test_an_interactive_threshold_has_the_noise_of_questions_that_move_either_way(refresh: bool) -> None:
    """Nobody knows which way the next question moves, so the factor 2 stays; all hits share the second part."""
    stream = InteractiveThreshold(Fraction(1, 2), Fraction(3), 3, refresh, Entropy())
    assert stream.noise.query_rate * InteractiveThreshold._FINE == Fraction(3) / (2 * 3)
    assert stream.noise.threshold_rate * InteractiveThreshold._FINE == Fraction(1, 2) / (3 if refresh else 1)


def test_how_rarely_an_interactive_threshold_is_passed_from_below() -> None:
    """Between answers that are one step of sensitivity apart the chance of a hit falls by exp(epsilon2 / 2), no more."""

    def hits(value: int, runs: int = 3000) -> int:
        return sum(
            InteractiveThreshold(Fraction(40), Fraction(2), 1, False, entropy).ask(value, 0, 1)
            for _ in range(runs)
        )

    entropy = fixed("from below")
    near, far = hits(0), hits(-1)
    # 5 standard deviations; without the factor 2 it would be 0.14
    assert abs(far / near - math.exp(-1)) < 0.08


class TestAboveThreshold(OperatorContract):
    noise = ThresholdNoise(1, *split_epsilon(Fraction(1, 2), 2, monotone=True), 2, True)
    operator = AboveThreshold(("SELECT k",), ("k",), 3, noise, answer=("n", Fraction(1, 4)), gap="gap")

    def exact(self, text: str) -> pa.Table:
        return pa.table({"k": range(6), "dpsql_ord": range(6), CANDIDATE_SCORE: [0, 1, 3, 4, 2, 9]})
