"""The gate of the second lock: the engine runs no text over private rows without a proof of its own."""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache

from dpsql.binding.relations.catalog import Catalog
from dpsql.errors import PolicyError
from dpsql.late_dataclass import dataclass
from dpsql.lock.check import Serialise, check, check_tree
from dpsql.lock.plan_types import Node, list_wide_outputs
from dpsql.lock.totality import NARROW, Plan, prove_total
from dpsql.lock.tree import Base, Hop, Known, Lent, Unproved, refuse
from dpsql.mechanisms.base import ClaimedText, LentTotals, PackingClaim, PublicClaim, RouteClaim
from dpsql.mechanisms.queries import CANDIDATE_PLACE
from dpsql.policy.model import Table, fold


@dataclass(frozen=True)
class ShapedText:
    """A text split into its values and its shape, which has ``$value0`` and so on in their places."""

    shape: str
    values: tuple[str, ...]

    def list_kinds(self, bound: Collection[str]) -> tuple[str, ...]:
        """Return the values reduced to the parts that decide their types: all integers of up to nine digits are alike.

        Args:
            bound: values that are bound as parameters, so only their types matter.

        >>> values = ("7", "12.50", "0.5", "1e3", "'x'", "12345678901")
        >>> ShapedText("", values).list_kinds(values)
        ('0', '2.2', '0.1', '1e3', "''", '12345678901')
        >>> ShapedText("", values).list_kinds(())
        ('0', '12.50', '0.5', '1e3', "'x'", '12345678901')
        """
        small = ("0" if _SMALL.fullmatch(value) else value for value in self.values)
        return tuple(_say_type(kind) if kind in bound else kind for kind in small)

    def list_ranges(self) -> tuple[str, ...]:
        """Return the values reduced to the parts that decide the proof of totality, which takes small integers for any of as
        many digits: equal integers, and integers of one length and type, are alike.

        >>> ShapedText("", ("7", "99", "200", "300", "12.5", "'x'", "007", "99")).list_ranges()
        ('1:0:0', '2:0:1', '3:2:2', '3:3:3', '12.5', "'x'", '007', '2:0:1')
        """
        first: dict[str, int] = {}
        return tuple(
            f"{len(value)}:{bisect_left(NARROW, int(value))}:{first.setdefault(value, place)}"
            if _SHORT.fullmatch(value)
            else value
            for place, value in enumerate(self.values)
        )


_SMALL = re.compile(r"[0-9]{1,9}")
_SHORT = re.compile(r"0|[1-9][0-9]{0,8}")
"""Integers as a plan shows them."""
_DECIMAL = re.compile(r"(0|[1-9][0-9]*|)\.([0-9]*)")


def _say_type(value: str) -> str:
    """Return what decides a literal's type: its digits, or the literal itself if its value may decide."""
    if value.startswith("'"):
        return "''"
    found = _DECIMAL.fullmatch(value)
    if found is None:
        return value
    whole, rest = found.groups()
    return f"{0 if whole == '0' else len(whole) or 'none'}.{len(rest)}"


MAX_PROVED = 2000
"""Cached proofs."""
MAX_SERIALISED = 8
"""Cached trees of the engine's parser: a text without a claim of its own is tried under each of an operator's."""

Columns = Mapping[str, Sequence[str]]
"""Columns of public relations passed with a text, by relation name."""


@dataclass
class Lock:
    """Proves the texts of one session, given the tables' places in the engine and the engine's own parser."""

    catalog: Catalog
    serialise: Serialise
    _proved: dict[tuple[object, ...], frozenset[str] | None] = field(default_factory=dict)
    """Proved texts with their integer outputs of at most 38 digits; None for packed rows."""
    _tables: dict[tuple[str, ...], Base] | None = None
    _outputs: dict[tuple[object, ...], list[tuple[str, Node]]] = field(default_factory=dict)
    """Outputs of texts with proved casts, by shape, types of values, and relations read."""

    def __post_init__(self) -> None:
        self.serialise = lru_cache(MAX_SERIALISED)(self.serialise)

    def prove(self, claimed: ClaimedText, lent: Columns) -> frozenset[str] | None:
        """Prove a text in normal form, unless it was proved before; ``lent``: the columns of public relations passed with it.

        Return its integer outputs of at most 38 digits; None for packed rows.
        """
        key = (claimed.text, *_key(claimed))
        if key not in self._proved:
            self._remember(key, check(claimed, self._known(lent), self.serialise))
        return self._proved[key]

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
        """Prove that no value of a column makes a text fail: in a cast that DuckDB adds, or when results are exported.

        Args:
            text: the text, with values for its parameters.
            lent: the columns of the public relations passed with it, without those of its operator.
            shaped: the text with its parameters, split into shape and values.
            plan: returns DuckDB's bound plan of a text.
            late: whether an operator wrote it while running. Then Python reads its outputs, and integers of any size fit.
            read: names and types of all columns passed with it, a part of the cache key; None to cache nothing.
        """
        place: tuple[object, ...] = (shaped.shape, shaped.list_ranges(), read)
        exact = (shaped.shape, shaped.values, read)
        outputs = self._outputs.get(place, self._outputs.get(exact)) if read is not None else None
        if outputs is None:
            try:
                outputs = prove_total(text, plan)
            except Unproved:
                place, outputs = exact, prove_total(text, plan, exact=True)
            if len(self._outputs) >= MAX_PROVED:
                self._outputs.clear()
            if read is not None:
                self._outputs[place] = outputs
        if late:
            return
        wide = list_wide_outputs(outputs)
        for claimed in mine if wide else ():
            if isinstance(claimed.claim, PublicClaim):  # it reads no private rows
                continue
            narrow = self.prove(claimed, lent)
            if narrow is not None and not wide <= narrow:
                refuse("an integer output of more than 38 digits, which Arrow can't represent")
        if wide and not mine:
            refuse("an output of a text without a claim")

    def prove_late(self, text: str, claims: Sequence[ClaimedText], lent: Columns) -> None:
        """Prove a text that an operator wrote while running, under one of the operator's claims."""
        late = [replace(c, text=text) for c in claims if not isinstance(c.claim, RouteClaim)]
        if not any((text, *_key(claimed)) in self._proved for claimed in late):
            _prove_under_one(late, lambda claimed: self.prove(claimed, lent))

    def prove_written(
        self,
        text: str,
        mine: Sequence[ClaimedText],
        claims: Sequence[ClaimedText],
        lent: Columns,
        salt: int | None,
    ) -> None:
        """Prove a text in Spark's SQL under each of its claims (``mine``), or under any one of ``claims`` if it has none."""
        known = self._known(lent)
        key = (text, *map(_key, mine))
        if mine and key in self._proved:
            return
        from dpsql.lock.spark_reader import read_spark

        query = read_spark(text, {path[-1]: path for path in known.tables}, salt)
        for claimed in mine:
            check_tree(query, claimed, known)
        if mine:
            self._remember(key, None)
        else:
            _prove_under_one(claims, lambda claimed: check_tree(query, claimed, known))

    def _remember(self, key: tuple[object, ...], narrow: frozenset[str] | None) -> None:
        if len(self._proved) >= MAX_PROVED:
            self._proved.clear()
        self._proved[key] = narrow

    # -- the policy's tables ------------------------------------------------------------------------------------

    def _known(self, lent: Columns) -> Known:
        if self._tables is None:
            self._tables = {}
            for table in self.catalog.policy.tables.values():
                # a missing table is refused when a text reads it
                with contextlib.suppress(PolicyError, Unproved):
                    self._tables[self.catalog.engine.place(table)] = self._base(table)
        relations = {
            name: Lent(frozenset(columns), unique=CANDIDATE_PLACE if CANDIDATE_PLACE in columns else None)
            for name, columns in lent.items()
        }
        return Known(self._tables, relations, macros=self.catalog.engine.macros)

    def _base(self, table: Table) -> Base:
        schema = dict(self.catalog.schema(table))
        if table.public:
            return Base(schema, public=True)
        path = table.unit_path
        per_period = self.catalog.policy.budget.per_period
        undated = per_period and table.period is None
        if not path:
            return Base(schema, undated=undated)
        hops = []
        for hop in path[1:]:
            target = self.catalog.find(hop.table, None)
            column = self._column(target, hop.column)
            kind = self.catalog.schema(target)[column]
            parted = hop is path[-1] and target.declared_period is not None
            kind = self._parted(target, kind)[0] if parted else kind
            hops.append(
                Hop(self.catalog.engine.place(target), self._column(target, hop.key), column, kind, parted)
            )
        unit = self._column(table, path[0].column)
        kind, period = self._parted(table, schema[unit])
        dated = per_period and period is not None
        return Base(schema, False, unit, tuple(hops), kind, period, dated, undated)

    def _parted(self, table: Table, kind: str) -> tuple[str, tuple[str, str, str] | None]:
        """Return a unit's type, made different for units of different periods, and its period."""
        period = table.declared_period
        if period is None:
            return kind, None
        column = self._column(table, period.column)
        taken = f"{period.function} {period.part} of {self.catalog.schema(table)[column]}"
        return f"{kind} in {taken}", (period.function, period.part, column)

    def _column(self, table: Table, name: str) -> str:
        found = next((known for known in self.catalog.schema(table) if fold(known) == fold(name)), None)
        if found is None:
            refuse("a missing privacy unit column")
        return found


def _key(claimed: ClaimedText) -> tuple[object, ...]:
    return claimed.claim, claimed.periods, tuple(sorted(claimed.lent))


def _prove_under_one(claims: Sequence[ClaimedText], prove: Callable[[ClaimedText], object]) -> None:
    """Prove a late text under one of these claims, packed rows first: a text of another shape soon fails that claim."""
    different = {_key(claimed): claimed for claimed in claims if not isinstance(claimed.claim, RouteClaim)}
    for claimed in sorted(different.values(), key=lambda one: not isinstance(one.claim, PackingClaim)):
        with contextlib.suppress(Unproved):
            prove(claimed)
            return
    refuse("a text without a claim")


def columns_of(claimed: ClaimedText) -> dict[str, tuple[str, ...]]:
    """Return the columns of the relations that an operator passes with its own text."""
    given = claimed.lent.items()
    return {name: it.names if isinstance(it, LentTotals) else tuple(it) for name, it in given}
