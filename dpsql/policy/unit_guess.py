"""Guesses of the privacy unit's column, from the names of columns and declared keys alone.

The owner has to confirm a guess, because no name proves that a column identifies a person. If no column looks like a
person, there is no guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from dpsql.errors import did_you_mean, find_nearest
from dpsql.policy.validate import fold

_PEOPLE = """
    person people patient subject user customer client member visitor guest student pupil teacher employee worker staff
    participant respondent citizen resident voter donor driver rider passenger player author seller buyer borrower
    taxpayer individual human insured policyholder enrollee beneficiary applicant subscriber cardholder inhabitant cust
    emp usr pat subj
"""
_GROUPS = "household family account device"
_KEYS = "id key no nr num number uuid guid code pseudonym hash ref sk identifier"
_DIRECT = "email mail phone msisdn imsi ssn passport username login cookie"
_PERSON = frozenset(_PEOPLE.split())
_GROUP = frozenset(_GROUPS.split())
_KEY = frozenset(_KEYS.split())
_ADDRESS = frozenset(_DIRECT.split())
_NAMES_A_THING = _KEY | {"zip", "zipcode", "postcode", "postal", "isbn", "ean", "icd", "cpt", "barcode"}
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_JOINED = re.compile(rf"({'|'.join(sorted(_PERSON | _GROUP, key=len, reverse=True))})({'|'.join(_KEY)})")


class Described(Protocol):
    """A table's name, columns and declared keys, like :class:`dpsql.engine.schemas.TableSchema`."""

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> Mapping[str, str | None]: ...
    @property
    def unique(self) -> frozenset[str]: ...
    @property
    def references(self) -> Mapping[str, tuple[str, str]]: ...


def split_words(name: str) -> list[str]:
    """Split a column's name into lower-case words.

    >>> split_words("patientID"), split_words("CUST_KEY"), split_words("userid")
    (['patient', 'id'], ['cust', 'key'], ['user', 'id'])
    """
    words: list[str] = []
    for word in (found.lower() for found in _WORD.findall(name)):
        joined = _JOINED.fullmatch(word)
        words += joined.groups() if joined else [word]
    return words


def names_a_thing(name: str) -> bool:
    """Return whether a number of that name is a key or a code, whose sum has no meaning.

    >>> names_a_thing("order_id"), names_a_thing("zip"), names_a_thing("amount")
    (True, True, False)
    """
    words = split_words(name)
    return bool(words) and words[-1] in _NAMES_A_THING


def names_a_person(name: str) -> bool:
    """Return whether a text of that name is a person's name or address, which no list of public values has.

    >>> names_a_person("e_mail"), names_a_person("last_name"), names_a_person("ward")
    (True, True, False)
    """
    words = split_words(name)
    return bool(words) and (
        words[-1] in _ADDRESS or words[-1] in ("name", "surname", "address") or names_a_thing(name)
    )


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _rank(column: str, table: str) -> int:
    """Return the likeness of a name to that of a person's key: 0 is closest, 9 is none."""
    words = split_words(column)
    singular = [_singular(word) for word in words]
    key = bool(words) and words[-1] in _KEY
    if key and _PERSON.intersection(singular[:-1]):
        return 0
    if singular and singular[-1] in _PERSON:
        return 1
    last = _singular(split_words(table)[-1]) if split_words(table) else ""
    if words in (["id"], ["key"], ["uuid"]) and last in _PERSON:
        return 2
    if singular and singular[-1] in _ADDRESS and len(words) <= 2:
        return 3
    if _GROUP.intersection(singular) and (key or singular[-1] in _GROUP):
        return 4
    return 9


def guess_unit(table: Described) -> str | None:
    """Return the column that looks most like a person's key; None if none does."""
    ranked = [(_rank(column, table.name), place, column) for place, column in enumerate(table.columns)]
    best = min(ranked, default=(9, 0, ""))
    return best[2] if best[0] < 9 else None


def list_candidates(table: Described) -> list[str]:
    """Return the columns that are keys by their names: one of them may be the privacy unit."""
    return [c for c in table.columns if (w := split_words(c)) and (w[-1] in _KEY or w[-1] in _ADDRESS)]


def find_units(tables: Sequence[Described], wanted: str | None) -> dict[str, str]:
    """Return each table's unit as a policy writes it: a column or a path to it. ``wanted``: the owner's column; None: a guess."""
    found: dict[str, str] = {}
    for table in tables:
        named = {fold(column): column for column in table.columns}
        column = guess_unit(table) if wanted is None else named.get(fold(wanted))
        if column is not None:
            found[table.name] = column
    own = dict(found)
    for table in tables:
        for column, (there, key) in _list_references(table, tables).items():
            known = there in own and own.get(table.name) == column and fold(own[there]) == fold(key)
            if known and wanted is None:  # `there` is the table of persons
                found[table.name] = f"{_quote(column)} -> {there}.{_quote(key)}, {_quote(key)}"
    for _ in tables:  # tables that lead to these, in any number of steps
        for table in tables:
            for column, (there, key) in _list_references(table, tables).items():
                if there in found and table.name not in found:
                    rest = found[there] if "->" in found[there] else _quote(found[there])
                    found[table.name] = f"{_quote(column)} -> {there}.{_quote(key)}, {rest}"
    return found


def _quote(name: str) -> str:
    """Quote a column's name if it is no plain word."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_$]*", name) else '"{}"'.format(name.replace('"', '""'))


def _list_references(table: Described, tables: Sequence[Described]) -> dict[str, tuple[str, str]]:
    """Return the columns that lead to another table, by declared keys or by names like ``order_id`` of ``orders``."""
    by_name = {fold(other.name): other for other in tables if other is not table and "." not in other.name}
    found: dict[str, tuple[str, str]] = {}
    for column in table.columns:
        there, key = table.references.get(fold(column), ("", ""))
        other = by_name.get(fold(there))
        if other is not None:
            found[column] = (other.name, key)
            continue
        words = split_words(column)
        if len(words) < 2 or words[-1] not in _KEY:
            continue
        for name, other in by_name.items():
            if [_singular(word) for word in split_words(name)] != words[:-1]:
                continue
            keys = {fold(c): c for c in other.columns}
            own = keys.get(words[-1]) or keys.get(fold(column))
            if own is not None:
                found[column] = (other.name, own)
    return found


def write_unit(column: str) -> str:
    r"""Return the ``privacy_unit`` line of a column: in double quotes if it is no plain word.

    >>> write_unit("person"), write_unit("Kunden Nr.")
    ('privacy_unit = "person"', 'privacy_unit = \'"Kunden Nr."\'')
    """
    quoted = _quote(column)
    return f'privacy_unit = "{column}"' if quoted == column else f"privacy_unit = '{quoted}'"


def suggest_unit(column: str, known: Iterable[str], alone: bool) -> str | None:
    """Return a hint with the nearest, or all, of the known columns; ``alone``: as the whole line of ``privacy_unit``."""
    names = list(known)
    near = find_nearest(column, names) if alone else None
    return (
        did_you_mean(column, names)
        if near is None
        else f"did you mean {near}? Then write {write_unit(near)}."
    )
