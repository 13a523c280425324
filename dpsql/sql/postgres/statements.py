"""The parts of a PostgreSQL client's text: dpsql statements, session commands, and catalogue queries.

Nothing is answered here. Parts keep their positions in the text, so an error's caret points into the client's text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from dpsql.errors import Error
from dpsql.sql.parse.statements import SHOW_WORDS
from dpsql.sql.parse.tokens import tokenize

PartKind = Literal["query", "command", "catalog"]
PUBLIC = "public"
"""The schema of all tables of a policy, as shown to PostgreSQL's clients."""
_CATALOGS = ("pg_catalog", "information_schema")
_COMMANDS = frozenset(
    {
        "SET", "RESET", "BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "DISCARD",
        "DEALLOCATE", "LISTEN", "UNLISTEN",
    }
)  # fmt: skip
_CATALOG_CALLS = frozenset(
    {
        "version", "current_schema", "current_schemas", "current_database", "current_setting", "set_config", "to_regtype",
        "to_regclass", "format_type", "obj_description", "col_description", "shobj_description", "has_table_privilege",
        "has_schema_privilege", "has_database_privilege", "has_any_column_privilege", "has_column_privilege", "txid_current",
        "inet_server_addr", "inet_server_port", "quote_ident",
    }
)  # fmt: skip
_CATALOG_WORDS = frozenset({"current_user", "session_user", "current_role", "current_catalog"})


@dataclass(frozen=True)
class TextPart:
    """Part of a client's text: statements of dpsql, one command, or one catalogue query.

    ``text`` is the whole text up to its end, with blanks before its start. ``words`` are those of a command, quoted
    texts without their quotes.
    """

    kind: PartKind
    text: str
    start: int
    end: int
    words: tuple[str, ...] = ()
    count: int = 1
    """The number of statements in it."""

    @property
    def own(self) -> str:
        """The part's own text."""
        return self.text[self.start : self.end]


def split_parts(text: str, tables: Collection[str]) -> list[TextPart]:
    """Return the parts of a client's text, in order; adjacent dpsql statements are one part.

    ``tables`` are the lower-case names of the policy's tables and of kept results.

    >>> [(part.kind, part.own) for part in split_parts("SET a = 1; SELECT COUNT(*) FROM public.visits", {"visits"})]
    [('command', 'SET a = 1'), ('query', 'SELECT COUNT(*) FROM        visits')]
    """
    try:
        tokens = tokenize(text)
    except Error:
        return [TextPart("query", text, 0, len(text))] if text.strip() else []
    found: list[TextPart] = []
    shown = _hide_schema(text, tokens, tables)
    for ends, group in groupby(tokens, lambda token: token.token_type == TokenType.SEMICOLON):
        if ends:
            continue
        part = list(group)
        kind, start, end, count = _find_kind(part, tables), part[0].start, part[-1].end + 1, 1
        if kind == "query" and found and found[-1].kind == "query":
            start, count = found[-1].start, found.pop().count + 1
        words = tuple(token.text for token in part) if kind == "command" else ()
        found.append(
            TextPart(kind, _blank(shown if kind == "query" else text, start, end), start, end, words, count)
        )
    return found


def list_array_parameters(text: str) -> set[int]:
    """Return the numbers of the parameters in ``ANY ($1)``, whose values are lists.

    >>> list_array_parameters("SELECT 1 WHERE 'a' = ANY($2) AND $1")
    {2}
    """
    try:
        words = [token.text.upper() for token in tokenize(text)]
    except Error:
        return set()
    found = zip(words, words[1:], words[2:], words[3:], strict=False)
    return {
        int(n)
        for word, opening, sign, n in found
        if word in ("ANY", "ALL") and opening + sign == "($" and n.isdigit()
    }


def _blank(text: str, start: int, end: int) -> str:
    """Return a text up to ``end`` with blanks before ``start``; line breaks are kept."""
    return "".join(sign if sign == "\n" else " " for sign in text[:start]) + text[start:end]


def _hide_schema(text: str, tokens: Sequence[Token], tables: Collection[str]) -> str:
    """Blank out ``public.`` before a table's name: tables have no schema in dpsql."""
    signs = list(text)
    for schema, dot, name in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if dot.token_type == TokenType.DOT and schema.text.lower() == PUBLIC and name.text.lower() in tables:
            signs[schema.start : dot.end + 1] = " " * (dot.end + 1 - schema.start)
    return "".join(signs)


def _find_kind(tokens: Sequence[Token], tables: Collection[str]) -> PartKind:
    word = tokens[0].text.upper()
    if word in _COMMANDS or (word == "CLOSE" and len(tokens) == 2 and tokens[1].text.upper() == "ALL"):
        return "command"
    if word == "SHOW":
        return "query" if len(tokens) > 1 and tokens[1].text.upper() in SHOW_WORDS else "command"
    return "catalog" if _asks_catalog(tokens, tables) else "query"


def _asks_catalog(tokens: Sequence[Token], tables: Collection[str]) -> bool:
    """Return whether a query uses PostgreSQL's catalogue: its schemas, its relations, or functions about the session."""
    calls = False
    reads = False
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
