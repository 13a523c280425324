"""Aggregates of doubles that do not depend on the order in which rows come.

Adding doubles rounds at every step, so what a block or a unit adds up to would change with the order of its rows; and
that order changes when somebody else's row comes or goes: threads take rows by place, and places shift. One unit could
then move the results of many blocks, or many units' own sums. So sums are taken in integers where the type or the
declared bounds allow it (which costs little), as integers and rests of 2^-62 where nothing is known of a double but most
are neither tiny nor huge, and in the order of the values elsewhere (which costs a sort).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import PrivacyError
from dpsql.sql.expressions.bounds import Interval
from dpsql.sql.expressions.types import Typed
from dpsql.sql.parse.dialect import expression_of, span_of, to_sql

_CHOSEN = ("MEDIAN", "QUANTILE_CONT", "QUANTILE_DISC")
_ANY_ORDER = ("MEDIAN", "QUANTILE_CONT", "QUANTILE_DISC", "REGR_COUNT", "MIN", "MAX")
_FINE = 44
"""The farther bound is about 2^44 steps; what lies some 500,000 times beyond it does not fit 64 bits and is missing."""
_MOST = 2**200


def steady(name: str, typed: Sequence[Typed], values: Sequence[str], distinct: str, where: str) -> str:
    """The aggregate ``name`` in SQL.

    Args:
        typed: the arguments. values: the same as doubles, NULL where they are missing.
        distinct, where: ``DISTINCT `` and `` FILTER (...)``, or nothing.
    """
    given = ", ".join(values)
    if name in _ANY_ORDER:
        if name in _CHOSEN:  # of 0.0 and -0.0, either
            given = ", ".join([f"({values[0]} + CAST(0 AS DOUBLE))", *values[1:]])
        return f"{name}({distinct}{given}){where}"
    ordered = f"{name}({distinct}{given} ORDER BY {given}){where}"
    if name in ("SUM", "AVG"):
        kind, bounds = typed[0].type, typed[0].bounds
        own = to_sql(typed[0].node)
        if kind.kind == "INTEGER" and kind.sql not in ("HUGEINT", "UHUGEINT", "UBIGINT"):
            # DuckDB keeps the sum behind an average of 32-bit integers in 128 bits, too
            wide = name == "AVG" and kind.sql == "INTEGER"
            return _exact(name, own if wide else f"CAST({own} AS BIGINT)", "", distinct, where)
        if kind.kind == "DECIMAL" and sum(kind.digits) <= 18:
            return _exact(name, own, "", distinct, where)
        if bounds is not None and bounds.low is not None and bounds.high is not None:
            fine = fine_steps(bounds)
            if fine is None:
                return ordered
            steps = repr(fine)
            # not a number, infinite, or too far: the cast gives NULL, at no cost of its own
            held = f"TRY_CAST(CAST({own} AS DOUBLE) * {steps} AS BIGINT)"
            return _exact(name, held, f" / {steps}", distinct, where)
        if kind.kind == "DOUBLE" and not distinct:
            return _halves(name, own, values[0], where)
    return ordered


def fine_steps(bounds: Interval | None) -> float | None:
    """Steps to a unit of the grid on which doubles within these bounds are added; None where there is no such grid."""
    if bounds is None or bounds.low is None or bounds.high is None:
        return None
    most = max(abs(bounds.low), abs(bounds.high), Fraction(1, 2**200))
    if most > _MOST:
        return None
    return float(2.0 ** (_FINE - most.numerator.bit_length() + most.denominator.bit_length()))


_TINY, _HUGE = repr(2.0**-10), repr(2.0**61)


def _halves(name: str, own: str, value: str, where: str) -> str:
    """A double in between is a whole number and a rest that is a multiple of 2^-62: both are added as integers.

    The others (which may be none) are added in their order.
    """
    near = f"CASE WHEN ABS({own}) BETWEEN {_TINY} AND {_HUGE} THEN {own} END"
    whole = f"TRY_CAST({near} AS BIGINT)"
    rest = f"TRY_CAST(({near} - CAST({whole} AS DOUBLE)) * {2.0**62!r} AS BIGINT)"
    far = f"{own} <> 0 AND NOT ABS({own}) BETWEEN {_TINY} AND {_HUGE}"
    kept = f" FILTER (WHERE ({where.removeprefix(' FILTER (WHERE ').removesuffix(')')}) AND {far})" if where else (
        f" FILTER (WHERE {far})"
    )  # fmt: skip
    parts = (
        f"CAST(SUM({whole}){where} AS DOUBLE)",
        f"CAST(SUM({rest}){where} AS DOUBLE) / {2.0**62!r}",
        f"SUM({value} ORDER BY {value}){kept}",
    )
    total = " + ".join(f"COALESCE({part}, 0.0)" for part in parts)
    count = f"COUNT({value}){where}"
    return (
        f"(CASE WHEN {count} > 0 THEN {total} END)" if name == "SUM" else f"(({total}) / NULLIF({count}, 0))"
    )


def _exact(name: str, integer: str, scaled: str, distinct: str, where: str) -> str:
    """Of 64-bit integers, whose sums DuckDB keeps in 128 bits: exact in any order."""
    total = f"{name}({distinct}{integer}){where}"
    return f"(CAST({total} AS DOUBLE){scaled})" if name == "SUM" else f"({total}{scaled})"


def one_face(typed: Typed) -> Typed:
    """A number with one zero and one NaN: of 0.0 and -0.0, which are equal, DuckDB keeps the one that it meets first."""
    if typed.type.kind != "DOUBLE" or typed.constant:
        return typed
    sql, kind = to_sql(typed.node), typed.type.sql
    made = f"CASE WHEN ISNAN({sql}) THEN CAST('NaN' AS {kind}) ELSE {sql} + CAST(0 AS {kind}) END"
    return replace(typed, node=expression_of(made))


def least_face(typed: Typed, place: exp.Expr) -> str:
    """The SQL of a value that an aggregate chooses from its rows: equal ones must look the same.

    Raises:
        PrivacyError: intervals, and what holds numbers with fractions: which is met first is up to the rows of others.
    """
    made = one_face(typed)
    if made is typed and typed.type.two_faced and not typed.constant:
        raise PrivacyError(
            f"equal values of {typed.type.sql} may look different, and which comes first is not one unit's own.",
            span=span_of(place),
            hint="take a number made of it, such as EPOCH(x) of an interval.",
        )
    return to_sql(made.node)


def grouped_by(typed: Typed) -> list[str]:
    """The SQL that a value is grouped by, where a group's value must look the same whichever row comes first."""
    sql = to_sql(typed.node)
    split = typed.type.two_faced and typed.type.kind != "DOUBLE"
    return [sql, f"CAST({sql} AS VARCHAR)"] if split else [sql]
