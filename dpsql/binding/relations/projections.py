"""Queries that keep private rows, with a hidden unit column: filters, projections, and GROUP BY the privacy unit.

    SELECT AVG(n) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id)

An aggregate of a unit's rows is a function of that unit alone, so the rows of such a query belong to units like those
of a table. Grouped by the unit only, there is one row per unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from sqlglot import exp

from dpsql.binding.public_statement import Env, UniqueNames, label_of_item, make_unique, resolve_key
from dpsql.binding.relations import relation as rel
from dpsql.binding.relations import windows as own
from dpsql.binding.relations.catalog import Binder
from dpsql.binding.relations.exact_aggregates import Grouped, bound_rows, has_exact_aggregate
from dpsql.binding.relations.fan_out import add_unmatched, find_lost_columns, split_conjuncts
from dpsql.binding.relations.plan_size import refuse_growth
from dpsql.binding.values.coercion import require_kind
from dpsql.binding.values.sql_types import Typed
from dpsql.errors import BindError, did_you_mean
from dpsql.language.dialect import (
    bind_error,
    parse_select,
    privacy_error,
    quote_where_needed,
    span_of,
    to_sql,
)
from dpsql.mechanisms.queries import As, Select, Subquery


def keep_rows(binder: Binder, select: exp.Select, bound: rel.From, env: Env) -> rel.Relation:
    """Return a SELECT that keeps private rows: projections and filters, with a hidden unit column.

    Raises:
        PrivacyError: a clause would choose rows by other units' rows.
        BindError: names or types don't fit.
    """
    qualify = _choice(select, bound)
    alias = binder.name("rows")
    alone = len(bound.relations) == 1
    query = exp.Select()
    fields, labels = list[rel.Field](), UniqueNames()
    aliases: dict[str, exp.Expr] = {}
    windows = own.Windows(binder, bound, env)
    pairs: list[tuple[exp.Expr, exp.Expr]] = []
    conditions = [*bound.conditions]
    for place, (name, typed, same) in enumerate(_items(windows, select, aliases)):
        name = labels.add(name)  # as DuckDB calls the second of two columns of one name
        query.append("expressions", exp.alias_(typed.node.copy(), rel.column_name(place)))
        there = replace(typed, node=rel.column(rel.column_name(place), alias), constant=False, twin=None)
        if typed.type.zone and typed.moment is not None:
            query.append("expressions", exp.alias_(typed.moment.copy(), rel.moment_name(place)))
            there = replace(there, twin=(there.node, rel.column(rel.moment_name(place), alias)))
        pairs.append((typed.node, there.node))
        carried = rel.carry_field(name, there, same, same is not None and same.key and alone)
        fields.append(
            replace(carried, is_period=bound.period is not None and bound.holds_period(typed.node, same))
        )
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
        bound.inputs, bound.row_level, None if bound.row_level else bound.row_cap,
        None if bound.row_level else bound.group_cap,
        1 if qualify is not None and own.keeps_first_of_each_unit(qualify, bound) else bound.certain_rows,
        unit_type=bound.unit_type, fan_out=bound.fan_out,
        conditions=rel.restate_conditions(conditions, pairs),
    )  # fmt: skip
    values = [value for value, _ in pairs]
    return add_unmatched(relation, bound.unmatched, find_lost_columns(bound.relations), values, conditions)


def _choice(select: exp.Select, bound: rel.From) -> exp.Expr | None:
    """Return the condition of QUALIFY or DISTINCT ON that chooses among the rows of one unit."""
    distinct, qualify = select.args.get("distinct"), select.args.get("qualify")
    on = distinct.args.get("on") if distinct is not None else None
    own.refuse_clauses(select, "LIMIT", "OFFSET")
    if distinct is not None and on is None:
        what = "DISTINCT below the aggregation would make one row of several people's."
        hint = "aggregate first."
        if (unit := own.find_unit_column(bound)) is not None:
            hint = f"write DISTINCT {unit}, instead of DISTINCT: each unit's rows stay apart."
        raise privacy_error(distinct, what, hint, around=select)
    if distinct is not None and on is not None:
        # One row per value: the first in its order, as by row_number() = 1.
        if qualify is not None:
            raise bind_error(on, "DISTINCT ON and QUALIFY exclude each other here.")
        keys = list(on.expressions) if isinstance(on, exp.Tuple) else [on]
        order = select.args.get("order")
        window = exp.Window(
            this=exp.RowNumber(),
            partition_by=[exp_key.copy() for exp_key in keys],
            order=order.copy() if order is not None else None,
            over="OVER",
        )
        if not own.is_partitioned_by_unit(window, bound):
            unit = own.find_unit_column(bound)
            what = "DISTINCT ON below the aggregation would choose rows by other people's rows."
            first = f"write DISTINCT ON ({unit}), or " if unit is not None else ""
            raise privacy_error(on, what, f"{first}aggregate first.")
        return exp.EQ(this=window, expression=exp.Literal.number(1))
    return qualify.this if qualify is not None else None


def _no_window(node: exp.Expr) -> None:
    inside = (n for n in node.walk(prune=lambda n: isinstance(n, exp.Query)) if isinstance(n, exp.Window))
    window = next(inside, None)
    if window is not None:
        raise bind_error(window, "a window function can't stand in WHERE.", "write QUALIFY.")


def substitute_aliases(node: exp.Expr, aliases: Mapping[str, exp.Expr], names: rel.Names) -> exp.Expr:
    """Substitute the SELECT list's aliases in an expression, as DuckDB does."""
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
    refuse_growth(inner, node)
    return inner


OutputColumn = tuple[str, Typed, "rel.Field | None"]
"""A column of the SELECT list: its name, its value, and the column it passes on, if any."""


def _items(windows: own.Windows, select: exp.Select, aliases: dict[str, exp.Expr]) -> list[OutputColumn]:
    """Return the SELECT list, and add its names to ``aliases``."""
    binder, bound, env = windows.binder, windows.bound, windows.env
    items: list[OutputColumn] = []
    plain = {rel.fold(i.alias_or_name) for i in select.expressions if isinstance(i, exp.Alias | exp.Column)}
    for item in select.expressions:
        if item.is_star:
            items += expand_star(item, bound, binder, env)
            continue
        inner = substitute_aliases(item.unalias(), aliases, bound.names)
        same = bound.names.known(inner)
        node, scope = windows.read(inner)
        name, named = item.alias_or_name, isinstance(item, exp.Alias | exp.Column)
        if not named and (isinstance(item, exp.Literal) or rel.fold(name) in plain):
            name = ""  # x::INT is called x where no other column is
        items.append((name or binder.name("column"), binder.expression(node, scope, env), same))
        if isinstance(item, exp.Alias):
            aliases[rel.fold(item.alias)] = inner
    return items


def expand_star(item: exp.Expr, bound: rel.From, binder: Binder, env: Env) -> list[OutputColumn]:
    """Return the columns of ``*`` or ``t.*`` after EXCLUDE, REPLACE and RENAME."""
    star = item.this if isinstance(item, exp.Column) else item
    of = item.table if isinstance(item, exp.Column) else ""
    table = rel.fold(of)
    if not isinstance(star, exp.Star):
        raise bind_error(item, "only * and table.* mean all columns here.", "name the columns.")
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
    """Return the column of EXCLUDE, REPLACE or RENAME: the old name in (a AS b) of RENAME, the new one of REPLACE."""
    return str(
        node.this.name
        if isinstance(node, exp.Alias) and isinstance(node.parent, exp.Star) and node.arg_key == "rename"
        else node.alias_or_name
    )


def rename_columns(relation: rel.Relation, names: list[str], place: exp.Expr) -> rel.Relation:
    """Rename the first columns by position, as in ``(SELECT ...) AS v(a, b)``; their properties are kept."""
    span = span_of(place.args.get("alias"))
    if len(names) > len(relation.fields):
        raise BindError(f"there are {len(names)} names for {len(relation.fields)} columns.", span=span)
    names = [*names, *(f.name for f in relation.fields[len(names) :])]
    if len({rel.fold(name) for name in names}) < len(names):
        raise BindError("two columns have one name.", span=span, hint="give each its own.")
    fields = tuple(replace(f, name=name) for name, f in zip(names, relation.fields, strict=True))
    return replace(relation, fields=fields)


# -- each unit's own --------------------------------------------------------------------------------------------


def groups_by_unit(select: exp.Select, bound: rel.From) -> bool:
    """Return whether a SELECT groups by the privacy unit (and perhaps more)."""
    group = select.args.get("group")
    if group is None or bound.unit is None:
        return False
    if any(group.args.get(key) for key in ("rollup", "cube", "grouping_sets")):
        return False
    nodes = _grouped_by(select, bound.names)
    told = own.tells_unit(nodes, bound)
    if told and not own.holds_period(nodes, bound):
        assert bound.period is not None
        unit = own.find_unit_column(bound)
        what = f"one person's rows {bound.period.words} are protected here, and this adds up several of them."
        raise privacy_error(group, what, f"write GROUP BY {unit}, or aggregate first.", around=select)
    return told


def spread_columns(select: exp.Select, bound: rel.From) -> None:
    """Write an item with COLUMNS once for each column that it means, in place.

    Raises:
        BindError: it means no column, or it isn't a list of names, a regular expression or ``*``.
    """
    if not any(item.find(exp.Columns) for item in select.expressions):
        return
    items: list[exp.Expr] = []
    for item in select.expressions:
        inside = [node for node in item.find_all(exp.Columns) if node.find_ancestor(exp.Select) is select]
        if not inside:
            items.append(item)
            continue
        for alias, found in _list_meant(inside[0], bound):
            holder = exp.Paren(this=item.copy())
            for node in list(holder.find_all(exp.Columns)):
                if node != inside[0]:
                    raise bind_error(node, "an item has one COLUMNS here.", "write each column.")
                name = exp.to_identifier(found.name, quoted=quote_where_needed(found.name) != found.name)
                table = exp.to_identifier(alias, quoted=True) if len(bound.relations) > 1 else None
                named = exp.Column(this=name, table=table)
                if (span := span_of(node)) is not None:
                    name.meta.update(start=span[0], end=span[1] - 1)
                node.replace(named)
            made: exp.Expr = holder.this
            called = made.alias.replace("\\0", found.name) if isinstance(made, exp.Alias) else found.name
            items.append(exp.alias_(made.unalias(), called, quoted=True))
    select.set("expressions", items)


def _list_meant(node: exp.Columns, bound: rel.From) -> list[tuple[str, rel.Field]]:
    """Return the columns that COLUMNS means, with the aliases of their relations."""
    what, known = node.this, list(bound.names.fields())
    if isinstance(what, exp.Star) and not any(what.args.values()):
        return known
    if isinstance(what, exp.Array) and all(
        isinstance(i, exp.Literal) and i.is_string for i in what.expressions
    ):
        wanted = {rel.fold(item.name): item for item in what.expressions}
        for name in wanted.keys() - {rel.fold(f.name) for _, f in known}:
            hint = did_you_mean(wanted[name].name, [f.name for _, f in known])
            raise bind_error(wanted[name], f"there is no column {wanted[name].name} here.", hint, around=node)
        return [(alias, f) for alias, f in known if rel.fold(f.name) in wanted]
    if isinstance(what, exp.Literal) and what.is_string:
        with suppress(re.error, RecursionError, OverflowError):
            pattern = re.compile(what.name)
            if found := [(alias, f) for alias, f in known if pattern.search(f.name)]:
                return found
        raise bind_error(node, "no column here has a name like that.", "write COLUMNS(['a', 'b']).")
    raise bind_error(
        node, "COLUMNS takes names, a regular expression or * here.", "write COLUMNS(['a', 'b'])."
    )


def wrap_distinct(select: exp.Select) -> exp.Select | None:
    """Return ``SELECT DISTINCT * FROM (SELECT ...)`` for a SELECT DISTINCT with windows; None for others."""
    distinct = select.args.get("distinct")
    if distinct is None or distinct.args.get("on") is not None:
        return None
    if not any(item.find(exp.Window) for item in select.expressions):
        return None
    inner = select.copy()
    inner.set("distinct", None)
    outer = exp.Select(expressions=[exp.Star()], distinct=distinct.copy())
    return outer.from_(inner.subquery(copy=False), copy=False)


def group_distinct(select: exp.Select, bound: rel.From) -> None:
    """Rewrite ``SELECT DISTINCT unit, ...`` as GROUP BY ALL, in place: each unit's distinct rows."""
    distinct = select.args.get("distinct")
    if distinct is None or distinct.args.get("on") is not None or bound.unit is None:
        return
    if any(item.find(exp.Window) for item in select.expressions):
        return
    items: list[exp.Expr] = []
    for item in select.expressions:
        table = rel.fold(item.table) if isinstance(item, exp.Column) else ""
        star = item.this if isinstance(item, exp.Column) else item
        if not isinstance(star, exp.Star):
            items.append(item)
            continue
        if any(star.args.values()):
            return
        items += [exp.column(name) for name in bound.merged if not table]
        items += [
            rel.column(f.name, alias)
            for alias, f in bound.names.fields()
            if (rel.fold(alias) == table if table else rel.fold(f.name) not in bound.merged)
        ]
    if any(f is not None and f.tells_unit for f in _grouped_fields([i.unalias() for i in items], bound)):
        select.set("expressions", items)
        select.set("distinct", None)
        select.set("group", exp.Group(all=True))


def _grouped_by(select: exp.Select, names: rel.Names) -> list[exp.Expr]:
    """Return the grouping expressions; GROUP BY ALL means the columns without aggregates."""
    group = select.args["group"]
    nodes = list(group.expressions)
    if group.args.get("all"):
        items = [item.unalias() for item in select.expressions]
        nodes = [item for item in items if not has_exact_aggregate(item)]
    return [resolve_key(node, select, lambda column: names.known(column) is not None) for node in nodes]


def _spread_aliases(select: exp.Select, names: rel.Names) -> None:
    """Substitute aliases of the SELECT list in later items, WHERE and HAVING, in place, as DuckDB does."""
    aliases: dict[str, exp.Expr] = {}
    items: list[exp.Expr] = []
    for item in select.expressions:
        inner = substitute_aliases(item.unalias(), aliases, names)
        name = item.alias_or_name if isinstance(item, exp.Alias | exp.Column) and not item.is_star else ""
        items.append(exp.alias_(inner, name, quoted=True) if name and inner != item.unalias() else item)
        if isinstance(item, exp.Alias):
            aliases[rel.fold(item.alias)] = inner
    select.set("expressions", items)
    for clause in (select.args.get("where"), select.args.get("having")):
        if clause is not None and (inner := substitute_aliases(clause.this, aliases, names)) != clause.this:
            clause.set("this", inner)


def _grouped_fields(nodes: list[exp.Expr], bound: rel.From) -> list[rel.Field | None]:
    return [bound.names.known(node) for node in nodes]


def aggregate_per_unit(binder: Binder, select: exp.Select, bound: rel.From, env: Env) -> rel.Relation:
    """Return the SELECT as a private relation with a hidden unit column.

    Raises:
        PrivacyError: a clause would choose among units.
        BindError: names or types don't fit.
    """
    own.refuse_clauses(select, "LIMIT", "OFFSET", "QUALIFY", "DISTINCT")
    assert bound.unit is not None
    _spread_aliases(select, bound.names)
    nodes = _grouped_by(select, bound.names)
    grouped = Grouped.by(nodes, bound.names, bound_rows(bound))
    known = dict(zip((name for name, _, _ in grouped.keys), _grouped_fields(nodes, bound), strict=True))
    outputs = [grouped.total(item.unalias()) for item in select.expressions]
    having, where = (select.args.get(key) for key in ("having", "where"))
    kept = grouped.condition(having.this) if having is not None else ""
    unit = to_sql(bound.unit)
    asked = [f"{unit} IS NOT NULL"]
    if where is not None:
        asked.append(f"({to_sql(binder.expression(where.this, bound.names, env).node)})")
    alias = binder.name("rows")
    shown = (As(to_sql(typed.node), rel.column_name(place)) for place, typed in enumerate(outputs))
    inner = Subquery(grouped.inner(unit, rel.UNIT, Select((), bound.sql, tuple(asked))), "g")
    query = Select((*shown, As(f"g.{rel.UNIT}", rel.UNIT)), inner, kept)
    parts = {
        name for (name, _, _), node in zip(grouped.keys, nodes, strict=True) if own.is_period(node, bound)
    }
    fields = []
    labels = make_unique(label_of_item(item) for item in select.expressions)
    for place, (name, typed) in enumerate(zip(labels, outputs, strict=True)):
        same = known.get(typed.node.name) if isinstance(typed.node, exp.Column) else None
        node = rel.column(rel.column_name(place), alias)
        there = replace(typed, node=node, constant=False)
        carried = rel.carry_field(name, there, same, len(nodes) == 1)
        by = typed.node.name if isinstance(typed.node, exp.Column) else ""
        fields.append(replace(carried, is_period=carried.is_period or by in parts))
    subquery = parse_select(query.sql).subquery(exp.to_identifier(alias), copy=False)
    alone = all(
        f.is_unit or rel.PERSON in f.anchors if f is not None and f.tells_unit else name in parts
        for name, f in known.items()
    )
    return rel.Relation(
        alias, alias, tuple(fields), subquery, True, rel.column(rel.UNIT, alias), bound.tables, bound.inputs, False,
        bound.row_cap, bound.group_cap, 1 if alone else bound.certain_rows, unit_type=bound.unit_type,
        fan_out=1 if alone else bound.fan_out,
    )  # fmt: skip
