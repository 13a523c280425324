"""Queries beside a row, as far as they tell it only of its own unit: EXISTS, IN, scalar subqueries, LATERAL and UNNEST.

* Over public rows, whatever they ask: evaluated apart and lent, or in place where they look at the row around them.
* A private block: what it releases is public.
* Over private rows of the same unit: an equality of units, or of a key on the declared path to them, must link the
  subquery to the row around it. The units' own equality is added, so that no other unit's rows are ever looked at.

In FROM, a private row is followed by rows made of its own values and of public rows, and of nothing else. They belong
to its unit, as the rows of a join with a public table do; how many there are is bounded where those are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError
from dpsql.plan import Input
from dpsql.sql.expressions import total_expressions
from dpsql.sql.expressions.coercion import require_kind, unify
from dpsql.sql.expressions.lengths import hold
from dpsql.sql.expressions.types import BOOLEAN, Typed
from dpsql.sql.normalize import Env, label_of_item, outer_queries
from dpsql.sql.parse.dialect import (
    bind_error,
    is_not_null,
    parse_fragment,
    parse_select,
    privacy_error,
    span_of,
    to_sql,
)
from dpsql.sql.parse.options import mode_of
from dpsql.sql.relations.catalog import Binder
from dpsql.sql.relations.fan_out import bound_list_length, split_conjuncts
from dpsql.sql.relations.projections import Grouped, bound_unit_aggregate
from dpsql.sql.relations.relation import (
    Field,
    From,
    Names,
    Relation,
    column,
    column_name,
    fold,
    meets_exactly,
)
from dpsql.sql.relations.unit_rows import aggregates

ONCE = "dpsql_once"
"""Marks a query whose copies are to be bound once."""
_BEYOND = ("group", "having", "qualify", "limit", "offset", "windows", "sample", "laterals")


@dataclass(frozen=True)
class CorrelatedQuery:
    """A subquery's FROM and WHERE, bound beside the row that it looks at."""

    select: exp.Select
    bound: From
    names: Names
    where: tuple[exp.Expr, ...]

    def sql(self, items: str, more: tuple[exp.Expr, ...] = ()) -> exp.Select:
        """Return the query with these items, and with more conditions."""
        conditions = " AND ".join(f"({to_sql(node)})" for node in (*self.where, *more))
        where = f" WHERE {conditions}" if conditions else ""
        return parse_select(f"SELECT {items} FROM {self.bound.sql}{where}")


def bind_expression(binder: Binder, node: exp.Expr, names: Names, env: Env) -> Typed:
    """Return a row expression that can't fail; the public relations that its subqueries read are lent to the block.

    Raises:
        BindError, PrivacyError: as :func:`dpsql.sql.expressions.total_expressions.total`; a subquery that tells of other units.
    """
    inputs: list[Input] = []
    node = node.copy()
    extra = dict(names.extra)
    for query in list(outer_queries(node)):
        place, typed, found = _subquery(binder, query, names, env)
        key = binder.name("subquery")
        extra[key] = typed
        inputs += found
        stand_in = exp.column(key)
        span = span_of(place)
        if span:
            stand_in.this.meta.update(start=span[0], end=span[1] - 1)
        if place is node:
            node = stand_in
        else:
            place.replace(stand_in)
    scope = Names(names.relations, names.merged, extra, unit=names.unit, outer=names.outer)
    typed = total_expressions.make_total(node, scope)
    binder.lent_inputs.update(dict.fromkeys(inputs))
    return typed


def _subquery(binder: Binder, query: exp.Expr, names: Names, env: Env) -> tuple[exp.Expr, Typed, list[Input]]:
    """Return the node that a subquery answers (itself, IN, EXISTS), what stands there instead, and what that is lent."""
    holder = query.parent if isinstance(query.parent, exp.Subquery) else query
    place = holder.parent if isinstance(holder.parent, exp.In | exp.Exists) else holder
    assert place is not None
    if isinstance(holder.parent, exp.All | exp.Any):
        raise privacy_error(
            holder.parent,
            "ALL and ANY are not known over private rows.",
            "write x IN (SELECT ...)."
            if isinstance(holder.parent, exp.Any) and isinstance(holder.parent.parent, exp.EQ)
            else "compare with the MIN or MAX.",
        )
    key = str(query.meta.get(ONCE, ""))
    if key in binder.once:
        return place, *_apart(binder.once[key], place, names)
    inner = bind_correlated(binder, query, names, env)
    if inner is not None:
        return place, _in_place(binder, inner, place, names, env), list(inner.bound.inputs)
    relation = binder.query(query, env, inner=True)
    if relation is not None:
        return place, _of_relation(binder, relation, place, names, env), list(relation.inputs)
    if isinstance(place, exp.Exists):
        query = exp.Select(expressions=[exp.alias_(exp.Exists(this=query.copy()), "found", quoted=True)])
    public = binder.public_relation(query, env, binder.name("lent"))
    if key:
        binder.once[key] = public
    return place, *_apart(public, place, names)


# -- evaluated in place ------------------------------------------------------------------------------------------


def bind_correlated(binder: Binder, query: exp.Expr, names: Names, env: Env) -> CorrelatedQuery | None:
    """Return a plain SELECT that reads private rows, or looks at the row around it; None where it can stand alone."""
    if not isinstance(query, exp.Select) or query.args.get("from_") is None or mode_of(query) is not None:
        return None
    if query.args.get("with_") or any(query.args.get(key) for key in _BEYOND):
        return None
    select = query.copy()
    before = (len(binder.blocks), dict(binder.public), len(binder.notes))
    items = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or [])]
    relations = {id(item): binder.source(item, env) for item in items}
    private = any(relation is not None for relation in relations.values())
    fresh: dict[int, Relation | None] = {}
    for item in items:
        relation = relations[id(item)]
        relation = relation if relation is not None else binder.lend(item, env)
        fresh[id(item)] = relation.renamed(relation.alias, binder.name("inner"))
    scope = Names(tuple(r for r in fresh.values() if r is not None), outer=names)
    looks_out = _looks_out(select, scope)
    if looks_out if aggregates(select) else private or looks_out:
        bound = binder.from_of(select, fresh, env, names)
        inside = replace(bound.names, outer=names)
        where = select.args.get("where")
        conditions = (bind_expression(binder, where.this, inside, env).node,) if where is not None else ()
        return CorrelatedQuery(select, bound, inside, conditions)
    del binder.blocks[before[0] :], binder.notes[before[2] :]
    binder.public.clear()
    binder.public.update(before[1])
    return None


def _looks_out(select: exp.Select, scope: Names) -> bool:
    """Return whether a column named in a SELECT (not in a query inside it) is one of the scope around."""
    places = [*select.expressions, *([select.args["where"]] if select.args.get("where") else [])]
    for place in places:
        for node in place.walk(prune=lambda n: isinstance(n, exp.Query)):
            if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
                continue
            if not scope.elsewhere(node):
                continue
            try:
                scope.find(node)
            except BindError:
                continue  # it means nothing around either: the caret comes from whoever binds it
            return True
    return False


def _in_place(binder: Binder, inner: CorrelatedQuery, place: exp.Expr, names: Names, env: Env) -> Typed:
    where = inner.select.args.get("where")
    pairs = [
        _outward(inner.names, part) for part in split_conjuncts(where.this if where is not None else None)
    ]
    more: tuple[exp.Expr, ...] = ()
    if isinstance(place, exp.In):
        items = [item.unalias() for item in inner.select.expressions]
        equal, more = _equal(binder, place, items, names, inner.names, env)
        pairs += equal
    if inner.bound.private:
        more = (*more, _linked(inner.bound.unit, inner.bound.relations, names, pairs, inner.select))
    if isinstance(place, exp.Exists | exp.In):
        if aggregates(inner.select):
            raise privacy_error(inner.select.expressions[0], "an aggregate always has a row.")
        return _exists(inner.sql("1", more), place, names, env, binder)
    return _scalar(inner, more)


def _scalar(inner: CorrelatedQuery, more: tuple[exp.Expr, ...]) -> Typed:
    """Return one aggregate over the rows that belong to the row around; it has a value whatever the data."""
    _same_width(1, inner.select.expressions, inner.select)
    item = inner.select.expressions[0].unalias()
    if not aggregates(inner.select):
        hint = f"aggregate them, as in MAX({to_sql(item) if isinstance(item, exp.Column) else 'x'})."
        raise privacy_error(item, "this subquery may find several rows.", hint)
    grouped = Grouped(inner.names)
    typed = grouped.total(item)
    made = ", ".join(f"{sql} AS {known.node.name}" for sql, known in grouped.made.values())
    rows = to_sql(inner.sql(made, more))
    node = parse_select(f"SELECT {to_sql(typed.node)} AS value FROM ({rows}) AS g")
    bounds = typed.bounds if typed.bounds is not None else bound_unit_aggregate(item, grouped, inner.bound)
    return Typed(node.subquery(), typed.type, bounds, False, None)


# -- relations of their own --------------------------------------------------------------------------------------


def _of_relation(binder: Binder, relation: Relation, place: exp.Expr, names: Names, env: Env) -> Typed:
    """``x IN (SELECT ... GROUP BY unit)`` and the like: rows of private queries that stand alone."""
    if not isinstance(place, exp.In) or relation.unit is None:
        raise _refusal(place, names, (relation,))
    name = binder.name("inner")
    relation = relation.renamed(name, name)
    items: list[exp.Expr] = [column(item.name, relation.alias) for item in relation.fields]
    pairs, same = _equal(binder, place, items, names, Names((relation,)), env)
    conditions = (*same, _linked(relation.unit, [relation], names, pairs, place))
    where = " AND ".join(f"({to_sql(node)})" for node in conditions)
    sql = f"SELECT 1 FROM {to_sql(relation.source)} WHERE {where}"
    return _exists(parse_fragment(sql), place, names, env, binder)


def _apart(relation: Relation, place: exp.Expr, names: Names) -> tuple[Typed, list[Input]]:
    """Return a public subquery, evaluated before the exact query runs, and lent to it."""
    found, items = relation.inputs[0], [item.typed.node.copy() for item in relation.fields]
    named = [exp.alias_(item, column_name(place)) for place, item in enumerate(items)]
    inner = exp.Select(expressions=named).from_(relation.source.copy())
    if not isinstance(place, exp.In):
        _same_width(1, items, place)
        return Typed(inner.limit(1).subquery(), relation.fields[0].typed.type, None, False, None), [found]
    sides = _sides(place)
    _same_width(len(sides), items, place)
    nodes = []
    for side, item in zip(sides, relation.fields, strict=True):
        left, kind = total_expressions.make_total(side, names), item.typed.type
        if left.type.kind != kind.kind and not (left.type.numeric and kind.numeric):
            raise bind_error(place, "IN compares values of different types.", "cast the subquery's column.")
        nodes.append(left.node)
        inner = inner.where(is_not_null(item.typed.node))
    row = nodes[0] if len(nodes) == 1 else exp.Tuple(expressions=nodes)
    return Typed(exp.paren(exp.In(this=row, query=inner.subquery())), BOOLEAN, None, False, None), [found]


# -- what links a subquery to the row around it -------------------------------------------------------------------


def _sides(place: exp.In) -> list[exp.Expr]:
    """Return what is looked for: one value, or a row of them."""
    return list(place.this.expressions) if isinstance(place.this, exp.Tuple) else [place.this]


def _same_width(count: int, items: Sequence[exp.Expr], place: exp.Expr) -> None:
    if len(items) != count or any(item.is_star for item in items):
        many = "one column" if count == 1 else f"{count} columns"
        raise bind_error(place, f"the subquery must have {many}.")


def _equal(
    binder: Binder, place: exp.In, items: Sequence[exp.Expr], names: Names, inside: Names, env: Env
) -> tuple[list[tuple[Field, Field] | None], tuple[exp.Expr, ...]]:
    """``x IN (SELECT y ...)`` as x = y: what the two are, inside first, and the conditions."""
    sides = _sides(place)
    _same_width(len(sides), items, place)
    pairs: list[tuple[Field, Field] | None] = []
    conditions = []
    for side, item in zip(sides, items, strict=True):
        left, right = (
            bind_expression(binder, side, names, env),
            bind_expression(binder, item, inside, env),
        )
        nodes, _ = unify((left, right), "IN")
        conditions.append(exp.EQ(this=exp.paren(nodes[0].copy()), expression=exp.paren(nodes[1].copy())))
        here, there = inside.known(item), names.known(side)
        pairs.append(None if here is None or there is None else (here, there))
    return pairs, tuple(conditions)


def _outward(inside: Names, part: exp.Expr) -> tuple[Field, Field] | None:
    """Return the columns that a condition makes equal, the subquery's and the one around it."""
    if not isinstance(part, exp.EQ):
        return None
    ends = [
        (side, inside.elsewhere(side))
        for side in (part.this, part.expression)
        if isinstance(side, exp.Column) and not isinstance(side.this, exp.Star)
    ]
    if len(ends) != 2 or ends[0][1] == ends[1][1]:
        return None
    here, there = (side for side, _ in sorted(ends, key=lambda end: end[1]))
    found = inside.known(here), inside.known(there)
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _unit_around(names: Names | None) -> exp.Expr | None:
    while names is not None:
        if names.unit is not None:
            return names.unit
        names = names.outer
    return None


def _linked(
    unit: exp.Expr | None, relations: list[Relation], names: Names, pairs: list[tuple[Field, Field] | None],
    place: exp.Expr,
) -> exp.Expr:  # fmt: skip
    """Return the equality of the subquery's unit and that of the row around it.

    Raises:
        PrivacyError: the subquery is not linked to the row by its unit.
    """
    around = _unit_around(names)
    linked = [
        pair
        for pair in pairs
        if pair is not None
        and pair[0].fixes_unit(pair[1])
        and (pair[0].anchors & pair[1].anchors or meets_exactly(pair[0].typed.type, pair[1].typed.type))
    ]
    if unit is None or around is None or not linked:
        raise _refusal(place, names, tuple(relations))
    return exp.EQ(this=exp.paren(unit.copy()), expression=exp.paren(around.copy()))


def _refusal(place: exp.Expr, names: Names, relations: tuple[Relation, ...]) -> PrivacyError:
    hint = "release what is needed first, in a CTE with aggregates, and compare with that."
    pairs = [
        (relation.alias, here.name, alias, there.name)
        for relation in relations
        for here in relation.fields
        for alias, there in names.fields()
        if here.fixes_unit(there)
    ]
    if pairs and not relations[0].alias.startswith("dpsql_") and _unit_around(names) is not None:
        alias, name, around, other = pairs[0]
        called = f"call it {alias}2 and " if fold(alias) == fold(around) else ""
        alias = f"{alias}2" if called else alias
        hint = f"look at rows of the same unit: {called}add {alias}.{name} = {around}.{other} to its WHERE."
    return privacy_error(
        place, "a subquery over private rows would let one unit decide about the rows of others.", hint
    )


def _exists(query: exp.Expr, place: exp.Expr, names: Names, env: Env, binder: Binder) -> Typed:
    """EXISTS; IN where the left side is missing is missing itself, which matters only below NOT."""
    found: exp.Expr = exp.Exists(this=query)
    if isinstance(place, exp.In) and isinstance(place.parent, exp.Not | exp.Paren):
        given = [bind_expression(binder, side, names, env).node for side in _sides(place)]
        known = [is_not_null(exp.paren(n.copy())) for n in given]
        found = exp.Case(ifs=[exp.If(this=exp.and_(*known, copy=False), true=found)])
    return Typed(exp.paren(found), BOOLEAN, None, False, None)


_ROWS = "with rows as the privacy unit, each counts once, and {what} would make several of it."


def looks_beside(node: exp.Expr) -> bool:
    """Return whether a FROM item may name columns of those before it."""
    if isinstance(node, exp.Lateral):
        return True
    if isinstance(node, exp.Unnest):
        return any(
            isinstance(n, exp.Column) for n in node.walk(prune=lambda n: isinstance(n, exp.Query))
        )  # those of a query inside are its own
    inner = node.this if isinstance(node, exp.Subquery) else None
    plain = isinstance(inner, exp.Select) and inner.args.get("from_") is None
    return plain and node.find(exp.Column) is not None


def move_unnest(select: exp.Select, name: str) -> None:
    """``SELECT unnest(x) AS y FROM t`` as ``FROM t, UNNEST(x)``, in place."""
    places = [item for item in select.expressions if isinstance(item.unalias(), exp.Explode)]
    if len(places) != 1 or select.args.get("from_") is None:
        return
    item = places[0]
    call = item.unalias()
    if call.expressions or not isinstance(call.this, exp.Expr):
        return
    alias = exp.TableAlias(this=exp.to_identifier(name), columns=[exp.to_identifier("unnest")])
    join = exp.Join(this=exp.Unnest(expressions=[call.this.copy()], alias=alias), kind="CROSS")
    select.append("joins", join)
    item.replace(exp.alias_(exp.column("unnest", name), item.alias or "unnest", quoted=True))


def bind_lateral(binder: Binder, node: exp.Expr, bound: From, env: Env) -> Relation:
    """Return the item as a relation that adds no units.

    Raises:
        PrivacyError: it would read other private rows, or make several rows of one that is a unit. BindError: names, types.
    """
    if isinstance(node, exp.Unnest):
        return _unnested(binder, node, bound, env)
    inner = node.this.this if isinstance(node.this, exp.Subquery) else node.this
    alias = node.alias_or_name or binder.name("beside")
    renamed = (
        [item.name for item in node.args["alias"].args.get("columns") or []] if node.args.get("alias") else []
    )
    if not isinstance(inner, exp.Select):
        raise privacy_error(node, "LATERAL takes a SELECT here.", "for a list, write UNNEST(x) AS u(y).")
    if inner.args.get("from_") is None:
        values = [
            (label_of_item(item), binder.expression(item.unalias(), bound.names, env))
            for item in inner.expressions
        ]
        where = inner.args.get("where")
        condition = binder.expression(where.this, bound.names, env).node if where is not None else None
        if any(inner.args.get(key) for key in ("group", "having", "qualify", "limit", "offset", "distinct")):
            raise privacy_error(node, "LATERAL takes columns and WHERE here.")
        query = exp.Select()
        return _relation(binder, query, alias, values, renamed, condition, node)
    if bound.row_level:
        raise privacy_error(node, _ROWS.format(what="LATERAL"), "join a table where the keys are unique.")
    found = bind_correlated(binder, inner, bound.names, env)
    if found is None or found.bound.private or inner.args.get("distinct"):
        raise privacy_error(
            node,
            "LATERAL looks at public rows, without aggregates, here.",
            "join the table, or write the subquery in the SELECT list: (SELECT MAX(y) FROM t WHERE ...) AS y.",
        )
    if any(item.is_star for item in inner.expressions):
        raise bind_error(node, "name the columns of a LATERAL.", "write SELECT a, b FROM ...")
    values = [
        (label_of_item(item), binder.expression(item.unalias(), found.names, env))
        for item in inner.expressions
    ]
    rows = found.sql("1")
    rows.set("expressions", [])
    made = _relation(binder, rows, alias, values, renamed, None, node)
    return replace(made, inputs=found.bound.inputs, fan_out=found.bound.fan_out)


def _relation(
    binder: Binder, query: exp.Select, alias: str, values: list[tuple[str, Typed]], renamed: list[str],
    condition: exp.Expr | None, node: exp.Expr,
) -> Relation:  # fmt: skip
    own_name = binder.name("beside")
    fields: list[Field] = []
    for i, (label, typed) in enumerate(values):
        name = renamed[i] if i < len(renamed) else label
        if not name or name in {f.name for f in fields}:
            raise bind_error(node, "each column of a LATERAL needs a name of its own.", "write x + 1 AS y.")
        query.select(exp.alias_(typed.node.copy(), column_name(i)), copy=False)
        fields.append(Field(name, replace(typed, node=column(column_name(i), own_name), constant=False)))
    if condition is not None:
        query.where(condition, copy=False)
    named = exp.TableAlias(this=exp.to_identifier(own_name))
    source = exp.Lateral(this=exp.Subquery(this=query), alias=named)
    return Relation(alias, own_name, tuple(fields), source, private=False)


def _unnested(binder: Binder, node: exp.Unnest, bound: From, env: Env) -> Relation:
    if bound.row_level:
        raise privacy_error(node, _ROWS.format(what="UNNEST"), "write len(x) or list_contains(x, 'y').")
    if len(node.expressions) != 1 or node.args.get("offset"):
        raise privacy_error(node, "UNNEST takes one list of a private row.", "write UNNEST(x) AS u(y).")
    argument = node.expressions[0]
    typed = binder.expression(argument, bound.names, env)
    require_kind(typed, ("LIST",), "UNNEST takes a list")
    held = typed.type.element
    if held is None:
        raise bind_error(argument, "UNNEST takes a list.")
    alias = node.alias_or_name or binder.name("unnest")
    columns = node.args["alias"].args.get("columns") if node.args.get("alias") else None
    name = columns[0].name if columns else "unnest"
    own_name = binder.name("unnest")
    named = exp.TableAlias(this=exp.to_identifier(own_name), columns=[exp.to_identifier(column_name(0))])
    longest = bound_list_length(typed, [table for relation in bound.relations for table in relation.tables])
    # A longer list is NULL, of which no rows come.
    typed = hold(replace(typed, node=typed.node.copy()), longest)
    source = exp.Unnest(expressions=[typed.node], alias=named)
    assert to_sql(source)
    element = Typed(column(column_name(0), own_name), held)
    return Relation(alias, own_name, (Field(name, element),), source, private=False, fan_out=longest)
