"""The sparse vector technique: find the statistics in a stream that are above a threshold, and pay only for hits.

Integers throughout. One threshold noise, one-sided geometric query noise, a cut-off after ``max_hits``:

    hit when  q + Geom(epsilon2 / (2 c D))  >=  T' + Geom(epsilon1 / D)        D sensitivity, c = max_hits

Guarantee (ADD_REMOVE): pure epsilon1 + epsilon2. Compare the run on x with threshold noise z to the run on a neighbour x' with
noise z + D: misses stay misses, since q' <= q + D; and each hit's survival function loses at most a factor exp(epsilon2 / c) over
the shift of 2 D. Only one-sided inequalities are used, so one-sided noise suffices (Lyu, Su, Li 2017 with geometric noise as in
Liu et al. 2024). If every statistic moves in one direction when a unit is added (``monotone``), the shift is D and there is no
factor 2. The proof allows statistics in any order, so questions may be chosen adaptively (:class:`InteractiveThreshold`).

On a path with h hits the loss is at most epsilon1 + h epsilon2 / c, which basic composition may use. ``refresh`` draws a fresh
threshold for each round (the textbook's Sparse): then rounds that never began cost nothing under any accountant. The threshold's
noise may be Gaussian instead (``sigma``), proved in :class:`~dpsql.privacy.events.GaussianSparseVector`. (The bound of Lebensold,
Precup and Balle (2024) for Gaussian noise on the statistics too depends on the stopping time: it is not used.)

A public shift corrects the threshold, so that a statistic at the threshold is found half the time. With ``passes`` missed
candidates are asked again, with fresh noise, while hits are left: this only extends the stream, and misses are free. (Liu et al.
2024 correct thresholds and append queries for precision and recall.)

Candidates far below the noisy threshold are only counted: rare coins replace theirs, and heads are kept with the exact ratio
(:func:`~dpsql.noise.selection.find_heads`). So hits have the law of a comparison of each candidate.

The compared value is never released, since it would reveal the threshold noise. The gap above the noisy threshold may be released
(Ding et al. 2019), and so may a fresh answer, from a separate share.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import NoReturn

import numpy as np
import pyarrow as pa

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms import base
from dpsql.mechanisms.fast.candidate_scores import (
    CANDIDATE_SCORE,
    CANDIDATE_SENSITIVITY,
    CANDIDATE_THRESHOLD,
    CandidateScores,
    ScoredCandidates,
)
from dpsql.mechanisms.moments import Sum
from dpsql.mechanisms.per_group import LaplaceNoise, Statistic
from dpsql.mechanisms.queries import CANDIDATE_PLACE
from dpsql.mechanisms.selection.utilities import UtilityForm
from dpsql.noise.entropy import Entropy
from dpsql.noise.samplers import draw_geometric, draw_rounded_gaussian
from dpsql.noise.selection import CandidateGaps, find_heads
from dpsql.numerics.exact_numbers import SAFE, Integers, make_values, read_integers, to_integers
from dpsql.privacy import conversions
from dpsql.privacy.events import OPEN_ENDED, Event, GaussianSparseVector, SparseVector, compose_events

FIRST_CHUNK = 256
_CELLS = 200
"""The number of quantiles of the threshold's noise from which the public shift is computed."""


def split_epsilon(epsilon: Fraction, max_hits: int, monotone: bool) -> tuple[Fraction, Fraction]:
    """Split epsilon between threshold and hits in the proportion of least variance, 1 : (2c)^(2/3) (c^(2/3) if monotone).

    With ``refresh`` every round is a stream of one hit: pass ``max_hits`` 1. The two add up to epsilon exactly.

    >>> e1, e2 = split_epsilon(Fraction(1), 1, monotone=True)
    >>> e1, e1 + e2
    (Fraction(1, 2), Fraction(1, 1))
    """
    ratio = Fraction(round(1000 * ((1 if monotone else 2) * max_hits) ** (2 / 3)), 1000)
    first = epsilon / (1 + ratio)
    return first, epsilon - first


def share_epsilon(
    epsilon: Fraction, max_hits: int, monotone: bool, refresh: bool, shares: tuple[Fraction, ...] | None
) -> tuple[Fraction, Fraction]:
    """Split epsilon between threshold and hits by the given shares, or by :func:`split_epsilon`."""
    if shares is None:
        return split_epsilon(epsilon, 1 if refresh else max_hits, monotone)
    first = epsilon * shares[0] / (shares[0] + shares[1])
    return first, epsilon - first


@dataclass(frozen=True)
class ThresholdNoise:
    """The noise of one round set: rates per grid step.

    ``max_hits`` hits share ``epsilon2``; with ``refresh`` each round has a separate threshold noise and gets both its parts.

    Args:
        sigma, sigma_delta: of one Gaussian threshold noise: its deviation in sensitivities, and the delta at which it
            has its share of ``epsilon1``.
        asked_again: the number of further questions to a missed statistic.
    """

    sensitivity: int
    epsilon1: Fraction
    epsilon2: Fraction
    max_hits: int
    monotone: bool
    refresh: bool = False
    sigma: Fraction | None = None
    sigma_delta: Fraction = Fraction(0)
    asked_again: int = 0

    def with_gaussian(self, delta: Fraction) -> ThresholdNoise:
        """Return this noise with a Gaussian threshold: ``(epsilon1, delta)`` for all threshold noises (delta 0: itself)."""
        if not delta:
            return self
        rounds = self.max_hits if self.refresh else 1
        sigma = conversions.gaussian_sigma(self.epsilon1 / rounds, delta / rounds)
        return replace(self, sigma=sigma, sigma_delta=delta / rounds)

    def event(self, hits: int | None = None) -> Event:
        """Return the charge for ``hits`` hits, or the reserved event if they are not known yet."""
        if self.sigma is None:
            return SparseVector(self.epsilon1, self.epsilon2, self.max_hits, hits, self.refresh)
        share = self.epsilon1 / self.max_hits if self.refresh else self.epsilon1
        return GaussianSparseVector(
            self.sigma, self.epsilon2, self.max_hits, share, self.sigma_delta, hits, self.refresh
        )

    def scaled(self, factor: Fraction) -> ThresholdNoise:
        """Return the noise of both epsilons times a factor, at an unchanged delta."""
        scaled = replace(self, epsilon1=self.epsilon1 * factor, epsilon2=self.epsilon2 * factor)
        return scaled.with_gaussian(self.sigma_delta * (self.max_hits if self.refresh else 1))

    def draw_threshold(self, entropy: Entropy) -> int:
        if self.sigma is None:
            return int(draw_geometric(self.threshold_rate, 1, entropy)[0])
        return int(draw_rounded_gaussian(self.sigma * self.sensitivity, 1, entropy)[0])

    @property
    def threshold_rate(self) -> Fraction:
        share = self.epsilon1 / self.max_hits if self.refresh else self.epsilon1
        return share / self.sensitivity

    @property
    def query_rate(self) -> Fraction:
        return self.epsilon2 / ((1 if self.monotone else 2) * self.max_hits * self.sensitivity)

    @cached_property
    def centre(self) -> int:
        """The public, so free, shift that makes a statistic at the threshold a hit half the time."""
        b2 = float(1 / self.query_rate)
        if self.sigma is None:
            b1 = float(1 / self.threshold_rate)
            return max(0, round(b2 * math.log(2 * b2 / (b1 + b2))))
        noise = [self._quantile((i + 0.5) / _CELLS) for i in range(_CELLS)]
        low, high = -max(noise) - b2, 2 * b2 + max(noise)
        for _ in range(60):
            middle = (low + high) / 2
            found = sum(math.exp(-max(0.0, middle + z) / b2) for z in noise) / _CELLS
            low, high = (middle, high) if found > 0.5 else (low, middle)
        return round(low)

    def _quantile(self, probability: float) -> float:
        """Return a quantile of the threshold's noise, in grid steps: for display, and for the public shift."""
        if self.sigma is None:
            return -math.log1p(-probability) / float(self.threshold_rate)
        return NormalDist().inv_cdf(probability) * float(self.sigma) * self.sensitivity

    def reach(self, confidence: float, queries: int) -> float:
        """Bound the distance in grid steps at which all of ``queries`` comparisons are right, at this confidence."""
        doubt = (1 - confidence) / 2
        return self._quantile(1 - doubt) + math.log(max(queries * (1 + self.asked_again), 1) / doubt) / float(
            self.query_rate
        )


class ScoredOperator(base.Operator):
    """A choice among candidates whose scores are read by the faster route, if any, or batch by batch.

    ``varying``: whether candidates have different sensitivities; ``form``: the form of the scores, if they are no plain sums.
    """

    batches: tuple[str, ...]
    sweep: CandidateScores | None = None
    varying: bool = False
    form: UtilityForm | None = None
    rows: int = 1

    @property
    def queries(self) -> tuple[str, ...]:
        return self.batches[:1] if self.sweep is None else self.sweep.queries

    @property
    def checked(self) -> tuple[str, ...]:
        return self.batches[:1]

    def _claim_scores(self, sensitivity: int, monotone: bool) -> Iterator[base.ClaimedText]:
        """Yield the candidates' score texts with claims; ``monotone``: the noise is for scores moving in one direction."""
        own = CANDIDATE_SENSITIVITY if self.varying else None
        scores = base.ScoresClaim(CANDIDATE_SCORE, sensitivity, self.rows, own=own, monotone=monotone)
        if self.form is not None:
            scores = self.form.claim(scores)
        claim = base.RowsClaim(self.rows, each=CANDIDATE_PLACE, scores=scores)
        for text in self.batches:
            yield base.ClaimedText(text, claim)
        if self.sweep is not None:
            yield from self.sweep.claims()

    def _read_scores(self, read: base.Read, entropy: Entropy) -> Iterator[ScoredCandidates]:
        """Yield the candidates with their scores, and their sensitivities if these differ."""
        batches = self.batches
        reader = base.add_salt(read, (*batches, *self.queries), entropy)
        swept = None if self.sweep is None else self.sweep.follow(reader, entropy)
        if swept is not None:
            yield swept
            return
        for i, text in enumerate(batches):
            base.report_progress(i, len(batches))
            table = reader(text)
            places, scores = (read_integers(table.column(c)) for c in (CANDIDATE_PLACE, CANDIDATE_SCORE))
            own = read_integers(table.column(CANDIDATE_SENSITIVITY)) if self.varying else None
            yield ScoredCandidates(table, places, scores, own)
        base.report_progress(len(batches), len(batches))


@dataclass(frozen=True)
class AboveThreshold(ScoredOperator):
    """``ABOVE_THRESHOLD(statistic, threshold, ...)`` over candidates, asked in their order.

    Args:
        batches: queries that return, for consecutive candidates, ``columns``, :data:`CANDIDATE_PLACE`, the statistic
            :data:`CANDIDATE_SCORE` and, unless ``threshold`` is a number, :data:`CANDIDATE_THRESHOLD`; all integers in
            grid steps. Later ones are read only while hits are wanted.
        sensitivity: the most that one privacy unit moves any score.
        answer: the name of the fresh answers' column, and their share of epsilon.
        gap: the name of the column of gaps above the noisy threshold.
        flag: for a stream of one query, the name of its TRUE or FALSE column.
        sweep: reads the scores from histograms, if possible.
    """

    batches: tuple[str, ...]
    columns: tuple[str, ...]
    threshold: int | None
    noise: ThresholdNoise
    steps: Fraction = Fraction(1)
    answer: tuple[str, Fraction] | None = None
    gap: str | None = None
    flag: str | None = None
    confidence: float = 0.95
    candidates: int | None = None
    sweep: CandidateScores | None = None
    form: UtilityForm | None = None
    rows: int = 1

    @property
    def event(self) -> Event:
        if self.answer is None:
            return self.noise.event()
        return compose_events(
            [self.noise.event(), LaplaceNoise(self.answer[1], self.noise.sensitivity).event]
        )

    def claims(self) -> Iterator[base.ClaimedText]:
        yield from self._claim_scores(self.noise.sensitivity, self.noise.monotone)

    def release(self, read: base.Read, entropy: Entropy) -> base.Release:
        hits: list[tuple[pa.Table, int, int, int]] = []
        seen: list[pa.Schema] = []
        for table, row, score, gap in self._hits(read, entropy, seen):
            hits.append((table, row, score, gap))
            if len(hits) == self.noise.max_hits:
                break
        n = self.noise
        used: list[Event] = [n.event(len(hits))]
        if self.flag is not None:
            return base.Release(pa.table({self.flag: make_values([bool(hits)], pa.bool_())}), used[0])
        columns: dict[str, pa.Array | pa.ChunkedArray] = {}
        for name in self.columns:
            chunks = [table.column(name).slice(row, 1).combine_chunks() for table, row, _, _ in hits]
            columns[name] = pa.chunked_array(chunks, seen[0].field(name).type if seen else pa.null())
        if self.answer is not None:
            fresh = LaplaceNoise(self.answer[1], n.sensitivity, max(1, len(hits)))
            exact = [score for _, _, score, _ in hits]
            columns |= make_answers(self.answer[0], exact, fresh, self.steps, entropy, self.confidence)
            # The hits share the whole of it, whatever their number, so its reservation is used up.
            used.append(LaplaceNoise(self.answer[1], n.sensitivity).event)
        if self.gap is not None:
            gaps = [float(Fraction(gap) / self.steps) for _, _, _, gap in hits]
            columns[self.gap] = make_values(gaps, pa.float64())
        some = f"{len(hits)} of at most {n.max_hits} hits"
        found = some if hits else "no candidate was found above the threshold"
        note = f"{found}: noisy comparisons; near the threshold they can be wrong either way"
        return base.Release(pa.table(columns), compose_events(used), (note,))

    def _hits(
        self, read: base.Read, entropy: Entropy, seen: list[pa.Schema]
    ) -> Iterator[tuple[pa.Table, int, int, int]]:
        """Yield hits as they are found: table, row, exact score and gap of the candidate. Append schemas to ``seen``."""
        noisy = NoisyThreshold(self.noise, entropy)
        missed: list[tuple[pa.Table, Integers, Integers, Integers]] = []
        for found in self._read_scores(read, entropy):
            scores = to_integers(found.scores)
            seen.append(found.table.schema)
            if self.threshold is None:
                level = to_integers(read_integers(found.table.column(CANDIDATE_THRESHOLD)))
            else:
                level = to_integers([self.threshold])
            over = to_integers(scores - level)  # these can't overflow int64
            left = yield from self._ask(noisy, found.table, found.order, scores, over, entropy)
            missed.append((found.table, left, scores, over))
        for _ in range(self.noise.asked_again):
            for i, (table, rows, scores, over) in enumerate(missed):
                left = yield from self._ask(noisy, table, rows, scores, over, entropy)
                missed[i] = (table, left, scores, over)

    def _draw_gap(self, short: int, entropy: Entropy) -> int:
        """Draw the gap of a hit: the excess of a geometric variable over a value that it reaches is geometric again."""
        return max(0, -short) + int(draw_geometric(self.noise.query_rate, 1, entropy)[0])

    def _ask(
        self,
        noisy: NoisyThreshold,
        table: pa.Table,
        rows: Integers | None,
        scores: Integers,
        over: Integers,
        entropy: Entropy,
    ) -> Generator[tuple[pa.Table, int, int, int], None, Integers]:
        """Yield the hits among some rows of candidates (None: all), in their order, and return the rows that were missed."""
        rate, chunk, at = self.noise.query_rate, FIRST_CHUNK, 0
        size = len(over) if rows is None else len(rows)
        missed = np.ones(size, dtype=bool)
        while at < size:
            # q + Geom >= level has probability exp(-rate * (level - q)), or 1: one exact coin per statistic.
            part = slice(at, at + chunk)
            short = noisy.short_of(over[part if rows is None else rows[part]])
            above = find_heads(CandidateGaps.below_level(short, rate), rate, entropy)
            for i in above:
                row = int(at + i if rows is None else rows[at + i])
                missed[at + i] = False
                yield table, row, int(scores[row]), self._draw_gap(int(short[i]), entropy)
                noisy.hit()
                if self.noise.refresh:
                    break
            if self.noise.refresh and len(above):  # the other coins were for the previous threshold
                at, chunk = at + int(above[0]) + 1, FIRST_CHUNK
            else:
                at, chunk = at + chunk, chunk * 2
        return np.flatnonzero(missed) if rows is None else rows[missed]

    def sentences(self, confidence: float) -> tuple[str, ...]:
        n = self.noise
        total = float(n.epsilon1 + n.epsilon2)
        kind = "a fresh threshold for each round" if n.refresh else "one noisy threshold"
        kind += "" if n.sigma is None else f" with Gaussian noise (σ={float(n.sigma):.4g} sensitivities)"
        reach = n.reach(confidence, self.candidates or 1) / float(self.steps)
        said = [
            f"Compare in order with {kind} (ABOVE_THRESHOLD, ε={total:g}, at most {n.max_hits} "
            f"hit{'s' if n.max_hits > 1 else ''}); every comparison is "
            f"right if it differs from the threshold by more than {reach:.4g}, at {confidence:.0%}."
        ]
        if n.max_hits > 1:
            said.append(
                "Hits that are not found are not paid for under basic composition"
                + ("; with refresh under every accountant." if n.refresh else ".")
            )
        if n.asked_again:
            said.append(
                f"Candidates that are missed are asked again, {n.asked_again + 1} times in all, while hits are left: free."
            )
        if self.answer is not None:
            said.append(f"Each hit is answered afresh, from a share of ε={float(self.answer[1]):g}.")
        return tuple(said)

    def errors(self, basis: base.ErrorBasis) -> Iterator[base.ExpectedError]:
        if basis.confidence is not None:
            noise = self.noise.scaled(basis.factor)
            reach = noise.reach(basis.confidence, self.candidates or 1) / float(self.steps)
            yield base.ExpectedError("compared with the threshold", reach)


class NoisyThreshold:
    """The noisy level that a noisy score must reach, in steps above the threshold."""

    def __init__(self, noise: ThresholdNoise, entropy: Entropy) -> None:
        self._noise, self._entropy = noise, entropy
        self.level = self._draw()

    def _draw(self) -> int:
        return self._noise.centre + self._noise.draw_threshold(self._entropy)

    def short_of(self, over: Integers) -> Integers:
        """Return the distance of each score, less its threshold, below the noisy level."""
        return self.level - (over if abs(self.level) < SAFE else over.astype(object))

    def hit(self) -> None:
        if self._noise.refresh:
            self.level = self._draw()


def make_answers(
    name: str, exact: list[int], noise: LaplaceNoise, steps: Fraction, entropy: Entropy, confidence: float
) -> dict[str, pa.Array]:
    """Return the columns of fresh answers, with their intervals."""
    fresh = Sum(name, Statistic(name, noise), steps)
    return fresh.show({fresh.statistic: noise.add(exact, entropy)}, confidence).columns(name)


class InteractiveThreshold:
    """A noisy threshold for adaptively chosen questions.

    A statistic q of sensitivity D is compared as q / D with T / D, so that every question has sensitivity 1 and all share the
    threshold noise, in steps of 1/1024 of that. DECLARE reserves the whole cost; the noisy threshold exists only in this object
    and process. One unit may move some later questions up and some down, so the noise is never the monotone one.
    """

    _FINE = 1024

    def __init__(
        self,
        epsilon1: Fraction,
        epsilon2: Fraction,
        max_hits: int,
        refresh: bool,
        entropy: Entropy,
        delta: Fraction = Fraction(0),
        answers: Fraction = Fraction(0),
    ) -> None:
        """Draw the noisy threshold.

        Args:
            refresh: whether each hit is followed by a fresh threshold.
            delta: of a threshold with Gaussian noise; 0 for geometric noise.
            answers: epsilon of the fresh answers to all hits.
        """
        shared = (self._FINE, epsilon1, epsilon2, max_hits, False, refresh)
        self.noise = ThresholdNoise(*shared).with_gaussian(delta)
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

        The statistic is rounded down to these steps: its sensitivity is exactly 1024, so the gap hides the remainder.
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
class Probe(ScoredOperator):
    """``SELECT WITH alarm COUNT(*) ...``: one question to a declared threshold, paid at DECLARE.

    Args:
        batches: one query, which returns the exact ``dpsql_score`` in grid steps.
        reserved: the event reserved at DECLARE.
        ask: asks the open threshold, and records a hit durably before it answers.
        gap: whether to show the gap above the noisy threshold, which is free.
        answer: the epsilon of a fresh answer to a hit.
    """

    batches: tuple[str, ...]
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
        yield from self._claim_scores(self.sensitivity, monotone=False)

    def release(self, read: base.Read, entropy: Entropy) -> base.Release:
        (scored,) = self._read_scores(read, entropy)
        score = int(scored.scores[0])
        gap = self.ask(score, self.threshold, self.sensitivity)
        columns: dict[str, pa.Array] = {"above": make_values([gap is not None], pa.bool_())}
        if self.gap:
            shown = (
                None
                if gap is None
                else float(gap * self.sensitivity / (InteractiveThreshold._FINE * self.steps))
            )
            columns["gap"] = make_values([shown], pa.float64())
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
