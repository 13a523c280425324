"""Patterns: LIKE, GLOB, SIMILAR TO and regular expressions, with literals that are checked before anything runs.

A pattern that the engine can't read raises, inside TRY too; so each is read here first. Regular expressions are
held to what RE2 and this reader agree upon. RE2 takes time linear in the text, whatever the pattern.
"""

from __future__ import annotations

import re

from sqlglot import exp

from dpsql.errors import BindError, PrivacyError
from dpsql.sql.dialect import span_of
from dpsql.sql.expressions.meeting import Bind, atom, boolean, call, need, refuse_rest
from dpsql.sql.expressions.types import TEXT, Typed

LONGEST = 1000
"""Characters of a pattern."""
_MOST_REPEATS = 1000


def _literal(place: exp.Expr | None, what: str, node: exp.Expr) -> str:
    if isinstance(place, exp.RawString):
        place = exp.Literal.string(place.name)
    if not isinstance(place, exp.Literal) or not place.is_string:
        raise PrivacyError(
            f"{what} must be a literal: one from the data could fail on some rows.",
            span=span_of(place) or span_of(node),
            hint="write '...', or compare with =, starts_with, contains.",
        )
    if len(place.name) > LONGEST or "\x00" in place.name:
        raise BindError(f"{what} has at most {LONGEST} characters.", span=span_of(place))
    return str(place.name)


def _text(place: exp.Expr, bind: Bind) -> Typed:
    typed = bind(place)
    need(typed, place, ("TEXT",), "a pattern is matched with text", "cast it to VARCHAR.")
    return typed


def like(node: exp.Expr, bind: Bind) -> Typed:
    """LIKE, ILIKE and GLOB know no pattern that fails."""
    refuse_rest(node, "this", "expression", "negate")
    left = _text(node.this, bind)
    pattern = exp.Literal.string(_literal(node.expression, "a pattern", node))
    made: exp.Expr = type(node)(this=atom(left.node), expression=pattern)
    if node.args.get("negate"):
        made = exp.Not(this=exp.Paren(this=made))
    return boolean(made, (left,))


def escape(node: exp.Expr, bind: Bind) -> Typed:
    """With ESCAPE, a pattern may end in the escape character, or escape what needs none: both raise."""
    refuse_rest(node, "this", "expression")
    inner = node.this
    if type(inner) not in (exp.Like, exp.ILike):
        raise BindError("ESCAPE goes with LIKE.", span=span_of(node))
    refuse_rest(inner, "this", "expression", "negate")
    mark = _literal(node.expression, "the escape character", node)
    pattern = _literal(inner.expression, "a pattern", inner)
    if len(mark) != 1 or not mark.isascii() or mark in "%_":
        raise BindError(
            "the escape character is one character.", span=span_of(node.expression), hint="write ESCAPE '$'."
        )
    if (
        re.fullmatch(rf"(?s)(?:[^{re.escape(mark)}]|{re.escape(mark)}[%_{re.escape(mark)}])*", pattern)
        is None
    ):
        raise BindError(
            "the escape character stands before %, _ or itself.",
            span=span_of(inner.expression),
            hint=f"write '{mark}%'.",
        )
    left = _text(inner.this, bind)
    shape = type(inner)(this=atom(left.node), expression=exp.Literal.string(pattern))
    made: exp.Expr = exp.Escape(this=shape, expression=exp.Literal.string(mark))
    if inner.args.get("negate"):
        made = exp.Not(this=exp.Paren(this=made))
    return boolean(made, (left,))


def regular(node: exp.Expr, bind: Bind) -> Typed:
    """regexp_matches, regexp_full_match and SIMILAR TO."""
    refuse_rest(node, "this", "expression", "flag", "options")
    if isinstance(node, exp.RegexpLike) and "start" not in node.meta:  # the operator, not the function
        raise PrivacyError(
            "~ means the whole text in one version of DuckDB and a part of it in another.", span=span_of(node),
            hint="write regexp_full_match(text, '...') or regexp_matches(text, '...').",
        )  # fmt: skip
    left = _text(node.this, bind)
    pattern = _expression(node.expression, node)
    full = not isinstance(node, exp.RegexpLike)
    extra = _flags(node.args.get("flag") or node.args.get("options"), node)
    made = call("regexp_full_match" if full else "regexp_matches", left.node, pattern, *extra)
    return boolean(made, (left,))


def extract(node: exp.Expr, bind: Bind) -> Typed:
    refuse_rest(node, "this", "expression", "group", "null_if_pos_overflow")
    left = _text(node.this, bind)
    pattern = _expression(node.expression, node)
    group = node.args.get("group")
    number = (
        int(group.name)
        if isinstance(group, exp.Literal) and group.name.isdigit() and len(group.name) < 3
        else -1
    )
    if group is not None and not 0 <= number <= _groups(pattern.name):
        raise BindError(
            f"the pattern has {_groups(pattern.name)} groups.", span=span_of(group) or span_of(node)
        )
    arguments = [left.node, pattern, *([exp.Literal.number(number)] if group is not None else [])]
    return Typed(call("regexp_extract", *arguments), TEXT, None, left.constant, nullable=left.nullable)


def substitute(node: exp.Expr, bind: Bind) -> Typed:
    refuse_rest(node, "this", "expression", "replacement", "modifiers", "single_replace")
    left = _text(node.this, bind)
    pattern = _expression(node.expression, node)
    by = _literal(node.args.get("replacement"), "what replaces a pattern", node)
    if re.fullmatch(r"(?s)(?:[^\\]|\\[0-9\\])*", by) is None or any(
        int(n) > _groups(pattern.name) for n in re.findall(r"\\([0-9])", by.replace("\\\\", ""))
    ):
        raise BindError(
            "the replacement names a group that the pattern has not.", span=span_of(node.args["replacement"])
        )
    extra = _flags(node.args.get("modifiers"), node, "g")
    made = call("regexp_replace", left.node, pattern, exp.Literal.string(by), *extra)
    return Typed(made, TEXT, None, left.constant, nullable=left.nullable)


def _flags(place: exp.Expr | None, node: exp.Expr, more: str = "") -> list[exp.Expr]:
    if place is None:
        return []
    text = _literal(place, "flags", node)
    if not text or set(text) - set("cims" + more) or len(text) > 4:
        raise BindError("the flags of a regular expression are c, i, m and s.", span=span_of(place))
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


def _expression(place: exp.Expr | None, node: exp.Expr) -> exp.Expr:
    """A literal regular expression that RE2 is sure to read."""
    text = _literal(place, "a pattern", node)
    at = repeats = 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise BindError(
                f"the pattern can't be read at character {at + 1}.",
                span=span_of(place),
                hint="look-around and back-references are not known; write \\( for a bracket itself.",
            )
        for number in re.findall(r"^\{(\d+)(?:,(\d*))?\}", piece[0]):
            repeats += max(int(n or 0) for n in number)
        at = piece.end()
    if not _compiles(text):
        raise BindError("this is not a regular expression.", span=span_of(place))
    nested = re.search(r"\}[^()]*\)[*+?]*\{", text) is not None
    if repeats > _MOST_REPEATS or nested:
        raise BindError(
            "the pattern repeats too much.", span=span_of(place), hint="write * or + instead of {n}."
        )
    return exp.Literal.string(text)


def _compiles(text: str) -> bool:
    # Global flags inside are RE2's and not Python's: they say nothing about the shape.
    plain = re.sub(r"\[:\^?[a-z]+:\]", "a", re.sub(r"\(\?[ims]+\)", "", text)).replace(r"\z", r"\Z")
    try:
        re.compile(plain)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
