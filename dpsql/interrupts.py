"""The stop button: work runs in a thread of its own, where no signal's exception can cut it in two.

Python runs signal handlers in the main thread, between any two of its instructions: an exception that one raises there could
leave a ledger half written, a query running, or an answer paid and lost. So while a session works for the main
thread, that thread only waits. Whatever a handler raises in it (Ctrl-C, a time-out's own exception) becomes a request to
stop, and the thread that works ends at the next place where it asks: a query that is polled, a step of a loop, a
registered function. Between two such places nothing is lost.

Other threads never run signal handlers, so work that they ask for runs in them.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from queue import SimpleQueue
from typing import Generic, NamedTuple, ParamSpec, TypeVar, cast

from dpsql.errors import Interrupted

T = TypeVar("T")
P = ParamSpec("P")

POLL_SECONDS = 0.1
"""The seconds between a waiting thread's looks for a stop; what it waits for wakes it at once."""
RESEND_SECONDS = 1.0
"""Time that foreign code has to end after an exception, before it gets another one."""


class _Listener(NamedTuple):
    """What a stop does while the work waits for somebody else."""

    tell: Callable[[], None] | None
    """Tells a stop to whoever the work waits for; None where there is nobody, or once it is told."""
    leave: Callable[[], BaseException]
    """Makes the error of a work that is not waited for any longer."""
    patience: int
    """Stops after which the work is not waited for."""


class StopRequest:
    """A request to stop, and the thread that may be ended by an exception at present."""

    def __init__(self) -> None:
        self.requested = False
        self.count = 0
        """The number of times that the user asked for a stop."""
        self._breakable: int | None = None
        self._sent = -math.inf
        self._lock = threading.Lock()
        self._listener: _Listener | None = None

    def request(self) -> None:
        """Ask for the end; a breakable thread gets an exception, and another one where it caught that."""
        self.requested = True
        with self._lock:
            if self._breakable is not None and time.monotonic() > self._sent + RESEND_SECONDS:
                self._sent = time.monotonic()
                _raise_in(self._breakable, KeyboardInterrupt)
            listener = self._listener
        if listener is not None and listener.tell is not None:
            listener.tell()
            with self._lock:
                if self._listener is listener:
                    self._listener = listener._replace(tell=None)

    @contextmanager
    def telling(self, tell: Callable[[], None] | None, leave: Callable[[], BaseException]) -> Iterator[None]:
        """Pass stops on within the block, as :func:`telling_stops` says."""
        with self._lock:
            self._listener = _Listener(tell, leave, 0 if tell is None else 1)
        try:
            yield
        finally:
            with self._lock:
                self._listener = None

    def find_leave(self) -> BaseException | None:
        """Return the error of a work that is not waited for any longer; None where it still is.

        It takes no lock: it runs where handlers raise, and one may raise between a block and the release of its lock.
        """
        listener = self._listener
        if listener is None or listener.tell is not None or self.count <= listener.patience:
            return None
        return listener.leave()

    def enter_breakable(self) -> None:
        """Let this thread be ended by an exception, until :meth:`leave_breakable`."""
        with self._lock:
            self._breakable = threading.get_ident()

    def leave_breakable(self) -> None:
        """Send no more, and wait for what was sent and may not have arrived.

        Nobody can tell whether it has, so one more is sent, which takes its place, and is caught. (To take one back leaves
        Python 3.11 looking for it for ever, and with a trace function it never gets on.)
        """
        with self._lock:
            self._breakable = None
        if self._sent == -math.inf:
            return
        try:
            _raise_in(threading.get_ident(), KeyboardInterrupt)
            while True:
                pass
        except KeyboardInterrupt:
            pass


_stop: ContextVar[StopRequest | None] = ContextVar("dpsql_stop", default=None)


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def is_stop_requested() -> bool:
    """Return whether what runs in this context was asked to stop."""
    stop = _stop.get()
    return stop is not None and stop.requested


@contextmanager
def telling_stops(tell: Callable[[], None] | None, leave: Callable[[], BaseException]) -> Iterator[None]:
    """Pass stops on within the block, in which this thread waits for somebody else.

    The first stop is told, and the work waited for; the second one ends the waiting, and the work goes on alone. Where there is
    nobody to tell, the first one does.

    Args:
        tell: tells a stop; called in another thread, which must not wait.
        leave: makes the error that a work ends with that is not waited for.
    """
    stop = _stop.get()
    with nullcontext() if stop is None else stop.telling(tell, leave):
        yield


def check_stop() -> None:
    """End what runs in this context, if it was asked to stop.

    Raises:
        KeyboardInterrupt: it was.
    """
    if is_stop_requested():
        raise KeyboardInterrupt


def run_breakable(work: Callable[[], T]) -> T:
    """Do work that a stop may end at any instruction by a KeyboardInterrupt: foreign code, which never asks.

    When it returns or raises, no such exception is on its way any more.
    """
    stop = _stop.get()
    if stop is None:
        return work()
    check_stop()
    outcome = WorkOutcome[T]()
    begun = broken = left = False
    while not left:
        try:
            if not begun:
                begun = True
                stop.enter_breakable()
                outcome = _do(work)
            stop.leave_breakable()
            left = True
        except KeyboardInterrupt:  # it arrived between two lines of ours
            broken = True
    if broken:
        raise KeyboardInterrupt
    return outcome.get()


class Turns:
    """A lock that one thread takes several times, and that can be waited for in vain: a stop ends the waiting."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        """The number of times that the thread whose turn it is has taken it."""

    def __enter__(self) -> None:
        while not self._lock.acquire(timeout=POLL_SECONDS):
            check_stop()
        self._depth += 1

    def __exit__(self, *exc: object) -> None:
        self._depth -= 1
        self._lock.release()

    @contextmanager
    def give_up(self) -> Iterator[None]:
        """Let others have their turn meanwhile, and take it back afterwards, which no stop ends."""
        depth, self._depth = self._depth, 0
        for _ in range(depth):
            self._lock.release()
        try:
            yield
        finally:
            for _ in range(depth):
                self._lock.acquire()
            self._depth = depth


# -- threads that work ------------------------------------------------------------------------------------------------


class WorkEnd:
    """An event that one thread waits for, in which a handler's exception may come between any two instructions.

    In those of ``threading.Event`` it may release the lock that a worker holds, which ends the worker, and then whoever sends it
    the next job waits for ever.
    """

    def __init__(self) -> None:
        self._told = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def is_set(self) -> bool:
        return self._told

    def set(self) -> None:
        """Wake the thread that waits; to do so twice is as good as once."""
        self._told = True
        with suppress(RuntimeError):  # it is free
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most, and return whether it was set."""
        if not self._told:
            self._lock.acquire(timeout=seconds)
        return self._told


class Worker:
    """A thread that does one job after another, since DuckDB takes a third longer in a new thread."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[tuple[Callable[[], object], WorkEnd]] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="dpsql-worker").start()

    def _run(self) -> None:
        _OWN.left = []
        while True:
            task, done = self.jobs.get()
            if done.is_set():
                continue  # an exception came between two lines of who sent it: it was sent twice
            with suppress(BaseException):
                task()
            del task  # nothing of it is held while there is none
            left, _OWN.left = _OWN.left, []
            if left:
                done.set()
            while left:
                with suppress(BaseException):
                    left.pop()()
            kept = len(_IDLE) < _MAX_IDLE
            if kept:
                _IDLE.append(self)
            done.set()
            if not kept:
                return


class _OwnWork(threading.local):
    """The work of a thread that nobody waits for; None in threads that are not workers."""

    left: list[Callable[[], object]] | None = None


_OWN = _OwnWork()
_MAX_IDLE = 6
_IDLE: list[Worker] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)  # a forked process has none of these threads


def take_worker() -> Worker:
    """Return a thread that has nothing to do; it puts itself back after its job."""
    try:
        return _IDLE.pop()
    except IndexError:
        return Worker()


def leave_work(work: Callable[[], object]) -> None:
    """Do work in a worker once whoever waits for what this thread does has it; what it raises is lost.

    Where no thread can be made it is done at once.
    """
    if _OWN.left is not None:
        _OWN.left.append(work)
        return
    try:
        worker = take_worker()
    except RuntimeError:
        with suppress(Exception):
            work()
        return
    worker.jobs.put((work, WorkEnd()))


def is_lack_of_threads(error: BaseException) -> bool:
    """Say whether an error of :func:`take_worker` is Python's that it can't make a thread: too many, or it is ending."""
    return isinstance(error, RuntimeError) and "new thread" in str(error)


class WorkOutcome(Generic[T]):
    """The end of a work: a value or an error, and whether a stop was asked for."""

    def __init__(self, value: T | None = None, error: BaseException | None = None) -> None:
        self.value, self.error = value, error
        self.stopped = False
        self.leaving: SystemExit | None = None
        """A handler's own wish to leave Python, which is held until the work has ended."""

    def get(self) -> T:
        """Return the value, or raise the error."""
        try:
            if self.error is not None:
                raise self.error
            return cast(T, self.value)
        finally:
            self.error = None  # its traceback holds this frame, and this frame holds it


def run_apart(work: Callable[[], T]) -> WorkOutcome[T]:
    """Do work for the main thread in another one; other threads do it themselves.

    Whatever the work raises is in the outcome; a stop makes it raise KeyboardInterrupt where it asks. An exception of a signal
    handler is a stop, and its SystemExit is kept. Where no other thread runs, since Python is ending or none can be made,
    the main thread works itself.
    """
    made: list[WorkOutcome[T]] = []
    done = WorkEnd()
    stop = StopRequest()
    worker: Worker | None = None
    stopped = sent = False
    leaving: SystemExit | None = None
    alone = sys.is_finalizing()  # then threads stand still, and nobody would ever answer
    while True:
        try:
            if threading.current_thread() is not threading.main_thread() or _stop.get() is not None:
                return _do(work)
            if stopped:
                stop.request()
            if alone:
                return copy_context().run(_do, work, stop)
            if not sent:
                worker = worker or take_worker()
                worker.jobs.put((partial(copy_context().run, _do, work, stop, made), done))
                sent = True
            while not done.wait(POLL_SECONDS):
                if stopped:
                    stop.request()
                left = stop.find_leave()
                if left is not None:
                    made.append(WorkOutcome(error=left))
                    done.set()
            made[0].stopped, made[0].leaving = stopped, leaving
            return made[0]
        except BaseException as error:  # wherever in here a handler's finds us, the work is ours to end
            leaving = error if isinstance(error, SystemExit) else leaving
            lacking = worker is None and is_lack_of_threads(error)
            stop.count += not lacking
            alone, stopped = alone or lacking, stopped or not lacking


def run_stoppable(work: Callable[[], T], stop: StopRequest) -> T:
    """Do work in this thread, which another thread may ask to stop: the work sees that where it asks.

    For processes in which no signal handler raises.
    """

    def begin() -> T:
        _stop.set(stop)
        return work()

    return copy_context().run(begin)


def _do(
    work: Callable[[], T], stop: StopRequest | None = None, made: list[WorkOutcome[T]] | None = None
) -> WorkOutcome[T]:
    outcome = WorkOutcome[T]()
    try:
        if stop is not None:
            _stop.set(stop)
            check_stop()
        outcome.value = work()
    except BaseException as error:
        outcome.error = error
    if made is not None:
        made.append(outcome)
    return outcome


def interruptible(method: Callable[P, T]) -> Callable[P, T]:
    """Let the stop button end a method as :class:`~dpsql.errors.Interrupted`, never in the middle of a step.

    What has ended anyway when the stop arrives is in the error's ``answered``, where it is a list of results.
    """

    @wraps(method)
    def stoppable(*args: P.args, **kwargs: P.kwargs) -> T:
        outcome: WorkOutcome[T] | None = None
        try:
            outcome = run_apart(lambda: method(*args, **kwargs))
        except BaseException:  # between two steps of ours, where there is one chance in a million
            pass
        if outcome is not None and outcome.leaving is not None:
            raise outcome.leaving
        if outcome is None or (outcome.stopped and outcome.error is None):
            late = Interrupted("stopped as it ended: what was answered is stored, and asking again is free.")
            late.answered = tuple(outcome.value) if outcome and isinstance(outcome.value, list) else ()
            raise late
        try:
            return outcome.get()
        except KeyboardInterrupt:
            raise Interrupted("the statement was stopped before it was paid: nothing was charged.") from None

    return stoppable
