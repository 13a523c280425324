"""Public facts about an aggregate of one unit's own rows."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from dpsql.sql.expressions.total_expressions import make_total
from dpsql.sql.expressions.types import Bounds
from dpsql.sql.parse.options import Call
from dpsql.sql.relations.relation import From, Names

_KEPT = ("MIN", "MAX", "AVG", "MEDIAN", "MODE", "QUANTILE_CONT", "QUANTILE_DISC", "ARG_MIN", "ARG_MAX")
_SPREADS: dict[str, Callable[[Fraction], Fraction]] = {
    "VAR_POP": lambda width: width**2 / 4, "STDDEV_POP": lambda width: width / 2,
    **dict.fromkeys(("VARIANCE", "VAR_SAMP"), lambda width: width**2 / 2),
    **dict.fromkeys(("STDDEV", "STDDEV_SAMP"), lambda width: width * 3 / 4),
}  # fmt: skip
"""The largest spread of values in an interval of this width: half of them at each end, or one of two for a sample."""


def bound_rows(bound: From) -> Bounds:
    """Return the number of one unit's rows, as far as the policy or the query determines it."""
    return Bounds(Fraction(0), None if bound.most_rows is None else Fraction(bound.most_rows))


def bound_unit_aggregate(call: Call, names: Names, rows: Bounds) -> Bounds | None:
    """Return the public bounds of a unit's own aggregate: a count is at most its rows, an average within its column's bounds."""
    if call.name in ("COUNT", "COUNT_IF", "REGR_COUNT"):
        return rows
    if call.name == "CORR":
        return Bounds(Fraction(-1), Fraction(1))
    inner = make_total(call.args[0], names).bounds
    if inner is None or inner.low is None or inner.high is None:
        return None
    if call.name in _KEPT:
        return inner
    if call.name in _SPREADS:
        width = inner.high - inner.low
        return Bounds(Fraction(0), _SPREADS[call.name](width))
    return inner * rows if call.name == "SUM" and rows.bounded else None
