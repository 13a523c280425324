"""The right of an analyst to ask: one check for all protocols, at each request and again before a payment and a reply.

    a token, or the name in a certificate -> :class:`Right` -> ``check`` or ``take`` at each request

A right ends with its token: on its last day, or when the owner replaces or removes it. It also ends when the policy gives no
share any more. A pause and the limits suspend it. Adapters ask here before they do anything, and write the refusal in their
protocol's own form. None of them looks at tokens, pauses, shares or limits by other means.

While a statement runs, its right is checked again before each payment, and without it nothing more is paid. A paid statement
goes on to its public time. After a pause the analyst gets its answer then; after the end of the right the answer is stored, and
not sent.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dpsql.late_dataclass import dataclass
from dpsql.server.lapses import Lapse, RightError

if TYPE_CHECKING:
    from dpsql.server.queues import AnalystQueue
    from dpsql.server.served import ServedPolicy
    from dpsql.server.tokens import Identity


@dataclass(frozen=True)
class Right:
    """The right that a token or a certificate gave. A connection keeps it, and asks it at each request.

    Args:
        served: the policy.
        queue: the analyst's.
        mark: the mark of the token.
        expires: when the token ends.
        member: the person who uses a group's share; empty if the share is the analyst's own.
    """

    served: ServedPolicy
    queue: AnalystQueue
    mark: str
    expires: datetime
    member: str = ""

    @classmethod
    def of(cls, served: ServedPolicy, identity: Identity) -> Right:
        """Return the right of somebody whose token or certificate was looked at.

        Raises:
            RightError: they have none now.
        """
        queue = served.find_queue(identity.name)
        if queue is None:
            raise RightError(Lapse.NO_SHARE)
        right = cls(served, queue, identity.mark, identity.expires, identity.member)
        right.check()
        return right

    def check(self, letting_go: bool = False) -> None:
        """Ask whether it holds now.

        Args:
            letting_go: whether something is only given back or ended, which a pause does not forbid.

        Raises:
            RightError: it does not.
        """
        if self.expires <= datetime.now(UTC):  # a provider's token ends before ours
            raise RightError(Lapse.ENDED)
        self.served.ask_right(self.queue.analyst, self.mark, letting_go)

    def take(self, size: int, counts: bool = True) -> None:
        """Ask whether it holds now for a request, and count the request.

        Args:
            size: the bytes of the request.
            counts: whether it counts as one of the minute's.

        Raises:
            RightError: it does not hold, or a limit is reached.
        """
        self.check()
        if counts and not self.queue.rate.take():
            raise RightError(Lapse.TOO_MANY)
        sentence = self.queue.edition.limits.explain_body(size)
        if sentence:
            raise RightError(Lapse.TOO_LARGE, sentence)
