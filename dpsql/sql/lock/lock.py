"""The second lock on the way of every exact text to the engine: nothing is read that was not proved."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.errors import PolicyError
from dpsql.mechanisms.base import ClaimedText, LentTotals, RouteClaim
from dpsql.mechanisms.fast.candidate_scores import CANDIDATE_PLACE
from dpsql.policy.model import Table, fold
from dpsql.sql.lock.casts import Node, Plan, prove_casts
from dpsql.sql.lock.check import Serialise, check, check_pattern, check_tree
from dpsql.sql.lock.exits import list_wide_outputs
from dpsql.sql.lock.patterns import Patterns, ShapedText
from dpsql.sql.lock.spark_reader import read_spark
from dpsql.sql.lock.tree import Base, Hop, Known, Lent, Unproved, refuse
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
    _patterns: Patterns = field(default_factory=Patterns)
    _tables: dict[tuple[str, ...], Base] | None = None
    _outputs: dict[tuple[object, ...], list[tuple[str, Node]]] = field(default_factory=dict)
    """The outputs of texts whose casts were proved, by shape, by the types of values, and by what they read."""
    _held: dict[tuple[object, ...], frozenset[str] | None] = field(default_factory=dict)
    """The outputs of proved texts that are integers of at most 38 digits."""

    def prove(self, claimed: ClaimedText, lent: Columns, shaped: ShapedText | None = None) -> None:
        """Prove a text in normal form, once; or the pattern of those that differ from it in values alone.

        Args:
            claimed: the text and its claim.
            lent: the columns of the relations that are lent to it.
            shaped: the same text, as its shape and values; None where it has none.

        Raises:
            Unproved: it may do more than its operator charges for.
        """
        key = (claimed.text, *_key(claimed))
        if key in self._proved:
            return
        rests_on = _rests_on(claimed, lent)
        if shaped is not None and self._patterns.cover(shaped, rests_on):
            return
        known = self._known(lent)
        self._remember_held(key, check(claimed, known, self.serialise))
        self._remember(key)
        if shaped is None or not shaped.values:
            return

        def prove(pattern: str, names: frozenset[str]) -> None:
            found = check_pattern(replace(claimed, text=pattern), known, self.serialise, names)
            place = (shaped.shape, rests_on)
            before = self._held.get(place, found)
            self._remember_held(place, found if before is None or found is None else before & found)

        self._patterns.learn(shaped, rests_on, prove)

    def prove_typed(
        self,
        text: str,
        mine: Sequence[ClaimedText],
        lent: Columns,
        shaped: ShapedText,
        plan: Plan,
        late: bool = False,
        read: object = None,
    ) -> None:
        """Prove that no value of a text's columns can end it: by a cast that DuckDB adds, or on the way out of the engine.

        Args:
            text: the text, with values for its parameters.
            mine: the claims that are made for it.
            lent: the columns of what is lent to it besides what its operator lends.
            shaped: the text with its parameters, as its shape and values.
            plan: gives DuckDB's bound plan of a text.
            late: whether an operator wrote it as it ran. What it gives is read in Python alone, which has every integer.
            read: the names and types of all columns that are lent to it. Its plan is read once for texts of one shape whose
                values have the same types; None for each text anew.

        Raises:
            Unproved: one may.
        """
        place = (shaped.shape, shaped.list_ranges(), read)
        outputs = self._outputs.get(place) if read is not None else None
        if outputs is None:
            outputs = prove_casts(text, plan)
            if len(self._outputs) >= MAX_PROVED:
                self._outputs.clear()
            if read is not None:
                self._outputs[place] = outputs
        if late:
            return
        wide = list_wide_outputs(outputs)
        for claimed in mine if wide else ():
            held = self._find_held(claimed, lent, shaped, wide)
            if held is not None and not wide <= held:
                refuse("an output that is an integer of more than 38 digits, which has no way out")
        if wide and not mine:
            refuse("an output of a text that no claim is made for")

    def _find_held(
        self, claimed: ClaimedText, lent: Columns, shaped: ShapedText, wide: frozenset[str]
    ) -> frozenset[str] | None:
        """Return the outputs of a proved text that have at most 38 digits; None where all are numbers packed into one."""
        key = (claimed.text, *_key(claimed))
        for place in (key, (shaped.shape, _rests_on(claimed, lent))):
            if place in self._held:
                held = self._held[place]
                if held is None or wide <= held:
                    return held
        held = check(claimed, self._known(lent), self.serialise)
        self._remember_held(key, held)
        return held

    def _remember_held(self, key: tuple[object, ...], held: frozenset[str] | None) -> None:
        if len(self._held) >= MAX_PROVED:
            self._held.clear()
        self._held[key] = held

    def prove_late(
        self, text: str, claims: Sequence[ClaimedText], lent: Columns, shaped: ShapedText | None = None
    ) -> None:
        """Prove a text that an operator made as it ran, under one of its claims.

        Raises:
            Unproved: under none of them.
        """
        late = [replace(claimed, text=text) for claimed in claims]
        if any(self._is_covered(claimed, lent, shaped) for claimed in late):
            return
        if any(
            (text, *_key(claimed)) in self._proved
            for claimed in late
            if not isinstance(claimed.claim, RouteClaim)
        ):
            return
        _prove_under_one(late, lambda claimed: self.prove(claimed, lent, shaped))

    def _is_covered(self, claimed: ClaimedText, lent: Columns, shaped: ShapedText | None) -> bool:
        """Tell whether a proved pattern covers a text under its claim; one of a route says nothing about late texts."""
        if shaped is None or isinstance(claimed.claim, RouteClaim):
            return False
        return self._patterns.cover(shaped, _rests_on(claimed, lent))

    def prove_written(
        self,
        text: str,
        mine: Sequence[ClaimedText],
        claims: Sequence[ClaimedText],
        lent: Columns,
        salt: int | None,
    ) -> None:
        """Prove a text in Spark's SQL under each claim made for it, or under any claim where none is.

        Raises:
            Unproved: it may do more.
        """
        known = self._known(lent)
        key = (text, *map(_key, mine))
        if mine and key in self._proved:
            return
        query = read_spark(text, {path[-1]: path for path in known.tables}, salt)
        for claimed in mine:
            check_tree(query, claimed, known)
        if mine:
            self._remember(key)
        else:
            _prove_under_one(claims, lambda claimed: check_tree(query, claimed, known))

    def _remember(self, key: tuple[object, ...]) -> None:
        if len(self._proved) >= MAX_PROVED:
            self._proved.clear()
        self._proved.add(key)

    # -- what names mean ----------------------------------------------------------------------------------------

    def _known(self, lent: Columns) -> Known:
        if self._tables is None:
            self._tables = {}
            for table in self.catalog.policy.tables.values():
                with contextlib.suppress(PolicyError, Unproved):  # nobody reads a table that is not there
                    self._tables[self._path(table)] = self._base(table)
        relations = {
            name: Lent(frozenset(columns), unique=CANDIDATE_PLACE if CANDIDATE_PLACE in columns else None)
            for name, columns in lent.items()
        }
        return Known(self._tables, relations, macros=self.catalog.engine.macros)

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
            parted = hop is path[-1] and target.declared_period is not None
            kind = self._parted(target, kind)[0] if parted else kind
            hops.append(Hop(self._path(target), self._column(target, hop.key), column, kind, parted))
        unit = self._column(table, path[0].column)
        kind, period = self._parted(table, schema[unit])
        return Base(schema, False, unit, tuple(hops), kind, period)

    def _parted(self, table: Table, kind: str) -> tuple[str, tuple[str, str, str] | None]:
        """Return the type of a unit with its period, which no unit of another period is of, and the period."""
        period = table.declared_period
        if period is None:
            return kind, None
        column = self._column(table, period.column)
        taken = f"{period.function} {period.part} of {self.catalog.schema(table)[column]}"
        return f"{kind} in {taken}", (period.function, period.part, column)

    def _column(self, table: Table, name: str) -> str:
        found = next((known for known in self.catalog.schema(table) if fold(known) == fold(name)), None)
        if found is None:
            refuse("a privacy unit that is not there")
        return found


def _key(claimed: ClaimedText) -> tuple[object, ...]:
    return claimed.claim, tuple(sorted(claimed.lent))


def _rests_on(claimed: ClaimedText, lent: Columns) -> tuple[object, ...]:
    """Return all that a proof rests on besides the text and the policy."""
    return claimed.claim, repr(sorted(claimed.lent.items())), repr(sorted(lent.items()))


def _prove_under_one(claims: Sequence[ClaimedText], prove: Callable[[ClaimedText], object]) -> None:
    """Prove a text that was made late, under one of the claims that say what it may do."""
    different = {_key(claimed): claimed for claimed in claims if not isinstance(claimed.claim, RouteClaim)}
    for claimed in different.values():
        with contextlib.suppress(Unproved):
            prove(claimed)
            return
    refuse("a text that no claim is made for")


def columns_of(claimed: ClaimedText) -> dict[str, tuple[str, ...]]:
    """Return the columns of what an operator lends to a text of its own."""
    return {
        name: given.names if isinstance(given, LentTotals) else tuple(given)
        for name, given in claimed.lent.items()
    }  # fmt: skip
