"""What stands on the magic's own line: flags, a name for the result, and for the line magic the SQL itself.

One table of flags; the parser, the help text and completion all read it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from typing import Any

from dpsql.errors import ParseError, did_you_mean


@dataclass(frozen=True)
class Flag:
    """A flag: the value it takes (None for a switch) and one line of help."""

    name: str
    value: str | None
    help: str


RUN_FLAGS = (
    Flag("-o", "name", "keep the result as a variable and a relation, show only its cost"),
    Flag("--show", None, "with -o: show the table as well"),
    Flag("--explain", None, "say in sentences what would run and what it would cost; spends nothing"),
    Flag("--dry-run", None, "the same as --explain"),
    Flag("--params", "dict", "values of $name: a JSON object, or $variable holding a dict"),
    Flag("--plan", None, "price all statements of the cell together before the first is run"),
    Flag("--epsilon", "E", "what statements cost that don't say, in this cell"),
    Flag("--fresh", None, "pay for a new draw even if this was answered before"),
    Flag("--session", "name", "ask another open session"),
    Flag("--file", "path", "read the SQL from a file"),
    Flag("--help", None, "show this"),
)
CONNECT_FLAGS = (
    Flag("--policy", "path", "the policy file that the data owner wrote"),
    Flag("--ledger", "path", "where charges are kept; default: beside the policy"),
    Flag("--analyst", "name", "whose share of the budget is used"),
    Flag("--session", "name", "name of the session; default: main"),
)


@dataclass(frozen=True)
class Options:
    """The flags of one cell. ``name`` takes the result; ``silent`` when it was written ``name <<``."""

    name: str | None = None
    silent: bool = False
    show: bool = False
    explain: bool = False
    params: str | None = None
    fresh: bool = False
    plan: bool = False
    epsilon: str | None = None
    session: str | None = None
    file: str | None = None
    help: bool = False
    policy: str | None = None
    ledger: str | None = None
    analyst: str | None = None
    rest: tuple[str, ...] = field(default=())


_FIELDS = {"-o": "name", "--dry-run": "explain"}
_TAKEN = re.compile(r"((?:\s|--[^\n]*\n|/\*.*?\*/)*)(([A-Za-z_]\w*)\s*<<(?!<)[^\S\n]*)", re.DOTALL)
_WORD = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|\S)+)""")


def cell_line(line: str) -> Options:
    """The line of ``%%dpsql``: flags in any order, and at most one name, with or without ``<<``.

    >>> cell_line("--fresh out <<").name, cell_line("out").silent
    ('out', False)
    """
    options = words(line, RUN_FLAGS)
    rest = options.rest
    if rest and rest[-1] == "<<":
        options, rest = replace(options, silent=True), rest[:-1]
    elif rest and rest[-1].endswith("<<"):
        options, rest = replace(options, silent=True), (*rest[:-1], rest[-1][:-2])
    if not rest:
        if options.silent:
            raise ParseError("<< needs a name before it.", hint="%%dpsql out <<")
        return replace(options, rest=())
    if len(rest) > 1 or not rest[0].isidentifier():
        raise ParseError(
            f"the line of %%dpsql takes flags and a name for the result, not {' '.join(rest)!r}.",
            hint="put the SQL on the next line; %%dpsql --help lists the flags.",
        )
    return replace(options, name=rest[0], rest=())


def statement_line(line: str) -> tuple[Options, str]:
    """The line of ``%dpsql``: flags first, then the SQL, which is left as it is."""
    at = 0
    while found := _WORD.match(line, at):
        flag = _flag(found[1], RUN_FLAGS)
        if flag is None:
            break
        at = found.end()
        if flag.value and (value := _WORD.match(line, at)):
            at = value.end()
    return words(line[:at], RUN_FLAGS), line[at:].strip()


def taken(text: str) -> tuple[str | None, str]:
    """Splits ``out << SELECT ...``, also below comments; blanks take its place, so carets stay right.

    >>> taken("out << SELECT 1")
    ('out', '       SELECT 1')
    """
    found = _TAKEN.match(text)
    if not found:
        return None, text
    blanks = re.sub(r"[^\n]", " ", found[2])
    return found[3], found[1] + blanks + text[found.end() :]


def words(line: str, flags: tuple[Flag, ...]) -> Options:
    """Flags and words of a line.

    Raises:
        ParseError: an unknown flag (the nearest is named), a missing value, an open quote.
    """
    try:
        tokens = shlex.split(line)
    except ValueError:
        raise ParseError("a quote on this line is not closed.", text=line) from None
    given: dict[str, Any] = {}
    rest: list[str] = []
    queue = iter(tokens)
    for token in queue:
        flag = _flag(token, flags)
        if flag is None:
            rest.append(token)
            continue
        name, glued, value = token.partition("=")
        if flag.value is None:
            given[_field(name)] = True
            continue
        if not glued:
            value = next(queue, "")
        if not value:
            raise ParseError(f"{name} needs a value.", hint=f"{name} {flag.value}: {flag.help}")
        given[_field(name)] = value
    return Options(**given, rest=tuple(rest))


def _field(name: str) -> str:
    return _FIELDS.get(name, name.lstrip("-"))


def _flag(token: str, flags: tuple[Flag, ...]) -> Flag | None:
    """The flag that a word is; None for a word that isn't one (a SQL comment is not)."""
    if not re.match(r"-{1,2}[A-Za-z]", token):
        return None
    name = token.partition("=")[0]
    known = {flag.name: flag for flag in flags}
    if name not in known:
        raise ParseError(f"there is no flag {name}.", hint=did_you_mean(name, known))
    return known[name]
