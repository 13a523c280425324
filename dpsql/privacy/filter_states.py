"""The running sums of a filter: of one budget, or of a budget for each period.

A state has the settled charges and the open reservations of one filter. It doesn't depend on a ledger's rows and limits.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Protocol

from dpsql.errors import LedgerError
from dpsql.late_dataclass import dataclass
from dpsql.privacy.accountants import SUM_NAMES, Accountant, Batch, Spent
from dpsql.privacy.events import Event
from dpsql.privacy.periods import (
    FIRST,
    LAST,
    Days,
    find_cuts,
    list_periods,
    list_segments,
    project_event,
    unite,
    unite_periods,
)

_FEW_STRETCHES = 40
"""The most stretches that are updated one after another."""
_FOLD_ABOVE = 64
_MOST_CHANGES = 2000
"""The most changes that stretches of periods may be behind."""


class FilterState:
    """An open filter and its sums, with open reservations apart, as they may shrink; ``whose`` share it limits (None: all)."""

    def __init__(self, whose: str | None, accountant: Accountant, base: Spent | None = None) -> None:
        self.whose = whose
        self.filter = accountant
        self.base: Spent = accountant.start if base is None else base
        """The sums of settled charges."""
        self._left: dict[int, Event] = {}
        """Old reservations of processes that probably died."""
        self._with_left = self.base
        self._open: dict[int, Event] = {}
        self._sum: Spent | None = self.base

    @property
    def spent(self) -> Spent:
        """Everything that counts: settled charges, and reservations in full."""
        if self._sum is None:
            self._sum = self._add(self._with_left, self._open.values())
        return self._sum

    def after(self, events: Iterable[Event], day: int | None = None) -> Spent:
        """Return the sums with further events: all, or those of the period of a ``day`` if each has its own budget."""
        return self._add(self.spent, events)

    @property
    def cuts(self) -> list[int]:
        """The days at which other sums begin."""
        return []

    def bring_up_to_date(self, days: Days | None) -> None:
        """Count all changes in the sums of these periods (None: all), quicker than one period after another."""

    def find_shortage(self, events: Sequence[Event]) -> Shortage | None:
        """Return the first event that the filter does not admit, one after another; None if all fit."""
        spent = self.spent
        for place, event in enumerate(events):
            if not self.filter.admits(spent, event):
                return Shortage(self, place, event)
            spent = self.filter.add(spent, event)
        return None

    def copy(self) -> FilterState:
        """Return a state with these sums that goes on alone."""
        made = FilterState(self.whose, self.filter, self.base)
        made._left, made._with_left = dict(self._left), self._with_left
        made._open, made._sum = dict(self._open), self._sum
        return made

    def take(self, changes: _Changes) -> None:
        """Count changes, in the order of their rows."""
        if changes.charged is not None:
            self.base = changes.charged.add_to(self.base)
        for statement in changes.ended:
            if self._open.pop(statement, None) is None:
                del self._left[statement]
        self._with_left, self._sum = self._add(self.base, self._left.values()), None
        for statement, event in changes.opened.items():
            self.reserve(statement, event)

    def to_json(self) -> Any:
        """Return the sums of settled charges for a checkpoint."""
        return self.base.to_json()

    def read_json(self, body: Any) -> bool:
        """Read the sums that :meth:`to_json` wrote; return whether they are of this version's kinds."""
        base = Spent.from_json(body)
        if base is None or base.orders != self.filter.start.orders:
            return False
        self.base = self._with_left = self._sum = base
        return True

    def covers(self, other: FilterState) -> bool:
        """Return whether the sums of a checkpoint equal these, or exceed them by another version's rounding."""
        return _is_above(other.base, self.base)

    def _add(self, spent: Spent, events: Iterable[Event]) -> Spent:
        for event in events:
            spent = self.filter.add(spent, event)
        return spent

    def reserve(self, statement: int, event: Event) -> None:
        """Count a reservation in full."""
        self._open[statement] = event
        self._sum = None
        if len(self._open) > _FOLD_ABOVE:
            oldest = next(iter(self._open))
            self._left[oldest] = self._open.pop(oldest)
            self._with_left = self.filter.add(self._with_left, self._left[oldest])

    def charge(self, event: Event) -> None:
        """Count a charge without a reservation."""
        self.base = self.filter.add(self.base, event)
        self._with_left = self._add(self.base, self._left.values())
        self._sum = None

    def settle(self, statement: int, event: Event | None) -> None:
        """Replace a reservation by the event that was used; None: by nothing."""
        if event is None:
            self._open.pop(statement, None)
            self._left.pop(statement, None)
            self._with_left, self._sum = self._add(self.base, self._left.values()), None
            return
        self.base = self.filter.add(self.base, event)
        if self._open.pop(statement, None) is None:
            del self._left[statement]
            self._with_left = self._add(self.base, self._left.values())
        else:
            self._with_left = self.filter.add(self._with_left, event) if self._left else self.base
        self._sum = None


@dataclass(frozen=True)
class Shortage:
    """An event that a filter does not admit: its place among the requested ones, and the part that doesn't fit.

    ``days`` is the stretch of periods with the least room for it, and ``fits`` are those among its periods with enough.
    """

    state: FilterState
    place: int
    event: Event
    days: Days | None = None
    fits: Days = ()


@dataclass(frozen=True)
class _Change:
    """A row's effect on the periods from day ``low`` to day ``high``: a reservation, a charge, or the end of a reservation.

    ``event`` is what a unit of these periods may lose by it; None for nothing.
    """

    low: int
    high: int
    statement: int
    event: Event | None
    kind: str


class _Changes:
    """Changes of one stretch, summed for all stretches with the same."""

    def __init__(self, held: Accountant, changes: Iterable[_Change]) -> None:
        self.opened: dict[int, Event] = {}
        self.ended: list[int] = []
        charged: list[Event] = []
        for one in changes:
            if one.kind == "reserve" and one.event is not None:
                self.opened[one.statement] = one.event
                continue
            if one.kind == "settle" and self.opened.pop(one.statement, None) is None:
                self.ended.append(one.statement)
            if one.event is not None:
                charged.append(one.event)
        self.charged = Batch(held, charged) if charged else None


class Texts(Protocol):
    """Sums in a checkpoint, by place; each is read when it is asked for (:meth:`dpsql.privacy.accountants.Spent.read_text`)."""

    def __getitem__(self, place: int, /) -> str: ...


class PeriodState(FilterState):
    """A filter for each period. Stretches of periods with one history share it.

    An event is projected to the stretches of its periods (:func:`dpsql.privacy.periods.project_event`): whatever reads a
    unit's rows is in the sums of its whole period, so each filter's proof holds for its units. The last stretch, of a day that
    is no period's, has the sums of all charges, whatever their periods.

    Rows are recorded with their days, and a stretch's sums are updated when they are read, so opening a ledger reads few
    stretches. The sums are those of adding each event in turn.
    """

    def __init__(self, whose: str | None, accountant: Accountant) -> None:
        super().__init__(whose, accountant)
        self._begin([FIRST, LAST], [FilterState(whose, accountant) for _ in range(2)])
        self._places: dict[int, list[tuple[int, int]]] = {}
        """The days of open reservations, by statement."""

    def _begin(self, starts: list[int], stretches: Iterable[FilterState | int], texts: Texts = ()) -> None:
        self._starts, self._texts = starts, texts
        self._stretches = [*stretches]
        """The sums of each stretch; a number is the place of a text that was not read yet."""
        self._seen = [0] * len(starts)
        """The number of changes in each stretch's sums."""
        self._changes: list[_Change] = []
        self._known: dict[tuple[int, ...], _Changes] = {}

    @property
    def spent(self) -> Spent:
        return self._at(LAST).spent

    def after(self, events: Iterable[Event], day: int | None = None) -> Spent:
        if day is None:
            return super().after(events)
        parts = (project_event(event, day) for event in events)
        return self._at(day).after(part for part in parts if part is not None)

    @property
    def cuts(self) -> list[int]:
        return self._starts

    def bring_up_to_date(self, days: Days | None) -> None:
        if sum(1 for _ in self._list_segments(days, ())) > _FEW_STRETCHES:
            self._bring_all_up_to_date()

    def find_shortage(self, events: Sequence[Event]) -> Shortage | None:
        refused, fits = [], []
        days = unite_periods(map(list_periods, events))
        for low, high in self._list_segments(days, find_all_cuts(events)):
            known = [(place, part) for place, e in enumerate(events) if (part := project_event(e, low))]
            shortage = self._at(low).find_shortage([part for _, part in known])
            if shortage is None:
                fits.append((low, high))
            else:
                refused.append(replace(shortage, place=known[shortage.place][0], days=((low, high),)))
        if not refused:
            return None
        worst = min(refused, key=lambda u: (u.place, u.state.filter.room(u.state.spent).epsilon_left))
        return replace(worst, fits=() if days is None else unite(fits))

    def reserve(self, statement: int, event: Event) -> None:
        self._places[statement] = self._change("reserve", statement, event)

    def charge(self, event: Event) -> None:
        self._change("charge", 0, event)

    def settle(self, statement: int, event: Event | None) -> None:
        days = self._places.pop(statement)
        self._change("settle", statement, event, unite(days))

    def forget_periods(self) -> None:
        """Count all charges so far in every period, because the periods will contain other rows from now on."""
        every = self._at(LAST)
        self._begin([FIRST, LAST], [every.copy(), every])
        self._places = {statement: [(FIRST, LAST)] for statement in self._places}

    @property
    def names(self) -> list[str]:
        """The names of the numbers in a text of sums; they distinguish sums that other versions of dpsql wrote."""
        return [*SUM_NAMES, *map(str, self.filter.start.orders)]

    def seal(self) -> tuple[list[int], list[str]]:
        """Return the first days of the stretches, and the sums of each for a checkpoint, with those of all charges last."""
        self._bring_all_up_to_date()
        texts = [self._texts[s] if isinstance(s, int) else s.base.to_text() for s in self._stretches]
        return self._starts[:-1], texts

    def unseal(self, starts: Sequence[int], texts: Texts) -> None:
        """Continue from the sums of a checkpoint."""
        self._begin([*starts, LAST], range(len(starts) + 1), texts)

    def covers(self, other: FilterState) -> bool:
        assert isinstance(other, PeriodState)
        (starts, texts), (own, least) = other.seal(), self.seal()
        orders = self.filter.start.orders
        return starts == own and all(
            a == b or _is_above(_read(a, orders), Spent.read_text(b, orders))
            for a, b in zip(texts, least, strict=True)
        )

    def _at(self, day: int) -> FilterState:
        """Return the state of a day's period, up to date."""
        place = bisect_right(self._starts, day) - 1
        since = range(self._seen[place], len(self._changes))
        mine = [i for i in since if self._changes[i].low <= self._starts[place] < self._changes[i].high]
        return self._bring_up_to_date(place, mine)

    def _bring_up_to_date(self, place: int, mine: list[int]) -> FilterState:
        self._seen[place], state = len(self._changes), self._stretches[place]
        if isinstance(state, int):
            base = _read(self._texts[state], self.filter.start.orders)
            if base is None:
                raise LedgerError(
                    "The ledger was damaged or changed by hand: the sums of a checkpoint can't be read.",
                    hint="restore the ledger from a backup; nothing can be charged to this one.",
                )
            state = self._stretches[place] = FilterState(self.whose, self.filter, base)
        if mine:
            known = self._known.get(key := tuple(mine))
            if known is None:
                known = self._known[key] = _Changes(self.filter, [self._changes[i] for i in mine])
            state.take(known)
        return state

    def _bring_all_up_to_date(self) -> None:
        found: list[list[int]] = [[] for _ in self._starts]
        for i, one in enumerate(self._changes):
            for place in range(bisect_left(self._starts, one.low), bisect_left(self._starts, one.high)):
                if i >= self._seen[place]:
                    found[place].append(i)
        for place, mine in enumerate(found):
            if mine:
                self._bring_up_to_date(place, mine)
        self._begin(self._starts, self._stretches, self._texts)

    def _change(
        self, kind: str, statement: int, event: Event | None, within: Days | None = None
    ) -> list[tuple[int, int]]:
        """Note a change and return its days, among these days if given. Stretches are cut where its days begin and end."""
        if len(self._changes) >= _MOST_CHANGES:
            self._bring_all_up_to_date()
        cuts = set() if event is None else find_cuts(event)
        days = within if within is not None or event is None else list_periods(event)
        found = []
        for low, high in list_segments(cuts, days):
            part = None if event is None else project_event(event, low)
            if part is not None or kind == "settle":
                for day in (low, high):
                    self._cut(day)
                self._changes.append(_Change(low, high, statement, part, kind))
                found.append((low, high))
        self._changes.append(_Change(LAST, LAST + 1, statement, event, kind))
        return found

    def _cut(self, day: int) -> None:
        place = bisect_right(self._starts, day)
        if self._starts[place - 1] != day and FIRST < day < LAST:
            before = self._stretches[place - 1]
            self._stretches.insert(place, before if isinstance(before, int) else before.copy())
            self._seen.insert(place, self._seen[place - 1])
            self._starts.insert(place, day)

    def _list_segments(self, days: Days | None, cuts: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield the pieces of some days that stretches and further cuts make."""
        for low, high in ((FIRST, LAST),) if days is None else days:
            inner = self._starts[bisect_right(self._starts, low) : bisect_left(self._starts, high)]
            yield from itertools.pairwise(sorted({low, high, *inner, *(c for c in cuts if low < c < high)}))


def find_all_cuts(events: Iterable[Event]) -> set[int]:
    """Return the days at which the periods of events begin and end."""
    return {cut for event in events for cut in find_cuts(event)}


def _read(text: str, orders: tuple[Fraction, ...]) -> Spent | None:
    try:
        return Spent.read_text(text, orders)
    except (ValueError, ZeroDivisionError):
        return None


def _is_above(sums: Spent | None, least: Spent) -> bool:
    if (
        sums is None
        or sums.count != least.count
        or sums.orders != least.orders
        or (sums.near is None) != (least.near is None)
    ):
        return False
    return all(
        one is None or other is None or one >= other
        for one, other in zip(sums.amounts, least.amounts, strict=True)
    )
