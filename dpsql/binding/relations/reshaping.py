"""UNION, INTERSECT and EXCEPT of private rows of one unit; PIVOT and UNPIVOT of private rows.

UNION ALL appends a unit's rows. The others compare rows, and rows with the privacy unit are equal only within one unit:
each groups both sides' rows by all columns, and HAVING keeps those on the required sides. Like these operations, GROUP
BY considers NULLs equal, so the rows are DuckDB's.

PIVOT is a private block whose aggregates have a FILTER for each value, which must be public: written, declared, or of a
boolean. UNPIVOT is a UNION ALL of the rows, once per column.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from dpsql.binding.public_statement import Env, from_items, label_of_item
from dpsql.binding.relations.catalog import Binder
from dpsql.binding.relations.fan_out import split_conjuncts
from dpsql.binding.relations.projections import aggregate_per_unit
from dpsql.binding.relations.relation import (
    UNIT,
    Field,
    From,
    Names,
    Relation,
    column,
    column_name,
    fold,
    meets_exactly,
    total_bound,
    total_caps,
)
from dpsql.binding.relations.unit_rows import advise_one_unit, aggregates
from dpsql.binding.values.coercion import find_common_order, take_value, unify
from dpsql.binding.values.lengths import length_of
from dpsql.binding.values.sql_types import INTEGER, OTHER, Bounds, Typed
from dpsql.language.dialect import bind_error, is_not_null, privacy_error, to_sql
from dpsql.language.options import call_of
from dpsql.language.parameters import make_literal
from dpsql.privacy.periods import Days, unite

_SIDES = {exp.Union: None, exp.Intersect: (True, True), exp.Except: (True, False)}
"""The sides on which a row must, or must not, be; None for either."""


def combine(binder: Binder, left: Relation, right: Relation, tree: exp.SetOperation, env: Env) -> Relation:
    """Return the set operation of two private relations of equal units.

    Raises:
        PrivacyError: units differ, or rows of several units would be compared.
        BindError: columns don't fit.
    """
    word = tree.key.upper()
    if tree.args.get("by_name"):
        what = "BY NAME is not known over private rows."
        word = word if tree.args.get("distinct") else f"{word} ALL"
        raise privacy_error(
            tree.left, what, f"write {word} instead of {word} BY NAME: columns meet by their places."
        )
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
    marked = [
        replace(relation, fields=(*relation.fields, Field(side, _number(place))))
        for place, relation in enumerate((left, right))
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
    return aggregate_per_unit(binder, select, From([rows], rows.source, unit=rows.unit), env)


def _number(place: int) -> Typed:
    return Typed(exp.Literal.number(place), INTEGER, Bounds.point(place), nullable=False)


def _unite_days(one: Days | None, other: Days | None) -> Days | None:
    """Return the days of both sides; None if those of one are unknown."""
    return None if one is None or other is None else unite([*one, *other])


def _count_rows_of(side: str, place: int) -> exp.Expr:
    """Return the number of a group's rows on one side."""
    here = exp.EQ(this=exp.column(side), expression=exp.Literal.number(place))
    return exp.CountIf(this=here)


def _put_together(left: Relation, right: Relation, tree: exp.SetOperation, alias: str) -> Relation:
    """Return UNION ALL of two private relations of equal units."""
    if left.row_level or right.row_level or left.unit is None or right.unit is None:
        raise privacy_error(tree, "rows that are their own unit can't be put together.")
    kinds = (left.unit_type, right.unit_type)
    alike = kinds[0] is not None and kinds[1] is not None and meets_exactly(kinds[0], kinds[1])
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
            column(column_name(place), alias),
            kind,
            _unite(mine.typed.bounds, other.typed.bounds),
            reach=_unite(mine.typed.reach, other.typed.reach),
            nullable=mine.typed.nullable or other.typed.nullable,
            plain=mine.typed.plain if mine.typed.plain == other.typed.plain else None,
            order=find_common_order([mine.typed, other.typed]),
            days=_unite_days(mine.typed.days, other.typed.days),
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
            half.append("expressions", exp.alias_(node.copy(), column_name(place)))
    for half, side in zip(halves, (left, right), strict=True):
        assert side.unit is not None
        half.select(exp.alias_(side.unit.copy(), UNIT), copy=False)
        half.from_(side.source.copy(), copy=False)
    source = exp.union(halves[0], halves[1], distinct=False, copy=False).subquery(
        exp.to_identifier(alias), copy=False
    )
    tables = tuple(dict.fromkeys((*left.tables, *right.tables)))
    inputs = tuple(dict.fromkeys((*left.inputs, *right.inputs)))
    both = (left, right)
    certain = total_bound((side.certain_rows for side in both), sum)
    rows, each = total_caps(both, sum)
    return Relation(
        alias, alias, tuple(fields), source, True, column(UNIT, alias), tables, inputs, rows_bound=rows,
        group_rows_bound=each, certain_rows=certain, unit_type=left.unit_type, fan_out=max(left.fan_out, right.fan_out),
        unmatched=left.unmatched or right.unmatched,
    )  # fmt: skip


def _unite(a: Bounds | None, b: Bounds | None) -> Bounds | None:
    return None if a is None or b is None else a.union(b)


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


def _pivot(binder: Binder, item: exp.Expr, pivot: exp.Expr, relation: Relation, env: Env) -> exp.Select:
    names = Names((relation,))
    values = [list(_values_of(binder, place, names, env)) for place in pivot.args.get("fields") or []]
    aggregates = pivot.expressions
    size = math.prod(map(len, values)) * len(aggregates)
    if size > MAX_PIVOTED:
        what = f"this PIVOT makes {size:,} columns, and {MAX_PIVOTED} are the most."
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
    binder: Binder, place: exp.Expr, names: Names, env: Env
) -> Iterator[tuple[str, list[exp.Expr]]]:
    """Yield the column name of each pivoted value, and its conditions."""
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
            raise privacy_error(columns[0], what, _LIST_HINT.format(by=by))
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


def _keys(pivot: exp.Expr, relation: Relation, item: exp.Expr) -> list[exp.Expr]:
    """Return the grouping of a PIVOT: GROUP BY, or all columns that it does not mention."""
    group = pivot.args.get("group")
    if group is not None:
        return list(group.expressions)
    places = [*pivot.expressions, *(place.this for place in pivot.args.get("fields") or [])]
    named = {fold(node.name) for place in places for node in place.find_all(exp.Column)}
    rest = [f for f in relation.fields if fold(f.name) not in named]
    unit = next((f for f in rest if f.tells_unit), None)
    if unit is not None:
        what = f"PIVOT without GROUP BY has a row for each value of all other columns, and {unit.name} tells people apart."
        raise privacy_error(
            pivot, what, "name the columns that make its rows, as groups at its end.", around=item
        )
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


def _unpivot(item: exp.Expr, pivot: exp.Expr, relation: Relation) -> exp.Expr:
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
    gone = {fold(node.name) for node in columns}
    kinds = {f.typed.type.kind: f.typed.type.sql for f in relation.fields if fold(f.name) in gone}
    if len(kinds) > 1:
        what = f"UNPIVOT puts these into one column, and they are {' and '.join(kinds.values())}."
        raise bind_error(place, what, "cast them to one type in a subquery, and unpivot that.", around=item)
    kept = [
        exp.column(exp.to_identifier(f.name, quoted=True))
        for f in relation.fields
        if fold(f.name) not in gone
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
        around = {fold(item.alias_or_name) for item in from_items(select)}
        if around & {fold(node.table) for node in query.find_all(exp.Column) if node.table}:
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
    scope = Names(tuple(relations))
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
