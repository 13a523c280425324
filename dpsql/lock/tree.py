"""The tree of an exact query, which both readers build: the few kinds of nodes and functions that the second lock accepts.

Every function here depends on its arguments only, in every version of DuckDB. Anything else is refused: macros of the owner,
functions that read files or settings, random functions, functions that read the clock.

The module also has the lock's other inputs: the policy's tables, the public relations passed with a text, and reserved names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, get_args

from dpsql.catalogue.aggregate_names import EXACT_AGGREGATES
from dpsql.catalogue.row_names import DUCKDB_WORDS, EXACT_CALLS
from dpsql.errors import PrivacyError
from dpsql.late_dataclass import dataclass


class Unproved(PrivacyError):
    """No proof of an exact query could be derived; nothing was charged. ``why`` is for tests: analysts see no part of it."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "this statement's exact query could not be proved safe, so it does not run.",
            hint="write the statement in a simpler way, and please report it. Nothing was charged.",
        )
        self.why = why


def refuse(why: str) -> NoReturn:
    """Raise Unproved."""
    raise Unproved(why)


class Ref(NamedTuple):
    """A column, qualified by the alias of a FROM item."""

    table: str
    name: str


@dataclass(slots=True)
class Literal:
    """A constant."""

    value: int | Fraction | float | str | bool | None

    @property
    def integer(self) -> int | None:
        """Return its integer; None for any other value, booleans included."""
        return self.value if isinstance(self.value, int) and not isinstance(self.value, bool) else None


@dataclass(slots=True)
class Parameter:
    """A named value that is bound at release."""

    name: str


@dataclass(slots=True)
class Order:
    """One expression of an ORDER BY; ``how`` is its direction and the place of NULLs."""

    by: Expr
    how: str


@dataclass(slots=True)
class Call:
    """A function, operator or aggregate, by its lower-case name."""

    name: str
    args: tuple[Expr, ...]
    distinct: bool = False
    where: Expr | None = None
    order: tuple[Order, ...] = ()
    names: tuple[str, ...] = ()
    """The names of a struct's fields."""
    most: int | None = None
    """For a sum, the largest total of its type; None if the engine's plan proves that each total fits."""


@dataclass(slots=True)
class Cast:
    """A cast to a type, by its first word. ``attempt``: TRY_CAST. ``detail``: the type's digits or parts."""

    child: Expr
    type: str
    attempt: bool
    detail: str = ""


@dataclass(slots=True)
class Window:
    """A window function. ``start`` and ``end`` are DuckDB's names for the ends of the frame."""

    name: str
    args: tuple[Expr, ...]
    partition: tuple[Expr, ...]
    order: tuple[Order, ...]
    start: str
    end: str
    ends: tuple[Expr | None, Expr | None]
    where: Expr | None = None
    plain: bool = True
    """False with DISTINCT, IGNORE NULLS or EXCLUDE."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A parameter of a lambda, within its body."""

    name: str


@dataclass(slots=True)
class Lambda:
    """A function of a list's elements."""

    names: tuple[str, ...]
    body: Expr


@dataclass(slots=True)
class Subquery:
    """A subquery. ``kind`` is EXISTS, NOT_EXISTS, ANY (``child IN (query)``) or SCALAR."""

    kind: str
    query: Query
    child: Expr | None = None


Expr = Ref | Literal | Parameter | Call | Cast | Window | Bound | Lambda | Subquery
_EXPRESSIONS = frozenset(get_args(Expr))


@dataclass(slots=True)
class Table:
    """A base table by its full path, or a CTE or passed relation by one name."""

    path: tuple[str, ...]
    alias: str


@dataclass(slots=True)
class Derived:
    """A subquery in FROM."""

    query: Query
    alias: str


@dataclass(slots=True)
class Values:
    """Literal rows."""

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
    """A join. ``kind`` is INNER, LEFT, RIGHT, OUTER, SEMI or ANTI; without a condition it is a cross join."""

    left: Source
    right: Source
    kind: str
    on: Expr | None
    asof: bool


Source = Table | Derived | Values | Made | Join


@dataclass(slots=True)
class Select:
    """One SELECT. Every item has a name."""

    items: tuple[tuple[str, Expr], ...]
    source: Source | None
    ctes: tuple[tuple[str, Query], ...] = ()
    where: Expr | None = None
    groups: tuple[Expr, ...] = ()
    having: Expr | None = None
    qualify: Expr | None = None
    distinct: bool = False
    order: tuple[Order, ...] = ()
    limit: int | None = None
    """LIMIT; -1 if it is bound at release."""


@dataclass(slots=True)
class Union:
    """UNION, EXCEPT or INTERSECT, with or without ALL."""

    kind: str
    parts: tuple[Query, ...]
    ctes: tuple[tuple[str, Query], ...] = ()
    limit: int | None = None


Query = Select | Union

# -- inside expressions ---------------------------------------------------------------------------------------------


def _list_fields(node: Any) -> list[Any]:
    return [getattr(node, name) for name in reversed(node.__slots__)]


def parts(node: Expr) -> list[Expr]:
    """Return the direct subexpressions, without those of subqueries."""
    found: list[Expr] = []
    stack = _list_fields(node)
    while stack:
        part = stack.pop()
        if part.__class__ in _EXPRESSIONS:
            found.append(part)
        elif part.__class__ is tuple:
            stack.extend(reversed(part))
        elif part.__class__ is Order:
            found.append(part.by)
    return found


def subexpressions(node: Expr) -> list[Expr]:
    """Return an expression and all of its subexpressions, without those of subqueries; each stands before its own."""
    found: list[Expr] = []
    stack: list[Any] = [node]
    while stack:
        part = stack.pop()
        kind = part.__class__
        if kind in _EXPRESSIONS:
            found.append(part)
            if kind is not Ref and kind is not Literal:
                stack.extend(_list_fields(part))
        elif kind is tuple:
            stack.extend(reversed(part))
        elif kind is Order:
            stack.append(part.by)
    return found


def has(node: Expr, *kinds: type[Expr]) -> bool:
    """Return whether an expression or any of its subexpressions is of one of these classes."""
    return not {part.__class__ for part in subexpressions(node)}.isdisjoint(kinds)


def looks_beyond(node: Expr) -> bool:
    """Return whether an expression has a subquery or a window, so it may read more than its own row."""
    return has(node, Subquery, Window)


def aggregated(node: Expr) -> bool:
    """Return whether an expression has an aggregate without OVER."""
    return not AGGREGATES.isdisjoint([part.name for part in subexpressions(node) if part.__class__ is Call])


def reads_rows(node: Expr) -> bool:
    """Return whether an expression has an aggregate, a subquery or a window, so it may read more than one row."""
    for part in subexpressions(node):
        if isinstance(part, Subquery | Window) or (isinstance(part, Call) and part.name in AGGREGATES):
            return True
    return False


def refs(node: Expr) -> list[Ref]:
    """Return the columns of an expression, without those of its subqueries."""
    return [part for part in subexpressions(node) if part.__class__ is Ref]


def replace_columns(node: Expr, of: Callable[[Ref], Expr], why: str | None = None) -> Expr:
    """Return an expression with its columns replaced; parts that can't be are kept, or refused for the reason ``why``."""
    match node:
        case Ref():
            return of(node)
        case Cast():
            return replace(node, child=replace_columns(node.child, of, why))
        case Call(where=None, order=()):
            return replace(node, args=tuple(replace_columns(arg, of, why) for arg in node.args))
    return node if why is None or isinstance(node, Literal) else refuse(why)


def named_sources(source: Source | None) -> Iterator[tuple[str, Source]]:
    """Yield the parts of a FROM by their aliases."""
    if isinstance(source, Join):
        yield from named_sources(source.left)
        yield from named_sources(source.right)
    elif source is not None:
        yield source.alias, source


def tables_of(given: object) -> set[str]:
    """Return the aliases that qualify the columns of a query and its subqueries."""
    return {node.table for node in _nodes(given) if isinstance(node, Ref)}


def columns_of(given: object) -> frozenset[str]:
    """Return the names of the columns in a query and its subqueries."""
    return frozenset(node.name for node in _nodes(given) if isinstance(node, Ref))


def _nodes(given: object) -> list[object]:
    """Return the nodes of this module in a query, with those of its subqueries, in any order."""
    found, stack = [], [given]
    while stack:
        part = stack.pop()
        if part.__class__ is tuple:
            stack.extend(part)
        elif part.__class__.__module__ == __name__:
            found.append(part)
            for name in part.__slots__:  # type: ignore[attr-defined]
                stack.append(getattr(part, name))
    return found


def conjuncts(node: Expr | None) -> list[Expr]:
    """Return the conditions that AND connects."""
    match node:
        case None:
            return []
        case Call("and", args):
            return [part for arg in args for part in conjuncts(arg)]
    return [node]


def widened(node: Expr) -> Expr:
    """Return an expression without the casts to HUGEINT around it."""
    while isinstance(node, Cast) and node.type == "HUGEINT":
        node = node.child
    return node


def addends(node: Expr) -> list[Expr]:
    """Return the terms of a sum."""
    match widened(node):
        case Call("+", (left, right)):
            return [*addends(left), *addends(right)]
        case single:
            return [single]


def integer(node: Expr | None) -> int | None:
    """Return the integer of a literal."""
    return node.integer if isinstance(node, Literal) else None


def present(node: Expr) -> Expr | None:
    """Return the operand of IS NOT NULL."""
    match node:
        case Call("is not null", (inner,)) | Call("not", (Call("is null", (inner,)),)):
            return inner
    return None


_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
RANGES = {name: (-(1 << bits - 1), (1 << bits - 1) - 1) for name, bits in _BITS.items()}
RANGES |= {f"U{name}": (0, (1 << bits) - 1) for name, bits in _BITS.items()}
"""The least and the greatest integer of each type."""
_WINDOWS = "row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value first last"
_OPERATORS = """
-> ->> + - * / // % ** ^ & && | << >> || ~ ~~ !~~ ~~* !~~* ~~~ @ ! = <> < > <= >= and or not in between case coalesce try nullif
"""
AGGREGATES = EXACT_AGGREGATES
WINDOWS = frozenset(_WINDOWS.split())
OPAQUE = "Function"
"""A function of its arguments with no other known property. Names from DuckDB's texts have no capitals."""
SCALARS = frozenset({*_OPERATORS.split(), *DUCKDB_WORDS, *EXACT_CALLS, OPAQUE}) | {
    "is null",
    "is not null",
    "not in",
    "is distinct from",
    "is not distinct from",
}
TABLES = ("range", "generate_series", "unnest")


@dataclass(frozen=True)
class Hop:
    """One step of the path to a unit: the row of ``table`` with an equal ``key``, and its column with the next value."""

    table: tuple[str, ...]
    key: str
    column: str
    kind: str = ""
    """The SQL type of that column."""
    parted: bool = False
    """Whether the unit is the pair of that column and the row's period."""


@dataclass(frozen=True)
class Base:
    """A table of the policy.

    Args:
        columns: SQL types by name.
        unit: the privacy unit's column, or the start of the path to it.
        path: the hops from there; empty if the column is the unit.
        kind: the unit's SQL type.
        period: a function, its part, and its column: the unit is the pair of the unit column and that function's value.
        dated: whether a text may read only the periods that pay for it.
        undated: whether all periods must pay, as its units have none.
    """

    columns: Mapping[str, str]
    public: bool = False
    unit: str | None = None
    path: tuple[Hop, ...] = ()
    kind: str = ""
    period: tuple[str, str, str] | None = None
    dated: bool = False
    undated: bool = False

    @cached_property
    def names(self) -> frozenset[str]:
        """The lower-case names of all columns."""
        return frozenset(map(str.lower, self.columns))

    def among(self, named: frozenset[str] | None) -> Mapping[str, str]:
        """Return the columns of these names, and those that make the unit; None: all columns."""
        if named is None:
            return self.columns
        needed = (self.unit, self.period[2] if self.period is not None else None)
        kept = {name: self.columns[name] for name in named if name in self.columns}
        return kept | {
            name: self.columns[name] for name in needed if name is not None and name in self.columns
        }


@dataclass(frozen=True)
class Lent:
    """A public relation that is passed with a text; ``count``: its number of rows, if known."""

    columns: frozenset[str]
    count: int | None = None
    unique: str | None = None
    """A column without duplicates."""


@dataclass(frozen=True)
class Known:
    """The meanings of names in a text.

    Args:
        tables: the policy's tables, by catalog, schema and name.
        lent: the passed relations, by name.
        salt: parameters with secret values.
        macros: functions that the owner's database defines.
    """

    tables: Mapping[tuple[str, ...], Base]
    lent: Mapping[str, Lent] = field(default_factory=dict)
    salt: frozenset[str] = frozenset({"salt"})
    macros: frozenset[str] = frozenset()
