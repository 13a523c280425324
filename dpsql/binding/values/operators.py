"""Total operators: arithmetic, comparisons, parts of JSON texts, and entries of maps.

Integers are widened until their types prove the range of the result; declared bounds prove nothing, since data may break
them. If no type is wide enough, the operation is in TRY. Division by zero depends on DuckDB's version and settings; here
it always gives NULL for integers, and infinity or NaN for floats.

DuckDB raises on text that is no JSON, so a text is tried as JSON first and is NULL otherwise. A path is a literal of plain
keys and places, which DuckDB reads without fail. A part is written in at most :data:`_GROWTH` times the characters of the
whole, since a number of few digits may have a long exponent.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from sqlglot import exp

from dpsql.binding.values.coercion import (
    MAX_LITERAL_COUNT,
    NUMBER_KINDS,
    Bind,
    binds_calls_of,
    cast_fitting,
    cast_to_double,
    find_common_number,
    fits,
    let_meet,
    make_boolean,
    meet,
    read_constant,
    read_in_utc,
    refuse_moment,
    refuse_order,
    require_kind,
    take_value,
)
from dpsql.binding.values.declared_values import (
    EQUALITIES,
    change_case,
    check_comparison,
    check_list,
    count_written,
    hold,
    length_of,
    limit_steps,
    list_values,
    mark_length,
    note_impossible,
)
from dpsql.binding.values.sql_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    HUGEINT,
    INTEGER,
    INTERVAL,
    MOMENT,
    NULL,
    TEXT,
    TIMESTAMP,
    UNKNOWN,
    Bounds,
    Type,
    Typed,
    decimal,
    list_of,
    make_call,
    make_cast,
    make_try,
    parenthesise,
    write_local_time,
)
from dpsql.errors import BindError
from dpsql.language.dialect import bind_error, privacy_error, to_sql
from dpsql.numerics.interval_arithmetic import (
    Enclosure,
    enclose_exponential,
    enclose_logarithm,
    enclose_power,
)

_SHIFTED = ("DATE", "TIMESTAMP", "MOMENT")
_MOMENTS = {"DATE", "TIMESTAMP", "MOMENT", "INTERVAL", "TIME"}


def bind_comparison(node: exp.Expr, bind: Bind) -> Typed:
    """Bind a comparison of two values of one family."""
    parts = _read_constants([bind(node.this), bind(node.expression)])
    met = meet(parts, "the comparison", compared=True)
    if isinstance(node, exp.LT | exp.LTE | exp.GT | exp.GTE):
        refuse_order(parts, node)
    if isinstance(node, EQUALITIES):
        check_comparison(parts[0], parts[1], lambda side: _list_values(side, bind))
    if met.type.kind != "MOMENT":
        left, right = _read_moments(parts)
        note_impossible(node, (type(node), left, right))
    never = isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ) and met.safe
    return make_boolean(_apply(node, *met.nodes), parts, False if never else None if met.safe else True)


def bind_between(node: exp.Expr, bind: Bind) -> Typed:
    """Bind BETWEEN."""
    parts = _read_constants([bind(place) for place in (node.this, node.args["low"], node.args["high"])])
    met = meet(parts, "BETWEEN", compared=True)
    refuse_order(parts, node)
    if met.type.kind != "MOMENT":
        asked, least, most = _read_moments(parts)
        note_impossible(node, (exp.GTE, asked, least), (exp.LTE, asked, most))
    value, low, high = (parenthesise(part) for part in met.nodes)
    return make_boolean(exp.Between(this=value, low=low, high=high), parts, None if met.safe else True)


def bind_in(node: exp.Expr, bind: Bind) -> Typed:
    """Bind IN with a list of values."""
    parts = _read_constants([bind(place) for place in (node.this, *node.expressions)])
    met = meet(parts, "IN", compared=True)
    check_list(parts[0], parts[1:], lambda side: _list_values(side, bind))
    made = exp.In(this=parenthesise(met.nodes[0]), expressions=met.nodes[1:])
    return make_boolean(made, parts, None if met.safe else True)


def _read_moments(parts: list[Typed]) -> list[Typed]:
    """Return the values, with constant texts as the dates or timestamps that they are compared with."""
    kinds = [part.type for part in parts if part.type.kind in ("DATE", "TIMESTAMP")]
    return [_read_text(part, kinds[0]) for part in parts] if kinds else parts


def _read_text(part: Typed, kind: Type) -> Typed:
    """Return a constant text as a value of a type, and others unchanged."""
    if part.constant and part.type.kind == "TEXT" and isinstance(part.node, exp.Literal):
        with contextlib.suppress(BindError):
            return replace(read_constant(part.node, kind, part.place or part.node), place=part.place)
    return part


def _list_values(side: Typed, bind: Bind) -> tuple[object, ...] | None:
    place = side.place.unnest() if side.place is not None else None
    if side.values is None and isinstance(place, exp.Upper | exp.Lower):
        return change_case(place, _list_values(bind(place.this), bind))
    return list_values(side)


def _read_constants(parts: list[Typed]) -> list[Typed]:
    """Return the values, with quoted numbers and truths in the type of the one value that isn't constant.

    They are read at plan time, so that no row can fail. Other texts stay texts, and are refused later.
    """
    asked = [part for part in parts if not part.constant]
    if len(asked) != 1 or not (asked[0].type.numeric or asked[0].type.kind == "BOOLEAN"):
        return parts
    return [_read_text(part, asked[0].shown) for part in parts]


def _apply(node: exp.Expr, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return type(node)(this=parenthesise(left), expression=parenthesise(right))


def _numbers(node: exp.Expr, bind: Bind) -> tuple[Typed, Typed]:
    left, right = bind(node.this), bind(node.expression)
    _require_numbers(left, right)
    return left, right


def _require_numbers(*operands: Typed) -> None:
    for typed in operands:
        cast = {"TEXT": "TRY_CAST({x} AS DOUBLE)", "BOOLEAN": "CAST({x} AS INT)"}.get(typed.type.kind)
        hint = None if cast is None or typed.place is None else f"write {cast.format(x=to_sql(typed.place))}."
        require_kind(typed, NUMBER_KINDS, "arithmetic needs numbers", hint)


# -- plus, minus, times -----------------------------------------------------------------------------------------

_Op = Callable[[Bounds, Bounds], Bounds]
_BOUNDS: dict[type[exp.Expr], _Op] = {
    exp.Add: lambda a, b: a + b,
    exp.Sub: lambda a, b: a - b,
    exp.Mul: lambda a, b: a * b,
}


def bind_arithmetic(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``+``, ``-`` and ``*`` of numbers and moments."""
    left, right = bind(node.this), bind(node.expression)
    if left.type.kind in _MOMENTS or right.type.kind in _MOMENTS:
        return combine_moments(node, left, right)
    both = (left, right)
    _require_numbers(*both)
    kinds = {left.type.kind, right.type.kind}
    bounds = _BOUNDS[type(node)](left.bounds or UNKNOWN, right.bounds or UNKNOWN)
    if "NULL" in kinds:
        known = left.type if right.type.kind == "NULL" else right.type
        known = INTEGER if known == NULL else known
        return Typed(make_cast(exp.Null(), known), known)
    if kinds == {"INTEGER"}:
        return _integers(node, left, right, bounds)
    if "DOUBLE" in kinds:
        met = meet(both, "the arithmetic")
        return Typed.made_of(
            _apply(node, *met.nodes), met.type, both, bounds, nullable=None if met.safe else True
        )
    wanted = decimal_result(node, left.type, right.type)
    asks = any(side.node.find(exp.Query) for side in both)  # DuckDB takes no scalar subquery in TRY
    if wanted is None or asks:  # more digits after the point than a decimal has
        made = _apply(node, cast_to_double(left), cast_to_double(right))
        return Typed.made_of(made, DOUBLE, both, bounds)
    plain = decimal_result(node, left.shown, right.shown)
    if not isinstance(node, exp.Mul) and sum(wanted.digits) > 18 >= max(sum(v.type.digits) for v in both):
        # One version of DuckDB keeps such sums in 18 digits, where they may not fit.
        left = replace(left, node=make_cast(left.node, wanted), type=wanted)
        wanted = decimal_result(node, left.type, right.type)
        assert wanted is not None
    made = make_try(_apply(node, _as_decimal(node, left, wanted), _as_decimal(node, right, wanted)))
    return Typed.made_of(made, wanted, both, bounds, nullable=True, plain=plain)


def _as_decimal(node: exp.Expr, value: Typed, kind: Type) -> exp.Expr:
    """Return an operand whose cast can't fail.

    DuckDB computes an expression that occurs twice in a query once, before and outside either TRY. So each TRY
    contains one operation that may fail, and no cast.
    """
    if isinstance(node, exp.Mul):
        kind = decimal(38, 0) if value.type.kind == "INTEGER" else value.type
    return let_meet(value, kind)


def _integers(node: exp.Expr, left: Typed, right: Typed, bounds: Bounds) -> Typed:
    both = (left, right)
    plain = find_common_number(both, shown=True)
    if plain.sql == "UHUGEINT":
        kind = meet(both, "the arithmetic").type
        return Typed.made_of(make_try(_apply(node, left.node, right.node)), kind, both, bounds, nullable=True)
    reach = _BOUNDS[type(node)](left.span or UNKNOWN, right.span or UNKNOWN)
    own = find_common_number(both)
    wide = _hold(reach, own, left, right)
    if wide is None:
        made = type(node)(this=make_cast(left.node, HUGEINT), expression=make_cast(right.node, HUGEINT))
        return Typed.made_of(make_try(made), HUGEINT, both, bounds, nullable=True, plain=plain)
    nodes = [left.node, right.node]
    if wide != own:  # DuckDB widens the other operand, too
        place = 0 if right.constant else 1
        nodes[place] = make_cast(nodes[place], wide)
    return Typed.made_of(_apply(node, *nodes), wide, both, bounds, reach=reach, plain=plain)


def _hold(reach: Bounds, own: Type, *operands: Typed) -> Type | None:
    """Return the narrowest integer type, from an operation's own on, with room for its results and operands."""
    for kind in (own, BIGINT, HUGEINT):
        held = kind.reach is not None and kind.reach.holds(reach)
        if held and all(fits(typed, kind) for typed in operands):
            return kind
    return None


def decimal_result(node: exp.Expr, left: Type, right: Type) -> Type | None:
    """Return DuckDB's type of ``+``, ``-`` and ``*`` on decimals and integers; None if there is none."""
    (a, s), (b, t) = left.digits, right.digits
    if isinstance(node, exp.Mul):
        width, scale = a + s + b + t, s + t
    else:
        scale = max(s, t)
        width = max(a, b) + scale + 1
    if scale > 38:
        return None
    if isinstance(node, exp.Mul) and width > 18 and max(a + s, b + t) <= 18 and scale < 18:
        width = 18
    return decimal(min(width, 38), scale)


def _in_zone(typed: Typed, other: Typed) -> Typed:
    """Return a constant moment as the local time of the zone of the other value, if that has one."""
    if not other.type.zone or typed.type.zone or not typed.constant or typed.moment is None:
        return typed
    return replace(typed, node=write_local_time(typed.moment, other.type.zone), bounds=None, twin=None)


def _shifted(made: exp.Expr, source: Typed) -> Typed:
    """Return a shifted time: of a zone it keeps the zone but has no moment; a moment is shifted in UTC."""
    if source.type == MOMENT:
        return Typed(write_local_time(made, "UTC"), MOMENT, None, source.constant)
    if source.type.zone:
        return Typed(made, source.type)
    if source.constant and source.moment is not None:
        return Typed(made, TIMESTAMP, None, True, twin=(made, write_local_time(made, "UTC")))
    return Typed(made, TIMESTAMP)


def combine_moments(node: exp.Expr, left: Typed, right: Typed) -> Typed:
    """Bind arithmetic of dates and intervals, in TRY, since results may be outside the calendar."""
    if isinstance(node, exp.Sub):
        left, right = read_in_utc(left, right)
    shifts = "INTERVAL" in (left.type.kind, right.type.kind)
    for typed, other in ((left, right), (right, left)) if not shifts else ():
        refuse_moment(typed, other.type.zone)
    left, right = _in_zone(left, right), _in_zone(right, left)
    kinds = (left.type.kind, right.type.kind)
    both = (left, right)
    nodes = [parenthesise(write_local_time(t.node, "UTC") if t.type == MOMENT else t.node) for t in both]
    if set(kinds) == {"DATE", "TIMESTAMP"}:
        at = kinds.index("DATE")
        nodes[at] = make_cast((left, right)[at].node, TIMESTAMP, trying=True)
    made = make_try(type(node)(this=nodes[0], expression=nodes[1]))
    apart = None if left.bounds is None or right.bounds is None else left.bounds - right.bounds
    if isinstance(node, exp.Sub) and kinds == ("DATE", "DATE"):
        return Typed(made, BIGINT, None if apart is None else apart * Bounds.point(Fraction(1, 86_400)))
    if isinstance(node, exp.Sub) and set(kinds) <= {"DATE", "TIMESTAMP"}:
        return Typed(made, INTERVAL, apart)
    if isinstance(node, exp.Add | exp.Sub) and kinds[0] in _SHIFTED and kinds[1] == "INTERVAL":
        return _shifted(made, left)
    if isinstance(node, exp.Add) and kinds[0] == "INTERVAL" and kinds[1] in _SHIFTED:
        return _shifted(made, right)
    if isinstance(node, exp.Add | exp.Sub) and kinds == ("INTERVAL", "INTERVAL"):
        return Typed(made, INTERVAL)
    place = 1 if kinds[0] == "INTERVAL" else 0
    amount, written = ((left, node.this), (right, node.expression))[place]
    whole = amount.type.kind == "INTEGER" or isinstance(written.unnest(), exp.Floor | exp.Ceil)
    if isinstance(node, exp.Mul) and kinds[1 - place] == "INTERVAL" and whole:
        nodes[place] = cast_fitting(amount, BIGINT)
        return Typed(make_try(exp.Mul(this=nodes[0], expression=nodes[1])), INTERVAL)
    if isinstance(node, exp.Add | exp.Sub) and kinds == ("DATE", "INTEGER"):
        return Typed(make_try(_apply(node, left.node, cast_fitting(right, INTEGER))), DATE)
    message = f"{left.type.sql} and {right.type.sql} don't add up."
    raise bind_error(node, message, "use date_diff('day', a, b), or add INTERVAL 3 DAY.")


# -- division ---------------------------------------------------------------------------------------------------


def bind_division(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``/``: division of DOUBLEs, or of FLOATs and coarser types; infinity or NaN at zero."""
    both = left, right = _numbers(node, bind)
    bounds = (left.bounds or UNKNOWN) / (right.bounds or UNKNOWN)
    kind = DOUBLE
    if NULL not in (left.type, right.type) and find_common_number(both) == FLOAT:
        kind = FLOAT
    nodes = [parenthesise(v.node if v.type == kind else cast_fitting(v, kind)) for v in both]
    made = exp.Div(this=nodes[0], expression=nodes[1], typed=False, safe=False)
    return Typed.made_of(make_try(made), kind, both, bounds, nullable=True)


def bind_whole_division(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``//`` and ``%``: NULL at zero."""
    both = left, right = _numbers(node, bind)
    remainder = isinstance(node, exp.Mod)
    met = meet(both, "the division")
    kind, plain = met.type, met.plain
    if kind.kind == "DECIMAL":
        # DuckDB divides decimals as doubles; their remainder is a decimal if both fit 38 digits.
        digits = [t.type.digits for t in both if t.type.kind != "NULL"]
        wide = max(d[0] for d in digits) + max(d[1] for d in digits) > 38
        kind = plain = DOUBLE if not remainder or wide else kind
    if kind.kind == "NULL":
        kind = plain = INTEGER
    if remainder:
        bounds = (left.bounds or UNKNOWN).remainder(right.bounds or UNKNOWN)
    else:
        bounds = (left.bounds or UNKNOWN) / (right.bounds or UNKNOWN)
        bounds = bounds.rounded() if kind.kind == "INTEGER" else bounds
    dividend, divisor = met.nodes if kind.kind in ("INTEGER", "DECIMAL") else (left.node, right.node)
    sure = isinstance(right.node, exp.Literal) and right.bounds != Bounds.point(0)
    if not sure and not (remainder and kind.kind == "DOUBLE"):
        divisor = exp.Nullif(this=divisor, expression=exp.Literal.number(0))
    made = _apply(node, dividend, divisor)
    safe = sure and met.safe and kind.kind == "INTEGER"
    missing = left.nullable or not safe
    return Typed.made_of(made if safe else make_try(made), kind, both, bounds, nullable=missing, plain=plain)


# -- signs and bits ---------------------------------------------------------------------------------------------


def bind_negation(node: exp.Expr, bind: Bind) -> Typed:
    """Bind the minus sign of a number or an interval."""
    inner = _least_integer(node.this) or bind(node.this)
    if inner.type.kind == "INTERVAL":
        return Typed(make_try(exp.Neg(this=parenthesise(inner.node))), INTERVAL)
    require_kind(inner, NUMBER_KINDS, "a number is needed")
    bounds = None if inner.bounds is None else -inner.bounds
    if isinstance(inner.node, exp.Literal):
        reach = None if inner.reach is None else -inner.reach
        return Typed(exp.Neg(this=inner.node), inner.type, bounds, True, None, reach, False)
    if inner.type.kind == "INTEGER":
        reach = -(inner.span or UNKNOWN)
        kind = _hold(reach, inner.type)
        if kind is None:
            made = exp.Neg(this=make_cast(inner.node, HUGEINT, trying=True))
            return Typed.made_of(make_try(made), HUGEINT, (inner,), bounds, nullable=True, plain=inner.shown)
        made = exp.Neg(this=parenthesise(inner.node) if kind == inner.type else make_cast(inner.node, kind))
        return Typed.made_of(made, kind, (inner,), bounds, reach=reach, plain=inner.shown)
    if inner.type.kind == "NULL":
        return inner
    made = exp.Neg(this=parenthesise(inner.node))
    if inner.type.kind == "DOUBLE":
        return Typed.made_of(made, inner.type, (inner,), bounds)
    return Typed.made_of(make_try(made), inner.type, (inner,), bounds, nullable=True)


def _least_integer(place: exp.Expr) -> Typed | None:
    """Return 9223372036854775808, which is no BIGINT although its negation is; None for other nodes."""
    if isinstance(place, exp.Literal) and not place.is_string and place.name == str(2**63):
        point = Bounds.point(2**63)
        return Typed(place.copy(), BIGINT, point, True, None, point, False)
    return None


def bind_absolute(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ABS."""
    inner = require_kind(bind(node.this), NUMBER_KINDS, "a number is needed")
    bounds = None if inner.bounds is None else inner.bounds.absolute()
    if inner.type.kind == "INTEGER":
        reach = (inner.span or UNKNOWN).absolute()
        kind = _hold(reach, inner.type, inner)
        if kind is not None:
            made = exp.Abs(this=inner.node if kind == inner.type else make_cast(inner.node, kind))
            return Typed.made_of(made, kind, (inner,), bounds, reach=reach, plain=inner.shown)
    return Typed(make_try(exp.Abs(this=inner.node)), inner.type, bounds, inner.constant)


def bind_bitwise(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``&``, ``|`` and XOR of integers."""
    both = [bind(node.this), bind(node.expression)]
    for typed in both:
        require_kind(typed, ("INTEGER",), "bits are those of an integer")
    met = meet(both, "the operator")
    kind = met.type if met.type != NULL else INTEGER
    nodes = [v.node if v.type == kind else cast_fitting(v, kind) for v in both]
    plain = met.plain if met.plain != NULL else None
    return Typed.made_of(make_try(_apply(node, *nodes)), kind, both, nullable=True, plain=plain)


# -- powers -----------------------------------------------------------------------------------------------------

_ZERO = Fraction(0)


def _fold_number(typed: Typed) -> Fraction | None:
    return (typed.bounds or UNKNOWN).only if typed.constant and typed.type.numeric else None


def bound_logarithm(given: Sequence[Typed], base: Fraction | None = None) -> Bounds:
    """Return the bounds of a logarithm, natural without a base; an end near zero is open."""
    bounds = given[0].bounds or UNKNOWN
    if base is not None and base < 1:
        return -bounds.raised(lambda x: enclose_logarithm(x, 1 / base))
    return bounds.raised(lambda x: enclose_logarithm(x, base))


def bound_any_logarithm(given: Sequence[Typed]) -> Bounds | None:
    """Return the bounds of a logarithm; the base, the first argument, must be constant."""
    base = _fold_number(given[0])
    return None if base is None or base <= 0 or base == 1 else bound_logarithm(given[1:], base)


def bound_exponential(given: Sequence[Typed]) -> Bounds:
    """Return the bounds of an exponential."""
    made = (given[0].bounds or UNKNOWN).raised(enclose_exponential)
    return Bounds(max(made.low or _ZERO, _ZERO), made.high)


def bound_root(given: Sequence[Typed], degree: int) -> Bounds:
    """Return the bounds of a square or cube root."""

    def root(x: Fraction) -> Enclosure | None:
        found = enclose_power(abs(x), Fraction(1, degree))
        return found if x >= 0 or found is None else (-found[1], -found[0])

    return (given[0].bounds or UNKNOWN).raised(root, None if degree % 2 else _ZERO)


def bound_power(given: Sequence[Typed]) -> Bounds | None:
    """Return the bounds of a power with a constant exponent, or of a constant base."""
    bounds, (base, exponent) = given[0].bounds or UNKNOWN, map(_fold_number, given)
    if exponent is None:
        ends = enclose_logarithm(base) if base is not None and base > 1 else None
        if ends is None:
            return None
        logarithm = (given[1].bounds or UNKNOWN) * Bounds.point(ends[1])
        return Bounds(_ZERO, logarithm.raised(enclose_exponential).high)
    if exponent <= 0:
        return None if exponent else Bounds.point(1)
    signed = exponent.denominator == 1 and (bounds.low is None or bounds.low < 0)
    far = (bounds.absolute() if signed else bounds).raised(lambda x: enclose_power(x, exponent), _ZERO)
    if not signed:
        return far
    odd = exponent % 2 == 1
    return Bounds((None if far.high is None else -far.high) if odd else _ZERO, far.high)


# -- buckets ----------------------------------------------------------------------------------------------------


@binds_calls_of("width_bucket", 4, "width_bucket takes a number, two ends and a number of buckets.")
def bind_width_bucket(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
    """Bind ``width_bucket(x, low, high, count)`` of the SQL standard: 0 below, count + 1 from the upper end on.

    If the upper end comes first, buckets are numbered downwards. Buckets of integers and decimals are exact.
    """
    place, *ends = arguments
    low, high, count = (_point(bind(end), end) for end in ends)
    if count.denominator != 1 or not 1 <= count <= MAX_LITERAL_COUNT:
        raise bind_error(ends[2], f"there are between 1 and {MAX_LITERAL_COUNT} buckets.")
    if low == high:
        raise bind_error(ends[1], "the two ends are equal.", around=node)
    inner = require_kind(bind(place), NUMBER_KINDS, "a number is needed")
    if inner.type == NULL:
        return Typed(make_cast(exp.Null(), INTEGER), INTEGER)
    down, most = low > high, int(count)
    # Unless x is a float, ends and distances are multiples of 1/steps.
    after = inner.type.digits[1] if inner.type.kind == "DECIMAL" else 0
    steps = math.lcm(low.denominator, high.denominator, 10**after)
    exact = inner.type.kind != "DOUBLE"
    first, last = ends[:2]
    distance = exp.paren(first - place if down else place - first)
    width = abs(high - low)
    if exact:
        scaled = exp.paren(exp.cast(distance * steps, "HUGEINT", dialect="duckdb") * most)
        share: exp.Expr = exp.IntDiv(this=scaled, expression=exp.Literal.number(int(width * steps)))
    else:
        scaled = exp.paren(exp.cast(distance, "DOUBLE", dialect="duckdb") * most)
        span = exp.Abs(this=exp.cast(exp.paren(last - first), "DOUBLE", dialect="duckdb"))
        share = exp.Floor(this=exp.Div(this=scaled, expression=span))
    number = exp.Least(this=share + 1, expressions=[exp.Literal.number(most)])
    before, beyond = (place > first, place <= last) if down else (place < first, place >= last)
    case = exp.case().when(place.is_(exp.null()), exp.null()).when(before, exp.Literal.number(0))
    case = case.when(beyond, exp.Literal.number(most + 1)).else_(number)
    made = bind(exp.cast(case, "INTEGER", dialect="duckdb"))
    return replace(made, bounds=Bounds(Fraction(0), Fraction(most + 1)))


def _point(typed: Typed, place: exp.Expr) -> Fraction:
    """Return the value of a constant number; PrivacyError for other nodes."""
    point = _fold_number(typed)
    if point is None:
        raise privacy_error(
            place, "width_bucket needs a literal here.", "write both ends and the number of bins as numbers."
        )
    return point


_GROWTH = 8
_WEIGHT = 16
"""Characters in memory for each character of a text that is read as JSON."""
_KEY = re.compile(r'[^"\\*\x00-\x1f]+')
_JSON = Type("OTHER", "JSON")


def bind_json(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ``x -> 'key'`` and ``x ->> 'key'``, a part of a JSON text as JSON, or as text."""
    name = "->>" if isinstance(node, exp.JSONExtractScalar) else "->"
    path = exp.Literal.string(_write_path(node))
    place = node.this.unnest()
    if isinstance(place, exp.ParseJSON) or (
        isinstance(place, exp.Cast | exp.TryCast) and place.to.is_type("JSON")
    ):
        place = place.this  # a text that is no JSON has no parts
    text = require_kind(bind(place), ("TEXT",), f"{name} takes a part of a JSON text")
    if text.type == NULL:
        return Typed(make_cast(exp.Null(), TEXT), TEXT, length=0)
    text = hold(text)
    length = length_of(text)
    limit_steps(name, _WEIGHT * length, node)
    count_written(name, length, node, _GROWTH + _WEIGHT)
    whole = make_cast(make_cast(text.node, TEXT), _JSON, trying=True)
    made = make_try(type(node)(this=whole, expression=path))
    made = made if name == "->>" else make_cast(made, TEXT)
    return mark_length(Typed(made, TEXT, None, text.constant, length=length, unchecked=True))


def _write_path(node: exp.Expr) -> str:
    path, written = node.expression, "$"
    for step in path.expressions[1:] if isinstance(path, exp.JSONPath) else (None,):
        inner = step.this if step is not None else None
        if isinstance(step, exp.JSONPathKey) and isinstance(inner, str) and _KEY.fullmatch(inner):
            written += f'."{inner}"'
        elif isinstance(step, exp.JSONPathSubscript) and isinstance(inner, int) and 0 <= inner < 10**6:
            written += f"[{inner}]"
        else:
            hint = "write '$.name', '$.name.other' or '$.names[0]'."
            raise privacy_error(path, "a path of JSON is a literal of keys and places.", hint, around=node)
    return written


# -- maps -----------------------------------------------------------------------------------------------------------


_Parts = Callable[[exp.Expr, Typed, Sequence[exp.Expr], Bind], Typed]


def _binds_map(name: str, key: bool, missing: Type | None = None) -> Callable[[_Parts], _Parts]:
    """Register the binder of a function of a map (and of a key, if ``key``); of NULL it is NULL of the type ``missing``."""

    def register(function: _Parts) -> _Parts:
        def handle(node: exp.Expr, arguments: list[exp.Expr], bind: Bind) -> Typed:
            inner = require_kind(bind(arguments[0]), ("MAP",), f"{name} takes a map")
            if inner.type != NULL:
                return function(node, inner, arguments[1:], bind)
            return inner if missing is None else Typed(make_cast(exp.Null(), missing), missing)

        takes = f"{name} takes a map and a key." if key else f"{name} takes a map."
        binds_calls_of(name, 2 if key else 1, takes)(handle)
        return function

    return register


def _find(node: exp.Expr, inner: Typed, place: exp.Expr, bind: Bind) -> tuple[exp.Expr, Typed]:
    """Return the list of a map's values of one key, and the key."""
    kind = inner.type.fields[0][1]
    held = take_value(Typed(exp.Null(), kind), node)
    sought = bind(place)
    meet((replace(held, place=node), sought), "the key of a map")
    key = cast_fitting(sought, held.type)
    return make_try(make_call("map_extract", inner.node, key)), sought


@_binds_map("map_extract_value", key=True)
def take_entry(node: exp.Expr, inner: Typed, keys: Sequence[exp.Expr], bind: Bind) -> Typed:
    """Return ``map[key]``, which is NULL without such a key."""
    found, _ = _find(node, inner, keys[0], bind)
    made = make_call("list_extract", found, exp.Literal.number(1))
    return take_value(Typed(made, inner.type.fields[1][1]), node)


@_binds_map("map_extract", key=True)
def _take_list_of(node: exp.Expr, inner: Typed, keys: Sequence[exp.Expr], bind: Bind) -> Typed:
    """Bind ``map_extract(map, key)``, a list of at most one value."""
    found, _ = _find(node, inner, keys[0], bind)
    value = inner.type.fields[1][1]
    return replace(take_value(Typed(found, list_of(value)), node), length=1, unchecked=False)


@_binds_map("map_contains", key=True, missing=BOOLEAN)
def _contains(node: exp.Expr, inner: Typed, keys: Sequence[exp.Expr], bind: Bind) -> Typed:
    found, sought = _find(node, inner, keys[0], bind)
    made = exp.GT(this=make_call("len", found), expression=exp.Literal.number(0))
    return make_boolean(exp.Paren(this=made), (inner, sought), True)


def _take_side(
    node: exp.Expr, inner: Typed, keys: Sequence[exp.Expr], bind: Bind, name: str, place: int
) -> Typed:
    """Return the list of a map's keys, or of its values."""
    return take_value(Typed(make_call(name, inner.node), list_of(inner.type.fields[place][1])), node)


for _place, _name in enumerate(("map_keys", "map_values")):
    _binds_map(_name, key=False)(partial(_take_side, name=_name, place=_place))


@_binds_map("cardinality", key=False, missing=BIGINT)
def _cardinality(node: exp.Expr, inner: Typed, keys: Sequence[exp.Expr], bind: Bind) -> Typed:
    made = make_try(make_call("cardinality", inner.node))
    return Typed(
        made, Type.parse("UBIGINT"), Bounds(low=Fraction(0)), reach=Bounds(Fraction(0), Fraction(2**40))
    )
