"""Hints for texts that can't be parsed, and for functions with other names in other systems.

After a failed parse, the text is checked for a misspelt keyword, a clause of another system, or a parameter in another
library's style. No guess becomes an answer: the refusal says what to write.

Moves the mode of a SELECT to its place from other spellings: ``WITH PTR SELECT ...`` and ``SELECT ... FROM t WITH PTR``.

The language has one spelling, ``SELECT WITH PTR OPTIONS (...) ...``. The others are rewritten to it before parsing,
within their own parentheses. Tokens keep their positions, so carets point at the original text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import field

from sqlglot.errors import ParseError as SqlglotParseError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.catalogue.aggregate_names import ALIASES, MECHANISMS, MODES, WORDS
from dpsql.catalogue.option_names import OPTION_NAMES
from dpsql.errors import ParseError, Span, clip
from dpsql.language.tokens import CLOSING, OPENING, find_closing, is_open, is_word, token_error, token_types
from dpsql.late_dataclass import dataclass

_SETS = {TokenType.UNION: "UNION", TokenType.INTERSECT: "INTERSECT", TokenType.EXCEPT: "EXCEPT"}
_AFTER_MODE = token_types("FROM WHERE GROUP_BY HAVING QUALIFY WINDOW ORDER_BY LIMIT OFFSET FETCH") | {
    *_SETS,
    *CLOSING,
}
"""The tokens that may follow a mode after the items of its SELECT; the end of the statement is another."""
_BEFORE_QUERY = token_types("SELECT FROM WITH")
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
            hint = "put the mode inside of the parentheses, or behind the first word of the query."
            raise _refuse(tokens, start, what, hint)
        select = level.selects[0]
        if select in level.moded:
            raise _refuse(tokens, start, "this SELECT has two modes.", "leave it out, or the other one.")
        level.moded.add(select)
        moved[select] = (start, end)


def _refuse(tokens: list[Token], start: int, what: str, hint: str) -> ParseError:
    return token_error(tokens[start], what, hint, last=tokens[start + 1])


LATERAL_HINT = "unnest the list in FROM, behind the table and a comma, with a name for its items."

# -- functions of other systems ---------------------------------------------------------------------------------

_TODAY = "write CURRENT_DATE, or now()."
_BY_FORMAT = "write TRY_STRPTIME({x}, '%Y-%m-%d') for a format, or TRY_CAST({x} AS DATE)."
_TO_TEXT = "write STRFTIME({x}, '%Y-%m')."
_NUMBER = "write TRY_CAST({x} AS DOUBLE), with bounds."
_QUANTILE = "write QUANTILE_CONT({x}, 0.9)."
_DISTINCT = "write COUNT(DISTINCT {x})."
_LOOP = "write the aggregate of all rows, and the condition in a FILTER clause behind it."
_LATER = "add an interval to the date by a plus sign."
_MATCH = "write REGEXP_MATCHES({x}, 'pattern')."

OTHER_NAMES: dict[str, str] = {
    **dict.fromkeys(
        ("var", "variance_samp", "varp", "var_s", "var_p"), "write VARIANCE({x}), or VAR_POP({x})."
    ),
    **dict.fromkeys(
        ("std", "stdevp", "stddevp", "stdev_samp", "stdev_pop"), "write STDDEV({x}), or STDDEV_POP({x})."
    ),
    **dict.fromkeys(("average",), "write AVG({x})."),
    **dict.fromkeys(
        ("percentile", "approx_percentile", "percentile_approx", "quantile_exact", "median_exact"), _QUANTILE
    ),
    **dict.fromkeys(("approx_median", "medianexact"), "write MEDIAN({x})."),
    **dict.fromkeys(
        ("count_distinct", "countd", "uniq", "uniqexact", "approx_distinct", "ndv", "hll_count"), _DISTINCT
    ),
    **dict.fromkeys(("sumif", "sum_if", "averageif", "avg_if", "avgif"), _LOOP),
    "isnull": "write COALESCE({x}, 0), or {x} IS NULL.",
    "zeroifnull": "write COALESCE({x}, 0).",
    "nullifzero": "write NULLIF({x}, 0).",
    "nvl2": "choose between the two by a condition, {x} IS NOT NULL.",
    "choose": "choose among them by comparing {x} with 1, 2 and so on.",
    **dict.fromkeys(("getdate", "sysdate", "sysdatetime", "getutcdate", "curdate", "systimestamp"), _TODAY),
    **dict.fromkeys(("str_to_date", "parse_date", "parse_timestamp"), _BY_FORMAT),
    **dict.fromkeys(("date_format", "format_datetime", "to_varchar"), _TO_TEXT),
    **dict.fromkeys(("to_number", "to_numeric", "to_decimal", "to_double", "try_to_number", "val"), _NUMBER),
    **dict.fromkeys(("dateadd", "adddate", "add_days", "timestampadd"), _LATER),
    "add_months": _LATER,
    "timestampdiff": "count days or other parts by date_diff.",
    "months_between": "count months by date_diff.",
    "datename": "write DAYNAME({x}), or MONTHNAME({x}).",
    "substring_index": "write SPLIT_PART({x}, ',', 1).",
    **dict.fromkeys(("rlike", "regexp", "regexp_contains", "regexp_instr"), _MATCH),
    "array_overlaps": "&& compares lists: write AND instead of &&.",
    "wm_concat": "group by its values, and count the rows of each.",
}
"""Other systems' function names, each with DuckDB's equivalent."""


def advise_on_function(name: str, write: Callable[[], str]) -> tuple[str, str] | None:
    """Return the refusal and the hint for another system's function, whose argument ``write`` returns; None for others."""
    hint = OTHER_NAMES.get(name.lower())
    return None if hint is None else (f"{name.upper()} is not a function here.", hint.format(x=write()))


def advise_on_mechanism(name: str) -> tuple[str, str] | None:
    """Return the refusal and the meant mechanism for a misspelt one; None for any other name."""
    near = difflib.get_close_matches(name.upper(), sorted(MECHANISMS), n=1, cutoff=0.8)
    return (f"{name.upper()} is not a function here.", f"did you mean {near[0]}?") if near else None


def advise_on_sign(text: str, span: Span) -> str | None:
    """Return the hint for ``@name``, which is an absolute value in DuckDB, in a refused text."""
    word = text[slice(*span)]
    if text[max(0, span[0] - 1) : span[0]] != "@" or not word.isidentifier():
        return None
    return f"write ${word} instead of @{word}, which is an absolute value."


def is_aggregate_name(name: str) -> bool:
    """Return whether a name is an aggregate with a noisy form."""
    return name.upper() in {*WORDS, *ALIASES}


# -- words and signs --------------------------------------------------------------------------------------------

_JOINED = {f"{word}BY": f"{word} BY" for word in ("GROUP", "ORDER", "PARTITION")}
_JOINED |= {"FORM": "FROM", "FRMO": "FROM"}
_BEGINNINGS = """
SELECT FROM WHERE GROUP HAVING ORDER LIMIT OFFSET JOIN INNER LEFT RIGHT UNION BETWEEN DISTINCT QUALIFY OPTIONS PARTITION USING
FILTER
"""
_KEYWORDS = _BEGINNINGS.split()
_QUOTED = token_types("STRING IDENTIFIER")
_SIGNS = {"=>": ">=", "=<": "<=", "===": "="}
_MEANT = (
    (re.compile(r"(?i)\b(DIFFERENTIAL\s+PRIVACY)\b"), "write DIFFERENTIAL_PRIVACY instead of {1}."),
    (re.compile(rf"(?is)\bSELECT\s+({'|'.join(MODES)})\b"), "write SELECT WITH {mode} instead of {0}."),
    (
        re.compile(r"(?is)^(?!.*\bWITH\s+\w+\s+OPTIONS\s*\().*\bOPTIONS\s*\("),
        "put the options behind the mode, which stands after the first word of the query.",
    ),
    (
        re.compile(rf"(?is)(?<!SELECT\s)\bWITH\s+({'|'.join(MODES)})\b(?!\s+AS\b)"),
        "put the mode {mode} behind the first word of its query.",
    ),
    (
        re.compile(r"(?i)\bOVER\s*\(\s*(VALUES\b|SELECT\b|')"),
        "give the list a name before the query; the name follows the word over.",
    ),
    (re.compile(r"(?i)\bDECODE\s*\("), "compare with each value in turn, as the cases of one expression."),
)
"""Patterns of unparsable statements, with the probable meaning."""


def explain_unreadable(error: SqlglotParseError, tokens: list[Token], text: str) -> ParseError:
    """Return the refusal of a text that sqlglot can't parse: the unexpected token and its probable meaning."""
    detail: dict[str, object] = error.errors[0] if error.errors else {}
    highlight = str(detail.get("highlight") or "")
    context = str(detail.get("start_context") or "")
    start = text.find(context + highlight) if highlight else -1
    start = start + len(context) if start >= 0 else text.find(highlight) if highlight else -1
    i = next((i for i, token in enumerate(tokens) if token.end >= start), None) if start >= 0 else None
    if (meant := _correct_options(tokens, text)) is not None:
        return meant
    hint, said = None, str(detail.get("description") or "")
    for pattern, meaning in _MEANT:
        if hint is None and (found := pattern.search(text)):
            hint = meaning.format(found[0], *found.groups(), mode=find_mode(text))
    if i is None:
        return ParseError(f"can't read this: {_describe(said, '')}.", hint=hint)
    if hint is None and (meant := _find_misspelt(tokens, i)) is not None:
        return meant
    what = _describe(said, tokens[i].text)
    if hint is None:
        hint = _advise_at(tokens, i, said)
    return ParseError(f"can't read this: {what}.", span=(start, start + len(highlight)), hint=hint)


_OPTIONS = frozenset(row.name for row in OPTION_NAMES)
_ASSIGNS = ("=", "==", ":", ":=", "=>")


def _correct_options(tokens: list[Token], text: str) -> ParseError | None:
    """Return the refusal of a misspelt OPTIONS clause behind a mode, with the clause as it is written; None without one."""
    for i in range(2, len(tokens) - 1):
        if tokens[i - 2].token_type != TokenType.WITH or tokens[i - 1].text.upper() not in MODES:
            continue
        named = bool(difflib.get_close_matches(tokens[i].text.upper(), ("OPTIONS",), cutoff=0.6))
        at = i + named
        while at < len(tokens) and tokens[at].text in ("=", ":", "(", "[", "{"):
            at += 1
        found, at = _read_options(tokens, at)
        if not found:
            continue
        clause = f"OPTIONS ({', '.join(f'{name} = {value}' for name, value in found)})"
        end = at
        while end < len(tokens) and tokens[end].token_type in (*CLOSING, TokenType.COMMA):
            end += 1
        written = text[tokens[i].start : tokens[end - 1].end + 1]
        if re.sub(r"\s", "", written).upper() == re.sub(r"\s", "", clause).upper():
            continue
        rest = text[tokens[-1].end + 1 :]
        if end == len(tokens) and rest.lstrip().startswith(";"):
            sign, what = len(text) - len(rest.lstrip()), "options are separated by commas."
            return ParseError(what, span=(sign, sign + 1), hint="write , instead of ;.")
        if written.upper().startswith("OPTIONS") and f"{written})".split() == clause.split():
            value = tokens[at - 1]
            hint = f"write {value.text}) instead of {value.text}."
            return token_error(value, "the options have no end.", hint)
        what = "options are written name = value, in parentheses."
        return token_error(tokens[i], what, f"write {clause}.", last=tokens[end - 1])
    return None


def _read_options(tokens: list[Token], at: int) -> tuple[list[tuple[str, str]], int]:
    """Read options in any usual spelling: their names and values, and the index after them."""
    found: list[tuple[str, str]] = []
    while at + 1 < len(tokens) and tokens[at].text.lower() in _OPTIONS:
        value = at + 1
        while tokens[value].text in _ASSIGNS and value + 1 < len(tokens):
            value += 1
        held = tokens[value]
        literal = re.fullmatch(r"[\d.]+(e-?\d+)?|[A-Z_]+", held.text, re.I)
        if held.token_type != TokenType.NUMBER and not literal:
            break
        found.append((tokens[at].text.lower(), held.text))
        at = value + 1
        if at + 1 < len(tokens) and tokens[at].token_type == TokenType.COMMA:
            at += tokens[at + 1].text.lower() in _OPTIONS
    return found, at


def _describe(said: str, word: str) -> str:
    """Return sqlglot's reason in terms that an analyst can use."""
    word = clip(word)
    here = f"{word} is not expected here" if word else "this is not SQL that DuckDB or dpsql knows"
    if said.startswith("Expecting )"):
        return f"a ) is missing before {word}" if word else "a ) is missing"
    if said.startswith("Required keyword"):
        return f"something is missing near {word}" if word else "something is missing here"
    if said.startswith("Expected table name"):
        return "a table's name is expected here"
    if said.startswith("The number of provided arguments"):
        return "a function has more values here than it takes"
    return here


def _find_misspelt(tokens: list[Token], i: int) -> ParseError | None:
    """Return the refusal of a misspelt keyword at the unparsable token or just before it."""
    for place in (i, i - 1):
        token = tokens[place] if 0 <= place < len(tokens) else None
        if token is None or not is_word(token) or token.token_type in _QUOTED:
            continue
        word = token.text.upper()
        after = tokens[place + 1].text.upper() if place + 1 < len(tokens) else ""
        if word in ("GROUP", "ORDER", "PARTITION") and after != "BY":
            return token_error(token, f"{word} lacks its BY.", f"write {word} BY.")
        near = difflib.get_close_matches(word, _KEYWORDS, n=1, cutoff=0.75)
        meant = _JOINED.get(word) or next(iter(near), None)
        if meant is None or word in _KEYWORDS:
            continue
        meant = f"{meant} BY" if meant in ("GROUP", "ORDER") and after != "BY" else meant
        return token_error(token, f"{token.text} is not a word of SQL.", f"did you mean {meant}?")
    return None


def _advise_at(tokens: list[Token], i: int, said: str) -> str | None:
    """Return the probable meaning of the characters at an unparsable token."""
    for first in range(max(0, i - 2), i + 1):
        run = tokens[first]
        signs = run.text
        for token in tokens[first + 1 : first + 3]:
            if token.start != run.end + 1 or not set(token.text) <= set("=<>"):
                break
            signs, run = signs + token.text, token
        if signs in _SIGNS:
            return f"write {_SIGNS[signs]} instead of {signs}."
    if tokens[i].token_type == TokenType.R_PAREN and "number of provided" in said:
        return "leave the last argument out; others have a name, and an arrow after it."
    if is_open(tokens, i) and i > 1 and is_word(tokens[i - 1]) and is_word(tokens[i - 2]):
        return f"is a comma missing before {tokens[i - 1].text}?"
    return None


_PLACES = ("OFFSET", "ORDINAL", "SAFE_OFFSET", "SAFE_ORDINAL")
"""GoogleSQL's words before a place in a list."""


def check_other_dialects(tokens: list[Token]) -> None:
    """Raise ParseError, with a hint, for other systems' syntax that DuckDB's grammar would misread: SELECT TOP, hints."""
    for i, token in enumerate(tokens[:-2]):
        word, after = tokens[i + 1], tokens[i + 2]
        if (
            token.token_type == TokenType.L_BRACKET
            and word.text.upper() in _PLACES
            and is_open(tokens, i + 2)
        ):
            hint = "write x[1] for the first element: places are counted from 1."
            raise token_error(word, f"{word.text.upper()} is not supported here.", hint)
        if token.token_type != TokenType.SELECT:
            continue
        if word.text == "@" and after.token_type == TokenType.L_BRACE:
            raise token_error(word, "hints are not supported here.", "leave it out.", last=after)
        if word.text.upper() != "TOP" or word.token_type == TokenType.IDENTIFIER:
            continue
        number, rest = after, tokens[i + 3 : i + 4]
        if is_open(tokens, i + 2) and len(tokens) > i + 5:
            number, closing, rest = tokens[i + 3], tokens[i + 4], tokens[i + 5 : i + 6]
            if closing.token_type != TokenType.R_PAREN or not rest or not _begins_an_item(rest[0]):
                continue
        if number.token_type == TokenType.NUMBER:
            percent = bool(rest) and rest[0].text.upper() == "PERCENT"
            count = "10" if percent else number.text
            hint = f"write it at the end: ORDER BY 2 DESC LIMIT {count}, after the aggregation."
            raise token_error(word, "TOP is not supported here.", hint, last=number)


def _begins_an_item(token: Token) -> bool:
    return is_word(token) and token.text.upper() not in ("AS", "FROM", "OVER", "FILTER")
