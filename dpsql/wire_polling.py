"""The way in which gRPC waits for messages, which both ends of a connection choose when they begin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NAME = "GRPC_EXPERIMENTS"
_IN_PLACE = "-event_engine_client,-event_engine_listener"


@contextmanager
def waiting_in_place() -> Iterator[None]:
    """Let gRPC, where it starts within the block, wait for messages in the threads that want them.

    By default threads of its own wait and wake these: for one statement some ten wake-ups, each of which costs as much as a
    tenth of its way over loopback. A choice that the environment makes stays, and other programs that are started do not
    inherit this one.
    """
    if _NAME in os.environ:
        yield
        return
    os.environ[_NAME] = _IN_PLACE
    try:
        yield
    finally:
        os.environ.pop(_NAME, None)
