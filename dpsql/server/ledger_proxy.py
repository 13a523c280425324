"""The worker's side of an analyst's ledger: the same face as :class:`dpsql.ledger.ledger.Ledger`, asked from the front."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsql.policy.model import Policy
    from dpsql.wire import Message

    Ask = Callable[[dict[str, Any], bytes], Message]
    """Sends one call to the front and returns its answer: the head has ``method`` and what it needs, and no ``kind``."""


class LedgerProxy:
    """The ledger of one analyst, which a session in a worker uses in place of a :class:`~dpsql.ledger.ledger.Ledger`.

    Args:
        ask: sends a call to the front and returns the answer of :meth:`LedgerService.call`; errors arrive as messages and
            are raised here.
        policy: the policy of the worker's sessions.
        analyst: who asks. The front does not believe it.
    """

    path: Path | None = None

    def __init__(self, ask: Ask, policy: Policy, analyst: str) -> None:
        self._ask = ask
        self.policy = policy
        self.analyst = analyst

    def close(self) -> None:
        """Do nothing: the front closes the ledger, and settles what is open."""

    def tabulate(self, what: str) -> Any:
        """Return a table of figures about everybody's statements, which the front makes."""
        raise NotImplementedError

    def reserve(self, event: Any, text: str) -> Any:
        """Charge an event before data are touched, as :meth:`dpsql.ledger.ledger.Ledger.reserve` does."""
        raise NotImplementedError
