"""Help on one word: an option, a mechanism, a table or a flag.

JupyterLab shows it at Shift-Tab and next to completion; ``%dpsql help WORD`` and the prompt's ``.help WORD`` print it. It
reads public names only, and no private row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dpsql.catalogue.aggregate_names import AGGREGATES, MODE_HELP, OWN_MODES
from dpsql.errors import BindError, did_you_mean
from dpsql.notebook import guide
from dpsql.notebook.completion import SHOWN, KnownNames, list_arguments
from dpsql.notebook.sql_shape import Word, find_relations, is_unfinished, scan

_OURS = {
    "OPTIONS": "OPTIONS (epsilon = 0.1, ...): what the SELECT may cost, and how it is answered. Tab lists the options.",
    "OVER": "MECHANISM(...) OVER candidates: the choice is among the rows of this public relation.",
    "EXPLAIN": "EXPLAIN SELECT ...: what would run and what it would cost. Spends nothing, reads no private row.",
    "SHOW": f"SHOW {' | '.join(SHOWN)}: a relation about the session.",
    "DECLARE": "DECLARE name ABOVE_THRESHOLD 100 OPTIONS (epsilon = 1): questions asked one by one, paid for beforehand.",
    "CLOSE": "CLOSE name: settles a declared threshold, and gives the unused budget back.",
    "CREATE": "CREATE SYNTHETIC TABLE s AS SELECT WITH DP OPTIONS (epsilon = 1) ward FROM t: public rows of a model.",
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


def find_magic(shell: Any, text: str, row: int, column: int) -> MagicPlace | None:
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

    def do_inspect(code: str, cursor_pos: int, *args: Any, **kwargs: Any) -> Any:
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
    if getattr(kernel.__dict__.get("do_inspect"), "dpsql", False):
        del kernel.do_inspect
