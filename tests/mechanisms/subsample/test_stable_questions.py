"""Stable questions: exact losses on all small votes, however they are asked, and what a long session is charged."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction

import pyarrow as pa
import pytest

from dpsql.mechanisms.base import SALT
from dpsql.mechanisms.ptr.stability_test import measure_votes_radius
from dpsql.mechanisms.subsample.blocks import LiftedBlocks, find_winner
from dpsql.mechanisms.subsample.stable_questions import (
    StabilityRule,
    StableQuestion,
    StableStream,
    split_stable_epsilon,
)
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import StableQuestions
from tests.support.goodness import fixed
from tests.support.operator_contract import OperatorContract
from tests.support.svt_law import paths, probability

A, B = Fraction(3, 5), Fraction(2, 3)
"""exp(-rate) of the threshold's and of the questions' noise: any rationals do."""
ONE, SMALL = Fraction(1), Fraction(1, 10**6)

Block = tuple[int, ...]
"""The votes of one block: one for each question."""
Transcript = tuple[int | None, ...]
Radius = Callable[[int, int], int]


def winner_of(blocks: tuple[Block, ...], question: int, radius: Radius) -> tuple[int, int]:
    """The winning vote and its radius, as :func:`find_winner` has them."""
    votes = [block[question] for block in blocks]
    best, _ = find_winner(votes)
    counts = [n for _, n in Counter(votes).most_common()] + [0]
    return best[1], radius(counts[0], counts[1])


def law(
    blocks: tuple[Block, ...],
    asked: Callable[[Transcript], int],
    length: int,
    most: int,
    bar: int,
    radius: Radius,
) -> dict[Transcript, tuple[Fraction, int]]:
    """The probability of each transcript, with its unstable questions. ``asked`` chooses the next question from it."""
    out: dict[Transcript, tuple[Fraction, int]] = {}
    for unstable in paths(length, most):
        said: Transcript = ()
        over = []
        for paid in unstable:
            vote, distance = winner_of(blocks, asked(said), radius)
            over.append(bar - distance)
            said = (*said, None if paid else vote)
        out[said] = probability(A, B, tuple(over), unstable), sum(unstable)
    return out


def neighbours(size: int, types: list[Block]) -> Iterator[tuple[tuple[Block, ...], tuple[Block, ...]]]:
    """All pairs of tables of block results in which one block differs, up to the blocks' order."""
    for rest in itertools.combinations_with_replacement(types, size - 1):
        for mine, other in itertools.permutations(types, 2):
            yield (mine, *rest), (other, *rest)


def worst_excess(
    size: int, types: list[Block], asked: Callable[[Transcript], int], length: int, most: int, bar: int,
    radius: Radius = measure_votes_radius, factor: int = 2,
) -> Fraction:  # fmt: skip
    """The largest part of a probability that is beyond what its path is charged: it must be at most delta."""
    worst = Fraction(0)
    for x, y in neighbours(size, types):
        p, q = (law(table, asked, length, most, bar, radius) for table in (x, y))
        assert sum(value for value, _ in p.values()) == 1
        excess = Fraction(0)
        for said, (mass, hits) in p.items():
            charged = A**-1 * B ** (-factor * hits)
            excess += max(Fraction(0), mass - charged * q.get(said, (Fraction(0), 0))[0])
        worst = max(worst, excess)
    return worst


TWO = list(itertools.product((0, 1), repeat=2))
THREE = list(itertools.product((0, 1), repeat=3))


def in_order(said: Transcript) -> int:
    return len(said)


def by_answer(said: Transcript) -> int:
    """An analyst who goes on with question 1 after an answer of 1, and with question 2 otherwise."""
    return 0 if not said else 1 if said[0] == 1 else 2


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize(("bar", "size"), [(0, 4), (1, 6), (2, 6)])
def test_what_no_path_is_charged_for_is_at_most_delta(most: int, bar: int, size: int) -> None:
    delta = A ** (bar + 1)
    assert worst_excess(size, TWO, in_order, 2, most, bar) <= delta


def test_the_same_of_an_analyst_who_chooses_from_the_answers() -> None:
    assert worst_excess(3, THREE, by_answer, 2, 2, 0) <= A


def test_the_same_question_again_and_again() -> None:
    one = [(0,), (1,)]
    for bar in (0, 1):
        assert worst_excess(6, one, lambda said: 0, 4, 3, bar) <= A ** (bar + 1)


def test_controls_lose_more() -> None:
    """A radius that is one too large; a bar that is too low; and the noise of statistics that only go up."""
    one = [(0,), (1,)]

    def one_too_far(top: int, second: int) -> int:
        return -(-(top - second) // 2)

    assert worst_excess(6, one, lambda said: 0, 3, 3, 1, one_too_far) > A**2
    assert worst_excess(6, one, lambda said: 0, 3, 3, 0) > A**2  # the bar of a larger delta
    assert worst_excess(12, TWO, in_order, 2, 1, 5, factor=1) > A**6  # paid once, where it is moved twice
    assert worst_excess(12, TWO, in_order, 2, 1, 5) <= A**6


def chance_of_an_unstable_answer(a: Fraction, b: Fraction, bar: int, tries: int) -> Fraction:
    """Return the chance of an unstable answer among questions at distance 0, in closed form; each unanswered one is paid."""
    none = probability(a, b, (bar,) * tries, (True,) * tries)
    return 1 - none


@pytest.mark.parametrize("tries", [1, 3, 12])
@pytest.mark.parametrize("bar", [0, 2, 5])
def test_the_chance_of_a_wrong_answer_is_below_the_failure_and_no_lower_bar_would_do(
    tries: int, bar: int
) -> None:
    failed = chance_of_an_unstable_answer(A, B, bar, tries)
    assert failed <= A ** (bar + 1)
    if tries == 12 and bar:
        assert chance_of_an_unstable_answer(A, B, bar - 1, tries) > A ** (bar + 1)


@pytest.mark.parametrize("refresh", [False, True])
@pytest.mark.parametrize("delta", [SMALL, Fraction(1, 3), Fraction(1, 10**12)])
def test_the_bar_is_the_least_that_delta_allows(refresh: bool, delta: Fraction) -> None:
    rule = StabilityRule(Fraction(1, 3), Fraction(2, 3), 5, delta, refresh)
    rate = float(rule.noise.threshold_rate)
    assert rule.failure * (5 if refresh else 1) == delta
    assert math.exp(-rate * (rule.bar + 1)) <= float(rule.failure) * (1 + 1e-12)
    assert rule.bar == 0 or math.exp(-rate * rule.bar) > float(rule.failure)
    assert rule.event().delta == delta
    assert rule.noise.query_rate == Fraction(2, 3) / 10  # one of five, which moves either way
    assert rule.noise.threshold_rate == Fraction(1, 3) / (5 if refresh else 1)


def test_the_split_adds_up_and_asks_for_the_least_lead() -> None:
    for refresh in (False, True):
        e1, e2 = split_stable_epsilon(ONE, SMALL, 5, refresh)
        assert e1 + e2 == 1
        best = StabilityRule(e1, e2, 5, SMALL, refresh).lead()
        for first in (e1 * Fraction(8, 10), e1 * Fraction(12, 10)):
            assert StabilityRule(first, 1 - first, 5, SMALL, refresh).lead() >= best


def ask(stream: StableStream, radius: int) -> bool:
    rule = stream.rule
    return not stream.ask(-radius, -(rule.bar + rule.noise.centre), 1)


@pytest.mark.parametrize("refresh", [False, True])
def test_a_session_of_a_thousand_questions_of_which_five_are_unstable_is_charged_for_five(
    refresh: bool,
) -> None:
    """Chance of a failure below 1e-8: 995 leads that suffice with that confidence, five questions that are tied."""
    rule = StabilityRule(
        *split_stable_epsilon(ONE, Fraction(1, 10**9), 10, refresh), 10, Fraction(1, 10**9), refresh
    )
    far = (rule.lead(1000, 1 - 1e-9) - 2) // 2
    stream = StableStream(rule, Entropy())
    answered = [ask(stream, 0 if i % 200 == 100 else far) for i in range(1000)]
    assert answered.count(False) == stream.hits == 5
    assert [i for i, stable in enumerate(answered) if not stable] == [100, 300, 500, 700, 900]
    charged = stream.event
    assert charged.is_within(rule.event())
    if refresh:  # five rounds that ended, and the one that had begun
        assert charged.basic == (Fraction(6, 10), Fraction(6, 10**10))
    else:
        assert charged.basic == (rule.epsilon1 + rule.epsilon2 / 2, Fraction(1, 10**9))
    assert rule.event().basic == (1, Fraction(1, 10**9))


def test_after_the_last_unstable_question_it_is_closed() -> None:
    rule = StabilityRule(ONE, ONE, 2, SMALL)
    stream = StableStream(rule, fixed("closed"))
    assert not ask(stream, 0)
    assert not ask(stream, 0)
    assert stream.exhausted
    with pytest.raises(ValueError, match="closed"):
        ask(stream, 1000)


def test_its_charge_in_every_currency() -> None:
    event = StableQuestions(Fraction(1, 4), Fraction(3, 4), 3, None, False, SMALL)
    assert (event.epsilon, event.delta, event.pure) == (1, SMALL, None)
    assert event.basic == (1, SMALL)
    found = StableQuestions(Fraction(1, 4), Fraction(3, 4), 3, 1, False, SMALL)
    assert found.basic == (Fraction(1, 2), SMALL)
    assert found.rho == event.rho  # divergences average over paths
    fresh = StableQuestions(Fraction(1, 4), Fraction(3, 4), 10, 3, True, SMALL)
    assert fresh.basic == (Fraction(4, 10), 4 * SMALL)
    with pytest.raises(ValueError, match="failure"):
        StableQuestions(ONE, ONE, 1)


class TestStableQuestion(OperatorContract):
    query = f"SELECT dpsql_block, w FROM t WHERE {SALT} > 0"
    rule = StabilityRule(Fraction(8), Fraction(8), 50, Fraction(1, 100))
    stream = StableStream(rule, Entropy())
    operator = StableQuestion(
        LiftedBlocks(query, ("w",), 8),
        "w",
        "alarm",
        rule,
        lambda: TestStableQuestion.stream.salt,
        lambda value, threshold, moved: TestStableQuestion.stream.compare(value, threshold, moved),
    )

    def exact(self, text: str) -> pa.Table:
        assert str(self.stream.salt) in text, "one secret for all questions"
        return pa.table({"dpsql_block": range(8), "w": ["a"] * 8})

    def release(self, entropy: Entropy, empty: bool = False):  # type: ignore[no-untyped-def]
        """Read it with the texts as they are before the secret is filled in."""
        type(self).stream = StableStream(self.rule, entropy)
        release, read = super().release(entropy, empty)
        return release, [text.replace(str(self.stream.salt), SALT) for text in read]
