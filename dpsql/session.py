"""A session: the straight line from a statement's text to a private answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from dpsql.batch import DeclaredStatements
from dpsql.block_keys import BlockKeys
from dpsql.engine import open_engine
from dpsql.engine.postprocess import Finisher
from dpsql.engine.sandbox import parse_to_json
from dpsql.errors import BindError, BudgetExceeded, EngineError, Error, Interrupted, PrivacyError
from dpsql.explain import Explanation, explain_all, explain_declaration, explain_plan, show
from dpsql.kept import KeptResults
from dpsql.ledger.ledger import Ledger
from dpsql.mechanisms.base import Read, Reader, filled
from dpsql.mechanisms.subsample.blocks import Registered
from dpsql.noise.entropy import Entropy
from dpsql.pipeline import FREE, Prepared, Preparer, cost_line
from dpsql.plan import Block, Plan
from dpsql.policy.model import Policy
from dpsql.privacy.events import Event
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.result import Result, upstairs
from dpsql.sql.bind import bind
from dpsql.sql.exact.gate import Gate
from dpsql.sql.parse.options import parse_epsilon
from dpsql.sql.parse.statements import Statement, parse
from dpsql.sql.plan_cache import Plans
from dpsql.sql.relations.catalog import Catalog
from dpsql.sql.selection.thresholds import Declaration, bind_declare
from dpsql.sql.subsample.combiners import registered
from dpsql.thresholds import Alarms

if TYPE_CHECKING:
    from dpsql.engine.base import Engine

_STAND_INS = {"salt": 0, "first": 0, "last": 1}
"""Values of parameters, where a text is only bound."""
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
            fit the memory is spilled, private rows and all, to a directory below it (by default below the user's state
            directory) that nobody else may enter and that is removed with the session; without ``threads``, there is
            one for each 256 MiB at most. ``"time_limit": 60`` stops an exact query
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
        self._engine = engine
        self._ledger = ledger
        self._entropy = Entropy()
        self._functions: dict[str, Registered] = {}
        self._finisher = Finisher(engine, policy)
        self._kept = KeptResults(policy, self._finisher)
        self._catalog = self._catalog_of(policy)
        self._gate = Gate(self._catalog, parse_to_json)
        self._plans = Plans(self._catalog, self._finisher)
        self._preparer = Preparer(
            BlockKeys(policy, engine, self._gate, self._catalog.schema), ledger, self._lend,
            lambda plan, block: _names(self._lent(plan, block)), engine.version,
        )  # fmt: skip
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
            plans = self._bind_all(statements, declared)
        results: list[Result] = []
        kept = False
        try:
            for statement, plan in zip(statements, plans, strict=True):
                if kept:  # what was foretold is known by now
                    with self._defaulting(epsilon):
                        plan = self._bind(statement, declared)
                results.append(self._answer(statement, plan, fresh))
                if statement.keep:
                    self._kept.keep(statement.keep, results[-1])
                    kept = True
        except Error as error:
            error.answered = tuple(results)
            raise
        return results

    def _bind_all(
        self, statements: list[Statement], declared: dict[str, Declaration]
    ) -> list[Plan | Declaration | None]:
        """Binds the statements of a cell, those after ``out << SELECT ...`` to what it will give."""
        plans = []
        with self._kept.foretelling():
            for statement in statements:
                if statement.keep:
                    self._kept.check_statement(statement)
                plans.append(self._bind(statement, declared))
                if statement.keep and isinstance(plans[-1], Plan):
                    self._kept.foretell(statement.keep, plans[-1])
        return plans

    @contextlib.contextmanager
    def _defaulting(self, epsilon: str | Fraction | None) -> Iterator[None]:
        """Binds under another default epsilon; the owner's limits hold as they are."""
        if epsilon is None:
            yield
            return
        value = epsilon if isinstance(epsilon, Fraction) else parse_epsilon(epsilon)
        kept = self._catalog
        budget = replace(self.policy.budget, default_epsilon=value)
        policy = replace(self.policy, budget=budget)
        self._catalog = self._catalog_of(policy)
        try:
            yield
        finally:
            self._catalog = kept

    def _catalog_of(self, policy: Policy) -> Catalog:
        left = lambda: self._ledger.state().left_delta  # noqa: E731 - a hint asks only when it is given
        return Catalog(
            policy, self._engine, policy.budget.accountant, self._functions, left, self._kept.by_name
        )

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
        prepared = self._prepare([plan], fresh)
        ticket = self._reserve(statement.source, prepared[0].event, statement)
        self._release(prepared, ticket, prepared[0].event)
        if ticket is not None:
            used = prepared[0].used
            assert used is not None
            self._ledger.settle(ticket, used, None, "released", self._preparer.kept(prepared))
        return self._finish(prepared[0], ticket)

    def _prepare(self, plans: Sequence[Plan], fresh: bool = False) -> list[Prepared]:
        """Looks up which blocks of statements are stored, and so are free."""
        return self._preparer.prepare(plans, fresh)

    def _bind(self, statement: Statement, declared: dict[str, Declaration]) -> Plan | Declaration | None:
        """The plan of a query, or what it declares; None for the other statements. Refusals are logged, at no cost."""
        if statement.kind == "declare":
            declaration = bind_declare(statement, self._catalog)
            declared[declaration.name.lower()] = declaration
            return declaration
        if statement.kind == "explain":
            self._explain(
                statement, dict(declared)
            )  # what it would refuse is refused before anything is paid
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
        released = {b.name for b in plan.blocks}
        for block in plan.blocks:
            lent = self._lent(plan, block)
            apart = getattr(block.operator, "apart", ())
            for item in block.inputs if not self._engine.lossless else ():
                if not any(name in item.sql for name in released):
                    self._engine.check_lent(self._finisher.finish(item.sql, {}, plan.public))
            self._gate.prove(block.operator, _names({i.name: lent[i.name] for i in block.inputs}))
            for query in getattr(block.operator, "checked", block.operator.queries):
                text = query if query in apart else self._gate.exact(query, _names(lent))
                self._engine.check(filled(text, _STAND_INS), lent, query in apart)

    def _lent(self, plan: Plan, block: Block) -> dict[str, Sequence[tuple[str, str]]]:
        """Names and columns of the public relations that a block's exact queries read."""
        schemas = {b.name: b.columns for b in plan.blocks}
        lent = {i.name: self._finisher.describe(i.sql, schemas, plan.public) for i in block.inputs}
        return {**lent, **getattr(block.operator, "lends", {})}

    def _reserve(self, text: str, event: Event | None, statement: Statement | None = None) -> Any:
        if event is None:
            return None
        try:
            return self._ledger.reserve(event, text)
        except BudgetExceeded as error:
            self._ledger.refuse(text, error.message, event)
            raise error.located(statement.text) if statement is not None else error from None

    def _release(self, prepared: Sequence[Prepared], ticket: Any, event: Event | None) -> None:
        """Runs the blocks that are not stored.

        Raises:
            EngineError, Interrupted: in words of ours. No traceback of what went wrong, whose frames hold exact values,
                is ever seen.
        """
        outcome = self._preparer.draw_all(
            prepared,
            lambda block, lent: block.operator.release(self._reader(lent, block.operator), self._entropy),
        )
        if outcome != "released":
            self._fail(ticket, outcome, event)

    def _lend(self, sql: str, relations: Mapping[str, pa.Table], public: tuple[str, ...]) -> pa.Table:
        lend = self._finisher.lend if self._engine.lossless else self._finisher.finish
        return lend(sql, relations, public)

    def _reader(self, lent: Mapping[str, pa.Table], operator: object = None) -> Read:
        engine = self._engine
        exact = self._gate.reading(operator)
        return Reader(engine.execute, lent, engine.room, engine.batches, engine.apart, exact)

    def _fail(self, ticket: Any, outcome: str, event: Event | None) -> NoReturn:
        if ticket is not None and event is not None:
            self._ledger.settle(ticket, event, None, outcome)
        if outcome == "interrupted":
            loss = f" {self._charge(event)} stays charged." if event is not None else ""
            raise Interrupted(f"the statement was stopped.{loss}")
        raise EngineError(_WITHHELD, hint=_LIMITS)

    def _finish(self, prepared: Prepared, ticket: Any = None, notes: tuple[str, ...] = ()) -> Result:
        """The outer SQL, over what was released: post-processing, free."""
        plan, relations = prepared.plan, prepared.relations
        table = plan.direct(relations)
        if table is None:
            table = self._finisher.finish(plan.finish, plan.adjusted(relations), plan.public)
        event = prepared.used
        statements = [ticket.statement_id] if event is not None else [s.statement_id for s in prepared.stored]
        return Result.finished(
            table,
            plan.columns,
            plan.intervals,
            loss=FREE if event is None and prepared.stored else self._charge(event),
            event=event,
            notes=(*plan.notes, *prepared.notes, *notes),
            statement_id=max(statements, default=None),
            cost_line=self._cost_line(event, prepared.since),
            confidence=plan.confidence,
        )

    def _cost_line(self, event: Event | None, since: str = "") -> str:
        if event is None and not since:
            return FREE
        return cost_line(self._charge(event), since, self._ledger.state().sentence)

    def _charge(self, event: Event | None) -> str:
        """What the session's accountant charges, in words."""
        return (
            ACCOUNTANTS[self.policy.budget.accountant].charge(event).sentence() if event is not None else ""
        )

    # -- everything else ----------------------------------------------------------------------------------------

    def _other(self, statement: Statement, declaration: Declaration | None) -> Result:
        if statement.kind == "show":
            return show(self.policy, self._ledger, statement.name, self._kept.names)
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
            cost_line=self._cost_line(event),
        )

    def explain(self, text: str, params: Mapping[str, Any] | None = None) -> Explanation:
        """What statements would do and cost, each and all together. Spends nothing and reads no private data."""
        statements = [s for s in parse(text, params) if s.kind in ("query", "explain", "declare")]
        if not statements:
            raise PrivacyError("there is no query to explain.")
        declared = dict(self._alarms.declared)
        paid: dict[str, Any] = {}
        return explain_all([self._explain(s, declared, paid) for s in statements], self._ledger)

    def _explain(
        self, statement: Statement, declared: dict[str, Declaration] | None = None,
        paid: dict[str, Any] | None = None,
    ) -> Explanation:  # fmt: skip
        """The explanation of one statement; what it declares, and which blocks it pays, is known to those after it."""
        declared = dict(self._alarms.declared) if declared is None else declared
        if statement.name:
            declaration = bind_declare(statement, self._catalog)
            declared[declaration.name.lower()] = declaration
            return explain_declaration(declaration, self._ledger, statement.json)
        plan = bind(statement, self._catalog, self._finisher, declared)

        def written(block: Block, query: str) -> str:
            apart = query in getattr(block.operator, "apart", ())
            return query if apart else self._gate.shown(query, _names(self._lent(plan, block)))

        (prepared,) = self._preparer.prepare([plan], paid=paid)
        return explain_plan(prepared, self._ledger, self.policy.budget, written, as_json=statement.json)

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
        kept = self._kept.schema(table)
        return kept if kept is not None else self._catalog.schema(self._catalog.find(table, None))

    def plot(self, what: str = "budget") -> Any:
        """A picture, as a matplotlib Axes: what is left after each charge (``"budget"``), or what the budget promises
        and what was spent, as trade-off curves (``"tradeoff"``).

        Raises:
            MissingLibrary: matplotlib is not installed.
        """
        return upstairs("plots").of_account(self._ledger, what)

    def tables(self) -> Result:
        """The tables that the policy names, and the results that are kept."""
        return show(self.policy, self._ledger, "TABLES", self._kept.names)

    def keep(self, name: str, result: Any) -> None:
        """Keep a result as a public relation of later statements, as ``name << SELECT ...`` does; another is replaced.

        Args:
            name: a word; not the name of a private table. result: a :class:`Result`, or a pandas, polars or Arrow table.

        Raises:
            BindError: a name that can't be taken, or no table.
        """
        self._kept.keep(name, result)

    def check_name(self, name: str) -> None:
        """Refuse a name that no result can be kept by, with a BindError: no word, or the name of a private table."""
        self._kept.check(name)

    def register(
        self, name: str, function: Callable[..., object], *, returns: Any = None, length: int | None = None
    ) -> None:
        """Makes a Python function known to ``SELECT WITH SUBSAMPLE``: it is run on each block's rows.

        Args:
            name: what SQL calls it. function: takes the columns as numpy arrays.
            returns: what it returns: a SQL type (``"DOUBLE"``, ``"VARCHAR[]"``) or a Python type (``float``,
                ``list[str]``). Where it is declared, a combiner that it does not fit is refused before anything is paid.
            length: the result is a list of so many values of that type. Numbers are then combined coordinate by
                coordinate.

        Raises:
            PolicyError, BindError: a name, a type or a length that a function can't have.
        """
        self._functions[name.lower()] = registered(name, function, returns, length)

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


def _names(lent: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, list[str]]:
    return {name: [column for column, _ in columns] for name, columns in lent.items()}
