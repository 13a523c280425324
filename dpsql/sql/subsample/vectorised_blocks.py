"""Any query, for every subsample block at once: each level also groups by the block.

A lifted query has the number of the block as its first column. Rows get it from the hash of their privacy unit; an
aggregation keeps it as a key; ORDER BY ... LIMIT applies within it. The result has one row per block if the query has one row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import exp

from dpsql.errors import PrivacyError
from dpsql.sql.expressions import total_expressions
from dpsql.sql.expressions.coercion import refuse_order
from dpsql.sql.expressions.types import Typed
from dpsql.sql.normalize import Env, label_of, make_unique, resolve_key
from dpsql.sql.parse.dialect import parse_fragment, privacy_error, to_sql
from dpsql.sql.parse.options import call_of
from dpsql.sql.relations.catalog import Binder
from dpsql.sql.relations.exact_aggregates import COUNT_CALLS, EXACT_AGGREGATES, Grouped, has_exact_aggregate
from dpsql.sql.relations.relation import Field, From, Names, Relation, column, column_name, fold
from dpsql.sql.relations.unit_rows import find_unit_holder

BLOCK = "dpsql_block"
"""The block's column: no analyst's column has this name, and it is always qualified against names of outer levels."""


@dataclass(frozen=True)
class Lifted:
    """A query whose first column is the block; its other columns have positional names in SQL."""

    sql: str
    fields: tuple[Field, ...]
    single: bool
    """Whether it has one row per block, by its form."""

    def relation(self, alias: str, name: str) -> Relation:
        """Return it as a relation of an outer query."""
        fields = tuple(
            replace(f, typed=replace(f.typed, node=column(column_name(place), name)))
            for place, f in enumerate(self.fields)
        )
        source: exp.Expr = parse_fragment(f"SELECT * FROM ({self.sql}) AS {name}").args["from_"].this
        return Relation(alias, name, fields, source, True)


RowSql = Callable[[Relation, exp.Expr | None], str]
"""Returns SQL about a private row, given its relation and privacy unit."""


def write_where(unit: exp.Expr | None, select: exp.Select, names: Names, *more: str) -> str:
    """Return the WHERE of a query inside a block: its own, and that a unit owns the row.

    An outer join keeps a row without a unit because no unit matches it: it would carry one unit's influence into another block.
    """
    conditions = [f"{to_sql(unit)} IS NOT NULL"] if unit is not None else []
    where = select.args.get("where")
    if where is not None:
        conditions.append(f"({to_sql(total_expressions.make_condition(where.this, names).node)})")
    conditions += more
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


_UNLIFTABLE = {
    "qualify": "QUALIFY", "windows": "WINDOW", "offset": "OFFSET", "sample": "USING SAMPLE", "distinct": "DISTINCT",
}  # fmt: skip
Ctes = dict[str, tuple[exp.Expr, "Ctes"]]
"""Names defined by WITH: a query, and the names visible in it."""


@dataclass
class Lifter:
    """Lifts one query over ``blocks`` blocks; ``number`` returns a row's, ``turns`` a join that repeats rows."""

    binder: Binder
    number: RowSql
    turns: RowSql
    blocks: int
    bound: list[From] = field(default_factory=list)
    """Every FROM over private tables, for users of their units."""

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
        text = write_where(owned, tree, names)
        if tree.args.get("group") or any(map(has_exact_aggregate, tree.expressions)):
            return self._groups(tree, names, f"{source}{text}", block, twice)
        rows = self._rows(tree, names, f"{source}{text}", block)
        return replace(rows, single=rows.single or one)

    def _from(
        self, tree: exp.Select, env: Env, ctes: Ctes
    ) -> tuple[Names, str, str, exp.Expr | None, bool, bool]:  # fmt: skip
        """Return the scope, FROM as SQL, a row's block, its required unit, whether blocks have one row, and whether
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
        source = f"{bound.sql}{self.turns(private, bound.unit)}"
        return bound.names, source, self.number(private, bound.unit), bound.unit, False, True

    def _rows(self, tree: exp.Select, names: Names, source: str, block: str) -> Lifted:
        fields = list[Field]()
        for item in tree.expressions:
            if not item.is_star:
                typed = total_expressions.make_total(item.unalias(), names)
                fields.append(Field(item.alias_or_name or self.binder.name("column"), typed))
                continue
            if len([value for value in item.args.values() if value]) > isinstance(item, exp.Column):
                raise _unliftable(item, "such a *")
            fields += [f for _, f in names.fields()]
        items = [f"{to_sql(f.typed.node)} AS {column_name(place)}" for place, f in enumerate(fields)]
        text = f"SELECT {', '.join([f'{block} AS {BLOCK}', *items])} FROM {source}"
        limit, order = tree.args.get("limit"), tree.args.get("order")
        if limit is None:  # order without a limit is irrelevant to rows aggregated above
            return Lifted(text, tuple(fields), False)
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
        return Lifted(text + _cut(block, by, limit), tuple(fields), _is_one(limit))

    def _groups(self, tree: exp.Select, names: Names, source: str, block: str, twice: bool) -> Lifted:
        group, limit = tree.args.get("group"), tree.args.get("limit")
        nodes = [resolve_key(node, tree) for node in group.expressions] if group is not None else []
        above = Grouped.by(nodes, names, layered=self.binder.catalog.engine.wide_integers, twice=twice)
        outputs, labels = [], []
        for item in tree.expressions:
            call = call_of(item.unalias())
            known = call is not None and call.name in EXACT_AGGREGATES
            label = label_of(call) if call and known else item.alias_or_name or to_sql(item)
            labels.append(item.alias or label)
            outputs.append(above.total(item.unalias()))
        fields = [Field(name, typed) for name, typed in zip(make_unique(labels), outputs, strict=True)]
        having = tree.args.get("having")
        condition = f" WHERE {above.condition(having.this)}" if having is not None else ""
        order = tree.args.get("order")
        ordered = []
        for node in order.expressions if order is not None else ():
            place, typed = node.this, None
            if isinstance(place, exp.Column):
                typed = next((f.typed for f in fields if fold(f.name) == fold(place.name)), None)
            elif (
                isinstance(place, exp.Literal) and place.name.isdigit() and 0 < int(place.name) <= len(fields)
            ):
                typed = outputs[int(place.name) - 1]
            ordered.append(f"{to_sql((typed or above.total(place)).node)} {_direction(node)}")
        self.binder.limits += [limit for moments in above.moments.values() for limit in moments.limits]
        grouped = f"({above.inner(block, BLOCK, source)}) AS g"
        if not above.keys:  # one row even without rows: the query's result for no rows
            also = []
            for sql, typed in above.made.values():
                name = typed.node.name
                also.append(
                    f"COALESCE(g.{name}, 0) AS {name}" if sql.startswith(COUNT_CALLS) else f"g.{name}"
                )
            every = f"range({self.blocks}) AS every({BLOCK}) LEFT JOIN {grouped} ON g.{BLOCK} = every.{BLOCK}"
            grouped = f"(SELECT {', '.join([f'every.{BLOCK}', *also])} FROM {every}) AS g"
        shown = [f"{to_sql(typed.node)} AS {column_name(place)}" for place, typed in enumerate(outputs)]
        text = f"SELECT {', '.join([f'g.{BLOCK} AS {BLOCK}', *shown])} FROM {grouped}{condition}"
        if limit is not None:
            ties = [*ordered, *(part for name, t, _ in above.keys for part in _all_of(f"g.{name}", t))]
            text += _cut(f"g.{BLOCK}", ties, limit)
        return Lifted(text, tuple(fields), not above.keys or (limit is not None and _is_one(limit)))


def _cut(block: str, by: list[str], limit: exp.Expr) -> str:
    """Return the condition that keeps LIMIT's number of rows of each block."""
    order = ", ".join(by) or "1"
    count = int(limit.expression.name)
    return f" QUALIFY row_number() OVER (PARTITION BY {block} ORDER BY {order}) <= {count}"


def _is_one(limit: exp.Expr) -> bool:
    return int(limit.expression.name) == 1


def _all_of(sql: str, typed: Typed) -> list[str]:
    """Return a value's sort keys, including its text if equal values may print differently."""
    return [sql, f"CAST({sql} AS VARCHAR)"] if typed.type.two_faced else [sql]


def _direction(node: exp.Expr) -> str:
    nulls = "FIRST" if node.args.get("nulls_first") else "LAST"
    return f"{'DESC' if node.args.get('desc') else 'ASC'} NULLS {nulls}"


def refuse_many_rows(select: exp.Select) -> PrivacyError:
    """Return the refusal of a query that may return more than one row."""
    return privacy_error(
        select.args.get("group"),
        "a query inside SUBSAMPLE must give one row.",
        "aggregate to one row, or order the rows and keep the first.",
        around=select.expressions[0],
    )


def _unliftable(node: exp.Expr, what: str) -> PrivacyError:
    return privacy_error(node, f"{what} is not known inside SUBSAMPLE.")
