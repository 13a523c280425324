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
from dataclasses import dataclass
from fractions import Fraction

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from dpsql.sql.lock.tree import (
    Call,
    Cast,
    Derived,
    Expr,
    Join,
    Literal,
    Made,
    Order,
    Parameter,
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
_BITS = 21
_TYPES = {
    "BIGINT": "BIGINT", "INT": "INTEGER", "SMALLINT": "SMALLINT", "TINYINT": "TINYINT", "DOUBLE": "DOUBLE",
    "FLOAT": "FLOAT", "BOOLEAN": "BOOLEAN", "DATE": "DATE", "TIMESTAMPNTZ": "TIMESTAMP", "TEXT": "VARCHAR",
}  # fmt: skip
_BINARY: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.IntDiv: "//", exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.GT: ">",
    exp.LTE: "<=", exp.GTE: ">=", exp.NullSafeEQ: "is not distinct from", exp.SafeAdd: "+", exp.SafeSubtract: "-",
    exp.SafeMultiply: "*", exp.Mod: "%", exp.DPipe: "||", exp.Atan2: "atan2",
    exp.And: "and", exp.Or: "or",
}  # fmt: skip
_UNARY: dict[type[exp.Expr], str] = {exp.Abs: "abs", exp.Min: "min", exp.Max: "max", exp.Rint: "round_even"}
_LISTS: dict[type[exp.Expr], str] = {exp.Least: "least", exp.Greatest: "greatest", exp.Coalesce: "coalesce"}
_JOINS = {
    ("", ""): "INNER", ("", "CROSS"): "INNER", ("", "INNER"): "INNER", ("LEFT", ""): "LEFT", ("RIGHT", ""): "RIGHT",
    ("FULL", ""): "OUTER", ("LEFT", "SEMI"): "SEMI", ("LEFT", "ANTI"): "ANTI",
}  # fmt: skip
_FUNCTIONS = {"pmod": "%", "shiftrightunsigned": ">>", "try_divide": "/", "concat": "||"}
"""Functions of their arguments alone, of which the lock knows no more than that."""
_ATTEMPTS = (exp.SafeAdd, exp.SafeSubtract, exp.SafeMultiply)


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
    except SqlglotError:
        tree = None
    if tree is None:
        refuse("a text that can't be read")
    return _Reader({name.lower(): path for name, path in paths.items()}, salt).query(tree)


def _only(node: exp.Expr, *known: str) -> None:
    for key, value in node.args.items():
        if key not in known and value not in (None, False, []):
            refuse(f"{key} in {node.key}")


@dataclass
class _Reader:
    paths: Paths
    salt: int | None

    # -- queries ----------------------------------------------------------------------------------------------------

    def query(self, node: exp.Expr) -> Query:
        if isinstance(node, exp.Union) and type(node) is exp.Union:
            _only(node, "this", "expression", "distinct", "by_name")
            if node.args.get("by_name"):
                refuse("a union by name")
            return Union(
                (), "UNION", not node.args.get("distinct"), (self.query(node.this), self.query(node.expression)), None
            )  # fmt: skip
        if not isinstance(node, exp.Select):
            refuse(f"a query of kind {node.key}")
        return self.select(node)

    def select(self, node: exp.Select) -> Select:
        _only(
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
            _only(distinct)
        group, having, order, limit = (node.args.get(key) for key in ("group", "having", "order", "limit"))
        if group is not None:
            _only(group, "expressions")
        if limit is not None:
            _only(limit, "expression")
        most = None if limit is None else _number(self.of(limit.expression))
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
        _only(with_, "expressions")
        found = []
        for cte in with_.expressions:
            _only(cte, "this", "alias")
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

    def orders(self, order: exp.Expr | None) -> tuple[Order, ...]:
        if order is None:
            return ()
        _only(order, "expressions")
        found = []
        for item in order.expressions:
            _only(item, "this", "desc", "nulls_first")
            word = "DESCENDING" if item.args.get("desc") else "ASCENDING"
            nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
            found.append(Order(self.of(item.this), f"{word} NULLS_{nulls}"))
        return tuple(found)

    def chosen(self, node: exp.Select) -> Select | None:
        """``SELECT names FROM (SELECT ..., choice AS dpsql_chosen FROM ...) AS q WHERE dpsql_chosen``."""
        where = node.args.get("where")
        if where is None or not isinstance(where.this, exp.Column) or where.this.table:
            return None
        from_ = node.args.get("from_")
        _only(node, "expressions", "from_", "where")
        inner = from_.this if from_ is not None else None
        if where.this.name != CHOSEN or not isinstance(inner, exp.Subquery) or inner.alias != "q":
            refuse("a column that is not written with its relation")
        _only(inner, "this", "alias")
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
        _only(from_, "this")
        found = self.source(from_.this)
        for join in node.args.get("joins") or ():
            _only(join, "this", "on", "kind", "side")
            side, kind, on = join.side.upper(), join.kind.upper(), join.args.get("on")
            shape = _JOINS.get((side, kind))
            if shape is None or (on is None) != (kind == "CROSS"):
                refuse(f"a join {side} {kind}")
            found = Join(found, self.source(join.this), shape, None if on is None else self.of(on), False)
        return found

    def source(self, node: exp.Expr) -> Source:
        given = node.args.get("alias")
        if given is None or not given.name:
            refuse("a relation without an alias")
        alias, columns = given.name, tuple(c.name for c in given.args.get("columns") or ())
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            _only(node, "this", "alias")
            if columns:
                refuse("a table with a list of columns")
            return Table(self.paths.get(node.name.lower(), (node.name,)), alias)
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
            _only(node, "this", "alias")
            if str(node.this.this).lower() != "range" or len(columns) != 1:
                refuse("a table function")
            return Made("range", tuple(map(self.of, node.this.expressions)), alias, columns)
        if not isinstance(node, exp.Subquery):
            refuse(f"a relation of kind {node.key}")
        _only(node, "this", "alias")
        rows = self.rows(node.this)
        if rows is not None:
            return Values(rows, alias, columns)
        if columns:
            refuse("a subquery with a list of columns")
        return Derived(self.query(node.this), alias, ())

    def rows(self, node: exp.Expr) -> tuple[tuple[Expr, ...], ...] | None:
        from_ = node.args.get("from_")
        if from_ is None or not isinstance(from_.this, exp.Values):
            return None
        _only(node, "expressions", "from_")
        _only(from_.this, "expressions")
        if len(node.expressions) != 1 or not isinstance(node.expressions[0], exp.Star):
            refuse("some columns of VALUES")
        _only(node.expressions[0])
        return tuple(tuple(map(self.of, row.expressions)) for row in from_.this.expressions)

    # -- expressions ------------------------------------------------------------------------------------------------

    def of(self, node: exp.Expr) -> Expr:
        if isinstance(node, exp.Paren):
            return self.of(node.this)
        if isinstance(node, exp.Column):
            _only(node, "this", "table")
            if not node.table or isinstance(node.this, exp.Star):
                refuse("a column that is not written with its relation")
            return Ref(node.table, node.name)
        if isinstance(node, exp.Literal | exp.Boolean | exp.Null | exp.Neg):
            return self.constant(node)
        if isinstance(node, exp.TryCast | exp.Cast):
            return self.cast(node)
        if isinstance(node, exp.Not):
            inner = self.of(node.this)
            if isinstance(inner, Call) and inner.name == "is not distinct from":
                return Call("is distinct from", inner.args)
            return Call("not", (inner,))
        if isinstance(node, exp.Is):
            if not isinstance(node.expression, exp.Null):
                refuse("IS of something")
            return Call("is null", (self.of(node.this),))
        if type(node) in _BINARY:
            _only(node, "this", "expression", "safe", "typed")
            made = Call(_BINARY[type(node)], (self.of(node.this), self.of(node.expression)))
            return Call("try", (made,)) if isinstance(node, _ATTEMPTS) else made
        if type(node) in _UNARY:
            _only(node, "this")
            return Call(_UNARY[type(node)], (self.of(node.this),))
        if type(node) in _LISTS:
            _only(node, "this", "expressions", "ignore_nulls", "is_nvl", "is_null")
            return Call(_LISTS[type(node)], tuple(map(self.of, (node.this, *node.expressions))))
        return self.more(node)

    def more(self, node: exp.Expr) -> Expr:
        where = None
        if isinstance(node, exp.Filter):
            _only(node, "this", "expression")
            where, node = self.of(node.expression.this), node.this
            if not isinstance(node, exp.Count | exp.Sum):
                refuse("FILTER of something else")
        if isinstance(node, exp.Count):
            _only(node, "this", "big_int")
            if isinstance(node.this, exp.Distinct):
                _only(node.this, "expressions")
                if len(node.this.expressions) != 1:
                    refuse("a count of several")
                return Call("count", (self.of(node.this.expressions[0]),), True, where)
            counted = self.of(node.this)
            return (
                Call("count_star", (), False, where)
                if counted == Literal(1)
                else Call("count", (counted,), False, where)
            )
        if isinstance(node, exp.Sum):
            _only(node, "this")
            return Call("sum", (self.of(node.this),), False, where)
        if isinstance(node, exp.In):
            return self.among(node)
        if isinstance(node, exp.Exists):
            return Subquery("EXISTS", self.query(node.this), None, "")
        if isinstance(node, exp.Subquery):
            _only(node, "this")
            return Subquery("SCALAR", self.query(node.this), None, "")
        if isinstance(node, exp.Case):
            _only(node, "ifs", "default")
            parts = [self.of(part) for one in node.args["ifs"] for part in (one.this, one.args["true"])]
            default = node.args.get("default")
            return Call("case", (*parts, Literal(None) if default is None else self.of(default)))
        if isinstance(node, exp.Window):
            return self.window(node)
        if isinstance(node, exp.Between):
            _only(node, "this", "low", "high")
            return Call("between", tuple(self.of(node.args[key]) for key in ("this", "low", "high")))
        if isinstance(node, exp.Concat):
            _only(node, "expressions", "safe", "coalesce")
            return Call("||", tuple(map(self.of, node.expressions)))
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "xxhash64":
            return self.hash(node)
        if isinstance(node, exp.Round):
            _only(node, "this", "decimals")
            places = node.args.get("decimals")
            return Call("round", (self.of(node.this), *(() if places is None else (self.of(places),))))
        if isinstance(node, exp.Anonymous) and str(node.this).lower() in _FUNCTIONS:
            return Call(_FUNCTIONS[str(node.this).lower()], tuple(map(self.of, node.expressions)))
        refuse(f"an expression {node.this if isinstance(node, exp.Anonymous) else node.key}")

    def constant(self, node: exp.Expr) -> Literal:
        if isinstance(node, exp.Null):
            return Literal(None)
        if isinstance(node, exp.Boolean):
            return Literal(bool(node.this))
        if isinstance(node, exp.Neg):
            inner = self.of(node.this)
            if isinstance(inner, Cast) and inner.type == "DOUBLE":
                inner = inner.child
            if not isinstance(inner, Literal) or isinstance(inner.value, str | bool | None):
                refuse("a sign before something else than a number")
            return Literal(-inner.value)
        if node.args.get("is_string"):
            return Literal(node.name)
        text = node.name
        return Literal(
            int(text) if text.isdigit() else float(text) if "e" in text.lower() else Fraction(text)
        )

    def cast(self, node: exp.Expr) -> Expr:
        to, inner, attempt = node.args["to"], node.this, bool(node.args.get("safe"))
        _only(node, "this", "to", "safe")
        kind = to.this.name if isinstance(to.this, exp.DType) else ""
        if kind == "DECIMAL":
            digits = tuple(int(p.this.name) for p in to.expressions)
            if isinstance(inner, exp.Literal) and inner.is_string and not attempt:  # 2BD
                exact = Fraction(inner.name)
                return Literal(exact.numerator if exact.denominator == 1 else exact)
            if digits != (38, 0):
                refuse("a decimal of other digits")
            found = self.total(inner)
            return Cast(self.of(inner), "HUGEINT", attempt) if found is None else found
        if kind not in _TYPES or to.expressions or to.args.get("nested"):
            refuse("a type that is not known")
        if isinstance(inner, exp.Literal) and not inner.is_string and not attempt:  # 2L, 2D
            value = self.constant(inner)
            return value if kind == "BIGINT" else Cast(value, _TYPES[kind], False)
        if isinstance(inner, exp.Rint) and attempt:  # DuckDB's cast of a double rounds so by itself
            inner = inner.this
        if isinstance(inner, exp.Window) and kind == "BIGINT" and not attempt:
            return self.window(inner)
        return Cast(self.of(inner), _TYPES[kind], attempt)

    def total(self, node: exp.Expr) -> Expr | None:
        """A sum in three parts, or half of a number: what stands in a cast to 38 digits."""
        if isinstance(node, exp.Sum | exp.Filter):
            return self.of(node)
        parts = _flat(node)
        if len(parts) == 3:
            (high, times), (middle, fewer), (low, once) = map(self._sum_of, parts)
            mask = (1 << _BITS) - 1
            x = _low_bits(low.args[0], mask)
            same = high.where == middle.where == low.where
            shifted = Call(">>", (x, Literal(_BITS)))
            right = (
                (times, fewer, once) == (1 << 2 * _BITS, 1 << _BITS, 1) and same
                and high.args[0] == Call(">>", (x, Literal(2 * _BITS))) and middle.args[0] == Call("&", (shifted, Literal(mask)))
            )  # fmt: skip
            return Call("sum", (x,), False, low.where) if right else refuse("a sum of other parts")
        taken = node.this.this if isinstance(node, exp.Mul) and isinstance(node.this, exp.Paren) else None
        if isinstance(taken, exp.Sub):
            rest = taken.expression
            if not isinstance(rest, exp.Mod) or self.of(node.expression) != Literal(Fraction(1, 2)):
                refuse("a part of a number")
            x = self.of(taken.this)
            if self.of(rest.this) != x or self.of(rest.expression) != Literal(2):
                refuse("a part of a number")
            return Call("//", (x, Literal(2)))
        return None

    def _sum_of(self, node: exp.Expr) -> tuple[Call, int]:
        times = 1
        if isinstance(node, exp.Mul):
            factor = self.of(node.expression)
            times, node = _number(factor) or 0, node.this
        if not isinstance(node, exp.TryCast | exp.Cast) or node.args.get("safe"):
            refuse("a sum of other parts")
        if [p.this.name for p in node.args["to"].expressions] != ["20", "0"]:
            refuse("a sum of other parts")
        inner, where = node.this, None
        if isinstance(inner, exp.Filter):
            where, inner = self.of(inner.expression.this), inner.this
        if not isinstance(inner, exp.Sum):
            refuse("a sum of other parts")
        _only(inner, "this")
        return Call("sum", (self.bits(inner.this),), False, where), times

    def bits(self, node: exp.Expr) -> Expr:
        """Shifts and masks, which stand nowhere but in the parts of a sum."""
        if isinstance(node, exp.BitwiseAnd):
            return Call("&", (self.bits(node.this), self.of(node.expression)))
        if isinstance(node, exp.BitwiseRightShift):
            _only(node, "this", "expression")
            return Call(">>", (self.of(node.this), self.of(node.expression)))
        return self.of(node)

    def among(self, node: exp.In) -> Expr:
        _only(node, "this", "query", "expressions")
        child, query = self.of(node.this), node.args.get("query")
        if query is None:
            return Call("in", (child, *map(self.of, node.expressions)))
        return Subquery("ANY", self.query(query.this), child, "COMPARE_EQUAL")

    def hash(self, node: exp.Anonymous) -> Expr:
        """Of values; or, with the salt, of a hash of them."""
        given = node.expressions
        inner = given[0].unnest()
        if len(given) == 1 and isinstance(inner, exp.BitwiseXor):
            salt = self.of(inner.expression)
            if self.salt is not None and salt == Literal(self.salt):
                salt = Parameter("salt")
            return Call("hash", (Call("xor", (self.of(inner.this), salt)),))
        return Call("hash", tuple(map(self.of, given)))

    def window(self, node: exp.Window) -> Expr:
        """Numbers of rows, which have no frame."""
        _only(node, "this", "partition_by", "order", "over")
        if not isinstance(node.this, exp.RowNumber | exp.DenseRank):
            refuse("a window function")
        name = "row_number" if isinstance(node.this, exp.RowNumber) else "dense_rank"
        by: Sequence[exp.Expr] = node.args.get("partition_by") or ()
        return Window(
            name, (), tuple(map(self.of, by)), self.orders(node.args.get("order")),
            "UNBOUNDED_PRECEDING", "CURRENT_ROW_RANGE", (None, None),
        )  # fmt: skip


def _placed(order: Order, items: Sequence[tuple[str, Expr]]) -> Order:
    """Spark's writer says by its place what a query is ordered by."""
    place = _number(order.by)
    if place is None:
        return order
    if not 1 <= place <= len(items):
        refuse("a place that is not there")
    return Order(items[place - 1][1], order.how)


def _flat(node: exp.Expr) -> list[exp.Expr]:
    return [*_flat(node.this), node.expression] if isinstance(node, exp.Add) else [node]


def _low_bits(node: Expr, mask: int) -> Expr:
    if not (isinstance(node, Call) and node.name == "&" and node.args[1] == Literal(mask)):
        refuse("a sum of other parts")
    return node.args[0]


def _number(node: Expr) -> int | None:
    found = isinstance(node, Literal) and isinstance(node.value, int) and not isinstance(node.value, bool)
    return node.value if found else None  # type: ignore[union-attr,return-value]
