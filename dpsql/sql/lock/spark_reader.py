"""From Spark's text to the tree that the second lock reads: the shapes of the noisy aggregates, as Spark's writer has them.

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

from dpsql.sql.lock.expressions import conjuncts, has, parts
from dpsql.sql.lock.spark_aggregates import PLAIN_FRAME, refuse_other_parts
from dpsql.sql.lock.spark_expressions import SparkExpressions, read_integer
from dpsql.sql.lock.tree import (
    Call,
    Cast,
    Derived,
    Expr,
    Join,
    Literal,
    Made,
    Order,
    Query,
    Ref,
    Select,
    Source,
    Subquery,
    Table,
    Union,
    Values,
    Window,
    refuse,
)

Paths = Mapping[str, tuple[str, ...]]
"""The whole paths of the policy's tables, by the names of their views."""

CHOSEN = "dpsql_chosen"
_JOINS = {
    ("", ""): "INNER", ("", "CROSS"): "INNER", ("", "INNER"): "INNER", ("LEFT", ""): "LEFT", ("RIGHT", ""): "RIGHT",
    ("FULL", ""): "OUTER", ("LEFT", "SEMI"): "SEMI", ("LEFT", "ANTI"): "ANTI",
}  # fmt: skip


def read_spark(text: str, paths: Paths, salt: int | None = None) -> Query:
    """Read a text that is meant for Spark.

    Args:
        text: the query.
        paths: where the policy's tables are, by what they are called in the text.
        salt: the secret number that stands in the text.

    Raises:
        Unproved: something in it has no place in the tree.
    """
    try:
        tree = sqlglot.parse_one(text, read="spark")
        return _Reader(salt, {name.lower(): path for name, path in paths.items()}).query(tree)
    except (SqlglotError, KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError):
        refuse("a text that can't be read")


@dataclass
class _Reader(SparkExpressions):
    paths: Paths

    # -- queries ----------------------------------------------------------------------------------------------------

    def query(self, node: exp.Expr) -> Query:
        if isinstance(node, exp.Union) and type(node) is exp.Union:
            refuse_other_parts(node, "this", "expression", "distinct", "by_name")
            if node.args.get("by_name"):
                refuse("a union by name")
            return Union(
                (), "UNION", not node.args.get("distinct"), (self.query(node.this), self.query(node.expression)), None
            )  # fmt: skip
        if not isinstance(node, exp.Select):
            refuse(f"a query of kind {node.key}")
        return self.select(node)

    def select(self, node: exp.Select) -> Select:
        refuse_other_parts(
            node,
            "with_",
            "expressions",
            "from_",
            "joins",
            "where",
            "group",
            "having",
            "distinct",
            "limit",
            "order",
        )
        ctes = self.ctes(node)
        found = self.chosen(node)
        if found is not None:
            return found
        distinct, where = node.args.get("distinct"), node.args.get("where")
        if distinct is not None:
            refuse_other_parts(distinct)
        group, having, order, limit = (node.args.get(key) for key in ("group", "having", "order", "limit"))
        if group is not None:
            refuse_other_parts(group, "expressions")
        if limit is not None:
            refuse_other_parts(limit, "expression")
        most = None if limit is None else read_integer(self.of(limit.expression))
        if limit is not None and most is None:
            refuse("a limit that is no number")
        items = tuple(map(self.item, node.expressions))
        if not items:
            refuse("a query without columns")
        return Select(
            ctes, items, self.from_(node), self.maybe(where),
            tuple(self.of(g) for g in group.expressions) if group is not None else (), self.maybe(having), None,
            distinct is not None, tuple(_placed(one, items) for one in self.orders(order)), most,
        )  # fmt: skip

    def ctes(self, node: exp.Select) -> tuple[tuple[str, Query], ...]:
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
        """``SELECT names FROM (SELECT ..., choice AS dpsql_chosen FROM ...) AS q WHERE dpsql_chosen``."""
        where = node.args.get("where")
        if where is None or not isinstance(where.this, exp.Column) or where.this.table:
            return None
        from_ = node.args.get("from_")
        refuse_other_parts(node, "expressions", "from_", "where")
        inner = from_.this if from_ is not None else None
        if where.this.name != CHOSEN or not isinstance(inner, exp.Subquery) or inner.alias != "q":
            refuse("a column that is not written with its relation")
        refuse_other_parts(inner, "this", "alias")
        below = self.query(inner.this)
        if not isinstance(below, Select) or below.qualify or below.groups or below.having or below.distinct:
            refuse("a choice of another kind")
        *items, (last, choice) = below.items
        names = [c.name if isinstance(c, exp.Column) and not c.table else "" for c in node.expressions]
        if last != CHOSEN or names != [name for name, _ in items] or below.order or below.limit is not None:
            refuse("a choice of another kind")
        return Select(below.ctes, tuple(items), below.source, below.where, (), None, choice, False, (), None)

    # -- FROM -------------------------------------------------------------------------------------------------------

    def from_(self, node: exp.Select) -> Source | None:
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

    def source(self, node: exp.Expr) -> Source:
        given = node.args.get("alias")
        if given is None or not given.name:
            refuse("a relation without an alias")
        alias, columns = given.name, tuple(c.name for c in given.args.get("columns") or ())
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            refuse_other_parts(node, "this", "alias")
            if columns:
                refuse("a table with a list of columns")
            return Table(self.paths.get(node.name.lower(), (node.name,)), alias)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
            refuse_other_parts(node, "this", "alias")
            if str(node.this.this).lower() != "range" or len(columns) != 1:
                refuse("a table function")
            return Made("range", tuple(map(self.of, node.this.expressions)), alias, columns)
        if isinstance(node, exp.Lateral):
            return self.lateral(node, alias, columns)
        if not isinstance(node, exp.Subquery):
            refuse(f"a relation of kind {node.key}")
        refuse_other_parts(node, "this", "alias")
        rows = self.rows(node.this)
        if rows is not None:
            return Values(rows, alias, columns)
        if columns:
            refuse("a subquery with a list of columns")
        return Derived(self.query(node.this), alias, ())

    def lateral(self, node: exp.Lateral, alias: str, columns: tuple[str, ...]) -> Source:
        """The elements of a list, or a subquery that looks at what stands beside it."""
        refuse_other_parts(node, "this", "alias")
        if isinstance(node.this, exp.Explode) and type(node.this) is exp.Explode and len(columns) == 1:
            refuse_other_parts(node.this, "this")
            return Made("unnest", (self.of(node.this.this),), alias, columns)
        if not isinstance(node.this, exp.Subquery) or columns:
            refuse("LATERAL of something else")
        refuse_other_parts(node.this, "this")
        return Derived(self.query(node.this.this), alias, ())

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
    """Spark's writer says by its place what a query is ordered by."""
    place = read_integer(order.by)
    if place is None:
        return order
    if not 1 <= place <= len(items):
        refuse("a place that is not there")
    return Order(items[place - 1][1], order.how)


def nearest_of(join: Join) -> Join | None:
    """A join with the nearest row, which Spark has not: ``x >= t AND (next IS NULL OR x < next)``, where the column next is
    the t that comes next among the rows whose other columns are equal. So one row at most meets each.
    """
    right = join.right
    if join.kind not in ("INNER", "LEFT") or not isinstance(right, Derived):
        return None
    below = right.query
    if not isinstance(below, Select) or below.items[-1][0] != NEXT:
        return None
    source, (*items, (_, window)) = below.source, below.items
    simple = Select((), below.items, source, None, (), None, None, False, (), None)
    if below != simple or not isinstance(source, Table | Derived | Values | Made):
        return None
    if any(item != Ref(source.alias, name) for name, item in items) or not isinstance(window, Window):
        return None
    words = _FOLLOWED.get(window.name)
    if words is None or len(window.args) != 1 or window.order != (Order(window.args[0], _RISING),):
        return None
    if window != Window(window.name, window.args, window.partition, window.order, *PLAIN_FRAME):
        return None
    at = _moved(window.args[0], source.alias, right.alias)
    keys = [_moved(part, source.alias, right.alias) for part in window.partition]
    following = Ref(right.alias, NEXT)
    *equal, closest, before = conjuncts(join.on) if len(conjuncts(join.on)) > 1 else [Literal(None)] * 2
    if not isinstance(closest, Call) or closest.name not in words or len(closest.args) != 2:
        return None
    own = closest.args[0]
    if any(
        _names(side, right.alias) for side in (own, *(a for e in equal for a in parts(e) if a not in keys))
    ):
        return None
    bounded = Call("or", (Call("is null", (following,)), Call(words[closest.name], (own, following))))
    pairs = [(e.args[1] if isinstance(e, Call) and e.name == "=" else None) for e in equal]
    if closest.args[1] != at or before != bounded or pairs != keys:
        return None
    rows = Derived(Select((), tuple(items), source, None, (), None, None, False, (), None), right.alias, ())
    return Join(join.left, rows, join.kind, Call("and", (*equal, closest)), True)


def _names(node: Expr, alias: str) -> bool:
    """Whether an expression looks at a relation, or may do so out of sight."""
    return has(node, lambda n: isinstance(n, Subquery | Window) or (isinstance(n, Ref) and n.table == alias))


NEXT = "dpsql_next"
_RISING = "ASCENDING NULLS_FIRST"
_FOLLOWED = {"lead": {">=": "<", ">": "<="}, "lag": {"<=": ">", "<": ">="}}
"""Where a row of the other side lies, by the column that is looked up: at or after its own t, and before the next."""


def _moved(node: Expr, old: str, new: str) -> Expr:
    """An expression with columns of one relation taken from another."""
    if isinstance(node, Ref):
        return Ref(new, node.name) if node.table == old else refuse("a key of something else")
    if isinstance(node, Cast):
        return replace(node, child=_moved(node.child, old, new))
    if isinstance(node, Call) and node.where is None and not node.order:
        return replace(node, args=tuple(_moved(arg, old, new) for arg in node.args))
    return node if isinstance(node, Literal) else refuse("a key of another kind")
