"""Events of thresholds with a delta or with Gaussian noise.

Both are charged like :class:`~dpsql.privacy.events.SparseVector`: the whole is reserved, and it is settled with the found hits,
path by path in basic composition, or by the rounds begun if each round has its own noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from dpsql.numerics.exact_numbers import compute_root, shorten, write_number
from dpsql.privacy import conversions
from dpsql.privacy.events import Event, SparseVector, StableTest, require


@dataclass(frozen=True)
class StableQuestions(SparseVector):
    """A stream of questions that are answered exactly if the answer is stable; unstable ones are its hits.

    It is a sparse vector on the distances to another answer; with a probability of at most ``failure`` for each drawn threshold
    noise (one, or one a round) it gives an answer that some neighbour doesn't have. So it is (epsilon, delta)-DP under every way
    of asking. Such an interactive mechanism is a processing of one draw of randomised response that reveals everything with
    probability delta (Vadhan and Zhang 2023): the decomposition that every currency needs. On a path with h unstable questions
    that did not fail, the loss is that of a sparse vector with h hits.
    """

    kind: ClassVar[str] = "stable_questions"
    positive = ("epsilon1", "epsilon2", "max_hits", "failure")
    failure: Fraction = Fraction(0)

    @property
    def delta(self) -> Fraction:  # type: ignore[override]
        """The probability that any of the drawn threshold noises releases an unstable answer."""
        return self.failure * self.repeats

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        return super().basic[0], self.delta

    @property
    def parts(self) -> tuple[Event, ...]:
        return (StableTest(self.round, self.failure),) * self.repeats


@dataclass(frozen=True)
class GaussianSparseVector(Event):
    """The sparse vector technique with Gaussian noise of ``sigma`` sensitivities on the threshold.

    The noise of the statistics stays one-sided geometric, and its hits share ``epsilon2``. Given the threshold noise, the answers
    on one data set are at most ``exp(epsilon2)`` times as likely as those on a neighbour whose threshold noise is one sensitivity
    larger; so with ``g`` the Gaussian mechanism of ``mu = 1 / sigma``

        D_alpha <= alpha mu^2 / 2 + epsilon2          delta(x) <= delta_g(x - epsilon2)

    and, path by path, the likelihood is at most ``exp(e + h epsilon2 / max_hits)`` times as large on a path with h hits, except
    for a part of probability ``delta_g(e)``, for every e: ``declared_epsilon``, whose delta the construction checks. The
    inequality given the noise goes one way only, so epsilon2 is no pure part: every divergence pays it in full. With ``refresh``
    all of this holds for one round, with ``epsilon2 / max_hits``.

    ``mu`` follows from ``delta(x)``: the loss is below a normal one of mean ``mu^2 / 2 + epsilon2`` and deviation ``mu``, and
    above 0 that one is below the loss of the Gaussian mechanism of ``mu + 2 epsilon2 / mu``; below 0 both follow from above 0,
    as data sets are neighbours both ways.
    """

    kind: ClassVar[str] = "gaussian_sparse_vector"
    positive = ("sigma", "epsilon2", "max_hits")
    epsilon = None
    delta = Fraction(0)
    sigma: Fraction
    epsilon2: Fraction
    max_hits: int
    declared_epsilon: Fraction
    declared_delta: Fraction
    hits: int | None = None
    refresh: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.hits is None or 0 <= self.hits <= self.max_hits, "hits: between 0 and max_hits")
        require(self.declared_epsilon >= 0 and 0 < self.declared_delta < 1, "declared pair out of range")
        require(
            conversions.gaussian_delta(shorten(1 / self.sigma), self.declared_epsilon) <= self.declared_delta,
            f"sigma is too small for ε={write_number(self.declared_epsilon)}, δ={write_number(self.declared_delta)}",
        )

    @property
    def rounds(self) -> int:
        """The charged threshold noises."""
        if not self.refresh:
            return 1
        return self.max_hits if self.hits is None else min(self.hits + 1, self.max_hits)

    @property
    def share(self) -> Fraction:
        """The part of ``epsilon2`` charged for one threshold noise, with all of its hits found."""
        return self.epsilon2 / self.max_hits if self.refresh else self.epsilon2

    @property
    def rho(self) -> Fraction:
        return shorten(self.rounds * (1 / (2 * self.sigma * self.sigma) + self.share))

    def renyi(self, order: Fraction) -> Fraction:
        return shorten(self.rounds * (order / (2 * self.sigma * self.sigma) + self.share))

    @property
    def mu(self) -> Fraction:
        one = 1 / self.sigma + 2 * self.share * self.sigma
        return shorten(compute_root(self.rounds * one * one))

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        found = self.max_hits if self.hits is None else self.hits
        hits = self.rounds * self.share if self.refresh else found * self.epsilon2 / self.max_hits
        return self.rounds * self.declared_epsilon + hits, self.rounds * self.declared_delta

    def in_full(self) -> Event:
        return self if self.refresh else replace(self, hits=None)

    def is_within(self, reserved: Event) -> bool:
        return self == reserved or replace(self, hits=None) == reserved


OPEN_ENDED = (SparseVector, GaussianSparseVector)
"""Events that shrink when they are settled."""
