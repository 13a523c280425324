"""How far a release has come, for whoever watches: told by mechanisms that work in steps, one block or batch at a time.

What is told is public: how many steps there are is, and a step counts as done whatever became of it. (A search that
stops early stops where its released hit says.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

Listener = Callable[[int, int], None]
"""Told (steps done, steps in all). It may raise KeyboardInterrupt to end the release."""

_listener: ContextVar[Listener | None] = ContextVar("dpsql_progress", default=None)


@contextlib.contextmanager
def reporting(listener: Listener) -> Iterator[None]:
    """Whatever is released in this thread meanwhile tells ``listener`` how far it is.

    >>> with reporting(lambda done, steps: print(f"{done} of {steps}")):
    ...     told(3, 128)
    3 of 128
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def told(done: int, steps: int) -> None:
    """Tells the listener, if there is one."""
    listener = _listener.get()
    if listener is not None:
        listener(done, steps)
