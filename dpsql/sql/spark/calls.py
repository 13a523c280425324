"""Functions and aggregates of exact queries in Spark's SQL.

===========================  =========================================================================================
DuckDB                       Spark, and why
===========================  =========================================================================================
``SUM`` of 64-bit integers   three sums of 21 and 22 bits, put together in DECIMAL(38,0): exact up to 2^41 rows, at a
                             third of the time of a sum of decimals; a plain sum would raise beyond 64 bits
``SUM`` of decimals          of DECIMAL(38,s), which is what DuckDB gives
``AVG`` of integers          the exact sum over the count, as doubles: Spark would add doubles
aggregates of doubles        over the sorted values of a group, by one task: Spark adds in the order of arrival
``MODE``, ``ARG_MAX`` ties   the least (greatest) value: chosen by values alone
``x // 2`` over a sum        see :mod:`dpsql.sql.spark.values`
``PERCENTILE_DISC``          of doubles only; the plain one of a whole column is sums over its distinct values, for
                             Spark would hold all of them in one task's memory
``ARG_MAX(a, b)``            ``max_by`` of the rows that have both: DuckDB skips a NULL in either
``ln(x)`` and its kin        written out for zero and below, where Spark gives NULL and IEEE an infinity or NaN
``floor``, ``ceil``          back to DOUBLE, and only below 2^52: Spark gives a BIGINT, and 0 for NaN
``trim(x)``                  with the list of Unicode's spaces: Spark strips one of them
``concat``                   NULL is an empty text
``substring(x, 0, n)``       one character less: DuckDB counts from the place before the first
regular expressions          refused: Java's backtrack, and time must not depend on a row
``reverse``, ``levenshtein`` refused: by characters there, by graphemes or bytes in DuckDB
``strftime``                 its numbers put together, with zeros before; other letters, and ``strptime``, are refused
``list[n]``                  ``get``, which counts from 0 and gives NULL outside
``signbit(x)``               the half plane of ``atan2``; the sign of a NaN is not seen
===========================  =========================================================================================

``lower`` and ``upper`` follow Java's rules where one letter becomes two (ß, İ) or depends on its place (final sigma);
mathematics on floats may differ in the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from sqlglot import exp

from dpsql.sql.expressions.types import BOOLEAN, DATE, DOUBLE, FLOAT, HUGEINT, TEXT, TINYINT, Type, decimal
from dpsql.sql.parse.functions import NAME_OF_CLASS, ROW_ALIASES
from dpsql.sql.spark.aggregates import (
    SPARK_DATE_PARTS,
    translate_date_diff,
    translate_date_part,
    translate_epoch,
    translate_interval,
    translate_strftime,
    translate_truncation,
    write_timestamp,
)
from dpsql.sql.spark.values import (
    HASH,
    LONG,
    SparkValue,
    Walk,
    is_long,
    quote_text,
    refusal,
    translate_cast,
    widen_number,
    write_bits,
    write_cast,
    write_quotient,
)


def translate_call(values: Walk, node: exp.Expr) -> SparkValue:
    """Return a function, an aggregate or a window.

    Raises:
        BindError: Spark has no equal of it.
    """
    handler = _HANDLERS.get(type(node))
    if handler is not None:
        return handler(values, node)
    if isinstance(node, exp.Anonymous):
        name, places = str(node.this).lower(), list(node.expressions)
    elif (row := NAME_OF_CLASS.get(type(node))) is not None and "ROWS" in row.modes:
        name, keys = row.name, row.parts
        places = [node.args[key] for key in keys if node.args.get(key) is not None]
    else:
        raise refusal(node.sql_name() if isinstance(node, exp.Func) else node.key.upper())
    return translate_named(ROW_ALIASES.get(name, name), [values.of(place) for place in places])


def translate_named(name: str, given: list[SparkValue]) -> SparkValue:
    """Translate a function by its name."""
    function = _FUNCTIONS.get(name)
    if function is None:
        raise refusal(f"the function {name}")
    return function(given)


# -- hashes -----------------------------------------------------------------------------------------------------


def _hash(given: list[SparkValue]) -> SparkValue:
    """Hash values, mixed one after another; one hash is mixed again.

    Spark passes over what is missing and over the ends of lists, so where there are several values, which of them are
    missing is mixed in too. Else (NULL, 1) and (1, NULL) had one hash, and the order in which rows arrive, which other
    units' rows can change, would choose between them.
    """
    parts = [write_bits(v) if v.type == HASH else v.sql for v in given]
    shapes = [shape for v in given for shape in _shape(v.sql, v.type)]
    if len(given) > 1 or shapes:
        parts += [f"({v.sql} IS NULL)" for v in given if v.type != HASH]
    return SparkValue(f"xxhash64({', '.join([*parts, *shapes])})", HASH)


def _shape(text: str, kind: Type) -> list[str]:
    """Return how long a list is, and which of its elements are missing."""
    if kind.element is None:
        return []
    within = ["v IS NULL", *_shape("v", kind.element)]
    return [f"size({text})", *(f"transform({text}, v -> {part})" for part in within)]


# -- numbers ----------------------------------------------------------------------------------------------------


def _real(template: str) -> Callable[[list[SparkValue]], SparkValue]:
    def made(given: list[SparkValue]) -> SparkValue:
        return SparkValue(template.format(*(write_cast(v, DOUBLE) for v in given)), DOUBLE)

    return made


def _logarithm(name: str) -> str:
    return (
        "(CASE WHEN {0} > 0D THEN "
        + name
        + "({0}) WHEN {0} = 0D THEN double('-Infinity') WHEN {0} < 0D THEN double('NaN') END)"
    )


def _log(given: list[SparkValue]) -> SparkValue:
    base, x = (_real(_logarithm("ln"))([v]).sql for v in given)
    return SparkValue(write_quotient(x, base), DOUBLE)


_WHOLE = "4503599627370496D"
"""From 2^52 on, every double is a whole number."""


def _rounding(name: str) -> Callable[[list[SparkValue]], SparkValue]:
    def made(given: list[SparkValue]) -> SparkValue:
        x, kind = given[0], given[0].type
        places = given[1].low if len(given) > 1 else None
        if kind.kind == "DOUBLE":
            d = write_cast(x, DOUBLE)
            if name == "round":
                sql = _rounded(d, places or 0)
            elif places is not None:
                raise refusal(f"{name} with digits")
            else:
                inside = f"CAST({d} AS BIGINT)" if name == "trunc" else f"{name}({d})"
                sql = f"(CASE WHEN abs({d}) < {_WHOLE} THEN CAST({inside} AS DOUBLE) ELSE {d} END)"
            return translate_cast(SparkValue(sql, DOUBLE), kind) if kind == FLOAT else SparkValue(sql, DOUBLE)
        if kind.kind == "DECIMAL":
            before, after = kind.digits
            kept = max(0, min(after, places or 0))
            wanted = decimal(before + after, kept)
            if name == "trunc" or (places is not None and name != "round"):
                raise refusal(f"{name} of {kind.sql}")
            inside = f"round({x.sql}, {places or 0})" if name == "round" else f"{name}({x.sql})"
            return SparkValue(f"try_cast({inside} AS {wanted.sql})", wanted)
        if kind.kind == "INTEGER" and (places is None or places >= 0):
            return widen_number(x)
        if kind.kind == "INTEGER" and name == "round" and is_long(kind):
            return SparkValue(f"try_cast(round({write_cast(x, HUGEINT)}, {places}) AS BIGINT)", LONG)
        raise refusal(f"{name} of {kind.sql}")

    return made


def _rounded(d: str, places: int) -> str:
    """Half away from zero. To digits, as DuckDB: scaled, rounded, and scaled back."""
    if places == 0:
        return f"round({d})"
    if not -22 <= places <= 22:
        raise refusal("ROUND to so many digits")
    scaled = f"{d} {'*' if places > 0 else '/'} 1.0E{abs(places)}D"
    back = "/" if places > 0 else "*"
    return f"(CASE WHEN abs({scaled}) < {_WHOLE} THEN round({scaled}) {back} 1.0E{abs(places)}D ELSE {d} END)"


def _sign(given: list[SparkValue]) -> SparkValue:
    x = given[0]
    if x.type.kind == "DOUBLE":
        d = write_cast(x, DOUBLE)
        tests = (
            f"WHEN {d} = double('NaN') THEN 0 WHEN {d} > 0D THEN 1 WHEN {d} < 0D THEN -1 WHEN {d} = 0D THEN 0"
        )
        return SparkValue(f"CAST(CASE {tests} END AS TINYINT)", TINYINT)
    return SparkValue(f"CAST(signum({x.sql}) AS TINYINT)", TINYINT)


def _bit_count(given: list[SparkValue]) -> SparkValue:
    return SparkValue(f"CAST(bit_count({write_bits(widen_number(given[0]))}) AS TINYINT)", TINYINT)


def _asked(template: str) -> Callable[[list[SparkValue]], SparkValue]:
    return lambda given: SparkValue(template.format(*(write_cast(v, DOUBLE) for v in given)), BOOLEAN)


# -- text -------------------------------------------------------------------------------------------------------

_SPACES = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


def _texts(template: str, kind: Type = TEXT) -> Callable[[list[SparkValue]], SparkValue]:
    def made(given: list[SparkValue]) -> SparkValue:
        if any(v.type != TEXT for v in given):
            raise refusal(f"a text function of {given[0].type.sql}")
        return SparkValue(template.format(*(v.sql for v in given)), kind)

    return made


def _stripped(side: str) -> Callable[[list[SparkValue]], SparkValue]:
    def made(given: list[SparkValue]) -> SparkValue:
        characters = given[1].sql if len(given) > 1 else quote_text(_SPACES)
        return SparkValue(f"trim({side} {characters} FROM {given[0].sql})", TEXT)

    return made


def _substring(given: list[SparkValue]) -> SparkValue:
    text, start = given[0].sql, given[1].low
    length = given[2].low if len(given) > 2 else None
    if start is None or start < 0 or (length is not None and length < 0):
        raise refusal("a substring from the end")
    if start == 0:
        start, length = 1, None if length is None else max(0, length - 1)
    return SparkValue(f"substring({text}, {start}{'' if length is None else f', {length}'})", TEXT)


def _side(name: str) -> Callable[[list[SparkValue]], SparkValue]:
    def made(given: list[SparkValue]) -> SparkValue:
        count = given[1].low
        if count is None or count < 0:
            raise refusal(f"{name} without so many characters")
        return SparkValue(f"{name}({given[0].sql}, {count})", TEXT)

    return made


def _split_part(given: list[SparkValue]) -> SparkValue:
    if given[1].sql == "''" or not given[2].low:
        raise refusal("split_part by nothing")
    return SparkValue(f"split_part({given[0].sql}, {given[1].sql}, {given[2].low})", TEXT)


def _concat(given: list[SparkValue]) -> SparkValue:
    parts = [f"coalesce({v.sql}, '')" for v in given]
    return SparkValue(f"concat({', '.join(parts)})", TEXT)


def _joined(values: Walk, node: exp.Expr) -> SparkValue:
    left, right = values.of(node.this), values.of(node.expression)
    return _texts("concat({0}, {1})")([left, right])


def _concatenated(name: str) -> Callable[[Walk, exp.Expr], SparkValue]:
    return lambda values, node: translate_named(name, [values.of(p) for p in node.expressions])


def _like(values: Walk, node: exp.Expr) -> SparkValue:
    return _matched(values, node, None)


def _escaped(values: Walk, node: exp.Expr) -> SparkValue:
    return _matched(values, node.this, node.expression.name)


def _matched(values: Walk, node: exp.Expr, mark: str | None) -> SparkValue:
    pattern = node.expression
    if not isinstance(node, exp.Like | exp.ILike) or not isinstance(pattern, exp.Literal):
        raise refusal(f"{node.key.upper()} with this pattern")
    text = pattern.name.replace("\\", "\\\\") if mark != "\\" else pattern.name
    if mark is not None and mark != "\\":
        text = re.sub(
            f"{re.escape(mark)}(.)", lambda m: m[1] if m[1] == mark else "\\" + m[1], text, flags=re.S
        )
    word = "LIKE" if isinstance(node, exp.Like) else "ILIKE"
    negated = "NOT " if node.args.get("negate") else ""
    return SparkValue(f"({values.of(node.this).sql} {negated}{word} {quote_text(text)})", BOOLEAN)


def _trim(values: Walk, node: exp.Expr) -> SparkValue:
    side = str(node.args.get("position") or "BOTH").upper()
    places = [p for p in (node.this, node.args.get("expression")) if p is not None]
    return _stripped(side)([values.of(p) for p in places])


# -- lists ------------------------------------------------------------------------------------------------------


def _length(given: list[SparkValue]) -> SparkValue:
    if given[0].type.kind == "LIST":
        return SparkValue(
            f"(CASE WHEN {given[0].sql} IS NOT NULL THEN CAST(size({given[0].sql}) AS BIGINT) END)", LONG
        )
    return _texts("CAST(length({0}) AS BIGINT)", LONG)(given)


def _contains(given: list[SparkValue]) -> SparkValue:
    """Spark's is NULL where the list holds a NULL and not the value."""
    held, sought = given
    if held.type.element is None:
        raise refusal(f"list_contains of {held.type.sql}")
    item = write_cast(sought, held.type.element)
    rest = f"CASE WHEN {held.sql} IS NOT NULL AND {item} IS NOT NULL THEN FALSE END"
    return SparkValue(f"coalesce(array_contains({held.sql}, {item}), {rest})", BOOLEAN)


def _element(given: list[SparkValue]) -> SparkValue:
    """Return the element at a literal index; negative indices count from the end, index 0 does not exist."""
    held, place = given[0], given[1].low
    if held.type.element is None or place is None:
        raise refusal(f"an element of {held.type.sql}")
    at = f"{place - 1}" if place > 0 else f"size({held.sql}) - {-place}" if place < 0 else "-1"
    return SparkValue(f"get({held.sql}, {at})", held.type.element)


def _date_part(name: str, given: list[SparkValue]) -> SparkValue:
    return translate_date_part([SparkValue(f"'{name}'", TEXT), *given])


def _xor(given: list[SparkValue]) -> SparkValue:
    kind = HASH if HASH in (given[0].type, given[1].type) else LONG
    return SparkValue(f"({write_bits(given[0])} ^ {write_bits(given[1])})", kind)


def _absolute(given: list[SparkValue]) -> SparkValue:
    x = given[0]
    return SparkValue(f"abs({widen_number(x).sql if x.type.kind == 'INTEGER' else x.sql})", x.type)


_FUNCTIONS: dict[str, Callable[[list[SparkValue]], SparkValue]] = {
    "hash": _hash, "xor": _xor,
    **{name: _real(name + "({0})") for name in (
        "sqrt", "cbrt", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "degrees", "radians",
    )},
    **{name: _real(_logarithm(name)) for name in ("ln", "log2", "log10")},
    "log": _log, "pow": _real("power({0}, {1})"), "atan2": _real("atan2({0}, {1})"), "pi": _real("pi()"),
    **{name: _rounding(name) for name in ("floor", "ceil", "round", "trunc")},
    "sign": _sign, "abs": _absolute,
    "isnan": _asked("({0} = double('NaN'))"), "isinf": _asked("(abs({0}) = double('Infinity'))"),
    "isfinite": _asked("(abs({0}) < double('Infinity'))"),
    "lower": _texts("lower({0})"), "upper": _texts("upper({0})"), "length": _length, "len": _length,
    "strlen": _texts("CAST(octet_length({0}) AS BIGINT)", LONG),
    "bit_length": _texts("CAST(bit_length({0}) AS BIGINT)", LONG),
    "trim": _stripped("BOTH"), "ltrim": _stripped("LEADING"), "rtrim": _stripped("TRAILING"),
    "substring": _substring, "left": _side("left"), "right": _side("right"), "split_part": _split_part,
    "replace": _texts("replace({0}, {1}, {2})"), "translate": _texts("translate({0}, {1}, {2})"),
    "unicode": _texts("(CASE WHEN {0} = '' THEN -1 ELSE ascii({0}) END)", LONG), "bit_count": _bit_count,
    "strpos": _texts("CAST(instr({0}, {1}) AS BIGINT)", LONG), "ascii": _texts("ascii({0})", LONG),
    **dict.fromkeys(("starts_with", "prefix"), _texts("startswith({0}, {1})", BOOLEAN)),
    **dict.fromkeys(("ends_with", "suffix"), _texts("endswith({0}, {1})", BOOLEAN)),
    "contains": _texts("contains({0}, {1})", BOOLEAN),
    "md5": _texts("md5({0})"), "sha1": _texts("sha1({0})"), "sha256": _texts("sha2({0}, 256)"),
    "concat": _concat, "concat_ws": lambda g: SparkValue(f"concat_ws({', '.join(v.sql for v in g)})", TEXT),
    "signbit": _asked("coalesce({0} < 0D OR ({0} = 0D AND atan2({0}, -1D) < 0D), CASE WHEN {0} IS NOT NULL THEN FALSE END)"),
    "list_contains": _contains, "list_extract": _element, "date_part": translate_date_part,
    "date_trunc": translate_truncation, "date_diff": translate_date_diff, "epoch": translate_epoch,
    "last_day": lambda g: SparkValue(f"last_day({write_timestamp(g[0])})", DATE),
    "dayname": lambda g: SparkValue(f"date_format({write_timestamp(g[0])}, 'EEEE')", TEXT),
    "monthname": lambda g: SparkValue(f"date_format({write_timestamp(g[0])}, 'MMMM')", TEXT),
    **{name: partial(_date_part, name) for name in SPARK_DATE_PARTS},
}  # fmt: skip


def _base(values: Walk, node: exp.Expr) -> SparkValue:
    """LOG2(x) and LOG10(x) are read as LOG with a base."""
    base, x = node.this, node.args.get("expression")
    if x is None:
        return translate_named("log10", [values.of(base)])
    if isinstance(base, exp.Literal) and base.name in ("2", "10"):
        return translate_named(f"log{base.name}", [values.of(x)])
    return translate_named("log", [values.of(base), values.of(x)])


def _one(name: str, *keys: str) -> Callable[[Walk, exp.Expr], SparkValue]:
    return lambda values, node: translate_named(
        name, [values.of(node.args[k]) for k in keys if node.args.get(k) is not None]
    )


def _unit(name: str, *keys: str) -> Callable[[Walk, exp.Expr], SparkValue]:
    return lambda values, node: translate_named(
        name, [SparkValue(f"'{node.args['unit'].name}'", TEXT), *(values.of(node.args[k]) for k in keys)]
    )


def _extract(values: Walk, node: exp.Expr) -> SparkValue:
    return translate_date_part([SparkValue(f"'{node.this.name}'", TEXT), values.of(node.expression)])


_HANDLERS: dict[type[exp.Expr], Callable[[Walk, exp.Expr], SparkValue]] = {
    exp.Interval: translate_interval,
    exp.Log: _base, exp.Floor: _one("floor", "this"), exp.Ceil: _one("ceil", "this"),
    exp.Round: _one("round", "this", "decimals"), exp.Trunc: _one("trunc", "this", "decimals"),
    exp.Sign: _one("sign", "this"), exp.Length: _one("length", "this"), exp.Trim: _trim,
    exp.SHA2: _one("sha256", "this"), exp.ArrayContains: _one("list_contains", "this", "expression"),
    exp.Concat: _concatenated("concat"), exp.ConcatWs: _concatenated("concat_ws"), exp.DPipe: _joined,
    exp.Like: _like, exp.ILike: _like, exp.Escape: _escaped,
    exp.TimeToStr: lambda values, node: translate_strftime(values.of(node.this), node.args["format"]),
    exp.Extract: _extract, exp.TimeToUnix: _one("epoch", "this"), exp.LastDay: _one("last_day", "this"),
    exp.Dayname: _one("dayname", "this"), exp.Monthname: _one("monthname", "this"),
    exp.TimestampTrunc: _unit("date_trunc", "this"), exp.DateTrunc: _unit("date_trunc", "this"),
    exp.DateDiff: _unit("date_diff", "expression", "this"),
}  # fmt: skip
