"""A sign of life for work that takes longer than a second: one line of text that goes away. No widgets.

The stop button (or Ctrl-C) interrupts the engine; what was reserved stays charged.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from uuid import uuid4

from dpsql.mechanisms.base import watch_progress

PATIENCE = 1.0
"""Seconds before anything is shown."""


class Progress:
    """A line that says how long a statement has been running, from :data:`PATIENCE` seconds on.

    ``show`` draws a line in place of the last one; the empty line wipes it.
    """

    def __init__(self, show: Callable[[str], None], every: float = 1.0) -> None:
        self._show = show
        self._every = every
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._steps: tuple[int, int] | None = None
        self._listening: AbstractContextManager[None] = nullcontext()

    def _told(self, done: int, steps: int) -> None:
        self._steps = (done, steps)

    def __enter__(self) -> Progress:
        started = time.monotonic()
        self._listening = watch_progress(self._told)
        self._listening.__enter__()
        context = contextvars.copy_context()  # a kernel finds the cell to write to in its context
        self._thread = threading.Thread(target=context.run, args=(self._tick, started), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.__exit__(kind, error, trace)
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _tick(self, started: float) -> None:
        if self._done.wait(PATIENCE):
            return
        while True:
            steps = "" if self._steps is None else f", {self._steps[0]:,} of {self._steps[1]:,} steps"
            self._show(f"running for {time.monotonic() - started:.0f} s{steps}; stopping it keeps the charge")
            if self._done.wait(self._every):
                self._show("")
                return


def draw_in_kernel() -> Callable[[str], None]:
    """Return a function that draws by updating one display of the running cell."""
    from IPython.display import display

    identity = uuid4().hex
    shown = False

    def show(line: str) -> None:
        nonlocal shown
        display({"text/plain": line}, raw=True, display_id=identity, update=shown)  # type: ignore[no-untyped-call]
        shown = True

    return show


def draw_in_terminal(line: str) -> None:
    """Draw over the last line of standard error."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[2K" + line)
        sys.stderr.flush()
