"""Aggregates of doubles that do not depend on the order in which rows come.

Adding doubles rounds at every step, so what a block or a unit adds up to would change with the order of its rows; and
that order changes when somebody else's row comes or goes: threads take rows by place, and places shift. One unit could
then move the results of many blocks, or many units' own sums. So sums are taken in integers where the type or the
declared bounds allow it (which costs little), and in the order of the values elsewhere (which costs a sort).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from dpsql.sql.dialect import to_sql
from dpsql.sql.types import Typed

_ANY_ORDER = ("MEDIAN", "QUANTILE_CONT", "QUANTILE_DISC", "REGR_COUNT", "MIN", "MAX")
_FINE = 62
"""The farther bound is about 2^62 steps: finer than doubles are."""
_MOST = 2**200
_FAR = 2.0**30
"""Beyond so many times the declared bounds, a number is missing: sums of 2^92 steps each fit 128 bits."""


def steady(name: str, typed: Sequence[Typed], values: Sequence[str], distinct: str, where: str) -> str:
    """The aggregate ``name`` in SQL.

    Args:
        typed: the arguments. values: the same as doubles, NULL where they are missing.
        distinct, where: ``DISTINCT `` and `` FILTER (...)``, or nothing.
    """
    given = ", ".join(values)
    if name in _ANY_ORDER:
        return f"{name}({distinct}{given}){where}"
    ordered = f"{name}({distinct}{given} ORDER BY {given}){where}"
    if name in ("SUM", "AVG"):
        kind, bounds = typed[0].type, typed[0].bounds
        if kind.kind == "INTEGER" and kind.sql not in ("HUGEINT", "UHUGEINT", "UBIGINT"):
            return _over(name, f"CAST({to_sql(typed[0].node)} AS BIGINT)", "1.0", distinct, where)
        if bounds is not None and bounds.low is not None and bounds.high is not None:
            most = max(abs(bounds.low), abs(bounds.high), Fraction(1, 2**200))
            if most > _MOST:
                return ordered
            exponent = most.numerator.bit_length() - most.denominator.bit_length()
            steps = 2.0 ** (_FINE - exponent)
            held = f"CASE WHEN ABS({values[0]}) < {float(most) * _FAR!r} THEN CAST({values[0]} * {steps!r} AS HUGEINT) END"
            return _over(name, held, repr(steps), distinct, where)
    return ordered


def _over(name: str, integer: str, steps: str, distinct: str, where: str) -> str:
    total = f"CAST(SUM({distinct}{integer}){where} AS DOUBLE)"
    count = f" / COUNT({distinct}{integer}){where}" if name == "AVG" else ""
    return f"({total} / {steps}{count})"
