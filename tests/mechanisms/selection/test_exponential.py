"""The exponential mechanism and its kin: exact laws, exact losses, and the theorem that is not one."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_SCORE
from dpsql.mechanisms.selection.exponential import CHOICE_METHODS, ExponentialChoice
from dpsql.mechanisms.selection.utilities import SCORE_GRID, SCORE_SENSITIVITY, compute_generalised_scores
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import (
    CandidateGaps,
    choose_exponential,
    choose_noisy_max,
    flip_coins,
    permute_and_flip,
)
from dpsql.numerics.exact_numbers import Integers, to_integers
from dpsql.privacy.events import BoundedRange, DiscreteLaplace, PureDP, compose_events
from tests.support.goodness import REFUSED, fixed, p_value
from tests.support.operator_contract import OperatorContract
from tests.support.selection_laws import choice, em, laplace, pf, weights

VECTORS = json.loads((Path(__file__).parents[2] / "published" / "vectors" / "vectors_em.json").read_text())
Law = Callable[[Sequence[Fraction]], list[Fraction]]
"""The probability of each index, given the weights exp(rate * (u - best))."""


@pytest.mark.parametrize("case", VECTORS["em_pf_vectors"], ids=lambda c: f"{c['u']} {c['eps']}")
def test_published_probabilities(case: dict) -> None:
    x = Fraction(math.exp(-case["eps"] / (2 * case["sensitivity"])))
    for law, name in ((em, "em"), (pf, "permute_and_flip")):
        assert [float(p) for p in law(weights(case["u"], x))] == pytest.approx(case[name], abs=1e-12)


@pytest.mark.parametrize("case", VECTORS["example_3_6"], ids=lambda c: f"{c['c']} {c['eps']}")
def test_published_example_of_two_candidates(case: dict) -> None:
    full, half = Fraction(math.exp(-case["eps"])), Fraction(math.exp(-case["eps"] / 2))
    scores = (0, case["c"])
    assert float(em(weights(scores, half))[0]) == pytest.approx(case["em_exact"], rel=1e-9)
    assert float(em(weights(scores, full))[0]) == pytest.approx(case["em_monotone_exact"], rel=1e-9)
    assert float(pf(weights(scores, full))[0]) == pytest.approx(case["one_sided_monotone_exact"], rel=1e-9)
    assert float(pf(weights(scores, half))[0]) == pytest.approx(case["one_sided_general_exact"], rel=1e-9)


# -- losses, in rational numbers: x = exp(-rate), a step of score changes a weight by x ---------------------------

X = Fraction(2, 3)


def worst(law: Law, moves: Sequence[int], size: int = 3, scores: range = range(4)) -> Fraction:
    """The largest ratio of probabilities over all neighbours."""
    most = Fraction(0)
    for u in itertools.product(scores, repeat=size):
        p = law(weights(u, X))
        for move in itertools.product(moves, repeat=size):
            q = law(weights([a + b for a, b in zip(u, move, strict=True)], X))
            most = max(
                most, *(a / b for a, b in zip(p, q, strict=True)), *(b / a for a, b in zip(p, q, strict=True))
            )
    return most


@pytest.mark.parametrize("law", [em, pf])
def test_general_loss_is_two_steps_of_the_rate(law: Law) -> None:
    assert X**-2 * Fraction(3, 4) < worst(law, (-1, 0, 1)) <= X**-2


@pytest.mark.parametrize("law", [em, pf])
def test_monotone_loss_is_one_step(law: Law) -> None:
    """So the sharper rate is epsilon / D where a unit moves all utilities one way, and only there."""
    assert X**-1 * Fraction(3, 4) < worst(law, (0, 1)) <= X**-1
    assert worst(law, (-1, 0, 1)) > X**-1


def test_laplace_noisy_max_loses_no_more() -> None:
    scale = 2.0
    for moves, allowed in (((-1, 0, 1), 2 / scale), ((0, 1), 1 / scale)):
        most = 0.0
        for u in itertools.product(range(3), repeat=3):
            p = laplace(u, scale)
            assert sum(p) == pytest.approx(1)
            for move in itertools.product(moves, repeat=3):
                q = laplace([a + b for a, b in zip(u, move, strict=True)], scale)
                most = max(most, *(abs(math.log(a / b)) for a, b in zip(p, q, strict=True)))
        assert 0.6 * allowed < most <= allowed + 1e-9


def test_exponential_noise_is_not_the_exponential_mechanism() -> None:
    """A theorem in print says that the index of the largest score plus one-sided exponential noise follows the
    exponential mechanism. It follows permute-and-flip: two candidates c apart already tell them apart."""
    x = math.exp(-0.5)
    for c in (1, 5):
        # The worse one wins if its noise beats the better one's by c: half of the chance that it exceeds c.
        noisy = x**c / 2
        assert noisy == pytest.approx(float(pf(weights((0, c), Fraction(x)))[0]))
        assert abs(noisy - float(em(weights((0, c), Fraction(x)))[0])) > 0.03
    n = 200_000
    rng = np.random.default_rng(3)
    u = np.array([0, 1, 2, 4])
    won = np.argmax(u + rng.exponential(2.0, (n, 4)), axis=1)
    laws = [[float(p) for p in law(weights(u.tolist(), Fraction(x)))] for law in (pf, em)]
    assert p_value(won, lambda i: laws[0][i] if i < 4 else 0.0, signed=False) > REFUSED
    assert p_value(won, lambda i: laws[1][i] if i < 4 else 0.0, signed=False) < REFUSED


def test_only_the_exponential_mechanism_has_a_bounded_range() -> None:
    """Log ratios of all outcomes within an interval as long as epsilon: so it alone is charged epsilon**2 / 8."""

    def spread(law: Law) -> Fraction:
        most = Fraction(0)
        for u in itertools.product(range(4), repeat=2):
            for move in itertools.product((-1, 0, 1), repeat=2):
                p = law(weights(u, X))
                q = law(weights([a + b for a, b in zip(u, move, strict=True)], X))
                ratios = [a / b for a, b in zip(p, q, strict=True)]
                most = max(most, max(ratios) / min(ratios))
        return most

    assert spread(em) <= X**-2 < spread(pf)
    assert isinstance(choice("exponential").event, BoundedRange)
    assert isinstance(choice("permute_and_flip").event, PureDP)
    assert isinstance(choice("noisy_max").event, PureDP)


# -- samplers ------------------------------------------------------------------------------------------------------

LAWS = {
    "exponential": (lambda u, rate, e: choose_exponential(u, rate, e), em),
    "permute_and_flip": (lambda u, rate, e: permute_and_flip(u, rate, e), pf),
}
SIZES = [2_500, pytest.param(100_000, marks=pytest.mark.stochastic)]


def fits(sample: np.ndarray, law: Sequence[float]) -> bool:
    return p_value(sample, lambda i: law[i] if i < len(law) else 0.0, signed=False) > REFUSED


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", LAWS)
def test_samplers(name: str, n: int) -> None:
    draw, law = LAWS[name]
    scores, rate, entropy = np.array([0, 1, 2, 4, 4]), Fraction(1, 2), fixed(name)
    sample = np.array([draw(scores, rate, entropy) for _ in range(n)])
    x = Fraction(math.exp(-rate))
    assert fits(sample, [float(p) for p in law(weights(scores.tolist(), x))])
    other = pf if law is em else em
    if n > 10_000:
        assert not fits(sample, [float(p) for p in other(weights(scores.tolist(), x))])
    assert not fits(sample, [float(p) for p in law(weights(scores.tolist(), x * x))])


def test_permute_and_flip_is_told_from_the_exponential_mechanism() -> None:
    entropy = fixed("control")
    sample = np.array([permute_and_flip(np.array([0, 1]), Fraction(1), entropy) for _ in range(4_000)])
    assert not fits(sample, [float(p) for p in em(weights((0, 1), Fraction(math.exp(-1))))])


@pytest.mark.parametrize("n", SIZES)
def test_laplace_sampler(n: int) -> None:
    entropy = fixed("rnm")
    sample = np.array([choose_noisy_max(np.array([0, 1, 1, 3]), Fraction(2), entropy) for _ in range(n)])
    assert fits(sample, laplace((0, 1, 1, 3), 2.0))
    assert not fits(sample, laplace((0, 1, 1, 3), 1.0))


@pytest.mark.parametrize("n", SIZES)
def test_sizes_stand_for_equal_candidates(n: int) -> None:
    entropy, sizes = fixed("sizes"), np.array([1, 1000, 3])
    sample = np.array(
        [choose_exponential(np.array([9, 0, 5]), Fraction(1), entropy, sizes) for _ in range(n)]
    )
    raw = sizes * np.exp([0, -9, -4])
    assert fits(sample, list(raw / raw.sum()))
    assert not fits(sample, list(np.exp([0, -9, -4]) / np.exp([0, -9, -4]).sum()))


@pytest.mark.parametrize("n", [20_000, pytest.param(2_000_000, marks=pytest.mark.stochastic)])
def test_coins(n: int) -> None:
    entropy, rate = fixed("coins"), Fraction(1, 7)
    for gap in (1, 7, 20, 40):
        heads = int(flip_coins(np.full(n, gap), rate, entropy).sum())
        p = math.exp(-gap / 7)
        assert abs(heads - n * p) < 6 * math.sqrt(n * p * (1 - p)) + 1
        assert abs(heads - n * math.exp(-(gap + 2) / 7)) > 6 * math.sqrt(n * p * (1 - p)) or n * p < 1000
    assert flip_coins(np.array([0, -5]), rate, entropy).all()
    assert not flip_coins(np.array([10**6, 2**62], dtype=object), rate, entropy).any()


def scripted(*words: int) -> Entropy:
    """Entropy that gives these words, each for one request."""
    given_words = list(words)

    def source(n: int) -> bytes:
        return b"".join(
            (given_words.pop(0) if given_words else 0).to_bytes(8, "little") for _ in range(n // 8)
        )

    return Entropy(source)


def test_close_calls_are_decided_by_more_bits() -> None:
    """The first 16 bits of exp(-1) settle nothing: the next 64 do, and where they agree too, the next."""
    p = Fraction(math.exp(-1)).limit_denominator(1 << 70)
    import mpmath

    with mpmath.workprec(400):
        digits = int(mpmath.floor(mpmath.exp(-1) * mpmath.mpf(2) ** 208))
    first, second, third, last = (digits >> shift & (2**64 - 1) for shift in (192, 128, 64, 0))
    assert abs(Fraction(first, 65536) - p) < Fraction(1, 65536)
    block = 1 << 13  # an entropy block is read whole: the lanes come first, then the words for the close call

    def decided(*rest: int) -> bool:
        return bool(flip_coins(np.array([1]), Fraction(1), scripted(first, *rest, *([0] * block)))[0])

    assert decided(second - 1)
    assert not decided(second + 1)
    assert decided(second, third - 1)
    assert not decided(second, third + 1)
    assert decided(second, third, last - 5)
    assert not decided(second, third, last + 5)


def test_huge_scores_and_rates() -> None:
    wide = to_integers([10**40, -(10**40), 10**40 - 1])
    assert choose_exponential(wide, Fraction(1, 1), Entropy()) in (0, 2)
    assert permute_and_flip(wide, Fraction(10**6), Entropy()) == 0
    assert choose_noisy_max(wide, Fraction(1, 1000), Entropy()) == 0
    flat = [choose_exponential(np.array([0, 1]), Fraction(1, 10**30), fixed(str(i))) for i in range(100)]
    assert 20 < sum(flat) < 80


# -- candidates of unequal sensitivity ---------------------------------------------------------------------------


def slow_scores(u: Sequence[int], d: Sequence[int], t: Fraction) -> list[Fraction]:
    ahead = [a - t * b for a, b in zip(u, d, strict=True)]
    return [
        min((a - b) / (x + y) for b, y in zip(ahead, d, strict=True)) for a, x in zip(ahead, d, strict=True)
    ]


def test_published_scores_of_the_generalised_mechanism() -> None:
    case = VECTORS["gem_vector"]
    u, d = ([round(v * 100) for v in case[name]] for name in ("utility", "sens"))
    scores = slow_scores(u, d, Fraction(case["t"]))
    assert [float(s) for s in scores] == pytest.approx(case["scores"])
    law = [float(p) for p in em([Fraction(math.exp(s * case["eps"] / 2)) for s in scores])]
    assert law == pytest.approx(case["em_on_scores"])
    ours = compute_generalised_scores(np.array(u), np.array(d), 9)
    assert ours.tolist() == [math.floor(s * SCORE_GRID) for s in slow_scores(u, d, Fraction(9))]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_generalised_scores_are_the_least_quotients(data: st.DataObject) -> None:
    far = data.draw(st.sampled_from([3, 1000, 10**12, 10**25]))
    n = data.draw(st.integers(1, 25))
    u = data.draw(st.lists(st.integers(-far, far), min_size=n, max_size=n))
    d = data.draw(
        st.lists(st.integers(0, data.draw(st.sampled_from([2, 50, 10**9]))), min_size=n, max_size=n)
    )
    t = data.draw(st.integers(1, 60))
    exact = slow_scores(u, [max(1, v) for v in d], Fraction(t))
    ours = compute_generalised_scores(to_integers(u), to_integers(d), t)
    for mine, s in zip(ours.tolist(), exact, strict=True):
        held = max(s, Fraction(-(1 << 24)))
        assert -1.5 < mine - held * SCORE_GRID < 0.5


def test_generalised_scores_move_by_their_sensitivity() -> None:
    rng = np.random.default_rng(8)
    most = 0
    for _ in range(2000):
        n = int(rng.integers(1, 8))
        d = rng.integers(1, int(rng.choice([3, 1000])) + 1, n)
        u = rng.integers(-3000, 3000, n)
        moved = u + np.rint(rng.choice([-1, 1, 0.3], n) * d).astype(np.int64)
        t = int(rng.integers(1, 20))
        most = max(
            most,
            int(np.abs(compute_generalised_scores(u, d, t) - compute_generalised_scores(moved, d, t)).max()),
        )
    assert 0.9 * SCORE_GRID < most <= SCORE_SENSITIVITY


def test_unequal_candidates_are_told_apart() -> None:
    """The pumpkins: at 1.00 four are sold, 0.99 less, and a price of 50 that nobody pays drowns nothing."""
    prices = np.array([100, 150, 300, 301, 5000])
    revenue = np.array([400, 150, 300, 301, 0])
    entropy = fixed("pumpkins")
    best = [
        choice("permute_and_flip", sensitivity=5000, varying=True).choose(revenue, prices, entropy)[0]
        for _ in range(500)
    ]
    plain = [
        choice("permute_and_flip", sensitivity=5000).choose(revenue, None, entropy)[0] for _ in range(500)
    ]
    assert best.count(0) > 250 > plain.count(0)
    assert plain.count(4) > 40 > best.count(4)


# -- the operator --------------------------------------------------------------------------------------------------


def relation(scores: list[int | None], names: list[str | None] | None = None) -> pa.Table:
    keys = pa.array(names or [f"c{i}" for i in range(len(scores))], pa.string())
    order, made = pa.array(range(len(scores)), pa.int64()), pa.array(scores, pa.int64())
    return pa.table({"k": keys, "dpsql_ord": order, CANDIDATE_SCORE: made})


METHODS = tuple(CHOICE_METHODS)


@pytest.mark.parametrize("monotone", [False, True])
def test_rate_of_each_method(monotone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """epsilon / top over twice the sensitivity, over once for monotone utilities."""
    seen = []
    monkeypatch.setattr(ExponentialChoice, "_one", lambda self, scores, rate, entropy: seen.append(rate) or 0)
    choice("exponential", Fraction(3, 2), monotone, 5, top=3).choose(np.arange(9), None, Entropy())
    assert seen == [Fraction(1, 2) / (5 if monotone else 10)] * 3


@pytest.mark.parametrize("n", [3_000, pytest.param(60_000, marks=pytest.mark.stochastic)])
def test_published_pairs_of_winners(n: int) -> None:
    case = VECTORS["topk_peeling_vector"]
    op = choice("exponential", Fraction(1), case["monotone"], top=case["k"])
    entropy, scores = fixed("peel"), np.array(case["u"])
    pairs = list(case["probs"])
    sample = np.array([pairs.index(str(tuple(op.choose(scores, None, entropy)))) for _ in range(n)])
    assert fits(sample, list(case["probs"].values()))
    assert not fits(sample, list(reversed(case["probs"].values())))


@pytest.mark.parametrize("method", METHODS)
def test_winners_are_distinct_and_best_first(method: str) -> None:
    op = choice(method, Fraction(10**6), top=3, answer=("answer", Fraction(10**6)))
    release = op.release(lambda sql: relation([5, 50, None, 20, 10]).take([4, 2, 0, 3, 1]), Entropy())
    assert release.table.column("k").to_pylist() == ["c1", "c3", "c4"]
    assert release.table.column("answer").to_pylist() == [50, 20, 10]
    assert release.event == op.event == compose_events([op.choice, DiscreteLaplace(Fraction(10**6), 1, 3)])


@pytest.mark.parametrize("method", METHODS)
def test_odd_tables(method: str) -> None:
    none = choice(method, answer=("answer", Fraction(1))).release(lambda sql: relation([]), Entropy())
    assert none.table.num_rows == 0
    assert none.table.schema.field("k").type == pa.string()
    assert choice(method).release(lambda sql: relation([None]), Entropy()).table.column("k").to_pylist() == [
        "c0"
    ]
    few = choice(method, top=5).release(lambda sql: relation([1, 2]), Entropy())
    assert sorted(few.table.column("k").to_pylist()) == ["c0", "c1"]
    twins = relation([3, 3], names=["same", None])
    entropy = fixed(method)
    seen = [
        choice(method).release(lambda sql: twins, entropy).table.column("k")[0].as_py() for _ in range(60)
    ]
    assert 10 < seen.count(None) < 50  # equal candidates are equally likely, the one without a name too


def test_stated_utility_holds() -> None:
    """Theorem 3.11: not within reach with probability at most 1 - confidence; and half the reach is not enough."""
    n = 1000
    scores = np.zeros(n, dtype=np.int64)
    for method, monotone in itertools.product(METHODS, (False, True)):
        op = choice(method, Fraction(1), monotone, candidates=n)
        reach = op.behind(0.9)
        scores[0] = math.ceil(reach)
        entropy = fixed(f"utility {method} {monotone}")
        missed = sum(op.choose(scores, None, entropy) != [0] for _ in range(200))
        assert missed <= 45  # 20 allowed on average
        scores[0] = math.ceil(reach / 4)
        assert sum(op.choose(scores, None, entropy) != [0] for _ in range(200)) > 45


def test_stated_utility_of_unequal_candidates_holds() -> None:
    d = np.array([1, 10, 100, 1000])
    op = choice("exponential", Fraction(1), sensitivity=1000, varying=True, candidates=4)
    lead = op._ahead(0.9)
    rng, entropy, missed = np.random.default_rng(1), fixed("ahead"), 0
    for _ in range(300):
        u = rng.integers(0, 3000, 4)
        won = op.choose(u, d, entropy)[0]
        missed += bool((u[won] < u - lead * d).any())
    assert missed <= 55  # 30 allowed on average


# -- Gumbel noise that is drawn once -------------------------------------------------------------------------------


def ordered_pairs(weights: Sequence[Fraction]) -> list[Fraction]:
    """The two largest of scores with Gumbel noise: the first by its weight, the second by its weight among the others."""
    total = sum(weights)
    return [
        weights[i] / total * weights[j] / (total - weights[i])
        for i, j in itertools.permutations(range(len(weights)), 2)
    ]


def pairs_of_coins(weights: Sequence[Fraction]) -> list[Fraction]:
    """The same by permute-and-flip."""
    first, size = pf(weights), range(len(weights))
    seconds = [
        pf([w / max(rest) for w in rest]) for i in size if (rest := [weights[j] for j in size if j != i])
    ]
    return [first[i] * seconds[i][j - (j > i)] for i, j in itertools.permutations(size, 2)]


def fits_pairs(sample: np.ndarray, law: Sequence[Fraction]) -> bool:
    """The most likely pair first, for rare ones are pooled."""
    order = np.argsort([-float(p) for p in law], kind="stable")
    return fits(np.argsort(order)[sample], [float(law[i]) for i in order])


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("n", [4_000, pytest.param(100_000, marks=pytest.mark.stochastic)])
def test_gumbel_follows_its_law(n: int, monotone: bool) -> None:
    """Noise of scale 2 k D / epsilon, or k D / epsilon for monotone utilities; k is 2."""
    scores, op = np.array([0, 1, 3, 4]), choice("gumbel", Fraction(4), monotone, sensitivity=2, top=2)
    pairs, entropy = list(itertools.permutations(range(4), 2)), fixed(f"gumbel {monotone}")
    sample = np.array([pairs.index(tuple(op.choose(scores, None, entropy))) for _ in range(n)])
    x = Fraction(math.exp(-4 / (2 * (1 if monotone else 2) * 2)))
    assert fits_pairs(sample, ordered_pairs(weights(scores.tolist(), x)))
    steep = weights(scores.tolist(), x * x)  # of the noise for one winner alone
    for wrong in (ordered_pairs(steep), pairs_of_coins(steep), pairs_of_coins(weights(scores.tolist(), x))):
        assert not fits_pairs(sample, wrong)


def test_noise_that_is_drawn_once_has_that_law() -> None:
    n, rate, u = 200_000, 0.5, np.array([0, 1, 3, 4])
    noisy = u * rate + np.random.default_rng(7).gumbel(size=(n, 4))
    pairs = list(itertools.permutations(range(4), 2))
    won = np.argsort(-noisy, axis=1)[:, :2]
    sample = np.array([pairs.index((int(i), int(j))) for i, j in won])
    x = Fraction(math.exp(-rate))
    assert fits_pairs(sample, ordered_pairs(weights(u.tolist(), x)))
    assert not fits_pairs(sample, pairs_of_coins(weights(u.tolist(), x)))


def test_gumbel_loses_one_epsilon_for_all_winners() -> None:
    """Each of two winners loses two steps of the rate, or one where all utilities move one way, by enumeration."""
    assert X**-4 * Fraction(1, 2) < worst(ordered_pairs, (-1, 0, 1)) <= X**-4
    assert X**-2 * Fraction(1, 2) < worst(ordered_pairs, (0, 1)) <= X**-2

    def noise_for_one(given: Sequence[Fraction]) -> list[Fraction]:
        return ordered_pairs([w * w for w in given])

    assert worst(noise_for_one, (-1, 0, 1)) > X**-4, "the scale must grow with the winners"
    for accepted in (1, 3):
        assert choice("gumbel", top=accepted).event == BoundedRange(Fraction(1), accepted)


@pytest.mark.parametrize("method", METHODS)
def test_scores_of_gumbel_are_measured_once(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second winner of gumbel is judged by the first choice's scores where sensitivities differ; others measure anew."""
    seen: list[tuple[list[int], Fraction]] = []

    def first(
        self: ExponentialChoice, scores: Integers | CandidateGaps, rate: Fraction, entropy: Entropy
    ) -> int:
        steps = -scores.gaps if isinstance(scores, CandidateGaps) else scores
        seen.append(((steps - steps[0]).tolist(), rate))
        return len(steps) - 1

    monkeypatch.setattr(ExponentialChoice, "_one", first)
    op = choice(method, Fraction(3), sensitivity=9, varying=True, top=2)
    op.choose(np.array([5, 40, 70, 900]), np.array([1, 2, 3, 9]), Entropy())
    (before, rate), (after, other) = seen
    assert rate == other == Fraction(3, 2) / (2 * SCORE_SENSITIVITY)
    assert (after == before[:3]) == (method == "gumbel")


class TestExponentialChoice(OperatorContract):
    operator = ExponentialChoice(
        ("SELECT k",), ("k",), 1, Fraction(1), True, "exponential", top=2, answer=("votes", Fraction(1, 2))
    )

    def exact(self, text: str) -> pa.Table:
        return pa.table({"k": list("abcd"), "dpsql_ord": range(4), CANDIDATE_SCORE: [3, 1, 4, 1]})
