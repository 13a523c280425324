"""Plans of statements that were bound before: asking again costs no parsing of expressions and no proofs of bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dpsql.engine.postprocess import Finisher
from dpsql.plan import Plan
from dpsql.sql.bind import bind
from dpsql.sql.parse.statements import Statement
from dpsql.sql.relations.catalog import Catalog

_MOST = 200


class _Watched:
    """A finisher that tells whether public rows were looked at: what a plan makes of these may be another tomorrow. Those
    that are kept are the same for the whole session; ``kept`` are the queries of them, and the tables that they read.
    """

    def __init__(self, finisher: Finisher) -> None:
        self._finisher = finisher
        self.looked = False
        self.kept: set[str] = set()

    def steady(self, plan: Plan) -> bool:
        """Whether a plan that was made with this would be the same again."""
        needed = {*plan.public, *(item.sql for block in plan.blocks for item in block.inputs)}
        return not self.looked and needed <= self.kept

    def describe(
        self, sql: str, relations: Mapping[str, Sequence[tuple[str, str]]], public: Iterable[str] = ()
    ) -> list[tuple[str, str]]:
        return self._finisher.describe(sql, relations, public)

    def finish(self, sql: str, relations: Mapping[str, pa.Table], public: Iterable[str] = ()) -> pa.Table:
        self.looked = True
        return self._finisher.finish(sql, relations, public)

    def keep(self, sql: str, public: Iterable[str] = ()) -> pa.Table:
        self.kept |= {sql, *public}
        return self._finisher.keep(sql, public)


class Plans:
    """Binds statements, each text once for each default epsilon.

    A plan is a value that depends on the statement's text, the policy and the schema, which a catalog reads once. Whatever
    depends on more is bound anew: parameters, thresholds, registered functions, kept results, public rows but for those
    that a session reads once. So are refusals.
    """

    def __init__(self, finisher: Finisher) -> None:
        self._finisher = finisher
        self._kept: dict[tuple[object, ...], Plan] = {}

    def bind(self, statement: Statement, catalog: Catalog, declared: dict[str, Any]) -> Plan:
        """Return the plan of a query.

        Raises:
            BindError, PrivacyError: as :func:`dpsql.sql.bind.bind`.
        """
        if catalog.functions or catalog.kept or declared or "$" in statement.source:
            return bind(statement, catalog, self._finisher, declared)
        key = (statement.text, statement.span, catalog.default_epsilon)
        plan = self._kept.get(key)
        if plan is None:
            watched = _Watched(self._finisher)
            plan = bind(statement, catalog, watched, declared)
            if watched.steady(plan):
                if len(self._kept) >= _MOST:
                    self._kept.clear()
                self._kept[key] = plan
        return plan
