"""Dates and intervals of exact queries in Spark's SQL; see :mod:`dpsql.sql.spark.calls`."""

from __future__ import annotations

import re

from sqlglot import exp

from dpsql.sql.expressions.types import DATE, DOUBLE, INTERVAL, TEXT, TIMESTAMP
from dpsql.sql.spark.values import LONG, Value, Walk, number, refused, string

# -- dates ------------------------------------------------------------------------------------------------------

PARTS = {
    "year": "year({0})", "month": "month({0})", "day": "day({0})", "quarter": "quarter({0})",
    "week": "weekofyear({0})", "dow": "dayofweek({0}) - 1", "dayofweek": "dayofweek({0}) - 1",
    "weekday": "dayofweek({0}) - 1", "isodow": "weekday({0}) + 1", "doy": "dayofyear({0})",
    "dayofyear": "dayofyear({0})", "hour": "hour({0})", "minute": "minute({0})", "second": "second({0})",
}  # fmt: skip
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
_LENGTHS = {"hour": 3600, "minute": 60, "second": 1}


def moment(value: Value) -> str:
    """As a timestamp of the session's zone, which is UTC: Spark's functions know no other."""
    if value.type.kind not in ("DATE", "TIMESTAMP"):
        raise refused(f"{value.type.sql} as a date")
    return f"CAST({value.sql} AS TIMESTAMP)"


def part(given: list[Value]) -> Value:
    unit = given[0].sql.strip("'").lower()
    if unit not in PARTS:
        raise refused(f"the date part {unit}")
    source = f"CAST({given[1].sql} AS TIMESTAMP_NTZ)"
    moment(given[1])
    return Value(f"CAST({PARTS[unit].format(source)} AS BIGINT)", LONG)


def truncated(given: list[Value]) -> Value:
    unit = given[0].sql.strip("'").lower()
    if unit not in _UNITS:
        raise refused(f"date_trunc to a {unit}")
    return Value(f"CAST(date_trunc('{unit}', {moment(given[1])}) AS TIMESTAMP_NTZ)", TIMESTAMP)


def between(given: list[Value]) -> Value:
    """date_diff: borders crossed."""
    unit, start, end = given[0].sql.strip("'").lower(), *given[1:]
    one, two = moment(start), moment(end)
    if unit == "day":
        made = f"datediff({two}, {one})"
    elif unit == "week":
        if start.type.kind == "TIMESTAMP" or end.type.kind == "TIMESTAMP":
            raise refused("date_diff in weeks of timestamps", "cast to DATE.")
        made = f"datediff({two}, {one}) div 7"  # of weeks DuckDB counts whole ones
    elif unit in ("month", "quarter", "year"):
        step = {"month": ("month", 12), "quarter": ("quarter", 4), "year": ("0 * month", 1)}[unit]
        sides = [f"(year({t}) * {step[1]} + {step[0]}({t}))" for t in (two, one)]
        made = f"{sides[0]} - {sides[1]}"
    elif unit in _LENGTHS:
        sides = [f"unix_seconds(date_trunc('{unit}', {t}))" for t in (two, one)]
        made = f"({sides[0]} - {sides[1]}) div {_LENGTHS[unit]}L"
    else:
        raise refused(f"date_diff in a {unit}")
    return Value(f"CAST({made} AS BIGINT)", LONG)


_LETTERS = {
    "Y": ("year", 4), "m": ("month", 2), "d": ("day", 2), "H": ("hour", 2), "M": ("minute", 2), "S": ("second", 2),
    "j": ("doy", 3), "w": ("dow", 1), "u": ("isodow", 1), "V": ("week", 2),
}  # fmt: skip
_NAMES = {"A": "EEEE", "a": "EEE", "B": "MMMM", "b": "MMM"}


def shown(value: Value, form: exp.Expr) -> Value:
    """strftime: by its letters, each a number of so many digits or a name; plain text between them."""
    at, named = f"CAST({value.sql} AS TIMESTAMP_NTZ)", moment(value)
    parts = []
    for text, bare, letter in re.findall(r"([^%]+)|%(-?)(.?)", form.name, re.DOTALL):
        if text or (letter == "%" and not bare):
            parts.append(string(text or "%"))
        elif letter in _NAMES and not bare:
            parts.append(f"date_format({named}, '{_NAMES[letter]}')")
        elif letter in _LETTERS:
            unit, digits = _LETTERS[letter]
            digit = f"CAST({PARTS[unit].format(at)} AS STRING)"
            parts.append(digit if bare else f"lpad({digit}, {digits}, '0')")
        else:
            raise refused(f"strftime with %{bare}{letter}")
    return Value(f"concat({', '.join(parts)})", TEXT)


def epoch(given: list[Value]) -> Value:
    return Value(f"(CAST(unix_micros({moment(given[0])}) AS DOUBLE) / 1000000D)", DOUBLE)


def interval(values: Walk, node: exp.Expr) -> Value:
    unit = str(node.args["unit"].name).upper().removesuffix("S")
    amount = int(node.this.name)
    months = {"YEAR": 12, "QUARTER": 3, "MONTH": 1, "DECADE": 120, "CENTURY": 1200}.get(unit)
    seconds = {"WEEK": 604800, "DAY": 86400, "HOUR": 3600, "MINUTE": 60, "SECOND": 1}.get(unit)
    if months is not None and abs(amount * months) <= 12_000:
        return Value(f"INTERVAL '{amount * months}' MONTH", INTERVAL)
    if seconds is not None and abs(amount * seconds) <= 86400 * 366_000:
        return Value(f"INTERVAL '{amount * seconds}' SECOND", INTERVAL)
    raise refused(f"an interval of {amount} {unit.lower()}s")


def moved(word: str, left: Value, right: Value) -> Value:
    """Dates and intervals, where DuckDB has them; within years that both calendars hold."""
    kinds = (left.type.kind, right.type.kind)
    if kinds == ("DATE", "DATE") and word == "-":
        return Value(f"CAST(datediff({left.sql}, {right.sql}) AS BIGINT)", LONG)
    if kinds[0] == "INTERVAL" and word == "+":
        left, right, kinds = right, left, kinds[::-1]
    if kinds[0] in ("DATE", "TIMESTAMP") and kinds[1] == "INTERVAL" and word in "+-":
        at = f"CAST({left.sql} AS TIMESTAMP_NTZ)"
        sane = f"{at} BETWEEN TIMESTAMP_NTZ'0001-01-01' AND TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"
        return Value(f"(CASE WHEN {sane} THEN {at} {word} {right.sql} END)", TIMESTAMP)
    if kinds == ("DATE", "INTEGER") and word in "+-":
        days = number(right).sql
        sane = f"{days} BETWEEN -1000000L AND 1000000L"
        sign = "" if word == "+" else "-"
        return Value(f"date_add({left.sql}, CASE WHEN {sane} THEN CAST({sign}{days} AS INT) END)", DATE)
    raise refused(f"{left.type.sql} {word} {right.type.sql}")
