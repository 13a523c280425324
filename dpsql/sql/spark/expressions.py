"""Operators of exact queries in Spark's SQL, and the way from a node to its rewrite; see :mod:`dpsql.sql.spark.values`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sqlglot import exp

from dpsql.sql.expressions.operators import decimal_result
from dpsql.sql.expressions.types import BOOLEAN, DOUBLE, FLOAT, HUGEINT, NULL, TEXT, Type, decimal
from dpsql.sql.spark import aggregates, calls, values
from dpsql.sql.spark.values import (
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
    """Return an expression for Spark.

    Raises:
        BindError: it has no equal there.
    """
    for table in (_NODES, aggregates.AGGREGATE_NODES, calls.CALL_NODES):
        if type(node) in table:
            return table[type(node)](walk, node)
    if type(node) in _OPERATORS:
        return _OPERATORS[type(node)](walk.of(node.this), walk.of(node.args["expression"]))
    if isinstance(node, exp.AggFunc):
        return aggregates.translate_aggregate(walk, node)
    return calls.translate_call(walk, node)


# -- leaves -----------------------------------------------------------------------------------------------------


def _literal(_: Walk, node: exp.Expr) -> SparkValue:
    text = node.name
    if node.args.get("is_string"):
        return SparkValue(values.quote_text(text), TEXT)
    if text.isdigit():
        n = int(text)
        if n > values.MAX_LONG:
            return SparkValue(f"CAST({n}BD AS DECIMAL(38,0))", HUGEINT, n, n)
        return SparkValue(f"{n}L", LONG, n, n)
    if "e" in text.lower():
        return SparkValue(f"{float(text)!r}D", DOUBLE)
    before, _dot, after = text.partition(".")
    kind = decimal(max(1, len(before) + len(after)), len(after))
    return SparkValue(f"{before or '0'}.{after}BD" if after else f"{before}BD", kind)


def _subquery(walk: Walk, node: exp.Expr) -> SparkValue:
    sql, columns = walk.nested(node)
    if len(columns) != 1:
        raise refusal("a scalar subquery of several columns")
    return SparkValue(f"({sql})", columns[0][1])


# -- logic ------------------------------------------------------------------------------------------------------


def _connect(word: str, left: SparkValue, right: SparkValue) -> SparkValue:
    return SparkValue(f"({left.sql} {word} {right.sql})", BOOLEAN)


def compare(word: str, left: SparkValue, right: SparkValue) -> SparkValue:
    """Compare in the common type, never in one that Spark would choose."""
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
    names = {values.spark_type(kind) for kind in (value.type, find_common_type((value.type, columns[0][1])))}
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
    """COALESCE, LEAST, GREATEST: NULL is skipped, and NaN is the greatest, in both engines."""
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
    known = low is not None and low >= values.MIN_LONG and high is not None and high <= values.MAX_LONG
    if kind == HUGEINT and known:  # 64 bits are several times quicker than 38 digits
        return SparkValue(f"CAST({sql} AS BIGINT)", LONG, low, high)
    return SparkValue(sql, kind, low, high)


def _nullif(left: SparkValue, right: SparkValue) -> SparkValue:
    return SparkValue(f"(CASE WHEN {compare('=', left, right).sql} THEN NULL ELSE {left.sql} END)", left.type)


# -- arithmetic -------------------------------------------------------------------------------------------------

_TRYING: dict[type[exp.Expr], str] = {exp.Add: "try_add", exp.Sub: "try_subtract", exp.Mul: "try_multiply"}


def _arithmetic(word: str, walk: Walk, node: exp.Expr, trying: bool = False) -> SparkValue:
    left, right = walk.of(node.this), walk.of(node.args["expression"])
    if {left.type.kind, right.type.kind} & {"DATE", "TIMESTAMP", "INTERVAL"}:
        return calls.translate_date_arithmetic(word, left, right)
    kind = find_common_type((left.type, right.type))
    if not kind.numeric:
        raise refusal(f"{left.type.sql} {word} {right.type.sql}")
    if kind.kind == "DOUBLE":
        return SparkValue(f"({write_cast(left, kind)} {word} {write_cast(right, kind)})", kind)
    if kind.kind == "DECIMAL":
        wanted = decimal_result(node, left.type, right.type)
        if wanted is None:
            raise refusal("a decimal of more than 38 places")
        one, two = (v.sql if v.type.kind == "DECIMAL" else values.widen_number(v).sql for v in (left, right))
        return SparkValue(f"try_cast({_TRYING[type(node)]}({one}, {two}) AS {wanted.sql})", wanted)
    wide = LONG if is_long(left.type) and is_long(right.type) else HUGEINT
    one, two = (write_cast(values.widen_number(v), wide) for v in (left, right))
    made = f"{_TRYING[type(node)]}({one}, {two})" if trying else f"({one} {word} {two})"
    return SparkValue(f"try_cast({made} AS DECIMAL(38,0))" if trying and wide == HUGEINT else made, wide)


def _divide(left: SparkValue, right: SparkValue) -> SparkValue:
    kind = FLOAT if left.type == right.type == FLOAT else DOUBLE
    made = values.write_quotient(write_cast(left, DOUBLE), write_cast(right, DOUBLE))
    return SparkValue(write_cast(SparkValue(made, DOUBLE), kind), kind)


def _divide_whole(left: SparkValue, right: SparkValue) -> SparkValue:
    """``//``: toward zero. Between floats and decimals it is plain division, as in DuckDB."""
    divisor = right.constant
    if left.type == HASH and divisor is not None and divisor > 0:
        # In which of so many equal parts of 64 bits it is: any of them does.
        parts = (2**64 - 1) // divisor + 1
        return SparkValue(f"pmod({left.sql}, {parts}L)", LONG, 0, parts - 1)
    if find_common_type((left.type, right.type)).kind != "INTEGER":
        return _divide(left, right)
    two = values.widen_number(right).sql
    if is_long(left.type) and is_long(right.type):
        one = values.widen_number(left).sql
        if divisor is not None and divisor > 0:
            return SparkValue(f"({one} div {two})", LONG)
        return SparkValue(
            f"(CASE WHEN {two} = -1L THEN try_subtract(0L, {one}) ELSE {one} div {two} END)", LONG
        )
    wide = write_cast(left, HUGEINT)
    if divisor == 2:  # Spark's div gives 64 bits; half of what is even is exact in decimals
        return SparkValue(f"CAST(({wide} - {wide} % 2BD) * 0.5BD AS DECIMAL(38,0))", HUGEINT)
    if not is_long(right.type):
        raise refusal("// between HUGEINT", "cast to BIGINT first.")
    return SparkValue(_write_long_division(wide, f"CAST({two} AS DECIMAL(19,0))"), HUGEINT)


def _write_long_division(a: str, b: str) -> str:
    """38 digits by 19, toward zero: first the upper 20 of them, then what is left with the lower 18, for no quotient of
    Spark's has both so many digits and none after the point. A value that is needed again is the argument of a lambda.
    """
    radix = f"1{'0' * 18}BD"
    upper = f"CAST((s.a - s.a % {radix}) * 0.{'0' * 17}1BD AS DECIMAL(20,0))"
    split = f"transform(array(named_struct('a', {a}, 'b', {b})), s -> named_struct('h', {upper}, 'l', s.a % {radix}, 'b', s.b))"
    left = f"transform({split}, s -> named_struct('h', s.h, 'x', s.h % s.b * {radix} + s.l, 'b', s.b))"
    high, low = (f"CAST(({v} - {v} % s.b) / s.b AS DECIMAL(20,0))" for v in ("s.h", "s.x"))
    return f"element_at(transform({left}, s -> CAST({high} * {radix} + {low} AS DECIMAL(38,0))), 1)"


def _remainder(left: SparkValue, right: SparkValue) -> SparkValue:
    if left.type == HASH:
        return SparkValue(f"pmod({left.sql}, {values.widen_number(right).sql})", LONG)
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
    return SparkValue(f"try_cast({write_cast(left, kind)} % {write_cast(right, kind)} AS {kind.sql})", kind)


def _negate(walk: Walk, node: exp.Expr, trying: bool = False) -> SparkValue:
    if isinstance(node.this, exp.Literal) and node.this.name == str(2**63):
        least = values.MIN_LONG
        return SparkValue("CAST(-9223372036854775808BD AS BIGINT)", LONG, least, least)
    value = walk.of(node.this)
    if value.type.kind != "INTEGER":
        if not value.type.numeric:
            raise refusal(f"- of {value.type.sql}")
        return SparkValue(f"(-{value.sql})", value.type)
    value = values.widen_number(value)
    zero = write_cast(SparkValue("0L", LONG), value.type)
    made = f"try_subtract({zero}, {value.sql})" if trying else f"(-{value.sql})"
    low, high = (None if end is None else -end for end in (value.high, value.low))
    return SparkValue(made, value.type, low, high)


def _combine_bits(word: str, left: SparkValue, right: SparkValue) -> SparkValue:
    if word == "^" and HASH in (left.type, right.type):
        return SparkValue(f"({values.write_bits(left)} ^ {values.write_bits(right)})", HASH)
    if not (is_long(left.type) and is_long(right.type)):
        raise refusal(f"the bits of {left.type.sql}")
    return SparkValue(f"({values.widen_number(left).sql} {word} {values.widen_number(right).sql})", LONG)


def _shift(left: SparkValue, right: SparkValue) -> SparkValue:
    if left.type != HASH or right.constant is None or not 0 < right.constant < 64:
        raise refusal("a shift of bits")
    return SparkValue(f"shiftrightunsigned({left.sql}, {right.low})", LONG)


def _try(walk: Walk, node: exp.Expr) -> SparkValue:
    """TRY around one operation: its own form that gives NULL. What is total here anyway needs none."""
    inner = node.this.unnest()
    if type(inner) in (*_TRYING, exp.Neg):
        return _NODES[type(inner)](walk, inner, trying=True)
    if isinstance(inner, exp.Func | exp.Column | exp.Cast | exp.TryCast | exp.Binary | exp.Abs):
        return walk.of(inner)
    raise refusal(f"TRY around {inner.key.upper()}")


def _cast(walk: Walk, node: exp.Expr) -> SparkValue:
    kind, inner = Type.parse(node.args["to"].sql(dialect="duckdb")), node.this.unnest()
    if isinstance(inner, exp.Literal) and inner.is_string and kind != TEXT:
        return values.translate_constant(inner.name, kind)
    return values.translate_cast(walk.of(inner), kind)


_NODES: dict[type[exp.Expr], Callable[..., SparkValue]] = {
    exp.Literal: _literal, exp.Boolean: lambda _, node: SparkValue("TRUE" if node.this else "FALSE", BOOLEAN),
    exp.Null: lambda _, node: SparkValue("NULL", NULL), exp.Paren: lambda walk, node: walk.of(node.this),
    exp.Column: lambda walk, node: walk.column(node), exp.Subquery: _subquery,
    exp.Exists: lambda walk, node: SparkValue(f"EXISTS ({walk.nested(node.this)[0]})", BOOLEAN),
    exp.Not: lambda walk, node: SparkValue(f"(NOT {walk.of(node.this).sql})", BOOLEAN),
    exp.Is: _is, exp.In: _in, exp.Between: _between, exp.Case: _case, exp.Coalesce: partial(_choose, "coalesce"),
    exp.Least: partial(_choose, "least"), exp.Greatest: partial(_choose, "greatest"),
    exp.Add: partial(_arithmetic, "+"), exp.Sub: partial(_arithmetic, "-"), exp.Mul: partial(_arithmetic, "*"),
    exp.Neg: _negate, exp.Try: _try, exp.Cast: _cast, exp.TryCast: _cast,
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
