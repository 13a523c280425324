"""A session whose data, policy and ledger are the owner's: every statement goes to a server, and the answer comes back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn

from dpsql.client.channel import Channel
from dpsql.client.conversation import OPEN_SECONDS, Conversation, Reply
from dpsql.client.plans import RemotePlan
from dpsql.errors import BindError, Error, ServerError
from dpsql.interrupts import interruptible, run_apart
from dpsql.parameters import Params, name_parameters
from dpsql.wire import PROTOCOL, WireError, get_field, read_entry, read_explanation, read_state, read_why
from dpsql.wire_params import read_arrow_schemas, write_question

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

    from dpsql.explanation import Description, Explanation
    from dpsql.policy.model import Policy
    from dpsql.privacy.records import BudgetState, Entry
    from dpsql.report.tables import BudgetPanel
    from dpsql.result import Result
    from dpsql.why import Why

_VERSION = str(getattr(sys.modules[__name__.partition(".")[0]], "__version__", ""))
"""The version of dpsql, which the server is told."""


COMPLETION_SECONDS = 2.0
"""Seconds that whoever types waits for the names of tables and columns, and a notebook for its panel."""


class RemoteSession:
    """An analyst's session on an owner's server. Use it as a context manager, or close it.

    It has what :class:`dpsql.Session` has, but for what only the process that holds the data can do: Python functions, tables
    of the analyst's own, the owner's report. Several threads may use it; the server answers one statement after another.
    """

    def __init__(self, channel: Channel, shown: str) -> None:
        """Open a session; :func:`dpsql.connect` does that.

        Args:
            channel: carries the messages.
            shown: the server's address, as people read it.
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
        """``"shared"``: a stored answer is free for whoever may ask its statement; ``"own"``: each analyst's share pays."""
        self.expires = get_field(opened, "expires", str, "")
        """The time at which the token ends, in ISO 8601; empty where the server does not say."""
        times = get_field(opened, "answer_times", list, [])
        self.answer_times = tuple(float(time) for time in times if isinstance(time, int | float))
        """Seconds after a request at which answers may leave; beyond the last one they double. Empty: when they are ready."""

    def __repr__(self) -> str:
        return f"<dpsql session of {self.analyst} at {self.server}{' (closed)' if self._closed else ''}>"

    @property
    def policy(self) -> Policy:
        """The owner's policy, as far as it is the analyst's to see: no sources of data, and no other analyst."""
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
        """The stage of the statement that runs, as the server tells it: ``"reading"`` once private data may be read."""
        return self._conversation.stage

    # -- statements ---------------------------------------------------------------------------------------------

    def sql(self, text: str, params: Params | None = None, *, fresh: bool = False) -> Result:
        """Answer a statement (of several, the last one's result is given; all are answered).

        Args:
            text: dpsql SQL.
            params: values of its ``$name`` parameters, or a list of values for its ``?`` marks.
            fresh: pay for a new answer, where a stored one could be shown again for free.

        Raises:
            ParseError, BindError, PrivacyError, BudgetExceeded: nothing was charged.
            EngineError, Interrupted: the statement stays charged.
            PostprocessingError: the SQL above the private part failed on what was released: the corrected text is free.
            ServerError: the server can't be reached; SHOW LEDGER says whether a statement that was sent was charged.
        """
        results = self.run(text, params, fresh=fresh)
        if results:
            return results[-1]
        import pyarrow as pa

        from dpsql.result import Result

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

        ``epsilon`` is what a statement costs that does not say. When one fails, the results of those before it are in
        the error's ``answered``.
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
        """Return rows that look like private ones: those of a model that the server fits to noisy marginals.

        Args:
            text: a SELECT of columns with public values, or a CREATE SYNTHETIC TABLE of one, which keeps the rows by its name.
            rows: how many; by default as many as the noisy marginals say that there are. Another number is free.
            params: values of its parameters.
            fresh: pay for new marginals, where stored ones could be used again for free.
            epsilon: what it costs where the statement does not say.

        Raises:
            ParseError, BindError, PrivacyError, BudgetExceeded: nothing was charged.
            Error: the server lacks the extra ``synthetic``; nothing was charged.
        """
        asked = write_question(*name_parameters(text, params), epsilon)
        return self._ask("synthesise", {**asked, "rows": rows, "fresh": fresh}).results[-1]

    def plan(self) -> RemotePlan:
        """Return a plan: in ``with session.plan() as plan:`` statements are declared, priced together as one event, then run.

        None can be chosen from another's answer, so they may be charged by their privacy loss distribution. Inside the
        block ``plan.sql(...)`` gives a handle that is the result once the block is left.
        """
        return RemotePlan(self._ask)

    @interruptible
    def explain(
        self, text: str, params: Params | None = None, *, epsilon: str | Fraction | None = None
    ) -> Explanation:
        """Say what statements would do and cost, each and all together. Spends nothing and reads no private data.

        ``epsilon`` is what a statement costs that does not say.
        """
        asked = write_question(*name_parameters(text, params), epsilon)
        return read_explanation(self._ask("explain", asked).value.get("explanation"))

    @interruptible
    def describe(self, text: str, params: Params | None = None) -> Description:
        """Return the columns of an answer and its price, before it is paid. Spends nothing and reads no private data.

        Args:
            text: dpsql SQL; of several statements the last one's columns are given, and the price of all.
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
        from dpsql.explanation import Description

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
        """Tell the chain behind the last answer or refusal: who is protected, what was bounded, where the cost came from.

        And what would make it cheaper or more exact. It spends nothing, and repeats no released value.

        Raises:
            BindError: nothing was asked yet in the server's process of this session.
        """
        return read_why(self._ask("why").value.get("why"))

    # -- everything else ----------------------------------------------------------------------------------------

    @interruptible
    def budget(self) -> BudgetState:
        """Return what is left and what was spent, of the whole and of the analyst's own share."""
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
        """Return the tables that the policy names, and the results that are kept."""
        return self._tables()

    def _tables(self, timeout: float | None = None) -> Result:
        results = self._ask("tables", None, timeout).results
        if not results:
            raise WireError("the server's reply holds no tables.")
        return results[0]

    @contextmanager
    def asking_briefly(self) -> Iterator[None]:
        """Give up on replies after two seconds within the block: another session of the analyst's may be answered first.

        Raises:
            ServerError: in place of a reply that does not come in time.
        """
        before, self._patience = self._patience, COMPLETION_SECONDS
        try:
            yield
        finally:
            self._patience = before

    @interruptible
    def schema(self) -> Mapping[str, list[str]]:
        """Return tables and kept results with their columns, as they were after the last statement: for completion.

        Raises:
            ServerError: the server is busy with another statement of the analyst's, or gone.
        """
        if self._schema is None:
            wait = COMPLETION_SECONDS
            names = [str(row[0]) for row in self._tables(wait).fetchall()]
            self._schema = {name: [column for column, _ in self._columns(name, wait)] for name in names}
        return self._schema

    def plot(self, what: str = "budget") -> Axes:
        """Draw the ledger as a matplotlib Axes.

        Args:
            what: ``"budget"``: what is left after each charge. ``"tradeoff"``: what the budget promises and what was spent, as
                trade-off curves.

        Raises:
            MissingLibrary: matplotlib is not installed. BindError: there is no picture of that name.
        """
        from dpsql.result import import_notebook

        drawn: Axes = import_notebook("plots").draw_pictures(self._find_pictures(what))
        return drawn

    @interruptible
    def _find_pictures(self, what: str) -> dict[str, Any]:
        return get_field(self._ask("plot", {"what": what}).value, "pictures", dict)

    @interruptible
    def keep(self, name: str, result: object) -> None:
        """Keep a result as a public relation of later statements, as ``name << SELECT ...`` does; another is replaced.

        Args:
            name: a word; not the name of a private table.
            result: a :class:`Result` of this session. The server has its rows already: they are not sent.

        Raises:
            BindError: a name that can't be taken; or a table of the analyst's own, which is not sent.
        """
        given = list(self._conversation.given.items())
        handle = next((number for number, held in given if held is result), None)
        if handle is None:
            self._ask("check_name", {"name": name})  # which speaks first, as for a result that the server has
            raise BindError(
                "only results of this session can be kept: no table of the analyst's own is sent to a server.",
                hint="write small tables as a CTE, WITH t(a, b) AS (VALUES ...); larger ones the owner can add, as public.",
            )
        self._ask("keep", {"name": name, "result": handle})

    @interruptible
    def check_name(self, name: str) -> None:
        """Refuse a name that no result can take: no word, or the name of a private table."""
        self._ask("check_name", {"name": name})

    def register(self, name: str, function: Callable[..., object], **options: object) -> NoReturn:
        """Refuse a Python function: it would run where the data are, on the owner's machine.

        Raises:
            ServerError: always.
        """
        raise ServerError(
            "Python functions can't be registered on a server: they would run where the data are.",
            hint="write the statistic as SQL in SELECT WITH SUBSAMPLE; the owner can register functions in a session of theirs.",
        )

    @property
    def account(self) -> NoReturn:
        """Refuse the ledger and its report: they are the owner's.

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
