"""Aggregates and windows of exact queries in Spark's SQL; see :mod:`dpsql.sql.spark_calls`."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.sql.spark_values import LONG, Value, Walk, cast_to, convert, is_long, number, refused
from dpsql.sql.types import DOUBLE, HUGEINT, decimal

# -- aggregates -------------------------------------------------------------------------------------------------

_STATISTICS: dict[type[exp.Expr], str] = {
    exp.Stddev: "stddev_samp", exp.StddevSamp: "stddev_samp", exp.StddevPop: "stddev_pop",
    exp.Variance: "var_samp", exp.VariancePop: "var_pop", exp.Corr: "corr", exp.CovarPop: "covar_pop",
    exp.CovarSamp: "covar_samp", exp.RegrSlope: "regr_slope", exp.RegrIntercept: "regr_intercept",
    exp.RegrR2: "regr_r2", exp.RegrCount: "regr_count", exp.RegrAvgx: "regr_avgx", exp.RegrAvgy: "regr_avgy",
}  # fmt: skip
_BITS = 21


def aggregate(values: Walk, node: exp.Expr, suffix: str = "", window: bool = False) -> Value:
    """An aggregate; ``suffix`` is its FILTER or its window."""
    inner = node.this
    if type(node) in _STATISTICS:
        parts = [values.of(p) for p in (inner, node.args.get("expression")) if p is not None]
        if not all(p.type == DOUBLE for p in parts):
            raise refused(f"{node.key.upper()} of {parts[0].type.sql}")
        name = _STATISTICS[type(node)]
        made = f"{name}({', '.join(p.sql for p in parts)}){suffix}"
        return Value(made, LONG if name == "regr_count" else DOUBLE)
    distinct = isinstance(inner, exp.Distinct)
    if distinct and len(inner.expressions) != 1:
        raise refused("DISTINCT over several values")
    word = "DISTINCT " if distinct else ""
    place = inner.expressions[0] if distinct else inner
    if isinstance(node, exp.Count):
        if place is None or isinstance(place, exp.Star):
            return Value(f"count(1){suffix}", LONG)
        return Value(f"count({word}{values.of(place).sql}){suffix}", LONG)
    value = values.of(place)
    if isinstance(node, exp.Sum):
        return _sum(value, word, suffix, plain=window or distinct)
    if isinstance(node, exp.Avg):
        if value.type.kind == "DOUBLE":
            return Value(f"avg({word}{cast_to(value, DOUBLE)}){suffix}", DOUBLE)
        total = convert(_sum(value, word, suffix, plain=window or distinct), DOUBLE).sql
        return Value(f"({total} / nullif(CAST(count({word}{value.sql}){suffix} AS DOUBLE), 0D))", DOUBLE)
    if isinstance(node, exp.Min | exp.Max):
        if node.expressions or value.type.kind in ("LIST", "STRUCT"):
            raise refused(f"{node.sql_name()} of {value.type.sql}")
        return Value(f"{node.key}({value.sql}){suffix}", value.type)
    if isinstance(node, exp.Mode):
        return Value(f"mode({value.sql}){suffix}", value.type)
    if isinstance(node, exp.ArgMax | exp.ArgMin):
        return _arg(values, node, value, suffix)
    if isinstance(node, exp.Median):
        return Value(f"percentile({cast_to(value, DOUBLE)}, 0.5D){suffix}", DOUBLE)
    if isinstance(node, exp.PercentileCont | exp.PercentileDisc) and node.args.get("expression") is not None:
        return _quantile(node, value, values.of(node.args["expression"]), suffix)
    raise refused(node.sql_name() if isinstance(node, exp.Func) else node.key.upper())


def _sum(value: Value, word: str, suffix: str, plain: bool) -> Value:
    kind = value.type
    if kind.kind == "DOUBLE":
        return Value(f"sum({word}{cast_to(value, DOUBLE)}){suffix}", DOUBLE)
    if kind.kind == "DECIMAL":
        wide = decimal(38, kind.digits[1])
        return Value(f"sum({word}CAST({value.sql} AS {wide.sql})){suffix}", wide)
    if kind.kind == "BOOLEAN":
        value = Value(f"CAST({value.sql} AS BIGINT)", LONG, 0, 1)
        kind = LONG
    if kind.kind != "INTEGER":
        raise refused(f"SUM of {kind.sql}")
    if plain or not is_long(kind):
        return Value(f"sum({word}{cast_to(value, HUGEINT)}){suffix}", HUGEINT)
    x = number(value).sql
    if value.low is not None and value.high is not None and -(2**_BITS) < value.low <= value.high < 2**_BITS:
        return Value(f"CAST(sum({x}){suffix} AS DECIMAL(38,0))", HUGEINT)
    mask = (1 << _BITS) - 1
    parts = (f"shiftright({x}, {2 * _BITS})", f"shiftright({x}, {_BITS}) & {mask}L", f"{x} & {mask}L")
    sums = [f"CAST(sum({part}){suffix} AS DECIMAL(20,0))" for part in parts]
    made = f"{sums[0]} * {1 << 2 * _BITS}BD + {sums[1]} * {1 << _BITS}BD + {sums[2]}"
    return Value(f"CAST({made} AS DECIMAL(38,0))", HUGEINT)


def _arg(values: Walk, node: exp.Expr, value: Value, suffix: str) -> Value:
    by = values.of(node.args["expression"])
    if suffix or node.args.get("count") is not None:
        raise refused(f"{node.sql_name() if isinstance(node, exp.Func) else node.key} with FILTER")
    name = "max_by" if isinstance(node, exp.ArgMax) else "min_by"
    return Value(f"{name}({value.sql}, {by.sql}) FILTER (WHERE {value.sql} IS NOT NULL)", value.type)


def _quantile(node: exp.Expr, value: Value, at: Value, suffix: str) -> Value:
    if value.type != DOUBLE:
        raise refused(f"a quantile of {value.type.sql}")
    name = "percentile_cont" if isinstance(node, exp.PercentileCont) else "percentile_disc"
    return Value(f"{name}({at.sql}) WITHIN GROUP (ORDER BY {value.sql}){suffix}", DOUBLE)


def _filter(values: Walk, node: exp.Expr) -> Value:
    condition = values.of(node.expression.this)
    if not isinstance(node.this, exp.AggFunc):
        raise refused("FILTER of no aggregate")
    return aggregate(values, node.this, f" FILTER (WHERE {condition.sql})")


def _within_group(values: Walk, node: exp.Expr) -> Value:
    inner, order = node.this, node.expression
    if not isinstance(inner, exp.PercentileDisc | exp.PercentileCont) or len(order.expressions) != 1:
        raise refused("WITHIN GROUP")
    return _quantile(inner, values.of(order.expressions[0].this), values.of(inner.this), "")


_RANKS: dict[type[exp.Expr], str] = {
    exp.RowNumber: "row_number",
    exp.DenseRank: "dense_rank",
    exp.Rank: "rank",
}


def _window(values: Walk, node: exp.Expr) -> Value:
    parts = [values.of(p).sql for p in node.args.get("partition_by") or []]
    order = node.args.get("order")
    sorts = [f"{values.of(o.this).sql}{direction(o)}" for o in order.expressions] if order is not None else []
    over = [f"PARTITION BY {', '.join(parts)}"] if parts else []
    over += [f"ORDER BY {', '.join(sorts)}"] if sorts else []
    spec = node.args.get("spec")
    if spec is not None:
        ends = [
            f"{end.name if isinstance(end, exp.Expr) else end} {spec.args.get(f'{key}_side') or ''}".strip().upper()
            for key in ("start", "end")
            if (end := spec.args.get(key)) is not None
        ]
        if spec.args.get("exclude") or len(ends) != 2:
            raise refused("this frame of a window")
        over.append(f"{str(spec.args['kind']).upper()} BETWEEN {ends[0]} AND {ends[1]}")
    inner, suffix = node.this, f" OVER ({' '.join(over)})"
    if type(inner) in _RANKS:
        if not sorts:
            raise refused("numbers without an order")
        return Value(f"CAST({_RANKS[type(inner)]}(){suffix} AS BIGINT)", LONG)
    if isinstance(inner, exp.Lag | exp.Lead):
        value, offset = values.of(inner.this), inner.args.get("offset")
        steps = values.of(offset).low if offset is not None else 1
        return Value(f"{inner.key}({value.sql}, {steps}){suffix}", value.type)
    return aggregate(values, inner, suffix, window=True)


def direction(item: exp.Expr) -> str:
    """DuckDB puts NULL last in both directions unless told."""
    word = "FIRST" if item.args.get("nulls_first") else "LAST"
    return f"{' DESC' if item.args.get('desc') else ' ASC'} NULLS {word}"


HANDLERS: dict[type[exp.Expr], Callable[[Walk, exp.Expr], Value]] = {
    exp.Filter: _filter, exp.WithinGroup: _within_group, exp.Window: _window,
}  # fmt: skip
