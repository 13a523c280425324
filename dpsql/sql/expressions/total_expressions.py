"""Row expressions made total: whatever the data hold, the engine gives a value.

An error that depends on the data is an answer without noise, and so is a plan that fails. Every node that is not on a
list here is refused, and so is every part of a node that its handler does not look at. Types are checked by our own
rules (:mod:`dpsql.sql.expressions.coercion`); integers are widened until their range is proved, or the operation stands in TRY;
casts that may fail become TRY_CAST; constants are read at plan time.

Where plain DuckDB gives a value, the rewritten expression gives the same one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Protocol

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError
from dpsql.sql.expressions import coercion, functions, lengths, lists, operators, patterns, temporal, types
from dpsql.sql.expressions.fixed_point import MOMENT_KINDS
from dpsql.sql.parse.dialect import bind_error, name_called, privacy_error, to_sql

MAX_EXPRESSION_DEPTH = 100
"""Nodes below one another; chains of AND and OR count once."""


class ColumnScope(Protocol):
    """The meaning of column names."""

    def column(self, node: exp.Column) -> types.Typed:
        """Return the column as it stands in the exact query. Raises BindError for an unknown or ambiguous name."""
        ...


def make_total(node: exp.Expr, scope: ColumnScope) -> types.Typed:
    """Return the expression, rewritten so that it can't fail in any supported DuckDB, whatever the data.

    Raises:
        BindError: names or types that don't fit; a constant that can't be read.
        PrivacyError: something that is not on the allow-list; the hint says what is.
    """
    with lengths.one_statement():
        return _Walk(scope).bind(node)


class _Walk:
    """A walk down one expression, with a limit to its depth."""

    def __init__(self, scope: ColumnScope) -> None:
        self.scope = scope
        self.depth = 0

    def bind(self, node: exp.Expr) -> types.Typed:
        if self.depth > MAX_EXPRESSION_DEPTH:
            raise bind_error(node, "this expression is nested too deeply.", "compute it in steps, in CTEs.")
        self.depth += 1
        try:
            return replace(_bind(node, self.bind, self.scope), place=node)
        finally:
            self.depth -= 1


def make_condition(node: exp.Expr, scope: ColumnScope) -> types.Typed:
    """Return a total truth value.

    Raises:
        BindError: it is not a condition, or as for :func:`total`.
    """
    with lengths.one_statement():
        return _truth(node, _Walk(scope).bind)


def _bind(node: exp.Expr, bind: coercion.Bind, scope: ColumnScope) -> types.Typed:
    if node is None:
        raise BindError("an operator has nothing to work on.", hint="write the missing operand.")
    if isinstance(node, exp.Column):
        return _column(node, scope)
    if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
        held = node.expression.this.unnest()
        if not isinstance(held, exp.Query):  # x = ANY(list)
            return lists.bind_membership(node.this, held, bind, missing=True)
    if type(node) in _HANDLERS:
        handler, parts = _HANDLERS[type(node)]
        if parts is not None:
            coercion.refuse_rest(node, *parts.split())
        return handler(node, bind)
    if isinstance(node, exp.Func) and not isinstance(node, exp.AggFunc | exp.Exists):
        return functions.bind_function(node, bind)
    raise _refusal(node)


# -- refusals ---------------------------------------------------------------------------------------------------

_WORDS = {
    "star": "*", "window": "a window function", "select": "a subquery", "subquery": "a subquery", "exists": "EXISTS",
    "lambda": "a lambda", "placeholder": "a parameter without a value", "parameter": "a parameter without a value",
    "struct": "a struct", "slice": "a slice of a list", "kwarg": "a named argument",
    "collate": "COLLATE", "any": "ANY", "all": "ALL", "tuple": "a row of values", "jsonextract": "JSON",
    "jsonextractscalar": "JSON", "bytestring": "a text with escapes", "attimezone": "AT TIME ZONE", "tomap": "a map",
    "comprehension": "a list comprehension", "propertyeq": "an assignment", "explode": "unnest", "columns": "COLUMNS",
    "bitwisenot": "~", "bitwiseleftshift": "<<", "bitwiserightshift": ">>",
    "alias": "a name", "filter": "FILTER", "distinct": "DISTINCT", "ordered": "ORDER BY", "withingroup": "WITHIN GROUP",
}  # fmt: skip
_HINTS = {
    "star": "name a column: only a count takes all of them.",
    "window": "aggregate first; windows may follow.",
    "bytestring": "write a text without e before it.",
    "collate": "compare lower(x).",
    "exists": "join the public table instead.",
    "attimezone": "ask for a column of type TIMESTAMP.",
    "any": "write x IN (1, 2, 3).",
    "tuple": "compare the columns one by one.",
}


def _refusal(node: exp.Expr) -> PrivacyError:
    if isinstance(node, exp.AggFunc):
        return privacy_error(
            node,
            f"{name_called(node).upper()} can't stand here.",
            "aggregates stand in the SELECT list or in HAVING, not inside one another.",
        )
    hint = _HINTS.get(node.key)
    if isinstance(node, exp.Query):
        hint = "release what is needed first, in a CTE with aggregates."
    if isinstance(node, exp.Tuple) and isinstance(node.parent, exp.Distinct):
        hint = f"write concat_ws('|', {', '.join(map(to_sql, node.expressions))})."
    what = _WORDS.get(node.key, node.key.upper())
    return privacy_error(node, f"{what} can't be used on private rows.", hint)


# -- leaves -----------------------------------------------------------------------------------------------------


def _column(node: exp.Column, scope: ColumnScope) -> types.Typed:
    if isinstance(node.this, exp.Star):
        raise privacy_error(node, "rows can't be released.", "name the columns that are needed.")
    unknown: BindError | None = None
    try:
        return coercion.take_value(scope.column(node), node)
    except BindError as error:
        unknown = error
    inside = _field_of_column(node, scope)
    if inside is None:
        raise unknown
    return inside


def _field_of_column(node: exp.Column, scope: ColumnScope) -> types.Typed | None:
    """``s.a`` reads like column a of table s; where there is none, it is field a of column s."""
    table, db = node.args.get("table"), node.args.get("db")
    if table is None:
        return None
    outer = exp.Column(this=table.copy(), table=db.copy() if db is not None else None)
    try:
        typed = scope.column(outer)
    except BindError:
        return None
    return coercion.take_field(typed, node.name, node) if typed.type.kind == "STRUCT" else None


def _literal(node: exp.Expr) -> types.Typed:
    """Return a number or a text, with DuckDB's own type of it.

    Raises:
        BindError: it does not fit 64 bits, or is not finite.
    """
    if node.args.get("is_string"):
        return coercion.bind_text(node.name, node)
    written = node.name
    if re.fullmatch(r"[0-9]+", written):
        value = int(written)
        if value >= 2**63:
            raise bind_error(node, "this number does not fit 64 bits.")
        point = types.Bounds.point(value)
        return types.Typed(
            node.copy(), types.INTEGER if value < 2**31 else types.BIGINT, point, True, None, point, False
        )
    if not re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", written):
        raise bind_error(node, "this is not a number that SQL knows.")
    before, _, after = written.partition(".")
    if "e" not in written.lower() and len(before) + len(after) <= 38:
        width = len(before) + len(after)
        point = types.Bounds.point(Fraction(written + ("0" if not after else "")))
        return types.Typed(node.copy(), types.decimal(max(width, 1), len(after)), point, True, nullable=False)
    near = float(written)
    if not abs(near) < float("inf"):
        raise bind_error(node, "this number is too large.")
    return types.Typed(
        types.make_cast(node.copy(), types.DOUBLE),
        types.DOUBLE,
        types.Bounds.point(Fraction(near)),
        True,
        nullable=False,
    )


def _field(node: exp.Dot, bind: coercion.Bind) -> types.Typed:
    """Bind ``struct.field``."""
    inner = coercion.require_kind(bind(node.this), ("STRUCT",), "only a struct has fields")
    if not isinstance(node.expression, exp.Identifier) or inner.type.kind == "NULL":
        raise bind_error(node, "this is no field.")
    return coercion.take_field(inner, node.expression.name, node)


def _try(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """TRY: NULL where DuckDB's own type would have overflowed."""
    inner = bind(node.this)
    return inner if inner.plain is None else coercion.convert(inner, inner.plain)


# -- logic ------------------------------------------------------------------------------------------------------


def _truth(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    typed = bind(node)
    if typed.type.kind not in ("BOOLEAN", "NULL"):
        hint = "write x <> 0." if typed.type.numeric else None
        raise bind_error(node, f"a condition is needed, and this is {typed.type.sql}.", hint)
    return typed


def _connect(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """AND and OR. Long chains are made flat, then even: neither we nor the engine go deep for them."""
    parts: list[exp.Expr] = []
    stack: list[exp.Expr] = [node]
    while stack:
        item = stack.pop()
        if type(item) is type(node):
            stack += [item.expression, item.this]
        else:
            parts.append(item)
    typed = [_truth(part, bind) for part in parts]
    level = [exp.Paren(this=t.node) if not isinstance(t.node, exp.Paren) else t.node for t in typed]
    while len(level) > 1:
        pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
        level = [
            pair[0] if len(pair) == 1 else exp.Paren(this=type(node)(this=pair[0], expression=pair[1]))
            for pair in pairs
        ]
    return coercion.make_boolean(level[0], typed)


def _not(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    inner = _truth(node.this, bind)
    return coercion.make_boolean(exp.Not(this=exp.Paren(this=inner.node)), (inner,))


def _is(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    left = bind(node.this)
    if not isinstance(node.expression, exp.Null | exp.Boolean):
        raise bind_error(node, "IS takes NULL, TRUE or FALSE.", "write IS NOT DISTINCT FROM.")
    if isinstance(node.expression, exp.Boolean) and left.type.kind not in ("BOOLEAN", "NULL"):
        raise bind_error(node.this, f"a condition is needed, and this is {left.type.sql}.")
    made = exp.Is(this=types.parenthesise(left.node), expression=node.expression.copy())
    return coercion.make_boolean(made, (left,), False)


def _in(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    held = node.args.get("field")
    if held is not None and not any(node.args.get(key) for key in ("query", "unnest", "expressions")):
        return lists.bind_membership(node.this, held, bind)
    if not node.expressions or any(node.args.get(key) for key in ("query", "unnest", "field")):
        raise privacy_error(node, "IN takes a list of values here.", "write x IN (1, 2, 3).")
    coercion.refuse_rest(node, "this", "expressions")
    return operators.bind_in(node, bind)


def _safe_divide(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    """GoogleSQL's SAFE_DIVIDE: NULL where the divisor is zero."""
    divisor = exp.Nullif(this=exp.paren(node.expression.copy()), expression=exp.Literal.number(0))
    return bind(exp.Div(this=exp.paren(node.this.copy()), expression=divisor))


# -- choices ----------------------------------------------------------------------------------------------------


def _case(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    branches, otherwise = node.args["ifs"], node.args.get("default")
    if node.this is not None:
        tests = [
            operators.bind_comparison(exp.EQ(this=node.this.copy(), expression=branch.this.copy()), bind)
            for branch in branches
        ]
    else:
        tests = [_truth(branch.this, bind) for branch in branches]
    places = [branch.args["true"] for branch in branches] + ([otherwise] if otherwise is not None else [])
    values = [bind(place) for place in places]
    met = coercion.meet(values, "CASE")
    nodes = met.nodes if otherwise is not None else [*met.nodes, None]
    branches = [exp.If(this=test.node, true=value) for test, value in zip(tests, nodes, strict=False)]
    made = exp.Case(ifs=branches, default=nodes[-1])
    missing = otherwise is None or any(v.nullable for v in values)
    return _chosen(made, met, values, types.Bounds.around, missing, all(test.constant for test in tests))


_BoundsOf = Callable[[Sequence[tuple[types.Bounds | None, bool]]], types.Bounds]


def _chosen(
    made: exp.Expr,
    met: coercion.CommonType,
    values: list[types.Typed],
    bounds_of: _BoundsOf,
    missing: bool,
    constant: bool = True,
) -> types.Typed:
    """Return a value that is one of several."""
    kind, known = met.type, [value for value in values if value.type != types.NULL]
    bounds = reach = None
    if known and (kind.numeric or kind.kind in MOMENT_KINDS):
        bounds = bounds_of([(value.bounds, value.nullable) for value in known])
    if kind.kind == "INTEGER":
        reach = types.Bounds.around([(value.span, value.nullable) for value in known])
    chosen = types.Typed.made_of(
        made, kind, values, bounds, nullable=missing or not met.safe, reach=reach, plain=met.plain
    )
    length, unchecked = None, False
    if kind.kind in ("TEXT", "LIST"):
        length, unchecked = max(map(lengths.length_of, values)), any(value.unchecked for value in values)
    order = coercion.find_common_order(values)
    return replace(
        chosen, constant=chosen.constant and constant, length=length, unchecked=unchecked, order=order
    )


def _if(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    branch = exp.If(this=node.this.copy(), true=node.args["true"].copy())
    otherwise = node.args.get("false")
    return _case(exp.Case(ifs=[branch], default=otherwise.copy() if otherwise is not None else None), bind)


def _several(name: str, bounds_of: _BoundsOf) -> Callable[[exp.Expr, coercion.Bind], types.Typed]:
    def handle(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
        places = [node.this, *node.expressions] if node.this is not None else list(node.expressions)
        values = [bind(place) for place in places]
        met = coercion.meet(values, name.upper())
        if name != "coalesce":
            coercion.require_kind(
                types.Typed(node, met.type, place=node),
                coercion.ORDERED_KINDS,
                f"{name} takes values with an order",
            )
            coercion.refuse_order(values, node)
        missing = all(value.nullable for value in values)
        return _chosen(types.make_call(name, *met.nodes), met, values, bounds_of, missing)

    return handle


def _nullif(node: exp.Expr, bind: coercion.Bind) -> types.Typed:
    left, right = bind(node.this), bind(node.expression)
    met = coercion.meet((left, right), "NULLIF", compared=True)
    # Written out, so that the value keeps its own type in every version.
    same = exp.EQ(this=types.parenthesise(met.nodes[0].copy()), expression=types.parenthesise(met.nodes[1]))
    made = exp.Case(ifs=[exp.If(this=same, true=exp.Null())], default=left.node)
    constant = left.constant and right.constant
    return replace(left, node=made, constant=constant, values=None, nullable=True)


Handler = Callable[[Any, coercion.Bind], types.Typed]
_TABLE: tuple[tuple[Handler, str | None, tuple[type[exp.Expr], ...]], ...] = (
    (lambda node, bind: _literal(node), None, (exp.Literal,)),
    (lambda node, bind: coercion.bind_text(node.name, node), None, (exp.RawString,)),
    (lambda node, bind: types.Typed(node.copy(), types.BOOLEAN, None, True, nullable=False), None, (exp.Boolean,)),
    (lambda node, bind: types.Typed(exp.Null(), types.NULL, None, True), None, (exp.Null,)),
    (lambda node, bind: bind(node.this), None, (exp.Paren,)),
    (_try, None, (exp.Try,)),
    (_field, None, (exp.Dot,)),
    (lists.bind_element, "this expressions offset safe", (exp.Bracket,)),
    (lists.bind_list, "expressions value_constructor", (exp.Array,)),
    (lists.bind_array_slice, "this start end", (exp.ArraySlice,)),
    (lists.bind_split, "this expression", (exp.Split,)),
    (_connect, None, (exp.And, exp.Or)),
    (_not, None, (exp.Not,)),
    (_is, "this expression", (exp.Is,)),
    (_in, None, (exp.In,)),
    (_safe_divide, "this expression", (exp.SafeDivide,)),
    (_case, "this ifs default", (exp.Case,)),
    (_if, "this true false", (exp.If,)),
    (_nullif, "this expression", (exp.Nullif,)),
    (operators.bind_comparison, "this expression", (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)),
    (operators.bind_comparison, "this expression", (exp.NullSafeEQ, exp.NullSafeNEQ)),
    (operators.bind_between, "this low high", (exp.Between,)),
    (operators.bind_arithmetic, "this expression", (exp.Add, exp.Sub, exp.Mul)),
    (operators.bind_division, "this expression typed safe", (exp.Div,)),
    (operators.bind_whole_division, "this expression", (exp.IntDiv, exp.Mod)),
    (operators.bind_negation, "this", (exp.Neg,)),
    (operators.bind_absolute, "this", (exp.Abs,)),
    (operators.bind_bitwise, "this expression", (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)),
    (patterns.bind_like, "this expression negate", (exp.Like, exp.ILike, exp.Glob)),
    (patterns.bind_escape, "this expression", (exp.Escape,)),
    (patterns.bind_regexp, "this expression flag options", (exp.RegexpLike, exp.RegexpFullMatch, exp.SimilarTo)),
    (patterns.bind_regexp_extract, "this expression group null_if_pos_overflow", (exp.RegexpExtract,)),
    (patterns.bind_regexp_replace, "this expression replacement modifiers single_replace", (exp.RegexpReplace,)),
    (functions.bind_concat_operator, "this expression safe", (exp.DPipe,)),
    (functions.make_concat_binder("concat"), "expressions safe coalesce", (exp.Concat,)),
    (functions.make_concat_binder("concat_ws"), "expressions safe coalesce", (exp.ConcatWs,)),
    (functions.bind_trim, "this expression position", (exp.Trim,)),
    (coercion.bind_cast, "this to safe", (exp.Cast, exp.TryCast)),
    (temporal.bind_extract, "this expression", (exp.Extract,)),
    (lambda node, bind: temporal.bind_epoch(node.this, bind), "this", (exp.TimeToUnix,)),
    (temporal.bind_truncation, "this unit input_type_preserved", (exp.TimestampTrunc, exp.DateTrunc)),
    (temporal.bind_date_diff, "this expression unit date_part_boundary", (exp.DateDiff,)),
    (temporal.make_calendar_binder("last_day", types.DATE), "this", (exp.LastDay,)),
    (temporal.bind_time_bucket, "this expression", (exp.DateBin,)),
    (temporal.bind_interval, None, (exp.Interval,)),
    (temporal.bind_date_add, "this expression", (exp.DateAdd,)),
    (temporal.bind_strftime, "this format", (exp.TimeToStr,)),
    (temporal.bind_make_date, "year month day", (exp.DateFromParts,)),
    (temporal.make_calendar_binder("dayname", types.TEXT, 9), "this abbreviated", (exp.Dayname,)),
    (temporal.make_calendar_binder("monthname", types.TEXT, 9), "this abbreviated", (exp.Monthname,)),
    (functions.make_rounding_binder("floor"), "this decimals", (exp.Floor,)),
    (functions.make_rounding_binder("ceil"), "this decimals", (exp.Ceil,)),
    (functions.make_rounding_binder("round"), "this decimals", (exp.Round,)),
    (functions.make_rounding_binder("trunc"), "this decimals", (exp.Trunc,)),
    (functions.bind_sign, "this", (exp.Sign,)),
    (functions.bind_log, "this expression", (exp.Log,)),
    (functions.bind_length, "this", (exp.Length,)),
    (lists.bind_contains, "this expression ensure_variant check_null", (exp.ArrayContains,)),
    (functions.bind_sha, "this length", (exp.SHA2,)),
    (_several("coalesce", types.Bounds.around), "this expressions ignore_nulls is_nvl is_null", (exp.Coalesce,)),
    (_several("greatest", types.Bounds.greatest), "this expressions ignore_nulls is_nvl is_null", (exp.Greatest,)),
    (_several("least", types.Bounds.least), "this expressions ignore_nulls is_nvl is_null", (exp.Least,)),
)  # fmt: skip
"""The function that binds a node, the parts that this looks at (None: it checks them itself), and the classes of such nodes."""
_HANDLERS = {kind: (handler, parts) for handler, parts, kinds in _TABLE for kind in kinds}
