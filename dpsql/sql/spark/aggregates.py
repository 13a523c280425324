"""Dates, aggregates and windows of exact queries in Spark's SQL; see :mod:`dpsql.sql.spark.calls`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from dpsql.sql.expressions.types import DATE, DOUBLE, HUGEINT, INTERVAL, TEXT, TIMESTAMP, decimal
from dpsql.sql.spark.values import (
    LONG,
    SparkValue,
    Walk,
    is_long,
    quote_text,
    refusal,
    spark_type,
    translate_cast,
    widen_number,
    write_cast,
)

# -- dates ------------------------------------------------------------------------------------------------------

SPARK_DATE_PARTS = {
    "year": "year({0})", "month": "month({0})", "day": "day({0})", "quarter": "quarter({0})",
    "week": "weekofyear({0})", "dow": "dayofweek({0}) - 1", "dayofweek": "dayofweek({0}) - 1",
    "weekday": "dayofweek({0}) - 1", "isodow": "weekday({0}) + 1", "doy": "dayofyear({0})",
    "dayofyear": "dayofyear({0})", "hour": "hour({0})", "minute": "minute({0})", "second": "second({0})",
}  # fmt: skip
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
_LENGTHS = {"hour": 3600, "minute": 60, "second": 1}


def write_timestamp(value: SparkValue) -> str:
    """Write a timestamp of the session's zone, which is UTC: Spark's functions know no other."""
    if value.type.kind not in ("DATE", "TIMESTAMP"):
        raise refusal(f"{value.type.sql} as a date")
    return f"CAST({value.sql} AS TIMESTAMP)"


def translate_date_part(given: list[SparkValue]) -> SparkValue:
    """Translate date_part('unit', moment)."""
    unit = given[0].sql.strip("'").lower()
    if unit not in SPARK_DATE_PARTS:
        raise refusal(f"the date part {unit}")
    source = f"CAST({given[1].sql} AS TIMESTAMP_NTZ)"
    write_timestamp(given[1])
    return SparkValue(f"CAST({SPARK_DATE_PARTS[unit].format(source)} AS BIGINT)", LONG)


def translate_truncation(given: list[SparkValue]) -> SparkValue:
    """Translate date_trunc('unit', moment)."""
    unit = given[0].sql.strip("'").lower()
    if unit not in _UNITS:
        raise refusal(f"date_trunc to a {unit}")
    return SparkValue(f"CAST(date_trunc('{unit}', {write_timestamp(given[1])}) AS TIMESTAMP_NTZ)", TIMESTAMP)


def translate_date_diff(given: list[SparkValue]) -> SparkValue:
    """date_diff: borders crossed."""
    unit, start, end = given[0].sql.strip("'").lower(), *given[1:]
    one, two = write_timestamp(start), write_timestamp(end)
    if unit == "day":
        made = f"datediff({two}, {one})"
    elif unit == "week":
        if start.type.kind == "TIMESTAMP" or end.type.kind == "TIMESTAMP":
            raise refusal("date_diff in weeks of timestamps", "cast to DATE.")
        made = f"datediff({two}, {one}) div 7"  # of weeks DuckDB counts whole ones
    elif unit in ("month", "quarter", "year"):
        step = {"month": ("month", 12), "quarter": ("quarter", 4), "year": ("0 * month", 1)}[unit]
        sides = [f"(year({t}) * {step[1]} + {step[0]}({t}))" for t in (two, one)]
        made = f"{sides[0]} - {sides[1]}"
    elif unit in _LENGTHS:
        sides = [f"unix_seconds(date_trunc('{unit}', {t}))" for t in (two, one)]
        made = f"({sides[0]} - {sides[1]}) div {_LENGTHS[unit]}L"
    else:
        raise refusal(f"date_diff in a {unit}")
    return SparkValue(f"CAST({made} AS BIGINT)", LONG)


_LETTERS = {
    "Y": ("year", 4), "m": ("month", 2), "d": ("day", 2), "H": ("hour", 2), "M": ("minute", 2), "S": ("second", 2),
    "j": ("doy", 3), "w": ("dow", 1), "u": ("isodow", 1), "V": ("week", 2),
}  # fmt: skip
_NAMES = {"A": "EEEE", "a": "EEE", "B": "MMMM", "b": "MMM"}


def translate_strftime(value: SparkValue, form: exp.Expr) -> SparkValue:
    """strftime: by its letters, each a number of so many digits or a name; plain text between them."""
    at, named = f"CAST({value.sql} AS TIMESTAMP_NTZ)", write_timestamp(value)
    parts = []
    for text, bare, letter in re.findall(r"([^%]+)|%(-?)(.?)", form.name, re.DOTALL):
        if text or (letter == "%" and not bare):
            parts.append(quote_text(text or "%"))
        elif letter in _NAMES and not bare:
            parts.append(f"date_format({named}, '{_NAMES[letter]}')")
        elif letter in _LETTERS:
            unit, digits = _LETTERS[letter]
            digit = f"CAST({SPARK_DATE_PARTS[unit].format(at)} AS STRING)"
            parts.append(digit if bare else f"lpad({digit}, {digits}, '0')")
        else:
            raise refusal(f"strftime with %{bare}{letter}")
    return SparkValue(f"concat({', '.join(parts)})", TEXT)


def translate_epoch(given: list[SparkValue]) -> SparkValue:
    """Translate epoch(moment)."""
    return SparkValue(f"(CAST(unix_micros({write_timestamp(given[0])}) AS DOUBLE) / 1000000D)", DOUBLE)


def translate_interval(values: Walk, node: exp.Expr) -> SparkValue:
    """Translate an INTERVAL literal within years that Spark knows."""
    unit = str(node.args["unit"].name).upper().removesuffix("S")
    amount = int(node.this.name)
    months = {"YEAR": 12, "QUARTER": 3, "MONTH": 1, "DECADE": 120, "CENTURY": 1200}.get(unit)
    seconds = {"WEEK": 604800, "DAY": 86400, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}.get(unit)
    if months is not None and abs(amount * months) <= 12_000:
        return SparkValue(f"INTERVAL '{amount * months}' MONTH", INTERVAL)
    if seconds is not None and abs(amount * seconds) <= 86400 * 366_000:
        return SparkValue(f"INTERVAL '{amount * seconds}' SECOND", INTERVAL)
    raise refusal(f"an interval of {amount} {unit.lower()}s")


def translate_date_arithmetic(word: str, left: SparkValue, right: SparkValue) -> SparkValue:
    """Dates and intervals, where DuckDB has them; within years that both calendars hold."""
    kinds = (left.type.kind, right.type.kind)
    if kinds == ("DATE", "DATE") and word == "-":
        return SparkValue(f"CAST(datediff({left.sql}, {right.sql}) AS BIGINT)", LONG)
    if kinds[0] == "INTERVAL" and word == "+":
        left, right, kinds = right, left, kinds[::-1]
    if kinds[0] in ("DATE", "TIMESTAMP") and kinds[1] == "INTERVAL" and word in "+-":
        at = f"CAST({left.sql} AS TIMESTAMP_NTZ)"
        sane = f"{at} BETWEEN TIMESTAMP_NTZ'0001-01-01' AND TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"
        return SparkValue(f"(CASE WHEN {sane} THEN {at} {word} {right.sql} END)", TIMESTAMP)
    if kinds == ("DATE", "INTEGER") and word in "+-":
        days = widen_number(right).sql
        sane = f"{days} BETWEEN -1000000L AND 1000000L"
        sign = "" if word == "+" else "-"
        return SparkValue(f"date_add({left.sql}, CASE WHEN {sane} THEN CAST({sign}{days} AS INT) END)", DATE)
    raise refusal(f"{left.type.sql} {word} {right.type.sql}")


# -- aggregates -------------------------------------------------------------------------------------------------

_STATISTICS: dict[type[exp.Expr], str] = {
    exp.Stddev: "sqrt(s.xx / (s.n - 1D))", exp.StddevSamp: "sqrt(s.xx / (s.n - 1D))",
    exp.StddevPop: "sqrt(s.xx / s.n)", exp.Variance: "s.xx / (s.n - 1D)", exp.VariancePop: "s.xx / s.n",
    exp.CovarPop: "s.xy / s.n", exp.CovarSamp: "s.xy / (s.n - 1D)",
    exp.Corr: "s.xy / (sqrt(s.xx) * sqrt(s.yy))", exp.RegrSlope: "s.xy / s.yy",
    exp.RegrIntercept: "s.mx - s.xy / s.yy * s.my",
    exp.RegrR2: "CASE WHEN s.xx = 0D THEN 1D ELSE s.xy * s.xy / (s.xx * s.yy) END",
    exp.RegrAvgx: "s.other / s.n", exp.RegrAvgy: "s.sum / s.n", exp.Sum: "s.sum", exp.Avg: "s.sum / s.n",
}  # fmt: skip
"""From what one pass over the values in their order has: how many, sum, means, squares about them."""
_ZERO = ("n", "sum", "other", "mx", "my", "xx", "yy", "xy")
_STEP = {
    "n": "s.n + 1D", "sum": "s.sum + r.x", "other": "s.other + r.y", "mx": "s.mx + (r.x - s.mx) / (s.n + 1D)",
    "my": "s.my + (r.y - s.my) / (s.n + 1D)",
    "xx": "s.xx + (r.x - s.mx) * (r.x - (s.mx + (r.x - s.mx) / (s.n + 1D)))",
    "yy": "s.yy + (r.y - s.my) * (r.y - (s.my + (r.y - s.my) / (s.n + 1D)))",
    "xy": "s.xy + (r.x - s.mx) * (r.y - (s.my + (r.y - s.my) / (s.n + 1D)))",
}  # fmt: skip


def _in_order(node: exp.Expr, parts: list[SparkValue], distinct: bool, suffix: str) -> SparkValue:
    """Aggregates of doubles, added up in the order of the values: Spark adds in the order in which parts of the rows
    arrive, which depends on other units' rows. A group's values are held by one task.
    """
    names = ("x", "y")
    fields = ", ".join(
        f"'{n}', {write_cast(p, DOUBLE)}" for n, p in zip(names, [*parts, *parts][:2], strict=True)
    )
    known = " AND ".join(f"{p.sql} IS NOT NULL" for p in parts)
    rows = (
        f"collect_{'set' if distinct else 'list'}(CASE WHEN {known} THEN named_struct({fields}) END){suffix}"
    )
    zero = ", ".join(f"'{n}', 0D" for n in _ZERO)
    step = ", ".join(f"'{n}', {_STEP[n]}" for n in _ZERO)
    made, least = _STATISTICS[type(node)], 2 if "(s.n - 1D)" in _STATISTICS[type(node)] else 1
    divisor: dict[type[exp.Expr], str] = {
        exp.Corr: "sqrt(s.xx) * sqrt(s.yy)",
        exp.RegrSlope: "s.yy",
        exp.RegrIntercept: "s.yy",
        exp.RegrR2: "s.yy",
    }
    flat = divisor.get(type(node))
    if flat is not None:  # no spread: 0 / 0, or no line, as in DuckDB
        none = "double('NaN')" if isinstance(node, exp.Corr | exp.RegrSlope) else "NULL"
        made = f"CASE WHEN {flat} = 0D THEN {none} ELSE {made} END"
    finish = f"CASE WHEN s.n >= {least}D THEN {made} END"
    sql = (
        f"aggregate(sort_array({rows}), named_struct({zero}), (s, r) -> named_struct({step}), s -> {finish})"
    )
    return SparkValue(sql, DOUBLE)


_BITS = 21


def translate_aggregate(values: Walk, node: exp.Expr, suffix: str = "", window: bool = False) -> SparkValue:
    """Return an aggregate; ``suffix`` is its FILTER or its window."""
    inner = _unordered(node.this)
    second = _unordered(node.args["expression"]) if node.args.get("expression") is not None else None
    distinct = isinstance(inner, exp.Distinct)
    if distinct and len(inner.expressions) != 1:
        raise refusal("DISTINCT over several values")
    word = "DISTINCT " if distinct else ""
    place = inner.expressions[0] if distinct else inner
    if isinstance(node, exp.RegrCount) and second is not None:
        one, two = values.of(place).sql, values.of(second).sql
        return SparkValue(f"count(CASE WHEN {one} IS NOT NULL THEN {two} END){suffix}", LONG)
    if isinstance(node, exp.Count):
        if place is None or isinstance(place, exp.Star):
            return SparkValue(f"count(1){suffix}", LONG)
        return SparkValue(f"count({word}{values.of(place).sql}){suffix}", LONG)
    value = values.of(place)
    floating = value.type.kind == "DOUBLE"
    if type(node) in _STATISTICS and (floating or not isinstance(node, exp.Sum | exp.Avg)):
        if window or not floating:
            raise refusal(f"{node.key.upper()} of {value.type.sql} here")
        parts = [value, *([values.of(second)] if second is not None else [])]
        return _in_order(node, parts, distinct, suffix)
    if isinstance(node, exp.Sum):
        return _sum(value, word, suffix, plain=window or distinct)
    if isinstance(node, exp.Avg):
        total = _sum(value, word, suffix, plain=window or distinct)
        counted = f"CAST(count({word}{value.sql}){suffix} AS DOUBLE)"
        if value.type.kind == "DECIMAL" and (places := value.type.digits[1]):
            # one division of two whole numbers, as in DuckDB: the sum's digits without their point
            whole = f"CAST(replace(CAST({total.sql} AS STRING), '.', '') AS DOUBLE)"
            return SparkValue(f"({whole} / nullif({counted} * 1.0E{places}D, 0D))", DOUBLE)
        return SparkValue(f"({translate_cast(total, DOUBLE).sql} / nullif({counted}, 0D))", DOUBLE)
    if isinstance(node, exp.Min | exp.Max):
        if node.expressions or value.type.kind in ("LIST", "STRUCT"):
            raise refusal(f"{node.sql_name()} of {value.type.sql}")
        return SparkValue(f"{node.key}({value.sql}){suffix}", value.type)
    if isinstance(node, exp.Mode):
        return SparkValue(f"mode({value.sql}, TRUE){suffix}", value.type)  # the least of equals
    if isinstance(node, exp.ArgMax | exp.ArgMin):
        return _arg(values, node, value, suffix)
    if isinstance(node, exp.Median):
        return SparkValue(f"percentile({write_cast(value, DOUBLE)}, 0.5D){suffix}", DOUBLE)
    if isinstance(node, exp.PercentileCont | exp.PercentileDisc) and second is not None:
        return _quantile(node, value, values.of(second), suffix)
    raise refusal(node.sql_name() if isinstance(node, exp.Func) else node.key.upper())


def _unordered(node: Any) -> Any:
    """``x ORDER BY x`` inside an aggregate is x: the order of values is what is taken here anyway."""
    return node.this if isinstance(node, exp.Order) else node


def _sum(value: SparkValue, word: str, suffix: str, plain: bool) -> SparkValue:
    kind = value.type
    if kind.kind == "DECIMAL":
        wide = decimal(38, kind.digits[1])
        return SparkValue(f"sum({word}CAST({value.sql} AS {wide.sql})){suffix}", wide)
    if kind.kind == "BOOLEAN":
        value = SparkValue(f"CAST({value.sql} AS BIGINT)", LONG, 0, 1)
        kind = LONG
    if kind.kind != "INTEGER":
        raise refusal(f"SUM of {kind.sql}")
    if plain or not is_long(kind):
        return SparkValue(f"sum({word}{write_cast(value, HUGEINT)}){suffix}", HUGEINT)
    x = widen_number(value).sql
    if value.low is not None and value.high is not None and -(2**_BITS) < value.low <= value.high < 2**_BITS:
        return SparkValue(f"CAST(sum({x}){suffix} AS DECIMAL(38,0))", HUGEINT)
    mask = (1 << _BITS) - 1
    parts = (f"shiftright({x}, {2 * _BITS})", f"shiftright({x}, {_BITS}) & {mask}L", f"{x} & {mask}L")
    sums = [f"CAST(sum({part}){suffix} AS DECIMAL(20,0))" for part in parts]
    made = f"{sums[0]} * {1 << 2 * _BITS}BD + {sums[1]} * {1 << _BITS}BD + {sums[2]}"
    return SparkValue(f"CAST({made} AS DECIMAL(38,0))", HUGEINT)


def _arg(values: Walk, node: exp.Expr, value: SparkValue, suffix: str) -> SparkValue:
    place, order = node.args["expression"], None
    if isinstance(place, exp.Order):
        place, order = place.this, place.expressions
    by = values.of(place)
    if suffix or node.args.get("count") is not None:
        raise refusal(f"{node.sql_name() if isinstance(node, exp.Func) else node.key} with FILTER")
    name = "max_by" if isinstance(node, exp.ArgMax) else "min_by"
    both = f"{value.sql} IS NOT NULL AND {by.sql} IS NOT NULL"
    if order is None:
        pair = f"struct({by.sql}, {value.sql})"  # of equals, one that does not depend on the order of rows
        return SparkValue(f"{name}({value.sql}, {pair}) FILTER (WHERE {both})", value.type)
    if len(order) != 1 or order[0].this != node.this or order[0].args.get("desc"):
        raise refusal("this order of equals")
    # the least of equals, beside the greatest: neither max_by nor min_by of a pair; a group's values are held by one task
    empty = (
        f"named_struct('b', CAST(NULL AS {spark_type(by.type)}), 'v', CAST(NULL AS {spark_type(value.type)}))"
    )
    pairs = f"collect_list(CASE WHEN {both} THEN named_struct('b', {by.sql}, 'v', {value.sql}) END)"
    better = f"s.b IS NULL OR r.b {'>' if name == 'max_by' else '<'} s.b OR (r.b = s.b AND r.v < s.v)"
    return SparkValue(
        f"aggregate({pairs}, {empty}, (s, r) -> CASE WHEN {better} THEN r ELSE s END, s -> s.v)", value.type
    )


def _quantile(node: exp.Expr, value: SparkValue, at: SparkValue, suffix: str) -> SparkValue:
    if value.type != DOUBLE:
        raise refusal(f"a quantile of {value.type.sql}")
    name = "percentile_cont" if isinstance(node, exp.PercentileCont) else "percentile_disc"
    return SparkValue(f"{name}({at.sql}) WITHIN GROUP (ORDER BY {value.sql}){suffix}", DOUBLE)


def _filter(values: Walk, node: exp.Expr) -> SparkValue:
    condition = values.of(node.expression.this)
    if not isinstance(node.this, exp.AggFunc):
        raise refusal("FILTER of no aggregate")
    return translate_aggregate(values, node.this, f" FILTER (WHERE {condition.sql})")


def _within_group(values: Walk, node: exp.Expr) -> SparkValue:
    inner, order = node.this, node.expression
    if not isinstance(inner, exp.PercentileDisc | exp.PercentileCont) or len(order.expressions) != 1:
        raise refusal("WITHIN GROUP")
    return _quantile(inner, values.of(order.expressions[0].this), values.of(inner.this), "")


_RANKS: dict[type[exp.Expr], str] = {
    exp.RowNumber: "row_number",
    exp.DenseRank: "dense_rank",
    exp.Rank: "rank",
}


def _window(values: Walk, node: exp.Expr) -> SparkValue:
    parts = [values.of(p).sql for p in node.args.get("partition_by") or []]
    order = node.args.get("order")
    sorts = (
        [f"{values.of(o.this).sql}{write_direction(o)}" for o in order.expressions]
        if order is not None
        else []
    )
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
            raise refusal("this frame of a window")
        over.append(f"{str(spec.args['kind']).upper()} BETWEEN {ends[0]} AND {ends[1]}")
    inner, suffix = node.this, f" OVER ({' '.join(over)})"
    if isinstance(inner, exp.Filter):
        inner = _of_those(inner)
    if type(inner) in _RANKS:
        if not sorts:
            raise refusal("numbers without an order")
        return SparkValue(f"CAST({_RANKS[type(inner)]}(){suffix} AS BIGINT)", LONG)
    if isinstance(inner, exp.Lag | exp.Lead):
        value, offset = values.of(inner.this), inner.args.get("offset")
        steps = values.of(offset).low if offset is not None else 1
        return SparkValue(f"{inner.key}({value.sql}, {steps}){suffix}", value.type)
    if isinstance(inner, exp.FirstValue):
        value = values.of(inner.this)
        return SparkValue(f"first_value({value.sql}){suffix}", value.type)
    return translate_aggregate(values, inner, suffix, window=True)


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


AGGREGATE_HANDLERS: dict[type[exp.Expr], Callable[[Walk, exp.Expr], SparkValue]] = {
    exp.Filter: _filter, exp.WithinGroup: _within_group, exp.Window: _window,
}  # fmt: skip
