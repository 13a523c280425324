"""Lay out a statement in lines: each clause on its own, long lists one item a line.

Only the white space between tokens changes, so a formatted statement has the same answer, and the stored one stays free. Words,
quotes and comments are unchanged; sqlglot's own generator would rewrite all three, and knows no modes.
"""

from __future__ import annotations

from dataclasses import field

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.language.tokens import CLOSING, OPENING, find_closing, is_open, is_word, token_types, tokenize
from dpsql.late_dataclass import dataclass

WIDTH = 88
"""The length that a line may have before it is broken."""
INDENT = "    "
_CLAUSES = token_types("FROM WHERE GROUP_BY HAVING ORDER_BY LIMIT QUALIFY WINDOW UNION INTERSECT EXCEPT")
_SIDES = ("LEFT", "RIGHT", "FULL", "INNER", "CROSS", "NATURAL", "SEMI", "ANTI", "ASOF", "POSITIONAL", "OUTER")
_BEGINS = (TokenType.SELECT, TokenType.WITH, TokenType.FROM)


@dataclass
class _Level:
    """The tokens between two parentheses, or a whole statement."""

    query: bool
    """Whether clauses begin lines here."""
    indent: int
    broken: bool = False
    """Whether the items of the last clause are on lines of their own."""
    breaks: set[int] = field(default_factory=set)
    """The items that begin lines."""


def format_statements(text: str) -> str:
    """Return statements laid out in lines; ParseError if a quote or a comment does not end.

    >>> print(format_statements("select ward, count(*) as n from visits where minutes > 5 group by ward -- busy"))
    select ward, count(*) as n
    from visits
    where minutes > 5
    group by ward -- busy
    """
    tokens = tokenize(text)
    if not tokens:
        return text
    out = [text[: tokens[0].start].lstrip(" "), _write(tokens[0], text)]
    levels = [_Level(True, 0)]
    _open_items(tokens, 0, text, levels[0])
    for i in range(1, len(tokens)):
        before, token = tokens[i - 1], tokens[i]
        line = _find_line(tokens, i, text, levels)
        gap = text[before.end + 1 : token.start]
        if gap.strip():  # comments stay where they are
            comment = gap.rstrip(" ")
            out.append(comment + (INDENT * (line or 0) if comment.endswith("\n") else " "))
        elif line is not None:
            out.append("\n" + INDENT * line)
        else:
            out.append(" " if gap else "")
        out.append(_write(token, text))
    made = "".join(out) + text[tokens[-1].end + 1 :]
    return made if _same(tokens, tokenize(made)) else text


def _write(token: Token, text: str) -> str:
    return text[token.start : token.end + 1]


def _same(tokens: list[Token], others: list[Token]) -> bool:
    return [(token.token_type, token.text) for token in tokens] == [(t.token_type, t.text) for t in others]


def _find_line(tokens: list[Token], i: int, text: str, levels: list[_Level]) -> int | None:
    """Return the indentation of the line that a token begins; None if it goes on with the line before."""
    token, before, level = tokens[i], tokens[i - 1], levels[-1]
    if before.token_type in OPENING:
        query = before.token_type == TokenType.L_PAREN and token.token_type in _BEGINS
        end = find_closing(tokens, i - 1)
        apart = query and tokens[end].end - before.start > WIDTH // 2
        levels.append(_Level(query and apart, levels[-1].indent + apart))
        _open_items(tokens, i, text, levels[-1])
        return levels[-1].indent if apart else None
    if token.token_type in CLOSING and len(levels) > 1:
        left = levels.pop()
        return left.indent - 1 if left.query else None
    if before.token_type == TokenType.SEMICOLON:
        levels[:] = [_Level(True, 0)]
        _open_items(tokens, i, text, levels[0])
        return 0
    if i in level.breaks:
        return level.indent + 1
    if not level.query or not _begins_clause(tokens, i):
        return None
    _open_items(tokens, i, text, level)
    return level.indent


def _begins_clause(tokens: list[Token], i: int) -> bool:
    token, before = tokens[i], tokens[i - 1]
    if token.token_type == TokenType.FROM:
        return before.token_type != TokenType.DISTINCT or tokens[i - 2].text.upper() not in ("IS", "NOT")
    if token.token_type == TokenType.SELECT:
        return before.text.upper() not in ("EXPLAIN", "AS", "<")
    if token.token_type in _CLAUSES:
        return True
    if before.text.upper() in _SIDES or not is_word(token):
        return False
    sides = i
    while sides < len(tokens) and tokens[sides].text.upper() in _SIDES:
        sides += 1
    return sides < len(tokens) and tokens[sides].token_type == TokenType.JOIN


def _open_items(tokens: list[Token], i: int, text: str, level: _Level) -> None:
    """Find the items of the clause that begins at a token: they begin lines if the clause is longer than a line."""
    level.breaks = set()
    if not level.query:
        return
    depth, end, items = 0, i + 1, []
    start = _find_first_item(tokens, i)
    between = False
    for end in range(start, len(tokens) + 1):
        if end == len(tokens) or (depth == 0 and end > start and _ends(tokens, end)):
            break
        kind = tokens[end].token_type
        depth += (kind in OPENING) - (kind in CLOSING)
        if depth < 0:
            break
        if depth == 0 and kind == TokenType.COMMA:
            items.append(end + 1)
        elif depth == 0 and kind in (TokenType.AND, TokenType.OR):
            if not (between and kind == TokenType.AND):
                items.append(end)
            between = between and kind != TokenType.AND
        between = between or (depth == 0 and kind == TokenType.BETWEEN)
    if tokens[i].token_type == TokenType.WITH:
        return
    length = len(" ".join(text[tokens[i].start : tokens[end - 1].end + 1].split()))
    if items and length + len(INDENT) * level.indent > WIDTH:
        level.breaks = {*items, start} if tokens[i].token_type == TokenType.SELECT else set(items)


def _ends(tokens: list[Token], i: int) -> bool:
    return tokens[i].token_type == TokenType.SEMICOLON or _begins_clause(tokens, i)


def _find_first_item(tokens: list[Token], i: int) -> int:
    """Return the index behind SELECT, its mode, its options and DISTINCT."""
    at = i + 1
    kinds = [token.token_type for token in tokens[i : i + 2]]
    if kinds == [TokenType.SELECT, TokenType.WITH]:
        at += 2
        if at < len(tokens) and tokens[at].text.upper() == "OPTIONS" and is_open(tokens, at + 1):
            at = find_closing(tokens, at + 1) + 1
    if at < len(tokens) and tokens[at].token_type == TokenType.DISTINCT:
        at += 1
    return at
