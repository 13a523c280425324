"""Access to what a session keeps to itself: the only test module that names its private members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from dpsql.binding.bind import bind as bind_statement
from dpsql.binding.modes.declared import Declaration
from dpsql.binding.plan import Plan, PrivateBlock
from dpsql.binding.relations.catalog import Catalog
from dpsql.binding.relations.plan_size import write_shared
from dpsql.engine.postprocess import Finisher
from dpsql.exact.gate import Gate
from dpsql.language.statements import Statement, parse
from dpsql.mechanisms.aggregation import Aggregation
from dpsql.mechanisms.base import Operator, Read, bind_parameters
from dpsql.noise.entropy import Entropy
from dpsql.session.gated_queries import GatedQueries
from dpsql.session.session import Session
from dpsql.session.stored_blocks import PreparedPlan


def bind(session: Session, query: str | Statement) -> Plan:
    """Return the plan of a query, made anew and without the engine's check."""
    statement = parse(query)[0] if isinstance(query, str) else query
    return bind_statement(statement, catalog(session), finisher(session), declared(session))


def planned(session: Session, text: str, params: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan of a query as the session makes it: remembered, proved and checked by the engine."""
    line = session._pipeline
    plan = line.admit(parse(text, params)[0], line.compiler.open_cell())
    assert isinstance(plan, Plan)
    return plan


def check(session: Session, plan: Plan) -> None:
    """Prove a plan's texts and let the engine bind them, as before anything is paid."""
    for block in plan.blocks:
        session._pipeline.compiler.queries.check_block(plan, block)


def prepared(session: Session, plan: Plan) -> PreparedPlan:
    """Return a plan whose blocks were looked up in the ledger."""
    return session._pipeline.look_up([plan])[0]


def engine(session: Session) -> Any:
    """Return the session's engine; which of its members there are depends on its kind."""
    return session._pipeline.engine


def catalog(session: Session) -> Catalog:
    """Return the catalog that statements are bound under."""
    return session._pipeline.compiler.catalog


def finisher(session: Session) -> Finisher:
    """Return the database of public SQL."""
    return session._pipeline.compiler.finisher


class _CheckedOnce(GatedQueries):
    """A check that passes the plan that it, or that of another session, checked last."""

    checked: list[Plan]

    def check(self, plan: Plan) -> None:
        if all(plan is not known for known in self.checked):
            super().check(plan)
            self.checked[:] = [plan]


def plan_once(first: Session, second: Session) -> None:
    """Let two sessions of one policy and schema answer by one plan, bound and proved by the first that is asked.

    Each reads its own rows.
    """
    one, other = first._pipeline, second._pipeline
    compiler, checked = one.compiler, []
    for line in (other, one):
        queries = _CheckedOnce(compiler.queries.gate, line.engine, compiler.finisher)
        queries.checked = checked
        line.compiler.queries = queries
    other.compiler._plans = compiler._plans
    other._blocks.keys = one._blocks.keys


def write_alone(session: Session, text: str) -> str:
    """Return an exact text with the queries that it refers to by name."""
    return write_shared(text, session._pipeline.compiler.catalog.shared)


def gate(session: Session) -> Gate:
    """Return what every exact text passes on its way to the engine."""
    return session._pipeline.compiler.queries.gate


def declared(session: Session) -> dict[str, Declaration]:
    """Return the open thresholds by name."""
    return session._pipeline.thresholds.declared


def lent_columns(session: Session, plan: Plan, block: PrivateBlock) -> dict[str, Sequence[tuple[str, str]]]:
    """Return names and SQL types of the public relations that a block's exact queries read."""
    return session._pipeline.compiler.queries.describe_lent(plan, block)


def lend(session: Session, plan: Plan) -> dict[str, pa.Table]:
    """Return the public relations that a plan's blocks read, where they rest on no release."""
    return {
        item.name: session._pipeline.compiler.finisher.lend(item.sql, {}, plan.public)
        for block in plan.blocks
        for item in block.inputs
    }


def reader(session: Session, lent: Mapping[str, pa.Table] | None = None) -> Read:
    """Return a reader of exact rows; its texts get their normal form and are not proved."""
    return session._pipeline.compiler.queries.reader(lent or {})


def read_cells(session: Session, operator: Operator, table: Aggregation) -> pa.Table:
    """Return the exact totals of a planned operator's table by its own query, where all secret orders go by one salt.

    The quicker route would draw which rows of a unit are kept, each time anew.
    """
    read = bind_parameters(session._pipeline.compiler.queries.reader({}, operator), {"salt": 12345})
    return replace(table, packed=None).read_kept(read, Entropy())


def entropy(session: Session) -> Entropy:
    """Return the source of the session's randomness."""
    return session._pipeline.entropy


def use_entropy(session: Session, source: Entropy) -> None:
    """Let what the session releases from now on draw from another source."""
    session._pipeline.entropy = source


def hold_turn(session: Session) -> AbstractContextManager[object]:
    """Answer nothing else of the session meanwhile."""
    return session._pipeline.turn


def take_no_turns(session: Session, patch: pytest.MonkeyPatch) -> None:
    """Let threads go on at once, as they may not: a control."""
    line = session._pipeline
    patch.setattr(line, "turn", nullcontext())
    patch.setattr(line.turn, "give_up", nullcontext, raising=False)
    patch.setattr(line, "look_up_to_pay", line.look_up)
