"""The worker: a process that answers the statements of one analyst. It has the policy and the data, but no ledger and no tokens.

    python -m dpsql.server.worker SOCKET                        the fork server, which starts a worker for each message
    python -m dpsql.server.worker SOCKET PIPE MEMORY TIMEZONE   a worker

A worker confines itself first, opens the data, and then answers one call after another. Each session is an ordinary
:class:`dpsql.session.session.Session` with a :class:`~dpsql.server.ledger_service.LedgerProxy`, because the front has the ledger.
The front asks over the pipe to stop a call, and ends the worker by closing both.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from dpsql.client.wire import Message, cut_bytes, write_error
from dpsql.errors import Error, PolicyError
from dpsql.interrupts import StopRequest, run_stoppable
from dpsql.ledger.ledger import Ledger
from dpsql.policy.model import Policy
from dpsql.privacy.records import tell_time_zone
from dpsql.server.client_session import ClientSession
from dpsql.server.event_log import name_place
from dpsql.server.frames import FrameError, Frames
from dpsql.server.isolation import bound_processor_time, confine, yield_to_front, yield_to_this_thread
from dpsql.server.ledger_service import LedgerProxy
from dpsql.session.session import Session

CALL_NUMBER_BYTES = 8
"""Bytes of a call's number in the pipe."""
_SPARE_SECONDS = 60
"""Seconds of processor time that a call may take on each processor in addition to the policy's limit."""


class _Stops:
    """Requests to stop a call: a thread reads them from a pipe and sets a flag; the pipe's end ends the process."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._wanted = self._running = 0
        self._stop: StopRequest | None = None
        threading.Thread(target=self._read, daemon=True, name="dpsql-stops").start()

    def begin(self, number: int) -> StopRequest:
        """Return the stop request of a call, which may be set already."""
        with self._lock:
            self._running, self._stop = number, StopRequest()
            if number and self._wanted == number:
                self._stop.request()
            return self._stop

    def end(self) -> None:
        """Note that the call is done, so that a late request has no effect."""
        with self._lock:
            self._running, self._stop = 0, None

    def _read(self) -> None:
        while True:
            data = os.read(self._pipe, CALL_NUMBER_BYTES)
            if len(data) < CALL_NUMBER_BYTES:
                os._exit(0)  # the front has ended, so no answer can leave
            with self._lock:
                self._wanted = int.from_bytes(data, "big")
                if self._stop is not None and self._wanted == self._running:
                    self._stop.request()


class AnalystWorker:
    """The sessions of one analyst, and the frames of their calls."""

    def __init__(self, sock: socket.socket, stops: _Stops) -> None:
        self._frames = Frames(sock)
        self._stops = stops
        self._asking = threading.Lock()
        self._sessions: dict[str, ClientSession] = {}
        self._journals: dict[str, list[bytes]] = {}
        self._computing: set[int] = set()
        """The threads of lower priority."""

    def open_data(self, held: dict[str, str]) -> None:
        """Open the data by the first frame, and send the front "ready" or an error."""
        setup = self._frames.receive().head
        try:
            self._open(setup)
        except Error as error:
            self._frames.send(write_error(error).head)
            raise SystemExit(1) from None
        except Exception:
            self._frames.send(
                write_error(PolicyError("the data can't be opened, for an unknown reason.")).head
            )
            raise SystemExit(1) from None
        self._frames.send({"kind": "ready", "dataset": self._unused[0].dataset, "held": held})
        with suppress(Exception):
            self._warm_up()
        gc.collect()
        gc.freeze()  # the garbage collector skips imported modules from now on

    def _open(self, setup: dict[str, Any]) -> None:
        self._base = Path(setup["base"])
        self.policy: Policy = Policy.loads(setup["policy"], base=self._base, name=setup["name"])
        self._database = str(setup["database"])
        rules = self.policy.server
        self._resources: dict[str, str | int] = {
            "memory_limit": f"{rules.max_memory_mb // 2}MiB",
            "time_limit": rules.max_seconds,
        }
        self._seconds = (rules.max_seconds + _SPARE_SECONDS) * (os.cpu_count() or 1)
        self._unused = [self._open_engine()]

    def _open_engine(self) -> Any:
        from dpsql.engine import open_engine

        return open_engine(self._database, self.policy, self._base, self._resources)

    def _open_in_call(self) -> Any:
        """Open the data while a client waits, and continue when the front says so, since its time depends on the rows."""
        engine = self._open_engine()
        with self._asking:
            self._frames.send({"kind": "opened"})
            self._frames.receive()
        return engine

    def _warm_up(self) -> None:
        """Explain a query, so that the first statement isn't slower than others."""
        private = next(table.name for table in self.policy.tables.values() if not table.public)
        engine = self._open_engine()
        with Session(self.policy, engine, Ledger.open(None, self.policy, engine.dataset)) as session:
            session.explain(f'SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM "{private}"')

    # -- calls --------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer one call after another until the front ends."""
        while True:
            try:
                frame = self._frames.receive()
                bound_processor_time(self._seconds)
                stop = self._stops.begin(int(frame.head.get("number", 0)))
                try:
                    run_stoppable(partial(self._do, frame), stop)
                finally:
                    self._stops.end()
                self._frames.send({"kind": "done"})
            except FrameError:
                return

    def _do(self, frame: Message) -> None:
        tasks = {"call": self._call, "restore": self._restore, "leave": self._leave}
        tasks[frame.head["kind"]](frame)

    def _call(self, frame: Message) -> None:
        """Answer one message of a client: send the replies, and the journal if it has changed."""
        name, body = str(frame.head["session"]), frame.payload
        session = self._find_session(name, str(frame.head["analyst"]))
        operation = str(frame.head["operation"])
        for reply in session.answer(operation, body, self._tell_touch, self._tell_failure):
            self._frames.send({"kind": "reply"}, reply, later=True)
        lines = session.read_journal()
        if lines != self._journals.get(name, []):
            self._journals[name] = lines
            self._frames.send({"kind": "journal", "sizes": [len(line) for line in lines]}, b"".join(lines))

    def _restore(self, frame: Message) -> None:
        """Restore a session of another process, without payments."""
        session = self._find_session(str(frame.head["session"]), str(frame.head["analyst"]))
        try:
            session.restore(cut_bytes(frame.head.get("sizes"), frame.payload))
        except Exception as error:
            self._tell_failure(error)

    def _find_session(self, name: str, analyst: str) -> ClientSession:
        if name in self._sessions:
            return self._sessions[name]
        engine = self._unused.pop() if self._unused else self._open_in_call()
        proxy: Any = LedgerProxy(self._ask, self.policy, analyst)
        session = Session(self.policy, engine, proxy, self.policy.for_analyst(analyst))
        self._sessions[name] = ClientSession(session, self.policy.server)
        return self._sessions[name]

    def _leave(self, frame: Message) -> None:
        """Close a session, and settle its thresholds."""
        self._journals.pop(str(frame.head["session"]), None)
        session = self._sessions.pop(str(frame.head["session"]), None)
        if session is not None:
            session.session.close()

    # -- the front ----------------------------------------------------------------------------------------------

    def _ask(self, head: dict[str, Any], payload: bytes) -> Message:
        """Ask the front's ledger."""
        with self._asking:
            self._frames.send({**head, "kind": "ledger"}, payload)
            return self._frames.receive()

    def _tell_touch(self) -> None:
        yield_to_this_thread(self._computing)
        self._frames.send({"kind": "touch"})

    def _tell_failure(self, error: BaseException) -> None:
        """Send the front the place of an unforeseen error in our code; its message may contain data."""
        self._frames.send({"kind": "failure", "why": name_place(error)})


# -- processes ----------------------------------------------------------------------------------------------------------


def run_worker(descriptor: int, pipe: int, memory: int, zone: str) -> None:
    """Run a worker.

    Args:
        descriptor: the front's socket.
        pipe: the pipe for stops.
        memory: the limit in bytes; 0 if a cgroup limits it.
        zone: the time zone.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o077)
    yield_to_front()
    held = confine(memory or None)
    os.environ["TZ"] = zone
    time.tzset()
    tell_time_zone()
    worker = AnalystWorker(socket.socket(fileno=descriptor), _Stops(pipe))
    worker.open_data(held)
    worker.serve()


def run_fork_server(control: socket.socket) -> None:
    """Fork a worker for each message of the front, which comes with the worker's files; return when the front has ended.

    The front gets the process's number and a descriptor of it. If a worker ends, so does what it has started.
    """

    def reap(*given: object) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                with suppress(OSError):
                    os.killpg(ended.si_pid, signal.SIGKILL)
                os.waitpid(ended.si_pid, 0)

    signal.signal(signal.SIGCHLD, reap)
    gc.collect()
    gc.freeze()  # workers share what is here
    while True:
        message, files, _, _ = socket.recv_fds(control, 200, 2)
        if not message:
            return
        memory, zone = message.decode().split()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        number = os.fork()
        if not number:
            try:
                control.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setsid()
                run_worker(files[0], files[1], int(memory), zone)
            finally:
                os._exit(1)
        descriptor = os.pidfd_open(number)
        socket.send_fds(control, [number.to_bytes(8, "big")], [descriptor])
        for file in (*files, descriptor):
            os.close(file)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


if __name__ == "__main__":
    first, *more = sys.argv[1:]
    if more:
        run_worker(int(first), int(more[0]), int(more[1]), more[2])
    else:
        run_fork_server(socket.socket(fileno=int(first)))
