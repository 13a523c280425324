"""The process that answers the statements of one analyst: it holds the policy and the data, and neither ledger nor tokens.

    python -m dpsql.server.worker SOCKET PIPE MEMORY

It confines itself first, opens the data, and then does one call after another. Each session of the analyst is an ordinary
:class:`dpsql.session.session.Session`, whose ledger is in the front. The front asks it over the pipe to stop a call, and ends
it by closing both.

The worker's side of an analyst's ledger: the same face as :class:`dpsql.ledger.ledger.Ledger`, asked from the front.

A statement that is answered for the first time takes four calls: what is stored of it, what it was about before, the
reservation, and the settlement, whose answer says what is left; a stored one takes the first alone. What does not change
while a policy holds is asked once.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from dpsql.client.wire import Message, get_field, read_entry, read_error, read_event_of, read_state
from dpsql.errors import BudgetExceeded, Error, LedgerError
from dpsql.ledger.answers import StoredRelease
from dpsql.ledger.ledger import KeptReleases, Ledger, Ticket
from dpsql.ledger.terms import Terms
from dpsql.policy.model import Policy
from dpsql.privacy.accountants import Accountant, Spent, format_percent
from dpsql.privacy.events import Event
from dpsql.privacy.records import BudgetState, Entry, tell_time_zone
from dpsql.report.data import PICTURES
from dpsql.server.isolation import bound_processor_time, confine, yield_to_front, yield_to_this_thread
from dpsql.server.promises import mark_left

if TYPE_CHECKING:
    from dpsql.interrupts import StopRequest
    from dpsql.session.session import Session


Ask = Callable[[dict[str, Any], bytes], Message]
"""Sends one call to the front and returns its answer. The head has the method and its values."""

_PIECE = 8 << 20


class LedgerProxy(Ledger):
    """The ledger of one analyst, which a session in a worker uses in place of the ledger itself.

    It holds no file, and shows the analyst's own statements and the totals of others.

    Args:
        ask: sends a call to the front and returns the answer of ``LedgerService.call``; errors arrive as messages and are
            raised here.
        policy: the policy of the worker's sessions.
        analyst: who asks. The front does not believe it.
    """

    def __init__(self, ask: Ask, policy: Policy, analyst: str) -> None:
        self._ask = ask
        self.path: Path | None = None
        self.policy = policy
        self.analyst = analyst
        self.warnings = ()
        self._state: BudgetState | None = None
        self._promised: int | None = None
        """The statement that was settled last, where the front has given its word and writes it later."""
        self._left: str | None = None
        """The sentence on what is left that the last call brought along."""
        self._dropped: dict[str, str | None] = {}

    def _call(self, method: str, payload: bytes = b"", **head: Any) -> Message:
        """Ask the front.

        Raises:
            Error: the front's own.
        """
        self._state = self._promised = self._left = None
        answer = self._ask({"method": method, **head}, payload)
        if answer.head.get("kind") == "error":
            raise read_error(answer)
        return answer

    # -- what does not change -------------------------------------------------------------------------------------

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return self._call("terms").head

    @cached_property
    def terms(self) -> Terms:
        """The terms that rule, as far as this analyst may know them."""
        return Terms.from_json(get_field(self._facts, "terms", dict))

    @cached_property
    def accountant(self) -> Accountant:
        """The accountant of the whole budget: it says charges in its own currency."""
        return self.terms.open_filter()

    @property
    def lasting(self) -> bool:
        """Return True: the front keeps it in a file."""
        return True

    @property
    def notices(self) -> tuple[str, ...]:
        """Return none: notices are for the owner, and may name paths and other analysts."""
        return ()

    @property
    def dataset(self) -> str:
        """Return an empty name: that of the data is the owner's."""
        return ""

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
        answer = self._call("reserve", event=event.to_json(), text=text, shown=dict(shown or {}))
        return Ticket(get_field(answer.head, "statement_id", int), event, "", self)

    def debit(self, text: str, shown: Mapping[str, str]) -> int | None:
        answer = self._call("debit", text=text, shown=dict(shown))
        self._state = read_state(answer.head.get("state"))
        number = answer.head.get("statement_id")
        return number if isinstance(number, int) else None

    def note_progress(self, ticket: Ticket, event: Event) -> None:
        self._call("progress", statement_id=ticket.statement_id, event=event.to_json())

    def settle(self, ticket: Ticket, event: Event, kept: KeptReleases | None, outcome: str) -> None:
        kept = kept or KeptReleases()
        size = sum(map(len, kept.releases.values()))
        if size > get_field(self._facts, "largest", int):
            kept = KeptReleases({}, kept.questions)
        sizes: list[list[Any]] = []
        for key, release in kept.releases.items():
            lost = kept.events.get(key)
            sizes.append([key, len(release), None if lost is None else lost.to_json()])
        sizes += [[question, len(items)] for question, items in kept.questions.items()]
        content = memoryview(b"".join([*kept.releases.values(), *kept.questions.values()]))
        while len(content) > _PIECE:
            self._call("part", bytes(content[:_PIECE]))
            content = content[_PIECE:]
        head = {
            "statement_id": ticket.statement_id,
            "event": event.to_json(),
            "outcome": outcome,
            "kept": sizes,
        }
        answer = self._call("settle", bytes(content), **head)
        if answer.head.get("promised"):
            self._promised = ticket.statement_id
        else:
            self._state = read_state(answer.head.get("state"))

    def begin_settling(
        self, ticket: Ticket, event: Event, kept: KeptReleases | None, outcome: str
    ) -> Callable[[], None]:
        self.settle(ticket, event, kept, outcome)
        return lambda: None  # the front does the rest

    def settle_left(self, ticket: Ticket) -> Event:
        raise LedgerError("Only who keeps the ledger can tell what was left open.")

    def refuse(self, text: str, reason: str, event: Event | None = None) -> None:
        try:
            self._call("refuse", text=text, reason=reason, event=None if event is None else event.to_json())
        except Error:  # the analyst's own error matters more than a line of the log
            return

    # -- stored answers -------------------------------------------------------------------------------------------

    def replay(self, key: str) -> StoredRelease | None:
        answer = self._call("replay", key=key)
        found = answer.head.get("found")
        self._dropped = {} if found is not None else {key: answer.head.get("dropped")}
        if found is None:
            return None
        pieces, size = [answer.payload], get_field(found, "size", int)
        while (held := sum(map(len, pieces))) < size:
            pieces.append(self._call("more", start=held).payload)
            if not pieces[-1]:
                raise LedgerError("A stored answer arrived in part.", hint="run the statement again.")
        self._left = get_field(found, "left", str, "") or None
        number, debit = found.get("statement_id"), found.get("debit")
        return StoredRelease(
            b"".join(pieces),
            get_field(found, "when", str),
            number if isinstance(number, int) else None,
            read_event_of(found.get("event")),
            key,
            debit=None if debit is None else read_event_of(debit),
        )

    def find_dropped(self, key: str) -> Entry | None:
        """Return a statement of which the time alone is told, and that only where it was this analyst's own."""
        if key not in self._dropped:
            self.replay(key)
        when = self._dropped.get(key)
        return None if when is None else Entry(0, when, "", "", "released", None, None)

    def asked(self, question: str) -> tuple[Entry, bytes] | None:
        answer = self._call("asked", question=question)
        entry = answer.head.get("entry")
        return None if entry is None else (read_entry(entry), answer.payload)

    def find_debits(self, shown: Mapping[str, str]) -> dict[str, Event]:
        raise LedgerError("Only who keeps the ledger can tell what is due.")

    # -- what is left and what was asked --------------------------------------------------------------------------

    def state(self, after: Iterable[Event] = (), debit: Event | None = None) -> BudgetState:
        events = [event.to_json() for event in after]
        if self._state is not None and not events and debit is None:
            told, self._state = self._state, None  # as it was when the statement was settled, a moment ago
            return told
        owed = None if debit is None else debit.to_json()
        return read_state(self._call("state", after=events, debit=owed).head.get("state"))

    def say_left(self) -> str:
        if self._promised is None:
            told, self._left = self._left, None
            return self.state().sentence if told is None else told
        number, self._promised = self._promised, None
        return mark_left(number)

    def find_excess(self, *events: Event, debit: Event | None = None) -> BudgetExceeded | None:
        owed = None if debit is None else debit.to_json()
        error = self._call("excess", after=[event.to_json() for event in events], debit=owed).head.get(
            "error"
        )
        if error is None:
            return None
        found = read_error(Message(error))
        return found if isinstance(found, BudgetExceeded) else BudgetExceeded(found.message, hint=found.hint)

    @property
    def count(self) -> int:
        """The number of this analyst's own charges and refusals."""
        return get_field(self._call("count").head, "count", int)

    def entries(self, last: int | None = None) -> list[Entry]:
        """Return the totals of others, where there are any, and then the analyst's own statements; or the ``last`` ones."""
        answer = self._call("entries", last=last, others=True).head
        others, count = answer.get("others"), get_field(answer, "count", int)
        found = [read_entry(body) for body in get_field(answer, "entries", list)]
        start = get_field(answer, "start", int)
        if start + len(found) < count:
            found += self._list_own(start + len(found), count)
        return [*([] if others is None else [read_entry(others)]), *found]

    def walk(self, first: int = 1, last: int | None = None) -> Iterator[Entry]:
        """Yield the analyst's own statements, in order, whose numbers are in a range."""
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
        """Return figures of everybody's statements, which the front makes."""
        found = json.loads(self._call("tabulate", what=what).payload)
        if what.removeprefix("picture ") in PICTURES and what.startswith("picture "):
            return found
        names, rows = found
        return tuple(names), [tuple(row) for row in rows]

    def list_own_numbers(self, after: int = 0) -> list[int]:
        return [entry.statement_id for entry in self.walk(after + 1)]

    def spent_by_all(self) -> Spent:
        raise LedgerError("Only who keeps the ledger can add up what all were charged.")

    @property
    def last_row(self) -> int:
        raise LedgerError("Only who keeps the ledger knows its rows.")

    def under(self, accountant: str) -> Ledger:
        raise LedgerError("Only who keeps the ledger can count it in another way.", hint="SHOW ACCOUNTANTS")

    def for_analyst(self, analyst: str | None) -> Ledger:
        raise LedgerError("A worker answers one analyst.")

    def close(self) -> None:
        """Do nothing: the front closes the ledger, and settles what is open."""


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
        from dpsql.client.wire import write_error
        from dpsql.errors import Error, PolicyError

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
        from dpsql.session.session import Session

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
        from dpsql.client.wire import encode

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
        from dpsql.client.wire import decode, write_error
        from dpsql.errors import Error, ParseError
        from dpsql.server.limits import RequestLimits

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
        from dpsql.server.worker import LedgerProxy
        from dpsql.session.session import Session

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
