"""Completion in JupyterLab and IPython's terminal, in our cells and lines only.

It stands apart from the magic, because it answers keystrokes and must never ask or spend.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.completer import SimpleCompletion

from dpsql.notebook import guide, inspection, sessions
from dpsql.notebook.completion import KnownNames, Offer, complete_sql
from dpsql.session.result import Result

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell

    from dpsql.notebook.sessions import Sessions

MAX_PATHS = 200
"""Paths that are offered at once."""
_BOUND = (bool, int, float, str, Decimal, datetime.date, type(None))
_DATA = (".duckdb", ".db", ".parquet", ".arrow", ".feather", ".csv", ".tsv", ".json", ".jsonl", ".ndjson")
_PATHS = {
    "--policy": (".toml",),
    "--ledger": (".ledger",),
    "--file": (".sql",),
    "--token-file": (),
    "--tls-ca": (".pem", ".crt"),
    "--tls-client-cert": (".pem", ".crt"),
    "--tls-client-key": (".key", ".pem"),
    "--database": (".duckdb", ".db"),
    "-o": (),
}
"""The flags that take a path, and the endings that are offered; none for all."""


def can_be_bound(value: object) -> bool:
    """Return whether a variable can be a parameter: a number, text, boolean, date, None, or a list of these."""
    shape = getattr(value, "shape", None)
    if isinstance(value, _BOUND) or (shape == () and hasattr(value, "item")):
        return True
    if isinstance(value, list | tuple):
        return all(isinstance(item, _BOUND) for item in value)
    return isinstance(shape, tuple) and len(shape) == 1 and hasattr(value, "tolist")


def list_parameters(space: Mapping[str, Any]) -> dict[str, str]:
    """List the variables for parameters, each with the name of its type. Hidden ones are left out."""
    return {
        name: type(value).__name__
        for name, value in space.items()
        if not name.startswith("_") and can_be_bound(value)
    }


def offer_paths(typed: str, endings: tuple[str, ...] = ()) -> list[Offer]:
    """Return the files (with one of the endings, if any are given) and folders whose path begins with the typed word."""
    folder, slash, stem = typed.rpartition("/")
    try:
        place = Path(folder + slash or ".").expanduser()
        found = sorted(place.iterdir(), key=lambda path: path.name)
    except (OSError, RuntimeError, ValueError):
        return []
    offers = []
    for path in found:
        if path.name.startswith(".") and not stem.startswith("."):
            continue
        inside = path.is_dir()
        if path.name.startswith(stem) and (inside or not endings or path.name.endswith(endings)):
            written = re.sub(r"([\s'\"\\])", r"\\\1", path.name)
            offers.append(Offer(f"{folder}{slash}{written}{'/' if inside else ''}", "path"))
    return offers[:MAX_PATHS]


class Matcher:
    """A matcher of IPython's completer (its API 2)."""

    matcher_api_version = 2
    matcher_identifier = "dpsql"

    def __init__(self, shell: InteractiveShell, sessions: Sessions) -> None:
        self._shell = shell
        self._sessions = sessions
        self.__qualname__ = "dpsql"  # IPython asks its matchers for one, functions or not

    def __call__(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return completions at the cursor; nothing outside our cells and lines."""
        row, column = context.cursor_line, context.cursor_position
        place = inspection.find_magic(self._shell, context.full_text, row, column)
        if place is None:
            return {"completions": [], "suppress": False}
        if place.line is None:
            start, offers = complete_sql(place.sql, place.at, self.find_names())
            typed = place.sql[start : place.at]
        else:
            found = re.search(r"(?:\\.|\S)*$", place.line)
            typed = found[0] if found else ""
            offers = self._offer_words(place.line[: len(place.line) - len(typed)], typed, place.cell)
        # IPython replaces context.token, which may begin earlier or later than our word
        head = context.token[: len(context.token) - len(typed)] if context.token.endswith(typed) else ""
        cut = len(typed) - len(context.token) if typed.endswith(context.token) else 0
        items = [SimpleCompletion(head + offer.text[max(0, cut) :], type=offer.kind) for offer in offers]
        return {"completions": items, "suppress": True, "ordered": True}

    def find_names(self) -> KnownNames:
        """Gather the public names of the current session, and the notebook's variables. No private row is read."""
        session = self._sessions.get(self._sessions.current)
        parameters = list_parameters(self._shell.user_ns)
        return (
            KnownNames(parameters=parameters)
            if session is None
            else sessions.list_known_names(session, parameters)
        )

    def describe(self, text: str, at: int) -> str:
        """Return the help on the word under a cursor; empty outside of our cells, and without help."""
        row = text.count("\n", 0, at)
        place = inspection.find_magic(self._shell, text, row, at - (text.rfind("\n", 0, at) + 1))
        if place is None:
            return ""
        if place.line is not None:  # the whole word, also behind the cursor
            place = place._replace(line=place.line + re.match(r"[-\w]*", text[at:])[0])  # type: ignore[index]  # it matches
        return inspection.describe_at(place, self.find_names())

    # -- the magic's own line -----------------------------------------------------------------------------------

    def _offer_words(self, line: str, typed: str, cell: bool) -> list[Offer]:
        """Return completions on the magic's line: flags and their values, commands and their arguments."""
        words = line.split()
        flag, equals, value = typed.partition("=")
        if equals and flag.startswith("-"):
            return [o._replace(text=f"{flag}={o.text}") for o in self._offer_values(flag, value) or []]
        if words and (values := self._offer_values(words[-1], typed)) is not None:
            return values
        command = "" if cell or not words else words[0].lower()
        if typed.startswith("-"):
            flags = self._list_flags(command, words)
            return [Offer(f.name, "flag", f.help) for f in flags if f.name.startswith(typed)]
        if cell:
            return []
        if not words:
            commands = [Offer(name, "command", help) for name, help in guide.COMMANDS.items()]
            statements = [Offer(word, "keyword") for word in guide.STATEMENTS]
            return _keep(typed, [*commands, *statements])
        return self._offer_operands(command, words, typed)

    def _list_flags(self, command: str, words: list[str]) -> Iterable[guide.Flag]:
        if command in ("connect", "demo"):
            return guide.CONNECT_FLAGS
        if command == "policy" and len(words) > 1:
            return {"init": guide.INIT_FLAGS, "check": guide.CHECK_FLAGS}.get(words[1], ())
        return () if command in guide.COMMANDS else guide.RUN_FLAGS

    def _offer_values(self, flag: str, typed: str) -> list[Offer] | None:
        """Return the values of a flag; None if the word is not a flag with a value."""
        space = self._shell.user_ns
        if flag == "--session":
            return _keep(typed, (Offer(name, "session") for name in self._sessions))
        if flag == "--params":
            held = [name for name, v in space.items() if isinstance(v, Mapping | list) and name[:1] != "_"]
            return _keep(typed, (Offer(f"${name}", "variable") for name in held))
        if flag in _PATHS:
            return offer_paths(typed, _PATHS[flag])
        return [] if flag in ("--epsilon", "--analyst", "--unit") else None

    def _offer_operands(self, command: str, words: list[str], typed: str) -> list[Offer]:
        """Return the arguments of a command."""
        space = self._shell.user_ns
        if command == "columns":
            return _keep(typed, (Offer(name, "table") for name in self.find_names().tables))
        if command == "keep":
            kept = (
                Offer(name, "result")
                for name, v in space.items()
                if isinstance(v, Result) or sessions.is_frame(v)
            )
            return _keep(typed, kept)
        if command == "connect":
            data = [Offer(name, "variable") for name, v in space.items() if _holds_data(name, v)]
            return [*_keep(typed, data), *offer_paths(typed, (".duckdb", ".db"))]
        if command == "report":
            return offer_paths(typed)
        if command == "help":
            return _keep(typed, (Offer(word, "word") for word in inspection.list_helped_words()))
        if command == "policy" and len(words) > 1:
            return offer_paths(typed, _DATA if words[1] == "init" else (".toml", ".duckdb", ".db"))
        actions = [Offer("init", "command"), Offer("check", "command")] if command == "policy" else []
        named = ("policy", "budget", "ledger", "log", "tables", "sessions", "session", "close")
        held = [Offer(name, "session") for name in self._sessions] if command in named else []
        return _keep(typed, [*actions, *held])


def _holds_data(name: str, value: object) -> bool:
    """Return whether a variable may be a database: an open connection, or frames by name."""
    if name.startswith("_"):
        return False
    connection = type(value).__name__ == "DuckDBPyConnection"
    return connection or (isinstance(value, dict) and bool(value) and all(isinstance(k, str) for k in value))


def _keep(typed: str, offers: Iterable[Offer]) -> list[Offer]:
    return [offer for offer in offers if offer.text.lower().startswith(typed.lower())]
