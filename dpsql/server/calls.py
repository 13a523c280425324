"""One call of an analyst: the front's side of the conversation with a worker, from the request to the last reply.

    call -> (opened | ledger | touch | journal | reply)* -> done

A settlement is only promised to the worker, and written when its time has come: so the worker has its reply ready long before
that time, and nothing is left to do then whose pace could tell how long the statement took. Where answers leave when they are
ready, the two work at once. What the settlement says (the budget that is left) is filled into the reply afterwards.

Replies are held until the call is done, and where private data were touched until the next time of the public grid
(:mod:`dpsql.server.calls`). A stop takes effect at once while nothing was paid: then the worker may pay nothing more, and
ends as it does for the stop button of a notebook. Once it has paid, the next time of the grid decides: what is done by then is
settled, stored and shown, and what is not is killed.

The public grid of answer times: when what has touched private data may leave.

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

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.client.wire import READING, Message, encode, write_error
from dpsql.errors import EngineError, Error, Interrupted
from dpsql.server.frames import FrameError, read_lines
from dpsql.server.lapses import RightError
from dpsql.server.ledger_service import PAYING_CALLS, LedgerService
from dpsql.server.promises import fill_left

if TYPE_CHECKING:
    from dpsql.server.worker_process import WorkerProcess


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


_PAYING = frozenset({"run", "plan", "postgres_run"})
"""Operations during which a worker may reserve."""
STOP_SECONDS = 5.0
"""Seconds that a worker has to end a call that paid nothing, before it is killed."""
LATE_SECONDS = 5.0
"""Seconds beyond the policy's ``max_seconds`` after which a worker is killed that did not end a statement itself."""
STAGE_SECONDS = 0.05
"""Seconds after which a client is told that private data are read, where answers leave when they are ready."""
MAX_JOURNAL_BYTES = 16 << 20
"""Bytes from which a session can be made again."""
_SEEN_BY_OTHERS = frozenset({"reserve", "debit", "settle", "refuse"})
"""Calls of the ledger that others can see the time of, in the totals or in the numbers of statements."""
_MOST_FAILURES_TOLD = 5

_READING = encode(READING)
_WITHHELD = "the engine failed while it read private data; the statement stays charged, and why is withheld."
STOPPED_FREE = "the statement was stopped before it was paid: nothing was charged."
_STOPPED_PAID = "the statement was stopped. What was reserved stays charged."
_ENDED_FREE = "the process that answers your statements ended before this one was paid: nothing was charged."
_SETTLED = "the process that answers your statements ended late: what was answered is stored, and asking again is free."
_LIMITS = "the owner's policy says how much memory and time a statement may take."
_numbers = itertools.count(1)


class WorkerEnded(Exception):
    """The worker was gone before it took up the call: another one may take it."""


class AnalystCall:
    """A call, its worker and its clock. Its own thread runs it; any other may stop it.

    Args:
        operation: ``run``, ``explain``, ...
        session: the session's handle.
        analyst: whose it is.
        grid: the public times.
        seconds: how long a statement may run.
        result_bytes: the largest answer.
    """

    def __init__(
        self, operation: str, session: str, analyst: str, grid: AnswerTimes, seconds: float, result_bytes: int
    ) -> None:
        self.number = next(_numbers)
        self.operation, self.session, self.analyst = operation, session, analyst
        self.clock = AnswerClock(grid)
        self.began = self.clock.start
        """The time at which it was asked, as :func:`time.monotonic` tells it."""
        self.stopped = False
        self.is_abandoned: Callable[[], bool] = lambda: False
        """Tells whether the client is gone; asked while the call waits for its turn, since nothing was paid."""
        self.ask_right: Callable[[], None] = lambda: None
        """Called before each payment; raises :class:`~dpsql.server.lapses.RightError` where the right has lapsed meanwhile."""
        self.failures = 0
        """Statements of it that failed after they were paid."""
        self.has_failed = False
        """True once one of them has; it stays so when the failures were counted."""
        self.killed = False
        """True once its worker is gone."""
        self.told: list[str] = []
        """Places in our code where something unforeseen happened, for the owner."""
        self.journal: list[bytes] | None = None
        """The lines that the session would be made from again; None where they have not changed."""
        self.charges: set[int] = set()
        """The numbers of the statements that it paid."""
        self._seconds, self._result_bytes = seconds, result_bytes
        self._lock = threading.Lock()
        self._replies: list[bytes] = []
        self._size = 0
        self._at_stake = self._arrived = self._expired = self._heard = self._owes_stage = False
        self.finished = False
        self._promised: Message | None = None
        """A settlement that the worker has the word for, and that is not written yet."""
        self._promised_at = 0.0
        self._left: dict[int, str] = {}
        """The budget that was left after each settlement that was promised."""
        self._unsettled: Message | None = None
        """The error of a promised settlement that could not be written: no answer is shown."""
        self._killed_at: float | None = None
        self._plans: list[threading.Timer] = []
        """Kills that are due unless what they are planned for is done before."""
        self._worker: WorkerProcess | None = None
        self._service: LedgerService | None = None

    # -- the conversation ---------------------------------------------------------------------------------------

    def run(
        self, worker: WorkerProcess, service: LedgerService, head: dict[str, Any], body: bytes
    ) -> Iterator[bytes]:
        """Send a task to a worker, and yield what may be told to the client before the call is done.

        A client that goes away changes nothing: the call ends as it would have.

        Raises:
            WorkerEnded: the worker was gone already; nothing was paid.
        """
        with self._lock:
            self._worker, self._service = worker, service
            self._heard = self.finished = self.killed = False
        service.begin()
        try:
            try:
                worker.send({**head, "number": self.number}, body)
            except FrameError:
                raise WorkerEnded from None
            while (told := self._step()) is not None:
                yield from told
        finally:
            while not self.finished and not self.killed and self._step() is not None:
                pass
            self._finish()

    def _step(self) -> list[bytes] | None:
        """Take the next frame; return what to tell at once, None after the last one."""
        assert self._worker is not None
        if self._promised is not None:
            rest = self._promised_at - time.monotonic()
            if rest <= 0 or not self._worker.wait_for_frame(rest):
                self._keep_promise()
                return []
        if self._owes_stage:
            self._owes_stage = False
            if not self._worker.wait_for_frame(STAGE_SECONDS):
                return [_READING]
        try:
            frame = self._worker.receive(None if self._expired else self._seconds + LATE_SECONDS)
            self._heard = True
            return self._take(frame)
        except TimeoutError:
            self._expire()
            return []
        except FrameError:
            self._bury()
            return None

    def _take(self, frame: Message) -> list[bytes] | None:
        kind = frame.head["kind"]
        if kind == "ledger":
            self._answer_ledger(frame)
        elif kind == "touch":
            self._keep_promise()
            with self._lock:
                self.clock.touch()
                self._at_stake = True
            return self._tell_stage()
        elif kind == "opened":
            self._wait_after_opening()
        elif kind == "reply":
            self._hold(frame.payload)
        elif kind == "journal":
            if len(frame.payload) <= MAX_JOURNAL_BYTES:
                self.journal = read_lines(frame)
        elif kind == "failure":
            if len(self.told) < _MOST_FAILURES_TOLD:
                self.told.append(str(frame.head.get("why", ""))[:100])
        elif kind == "done":
            self._keep_promise()
            self._note_arrival()
            self.clock.wait_for_ledger()
            with self._lock:
                self.finished = True
            return None
        else:
            raise FrameError("a frame of an unknown kind")
        return []

    def _tell_stage(self) -> list[bytes]:
        """Return the stage for the client. Where answers leave when they are ready, a quick one is not held up by it."""
        self._owes_stage = not self.clock.has_times
        return [] if self._owes_stage else [_READING]

    def _answer_ledger(self, frame: Message) -> None:
        """Answer a call of the ledger; what others could see waits for a public time first."""
        assert self._worker is not None and self._service is not None
        method = frame.head.get("method")
        if not isinstance(method, str):
            raise FrameError("a call without a method")
        self._keep_promise()
        if method == "settle" and self.clock.touched:
            self._promise(frame)
            return
        if method in _SEEN_BY_OTHERS:
            self._wait_unhurried(self.clock.wait_for_ledger)
        answer = self._call_ledger(method, frame)
        try:
            self._worker.send(answer.head, answer.payload)
        finally:
            self._service.finish_call()

    def _call_ledger(self, method: str, frame: Message) -> Message:
        """Let the ledger do a call, and note what that means for a stop."""
        assert self._service is not None
        if method == "settle" and frame.head.get("outcome") == "failed":
            self._note_failure()
        with self._lock:
            may_pay = self.operation in _PAYING and not self.stopped and self._unsettled is None
        lapsed = self._find_lapse() if method in PAYING_CALLS and may_pay else None
        with self._lock:
            may_pay = may_pay and not self.stopped
            if method == "reserve" and may_pay and lapsed is None:
                self._at_stake = True  # a stop that comes from here on waits for the grid
        answer = lapsed or self._service.call(method, frame.head, frame.payload, may_pay)
        refused = answer.head.get("kind") == "error"
        if method == "reserve" and not refused:
            number = answer.head.get("statement_id")
            self.charges.add(number if isinstance(number, int) else 0)
        if method == "settle" or refused:
            with self._lock:
                self._at_stake = self.clock.touched
        return answer

    def _note_failure(self) -> None:
        self.failures += 1
        self.has_failed = True

    def _find_lapse(self) -> Message | None:
        """Return the error for a worker that is about to pay, where the analyst's right has lapsed meanwhile."""
        try:
            self.ask_right()
        except RightError as refusal:
            return write_error(Interrupted(f"{refusal} Nothing more was charged."))
        return None

    def _promise(self, frame: Message) -> None:
        """Give the worker the word that a settlement will be written, so that it can make the reply meanwhile."""
        assert self._worker is not None
        self._note_arrival()
        self._promised, self._promised_at = frame, self.clock.note_answer()
        self._worker.send({"kind": "answer", "promised": True})

    def _keep_promise(self) -> None:
        """Write a settlement that was promised, at its time."""
        frame, self._promised = self._promised, None
        if frame is None:
            return
        assert self._service is not None
        self._wait_unhurried(self.clock.wait_for_ledger)
        answer = self._call_ledger("settle", frame)
        self._service.finish_call()
        if answer.head.get("kind") == "error":
            self._unsettled = answer
        else:
            self._left[int(frame.head["statement_id"])] = str(answer.head.get("left", ""))

    def _wait_after_opening(self) -> None:
        """Let a worker go on at a public time that has opened the data for a session."""
        assert self._worker is not None
        self._wait_unhurried(self.clock.wait_for_step)
        self._worker.send({"kind": "answer"})

    def _wait_unhurried(self, wait: Callable[[], None]) -> None:
        """Wait for a public time; a stop meanwhile is heeded after it."""
        self._note_arrival()
        wait()
        with self._lock:
            self._arrived = self._at_stake = False
            if self.stopped:
                self._schedule_end()

    def _hold(self, reply: bytes) -> None:
        self._size += len(reply)
        if self._size <= self._result_bytes:
            self._replies.append(reply)

    @property
    def outcome(self) -> str:
        """The outcome for the log: the worst of its statements' outcomes, or ``public`` where none was paid."""
        if self.killed or self.has_failed or self._unsettled is not None:
            return "interrupted" if self.stopped else "failed"
        if self.stopped and not self.charges:
            return "stopped"
        return "released" if self.charges else "public"

    @property
    def replies(self) -> list[bytes]:
        """The messages that the client is told in the end."""
        if self._unsettled is not None:
            return [encode(self._unsettled)]
        if self._size <= self._result_bytes:
            return [fill_left(reply, self._left) for reply in self._replies] if self._left else self._replies
        said = f"the answer is larger than the {self._result_bytes:,} bytes that the owner allows. What it cost is paid."
        hint = "ask for fewer rows or columns of it: the private part is stored, and free."
        return [encode(write_error(Error(said, hint=hint)))]

    # -- its end ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop it: at once where nothing was paid, at the next time of the grid otherwise."""
        with self._lock:
            if self.finished or self.stopped:
                return
            self.stopped = True
            if self._worker is None or self._arrived:
                return
            if self._at_stake:
                self._schedule_kill()
            else:
                self._worker.stop_call(self.number)
                self._schedule_end()

    def end(self) -> None:
        """Kill its worker now, whatever the grid says: the server ends, and no reply leaves any more."""
        self.clock.give_up()
        with self._lock:
            if not self.finished and self._worker is not None:
                self._worker.kill()

    def _expire(self) -> None:
        """End a statement that has taken too long, as one that failed."""
        with self._lock:
            self._expired = True
            self._schedule_kill()

    def _note_arrival(self) -> None:
        """Note that a statement is done: no kill that was planned for it is due any more."""
        with self._lock:
            self._arrived = True
            self._end_plans()

    def _schedule_kill(self) -> None:
        """Plan the end of a statement that has paid, at the next time of the grid."""
        reply = self.clock.find_reply_time(time.monotonic())
        self._schedule(self.clock.find_ledger_time(reply) - time.monotonic(), reply)

    def _schedule_end(self) -> None:
        """Plan the end of a worker that does not stop what costs nothing."""
        self._schedule(STOP_SECONDS, None)

    def _schedule(self, seconds: float, reply: float | None) -> None:
        plan = threading.Timer(max(0.0, seconds), lambda: self._kill(plan, reply))
        plan.daemon = True
        self._plans.append(plan)
        plan.start()

    def _kill(self, plan: threading.Timer, reply: float | None) -> None:
        with self._lock:
            if plan in self._plans and not self.finished and self._worker is not None:
                self._killed_at = reply
                self._worker.kill()

    def _end_plans(self) -> None:
        for plan in self._plans:
            plan.cancel()
        self._plans.clear()

    def _finish(self) -> None:
        with self._lock:
            self.finished = True
            self._end_plans()

    def _bury(self) -> None:
        """Settle what a worker left open that is gone, at a public time, and say what became of the call.

        Raises:
            WorkerEnded: it had not taken up the call.
        """
        assert self._worker is not None and self._service is not None
        self.killed = True
        self._keep_promise()
        paid = self._at_stake
        if not self._heard and not paid and not self.stopped:
            raise WorkerEnded
        if paid:
            self.clock.touch()
        if self._killed_at is not None:
            self.clock.set_reply_time(self._killed_at)
        self.clock.wait_for_ledger()
        with suppress(Error):
            self._service.settle_all("interrupted")
        self._replies, self._size = [encode(write_error(self._explain_end(paid)))], 0
        with self._lock:
            self.finished = True

    def _explain_end(self, paid: bool) -> Error:
        """Return what a client is told whose worker is gone.

        Args:
            paid: whether a statement had paid and was not settled.
        """
        if not paid and self.charges:
            return (Interrupted if self.stopped else Error)(_SETTLED, hint="ask again.")
        if self.stopped:
            return Interrupted(_STOPPED_PAID if paid else STOPPED_FREE)
        if not paid:
            return Error(_ENDED_FREE, hint="ask again; another process is ready.")
        self._note_failure()
        return EngineError(_WITHHELD, hint=_LIMITS)

    def wait_for_reply(self) -> None:
        """Wait until its replies may leave."""
        self.clock.wait_for_reply()
