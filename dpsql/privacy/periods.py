"""Sets of periods, as days: sorted, disjoint, half-open ranges of ordinals (:meth:`datetime.date.toordinal`).

A set of periods is written for people by its largest units, and read back: ``2024``, ``2024-03``, ``2024-03-05``, and
``2024-03 to 2025-01``, which includes its last period.

>>> days = parse_periods(["2025-01 to 2025-02", "2025-05-01"])
>>> say_periods(days)
'2025-01 to 2025-02 and 2025-05-01'
>>> say_periods(widen_to_periods(days, "month"))
'2025-01 to 2025-02 and 2025-05'

Dated events are those of some periods: with a budget per period, only these pay for them. A period's budget is that of its
units: pairs of a person and the period. An event reads only scans of its periods, so it costs the units of other periods
nothing (:func:`project_event`). An event without periods is one of all periods, also of later ones; so dropping an event's
periods only raises the charge.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

from dpsql.catalogue.date_units import DATE_UNITS
from dpsql.late_dataclass import dataclass
from dpsql.privacy.events import Composed, Event, compose_events, require

Days = tuple[tuple[int, int], ...]
"""Sorted, disjoint, half-open ranges of days."""
FIRST, LAST = 1, datetime.date.max.toordinal()
"""The range of days that can be named; the last one belongs to no period."""
_PAYING = [unit for unit in DATE_UNITS if "date_trunc" in unit.periods and not unit.clock]
PAYING_PARTS = tuple(unit.name.lower() for unit in reversed(_PAYING))
"""The parts of ``date_trunc`` whose periods may have budgets of their own."""
_MONTHS = {unit.name.lower(): unit.months for unit in _PAYING if unit.months is not None}
_DAYS = {unit.name.lower(): int(unit.seconds // 86_400) for unit in _PAYING if unit.seconds is not None}
_SAID = ((12, 4), (1, 7), (0, 10))
"""The units in which periods are written, the largest first: their months, and the length of their ISO dates."""
_MOST_SAID = 4
_WRITTEN = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")


def unite(ranges: Iterable[tuple[int, int]]) -> Days:
    """Return the union of ranges.

    >>> unite([(5, 9), (1, 3), (3, 4), (7, 7)])
    ((1, 4), (5, 9))
    """
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if low >= high:
            continue
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return tuple(found)


def unite_periods(found: Iterable[Days | None]) -> Days | None:
    """Return the union of sets of periods; None, which is all of them, if one of them is.

    >>> unite_periods([((1, 3),), ((2, 5),)]), unite_periods([((1, 3),), None])
    (((1, 5),), None)
    """
    found = [*found]
    known = [days for days in found if days is not None]
    return unite(pair for days in known for pair in days) if len(known) == len(found) else None


def intersect(one: Iterable[tuple[int, int]], other: Sequence[tuple[int, int]]) -> Days:
    """Return the days in both sets."""
    return unite((max(a, c), min(b, d)) for a, b in one for c, d in other)


def remove_days(one: Iterable[tuple[int, int]], other: Sequence[tuple[int, int]]) -> Days:
    """Return the days of the first set that the second lacks."""
    ends = [FIRST - 1, *(end for pair in other for end in pair), LAST + 1]
    return intersect(one, [*zip(ends[::2], ends[1::2], strict=True)])


def find_first_day(day: int, part: str) -> int:
    """Return the first day of the period of a day."""
    return _find_ends(day, _MONTHS.get(part, 0), _DAYS.get(part, 1))[0]


def find_day_after(day: int, part: str) -> int:
    """Return the first day after the period of a day."""
    return _find_ends(day, _MONTHS.get(part, 0), _DAYS.get(part, 1))[1]


def find_place(day: int, part: str) -> tuple[str, int]:
    """Return the calendar row that contains the period of a day, and the period's place in it.

    Days are in rows by month, years by decade, and others by year.

    >>> find_place(datetime.date(2024, 12, 31).toordinal(), "week")
    ('2025', 0)
    """
    date, months = datetime.date.fromordinal(day), _MONTHS.get(part, 0)
    if months >= 12:
        return f"{date.year // 10}0s", date.year % 10
    if months:
        return str(date.year), (date.month - 1) // months
    year, week, _ = date.isocalendar()
    return (str(year), week - 1) if _DAYS[part] > 1 else (f"{date:%Y-%m}", date.day - 1)


def _find_ends(day: int, months: int, days: int) -> tuple[int, int]:
    """Return the start and exclusive end of a day's period of ``months`` months, or else ``days`` days. Day 1 is a Monday."""
    if not months:
        start = day - (day - FIRST) % days
        return start, min(start + days, LAST)
    date = datetime.date.fromordinal(day)
    first = date.year * 12 + (date.month - 1) // months * months
    start, after = (
        datetime.date(n // 12, n % 12 + 1, 1).toordinal() if n < _END else LAST
        for n in (first, first + months)
    )
    return start, after


_END = (datetime.MAXYEAR + 1) * 12
"""The first month after the last year."""


def widen_to_periods(days: Days, part: str) -> Days:
    """Return the whole periods that contain one of these days."""
    return unite((find_first_day(low, part), find_day_after(high - 1, part)) for low, high in days)


# -- in words ---------------------------------------------------------------------------------------------------------


@lru_cache(1000)
def say_periods(days: Days | None) -> str:
    """Return a set of periods in words that :func:`parse_periods` reads; ``all periods`` for everything."""
    if days is None:
        return "all periods"
    said = [_say_range(low, high) for low, high in days]
    if len(said) > _MOST_SAID:
        said = [*said[: _MOST_SAID - 1], f"{len(said) - _MOST_SAID + 1} more stretches"]
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said) or "no period"


def write_periods(days: Days) -> str:
    """Return a set of periods as the value of ``OPTIONS (periods = ...)``.

    >>> write_periods(parse_periods(["2025-01", "2025-03-01 to 2025-03-02"]))
    "('2025-01', '2025-03-01 to 2025-03-02')"
    """
    texts = [f"'{_say_range(low, high)}'" for low, high in days]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def _say_range(low: int, high: int) -> str:
    if low <= FIRST and high >= LAST:
        return "all periods"
    length = next(n for m, n in _SAID if _starts(low, m) and _starts(high, m))
    first, last = (datetime.date.fromordinal(day).isoformat()[:length] for day in (max(low, FIRST), high - 1))
    if low <= FIRST:
        return f"all periods to {last}"
    if high >= LAST:
        return f"{first} and later"
    return first if first == last else f"{first} to {last}"


def _starts(day: int, months: int) -> bool:
    return not FIRST < day < LAST or _find_ends(day, months, 1)[0] == day


def parse_periods(texts: Iterable[str]) -> Days:
    """Return the days of periods in words; ValueError if a text is no period."""
    found = []
    for text in texts:
        first, _, last = text.strip().partition(" to ")
        (low, end), (start, high) = _parse_one(first), _parse_one(last or first)
        if start < low or high < end:
            raise ValueError(text)
        found.append((low, high))
    return unite(found)


def _parse_one(text: str) -> tuple[int, int]:
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    year, month, day = (None if part is None else int(part) for part in found.groups())
    start = datetime.date(year or 0, month or 1, day or 1).toordinal()
    return start, _find_ends(start, 0 if day else 1 if month else 12, 1)[1]


def list_segments(cuts: Iterable[int], days: Days | None) -> list[tuple[int, int]]:
    """Return the pieces into which cuts divide a set of days, in order; None: all days."""
    whole: Days = ((FIRST, LAST),) if days is None else days
    ends = sorted({FIRST, LAST, *cuts, *(end for pair in whole for end in pair)})
    return [(a, b) for a, b in pairwise(ends) if any(low <= a and b <= high for low, high in whole)]


_MOST_AMOUNTS = 4
"""The most amounts of different periods that a charge names."""


@dataclass(frozen=True)
class Dated(Event):
    """An event that reads only rows of ``periods`` (whole ones, as ranges of days): units of other periods lose nothing."""

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
    """Return the parts of events by their sets of periods: one undated event for each event with such parts."""
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
