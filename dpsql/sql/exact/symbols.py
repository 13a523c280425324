"""Which value is which: equal expressions over the same columns have the same symbol, and what each is made of is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from dpsql.sql.exact.facts import Set, Symbol

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
