"""The process that answers the statements of one analyst: it holds the policy and the data, and neither ledger nor tokens.

    python -m dpsql.server.worker SOCKET PIPE MEMORY

It confines itself first, opens the data, and then does one call after another. Each session of the analyst is an ordinary
:class:`dpsql.session.Session`, whose ledger is in the front. The front asks it over the pipe to stop a call, and ends it by
closing both.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsql.privacy.records import tell_time_zone
from dpsql.server.isolation import bound_processor_time, confine, yield_to_front, yield_to_this_thread

if TYPE_CHECKING:
    from dpsql.interrupts import StopRequest
    from dpsql.policy.model import Policy
    from dpsql.session import Session
    from dpsql.wire import Message

CALL_NUMBER_BYTES = 8
"""Bytes of a call's number in the pipe."""
_SPARE_SECONDS = 60
"""Seconds of processor time that a call may take beyond what the policy allows on each processor."""


class _Stops:
    """Requests to stop a call, from the pipe; its end ends the process.

    No signal takes part: the thread that reads the pipe asks the one that works, which looks for it.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._wanted = self._running = 0
        self._stop: StopRequest | None = None
        threading.Thread(target=self._read, daemon=True, name="dpsql-stops").start()

    def begin(self, number: int) -> StopRequest:
        """Return what a call is stopped by; it may be asked to stop already."""
        from dpsql.interrupts import StopRequest

        with self._lock:
            self._running, self._stop = number, StopRequest()
            if number and self._wanted == number:
                self._stop.request()
            return self._stop

    def end(self) -> None:
        """Note that the call is over: a request that comes late is for nobody."""
        with self._lock:
            self._running, self._stop = 0, None

    def _read(self) -> None:
        while True:
            data = os.read(self._pipe, CALL_NUMBER_BYTES)
            if len(data) < CALL_NUMBER_BYTES:
                os._exit(0)  # the front is gone: nothing that is computed here can be told any more
            with self._lock:
                self._wanted = int.from_bytes(data, "big")
                if self._stop is not None and self._wanted == self._running:
                    self._stop.request()


class AnalystWorker:
    """The sessions of one analyst, and the frames that they are asked over."""

    def __init__(self, sock: socket.socket, stops: _Stops) -> None:
        from dpsql.server.frames import Frames

        self._frames = Frames(sock)
        self._stops = stops
        self._asking = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._journals: dict[str, list[bytes]] = {}
        self._computing: set[int] = set()
        """The threads that stand back for this one."""

    def open_data(self, held: dict[str, str]) -> None:
        """Open the data with what the first frame says, and tell the front; or tell why not."""
        from dpsql.errors import Error, PolicyError
        from dpsql.wire import write_error

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
        gc.freeze()  # what was imported is never looked through again

    def _open(self, setup: dict[str, Any]) -> None:
        from dpsql.policy.model import Policy

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
        from dpsql.server import operations  # what the first call would import

        self._operations = operations

    def _open_engine(self) -> Any:
        from dpsql.engine import open_engine

        return open_engine(self._database, self.policy, self._base, self._resources)

    def _open_in_call(self) -> Any:
        """Open the data while a client waits, and go on when the front says so: how long it takes depends on the rows."""
        engine = self._open_engine()
        with self._asking:
            self._frames.send({"kind": "opened"})
            self._frames.receive()
        return engine

    def _warm_up(self) -> None:
        """Explain a query that nobody asked, so that the first one is not answered later than others."""
        from dpsql.ledger.ledger import Ledger
        from dpsql.session import Session

        private = next(table.name for table in self.policy.tables.values() if not table.public)
        engine = self._open_engine()
        with Session(self.policy, engine, Ledger.open(None, self.policy, engine.dataset)) as session:
            session.explain(f'SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM "{private}"')

    # -- calls --------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Do one call after another until the front is gone."""
        from dpsql.interrupts import run_stoppable
        from dpsql.server.frames import FrameError

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
        """Do what a frame of the front asks."""
        tasks = {"call": self._call, "restore": self._restore, "leave": self._leave}
        tasks[frame.head["kind"]](frame)

    def _call(self, frame: Message) -> None:
        """Answer one message of a client: the replies, one after another, and the end of the call."""
        from dpsql.wire import encode

        name, body = str(frame.head["session"]), frame.payload
        refusal = self._refuse_large(body)
        if refusal is not None:
            self._frames.send({"kind": "reply"}, encode(refusal), later=True)
        else:
            session = self._find_session(name, str(frame.head["analyst"]))
            answers = self._operations.answer(
                str(frame.head["operation"]), session, body, self._tell_touch, self._tell_failure
            )
            for message in answers:
                self._frames.send({"kind": "reply"}, encode(message), later=True)
            self._send_journal(name, session)

    def _refuse_large(self, body: bytes) -> Message | None:
        """Return an error where a client's message holds more than the owner allows."""
        from dpsql.errors import Error, ParseError
        from dpsql.server.limits import RequestLimits
        from dpsql.wire import decode, write_error

        limits = RequestLimits.of(self.policy.server)
        if len(body) <= min(limits.statement_bytes, limits.parameter_bytes):
            return None
        try:
            head = decode(body).head
        except Error:
            return None  # told by who reads it
        listed = head.get("statements")
        asked = (
            [head, *(item for item in listed if isinstance(item, dict))]
            if isinstance(listed, list)
            else [head]
        )
        texts = [item["text"] for item in asked if isinstance(item.get("text"), str)]
        size = sum(len(text.encode(errors="replace")) for text in texts)
        said = limits.explain_parts(size, len(body) - size)
        return write_error(ParseError(said, hint="ask in several statements.")) if said else None

    def _find_session(self, name: str, analyst: str) -> Session:
        if name in self._sessions:
            return self._sessions[name]
        from dpsql.server.ledger_proxy import LedgerProxy
        from dpsql.session import Session

        engine = self._unused.pop() if self._unused else self._open_in_call()
        proxy: Any = LedgerProxy(self._ask, self.policy, analyst)
        session = self._sessions[name] = Session(self.policy, engine, proxy)
        session.policy = self.policy.for_analyst(analyst)  # what is shown of it
        return session

    def _send_journal(self, name: str, session: Session) -> None:
        lines = self._operations.read_journal(session)
        if lines != self._journals.get(name, []):
            self._journals[name] = lines
            self._frames.send({"kind": "journal", "sizes": [len(line) for line in lines]}, b"".join(lines))

    def _restore(self, frame: Message) -> None:
        """Make a session again that another process held. Nothing is paid meanwhile."""
        from dpsql.server.frames import read_lines

        session = self._find_session(str(frame.head["session"]), str(frame.head["analyst"]))
        try:
            self._operations.restore_session(session, read_lines(frame))
        except Exception as error:
            self._tell_failure(error)

    def _leave(self, frame: Message) -> None:
        """Close a session; its thresholds are settled."""
        session = self._sessions.pop(str(frame.head["session"]), None)
        self._journals.pop(str(frame.head["session"]), None)
        if session is not None:
            session.close()

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
        """Tell the owner where an unforeseen error came from, by places in our code; its own words may hold values."""
        from dpsql.server.event_log import name_place

        self._frames.send({"kind": "failure", "why": name_place(error)})


def run_worker(arguments: list[str]) -> None:
    """Run a worker; the arguments are two open files, and the bytes of memory it may use where no cgroup bounds them."""
    descriptor, pipe, memory = arguments
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o077)
    yield_to_front()
    held = confine(int(memory) if memory else None)
    tell_time_zone()
    worker = AnalystWorker(socket.socket(fileno=int(descriptor)), _Stops(int(pipe)))
    worker.open_data(held)
    worker.serve()


if __name__ == "__main__":
    run_worker(sys.argv[1:])
