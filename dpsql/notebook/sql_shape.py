"""The shape of unfinished SQL: its tokens, its relations and their columns, as far as the text has them.

No parser reads unfinished SQL, so this looks at tokens only. No answer depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Word(NamedTuple):
    """A token of a text: its kind is ``word``, ``name`` (in double quotes), ``string``, ``parameter``, ``number`` or ``sign``."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """The identifier of the token; empty for other tokens."""
        if self.kind == "name":
            return self.text[1:-1].replace('""', '"')
        return self.text if self.kind == "word" else ""

    @property
    def upper(self) -> str:
        """The text in capitals, as keywords are compared."""
        return self.text.upper()


_SCAN = re.compile(
    r"(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))|(?P<string>'(?:''|[^'])*'?)|(?P<name>\"(?:\"\"|[^\"])*\"?)"
    r"|(?P<parameter>\$\w*)|(?P<number>\d[\w.]*|\.\d+)|(?P<word>[^\W\d]\w*)|(?P<sign>=>|<<|<=|>=|<>|!=|::|\|\||\S)",
    re.DOTALL,
)
_AFTER_RELATION = """
    WHERE GROUP HAVING ORDER LIMIT ON USING JOIN LEFT RIGHT FULL INNER OUTER CROSS NATURAL UNION EXCEPT INTERSECT SELECT SET
    WINDOW QUALIFY AS OFFSET WITH FROM LATERAL TABLESAMPLE SEMI ANTI ASOF POSITIONAL PIVOT UNPIVOT"""
_ENDS_RELATION = frozenset(_AFTER_RELATION.split())
"""Words that are no alias."""


def scan(text: str) -> list[Word]:
    """Return the tokens of a text, comments among them; one that is not closed reaches to the end."""
    return [Word(str(m.lastgroup), m[0], m.start(), m.end()) for m in _SCAN.finditer(text)]


def is_unfinished(word: Word, text: str) -> bool:
    """Return whether a comment or a quote is still open at the end of the text."""
    if word.end != len(text):
        return False
    if word.kind == "comment":
        return word.text.startswith("--") or not word.text.endswith("*/") or len(word.text) < 4
    return word.kind in ("string", "name") and word.text.count(word.text[0]) % 2 == 1


def ends_statement(text: str) -> bool:
    """Return whether a text ends with a semicolon outside quotes and comments; comments may follow it."""
    words = scan(text)
    if words and is_unfinished(words[-1], text) and not words[-1].text.startswith("--"):
        return False
    said = [word for word in words if word.kind != "comment"]
    return bool(said) and said[-1].text == ";"


ShownRelation = str | tuple[str, ...]
"""A relation by its name, or the columns of a query; ``t*`` means those of ``t``."""


def find_parenthesis_end(words: Sequence[Word], opened: int) -> int:
    """Return the index of the parenthesis that closes the one at an index; the number of words if there is none."""
    depth = 0
    for i in range(opened, len(words)):
        depth += (words[i].text == "(") - (words[i].text == ")")
        if not depth:
            return i
    return len(words)


def find_ctes(words: Sequence[Word]) -> dict[str, tuple[str, ...]]:
    """Return the common table expressions of a statement with the columns that their texts name."""
    found: dict[str, tuple[str, ...]] = {}
    for i, word in enumerate(words[:-1]):
        if not word.name or (i and words[i - 1].upper not in ("WITH", ",", "RECURSIVE")):
            continue
        columns: tuple[str, ...] = ()
        next_ = i + 1
        if words[next_].text == "(":
            end = find_parenthesis_end(words, next_)
            columns = tuple(w.name for w in words[next_ + 1 : end] if w.name)
            next_ = end + 1
        if next_ + 1 < len(words) and words[next_].upper == "AS" and words[next_ + 1].text == "(" and i:
            end = find_parenthesis_end(words, next_ + 1)
            found[word.name] = columns or _find_outputs(words[next_ + 2 : end])
    return found


def _find_outputs(words: Sequence[Word]) -> tuple[str, ...]:
    """Return the names of a query's columns, as far as its text says them."""
    start = next((i + 1 for i, w in enumerate(words) if w.upper == "SELECT"), None)
    if start is None:
        return ()
    if start + 1 < len(words) and words[start].upper == "WITH":
        start += 2
        if start + 1 < len(words) and words[start].upper == "OPTIONS":
            start = find_parenthesis_end(words, start + 1) + 1
    items: list[list[Word]] = [[]]
    depth = 0
    stop = len(words)
    for i in range(start, len(words)):
        word = words[i]
        if not depth and word.upper == "FROM":
            stop = i
            break
        depth += (word.text == "(") - (word.text == ")")
        if word.text == "," and not depth:
            items.append([])
        else:
            items[-1].append(word)
    tables = tuple(f"{r}*" for r in find_relations(words[stop:], {}).values() if isinstance(r, str))
    names: list[str] = []
    for item in items:
        if item and item[-1].text == "*":
            names += tables
        elif item and item[-1].name:
            names.append(item[-1].name)
    return tuple(names)


def find_relations(words: Sequence[Word], made: Mapping[str, tuple[str, ...]]) -> dict[str, ShownRelation]:
    """Return the relations that a statement reads, by alias or name."""
    found: dict[str, ShownRelation] = {}
    i, listing = 0, False
    while i < len(words):
        word = words[i]
        if word.upper in ("FROM", "JOIN") or (listing and word.text == ","):
            listing, i = True, i + 1
            relation, i = _read_relation(words, i)
            if relation is None:
                continue
            if i < len(words) and words[i].upper == "AS":
                i += 1
            alias = words[i].name if i < len(words) and words[i].upper not in _ENDS_RELATION else ""
            if alias:
                i += 1
            if isinstance(relation, tuple):
                found.update({alias: relation} if alias else {"": relation})
            else:
                exact = next((name for name in made if name.lower() == relation.lower()), relation)
                found[alias or relation] = exact
            continue
        listing = listing and word.upper not in _ENDS_RELATION - {"AS", "ON", "USING"} and word.text != ")"
        i += 1
    found.pop("", None)
    return found


def _read_relation(words: Sequence[Word], i: int) -> tuple[ShownRelation | None, int]:
    """Read a relation that begins at an index; return it, and where its alias may stand."""
    if i >= len(words):
        return None, i
    if words[i].text == "(":
        end = find_parenthesis_end(words, i)
        inner = words[i + 1 : end]
        return (_find_outputs(inner), end + 1) if inner and end < len(words) else (None, i + 1)
    if not words[i].name or words[i].upper in _ENDS_RELATION:
        return None, i
    name = words[i].name
    i += 1
    while i + 1 < len(words) and words[i].text == "." and words[i + 1].name:
        name, i = words[i + 1].name, i + 2
    return name, i
