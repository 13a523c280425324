"""The worker's side of an analyst's ledger: the same face as :class:`dpsql.ledger.ledger.Ledger`, asked from the front.

A statement that is answered for the first time takes four calls: what is stored of it, what it was about before, the
reservation, and the settlement, whose answer says what is left; a stored one takes the first alone. What does not change
while a policy holds is asked once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from dpsql.errors import BudgetExceeded, Error, LedgerError
from dpsql.ledger.answers import StoredRelease
from dpsql.ledger.ledger import KeptReleases, Ledger, Ticket
from dpsql.ledger.terms import Terms
from dpsql.policy.model import Policy
from dpsql.privacy.accountants import Accountant, Spent, format_percent
from dpsql.privacy.events import Event
from dpsql.privacy.records import BudgetState, Entry
from dpsql.report.data import PICTURES
from dpsql.server.promises import mark_left
from dpsql.wire import Message, get_field, read_entry, read_error, read_event_of, read_state

Ask = Callable[[dict[str, Any], bytes], Message]
"""Sends one call to the front and returns its answer. The head has the method and its values."""

_PIECE = 8 << 20


class LedgerProxy(Ledger):
    """The ledger of one analyst, which a session in a worker uses in place of the ledger itself.

    It holds no file, and shows the analyst's own statements and the totals of others.

    Args:
        ask: sends a call to the front and returns the answer of ``LedgerService.call``; errors arrive as messages and are
            raised here.
        policy: the policy of the worker's sessions.
        analyst: who asks. The front does not believe it.
    """

    def __init__(self, ask: Ask, policy: Policy, analyst: str) -> None:
        self._ask = ask
        self.path: Path | None = None
        self.policy = policy
        self.analyst = analyst
        self.warnings = ()
        self._state: BudgetState | None = None
        self._promised: int | None = None
        """The statement that was settled last, where the front has given its word and writes it later."""
        self._left: str | None = None
        """The sentence on what is left that the last call brought along."""
        self._dropped: dict[str, str | None] = {}

    def _call(self, method: str, payload: bytes = b"", **head: Any) -> Message:
        """Ask the front.

        Raises:
            Error: the front's own.
        """
        self._state = self._promised = self._left = None
        answer = self._ask({"method": method, **head}, payload)
        if answer.head.get("kind") == "error":
            raise read_error(answer)
        return answer

    # -- what does not change -------------------------------------------------------------------------------------

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return self._call("terms").head

    @cached_property
    def terms(self) -> Terms:
        """The terms that rule, as far as this analyst may know them."""
        return Terms.from_json(get_field(self._facts, "terms", dict))

    @cached_property
    def accountant(self) -> Accountant:
        """The accountant of the whole budget: it says charges in its own currency."""
        return self.terms.open_filter()

    @property
    def lasting(self) -> bool:
        """Return True: the front keeps it in a file."""
        return True

    @property
    def notices(self) -> tuple[str, ...]:
        """Return none: notices are for the owner, and may name paths and other analysts."""
        return ()

    @property
    def dataset(self) -> str:
        """Return an empty name: that of the data is the owner's."""
        return ""

    @property
    def debits_shares(self) -> bool:
        return get_field(self._facts, "debits", bool)

    @property
    def holds_whole_statements(self) -> bool:
        return get_field(self._facts, "older_answers", bool)

    def say_rule(self, event: Event) -> str:
        used = self.accountant.used_by(event)
        return "" if used is None else f" It uses {format_percent(used)} of the {self.accountant.name} rule."

    # -- the three steps ------------------------------------------------------------------------------------------

    def reserve(self, event: Event, text: str, shown: Mapping[str, str] | None = None) -> Ticket:
        answer = self._call("reserve", event=event.to_json(), text=text, shown=dict(shown or {}))
        return Ticket(get_field(answer.head, "statement_id", int), event, "", self)

    def debit(self, text: str, shown: Mapping[str, str]) -> int | None:
        answer = self._call("debit", text=text, shown=dict(shown))
        self._state = read_state(answer.head.get("state"))
        number = answer.head.get("statement_id")
        return number if isinstance(number, int) else None

    def note_progress(self, ticket: Ticket, event: Event) -> None:
        self._call("progress", statement_id=ticket.statement_id, event=event.to_json())

    def settle(self, ticket: Ticket, event: Event, kept: KeptReleases | None, outcome: str) -> None:
        kept = kept or KeptReleases()
        size = sum(map(len, kept.releases.values()))
        if size > get_field(self._facts, "largest", int):
            kept = KeptReleases({}, kept.questions)
        sizes: list[list[Any]] = []
        for key, release in kept.releases.items():
            lost = kept.events.get(key)
            sizes.append([key, len(release), None if lost is None else lost.to_json()])
        sizes += [[question, len(items)] for question, items in kept.questions.items()]
        content = memoryview(b"".join([*kept.releases.values(), *kept.questions.values()]))
        while len(content) > _PIECE:
            self._call("part", bytes(content[:_PIECE]))
            content = content[_PIECE:]
        head = {
            "statement_id": ticket.statement_id,
            "event": event.to_json(),
            "outcome": outcome,
            "kept": sizes,
        }
        answer = self._call("settle", bytes(content), **head)
        if answer.head.get("promised"):
            self._promised = ticket.statement_id
        else:
            self._state = read_state(answer.head.get("state"))

    def begin_settling(
        self, ticket: Ticket, event: Event, kept: KeptReleases | None, outcome: str
    ) -> Callable[[], None]:
        self.settle(ticket, event, kept, outcome)
        return lambda: None  # the front does the rest

    def settle_left(self, ticket: Ticket) -> Event:
        raise LedgerError("Only who keeps the ledger can tell what was left open.")

    def refuse(self, text: str, reason: str, event: Event | None = None) -> None:
        try:
            self._call("refuse", text=text, reason=reason, event=None if event is None else event.to_json())
        except Error:  # the analyst's own error matters more than a line of the log
            return

    # -- stored answers -------------------------------------------------------------------------------------------

    def replay(self, key: str) -> StoredRelease | None:
        answer = self._call("replay", key=key)
        found = answer.head.get("found")
        self._dropped = {} if found is not None else {key: answer.head.get("dropped")}
        if found is None:
            return None
        pieces, size = [answer.payload], get_field(found, "size", int)
        while (held := sum(map(len, pieces))) < size:
            pieces.append(self._call("more", start=held).payload)
            if not pieces[-1]:
                raise LedgerError("A stored answer arrived in part.", hint="run the statement again.")
        self._left = get_field(found, "left", str, "") or None
        number, debit = found.get("statement_id"), found.get("debit")
        return StoredRelease(
            b"".join(pieces),
            get_field(found, "when", str),
            number if isinstance(number, int) else None,
            read_event_of(found.get("event")),
            key,
            debit=None if debit is None else read_event_of(debit),
        )

    def find_dropped(self, key: str) -> Entry | None:
        """Return a statement of which the time alone is told, and that only where it was this analyst's own."""
        if key not in self._dropped:
            self.replay(key)
        when = self._dropped.get(key)
        return None if when is None else Entry(0, when, "", "", "released", None, None)

    def asked(self, question: str) -> tuple[Entry, bytes] | None:
        answer = self._call("asked", question=question)
        entry = answer.head.get("entry")
        return None if entry is None else (read_entry(entry), answer.payload)

    def find_debits(self, shown: Mapping[str, str]) -> dict[str, Event]:
        raise LedgerError("Only who keeps the ledger can tell what is due.")

    # -- what is left and what was asked --------------------------------------------------------------------------

    def state(self, after: Iterable[Event] = (), debit: Event | None = None) -> BudgetState:
        events = [event.to_json() for event in after]
        if self._state is not None and not events and debit is None:
            told, self._state = self._state, None  # as it was when the statement was settled, a moment ago
            return told
        owed = None if debit is None else debit.to_json()
        return read_state(self._call("state", after=events, debit=owed).head.get("state"))

    def say_left(self) -> str:
        if self._promised is None:
            told, self._left = self._left, None
            return self.state().sentence if told is None else told
        number, self._promised = self._promised, None
        return mark_left(number)

    def find_excess(self, *events: Event, debit: Event | None = None) -> BudgetExceeded | None:
        owed = None if debit is None else debit.to_json()
        error = self._call("excess", after=[event.to_json() for event in events], debit=owed).head.get(
            "error"
        )
        if error is None:
            return None
        found = read_error(Message(error))
        return found if isinstance(found, BudgetExceeded) else BudgetExceeded(found.message, hint=found.hint)

    @property
    def count(self) -> int:
        """The number of this analyst's own charges and refusals."""
        return get_field(self._call("count").head, "count", int)

    def entries(self, last: int | None = None) -> list[Entry]:
        """Return the totals of others, where there are any, and then the analyst's own statements; or the ``last`` ones."""
        answer = self._call("entries", last=last, others=True).head
        others, count = answer.get("others"), get_field(answer, "count", int)
        found = [read_entry(body) for body in get_field(answer, "entries", list)]
        start = get_field(answer, "start", int)
        if start + len(found) < count:
            found += self._list_own(start + len(found), count)
        return [*([] if others is None else [read_entry(others)]), *found]

    def walk(self, first: int = 1, last: int | None = None) -> Iterator[Entry]:
        """Yield the analyst's own statements, in order, whose numbers are in a range."""
        for entry in self._list_own(0, self.count):
            if first <= entry.statement_id and (last is None or entry.statement_id <= last):
                yield entry

    def _list_own(self, start: int, end: int) -> Iterator[Entry]:
        while start < end:
            page = get_field(self._call("entries", start=start).head, "entries", list)
            if not page:
                return
            yield from map(read_entry, page)
            start += len(page)

    def tabulate(self, what: str, make: Callable[[Self], Any]) -> Any:
        """Return figures of everybody's statements, which the front makes."""
        found = json.loads(self._call("tabulate", what=what).payload)
        if what.removeprefix("picture ") in PICTURES and what.startswith("picture "):
            return found
        names, rows = found
        return tuple(names), [tuple(row) for row in rows]

    def list_own_numbers(self, after: int = 0) -> list[int]:
        return [entry.statement_id for entry in self.walk(after + 1)]

    def spent_by_all(self) -> Spent:
        raise LedgerError("Only who keeps the ledger can add up what all were charged.")

    @property
    def last_row(self) -> int:
        raise LedgerError("Only who keeps the ledger knows its rows.")

    def under(self, accountant: str) -> Ledger:
        raise LedgerError("Only who keeps the ledger can count it in another way.", hint="SHOW ACCOUNTANTS")

    def for_analyst(self, analyst: str | None) -> Ledger:
        raise LedgerError("A worker answers one analyst.")

    def close(self) -> None:
        """Do nothing: the front closes the ledger, and settles what is open."""
