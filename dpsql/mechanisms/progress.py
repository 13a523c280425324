"""The progress of releases, reported to listeners.

Progress is public: the number of steps of a statement, and that one of them is done, whatever its outcome.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from dpsql.interrupts import check_stop

ProgressListener = Callable[[int, int], None]
"""Called with (steps done, total steps)."""

_listener: ContextVar[ProgressListener | None] = ContextVar("dpsql_progress", default=None)


@contextlib.contextmanager
def watch_progress(listener: ProgressListener) -> Iterator[None]:
    """Report the progress of releases in this thread to ``listener``.

    A search that stops early stops at its released hit.

    >>> with watch_progress(lambda done, steps: print(f"{done} of {steps}")):
    ...     report_progress(3, 128)
    3 of 128
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def report_progress(done: int, steps: int) -> None:
    """Report progress to this thread's listener, if any; KeyboardInterrupt if the user stopped the statement."""
    check_stop()
    listener = _listener.get()
    if listener is not None:
        listener(done, steps)
