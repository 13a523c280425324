"""Finding one's way in a statement: the names that WITH gives, and the queries that stand inside expressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from dpsql.sql.relations.relation import Relation, fold


@dataclass
class Cte:
    """A name that WITH gave: a private relation to inline, or a public query that stays where it stands."""

    name: str
    private: Relation | None = None
    tree: exp.Expr | None = None


Env = dict[str, Cte]


def with_ctes(query: exp.Expr, env: Env) -> exp.Expr:
    """The query with the public CTEs it names, so that it stands alone."""
    wanted: dict[str, Cte] = {}

    def visit(tree: exp.Expr) -> None:
        for table in tree.find_all(exp.Table):
            key = fold(table.name)
            cte = env.get(key)
            if cte is not None and cte.tree is not None and key not in wanted:
                wanted[key] = cte
                visit(cte.tree.this)

    visit(query)
    if not wanted:
        return query
    query = query.copy()
    ordered = [cte.tree.copy() for key, cte in env.items() if key in wanted and cte.tree is not None]
    own = query.args.get("with_")
    recursive = bool(own and own.args.get("recursive")) or any(_names_itself(cte) for cte in ordered)
    query.set(
        "with_",
        exp.With(expressions=[*ordered, *(own.expressions if own else [])], recursive=recursive or None),
    )
    return query


def _names_itself(cte: exp.Expr) -> bool:
    return any(fold(table.name) == fold(cte.alias) for table in cte.this.find_all(exp.Table))


def inner_queries(select: exp.Select) -> Iterator[exp.Expr]:
    """Queries in the expressions of a SELECT (not those in FROM, JOIN or WITH), outermost only."""
    for key, value in select.args.items():
        if key in ("with_", "from_"):
            continue
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, exp.Expr):
                continue
            if key == "joins":
                yield from outer_queries(item.args["on"]) if item.args.get("on") else ()
            else:
                yield from outer_queries(item)


def outer_queries(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery | exp.Table):
        yield node
        return
    for child in list(node.iter_expressions()):
        yield from outer_queries(child)
