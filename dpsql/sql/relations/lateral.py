"""FROM items that look at the row beside them: UNNEST of a list, LATERAL (SELECT ...).

A private row is followed by rows made of its own values and of public rows, and of nothing else. They belong to its unit, as
the rows of a join with a public table do; how many there are is bounded where those are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from dpsql.sql.expressions.coercion import require_kind
from dpsql.sql.expressions.lengths import hold
from dpsql.sql.expressions.types import Typed
from dpsql.sql.normalize import Env, label_of_item
from dpsql.sql.parse.dialect import bind_error, privacy_error, to_sql
from dpsql.sql.relations.limits import bound_list_length
from dpsql.sql.relations.relation import Field, From, Relation, column, column_name
from dpsql.sql.relations.subqueries import bind_correlated

if TYPE_CHECKING:
    from dpsql.sql.relations.context import Binder

_ROWS = "with rows as the privacy unit, each counts once, and {what} would make several of it."


def looks_beside(node: exp.Expr) -> bool:
    """Whether a FROM item may name columns of those before it."""
    if isinstance(node, exp.Lateral):
        return True
    if isinstance(node, exp.Unnest):
        return any(
            isinstance(n, exp.Column) for n in node.walk(prune=lambda n: isinstance(n, exp.Query))
        )  # those of a query inside are its own
    inner = node.this if isinstance(node, exp.Subquery) else None
    plain = isinstance(inner, exp.Select) and inner.args.get("from_") is None
    return plain and node.find(exp.Column) is not None


def move_unnest_to_from(select: exp.Select, name: str) -> None:
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
    """The item as a relation that adds no units.

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
            (label_of_item(item), binder.expression(item.unalias(), bound.names, env)[0])
            for item in inner.expressions
        ]
        where = inner.args.get("where")
        condition = binder.expression(where.this, bound.names, env)[0].node if where is not None else None
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
        (label_of_item(item), binder.expression(item.unalias(), found.names, env)[0])
        for item in inner.expressions
    ]
    rows = found.sql("1")
    assert isinstance(rows, exp.Select)
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
    typed = binder.expression(argument, bound.names, env)[0]
    require_kind(typed, argument, ("LIST",), "UNNEST takes a list")
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
