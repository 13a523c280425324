"""The progress of releases, as whoever watches them is told of it.

What is told is public: the steps that a statement has, and that one of them is done, whatever came of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from dpsql.interrupts import check_stop

ProgressListener = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""

_listener: ContextVar[ProgressListener | None] = ContextVar("dpsql_progress", default=None)


@contextlib.contextmanager
def watch_progress(listener: ProgressListener) -> Iterator[None]:
    """Report the progress of releases in this thread to ``listener``.

    The numbers are public: the number of steps is, and a step counts as done whatever its outcome. (A search that
    stops early stops where its released hit says.)

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
    """Tell the listener of this thread, if there is one, how many steps are done.

    Raises:
        KeyboardInterrupt: the user stopped the statement.
    """
    check_stop()
    listener = _listener.get()
    if listener is not None:
        listener(done, steps)
