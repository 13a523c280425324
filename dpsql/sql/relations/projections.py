"""Queries that keep private rows: filters, projections, UNION ALL. The unit is carried along, unseen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlglot import exp

from dpsql.errors import BindError, did_you_mean
from dpsql.sql.expressions.coercion import require_kind
from dpsql.sql.expressions.lengths import length_of
from dpsql.sql.expressions.types import Typed
from dpsql.sql.normalize import Env
from dpsql.sql.parse.dialect import bind_error, privacy_error, span_of
from dpsql.sql.relations import relation as rel
from dpsql.sql.relations.catalog import Binder
from dpsql.sql.relations.fan_out import split_conjuncts
from dpsql.sql.relations.windows import (
    Windows,
    find_unit_column,
    is_partitioned_by_unit,
    keeps_first_of_each_unit,
    refuse_clauses,
)


def keep_rows(binder: Binder, select: exp.Select, bound: rel.From, env: Env) -> rel.Relation:
    """Return a SELECT that keeps private rows: projections and filters, with the unit carried along unseen.

    Raises:
        PrivacyError: a clause that would choose rows by other units' rows. BindError: names or types.
    """
    qualify = _choice(select, bound)
    alias = binder.name("rows")
    alone = len(bound.relations) == 1
    query = exp.Select()
    fields: list[rel.Field] = []
    aliases: dict[str, exp.Expr] = {}
    windows = Windows(binder, bound, env)
    pairs: list[tuple[exp.Expr, exp.Expr]] = []
    conditions = [*bound.conditions]
    for place, (name, typed, same) in enumerate(_items(windows, select, aliases)):
        if any(rel.fold(f.name) == rel.fold(name) for f in fields):
            raise bind_error(select, f"two columns are called {name}.", "give one an alias.")
        query = query.select(exp.alias_(typed.node.copy(), rel.column_name(place)), copy=False)
        there = replace(typed, node=rel.column(rel.column_name(place), alias), constant=False)
        pairs.append((typed.node, there.node))
        fields.append(rel.carry_field(name, there, same, same is not None and same.key and alone))
    if bound.unit is not None:
        query = query.select(exp.alias_(bound.unit.copy(), rel.UNIT), copy=False)
    query = query.from_(bound.source.copy(), copy=False)
    for join in bound.joins:
        query = query.join(join.copy(), copy=False)
    if select.args.get("where"):
        inner = substitute_aliases(select.args["where"].this, aliases, bound.names)
        _no_window(inner)
        holds = binder.expression(inner, bound.names, env).node
        conditions += split_conjuncts(holds)
        query = query.where(holds, copy=False)
    kept = None
    if qualify is not None:
        inner, scope = windows.read(substitute_aliases(qualify, aliases, bound.names))
        typed = binder.expression(inner, scope, env)
        require_kind(typed, ("BOOLEAN",), "a condition is needed")
        kept = typed.node
    query = windows.below(query, kept)
    unit = None if bound.unit is None else rel.column(rel.UNIT, alias)
    relation = rel.Relation(
        alias, alias, tuple(fields), query.subquery(exp.to_identifier(alias), copy=False), True, unit, bound.tables,
        bound.inputs, bound.row_level, None if bound.row_level else bound.max_rows, unit_type=bound.unit_type,
        per_unit=qualify is not None and keeps_first_of_each_unit(qualify, bound), fan_out=bound.fan_out,
        conditions=rel.restate_conditions(conditions, pairs),
    )  # fmt: skip
    values = [value for value, _ in pairs]
    return rel.add_unmatched(
        relation, bound.unmatched, rel.find_lost_columns(bound.relations), values, conditions
    )


def _choice(select: exp.Select, bound: rel.From) -> exp.Expr | None:
    """Return the condition that QUALIFY or DISTINCT ON make, where they choose among the rows of one unit."""
    distinct, qualify = select.args.get("distinct"), select.args.get("qualify")
    on = distinct.args.get("on") if distinct is not None else None
    refuse_clauses(select, "LIMIT", "OFFSET")
    if distinct is not None and on is None:
        unit = find_unit_column(bound)
        raise privacy_error(
            distinct,
            "DISTINCT below the aggregation would make one row of several people's.",
            f"keep the unit, as in SELECT DISTINCT {unit}, ..., or write COUNT(DISTINCT x)."
            if unit is not None
            else "aggregate first, or write COUNT(DISTINCT x).",
            around=select,
        )
    if distinct is not None and on is not None:
        # One row for each value: the first in its order, which is what row_number() = 1 says.
        if qualify is not None:
            raise bind_error(on, "DISTINCT ON and QUALIFY exclude each other here.")
        keys = list(on.expressions) if isinstance(on, exp.Tuple) else [on]
        order = select.args.get("order")
        window = exp.Window(
            this=exp.RowNumber(), partition_by=[exp_key.copy() for exp_key in keys],
            order=order.copy() if order is not None else None, over="OVER",
        )  # fmt: skip
        if not is_partitioned_by_unit(window, bound):
            unit = find_unit_column(bound)
            raise privacy_error(
                on,
                "DISTINCT ON below the aggregation would choose rows by other people's rows.",
                f"write DISTINCT ON ({unit}), or aggregate first."
                if unit is not None
                else "aggregate first.",
            )
        return exp.EQ(this=window, expression=exp.Literal.number(1))
    return qualify.this if qualify is not None else None


def _no_window(node: exp.Expr) -> None:
    own = (n for n in node.walk(prune=lambda n: isinstance(n, exp.Query)) if isinstance(n, exp.Window))
    window = next(own, None)
    if window is not None:
        raise bind_error(window, "a window function can't stand in WHERE.", "write QUALIFY.")


def substitute_aliases(node: exp.Expr, aliases: Mapping[str, exp.Expr], names: rel.Names) -> exp.Expr:
    """Return the expression with what the SELECT list calls by a name in place of that name, as DuckDB reads it."""
    if not aliases:
        return node
    holder = exp.Paren(this=node.copy())
    for found in list(holder.find_all(exp.Column)):
        if isinstance(found.this, exp.Star) or found.table or found.find_ancestor(exp.Query) is not None:
            continue
        meant = aliases.get(rel.fold(found.name))
        if meant is not None and names.known(found) is None:
            found.replace(exp.Paren(this=meant.copy()))
    inner: exp.Expr = holder.this
    return inner


OutputColumn = tuple[str, Typed, "rel.Field | None"]
"""A column of the SELECT list: its name, its value, and the column that it is, if it is one."""


def _items(windows: Windows, select: exp.Select, aliases: dict[str, exp.Expr]) -> list[OutputColumn]:
    """Return the SELECT list; ``aliases`` is filled with what it calls by a name."""
    binder, bound, env = windows.binder, windows.bound, windows.env
    items: list[OutputColumn] = []
    for item in select.expressions:
        if item.is_star:
            items += expand_star(item, bound, binder, env)
            continue
        inner = substitute_aliases(item.unalias(), aliases, bound.names)
        same = bound.names.known(inner)
        node, scope = windows.read(inner)
        items.append((item.alias_or_name or binder.name("column"), binder.expression(node, scope, env), same))
        if isinstance(item, exp.Alias):
            aliases[rel.fold(item.alias)] = inner
    return items


def expand_star(item: exp.Expr, bound: rel.From, binder: Binder, env: Env) -> list[OutputColumn]:
    """Return the columns that ``*`` or ``t.*`` stands for, without those it excludes, with those it replaces or renames."""
    star = item.this if isinstance(item, exp.Column) else item
    of = item.table if isinstance(item, exp.Column) else ""
    table = rel.fold(of)
    if not isinstance(star, exp.Star):
        raise bind_error(item, "only * and table.* stand for all columns here.", "name the columns.")
    out: list[OutputColumn] = [] if table else [(f.name, f.typed, f) for f in bound.merged.values()]
    if table and all(rel.fold(relation.alias) != table for relation in bound.relations):
        what = f"there is no table {of} in this FROM."
        raise bind_error(item, what, did_you_mean(of, [r.alias for r in bound.relations]))
    merged = set(bound.merged)
    for alias, f in bound.names.fields():
        if rel.fold(alias) == table or (not table and rel.fold(f.name) not in merged):
            out.append((f.name, f.typed, f))
    changes = {
        key: {rel.fold(_named(node)): node for node in star.args.get(key) or []}
        for key in ("except_", "replace", "rename")
    }
    here = {rel.fold(name) for name, _, _ in out}
    for nodes in changes.values():
        for name, node in nodes.items():
            if name not in here:
                what = f"there is no column {_named(node)} among these."
                raise bind_error(node, what, did_you_mean(_named(node), [shown for shown, _, _ in out]))
    found: list[OutputColumn] = []
    for name, typed, same in out:
        key = rel.fold(name)
        if key in changes["except_"]:
            continue
        if key in changes["replace"]:
            node = changes["replace"][key].unalias()
            typed, same = binder.expression(node, bound.names, env), bound.names.known(node)
        renamed = changes["rename"].get(key)
        found.append((renamed.alias if renamed is not None else name, typed, same))
    return found


def _named(node: exp.Expr) -> str:
    """Return the column that EXCLUDE, REPLACE or RENAME speaks of: the old name in (a AS b) of RENAME, the new one of REPLACE."""
    return str(node.this.name if isinstance(node, exp.Alias) and isinstance(node.parent, exp.Star) and node.arg_key == "rename"
               else node.alias_or_name)  # fmt: skip


def rename_columns(relation: rel.Relation, names: list[str], place: exp.Expr) -> rel.Relation:
    """``(SELECT ...) AS v(a, b)``: the first columns under other names. What they are goes with them, by position."""
    span = span_of(place.args.get("alias"))
    if len(names) > len(relation.fields):
        raise BindError(f"there are {len(names)} names for {len(relation.fields)} columns.", span=span)
    names = [*names, *(f.name for f in relation.fields[len(names) :])]
    if len({rel.fold(name) for name in names}) < len(names):
        raise BindError("two columns have one name.", span=span, hint="give each its own.")
    fields = tuple(replace(f, name=name) for name, f in zip(names, relation.fields, strict=True))
    return replace(relation, fields=fields)


def bind_union_all(left: rel.Relation, right: rel.Relation, tree: exp.Expr, alias: str) -> rel.Relation:
    """Return UNION ALL of two private relations of the same units."""
    if left.row_level or right.row_level or left.unit is None or right.unit is None:
        raise privacy_error(tree, "rows that are their own unit can't be put together.")
    kinds = (left.unit_type, right.unit_type)
    alike = kinds[0] is not None and kinds[1] is not None and rel.meets_exactly(kinds[0], kinds[1])
    if not alike or {rel.name_unit_domain(t) for t in left.tables} != {
        rel.name_unit_domain(t) for t in right.tables
    }:
        raise privacy_error(tree, "the two sides have different privacy units.")
    if len(left.fields) != len(right.fields):
        raise bind_error(tree, "the two sides of UNION ALL have different numbers of columns.")
    fields, halves = [], [exp.Select(), exp.Select()]
    for place, (mine, other) in enumerate(zip(left.fields, right.fields, strict=True)):
        if mine.typed.type.kind != other.typed.type.kind or mine.is_unit != other.is_unit:
            what = f"{mine.name} is not the same kind of column on both sides."
            raise privacy_error(tree, what, "put the same columns, and the privacy unit, in the same places.")
        bounds = None
        if mine.typed.bounds is not None and other.typed.bounds is not None:
            bounds = mine.typed.bounds.union(other.typed.bounds)
        typed = replace(
            mine.typed, node=rel.column(rel.column_name(place), alias), bounds=bounds, values=None
        )
        if mine.typed.type.kind in ("TEXT", "LIST"):
            sides = (mine.typed, other.typed)
            longest = max(length_of(side) for side in sides)
            sure = all(side.length is not None and not side.unchecked for side in sides)
            typed = replace(typed, length=longest, unchecked=not sure)
        anchors, optional = mine.anchors & other.anchors, mine.optional or other.optional
        lost = all(f.lost or side.unmatched is None for f, side in ((mine, left), (other, right)))
        fields.append(replace(mine, typed=typed, anchors=anchors, key=False, optional=optional, lost=lost))
        for half, f in zip(halves, (mine, other), strict=True):
            half.select(exp.alias_(f.typed.node.copy(), rel.column_name(place)), copy=False)
    for half, side in zip(halves, (left, right), strict=True):
        assert side.unit is not None
        half.select(exp.alias_(side.unit.copy(), rel.UNIT), copy=False)
        half.from_(side.source.copy(), copy=False)
    source = exp.union(halves[0], halves[1], distinct=False, copy=False).subquery(
        exp.to_identifier(alias), copy=False
    )
    tables = tuple(dict.fromkeys((*left.tables, *right.tables)))
    inputs = tuple(dict.fromkeys((*left.inputs, *right.inputs)))
    known = [side.max_rows for side in (left, right)]
    rows = None if None in known else sum(r for r in known if r is not None)
    return rel.Relation(
        alias, alias, tuple(fields), source, True, rel.column(rel.UNIT, alias), tables, inputs, rows_bound=rows,
        unit_type=left.unit_type, fan_out=max(left.fan_out, right.fan_out), unmatched=left.unmatched or right.unmatched,
    )  # fmt: skip
