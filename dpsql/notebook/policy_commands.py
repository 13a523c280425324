"""The owner's commands in a notebook: ``%dpsql policy init`` writes a first policy, ``%dpsql policy check`` checks one.

A source or a database may also be a variable: a frame, a mapping of names to frames, or an open DuckDB connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpsql.errors import ParseError
from dpsql.notebook.guide import Flag, parse_words
from dpsql.notebook.render import Panel
from dpsql.notebook.sessions import is_frame

INIT_FLAGS = (
    Flag("--database", "path", "a DuckDB database: the same as the source"),
    Flag("--unit", "column", "the column that says whose row it is, or ROW; else guessed from names"),
    Flag("-o", "file", "write to this file, which must not exist"),
)
CHECK_FLAGS = (
    Flag(
        "--database", "path", "a DuckDB database, or a variable; default: the sources that the policy names"
    ),
    Flag("--data", None, "count what does not fit, for the owner's eyes"),
)
INIT = "%dpsql policy init visits.parquet -o policy.toml"
CHECK = "%dpsql policy check policy.toml"


def is_policy_command(rest: str) -> bool:
    """Return whether the words after ``%dpsql policy`` are an owner's command, and not the name of a session."""
    return rest.partition(" ")[0].lower() in ("init", "check")


def run_policy_command(rest: str, space: Mapping[str, Any]) -> Panel:
    """Run ``init`` or ``check``.

    Args:
        rest: the words after ``%dpsql policy``.
        space: the notebook's variables.

    Raises:
        ParseError: words or flags that the command does not take.
        PolicyError: the source or the policy can't be read.
    """
    first, _, words = rest.partition(" ")
    return _init(words, space) if first.lower() == "init" else _check(words, space)


def _init(words: str, space: Mapping[str, Any]) -> Panel:
    from dpsql.owner.policy_init import init_policy

    given, flags = parse_words(words, INIT_FLAGS)
    if "--database" in flags:
        given = (*given, str(flags["--database"]))
    if len(given) != 1:
        raise ParseError("%dpsql policy init takes one source.", hint=INIT)
    source = _find(given[0], space)
    if is_frame(source):
        source = {given[0]: source}
    unit, output = (str(flags[name]) if name in flags else None for name in ("--unit", "-o"))
    draft = init_policy(source, unit, output)
    return Panel(str(draft).rstrip("\n") if output is None else draft.summary(output, "%dpsql"))


def _check(words: str, space: Mapping[str, Any]) -> Panel:
    from dpsql.owner.policy_check import check_policy

    given, flags = parse_words(words, CHECK_FLAGS)
    if "--database" in flags:
        given = (*given, str(flags["--database"]))
    if not 1 <= len(given) <= 2:
        raise ParseError("%dpsql policy check takes a policy, and a database if it has one.", hint=CHECK)
    data = _find(given[1], space) if len(given) > 1 else ":memory:"
    return Panel(str(check_policy(Path(given[0]), data, "--data" in flags)))


def _find(word: str, space: Mapping[str, Any]) -> Any:
    """Return the variable of that name, unless it is a text; else the word, which is a path."""
    found = space.get(word) if word.isidentifier() else None
    return found if found is not None and not isinstance(found, str) else word
