"""The front's side of a worker: it starts the process, exchanges frames with it, and ends it.

A worker is never a fork of the front. It gets only the environment that Python needs, the policy's time zone, the locale C, one
socket and one pipe. The front asks over the pipe to stop a call; the worker ends when the pipe does.

On Linux workers are forks of one process of the server, the fork server, which has imported what they need. So they start soon,
and share memory. The fork server opens no data and reads no request; a fork has one thread when it confines itself, and draws no
random number that another one draws (:mod:`dpsql.noise.entropy`). Elsewhere a worker is a new program.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from dpsql.client.wire import read_error
from dpsql.errors import Error, PolicyError
from dpsql.late_dataclass import dataclass
from dpsql.policy.model import ServerRules
from dpsql.server.frames import FrameError, Frames
from dpsql.server.isolation import MemoryGroups, remove_group

START_SECONDS = 300.0
"""Seconds that a worker may take to open the data."""
CLOSING_SECONDS = 20.0
_PASSED_ON = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "XDG_STATE_HOME", "DPSQL_STATE", "VIRTUAL_ENV")
_ROOT = str(Path(__file__).resolve().parents[2])


def write_import_path() -> str:
    """Return the ``PYTHONPATH`` of a process that imports the same packages."""
    return os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH", "")]))


def select_environment(*more: str) -> dict[str, str]:
    """Return the environment of a child process: the variables that Python needs, and ``more``, but no secrets."""
    given = {name: os.environ[name] for name in (*_PASSED_ON, *more) if name in os.environ}
    return given | {"PYTHONPATH": write_import_path(), "PYTHONUTF8": "1", "LC_ALL": "C"}


def start_program(
    module: str, files: Sequence[int], environment: dict[str, str], *more: str
) -> subprocess.Popen[bytes]:
    """Start a module of ours as a program in a session of its own, with some open files; their numbers are its arguments."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *map(str, files), *more],
        pass_fds=files,
        env=environment,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class ForkedProcess:
    """A process that the fork server started; methods as those of :class:`subprocess.Popen`."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid, self._file = pid, descriptor
        weakref.finalize(self, os.close, descriptor)

    def poll(self) -> int | None:
        """Return None while it runs."""
        return 0 if self._has_ended(0.0) else None

    def wait(self, timeout: float) -> int:
        """Wait for its end; TimeoutExpired if it runs longer."""
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("worker", timeout)
        return 0

    def _has_ended(self, seconds: float) -> bool:
        waiting = select.poll()
        waiting.register(self._file, select.POLLIN)
        return bool(waiting.poll(1000 * seconds))

    def kill(self) -> None:
        """End it at once."""
        with suppress(OSError):
            signal.pidfd_send_signal(self._file, signal.SIGKILL)


class ForkServer:
    """Starts the workers of all policies. The process begins with the first of them, and again if it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def start(self, files: Sequence[int], *more: str) -> ForkedProcess:
        """Start a worker with these files and arguments; OSError if it can't be started."""
        with self._lock:
            if self._socket is not None:
                with suppress(OSError):
                    return self._ask(self._socket, files, more)
            self._socket, theirs = socket.socketpair()
            with theirs:
                process = start_program("dpsql.server.worker", (theirs.fileno(),), select_environment())
            weakref.finalize(self._socket, process.wait)
            weakref.finalize(self, self._socket.close)
            self._socket.settimeout(START_SECONDS)
            return self._ask(self._socket, files, more)

    def _ask(self, server: socket.socket, files: Sequence[int], more: Sequence[str]) -> ForkedProcess:
        try:
            socket.send_fds(server, [" ".join(more).encode()], files)
            number, descriptors, _, _ = socket.recv_fds(server, 8, 1)
            if not descriptors:
                raise OSError("the fork server has ended")
            return ForkedProcess(int.from_bytes(number, "big"), descriptors[0])
        except OSError:
            server.close()
            raise


@cache
def _find_fork_server() -> ForkServer | None:
    """Return the fork server; None if this system has no descriptors of processes."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return None
    return ForkServer()


def start_worker(files: Sequence[int], *more: str) -> ForkedProcess | subprocess.Popen[bytes]:
    """Start a worker with some open files and further arguments; OSError if it can't be started."""
    server = _find_fork_server()
    if server is None:
        return start_program("dpsql.server.worker", files, select_environment(), *more)
    return server.start(files, *more)


@dataclass(frozen=True)
class WorkerSetup:
    """The arguments of a policy's workers.

    Args:
        policy: the text of the policy file.
        name: the name of the file.
        base: the folder of relative sources.
        database: the database of tables without a source.
        rules: the policy's limits.
    """

    policy: str
    name: str
    base: Path
    database: str
    rules: ServerRules


class WorkerProcess:
    """One worker, which is ready once :meth:`wait_until_ready` returns."""

    def __init__(self, setup: WorkerSetup, groups: MemoryGroups) -> None:
        self.setup = setup
        self.dataset = ""
        """The engine's name for the data, which the ledger keeps."""
        self.held: dict[str, str] = {}
        """The system's limits on it, from :func:`dpsql.server.isolation.confine`."""
        self.was_awaited = False
        """Whether a statement waited for its start."""
        memory = setup.rules.max_memory_mb << 20
        ours, theirs = socket.socketpair()
        read, self._stop_pipe = os.pipe()
        self._group = groups.make(memory)
        limit = memory if self._group is None else 0
        try:
            self._process = start_worker((theirs.fileno(), read), str(limit), setup.rules.time_zone)
        except OSError:
            os.close(self._stop_pipe)
            ours.close()
            self._remove_group()
            raise
        finally:
            theirs.close()
            os.close(read)
        self.frames = Frames(ours)
        self._ending = threading.Lock()
        self._ended = self._killed = self._reaped = False
        try:
            if self._group is not None:
                (self._group / "cgroup.procs").write_text(str(self._process.pid))
        except OSError:  # its memory would have no limit
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return not self._killed and self._process.poll() is None

    def wait_until_ready(self) -> None:
        """Send the setup, and wait until the worker has opened the data; PolicyError if it can't."""
        try:
            setup = self.setup
            places = {"name": setup.name, "base": str(setup.base), "database": setup.database}
            self.frames.send({"kind": "setup", "policy": setup.policy, **places})
            frame = self.frames.receive(START_SECONDS)
        except (FrameError, TimeoutError):
            self.kill()
            raise PolicyError(
                "the process that answers statements ended during its start.",
                hint="give it more memory: max_memory_mb under [server].",
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

    def read_processor(self) -> tuple[int, int]:
        """Return the nanoseconds for which its threads ran, and for which they waited for a processor; zeros if unknown."""
        ran = waited = 0
        with suppress(OSError, ValueError):
            for path in Path(f"/proc/{self._process.pid}/task").glob("*/schedstat"):
                with suppress(OSError):  # the thread has ended
                    times = path.read_text().split()
                    ran, waited = ran + int(times[0]), waited + int(times[1])
        return ran, waited

    def stop_call(self, number: int) -> None:
        """Ask the worker to stop this call, as a notebook's stop button does."""
        with suppress(OSError), self._ending:
            if not self._ended:
                os.write(self._stop_pipe, number.to_bytes(8, "big"))

    def kill(self) -> None:
        """Kill the process and its children.

        No caller waits for its end, since freeing its memory takes a time that depends on the data.
        """
        if self._reaped:
            return
        self._killed = True
        if self._process.poll() is None:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self.frames.shut()  # a child in a session of its own may still have the other end

    def close(self) -> None:
        """Kill the process, and release its resources in the background."""
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
        self.frames.close()
        self._remove_group()

    def _remove_group(self) -> None:
        if self._group is not None:
            remove_group(self._group)


class WorkerPool:
    """The workers of one policy. One spare worker is kept ready, since a start takes a second.

    Args:
        setup: the arguments of each worker.
        groups: the cgroups that limit their memory.
        report: called with the error of a spare worker that did not start.
    """

    def __init__(self, setup: WorkerSetup, groups: MemoryGroups, report: Callable[[Error], None]) -> None:
        self.setup, self._groups, self._report = setup, groups, report
        self._lock = threading.Lock()
        self._spare: WorkerProcess | None = None
        self._starting = self._closed = False

    def start(self) -> WorkerProcess:
        """Start a worker and wait until it is ready; PolicyError if the worker can't be started."""
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
        """Keep an unused worker as the spare one, or close it if there is one."""
        with self._lock:
            if not self._closed and self._spare is None:
                self._spare = worker
                return
        worker.close()

    def take(self) -> WorkerProcess:
        """Return an unused worker, and start another spare one in the background; PolicyError if no worker can be started."""
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
        """End the spare worker, and keep none from now on."""
        with self._lock:
            self._closed = True
            worker, self._spare = self._spare, None
        if worker is not None:
            worker.close()
