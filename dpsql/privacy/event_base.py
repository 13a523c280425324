"""What every event can say of itself, and how it is stored. The kinds are in :mod:`dpsql.privacy.events`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from dpsql.numerics.exact_numbers import compute_root, shorten, write_number
from dpsql.privacy import conversions

_AMOUNT = re.compile(r"[0-9]+(/0*[1-9][0-9]*)?")

KINDS: dict[str, type[Event]] = {}
"""Every kind that can be stored, by the name that :meth:`Event.to_json` writes."""


@dataclass(frozen=True)
class Event:
    """The common face of all events. Two events are equal when the same thing happened."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.kind:
            KINDS[cls.kind] = cls

    if TYPE_CHECKING:  # a field in some kinds, a property in others

        @property
        def epsilon(self) -> Fraction | None:
            """The loss of all pairs that delta does not cover; None for Gaussian noise."""

        @property
        def delta(self) -> Fraction:
            """What the approximate currencies set aside."""

    @property
    def pure(self) -> Fraction | None:
        """The pure loss, or None when the mechanism has none."""
        return self.epsilon if self.delta == 0 else None

    @property
    def rho(self) -> Fraction:
        """The zCDP loss, rounded up; from the pure loss where nothing sharper is known."""
        return self.repeats * self._rho_of(self._near() / self.repeats)

    @property
    def repeats(self) -> int:
        """Of how many mechanisms with equal shares of epsilon it consists."""
        return 1

    def renyi(self, order: Fraction) -> Fraction:
        """Return the Renyi divergence of one order (above 1), rounded up.

        It is what rho allows, or what epsilon allows where that is less. Delta is set aside, as for rho.
        """
        by_rho = order * self.rho
        if self.epsilon is None:
            return shorten(by_rho)
        share = conversions.pure_renyi(self.epsilon / self.repeats, order)
        return shorten(min(by_rho, self.repeats * share))

    @property
    def mu(self) -> Fraction:
        """The Gaussian-DP loss, rounded up; from the pure loss where nothing sharper is known."""
        mu = self._mu_of(self._near() / self.repeats)
        return mu if self.repeats == 1 else shorten(compute_root(self.repeats * mu * mu))

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        """What basic composition adds: (epsilon, delta)."""
        return self._near(), self.delta

    @property
    def parts(self) -> tuple[Event, ...]:
        """The independent mechanisms that it consists of."""
        return (self,)

    def leaves(self) -> tuple[Event, ...]:
        """Return the events that it was composed from, down to those that are not composed."""
        return (self,)

    def in_full(self) -> Event:
        """Return the event with the hits charged that one noisy threshold did not find.

        Those are free only where losses are summed path by path, that is in basic composition.
        """
        return self

    def is_within(self, reserved: Event) -> bool:
        """Check that the event is what was reserved, or cheaper by a rule that is proved.

        The one such rule: a sparse vector that was reserved with its hits unknown is settled with the hits found.
        """
        return self == reserved

    def profile(self, x: float) -> float:
        """Bound the hockey-stick divergence at ``e**x`` from above, by the privacy loss distribution."""
        from dpsql.privacy.pld import compute_loss

        return compute_loss((self,)).delta(x)

    def sentence(self) -> str:
        """Format the loss: ``ε=0.1`` or ``ε=0.1, δ=1e-07``, rounded up."""
        epsilon, delta = self.basic
        return f"ε={write_number(epsilon)}" + (f", δ={write_number(delta)}" if delta else "")

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of strings, ints, nulls and booleans; fractions as ``"1/10"``."""
        return {
            "kind": self.kind,
            **{f.name: _plain(getattr(self, f.name), str(f.type)) for f in fields(self)},
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Event:
        """Read the event that :meth:`to_json` wrote.

        Raises:
            ValueError: no event of this version: an unknown kind, a missing or superfluous field, a number
            out of range.
        """
        kind = KINDS.get(str(body.get("kind")))
        if kind is None:
            raise ValueError(f"unknown kind of event: {body.get('kind')!r}")
        wanted = {f.name: str(f.type) for f in fields(kind)}
        if set(body) != {"kind", *wanted}:
            raise ValueError(f"fields of a {kind.kind} event: {', '.join(wanted)}")
        return kind(**{name: _read(body[name], declared) for name, declared in wanted.items()})

    def _rho_of(self, epsilon: Fraction) -> Fraction:
        """Return the zCDP loss of one of the mechanisms, with its share of epsilon."""
        return conversions.pure_rho(epsilon)

    def _mu_of(self, epsilon: Fraction) -> Fraction:
        """Return the Gaussian-DP loss of one of the mechanisms, with its share of epsilon."""
        return conversions.pure_mu(epsilon)

    def _near(self) -> Fraction:
        epsilon = self.epsilon
        if epsilon is None:  # a kind without epsilon overrides everything that comes here
            raise ValueError(f"a {self.kind} event has no epsilon")
        return epsilon


def _plain(value: Any, declared: str) -> Any:
    if isinstance(value, tuple):
        return [part.to_json() for part in value]
    return str(Fraction(value)) if declared == "Fraction" else value


def _read(value: Any, declared: str) -> Any:
    if declared == "Fraction" and isinstance(value, str) and _AMOUNT.fullmatch(value):
        return Fraction(value)
    if declared == "bool" and isinstance(value, bool):
        return value
    if declared.startswith("int") and isinstance(value, int) and not isinstance(value, bool):
        return value
    if declared == "int | None" and value is None:
        return None
    if declared.startswith("tuple") and isinstance(value, list):
        return tuple(Event.from_json(part) for part in value)
    raise ValueError(f"not a {declared}: {value!r}")


def require(holds: bool, what: str) -> None:
    """Raise a ValueError with these words unless a condition holds."""
    if not holds:
        raise ValueError(what)
