"""A session on an owner's server, which has the data, the policy and the ledger.

For each message a worker thread reads the reply, and the calling thread hears stops. The first stop is sent to the server, which
answers at a public time how the statement ended; a second stop leaves without the reply.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakValueDictionary

from dpsql.client.channel import Channel
from dpsql.client.wire import (
    PROTOCOL,
    Message,
    ResultReader,
    WireError,
    get_field,
    read_arrow_schemas,
    read_entry,
    read_error,
    read_event_of,
    read_explanation,
    read_state,
    read_why,
    write_question,
)
from dpsql.errors import BindError, Error, Interrupted, ServerError
from dpsql.interrupts import interruptible, leave_work, run_apart, telling_stops
from dpsql.language.parameter_values import Params, name_parameters
from dpsql.session.result import DeclaredResult

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

    from dpsql.policy.model import Policy
    from dpsql.privacy.events import Event
    from dpsql.privacy.records import BudgetState, Entry
    from dpsql.report.tables import BudgetPanel
    from dpsql.session.explanation import Description, Explanation, Why
    from dpsql.session.result import Result

OPEN_SECONDS = 120.0
"""Greatest wait for a session to open: the server may read the owner's files first."""
INTERRUPT_SECONDS = 10.0
"""Greatest wait for a server to take a stop or the end of a session."""
MAX_PAGES = 1000
"""Greatest number of values in one reply."""
_UNSURE = "SHOW LEDGER says whether the statement was charged."
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Reply:
    """The reply to one message: results and values."""

    results: list[Result] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)

    @property
    def value(self) -> dict[str, Any]:
        """The only value of the reply.

        Raises:
            WireError: there is none.
        """
        if not self.values:
            raise WireError("the server's reply has no value.")
        return self.values[0]


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

    def ask(
        self, operation: str, head: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Reply:
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

    def _exchange(self, operation: str, head: Mapping[str, Any] | None, timeout: float | None) -> Reply:
        """Send a message and read the reply in this thread, while the calling thread listens for stops."""
        reply, reader = Reply(), ResultReader()
        message = Message(dict(head or {}))
        try:
            with telling_stops(self._interrupt if self.handle else None, self._explain_leaving):
                arriving = self._channel.call(f"dpsql.{operation}", message, self.handle, timeout)
                for arrived in _read_to_end(arriving):
                    self._take(arrived, reply, reader)
            reply.results = reader.results()
        except Error as error:
            error.answered = error.answered or tuple(reader.finished)
            raise
        finally:
            self.stage = ""
            for head, result in zip(reader.heads, reader.finished, strict=False):
                if isinstance(head.get("handle"), int):
                    self.given[head["handle"]] = result
        return reply

    def close(self) -> None:
        """End the session on the server, and close the connection."""
        try:
            for _ in self._channel.call("dpsql.close", Message({}), self.handle, INTERRUPT_SECONDS):
                pass
        finally:
            self._channel.close()

    def _take(self, told: Message, reply: Reply, reader: ResultReader) -> None:
        arrived = Message(_clean(told.head), told.payload)
        kind = arrived.head.get("kind")
        if kind in ("result", "rows"):
            reader.take(arrived)
        elif kind == "value":
            if len(reply.values) >= MAX_PAGES:
                raise WireError(
                    "the server's reply is too long.", hint="ask for the last statements only: ledger(1000)."
                )
            reply.values.append(arrived.head)
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


def _clean(value: Any) -> Any:
    """Return JSON values with control and direction characters replaced, so that no server moves an analyst's cursor."""
    if isinstance(value, str):
        return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return {key: _clean(item) for key, item in value.items()} if isinstance(value, dict) else value


class RemotePlan:
    """Statements that a server prices together before the first one runs, in ``with session.plan() as plan:``."""

    def __init__(self, ask: Callable[[str, Mapping[str, Any]], Reply]) -> None:
        self._ask = ask
        self._asked: list[dict[str, Any]] = []
        self._declared: list[DeclaredResult] = []
        self._ran = False

    @interruptible
    def sql(
        self, text: str, params: Params | None = None, *, epsilon: str | Fraction | None = None
    ) -> DeclaredResult:
        """Declare a statement (of several, the last one's handle is returned). Nothing is spent and no data are read.

        Args:
            text: dpsql SQL.
            params: values of its ``$name`` parameters, or a list of values for its ``?`` marks.
            epsilon: the ε of a statement without one.

        Raises:
            ParseError, BindError, PrivacyError: it can't be planned.
        """
        if self._ran:
            raise BindError("the plan has run already.", hint="open another: with session.plan() as plan:")
        text, values = name_parameters(text, params)
        asked = write_question(text, values, epsilon)
        count = get_field(self._ask("plan", {"statements": [asked], "run": False}).value, "count", int)
        if not 0 < count <= len(text):
            raise WireError("the server's reply is about other statements.")
        self._asked.append(asked)
        self._declared += [DeclaredResult(text.strip()) for _ in range(count)]
        return self._declared[-1]

    @property
    def results(self) -> list[Result]:
        """The answers, in the order of the declarations.

        Raises:
            BindError: the plan has not run yet.
        """
        return [declared.result for declared in self._declared]

    @property
    def event(self) -> Event | None:
        """The cost of the whole: the composed event, or under ``basic`` its privacy loss distribution if that is less.

        Stored blocks are free, and equal blocks are paid once.
        """
        body = self._ask("plan", {"statements": self._asked, "run": False}).value.get("event")
        return None if body is None else read_event_of(body)

    @interruptible
    def run(self) -> list[Result]:
        """Reserve the whole as one event, run every statement, settle.

        Raises:
            BudgetExceeded: the whole does not fit; nothing was charged.
            EngineError, Interrupted: the whole stays charged.
        """
        self._ran = True
        results = self._ask("plan", {"statements": self._asked, "run": True}).results
        if len(results) != len(self._declared):
            raise WireError("the server's reply is about other statements.")
        for declared, result in zip(self._declared, results, strict=True):
            declared._result = result
        return results

    def __enter__(self) -> RemotePlan:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and self._declared:
            self.run()


_VERSION = str(getattr(sys.modules[__name__.partition(".")[0]], "__version__", ""))
"""The version of dpsql, sent to the server."""


COMPLETION_SECONDS = 2.0
"""Greatest wait for names of tables and columns while typing, and for a notebook's panel."""


class RemoteSession:
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
        self.server = shown
        self._conversation = Conversation(channel)
        self._closed = False
        self._patience: float | None = None
        self._schema: dict[str, list[str]] | None = None
        hello = {"protocol": PROTOCOL, "version": _VERSION, "client": "dpsql"}
        opened = self._conversation.ask("open", hello, OPEN_SECONDS).value
        self._conversation.handle = get_field(opened, "session", str)
        self.analyst = get_field(opened, "analyst", str)
        self._policy_text = get_field(opened, "policy", str)
        self._policy: Policy | None = None
        self.server_version = get_field(opened, "version", str, "")
        self.answers = get_field(opened, "answers", str, "shared")
        """``"shared"``: a stored answer is free for all analysts; ``"own"``: each analyst's share pays."""
        self.expires = get_field(opened, "expires", str, "")
        """The expiry of the token, in ISO 8601; empty if the server sends none."""
        times = get_field(opened, "answer_times", list, [])
        self.answer_times = tuple(float(time) for time in times if isinstance(time, int | float))
        """Seconds after a request at which answers may leave; after the last one they double. Empty: at once."""

    def __repr__(self) -> str:
        return f"<dpsql session of {self.analyst} at {self.server}{' (closed)' if self._closed else ''}>"

    @property
    def policy(self) -> Policy:
        """The part of the owner's policy that the analyst may see: without sources of data and other analysts."""
        from dpsql.policy.model import Policy

        if self._policy is None:
            try:
                self._policy = Policy.loads(self._policy_text)
            except Error:
                raise WireError(
                    "the server's policy says more than this version of dpsql knows.",
                    hint=f"install dpsql {self.server_version}.",
                ) from None
        return self._policy

    @property
    def stage(self) -> str:
        """The stage of the running statement, from the server: ``"reading"`` once private data may be read."""
        return self._conversation.stage

    # -- statements ---------------------------------------------------------------------------------------------

    def sql(self, text: str, params: Params | None = None, *, fresh: bool = False) -> Result:
        """Answer a statement (of several, all are answered and the last result is returned).

        Args:
            text: dpsql SQL.
            params: values of its ``$name`` parameters, or a list of values for its ``?`` marks.
            fresh: pay for a new answer even if a stored one is free.

        Raises:
            ParseError, BindError, PrivacyError, BudgetExceeded: nothing was charged.
            EngineError, Interrupted: the statement stays charged.
            PostprocessingError: the SQL above the private part failed on released values: the corrected text is free.
            ServerError: the server can't be reached; SHOW LEDGER says whether a statement that was sent was charged.
        """
        results = self.run(text, params, fresh=fresh)
        if results:
            return results[-1]
        import pyarrow as pa

        from dpsql.session.result import Result

        return Result(pa.table({}))

    @interruptible
    def run(
        self,
        text: str,
        params: Params | None = None,
        *,
        fresh: bool = False,
        epsilon: str | Fraction | None = None,
    ) -> list[Result]:
        """Answer each statement of a cell. All are bound before the first is paid.

        ``epsilon`` is the ε of a statement without one. If a statement fails, the error's ``answered`` has the earlier results.
        """
        asked = write_question(*name_parameters(text, params), epsilon)
        return self._ask("run", {**asked, "fresh": fresh}).results

    @interruptible
    def synthesise(
        self,
        text: str,
        rows: int | None = None,
        params: Params | None = None,
        *,
        fresh: bool = False,
        epsilon: str | Fraction | None = None,
    ) -> Result:
        """Return synthetic rows of a model that the server fits to noisy marginals.

        Args:
            text: a SELECT of columns with public values, or a CREATE SYNTHETIC TABLE of one, which keeps the rows under its name.
            rows: number of rows; by default the noisy number of private rows. Another number is free.
            params: values of its parameters.
            fresh: pay for new marginals even if stored ones are free.
            epsilon: the ε of a statement without one.

        Raises:
            ParseError, BindError, PrivacyError, BudgetExceeded: nothing was charged.
            Error: the server lacks the extra ``synthetic``; nothing was charged.
        """
        asked = write_question(*name_parameters(text, params), epsilon)
        return self._ask("synthesise", {**asked, "rows": rows, "fresh": fresh}).results[-1]

    def plan(self) -> RemotePlan:
        """Return a plan: in ``with session.plan() as plan:`` statements are declared, priced together as one event, then run.

        No statement can be chosen from another's answer, so they may be charged by their privacy loss distribution. Inside the
        block ``plan.sql(...)`` returns a handle, which becomes the result when the block ends.
        """
        return RemotePlan(self._ask)

    @interruptible
    def explain(
        self, text: str, params: Params | None = None, *, epsilon: str | Fraction | None = None
    ) -> Explanation:
        """Return the plan and the cost of statements, each and all together. Spends nothing and reads no private data.

        ``epsilon`` is the ε of a statement without one.
        """
        asked = write_question(*name_parameters(text, params), epsilon)
        return read_explanation(self._ask("explain", asked).value.get("explanation"))

    @interruptible
    def describe(self, text: str, params: Params | None = None) -> Description:
        """Return the columns of an answer and its price before it is paid. Spends nothing and reads no private data.

        Args:
            text: dpsql SQL; of several statements, the last one's columns and the price of all.
            params: values of its parameters. Without them, their types are guessed.

        Raises:
            ParseError, BindError, PrivacyError: it can't be answered.
        """
        asked = write_question(*name_parameters(text, params), None)
        value = self._ask("describe", {**asked, "params": None} if params is None else asked).value
        schemas, parameters = (
            read_arrow_schemas(value.get("schema")),
            read_arrow_schemas(value.get("parameters")),
        )
        if len(schemas) > 1 or len(parameters) != 1:
            raise WireError("the server's reply holds columns that are none.")
        from dpsql.session.explanation import Description

        return Description(schemas[0] if schemas else None, parameters[0], get_field(value, "price", str))

    @interruptible
    def table_schemas(self) -> Mapping[str, pa.Schema]:
        """Return the Arrow schemas of all tables that the policy names. No row is read."""
        value = self._ask("schemas").value
        names, schemas = get_field(value, "tables", list), read_arrow_schemas(value.get("schemas"))
        if len(names) != len(schemas) or not all(isinstance(name, str) for name in names):
            raise WireError("the server's reply holds tables that are none.")
        return dict(zip(names, schemas, strict=True))

    @interruptible
    def why(self) -> Why:
        """Explain the last answer or refusal: the unit, the bounds, the parts of the cost, and cheaper or more exact options.

        Spends nothing, and repeats no released value.

        Raises:
            BindError: no statement was asked yet in this session.
        """
        return read_why(self._ask("why").value.get("why"))

    # -- everything else ----------------------------------------------------------------------------------------

    @interruptible
    def budget(self) -> BudgetState:
        """Return the remaining and the spent budget, of the whole and of the analyst's own share."""
        return read_state(self._ask("budget").value.get("state"))

    @interruptible
    def budget_panel(self) -> BudgetPanel:
        """Return the budget as a bar, with the latest charges, for terminals and notebooks."""
        from dpsql.report.tables import BudgetPanel, Charge

        value = self._ask("panel", {"what": "budget"}).value
        listed = get_field(value, "charges", list)
        if not all(
            isinstance(c, list) and len(c) == 4 and all(isinstance(t, str) for t in c) for c in listed
        ):
            raise WireError("the server's reply holds charges that are none.")
        notices = [note for note in get_field(value, "notices", list) if isinstance(note, str)]
        state, count = read_state(value.get("state")), get_field(value, "count", int)
        charges = tuple(Charge(*charge) for charge in listed)
        return BudgetPanel(state, charges, count, get_field(value, "lasting", bool), tuple(notices))

    @interruptible
    def ledger(self, last: int | None = None) -> list[Entry]:
        """Return the analyst's charges and refusals, in order; or the ``last`` ones."""
        pages = self._ask("ledger", {"last": last}).values
        return [read_entry(entry) for page in pages for entry in get_field(page, "entries", list)]

    @interruptible
    def columns(self, table: str) -> Mapping[str, str]:
        """Return names and SQL types of a table's columns, in order. No row is read.

        Raises:
            BindError: the policy names no such table.
        """
        return dict(self._columns(table))

    def _columns(self, table: str, timeout: float | None = None) -> list[tuple[str, str]]:
        pairs = get_field(self._ask("columns", {"table": table}, timeout).value, "columns", list)
        if not all(isinstance(p, list) and len(p) == 2 and all(isinstance(t, str) for t in p) for p in pairs):
            raise WireError("the server's reply holds columns that are none.")
        return [(name, kind) for name, kind in pairs]

    @interruptible
    def tables(self) -> Result:
        """Return the tables of the policy, and the kept results."""
        return self._tables()

    def _tables(self, timeout: float | None = None) -> Result:
        results = self._ask("tables", None, timeout).results
        if not results:
            raise WireError("the server's reply holds no tables.")
        return results[0]

    @contextmanager
    def asking_briefly(self) -> Iterator[None]:
        """Limit waiting for replies to two seconds within the block: another session of the analyst may be answered first.

        Raises:
            ServerError: instead of a reply that does not arrive in time.
        """
        before, self._patience = self._patience, COMPLETION_SECONDS
        try:
            yield
        finally:
            self._patience = before

    @interruptible
    def schema(self) -> Mapping[str, list[str]]:
        """Return tables and kept results with their columns after the last statement, for completion.

        Raises:
            ServerError: the server is busy with another statement of the analyst, or gone.
        """
        if self._schema is None:
            wait = COMPLETION_SECONDS
            names = [str(row[0]) for row in self._tables(wait).fetchall()]
            self._schema = {name: [column for column, _ in self._columns(name, wait)] for name in names}
        return self._schema

    def plot(self, what: str = "budget") -> Axes:
        """Draw the ledger as a matplotlib Axes.

        Args:
            what: ``"budget"`` draws the remaining budget after each charge, ``"tradeoff"`` the trade-off curves of the promise
                and of the spent budget.

        Raises:
            MissingLibrary: matplotlib is not installed. BindError: there is no picture of that name.
        """
        from dpsql.session.result import import_notebook

        drawn: Axes = import_notebook("plots").draw_pictures(self._find_pictures(what))
        return drawn

    @interruptible
    def _find_pictures(self, what: str) -> dict[str, Any]:
        return get_field(self._ask("plot", {"what": what}).value, "pictures", dict)

    @interruptible
    def keep(self, name: str, result: object) -> None:
        """Keep a result as a public relation of later statements, as ``name << SELECT ...`` does; an earlier one is replaced.

        Args:
            name: a word; not the name of a private table.
            result: a :class:`Result` of this session. The server has its rows already, so they are not sent.

        Raises:
            BindError: the name is taken or no word; or a table of the analyst's own, which is not sent.
        """
        given = list(self._conversation.given.items())
        handle = next((number for number, held in given if held is result), None)
        if handle is None:
            self._ask("check_name", {"name": name})  # whose error comes first, as for a result of the server
            raise BindError(
                "only results of this session can be kept: no table of the analyst's own is sent to a server.",
                hint="write small tables as a CTE, WITH t(a, b) AS (VALUES ...); larger ones the owner can add, as public.",
            )
        self._ask("keep", {"name": name, "result": handle})

    @interruptible
    def check_name(self, name: str) -> None:
        """Raise an error for a name that a result can't have: no word, or the name of a private table."""
        self._ask("check_name", {"name": name})

    def register(self, name: str, function: Callable[..., object], **options: object) -> NoReturn:
        """Raise an error: a Python function would run on the owner's machine.

        Raises:
            ServerError: always.
        """
        raise ServerError(
            "Python functions can't be registered on a server: they would run where the data are.",
            hint="write the statistic as SQL in SELECT WITH SUBSAMPLE; the owner can register functions in a session of theirs.",
        )

    @property
    def account(self) -> NoReturn:
        """Raise an error: the ledger and its report are the owner's.

        Raises:
            ServerError: always.
        """
        raise ServerError(
            "the ledger is the owner's, and so is its report: the owner runs dpsql report.",
            hint="session.budget() and session.ledger() show what is yours; SHOW BUDGET and SHOW LEDGER too.",
        )

    def close(self) -> None:
        """Close the session: open thresholds are settled, kept results are forgotten. The charges stay. Never raises."""
        if self._closed:
            return
        self._closed = True
        run_apart(self._conversation.close)

    def __enter__(self) -> RemoteSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _ask(
        self, operation: str, head: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Reply:
        """Send a message, and wait for the reply."""
        if self._closed:
            raise ServerError("this session is closed.", hint="connect again.")
        if operation in ("run", "plan", "synthesise", "keep"):
            self._schema = None
        return self._conversation.ask(operation, head, self._patience if timeout is None else timeout)
