"""The readable side of an open ledger: what is left, what was charged, and the stored answers.

A stored answer is free, or for a debit of the analyst's own share, as the owner's policy says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Self, TypeVar

from dpsql.errors import BudgetExceeded, LedgerError
from dpsql.ledger import state_files, store
from dpsql.ledger.answers import ASKED, StoredRelease, check_release, hash_release, name_debit
from dpsql.ledger.budget_state import make_budget_state
from dpsql.ledger.store import LedgerStore, explain_replaced
from dpsql.ledger.terms import Terms
from dpsql.policy.model import Policy
from dpsql.privacy.accountants import Accountant, Spent, format_percent
from dpsql.privacy.events import Event
from dpsql.privacy.records import BudgetState, Entry

_T = TypeVar("_T")


class LedgerReader:
    """An open ledger, to be read.

    Args:
        book: the open ledger.
        policy: the owner's; None where the one in the log can't be read any more.
        analyst: who asks; None for somebody without a share of their own.
    """

    def __init__(self, book: LedgerStore, policy: Policy | None, analyst: str | None) -> None:
        self._book = book
        self.path = book.path
        self.warnings: tuple[str, ...] = ()
        """Faults of a ledger that is only read: it was rolled back, or another one took its place."""
        self.policy = policy
        self.analyst = analyst
        self._upgraded: bool | None = None

    # -- what is left, and what was charged -------------------------------------------------------

    def state(self, after: Iterable[Event] = (), debit: Event | None = None) -> BudgetState:
        """Return what is left of the whole and of the analyst's own share, as other sessions left it by now.

        Args:
            after: what would be left with these events charged as well, admitted or not.
            debit: the same of an event that the share alone is charged.

        Raises:
            LedgerError: the ledger can't be read, or was replaced since it was opened.
        """
        self._check_continued()
        with self._book.reading():
            return make_budget_state(self._book.account, self.policy, self.analyst, after, debit)

    def say_left(self) -> str:
        """Say what is left after what was settled last: the sentence of :meth:`state`, for people."""
        self._check_continued()
        with self._book.reading():  # the sentence needs no count of further statements
            return make_budget_state(self._book.account, None, self.analyst).sentence

    def find_excess(self, *events: Event, debit: Event | None = None) -> BudgetExceeded | None:
        """Return the error that reserving these events one after another would raise now; None if all fit.

        ``debit`` is what the analyst's share alone is charged.
        """
        with self._book.reading():
            return self._book.account.find_excess(self.analyst, *events, debit=debit)

    def say_rule(self, event: Event) -> str:
        """Say which part of the accountant's rule an event uses; empty without a rule."""
        held = self._book.account.filters(None)[0].filter
        used = held.used_by(event)
        return "" if used is None else f" It uses {format_percent(used)} of the {held.name} rule."

    def entries(self, last: int | None = None) -> list[Entry]:
        """Return every charge and refusal, in order; or the ``last`` ones.

        What has not ended is ``open``, or ``unsettled`` once its process died.

        Raises:
            LedgerError: the ledger can't be read, or was replaced since it was opened.
        """
        count = self.count
        return list(self.walk(1 if last is None else count - last + 1, count))

    def walk(self, first: int = 1, last: int | None = None) -> Iterator[Entry]:
        """Yield statements by their numbers, in order, with a page of them in memory.

        Raises:
            LedgerError: as for :meth:`entries`.
        """
        gone: dict[str, bool] = {}
        for entry in self._book.entries(first, self.count if last is None else last):
            if entry.outcome != "reserved":
                yield entry
                continue
            if entry.process not in gone:
                gone[entry.process] = store.is_certainly_gone(entry.process)
            yield replace(entry, outcome="unsettled" if gone[entry.process] else "open")

    @property
    def count(self) -> int:
        """The number of charges and refusals.

        Raises:
            LedgerError: as for :meth:`entries`.
        """
        self._check_continued()
        return self._book.current().count

    def tabulate(self, what: str, make: Callable[[Self], _T]) -> _T:
        """Make figures of everybody's statements. Who sees only their own statements has them made elsewhere, by their name.

        Args:
            what: the name of the figures.
            make: makes them of a whole ledger.
        """
        return make(self)

    @property
    def lasting(self) -> bool:
        """Tell whether the budget outlasts this process."""
        return self.path is not None

    @property
    def last_row(self) -> int:
        """The number of the log's last row: figures of another one may differ."""
        return self._book.current().seq

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences for the people who read the budget: a second ledger for these data, terms that were changed."""
        account = self._book.account
        kept = account.granted.accountant if account.granted else ""
        if kept == account.terms.accountant:
            return (*self.warnings, *account.notices)
        recount = f"counted as {account.terms.accountant} would have; the budget is kept by {kept}"
        return (*self.warnings, recount, *account.notices)

    @property
    def dataset(self) -> str:
        """The data set it belongs to."""
        return self.terms.dataset

    @property
    def accountant(self) -> Accountant:
        """The accountant of the whole budget, as this session counts: it says charges in its own currency."""
        return self._book.account.filters(None)[0].filter

    @property
    def terms(self) -> Terms:
        """The terms that rule this session."""
        return self._book.account.terms

    # -- stored answers ---------------------------------------------------------------------------

    def replay(self, key: str) -> StoredRelease | None:
        """Return the release that was paid for under this key, not logged; None when there is none.

        It is free, or says what this analyst's share has to be debited before it is shown.

        Raises:
            LedgerError: the stored release was changed.
        """
        with self._book.reading():
            found = self._book.answers.get(key)
            if found is None or found[1] is None:
                return None
            entry = self._book.find_entry(found[0])
            stored = check_release(entry, key, found[1])
            due = self.debits_shares and entry is not None and entry.analyst != self.analyst
            if not due or self._has_debited(key, stored.release):
                return stored
            return replace(stored, debit=stored.event)

    @property
    def holds_whole_statements(self) -> bool:
        """Tell whether an older version of dpsql wrote it first: whole statements' answers then stand under keys of their own."""
        if self._upgraded is None:
            self._upgraded = any(was is not None for was in self._book.hashes_at(1)[1:])
        return self._upgraded

    def find_debits(self, shown: Mapping[str, str]) -> dict[str, Event]:
        """Return what this analyst's share is to be debited for stored answers, by their keys; nothing for those that are free.

        Args:
            shown: digests of the answers that are to be shown, by the keys of their blocks.

        Raises:
            LedgerError: an answer was replaced or dropped since it was looked up.
        """
        due = {}
        for key, digest in shown.items():
            stored = self.replay(key)
            if stored is None or hash_release(stored.release) != digest:
                raise LedgerError("A stored answer was replaced meanwhile.", hint="run the statement again.")
            if stored.debit is not None:
                due[key] = stored.debit
        return due

    @property
    def debits_shares(self) -> bool:
        """Tell whether this analyst's share is debited for the stored answers of others."""
        own = self.policy is not None and self.policy.budget.answers == "own"
        return own and self.analyst in self.terms.shares

    def _has_debited(self, key: str, release: bytes) -> bool:
        """Tell whether this analyst's share was debited for these very bytes."""
        found = self._book.answers.get(name_debit(self.analyst, key))
        entry = None if found is None else self._book.find_entry(found[0])
        return (
            entry is not None
            and entry.analyst == self.analyst
            and entry.debited.get(key) == hash_release(release)
        )

    def find_dropped(self, key: str) -> Entry | None:
        """Return the statement whose answer was kept under a key, and dropped since to make room for others."""
        with self._book.reading():
            found = self._book.answers.get(key)
            return self._book.find_entry(found[0]) if found is not None and found[1] is None else None

    def asked(self, question: str) -> tuple[Entry, bytes] | None:
        """Return the last statement that answered a question, and what :class:`KeptReleases` noted of it then."""
        with self._book.reading():
            found = self._book.answers.get(ASKED + question)
            entry = self._book.find_entry(found[0]) if found is not None else None
        return None if found is None or found[1] is None or entry is None else (entry, found[1])

    # -- for one of several analysts --------------------------------------------------------------

    def list_own_numbers(self, after: int = 0) -> list[int]:
        """Return the numbers of this analyst's statements beyond a number, in order."""
        return self._book.list_statements(self.analyst or "", after)

    def spent_by_all(self) -> Spent:
        """Return the sums of everything that was charged to the whole."""
        with self._book.reading():
            return self._book.account.filters(None)[0].spent

    def _check_continued(self) -> None:
        """Refuse to show or charge a ledger that was rolled back while it was open: the mark was not."""
        if self.path is None or not self._book.charges:
            return
        told = explain_replaced(self.path, self._book, state_files.read_checkpoint(self.path))
        if told is not None:
            raise told
