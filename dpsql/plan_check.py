"""The check of a plan before payment: its texts are proved, and bound against an empty schema.

A price is named only for plans that would run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dpsql.engine.base import Engine
from dpsql.engine.postprocess import Finisher
from dpsql.labels import show_label_types
from dpsql.mechanisms.base import Columns, fill_parameters
from dpsql.plan import Plan, PrivateBlock
from dpsql.sql.exact.gate import STAND_INS, Gate

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
        described = {i.name: self.finisher.describe(i.sql, schemas, plan.public) for i in block.inputs}
        lent = {name: [(c, show_label_types(kind)) for c, kind in found] for name, found in described.items()}
        return {**lent, **block.operator.provides}

    def check(self, plan: Plan) -> None:
        """Prove a plan's texts, and refuse before payment any text that the engine would refuse on every data set.

        Raises:
            Unproved: a text may do more than its operator charges for.
            BindError: the engine refuses a text.
        """
        released = {b.name for b in plan.blocks}
        for block in plan.blocks:
            lent = self.describe_lent(plan, block)
            for item in block.inputs if not self.engine.lossless else ():
                if not any(name in item.sql for name in released):
                    self.engine.check_lent(self.finisher.finish(item.sql, {}, plan.public))
            self.gate.prove(block.operator, name_columns({i.name: lent[i.name] for i in block.inputs}))
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
        written = self.engine.check(filled, lent, apart)
        if not apart:  # a query that is run apart reads rows of one block, and no failure of it is seen
            read = tuple(sorted((name, *map(tuple, columns)) for name, columns in lent.items()))
            self.gate.prove_typed(
                block.operator, query, filled, names, lambda given: self.engine.plan(given, lent), read
            )
        if written is not None:
            self.gate.prove_written(block.operator, text, written, names, STAND_INS["salt"])

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
