"""Values as integers on a public grid, whose sums are exact: numbers, moments as numbers, and order-independent sums.

Bounds of a DATE or TIMESTAMP count seconds since 1970, those of a TIME since midnight, those of an INTERVAL its length
(a month of 30 days, as DuckDB's EPOCH has it). A DATE stands on its line in days, all else in seconds, from a start in
the middle of the bounds, which keeps sums small. What is no moment (infinity) is missing.

The grid is chosen from the bounds alone. A float is multiplied by a power of two and rounded, an integer is kept, a
decimal is scaled by its power of ten. NULL, NaN, the infinities and what does not fit the grid's integers are missing;
everything else is clamped. NULL never becomes a bound.

Adding doubles rounds at every step, so what a block or a unit adds up to would change with the order of its rows; and
that order changes when somebody else's row comes or goes: threads take rows by place, and places shift. One unit could
then move the results of many blocks, or many units' own sums. So sums are taken in integers where the type or the
declared bounds allow it (which costs little), as integers and rests of 2^-62 where nothing is known of a double but most
are neither tiny nor huge, and in the order of the values elsewhere (which costs a sort).
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from sqlglot import exp

from dpsql.binding.values.sql_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    HUGEINT,
    INTEGER,
    TIME,
    TIMESTAMP,
    Bounds,
    Type,
    Typed,
    make_call,
    make_cast,
    make_try,
)
from dpsql.binding.values.temporal import write_epoch
from dpsql.errors import BindError, PolicyError
from dpsql.language.dialect import expression_of, privacy_error, to_sql
from dpsql.policy.validate import DateBound

DAY = 86_400
MOMENT_KINDS = ("DATE", "TIMESTAMP", "TIME", "INTERVAL")
_CALENDAR = ("DATE", "TIMESTAMP")
_NOON = datetime.datetime(1970, 1, 1)

Back = Callable[[exp.Expr], exp.Expr]
"""A function from a released number to what is shown."""


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
    unit: str = ""
    """The unit that the line counts in, for people."""


def place_on_line(typed: Typed, low: Fraction, high: Fraction) -> Line:
    """Return the value on its line. ``low`` and ``high`` are as bounds have them."""
    kind = typed.type.kind
    if kind == "BOOLEAN":
        made = Typed(make_cast(typed.node, INTEGER), INTEGER, typed.bounds, nullable=typed.nullable)
        return Line(made, low, high, None, lambda node: make_cast(_round(node, INTEGER), BOOLEAN))
    if kind not in MOMENT_KINDS:
        return Line(typed, low, high)
    start = Fraction((int(low) + int(high)) // 2 // DAY * DAY) if kind in _CALENDAR else Fraction(0)
    told = _shown(kind, low), _shown(kind, high)
    stamp = (_NOON + datetime.timedelta(seconds=int(start))).isoformat(" ")
    if kind == "DATE":
        since = make_cast(exp.Literal.string(stamp[:10]), DATE)
        made = Typed(make_try(make_call("date_diff", exp.Literal.string("day"), since, typed.node)), BIGINT)
        return Line(
            made, (low - start) / DAY, (high - start) / DAY,
            lambda node: _after(stamp, TIMESTAMP, _length(node, DAY)),
            lambda node: _after(stamp[:10], DATE, _round(node, INTEGER)),
            told, "days",
        )  # fmt: skip
    node = write_epoch(typed)
    if start:
        node = exp.Sub(this=node, expression=make_cast(exp.Literal.number(int(start)), DOUBLE))
    back: Back
    if kind == "TIMESTAMP":
        back = lambda node: _after(stamp, TIMESTAMP, _length(node))  # noqa: E731
    elif kind == "TIME":
        last = exp.Literal.number(DAY - 1e-6)  # the time after it is midnight again
        back = lambda node: _after("00:00:00", TIME, _length(_at_most(node, last)))  # noqa: E731
    else:
        back = _length
    return Line(Typed(node, DOUBLE), low - start, high - start, back, back, told, "seconds")


def _shown(kind: str, end: Fraction) -> str:
    if kind == "INTERVAL":
        return f"{float(end):g} s"
    moment = _NOON + datetime.timedelta(microseconds=int(end * 1_000_000))
    if kind == "DATE":
        return moment.date().isoformat()
    return moment.isoformat(" ") if kind == "TIMESTAMP" else moment.time().isoformat()


def _round(node: exp.Expr, kind: Type) -> exp.Expr:
    return make_cast(exp.Round(this=node), kind)


def _at_most(node: exp.Expr, last: exp.Expr) -> exp.Expr:
    """Return the smaller number: LEAST would make one of NULL."""
    beyond = exp.If(this=exp.GT(this=node.copy(), expression=last.copy()), true=last.copy())
    return exp.Case(ifs=[beyond], default=node)


def _after(start: str, kind: Type, length: exp.Expr) -> exp.Expr:
    return exp.paren(exp.Add(this=make_cast(exp.Literal.string(start), kind), expression=length), copy=False)


def _length(node: exp.Expr, unit: int = 1) -> exp.Expr:
    microseconds = exp.Mul(this=make_cast(node, DOUBLE), expression=exp.Literal.number(unit * 1_000_000))
    return make_call("TO_MICROSECONDS", _round(microseconds, BIGINT))


def read_declared_bounds(kind: str, bounds: tuple[Fraction, Fraction] | None, where: str) -> Bounds | None:
    """Return the bounds that a policy declares of a column of this kind.

    Raises:
        PolicyError: dates for numbers, or numbers for dates.
    """
    if bounds is None:
        return None
    given = {end.kind if isinstance(end, DateBound) else "number" for end in bounds}
    wanted = {"DATE": "date", "TIMESTAMP": "date", "TIME": "time"}.get(kind, "number")
    if given != {wanted}:
        example = {"date": "[2020-01-01, 2020-12-31]", "time": "[08:00:00, 18:00:00]", "number": "[0, 100]"}
        raise PolicyError(
            f"the bounds of {where} are {' and '.join(sorted(g + 's' for g in given))}, and the column is {kind}.",
            hint=f"bounds = {example[wanted]}",
        )
    return Bounds(Fraction(bounds[0]), Fraction(bounds[1]))


FINE_BITS = 20
"""About 2^20 grid steps between the bounds: then 32-bit integers leave room for values 2,000 times beyond them."""
_NARROW = 2**31
_WIDE = 2**53
NARROW_DIGITS, WIDE_DIGITS = 9, 15
"""Decimals of so many digits are no more steps than 32 bits, or a double, hold."""
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
        """The size beyond which values are missing instead of clamped."""
        return Fraction(_WIDE if self.wide else _NARROW) / self.steps


def choose_grid(kind: Type, low: Fraction, high: Fraction, fine: int = FINE_BITS) -> Grid:
    """Return the grid of a column of this type within these bounds.

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


_WIDEST = {1: 50, 2: 44}
"""The bits of values without bounds, by the power of them that is summed exactly."""


def choose_trimmed_grid(kind: Type, low: Fraction | None, high: Fraction | None, power: int) -> Grid:
    """Return the grid of values whose smallest and largest are left out: within bounds, or as wide as exact sums allow.

    Without bounds floats have 2^20 steps to a unit (2^14 where squares are summed), and what lies beyond 2^30 is held to it.
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
    """Return the largest power of two that gives ``size`` at most ``2^bits`` steps; 1 for nothing."""
    if size == 0:
        return Fraction(1)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += size > Fraction(2) ** exponent  # now size <= 2^exponent
    return Fraction(2) ** max(-900, min(bits - exponent, 900))


def write_steps(typed: Typed, grid: Grid, narrow: bool = False) -> exp.Expr:
    """Return the value in grid steps as BIGINT, NULL when missing; not clamped yet. ``narrow``: in no more bits than it needs.

    NULL, NaN, the infinities and what lies beyond :attr:`Grid.farthest` are missing. Decimals come over DOUBLE, which
    is exact here: a quotient and a product, each rounded once, are off by less than half a step below 2^50 steps.
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
    small = typed.type.sql in _SMALL and grid.steps == 1
    held = scaled if small else make_cast(scaled, INTEGER, trying=True)
    return held if narrow else make_cast(held, BIGINT)


_SMALL = ("TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT")


def _number(steps: Fraction) -> exp.Expr:
    if steps.denominator == 1 and steps.numerator < 2**62:
        return make_cast(exp.Literal.number(steps.numerator), DOUBLE)
    return exp.Literal.number(repr(float(steps)))


def write_doubled_sum(y: str, grid: Grid, centre: int = 0) -> str:
    """Write twice the exact sum of ``y`` clamped to the grid's bounds, less ``centre`` for each value.

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


def write_clamped(y: str, grid: Grid) -> str:
    """``y`` clamped to the grid's bounds; NULL stays NULL, where LEAST and GREATEST would make a bound of it."""
    low, high = grid.low, grid.high
    return f"((ABS({y} - {_signed(low)}) - ABS({y} - {_signed(high)}) + {_signed(low + high)}) // 2)"


def _signed(value: int) -> str:
    return f"({value})" if value < 0 else str(value)


_CHOSEN = ("MEDIAN", "QUANTILE_CONT", "QUANTILE_DISC")
_ANY_ORDER = ("MEDIAN", "QUANTILE_CONT", "QUANTILE_DISC", "REGR_COUNT", "MIN", "MAX")
_FINE_SUM_BITS = 44
"""The farther bound is about 2^44 steps; what lies some 500,000 times beyond it does not fit 64 bits and is missing."""
_MOST = 2**200


def write_order_independent(
    name: str, typed: Sequence[Typed], values: Sequence[str], distinct: str, where: str
) -> str:
    """Return the aggregate ``name`` in SQL.

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
            return _exact_sum(name, own if wide else f"CAST({own} AS BIGINT)", "", distinct, where)
        if is_added_exactly(kind):
            return _exact_sum(name, own, "", distinct, where)
        if bounds is not None and bounds.low is not None and bounds.high is not None:
            fine = choose_fine_steps(bounds)
            if fine is None:
                return ordered
            steps = repr(fine)
            # not a number, infinite, or too far: the cast gives NULL, at no cost of its own
            held = f"TRY_CAST(CAST({own} AS DOUBLE) * {steps} AS BIGINT)"
            return _exact_sum(name, held, f" / {steps}", distinct, where)
        if kind.kind == "DOUBLE" and not distinct:
            return _halves(name, own, values[0], where)
    return ordered


def choose_fine_steps(bounds: Bounds | None) -> float | None:
    """Return the steps to a unit of the grid on which doubles within these bounds are added, or None."""
    if bounds is None or bounds.low is None or bounds.high is None:
        return None
    most = max(abs(bounds.low), abs(bounds.high), Fraction(1, 2**200))
    if most > _MOST:
        return None
    return float(2.0 ** (_FINE_SUM_BITS - most.numerator.bit_length() + most.denominator.bit_length()))


SMALL_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
"""Integers that fit 64 bits: DuckDB adds them in 128 bits, which no number of rows fills."""
_FAR_BY = 64
"""Steps of the grid that a total of one unit's doubles is off by at most."""
_RARE = 1_000
"""Short decimals are at least twice this number of such distances apart, so few arbitrary totals are moved to one."""
_MOST_DIGITS = 9


def snap_to_decimal(total: str, bounds: Bounds | None) -> str:
    """Write a total of doubles that were added on the grid of their bounds, rounded to a short decimal if one is near.

    The total of 19.99, 29.99 and 50.02 is 100 then, and not 100 and a part of a step of the grid.
    """
    fine = choose_fine_steps(bounds)
    if fine is None:
        return total
    far = _FAR_BY / fine
    digits = math.floor(-math.log10(far * _RARE))
    if digits < 0:
        return total
    short = f"ROUND({total}, {min(digits, _MOST_DIGITS)})"
    return f"(CASE WHEN ABS({total} - {short}) < {far!r} THEN {short} ELSE {total} END)"


_MOST_ROWS = 2**31
"""Rows that one unit has at most."""


def bound_any_sum(typed: Typed) -> Bounds | None:
    """Return the integers that the sum of one unit's values can't leave, by their type; None if 128 bits may not hold them."""
    span = typed.span
    if typed.type.kind != "INTEGER" or span is None:
        return None
    reach = span * Bounds(Fraction(0), Fraction(_MOST_ROWS))
    wide = HUGEINT.reach
    return reach if wide is not None and wide.holds(reach) else None


def is_added_exactly(kind: Type) -> bool:
    """Return whether DuckDB adds values of a type as decimals of 38 digits, which no number of rows fills."""
    return kind.kind == "DECIMAL" and sum(kind.digits) <= 18


_FAR_WHOLE = 2**95
"""The sum of this number over ``_MOST_ROWS`` rows fits 128 bits."""


def sum_wide_integers(typed: Typed, distinct: str, where: str) -> str:
    """Return the SQL of the sum of one unit's integers of 128 bits: missing where one of them is too great to be added up.

    Args:
        distinct: ``DISTINCT`` and a space, or nothing.
        where: the clause FILTER, or nothing.
    """
    given = to_sql(typed.node)
    whole = given if typed.type == HUGEINT else f"TRY_CAST({given} AS HUGEINT)"
    return _sum_near(given, whole, (f"-{_FAR_WHOLE}", f"{_FAR_WHOLE}"), distinct, where)


MOST_DECIMALS = 18
"""Digits after the point with which decimals are added as decimals of 38 digits."""


def sum_decimals(typed: Typed, distinct: str, where: str) -> str:
    """Return the SQL of the exact sum of one unit's decimals; of wide ones as :func:`sum_wide_integers`."""
    given = to_sql(typed.node)
    if sum(typed.type.digits) <= 38 - len(str(_MOST_ROWS)):
        return f"SUM({distinct}{given}){where}"
    far: int = 10 ** (38 - typed.type.digits[1]) // (10 * _MOST_ROWS)
    low, high = (f"CAST('{end}' AS {typed.type.sql})" for end in (-far, far))
    return _sum_near(given, given, (low, high), distinct, where)


def _sum_near(given: str, value: str, ends: tuple[str, str], distinct: str, where: str) -> str:
    near = f"CASE WHEN {value} BETWEEN {ends[0]} AND {ends[1]} THEN {value} END"
    counts = [f"COUNT({distinct}{counted}){where}" for counted in (given, near)]
    return f"CASE WHEN {counts[0]} = {counts[1]} THEN SUM({distinct}{near}){where} END"


_TINY, _HUGE = repr(2.0**-10), repr(2.0**61)


def _halves(name: str, own: str, value: str, where: str) -> str:
    """Return a double in between is a whole number and a rest that is a multiple of 2^-62: both are added as integers.

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


def _exact_sum(name: str, integer: str, scaled: str, distinct: str, where: str) -> str:
    """Write a sum or mean of 64-bit integers, which DuckDB adds in 128 bits: exact in any order."""
    total = f"{name}({distinct}{integer}){where}"
    return f"(CAST({total} AS DOUBLE){scaled})" if name == "SUM" else f"({total}{scaled})"


def unify_zeros(typed: Typed) -> Typed:
    """Return a number with one zero and one NaN: of 0.0 and -0.0, which are equal, DuckDB keeps the one that it meets first."""
    if typed.type.kind != "DOUBLE" or typed.constant:
        return typed
    sql, kind = to_sql(typed.node), typed.type.sql
    made = f"CASE WHEN ISNAN({sql}) THEN CAST('NaN' AS {kind}) ELSE {sql} + CAST(0 AS {kind}) END"
    return replace(typed, node=expression_of(made))


def write_canonical(typed: Typed, place: exp.Expr) -> str:
    """Return the SQL of a value that an aggregate chooses from its rows: equal ones must look the same.

    Raises:
        PrivacyError: intervals, and what holds numbers with fractions: which is met first is up to the rows of others.
    """
    made = unify_zeros(typed)
    if made is typed and typed.type.two_faced and not typed.constant:
        raise privacy_error(
            place,
            f"equal values of {typed.type.sql} may look different, and which comes first is not one unit's own.",
            "take a number made of it, such as EPOCH(x) of an interval.",
        )
    return to_sql(made.node)


def write_group_keys(typed: Typed) -> list[str]:
    """Return the SQL that a value is grouped by, where a group's value must look the same whichever row comes first."""
    sql = to_sql(typed.node)
    split = typed.type.two_faced and typed.type.kind != "DOUBLE"
    return [sql, f"CAST({sql} AS VARCHAR)"] if split else [sql]
