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

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.server.desks import Desk
    from dpsql.server.served import ServedPolicy
    from dpsql.server.tokens import Identity


class Refused(Exception):
    """A request that is not taken up: one fixed sentence."""


class Lapse(enum.Enum):
    """The reason for which a right does not hold; the value is the sentence for the analyst."""

    ENDED = "your token has ended, or was replaced or removed; connect again with the one that holds."
    NO_SHARE = "the owner's policy gives you no share."
    PAUSED = "you are paused until the data's owner resumes you: dpsql analyst resume."
    TOO_MANY = "too many requests of yours in a minute; ask again later."
    TOO_LARGE = "the request is too large."


class RightError(Refused):
    """A request whose right does not hold now."""

    def __init__(self, lapse: Lapse, sentence: str = "") -> None:
        super().__init__(sentence or lapse.value)
        self.lapse = lapse

    @property
    def is_final(self) -> bool:
        """True if the session ends with it; otherwise the same session may ask again later."""
        return self.lapse in (Lapse.ENDED, Lapse.NO_SHARE)


def ask_right(served: ServedPolicy, analyst: str, mark: str, letting_go: bool = False) -> None:
    """Ask whether a right holds now.

    Args:
        served: the policy.
        analyst: the name, as the file of tokens has it.
        mark: the mark of the token that the right came with.
        letting_go: whether something is only given back or ended, which a pause does not forbid.

    Raises:
        RightError: it does not.
    """
    held = served.find_holder(analyst)
    if held is None or held.mark != mark:
        raise RightError(Lapse.ENDED)
    if served.policy.find_analyst(analyst) is None:
        raise RightError(Lapse.NO_SHARE)
    if held.paused and not letting_go:
        raise RightError(Lapse.PAUSED)


@dataclass(frozen=True)
class Right:
    """The right that a token or a certificate gave. A connection keeps it, and asks it at each request.

    Args:
        served: the policy.
        desk: the analyst's.
        mark: the mark of the token.
        expires: when the token ends.
    """

    served: ServedPolicy
    desk: Desk
    mark: str
    expires: str

    @classmethod
    def of(cls, served: ServedPolicy, identity: Identity) -> Right:
        """Return the right of somebody whose token or certificate was looked at.

        Raises:
            RightError: they have none now.
        """
        desk = served.find_desk(identity.name)
        if desk is None:
            raise RightError(Lapse.NO_SHARE)
        right = cls(served, desk, identity.mark, identity.expires.isoformat())
        right.check()
        return right

    def check(self, letting_go: bool = False) -> None:
        """Ask whether it holds now.

        Args:
            letting_go: whether something is only given back or ended, which a pause does not forbid.

        Raises:
            RightError: it does not.
        """
        ask_right(self.served, self.desk.analyst, self.mark, letting_go)

    def take(self, size: int, counts: bool = True) -> None:
        """Ask whether it holds now for a request, and count the request.

        Args:
            size: the bytes of the request.
            counts: whether it counts as one of the minute's.

        Raises:
            RightError: it does not hold, or a limit is reached.
        """
        self.check()
        if counts and not self.desk.rate.take():
            raise RightError(Lapse.TOO_MANY)
        said = self.desk.edition.limits.explain_body(size)
        if said:
            raise RightError(Lapse.TOO_LARGE, said)
