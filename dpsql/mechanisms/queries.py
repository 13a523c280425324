"""Queries as values, and the one printer of their text in DuckDB's SQL.

A source of a query may be a query, so that a text with five levels is five values, each named and written once, from the inside
out. Expressions in them are texts of ours. Values are printed where an operator or an engine takes a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

from dpsql.late_dataclass import dataclass

CANDIDATE_PLACE = "dpsql_ord"
"""The column of the candidates' order."""


class QueryText(str):
    """A query's text, with the query that it was written from."""

    query: Query

    @classmethod
    def of(cls, query: Query, text: str) -> QueryText:
        """Return a text of a query."""
        made = cls(text)
        made.query = query
        return made


@dataclass(frozen=True)
class As:
    """An expression or a relation under another name."""

    sql: str
    name: str

    def __str__(self) -> str:
        return f"{self.sql} AS {self.name}"


ROW_COUNT = As("COUNT(*)", "n")


@dataclass(frozen=True)
class Subquery:
    """A query in FROM, under a name."""

    query: Query | str
    name: str

    def __str__(self) -> str:
        return f"({self.query}) AS {self.name}"


@dataclass(frozen=True)
class Join:
    """A join of two sources; without a condition it has all pairs of their rows."""

    left: Source
    right: Source
    on: str = ""
    side: str = ""

    def __str__(self) -> str:
        word = f"{self.side} JOIN" if self.side else "JOIN" if self.on else "CROSS JOIN"
        return f"{self.left} {word} {self.right}{' ON ' if self.on else ''}{self.on}"


def cross(*sources: Source) -> Source:
    """Return all combinations of the rows of some sources."""
    first, *others = sources
    for other in others:
        first = Join(first, other)
    return first


Source = str | As | Subquery | Join
"""What FROM takes: a relation's name, or one of these values."""


@dataclass(frozen=True)
class Select:
    """A SELECT, clause by clause: all of several conditions must be true; ``with_`` has the named queries in order."""

    columns: str | As | tuple[str | As, ...]
    source: Source = ""
    where: str | tuple[str, ...] = ()
    group: str | tuple[str, ...] = ()
    having: str = ""
    qualify: str | tuple[str, ...] = ()
    order: str | tuple[str, ...] = ()
    limit: int | None = None
    offset: int | None = None
    distinct: bool = False
    with_: Mapping[str, Query | str] = field(default_factory=dict, hash=False)

    @cached_property
    def sql(self) -> QueryText:
        """The query's text."""
        named = ", ".join(f"{name} AS ({query})" for name, query in self.with_.items())
        columns = ("SELECT DISTINCT" if self.distinct else "SELECT", _join(", ", self.columns))
        whole = (("WITH", named), columns, ("FROM", str(self.source)), *self.clauses)
        return QueryText.of(self, " ".join(f"{word} {text}" for word, text in whole if text))

    @property
    def clauses(self) -> list[tuple[str, str]]:
        """The words and the texts of the clauses after FROM, in order."""
        whole = (
            ("WHERE", _join(" AND ", self.where)),
            ("GROUP BY", _join(", ", self.group)),
            ("HAVING", self.having),
            ("QUALIFY", _join(" AND ", self.qualify)),
            ("ORDER BY", _join(", ", self.order)),
            ("LIMIT", "" if self.limit is None else str(self.limit)),
            ("OFFSET", "" if self.offset is None else str(self.offset)),
        )
        return [(word, text) for word, text in whole if text]

    def __str__(self) -> str:
        return self.sql


@dataclass(frozen=True)
class Union:
    """The rows of several queries: all of them, or each different row once."""

    parts: tuple[Query, ...]
    distinct: bool = False

    @property
    def sql(self) -> QueryText:
        """The query's text."""
        return QueryText.of(self, (" UNION " if self.distinct else " UNION ALL ").join(map(str, self.parts)))

    def __str__(self) -> str:
        return self.sql


Query = Select | Union


def _join(between: str, parts: object) -> str:
    return between.join(map(str, parts)) if isinstance(parts, tuple) else str(parts)


def write_filter(condition: str) -> str:
    """Return the FILTER of an aggregate by a condition; empty without one."""
    return f" FILTER (WHERE {condition})" if condition else ""
