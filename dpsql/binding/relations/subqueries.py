"""Correlated and other subqueries that depend only on a row's own unit: EXISTS, IN, scalar subqueries, LATERAL and UNNEST.

* Over public rows, without limits: evaluated first, or in place if they are correlated.
* A private block: its release is public.
* Over private rows of one unit: an equality of units, or of a key on the declared path to them, must link the subquery
  to the outer row. The equality of units is added, so that no other unit's rows are ever read.

In FROM, a private row is joined with rows made only of its own values and of public rows. They belong to its unit, as
in a join with a public table, and their number is bounded likewise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from sqlglot import exp

from dpsql.binding.plan import Input
from dpsql.binding.public_statement import Env, from_items, label_of_item, outer_queries
from dpsql.binding.relations.binder import Binder, BinderState
from dpsql.binding.relations.exact_aggregates import Grouped, bound_rows
from dpsql.binding.relations.fan_out import bound_list_length, find_equal_columns, split_conjuncts
from dpsql.binding.relations.relation import (
    INTERNAL,
    Field,
    From,
    Names,
    Relation,
    column,
    column_name,
    explain_other_unit,
    fold,
    meets_exactly,
)
from dpsql.binding.relations.unit_rows import aggregates
from dpsql.binding.values import total_expressions
from dpsql.binding.values.coercion import meet_public, require_kind, take_value, unify
from dpsql.binding.values.declared_values import hold
from dpsql.binding.values.sql_types import BOOLEAN, Typed, make_call, unite_bounds
from dpsql.errors import BindError, PrivacyError
from dpsql.language.dialect import (
    bind_error,
    copy_tree,
    name_called,
    parse_select,
    privacy_error,
    quote_where_needed,
    stand_in,
    to_sql,
)
from dpsql.language.options import mode_of
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import As, Select, Subquery

ONCE = "dpsql_once"
"""Marks a query whose copies are to be bound once."""
_BEYOND = ("group", "having", "qualify", "limit", "offset", "windows", "sample", "laterals")


@dataclass(frozen=True)
class CorrelatedQuery:
    """A subquery's FROM and WHERE, bound with its outer row."""

    select: exp.Select
    bound: From
    names: Names
    where: tuple[exp.Expr, ...]

    def query(self, columns: str | tuple[As, ...], more: tuple[exp.Expr, ...] = ()) -> Select:
        """Return the query with these columns, and with further conditions."""
        return Select(columns, self.bound.sql, tuple(f"({to_sql(node)})" for node in (*self.where, *more)))


def bind_expression(binder: Binder, node: exp.Expr, names: Names, env: Env) -> Typed:
    """Return a row expression that can't fail; the block gets the public relations that its subqueries read.

    Raises:
        BindError, PrivacyError: as :func:`dpsql.binding.values.total_expressions.total`; a subquery that depends on
            other units.
    """
    inputs: list[Input] = []
    _refuse_unquoted(node, names)
    condition = isinstance(node.parent, exp.Where | exp.Having | exp.Qualify)
    node = copy_tree(node)
    extra = dict(names.extra)
    for query in list(outer_queries(node)):
        place = _Place(binder, _answered(query), names, env, condition)
        typed, found = place.answer(query)
        key = binder.name("subquery")
        extra[key] = typed
        inputs += found
        named = stand_in(key, place.node)
        if place.node is node:
            node = named
        else:
            place.node.replace(named)
    typed = total_expressions.make_total(node, replace(names, extra=extra))
    binder.lent_inputs.update(dict.fromkeys(inputs))
    return typed


def _refuse_unquoted(node: exp.Expr, names: Names) -> None:
    """Raise BindError, with the quoted name, for an unquoted column name with parentheses, which SQL reads as a call."""
    calls = [call for call in node.find_all(exp.Func) if "called" in call.meta]
    if not calls:
        return
    odd = {re.sub(r"\s", "", f.name).lower(): f.name for _, f in names.fields() if "(" in f.name}
    for call in calls if odd else ():
        if (name := odd.get(re.sub(r"\s", "", to_sql(call)).lower())) is not None:
            what = f"{call.meta['called']} is no function here, and a column's name with parentheses is written in quotes."
            raise bind_error(call, what, f"did you mean {quote_where_needed(name)}?")


def _answered(query: exp.Expr) -> exp.Expr:
    """Return the node whose value is a subquery's: itself, IN, EXISTS."""
    holder = query.parent if isinstance(query.parent, exp.Subquery) else query
    above = holder.parent
    if isinstance(above, exp.All | exp.Any):
        raise _refuse_quantified(above, query)
    return above if isinstance(above, exp.In | exp.Exists) else holder


def _refuse_quantified(node: exp.Expr, query: exp.Expr) -> PrivacyError:
    """Return the refusal of ``x > ALL (SELECT ...)``, with the comparison to the extreme of the subquery."""
    what, comparison = "ALL and ANY compare only by = ANY and <> ALL over private rows.", node.parent
    hint, greater = "compare with the smallest or the largest.", isinstance(comparison, exp.GT | exp.GTE)
    if not isinstance(comparison, exp.GT | exp.GTE | exp.LT | exp.LTE):
        return privacy_error(comparison or node, what, hint)
    if isinstance(query, exp.Select) and len(query.expressions) == 1 and not aggregates(query):
        extreme = query.copy()
        largest = greater == isinstance(node, exp.All)
        extreme.set("expressions", [make_call("max" if largest else "min", extreme.selects[0].unalias())])
        made = type(comparison)(this=comparison.this.copy(), expression=extreme.subquery())
        hint = f"write {to_sql(made)}."
    return privacy_error(comparison, what, hint)


# -- evaluated in place ------------------------------------------------------------------------------------------


def bind_correlated(binder: Binder, query: exp.Expr, names: Names, env: Env) -> CorrelatedQuery | None:
    """Return a plain SELECT that reads private rows, or is correlated; None if it is independent."""
    if not isinstance(query, exp.Select) or query.args.get("from_") is None or mode_of(query) is not None:
        return None
    if query.args.get("with_") or any(query.args.get(key) for key in _BEYOND):
        return None
    select = query.copy()
    before = BinderState(binder)
    items = from_items(select)
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
    before.restore()
    return None


def _looks_out(select: exp.Select, scope: Names) -> bool:
    """Return whether a SELECT (excluding inner queries) names a column of the outer scope."""
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
                continue  # unknown in the outer scope too; the error comes from later binding
            return True
    return False


def _scalar(inner: CorrelatedQuery, more: tuple[exp.Expr, ...]) -> Typed:
    """Return one aggregate over the rows of the outer row; it has a value whatever the data."""
    _same_width(1, inner.select.expressions, inner.select)
    item = inner.select.expressions[0].unalias()
    called = list(item.find_all(exp.AggFunc))
    for call in called:
        named = list(call.find_all(exp.Column))
        if named and all(map(inner.names.elsewhere, named)):
            what = f"{to_sql(call)} names no column of its own subquery, so it would aggregate the rows around it."
            raise bind_error(call, what, "name a column of the subquery's own tables in it.")
    if called and not aggregates(inner.select):
        what = f"{name_called(called[0]).upper()} can't be used in a subquery about one row."
        raise privacy_error(
            item, what, "compute it per privacy unit in a subquery in FROM, and join that by the unit."
        )
    if not called:
        hint = f"write MAX({to_sql(item)}), or another aggregate."
        raise privacy_error(item, "this subquery may find several rows.", hint)
    grouped = Grouped(inner.names, rows=bound_rows(inner.bound))
    typed = grouped.total(item)
    made = tuple(As(sql, known.node.name) for sql, known in grouped.made.values())
    node = parse_select(Select(As(to_sql(typed.node), "value"), Subquery(inner.query(made, more), "g")).sql)
    return Typed(node.subquery(), typed.type, typed.bounds, False, None)


def _same_width(count: int, items: Sequence[exp.Expr], place: exp.Expr) -> None:
    if len(items) != count or any(item.is_star for item in items):
        many = "one column" if count == 1 else f"{count} columns"
        raise bind_error(place, f"the subquery must have {many}.")


_Pairs = list[tuple[Field, Field]]
"""Equal columns: one of the subquery, and one of the outer row."""


@dataclass(frozen=True)
class _Membership:
    """The conditions under which a row of the subquery equals the outer row, and under which it is not certain to differ."""

    equal: tuple[exp.Expr, ...]
    possible: tuple[exp.Expr, ...]


def _sign(node: exp.Expr, condition: bool) -> int:
    """Return 1 if NULL counts as FALSE at a node, -1 if it counts as TRUE, and 0 if it is a separate value.

    Args:
        condition: whether the whole expression is a condition, which keeps rows for TRUE.
    """
    sign = 1
    while (above := node.parent) is not None:
        if isinstance(above, exp.Not):
            sign = -sign
        elif isinstance(above, exp.If) and node is above.this:
            return 0 if above.parent is not None and above.parent.this is not None else sign
        elif not isinstance(above, exp.And | exp.Or | exp.Paren):
            return 0
        node = above
    return sign if condition else 0


@dataclass(frozen=True)
class _Place:
    """The node whose value is a subquery's, in the scope of the outer row."""

    binder: Binder
    node: exp.Expr
    names: Names
    env: Env
    condition: bool = False
    """Whether the whole expression is a condition, which rows meet if it is TRUE."""

    @property
    def sides(self) -> list[exp.Expr]:
        """The left side of IN: one value, or a row of them."""
        looked = self.node.this
        return list(looked.expressions) if isinstance(looked, exp.Tuple) else [looked]

    def answer(self, query: exp.Expr) -> tuple[Typed, tuple[Input, ...]]:
        """Return the subquery's replacement, and its public relations."""
        binder, key = self.binder, str(query.meta.get(ONCE, ""))
        public = binder.once.get(key)
        if public is None:
            inner = bind_correlated(binder, query, self.names, self.env)
            if inner is not None:
                return self._correlated(inner), inner.bound.inputs
            relation = binder.query(query, self.env, inner=True)
            if relation is not None:
                return self._private(relation), relation.inputs
            if isinstance(self.node, exp.Exists):
                found = exp.alias_(exp.Exists(this=query.copy()), "found", quoted=True)
                query = exp.Select(expressions=[found])
            public = binder.public_relation(query, self.env, binder.name("lent"))
            if key:
                binder.once[key] = public
        return self._public(public), public.inputs

    def _correlated(self, inner: CorrelatedQuery) -> Typed:
        """Return a subquery that is evaluated per row."""
        select, inside = inner.select, inner.names
        where = select.args.get("where")
        parts = split_conjuncts(where.this if where is not None else None)
        pairs = find_equal_columns(parts, inside, inside.elsewhere)
        same = _Membership((), ())
        if isinstance(self.node, exp.In):
            equal, same = self._equal([item.unalias() for item in select.expressions], inside)
            pairs += equal
        more: tuple[exp.Expr, ...] = ()
        if inner.bound.private:
            more = (self.linked(inner.bound.unit, inner.bound.relations, pairs, select),)
        if not isinstance(self.node, exp.Exists | exp.In):
            return _scalar(inner, more)
        if aggregates(select):
            raise privacy_error(select.expressions[0], "an aggregate always has a row.")
        return self._exists(same, lambda conditions: parse_select(inner.query("1", (*conditions, *more)).sql))

    def _private(self, relation: Relation) -> Typed:
        """Return membership in an independent private query, such as ``x IN (SELECT ... GROUP BY unit)``."""
        if not isinstance(self.node, exp.In) or relation.unit is None:
            raise self._refusal(self.node, (relation,))
        name = self.binder.name("inner")
        relation = relation.renamed(name, name)
        items: list[exp.Expr] = [column(item.name, relation.alias) for item in relation.fields]
        pairs, same = self._equal(items, Names((relation,)))
        unit, source = self.linked(relation.unit, [relation], pairs, self.node), to_sql(relation.source)

        def query(conditions: Sequence[exp.Expr]) -> exp.Expr:
            asked = tuple(f"({to_sql(node)})" for node in (*conditions, unit))
            return parse_select(Select("1", source, asked).sql)

        return self._exists(same, query)

    def _public(self, relation: Relation) -> Typed:
        """Return a public subquery, evaluated before the exact query runs."""
        items = [item.typed.node.copy() for item in relation.fields]
        named = [exp.alias_(item, column_name(place)) for place, item in enumerate(items)]
        inner = exp.Select(expressions=named).from_(relation.source.copy())
        if not isinstance(self.node, exp.In):
            _same_width(1, items, self.node)
            single = take_value(relation.fields[0].typed, self.node)
            inner.expressions[0].set("this", single.node)
            return replace(single, node=inner.limit(1).subquery(), constant=False, nullable=True)
        _same_width(len(self.sides), items, self.node)
        nodes = []
        for place, (side, item) in enumerate(zip(self.sides, relation.fields, strict=True)):
            left = total_expressions.make_total(side, self.names)
            there = replace(take_value(item.typed, self.node), place=self.node)
            node, value, condition = meet_public(left, there, "IN")
            nodes.append(node)
            named[place].set("this", value)
            if condition is not None:
                inner = inner.where(condition)
        inner.set("expressions", named)
        row = nodes[0] if len(nodes) == 1 else exp.Tuple(expressions=nodes)
        return Typed(exp.paren(exp.In(this=row, query=inner.subquery())), BOOLEAN, None, False, None)

    def _exists(self, same: _Membership, query: Callable[[Sequence[exp.Expr]], exp.Expr]) -> Typed:
        """Return EXISTS or IN; one EXISTS is enough, since a condition treats a NULL of IN as FALSE, and below NOT as TRUE."""
        found: exp.Expr = exp.Exists(this=query(same.equal))
        sign = _sign(self.node, self.condition)
        if isinstance(self.node, exp.In) and sign < 1:
            possible: exp.Expr = exp.Exists(this=query(same.possible))
            if sign == 0:
                never = exp.If(this=exp.Not(this=possible), true=exp.false())
                possible = exp.Case(ifs=[exp.If(this=found, true=exp.true()), never])
            found = possible
        return Typed(exp.paren(found), BOOLEAN, None, False, None)

    # -- what links a subquery to the row around it -------------------------------------------------------------

    def _equal(self, items: Sequence[exp.Expr], inside: Names) -> tuple[_Pairs, _Membership]:
        """Return ``x IN (SELECT y ...)`` as x = y: the pairs, inner first, and the conditions."""
        _same_width(len(self.sides), items, self.node)
        pairs: _Pairs = []
        equal, possible = [], []
        for side, item in zip(self.sides, items, strict=True):
            left = bind_expression(self.binder, side, self.names, self.env)
            right = bind_expression(self.binder, item, inside, self.env)
            nodes, _ = unify((left, right), "IN")
            equal.append(exp.EQ(this=exp.paren(nodes[0].copy()), expression=exp.paren(nodes[1].copy())))
            missing = [
                exp.Is(this=exp.paren(typed.node.copy()), expression=exp.Null()) for typed in (left, right)
            ]
            possible.append(exp.or_(*missing, equal[-1], copy=True))
            here, there = inside.known(item), self.names.known(side)
            pairs += [(here, there)] if here is not None and there is not None else []
        return pairs, _Membership(tuple(equal), tuple(possible))

    @property
    def _unit_around(self) -> exp.Expr | None:
        return next((scope.unit for scope in self.names.scopes() if scope.unit is not None), None)

    def linked(
        self, unit: exp.Expr | None, relations: list[Relation], pairs: _Pairs, place: exp.Expr
    ) -> exp.Expr:
        """Return the equality of the subquery's unit and the outer row's; PrivacyError if they are not linked."""
        linked = [
            here
            for here, there in pairs
            if here.fixes_unit(there)
            and (here.anchors & there.anchors or meets_exactly(here.typed.type, there.typed.type))
        ]
        around = self._unit_around
        if unit is None or around is None or not linked:
            raise self._refusal(place, tuple(relations), pairs)
        scopes = [relation for scope in self.names.scopes() for relation in scope.relations]
        other = explain_other_unit(scopes, relations)
        if other is not None:
            raise privacy_error(place, other, "query the tables one at a time.")
        return exp.EQ(this=exp.paren(unit.copy()), expression=exp.paren(around.copy()))

    def _refusal(
        self, place: exp.Expr, relations: tuple[Relation, ...], equal: _Pairs | None = None
    ) -> PrivacyError:
        hint = "release what is needed first, in a CTE with aggregates, and compare with that."
        pairs = [
            (relation.alias, here.name, alias, there.name)
            for relation in relations
            for here in relation.fields
            for alias, there in self.names.fields()
            if here.suggests(there)
        ]
        if pairs and not relations[0].alias.startswith(INTERNAL) and self._unit_around is not None:
            alias, name, around, other = pairs[0]
            name, other = quote_where_needed(name), quote_where_needed(other)
            called = f"call it {alias}2 and " if fold(alias) == fold(around) else ""
            alias = f"{alias}2" if called else alias
            hint = (
                f"look at rows of the same unit: {called}add {alias}.{name} = {around}.{other} to its WHERE."
            )
            item = place.expressions[0].unalias() if isinstance(place, exp.Select) else None
            if equal and item is not None and item.find(exp.AggFunc) and not equal[0][0].tells_unit:
                hint = f"{hint[:-1]}, or release it first for each {equal[0][0].name}, and join that answer."
        what = "a subquery over private rows would let one unit decide about the rows of others."
        return privacy_error(place, what, hint)


# -- LATERAL and UNNEST ----------------------------------------------------------------------------------------

_ROWS = "with rows as the privacy unit, each counts once, and {what} would make several of it."


def may_read_earlier(node: exp.Expr) -> bool:
    """Return whether a FROM item may name columns of preceding ones."""
    if isinstance(node, exp.Lateral):
        return True
    if isinstance(node, exp.Unnest):
        return any(
            isinstance(n, exp.Column) for n in node.walk(prune=lambda n: isinstance(n, exp.Query))
        )  # an inner query's are its own
    inner = node.this if isinstance(node, exp.Subquery) else None
    plain = isinstance(inner, exp.Select) and inner.args.get("from_") is None
    return plain and node.find(exp.Column) is not None


def move_unnest(select: exp.Select, name: str) -> None:
    """Rewrite ``SELECT unnest(x) AS y FROM t`` as ``FROM t, UNNEST(x)``, in place."""
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
    made = stand_in("unnest", call)
    made.set("table", exp.to_identifier(name))
    item.replace(exp.alias_(made, item.alias or "unnest", quoted=True))


def bind_lateral(binder: Binder, node: exp.Expr, bound: From, env: Env) -> Relation:
    """Return the item as a relation that adds no units.

    Raises:
        PrivacyError: it would read other private rows, or multiply a row that is a unit.
        BindError: names or types don't fit.
    """
    if isinstance(node, exp.Unnest):
        return _unnested(binder, node, bound, env)
    inner = node.this.this if isinstance(node.this, exp.Subquery) else node.this
    alias = node.alias_or_name or binder.name("beside")
    renamed = node.alias_column_names
    if not isinstance(inner, exp.Select):
        raise privacy_error(
            node, "LATERAL takes a SELECT here.", "for a list, leave LATERAL out and unnest it in FROM."
        )
    query, names, found = exp.Select(), bound.names, None
    if inner.args.get("from_") is not None:
        if bound.row_level:
            raise privacy_error(node, _ROWS.format(what="LATERAL"), "join a table where the keys are unique.")
        found = bind_correlated(binder, inner, names, env)
        if found is None or found.bound.private or inner.args.get("distinct"):
            hint = "join the table, or put the subquery into the list of columns."
            raise privacy_error(node, "LATERAL looks at public rows, without aggregates, here.", hint)
        if any(item.is_star for item in inner.expressions):
            raise bind_error(
                node, "name the columns of a LATERAL.", "write the names of its columns instead of the star."
            )
        query, names = parse_select(found.query("1").sql), found.names
        query.set("expressions", [])
    values = [
        (label_of_item(item), binder.expression(item.unalias(), names, env)) for item in inner.expressions
    ]
    if found is None:
        if (where := inner.args.get("where")) is not None:
            query.where(binder.expression(where.this, names, env).node, copy=False)
        if any(inner.args.get(key) for key in (*_BEYOND, "distinct")):
            raise privacy_error(node, "LATERAL takes columns and WHERE here.")
    own_name = binder.name("beside")
    fields: list[Field] = []
    for i, (label, typed) in enumerate(values):
        name = renamed[i] if i < len(renamed) else label
        if not name or name in {f.name for f in fields}:
            raise bind_error(node, "each column of a LATERAL needs a name of its own.", "write x + 1 AS y.")
        query.append("expressions", exp.alias_(typed.node.copy(), column_name(i)))
        fields.append(Field(name, replace(typed, node=column(column_name(i), own_name), constant=False)))
    named = exp.TableAlias(this=exp.to_identifier(own_name))
    source = exp.Lateral(this=exp.Subquery(this=query), alias=named)
    made = Relation(alias, own_name, tuple(fields), source, private=False)
    return made if found is None else replace(made, inputs=found.bound.inputs, fan_out=found.bound.fan_out)


def _list_values(items: Sequence[Typed]) -> tuple[object, ...] | None:
    known = [item.values for item in items if item.values is not None]
    return tuple(dict.fromkeys(chain(*known))) if len(known) == len(items) else None


def _unnested(binder: Binder, node: exp.Unnest, bound: From, env: Env) -> Relation:
    if bound.row_level:
        hint = "count the items of a list by its length, or ask whether it has one."
        raise privacy_error(node, _ROWS.format(what="UNNEST"), hint)
    if len(node.expressions) != 1 or node.args.get("offset"):
        raise privacy_error(
            node, "UNNEST takes one list of a private row.", "unnest each list by a call of its own."
        )
    argument = node.expressions[0]
    typed = binder.expression(argument, bound.names, env)
    require_kind(typed, ("LIST",), "UNNEST takes a list")
    held = typed.type.element
    if held is None:
        raise bind_error(argument, "UNNEST takes a list.")
    alias = node.alias_or_name or binder.name("unnest")
    name = next(iter(node.alias_column_names), "unnest")
    own_name = binder.name("unnest")
    named = exp.TableAlias(this=exp.to_identifier(own_name), columns=[exp.to_identifier(column_name(0))])
    longest = bound_list_length(typed, [table for relation in bound.relations for table in relation.tables])
    # A longer list is NULL, which makes no rows.
    typed = hold(replace(typed, node=typed.node.copy()), longest)
    source = exp.Unnest(expressions=[typed.node], alias=named)
    assert to_sql(source)
    element = Typed(column(column_name(0), own_name), held, order=typed.order)
    if isinstance(argument, exp.Array):  # public facts about the elements apply to each
        items = [binder.expression(item, bound.names, env) for item in argument.expressions]
        element = replace(
            element, bounds=unite_bounds(item.bounds for item in items), values=_list_values(items)
        )
    return Relation(alias, own_name, (Field(name, element),), source, private=False, fan_out=longest)
