"""One call of an analyst: the front's conversation with a worker, from the request to the last reply.

    call -> (opened | ledger | touch | journal | reply)* -> done

The time that a query takes depends on the rows that it reads. So a reply that depends on private data is made and serialised
first, and then waits for the next time of a public grid. Times count from the request, or from the end of the analyst's call for
which it waited; after the last one in the policy, they double. Opening the data for a session takes a time of its own, and the
call goes on at the next time of the grid after that.

Other analysts see the ledger: totals change when a statement is settled, and the statements of a cell are paid one after another.
So the ledger's entries after a touch wait, too, until shortly before the reply's time (:attr:`AnswerTimes.lead`). Post-processing
of released numbers remains. If it takes longer than the lead, the reply leaves at the next multiple of the lead, and the cell's
next statements count from there.

The front confirms a settlement to the worker at once, and writes it when its time has come. So the worker makes its reply
in advance, and its pace then can't reveal how long the statement took. The front fills the budget left into the reply afterwards.

A stop takes effect at once if nothing was paid: the worker may pay nothing more, and stops as a notebook's stop button would
make it. After a payment the next time of the grid decides: the front settles, stores and shows a statement that is done by then,
and kills one that isn't.

This limits the number of times that an observer can tell apart. It doesn't prove that nothing else can be timed.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.client.wire import READING, Message, WireError, cut_bytes, encode, write_error
from dpsql.errors import EngineError, Error, Interrupted
from dpsql.late_dataclass import dataclass
from dpsql.server.frames import FrameError, fill_left
from dpsql.server.ledger_service import PAYING_CALLS, LedgerService
from dpsql.server.rights import RightError

if TYPE_CHECKING:
    from dpsql.server.worker_process import WorkerProcess


MAX_LEAD = 0.025
"""Most seconds between a statement's entry in the ledger and its reply."""
LEAD_SHARE = 0.1
"""The greatest lead, as a share of the grid's first time."""


@dataclass(frozen=True)
class AnswerTimes:
    """A grid of times after a request, in seconds; empty if answers leave when they are ready."""

    times: tuple[float, ...]

    @classmethod
    def of(cls, times: Sequence[Fraction]) -> AnswerTimes:
        """Return the grid of the policy's ``answer_times``."""
        return cls(tuple(float(item) for item in times))

    @property
    def lead(self) -> float:
        """Seconds from writing the ledger to the reply."""
        return min(MAX_LEAD, LEAD_SHARE * self.times[0]) if self.times else 0.0

    def skip(self, count: int) -> AnswerTimes:
        """Return the grid without its first times; the last one doubles."""
        beyond = max(0, count + 1 - len(self.times))
        return AnswerTimes((*self.times[count:-1], self.times[-1] * 2**beyond)) if self.times else self

    def find_next(self, elapsed: float) -> float:
        """Return the first time of the grid at or after ``elapsed``; without a grid, ``elapsed``.

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
    """The times at which steps of one call become visible, as :func:`time.monotonic` measures them."""

    def __init__(self, grid: AnswerTimes) -> None:
        self.grid = grid
        self.start = time.monotonic()
        """The time from which the grid's times and a statement's seconds count."""
        self.read_processor: Callable[[], tuple[int, int]] = lambda: (0, 0)
        """Returns the time for which the worker's threads ran, and the time for which they waited for a processor."""
        self._processor = (0, 0)
        self.touched = False
        """Whether private data were read since the last public time."""
        self.waited: float | None = None
        """The time of the reply, after a step before it has waited."""
        self.took: list[tuple[float, float]] = []
        """The seconds of each statement, from :meth:`_measure`."""
        self._ready: float | None = None
        """The time of the reply of a statement that is answered but not in the ledger yet."""
        self._given_up = threading.Event()

    def give_up(self) -> None:
        """Stop all waiting: the server ends, and no reply leaves."""
        self._given_up.set()

    def touch(self) -> None:
        """Note that private data are about to be read."""
        if not self.touched and self.waited is not None:
            self.start = max(self.waited, self._find_after_reply(time.monotonic()))
        if not self.touched:
            self._processor = self.read_processor()
        self.touched = True

    def begin_after(self, public: float | None) -> None:
        """Count from the end of another call, for which this one waited: its public time, or None for now.

        So time in the queue is no overrun, and an analyst can't use it to bring a statement close to a time of the grid.
        """
        self.start = time.monotonic() if public is None else max(self.start, public)

    def find_end(self) -> float | None:
        """Return the public time at which the call ended; None if it read no private data."""
        return None if self.waited is None else self._find_after_reply(time.monotonic())

    def _measure(self, now: float) -> tuple[float, float]:
        """Return a statement's seconds, and an estimate of those without other load, each with the lead.

        While private data are read, the worker's threads run or wait for a processor; their share of running is the estimate.
        """
        ran, waited = (
            max(0, new - old) for new, old in zip(self.read_processor(), self._processor, strict=True)
        )
        seconds, lead = now - self.start, self.grid.lead
        return seconds + lead, seconds * (ran / (ran + waited) if ran + waited else 1.0) + lead

    def find_reply_time(self, now: float) -> float:
        """Return the time of the reply of a statement that can be settled at ``now``."""
        lead = self.grid.lead
        return self.start + self.grid.find_next(now - self.start + lead)

    def find_ledger_time(self, reply: float) -> float:
        """Return when the ledger is written before a reply."""
        return reply - self.grid.lead

    def set_reply_time(self, at: float) -> None:
        """Set the time of the reply to an earlier result of :meth:`find_reply_time`."""
        self.touched, self._ready = False, None
        if self.grid.times:
            self.waited = at

    def wait_for_step(self) -> None:
        """Wait for a public time after a step whose duration may depend on the data; the grid stays the request's."""
        if self.grid.times:
            self._wait_until(self.find_ledger_time(self.find_reply_time(time.monotonic())))

    def note_answer(self) -> float:
        """Note that a statement is answered, which decides the time of its reply; return its time in the ledger."""
        now = time.monotonic()
        self.took.append(self._measure(now))
        self._ready = self.find_reply_time(now)
        return self.find_ledger_time(self._ready)

    def wait_for_ledger(self) -> None:
        """Wait until the ledger may show the steps after a touch."""
        if not self.touched:
            return
        if self._ready is None:
            self.note_answer()
        if self.grid.times:
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
        """Return the reply's time, or the next multiple of the lead after it."""
        assert self.waited is not None
        late = max(0.0, now - self.waited)
        return self.waited + math.ceil(late / self.grid.lead) * self.grid.lead

    def _wait_until(self, at: float) -> None:
        while (rest := at - time.monotonic()) > 0 and not self._given_up.wait(rest):
            pass


_PAYING = frozenset({"run", "plan", "postgres_run"})
"""Operations during which a worker may reserve."""
STOP_SECONDS = 5.0
"""Seconds that a worker has to stop an unpaid call before it is killed."""
LATE_SECONDS = 5.0
"""Seconds after the policy's ``max_seconds`` until a worker that did not end its statement is killed."""
MAX_JOURNAL_BYTES = 16 << 20
"""Most bytes of a journal, from which a session is restored."""
_SEEN_BY_OTHERS = frozenset({"reserve", "debit", "settle", "refuse", "publish"})
"""Calls of the ledger whose time others can see in totals or in numbers of statements."""
_MOST_FAILURES_LOGGED = 5

_READING = encode(READING)
_WITHHELD = "the engine failed while it read private data; the statement stays charged, and why is withheld."
STOPPED_FREE = "the statement was stopped before it was paid: nothing was charged."
_STOPPED_PAID = "the statement was stopped. Its reservation stays charged."
_ENDED_FREE = "the process that answers your statements ended before this one was paid: nothing was charged."
_SETTLED = (
    "the process that answers your statements ended late: its answers are stored, and asking again is free."
)
_LIMITS = "the owner's policy limits the memory and the time of a statement."
_numbers = itertools.count(1)


class WorkerEnded(Exception):
    """The worker ended before it began the call; another one may take the call."""


class AnalystCall:
    """A call, its worker and its clock. One thread runs it; any other may stop it.

    Args:
        operation: ``run``, ``explain``, ...
        session: the session's handle.
        analyst: the analyst's name.
        grid: the public times.
        seconds: the longest time of a statement.
        result_bytes: the largest answer.
    """

    def __init__(
        self, operation: str, session: str, analyst: str, grid: AnswerTimes, seconds: float, result_bytes: int
    ) -> None:
        self.number = next(_numbers)
        self.operation, self.session, self.analyst = operation, session, analyst
        self.clock = AnswerClock(grid)
        self.began = self.clock.start
        """The time of the request, as :func:`time.monotonic` measures it."""
        self.stopped = False
        self.is_abandoned: Callable[[], bool] = lambda: False
        """Returns whether the client has gone; called while the call waits in the queue."""
        self.ask_right: Callable[[], None] = lambda: None
        """Called before each payment; raises :class:`~dpsql.server.rights.RightError` if the right has lapsed since."""
        self.failures = 0
        """Paid statements that failed and that the queue has not counted yet."""
        self.has_failed = False
        """Whether any paid statement failed."""
        self.killed = False
        """Whether its worker has ended."""
        self.failure_places: list[str] = []
        """Places in our code that raised unforeseen errors, for the owner's log."""
        self.journal: list[bytes] | None = None
        """The lines that restore the session; None if they have not changed."""
        self.charges: set[int] = set()
        """The numbers of its paid statements."""
        self._seconds, self._result_bytes = seconds, result_bytes
        self._lock = threading.Lock()
        self._replies: list[bytes] = []
        self._size = 0
        self._at_stake = self._arrived = self._expired = self._heard = False
        self.finished = False
        self._due: Message | None = None
        """A settlement that is confirmed to the worker but not written yet."""
        self._due_at = 0.0
        self._left: dict[int, str] = {}
        """The budget left after each deferred settlement."""
        self._unsettled: Message | None = None
        """The error of a deferred settlement that could not be written; the client gets no answer."""
        self._killed_at: float | None = None
        self._kills: list[threading.Timer] = []
        """Kills that are due unless their statement is done before."""
        self._worker: WorkerProcess | None = None
        self._service: LedgerService | None = None

    # -- the conversation ---------------------------------------------------------------------------------------

    def run(
        self, worker: WorkerProcess, service: LedgerService, head: dict[str, Any], body: bytes
    ) -> Iterator[bytes]:
        """Send a task to a worker, and yield the messages that may reach the client before the call is done.

        The call ends in the usual way if the client goes away.

        Raises:
            WorkerEnded: the worker had ended already; nothing was paid.
        """
        with self._lock:
            self._worker, self._service = worker, service
            self._heard = self.finished = self.killed = False
        self.clock.read_processor = worker.read_processor
        service.begin()
        try:
            try:
                worker.frames.send({**head, "number": self.number}, body)
            except FrameError:
                raise WorkerEnded from None
            while (early := self._step()) is not None:
                yield from early
        finally:
            while not self.finished and not self.killed and self._step() is not None:
                pass
            self._finish()

    def _step(self) -> list[bytes] | None:
        """Handle the next frame; return messages for the client, None after the last frame."""
        assert self._worker is not None
        if self._due is not None:
            rest = self._due_at - time.monotonic()
            if rest <= 0 or not self._worker.frames.wait(rest):
                self._settle_due()
                return []
        try:
            frame = self._worker.frames.receive(None if self._expired else self._seconds + LATE_SECONDS)
            self._heard = True
            return self._take(frame)
        except TimeoutError:
            self._expire()
            return []
        except (FrameError, WireError):
            self._end_without_worker()
            return None

    def _take(self, frame: Message) -> list[bytes] | None:
        kind = frame.head["kind"]
        if kind == "ledger":
            self._answer_ledger(frame)
        elif kind == "touch":
            self._settle_due()
            with self._lock:
                self.clock.touch()
                self._at_stake = True
            return [_READING]
        elif kind == "opened":
            assert self._worker is not None
            self._wait_for_public_time(self.clock.wait_for_step)
            self._worker.frames.send({"kind": "answer"})
        elif kind == "reply":
            self._size += len(frame.payload)
            if self._size <= self._result_bytes:
                self._replies.append(frame.payload)
        elif kind == "journal":
            if len(frame.payload) <= MAX_JOURNAL_BYTES:
                self.journal = cut_bytes(frame.head.get("sizes"), frame.payload)
        elif kind == "failure":
            if len(self.failure_places) < _MOST_FAILURES_LOGGED:
                self.failure_places.append(str(frame.head.get("why", ""))[:100])
        elif kind == "done":
            self._settle_due()
            self._note_arrival()
            self.clock.wait_for_ledger()
            with self._lock:
                self.finished = True
            return None
        else:
            raise FrameError("a frame of an unknown kind")
        return []

    def _answer_ledger(self, frame: Message) -> None:
        """Answer a call of the ledger; calls that others could see wait for a public time first."""
        assert self._worker is not None and self._service is not None
        method = frame.head.get("method")
        if not isinstance(method, str):
            raise FrameError("a call without a method")
        self._settle_due()
        if method == "settle" and self.clock.touched:
            self._note_arrival()
            self._due, self._due_at = frame, self.clock.note_answer()
            self._worker.frames.send({"kind": "answer", "promised": True})
            return
        if method in _SEEN_BY_OTHERS:
            self._wait_for_public_time(self.clock.wait_for_ledger)
        answer = self._call_ledger(method, frame)
        try:
            self._worker.frames.send(answer.head, answer.payload)
        finally:
            self._service.finish_call()

    def _call_ledger(self, method: str, frame: Message) -> Message:
        """Pass a call to the ledger, and note whether a stop must wait from now on."""
        assert self._service is not None
        if method == "settle" and frame.head.get("outcome") == "failed":
            self._note_failure()
        shows = method == "publish"  # what is paid already, so that a stop is too late
        with self._lock:
            may_pay = self.operation in _PAYING and (shows or not self.stopped) and self._unsettled is None
        lapsed = self._find_lapse() if method in PAYING_CALLS and may_pay else None
        with self._lock:
            may_pay = may_pay and (shows or not self.stopped)
            if method == "reserve" and may_pay and lapsed is None:
                self._at_stake = True  # from here on a stop waits for the grid
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
        """Return the error for a worker that wants to pay after the analyst's right has lapsed."""
        try:
            self.ask_right()
        except RightError as refusal:
            return write_error(Interrupted(f"{refusal} Nothing more was charged."))
        return None

    def _settle_due(self) -> None:
        """Write a deferred settlement, if there is one, at its time."""
        frame, self._due = self._due, None
        if frame is None:
            return
        assert self._service is not None
        self._wait_for_public_time(self.clock.wait_for_ledger)
        answer = self._call_ledger("settle", frame)
        self._service.finish_call()
        if answer.head.get("kind") == "error":
            self._unsettled = answer
        else:
            self._left[int(frame.head["statement_id"])] = str(answer.head.get("left", ""))

    def _wait_for_public_time(self, wait: Callable[[], None]) -> None:
        """Wait for a public time; a stop takes effect after it."""
        self._note_arrival()
        wait()
        with self._lock:
            self._arrived = self._at_stake = False
            if self.stopped:
                self._schedule_end()

    @property
    def outcome(self) -> str:
        """The outcome for the log: the worst of its statements' outcomes, or ``public`` if none was paid."""
        if self.killed or self.has_failed or self._unsettled is not None:
            return "interrupted" if self.stopped else "failed"
        if self.stopped and not self.charges:
            return "stopped"
        return "released" if self.charges else "public"

    @property
    def replies(self) -> list[bytes]:
        """The messages that the client gets in the end."""
        if self._unsettled is not None:
            return [encode(self._unsettled)]
        if self._size <= self._result_bytes:
            return [fill_left(reply, self._left) for reply in self._replies] if self._left else self._replies
        sentence = f"the answer is larger than the {self._result_bytes:,} bytes that the owner allows. Its cost is paid."
        hint = "ask for fewer rows or columns of it: the private part is stored, and free."
        return [encode(write_error(Error(sentence, hint=hint)))]

    # -- its end ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop it: at once if nothing was paid, otherwise at the next time of the grid."""
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
        """Kill its worker without regard to the grid, since the server ends and no reply leaves."""
        self.clock.give_up()
        with self._lock:
            if not self.finished and self._worker is not None:
                self._worker.kill()

    def _expire(self) -> None:
        """End a statement that has taken too long; it counts as failed."""
        with self._lock:
            self._expired = True
            self._schedule_kill()

    def _note_arrival(self) -> None:
        """Note that a statement is done, and cancel its kills."""
        with self._lock:
            self._arrived = True
            self._cancel_kills()

    def _schedule_kill(self) -> None:
        """Schedule the end of a paid statement at the next time of the grid."""
        reply = self.clock.find_reply_time(time.monotonic())
        self._schedule(self.clock.find_ledger_time(reply) - time.monotonic(), reply)

    def _schedule_end(self) -> None:
        """Schedule the end of a worker that doesn't stop an unpaid call."""
        self._schedule(STOP_SECONDS, None)

    def _schedule(self, seconds: float, reply: float | None) -> None:
        timer = threading.Timer(max(0.0, seconds), lambda: self._kill(timer, reply))
        timer.daemon = True
        self._kills.append(timer)
        timer.start()

    def _kill(self, timer: threading.Timer, reply: float | None) -> None:
        with self._lock:
            if timer in self._kills and not self.finished and self._worker is not None:
                self._killed_at = reply
                self._worker.kill()

    def _cancel_kills(self) -> None:
        for timer in self._kills:
            timer.cancel()
        self._kills.clear()

    def _finish(self) -> None:
        with self._lock:
            self.finished = True
            self._cancel_kills()

    def _end_without_worker(self) -> None:
        """Settle the open statements of a worker that has ended, at a public time, and make the error for the client."""
        assert self._worker is not None and self._service is not None
        self.killed = True
        self._settle_due()
        paid = self._at_stake
        if not self._heard and not paid and not self.stopped:
            raise WorkerEnded
        if paid:
            self.clock.touch()
        if self._killed_at is not None:
            self.clock.set_reply_time(self._killed_at)
        self.clock.wait_for_ledger()
        with suppress(Error):
            self._service.settle_all()
        self._replies, self._size = [encode(write_error(self._explain_end(paid)))], 0
        with self._lock:
            self.finished = True

    def _explain_end(self, paid: bool) -> Error:
        """Return the error for a client whose worker has ended; ``paid``: whether a paid statement wasn't settled."""
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
