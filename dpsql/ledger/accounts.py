"""The statements and charges of a log, and the running sums that a filter decides on.

An :class:`Account` is the fold of the log's rows, one by one, in order. It knows nothing of files. The same
rows folded under another accountant say what they would have cost there.

How much is left: what the displays, the price of EXPLAIN and the error of a refused statement say.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpsql.errors import BudgetExceeded
from dpsql.ledger.log_file import START, Row, damaged_error, read_body
from dpsql.ledger.terms import Terms
from dpsql.numerics.exact_numbers import DOWN, UP, write_pair, write_short
from dpsql.policy.model import Policy
from dpsql.privacy.accountants import MANY, Accountant, Spent, format_percent, say_what_is_left
from dpsql.privacy.events import Event, PureDP
from dpsql.privacy.filters import ACCOUNTANTS

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
        """Return the digest of the answer that was kept under a key; None where none was."""
        if self.outcome != "released":
            return None
        return self.blocks.get(key) or (self.release if key == self.key else None)

    @property
    def loss(self) -> str:
        """The loss as people read it; ``"0"`` for what was refused."""
        return "0" if self.event is None else self.event.sentence()

    def charge(self, accountant: str) -> str:
        """Return the charge of an accountant as people read it; ``"0"`` for what was refused."""
        event = self.charged(accountant)
        return "0" if event is None else event.sentence()

    def charged(self, accountant: str) -> Event | None:
        """Return the charge as an accountant counts it; None for what was refused."""
        return None if self.event is None else ACCOUNTANTS[accountant].charge(self.event)

    @property
    def when_text(self) -> str:
        """The time in the reader's time zone: the hour for today, the date too for other days."""
        return format_local_time(self.when)


class FilterState:
    """An open filter and its running sums. Open reservations are summed apart, because they may still shrink.

    Args:
        whose: the analyst whose share it limits; None for the whole.
        accountant: the filter.
    """

    def __init__(self, whose: str | None, accountant: Accountant) -> None:
        self.whose = whose
        self.filter = accountant
        self._base: Spent = accountant.start
        self._open: dict[int, Event] = {}
        self._folded: dict[int, Event] = {}
        self._sum: Spent | None = self._base

    @property
    def spent(self) -> Spent:
        """Everything that counts: settled, and reserved in full."""
        if self._sum is None:
            self._sum = self._add(self._base, self._open.values())
        return self._sum

    def after(self, events: Iterable[Event]) -> Spent:
        """Return what would count with further events."""
        return self._add(self.spent, events)

    def _add(self, spent: Spent, events: Iterable[Event]) -> Spent:
        for event in events:
            spent = self.filter.add(spent, event)
        return spent

    def reserve(self, statement: int, event: Event) -> None:
        """Count a reservation in full."""
        self._open[statement] = event
        self._sum = None
        if len(self._open) > _FOLD_ABOVE:  # left behind by processes that died: keep the sum short
            oldest = next(iter(self._open))
            self._folded[oldest] = self._open.pop(oldest)
            self._base = self.filter.add(self._base, self._folded[oldest])

    def settle(self, statement: int, event: Event) -> bool:
        """Replace what was reserved by what was used. False when only a new fold of everything can do so."""
        if statement not in self._open:
            return self._folded.pop(statement, None) == event
        unchanged = self._open.pop(statement) == event
        known = self._sum if unchanged else None
        self._base = known if known is not None and not self._open else self.filter.add(self._base, event)
        self._sum = known
        return True


class Account:
    """The log so far, folded.

    ``terms`` (when given) rule instead of the granted ones: tighter, or for reading.
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
        self._filters: list[FilterState] | None = None

    @property
    def terms(self) -> Terms:
        """The terms that rule: the session's own, else the granted ones."""
        terms = self._asked or self.granted
        if terms is None:
            raise damaged_error("it has no beginning")
        return terms if self.granted is None else terms.under(self.granted)

    def filters(self, analyst: str | None) -> list[FilterState]:
        """Return the filters that must all admit: the whole's first, then the analyst's own where there is a share.

        Where a session runs under other terms, the filters of the granted ones come after them. A filter of a smaller
        budget looks at another order, so what it admits is not sure to be what the granted one would. Both together stop
        no later than either. (Another accountant's reading has its own filters alone.)
        """
        if self._filters is None:
            granted, terms = self.granted, self.terms
            rules = [terms]
            if (
                granted is not None
                and granted.accountant == terms.accountant
                and granted.limits() != terms.limits()
            ):
                rules.append(granted)
            self._filters = [state for rule in rules for state in self._open_filters(rule)]
        return [state for state in self._filters if state.whose in (None, analyst)]

    def find_excess(self, analyst: str | None, *events: Event) -> BudgetExceeded | None:
        """Return the error for the first event that a filter does not admit; None if all fit."""
        for state in self.filters(analyst):
            spent = state.spent
            for event in events:
                if not state.filter.admits(spent, event):
                    return explain_exceeded(state, event)
                spent = state.filter.add(spent, event)
        return None

    def apply(self, rows: Iterable[Row]) -> None:
        """Fold further rows in.

        Raises:
            LedgerError: a row says something that no ledger says: a settlement without a reservation, a
                negative or unreadable event, a release that was not paid for.
        """
        for row in rows:
            body = read_body(row)
            try:
                getattr(self, f"_on_{row.kind}")(row, body)
            except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
                raise damaged_error(f"row {row.seq} can't be read") from None
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
        self._filters = None

    def _on_policy(self, row: Row, body: Mapping[str, Any]) -> None:
        self.policy = str(body["policy"])

    def _on_notice(self, row: Row, body: Mapping[str, Any]) -> None:
        self.notices.append(str(body["text"]))

    def _on_reserve(self, row: Row, body: Mapping[str, Any]) -> None:
        event = read_event(body["event"])
        entry = self._entry(row, body, "reserved", event, event)
        for state in self.filters(entry.analyst):
            state.reserve(row.statement, event)
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
        states = self.filters(entry.analyst)
        self.entries[row.statement] = replace(
            entry, event=event, outcome=outcome, release=release, blocks=dict(blocks)
        )
        if not all(state.settle(row.statement, event) for state in states):
            self._filters = None

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
        if entry.asked is None or not event.is_within(entry.asked):
            raise ValueError("more was used than reserved")

    def _open_filters(self, terms: Terms) -> list[FilterState]:
        """Open the filters of these terms, and charge everything so far to them."""
        states = [FilterState(None, terms.open_filter(terms.epsilon, terms.delta))]
        states += [FilterState(name, terms.open_filter(*share)) for name, share in terms.shares.items()]
        for entry in self.entries.values():
            for state in states:
                if entry.event is not None and state.whose in (None, entry.analyst):
                    state.reserve(entry.statement_id, entry.event)
                    if entry.outcome != "reserved":
                        state.settle(entry.statement_id, entry.event)
        return states


def read_event(body: Mapping[str, Any]) -> Event:
    """Read an event from a row. ValueError when it costs less than nothing."""
    return _read_event(json.dumps(body, sort_keys=True))


@lru_cache(maxsize=4096)
def _read_event(text: str) -> Event:
    event = Event.from_json(json.loads(text))
    if min(event.basic) < 0 or event.basic[1] > 1:
        raise ValueError("an event can't cost less than nothing")
    return event


def format_local_time(when: str) -> str:
    """Format a time of the ledger in the reader's time zone; without the date when it was today."""
    from datetime import datetime

    moment = datetime.fromisoformat(when).astimezone()
    today = moment.date() == datetime.now().astimezone().date()
    return moment.strftime("%H:%M" if today else "%Y-%m-%d %H:%M")


@dataclass(frozen=True)
class BudgetState:
    """The budget at one moment: of the whole, or of an analyst's share.

    ``whole`` is, beside a share, the state of the whole.

    ``spent_epsilon`` is the plain sum over everything charged; ``spent_delta`` the sum of the deltas that mechanisms
    have of their own (under ``basic``: of all deltas), of which ``mechanism_delta`` is the limit. ``left_epsilon`` is,
    under every accountant, the largest epsilon that one further statement may have (of a share: that both allow).
    ``about`` counts further statements at the default epsilon. ``rule_used`` is the part that is gone of what zcdp or
    gdp allow by their rule, None where there is no rule but the sum; ``rule`` is the same where the rule, and not the
    plain sum, says what is left.
    """

    accountant: str
    limit_epsilon: Fraction
    limit_delta: Fraction
    spent_epsilon: Fraction
    spent_delta: Fraction
    left_epsilon: Fraction
    left_delta: Fraction
    detail: str
    analyst: str | None = None
    default_epsilon: Fraction | None = None
    about: int | None = None
    whole: BudgetState | None = None
    mechanism_delta: Fraction = Fraction(0)
    rule: Fraction | None = None
    rule_used: Fraction | None = None

    @property
    def has_rule(self) -> bool:
        """True where the accountant counts by a rule beside the plain sum."""
        return ACCOUNTANTS[self.accountant].has_rule

    @property
    def share(self) -> Fraction:
        """The part of the limit that is gone, from 0 to 1."""
        return 1 - self.left_epsilon / self.limit_epsilon

    @property
    def spent(self) -> str:
        """``"ε=0.2"``, rounded up."""
        return write_pair(self.spent_epsilon, self.spent_delta, UP)

    @property
    def limit(self) -> str:
        """``"ε=1, δ=1e-06"``."""
        return write_pair(self.limit_epsilon, self.limit_delta)

    @property
    def left(self) -> str:
        """``"ε=0.8"``, rounded down."""
        return f"ε={write_short(self.left_epsilon, DOWN)}"

    @property
    def sentence(self) -> str:
        """``"ε=0.8 of ε=1 left"``, with whose share it is; and the part of the rule, where the rule says what is left."""
        mine = f"{self.analyst}'s " if self.analyst else ""
        return say_what_is_left(self.left_epsilon, self.limit_epsilon, self.rule, mine)

    @property
    def rule_text(self) -> str:
        """``"21%"`` of the rule used; empty where there is no rule but the sum."""
        return "" if self.rule_used is None else format_percent(self.rule_used)

    @property
    def about_text(self) -> str:
        """``"about 8 more at ε=0.1"``, empty where the policy has no default."""
        if self.about is None or self.default_epsilon is None:
            return ""
        count = "any number" if self.about >= MANY else f"about {self.about}" if self.about else "none"
        return f"{count} more at ε={write_short(self.default_epsilon)}"


def make_budget_state(
    account: Account, policy: Policy | None, analyst: str | None, after: Iterable[Event] = ()
) -> BudgetState:
    """Return the state of an analyst's share where there is one (with the whole inside), else of the whole.

    Args:
        account: the log so far.
        policy: for the default epsilon.
        analyst: who asks.
        after: further events, counted as if they had been charged.
    """
    default = policy.budget.default_epsilon if policy is not None else None
    states, events = account.filters(analyst), tuple(after)
    whole = _state([state for state in states if state.whose is None], default, None, events)
    own = [state for state in states if state.whose is not None]
    return _state(own, default, whole, events) if own else whole


def explain_exceeded(state: FilterState, event: Event) -> BudgetExceeded:
    """Make the error for an event that a filter does not admit: requested, left, and what would fit."""
    whose = f"{state.whose}'s " if state.whose else ""
    held = state.filter
    room, epsilon = held.room(state.spent), event.basic[0]
    where = "%dpsql budget shows where it went."
    left = write_short(room.epsilon_left, DOWN)
    if held.own_delta(event) > room.delta_left:
        left = write_short(room.delta_left, DOWN)
        message = f"δ={left} of {whose}δ={write_short(held.mechanism_delta)} is left for it."
        fits = f"delta = {left} would fit." if room.delta_left else "a statement without delta may still fit."
        if held.mechanism_delta < held.delta:
            fits += f" The rest of δ={write_short(held.delta)} converts the {held.name} rule."
    elif event.epsilon is None and epsilon and held.admits(state.spent, PureDP(epsilon)):
        # Gaussian noise has no largest loss, so the plain sum can't hold it: the rule must
        message = (
            f"Laplace noise of that epsilon would fit, Gaussian noise does not fit the {held.name} rule."
        )
        fits = "noise = 'laplace' would fit."
    else:
        message = f"ε={left} of {whose}ε={write_short(held.epsilon)} is left."
        fits = f"epsilon => {left} would fit." if room.epsilon_left else "stored answers are still free."
    return BudgetExceeded(f"This query costs {event.sentence()}; {message}", hint=f"{fits}  {where}")


def _state(
    states: list[FilterState], default: Fraction | None, whole: BudgetState | None, after: tuple[Event, ...]
) -> BudgetState:
    """Return the state of the first filter; of what is left, the least that one of them says."""
    held, spents = states[0].filter, [state.after(after) for state in states]
    rooms = [state.filter.room(spent) for state, spent in zip(states, spents, strict=True)]
    room = min(rooms, key=lambda room: room.epsilon_left)
    left, rule, delta_left = room.epsilon_left, room.rule, min(room.delta_left for room in rooms)
    about = None
    if default is not None:
        event = PureDP(default)
        about = min(state.filter.more(spent, event) for state, spent in zip(states, spents, strict=True))
    if whole is not None:  # both must admit
        if whole.left_epsilon < left:
            left, rule = whole.left_epsilon, whole.rule
        delta_left = min(delta_left, whole.left_delta)
        about = None if about is None or whole.about is None else min(about, whole.about)
    return BudgetState(
        accountant=held.name,
        limit_epsilon=held.epsilon,
        limit_delta=held.delta,
        spent_epsilon=spents[0].epsilon,
        spent_delta=held.spent_delta(spents[0]),
        left_epsilon=left,
        left_delta=delta_left,
        detail=held.sentence(spents[0]),
        analyst=states[0].whose,
        default_epsilon=default,
        about=about,
        whole=whole,
        mechanism_delta=held.mechanism_delta,
        rule=rule,
        rule_used=held.used(spents[0]),
    )
