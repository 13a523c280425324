"""Waiting for a server: who hears the stop button, and what nobody waits for."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

import dpsql
from dpsql import interrupts
from dpsql.client.remote_session import RemoteSession
from dpsql.client.wire import Message
from dpsql.interrupts import leave_work, run_apart
from tests.support.stop_button import pressed

OPENED = Message({"kind": "value", "session": "s1", "analyst": "ann", "policy": ""})
END = Message({"kind": "end"})


LONG = 60
"""Seconds in which anything has happened that will; what never comes takes as long."""


class SlowChannel:
    """A channel to a server that answers nothing but its first message, if that; what follows an end never comes."""

    def __init__(self, opens: bool) -> None:
        self.opens = opens
        self.released = threading.Event()
        self.sent: list[str] = []
        self.outlasted: list[str] = []
        """What was waited for to the end."""
        self.left: list[str] = []
        """The threads that waited for what follows an end."""

    def call(
        self, action: str, message: Message, session: str = "", timeout: float | None = None
    ) -> Iterator[Message]:
        self.sent.append(action)
        if action == "dpsql.open" and self.opens:
            yield OPENED
            yield END
            self.left.append(threading.current_thread().name)
        if action != "dpsql.interrupt":
            self.released.wait(LONG)
            self.outlasted.append(action)

    def close(self) -> None:
        self.released.set()


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_stop_leaves_a_server_that_does_not_open() -> None:
    channel = SlowChannel(opens=False)
    with pressed(press, times=1, ready=lambda done: channel.sent), pytest.raises(KeyboardInterrupt):
        RemoteSession(channel, "slow")
    assert not channel.outlasted
    assert channel.sent == ["dpsql.open"], "there is no session that could be interrupted"
    channel.close()


def test_the_first_stop_is_told_and_the_second_leaves() -> None:
    channel = SlowChannel(opens=True)
    session = RemoteSession(channel, "slow")
    presses: list[int] = []
    with (
        pressed(
            lambda: (presses.append(1), press()),
            times=2,
            ready=lambda done: ("dpsql.run", "dpsql.interrupt")[done] in channel.sent,
        ),
        pytest.raises(dpsql.Interrupted, match="left while"),
    ):
        session.sql("SELECT 1")
    assert len(presses) == 2
    assert not channel.outlasted
    assert channel.sent == ["dpsql.open", "dpsql.run", "dpsql.interrupt"]
    channel.close()


def test_nobody_waits_for_what_follows_an_end() -> None:
    channel = SlowChannel(opens=True)
    RemoteSession(channel, "slow")
    assert not channel.outlasted
    end = time.monotonic() + LONG
    while not channel.left and time.monotonic() < end:
        time.sleep(0.01)
    assert channel.left == ["dpsql-worker"]
    channel.close()


def test_left_work_comes_after_the_outcome() -> None:
    go, done = threading.Event(), threading.Event()

    def work() -> int:
        leave_work(lambda: (go.wait(LONG), done.set()))
        return 7

    assert run_apart(work).get() == 7
    assert not done.is_set()
    assert run_apart(lambda: 8).get() == 8, "another thread is free meanwhile"
    go.set()
    assert done.wait(LONG)


def test_left_work_is_done_at_once_where_no_thread_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(interrupts, "take_worker", refuse)
    done: list[str] = []
    leave_work(lambda: done.append("it"))
    leave_work(lambda: 1 // 0)
    assert done == ["it"]
