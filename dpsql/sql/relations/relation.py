"""What a FROM clause becomes: relations whose columns are typed, and whose privacy unit is carried by a hidden name.

A relation is *private* while its rows belong to privacy units. The unit is only ever the base column passed through
unchanged: it is taken from the policy, never from a name that the analyst wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.errors import BindError, did_you_mean
from dpsql.plan import Input
from dpsql.policy.model import Table
from dpsql.sql.expressions.types import Type, Typed
from dpsql.sql.parse.dialect import span_of
from dpsql.sql.relations.unmatched_rows import Lost, Unmatched, fails, is_null

UNIT = "dpsql_unit"
"""Hidden name of the privacy unit in exact queries."""
Anchor = tuple[str, str]
"""A table on a declared path and its key there, folded."""


def fold(name: str) -> str:
    """Identifiers compare as DuckDB's do: ASCII letters without case, all else exactly."""
    return "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in name)


def column(name: str, table: str | None = None) -> exp.Column:
    # as exp.column, which would copy the names first
    made = exp.Column(this=exp.Identifier(this=name, quoted=True))
    if table is not None:
        made.set("table", exp.Identifier(this=table, quoted=True))
    return made


def own(place: int) -> str:
    """The name of a derived relation's column in the exact query: by its place, whatever the analyst calls it."""
    return f"c{place}"


def moved(field: Field, name: str) -> exp.Column:
    """A relation's column, where the relation stands under another name in the exact query."""
    assert isinstance(field.typed.node, exp.Column)
    return column(field.typed.node.name, name)


@dataclass(frozen=True)
class Field:
    """A column of a relation: the name that the analyst writes, and what it is in the exact query."""

    name: str
    typed: Typed
    is_unit: bool = False
    public: bool = False
    hidden: bool = False
    anchors: frozenset[Anchor] = frozenset()
    """Keys on declared paths to the unit: rows of equal value belong to the same unit."""
    key: bool = False
    """True when such a value stands in one row only: it is the key that paths lead to."""
    optional: bool = False
    """A unit's column that an outer join may leave empty, in rows that are another table's."""
    lost: bool = False
    """NULL in the rows of nobody of its relation."""

    def fixes_unit(self, other: Field) -> bool:
        """Whether rows in which the two are equal belong to one unit, by what the policy declares."""
        return (self.is_unit and other.is_unit) or bool(self.anchors & other.anchors)


@dataclass(frozen=True)
class Relation:
    """One item of a FROM clause, or a whole joined FROM.

    ``alias`` is what the analyst calls it, ``name`` what the exact query does: the binder's own, in one statement once.
    ``source`` stands in the exact FROM; ``unit`` is the unit's column there (None where each row is its own unit, or
    where the relation is public). ``tables`` are the private tables below, ``inputs`` the public relations lent.
    """

    alias: str
    name: str
    fields: tuple[Field, ...]
    source: exp.Expr
    private: bool
    unit: exp.Expr | None = None
    tables: tuple[Table, ...] = ()
    inputs: tuple[Input, ...] = ()
    row_level: bool = False
    rows_bound: int | None = None
    """Rows of one unit that count, where it is not simply the table's: after joins and UNION ALL."""
    per_unit: bool = False
    """True when one unit has at most one row here (after GROUP BY unit)."""
    wheres: tuple[exp.Expr, ...] = ()
    """Conditions that joins add (units that must be equal)."""
    unit_type: Type | None = None
    fan_out: int = 1
    """Public rows that one private row of the tables below has met, at most."""
    conditions: tuple[exp.Expr, ...] = ()
    """What holds of every row, in terms of the fields' nodes: it may leave public groups out."""
    public_preserved: bool = False
    """True when rows of a public table stay without a match: its columns can be public keys."""
    unmatched: Unmatched | None = None
    """The outer join inside that keeps rows of nobody, which its rows are without."""

    @property
    def max_rows(self) -> int | None:
        if self.per_unit or self.row_level:
            return 1
        if self.rows_bound is not None:
            return self.rows_bound
        known = [table.max_rows for table in self.tables if table.max_rows is not None]
        return min(known) if known and len(self.tables) == 1 else None

    @property
    def max_groups(self) -> int | None:
        if self.row_level:
            return 1
        known = [table.max_groups for table in self.tables if table.max_groups is not None]
        return max(known) if known else None

    def renamed(self, alias: str, name: str) -> Relation:
        """The same relation under another alias and name: its columns now hang on that name."""
        fields = tuple(replace(f, typed=replace(f.typed, node=moved(f, name))) for f in self.fields)
        unit = None if self.unit is None else column(UNIT, name)
        named = exp.TableAlias(this=exp.to_identifier(name))
        if isinstance(self.source, exp.Subquery):
            source: exp.Expr = exp.Subquery(
                this=self.source.this, alias=named
            )  # what is inside is never changed
        else:
            source = self.source.copy()
            source.set("alias", named)
        pairs = [(f.typed.node, g.typed.node) for f, g in zip(self.fields, fields, strict=True)]
        conditions = restated(self.conditions, pairs)
        return replace(
            self, alias=alias, name=name, fields=fields, source=source, unit=unit, conditions=conditions
        )


def places_lost(relations: Iterable[Relation]) -> Lost:
    """Return the columns of private relations that are NULL in rows of nobody."""
    private = [relation for relation in relations if relation.private]
    nodes = [f.typed.node for r in private for f in r.fields if r.unmatched is None or f.lost]
    nodes += [r.unit for r in private if r.unit is not None]
    return frozenset((node.table, node.name) for node in nodes if isinstance(node, exp.Column))


def with_unmatched(
    relation: Relation,
    found: Unmatched | None,
    lost: Lost,
    values: Iterable[exp.Expr],
    conditions: Iterable[exp.Expr],
) -> Relation:
    """Return the relation that a subquery is, with what is known of rows of nobody.

    Args:
        found: the outer join that keeps them in the subquery.
        lost: the columns of the subquery's FROM that are NULL in them.
        values: what the relation's fields are in the subquery.
        conditions: what it asks of its rows.
    """
    if found is None or any(fails(node, lost) for node in conditions):
        return relation
    pairs = zip(relation.fields, values, strict=True)
    fields = tuple(replace(f, lost=is_null(value, lost)) for f, value in pairs)
    return replace(relation, fields=fields, unmatched=replace(found, inside=True))


def restated(
    conditions: Iterable[exp.Expr], pairs: Iterable[tuple[exp.Expr, exp.Expr]]
) -> tuple[exp.Expr, ...]:
    """The conditions in terms of other columns, by pairs of the old and the new; without those that name still others."""
    known = {(old.table, old.name): new for old, new in pairs if isinstance(old, exp.Column)}
    found = []
    for node in conditions:
        holder = exp.Paren(this=node.copy())
        inside = {"", *(table.alias_or_name for table in holder.find_all(exp.Table))}
        columns = [c for c in holder.find_all(exp.Column) if c.table not in inside]
        if columns and all((c.table, c.name) in known for c in columns):
            for c in columns:
                c.replace(known[c.table, c.name].copy())
            found.append(holder.this)
    return tuple(found)


@dataclass
class Names:
    """The scope of a SELECT: finds the field that a column name means."""

    relations: tuple[Relation, ...]
    merged: dict[str, Field] = field(default_factory=dict)
    """Columns merged by USING, which a bare name means first."""
    extra: dict[str, Typed] = field(default_factory=dict)
    """Expressions bound beforehand under made-up names (subqueries)."""
    unit: exp.Expr | None = field(default=None, kw_only=True)
    """The unit of the rows in scope, where subqueries may ask for rows of the same unit."""
    fan_out: int = field(default=1, kw_only=True)
    """Public rows that one private row of this scope has met, at most."""
    outer: Names | None = field(default=None, kw_only=True)
    """The scope around a subquery: what a name means that means nothing inside."""

    def fields(self) -> Iterator[tuple[str, Field]]:
        for relation in self.relations:
            for item in relation.fields:
                if not item.hidden:
                    yield relation.alias, item

    def find(self, node: exp.Column) -> Field:
        """The field that a column reference names.

        Raises:
            BindError: no such table or column, or more than one.
        """
        name, table = fold(node.name), fold(node.table)
        if node.args.get("db") is not None:
            raise BindError("name columns by table alias only.", span=span_of(node))
        if not table and name in self.merged:
            return self.merged[name]
        aliases = {fold(relation.alias): relation.alias for relation in self.relations}
        if self.outer is not None and self.elsewhere(node):
            return self.outer.find(node)
        if table and table not in aliases:
            raise BindError(
                f"there is no table {node.table} in this FROM.",
                span=span_of(node),
                hint=did_you_mean(node.table, aliases.values()),
            )
        found = [f for a, f in self.fields() if fold(f.name) == name and (not table or fold(a) == table)]
        if len(found) > 1:
            raise BindError(f"{node.name} is ambiguous.", span=span_of(node), hint="write table.column.")
        if not found:
            names = [f.name for a, f in self.fields() if not table or fold(a) == table]
            quoted = isinstance(node.this, exp.Identifier) and node.this.quoted and not table
            raise BindError(
                f"there is no column {node.name} here.",
                span=span_of(node),
                hint=f"text stands in single quotes: write '{node.name}'."
                if quoted
                else did_you_mean(node.name, names),
            )
        return found[0]

    def known(self, node: exp.Expr) -> Field | None:
        """The field that a node names; None where it is no column (a field of a struct is written like one)."""
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        try:
            return self.find(node)
        except BindError:
            return None

    def elsewhere(self, node: exp.Column) -> bool:
        """Whether a name means nothing here, so that the scope around decides."""
        name, table = fold(node.name), fold(node.table)
        if table:
            return all(fold(relation.alias) != table for relation in self.relations)
        return name not in self.merged and all(fold(f.name) != name for _, f in self.fields())

    def column(self, node: exp.Column) -> Typed:
        """:class:`dpsql.sql.expressions.total_expressions.Scope`: what a column is in the exact query."""
        if node.name in self.extra and not node.table:
            return self.extra[node.name]
        return self.find(node).typed


def meets_exactly(left: Type, right: Type) -> bool:
    """Whether equal values of the two types are one value, so that two units can't become one where they meet."""
    return left == right or (left.kind == right.kind and left.kind in ("INTEGER", "TEXT"))


def unit_domain(table: Table) -> str:
    """Whose units a table's are. Units of the same name are taken for the same people; rows are nobody else's."""
    return (
        f"row of {table.name}" if table.row_level or not table.unit_path else fold(table.unit_path[-1].column)
    )


def joined(relations: Iterable[Relation]) -> str:
    return ", ".join(relation.alias for relation in relations)
