"""The sums of a ledger for the owner's report, in one pass over its statements: by person, by day, and over time.

Memory grows with the number of days with statements only, so a ledger of a million statements takes no more than one of a
thousand. One page of the statements is kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from dpsql.ledger.ledger import Ledger
from dpsql.privacy.accountants import Accountant, RuleAccountant, Spent
from dpsql.privacy.events import Event
from dpsql.privacy.records import Entry
from dpsql.report.charges import Charges
from dpsql.report.tables import clip_text, name_of

STATEMENTS_ON_A_PAGE = 1000
"""Statements on one page of the report."""
BURN_DOWN_STEPS = 400
"""Points of the curve of the remaining budget."""

_NOTHING = Fraction(0)


@dataclass
class Tally:
    """The sums of one person's statements, in all or on one day."""

    statements: int = 0
    refused: int = 0
    epsilon: Fraction = _NOTHING
    delta: Fraction = _NOTHING
    debits: int = 0
    """Statements with stored answers of others, debited to the share only."""
    debited: Fraction = _NOTHING
    """The epsilon of these debits."""

    def add(self, event: Event | None, debit: Event | None = None) -> None:
        """Count one statement: its charge, and the debit of the share; both are None if it was refused."""
        if debit is not None:
            self.debits += 1
            self.debited += debit.basic[0]
        if event is None:
            self.refused += debit is None
            return
        epsilon, delta = event.basic
        self.statements += 1
        self.epsilon += epsilon
        self.delta += delta


@dataclass
class LedgerSums:
    """The sums of all statements, and the statements of one page.

    Args:
        ledger: an open ledger.
        page: number of the kept page of statements: 1 has the newest.
    """

    ledger: Ledger
    page: int = 1
    page_size: int = STATEMENTS_ON_A_PAGE
    people: dict[str, Tally] = field(default_factory=dict)
    days: dict[tuple[str, str], Tally] = field(default_factory=dict)
    """The sums by the day, in UTC, and the person."""
    charged: Charges = field(default_factory=Charges)
    entries: list[Entry] = field(default_factory=list)
    """The statements of the page, in order."""
    unsettled: int = 0
    burn_down: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = self.ledger.count
        self.count = count
        self.pages = max(1, -(-count // self.page_size))
        self.page = min(max(1, self.page), self.pages)
        last = count - (self.page - 1) * self.page_size
        self.first, self.last = max(1, last - self.page_size + 1), last
        curve = _BurnDown(self.ledger, count)
        accountant = self.ledger.accountant
        for entry in self.ledger.walk(1, count):
            charged, debit = entry.charged(accountant), entry.debit
            person = name_of(entry)
            self.people.setdefault(person, Tally()).add(charged, debit)
            self.days.setdefault((entry.when[:10], person), Tally()).add(charged, debit)
            self.unsettled += entry.event is not None and entry.outcome in ("unsettled", "open")
            curve.add(entry)
            if self.first <= entry.statement_id <= self.last:
                self.entries.append(entry)
        self.burn_down, self.charged = curve.finish(), Charges(curve.events, curve.newest)

    @property
    def charges(self) -> int:
        """The number of charged statements."""
        return sum(tally.statements for tally in self.people.values())


class _BurnDown:
    """The greatest cost of one more statement after each charge, and the level that each refused statement asked for."""

    def __init__(self, ledger: Ledger, count: int) -> None:
        self._rule = ledger.accountant
        self._every = max(1, -(-count // BURN_DOWN_STEPS))
        self._spent: Spent = self._rule.start
        self._limit = self._left = find_left(self._rule, self._spent)
        self._charges = 0
        self._since: Counter[Event] = Counter()
        self._last = ""
        self._told = 0
        self.events: Counter[Event] = Counter()
        self.newest: Event | None = None
        self.steps: list[dict[str, Any]] = [{"charges": 0, "left": float(self._left), "text": ""}]
        self.refused: list[dict[str, Any]] = []

    def add(self, entry: Entry) -> None:
        if entry.event is not None:
            self._since[entry.event] += 1
            self.newest = entry.event
            self._charges += 1
            self._last = entry.text
            if self._charges % self._every == 0:
                self._step()
        elif entry.asked is not None and len(self.refused) < BURN_DOWN_STEPS:
            level = float(self._left - find_cost_of(self._rule, entry.asked))
            self.refused.append({"charges": self._charges, "level": level, "text": clip_text(entry.text, 90)})

    def finish(self) -> dict[str, Any]:
        if self._told < self._charges:
            self._step()
        symbol = self._rule.symbol if self._rule.speaks else "ε"
        return {
            "limit": float(self._limit),
            "symbol": symbol,
            "charges": self._charges,
            "steps": self.steps,
            "refused": self.refused,
        }

    def _step(self) -> None:
        for event, times in self._since.items():
            self._spent = self._rule.add(self._spent, event, times)
        self.events.update(self._since)
        self._since.clear()
        self._told = self._charges
        self._left = find_left(self._rule, self._spent)
        self.steps.append(
            {"charges": self._charges, "left": float(self._left), "text": clip_text(self._last, 90)}
        )


def find_cost_of(rule: Accountant, event: Event) -> Fraction:
    """Return the cost of an event, in the session's currency."""
    return rule.own_cost(event) if rule.speaks and isinstance(rule, RuleAccountant) else event.basic[0]


def find_left(rule: Accountant, spent: Spent) -> Fraction:
    """Return the greatest cost of one more statement, in the session's currency."""
    own = rule.own_room(spent)
    if own is not None:
        return own.left
    return rule.fits(spent) if spent.count else rule.epsilon


def sum_days(days: dict[tuple[str, str], Tally], most: int) -> list[tuple[str, str, Tally]]:
    """Return the sums by day and person, the newest first; by month or year if there are more than ``most`` rows.

    Rows that still exceed the number are joined into the last one.
    """
    for length in (10, 7, 4):
        found: dict[tuple[str, str], Tally] = {}
        for (day, who), tally in days.items():
            _join(found.setdefault((day[:length], who), Tally()), tally)
        if len(found) <= most:
            break
    rows = [
        (day, who, tally)
        for (day, who), tally in sorted(found.items(), key=lambda item: item[0][0], reverse=True)
    ]
    if len(rows) > most:
        rest = Tally()
        for _, _, tally in rows[most - 1 :]:
            _join(rest, tally)
        rows = [*rows[: most - 1], ("earlier", "all others", rest)]
    return rows


def _join(tally: Tally, other: Tally) -> None:
    tally.statements += other.statements
    tally.refused += other.refused
    tally.debits += other.debits
    tally.debited += other.debited
    tally.epsilon += other.epsilon
    tally.delta += other.delta
