"""Values as integers on a public grid, whose sums are exact and independent of order; the form in which values leave.

Bounds of a DATE or TIMESTAMP are seconds since 1970, of a TIME seconds since midnight, of an INTERVAL its seconds, with
months of 30 days as in DuckDB's EPOCH. A DATE becomes a number of days, other types a number of seconds, from a start in
the middle of the bounds, which keeps sums small. Infinite dates are missing.

The grid follows from the bounds alone. Floats are multiplied by a power of two and rounded, integers unchanged, decimals
scaled by their power of ten. NULL, NaN, the infinities and values that don't fit the grid's integers are missing; others
are clamped. NULL never becomes a bound.

Addition of doubles rounds at each step, so sums depend on the order of rows. Other people's rows change that order, since
threads take rows by position. So one unit could change the sums of many blocks or units. Sums are therefore of integers,
if the type or the declared bounds allow it, at little cost. A double without bounds is an integer and a rest in units of
2^-62, unless it is tiny or huge. Other values are sorted first, at the cost of a sort.

Values leave an exact query through Arrow, are read in Python, and enter another DuckDB. Arrow has no integers of 128
bits: DuckDB sends decimals of 38 digits, so one person's greater value would end a statement with an error. Here such
integers leave as text and are cast back above the private part. If only their order counts, they are clamped to 38
digits. Lists and structs of them are treated likewise. Floats leave with one zero.

The second lock proves of each text that no other value leaves it.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.values.coercion import refuse_moment
from dpsql.binding.values.sql_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    HUGEINT,
    INTEGER,
    NARROW_INTEGERS,
    SMALL_INTEGERS,
    TEXT,
    TIME,
    TIMESTAMP,
    UNKNOWN,
    Bounds,
    Type,
    Typed,
    decimal,
    make_call,
    make_cast,
    make_try,
    read_type,
)
from dpsql.binding.values.temporal import write_epoch
from dpsql.catalogue.aggregate_names import AGGREGATE_OF_NAME
from dpsql.errors import BindError
from dpsql.language.dialect import bind_error, is_not_null, privacy_error, to_sql
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.queries import write_filter

DAY = 86_400
MOMENT_KINDS = ("DATE", "TIMESTAMP", "TIME", "INTERVAL")
_CALENDAR = ("DATE", "TIMESTAMP")
_NOON = datetime.datetime(1970, 1, 1)

Back = Callable[[exp.Expr], exp.Expr]
"""A function from a released number to the shown value."""


@dataclass(frozen=True)
class Line:
    """A value as a number, with its bounds, and functions back: to the finest type and to its own; None for numbers."""

    typed: Typed
    low: Fraction
    high: Fraction
    between: Back | None = None
    own: Back | None = None
    shown: tuple[str, str] = ("", "")
    """The bounds as shown."""
    unit: str = ""
    """The number's unit, as shown."""


_LONGEST = 999_999_999 * DAY
"""The most seconds of an interval in an answer, those of Python's."""


def place_on_line(typed: Typed, low: Fraction, high: Fraction) -> Line:
    """Return the value as a number, from its bounds."""
    kind = typed.type.kind
    if kind == "BOOLEAN":
        made = Typed(make_cast(typed.node, INTEGER), INTEGER, typed.bounds, nullable=typed.nullable)
        return Line(made, low, high, None, lambda node: make_cast(_round(node, INTEGER), BOOLEAN))
    if kind not in MOMENT_KINDS:
        return Line(typed, low, high)
    start = Fraction((int(low) + int(high)) // 2 // DAY * DAY) if kind in _CALENDAR else Fraction(0)
    shown = _shown(kind, low), _shown(kind, high)
    stamp = (_NOON + datetime.timedelta(seconds=int(start))).isoformat(" ")
    if kind == "DATE":
        since = make_cast(exp.Literal.string(stamp[:10]), DATE)
        made = Typed(make_try(make_call("date_diff", exp.Literal.string("day"), since, typed.node)), BIGINT)
        between = lambda node: _after(stamp, TIMESTAMP, _length(node, DAY))  # noqa: E731
        own = lambda node: _after(stamp[:10], DATE, _round(node, INTEGER))  # noqa: E731
        return Line(made, (low - start) / DAY, (high - start) / DAY, between, own, shown, "days")
    node = write_epoch(typed)
    if start:
        node = exp.Sub(this=node, expression=make_cast(exp.Literal.number(int(start)), DOUBLE))
    back: Back
    if kind == "TIMESTAMP":
        back = lambda node: _after(stamp, TIMESTAMP, _length(node))  # noqa: E731
    elif kind == "TIME":
        last = exp.Literal.number(DAY - 1e-6)  # the time after it is midnight again
        back = lambda node: _after("00:00:00", TIME, _length(_at_most(node, last)))  # noqa: E731
    elif max(-low, high) > _LONGEST:
        what = (
            f"bounds of {_shown(kind, low)} and {_shown(kind, high)} are more than an INTERVAL's answer has."
        )
        hint = "write contribution_bounds_per_row => (0, 86400), the seconds of a day, or other bounds within 2.7 million years."
        raise bind_error(typed.node, what, hint)
    else:
        last = exp.Literal.number(_LONGEST)
        back = lambda node: _span(_at_most(_at_most(node, last), exp.Neg(this=last), exp.LT))  # noqa: E731
    return Line(Typed(node, DOUBLE), low - start, high - start, back, back, shown, "seconds")


def _shown(kind: str, end: Fraction) -> str:
    if kind == "INTERVAL":
        return f"{float(end):g} s"
    moment = _NOON + datetime.timedelta(microseconds=int(end * 1_000_000))
    if kind == "DATE":
        return moment.date().isoformat()
    return moment.isoformat(" ") if kind == "TIMESTAMP" else moment.time().isoformat()


def _round(node: exp.Expr, kind: Type) -> exp.Expr:
    return make_cast(exp.Round(this=node), kind)


def _at_most(node: exp.Expr, last: exp.Expr, compared: type[exp.Binary] = exp.GT) -> exp.Expr:
    """Return the smaller number, or the larger if LT compares them, and NULL for NULL, which LEAST skips."""
    beyond = exp.If(this=compared(this=node.copy(), expression=last.copy()), true=last.copy())
    return exp.Case(ifs=[beyond], default=node)


def _after(start: str, kind: Type, length: exp.Expr) -> exp.Expr:
    return exp.paren(exp.Add(this=make_cast(exp.Literal.string(start), kind), expression=length), copy=False)


def _length(node: exp.Expr, unit: int = 1) -> exp.Expr:
    microseconds = exp.Mul(this=make_cast(node, DOUBLE), expression=exp.Literal.number(unit * 1_000_000))
    return make_call("TO_MICROSECONDS", _round(microseconds, BIGINT))


def _span(seconds: exp.Expr) -> exp.Expr:
    """Return an interval of days and less than a day, since Arrow counts the nanoseconds of 292 years only."""
    node = exp.paren(make_cast(seconds, DOUBLE), copy=False)
    days = exp.Trunc(this=exp.Div(this=node, expression=exp.Literal.number(DAY)))
    whole = exp.Mul(this=days, expression=exp.Literal.number(DAY))
    rest = exp.paren(exp.Sub(this=node.copy(), expression=whole), copy=False)
    made = exp.Add(this=make_call("TO_DAYS", make_cast(days.copy(), INTEGER)), expression=_length(rest))
    return exp.paren(made, copy=False)


FINE_BITS = 20
"""About 2^20 grid steps are between the bounds, so 32-bit integers have room for values 2,000 times as large."""
_NARROW = 2**31
_WIDE = 2**53
NARROW_DIGITS, WIDE_DIGITS = 9, 15
"""Digits of decimals that fit 32 bits, and the integers of a double."""
_EXACT = 2**50
"""The farthest bound, in steps."""
_FEWEST = 2**10
"""The fewest steps between the bounds of a float."""


@dataclass(frozen=True)
class Grid:
    """Steps per unit, and bounds in steps, rounded outward; ``wide``: values of 64 bits, missing above 2^53 steps."""

    steps: Fraction
    low: int
    high: int
    wide: bool = False

    @property
    def centre(self) -> int:
        """The middle of the bounds: about it, sums have half the sensitivity."""
        return (self.low + self.high) // 2

    @property
    def farthest(self) -> Fraction:
        """The absolute value above which values are missing instead of clamped."""
        return Fraction(_WIDE if self.wide else _NARROW) / self.steps


def choose_grid(kind: Type, low: Fraction, high: Fraction, fine: int = FINE_BITS) -> Grid:
    """Return the grid of a column of this type within these bounds.

    Integers are steps and decimals keep their digits, so their sums are exact. Floats have a power of two steps per
    unit, about ``2^fine`` between zero and the farther bound. If that leaves too few steps between the bounds, or too
    many for exact arithmetic, the distance between the bounds determines them.

    Raises:
        BindError: the bounds are too large, or too far from zero for their width, for exact sums.
    """
    most = max(abs(low), abs(high))
    steps = Fraction(1)
    if kind.kind == "DECIMAL":
        steps = Fraction(10) ** kind.digits[1]
    if kind.kind == "DOUBLE" or (kind.kind == "DECIMAL" and most * steps > _EXACT):
        steps = find_power(fine, most)
        if (high - low) * steps < _FEWEST and high > low:
            steps = min(find_power(fine, high - low), find_power(_EXACT.bit_length() - 1, most))
    grid = Grid(steps, math.floor(low * steps), math.ceil(high * steps))
    farther = max(abs(grid.low), abs(grid.high))
    if farther > _EXACT and grid.high - grid.low <= _EXACT:
        near = math.floor(low)
        hint = f"take a number near them away inside, and add it outside: AVG(x - {near}) + {near}."
        raise BindError("these bounds are too far from 0 for exact sums.", hint=hint)
    if farther > _EXACT:
        raise BindError("these bounds are too far apart for exact sums.", hint="declare narrower bounds.")
    return Grid(steps, grid.low, grid.high, wide=farther >= _NARROW // 64)


_WIDEST = {1: 50, 2: 44}
"""The bits of values without bounds, by the power of the values that is added up exactly."""


def choose_trimmed_grid(kind: Type, low: Fraction | None, high: Fraction | None, power: int) -> Grid:
    """Return the grid of values without their smallest and largest: within bounds, or as wide as exact sums allow.

    Without bounds, floats have 2^20 steps per unit, or 2^14 for sums of squares, and are clamped to 2^30.
    """
    if low is not None and high is not None and low < high:
        grid = choose_grid(kind, low, high)
        return coarsen_for_products(grid, low, high) if power == 2 else grid
    farthest = 1 << _WIDEST[power]
    steps = Fraction(1 << _WIDEST[power] - 30)
    if kind.kind == "INTEGER":
        steps = Fraction(1)
    elif kind.kind == "DECIMAL":
        steps = min(steps, Fraction(10) ** kind.digits[1])
    return Grid(steps, -farthest, farthest, wide=True)


_SQUARED = Fraction(2) ** 450
"""The most steps per unit, and the most units per step, whose squares are floats."""
PRODUCT_BITS = 30
"""Products of two values from the centre of bounds 2^30 steps apart have 60 bits, which leaves the others for weights."""


def coarsen_for_products(grid: Grid, low: Fraction, high: Fraction) -> Grid:
    """Return the grid, coarsened by a power of two if sums of products of its steps might not fit 128 bits.

    Raises:
        BindError: products of values within the bounds are no floats.
    """
    if not 1 / _SQUARED <= grid.steps <= _SQUARED:
        what = f"these bounds are too {'small' if grid.steps > 1 else 'large'} for exact sums of products."
        raise BindError(what, hint="multiply inside by a power of ten, and divide outside.")
    excess = (grid.high - grid.low).bit_length() - PRODUCT_BITS
    if excess <= 0:
        return grid
    steps = grid.steps / (1 << excess)
    first, last = math.floor(low * steps), math.ceil(high * steps)
    return Grid(steps, first, last, wide=max(abs(first), abs(last)) >= _NARROW // 64)


def find_power(bits: int, size: Fraction) -> Fraction:
    """Return the largest power of two that gives ``size`` at most ``2^bits`` steps; 1 for zero."""
    if size == 0:
        return Fraction(1)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += size > Fraction(2) ** exponent  # now size <= 2^exponent
    return Fraction(2) ** max(-900, min(bits - exponent, 900))


def write_steps(typed: Typed, grid: Grid, narrow: bool = False) -> exp.Expr:
    """Return the value in grid steps as BIGINT, not clamped; NULL if missing. ``narrow``: in the fewest bits.

    NULL, NaN, the infinities and values above :attr:`Grid.farthest` are missing. Decimals become DOUBLE, exactly: a
    quotient and a product, each rounded once, have an error below half a step for less than 2^50 steps.
    """
    scaled: exp.Expr = exp.Paren(this=typed.node.copy())
    if typed.type.kind != "INTEGER" or grid.steps != 1:
        scaled = make_cast(scaled, DOUBLE)
        if grid.steps != 1:
            scaled = exp.Mul(this=scaled, expression=_number(grid.steps))
    if grid.wide:
        held, most = make_cast(scaled, BIGINT, trying=True), exp.Literal.number(_WIDE)
        within = exp.Between(this=held, low=exp.Neg(this=most), high=most.copy())
        return exp.Case(ifs=[exp.If(this=within, true=held.copy())])
    small = typed.type.sql in NARROW_INTEGERS and grid.steps == 1
    held = scaled if small else make_cast(scaled, INTEGER, trying=True)
    return held if narrow else make_cast(held, BIGINT)


CENTRED_FARTHEST = 2**49
"""Values from this many steps on are missing in :func:`write_centred`."""
_OVERFLOWS = 2.0**-976
"""Half of such values are infinite if they are divided by this."""
_FINEST = 2**40


def write_centred(typed: Typed, grid: Grid) -> str | None:
    """Return a value in grid steps, clamped to the bounds, less their centre; None for integers, and for wide or fine grids.

    In doubles, ``ABS(v - low / 2) - ABS(v - high / 2)`` for half the steps ``v`` is the value relative to the middle. So no
    integer is subtracted, for which DuckDB tests each row for an overflow unless statistics exclude it; and only a few
    values don't fit. Its error is below a quarter as long as ``v`` is below 2^48, so that its integer is within the bounds.
    A scale from which greater values become infinite, and then NaN, leaves them out.
    """
    if typed.type.kind == "INTEGER" or grid.wide or grid.steps > _FINEST:
        return None
    v = f"CAST({to_sql(typed.node)} AS DOUBLE) * {float(grid.steps / 2) / _OVERFLOWS!r} * {_OVERFLOWS!r}"
    low, high = (f"ABS({v} - {_signed(end / 2)})" if end else f"ABS({v})" for end in (grid.low, grid.high))
    odd = " + 0.5" if (grid.low + grid.high) % 2 else ""
    return f"TRY_CAST({low} - {high}{odd} AS INTEGER)"


def _number(steps: Fraction) -> exp.Expr:
    if steps.denominator == 1 and steps.numerator < 2**62:
        return make_cast(exp.Literal.number(steps.numerator), DOUBLE)
    return exp.Literal.number(repr(float(steps)))


def write_doubled_sum(y: str, grid: Grid, centre: int = 0) -> str:
    """Write twice the exact sum of ``y`` clamped to the grid's bounds, less ``centre`` for each value.

    For integers, ABS(y - lo) - ABS(y - hi) = 2 clamp(y) - lo - hi. For floats the differences are rounded, so values
    are put on the grid first. The sum is even, so halving it later is exact, and saves a division for each unit.
    """
    low, high = grid.low, grid.high
    each = f"ABS({y} - {_signed(low)}) - ABS({y} - {_signed(high)})"
    return write_shifted_sum(each, low + high - 2 * centre, y)


def write_shifted_sum(value: str, by: int, counted: str = "") -> str:
    """Write the exact sum of integers, each plus ``by`` if ``counted``, by default the integer, is not NULL."""
    added = f" + COUNT({counted or value}) * CAST({by} AS HUGEINT)" if by else ""
    return f"(CAST(COALESCE(SUM({value}), 0) AS HUGEINT){added})"


def write_clamped(y: str, grid: Grid) -> str:
    """Write ``y`` clamped to the grid's bounds; NULL stays NULL, which LEAST and GREATEST would turn into a bound."""
    low, high = grid.low, grid.high
    return f"((ABS({y} - {_signed(low)}) - ABS({y} - {_signed(high)}) + {_signed(low + high)}) // 2)"


def _signed(value: float) -> str:
    return f"({value})" if value < 0 else str(value)


_FINE_SUM_BITS = 44
"""The farther bound is about 2^44 steps; values 500,000 times as large don't fit 64 bits and are missing."""
_MOST = 2**200


def write_order_independent(
    name: str, typed: Sequence[Typed], values: Sequence[str], distinct: str, condition: str
) -> str:
    """Return the SQL of an aggregate whose result is independent of the order of rows.

    Args:
        typed: the arguments.
        values: the arguments as doubles; missing ones are NULL.
        distinct: ``DISTINCT`` and a space, or nothing.
        condition: that of its FILTER, or nothing.
    """
    given, where = ", ".join(values), write_filter(condition)
    row = AGGREGATE_OF_NAME.get(name)
    if row is not None and row.unordered:
        if row.form == "quantile" and not row.chosen:  # of 0.0 and -0.0, either
            given = ", ".join([f"({values[0]} + CAST(0 AS DOUBLE))", *values[1:]])
        return f"{name}({distinct}{given}){where}"
    ordered = f"{name}({distinct}{given} ORDER BY {given}){where}"
    if name in ("SUM", "AVG"):
        kind, bounds = typed[0].type, typed[0].bounds
        own = to_sql(typed[0].node)
        if kind.kind == "INTEGER" and kind.sql not in ("HUGEINT", "UHUGEINT", "UBIGINT"):
            # DuckDB averages 32-bit integers by a sum in 128 bits, too
            wide = name == "AVG" and kind.sql == "INTEGER"
            return _exact_sum(name, own if wide else f"CAST({own} AS BIGINT)", "", distinct, where)
        if is_added_exactly(kind):
            return _exact_sum(name, own, "", distinct, where)
        if (fine := choose_fine_steps(bounds)) is not None:
            # NaN, infinite or too large values become NULL by the cast
            held = f"TRY_CAST(CAST({own} AS DOUBLE) * {fine!r} AS BIGINT)"
            return _exact_sum(name, held, f" / {fine!r}", distinct, where)
        if bounds is not None and bounds.ends is not None:
            return ordered
        if kind.kind == "DOUBLE" and not distinct:
            return _halves(name, own, values[0], condition)
    return ordered


def choose_fine_steps(bounds: Bounds | None) -> float | None:
    """Return the steps per unit of the grid for sums of doubles within bounds; None without suitable bounds."""
    ends = (bounds or UNKNOWN).ends
    if ends is None:
        return None
    most = max(*map(abs, ends), Fraction(1, 2**200))
    if most > _MOST:
        return None
    return float(2.0 ** (_FINE_SUM_BITS - most.numerator.bit_length() + most.denominator.bit_length()))


_FAR_BY = 64
"""The greatest error of a total of one unit's doubles, in steps of the grid."""
_RARE = 1_000
"""Short decimals are at least twice this number of such errors apart, so few arbitrary totals are rounded to one."""
_MOST_DIGITS = 9


def snap_to_decimal(total: exp.Expr, bounds: Bounds | None) -> exp.Expr:
    """Return a total on the grid of bounds, rounded to a short decimal if one is near: 19.99 + 29.99 + 50.02 is 100."""
    fine = choose_fine_steps(bounds)
    if fine is None:
        return total
    far = _FAR_BY / fine
    digits = math.floor(-math.log10(far * _RARE))
    if digits < 0:
        return total
    short = exp.Round(this=total.copy(), decimals=exp.Literal.number(min(digits, _MOST_DIGITS)))
    distance = exp.Abs(this=exp.Sub(this=total.copy(), expression=short.copy()))
    near = exp.LT(this=distance, expression=exp.Literal.number(repr(far)))
    return exp.paren(exp.Case(ifs=[exp.If(this=near, true=short)], default=total), copy=False)


_MOST_ROWS = 2**34
"""The most rows of one unit, as the second lock takes it."""


def bound_any_sum(typed: Typed) -> Bounds | None:
    """Return the range of the sum of one unit's integers, by their type; None if it may overflow 128 bits."""
    span = typed.span
    if typed.type.kind != "INTEGER" or span is None:
        return None
    reach = span * Bounds(Fraction(0), Fraction(_MOST_ROWS))
    wide = HUGEINT.reach
    return reach if wide is not None and wide.holds(reach) else None


def is_added_exactly(kind: Type) -> bool:
    """Return whether DuckDB adds values of a type as decimals of 38 digits, which no number of rows fills."""
    return kind.kind == "DECIMAL" and sum(kind.digits) <= 18


_FAR_WHOLE = 2**92
"""The sum of this number over ``_MOST_ROWS`` rows fits 128 bits."""


_MOST_DECIMALS = 18
"""Digits after the point with which decimals are added as decimals of 38 digits."""


def sum_exactly(typed: Typed, distinct: str, where: str) -> tuple[str, Type] | None:
    """Return the SQL of the exact sum of one unit's integers or decimals, and its type; None for other numbers.

    The sum is missing if a value is so large that the sum may not fit.

    Args:
        distinct: as for :func:`write_order_independent`.
        where: a space and the FILTER clause, or nothing.
    """
    kind, given = typed.type, to_sql(typed.node)
    if bound_any_sum(typed) is not None:
        wide = BIGINT if kind.sql in SMALL_INTEGERS else HUGEINT
        return f"SUM({distinct}CAST({given} AS {wide.sql})){where}", HUGEINT
    if kind.kind == "INTEGER":
        whole = given if kind == HUGEINT else f"TRY_CAST({given} AS HUGEINT)"
        return _sum_near(given, whole, (f"-{_FAR_WHOLE}", f"{_FAR_WHOLE}"), distinct, where), HUGEINT
    if kind.kind != "DECIMAL" or kind.digits[1] > _MOST_DECIMALS:
        return None
    made = decimal(38, kind.digits[1])
    if sum(kind.digits) <= 38 - len(str(_MOST_ROWS)):
        return f"SUM({distinct}{given}){where}", made
    far = 10 ** (38 - kind.digits[1]) // (10 * _MOST_ROWS)
    low, high = (f"CAST('{end}' AS {kind.sql})" for end in (-far, far))
    return _sum_near(given, given, (low, high), distinct, where), made


def _sum_near(given: str, value: str, ends: tuple[str, str], distinct: str, where: str) -> str:
    near = f"CASE WHEN {value} BETWEEN {ends[0]} AND {ends[1]} THEN {value} END"
    counts = [f"COUNT({distinct}{counted}){where}" for counted in (given, near)]
    return f"CASE WHEN {counts[0]} = {counts[1]} THEN SUM({distinct}{near}){where} END"


_TINY, _HUGE = repr(2.0**-10), repr(2.0**61)


def _halves(name: str, own: str, value: str, condition: str) -> str:
    """Write a sum or mean of doubles without bounds.

    Doubles that aren't tiny or huge are a 64-bit integer and a multiple of 2^-62, which are added as integers. The
    others, often none, are sorted and added.
    """
    near = f"CASE WHEN ABS({own}) BETWEEN {_TINY} AND {_HUGE} THEN {own} END"
    whole = f"TRY_CAST({near} AS BIGINT)"
    rest = f"TRY_CAST(({near} - CAST({whole} AS DOUBLE)) * {2.0**62!r} AS BIGINT)"
    far = f"{own} <> 0 AND NOT ABS({own}) BETWEEN {_TINY} AND {_HUGE}"
    where = write_filter(condition)
    kept = write_filter(f"({condition}) AND {far}" if condition else far)
    parts = (
        f"CAST(SUM({whole}){where} AS DOUBLE)",
        f"CAST(SUM({rest}){where} AS DOUBLE) / {2.0**62!r}",
        f"SUM({value} ORDER BY {value}){kept}",
    )
    total = " + ".join(f"COALESCE({part}, 0.0)" for part in parts)
    count = f"COUNT({value}){where}"
    if name == "SUM":
        return f"(CASE WHEN {count} > 0 THEN {total} END)"
    return f"(({total}) / NULLIF({count}, 0))"


def _exact_sum(name: str, integer: str, scaled: str, distinct: str, where: str) -> str:
    """Write a sum or mean of 64-bit integers, which DuckDB adds in 128 bits: exact in any order."""
    total = f"{name}({distinct}{integer}){where}"
    return f"(CAST({total} AS DOUBLE){scaled})" if name == "SUM" else f"({total}{scaled})"


def unify_zeros(typed: Typed) -> Typed:
    """Return a number with one zero and one NaN: of the equal 0.0 and -0.0, DuckDB keeps the first in a group."""
    if typed.type.kind != "DOUBLE" or typed.constant:
        return typed
    node, kind = typed.node, typed.type
    added = exp.Add(this=node.copy(), expression=make_cast(exp.Literal.number(0), kind))
    nan = make_cast(exp.Literal.string("NaN"), kind)
    made = exp.Case(ifs=[exp.If(this=exp.IsNan(this=node.copy()), true=nan)], default=added)
    return replace(typed, node=made)


def make_canonical(typed: Typed, place: exp.Expr) -> exp.Expr:
    """Return a value for an aggregate that chooses one of its rows: equal values must be written alike.

    Raises:
        PrivacyError: the value is an interval or contains floats, and others' rows determine which one comes first.
    """
    made = unify_zeros(typed)
    if made is typed and typed.type.two_faced and not typed.constant:
        what = f"equal values of {typed.type.sql} may look different, and others' rows determine which one comes first."
        interval = typed.type.kind == "INTERVAL"
        hint = f"write EPOCH({to_sql(place)}): a number." if interval else "take a number made of it."
        raise privacy_error(place, what, hint)
    return made.node


def write_group_keys(typed: Typed) -> list[str]:
    """Return the SQL to group by, so that all values of a group look alike."""
    sql = to_sql(typed.node)
    split = typed.type.two_faced and typed.type.kind != "DOUBLE"
    return [sql, f"CAST({sql} AS VARCHAR)"] if split else [sql]


MAX_DECIMAL = 10**38 - 1
"""The greatest integer of 38 digits."""
_CLAMPED = Bounds(Fraction(-MAX_DECIMAL), Fraction(MAX_DECIMAL))
_IN_128_BITS = ("HUGEINT", "UHUGEINT")


def find_exit_type(kind: Type, wide: Type = TEXT) -> Type:
    """Return the type in which a value leaves: its own, with ``wide`` in place of 128-bit integers.

    >>> find_exit_type(Type.parse("STRUCT(a HUGEINT, b DATE)[]")).sql
    'STRUCT("a" VARCHAR, "b" DATE)[]'
    """
    if kind.sql in _IN_128_BITS:
        return wide
    if kind.element is not None:
        element = find_exit_type(kind.element, wide)
        return kind if element == kind.element else Type.parse(f"{element.sql}[]")
    fields = [(name, find_exit_type(inner, wide)) for name, inner in kind.fields]
    if fields == list(kind.fields):
        return kind
    named = ", ".join(f"{to_sql(exp.to_identifier(name, quoted=True))} {inner.sql}" for name, inner in fields)
    return Type.parse(f"STRUCT({named})")


def leave(typed: Typed) -> Typed:
    """Return a value as it leaves; the mapping is injective.

    Raises:
        BindError: it has a moment, which can't be shown without a time zone.
    """
    refuse_moment(typed)
    made = unify_zeros(typed)
    kind = find_exit_type(typed.type)
    if kind == typed.type:
        return made
    if typed.type == HUGEINT and typed.span is not None and _CLAMPED.holds(typed.span):
        return hold_to_38_digits(made)  # nothing changes, and the second lock sees the range
    node = make_cast(made.node, kind)
    return Typed(node, kind, None, typed.constant, nullable=typed.nullable, place=typed.place)


def come_back(node: exp.Expr, kind: Type, left: str) -> exp.Expr:
    """Return a released value in its own type, above the private part.

    Args:
        node: the column of the release.
        left: the SQL type in which the value left.
    """
    return node if left == kind.sql or find_exit_type(kind) == kind else make_cast(node, kind)


def hold_to_38_digits(typed: Typed) -> Typed:
    """Return a value that may leave as a number: a 128-bit integer is clamped to 38 digits, or else NULL in a list."""
    if find_exit_type(typed.type) == typed.type:
        return typed
    if typed.type.sql not in _IN_128_BITS:
        kind = find_exit_type(typed.type, decimal(38, 0))
        node = make_cast(typed.node, kind, trying=True)
        return replace(typed, node=node, type=kind, nullable=True, plain=None)
    value, most = typed.node.copy(), exp.Literal.number(MAX_DECIMAL)
    if typed.type == HUGEINT:
        made = clamp_to_38_digits(value)
    else:
        ends = [exp.Cast(this=end, to=read_type("UHUGEINT")) for end in (most, exp.Literal.number(0))]
        clamped = _choose(exp.Greatest, _choose(exp.Least, value, ends[0]), ends[1])
        made = make_cast(clamped, HUGEINT, trying=True)
    node = exp.Case(ifs=[exp.If(this=is_not_null(typed.node), true=made)])
    return replace(typed, node=node, type=HUGEINT, reach=_CLAMPED, plain=None)


def _choose(kind: type[exp.Expr], value: exp.Expr, end: exp.Expr) -> exp.Expr:
    """Return the least or the greatest of a value and an end."""
    return kind(this=value, expressions=[end], ignore_nulls=True)


def clamp_to_38_digits(value: exp.Expr) -> exp.Expr:
    """Return an integer other than NULL, clamped to 38 digits."""
    most = exp.Literal.number(MAX_DECIMAL)
    return _choose(exp.Least, _choose(exp.Greatest, value, exp.Neg(this=most)), most.copy())
