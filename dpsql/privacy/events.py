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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from dpsql.numerics.exact_numbers import compute_root, shorten, write_number
from dpsql.privacy import conversions
from dpsql.privacy.codec import read_record, write_record

_NOTHING = Fraction(0)

KINDS: dict[str, type[Event]] = {}
"""Every kind that can be stored, by the name that :meth:`Event.to_json` writes."""


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
        """Return the Renyi divergence of one order (above 1), rounded up.

        It is the bound of rho, or of epsilon if that is less. Delta is set aside, as for rho.
        """
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
        """Return the event with all hits of one noisy threshold charged, found or not.

        Missing hits are free only under basic composition, which sums losses path by path.
        """
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

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of strings, ints, nulls and booleans; fractions as ``"1/10"``."""
        return {"kind": self.kind, **write_record(self)}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Event:
        """Read the event that :meth:`to_json` wrote.

        Raises:
            ValueError: no event of this version: an unknown kind, a missing or superfluous field, a number out of range.
        """
        kind = KINDS.get(str(body.get("kind")))
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
        if epsilon is None:  # a kind without epsilon overrides everything that comes here
            raise ValueError(f"a {self.kind} event has no epsilon")
        return epsilon


def require(holds: bool, what: str) -> None:
    """Raise a ValueError with these words unless a condition holds."""
    if not holds:
        raise ValueError(what)


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
        require(self.declared_epsilon >= 0 and 0 < self.declared_delta < 1, "declared pair out of range")
        require(
            conversions.gaussian_delta(self.mu, self.declared_epsilon) <= self.declared_delta,
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
    """Groups chosen by the number of privacy units in them: of one unit, ``groups`` independent decisions.

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
