"""A session on an owner's server, which has the data, the policy and the ledger.

For each message a worker thread reads the reply, and the calling thread hears stops. The first stop is sent to the server, which
answers at a public time how the statement ended; a second stop leaves without the reply.
"""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from weakref import WeakValueDictionary

import pyarrow as pa

from dpsql.client.channel import Channel
from dpsql.client.wire import (
    PROTOCOL,
    Head,
    Message,
    WireError,
    check_state,
    get_field,
    parse_result,
    read_as,
    read_entry,
    read_error,
    write_question,
)
from dpsql.errors import BindError, Error, Interrupted, ServerError
from dpsql.interrupts import leave_work, run_apart, telling_stops
from dpsql.language.parameter_values import Params
from dpsql.late_dataclass import dataclass
from dpsql.privacy.events import Event
from dpsql.privacy.records import BudgetState
from dpsql.session.interface import AnalystSession, Question, SessionPlan, may_keep
from dpsql.session.result import DeclaredResult, Result

if TYPE_CHECKING:
    from dpsql.policy.model import Policy
    from dpsql.privacy.records import Entry
    from dpsql.report.tables import BudgetPanel
    from dpsql.session.explanation import Description, Explanation, Why

_T = TypeVar("_T")

OPEN_SECONDS = 120.0
"""Greatest wait for a session to open: the server may read the owner's files first."""
INTERRUPT_SECONDS = 10.0
"""Greatest wait for a server to take a stop or the end of a session."""
_UNSURE = "SHOW LEDGER says whether the statement was charged."
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Reply:
    """The reply to one message: results, or a value."""

    results: list[Result] = field(default_factory=list)
    value: dict[str, object] = field(default_factory=dict)


class Conversation:
    """The messages of one session."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.handle = ""
        """The server's name of the session; empty until it is open."""
        self.stage = ""
        """The stage of the running statement, from the server."""
        self.given: WeakValueDictionary[int, Result] = WeakValueDictionary()
        """Results that the server can keep, by its handles."""

    def ask(self, operation: str, head: Head | None = None, timeout: float | None = None) -> Reply:
        """Send a message and wait for the reply, even after a first stop, which is passed on.

        Args:
            operation: ``run``, ``explain``, ...
            head: its arguments.
            timeout: greatest wait in seconds; a statement has none.

        Raises:
            Error: the server's error, with the results before it.
        """
        outcome = run_apart(partial(self._exchange, operation, head, timeout))
        if outcome.leaving is not None:
            raise outcome.leaving
        reply = outcome.get()
        if outcome.stopped:
            raise KeyboardInterrupt
        return reply

    def _exchange(self, operation: str, head: Head | None, timeout: float | None) -> Reply:
        """Send a message and read the reply in this thread, while the calling thread listens for stops."""
        reply, message = Reply(), Message(dict(head or {}))
        try:
            with telling_stops(self._interrupt if self.handle else None, self._explain_leaving):
                arriving = self._channel.call(f"dpsql.{operation}", message, self.handle, timeout)
                for arrived in _read_to_end(arriving):
                    self._take(arrived, reply)
        except Error as error:
            error.answered = error.answered or tuple(reply.results)
            raise
        finally:
            self.stage = ""
        return reply

    def close(self) -> None:
        """End the session on the server, and close the connection."""
        try:
            for _ in self._channel.call("dpsql.close", Message({}), self.handle, INTERRUPT_SECONDS):
                pass
        finally:
            self._channel.close()

    def _take(self, told: Message, reply: Reply) -> None:
        arrived = Message(_clean(told.head), told.payload)
        kind = arrived.head.get("kind")
        if kind == "result":
            reply.results.append(parse_result(arrived))
            if isinstance(arrived.head.get("handle"), int):
                self.given[arrived.head["handle"]] = reply.results[-1]
        elif kind == "value":
            reply.value = arrived.head
        elif kind == "stage":
            self.stage = get_field(arrived.head, "stage", str)[:40]
        elif kind == "error":
            raise read_error(arrived)
        else:
            raise WireError("the server's reply has a message of an unknown kind.")

    def _interrupt(self) -> None:
        """Ask the server to stop the running statement. The reply says whether that was in time."""

        def send() -> None:
            for _ in self._channel.call("dpsql.interrupt", Message({}), self.handle, INTERRUPT_SECONDS):
                pass

        leave_work(send)

    def _explain_leaving(self) -> BaseException:
        """Return the error for leaving without the reply."""
        if not self.handle:
            return KeyboardInterrupt()  # there is no session yet, so nothing is charged
        return Interrupted(
            "left while the server was still working: the statement may be charged.",
            hint="SHOW LEDGER says whether it was; if so, its answer is stored, and free.",
        )


def _read_to_end(arriving: Iterator[Message]) -> Iterator[Message]:
    """Yield the messages of a reply up to its end, without waiting for the transport's own end."""
    for arrived in arriving:
        if arrived.head.get("kind") == "end":
            leave_work(partial(deque, arriving, maxlen=0))
            return
        yield arrived
    raise WireError("the server's reply broke off.", hint=_UNSURE)


def _clean(value: object) -> Any:
    """Return JSON values with control and direction characters replaced, so that no server moves an analyst's cursor."""
    if isinstance(value, str):
        return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return {key: _clean(item) for key, item in value.items()} if isinstance(value, dict) else value


class RemotePlan(SessionPlan):
    """Statements that a server prices together before the first one runs."""

    def __init__(self, session: RemoteSession) -> None:
        super().__init__(session)
        self._ask = session._ask
        self._asked: list[dict[str, object]] = []

    def _declare(self, question: Question) -> None:
        asked = write_question(question)
        text = asked["text"]
        count = get_field(self._ask("plan", {"statements": [asked], "run": False}).value, "count", int)
        if not 0 < count <= len(text):
            raise WireError("the server's reply is about other statements.")
        self._asked.append(asked)
        self._declared += [DeclaredResult(text.strip()) for _ in range(count)]

    @property
    def event(self) -> Event | None:
        body = self._ask("plan", {"statements": self._asked, "run": False}).value.get("event")
        return None if body is None else read_as(Event, body)

    def _answer(self) -> None:
        results = self._ask("plan", {"statements": self._asked, "run": True}).results
        if len(results) != len(self._declared):
            raise WireError("the server's reply is about other statements.")
        for declared, result in zip(self._declared, results, strict=True):
            declared._result = result


COMPLETION_SECONDS = 2.0
"""Greatest wait for names of tables and columns while typing, and for a notebook's panel."""
_PATIENCE: ContextVar[float | None] = ContextVar("patience", default=None)
"""Greatest wait for a reply; another thread may run a statement, which has none."""


class RemoteSession(AnalystSession):
    """An analyst's session on an owner's server. Use it as a context manager, or close it.

    It is like :class:`dpsql.Session`, without Python functions, tables of the analyst's own and the owner's report, which need
    the process with the data. Several threads may use it; the server answers one statement after another.
    """

    def __init__(self, channel: Channel, shown: str) -> None:
        """Open a session; :func:`dpsql.connect` calls this.

        Args:
            channel: carries the messages.
            shown: the server's address for display.
        """
        self._process = os.getpid()
        self.server = shown
        self._conversation = Conversation(channel)
        hello = {
            "protocol": PROTOCOL,
            "version": vars(sys.modules["dpsql"])["__version__"],
            "client": "dpsql",
        }
        opened = self._conversation.ask("open", hello, OPEN_SECONDS).value
        self._conversation.handle = get_field(opened, "session", str)
        self.analyst = get_field(opened, "analyst", str)
        self._policy_text = get_field(opened, "policy", str)
        self.server_version = get_field(opened, "version", str, "")
        self.answers = get_field(opened, "answers", str, "shared")
        """``"shared"``: a stored answer is free for all analysts; ``"own"``: each analyst's share pays."""
        self.expires = get_field(opened, "expires", str, "")
        """The expiry of the token, in ISO 8601; empty if the server sends none."""
        times = get_field(opened, "answer_times", list, [])
        self.answer_times = tuple(float(time) for time in times if isinstance(time, int | float))
        """Seconds after a request at which answers may leave; after the last one they double. Empty: at once."""

    def __repr__(self) -> str:
        return f"<dpsql session of {self.analyst} at {self.server}{' (closed)' if self.closed else ''}>"

    def check_open(self) -> None:
        if self.closed:
            raise ServerError("this session is closed.", hint="connect again.")
        super().check_open()

    @cached_property
    def policy(self) -> Policy:
        from dpsql.policy.model import Policy

        try:
            return Policy.loads(self._policy_text)
        except Error:
            raise WireError(
                "the server's policy says more than this version of dpsql knows.",
                hint=f"install dpsql {self.server_version}.",
            ) from None

    @property
    def stage(self) -> str:
        return self._conversation.stage

    # -- statements ---------------------------------------------------------------------------------------------

    def answer(self, question: Question, fresh: bool = False) -> list[Result]:
        if may_keep(str(question.text)):
            self._schema = None
        return self._ask("run", {**write_question(question), "fresh": fresh}).results

    def plan(self) -> RemotePlan:
        return RemotePlan(self)

    def _explain(self, question: Question) -> Explanation:
        from dpsql.session.explanation import Explanation

        return self._ask_value(Explanation, "explain", write_question(question))

    def describe(self, text: str, params: Params | None = None) -> Description:
        from dpsql.session.explanation import Description

        return self._ask_value(Description, "describe", write_question(Question(text, params)))

    def table_schemas(self) -> Mapping[str, pa.Schema]:
        return self._ask_value(dict[str, pa.Schema], "schemas")

    def why(self) -> Why:
        from dpsql.session.explanation import Why

        return self._ask_value(Why, "why")

    # -- everything else ----------------------------------------------------------------------------------------

    def budget(self) -> BudgetState:
        return check_state(self._ask_value(BudgetState, "budget"))

    def budget_panel(self) -> BudgetPanel:
        from dpsql.report.tables import BudgetPanel

        panel = self._ask_value(BudgetPanel, "budget_panel")
        check_state(panel.state)
        return panel

    def ledger(self, last: int | None = None) -> list[Entry]:
        entries = get_field(self._ask("ledger", {"last": last}).value, "value", list)
        return [read_entry(entry) for entry in entries]

    def columns(self, table: str) -> Mapping[str, str]:
        return self._ask_value(dict[str, str], "columns", {"table": table})

    def tables(self) -> Result:
        return self.sql("SHOW TABLES")

    @contextmanager
    def asking_briefly(self) -> Iterator[None]:
        before = _PATIENCE.set(COMPLETION_SECONDS)
        try:
            yield
        finally:
            _PATIENCE.reset(before)

    def _find_pictures(self, what: str) -> dict[str, object]:
        return self._ask_value(dict, "plot", {"what": what})

    def keep(self, name: str, result: object) -> None:
        self._schema = None
        given = list(self._conversation.given.items())
        handle = next((number for number, held in given if held is result), None)
        if handle is None:
            self._ask("check_name", {"name": name})  # whose error comes first, as for a result of the server
            raise BindError(
                "only results of this session can be kept: no table of the analyst's own is sent to a server.",
                hint="write small tables as a CTE, WITH t(a, b) AS (VALUES ...); larger ones the owner can add, as public.",
            )
        self._ask("keep", {"name": name, "result": handle})

    def check_name(self, name: str) -> None:
        self._ask("check_name", {"name": name})

    def register(self, name: str, function: Callable[..., object], **options: object) -> NoReturn:
        """Raise a ServerError: a Python function would run on the owner's machine."""
        raise ServerError(
            "Python functions can't be registered on a server: they would run where the data are.",
            hint="write the statistic as SQL in SELECT WITH SUBSAMPLE; the owner can register functions in a session of theirs.",
        )

    @property
    def account(self) -> NoReturn:
        """Raise a ServerError: the ledger and its report are the owner's."""
        raise ServerError(
            "the ledger is the owner's, and so is its report: the owner runs dpsql report.",
            hint="session.budget() and session.ledger() show what is yours; SHOW BUDGET and SHOW LEDGER too.",
        )

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if not self.is_forked:
                run_apart(self._conversation.close)

    def _ask(self, operation: str, head: Head | None = None) -> Reply:
        """Send a message, and wait for the reply."""
        self.check_open()
        return self._conversation.ask(operation, head, _PATIENCE.get())

    def _ask_value(self, kind: type[_T], operation: str, head: Head | None = None) -> _T:
        """Send a message, and return the one value of the reply."""
        return read_as(kind, self._ask(operation, head).value.get("value"))
