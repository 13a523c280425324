"""What becomes of relations that meet: private rows meet private rows only where their units are equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpsql.sql.lock.facts import (
    CELLS,
    OWN,
    PRIVATE,
    PUBLIC,
    Facts,
    Hop,
    Number,
    Relation,
    Symbol,
    Symbols,
    Value,
)
from dpsql.sql.lock.ranges import WHOLE
from dpsql.sql.lock.tree import refuse

Pairs = Sequence[tuple[Symbol, Symbol]]
"""Columns that a top-level ``=`` makes equal."""
Scope = dict[str, dict[str, Value]]
"""Columns by alias and name."""


@dataclass(slots=True)
class Joined:
    """A part of FROM: its facts, and its columns by alias."""

    relation: Relation
    scope: Scope


@dataclass(slots=True)
class Joins:
    """Joins the parts of one text. ``scans`` has the columns of each base table by the symbol of any of them."""

    symbols: Symbols
    scans: dict[Symbol, tuple[tuple[str, ...], str, dict[str, Value]]]
    cast: Pairs
    """Integers that an ``=`` makes equal after a cast to another integer: where one is, at most one of the other is."""
    around: dict[Symbol, str]
    """Units of the rows around, where this is a subquery."""
    same: Pairs = ()
    """Columns that are equal, or both missing."""

    def inner(self, parts: list[Joined], pairs: Pairs) -> Joined:
        """All parts together, under conditions that hold for every row that is left."""
        parts = [self._follow_all(part, parts, pairs) for part in parts]
        private = [p for p in parts if p.relation.private]
        others = [p for p in parts if not p.relation.private]
        while len(private) > 1:
            first, rest = private[0], private[1:]
            other = next((p for p in rest if self._link(first.relation, p.relation, pairs)), None)
            if other is None:
                refuse("private rows meet without an equality of their units")
            private = [self._own_rows(first, other, pairs), *(p for p in rest if p is not other)]
        whole = private[0] if private else None
        for part in others:
            whole = part if whole is None else self._beside(whole, part, pairs)
        assert whole is not None
        return whole

    # -- units ---------------------------------------------------------------------------------------------------

    def _link(self, a: Relation, b: Relation, pairs: Pairs) -> bool:
        """Whether some equality makes the units of both equal: columns as they are, of one type."""
        ours, theirs = {**a.weak, **a.facts.units}, {**b.weak, **b.facts.units}
        if ours.keys() & theirs.keys():  # one column, which a path leads to
            return True
        return any(
            (x in ours and y in theirs and same_type(ours[x], theirs[y]))
            or (y in ours and x in theirs and same_type(ours[y], theirs[x]))
            for x, y in self._closed(pairs, {**ours, **theirs})
        )

    def _follow_all(self, part: Joined, parts: list[Joined], pairs: Pairs) -> Joined:
        """A path to the unit, followed to the table that the next column stands in."""
        relation = part.relation
        others = [other.relation for other in parts if other is not part]
        while relation.pending:
            steps = (step for p in pairs if (step := self._follow(relation, p)) is not None)
            found = _followed(relation, others) or next(steps, None)
            if found is None:
                break
            relation = found
        return Joined(relation, part.scope)

    def _follow(self, relation: Relation, pair: tuple[Symbol, Symbol]) -> Relation | None:
        for here, there in (pair, pair[::-1]):
            hops = relation.pending.get(here)
            scan = self.scans.get(there)
            if hops is None or scan is None or (scan[0], scan[1]) != (hops[0].table, hops[0].key):
                continue
            reached = scan[2].get(hops[0].column)
            if reached is None:
                refuse("a path to a unit without its column")
            rest = {s: h for s, h in relation.pending.items() if s != here}
            if len(hops) > 1:
                ends = _led(relation, here, hops, reached.symbol)
                return replace(relation, pending={**rest, reached.symbol: hops[1:]}, followed=ends)
            weak = {**relation.weak, reached.symbol: hops[-1].kind}
            if hops[0].column == hops[0].key:  # what the path starts from is equal to the unit
                weak[here] = hops[-1].kind
            return replace(
                relation, pending={}, weak=weak, followed=_led(relation, here, hops, reached.symbol)
            )
        return None

    def _own_rows(self, a: Joined, b: Joined, pairs: Pairs) -> Joined:
        """Rows of one unit beside rows of the same."""
        left, right = a.relation, b.relation
        if not (left.owner and right.owner):
            refuse("rows that are units meet private rows")
        units = {**left.facts.units, **right.facts.units}
        weak = {**left.weak, **right.weak}
        closed = self._closed(pairs, {**units, **weak})
        linked = {s for pair in closed for s in pair if s in weak}
        linked |= (left.weak.keys() & right.facts.units.keys()) | (
            right.weak.keys() & left.facts.units.keys()
        )
        units |= {s: weak[s] for s in linked}
        many = times(left.facts.rows_of((), self.symbols.made), right.facts.rows_of((), self.symbols.made))
        facts = Facts(
            [] if many is None else [(frozenset(), many)], left.facts.groups + right.facts.groups, units,
            {**left.facts.sizes, **right.facts.sizes},
        )  # fmt: skip
        orphans = (left.orphans or right.orphans) and not linked
        joined = Relation(
            PRIVATE, {}, facts, {s: t for s, t in weak.items() if s not in units}, orphans,
            {**left.pending, **right.pending},
            [x | y for x in left.unique for y in right.unique], followed={**left.followed, **right.followed},
        )  # fmt: skip
        return Joined(joined, {**a.scope, **b.scope})

    def _closed(self, pairs: Pairs, units: dict[Symbol, str]) -> list[tuple[Symbol, Symbol]]:
        """Pairs of units, also those that the unit of the row around equals."""
        found = [pair for pair in pairs if pair[0] in units and pair[1] in units]
        for middle, kind in self.around.items():
            ends = [y if x == middle else x for x, y in pairs if middle in (x, y)]
            ends = [s for s in ends if s in units and same_type(units[s], kind)]
            found += [(x, y) for x in ends for y in ends if x != y]
        return found

    # -- others --------------------------------------------------------------------------------------------------

    def _beside(self, a: Joined, b: Joined, pairs: Pairs) -> Joined:
        """Neither part's rows are another unit's: one of them is public, or both are of cells."""
        left, right = a.relation, b.relation
        scope = {**a.scope, **b.scope}
        kinds = {left.kind, right.kind}
        if kinds <= {PUBLIC, OWN}:
            kind = OWN if OWN in kinds else PUBLIC
            return Joined(
                _public(left, right, kind, self._keyed(right, pairs), self._keyed(left, pairs)), scope
            )
        if kinds == {PRIVATE, PUBLIC}:
            mine, other = (left, right) if left.private else (right, left)
            return Joined(self._with_public(mine, other, pairs), scope)
        if kinds == {CELLS, PUBLIC}:
            cells, other = (left, right) if left.kind == CELLS else (right, left)
            key = dict(cells.key)
            for x, y in pairs:
                for here, there in ((x, y), (y, x)):
                    if here in cells.key:
                        key[there] = cells.key[here]
            single = cells.single and self._keyed(other, pairs)
            made = replace(
                cells, columns={}, key=key, single=single, count=times(cells.count, other.count), unique=[]
            )
            return Joined(made, scope)
        if kinds <= {CELLS, PRIVATE}:
            return Joined(_of_many(left, right, pairs), stripped(scope))
        refuse(f"{left.kind} rows meet {right.kind} rows")

    def _with_public(self, mine: Relation, other: Relation, pairs: Pairs) -> Relation:
        facts = mine.facts.copy()
        facts.sizes |= other.facts.sizes
        once = self._keyed(other, pairs)
        if not once:
            _repeat(facts, other)
        unique = mine.unique if once else [x | y for x in mine.unique for y in other.unique]
        return replace(mine, columns={}, facts=facts, unique=unique)

    def _keyed(self, other: Relation, pairs: Pairs) -> bool:
        """Whether at most one row of the other relation meets each row."""
        equal = {s for pair in (*pairs, *self.cast) for s in pair}
        return other.count == 1 or any(key <= equal for key in other.unique)

    # -- outer joins ---------------------------------------------------------------------------------------------

    def left(self, a: Joined, b: Joined, pairs: Pairs, plain: bool, asof: bool) -> Joined:
        """The rows of ``a``, with those of ``b`` that meet them, or nothing beside them.

        ``plain``: the condition is those equalities and nothing else.
        """
        linked = True
        if a.relation.private and b.relation.private:
            linked = self._link(a.relation, b.relation, pairs)
        b = self._follow_all(b, [a], pairs)
        renamed = self.symbols.renaming()
        other = b.relation.renamed(renamed, missing=True)
        scope = {**a.scope, **_missing(b.scope, renamed)}
        mine = a.relation
        if mine.private and other.private:
            if not linked or not (mine.owner and other.owner):
                refuse("private rows meet without an equality of their units in the join itself")
            return Joined(self._kept_rows(mine, other), scope)
        once = asof or self._keyed(b.relation, pairs)
        if mine.private and other.kind == PUBLIC:
            facts = mine.facts.copy()
            if not once:
                facts.rows, facts.budgets = [], {}
            unique = mine.unique if once else []
            return Joined(replace(mine, columns={}, facts=facts, unique=unique), scope)
        if mine.kind == PUBLIC and other.private:
            return Joined(self._orphans(mine, other, b.relation, pairs, asof), scope)
        if {mine.kind, other.kind} <= {PUBLIC, OWN}:
            kind = OWN if OWN in (mine.kind, other.kind) else PUBLIC
            return Joined(_public(mine, other, kind, once, False), scope)
        if mine.kind == CELLS and other.kind == PUBLIC:
            return Joined(replace(mine, columns={}, single=mine.single and once, unique=[]), scope)
        if mine.kind == PUBLIC and other.kind == CELLS:
            return self._looked_up(mine, b.relation, pairs, plain and not asof, a.scope, scope)
        if mine.kind == other.kind == CELLS:
            return Joined(Relation(CELLS, {}, sources=mine.sources + other.sources), stripped(scope))
        if {mine.kind, other.kind} == {PRIVATE, CELLS}:
            return Joined(Relation(CELLS, {}, sources=_sources(mine) + _sources(other)), stripped(scope))
        refuse(f"{mine.kind} rows are kept beside {other.kind} rows")

    def _kept_rows(self, mine: Relation, other: Relation) -> Relation:
        facts = mine.facts.copy()
        facts.rows, facts.groups = [], facts.groups + other.facts.groups
        weak = {**mine.weak, **other.weak, **other.facts.units}
        return Relation(PRIVATE, {}, facts, weak, mine.orphans, {**mine.pending, **other.pending})

    def _orphans(
        self, mine: Relation, other: Relation, before: Relation, pairs: Pairs, asof: bool
    ) -> Relation:
        """Public rows are kept where nobody's row meets them: they are nobody's, and everybody decides about them."""
        if asof:
            refuse("the nearest private row of a public one")
        if not other.owner:
            refuse("rows that are units are kept out by public ones")
        facts = other.facts.copy()
        facts.units = {}
        facts.sizes |= mine.facts.sizes
        if not self._keyed(mine, pairs):
            _repeat(facts, mine)
        return Relation(PRIVATE, {}, facts, {**other.weak, **other.facts.units}, True, other.pending)

    def _looked_up(
        self, mine: Relation, cells: Relation, pairs: Pairs, plain: bool, own: Scope, scope: Scope
    ) -> Joined:
        """Public rows, each with the cell of its key."""
        key: dict[Symbol, tuple[Symbol, ...]] = {}
        covered: set[tuple[Symbol, ...]] = set()
        for x, y in (*pairs, *self.cast, *self.same):
            here, there = (x, y) if y in cells.key else (y, x)
            if there in cells.key and here not in cells.key:
                key[here] = cells.key[there]
                covered.add(cells.key[there])
            else:
                plain = False
        whole = covered == set(cells.key.values()) and plain
        if not whole:
            return Joined(Relation(CELLS, {}, sources=cells.sources), stripped(scope))
        single = (cells.single and any(unique <= set(key) for unique in mine.unique)) or (
            not key and mine.count == 1
        )
        public = frozenset(v.symbol for columns in own.values() for v in columns.values())
        return Joined(
            Relation(
                CELLS, {}, key=key, single=bool(single), open=public, fixed=True, sources=cells.sources, count=mine.count
            ), scope,
        )  # fmt: skip

    def semi(self, a: Joined, b: Joined, pairs: Pairs) -> Joined:
        """The rows of ``a`` that meet some row of ``b``, or none of them."""
        left, right = a.relation, b.relation
        if right.kind in (PUBLIC, OWN):
            return Joined(left, stripped(a.scope) if left.kind == CELLS else a.scope)
        if left.private and right.private and left.owner and right.owner and self._link(left, right, pairs):
            return a
        refuse("private rows meet without an equality of their units in the join itself")

    def full(self, a: Joined, b: Joined, pairs: Pairs) -> Joined:
        """The rows of both, side by side where they meet."""
        left, right = a.relation, b.relation
        if {left.kind, right.kind} <= {PUBLIC, OWN}:
            kind = OWN if OWN in (left.kind, right.kind) else PUBLIC
            names = self.symbols.renaming()
            scope = {**_missing(a.scope, names), **_missing(b.scope, names)}
            return Joined(Relation(kind, {}), scope)
        if {left.kind, right.kind} == {PRIVATE, PUBLIC} and (left if left.private else right).owner:
            names = self.symbols.renaming()
            mine = (left if left.private else right).renamed(names, True)
            facts = Facts([], mine.facts.groups)
            scope = {**_missing(a.scope, names), **_missing(b.scope, names)}
            return Joined(
                Relation(PRIVATE, {}, facts, {**mine.weak, **mine.facts.units}, True, mine.pending), scope
            )
        if not (left.private and right.private and left.owner and right.owner):
            refuse(f"{left.kind} and {right.kind} rows are kept beside one another")
        if not self._link(left, right, pairs) or left.orphans or right.orphans:
            refuse("private rows meet without an equality of their units in the join itself")
        renamed = self.symbols.renaming()
        first, second = left.renamed(renamed, True), right.renamed(renamed, True)
        units: dict[Symbol, str] = {}
        for x, kind in first.facts.units.items():
            for y in second.facts.units:
                units[self.symbols.call("coalesce", (x, y))] = kind
                units[self.symbols.call("coalesce", (y, x))] = kind
        weak = {**first.weak, **second.weak, **first.facts.units, **second.facts.units}
        facts = Facts([], first.facts.groups + second.facts.groups, units)
        scope = {**_missing(a.scope, renamed), **_missing(b.scope, renamed)}
        return Joined(Relation(PRIVATE, {}, facts, weak), scope)


def _led(
    relation: Relation, here: Symbol, hops: tuple[Hop, ...], reached: Symbol
) -> dict[Symbol, tuple[tuple[Hop, ...], Symbol]]:
    """Where paths have led to, once a hop from a column has been followed."""
    before = {s: (way, reached if u == here else u) for s, (way, u) in relation.followed.items()}
    return {**before, here: (hops, reached)}


def _followed(relation: Relation, others: list[Relation]) -> Relation | None:
    """A path that goes on from a column whose row has been led to its unit already, in a query below."""
    for here, hops in relation.pending.items():
        for other in others:
            way, unit = other.followed.get(here, ((), here))
            if way == hops and unit in other.facts.units:
                rest = {s: h for s, h in relation.pending.items() if s != here}
                weak = {**relation.weak, unit: hops[-1].kind}
                return replace(relation, pending=rest, weak=weak, followed=_led(relation, here, hops, unit))
    return None


def same_type(a: str, b: str) -> bool:
    """Whether ``=`` compares values of these types as they are; integers of every width are one."""
    return a == b or (a in WHOLE and b in WHOLE)


def times(a: Number, b: Number) -> Number:
    """The product, where both are known."""
    return None if a is None or b is None else a * b


def _least(a: Number, b: Number) -> Number:
    return b if a is None else a if b is None else min(a, b)


def _repeat(facts: Facts, other: Relation) -> None:
    """Rows that stand beside many public ones: as many as before beside each of them, which its key tells apart."""
    more = [(s | key, n) for s, n in facts.rows for key in other.unique]
    counted = [] if other.count is None else [(s, n * max(1, other.count)) for s, n in facts.rows]
    facts.rows, facts.budgets = more + counted, {}


def _sources(relation: Relation) -> list[Facts]:
    """What cells are made of; private rows among them are no longer anybody's."""
    if relation.private and relation.orphans:
        refuse("rows of nobody meet cells")
    return [relation.facts] if relation.private else relation.sources


def _of_many(a: Relation, b: Relation, pairs: Pairs) -> Relation:
    """Cells of two sources: made of what agrees in columns that are equal. A private row agrees with itself in all."""
    key: dict[Symbol, tuple[Symbol, ...]] = {}
    for x, y in pairs:
        for here, there in ((x, y), (y, x)):
            ours = (here,) if a.private else a.key.get(here)
            theirs = (there,) if b.private else b.key.get(there)
            if ours is not None and theirs is not None:
                key[here] = key[there] = (*ours, *theirs)
    return Relation(CELLS, {}, key=key, sources=_sources(a) + _sources(b))


def stripped(scope: Scope) -> Scope:
    """The same columns, of which it is no longer known what a row moves them by."""
    return {
        alias: {name: replace(v, weight=None, total=None, halved=False) for name, v in columns.items()}
        for alias, columns in scope.items()
    }  # fmt: skip


def _missing(scope: Scope, renamed: object) -> Scope:
    holder = {
        alias: Relation(PUBLIC, columns).renamed(renamed, True).columns  # type: ignore[arg-type]
        for alias, columns in scope.items()
    }
    return holder


def _public(a: Relation, b: Relation, kind: str, once: bool, back: bool) -> Relation:
    count = a.count if once else b.count if back else times(a.count, b.count)
    unique = (
        list(a.unique) if once else list(b.unique) if back else [x | y for x in a.unique for y in b.unique]
    )
    facts = Facts(sizes={**a.facts.sizes, **b.facts.sizes})
    return Relation(kind, {}, facts, count=count, unique=unique)
