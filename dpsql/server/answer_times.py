"""The public grid of answer times: when what has touched private data may leave.

How long a query runs tells about the rows that it reads. A reply that touched private data is complete and serialised first, and
then waits for the next time of a grid that everybody knows. Times count from the request; beyond the last one that is listed,
they double.

To open the data for a session takes a time of its own (text files are copied, and columns with a damaged value), which no
statement pays for. What is asked goes on at the next time of the grid after that.

Others see the ledger: totals change when a statement is settled, and statements of a cell are paid one after another. So
what a statement writes into the ledger after its touch waits as well, until shortly before the reply's own time
(:attr:`AnswerTimes.lead`). What is left to do then is post-processing of released numbers. Where that takes longer than the
lead, the reply leaves at the next multiple of the lead. The statements of a cell that come after it count from there.

This bounds how many times an observer can tell apart; it is no proof that nothing else can be timed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

MAX_LEAD = 0.025
"""Seconds between what a statement writes into the ledger and its reply, at most."""
LEAD_SHARE = 0.1
"""The lead as a share of the grid's first time, at most."""


@dataclass(frozen=True)
class AnswerTimes:
    """A grid of times after a request, in seconds; empty where answers leave when they are ready."""

    times: tuple[float, ...]

    @classmethod
    def of(cls, times: Sequence[Fraction]) -> AnswerTimes:
        """Take the policy's ``answer_times``."""
        return cls(tuple(float(item) for item in times))

    @property
    def lead(self) -> float:
        """Seconds that the ledger is written ahead of the reply."""
        return min(MAX_LEAD, LEAD_SHARE * self.times[0]) if self.times else 0.0

    @property
    def last(self) -> float:
        """The last time that is listed: what takes longer is an overrun."""
        return self.times[-1] if self.times else math.inf

    def find_next(self, elapsed: float) -> float:
        """Return the first time of the grid that is not before ``elapsed``; without a grid, ``elapsed`` itself.

        >>> grid = AnswerTimes((0.25, 0.5, 1.0))
        >>> grid.find_next(0.1), grid.find_next(0.3), grid.find_next(5)
        (0.25, 0.5, 8.0)
        """
        if not self.times:
            return elapsed
        for at in self.times:
            if elapsed <= at:
                return at
        at = self.times[-1]
        while at < elapsed:
            at *= 2
        return at


class AnswerClock:
    """The times at which steps of one call may be seen. They are those of :func:`time.monotonic`."""

    def __init__(self, grid: AnswerTimes, start: float | None = None) -> None:
        self._grid = grid
        self.start = time.monotonic() if start is None else start
        self.touched = False
        """True where private data were read since the last time that everybody knows."""
        self.waited: float | None = None
        """The time of the reply, once a step before it has waited."""
        self.overruns = 0
        """The number of statements that took longer than the grid's last time."""
        self._ready: float | None = None
        """The time of the reply of a statement that is answered, and not in the ledger yet."""
        self._given_up = threading.Event()

    @property
    def has_times(self) -> bool:
        """Tell whether replies wait; else they leave when they are ready."""
        return bool(self._grid.times)

    def give_up(self) -> None:
        """Wait for nothing any more: the server ends, and no reply leaves."""
        self._given_up.set()

    def touch(self) -> None:
        """Note that private data are about to be read."""
        if not self.touched and self.waited is not None:
            self.start = max(self.waited, self._find_after_reply(time.monotonic()))
        self.touched = True

    def find_reply_time(self, now: float) -> float:
        """Return when the reply of a statement leaves that is ready to be settled now."""
        lead = self._grid.lead
        return self.start + self._grid.find_next(now - self.start + lead)

    def find_ledger_time(self, reply: float) -> float:
        """Return when the ledger is written ahead of a reply."""
        return reply - self._grid.lead

    def set_reply_time(self, at: float) -> None:
        """Let the reply leave at a time of the grid that :meth:`find_reply_time` gave before."""
        self.touched, self._ready = False, None
        if self._grid.times:
            self.waited = at

    def wait_for_step(self) -> None:
        """Wait for a public time after what took a time that may tell about the data; the request's times count on."""
        if self._grid.times:
            self._wait_until(self.find_ledger_time(self.find_reply_time(time.monotonic())))

    def note_answer(self) -> float:
        """Note that what was touched is answered, which decides the time of its reply.

        Returns:
            When it may be seen in the ledger.
        """
        now = time.monotonic()
        self.overruns += now - self.start > self._grid.last
        self._ready = self.find_reply_time(now)
        return self.find_ledger_time(self._ready)

    def wait_for_ledger(self) -> None:
        """Wait until what was done after a touch may be seen in the ledger."""
        if not self.touched:
            return
        if self._ready is None:
            self.note_answer()
        if self._grid.times:
            assert self._ready is not None
            self._wait_until(self.find_ledger_time(self._ready))
            self.waited = self._ready
        self.touched, self._ready = False, None

    def wait_for_reply(self) -> None:
        """Wait until the reply may leave."""
        if self.touched:
            self.wait_for_ledger()
        if self.waited is not None:
            self._wait_until(self._find_after_reply(time.monotonic()))

    def _find_after_reply(self, now: float) -> float:
        """Return the reply's time, or where that has passed the next multiple of the lead after it."""
        assert self.waited is not None
        late = max(0.0, now - self.waited)
        return self.waited + math.ceil(late / self._grid.lead) * self._grid.lead

    def _wait_until(self, at: float) -> None:
        while (rest := at - time.monotonic()) > 0 and not self._given_up.wait(rest):
            pass
