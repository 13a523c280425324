"""Events of some periods: with a budget per period, only these pay for them.

A period's budget is that of its units: pairs of a person and the period. Whatever an event reads, it reads through scans of its
periods alone, so to the units of other periods it is nothing (:func:`project_event`). An event without periods is one of all
periods, also of later ones; so whoever drops them charges more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

from dpsql.late_dataclass import dataclass
from dpsql.privacy.events import Composed, Event, compose_events, require
from dpsql.privacy.periods import FIRST, LAST, Days, list_segments, say_periods, unite, unite_periods

_MOST_AMOUNTS = 4
"""The most amounts of different periods that a charge names."""


@dataclass(frozen=True)
class Dated(Event):
    """An event that reads only rows of some periods: each of their units may lose it, all others lose nothing.

    ``periods`` are whole periods, as ranges of days (:mod:`dpsql.privacy.periods`).
    """

    kind: ClassVar[str] = "dated"
    event: Event
    periods: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        require(not isinstance(self.event, Dated | Composed), "event: a single undated one")
        require(
            bool(self.periods) and self.periods == unite(self.periods), "periods: sorted, apart, not empty"
        )
        require(self.periods[0][0] >= FIRST and self.periods[-1][1] <= LAST, "periods: out of range")

    @property
    def epsilon(self) -> Fraction | None:
        return self.event.epsilon

    @property
    def delta(self) -> Fraction:
        return self.event.delta

    @property
    def rho(self) -> Fraction:
        return self.event.rho

    def renyi(self, order: Fraction) -> Fraction:
        return self.event.renyi(order)

    @property
    def mu(self) -> Fraction:
        return self.event.mu

    @property
    def basic(self) -> tuple[Fraction, Fraction]:
        return self.event.basic

    @property
    def parts(self) -> tuple[Event, ...]:
        return self.event.parts

    def leaves(self) -> tuple[Event, ...]:
        return self.event.leaves()

    @property
    def calibration(self) -> object:
        mark = self.event.calibration
        return None if mark is None else (mark, self.periods)

    def join(self, others: Iterable[Event]) -> Event | None:
        joint = self.event.join(other.event for other in others if isinstance(other, Dated))
        return None if joint is None else replace(self, event=joint)

    def in_full(self) -> Event:
        return replace(self, event=self.event.in_full())

    def is_within(self, reserved: Event) -> bool:
        return (
            isinstance(reserved, Dated)
            and self.periods == reserved.periods
            and self.event.is_within(reserved.event)
        )

    def sentence(self) -> str:
        return self.event.sentence()


def date_event(event: Event, periods: Days | None) -> Event:
    """Return an event as one of some periods; None: of all."""
    if periods is None or isinstance(event, Dated):
        return event
    if isinstance(event, Composed):
        return Composed(tuple(date_event(one, periods) for one in event.events))
    return Dated(event, periods)


def undate_event(event: Event) -> Event:
    """Return an event as one of all periods."""
    if isinstance(event, Composed):
        return Composed(tuple(map(undate_event, event.events)))
    return event.event if isinstance(event, Dated) else event


def split_event(event: Event) -> tuple[Event, ...]:
    """Return the parts of an event that may have periods of their own."""
    if not isinstance(event, Composed):
        return (event,)
    return tuple(part for one in event.events for part in split_event(one))


def list_periods(event: Event) -> Days | None:
    """Return the periods of an event; None for all."""
    if not isinstance(event, Composed):
        return event.periods if isinstance(event, Dated) else None
    return unite_periods(map(list_periods, split_event(event)))


def say_charge(event: Event, write: Callable[[Event], str]) -> str:
    """Return an event's charge with the periods that pay it; if they pay different amounts, each of these.

    >>> from dpsql.privacy.events import PureDP
    >>> march, april = (((day, day + 30),) for day in (738_946, 738_976))
    >>> one = Dated(PureDP(Fraction(1)), march)
    >>> say_charge(one, Event.sentence), say_charge(one.event, Event.sentence)
    ('ε=1 for 2024-03-01 to 2024-03-30', 'ε=1')
    >>> say_charge(Composed((one, Dated(PureDP(Fraction(2)), april))), Event.sentence)
    'ε=1 for 2024-03-01 to 2024-03-30; ε=2 for 2024-03-31 to 2024-04-29'
    """
    days = list_periods(event)
    found: dict[str, list[tuple[int, int]]] = {}
    known: dict[Event | None, str] = {}
    for low, high in list_segments(find_cuts(event), days):
        part = project_event(event, low)
        if part not in known:
            known[part] = "nothing" if part is None else write(part)
        found.setdefault(known[part], []).append((low, high))
    if len(found) > _MOST_AMOUNTS:
        return f"at most {write(event)} for {say_periods(days)}"
    if days is None and len(found) == 1:
        return write(event)
    return "; ".join(f"{charge} for {say_periods(unite(pieces))}" for charge, pieces in found.items())


def split_by_periods(events: Iterable[Event]) -> dict[Days | None, list[Event]]:
    """Return the parts of events by their sets of periods: one undated event of each that has such parts."""
    found: dict[Days | None, list[Event]] = {}
    for event in events:
        mine: dict[Days | None, list[Event]] = {}
        for one in split_event(event):
            mine.setdefault(list_periods(one), []).append(undate_event(one))
        for periods, parts in mine.items():
            found.setdefault(periods, []).append(compose_events(parts))
    return found


def find_cuts(event: Event) -> set[int]:
    """Return the days at which the periods of an event's parts begin and end."""
    return {end for part in split_event(event) for pair in list_periods(part) or () for end in pair}


def project_event(event: Event, day: int) -> Event | None:
    """Return what a unit of the period of a day may lose by an event; None for nothing."""
    if isinstance(event, Dated):
        return event.event if any(low <= day < high for low, high in event.periods) else None
    if not isinstance(event, Composed) or not any(isinstance(one, Dated) for one in event.events):
        return event
    found = [part for one in event.events if (part := project_event(one, day)) is not None]
    return compose_events(found) if found else None
