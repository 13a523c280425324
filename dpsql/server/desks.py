"""The desk of one analyst: their sessions, their worker, and whose turn it is.

One statement of an analyst is answered at a time, in the order of the requests; the others wait. A worker that ends is replaced:
sessions go on in the next one, where kept results are made again from stored answers. Sessions that ask nothing for long leave
their worker, which settles their thresholds, and the worker ends with the last of them; the handles stay good, and the next
request brings them back.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dpsql.client.wire import encode, pack_messages, write_error
from dpsql.errors import Error, Interrupted
from dpsql.ledger.store import ReplacedLedgerError
from dpsql.server.calls import STOP_SECONDS, STOPPED_FREE, AnalystCall, AnswerTimes, WorkerEnded
from dpsql.server.lapses import Refused
from dpsql.server.ledger_service import RESTART, LedgerService
from dpsql.server.limits import MAX_WAITING, RequestLimits, RequestRate

if TYPE_CHECKING:
    from dpsql.ledger.ledger import Ledger
    from dpsql.policy.model import Policy
    from dpsql.server.event_log import EventLog
    from dpsql.server.worker_process import WorkerPool, WorkerProcess

MAX_FAILURES, MAX_OVERRUNS = 3, 20
"""Failures past payment, and statements beyond the last answer time, after which an analyst is paused."""
EMPTY_SECONDS = 30.0
"""Seconds after which a worker without sessions ends."""
UNUSED_SECONDS = 300.0
"""Seconds after which a session makes room for another one of the same analyst, where there are too many."""
_HANDLE_BYTES = 16
_ATTEMPTS = 3
_LOOK_SECONDS = 1.0
"""The seconds between two looks at whether a waiting call's client is still there."""
_KEPT_DAYS = 7
"""Days after which a session that asks nothing is forgotten altogether."""


@dataclass(frozen=True)
class Edition:
    """A policy as it was read once, and what works under it.

    ``name`` is what the policy file is called; ``ledger`` is the whole one.
    """

    name: str
    policy: Policy
    ledger: Ledger
    pool: WorkerPool

    @property
    def limits(self) -> RequestLimits:
        """The limits of a request."""
        return RequestLimits.of(self.policy.server)

    @property
    def grid(self) -> AnswerTimes:
        """The public times of answers."""
        return AnswerTimes.of(self.policy.server.answer_times)


@dataclass
class SessionRecord:
    """The front's record of a session: neither statements nor answers, but what a worker wrote down for the next one."""

    handle: str
    token: str
    """A mark of the token that it was opened with."""
    used: float = field(default_factory=time.monotonic)
    home: WorkerProcess | None = None
    journal: list[bytes] = field(default_factory=list)
    ended: bool = False

    @property
    def log_name(self) -> str:
        """The name for a log, where the handle itself would open the session."""
        return hashlib.sha256(self.handle.encode()).hexdigest()[:8]


class Desk:
    """The sessions of one analyst.

    Args:
        analyst: the name, from the token.
        edition: the policy that holds.
        log: where events are written.
        pause: called with a reason where the analyst may ask nothing more.
        ask_right: called with the mark of a session's token, and whether something is only given back; it raises
            :class:`~dpsql.server.lapses.RightError` where the right does not hold.
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
        """The call that runs, and those that wait."""
        self._worker: WorkerProcess | None = None
        self._used: Edition | None = None
        """The edition that the worker belongs to."""
        self._service: LedgerService | None = None
        self._failures = self._overruns = 0
        self._leaving: list[SessionRecord] = []
        """Sessions that have ended, and that the worker still has."""
        self._empty_since: float | None = None
        self._closed = False

    # -- sessions -----------------------------------------------------------------------------------------------

    def open(self, token: str) -> SessionRecord:
        """Open a session. Where there are as many as there may be, the one that has asked nothing for longest ends.

        Raises:
            Refused: all of them are at work.
        """
        with self._turn:
            most = self.edition.policy.server.max_sessions
            if len(self._sessions) >= most:
                busy = {call.session for call in self._calls}
                idle = [record for record in self._sessions.values() if record.handle not in busy]
                oldest = min(idle, key=lambda record: record.used, default=None)
                if oldest is None or time.monotonic() - oldest.used < UNUSED_SECONDS:
                    raise Refused("you have as many sessions open as the owner allows; close one.")
                self._forget(oldest)
            record = SessionRecord(secrets.token_urlsafe(_HANDLE_BYTES), token)
            self._sessions[record.handle] = record
        return record

    @property
    def _idle_seconds(self) -> float:
        return 60.0 * self.edition.policy.server.max_idle_minutes

    def find(self, handle: str) -> SessionRecord:
        """Return a session by its handle.

        Raises:
            Refused: there is none of this analyst.
        """
        record = self._sessions.get(handle)
        if record is None or record.ended:
            raise Refused("there is no such session; connect again.")
        return record

    def _forget(self, record: SessionRecord) -> None:
        record.ended = True
        self._sessions.pop(record.handle, None)
        self._leaving.append(record)

    def resume(self) -> None:
        """Begin to count failures anew."""
        self._failures = self._overruns = 0

    def take_edition(self, edition: Edition) -> None:
        """Answer what comes from now on under another reading of the policy."""
        self.rate = RequestRate(edition.policy.server.max_requests_per_minute)
        self.edition = edition

    @property
    def used_edition(self) -> Edition | None:
        """The reading that the worker belongs to; None where there is no worker."""
        return self._used if self._worker is not None else None

    def tell(self) -> dict[str, Any]:
        """Return what its owner may see of it now, as JSON values. It takes no longer than a look at the calls."""
        with self._turn:
            calls = [call for call in self._calls if call.operation != "tidy"]
            sessions = len(self._sessions)
        now = time.monotonic()
        told = [
            {
                "operation": call.operation,
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
            "overruns": self._overruns,
            "calls": told,
        }

    # -- turns --------------------------------------------------------------------------------------------------

    def make_call(self, operation: str, handle: str) -> AnalystCall:
        """Return a call under the policy that holds now."""
        rules = self.edition.policy.server
        seconds = STOP_SECONDS if operation == "leave" else rules.max_seconds
        return AnalystCall(
            operation, handle, self.analyst, self.edition.grid, seconds, rules.max_result_bytes
        )

    @contextmanager
    def _taking_turn(self, call: AnalystCall) -> Iterator[None]:
        """Wait for the turn of a call.

        Raises:
            Refused: too many wait already, the server ends, or the client is gone.
        """
        with self._turn:
            if self._closed:
                raise Refused("the server ends.")
            if len(self._calls) > MAX_WAITING:
                raise Refused("too many requests of yours wait for their turn.")
            self._calls.append(call)
        try:
            with self._turn:
                while self._calls[0] is not call and not call.stopped:
                    self._turn.wait(_LOOK_SECONDS)
                    if call.is_abandoned():
                        raise Refused("nobody waits for the reply.")
            yield
        finally:
            with self._turn:
                self._calls.remove(call)
                self._turn.notify_all()

    def answer(self, call: AnalystCall, record: SessionRecord, body: bytes) -> Iterator[bytes]:
        """Answer a request, and yield the messages for the client.

        Raises:
            Refused: it is not taken up.
        """
        with self._taking_turn(call):
            self._ask_right(record.token, False)  # it may have lapsed while the call waited
            call.ask_right = lambda: self._ask_to_pay(call, record)
            if call.stopped:
                replies = [encode(write_error(Interrupted(STOPPED_FREE)))]
            else:
                yield from self._work(call, record, body)
                replies = list(pack_messages(call.replies))  # nothing is left to do at the public time
                call.wait_for_reply()
            record.used = time.monotonic()
        self._ask_right(record.token, True)
        if record.ended:
            raise Refused("this session has ended; connect again.")
        yield from replies

    def answer_and_log(self, call: AnalystCall, record: SessionRecord, body: bytes) -> Iterator[bytes]:
        """Answer a request as :meth:`answer` does, and write into the log how it ended: for every protocol in the same words.

        Raises:
            Refused: it is not taken up.
        """
        begun, outcome = time.monotonic(), "failed"
        try:
            yield from self.answer(call, record, body)
            outcome = call.outcome
        except GeneratorExit:  # the client has heard enough, or is gone: the call has ended as it would have
            outcome = call.outcome
            raise
        except Refused:
            outcome = "refused"
            raise
        finally:
            self.log_call(call, record.log_name, time.monotonic() - begun, outcome)

    def _ask_to_pay(self, call: AnalystCall, record: SessionRecord) -> None:
        """Ask whether a call may pay for a further statement.

        Raises:
            RightError: the right has lapsed since the request; by failures and overruns of its earlier statements, say.
        """
        self._count(call)
        self._ask_right(record.token, False)

    def _work(self, call: AnalystCall, record: SessionRecord, body: bytes) -> Iterator[bytes]:
        """Let the worker do a call; a worker that was gone already is replaced, and so is the one that was kept ready."""
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
                call.clock.wait_for_step()  # it has opened the data meanwhile
            try:
                self._bring(record, worker, service)
                yield from call.run(worker, service, head, body)
                return
            except WorkerEnded:
                self._drop_worker()
                if attempt == _ATTEMPTS - 1:
                    raise
            finally:  # also where the client went away
                if call.journal is not None:
                    record.journal = call.journal
                if call.killed:
                    self._drop_worker()
                self._count(call)

    def _bring(self, record: SessionRecord, worker: WorkerProcess, service: LedgerService) -> None:
        """Make a session again in a worker that does not have it."""
        if record.home is worker:
            return
        if record.journal:
            call = self.make_call("restore", record.handle)
            head = {"kind": "restore", "session": record.handle, "analyst": self.analyst}
            sizes = [len(line) for line in record.journal]
            self._finish(call, {**head, "sizes": sizes}, b"".join(record.journal), worker, service)
            if call.killed:
                record.journal = []  # whatever it was in there that can't be made again
                raise WorkerEnded
        record.home = worker

    def _finish(
        self,
        call: AnalystCall,
        head: dict[str, object],
        body: bytes,
        worker: WorkerProcess,
        service: LedgerService,
    ) -> None:
        """Let a worker do something that no client waits for."""
        for _ in call.run(worker, service, head, body):
            pass

    def log_call(self, call: AnalystCall, session: str, seconds: float, outcome: str) -> None:
        """Write a call into the log. What it was charged has lines of its own."""
        known: dict[str, Any] = {"analyst": self.analyst, "session": session, "policy": self.edition.name}
        known |= {"operation": call.operation, "seconds": round(seconds, 3)}
        for place in call.told:
            self._log.write("failure", **known, why=place)
        number = next(iter(call.charges)) if len(call.charges) == 1 else None
        self._log.write("answer", **known, statement=number, outcome=outcome)

    def _count(self, call: AnalystCall) -> None:
        """Count failures and overruns, and pause who has too many."""
        self._failures += call.failures
        self._overruns += call.clock.overruns
        call.failures = call.clock.overruns = 0
        why = ""
        if self._failures >= MAX_FAILURES:
            why = f"{MAX_FAILURES} statements failed after they were paid"
        elif self._overruns >= MAX_OVERRUNS:
            why = f"{MAX_OVERRUNS} statements took longer than the last answer time"
        if why:
            self.resume()
            with suppress(Error):
                self._pause(why)

    # -- the worker ---------------------------------------------------------------------------------------------

    def _ensure_worker(self) -> tuple[WorkerProcess, LedgerService]:
        """Return a worker of the edition that holds.

        Raises:
            Refused: none can be started.
        """
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
                raise Refused("the data can't be opened now; tell their owner.") from None
            own = edition.ledger.for_analyst(self.analyst)
            largest = edition.policy.server.max_result_bytes
            self._service = LedgerService(own, largest, self._report, self._tell_charge)
            self._worker, self._used = worker, edition
        return self._worker, self._service

    def _report(self, error: BaseException) -> None:
        """Tell the owner what went wrong with the ledger."""
        why = error.message if isinstance(error, Error) else type(error).__name__
        known = {"analyst": self.analyst, "policy": self.edition.name, "why": why}
        if isinstance(error, ReplacedLedgerError):
            return self._log.write("ledger replaced", **known, hint=RESTART)
        self._log.write("failure", **known)

    def _tell_charge(self, number: int, charge: str, outcome: str) -> None:
        """Tell the owner what a statement was charged, and how it ended."""
        told = {"analyst": self.analyst, "policy": self.edition.name, "charge": charge, "outcome": outcome}
        self._log.write("charge", statement=number, **told)

    def _drop_worker(self) -> None:
        """Forget a worker that has ended; what it left open is settled."""
        worker, service = self._worker, self._service
        self._worker = self._service = None
        if service is not None:
            with suppress(Error):
                service.settle_all("interrupted")
        if worker is not None:
            worker.close()
        for record in self._sessions.values():
            if record.home is worker:
                record.home = None

    def _leave(self, record: SessionRecord) -> None:
        """Close a session in its worker: thresholds are settled by what they told."""
        worker, service = self._worker, self._service
        if worker is not None and service is not None and record.home is worker:
            call = self.make_call("leave", record.handle)
            end = threading.Timer(2 * STOP_SECONDS, worker.kill)  # whatever it says meanwhile
            end.daemon = True
            end.start()
            try:
                with suppress(WorkerEnded):
                    self._finish(call, {"kind": "leave", "session": record.handle}, b"", worker, service)
            finally:
                end.cancel()
            if call.killed:
                self._drop_worker()
        record.home = None

    def _retire_worker(self) -> None:
        """End a worker in good order."""
        self._leave_ended()
        for record in list(self._sessions.values()):
            self._leave(record)
        self._drop_worker()

    def _leave_ended(self) -> None:
        while self._leaving:
            self._leave(self._leaving.pop())

    # -- what others ask ----------------------------------------------------------------------------------------

    def interrupt(self, handle: str) -> bool:
        """Stop what a session asks; False where it asks nothing."""
        with self._turn:
            calls = [call for call in self._calls if call.session == handle and call.operation != "leave"]
            for call in calls:
                call.stop()
            self._turn.notify_all()
        return bool(calls)

    def stop_call(self, call: AnalystCall) -> bool:
        """Stop one request; False where it is done."""
        with self._turn:
            waits = call in self._calls
            if waits:
                call.stop()
                self._turn.notify_all()
        return waits

    def close_session(self, record: SessionRecord) -> None:
        """Close a session, once nothing is being answered."""
        self._forget(record)
        call = self.make_call("leave", record.handle)
        with self._taking_turn(call):
            if not call.stopped:
                self._leave_ended()

    def end_sessions(self, holds: Callable[[SessionRecord], bool]) -> int:
        """End sessions whose token holds no more, at once: what they ask is stopped, and nothing more is told."""
        ended = [record for record in list(self._sessions.values()) if not holds(record)]
        for record in ended:
            self._forget(record)
            self.interrupt(record.handle)
        return len(ended)

    def tidy(self) -> None:
        """Let idle sessions leave, and end a worker that has none or is gone. Does nothing while a statement is answered."""
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
        """Stop what runs, settle it, and end the worker.

        Args:
            patience: seconds that a statement which has paid may have until its time of the grid.
        """
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
