"""Queries that keep private rows, with a hidden unit column: projections, groups by unit, set operations, PIVOT and UNPIVOT.

    SELECT AVG(n) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id)

An aggregate of a unit's rows is a function of that unit alone, so the rows of such a query belong to units like those
of a table. Grouped by the unit only, there is one row per unit.

UNION ALL appends a unit's rows. INTERSECT, EXCEPT and UNION compare rows, and rows with the privacy unit are equal only
within one unit: each groups both sides' rows by all columns, and HAVING keeps those on the required sides. Like these
operations, GROUP BY considers NULLs equal, so the rows are DuckDB's.

PIVOT is a private block whose aggregates have a FILTER for each value, which must be public: written, declared, or of a
boolean. UNPIVOT is a UNION ALL of the rows, once per column.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from sqlglot import exp

from dpsql.binding.public_statement import (
    Env,
    UniqueNames,
    from_items,
    label_of_item,
    make_unique,
    resolve_key,
    substitute_aliases,
    write_over_rows,
)
from dpsql.binding.relations import relation as rel
from dpsql.binding.relations import windows as own
from dpsql.binding.relations.binder import Binder
from dpsql.binding.relations.exact_aggregates import Grouped, bound_rows, has_exact_aggregate
from dpsql.binding.relations.fan_out import add_unmatched, find_lost_columns, split_conjuncts
from dpsql.binding.relations.unit_rows import advise_one_unit, aggregates
from dpsql.binding.values.coercion import find_common_order, require_kind, take_value, unify
from dpsql.binding.values.declared_values import length_of
from dpsql.binding.values.sql_types import INTEGER, OTHER, Bounds, Typed, unite_bounds
from dpsql.errors import BindError, did_you_mean
from dpsql.language.dialect import (
    bind_error,
    is_not_null,
    parse_select,
    privacy_error,
    quote_where_needed,
    span_of,
    to_sql,
)
from dpsql.language.options import call_of
from dpsql.language.parameters import make_literal
from dpsql.mechanisms.queries import As, Select, Subquery
from dpsql.privacy.periods import unite_periods


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
    aliases = _spread_aliases(select, bound.names)
    windows = own.Windows(binder, bound, env)
    pairs: list[tuple[exp.Expr, exp.Expr]] = []
    conditions = [*bound.conditions]
    for place, (name, typed, same) in enumerate(_items(windows, select)):
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
        inner = select.args["where"].this
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


OutputColumn = tuple[str, Typed, "rel.Field | None"]
"""A column of the SELECT list: its name, its value, and the column it passes on, if any."""


def _items(windows: own.Windows, select: exp.Select) -> list[OutputColumn]:
    binder, bound, env = windows.binder, windows.bound, windows.env
    items: list[OutputColumn] = []
    plain = {rel.fold(i.alias_or_name) for i in select.expressions if isinstance(i, exp.Alias | exp.Column)}
    for item in select.expressions:
        if item.is_star:
            items += expand_star(item, bound, binder, env)
            continue
        same = bound.names.known(item.unalias())
        node, scope = windows.read(item.unalias())
        name, named = item.alias_or_name, isinstance(item, exp.Alias | exp.Column)
        if not named and (isinstance(item, exp.Literal) or rel.fold(name) in plain):
            name = ""  # x::INT is called x where no other column is
        items.append((name or binder.name("column"), binder.expression(node, scope, env), same))
    return items


def _list_starred(item: exp.Expr, bound: rel.From) -> list[tuple[str, rel.Field]]:
    """Return the columns of ``*`` or ``t.*``, each with its relation's alias; one merged by USING has none."""
    if isinstance(item, exp.Column):
        return [(alias, f) for alias, f in bound.names.fields() if rel.fold(alias) == rel.fold(item.table)]
    merged = [("", f) for f in bound.merged.values()]
    return merged + [(a, f) for a, f in bound.names.fields() if rel.fold(f.name) not in bound.merged]


def expand_star(item: exp.Expr, bound: rel.From, binder: Binder, env: Env) -> list[OutputColumn]:
    """Return the columns of ``*`` or ``t.*`` after EXCLUDE, REPLACE and RENAME."""
    star = item.this if isinstance(item, exp.Column) else item
    of = item.table if isinstance(item, exp.Column) else ""
    if not isinstance(star, exp.Star):
        raise bind_error(item, "only * and table.* mean all columns here.", "name the columns.")
    if of and all(rel.fold(relation.alias) != rel.fold(of) for relation in bound.relations):
        what = f"there is no table {of} in this FROM."
        raise bind_error(item, what, did_you_mean(of, [r.alias for r in bound.relations]))
    out: list[OutputColumn] = [(f.name, f.typed, f) for _, f in _list_starred(item, bound)]
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
                named = rel.asked_column(found.name)
                if len(bound.relations) > 1:
                    named.set("table", exp.to_identifier(alias, quoted=True))
                if (span := span_of(node)) is not None:
                    named.this.meta.update(start=span[0], end=span[1] - 1)
                node.replace(named)
            made: exp.Expr = holder.this
            called = made.alias.replace("\\0", found.name) if isinstance(made, exp.Alias) else found.name
            items.append(exp.alias_(made.unalias(), called, quoted=True))
    select.set("expressions", items)


def _list_meant(node: exp.Columns, bound: rel.From) -> list[tuple[str, rel.Field]]:
    """Return the columns that COLUMNS means, with the aliases of their relations."""
    what, known = node.this, list(bound.names.fields())
    if isinstance(what, exp.Star) and not any(v for key, v in what.args.items() if key != "except_"):
        gone = {rel.fold(item.name) for item in what.args.get("except_") or ()}
        return [(alias, f) for alias, f in known if rel.fold(f.name) not in gone]
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
    named = exp.Array(expressions=[exp.Literal.string(f.name) for _, f in known if not f.tells_unit][:2])
    what = "COLUMNS takes names, a regular expression or * here."
    raise bind_error(node, what, f"write COLUMNS({to_sql(named)}), with the names of the columns.")


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
        star = item.this if isinstance(item, exp.Column) else item
        if not isinstance(star, exp.Star):
            items.append(item)
            continue
        if any(star.args.values()):
            return
        items += [
            rel.column(f.name, alias) if alias else exp.column(rel.fold(f.name))
            for alias, f in _list_starred(item, bound)
        ]
    if any(f is not None and f.tells_unit for f in (bound.names.known(i.unalias()) for i in items)):
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


def _spread_aliases(select: exp.Select, names: rel.Names) -> dict[str, exp.Expr]:
    """Substitute aliases of the SELECT list in later items, WHERE and HAVING, in place, as DuckDB does; return them."""
    aliases: dict[str, exp.Expr] = {}
    items: list[exp.Expr] = []
    for item in select.expressions:
        inner = item.unalias() if item.is_star else substitute_aliases(item.unalias(), aliases, names)
        if inner == item.unalias():
            items.append(item)
        else:
            named = isinstance(item, exp.Alias | exp.Column)
            items.append(exp.alias_(inner, item.alias_or_name, quoted=True) if named else inner)
        if isinstance(item, exp.Alias):
            aliases[rel.fold(item.alias)] = inner
    select.set("expressions", items)
    for clause in (select.args.get("where"), select.args.get("having")):
        if clause is not None and (inner := substitute_aliases(clause.this, aliases, names)) != clause.this:
            clause.set("this", inner)
    return aliases


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
    known = dict(zip((name for name, _, _ in grouped.keys), map(bound.names.known, nodes), strict=True))
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


_SIDES = {exp.Union: None, exp.Intersect: (True, True), exp.Except: (True, False)}
"""The sides on which a row must, or must not, be; None for either."""


def combine(
    binder: Binder, left: rel.Relation, right: rel.Relation, tree: exp.SetOperation, env: Env
) -> rel.Relation:
    """Return the set operation of two private relations of equal units.

    Raises:
        PrivacyError: units differ, or rows of several units would be compared.
        BindError: columns don't fit.
    """
    word = tree.key.upper()
    if tree.args.get("by_name"):
        by_name = {rel.fold(f.name): f for f in right.fields}
        wanted = [rel.fold(f.name) for f in left.fields]
        if sorted(wanted) != sorted(rel.fold(f.name) for f in right.fields) or len(by_name) < len(wanted):
            word = word if tree.args.get("distinct") else f"{word} ALL"
            what = f"{word} BY NAME needs the same columns on both sides here."
            raise privacy_error(tree.left, what, "name the same columns on both sides.")
        right = replace(right, fields=tuple(by_name[name] for name in wanted))
    for clause in ("limit", "order"):
        if tree.args.get(clause):
            raise privacy_error(tree.args[clause], "private rows have no order to cut by.")
    if not tree.args.get("distinct"):
        if not isinstance(tree, exp.Union):
            what = f"{word} ALL would compare how often rows occur."
            raise privacy_error(tree.left, what, f"write {word}, with the privacy unit among the columns.")
        return _put_together(left, right, tree, binder.name("union"))
    if not any(
        mine.is_unit and other.is_unit for mine, other in zip(left.fields, right.fields, strict=False)
    ):
        what = f"{word} here would compare rows of different people."
        hint = "keep the privacy unit among the columns of both sides, or aggregate each side first."
        raise privacy_error(tree.left, what, hint)
    side = binder.name("side")
    numbers = [Typed(exp.Literal.number(i), INTEGER, Bounds.point(i), nullable=False) for i in (0, 1)]
    marked = [
        replace(relation, fields=(*relation.fields, rel.Field(side, number)))
        for relation, number in zip((left, right), numbers, strict=True)
    ]
    rows = _put_together(marked[0], marked[1], tree, binder.name("union"))
    names = [exp.column(exp.to_identifier(f.name, quoted=True)) for f in rows.fields[:-1]]
    select = exp.Select(expressions=names)
    select.set("group", exp.Group(expressions=[name.copy() for name in names]))
    conditions = [
        (exp.GT if wanted else exp.EQ)(this=_count_rows_of(side, place), expression=exp.Literal.number(0))
        for place, wanted in enumerate(_SIDES[type(tree)] or ())
    ]
    if conditions:
        select.set("having", exp.Having(this=exp.and_(*conditions, copy=False)))
    return aggregate_per_unit(binder, select, rel.From([rows], rows.source, unit=rows.unit), env)


def _count_rows_of(side: str, place: int) -> exp.Expr:
    here = exp.EQ(this=exp.column(side), expression=exp.Literal.number(place))
    return exp.CountIf(this=here)


def _put_together(
    left: rel.Relation, right: rel.Relation, tree: exp.SetOperation, alias: str
) -> rel.Relation:
    """Return UNION ALL of two private relations of equal units."""
    if left.row_level or right.row_level or left.unit is None or right.unit is None:
        raise privacy_error(tree, "rows that are their own unit can't be put together.")
    kinds = (left.unit_type, right.unit_type)
    alike = kinds[0] is not None and kinds[1] is not None and rel.meets_exactly(kinds[0], kinds[1])
    if not alike or {t.unit_domain for t in left.tables} != {t.unit_domain for t in right.tables}:
        what = "the two sides have different privacy units."
        raise privacy_error(tree.left, what, advise_one_unit([left], [right]))
    if len(left.fields) != len(right.fields):
        raise bind_error(tree, f"the two sides of {tree.key.upper()} have different numbers of columns.")
    fields, halves = [], [exp.Select(), exp.Select()]
    for place, (mine, other) in enumerate(zip(left.fields, right.fields, strict=True)):
        nodes, kind = [mine.typed.node, other.typed.node], mine.typed.type
        numbers = kind.numeric and other.typed.type.numeric
        if (kind.kind != other.typed.type.kind and not numbers) or mine.is_unit != other.is_unit:
            kind = OTHER
        elif kind != other.typed.type and not mine.is_unit:
            taken = [take_value(f.typed, tree) for f in (mine, other)]
            alike = numbers or taken[0].type == taken[1].type
            nodes, kind = unify(taken, tree.key.upper()) if alike else (nodes, OTHER)
        if kind == OTHER:
            what = f"{mine.name} is not the same kind of column on both sides."
            raise privacy_error(tree, what, "put the same columns, and the privacy unit, in the same places.")
        typed = Typed(
            rel.column(rel.column_name(place), alias),
            kind,
            unite_bounds((mine.typed.bounds, other.typed.bounds)),
            reach=unite_bounds((mine.typed.reach, other.typed.reach)),
            nullable=mine.typed.nullable or other.typed.nullable,
            plain=mine.typed.plain if mine.typed.plain == other.typed.plain else None,
            order=find_common_order([mine.typed, other.typed]),
            days=unite_periods((mine.typed.days, other.typed.days)),
        )
        if mine.typed.type.kind in ("TEXT", "LIST"):
            sides = (mine.typed, other.typed)
            longest = max(length_of(side) for side in sides)
            sure = all(side.length is not None and not side.unchecked for side in sides)
            typed = replace(typed, length=longest, unchecked=not sure)
        anchors, optional = mine.anchors & other.anchors, mine.optional or other.optional
        lost = all(f.lost or side.unmatched is None for f, side in ((mine, left), (other, right)))
        fields.append(replace(mine, typed=typed, anchors=anchors, key=False, optional=optional, lost=lost))
        for half, node in zip(halves, nodes, strict=True):
            half.append("expressions", exp.alias_(node.copy(), rel.column_name(place)))
    for half, side in zip(halves, (left, right), strict=True):
        assert side.unit is not None
        half.select(exp.alias_(side.unit.copy(), rel.UNIT), copy=False)
        half.from_(side.source.copy(), copy=False)
    source = exp.union(halves[0], halves[1], distinct=False, copy=False).subquery(
        exp.to_identifier(alias), copy=False
    )
    tables = tuple(dict.fromkeys((*left.tables, *right.tables)))
    inputs = tuple(dict.fromkeys((*left.inputs, *right.inputs)))
    both = (left, right)
    certain = rel.total_bound((side.certain_rows for side in both), sum)
    rows, each = rel.total_caps(both, sum)
    return rel.Relation(
        alias, alias, tuple(fields), source, True, rel.column(rel.UNIT, alias), tables, inputs, rows_bound=rows,
        group_rows_bound=each, certain_rows=certain, unit_type=left.unit_type, fan_out=max(left.fan_out, right.fan_out),
        unmatched=left.unmatched or right.unmatched,
    )  # fmt: skip


# -- PIVOT and UNPIVOT ------------------------------------------------------------------------------------------

MAX_PIVOTED = 200
"""The most columns that a PIVOT of private rows makes, each an aggregate with separate noise."""
_LIST_HINT = "list the values of {by} that become columns, in parentheses after it and the word in."


def open_pivots(binder: Binder, select: exp.Select, env: Env) -> None:
    """Rewrite PIVOT and UNPIVOT of private FROM items as subqueries, in place; those of public ones are unchanged.

    Raises:
        PrivacyError: the columns would reveal which values occur.
        BindError: names don't fit.
    """
    for item in from_items(select):
        pivots = item.args.get("pivots") or []
        if not pivots:
            continue
        written = item.copy()
        item.set("pivots", None)
        relation = binder.source(item, env)
        if relation is None:
            item.set("pivots", pivots)
            for pivot in pivots:
                _require_values(pivot)
            continue
        if len(pivots) > 1:
            raise bind_error(
                item, "one PIVOT stands after a private relation.", "write the second around a subquery."
            )
        (pivot,) = pivots
        made = (
            _unpivot(item, pivot, relation)
            if pivot.args.get("unpivot")
            else _pivot(binder, item, pivot, relation, env)
        )
        if not pivot.args.get("unpivot") and "mode" in select.args:
            made.set("mode", select.args.pop("mode"))
        made.meta["pivot"] = written
        alias = pivot.args.get("alias") or item.args.get("alias")
        named = (
            alias.copy()
            if alias is not None
            else exp.TableAlias(this=exp.to_identifier(item.alias_or_name or "pivoted"))
        )
        item.replace(exp.Subquery(this=made, alias=named))


def _require_values(pivot: exp.Expr) -> None:
    for place in pivot.args.get("fields") or []:
        if (
            not place.args.get("expressions")
            and not pivot.args.get("unpivot")
            and not place.args.get("field")
        ):
            by = to_sql(place.this)
            raise bind_error(place.this, "the columns of a PIVOT must be listed.", _LIST_HINT.format(by=by))


def _pivot(binder: Binder, item: exp.Expr, pivot: exp.Expr, relation: rel.Relation, env: Env) -> exp.Select:
    names = rel.Names((relation,))
    aggregates = pivot.expressions
    group = pivot.args.get("group")
    places = pivot.args.get("fields") or []
    shown = ", ".join(map(to_sql, [*(group.expressions if group else ()), *(place.this for place in places)]))
    asked = Select((shown, *map(to_sql, aggregates)), group=shown)

    def write_rows() -> str | None:
        return write_over_rows(exp.Select().from_(item.copy(), copy=False), asked)

    values = [list(_values_of(binder, place, names, env, write_rows)) for place in places]
    size = math.prod(map(len, values)) * len(aggregates)
    if size > MAX_PIVOTED:
        what = f"this PIVOT makes {size:,} columns; the limit is {MAX_PIVOTED}."
        raise bind_error(pivot, what, "group by the column as well, and pivot the answer.", around=item)
    keys = _keys(pivot, relation, item)
    made = exp.Select(expressions=[key.copy() for key in keys]).from_(item.copy(), copy=False)
    for cell in itertools.product(*values):
        label = "_".join(shown for shown, _ in cell)
        conditions = [condition for _, more in cell for condition in more]
        for aggregate in aggregates:
            name = f"{label}_{label_of_item(aggregate)}" if len(aggregates) > 1 or aggregate.alias else label
            filtered = _filter(aggregate.unalias().copy(), conditions)
            made.append("expressions", exp.alias_(filtered, name, quoted=True))
    if keys:
        made.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    return made


def _values_of(
    binder: Binder, place: exp.Expr, names: rel.Names, env: Env, write_rows: Callable[[], str | None]
) -> Iterator[tuple[str, list[exp.Expr]]]:
    """Yield the column name of each pivoted value, and its conditions; ``write_rows`` writes a query with the values in rows."""
    columns = list(place.this.expressions) if isinstance(place.this, exp.Tuple) else [place.this]
    written = list(place.args.get("expressions") or [])
    if not written:
        typed = binder.expression(columns[0], names, env)
        if typed.type.kind == "BOOLEAN":
            written = [exp.false(), exp.true()]
        elif typed.values:
            written = [
                make_literal(value)
                for value in sorted(typed.values, key=lambda value: (str(type(value)), value))
            ]
        else:
            by = to_sql(columns[0])
            what = f"the columns of this PIVOT would tell which values of {by} occur."
            hint, rows = _LIST_HINT.format(by=by), write_rows()
            raise privacy_error(
                columns[0], what, f"write {rows}: a row for each value; or {hint}" if rows else hint
            )
    for item in written:
        value = item.this if isinstance(item, exp.PivotAlias) else item
        parts = list(value.expressions) if isinstance(value, exp.Tuple) else [value]
        if len(parts) != len(columns):
            raise bind_error(value, f"{len(columns)} values are needed here.", around=place)
        shown = "_".join(map(_show, parts))
        conditions: list[exp.Expr] = []
        for node, part in zip(columns, parts, strict=True):
            if not isinstance(part, exp.Literal | exp.Boolean | exp.Null | exp.Neg | exp.Cast):
                raise bind_error(part, "the values of a PIVOT are literals.", around=place)
            missing = isinstance(part, exp.Null)
            kind = exp.Is if missing else exp.EQ
            conditions.append(kind(this=exp.paren(node.copy()), expression=part.copy()))
        yield (item.args["alias"].name if isinstance(item, exp.PivotAlias) else shown), conditions


def _show(value: exp.Expr) -> str:
    """Return a value as in DuckDB's column names."""
    if isinstance(value, exp.Literal):
        return value.name or "''"
    if isinstance(value, exp.Cast):
        return _show(value.this)
    return "NULL" if isinstance(value, exp.Null) else to_sql(value).lower()


def _keys(pivot: exp.Expr, relation: rel.Relation, item: exp.Expr) -> list[exp.Expr]:
    """Return the grouping of a PIVOT: GROUP BY, or all columns that it does not mention."""
    group = pivot.args.get("group")
    if group is not None:
        return list(group.expressions)
    places = [*pivot.expressions, *(place.this for place in pivot.args.get("fields") or [])]
    named = {rel.fold(node.name) for place in places for node in place.find_all(exp.Column)}
    rest = [f for f in relation.fields if rel.fold(f.name) not in named]
    unit = next((f for f in rest if f.tells_unit), None)
    if unit is not None:
        what = f"PIVOT without GROUP BY has a row for each value of all other columns, and {unit.name} tells people apart."
        kept = [quote_where_needed(f.name) for f in relation.fields if rel.fold(f.name) in named]
        hint = "name the columns that make its rows, as groups at its end."
        if isinstance(item, exp.Table) and kept:
            shown = to_sql(item)
            hint = f"write (SELECT {', '.join(kept)} FROM {shown}) instead of {shown}, for one row."
        raise privacy_error(pivot, what, hint, around=item)
    return [exp.column(exp.to_identifier(f.name, quoted=True)) for f in rest]


def _filter(node: exp.Expr, conditions: list[exp.Expr]) -> exp.Expr:
    """Return an expression whose aggregates are over rows that satisfy conditions."""
    call = call_of(node)
    if call is None:
        for child in list(node.iter_expressions()):
            child.replace(_filter(child.copy(), conditions))
        return node
    if call.where is not None:
        raise bind_error(
            node, "an aggregate of a PIVOT has no FILTER.", "filter the rows in a subquery, and pivot that."
        )
    parts = [condition.copy() for condition in conditions]
    return exp.Filter(this=node.copy(), expression=exp.Where(this=exp.and_(*parts, copy=False)))


def _unpivot(item: exp.Expr, pivot: exp.Expr, relation: rel.Relation) -> exp.Expr:
    """Return UNPIVOT as a UNION ALL of the rows, once per column; NULL makes no row."""
    fields = pivot.args.get("fields") or []
    place = fields[0] if len(fields) == 1 else None
    columns = place.args.get("expressions") or [] if place is not None else []
    plain = all(isinstance(node, exp.Column) for node in columns) and len(pivot.expressions) == 1
    if place is None or not columns or not plain or pivot.args.get("include_nulls"):
        what = "UNPIVOT of private rows takes plain columns here."
        raise bind_error(
            pivot, what, "name plain columns in parentheses, and leave out INCLUDE NULLS.", around=item
        )
    gone = {rel.fold(node.name) for node in columns}
    kinds = {f.typed.type.kind: f.typed.type.sql for f in relation.fields if rel.fold(f.name) in gone}
    if len(kinds) > 1:
        what = f"UNPIVOT puts these into one column, and they are {' and '.join(kinds.values())}."
        raise bind_error(place, what, "cast them to one type in a subquery, and unpivot that.", around=item)
    kept = [
        exp.column(exp.to_identifier(f.name, quoted=True))
        for f in relation.fields
        if rel.fold(f.name) not in gone
    ]
    label, value = place.this.name, pivot.expressions[0].name
    sides: list[exp.Query] = []
    for node in columns:
        side: exp.Select = exp.Select(expressions=[one.copy() for one in kept]).from_(item.copy(), copy=False)
        side.select(exp.alias_(exp.Literal.string(node.name), label, quoted=True), copy=False)
        side.select(exp.alias_(node.copy(), value, quoted=True), copy=False)
        side.where(is_not_null(node), copy=False)
        sides.append(side)
    whole = sides[0]
    for other in sides[1:]:
        whole = exp.Union(this=whole, expression=other, distinct=False)
    return whole


# -- private subqueries of public rows ----------------------------------------------------------------------------

_COMPARISONS = (exp.EQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def open_lateral(binder: Binder, select: exp.Select, place: int, env: Env) -> None:
    """Rewrite ``LATERAL (SELECT one aggregate FROM private)`` beside public rows as a subquery of each row, in place.

    PrivacyError for groups or several aggregates that read the public row.
    """
    join = select.args["joins"][place]
    node = join.this.this if isinstance(join.this, exp.Lateral) else None
    if not isinstance(node, exp.Subquery) or not isinstance(query := node.this, exp.Select):
        return
    if not aggregates(query):
        return
    if all(binder.source(item, env) is None for item in from_items(query)):
        return
    if query.args.get("group") or len(query.expressions) != 1:
        around = {rel.fold(item.alias_or_name) for item in from_items(select)}
        if around & {rel.fold(node.table) for node in query.find_all(exp.Column) if node.table}:
            what = "LATERAL over private rows takes one aggregate of each public row."
            raise privacy_error(join.this, what, "aggregate by the public key in a subquery, and join that.")
        return
    item = query.expressions[0]
    value = exp.Subquery(this=query)
    node.set(
        "this", exp.Select(expressions=[exp.alias_(value, label_of_item(item), quoted=True, copy=False)])
    )
    before = exp.Select(
        from_=select.args["from_"].copy(), joins=[j.copy() for j in select.args["joins"][:place]]
    )
    group_by_row_around(binder, query, before, env)


def group_by_row_around(binder: Binder, query: exp.Expr, around: exp.Select, env: Env) -> None:
    """Rewrite a private aggregate correlated with a public row as groups of that row's values, in place.

    ``(SELECT COUNT(*) FROM visits v WHERE v.ward = w.ward)`` for wards w is a private block over the distinct values of
    w.ward, LEFT JOIN visits, with one public group each; the subquery reads its group of the release.

    Raises:
        PrivacyError: more than one relation, or no comparison with the outer row.
    """
    if not isinstance(query, exp.Select) or isinstance(query.parent, exp.Exists | exp.In):
        return
    if not aggregates(query) or len(query.expressions) != 1:
        return
    if any(query.args.get(key) for key in ("with_", "group", "having", "qualify", "limit", "distinct")):
        return
    items = from_items(query)
    relations = [relation for item in items if (relation := binder.source(item, env)) is not None]
    scope = rel.Names(tuple(relations))
    outer = [
        node
        for node in query.find_all(exp.Column)
        if node.find_ancestor(exp.Select) is query
        and not isinstance(node.this, exp.Star)
        and scope.elsewhere(node)
    ]
    if not relations or not outer:
        return
    if len(items) > 1:
        what = "a subquery of a public row reads one private relation."
        hint = "write the join as a named query of private rows before the statement."
        raise privacy_error(query.expressions[0], what, hint, around=query)
    where = query.args.get("where")
    met = [
        side
        for part in split_conjuncts(where.this if where is not None else None)
        if isinstance(part, _COMPARISONS) and any(node in outer for node in part.find_all(exp.Column))
        for side in (part.this, part.expression)
        if isinstance(side, exp.Column) and not any(side is node for node in outer)
    ]
    if not met:
        what = "a subquery of a public row compares one of its columns with that row."
        raise privacy_error(
            query.expressions[0],
            what,
            "compare one of its columns with one of that row, as they are.",
            around=query,
        )
    there = met[0].copy()  # not NULL in a joined row
    keys: dict[str, tuple[str, exp.Expr]] = {}
    public, block, value = binder.name("public"), binder.name("beside"), binder.name("value")
    for node in outer:
        name, _ = keys.setdefault(to_sql(node), (binder.name("key"), node.copy()))
        node.replace(exp.column(name, public))
    item = query.expressions[0].unalias()
    for count in list(item.find_all(exp.Count)):
        if isinstance(count.this, exp.Star):
            count.set("this", there.copy())
    values = exp.Select(expressions=[exp.alias_(node.copy(), name) for name, node in keys.values()]).distinct(
        copy=False
    )
    values.set("from_", around.args["from_"].copy())
    values.set("joins", [join.copy() for join in around.args.get("joins") or []] or None)
    named = [exp.column(name, public) for name, _ in keys.values()]
    made = exp.Select(expressions=[*(name.copy() for name in named), exp.alias_(item.copy(), value)])
    made.set("from_", exp.From(this=values.subquery(public, copy=False)))
    made.set("joins", [exp.Join(this=items[0].copy(), side="LEFT", on=query.args["where"].this.copy())])
    made.set("group", exp.Group(expressions=named))
    if "mode" in query.args:
        made.set("mode", query.args.pop("mode"))
    found = exp.Select(expressions=[exp.column(value, block)]).from_(
        made.subquery(block, copy=False), copy=False
    )
    for name, value_around in keys.values():
        found.where(exp.NullSafeEQ(this=exp.column(name, block), expression=value_around.copy()), copy=False)
    query.replace(found)
