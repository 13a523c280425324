"""The path from a statement's text to its private answer; each step is one method of :class:`Pipeline`.

    parse -> admit (bind, check) -> look up -> reserve -> release -> settle -> finish -> deliver

:meth:`Pipeline.answer` calls them in this order. Nothing is spent before ``reserve``, which is durable when it returns. Only
``release`` touches private data, and ``finish`` is post-processing. A price is named only for plans that would run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import NoReturn

import pyarrow as pa

from dpsql.binding.plan import Plan
from dpsql.engine.base import Engine
from dpsql.errors import (
    BindError,
    BudgetExceeded,
    EngineError,
    Error,
    Interrupted,
    PostprocessingError,
    PrivacyError,
)
from dpsql.interrupts import POLL_SECONDS, Turns, check_stop
from dpsql.language.statements import Statement
from dpsql.ledger.ledger import Ledger, Ticket
from dpsql.noise.entropy import Entropy
from dpsql.policy.model import Policy
from dpsql.privacy.events import Composed, Event
from dpsql.session.block_keys import BlockKeys
from dpsql.session.compiler import Bound, Compiler
from dpsql.session.outcomes import NO_CHARGE, AskedStatement, write_charge, write_cost_line
from dpsql.session.result import Result
from dpsql.session.session_state import OpenCell, OpenThresholds, require_libraries
from dpsql.session.stored_blocks import CORRECT, PreparedPlan, RequestedBlock, StoredBlocks, list_shown

_LIMITS = "dpsql.connect(resources=...) sets how much memory and time a query may take."
_WITHHELD = "the engine failed while it read private data; the statement stays charged, and why is withheld."

_touch: ContextVar[Callable[[], None] | None] = ContextVar("dpsql_touch", default=None)


@contextmanager
def watch_touch(listener: Callable[[], None]) -> Iterator[None]:
    """Call ``listener`` whenever blocks are about to be drawn in this context: private data may be read from then on."""
    token = _touch.set(listener)
    try:
        yield
    finally:
        _touch.reset(token)


@contextmanager
def before_payment() -> Iterator[None]:
    """Turn a stop or a recursion error before payment into an error that says nothing was charged.

    Raises:
        Interrupted: the work was stopped.
        BindError: the texts written for the statement are nested too deeply for their readers.
    """
    try:
        yield
    except RecursionError:
        raise BindError("the statement is nested too deeply.") from None
    except KeyboardInterrupt:
        raise Interrupted("the statement was stopped before it was paid: nothing was charged.") from None


@contextmanager
def locating(statement: Statement) -> Iterator[None]:
    """Add the statement's span to errors that have none."""
    try:
        yield
    except Error as error:
        error.span = error.span or statement.span
        raise error.located(statement.text) from None


class Pipeline:
    """The steps of a session's statements, and the state they share.

    Threads take turns; a caller of several steps in a row keeps ``turn``. Another thread gets its turn only while a
    statement's blocks are drawn (:meth:`answering`). A thread that asks for one of these blocks waits for its answer,
    so equal questions are paid once.
    """

    def __init__(self, policy: Policy, engine: Engine, ledger: Ledger) -> None:
        self.policy, self.engine, self.ledger = policy, engine, ledger
        self.turn = Turns()
        self.closed = False
        self.last: AskedStatement | None = None
        """The last statement asked, as its explanation needs it."""
        self._drawing: list[tuple[frozenset[str], threading.Event]] = []
        """Keys of the blocks being drawn, with the event that is set once they are stored; accessed only in turn."""
        self.entropy = Entropy()
        self.thresholds = OpenThresholds(ledger, self.entropy)
        self.compiler = Compiler(policy, engine, ledger, self.thresholds)
        self._cells = 0
        """Cells that are asked, of all threads."""
        self._open_blocks()
        self.versions = engine.versions

    def _open_blocks(self) -> None:
        """Open the look-up of stored blocks, under the present schemas and versions of the data."""
        compiler, engine = self.compiler, self.engine
        queries, finisher = compiler.queries, compiler.finisher
        self._blocks = StoredBlocks(
            BlockKeys(self.policy, engine, queries.gate, compiler.catalog.schema),
            self.ledger,
            finisher.lend if engine.lossless else finisher.finish,
            queries.name_lent,
            queries.check_block,
        )

    @contextmanager
    def asking(self, again: bool = True) -> Iterator[None]:
        """Take the turn for a cell.

        Files that are new or have changed are read ``again`` first, unless another cell is being asked.

        Raises:
            PolicyError: one can't be read.
        """
        with self.turn:
            if again and not self._cells:
                self.engine.read_again(_touch.get() or (lambda: None))
                if self.engine.versions is not self.versions:
                    if self.compiler.renew():
                        self._open_blocks()
                    else:
                        self._blocks.keys.renew_versions()
                    self.versions = self.engine.versions
            self._cells += 1
            try:
                yield
            finally:
                self._cells -= 1

    # -- the last statement -------------------------------------------------------------------------------------

    def note(self, text: str, done: str = "") -> None:
        """Remember a text as the last statement; ``done`` is its outcome, if that is known."""
        self.last = AskedStatement(text, done=done)

    @contextmanager
    def noting(self, text: str, bound: Bound = None) -> Iterator[None]:
        """Remember a text, with its bound form once known, as the last statement; an error is its outcome."""
        self.last = AskedStatement(text, bound)
        try:
            yield
        except Error as error:
            self.last = self.last.fail(error)
            raise

    # -- the straight line --------------------------------------------------------------------------------------

    def answer(self, statement: Statement, bound: Bound, fresh: bool, alone: bool) -> Result:
        """Answer an admitted statement; SHOW, SET and EXPLAIN are the session's.

        ``fresh``: ignore stored answers; ``alone``: as for :meth:`release`.
        """
        with locating(statement):
            if not isinstance(bound, Plan):
                return self._answer_unplanned(statement, bound)
            self.thresholds.require(bound)
        with before_payment():
            (prepared,) = self.look_up_to_pay([bound], fresh)
            asked = self.last = AskedStatement(statement.source).look_up(prepared)
        ticket = self.reserve(prepared.event, statement.record, [prepared])
        try:
            with self.answering([prepared]):
                self.release([prepared], ticket, alone)
                self.settle(ticket, prepared.used, [prepared])
            result = self.finish(prepared, ticket)
        except PostprocessingError as error:
            error.span = statement.find_word(error.name)
            raise error.located(statement.text) from None
        self.last = asked.finish(prepared, result)
        return result

    def _answer_unplanned(self, statement: Statement, bound: Bound) -> Result:
        """Answer DECLARE, CLOSE, and a statement about a release that draws nothing."""
        text = statement.source
        if bound is not None and not isinstance(bound, Plan):
            self.last = AskedStatement(text, bound, reserved=bound.event, done="declared")
            ticket, event = self.thresholds.open(bound, statement.record), bound.event
            name, status = bound.name, "open"
        elif statement.release:
            self.note(text, "free")
            return self.compiler.releases.settle(statement)
        else:
            closed = self.thresholds.close(statement.name)
            ticket, event = closed.ticket, closed.stream.event
            self.last = AskedStatement(text, used=event, done="closed")
            name, status = closed.declaration.name, closed.describe_end()
        charge = self.price(event)
        return Result(
            pa.table({"threshold": [name], "status": [status]}),
            loss=charge,
            event=event,
            statement_id=ticket.statement_id,
            cost_line=write_cost_line(self.ledger, event, charge),
            lasting=self.ledger.lasting,
        )

    def deliver(self, statement: Statement, bound: Bound, result: Result, intervals: bool) -> Result:
        """Publish or keep an answer as its statement asks, and return it; ``intervals``: with their ends as columns."""
        plan = bound if statement.kind == "query" and isinstance(bound, Plan) else None
        if plan is not None and plan.draft is not None:
            self.compiler.releases.publish(statement, plan, result)
        if statement.keep:
            self.compiler.kept.keep(statement.keep, result)
        return result.with_interval_columns(plan.interval_columns) if plan and intervals else result

    # -- nothing is spent ---------------------------------------------------------------------------------------

    def admit(self, statement: Statement, cell: OpenCell) -> Bound:
        """Bind a statement to answer; a refused query is recorded in the ledger, as it shows the owner missing bounds."""
        if statement.kind == "drop":
            self.ledger.check_publisher()
        if statement.kind != "query":
            alone = replace(cell, thresholds=dict(cell.thresholds))
            return self.compiler.bind(statement, cell if statement.kind == "declare" else alone)
        try:
            if statement.release:
                self.ledger.check_publisher()
            return self.compiler.bind(statement, cell)
        except PrivacyError as error:
            self.ledger.refuse(statement.record, error.message, None)
            raise

    def look_up(
        self, plans: Sequence[Plan], fresh: bool = False, paid: dict[str, RequestedBlock] | None = None
    ) -> list[PreparedPlan]:
        """Find the stored blocks, which are free, of plans that are paid together, in the order of payment.

        ``fresh``: ignore stored answers; ``paid``: as for :func:`dpsql.session.description.explain_bound`.
        """
        return self._blocks.prepare(plans, fresh, paid)

    def look_up_to_pay(self, plans: Sequence[Plan], fresh: bool = False) -> list[PreparedPlan]:
        """Wait until no other thread draws the blocks that aren't stored, then call :meth:`look_up`."""
        while True:
            prepared = self.look_up(plans, fresh)
            keys = _list_keys(prepared)
            busy = [done for drawn, done in self._drawing if not fresh and drawn & keys]
            if not busy:
                require_libraries(i.block for one in prepared for i in one.asked if not i.free)
                return prepared
            with self.turn.give_up():
                while not busy[0].wait(POLL_SECONDS):
                    check_stop()

    # -- spent, then touched ------------------------------------------------------------------------------------

    def reserve(self, event: Event | None, text: str, prepared: Sequence[PreparedPlan]) -> Ticket | None:
        """Charge an event durably before data are touched; BudgetExceeded if the budget is too small.

        Free statements need no ticket. The analyst's share may be debited for stored answers of the ``prepared`` plans.
        """
        shown, ticket, number = list_shown(prepared), None, None
        if event is None and not shown:
            return None
        try:
            if event is not None:
                ticket = self.ledger.reserve(event, text, shown)
            else:
                number = self.ledger.debit(text, shown)
        except BudgetExceeded as error:
            self.ledger.refuse(text, error.message, event)
            raise error from None
        for one in prepared:
            one.debited = number if one.debit is not None else None
        return ticket

    @contextmanager
    def drawing_release(self, statement: Statement, bound: Bound) -> Iterator[None]:
        """Keep other sessions from drawing a release within the block, if the statement draws one."""

        def wait() -> None:
            with self.turn.give_up():
                time.sleep(POLL_SECONDS)
            check_stop()

        with ExitStack() as held:
            if statement.kind == "query" and isinstance(bound, Plan) and bound.draft is not None:
                with before_payment():
                    held.enter_context(self.ledger.hold_releases(wait))
            yield

    @contextmanager
    def answering(self, prepared: Sequence[PreparedPlan]) -> Iterator[None]:
        """Announce the blocks drawn in this context to threads that get their turn meanwhile."""
        mine = (_list_keys(prepared), threading.Event())
        self._drawing.append(mine)
        try:
            yield
        finally:
            self._drawing.remove(mine)
            mine[1].set()

    def _may_give_up(self, prepared: Sequence[PreparedPlan]) -> bool:
        """Return whether other threads may have their turn while these plans are drawn.

        They may not if a block changes the session (a declared threshold) or runs a registered function, which must not
        run twice at once.
        """
        blocks = [item.block for one in prepared for item in one.asked]
        return (
            self.engine.parallel
            and not self.compiler.functions
            and not any(block.prepaid for block in blocks)
        )

    def release(self, prepared: Sequence[PreparedPlan], ticket: Ticket | None, alone: bool = False) -> None:
        """Draw the blocks that are not stored.

        ``alone``: whether this is its cell's only statement, so that other threads' statements may run between its steps.

        Raises:
            EngineError, Interrupted, PostprocessingError: with our own message. The original traceback, whose frames
                contain exact values, is dropped.
        """
        listener = _touch.get()
        if listener is not None and any(
            i.stored is None and i.same is None for p in prepared for i in p.answers
        ):
            listener()
        gap = self.turn.give_up() if alone and self._may_give_up(prepared) else nullcontext()
        with gap:
            outcome = self._blocks.draw_all(
                prepared, partial(self.compiler.queries.release, entropy=self.entropy)
            )
        if outcome == "above":
            self._fail_above(prepared, ticket)
        if outcome != "released":
            self._fail(ticket, outcome)

    def _fail_above(self, prepared: Sequence[PreparedPlan], ticket: Ticket | None) -> NoReturn:
        """Store the blocks drawn before public SQL failed on them, charging only these if a rule prices a part."""
        if ticket is not None:
            drawn_events = [event for item in prepared if (event := item.used) is not None]
            parts = [one for e in drawn_events for one in (e.events if isinstance(e, Composed) else (e,))]
            drawn = Composed(tuple(parts)) if parts else ticket.event
            used = drawn if drawn.is_within(ticket.event) else ticket.event
            self.ledger.settle(ticket, used, self._blocks.pack_drawn(prepared), "released")
        failed = next(item for item in prepared if item.failed_above is not None)
        assert failed.failed_above is not None
        raise self.make_postprocessing_error(failed.failed_above, failed) from None

    def _fail(self, ticket: Ticket | None, outcome: str) -> NoReturn:
        if ticket is not None:
            self.ledger.settle(ticket, ticket.event, None, outcome)
        if outcome == "interrupted":
            loss = f" {self.price(ticket.event)} stays charged." if ticket is not None else ""
            raise Interrupted(f"the statement was stopped.{loss}")
        raise EngineError(_WITHHELD, hint=_LIMITS)

    def settle(self, ticket: Ticket | None, used: Event | None, prepared: Sequence[PreparedPlan]) -> None:
        """Charge the used part of the cost, and store the releases."""
        if ticket is not None:
            assert used is not None
            self.ledger.settle(ticket, used, self._blocks.pack_drawn(prepared), "released")

    # -- free again ---------------------------------------------------------------------------------------------

    def finish(
        self, prepared: PreparedPlan, ticket: Ticket | None = None, notes: tuple[str, ...] = ()
    ) -> Result:
        """Run the outer SQL over the released relations."""
        plan, relations = prepared.plan, prepared.relations
        event, debit = prepared.used, prepared.debit
        table = plan.direct(relations)
        if table is None:
            table = self._run_above(prepared, relations)
        statements = [s.statement_id for s in prepared.stored if s.statement_id is not None]
        if event is not None:
            assert ticket is not None
            statements = [ticket.statement_id]
        elif prepared.debited is not None:
            statements = [prepared.debited]
        charge, due = self.price(event), self.price(None, debit)
        return Result.finished(
            table,
            plan.columns,
            plan.intervals,
            plan.spreads,
            loss=" and ".join(filter(None, (charge, due))) or (NO_CHARGE if prepared.stored else ""),
            event=event,
            notes=(*plan.list_notes(prepared.notes, relations, table), *notes),
            statement_id=max(statements, default=None),
            cost_line=write_cost_line(self.ledger, event, charge, due, prepared.since, prepared.counted),
            confidence=plan.confidence,
            lasting=self.ledger.lasting or (event is None and not prepared.stored),
            expected_error=prepared.expected_errors,
            orders=plan.find_orders(self.compiler.finisher.describe(plan.finish, plan.schemas, plan.public))
            if any(block.orders for block in plan.blocks)
            else (),
        )

    def _run_above(self, prepared: PreparedPlan, relations: Mapping[str, pa.Table]) -> pa.Table:
        """Run the SQL above the private blocks; PostprocessingError if it fails on released values."""
        plan = prepared.plan
        try:
            return self.compiler.finisher.finish(plan.finish, prepared.adjust(relations), plan.public)
        except KeyboardInterrupt:
            raise Interrupted(f"the statement was stopped.{self._said_paid(prepared)}") from None
        except BindError as error:
            if not plan.blocks:
                raise
            raise self.make_postprocessing_error(error, prepared) from None

    def make_postprocessing_error(self, error: BindError, prepared: PreparedPlan) -> PostprocessingError:
        """Return the error for SQL that failed on released values; it says what was paid and that corrected text is free."""
        message = error.message.removesuffix(".")
        made = PostprocessingError(f"{message}.{self._said_paid(prepared)}", hint=CORRECT)
        made.name = error.name
        return made

    def _said_paid(self, prepared: PreparedPlan) -> str:
        charge = self.price(prepared.used, prepared.debit)
        return f" {charge} was paid, and the answer is stored." if charge else ""

    def price(self, event: Event | None, debit: Event | None = None) -> str:
        """Return the session accountant's charge for an event, and the debit of the analyst's share alone, in words."""
        return write_charge(self.ledger, event, debit)

    def close(self) -> None:
        """Settle open thresholds, and close the engine and the ledger."""
        self.closed = True
        with self.turn:
            while self._drawing:
                done = self._drawing[0][1]
                with self.turn.give_up():
                    done.wait()
            for close in (
                self.thresholds.close_all,
                self.compiler.finisher.close,
                self.engine.close,
                self.ledger.close,
            ):
                with suppress(Exception):  # each one, even if closing an earlier one failed
                    close()


def _list_keys(prepared: Sequence[PreparedPlan]) -> frozenset[str]:
    return frozenset(item.key for one in prepared for item in one.answers if not item.free)
