"""A policy's ledger as the owner's page reads it: what is left now, pages of statements, and figures that take long.

What is left and the latest statements are read at each look. Who asked what is kept as lists of numbers, to which new statements
are added. Figures of the whole ledger are made in a thread of their own, at most a twentieth of the time, while somebody looks.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from dpsql.errors import Error, PolicyError
from dpsql.ledger.ledger import Ledger
from dpsql.privacy.records import BudgetState, Entry
from dpsql.report.data import describe_entry, make_report
from dpsql.report.tables import name_of
from dpsql.server.tokens import TokenFile, TokenRecord

LISTED_ON_A_PAGE = 100
LATEST_STATEMENTS = 20
_STEP = 500
"""Statements that are looked at before others may use the ledger."""
_LOOK_SECONDS = 1.0
_WANTED_SECONDS = 600.0
"""Seconds after the last look at them for which figures are made anew."""
_REST = 20.0
"""Figures are made during a twentieth of the time, at most."""


@dataclass
class Numbers:
    """The numbers of one person's statements, or of all, and of those that were refused."""

    all: array[int] = field(default_factory=lambda: array("Q"))
    refused: array[int] = field(default_factory=lambda: array("Q"))


@dataclass(frozen=True)
class StatementPage:
    """One page of statements, the newest first.

    ``page`` of ``pages`` is shown; ``count`` is the number of all, and ``missing`` of those that were not looked at so far.
    """

    entries: list[dict[str, Any]]
    page: int
    pages: int
    count: int
    missing: int


@dataclass(frozen=True)
class AnalystView:
    """One analyst as the owner sees them: the token, the share, what was asked, and what the server counts now."""

    name: str
    token: TokenRecord | None
    share: BudgetState | None
    statements: int
    refused: int
    desk: dict[str, Any]
    known: bool
    """True where the policy has the name."""


class LedgerView:
    """One policy for the owner's page. Safe for threads.

    Args:
        name: what the policy file is called.
        policy: the policy file, beside which tokens are.
        ledger: the ledger's file.
    """

    def __init__(self, name: str, policy: Path, ledger: Path) -> None:
        self.name = name
        self._path = ledger
        self._tokens = TokenFile(policy)
        self._lock = threading.RLock()
        self._ledger: Ledger | None = None
        self._readings = 0
        self._looked = 0
        """The last statement whose number is in the lists."""
        self._who: dict[str, Numbers] = {}
        self._everybody = Numbers()
        self._shares: tuple[int, dict[str, BudgetState]] = (-1, {})
        self._report: dict[str, Any] | None = None
        self._report_row = -1
        self._wanted = 0.0
        self._made_again = 0.0
        self._woken = threading.Event()
        self.report_error = ""
        threading.Thread(target=self._work, daemon=True, name="dpsql-figures").start()

    def open(self, readings: int = 0) -> Ledger:
        """Return the ledger, opened anew where the policy was read again.

        Raises:
            LedgerError: it can't be read or trusted.
        """
        with self._lock:
            if self._ledger is None or readings > self._readings:
                if self._ledger is not None:
                    self._ledger.close()
                self._ledger, self._readings = Ledger.read(self._path), max(readings, self._readings)
                self._shares = (-1, {})
            return self._ledger

    # -- statements -----------------------------------------------------------------------------------------------

    def latest(self) -> list[dict[str, Any]]:
        """Return the latest statements, the newest first."""
        with self._lock:
            ledger = self.open()
            return self._describe(ledger, reversed(ledger.entries(LATEST_STATEMENTS)))

    def find_statements(self, numbers: Iterable[int]) -> list[dict[str, Any]]:
        """Return statements by their numbers."""
        with self._lock:
            ledger = self.open()
            return self._describe(
                ledger, (entry for number in numbers for entry in ledger.walk(number, number))
            )

    def list_page(self, page: int, who: str | None = None, refused: bool = False) -> StatementPage:
        """Return a page of statements.

        Args:
            page: 1 has the newest.
            who: of one person alone.
            refused: those that were refused alone.
        """
        with self._lock:
            ledger = self.open()
            count = ledger.count
            if count <= self._looked + LISTED_ON_A_PAGE:
                self._look_further(ledger)
            missing = count - self._looked
            whose = self._everybody if who is None else self._who.get(who, Numbers())
            numbers: Any = whose.refused if refused else whose.all
            if who is None and not refused:
                numbers, missing = range(1, count + 1), 0
            pages = max(1, -(-len(numbers) // LISTED_ON_A_PAGE))
            page = min(max(1, page), pages)
            end = len(numbers) - (page - 1) * LISTED_ON_A_PAGE
            shown = numbers[max(0, end - LISTED_ON_A_PAGE) : end]
            if isinstance(shown, range):
                found = list(ledger.walk(shown.start, shown.stop - 1)) if shown else []
            else:
                found = [entry for number in shown for entry in ledger.walk(number, number)]
            return StatementPage(self._describe(ledger, reversed(found)), page, pages, len(numbers), missing)

    def _describe(self, ledger: Ledger, entries: Iterable[Entry]) -> list[dict[str, Any]]:
        return [describe_entry(entry, ledger.accountant, ledger.policy) for entry in entries]

    def _look_further(self, ledger: Ledger) -> None:
        """Put the numbers of further statements into the lists."""
        end = min(ledger.count, self._looked + _STEP)
        for entry in ledger.walk(self._looked + 1, end):
            for numbers in (self._everybody, self._who.setdefault(name_of(entry), Numbers())):
                numbers.all.append(entry.statement_id)
                if entry.outcome == "refused":
                    numbers.refused.append(entry.statement_id)
        self._looked = end

    # -- people ---------------------------------------------------------------------------------------------------

    def list_analysts(self, desks: list[dict[str, Any]]) -> list[AnalystView]:
        """Return all who may ask, or who have asked.

        Args:
            desks: what the server counts of them now.
        """
        with self._lock:
            ledger = self.open()
            policy = ledger.policy
            tokens = {record.name: record for record in self._load_tokens()}
            told = {desk["analyst"]: desk for desk in desks}
            known = list(policy.analysts) if policy is not None else []
            shares = self._find_shares(ledger, known)
            return [
                AnalystView(
                    name,
                    tokens.get(name),
                    shares.get(name),
                    len(numbers.all) - len(numbers.refused),
                    len(numbers.refused),
                    told.get(name, {}),
                    name in known,
                )
                for name in dict.fromkeys([*known, *tokens, *told, *self._who])
                for numbers in [self._who.get(name, Numbers())]
            ]

    def _load_tokens(self) -> list[TokenRecord]:
        with suppress(PolicyError):
            return self._tokens.list()
        return []

    def _find_shares(self, ledger: Ledger, names: list[str]) -> dict[str, BudgetState]:
        row = ledger.last_row
        if self._shares[0] != row:
            found = {}
            for name in names:
                with suppress(Error):
                    found[name] = ledger.for_analyst(name).state()
            self._shares = (row, found)
        return self._shares[1]

    # -- figures --------------------------------------------------------------------------------------------------

    def find_report(self) -> tuple[dict[str, Any] | None, int]:
        """Return the figures of the ledger as they were made last, and how many rows are new since; None before the first."""
        self._wanted = time.monotonic() + _WANTED_SECONDS
        with self._lock:
            row = self.open().last_row
        if self._report_row != row:
            self._woken.set()
        return self._report, row - self._report_row

    def _work(self) -> None:
        """Look at new statements, and make figures that somebody wants to see."""
        while True:
            self._woken.wait(_LOOK_SECONDS)
            self._woken.clear()
            with suppress(Error):
                for _ in self._look_at_all():
                    time.sleep(0)
            now = time.monotonic()
            if now < self._wanted and now >= self._made_again:
                self._make_report()

    def _look_at_all(self) -> Iterator[int]:
        """Yield after each step how many statements are left to look at."""
        while True:
            with self._lock:
                ledger = self.open()
                if ledger.count <= self._looked:
                    return
                self._look_further(ledger)
            yield ledger.count - self._looked

    def _make_report(self) -> None:
        began = time.monotonic()
        try:
            with Ledger.read(self._path) as ledger:  # one of its own: nobody waits for it meanwhile
                row = ledger.last_row
                if row == self._report_row:
                    return
                made = make_report(ledger, ledger.policy)
            made["written_text"] = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
            self._report, self._report_row, self.report_error = made, row, ""
        except Error as error:
            self.report_error = error.message
        now = time.monotonic()
        self._made_again = now + _REST * (now - began)
