"""The check of a plan before it is paid: its texts are proved, and bound where no data are.

A price is named for nothing that would not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpsql.engine.base import Engine
from dpsql.engine.postprocess import Finisher
from dpsql.mechanisms.base import Columns, fill_parameters
from dpsql.plan import Plan, PrivateBlock
from dpsql.sql.exact.gate import Gate

MAX_BOUND_SHAPES = 1000
"""Shapes of texts that are known to bind."""
_STAND_INS = {"salt": 0x5A17_0B5C_0DE1_5EED, "first": 0, "last": 1}
"""Values of parameters, where a text is only bound."""


@dataclass
class PlanCheck:
    """The check of a session's plans.

    Args:
        gate: proves each text and writes its normal form.
        engine: binds a text against an empty copy of the schema.
        finisher: knows the columns of public relations.
    """

    gate: Gate
    engine: Engine
    finisher: Finisher
    _bound: set[tuple[object, ...]] = field(default_factory=set)
    """Texts of quicker routes that were bound: their shapes, their values but for small numbers, and what is lent to them."""

    def describe_lent(self, plan: Plan, block: PrivateBlock) -> dict[str, Columns]:
        """Return names and columns of the public relations that a block's exact queries read."""
        schemas = {b.name: b.columns for b in plan.blocks}
        lent = {i.name: self.finisher.describe(i.sql, schemas, plan.public) for i in block.inputs}
        return {**lent, **block.operator.provides}

    def check(self, plan: Plan) -> None:
        """Prove a plan's texts, and refuse before it is paid what the engine would refuse on any data.

        Raises:
            Unproved: a text may do more than its operator charges for. BindError: the engine refuses it.
        """
        released = {b.name for b in plan.blocks}
        for block in plan.blocks:
            lent = self.describe_lent(plan, block)
            for item in block.inputs if not self.engine.lossless else ():
                if not any(name in item.sql for name in released):
                    self.engine.check_lent(self.finisher.finish(item.sql, {}, plan.public))
            self.gate.prove(block.operator, name_columns({i.name: lent[i.name] for i in block.inputs}))
            local = block.operator.local if self.engine.dialect == "duckdb" else ()
            for query in block.operator.checked:
                if query not in local:
                    self._bind(block, query, lent)
                    continue
                key = self._find_shape(query, lent)
                if key not in self._bound:
                    self._bind(block, query, lent)
                    if len(self._bound) >= MAX_BOUND_SHAPES:
                        self._bound.clear()
                    self._bound.add(key)

    def _bind(self, block: PrivateBlock, query: str, lent: Mapping[str, Columns]) -> None:
        apart, names = query in block.operator.apart, name_columns(lent)
        text = query if apart else self.gate.exact(query, names)
        written = self.engine.check(fill_parameters(text, _STAND_INS), lent, apart)
        if written is not None:
            self.gate.prove_written(block.operator, text, written, names, _STAND_INS["salt"])

    def _find_shape(self, query: str, lent: Mapping[str, Columns]) -> tuple[object, ...]:
        """Return what the binding of a quicker route's text depends on.

        Of its rows, those are the plain text's, which is bound with the very numbers that stand in it.
        """
        shaped = self.gate.shape(query, name_columns(lent))
        return shaped.shape, shaped.kinds, repr(sorted((name, *columns) for name, columns in lent.items()))


def name_columns(lent: Mapping[str, Columns]) -> dict[str, list[str]]:
    """Return the names of the columns of what is lent."""
    return {name: [column for column, _ in columns] for name, columns in lent.items()}
