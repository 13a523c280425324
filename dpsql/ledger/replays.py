"""The stored answers of an open ledger, as one analyst may see them: free, or for a debit of their own share."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from dpsql.errors import LedgerError
from dpsql.ledger.answers import ASKED, StoredRelease, check_release, hash_release, name_debit
from dpsql.ledger.store import LedgerStore
from dpsql.ledger.terms import Terms
from dpsql.policy.model import Policy
from dpsql.privacy.events import Event
from dpsql.privacy.records import Entry


class Replays:
    """The stored answers of a ledger.

    Args:
        book: the open ledger.
        policy: the owner's; None where the one in the log can't be read any more.
        analyst: who asks; None for somebody without a share of their own.
    """

    def __init__(self, book: LedgerStore, policy: Policy | None, analyst: str | None) -> None:
        self._book = book
        self.policy = policy
        self.analyst = analyst

    @property
    def terms(self) -> Terms:
        """The terms that rule this session."""
        return self._book.account.terms

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
        """True where this analyst's share is debited for the stored answers of others."""
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

    def _keep_answers(self, kept: Mapping[str, bytes], number: int) -> None:
        """Keep bytes of a statement whose charge is on the disk: what is not kept is asked, and paid, again."""
        with suppress(LedgerError), self._book.reading():
            self._book.answers.put(kept, number)
