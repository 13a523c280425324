"""A session's exact queries: proved and bound before payment, read after it.

A refusal depends on the text, the policy and the schemas alone: no row is read before payment. The module stands apart from
``compiler.py``, which knows names and cells, because it alone hands texts to the engine, and each through the gate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

import pyarrow as pa

from dpsql.binding.plan import Plan, PrivateBlock
from dpsql.binding.relations.catalog import Catalog
from dpsql.engine.base import Engine
from dpsql.engine.postprocess import Finisher
from dpsql.engine.sandbox import NO_PLAN
from dpsql.exact.gate import STAND_INS, Gate
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import Columns, NormalForm, Operator, Prove, Read, Reader, Release, fill_parameters
from dpsql.noise.entropy import Entropy
from dpsql.privacy.periods import Days

MAX_BOUND_SHAPES = 1000
"""The most shapes of texts remembered as bindable."""


@dataclass
class GatedQueries:
    """The exact queries of plans; each text passes the gate on its way to the engine."""

    gate: Gate
    engine: Engine
    finisher: Finisher
    _bound: set[tuple[object, ...]] = field(default_factory=set)
    """Texts that were bound with others: their shapes, value types, and public relations' columns."""

    @classmethod
    def of(cls, catalog: Catalog, engine: Engine, finisher: Finisher) -> GatedQueries:
        """Return the queries of plans that are bound against a catalog."""
        return cls(Gate(catalog, engine.parse, engine.plan_late), engine, finisher)

    def describe_lent(self, plan: Plan, block: PrivateBlock) -> dict[str, Columns]:
        """Return the names and columns of the public relations that a block's exact queries read."""
        schemas = {b.name: b.columns for b in plan.blocks}
        lent = {i.name: self.finisher.describe_shown(i.sql, schemas, plan.public) for i in block.inputs}
        return {**lent, **block.operator.provides}

    def name_lent(self, plan: Plan, block: PrivateBlock) -> dict[str, list[str]]:
        """Return the names of these relations' columns."""
        return name_columns(self.describe_lent(plan, block))

    def write(self, plan: Plan, block: PrivateBlock, query: str) -> str:
        """Return the engine's text for a query, as EXPLAIN shows it."""
        return query if query in block.operator.apart else self.gate.shown(query, self.name_lent(plan, block))

    # -- before payment -----------------------------------------------------------------------------------------

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

    # -- after payment ------------------------------------------------------------------------------------------

    def release(self, block: PrivateBlock, lent: Mapping[str, pa.Table], entropy: Entropy) -> Release:
        """Draw a block over its public relations. It reads private rows."""
        with self.engine.within(block.periods):
            return block.operator.release(self.reader(lent, block.operator, block.periods), entropy)

    def reader(
        self, lent: Mapping[str, pa.Table], operator: object = None, periods: Days | None = ()
    ) -> Read:
        """Return the function that reads exact rows for an operator, with its paying periods; without one, nothing is proved."""
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


def name_columns(lent: Mapping[str, Columns]) -> dict[str, list[str]]:
    """Return the column names of the public relations."""
    return {name: [column for column, _ in columns] for name, columns in lent.items()}
