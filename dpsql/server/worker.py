"""The worker: a process that answers the statements of one analyst. It has the policy and the data, but no ledger and no tokens.

    python -m dpsql.server.worker SOCKET                        the fork server, which starts a worker for each message
    python -m dpsql.server.worker SOCKET PIPE MEMORY TIMEZONE   a worker

A worker confines itself first, opens the data, and then answers one call after another. Each session is an ordinary
:class:`dpsql.session.session.Session` with a :class:`LedgerProxy`, because the front has the ledger. The front asks over the pipe
to stop a call, and ends the worker by closing both.

A new statement takes four calls to the ledger: its stored answer, the last statement of its question, the reservation, and the
settlement, which returns the budget left. A stored statement takes the first only.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self

from dpsql.client.wire import (
    Message,
    cut_bytes,
    decode,
    encode,
    get_field,
    read_as,
    read_entry,
    read_error,
    read_state,
    write_error,
)
from dpsql.errors import BudgetExceeded, Error, LedgerError, ParseError, PolicyError
from dpsql.ledger.answers import PublishedRelease, StoredRelease
from dpsql.ledger.ledger import KeptReleases, Ledger, Ticket
from dpsql.ledger.terms import Terms
from dpsql.policy.model import Policy
from dpsql.privacy.accountants import Accountant
from dpsql.privacy.amounts import format_percent
from dpsql.privacy.events import Event
from dpsql.privacy.records import BudgetState, Entry, tell_time_zone
from dpsql.report.data import PICTURES
from dpsql.server.event_log import name_place
from dpsql.server.frames import FrameError, Frames, mark_left
from dpsql.server.isolation import bound_processor_time, confine, yield_to_front, yield_to_this_thread
from dpsql.server.rights import RequestLimits

if TYPE_CHECKING:
    from dpsql.interrupts import StopRequest
    from dpsql.server.operations import ClientSession


Ask = Callable[[dict[str, Any], bytes], Message]
"""Sends one call to the front and returns its answer. The head has the method and its arguments."""


class LedgerProxy(Ledger):
    """The ledger of one analyst in a worker, which asks the front: the analyst's own statements, and totals of others.

    Args:
        ask: sends a call to the front and returns the answer of ``LedgerService.call``; the proxy raises its errors.
        policy: the policy of the worker's sessions.
        analyst: the analyst's name, which the front takes from the token instead.
    """

    lasting = True
    """The front keeps a file."""
    notices: tuple[str, ...] = ()
    """None: they are for the owner, and may name paths and other analysts."""
    dataset = ""
    """Only the owner knows the data's name."""

    def __init__(self, ask: Ask, policy: Policy, analyst: str) -> None:
        self._ask = ask
        self.path: Path | None = None
        self.policy = policy
        self.analyst = analyst
        self.warnings = ()
        self._state: BudgetState | None = None
        self._deferred: int | None = None
        """The last settled statement, if the front writes the settlement later."""
        self._left: str | None = None
        """The sentence on the budget left from the last call."""
        self._dropped: dict[str, str | None] = {}

    def _call(self, method: str, payload: bytes = b"", **values: object) -> Message:
        """Ask the front; events are sent as JSON."""
        self._state = self._deferred = self._left = None
        answer = self._ask({"method": method, **{n: _write(value) for n, value in values.items()}}, payload)
        if answer.head.get("kind") == "error":
            raise read_error(answer)
        return answer

    # -- constant facts under a policy ----------------------------------------------------------------------------

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return self._call("terms").head

    @cached_property
    def terms(self) -> Terms:
        """The ledger's terms, as far as this analyst may know them."""
        return Terms.from_json(get_field(self._facts, "terms", dict))

    @cached_property
    def accountant(self) -> Accountant:
        """The accountant of the whole budget, which writes charges in its own currency."""
        return self.terms.open_filter()

    @property
    def debits_shares(self) -> bool:
        return get_field(self._facts, "debits", bool)

    @property
    def holds_whole_statements(self) -> bool:
        return get_field(self._facts, "older_answers", bool)

    def say_rule(self, event: Event) -> str:
        used = self.accountant.used_by(event)
        return "" if used is None else f" It uses {format_percent(used)} of the {self.accountant.name} rule."

    # -- the three steps ------------------------------------------------------------------------------------------

    def reserve(self, event: Event, text: str, shown: Mapping[str, str] | None = None) -> Ticket:
        answer = self._call("reserve", event=event, text=text, shown=dict(shown or {}))
        return Ticket(get_field(answer.head, "statement_id", int), event, "", self)

    def debit(self, text: str, shown: Mapping[str, str]) -> int | None:
        answer = self._call("debit", text=text, shown=dict(shown))
        self._state = read_state(answer.head.get("state"))
        number = answer.head.get("statement_id")
        return number if isinstance(number, int) else None

    def note_progress(self, ticket: Ticket, event: Event) -> None:
        self._call("progress", statement_id=ticket.statement_id, event=event)

    def settle(self, ticket: Ticket, event: Event, kept: KeptReleases | None, outcome: str) -> None:
        kept = kept or KeptReleases()
        size = sum(map(len, kept.releases.values()))
        if size > get_field(self._facts, "largest", int):
            kept = KeptReleases({}, kept.questions)
        sizes: list[tuple[object, ...]] = [
            (key, len(release), kept.events.get(key)) for key, release in kept.releases.items()
        ]
        sizes += [(question, len(items)) for question, items in kept.questions.items()]
        content = b"".join([*kept.releases.values(), *kept.questions.values()])
        number = ticket.statement_id
        answer = self._call("settle", content, statement_id=number, event=event, outcome=outcome, kept=sizes)
        if answer.head.get("promised"):
            self._deferred = number
        else:
            self._state = read_state(answer.head.get("state"))

    def begin_settling(
        self, ticket: Ticket, event: Event, kept: KeptReleases | None, outcome: str
    ) -> Callable[[], None]:
        self.settle(ticket, event, kept, outcome)
        return lambda: None  # the front does the rest

    def refuse(self, text: str, reason: str, event: Event | None = None) -> None:
        try:
            self._call("refuse", text=text, reason=reason, event=event)
        except Error:  # the analyst's own error matters more than a line of the log
            return

    # -- stored answers -------------------------------------------------------------------------------------------

    def replay(self, key: str) -> StoredRelease | None:
        answer = self._call("replay", key=key)
        found = answer.head.get("found")
        self._dropped = {} if found is not None else {key: answer.head.get("dropped")}
        if found is None:
            return None
        self._left = get_field(found, "left", str, "") or None
        number, debit = found.get("statement_id"), found.get("debit")
        return StoredRelease(
            answer.payload,
            get_field(found, "when", str),
            number if isinstance(number, int) else None,
            read_as(Event, found.get("event")),
            key,
            debit=None if debit is None else read_as(Event, debit),
        )

    def replay_all(self, keys: Sequence[str]) -> dict[str, StoredRelease]:
        found: dict[str, StoredRelease] = {}
        dropped: dict[str, str | None] = {}
        for key in keys:
            stored = self.replay(key)
            dropped |= self._dropped
            if stored is not None:
                found[key] = stored
        self._dropped = dropped
        return found

    def find_dropped(self, key: str) -> Entry | None:
        """Return a statement that has only its time, and only if it was this analyst's own."""
        if key not in self._dropped:
            self.replay(key)
        when = self._dropped.get(key)
        return None if when is None else Entry(0, when, "", "", "released", None, None)

    def asked(self, question: str) -> tuple[Entry, bytes] | None:
        answer = self._call("asked", question=question)
        entry = answer.head.get("entry")
        return None if entry is None else (read_entry(entry), answer.payload)

    # -- releases -------------------------------------------------------------------------------------------------

    def check_publisher(self) -> None:
        super().check_publisher()  # by the worker's policy; the front asks its own again

    def publish(
        self, name: str, text: str, contents: tuple[bytes, bytes] | None, over: str | None = None
    ) -> None:
        self.check_publisher()
        content = b"".join(contents or ())
        sizes = None if contents is None else [("", len(one)) for one in contents]
        self._call("publish", content, name=name, text=text, over=over, kept=sizes)

    @contextmanager
    def hold_releases(self, wait: Callable[[], None]) -> Iterator[None]:
        while not self._call("hold").head.get("held"):  # a worker has no file of the ledger
            wait()
        try:
            yield
        finally:
            with suppress(Error):  # the front frees it when the request ends
                self._call("free")

    def list_releases(self) -> list[str]:
        return [read_as(str, name) for name in get_field(self._call("releases").head, "names", list)]

    def find_release(self, name: str) -> PublishedRelease | None:
        answer = self._call("release", name=name)
        sizes = answer.head.get("sizes")
        if sizes is None:
            return None
        definition, content = cut_bytes(sizes, answer.payload)
        return PublishedRelease(definition, content, get_field(answer.head, "when", str))

    # -- the budget left and past statements ----------------------------------------------------------------------

    def state(self, after: Iterable[Event] = (), debit: Event | None = None) -> BudgetState:
        events = tuple(after)
        if self._state is not None and not events and debit is None:
            state, self._state = self._state, None  # from the settlement just before
            return state
        return read_state(self._call("state", after=events, debit=debit).head.get("state"))

    def say_left(self) -> str:
        if self._deferred is None:
            left, self._left = self._left, None
            return self.state().sentence if left is None else left
        number, self._deferred = self._deferred, None
        return mark_left(number)

    def find_excess(self, *events: Event, debit: Event | None = None) -> BudgetExceeded | None:
        error = self._call("excess", after=events, debit=debit).head.get("error")
        if error is None:
            return None
        found = read_error(Message(error))
        return found if isinstance(found, BudgetExceeded) else BudgetExceeded(found.message, hint=found.hint)

    @property
    def count(self) -> int:
        """The number of this analyst's own charges and refusals."""
        return get_field(self._call("count").head, "count", int)

    def entries(self, last: int | None = None) -> list[Entry]:
        """Return the totals of others, if there are any, and then the analyst's own statements, or the ``last`` of them."""
        answer = self._call("entries", last=last, others=True).head
        others, count = answer.get("others"), get_field(answer, "count", int)
        found = [read_entry(body) for body in get_field(answer, "entries", list)]
        start = get_field(answer, "start", int)
        if start + len(found) < count:
            found += self._list_own(start + len(found), count)
        return [*([] if others is None else [read_entry(others)]), *found]

    def walk(self, first: int = 1, last: int | None = None) -> Iterator[Entry]:
        """Yield the analyst's own statements with numbers in a range, in order."""
        for entry in self._list_own(0, self.count):
            if first <= entry.statement_id and (last is None or entry.statement_id <= last):
                yield entry

    def _list_own(self, start: int, end: int) -> Iterator[Entry]:
        while start < end:
            page = get_field(self._call("entries", start=start).head, "entries", list)
            if not page:
                return
            yield from map(read_entry, page)
            start += len(page)

    def tabulate(self, what: str, make: Callable[[Self], Any]) -> Any:
        """Return figures about all analysts' statements, which the front makes."""
        found = json.loads(self._call("tabulate", what=what).payload)
        if what.removeprefix("picture ") in PICTURES and what.startswith("picture "):
            return found
        names, rows = found
        return tuple(names), [tuple(row) for row in rows]

    def list_own_numbers(self, after: int = 0) -> list[int]:
        return [entry.statement_id for entry in self.walk(after + 1)]

    def _leave_to_server(self, *given: object, **named: object) -> NoReturn:
        raise LedgerError("Only the server can do this.")

    settle_left = find_debits = spent_by_all = under = for_analyst = _leave_to_server
    last_row = property(_leave_to_server)

    def close(self) -> None:
        """Do nothing, because the front closes the ledger and settles open statements."""


def _write(value: object) -> object:
    """Return a call's argument as a JSON value."""
    if isinstance(value, tuple | list):
        return [_write(item) for item in value]
    return value.to_json() if isinstance(value, Event) else value


CALL_NUMBER_BYTES = 8
"""Bytes of a call's number in the pipe."""
_SPARE_SECONDS = 60
"""Seconds of processor time that a call may take on each processor in addition to the policy's limit."""


class _Stops:
    """Requests to stop a call, from the pipe; its end ends the process.

    A thread reads the pipe and sets a flag for the working thread, without signals.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self._wanted = self._running = 0
        self._stop: StopRequest | None = None
        threading.Thread(target=self._read, daemon=True, name="dpsql-stops").start()

    def begin(self, number: int) -> StopRequest:
        """Return the stop request of a call, which may be set already."""
        from dpsql.interrupts import StopRequest

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
        from dpsql.server import operations  # before the first call needs it

        self._operations = operations

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
        from dpsql.session.session import Session

        private = next(table.name for table in self.policy.tables.values() if not table.public)
        engine = self._open_engine()
        with Session(self.policy, engine, Ledger.open(None, self.policy, engine.dataset)) as session:
            session.explain(f'SELECT WITH DP OPTIONS (epsilon = 1) COUNT(*) AS n FROM "{private}"')

    # -- calls --------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer one call after another until the front ends."""
        from dpsql.interrupts import run_stoppable

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
        """Answer a frame of the front."""
        tasks = {"call": self._call, "restore": self._restore, "leave": self._leave}
        tasks[frame.head["kind"]](frame)

    def _call(self, frame: Message) -> None:
        """Answer one message of a client: send the replies, and the journal if it has changed."""
        name, body = str(frame.head["session"]), frame.payload
        refusal = self._refuse_large(body)
        if refusal is not None:
            self._frames.send({"kind": "reply"}, encode(refusal), later=True)
        else:
            session = self._find_session(name, str(frame.head["analyst"]))
            operation = str(frame.head["operation"])
            for reply in session.answer(operation, body, self._tell_touch, self._tell_failure):
                self._frames.send({"kind": "reply"}, reply, later=True)
            self._send_journal(name, session)

    def _refuse_large(self, body: bytes) -> Message | None:
        """Return an error if a client's message is larger than the owner allows."""
        limits = RequestLimits.of(self.policy.server)
        if len(body) <= min(limits.statement_bytes, limits.parameter_bytes):
            return None
        try:
            head = decode(body).head
        except Error:
            return None  # its reader refuses it
        listed = head.get("statements")
        asked = (
            [head, *(item for item in listed if isinstance(item, dict))]
            if isinstance(listed, list)
            else [head]
        )
        texts = [item["text"] for item in asked if isinstance(item.get("text"), str)]
        size = sum(len(text.encode(errors="replace")) for text in texts)
        sentence = limits.explain_parts(size, len(body) - size)
        return write_error(ParseError(sentence, hint="ask in several statements.")) if sentence else None

    def _find_session(self, name: str, analyst: str) -> ClientSession:
        if name in self._sessions:
            return self._sessions[name]
        from dpsql.session.session import Session

        engine = self._unused.pop() if self._unused else self._open_in_call()
        proxy: Any = LedgerProxy(self._ask, self.policy, analyst)
        session = Session(self.policy, engine, proxy, self.policy.for_analyst(analyst))
        self._sessions[name] = self._operations.ClientSession(session)
        return self._sessions[name]

    def _send_journal(self, name: str, session: ClientSession) -> None:
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

    def _leave(self, frame: Message) -> None:
        """Close a session, and settle its thresholds."""
        session = self._sessions.pop(str(frame.head["session"]), None)
        self._journals.pop(str(frame.head["session"]), None)
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
    from dpsql.server import operations  # noqa: F401 - workers need it

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
