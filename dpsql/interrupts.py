"""The stop button: work runs in its own thread, where no signal handler's exception can interrupt it.

Python runs signal handlers in the main thread, between any two instructions. An exception raised there could leave a
ledger half written, a query running, or an answer paid and lost. So while a session works for the main thread, that
thread only waits. Whatever a handler raises (Ctrl-C, a time-out's exception) becomes a stop request, and the working
thread ends at its next check: a polled query, a loop's step, a registered function. Nothing is lost between two checks.

Other threads never run signal handlers, so their work runs in them.
"""

from __future__ import annotations

import ctypes
import gc
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
"""Seconds between a waiting thread's checks for a stop; the awaited result wakes it at once."""
RESEND_SECONDS = 1.0
"""Seconds that foreign code has to end after an exception before another is sent."""


class _Listener(NamedTuple):
    """The effect of a stop while the work waits for another party."""

    tell: Callable[[], None] | None
    """Reports a stop to the awaited party; None if there is none, or once it is reported."""
    leave: Callable[[], BaseException]
    """Makes the error of abandoned work."""
    patience: int
    """The number of stops after which the work is abandoned."""


class StopRequest:
    """A stop request, and the thread that an exception may currently end."""

    def __init__(self) -> None:
        self.requested = False
        self.count = 0
        """The number of stops the user requested."""
        self._breakable: int | None = None
        self._sent = -math.inf
        self._lock = threading.Lock()
        self._listener: _Listener | None = None

    def request(self) -> None:
        """Request the end: send a breakable thread an exception, again if it caught the last."""
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
        """Forward stops within the block, as described at :func:`telling_stops`."""
        with self._lock:
            self._listener = _Listener(tell, leave, 0 if tell is None else 1)
        try:
            yield
        finally:
            with self._lock:
                self._listener = None

    def find_leave(self) -> BaseException | None:
        """Return the error of abandoned work; None if it is still awaited. Takes no lock, since it runs where handlers raise."""
        listener = self._listener
        if listener is None or listener.tell is not None or self.count <= listener.patience:
            return None
        return listener.leave()

    def enter_breakable(self) -> None:
        """Allow this thread to be ended by an exception, until :meth:`leave_breakable`."""
        with self._lock:
            self._breakable = threading.get_ident()

    def leave_breakable(self) -> None:
        """Stop sending exceptions, and absorb one that was sent but may not have arrived.

        Whether it arrived can't be known, so one more is sent, which replaces it, and is caught. (Revoking one makes
        Python 3.11 check for it forever; with a trace function it never proceeds.)
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
    """Return whether this context was asked to stop."""
    stop = _stop.get()
    return stop is not None and stop.requested


@contextmanager
def telling_stops(tell: Callable[[], None] | None, leave: Callable[[], BaseException]) -> Iterator[None]:
    """Forward stops within the block, in which this thread waits for another party.

    The first stop is reported and the work still awaited; the second abandons the work, which continues alone. Without
    a party to report to, the first stop abandons it.

    Args:
        tell: reports a stop; called in another thread, and must not block.
        leave: makes the error of abandoned work.
    """
    stop = _stop.get()
    with nullcontext() if stop is None else stop.telling(tell, leave):
        yield


def check_stop() -> None:
    """Raise KeyboardInterrupt if this context was asked to stop."""
    if is_stop_requested():
        raise KeyboardInterrupt


def run_breakable(work: Callable[[], T]) -> T:
    """Run foreign code so that a stop may end it anywhere by a KeyboardInterrupt, none of which is pending afterwards."""
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
        except KeyboardInterrupt:  # it arrived between two of our lines
            broken = True
    if broken:
        raise KeyboardInterrupt
    return outcome.get()


class Turns:
    """A reentrant lock whose wait a stop can end."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        """The number of times the current thread has acquired the lock."""

    def __enter__(self) -> None:
        while not self._lock.acquire(timeout=POLL_SECONDS):
            check_stop()
        self._depth += 1

    def __exit__(self, *exc: object) -> None:
        self._depth -= 1
        self._lock.release()

    @contextmanager
    def give_up(self) -> Iterator[None]:
        """Release the lock within the block, and take it back afterwards, which no stop ends."""
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


@contextmanager
def pausing_collection(lasting: bool = False) -> Iterator[None]:
    """Pause Python's collector of cycles in this context: all new objects stay in use, and each pass would visit them.

    ``lasting``: they stay in use afterwards too, as modules do, so they join the oldest generation without a visit. The
    collector is process-wide: threads may only end the pause early.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if lasting and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        gc.enable()


class WorkEnd:
    """An event for one waiting thread, in which a handler's exception may occur between any two instructions.

    In ``threading.Event`` such an exception may release the lock that a worker holds. That ends the worker, and the
    next sender of a job would wait forever.
    """

    def __init__(self) -> None:
        self._told = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def is_set(self) -> bool:
        return self._told

    def set(self) -> None:
        """Wake the waiting thread; idempotent."""
        self._told = True
        with suppress(RuntimeError):  # it is already released
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Wait for at most ``seconds``, and return whether the event was set."""
        if not self._told:
            self._lock.acquire(timeout=seconds)
        return self._told


class Worker:
    """A thread that runs one job after another; DuckDB is a third slower in new threads."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[tuple[Callable[[], object], WorkEnd]] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="dpsql-worker").start()

    def _run(self) -> None:
        _OWN.left = []
        while True:
            task, done = self.jobs.get()
            if done.is_set():
                continue  # an exception came between two lines of the sender, which sent it twice
            with suppress(BaseException):
                task()
            del task  # keep no reference while idle
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
    """The deferred work of a worker thread; None in other threads."""

    left: list[Callable[[], object]] | None = None


_OWN = _OwnWork()
_MAX_IDLE = 6
_IDLE: list[Worker] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_IDLE.clear)  # a forked process has none of these threads


def take_worker() -> Worker:
    """Return an idle worker; it returns itself to the pool after its job."""
    try:
        return _IDLE.pop()
    except IndexError:
        return Worker()


def leave_work(work: Callable[[], object]) -> None:
    """Run work in a worker once this thread's result is delivered, or now if none can be made; its errors are lost."""
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
    """Return whether an error of :func:`take_worker` means that Python can't start a thread: too many, or shutting down."""
    return isinstance(error, RuntimeError) and "new thread" in str(error)


class WorkOutcome(Generic[T]):
    """The end of a work: a value or an error, and whether a stop was requested."""

    def __init__(self, value: T | None = None, error: BaseException | None = None) -> None:
        self.value, self.error = value, error
        self.stopped = False
        self.leaving: SystemExit | None = None
        """A handler's SystemExit, deferred until the work has ended."""

    def get(self) -> T:
        """Return the value, or raise the error."""
        try:
            if self.error is not None:
                raise self.error
            return cast(T, self.value)
        finally:
            self.error = None  # its traceback and this frame refer to each other


def run_apart(work: Callable[[], T]) -> WorkOutcome[T]:
    """Run work for the main thread in another thread; other threads run it themselves.

    The outcome contains any exception of the work; a stop makes its next check raise KeyboardInterrupt. A signal
    handler's exception is a stop, and its SystemExit is kept. If no thread can run (Python is shutting down, or none
    can be made), the main thread runs the work.
    """
    made: list[WorkOutcome[T]] = []
    done = WorkEnd()
    stop = StopRequest()
    worker: Worker | None = None
    stopped = sent = False
    leaving: SystemExit | None = None
    alone = sys.is_finalizing()  # then threads are suspended, and no answer would ever come
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
        except BaseException as error:  # a handler's exception may arrive anywhere here; end the work
            leaving = error if isinstance(error, SystemExit) else leaving
            lacking = worker is None and is_lack_of_threads(error)
            stop.count += not lacking
            alone, stopped = alone or lacking, stopped or not lacking


def run_stoppable(work: Callable[[], T], stop: StopRequest) -> T:
    """Run work in this thread; another thread may request a stop. For processes in which no signal handler raises."""

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
    """Decorate a method so that the stop button ends it as :class:`~dpsql.errors.Interrupted`, never within a step.

    If the work had ended with a list of results when the stop arrived, the error's ``answered`` has them.
    """

    @wraps(method)
    def stoppable(*args: P.args, **kwargs: P.kwargs) -> T:
        outcome: WorkOutcome[T] | None = None
        try:
            outcome = run_apart(lambda: method(*args, **kwargs))
        except BaseException:  # between two of our steps, about once in a million
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
