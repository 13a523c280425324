"""Compiles statements: binds them in their cell against the data's present schemas, and checks their plans.

Nothing is spent and no private row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from dpsql.binding.bind import Plans
from dpsql.binding.plan import Plan
from dpsql.binding.relations.catalog import Catalog
from dpsql.engine.base import IN_NO_FILE, Engine
from dpsql.engine.postprocess import Finisher
from dpsql.errors import Error
from dpsql.language.options import parse_epsilon
from dpsql.language.statements import Statement
from dpsql.ledger.ledger import Ledger
from dpsql.policy.model import Policy, fold
from dpsql.session.gated_queries import GatedQueries
from dpsql.session.releases import Releases, default_cost
from dpsql.session.session_state import KeptResults, OpenCell, OpenThresholds

if TYPE_CHECKING:
    from dpsql.binding.modes.declared import Declaration
    from dpsql.mechanisms.subsample.blocks import RegisteredFunction

Bound: TypeAlias = "Plan | Declaration | None"
"""The bound form of a statement; None for SHOW and CLOSE."""


class Compiler:
    """The names that statements can use, and the plans made with them; ``thresholds``: the open ones."""

    def __init__(self, policy: Policy, engine: Engine, ledger: Ledger, thresholds: OpenThresholds) -> None:
        self.policy, self.engine, self._ledger, self._thresholds = policy, engine, ledger, thresholds
        self.functions: dict[str, RegisteredFunction] = {}
        self.finisher = Finisher(engine, policy)
        self.kept = KeptResults(policy, self.finisher)
        self.releases = Releases(policy, ledger, self.finisher, self.kept)
        self._describe_data()

    def _describe_data(self) -> None:
        """Build everything that depends on the schemas and on the public rows."""
        policy, engine, ledger = self.policy, self.engine, self._ledger
        self.catalog = Catalog(
            policy, engine, policy.budget.accountant, self.functions, lambda: ledger.state().left_delta
        )
        self.queries = GatedQueries.of(self.catalog, engine, self.finisher)
        self._plans = Plans(self.finisher, self.queries.check)
        self._found = self._find_tables()

    def _find_tables(self) -> object:
        """Return the places of all tables and their ordered labels, and the versions of the public ones."""
        engine, tables = self.engine, self.policy.tables.values()
        found = [(engine.place(table), engine.path(table), dict(engine.orders(table))) for table in tables]
        return engine.home, found, [engine.versions[table.name] for table in tables if table.public]

    def renew(self) -> bool:
        """Describe changed data anew, and return True. Plans and their proofs stay if only rows of private tables changed."""
        found = self._find_tables()
        public = [table.name for table in self.policy.tables.values() if table.public]
        fixed = not any(self.engine.versions[name].startswith(IN_NO_FILE) for name in public)
        if fixed and found == self._found and self.catalog.is_current():
            return False
        self.finisher.forget_tables()
        self._describe_data()
        return True

    def register(
        self, name: str, function: Callable[..., object], returns: object, length: int | None
    ) -> None:
        """Add a function that SUBSAMPLE can run; errors as for :func:`dpsql.binding.modes.block_sources.registered`."""
        from dpsql.binding.modes.block_sources import registered

        self.functions[name.lower()] = registered(name, function, returns, length)

    def open_cell(self, epsilon: str | Fraction | None = None) -> OpenCell:
        """Return the initial names of a cell. ``epsilon`` is the default cost of its statements (the policy's if None)."""
        default = parse_epsilon(epsilon) if isinstance(epsilon, str) else epsilon
        catalog = replace(self.catalog, kept=dict(self.kept.by_name), epsilon=default)
        return OpenCell(catalog, dict(self._thresholds.declared))

    def reopen(self, cell: OpenCell) -> OpenCell:
        """Replace the cell's predicted results with the ones its statements stored."""
        return OpenCell(replace(cell.catalog, kept=dict(self.kept.by_name)), cell.thresholds)

    def bind(self, statement: Statement, cell: OpenCell) -> Bound:
        """Bind a statement and check its plan, so that a price is named only for statements that would run.

        Statements after it can use the results it keeps and the thresholds it declares.

        Raises:
            BindError, PrivacyError, BudgetExceeded: the statement can't be answered.
        """
        bound = self._bind(statement, cell)
        cell.count(bound.size if isinstance(bound, Plan) else 0, statement.span)
        return bound

    def _bind(self, statement: Statement, cell: OpenCell) -> Bound:
        if statement.keep:
            self.kept.check_statement(statement)
        if statement.release:
            return self._bind_release(statement, cell)
        if statement.kind in ("show", "set", "close"):
            return None
        if statement.kind == "declare" or statement.name:
            from dpsql.binding.modes.declared import bind_declare

            declaration = bind_declare(statement, cell.catalog, self._plans.fold_scalars)
            cell.thresholds[declaration.name.lower()] = declaration
            return declaration
        plan = self._bind_query(statement, cell)
        if statement.created:
            said = f"kept as {statement.keep} in this session, which reads it at no cost"
            plan = replace(plan, notes=(*plan.notes, said))
        if statement.keep and statement.kind == "query":
            kept = {**cell.catalog.kept, **self.kept.foretell(statement.keep, plan)}
            cell.catalog = replace(cell.catalog, kept=kept)
        return plan

    def _bind_query(self, statement: Statement, cell: OpenCell, epsilon: Fraction | None = None) -> Plan:
        catalog = self.releases.add_named(statement, cell.catalog)
        catalog = catalog if epsilon is None else replace(catalog, epsilon=epsilon)
        return self._plans.bind(statement, catalog, cell.thresholds)

    def _bind_release(self, statement: Statement, cell: OpenCell) -> Plan | None:
        """Bind a statement that makes or refreshes a release; None if it draws nothing."""
        try:
            found = self.releases.read(statement, cell)
            if found is None:
                return None
            query, draft = found
            plan = self._bind_query(query, cell, default_cost(draft))
            return self.releases.finish_draft(plan, draft, cell)
        except Error as error:
            raise error.located(statement.text) from None

    def find_columns(self, table: str) -> Mapping[str, str]:
        """Return names and SQL types of the columns of a table or a kept result, in order; BindError if unknown."""
        item = self.kept.by_name.get(fold(table)) or self.releases.find(fold(table))
        return (
            self.kept.describe(item)
            if item is not None
            else self.catalog.schema(self.catalog.find(table, None))
        )
