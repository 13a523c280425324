"""Help on one word, and completion, in the cells and lines of the magic and nowhere else.

JupyterLab shows help at Shift-Tab and next to completion; ``%dpsql help WORD`` and the prompt's ``.help WORD`` print it. The
module stands apart from the magic because it answers keystrokes: it reads public names only, and never asks or spends.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsql.catalogue.aggregate_names import AGGREGATES, MODE_HELP, OWN_MODES
from dpsql.errors import BindError, did_you_mean
from dpsql.notebook import guide, sessions
from dpsql.notebook.completion import (
    SHOWN,
    KnownNames,
    Offer,
    Word,
    complete_sql,
    find_relations,
    is_unfinished,
    list_arguments,
    scan,
)
from dpsql.session.result import Result

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult
    from IPython.core.interactiveshell import InteractiveShell

    from dpsql.notebook.sessions import Sessions


_OURS = {
    "OPTIONS": "OPTIONS (epsilon = 0.1, ...): what the SELECT may cost, and how it is answered. Tab lists the options.",
    "OVER": "MECHANISM(...) OVER candidates: the choice is among the rows of this public relation.",
    "EXPLAIN": "EXPLAIN SELECT ...: what would run and what it would cost. Spends nothing, reads no private row.",
    "SHOW": f"SHOW {' | '.join(SHOWN)}: a relation about the session.",
    "DECLARE": "DECLARE name ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1): questions asked one by one, paid for beforehand.",
    "CLOSE": "CLOSE name: settles a declared threshold, and gives the unused budget back.",
    "CREATE": "CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1) ward FROM t: public rows of a model. "
    "CREATE RELEASE daily AS SELECT ...: an answer that every analyst reads as a table.",
    "REFRESH": "REFRESH RELEASE daily: draws a release again, and pays for what is not stored. EXPLAIN says its cost before.",
    "DROP": "DROP RELEASE [IF EXISTS] daily: removes a release. What it cost stays spent.",
}
_MODE_NAMES = {mode: f"SELECT WITH {mode}" for mode in OWN_MODES}
_MODE_NAMES["CHOICE"] = "SELECT WITH DP, OVER candidates"


def list_helped_words() -> tuple[str, ...]:
    """Return the words of the language that have help."""
    functions = (row.name for row in AGGREGATES if row.help)
    return tuple(dict.fromkeys([*functions, *MODE_HELP, *guide.OPTIONS, *guide.ARGUMENTS, *_OURS]))


def describe_word(word: str, known: KnownNames) -> str:
    """Return the help on a word, or ``$name``: each of its meanings, in paragraphs; empty if it is unknown."""
    if word.startswith("$"):
        held = known.parameters.get(word[1:])
        bound = (
            f"bound to the variable {word[1:]}, a {held}"
            if held
            else "no variable that could be bound has this name"
        )
        return f"{word}: a parameter, {bound}. It stays a value: it is never pasted into the text."
    return "\n\n".join(_describe(word, known))


def explain_word(word: str, known: KnownNames) -> str:
    """Return the help on a word that was asked for by name; BindError, with the nearest word, if there is none."""
    told = describe_word(word, known)
    if told:
        return told
    raise BindError(
        f"there is no help on {word}.", hint=did_you_mean(word, [*list_helped_words(), *known.tables])
    )


def _describe(word: str, known: KnownNames) -> Iterator[str]:
    upper, lower = word.upper(), word.lower()
    for table, columns in known.tables.items():
        if table.lower() == lower:
            width = max(map(len, columns), default=0)
            yield "\n".join([f"{table}: a table", *(f"  {c:<{width}}  {f.help}" for c, f in columns.items())])
    holders: dict[str, list[str]] = {}
    for table, columns in known.tables.items():
        for column, facts in columns.items():
            if column.lower() == lower:
                holders.setdefault(f"{column}: {facts.help}", []).append(table)
    yield from (f"{said}\n  a column of {' and '.join(tables)}" for said, tables in holders.items())
    for row in AGGREGATES:
        if row.help and upper in (row.name, *row.aliases):
            yield "\n".join(_describe_function(row.name, row.help, row.example, row.modes))
    if upper in MODE_HELP:
        yield f"SELECT WITH {upper}: {MODE_HELP[upper]}"
    if lower in guide.OPTIONS:
        yield _with_values(
            f"OPTIONS ({lower} = ...): {guide.OPTIONS[lower]}", guide.OPTION_VALUES.get(lower, ())
        )
    if lower in guide.ARGUMENTS:
        yield _with_values(f"{lower} => ...: {guide.ARGUMENTS[lower]}", guide.ARGUMENT_VALUES.get(lower, ()))
    if upper in _OURS:
        yield _OURS[upper]


def _describe_function(name: str, told: str, example: str, modes: Sequence[str]) -> Iterator[str]:
    yield f"{name}: {told}"
    if example:
        yield f"  {example}"
    named = [_MODE_NAMES[mode] for mode in modes if mode in _MODE_NAMES]
    yield f"  in {'; '.join(named)}"
    arguments = list_arguments(name, "PTR" if "DP" not in modes and "PTR" in modes else "")
    yield from (f"  {argument} => ...: {guide.ARGUMENTS[argument]}" for argument in arguments)


def _with_values(told: str, values: Sequence[str]) -> str:
    return f"{told}\n  one of {', '.join(values)}" if len(values) > 1 else told


def find_word(text: str, at: int) -> tuple[Word, Word | None] | None:
    """Return the word under a cursor and the one before its dot; None in comments, texts and between words."""
    words = scan(text)
    for i, word in enumerate(words):
        if word.start <= at <= word.end and word.kind in ("word", "name", "parameter"):
            if word.kind == "name" and is_unfinished(word, text):
                return None
            dotted = i > 1 and words[i - 1].text == "."
            return word, words[i - 2] if dotted else None
    return None


class MagicPlace(NamedTuple):
    """The cursor in a magic: the words of its line, or its SQL.

    Args:
        cell: whether it is a cell magic.
        line: the text after the magic's name on its line, up to the cursor; None if the cursor is in the cell's SQL.
        sql: the SQL of the magic.
        at: the cursor in the SQL.
    """

    cell: bool
    line: str | None
    sql: str
    at: int


def find_magic(shell: InteractiveShell, text: str, row: int, column: int) -> MagicPlace | None:
    """Return the magic at a cursor, by line and column from 0; None for another magic, or Python."""
    lines = text.split("\n")
    before = lines[row][:column]
    first = re.match(r"\s*%%(\w+)", text)
    if first is not None and guide.is_ours(shell, "cell", first[1]):
        start = text[: first.start(1)].count("\n")
        if row == start:
            return MagicPlace(True, before.partition(first[1])[2], "", 0)
        sql = "\n".join(lines[start + 1 :])
        return MagicPlace(True, None, sql, sum(len(line) + 1 for line in lines[start + 1 : row]) + column)
    line = re.match(r"(?:\s*[\w.]+\s*=)?\s*%(\w+)\s", before)
    if line is None or not guide.is_ours(shell, "line", line[1]):
        return None
    said = before[line.end() :]
    begin = re.search(rf"(?i)\b(?:{'|'.join(guide.STATEMENTS)})\s", lines[row][line.end() :])
    if begin is not None and begin.end() <= len(said) and said.split()[0].lower() not in guide.COMMANDS:
        return MagicPlace(False, None, lines[row][line.end() + begin.start() :], len(said) - begin.start())
    return MagicPlace(False, said, "", 0)


def describe_at(place: MagicPlace, known: KnownNames) -> str:
    """Return the help on the word under the cursor of a magic; empty without help."""
    if place.line is not None:
        found = re.search(r"[-\w]+$", place.line)
        return _describe_line_word(found[0]) if found else ""
    under = find_word(place.sql, place.at)
    if under is None:
        return ""
    word, qualifier = under
    name = word.name or word.text
    if qualifier is not None:
        relations = find_relations([w for w in scan(place.sql) if w.kind != "comment"], {})
        table = relations.get(qualifier.name, qualifier.name)
        held = {t: c for t, c in known.tables.items() if t.lower() == str(table).lower()}
        known = KnownNames(
            {
                t: {c: f for c, f in columns.items() if c.lower() == name.lower()}
                for t, columns in held.items()
            }
        )
        return "\n\n".join(text for text in _describe(name, known) if "a column of" in text)
    return describe_word(name, known)


def _describe_line_word(word: str) -> str:
    """Return the help on a flag or a command."""
    for flag in (*guide.RUN_FLAGS, *guide.CONNECT_FLAGS):
        if flag.name == word:
            return f"{flag.name}{' ' + flag.value if flag.value else ''}: {flag.help}"
    return f"%dpsql {word}: {guide.COMMANDS[word]}" if word in guide.COMMANDS else ""


DescribeCursor = Callable[[str, int], str]
"""Returns the help on the word under the cursor of a cell; empty for other cells and unknown words."""


def hook_kernel(kernel: Any, describe: DescribeCursor) -> None:
    """Answer Shift-Tab in our cells; other cells keep the kernel's own answer."""
    unhook_kernel(kernel)
    own = kernel.do_inspect

    def do_inspect(code: str, cursor_pos: int, *args: object, **kwargs: object) -> object:
        try:
            told = describe(code, cursor_pos)
        except Exception:  # such as a lost connection, which is no business of a tooltip
            told = ""
        if not told:
            return own(code, cursor_pos, *args, **kwargs)
        return {"status": "ok", "found": True, "data": {"text/plain": told}, "metadata": {}}

    do_inspect.__dict__["dpsql"] = True
    kernel.do_inspect = do_inspect


def unhook_kernel(kernel: Any) -> None:
    """Restore a kernel's own answers."""
    if "do_inspect" in vars(kernel) and "dpsql" in vars(kernel.do_inspect):
        del kernel.do_inspect


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


def list_parameters(space: Mapping[str, object]) -> dict[str, str]:
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
    """A matcher of IPython's completer (its API 2), for JupyterLab and the terminal."""

    matcher_api_version = 2
    matcher_identifier = "dpsql"

    def __init__(self, shell: InteractiveShell, sessions: Sessions) -> None:
        self._shell = shell
        self._sessions = sessions
        self.__qualname__ = "dpsql"  # IPython asks its matchers for one, functions or not

    def __call__(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return completions at the cursor; nothing outside our cells and lines."""
        from IPython.core.completer import SimpleCompletion

        row, column = context.cursor_line, context.cursor_position
        place = find_magic(self._shell, context.full_text, row, column)
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
        place = find_magic(self._shell, text, row, at - (text.rfind("\n", 0, at) + 1))
        if place is None:
            return ""
        if place.line is not None:  # the whole word, also behind the cursor
            place = place._replace(line=place.line + re.match(r"[-\w]*", text[at:])[0])  # type: ignore[index]  # it matches
        return describe_at(place, self.find_names())

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
            return _keep(typed, (Offer(word, "word") for word in list_helped_words()))
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
