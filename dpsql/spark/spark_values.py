"""Values of exact queries in Spark's SQL: types, quotes, casts, functions and dates.

The types are DuckDB's. Integers of up to 64 bits are computed as BIGINT and wider ones as DECIMAL(38,0), so no DuckDB
value wraps around or is truncated; a number of more than 38 digits is NULL.

==========================  ==========================================================================================
DuckDB                      Spark, and why
==========================  ==========================================================================================
``a // b``, ``a % b``       ``div`` and ``%``; plans already map zero to NULL. The least integer by -1 is a special case
``HUGEINT // BIGINT``       two steps, since the quotient of decimals has digits after its point
``a / b``                   ``try_divide``; for b = 0 the infinity or NaN of IEEE, for which Spark raises an error
``TRY(a + b)``              ``try_add`` and others, then ``try_cast`` to the type in which DuckDB would overflow
decimals                    always ``try_``; the result keeps DuckDB's digits (``allowPrecisionLoss`` is off)
float to integer            ``rint`` first: DuckDB rounds to even, Spark truncates. NaN and infinities are NULL
decimal to integer          ``round`` first, half away from zero
``hash(xor(hash(x), s))``   ``xxhash64(xxhash64(x) ^ s)``: each hash is a mixing bijection of 64 bits
``xor``, ``>>`` of a hash   ``^``, ``shiftrightunsigned``. Hashes are signed here, so ``%`` is ``pmod``, as is ``//``, which
                            puts a hash into one of several equal parts
``NULL`` in an order        explicit: DuckDB sorts it last, Spark first. NaN is the greatest number in both
``-0.0``                    equal to ``0.0`` in both, and one group
text                        compared byte by byte in both (collated columns are read with UTF8_BINARY)
``LIKE``                    with doubled backslashes, which escape in Spark but not in DuckDB
text to number or date      refused: the engines accept different texts
float to text               refused: ``1e+20`` and ``1.0E20``
==========================  ==========================================================================================

Functions:

===========================  =========================================================================================
DuckDB                       Spark, and why
===========================  =========================================================================================
``SUM`` of 64-bit integers   three sums of 21 and 22 bits, combined in DECIMAL(38,0). They are exact up to 2^41 rows
                             and three times as fast as a sum of decimals. A plain sum may overflow 64 bits
``SUM`` of decimals          of DECIMAL(38,s), DuckDB's type
``AVG`` of integers          the exact sum over the count, as doubles: Spark would add doubles
aggregates of doubles        over the sorted values of a group, by one task: Spark adds in the order of arrival
``MODE``, ``ARG_MAX`` ties   the least (greatest) value: chosen by values alone
``x // 2`` over a sum        see above
``PERCENTILE_DISC``          of doubles only. A whole column's plain one is sums over its distinct values, since Spark
                             would keep all values in one task's memory
``ARG_MAX(a, b)``            ``max_by`` of the rows with both values: DuckDB skips a NULL in either
``ln(x)`` and others         written out for zero and below: Spark returns NULL, IEEE an infinity or NaN
``floor``, ``ceil``          back to DOUBLE, and only below 2^52: Spark returns a BIGINT, and 0 for NaN
``trim(x)``                  with the list of Unicode's spaces: Spark strips one of them
``concat``                   NULL is an empty text
``substring(x, 0, n)``       one character less: DuckDB counts from the position before the first
regular expressions          refused: Java's backtrack, and time must not depend on a row
``reverse``, ``levenshtein`` refused: Spark uses characters, DuckDB graphemes or bytes
``strftime``                 concatenated numbers with leading zeros. Other letters and ``strptime`` are refused
``list[n]``                  ``get``, which counts from 0 and returns NULL outside
``signbit(x)``               the half plane of ``atan2``; the sign of a NaN is not seen
===========================  =========================================================================================

``lower`` and ``upper`` follow Java's rules if one letter becomes two (ß, İ) or depends on its position (final sigma);
mathematics on floats may differ in the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Protocol

from sqlglot import exp

from dpsql.binding.values import sql_types
from dpsql.binding.values.sql_types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    HUGEINT,
    TEXT,
    TIMESTAMP,
    TINYINT,
    Type,
)
from dpsql.catalogue.date_units import UNIT_OF_NAME
from dpsql.catalogue.row_names import ROW_ALIASES, ROW_OF_NAME
from dpsql.errors import BindError
from dpsql.language.dialect import ROW_OF_CLASS
from dpsql.late_dataclass import dataclass

LONG = sql_types.BIGINT
HASH = Type("OTHER", "HASH")
"""64 random bits, a BIGINT to Spark."""
MIN_LONG, MAX_LONG = -(2**63), 2**63 - 1

_WIDE = ("HUGEINT", "UBIGINT", "UHUGEINT")
_NAMES = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "UTINYINT": "SMALLINT",
    "USMALLINT": "INT",
    "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(38,0)",
    "HUGEINT": "DECIMAL(38,0)",
    "UHUGEINT": "DECIMAL(38,0)",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "VARCHAR": "STRING",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "HASH": "BIGINT",
    "NULL": "VOID",
}
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(38,0)")
"""Spark's integer types, narrowest first."""


@dataclass(frozen=True)
class SparkValue:
    """Spark SQL that can be an operand of any operator, its DuckDB type, and integer bounds."""

    sql: str
    type: Type
    low: int | None = None
    high: int | None = None

    @property
    def constant(self) -> int | None:
        """Its integer value, if its bounds allow only one."""
        return self.low if self.low == self.high else None


SparkColumns = tuple[tuple[str, Type], ...]


class Walk(Protocol):
    """Translates parts of an expression in the current scope."""

    def of(self, node: exp.Expr) -> SparkValue:
        """Translate an expression to Spark."""

    def column(self, node: exp.Column) -> SparkValue:
        """Return a column's value."""

    def nested(self, node: exp.Expr) -> tuple[str, SparkColumns]:
        """Translate a subquery to Spark, and return its columns."""


def refusal(what: str, hint: str | None = None) -> BindError:
    """Return the error for an expression without equivalent in Spark."""
    return BindError(
        f"Spark has no equivalent of {what}.", hint=hint or "compute it in the table, or use DuckDB."
    )


def backquote(name: str) -> str:
    """Write an identifier in Spark's quotes."""
    if "${" in name:
        raise refusal(f"the name {name}")
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """Return a text literal, with characters that Spark might read as an escape or a variable written as numbers."""
    plain = (c if c.isascii() and c.isprintable() and c not in "\\'$" else f"\\U{ord(c):08X}" for c in text)
    return f"'{''.join(plain)}'"


def spark_type(kind: Type) -> str:
    """Return Spark's name of a type; BindError if none represents the same values."""
    if kind.kind == "DECIMAL":
        return kind.sql
    if kind.kind == "LIST" and kind.element is not None:
        return f"ARRAY<{spark_type(kind.element)}>"
    if kind.sql not in _NAMES:
        raise refusal(f"the type {kind.sql}")
    return _NAMES[kind.sql]


def is_long(kind: Type) -> bool:
    """Return whether a type's integers fit BIGINT."""
    return kind.kind == "INTEGER" and kind.sql not in _WIDE


def find_common_type(kinds: Iterable[Type]) -> Type:
    """Return the common type, as in DuckDB, up to the width of integers."""
    found = [k for k in dict.fromkeys(kinds) if k.kind != "NULL"]
    if len(found) <= 1:
        return found[0] if found else sql_types.NULL
    if HASH in found:
        return HASH
    if all(k.kind == "INTEGER" for k in found):
        return LONG if all(map(is_long, found)) else HUGEINT
    if all(k.numeric for k in found):
        if any(k.kind == "DOUBLE" for k in found):
            return DOUBLE if DOUBLE in found else FLOAT
        before, after = (max(k.digits[i] for k in found) for i in (0, 1))
        return sql_types.decimal(min(38, before + after), after)
    if {k.kind for k in found} == {"DATE", "TIMESTAMP"}:
        return TIMESTAMP
    raise refusal(f"the meeting of {' and '.join(k.sql for k in found)}")


def write_cast(value: SparkValue, kind: Type) -> str:
    """Return the value in a wider type: DuckDB's implicit casts, made explicit."""
    if value.type.kind == "NULL":
        return f"CAST(NULL AS {spark_type(kind)})" if kind.kind != "NULL" else value.sql
    if spark_type(value.type) == spark_type(kind):
        return value.sql
    total = kind.kind != "DECIMAL" and not (kind == FLOAT and value.type == DOUBLE)
    return f"{'CAST' if total else 'try_cast'}({value.sql} AS {spark_type(kind)})"


def widen_number(value: SparkValue) -> SparkValue:
    """Return an integer in the type used for computation."""
    kind = HUGEINT if value.type.sql in _WIDE else LONG
    return replace(value, sql=write_cast(value, kind), type=kind)


def write_bits(value: SparkValue) -> str:
    """Return a hash or a salt as 64 bits."""
    if value.constant is not None and 0 <= value.constant <= MAX_LONG:
        return f"{value.constant}L"
    if value.type == HASH or is_long(value.type):
        return write_cast(value, LONG)
    raise refusal(f"the bits of {value.type.sql}")


def write_quotient(a: str, b: str) -> str:
    """Return IEEE division. The sign of a zero is determined by atan2."""
    infinite = f"{a} * CASE WHEN atan2({b}, -1D) < 0D THEN double('-Infinity') ELSE double('Infinity') END"
    zero = f"CASE WHEN {a} = 0D THEN double('NaN') ELSE {infinite} END"
    return f"(CASE WHEN {b} = 0D THEN {zero} ELSE try_divide({a}, {b}) END)"


def write_long_division(a: str, b: str) -> str:
    """Return 38 digits divided by 19, toward zero, in two steps: the upper 20 digits, then the remainder with the lower 18.

    No quotient of Spark's has that number of digits and none after the point. A value that is used again is the
    argument of a lambda.
    """
    radix = f"1{'0' * 18}BD"
    upper = f"CAST((s.a - s.a % {radix}) * 0.{'0' * 17}1BD AS DECIMAL(20,0))"
    split = f"transform(array(named_struct('a', {a}, 'b', {b})), s -> named_struct('h', {upper}, 'l', s.a % {radix}, 'b', s.b))"
    left = f"transform({split}, s -> named_struct('h', s.h, 'x', s.h % s.b * {radix} + s.l, 'b', s.b))"
    high, low = (f"CAST(({v} - {v} % s.b) / s.b AS DECIMAL(20,0))" for v in ("s.h", "s.x"))
    found = f"element_at(transform({left}, s -> CAST({high} * {radix} + {low} AS DECIMAL(38,0))), 1)"
    return f"CAST({found} AS DECIMAL(38,0))"  # the second lock reads no lambda; the cast shows an integer


# -- literals and casts ------------------------------------------------------------------------------------------


def translate_literal(node: exp.Expr) -> SparkValue:
    """Translate a literal, with the value of an integer."""
    text = node.name
    if node.args.get("is_string"):
        return SparkValue(quote_text(text), sql_types.TEXT)
    if text.isdigit():
        n = int(text)
        if n > MAX_LONG:
            return SparkValue(f"CAST({n}BD AS DECIMAL(38,0))", HUGEINT, n, n)
        return SparkValue(f"{n}L", LONG, n, n)
    if "e" in text.lower():
        return SparkValue(f"{float(text)!r}D", DOUBLE)
    before, _dot, after = text.partition(".")
    kind = sql_types.decimal(max(1, len(before) + len(after)), len(after))
    return SparkValue(f"{before or '0'}.{after}BD" if after else f"{before}BD", kind)


def translate_constant(text: str, kind: Type) -> SparkValue:
    """Translate a text literal already validated during planning."""
    text = text.strip()
    if kind.kind == "DATE" and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return SparkValue(f"DATE'{text}'", kind)
    if kind == TIMESTAMP:
        # Infinite timestamps become the ends of Spark's range.
        text = {"-infinity": "0001-01-01", "infinity": "9999-12-31 23:59:59.999999"}.get(text, text)
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9:.]+)?", text):
            return SparkValue(f"TIMESTAMP_NTZ'{text}'", kind)
    if kind == DOUBLE and re.fullmatch(r"[-+]?(Infinity|NaN)", text):
        return SparkValue(f"double('{text}')", DOUBLE)
    if kind.kind == "DOUBLE" and re.fullmatch(r"[-+0-9.eE]+", text):
        return translate_cast(SparkValue(f"{float(text)!r}D", DOUBLE), kind)
    if kind.kind in ("INTEGER", "DECIMAL") and re.fullmatch(r"[-+]?[0-9]{1,38}", text):
        return translate_cast(SparkValue(f"CAST('{int(text)}' AS DECIMAL(38,0))", HUGEINT), kind)
    raise refusal(f"the text '{text}' as {kind.sql}", "write it as a plain literal.")


_PLAIN_CASTS = {
    DOUBLE: ("INTEGER", "DECIMAL", "DOUBLE", "BOOLEAN"),
    FLOAT: ("INTEGER", "DECIMAL", "BOOLEAN"),
    sql_types.TEXT: ("INTEGER", "DECIMAL", "BOOLEAN", "DATE", "TIMESTAMP"),
    sql_types.DATE: ("TIMESTAMP",),
    TIMESTAMP: ("DATE",),
}
"""Kinds of values that Spark's own CAST to a type converts as DuckDB's does."""


def translate_cast(value: SparkValue, kind: Type) -> SparkValue:
    """Translate a cast, which returns NULL for an invalid value, whether or not the plan excludes these."""
    given, name, made = value.type, spark_type(kind), None
    if given == kind or given.kind == "NULL":
        return replace(value, sql=write_cast(value, kind), type=kind)
    if HASH in (given, kind):
        made, kind = value.sql if kind.sql == "UBIGINT" else None, HASH
    elif kind.kind == "INTEGER":
        made = _to_integer(value, kind, name)
    elif kind.kind == "DECIMAL":
        made = _to_decimal(value, kind)
    elif given.kind in _PLAIN_CASTS.get(kind, ()):
        made = f"CAST({value.sql} AS {name})"
    elif (given, kind) == (DOUBLE, FLOAT):
        reaches = f"abs({value.sql}) < 3.4028235677973366E38D OR abs({value.sql}) >= double('Infinity')"
        made = f"(CASE WHEN {reaches} THEN CAST({value.sql} AS FLOAT) END)"
    elif kind == BOOLEAN and given.numeric:
        made = f"({value.sql} <> CAST(0 AS {spark_type(given)}))"
    if made is None:
        raise refusal(f"a cast from {given.sql} to {kind.sql}")
    keeps = kind.kind == given.kind == "INTEGER"
    return SparkValue(made, kind, value.low if keeps else None, value.high if keeps else None)


_UNSIGNED = {"UTINYINT": 2**8, "USMALLINT": 2**16, "UINTEGER": 2**32, "UBIGINT": 2**64, "UHUGEINT": 10**38}


def _to_integer(value: SparkValue, kind: Type, name: str) -> str | None:
    given, sql = value.type, value.sql
    if given.kind == "BOOLEAN":
        return f"CAST({sql} AS {name})" if name != "DECIMAL(38,0)" else f"CAST(CAST({sql} AS INT) AS {name})"
    if given.kind == "DOUBLE" and kind.sql in _WIDE:
        if kind.sql != "HUGEINT":
            raise refusal(f"a cast from {given.sql} to {kind.sql}", "cast to BIGINT.")
        return _write_huge(write_cast(value, DOUBLE))
    if given.kind == "DOUBLE":
        rounded = f"rint({write_cast(value, DOUBLE)})"
        if name == "BIGINT":  # 2^63 is a double, and Spark would make it 2^63 - 1
            rounded = f"CASE WHEN {rounded} < 9.223372036854775807E18D THEN {rounded} END"
        made = f"try_cast({rounded} AS {name})"
    elif given.kind == "DECIMAL":
        made = f"try_cast(round({sql}, 0) AS {name})"
    elif given.kind == "INTEGER":
        fits = _INTEGERS.index(spark_type(given)) <= _INTEGERS.index(name)
        made = f"{'CAST' if fits else 'try_cast'}({sql} AS {name})"
    else:
        return None
    most = _UNSIGNED.get(kind.sql)
    return f"(CASE WHEN {made} BETWEEN 0 AND {most - 1} THEN {made} END)" if most is not None else made


def _write_huge(sql: str) -> str:
    """Return a float as an integer, in two parts of 62 bits, since Spark would use its displayed digits."""
    whole, part = f"rint({sql})", f"{2.0**62!r}D"
    high = f"CAST({whole} / {part} AS BIGINT)"  # toward zero, so that the rest is exact
    low = f"CAST({whole} - CAST({high} AS DOUBLE) * {part} AS BIGINT)"
    made = f"CAST({high} AS DECIMAL(19,0)) * {2**62}BD + CAST({low} AS DECIMAL(19,0))"
    return f"(CASE WHEN abs({whole}) < 4.2E37D THEN CAST({made} AS DECIMAL(38,0)) END)"


def _to_decimal(value: SparkValue, kind: Type) -> str | None:
    given, places = value.type, kind.digits[1]
    if given.kind == "BOOLEAN":
        return f"try_cast(CAST({value.sql} AS INT) AS {kind.sql})"
    if given.kind in ("INTEGER", "DECIMAL"):
        return f"try_cast({value.sql} AS {kind.sql})"
    if given.kind != "DOUBLE" or places > 18:
        return None
    # DuckDB scales the float and rounds that; Spark would round its displayed digits.
    scaled = f"round({write_cast(value, DOUBLE)} * 1.0E{places}D)"
    whole = f"try_cast(CASE WHEN abs({scaled}) < 9.2E18D THEN {scaled} END AS BIGINT)"
    step = "1BD" if places == 0 else f"0.{'0' * (places - 1)}1BD"
    return f"try_cast(CAST({whole} AS DECIMAL(19,0)) * {step} AS {kind.sql})"


# -- functions --------------------------------------------------------------------------------------------------


def translate_call(walk: Walk, node: exp.Expr) -> SparkValue:
    """Return a function called by name, or in the catalogue of names; BindError if Spark has no equivalent."""
    if isinstance(node, exp.Anonymous):
        name, places = str(node.this).lower(), list(node.expressions)
    elif (row := ROW_OF_CLASS.get(type(node))) is not None:
        name, places = row.name, [node.args.get(key) for key in row.parts]
    else:
        raise refusal(node.sql_name() if isinstance(node, exp.Func) else node.key.upper())
    return _call(ROW_ALIASES.get(name, name), *(walk.of(place) for place in places if place is not None))


Translation = Callable[..., SparkValue]
_HANDLERS: dict[str, Translation] = {}
"""Functions whose translation depends on types or literals, by name."""


def _translates(name: str, *before: str) -> Callable[[Translation], Translation]:
    """Register the translation of a function; ``before`` are arguments before its own."""

    def register(function: Translation) -> Translation:
        _HANDLERS[name] = partial(function, *before)
        return function

    return register


def _call(name: str, *given: SparkValue) -> SparkValue:
    if (handler := _HANDLERS.get(name)) is not None:
        return handler(*given)
    row = ROW_OF_NAME.get(name)
    if row is not None and row.unit:
        return _date_part(row.unit, *given)
    if row is None or not row.spark:
        raise refusal(f"the function {name}")
    types, _, result = row.signature.partition("-> ")
    wanted = TEXT if types.startswith("TEXT") else DOUBLE
    kind = Type.parse(result)
    if kind.kind == "INTEGER":
        kind = LONG
    same = f"{name}({', '.join(f'{{{place}}}' for place in range(len(given)))})"
    return _fill(same if row.spark == "=" else row.spark, wanted, kind, *given)


def _fill(template: str, wanted: Type | None, kind: Type, *given: SparkValue) -> SparkValue:
    """Substitute values in a template, as doubles or unchanged; for text functions they must be texts."""
    if wanted == TEXT and any(v.type != TEXT for v in given):
        raise refusal(f"a text function of {given[0].type.sql}")
    return SparkValue(
        template.format(*(write_cast(v, DOUBLE) if wanted == DOUBLE else v.sql for v in given)), kind
    )


# -- hashes -----------------------------------------------------------------------------------------------------


@_translates("hash")
def _hash(*given: SparkValue) -> SparkValue:
    """Hash values, mixed one after another; one hash is mixed again.

    Spark skips NULLs and the ends of lists, so for several values the positions of NULLs are mixed in too. Otherwise
    (NULL, 1) and (1, NULL) would have one hash, and the order of arrival, which other units' rows can change, would
    choose between them.
    """
    parts = [write_bits(v) if v.type == HASH else v.sql for v in given]
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


@_translates("xor")
def _xor(left: SparkValue, right: SparkValue) -> SparkValue:
    kind = HASH if HASH in (left.type, right.type) else LONG
    return SparkValue(f"({write_bits(left)} ^ {write_bits(right)})", kind)


# -- numbers ----------------------------------------------------------------------------------------------------


@_translates("log")
def _log(base: SparkValue, x: SparkValue) -> SparkValue:
    over, under = (_call("ln", v).sql for v in (x, base))
    return SparkValue(write_quotient(over, under), DOUBLE)


_WHOLE = "4503599627370496D"
"""From 2^52 on, every double is an integer."""


@_translates("floor", "floor")
@_translates("ceil", "ceil")
@_translates("round", "round")
@_translates("trunc", "trunc")
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
        return translate_cast(SparkValue(sql, DOUBLE), kind)
    if kind.kind == "DECIMAL" and name != "trunc" and (places is None or name == "round"):
        before, after = kind.digits
        if before == 38 and (places or 0) < 0:  # Spark ends with an error for 10^38 - 1
            raise refusal(f"ROUND of {kind.sql} to tens", "cast to BIGINT or DOUBLE.")
        wanted = sql_types.decimal(before + after, max(0, min(after, places or 0)))
        inside = (
            f"round(CAST({x.sql} AS {kind.sql}), {places or 0})" if name == "round" else f"{name}({x.sql})"
        )
        return SparkValue(f"try_cast({inside} AS {wanted.sql})", wanted)
    if kind.kind == "INTEGER" and (places is None or places >= 0):
        return widen_number(x)
    if name == "round" and is_long(kind):
        return SparkValue(f"try_cast(round(CAST({x.sql} AS DECIMAL(19,0)), {places}) AS BIGINT)", LONG)
    raise refusal(f"{name} of {kind.sql}")


def _round_double(d: str, places: int) -> str:
    """Round half away from zero; to digits as DuckDB does: scale, round, and scale back."""
    if places == 0:
        return f"round({d})"
    if not -22 <= places <= 22:
        raise refusal("ROUND to more than 22 digits")
    there, back = "*/" if places > 0 else "/*"
    power = f"1.0E{abs(places)}D"
    scaled = f"{d} {there} {power}"
    return f"(CASE WHEN abs({scaled}) < {_WHOLE} THEN round({scaled}) {back} {power} ELSE {d} END)"


@_translates("sign")
def _sign(x: SparkValue) -> SparkValue:
    if x.type.kind == "DOUBLE":
        tests = (
            "WHEN {0} = double('NaN') THEN 0 WHEN {0} > 0D THEN 1 WHEN {0} < 0D THEN -1 WHEN {0} = 0D THEN 0"
        )
        return _fill(f"CAST(CASE {tests} END AS TINYINT)", DOUBLE, TINYINT, x)
    return SparkValue(f"CAST(signum({x.sql}) AS TINYINT)", TINYINT)


@_translates("abs")
def _absolute(x: SparkValue) -> SparkValue:
    x = widen_number(x) if x.type.kind == "INTEGER" else x
    if spark_type(x.type).startswith("DECIMAL"):
        return SparkValue(f"greatest({x.sql}, {write_negative(x)})", x.type)
    return SparkValue(f"abs({x.sql})", x.type)


def write_negative(x: SparkValue) -> str:
    """Return a decimal's negative: Spark's own has 34 digits, and an error for 10^38 - 1."""
    name = spark_type(x.type)
    made = f"(CAST(0L AS {name}) - {x.sql})"
    return made if x.type == HUGEINT else f"try_cast({made} AS {name})"


@_translates("bit_count")
def _count_bits(x: SparkValue) -> SparkValue:
    return SparkValue(f"CAST(bit_count({write_bits(widen_number(x))}) AS TINYINT)", TINYINT)


# -- text -------------------------------------------------------------------------------------------------------

_SPACES = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"


@_translates("trim", "BOTH")
@_translates("ltrim", "LEADING")
@_translates("rtrim", "TRAILING")
def _trim(side: str, text: SparkValue, letters: SparkValue | None = None) -> SparkValue:
    stripped = quote_text(_SPACES) if letters is None else letters.sql
    return SparkValue(f"trim({side} {stripped} FROM {text.sql})", TEXT)


@_translates("substring")
def _substring(text: SparkValue, first: SparkValue, count: SparkValue | None = None) -> SparkValue:
    start, length = first.low, count.low if count is not None else None
    if start is None or start < 0 or (length is not None and length < 0):
        raise refusal("a substring from the end")
    if start == 0:
        start, length = 1, None if length is None else max(0, length - 1)
    return SparkValue(f"substring({text.sql}, {start}{'' if length is None else f', {length}'})", TEXT)


@_translates("left", "left")
@_translates("right", "right")
def _side(name: str, text: SparkValue, count: SparkValue) -> SparkValue:
    if count.low is None or count.low < 0:
        raise refusal(f"{name} with a number of characters that isn't a literal")
    return SparkValue(f"{name}({text.sql}, {count.low})", TEXT)


@_translates("split_part")
def _split_part(text: SparkValue, mark: SparkValue, place: SparkValue) -> SparkValue:
    if mark.sql == "''" or not place.low:
        raise refusal("split_part by nothing")
    return SparkValue(f"split_part({text.sql}, {mark.sql}, {place.low})", TEXT)


@_translates("concat")
def _concat(*given: SparkValue) -> SparkValue:
    parts = (f"coalesce({v.sql}, '')" for v in given)
    return SparkValue(f"concat({', '.join(parts)})", TEXT)


@_translates("concat_ws")
def _concat_with(*given: SparkValue) -> SparkValue:
    return SparkValue(f"concat_ws({', '.join(v.sql for v in given)})", TEXT)


@_translates("||")
def _concat_two(*given: SparkValue) -> SparkValue:
    return _fill("concat({0}, {1})", TEXT, TEXT, *given)


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


@_translates("length")
@_translates("len")
def _length(given: SparkValue) -> SparkValue:
    if given.type.kind == "LIST":
        return _fill("(CASE WHEN {0} IS NOT NULL THEN CAST(size({0}) AS BIGINT) END)", None, LONG, given)
    return _fill("CAST(length({0}) AS BIGINT)", TEXT, LONG, given)


@_translates("list_contains")
def _contains(listed: SparkValue, sought: SparkValue) -> SparkValue:
    """Return membership in a list; Spark's is NULL if the list has a NULL and not the value."""
    if listed.type.element is None:
        raise refusal(f"list_contains of {listed.type.sql}")
    item = write_cast(sought, listed.type.element)
    rest = f"CASE WHEN {listed.sql} IS NOT NULL AND {item} IS NOT NULL THEN FALSE END"
    return SparkValue(f"coalesce(array_contains({listed.sql}, {item}), {rest})", BOOLEAN)


@_translates("list_extract")
def _element(listed: SparkValue, index: SparkValue) -> SparkValue:
    """Return the element at a literal index; negative indices count from the end, index 0 does not exist."""
    place = index.low
    if listed.type.element is None or place is None:
        raise refusal(f"an element of {listed.type.sql}")
    at = f"{place - 1}" if place > 0 else f"size({listed.sql}) - {-place}" if place < 0 else "-1"
    return SparkValue(f"get({listed.sql}, {at})", listed.type.element)


@_translates("array_slice")
def _slice(listed: SparkValue, first: SparkValue, last: SparkValue) -> SparkValue:
    """Return ``list[first:last]`` from the start: for a position before the first element Spark returns nothing."""
    if listed.type.element is None or first.low is None or last.low is None or min(first.low, last.low) < 0:
        raise refusal("a part of a list that is counted from its end")
    start = max(1, first.low)
    return SparkValue(f"slice({listed.sql}, {start}, {max(0, last.low - start + 1)})", listed.type)


# -- dates ------------------------------------------------------------------------------------------------------


def _moment(value: SparkValue) -> str:
    """Return a timestamp in the session's zone, which is UTC: Spark's functions support no other."""
    if value.type.kind not in ("DATE", "TIMESTAMP"):
        raise refusal(f"{value.type.sql} as a date")
    return f"CAST({value.sql} AS TIMESTAMP)"


@_translates("epoch", "(CAST(unix_micros({0}) AS DOUBLE) / 1000000D)", "DOUBLE")
@_translates("last_day", "last_day({0})", "DATE")
@_translates("dayname", "date_format({0}, 'EEEE')", "VARCHAR")
@_translates("monthname", "date_format({0}, 'MMMM')", "VARCHAR")
def _dated(template: str, kind: str, value: SparkValue) -> SparkValue:
    return SparkValue(template.format(_moment(value)), Type.parse(kind))


def _date_part(unit: str, value: SparkValue) -> SparkValue:
    known = UNIT_OF_NAME.get(unit.upper())
    if known is None or not known.spark:
        raise refusal(f"the date part {unit}")
    _moment(value)
    return SparkValue(f"CAST({known.spark.format(f'CAST({value.sql} AS TIMESTAMP_NTZ)')} AS BIGINT)", LONG)


def _truncate(unit: str, value: SparkValue) -> SparkValue:
    known = UNIT_OF_NAME.get(unit.upper())
    if known is None or not known.measures or (known.months or 0) > 12:
        raise refusal(f"date_trunc to a {unit}")
    return SparkValue(f"CAST(date_trunc('{unit}', {_moment(value)}) AS TIMESTAMP_NTZ)", TIMESTAMP)


def _date_diff(unit: str, start: SparkValue, end: SparkValue) -> SparkValue:
    """Count the crossed boundaries of a unit."""
    one, two = _moment(start), _moment(end)
    known = UNIT_OF_NAME.get(unit.upper())
    if unit == "day":
        made = f"datediff({two}, {one})"
    elif unit == "week":
        if "TIMESTAMP" in (start.type.kind, end.type.kind):
            raise refusal("date_diff in weeks of timestamps", "cast to DATE.")
        made = f"datediff({two}, {one}) div 7"  # DuckDB counts whole weeks
    elif known is not None and known.months is not None and known.months <= 12:
        each, name = 12 // known.months, "0 * month" if known.months == 12 else unit
        made = " - ".join(f"(year({t}) * {each} + {name}({t}))" for t in (two, one))
    elif known is not None and known.seconds is not None and known.seconds >= 1:
        seconds = " - ".join(f"unix_seconds(date_trunc('{unit}', {t}))" for t in (two, one))
        made = f"({seconds}) div {known.seconds}L"
    else:
        raise refusal(f"date_diff in a {unit}")
    return SparkValue(f"CAST({made} AS BIGINT)", LONG)


def _in_unit(name: str, function: Translation) -> None:
    """Register a translation whose first argument is the name of a time unit, as a literal."""
    _HANDLERS[name] = lambda unit, *given: function(unit.sql.strip("'").lower(), *given)


_in_unit("date_part", _date_part)
_in_unit("date_trunc", _truncate)
_in_unit("date_diff", _date_diff)
_LETTERS = {
    "Y": ("YEAR", 4),
    "m": ("MONTH", 2),
    "d": ("DAY", 2),
    "H": ("HOUR", 2),
    "M": ("MINUTE", 2),
    "S": ("SECOND", 2),
    "j": ("DOY", 3),
    "w": ("DOW", 1),
    "u": ("ISODOW", 1),
    "V": ("WEEK", 2),
}
_NAME_LETTERS = {"A": "EEEE", "a": "EEE", "B": "MMMM", "b": "MMM"}


def _format_time(walk: Walk, node: exp.Expr) -> SparkValue:
    """Translate strftime letter by letter, each a number of fixed digits or a name; plain text between them."""
    value = walk.of(node.this)
    at, named, parts = f"CAST({value.sql} AS TIMESTAMP_NTZ)", _moment(value), []
    for text, bare, letter in re.findall(r"([^%]+)|%(-?)(.?)", node.args["format"].name, re.DOTALL):
        if text or (letter == "%" and not bare):
            parts.append(quote_text(text or "%"))
        elif letter in _NAME_LETTERS and not bare:
            parts.append(f"date_format({named}, '{_NAME_LETTERS[letter]}')")
        elif letter in _LETTERS:
            unit, digits = _LETTERS[letter]
            digit = f"CAST({UNIT_OF_NAME[unit].spark.format(at)} AS STRING)"
            parts.append(digit if bare else f"lpad({digit}, {digits}, '0')")
        else:
            raise refusal(f"strftime with %{bare}{letter}")
    return SparkValue(f"concat({', '.join(parts)})", TEXT)


_LONGEST = {"MONTH": 12_000, "SECOND": 86400 * 366_000}
"""Years supported by Spark."""


def _interval(_: Walk, node: exp.Expr) -> SparkValue:
    unit, amount = str(node.args["unit"].name).upper().removesuffix("S"), int(node.this.name)
    known = UNIT_OF_NAME.get(unit)
    name = "SECOND" if known is None or known.months is None else "MONTH"
    length = None if known is None else Fraction(known.months or known.seconds or 0)
    if not length or length.denominator != 1 or abs(amount * length) > _LONGEST[name]:
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
        days, sign = widen_number(right).sql, "" if word == "+" else "-"
        years = (
            "BETWEEN DATE'0001-01-01' AND DATE'9999-12-31'"  # sums of many days would have no TIMESTAMP_NTZ
        )
        sane = f"{days} BETWEEN -1000000L AND 1000000L AND {left.sql} {years}"
        return SparkValue(f"date_add({left.sql}, CASE WHEN {sane} THEN CAST({sign}{days} AS INT) END)", DATE)
    raise refusal(f"{left.type.sql} {word} {right.type.sql}")


# -- calls ------------------------------------------------------------------------------------------------------


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
    exp.Length: _named("length", "this"), exp.ArrayContains: _named("list_contains", "this", "expression"),
    exp.Concat: lambda walk, node: _call("concat", *map(walk.of, node.expressions)),
    exp.ConcatWs: lambda walk, node: _call("concat_ws", *map(walk.of, node.expressions)),
    exp.DPipe: _named("||", "this", "expression"), exp.Like: _match, exp.ILike: _match, exp.Escape: _match,
    exp.Extract: _of_unit(_date_part, "this", "expression"), exp.DateDiff: _of_unit(_date_diff, "unit", "expression", "this"),
    exp.TimestampTrunc: _of_unit(_truncate, "unit", "this"), exp.DateTrunc: _of_unit(_truncate, "unit", "this"),
}  # fmt: skip
