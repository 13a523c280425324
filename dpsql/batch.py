"""Statements that are declared together: all bound and priced before the first is run, none chosen from another's answer.

Only for such a list may the privacy loss distribution be used: for statements that are chosen from earlier answers it
promises less than it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dpsql.errors import BindError
from dpsql.pipeline import Prepared
from dpsql.plan import Plan
from dpsql.privacy.events import Event, compose
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.privacy.pld import declare
from dpsql.result import Result
from dpsql.sql.parse.statements import Statement, parse

if TYPE_CHECKING:
    from dpsql.session import Session


class Planned:
    """A statement of a declared plan. Once the plan has run it is its result."""

    def __init__(self, statement: Statement, plan: Plan) -> None:
        self.statement = statement
        self.plan = plan
        self._result: Result | None = None

    @property
    def result(self) -> Result:
        """The answer.

        Raises:
            BindError: the plan has not run yet.
        """
        if self._result is None:
            raise BindError("this statement is declared, not run yet.", hint="leave the with block first.")
        return self._result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.result, name)

    def __repr__(self) -> str:
        return f"<declared: {self.statement.source}>" if self._result is None else repr(self._result)


class DeclaredStatements:
    """What ``with session.plan() as plan:`` gives. ``plan.sql`` declares; leaving the block prices, runs and answers."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._planned: list[Planned] = []
        self._ran = False

    def sql(
        self, text: str, params: Mapping[str, Any] | None = None, *, epsilon: str | Fraction | None = None
    ) -> Planned:
        """Declares a statement (of several, the last one is given). Nothing is spent, no data are read.

        ``epsilon`` is what a statement costs that does not say.

        Raises:
            ParseError, BindError, PrivacyError: it can't be planned.
        """
        with self._session._defaulting(epsilon):
            found = [self._add(statement) for statement in parse(text, params)]
        if not found:
            raise BindError("there is no statement to declare.")
        return found[-1]

    def _add(self, statement: Statement) -> Planned:
        if statement.keep:
            raise BindError(
                "a declared statement has no answer yet that could be kept.", span=statement.span, text=statement.text,
                hint="leave the with block, then session.keep(name, result).",
            )  # fmt: skip
        if self._ran:
            raise BindError("the plan has run already.", hint="open another: with session.plan() as plan:")
        plan = self._session._bind(statement, dict(self._session._alarms.declared))
        if not isinstance(plan, Plan) or any(block.prepaid for block in plan.blocks):
            raise BindError(
                "only queries can be declared in a plan.", span=statement.span, text=statement.text
            )
        self._planned.append(Planned(statement, plan))
        return self._planned[-1]

    @property
    def results(self) -> list[Result]:
        """The answers, in the order of the declarations."""
        return [planned.result for planned in self._planned]

    @property
    def event(self) -> Event | None:
        """What the whole costs: the composed event, or under ``basic`` its privacy loss distribution where that is less.

        Blocks that are stored are free, and equal blocks are paid once.
        """
        return self._price([planned.plan for planned in self._planned])[1]

    def _price(self, plans: list[Plan]) -> tuple[list[Prepared], Event | None]:
        prepared = self._session._prepare(plans)
        events = [one.event for one in prepared if one.event is not None]
        if not events:
            return prepared, None
        whole = compose(events)
        budget = self._session.policy.budget
        if ACCOUNTANTS[budget.accountant].has_rule or len(events) == 1:
            return prepared, whole
        delta = budget.default_delta or budget.delta / 10
        if delta <= 0 or not whole.delta < delta:
            return prepared, whole
        declared = declare(events, Fraction(delta))
        return prepared, declared if declared.basic[0] < whole.basic[0] else whole

    def run(self) -> list[Result]:
        """Reserves the whole as one event, runs every statement, settles.

        Raises:
            BudgetExceeded: the whole does not fit; nothing was charged.
            EngineError, Interrupted: the whole stays charged.
        """
        self._ran = True
        session = self._session
        prepared, event = self._price([planned.plan for planned in self._planned])
        ticket = session._reserve("; ".join(p.statement.source for p in self._planned), event)
        session._release(prepared, ticket, event)
        if ticket is not None and event is not None:
            session._ledger.settle(ticket, event, None, "released", session._preparer.kept(prepared))
        for planned, one in zip(self._planned, prepared, strict=True):
            planned._result = session._finish(one, ticket, ("one of a declared plan",))
        return self.results

    def __enter__(self) -> DeclaredStatements:
        self._session._collecting = self
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._session._collecting = None
        if kind is None and self._planned:
            self.run()
