"""Queries as values, and the one printer of their text in DuckDB's SQL.

A source of a query may be a query, so that a text with five levels is five values, each named and written once, from the inside
out. Expressions in them are texts of ours. Values are printed where an operator or an engine takes a text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

from dpsql.late_dataclass import dataclass


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
    """A SELECT, clause by clause; several conditions must all be true, and each is written as it is.

    ``with_`` has the queries that it names, in order.
    """

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
    def sql(self) -> str:
        """The query's text."""
        text = ", ".join([f"{name} AS ({query})" for name, query in self.with_.items()])
        text = f"WITH {text} " if text else ""
        text += f"SELECT{' DISTINCT' if self.distinct else ''} {_join(', ', self.columns)}"
        for word, between, parts in (
            ("FROM", "", self.source),
            ("WHERE", " AND ", self.where),
            ("GROUP BY", ", ", self.group),
            ("HAVING", "", self.having),
            ("QUALIFY", " AND ", self.qualify),
            ("ORDER BY", ", ", self.order),
            ("LIMIT", "", self.limit),
            ("OFFSET", "", self.offset),
        ):
            if parts is None or parts == "" or parts == ():
                continue
            if joined := _join(between, parts):
                text += f" {word} {joined}"
        return text

    def __str__(self) -> str:
        return self.sql


@dataclass(frozen=True)
class Union:
    """The rows of several queries: all of them, or each different row once."""

    parts: tuple[Query, ...]
    distinct: bool = False

    @property
    def sql(self) -> str:
        """The query's text."""
        return (" UNION " if self.distinct else " UNION ALL ").join(map(str, self.parts))

    def __str__(self) -> str:
        return self.sql


Query = Select | Union


def _join(between: str, parts: object) -> str:
    return between.join(map(str, parts)) if isinstance(parts, tuple) else str(parts)


def write_filter(condition: str) -> str:
    """Return the FILTER of an aggregate by a condition; empty without one."""
    return f" FILTER (WHERE {condition})" if condition else ""
