"""The exponential mechanism and related ones: the best of public candidates, chosen privately by an exact integer utility.

    exponential        Pr[r] proportional to exp(lambda u_r): pure epsilon, and of bounded range (Dong, Durfee, Rogers 2020)
    permute_and_flip   noisy max with one-sided exponential noise; never worse at equal epsilon (McKenna, Sheldon 2020)
    noisy_max          Laplace noise, for parity with the texts
    gumbel             the k best after Gumbel noise of scale k / lambda, drawn once (Durfee, Rogers 2019)

lambda = epsilon / (2 D), and epsilon / D if adding a unit moves all utilities in one direction (ADD_REMOVE only), for utilities
that one unit moves by at most D. One-sided exponential noise is permute-and-flip, not the exponential mechanism, as a well-known
text has it: that already fails for two candidates, and charging one for the other would be wrong.

Gumbel noise drawn once orders the candidates as k exponential mechanisms of epsilon / k would peel them off, as the rest of the
noise is Gumbel again. So the sampler peels, exactly, and pays for k choices of bounded range, with the scores of all candidates
together; for unequal sensitivities, the other methods recompute scores among the candidates left.

``MODE(x)`` is the exponential mechanism over the counts of a list of public values. A unit with at most ``rows`` rows in a group
adds at most ``rows`` to any value's count, and takes from none, so the weight of a value is ``exp(epsilon count / rows)``, of
pure epsilon and of bounded range, divided equally over the groups of a unit. The caller must bound a unit's rows and groups by
rules that depend on that unit alone, and choose the values independently of the data.

For candidates of unequal sensitivities, the generalised mechanism (Raskhodnikova, Smith 2016) compares utilities less a
multiple t of each one's sensitivity; its score moves by at most 1 whatever t is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.aggregation import Answered, Group, Part
from dpsql.mechanisms.base import ClaimedText, ErrorBasis, ExpectedError, Read, Release, RowsClaim, add_salt
from dpsql.mechanisms.fast.candidate_scores import CandidatePruning, CandidateScores, PrunedCandidates
from dpsql.mechanisms.histograms import BIN_ROWS, count_bins
from dpsql.mechanisms.per_group import LaplaceNoise
from dpsql.mechanisms.quantiles import RANK_CONFIDENCE
from dpsql.mechanisms.selection.above_threshold import ScoredOperator, make_answers
from dpsql.mechanisms.selection.utilities import (
    SCORE_GRID,
    SCORE_SENSITIVITY,
    ChoiceRates,
    UtilityForm,
    compute_generalised_gaps,
    compute_generalised_scores,
)
from dpsql.noise.entropy import Entropy
from dpsql.noise.selection import CandidateGaps, choose_exponential, choose_noisy_max, permute_and_flip
from dpsql.numerics.exact_numbers import Integers, make_values
from dpsql.privacy.events import BoundedRange, Event, PureDP, compose_events


def _choose_noisy(scores: Integers | CandidateGaps, rate: Fraction, entropy: Entropy) -> int:
    return choose_noisy_max(scores, 1 / rate, entropy)


@dataclass(frozen=True)
class ChoiceMethod:
    """A way to choose.

    Args:
        bounded_range: whether the losses of a winner are in a range of length epsilon; otherwise any mechanism of epsilon.
        at_once: whether all winners are chosen by the scores of the first choice.
        reach: the multiple of ``log(candidates / doubt) / epsilon`` by which a score of sensitivity 1 may be below the best.
    """

    choose: Callable[[Integers | CandidateGaps, Fraction, Entropy], int]
    bounded_range: bool = False
    at_once: bool = False
    reach: int = 2


CHOICE_METHODS = {
    "exponential": ChoiceMethod(choose_exponential, bounded_range=True),
    "permute_and_flip": ChoiceMethod(permute_and_flip),
    "noisy_max": ChoiceMethod(_choose_noisy, reach=4),
    "gumbel": ChoiceMethod(choose_exponential, bounded_range=True, at_once=True),
}
"""The ways to choose, by their SQL names."""

MARGIN_CONFIDENCE = 0.95
"""The confidence for which the generalised mechanism's margin is set, and its bound is stated."""


@dataclass(frozen=True)
class ExponentialChoice(ScoredOperator):
    """``EXPMECH(utility, ...)`` over candidates.

    Args:
        batches: queries that return, for all candidates together, ``columns``, their place, the utility in grid steps, and with
            ``varying`` each candidate's sensitivity.
        sensitivity: the most that one privacy unit moves any utility, in grid steps.
        epsilon: of the choice; with ``top`` winners, peeled one by one, each gets an equal part.
        answer: the name of the fresh utilities' column, and their share of epsilon.
    """

    batches: tuple[str, ...]
    columns: tuple[str, ...]
    sensitivity: int
    epsilon: Fraction
    monotone: bool
    method: str
    top: int = 1
    varying: bool = False
    steps: Fraction = Fraction(1)
    answer: tuple[str, Fraction] | None = None
    candidates: int | None = None
    confidence: float = 0.95
    sweep: CandidateScores | None = None
    form: UtilityForm | None = None
    rows: int = 1

    @property
    def _way(self) -> ChoiceMethod:
        return CHOICE_METHODS[self.method]

    @property
    def choice(self) -> Event:
        """The event of the choice alone."""
        if self._way.bounded_range:
            return BoundedRange(self.epsilon, self.top)
        return compose_events([PureDP(self.epsilon / self.top)] * self.top)

    @property
    def _answers(self) -> LaplaceNoise | None:
        return None if self.answer is None else LaplaceNoise(self.answer[1], self.sensitivity, self.top)

    @property
    def event(self) -> Event:
        fresh = self._answers
        return self.choice if fresh is None else compose_events([self.choice, fresh.event])

    def claims(self) -> Iterator[ClaimedText]:
        yield from self._claim_scores(self.sensitivity, self.monotone)

    def release(self, read: Read, entropy: Entropy) -> Release:
        few = self._prune(read, entropy)
        if few is not None:
            winners = self._peel(few.gaps, few.rate, entropy)
            return self._released(few.table, winners, few.utility, entropy)
        found = list(self._read_scores(read, entropy))
        table = found[0].table if len(found) == 1 else pa.concat_tables([f.table for f in found])
        scores, own = found[0].scores, found[0].sensitivities
        if len(found) > 1:
            scores = np.concatenate([f.scores for f in found])
            parts = [f.sensitivities for f in found if f.sensitivities is not None]
            own = np.concatenate(parts) if parts else None
        winners = self.choose(scores, own, entropy)
        return self._released(table, winners, lambda i: int(scores[i]), entropy)

    def _prune(self, read: Read, entropy: Entropy) -> PrunedCandidates | None:
        """Score only candidates near the best, if possible."""
        if self.sweep is None:
            return None
        reader = add_salt(read, self.sweep.queries, entropy)
        pruning = CandidatePruning(self.sweep, self._rates, self.top, self.candidates)
        return pruning.follow(reader, entropy)

    def _released(
        self, table: pa.Table, winners: list[int], utility: Callable[[int], int], entropy: Entropy
    ) -> Release:
        won = pa.concat_tables([table.slice(i, 1) for i in winners] or [table.slice(0, 0)]).combine_chunks()
        columns: dict[str, pa.Array] = {name: won.column(name) for name in self.columns}
        fresh = self._answers
        if fresh is not None and self.answer is not None:
            exact = [utility(i) for i in winners]
            columns |= make_answers(self.answer[0], exact, fresh, self.steps, entropy, self.confidence)
        return Release(pa.table(columns), self.event, ("a private choice: the best, or one near it",))

    @property
    def _rates(self) -> ChoiceRates:
        part = self.epsilon / self.top
        equal = part / ((1 if self.monotone else 2) * self.sensitivity)
        unequal = part / (2 * SCORE_SENSITIVITY)
        return ChoiceRates(equal, unequal, lambda size: self._margin(self.candidates or size))

    def choose(self, scores: Integers, own: Integers | None, entropy: Entropy) -> list[int]:
        """Choose the winners, best first: peeled off one at a time, each with its part of epsilon."""
        if not len(scores):
            return []
        rates = self._rates
        equal = rates.equal
        if self._way.at_once and own is not None and bool((own != own[0]).any()):
            scores, own = compute_generalised_scores(scores, own, rates.margin(len(scores))), None
            equal = rates.unequal
        if own is None or bool((own == own[0]).all()):
            return self._peel(CandidateGaps.of(scores, equal, min(self.top, len(scores))), equal, entropy)
        left: NDArray[np.intp] = np.arange(len(scores))
        winners: list[int] = []
        for _ in range(min(self.top, len(scores))):
            mine, moved, rate = scores[left], own[left], equal
            field: Integers | CandidateGaps = mine
            if bool((moved != moved[0]).any()):
                rate, margin = rates.unequal, rates.margin(len(scores))
                field = compute_generalised_gaps(mine, moved, margin, rate)
            won = self._one(field, rate, entropy)
            winners.append(int(left[won]))
            left = np.delete(left, won)
        return winners

    def _peel(self, field: CandidateGaps, rate: Fraction, entropy: Entropy) -> list[int]:
        """Choose the winners among candidates of equal sensitivities."""
        winners = [self._one(field, rate, entropy)]
        while len(winners) < min(self.top, field.size):
            field = field.without(winners[-1])
            winners.append(self._one(field, rate, entropy))
        return winners

    def _one(self, scores: Integers | CandidateGaps, rate: Fraction, entropy: Entropy) -> int:
        return self._way.choose(scores, rate, entropy)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        """Return the utility bounds of Dwork and Roth (theorem 3.11, corollary 3.12), or of :meth:`_ahead` for unequal ones."""
        size = self.candidates or 1
        how = "at once" if self._way.at_once else "one by one"
        best = "the best" if self.top == 1 else f"the {self.top} best, {how},"
        said = [
            f"Choose {best} of {size} candidates by {self.method.replace('_', ' ')} (ε={float(self.epsilon):g})."
        ]
        if self.varying:
            confidence = min(confidence, MARGIN_CONFIDENCE)
            whose = "the first winner" if self._way.at_once and self.top > 1 else "the winner"
            said.append(
                "Candidates differ in sensitivity, so scores compare them in units of their own (the generalised "
                f"mechanism): with probability at least {confidence:.4g} {whose}'s utility is at least that "
                f"of any other candidate, less {self._ahead(confidence):.4g} times the most that one unit moves the other's."
            )
        else:
            said.append(
                f"With probability at least {confidence:.4g} the winner is within "
                f"{self.behind(confidence):.4g} of the best."
            )
            if self.monotone:
                said.append(
                    "Adding a unit moves all utilities in one direction, so half the noise is enough."
                )
        if self.answer is not None:
            share = float(self.answer[1])
            said.append(f"Each winner's utility is answered afresh, from a share of ε={share:g}.")
        return tuple(said)

    def _reach(self, confidence: float, size: int) -> float:
        """Bound how far a score of sensitivity 1 is below the best, without the improvement for monotone ones."""
        log = math.log(max(size, 1) / (1 - confidence))
        return self._way.reach / float(self.epsilon / self.top) * log

    def behind(self, confidence: float) -> float:
        """Bound how far the winner is below the best, in units of the utility."""
        moved = float(Fraction(self.sensitivity) / self.steps)
        return self._reach(confidence, self.candidates or 1) * moved / (2 if self.monotone else 1)

    def _margin(self, size: int) -> int:
        """Return the generalised mechanism's t, any public number: the reach of its scores at :data:`MARGIN_CONFIDENCE`."""
        return max(1, math.ceil(self._reach(MARGIN_CONFIDENCE, size) * SCORE_SENSITIVITY / SCORE_GRID))

    def _ahead(self, confidence: float) -> float:
        """Return the K of ``u(winner) >= u(r) - K D_r``.

        The best candidate scores 0, so the winner scores at least -reach: it is ahead of every r, after subtracting t
        times each one's sensitivity (D and D_r), by at least -reach (D + D_r). As t >= reach, D cancels.
        """
        size = self.candidates or 1
        return self._reach(confidence, size) * SCORE_SENSITIVITY / SCORE_GRID + self._margin(size)

    def errors(self, basis: ErrorBasis) -> Iterator[ExpectedError]:
        if not self.varying and basis.confidence is not None:
            other = replace(self, epsilon=self.epsilon * basis.factor)
            yield ExpectedError("short of the best", other.behind(basis.confidence))


# -- the most frequent of public values -------------------------------------------------------------------------------


@dataclass(frozen=True)
class MostFrequent(Part):
    """The index of a value chosen from a public list; ``query`` returns the keys, ``histograms.BIN`` and ``BIN_ROWS``."""

    query: str
    keys: tuple[str, ...]
    name: str
    bins: int
    epsilon: Fraction
    rows: int = 1
    groups: int = 1
    in_all: bool = False
    by_group = True

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or min(self.bins, self.rows, self.groups) < 1:
            raise ValueError("a choice needs values, an epsilon above 0, and rows and groups of at least 1")

    @property
    def event(self) -> Event:
        return BoundedRange(self.epsilon, self.groups)

    @property
    def rate(self) -> Fraction:
        """The log-weight of one row."""
        return self.epsilon / (self.groups * self.rows)

    def claims(self) -> Iterator[ClaimedText]:
        claim = RowsClaim(self.rows, self.groups, self.keys, moves=((BIN_ROWS, 1),), in_all=self.in_all)
        yield ClaimedText(self.query, claim)

    def answer(self, table: pa.Table, groups: list[Group], entropy: Entropy) -> Answered:
        exact = count_bins(table, self.keys, groups, self.bins)
        chosen = [choose_exponential(counts, self.rate, entropy) for counts in exact]
        behind = math.ceil(self.bound_error(RANK_CONFIDENCE))
        note = (
            f"no interval for {self.name}: it has at most {behind:,} rows fewer than the most frequent value, at "
            f"{RANK_CONFIDENCE:.0%}; among fewer rows any value may be shown"
        )
        return Answered({self.name: make_values(chosen, pa.int64())}, self.event, (note,))

    def bound_error(self, confidence: float) -> float:
        """Bound the difference in rows between the most frequent value and the chosen one (Dwork and Roth, corollary 3.12)."""
        return (math.log(self.bins) - math.log(1 - confidence)) / float(self.rate)

    def sentences(self, confidence: float) -> tuple[str, ...]:
        shared = f", shared by {self.groups} groups" if self.groups > 1 else ""
        return (
            f"Choose {self.name} among {self.bins} public values by the exponential mechanism "
            f"(ε={float(self.epsilon):g}{shared}).",
            f"{self.name}: at most {self.bound_error(confidence):.4g} rows behind the most frequent value, with "
            f"{confidence:.4g} probability.",
        )

    def errors(self, basis: ErrorBasis) -> Iterator[ExpectedError]:
        if basis.confidence is not None:
            other = replace(self, epsilon=self.epsilon * basis.factor)
            yield ExpectedError(self.name, other.bound_error(basis.confidence), condition=", in rows")
