"""The right of an analyst to ask: one check for all protocols, at each request and again before a payment and a reply.

    a token, or the name in a certificate -> :class:`~dpsql.server.served.Right` -> ``check`` or ``take`` at each request

A right ends with its token: on its last day, or when the owner replaces or removes it. It also ends when the policy gives no
share any more. A pause and the limits suspend it. Adapters ask here before they do anything, and write the refusal in their
protocol's own form. None of them looks at tokens, pauses, shares or limits by other means.

While a statement runs, its right is checked again before each payment, and without it nothing more is paid. A paid statement
goes on to its public time. After a pause the analyst gets its answer then; after the end of the right the answer is stored, and
not sent.
"""

from __future__ import annotations

import enum
import threading
import time

from dpsql.policy.model import ServerRules

FAILED = "the server could not do this, and withholds the reason."
ANOTHERS_TOKEN = "the token and the certificate belong to different analysts."


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


BODY_OVERHEAD = 64 << 10
"""Bytes of a request in addition to its statements and parameters."""
MAX_WAITING = 16
"""Queued requests of one analyst; each of them takes a thread."""


class RequestRate:
    """A token bucket for the requests of one analyst; it holds one minute's worth."""

    def __init__(self, per_minute: int) -> None:
        self._most = float(per_minute)
        self._left, self._at = self._most, time.monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Count a request; return False if there were too many.

        >>> rate = RequestRate(2)
        >>> rate.take(), rate.take(), rate.take()
        (True, True, False)
        """
        with self._lock:
            now = time.monotonic()
            self._left = min(self._most, self._left + (now - self._at) * self._most / 60)
            self._at = now
            if self._left < 1:
                return False
            self._left -= 1
            return True


def count_body_bytes(rules: ServerRules) -> int:
    """Return the most bytes of a request."""
    return rules.max_statement_bytes + rules.max_parameter_bytes + BODY_OVERHEAD
