"""Events: one frozen value for each mechanism that touched private data.

An event states the mechanism, its parameters, and the sensitivity in steps of the noise, not the cost: accountants compute
the cost, so a better one can re-read an old ledger. Events are stored: kinds and field names never change their meaning,
and every number is an int or a :class:`~fractions.Fraction`.

Each event states its cost in every currency, rounded up, for every pair of neighbouring data sets. Epsilon, delta, rho and
mu refer to one decomposition: outside an event of probability ``delta`` (under both data sets), the losses are at most
``epsilon``, and ``rho`` and ``mu`` hold.

``pure``     pure differential privacy, or None
``delta``    set aside: ``delta``-approximately ``rho``-zCDP, and dominated by ``G_mu`` composed with ``f_{0, delta}``
``rho``      zero-concentrated DP: ``D_alpha <= alpha * rho`` for all ``alpha > 1``
``renyi``    the divergence ``D_alpha`` of one order: never more than ``alpha * rho``
``mu``       Gaussian DP
``basic``    the pair (epsilon, delta) that basic composition adds up

>>> DiscreteLaplace(Fraction(1, 10), 1).sentence()
'ε=0.1'
>>> compose_events([PureDP(Fraction(1, 10)), StableTest(Fraction(1, 5), Fraction(1, 10**7))]).sentence()
'ε=0.3, δ=1e-07'
"""

from __future__ import annotations

import importlib
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from dpsql.late_dataclass import dataclass
from dpsql.numerics.exact_numbers import compute_root, shorten, write_number
from dpsql.privacy import conversions
from dpsql.privacy.codec import read_record, write_record

_NOTHING = Fraction(0)

KINDS: dict[str, type[Event]] = {}
"""The kinds that can be stored, by the name that :meth:`Event.to_json` writes, of the modules imported so far."""
_FURTHER = ("dpsql.privacy.amounts", "dpsql.privacy.periods", "dpsql.privacy.pld")
"""Modules with kinds of their own, which are imported when a stored event has a kind that is not known yet."""


def find_event_kind(name: str) -> type[Event] | None:
    """Return the kind of stored events with a name; None if this version has none."""
    if name not in KINDS:
        for module in _FURTHER:
            importlib.import_module(module)
    return KINDS.get(name)


@dataclass(frozen=True)
class Event:
    """The base of all events. Events with equal fields are equal."""

    kind: ClassVar[str] = ""
    positive: ClassVar[tuple[str, ...]] = ()
    """Fields that must be above 0."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.kind:
            KINDS[cls.kind] = cls

    def __post_init__(self) -> None:
        require(all(getattr(self, n) > 0 for n in self.positive), f"{', '.join(self.positive)}: above 0")
        require(0 <= self.delta < 1, "delta: out of range")

    if TYPE_CHECKING:  # a field in some kinds, a property in others

        @property
        def epsilon(self) -> Fraction | None:
            """The loss of all pairs outside delta; None for Gaussian noise."""

        @property
        def delta(self) -> Fraction:
            """The delta that the approximate currencies set aside."""

    @property
    def pure(self) -> Fraction | None:
        return self.epsilon if self.delta == 0 else None

    @property
    def rho(self) -> Fraction:
        """The zCDP loss, rounded up; from the pure loss if nothing sharper is known."""
        return self.repeats * self._rho_of(self._near() / self.repeats)

    @property
    def repeats(self) -> int:
        """The number of mechanisms with equal shares of epsilon that it consists of."""
        return 1

    def renyi(self, order: Fraction) -> Fraction:
        """Return a bound of the Renyi divergence of one order (above 1) outside delta: by rho or, if less, by epsilon."""
        by_rho = order * self.rho
        if self.epsilon is None:
            return shorten(by_rho)
        share = conversions.pure_renyi(self.epsilon / self.repeats, order)
        return shorten(min(by_rho, self.repeats * share))

    @property
    def mu(self) -> Fraction:
        """The Gaussian-DP loss, rounded up; from the pure loss if nothing sharper is known."""
        mu = self._mu_of(self._near() / self.repeats)
        return mu if self.repeats == 1 else shorten(compute_root(self.repeats * mu * mu))

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        """The pair that basic composition adds: (epsilon, delta)."""
        return self._near(), self.delta

    @property
    def parts(self) -> tuple[Event, ...]:
        """The independent mechanisms that it consists of."""
        return (self,)

    def leaves(self) -> tuple[Event, ...]:
        """Return the single mechanisms that it was composed from."""
        return (self,)

    @property
    def calibration(self) -> object:
        """The mark of noise that may be calibrated jointly; None for other events."""
        return None

    def join(self, others: Iterable[Event]) -> Event | None:
        """Return the joint event with ``others`` if they were calibrated jointly; else None."""
        return None

    def in_full(self) -> Event:
        """Return the event with all hits of one threshold charged: only losses summed path by path may omit missing hits."""
        return self

    def is_within(self, reserved: Event) -> bool:
        """Return whether the event is the reserved one, or cheaper by a proved rule.

        The only such rule: a sparse vector that was reserved with unknown hits is settled with the found ones.
        """
        return self == reserved

    def sentence(self) -> str:
        """Format the loss: ``ε=0.1`` or ``ε=0.1, δ=1e-07``, rounded up."""
        epsilon, delta = self.basic
        return f"ε={write_number(epsilon)}" + (f", δ={write_number(delta)}" if delta else "")

    def to_json(self) -> dict[str, object]:
        """Return a dictionary of strings, ints, nulls and booleans; fractions as ``"1/10"``."""
        return {"kind": self.kind, **write_record(self)}

    @staticmethod
    def from_json(body: Mapping[str, object]) -> Event:
        """Read the event that :meth:`to_json` wrote.

        Raises:
            ValueError: no event of this version: an unknown kind, a missing or superfluous field, a number out of range.
        """
        kind = find_event_kind(str(body.get("kind")))
        if kind is None:
            raise ValueError(f"unknown kind of event: {body.get('kind')!r}")
        wanted = {f.name for f in fields(kind)}
        if set(body) != {"kind", *wanted}:
            raise ValueError(f"fields of a {kind.kind} event: {', '.join(sorted(wanted))}")
        try:
            return read_record(kind, dict(body))
        except TypeError:
            raise ValueError(f"values of a {kind.kind} event") from None

    def _rho_of(self, epsilon: Fraction) -> Fraction:
        return conversions.laplace_rho(epsilon)

    def _mu_of(self, epsilon: Fraction) -> Fraction:
        return conversions.laplace_mu(epsilon)

    def _near(self) -> Fraction:
        epsilon = self.epsilon
        if epsilon is None:  # a kind without epsilon overrides every property that calls this
            raise ValueError(f"a {self.kind} event has no epsilon")
        return epsilon


def require(holds: bool, what: str) -> None:
    """Raise a ValueError with these words unless a condition holds."""
    if not holds:
        raise ValueError(what)


def _require_pair(mu: Fraction, epsilon: Fraction, delta: Fraction, noise: str) -> None:
    """Raise a ValueError unless a mu-GDP mechanism is (epsilon, delta)-DP, by the analytic formula (Balle, Wang 2018)."""
    require(epsilon >= 0 and 0 < delta < 1, "declared pair out of range")
    short = f"{noise} too small for ε={write_number(epsilon)}, δ={write_number(delta)}"
    require(conversions.gaussian_delta(mu, epsilon) <= delta, short)


@dataclass(frozen=True)
class DiscreteLaplace(Event):
    """Discrete Laplace noise on ``count`` independent coordinates of one privacy unit.

    Each coordinate is answered with ``epsilon / count`` and moves by at most ``sensitivity`` grid steps. One step costs as much
    as randomised response; a fine grid tends to the continuous Laplace constant.
    """

    kind: ClassVar[str] = "discrete_laplace"
    positive = ("epsilon", "sensitivity", "count")
    delta = _NOTHING
    epsilon: Fraction
    sensitivity: int
    count: int = 1

    @property
    def repeats(self) -> int:
        return self.count

    def _rho_of(self, epsilon: Fraction) -> Fraction:
        return conversions.laplace_rho(epsilon, self.sensitivity)

    def _mu_of(self, epsilon: Fraction) -> Fraction:
        return conversions.laplace_mu(epsilon, self.sensitivity)


@dataclass(frozen=True)
class RoundedGaussian(Event):
    """Rounded Gaussian noise added to integers.

    It is round(N(0, sigma^2)), exactly ``sqrt(sensitivity_squared) / sigma``-GDP as post-processing of the Gaussian
    mechanism; the squared L2 sensitivity is in grid steps. ``basic`` adds the declared pair, which the construction checks.

    Raises:
        ValueError: the noise is too small for the declared pair.
    """

    kind: ClassVar[str] = "rounded_gaussian"
    positive = ("sigma", "sensitivity_squared")
    epsilon = None
    delta = _NOTHING
    sigma: Fraction
    sensitivity_squared: int
    declared_epsilon: Fraction
    declared_delta: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_pair(self.mu, self.declared_epsilon, self.declared_delta, "sigma is")

    @property
    def rho(self) -> Fraction:
        return shorten(self.sensitivity_squared / (2 * self.sigma * self.sigma))

    @property
    def mu(self) -> Fraction:
        return shorten(compute_root(Fraction(self.sensitivity_squared) / (self.sigma * self.sigma)))

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        return self.declared_epsilon, self.declared_delta


@dataclass(frozen=True)
class BoundedRange(Event):
    """Exponential mechanism: ``count`` peels, the losses of each in a range of length ``epsilon / count``."""

    kind: ClassVar[str] = "bounded_range"
    positive = ("epsilon", "count")
    delta = _NOTHING
    epsilon: Fraction
    count: int = 1

    @property
    def repeats(self) -> int:
        return self.count

    def _rho_of(self, epsilon: Fraction) -> Fraction:
        return conversions.bounded_range_rho(epsilon)

    def _mu_of(self, epsilon: Fraction) -> Fraction:
        # Total variation tanh(epsilon / 4), as at epsilon / 2; the tests check that the curve stays above G_mu elsewhere.
        return conversions.laplace_mu(epsilon / 2)


@dataclass(frozen=True)
class PureDP(Event):
    """Any epsilon-DP mechanism about which nothing sharper is proved: permute-and-flip, Laplace noisy max."""

    kind: ClassVar[str] = "pure"
    positive = ("epsilon",)
    delta = _NOTHING
    epsilon: Fraction


@dataclass(frozen=True)
class SparseVector(Event):
    """The sparse vector technique: at most ``max_hits`` answers above a noisy threshold.

    ``hits`` is None while it is reserved, and is settled with the number found. With one threshold noise the loss of a path with
    h hits is at most ``epsilon1 + h * epsilon2 / max_hits``: path by path, so only basic composition may use it; the divergences
    average over paths and are charged the whole. With ``refresh`` every round is a fresh mechanism, chosen after the previous
    one, so rounds that never began cost nothing in any currency.
    """

    kind: ClassVar[str] = "sparse_vector"
    positive: ClassVar[tuple[str, ...]] = ("epsilon1", "epsilon2", "max_hits")
    delta = _NOTHING
    epsilon1: Fraction
    epsilon2: Fraction
    max_hits: int
    hits: int | None = None
    refresh: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.hits is None or 0 <= self.hits <= self.max_hits, "hits: between 0 and max_hits")

    @property
    def rounds(self) -> int:
        """Rounds begun, if each has its own threshold noise."""
        return self.max_hits if self.hits is None else min(self.hits + 1, self.max_hits)

    @property
    def round(self) -> Fraction:
        """The pure loss of one round with ``refresh``, of the whole without."""
        whole = self.epsilon1 + self.epsilon2
        return whole / self.max_hits if self.refresh else whole

    @property
    def epsilon(self) -> Fraction:
        return self.round * self.repeats

    @property
    def repeats(self) -> int:
        return self.rounds if self.refresh else 1

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        if self.refresh or self.hits is None:
            return self.epsilon, Fraction(0)
        return self.epsilon1 + self.hits * self.epsilon2 / self.max_hits, Fraction(0)

    @property
    def parts(self) -> tuple[Event, ...]:
        return (PureDP(self.round),) * self.repeats

    def in_full(self) -> Event:
        return self if self.refresh else replace(self, hits=None)

    def is_within(self, reserved: Event) -> bool:
        return self == reserved or replace(self, hits=None) == reserved


@dataclass(frozen=True)
class GroupSelection(Event):
    """Selection of groups by their number of privacy units; one unit affects ``groups`` independent decisions.

    Each key is decided with ``(epsilon / groups, 1 - (1 - delta)**(1 / groups))``, so the deltas compose to ``delta``.
    """

    kind: ClassVar[str] = "group_selection"
    positive = ("epsilon", "groups")
    epsilon: Fraction
    delta: Fraction
    groups: int = 1

    @property
    def repeats(self) -> int:
        return self.groups


@dataclass(frozen=True)
class StableTest(Event):
    """The best propose-test-release test: near pairs are (epsilon, delta)-close, far pairs (0, delta)."""

    kind: ClassVar[str] = "stable_test"
    positive = ("epsilon",)
    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True)
class EventList(Event):
    """Several events as one. Every currency adds up (mu by squares).

    For rho that is exact (:mod:`dpsql.privacy.conversions`); and since ``epsilon * tanh(epsilon / 2)`` is superadditive, the
    constant of the summed pure loss is never smaller than the sum of the constants.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        require(bool(self.events), "nothing happened: there is no event to compose")

    @cached_property
    def epsilon(self) -> Fraction | None:
        known = [event.epsilon for event in self.events if event.epsilon is not None]
        return _sum(known) if len(known) == len(self.events) else None

    @cached_property
    def delta(self) -> Fraction:
        return _sum(event.delta for event in self.events)

    @cached_property
    def rho(self) -> Fraction:
        return _sum(event.rho for event in self.events)

    def renyi(self, order: Fraction) -> Fraction:
        return _sum(event.renyi(order) for event in self.events)

    @cached_property
    def mu(self) -> Fraction:
        return compute_root(_sum(event.mu**2 for event in self.events))

    @property
    def parts(self) -> tuple[Event, ...]:
        return tuple(part for event in self.events for part in event.parts)

    def leaves(self) -> tuple[Event, ...]:
        return tuple(leaf for event in self.events for leaf in event.leaves())

    def is_within(self, reserved: Event) -> bool:
        return (
            isinstance(reserved, type(self))
            and replace(self, events=reserved.events) == reserved
            and len(self.events) == len(reserved.events)
            and all(used.is_within(held) for used, held in zip(self.events, reserved.events, strict=True))
        )


@dataclass(frozen=True)
class Composed(EventList):
    """Several mechanisms whose parameters were all fixed before the first answered: one statement, one cell."""

    kind: ClassVar[str] = "composed"

    @cached_property
    def basic(self) -> tuple[Fraction, Fraction]:
        epsilons, deltas = zip(*(event.basic for event in self.events), strict=True)
        return _sum(epsilons), _sum(deltas)

    def in_full(self) -> Event:
        return Composed(tuple(event.in_full() for event in self.events))

    def is_within(self, reserved: Event) -> bool:
        # A later part of a fixed list that never ran reveals nothing: releases decide that, not the data.
        held = iter(reserved.events if isinstance(reserved, Composed) else ())
        return all(any(used.is_within(event) for event in held) for used in self.events)


_MU_BITS = 192
"""Significant bits of each number's squared mu, which is rounded up."""


@dataclass(frozen=True)
class JointGaussian(Event):
    """Rounded Gaussian noise on several integers, calibrated together.

    Number i has noise of deviation ``sigmas[i]``, and one privacy unit moves it by at most the root of ``squares[i]`` in L2,
    over all groups, in its own grid steps. Independent Gaussian noise on numbers that were fixed jointly is one Gaussian
    mechanism: with ``mu`` for each of them the whole is ``sqrt(sum of mu**2)``-GDP, exactly (Dong, Roth, Su 2022, corollary
    2.1). So one calibration covers all of them, and ``basic`` adds the declared pair once; the construction checks it.

    >>> pair = (Fraction(1), Fraction(1, 10**6))
    >>> two = [JointGaussian((sigma,), (square,), *pair) for sigma, square in ((Fraction(6), 1), (Fraction(12), 4))]
    >>> compose_events(two) == JointGaussian((Fraction(6), Fraction(12)), (1, 4), *pair)
    True
    >>> compose_events(two).basic == pair, compose_events(two).rho == Fraction(1, 36)
    (True, True)

    Raises:
        ValueError: the noise is too small for the declared pair, or the numbers do not match.
    """

    kind: ClassVar[str] = "joint_gaussian"
    epsilon = None
    delta = Fraction(0)
    sigmas: tuple[Fraction, ...]
    squares: tuple[int, ...]
    declared_epsilon: Fraction
    declared_delta: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < len(self.sigmas) == len(self.squares), "as many deviations as sensitivities")
        require(min(self.sigmas) > 0 and min(self.squares) > 0, "sigmas, squares: above 0")
        _require_pair(self.mu, self.declared_epsilon, self.declared_delta, "noise")

    @cached_property
    def mu_squared(self) -> Fraction:
        """The squared mu of all numbers together, rounded up."""
        alike = Counter(zip(self.sigmas, self.squares, strict=True))
        each = (_shorten_up(Fraction(n * square) / (sigma * sigma)) for (sigma, square), n in alike.items())
        return sum(each, Fraction(0))

    @cached_property
    def mu(self) -> Fraction:
        return shorten(compute_root(self.mu_squared))

    @property
    def rho(self) -> Fraction:
        return shorten(self.mu_squared / 2)

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        return self.declared_epsilon, self.declared_delta

    @property
    def calibration(self) -> object:
        return self.kind, self.declared_epsilon, self.declared_delta

    def join(self, others: Iterable[Event]) -> Event | None:
        """Return the event of all numbers, if the declared pair covers them together. It is exact for any such list."""
        listed = [self, *(other for other in others if isinstance(other, JointGaussian))]
        try:
            return replace(
                self,
                sigmas=tuple(sigma for event in listed for sigma in event.sigmas),
                squares=tuple(square for event in listed for square in event.squares),
            )
        except ValueError:
            return None


def _shorten_up(value: Fraction) -> Fraction:
    places = _MU_BITS - value.numerator.bit_length() + value.denominator.bit_length()
    if places <= 0 or value.denominator.bit_length() <= _MU_BITS:
        return value
    return Fraction(-(-(value.numerator << places) // value.denominator), 1 << places)


@dataclass(frozen=True)
class GaussianTest(Event):
    """A propose-test-release test with Gaussian noise of ``sigma`` on a distance that moves by one.

    Near pairs are ``1 / sigma``-GDP, far pairs differ with ``delta`` only. ``basic`` adds the declared epsilon, and the
    delta that is true for it: both kinds of pair are covered.
    """

    kind: ClassVar[str] = "gaussian_test"
    positive = ("sigma",)
    epsilon = None
    sigma: Fraction
    delta: Fraction
    declared_epsilon: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.delta < 1 and self.declared_epsilon >= 0, "delta: out of range")

    @property
    def rho(self) -> Fraction:
        return shorten(1 / (2 * self.sigma * self.sigma))

    @property
    def mu(self) -> Fraction:
        return shorten(1 / self.sigma)

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        near = conversions.gaussian_delta(self.mu, self.declared_epsilon)
        return self.declared_epsilon, self.delta if near <= self.delta else self.delta + near


@dataclass(frozen=True)
class StableQuestions(SparseVector):
    """A stream of questions that are answered exactly if the answer is stable; unstable ones are its hits.

    It is a sparse vector on the distances to another answer; with a probability of at most ``failure`` for each drawn
    threshold noise (one, or one a round) it gives an answer that some neighbour doesn't have. So it is (epsilon, delta)-DP for
    adaptively chosen questions. Such an interactive mechanism is post-processing of one draw of randomised response that
    reveals everything with probability delta (Vadhan and Zhang 2023): the decomposition that every currency needs. On a path
    with h unstable questions that did not fail, the loss is that of a sparse vector with h hits.
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
        _require_pair(shorten(1 / self.sigma), self.declared_epsilon, self.declared_delta, "sigma is")

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


def find_rest(delta: Fraction, aside: Fraction) -> Fraction:
    """Return the rest of a delta after ``aside``: ``1 - (1 - aside) (1 - rest)`` is delta."""
    return (delta - aside) / (1 - aside)


@dataclass(frozen=True)
class RenyiSelection(Event):
    """Selection of groups by one table of probabilities: the ``groups`` decisions about one unit are accounted together.

    By :mod:`dpsql.mechanisms.per_group`, outside a probability ``aside`` of revealing everything, the Rényi divergence of
    ``order`` is at most ``divergence``, both ways; so the whole is (epsilon, delta)-DP by the conversion of Canonne, Kamath
    and Steinke 2020, which the construction checks. At each of ``orders`` no decision diverges by more than an (epsilon /
    groups)-DP one; with ``held`` none has more rho or mu either.

    Epsilon is a pure part outside delta, as the filters need it, and not only a declared pair. Proof: let P and Q be the
    output distributions of two neighbouring data sets, with l = dP/dQ, and let both be (epsilon, d)-close. Cut l off at the t
    <= epsilon at which ``P - e^t Q`` has a positive part of exactly d, and 1/l likewise; divide both measures by 1 - d. This
    defines P' and Q' with ``P = (1 - d) P' + d P''`` and likewise for Q, whose ratio is between e^-epsilon and e^epsilon.
    Their divergence at e^x is ``(h(x) - d) / (1 - d) <= h(x)`` between the two ends, where h is that of P and Q, and is the
    least possible outside of them. So P' and Q' are a post-processing of P and Q (Blackwell), and bounds on P and Q in any
    currency hold for them: one decomposition, in which the loss is at most epsilon, and rho, mu and the divergence of every
    order are no larger than before. (If P and Q differ by less than d in all, P' = Q' does.)

    Raises:
        ValueError: the divergence does not imply the pair.
    """

    kind: ClassVar[str] = "renyi_selection"
    positive = ("epsilon", "groups", "divergence", "aside")
    epsilon: Fraction
    delta: Fraction
    groups: int
    order: Fraction
    divergence: Fraction
    aside: Fraction
    held: bool
    orders: tuple[Fraction, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.aside < self.delta, "aside: below delta")
        require(min(self.order, *self.orders, self.order) > 1, "orders: above 1")
        limit = conversions.find_renyi_limit(self.order, self.epsilon, find_rest(self.delta, self.aside))
        require(self.divergence <= limit, "the divergence is too large for the pair")

    @property
    def repeats(self) -> int:
        return self.groups if self.held else 1

    def renyi(self, order: Fraction) -> Fraction:
        found = [order * self.rho, conversions.pure_renyi(self.epsilon, order)]
        if order <= self.order:
            found.append(self.divergence)
        even = GroupSelection(self.epsilon, self.delta, self.groups)
        found += (even.renyi(known) for known in self.orders if order <= known)
        return shorten(min(found))

    @property
    def mu_squared(self) -> Fraction:
        """The squared mu, for composition with other Gaussian noise."""
        return self.mu * self.mu


_PACE = Fraction(8, 5)
_STAGES_FROM = 4096


@dataclass(frozen=True)
class NoiseReduction(Event):
    """Answers whose noise was reduced until they were accurate, at a loss of at most ``most``.

    Each look at the answers is the next one plus independent noise (:class:`~dpsql.noise.samplers.NoiseChain`), so a path of
    looks reveals no more than its last look. The decision to stop depends on the looks. ``epsilon`` is ``most`` while it is
    reserved, and is settled with that of the last look. On every path the likelihood ratio is at most ``exp(epsilon)``, with
    the epsilon of that path; so plain sums of pure losses, which hold path by path, charge the used part (ex-post privacy:
    Ligett et al. 2017; Rogers et al. 2023).

    Divergences average over paths, so for them the looks are divided into stages, each with epsilons up to 8/5 of the previous
    stage's. To begin a stage is to choose a mechanism from earlier looks, and every filter allows that. Everything up to the
    end of a stage has a likelihood ratio of at most ``exp(top)``, and everything before it one of at least ``exp(-top)`` of
    the previous stage; so, given the earlier looks, the stage itself is pure with the sum of both tops. Stages that were begun
    are charged so, the others are not.

    Raises:
        ValueError: more was used than was reserved.
    """

    kind: ClassVar[str] = "noise_reduction"
    positive = ("most", "epsilon")
    delta = Fraction(0)
    most: Fraction
    epsilon: Fraction

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.epsilon <= self.most, "epsilon: at most what was reserved")

    @property
    def tops(self) -> tuple[Fraction, ...]:
        """The largest epsilon of each stage that was begun, the first stage first."""
        falling = itertools.takewhile(
            lambda top: top >= self.most / _STAGES_FROM, (self.most / _PACE**i for i in itertools.count())
        )
        rising = tuple(falling)[::-1]
        begun = 1 + sum(top < self.epsilon for top in rising)
        return rising[:begun]

    @property
    def stages(self) -> tuple[Event, ...]:
        """The event of each stage that was begun, whatever the earlier looks."""
        return tuple(PureDP(top + before) for before, top in itertools.pairwise((Fraction(0), *self.tops)))

    @property
    def rho(self) -> Fraction:
        return compose_events(self.stages).rho

    def renyi(self, order: Fraction) -> Fraction:
        return compose_events(self.stages).renyi(order)

    @property
    def mu(self) -> Fraction:
        return compose_events(self.stages).mu

    @property
    def parts(self) -> tuple[Event, ...]:
        return (PureDP(self.most),)

    def is_within(self, reserved: Event) -> bool:
        return replace(self, epsilon=self.most) == reserved


def compose_events(events: Iterable[Event]) -> Event:
    """Compose events that were fixed jointly; nested compositions are opened, one event stays as it is.

    Those that were calibrated together become one (:meth:`Event.join`).

    >>> compose_events([PureDP(Fraction(1)), compose_events([PureDP(Fraction(2)), PureDP(Fraction(3))])]).basic[0]
    Fraction(6, 1)

    Raises:
        ValueError: there is no event.
    """
    flat = _join(one for e in events for one in (e.events if isinstance(e, Composed) else (e,)))
    return flat[0] if len(flat) == 1 else Composed(flat)


def _join(events: Iterable[Event]) -> tuple[Event, ...]:
    """Replace jointly calibrated events by one event, at the first one's place."""
    listed = tuple(events)
    together: dict[object, list[Event]] = {}
    for event in listed:
        together.setdefault(event.calibration, []).append(event)
    joint = {c: several[0].join(several[1:]) for c, several in together.items() if c and len(several) > 1}
    kept = (joint.get(event.calibration) or event for event in listed)
    return tuple({id(event): event for event in kept}.values()) if any(joint.values()) else listed


def _sum(amounts: Iterable[Fraction]) -> Fraction:
    return shorten(sum(amounts, _NOTHING))
