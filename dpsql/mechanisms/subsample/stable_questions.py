"""Stable questions, ``DECLARE alarm STABLE``: a stream of votes of blocks, answered exactly; only those without consensus cost.

The units are divided once into disjoint blocks. Each question runs exactly on every block, and a result is one
vote. Its distance d is the number of units whose votes may change without changing the winner (``measure_votes_radius``).
It is *stable*, and the winning vote is the answer, unless

    - d + Geom(epsilon2 / (2 c))  >=  - bar + Geom(epsilon1)          c = max_unstable

and then it is *unstable*: the answer is NULL, and one of c is paid. This is the sparse vector technique on the statistics -d
with the threshold -bar; unstable questions are its hits, and after the c-th it is closed. With ``refresh`` each round, which
ends with an unstable question, has a separate threshold noise and a c-th of both epsilons.

Guarantee: (epsilon1 + epsilon2, delta), under substitution of the votes of one unit, hence under either relation of rows.
Proof. Take neighbours x and x', any way of asking, and call a question *bad* if x and x' have different winners. There d = 0
on both (a changed vote moves a lead by 2, so the lead was at most 2). Let G be the transcripts with no bad question found
stable. On G the transcript is determined by the answers of the sparse vector: a stable answer is the same vote on both
sides. d moves by at most 1, so each transcript in G is at most exp(epsilon1 + h epsilon2 / c) times as likely on x as on x',
with h unstable questions; and G's complement has probability at most delta, as a question with d = 0 is found stable only if

    Geom(epsilon1) > bar + Geom(epsilon2 / (2 c))  >=  bar .

The noise of the question can only make it unstable. So all bad questions of a round together, however they were chosen,
require the one threshold noise to be above the bar, with probability exp(-epsilon1 (bar + 1)), however often is asked. The
bar is the least at which this is at most delta, or delta / c for each of c rounds.

Sources: Bassily, Thakkar and Thakurta (2018), with one-sided noise in place of Laplace noise, which makes bar and delta
independent of the number of questions; Lyu, Su and Li (2017) for the cut-off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import field
from fractions import Fraction
from functools import cached_property

import pyarrow as pa

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import (
    SALT,
    ClaimedText,
    Read,
    Release,
    bind_parameters,
)
from dpsql.mechanisms.selection.above_threshold import InteractiveThreshold, ThresholdNoise
from dpsql.mechanisms.subsample.blocks import (
    BlockOperator,
    find_winner,
    make_column,
)
from dpsql.noise.entropy import Entropy
from dpsql.numerics import interval_arithmetic as ia
from dpsql.privacy.events import Event, StableQuestions

QUESTIONS, CONFIDENCE = 1000, 0.95
"""The session assumed by EXPLAIN, the default number of blocks and the default split."""

_BITS = 200


def split_stable_epsilon(
    epsilon: Fraction, delta: Fraction, max_unstable: int, refresh: bool
) -> tuple[Fraction, Fraction]:
    """Split epsilon between the threshold and the questions, so that :data:`QUESTIONS` stable ones need the least lead.

    The bar is ln(1 / delta) / epsilon1, and the largest noise of the questions about 2 c ln(20,000) / epsilon2: their
    sum is least for shares proportional to the roots of the numerators. The two add up to epsilon exactly.
    """
    drawn = max_unstable if refresh else 1
    bar = math.log(drawn) + _log(1 / delta)
    noise = 2 * (1 if refresh else max_unstable) * math.log(QUESTIONS / (1 - CONFIDENCE))
    ratio = Fraction(max(1, round(1000 * math.sqrt(noise / bar))), 1000)
    first = epsilon / (1 + ratio)
    return first, epsilon - first


def _log(x: Fraction) -> float:
    return math.log(x.numerator) - math.log(x.denominator)


@dataclass(frozen=True)
class StabilityRule:
    """The bar of a stream, its noise and its charge.

    Args:
        epsilon1, epsilon2: of the threshold and of the questions.
        max_unstable: the unstable questions that end it.
        delta: the probability of releasing an unstable answer, in the whole stream.
    """

    epsilon1: Fraction
    epsilon2: Fraction
    max_unstable: int
    delta: Fraction
    refresh: bool = False

    @property
    def noise(self) -> ThresholdNoise:
        """The noise of the sparse vector on distances, which move by 1 either way."""
        return ThresholdNoise(1, self.epsilon1, self.epsilon2, self.max_unstable, False, self.refresh)

    @property
    def failure(self) -> Fraction:
        """Upper bound on the probability that one threshold noise is above the bar."""
        return self.delta / self.max_unstable if self.refresh else self.delta

    @cached_property
    def bar(self) -> int:
        """The least integer that threshold noise exceeds with probability exp(-rate (bar + 1)), at most :attr:`failure`."""
        most = ia.log(ia.rational(1 / self.failure, _BITS), _BITS)[1]
        return max(0, math.ceil(ia.fraction(most) / self.noise.threshold_rate) - 1)

    def event(self, unstable: int | None = None) -> StableQuestions:
        """Return the charge of a stream with this many unstable questions, or the reservation if not known yet."""
        return StableQuestions(
            self.epsilon1, self.epsilon2, self.max_unstable, unstable, self.refresh, self.failure
        )

    def lead(self, questions: int = QUESTIONS, confidence: float = CONFIDENCE) -> int:
        """Return the votes by which this many stable questions must lead to be all answered at this confidence."""
        noise = math.log(questions / (1 - confidence)) / float(self.noise.query_rate)
        return 2 * (self.bar + math.ceil(noise) + 1)


class StableStream(InteractiveThreshold):
    """The open stream: its noisy threshold, and the secret that divides the units into blocks."""

    _FINE = 1

    def __init__(self, rule: StabilityRule, entropy: Entropy) -> None:
        super().__init__(rule.epsilon1, rule.epsilon2, rule.max_unstable, rule.refresh, entropy)
        self.rule = rule
        self.salt = int(entropy.words(1)[0]) >> 1

    @property
    def event(self) -> StableQuestions:
        return self.rule.event(self.hits)


@dataclass(frozen=True)
class StableQuestion(BlockOperator):
    """``SELECT WITH alarm ...`` of a stable alarm: one question, paid at DECLARE.

    Args:
        source: returns the votes of the blocks in ``column``.
        salt: returns the secret that divides the units into blocks, one for all questions.
        ask: asks the stream with a statistic, a threshold and a sensitivity, and records a hit durably before it answers.
    """

    column: str
    alarm: str
    rule: StabilityRule
    salt: Callable[[], int] = field(compare=False, repr=False)
    ask: Callable[[int, int, int], int | None] = field(compare=False, repr=False)

    prepaid = True

    @property
    def event(self) -> Event:
        return self.rule.event()

    @property
    def threshold_name(self) -> str:
        return self.alarm

    def claims(self) -> Iterator[ClaimedText]:
        yield from self.source.claims(1)

    def release(self, read: Read, entropy: Entropy) -> Release:
        cut = bind_parameters(read, {SALT.removeprefix("$"): self.salt()})
        results = self.source.results(cut, entropy)
        winner, radius = find_winner(results.columns[self.column])
        level = (
            self.rule.bar + self.rule.noise.centre
        )  # the stream adds the centre, which is for other thresholds
        unstable = self.ask(-radius, -level, 1) is not None
        value = winner[1] if winner is not None and not unstable else None
        note = f"{self.column}: the blocks disagree: no answer, and one of {self.rule.max_unstable} is paid"
        columns = make_column(self.column, value, results.types.get(self.column))
        return Release(pa.table(columns), self.event, (note,) if unstable else ())

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return (
            f"{self.column}: {self.source.sentence()}",
            f"{self.column}: the winning vote, exact, if its lead is stable; else NULL, and one of the "
            f"{self.rule.max_unstable} unstable questions of {self.alarm} is used. Both were reserved when it was declared.",
        )
