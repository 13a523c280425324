"""Statements of a local session that are declared together: they are calibrated and priced as one list, then run.

The module stands apart from ``session.py``, because few sessions declare statements: it is loaded for the first that does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from dpsql.binding.plan import Plan
from dpsql.errors import BindError
from dpsql.language.statements import Statement, parse
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.marginals import calibrate_together, find_pair
from dpsql.privacy.events import Event, compose_events
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.privacy.periods import date_event, split_by_periods
from dpsql.privacy.pld import declare_if_cheaper
from dpsql.session.interface import Guarded, Question, SessionPlan
from dpsql.session.outcomes import AskedStatement
from dpsql.session.pipeline import Pipeline, before_payment
from dpsql.session.result import DeclaredResult
from dpsql.session.session_state import OpenCell
from dpsql.session.stored_blocks import PreparedPlan, RequestedBlock


class DeclaredStatements(SessionPlan):
    """Statements of a local session that are priced together before the first is run."""

    def __init__(self, session: Guarded, pipeline: Pipeline) -> None:
        super().__init__(session)
        self._pipeline = pipeline
        self._plans: list[Plan] = []
        self._versions: Mapping[str, str] = {}

    def _declare(self, question: Question) -> None:
        line = self._pipeline
        with line.asking(not self._plans), line.noting(question.text), before_payment():
            self._check_versions()
            statements = parse(question.text, question.params)
            if not statements:
                raise BindError("there is no statement to declare.")
            cell = line.compiler.open_cell(question.epsilon)
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
        with line.asking(False), line.noting("; ".join(declared.source for declared in self._declared)):
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


LookUp = Callable[[Sequence[Plan]], list[PreparedPlan]]
"""Looks up the blocks of plans that are paid together."""


def prepare_together(plans: Sequence[Plan], look_up: LookUp) -> list[PreparedPlan]:
    """Look up plans declared together, with one calibration of the Gaussian noise of their blocks.

    With a budget per period it is one for each set of periods: a calibration is charged as a whole.

    If all of these blocks are stored under the joint calibration, they are free. Otherwise blocks stored individually
    are free, and the rest are calibrated together.
    """
    alone = look_up(plans)
    items = [item for prepared in alone for item in prepared.asked if item.same is None]
    noisy = [item for item in items if find_pair(item.block.operator) is not None and not item.parts]
    left = [item for item in noisy if item.stored is None]
    if len(noisy) < 2:
        return alone
    joint = look_up(_calibrate(alone, noisy))
    asked = (item for prepared in joint for item in prepared.asked)
    if len(left) == len(noisy) or all(item.free or find_pair(item.block.operator) is None for item in asked):
        return joint
    return look_up(_calibrate(alone, left)) if len(left) > 1 else alone


def _calibrate(prepared: Sequence[PreparedPlan], chosen: Sequence[RequestedBlock]) -> list[Plan]:
    """Return the plans, with one noise calibration for the chosen blocks of each set of periods."""
    made: dict[str, Operator] = {}
    for periods in dict.fromkeys(item.block.periods for item in chosen):
        some = [item for item in chosen if item.block.periods == periods]
        operators = calibrate_together([item.block.operator for item in some])
        made |= {item.key: operator for item, operator in zip(some, operators, strict=True)}
    plans = []
    for one in prepared:
        blocks = (replace(item.block, operator=made.get(item.key, item.block.operator)) for item in one.asked)
        plans.append(replace(one.plan, blocks=tuple(blocks)))
    return plans
