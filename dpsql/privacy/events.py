"""What happened: one frozen value for each mechanism that touched private data.

An event says what was done (the mechanism, its parameters, the sensitivity in steps of the noise), not what
it cost: accountants and filters work the cost out, so a better one can re-read an old ledger. Events are
stored, hence a contract with the future: kinds and field names never change their meaning, and every number
is an int or a :class:`~fractions.Fraction`.

Each event states its cost in every currency, always rounded up, for every pair of neighbouring data sets of
the session's relation. Epsilon, delta, rho and mu speak of one decomposition: outside an event of probability
``delta`` (the same under both data sets), the losses are at most ``epsilon``, and ``rho`` and ``mu`` hold.

``pure``     pure differential privacy, or None where there is none
``delta``    set aside by the approximate currencies: the mechanism is ``delta``-approximately ``rho``-zCDP,
             and
             ``delta``-approximately ``mu``-GDP (it dominates ``G_mu`` composed with ``f_{0, delta}``)
``rho``      zero-concentrated DP: ``D_alpha <= alpha * rho`` for all ``alpha > 1``
``renyi``    the divergence ``D_alpha`` of one order: never more than ``alpha * rho``
``mu``       Gaussian DP
``basic``    the pair (epsilon, delta) that basic composition adds up
``profile``  ``x -> sup HS_{e^x}``, for curves and plots (a float, never a decision)

>>> DiscreteLaplace(Fraction(1, 10), 1).sentence()
'ε=0.1'
>>> compose([PureDP(Fraction(1, 10)), StableTest(Fraction(1, 5), Fraction(1, 10**7))]).sentence()
'ε=0.3, δ=1e-07'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from dpsql.numerics.exact_numbers import compute_root, shorten, write_number
from dpsql.privacy import conversions
from dpsql.privacy.event_base import Event, require

__all__ = [
    "BoundedRange",
    "Composed",
    "DeclaredPlan",
    "DiscreteLaplace",
    "Event",
    "EventList",
    "GaussianTest",
    "GroupSelection",
    "PureDP",
    "RoundedGaussian",
    "SparseVector",
    "StableTest",
    "compose",
]

_NOTHING = Fraction(0)


@dataclass(frozen=True)
class DiscreteLaplace(Event):
    """Discrete Laplace noise on ``count`` independent coordinates of one privacy unit.

    Each coordinate is answered with ``epsilon / count`` and moves by at most ``sensitivity`` steps of the
    noise's grid. One step is as costly as randomised response; a fine grid tends to the continuous Laplace
    constant.
    """

    kind: ClassVar[str] = "discrete_laplace"
    delta = _NOTHING
    epsilon: Fraction
    sensitivity: int
    count: int = 1

    def __post_init__(self) -> None:
        require(
            self.epsilon > 0 and self.sensitivity > 0 and self.count > 0,
            "epsilon, sensitivity, count: above 0",
        )

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

    It is round(N(0, sigma^2)); the squared L2 sensitivity is ``sensitivity_squared`` grid steps.

    Exactly ``sqrt(sensitivity_squared) / sigma``-GDP, as post-processing of the Gaussian mechanism. ``basic``
    adds the declared pair, which the construction checks.

    Raises:
        ValueError: the noise is too small for the declared pair.
    """

    kind: ClassVar[str] = "rounded_gaussian"
    epsilon = None
    delta = _NOTHING
    sigma: Fraction
    sensitivity_squared: int
    declared_epsilon: Fraction
    declared_delta: Fraction

    def __post_init__(self) -> None:
        require(self.sigma > 0 and self.sensitivity_squared > 0, "sigma, sensitivity_squared: above 0")
        require(self.declared_epsilon >= 0 and 0 < self.declared_delta < 1, "declared pair out of range")
        holds = conversions.gaussian_delta(self.mu, self.declared_epsilon) <= self.declared_delta
        require(
            holds,
            f"sigma is too small for ε={write_number(self.declared_epsilon)}, δ={write_number(self.declared_delta)}",
        )

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
    delta = _NOTHING
    epsilon: Fraction
    count: int = 1

    def __post_init__(self) -> None:
        require(self.epsilon > 0 and self.count > 0, "epsilon, count: above 0")

    @property
    def repeats(self) -> int:
        return self.count

    def _rho_of(self, epsilon: Fraction) -> Fraction:
        return conversions.bounded_range_rho(epsilon)

    def _mu_of(self, epsilon: Fraction) -> Fraction:
        return conversions.bounded_range_mu(epsilon)


@dataclass(frozen=True)
class PureDP(Event):
    """Any epsilon-DP mechanism about which nothing sharper is proved: permute-and-flip, Laplace noisy max."""

    kind: ClassVar[str] = "pure"
    delta = _NOTHING
    epsilon: Fraction

    def __post_init__(self) -> None:
        require(self.epsilon > 0, "epsilon: above 0")


@dataclass(frozen=True)
class SparseVector(Event):
    """The sparse vector technique: at most ``max_hits`` answers above a noisy threshold.

    ``hits`` is None while it is reserved, and is settled with the number found. With one threshold noise the
             loss of a
    path with h hits is at most ``epsilon1 + h * epsilon2 / max_hits``: path by path, so only basic
    composition may use it; the divergences average over paths and are charged the whole. With ``refresh``
    every round is a fresh mechanism, chosen after the one before, so rounds that never began cost nothing in
    any currency.
    """

    kind: ClassVar[str] = "sparse_vector"
    delta = _NOTHING
    epsilon1: Fraction
    epsilon2: Fraction
    max_hits: int
    hits: int | None = None
    refresh: bool = False

    def __post_init__(self) -> None:
        require(self.epsilon1 > 0 and self.epsilon2 > 0 and self.max_hits > 0, "epsilons, max_hits: above 0")
        require(self.hits is None or 0 <= self.hits <= self.max_hits, "hits: between 0 and max_hits")

    @property
    def rounds(self) -> int:
        """Rounds begun, where each has its own threshold noise."""
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
    """Groups chosen by the number of privacy units in them: of one unit, ``groups`` independent decisions.

    Each key is decided with ``(epsilon / groups, 1 - (1 - delta)**(1 / groups))``, so the deltas compose to
    ``delta``.
    """

    kind: ClassVar[str] = "group_selection"
    epsilon: Fraction
    delta: Fraction
    groups: int = 1

    def __post_init__(self) -> None:
        require(
            self.epsilon > 0 and 0 <= self.delta < 1 and self.groups > 0,
            "epsilon, delta, groups: out of range",
        )

    @property
    def repeats(self) -> int:
        return self.groups


@dataclass(frozen=True)
class StableTest(Event):
    """The best propose-test-release test: near pairs are (epsilon, delta)-close, far pairs (0, delta)."""

    kind: ClassVar[str] = "stable_test"
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        require(self.epsilon > 0 and 0 <= self.delta < 1, "epsilon, delta: out of range")


@dataclass(frozen=True)
class GaussianTest(Event):
    """A propose-test-release test with Gaussian noise of ``sigma`` on a distance that moves by one.

    Near pairs are ``1 / sigma``-GDP, far pairs differ with ``delta`` only. ``basic`` adds the declared
    epsilon, and the delta that is true for it: both kinds of pair are covered.
    """

    kind: ClassVar[str] = "gaussian_test"
    epsilon = None
    sigma: Fraction
    delta: Fraction
    declared_epsilon: Fraction

    def __post_init__(self) -> None:
        require(
            self.sigma > 0 and 0 < self.delta < 1 and self.declared_epsilon >= 0, "sigma, delta: out of range"
        )

    @property
    def pure(self) -> Fraction | None:
        return None

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
class EventList(Event):
    """Several events as one. Every currency adds up (mu by squares).

    For rho that is not only safe but exact, see :mod:`dpsql.privacy.conversions`; and since
    ``epsilon * tanh(epsilon / 2)`` is superadditive, the constant of the summed pure loss can never be smaller than
    the sum of the constants.
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

    @property
    def pure(self) -> Fraction | None:
        return None if any(event.pure is None for event in self.events) else self.epsilon

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


@dataclass(frozen=True)
class DeclaredPlan(EventList):
    """Statements declared together before the first one ran, none chosen from another's answer.

    ``basic`` is the declared pair, which the construction checks against the privacy loss distribution of all
    parts: that bound holds for a list fixed in advance, and not when the next part depends on earlier answers. Made
    by :func:`dpsql.privacy.pld.declare`.

    Raises:
        ValueError: the plan costs more than the declared pair.
    """

    kind: ClassVar[str] = "declared_plan"
    declared_epsilon: Fraction
    declared_delta: Fraction

    def __post_init__(self) -> None:
        from dpsql.privacy.pld import is_proved

        super().__post_init__()
        require(
            is_proved(self.events, self.declared_epsilon, self.declared_delta),
            f"the plan costs more than ε={write_number(self.declared_epsilon)}, δ={write_number(self.declared_delta)}",
        )

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        return self.declared_epsilon, self.declared_delta


def compose(events: Iterable[Event]) -> Event:
    """Compose events that were fixed jointly; nested compositions are opened, one event stays itself.

    >>> compose([PureDP(Fraction(1)), compose([PureDP(Fraction(2)), PureDP(Fraction(3))])]).basic[0]
    Fraction(6, 1)

    Raises:
        ValueError: there is no event.
    """
    flat = tuple(
        part for event in events for part in (event.events if isinstance(event, Composed) else (event,))
    )
    if not flat:
        raise ValueError("nothing happened: there is no event to compose")
    return flat[0] if len(flat) == 1 else Composed(flat)


def _sum(amounts: Iterable[Fraction]) -> Fraction:
    return shorten(sum(amounts, _NOTHING))
