"""Shapes that plans are written in for DuckDB, as Spark had better have them."""

from __future__ import annotations

from sqlglot import exp

from dpsql.sql.dialect import parse_fragment, to_sql


def own_groups(node: exp.Expr) -> exp.Expr:
    """Looks back in one long sort, which plans are written with, as numbers within each unit.

    DuckDB is quick at one long sort; Spark would do it in one task, where every unit can be sorted by itself. That the row
    n places before is of another u means that fewer than n rows of its u come first; that the first row n groups of
    peers before is of another u, that fewer than n such groups do. Several columns are another where one of them is;
    what stands between them in the order is a hash of them.
    """
    if isinstance(node, exp.Paren):
        return own_groups(node.this)
    if isinstance(node, exp.And):
        return exp.And(this=own_groups(node.this), expression=own_groups(node.expression))
    looks = [_look(part) for part in node.flatten()] if isinstance(node, exp.Or) else [_look(node)]
    if not looks or any(look is None for look in looks):
        return node
    (rank, places), *others = {(rank, offset) for rank, offset, _, _ in filter(None, looks)}
    columns = [column for _, _, column, _ in filter(None, looks)]
    orders = {to_sql(order) for _, _, _, order in filter(None, looks)}
    order = next(order for _, _, _, order in filter(None, looks))
    rest = [item for item in order.expressions if item.this not in columns]
    if others or len(orders) > 1 or not rest or len(rest) + len(columns) != len(order.expressions):
        return node
    first = order.expressions[0].this
    if first not in columns:
        return node
    own = exp.Window(
        this=exp.DenseRank() if rank else exp.RowNumber(), partition_by=[column.copy() for column in columns],
        order=exp.Order(expressions=[item.copy() for item in rest]), over="OVER",
    )  # fmt: skip
    return exp.LTE(this=own, expression=exp.Literal.number(places))


def _look(node: exp.Expr) -> tuple[bool, str, exp.Expr, exp.Order] | None:
    """One look back: whether it counts groups of peers, how far it goes, the column, and the order."""
    if not isinstance(node, exp.NullSafeNEQ) or not isinstance(node.this, exp.Window):
        return None
    window, column = node.this, node.expression
    order, spec = window.args.get("order"), window.args.get("spec")
    if window.args.get("partition_by") or order is None or window.this.this != column:
        return None
    if isinstance(window.this, exp.Lag) and spec is None:
        return False, window.this.args["offset"].name, column, order
    if not isinstance(window.this, exp.FirstValue) or spec is None:
        return None
    ends = [(to_sql(spec.args[end]), spec.args.get(f"{end}_side")) for end in ("start", "end")]
    if spec.args.get("kind") != "GROUPS" or ends[0] != ends[1] or ends[0][1] != "PRECEDING":
        return None
    return True, ends[0][0], column, order


def of_distinct_values(node: exp.Select) -> exp.Select:
    """``SELECT PERCENTILE_DISC(p) WITHIN GROUP (ORDER BY v) AS q FROM ...``: the first value that p of the rows reach.

    Spark knows it for doubles only, and would hold all values in one task's memory; sums over the distinct values may
    spill, and take any type.
    """
    asked = _quantile_of(node.expressions[0].unalias()) if len(node.expressions) == 1 else None
    from_ = node.args.get("from_")
    if asked is None or from_ is None:
        return node
    if any(
        node.args.get(key) for key in ("group", "joins", "with_", "qualify", "order", "limit", "distinct")
    ):
        return node
    value, at = map(to_sql, asked)
    where = f" AND ({to_sql(node.args['where'].this)})" if node.args.get("where") is not None else ""
    counted = f"SELECT {value} AS v, COUNT(*) AS c FROM {to_sql(from_.this)} WHERE ({value}) IS NOT NULL{where} GROUP BY 1"
    summed = f"SELECT v, SUM(c) OVER (ORDER BY v) AS upto, SUM(c) OVER () AS n FROM ({counted}) AS counted"
    reached = f"CAST(upto AS DOUBLE) >= CAST({at} AS DOUBLE) * CAST(n AS DOUBLE)"
    made = parse_fragment(
        f"SELECT MIN(v) AS {node.expressions[0].alias_or_name or 'q'} FROM ({summed}) AS summed WHERE {reached}"
    )
    assert isinstance(made, exp.Select)
    return made


def _quantile_of(item: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """The value and the share: as plans have it, and ``QUANTILE_DISC(v, p ORDER BY v)``, as it is in normal form."""
    if isinstance(item, exp.WithinGroup) and isinstance(item.this, exp.PercentileDisc):
        return item.expression.expressions[0].this, item.this.this
    if not isinstance(item, exp.PercentileDisc) or not isinstance(item.expression, exp.Order):
        return None
    (by, *more) = item.expression.expressions
    if more or by.args.get("desc") or by.this != item.this:
        return None
    return item.this, item.expression.this
