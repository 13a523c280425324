"""Interactive thresholds: questions may be chosen adaptively.

The guarantee is that of :mod:`dpsql.mechanisms.selection.above_threshold`, whose proof allows statistics in any order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NoReturn

import pyarrow as pa

from dpsql.mechanisms import base
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_PLACE, CANDIDATE_SCORE
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.selection.above_threshold import NoisyThreshold, ThresholdNoise, make_answers
from dpsql.mechanisms.selection.utility_forms import UtilityForm
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_geometric
from dpsql.numerics.exact_numbers import read_integers
from dpsql.privacy.events import Event
from dpsql.privacy.threshold_events import OPEN_ENDED


class InteractiveThreshold:
    """A noisy threshold for adaptively chosen questions.

    Questions of different sensitivities share the threshold noise: a statistic q of sensitivity D is compared as q / D
    with T / D, so that every question has sensitivity 1; noise is drawn in steps of 1/1024 of that. DECLARE reserves
    the whole cost; the noisy threshold exists only in this object and process.

    Later questions are unknown when the threshold is drawn, and one unit may move some up and some down, so the noise
    is never the monotone one, even if all questions so far are counts.
    """

    _FINE = 1024

    def __init__(
        self, epsilon1: Fraction, epsilon2: Fraction, max_hits: int, refresh: bool, entropy: Entropy,
        delta: Fraction = Fraction(0), answers: Fraction = Fraction(0),
    ) -> None:  # fmt: skip
        """Draw the noisy threshold.

        Args:
            epsilon1, epsilon2: of the threshold and of the questions.
            refresh: a fresh threshold after each hit.
            delta: of a threshold with Gaussian noise; 0 for geometric noise.
            answers: epsilon of the fresh answers to all hits.
        """
        shared = (self._FINE, epsilon1, epsilon2, max_hits, False, refresh)
        self.noise = ThresholdNoise.gaussian(*shared, delta) if delta else ThresholdNoise(*shared)
        self.answers = answers
        self.hits = 0
        self._entropy = entropy
        self._threshold = NoisyThreshold(self.noise, entropy)
        self._process, self._lock = os.getpid(), threading.Lock()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noisy threshold lives in one process, and is never written down")

    @property
    def exhausted(self) -> bool:
        """Whether no more questions are allowed: all hits were found, or this is a fork, whose hits would not be counted."""
        return self.hits >= self.noise.max_hits or os.getpid() != self._process

    @property
    def event(self) -> Event:
        """The event used so far."""
        return charge_answers(self.noise.event(self.hits), self.answers)

    def ask(self, value: int, threshold: int, sensitivity: int) -> bool:
        """Return whether a statistic (in integer steps, like its sensitivity) is noisily above the threshold."""
        return self.compare(value, threshold, sensitivity) is not None

    def compare(self, value: int, threshold: int, sensitivity: int) -> int | None:
        """Return how far a statistic is above the noisy threshold, in steps of sensitivity / 1024; None if it is below.

        The statistic is compared in these steps, rounded down: its sensitivity is exactly 1024 of them, so the gap
        reveals nothing about the remainder.
        """
        with self._lock:
            if self.exhausted:
                raise ValueError("the threshold is closed")
            noise = int(draw_geometric(self.noise.query_rate, 1, self._entropy)[0])
            gap = (value - threshold) * self._FINE // sensitivity + noise - self._threshold.level
            if gap < 0:
                return None
            self.hits += 1
            self._threshold.hit()
            return gap


def charge_answers(event: Event, answers: Fraction) -> Event:
    """Return the charge of a stream whose hits also get fresh answers: each hit pays its part of both.

    On a path the likelihood of a hit grows by at most ``exp(epsilon2 / c)``, that of its answer by ``exp(answers / c)``.
    """
    if not answers:
        return event
    assert isinstance(event, OPEN_ENDED)
    return replace(event, epsilon2=event.epsilon2 + answers)


@dataclass(frozen=True)
class Probe(base.Operator):
    """``SELECT WITH alarm COUNT(*) ...``: one question to a declared threshold, paid at DECLARE.

    Args:
        query: returns the exact ``dpsql_score`` in grid steps.
        reserved: the event reserved at DECLARE.
        ask: asks the open threshold, and records a hit durably before it answers.
        gap: whether to show the gap above the noisy threshold, which is free.
        answer: the epsilon of a fresh answer to a hit.
    """

    query: str
    threshold: int
    sensitivity: int
    name: str
    reserved: Event
    ask: Callable[[int, int, int], int | None] = field(compare=False, repr=False)
    steps: Fraction = Fraction(1)
    gap: bool = False
    answer: Fraction | None = None
    confidence: float = 0.95
    form: UtilityForm | None = None
    rows: int = 1

    prepaid = True

    @property
    def event(self) -> Event:
        return self.reserved

    @property
    def threshold_name(self) -> str:
        return self.name

    def claims(self) -> Iterator[base.ClaimedText]:
        scores = base.ScoresClaim(CANDIDATE_SCORE, self.sensitivity, self.rows)
        if self.form is not None:
            scores = self.form.claim(scores)
        claim = base.RowsClaim(self.rows, each=CANDIDATE_PLACE, scores=scores)
        yield base.ClaimedText(self.query, claim)

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,)

    def release(self, read: base.Read, entropy: Entropy) -> base.Release:
        table = base.add_salt(read, self.queries, entropy)(self.query)
        score = int(read_integers(table.column(CANDIDATE_SCORE))[0])
        gap = self.ask(score, self.threshold, self.sensitivity)
        columns: dict[str, pa.Array] = {"above": pa.array([gap is not None])}
        if self.gap:
            shown = (
                None
                if gap is None
                else float(gap * self.sensitivity / (InteractiveThreshold._FINE * self.steps))
            )
            columns["gap"] = pa.array([shown], pa.float64())
        if self.answer is not None:
            noise = LaplaceNoise(self.answer, self.sensitivity)
            fresh = make_answers("answer", [score], noise, self.steps, entropy, self.confidence)
            columns |= fresh if gap is not None else {name: pa.nulls(1, a.type) for name, a in fresh.items()}
        note = "a noisy comparison: near the threshold it can be wrong either way"
        return base.Release(pa.table(columns), self.event, (note,))

    def sentences(self, confidence: float) -> tuple[str, ...]:
        said = f"Ask the declared threshold {self.name}; its whole cost was reserved when it was declared."
        if self.answer is None:
            return (said,)
        width = LaplaceNoise(self.answer, self.sensitivity).half_width(confidence) / float(self.steps)
        return (
            said,
            f"A hit is answered afresh, within ±{width:.4g} at {confidence:.0%}; every other answer is NULL.",
        )
