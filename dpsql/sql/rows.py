"""Queries that keep private rows: filters, projections, UNION ALL. The unit is carried along, unseen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError
from dpsql.sql.dialect import span_of
from dpsql.sql.joins import From
from dpsql.sql.relation import UNIT, Field, Relation, column, fold, meets_exactly, unit_domain
from dpsql.sql.types import Typed
from dpsql.sql.walk import Env

if TYPE_CHECKING:
    from dpsql.sql.bind import Binder


def keep_rows(binder: Binder, select: exp.Select, bound: From, env: Env) -> Relation:
    """A SELECT that keeps private rows: projections and filters, with the unit carried along unseen."""
    for key, what in (
        ("limit", "LIMIT"),
        ("offset", "OFFSET"),
        ("qualify", "QUALIFY"),
        ("distinct", "DISTINCT"),
    ):
        if select.args.get(key):
            raise PrivacyError(
                f"{what} below the aggregation would choose rows by other people's rows.",
                span=span_of(select.args[key]) or span_of(select),
                hint="aggregate first; the answer may be ordered and cut freely.",
            )
    names = bound.names
    items: list[tuple[str, Typed, Field | None]] = []
    for item in select.expressions:
        if item.is_star:
            items += star_columns(item, bound)
            continue
        inner = item.unalias()
        if inner.find(exp.Window):
            raise PrivacyError(
                "a window function below the aggregation mixes the rows of several units.",
                span=span_of(inner),
                hint="aggregate first; windows may follow.",
            )
        same = names.known(inner)
        typed, _ = binder.expression(inner, names, env)
        items.append((item.alias_or_name or binder.name("column"), typed, same))
    query = exp.Select()
    fields: list[Field] = []
    alias = binder.name("rows")
    alone = len(bound.relations) == 1
    for name, typed, same in items:
        if any(fold(f.name) == fold(name) for f in fields):
            raise BindError(
                f"two columns are called {name}.", span=span_of(select), hint="give one an alias."
            )
        query = query.select(exp.alias_(typed.node.copy(), name, quoted=True), copy=False)
        there = replace(typed, node=column(name, alias), constant=False)
        fields.append(
            Field(name, there)
            if same is None
            else Field(
                name, there, same.is_unit, False, False, same.anchors, same.key and alone, same.optional
            )
        )
    if bound.unit is not None:
        query = query.select(exp.alias_(bound.unit.copy(), UNIT, quoted=True), copy=False)
    query = query.from_(bound.source.copy(), copy=False)
    for join in bound.joins:
        query = query.join(join.copy(), copy=False)
    if select.args.get("where"):
        typed, _ = binder.expression(select.args["where"].this, names, env)
        query = query.where(typed.node, copy=False)
    unit = None if bound.unit is None else column(UNIT, alias)
    tables = tuple(dict.fromkeys(t for r in bound.relations for t in r.tables))
    relation = Relation(
        alias, tuple(fields), query.subquery(exp.to_identifier(alias, quoted=True), copy=False), True, unit, tables,
        bound.inputs, bound.row_level, None if bound.row_level else bound.max_rows, unit_type=bound.unit_type,
    )  # fmt: skip
    return relation


def star_columns(item: exp.Expr, bound: From) -> list[tuple[str, Typed, Field | None]]:
    if item.args.get("except_") or item.args.get("replace") or item.args.get("rename"):
        raise BindError("EXCLUDE, REPLACE and RENAME are not known over private rows.", span=span_of(item))
    table = (
        fold(item.this.table)
        if isinstance(item, exp.Column) and item.table
        else fold(getattr(item, "table", ""))
    )
    merged = set(bound.merged)
    out: list[tuple[str, Typed, Field | None]] = []
    if not table:
        out = [(f.name, f.typed, f) for f in bound.merged.values()]
    for alias, f in bound.names.fields():
        if table and fold(alias) != table:
            continue
        if table or fold(f.name) not in merged:
            out.append((f.name, f.typed, f))
    return out


def columns_renamed(relation: Relation, names: list[str], place: exp.Expr) -> Relation:
    """``(SELECT ...) AS v(a, b)``: the first columns under other names. What they are goes with them, by position."""
    span = span_of(place.args.get("alias"))
    if len(names) > len(relation.fields):
        raise BindError(f"there are {len(names)} names for {len(relation.fields)} columns.", span=span)
    names = [*names, *(f.name for f in relation.fields[len(names) :])]
    if len({fold(name) for name in names}) < len(names):
        raise BindError("two columns have one name.", span=span, hint="give each its own.")
    query = exp.Select()
    fields = []
    for name, f in zip(names, relation.fields, strict=True):
        query = query.select(exp.alias_(f.typed.node.copy(), name, quoted=True), copy=False)
        fields.append(replace(f, name=name, typed=replace(f.typed, node=column(name, relation.alias))))
    if relation.unit is not None:
        query = query.select(exp.alias_(relation.unit.copy(), UNIT, quoted=True), copy=False)
    query = query.from_(relation.source.copy(), copy=False)
    source = query.subquery(exp.to_identifier(relation.alias, quoted=True), copy=False)
    unit = None if relation.unit is None else column(UNIT, relation.alias)
    return replace(relation, fields=tuple(fields), source=source, unit=unit)


def union_all(left: Relation, right: Relation, tree: exp.Expr, alias: str) -> Relation:
    if left.row_level or right.row_level or left.unit is None or right.unit is None:
        raise PrivacyError("rows that are their own unit can't be put together.", span=span_of(tree))
    kinds = (left.unit_type, right.unit_type)
    alike = kinds[0] is not None and kinds[1] is not None and meets_exactly(kinds[0], kinds[1])
    if not alike or {unit_domain(t) for t in left.tables} != {unit_domain(t) for t in right.tables}:
        raise PrivacyError("the two sides have different privacy units.", span=span_of(tree))
    if len(left.fields) != len(right.fields):
        raise BindError("the two sides of UNION ALL have different numbers of columns.", span=span_of(tree))
    fields, halves = [], [exp.Select(), exp.Select()]
    for mine, other in zip(left.fields, right.fields, strict=True):
        if mine.typed.type.kind != other.typed.type.kind or mine.is_unit != other.is_unit:
            raise PrivacyError(
                f"{mine.name} is not the same kind of column on both sides.",
                span=span_of(tree),
                hint="put the same columns, and the privacy unit, in the same places.",
            )
        bounds = None
        if mine.typed.bounds is not None and other.typed.bounds is not None:
            bounds = mine.typed.bounds.union(other.typed.bounds)
        typed = replace(mine.typed, node=column(mine.name, alias), bounds=bounds, values=None)
        anchors, optional = mine.anchors & other.anchors, mine.optional or other.optional
        fields.append(replace(mine, typed=typed, anchors=anchors, key=False, optional=optional))
        for half, f in zip(halves, (mine, other), strict=True):
            half.select(exp.alias_(f.typed.node.copy(), mine.name, quoted=True), copy=False)
    for half, side in zip(halves, (left, right), strict=True):
        assert side.unit is not None
        half.select(exp.alias_(side.unit.copy(), UNIT, quoted=True), copy=False)
        half.from_(side.source.copy(), copy=False)
    source = exp.union(halves[0], halves[1], distinct=False, copy=False).subquery(
        exp.to_identifier(alias, quoted=True), copy=False
    )
    tables = tuple(dict.fromkeys((*left.tables, *right.tables)))
    inputs = tuple(dict.fromkeys((*left.inputs, *right.inputs)))
    known = [side.max_rows for side in (left, right)]
    rows = None if None in known else sum(r for r in known if r is not None)
    return Relation(
        alias, tuple(fields), source, True, column(UNIT, alias), tables, inputs, rows_bound=rows,
        unit_type=left.unit_type,
    )  # fmt: skip
