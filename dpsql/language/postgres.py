"""The parts of a PostgreSQL client's text: dpsql statements, COPY and cursors of one, session commands, catalogue queries.

Nothing is answered here. Parts keep their positions in the text, so an error's caret points into the client's text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from typing import Literal

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.catalogue.option_names import SHOW_WORDS
from dpsql.errors import BindError, Error, ParseError
from dpsql.language.tokens import split_arguments, tokenize
from dpsql.late_dataclass import dataclass

PartKind = Literal["query", "command", "catalog", "copy", "declare", "fetch", "move", "prepare", "execute"]
PUBLIC = "public"
"""The schema of all tables of a policy, as shown to PostgreSQL's clients."""
_CATALOGS = ("pg_catalog", "information_schema")
_SESSION = (
    "SET RESET BEGIN START COMMIT END ROLLBACK ABORT SAVEPOINT RELEASE DISCARD DEALLOCATE LISTEN UNLISTEN"
)
_COMMANDS = frozenset(_SESSION.split())
_CALLED = """
version current_schema current_schemas current_database current_setting set_config to_regtype to_regclass format_type
obj_description col_description shobj_description has_table_privilege has_schema_privilege has_database_privilege
has_any_column_privilege has_column_privilege txid_current inet_server_addr inet_server_port quote_ident quote_literal
quote_nullable
"""
_CATALOG_CALLS = frozenset(_CALLED.split())
_CATALOG_WORDS = ("current_user", "session_user", "current_role", "current_catalog", "current_schema")


@dataclass(frozen=True)
class TextPart:
    """Part of a client's text: statements of dpsql, one command, one catalogue query, or a COPY or a cursor of one query.

    ``text`` is the whole text up to its end, with blanks before its start. ``words`` are those of a command, the options of a
    COPY, or the name of a cursor with the number of rows to fetch; quoted texts are without their quotes.
    """

    kind: PartKind
    text: str
    start: int
    end: int
    words: tuple[str, ...] = ()
    count: int = 1
    """The number of statements in it."""
    catalog: bool = False
    """Whether its query asks PostgreSQL's catalogue."""

    @property
    def own(self) -> str:
        """The part's own text."""
        return self.text[self.start : self.end]


def split_parts(text: str, tables: Collection[str], database: str = "") -> list[TextPart]:
    """Return the parts of a client's text, in order; adjacent dpsql statements are one part.

    ``tables`` are the lower-case names of the policy's tables and of kept results; ``database`` may precede their schema.

    >>> [(part.kind, part.own) for part in split_parts("SET a = 1; SELECT COUNT(*) FROM public.visits", {"visits"})]
    [('command', 'SET a = 1'), ('query', 'SELECT COUNT(*) FROM        visits')]
    """
    try:
        tokens = tokenize(text)
    except Error:
        return [TextPart("query", text, 0, len(text))] if text.strip() else []
    found: list[TextPart] = []
    text = _read_bytes(text, tokens)
    shown = _hide_schema(text, tokens, tables, database)
    for ends, group in groupby(tokens, lambda token: token.token_type == TokenType.SEMICOLON):
        if ends:
            continue
        part = list(group)
        kind, start, end, count = _find_kind(part, tables), part[0].start, part[-1].end + 1, 1
        words = tuple(token.text for token in part)
        if kind in ("fetch", "move"):  # the tokenizer has the rest as one text
            words = tuple(token.text for token in tokenize(" ".join(words[1:])))
        if kind in _SPLITTERS:
            part, words = _SPLITTERS[kind](part)
            start, end = part[0].start, part[-1].end + 1
            if part[0].token_type == TokenType.COPY:  # of a table, which is the query FROM table
                shown = f"{shown[:start]}FROM{shown[start + 4 :]}"
        if kind == "query" and found and found[-1].kind == "query":
            start, count = found[-1].start, found.pop().count + 1
        catalog = kind == "catalog" or (kind in _SPLITTERS and _asks_catalog(part, tables))
        hidden = text if catalog or kind in ("command", "prepare", "execute") else shown
        found.append(TextPart(kind, _blank(hidden, start, end), start, end, words, count, catalog))
    return found


_COMPARISONS = frozenset({"=", "<", ">", "<=", ">=", "<>", "!="})
_BEFORE_COLUMN = frozenset({"WHERE", "AND", "OR", "NOT", "(", "ON", "HAVING", "WHEN", ","})
_BEHIND_VALUE = frozenset(
    {")", "AND", "OR", "THEN", ";", ",", "GROUP BY", "ORDER BY", "LIMIT", "HAVING", "QUALIFY", ""}
)


def suggest_types(text: str, columns: Mapping[str, str]) -> dict[int, str]:
    """Return the types of the parameters ``$1`` ... that are cast, limit rows, or are compared with a column.

    Args:
        text: a client's text.
        columns: SQL types by folded names; an alias of the same name hides a column.

    Returns:
        Types as the text or the column has them. Parameters of other expressions are missing.

    >>> suggest_types("SELECT 1 WHERE t.a = ANY($2) AND d >= $1 AND d + 1 < $4 LIMIT $3", {"a": "VARCHAR", "d": "DATE"})
    {2: 'VARCHAR[]', 1: 'DATE', 3: 'BIGINT'}
    >>> suggest_types("SELECT a FROM t WHERE d < $1 GROUP BY a", {"d": "DATE"})
    {1: 'DATE'}
    """
    try:
        tokens = tokenize(text)
    except Error:
        return {}
    words = ["", "", "", "", *(token.text.upper() for token in tokens), "", "", ""]
    named = {name.lower() for word, name in itertools.pairwise(words) if word == "AS"}
    columns = {name: kind for name, kind in columns.items() if name not in named}
    found: dict[int, str] = {}
    for at, (sign, number) in enumerate(itertools.pairwise(words)):
        if sign == "$" and number.isdigit() and (kind := _suggest_type(words, at, columns)):
            found.setdefault(int(number), kind)
    return found


def _suggest_type(words: Sequence[str], at: int, columns: Mapping[str, str]) -> str:
    """Return the type of the parameter whose ``$`` is the word ``at``; empty if it can't be told."""
    if words[at + 2] == "::" or (words[at - 2] == "CAST" and words[at + 2] == "AS"):
        at += 2 * (words[at + 3 : at + 5] == ["PG_CATALOG", "."])
        if words[at + 3].startswith("_"):  # the array's own name
            return f"{words[at + 3][1:]}[]"
        return words[at + 3] + ("TZ" if words[at + 4] == "WITH" else "[]" if words[at + 4] == "[" else "")
    before, many = at - 1, ""
    if words[before] in ("LIMIT", "OFFSET"):
        return "BIGINT"
    while words[before] == "," and words[before - 2] == "$":  # in a list
        before -= 3
    if words[before] == "AND" and words[before - 2] == "$" and words[before - 3] == "BETWEEN":
        before -= 3
    if words[before] == "(" and words[before - 1] in ("ANY", "ALL", "IN"):
        before -= 1
        many = "" if words[before] == "IN" else "[]"
        before -= 1 if many else 0
    if words[before] not in _COMPARISONS | {"IN", "BETWEEN"}:
        return ""
    start = before - 2 if words[before - 1] == "NOT" else before - 1
    name = words[start].lower()
    while words[start - 1] == ".":
        start -= 2
    behind = words[at + 3] if many else words[at + 2]
    told = words[start - 1] in _BEFORE_COLUMN and behind in _BEHIND_VALUE
    kind = columns.get(name, "") if told else ""
    return f"{kind}{many}" if kind or not many else "VARCHAR[]"


def _blank(text: str, start: int, end: int) -> str:
    """Return a text up to ``end`` with blanks before ``start``; line breaks are kept."""
    return "".join(sign if sign == "\n" else " " for sign in text[:start]) + text[start:end]


def _read_bytes(text: str, tokens: Sequence[Token]) -> str:
    r"""Write ``'\x00ff'::bytea`` as ``unhex('00ff')``, at the same place: other bytes are DuckDB's reading of the literal."""
    words = ["", "", *(token.text.upper() for token in tokens)]
    for at, value in enumerate(tokens):
        digits = value.text.removeprefix("\\x")
        if value.token_type != TokenType.STRING or value.text == digits or not digits.isalnum():
            continue
        first, last = at, at + 2
        if words[at : at + 2] == ["CAST", "("] and words[at + 3 : at + 6] == ["AS", "BYTEA", ")"]:
            first, last = at - 2, at + 3
        elif words[at + 3 : at + 5] != ["::", "BYTEA"]:
            continue
        start, end = tokens[first].start, tokens[last].end + 1
        text = text[:start] + f"unhex('{digits}')".ljust(end - start) + text[end:]
    return text


def _hide_schema(text: str, tokens: Sequence[Token], tables: Collection[str], database: str) -> str:
    """Blank out ``public.`` and the database before a table's name: tables have no schema in dpsql."""
    signs = list(text)
    for place, (schema, dot, name) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
        if dot.token_type == TokenType.DOT and schema.text.lower() == PUBLIC and name.text.lower() in tables:
            first, before = schema.start, [token.text.lower() for token in tokens[max(0, place - 2) : place]]
            if before == [database.lower(), "."]:
                first = tokens[place - 2].start
            signs[first : dot.end + 1] = " " * (dot.end + 1 - first)
    return "".join(signs)


_OTHERS: dict[str, PartKind] = {"FETCH": "fetch", "MOVE": "move", "EXECUTE": "execute"}


def _find_kind(tokens: Sequence[Token], tables: Collection[str]) -> PartKind:
    word = tokens[0].text.upper()
    if word in _COMMANDS or (word == "CLOSE" and len(tokens) == 2 and tokens[1].text.upper() == "ALL"):
        return "command"
    for kind, split in _SPLITTERS.items():
        if split(tokens)[0]:
            return kind
    if word in _OTHERS:
        return _OTHERS[word]
    if word == "SHOW":
        return "query" if len(tokens) > 1 and tokens[1].text.upper() in SHOW_WORDS else "command"
    return "catalog" if _asks_catalog(tokens, tables) else "query"


def _split_copy(tokens: Sequence[Token]) -> tuple[list[Token], tuple[str, ...]]:
    """Return the query (for a table, ``COPY name``) and the options of COPY ... TO STDOUT; no tokens for other statements."""
    words = [token.text.upper() for token in tokens]
    ends = [at for at, pair in enumerate(itertools.pairwise(words)) if pair == ("TO", "STDOUT")]
    if words[:1] == ["COPY"] and ends in ([2], [4], [6]) and {*words[2 : ends[0] : 2]} <= {"."}:
        return list(tokens[: ends[0]]), tuple(words[ends[0] + 2 :])
    if words[:2] != ["COPY", "("] or not ends or words[ends[-1] - 1] != ")" or ends[-1] < 4:
        return [], ()
    return list(tokens[2 : ends[-1] - 1]), tuple(words[ends[-1] + 2 :])


def _split_declare(tokens: Sequence[Token]) -> tuple[list[Token], tuple[str, ...]]:
    """Return the query and the name of ``DECLARE name CURSOR FOR query``; no tokens if it is another statement."""
    words = [token.text.upper() for token in tokens[:12]]
    if words[:1] != ["DECLARE"] or "CURSOR" not in words[2:] or "FOR" not in words or "SCROLL" in words[2:3]:
        return [], ()
    return list(tokens[words.index("FOR") + 1 :]), (tokens[1].text,)


def _split_prepare(tokens: Sequence[Token]) -> tuple[list[Token], tuple[str, ...]]:
    """Return the query of ``PREPARE name (types) AS query``, and its name and types; no tokens if it is another statement."""
    words = [token.text.upper() for token in tokens]
    at = words.index("AS") if "AS" in words[2:] else 0
    if words[:1] != ["PREPARE"] or at < 2 or at + 1 == len(tokens):
        return [], ()
    if at > 2 and (words[2], words[at - 1]) != ("(", ")"):
        return [], ()
    kinds = " ".join(token.text for token in tokens[3 : at - 1]).split(" , ") if at > 4 else []
    return list(tokens[at + 1 :]), (tokens[1].text, *kinds)


_SPLITTERS: dict[PartKind, Callable[[Sequence[Token]], tuple[list[Token], tuple[str, ...]]]] = {
    "copy": _split_copy,
    "declare": _split_declare,
    "prepare": _split_prepare,
}
"""The statements around a query, which is the part's own text."""


def split_execute(text: str) -> tuple[str, list[str]]:
    """Return the name and the arguments of an EXECUTE, as written.

    Raises:
        ParseError: it is none.

    >>> split_execute("EXECUTE counts(30, 'a, b', (1 + 2))")
    ('counts', ['30', "'a, b'", '(1 + 2)'])
    """
    rest = text.strip()[len("EXECUTE") :]
    tokens = tokenize(rest)
    words = [token.text for token in tokens]
    if not words or (len(words) > 1 and (words[1], words[-1]) != ("(", ")")):
        what = "EXECUTE takes the name of a prepared statement and its values."
        raise ParseError(what, hint="EXECUTE p(30)")
    given = split_arguments(tokens[2:-1]) if len(tokens) > 3 else []
    return words[0], [rest[part[0].start : part[-1].end + 1] if part else "" for part in given]


def fill_prepared(query: str, kinds: Sequence[str], given: Sequence[str]) -> str:
    """Return a prepared query with its arguments in place of ``$1``, ...; a quoted text has the type of its parameter.

    Raises:
        BindError: there are more or fewer arguments than parameters.

    >>> fill_prepared("SELECT $1 + $2, $3", ["int", "int", "date"], ["1", "2 * 3", "'2024-02-29'"])
    "SELECT 1 + (2 * 3), CAST('2024-02-29' AS date)"
    """
    pairs = itertools.pairwise(tokenize(query))
    marks = [(sign.start, number) for sign, number in pairs if sign.text == "$" and number.text.isdigit()]
    count = max([len(kinds), *(int(number.text) for _, number in marks)])
    if len(given) != count or any(number.text == "0" for _, number in marks):
        what = f"the prepared statement has {count} parameters, and {len(given)} values came."
        raise BindError(what, sqlstate="42601")
    for start, number in reversed(marks):
        value, kind = given[int(number.text) - 1], dict(enumerate(kinds, 1)).get(int(number.text), "")
        made = f"CAST({value} AS {kind})" if kind and value[:1] == "'" else value
        made = made if len(tokenize(value)) == 1 else f"({value})"
        query = f"{query[:start]}{made}{query[number.end + 1 :]}"
    return query


def _asks_catalog(tokens: Sequence[Token], tables: Collection[str]) -> bool:
    """Return whether a query uses PostgreSQL's catalogue: its schemas, its relations, or functions about the session."""
    calls = reads = False
    for place, token in enumerate(tokens):
        if token.token_type in (TokenType.STRING, TokenType.NUMBER):
            continue
        name = token.text.lower()
        follows = tokens[place + 1].token_type if place + 1 < len(tokens) else None
        before = tokens[place - 1].token_type if place else None
        if name in _CATALOGS and follows == TokenType.DOT:
            return True
        if name.startswith("pg_") and name not in tables and before != TokenType.ALIAS:
            return True
        if before == TokenType.DCOLON and name.startswith("reg"):
            return True
        reads = reads or (before in (TokenType.FROM, TokenType.JOIN) and name not in _CATALOG_CALLS)
        calls = calls or (name in _CATALOG_CALLS and follows == TokenType.L_PAREN) or name in _CATALOG_WORDS
    return calls and not reads
