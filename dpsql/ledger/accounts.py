"""What the log says: the statements and their charges, and the running sums that a filter decides on.

An :class:`Account` is the fold of the log's rows, one by one, in order. It knows nothing of files. The same
rows folded under another accountant say what they would have cost there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from dpsql.ledger.hash_chain import START, Row, damaged, says
from dpsql.ledger.terms import Terms
from dpsql.privacy.events import Composed, DeclaredPlan, Event, SparseVector, charged
from dpsql.privacy.filters import Filter
from dpsql.privacy.spent import Spent

OUTCOMES = ("released", "failed", "interrupted")
"""How a reservation can end. One that did not end is shown as ``open``, or ``unsettled`` when its process is
gone.
"""

_FOLD_ABOVE = 64


@dataclass(frozen=True)
class Entry:
    """One statement in the ledger, with what it is charged.

    ``event`` is what counts against the budget: the reserved event until it is settled, None for what was
    refused.
    ``asked`` is what was reserved, or what a refused statement asked for (None where that was not known).
    ``outcome`` is one of ``released``, ``failed``, ``interrupted``, ``refused``, ``open``, ``unsettled``.
    """

    statement_id: int
    when: str
    analyst: str
    text: str
    outcome: str
    event: Event | None
    asked: Event | None
    reason: str = ""
    key: str = ""
    user: str = ""
    process: str = ""
    progress: Event | None = None
    release: str | None = None
    blocks: Mapping[str, str] = field(default_factory=dict)
    """Digests of the answers of its private blocks that were kept, by their keys."""

    def kept(self, key: str) -> str | None:
        """The digest of the answer that it kept under a key; None where it kept none."""
        if self.outcome != "released":
            return None
        return self.blocks.get(key) or (self.release if key == self.key else None)

    @property
    def loss(self) -> str:
        """The charge as people read it; ``"0"`` for what was refused."""
        return "0" if self.event is None else self.event.sentence()

    def charged(self, accountant: str) -> Event | None:
        """The charge as an accountant counts it; None for what was refused."""
        return None if self.event is None else charged(self.event, accountant)

    @property
    def when_text(self) -> str:
        """The time in the reader's time zone: the hour for today, the date too for other days."""
        return local(self.when)


class Purse:
    """A filter and the running sum it decides on. Open reservations are summed apart: they may still
    shrink.
    """

    def __init__(self, rule: Filter) -> None:
        self.filter = rule
        self._base: Spent = self.filter.start
        self._open: dict[int, Event] = {}
        self._folded: dict[int, Event] = {}
        self._sum: Spent | None = self._base

    @property
    def spent(self) -> Spent:
        """Everything that counts: settled, and reserved in full."""
        if self._sum is None:
            self._sum = self._base
            for event in self._open.values():
                self._sum = self.filter.add(self._sum, event)
        return self._sum

    def after(self, events: Iterable[Event]) -> Spent:
        """What counts, with further events in it."""
        spent = self.spent
        for event in events:
            spent = self.filter.add(spent, event)
        return spent

    def admits(self, event: Event) -> bool:
        return bool(self.filter.admits(self.spent, event))

    def reserve(self, statement: int, event: Event) -> None:
        self._open[statement] = event
        self._sum = None
        if len(self._open) > _FOLD_ABOVE:  # left behind by processes that died: keep the sum short
            oldest = next(iter(self._open))
            self._folded[oldest] = self._open.pop(oldest)
            self._base = self.filter.add(self._base, self._folded[oldest])

    def settle(self, statement: int, event: Event) -> bool:
        """Replaces what was reserved by what was used; False when only a new fold of everything can."""
        if statement not in self._open:
            return self._folded.pop(statement, None) == event
        unchanged = self._open.pop(statement) == event
        known = self._sum if unchanged else None
        self._base = known if known is not None and not self._open else self.filter.add(self._base, event)
        self._sum = known
        return True


class Account:
    """The log so far, folded. ``terms`` (when given) rule instead of the granted ones: tighter, or for
    reading.
    """

    def __init__(self, terms: Terms | None = None) -> None:
        self.ledger_id = ""
        self.seq = 0
        self.head = START
        self.granted: Terms | None = None
        self.policy = ""
        self.entries: dict[int, Entry] = {}
        self.notices: list[str] = []
        self._asked = terms
        self._last = ""
        self._purses: dict[str | None, Purse] | None = None
        self._kept: dict[str | None, Purse] | None = None

    @property
    def terms(self) -> Terms:
        """The terms that rule: the session's own, else the granted ones."""
        terms = self._asked or self.granted
        if terms is None:
            raise damaged("it has no beginning")
        return terms if self.granted is None else terms.under(self.granted)

    def purses(self, analyst: str | None) -> dict[str | None, Purse]:
        """The filters that must all admit: the whole's under None, and the analyst's own where there is a
        share.
        """
        if self._purses is None:
            self._purses = self._filled(self.terms)
        return _of(self._purses, analyst)

    def kept(self, analyst: str | None) -> dict[str | None, Purse]:
        """The filters of the granted terms, which must admit as well, where a session runs under others.

        A filter of a smaller budget looks at another order, so what it admits is not sure to be what the granted one
        would. Both together stop no later than either. (Empty where they count alike, and for another accountant's
        reading.)
        """
        granted = self.granted
        if (
            granted is None
            or granted.accountant != self.terms.accountant
            or granted.limits() == self.terms.limits()
        ):
            return {}
        if self._kept is None:
            self._kept = self._filled(granted)
        return _of(self._kept, analyst)

    def refusing(self, analyst: str | None, event: Event) -> tuple[str | None, Purse] | None:
        """The first filter that does not admit an event, and whose it is; None when all admit it."""
        for purses in (self.purses(analyst), self.kept(analyst)):
            for whose, purse in purses.items():
                if not purse.admits(event):
                    return whose, purse
        return None

    def would_admit(self, analyst: str | None, events: Iterable[Event]) -> bool:
        """Whether all filters would admit these events, one after another."""
        asked = tuple(events)
        for purses in (self.purses(analyst), self.kept(analyst)):
            for purse in purses.values():
                spent = purse.spent
                for event in asked:
                    if not purse.filter.admits(spent, event):
                        return False
                    spent = purse.filter.add(spent, event)
        return True

    def _counting(self, analyst: str) -> list[Purse]:
        return [*self.purses(analyst).values(), *self.kept(analyst).values()]

    def _forget(self) -> None:
        self._purses = self._kept = None

    def apply(self, rows: Iterable[Row]) -> None:
        """Folds further rows in.

        Raises:
            LedgerError: a row says something that no ledger says: a settlement without a reservation, a
                negative or unreadable event, a release that was not paid for.
        """
        for row in rows:
            body = says(row)
            try:
                getattr(self, f"_on_{row.kind}")(row, body)
            except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
                what: str | None = f"row {row.seq} can't be read"
            else:
                what = None
            if what:
                raise damaged(what)
            if row.at < self._last:
                self.notices.append(f"the clock went back before row {row.seq}: {self._last} to {row.at}")
            self.seq, self.head, self._last = row.seq, row.hash, row.at

    # -- one method for each kind of row ----------------------------------------------------------

    def _on_open(self, row: Row, body: Mapping[str, Any]) -> None:
        if row.seq != 1:
            raise ValueError("a second beginning")
        self.ledger_id = str(body["ledger"])
        self.granted = Terms.from_json(body["terms"])
        self.policy = self.granted.policy

    def _on_adopt(self, row: Row, body: Mapping[str, Any]) -> None:
        self.granted = Terms.from_json(body["terms"])
        self.policy = self.granted.policy
        self.notices.append(f"{row.at[:10]} the owner changed the terms: {'; '.join(body['changes'])}")
        self._forget()

    def _on_policy(self, row: Row, body: Mapping[str, Any]) -> None:
        self.policy = str(body["policy"])

    def _on_notice(self, row: Row, body: Mapping[str, Any]) -> None:
        self.notices.append(str(body["text"]))

    def _on_reserve(self, row: Row, body: Mapping[str, Any]) -> None:
        event = read_event(body["event"])
        entry = self._entry(row, body, "reserved", event, event)
        for purse in self._counting(entry.analyst):
            purse.reserve(row.statement, event)
        self.entries[row.statement] = entry

    def _on_progress(self, row: Row, body: Mapping[str, Any]) -> None:
        entry = self._reserved(row)
        event = read_event(body["event"])
        self._check_cheaper(entry, event)
        self.entries[row.statement] = replace(entry, progress=event)

    def _on_settle(self, row: Row, body: Mapping[str, Any]) -> None:
        entry = self._reserved(row)
        event, outcome, release = read_event(body["event"]), body["outcome"], body["release"]
        self._check_cheaper(entry, event)
        blocks = body.get("blocks", {})  # none in the ledgers of versions that kept whole statements
        if outcome not in OUTCOMES or not isinstance(release, str | None):
            raise ValueError(outcome)
        if not all(isinstance(text, str) for pair in blocks.items() for text in pair):
            raise TypeError("text expected")
        purses = self._counting(entry.analyst)
        self.entries[row.statement] = replace(
            entry, event=event, outcome=outcome, release=release, blocks=dict(blocks)
        )
        if not all(purse.settle(row.statement, event) for purse in purses):
            self._forget()

    def _on_refuse(self, row: Row, body: Mapping[str, Any]) -> None:
        asked = None if body["event"] is None else read_event(body["event"])
        self.entries[row.statement] = self._entry(row, body, "refused", None, asked)

    # -- helpers ----------------------------------------------------------------------------------

    def _entry(
        self, row: Row, body: Mapping[str, Any], outcome: str, event: Event | None, asked: Event | None
    ) -> Entry:
        if row.statement != len(self.entries) + 1:
            raise ValueError("statements are numbered in order")
        told = [body["analyst"], body["text"], body["user"], body.get("reason", ""), body.get("key", "")]
        if not all(isinstance(value, str) for value in told):
            raise TypeError("text expected")
        analyst, text, user, reason, key = told
        process = str(body.get("process", ""))
        return Entry(row.statement, row.at, analyst, text, outcome, event, asked, reason, key, user, process)

    def _reserved(self, row: Row) -> Entry:
        entry = self.entries[row.statement]
        if entry.outcome != "reserved":
            raise ValueError("settled twice")
        return entry

    @staticmethod
    def _check_cheaper(entry: Entry, event: Event) -> None:
        if entry.asked is None or not within(event, entry.asked):
            raise ValueError("more was used than reserved")

    def _filled(self, terms: Terms) -> dict[str | None, Purse]:
        """Fresh purses of these terms, with everything so far charged to them."""
        purses: dict[str | None, Purse] = {None: Purse(terms.open_filter(terms.epsilon, terms.delta))}
        for name, (epsilon, delta) in terms.shares.items():
            purses[name] = Purse(terms.open_filter(epsilon, delta))
        for entry in self.entries.values():
            for whose, purse in purses.items():
                if entry.event is not None and whose in (None, entry.analyst):
                    purse.reserve(entry.statement_id, entry.event)
                    if entry.outcome != "reserved":
                        purse.settle(entry.statement_id, entry.event)
        return purses


def _of(purses: dict[str | None, Purse], analyst: str | None) -> dict[str | None, Purse]:
    return {name: purse for name, purse in purses.items() if name is None or name == analyst}


def within(used: Event, reserved: Event) -> bool:
    """Whether ``used`` is what was reserved, or cheaper by a rule that is proved.

    The one such rule: a sparse vector that was reserved with its hits unknown is settled with the hits found.
    """
    if used == reserved:
        return True
    if isinstance(reserved, Composed | DeclaredPlan) and type(used) is type(reserved):
        return (
            replace(used, events=reserved.events) == reserved
            and len(used.events) == len(reserved.events)
            and all(map(within, used.events, reserved.events))
        )
    if isinstance(reserved, SparseVector) and isinstance(used, SparseVector) and reserved.hits is None:
        return (
            replace(used, hits=None) == reserved
            and used.hits is not None
            and 0 <= used.hits <= reserved.max_hits
        )
    return False


def write_event(event: Event) -> str:
    """An event as one line of JSON with its keys in order."""
    return json.dumps(event.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)


def read_event(body: Mapping[str, Any]) -> Event:
    """An event from a row. ValueError when it costs less than nothing."""
    return _read_event(json.dumps(body, sort_keys=True))


@lru_cache(maxsize=4096)
def _read_event(text: str) -> Event:
    event = Event.from_json(json.loads(text))
    if min(event.basic) < 0 or event.basic[1] > 1:
        raise ValueError("an event can't cost less than nothing")
    return event


def local(when: str) -> str:
    """A time of the ledger (UTC) in the reader's time zone: the hour for today, the date too for other
    days.
    """
    from datetime import datetime

    moment = datetime.fromisoformat(when).astimezone()
    today = moment.date() == datetime.now().astimezone().date()
    return moment.strftime("%H:%M" if today else "%Y-%m-%d %H:%M")
