"""Expressions of exact queries in Spark's SQL: the walk over operators; see :mod:`dpsql.sql.spark.values`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpsql.sql.expressions.operators import decimal_result
from dpsql.sql.expressions.types import BOOLEAN, DOUBLE, FLOAT, HUGEINT, NULL, TEXT, Type, decimal
from dpsql.sql.spark import aggregates as spark_aggregates
from dpsql.sql.spark import aggregates as spark_dates
from dpsql.sql.spark import calls as spark_calls
from dpsql.sql.spark.values import (
    HASH,
    LONG,
    SparkValue,
    find_common_type,
    is_long,
    quote_text,
    refusal,
    spark_type,
    translate_cast,
    translate_constant,
    widen_number,
    write_bits,
    write_cast,
    write_quotient,
)

_LEAST, _MOST = -(2**63), 2**63 - 1

FindColumn = Callable[[exp.Column], SparkValue]
TranslateQuery = Callable[[exp.Expr], tuple[str, tuple[tuple[str, Type], ...]]]


@dataclass(frozen=True)
class ExpressionWalk:
    """Translates expressions: ``column`` says what a name is, ``nested`` translates a subquery."""

    column: FindColumn
    nested: TranslateQuery

    def of(self, node: exp.Expr) -> SparkValue:
        """Return the expression for Spark.

        Raises:
            BindError: it has no equal there.
        """
        if isinstance(node, exp.Column):
            return self.column(node)
        handler = _HANDLERS.get(type(node)) or spark_aggregates.AGGREGATE_HANDLERS.get(type(node))
        if handler is not None:
            return handler(self, node)
        if isinstance(node, exp.AggFunc):
            return spark_aggregates.translate_aggregate(self, node)
        return spark_calls.translate_call(self, node)

    def both(self, node: exp.Expr) -> tuple[SparkValue, SparkValue]:
        """Translate both sides of an operator."""
        return self.of(node.this), self.of(node.args["expression"])


# -- leaves -----------------------------------------------------------------------------------------------------


def _literal(_: ExpressionWalk, node: exp.Expr) -> SparkValue:
    if node.args.get("is_string"):
        return SparkValue(quote_text(node.name), TEXT)
    text = node.name
    if text.isdigit():
        n = int(text)
        if n > _MOST:
            return SparkValue(f"CAST({n}BD AS DECIMAL(38,0))", HUGEINT, n, n)
        return SparkValue(f"{n}L", LONG, n, n)
    if "e" in text.lower():
        return SparkValue(f"{float(text)!r}D", DOUBLE)
    before, _dot, after = text.partition(".")
    return SparkValue(
        f"{before or '0'}.{after}BD" if after else f"{before}BD",
        decimal(max(1, len(before) + len(after)), len(after)),
    )


def _boolean(_: ExpressionWalk, node: exp.Expr) -> SparkValue:
    return SparkValue("TRUE" if node.this else "FALSE", BOOLEAN)


def _null(_: ExpressionWalk, node: exp.Expr) -> SparkValue:
    return SparkValue("NULL", NULL)


def _paren(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    return values.of(node.this)


def _subquery(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    sql, columns = values.nested(node)
    if len(columns) != 1:
        raise refusal("a scalar subquery of several columns")
    return SparkValue(f"({sql})", columns[0][1])


# -- logic ------------------------------------------------------------------------------------------------------


def _exists(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    return SparkValue(f"EXISTS ({values.nested(node.this)[0]})", BOOLEAN)


def _connect(word: str) -> Callable[[ExpressionWalk, exp.Expr], SparkValue]:
    def handle(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
        left, right = values.both(node)
        return SparkValue(f"({left.sql} {word} {right.sql})", BOOLEAN)

    return handle


def _not(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    return SparkValue(f"(NOT {values.of(node.this).sql})", BOOLEAN)


def _is(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    value, right = values.of(node.this), node.expression
    word = "NULL" if isinstance(right, exp.Null) else "TRUE" if right.this else "FALSE"
    return SparkValue(f"({value.sql} IS {word})", BOOLEAN)


def _compare(word: str) -> Callable[[ExpressionWalk, exp.Expr], SparkValue]:
    def handle(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
        left, right = values.both(node)
        return SparkValue(write_comparison(left, word, right), BOOLEAN)

    return handle


def write_comparison(left: SparkValue, word: str, right: SparkValue) -> str:
    """Return a comparison in the common type, never in one that Spark would choose."""
    kind = find_common_type((left.type, right.type))
    one, two = (write_cast(v, kind) if kind.kind != "NULL" else v.sql for v in (left, right))
    return f"(NOT {one} <=> {two})" if word == "<!>" else f"({one} {word} {two})"


def _between(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    value, low, high = (values.of(node.args[k]) for k in ("this", "low", "high"))
    return SparkValue(
        f"({write_comparison(value, '>=', low)} AND {write_comparison(value, '<=', high)})", BOOLEAN
    )


def _in(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    query = node.args.get("query")
    if query is None:
        value, listed = values.of(node.this), [values.of(item) for item in node.expressions]
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
        left = ", ".join(values.of(item).sql for item in node.this.expressions)
        return SparkValue(f"(({left}) IN ({values.nested(select)[0]}))", BOOLEAN)
    value = values.of(node.this)
    sql, columns = values.nested(select)
    if len(columns) != 1 or spark_type(find_common_type((value.type, columns[0][1]))) != spark_type(
        value.type
    ):
        raise refusal("IN over a query of another type")
    return SparkValue(f"({value.sql} IN ({sql}))", BOOLEAN)


def _case(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    tests = [values.of(branch.this).sql for branch in node.args["ifs"]]
    if node.this is not None:
        raise refusal("CASE of a value")
    places = [branch.args["true"] for branch in node.args["ifs"]]
    default = node.args.get("default")
    results = [values.of(place) for place in [*places, *([default] if default is not None else [])]]
    kind = find_common_type(r.type for r in results)
    shown = [write_cast(r, kind) if kind.kind != "NULL" else r.sql for r in results]
    text = " ".join(f"WHEN {test} THEN {value}" for test, value in zip(tests, shown, strict=False))
    otherwise = f" ELSE {shown[-1]}" if default is not None else ""
    return SparkValue(f"(CASE {text}{otherwise} END)", kind)


def _several(name: str) -> Callable[[ExpressionWalk, exp.Expr], SparkValue]:
    def handle(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
        places = [node.this, *node.expressions] if node.this is not None else list(node.expressions)
        return write_choice(name, [values.of(place) for place in places])

    return handle


def write_choice(name: str, parts: Sequence[SparkValue]) -> SparkValue:
    """COALESCE, LEAST, GREATEST: NULL is skipped, and NaN is the greatest, in both engines."""
    kind = find_common_type(p.type for p in parts)
    if kind.kind in ("LIST", "STRUCT"):
        raise refusal(f"{name} of {kind.sql}")
    sql = (
        f"{name}({', '.join(write_cast(p, kind) for p in parts)})"
        if len(parts) > 1
        else write_cast(parts[0], kind)
    )
    lows, highs = [p.low for p in parts if p.low is not None], [p.high for p in parts if p.high is not None]
    low = high = None
    if name == "greatest":
        low = max(lows, default=None)
        high = max(highs) if len(highs) == len(parts) else None
    elif name == "least":
        low = min(lows) if len(lows) == len(parts) else None
        high = min(highs, default=None)
    if kind == HUGEINT and low is not None and high is not None and low >= _LEAST and high <= _MOST:
        return SparkValue(
            f"CAST({sql} AS BIGINT)", LONG, low, high
        )  # 64 bits are several times quicker than 38 digits
    return SparkValue(sql, kind, low, high)


def _nullif(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    left, right = values.both(node)
    return SparkValue(
        f"(CASE WHEN {write_comparison(left, '=', right)} THEN NULL ELSE {left.sql} END)", left.type
    )


# -- arithmetic -------------------------------------------------------------------------------------------------

_TRYING = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}


def _arithmetic(word: str, trying: bool = False) -> Callable[[ExpressionWalk, exp.Expr], SparkValue]:
    def handle(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
        left, right = values.both(node)
        kinds = {left.type.kind, right.type.kind}
        if kinds & {"DATE", "TIMESTAMP", "INTERVAL"}:
            return spark_dates.translate_date_arithmetic(word, left, right)
        kind = find_common_type((left.type, right.type))
        if not kind.numeric:
            raise refusal(f"{left.type.sql} {word} {right.type.sql}")
        if kind.kind == "DOUBLE":
            return SparkValue(f"({write_cast(left, kind)} {word} {write_cast(right, kind)})", kind)
        if kind.kind == "DECIMAL":
            wanted = decimal_result(node, left.type, right.type)
            if wanted is None:
                raise refusal("a decimal of more than 38 places")
            sides = [v.sql if v.type.kind == "DECIMAL" else widen_number(v).sql for v in (left, right)]
            return SparkValue(f"try_cast({_TRYING[word]}({sides[0]}, {sides[1]}) AS {wanted.sql})", wanted)
        one, two = widen_number(left), widen_number(right)
        wide = HUGEINT if HUGEINT in (one.type, two.type) else LONG
        sides = [write_cast(v, wide) for v in (one, two)]
        if not trying:
            return SparkValue(f"({sides[0]} {word} {sides[1]})", wide)
        made = f"{_TRYING[word]}({sides[0]}, {sides[1]})"
        return SparkValue(f"try_cast({made} AS {spark_type(wide)})" if wide == HUGEINT else made, wide)

    return handle


def _divide(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    left, right = values.both(node)
    kind = FLOAT if (left.type, right.type) == (FLOAT, FLOAT) else DOUBLE
    a, b = write_cast(left, DOUBLE), write_cast(right, DOUBLE)
    return SparkValue(
        write_cast(SparkValue(write_quotient(a, b), DOUBLE), kind) if kind == FLOAT else write_quotient(a, b),
        kind,
    )


def _whole(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    """``//``: toward zero. Between floats and decimals it is plain division, as in DuckDB."""
    left, right = values.both(node)
    if left.type == HASH and right.low is not None and right.low == right.high and right.low > 0:
        parts = (
            2**64 - 1
        ) // right.low + 1  # in which of so many equal parts of 64 bits it is: any of them does
        return SparkValue(f"pmod({left.sql}, {parts}L)", LONG, 0, parts - 1)
    kind = find_common_type((left.type, right.type))
    if kind.kind != "INTEGER":
        return _divide(values, node)
    if is_long(left.type) and is_long(right.type):
        one, two = widen_number(left).sql, widen_number(right).sql
        if right.low is not None and right.low == right.high and right.low > 0:
            return SparkValue(f"({one} div {two})", LONG)
        return SparkValue(
            f"(CASE WHEN {two} = -1L THEN try_subtract(0L, {one}) ELSE {one} div {two} END)", LONG
        )
    if right.low == right.high == 2:  # Spark's div gives 64 bits; half of what is even is exact in decimals
        wide = write_cast(left, HUGEINT)
        return SparkValue(f"CAST(({wide} - {wide} % 2BD) * 0.5BD AS DECIMAL(38,0))", HUGEINT)
    if is_long(right.type):
        return SparkValue(
            _long_division(write_cast(left, HUGEINT), f"CAST({widen_number(right).sql} AS DECIMAL(19,0))"),
            HUGEINT,
        )
    raise refusal("// between HUGEINT", "cast to BIGINT first.")


def _long_division(a: str, b: str) -> str:
    """38 digits by 19, toward zero: first the upper 20 of them, then what is left with the lower 18, for no quotient of
    Spark's has both so many digits and none after the point. A value that is needed again is the argument of a lambda.
    """
    radix = f"1{'0' * 18}BD"
    upper = f"CAST((s.a - s.a % {radix}) * 0.{'0' * 17}1BD AS DECIMAL(20,0))"
    split = f"transform(array(named_struct('a', {a}, 'b', {b})), s -> named_struct('h', {upper}, 'l', s.a % {radix}, 'b', s.b))"
    left = f"transform({split}, s -> named_struct('h', s.h, 'x', s.h % s.b * {radix} + s.l, 'b', s.b))"
    high, low = (f"CAST(({v} - {v} % s.b) / s.b AS DECIMAL(20,0))" for v in ("s.h", "s.x"))
    return f"element_at(transform({left}, s -> CAST({high} * {radix} + {low} AS DECIMAL(38,0))), 1)"


def _remainder(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    left, right = values.both(node)
    if left.type == HASH:
        return SparkValue(f"pmod({left.sql}, {widen_number(right).sql})", LONG)
    kind = find_common_type((left.type, right.type))
    if kind.kind == "INTEGER":
        wide = HUGEINT if not (is_long(left.type) and is_long(right.type)) else LONG
        return SparkValue(f"({write_cast(left, wide)} % {write_cast(right, wide)})", wide)
    if kind.kind == "DOUBLE":
        a, b = write_cast(left, DOUBLE), write_cast(right, DOUBLE)
        made = (
            f"(CASE WHEN {b} = 0D AND {a} IS NOT NULL THEN double('NaN') WHEN {b} <> 0D THEN {a} % {b} END)"
        )
        return SparkValue(write_cast(SparkValue(made, DOUBLE), kind), kind)
    return SparkValue(f"try_cast({write_cast(left, kind)} % {write_cast(right, kind)} AS {kind.sql})", kind)


def _negate(trying: bool) -> Callable[[ExpressionWalk, exp.Expr], SparkValue]:
    def handle(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
        inner = node.this
        if isinstance(inner, exp.Literal) and inner.name == str(2**63):
            return SparkValue("CAST(-9223372036854775808BD AS BIGINT)", LONG, _LEAST, _LEAST)
        value = values.of(inner)
        if value.type.kind == "INTEGER":
            value = widen_number(value)
            low = None if value.high is None else -value.high
            high = None if value.low is None else -value.low
            zero = write_cast(SparkValue("0L", LONG), value.type)
            made = f"try_subtract({zero}, {value.sql})" if trying else f"(-{value.sql})"
            return SparkValue(made, value.type, low, high)
        if not value.type.numeric:
            raise refusal(f"- of {value.type.sql}")
        return SparkValue(f"(-{value.sql})", value.type)

    return handle


def _absolute(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    value = values.of(node.this)
    value = widen_number(value) if value.type.kind == "INTEGER" else value
    return SparkValue(f"abs({value.sql})", value.type)


def _xor(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    left, right = values.both(node)
    if HASH in (left.type, right.type):
        return SparkValue(f"({write_bits(left)} ^ {write_bits(right)})", HASH)
    return _bits("^")(values, node)


def _bits(word: str) -> Callable[[ExpressionWalk, exp.Expr], SparkValue]:
    def handle(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
        left, right = values.both(node)
        if not (is_long(left.type) and is_long(right.type)):
            raise refusal(f"the bits of {left.type.sql}")
        return SparkValue(f"({widen_number(left).sql} {word} {widen_number(right).sql})", LONG)

    return handle


def _shift(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    left, right = values.both(node)
    if left.type != HASH or right.low is None or right.low != right.high or not 0 < right.low < 64:
        raise refusal("a shift of bits")
    return SparkValue(f"shiftrightunsigned({left.sql}, {right.low})", LONG)


def _try(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    """TRY around one operation: its own form that gives NULL. What is total here anyway needs none."""
    inner = node.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    special = _IN_TRY.get(type(inner))
    if special is not None:
        return special(values, inner)
    if isinstance(inner, exp.Func | exp.Column | exp.Cast | exp.TryCast | exp.Binary | exp.Abs):
        return values.of(inner)
    raise refusal(f"TRY around {inner.key.upper()}")


def _cast(values: ExpressionWalk, node: exp.Expr) -> SparkValue:
    kind = Type.parse(node.args["to"].sql(dialect="duckdb"))
    inner = node.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.Literal) and inner.is_string and kind != TEXT:
        return translate_constant(inner.name, kind)
    value = values.of(inner)
    return translate_cast(value, kind)


_HANDLERS: dict[type[exp.Expr], Callable[[ExpressionWalk, exp.Expr], SparkValue]] = {
    exp.Literal: _literal, exp.Boolean: _boolean, exp.Null: _null, exp.Paren: _paren, exp.Subquery: _subquery,
    exp.And: _connect("AND"), exp.Or: _connect("OR"), exp.Not: _not, exp.Is: _is, exp.In: _in, exp.Exists: _exists,
    exp.EQ: _compare("="), exp.NEQ: _compare("<>"), exp.LT: _compare("<"), exp.LTE: _compare("<="),
    exp.GT: _compare(">"), exp.GTE: _compare(">="), exp.NullSafeEQ: _compare("<=>"), exp.NullSafeNEQ: _compare("<!>"),
    exp.Between: _between, exp.Case: _case, exp.Nullif: _nullif,
    exp.Coalesce: _several("coalesce"), exp.Least: _several("least"), exp.Greatest: _several("greatest"),
    exp.Add: _arithmetic("+"), exp.Sub: _arithmetic("-"), exp.Mul: _arithmetic("*"), exp.Div: _divide,
    exp.IntDiv: _whole, exp.Mod: _remainder, exp.Neg: _negate(False), exp.Abs: _absolute,
    exp.BitwiseXor: _xor, exp.BitwiseAnd: _bits("&"), exp.BitwiseOr: _bits("|"), exp.BitwiseRightShift: _shift,
    exp.Try: _try, exp.Cast: _cast, exp.TryCast: _cast,
}  # fmt: skip
_IN_TRY: dict[type[exp.Expr], Callable[[ExpressionWalk, exp.Expr], SparkValue]] = {
    exp.Add: _arithmetic("+", True), exp.Sub: _arithmetic("-", True), exp.Mul: _arithmetic("*", True),
    exp.Neg: _negate(True),
}  # fmt: skip
