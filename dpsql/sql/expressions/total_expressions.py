"""Row expressions made total: whatever the data hold, the engine gives a value.

An error that depends on the data is an answer without noise, and so is a plan that fails. Every node that is not on a
list here is refused, and so is every part of a node that its handler does not look at. Types are checked by our own
rules (:mod:`dpsql.sql.expressions.coercion`); integers are widened until their range is proved, or the operation stands in TRY;
casts that may fail become TRY_CAST; constants are read at plan time.

Where plain DuckDB gives a value, the rewritten expression gives the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError
from dpsql.sql.expressions import calls, casts, lengths, operators, patterns, temporal
from dpsql.sql.expressions.coercion import (
    ORDERED_KINDS,
    Bind,
    make_boolean,
    make_call,
    meet,
    parenthesise,
    refuse_rest,
    require_kind,
)
from dpsql.sql.expressions.fixed_point import MOMENT_KINDS
from dpsql.sql.expressions.types import BOOLEAN, NULL, Bounds, Type, Typed
from dpsql.sql.parse.dialect import bind_error, privacy_error

MAX_EXPRESSION_DEPTH = 100
"""Nodes below one another; chains of AND and OR count once."""


class ColumnScope(Protocol):
    """The meaning of column names."""

    def column(self, node: exp.Column) -> Typed:
        """Return the column as it stands in the exact query. Raises BindError for an unknown or ambiguous name."""
        ...


def make_total(node: exp.Expr, scope: ColumnScope) -> Typed:
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

    def bind(self, node: exp.Expr) -> Typed:
        if self.depth > MAX_EXPRESSION_DEPTH:
            raise bind_error(node, "this expression is nested too deeply.", "compute it in steps, in CTEs.")
        self.depth += 1
        try:
            return _bind(node, self.bind, self.scope)
        finally:
            self.depth -= 1


def make_condition(node: exp.Expr, scope: ColumnScope) -> Typed:
    """Return a total truth value.

    Raises:
        BindError: it is not a condition, or as for :func:`total`.
    """
    with lengths.one_statement():
        return _truth(node, _Walk(scope).bind)


def _bind(node: exp.Expr, bind: Bind, scope: ColumnScope) -> Typed:
    if node is None:
        raise BindError("an operator has nothing to work on.", hint="write the missing operand.")
    if isinstance(node, exp.Column):
        return _column(node, scope)
    if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
        held = node.expression.this.unnest()
        if not isinstance(held, exp.Query):  # x = ANY(list)
            return _held(node.this, held, bind)
    if type(node) in _HANDLERS:
        handler, parts = _HANDLERS[type(node)]
        if parts is not None:
            refuse_rest(node, *parts.split())
        return handler(node, bind)
    if isinstance(node, exp.Func) and not isinstance(node, exp.AggFunc | exp.Exists):
        return calls.bind_function(node, bind)
    raise _refusal(node)


# -- refusals ---------------------------------------------------------------------------------------------------

_WORDS = {
    "star": "*", "window": "a window function", "select": "a subquery", "subquery": "a subquery", "exists": "EXISTS",
    "lambda": "a lambda", "placeholder": "a parameter without a value", "parameter": "a parameter without a value",
    "struct": "a struct", "slice": "a slice of a list", "array": "a list", "kwarg": "a named argument",
    "collate": "COLLATE", "any": "ANY", "all": "ALL", "tuple": "a row of values", "jsonextract": "JSON",
    "jsonextractscalar": "JSON", "bytestring": "a text with escapes", "attimezone": "AT TIME ZONE", "tomap": "a map",
    "comprehension": "a list comprehension", "propertyeq": "an assignment", "explode": "unnest", "columns": "COLUMNS",
    "alias": "a name", "filter": "FILTER", "distinct": "DISTINCT", "ordered": "ORDER BY", "withingroup": "WITHIN GROUP",
}  # fmt: skip
_HINTS = {
    "window": "aggregate first; windows may follow.",
    "bytestring": "write a text without e before it.",
    "collate": "compare lower(x).",
    "exists": "join the public table instead.",
    "attimezone": "ask for a column of type TIMESTAMP.",
    "array": "write x IN (1, 2, 3).",
    "any": "write x IN (1, 2, 3).",
    "tuple": "compare the columns one by one, with AND; to count different rows, COUNT(DISTINCT concat_ws('|', a, b)).",
}


def _refusal(node: exp.Expr) -> PrivacyError:
    if isinstance(node, exp.AggFunc):
        return privacy_error(
            node,
            f"{node.sql_name()} can't stand here.",
            "aggregates stand in the SELECT list or in HAVING, not inside one another.",
        )
    hint = (
        "release what is needed first, in a CTE with aggregates."
        if isinstance(node, exp.Query)
        else _HINTS.get(node.key)
    )
    what = _WORDS.get(node.key, node.key.upper())
    return privacy_error(node, f"{what} can't be used on private rows.", hint)


# -- leaves -----------------------------------------------------------------------------------------------------


def _column(node: exp.Column, scope: ColumnScope) -> Typed:
    if isinstance(node.this, exp.Star):
        raise privacy_error(node, "rows can't be released.", "name the columns that are needed.")
    unknown: BindError | None = None
    try:
        return casts.take_value(scope.column(node), node)
    except BindError as error:
        unknown = error
    inside = _field_of_column(node, scope)
    if inside is None:
        raise unknown
    return inside


def _field_of_column(node: exp.Column, scope: ColumnScope) -> Typed | None:
    """``s.a`` reads like column a of table s; where there is none, it is field a of column s."""
    table, db = node.args.get("table"), node.args.get("db")
    if table is None:
        return None
    outer = exp.Column(this=table.copy(), table=db.copy() if db is not None else None)
    try:
        typed = scope.column(outer)
    except BindError:
        return None
    return casts.take_field(typed, node.name, node) if typed.type.kind == "STRUCT" else None


def _try(node: exp.Expr, bind: Bind) -> Typed:
    """TRY: NULL where DuckDB's own type would have overflowed."""
    inner = bind(node.this)
    return inner if inner.plain is None else casts.convert(inner, inner.plain)


# -- logic ------------------------------------------------------------------------------------------------------


def _truth(node: exp.Expr, bind: Bind) -> Typed:
    typed = bind(node)
    if typed.type.kind not in ("BOOLEAN", "NULL"):
        hint = "write x <> 0." if typed.type.numeric else None
        raise bind_error(node, f"a condition is needed, and this is {typed.type.sql}.", hint)
    return typed


def _connect(node: exp.Expr, bind: Bind) -> Typed:
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
    return make_boolean(level[0], typed)


def _not(node: exp.Expr, bind: Bind) -> Typed:
    inner = _truth(node.this, bind)
    return make_boolean(exp.Not(this=exp.Paren(this=inner.node)), (inner,))


def _is(node: exp.Expr, bind: Bind) -> Typed:
    left = bind(node.this)
    if not isinstance(node.expression, exp.Null | exp.Boolean):
        raise bind_error(node, "IS takes NULL, TRUE or FALSE.", "write IS NOT DISTINCT FROM.")
    if isinstance(node.expression, exp.Boolean) and left.type.kind not in ("BOOLEAN", "NULL"):
        raise bind_error(node.this, f"a condition is needed, and this is {left.type.sql}.")
    return make_boolean(
        exp.Is(this=parenthesise(left.node), expression=node.expression.copy()), (left,), False
    )


def _held(value: exp.Expr, held: exp.Expr, bind: Bind) -> Typed:
    """Return whether a list has a value: one that is written out, or one of the row's."""
    if isinstance(held, exp.Array):
        return operators.bind_in(
            exp.In(this=value.copy(), expressions=[e.copy() for e in held.expressions]), bind
        )
    return calls.bind_contains(exp.ArrayContains(this=held.copy(), expression=value.copy()), bind)


def _in(node: exp.Expr, bind: Bind) -> Typed:
    held = node.args.get("field")
    if held is not None and not any(node.args.get(key) for key in ("query", "unnest", "expressions")):
        return _held(node.this, held, bind)
    if not node.expressions or any(node.args.get(key) for key in ("query", "unnest", "field")):
        raise privacy_error(node, "IN takes a list of values here.", "write x IN (1, 2, 3).")
    refuse_rest(node, "this", "expressions")
    return operators.bind_in(node, bind)


def _safe_divide(node: exp.Expr, bind: Bind) -> Typed:
    """GoogleSQL's SAFE_DIVIDE: NULL where the divisor is zero."""
    divisor = exp.Nullif(this=exp.paren(node.expression.copy()), expression=exp.Literal.number(0))
    return bind(exp.Div(this=exp.paren(node.this.copy()), expression=divisor))


# -- choices ----------------------------------------------------------------------------------------------------


def _case(node: exp.Expr, bind: Bind) -> Typed:
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
    met = meet(list(zip(values, places, strict=True)), "CASE")
    nodes = met.nodes if otherwise is not None else [*met.nodes, None]
    made = exp.Case(
        ifs=[exp.If(this=test.node, true=value) for test, value in zip(tests, nodes, strict=False)],
        default=nodes[-1],
    )
    known = [v.bounds for v in values if v.type.kind != "NULL"]
    missing = otherwise is None or any(v.nullable for v in values) or not met.safe
    constant = all(v.constant for v in (*tests, *values))
    return _chosen(
        made, met.type, met.plain, values, Bounds.around(known) if known else None, missing, constant
    )


def _chosen(
    made: exp.Expr,
    kind: Type,
    plain: Type,
    values: list[Typed],
    bounds: Bounds | None,
    missing: bool,
    constant: bool,
) -> Typed:
    reach = None
    if kind.kind == "INTEGER":
        reach = Bounds.around(v.span for v in values if v.type.kind != "NULL")
    shown = plain if plain != kind else None
    kept = bounds if kind.numeric or kind.kind in MOMENT_KINDS else None
    length, unchecked = None, False
    if kind.kind in ("TEXT", "LIST"):
        length, unchecked = max(lengths.length_of(v) for v in values), any(v.unchecked for v in values)
    return Typed(made, kind, kept, constant, None, reach, missing, shown, length, unchecked)


def _if(node: exp.Expr, bind: Bind) -> Typed:
    branch = exp.If(this=node.this.copy(), true=node.args["true"].copy())
    otherwise = node.args.get("false")
    return _case(exp.Case(ifs=[branch], default=otherwise.copy() if otherwise is not None else None), bind)


def _several(name: str) -> Callable[[exp.Expr, Bind], Typed]:
    def handle(node: exp.Expr, bind: Bind) -> Typed:
        places = [node.this, *node.expressions] if node.this is not None else list(node.expressions)
        values = [bind(place) for place in places]
        met = meet(list(zip(values, places, strict=True)), name.upper())
        known = [(v.bounds, v.nullable) for v in values if v.type.kind != "NULL"]
        if name == "coalesce":
            bounds = Bounds.around(b for b, _ in known) if known else None
        else:
            require_kind(Typed(node, met.type), node, ORDERED_KINDS, f"{name} takes values with an order")
            bounds = (Bounds.greatest if name == "greatest" else Bounds.least)(known) if known else None
        missing = all(v.nullable for v in values) or not met.safe
        constant = all(v.constant for v in values)
        return _chosen(make_call(name, *met.nodes), met.type, met.plain, values, bounds, missing, constant)

    return handle


def _nullif(node: exp.Expr, bind: Bind) -> Typed:
    left, right = bind(node.this), bind(node.expression)
    met = meet([(left, node.this), (right, node.expression)], "NULLIF", compared=True)
    # Written out, so that the value keeps its own type in every version.
    same = exp.EQ(this=parenthesise(met.nodes[0].copy()), expression=parenthesise(met.nodes[1]))
    made = exp.Case(ifs=[exp.If(this=same, true=exp.Null())], default=left.node)
    constant = left.constant and right.constant
    return replace(left, node=made, constant=constant, values=None, nullable=True)


Handler = Callable[[Any, Bind], Typed]
_TABLE: tuple[tuple[Handler, str | None, tuple[type[exp.Expr], ...]], ...] = (
    (lambda node, bind: casts.bind_literal(node), None, (exp.Literal,)),
    (lambda node, bind: casts.bind_text(node.name, node), None, (exp.RawString,)),
    (lambda node, bind: Typed(node.copy(), BOOLEAN, None, True, nullable=False), None, (exp.Boolean,)),
    (lambda node, bind: Typed(exp.Null(), NULL, None, True), None, (exp.Null,)),
    (lambda node, bind: bind(node.this), None, (exp.Paren,)),
    (_try, None, (exp.Try,)),
    (casts.bind_field, None, (exp.Dot,)),
    (casts.bind_element, "this expressions offset safe", (exp.Bracket,)),
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
    (calls.bind_concat_operator, "this expression safe", (exp.DPipe,)),
    (calls.make_concat_binder("concat"), "expressions safe coalesce", (exp.Concat,)),
    (calls.make_concat_binder("concat_ws"), "expressions safe coalesce", (exp.ConcatWs,)),
    (calls.bind_trim, "this expression position", (exp.Trim,)),
    (casts.bind_cast, "this to safe", (exp.Cast, exp.TryCast)),
    (temporal.bind_extract, "this expression", (exp.Extract,)),
    (temporal.bind_epoch, "this", (exp.TimeToUnix,)),
    (temporal.bind_truncation, "this unit input_type_preserved", (exp.TimestampTrunc, exp.DateTrunc)),
    (temporal.bind_date_diff, "this expression unit date_part_boundary", (exp.DateDiff,)),
    (temporal.bind_last_day, "this", (exp.LastDay,)),
    (temporal.bind_time_bucket, "this expression", (exp.DateBin,)),
    (temporal.bind_interval, None, (exp.Interval,)),
    (temporal.bind_date_add, "this expression", (exp.DateAdd,)),
    (temporal.bind_strftime, "this format", (exp.TimeToStr,)),
    (temporal.bind_make_date, "year month day", (exp.DateFromParts,)),
    (temporal.bind_calendar_name("dayname"), "this abbreviated", (exp.Dayname,)),
    (temporal.bind_calendar_name("monthname"), "this abbreviated", (exp.Monthname,)),
    (calls.make_rounding_binder("floor"), "this decimals", (exp.Floor,)),
    (calls.make_rounding_binder("ceil"), "this decimals", (exp.Ceil,)),
    (calls.make_rounding_binder("round"), "this decimals", (exp.Round,)),
    (calls.make_rounding_binder("trunc"), "this decimals", (exp.Trunc,)),
    (calls.bind_sign, "this", (exp.Sign,)),
    (calls.bind_log, "this expression", (exp.Log,)),
    (calls.bind_length, "this", (exp.Length,)),
    (calls.bind_contains, "this expression ensure_variant check_null", (exp.ArrayContains,)),
    (calls.bind_sha, "this length", (exp.SHA2,)),
    (_several("coalesce"), "this expressions ignore_nulls is_nvl is_null", (exp.Coalesce,)),
    (_several("greatest"), "this expressions ignore_nulls is_nvl is_null", (exp.Greatest,)),
    (_several("least"), "this expressions ignore_nulls is_nvl is_null", (exp.Least,)),
)  # fmt: skip
"""What binds a node, the parts of it that this looks at (None: it checks them itself), and the classes of such nodes."""
_HANDLERS = {kind: (handler, parts) for handler, parts, kinds in _TABLE for kind in kinds}
