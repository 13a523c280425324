"""A reader from Spark's text to the second lock's tree: the shapes of the noisy aggregates, as Spark's writer has them.

The text is parsed anew, in Spark's dialect, and nothing is taken over from whoever wrote it. Some of Spark's shapes stand for
one thing each, and are read as that thing once every part of them is as it must be:

* three sums of 21 and 22 bits, put together: the sum. Any other multiple or mask is refused;
* a choice that is a column of a subquery, and a condition above it: QUALIFY;
* ``xxhash64(xxhash64(values, which are missing) ^ salt)``: the secret hash.

Closed by default: a node, a clause or a type that is not named here refuses the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.sql.lock import tree
from dpsql.sql.lock.spark_expressions import PLAIN_FRAME, SparkExpressions, refuse_other_parts
from dpsql.sql.lock.tree import (
    Call,
    Cast,
    Derived,
    Expr,
    Join,
    Literal,
    Order,
    Ref,
    Select,
    Window,
    integer,
    refuse,
)

Paths = Mapping[str, tuple[str, ...]]
"""The whole paths of the policy's tables, by the names of their views."""

CHOSEN = "dpsql_chosen"
_JOINS = {
    ("", ""): "INNER", ("", "CROSS"): "INNER", ("", "INNER"): "INNER", ("LEFT", ""): "LEFT", ("RIGHT", ""): "RIGHT",
    ("FULL", ""): "OUTER", ("LEFT", "SEMI"): "SEMI", ("LEFT", "ANTI"): "ANTI",
}  # fmt: skip


def read_spark(text: str, paths: Paths, salt: int | None = None) -> tree.Query:
    """Read a text that is meant for Spark.

    Args:
        text: the query.
        paths: where the policy's tables are, by what they are called in the text.
        salt: the secret number that stands in the text.

    Raises:
        Unproved: something in it has no place in the tree.
    """
    try:
        parsed = sqlglot.parse_one(text, read="spark")
        return _Reader(salt, {name.lower(): path for name, path in paths.items()}).query(parsed)
    except (SqlglotError, KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError):
        refuse("a text that can't be read")


@dataclass
class _Reader(SparkExpressions):
    paths: Paths

    # -- queries ----------------------------------------------------------------------------------------------------

    def query(self, node: exp.Expr) -> tree.Query:
        if type(node) is exp.Union:
            refuse_other_parts(node, "this", "expression", "distinct")
            return tree.Union("UNION", (self.query(node.this), self.query(node.expression)))
        if not isinstance(node, exp.Select):
            refuse(f"a query of kind {node.key}")
        refuse_other_parts(
            node, "with_", "expressions", "from_", "joins", "where", "group", "having", "distinct", "limit", "order"
        )  # fmt: skip
        ctes = self.ctes(node)
        found = self.chosen(node)
        if found is not None:
            return found
        where, group, having, distinct, order, limit = map(
            node.args.get, ("where", "group", "having", "distinct", "order", "limit")
        )
        for clause, *said in ((distinct,), (group, "expressions"), (limit, "expression")):
            if clause is not None:
                refuse_other_parts(clause, *said)
        most = None if limit is None else integer(self.of(limit.expression))
        if limit is not None and most is None:
            refuse("a limit that is no number")
        items = tuple(map(self.item, node.expressions))
        if not items:
            refuse("a query without columns")
        return Select(
            items, self.from_(node), ctes, self.maybe(where), tuple(map(self.of, group.expressions if group else ())),
            self.maybe(having), None, distinct is not None, tuple(_placed(one, items) for one in self.orders(order)), most,
        )  # fmt: skip

    def ctes(self, node: exp.Select) -> tuple[tuple[str, tree.Query], ...]:
        with_ = node.args.get("with_")
        if with_ is None:
            return ()
        refuse_other_parts(with_, "expressions")
        found = []
        for cte in with_.expressions:
            refuse_other_parts(cte, "this", "alias")
            if cte.args["alias"].args.get("columns"):
                refuse("a CTE with a list of columns")
            if cte.alias.lower() in self.paths:
                refuse("a CTE that is called like a table")
            found.append((cte.alias, self.query(cte.this)))
        return tuple(found)

    def item(self, node: exp.Expr) -> tuple[str, Expr]:
        if not isinstance(node, exp.Alias):
            refuse("an output column without a name")
        return node.alias, self.of(node.this)

    def maybe(self, clause: exp.Expr | None) -> Expr | None:
        return None if clause is None else self.of(clause.this)

    def chosen(self, node: exp.Select) -> Select | None:
        """Read ``SELECT names FROM (SELECT ..., choice AS dpsql_chosen FROM ...) AS q WHERE dpsql_chosen``."""
        where = node.args.get("where")
        if where is None or not isinstance(where.this, exp.Column) or where.this.table:
            return None
        from_ = node.args.get("from_")
        refuse_other_parts(node, "expressions", "from_", "where")
        inner = from_.this if from_ is not None else None
        if where.this.name != CHOSEN or not isinstance(inner, exp.Subquery) or inner.alias != "q":
            refuse("a column that is not written with its relation")
        refuse_other_parts(inner, "this", "alias")
        match self.query(inner.this):
            case Select(
                (*items, (last, choice)),
                groups=(),
                having=None,
                qualify=None,
                distinct=False,
                order=(),
                limit=None,
            ) as below:
                names = [
                    c.name if isinstance(c, exp.Column) and not c.table else "" for c in node.expressions
                ]
                if last == CHOSEN and names == [name for name, _ in items]:
                    return replace(below, items=tuple(items), qualify=choice)
        refuse("a choice of another kind")

    # -- FROM -------------------------------------------------------------------------------------------------------

    def from_(self, node: exp.Select) -> tree.Source | None:
        from_ = node.args.get("from_")
        if from_ is None:
            return None
        refuse_other_parts(from_, "this")
        found = self.source(from_.this)
        for join in node.args.get("joins") or ():
            refuse_other_parts(join, "this", "on", "kind", "side")
            side, kind, on = join.side.upper(), join.kind.upper(), join.args.get("on")
            shape = _JOINS.get((side, kind))
            if shape is None or (on is None) != (kind == "CROSS"):
                refuse(f"a join {side} {kind}")
            condition = None if on is None else self.of(on)
            made = Join(found, self.source(join.this), shape, condition, False)
            found = nearest_of(made) or made
        return found

    def source(self, node: exp.Expr) -> tree.Source:
        given = node.args.get("alias")
        if given is None or not given.name:
            refuse("a relation without an alias")
        alias, columns = given.name, tuple(c.name for c in given.args.get("columns") or ())
        refuse_other_parts(node, "this", "alias")
        match node:
            case exp.Table(this=exp.Identifier()):
                if columns:
                    refuse("a table with a list of columns")
                return tree.Table(self.paths.get(node.name.lower(), (node.name,)), alias)
            case exp.Table(this=exp.Anonymous() as made):
                if str(made.this).lower() != "range" or len(columns) != 1:
                    refuse("a table function")
                return tree.Made("range", tuple(map(self.of, made.expressions)), alias, columns)
            case exp.Lateral(this=exp.Explode() as made) if type(made) is exp.Explode and len(columns) == 1:
                refuse_other_parts(made, "this")
                return tree.Made("unnest", (self.of(made.this),), alias, columns)
            case exp.Lateral(this=exp.Subquery() as looking) if not columns:
                refuse_other_parts(looking, "this")
                return Derived(self.query(looking.this), alias)
            case exp.Subquery():
                rows = self.rows(node.this)
                if rows is not None:
                    return tree.Values(rows, alias, columns)
                if columns:
                    refuse("a subquery with a list of columns")
                return Derived(self.query(node.this), alias)
        refuse(f"a relation of kind {node.key}")

    def rows(self, node: exp.Expr) -> tuple[tuple[Expr, ...], ...] | None:
        from_ = node.args.get("from_")
        if from_ is None or not isinstance(from_.this, exp.Values):
            return None
        refuse_other_parts(node, "expressions", "from_")
        refuse_other_parts(from_.this, "expressions")
        if len(node.expressions) != 1 or not isinstance(node.expressions[0], exp.Star):
            refuse("some columns of VALUES")
        refuse_other_parts(node.expressions[0])
        return tuple(tuple(map(self.of, row.expressions)) for row in from_.this.expressions)


def _placed(order: Order, items: Sequence[tuple[str, Expr]]) -> Order:
    """Resolve a place in ORDER BY, which is how Spark's writer orders."""
    place = integer(order.by)
    if place is None:
        return order
    if not 1 <= place <= len(items):
        refuse("a place that is not there")
    return Order(items[place - 1][1], order.how)


NEXT = "dpsql_next"
_RISING = "ASCENDING NULLS_FIRST"
_FOLLOWED = {"lead": {">=": "<", ">": "<="}, "lag": {"<=": ">", "<": ">="}}
"""The place where a row of the other side lies, by the column that is looked up: at or after its own t, and before the next."""


def nearest_of(join: Join) -> Join | None:
    """Read a join with the nearest row, which Spark has not: ``x >= t AND (next IS NULL OR x < next)``, where the column next is
    the t that comes next among the rows whose other columns are equal. So one row at most meets each.
    """
    match join.right:
        case Derived(Select((*items, (name, Window(args=(at,)) as window)), source) as below, alias) if (
            name == NEXT
            and join.kind in ("INNER", "LEFT")
            and source is not None
            and not isinstance(source, Join)
        ):
            pass
        case _:
            return None
    inside, words = source.alias, _FOLLOWED.get(window.name)
    if below != Select(below.items, source) or any(item != Ref(inside, name) for name, item in items):
        return None
    plain = Window(window.name, window.args, window.partition, (Order(at, _RISING),), *PLAIN_FRAME)
    if words is None or window != plain:
        return None
    keys = [_moved(part, inside, alias) for part in window.partition]
    following = Ref(alias, NEXT)
    match tree.conjuncts(join.on):
        case [*equal, Call(comparison, (own, other)) as closest, before] if comparison in words:
            pass
        case _:
            return None
    bounded = Call("or", (Call("is null", (following,)), Call(words[comparison], (own, following))))
    if other != _moved(at, inside, alias) or before != bounded:
        return None
    sides = [pair.args[0] for pair in equal if isinstance(pair, Call) and pair.name == "="]
    if len(keys) != len(equal) or equal != [Call("=", pair) for pair in zip(sides, keys, strict=False)]:
        return None
    if any(_names(side, alias) for side in (own, *sides)):
        return None
    rows = Derived(Select(tuple(items), source), alias)
    return Join(join.left, rows, join.kind, Call("and", (*equal, closest)), True)


def _names(node: Expr, alias: str) -> bool:
    """Return whether an expression looks at a relation, or may do so out of sight."""
    return tree.looks_beyond(node) or any(ref.table == alias for ref in tree.refs(node))


def _moved(node: Expr, old: str, new: str) -> Expr:
    """Return an expression with columns of one relation taken from another."""
    match node:
        case Ref(table, name):
            return Ref(new, name) if table == old else refuse("a key of something else")
        case Cast():
            return replace(node, child=_moved(node.child, old, new))
        case Call(where=None, order=()):
            return replace(node, args=tuple(_moved(arg, old, new) for arg in node.args))
    return node if isinstance(node, Literal) else refuse("a key of another kind")
