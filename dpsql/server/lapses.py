"""The reasons for which a right to ask does not hold, and the check that finds them; :mod:`dpsql.server.rights` says when."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsql.server.tokens import Identity


class Refused(Exception):
    """The server rejects a request, with one fixed sentence."""


class Lapse(enum.Enum):
    """The reason why a right isn't valid; the value is the sentence for the analyst."""

    ENDED = "your token has expired, or was replaced or removed; connect again with a valid one."
    NO_SHARE = "the owner's policy gives you no share."
    PAUSED = "you are paused until the data's owner resumes you: dpsql analyst resume."
    TOO_MANY = "you have sent too many requests in a minute; ask again later."
    TOO_LARGE = "the request is too large."


class RightError(Refused):
    """The analyst has no right to this request now."""

    def __init__(self, lapse: Lapse, sentence: str = "") -> None:
        super().__init__(sentence or lapse.value)
        self.lapse = lapse

    @property
    def is_final(self) -> bool:
        """Whether the session ends; otherwise it may ask again later."""
        return self.lapse in (Lapse.ENDED, Lapse.NO_SHARE)


def check_right(held: Identity | None, has_share: bool, mark: str, letting_go: bool = False) -> None:
    """Check that a right is valid now.

    Args:
        held: the holder of the analyst's present token; None if there is no valid one.
        has_share: whether the policy gives the analyst a share.
        mark: the mark of the token that the right came with.
        letting_go: whether the request only closes or stops something, which a pause allows.

    Raises:
        RightError: the right isn't valid.
    """
    if held is None or held.mark != mark:
        raise RightError(Lapse.ENDED)
    if not has_share:
        raise RightError(Lapse.NO_SHARE)
    if held.paused and not letting_go:
        raise RightError(Lapse.PAUSED)
