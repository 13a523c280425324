"""Sessions: from a statement's text to a private answer; and plans: statements that are priced together, then run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fractions import Fraction

import pyarrow as pa

from dpsql.binding.plan import Plan
from dpsql.engine.base import Engine
from dpsql.errors import BindError, Error, PostprocessingError, PrivacyError
from dpsql.interrupts import pausing_collection, run_apart
from dpsql.language.dialect import span_of_word
from dpsql.language.parameter_values import Params
from dpsql.language.statements import PRICED, Statement, parse, parse_synthetic
from dpsql.ledger.ledger import BudgetState, Entry, Ledger
from dpsql.policy.model import Policy
from dpsql.privacy.events import Event, compose_events
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.privacy.periods import date_event, split_by_periods
from dpsql.report.tables import BudgetPanel
from dpsql.session.explain import AskedStatement, explain_all, explain_why, noting
from dpsql.session.explanation import Description, Explanation, Why
from dpsql.session.interface import AnalystSession, Question, SessionPlan
from dpsql.session.pipeline import Bound, Pipeline, before_payment
from dpsql.session.result import DeclaredResult, Result
from dpsql.session.session_state import OpenCell
from dpsql.session.stored_blocks import PreparedPlan, RequestedBlock, prepare_together


class Session(AnalystSession):
    """An analyst's session. Use it as a context manager, or close it.

    Threads may share a session: their statements take turns, except that cells of a single query read data
    concurrently. In the analyst's own process a session is not a sandbox: it protects the released values and keeps account.
    ``shown`` is the part of the policy that the analyst may see, if it is not the whole.
    """

    def __init__(self, policy: Policy, engine: Engine, ledger: Ledger, shown: Policy | None = None) -> None:
        self._process = os.getpid()
        self._policy = shown or policy
        self.analyst = ledger.analyst
        self._ledger = ledger
        self._pipeline = Pipeline(policy, engine, ledger)
        self.interval_columns = False
        """Whether the ends of intervals are columns of the answers, as ``SET intervals = 'columns'`` asks."""

    @property
    def policy(self) -> Policy:
        return self._policy

    # -- the straight line --------------------------------------------------------------------------------------

    def answer(self, question: Question, fresh: bool = False) -> list[Result]:
        line, text, params = self._pipeline, question.text, question.params
        results: list[Result] = []
        self._schema = None
        with line.asking():
            before = line.last
            with noting(line, text), before_payment(), pausing_collection():
                if question.synthetic:
                    statements = parse_synthetic(text, params, question.rows)
                else:
                    statements = parse(text, params)
                cell = line.open_cell(question.epsilon)
                admitted = [self._admit(statement, cell) for statement in statements]
            alone = len(statements) == 1 and not statements[0].keep
            try:
                for statement, bound in zip(statements, admitted, strict=True):
                    if any(before.keep or before.release for before in statements[: len(results)]):
                        with before_payment():  # the predicted results are replaced by the real ones
                            bound = line.admit(statement, line.reopen(cell))
                    with line.drawing_release(statement, bound), noting(line, statement.source, bound):
                        results.append(self._answer_one(statement, bound, fresh, alone))
                    if isinstance(bound, Plan) and bound.draft is not None and statement.kind == "query":
                        line.releases.publish(statement, bound, results[-1])
                    if statement.keep:
                        line.kept.keep(statement.keep, results[-1])
                    if self.interval_columns and statement.kind == "query" and isinstance(bound, Plan):
                        results[-1] = results[-1].with_interval_columns(bound.interval_columns)
            except Error as error:
                error.answered = tuple(results)
                raise
            if before is not None and all(statement.kind in ("show", "set") for statement in statements):
                line.last = before  # reading the ledger is no statement of the analyst's
        return results

    def _admit(self, statement: Statement, cell: OpenCell) -> Bound:
        self._pipeline.last = AskedStatement(statement.source)
        return self._pipeline.admit(statement, cell)

    def _answer_one(self, statement: Statement, bound: Bound, fresh: bool, alone: bool) -> Result:
        line = self._pipeline
        if statement.kind in ("set", "show"):
            return self._show(statement)
        if statement.kind == "explain":
            line.last = AskedStatement(statement.source, done="free")
            return line.explain(statement, bound).result()
        with _locate(statement):
            if bound is not None and not isinstance(bound, Plan):
                line.last = AskedStatement(statement.source, bound, reserved=bound.event, done="declared")
                return line.declare(bound, statement.record)
            if bound is None and statement.release:
                line.last = AskedStatement(statement.source, done="free")
                return line.releases.settle(statement)
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
            line.last = asked.finish(prepared, result)
            return result
        except PostprocessingError as error:
            error.span = span_of_word(statement.text, error.name) if error.name else statement.span
            raise error.located(statement.text) from None

    def _show(self, statement: Statement) -> Result:
        from dpsql.session import description

        if statement.kind == "set":
            self.interval_columns = statement.name == "columns"
            return description.show_setting(statement.name)
        self._pipeline.last = AskedStatement(statement.source, done="free")
        with _locate(statement):
            return description.show(self._pipeline, self.policy, statement.name, statement.limit)

    def plan(self) -> DeclaredStatements:
        return DeclaredStatements(self, self._pipeline)

    def _explain(self, question: Question) -> Explanation:
        line = self._pipeline
        paid: dict[str, RequestedBlock] = {}
        with line.asking(), before_payment():
            statements = [s for s in parse(question.text, question.params) if s.kind in PRICED]
            if not statements:
                raise PrivacyError("there is no query to explain.")
            cell = line.open_cell(question.epsilon)
            parts = [line.explain(s, line.bind(s, cell), paid) for s in statements]
        return explain_all(parts, self._ledger)

    def describe(self, text: str, params: Params | None = None) -> Description:
        from dpsql.session import description

        line = self._pipeline
        with line.asking(), before_payment():
            return description.describe_cell(line, self.policy, text, params, self.interval_columns)

    def why(self) -> Why:
        line = self._pipeline
        with line.turn:
            return explain_why(line.last, self._ledger, self.policy)

    # -- everything else ----------------------------------------------------------------------------------------

    def budget(self) -> BudgetState:
        return self._ledger.state()

    def budget_panel(self) -> BudgetPanel:
        return BudgetPanel.of(self._ledger)

    def ledger(self, last: int | None = None) -> list[Entry]:
        return self._ledger.entries(last)

    @property
    def account(self) -> Ledger:
        return self._ledger

    def columns(self, table: str) -> Mapping[str, str]:
        line = self._pipeline
        with line.asking():
            return line.find_columns(table)

    def table_schemas(self) -> Mapping[str, pa.Schema]:
        from dpsql.session import description

        line = self._pipeline
        with line.asking():
            return description.describe_tables(line)

    def _find_pictures(self, what: str) -> dict[str, object]:
        from dpsql.report.data import list_pictures

        return list_pictures(self._ledger, what)

    def tables(self) -> Result:
        from dpsql.session import description

        # It takes no turn: another thread's statement may be running.
        return description.show(self._pipeline, self.policy, "TABLES")

    def keep(self, name: str, result: object) -> None:
        self._schema = None
        self._pipeline.kept.keep(name, result)

    @property
    def kept(self) -> Mapping[str, str]:
        """Digests of the kept results' contents, by folded name."""
        return {name: item.table for name, item in self._pipeline.kept.by_name.items()}

    @property
    def relations(self) -> list[str]:
        """The names of kept results and of releases."""
        return [*self.kept, *self._pipeline.releases.names]

    @property
    def open_thresholds(self) -> list[str]:
        return self._pipeline.thresholds.names

    def forget(self, name: str) -> None:
        """Remove a kept result, if there is one of that name."""
        self._schema = None
        self._pipeline.kept.forget(name)

    def check_name(self, name: str) -> None:
        self._pipeline.kept.check(name)

    def register(
        self, name: str, function: Callable[..., object], *, returns: object = None, length: int | None = None
    ) -> None:
        from dpsql.binding.modes.block_sources import registered

        self._pipeline.functions[name.lower()] = registered(name, function, returns, length)

    def __repr__(self) -> str:
        if self.closed:
            return "<dpsql session, closed>"
        tables = ", ".join(f"{t.name} (public)" if t.public else t.name for t in self.policy.tables.values())
        kept = "" if self._ledger.lasting else " · this budget lasts for this process only"
        return f"<dpsql session: {tables or 'no tables'} · {self.budget().sentence}{kept}>"

    def close(self) -> None:
        """Wait for running statements, then close the engine and the ledger; a fork leaves both to its parent. Never raises."""
        self.closed = True
        if not self.is_forked:
            with suppress(Exception, KeyboardInterrupt):
                run_apart(self._pipeline.close)


@contextmanager
def _locate(statement: Statement) -> Iterator[None]:
    """Add the statement's span to errors that have none."""
    try:
        yield
    except Error as error:
        error.span = error.span or statement.span
        raise error.located(statement.text) from None


# -- statements declared together ------------------------------------------------------------------------------------


class DeclaredStatements(SessionPlan):
    """Statements of a local session that are priced together before the first is run."""

    def __init__(self, session: Session, pipeline: Pipeline) -> None:
        super().__init__(session)
        self._pipeline = pipeline
        self._plans: list[Plan] = []
        self._versions: Mapping[str, str] = {}

    def _declare(self, question: Question) -> None:
        line = self._pipeline
        with line.asking(not self._plans), noting(line, question.text), before_payment():
            self._check_versions()
            statements = parse(question.text, question.params)
            if not statements:
                raise BindError("there is no statement to declare.")
            cell = line.open_cell(question.epsilon)
            for statement in statements:
                self._add(statement, cell)

    def _add(self, statement: Statement, cell: OpenCell) -> None:
        if statement.keep or statement.release:
            raise BindError(
                "a declared statement has no answer to keep yet.",
                span=statement.span,
                text=statement.text,
                hint="leave the with block, then session.keep(name, result).",
            )
        plan = self._pipeline.admit(statement, cell)
        if statement.kind != "query" or not isinstance(plan, Plan) or any(b.prepaid for b in plan.blocks):
            raise BindError(
                "only queries can be declared in a plan.", span=statement.span, text=statement.text
            )
        self._declared.append(DeclaredResult(statement.record))
        self._plans.append(plan)

    @property
    def event(self) -> Event | None:
        with self._pipeline.turn:
            self._check_versions()
            return self._price(prepare_together(self._plans, self._pipeline.look_up))

    def _price(self, prepared: list[PreparedPlan]) -> Event | None:
        events = [one.event for one in prepared if one.event is not None]
        if not events:
            return None
        whole = compose_events(events)
        budget = self._pipeline.policy.budget
        delta = Fraction(budget.default_delta or budget.delta / 10)
        if ACCOUNTANTS[budget.accountant].has_rule or len(events) == 1:
            return whole
        from dpsql.privacy.pld import declare_if_cheaper

        parts = split_by_periods(events)
        priced = (date_event(declare_if_cheaper(some, delta), periods) for periods, some in parts.items())
        return compose_events(priced)

    def _check_versions(self) -> None:
        """Refuse plans that were bound before files changed."""
        now = self._pipeline.versions
        if self._plans and self._versions is not now:
            raise BindError(
                "the data have changed since the statements were declared.", hint="declare them again."
            )
        self._versions = now

    def _answer(self) -> None:
        line = self._pipeline
        with line.asking(False), noting(line, "; ".join(declared.source for declared in self._declared)):
            self._check_versions()
            prepared = prepare_together(self._plans, line.look_up_to_pay)
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
                line.last = AskedStatement(declared.source).look_up(one).finish(one, declared._result)
