"""Operators, aggregates and windows of exact queries in Spark's SQL; see :mod:`dpsql.spark.spark_values`.

They are apart from the clauses of :mod:`dpsql.spark.spark_engine`: together they would be a thousand lines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from sqlglot import exp

from dpsql.binding.values.operators import decimal_result
from dpsql.binding.values.sql_types import BOOLEAN, DOUBLE, FLOAT, HUGEINT, NULL, TEXT, Type, decimal
from dpsql.language.dialect import NAME_OF_CLASS
from dpsql.spark import spark_values
from dpsql.spark.spark_values import (
    HASH,
    LONG,
    SparkValue,
    Walk,
    find_common_type,
    is_long,
    refusal,
    write_cast,
)


def translate(walk: Walk, node: exp.Expr) -> SparkValue:
    """Translate an expression to Spark; BindError if it has no equivalent."""
    for table in (_NODES, spark_values.CALL_NODES):
        if type(node) in table:
            return table[type(node)](walk, node)
    if type(node) in _OPERATORS:
        return _OPERATORS[type(node)](walk.of(node.this), walk.of(node.args["expression"]))
    if isinstance(node, exp.AggFunc):
        return _aggregate(walk, node)
    return spark_values.translate_call(walk, node)


# -- queries ----------------------------------------------------------------------------------------------------


def _subquery(walk: Walk, node: exp.Expr) -> SparkValue:
    sql, columns = walk.nested(node)
    if len(columns) != 1:
        raise refusal("a scalar subquery of several columns")
    return SparkValue(f"({sql})", columns[0][1])


# -- logic ------------------------------------------------------------------------------------------------------


def _connect(word: str, left: SparkValue, right: SparkValue) -> SparkValue:
    return SparkValue(f"({left.sql} {word} {right.sql})", BOOLEAN)


def compare(word: str, left: SparkValue, right: SparkValue) -> SparkValue:
    """Return a comparison in the common type, never in one of Spark's choice."""
    kind = find_common_type((left.type, right.type))
    one, two = write_cast(left, kind), write_cast(right, kind)
    return SparkValue(f"(NOT {one} <=> {two})" if word == "<!>" else f"({one} {word} {two})", BOOLEAN)


def _is(walk: Walk, node: exp.Expr) -> SparkValue:
    right = node.expression
    word = "NULL" if isinstance(right, exp.Null) else "TRUE" if right.this else "FALSE"
    return SparkValue(f"({walk.of(node.this).sql} IS {word})", BOOLEAN)


def _between(walk: Walk, node: exp.Expr) -> SparkValue:
    value = walk.of(node.this)
    low, high = (
        compare(">=", value, walk.of(node.args["low"])),
        compare("<=", value, walk.of(node.args["high"])),
    )
    return _connect("AND", low, high)


def _in(walk: Walk, node: exp.Expr) -> SparkValue:
    query = node.args.get("query")
    if query is None:
        value, listed = walk.of(node.this), [walk.of(item) for item in node.expressions]
        kind = find_common_type([value.type, *(v.type for v in listed)])
        inside = ", ".join(write_cast(v, kind) for v in listed)
        return SparkValue(f"({write_cast(value, kind)} IN ({inside}))", BOOLEAN)
    select = query.this if isinstance(query, exp.Subquery) else query
    if isinstance(node.this, exp.Tuple):  # a row of values is one column in DuckDB and several in Spark
        select = select.copy()
        row = select.expressions[0].unalias() if len(select.expressions) == 1 else None
        if isinstance(row, exp.Tuple):
            named = [exp.alias_(item.copy(), f"o{i}") for i, item in enumerate(row.expressions)]
            select.set("expressions", named)
        left = ", ".join(walk.of(item).sql for item in node.this.expressions)
        return SparkValue(f"(({left}) IN ({walk.nested(select)[0]}))", BOOLEAN)
    value, (sql, columns) = walk.of(node.this), walk.nested(select)
    names = {
        spark_values.spark_type(kind) for kind in (value.type, find_common_type((value.type, columns[0][1])))
    }
    if len(columns) != 1 or len(names) != 1:
        raise refusal("IN over a query of another type")
    return SparkValue(f"({value.sql} IN ({sql}))", BOOLEAN)


def _case(walk: Walk, node: exp.Expr) -> SparkValue:
    if node.this is not None:
        raise refusal("CASE of a value")
    branches, default = node.args["ifs"], node.args.get("default")
    tests = [f"WHEN {walk.of(branch.this).sql} THEN " for branch in branches]
    places = [branch.args["true"] for branch in branches]
    if default is not None:
        tests, places = [*tests, "ELSE "], [*places, default]
    results = [walk.of(place) for place in places]
    kind = find_common_type(r.type for r in results)
    shown = (test + write_cast(r, kind) for test, r in zip(tests, results, strict=True))
    return SparkValue(f"(CASE {' '.join(shown)} END)", kind)


def _choose(name: str, walk: Walk, node: exp.Expr) -> SparkValue:
    """Translate COALESCE, LEAST, GREATEST: both engines skip NULL, and NaN is the greatest."""
    parts = [walk.of(place) for place in (node.this, *node.expressions) if place is not None]
    kind = find_common_type(p.type for p in parts)
    if kind.kind in ("LIST", "STRUCT"):
        raise refusal(f"{name} of {kind.sql}")
    listed = ", ".join(write_cast(p, kind) for p in parts)
    sql = f"{name}({listed})" if len(parts) > 1 else listed
    lows, highs = [p.low for p in parts if p.low is not None], [p.high for p in parts if p.high is not None]
    low = high = None
    if name == "greatest":
        low, high = max(lows, default=None), max(highs) if len(highs) == len(parts) else None
    elif name == "least":
        low, high = min(lows) if len(lows) == len(parts) else None, min(highs, default=None)
    known = (
        low is not None
        and low >= spark_values.MIN_LONG
        and high is not None
        and high <= spark_values.MAX_LONG
    )
    if kind == HUGEINT and known:  # 64 bits are several times faster than 38 digits
        return SparkValue(f"CAST({sql} AS BIGINT)", LONG, low, high)
    return SparkValue(sql, kind, low, high)


def _nullif(left: SparkValue, right: SparkValue) -> SparkValue:
    return SparkValue(f"(CASE WHEN {compare('=', left, right).sql} THEN NULL ELSE {left.sql} END)", left.type)


# -- arithmetic -------------------------------------------------------------------------------------------------

_TRYING: dict[type[exp.Expr], str] = {exp.Add: "try_add", exp.Sub: "try_subtract", exp.Mul: "try_multiply"}


def _arithmetic(word: str, walk: Walk, node: exp.Expr, trying: bool = False) -> SparkValue:
    left, right = walk.of(node.this), walk.of(node.args["expression"])
    if {left.type.kind, right.type.kind} & {"DATE", "TIMESTAMP", "INTERVAL"}:
        return spark_values.translate_date_arithmetic(word, left, right)
    kind = find_common_type((left.type, right.type))
    if not kind.numeric:
        raise refusal(f"{left.type.sql} {word} {right.type.sql}")
    if kind.kind == "DOUBLE":
        return SparkValue(f"({write_cast(left, kind)} {word} {write_cast(right, kind)})", kind)
    if kind.kind == "DECIMAL":
        wanted = decimal_result(node, left.type, right.type)
        if wanted is None:
            raise refusal("a decimal of more than 38 places")
        one, two = (
            v.sql if v.type.kind == "DECIMAL" else spark_values.widen_number(v).sql for v in (left, right)
        )
        return SparkValue(f"try_cast({_TRYING[type(node)]}({one}, {two}) AS {wanted.sql})", wanted)
    wide = LONG if is_long(left.type) and is_long(right.type) else HUGEINT
    one, two = (write_cast(spark_values.widen_number(v), wide) for v in (left, right))
    made = f"{_TRYING[type(node)]}({one}, {two})" if trying else f"({one} {word} {two})"
    return SparkValue(f"try_cast({made} AS DECIMAL(38,0))" if trying and wide == HUGEINT else made, wide)


def _divide(left: SparkValue, right: SparkValue) -> SparkValue:
    kind = FLOAT if left.type == right.type == FLOAT else DOUBLE
    made = spark_values.write_quotient(write_cast(left, DOUBLE), write_cast(right, DOUBLE))
    return SparkValue(write_cast(SparkValue(made, DOUBLE), kind), kind)


def _divide_whole(left: SparkValue, right: SparkValue) -> SparkValue:
    """Translate ``//``: toward zero. Between floats and decimals it is plain division, as in DuckDB."""
    divisor = right.constant
    if left.type == HASH and divisor is not None and divisor > 0:
        # The equal part of 64 bits that contains it: any partition is valid.
        parts = (2**64 - 1) // divisor + 1
        return SparkValue(f"pmod({left.sql}, {parts}L)", LONG, 0, parts - 1)
    if find_common_type((left.type, right.type)).kind != "INTEGER":
        return _divide(left, right)
    two = spark_values.widen_number(right).sql
    if is_long(left.type) and is_long(right.type):
        one = spark_values.widen_number(left).sql
        if divisor is not None and divisor > 0:
            return SparkValue(f"({one} div {two})", LONG)
        return SparkValue(
            f"(CASE WHEN {two} = -1L THEN try_subtract(0L, {one}) ELSE {one} div {two} END)", LONG
        )
    wide = write_cast(left, HUGEINT)
    if divisor == 2:  # Spark's div returns 64 bits; half of an even number is exact in decimals
        return SparkValue(f"CAST(({wide} - {wide} % 2BD) * 0.5BD AS DECIMAL(38,0))", HUGEINT)
    if not is_long(right.type):
        raise refusal("// between HUGEINT", "cast to BIGINT first.")
    return SparkValue(spark_values.write_long_division(wide, f"CAST({two} AS DECIMAL(19,0))"), HUGEINT)


def _remainder(left: SparkValue, right: SparkValue) -> SparkValue:
    if left.type == HASH:
        return SparkValue(f"pmod({left.sql}, {spark_values.widen_number(right).sql})", LONG)
    kind = find_common_type((left.type, right.type))
    if kind.kind == "INTEGER":
        kind = LONG if is_long(left.type) and is_long(right.type) else HUGEINT
        return SparkValue(f"({write_cast(left, kind)} % {write_cast(right, kind)})", kind)
    if kind.kind == "DOUBLE":
        a, b = write_cast(left, DOUBLE), write_cast(right, DOUBLE)
        made = (
            f"(CASE WHEN {b} = 0D AND {a} IS NOT NULL THEN double('NaN') WHEN {b} <> 0D THEN {a} % {b} END)"
        )
        return SparkValue(write_cast(SparkValue(made, DOUBLE), kind), kind)
    divisor = f"nullif({write_cast(right, kind)}, CAST(0L AS {kind.sql}))"  # NULL for zero, as DuckDB's remainder of decimals
    return SparkValue(f"try_cast({write_cast(left, kind)} % {divisor} AS {kind.sql})", kind)


def _negate(walk: Walk, node: exp.Expr, trying: bool = False) -> SparkValue:
    if isinstance(node.this, exp.Literal) and node.this.name == str(2**63):
        least = spark_values.MIN_LONG
        return SparkValue("CAST(-9223372036854775808BD AS BIGINT)", LONG, least, least)
    value = walk.of(node.this)
    if value.type.kind != "INTEGER":
        if not value.type.numeric:
            raise refusal(f"- of {value.type.sql}")
        negative = f"(-{value.sql})" if value.type.kind == "DOUBLE" else spark_values.write_negative(value)
        return SparkValue(negative, value.type)
    value = spark_values.widen_number(value)
    zero = write_cast(SparkValue("0L", LONG), value.type)
    made = f"try_subtract({zero}, {value.sql})" if trying else f"(-{value.sql})"
    if value.type == HUGEINT:
        made = spark_values.write_negative(value)
    low, high = (None if end is None else -end for end in (value.high, value.low))
    return SparkValue(made, value.type, low, high)


def _combine_bits(word: str, left: SparkValue, right: SparkValue) -> SparkValue:
    if word == "^" and HASH in (left.type, right.type):
        return SparkValue(f"({spark_values.write_bits(left)} ^ {spark_values.write_bits(right)})", HASH)
    if not (is_long(left.type) and is_long(right.type)):
        raise refusal(f"the bits of {left.type.sql}")
    return SparkValue(
        f"({spark_values.widen_number(left).sql} {word} {spark_values.widen_number(right).sql})", LONG
    )


def _shift(left: SparkValue, right: SparkValue) -> SparkValue:
    if left.type != HASH or right.constant is None or not 0 < right.constant < 64:
        raise refusal("a shift of bits")
    return SparkValue(f"shiftrightunsigned({left.sql}, {right.low})", LONG)


def _try(walk: Walk, node: exp.Expr) -> SparkValue:
    """Translate TRY around one operation to its NULL-returning form; total operations need none."""
    inner = node.this.unnest()
    if type(inner) in (*_TRYING, exp.Neg):
        return _NODES[type(inner)](walk, inner, trying=True)
    if isinstance(inner, exp.Func | exp.Column | exp.Cast | exp.TryCast | exp.Binary | exp.Abs):
        return walk.of(inner)
    raise refusal(f"TRY around {inner.key.upper()}")


def _cast(walk: Walk, node: exp.Expr) -> SparkValue:
    kind, inner = Type.parse(node.args["to"].sql(dialect="duckdb")), node.this.unnest()
    if isinstance(inner, exp.Literal) and inner.is_string and kind != TEXT:
        return spark_values.translate_constant(inner.name, kind)
    if isinstance(inner, exp.Array) and kind.element is not None:  # the binder wrote its items in one type
        items = [write_cast(walk.of(item), kind.element) for item in inner.expressions]
        return SparkValue(f"array({', '.join(items)})", kind)
    return spark_values.translate_cast(walk.of(inner), kind)


# -- aggregates and windows --------------------------------------------------------------------------------------

_STATISTICS = {kind: row.spark for kind, row in NAME_OF_CLASS.items() if row.spark}
"""Aggregates from one pass over the values in their order: number, sum, means, squares about them."""
_STEP = {
    "n": "s.n + 1D",
    "sum": "s.sum + r.x",
    "other": "s.other + r.y",
    "mx": "s.mx + (r.x - s.mx) / (s.n + 1D)",
    "my": "s.my + (r.y - s.my) / (s.n + 1D)",
    "xx": "s.xx + (r.x - s.mx) * (r.x - (s.mx + (r.x - s.mx) / (s.n + 1D)))",
    "yy": "s.yy + (r.y - s.my) * (r.y - (s.my + (r.y - s.my) / (s.n + 1D)))",
    "xy": "s.xy + (r.x - s.mx) * (r.y - (s.my + (r.y - s.my) / (s.n + 1D)))",
}
_BITS = 21


def _in_order(formula: str, parts: list[SparkValue], distinct: bool, suffix: str) -> SparkValue:
    """Add doubles in the order of values, one task a group: Spark's order of partitions depends on other units' rows."""
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


def _aggregate(walk: Walk, node: exp.Expr, suffix: str = "", window: bool = False) -> SparkValue:
    """Translate an aggregate; ``suffix`` is its FILTER or its window."""
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
        return SparkValue(f"mode({value.sql}, TRUE){suffix}", value.type)  # the least of ties
    if isinstance(node, exp.ArgMax | exp.ArgMin):
        return _arg(walk, node, value, suffix)
    if isinstance(node, exp.Median):
        return SparkValue(f"percentile({write_cast(value, DOUBLE)}, 0.5D){suffix}", DOUBLE)
    if isinstance(node, exp.PercentileCont | exp.PercentileDisc) and second is not None:
        return _quantile(node, value, walk.of(second), suffix)
    raise refusal(node.sql_name() if isinstance(node, exp.Func) else node.key.upper())


def _unordered(node: object) -> Any:
    """Return ``x`` for ``x ORDER BY x`` inside an aggregate, which uses the order of values anyway."""
    return node.this if isinstance(node, exp.Order) else node


def _average(value: SparkValue, total: SparkValue, count: str) -> SparkValue:
    counted = f"CAST({count} AS DOUBLE)"
    if value.type.kind == "DECIMAL" and (places := value.type.digits[1]):
        # One division of two integers, as in DuckDB: the sum's digits without their point.
        whole = f"CAST(replace(CAST({total.sql} AS STRING), '.', '') AS DOUBLE)"
        return SparkValue(f"({whole} / nullif({counted} * 1.0E{places}D, 0D))", DOUBLE)
    return SparkValue(f"({spark_values.translate_cast(total, DOUBLE).sql} / nullif({counted}, 0D))", DOUBLE)


def _sum(value: SparkValue, word: str, suffix: str, plain: bool) -> SparkValue:
    kind = value.type
    if kind.kind == "DECIMAL":
        wide = decimal(38, kind.digits[1])
        return SparkValue(f"sum({word}CAST({value.sql} AS {wide.sql})){suffix}", wide)
    if kind.kind == "BOOLEAN":
        value, kind = (
            SparkValue(f"(CASE WHEN {value.sql} THEN 1L WHEN NOT {value.sql} THEN 0L END)", LONG, 0, 1),
            LONG,
        )
    if kind.kind != "INTEGER":
        raise refusal(f"SUM of {kind.sql}")
    if plain or not is_long(kind):
        # the cast shows the second lock the type of the sum
        return SparkValue(f"sum({word}CAST({write_cast(value, HUGEINT)} AS DECIMAL(38,0))){suffix}", HUGEINT)
    x = spark_values.widen_number(value).sql
    if value.low is not None and value.high is not None and -(2**_BITS) < value.low <= value.high < 2**_BITS:
        return SparkValue(f"CAST(sum({x}){suffix} AS DECIMAL(38,0))", HUGEINT)
    x, mask = f"CAST({x} AS BIGINT)", (1 << _BITS) - 1
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
        pair = f"struct({by.sql}, {value.sql})"  # of ties, one that does not depend on the order of rows
        return SparkValue(f"{name}({value.sql}, {pair}) FILTER (WHERE {both})", value.type)
    if len(order) != 1 or order[0].this != node.this or order[0].args.get("desc"):
        raise refusal("this order of equals")
    # the least of ties with the greatest key: neither max_by nor min_by of a pair; one task keeps a group's values
    null, missing = (f"CAST(NULL AS {spark_values.spark_type(kind)})" for kind in (by.type, value.type))
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
    return _aggregate(walk, node.this, f" FILTER (WHERE {condition.sql})")


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
    return _aggregate(walk, inner, suffix, window=True)


def _of_those(node: exp.Filter) -> exp.Expr:
    """Return an aggregate over rows that satisfy a condition: NULL for the others, as Spark has no FILTER in a window."""
    made: exp.Expr = node.this.copy()
    given = made.this if isinstance(made.this, exp.Expr) and not isinstance(made.this, exp.Star) else None
    if isinstance(given, exp.Distinct | exp.Order) or (given is None and not isinstance(made, exp.Count)):
        raise refusal("this FILTER in a window")
    one = exp.Literal.number(1) if given is None else given
    made.set("this", exp.Case(ifs=[exp.If(this=node.expression.this.copy(), true=one)]))
    return made


def write_direction(item: exp.Expr) -> str:
    """Return the direction of an order with DuckDB's position of NULL: last by default."""
    word = "FIRST" if item.args.get("nulls_first") else "LAST"
    return f"{' DESC' if item.args.get('desc') else ' ASC'} NULLS {word}"


_NODES: dict[type[exp.Expr], Callable[..., SparkValue]] = {
    exp.Literal: lambda _, node: spark_values.translate_literal(node),
    exp.Boolean: lambda _, node: SparkValue("TRUE" if node.this else "FALSE", BOOLEAN),
    exp.Null: lambda _, node: SparkValue("NULL", NULL), exp.Paren: lambda walk, node: walk.of(node.this),
    exp.Column: lambda walk, node: walk.column(node), exp.Subquery: _subquery,
    exp.Exists: lambda walk, node: SparkValue(f"EXISTS ({walk.nested(node.this)[0]})", BOOLEAN),
    exp.Not: lambda walk, node: SparkValue(f"(NOT {walk.of(node.this).sql})", BOOLEAN),
    exp.Is: _is, exp.In: _in, exp.Between: _between, exp.Case: _case, exp.Coalesce: partial(_choose, "coalesce"),
    exp.Least: partial(_choose, "least"), exp.Greatest: partial(_choose, "greatest"),
    exp.Add: partial(_arithmetic, "+"), exp.Sub: partial(_arithmetic, "-"), exp.Mul: partial(_arithmetic, "*"),
    exp.Neg: _negate, exp.Try: _try, exp.Cast: _cast, exp.TryCast: _cast,
    exp.Filter: _filter, exp.Window: _window,
}  # fmt: skip
_OPERATORS: dict[type[exp.Expr], Callable[[SparkValue, SparkValue], SparkValue]] = {
    exp.And: partial(_connect, "AND"), exp.Or: partial(_connect, "OR"),
    exp.EQ: partial(compare, "="), exp.NEQ: partial(compare, "<>"), exp.LT: partial(compare, "<"),
    exp.LTE: partial(compare, "<="), exp.GT: partial(compare, ">"), exp.GTE: partial(compare, ">="),
    exp.NullSafeEQ: partial(compare, "<=>"), exp.NullSafeNEQ: partial(compare, "<!>"), exp.Nullif: _nullif,
    exp.Div: _divide, exp.IntDiv: _divide_whole, exp.Mod: _remainder, exp.BitwiseXor: partial(_combine_bits, "^"),
    exp.BitwiseAnd: partial(_combine_bits, "&"), exp.BitwiseOr: partial(_combine_bits, "|"),
    exp.BitwiseRightShift: _shift,
}  # fmt: skip
