"""GoogleSQL's spelling of some functions and types, as DuckDB spells them: on the token stream, before anything is read.

Only what DuckDB itself could not mean is touched: ``DATE_TRUNC(day, MONTH)`` has its unit in the wrong place for DuckDB, and
``DATE_TRUNC('month', day)`` is left alone.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

Like = Callable[[Token, TokenType, str], Token]
_UNITS = {
    "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "ISOWEEK", "MONTH", "QUARTER", "YEAR", "ISOYEAR",
}  # fmt: skip
_SPELLED = {"ISOWEEK": "WEEK"}
_TRUNC = ("DATE_TRUNC", "TIMESTAMP_TRUNC", "DATETIME_TRUNC")
_DIFF = ("DATE_DIFF", "TIMESTAMP_DIFF", "DATETIME_DIFF")
_TAKEN_OFF = ("DATE_SUB", "TIMESTAMP_SUB", "DATETIME_SUB")
_ADDED = ("DATE_ADD", "TIMESTAMP_ADD", "DATETIME_ADD")
_RENAMED = {"FORMAT_DATE": "strftime", "FORMAT_TIMESTAMP": "strftime", "FORMAT_DATETIME": "strftime"}
_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_CALLS = {*_TRUNC, *_DIFF, *_TAKEN_OFF, *_ADDED, *_RENAMED, "DATE"}


def in_duckdbs_words(tokens: list[Token], like: Like) -> list[Token]:
    """The tokens with GoogleSQL's calls as DuckDB writes them; ``like`` makes a token in another's place."""
    out: list[Token] = []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        word = token.text.upper()
        called = i + 1 < len(tokens) and tokens[i + 1].token_type == TokenType.L_PAREN
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            out.append(token)
        elif word == "FLOAT64":
            out.append(like(token, TokenType.DOUBLE, "DOUBLE"))
        elif word in _CALLS and called:
            end, arguments = _arguments(tokens, i + 1)
            inner = [in_duckdbs_words(argument, like) for argument in arguments]
            out += _call(token, word, tokens[i + 1], inner, tokens[end], like)
            i = end
        else:
            out.append(token)
        i += 1
    return out


def _arguments(tokens: list[Token], opening: int) -> tuple[int, list[list[Token]]]:
    """The place of the closing parenthesis (the last token where none does), and the arguments."""
    arguments: list[list[Token]] = [[]]
    depth = 0
    for i in range(opening, len(tokens)):
        token = tokens[i]
        depth += token.token_type in _OPEN
        depth -= token.token_type in _CLOSE
        if depth == 0:
            return i, arguments
        if depth == 1 and token.token_type == TokenType.COMMA:
            arguments.append([])
        elif i > opening:
            arguments[-1].append(token)
    return len(tokens) - 1, arguments


def _call(
    name: Token, word: str, opening: Token, arguments: list[list[Token]], closing: Token, like: Like
) -> list[Token]:
    last = arguments[-1]
    unit = len(last) == 1 and last[0].token_type != TokenType.STRING and last[0].text.upper() in _UNITS
    if unit and all(arguments) and arguments[0][0].token_type != TokenType.STRING:
        place = last[0]
        named = like(place, TokenType.STRING, _SPELLED.get(place.text.upper(), place.text.upper()))
        if word in _TRUNC and len(arguments) == 2:
            return _written(
                like(name, TokenType.VAR, "DATE_TRUNC"), opening, [[named], arguments[0]], closing, like
            )
        if word in _DIFF and len(arguments) == 3:
            parts = [[named], arguments[1], arguments[0]]
            return _written(like(name, TokenType.VAR, "DATE_DIFF"), opening, parts, closing, like)
    moved = len(arguments) == 2 and all(arguments) and last[0].token_type == TokenType.INTERVAL
    if word in (*_TAKEN_OFF, *_ADDED) and moved:
        sign, text = (TokenType.DASH, "-") if word in _TAKEN_OFF else (TokenType.PLUS, "+")
        return [opening, *arguments[0], like(opening, sign, text), *last, closing]
    if word in _RENAMED:
        name = like(name, TokenType.VAR, _RENAMED[word])
    elif word == "DATE" and len(arguments) == 3:
        name = like(name, TokenType.VAR, "make_date")
    return _written(name, opening, arguments, closing, like)


def _written(
    name: Token, opening: Token, arguments: list[list[Token]], closing: Token, like: Like
) -> list[Token]:
    out = [name, opening]
    for i, argument in enumerate(arguments):
        out += [*([like(opening, TokenType.COMMA, ",")] if i else []), *argument]
    return [*out, closing] if closing.token_type in _CLOSE else out
