"""The queue of one analyst: their sessions, their worker, and their requests.

One request of an analyst is answered at a time, in order. If a worker ends, another one takes over its sessions, and makes kept
results again from stored answers. Idle sessions leave their worker, which settles their thresholds; the worker ends after the
last of them. Their handles stay valid, and the next request restores them.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any

from dpsql.client.wire import Message, decode_all, encode, read_error, write_error
from dpsql.errors import Error, Interrupted
from dpsql.late_dataclass import dataclass
from dpsql.ledger.store import ReplacedLedgerError
from dpsql.server.calls import STOP_SECONDS, STOPPED_FREE, AnalystCall, AnswerTimes, WorkerEnded
from dpsql.server.frames import MAX_FRAME
from dpsql.server.ledger_service import RESTART, LedgerService
from dpsql.server.rights import MAX_WAITING, Refused, RequestRate

if TYPE_CHECKING:
    from dpsql.ledger.ledger import Ledger
    from dpsql.policy.model import Policy
    from dpsql.server.analyst_tokens import TokenReader
    from dpsql.server.event_log import EventLog
    from dpsql.server.worker_process import WorkerPool, WorkerProcess

MAX_FAILURES, MAX_OVERRUNS = 3, 20
"""Paid statements that failed until an analyst is paused, and statements after an answer time within an hour until it is skipped.

After the last time they lead to a pause, unless other load made them late.
"""
OVERRUN_SECONDS = 3600.0
"""Seconds for which such a statement counts."""
EMPTY_SECONDS = 30.0
"""Seconds until a worker without sessions ends."""
UNUSED_SECONDS = 300.0
"""Idle seconds after which a session makes room for another one of its analyst if there are too many."""
_HANDLE_BYTES = 16
_ATTEMPTS = 3
_LOOK_SECONDS = 1.0
"""Seconds between two checks that a waiting call's client is still connected."""
_KEPT_DAYS = 7
"""Days until an idle session is deleted."""


@dataclass(frozen=True)
class Edition:
    """One reading of a policy, with its ledger for all analysts and its workers. ``name`` is the policy file's."""

    name: str
    policy: Policy
    ledger: Ledger
    pool: WorkerPool
    reader: TokenReader | None = None
    """Reads the tokens of the policy's identity provider."""

    @property
    def grid(self) -> AnswerTimes:
        """The public times of answers."""
        return AnswerTimes.of(self.policy.server.answer_times)


@dataclass
class SessionRecord:
    """The front's record of a session. Its journal is a worker's note for the next one; the front doesn't read it."""

    handle: str
    token: str
    """The mark of the token that opened it."""
    used: float = field(default_factory=time.monotonic)
    home: WorkerProcess | None = None
    journal: list[bytes] = field(default_factory=list)
    ended: bool = False

    @property
    def log_name(self) -> str:
        """The session's name in the log, since the handle itself would give access to it."""
        return name_session(self.handle)


def name_session(handle: str) -> str:
    """Return a session's name in the log."""
    return hashlib.sha256(handle.encode()).hexdigest()[:8]


class AnalystQueue:
    """The sessions, the worker and the queued requests of one analyst.

    Args:
        analyst: the name, from the token.
        edition: the present reading of the policy.
        log: gets events.
        pause: called with a reason to pause the analyst.
        ask_right: called with the mark of a session's token, and whether the request only closes or stops something; it raises
            :class:`~dpsql.server.rights.RightError` if the analyst has no right to it.
    """

    def __init__(
        self,
        analyst: str,
        edition: Edition,
        log: EventLog,
        pause: Callable[[str], None],
        ask_right: Callable[[str, bool], None],
    ) -> None:
        self.analyst, self.edition = analyst, edition
        self.rate = RequestRate(edition.policy.server.max_requests_per_minute)
        self._log, self._pause, self._ask_right = log, pause, ask_right
        self._sessions: dict[str, SessionRecord] = {}
        self._turn = threading.Condition()
        self._calls: deque[AnalystCall] = deque()
        """The running call, then the waiting ones."""
        self._free_at: float | None = None
        """The public time at which the last call ended; None if it read no private data."""
        self._worker: WorkerProcess | None = None
        self._used: Edition | None = None
        """The worker's edition."""
        self._service: LedgerService | None = None
        self._failures = 0
        self._slow: deque[tuple[float, float, float]] = deque()
        """When each statement ended that missed the first answer time, and its seconds with and without load; oldest first."""
        self._leaving: list[SessionRecord] = []
        """Ended sessions that the worker still has."""
        self._empty_since: float | None = None
        self._closed = False

    # -- sessions -----------------------------------------------------------------------------------------------

    def open(self, token: str, member: str = "") -> SessionRecord:
        """Open a session, also of a group's member. If the analyst has the most that the owner allows, the longest idle one ends.

        Raises:
            Refused: all of them are in use.
        """
        with self._turn:
            most = self.edition.policy.server.max_sessions
            if len(self._sessions) >= most:
                busy = {call.session for call in self._calls}
                idle = [record for record in self._sessions.values() if record.handle not in busy]
                oldest = min(idle, key=lambda record: record.used, default=None)
                if oldest is None or time.monotonic() - oldest.used < UNUSED_SECONDS:
                    raise Refused("you have reached the owner's limit of open sessions; close one.")
                self._forget(oldest)
            record = SessionRecord(secrets.token_urlsafe(_HANDLE_BYTES), token)
            self._sessions[record.handle] = record
        self._log_session("open", record, member=member or None)
        return record

    def _log_session(self, event: str, record: SessionRecord, member: str | None = None) -> None:
        known = {"analyst": self.analyst, "session": record.log_name, "policy": self.edition.name}
        self._log.write(event, **known, member=member)

    @property
    def _idle_seconds(self) -> float:
        return 60.0 * self.edition.policy.server.max_idle_minutes

    def find(self, handle: str) -> SessionRecord:
        """Return a session by its handle; Refused if this analyst has no such session."""
        record = self._sessions.get(handle)
        if record is None or record.ended:
            raise Refused("there is no such session; connect again.")
        return record

    def _forget(self, record: SessionRecord) -> None:
        record.ended = True
        self._sessions.pop(record.handle, None)
        self._leaving.append(record)

    def resume(self) -> None:
        """Reset the counts of failures and overruns."""
        self._failures = 0
        self._slow.clear()

    def _list_slow(self) -> list[tuple[float, float]]:
        """Return the seconds of slow statements of the last hour, with and without load."""
        end = time.monotonic() - OVERRUN_SECONDS
        return [(took, alone) for at, took, alone in tuple(self._slow) if at > end]

    @property
    def overruns(self) -> int:
        """How many statements of the last hour missed the last answer time, and would have missed it without other load."""
        last = max(self.edition.grid.times, default=math.inf)
        return sum(alone > last for _, alone in self._list_slow())

    @property
    def grid(self) -> AnswerTimes:
        """The answer times of this analyst: those before which too many statements of the last hour were not done are skipped.

        An analyst who chooses work close to a time learns from each statement whether it missed that time. So each time, and each
        doubling of the last one, may be missed :data:`MAX_OVERRUNS` times an hour, as in predictive mitigation (Askarov, Zhang
        and Myers 2010), whether the work or other load made the statements late.
        """
        found, slow, count = self.edition.grid, self._list_slow(), 0
        while found.times and sum(took > found.times[0] for took, _ in slow) >= MAX_OVERRUNS:
            count += 1
            found = self.edition.grid.skip(count)
        return found

    def take_edition(self, edition: Edition) -> None:
        """Answer further requests under another reading of the policy."""
        self.rate = RequestRate(edition.policy.server.max_requests_per_minute)
        self.edition = edition

    @property
    def used_edition(self) -> Edition | None:
        """The worker's reading of the policy; None without a worker."""
        return self._used if self._worker is not None else None

    def summarize(self) -> dict[str, Any]:
        """Return the state that the owner's page shows, as JSON values, without waiting for a call."""
        with self._turn:
            calls = [call for call in self._calls if call.operation != "tidy"]
            sessions = len(self._sessions)
        now = time.monotonic()
        shown = [
            {
                "operation": call.operation,
                "session": name_session(call.session),
                "seconds": round(now - call.began, 1),
                "stage": "waits" if place else "reads" if call.clock.touched else "works",
                "stopped": call.stopped,
                "statements": list(call.charges),
            }
            for place, call in enumerate(calls)
        ]
        return {
            "analyst": self.analyst,
            "sessions": sessions,
            "failures": self._failures,
            "overruns": self.overruns,
            "calls": shown,
        }

    # -- turns --------------------------------------------------------------------------------------------------

    def make_call(self, operation: str, handle: str) -> AnalystCall:
        """Return a call under the present policy."""
        rules = self.edition.policy.server
        seconds = STOP_SECONDS if operation == "leave" else rules.max_seconds
        return AnalystCall(operation, handle, self.analyst, self.grid, seconds, rules.max_result_bytes)

    @contextmanager
    def _taking_turn(self, call: AnalystCall) -> Iterator[None]:
        """Wait for a call's turn in the queue."""
        with self._turn:
            if self._closed:
                raise Refused("the server ends.")
            if len(self._calls) > MAX_WAITING:
                raise Refused("too many requests of yours wait for their turn.")
            self._calls.append(call)
        try:
            with self._turn:
                has_waited = False
                while self._calls[0] is not call and not call.stopped:
                    has_waited = True
                    self._turn.wait(_LOOK_SECONDS)
                    if call.is_abandoned():
                        raise Refused("the client has disconnected.")
                if has_waited:
                    call.clock.begin_after(self._free_at)
            yield
        finally:
            with self._turn:
                self._free_at = call.clock.find_end()
                self._calls.remove(call)
                self._turn.notify_all()

    def answer(self, call: AnalystCall, record: SessionRecord, body: bytes) -> Iterator[bytes]:
        """Answer a request, and yield the messages for the client; Refused if the request is rejected."""
        with self._taking_turn(call):
            self._ask_right(record.token, False)  # it may have lapsed while the call waited
            call.ask_right = lambda: self._ask_to_pay(call, record)
            if call.stopped:
                reply = encode(write_error(Interrupted(STOPPED_FREE)))
            else:
                yield from self._work(call, record, body)
                reply = b"".join(call.replies)  # no work remains at the public time
                call.wait_for_reply()
            record.used = time.monotonic()
        self._ask_right(record.token, True)
        if record.ended:
            raise Refused("this session has ended; connect again.")
        yield reply

    def answer_and_log(self, call: AnalystCall, record: SessionRecord, body: bytes) -> Iterator[bytes]:
        """Answer a request as :meth:`answer` does, and log its outcome, alike for every protocol; Refused if rejected."""
        begun, outcome = time.monotonic(), "failed"
        try:
            yield from self.answer(call, record, body)
            outcome = call.outcome
        except GeneratorExit:  # the client has gone, but the call has ended in the usual way
            outcome = call.outcome
            raise
        except Refused:
            outcome = "refused"
            raise
        finally:
            self.log_call(call, record.log_name, time.monotonic() - begun, outcome)

    def ask(self, call: AnalystCall, record: SessionRecord, body: bytes) -> Iterator[Message]:
        """Answer a request as :meth:`answer_and_log` does, and yield the messages of the reply.

        Raises:
            Refused: the request is rejected. Error: the reply is an error of ours.
        """
        for reply in self.answer_and_log(call, record, body):
            for message in decode_all(reply):
                if message.head.get("kind") == "error":
                    raise read_error(message)
                yield message

    def _ask_to_pay(self, call: AnalystCall, record: SessionRecord) -> None:
        """Check that a call may pay for a further statement."""
        self._count(call)
        self._ask_right(record.token, False)

    def _work(self, call: AnalystCall, record: SessionRecord, body: bytes) -> Iterator[bytes]:
        """Pass a call to the worker. Replace a worker that had ended already, and then the spare one if it had, too."""
        head = {
            "kind": "call",
            "operation": call.operation,
            "session": record.handle,
            "analyst": self.analyst,
        }
        for attempt in range(_ATTEMPTS):
            before = self._worker
            worker, service = self._ensure_worker()
            if worker is not before and worker.was_awaited:
                call.clock.wait_for_step()  # the time that it took to open the data must not show
                call.clock.begin_after(None)
            try:
                self._bring(record, worker, service)
                yield from call.run(worker, service, head, body)
                return
            except WorkerEnded:
                self._drop_worker()
                if attempt == _ATTEMPTS - 1:
                    raise
            finally:  # also if the client went away
                if call.journal is not None:
                    record.journal = call.journal
                if call.killed:
                    self._drop_worker()
                self._count(call)

    def _bring(self, record: SessionRecord, worker: WorkerProcess, service: LedgerService) -> None:
        """Restore a session in a worker that doesn't have it."""
        if record.home is worker:
            return
        if record.journal:
            call = self.make_call("restore", record.handle)
            head = {"kind": "restore", "session": record.handle, "analyst": self.analyst}
            sizes = [len(line) for line in record.journal]
            for _ in call.run(worker, service, {**head, "sizes": sizes}, b"".join(record.journal)):
                pass
            if call.killed:
                record.journal = []  # the next worker would fail on it, too
                raise WorkerEnded
        record.home = worker

    def log_call(self, call: AnalystCall, session: str, seconds: float, outcome: str) -> None:
        """Write a call into the log. Its charges have lines of their own."""
        known: dict[str, Any] = {"analyst": self.analyst, "session": session, "policy": self.edition.name}
        known |= {"operation": call.operation, "seconds": round(seconds, 3)}
        for place in call.failure_places:
            self._log.write("failure", **known, why=place)
        number = next(iter(call.charges)) if len(call.charges) == 1 else None
        self._log.write("answer", **known, statement=number, outcome=outcome)

    def _count(self, call: AnalystCall) -> None:
        """Count failures and slow statements, and skip an answer time or pause the analyst after too many."""
        self._failures += call.failures
        first = min(self.edition.grid.times, default=math.inf)
        self._slow.extend((time.monotonic(), *took) for took in call.clock.took if took[0] > first)
        while self._slow and self._slow[0][0] < time.monotonic() - OVERRUN_SECONDS:
            self._slow.popleft()
        call.failures = 0
        call.clock.took.clear()
        call.clock.grid = self.grid
        why = ""
        if self._failures >= MAX_FAILURES:
            why = f"{MAX_FAILURES} statements failed after they were paid"
        elif self.overruns >= MAX_OVERRUNS:
            why = f"{MAX_OVERRUNS} statements within an hour took longer than the last answer time"
        if why:
            self.resume()
            with suppress(Error):
                self._pause(why)

    # -- the worker ---------------------------------------------------------------------------------------------

    def _ensure_worker(self) -> tuple[WorkerProcess, LedgerService]:
        """Return a worker of the present edition."""
        if self._worker is not None and self._used is not self.edition:
            self._retire_worker()
        if self._worker is not None and not self._worker.is_alive:
            self._drop_worker()
        if self._worker is None or self._service is None:
            edition = self.edition
            try:
                worker = edition.pool.take()
            except Error as error:
                self._log.write("no worker", analyst=self.analyst, policy=edition.name, why=error.message)
                raise Refused("the server can't open the data now; tell the owner.") from None
            own = edition.ledger.for_analyst(self.analyst)
            largest = min(edition.policy.server.max_result_bytes, MAX_FRAME // 2)
            self._service = LedgerService(own, largest, self._report, self._tell_charge)
            self._worker, self._used = worker, edition
        return self._worker, self._service

    def _report(self, error: BaseException) -> None:
        """Log an error of the ledger for the owner."""
        why = error.message if isinstance(error, Error) else type(error).__name__
        known = {"analyst": self.analyst, "policy": self.edition.name, "why": why}
        if isinstance(error, ReplacedLedgerError):
            return self._log.write("ledger replaced", **known, hint=RESTART)
        self._log.write("failure", **known)

    def _tell_charge(self, number: int, charge: str, outcome: str) -> None:
        """Log a statement's charge and outcome for the owner."""
        known = {"analyst": self.analyst, "policy": self.edition.name, "charge": charge, "outcome": outcome}
        self._log.write("charge", statement=number, **known)

    def _drop_worker(self) -> None:
        """Forget a worker that has ended, and settle its open statements."""
        worker, service = self._worker, self._service
        self._worker = self._service = None
        if service is not None:
            with suppress(Error):
                service.settle_all()
        if worker is not None:
            worker.close()
        for record in self._sessions.values():
            if record.home is worker:
                record.home = None

    def _leave(self, record: SessionRecord) -> None:
        """Close a session in its worker, which settles thresholds by their answers so far."""
        worker, service = self._worker, self._service
        if worker is not None and service is not None and record.home is worker:
            call = self.make_call("leave", record.handle)
            end = threading.Timer(2 * STOP_SECONDS, worker.kill)  # even if it goes on sending
            end.daemon = True
            end.start()
            try:
                with suppress(WorkerEnded):
                    for _ in call.run(worker, service, {"kind": "leave", "session": record.handle}, b""):
                        pass
            finally:
                end.cancel()
            if call.killed:
                self._drop_worker()
        record.home = None

    def _retire_worker(self) -> None:
        """Close a worker's sessions, and end it."""
        self._leave_ended()
        for record in list(self._sessions.values()):
            self._leave(record)
        self._drop_worker()

    def _leave_ended(self) -> None:
        while self._leaving:
            self._leave(self._leaving.pop())

    # -- stopping -----------------------------------------------------------------------------------------------

    def interrupt(self, handle: str) -> bool:
        """Stop a session's requests; return whether there were any."""
        return self._stop(lambda call: call.session == handle and call.operation != "leave")

    def stop_call(self, stopped: AnalystCall) -> bool:
        """Stop one request; return False if it is done."""
        return self._stop(lambda call: call is stopped)

    def stop_statement(self, number: int) -> bool:
        """Stop the request that runs a paid statement; return False if none does, or it is stopped already."""
        return self._stop(lambda call: max(call.charges, default=0) == number and not call.stopped)

    def _stop(self, is_meant: Callable[[AnalystCall], bool]) -> bool:
        """Stop the requests that are meant, and return whether there are any."""
        with self._turn:
            calls = [call for call in self._calls if is_meant(call)]
            for call in calls:
                call.stop()
            self._turn.notify_all()
        return bool(calls)

    def close_session(self, record: SessionRecord) -> None:
        """Close a session in its turn."""
        self._log_session("close", record)
        self._forget(record)
        call = self.make_call("leave", record.handle)
        with self._taking_turn(call):
            if not call.stopped:
                self._leave_ended()

    def end_sessions(self, holds: Callable[[SessionRecord], bool]) -> int:
        """End sessions without a valid token at once: stop their requests, and send no further reply; return their number."""
        ended = [record for record in list(self._sessions.values()) if not holds(record)]
        for record in ended:
            self._forget(record)
            self.interrupt(record.handle)
        return len(ended)

    def tidy(self) -> None:
        """Close idle sessions, and end a worker without any, unless a request is being answered."""
        call = self.make_call("tidy", "")
        with self._turn:
            if self._calls or self._worker is None or self._closed:
                return
            self._calls.append(call)
        try:
            if not self._worker.is_alive:
                self._drop_worker()
            elif self._used is not self.edition:
                self._retire_worker()
            self._let_idle_leave(time.monotonic())
        finally:
            with self._turn:
                self._calls.remove(call)
                self._turn.notify_all()

    def _let_idle_leave(self, now: float) -> None:
        for record in list(self._sessions.values()):
            if now - record.used > self._idle_seconds:
                self._leave(record)
            if now - record.used > self._idle_seconds + _KEPT_DAYS * 86_400:
                self._forget(record)
        self._leave_ended()
        if self._worker is None or any(r.home is self._worker for r in self._sessions.values()):
            self._empty_since = None
            return
        self._empty_since = self._empty_since or now
        if now - self._empty_since > EMPTY_SECONDS:
            self._drop_worker()

    def close(self, patience: float) -> None:
        """Stop and settle what runs, and end the worker; ``patience``: seconds for a paid statement to reach its time."""
        end = time.monotonic() + patience
        with self._turn:
            self._closed = True
            for call in self._calls:
                call.stop()
            while self._calls and (rest := end - time.monotonic()) > 0:
                self._turn.wait(rest)
            running = list(self._calls)
        for call in running:
            call.end()
        with self._turn:
            while self._calls and time.monotonic() < end + patience:
                self._turn.wait(0.1)
        if not self._calls:
            self._retire_worker()
