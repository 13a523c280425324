"""Symbols of values: equal expressions over the same columns have the same one, and what each is made of is kept.

What the second lock knows of a relation: whose rows they are, how many of one unit there can be, what lies in a column.

Every column has a *symbol*: an integer that says which value it is, whatever relations it has passed through. A column is
the privacy unit if and only if its symbol is that of the base table's unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from dpsql.lock.tree import Hop, Ref

Number = int | None
"""A number that may be unknown."""
Thing = TypeVar("Thing")


def add(a: Number, b: Number) -> Number:
    """Return the sum, where both are known."""
    return None if a is None or b is None else a + b


def times(a: Number, b: Number) -> Number:
    """Return the product, where both are known."""
    return None if a is None or b is None else a * b


def least(*numbers: Number) -> Number:
    """Return the least of those that are known."""
    return min((n for n in numbers if n is not None), default=None)


class Symbol(int):
    """A number that says which value a column is."""


Set = frozenset[Symbol]
_NONE: Set = frozenset()


class Symbols:
    """Numbers for values.

    ``made`` says which columns decide a value that is computed; ``covers`` which columns a hash tells apart, ``secret`` which
    values nobody can foresee without the salt.
    """

    def __init__(self) -> None:
        self._next = 0
        self._known: dict[tuple[object, ...], Symbol] = {}
        self.made: dict[Symbol, Set] = {}
        self.covers: dict[Symbol, Set] = {}
        self.secret: set[Symbol] = set()
        self._args: dict[Symbol, tuple[Symbol, ...]] = {}

    def fresh(self) -> Symbol:
        """Return the symbol of a value that nothing else is."""
        self._next += 1
        return Symbol(self._next)

    def constant(self, key: tuple[object, ...], secret: bool = False) -> Symbol:
        """Return the symbol of a literal or a parameter."""
        symbol = self._of(key, _NONE)
        if secret:
            self.secret.add(symbol)
        return symbol

    def call(self, name: str, args: Iterable[Symbol], more: object = None) -> Symbol:
        """Return the symbol of a function of values, which decide it."""
        given = tuple(args)
        made = _NONE.union(*(self.made.get(arg, {arg}) for arg in given))
        symbol = self._of((name, more, *given), made)
        self._args[symbol] = given
        if not self.secret.isdisjoint(given):
            self.secret.add(symbol)
        if name in ("hash", "xor") and symbol not in self.covers:
            self._cover(name, symbol, given)
        return symbol

    def _cover(self, name: str, symbol: Symbol, given: tuple[Symbol, ...]) -> None:
        told = [arg for arg in given if self.made.get(arg) != _NONE]
        if name == "xor" and len(told) != 1:
            return
        self.covers[symbol] = frozenset().union(*(self.told(arg) for arg in told))

    def told(self, symbol: Symbol) -> Set:
        """Return the values that are known where one is: a hash tells its arguments."""
        return self.covers.get(symbol, _NONE) | {symbol}

    def decided(self, symbol: Symbol, by: Set) -> bool:
        """Return whether a value is a function of those, through columns or through what it is computed from."""
        if symbol in by:
            return True
        made = self.made.get(symbol)
        if made is None or made <= by:
            return made is not None
        args = self._args.get(symbol)
        return args is not None and all(self.decided(arg, by) for arg in args)

    def renaming(self) -> Callable[[Symbol], Symbol]:
        """Return a function that gives each symbol a new one, always the same; what is known of it goes along."""
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
    """An expression of a row, or of a cell.

    Args:
        symbol: what it is. low, high: between which integers it lies, if it is there.
        nullable: whether it may be missing. whole: it is an integer.
        times: it lies between so many times a column's value, which is not negative.
        besides: the same of another column, where a clamp holds one end by either.
        share: it is not negative, and times that column's value it is at most so much.
        there: a condition that says where it is there, and nowhere else.
        budget: the values of one unit's rows add up to at most this.
        odd: what decides whether it is odd, as symbols that count; empty: it is always even; None: unknown.
        half: of a total in two columns: its name, how many steps of it this is, how many the first column's are (0: of the
            second), and how far one unit moves both together, in one cell and in all.
        weight: of a cell: one more row of the source changes it by at most so much. total: one unit, over all cells.
        halved: the weight is that of twice the number.
        step: of a cell: how far one more row lowers it (not above 0), and how far it raises it (not below 0).
        public: it is a column of a public relation, as it is.
        narrow: it is a sum of integers of at most 92 bits, and has at most 38 digits over more rows than there are people.
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
        """Return how far from zero it can be."""
        return None if self.low is None or self.high is None else max(abs(self.low), abs(self.high))

    def plain(self) -> Value:
        """Return the same, without what a row or a unit moves it by."""
        return replace(self, weight=None, total=None, halved=False, step=None)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about the rows of one privacy unit.

    Args:
        rows: at most so many of them agree in these columns. groups: so many different values of these columns.
        units: columns that are the unit, with their types. sizes: of public columns, how many values there are.
        budgets: what a column's numbers add up to at most.
    """

    rows: tuple[tuple[Set, int], ...] = ()
    groups: tuple[tuple[Set, int], ...] = ()
    units: Mapping[Symbol, str] = field(default_factory=dict)
    sizes: Mapping[Symbol, int] = field(default_factory=dict)
    budgets: Mapping[Symbol, int] = field(default_factory=dict)

    def groups_of(self, columns: Iterable[Symbol], made: Mapping[Symbol, Set]) -> Number:
        """Return how many different values of these columns the rows of one unit may have."""
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
        """Return how many rows of one unit agree in these columns."""
        whole = {*columns, *self.units}
        return least(*(times(most, self.groups_of(given - whole, made)) for given, most in self.rows))


class Kind(StrEnum):
    """The owner of a relation's rows: nobody's; units'; the unit's of the row around it; or made of many units' rows."""

    PUBLIC = "public"
    PRIVATE = "private"
    OWN = "own"
    CELLS = "cells"


@dataclass(slots=True)
class Relation:
    """A relation in FROM, or what a SELECT gives.

    Args:
        columns: by alias and name in a FROM; without an alias in what a SELECT gives.
        facts: of the units' rows; for cells those of their sources.
        weak: columns that are the unit, or missing. orphans: there may be rows of no unit, which others' rows decide about.
        pending: columns that a path to the unit starts from, with the hops still to be followed.
        unique: sets of columns in which no two rows agree. count: at most so many rows.
        key: of cells: own columns, with the column of each source that they are. A cell is made of rows that agree in them.
        single: at most one row for each value of the key. open: columns of public rows that cells were looked up for.
        fixed: which rows there are is public. followed: columns from which paths were followed, with their hops and
            where they have led to.
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
    """False: each row is its own unit, and there is no column that says so."""
    followed: dict[Symbol, tuple[tuple[Hop, ...], Symbol]] = field(default_factory=dict)
    needs: dict[Symbol, Set] = field(default_factory=dict)
    """The parts that must be there, of units that are pairs."""

    @property
    def private(self) -> bool:
        """Return whether each row is one unit's."""
        return self.kind == Kind.PRIVATE

    @property
    def foreseen(self) -> bool:
        """Return whether no other unit's rows are among these."""
        return self.kind in (Kind.PUBLIC, Kind.OWN)

    @property
    def many(self) -> list[Facts]:
        """Return what is known of the units that the rows are made of."""
        return [self.facts] if self.private else self.sources

    def called(self, alias: str) -> Relation:
        """Return the same with its columns under an alias."""
        return replace(self, columns={Ref(alias, ref.name): value for ref, value in self.columns.items()})

    def plain(self) -> Relation:
        """Return the same, of which it is no longer known what a row moves its columns by."""
        return replace(self, columns={ref: value.plain() for ref, value in self.columns.items()})

    def cells(self, by: Set = _NONE) -> Relation:
        """Return rows that may look at all those that agree with them in some columns."""
        key = {s: (s,) if self.private else self.key[s] for s in by if self.private or s in self.key}
        return Relation(Kind.CELLS, self.plain().columns, key=key, sources=self.many)

    def renamed(self, fresh: Callable[[Symbol], Symbol], missing: bool = False) -> Relation:
        """Return the same with other symbols; ``missing``: every column may be missing."""
        made = _rename(self, fresh)
        return made if not missing else replace(
            made, columns={ref: replace(value, nullable=True) for ref, value in made.columns.items()}
        )  # fmt: skip


def _rename(given: Thing, fresh: Callable[[Symbol], Symbol]) -> Thing:
    """Return the same with other symbols, wherever they stand in it."""
    made: object = given
    if isinstance(given, Symbol):
        made = fresh(given)
    elif isinstance(given, tuple | list | frozenset):
        made = type(given)(_rename(part, fresh) for part in given)
    elif isinstance(given, dict):
        made = {_rename(key, fresh): _rename(value, fresh) for key, value in given.items()}
    elif isinstance(given, Value | Facts | Relation):
        made = replace(given, **{f.name: _rename(getattr(given, f.name), fresh) for f in fields(given)})
    return made  # type: ignore[return-value]
