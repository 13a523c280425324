"""A session: the straight line from a statement's text to a private answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from dpsql.alarms import Alarms
from dpsql.declared import DeclaredStatements
from dpsql.engine.choose import open_engine
from dpsql.engine.finish import Finisher
from dpsql.errors import BindError, BudgetExceeded, EngineError, Error, Interrupted, PolicyError, PrivacyError
from dpsql.explain import Explanation, explain_declaration, explain_plan
from dpsql.ledger.ledger import Ledger
from dpsql.mechanisms.base import SALT, Read, Reader, Release
from dpsql.noise.entropy import Entropy
from dpsql.plan import Plan
from dpsql.policy import Policy
from dpsql.privacy.events import Event, charged, compose
from dpsql.result import Result, upstairs
from dpsql.show import show
from dpsql.sql.bind import bind
from dpsql.sql.chosen.thresholds import Declaration, bind_declare
from dpsql.sql.options import epsilon_text
from dpsql.sql.parse import Statement, parse
from dpsql.sql.relations.catalog import Catalog
from dpsql.sql.remembered import Plans
from dpsql.stored import pack, unpack

if TYPE_CHECKING:
    from dpsql.engine.base import Engine

_LIMITS = "dpsql.connect(resources=...) sets how much memory and time a query may take."
_WITHHELD = "the engine failed while it read private data; the statement stays charged, and why is withheld."


def connect(
    database: Any = ":memory:",
    *,
    policy: Policy | str | Path,
    ledger: str | Path | None = None,
    analyst: str | None = None,
    resources: Mapping[str, str | int] | None = None,
) -> Session:
    """Opens a session on private data, under the owner's policy.

    Args:
        database: the path of a DuckDB file, ``":memory:"`` (tables come from the policy's sources), an open DuckDB
            connection, or a mapping of names to pandas, polars or Arrow tables (the policy's tables, or their
            sources). For Spark: a master (``"spark://host:7077"``, ``"local[2]"``), a Spark Connect address
            (``"sc://host"``), or a SparkSession.
        policy: the owner's TOML file, or a :class:`dpsql.Policy`.
        ledger: where charges are kept; by default ``<policy>.ledger`` beside the policy file. With a policy made in
            Python and no path, the budget lasts for this process only.
        analyst: who asks, where the policy gives analysts shares of their own.
        resources: for DuckDB: ``{"memory_limit": "1GiB", "threads": 2, "temp_directory": "/scratch"}``. What does not
            fit the memory is spilled to files there, private rows and all; without ``threads``, there is one for each
            256 MiB at most. ``"time_limit": 60`` stops an exact query
            after so many seconds. A statement that reaches a limit fails like any other: it stays charged, and the
            message is the same.

    Raises:
        PolicyError: the policy is wrong, or does not fit the data.
        LedgerError: the ledger can't be trusted or written.
    """
    path = None if isinstance(policy, Policy) else Path(policy)
    if path is not None:
        policy = Policy.load(path)
    assert isinstance(policy, Policy)
    where = (
        ledger if ledger is not None else path.with_name(path.name + ".ledger") if path is not None else None
    )
    engine = open_engine(database, policy, path.parent if path is not None else Path.cwd(), resources)
    opened = Ledger.open(where, policy, engine.dataset, analyst)
    return Session(policy, engine, opened)


class Session:
    """An analyst's session. Use it as a context manager, or close it.

    In the analyst's own process it is not a sandbox: it protects what is released, and keeps count.
    """

    def __init__(self, policy: Policy, engine: Engine, ledger: Ledger) -> None:
        self.policy = policy
        self._fingerprint = policy.fingerprint
        self._engine = engine
        self._ledger = ledger
        self._entropy = Entropy()
        self._functions: dict[str, Callable[..., object]] = {}
        self._catalog = Catalog(policy, engine, policy.budget.accountant, self._functions)
        self._finisher = Finisher(engine, policy)
        self._plans = Plans(self._catalog, self._finisher)
        self._alarms = Alarms(ledger, self._entropy)
        self._collecting: DeclaredStatements | None = None

    # -- the straight line --------------------------------------------------------------------------------------

    def sql(self, text: str, params: Mapping[str, Any] | None = None, *, fresh: bool = False) -> Result:
        """Answers a statement (of several, the last one's result is given; all are answered).

        Args:
            text: dpsql SQL.
            params: values of its ``$name`` parameters.
            fresh: pay for a new answer, where a stored one could be shown again for free.

        Raises:
            ParseError, BindError, PrivacyError, BudgetExceeded: nothing was charged.
            EngineError, Interrupted: the statement stays charged.
        """
        if self._collecting is not None:
            return self._collecting.sql(text, params)  # type: ignore[return-value]  # it becomes its result
        results = self.run(text, params, fresh=fresh)
        return results[-1] if results else Result(pa.table({}))

    def run(
        self,
        text: str,
        params: Mapping[str, Any] | None = None,
        *,
        fresh: bool = False,
        epsilon: str | Fraction | None = None,
    ) -> list[Result]:
        """Answers each statement of a cell. All are bound before the first is paid.

        ``epsilon`` is what a statement costs that does not say. When one fails, the results of those before it are in
        the error's ``answered``.
        """
        statements = parse(text, params)
        declared = dict(self._alarms.declared)
        with self._defaulting(epsilon):
            plans = [self._bind(statement, declared) for statement in statements]
        results: list[Result] = []
        try:
            for statement, plan in zip(statements, plans, strict=True):
                results.append(self._answer(statement, plan, fresh))
        except Error as error:
            error.answered = tuple(results)
            raise
        return results

    @contextlib.contextmanager
    def _defaulting(self, epsilon: str | Fraction | None) -> Iterator[None]:
        """Binds under another default epsilon; the owner's limits hold as they are."""
        if epsilon is None:
            yield
            return
        value = epsilon if isinstance(epsilon, Fraction) else epsilon_text(epsilon)
        kept = self._catalog
        budget = replace(self.policy.budget, default_epsilon=value)
        policy = replace(self.policy, budget=budget)
        self._catalog = Catalog(policy, self._engine, budget.accountant, self._functions)
        try:
            yield
        finally:
            self._catalog = kept

    def plan(self) -> DeclaredStatements:
        """``with session.plan() as plan:``: statements are declared, priced together as one event, then run.

        None can be chosen from another's answer, so they may be charged by their privacy loss distribution. Inside the
        block ``plan.sql(...)`` (and ``session.sql(...)``) give a handle that is the result once the block is left.
        """
        return DeclaredStatements(self)

    def _answer(self, statement: Statement, plan: Plan | Declaration | None, fresh: bool) -> Result:
        if not isinstance(plan, Plan):
            return self._other(statement, plan)
        try:
            self._alarms.require(plan)
        except BindError as error:
            error.span = statement.span
            raise error.located(statement.text) from None
        key = plan.key(self._fingerprint, self._engine.version())
        stored = None if fresh or plan.event is None else self._ledger.replay(key)
        if stored is not None:
            return self._finish(plan, unpack(stored.release), stored=stored)
        ticket = self._reserve(statement, plan, key)
        releases, outcome = self._release(plan)
        if releases is None:
            self._fail(ticket, plan, outcome)
        paid = [releases[block.name].event for block in plan.blocks if not block.prepaid]
        used = compose(paid) if paid else None
        relations = {name: release.table for name, release in releases.items()}
        notes = tuple(note for release in releases.values() for note in release.notes)
        if ticket is not None and used is not None:
            self._ledger.settle(ticket, used, pack(relations, notes), "released")
        return self._finish(plan, (relations, notes), used=used, ticket=ticket)

    def _bind(self, statement: Statement, declared: dict[str, Declaration]) -> Plan | Declaration | None:
        """The plan of a query, or what it declares; None for the other statements. Refusals are logged, at no cost."""
        if statement.kind == "declare":
            declaration = bind_declare(statement, self._catalog)
            declared[declaration.name.lower()] = declaration
            return declaration
        if statement.kind == "explain":
            self._explain(statement)  # what it would refuse is refused before anything is paid
        if statement.kind != "query":
            return None
        try:
            plan = self._plans.bind(statement, self._catalog, declared)
            self._check(plan)
            return plan
        except PrivacyError as error:
            self._ledger.refuse(statement.source, error.message, None)
            raise

    def _check(self, plan: Plan) -> None:
        """What the engine would refuse on any data is refused before it is paid."""
        for block in plan.blocks:
            schemas = {b.name: b.columns for b in plan.blocks}
            lent = {i.name: self._finisher.describe(i.sql, schemas, plan.public) for i in block.inputs}
            lent |= getattr(block.operator, "lends", {})
            apart = getattr(block.operator, "apart", ())
            for item in block.inputs if not self._engine.lossless else ():
                if not any(name in item.sql for name in schemas):
                    self._engine.lendable(self._finisher.finish(item.sql, {}, plan.public))
            for query in getattr(block.operator, "checked", block.operator.queries):
                self._engine.check(query.replace(SALT, "0"), lent, query in apart)

    def _reserve(self, statement: Statement, plan: Plan, key: str) -> Any:
        if plan.event is None:
            return None
        try:
            return self._ledger.reserve(plan.event, statement.source, key)
        except BudgetExceeded as error:
            self._ledger.refuse(statement.source, error.message, plan.event)
            raise error.located(statement.text) from None

    def _release(self, plan: Plan) -> tuple[dict[str, Release] | None, str]:
        """Runs the blocks. Never raises: no traceback of it, whose frames hold exact values, is ever seen."""
        releases: dict[str, Release] = {}
        lend = self._finisher.lend if self._engine.lossless else self._finisher.finish
        try:
            for block in plan.blocks:
                relations = {name: release.table for name, release in releases.items()}
                lent = {item.name: lend(item.sql, relations, plan.public) for item in block.inputs}
                releases[block.name] = block.operator.release(self._reader(lent), self._entropy)
        except KeyboardInterrupt:
            return None, "interrupted"
        except Exception:
            return None, "failed"
        return releases, "released"

    def _reader(self, lent: Mapping[str, pa.Table]) -> Read:
        stream = getattr(self._engine, "batches", None)
        apart = getattr(self._engine, "apart", None)
        return Reader(self._engine.execute, lent, getattr(self._engine, "room", 0), stream, apart)

    def _fail(self, ticket: Any, plan: Plan, outcome: str, event: Event | None = None) -> NoReturn:
        event = event or plan.event
        if ticket is not None and event is not None:
            self._ledger.settle(ticket, event, None, outcome)
        if outcome == "interrupted":
            loss = f" {event.sentence()} stays charged." if event is not None else ""
            raise Interrupted(f"the statement was stopped.{loss}")
        raise EngineError(_WITHHELD, hint=_LIMITS)

    def _finish(
        self,
        plan: Plan,
        released: tuple[Mapping[str, pa.Table], tuple[str, ...]],
        used: Event | None = None,
        ticket: Any = None,
        stored: Any = None,
    ) -> Result:
        """The outer SQL, over what was released: post-processing, free."""
        relations, notes = released
        table = plan.direct(relations)
        if table is None:
            table = self._finisher.finish(plan.finish, plan.adjusted(relations), plan.public)
        event = used if used is not None else stored.event if stored is not None else None
        return Result.finished(
            table,
            plan.columns,
            plan.intervals,
            loss=self._charge(event),
            event=event,
            notes=(*plan.notes, *notes),
            statement_id=ticket.statement_id
            if ticket is not None
            else stored.statement_id
            if stored
            else None,
            cost_line=self._cost_line(event, stored),
            confidence=plan.confidence,
        )

    def _cost_line(self, event: Event | None, stored: Any) -> str:
        if event is None:
            return "no charge"
        left = self._ledger.state().sentence
        if stored is not None:
            return f"from {stored.when_text}, no charge · {left}"
        return f"cost {self._charge(event)} · {left}"

    def _charge(self, event: Event | None) -> str:
        """What the session's accountant charges, in words."""
        return charged(event, self.policy.budget.accountant).sentence() if event is not None else ""

    # -- everything else ----------------------------------------------------------------------------------------

    def _other(self, statement: Statement, declaration: Declaration | None) -> Result:
        if statement.kind == "show":
            return show(self.policy, self._ledger, statement.name)
        if statement.kind == "explain":
            return self._explain(statement).result()
        if declaration is not None:
            return self._declare(statement, declaration)
        try:
            alarm = self._alarms.close(statement.name)
        except Error as error:
            error.span = statement.span
            raise error.located(statement.text) from None
        hits = alarm.stream.hits
        status = f"closed after {hits} {'hit' if hits == 1 else 'hits'}"
        return self._said(alarm.declaration.name, status, alarm.stream.event, alarm.ticket)

    def _declare(self, statement: Statement, declaration: Declaration) -> Result:
        try:
            ticket = self._alarms.open(declaration, statement.source)
        except Error as error:
            error.span = error.span or statement.span
            raise error.located(statement.text) from None
        return self._said(declaration.name, "open", declaration.event, ticket)

    def _said(self, name: str, status: str, event: Event, ticket: Any) -> Result:
        return Result(
            pa.table({"threshold": [name], "status": [status]}),
            loss=self._charge(event),
            event=event,
            statement_id=ticket.statement_id,
            cost_line=self._cost_line(event, None),
        )

    def explain(self, text: str, params: Mapping[str, Any] | None = None) -> Explanation:
        """What a statement would do and cost. Spends nothing and reads no private data."""
        statements = [s for s in parse(text, params) if s.kind in ("query", "explain", "declare")]
        if not statements:
            raise PrivacyError("there is no query to explain.")
        return self._explain(statements[-1])

    def _explain(self, statement: Statement) -> Explanation:
        if statement.name:
            return explain_declaration(bind_declare(statement, self._catalog), self._ledger, statement.json)
        plan = bind(statement, self._catalog, self._finisher, self._alarms.declared)
        return explain_plan(plan, self._ledger, self.policy.budget, as_json=statement.json)

    def budget(self) -> Any:
        """What is left, what was spent, and on what: :meth:`dpsql.ledger.ledger.Ledger.state`."""
        return self._ledger.state()

    def ledger(self) -> list[Any]:
        """Every charge and refusal, in order."""
        return self._ledger.entries()

    @property
    def account(self) -> Ledger:
        """The ledger itself, for displays and reports. It is read there, never written."""
        return self._ledger

    def columns(self, table: str) -> Mapping[str, str]:
        """Names and SQL types of a table's columns, in order. No row is read.

        Raises:
            BindError: the policy names no such table.
        """
        return self._catalog.schema(self._catalog.find(table, None))

    def plot(self, what: str = "budget") -> Any:
        """A picture, as a matplotlib Axes: what is left after each charge (``"budget"``), or what the budget promises
        and what was spent, as trade-off curves (``"tradeoff"``).

        Raises:
            MissingLibrary: matplotlib is not installed.
        """
        return upstairs("plots").of_account(self._ledger, what)

    def tables(self) -> Result:
        """The tables that the policy names."""
        return show(self.policy, self._ledger, "TABLES")

    def register(self, name: str, function: Callable[..., object]) -> None:
        """Makes a Python function known to ``SELECT WITH SUBSAMPLE``: it is run on each block's rows."""
        if not name.isidentifier():
            raise PolicyError(f"{name!r} can't be the name of a function.")
        self._functions[name.lower()] = function

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self._engine.interrupt()
            raise

    def close(self) -> None:
        """Closes the engine and the ledger. The charges stay."""
        with contextlib.suppress(Error):
            self._alarms.close_all()
            self._finisher.close()
            self._engine.close()
            self._ledger.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
