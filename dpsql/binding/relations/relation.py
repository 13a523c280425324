"""Relations of a FROM clause: typed columns, and a privacy unit under a hidden name.

A relation is *private* while its rows belong to privacy units. The unit is always the base column, unchanged: it is
taken from the policy, never from a name that the analyst wrote.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from sqlglot import exp

from dpsql.binding.plan import Input
from dpsql.binding.values.sql_types import Type, Typed
from dpsql.errors import BindError, did_you_mean, find_nearest
from dpsql.language.dialect import bind_error, quote_where_needed, to_sql
from dpsql.language.options import Options
from dpsql.late_dataclass import dataclass
from dpsql.policy.model import Table
from dpsql.policy.tables import Period
from dpsql.policy.validate import fold as fold

INTERNAL = "dpsql_"
"""Prefix of all generated names; no refusal shows one."""
LostColumns = frozenset[tuple[str, str]]
"""Columns of the exact query that are NULL in unmatched rows, by table alias and name."""


@dataclass(frozen=True)
class Unmatched:
    """The outer join that keeps unmatched public rows, as written, and the join conditions."""

    join: exp.Join
    on: tuple[exp.Expr, ...]
    inside: bool = False
    """Whether it is in a subquery, whose rows are unknown outside."""


@dataclass(frozen=True, eq=False)
class SharedQuery:
    """An exact query that texts refer to by a name; ``size`` counts each of its references, ``joined`` its joined relations."""

    name: str
    text: str
    mentions: tuple[SharedQuery, ...]
    size: int
    joined: int = 1


SharedQueries = MutableMapping[str, SharedQuery]


UNIT = "dpsql_unit"
"""Hidden name of the privacy unit in exact queries."""
Anchor = tuple[str, str]
"""A table on a declared path and its key there, folded; or a declaration of the owner's about a column."""
CLAIMED: Anchor = ("", "unit")
"""Marks a column that is the unit, or a part of it, by the owner's declaration."""
PERSON: Anchor = ("", "person")
"""Marks the column, in a table with periods, of the other part of the unit."""
DETERMINES: Anchor = ("", "determines")
"""Marks a column each of whose values belongs to one unit by the owner's declaration, in any table."""


def column(name: str, table: str | None = None) -> exp.Column:
    # like exp.column, which would copy the names first
    """Return a quoted column, without parsing it."""
    made = exp.Column(this=exp.Identifier(this=name, quoted=True))
    if table is not None:
        made.set("table", exp.Identifier(this=table, quoted=True))
    return made


def asked_column(name: str) -> exp.Column:
    """Return a column as an analyst may write it: in quotes where needed."""
    return exp.column(exp.to_identifier(name, quoted=quote_where_needed(name) != name))


def column_name(place: int) -> str:
    """Return the positional name of a derived relation's column in the exact query."""
    return f"c{place}"


def moment_name(place: int) -> str:
    """Return the positional name of the moments whose local times are a derived relation's column."""
    return f"m{place}"


def move_field(field: Field, name: str) -> Field:
    """Return a relation's column under another name of the relation in the exact query."""
    typed = field.typed
    assert isinstance(typed.node, exp.Column)
    node, twin = column(typed.node.name, name), None
    if typed.twin is not None and isinstance(typed.moment, exp.Column):
        twin = (node, column(typed.moment.name, name))
    return replace(field, typed=replace(typed, node=node, twin=twin))


@dataclass(frozen=True)
class Field:
    """A column of a relation: the analyst's name, and its expression in the exact query."""

    name: str
    typed: Typed
    is_unit: bool = False
    public: bool = False
    anchors: frozenset[Anchor] = frozenset()
    """Keys on declared paths to the unit: rows of equal value belong to one unit."""
    key: bool = False
    """Whether a value occurs in one row only: it is the key that paths lead to."""
    optional: bool = False
    """A unit's column that an outer join may leave NULL, in rows of another table."""
    lost: bool = False
    """Whether it is NULL in the relation's unmatched rows."""
    is_period: bool = False
    """Whether it is the period of the units, or leads to one unit with its period."""
    declared: bool = False
    """Whether its bounds are those that the policy declares for it."""

    @property
    def tells_unit(self) -> bool:
        """Whether each value belongs to one unit, by the policy's declarations."""
        return self.is_unit or bool(self.anchors)

    def fixes_unit(self, other: Field) -> bool:
        """Return whether rows with equal values belong to one unit, by the policy's declarations."""
        if self.anchors & other.anchors or DETERMINES in self.anchors | other.anchors:
            return True
        return all(f.is_unit or CLAIMED in f.anchors for f in (self, other))

    def suggests(self, other: Field) -> bool:
        """Return whether a hint may suggest joining on the two."""
        alike = fold(self.name) == fold(other.name) or DETERMINES not in self.anchors ^ other.anchors
        return self.fixes_unit(other) and alike


def carry_field(name: str, typed: Typed, same: Field | None, key: bool) -> Field:
    """Return a column of a subquery with the properties of the one it passes on, ``same``; ``key``: values are unique."""
    if same is None:
        return Field(name, typed)
    return replace(same, name=name, typed=typed, public=False, key=key, lost=False)


def _most_rows(found: Relation | From) -> int | None:
    """The most rows of one unit in all, if the policy or the query bounds them."""
    return 1 if found.row_level else find_least(found.certain_rows, found.row_cap)


def _most_rows_per_group(found: Relation | From) -> int | None:
    """The most rows of one unit in one group, if the policy or the query bounds them."""
    if found.row_level or found.certain_rows == 1:
        return 1
    return None if found.group_cap is None else find_least(found.certain_rows, found.group_cap)


@dataclass(frozen=True)
class Relation:
    """One item of a FROM clause, or a whole joined FROM.

    ``alias`` is the analyst's name, ``name`` the generated, unique one in the exact query. ``source`` is its exact FROM
    item; ``unit`` is the unit's column there (None if each row is its own unit, or the relation is public). ``tables``
    are its private tables, ``inputs`` its public relations.
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
    """The most rows of one unit in all, if not the table's limit: after joins and UNION ALL."""
    group_rows_bound: int | None = None
    """The most rows of one unit in one group, if not the table's limit."""
    certain_rows: int | None = None
    """The most rows that any unit has here by the shape of the query: 1 after GROUP BY unit, then as many as each meets."""
    unit_type: Type | None = None
    fan_out: int = 1
    """The most public rows joined so far to one private row of its tables."""
    conditions: tuple[exp.Expr, ...] = ()
    """Conditions true of every row, in terms of the fields' nodes: they may exclude public groups."""
    public_preserved: bool = False
    """Whether unmatched rows of a public table are kept: its columns can be public keys."""
    unmatched: Unmatched | None = None
    """The inner outer join whose unmatched rows are not among its rows."""
    period: exp.Expr | None = None
    """The period of its units in terms of its columns, if still available."""
    unread: Sequence[str] = ()
    """Columns of a wide table that the statement doesn't name."""

    @cached_property
    def fields_by_name(self) -> Mapping[str, Sequence[Field]]:
        """The fields by their folded names."""
        found: dict[str, list[Field]] = {}
        for item in self.fields:
            found.setdefault(fold(item.name), []).append(item)
        return found

    @property
    def per_unit(self) -> bool:
        """Whether a unit has at most one row here."""
        return self.certain_rows == 1

    @property
    def row_cap(self) -> int | None:
        """The policy's cap on the rows of one unit in all, as joins and UNION ALL have multiplied it."""
        if self.rows_bound is not None:
            return self.rows_bound
        return self.tables[0].max_rows if len(self.tables) == 1 else None

    @property
    def group_cap(self) -> int | None:
        """The policy's cap on the rows of one unit in one group, likewise."""
        if self.group_rows_bound is not None or self.rows_bound is not None:
            return self.group_rows_bound
        return self.tables[0].max_rows_per_group if len(self.tables) == 1 else None

    max_rows = property(_most_rows)
    max_rows_per_group = property(_most_rows_per_group)

    @property
    def max_groups(self) -> int | None:
        """The most groups of one unit, if the policy bounds them."""
        if self.row_level:
            return 1
        known = [table.max_groups for table in self.tables if table.max_groups is not None]
        return max(known) if known else None

    def renamed(self, alias: str, name: str) -> Relation:
        """Return this relation under another alias and name, with its columns renamed."""
        fields = tuple(move_field(f, name) for f in self.fields)
        unit = None if self.unit is None else column(UNIT, name)
        named = exp.TableAlias(this=exp.to_identifier(name))
        if isinstance(self.source, exp.Subquery):
            source: exp.Expr = exp.Subquery(this=self.source.this, alias=named)  # the inside is never changed
        else:
            source = self.source.copy()
            source.set("alias", named)
        pairs = [(f.typed.node, g.typed.node) for f, g in zip(self.fields, fields, strict=True)]
        conditions = restate_conditions(self.conditions, pairs)
        restated = replace(self, conditions=conditions, period=restate_period(self, pairs))
        return replace(restated, alias=alias, name=name, fields=fields, source=source, unit=unit)


def find_least(*bounds: int | None) -> int | None:
    """Return the least of the known bounds; None if none is known."""
    return min((bound for bound in bounds if bound is not None), default=None)


_Total = Callable[[Iterable[int]], int]


def total_bound(bounds: Iterable[int | None], how: _Total = math.prod) -> int | None:
    """Return the product (or the sum) of bounds; None if one is unknown."""
    bounds = list(bounds)
    return None if None in bounds else how(b for b in bounds if b is not None)


def total_caps(relations: Sequence[Relation], how: _Total = math.prod) -> tuple[int | None, int | None]:
    """Return the caps of relations that are put together: on the rows of one unit in all, and in one group.

    Where the shape of the query bounds all of them, the caps are the policy's own. Relations without a cap per group may
    have all rows in one.
    """
    shaped = all(r.certain_rows is not None for r in relations)
    caps = [(r.row_cap, r.group_cap) if shaped else (r.max_rows, r.max_rows_per_group) for r in relations]
    grouped = any(each is not None for _, each in caps)
    return total_bound((rows for rows, _ in caps), how), (
        total_bound((each or rows for rows, each in caps), how) if grouped else None
    )


MAX_CONDITIONS = 20
"""The most known conditions of a relation's rows."""


def restate_conditions(
    conditions: Iterable[exp.Expr], pairs: Iterable[tuple[exp.Expr, exp.Expr]]
) -> tuple[exp.Expr, ...]:
    """Return the conditions in terms of other columns, by (old, new) pairs; those with other columns are dropped.

    Only the last are kept if there are too many: fewer conditions exclude fewer groups, and no row.
    """
    conditions = list(conditions)[-MAX_CONDITIONS:]
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


def restate_period(relation: Relation, pairs: Iterable[tuple[exp.Expr, exp.Expr]]) -> exp.Expr | None:
    """Return a relation's period in terms of other columns; None if these lack it."""
    return next(iter(restate_conditions([] if relation.period is None else [relation.period], pairs)), None)


def write_period(period: Period) -> exp.Expr:
    """Return the expression of a period over its column's name."""
    read = asked_column(period.column)
    given = [exp.Literal.string(period.part), read] if period.part else [read]
    return exp.func(period.function, *given, dialect="duckdb") if period.function else read


def list_claimed_columns(table: Table) -> list[tuple[str, Anchor]]:
    """Return the columns that lead to the unit by the owner's declaration, folded, with their targets."""
    paths = table.unit_paths
    found = [(fold(p[0].column), (fold(p[1].table), fold(p[1].key))) for p in paths if len(p) > 1]
    found += [(fold(p[0].column), CLAIMED) for p in paths[1:] if len(p) == 1]
    return [*found, *((name, DETERMINES) for name in table.determining)]


def find_direct_unit(table: Table) -> str | None:
    """Return the unit column itself: the path's first, if every hop ends on its starting key."""
    path = table.unit_path
    if not path or any(fold(hop.key) != fold(hop.column) for hop in path[1:]):
        return None
    return path[0].column


def explain_other_unit(left: Iterable[Relation], right: Iterable[Relation]) -> str | None:
    """Return why the units of two sides can never be equal: other periods or types; None if they can."""
    sides = [[relation for relation in side if relation.private] for side in (left, right)]
    tables = {table.name: table for side in sides for relation in side for table in relation.tables}
    kinds = {None if t.period is None else t.period.kind: t for t in tables.values()}
    if len(kinds) > 1:
        said = [
            f"{t.name} has {'no period' if t.period is None else f'the period {t.period}'}"
            for t in kinds.values()
        ]
        return f"privacy units of different periods can't meet: {' and '.join(said)}."
    types = [relation.unit_type for side in sides for relation in side if relation.unit_type is not None]
    if any(not meets_exactly(types[0], kind) for kind in types):
        read = dict.fromkeys(taken.sql for kind in types for name, taken in kind.fields if name == "period")
        if len(read) > 1:
            return (
                f"the periods of these tables are made of columns of different types, {' and '.join(read)}."
            )
        return "the privacy units of these tables are of different types, so different units may look equal."
    return None


@dataclass
class Names:
    """The scope of a SELECT: finds the field that a column name means."""

    relations: tuple[Relation, ...]
    merged: dict[str, Field] = field(default_factory=dict)
    """Columns merged by USING, to which an unqualified name refers first."""
    extra: dict[str, Typed] = field(default_factory=dict)
    """Expressions bound earlier under generated names (subqueries)."""
    unit: exp.Expr | None = field(default=None, kw_only=True)
    """The unit of the rows in scope, if subqueries may read rows of that unit."""
    fan_out: int = field(default=1, kw_only=True)
    """The most public rows joined so far to one private row of this scope."""
    outer: Names | None = field(default=None, kw_only=True)
    """The outer scope of a subquery, for names unknown inside."""

    def scopes(self) -> Iterator[Names]:
        """Yield this scope and its outer scopes."""
        yield self
        if self.outer is not None:
            yield from self.outer.scopes()

    def fields(self) -> Iterator[tuple[str, Field]]:
        """Yield the visible fields, each with its relation's alias."""
        for relation in self.relations:
            for item in relation.fields:
                yield relation.alias, item

    def check_unit(self, options: Options, subject: str) -> None:
        """Raise PrivacyError if ``privacy_unit_column`` differs from the unit of the query's source (``subject``)."""
        named = options.get("privacy_unit_column")
        tables = [table for relation in self.relations if relation.private for table in relation.tables]
        ends = dict.fromkeys(t.unit_path[-1].column for t in tables if t.unit_path and not t.row_level)
        known = {*(fold(f.name) for _, f in self.fields() if f.is_unit), *map(fold, ends)}
        if named is None or fold(named) in known:
            return
        what = f"{named} is not the privacy unit of {subject}."
        declared = f"it declares {' and '.join(ends)}" if ends else "each row is a unit of its own"
        hint = f"leave it out: the policy alone names the unit, and {declared}."
        raise options.refuse("privacy_unit_column", what, hint, private=True)

    def _fields_named(self, name: str) -> list[tuple[str, Field]]:
        return [(fold(r.alias), item) for r in self.relations for item in r.fields_by_name.get(name, ())]

    def find(self, node: exp.Column) -> Field:
        """Return the field of a column reference; BindError for no such table or column, or more than one."""
        name, table = fold(node.name), fold(node.table)
        if node.args.get("db") is not None:
            raise bind_error(node, "name columns by table alias only.")
        if not table and name in self.merged:
            return self.merged[name]
        found = [f for alias, f in self._fields_named(name) if not table or alias == table]
        if len(found) == 1:
            return found[0]
        if self.outer is not None and self.elsewhere(node):
            return self.outer.find(node)
        aliases = {fold(relation.alias): relation.alias for relation in self.relations}
        if table and table not in aliases:
            what = f"there is no table {node.table} in this FROM."
            named = [alias for alias in aliases.values() if not alias.startswith(INTERNAL)]
            hint = (
                did_you_mean(node.table, named)
                if named
                else f"write AS {quote_where_needed(node.table)} behind the subquery."
            )
            raise bind_error(node, what, hint, sqlstate="42P01")
        if found:
            owners = [aliases.get(alias, alias) for alias, _ in self._fields_named(name)]
            ways = " or ".join(
                f"{quote_where_needed(owner)}.{quote_where_needed(node.name)}" for owner in owners
            )
            raise bind_error(node, f"{node.name} is ambiguous.", f"write {ways}.")
        names = [f.name for a, f in self.fields() if not table or fold(a) == table]
        names += [name for r in self.relations if not table or fold(r.alias) == table for name in r.unread]
        quoted = isinstance(node.this, exp.Identifier) and node.this.quoted and not table
        text = f"text needs single quotes: write '{node.name}'."
        compared = isinstance(node.parent, exp.EQ | exp.NEQ) and node.arg_key == "expression" and not table
        near = find_nearest(node.name, names) is not None
        hint = did_you_mean(node.name, names, quote_where_needed)
        if quoted:
            hint = f"{hint} Otherwise, {text}" if near else text
        elif compared and not near:
            hint = text
        raise bind_error(node, f"there is no column {node.name} here.", hint, sqlstate="42703")

    def known(self, node: exp.Expr) -> Field | None:
        """Return a node's field; None if it is no column (a struct field looks like one)."""
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return None
        try:
            return self.find(node)
        except BindError:
            return None

    def elsewhere(self, node: exp.Column) -> bool:
        """Return whether a name is unknown here, so that the outer scope decides."""
        name, table = fold(node.name), fold(node.table)
        if table:
            return all(fold(relation.alias) != table for relation in self.relations)
        return name not in self.merged and not self._fields_named(name)

    def column(self, node: exp.Column) -> Typed:
        """:class:`dpsql.binding.values.total_expressions.Scope`: a column's expression in the exact query."""
        if node.name in self.extra and not node.table:
            return self.extra[node.name]
        return self.find(node).typed


def meets_exactly(left: Type, right: Type) -> bool:
    """Return whether equality across the two types is injective, so that a join can't merge two units."""
    return left == right or (left.kind == right.kind and left.kind in ("INTEGER", "TEXT"))


@dataclass
class From:
    """A private block's FROM: ``source`` and ``joins`` are its exact SQL, ``unit`` the unit of each joined row."""

    relations: list[Relation]
    source: exp.Expr
    joins: list[exp.Join] = field(default_factory=list)
    merged: dict[str, Field] = field(default_factory=dict)
    unit: exp.Expr | None = None
    row_level: bool = False
    fan_out: int = 1
    """The most public rows joined to one private row."""
    meets_unknown: bool = False
    """Whether it also joins public rows whose number is unknown before a release."""
    sides: tuple[Relation, ...] = ()
    """The private relations, in join order."""
    notes: list[str] = field(default_factory=list)
    """EXPLAIN's sentences about this FROM."""
    matched: set[str] = field(default_factory=set)
    """Aliases of private tables that add no rows: others find them by key, or look whether they have a row."""
    keys: dict[str, list[Field]] = field(default_factory=dict)
    """The keys of these tables, by the tables' names in the exact query."""
    unmatched: Unmatched | None = None
    """The outer join that keeps unmatched public rows, if any."""

    @property
    def names(self) -> Names:
        """The scope of the FROM."""
        return Names(tuple(self.relations), self.merged, unit=self.unit, fan_out=self.fan_out)

    @property
    def private(self) -> bool:
        """Whether one of the relations is private."""
        return any(relation.private for relation in self.relations)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Its public relations, without duplicates."""
        return tuple(dict.fromkeys(i for relation in self.relations for i in relation.inputs))

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its private tables, without duplicates."""
        return tuple(dict.fromkeys(table for relation in self.relations for table in relation.tables))

    @property
    def sql(self) -> str:
        """The text after FROM in the exact query."""
        return " ".join(map(to_sql, (self.source, *self.joins)))

    @property
    def period(self) -> Period | None:
        """The period of its rows' units, if any."""
        return next((table.period for table in self.tables if table.period is not None), None)

    @property
    def unit_columns(self) -> str:
        """The unit columns, with their tables if paths lead there."""
        ends = [t.unit_path[-1] for t in self.tables if t.unit_path]
        direct = all(len(t.unit_path) == 1 for t in self.tables)
        return " and ".join(dict.fromkeys(e.column if direct else f"{e.table}.{e.column}" for e in ends))

    @property
    def unit_name(self) -> str:
        """The name of a privacy unit in sentences: its column, if a unit is one value of one column."""
        plain = not self.row_level and self.period is None and self.unit_columns.isidentifier()
        return self.unit_columns if plain else "privacy unit"

    def holds_period(self, node: exp.Expr, known: Field | None) -> bool:
        """Return whether an expression of the exact query, or the column ``known``, is the period of the units."""
        bare = node.unnest()
        return (known is not None and known.is_period) or any(
            relation.period is not None and bare == relation.period.unnest() for relation in self.relations
        )

    def is_key_of_period(self, key: Typed) -> bool:
        """Return whether a key is the period of the units in all rows, or the date whose day is that period."""
        if any(join.args.get("side") for join in self.joins):
            return False
        if self.holds_period(key.node, None):
            return True
        of_day = self.period is not None and self.period.part == "day" and key.type.sql == "DATE"
        made = (relation.period for relation in self.relations if relation.period is not None)
        return of_day and any(key.node == column for period in made for column in period.find_all(exp.Column))

    @property
    def row_cap(self) -> int | None:
        """The policy's cap on the rows of one unit: after a join of private tables, the product of their bounds.

        A row that finds one other by its key stays one row. Public rows multiply the rows that a unit certainly has, up to
        this cap; if that number is unknown, the cap alone holds.
        """
        return total_caps(self._meeting)[0]

    @property
    def group_cap(self) -> int | None:
        """The policy's cap on the rows of one unit in one group, likewise."""
        return total_caps(self._meeting)[1]

    max_rows = property(_most_rows)
    max_rows_per_group = property(_most_rows_per_group)

    @property
    def most_rows(self) -> int | None:
        """The most rows of one unit if nothing is grouped: the whole is one group."""
        return self.max_rows or total_bound(r.max_rows or r.max_rows_per_group for r in self._meeting)

    @property
    def met(self) -> int:
        """The most public rows of this FROM that one private row joins."""
        return self.fan_out // math.prod(r.fan_out for r in self.relations if r.private)

    @property
    def certain_rows(self) -> int | None:
        """The most rows of a unit by the shape of the query; None if only the policy limits them."""
        known = total_bound(r.certain_rows for r in self._meeting)
        return None if known is None or self.meets_unknown else known * self.met

    def row_caps(self, options: Options) -> tuple[int | None, int | None]:
        """Return the caps on rows in all and in one group: each option replaces the policy's cap of its kind."""
        rows = options.get("max_rows_contributed", self.max_rows)
        return rows, options.get("max_rows_per_group", self.max_rows_per_group)

    @property
    def _meeting(self) -> list[Relation]:
        """The private relations whose rows multiply."""
        return [r for r in self.relations if r.private and fold(r.alias) not in self.matched]

    @property
    def max_groups(self) -> int | None:
        """The default limit on the groups of a unit: the largest of its tables' limits."""
        return max(
            (r.max_groups for r in self.relations if r.private and r.max_groups is not None), default=None
        )

    @property
    def unit_type(self) -> Type | None:
        """The type of the privacy unit, if there is one."""
        return next((r.unit_type for r in self.relations if r.private), None)

    @property
    def conditions(self) -> tuple[exp.Expr, ...]:
        """Conditions true of every row because of its relations; empty if an outer join may omit a relation."""
        if any(join.args.get("side") for join in self.joins):
            return ()
        return tuple(node for relation in self.relations for node in relation.conditions)

    @property
    def subject(self) -> str:
        """The names of the private tables, for messages."""
        return " and ".join(dict.fromkeys(t.name for r in self.relations for t in r.tables))
