"""``contribution_bounds_per_row => AUTO``: sums and means whose clipping bounds are found privately, in one pass."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from dpsql.errors import BindError
from dpsql.mechanisms.auto_bounds import PLACES, SHARED, AutoBounded, exponent_above
from dpsql.mechanisms.composite import Together
from dpsql.sql.expressions.types import Type, Typed
from dpsql.sql.parse.dialect import span_of, to_sql
from dpsql.sql.parse.options import Call

if TYPE_CHECKING:
    from dpsql.sql.dp.block import Block

_FRACTIONS = (-30, 64)
"""Rungs for numbers with fractions: bounds from about a billionth to 2^64."""


def ladder_of(kind: Type) -> tuple[int, int]:
    """The lowest and highest power of two that a type can need."""
    if kind.kind == "INTEGER" and kind.reach is not None and kind.reach.high is not None:
        return 0, int(kind.reach.high).bit_length()
    if kind.kind == "DECIMAL":
        before, after = kind.digits
        return -(-after * -10 // 3), before * 10 // 3 + 1
    return _FRACTIONS


def declared(typed: Typed) -> tuple[Fraction | None, Fraction | None]:
    """Return the declared bounds of an expression, rounded outwards to doubles: its values are held to them."""
    if typed.bounds is None:
        return None, None
    low, high = typed.bounds.low, typed.bounds.high
    return (
        None if low is None else _outwards(low, -math.inf),
        None if high is None else _outwards(high, math.inf),
    )


def _outwards(end: Fraction, away: float) -> Fraction | None:
    """Round to the nearest double that is not inside the bounds; None beyond the doubles."""
    try:
        near = float(end)
    except OverflowError:
        return None
    if (Fraction(near) < end) if away > 0 else (Fraction(near) > end):
        near = math.nextafter(near, away)
    return Fraction(near) if math.isfinite(near) else None


def _in_statement(block: Block) -> int:
    """Count the aggregates with AUTO in the whole statement: those bound already, and those in the text still to be bound."""
    waiting = sum(node.name.upper() == "AUTO" for node in block.select.root().find_all(exp.Column, exp.Var))
    operators = (bound.operator for bound in block.binder.blocks)
    parts = (part for operator in operators if isinstance(operator, Together) for part in operator.parts)
    return max(SHARED, waiting + sum(isinstance(part, AutoBounded) for part in parts))


def auto_bounded(
    block: Block, call: Call, name: str, kind: Literal["sum", "avg"], typed: Typed, epsilon: Fraction
) -> AutoBounded:
    """The part that finds the bounds and releases the clipped sum or mean."""
    exact = block.exact
    keys = tuple(key.name for key in exact.keys)
    low, high = ladder_of(typed.type)
    least, most = declared(typed)
    ends = [abs(end) for end in (least, most)] if least is not None and most is not None else []
    if ends:  # no rung is needed beyond what is declared
        high = max(low, min(high, exponent_above(max(*ends, Fraction(2) ** low))))
    value = f"CAST({block.filtered(call, to_sql(typed.node))} AS DOUBLE)"
    given = exact.held(value, block.per_unit_groups)
    held = f"SELECT * FROM ({given}) AS given WHERE ABS(v) < CAST('Infinity' AS DOUBLE)"
    rung = f"CASE WHEN v = 0 THEN {low} ELSE CAST(LEAST(GREATEST(CEIL(LOG2(ABS(v))), {low}), {high}) AS INTEGER) END"
    if least is not None or most is not None:  # NULL is gone, of which LEAST would make a bound
        value = "v"
        for end, pick in ((most, "LEAST"), (least, "GREATEST")):
            value = value if end is None else f"{pick}({value}, CAST('{float(end)!r}' AS DOUBLE))"
        held = f"SELECT {', '.join([*keys, value])} AS v FROM ({held}) AS present"
    placed = f"SELECT *, CASE WHEN v > 0 THEN 1 WHEN v < 0 THEN -1 ELSE 0 END AS sign, {rung} AS rung FROM ({held}) AS held"
    steps = f"CAST(LEAST(ROUND(ABS(v) / POW(2.0, rung - {PLACES})), {1 << PLACES}) AS BIGINT)"
    by = ", ".join([*keys, "sign", "rung"])
    query = f"SELECT {by}, COUNT(*) AS n, SUM({steps}) AS total FROM ({placed}) AS placed GROUP BY {by}"
    return AutoBounded(
        query,
        keys,
        name,
        kind,
        epsilon,
        low,
        high,
        exact.rows_per_unit,
        block.per_unit_groups,
        block.confidence,
        least,
        most,
        _in_statement(block),
    )


def require_number(call: Call, typed: Typed) -> None:
    if not typed.type.numeric:
        raise BindError(
            f"{call.name} needs a number, and this is {typed.type.sql}.", span=span_of(call.args[0])
        )
