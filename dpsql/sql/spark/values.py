"""Shapes that plans are written in for DuckDB, as Spark had better have them.

Expressions of exact queries in Spark's SQL: literals, operators, casts, each with its DuckDB type.

The types are DuckDB's. Whole numbers of up to 64 bits are computed as BIGINT and wider ones as DECIMAL(38,0), so
nothing that DuckDB holds wraps around or is cut; a number of more than 38 digits is missing.

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

from dpsql.errors import BindError
from dpsql.sql.expressions import types
from dpsql.sql.parse.dialect import parse_fragment, to_sql


def number_within_units(node: exp.Expr) -> exp.Expr:
    """Look back in one long sort, which plans are written with, as numbers within each unit.

    DuckDB is quick at one long sort; Spark would do it in one task, where every unit can be sorted by itself. That the row
    n places before is of another u means that fewer than n rows of its u come first; that the first row n groups of
    peers before is of another u, that fewer than n such groups do. Several columns are another where one of them is;
    what stands between them in the order is a hash of them.
    """
    if isinstance(node, exp.Paren):
        return number_within_units(node.this)
    if isinstance(node, exp.And):
        return exp.And(this=number_within_units(node.this), expression=number_within_units(node.expression))
    looks = [_look(part) for part in node.flatten()] if isinstance(node, exp.Or) else [_look(node)]
    if not looks or any(look is None for look in looks):
        return node
    (rank, places), *others = {(rank, offset) for rank, offset, _, _ in filter(None, looks)}
    columns = [column for _, _, column, _ in filter(None, looks)]
    orders = {to_sql(order) for _, _, _, order in filter(None, looks)}
    order = next(order for _, _, _, order in filter(None, looks))
    rest = [item for item in order.expressions if item.this not in columns]
    if others or len(orders) > 1 or not rest or len(rest) + len(columns) != len(order.expressions):
        return node
    first = order.expressions[0].this
    if first not in columns:
        return node
    own = exp.Window(
        this=exp.DenseRank() if rank else exp.RowNumber(), partition_by=[column.copy() for column in columns],
        order=exp.Order(expressions=[item.copy() for item in rest]), over="OVER",
    )  # fmt: skip
    return exp.LTE(this=own, expression=exp.Literal.number(places))


def _look(node: exp.Expr) -> tuple[bool, str, exp.Expr, exp.Order] | None:
    """Read one look back: whether it counts groups of peers, how far it goes, the column, and the order."""
    if not isinstance(node, exp.NullSafeNEQ) or not isinstance(node.this, exp.Window):
        return None
    window, column = node.this, node.expression
    order, spec = window.args.get("order"), window.args.get("spec")
    if window.args.get("partition_by") or order is None or window.this.this != column:
        return None
    if isinstance(window.this, exp.Lag) and spec is None:
        return False, window.this.args["offset"].name, column, order
    if not isinstance(window.this, exp.FirstValue) or spec is None:
        return None
    ends = [(to_sql(spec.args[end]), spec.args.get(f"{end}_side")) for end in ("start", "end")]
    if spec.args.get("kind") != "GROUPS" or ends[0] != ends[1] or ends[0][1] != "PRECEDING":
        return None
    return True, ends[0][0], column, order


def rewrite_quantile(node: exp.Select) -> exp.Select:
    """``SELECT PERCENTILE_DISC(p) WITHIN GROUP (ORDER BY v) AS q FROM ...``: the first value that p of the rows reach.

    Spark knows it for doubles only, and would hold all values in one task's memory; sums over the distinct values may
    spill, and take any type.
    """
    asked = _quantile_of(node.expressions[0].unalias()) if len(node.expressions) == 1 else None
    from_ = node.args.get("from_")
    if asked is None or from_ is None:
        return node
    if any(
        node.args.get(key) for key in ("group", "joins", "with_", "qualify", "order", "limit", "distinct")
    ):
        return node
    value, at = map(to_sql, asked)
    where = f" AND ({to_sql(node.args['where'].this)})" if node.args.get("where") is not None else ""
    counted = f"SELECT {value} AS v, COUNT(*) AS c FROM {to_sql(from_.this)} WHERE ({value}) IS NOT NULL{where} GROUP BY 1"
    summed = f"SELECT v, SUM(c) OVER (ORDER BY v) AS upto, SUM(c) OVER () AS n FROM ({counted}) AS counted"
    reached = f"CAST(upto AS DOUBLE) >= CAST({at} AS DOUBLE) * CAST(n AS DOUBLE)"
    made = parse_fragment(
        f"SELECT MIN(v) AS {node.expressions[0].alias_or_name or 'q'} FROM ({summed}) AS summed WHERE {reached}"
    )
    assert isinstance(made, exp.Select)
    return made


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


LONG = types.BIGINT
HASH = types.Type("OTHER", "HASH")
"""64 random bits, a BIGINT to Spark."""

_WIDE = ("HUGEINT", "UBIGINT", "UHUGEINT")
_NAMES = {
    "BOOLEAN": "BOOLEAN", "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INTEGER": "INT", "BIGINT": "BIGINT",
    "UTINYINT": "SMALLINT", "USMALLINT": "INT", "UINTEGER": "BIGINT", "UBIGINT": "DECIMAL(38,0)",
    "HUGEINT": "DECIMAL(38,0)", "UHUGEINT": "DECIMAL(38,0)", "FLOAT": "FLOAT", "DOUBLE": "DOUBLE",
    "VARCHAR": "STRING", "DATE": "DATE", "TIMESTAMP": "TIMESTAMP_NTZ", "HASH": "BIGINT", "NULL": "VOID",
}  # fmt: skip
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class SparkValue:
    """Spark SQL that can stand beside any operator, its DuckDB type, and whole numbers that it lies between."""

    sql: str
    type: types.Type
    low: int | None = None
    high: int | None = None


class Walk(Protocol):
    """Translates a part of an expression, in the scope at hand."""

    def of(self, node: exp.Expr) -> SparkValue: ...


def refusal(what: str, hint: str | None = None) -> BindError:
    """Return the error for what Spark has no equal of."""
    return BindError(f"{what} has no equal on Spark.", hint=hint or "compute it in the table, or ask DuckDB.")


def quote_identifier(name: str) -> str:
    """Write an identifier in Spark's quotes."""
    if "${" in name:
        raise refusal(f"the name {name}")
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    """Return a text literal. Whatever Spark's own reader might take for an escape or a variable is written as a number."""
    return (
        "'"
        + "".join(
            c if c.isascii() and c.isprintable() and c not in "\\'$" else f"\\U{ord(c):08X}" for c in text
        )
        + "'"
    )


def spark_type(kind: types.Type) -> str:
    """Return how Spark spells a type.

    Raises:
        BindError: it has none that holds the same values.
    """
    if kind.kind == "DECIMAL":
        return kind.sql
    if kind.kind == "LIST" and kind.element is not None:
        return f"ARRAY<{spark_type(kind.element)}>"
    name = _NAMES.get(kind.sql)
    if name is None:
        raise refusal(f"the type {kind.sql}")
    return name


def is_long(kind: types.Type) -> bool:
    """Return whether a type's integers fit BIGINT."""
    return kind.kind == "INTEGER" and kind.sql not in _WIDE


def find_common_type(kinds: Iterable[types.Type]) -> types.Type:
    """Return the common type, as DuckDB's, up to the width of whole numbers."""
    found = [k for k in dict.fromkeys(kinds) if k.kind != "NULL"]
    if len(found) <= 1:
        return found[0] if found else types.NULL
    if HASH in found:
        return HASH
    if all(k.kind == "INTEGER" for k in found):
        return LONG if all(map(is_long, found)) else types.HUGEINT
    if all(k.numeric for k in found):
        if any(k.kind == "DOUBLE" for k in found):
            return types.DOUBLE if types.DOUBLE in found else types.FLOAT
        before, after = (max(k.digits[i] for k in found) for i in (0, 1))
        return types.decimal(min(38, before + after), after)
    if {k.kind for k in found} == {"DATE", "TIMESTAMP"}:
        return types.TIMESTAMP
    raise refusal(f"the meeting of {' and '.join(k.sql for k in found)}")


def write_cast(value: SparkValue, kind: types.Type) -> str:
    """Return the value in a type that holds it: the implicit casts of DuckDB, written out."""
    if value.type.kind == "NULL":
        return f"CAST(NULL AS {spark_type(kind)})"
    if spark_type(value.type) == spark_type(kind):
        return value.sql
    total = kind.kind != "DECIMAL" and not (kind == types.FLOAT and value.type == types.DOUBLE)
    return f"{'CAST' if total else 'try_cast'}({value.sql} AS {spark_type(kind)})"


def widen_number(value: SparkValue) -> SparkValue:
    """Return a whole number as it is computed with."""
    kind = types.HUGEINT if value.type.sql in _WIDE else LONG
    return replace(value, sql=write_cast(value, kind), type=kind)


# -- casts ------------------------------------------------------------------------------------------------------


def translate_constant(text: str, kind: types.Type) -> SparkValue:
    """Return a text literal that plan time has read and found good."""
    text = text.strip()
    if kind.kind == "DATE" and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return SparkValue(f"DATE'{text}'", kind)
    if kind == types.TIMESTAMP and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9:.]+)?", text):
        return SparkValue(f"TIMESTAMP_NTZ'{text}'", kind)
    if kind == types.TIMESTAMP and text in ("-infinity", "infinity"):  # the ends of what Spark shows
        return SparkValue(
            f"TIMESTAMP_NTZ'{'0001-01-01' if text[0] == '-' else '9999-12-31 23:59:59.999999'}'", kind
        )
    if kind == types.DOUBLE and re.fullmatch(r"[-+]?(Infinity|NaN)", text):
        return SparkValue(f"double('{text}')", types.DOUBLE)
    if kind.kind == "DOUBLE" and re.fullmatch(r"[-+0-9.eE]+", text):
        return translate_cast(SparkValue(f"{float(text)!r}D", types.DOUBLE), kind)
    if kind.kind in ("INTEGER", "DECIMAL") and re.fullmatch(r"[-+]?[0-9]{1,38}", text):
        return translate_cast(SparkValue(f"CAST('{int(text)}' AS DECIMAL(38,0))", types.HUGEINT), kind)
    raise refusal(f"the text '{text}' as {kind.sql}", "write it as a plain literal.")


def translate_cast(value: SparkValue, kind: types.Type) -> SparkValue:
    """Return a cast. It gives NULL for what does not fit, whether the plan proved that it fits or not."""
    given, name = value.type, spark_type(kind)
    if given == kind or given.kind == "NULL":
        return replace(value, sql=write_cast(value, kind), type=kind)
    made: str | None = None
    if given == HASH or kind == HASH:
        made = value.sql if kind.sql == "UBIGINT" else None
        kind = HASH
    elif kind.kind == "INTEGER":
        made = _to_integer(value, kind, name)
    elif kind.kind == "DECIMAL":
        made = _to_decimal(value, kind)
    elif kind == types.DOUBLE and given.kind in ("INTEGER", "DECIMAL", "DOUBLE", "BOOLEAN"):
        made = f"CAST({value.sql} AS DOUBLE)"
    elif kind == types.FLOAT and given.kind in ("INTEGER", "DECIMAL", "BOOLEAN"):
        made = f"CAST({value.sql} AS FLOAT)"
    elif kind == types.FLOAT and given == types.DOUBLE:
        reaches = f"abs({value.sql}) < 3.4028235677973366E38D OR abs({value.sql}) >= double('Infinity')"
        made = f"(CASE WHEN {reaches} THEN CAST({value.sql} AS FLOAT) END)"
    elif kind == types.BOOLEAN and given.numeric:
        made = f"({value.sql} <> CAST(0 AS {spark_type(given)}))"
    elif kind == types.TEXT and given.kind in ("INTEGER", "DECIMAL", "BOOLEAN", "DATE", "TIMESTAMP"):
        made = f"CAST({value.sql} AS STRING)"
    elif {given.kind, kind.kind} == {"DATE", "TIMESTAMP"}:
        made = f"CAST({value.sql} AS {name})"
    if made is None:
        raise refusal(f"a cast from {given.sql} to {kind.sql}")
    keeps = kind.kind == "INTEGER" and given.kind == "INTEGER"
    return SparkValue(made, kind, value.low if keeps else None, value.high if keeps else None)


_UNSIGNED = {"UTINYINT": 2**8, "USMALLINT": 2**16, "UINTEGER": 2**32, "UBIGINT": 2**64, "UHUGEINT": 10**38}


def _to_integer(value: SparkValue, kind: types.Type, name: str) -> str | None:
    given, sql = value.type, value.sql
    if given.kind == "BOOLEAN":
        return f"CAST({sql} AS {name})" if name != "DECIMAL(38,0)" else f"CAST(CAST({sql} AS INT) AS {name})"
    if given.kind == "DOUBLE" and kind.sql in _WIDE:
        if kind.sql != "HUGEINT":
            raise refusal(f"a cast from {given.sql} to {kind.sql}", "cast to BIGINT.")
        return _wide(write_cast(value, types.DOUBLE))
    if given.kind == "DOUBLE":
        rounded = f"rint({write_cast(value, types.DOUBLE)})"
        if name == "BIGINT":  # 2^63 is a double, and Spark would make it 2^63 - 1
            rounded = f"CASE WHEN {rounded} < 9.223372036854775807E18D THEN {rounded} END"
        made = f"try_cast({rounded} AS {name})"
    elif given.kind == "DECIMAL":
        made = f"try_cast(round({sql}, 0) AS {name})"
    elif given.kind == "INTEGER":
        made = f"{'CAST' if _holds(name, given) else 'try_cast'}({sql} AS {name})"
    else:
        return None
    most = _UNSIGNED.get(kind.sql)
    return f"(CASE WHEN {made} BETWEEN 0 AND {most - 1} THEN {made} END)" if most is not None else made


def _wide(sql: str) -> str:
    """Return a float as a whole number, digit by digit: in two parts of 62 bits, for Spark would take the digits that it is
    shown with.
    """
    whole, part = f"rint({sql})", f"{2.0**62!r}D"
    high = f"CAST({whole} / {part} AS BIGINT)"  # toward zero, so that the rest is exact
    low = f"CAST({whole} - CAST({high} AS DOUBLE) * {part} AS BIGINT)"
    made = f"CAST({high} AS DECIMAL(19,0)) * {2**62}BD + CAST({low} AS DECIMAL(19,0))"
    return f"(CASE WHEN abs({whole}) < 4.2E37D THEN CAST({made} AS DECIMAL(38,0)) END)"


def _holds(name: str, given: types.Type) -> bool:
    order = ["TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(38,0)"]
    return order.index(spark_type(given)) <= order.index(name)


def _to_decimal(value: SparkValue, kind: types.Type) -> str | None:
    given, places = value.type, kind.digits[1]
    if given.kind == "BOOLEAN":
        return f"try_cast(CAST({value.sql} AS INT) AS {kind.sql})"
    if given.kind in ("INTEGER", "DECIMAL"):
        return f"try_cast({value.sql} AS {kind.sql})"
    if given.kind != "DOUBLE" or places > 18:
        return None
    # DuckDB scales the float and rounds that; Spark would round the digits that the float is shown with.
    scaled = f"round({write_cast(value, types.DOUBLE)} * 1.0E{places}D)"
    whole = f"try_cast(CASE WHEN abs({scaled}) < 9.2E18D THEN {scaled} END AS BIGINT)"
    step = "1BD" if places == 0 else f"0.{'0' * (places - 1)}1BD"
    return f"try_cast(CAST({whole} AS DECIMAL(19,0)) * {step} AS {kind.sql})"


def write_quotient(a: str, b: str) -> str:
    """Division as IEEE has it. The sign of a zero is seen by atan2."""
    infinite = f"{a} * CASE WHEN atan2({b}, -1D) < 0D THEN double('-Infinity') ELSE double('Infinity') END"
    zero = f"CASE WHEN {a} = 0D THEN double('NaN') ELSE {infinite} END"
    return f"(CASE WHEN {b} = 0D THEN {zero} ELSE try_divide({a}, {b}) END)"


def write_bits(value: SparkValue) -> str:
    """Return a hash or a salt as 64 bits."""
    if value.low is not None and value.low == value.high and 0 <= value.low <= _MOST:
        return f"{value.low}L"
    if value.type == HASH or is_long(value.type):
        return write_cast(value, LONG)
    raise refusal(f"the bits of {value.type.sql}")
