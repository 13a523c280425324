"""Sessions: from a statement's text to a private answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from dpsql.engine.base import Engine
from dpsql.errors import Error, PrivacyError
from dpsql.interrupts import pausing_collection, run_apart
from dpsql.language.parameter_values import Params
from dpsql.language.statements import PRICED, parse, parse_synthetic
from dpsql.ledger.ledger import BudgetState, Entry, Ledger
from dpsql.policy.model import Policy
from dpsql.session.interface import AnalystSession, Question, SessionPlan
from dpsql.session.pipeline import Pipeline, before_payment
from dpsql.session.result import Result

if TYPE_CHECKING:
    from dpsql.report.tables import BudgetPanel
    from dpsql.session.explanation import Description, Explanation, Why


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
            with line.noting(text), before_payment(), pausing_collection():
                if question.synthetic:
                    statements = parse_synthetic(text, params, question.rows)
                else:
                    statements = parse(text, params)
                cell = line.compiler.open_cell(question.epsilon)
                admitted = []
                for statement in statements:
                    line.note(statement.source)
                    admitted.append(line.admit(statement, cell))
            alone = len(statements) == 1 and not statements[0].keep
            try:
                for statement, bound in zip(statements, admitted, strict=True):
                    if any(earlier.keep or earlier.release for earlier in statements[: len(results)]):
                        with before_payment():  # the predicted results are replaced by the real ones
                            bound = line.admit(statement, line.compiler.reopen(cell))
                    with line.drawing_release(statement, bound), line.noting(statement.source, bound):
                        if statement.kind == "set":
                            results.append(self._set_intervals(statement.name))
                        elif statement.kind in ("explain", "show"):
                            from dpsql.session.description import describe_statement

                            results.append(describe_statement(line, self.policy, statement, bound))
                        else:
                            results.append(line.answer(statement, bound, fresh, alone))
                    results[-1] = line.deliver(statement, bound, results[-1], self.interval_columns)
            except Error as error:
                error.answered = tuple(results)
                raise
            if before is not None and all(statement.kind in ("show", "set") for statement in statements):
                line.last = before  # reading the ledger is no statement of the analyst's
        return results

    def _set_intervals(self, value: str) -> Result:
        from dpsql.session.show import show_setting

        self.interval_columns = value == "columns"
        return show_setting(value)

    def plan(self) -> SessionPlan:
        from dpsql.session.declared_statements import DeclaredStatements

        return DeclaredStatements(self, self._pipeline)

    def _explain(self, question: Question) -> Explanation:
        from dpsql.session.description import explain_cell

        line = self._pipeline
        with line.asking(), before_payment():
            statements = [s for s in parse(question.text, question.params) if s.kind in PRICED]
            if not statements:
                raise PrivacyError("there is no query to explain.")
            return explain_cell(line, statements, question.epsilon)

    def describe(self, text: str, params: Params | None = None) -> Description:
        from dpsql.session.description import describe_cell

        line = self._pipeline
        with line.asking(), before_payment():
            return describe_cell(line, self.policy, text, params, self.interval_columns)

    def why(self) -> Why:
        from dpsql.session.description import explain_last

        with self._pipeline.turn:
            return explain_last(self._pipeline, self.policy)

    # -- everything else ----------------------------------------------------------------------------------------

    def budget(self) -> BudgetState:
        return self._ledger.state()

    def budget_panel(self) -> BudgetPanel:
        from dpsql.report.tables import BudgetPanel

        return BudgetPanel.of(self._ledger)

    def ledger(self, last: int | None = None) -> list[Entry]:
        return self._ledger.entries(last)

    @property
    def account(self) -> Ledger:
        return self._ledger

    def columns(self, table: str) -> Mapping[str, str]:
        line = self._pipeline
        with line.asking():
            return line.compiler.find_columns(table)

    def table_schemas(self) -> Mapping[str, pa.Schema]:
        from dpsql.session.description import describe_tables

        line = self._pipeline
        with line.asking():
            return describe_tables(line)

    def _find_pictures(self, what: str) -> dict[str, object]:
        from dpsql.report.data import list_pictures

        return list_pictures(self._ledger, what)

    def tables(self) -> Result:
        from dpsql.session.show import show

        # It takes no turn: another thread's statement may be running.
        return show(self._pipeline, self.policy, "TABLES")

    def keep(self, name: str, result: object) -> None:
        self._schema = None
        self._pipeline.compiler.kept.keep(name, result)

    @property
    def kept(self) -> Mapping[str, str]:
        """Digests of the kept results' contents, by folded name."""
        return {name: item.table for name, item in self._pipeline.compiler.kept.by_name.items()}

    @property
    def relations(self) -> list[str]:
        """The names of kept results and of releases."""
        return [*self.kept, *self._pipeline.compiler.releases.names]

    @property
    def open_thresholds(self) -> list[str]:
        return self._pipeline.thresholds.names

    def forget(self, name: str) -> None:
        """Remove a kept result, if there is one of that name."""
        self._schema = None
        self._pipeline.compiler.kept.forget(name)

    def check_name(self, name: str) -> None:
        self._pipeline.compiler.kept.check(name)

    def register(
        self, name: str, function: Callable[..., object], *, returns: object = None, length: int | None = None
    ) -> None:
        self._pipeline.compiler.register(name, function, returns, length)

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
