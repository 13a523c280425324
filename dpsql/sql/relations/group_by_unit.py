"""GROUP BY the privacy unit, in a subquery: each unit's own aggregates, still private, still theirs.

    SELECT AVG(n) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id)

What a unit's rows add up to is a function of that unit alone, so the rows of such a query belong to units like the rows
of a table do. Grouped by the unit only, there is one row per unit.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from dpsql.sql.expressions import total_expressions
from dpsql.sql.expressions.bounds import Bounds
from dpsql.sql.expressions.fixed_point import unify_zeros, write_group_keys
from dpsql.sql.expressions.types import Typed
from dpsql.sql.normalize import Env, label_of_item, make_unique, resolve_key
from dpsql.sql.parse.dialect import parse_select, privacy_error, to_sql
from dpsql.sql.parse.options import Call, call_of
from dpsql.sql.relations.catalog import Binder
from dpsql.sql.relations.relation import UNIT, Field, From, Relation, column, column_name, fold
from dpsql.sql.subsample.vectorised_blocks import KNOWN, Grouped

_KEPT = ("MIN", "MAX", "AVG", "MEDIAN", "MODE", "QUANTILE_CONT", "QUANTILE_DISC")


def groups_by_unit(select: exp.Select, bound: From) -> bool:
    """Return whether a SELECT groups by the privacy unit (and perhaps more)."""
    group = select.args.get("group")
    if (
        group is None
        or bound.unit is None
        or any(group.args.get(k) for k in ("rollup", "cube", "grouping_sets"))
    ):
        return False
    return any(
        f is not None and (f.is_unit or f.anchors)
        for f in (_field(node, select, bound) for node in _grouped_by(select))
    )


def group_distinct(select: exp.Select, bound: From) -> None:
    """``SELECT DISTINCT unit, ...`` as GROUP BY ALL, in place: each unit's own different rows."""
    distinct = select.args.get("distinct")
    if (
        distinct is None
        or distinct.args.get("on") is not None
        or bound.unit is None
        or any(item.find(exp.Window) for item in select.expressions)
    ):
        return
    items: list[exp.Expr] = []
    for item in select.expressions:
        table = fold(item.table) if isinstance(item, exp.Column) else ""
        star = item.this if isinstance(item, exp.Column) else item
        if not isinstance(star, exp.Star):
            items.append(item)
            continue
        if any(star.args.values()):
            return
        items += [exp.column(name) for name in bound.merged if not table]
        items += [
            column(f.name, alias)
            for alias, f in bound.names.fields()
            if (fold(alias) == table if table else fold(f.name) not in bound.merged)
        ]
    known = (bound.names.known(item.unalias()) for item in items)
    if any(f is not None and (f.is_unit or f.anchors) for f in known):
        select.set("expressions", items)
        select.set("distinct", None)
        select.set("group", exp.Group(all=True))


def _grouped_by(select: exp.Select) -> list[exp.Expr]:
    """Return the grouping expressions; GROUP BY ALL means the columns that hold no aggregate."""
    group = select.args["group"]
    if not group.args.get("all"):
        return list(group.expressions)
    items = (item.unalias() for item in select.expressions)
    return [item for item in items if not any(_is_known(call_of(node)) for node in item.walk())]


def _is_known(call: Call | None) -> bool:
    return call is not None and call.name in KNOWN


def _field(node: exp.Expr, select: exp.Select, bound: From) -> Field | None:
    """Return the column that a grouping key is, if it is one."""
    return bound.names.known(resolve_key(node, select))


def aggregate_per_unit(binder: Binder, select: exp.Select, bound: From, env: Env) -> Relation:
    """Return the SELECT as a private relation whose unit is carried along.

    Raises:
        PrivacyError: a clause that would choose among units. BindError: names or types.
    """
    for key, what in (
        ("limit", "LIMIT"),
        ("offset", "OFFSET"),
        ("qualify", "QUALIFY"),
        ("distinct", "DISTINCT"),
    ):
        if select.args.get(key):
            raise privacy_error(
                select.args[key],
                f"{what} below the aggregation would choose rows by other people's rows.",
                "aggregate first; the answer may be ordered and cut freely.",
                around=select,
            )
    assert bound.unit is not None
    names = bound.names
    nodes = [resolve_key(node, select) for node in _grouped_by(select)]
    keys = [
        (f"k{i}", unify_zeros(total_expressions.make_total(node, names)), node)
        for i, node in enumerate(nodes)
    ]
    known = {f"k{i}": _field(node, select, bound) for i, node in enumerate(nodes)}
    grouped = Grouped(names, keys, {})
    outputs = [grouped.total(item.unalias()) for item in select.expressions]
    having = select.args.get("having")
    condition = grouped.condition(having.this) if having is not None else ""
    unit = to_sql(bound.unit)
    items = [f"{unit} AS {UNIT}", *(f"{to_sql(t.node)} AS {n}" for n, t, _ in keys)]
    items += [f"{sql} AS {typed.node.name}" for sql, typed in grouped.made.values()]
    where = select.args.get("where")
    conditions = [f"{unit} IS NOT NULL"]
    if where is not None:
        conditions.append(f"({to_sql(binder.expression(where.this, names, env)[0].node)})")
    by = ", ".join([unit, *(sql for _, t, _ in keys for sql in write_group_keys(t))])
    inner_sql = f"SELECT {', '.join(items)} FROM {bound.sql} WHERE {' AND '.join(conditions)} GROUP BY {by}"
    alias = binder.name("rows")
    names_out = make_unique(label_of_item(item) for item in select.expressions)
    shown = [f"{to_sql(typed.node)} AS {column_name(place)}" for place, typed in enumerate(outputs)]
    text = f"SELECT {', '.join([*shown, f'g.{UNIT} AS {UNIT}'])} FROM ({inner_sql}) AS g"
    text += f" WHERE {condition}" if condition else ""
    fields = []
    listed = zip(names_out, outputs, select.expressions, strict=True)
    for place, (name, typed, item) in enumerate(listed):
        same = known.get(typed.node.name) if isinstance(typed.node, exp.Column) else None
        bounds = (
            typed.bounds if typed.bounds is not None else bound_unit_aggregate(item.unalias(), grouped, bound)
        )
        there = replace(typed, node=column(column_name(place), alias), bounds=bounds, constant=False)
        fields.append(
            Field(name, there)
            if same is None
            else Field(name, there, same.is_unit, False, False, same.anchors, len(keys) == 1, same.optional)
        )
    subquery = parse_select(text).subquery(exp.to_identifier(alias), copy=False)
    alone = all(f is not None and f.is_unit for f in known.values())
    return Relation(
        alias, alias, tuple(fields), subquery, True, column(UNIT, alias), bound.tables, bound.inputs, False,
        bound.max_rows, alone, unit_type=bound.unit_type, fan_out=1 if alone else bound.fan_out,
    )  # fmt: skip


def bound_unit_aggregate(node: exp.Expr, grouped: Grouped, bound: From) -> Bounds | None:
    """Return what is public about a unit's own aggregate: a count is at most its rows, an average lies within its column."""
    call = call_of(node)
    if call is None:
        return None
    if call.name in ("COUNT", "COUNT_IF") and bound.max_rows is not None:
        return Bounds(Fraction(0), Fraction(bound.max_rows))
    if not call.args or call.args[0].is_star:
        return None
    inner: Typed = total_expressions.make_total(call.args[0], grouped.names)
    if inner.bounds is None or not inner.bounds.bounded:
        return None
    if call.name in _KEPT:
        return inner.bounds
    if call.name == "SUM" and bound.max_rows is not None:
        rows = Bounds(Fraction(0), Fraction(bound.max_rows))
        return inner.bounds * rows
    return None
