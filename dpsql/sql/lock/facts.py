"""Which value is which: equal expressions over the same columns have the same symbol, and what each is made of is kept.

What the second lock knows of a relation: whose rows they are, how many of one unit there can be, what lies in a column.

Every column has a *symbol*: an integer that says which value it is, whatever relations it has passed through. A column is
the privacy unit if and only if its symbol is that of the base table's unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

_NONE: Set = frozenset()


class Symbols:
    """Numbers for values.

    ``made`` says which columns decide a value that is computed; ``covers`` which columns a hash tells apart, ``secret`` which
    values nobody can foresee without the salt.
    """

    def __init__(self) -> None:
        self._next = count(1)
        self._known: dict[tuple[object, ...], Symbol] = {}
        self.made: dict[Symbol, Set] = {}
        self.covers: dict[Symbol, Set] = {}
        self.secret: set[Symbol] = set()
        self._args: dict[Symbol, tuple[Symbol, ...]] = {}

    def fresh(self) -> Symbol:
        """A value that nothing else is."""
        return next(self._next)

    def constant(self, key: tuple[object, ...], secret: bool = False) -> Symbol:
        """A literal or a parameter."""
        symbol = self._of(key, _NONE)
        if secret:
            self.secret.add(symbol)
        return symbol

    def call(self, name: str, args: Iterable[Symbol], more: object = None) -> Symbol:
        """A function of values, which is decided by them."""
        given = tuple(args)
        made: set[Symbol] = set()
        for arg in given:
            made |= self.leaves(arg)
        symbol = self._of((name, more, *given), frozenset(made))
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

    def leaves(self, symbol: Symbol) -> Set:
        """The columns that decide a value."""
        return self.made.get(symbol, frozenset({symbol}))

    def told(self, symbol: Symbol) -> Set:
        """What is known where a value is known: a hash tells its arguments."""
        return self.covers.get(symbol, _NONE) | {symbol}

    def decided(self, symbol: Symbol, by: Set) -> bool:
        """Whether a value is a function of those: of the columns that it is made of, or of what it is computed from."""
        if symbol in by:
            return True
        made = self.made.get(symbol)
        if made is None or made <= by:
            return made is not None
        args = self._args.get(symbol)
        return args is not None and all(self.decided(arg, by) for arg in args)

    def renaming(self) -> Callable[[Symbol], Symbol]:
        """Gives each symbol a new one, always the same; what is known of it goes along."""
        names: dict[Symbol, Symbol] = {}

        def renamed(symbol: Symbol) -> Symbol:
            found = names.get(symbol)
            if found is not None:
                return found
            if self.made.get(symbol) == _NONE:
                names[symbol] = symbol
                return symbol
            new = names[symbol] = self.fresh()
            if symbol in self._args:
                self._args[new] = tuple(map(renamed, self._args[symbol]))
            if symbol in self.made:
                self.made[new] = frozenset(map(renamed, self.made[symbol]))
            if symbol in self.covers:
                self.covers[new] = frozenset(map(renamed, self.covers[symbol]))
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


Symbol = int
Set = frozenset[Symbol]
Number = int | None


@dataclass(slots=True)
class Value:
    """An expression of a row, or of a cell.

    Args:
        symbol: what it is. low, high: between which integers it lies, if it is there.
        nullable: whether it may be missing. whole: it is an integer.
        times: it lies between so many times a column's value, which is not negative.
        share: it is not negative, and times that column's value it is at most so much.
        there: a condition that says where it is there, and nowhere else.
        budget: the values of one unit's rows add up to at most this.
        odd: what decides whether it is odd, as symbols that count; empty: it is always even; None: unknown.
        half: of a total in two columns: its name, how many steps of it this is, how many the first column's are (0: of the
            second), and how far one unit moves both together.
        weight: of a cell: one more row of the source changes it by at most so much. total: one unit, over all cells.
        halved: the weight is that of twice the number.
    """

    symbol: Symbol
    low: Number = None
    high: Number = None
    nullable: bool = True
    whole: bool = False
    times: tuple[Symbol, Number, Number] | None = None
    share: tuple[Symbol, int] | None = None
    there: Symbol | None = None
    budget: Number = None
    odd: frozenset[object] | None = None
    half: tuple[str, int, int, int] | None = None
    weight: Number = None
    total: Number = None
    halved: bool = False

    @property
    def most(self) -> Number:
        """How far from zero it can be."""
        return None if self.low is None or self.high is None else max(abs(self.low), abs(self.high))


@dataclass(slots=True)
class Facts:
    """What is known of the rows of one privacy unit.

    Args:
        rows: at most so many of them agree in these columns. groups: so many different values of these columns.
        units: columns that are the unit, with their types. sizes: of public columns, how many values there are.
        budgets: what a column's numbers add up to at most.
    """

    rows: list[tuple[Set, int]] = field(default_factory=list)
    groups: list[tuple[Set, int]] = field(default_factory=list)
    units: dict[Symbol, str] = field(default_factory=dict)
    sizes: dict[Symbol, int] = field(default_factory=dict)
    budgets: dict[Symbol, int] = field(default_factory=dict)

    def copy(self) -> Facts:
        return Facts(
            list(self.rows), list(self.groups), dict(self.units), dict(self.sizes), dict(self.budgets)
        )  # fmt: skip

    def groups_of(self, columns: Iterable[Symbol], made: Mapping[Symbol, Set]) -> Number:
        """How many different values of these columns the rows of one unit may have."""
        units = set(self.units)
        leaves: set[Symbol] = set()
        for symbol in columns:
            if symbol in units:
                continue
            known = made.get(symbol)
            leaves |= (known - units) if known is not None and self._small(known - units) else {symbol}
        if not leaves:
            return 1
        best: Number = None
        for given, most in self.groups:
            if leaves <= given:
                best = most if best is None else min(best, most)
        for given, most in self.rows:
            if not given:
                best = most if best is None else min(best, most)
        if all(symbol in self.sizes for symbol in leaves):
            size = 1
            for symbol in leaves:
                size *= self.sizes[symbol]
            best = size if best is None else min(best, size)
        return best

    def _small(self, leaves: Set) -> bool:
        return all(leaf in self.sizes for leaf in leaves)

    def rows_of(self, columns: Iterable[Symbol], made: Mapping[Symbol, Set]) -> Number:
        """How many rows of one unit agree in these columns."""
        whole = set(columns) | set(self.units)
        best: Number = None
        for given, most in self.rows:
            more = given - whole
            times = 1 if not more else self.groups_of(more, made)
            if times is not None:
                best = most * times if best is None else min(best, most * times)
        return best


@dataclass(frozen=True)
class Hop:
    """One step of the way to a unit: a row of ``table`` whose ``key`` is equal, and the column of it that leads on."""

    table: tuple[str, ...]
    key: str
    column: str
    kind: str = ""
    """The SQL type of that column."""


PUBLIC, PRIVATE, OWN, CELLS = "public", "private", "own", "cells"


@dataclass(slots=True)
class Relation:
    """A relation in FROM, or what a SELECT gives.

    Args:
        kind: PUBLIC; PRIVATE, whose rows belong to units; OWN, of the unit of the row around it alone; CELLS, whose rows
            are made of many units' rows.
        facts: of the units' rows; for cells those of their sources.
        weak: columns that are the unit, or missing. orphans: there may be rows of no unit, which others' rows decide about.
        pending: columns that a path to the unit starts from, with the hops still to be followed.
        unique: sets of columns in which no two rows agree. count: at most so many rows.
        key: of cells: own columns, with the column of each source that they are. A cell is made of rows that agree in them.
        single: at most one row for each value of the key. open: columns of public rows that cells were looked up for.
        fixed: which rows there are is public. followed: columns from which paths were followed, with their hops and
            where they have led to.
    """

    kind: str
    columns: dict[str, Value]
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

    @property
    def private(self) -> bool:
        return self.kind == PRIVATE

    def renamed(self, fresh: Callable[[Symbol], Symbol], missing: bool = False) -> Relation:
        """The same with other symbols; ``missing``: every column may be missing."""

        def many(given: Iterable[Symbol]) -> Set:
            return frozenset(map(fresh, given))

        def value(v: Value) -> Value:
            return replace(
                v, symbol=fresh(v.symbol), nullable=v.nullable or missing,
                times=None if v.times is None else (fresh(v.times[0]), v.times[1], v.times[2]),
                there=None if v.there is None else fresh(v.there),
                share=None if v.share is None else (fresh(v.share[0]), v.share[1]),
            )  # fmt: skip

        def facts(f: Facts) -> Facts:
            return Facts(
                [(many(s), n) for s, n in f.rows], [(many(s), n) for s, n in f.groups],
                {fresh(s): t for s, t in f.units.items()}, {fresh(s): n for s, n in f.sizes.items()},
                {fresh(s): n for s, n in f.budgets.items()},
            )  # fmt: skip

        return Relation(
            self.kind, {name: value(v) for name, v in self.columns.items()}, facts(self.facts),
            {fresh(s): t for s, t in self.weak.items()}, self.orphans, {fresh(s): a for s, a in self.pending.items()},
            [many(s) for s in self.unique], self.count, {fresh(s): t for s, t in self.key.items()}, self.single,
            many(self.open), self.fixed, self.sources, self.owner,
            {fresh(s): (hops, fresh(u)) for s, (hops, u) in self.followed.items()},
        )  # fmt: skip
