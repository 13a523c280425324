"""Aggregates and windows of Spark's text, as the second lock's tree has them; see :mod:`dpsql.sql.lock.spark_reader`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from sqlglot import exp

from dpsql.sql.lock.tree import Call, Expr, Literal, Order, Window, refuse

_SIMPLE: dict[type[exp.Expr], str] = {
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Mode: "mode",
    exp.ArrayAgg: "list",
}
_FLAGS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.ArrayAgg: ("nulls_excluded",),
    exp.Mode: ("deterministic",),
}
RANKS: dict[type[exp.Expr], str] = {
    exp.RowNumber: "row_number",
    exp.DenseRank: "dense_rank",
    exp.Rank: "rank",
}
_LOOKS: dict[type[exp.Expr], str] = {
    exp.Lag: "lag",
    exp.Lead: "lead",
    exp.FirstValue: "first_value",
    exp.LastValue: "last_value",
}
PLAIN_FRAME: tuple[str, str, tuple[Expr | None, Expr | None]] = (
    "UNBOUNDED_PRECEDING",
    "CURRENT_ROW_RANGE",
    (None, None),
)
"""What a window has that says nothing of a frame."""


def refuse_other_parts(node: exp.Expr, *known: str) -> None:
    """Refuse a node with a part that is not looked at.

    Raises:
        Unproved: there is one.
    """
    for key, value in node.args.items():
        if key not in known and value not in (None, False, []):
            refuse(f"{key} in {node.key}")


class SparkAggregates:
    """Reads aggregates and windows."""

    @abstractmethod
    def of(self, node: exp.Expr) -> Expr:
        """One expression."""

    def aggregate(self, node: exp.Expr) -> Call:
        """An aggregate of a group or of a window."""
        where = None
        if isinstance(node, exp.Filter):
            refuse_other_parts(node, "this", "expression")
            where, node = self.of(node.expression.this), node.this
        if isinstance(node, exp.WithinGroup):
            return self._quantile(node, where)
        if isinstance(node, exp.Count):
            return self._count(node, where)
        if type(node) in _SIMPLE:
            refuse_other_parts(node, "this", *_FLAGS.get(type(node), ()))
            inner, distinct = node.this, isinstance(node.this, exp.Distinct)
            if distinct:
                refuse_other_parts(inner, "expressions")
                (inner,) = inner.expressions
            return Call(_SIMPLE[type(node)], (self.of(inner),), distinct, where)
        if isinstance(node, exp.ArrayUniqueAgg):
            refuse_other_parts(node, "this")
            return Call("list", (self.of(node.this),), True, where)
        if isinstance(node, exp.Quantile):
            refuse_other_parts(node, "this", "quantile")
            return Call("quantile_cont", (self.of(node.this), self.of(node.args["quantile"])), False, where)
        if isinstance(node, exp.ArgMax | exp.ArgMin):
            refuse_other_parts(node, "this", "expression")
            name = "arg_max" if isinstance(node, exp.ArgMax) else "arg_min"
            return Call(name, (self.of(node.this), self.of(node.expression)), False, where)
        refuse(f"the aggregate {node.key}")

    def _count(self, node: exp.Count, where: Expr | None) -> Call:
        refuse_other_parts(node, "this", "big_int")
        if isinstance(node.this, exp.Distinct):
            refuse_other_parts(node.this, "expressions")
            if len(node.this.expressions) != 1:
                refuse("a count of several")
            return Call("count", (self.of(node.this.expressions[0]),), True, where)
        counted = self.of(node.this)
        every = counted == Literal(1)
        return Call("count_star" if every else "count", () if every else (counted,), False, where)

    def _quantile(self, node: exp.WithinGroup, where: Expr | None) -> Call:
        refuse_other_parts(node, "this", "expression")
        inner, orders = node.this, node.expression.expressions
        if not isinstance(inner, exp.PercentileCont | exp.PercentileDisc) or len(orders) != 1:
            refuse("WITHIN GROUP of something else")
        name = "quantile_cont" if isinstance(inner, exp.PercentileCont) else "quantile_disc"
        return Call(name, (self.of(orders[0].this), self.of(inner.this)), False, where)

    def orders(self, order: exp.Expr | None) -> tuple[Order, ...]:
        """The parts of an ORDER BY."""
        if order is None:
            return ()
        refuse_other_parts(order, "expressions")
        found = []
        for item in order.expressions:
            refuse_other_parts(item, "this", "desc", "nulls_first")
            word = "DESCENDING" if item.args.get("desc") else "ASCENDING"
            nulls = "FIRST" if item.args.get("nulls_first") else "LAST"
            found.append(Order(self.of(item.this), f"{word} NULLS_{nulls}"))
        return tuple(found)

    def window(self, node: exp.Window) -> Expr:
        """A window function, with its frame where it has one."""
        refuse_other_parts(node, "this", "partition_by", "order", "over", "spec")
        inner = node.this
        by: Sequence[exp.Expr] = node.args.get("partition_by") or ()
        over = (tuple(map(self.of, by)), self.orders(node.args.get("order")))
        spec = node.args.get("spec")
        start, end, ends = PLAIN_FRAME if spec is None else self._frame(spec)
        if type(inner) in RANKS:
            refuse_other_parts(inner)
            if spec is not None:
                refuse("a frame of numbers")
            return Window(RANKS[type(inner)], (), *over, start, end, ends)
        if type(inner) in _LOOKS:
            refuse_other_parts(inner, "this", "offset")
            back = inner.args.get("offset")
            args = (self.of(inner.this), *(() if back is None else (self.of(back),)))
            return Window(_LOOKS[type(inner)], args, *over, start, end, ends)
        if isinstance(inner, exp.Filter) or not isinstance(inner, exp.AggFunc):
            refuse("a window function")
        made = self.aggregate(inner)
        return Window(made.name, made.args, *over, start, end, ends, None, not made.distinct)

    def _frame(self, spec: exp.Expr) -> tuple[str, str, tuple[Expr | None, Expr | None]]:
        refuse_other_parts(spec, "kind", "start", "start_side", "end", "end_side")
        unit = str(spec.args["kind"]).upper()
        words: list[str] = []
        ends: list[Expr | None] = []
        for key in ("start", "end"):
            given, side = spec.args[key], str(spec.args.get(f"{key}_side") or "").upper()
            if isinstance(given, exp.Expr):
                words.append(f"EXPR_{side}_{unit}")
                ends.append(self.of(given))
            else:
                word = str(given).upper()
                words.append(f"CURRENT_ROW_{unit}" if word == "CURRENT ROW" else f"{word}_{side}")
                ends.append(None)
        return words[0], words[1], (ends[0], ends[1])
