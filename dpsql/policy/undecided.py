"""The decisions that a policy's text leaves to its owner: each ``"TODO"``, and each privacy unit that is still called a guess."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsql.errors import PolicyError
from dpsql.policy.toml import TODO, parse_toml
from dpsql.policy.validate import fold

_DECISIONS = {
    "privacy_unit": 'the column that says whose row it is, or "ROW"',
    "max_rows": "the rows that one unit may have in all, as max_rows = 20",
    "max_rows_per_group": "the rows of one unit that count in one group, as max_rows_per_group = 5",
    "max_groups": "the groups of one answer that one unit counts in, as max_groups = 3",
    "bounds": "the lowest and the highest value that count, as bounds = [0, 100]; delete the line where nobody adds it up",
    "values": 'every value that there can be, as values = ["A", "B"]',
    "type": "paste the section below in place of what is there, and correct it",
}
"""The answer that each key asks of the owner."""
_GUESS = re.compile(r"\s*(privacy_unit\s*=[^#]*?)\s*#.*\bGUESS\b")


@dataclass(frozen=True)
class Undecided:
    """The places of a policy that wait for its owner.

    Args:
        places: table, column (empty for the table itself), key and line of each TODO.
        guesses: the text and the line of each privacy unit that is called a guess.
    """

    places: tuple[tuple[str, str, str, int], ...]
    guesses: tuple[tuple[str, int], ...]

    def has(self, key: str, table: str | None = None, column: str = "") -> bool:
        """Tell whether a key of a table, or of one of its columns, is a TODO; without a table, of any."""
        return any(
            key == there and (table is None or (fold(table), fold(column)) == (fold(name), fold(within)))
            for name, within, there, _ in self.places
        )

    def lines(self) -> list[str]:
        """Return what is to be decided as sentences, columns of one table together."""
        together: dict[tuple[str, str, bool], list[tuple[str, int]]] = {}
        for table, column, key, line in self.places:
            together.setdefault((table, key, column != ""), []).append((column, line))
        lines = [_say(table, key, found) for (table, key, _), found in together.items()]
        return lines + [
            f"{text} (line {line}) is a guess: is that whose presence is to be hidden? Correct it, or delete the word GUESS."
            for text, line in self.guesses
        ]


def find_undecided(path: Path) -> Undecided:
    """Find what a policy file leaves to its owner.

    Raises:
        PolicyError: the file can't be read, or is not TOML.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise PolicyError(f"the policy file {path} can't be read.", hint="is the path right?") from None
    document = parse_toml(text, path.name)
    places = []
    for keys in _find_todos(document.data, ()):
        line = text.count("\n", 0, (document.span(keys) or (0, 0))[0]) + 1
        places.append((keys[1], "" if len(keys) == 3 else keys[-2], keys[-1], line))
    matches = ((_GUESS.match(line), number) for number, line in enumerate(text.splitlines(), 1))
    return Undecided(
        tuple(places), tuple((found[1], number) for found, number in matches if found is not None)
    )


def _find_todos(section: Mapping[str, Any], keys: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _find_todos(value, (*keys, key))
        elif value == TODO and key in _DECISIONS and keys[:1] == ("tables",) and len(keys) > 1:
            yield (*keys, key)


def _say(table: str, key: str, places: list[tuple[str, int]]) -> str:
    where = f"line {places[0][1]}" if len(places) == 1 else f"lines {places[0][1]} to {places[-1][1]}"
    names = ", ".join(name for name, _ in places if name)
    verb = "are" if key in ("bounds", "values") else "is"
    return (
        f"{table}: {key}{f' of {names}' if names else ''} {verb} still {TODO} ({where}): {_DECISIONS[key]}."
    )
