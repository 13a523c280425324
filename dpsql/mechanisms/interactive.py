"""Interactive thresholds: questions that are chosen one after another, from the answers so far."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NoReturn

import pyarrow as pa

from dpsql.mechanisms.above_threshold import Noise, _ThresholdNoise
from dpsql.mechanisms.base import Read, Release, salted
from dpsql.mechanisms.outputs import exact_integers
from dpsql.mechanisms.sweep import SCORE
from dpsql.noise.discrete import geometric
from dpsql.noise.entropy import Entropy
from dpsql.privacy.events import Event, SparseVector


class Stream:
    """An interactive threshold: questions come one after another, chosen from the answers so far.

    Questions of different sensitivities share the threshold noise: a statistic q of sensitivity D is compared as
    q / D with T / D, so that every question has sensitivity 1; noise is drawn in steps of 1/1024 of that.
    The whole is reserved at DECLARE; the noisy threshold lives here only and dies with the process.

    Which questions will come is not known when the threshold is drawn, and one unit may move some up and some down: so
    the noise is the one that is right for any questions, even while all that were asked so far are counts.
    """

    _FINE = 1024

    def __init__(
        self, epsilon1: Fraction, epsilon2: Fraction, max_hits: int, refresh: bool, entropy: Entropy
    ) -> None:
        self.noise = Noise(self._FINE, epsilon1, epsilon2, max_hits, monotone=False, refresh=refresh)
        self.hits = 0
        self._entropy = entropy
        self._threshold = _ThresholdNoise(self.noise, entropy)
        self._process, self._lock = os.getpid(), threading.Lock()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noisy threshold lives in one process, and is never written down")

    @property
    def exhausted(self) -> bool:
        """No more questions: every allowed hit was found, or this is a forked copy, whose hits nobody would count."""
        return self.hits >= self.noise.max_hits or os.getpid() != self._process

    @property
    def event(self) -> SparseVector:
        """What was used so far."""
        n = self.noise
        return SparseVector(n.epsilon1, n.epsilon2, n.max_hits, self.hits, n.refresh)

    def ask(self, value: int, threshold: int, sensitivity: int) -> bool:
        """Whether a statistic (integer steps, with its sensitivity in the same steps) is above the threshold, noisily."""
        with self._lock:
            if self.exhausted:
                raise ValueError("the threshold is closed")
            noise = int(geometric(self.noise.query_rate, 1, self._entropy)[0])
            above = (
                value - threshold
            ) * self._FINE + sensitivity * noise >= sensitivity * self._threshold.level
            if above:
                self.hits += 1
                self._threshold.hit()
            return above


@dataclass(frozen=True)
class Probe:
    """``SELECT WITH alarm COUNT(*) ...``: one question to a declared threshold. It was paid for at DECLARE.

    Args:
        query: gives the exact ``dpsql_score`` in grid steps. threshold, sensitivity: in the same steps.
        event: what was reserved at DECLARE.
        ask: puts the question to the open threshold, and notes a hit durably before the answer is told.
    """

    query: str
    threshold: int
    sensitivity: int
    name: str
    event: Event
    ask: Callable[[int, int, int], bool] = field(compare=False, repr=False)

    prepaid = True

    @property
    def queries(self) -> tuple[str, ...]:
        return (self.query,)

    def release(self, read: Read, entropy: Entropy) -> Release:
        score = int(exact_integers(salted(read, self.queries, entropy)(self.query).column(SCORE))[0])
        above = self.ask(score, self.threshold, self.sensitivity)
        note = "a noisy comparison: near the threshold it can be wrong either way"
        return Release(pa.table({"above": pa.array([above])}), self.event, (note,))

    def sentences(self, confidence: float) -> tuple[str, ...]:
        return (f"Ask the declared threshold {self.name}; its whole cost was reserved when it was declared.",)
