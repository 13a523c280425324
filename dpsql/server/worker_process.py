"""A worker as the front sees it: a process, the frames to and from it, and its end.

It is started as a new program, never forked from the front's threads, with nothing of the front's environment but what Python
needs, in the time zone of the policy and the locale C. Of open files it gets its socket and a pipe. Over the pipe it is asked to
stop a call; when the pipe ends, since the front is gone, so does the worker.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsql.client.wire import Message, read_error
from dpsql.errors import Error, PolicyError
from dpsql.policy.model import ServerRules
from dpsql.server.frames import FrameError, Frames
from dpsql.server.isolation import MemoryGroups, remove_group

START_SECONDS = 300.0
"""Seconds that a worker may take to open the data."""
CLOSING_SECONDS = 20.0
_PASSED_ON = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "XDG_STATE_HOME", "DPSQL_STATE", "VIRTUAL_ENV")
_ROOT = str(Path(__file__).resolve().parents[2])


def write_import_path() -> str:
    """Return the ``PYTHONPATH`` of a process that imports what this one does."""
    return os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH", "")]))


def select_environment(*more: str) -> dict[str, str]:
    """Return what a process of ours gets of this one's environment: what Python needs to find its modules, and no secrets.

    Args:
        more: names of further variables.
    """
    given = {name: os.environ[name] for name in (*_PASSED_ON, *more) if name in os.environ}
    return given | {"PYTHONPATH": write_import_path(), "PYTHONUTF8": "1", "LC_ALL": "C"}


@dataclass(frozen=True)
class WorkerSetup:
    """All that workers of one policy are started with.

    Args:
        policy: the text of the policy file.
        name: what the file is called.
        base: the folder that relative sources start from.
        database: the database of tables without a source.
        rules: the policy's limits.
    """

    policy: str
    name: str
    base: Path
    database: str
    rules: ServerRules

    def to_json(self) -> dict[str, Any]:
        """Return the first frame's head."""
        return {
            "kind": "setup",
            "policy": self.policy,
            "name": self.name,
            "base": str(self.base),
            "database": self.database,
        }


class WorkerProcess:
    """One worker. It is ready to work once :meth:`wait_until_ready` has returned."""

    def __init__(self, setup: WorkerSetup, groups: MemoryGroups) -> None:
        self.setup = setup
        self.dataset = ""
        """The name of the data in the ledger, as the worker's engine gives it."""
        self.held: dict[str, str] = {}
        """The means by which the operating system holds it, as :func:`dpsql.server.isolation.confine` says."""
        self.was_awaited = False
        """True where a statement waited for its start, since no other one was ready."""
        memory = setup.rules.max_memory_mb << 20
        ours, theirs = socket.socketpair()
        read, self._stop_pipe = os.pipe()
        environment = select_environment() | {"TZ": setup.rules.time_zone}
        self._group = groups.make(memory)
        command = [sys.executable, "-P", "-m", "dpsql.server.worker", str(theirs.fileno()), str(read)]
        try:
            self._process = subprocess.Popen(
                [*command, str(memory) if self._group is None else ""],
                pass_fds=(theirs.fileno(), read),
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            os.close(self._stop_pipe)
            ours.close()
            self._remove_group()
            raise
        finally:
            theirs.close()
            os.close(read)
        self._frames = Frames(ours)
        self._ending = threading.Lock()
        self._ended = self._killed = self._reaped = False
        try:
            if self._group is not None:
                (self._group / "cgroup.procs").write_text(str(self._process.pid))
        except OSError:  # nothing else bounds its memory
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Tell whether its process runs."""
        return not self._killed and self._process.poll() is None

    def wait_until_ready(self) -> None:
        """Send what it needs, and wait until it has opened the data.

        Raises:
            PolicyError: the policy does not fit the data, or the worker can't be started.
        """
        try:
            self._frames.send(self.setup.to_json())
            frame = self._frames.receive(START_SECONDS)
        except (FrameError, TimeoutError):
            self.kill()
            raise PolicyError(
                "the process that answers statements ended while it started.",
                hint="does it have enough memory ([server] max_memory_mb)?",
            ) from None
        if frame.head["kind"] != "ready":
            self.kill()
            try:
                raise read_error(frame)
            except (KeyError, TypeError):
                raise PolicyError("the process that answers statements can't start.") from None
        self.dataset = str(frame.head.get("dataset", ""))
        held = frame.head.get("held")
        self.held = {str(key): str(value) for key, value in held.items()} if isinstance(held, dict) else {}
        if self._group is not None:
            self.held["memory"] = "cgroup"

    def send(self, head: dict[str, Any], payload: bytes = b"") -> None:
        """Send a frame.

        Raises:
            FrameError: the worker is gone.
        """
        self._frames.send(head, payload)

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next frame.

        Raises:
            FrameError: the worker is gone, or broke the protocol. TimeoutError: nothing came.
        """
        return self._frames.receive(timeout)

    def wait_for_frame(self, seconds: float) -> bool:
        """Wait for the beginning of a frame, or the end of the worker; False where neither came."""
        return self._frames.wait(seconds)

    def stop_call(self, number: int) -> None:
        """Ask the worker to stop a call, as the stop button does in a notebook; another call is not affected."""
        with suppress(OSError), self._ending:
            if not self._ended:
                os.write(self._stop_pipe, number.to_bytes(8, "big"))

    def kill(self) -> None:
        """End the process at once, and what it has started.

        Nobody waits until it is gone: to free what it held takes a time that tells how much that was.
        """
        if self._reaped:
            return
        self._killed = True
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._frames.shut()  # what it started in a session of its own may hold the other end

    def close(self) -> None:
        """Forget a worker that has ended or was killed."""
        with self._ending:
            if self._ended:
                return
            self._ended = True
            os.close(self._stop_pipe)
        self.kill()
        threading.Thread(target=self._reap, daemon=True, name="dpsql-reap").start()

    def _reap(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSING_SECONDS)
            self._reaped = True
        self._frames.close()
        self._remove_group()

    def _remove_group(self) -> None:
        if self._group is not None:
            remove_group(self._group)


class WorkerPool:
    """Workers of one policy. One that nobody uses is kept ready, since a start takes a second.

    Args:
        setup: what they are started with.
        groups: where their memory is bounded.
        report: called with the error of a worker that could not be started ahead.
    """

    def __init__(self, setup: WorkerSetup, groups: MemoryGroups, report: Callable[[Error], None]) -> None:
        self.setup, self._groups, self._report = setup, groups, report
        self._lock = threading.Lock()
        self._spare: WorkerProcess | None = None
        self._starting = self._closed = False

    def start(self) -> WorkerProcess:
        """Start a worker and wait until it is ready.

        Raises:
            PolicyError: it can't be started.
        """
        try:
            worker = WorkerProcess(self.setup, self._groups)
        except OSError:
            raise PolicyError("the process that answers statements can't be started.") from None
        try:
            worker.wait_until_ready()
        except BaseException:
            worker.close()
            raise
        return worker

    def keep(self, worker: WorkerProcess) -> None:
        """Keep a worker that nobody has used for the next one who needs one."""
        with self._lock:
            if not self._closed and self._spare is None:
                self._spare = worker
                return
        worker.close()

    def take(self) -> WorkerProcess:
        """Return a worker that nobody has used, and make another one ready meanwhile.

        Raises:
            PolicyError: none can be started.
        """
        with self._lock:
            worker, self._spare = self._spare, None
        if worker is not None and not worker.is_alive:
            worker.close()
            worker = None
        if worker is None:
            worker = self.start()
            worker.was_awaited = True
        self._start_spare()
        return worker

    def _start_spare(self) -> None:
        with self._lock:
            if self._starting or self._closed:
                return
            self._starting = True
        threading.Thread(target=self._make_spare, daemon=True, name="dpsql-spare-worker").start()

    def _make_spare(self) -> None:
        worker = None
        try:
            worker = self.start()
        except Error as error:
            self._report(error)
        finally:
            with self._lock:
                self._starting = False
        if worker is not None:
            self.keep(worker)

    def close(self) -> None:
        """End the worker that nobody uses, and keep none any more."""
        with self._lock:
            self._closed = True
            worker, self._spare = self._spare, None
        if worker is not None:
            worker.close()
