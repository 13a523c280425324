"""Tokens of a cell: read, checked, and translated from GoogleSQL to DuckDB.

GoogleSQL's spelling of some functions and types is translated before parsing, but only if it has no meaning in DuckDB:
``DATE_TRUNC(day, MONTH)`` has its unit in the wrong place for DuckDB, while ``DATE_TRUNC('month', day)`` is unchanged.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Container, Iterator
from itertools import pairwise

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.catalogue.date_units import DATE_UNITS
from dpsql.errors import ParseError, Span

MAX_LENGTH = 64 * 1024
MAX_DEPTH = 40
MAX_DIGITS = 400
"""The most characters of a number: doubles need 309 before the point."""
MAX_INTEGER = 2**128
"""The least integer too large for SQL's fixed-size types."""
MAX_PIVOT_COLUMNS = 1_000
"""The most combinations of values in one PIVOT's lists, from which parsing makes its columns."""
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
"""A lone surrogate, which Python allows but no encoding does."""


def token_types(names: str) -> frozenset[TokenType]:
    """Return sqlglot's kinds of tokens of these names."""
    return frozenset(TokenType[name] for name in names.split())


OPENING = token_types("L_PAREN L_BRACKET L_BRACE")
CLOSING = token_types("R_PAREN R_BRACKET R_BRACE")
# Tokens that may precede a colon that is meant as a parameter's prefix (`WHERE city = :city`).
_BEFORE_OPERAND = token_types(
    "EQ NEQ LT LTE GT GTE L_PAREN COMMA PLUS DASH STAR SLASH AND OR BETWEEN LIKE LIMIT FARROW"
)
# The opening and closing delimiters of text that is not read as words.
_PAIRS = (("'", "'"), ('"', '"'), ("--", "\n"), ("/*", "*/"), ("$$", "$$"), ("`", "`"))
_PARAMETER = re.compile(
    r"""\b[eE]'(?:\\.|''|[^'\\])*'|'(?:''|[^'])*'|"(?:""|[^"])*"|--[^\n]*|/\*.*?\*/|(\$(?:[^\W\d]\w*)?\$).*?\1|(?<!\w)(?P<sign>\$)\w""",
    re.DOTALL,
)
"""The texts that may contain a dollar sign outside a parameter, or a parameter's."""
_STAND_IN = "\\"
"""Replaces a parameter's dollar sign, and is always a separate token."""
_RESERVED = """
    ALL ANALYSE ANALYZE AND ANY ARRAY AS ASC ASYMMETRIC BOTH CASE CAST CHECK COLLATE COLUMN CONSTRAINT CREATE DEFAULT
    DEFERRABLE DESC DESCRIBE DISTINCT DO ELSE END EXCEPT FALSE FETCH FOR FOREIGN FROM GROUP HAVING IN INITIALLY INTERSECT INTO
    LAMBDA LATERAL LEADING LIMIT NOT NULL OFFSET ON ONLY OR ORDER PIVOT PIVOT_LONGER PIVOT_WIDER PLACING PRIMARY QUALIFY
    REFERENCES RETURNING SELECT SHOW SOME SUMMARIZE SYMMETRIC TABLE THEN TO TRAILING TRUE UNION UNIQUE UNPIVOT USING VARIADIC
    WHEN WHERE WINDOW WITH"""
RESERVED_WORDS = frozenset(_RESERVED.split())
"""DuckDB's reserved words, which must be quoted as names, except after AS."""
_CLAUSES = token_types("GROUP_BY ORDER_BY WHERE HAVING")
_UNFINISHED = token_types("LIMIT OFFSET FETCH JOIN UNION INTERSECT EXCEPT QUALIFY WINDOW AND OR")
"""Further words that need a continuation, unless they are a name after AS or a point."""
_AS_NAMES = (TokenType.ALIAS, TokenType.DOT, TokenType.WITH)
_ENDS = (TokenType.R_PAREN, TokenType.SEMICOLON)
_TEMPLATE = re.compile(r"\{\{\s*(\w+).*\}\}", re.DOTALL)
_WRITES = {"INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "CREATE", "DROP", "ALTER"}
_DUCKDB = DuckDB()


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a cell.

    Raises:
        ParseError: text too long or too deeply nested, a character or string that does not end, a template.
    """
    if len(text) > MAX_LENGTH:
        raise ParseError(f"the statement is longer than {MAX_LENGTH} characters.", hint="split the cell.")
    if (half := HALF_CHARACTER.search(text)) is not None:
        what = "this is half of a character, which no text has."
        raise ParseError(what, span=half.span(), hint="leave it out.")
    tokens = None
    with contextlib.suppress(TokenError):
        plain = _double_quoted(text)
        tokens = _whole(blank(plain)) if plain is not None else None
    if tokens is None:
        raise _refuse_unfinished(text, _find_unfinished(text))
    _check(tokens, text)
    return tokens


_APART = re.compile(
    r"""\b[eE]'(?:\\.|''|[^'\\])*'|'(?:''|[^'])*'|"(?:""|[^"])*"|(\$(?:[^\W\d]\w*)?\$).*?\1
    |--[^\n]*|/\*|(?P<space>[\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]|\A\ufeff)
    |(?P<quote>[\u2018-\u201f\u00b4])|(?P<hidden>[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff])""",
    re.DOTALL | re.VERBOSE,
)
"""Quoted texts; comments; and the characters that look like a space, a quote or nothing."""
_COMMENT_ENDS = re.compile(r"/\*|\*/")


def blank(text: str) -> str:
    """Return a text of equal length with spaces in place of comments, of a leading byte order mark and of other spaces.

    Raises:
        ParseError: an invisible character or a curly quote stands outside of quotes.
    """
    if text.isascii() and "--" not in text and "/*" not in text:
        return text
    out, at = [], 0
    while (found := _APART.search(text, at)) is not None:
        start, end = found.span()
        if found["quote"] is not None:
            sign = '"' if found["quote"] in "\u201c\u201d\u201e\u201f" else "'"
            what = f"{found['quote']} is a typographic quote, which SQL doesn't read."
            raise ParseError(what, span=(start, end), hint=f"write {sign}.")
        if found["hidden"] is not None:
            named = unicodedata.name(found["hidden"], "a character without a name").lower()
            what = f"there is an invisible character here: {named} (U+{ord(found['hidden']):04X})."
            raise ParseError(what, span=(start, end), hint="delete it; inside of quotes it may stand.")
        if found[0] == "/*":
            depth = 1
            while depth and (mark := _COMMENT_ENDS.search(text, end)) is not None:
                depth, end = depth + (1 if mark[0] == "/*" else -1), mark.end()
            if depth:
                raise _refuse_unfinished(text, (start, start + 2))
        gone = found["space"] is not None or found[0].startswith(("--", "/*"))
        out += [text[at:start], re.sub(r"[^\n]", " ", text[start:end]) if gone else text[start:end]]
        at = end
    return "".join([*out, text[at:]])


def _find_stretches(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield each quote and comment: its opening delimiter, its start, and the start of its end (-1 if it has none)."""
    at = 0
    while at < len(text):
        found = next((pair for pair in _PAIRS if text.startswith(pair[0], at)), None)
        if found is None:
            at += 1
            continue
        end = text.find(found[1], at + len(found[0]))
        yield found[0], at, end
        at = len(text) if end < 0 else end + len(found[1])


def _double_quoted(text: str) -> str | None:
    """Return the text with GoogleSQL's `names` as "names"; None if one does not end."""
    if "`" not in text:
        return text
    out = list(text)
    for sign, start, end in _find_stretches(text):
        if sign == "`":
            if end < 0 or '"' in text[start:end]:
                return None
            out[start] = out[end] = '"'
    return "".join(out)


def _find_unfinished(text: str) -> Span | None:
    open_ = ((at, at + len(sign)) for sign, at, end in _find_stretches(text) if end < 0 and sign != "--")
    return next(open_, None)


def _refuse_unfinished(text: str, span: Span | None) -> ParseError:
    """Return the refusal of a quote or a comment without an end, with the sign that ends it."""
    sign = "" if span is None else text[slice(*span)]
    named = {"'": "a quote", '"': "a double quote", "`": "a backquote"}.get(sign)
    hint = f"end it with {named}; within it, write two for one." if named else None
    if sign == "/*":
        hint = "end it with a star and a slash, once for each comment that is open."
    return ParseError("a quote or a comment does not end.", span=span, hint=hint)


def _whole(text: str) -> list[Token]:
    """Return the tokens, including those after a word like EXPLAIN, which sqlglot returns as one string."""
    tokens = _read_tokens(text)
    for i, token in enumerate(tokens):
        if token.token_type == TokenType.HEREDOC_STRING:
            tokens[i] = replace_token(token, TokenType.STRING, token.text)
        if token.token_type == TokenType.BYTE_STRING:
            tokens[i] = _read_escapes(token, text)
        if token.token_type == TokenType.COMMAND and i + 1 < len(tokens):
            rest = " " * (token.end + 1) + text[token.end + 1 :]
            return [*tokens[:i], replace_token(token, TokenType.VAR, token.text), *_whole(rest)]
    return tokens


_ESCAPED = re.compile(
    r"\\(?:(?P<control>[bfnrt])|x(?P<byte>[0-9A-Fa-f]{1,2})|(?P<octal>[0-7]{1,3})"
    r"|u(?P<short>[0-9A-Fa-f]{4})|U(?P<long>[0-9A-Fa-f]{8})|(?P<plain>.))|''",
    re.DOTALL,
)
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _read_escapes(token: Token, text: str) -> Token:
    """Return the token of a text with escapes, ``E'it''s'``; ParseError for characters by number, read in two ways."""
    coded: list[str] = []

    def read(found: re.Match[str]) -> str:
        if found["control"] or found["plain"] or found[0] == "''":
            return _CONTROLS[found["control"]] if found["control"] else found["plain"] or "'"
        coded.append(found[0])
        if found["short"] or found["long"]:
            code = int(found["short"] or found["long"], 16)
            return chr(code) if code < 0x110000 else "\x00"
        code = int(found["byte"], 16) if found["byte"] else int(found["octal"], 8)
        return chr(code) if code < 128 else "\x00"

    value = _ESCAPED.sub(read, text[token.start + 2 : token.end])
    if coded:
        hint = "put the character itself in its place."
        if value.isprintable():
            hint = "write '{}'.".format(value.replace("'", "''"))
        raise token_error(token, f"DuckDB's versions read {coded[0]} differently.", hint)
    return replace_token(token, TokenType.STRING, value)


def _read_tokens(text: str) -> list[Token]:
    """Return sqlglot's tokens, with ``$a,$`` of ``f($a,$b)`` no string; TokenError for an unfinished quote or comment."""
    few = text.count("$") < 2
    signs = set() if few else {found.start("sign") for found in _PARAMETER.finditer(text) if found["sign"]}
    if len(signs) < 2:
        return list(_DUCKDB.tokenize(text))
    tokens = _DUCKDB.tokenize("".join(_STAND_IN if at in signs else sign for at, sign in enumerate(text)))
    # The text after a COMMAND is read again separately.
    end = next((token.end for token in tokens if token.token_type == TokenType.COMMAND), len(text))
    if not {at for at in signs if at < end} <= {token.start for token in tokens}:
        return list(_DUCKDB.tokenize(text))  # one is inside a string
    return [
        replace_token(token, TokenType.PARAMETER, "$") if token.start in signs else token for token in tokens
    ]


def _check_pivot(tokens: list[Token], start: int) -> None:
    """Raise ParseError if the values in a PIVOT's lists have too many combinations, which the parser would expand."""
    end, columns = find_closing(tokens, start), 1
    for i in range(start + 1, end):
        if tokens[i].token_type == TokenType.IN and is_open(tokens, i + 1):
            columns *= max(1, len(split_arguments(tokens[i + 2 : find_closing(tokens, i + 1)])))
    if columns > MAX_PIVOT_COLUMNS:
        what = f"this PIVOT would make {columns:,} columns; the limit is {MAX_PIVOT_COLUMNS:,}."
        hint = "list fewer values, or GROUP BY the columns."
        raise token_error(tokens[start], what, hint, last=tokens[end])


def _check(tokens: list[Token], text: str) -> None:
    depth = 0
    for i, token in enumerate(tokens):
        before = tokens[i - 1] if i else None
        after = tokens[i + 1] if i + 1 < len(tokens) else None
        if token.token_type == TokenType.NUMBER:
            _check_number(token)
        if token.token_type in OPENING:
            if before is not None and before.text.upper() == "PIVOT" and is_open(tokens, i):
                _check_pivot(tokens, i)
            depth += 1
            if depth > MAX_DEPTH:
                raise token_error(token, "the statement is nested too deeply.")
        elif token.token_type in CLOSING:
            depth -= 1
        if token.token_type == TokenType.L_BRACE and after and after.token_type == TokenType.L_BRACE:
            name = tokens[i + 2].text if i + 2 < len(tokens) else "x"
            raise _template(name, (token.start, _template_end(tokens, i, text)), before)
        ends = i + 2 < len(tokens) and tokens[i + 2].token_type == TokenType.R_BRACE
        if token.token_type == TokenType.L_BRACE and ends and after and is_word(after):  # no struct's {a: 1}
            start = token.start - (text[token.start - 1 : token.start] in ("$", "#"))
            raise _template(after.text, (start, tokens[i + 2].end + 1), before)
        template = _TEMPLATE.search(token.text) if token.token_type == TokenType.STRING else None
        if template is not None:
            raise _template(template[1], token_span(token), before)
        is_name = before is not None and before.token_type in _AS_NAMES
        unfinished = token.token_type in _CLAUSES or (token.token_type in _UNFINISHED and not is_name)
        if unfinished and (after is None or after.token_type in _ENDS):
            raise token_error(token, f"nothing follows {token.text.upper()}.", "finish it, or leave it out.")
        _refuse_writing(token, before, after)
        if token.token_type == TokenType.PLACEHOLDER:
            raise token_error(token, "a ? mark has no value.", "give a list of values, or write $name.")
        prefix = before is None or before.token_type in _BEFORE_OPERAND
        joined = after is not None and after.start == token.end + 1
        if token.token_type == TokenType.MOD and prefix and after is not None and joined:
            named = tokens[i + 2].text if is_open(tokens, i + 1) and tokens[i + 2 :] else "name"
            end = find_closing(tokens, i + 1)
            last = tokens[end] if named != "name" else after
            if named != "name" and tokens[end + 1 :] and tokens[end + 1].start == last.end + 1:
                last = tokens[end + 1]  # the s of %(name)s
            written = text[token.start : last.end + 1]
            raise token_error(token, f"{written} is not a parameter here.", f"write ${named}.", last=last)
        if token.token_type == TokenType.COLON and prefix and after is not None and joined:
            what = f":{after.text} is not a parameter here."
            raise token_error(token, what, f"write ${after.text}.", last=after)


def _check_number(token: Token) -> None:
    if len(token.text) > MAX_DIGITS:
        what = f"this number has {len(token.text):,} characters; the limit is {MAX_DIGITS}."
        raise token_error(token, what, "leave digits out.")


def _template(name: str, span: Span, before: Token | None) -> ParseError:
    hint = f"write ${name} and the notebook's variable {name} is bound as a value."
    if before is not None and before.token_type in (TokenType.FROM, TokenType.JOIN):
        hint = f"write the table's name: a parameter, ${name}, is a value and never a name."
    what = "templates are not filled in: they would change the statement after it was priced."
    return ParseError(what, span=span, hint=hint)


def _refuse_writing(token: Token, before: Token | None, after: Token | None) -> None:
    """Refuse the parts of a query that write: INTO, FOR UPDATE, and a CTE that is no query."""
    word, next_word = token.text.upper(), after.text.upper() if after is not None else ""
    if token.token_type == TokenType.INTO and not (after is not None and next_word == "NAME"):
        hint = "a name and << before a query keep its answer in the notebook."
        raise token_error(token, "an answer is not written into a table.", hint)
    if after is not None and token.token_type == TokenType.FOR and next_word in ("UPDATE", "SHARE"):
        message = f"FOR {next_word} locks rows, and nothing is written here."
        raise token_error(token, message, "leave it out.", last=after)
    opens_cte = before is not None and before.token_type == TokenType.L_PAREN
    if opens_cte and word in _WRITES and after is not None and is_word(after):
        hint = "dpsql only answers questions: write a query."
        raise token_error(token, f"{word} is not a statement of dpsql.", hint)


def _template_end(tokens: list[Token], start: int, text: str) -> int:
    for token, after in zip(tokens[start:], tokens[start + 1 :], strict=False):
        if token.token_type == after.token_type == TokenType.R_BRACE:
            return after.end + 1
    return min(len(text), tokens[start].end + 2)


def token_span(token: Token) -> Span:
    """Return a token's span in the cell."""
    return (token.start, token.end + 1)


def token_error(token: Token, message: str, hint: str | None = None, last: Token | None = None) -> ParseError:
    """Return a ParseError that points at a token, or from it to a last one."""
    return ParseError(message, span=(token.start, (last or token).end + 1), hint=hint)


def replace_token(token: Token, token_type: TokenType, text: str) -> Token:
    """Return a token with another's position."""
    place = {"line": token.line, "col": token.col, "start": token.start, "end": token.end}
    return Token(token_type, text, **place, comments=[])


def find_closing(tokens: list[Token], opening: int) -> int:
    """Return the index of the parenthesis that closes the one at ``opening`` (the last token if none does)."""
    depth = 0
    for i in range(opening, len(tokens)):
        depth += tokens[i].token_type in OPENING
        depth -= tokens[i].token_type in CLOSING
        if depth == 0:
            return i
    return len(tokens) - 1


def is_word(token: Token) -> bool:
    """Return whether a token is a word, in any script."""
    return is_name(token.text) and not token.text[0].isdigit()


def is_name(text: str) -> bool:
    """Return whether a text has letters, digits, their marks and _ alone, so that it needs no quotes as a name.

    >>> is_name("नाम"), is_name("a b"), is_name("")
    (True, False, False)
    """
    if text.isascii():
        return text.replace("_", "a").isalnum()
    return all(sign == "_" or sign in _JOINERS or unicodedata.category(sign)[0] in "LMN" for sign in text)


_JOINERS = "\u200c\u200d"
"""Invisible characters that are a part of words in some scripts."""


def is_open(tokens: list[Token], i: int) -> bool:
    """Return whether there is an opening parenthesis at an index."""
    return i < len(tokens) and tokens[i].token_type == TokenType.L_PAREN


# -- GoogleSQL --------------------------------------------------------------------------------------------------

_SPELLED = {"ISOWEEK": "WEEK"}
_UNITS = {*(unit.name for unit in DATE_UNITS if unit.google), *_SPELLED}
_TRUNC = ("DATE_TRUNC", "TIMESTAMP_TRUNC", "DATETIME_TRUNC")
_DIFF = ("DATE_DIFF", "TIMESTAMP_DIFF", "DATETIME_DIFF")
_TAKEN_OFF = ("DATE_SUB", "TIMESTAMP_SUB", "DATETIME_SUB")
_ADDED = ("DATE_ADD", "TIMESTAMP_ADD", "DATETIME_ADD")
_RENAMED = {"FORMAT_DATE": "strftime", "FORMAT_TIMESTAMP": "strftime", "FORMAT_DATETIME": "strftime"}
_CALLS = {"DATETRUNC", *_TRUNC, *_DIFF, *_TAKEN_OFF, *_ADDED, *_RENAMED, "DATE"}


def translate_googlesql(tokens: list[Token]) -> list[Token]:
    """Return the tokens with GoogleSQL's calls in DuckDB's form."""
    out: list[Token] = []
    i = 0
    while i < len(tokens):
        token = tokens[i]
        word = token.text.upper()
        called = i + 1 < len(tokens) and tokens[i + 1].token_type == TokenType.L_PAREN
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            out.append(token)
        elif word == "FLOAT64":
            out.append(replace_token(token, TokenType.DOUBLE, "DOUBLE"))
        elif word in _CALLS and called:
            end = find_closing(tokens, i + 1)
            closed = tokens[end].token_type in CLOSING
            arguments = split_arguments(tokens[i + 2 : end if closed else end + 1])
            inner = [translate_googlesql(argument) for argument in arguments]
            out += _call(token, word, tokens[i + 1], inner, tokens[end])
            i = end
        else:
            out.append(token)
        i += 1
    return out


_BEFORE_NAME = _BEFORE_OPERAND | token_types(
    "SELECT DISTINCT ALL WHERE HAVING QUALIFY ON NOT CASE WHEN THEN ELSE GROUP_BY ORDER_BY PARTITION_BY DOT DPIPE DIV MOD "
    "CARET L_BRACKET"
)
"""The tokens before a name, rather than a clause of a call."""


def translate_clauses(tokens: list[Token], clamped_per_group: Container[str]) -> list[Token]:
    """Return the tokens with CLAMPED BETWEEN and WITH REPORT inside a call as named arguments; ParseError for bounds
    without AND.

    ``clamped_per_group`` are the aggregates for which a unit's own aggregate is clamped, not a row's value.
    """
    out: list[Token] = []
    called: list[str] = []
    i = 0
    while i < len(tokens):
        token, words = tokens[i], [after.text.upper() for after in tokens[i : i + 2]]
        if token.token_type in CLOSING:
            del called[-1:]
        operand = i > 1 and (  # otherwise CLAMPED and REPORT are names, of a column and of a CTE
            tokens[i - 1].token_type not in _BEFORE_NAME
            or (tokens[i - 1].token_type, tokens[i - 2].token_type) == (TokenType.STAR, TokenType.L_PAREN)
        )
        if called and operand and words == ["CLAMPED", "BETWEEN"]:
            end = _end_of_clause(tokens, i + 2)
            per = "group" if called[-1] in clamped_per_group else "row"
            bounds = tokens[i + 2 : end]
            middle = next((j for j, t in outer_tokens(bounds) if t.token_type == TokenType.AND), 0)
            if not 0 < middle < len(bounds) - 1:
                last = bounds[-1] if bounds else tokens[i + 1]
                hint = "write CLAMPED BETWEEN 0 AND 100."
                raise token_error(token, "CLAMPED BETWEEN needs two bounds.", hint, last)
            comma = replace_token(token, TokenType.COMMA, ",")
            value = _enclose([*bounds[:middle], comma, *bounds[middle + 1 :]], token)
            out += [*_named_argument(token, f"contribution_bounds_per_{per}"), *value]
            i = end
        elif called and operand and words == ["WITH", "REPORT"]:
            end = find_closing(tokens, i + 2) + 1 if is_open(tokens, i + 2) else i + 2
            forms = (tokens[j + 2] for j in range(i, end - 2) if tokens[j].text.upper() == "FORMAT")
            asked = next(forms, None)
            form = replace_token(asked or token, TokenType.STRING, "JSON" if asked is None else asked.text)
            out += [*_named_argument(token, "report_format"), form]
            i = end
        else:
            if token.token_type in OPENING:
                called.append(tokens[i - 1].text.upper() if i and is_word(tokens[i - 1]) else "")
            out.append(token)
            i += 1
    return out


def translate_paths(tokens: list[Token], functions: Container[str]) -> list[Token]:
    """Write keys of JSON that sqlglot would read as paths, such as ``j ->> 'a.b'``, as ``'$."a.b"'``, also in ``functions``."""
    out = list(tokens)
    for i, token in enumerate(tokens):
        if token.token_type in (TokenType.ARROW, TokenType.DARROW):
            place = i + 1
        elif token.text.lower() in functions and is_open(tokens, i + 1):
            first = split_arguments(tokens[i + 2 : find_closing(tokens, i + 1)])[0]
            place = i + 3 + len(first)
        else:
            continue
        key = tokens[place] if place < len(tokens) else token
        if key.token_type != TokenType.STRING or key.text[:1] in ("$", "/") or is_name(key.text):
            continue
        if token.token_type == TokenType.ARROW and i > 1 and tokens[i - 2].token_type == TokenType.COMMA:
            what = "-> may be a lambda or a part of JSON here."
            raise token_error(token, what, "write json_extract or lambda.")
        out[place] = replace_token(key, TokenType.STRING, f'$."{key.text}"')
    return out


def _end_of_clause(tokens: list[Token], start: int) -> int:
    """Return the end of a clause inside a call: WITH REPORT, a comma, or the closing parenthesis."""
    depth = 0
    for i in range(start, len(tokens)):
        depth += tokens[i].token_type in OPENING
        depth -= tokens[i].token_type in CLOSING
        if depth < 0 or (depth == 0 and tokens[i].token_type in (TokenType.WITH, TokenType.COMMA)):
            return i
    return len(tokens)


def _named_argument(place: Token, name: str) -> list[Token]:
    kinds = ((TokenType.COMMA, ","), (TokenType.VAR, name), (TokenType.FARROW, "=>"))
    return [replace_token(place, kind, text) for kind, text in kinds]


def outer_tokens(tokens: list[Token]) -> Iterator[tuple[int, Token]]:
    """Yield the tokens outside parentheses, with their indices."""
    depth = 0
    for i, token in enumerate(tokens):
        depth += token.token_type in OPENING
        depth -= token.token_type in CLOSING
        if depth == 0:
            yield i, token


def split_arguments(tokens: list[Token]) -> list[list[Token]]:
    """Return the tokens between the commas of a list; there is at least one argument, possibly empty."""
    commas = [i for i, token in outer_tokens(tokens) if token.token_type == TokenType.COMMA]
    return [tokens[start + 1 : end] for start, end in pairwise((-1, *commas, len(tokens)))]


def _call(
    name: Token, word: str, opening: Token, arguments: list[list[Token]], closing: Token
) -> list[Token]:
    last = arguments[-1]
    unit = len(last) == 1 and last[0].token_type != TokenType.STRING and last[0].text.upper() in _UNITS
    if unit and all(arguments) and arguments[0][0].token_type != TokenType.STRING:
        place = last[0]
        named = replace_token(place, TokenType.STRING, _SPELLED.get(place.text.upper(), place.text.upper()))
        if (word in _TRUNC and len(arguments) == 2) or (word in _DIFF and len(arguments) == 3):
            name = replace_token(name, TokenType.VAR, "DATE_TRUNC" if word in _TRUNC else "DATE_DIFF")
            return _written(name, opening, [[named], *reversed(arguments[:-1])], closing)
    if word in ("DATE_TRUNC", "DATETRUNC") and len(arguments) == 3 and all(arguments):
        # date_trunc('day', ts, 'Europe/Berlin'), whose zone sqlglot would drop
        zone = [replace_token(last[0], TokenType.VAR, part) for part in ("AT", "TIME", "ZONE")]
        return _written(
            name, opening, [arguments[0], [*_enclose(arguments[1], opening), *zone, *last]], closing
        )
    moved = len(arguments) == 2 and all(arguments) and last[0].token_type == TokenType.INTERVAL
    if word in (*_TAKEN_OFF, *_ADDED) and moved:
        sign, text = (TokenType.DASH, "-") if word in _TAKEN_OFF else (TokenType.PLUS, "+")
        return [opening, *arguments[0], replace_token(opening, sign, text), *last, closing]
    if word in _RENAMED:
        name = replace_token(name, TokenType.VAR, _RENAMED[word])
    elif word == "DATE" and len(arguments) == 3:
        name = replace_token(name, TokenType.VAR, "make_date")
    return _written(name, opening, arguments, closing)


def _enclose(tokens: list[Token], place: Token) -> list[Token]:
    """Return tokens in parentheses, at the place of another token."""
    signs = ((TokenType.L_PAREN, "("), (TokenType.R_PAREN, ")"))
    opening, closing = (replace_token(place, kind, text) for kind, text in signs)
    return [opening, *tokens, closing]


def _written(name: Token, opening: Token, arguments: list[list[Token]], closing: Token) -> list[Token]:
    out = [name, opening]
    for i, argument in enumerate(arguments):
        out += [*([replace_token(opening, TokenType.COMMA, ",")] if i else []), *argument]
    return [*out, closing] if closing.token_type in CLOSING else out


def read_limit(tokens: list[Token], at: int) -> int | None:
    """Parse ``LIMIT n`` at an index of a statement that is no query; None if absent, ParseError if no integer follows."""
    if len(tokens) <= at or tokens[at].text.upper() != "LIMIT":
        return None
    number = tokens[min(at + 1, len(tokens) - 1)]
    if not (number.text.isascii() and number.text.isdigit()):
        raise token_error(number, "LIMIT takes a whole number.", "write SHOW LEDGER LIMIT 20.")
    return min(int(number.text[:10]), 2**31)
