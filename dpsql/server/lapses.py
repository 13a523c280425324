"""The reasons for which a right to ask does not hold, and the check that finds them; :mod:`dpsql.server.rights` says when."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def check_right(held: Identity | None, has_share: bool, mark: str, letting_go: bool = False) -> None:
    """Check whether a right holds now.

    Args:
        held: the holder of the token that the analyst has now; None without one that holds.
        has_share: whether the policy gives the analyst a share.
        mark: the mark of the token that the right came with.
        letting_go: whether something is only given back or ended, which a pause does not forbid.

    Raises:
        RightError: it does not.
    """
    if held is None or held.mark != mark:
        raise RightError(Lapse.ENDED)
    if not has_share:
        raise RightError(Lapse.NO_SHARE)
    if held.paused and not letting_go:
        raise RightError(Lapse.PAUSED)
