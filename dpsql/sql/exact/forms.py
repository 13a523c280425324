"""Exact texts as they are compared: equal for queries that ask the same, however a statement is written.

It is the normal form, with one order for conditions and for the sides of comparisons, and without the names of public
relations: for these stand their places among a block's inputs, or their content. It is read by nobody but whoever compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.policy import Policy, Table, fold
from dpsql.sql.dialect import parse_fragment, to_sql
from dpsql.sql.exact.gate import Gate
from dpsql.sql.exact.query import with_values, without_values

_KEPT = 1000


@dataclass(frozen=True)
class Form:
    """A text as it is compared; which of the policy's tables it reads, and what all of its columns are called."""

    text: str
    tables: tuple[str, ...]
    columns: frozenset[str]


class Source(Protocol):
    """What tables are called in exact texts."""

    dialect: str

    def relation(self, table: Table) -> str: ...


@dataclass
class Forms:
    """Brings the exact texts of a session into the form in which they are compared.

    Args:
        content: what stands for a public table: a text that is the same where its rows are.
    """

    gate: Gate
    policy: Policy
    source: Source
    content: Callable[[Table], str]
    _made: dict[tuple[str, tuple[str, ...]], Form] = field(default_factory=dict)
    _tables: dict[tuple[str, ...], Table] = field(default_factory=dict)

    def of(self, sql: str, lent: Mapping[str, Sequence[str]], inputs: tuple[str, ...]) -> Form:
        """The form of a text. Texts that differ in values alone are looked at once.

        Args:
            lent: the columns of what it reads besides tables. inputs: the names of a block's inputs, in order.

        Raises:
            UnresolvedName, ParseError: it is no query of ours.
        """
        normal = self.gate.compared(sql, lent)
        shape, values = without_values(normal)
        try:
            form = self._form(shape, inputs)
        except SqlglotError:  # a value that is part of the syntax
            return self._form(normal, inputs)
        text = with_values(form.text, values)
        return Form(text, form.tables, form.columns)

    def _form(self, text: str, inputs: tuple[str, ...]) -> Form:
        known = self._made.get((text, inputs))
        if known is not None:
            return known
        tree = parse_fragment(text)
        tables = []
        for node in list(tree.find_all(exp.Table)):
            parts = tuple(part.name for part in node.parts)
            if len(parts) == 1 and parts[0] in inputs:
                node.set("this", exp.to_identifier(f"input {inputs.index(parts[0])}", quoted=True))
                continue
            table = self._table(parts)
            if table is None:
                continue
            tables.append(table.name)
            if table.public:
                content = exp.to_identifier(self.content(table), quoted=True)
                node.replace(exp.Table(this=content, alias=node.args.get("alias")))
        columns = frozenset(fold(column.name) for column in tree.find_all(exp.Column))
        made = Form(to_sql(_in_order(tree)), tuple(tables), columns)
        if len(self._made) >= _KEPT:
            self._made.clear()
        self._made[text, inputs] = made
        return made

    def _table(self, parts: tuple[str, ...]) -> Table | None:
        """The policy's table that an exact text calls so."""
        if not self._tables:
            for table in self.policy.tables.values():
                node = exp.maybe_parse(
                    self.source.relation(table), into=exp.Table, dialect=self.source.dialect
                )
                self._tables[tuple(part.name for part in node.parts)] = table
        return self._tables.get(parts)


_TURNED = {exp.LT: exp.GT, exp.LTE: exp.GTE}


def _in_order(tree: exp.Expr) -> exp.Expr:
    """The tree with one order for conditions and for the sides of comparisons: what is equal whatever the data are. It is
    read by nobody but the key."""
    for node in reversed(
        list(tree.find_all(exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE))
    ):  # the inner ones first
        if isinstance(node, exp.And | exp.Or):
            if not isinstance(_around(node), type(node)):
                parts = sorted(_conditions(node, type(node)), key=to_sql)
                node.replace(exp.Anonymous(this=f"all of {node.key}", expressions=parts))
            continue
        left, right = node.this, node.expression
        if type(node) in _TURNED:
            node.replace(_TURNED[type(node)](this=right, expression=left))
        elif to_sql(left) > to_sql(right):
            node.set("this", right)
            node.set("expression", left)
    return tree


def _around(node: exp.Expr) -> exp.Expr | None:
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return parent


def _conditions(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    inner = node
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, kind):
        return [*_conditions(inner.this, kind), *_conditions(inner.expression, kind)]
    return [inner]
