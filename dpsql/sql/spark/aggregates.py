"""Aggregates and windows of exact queries in Spark's SQL; see :mod:`dpsql.sql.spark.calls`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sqlglot import exp

from dpsql.sql.expressions.types import DOUBLE, HUGEINT, decimal
from dpsql.sql.parse.dialect import parse_select, to_sql
from dpsql.sql.spark import values
from dpsql.sql.spark.values import LONG, SparkValue, Walk, is_long, refusal, write_cast

_STATISTICS: dict[type[exp.Expr], str] = {
    exp.Stddev: "sqrt(s.xx / (s.n - 1D))", exp.StddevSamp: "sqrt(s.xx / (s.n - 1D))",
    exp.StddevPop: "sqrt(s.xx / s.n)", exp.Variance: "s.xx / (s.n - 1D)", exp.VariancePop: "s.xx / s.n",
    exp.CovarPop: "s.xy / s.n", exp.CovarSamp: "s.xy / (s.n - 1D)",
    # Without spread 0 / 0, or no line, as in DuckDB.
    exp.Corr: "CASE WHEN sqrt(s.xx) * sqrt(s.yy) = 0D THEN double('NaN') ELSE s.xy / (sqrt(s.xx) * sqrt(s.yy)) END",
    exp.RegrSlope: "CASE WHEN s.yy = 0D THEN double('NaN') ELSE s.xy / s.yy END",
    exp.RegrIntercept: "CASE WHEN s.yy = 0D THEN NULL ELSE s.mx - s.xy / s.yy * s.my END",
    exp.RegrR2: "CASE WHEN s.yy = 0D THEN NULL ELSE CASE WHEN s.xx = 0D THEN 1D ELSE s.xy * s.xy / (s.xx * s.yy) END END",
    exp.RegrAvgx: "s.other / s.n", exp.RegrAvgy: "s.sum / s.n", exp.Sum: "s.sum", exp.Avg: "s.sum / s.n",
}  # fmt: skip
"""From what one pass over the values in their order has: how many, sum, means, squares about them."""
_STEP = {
    "n": "s.n + 1D", "sum": "s.sum + r.x", "other": "s.other + r.y", "mx": "s.mx + (r.x - s.mx) / (s.n + 1D)",
    "my": "s.my + (r.y - s.my) / (s.n + 1D)",
    "xx": "s.xx + (r.x - s.mx) * (r.x - (s.mx + (r.x - s.mx) / (s.n + 1D)))",
    "yy": "s.yy + (r.y - s.my) * (r.y - (s.my + (r.y - s.my) / (s.n + 1D)))",
    "xy": "s.xy + (r.x - s.mx) * (r.y - (s.my + (r.y - s.my) / (s.n + 1D)))",
}  # fmt: skip
_BITS = 21


def _in_order(formula: str, parts: list[SparkValue], distinct: bool, suffix: str) -> SparkValue:
    """Aggregates of doubles, added up in the order of the values: Spark adds in the order in which parts of the rows
    arrive, which depends on other units' rows. A group's values are held by one task.
    """
    fields = ", ".join(
        f"'{n}', {write_cast(p, DOUBLE)}" for n, p in zip("xy", [*parts, *parts], strict=False)
    )
    known = " AND ".join(f"{p.sql} IS NOT NULL" for p in parts)
    collected = (
        f"collect_{'set' if distinct else 'list'}(CASE WHEN {known} THEN named_struct({fields}) END){suffix}"
    )
    zero, step = (
        ", ".join(f"'{n}', {v}" for n, v in row) for row in ([(n, "0D") for n in _STEP], _STEP.items())
    )
    finish = f"CASE WHEN s.n >= {2 if '(s.n - 1D)' in formula else 1}D THEN {formula} END"
    passed = f"named_struct({zero}), (s, r) -> named_struct({step}), s -> {finish}"
    return SparkValue(f"aggregate(sort_array({collected}), {passed})", DOUBLE)


def translate_aggregate(walk: Walk, node: exp.Expr, suffix: str = "", window: bool = False) -> SparkValue:
    """Return an aggregate; ``suffix`` is its FILTER or its window."""
    place, second = (_unordered(node.args.get(key)) for key in ("this", "expression"))
    distinct = isinstance(place, exp.Distinct)
    if distinct:
        if len(place.expressions) != 1:
            raise refusal("DISTINCT over several values")
        place = place.expressions[0]
    word = "DISTINCT " if distinct else ""
    if isinstance(node, exp.RegrCount):
        one, two = walk.of(place).sql, walk.of(second).sql
        return SparkValue(f"count(CASE WHEN {one} IS NOT NULL THEN {two} END){suffix}", LONG)
    if isinstance(node, exp.Count):
        counted = "1" if place is None or isinstance(place, exp.Star) else word + walk.of(place).sql
        return SparkValue(f"count({counted}){suffix}", LONG)
    value = walk.of(place)
    floating = value.type.kind == "DOUBLE"
    if type(node) in _STATISTICS and (floating or not isinstance(node, exp.Sum | exp.Avg)):
        if window or not floating:
            raise refusal(f"{node.key.upper()} of {value.type.sql} here")
        parts = [value] if second is None else [value, walk.of(second)]
        return _in_order(_STATISTICS[type(node)], parts, distinct, suffix)
    if isinstance(node, exp.Sum | exp.Avg):
        total = _sum(value, word, suffix, plain=window or distinct)
        return (
            total
            if isinstance(node, exp.Sum)
            else _average(value, total, f"count({word}{value.sql}){suffix}")
        )
    if isinstance(node, exp.Min | exp.Max):
        if node.expressions or value.type.kind in ("LIST", "STRUCT"):
            raise refusal(f"{node.sql_name()} of {value.type.sql}")
        return SparkValue(f"{node.key}({value.sql}){suffix}", value.type)
    if isinstance(node, exp.Mode):
        return SparkValue(f"mode({value.sql}, TRUE){suffix}", value.type)  # the least of equals
    if isinstance(node, exp.ArgMax | exp.ArgMin):
        return _arg(walk, node, value, suffix)
    if isinstance(node, exp.Median):
        return SparkValue(f"percentile({write_cast(value, DOUBLE)}, 0.5D){suffix}", DOUBLE)
    if isinstance(node, exp.PercentileCont | exp.PercentileDisc) and second is not None:
        return _quantile(node, value, walk.of(second), suffix)
    raise refusal(node.sql_name() if isinstance(node, exp.Func) else node.key.upper())


def _unordered(node: Any) -> Any:
    """Return ``x`` for ``x ORDER BY x`` inside an aggregate: the order of values is what is taken here anyway."""
    return node.this if isinstance(node, exp.Order) else node


def _average(value: SparkValue, total: SparkValue, count: str) -> SparkValue:
    counted = f"CAST({count} AS DOUBLE)"
    if value.type.kind == "DECIMAL" and (places := value.type.digits[1]):
        # One division of two whole numbers, as in DuckDB: the sum's digits without their point.
        whole = f"CAST(replace(CAST({total.sql} AS STRING), '.', '') AS DOUBLE)"
        return SparkValue(f"({whole} / nullif({counted} * 1.0E{places}D, 0D))", DOUBLE)
    return SparkValue(f"({values.translate_cast(total, DOUBLE).sql} / nullif({counted}, 0D))", DOUBLE)


def _sum(value: SparkValue, word: str, suffix: str, plain: bool) -> SparkValue:
    kind = value.type
    if kind.kind == "DECIMAL":
        wide = decimal(38, kind.digits[1])
        return SparkValue(f"sum({word}CAST({value.sql} AS {wide.sql})){suffix}", wide)
    if kind.kind == "BOOLEAN":
        value, kind = SparkValue(f"CAST({value.sql} AS BIGINT)", LONG, 0, 1), LONG
    if kind.kind != "INTEGER":
        raise refusal(f"SUM of {kind.sql}")
    if plain or not is_long(kind):
        return SparkValue(f"sum({word}{write_cast(value, HUGEINT)}){suffix}", HUGEINT)
    x = values.widen_number(value).sql
    if value.low is not None and value.high is not None and -(2**_BITS) < value.low <= value.high < 2**_BITS:
        return SparkValue(f"CAST(sum({x}){suffix} AS DECIMAL(38,0))", HUGEINT)
    mask = (1 << _BITS) - 1
    parts = (f"shiftright({x}, {2 * _BITS})", f"shiftright({x}, {_BITS}) & {mask}L", f"{x} & {mask}L")
    sums = [f"CAST(sum({part}){suffix} AS DECIMAL(20,0))" for part in parts]
    made = f"{sums[0]} * {1 << 2 * _BITS}BD + {sums[1]} * {1 << _BITS}BD + {sums[2]}"
    return SparkValue(f"CAST({made} AS DECIMAL(38,0))", HUGEINT)


def _arg(walk: Walk, node: exp.ArgMax | exp.ArgMin, value: SparkValue, suffix: str) -> SparkValue:
    place, order = node.args["expression"], None
    if isinstance(place, exp.Order):
        place, order = place.this, place.expressions
    by = walk.of(place)
    if suffix or node.args.get("count") is not None:
        raise refusal(f"{node.sql_name()} with FILTER")
    name = "max_by" if isinstance(node, exp.ArgMax) else "min_by"
    both = f"{value.sql} IS NOT NULL AND {by.sql} IS NOT NULL"
    if order is None:
        pair = f"struct({by.sql}, {value.sql})"  # of equals, one that does not depend on the order of rows
        return SparkValue(f"{name}({value.sql}, {pair}) FILTER (WHERE {both})", value.type)
    if len(order) != 1 or order[0].this != node.this or order[0].args.get("desc"):
        raise refusal("this order of equals")
    # the least of equals, beside the greatest: neither max_by nor min_by of a pair; a group's values are held by one task
    null, missing = (f"CAST(NULL AS {values.spark_type(kind)})" for kind in (by.type, value.type))
    pairs = f"collect_list(CASE WHEN {both} THEN named_struct('b', {by.sql}, 'v', {value.sql}) END)"
    better = f"s.b IS NULL OR r.b {'>' if name == 'max_by' else '<'} s.b OR (r.b = s.b AND r.v < s.v)"
    step = f"(s, r) -> CASE WHEN {better} THEN r ELSE s END, s -> s.v"
    return SparkValue(f"aggregate({pairs}, named_struct('b', {null}, 'v', {missing}), {step})", value.type)


def _quantile(node: exp.Expr, value: SparkValue, at: SparkValue, suffix: str) -> SparkValue:
    if value.type != DOUBLE:
        raise refusal(f"a quantile of {value.type.sql}")
    name = "percentile_cont" if isinstance(node, exp.PercentileCont) else "percentile_disc"
    return SparkValue(f"{name}({at.sql}) WITHIN GROUP (ORDER BY {value.sql}){suffix}", DOUBLE)


def _filter(walk: Walk, node: exp.Expr) -> SparkValue:
    condition = walk.of(node.expression.this)
    if not isinstance(node.this, exp.AggFunc):
        raise refusal("FILTER of no aggregate")
    return translate_aggregate(walk, node.this, f" FILTER (WHERE {condition.sql})")


def _within_group(walk: Walk, node: exp.Expr) -> SparkValue:
    inner, order = node.this, node.expression
    if not isinstance(inner, exp.PercentileDisc | exp.PercentileCont) or len(order.expressions) != 1:
        raise refusal("WITHIN GROUP")
    return _quantile(inner, walk.of(order.expressions[0].this), walk.of(inner.this), "")


_RANKS = {exp.RowNumber: "row_number", exp.DenseRank: "dense_rank", exp.Rank: "rank"}


def _window(walk: Walk, node: exp.Expr) -> SparkValue:
    parts = [walk.of(part).sql for part in node.args.get("partition_by") or []]
    order, spec, inner = node.args.get("order"), node.args.get("spec"), node.this
    over = [f"PARTITION BY {', '.join(parts)}"] if parts else []
    if order is not None:
        over.append(
            f"ORDER BY {', '.join(walk.of(o.this).sql + write_direction(o) for o in order.expressions)}"
        )
    if spec is not None:
        if spec.args.get("exclude") or spec.args.get("end") is None:
            raise refusal("this frame of a window")
        over.append(spec.sql(dialect="spark"))
    suffix = f" OVER ({' '.join(over)})"
    if isinstance(inner, exp.Filter):
        inner = _of_those(inner)
    if type(inner) in _RANKS:
        if order is None:
            raise refusal("numbers without an order")
        return SparkValue(f"CAST({_RANKS[type(inner)]}(){suffix} AS BIGINT)", LONG)
    if isinstance(inner, exp.Lag | exp.Lead):
        value, offset = walk.of(inner.this), inner.args.get("offset")
        steps = walk.of(offset).low if offset is not None else 1
        return SparkValue(f"{inner.key}({value.sql}, {steps}){suffix}", value.type)
    if isinstance(inner, exp.FirstValue):
        value = walk.of(inner.this)
        return SparkValue(f"first_value({value.sql}){suffix}", value.type)
    return translate_aggregate(walk, inner, suffix, window=True)


def _of_those(node: exp.Filter) -> exp.Expr:
    """Return an aggregate over the rows that meet a condition: NULL for the others, as Spark has no FILTER in a window."""
    made: exp.Expr = node.this.copy()
    given = made.this if isinstance(made.this, exp.Expr) and not isinstance(made.this, exp.Star) else None
    if isinstance(given, exp.Distinct | exp.Order) or (given is None and not isinstance(made, exp.Count)):
        raise refusal("this FILTER in a window")
    one = exp.Literal.number(1) if given is None else given
    made.set("this", exp.Case(ifs=[exp.If(this=node.expression.this.copy(), true=one)]))
    return made


def write_direction(item: exp.Expr) -> str:
    """Write the direction of an order with DuckDB's place of NULL: last unless told."""
    word = "FIRST" if item.args.get("nulls_first") else "LAST"
    return f"{' DESC' if item.args.get('desc') else ' ASC'} NULLS {word}"


AGGREGATE_NODES: dict[type[exp.Expr], Callable[[Walk, exp.Expr], SparkValue]] = {
    exp.Filter: _filter, exp.WithinGroup: _within_group, exp.Window: _window,
}  # fmt: skip


# -- shapes that Spark had better have otherwise ----------------------------------------------------------------


def number_within_units(node: exp.Expr) -> exp.Expr:
    """Look back in one long sort, which plans are written with, as numbers within each unit.

    DuckDB is quick at one long sort; Spark would do it in one task, where every unit can be sorted by itself. That the row
    n places before is of another u means that fewer than n rows of its u come first; that the first row n groups of
    peers before is of another u, that fewer than n such groups do. Several columns are another where one of them is;
    what stands between them in the order is a hash of them.
    """
    node = node.unnest()
    if isinstance(node, exp.And):
        return exp.And(this=number_within_units(node.this), expression=number_within_units(node.expression))
    looks = [_look(part) for part in (node.flatten() if isinstance(node, exp.Or) else [node])]
    columns = [look.column for look in looks if look is not None]
    first = looks[0]
    if first is None or any(look is None or look[:3] != first[:3] for look in looks):
        return node
    sorts = first.order.expressions
    rest = [item for item in sorts if item.this not in columns]
    if not rest or len(rest) + len(columns) != len(sorts) or sorts[0].this not in columns:
        return node
    own = exp.Window(
        this=exp.DenseRank() if first.ranks else exp.RowNumber(), partition_by=[column.copy() for column in columns],
        order=exp.Order(expressions=[item.copy() for item in rest]), over="OVER",
    )  # fmt: skip
    return exp.LTE(this=own, expression=exp.Literal.number(first.places))


class _Look(NamedTuple):
    """A look back: whether it counts groups of peers, how far it goes, in which order, and for which column."""

    ranks: bool
    places: str
    order: exp.Order
    column: exp.Expr


def _look(node: exp.Expr) -> _Look | None:
    if not isinstance(node, exp.NullSafeNEQ) or not isinstance(node.this, exp.Window):
        return None
    window, column = node.this, node.expression
    order, spec = window.args.get("order"), window.args.get("spec")
    if window.args.get("partition_by") or order is None or window.this.this != column:
        return None
    if isinstance(window.this, exp.Lag) and spec is None:
        return _Look(False, window.this.args["offset"].name, order, column)
    if not isinstance(window.this, exp.FirstValue) or spec is None:
        return None
    start, end = to_sql(spec.args["start"]), to_sql(spec.args["end"])
    same = spec.sql() == f"GROUPS BETWEEN {start} PRECEDING AND {start} PRECEDING"
    return _Look(True, start, order, column) if same and start == end else None


def rewrite_quantile(node: exp.Select) -> exp.Select:
    """Rewrite ``SELECT PERCENTILE_DISC(p) WITHIN GROUP (ORDER BY v) AS q FROM ...``: the first value that p of the rows reach.

    Spark knows it for doubles only, and would hold all values in one task's memory; sums over the distinct values may
    spill, and take any type.
    """
    asked = _quantile_of(node.expressions[0].unalias()) if len(node.expressions) == 1 else None
    from_ = node.args.get("from_")
    others = ("group", "joins", "with_", "qualify", "order", "limit", "distinct")
    if asked is None or from_ is None or any(node.args.get(key) for key in others):
        return node
    value, at = map(to_sql, asked)
    where = f" AND ({to_sql(node.args['where'].this)})" if node.args.get("where") is not None else ""
    counted = f"SELECT {value} AS v, COUNT(*) AS c FROM {to_sql(from_.this)} WHERE ({value}) IS NOT NULL{where} GROUP BY 1"
    summed = f"SELECT v, SUM(c) OVER (ORDER BY v) AS upto, SUM(c) OVER () AS n FROM ({counted}) AS counted"
    reached = f"CAST(upto AS DOUBLE) >= CAST({at} AS DOUBLE) * CAST(n AS DOUBLE)"
    name = node.expressions[0].alias_or_name or "q"
    return parse_select(f"SELECT MIN(v) AS {name} FROM ({summed}) AS summed WHERE {reached}")


def _quantile_of(item: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """Return the value and the share: as plans have it, and ``QUANTILE_DISC(v, p ORDER BY v)``, as it is in normal form."""
    if isinstance(item, exp.WithinGroup) and isinstance(item.this, exp.PercentileDisc):
        return item.expression.expressions[0].this, item.this.this
    if not isinstance(item, exp.PercentileDisc) or not isinstance(item.expression, exp.Order):
        return None
    (by, *more) = item.expression.expressions
    if more or by.args.get("desc") or by.this != item.this:
        return None
    return item.this, item.expression.this
