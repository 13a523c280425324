"""Total row expressions: the engine gives a value for all data.

An error that depends on the data is an answer without noise; so is a plan that fails. Nodes that aren't listed here are
refused, and so are parts of a node that its handler doesn't read. Our own rules check the types
(:mod:`dpsql.binding.values.coercion`). Integers are widened until their range is proved, or the operation is in TRY. Casts
that may fail become TRY_CAST. Constants are read at plan time. If plain DuckDB gives a value, the rewritten expression
gives an equal one.

Patterns of LIKE, GLOB, SIMILAR TO and regular expressions are literals. The engine raises on an unreadable pattern, in
TRY, too, so each is read here first. Regular expressions are limited to the syntax that RE2 and this reader share. RE2
takes time proportional to the text's length times the pattern's size; with replacement of all matches, it may read the
rest of the text again after each. An engine may match the wildcards of LIKE by trying every position for each.
:mod:`dpsql.binding.values.declared_values` limits all this for one row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Protocol

from sqlglot import exp

from dpsql.binding.values import operators, row_functions, temporal
from dpsql.binding.values.coercion import (
    COMPARED_KINDS,
    Bind,
    CommonType,
    above_parentheses,
    bind_cast,
    bind_text,
    convert,
    find_common_order,
    make_boolean,
    meet,
    refuse_order,
    refuse_rest,
    require_kind,
    take_field,
    take_presence,
    take_value,
)
from dpsql.binding.values.declared_values import (
    count_kept,
    count_written,
    hold,
    length_of,
    limit_steps,
    one_statement,
)
from dpsql.binding.values.fixed_point import MOMENT_KINDS
from dpsql.binding.values.sql_types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    HUGEINT,
    INTEGER,
    NULL,
    TEXT,
    Bounds,
    Typed,
    decimal,
    make_call,
    make_cast,
    parenthesise,
)
from dpsql.errors import BindError, PrivacyError
from dpsql.language.dialect import bind_error, name_called, privacy_error, to_sql

MAX_PATTERN_LENGTH = 1000
"""Characters of a pattern."""
_MOST_REPEATS = 1000
_WILD_WEIGHT = 4
_REGULAR_WEIGHT = 12
"""Nanoseconds for one character of the text and one of the pattern, measured in the worst case."""
_REGULAR_MEMORY = 2**18
"""The memory of one regular expression's automaton, in characters."""
_FEWER = "shorten the text by LEFT first, match a regular expression, or use one wildcard in the middle."
_SHORTER = "shorten the text by LEFT first, take a simpler pattern, or ask the owner for a max_length of the column in the policy."


def _pattern_literal(place: exp.Expr | None, what: str, node: exp.Expr) -> str:
    if isinstance(place, exp.RawString):
        place = exp.Literal.string(place.name)
    if not isinstance(place, exp.Literal) or not place.is_string:
        message = f"{what} must be a literal: one from the data could fail on some rows."
        hint = "write the pattern in quotes, or compare texts with starts_with or contains."
        raise privacy_error(place, message, hint, around=node)
    if len(place.name) > MAX_PATTERN_LENGTH or "\x00" in place.name:
        raise bind_error(place, f"{what} has at most {MAX_PATTERN_LENGTH} characters.")
    return str(place.name)


def _text(place: exp.Expr, bind: Bind) -> Typed:
    return require_kind(bind(place), ("TEXT",), "a pattern is matched with text", "cast it to VARCHAR.")


def bind_like(node: exp.Expr, bind: Bind) -> Typed:
    """Bind LIKE, ILIKE and GLOB, for which no pattern fails."""
    left = _text(node.this, bind)
    text = _pattern_literal(node.expression, "a pattern", node)
    star, one = ("*", "?[") if isinstance(node, exp.Glob) else ("%", "_")
    plain = not any(sign in text for sign in one)
    kind, pattern = type(node), exp.Literal.string(text)
    if isinstance(node, exp.ILike) and plain and _wildcards(text, star) > 1:
        # The engine's own ILIKE, written so that every version takes one pass.
        left = hold(left)
        left = replace(left, node=make_call("lower", left.node))
        count_written("ILIKE", length_of(left), node)
        made: exp.Expr = exp.Like(this=left.node, expression=make_call("lower", pattern))
    else:
        if not (plain and kind is exp.Like):
            left = _tried(left, text, star, node)
        made = kind(this=parenthesise(left.node), expression=pattern)
    return _answer(made, node, left)


def _answer(made: exp.Expr, node: exp.Expr, left: Typed) -> Typed:
    return make_boolean(exp.Not(this=exp.Paren(this=made)) if node.args.get("negate") else made, (left,))


def _wildcards(pattern: str, star: str) -> int:
    """Return the number of wildcards before other characters, whose position has to be found."""
    return len(re.findall(rf"{re.escape(star)}+(?!$|{re.escape(star)})", pattern))


def _tried(left: Typed, pattern: str, star: str, node: exp.Expr) -> Typed:
    """Return the text; PrivacyError if trying each wildcard at every position takes too long."""
    name = "ILIKE" if isinstance(node, exp.ILike) else "GLOB" if isinstance(node, exp.Glob) else "LIKE"
    places, longest = _wildcards(pattern, star), max(map(len, pattern.split(star)))
    if places > 1:
        left = hold(left)
    steps = _WILD_WEIGHT * math.comb(length_of(left) + places, places) * max(1, longest) if places else 0
    limit_steps(name, steps, node, _FEWER if places > 1 else _SHORTER)
    return left


def bind_escape(node: exp.Expr, bind: Bind) -> Typed:
    """Bind LIKE with ESCAPE; the escape character must precede %, _ or itself."""
    inner = node.this
    if type(inner) not in (exp.Like, exp.ILike):
        raise bind_error(node, "ESCAPE goes with LIKE.")
    refuse_rest(inner, "this", "expression", "negate")
    mark = _pattern_literal(node.expression, "the escape character", node)
    pattern = _pattern_literal(inner.expression, "a pattern", inner)
    if len(mark) != 1 or not mark.isascii() or mark in "%_":
        raise bind_error(node.expression, "the escape character is one character.", "write ESCAPE '$'.")
    sign = re.escape(mark)
    if re.fullmatch(rf"(?s)(?:[^{sign}]|{sign}[%_{sign}])*", pattern) is None:
        message = "the escape character stands before %, _ or itself."
        raise bind_error(inner.expression, message, f"write '{mark}%'.")
    left = _tried(_text(inner.this, bind), pattern, "%", inner)
    shape = type(inner)(this=parenthesise(left.node), expression=exp.Literal.string(pattern))
    return _answer(exp.Escape(this=shape, expression=exp.Literal.string(mark)), inner, left)


def bind_regexp(node: exp.Expr, bind: Bind) -> Typed:
    """Bind regexp_matches, regexp_full_match and SIMILAR TO."""
    if isinstance(node, exp.RegexpILike):  # always the operator
        hint = f"write regexp_matches({to_sql(node.this)}, {to_sql(node.expression)}, 'i')."
        raise privacy_error(node, "~* is PostgreSQL's.", hint)
    if isinstance(node, exp.RegexpLike) and "start" not in node.meta:  # the operator, not the function
        of = f"{to_sql(node.this)}, {to_sql(node.expression)}"
        what = "~ means the whole text in one version of DuckDB and a part of it in another."
        hint = f"write regexp_full_match({of}), or regexp_matches({of})."
        raise privacy_error(node, what, hint)
    left = _text(node.this, bind)
    pattern = _expression(node.expression, node)
    full = not isinstance(node, exp.RegexpLike)
    extra = _flags(node.args.get("flag") or node.args.get("options"), node)
    left = _searched("a regular expression", left, pattern.name, node)
    made = make_call("regexp_full_match" if full else "regexp_matches", left.node, pattern, *extra)
    return make_boolean(made, (left,))


def bind_regexp_extract(node: exp.Expr, bind: Bind) -> Typed:
    """Bind regexp_extract."""
    left = _text(node.this, bind)
    pattern = _expression(node.expression, node)
    group = node.args.get("group")
    written = group.name if isinstance(group, exp.Literal) else ""
    known = re.fullmatch("[0-9]{1,2}", written) is not None and int(written) <= _groups(pattern.name)
    if group is not None and not known:
        raise bind_error(group, f"the pattern has {_groups(pattern.name)} groups.", around=node)
    left = _searched("regexp_extract", left, pattern.name, node)
    length = count_written("regexp_extract", length_of(left), node)
    arguments = [left.node, pattern, *([exp.Literal.number(int(written))] if group is not None else [])]
    made = make_call("regexp_extract", *arguments)
    return Typed(made, TEXT, None, left.constant, nullable=left.nullable, length=length)


def bind_regexp_replace(node: exp.Expr, bind: Bind) -> Typed:
    """Bind regexp_replace, whose result has a public length."""
    left = _text(node.this, bind)
    pattern = _expression(node.expression, node)
    by = _pattern_literal(node.args.get("replacement"), "what replaces a pattern", node)
    named = [int(number) for number in re.findall(r"\\([0-9])", by.replace("\\\\", ""))]
    known = re.fullmatch(r"(?s)(?:[^\\]|\\[0-9\\])*", by) is not None
    if not known or max(named, default=0) > _groups(pattern.name):
        raise bind_error(node.args["replacement"], "the replacement names a group that the pattern has not.")
    extra = _flags(node.args.get("modifiers"), node, "g")
    every = any("g" in flags.name for flags in extra)
    left = _searched("regexp_replace", left, pattern.name, node)
    if every and _reads_on(pattern.name):
        limit_steps("regexp_replace with 'g'", 2 * length_of(left) ** 2, node, _SHORTER)
    # Matches don't overlap, and there may be an empty one between characters.
    most = length_of(left) * (1 + len(named)) + (length_of(left) + 1 if every else 1) * len(by)
    length = count_written("regexp_replace", most, node)
    made = make_call("regexp_replace", left.node, pattern, exp.Literal.string(by), *extra)
    return Typed(made, TEXT, None, left.constant, nullable=left.nullable, length=length)


def _searched(name: str, left: Typed, pattern: str, node: exp.Expr) -> Typed:
    """Return the text, limited to its public length; PrivacyError if the pattern is too large for it."""
    left = hold(left)
    limit_steps(name, _REGULAR_WEIGHT * length_of(left) * _size(pattern), node, _SHORTER)
    count_kept("a regular expression", _REGULAR_MEMORY, node)
    return left


def _flags(place: exp.Expr | None, node: exp.Expr, more: str = "") -> list[exp.Expr]:
    if place is None:
        return []
    text = _pattern_literal(place, "flags", node)
    if not text or set(text) - set("cims" + more) or len(text) > 4:
        raise bind_error(place, "the flags of a regular expression are c, i, m and s.")
    return [exp.Literal.string(text)]


def _groups(pattern: str) -> int:
    plain = re.sub(r"\\.", "", pattern)
    plain = re.sub(r"\[\^?\]?[^\]]*\]", "", plain)
    return len(re.findall(r"\((?!\?)", plain))


_PIECE = re.compile(
    r"""
    \\[dDwWsSbBAz]                                    # classes and places
  | \\[tnrfv]                                         # control characters
  | \\[^\sA-Za-z0-9]                                  # a sign that stands for itself
  | \[\^?\]?(?:\\[dDwWsStnrfv]|\\[^\sA-Za-z0-9]|\[:\^?(?:al(?:num|pha)|ascii|blank|cntrl|digit|graph|lower|p(?:rint|unct)|space|upper|word|xdigit):\]|
      (?:--|&&|~~|\|\|)(?!)|(?!--|&&|~~|\|\|)[^\]\\\[])*\]
  | \(\?(?:[ims]+\)|:|[ims]+:) | \((?!\?)
  | \) | \| | \. | \^ | \$
  | (?:\*|\+|\?|\{\d{1,4}(?:,\d{0,4})?\})\??(?![*+?{])  # how often, once
  | [^\\\[\](){}|.^$*+?]                              # a character
    """,
    re.VERBOSE | re.DOTALL,
)


def _pieces(pattern: str) -> list[str]:
    return [found[0] for found in _PIECE.finditer(pattern)]


_REPEAT = re.compile(r"([*+?])|\{(\d+)(,?)(\d*)\}")


def _size(pattern: str) -> int:
    """Return a pattern's size: its characters with repeats written out, those of several bytes counted as five.

    A pattern without wildcards, classes and repeats needs an automaton no larger than itself, and has a small size.
    """
    pieces = _pieces(pattern)
    if not any(piece[0] in "\\[.*+?{(" and piece != "(?:" for piece in pieces) and pattern.isascii():
        return 1 + len(pattern) // 64
    stack, last = [0], 0
    for piece in pieces:
        repeat = _REPEAT.match(piece)
        if repeat is not None:
            times = max(int(repeat[2] or 1), int(repeat[4] or 0)) + (1 if repeat[3] and not repeat[4] else 0)
            stack[-1] += last * (max(1, times) - 1)
            last *= max(1, times)
        elif piece.startswith("("):
            stack.append(0)
        elif piece == ")":
            last = stack.pop()
            stack[-1] += last
        elif piece not in "|^$":
            many = piece == "." or piece.startswith("[^") or not piece.isascii() or piece in _NEGATED
            last = 5 if many else 1
            stack[-1] += last
    return max(1, sum(stack))


_NEGATED = (r"\D", r"\W", r"\S")


def _reads_on(pattern: str) -> bool:
    """Return whether a search may read far past a match: if an unbounded part of the pattern is optional or an alternative."""
    pieces, endless, inside = _pieces(pattern), False, [False]
    for i, piece in enumerate(pieces):
        repeat = _REPEAT.match(piece)
        if repeat is not None and (repeat[1] in ("*", "+") or (repeat[3] and not repeat[4])):
            endless = inside[-1] = True
        elif piece.startswith("("):
            inside.append(False)
        elif piece == ")":
            closed = inside.pop()
            inside[-1] = inside[-1] or closed
            if closed and i + 1 < len(pieces) and _REPEAT.match(pieces[i + 1]):
                return True
    return endless and "|" in pieces


def _expression(place: exp.Expr | None, node: exp.Expr) -> exp.Expr:
    """Return a literal regular expression that RE2 can read."""
    text = _pattern_literal(place, "a pattern", node)
    at = repeats = 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            what = f"the pattern can't be read at character {at + 1}."
            hint = "look-around and back-references are not supported; write \\( for a bracket itself."
            raise bind_error(place, what, hint)
        for number in re.findall(r"^\{(\d+)(?:,(\d*))?\}", piece[0]):
            repeats += max(int(n or 0) for n in number)
        at = piece.end()
    if not _compiles(text):
        raise bind_error(place, "this is not a regular expression.")
    nested = re.search(r"\}[^()]*\)[*+?]*\{", text) is not None
    if repeats > _MOST_REPEATS or nested:
        raise bind_error(place, "the pattern repeats too much.", "write * or + instead of {n}.")
    return exp.Literal.string(text)


def _compiles(text: str) -> bool:
    # Global flags inside are RE2's and not Python's; they don't change the structure.
    plain = re.sub(r"\[:\^?[a-z]+:\]", "a", re.sub(r"\(\?[ims]+\)", "", text)).replace(r"\z", r"\Z")
    try:
        re.compile(plain)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


MAX_EXPRESSION_DEPTH = 100
"""The greatest depth of nodes; chains of AND and OR count once."""


class ColumnScope(Protocol):
    """The meaning of column names."""

    def column(self, node: exp.Column) -> Typed:
        """Return the column in the exact query; BindError for an unknown or ambiguous name."""
        ...


def make_total(node: exp.Expr, scope: ColumnScope) -> Typed:
    """Return the expression, rewritten so that it can't fail in any supported DuckDB, for any data.

    Raises:
        BindError: names or types that don't fit; a constant that can't be read.
        PrivacyError: a node that isn't listed; the hint names an alternative.
    """
    with one_statement():
        return _Walk(scope).bind(node)


class _Walk:
    """A walk down one expression of limited depth."""

    def __init__(self, scope: ColumnScope) -> None:
        self.scope = scope
        self.depth = 0

    def bind(self, node: exp.Expr) -> Typed:
        if self.depth > MAX_EXPRESSION_DEPTH:
            raise bind_error(node, "this expression is nested too deeply.", "compute it in steps, in CTEs.")
        self.depth += 1
        try:
            return replace(_bind(node, self.bind, self.scope), place=node)
        finally:
            self.depth -= 1


def make_condition(node: exp.Expr, scope: ColumnScope) -> Typed:
    """Return a total condition; errors as for :func:`make_total`, and BindError for another type than BOOLEAN."""
    with one_statement():
        return _truth(node, _Walk(scope).bind)


def _bind(node: exp.Expr, bind: Bind, scope: ColumnScope) -> Typed:
    if node is None:
        raise BindError("an operator has nothing to work on.", hint="write the missing operand.")
    if isinstance(node, exp.Column):
        return _column(node, scope)
    if isinstance(node, exp.EQ) and isinstance(node.expression, exp.Any):
        held = node.expression.this.unnest()
        if not isinstance(held, exp.Query):  # x = ANY(list)
            return row_functions.bind_membership(node.this, held, bind, missing=True)
    if type(node) in _HANDLERS:
        handler, parts = _HANDLERS[type(node)]
        if parts is not None:
            refuse_rest(node, *parts.split())
        return handler(node, bind)
    if isinstance(node, exp.Func) and not isinstance(node, exp.AggFunc | exp.Exists | exp.Struct):
        return row_functions.bind_function(node, bind)
    raise _refusal(node)


# -- refusals ---------------------------------------------------------------------------------------------------

_WORDS = {
    "star": "*", "window": "a window function", "select": "a subquery", "subquery": "a subquery", "exists": "EXISTS",
    "lambda": "a lambda", "placeholder": "a parameter without a value", "parameter": "a parameter without a value",
    "struct": "a struct", "slice": "a slice of a list", "kwarg": "a named argument",
    "collate": "COLLATE", "any": "ANY", "all": "ALL", "tuple": "a row of values",
    "tomap": "a map",
    "propertyeq": "an assignment", "explode": "unnest", "columns": "COLUMNS",
    "positionalcolumn": "a column by its place in FROM", "bitwisenot": "~", "bitwiseleftshift": "<<", "bitwiserightshift": ">>",
    "alias": "a name", "filter": "FILTER", "distinct": "DISTINCT", "ordered": "ORDER BY", "withingroup": "WITHIN GROUP",
}  # fmt: skip
_HINTS = {
    "star": "name a column: only a count takes all of them.",
    "window": "aggregate first; windows may follow.",
    "collate": "compare texts in lower case.",
    "exists": "join the public table instead.",
    "any": "list the values in parentheses behind the word in.",
    "tuple": "compare the columns one by one.",
    "positionalcolumn": "write the name of the column.",
    "struct": "use its parts as columns of their own.",
}


def _refusal(node: exp.Expr) -> PrivacyError:
    if isinstance(node, exp.AggFunc):
        inside = "write aggregates in the SELECT list or in HAVING, not inside one another."
        return privacy_error(node, f"{name_called(node).upper()} can't be used here.", inside)
    hint = _HINTS.get(node.key)
    if isinstance(node, exp.Query):
        hint = "release what is needed first, in a CTE with aggregates."
    if isinstance(node, exp.BitwiseNot):
        hint = f"write (-{to_sql(parenthesise(node.this.copy()))} - 1) instead of {to_sql(node)}."
    if isinstance(node, exp.BitwiseLeftShift | exp.BitwiseRightShift):
        by, left = node.expression.unnest(), to_sql(parenthesise(node.this.copy()))
        if by.is_int and 0 <= int(by.name) < 31:
            power = 2 ** int(by.name)
            hint = f"write {left} * {power}."
            if isinstance(node, exp.BitwiseRightShift):  # rounds down; // rounds towards 0
                hint = f"write (({left} - ({left} & {power - 1})) // {power}) instead of {to_sql(node)}."
    if isinstance(node, exp.Tuple) and isinstance(node.parent, exp.Distinct):
        hint = f"write concat_ws('|', {', '.join(map(to_sql, node.expressions))})."
    what = _WORDS.get(node.key, node.key.upper())
    return privacy_error(node, f"{what} can't be used on private rows.", hint)


# -- leaves -----------------------------------------------------------------------------------------------------


PRESENCE = "presence"
"""The key in the ``meta`` of a column of which only the presence matters, in COUNT(x)."""


def _is_counted(node: exp.Expr) -> bool:
    """Return whether only the presence of a value matters: in COUNT(x) and x IS NULL."""
    _, above = above_parentheses(node)
    missing = isinstance(above, exp.Is) and isinstance(above.expression, exp.Null)
    return missing or isinstance(above, exp.Count) or bool(node.meta.get(PRESENCE))


def _column(node: exp.Column, scope: ColumnScope) -> Typed:
    if isinstance(node.this, exp.Star):
        raise privacy_error(node, "rows can't be released.", "name the columns that are needed.")
    if (parameter := row_functions.take_parameter(node)) is not None:
        return parameter
    try:
        typed = scope.column(node)
        if typed.type.kind in ("OTHER", "MAP") and _is_counted(node):
            return take_presence(typed)
        return take_value(typed, node)
    except BindError:
        inside = _field_of_column(node, scope)
        if inside is None:
            raise
        return inside


def _field_of_column(node: exp.Column, scope: ColumnScope) -> Typed | None:
    """Return field a of column s for ``s.a``, or ``t.s.a.b``, if s is no table; None if there is no such struct."""
    parts = [part for key in ("catalog", "db", "table", "this") if (part := node.args.get(key)) is not None]
    for count in (1, 2):
        if len(parts) <= count:
            break
        named = [part.copy() for part in parts[:count]]
        outer = exp.Column(this=named[-1], table=named[0] if count == 2 else None)
        try:
            typed = scope.column(outer)
        except BindError:
            continue
        if typed.type.kind != "STRUCT":
            return None
        for part in parts[count:]:
            typed = take_field(typed, part.name, node)
        return typed
    return None


def _literal(node: exp.Expr) -> Typed:
    """Bind a literal number or text in DuckDB's type; BindError for numbers that no DOUBLE holds."""
    if node.args.get("is_string"):
        return bind_text(node.name, node)
    written = node.name
    if re.fullmatch(r"[0-9]+", written):
        value = int(written)
        point = Bounds.point(value)
        if value >= 2**127:  # a DOUBLE, although DuckDB has wider integers
            near = float(value) if len(written) <= 300 else math.inf
            made = node.copy()
            made.set("this", repr(near))
            return _far_literal(made, near)
        if value >= 2**63:
            return Typed(make_cast(node.copy(), HUGEINT), HUGEINT, point, True, None, point, False)
        return Typed(node.copy(), INTEGER if value < 2**31 else BIGINT, point, True, None, point, False)
    if not re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?", written):
        raise bind_error(node, "this is not a number that SQL knows.")
    before, _, after = written.partition(".")
    if "e" not in written.lower() and len(before) + len(after) <= 38:
        width = len(before) + len(after)
        point = Bounds.point(Fraction(written + ("0" if not after else "")))
        return Typed(node.copy(), decimal(max(width, 1), len(after)), point, True, nullable=False)
    return _far_literal(node, float(written))


def _far_literal(node: exp.Expr, near: float) -> Typed:
    if not abs(near) < float("inf"):
        raise bind_error(node, "this number is too large.")
    return Typed(make_cast(node.copy(), DOUBLE), DOUBLE, Bounds.point(Fraction(near)), True, nullable=False)


def _field(node: exp.Dot | exp.StructExtract, bind: Bind) -> Typed:
    inner = require_kind(bind(node.this), ("STRUCT",), "only a struct has fields")
    called = isinstance(node, exp.StructExtract) and node.expression.is_string
    if not (called or isinstance(node.expression, exp.Identifier)) or inner.type.kind == "NULL":
        raise bind_error(node, "this is no field.", "write s.field.")
    return take_field(inner, node.expression.name, node)


def _try(node: exp.Expr, bind: Bind) -> Typed:
    """Bind TRY: NULL if DuckDB's own type would overflow."""
    inner = bind(node.this)
    return inner if inner.plain is None else convert(inner, inner.plain)


# -- logic ------------------------------------------------------------------------------------------------------


def _truth(node: exp.Expr, bind: Bind) -> Typed:
    typed = bind(node)
    if typed.type.kind not in ("BOOLEAN", "NULL"):
        hint = f"write {to_sql(node)} <> 0." if typed.type.numeric else None
        raise bind_error(node, f"a condition is needed, and this is {typed.type.sql}.", hint)
    return typed


def _connect(node: exp.Expr, bind: Bind) -> Typed:
    """Bind AND and OR; long chains become balanced trees, so that neither we nor the engine recurse deeply."""
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
        pairs = zip(level[::2], level[1::2], strict=False)
        last = level[-1:] if len(level) % 2 else []
        level = [exp.Paren(this=type(node)(this=left, expression=right)) for left, right in pairs] + last
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
    made = exp.Is(this=parenthesise(left.node), expression=node.expression.copy())
    return make_boolean(made, (left,), False)


def _in(node: exp.Expr, bind: Bind) -> Typed:
    held = node.args.get("field")
    if held is not None and not any(node.args.get(key) for key in ("query", "unnest", "expressions")):
        return row_functions.bind_membership(node.this, held, bind)
    if not node.expressions or any(node.args.get(key) for key in ("query", "unnest", "field")):
        raise privacy_error(node, "IN takes a list of values here.", "write x IN (1, 2, 3).")
    refuse_rest(node, "this", "expressions")
    return operators.bind_in(node, bind)


def _safe_divide(node: exp.Expr, bind: Bind) -> Typed:
    """Bind GoogleSQL's SAFE_DIVIDE: NULL if the divisor is zero."""
    divisor = exp.Nullif(this=exp.paren(node.expression.copy()), expression=exp.Literal.number(0))
    return bind(exp.Div(this=exp.paren(node.this.copy()), expression=divisor))


# -- choices ----------------------------------------------------------------------------------------------------


def _case(node: exp.Expr, bind: Bind) -> Typed:
    branches, otherwise = node.args["ifs"], node.args.get("default")
    tests = [_truth(branch.this, bind) for branch in branches] if node.this is None else []
    for branch in branches if node.this is not None else ():
        same = exp.EQ(this=node.this.copy(), expression=branch.this.copy())
        tests.append(operators.bind_comparison(same, bind))
    places = [branch.args["true"] for branch in branches] + ([otherwise] if otherwise is not None else [])
    values = [bind(place) for place in places]
    met = meet(values, "CASE")
    nodes = met.nodes if otherwise is not None else [*met.nodes, None]
    branches = [exp.If(this=test.node, true=value) for test, value in zip(tests, nodes, strict=False)]
    made = exp.Case(ifs=branches, default=nodes[-1])
    missing = otherwise is None or any(v.nullable for v in values)
    return _chosen(made, met, values, Bounds.around, missing, all(test.constant for test in tests))


_BoundsOf = Callable[[Sequence[tuple[Bounds | None, bool]]], Bounds]


def _chosen(
    made: exp.Expr,
    met: CommonType,
    values: list[Typed],
    bounds_of: _BoundsOf,
    missing: bool,
    constant: bool = True,
) -> Typed:
    kind, known = met.type, [value for value in values if value.type != NULL]
    bounds = reach = None
    if known and (kind.numeric or kind.kind in MOMENT_KINDS):
        bounds = bounds_of([(value.bounds, value.nullable) for value in known])
    if kind.kind == "INTEGER":
        reach = Bounds.around([(value.span, value.nullable) for value in known])
    missing = missing or not met.safe
    chosen = Typed.made_of(made, kind, values, bounds, nullable=missing, reach=reach, plain=met.plain)
    if kind.kind in ("TEXT", "LIST"):
        unchecked = any(value.unchecked for value in values)
        chosen = replace(chosen, length=max(map(length_of, values)), unchecked=unchecked)
    return replace(chosen, constant=chosen.constant and constant, order=find_common_order(values))


def _if(node: exp.Expr, bind: Bind) -> Typed:
    branch = exp.If(this=node.this.copy(), true=node.args["true"].copy())
    otherwise = node.args.get("false")
    return _case(exp.Case(ifs=[branch], default=otherwise.copy() if otherwise is not None else None), bind)


def _several(node: exp.Func, bind: Bind) -> Typed:
    name = node.sql_name().lower()
    places = [node.this, *node.expressions] if node.this is not None else list(node.expressions)
    values = [bind(place) for place in places]
    met = meet(values, name.upper())
    if name != "coalesce":
        whole = Typed(node, met.type, place=node)
        require_kind(whole, COMPARED_KINDS, f"{name} takes values with an order")
        refuse_order(values, node)
    missing = all(value.nullable for value in values)
    bounds_of = {"greatest": Bounds.greatest, "least": Bounds.least}.get(name, Bounds.around)
    return _chosen(make_call(name, *met.nodes), met, values, bounds_of, missing)


def _nullif(node: exp.Expr, bind: Bind) -> Typed:
    left, right = bind(node.this), bind(node.expression)
    met = meet((left, right), "NULLIF", compared=True)
    # As CASE, so that the value keeps its own type in every version.
    same = exp.EQ(this=parenthesise(met.nodes[0].copy()), expression=parenthesise(met.nodes[1]))
    made = exp.Case(ifs=[exp.If(this=same, true=exp.Null())], default=left.node)
    constant = left.constant and right.constant
    return replace(left, node=made, constant=constant, values=None, nullable=True)


Handler = Callable[[Any, Bind], Typed]
_JSON_PARTS = (exp.JSONExtract, exp.JSONExtractScalar)
_TABLE: tuple[tuple[Handler, str | None, tuple[type[exp.Expr], ...]], ...] = (
    (lambda node, bind: _literal(node), None, (exp.Literal,)),
    (lambda node, bind: bind_text(node.name, node), None, (exp.RawString,)),
    (lambda node, bind: Typed(node.copy(), BOOLEAN, None, True, nullable=False), None, (exp.Boolean,)),
    (lambda node, bind: Typed(exp.Null(), NULL, None, True), None, (exp.Null,)),
    (lambda node, bind: bind(node.this), None, (exp.Paren,)),
    (_try, None, (exp.Try,)),
    (_field, None, (exp.Dot, exp.StructExtract)),
    (row_functions.bind_element, "this expressions offset safe", (exp.Bracket,)),
    (row_functions.bind_list, "expressions value_constructor", (exp.Array,)),
    (row_functions.bind_lambda, "this expression", (exp.ArrayFilter, exp.Transform)),
    (row_functions.bind_comprehension, "this expression iterator condition", (exp.Comprehension,)),
    (row_functions.bind_split, "this expression", (exp.Split,)),
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
    (bind_like, "this expression negate", (exp.Like, exp.ILike, exp.Glob)),
    (bind_escape, "this expression", (exp.Escape,)),
    (
        bind_regexp,
        "this expression flag options",
        (exp.RegexpLike, exp.RegexpILike, exp.RegexpFullMatch, exp.SimilarTo),
    ),
    (bind_regexp_extract, "this expression group null_if_pos_overflow", (exp.RegexpExtract,)),
    (bind_regexp_replace, "this expression replacement modifiers single_replace", (exp.RegexpReplace,)),
    (row_functions.bind_concat_operator, "this expression safe", (exp.DPipe,)),
    (row_functions.bind_concat, "expressions safe coalesce", (exp.Concat, exp.ConcatWs)),
    (row_functions.bind_trim, "this expression position", (exp.Trim,)),
    (row_functions.bind_pad, "this expression fill_pattern is_left", (exp.Pad,)),
    (row_functions.bind_list_overlap, "this expression", (exp.ArrayOverlaps, exp.ArrayContainsAll)),
    (bind_cast, "this to safe", (exp.Cast, exp.TryCast)),
    (operators.bind_json, "this expression only_json_types scalar_only", _JSON_PARTS),
    (temporal.bind_extract, "this expression", (exp.Extract,)),
    (lambda node, bind: temporal.bind_epoch(node.this, bind), "this", (exp.TimeToUnix,)),
    (temporal.bind_truncation, "this unit input_type_preserved", (exp.TimestampTrunc, exp.DateTrunc)),
    (temporal.bind_date_diff, "this expression unit date_part_boundary", (exp.DateDiff,)),
    (temporal.bind_of_day, "this", (exp.LastDay,)),
    (temporal.bind_time_bucket, "this expression unit", (exp.DateBin,)),
    (temporal.bind_interval, None, (exp.Interval,)),
    (temporal.bind_date_add, "this expression", (exp.DateAdd,)),
    (temporal.bind_strftime, "this format", (exp.TimeToStr,)),
    (temporal.bind_make_date, "year month day", (exp.DateFromParts,)),
    (temporal.bind_make_timestamp, "year month day hour min sec", (exp.TimestampFromParts,)),
    (temporal.bind_unix_time, "this scale", (exp.UnixToTime,)),
    (temporal.bind_at_time_zone, "this zone", (exp.AtTimeZone,)),
    (temporal.bind_of_day, "this abbreviated", (exp.Dayname, exp.Monthname)),
    (row_functions.bind_rounding, "this decimals", (exp.Floor, exp.Ceil, exp.Round, exp.Trunc)),
    (row_functions.bind_sign, "this", (exp.Sign,)),
    (row_functions.bind_log, "this expression", (exp.Log,)),
    (row_functions.bind_length, "this", (exp.Length,)),
    (row_functions.bind_contains, "this expression ensure_variant check_null", (exp.ArrayContains,)),
    (row_functions.bind_sha, "this length", (exp.SHA2,)),
    (_several, "this expressions ignore_nulls is_nvl is_null", (exp.Coalesce, exp.Greatest, exp.Least)),
)
"""The handler of a node, the parts that it reads (None: it checks them itself), and the classes of such nodes."""
_HANDLERS = {kind: (handler, parts) for handler, parts, kinds in _TABLE for kind in kinds}
