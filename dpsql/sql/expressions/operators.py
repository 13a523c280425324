"""Arithmetic and comparison, made total.

Integers are widened until their range is proved (by their types, never by declared bounds, which data may break), else
the operation stands in TRY. Division by zero differs between DuckDB's versions and settings; here it is NULL for whole
numbers, and infinite or NaN for others, in all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from dpsql.errors import BindError
from dpsql.sql.expressions.casts import read_constant
from dpsql.sql.expressions.coercion import (
    Bind,
    cast_to_double,
    find_common_number,
    fits,
    make_boolean,
    make_cast,
    make_try,
    meet,
    parenthesise,
    require_kind,
)
from dpsql.sql.expressions.types import (
    BIGINT,
    DATE,
    DOUBLE,
    FLOAT,
    HUGEINT,
    INTEGER,
    INTERVAL,
    NULL,
    TIMESTAMP,
    UNKNOWN,
    Bounds,
    Type,
    Typed,
    decimal,
)
from dpsql.sql.parse.dialect import bind_error

NUMBER_KINDS = ("INTEGER", "DECIMAL", "DOUBLE")
_MOMENTS = {"DATE", "TIMESTAMP", "INTERVAL", "TIME"}


def bind_comparison(node: exp.Expr, bind: Bind) -> Typed:
    """Bind a comparison of two values of one family."""
    left, right = _numbers_read([bind(node.this), bind(node.expression)], [node.this, node.expression])
    met = meet([(left, node.this), (right, node.expression)], "the comparison", compared=True)
    made = type(node)(this=parenthesise(met.nodes[0]), expression=parenthesise(met.nodes[1]))
    never = isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ) and met.safe
    return make_boolean(made, (left, right), False if never else None if met.safe else True)


def bind_between(node: exp.Expr, bind: Bind) -> Typed:
    """Bind BETWEEN."""
    places = [node.this, node.args["low"], node.args["high"]]
    parts = _numbers_read([bind(place) for place in places], places)
    met = meet(list(zip(parts, places, strict=True)), "BETWEEN", compared=True)
    value, low, high = (parenthesise(part) for part in met.nodes)
    return make_boolean(exp.Between(this=value, low=low, high=high), parts, None if met.safe else True)


def bind_in(node: exp.Expr, bind: Bind) -> Typed:
    """Bind IN with a list of values."""
    places = [node.this, *node.expressions]
    parts = _numbers_read([bind(place) for place in places], places)
    met = meet(list(zip(parts, places, strict=True)), "IN", compared=True)
    return make_boolean(
        exp.In(this=parenthesise(met.nodes[0]), expressions=met.nodes[1:]), parts, None if met.safe else True
    )


def _numbers_read(parts: list[Typed], places: list[exp.Expr]) -> list[Typed]:
    """Return the values, with numbers in quotes read as DuckDB reads them beside one value that is no constant: of its type.

    They are read here, once, so that no row can fail. What is no number of that type stays text, and is refused later.
    """
    asked = [part for part in parts if not part.constant]
    if len(asked) != 1 or not asked[0].type.numeric:
        return parts
    out = []
    for part, place in zip(parts, places, strict=True):
        if part.constant and part.type.kind == "TEXT" and isinstance(part.node, exp.Literal):
            with contextlib.suppress(BindError):
                part = read_constant(part.node, asked[0].shown, place)
        out.append(part)
    return out


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
        return _moments(node, left, right)
    _numbers(node, left, right)
    kinds = {left.type.kind, right.type.kind}
    bounds = _BOUNDS[type(node)](left.bounds or UNKNOWN, right.bounds or UNKNOWN)
    constant = left.constant and right.constant
    missing = left.nullable or right.nullable
    if "NULL" in kinds:
        known = left.type if right.type.kind == "NULL" else right.type
        known = INTEGER if known == NULL else known
        return Typed(make_cast(exp.Null(), known), known)
    if kinds == {"INTEGER"}:
        return _integers(node, left, right, bounds, constant)
    if "DOUBLE" in kinds:
        kind = find_common_number((left, right))
        safe = fits(left, kind) and fits(right, kind)
        nodes = [v.node if fits(v, kind) else make_cast(v.node, kind, trying=True) for v in (left, right)]
        made = type(node)(this=parenthesise(nodes[0]), expression=parenthesise(nodes[1]))
        return Typed(made, kind, bounds, constant, nullable=missing or not safe)
    wanted = decimal_result(node, left.type, right.type)
    if wanted is None:  # more digits after the point than a decimal has
        made = type(node)(
            this=parenthesise(cast_to_double(left)), expression=parenthesise(cast_to_double(right))
        )
        return Typed(made, DOUBLE, bounds, constant, nullable=missing)
    plain = decimal_result(node, left.shown, right.shown)
    if not isinstance(node, exp.Mul) and sum(wanted.digits) > 18 >= max(
        sum(v.type.digits) for v in (left, right)
    ):
        # One version of DuckDB keeps such sums in 18 digits, where they may not fit.
        left = replace(left, node=make_cast(left.node, wanted), type=wanted)
        wanted = decimal_result(node, left.type, right.type)
        assert wanted is not None
    nodes = [_as_decimal(node, value, wanted) for value in (left, right)]
    made = make_try(type(node)(this=parenthesise(nodes[0]), expression=parenthesise(nodes[1])))
    return Typed(made, wanted, bounds, constant, plain=plain if plain != wanted else None)


def _as_decimal(node: exp.Expr, value: Typed, kind: Type) -> exp.Expr:
    """Return an operand whose own cast can't fail.

    TRY does not keep what is inside of it: where a part stands in two places of a query, DuckDB takes it out and
    computes it once, before and outside of either TRY. So each TRY holds one operation that may fail, and no cast.
    """
    if isinstance(node, exp.Mul):
        kind = decimal(38, 0) if value.type.kind == "INTEGER" else value.type
    return value.node if fits(value, kind) else make_cast(value.node, kind, trying=True)


def _integers(node: exp.Expr, left: Typed, right: Typed, bounds: Bounds, constant: bool) -> Typed:
    plain = find_common_number((left, right), shown=True)
    if plain.sql == "UHUGEINT":
        met = meet([(left, node.this), (right, node.expression)], "the arithmetic")
        return Typed(
            make_try(type(node)(this=parenthesise(left.node), expression=parenthesise(right.node))),
            met.type,
            bounds,
            constant,
        )
    reach = _BOUNDS[type(node)](left.span or UNKNOWN, right.span or UNKNOWN)
    missing = left.nullable or right.nullable
    own = find_common_number((left, right))
    for kind in (own, BIGINT, HUGEINT):
        if kind.reach is not None and kind.reach.holds(reach) and fits(left, kind) and fits(right, kind):
            nodes = [parenthesise(left.node), parenthesise(right.node)]
            if kind != own:
                place = 0 if right.constant else 1
                nodes[place] = make_cast((left, right)[place].node, kind)
                if not fits(
                    (right, left)[place], kind
                ):  # the other one follows, for DuckDB widens to the wider
                    nodes[1 - place] = make_cast((right, left)[place].node, kind)
            made = type(node)(this=nodes[0], expression=nodes[1])
            return Typed(made, kind, bounds, constant, None, reach, missing, plain if plain != kind else None)
    made = type(node)(this=make_cast(left.node, HUGEINT), expression=make_cast(right.node, HUGEINT))
    return Typed(make_try(made), HUGEINT, bounds, constant, plain=plain if plain != HUGEINT else None)


def decimal_result(node: exp.Expr, left: Type, right: Type) -> Type | None:
    """Return DuckDB's own type of + - * on decimals and integers; None where it has none."""
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


def _numbers(node: exp.Expr, left: Typed, right: Typed) -> None:
    for typed, place in ((left, node.this), (right, node.expression)):
        require_kind(
            typed, place, NUMBER_KINDS, "arithmetic needs numbers",
            "write TRY_CAST(... AS DOUBLE)." if typed.type.kind == "TEXT" else
            "write CASE WHEN ... THEN 1 ELSE 0 END." if typed.type.kind == "BOOLEAN" else None,
        )  # fmt: skip


def _moments(node: exp.Expr, left: Typed, right: Typed) -> Typed:
    """Dates may leave the calendar: all of it stands in TRY."""
    kinds = (left.type.kind, right.type.kind)
    nodes = [parenthesise(left.node), parenthesise(right.node)]
    if set(kinds) == {"DATE", "TIMESTAMP"}:
        nodes[kinds.index("DATE")] = make_cast(
            (left, right)[kinds.index("DATE")].node, TIMESTAMP, trying=True
        )
    made = make_try(type(node)(this=nodes[0], expression=nodes[1]))
    apart = None if left.bounds is None or right.bounds is None else left.bounds - right.bounds
    if isinstance(node, exp.Sub) and kinds == ("DATE", "DATE"):
        return Typed(made, BIGINT, None if apart is None else apart * Bounds.point(Fraction(1, 86_400)))
    if isinstance(node, exp.Sub) and set(kinds) <= {"DATE", "TIMESTAMP"}:
        return Typed(made, INTERVAL, apart)
    if isinstance(node, exp.Add | exp.Sub) and kinds[0] in ("DATE", "TIMESTAMP") and kinds[1] == "INTERVAL":
        return Typed(made, TIMESTAMP)
    if isinstance(node, exp.Add) and kinds[0] == "INTERVAL" and kinds[1] in ("DATE", "TIMESTAMP"):
        return Typed(made, TIMESTAMP)
    if isinstance(node, exp.Add | exp.Sub) and kinds == ("INTERVAL", "INTERVAL"):
        return Typed(made, INTERVAL)
    if isinstance(node, exp.Mul) and set(kinds) == {"INTERVAL", "INTEGER"}:
        amount, place = (right, 1) if kinds[1] == "INTEGER" else (left, 0)
        nodes[place] = make_cast(amount.node, BIGINT, trying=not fits(amount, BIGINT))
        return Typed(make_try(exp.Mul(this=nodes[0], expression=nodes[1])), INTERVAL)
    if isinstance(node, exp.Add | exp.Sub) and kinds == ("DATE", "INTEGER"):
        days = make_cast(right.node, INTEGER, trying=not fits(right, INTEGER))
        return Typed(make_try(type(node)(this=parenthesise(left.node), expression=days)), DATE)
    raise bind_error(
        node,
        f"{left.type.sql} and {right.type.sql} don't add up.",
        "use date_diff('day', a, b), or add INTERVAL 3 DAY.",
    )


# -- division ---------------------------------------------------------------------------------------------------


def bind_division(node: exp.Expr, bind: Bind) -> Typed:
    """``/`` is division of DOUBLEs (of FLOATs, where FLOAT meets nothing finer): infinite or NaN at zero."""
    left, right = bind(node.this), bind(node.expression)
    _numbers(node, left, right)
    bounds = (left.bounds or UNKNOWN) / (right.bounds or UNKNOWN)
    kind = DOUBLE
    if "NULL" not in (left.type.kind, right.type.kind) and find_common_number((left, right)) == FLOAT:
        kind = FLOAT
    if kind == FLOAT:
        nodes = [
            make_cast(v.node, FLOAT, not fits(v, FLOAT)) if v.type != FLOAT else v.node for v in (left, right)
        ]
    else:
        nodes = [cast_to_double(left), cast_to_double(right)]
    made = exp.Div(this=parenthesise(nodes[0]), expression=parenthesise(nodes[1]), typed=False, safe=False)
    return Typed(make_try(made), kind, bounds, left.constant and right.constant)


def bind_whole_division(node: exp.Expr, bind: Bind) -> Typed:
    """``//`` and ``%``: NULL at zero."""
    left, right = bind(node.this), bind(node.expression)
    _numbers(node, left, right)
    remainder = isinstance(node, exp.Mod)
    met = meet([(left, node.this), (right, node.expression)], "the division")
    kind, plain = met.type, met.plain
    if kind.kind == "DECIMAL":
        # DuckDB divides decimals as doubles, and takes their remainder as decimals where 38 digits hold both.
        both = [t.type.digits for t in (left, right) if t.type.kind != "NULL"]
        wide = max(d[0] for d in both) + max(d[1] for d in both) > 38
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
    made = type(node)(this=parenthesise(dividend), expression=parenthesise(divisor))
    safe = sure and met.safe and kind.kind == "INTEGER"
    return Typed(
        made if safe else make_try(made), kind, bounds, left.constant and right.constant,
        nullable=left.nullable or not safe, plain=plain if plain != kind else None,
    )  # fmt: skip


# -- signs and bits ---------------------------------------------------------------------------------------------


def bind_negation(node: exp.Expr, bind: Bind) -> Typed:
    """Bind the minus sign of a number or an interval."""
    inner = _least_integer(node.this) or bind(node.this)
    if inner.type.kind == "INTERVAL":
        return Typed(make_try(exp.Neg(this=parenthesise(inner.node))), INTERVAL)
    require_kind(inner, node.this, NUMBER_KINDS, "a number is needed")
    bounds = None if inner.bounds is None else -inner.bounds
    if isinstance(inner.node, exp.Literal):
        reach = None if inner.reach is None else -inner.reach
        return Typed(exp.Neg(this=inner.node), inner.type, bounds, True, None, reach, False)
    if inner.type.kind == "INTEGER":
        reach = -(inner.span or UNKNOWN)
        for kind in (inner.type, BIGINT, HUGEINT):
            if kind.reach is not None and kind.reach.holds(reach):
                made = exp.Neg(
                    this=parenthesise(inner.node) if kind == inner.type else make_cast(inner.node, kind)
                )
                plain = inner.shown if inner.shown != kind else None
                return Typed(made, kind, bounds, inner.constant, None, reach, inner.nullable, plain)
        made = exp.Neg(this=make_cast(inner.node, HUGEINT, trying=True))
        return Typed(make_try(made), HUGEINT, bounds, inner.constant, plain=inner.shown)
    if inner.type.kind == "NULL":
        return inner
    made = exp.Neg(this=parenthesise(inner.node))
    total = inner.type.kind == "DOUBLE"
    return Typed(
        made if total else make_try(made),
        inner.type,
        bounds,
        inner.constant,
        nullable=inner.nullable or not total,
    )


def _least_integer(place: exp.Expr) -> Typed | None:
    """9223372036854775808 is no BIGINT, but its negation is."""
    if isinstance(place, exp.Literal) and not place.is_string and place.name == str(2**63):
        point = Bounds.point(2**63)
        return Typed(place.copy(), BIGINT, point, True, None, point, False)
    return None


def bind_absolute(node: exp.Expr, bind: Bind) -> Typed:
    """Bind ABS."""
    inner = bind(node.this)
    require_kind(inner, node.this, NUMBER_KINDS, "a number is needed")
    bounds = None if inner.bounds is None else inner.bounds.absolute()
    if inner.type.kind == "INTEGER":
        reach = (inner.span or UNKNOWN).absolute()
        for kind in (inner.type, BIGINT, HUGEINT):
            if kind.reach is not None and kind.reach.holds(reach) and fits(inner, kind):
                made = exp.Abs(this=inner.node if kind == inner.type else make_cast(inner.node, kind))
                plain = inner.shown if inner.shown != kind else None
                return Typed(made, kind, bounds, inner.constant, None, reach, inner.nullable, plain)
    return Typed(make_try(exp.Abs(this=inner.node)), inner.type, bounds, inner.constant)


def bind_bitwise(node: exp.Expr, bind: Bind) -> Typed:
    """``& | xor`` are total on integers of one type; shifts may leave the type, and stand in TRY."""
    left, right = bind(node.this), bind(node.expression)
    for typed, place in ((left, node.this), (right, node.expression)):
        require_kind(typed, place, ("INTEGER",), "bits are those of an integer")
    met = meet([(left, node.this), (right, node.expression)], "the operator")
    kind = met.type if met.type.kind != "NULL" else INTEGER
    nodes = [
        v.node if v.type == kind else make_cast(v.node, kind, v.type.kind != "NULL" and not fits(v, kind))
        for v in (left, right)
    ]
    made = type(node)(this=parenthesise(nodes[0]), expression=parenthesise(nodes[1]))
    plain = met.plain if met.plain not in (kind, NULL) else None
    return Typed(make_try(made), kind, None, left.constant and right.constant, plain=plain)
