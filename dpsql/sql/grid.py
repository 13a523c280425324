"""Values as integers on a public grid, clamped exactly: what makes sums exact and their sensitivity a theorem.

The grid is chosen from the bounds alone. A float is multiplied by a power of two and rounded, an integer is kept, a
decimal is scaled by its power of ten. NULL, NaN, the infinities and what does not fit the grid's integers are missing;
everything else is clamped. NULL never becomes a bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import BindError
from dpsql.sql.dialect import expression_of, to_sql
from dpsql.sql.types import Type, Typed

FINE = 20
"""About 2^20 grid steps between the bounds: then 32-bit integers leave room for values 2,000 times beyond them."""
_NARROW = 2**31
_WIDE = 2**53


@dataclass(frozen=True)
class Grid:
    """``steps`` to a unit, and the bounds in steps, rounded outward to the grid.

    ``wide`` says that values need 64-bit integers, with what does not fit 2^53 steps missing.
    """

    steps: Fraction
    low: int
    high: int
    wide: bool = False

    @property
    def farthest(self) -> Fraction:
        """Beyond this, values are missing instead of clamped."""
        return Fraction(_WIDE if self.wide else _NARROW) / self.steps


def choose(kind: Type, low: Fraction, high: Fraction, finer: bool = False, fine: int = FINE) -> Grid:
    """The grid of a column of this type within these bounds.

    ``finer`` asks for fractions of a step even for integers (a mean of integers is no integer).

    Raises:
        BindError: the bounds are too large for exact sums.
    """
    most = max(abs(low), abs(high), Fraction(1, 2**60))
    steps = Fraction(1)
    if kind.kind == "DOUBLE":
        steps = Fraction(2) ** (fine - math.ceil(math.log2(float(most))) if most < 2**400 else 0)
        if most == Fraction(1, 2**60):
            steps = Fraction(1)
    elif kind.kind == "DECIMAL":
        steps = Fraction(10) ** kind.digits[1]
    grid = Grid(steps, math.floor(low * steps), math.ceil(high * steps))
    if max(abs(grid.low), abs(grid.high)) >= _NARROW // 64:
        grid = Grid(steps, grid.low, grid.high, wide=True)
    if max(abs(grid.low), abs(grid.high)) >= _WIDE // 4:
        raise BindError("these bounds are too far apart for exact sums.", hint="declare narrower bounds.")
    return grid


def value(typed: Typed, grid: Grid) -> exp.Expr:
    """The value in grid steps as BIGINT, NULL when missing; not clamped yet."""
    text = to_sql(typed.node)
    kind = typed.type.kind
    target = "BIGINT" if grid.wide else "INTEGER"
    if kind == "INTEGER":
        scaled = text
        if grid.steps != 1:
            scaled = f"CAST({text} AS DOUBLE) * {_number(grid.steps)}"
    elif kind == "DECIMAL":
        # TRY: a decimal of 38 digits overflows when it is scaled.
        scaled = (
            text
            if grid.steps == 1
            else f"TRY(CAST({text} AS DECIMAL(38,{typed.type.digits[1]})) * {grid.steps})"
        )
    else:
        scaled = f"CAST({text} AS DOUBLE) * {_number(grid.steps)}" if grid.steps != 1 else text
    if grid.wide:
        held = f"TRY_CAST({scaled} AS BIGINT)"
        inside = f"CASE WHEN {held} BETWEEN -{_WIDE} AND {_WIDE} THEN {held} END"
        return expression_of(f"{inside}")
    fits = kind == "INTEGER" and typed.type.sql in ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT")
    if fits and grid.steps == 1:
        return expression_of(f"CAST({scaled} AS BIGINT)")
    return expression_of(f"CAST(TRY_CAST({scaled} AS {target}) AS BIGINT)")


def _number(steps: Fraction) -> str:
    if steps.denominator == 1:
        return f"CAST({steps.numerator} AS DOUBLE)" if steps.numerator < 2**62 else repr(float(steps))
    return repr(float(steps))


def clamped_sum(y: str, grid: Grid) -> str:
    """The exact sum of ``y`` clamped to the grid's bounds, without a branch per row.

    For integers, ABS(y - lo) - ABS(y - hi) is 2 clamp(y) - lo - hi. On floats it is not (the differences round), which
    is why values are put on the grid first. The sum is even once the rows' share of lo + hi is added back.
    """
    low, high = grid.low, grid.high
    centre = low + high
    added = f" + COUNT({y}) * CAST({centre} AS HUGEINT)" if centre else ""
    return f"((CAST(COALESCE(SUM(ABS({y} - {_signed(low)}) - ABS({y} - {_signed(high)})), 0) AS HUGEINT){added}) // 2)"


def clamped(y: str, grid: Grid) -> str:
    """``y`` clamped to the grid's bounds; NULL stays NULL, where LEAST and GREATEST would make a bound of it."""
    low, high = grid.low, grid.high
    return f"((ABS({y} - {_signed(low)}) - ABS({y} - {_signed(high)}) + {_signed(low + high)}) // 2)"


def _signed(value: int) -> str:
    return f"({value})" if value < 0 else str(value)
