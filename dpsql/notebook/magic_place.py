"""The cursor's place in a cell: on the line of a magic of ours, in its SQL, or in somebody else's text."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from dpsql.notebook import guide


class MagicPlace(NamedTuple):
    """The cursor in a magic of ours: the words of its line, or its SQL.

    Args:
        cell: whether it is a cell magic.
        line: what follows the magic's name on its line, up to the cursor; None where the cursor is in the cell's SQL.
        sql: the SQL that the magic holds.
        at: the cursor in it.
    """

    cell: bool
    line: str | None
    sql: str
    at: int


def find_magic(shell: Any, text: str, row: int, column: int) -> MagicPlace | None:
    """Return the magic of ours that a cursor is in; None where it is in another one, or in Python.

    Args:
        shell: IPython's.
        text: the cell.
        row: the cursor's line, from 0.
        column: the cursor's place in that line.
    """
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
