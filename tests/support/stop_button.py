"""A stop button for tests: pressed until the work has stopped, since a query may not have begun at the first press."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def pressed(
    stop: Callable[[], object],
    every: float = 0.3,
    times: int | None = None,
    ready: Callable[[int], object] = lambda done: True,
) -> Iterator[None]:
    """Press a stop button from another thread while the body runs, at most so many times.

    Args:
        stop: presses it.
        every: the seconds before each time.
        times: how often at most.
        ready: tells whether the body is where it is to be stopped, given how often it was; the seconds count from then.
    """
    stopped = threading.Event()

    def press() -> None:
        done = 0
        while (times is None or done < times) and not stopped.is_set():
            while not ready(done) and not stopped.wait(0.01):
                pass
            if not stopped.wait(every):
                stop()
                done += 1

    button = threading.Thread(target=press)
    button.start()
    try:
        yield
    finally:
        stopped.set()
        button.join()
