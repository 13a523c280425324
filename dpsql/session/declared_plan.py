"""Plans of a session: statements that are declared together, priced as one event, then run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from dpsql.binding.plan import Plan
from dpsql.errors import BindError
from dpsql.interrupts import interruptible
from dpsql.language.parameter_values import Params
from dpsql.language.statements import Statement, parse
from dpsql.mechanisms.joint_gaussian import calibrate_together, find_pair
from dpsql.privacy.events import Composed, Event, compose_events
from dpsql.privacy.filters import ACCOUNTANTS
from dpsql.privacy.pld import declare
from dpsql.session.explain import AskedStatement, noting
from dpsql.session.pipeline import Pipeline, before_payment
from dpsql.session.result import DeclaredResult, Result
from dpsql.session.session_state import OpenCell, in_our_words
from dpsql.session.stored_blocks import PreparedPlan, RequestedBlock

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
                "a declared statement has no answer yet that could be kept.", span=statement.span, text=statement.text,
                hint="leave the with block, then session.keep(name, result).",
            )  # fmt: skip
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
