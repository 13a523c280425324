"""Dates, times, intervals and booleans as numbers: bounds as seconds, values on a line, answers as DuckDB's types.

Bounds of a DATE or TIMESTAMP count seconds since 1970, those of a TIME since midnight, those of an INTERVAL its length
(a month of 30 days, as DuckDB's EPOCH has it). A DATE stands on its line in days, all else in seconds, from a start in
the middle of the bounds, which keeps sums small. What is no moment (infinity) is missing.

Values as integers on a public grid, clamped exactly: what makes sums exact and their sensitivity a theorem.

The grid is chosen from the bounds alone. A float is multiplied by a power of two and rounded, an integer is kept, a
decimal is scaled by its power of ten. NULL, NaN, the infinities and what does not fit the grid's integers are missing;
everything else is clamped. NULL never becomes a bound.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import BindError, PolicyError
from dpsql.policy.validate import Moment
from dpsql.sql.expressions.bounds import Interval
from dpsql.sql.expressions.coercion import attempt, call, cast
from dpsql.sql.expressions.temporal import length_of, seconds
from dpsql.sql.expressions.types import BIGINT, DATE, DOUBLE, INTEGER, Type, Typed
from dpsql.sql.parse.dialect import expression_of, to_sql

DAY = 86_400
MOMENTS = ("DATE", "TIMESTAMP", "TIME", "INTERVAL")
_CALENDAR = ("DATE", "TIMESTAMP")
_NOON = datetime.datetime(1970, 1, 1)

Back = Callable[[str], str]
"""From SQL of a released number to SQL of what is shown."""


@dataclass(frozen=True)
class Line:
    """A value as a number, its bounds there, and the ways back: to the finest and to its own type (None: it is one)."""

    typed: Typed
    low: Fraction
    high: Fraction
    between: Back | None = None
    own: Back | None = None
    shown: tuple[str, str] = ("", "")
    """The bounds for the eye."""

    @property
    def unit(self) -> str:
        return "days" if self.typed.type.kind == "INTEGER" else "seconds"


def line(typed: Typed, low: Fraction, high: Fraction) -> Line:
    """The value on its line. ``low`` and ``high`` are as bounds have them."""
    kind = typed.type.kind
    if kind == "BOOLEAN":
        made = Typed(cast(typed.node, INTEGER), INTEGER, typed.bounds, nullable=typed.nullable)
        return Line(made, low, high, None, lambda text: f"CAST(CAST(ROUND({text}) AS INTEGER) AS BOOLEAN)")
    if kind not in MOMENTS:
        return Line(typed, low, high)
    start = Fraction((int(low) + int(high)) // 2 // DAY * DAY) if kind in _CALENDAR else Fraction(0)
    told = _shown(kind, low), _shown(kind, high)
    stamp = (_NOON + datetime.timedelta(seconds=int(start))).isoformat(" ")
    if kind == "DATE":
        since = cast(exp.Literal.string(stamp[:10]), DATE)
        made = Typed(attempt(call("date_diff", exp.Literal.string("day"), since, typed.node)), BIGINT)
        return Line(
            made, (low - start) / DAY, (high - start) / DAY,
            lambda text: f"(CAST('{stamp}' AS TIMESTAMP) + {_length(text, DAY)})",
            lambda text: f"(CAST('{stamp[:10]}' AS DATE) + CAST(ROUND({text}) AS INTEGER))",
            told,
        )  # fmt: skip
    node = seconds(typed)
    if start:
        node = exp.Sub(this=node, expression=cast(exp.Literal.number(int(start)), DOUBLE))
    back: Back
    if kind == "TIMESTAMP":
        back = lambda text: f"(CAST('{stamp}' AS TIMESTAMP) + {_length(text)})"  # noqa: E731
    elif kind == "TIME":
        last = DAY - 1e-6  # the time after it is midnight again
        held = "CASE WHEN {0} > {1} THEN {1} ELSE {0} END"  # LEAST would make a time of NULL
        back = lambda text: f"(CAST('00:00:00' AS TIME) + {_length(held.format(text, last))})"  # noqa: E731
    else:
        back = _length
    return Line(Typed(node, DOUBLE), low - start, high - start, back, back, told)


def _shown(kind: str, end: Fraction) -> str:
    if kind == "INTERVAL":
        return f"{float(end):g} s"
    moment = _NOON + datetime.timedelta(microseconds=int(end * 1_000_000))
    if kind == "DATE":
        return moment.date().isoformat()
    return moment.isoformat(" ") if kind == "TIMESTAMP" else moment.time().isoformat()


def _length(text: str, unit: int = 1) -> str:
    return f"TO_MICROSECONDS(CAST(ROUND(CAST({text} AS DOUBLE) * {unit * 1_000_000}) AS BIGINT))"


def declared(kind: str, bounds: tuple[Fraction, Fraction] | None, where: str) -> Interval | None:
    """The bounds that a policy declares of a column of this kind.

    Raises:
        PolicyError: dates for numbers, or numbers for dates.
    """
    if bounds is None:
        return None
    given = {end.kind if isinstance(end, Moment) else "number" for end in bounds}
    wanted = {"DATE": "date", "TIMESTAMP": "date", "TIME": "time"}.get(kind, "number")
    if given != {wanted}:
        example = {"date": "[2020-01-01, 2020-12-31]", "time": "[08:00:00, 18:00:00]", "number": "[0, 100]"}
        raise PolicyError(
            f"the bounds of {where} are {' and '.join(sorted(g + 's' for g in given))}, and the column is {kind}.",
            hint=f"bounds = {example[wanted]}",
        )
    return Interval(Fraction(bounds[0]), Fraction(bounds[1]))


def moment_of(node: exp.Expr) -> tuple[str, Fraction] | None:
    """The kind and the seconds of a literal DATE, TIMESTAMP, TIME or INTERVAL; None for anything else."""
    if isinstance(node, exp.Interval):
        length = length_of(node)
        return None if length is None else ("INTERVAL", length)
    if not isinstance(node, exp.Cast) or not isinstance(node.this, exp.Literal):
        return None
    kind, text = to_sql(node.args["to"]), node.this.name.strip()
    try:
        if kind == "DATE":
            return kind, Moment(datetime.date.fromisoformat(text))
        if kind == "TIMESTAMP":
            return kind, Moment(datetime.datetime.fromisoformat(text))
        if kind == "TIME":
            return kind, Moment(datetime.time.fromisoformat(text))
    except ValueError:
        pass
    return None


FINE = 20
"""About 2^20 grid steps between the bounds: then 32-bit integers leave room for values 2,000 times beyond them."""
_NARROW = 2**31
_WIDE = 2**53
_EXACT = 2**50
"""Farthest bound, in steps."""
_FEWEST = 2**10
"""Steps between the bounds of a float."""


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


def choose(kind: Type, low: Fraction, high: Fraction, fine: int = FINE) -> Grid:
    """The grid of a column of this type within these bounds.

    Integers are whole steps and decimals keep their digits, so their sums are exact; floats get a power of two steps
    to a unit, about ``2^fine`` of them between zero and the farther bound. Where that leaves too few between the
    bounds (they are close together and far from zero), or too many for exact arithmetic, the width decides.

    Raises:
        BindError: the bounds are too large, or too far from zero for their width, for exact sums.
    """
    most = max(abs(low), abs(high))
    steps = Fraction(1)
    if kind.kind == "DECIMAL":
        steps = Fraction(10) ** kind.digits[1]
    if kind.kind == "DOUBLE" or (kind.kind == "DECIMAL" and most * steps > _EXACT):
        steps = _power(fine, most)
        if (high - low) * steps < _FEWEST and high > low:
            steps = min(_power(fine, high - low), _power(_EXACT.bit_length() - 1, most))
    grid = Grid(steps, math.floor(low * steps), math.ceil(high * steps))
    farther = max(abs(grid.low), abs(grid.high))
    if farther > _EXACT:
        raise BindError("these bounds are too far apart for exact sums.", hint="declare narrower bounds.")
    return Grid(steps, grid.low, grid.high, wide=farther >= _NARROW // 64)


PRODUCT_BITS = 30
"""Products of two values are added about their centre: bounds that many bits apart leave them 60, and weights the rest."""


def coarsen_for_products(grid: Grid, low: Fraction, high: Fraction) -> Grid:
    """Return the grid, made coarser by a power of two where sums of products of its steps might not fit 128 bits."""
    beyond = (grid.high - grid.low).bit_length() - PRODUCT_BITS
    if beyond <= 0:
        return grid
    steps = grid.steps / (1 << beyond)
    first, last = math.floor(low * steps), math.ceil(high * steps)
    return Grid(steps, first, last, wide=max(abs(first), abs(last)) >= _NARROW // 64)


def _power(bits: int, size: Fraction) -> Fraction:
    """The largest power of two that gives ``size`` at most ``2^bits`` steps; 1 for nothing."""
    if size == 0:
        return Fraction(1)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += size > Fraction(2) ** exponent  # now size <= 2^exponent
    return Fraction(2) ** max(-900, min(bits - exponent, 900))


def value(typed: Typed, grid: Grid, narrow: bool = False) -> exp.Expr:
    """The value in grid steps as BIGINT, NULL when missing; not clamped yet. ``narrow``: in no more bits than it needs.

    NULL, NaN, the infinities and what lies beyond :attr:`Grid.farthest` are missing. Decimals come over DOUBLE, which
    is exact here: a quotient and a product, each rounded once, are off by less than half a step below 2^50 steps.
    """
    text = f"({to_sql(typed.node)})"
    if typed.type.kind == "INTEGER" and grid.steps == 1:
        scaled = text
    else:
        scaled = f"CAST({text} AS DOUBLE)" + (f" * {_number(grid.steps)}" if grid.steps != 1 else "")
    if grid.wide:
        held = f"TRY_CAST({scaled} AS BIGINT)"
        return expression_of(f"CASE WHEN {held} BETWEEN -{_WIDE} AND {_WIDE} THEN {held} END")
    small = typed.type.sql in _SMALL and grid.steps == 1
    held = scaled if small else f"TRY_CAST({scaled} AS INTEGER)"
    return expression_of(held if narrow else f"CAST({held} AS BIGINT)")


_SMALL = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT")


def _number(steps: Fraction) -> str:
    if steps.denominator == 1:
        return f"CAST({steps.numerator} AS DOUBLE)" if steps.numerator < 2**62 else repr(float(steps))
    return repr(float(steps))


def doubled_sum(y: str, grid: Grid, centre: int = 0) -> str:
    """Twice the exact sum of ``y`` clamped to the grid's bounds, less ``centre`` for each; no branch per row.

    For integers, ABS(y - lo) - ABS(y - hi) is 2 clamp(y) - lo - hi. On floats it is not (the differences round), which
    is why values are put on the grid first. It is even for every row, and so is every sum of it: to halve it late is
    exact, and a division of wide integers for each of a million units is not free.
    """
    low, high = grid.low, grid.high
    each = low + high - 2 * centre
    added = f" + COUNT({y}) * CAST({each} AS HUGEINT)" if each else ""
    return (
        f"(CAST(COALESCE(SUM(ABS({y} - {_signed(low)}) - ABS({y} - {_signed(high)})), 0) AS HUGEINT){added})"
    )


def clamped(y: str, grid: Grid) -> str:
    """``y`` clamped to the grid's bounds; NULL stays NULL, where LEAST and GREATEST would make a bound of it."""
    low, high = grid.low, grid.high
    return f"((ABS({y} - {_signed(low)}) - ABS({y} - {_signed(high)}) + {_signed(low + high)}) // 2)"


def _signed(value: int) -> str:
    return f"({value})" if value < 0 else str(value)
