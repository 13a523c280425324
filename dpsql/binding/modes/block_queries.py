"""The query of a SUBSAMPLE: lifted, so that it runs on all blocks at once, or rewritten to run block by block.

A lifted query has the number of the block as its first column. Rows get it from the hash of their privacy unit; an
aggregation keeps it as a key; ORDER BY ... LIMIT applies within it. The result has one row per block if the query has one row.

In a query that can't be lifted, each private table is replaced by the rows of the block, read beforehand; no other data
are accessible. So its result is a function of the block, and a unit, being in one block, moves one result. A failure is
the block's result like any other. A closed list of constructs excludes access to anything else.

Only :mod:`dpsql.binding.modes.block_sources` uses it, which also has functions and the rows of blocks. It is apart because it
rewrites trees of queries, wherever their rows come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from sqlglot import exp

from dpsql.binding.modes.block_checks import (
    check_query,
    check_relations,
    describe_answer,
    refuse_many_rows,
)
from dpsql.binding.public_statement import Env, Schema, label_of, make_unique, resolve_key, schemas
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.exact_aggregates import (
    COUNT_CALLS,
    LIFTED_AGGREGATES,
    Grouped,
    has_exact_aggregate,
)
from dpsql.binding.relations.relation import Field, From, Names, Relation, column, column_name, fold
from dpsql.binding.relations.unit_rows import cut_block_rows, find_unit_holder
from dpsql.binding.values import total_expressions
from dpsql.binding.values.coercion import refuse_order, write_as_text
from dpsql.binding.values.fixed_point import unify_zeros
from dpsql.binding.values.sql_types import Type, Typed, make_cast
from dpsql.language.dialect import (
    bind_error,
    join_word,
    parse_select,
    privacy_error,
    remove_modes,
    span_of,
    table_named,
    to_sql,
)
from dpsql.language.labels import show_label_types
from dpsql.language.options import call_of
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import As, Join, Select, Source, Subquery
from dpsql.mechanisms.subsample.blocks import BlockRows

BLOCK = "dpsql_block"
"""The block's column: no analyst's column has this name, and it is always qualified against names of outer levels."""


@dataclass(frozen=True)
class Lifted:
    """A query whose first column is the block; its other columns have positional names in SQL."""

    query: Select
    fields: tuple[Field, ...]
    single: bool
    """Whether it has one row per block, by its form."""

    def relation(self, alias: str, name: str) -> Relation:
        """Return it as a relation of an outer query."""
        fields = tuple(
            replace(f, typed=replace(f.typed, node=column(column_name(place), name)))
            for place, f in enumerate(self.fields)
        )
        source = parse_select(self.query.sql).subquery(exp.to_identifier(name), copy=False)
        return Relation(alias, name, fields, source, True)


RowSql = Callable[[Relation, exp.Expr | None], str]
"""Returns SQL about a private row, given its relation and privacy unit."""
RepeatRows = Callable[[Source, Relation, exp.Expr | None], Source]
"""Returns a source of private rows, each of them repeated, given their relation and privacy unit."""


def conditions_of(unit: exp.Expr | None, select: exp.Select, names: Names) -> tuple[str, ...]:
    """Return the conditions of a query inside a block: its own, and that a unit owns the row.

    An outer join keeps a row without a unit because no unit matches it: it would carry one unit's influence into another block.
    """
    conditions = [f"{to_sql(unit)} IS NOT NULL"] if unit is not None else []
    where = select.args.get("where")
    if where is not None:
        conditions.append(f"({to_sql(total_expressions.make_condition(where.this, names).node)})")
    return tuple(conditions)


_UNLIFTABLE = {key: key.upper() for key in ("qualify", "offset", "distinct")}
_UNLIFTABLE |= {"windows": "WINDOW", "sample": "USING SAMPLE"}
Ctes = dict[str, tuple[exp.Expr, "Ctes"]]
"""Names defined by WITH: a query, and the names visible in it."""


@dataclass
class Lifter:
    """Lifts one query over ``blocks`` blocks; ``number`` returns a row's, ``turns`` repeats rows."""

    binder: Binder
    number: RowSql
    turns: RepeatRows
    blocks: int
    bound: list[From] = field(default_factory=list)
    """Every FROM over private tables, for users of their units."""

    def lift(self, select: exp.Select, env: Env) -> Lifted:
        """Lift a copy of a query; PrivacyError, also for one that may return more than one row."""
        lifted = self.query(select.copy(), env, {})
        if not lifted.single:
            raise refuse_many_rows(select)
        return lifted

    def query(self, tree: exp.Expr, env: Env, ctes: Ctes) -> Lifted:
        """Lift a query that can see these names; PrivacyError if it must be run block by block instead."""
        if isinstance(tree, exp.Subquery):
            return self.query(tree.this, env, ctes)
        if not isinstance(tree, exp.Select):
            raise privacy_error(tree, "only SELECT can run inside SUBSAMPLE.")
        with_ = tree.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            if (with_ is not None and with_.args.get("recursive")) or cte.args["alias"].args.get("columns"):
                raise _unliftable(cte, "such a CTE")
            ctes = {**ctes, fold(cte.alias): (cte.this, ctes)}
        for key, what in _UNLIFTABLE.items():
            if tree.args.get(key):
                raise _unliftable(tree.args[key], what)
        group = tree.args.get("group")
        if group is not None and any(value for key, value in group.args.items() if key != "expressions"):
            raise _unliftable(group, "GROUP BY in several ways")
        limit = tree.args.get("limit")
        if limit is not None and not (isinstance(limit, exp.Limit) and limit.expression.name.isdigit()):
            raise _unliftable(limit, "such a LIMIT")
        names, source, block, owned, one, twice = self._from(tree, env, ctes)
        rows = Select((), source, conditions_of(owned, tree, names))
        if tree.args.get("group") or any(map(has_exact_aggregate, tree.expressions)):
            return self._groups(tree, names, rows, block, twice)
        lifted = self._rows(tree, names, rows, block)
        return replace(lifted, single=lifted.single or one)

    def _from(
        self, tree: exp.Select, env: Env, ctes: Ctes
    ) -> tuple[Names, Source, str, exp.Expr | None, bool, bool]:
        """Return the scope, the source, a row's block, its required unit, whether blocks have one row, and whether
        rows may be read twice.

        Rows of tables may be read twice, those of a subquery may not.
        """
        from_ = tree.args.get("from_")
        if from_ is None:
            raise privacy_error(tree, "a query inside SUBSAMPLE needs private rows.")
        item = from_.this
        within = (item.this, ctes) if isinstance(item, exp.Subquery) else None
        inner = ctes.get(fold(item.name)) if isinstance(item, exp.Table) else within
        if inner is not None:
            if tree.args.get("joins"):
                raise _unliftable(item, "a join of subqueries")
            named = item.args.get("alias")
            if named is not None and named.args.get("columns"):
                raise _unliftable(item, "such an alias")
            alias = item.alias_or_name or self.binder.name("derived")
            lifted = self.query(inner[0], env, inner[1])
            name = self.binder.name("lifted")
            relation = lifted.relation(alias, name)
            source, block = to_sql(relation.source), to_sql(column(BLOCK, name))
            return Names((relation,)), source, block, None, lifted.single, False
        bound = self.binder.private_from(tree, env)
        self.bound.append(bound)
        private = find_unit_holder(bound)
        repeated = self.turns(bound.sql, private, bound.unit)
        return bound.names, repeated, self.number(private, bound.unit), bound.unit, False, True

    def _rows(self, tree: exp.Select, names: Names, rows: Select, block: str) -> Lifted:
        fields = list[Field]()
        for item in tree.expressions:
            if not item.is_star:
                typed = total_expressions.make_total(item.unalias(), names)
                fields.append(Field(item.alias_or_name or self.binder.name("column"), typed))
                continue
            if len([value for value in item.args.values() if value]) > isinstance(item, exp.Column):
                raise _unliftable(item, "such a *")
            fields += [f for _, f in names.fields()]
        items = (As(to_sql(f.typed.node), column_name(place)) for place, f in enumerate(fields))
        query = replace(rows, columns=(As(block, BLOCK), *items))
        limit, order = tree.args.get("limit"), tree.args.get("order")
        if limit is None:  # order without a limit is irrelevant to rows aggregated above
            return Lifted(query, tuple(fields), False)
        by = []
        for node in order.expressions if order is not None else ():
            if isinstance(node.this, exp.Literal):
                raise _unliftable(node, "ORDER BY a place")
            typed = total_expressions.make_total(node.this, names)
            refuse_order([typed], node)
            by.append(f"{to_sql(typed.node)} {_direction(node)}")
        if not by:
            raise privacy_error(limit, "LIMIT inside SUBSAMPLE needs ORDER BY.")
        for f in fields:  # break ties by value, not by order of arrival
            by += _all_of(to_sql(f.typed.node), f.typed)
        # The block as an expression of this FROM: its name would mean the outer level's, by lateral reference.
        return Lifted(replace(query, qualify=_cut(block, by, limit)), tuple(fields), _is_one(limit))

    def _groups(self, tree: exp.Select, names: Names, rows: Select, block: str, twice: bool) -> Lifted:
        group, limit = tree.args.get("group"), tree.args.get("limit")
        nodes = [resolve_key(node, tree) for node in group.expressions] if group is not None else []
        above = Grouped.by(nodes, names, layered=self.binder.catalog.engine.wide_integers, twice=twice)
        outputs, labels = [], []
        for item in tree.expressions:
            call = call_of(item.unalias())
            known = call is not None and call.name in LIFTED_AGGREGATES
            label = label_of(call) if call and known else item.alias_or_name or to_sql(item)
            labels.append(item.alias or label)
            outputs.append(above.total(item.unalias()))
        fields = [Field(name, typed) for name, typed in zip(make_unique(labels), outputs, strict=True)]
        having = tree.args.get("having")
        condition = above.condition(having.this) if having is not None else ""
        order = tree.args.get("order")
        ordered = []
        for node in order.expressions if order is not None else ():
            place, typed = node.this, None
            if isinstance(place, exp.Column):
                typed = next((f.typed for f in fields if fold(f.name) == fold(place.name)), None)
            elif isinstance(place, exp.Literal) and place.name.isdigit():
                typed = dict(enumerate(outputs, 1)).get(int(place.name))
            ordered.append(f"{to_sql((typed or above.total(place)).node)} {_direction(node)}")
        self.binder.limits += [limit for moments in above.moments.values() for limit in moments.limits]
        grouped = Subquery(above.inner(block, BLOCK, rows), "g")
        if not above.keys:  # one row even without rows: the query's result for no rows
            named = [(typed.node.name, sql.startswith(COUNT_CALLS)) for sql, typed in above.made.values()]
            also = (As(f"COALESCE(g.{name}, 0)", name) if counts else f"g.{name}" for name, counts in named)
            every, same = As(f"range({self.blocks})", f"every({BLOCK})"), f"g.{BLOCK} = every.{BLOCK}"
            whole = Select((f"every.{BLOCK}", *also), Join(every, grouped, same, side="LEFT"))
            grouped = Subquery(whole, "g")
        shown = (As(to_sql(typed.node), column_name(place)) for place, typed in enumerate(outputs))
        query = Select((As(f"g.{BLOCK}", BLOCK), *shown), grouped, condition)
        if limit is not None:
            ties = [*ordered, *(part for name, t, _ in above.keys for part in _all_of(f"g.{name}", t))]
            query = replace(query, qualify=_cut(f"g.{BLOCK}", ties, limit))
        return Lifted(query, tuple(fields), not above.keys or (limit is not None and _is_one(limit)))


def _cut(block: str, by: list[str], limit: exp.Expr) -> str:
    """Return the condition that keeps LIMIT's number of rows of each block."""
    order = ", ".join(by) or "1"
    count = int(limit.expression.name)
    return f"row_number() OVER (PARTITION BY {block} ORDER BY {order}) <= {count}"


def _is_one(limit: exp.Expr) -> bool:
    return int(limit.expression.name) == 1


def _all_of(sql: str, typed: Typed) -> list[str]:
    """Return a value's sort keys, including its text if equal values may print differently."""
    return [sql, f"CAST({sql} AS VARCHAR)"] if typed.type.two_faced else [sql]


def _direction(node: exp.Expr) -> str:
    nulls = "FIRST" if node.args.get("nulls_first") else "LAST"
    return f"{'DESC' if node.args.get('desc') else 'ASC'} NULLS {nulls}"


def _unliftable(node: exp.Expr, what: str) -> Exception:
    return privacy_error(node, f"{what} is not known inside SUBSAMPLE.")


# Types unchanged by a round trip through Arrow; others become text.
_PLAIN = ("BOOLEAN", "DOUBLE", "TEXT", "DECIMAL", "DATE")
_AS_TEXT = ("UUID", "INTERVAL", "TIME", "TIMESTAMP", "INTEGER")


def _lent_as(kind: Type) -> str | None:
    """Return the type in which a column is passed to the block; None if impossible."""
    if kind.kind in _PLAIN or kind.sql == "TIMESTAMP":
        return kind.sql
    if kind.kind == "INTEGER" and kind.sql not in ("HUGEINT", "UHUGEINT"):
        return kind.sql
    if kind.kind == "LIST" and kind.element is not None and _lent_as(kind.element) == kind.element.sql:
        return kind.sql
    return "VARCHAR" if kind.kind in _AS_TEXT else None


@dataclass
class PerBlockQuery:
    """Rewrites one query. ``number`` returns the block of a private row, ``turns`` a join that repeats the rows."""

    binder: Binder
    env: Env
    number: RowSql
    turns: RepeatRows
    private: list[Relation] = field(default_factory=list)
    rows: list[BlockRows] = field(default_factory=list)
    _names: set[str] | None = None
    _sides: int = 0

    def rewrite(self, tree: exp.Select) -> tuple[str, tuple[Field, ...]]:
        """Return the SQL for one block, and its outputs.

        Raises:
            PrivacyError: it accesses data outside the block, or does not return one row.
            BindError: names or types that don't fit.
        """
        tree = tree.copy()
        tree.set("order", tree.args.get("order") if tree.args.get("limit") else None)
        check_query(tree)
        for node in list(tree.find_all(exp.Mode, exp.ArgMax, exp.ArgMin)):
            _smallest(node)
        natural = any(join_word(join, "method") == "NATURAL" for join in tree.find_all(exp.Join))
        if not natural and not any(node.is_star for node in tree.find_all(exp.Star, exp.Column)):
            self._names = {fold(node.name) for node in tree.find_all(exp.Identifier)}
        labels = [_label(item) for item in tree.expressions]
        self._sides = self._meeting(tree, {})
        self._visit(tree, {})
        if not self.rows:
            raise privacy_error(tree, "a query inside SUBSAMPLE needs private rows.")
        check_relations(self.private, tree)
        sql = to_sql(tree)
        found = describe_answer(self.binder, sql, self._schemas())
        if len(labels) == len(found) and not any(item.is_star for item in tree.expressions):
            found = [(label or name, kind) for label, (name, kind) in zip(labels, found, strict=True)]
        names = make_unique(name for name, _ in found)
        pairs = zip(names, found, strict=True)
        fields = tuple(Field(name, Typed(column(name), Type.parse(kind))) for name, (_, kind) in pairs)
        listed = ", ".join(column_name(place) for place in range(len(names)))
        return Select("*", Subquery(sql, f"answer({listed})")).sql, fields

    def _schemas(self) -> dict[str, Schema]:
        known: dict[str, Schema] = schemas(self.binder.blocks)
        given: dict[str, Schema] = {}
        for item in self.binder.lent_inputs:
            columns = self.binder.finish.describe(item.sql, known, self.binder.public)
            given[item.name] = [(name, show_label_types(kind)) for name, kind in columns]
        return {**known, **given, **{r.name: r.columns for r in self.rows}}

    # -- a unit's own rows -------------------------------------------------------------------------------------

    def _meeting(self, node: exp.Expr, scope: dict[str, int]) -> int:
        """Return how many mentions of private rows may meet in a query's joins; in a UNION, the most of one branch.

        Inside a block such rows may be joined without a condition on the unit.
        """
        with_ = node.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            inner = {**scope, fold(cte.alias): 1}  # if it is recursive
            scope = {**scope, fold(cte.alias): self._meeting(cte.this, inner)}
        found = [self._meeting(child, scope) for child in node.iter_expressions() if child is not with_]
        if isinstance(node, exp.SetOperation):
            return max(found, default=0)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            return sum(found)
        name = fold(node.name)
        if name in scope:
            return scope[name] + sum(found)
        if (cte := self.env.get(name)) is not None:
            return int(cte.private is not None) + sum(found)
        named = [table for known, table in self.binder.catalog.policy.tables.items() if fold(known) == name]
        return int(not all(table.public for table in named)) + sum(found)

    def _source(self, relation: Relation) -> exp.Expr:
        """Return the rows of a private relation; if several are joined, a public number of each unit's."""
        if self._sides < 2 or relation.unit is None:
            return relation.source
        source, limit = cut_block_rows(relation, self._sides)
        self.binder.limits.append(limit)
        return source

    # -- names --------------------------------------------------------------------------------------------------

    def _visit(self, node: exp.Expr, scope: dict[str, str]) -> None:
        """Resolve every table name: a CTE of this query, rows of the block, or a public relation."""
        with_ = node.args.get("with_")
        if with_ is not None:
            scope = dict(scope)
            for cte in with_.expressions:
                name, fresh = fold(cte.alias), self.binder.name("cte")
                inner = {**scope, name: fresh} if with_.args.get("recursive") else scope
                self._visit(cte.this, inner)
                cte.args["alias"].set("this", exp.to_identifier(fresh, quoted=True))
                scope[name] = fresh
        for child in list(node.iter_expressions()):
            if child is with_:
                continue
            if isinstance(child, exp.Table):
                child.replace(self._table(child, scope))
                for join in child.args.get("joins") or []:
                    self._visit(join, scope)
            else:
                self._visit(child, scope)

    def _table(self, node: exp.Table, scope: dict[str, str]) -> exp.Expr:
        if not isinstance(node.this, exp.Identifier):
            return node
        if node.args.get("db") is not None:
            raise bind_error(node, "tables have one plain name here.")
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name, quoted=True))
        known = scope.get(fold(node.name))
        if known is not None:
            made = exp.to_table(known, dialect="duckdb")
            made.set("alias", alias.copy())
            return made
        relation = self._relation(node)
        if relation is None:
            return self._public(node, alias)
        return self._block(relation, alias)

    def _relation(self, node: exp.Table) -> Relation | None:
        """Return a private relation, or None if the name is public."""
        cte = self.env.get(fold(node.name))
        if cte is not None:
            name = self.binder.name("source")
            return None if cte.private is None else cte.private.renamed(name, name)
        table = self.binder.catalog.find(node.name, span_of(node))
        if table.public:
            self.binder.public[table.name] = None
            return None
        name = self.binder.name("source")
        return self.binder.scan(node, table, name, name, every=True)

    def _public(self, node: exp.Table, alias: exp.Expr) -> exp.Expr:
        plain = exp.Table(this=exp.to_identifier(node.name, quoted=True))
        query = exp.Select(expressions=[exp.Star()]).from_(plain)
        relation = self.binder.public_relation(query, self.env, self.binder.name("public"))
        self.binder.lent_inputs.update(dict.fromkeys(relation.inputs))
        listed = [exp.alias_(f.typed.node.copy(), f.name, quoted=True) for f in relation.fields]
        inner = exp.Select(expressions=listed).from_(relation.source)
        return exp.Subquery(this=inner, alias=alias.copy())

    def _block(self, relation: Relation, alias: exp.Expr) -> exp.Expr:
        """Return the block's rows of a private relation; repeated mentions are read once."""
        self.private.append(relation)
        items, kept = [As(self.number(relation, relation.unit), "block")], list[exp.Expr]()
        columns: list[tuple[str, str]] = []
        for f in relation.fields:
            kind = _lent_as(f.typed.type)
            if kind is None or (self._names is not None and fold(f.name) not in self._names):
                continue
            name = exp.column(f.name, quoted=True)
            shown = unify_zeros(f.typed)  # ties have no order to sort by
            back = kind == f.typed.type.sql
            items.append(As(to_sql(shown.node if back else write_as_text(shown)), column_name(len(columns))))
            kept.append(exp.alias_(name if back else make_cast(name, f.typed.type), f.name, quoted=True))
            columns.append((f.name, kind))
        if not columns:  # only the existence of rows matters
            items.append(As("TRUE", column_name(0)))
            kept, columns = [exp.column("present")], [("present", "BOOLEAN")]
        source = self.turns(to_sql(self._source(relation)), relation, relation.unit)
        owned = () if relation.unit is None else f"{to_sql(relation.unit)} IS NOT NULL"
        rows = self.binder.name("rows")
        self.rows.append(BlockRows(rows, Select(tuple(items), source, owned).sql, tuple(columns)))
        self.binder.lent_inputs.update(dict.fromkeys(relation.inputs))
        inner = exp.Select(expressions=kept).from_(table_named(rows), copy=False)
        return exp.Subquery(this=inner, alias=alias.copy())


def _label(item: exp.Expr) -> str:
    """Return the name of an output, as the analyst wrote it."""
    call = None if item.alias else call_of(item)
    if call is not None:
        return label_of(call)
    if item.alias_or_name:
        return str(item.alias_or_name)
    return to_sql(remove_modes(item.this if isinstance(item, exp.Subquery) else item))


def _smallest(node: exp.Expr) -> None:
    """Choose the smallest of tied values, as in a lifted query; otherwise the first of the block's sorted rows."""
    ordered = isinstance(node.parent, exp.WithinGroup) or node.find(exp.Order)
    if ordered or isinstance(node.this, exp.Distinct):
        return
    last = "this" if isinstance(node, exp.Mode) else "expression"
    by = exp.Ordered(this=node.this.copy(), nulls_first=False)
    node.set(last, exp.Order(this=node.args[last], expressions=[by]))
