"""A queue whose worker is a script in a thread: what the front does can be tried without a process, and at any moment."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dpsql.client.wire import Message, decode_all, encode
from dpsql.ledger.ledger import Ledger
from dpsql.policy.model import Policy
from dpsql.server.calls import AnswerClock, AnswerTimes
from dpsql.server.event_log import EventLog
from dpsql.server.frames import FrameError, Frames
from dpsql.server.queues import AnalystQueue, Edition

POLICY = """
budget = { epsilon = 10, delta = 1e-6, accountant = "basic" }
[tables]
visits = { privacy_unit = "patient" }
[analysts.ada]
epsilon = 5
[server]
"""
EVENT = {"kind": "pure", "epsilon": "1"}


class ScriptedSide:
    """The worker's end of the frames, for a script."""

    def __init__(self, sock: socket.socket) -> None:
        self.frames = Frames(sock)
        self.stops: list[int] = []
        self.touched = threading.Event()

    def ask(self, method: str, **head: Any) -> Message:
        """Ask the ledger."""
        self.frames.send({"kind": "ledger", "method": method, **head})
        return self.frames.receive()

    def touch(self) -> None:
        self.frames.send({"kind": "touch"})
        self.touched.set()

    def hang(self) -> None:
        """Say nothing any more, until the worker is killed."""
        while True:
            self.frames.receive()

    def reply(self, **head: Any) -> None:
        self.frames.send({"kind": "reply"}, encode(Message(head)))

    def pay(self, event: Mapping[str, Any]) -> int | None:
        """Reserve; return the statement's number, None where it was refused."""
        answer = self.ask("reserve", event=event, text="SELECT")
        return answer.head.get("statement_id")

    def settle(self, number: int, event: Mapping[str, Any], outcome: str = "released") -> Message:
        return self.ask("settle", statement_id=number, event=event, outcome=outcome, kept=[])


Script = Callable[[ScriptedSide, Message], None]
Leave = Callable[[ScriptedSide], None]


class ScriptedWorker:
    """A stand-in for a :class:`~dpsql.server.worker_process.WorkerProcess`."""

    def __init__(self, script: Script, leave: Leave | None = None) -> None:
        ours, theirs = socket.socketpair()
        self.frames, self.side = Frames(ours), ScriptedSide(theirs)
        self._theirs = theirs
        self.is_alive = True
        self.was_awaited = False
        self.seen: list[Message] = []
        self._script, self._leave = script, leave
        self.processor = (0, 0)
        threading.Thread(target=self._run, daemon=True).start()

    def read_processor(self) -> tuple[int, int]:
        """Return made-up times for which its threads ran and waited."""
        return self.processor

    def _run(self) -> None:
        try:
            while True:
                frame = self.side.frames.receive()
                self.seen.append(frame)
                if frame.head["kind"] == "call":
                    self._script(self.side, frame)
                elif frame.head["kind"] == "leave" and self._leave is not None:
                    self._leave(self.side)
                self.side.frames.send({"kind": "done"})
        except (FrameError, OSError, SystemExit):
            self.kill()

    def stop_call(self, number: int) -> None:
        self.side.stops.append(number)

    def kill(self) -> None:
        self.is_alive = False
        with suppress(OSError):
            self._theirs.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.kill()
        self.frames.close()
        self._theirs.close()


class ScriptedPool:
    """A stand-in for a :class:`~dpsql.server.worker_process.WorkerPool`."""

    def __init__(self, script: Script, leave: Leave | None = None) -> None:
        self.script, self.leave = script, leave
        self.workers: list[ScriptedWorker] = []

    def take(self) -> ScriptedWorker:
        self.workers.append(ScriptedWorker(self.script, self.leave))
        return self.workers[-1]

    def wait_for_touch(self) -> None:
        """Wait until the latest worker reads private data."""
        while not self.workers or not self.workers[-1].side.touched.wait(0.001):
            pass


@dataclass(frozen=True)
class Wait:
    """A wait for a public time, in seconds after the call was asked."""

    begun: float
    until: float
    outcomes: tuple[str, ...]
    """The outcomes in the ledger when it began."""
    asked: float
    """When the call was asked."""


class NotedClock(AnswerClock):
    """A clock that notes for which times it waits, so that no test needs to measure them on a machine that may stall."""

    def __init__(self, grid: AnswerTimes, queue: ScriptedQueue) -> None:
        super().__init__(grid)
        self._asked, self._queue = self.start, queue

    def _wait_until(self, at: float) -> None:
        begun = time.monotonic() - self._asked
        self._queue.waits.append(Wait(begun, at - self._asked, tuple(self._queue.outcomes()), self._asked))
        if not self._queue.skips_waits:
            super()._wait_until(at)


class ScriptedQueue:
    """A queue of ``ada`` with a script for its workers.

    Args:
        script: what a worker does with each call.
        server: keys of the policy's [server] section.
        ledger: where it is kept; in memory by default.
        leave: what a worker does when a session leaves it; nothing by default.
        skips_waits: whether waits for public times are noted and not waited for. These may then be so late that nothing
            but what the script does comes before them.
    """

    def __init__(
        self,
        script: Script,
        server: str = "",
        ledger: Path | None = None,
        leave: Leave | None = None,
        skips_waits: bool = False,
    ) -> None:
        self.waits: list[Wait] = []
        """The waits of all calls, in their order."""
        self.took = 0.0
        """Seconds that the last call took."""
        self.skips_waits = skips_waits
        self.policy = Policy.loads(POLICY + server)
        self.ledger = Ledger.open(ledger, self.policy, "data")
        self.pool: Any = ScriptedPool(script, leave)
        self.log = io.StringIO()
        self.paused: list[str] = []
        edition = Edition("clinic", self.policy, self.ledger, self.pool)
        self.queue = AnalystQueue(
            "ada", edition, EventLog(self.log), self.paused.append, lambda mark, letting_go: None
        )
        self.session = self.queue.open("mark")

    def ask(self, operation: str = "run") -> list[Message]:
        """Answer a call; return the messages of its reply."""
        begun = time.monotonic()
        call = self.queue.make_call(operation, self.session.handle)
        replies = self.queue.answer(call, self.session, b"body")
        told = [message for reply in replies for message in decode_all(reply)]
        self.took = time.monotonic() - begun
        return told

    def outcomes(self) -> list[str]:
        return [entry.outcome for entry in self.ledger.entries()]

    def __enter__(self) -> ScriptedQueue:
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr("dpsql.server.calls.AnswerClock", lambda grid: NotedClock(grid, self))
        return self

    def __exit__(self, *exc: object) -> None:
        self._patch.undo()
        for worker in self.pool.workers:
            worker.close()
        self.ledger.close()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]
