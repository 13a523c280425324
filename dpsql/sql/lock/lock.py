"""The second lock on the way of every exact text to the engine: nothing is read that was not proved."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.errors import PolicyError
from dpsql.mechanisms.base import Claim, ClaimedText, LentTotals, RouteClaim
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_PLACE
from dpsql.policy.model import Table, fold
from dpsql.sql.lock.check import Serialise, check, check_tree
from dpsql.sql.lock.spark_reader import read_spark
from dpsql.sql.lock.tree import Base, Hop, Known, Lent, Query, Unproved, refuse
from dpsql.sql.relations.catalog import Catalog

MAX_PROVED = 2000
"""Proofs that are remembered."""

Columns = Mapping[str, Sequence[str]]
"""The columns of lent relations, by name."""


@dataclass
class Lock:
    """Proves the texts of one session.

    Args:
        catalog: the policy's tables and where the engine has them.
        serialise: the engine's own parser.
    """

    catalog: Catalog
    serialise: Serialise
    _proved: set[tuple[object, ...]] = field(default_factory=set)
    _tables: dict[tuple[str, ...], Base] | None = None

    def prove(self, claimed: ClaimedText, lent: Columns) -> None:
        """Proves a text in normal form, once.

        Raises:
            Unproved: it may do more than its operator charges for.
        """
        key = (claimed.text, claimed.claim, tuple(sorted(claimed.lent)))
        if key in self._proved:
            return
        check(claimed, self._known(lent), self.serialise)
        self._remember(key)

    def prove_late(self, text: str, claims: Sequence[ClaimedText], lent: Columns) -> None:
        """Proves a text that an operator made as it ran, with numbers that it had read: under one of its claims.

        Raises:
            Unproved: under none of them.
        """
        tried: set[tuple[Claim, tuple[str, ...]]] = set()
        for claimed in claims:
            key = (claimed.claim, tuple(sorted(claimed.lent)))
            if isinstance(claimed.claim, RouteClaim) or key in tried:
                continue
            tried.add(key)
            try:
                self.prove(replace(claimed, text=text), lent)
                return
            except Unproved:
                continue
        refuse("a text that no claim is made for")

    def prove_written(
        self,
        text: str,
        mine: Sequence[ClaimedText],
        claims: Sequence[ClaimedText],
        lent: Columns,
        salt: int | None,
    ) -> None:
        """Prove a text in Spark's SQL: under each claim that is made for it, or under one of all where none is.

        Raises:
            Unproved: it may do more.
        """
        known = self._known(lent)
        key = (text, tuple((c.claim, tuple(sorted(c.lent))) for c in mine))
        if mine and key in self._proved:
            return
        assert self._tables is not None
        tree = read_spark(text, {path[-1]: path for path in self._tables}, salt)
        for claimed in mine:
            check_tree(tree, claimed, known)
        if mine:
            self._remember(key)
        elif not any(_within(tree, claimed, known) for claimed in claims):
            refuse("a text that no claim is made for")

    def _remember(self, key: tuple[object, ...]) -> None:
        if len(self._proved) >= MAX_PROVED:
            self._proved.clear()
        self._proved.add(key)

    # -- what names mean ----------------------------------------------------------------------------------------

    def _known(self, lent: Columns) -> Known:
        if self._tables is None:
            self._tables = {}
            for table in self.catalog.policy.tables.values():
                with contextlib.suppress(
                    PolicyError, Unproved
                ):  # a table that is not there is read by nobody
                    self._tables[self._path(table)] = self._base(table)
        relations = {
            name: Lent(frozenset(columns), unique=CANDIDATE_PLACE if CANDIDATE_PLACE in columns else None)
            for name, columns in lent.items()
        }
        macros = self.catalog.engine.macros
        return Known(self._tables, relations, macros=macros)

    def _path(self, table: Table) -> tuple[str, ...]:
        engine = self.catalog.engine
        node = exp.maybe_parse(engine.relation(table), into=exp.Table, dialect=engine.dialect)
        return tuple(part.name for part in node.parts)

    def _base(self, table: Table) -> Base:
        schema = dict(self.catalog.schema(table))
        if table.public:
            return Base(schema, public=True)
        path = table.unit_path
        if not path:
            return Base(schema)
        hops = []
        for hop in path[1:]:
            target = self.catalog.find(hop.table, None)
            column = self._column(target, hop.column)
            kind = self.catalog.schema(target)[column]
            hops.append(Hop(self._path(target), self._column(target, hop.key), column, kind))
        unit = self._column(table, path[0].column)
        return Base(schema, False, unit, tuple(hops), schema[unit])

    def _column(self, table: Table, name: str) -> str:
        found = next((known for known in self.catalog.schema(table) if fold(known) == fold(name)), None)
        if found is None:
            refuse("a privacy unit that is not there")
        return found


def _within(tree: Query, claimed: ClaimedText, known: Known) -> bool:
    """Return whether a query that was made late is proved under a claim that says what it may do."""
    if isinstance(claimed.claim, RouteClaim):
        return False
    try:
        check_tree(tree, claimed, known)
    except Unproved:
        return False
    return True


def columns_of(claimed: ClaimedText) -> dict[str, tuple[str, ...]]:
    """The columns of what an operator lends to a text of its own."""
    return {
        name: given.names if isinstance(given, LentTotals) else tuple(given)
        for name, given in claimed.lent.items()
    }  # fmt: skip
