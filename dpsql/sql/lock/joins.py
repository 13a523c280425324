"""Relations that meet: private rows meet private rows only where their units are equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from dpsql.sql.lock.facts import Facts, Kind, Relation, Symbol, Symbols, Value, times
from dpsql.sql.lock.ranges import WHOLE
from dpsql.sql.lock.tree import Hop, refuse

Pairs = Sequence[tuple[Symbol, Symbol]]
"""Columns that a top-level ``=`` makes equal."""
Scan = tuple[tuple[str, ...], str, Mapping[str, Value]]
"""A base table's path, the name of a column, and all of the table's columns."""


@dataclass(slots=True)
class Joins:
    """Joins the parts of one FROM, under the equalities of their columns."""

    symbols: Symbols
    scans: Mapping[Symbol, Scan]
    around: Mapping[Symbol, str]
    """Units of the rows around, where this is a subquery."""
    pairs: Pairs
    cast: Pairs
    """Integers that an ``=`` makes equal after a cast to another integer: where one is, at most one of the other is."""
    same: Pairs
    """Columns that are equal, or both missing."""

    def inner(self, parts: list[Relation]) -> Relation:
        """Join all parts, under conditions that hold for every row that is left."""
        parts = [self._follow_all(part, parts) for part in parts]
        private = [p for p in parts if p.private]
        if len(private) > 1 and any(p.needs for p in private):
            refuse("a period that may be missing")
        while len(private) > 1:
            first, *rest = private
            other = next((p for p in rest if self._link(first, p)), None)
            if other is None:
                refuse("private rows meet without an equality of their units")
            private = [self._own_rows(first, other), *(p for p in rest if p is not other)]
        return reduce(self._beside, [*private, *(p for p in parts if not p.private)])

    # -- units ---------------------------------------------------------------------------------------------------

    def _link(self, a: Relation, b: Relation) -> bool:
        """Return whether some equality makes the units of both equal: columns as they are, of one type."""
        ours, theirs = {**a.weak, **a.facts.units}, {**b.weak, **b.facts.units}
        return bool(ours.keys() & theirs.keys()) or any(  # one column, which a path leads to
            x in ours and y in theirs and same_type(ours[x], theirs[y])
            for x, y in both_ways(self._closed({**ours, **theirs}))
        )

    def _follow_all(self, part: Relation, parts: list[Relation]) -> Relation:
        """Follow a path to the unit, from table to table."""
        others = [other for other in parts if other is not part]
        while part.pending:
            steps = (step for pair in both_ways(self.pairs) if (step := self._follow(part, *pair)))
            found = _followed(part, others) or next(steps, None)
            if found is None:
                break
            part = found
        return part

    def _follow(self, relation: Relation, here: Symbol, there: Symbol) -> Relation | None:
        hops, scan = relation.pending.get(here), self.scans.get(there)
        if hops is None or scan is None or scan[:2] != (hops[0].table, hops[0].key):
            return None
        reached = scan[2].get("" if hops[0].parted else hops[0].column)
        if reached is None:
            refuse("a path to a unit without its column")
        led = _led(relation, here, hops, reached.symbol)
        if len(hops) > 1:
            return replace(led, pending={**led.pending, reached.symbol: hops[1:]})
        weak = {**relation.weak, reached.symbol: hops[-1].kind}
        if (
            hops[0].column == hops[0].key and not hops[0].parted
        ):  # what the path starts from is equal to the unit
            weak[here] = hops[-1].kind
        return replace(led, pending={}, weak=weak)

    def _own_rows(self, left: Relation, right: Relation) -> Relation:
        """Join rows of one unit with rows of the same."""
        if not (left.owner and right.owner):
            refuse("rows that are units meet private rows")
        units = {**left.facts.units, **right.facts.units}
        weak = {**left.weak, **right.weak}
        linked = {s for pair in self._closed({**units, **weak}) for s in pair if s in weak}
        linked |= left.weak.keys() & right.facts.units.keys() | right.weak.keys() & left.facts.units.keys()
        units |= {s: weak[s] for s in linked}
        many = times(left.facts.rows_of((), self.symbols.made), right.facts.rows_of((), self.symbols.made))
        facts = Facts(
            () if many is None else ((frozenset(), many),), left.facts.groups + right.facts.groups, units,
            {**left.facts.sizes, **right.facts.sizes},
        )  # fmt: skip
        return Relation(
            Kind.PRIVATE, left.columns | right.columns, facts, {s: t for s, t in weak.items() if s not in units},
            (left.orphans or right.orphans) and not linked, left.pending | right.pending, _crossed(left, right),
            followed=left.followed | right.followed,
        )  # fmt: skip

    def _closed(self, units: Mapping[Symbol, str]) -> list[tuple[Symbol, Symbol]]:
        """Return equal units, also those that the unit of the row around equals."""
        found = [pair for pair in self.pairs if pair[0] in units and pair[1] in units]
        for middle, kind in self.around.items():
            ends = [y if x == middle else x for x, y in self.pairs if middle in (x, y)]
            ends = [s for s in ends if s in units and same_type(units[s], kind)]
            found += [(x, y) for x in ends for y in ends if x != y]
        return found

    # -- others --------------------------------------------------------------------------------------------------

    def _beside(self, left: Relation, right: Relation) -> Relation:
        """Join public rows with others, or cells with cells."""
        kinds = {left.kind, right.kind}
        columns = left.columns | right.columns
        if left.foreseen and right.foreseen:
            return _public(left, right, self._keyed(right), self._keyed(left))
        mine, other = (right, left) if left.kind == Kind.PUBLIC else (left, right)
        if kinds == {Kind.PRIVATE, Kind.PUBLIC}:
            once = self._keyed(other)
            facts = replace(mine.facts, sizes={**mine.facts.sizes, **other.facts.sizes})
            return replace(
                mine, columns=columns, facts=facts if once else _repeated(facts, other),
                unique=mine.unique if once else _crossed(mine, other),
            )  # fmt: skip
        if kinds == {Kind.CELLS, Kind.PUBLIC}:
            found = {there: mine.key[here] for here, there in both_ways(self.pairs) if here in mine.key}
            return replace(
                mine, columns=columns, key=mine.key | found, single=mine.single and self._keyed(other),
                count=times(mine.count, other.count), unique=[],
            )  # fmt: skip
        if kinds <= {Kind.CELLS, Kind.PRIVATE}:
            return replace(_of_many(left, right, self.pairs), columns=columns).plain()
        refuse(f"{left.kind} rows meet {right.kind} rows")

    def _keyed(self, other: Relation) -> bool:
        """Return whether at most one row of the other relation meets each row."""
        equal = {s for pair in (*self.pairs, *self.cast) for s in pair}
        return other.count == 1 or any(key <= equal for key in other.unique)

    # -- outer joins ---------------------------------------------------------------------------------------------

    def left(self, mine: Relation, given: Relation, plain: bool, asof: bool) -> Relation:
        """Join the rows of one with those of the other that meet them, or with nothing.

        ``plain``: the condition is equalities and nothing else.
        """
        linked = self._link(mine, given) if mine.private and given.private else True
        given = self._follow_all(given, [mine])
        other = given.renamed(self.symbols.renaming(), missing=True)
        columns = mine.columns | other.columns
        once = asof or self._keyed(given)
        match mine.kind, other.kind:
            case Kind.PRIVATE, Kind.PRIVATE:
                if not linked or not (mine.owner and other.owner):
                    refuse("private rows meet without an equality of their units in the join itself")
                facts = replace(mine.facts, rows=(), groups=mine.facts.groups + other.facts.groups)
                weak = {**mine.weak, **other.weak, **other.facts.units}
                pending = mine.pending | other.pending
                return Relation(Kind.PRIVATE, columns, facts, weak, mine.orphans, pending)
            case Kind.PRIVATE, Kind.PUBLIC:
                facts = mine.facts if once else replace(mine.facts, rows=(), budgets={})
                return replace(mine, columns=columns, facts=facts, unique=mine.unique if once else [])
            case Kind.PUBLIC, Kind.PRIVATE:
                return self._orphans(mine, other, asof)
            case Kind.PUBLIC | Kind.OWN, Kind.PUBLIC | Kind.OWN:
                return _public(mine, other, once, False)
            case Kind.CELLS, Kind.PUBLIC:
                return replace(mine, columns=columns, single=mine.single and once, unique=[])
            case Kind.PUBLIC, Kind.CELLS:
                return self._looked_up(mine, given, plain and not asof, Relation(Kind.CELLS, columns))
            case Kind.CELLS | Kind.PRIVATE, Kind.CELLS | Kind.PRIVATE:
                return Relation(Kind.CELLS, columns, sources=_sources(mine) + _sources(other)).plain()
        refuse(f"{mine.kind} rows are kept beside {other.kind} rows")

    def _orphans(self, mine: Relation, other: Relation, asof: bool) -> Relation:
        """Keep public rows that no private row meets: they are nobody's, and everybody decides about them."""
        if asof:
            refuse("the nearest private row of a public one")
        if not other.owner:
            refuse("rows that are units are kept out by public ones")
        facts = replace(other.facts, units={}, sizes={**other.facts.sizes, **mine.facts.sizes})
        if not self._keyed(mine):
            facts = _repeated(facts, mine)
        weak = {**other.weak, **other.facts.units}
        return Relation(Kind.PRIVATE, mine.columns | other.columns, facts, weak, True, other.pending)

    def _looked_up(self, mine: Relation, cells: Relation, plain: bool, made: Relation) -> Relation:
        """Look up the cell of each public row by its key."""
        key: dict[Symbol, tuple[Symbol, ...]] = {}
        for x, y in (*self.pairs, *self.cast, *self.same):
            here, there = (x, y) if y in cells.key else (y, x)
            plain = plain and there in cells.key and here not in cells.key
            if plain:
                key[here] = cells.key[there]
        made = replace(made, sources=cells.sources)
        if not plain or set(key.values()) != set(cells.key.values()):
            return made.plain()
        single = cells.single and any(unique <= key.keys() for unique in mine.unique)
        public = frozenset(value.symbol for value in mine.columns.values())
        return replace(
            made, key=key, single=single or (not key and mine.count == 1), open=public, fixed=True, count=mine.count
        )  # fmt: skip

    def semi(self, left: Relation, right: Relation) -> Relation:
        """Keep the rows of one that meet some row of the other, or none."""
        if right.foreseen:
            return left.plain() if left.kind == Kind.CELLS else left
        if left.private and right.private and left.owner and right.owner and self._link(left, right):
            return left
        refuse("private rows meet without an equality of their units in the join itself")

    def full(self, left: Relation, right: Relation) -> Relation:
        """Keep the rows of both, side by side where they meet."""
        fresh = self.symbols.renaming()
        first, second = left.renamed(fresh, missing=True), right.renamed(fresh, missing=True)
        made = Relation(Kind.PRIVATE, first.columns | second.columns)
        if left.foreseen and right.foreseen:
            return replace(made, kind=_public_kind(left, right))
        mine = first if first.private else second
        if {left.kind, right.kind} == {Kind.PRIVATE, Kind.PUBLIC} and mine.owner:
            facts, weak = Facts(groups=mine.facts.groups), {**mine.weak, **mine.facts.units}
            return replace(made, facts=facts, weak=weak, orphans=True, pending=mine.pending)
        if not (left.private and right.private and left.owner and right.owner):
            refuse(f"{left.kind} and {right.kind} rows are kept beside one another")
        if not self._link(left, right) or left.orphans or right.orphans:
            refuse("private rows meet without an equality of their units in the join itself")
        units = {
            self.symbols.call("coalesce", pair): kind
            for x, kind in first.facts.units.items() for pair in both_ways((x, y) for y in second.facts.units)
        }  # fmt: skip
        weak = {**first.weak, **second.weak, **first.facts.units, **second.facts.units}
        facts = Facts(groups=first.facts.groups + second.facts.groups, units=units)
        return replace(made, facts=facts, weak=weak)


def both_ways(pairs: Iterable[tuple[Symbol, Symbol]]) -> Iterator[tuple[Symbol, Symbol]]:
    """Yield each pair from the left and from the right."""
    for x, y in pairs:
        yield x, y
        yield y, x


def _led(relation: Relation, here: Symbol, hops: tuple[Hop, ...], reached: Symbol) -> Relation:
    """Follow a hop from a column."""
    before = {s: (way, reached if u == here else u) for s, (way, u) in relation.followed.items()}
    pending = {s: h for s, h in relation.pending.items() if s != here}
    return replace(relation, pending=pending, followed={**before, here: (hops, reached)})


def _followed(relation: Relation, others: list[Relation]) -> Relation | None:
    """Follow a path from a column whose row was led to its unit in a query below."""
    for here, hops in relation.pending.items():
        for other in others:
            way, unit = other.followed.get(here, ((), here))
            if way == hops and unit in other.facts.units:
                weak = {**relation.weak, unit: hops[-1].kind}
                return replace(_led(relation, here, hops, unit), weak=weak)
    return None


def same_type(a: str, b: str) -> bool:
    """Return whether ``=`` compares values of these types as they are; integers of every width are one."""
    return a == b or (a in WHOLE and b in WHOLE)


def _crossed(a: Relation, b: Relation) -> list[frozenset[Symbol]]:
    """Return the columns that tell pairs of rows apart."""
    return [x | y for x in a.unique for y in b.unique]


def _repeated(facts: Facts, other: Relation) -> Facts:
    """Repeat rows beside many public ones: as many as before beside each, which its key tells apart."""
    more = tuple((s | key, n) for s, n in facts.rows for key in other.unique)
    counted = () if other.count is None else tuple((s, n * max(1, other.count)) for s, n in facts.rows)
    return replace(facts, rows=more + counted, budgets={})


def _sources(relation: Relation) -> list[Facts]:
    """Return the sources of cells; private rows among them are no longer anybody's."""
    if relation.private and relation.orphans:
        refuse("rows of nobody meet cells")
    return relation.many


def _of_many(a: Relation, b: Relation, pairs: Pairs) -> Relation:
    """Join cells of two sources, by columns that are equal. A private row agrees with itself in all."""
    key: dict[Symbol, tuple[Symbol, ...]] = {}
    for here, there in both_ways(pairs):
        ours = (here,) if a.private else a.key.get(here)
        theirs = (there,) if b.private else b.key.get(there)
        if ours is not None and theirs is not None:
            key[here] = key[there] = (*ours, *theirs)
    return Relation(Kind.CELLS, {}, key=key, sources=_sources(a) + _sources(b))


def _public_kind(a: Relation, b: Relation) -> Kind:
    """Return the kind of public rows together; beside rows of one unit they are that unit's."""
    return Kind.OWN if Kind.OWN in (a.kind, b.kind) else Kind.PUBLIC


def _public(a: Relation, b: Relation, once: bool, back: bool) -> Relation:
    """Join rows without other units'; ``once``, ``back``: one row at most meets each of the first, or of the second."""
    count = a.count if once else b.count if back else times(a.count, b.count)
    unique = a.unique if once else b.unique if back else _crossed(a, b)
    facts = Facts(sizes={**a.facts.sizes, **b.facts.sizes})
    return Relation(_public_kind(a, b), a.columns | b.columns, facts, count=count, unique=unique)
