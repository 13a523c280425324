"""What an exact query may be made of, whatever parser read it: the few kinds of nodes that the second lock knows.

Both readers, of DuckDB's serialised tree and of Spark's text, give this, and refuse whatever has no place in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

from dpsql.errors import PrivacyError


class Unproved(PrivacyError):
    """An exact query that could not be proved safe. ``why`` is for our own tests: no analyst sees a word of the query.

    Nothing was charged: the check comes before the payment.
    """

    def __init__(self, why: str) -> None:
        super().__init__(
            "this statement's exact query could not be proved safe, so it does not run.",
            hint="write it in a simpler way; and please report the statement: nothing was charged.",
        )
        self.why = why


def refuse(why: str) -> NoReturn:
    """Raises Unproved."""
    raise Unproved(why)


@dataclass(slots=True)
class Ref:
    """A column of a relation in FROM: always both names."""

    table: str
    name: str


@dataclass(slots=True)
class Literal:
    """A constant."""

    value: int | Fraction | float | str | bool | None


@dataclass(slots=True)
class Parameter:
    """A named value that is filled in at release."""

    name: str


@dataclass(slots=True)
class Order:
    """One expression of an ORDER BY; ``how`` is direction and place of NULLs."""

    by: Expr
    how: str


@dataclass(slots=True)
class Call:
    """A function, an operator or an aggregate, by its name in lower case."""

    name: str
    args: tuple[Expr, ...]
    distinct: bool = False
    where: Expr | None = None
    order: tuple[Order, ...] = ()
    names: tuple[str, ...] = ()
    """Of a struct's fields."""


@dataclass(slots=True)
class Cast:
    """A cast to a type, by its first word; ``attempt``: NULL where it fails. ``detail``: the type's digits or parts."""

    child: Expr
    type: str
    attempt: bool
    detail: str = ""


@dataclass(slots=True)
class Window:
    """A window function. ``start`` and ``end`` are DuckDB's words for the ends of the frame."""

    name: str
    args: tuple[Expr, ...]
    partition: tuple[Expr, ...]
    order: tuple[Order, ...]
    start: str
    end: str
    ends: tuple[Expr | None, Expr | None]
    where: Expr | None = None
    plain: bool = True
    """Whether there is neither DISTINCT, IGNORE NULLS nor EXCLUDE."""


@dataclass(slots=True)
class Subquery:
    """``kind`` is EXISTS, ANY (of ``child`` compared by ``comparison``) or SCALAR."""

    kind: str
    query: Query
    child: Expr | None
    comparison: str


Expr = Ref | Literal | Parameter | Call | Cast | Window | Subquery


@dataclass(slots=True)
class Table:
    """A base table by its whole path, or a CTE or a lent relation by one name."""

    path: tuple[str, ...]
    alias: str


@dataclass(slots=True)
class Derived:
    """A subquery in FROM."""

    query: Query
    alias: str
    columns: tuple[str, ...]


@dataclass(slots=True)
class Values:
    """Rows that are written out."""

    rows: tuple[tuple[Expr, ...], ...]
    alias: str
    columns: tuple[str, ...]


@dataclass(slots=True)
class Made:
    """A table function."""

    name: str
    args: tuple[Expr, ...]
    alias: str
    columns: tuple[str, ...]


@dataclass(slots=True)
class Join:
    """``kind`` is INNER, LEFT, RIGHT, OUTER, SEMI or ANTI; without a condition it is a cross join."""

    left: Source
    right: Source
    kind: str
    on: Expr | None
    asof: bool


Source = Table | Derived | Values | Made | Join


@dataclass(slots=True)
class Select:
    """One SELECT. Every item has a name."""

    ctes: tuple[tuple[str, Query], ...]
    items: tuple[tuple[str, Expr], ...]
    source: Source | None
    where: Expr | None
    groups: tuple[Expr, ...]
    having: Expr | None
    qualify: Expr | None
    distinct: bool
    order: tuple[Order, ...]
    limit: int | None
    """So many rows at most; -1 where that is filled in at release."""


@dataclass(slots=True)
class Union:
    """UNION, EXCEPT or INTERSECT; ``every`` keeps equal rows."""

    ctes: tuple[tuple[str, Query], ...]
    kind: str
    every: bool
    parts: tuple[Query, ...]
    limit: int | None


Query = Select | Union
