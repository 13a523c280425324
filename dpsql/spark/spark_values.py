"""Values of exact queries in Spark's SQL: types, quotes and casts.

The types are DuckDB's. Integers of up to 64 bits are computed as BIGINT and wider ones as DECIMAL(38,0), so no DuckDB
value wraps around or is truncated; a number of more than 38 digits is missing.

==========================  ==========================================================================================
DuckDB                      Spark, and why
==========================  ==========================================================================================
``a // b``, ``a % b``       ``div`` and ``%``; zero is NULL in the plan already. The least number over -1 is written out
``HUGEINT // BIGINT``       by hand, in two steps: the quotient of decimals has digits after its point
``a / b``                   ``try_divide``, and where b is zero the infinity or NaN of IEEE, which Spark raises on
``TRY(a + b)``              ``try_add`` and its kin, then ``try_cast`` to the type in which DuckDB would overflow
decimals                    always ``try_``; the result keeps DuckDB's digits (``allowPrecisionLoss`` is off)
float to integer            ``rint`` first: DuckDB rounds to even, a cast in Spark cuts. NaN and infinities are NULL
decimal to integer          ``round`` first, half away from zero
``hash(xor(hash(x), s))``   ``xxhash64(xxhash64(x) ^ s)``: each of the two a bijection of 64 bits that mixes all of them
``xor``, ``>>`` of a hash   ``^``, ``shiftrightunsigned``; ``%`` is ``pmod``, for hashes are signed here, and so is ``//``, by
                            which a hash is put into one of some equal parts
``NULL`` in an order        written out: DuckDB sorts it last, Spark first. NaN is the greatest number in both
``-0.0``                    equal to ``0.0`` in both, and one group
text                        compared byte by byte in both (collated columns are read with UTF8_BINARY)
``LIKE``                    with its backslashes doubled: Spark's escape, and none in DuckDB
text to number or date      refused: the two read other texts as numbers
float to text               refused: ``1e+20`` and ``1.0E20``
==========================  ==========================================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from dpsql.binding.values import sql_types
from dpsql.binding.values.sql_types import BOOLEAN, DOUBLE, FLOAT, HUGEINT, TIMESTAMP, Type
from dpsql.errors import BindError

LONG = sql_types.BIGINT
HASH = Type("OTHER", "HASH")
"""64 random bits, a BIGINT to Spark."""
MIN_LONG, MAX_LONG = -(2**63), 2**63 - 1

_WIDE = ("HUGEINT", "UBIGINT", "UHUGEINT")
_NAMES = {
    "BOOLEAN": "BOOLEAN", "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INTEGER": "INT", "BIGINT": "BIGINT",
    "UTINYINT": "SMALLINT", "USMALLINT": "INT", "UINTEGER": "BIGINT", "UBIGINT": "DECIMAL(38,0)",
    "HUGEINT": "DECIMAL(38,0)", "UHUGEINT": "DECIMAL(38,0)", "FLOAT": "FLOAT", "DOUBLE": "DOUBLE",
    "VARCHAR": "STRING", "DATE": "DATE", "TIMESTAMP": "TIMESTAMP_NTZ", "HASH": "BIGINT", "NULL": "VOID",
}  # fmt: skip
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
    return BindError(f"{what} has no equal on Spark.", hint=hint or "compute it in the table, or ask DuckDB.")


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
    return (
        f"CAST({found} AS DECIMAL(38,0))"  # the second lock reads no lambda, and a cast says that it is whole
    )


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
