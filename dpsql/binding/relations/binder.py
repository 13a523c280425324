"""The binder of a statement as the modules below it see it: what is bound so far, and what they ask of it.

Blocks contain queries that contain blocks, so a block's module calls the binder that called it. The abstract class here
avoids a circular import; :mod:`dpsql.binding.statement_binder` implements it.

A snapshot before a trial binding can be restored for another attempt. Notes on a discarded block (such as choices pending
until the statement is complete) are discarded too; otherwise the plan mentions a missing block.
"""

from __future__ import annotations

import datetime
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import field, replace
from fractions import Fraction
from typing import Any

import pyarrow as pa
from sqlglot import exp

from dpsql.binding.interval_ends import ShownEnds
from dpsql.binding.plan import Input, PlanBuilder, PrivateBlock, name_orders
from dpsql.binding.public_statement import (
    FORETOLD,
    Env,
    Finish,
    OwnNames,
    Released,
    add_ctes,
    from_items,
    schemas,
)
from dpsql.binding.relations.catalog import Catalog
from dpsql.binding.relations.plan_size import WrittenTexts, write_public
from dpsql.binding.relations.relation import (
    Field,
    From,
    Names,
    Relation,
    SharedQuery,
    column,
    column_name,
    fold,
)
from dpsql.binding.relations.scanned_periods import Scan
from dpsql.binding.traced_columns import OrderedRelease
from dpsql.binding.values.declared_values import Declared
from dpsql.binding.values.sql_types import Bounds, Type, Typed
from dpsql.language.dialect import privacy_error, span_of
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.base import Operator
from dpsql.mechanisms.queries import Select, Subquery
from dpsql.policy.model import Table
from dpsql.privacy.amounts import Amount


def _literal_ends(node: exp.Expr) -> list[Bounds | None]:
    """Return the bounds of each column of VALUES that has numbers as written; empty for other nodes."""
    if not isinstance(node, exp.Values) or not all(isinstance(row, exp.Tuple) for row in node.expressions):
        return []
    return [
        _bound_literals(items) for items in zip(*(row.expressions for row in node.expressions), strict=True)
    ]


def _bound_literals(items: Sequence[exp.Expr]) -> Bounds | None:
    numbers = []
    for item in items:
        digits = item.this if isinstance(item, exp.Neg) else item
        if (
            not isinstance(digits, exp.Literal)
            or digits.is_string
            or not re.fullmatch(r"\d{1,18}(\.\d{1,18})?", digits.name)
        ):
            return None
        numbers.append(-Fraction(digits.name) if digits is not item else Fraction(digits.name))
    return Bounds(min(numbers), max(numbers)) if numbers else None


@dataclass
class Binder(PlanBuilder, ABC):
    """Binds one statement. Contains the plan so far, and no data."""

    catalog: Catalog
    finish: Finish
    thresholds: dict[str, Any] = field(default_factory=dict)
    """Declared interactive thresholds, by folded name."""
    by_sets: bool = False
    """Whether to measure grouping sets one by one unless OPTIONS name another strategy."""
    intervals: dict[str, ShownEnds] = field(default_factory=dict)
    """Columns with intervals, by the name of the release."""
    noise_steps: dict[str, dict[str, Fraction]] = field(default_factory=dict)
    """The noise steps of exact numbers with noise among these, by the name of the release."""
    rounded: dict[str, Collection[str]] = field(default_factory=dict)
    """The numbers among these that are rounded, where the middle of the interval is not, by the name of the release."""
    key_values: dict[tuple[str, str], Declared] = field(default_factory=dict)
    """The declared values of released keys, by release and column."""
    group_keys: dict[str, frozenset[str]] = field(default_factory=dict)
    """The keys of releases with one row for each group, by the name of the release; no key: one row."""
    sources: list[Relation | None] = field(default_factory=list)
    """The relations of FROM items, which store their indices here."""
    once: dict[str, Relation] = field(default_factory=dict)
    """Public subqueries with several copies in one SELECT."""
    lent_inputs: dict[Input, None] = field(default_factory=dict)
    """Public relations available to the exact queries."""
    named: frozenset[str] | None = None
    """The result of :func:`dpsql.binding.public_statement.find_named` for the statement."""
    held: frozenset[str] | None = frozenset({"*"})
    """The result of :func:`dpsql.binding.public_statement.find_held_columns` for the statement."""
    shared: dict[SharedQuery, None] = field(default_factory=dict)
    """The queries that its exact texts refer to by name."""
    written: WrittenTexts = field(default_factory=WrittenTexts)
    """The exact texts of the statement so far."""
    own_names: OwnNames = field(default_factory=OwnNames)
    when_whole: list[Callable[[exp.Expr], None]] = field(default_factory=list)
    """Called with the complete statement once it is bound."""
    ordered_releases: list[OrderedRelease] = field(default_factory=list)
    today: datetime.date | None = None
    """Today in the policy's time zone, if budgets are per period."""
    scans: dict[Scan, None] = field(default_factory=dict)
    """The scans of private tables, if budgets are per period."""
    narrowed: bool = False
    """Whether the statement is bound over other days than its own, for parts of its answer."""
    period_groups: dict[str, Any] = field(default_factory=dict)
    """The blocks whose groups are of one period each, with :class:`~dpsql.binding.dp.public_groups.PeriodGroups`."""
    growing: dict[str, int] = field(default_factory=dict)
    """The levels of the growing trees of these blocks, by block."""

    def scan(self, node: exp.Expr, table: Table, alias: str, name: str, every: bool = False) -> Relation:
        """Return a private table as the statement may read it, with its days; ``every``: with all columns."""
        named = None if every else self.named
        found, scan = self.catalog.scan(node, table, alias, name, named, self.today)
        if scan is not None:
            self.scans[scan] = None
        return found

    def name(self, kind: str) -> str:
        """Return a name unused in the statement."""
        return self.own_names.make(kind, self.catalog.names)

    @abstractmethod
    def query(self, tree: exp.Expr, env: Env, inner: bool) -> Relation | None:
        """Bind a query in place; return the private relation kept by it (only if ``inner``), or None if it is public."""

    def public_query(self, tree: exp.Expr, env: Env) -> None:
        """Bind, in place, a query that must not keep private rows; PrivacyError if it does."""
        if self.query(tree, env, inner=False) is not None:
            raise privacy_error(tree, "private rows can't be used here.")

    def add_block(
        self,
        name: str,
        operator: Operator,
        released: Iterable[Released],
        inputs: Iterable[Input],
        sentences: tuple[str, ...],
        confidence: float = 0.95,
        asked: Amount | None = None,
    ) -> None:
        """Add a block that may lose at most ``asked``; its exact queries may also read ``inputs``."""
        released = list(released)
        columns = tuple(part for item in released for part in item.columns)
        self.intervals[name] = {item.name: (item.low, item.high) for item in released if item.interval}
        steps = {item.name: item.noise_step for item in released}
        self.noise_steps[name] = {column: step for column, step in steps.items() if step is not None}
        self.rounded[name] = {item.name for item in released if item.rounded}
        read = tuple(dict.fromkeys((*inputs, *self.lent_inputs)))
        self.written.add(operator.checked, self.catalog.shared)
        orders = tuple((item.name, item.order) for item in released if item.order is not None)
        made = PrivateBlock(name, operator, columns, read, sentences, confidence, asked, orders=orders)
        self.blocks.append(made)

    @abstractmethod
    def source(self, node: exp.Expr, env: Env) -> Relation | None:
        """Return the private relation of a FROM item, None if public; it is bound once, and copies share the result."""

    def private_from(self, select: exp.Select, env: Env) -> From:
        """Return the FROM of a SELECT that must read private rows."""
        relations = {id(node): self.source(node, env) for node in from_items(select)}
        if not any(relation is not None for relation in relations.values()):
            raise privacy_error(
                select.expressions[0] if select.expressions else select,
                "this needs private rows, and its FROM has none.",
                "public tables can be read exactly, with plain SQL.",
            )
        return self.from_of(select, relations, env)

    @abstractmethod
    def from_of(
        self, select: exp.Select, relations: dict[int, Relation | None], env: Env, outer: Names | None = None
    ) -> From:
        """Return the FROM of a SELECT whose items are these relations, correlated with a row of ``outer`` if given."""

    @abstractmethod
    def expression(self, node: exp.Expr, names: Names, env: Env) -> Typed:
        """Return a row expression that can't fail; the block gets the public relations that its subqueries read."""

    # -- public relations ---------------------------------------------------------------------------------------

    def lend(self, node: exp.Expr, env: Env) -> Relation:
        """Return a public FROM item as an exact query reads it: a policy table unchanged, anything else evaluated first."""
        named = isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier)
        if named and fold(node.name) not in env:
            table = self.catalog.find(node.name, span_of(node))
            return self.catalog.relation(table, node.alias_or_name, self.name("table"), self.named)
        alias = node.alias_or_name or self.name("public")
        source = node.copy()
        if isinstance(source, exp.Subquery):
            source.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        query = exp.Select(expressions=[exp.Star()]).from_(source)
        made = self.public_relation(query, env, self.name("lent"))
        ends = _literal_ends(node.this if isinstance(node, exp.Subquery) else node)
        fields = [
            replace(f, typed=replace(f.typed, bounds=found))
            if found is not None and f.typed.type.numeric
            else f
            for f, found in zip(made.fields, ends or [None] * len(made.fields), strict=True)
        ]
        return replace(made, alias=alias, fields=tuple(fields))

    def public_relation(self, query: exp.Expr, env: Env, name: str) -> Relation:
        """Return a public query, with the CTEs it needs, as an evaluated relation with the finisher's column types."""
        sql = write_public(add_ctes(query, env))
        described = self.finish.describe(sql, schemas(self.blocks), self.public)
        columns = [(label, Type.parse(kind)) for label, kind in described]
        orders = name_orders(self._list_orders())
        listed = ", ".join(column_name(place) for place in range(len(columns)))
        found = Input(self.name("input"), Select("*", Subquery(sql, f"given({listed})")).sql)
        fields = tuple(
            Field(
                label,
                Typed(column(column_name(place), name), kind, order=orders.get(described[place][1])),
                public=True,
            )
            for place, (label, kind) in enumerate(columns)
        )
        source = exp.alias_(exp.to_table(found.name), name, table=True)
        return Relation(name, name, fields, source, private=False, inputs=(found,))

    def _list_orders(self) -> Iterator[tuple[str, ...]]:
        for block in self.blocks:
            yield from (order for _, order in block.orders)
        for name in self.public:
            table = self.catalog.policy.tables.get(name)
            yield from () if table is None else self.catalog.engine.orders(table).values()

    def is_unreleased(self, sql: str) -> bool:
        """Return whether a public query reads values that are not released yet."""
        return FORETOLD in sql or any(block.name in sql for block in self.blocks)

    def known(self, found: Input) -> pa.Table | None:
        """Return the rows of a public relation, cached if they never change; None if it depends on unreleased values."""
        if self.is_unreleased(found.sql):
            return None
        if self.finish.repeats(found.sql, self.public):
            return self.finish.keep(found.sql, self.public)
        return self.finish.finish(found.sql, {}, self.public)


_LISTS = """
    blocks notes limits adjustments ranged when_whole ordered_releases public intervals noise_steps rounded once
    lent_inputs key_values group_keys scans period_groups growing"""
GROWING = tuple(_LISTS.split())
"""The lists and dicts of a binder that grow with its blocks."""


class BinderState:
    """A binder's part of a plan at one moment, to undo later bindings; names and indices of FROM items are not reused."""

    def __init__(self, binder: Binder) -> None:
        self._binder = binder
        self._kept = {name: copy(vars(binder)[name]) for name in GROWING}
        self._written = deepcopy(binder.written)

    def restore(self) -> None:
        """Restore everything, in place."""
        for name, kept in self._kept.items():
            grown = vars(self._binder)[name]
            grown.clear()
            (grown.extend if isinstance(kept, list) else grown.update)(kept)
        self._binder.written = self._written
