"""The records between a statement and the ledger: the right to touch data once, and what is kept of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from dpsql.privacy.events import Event


class ProgressKeeper(Protocol):
    """A ledger, as a ticket needs it."""

    def note_progress(self, ticket: Ticket, event: Event) -> None:
        """Note durably how far an interactive threshold came."""


@dataclass(frozen=True)
class Ticket:
    """The right to touch the data once: an open reservation. It holds nothing about the data."""

    statement_id: int
    event: Event
    ledger_id: str
    _ledger: ProgressKeeper = field(repr=False, compare=False)

    def update(self, event: Event) -> None:
        """Note durably how far an interactive threshold came; call it *before* the answer leaves.

        Call it once after DECLARE (no hits) and before each answer is told, whatever it is. The reservation stays charged in
        full; but when this process dies, the next session settles it to the last event noted instead of the
        whole.

        Raises:
            LedgerError: not written, not within the reservation, less than before, or settled already.
        """
        self._ledger.note_progress(self, event)


@dataclass(frozen=True)
class KeptReleases:
    """The private blocks of a statement, as a settlement keeps them.

    ``releases`` are bytes by the blocks' keys; ``questions`` note what each question was about, so that a later
    session can say what has changed. ``events`` are what each block lost, where there are several.
    """

    releases: Mapping[str, bytes] = field(default_factory=dict)
    questions: Mapping[str, bytes] = field(default_factory=dict)
    events: Mapping[str, Event] = field(default_factory=dict)
