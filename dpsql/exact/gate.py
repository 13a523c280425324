"""The texts of exact queries: to run, to compare, and to show.

* To run: every exact query passes the gate, which writes its normal form and proves it safe.
* To compare: equal queries have one text, however a statement is written. It is the normal form with sorted conditions and
  comparisons. Public relations are named by their place among a block's inputs, or by their content.
* To show: the unit's secret column name is replaced by a fixed one; :mod:`dpsql.exact.normal_form` adds the layout.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from dpsql.binding.relations.catalog import Catalog
from dpsql.binding.relations.plan_size import write_shared
from dpsql.binding.relations.relation import UNIT
from dpsql.exact.normal_form import (
    normalise,
    number_parameters,
    restore_values,
    write_by_shape,
    write_parameters,
)
from dpsql.language.dialect import list_nodes, parse_fragment, to_sql, write_whole
from dpsql.late_dataclass import dataclass
from dpsql.lock.check import Serialise
from dpsql.lock.lock import Lock, ShapedText, columns_of
from dpsql.lock.totality import Plan
from dpsql.mechanisms.base import ClaimedText, Operator, Prove, fill_parameters, list_claims
from dpsql.policy.model import Policy, Table, fold
from dpsql.privacy.periods import Days

MAX_KEPT = 1000
"""Cached normal forms of texts without their values."""
STAND_INS = {"salt": 0x5A17_0B5C_0DE1_5EED, "first": 0, "last": 1}
"""Values of parameters for binding a text without running it."""
PlanLate = Callable[[str, Mapping[str, pa.Table]], str]
"""Returns DuckDB's bound plan of a text as JSON, given the relations passed with it."""
MAX_TREES = 8
"""Cached trees of normal forms, each for the text to compare."""
MAX_EXACT_TEXTS = 50
"""Cached texts with their values: one statement writes each of its texts several times."""


@dataclass(frozen=True)
class Form:
    """A text to compare, the policy's tables that it reads, and the names of its columns."""

    text: str
    tables: tuple[str, ...]
    columns: frozenset[str]


class TableNames(Protocol):
    """The names of tables in exact texts."""

    def place(self, table: Table) -> tuple[str, str, str]: ...


@dataclass
class Forms:
    """Writes a session's exact texts in the form to compare; ``content`` returns equal texts for public tables of equal rows."""

    gate: Gate
    policy: Policy
    source: TableNames
    content: Callable[[Table], str]
    _made: Callable[[str, tuple[str, ...]], Form] = field(init=False)
    _found: Callable[[str, tuple[str, ...]], Form] = field(init=False)

    def __post_init__(self) -> None:
        self._made = lru_cache(MAX_KEPT)(self._form)
        self._found = lru_cache(MAX_EXACT_TEXTS)(self._find)

    def of(self, sql: str, lent: Mapping[str, Sequence[str]], inputs: tuple[str, ...]) -> Form:
        """Return the form of a text; texts that differ in values only share the work.

        Args:
            lent: the columns of the relations passed with it.
            inputs: the names of a block's inputs, in order.

        Raises:
            UnresolvedName, ParseError: it is no exact query.
        """
        return self._found(self.gate.shown(sql, lent), inputs)

    def _find(self, normal: str, inputs: tuple[str, ...]) -> Form:
        form, values = write_by_shape(normal, lambda text: self._made(text, inputs))
        return replace(form, text=restore_values(form.text, values))

    def _form(self, text: str, inputs: tuple[str, ...]) -> Form:
        tree = self.gate.take_tree(text)
        tables, nodes = [], list_nodes(tree)
        renamed = False
        for node in nodes:
            if not isinstance(node, exp.Table):
                continue
            parts = tuple(part.name for part in node.parts)
            if len(parts) == 1 and parts[0] in inputs:
                node.set("this", exp.to_identifier(f"input {inputs.index(parts[0])}", quoted=True))
                renamed = True
                continue
            if (table := self._tables.get(parts)) is None:
                continue
            tables.append(table.name)
            if table.public:
                content = exp.to_identifier(self.content(table), quoted=True)
                node.replace(exp.Table(this=content, alias=node.args.get("alias")))
                renamed = True
        columns = frozenset(fold(node.name) for node in nodes if isinstance(node, exp.Column))
        changes = _sort_conditions(nodes)
        found = None if renamed else _replace_once(text, changes)
        return Form(write_parameters(tree) if found is None else found, tuple(tables), columns)

    @cached_property
    def _tables(self) -> dict[tuple[str, ...], Table]:
        """The policy's tables by their names in exact texts."""
        return {self.source.place(table): table for table in self.policy.tables.values()}


_TURNED = {exp.LT: exp.GT, exp.LTE: exp.GTE}


def _sort_conditions(nodes: Sequence[exp.Expr]) -> list[tuple[str, str]]:
    """Sort conditions and comparisons, equivalent on all data, in place; return the texts of each before and after."""
    found = [n for n in nodes if isinstance(n, exp.And | exp.Or | exp.EQ | exp.NEQ | exp.LT | exp.LTE)]
    changes = []
    for node in reversed(found):  # the inner ones first
        made: exp.Expr
        if isinstance(node, exp.And | exp.Or):
            around = node.parent
            while isinstance(around, exp.Paren):
                around = around.parent
            if isinstance(around, type(node)):
                continue
            before = write_whole(node)
            parts = sorted(_conditions(node, type(node)), key=to_sql)
            made = exp.Anonymous(this=f"all of {node.key}", expressions=parts)
        elif type(node) in _TURNED or to_sql(node.this) > to_sql(node.expression):
            before = write_whole(node)
            turned = _TURNED.get(type(node), type(node))
            made = turned(this=node.expression, expression=node.this)
        else:
            continue
        node.replace(made)
        changes.append((before, write_whole(made)))
    return changes


def _replace_once(text: str, changes: Iterable[tuple[str, str]]) -> str | None:
    """Return a text with parts of it replaced in turn; None unless each part occurs exactly once."""
    for before, after in changes:
        if text.count(before) != 1:
            return None
        text = text.replace(before, after)
    return text


def _conditions(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    inner: exp.Expr = node.unnest()
    if isinstance(inner, kind):
        return [*_conditions(inner.this, kind), *_conditions(inner.expression, kind)]
    return [inner]


class Gate:
    """The only way from an operator's texts to an engine; a text that may do more than its charge raises Unproved.

    Args:
        catalog: the names of tables, columns and struct fields, which no alias has.
        serialise: the engine's own parser, for the second lock.
        plan: returns DuckDB's bound plan of a text that an operator wrote while running; None if there are none.
    """

    def __init__(self, catalog: Catalog, serialise: Serialise, plan: PlanLate | None = None) -> None:
        self._catalog = catalog
        self._lock = Lock(catalog, serialise)
        self._plan = plan
        self._typed: dict[tuple[object, ...], None] = {}
        """Late texts with proved types: their shapes, the types of their values, and the relations passed with them."""
        self._unit = f"unit_{secrets.token_hex(8)}"
        self._claimed: tuple[object, Days | None, tuple[ClaimedText, ...]] | None = None
        """The last proved operator with its periods and claims."""
        self._made = lru_cache(MAX_KEPT)(self._made_once)
        self._trees: dict[str, tuple[exp.Expr, tuple[int, ...]]] = {}
        """The latest normal forms, by comparison text without values, with the former numbers of the values."""
        self._write = lru_cache(MAX_EXACT_TEXTS)(self._write_shaped)

    def exact(self, sql: str, lent: Mapping[str, Sequence[str]]) -> str:
        """Return the text that the engine runs for an operator's query; ``lent``: the public relations' columns, by relation."""
        return self._write(*self._whole(sql, lent))[0]

    def shape(self, sql: str, lent: Mapping[str, Sequence[str]]) -> ShapedText:
        """Return the engine's text split into shape and values."""
        return self._write(*self._whole(sql, lent))[1]

    def _write_shaped(self, sql: str, known: _Pairs) -> tuple[str, ShapedText]:
        """Return the engine's text, whole and split into shape and values."""
        (text, shape, used), values = write_by_shape(sql, lambda text: self._made(text, known))
        return restore_values(text, values), ShapedText(shape, tuple(values[place] for place in used))

    def _made_once(self, sql: str, known: _Pairs) -> tuple[str, str, tuple[int, ...]]:
        """Return the engine's text without values, its parameters numbered in order, and their former numbers."""
        taken = {fold(name) for relation, columns in known for name in (relation, *columns)}
        tree = normalise(sql, dict(known), self._catalog.names | taken, self._unit)
        text = write_parameters(tree)
        shape, used = number_parameters(text)
        if len(self._trees) >= MAX_TREES:
            self._trees.clear()
        self._trees[shape.replace(self._unit, UNIT)] = tree, used
        return text, shape, used

    def take_tree(self, shape: str) -> exp.Expr:
        """Return the tree of a comparison text without its values; the caller may change it."""
        known = self._trees.pop(shape, None)
        if known is None:
            return parse_fragment(shape)
        tree, used = known
        numbers = {f"value{place}": f"value{number}" for number, place in enumerate(used)}
        for node in list_nodes(tree):
            if isinstance(node, exp.Placeholder):
                node.set("this", numbers.get(node.name, node.name))
            elif isinstance(node, exp.Identifier) and node.this == self._unit:
                node.set("this", UNIT)
        return tree

    def prove(self, operator: object, lent: Mapping[str, Sequence[str]], periods: Days | None = ()) -> None:
        """Prove an operator's texts before anything is paid, except late ones, which are proved when they are read.

        ``periods``, here and below: those that pay for the operator; None for all, () for none.
        """
        self._claimed = None
        for claimed in self._list_claims(operator, periods):
            if claimed.late:
                continue
            given = {**lent, **columns_of(claimed)}
            self._lock.prove(replace(claimed, text=self.exact(claimed.text, given)), lent)

    def prove_typed(
        self,
        operator: object,
        query: str,
        filled: str,
        lent: Mapping[str, Sequence[str]],
        plan: Plan,
        read: object,
        periods: Days | None = (),
    ) -> None:
        """Prove that no value of a column makes an operator's text fail.

        Args:
            filled: the engine's text, with values for its parameters.
            lent: the columns of the relations passed with it.
            plan: returns DuckDB's bound plan of a text.
            read: the names and types of these columns.
        """
        text, shaped = self._write(*self._whole(query, lent))
        mine, others = _find_claims(query, text, lent, self._list_claims(operator, periods))
        self._lock.prove_typed(filled, mine, others, shaped, plan, read=read)

    def _list_claims(self, operator: object, periods: Days | None) -> tuple[ClaimedText, ...]:
        """Return an operator's claims, cached since :meth:`prove`."""
        known = self._claimed
        if known is None or known[0] is not operator or known[1] != periods:  # other threads may replace it
            claims = tuple(replace(claimed, periods=periods) for claimed in list_claims(operator))
            known = self._claimed = (operator, periods, claims)
        return known[2]

    def reading(
        self, operator: object, periods: Days | None = ()
    ) -> Callable[[str, Mapping[str, pa.Table]], str]:
        """Return a function that writes and proves each text that an operator reads, given its passed relations.

        Without an operator nothing is released, so the function only writes the normal form, for tests of exact rows.
        """
        claims = () if operator is None else self._list_claims(operator, periods)

        def text(sql: str, lent: Mapping[str, pa.Table]) -> str:
            columns = {name: table.column_names for name, table in lent.items()}
            return self.exact(sql, columns) if operator is None else self.proved(sql, columns, claims, lent)

        return text

    def prove_written(
        self,
        operator: Operator,
        sql: str,
        written: str,
        lent: Mapping[str, Sequence[str]],
        salt: int | None,
        periods: Days | None = (),
    ) -> None:
        """Prove a text's translation for an engine with another dialect, before anything is paid.

        Args:
            sql: the exact query.
            lent: the columns of the relations passed with it.
            salt: the number in it for the secret.
        """
        self._prove_written(self._list_claims(operator, periods), sql, written, lent, salt)

    def proving(self, operator: object, periods: Days | None = ()) -> Prove | None:
        """Return a function that proves each translated text; None without an operator, see :meth:`reading`."""
        if operator is None:
            return None
        claims, engine = self._list_claims(operator, periods), self._catalog.engine

        def prove(sql: str, full: str, lent: Mapping[str, pa.Table], values: Mapping[str, int]) -> None:
            columns = {name: table.column_names for name, table in lent.items()}
            written = engine.translate(full, lent)
            if written is not None:
                self._prove_written(claims, sql, written, columns, values.get("salt"))

        return prove

    def _prove_written(
        self,
        claims: Sequence[ClaimedText],
        sql: str,
        written: str,
        lent: Mapping[str, Sequence[str]],
        salt: int | None,
    ) -> None:
        mine, others = _find_claims(sql, sql, lent, claims)
        self._lock.prove_written(written, mine, claims, others, salt)

    def proved(
        self,
        sql: str,
        lent: Mapping[str, Sequence[str]],
        claims: Sequence[ClaimedText],
        tables: Mapping[str, pa.Table] | None = None,
    ) -> str:
        """Return the engine's text for an operator's query, proved now or before; ``lent``: as for :meth:`exact`."""
        text, shaped = self._write(*self._whole(sql, lent))
        mine, others = _find_claims(sql, text, lent, claims)
        for claimed in mine:
            self._lock.prove(claimed, others)
        if not mine:
            self._lock.prove_late(text, claims, others)
        if all(claimed.late for claimed in mine):
            self._prove_typed(text, shaped, mine, others, tables or {})
        return text

    def _prove_typed(
        self,
        text: str,
        shaped: ShapedText,
        mine: Sequence[ClaimedText],
        others: Mapping[str, Sequence[str]],
        tables: Mapping[str, pa.Table],
    ) -> None:
        """Prove that no value of a column makes a late text fail, once per shape."""
        plan = self._plan
        if plan is None:
            return
        read = tuple((name, str(table.schema)) for name, table in sorted(tables.items()))
        key = (shaped.shape, shaped.list_kinds(()), read)
        if key not in self._typed:
            filled = fill_parameters(text, STAND_INS)
            self._lock.prove_typed(filled, mine, others, shaped, lambda asked: plan(asked, tables), late=True)
            if len(self._typed) >= MAX_KEPT:
                self._typed.clear()
            self._typed[key] = None

    def shown(self, sql: str, lent: Mapping[str, Sequence[str]]) -> str:
        """Return the text to show and to compare: the engine's, with a fixed name for the unit's column."""
        return self.exact(sql, lent).replace(self._unit, UNIT)

    def _whole(self, sql: str, lent: Mapping[str, Sequence[str]]) -> tuple[str, _Pairs]:
        """Return a query with the shared queries that it refers to, and the columns of the relations in it."""
        full = write_shared(sql, self._catalog.shared)
        return full, tuple((name, tuple(lent[name])) for name in sorted(lent) if name in full)


def _find_claims(
    sql: str, text: str, lent: Mapping[str, Sequence[str]], claims: Sequence[ClaimedText]
) -> tuple[list[ClaimedText], dict[str, Sequence[str]]]:
    """Return a query's claims, over its normal form ``text``, and the columns passed with it without operators' own."""
    own = {name for claimed in claims for name in claimed.lent}
    others = {name: columns for name, columns in lent.items() if name not in own}
    return [replace(claimed, text=text) for claimed in claims if claimed.text == sql], others


_Pairs = tuple[tuple[str, tuple[str, ...]], ...]
