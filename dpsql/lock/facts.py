"""The second lock's facts about relations: owners of rows, rows per unit, bounds of columns.

Every column has a *symbol*, an integer that identifies its value through all relations. Equal expressions over equal symbols
have one symbol. A column is the privacy unit if and only if its symbol is that of the base table's unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from dpsql.late_dataclass import dataclass
from dpsql.lock.tree import Hop, Ref

Number = int | None
"""A number that may be unknown."""
Thing = TypeVar("Thing")


def add(a: Number, b: Number) -> Number:
    """Return the sum; None if a number is unknown."""
    return None if a is None or b is None else a + b


def times(a: Number, b: Number) -> Number:
    """Return the product; None if a number is unknown."""
    return None if a is None or b is None else a * b


def least(*numbers: Number) -> Number:
    """Return the least known number."""
    return min((n for n in numbers if n is not None), default=None)


class Symbol(int):
    """An identifier of a value."""


Set = frozenset[Symbol]
_NONE: Set = frozenset()


class Symbols:
    """Assigns symbols to values.

    ``made``: the columns that determine a computed value. ``covers``: the columns that determine a hash and are determined by
    it. ``secret``: the values that can't be predicted without the salt.
    """

    def __init__(self) -> None:
        self._next = 0
        self._known: dict[tuple[object, ...], Symbol] = {}
        self.made: dict[Symbol, Set] = {}
        self.covers: dict[Symbol, Set] = {}
        self.secret: set[Symbol] = set()
        self._args: dict[Symbol, tuple[Symbol, ...]] = {}

    def fresh(self) -> Symbol:
        """Return a new symbol."""
        self._next += 1
        return Symbol(self._next)

    def constant(self, key: tuple[object, ...], secret: bool = False) -> Symbol:
        """Return the symbol of a literal or a parameter."""
        symbol = self._of(key, _NONE)
        if secret:
            self.secret.add(symbol)
        return symbol

    def call(self, name: str, args: Iterable[Symbol], more: object = None) -> Symbol:
        """Return the symbol of a function of values."""
        given = tuple(args)
        made = _NONE.union(*[self.made.get(arg, {arg}) for arg in given])
        symbol = self._of((name, more, *given), made)
        self._args[symbol] = given
        if not self.secret.isdisjoint(given):
            self.secret.add(symbol)
        if name in ("hash", "xor") and symbol not in self.covers:
            self._cover(name, symbol, given)
        return symbol

    def _cover(self, name: str, symbol: Symbol, given: tuple[Symbol, ...]) -> None:
        variable = [arg for arg in given if self.made.get(arg) != _NONE]
        if name == "xor" and len(variable) != 1:
            return
        self.covers[symbol] = frozenset().union(*(self.determined_by(arg) for arg in variable))

    def determined_by(self, symbol: Symbol) -> Set:
        """Return the values that a value determines: itself and, for a hash, its arguments."""
        return self.covers.get(symbol, _NONE) | {symbol}

    def decided(self, symbol: Symbol, by: Set) -> bool:
        """Return whether a value is a function of those, directly or through its arguments."""
        if symbol in by:
            return True
        made = self.made.get(symbol)
        if made is None or made <= by:
            return made is not None
        args = self._args.get(symbol)
        return args is not None and all(self.decided(arg, by) for arg in args)

    def renaming(self) -> Callable[[Symbol], Symbol]:
        """Return a function from symbols to new symbols with the same properties; it maps equal symbols to equal ones."""
        known: tuple[dict[Symbol, Any], ...] = (self._args, self.made, self.covers)

        @cache
        def renamed(symbol: Symbol) -> Symbol:
            if self.made.get(symbol) == _NONE:
                return symbol
            new = self.fresh()
            for table in known:
                if symbol in table:
                    table[new] = _rename(table[symbol], renamed)
            if symbol in self.secret:
                self.secret.add(new)
            return new

        return renamed

    def _of(self, key: tuple[object, ...], made: Set) -> Symbol:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self.fresh()
            self.made[found] = made
        return found


@dataclass(slots=True)
class Value:
    """An expression of a row, or of a cell (an aggregate's group).

    Args:
        symbol: its identity.
        low, high: integer bounds, unless it is NULL.
        nullable: whether it may be NULL.
        whole: whether it is an integer.
        times: a nonnegative column and two factors: it lies between these multiples of the column.
        besides: a second such bound, if a clamp allows either column at one end.
        share: a column and a number: it is nonnegative, and its product with the column is at most the number.
        there: a condition that holds exactly if it is not NULL.
        budget: the most that one unit's values add up to.
        odd: the symbols whose count decides its parity; empty: always even; None: unknown.
        half: for a total in two columns: its name, the steps of it in this column, the steps in the first column (0 for the
            second), and how far one unit moves both together, in one cell and in all.
        weight: for a cell: how far one more source row changes it.
        total: for a cell: how far one unit changes it, over all cells.
        halved: whether the weight is that of twice the number.
        step: for a cell: how far one more row lowers it (at most 0) and raises it (at least 0).
        public: whether it is an unchanged column of a public relation.
        narrow: whether it is a sum of integers of at most 92 bits, so it has at most 38 digits over 2**34 rows.
    """

    symbol: Symbol
    low: Number = None
    high: Number = None
    nullable: bool = True
    whole: bool = False
    times: tuple[Symbol, Number, Number] | None = None
    besides: tuple[Symbol, Number, Number] | None = None
    share: tuple[Symbol, int] | None = None
    there: Symbol | None = None
    budget: Number = None
    odd: frozenset[object] | None = None
    half: tuple[str, int, int, int, Number] | None = None
    weight: Number = None
    total: Number = None
    halved: bool = False
    step: tuple[int, int] | None = None
    public: bool = False
    narrow: bool = False

    @property
    def most(self) -> Number:
        """Return the largest absolute value."""
        return None if self.low is None or self.high is None else max(abs(self.low), abs(self.high))

    def plain(self) -> Value:
        """Return this value without its sensitivities."""
        return replace(self, weight=None, total=None, halved=False, step=None)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about the rows of one privacy unit.

    Args:
        rows: caps on the rows that agree in these columns.
        groups: caps on the number of different values of these columns.
        units: columns that are the unit, with their types.
        sizes: numbers of different values of public columns.
        budgets: caps on the totals of columns.
    """

    rows: tuple[tuple[Set, int], ...] = ()
    groups: tuple[tuple[Set, int], ...] = ()
    units: Mapping[Symbol, str] = field(default_factory=dict)
    sizes: Mapping[Symbol, int] = field(default_factory=dict)
    budgets: Mapping[Symbol, int] = field(default_factory=dict)

    @property
    def or_missing(self) -> tuple[tuple[Set, int], ...]:
        """The caps on groups if an outer join may leave some of a unit's rows without these columns: NULL is one more value."""
        return tuple((columns, most + 1) for columns, most in self.groups)

    def groups_of(self, columns: Iterable[Symbol], made: Mapping[Symbol, Set]) -> Number:
        """Return the most different values of these columns in one unit's rows."""
        leaves: set[Symbol] = set()
        for symbol in set(columns) - self.units.keys():
            parts = made.get(symbol, frozenset({symbol})) - self.units.keys()
            leaves |= parts if parts <= self.sizes.keys() else {symbol}
        if not leaves:
            return 1
        found = [most for given, most in self.groups if leaves <= given]
        found += [most for given, most in self.rows if not given]
        if leaves <= self.sizes.keys():
            found.append(math.prod(self.sizes[symbol] for symbol in leaves))
        return min(found, default=None)

    def rows_of(self, columns: Iterable[Symbol], made: Mapping[Symbol, Set]) -> Number:
        """Return the most rows of one unit that agree in these columns."""
        whole = {*columns, *self.units}
        return least(*(times(most, self.groups_of(given - whole, made)) for given, most in self.rows))


class Kind(StrEnum):
    """The owner of a relation's rows: none (public); one unit per row; the outer row's unit; or many units per row (cells)."""

    PUBLIC = "public"
    PRIVATE = "private"
    OWN = "own"
    CELLS = "cells"


@dataclass(slots=True)
class Relation:
    """A relation in FROM, or the result of a SELECT.

    Args:
        columns: by alias and name in a FROM; without an alias in a result.
        facts: facts about each unit's rows.
        weak: columns that are the unit or NULL.
        orphans: whether there may be rows without a unit, whose presence depends on others' rows.
        pending: columns at the start of paths to the unit, with the hops still to follow.
        unique: sets of columns without duplicates.
        count: the most rows.
        key: for cells: own columns, each with its column in each source. A cell is made of rows that agree in them.
        single: whether each value of the key has at most one row.
        open: columns of the public rows for which cells were looked up.
        fixed: whether the set of rows is public.
        sources: for cells: facts about the rows they are made of.
        followed: columns at the start of followed paths, with the hops and the column reached.
    """

    kind: Kind
    columns: dict[Ref, Value]
    facts: Facts = field(default_factory=Facts)
    weak: dict[Symbol, str] = field(default_factory=dict)
    orphans: bool = False
    pending: dict[Symbol, tuple[Hop, ...]] = field(default_factory=dict)
    unique: list[Set] = field(default_factory=list)
    count: Number = None
    key: dict[Symbol, tuple[Symbol, ...]] = field(default_factory=dict)
    single: bool = False
    open: Set = frozenset()
    fixed: bool = False
    sources: list[Facts] = field(default_factory=list)
    owner: bool = True
    """False if each row is its own unit, without a unit column."""
    followed: dict[Symbol, tuple[tuple[Hop, ...], Symbol]] = field(default_factory=dict)
    needs: dict[Symbol, tuple[Set, Set]] = field(default_factory=dict)
    """The parts of a pair unit, which must not be NULL, and the columns that have one value in all of a pair's rows."""

    @property
    def private(self) -> bool:
        """Return whether each row is one unit's."""
        return self.kind == Kind.PRIVATE

    @property
    def foreseen(self) -> bool:
        """Return whether the rows are independent of other units."""
        return self.kind in (Kind.PUBLIC, Kind.OWN)

    @property
    def many(self) -> list[Facts]:
        """Return the facts about the rows' units, or about those of a cell's sources."""
        return [self.facts] if self.private else self.sources

    def called(self, alias: str) -> Relation:
        """Return this relation with an alias for its columns."""
        return replace(self, columns={Ref(alias, ref.name): value for ref, value in self.columns.items()})

    def plain(self) -> Relation:
        """Return this relation without its columns' sensitivities."""
        return replace(self, columns={ref: value.plain() for ref, value in self.columns.items()})

    def cells(self, by: Set = _NONE) -> Relation:
        """Return the relation's rows as cells: each may depend on all rows that agree with it in these columns."""
        key = {s: (s,) if self.private else self.key[s] for s in by if self.private or s in self.key}
        return Relation(Kind.CELLS, self.plain().columns, key=key, sources=self.many)

    def renamed(self, fresh: Callable[[Symbol], Symbol], missing: bool = False) -> Relation:
        """Return this relation with other symbols; ``missing``: every column may be NULL."""
        made = _rename(self, fresh)
        if not missing:
            return made
        return replace(made, columns={ref: replace(v, nullable=True) for ref, v in made.columns.items()})


_NAMES: dict[type, tuple[str, ...]] = {
    kind: tuple(f.name for f in fields(kind)) for kind in (Value, Facts, Relation)
}


def _rename(given: Thing, fresh: Callable[[Symbol], Symbol]) -> Thing:
    """Return a value with other symbols; parts without symbols are shared."""
    kind: Any = given.__class__
    made: object = given
    if kind is Symbol:
        made = fresh(given)  # type: ignore[arg-type]
    elif kind is tuple or kind is list or kind is frozenset:
        made = kind([_rename(part, fresh) for part in given]) if given else given
    elif kind is dict:
        made = {_rename(k, fresh): _rename(v, fresh) for k, v in given.items()} if given else {}  # type: ignore[attr-defined]
    elif kind in _NAMES:
        changed = {}
        for name in _NAMES[kind]:
            part = getattr(given, name)
            if part.__class__ not in _PLAIN:
                changed[name] = _rename(part, fresh)
        made = replace(given, **changed)  # type: ignore[type-var]
    return made  # type: ignore[return-value]


_PLAIN = frozenset((bool, int, str, type(None), Kind, Ref))
"""The classes of parts without symbols."""
