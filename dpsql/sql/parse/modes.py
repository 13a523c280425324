"""Moves the mode of a SELECT to its place from other spellings: ``WITH PTR SELECT ...`` and ``SELECT ... FROM t WITH PTR``.

The language has one spelling, ``SELECT WITH PTR OPTIONS (...) ...``. The others are rewritten to it before parsing,
within their own parentheses. Tokens keep their positions, so carets point at the original text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.errors import ParseError
from dpsql.sql.parse.tokens import CLOSING, OPENING, find_closing, is_open, is_word, token_error

OFFERED_MODES = ("DP", "DIFFERENTIAL_PRIVACY", "PTR", "STABLE", "SUBSAMPLE")
"""The modes mentioned in hints."""
MODES = (*OFFERED_MODES, "ANONYMIZATION")
"""The modes of SELECT WITH, in addition to declared thresholds' names; ANONYMIZATION is GoogleSQL's old name for DP."""

_SETS = {TokenType.UNION: "UNION", TokenType.INTERSECT: "INTERSECT", TokenType.EXCEPT: "EXCEPT"}
_AFTER_MODE = {
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.QUALIFY, TokenType.WINDOW,
    TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH, *_SETS, *CLOSING,
}  # fmt: skip
"""The tokens that may follow a mode after the items of its SELECT; the end of the statement is another."""
_BEFORE_QUERY = {TokenType.SELECT, TokenType.FROM, TokenType.WITH}
_OTHER_WORDS = ("ORDINALITY", "OFFSET", "TIES", "TIME", "ROLLUP", "CUBE", "TOTALS", "REPORT")
"""Words that follow WITH in SQL's own clauses."""


def find_mode(text: str) -> str:
    """Return the mode that a statement's text mentions, for a hint; DP if none.

    >>> find_mode("SELECT ptr IQR(age) FROM visits")
    'PTR'
    """
    found = re.search(rf"(?i)\b(?:SELECT|WITH)\s+({'|'.join(MODES)})\b", text)
    return found[1].upper() if found else "DP"


@dataclass
class _Level:
    """The tokens between two parentheses, or a whole statement."""

    query: bool
    """Whether it begins like a query."""
    selects: list[int] = field(default_factory=list)
    moded: set[int] = field(default_factory=set)
    """The SELECTs that already have a mode."""
    sets: str = ""
    """The set operation that joins its SELECTs."""
    clauses: list[tuple[int, int]] = field(default_factory=list)
    """The start and end of modes in other places."""


def gather_modes(tokens: list[Token]) -> list[Token]:
    """Return tokens with every mode after its SELECT; ParseError if a mode's SELECT is ambiguous, or has two."""
    levels = [_Level(True)]
    moved: dict[int, tuple[int, int]] = {}
    i = 0
    while i < len(tokens):
        token, level = tokens[i], levels[-1]
        if token.token_type in OPENING:
            levels.append(_Level(i + 1 < len(tokens) and tokens[i + 1].token_type in _BEFORE_QUERY))
        elif token.token_type in CLOSING:
            _place(tokens, levels.pop(), moved)
            levels = levels or [_Level(True)]
        elif token.token_type == TokenType.SELECT:
            level.selects.append(i)
        elif token.token_type in _SETS and tokens[max(i - 1, 0)].token_type != TokenType.STAR:
            level.sets = _SETS[token.token_type]
        elif token.token_type == TokenType.WITH and i and tokens[i - 1].token_type == TokenType.SELECT:
            level.moded.add(i - 1)
        elif token.token_type == TokenType.WITH and level.query and (end := _find_end(tokens, i, level)):
            level.clauses.append((i, end))
            i = end
            continue
        i += 1
    for level in levels:
        _place(tokens, level, moved)
    if not moved:
        return tokens
    taken = {place for start, end in moved.values() for place in range(start, end)}
    out = []
    for place, token in enumerate(tokens):
        if place not in taken:
            out.append(token)
        if place in moved:
            out += tokens[slice(*moved[place])]
    return out


def _find_end(tokens: list[Token], start: int, level: _Level) -> int:
    """Return the end of the mode that begins with a WITH; 0 if this WITH begins no mode."""
    if start + 1 >= len(tokens) or not is_word(tokens[start + 1]):
        return 0
    if tokens[start + 1].text.upper() in _OTHER_WORDS:
        return 0
    end = start + 2
    if end < len(tokens) and tokens[end].text.upper() == "OPTIONS" and is_open(tokens, end + 1):
        end = find_closing(tokens, end + 1) + 1
    after = tokens[end].token_type if end < len(tokens) else None
    inside = tokens[end + 1].token_type if is_open(tokens, end) and end + 1 < len(tokens) else None
    begins = after in _BEFORE_QUERY or inside in _BEFORE_QUERY
    ends = after is None or after in _AFTER_MODE
    return end if (begins and not level.selects) or ends else 0


def _place(tokens: list[Token], level: _Level, moved: dict[int, tuple[int, int]]) -> None:
    for start, end in level.clauses:
        name = tokens[start + 1].text
        if level.sets:
            what = f"{level.sets} joins SELECTs, and each has a mode of its own."
            raise _refuse(tokens, start, what, "put the mode behind the first word of each of them.")
        if not level.selects:
            what = f"WITH {name} stands apart from its SELECT."
            raise _refuse(
                tokens,
                start,
                what,
                "put the mode inside of the parentheses, or behind the first word of the query.",
            )
        select = level.selects[0]
        if select in level.moded:
            raise _refuse(tokens, start, "this SELECT has two modes.", "leave it out, or the other one.")
        level.moded.add(select)
        moved[select] = (start, end)


def _refuse(tokens: list[Token], start: int, what: str, hint: str) -> ParseError:
    return token_error(tokens[start], what, hint, last=tokens[start + 1])
