"""The front's side of an analyst's ledger: what a worker asks of it is checked, answered, and bound to one analyst.

A worker may be in an enemy's hands: it parses what an analyst wrote. So nothing that it says is taken for granted. The
analyst's name comes from the token, a ticket is settled only by the worker that opened it, events are read by their own
parser within public limits, and of other analysts there are totals only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.ledger.ledger import Ledger
    from dpsql.wire import Message


class LedgerService:
    """The calls of one worker on the ledger of one analyst. Its calls come one at a time.

    Args:
        ledger: opened for this analyst (:meth:`dpsql.ledger.ledger.Ledger.for_analyst`); it stays open when a worker ends.
        largest: bytes of releases that one statement may store.
    """

    def __init__(self, ledger: Ledger, largest: int = 100_000_000) -> None:
        self.ledger = ledger
        self.largest = largest

    def begin(self) -> None:
        """Begin a request: nothing is paid yet, and the request's limits are counted from here."""
        raise NotImplementedError

    @property
    def has_paid(self) -> bool:
        """True once a reservation was made, or a paid one was used, since :meth:`begin`: private data may be touched."""
        raise NotImplementedError

    def call(self, method: str, head: dict[str, object], payload: bytes, may_pay: bool) -> Message:
        """Answer one call of :class:`~dpsql.server.ledger_proxy.LedgerProxy`. Never raises.

        Args:
            method: the method's name.
            head, payload: what it was called with.
            may_pay: whether a reservation may be made now; where not, the answer to one is an ``Interrupted`` error.

        Returns:
            ``{"kind": "answer", ...}``, or an error of ours without any path or other analyst in it.
        """
        raise NotImplementedError

    def settle_all(self, outcome: str = "interrupted") -> list[int]:
        """Settle what the worker left open, after its end: thresholds by their last progress, all else in full.

        Returns:
            The statements that were settled.
        """
        raise NotImplementedError
