"""The ledger: what was charged to whom for what. Reserve, then touch, then settle.

A reservation is on the disk before :meth:`Ledger.reserve` returns, and only then may data be read. It counts
in full until it is settled, whatever happens to the process. Settling can lower it only by a proved rule;
failure and interruption lower nothing. The check and the debit happen under one write lock, so no two
sessions, threads or processes spend the same budget. Events are stored, not epsilons: another accountant can
read an old ledger.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from dpsql.errors import LedgerError, PolicyError, did_you_mean
from dpsql.ledger import log_file, state_files, store
from dpsql.ledger.accounts import Reservation
from dpsql.ledger.answers import (
    ASKED,
    LARGEST_RELEASE,
    hash_release,
    name_debit,
)
from dpsql.ledger.budget_state import BudgetState
from dpsql.ledger.entries import OUTCOMES, Entry
from dpsql.ledger.log_file import START, Row, link_row
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.state_files import Checkpoint
from dpsql.ledger.store import LedgerStore, find_existing, find_replaced, format_now
from dpsql.ledger.terms import Terms
from dpsql.ledger.tickets import KeptReleases, Ticket
from dpsql.policy.model import Policy
from dpsql.privacy.events import Event, compose_events
from dpsql.privacy.filters import ACCOUNTANTS

__all__ = ["BudgetState", "Entry", "KeptReleases", "Ledger", "Ticket"]

_TEXT_LIMIT = 100_000


class Ledger(LedgerReader):
    """An open ledger. Safe for threads, processes and forks; made by :meth:`open`."""

    def __init__(self, book: LedgerStore, policy: Policy | None, analyst: str | None = None) -> None:
        super().__init__(book, policy, analyst)

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
        """Open the ledger of a policy and a data set; make it when there never was one.

        Args:
            path: the file; None keeps the ledger in memory: the budget lasts for this process only.
            policy: the owner's policy. It may be tighter than what the ledger grants, never looser
                (see :mod:`dpsql.ledger.terms`).
            dataset: a name of the data that stays the same while the same people are in them.
            analyst: who asks. A share of this name and the whole must both hold.
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
            gone = state_files.explain_missing(where)
            if gone and not where.exists():  # not just made by another process
                raise gone
            log_file.create_ledger_file(where, first)
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
        """Open a ledger to read only, under its own terms and policy: for the owner's report.

        One that was rolled back or replaced can still be read; :attr:`warnings` say so.

        Raises:
            LedgerError: there is no such ledger, or it can't be trusted.
        """
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
        """Return the same open ledger for another analyst. The file is closed once, for all of them.

        Raises:
            LedgerError: the policy gives them no share.
        """
        if self.policy is not None:
            analyst = _find_analyst(self.policy, analyst)
        return Ledger(self._book, self.policy, analyst)

    def under(self, accountant: str) -> Ledger:
        """Copy the ledger, to be read only, with the same events as another accountant would have counted them.

        Raises:
            LedgerError: there is no such accountant.
        """
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
        """Record the owner's word that a ledger goes on under other terms, or although it was replaced.

        The log then says what changed, when, and by which user. With ``fresh`` a ledger that is gone is begun anew:
        that is a new budget for the same data, and the register keeps saying so.

        Returns:
            What changed, in sentences; those that begin with ``WARNING`` say where less is protected.
        """
        where = Path(path).expanduser().resolve()
        if fresh and not where.exists():
            with suppress(OSError):
                state_files.checkpoint_path(where).unlink()
            cls.open(where, policy, dataset).close()
            return ("a new ledger was begun",)
        book = LedgerStore(find_existing(where), None)
        try:
            account = book.current()
            terms, granted = Terms.of(policy, dataset), account.terms
            changes = granted.grants(terms, adopting=True)
            if find_replaced(where, book):
                changes.append("this copy was put in place of a newer or another one")
                state_files.leave_register(where, account.ledger_id)
            if changes:
                body = {"terms": granted.adopting(terms).to_json(), "changes": changes, "user": book.user}
                with book.writing() as (write, _):
                    write("adopt", 0, body)
            return (*changes, *(f"WARNING: {text}" for text in granted.list_weaker(terms)))
        finally:
            book.close()

    def _begin(self, path: Path, terms: Terms) -> None:
        """Check whose ledger this is, close what dead processes left open, and enter it into the register."""
        account = self._book.current()
        replaced = find_replaced(path, self._book)
        if replaced:
            raise replaced
        wants = account.granted.grants(terms) if account.granted else []
        if wants:
            raise LedgerError(
                f"The ledger {path} was opened for other terms: {'; '.join(wants)}.",
                hint=f"give the right ledger or policy. Only the data owner may change the terms: {_write_adopt(path)}. What was "
                "spent stays spent.",
            )
        if account.policy != terms.policy:  # a harmless change: the report shows the policy that holds
            self._try_write("policy", {"policy": terms.policy})
        gone = {
            process: store.is_certainly_gone(process)
            for process in {r.process for r in account.open.values()}
        }
        for held in list(account.open.values()):
            if held.progress and gone[held.process]:
                with suppress(LedgerError):
                    self._settle(held.statement, held.progress, KeptReleases(), "interrupted")()
        if self._book.checkpoint_is_due:
            with suppress(LedgerError), self._book.writing(durable=False):
                pass  # the next one to open it need not read all of this again
        mark = state_files.read_checkpoint(path)
        if mark is None or mark.ledger != account.ledger_id:
            first = Checkpoint(account.ledger_id, 1, str(self._book.hashes_at(1)[0]))
            if mark is None:
                state_files.write_checkpoint(path, first)
            mark = first
        for text in state_files.enter_register(path, terms.dataset, mark):
            if text not in account.notices:
                self._try_write("notice", {"text": text})

    # -- the three steps --------------------------------------------------------------------------

    def reserve(self, event: Event, text: str, shown: Mapping[str, str] | None = None) -> Ticket:
        """Charge an event before the data are touched. The charge is on the disk when this returns.

        Args:
            event: what will happen, at most.
            text: the statement, for the log.
            shown: digests of the stored answers that the same statement shows, by the keys of their blocks: this analyst's
                share is debited for those of others, where the policy says so, once.

        Raises:
            BudgetExceeded: it costs more than is left of the whole, or of the analyst's share. Nothing is
                charged.
            LedgerError: the charge could not be made durable. The data must not be touched.
        """
        number = self._charge(event, text, shown or {})
        assert number is not None
        return Ticket(number, event, self._book.account.ledger_id, self)

    def debit(self, text: str, shown: Mapping[str, str]) -> int | None:
        """Charge an analyst's share alone, for stored answers that others paid for. The charge is on the disk on return.

        Args:
            text: the statement, for the log.
            shown: as for :meth:`reserve`.

        Returns:
            The number of the statement; None where nothing is due.

        Raises:
            BudgetExceeded: it costs more than is left of the share; nothing is charged.
            LedgerError: the charge could not be made durable, or an answer was replaced. None must be shown.
        """
        return self._charge(None, text, shown)

    def _charge(self, event: Event | None, text: str, shown: Mapping[str, str]) -> int | None:
        self._check_continued()
        with log_file.saying_uncharged(), self._book.writing() as (write, _):
            account, said = self._book.account, {"text": text[:_TEXT_LIMIT]}
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
            self._keep_answers({name_debit(self.analyst, key): b"" for key in due}, number)
        return number

    def settle(self, ticket: Ticket, event: Event, kept: KeptReleases | None, outcome: str) -> None:
        """End a reservation: record what was really used, and keep the releases of its private blocks.

        :meth:`begin_settling` does the first of the two alone.

        Args:
            ticket: what :meth:`reserve` gave.
            event: the reserved event, or a cheaper one as the mechanism says. Counts only with ``released``.
            kept: released values, never anything exact. What is more than SQLite can hold (a gigabyte) is not kept: then
                asking again is a new answer, which is charged.
            outcome: ``released``, ``failed`` or ``interrupted``.

        Raises:
            LedgerError: settled before, more used than reserved, or not written: what was reserved stays
                charged, and that charge is on the disk.
        """
        self.begin_settling(ticket, event, kept, outcome)()

    def begin_settling(
        self, ticket: Ticket, event: Event, kept: KeptReleases | None, outcome: str
    ) -> Callable[[], None]:
        """End a reservation as :meth:`settle` does, and return what keeps its releases: nobody need wait for that.

        Raises:
            LedgerError: as for :meth:`settle`.
        """
        if outcome not in OUTCOMES:
            raise ValueError(f"outcome must be one of {', '.join(OUTCOMES)}, not {outcome!r}")
        if ticket.ledger_id != self._book.account.ledger_id:
            raise LedgerError("This reservation was made in another ledger.")
        if not event.is_within(ticket.event):
            raise _more()
        if outcome != "released":
            event, kept = ticket.event, None
        with log_file.saying_charged(self.accountant.write_charge(ticket.event)):
            return self._settle(ticket.statement_id, event, kept or KeptReleases(), outcome)

    def settle_left(self, ticket: Ticket) -> Event:
        """End a reservation whose holder died, and return the charge: a threshold's last progress, all else in full.

        Raises:
            LedgerError: settled before, or not written: what was reserved stays charged.
        """
        with self._book.reading():
            held = self._require_open(ticket.statement_id)
        used = held.progress or ticket.event
        self._settle(ticket.statement_id, used, KeptReleases(), "interrupted")()
        return used

    def refuse(self, text: str, reason: str, event: Event | None = None) -> None:
        """Log a refused statement, at no cost: the owner's best sign that a bound is missing.

        Best effort: the analyst's own error matters more than a log line, so a failure to write is not
        raised.
        """
        body = {"event": None if event is None else event.to_json()}
        said = {"text": text[:_TEXT_LIMIT], "reason": reason}
        with suppress(LedgerError), self._book.writing(durable=False) as (write, _):
            write("refuse", self._book.account.count + 1, self._who() | body, said)

    def note_progress(self, ticket: Ticket, event: Event) -> None:
        """Note durably how far an interactive threshold came: :meth:`Ticket.update`."""
        with self._book.writing() as (write, _):
            held = self._require_open(ticket.statement_id)
            if not event.is_within(ticket.event):
                raise _more()
            if held.progress is not None and event.basic[0] < held.progress.basic[0]:
                raise LedgerError("An interactive threshold can't take back what it has told.")
            write("progress", ticket.statement_id, {"event": event.to_json()})

    def _settle(self, number: int, event: Event, kept: KeptReleases, outcome: str) -> Callable[[], None]:
        releases = {key: r for key, r in kept.releases.items() if len(r) <= LARGEST_RELEASE}
        body: dict[str, Any] = {"outcome": outcome, "event": event.to_json()}
        said: dict[str, Any] = {"blocks": {key: hash_release(release) for key, release in releases.items()}}
        if len(releases) > 1:  # what one block lost is the statement's event
            said["parts"] = {key: kept.events[key].to_json() for key in releases if key in kept.events}
        with self._book.writing(durable=False) as (write, _):
            self._require_open(number)
            write("settle", number, body, said if releases else None)
        asked = {ASKED + question: items for question, items in kept.questions.items()}
        return lambda: self._keep_answers({**releases, **asked}, number)

    def _keep_answers(self, kept: Mapping[str, bytes], number: int) -> None:
        """Keep bytes of a statement whose charge is on the disk: what is not kept is asked, and paid, again."""
        with suppress(LedgerError), self._book.reading():
            self._book.answers.put(kept, number)

    def _require_open(self, number: int) -> Reservation:
        """Return a reservation that has not ended.

        Raises:
            LedgerError: it has.
        """
        held = self._book.account.open.get(number)
        if held is None:
            entry = self._book.find_entry(number)
            raise LedgerError(
                f"Statement {number} was settled already ({entry.outcome if entry else 'in another copy'})."
            )
        return held

    def close(self) -> None:
        """Close the file. Open reservations stay charged."""
        self._book.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _who(self) -> dict[str, Any]:
        return {"analyst": self.analyst or "", "user": self._book.user}

    def _try_write(self, kind: str, body: dict[str, Any]) -> None:
        """Write a row that charges nothing. A ledger that can't be written says so when it must."""
        with suppress(LedgerError), self._book.writing(durable=False) as (write, _):
            write(kind, 0, body)


def _find_analyst(policy: Policy, analyst: str | None) -> str | None:
    """Return an analyst's name as the policy writes it: shares go by that, whatever the case.

    Raises:
        LedgerError: the policy gives shares, and none to them.
    """
    if analyst is None or not policy.analysts:
        return analyst
    known = policy.find_analyst(analyst)
    if known is None:
        raise LedgerError(
            f"The policy gives no share to {analyst!r}.", hint=did_you_mean(analyst, policy.analysts)
        )
    return known


def _write_adopt(path: Path) -> str:
    """Write the command that lets a ledger go on under a policy, which it lies beside or not."""
    policy = path.name.removesuffix(".ledger")
    beside = path.name.endswith(".toml.ledger")
    return (
        f"dpsql ledger adopt --policy {policy}"
        if beside
        else f"dpsql ledger adopt --policy FILE --ledger {path.name}"
    )


def _first(terms: Terms) -> Row:
    body = {"ledger": secrets.token_hex(16), "terms": terms.to_json(), "user": store.get_user()}
    return link_row(START, 1, "open", 0, format_now(), body)


def _policy_kept(text: str) -> Policy | None:
    """Read the policy that the log holds; None when this version of dpsql does not accept it any more."""
    try:
        return Policy.loads(text)
    except PolicyError:
        return None


def _more() -> LedgerError:
    return LedgerError("More was used than was reserved; nothing may be released. The charge stays.")
