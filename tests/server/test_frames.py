"""Frames between the front and a worker: their end, whoever holds the other side."""

from __future__ import annotations

import socket
import threading

import pytest

from dpsql.server.frames import FrameError, Frames


def test_whoever_waits_hears_the_end_though_another_process_holds_the_socket() -> None:
    """A worker may have started a process in a session of its own, which no signal to the worker's group reaches."""
    ours, theirs = socket.socketpair()
    front, worker, kept = Frames(ours), Frames(theirs), theirs.dup()
    worker.send({"kind": "done"})
    worker.close()
    with pytest.raises(TimeoutError):
        front.receive(0.1)
        front.receive(0.1)
    threading.Timer(0.1, front.shut).start()
    with pytest.raises(FrameError):
        front.receive(10)
    front.close()
    kept.close()


def test_what_was_said_before_the_end_is_heard() -> None:
    ours, theirs = socket.socketpair()
    front, worker = Frames(ours), Frames(theirs)
    worker.send({"kind": "done"}, b"payload")
    front.shut()
    assert front.receive(1).payload == b"payload"
    with pytest.raises(FrameError):
        front.receive(1)
    front.close()
    worker.close()
