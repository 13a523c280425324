"""The path from a statement's text to its private answer; each step is one method of :class:`Pipeline`.

    parse -> bind -> check -> look up -> reserve -> release -> settle -> finish

Nothing is spent before ``reserve``, which is durable when it returns. Only ``release`` touches private data, and
``finish`` is post-processing.

The check of a plan before payment: its texts are proved, and bound against an empty schema.

A price is named only for plans that would run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import pyarrow as pa

from dpsql.binding.bind import Plans
from dpsql.binding.plan import Plan, PrivateBlock
from dpsql.binding.relations.catalog import Catalog
from dpsql.engine.base import IN_NO_FILE, Engine
from dpsql.engine.postprocess import Finisher
from dpsql.engine.sandbox import NO_PLAN, parse_to_json
from dpsql.errors import (
    BindError,
    BudgetExceeded,
    EngineError,
    Error,
    Interrupted,
    PostprocessingError,
    PrivacyError,
)
from dpsql.exact.gate import STAND_INS, Gate
from dpsql.interrupts import POLL_SECONDS, Turns, check_stop
from dpsql.language.options import parse_epsilon
from dpsql.language.statements import Statement
from dpsql.late_dataclass import dataclass
from dpsql.ledger.ledger import Ledger, Ticket
from dpsql.mechanisms.base import Columns, NormalForm, Operator, Prove, Read, Reader, Release, fill_parameters
from dpsql.noise.entropy import Entropy
from dpsql.policy.model import Policy, fold
from dpsql.privacy.events import Composed, Event
from dpsql.privacy.periods import Days
from dpsql.session.block_keys import BlockKeys
from dpsql.session.explain import (
    NO_CHARGE,
    AskedStatement,
    explain_declaration,
    explain_plan,
    write_charge,
    write_cost_line,
)
from dpsql.session.explanation import Explanation
from dpsql.session.releases import Releases, default_cost
from dpsql.session.result import Result
from dpsql.session.session_state import KeptResults, OpenCell, OpenThresholds, require_libraries
from dpsql.session.stored_blocks import CORRECT, PreparedPlan, RequestedBlock, StoredBlocks, list_shown

if TYPE_CHECKING:
    from dpsql.binding.modes.declared import Declaration
    from dpsql.mechanisms.subsample.blocks import RegisteredFunction

MAX_BOUND_SHAPES = 1000
"""The most shapes of texts remembered as bindable."""


@dataclass
class PlanCheck:
    """The check of a session's plans."""

    gate: Gate
    engine: Engine
    finisher: Finisher
    _bound: set[tuple[object, ...]] = field(default_factory=set)
    """Texts that were bound with others: their shapes, value types, and public relations' columns."""

    def describe_lent(self, plan: Plan, block: PrivateBlock) -> dict[str, Columns]:
        """Return the names and columns of the public relations that a block's exact queries read."""
        schemas = {b.name: b.columns for b in plan.blocks}
        lent = {i.name: self.finisher.describe_shown(i.sql, schemas, plan.public) for i in block.inputs}
        return {**lent, **block.operator.provides}

    def check(self, plan: Plan) -> None:
        """Call :meth:`check_block` for each block, except those stored in parts: only a draw of some days is run for them."""
        for block in plan.blocks:
            if block.parts is None:
                self.check_block(plan, block)

    def check_block(self, plan: Plan, block: PrivateBlock) -> None:
        """Prove a block's texts, and refuse before payment any text that the engine would refuse on every data set."""
        released, lent = {b.name for b in plan.blocks}, self.describe_lent(plan, block)
        for item in block.inputs if not self.engine.lossless else ():
            if not any(name in item.sql for name in released):
                self.engine.check_lent(self.finisher.finish(item.sql, {}, plan.public))
        self.gate.prove(
            block.operator, name_columns({i.name: lent[i.name] for i in block.inputs}), block.periods
        )
        self._bind_all(block, lent)

    def _bind_all(self, block: PrivateBlock, lent: Mapping[str, Columns]) -> None:
        """Bind a block's first text, and each further text unless one that differs only in values was bound before."""
        alike = self.engine.dialect == "duckdb"  # for other engines, the translation of each text is proved
        bound: frozenset[str] | None = None
        for query in block.operator.checked:
            if query in block.operator.apart:
                self._bind(block, query, lent)
                continue
            values, key = self._find_shape(query, lent, bound or ())
            if bound is None or not alike or key not in self._bound:
                self._bind(block, query, lent)
                if len(self._bound) >= MAX_BOUND_SHAPES:
                    self._bound.clear()
                self._bound.add(key)
            bound = (bound or frozenset()) | values

    def _bind(self, block: PrivateBlock, query: str, lent: Mapping[str, Columns]) -> None:
        apart, names = query in block.operator.apart, name_columns(lent)
        text = query if apart else self.gate.exact(query, names)
        filled = fill_parameters(text, STAND_INS)

        def plan(given: str) -> str:
            found = self.engine.plan(given, lent, filled)
            if found.startswith(NO_PLAN):
                self.engine.check(filled, lent)  # in DuckDB's words, or on a new instance
                found = self.engine.plan(given, lent, filled)
            return found

        if not apart:  # a query that is run apart reads rows of one block, and no failure of it is seen
            read = tuple(sorted((name, *map(tuple, columns)) for name, columns in lent.items()))
            self.gate.prove_typed(block.operator, query, filled, names, plan, read, block.periods)
        written = self.engine.check(filled, lent, apart)
        if written is not None:
            self.gate.prove_written(block.operator, query, written, names, STAND_INS["salt"], block.periods)

    def _find_shape(
        self, query: str, lent: Mapping[str, Columns], bound: Collection[str]
    ) -> tuple[frozenset[str], tuple[object, ...]]:
        """Return a text's values, and the facts its binding depends on, given its public relations and the values
        already ``bound``.

        An analyst's value may occur in several texts of one statement. Once one text with it is bound, only its type
        matters: our binder has already refused values the engine would refuse elsewhere (formats, date parts).
        """
        shaped = self.gate.shape(query, name_columns(lent))
        read = repr(sorted((name, *columns) for name, columns in lent.items()))
        return frozenset(shaped.values), (shaped.shape, shaped.list_kinds(bound), read)


def name_columns(lent: Mapping[str, Columns]) -> dict[str, list[str]]:
    """Return the column names of the public relations."""
    return {name: [column for column, _ in columns] for name, columns in lent.items()}


_LIMITS = "dpsql.connect(resources=...) sets how much memory and time a query may take."
_WITHHELD = "the engine failed while it read private data; the statement stays charged, and why is withheld."

Bound: TypeAlias = "Plan | Declaration | None"
"""The bound form of a statement; None for SHOW and CLOSE."""


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
        """The last statement asked, for :func:`dpsql.session.explain.explain_why`."""
        self._drawing: list[tuple[frozenset[str], threading.Event]] = []
        """Keys of the blocks being drawn, with the event that is set once they are stored; accessed only in turn."""
        self.entropy = Entropy()
        self.functions: dict[str, RegisteredFunction] = {}
        self.finisher = Finisher(engine, policy)
        self.kept = KeptResults(policy, self.finisher)
        self.releases = Releases(policy, ledger, self.finisher, self.kept)
        self.thresholds = OpenThresholds(ledger, self.entropy)
        self._cells = 0
        """Cells that are asked, of all threads."""
        self._describe_data()

    def _describe_data(self) -> None:
        """Build everything that depends on the data's schemas and on the ``versions`` of the tables."""
        policy, engine, ledger = self.policy, self.engine, self.ledger
        self.catalog = Catalog(
            policy, engine, policy.budget.accountant, self.functions, lambda: ledger.state().left_delta
        )
        self.gate = Gate(self.catalog, parse_to_json, engine.plan_late)
        self.checking = PlanCheck(self.gate, engine, self.finisher)
        self._plans = Plans(self.finisher, self.checking.check)
        self._blocks = StoredBlocks(
            BlockKeys(policy, engine, self.gate, self.catalog.schema),
            ledger,
            self.finisher.lend if engine.lossless else self.finisher.finish,
            lambda plan, block: name_columns(self.checking.describe_lent(plan, block)),
            self.checking.check_block,
        )
        self.versions = engine.versions
        self._found = self._find_tables()

    def _find_tables(self) -> object:
        """Return the places of all tables and their ordered labels, and the versions of the public ones."""
        engine, tables = self.engine, self.policy.tables.values()
        found = [(engine.place(table), engine.path(table), dict(engine.orders(table))) for table in tables]
        return engine.home, found, [engine.versions[table.name] for table in tables if table.public]

    def _note_new_data(self) -> None:
        """Plans, their proofs and the texts of keys stay if only rows of private tables have changed."""
        found = self._find_tables()
        public = [table.name for table in self.policy.tables.values() if table.public]
        fixed = not any(self.engine.versions[name].startswith(IN_NO_FILE) for name in public)
        if fixed and found == self._found and self.catalog.is_current():
            self._blocks.keys.renew_versions()
            self.versions = self.engine.versions
            return
        self.finisher.forget_tables()
        self._describe_data()

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
                    self._note_new_data()
            self._cells += 1
            try:
                yield
            finally:
                self._cells -= 1

    # -- nothing is spent ---------------------------------------------------------------------------------------

    def open_cell(self, epsilon: str | Fraction | None = None) -> OpenCell:
        """Return the initial names of a cell. ``epsilon`` is the default cost of its statements (the policy's if None)."""
        default = parse_epsilon(epsilon) if isinstance(epsilon, str) else epsilon
        catalog = replace(self.catalog, kept=dict(self.kept.by_name), epsilon=default)
        return OpenCell(catalog, dict(self.thresholds.declared))

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

    def admit(self, statement: Statement, cell: OpenCell) -> Bound:
        """Bind a statement to answer; a refused query is recorded in the ledger, as it shows the owner missing bounds."""
        if statement.kind == "drop":
            self.ledger.check_publisher()
        if statement.kind != "query":
            alone = replace(cell, thresholds=dict(cell.thresholds))
            return self.bind(statement, cell if statement.kind == "declare" else alone)
        try:
            if statement.release:
                self.ledger.check_publisher()
            return self.bind(statement, cell)
        except PrivacyError as error:
            self.ledger.refuse(statement.record, error.message, None)
            raise

    def explain(
        self, statement: Statement, bound: Bound, paid: dict[str, RequestedBlock] | None = None
    ) -> Explanation:
        """Explain the effect and the cost of a bound query, EXPLAIN or DECLARE.

        ``paid``: blocks that earlier statements would pay, by key; this statement's blocks are added.
        """
        if bound is not None and not isinstance(bound, Plan):
            return explain_declaration(bound, self.ledger, statement.json)
        if bound is None:
            raise BindError(
                "nothing is drawn: the release is there already.",
                span=statement.span,
                hint="write REFRESH RELEASE after EXPLAIN.",
                text=statement.text,
            )
        plan = bound

        def write(block: PrivateBlock, query: str) -> str:
            apart = query in block.operator.apart
            return (
                query
                if apart
                else self.gate.shown(query, name_columns(self.checking.describe_lent(plan, block)))
            )

        (prepared,) = self.look_up([plan], paid=paid)
        return explain_plan(prepared, self.ledger, self.policy.budget, write, as_json=statement.json)

    def look_up(
        self, plans: Sequence[Plan], fresh: bool = False, paid: dict[str, RequestedBlock] | None = None
    ) -> list[PreparedPlan]:
        """Find the stored blocks, which are free, of plans that are paid together, in the order of payment.

        ``fresh``: ignore stored answers; ``paid``: as for :meth:`explain`.
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
        return self.engine.parallel and not self.functions and not any(block.prepaid for block in blocks)

    def release(self, prepared: Sequence[PreparedPlan], ticket: Ticket | None, alone: bool = False) -> None:
        """Draw the blocks that are not stored.

        ``alone``: whether this is its cell's only statement, so that other threads' statements may run between its steps.

        Raises:
            EngineError, Interrupted, PostprocessingError: with our own message. The original traceback, whose frames
                contain exact values, is dropped.
        """

        def draw(block: PrivateBlock, lent: Mapping[str, pa.Table]) -> Release:
            with self.engine.within(block.periods):
                return block.operator.release(self.reader(lent, block.operator, block.periods), self.entropy)

        listener = _touch.get()
        if listener is not None and any(
            i.stored is None and i.same is None for p in prepared for i in p.answers
        ):
            listener()
        gap = self.turn.give_up() if alone and self._may_give_up(prepared) else nullcontext()
        with gap:
            outcome = self._blocks.draw_all(prepared, draw)
        if outcome == "above":
            self._fail_above(prepared, ticket)
        if outcome != "released":
            self._fail(ticket, outcome)

    def reader(
        self, lent: Mapping[str, pa.Table], operator: object = None, periods: Days | None = ()
    ) -> Read:
        """Return the function that reads exact rows for an operator; without an operator, texts are not proved.

        ``periods``: those that pay for the operator; None for all.
        """
        engine, exact = self.engine, self.gate.reading(operator, periods)
        prove = self.gate.proving(operator, periods)

        def hold(chosen: Operator) -> tuple[NormalForm, Prove | None]:
            self.gate.prove(chosen, {name: table.column_names for name, table in lent.items()}, periods)
            return self.gate.reading(chosen, periods), self.gate.proving(chosen, periods)

        return Reader(
            engine.execute,
            lent,
            engine.room,
            engine.batches,
            engine.apart,
            exact,
            prove=prove,
            hold=hold,
            little=engine.reads_little,
            memory=engine.remember,
            unit_memory=engine.remember_units,
            snapshot=engine.hold_snapshot,
            threads=engine.threads,
            numbers=engine.numbers,
            rows=engine.count_rows,
            spill=engine.make_spill_folder,
        )

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
            orders=plan.find_orders(self.finisher.describe(plan.finish, plan.schemas, plan.public))
            if any(block.orders for block in plan.blocks)
            else (),
        )

    def _run_above(self, prepared: PreparedPlan, relations: Mapping[str, pa.Table]) -> pa.Table:
        """Run the SQL above the private blocks; PostprocessingError if it fails on released values."""
        plan = prepared.plan
        try:
            return self.finisher.finish(plan.finish, prepared.adjust(relations), plan.public)
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

    # -- thresholds ---------------------------------------------------------------------------------------------

    def declare(self, declaration: Declaration, text: str) -> Result:
        """Open a declared threshold and reserve its whole cost."""
        ticket = self.thresholds.open(declaration, text)
        return self._report_threshold(declaration.name, "open", declaration.event, ticket)

    def close_threshold(self, name: str) -> Result:
        """Settle a threshold by its number of hits."""
        closed = self.thresholds.close(name)
        status = f"closed after {closed.declaration.describe_hits(closed.stream.hits)}"
        return self._report_threshold(closed.declaration.name, status, closed.stream.event, closed.ticket)

    def _report_threshold(self, name: str, status: str, event: Event, ticket: Ticket) -> Result:
        charge = self.price(event)
        return Result(
            pa.table({"threshold": [name], "status": [status]}),
            loss=charge,
            event=event,
            statement_id=ticket.statement_id,
            cost_line=write_cost_line(self.ledger, event, charge),
            lasting=self.ledger.lasting,
        )

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
                self.finisher.close,
                self.engine.close,
                self.ledger.close,
            ):
                with suppress(Exception):  # each one, even if closing an earlier one failed
                    close()


def _list_keys(prepared: Sequence[PreparedPlan]) -> frozenset[str]:
    return frozenset(item.key for one in prepared for item in one.answers if not item.free)
