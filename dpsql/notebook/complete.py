"""Completion in dpsql cells and lines, and nowhere else: tables, columns, mechanisms, options, flags."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from IPython.core.completer import SimpleCompletion

from dpsql.notebook import guide
from dpsql.notebook.guide import CONNECT_FLAGS, RUN_FLAGS
from dpsql.notebook.sessions import list_columns
from dpsql.sql.parse.functions import WORDS

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell

    from dpsql.notebook.sessions import Sessions

_KEYWORDS = """
    SELECT WITH DIFFERENTIAL_PRIVACY DP PTR SUBSAMPLE OPTIONS FROM WHERE GROUP BY HAVING ORDER LIMIT
    JOIN LEFT RIGHT USING ON AS AND OR NOT IN IS NULL CASE WHEN THEN ELSE END OVER FILTER VALUES EXPLAIN
    SHOW DECLARE CLOSE DISTINCT BETWEEN LIKE"""
KEYWORDS = tuple(_KEYWORDS.split())
_WORD = re.compile(r"(--?|\$)?\w*$")


class Matcher:
    """A matcher of IPython's completer (its API 2)."""

    matcher_api_version = 2
    matcher_identifier = "dpsql"

    def __init__(self, shell: InteractiveShell, sessions: Sessions) -> None:
        self._shell = shell
        self._sessions = sessions
        self.__qualname__ = "dpsql"  # IPython asks its matchers for one, functions or not

    def __call__(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return what may stand at the cursor; nothing outside our cells and lines."""
        lines = context.full_text.split("\n")
        before = lines[context.cursor_line][: context.cursor_position]
        first = re.match(r"\s*%%(\w+)", context.full_text)
        cell = first is not None and self._ours("cell", first[1])
        line = re.match(r"(?:\s*[\w.]+\s*=)?\s*%(\w+)\s", before)
        if not cell and not (line and self._ours("line", line[1])):
            return {"completions": [], "suppress": False}
        found = _WORD.search(before)
        word = found[0] if found else ""
        sql = "\n".join(lines[1 if cell else 0 :])
        on_magic_line = not cell or context.cursor_line == 0
        names = self._names(word, sql, before, on_magic_line)
        # IPython replaces context.token, which may begin earlier or later than our word
        head = context.token[: len(context.token) - len(word)] if context.token.endswith(word) else ""
        cut = len(word) - len(context.token) if word.endswith(context.token) else 0
        items = [SimpleCompletion(head + name[max(0, cut) :], type=kind) for name, kind in names]
        return {"completions": items, "suppress": True, "ordered": True}

    def _ours(self, kind: str, name: str) -> bool:
        """Return whether a magic is ours, by its name or by an alias (``%alias_magic sql dpsql``)."""
        found = self._shell.magics_manager.magics[kind].get(name)
        return name == "dpsql" or getattr(found, "magic_name", None) == "dpsql"

    def _names(self, word: str, sql: str, before: str, on_magic_line: bool) -> list[tuple[str, str]]:
        if word.startswith("-"):
            flags = (*RUN_FLAGS, *(CONNECT_FLAGS if " connect" in before or " demo" in before else ()))
            return _begin(word, ((f.name, "flag") for f in flags)) if on_magic_line else []
        if on_magic_line and re.search(r"(^|[^%])%\w+\s+\w*$", before):
            return _begin(word, ((name, "command") for name in guide.COMMANDS))
        if word.startswith("$"):
            return []
        schema = self._schema()
        mentioned = {
            t: c for t, c in schema.items() if re.search(rf"\b{re.escape(t)}\b", sql, re.I)
        } or schema
        if _options_open(before):
            return _begin(word, ((name, "option") for name in {**guide.OPTIONS, **guide.MORE_OPTIONS}))
        columns = [(c, "column") for cs in mentioned.values() for c in cs]
        tables = [(t, "table") for t in schema]
        rest = [(a + " => ", "argument") for a in guide.ARGUMENTS]
        if re.search(r"\b(FROM|JOIN)\s+\w*$", before, re.I):
            return _begin(word, tables)
        functions = [(f, "function") for f in WORDS]
        keywords = [(k, "keyword") for k in KEYWORDS]
        return _begin(word, [*columns, *tables, *functions, *rest, *keywords])

    def _schema(self) -> dict[str, list[str]]:
        session = self._sessions.get(self._sessions.current)
        return list_columns(session) if session is not None else {}


def _options_open(before: str) -> bool:
    """Return whether the cursor stands inside ``OPTIONS ( ...``."""
    at = before.upper().rfind("OPTIONS")
    return at >= 0 and before.count("(", at) > before.count(")", at)


def _begin(word: str, names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the names that begin with a word; keywords follow the case that is being typed."""
    lower = word.lower()
    chosen: dict[str, str] = {}
    for name, kind in names:
        if name.lower().startswith(lower):
            if kind in ("keyword", "function") and word.islower():
                name = name.lower()
            chosen.setdefault(name, kind)
    return list(chosen.items())
