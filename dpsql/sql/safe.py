"""Row expressions made total: whatever the data hold, the engine gives a value.

An error that depends on the data is an answer without noise, and so is a plan that fails. Every node that is not on a
list here is refused; types are checked by our own rules (DuckDB would cast text to numbers row by row, and raise);
integers are widened until their range is proved, or wrapped in TRY; casts that may fail become TRY_CAST.

Where plain DuckDB gives a value, the rewritten expression gives the same one.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Protocol

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError, did_you_mean
from dpsql.sql import bounds as intervals
from dpsql.sql.bounds import Interval
from dpsql.sql.dialect import NAMED, span_of
from dpsql.sql.functions import FUNCTIONS, NOT_LISTED, PARTS, UNITS, Function
from dpsql.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    HUGEINT,
    NULL,
    TEXT,
    TIMESTAMP,
    Type,
    Typed,
)  # fmt: skip


class Scope(Protocol):
    """What column names mean."""

    def column(self, node: exp.Column) -> Typed: ...


def total(node: exp.Expression, scope: Scope) -> Typed:
    """The expression, rewritten so that it can't fail.

    Raises:
        BindError: names or types that don't fit.
        PrivacyError: something that is not on the allow-list; the hint says what is.
    """
    handler = _HANDLERS.get(type(node))
    if handler is not None:
        _refuse_more(node)
        return handler(node, scope)
    if isinstance(node, exp.Func):
        return _function(node, scope)
    raise PrivacyError(
        f"{_what(node)} can't be used on private rows.", span=span_of(node), hint=_hint_for(node)
    )


_PARTS: dict[type[exp.Expression], tuple[str, ...]] = {
    **dict.fromkeys((exp.Like, exp.ILike, exp.Glob), ("this", "expression", "negate")),
    exp.Between: ("this", "low", "high"),
    exp.In: ("this", "expressions", "query", "unnest"),
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true", "false"),
    **dict.fromkeys((exp.Coalesce, exp.Greatest, exp.Least), ("this", "expressions", "ignore_nulls")),
    exp.Div: ("this", "expression", "typed", "safe"),
    exp.DPipe: ("this", "expression", "safe"),
    exp.RegexpLike: ("this", "expression", "flag", "full_match"),
    **dict.fromkeys((exp.Cast, exp.TryCast), ("this", "to", "safe", "requires_string")),
    **dict.fromkeys(
        (exp.TimestampTrunc, exp.DateTrunc), ("this", "unit", "input_type_preserved", "unabbreviate")
    ),
    exp.DateDiff: ("this", "expression", "unit", "date_part_boundary"),
    exp.Interval: ("this", "unit"),
    exp.Column: ("this", "table", "db", "catalog"),
    exp.Literal: ("this", "is_string"),
}


def _refuse_more(node: exp.Expression) -> None:
    """A handler writes a node anew from the parts it knows; one that it would drop without a word is refused."""
    known = _PARTS.get(type(node), ("this", "expression"))
    more = [key for key, part in node.args.items() if part and key not in known]
    if more:
        raise PrivacyError(
            f"{_what(node)} with {more[0].replace('_', ' ')} can't be used on private rows.",
            span=span_of(node),
        )


def _what(node: exp.Expression) -> str:
    return {
        "star": "*", "window": "a window function", "select": "a subquery", "subquery": "a subquery", "exists": "EXISTS",
        "lambda": "a lambda", "placeholder": "a parameter", "parameter": "a parameter", "struct": "a struct",
        "bracket": "an element of a list", "dot": "a field of a struct", "array": "a list", "kwarg": "a named argument",
    }.get(node.key, node.key.upper())  # fmt: skip


def _hint_for(node: exp.Expression) -> str | None:
    if isinstance(node, exp.Window):
        return "aggregate first; windows may follow."
    if isinstance(node, exp.Query):
        return "release what is needed first, in a CTE with aggregates."
    return None


# -- leaves -----------------------------------------------------------------------------------------------------


def _column(node: exp.Column, scope: Scope) -> Typed:
    if isinstance(node.this, exp.Star):
        raise PrivacyError(
            "rows can't be released.", span=span_of(node), hint="name the columns that are needed."
        )
    typed = scope.column(node)
    if typed.type.kind == "OTHER":
        raise PrivacyError(
            f"{node.name} is {typed.type.sql}, and values of that type can't be used.", span=span_of(node)
        )
    return Typed(typed.node.copy(), typed.type, typed.bounds, typed.constant, typed.values, typed.reach)


def _literal(node: exp.Literal, scope: Scope) -> Typed:
    if node.is_string:
        return Typed(node.copy(), TEXT, None, True)
    text = node.name
    if re.fullmatch(r"[0-9]+", text):
        value = int(text)
        if value >= 2**63:
            raise BindError("this number does not fit 64 bits.", span=span_of(node))
        point = Interval.point(value)
        kind = Type("INTEGER", "INTEGER") if value < 2**31 else BIGINT
        return Typed(node.copy(), kind, point, True, None, point)
    if not re.fullmatch(r"[0-9]*\.?[0-9]*([eE][+-]?[0-9]{1,3})?", text) or not re.search(r"[0-9]", text):
        raise BindError("this is not a number that SQL knows.", span=span_of(node))
    exact = Fraction(text if text[0] != "." else "0" + text) if text[-1] != "." else Fraction(text + "0")
    if exact >= 10**300:
        raise BindError("this number is too large.", span=span_of(node))
    if "e" in text.lower():
        return Typed(exp.cast(node.copy(), "DOUBLE"), DOUBLE, Interval.point(exact), True)
    before, _, after = text.partition(".")
    if len(before) + len(after) > 18:
        return Typed(exp.cast(node.copy(), "DOUBLE"), DOUBLE, Interval.point(exact), True)
    width = max(len(before.lstrip("0")) + len(after), 1)
    return Typed(node.copy(), Type("DECIMAL", f"DECIMAL({width},{len(after)})"), Interval.point(exact), True)


def _boolean(node: exp.Expression, scope: Scope) -> Typed:
    return Typed(node.copy(), BOOLEAN, None, True)


def _null(node: exp.Expression, scope: Scope) -> Typed:
    return Typed(exp.Null(), NULL, None, True)


def _paren(node: exp.Paren, scope: Scope) -> Typed:
    inner = total(node.this, scope)
    return _with(inner, exp.paren(inner.node, copy=False))


def _with(typed: Typed, node: exp.Expression) -> Typed:
    return Typed(node, typed.type, typed.bounds, typed.constant, None, typed.reach)


# -- types that meet --------------------------------------------------------------------------------------------


def _try(node: exp.Expression) -> exp.Expression:
    """TRY(...) turns what would raise into NULL."""
    return exp.Anonymous(this="TRY", expressions=[node])


def _double(typed: Typed) -> exp.Expression:
    return typed.node if typed.type.sql == "DOUBLE" else exp.cast(typed.node, "DOUBLE")


def _constant_of(text: exp.Expression, wanted: str, place: exp.Expression) -> exp.Expression:
    """A text literal that meets a date or a UUID: read at plan time, for the engine would raise on a bad one."""
    assert isinstance(text, exp.Literal)
    try:
        if wanted == "DATE":
            return exp.cast(exp.Literal.string(datetime.date.fromisoformat(text.name).isoformat()), "DATE")
        if wanted == "TIMESTAMP":
            moment = datetime.datetime.fromisoformat(text.name)
            if moment.tzinfo is not None:
                raise ValueError
            return exp.cast(exp.Literal.string(moment.isoformat(" ")), "TIMESTAMP")
        if wanted == "UUID":
            return exp.cast(exp.Literal.string(str(uuid.UUID(text.name))), "UUID")
    except ValueError:
        pass
    raise BindError(f"'{text.name}' is not a {wanted}.", span=span_of(place), hint=_EXAMPLES.get(wanted))


_EXAMPLES = {"DATE": "write '2024-03-01'.", "TIMESTAMP": "write '2024-03-01 12:00:00'."}


def unify(given: Sequence[tuple[Typed, exp.Expression]], what: str) -> tuple[list[exp.Expression], Type]:
    """Brings values to one type, explicitly; the nodes given are the analyst's, for carets.

    Raises:
        BindError: types that would only meet by reading text as something else.
    """
    kinds = {t.type.kind for t, _ in given} - {"NULL"}
    if not kinds:
        return [t.node for t, _ in given], NULL
    special = kinds & {"DATE", "TIMESTAMP", "UUID"}
    if special and kinds <= special | {"TEXT"}:
        wanted = "TIMESTAMP" if "TIMESTAMP" in special else min(special)
        if len(special) == 1 or special == {"DATE", "TIMESTAMP"}:
            return [_as_moment(t, place, wanted, what) for t, place in given], Type.parse(wanted)
    if len(kinds) == 1 and kinds != {"DECIMAL"} and kinds != {"INTEGER"} and kinds != {"DOUBLE"}:
        kind = next(t.type for t, _ in given if t.type.kind != "NULL")
        if (
            kind.kind in ("LIST", "STRUCT")
            and len({t.type.sql for t, _ in given if t.type.kind != "NULL"}) > 1
        ):
            raise _mismatch(given, what)
        return [t.node for t, _ in given], kind
    if kinds <= {"INTEGER", "DECIMAL", "DOUBLE"}:
        return _unify_numbers(given)
    raise _mismatch(given, what)


def _unify_numbers(given: Sequence[tuple[Typed, exp.Expression]]) -> tuple[list[exp.Expression], Type]:
    known = [t for t, _ in given if t.type.kind != "NULL"]
    if all(t.type.kind == "INTEGER" for t in known):
        sqls = {t.type.sql for t in known}
        if len(sqls) == 1:
            return [t.node for t, _ in given], known[0].type
        signed = all(_inside(t, BIGINT) for t in known)
        kind = BIGINT if signed else HUGEINT
        if any(t.type.sql == "UHUGEINT" for t in known):
            return [_double(t) if t.type.kind != "NULL" else t.node for t, _ in given], DOUBLE
        return [exp.cast(t.node, kind.sql) if t.type.kind != "NULL" else t.node for t, _ in given], kind
    if all(t.type.kind in ("INTEGER", "DECIMAL") for t in known):
        before = max(t.type.digits[0] for t in known)
        after = max(t.type.digits[1] for t in known)
        if before + after <= 38:
            kind = Type("DECIMAL", f"DECIMAL({before + after},{after})")
            return [exp.cast(t.node, kind.sql) if t.type.kind != "NULL" else t.node for t, _ in given], kind
    return [_double(t) if t.type.kind != "NULL" else t.node for t, _ in given], DOUBLE


def _inside(typed: Typed, kind: Type) -> bool:
    span, whole = typed.span, kind.reach
    if span is None or whole is None or span.low is None or span.high is None:
        return False
    assert whole.low is not None and whole.high is not None
    return whole.low <= span.low and span.high <= whole.high


def _as_moment(typed: Typed, place: exp.Expression, wanted: str, what: str) -> exp.Expression:
    if typed.type.kind == "NULL" or typed.type.kind == wanted:
        return typed.node
    if typed.type.kind == "TEXT":
        if not isinstance(typed.node, exp.Literal):
            raise BindError(
                f"{what} meets text with a {wanted}.",
                span=span_of(place),
                hint=f"write TRY_CAST(... AS {wanted}).",
            )
        return _constant_of(typed.node, wanted, place)
    return exp.TryCast(this=typed.node, to=exp.DataType.build(wanted))


def _mismatch(given: Sequence[tuple[Typed, exp.Expression]], what: str) -> BindError:
    first = given[0][0].type
    other, place = next(
        ((t.type, p) for t, p in given if t.type.kind not in (first.kind, "NULL")), (first, given[0][1])
    )
    return BindError(
        f"{what} meets {first.sql} with {other.sql}.",
        span=span_of(place.parent if place.parent is not None and span_of(place.parent) else place),
        hint="text and numbers are not compared: write '5' for text, or TRY_CAST(... AS INTEGER)."
        if "TEXT" in (first.kind, other.kind)
        else "cast one of the two.",
    )


# -- operators --------------------------------------------------------------------------------------------------


def _compare(node: exp.Binary, scope: Scope) -> Typed:
    left, right = total(node.this, scope), total(node.expression, scope)
    nodes, _ = unify([(left, node.this), (right, node.expression)], "the comparison")
    return Typed(
        type(node)(this=nodes[0], expression=nodes[1]), BOOLEAN, None, left.constant and right.constant
    )


def condition(node: exp.Expression, scope: Scope) -> Typed:
    """A boolean, or a BindError."""
    typed = total(node, scope)
    if typed.type.kind not in ("BOOLEAN", "NULL"):
        raise BindError(f"a condition is needed, and this is {typed.type.sql}.", span=span_of(node))
    return typed


def _connect(node: exp.Connector, scope: Scope) -> Typed:
    # Long chains are flattened, so that a thousand ORs are not a thousand calls deep.
    parts: list[exp.Expression] = []
    stack: list[exp.Expression] = [node]
    while stack:
        item = stack.pop()
        if type(item) is type(node):
            stack += [item.expression, item.this]
        else:
            parts.append(item)
    made = [condition(part, scope).node for part in parts]
    made = [
        m if isinstance(m, exp.Column | exp.Paren | exp.Anonymous | exp.Boolean) else exp.paren(m)
        for m in made
    ]
    out = made[0]
    for part in made[1:]:
        out = type(node)(this=out, expression=part)
    return Typed(exp.paren(out, copy=False), BOOLEAN)


def _not(node: exp.Not, scope: Scope) -> Typed:
    return Typed(exp.Not(this=exp.paren(condition(node.this, scope).node, copy=False)), BOOLEAN)


def _is(node: exp.Is, scope: Scope) -> Typed:
    left = total(node.this, scope)
    if not isinstance(node.expression, exp.Null | exp.Boolean):
        raise BindError("IS takes NULL, TRUE or FALSE.", span=span_of(node))
    if isinstance(node.expression, exp.Boolean) and left.type.kind not in ("BOOLEAN", "NULL"):
        raise BindError(f"a condition is needed, and this is {left.type.sql}.", span=span_of(node.this))
    return Typed(exp.paren(exp.Is(this=left.node, expression=node.expression.copy())), BOOLEAN)


def _between(node: exp.Between, scope: Scope) -> Typed:
    parts = [node.this, node.args["low"], node.args["high"]]
    nodes, _ = unify([(total(part, scope), part) for part in parts], "BETWEEN")
    return Typed(exp.paren(exp.Between(this=nodes[0], low=nodes[1], high=nodes[2])), BOOLEAN)


def _in(node: exp.In, scope: Scope) -> Typed:
    if node.args.get("query") is not None or node.args.get("unnest") is not None or not node.expressions:
        raise PrivacyError(
            "IN takes a list of values here.", span=span_of(node), hint="write x IN (1, 2, 3)."
        )
    parts = [node.this, *node.expressions]
    nodes, _ = unify([(total(part, scope), part) for part in parts], "IN")
    return Typed(exp.paren(exp.In(this=nodes[0], expressions=nodes[1:])), BOOLEAN)


def _like(node: exp.Binary, scope: Scope) -> Typed:
    left, right = total(node.this, scope), total(node.expression, scope)
    if left.type.kind not in ("TEXT", "NULL"):
        raise BindError(
            f"a pattern is matched with text, and this is {left.type.sql}.", span=span_of(node.this)
        )
    if not isinstance(right.node, exp.Literal) or right.type.kind != "TEXT":
        raise PrivacyError(
            "a pattern must be a literal.", span=span_of(node.expression), hint="write LIKE 'a%'."
        )
    made = exp.paren(type(node)(this=left.node, expression=right.node))
    return Typed(exp.paren(exp.Not(this=made)) if node.args.get("negate") else made, BOOLEAN)


def _escape(node: exp.Escape, scope: Scope) -> Typed:
    raise PrivacyError(
        "ESCAPE may fail on some values.", span=span_of(node), hint="use contains(text, '...')."
    )


def _regexp(node: exp.Expression, scope: Scope) -> Typed:
    left, pattern = total(node.this, scope), node.args.get("expression")
    if left.type.kind not in ("TEXT", "NULL"):
        raise BindError(
            f"a pattern is matched with text, and this is {left.type.sql}.", span=span_of(node.this)
        )
    if not isinstance(pattern, exp.Literal) or not pattern.is_string or len(pattern.name) > 500:
        raise PrivacyError("a pattern must be a literal.", span=span_of(pattern or node))
    if node.args.get("flag") is not None or node.args.get("full_match"):
        raise PrivacyError("flags are not known here.", span=span_of(node), hint="write (?i) in the pattern.")
    try:
        re.compile(pattern.name)
    except (re.error, RecursionError, OverflowError):
        raise BindError("this is not a regular expression.", span=span_of(pattern)) from None
    if re.search(r"\(\?[=!<P]|\\[1-9]|\{\d{4,}", pattern.name) or re.search(r"[*+?}]\+", pattern.name):
        raise BindError("look-around and back-references are not known.", span=span_of(pattern))
    return Typed(_try(type(node)(this=left.node, expression=pattern.copy())), BOOLEAN)


_Op = Callable[[Interval, Interval], Interval]
_ARITHMETIC: dict[type[exp.Expression], _Op] = {
    exp.Add: lambda a, b: a + b,
    exp.Sub: lambda a, b: a - b,
    exp.Mul: lambda a, b: a * b,
}


def _arithmetic(node: exp.Binary, scope: Scope) -> Typed:
    left, right = total(node.this, scope), total(node.expression, scope)
    moments = {"DATE", "TIMESTAMP", "INTERVAL"}
    if left.type.kind in moments or right.type.kind in moments:
        return _moments(node, left, right)
    _numbers(node, left, right)
    op = _ARITHMETIC[type(node)]
    bounds = op(left.bounds or intervals.UNKNOWN, right.bounds or intervals.UNKNOWN)
    constant = left.constant and right.constant
    if left.type.kind == right.type.kind == "INTEGER":
        reach = op(left.span or intervals.UNKNOWN, right.span or intervals.UNKNOWN)
        for kind in (BIGINT, HUGEINT):
            fits = (_inside(side, kind) for side in (left, right))  # 0 * x fits, and x itself may not
            if _inside(Typed(node, kind, None, False, None, reach), kind) and all(fits):
                made = type(node)(
                    this=exp.cast(left.node, kind.sql), expression=exp.cast(right.node, kind.sql)
                )
                return Typed(exp.paren(made), kind, bounds, constant, None, reach)
        made = type(node)(this=exp.cast(left.node, "HUGEINT"), expression=exp.cast(right.node, "HUGEINT"))
        return Typed(_try(made), HUGEINT, bounds, constant)
    if "DOUBLE" not in (left.type.kind, right.type.kind) and "NULL" not in (left.type.kind, right.type.kind):
        kind = _decimal_result(node, left.type, right.type)
        if kind is not None:
            return Typed(_try(type(node)(this=left.node, expression=right.node)), kind, bounds, constant)
    return Typed(
        exp.paren(type(node)(this=_double(left), expression=_double(right))), DOUBLE, bounds, constant
    )


def _decimal_result(node: exp.Binary, left: Type, right: Type) -> Type | None:
    (a, s), (b, t) = left.digits, right.digits
    if isinstance(node, exp.Mul):
        width, scale = a + s + b + t, s + t
    else:
        scale = max(s, t)
        width = max(a, b) + scale + 1
    return Type("DECIMAL", f"DECIMAL({width},{scale})") if width <= 38 else None


def _numbers(node: exp.Binary, left: Typed, right: Typed) -> None:
    for typed, place in ((left, node.this), (right, node.expression)):
        if not typed.type.numeric and typed.type.kind != "NULL":
            raise BindError(
                f"arithmetic needs numbers, and this is {typed.type.sql}.",
                span=span_of(place),
                hint="write TRY_CAST(... AS DOUBLE)." if typed.type.kind == "TEXT" else None,
            )


def _moments(node: exp.Binary, left: Typed, right: Typed) -> Typed:
    kinds = (left.type.kind, right.type.kind)
    made = _try(type(node)(this=left.node, expression=right.node))
    if isinstance(node, exp.Sub) and kinds == ("DATE", "DATE"):
        return Typed(made, BIGINT)
    if isinstance(node, exp.Add | exp.Sub) and kinds[0] in ("DATE", "TIMESTAMP") and kinds[1] == "INTERVAL":
        return Typed(made, TIMESTAMP)
    if isinstance(node, exp.Add | exp.Sub) and kinds == ("DATE", "INTEGER"):
        days = exp.TryCast(this=right.node, to=exp.DataType.build("INTEGER", dialect="duckdb"))
        return Typed(_try(type(node)(this=left.node, expression=days)), DATE)
    raise BindError(
        f"{left.type.sql} and {right.type.sql} don't add up.",
        span=span_of(node),
        hint="use date_diff('day', a, b).",
    )


def _divide(node: exp.Div, scope: Scope) -> Typed:
    left, right = total(node.this, scope), total(node.expression, scope)
    _numbers(node, left, right)
    bounds = (left.bounds or intervals.UNKNOWN) / (right.bounds or intervals.UNKNOWN)
    made = exp.Div(this=_double(left), expression=_double(right), typed=False, safe=False)
    return Typed(_try(made), DOUBLE, bounds, left.constant and right.constant)


def _whole_divide(node: exp.Binary, scope: Scope) -> Typed:
    left, right = total(node.this, scope), total(node.expression, scope)
    _numbers(node, left, right)
    if left.type.kind == right.type.kind == "INTEGER":
        nodes, kind = _unify_numbers([(left, node.this), (right, node.expression)])
        bounds = None
        if isinstance(node, exp.Mod) and right.bounds is not None and right.bounds.bounded:
            top = right.bounds.absolute().high
            assert top is not None
            low = (
                Fraction(0)
                if left.bounds is not None and left.bounds.low is not None and left.bounds.low >= 0
                else -top
            )
            bounds = Interval(low, top)
        divisor = exp.Nullif(this=nodes[1], expression=exp.Literal.number(0))
        return Typed(_try(type(node)(this=nodes[0], expression=divisor)), kind, bounds)
    if isinstance(node, exp.Mod) and {left.type.kind, right.type.kind} <= {"INTEGER", "DECIMAL"}:
        nodes, kind = _unify_numbers([(left, node.this), (right, node.expression)])
        divisor = exp.Nullif(this=nodes[1], expression=exp.Literal.number(0))
        return Typed(_try(type(node)(this=nodes[0], expression=divisor)), kind)
    divisor = exp.Nullif(this=_double(right), expression=exp.Literal.number(0))
    return Typed(_try(type(node)(this=_double(left), expression=divisor)), DOUBLE)


def _negate(node: exp.Neg, scope: Scope) -> Typed:
    inner = total(node.this, scope)
    if not inner.type.numeric:
        raise BindError(f"a number is needed, and this is {inner.type.sql}.", span=span_of(node.this))
    bounds = None if inner.bounds is None else -inner.bounds
    if isinstance(inner.node, exp.Literal):
        reach = None if inner.reach is None else -inner.reach
        return Typed(exp.paren(exp.Neg(this=inner.node)), inner.type, bounds, True, None, reach)
    if inner.type.kind == "INTEGER":
        kind = (
            BIGINT
            if inner.span is not None and _inside(Typed(node, BIGINT, None, False, None, -inner.span), BIGINT)
            else HUGEINT
        )
        return Typed(_try(exp.Neg(this=exp.cast(inner.node, kind.sql))), kind, bounds)
    return Typed(_try(exp.Neg(this=exp.paren(inner.node))), inner.type, bounds)


def _abs(node: exp.Abs, scope: Scope) -> Typed:
    inner = total(node.this, scope)
    if not inner.type.numeric:
        raise BindError(f"a number is needed, and this is {inner.type.sql}.", span=span_of(node.this))
    bounds = (inner.bounds or intervals.UNKNOWN).absolute()
    if inner.type.kind == "INTEGER":
        return Typed(_try(exp.Abs(this=exp.cast(inner.node, "HUGEINT"))), HUGEINT, bounds)
    return Typed(_try(exp.Abs(this=inner.node)), inner.type, bounds)


def _concat(node: exp.DPipe, scope: Scope) -> Typed:
    left, right = total(node.this, scope), total(node.expression, scope)
    for typed, place in ((left, node.this), (right, node.expression)):
        if typed.type.kind not in ("TEXT", "NULL"):
            raise BindError(
                f"|| joins texts, and this is {typed.type.sql}.",
                span=span_of(place),
                hint="cast it to VARCHAR.",
            )
    return Typed(exp.paren(exp.DPipe(this=left.node, expression=right.node)), TEXT)


# -- choices ----------------------------------------------------------------------------------------------------


def _case(node: exp.Case, scope: Scope) -> Typed:
    branches = node.args["ifs"]
    otherwise = node.args.get("default")
    if node.this is not None:
        tests = [exp.EQ(this=node.this.copy(), expression=branch.this.copy()) for branch in branches]
        conditions = [_compare(test, scope).node for test in tests]
    else:
        conditions = [condition(branch.this, scope).node for branch in branches]
    places = [branch.args["true"] for branch in branches] + ([otherwise] if otherwise is not None else [])
    values = [total(place, scope) for place in places]
    nodes, kind = unify(list(zip(values, places, strict=True)), "CASE")
    made = exp.Case(
        ifs=[exp.If(this=c, true=v) for c, v in zip(conditions, nodes, strict=False)],
        default=nodes[-1] if otherwise is not None else None,
    )
    known = [v.bounds for v in values if v.type.kind != "NULL"]
    return Typed(made, kind, intervals.union(known) if known else None)


def _if(node: exp.If, scope: Scope) -> Typed:
    branch = exp.If(this=node.this.copy(), true=node.args["true"].copy())
    otherwise = node.args.get("false")
    return _case(exp.Case(ifs=[branch], default=otherwise.copy() if otherwise is not None else None), scope)


def _unified(
    combine: Callable[[Sequence[Interval | None]], Interval],
) -> Callable[[exp.Expression, Scope], Typed]:
    def handle(node: exp.Expression, scope: Scope) -> Typed:
        places = [node.this, *node.expressions] if node.this is not None else list(node.expressions)
        values = [total(place, scope) for place in places]
        nodes, kind = unify(list(zip(values, places, strict=True)), node.key.upper())
        made = exp.Anonymous(this=node.key.upper(), expressions=nodes)
        known = [v.bounds for v in values if v.type.kind != "NULL"]
        return Typed(made, kind, combine(known) if kind.numeric else None)

    return handle


def _nullif(node: exp.Nullif, scope: Scope) -> Typed:
    left, right = total(node.this, scope), total(node.expression, scope)
    nodes, kind = unify([(left, node.this), (right, node.expression)], "NULLIF")
    return Typed(exp.Nullif(this=nodes[0], expression=nodes[1]), kind, left.bounds)


# -- casts ------------------------------------------------------------------------------------------------------

_TARGETS = ("INTEGER", "DECIMAL", "DOUBLE", "TEXT", "BOOLEAN", "DATE", "TIMESTAMP")


def _cast(node: exp.Expression, scope: Scope) -> Typed:
    inner = total(node.this, scope)
    kind = Type.parse(node.args["to"].sql(dialect="duckdb"))
    if kind.kind == "UUID" and isinstance(inner.node, exp.Literal):
        return Typed(_constant_of(inner.node, "UUID", node), kind)
    if kind.kind not in _TARGETS or inner.type.kind in ("LIST", "STRUCT"):
        raise PrivacyError(f"a cast from {inner.type.sql} to {kind.sql} is not known.", span=span_of(node))
    if (
        isinstance(inner.node, exp.Literal)
        and kind.kind in ("DATE", "TIMESTAMP")
        and inner.type.kind == "TEXT"
    ):
        return Typed(_constant_of(inner.node, kind.kind, node), kind, None, True)
    if kind.kind == "TEXT":
        return Typed(exp.cast(inner.node, "VARCHAR"), TEXT)
    bounds = inner.bounds
    if inner.type.kind == "BOOLEAN" and kind.numeric:
        bounds = Interval(Fraction(0), Fraction(1))
    if kind.kind == "INTEGER" and bounds is not None:
        bounds = bounds.rounded()
    if not kind.numeric:
        bounds = None
    safe = exp.TryCast(this=inner.node, to=exp.DataType.build(kind.sql, dialect="duckdb"))
    return Typed(safe, kind, bounds, inner.constant)


# -- functions --------------------------------------------------------------------------------------------------


def _name(node: exp.Func) -> str:
    if isinstance(node, exp.Anonymous):
        name = str(node.this).upper()
        return name[len(NAMED) :] if name.startswith(NAMED.upper()) else name
    return node.key.upper()


def _plain(node: exp.Func) -> exp.Func:
    """The call as it was written, where sqlglot reads it as another function's."""
    base = node.this
    if isinstance(node, exp.Log) and isinstance(base, exp.Literal) and base.name in ("2", "10"):
        made, argument = f"log{base.name}", node.expression
    elif isinstance(node, exp.Log) and not node.args.get("expression"):
        made, argument = "log10", base
    elif isinstance(node, exp.SHA2) and node.text("length") == "256":
        made, argument = "sha256", base
    elif isinstance(node, exp.TimeToUnix):
        made, argument = "epoch", base
    else:
        return node
    return exp.Anonymous(this=made, expressions=[argument.copy()])


def _function(node: exp.Func, scope: Scope) -> Typed:
    node = _plain(node)
    name = _name(node)
    known = FUNCTIONS.get(name) or FUNCTIONS.get(
        node.sql_name().upper() if not isinstance(node, exp.Anonymous) else ""
    )
    if known is None:
        raise _unknown(node, name)
    arguments = list(node.iter_expressions())
    most, least = len(known.arguments), len(known.arguments) - known.optional
    if not least <= len(arguments) <= most:
        raise BindError(
            f"{name} takes {least if least == most else f'{least} to {most}'} arguments.", span=span_of(node)
        )
    typed = [_argument(known, i, place, name, scope) for i, place in enumerate(arguments)]
    copy = node.copy()
    for place, value in zip(list(copy.iter_expressions()), typed, strict=True):
        place.replace(_double(value) if known.double else value.node)
    result = known.result if known.result is not None else typed[0].type
    if known.result is None and result.kind == "DECIMAL":
        # Rounding a decimal may need a digit more than its type has.
        first = next(iter(copy.iter_expressions()))
        first.replace(exp.cast(first.copy(), "DOUBLE"))
        result = DOUBLE
    bounds = known.bounds(typed) if known.bounds is not None else None
    return Typed(_try(copy) if known.trying else copy, result, bounds, all(t.constant for t in typed))


def _argument(known: Function, i: int, place: exp.Expression, name: str, scope: Scope) -> Typed:
    typed = total(place, scope)
    if typed.type.kind not in known.arguments[i] and typed.type.kind != "NULL":
        wanted = " or ".join(kind.lower() for kind in known.arguments[i])
        raise BindError(f"{name} needs {wanted} here, and this is {typed.type.sql}.", span=span_of(place))
    if i in known.literal and not typed.constant:
        raise PrivacyError(f"{name} needs a literal here.", span=span_of(place))
    return typed


def _unknown(node: exp.Func, name: str) -> BindError | PrivacyError:
    if isinstance(node, exp.AggFunc):
        return PrivacyError(
            f"{name} can't stand here.",
            span=span_of(node),
            hint="aggregates stand in the SELECT list or in HAVING.",
        )
    if name in NOT_LISTED:
        return PrivacyError(f"{name} can't be used on private rows: {NOT_LISTED[name]}.", span=span_of(node))
    listed = [n.lower() for n in FUNCTIONS]
    return PrivacyError(
        f"the function {name.lower()} is not on the list of those that can't fail or leak.",
        span=span_of(node),
        hint=did_you_mean(name.lower(), listed),
    )


def _extract(node: exp.Extract, scope: Scope) -> Typed:
    part, inner = node.this.name.upper(), total(node.expression, scope)
    if part not in PARTS:
        raise PrivacyError(
            f"{part} is not a part of a date here.", span=span_of(node), hint=did_you_mean(part, PARTS)
        )
    if inner.type.kind not in ("DATE", "TIMESTAMP", "NULL"):
        raise BindError(f"a date is needed, and this is {inner.type.sql}.", span=span_of(node.expression))
    low, high = PARTS[part]
    made = _try(
        exp.Extract(this=exp.var(part), expression=inner.node)
    )  # weeks leave the calendar at its ends
    return Typed(made, BIGINT, Interval(Fraction(low), None if high is None else Fraction(high)))


def _truncate(node: exp.Expression, scope: Scope) -> Typed:
    unit, inner = node.args["unit"].name.upper(), total(node.this, scope)
    if unit not in UNITS:
        raise PrivacyError(f"{unit} is not a unit here.", span=span_of(node), hint=did_you_mean(unit, UNITS))
    if inner.type.kind not in ("DATE", "TIMESTAMP", "NULL"):
        raise BindError(f"a date is needed, and this is {inner.type.sql}.", span=span_of(node.this))
    made = exp.Anonymous(this="date_trunc", expressions=[exp.Literal.string(unit.lower()), inner.node])
    # DuckDB gives a DATE for a date where the unit is a day or longer, in one version and a TIMESTAMP in another.
    kind = DATE if inner.type.kind == "DATE" and unit not in ("HOUR", "MINUTE", "SECOND") else TIMESTAMP
    return Typed(exp.TryCast(this=_try(made), to=exp.DataType.build(kind.sql)), kind)


def _difference(node: exp.DateDiff, scope: Scope) -> Typed:
    unit = node.args.get("unit")
    name = unit.name.upper() if unit is not None else "DAY"
    if name not in UNITS:
        raise PrivacyError(f"{name} is not a unit here.", span=span_of(node), hint=did_you_mean(name, UNITS))
    # sqlglot reads date_diff(unit, start, end) with the end first.
    values = [total(place, scope) for place in (node.expression, node.this)]
    nodes, _ = unify(list(zip(values, (node.expression, node.this), strict=True)), "date_diff")
    made = exp.Anonymous(this="date_diff", expressions=[exp.Literal.string(name.lower()), *nodes])
    return Typed(_try(made), BIGINT)


def _interval(node: exp.Interval, scope: Scope) -> Typed:
    amount, unit = node.this, node.args.get("unit")
    name = unit.name.upper().removesuffix("S") if unit is not None else ""
    if (
        not isinstance(amount, exp.Literal)
        or name not in UNITS
        or not re.fullmatch(r"[0-9]{1,6}", amount.name)
    ):
        raise BindError(
            "an interval is a whole number and a unit.", span=span_of(node), hint="write INTERVAL 3 DAY."
        )
    return Typed(
        exp.Interval(this=exp.Literal.string(amount.name), unit=exp.var(name)),
        Type.parse("INTERVAL"),
        None,
        True,
    )


_HANDLERS: dict[type[exp.Expression], Callable[..., Typed]] = {
    exp.Column: _column, exp.Literal: _literal, exp.Boolean: _boolean, exp.Null: _null, exp.Paren: _paren,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ), _compare),
    exp.And: _connect, exp.Or: _connect, exp.Not: _not, exp.Is: _is, exp.Between: _between, exp.In: _in,
    exp.Like: _like, exp.ILike: _like, exp.Glob: _like, exp.Escape: _escape, exp.RegexpLike: _regexp,
    exp.Add: _arithmetic, exp.Sub: _arithmetic, exp.Mul: _arithmetic, exp.Div: _divide, exp.IntDiv: _whole_divide,
    exp.Mod: _whole_divide, exp.Neg: _negate, exp.Abs: _abs, exp.DPipe: _concat, exp.Case: _case, exp.If: _if,
    exp.Coalesce: _unified(intervals.union), exp.Greatest: _unified(lambda ks: intervals.greatest((k, False) for k in ks)),
    exp.Least: _unified(lambda ks: intervals.least((k, False) for k in ks)), exp.Nullif: _nullif, exp.Cast: _cast, exp.TryCast: _cast,
    exp.Extract: _extract, exp.TimestampTrunc: _truncate, exp.DateTrunc: _truncate, exp.DateDiff: _difference,
    exp.Interval: _interval,
}  # fmt: skip
