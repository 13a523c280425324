"""Functions and dates of exact queries in Spark's SQL.

===========================  =========================================================================================
DuckDB                       Spark, and why
===========================  =========================================================================================
``SUM`` of 64-bit integers   three sums of 21 and 22 bits, combined in DECIMAL(38,0): exact up to 2^41 rows, in a
                             third of the time of a sum of decimals; a plain sum would overflow above 64 bits
``SUM`` of decimals          of DECIMAL(38,s), DuckDB's type
``AVG`` of integers          the exact sum over the count, as doubles: Spark would add doubles
aggregates of doubles        over the sorted values of a group, by one task: Spark adds in the order of arrival
``MODE``, ``ARG_MAX`` ties   the least (greatest) value: chosen by values alone
``x // 2`` over a sum        see :mod:`dpsql.spark.spark_values`
``PERCENTILE_DISC``          of doubles only; the plain one of a whole column is sums over its distinct values, for
                             Spark would keep all of them in one task's memory
``ARG_MAX(a, b)``            ``max_by`` of the rows that have both: DuckDB skips a NULL in either
``ln(x)`` and others         written out for zero and below: Spark returns NULL, IEEE an infinity or NaN
``floor``, ``ceil``          back to DOUBLE, and only below 2^52: Spark returns a BIGINT, and 0 for NaN
``trim(x)``                  with the list of Unicode's spaces: Spark strips one of them
``concat``                   NULL is an empty text
``substring(x, 0, n)``       one character less: DuckDB counts from the position before the first
regular expressions          refused: Java's backtrack, and time must not depend on a row
``reverse``, ``levenshtein`` refused: by characters there, by graphemes or bytes in DuckDB
``strftime``                 its numbers concatenated, with leading zeros; other letters, and ``strptime``, are refused
``list[n]``                  ``get``, which counts from 0 and returns NULL outside
``signbit(x)``               the half plane of ``atan2``; the sign of a NaN is not seen
===========================  =========================================================================================

``lower`` and ``upper`` follow Java's rules if one letter becomes two (ß, İ) or depends on its position (final sigma);
mathematics on floats may differ in the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from sqlglot import exp

from dpsql.binding.values import sql_types
from dpsql.binding.values.sql_types import BOOLEAN, DATE, DOUBLE, HUGEINT, TEXT, TIMESTAMP, TINYINT, Type
from dpsql.language.functions import NAME_OF_CLASS, ROW_ALIASES
from dpsql.spark import spark_values
from dpsql.spark.spark_values import HASH, LONG, SparkValue, Walk, is_long, quote_text, refusal, write_cast


def translate_call(walk: Walk, node: exp.Expr) -> SparkValue:
    """Return a function called by name, or in the catalogue of names; BindError if Spark has no equivalent."""
    if isinstance(node, exp.Anonymous):
        name, places = str(node.this).lower(), list(node.expressions)
    elif (row := NAME_OF_CLASS.get(type(node))) is not None and "ROWS" in row.modes:
        name, places = row.name, [node.args.get(key) for key in row.parts]
    else:
        raise refusal(node.sql_name() if isinstance(node, exp.Func) else node.key.upper())
    return _call(ROW_ALIASES.get(name, name), *(walk.of(place) for place in places if place is not None))


def _call(name: str, *given: SparkValue) -> SparkValue:
    if name not in _FUNCTIONS:
        raise refusal(f"the function {name}")
    return _FUNCTIONS[name](*given)


def _fill(template: str, wanted: Type | None, kind: Type, *given: SparkValue) -> SparkValue:
    """Substitute values in a template, as doubles or unchanged; for text functions they must be texts."""
    if wanted == TEXT and any(v.type != TEXT for v in given):
        raise refusal(f"a text function of {given[0].type.sql}")
    return SparkValue(
        template.format(*(write_cast(v, DOUBLE) if wanted == DOUBLE else v.sql for v in given)), kind
    )


# -- hashes -----------------------------------------------------------------------------------------------------


def _hash(*given: SparkValue) -> SparkValue:
    """Hash values, mixed one after another; one hash is mixed again.

    Spark skips NULLs and the ends of lists, so for several values the positions of NULLs are mixed in too. Otherwise
    (NULL, 1) and (1, NULL) would have one hash, and the order of arrival, which other units' rows can change, would
    choose between them.
    """
    parts = [spark_values.write_bits(v) if v.type == HASH else v.sql for v in given]
    shapes = [shape for v in given for shape in _shape(v.sql, v.type)]
    if len(given) > 1 or shapes:
        parts += [f"({v.sql} IS NULL)" for v in given if v.type != HASH]
    return SparkValue(f"xxhash64({', '.join([*parts, *shapes])})", HASH)


def _shape(text: str, kind: Type) -> list[str]:
    """Return the length of a list, and which of its elements are NULL."""
    if kind.element is None:
        return []
    within = ["v IS NULL", *_shape("v", kind.element)]
    return [f"size({text})", *(f"transform({text}, v -> {part})" for part in within)]


def _xor(left: SparkValue, right: SparkValue) -> SparkValue:
    kind = HASH if HASH in (left.type, right.type) else LONG
    return SparkValue(f"({spark_values.write_bits(left)} ^ {spark_values.write_bits(right)})", kind)


# -- numbers ----------------------------------------------------------------------------------------------------


def _real(template: str, kind: Type = DOUBLE) -> Callable[..., SparkValue]:
    return partial(_fill, template, DOUBLE, kind)


def _logarithm(name: str) -> Callable[..., SparkValue]:
    """Return a function for a logarithm that is written out for zero and below, for which Spark returns NULL."""
    ends = "WHEN {0} = 0D THEN double('-Infinity') WHEN {0} < 0D THEN double('NaN')"
    return _real(f"(CASE WHEN {{0}} > 0D THEN {name}({{0}}) {ends} END)")


def _log(base: SparkValue, x: SparkValue) -> SparkValue:
    over, under = (_logarithm("ln")(v).sql for v in (x, base))
    return SparkValue(spark_values.write_quotient(over, under), DOUBLE)


_WHOLE = "4503599627370496D"
"""From 2^52 on, every double is an integer."""


def _round(name: str, x: SparkValue, digits: SparkValue | None = None) -> SparkValue:
    kind, places = x.type, digits.low if digits is not None else None
    if kind.kind == "DOUBLE":
        d = write_cast(x, DOUBLE)
        if name == "round":
            sql = _round_double(d, places or 0)
        elif places is not None:
            raise refusal(f"{name} with digits")
        else:
            inside = f"CAST({d} AS BIGINT)" if name == "trunc" else f"{name}({d})"
            sql = f"(CASE WHEN abs({d}) < {_WHOLE} THEN CAST({inside} AS DOUBLE) ELSE {d} END)"
        return spark_values.translate_cast(SparkValue(sql, DOUBLE), kind)
    if kind.kind == "DECIMAL" and name != "trunc" and (places is None or name == "round"):
        before, after = kind.digits
        wanted = sql_types.decimal(before + after, max(0, min(after, places or 0)))
        inside = f"round({x.sql}, {places or 0})" if name == "round" else f"{name}({x.sql})"
        return SparkValue(f"try_cast({inside} AS {wanted.sql})", wanted)
    if kind.kind == "INTEGER" and (places is None or places >= 0):
        return spark_values.widen_number(x)
    if name == "round" and is_long(kind):
        return SparkValue(f"try_cast(round({write_cast(x, HUGEINT)}, {places}) AS BIGINT)", LONG)
    raise refusal(f"{name} of {kind.sql}")


def _round_double(d: str, places: int) -> str:
    """Round half away from zero; to digits as DuckDB does: scale, round, and scale back."""
    if places == 0:
        return f"round({d})"
    if not -22 <= places <= 22:
        raise refusal("ROUND to so many digits")
    there, back = "*/" if places > 0 else "/*"
    power = f"1.0E{abs(places)}D"
    scaled = f"{d} {there} {power}"
    return f"(CASE WHEN abs({scaled}) < {_WHOLE} THEN round({scaled}) {back} {power} ELSE {d} END)"


def _sign(x: SparkValue) -> SparkValue:
    if x.type.kind == "DOUBLE":
        tests = (
            "WHEN {0} = double('NaN') THEN 0 WHEN {0} > 0D THEN 1 WHEN {0} < 0D THEN -1 WHEN {0} = 0D THEN 0"
        )
        return _real(f"CAST(CASE {tests} END AS TINYINT)", TINYINT)(x)
    return SparkValue(f"CAST(signum({x.sql}) AS TINYINT)", TINYINT)


def _absolute(x: SparkValue) -> SparkValue:
    x = spark_values.widen_number(x) if x.type.kind == "INTEGER" else x
    return SparkValue(f"abs({x.sql})", x.type)


def _count_bits(x: SparkValue) -> SparkValue:
    return SparkValue(
        f"CAST(bit_count({spark_values.write_bits(spark_values.widen_number(x))}) AS TINYINT)", TINYINT
    )


# -- text -------------------------------------------------------------------------------------------------------

_SPACES = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


def _text(template: str, kind: Type = TEXT) -> Callable[..., SparkValue]:
    return partial(_fill, template, TEXT, kind)


def _trim(side: str, text: SparkValue, letters: SparkValue | None = None) -> SparkValue:
    stripped = quote_text(_SPACES) if letters is None else letters.sql
    return SparkValue(f"trim({side} {stripped} FROM {text.sql})", TEXT)


def _substring(text: SparkValue, first: SparkValue, count: SparkValue | None = None) -> SparkValue:
    start, length = first.low, count.low if count is not None else None
    if start is None or start < 0 or (length is not None and length < 0):
        raise refusal("a substring from the end")
    if start == 0:
        start, length = 1, None if length is None else max(0, length - 1)
    return SparkValue(f"substring({text.sql}, {start}{'' if length is None else f', {length}'})", TEXT)


def _side(name: str, text: SparkValue, count: SparkValue) -> SparkValue:
    if count.low is None or count.low < 0:
        raise refusal(f"{name} without so many characters")
    return SparkValue(f"{name}({text.sql}, {count.low})", TEXT)


def _split_part(text: SparkValue, mark: SparkValue, place: SparkValue) -> SparkValue:
    if mark.sql == "''" or not place.low:
        raise refusal("split_part by nothing")
    return SparkValue(f"split_part({text.sql}, {mark.sql}, {place.low})", TEXT)


def _concat(*given: SparkValue) -> SparkValue:
    parts = (f"coalesce({v.sql}, '')" for v in given)
    return SparkValue(f"concat({', '.join(parts)})", TEXT)


def _match(walk: Walk, node: exp.Expr, mark: str | None = None) -> SparkValue:
    if isinstance(node, exp.Escape):
        return _match(walk, node.this, node.expression.name)
    pattern = node.expression
    if not isinstance(node, exp.Like | exp.ILike) or not isinstance(pattern, exp.Literal):
        raise refusal(f"{node.key.upper()} with this pattern")
    text = pattern.name
    if mark != "\\":
        text = text.replace("\\", "\\\\")
        if mark is not None:
            text = re.sub(f"(?s){re.escape(mark)}(.)", lambda m: m[1] if m[1] == mark else "\\" + m[1], text)
    word = ("NOT " if node.args.get("negate") else "") + node.key.upper()
    return SparkValue(f"({walk.of(node.this).sql} {word} {quote_text(text)})", BOOLEAN)


# -- lists ------------------------------------------------------------------------------------------------------


def _length(given: SparkValue) -> SparkValue:
    if given.type.kind == "LIST":
        return _fill("(CASE WHEN {0} IS NOT NULL THEN CAST(size({0}) AS BIGINT) END)", None, LONG, given)
    return _text("CAST(length({0}) AS BIGINT)", LONG)(given)


def _contains(held: SparkValue, sought: SparkValue) -> SparkValue:
    """Return membership in a list; Spark's is NULL if the list has a NULL and not the value."""
    if held.type.element is None:
        raise refusal(f"list_contains of {held.type.sql}")
    item = write_cast(sought, held.type.element)
    rest = f"CASE WHEN {held.sql} IS NOT NULL AND {item} IS NOT NULL THEN FALSE END"
    return SparkValue(f"coalesce(array_contains({held.sql}, {item}), {rest})", BOOLEAN)


def _element(held: SparkValue, index: SparkValue) -> SparkValue:
    """Return the element at a literal index; negative indices count from the end, index 0 does not exist."""
    place = index.low
    if held.type.element is None or place is None:
        raise refusal(f"an element of {held.type.sql}")
    at = f"{place - 1}" if place > 0 else f"size({held.sql}) - {-place}" if place < 0 else "-1"
    return SparkValue(f"get({held.sql}, {at})", held.type.element)


def _slice(held: SparkValue, first: SparkValue, last: SparkValue) -> SparkValue:
    """Return ``list[first:last]`` from the start: for a position before the first element Spark returns nothing."""
    if held.type.element is None or first.low is None or last.low is None or min(first.low, last.low) < 0:
        raise refusal("a part of a list that is counted from its end")
    start = max(1, first.low)
    return SparkValue(f"slice({held.sql}, {start}, {max(0, last.low - start + 1)})", held.type)


# -- dates ------------------------------------------------------------------------------------------------------

_DATE_PARTS = {
    "year": "year({0})", "month": "month({0})", "day": "day({0})", "quarter": "quarter({0})",
    "week": "weekofyear({0})", "dow": "dayofweek({0}) - 1", "dayofweek": "dayofweek({0}) - 1",
    "weekday": "dayofweek({0}) - 1", "isodow": "weekday({0}) + 1", "doy": "dayofyear({0})",
    "dayofyear": "dayofyear({0})", "hour": "hour({0})", "minute": "minute({0})", "second": "second({0})",
}  # fmt: skip
_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
_LENGTHS = {"hour": 3600, "minute": 60, "second": 1}
_MONTHS = {"month": ("month", 12), "quarter": ("quarter", 4), "year": ("0 * month", 1)}


def _moment(value: SparkValue) -> str:
    """Return a timestamp in the session's zone, which is UTC: Spark's functions support no other."""
    if value.type.kind not in ("DATE", "TIMESTAMP"):
        raise refusal(f"{value.type.sql} as a date")
    return f"CAST({value.sql} AS TIMESTAMP)"


def _dated(template: str, kind: Type) -> Callable[..., SparkValue]:
    return lambda value: SparkValue(template.format(_moment(value)), kind)


def _date_part(unit: str, value: SparkValue) -> SparkValue:
    if unit not in _DATE_PARTS:
        raise refusal(f"the date part {unit}")
    _moment(value)
    return SparkValue(
        f"CAST({_DATE_PARTS[unit].format(f'CAST({value.sql} AS TIMESTAMP_NTZ)')} AS BIGINT)", LONG
    )


def _truncate(unit: str, value: SparkValue) -> SparkValue:
    if unit not in _UNITS:
        raise refusal(f"date_trunc to a {unit}")
    return SparkValue(f"CAST(date_trunc('{unit}', {_moment(value)}) AS TIMESTAMP_NTZ)", TIMESTAMP)


def _date_diff(unit: str, start: SparkValue, end: SparkValue) -> SparkValue:
    """Count the crossed boundaries of a unit."""
    one, two = _moment(start), _moment(end)
    if unit == "day":
        made = f"datediff({two}, {one})"
    elif unit == "week":
        if "TIMESTAMP" in (start.type.kind, end.type.kind):
            raise refusal("date_diff in weeks of timestamps", "cast to DATE.")
        made = f"datediff({two}, {one}) div 7"  # DuckDB counts whole weeks
    elif unit in _MONTHS:
        name, each = _MONTHS[unit]
        made = " - ".join(f"(year({t}) * {each} + {name}({t}))" for t in (two, one))
    elif unit in _LENGTHS:
        seconds = " - ".join(f"unix_seconds(date_trunc('{unit}', {t}))" for t in (two, one))
        made = f"({seconds}) div {_LENGTHS[unit]}L"
    else:
        raise refusal(f"date_diff in a {unit}")
    return SparkValue(f"CAST({made} AS BIGINT)", LONG)


def _in_unit(function: Callable[..., SparkValue]) -> Callable[..., SparkValue]:
    """Return a function whose first argument is the name of a time unit, as a literal."""
    return lambda unit, *given: function(unit.sql.strip("'").lower(), *given)


_LETTERS = {
    "Y": ("year", 4), "m": ("month", 2), "d": ("day", 2), "H": ("hour", 2), "M": ("minute", 2), "S": ("second", 2),
    "j": ("doy", 3), "w": ("dow", 1), "u": ("isodow", 1), "V": ("week", 2),
}  # fmt: skip
_NAMES = {"A": "EEEE", "a": "EEE", "B": "MMMM", "b": "MMM"}


def _format_time(walk: Walk, node: exp.Expr) -> SparkValue:
    """Translate strftime letter by letter, each a number of fixed digits or a name; plain text between them."""
    value = walk.of(node.this)
    at, named, parts = f"CAST({value.sql} AS TIMESTAMP_NTZ)", _moment(value), []
    for text, bare, letter in re.findall(r"([^%]+)|%(-?)(.?)", node.args["format"].name, re.DOTALL):
        if text or (letter == "%" and not bare):
            parts.append(quote_text(text or "%"))
        elif letter in _NAMES and not bare:
            parts.append(f"date_format({named}, '{_NAMES[letter]}')")
        elif letter in _LETTERS:
            unit, digits = _LETTERS[letter]
            digit = f"CAST({_DATE_PARTS[unit].format(at)} AS STRING)"
            parts.append(digit if bare else f"lpad({digit}, {digits}, '0')")
        else:
            raise refusal(f"strftime with %{bare}{letter}")
    return SparkValue(f"concat({', '.join(parts)})", TEXT)


_INTERVALS = {
    "YEAR": ("MONTH", 12), "QUARTER": ("MONTH", 3), "MONTH": ("MONTH", 1), "DECADE": ("MONTH", 120),
    "CENTURY": ("MONTH", 1200), "WEEK": ("SECOND", 604800), "DAY": ("SECOND", 86400), "HOUR": ("SECOND", 3600),
    "MINUTE": ("SECOND", 60), "SECOND": ("SECOND", 1),
}  # fmt: skip
_LONGEST = {"MONTH": 12_000, "SECOND": 86400 * 366_000, "": -1}
"""Years supported by Spark."""


def _interval(_: Walk, node: exp.Expr) -> SparkValue:
    unit, amount = str(node.args["unit"].name).upper().removesuffix("S"), int(node.this.name)
    name, length = _INTERVALS.get(unit, ("", 1))
    if abs(amount * length) > _LONGEST[name]:
        raise refusal(f"an interval of {amount} {unit.lower()}s")
    return SparkValue(f"INTERVAL '{amount * length}' {name}", sql_types.INTERVAL)


def translate_date_arithmetic(word: str, left: SparkValue, right: SparkValue) -> SparkValue:
    """Translate arithmetic on dates and intervals, within years supported by both calendars."""
    if left.type.kind == "INTERVAL" and word == "+":
        left, right = right, left
    kinds = (left.type.kind, right.type.kind)
    if kinds == ("DATE", "DATE") and word == "-":
        return SparkValue(f"CAST(datediff({left.sql}, {right.sql}) AS BIGINT)", LONG)
    if kinds in (("DATE", "INTERVAL"), ("TIMESTAMP", "INTERVAL")) and word in "+-":
        at = f"CAST({left.sql} AS TIMESTAMP_NTZ)"
        sane = f"{at} BETWEEN TIMESTAMP_NTZ'0001-01-01' AND TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"
        return SparkValue(f"(CASE WHEN {sane} THEN {at} {word} {right.sql} END)", TIMESTAMP)
    if kinds == ("DATE", "INTEGER") and word in "+-":
        days, sign = spark_values.widen_number(right).sql, "" if word == "+" else "-"
        sane = f"{days} BETWEEN -1000000L AND 1000000L"
        return SparkValue(f"date_add({left.sql}, CASE WHEN {sane} THEN CAST({sign}{days} AS INT) END)", DATE)
    raise refusal(f"{left.type.sql} {word} {right.type.sql}")


# -- tables -----------------------------------------------------------------------------------------------------

_FUNCTIONS: dict[str, Callable[..., SparkValue]] = {
    "hash": _hash, "xor": _xor,
    **{name: _real(name + "({0})") for name in (
        "sqrt", "cbrt", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "degrees", "radians",
    )},
    **{name: _logarithm(name) for name in ("ln", "log2", "log10")},
    "log": _log, "pow": _real("power({0}, {1})"), "atan2": _real("atan2({0}, {1})"), "pi": _real("pi()"),
    **{name: partial(_round, name) for name in ("floor", "ceil", "round", "trunc")},
    "sign": _sign, "abs": _absolute, "bit_count": _count_bits,
    "isnan": _real("({0} = double('NaN'))", BOOLEAN), "isinf": _real("(abs({0}) = double('Infinity'))", BOOLEAN),
    "isfinite": _real("(abs({0}) < double('Infinity'))", BOOLEAN),
    "signbit": _real("coalesce({0} < 0D OR ({0} = 0D AND atan2({0}, -1D) < 0D), CASE WHEN {0} IS NOT NULL THEN FALSE END)",
                     BOOLEAN),
    "lower": _text("lower({0})"), "upper": _text("upper({0})"), "length": _length, "len": _length,
    "strlen": _text("CAST(octet_length({0}) AS BIGINT)", LONG),
    "bit_length": _text("CAST(bit_length({0}) AS BIGINT)", LONG),
    "trim": partial(_trim, "BOTH"), "ltrim": partial(_trim, "LEADING"), "rtrim": partial(_trim, "TRAILING"),
    "substring": _substring, "left": partial(_side, "left"), "right": partial(_side, "right"), "split_part": _split_part,
    "replace": _text("replace({0}, {1}, {2})"), "translate": _text("translate({0}, {1}, {2})"),
    "unicode": _text("(CASE WHEN {0} = '' THEN -1 ELSE ascii({0}) END)", LONG),
    "strpos": _text("CAST(instr({0}, {1}) AS BIGINT)", LONG), "ascii": _text("ascii({0})", LONG),
    **dict.fromkeys(("starts_with", "prefix"), _text("startswith({0}, {1})", BOOLEAN)),
    **dict.fromkeys(("ends_with", "suffix"), _text("endswith({0}, {1})", BOOLEAN)),
    "contains": _text("contains({0}, {1})", BOOLEAN),
    "md5": _text("md5({0})"), "sha1": _text("sha1({0})"), "sha256": _text("sha2({0}, 256)"),
    "concat": _concat, "concat_ws": lambda *given: SparkValue(f"concat_ws({', '.join(v.sql for v in given)})", TEXT),
    "||": _text("concat({0}, {1})"), "list_contains": _contains, "list_extract": _element,
    "array_slice": _slice,
    "date_part": _in_unit(_date_part), "date_trunc": _in_unit(_truncate), "date_diff": _in_unit(_date_diff),
    "epoch": _dated("(CAST(unix_micros({0}) AS DOUBLE) / 1000000D)", DOUBLE),
    "last_day": _dated("last_day({0})", DATE), "dayname": _dated("date_format({0}, 'EEEE')", TEXT),
    "monthname": _dated("date_format({0}, 'MMMM')", TEXT),
    **{name: partial(_date_part, name) for name in _DATE_PARTS},
}  # fmt: skip


def _log_of_base(walk: Walk, node: exp.Expr) -> SparkValue:
    base, x = node.this, node.args.get("expression")
    if x is None:
        return _call("log10", walk.of(base))
    if isinstance(base, exp.Literal) and base.name in ("2", "10"):
        return _call(f"log{base.name}", walk.of(x))
    return _log(walk.of(base), walk.of(x))


def _trim_side(walk: Walk, node: exp.Expr) -> SparkValue:
    places = (node.this, node.args.get("expression"))
    side = str(node.args.get("position") or "BOTH").upper()
    return _trim(side, *(walk.of(place) for place in places if place is not None))


def _named(name: str, *keys: str) -> Callable[[Walk, exp.Expr], SparkValue]:
    """Return a reader of a node as a call of a function, with its arguments under these keys."""
    return lambda walk, node: _call(
        name, *(walk.of(node.args[k]) for k in keys if node.args.get(k) is not None)
    )


def _of_unit(
    function: Callable[..., SparkValue], unit: str, *keys: str
) -> Callable[[Walk, exp.Expr], SparkValue]:
    return lambda walk, node: function(
        node.args[unit].name.lower(), *(walk.of(node.args[key]) for key in keys)
    )


CALL_NODES: dict[type[exp.Expr], Callable[[Walk, exp.Expr], SparkValue]] = {
    exp.Interval: _interval, exp.Log: _log_of_base, exp.Trim: _trim_side, exp.TimeToStr: _format_time,
    exp.Floor: _named("floor", "this"), exp.Ceil: _named("ceil", "this"), exp.Abs: _named("abs", "this"),
    exp.Round: _named("round", "this", "decimals"), exp.Trunc: _named("trunc", "this", "decimals"),
    exp.Sign: _named("sign", "this"), exp.Length: _named("length", "this"),
    exp.ArraySlice: _named("array_slice", "this", "start", "end"),
    exp.SHA2: _named("sha256", "this"), exp.ArrayContains: _named("list_contains", "this", "expression"),
    exp.Concat: lambda walk, node: _call("concat", *map(walk.of, node.expressions)),
    exp.ConcatWs: lambda walk, node: _call("concat_ws", *map(walk.of, node.expressions)),
    exp.DPipe: _named("||", "this", "expression"), exp.Like: _match, exp.ILike: _match, exp.Escape: _match,
    exp.TimeToUnix: _named("epoch", "this"), exp.LastDay: _named("last_day", "this"),
    exp.Dayname: _named("dayname", "this"), exp.Monthname: _named("monthname", "this"),
    exp.Extract: _of_unit(_date_part, "this", "expression"), exp.DateDiff: _of_unit(_date_diff, "unit", "expression", "this"),
    exp.TimestampTrunc: _of_unit(_truncate, "unit", "this"), exp.DateTrunc: _of_unit(_truncate, "unit", "this"),
}  # fmt: skip
