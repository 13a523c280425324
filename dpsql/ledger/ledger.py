"""The ledger: reserve, then touch the data, then settle.

A reservation is on the disk before :meth:`Ledger.reserve` returns, and only then may data be read. It counts in full until
it is settled, even if the process dies. A settlement lowers it only by a proved rule; failure and interruption
lower nothing. The check and the debit happen under one write lock, so no two sessions, threads or processes spend the
same budget. The log stores events, not epsilons, so another accountant can read an old ledger.

A stored answer is free, or debited to the analyst's own share, as the owner's policy says.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import field, replace
from datetime import timedelta
from pathlib import Path
from typing import Self, TypeVar

from dpsql.errors import BindError, BudgetExceeded, LedgerError, PolicyError, PrivacyError, did_you_mean
from dpsql.late_dataclass import dataclass
from dpsql.ledger.accounts import Reservation, make_budget_state
from dpsql.ledger.answers import (
    ANSWERED,
    ASKED,
    DEFINED,
    LARGEST_RELEASE,
    PublishedRelease,
    StoredRelease,
    check_published,
    check_release,
    hash_release,
    name_debit,
)
from dpsql.ledger.log_file import (
    OUTCOMES,
    START,
    Row,
    create_ledger_file,
    format_now,
    link_row,
    saying_charged,
    saying_uncharged,
)
from dpsql.ledger.state_files import (
    Checkpoint,
    enter_register,
    explain_missing,
    hold_releases,
    leave_register,
    place_side_file,
    read_checkpoint,
    write_adopt,
    write_checkpoint,
)
from dpsql.ledger.store import (
    LedgerStore,
    explain_replaced,
    find_existing,
    find_replaced,
    get_user,
    is_certainly_gone,
)
from dpsql.ledger.terms import Terms
from dpsql.policy.model import Policy
from dpsql.privacy.accountants import Accountant, Spent
from dpsql.privacy.amounts import format_percent
from dpsql.privacy.events import Event, compose_events
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.privacy.periods import Days, list_periods, split_event, unite
from dpsql.privacy.records import BudgetState, Entry

__all__ = ["BudgetState", "Entry", "KeptReleases", "Ledger", "Ticket"]

_TEXT_LIMIT = 100_000
_T = TypeVar("_T")


@dataclass(frozen=True)
class Ticket:
    """The right to touch the data once: an open reservation. It contains nothing about the data."""

    statement_id: int
    event: Event
    ledger_id: str
    _ledger: Ledger = field(repr=False, compare=False)

    def update(self, event: Event) -> None:
        """Record durably the progress of an interactive threshold; call it *before* the answer leaves.

        Call it once after DECLARE (no hits) and before each answer, positive or negative. The reservation stays charged in
        full. If this process dies, the next session settles it to the last recorded event.

        Raises:
            LedgerError: not written, not within the reservation, less than before, or settled already.
        """
        self._ledger.note_progress(self, event)


@dataclass(frozen=True)
class KeptReleases:
    """The private blocks of a statement, as a settlement stores them.

    ``releases`` are bytes by the blocks' keys. ``questions`` record each question's subject, so that a later session can explain
    why an answer is not stored. ``events`` are the losses of the blocks, if there are several.
    """

    releases: Mapping[str, bytes] = field(default_factory=dict)
    questions: Mapping[str, bytes] = field(default_factory=dict)
    events: Mapping[str, Event] = field(default_factory=dict)


class Ledger:
    """An open ledger. Safe for threads, processes and forks; made by :meth:`open`.

    ``policy`` is None if the one in the log can't be read any more; ``analyst`` is None without a share of their own.
    """

    def __init__(self, book: LedgerStore, policy: Policy | None, analyst: str | None = None) -> None:
        self._book = book
        self.path = book.path
        self.warnings: tuple[str, ...] = ()
        """Faults of a ledger that is only read: it was rolled back or replaced."""
        self.policy = policy
        self.analyst = analyst

    # -- opening ----------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | Path | None,
        policy: Policy,
        dataset: str,
        analyst: str | None = None,
        *,
        timeout: float = 30.0,
    ) -> Ledger:
        """Open the ledger of a policy and a data set; create it if there never was one.

        Args:
            path: the file; None keeps the ledger in memory: the budget lasts for this process only.
            policy: the owner's policy. It may be tighter than the ledger's grant, never looser (see :mod:`dpsql.ledger.terms`).
            dataset: a name of the data that does not change while the same people are in them.
            analyst: the analyst who asks. Their share and the whole must both admit.
            timeout: seconds to wait for another process that is writing.

        Raises:
            LedgerError: the file can't be read, written or trusted, is gone, or belongs to other terms.
        """
        analyst = _find_analyst(policy, analyst)
        terms = Terms.of(policy, dataset)
        where = None if path is None else Path(path).expanduser().resolve()
        first = _first(terms)
        if where is None:
            keep = policy.ledger.answer_bytes
            return cls(LedgerStore(None, terms, first=first, keep_answers=keep), policy, analyst)
        if not where.exists():
            gone = explain_missing(where)
            if gone and not where.exists():  # not created meanwhile by another process
                raise gone
            create_ledger_file(where, first)
        keep = policy.ledger.answer_bytes
        ledger = cls(LedgerStore(where, terms, timeout=timeout, keep_answers=keep), policy, analyst)
        try:
            ledger._begin(where, terms)
        except BaseException:
            ledger.close()
            raise
        return ledger

    @classmethod
    def read(cls, path: str | Path) -> Ledger:
        """Open a ledger to read only, under its own terms and policy, even if it was rolled back (see :attr:`warnings`)."""
        where = find_existing(path)
        book = LedgerStore(where, None, read_only=True)
        try:
            ledger = cls(book, _policy_kept(book.current().policy))
            replaced = find_replaced(where, book)
            ledger.warnings = (replaced.message,) if replaced else ()
            return ledger
        except BaseException:
            book.close()
            raise

    def for_analyst(self, analyst: str | None) -> Ledger:
        """Return this open ledger for another analyst; LedgerError without a share. Closing one closes the file for all."""
        if self.policy is not None:
            analyst = _find_analyst(self.policy, analyst)
        return Ledger(self._book, self.policy, analyst)

    def under(self, accountant: str) -> Ledger:
        """Return a copy to read, whose events another accountant counts; LedgerError for an unknown accountant."""
        if accountant not in ACCOUNTANTS:
            raise LedgerError(
                f"There is no accountant {accountant!r}.", hint=did_you_mean(accountant, ACCOUNTANTS)
            )
        copy = Ledger(self._book.copy(replace(self.terms, accountant=accountant)), self.policy, self.analyst)
        copy.path, copy.warnings = self.path, self.warnings
        copy._book.current()
        return copy

    @classmethod
    def adopt(cls, path: str | Path, policy: Policy, dataset: str, *, fresh: bool = False) -> tuple[str, ...]:
        """Record the owner's decision that a ledger continues under other terms, or although it was replaced.

        The log records the changes, the time and the user. With ``fresh`` a missing ledger is begun anew: that is a new budget
        for the same data, and the register keeps warning about it. Returns the changes; those with ``WARNING`` protect less.
        """
        where = Path(path).expanduser().resolve()
        if fresh and not where.exists():
            with suppress(OSError):
                place_side_file(where, "mark").unlink()
            cls.open(where, policy, dataset).close()
            return ("a new ledger was begun",)
        with closing(LedgerStore(find_existing(where), None)) as book:
            account = book.current()
            terms, granted = Terms.of(policy, dataset), account.terms
            changes = granted.grants(terms, adopting=True)
            if find_replaced(where, book):
                changes.append("this copy was put in place of a newer or another one")
                leave_register(where, account.ledger_id)
            if changes:
                body = {"terms": granted.adopting(terms).to_json(), "changes": changes, "user": book.user}
                with book.writing() as (write, _):
                    write("adopt", 0, body)
            return (*changes, *(f"WARNING: {text}" for text in granted.list_weaker(terms)))

    def _begin(self, path: Path, terms: Terms) -> None:
        """Check the ledger's owner and terms, settle reservations of dead processes, and enter it into the register."""
        account = self._book.current()
        replaced = find_replaced(path, self._book)
        if replaced:
            raise replaced
        wants = account.granted.grants(terms) if account.granted else []
        if wants:
            raise LedgerError(
                f"The ledger {path} was opened for other terms: {'; '.join(wants)}.",
                hint="give the right ledger or policy. Only the data owner may change the terms: "
                f"{write_adopt(path)}. Spent budget stays spent.",
            )
        if account.policy != terms.policy:  # a harmless change: the report shows the current policy
            self._try_write("policy", {"policy": terms.policy})
        gone = {process: is_certainly_gone(process) for process in {r.process for r in account.open.values()}}
        for held in list(account.open.values()):
            if held.progress and gone[held.process]:
                with suppress(LedgerError):
                    self._settle(held.statement, held.progress, KeptReleases(), "interrupted")()
        if self._book.checkpoint_is_due:
            with suppress(LedgerError), self._book.writing(durable=False):
                pass  # writes a checkpoint, so the next opening reads less
        mark = read_checkpoint(path)
        if mark is None or mark.ledger != account.ledger_id:
            first = Checkpoint(account.ledger_id, 1, str(self._book.hashes_at(1)[0]))
            if mark is None:
                write_checkpoint(path, first)
            mark = first
        for text in enter_register(path, terms.dataset, mark):
            if text not in account.notices:
                self._try_write("notice", {"text": text})

    # -- the three steps --------------------------------------------------------------------------

    def reserve(self, event: Event, text: str, shown: Mapping[str, str] | None = None) -> Ticket:
        """Charge an event before the data are touched. The charge is on the disk when this returns.

        Args:
            event: the greatest loss of the statement.
            text: the statement, for the log.
            shown: digests of the stored answers that the statement shows, by the keys of their blocks. The analyst's share is
                debited once for those of other analysts, if the policy says so.

        Raises:
            BudgetExceeded: the whole, or the analyst's share, has less left. Nothing is charged.
            LedgerError: the charge could not be made durable. The data must not be touched.
        """
        number = self._charge(event, text, shown or {})
        assert number is not None
        return Ticket(number, event, self._book.account.ledger_id, self)

    def debit(self, text: str, shown: Mapping[str, str]) -> int | None:
        """Charge an analyst's share only, for stored answers of others, and return the statement's number, if anything is due.

        The charge is on the disk when this returns. ``shown`` is as for :meth:`reserve`.

        Raises:
            BudgetExceeded: the share has less left; nothing is charged.
            LedgerError: the charge could not be made durable, or an answer was replaced. None must be shown.
        """
        return self._charge(None, text, shown)

    def _check_periods(self, event: Event) -> None:
        """Raise LedgerError for an event of other periods than the policy's: so there are no more stretches than periods."""
        days = unite(pair for part in split_event(event) for pair in list_periods(part) or ())
        if not days:
            return
        tomorrow = None if self.policy is None else self.policy.today + timedelta(days=1)  # of another clock
        if tomorrow is None or self.policy is None or not self.policy.has_periods(days, tomorrow):
            raise LedgerError(
                "The statement reads periods that the policy doesn't have; nothing was charged."
            )

    def _charge(self, event: Event | None, text: str, shown: Mapping[str, str]) -> int | None:
        self._check_continued()
        if event is not None:
            self._check_periods(event)
        with saying_uncharged(), self._book.writing() as (write, _):
            account, said = self._book.account, {"text": text[:_TEXT_LIMIT]}
            account.check_periods()
            number, due = account.count + 1, self.find_debits(shown)
            if event is None and not due:
                return None
            debit = compose_events(due.values()) if due else None
            refusal = account.find_excess(self.analyst, *([] if event is None else [event]), debit=debit)
            if refusal is None and event is not None:
                body = {"process": self._book.process, "event": event.to_json()}
                write("reserve", number, self._who() | body, said)
            if refusal is None and debit is not None:
                blocks = {"blocks": {key: shown[key] for key in due}}
                write("debit", number, self._who() | {"event": debit.to_json()}, said | blocks)
        if refusal is not None:
            raise refusal
        if due:
            with suppress(LedgerError):  # asking again is charged
                self._keep_answers({name_debit(self.analyst, key): b"" for key in due}, number)
        return number

    def settle(self, ticket: Ticket, event: Event, kept: KeptReleases | None, outcome: str) -> None:
        """End a reservation: record the event that was used, and store the releases of the private blocks.

        :meth:`begin_settling` does the first step alone.

        Args:
            ticket: the result of :meth:`reserve`.
            event: the reserved event, or a cheaper one by the mechanism's rule. Counts only with ``released``.
            kept: released values, never exact ones. Values above a gigabyte are not stored: asking again is charged.
            outcome: ``released``, ``failed`` or ``interrupted``.

        Raises:
            LedgerError: settled before, more used than reserved, or not written. The reservation stays charged, on the disk.
        """
        keep = self.begin_settling(ticket, event, kept, outcome)
        with suppress(LedgerError):  # asking again is charged
            keep()

    def begin_settling(
        self, ticket: Ticket, event: Event, kept: KeptReleases | None, outcome: str
    ) -> Callable[[], None]:
        """End a reservation as :meth:`settle` does, and return a function that stores its releases, which may run later.

        Raises:
            LedgerError: as for :meth:`settle`; from the function if the releases can't be stored.
        """
        if outcome not in OUTCOMES:
            raise ValueError(f"outcome must be one of {', '.join(OUTCOMES)}, not {outcome!r}")
        if ticket.ledger_id != self._book.account.ledger_id:
            raise LedgerError("This reservation was made in another ledger.")
        if not event.is_within(ticket.event):
            raise _more()
        if outcome != "released":
            event, kept = ticket.event, None
        with saying_charged(lambda: self.accountant.write_charge(ticket.event)):
            return self._settle(ticket.statement_id, event, kept or KeptReleases(), outcome)

    def settle_left(self, ticket: Ticket) -> Event:
        """End the reservation of a process that died, and return the charge: a threshold's last progress, else the whole."""
        with self._book.reading():
            held = self._require_open(ticket.statement_id)
        used = held.progress or ticket.event
        self._settle(ticket.statement_id, used, KeptReleases(), "interrupted")
        return used

    def refuse(self, text: str, reason: str, event: Event | None = None) -> None:
        """Log a refused statement, at no cost. A failure to write is ignored, since the analyst's own error matters more."""
        body = {"event": None if event is None else event.to_json()}
        said = {"text": text[:_TEXT_LIMIT], "reason": reason}
        with suppress(LedgerError), self._book.writing(durable=False) as (write, _):
            write("refuse", self._book.account.count + 1, self._who() | body, said)

    def note_progress(self, ticket: Ticket, event: Event) -> None:
        """Record durably the progress of an interactive threshold; see :meth:`Ticket.update`."""
        with self._book.writing() as (write, _):
            held = self._require_open(ticket.statement_id)
            if not event.is_within(ticket.event):
                raise _more()
            if held.progress is not None and event.basic[0] < held.progress.basic[0]:
                raise LedgerError("The progress of an interactive threshold can't decrease.")
            write("progress", ticket.statement_id, {"event": event.to_json()})

    def _settle(self, number: int, event: Event, kept: KeptReleases, outcome: str) -> Callable[[], None]:
        releases = {key: r for key, r in kept.releases.items() if len(r) <= LARGEST_RELEASE}
        body: dict[str, object] = {"outcome": outcome, "event": event.to_json()}
        said: dict[str, object] = {
            "blocks": {key: hash_release(release) for key, release in releases.items()}
        }
        if len(releases) > 1:  # a single block's loss is the statement's event
            said["parts"] = {key: kept.events[key].to_json() for key in releases if key in kept.events}
        with self._book.writing(durable=False) as (write, _):
            self._require_open(number)
            write("settle", number, body, said if releases else None)
        asked = {ASKED + question: items for question, items in kept.questions.items()}
        return lambda: self._keep_answers({**releases, **asked}, number)

    def _keep_answers(self, kept: Mapping[str, bytes], number: int) -> None:
        """Store bytes of a statement whose charge is on the disk; LedgerError if that fails."""
        with self._book.reading():
            self._book.answers.put(kept, number)

    def _require_open(self, number: int) -> Reservation:
        """Return an open reservation; LedgerError if it was settled."""
        held = self._book.account.open.get(number)
        if held is None:
            entry = self._book.find_entry(number)
            raise LedgerError(
                f"Statement {number} was settled already ({entry.outcome if entry else 'in another copy'})."
            )
        return held

    # -- the budget and the statements ------------------------------------------------------------

    def state(self, after: Iterable[Event] = (), debit: Event | None = None) -> BudgetState:
        """Return the remaining budget of the whole and of the analyst's share, with other sessions' charges so far.

        ``after``: further events, counted as if they were charged; ``debit``: one that is charged to the share only. LedgerError
        if the ledger can't be read, or was replaced since it was opened.
        """
        self._check_continued()
        with self._book.reading():
            account, domain = self._book.account, self._find_domain()
            return make_budget_state(account, self.policy, self.analyst, after, debit, domain)

    def say_left(self, event: Event | None = None) -> str:
        """Return the sentence of :meth:`state` after the last settlement, for the periods of an ``event``, or for all (None)."""
        self._check_continued()
        with self._book.reading():  # the sentence needs no number of further statements
            domain, asked = self._find_domain(), None if event is None else list_periods(event)
            state = make_budget_state(self._book.account, None, self.analyst, domain=domain, asked=asked)
            return state.sentence

    def _find_domain(self) -> Days | None:
        """Return the days of the tables with a budget per period; None if unknown."""
        today = None if self.policy is None else self.policy.today_per_period
        return None if self.policy is None or today is None else self.policy.find_domain(today)

    def find_excess(self, *events: Event, debit: Event | None = None) -> BudgetExceeded | None:
        """Return the error that reserving these events in order, and a ``debit`` of the share, would raise now; else None."""
        with self._book.reading():
            return self._book.account.find_excess(self.analyst, *events, debit=debit)

    def say_rule(self, event: Event) -> str:
        """Return the sentence about the part of the accountant's rule that an event uses; empty without a rule."""
        held = self._book.account.filters(None)[0].filter
        used = held.used_by(event)
        return "" if used is None else f" It uses {format_percent(used)} of the {held.name} rule."

    def entries(self, last: int | None = None) -> list[Entry]:
        """Return all charges and refusals in order, or the ``last`` ones; LedgerError as for :meth:`state`."""
        count = self.count
        return list(self.walk(1 if last is None else count - last + 1, count))

    def walk(self, first: int = 1, last: int | None = None) -> Iterator[Entry]:
        """Yield statements by number, in order, with one page of them in memory."""
        gone: dict[str, bool] = {}
        for entry in self._book.entries(first, self.count if last is None else last):
            if entry.outcome != "reserved":
                yield entry
                continue
            if entry.process not in gone:
                gone[entry.process] = is_certainly_gone(entry.process)
            yield replace(entry, outcome="unsettled" if gone[entry.process] else "open")

    @property
    def count(self) -> int:
        """The number of charges and refusals."""
        self._check_continued()
        return self._book.current().count

    def tabulate(self, what: str, make: Callable[[Self], _T]) -> _T:
        """Compute figures over all analysts' statements. In a worker, the server computes them by their name, ``what``."""
        return make(self)

    @property
    def lasting(self) -> bool:
        """Whether the budget outlasts this process."""
        return self.path is not None

    @property
    def last_row(self) -> int:
        """The number of the log's last row; cached figures are valid while it is unchanged."""
        return self._book.current().seq

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences for people who read the budget: a second ledger for these data, terms that were changed."""
        account = self._book.account
        kept = account.granted.accountant if account.granted else ""
        if kept == account.terms.accountant:
            return (*self.warnings, *account.notices)
        recount = f"counted as {account.terms.accountant} would have; the budget is kept by {kept}"
        return (*self.warnings, recount, *account.notices)

    @property
    def dataset(self) -> str:
        """The data set of the ledger."""
        return self.terms.dataset

    @property
    def accountant(self) -> Accountant:
        """The accountant of the whole budget in this session."""
        return self._book.account.filters(None)[0].filter

    @property
    def terms(self) -> Terms:
        """The terms that rule this session."""
        return self._book.account.terms

    # -- stored answers ---------------------------------------------------------------------------

    def replay(self, key: str) -> StoredRelease | None:
        """Return the release that was paid for under this key, not logged; None if there is none.

        It is free, or has the debit to this analyst's share that must be charged first. LedgerError if it was changed.
        """
        return self.replay_all([key]).get(key)

    def replay_all(self, keys: Sequence[str]) -> dict[str, StoredRelease]:
        """Return the releases that were paid for under some of these keys, as :meth:`replay` does."""
        with self._book.reading():
            found = self._book.answers.get_all(keys)
            entries = self._book.find_entries({number for number, held in found.values() if held is not None})
            stored = {
                key: check_release(entries[number], key, held)
                for key, (number, held) in found.items()
                if held is not None
            }
            for key, one in stored.items() if self.debits_shares else ():
                if one.analyst != self.analyst and not self._has_debited(key, one.release):
                    stored[key] = replace(one, debit=one.event)
            return stored

    def find_debits(self, shown: Mapping[str, str]) -> dict[str, Event]:
        """Return the debits to this analyst's share for stored answers, by their keys; free answers have none.

        ``shown``: the answers' digests by key. LedgerError if one was replaced or dropped since it was looked up.
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
        """Whether this analyst's share is debited for the stored answers of others."""
        own = self.policy is not None and self.policy.budget.answers == "own"
        return own and self.analyst in self.terms.shares

    def _has_debited(self, key: str, release: bytes) -> bool:
        """Return whether this analyst's share was debited for these bytes."""
        found = self._book.answers.get(name_debit(self.analyst, key))
        entry = None if found is None else self._book.find_entry(found[0])
        return (
            entry is not None
            and entry.analyst == self.analyst
            and entry.debited.get(key) == hash_release(release)
        )

    def find_dropped(self, key: str) -> Entry | None:
        """Return the statement whose answer under a key was dropped to make room."""
        with self._book.reading():
            found = self._book.answers.get(key)
            return self._book.find_entry(found[0]) if found is not None and found[1] is None else None

    def asked(self, question: str) -> tuple[Entry, bytes] | None:
        """Return the last statement that answered a question, and the bytes that :class:`KeptReleases` recorded."""
        with self._book.reading():
            found = self._book.answers.get(ASKED + question)
            entry = self._book.find_entry(found[0]) if found is not None else None
        return None if found is None or found[1] is None or entry is None else (entry, found[1])

    # -- releases -----------------------------------------------------------------------------------

    def check_publisher(self) -> None:
        """Raise PrivacyError unless this analyst may create, refresh and drop releases. Every such request asks here."""
        if self.policy is not None and not self.policy.may_publish(self.analyst):
            raise PrivacyError(
                f"{self.analyst} may not create, refresh or drop releases, which all analysts read.",
                hint=f"ask the data owner, whose policy may say [analysts.{self.analyst}] releases = true.",
            )

    def publish(
        self, name: str, text: str, contents: tuple[bytes, bytes] | None, over: str | None = None
    ) -> None:
        """Store a release's definition and its answer, in place of the earlier ones; None drops the release.

        Args:
            name: its folded name.
            text: the statement, for the log.
            over: the digest of the definition that is there; empty if there must be none, None for whichever there is.

        Raises:
            PrivacyError: the analyst may not.
            BindError: the release was made, changed or dropped meanwhile.
            LedgerError: not written; the earlier release stays.
        """
        self.check_publisher()
        self._check_continued()
        if sum(map(len, contents or ())) > LARGEST_RELEASE:
            raise LedgerError("The answer is too large for a release.", hint="aggregate it further.")
        kept = dict(zip((DEFINED + name, ANSWERED + name), contents or (), strict=False))
        with self._book.writing() as (write, _):
            there = self._book.answers.get(DEFINED + name)
            if over is not None and over != ("" if there is None else hash_release(there[1] or b"")):
                raise BindError(
                    f"the release {name} was made, changed or dropped meanwhile.",
                    hint="write SHOW RELEASES: it lists all.",
                )
            said = {"text": text[:_TEXT_LIMIT], "blocks": {key: hash_release(c) for key, c in kept.items()}}
            number = self._book.account.count + 1
            write("publish", number, self._who() | {"event": None}, said)
        with self._book.reading():
            if contents is None:
                self._book.answers.remove((DEFINED + name, ANSWERED + name))
            else:
                self._book.answers.put(kept, number)

    def find_release(self, name: str) -> PublishedRelease | None:
        """Return a release by its folded name; LedgerError if it was changed outside dpsql."""
        with self._book.reading():
            contents = self._book.answers.get_release(name)
            if not contents:
                return None
            statement, definition = contents.get(DEFINED + name, (0, b""))
            entry, answer = self._book.find_entry(statement), contents.get(ANSWERED + name, (0, b""))[1]
            check_published(entry, DEFINED + name, definition)
            check_published(entry, ANSWERED + name, answer)
        assert entry is not None
        return PublishedRelease(definition, answer, entry.when)

    @contextmanager
    def hold_releases(self, wait: Callable[[], None]) -> Iterator[None]:
        """Restrict the drawing of releases within the block to one session at a time; ``wait`` is called until no other draws."""
        with nullcontext() if self.path is None else hold_releases(self.path, wait):
            yield

    def list_releases(self) -> list[str]:
        """Return the folded names of the releases, the first made first."""
        with self._book.reading():
            return self._book.answers.list_names()

    # -- for one of several analysts --------------------------------------------------------------

    def list_own_numbers(self, after: int = 0) -> list[int]:
        """Return the numbers of this analyst's statements after a number, in order."""
        return self._book.list_statements(self.analyst or "", after)

    def spent_by_all(self) -> Spent:
        """Return the sums of all charges to the whole."""
        with self._book.reading():
            return self._book.account.filters(None)[0].spent

    def _check_continued(self) -> None:
        """Raise an error if the ledger was rolled back while it was open: the mark shows it."""
        if self.path is None or not self._book.charges:
            return
        told = explain_replaced(self.path, self._book, read_checkpoint(self.path))
        if told is not None:
            raise told

    # -- the end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file. Open reservations stay charged."""
        self._book.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _who(self) -> dict[str, object]:
        return {"analyst": self.analyst or "", "user": self._book.user}

    def _try_write(self, kind: str, body: dict[str, object]) -> None:
        """Write a row that charges nothing. Failures are ignored: a charge would raise them."""
        with suppress(LedgerError), self._book.writing(durable=False) as (write, _):
            write(kind, 0, body)


def _find_analyst(policy: Policy, analyst: str | None) -> str | None:
    """Return an analyst's name in the policy's spelling; LedgerError if the policy gives shares, but none to them."""
    if analyst is None or not policy.analysts:
        return analyst
    known = policy.find_analyst(analyst)
    if known is None:
        raise LedgerError(
            f"The policy gives no share to {analyst!r}.", hint=did_you_mean(analyst, policy.analysts)
        )
    return known


def _first(terms: Terms) -> Row:
    body = {"ledger": secrets.token_hex(16), "terms": terms.to_json(), "user": get_user()}
    return link_row(START, 1, "open", 0, format_now(), body)


def _policy_kept(text: str) -> Policy | None:
    """Read the policy in the log; None if this version of dpsql does not accept it any more."""
    try:
        return Policy.loads(text)
    except PolicyError:
        return None


def _more() -> LedgerError:
    return LedgerError("More was used than was reserved; nothing may be released. The charge stays.")
