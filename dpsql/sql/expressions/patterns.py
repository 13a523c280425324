"""Patterns: LIKE, GLOB, SIMILAR TO and regular expressions, with literals that are checked before anything runs.

A pattern that the engine can't read raises, inside TRY too; so each is read here first. Regular expressions are
held to what RE2 and this reader agree upon. RE2 takes time linear in the text, times the pattern's size; where all
matches are replaced, it may read the rest of the text again after each. An engine may match the wildcards of LIKE by
trying every place for each. All this is bounded for one row by :mod:`dpsql.sql.expressions.lengths`.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from sqlglot import exp

from dpsql.sql.expressions.coercion import Bind, make_boolean, refuse_rest, require_kind
from dpsql.sql.expressions.lengths import count_kept, count_written, hold, length_of, limit_steps
from dpsql.sql.expressions.types import TEXT, Typed, make_call, parenthesise
from dpsql.sql.parse.dialect import bind_error, privacy_error, to_sql

MAX_PATTERN_LENGTH = 1000
"""Characters of a pattern."""
_MOST_REPEATS = 1000
_WILD_WEIGHT = 4
_REGULAR_WEIGHT = 12
"""Nanoseconds for one character of the text and one of the pattern, as measured in the worst case."""
_REGULAR_MEMORY = 2**18
"""Characters that one regular expression's automaton stands for in memory."""
_SHORTER = "write LEFT(x, 1000) for x, a simpler pattern, or ask the owner for a max_length of the column in the policy."


def _literal(place: exp.Expr | None, what: str, node: exp.Expr) -> str:
    if isinstance(place, exp.RawString):
        place = exp.Literal.string(place.name)
    if not isinstance(place, exp.Literal) or not place.is_string:
        raise privacy_error(
            place,
            f"{what} must be a literal: one from the data could fail on some rows.",
            "give the pattern in quotes, or compare with another text, as starts_with and contains do.",
            around=node,
        )
    if len(place.name) > MAX_PATTERN_LENGTH or "\x00" in place.name:
        raise bind_error(place, f"{what} has at most {MAX_PATTERN_LENGTH} characters.")
    return str(place.name)


def _text(place: exp.Expr, bind: Bind) -> Typed:
    return require_kind(bind(place), ("TEXT",), "a pattern is matched with text", "cast it to VARCHAR.")


def bind_like(node: exp.Expr, bind: Bind) -> Typed:
    """LIKE, ILIKE and GLOB know no pattern that fails."""
    left = _text(node.this, bind)
    text = _literal(node.expression, "a pattern", node)
    star, one = ("*", "?[") if isinstance(node, exp.Glob) else ("%", "_")
    plain = not any(sign in text for sign in one)
    kind, pattern = type(node), exp.Literal.string(text)
    if isinstance(node, exp.ILike) and plain and _wildcards(text, star) > 1:
        # What the engine does for ILIKE itself, but in words for which every version takes one pass.
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
    """Wildcards that stand before something, so that there are places to try."""
    return len(re.findall(rf"{re.escape(star)}+(?!$|{re.escape(star)})", pattern))


def _tried(left: Typed, pattern: str, star: str, node: exp.Expr) -> Typed:
    """Return the text, where each wildcard is tried at every place.

    Raises:
        PrivacyError: there are too many places.
    """
    name = "ILIKE" if isinstance(node, exp.ILike) else "GLOB" if isinstance(node, exp.Glob) else "LIKE"
    places, longest = _wildcards(pattern, star), max(map(len, pattern.split(star)))
    if places > 1:
        left = hold(left)
    steps = _WILD_WEIGHT * math.comb(length_of(left) + places, places) * max(1, longest) if places else 0
    limit_steps(
        name, steps, node,
        "cut the text to 1000 characters first, match a regular expression, or use one wildcard in the middle."
        if places > 1 else _SHORTER,
    )  # fmt: skip
    return left


def bind_escape(node: exp.Expr, bind: Bind) -> Typed:
    """Bind LIKE with ESCAPE, whose pattern must not end in the escape character nor escape what needs none."""
    inner = node.this
    if type(inner) not in (exp.Like, exp.ILike):
        raise bind_error(node, "ESCAPE goes with LIKE.")
    refuse_rest(inner, "this", "expression", "negate")
    mark = _literal(node.expression, "the escape character", node)
    pattern = _literal(inner.expression, "a pattern", inner)
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
    """regexp_matches, regexp_full_match and SIMILAR TO."""
    if isinstance(node, exp.RegexpLike) and "start" not in node.meta:  # the operator, not the function
        of = f"{to_sql(node.this)}, {to_sql(node.expression)}"
        raise privacy_error(
            node,
            "~ means the whole text in one version of DuckDB and a part of it in another.",
            f"write regexp_full_match({of}), or regexp_matches({of}).",
        )
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
    """Bind regexp_replace, whose answer has a public length."""
    left = _text(node.this, bind)
    pattern = _expression(node.expression, node)
    by = _literal(node.args.get("replacement"), "what replaces a pattern", node)
    if re.fullmatch(r"(?s)(?:[^\\]|\\[0-9\\])*", by) is None or any(
        int(n) > _groups(pattern.name) for n in re.findall(r"\\([0-9])", by.replace("\\\\", ""))
    ):
        raise bind_error(node.args["replacement"], "the replacement names a group that the pattern has not.")
    extra = _flags(node.args.get("modifiers"), node, "g")
    every = any("g" in flags.name for flags in extra)
    left = _searched("regexp_replace", left, pattern.name, node)
    if every and _reads_on(pattern.name):
        limit_steps("regexp_replace with 'g'", 2 * length_of(left) ** 2, node, _SHORTER)
    length = count_written("regexp_replace", _substituted(length_of(left), by, every), node)
    made = make_call("regexp_replace", left.node, pattern, exp.Literal.string(by), *extra)
    return Typed(made, TEXT, None, left.constant, nullable=left.nullable, length=length)


def _substituted(length: int, by: str, every: bool) -> int:
    """Return the longest text: matches do not overlap, and there may be an empty one at each end of each character."""
    groups = len(re.findall(r"\\[0-9]", by.replace("\\\\", "")))
    return length * (1 + groups) + (length + 1 if every else 1) * len(by)


def _searched(name: str, left: Typed, pattern: str, node: exp.Expr) -> Typed:
    """Return the text, within its public length, where a regular expression is not too large for it.

    Raises:
        PrivacyError: it is.
    """
    left = hold(left)
    limit_steps(name, _REGULAR_WEIGHT * length_of(left) * _size(pattern), node, _SHORTER)
    count_kept("a regular expression", _REGULAR_MEMORY, node)
    return left


def _flags(place: exp.Expr | None, node: exp.Expr, more: str = "") -> list[exp.Expr]:
    if place is None:
        return []
    text = _literal(place, "flags", node)
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
    """Return the characters that a pattern stands for with its repeats written out. One of several bytes counts for five.

    Words without wildcards, classes and repeats need an automaton no larger than they are: they count once for all.
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
    """Return whether a search may look far beyond the end of the match that it finds.

    It may where a part without an end can be left out or chosen among others; else what lies beyond a match is read
    again at most once.
    """
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
    """Return a literal regular expression that RE2 is sure to read."""
    text = _literal(place, "a pattern", node)
    at = repeats = 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise bind_error(
                place,
                f"the pattern can't be read at character {at + 1}.",
                "look-around and back-references are not known; write \\( for a bracket itself.",
            )
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
    # Global flags inside are RE2's and not Python's: they say nothing about the shape.
    plain = re.sub(r"\[:\^?[a-z]+:\]", "a", re.sub(r"\(\?[ims]+\)", "", text)).replace(r"\z", r"\Z")
    try:
        re.compile(plain)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
