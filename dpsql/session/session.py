"""Sessions: from a statement's text to a private answer; and plans: statements that are priced together, then run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dpsql.binding.modes.synthetic import parse_synthetic
from dpsql.binding.plan import Plan
from dpsql.binding.selection.declared import Declaration
from dpsql.binding.subsample.combiners import registered
from dpsql.engine import open_engine
from dpsql.engine.base import Engine
from dpsql.errors import BindError, Error, PolicyError, PostprocessingError, PrivacyError
from dpsql.interrupts import interruptible, run_apart
from dpsql.language.dialect import span_of_word
from dpsql.language.parameter_values import Params
from dpsql.language.statements import PRICED, Statement, parse
from dpsql.ledger.ledger import BudgetState, Entry, Ledger
from dpsql.ledger.state_files import place_ledger
from dpsql.mechanisms.joint_gaussian import calibrate_together, find_pair
from dpsql.policy.model import Policy
from dpsql.privacy.events import Composed, Event, compose_events
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.privacy.pld import declare
from dpsql.report.data import list_pictures
from dpsql.report.tables import BudgetPanel
from dpsql.session.description import describe_cell, describe_tables, show
from dpsql.session.explain import AskedStatement, explain_all, explain_why, noting
from dpsql.session.explanation import Description, Explanation, Why
from dpsql.session.pipeline import Bound, Pipeline, before_payment
from dpsql.session.result import DeclaredResult, Result, import_notebook
from dpsql.session.session_state import OpenCell, in_our_words
from dpsql.session.stored_blocks import PreparedPlan, RequestedBlock

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def open_session(
    database: Any = ":memory:",
    *,
    policy: Policy | str | Path,
    ledger: str | Path | None = None,
    analyst: str | None = None,
    resources: Mapping[str, str | int] | None = None,
) -> Session:
    """Open a session on private data, under the owner's policy.

    Args:
        database: the path of a DuckDB file, ``":memory:"`` (tables come from the policy's sources), an open DuckDB
            connection, or a mapping of names to pandas, polars or Arrow tables or dicts of lists (the policy's tables,
            or their sources). For Spark: a master (``"spark://host:7077"``, ``"local[2]"``), a Spark Connect address
            (``"sc://host"``), or a SparkSession.
        policy: the owner's TOML file, or a :class:`dpsql.Policy`.
        ledger: the path of the charges; by default ``<policy>.ledger`` next to the policy file. With a policy made in
            Python and no path, the budget lasts for this process only.
        analyst: the analyst's name, if the policy gives analysts separate shares.
        resources: for DuckDB: ``{"memory_limit": "1GiB", "threads": 2, "temp_directory": "/scratch", "time_limit":
            60}``. Data larger than the memory limit, private rows included, are spilled to a directory below
            ``temp_directory`` (by default the user's state directory) that other users can't enter and that is removed
            with the session. Without ``threads`` there is at most one per 256 MiB. ``time_limit`` stops an exact query
            after that number of seconds. A statement that reaches a limit fails like any other: it stays charged, with
            the same message.

    Raises:
        PolicyError: the policy is wrong, or does not fit the data.
        LedgerError: the ledger can't be trusted or written.
    """
    folder = Path.cwd()
    if isinstance(policy, Policy) and policy.base is not None:
        folder = policy.base
    _check_path("database", database if isinstance(database, str | Path) else "")
    _check_path("policy", policy if isinstance(policy, str | Path) else "")
    _check_path("ledger", ledger or "")
    if not isinstance(policy, Policy):
        if not isinstance(policy, str | Path):
            raise PolicyError(
                f"the policy is a {type(policy).__name__}.",
                hint="give the path of a TOML file, or a dpsql.Policy.",
            )
        path = Path(policy)
        policy, folder = Policy.load(path), path.parent
        ledger = place_ledger(path) if ledger is None else ledger
    engine = open_engine(database, policy, folder, resources)
    opened = Ledger.open(ledger, policy, engine.dataset, analyst)
    return Session(policy, engine, opened)


def _check_path(what: str, path: str | Path) -> None:
    """Raise PolicyError if a path contains a NUL or a lone surrogate, or is too long for a file name."""
    text, wrong = str(path), ""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        wrong = "holds a character that no path has"
    elif len(text) > MAX_PATH or any(len(part.encode()) > MAX_PATH_PART for part in Path(text).parts):
        wrong = "is too long"
    if wrong:
        raise PolicyError(
            f"the path of the {what} {wrong}.", hint="name an existing folder, and a file in it."
        )


MAX_PATH, MAX_PATH_PART = 4_000, 255
"""Characters of a path, and bytes of each of its parts."""


class Session:
    """An analyst's session. Use it as a context manager, or close it.

    Threads may share a session: their statements take turns, except that cells of a single query read data
    concurrently. In the analyst's own process a session is not a sandbox: it protects the released values and keeps account.
    """

    def __init__(self, policy: Policy, engine: Engine, ledger: Ledger) -> None:
        self.policy = policy
        self._ledger = ledger
        self._pipeline = Pipeline(policy, engine, ledger)
        self.closed = False

    # -- the straight line --------------------------------------------------------------------------------------

    def sql(self, text: str, params: Params | None = None, *, fresh: bool = False) -> Result:
        """Answer a text's statements, and return the result of the last.

        Args:
            text: dpsql SQL.
            params: values of its ``$name`` parameters, or a list of values for its ``?`` marks.
            fresh: pay for a new answer even if a stored one is free.

        Raises:
            ParseError, BindError, PrivacyError, BudgetExceeded: nothing was charged.
            EngineError, Interrupted: the statement stays charged.
            PostprocessingError: the SQL above the private part failed on released values; the corrected text is free.
        """
        results = self.run(text, params, fresh=fresh)
        return results[-1] if results else Result(pa.table({}))

    @interruptible
    @in_our_words
    def run(
        self,
        text: str,
        params: Params | None = None,
        *,
        fresh: bool = False,
        epsilon: str | Fraction | None = None,
    ) -> list[Result]:
        """Answer each statement of a cell. All are bound before the first is paid.

        ``epsilon`` is the default cost of a statement. If one fails, the earlier results are in the error's ``answered``.
        """
        return self._run(text, partial(parse, text, params), fresh, epsilon)

    @interruptible
    @in_our_words
    def synthesise(
        self,
        text: str,
        rows: int | None = None,
        params: Params | None = None,
        *,
        fresh: bool = False,
        epsilon: str | Fraction | None = None,
    ) -> Result:
        """Return synthetic rows from a model that is fitted to noisy marginals.

        Args:
            text: a SELECT of columns with public values, ``SELECT WITH DP OPTIONS (epsilon = 1) ward, urgent FROM
                visits``, or a CREATE SYNTHETIC TABLE of one, which keeps the rows under its name.
            rows: the number of rows, by default the noisy total of the marginals. Another number of rows is free.
            params: values of its parameters.
            fresh: pay for new marginals even if stored ones are free.
            epsilon: the cost if the statement gives none.

        Raises:
            MissingLibrary: the extra ``synthetic`` is not installed; nothing was charged.
            ParseError, BindError, PrivacyError, BudgetExceeded: nothing was charged.
            EngineError, Interrupted: the statement stays charged.
        """
        return self._run(text, partial(parse_synthetic, text, params, rows), fresh, epsilon)[-1]

    def _run(
        self, text: str, read: Callable[[], list[Statement]], fresh: bool, epsilon: str | Fraction | None
    ) -> list[Result]:
        """Answer the statements that ``read`` parses from a text."""
        line = self._pipeline
        results: list[Result] = []
        with line.turn:
            before = line.last
            with noting(line, text), before_payment():
                statements = read()
                cell = line.open_cell(epsilon)
                admitted = [self._admit(statement, cell) for statement in statements]
            alone = len(statements) == 1 and not statements[0].keep
            try:
                for statement, bound in zip(statements, admitted, strict=True):
                    if any(before.keep for before in statements[: len(results)]):
                        with before_payment():
                            bound = line.admit(
                                statement, line.reopen(cell)
                            )  # the predicted results are replaced by the real ones
                    with noting(line, statement.source, bound):
                        results.append(self._answer(statement, bound, fresh, alone))
                    if statement.keep:
                        line.kept.keep(statement.keep, results[-1])
            except Error as error:
                error.answered = tuple(results)
                raise
            if before is not None and all(statement.kind == "show" for statement in statements):
                line.last = before  # reading the ledger is no statement of the analyst's
        return results

    def _admit(self, statement: Statement, cell: OpenCell) -> Bound:
        self._pipeline.last = AskedStatement(statement.source)
        return self._pipeline.admit(statement, cell)

    def _answer(self, statement: Statement, bound: Bound, fresh: bool, alone: bool) -> Result:
        line = self._pipeline
        if statement.kind in ("show", "explain"):
            line.last = AskedStatement(statement.source, done="free")
        if statement.kind == "show":
            with _locate(statement):
                return show(
                    self.policy,
                    self._ledger,
                    statement.name,
                    line.kept.names,
                    statement.limit,
                    line.find_columns,
                )
        if statement.kind == "explain":
            return line.explain(statement, bound).result()
        with _locate(statement):
            if isinstance(bound, Declaration):
                line.last = AskedStatement(statement.source, bound, reserved=bound.event, done="declared")
                return line.declare(bound, statement.record)
            if bound is None:
                closed = line.close_threshold(statement.name)
                line.last = AskedStatement(statement.source, used=closed.event, done="closed")
                return closed
            line.thresholds.require(bound)
        with before_payment():
            (prepared,) = line.look_up_to_pay([bound], fresh)
            asked = line.last = AskedStatement(statement.source).look_up(prepared)
        ticket = line.reserve(prepared.event, statement.record, [prepared])
        try:
            with line.answering([prepared]):
                line.release([prepared], ticket, alone)
                line.settle(ticket, prepared.used, [prepared])
            result = line.finish(prepared, ticket)
            line.last = asked.finish(prepared, result.notes)
            return result
        except PostprocessingError as error:
            error.span = span_of_word(statement.text, error.name) if error.name else statement.span
            raise error.located(statement.text) from None

    @in_our_words
    def plan(self) -> DeclaredStatements:
        """Return a plan: in ``with session.plan() as plan:`` statements are declared, priced together as one event, then run.

        No statement can depend on another's answer, so they may be charged by their privacy loss distribution. Inside
        the block, ``plan.sql(...)`` returns a handle that becomes the result when the block ends.
        """
        return DeclaredStatements(self._pipeline)

    @interruptible
    @in_our_words
    def explain(
        self, text: str, params: Params | None = None, *, epsilon: str | Fraction | None = None
    ) -> Explanation:
        """Explain the effect and the cost of statements, each and together. Spends nothing and reads no private data.

        ``epsilon`` is the default cost of a statement.
        """
        line = self._pipeline
        paid: dict[str, RequestedBlock] = {}
        with line.turn, before_payment():
            statements = [s for s in parse(text, params) if s.kind in PRICED]
            if not statements:
                raise PrivacyError("there is no query to explain.")
            cell = line.open_cell(epsilon)
            parts = [line.explain(s, line.bind(s, cell), paid) for s in statements]
        return explain_all(parts, self._ledger)

    @interruptible
    @in_our_words
    def describe(self, text: str, params: Params | None = None) -> Description:
        """Return an answer's columns and price before it is paid. Spends nothing and reads no private data.

        Args:
            text: dpsql SQL; of several statements, the last one's columns and the price of all.
            params: values of its parameters; their types are guessed if they are missing.

        Raises:
            ParseError, BindError, PrivacyError: the text can't be answered.
        """
        line = self._pipeline
        with line.turn, before_payment():
            return describe_cell(line, self.policy, text, params)

    @in_our_words
    def why(self) -> Why:
        """Explain the last answer or refusal: the privacy unit, the bounds, the origin of its cost, and better variants.

        It spends nothing, reads no private row, and repeats no released value. BindError if nothing was asked yet.
        """
        line = self._pipeline
        with line.turn:
            return explain_why(line.last, self._ledger, self.policy)

    # -- everything else ----------------------------------------------------------------------------------------

    @in_our_words
    def budget(self) -> BudgetState:
        """Return the spent and the remaining budget: :meth:`dpsql.ledger.ledger.Ledger.state`."""
        return self._ledger.state()

    def budget_panel(self) -> BudgetPanel:
        """Return the budget as a bar, with the latest charges, for terminals and notebooks."""
        return BudgetPanel.of(self._ledger)

    @in_our_words
    def ledger(self, last: int | None = None) -> list[Entry]:
        """Return every charge and refusal in order, or only the ``last`` ones."""
        return self._ledger.entries(last)

    @property
    def account(self) -> Ledger:
        """The ledger itself, for displays and reports; read only."""
        return self._ledger

    @interruptible
    @in_our_words
    def columns(self, table: str) -> Mapping[str, str]:
        """Return names and SQL types of a table's columns, in order, without reading rows; BindError if unknown."""
        line = self._pipeline
        with line.turn:
            return line.find_columns(table)

    @interruptible
    @in_our_words
    def table_schemas(self) -> Mapping[str, pa.Schema]:
        """Return the Arrow schemas of the policy's tables. No row is read."""
        line = self._pipeline
        with line.turn:
            return describe_tables(line)

    @in_our_words
    def plot(self, what: str = "budget") -> Axes:
        """Draw the ledger as a matplotlib Axes.

        Args:
            what: ``"budget"`` for what is left after each charge, or ``"tradeoff"`` for the trade-off curves of the
                budget and of the charges.

        Raises:
            MissingLibrary: matplotlib is not installed.
            BindError: there is no picture of that name.
        """
        drawn: Axes = import_notebook("plots").draw_pictures(list_pictures(self._ledger, what))
        return drawn

    @in_our_words
    def tables(self) -> Result:
        """Return the policy's tables and the kept results."""
        return show(self.policy, self._ledger, "TABLES", self._pipeline.kept.names)

    @in_our_words
    def keep(self, name: str, result: object) -> None:
        """Keep a result as a public relation of later statements, as ``name << SELECT ...`` does; replaces an older one.

        Args:
            name: a word that is not the name of a private table.
            result: a :class:`Result`, or a pandas, polars or Arrow table.

        Raises:
            BindError: the name can't be taken, or ``result`` is no table.
        """
        self._pipeline.kept.keep(name, result)

    @property
    def kept(self) -> Mapping[str, str]:
        """Digests of the kept results' contents, by folded name."""
        return {name: item.table for name, item in self._pipeline.kept.by_name.items()}

    @property
    def open_thresholds(self) -> list[str]:
        """The names of declared thresholds that are still open."""
        return self._pipeline.thresholds.names

    def forget(self, name: str) -> None:
        """Remove a kept result, if there is one of that name."""
        self._pipeline.kept.forget(name)

    def check_name(self, name: str) -> None:
        """Refuse a name that no result can take: it is no word, or the name of a private table."""
        self._pipeline.kept.check(name)

    @in_our_words
    def register(
        self, name: str, function: Callable[..., object], *, returns: Any = None, length: int | None = None
    ) -> None:
        """Register a Python function for ``SELECT WITH SUBSAMPLE``, which runs it on each block's rows.

        Args:
            name: its name in SQL.
            function: takes the columns as numpy arrays.
            returns: its return type, an SQL type (``"DOUBLE"``, ``"VARCHAR[]"``) or a Python type (``float``,
                ``list[str]``). If declared, a combiner that doesn't fit it is refused before payment.
            length: the result is a list of this length; numbers are then combined coordinate by coordinate.

        Raises:
            PolicyError, BindError: a name, type or length that a function can't have.
        """
        self._pipeline.functions[name.lower()] = registered(name, function, returns, length)

    def __repr__(self) -> str:
        if self.closed:
            return "<dpsql session, closed>"
        tables = ", ".join(f"{t.name} (public)" if t.public else t.name for t in self.policy.tables.values())
        kept = "" if self._ledger.lasting else " · this budget lasts for this process only"
        return f"<dpsql session: {tables or 'no tables'} · {self.budget().sentence}{kept}>"

    def close(self) -> None:
        """Wait for running statements, then close the engine and the ledger. The charges stay. Never raises."""
        self.closed = True
        with suppress(Exception, KeyboardInterrupt):
            run_apart(self._pipeline.close)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@contextmanager
def _locate(statement: Statement) -> Iterator[None]:
    """Add the statement's span to errors that have none."""
    try:
        yield
    except Error as error:
        error.span = error.span or statement.span
        raise error.located(statement.text) from None


# -- statements declared together ------------------------------------------------------------------------------------

LookUp = Callable[[Sequence[Plan]], list[PreparedPlan]]
"""Looks up the blocks of plans that are paid together."""


def prepare_together(plans: Sequence[Plan], look_up: LookUp) -> list[PreparedPlan]:
    """Look up plans declared together, with one calibration of the Gaussian noise of all their blocks.

    If all of these blocks are stored under the joint calibration, they are free. Otherwise blocks stored individually
    are free, and the rest are calibrated together.
    """
    alone = look_up(plans)
    items = [item for prepared in alone for item in prepared.asked if item.same is None]
    noisy = [item for item in items if find_pair(item.block.operator) is not None]
    left = [item for item in noisy if item.stored is None]
    if len(noisy) < 2:
        return alone
    joint = look_up(_calibrate(alone, noisy))
    asked = (item for prepared in joint for item in prepared.asked)
    if len(left) == len(noisy) or all(item.free or find_pair(item.block.operator) is None for item in asked):
        return joint
    return look_up(_calibrate(alone, left)) if len(left) > 1 else alone


def _calibrate(prepared: Sequence[PreparedPlan], chosen: Sequence[RequestedBlock]) -> list[Plan]:
    """Return plans in which these blocks, and equal ones, share one noise calibration."""
    operators = calibrate_together([item.block.operator for item in chosen])
    made = {item.key: operator for item, operator in zip(chosen, operators, strict=True)}
    plans = []
    for one in prepared:
        blocks = (replace(item.block, operator=made.get(item.key, item.block.operator)) for item in one.asked)
        plans.append(replace(one.plan, blocks=tuple(blocks)))
    return plans


class DeclaredStatement(DeclaredResult):
    """A statement of a declared plan, with its plan."""

    def __init__(self, statement: Statement, plan: Plan) -> None:
        super().__init__(statement.record)
        self.plan = plan


class DeclaredStatements:
    """Statements that are priced together before the first is run, in ``with session.plan() as plan:``.

    Only such a list may use the privacy loss distribution: it is no valid bound for statements chosen from earlier answers.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._declared: list[DeclaredStatement] = []
        self._ran = False

    @property
    def closed(self) -> bool:
        """Whether the session is closed."""
        return self._pipeline.closed

    @interruptible
    @in_our_words
    def sql(
        self, text: str, params: Params | None = None, *, epsilon: str | Fraction | None = None
    ) -> DeclaredStatement:
        """Declare a text's statements and return the last. Spends nothing and reads no data.

        ``params``: values of its ``$name`` parameters, or a list of values for its ``?`` marks; ``epsilon``: the
        default cost of a statement.

        Raises:
            ParseError, BindError, PrivacyError: it can't be planned.
        """
        line = self._pipeline
        with line.turn, noting(line, text), before_payment():
            statements = parse(text, params)
            if not statements:
                raise BindError("there is no statement to declare.")
            cell = line.open_cell(epsilon)
            for statement in statements:
                self._add(statement, cell)
        return self._declared[-1]

    def _add(self, statement: Statement, cell: OpenCell) -> None:
        if statement.keep:
            raise BindError(
                "a declared statement has no answer to keep yet.",
                span=statement.span,
                text=statement.text,
                hint="leave the with block, then session.keep(name, result).",
            )
        if self._ran:
            raise BindError("the plan has run already.", hint="open another: with session.plan() as plan:")
        plan = self._pipeline.admit(statement, cell)
        if statement.kind != "query" or not isinstance(plan, Plan) or any(b.prepaid for b in plan.blocks):
            raise BindError(
                "only queries can be declared in a plan.", span=statement.span, text=statement.text
            )
        self._declared.append(DeclaredStatement(statement, plan))

    @property
    def results(self) -> list[Result]:
        """The answers, in the order of declaration."""
        return [declared.result for declared in self._declared]

    @property
    def event(self) -> Event | None:
        """The total cost: the composed event, or under ``basic`` its privacy loss distribution if that is smaller.

        Gaussian noise is calibrated once for all statements. Stored blocks are free, and equal blocks are paid once.
        """
        with self._pipeline.turn:
            return self._price(self._look_up(self._pipeline.look_up))

    def _look_up(self, look_up: LookUp) -> list[PreparedPlan]:
        return prepare_together([declared.plan for declared in self._declared], look_up)

    def _price(self, prepared: list[PreparedPlan]) -> Event | None:
        events = [one.event for one in prepared if one.event is not None]
        if not events:
            return None
        whole = compose_events(events)
        budget = self._pipeline.policy.budget
        delta = Fraction(budget.default_delta or budget.delta / 10)
        if ACCOUNTANTS[budget.accountant].has_rule or len(events) == 1 or not whole.delta < delta:
            return whole
        together = declare(whole.events if isinstance(whole, Composed) else [whole], delta)
        return together if together.basic[0] < whole.basic[0] else whole

    @interruptible
    @in_our_words
    def run(self) -> list[Result]:
        """Reserve the total cost as one event, run every statement, and settle.

        Raises:
            BudgetExceeded: the budget is too small; nothing was charged.
            EngineError, Interrupted: the total stays charged.
        """
        self._ran = True
        line = self._pipeline
        with line.turn, noting(line, "; ".join(declared.source for declared in self._declared)):
            prepared = self._look_up(line.look_up_to_pay)
            if prepared:
                line.last = AskedStatement(self._declared[-1].source).look_up(prepared[-1])
            event = self._price(prepared)
            ticket = line.reserve(event, "; ".join(d.source for d in self._declared), prepared)
            line.release(prepared, ticket)
            line.settle(ticket, event, prepared)
            together = f", which cost {line.price(event)} together" if event is not None else ""
            notes = (f"one of a declared plan{together}",)
            for declared, one in zip(self._declared, prepared, strict=True):
                declared._result = line.finish(one, ticket, notes)
                line.last = AskedStatement(declared.source).look_up(one).finish(one, declared._result.notes)
        return self.results

    def __enter__(self) -> DeclaredStatements:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and self._declared:
            self.run()
