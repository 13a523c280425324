"""FROM clauses: which rows a SELECT reads, which units own them, and how joins combine them.

It stands apart from :mod:`dpsql.lock.check`, which reads the other clauses: together they would be longer than a module may be.
"""

from __future__ import annotations

import datetime
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce

from dpsql.late_dataclass import dataclass
from dpsql.lock import expressions, tree
from dpsql.lock.expressions import WHOLE, Env, Expressions
from dpsql.lock.facts import Facts, Kind, Relation, Set, Symbol, Symbols, Value, times
from dpsql.lock.tree import Call, Expr, Hop, Literal, Ref, refuse
from dpsql.mechanisms.base import LentTotals

Ranges = Sequence[tuple[int, int]]
"""Half-open ranges of days, as ordinals."""
Pairs = Sequence[tuple[Symbol, Symbol]]
"""Columns that a top-level ``=`` makes equal."""
Scan = tuple[tuple[str, ...], str, Mapping[str, Value]]
"""A base table's path, the name of a column, and all of the table's columns."""


@dataclass(slots=True)
class Joins:
    """Joins the items of one FROM under equalities of their columns."""

    symbols: Symbols
    scans: Mapping[Symbol, Scan]
    around: Mapping[Symbol, str]
    """In a subquery, the outer row's units."""
    pairs: Pairs
    cast: Pairs
    """Integers that an ``=`` makes equal after casts to integer types, which keep different integers different."""
    same: Pairs
    """Columns that are equal or both NULL."""

    def inner(self, parts: list[Relation]) -> Relation:
        """Join all parts, under conditions that hold for every resulting row."""
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
        return reduce(self._with_others, [*private, *(p for p in parts if not p.private)])

    # -- units ---------------------------------------------------------------------------------------------------

    def _link(self, a: Relation, b: Relation) -> bool:
        """Return whether an equality of unchanged columns of one type makes the units of both equal."""
        ours, theirs = {**a.weak, **a.facts.units}, {**b.weak, **b.facts.units}
        return bool(ours.keys() & theirs.keys()) or any(  # a path leads to the other's column
            x in ours and y in theirs and same_type(ours[x], theirs[y])
            for x, y in both_ways(self._closed({**ours, **theirs}))
        )

    def _follow_all(self, part: Relation, parts: list[Relation]) -> Relation:
        """Follow a part's paths to the unit as far as the joins lead."""
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
        if hops[0].column == hops[0].key and not hops[0].parted:  # the path's start is equal to the unit
            weak[here] = hops[-1].kind
        return replace(led, pending={}, weak=weak)

    def _own_rows(self, left: Relation, right: Relation) -> Relation:
        """Join private rows of equal units."""
        if not (left.owner and right.owner):
            refuse("rows that are units meet private rows")
        units = {**left.facts.units, **right.facts.units}
        weak = {**left.weak, **right.weak}
        linked = {s for pair in self._closed({**units, **weak}) for s in pair if s in weak}
        linked |= left.weak.keys() & right.facts.units.keys() | right.weak.keys() & left.facts.units.keys()
        units |= {s: weak[s] for s in linked}
        many = times(left.facts.rows_of((), self.symbols.made), right.facts.rows_of((), self.symbols.made))
        rows = () if many is None else ((frozenset[Symbol](), many),)
        sizes = {**left.facts.sizes, **right.facts.sizes}
        facts = Facts(rows, left.facts.groups + right.facts.groups, units, sizes)
        made = Relation(Kind.PRIVATE, left.columns | right.columns, facts, unique=_crossed(left, right))
        made.weak = {s: t for s, t in weak.items() if s not in units}
        made.orphans = (left.orphans or right.orphans) and not linked
        made.pending, made.followed = left.pending | right.pending, left.followed | right.followed
        return made

    def _closed(self, units: Mapping[Symbol, str]) -> list[tuple[Symbol, Symbol]]:
        """Return pairs of equal units, also if they are equal through the outer row's unit."""
        found = [pair for pair in self.pairs if pair[0] in units and pair[1] in units]
        for middle, kind in self.around.items():
            ends = [y if x == middle else x for x, y in self.pairs if middle in (x, y)]
            ends = [s for s in ends if s in units and same_type(units[s], kind)]
            found += [(x, y) for x in ends for y in ends if x != y]
        return found

    # -- others --------------------------------------------------------------------------------------------------

    def _with_others(self, left: Relation, right: Relation) -> Relation:
        """Join public rows with any others, or cells with cells."""
        kinds = {left.kind, right.kind}
        columns = left.columns | right.columns
        if left.foreseen and right.foreseen:
            return _public(left, right, self._keyed(right), self._keyed(left))
        mine, other = (right, left) if left.kind == Kind.PUBLIC else (left, right)
        if kinds == {Kind.PRIVATE, Kind.PUBLIC}:
            facts = replace(mine.facts, sizes={**mine.facts.sizes, **other.facts.sizes})
            if self._keyed(other):
                return replace(mine, columns=columns, facts=facts)
            return replace(mine, columns=columns, facts=_repeated(facts, other), unique=_crossed(mine, other))
        if kinds == {Kind.CELLS, Kind.PUBLIC}:
            found = {there: mine.key[here] for here, there in both_ways(self.pairs) if here in mine.key}
            single, count = mine.single and self._keyed(other), times(mine.count, other.count)
            made = replace(mine, columns=columns, key=mine.key | found, single=single)
            return replace(made, count=count, unique=[])
        if kinds <= {Kind.CELLS, Kind.PRIVATE}:
            return replace(_of_many(left, right, self.pairs), columns=columns).plain()
        refuse(f"{left.kind} rows meet {right.kind} rows")

    def _keyed(self, other: Relation) -> bool:
        """Return whether each row joins at most one row of the other relation."""
        equal = {s for pair in (*self.pairs, *self.cast) for s in pair}
        return other.count == 1 or any(key <= equal for key in other.unique)

    # -- outer joins ---------------------------------------------------------------------------------------------

    def left(self, mine: Relation, given: Relation, plain: bool, asof: bool) -> Relation:
        """Derive a LEFT JOIN; ``plain``: its condition has only equalities."""
        linked = self._link(mine, given) if mine.private and given.private else True
        given = self._follow_all(given, [mine])
        other = given.renamed(self.symbols.renaming(), missing=True)
        columns = mine.columns | other.columns
        once = asof or self._keyed(given)
        match mine.kind, other.kind:
            case Kind.PRIVATE, Kind.PRIVATE:
                if not linked or not (mine.owner and other.owner):
                    refuse("private rows meet without an equality of their units in the join itself")
                missing = other.facts.groups if plain and self._whole(mine, given) else other.facts.or_missing
                facts = replace(mine.facts, rows=(), groups=mine.facts.groups + missing)
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
        refuse(f"a left join of {mine.kind} rows and {other.kind} rows")

    def _orphans(self, mine: Relation, other: Relation, asof: bool) -> Relation:
        """Keep public rows without a private match: they have no unit, and every unit's rows decide about them."""
        if asof:
            refuse("the nearest private row of a public one")
        if not other.owner:
            refuse("a left join of public rows and rows that are units")
        facts = replace(other.facts, units={}, sizes={**other.facts.sizes, **mine.facts.sizes})
        if not self._keyed(mine):
            facts = _repeated(facts, mine)
        weak = {**other.weak, **other.facts.units}
        return Relation(Kind.PRIVATE, mine.columns | other.columns, facts, weak, True, other.pending)

    def _looked_up(self, mine: Relation, cells: Relation, plain: bool, made: Relation) -> Relation:
        """Look up each public row's cell by its key."""
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
        single = single or (not key and mine.count == 1)
        unique = mine.unique if single else made.unique
        return replace(made, key=key, single=single, open=public, fixed=True, count=mine.count, unique=unique)

    def _whole(self, left: Relation, right: Relation) -> bool:
        """Return whether all conditions are equalities of units, so that all rows of a unit have matches or none has."""
        units = {*left.facts.units, *left.weak}, {*right.facts.units, *right.weak}
        return all(
            any(x in units[0] and y in units[1] for x, y in both_ways([pair]))
            for pair in (*self.cast, *self.same)
        )

    def semi(self, left: Relation, right: Relation) -> Relation:
        """Derive a SEMI or ANTI JOIN."""
        if right.foreseen:
            return left.plain() if left.kind == Kind.CELLS else left
        if left.private and right.private and left.owner and right.owner and self._link(left, right):
            return left
        refuse("private rows meet without an equality of their units in the join itself")

    def full(self, left: Relation, right: Relation) -> Relation:
        """Derive a FULL JOIN."""
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
            refuse(f"a full join of {left.kind} rows and {right.kind} rows")
        if not self._link(left, right) or left.orphans or right.orphans:
            refuse("private rows meet without an equality of their units in the join itself")
        units = {
            self.symbols.call("coalesce", pair): kind
            for x, kind in first.facts.units.items()
            for pair in both_ways((x, y) for y in second.facts.units)
        }
        weak = {**first.weak, **second.weak, **first.facts.units, **second.facts.units}
        facts = Facts(groups=first.facts.or_missing + second.facts.or_missing, units=units)
        return replace(made, facts=facts, weak=weak)


def both_ways(pairs: Iterable[tuple[Symbol, Symbol]]) -> Iterator[tuple[Symbol, Symbol]]:
    """Yield each pair, and each pair reversed."""
    for x, y in pairs:
        yield x, y
        yield y, x


def _led(relation: Relation, here: Symbol, hops: tuple[Hop, ...], reached: Symbol) -> Relation:
    """Return the relation after a hop from a column."""
    before = {s: (way, reached if u == here else u) for s, (way, u) in relation.followed.items()}
    pending = {s: h for s, h in relation.pending.items() if s != here}
    return replace(relation, pending=pending, followed={**before, here: (hops, reached)})


def _followed(relation: Relation, others: list[Relation]) -> Relation | None:
    """Return the relation after a path that a subquery has already followed; None if there is none."""
    for here, hops in relation.pending.items():
        for other in others:
            way, unit = other.followed.get(here, ((), here))
            if way == hops and unit in other.facts.units:
                weak = {**relation.weak, unit: hops[-1].kind}
                return replace(_led(relation, here, hops, unit), weak=weak)
    return None


def same_type(a: str, b: str) -> bool:
    """Return whether ``=`` compares values of these types exactly: they are equal, or both integer types."""
    return a == b or (a in WHOLE and b in WHOLE)


def _crossed(a: Relation, b: Relation) -> list[frozenset[Symbol]]:
    return [x | y for x in a.unique for y in b.unique]


def _repeated(facts: Facts, other: Relation) -> Facts:
    """Return the facts of rows that each join many public rows: the old caps hold per value of the public keys."""
    more = tuple((s | key, n) for s, n in facts.rows for key in other.unique)
    counted = () if other.count is None else tuple((s, n * max(1, other.count)) for s, n in facts.rows)
    return replace(facts, rows=more + counted, budgets={})


def _sources(relation: Relation) -> list[Facts]:
    """Return the sources of cells, or of private rows that become cells."""
    if relation.private and relation.orphans:
        refuse("rows without a unit are joined with cells")
    return relation.many


def _of_many(a: Relation, b: Relation, pairs: Pairs) -> Relation:
    """Join cells by equal columns; a private row is a cell whose key is all its columns."""
    key: dict[Symbol, tuple[Symbol, ...]] = {}
    for here, there in both_ways(pairs):
        ours = (here,) if a.private else a.key.get(here)
        theirs = (there,) if b.private else b.key.get(there)
        if ours is not None and theirs is not None:
            key[here] = key[there] = (*ours, *theirs)
    return Relation(Kind.CELLS, {}, key=key, sources=_sources(a) + _sources(b))


def _public_kind(a: Relation, b: Relation) -> Kind:
    """Return the kind of joined rows: the outer row's own if either is, else public."""
    return Kind.OWN if Kind.OWN in (a.kind, b.kind) else Kind.PUBLIC


def _public(a: Relation, b: Relation, once: bool, back: bool) -> Relation:
    """Join public or own rows; ``once``, ``back``: each row of the first (of the second) joins at most one other."""
    count = a.count if once else b.count if back else times(a.count, b.count)
    unique = a.unique if once else b.unique if back else _crossed(a, b)
    facts = Facts(sizes={**a.facts.sizes, **b.facts.sizes})
    return Relation(_public_kind(a, b), a.columns | b.columns, facts, count=count, unique=unique)


@dataclass
class Sources:
    """Reads the FROM clauses of one text."""

    known: tree.Known
    private: Mapping[str, LentTotals | Sequence[str]] = field(default_factory=dict)
    symbols: Symbols = field(default_factory=Symbols)
    ctes: dict[str, Relation] = field(default_factory=dict)
    scans: dict[Symbol, Scan] = field(default_factory=dict)
    aliases: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    leaves: dict[str, Relation] = field(default_factory=dict)
    """Relations by their aliases in FROM."""
    named: frozenset[str] | None = None
    """The columns that the text names; None: perhaps all."""
    scanned: list[tree.Base] = field(default_factory=list)
    paid: Ranges | None = None
    """The days of the periods that pay for the text; None for all."""

    def __post_init__(self) -> None:
        self.expressions = Expressions(self.symbols, self.query, self.known.salt, self.known.macros)

    def distinct_names(self) -> None:
        """Refuse an alias that is also a column's name: the engine could read it as a struct column and its field."""
        found = (self.names, *(base.names for base in self.scanned))
        if any(not self.aliases.isdisjoint(names) for names in found):
            refuse("an alias that is a column")

    @abstractmethod
    def query(self, node: tree.Query, outer: Env | None) -> Relation:
        """Derive the relation that a query returns."""

    def _alias(self, name: str) -> None:
        folded = name.lower()
        if folded in self.aliases or name in self.known.lent or name in self.private:
            refuse("an alias that occurs twice")
        self.aliases.add(folded)

    # -- FROM ----------------------------------------------------------------------------------------------------

    def _from(self, source: tree.Source | None, conditions: list[Expr], outer: Env | None) -> Relation:
        """Derive the rows of a FROM; ``conditions`` hold for every row that WHERE keeps."""
        if source is None:
            return Relation(Kind.PUBLIC, {}, count=1)
        leaves: list[tree.Source] = []
        flat: list[Expr] = []
        self._flatten(source, leaves, flat)
        conditions = [*conditions, *flat]
        later = [leaf for leaf in leaves if self._is_lateral(leaf, leaves)]
        parts = [self._leaf(leaf, conditions, outer) for leaf in leaves if leaf not in later]
        whole = self._joins(conditions, parts, outer).inner(parts) if parts else None
        for leaf in later:
            whole = self._lateral(leaf, whole, outer)
        assert whole is not None
        env = Env(whole, outer)
        for condition in flat:
            self._condition(condition, env)
        return env.relation

    def _is_lateral(self, leaf: tree.Source, leaves: list[tree.Source]) -> bool:
        match leaf:
            case tree.Made(args=args):
                return any(tree.has(arg, Ref) for arg in args)
            case tree.Derived(query) if len(leaves) > 1:
                others = (tree.named_sources(other) for other in leaves if other is not leaf)
                named = {alias for sources in others for alias, _ in sources}
                return not named.isdisjoint(tree.tables_of(query))
        return False

    def _lateral(self, leaf: tree.Source, whole: Relation | None, outer: Env | None) -> Relation:
        """Join each row with the elements of its own list, or with a lateral subquery."""
        if whole is None or not isinstance(leaf, tree.Made | tree.Derived):
            refuse("a part of FROM that looks at what is not there")
        self._alias(leaf.alias)
        if isinstance(leaf, tree.Made):
            if leaf.name != "unnest" or len(leaf.columns) != 1 or len(leaf.args) != 1:
                refuse("a table function of columns")
            self.expressions.row(leaf.args[0], Env(whole, outer))
            found = Relation(Kind.OWN, {Ref("", leaf.columns[0]): Value(self.symbols.fresh())})
        else:
            found = self.query(leaf.query, Env(whole, outer))
        if not found.foreseen:
            refuse("a subquery looks at other units' rows")
        self._name(found.columns)
        once = found.count == 1
        if not once:  # a row may be repeated
            facts = replace(whole.facts, rows=(), budgets={})
            whole = replace(whole, unique=[], count=None, single=False, facts=facts)
            whole = whole.plain() if whole.kind == Kind.CELLS else whole
        return replace(whole, columns=whole.columns | found.called(leaf.alias).columns)

    def _flatten(self, source: tree.Source, leaves: list[tree.Source], conditions: list[Expr]) -> None:
        match source:
            case tree.Join(left, right, "INNER", on, asof=False):
                self._flatten(left, leaves, conditions)
                self._flatten(right, leaves, conditions)
                conditions += tree.conjuncts(on)
            case _:
                leaves.append(source)

    def _joins(self, conditions: list[Expr], parts: Iterable[Relation], outer: Env | None) -> Joins:
        """Return the equalities of FROM items under conditions."""
        around: dict[Symbol, str] = {}
        inner = outer
        while outer is not None:
            around |= {**outer.relation.facts.units, **outer.relation.weak}
            outer = outer.outer
        if not conditions:
            return Joins(self.symbols, self.scans, around, (), (), ())
        columns: dict[Ref, Value] = {}
        for part in parts:
            columns.update(part.columns)
        env = Env(Relation(Kind.PUBLIC, columns), inner)
        equal, cast = _pairs(conditions, "=", env.get), _pairs(conditions, "=", env.uncast)
        same = _pairs(conditions, "is not distinct from", env.get)
        return Joins(self.symbols, self.scans, around, equal, cast, same)

    def _leaf(self, source: tree.Source, conditions: list[Expr], outer: Env | None) -> Relation:
        if isinstance(source, tree.Join):
            return self._outer(source, conditions, outer)
        self._alias(source.alias)
        match source:
            case tree.Table(path):
                relation = self._table(path)
                _check_paid(self.known.tables.get(path), source.alias, conditions, self.paid)
            case tree.Derived(query):
                relation = self.query(query, outer)
            case tree.Values():
                relation = self._values(source)
            case tree.Made():
                relation = self._made(source)
        self._name(relation.columns)
        self.leaves[source.alias] = relation = relation.called(source.alias)
        return relation

    def _name(self, columns: Iterable[Ref]) -> None:
        for ref in columns:
            self.names.add(ref.name.lower())

    def _outer(self, join: tree.Join, conditions: list[Expr], outer: Env | None) -> Relation:
        """Derive an outer, SEMI, ANTI or ASOF join."""
        swapped = join.kind == "RIGHT"
        left, right = (join.right, join.left) if swapped else (join.left, join.right)
        kept = conditions if join.kind in ("LEFT", "RIGHT", "SEMI", "ANTI") and not join.asof else []
        if join.kind == "LEFT" and self._is_lateral(right, [left, right]):
            if join.on != Literal(True) or join.asof:
                refuse("a condition on a lateral join")
            return self._lateral(right, self._from(left, kept, outer), outer)
        a, b = self._from(left, kept, outer), self._from(right, [], outer)
        if a.needs or b.needs:
            refuse("a period that may be missing")
        on = tree.conjuncts(join.on)
        env = Env(Relation(Kind.PUBLIC, a.columns | b.columns), outer)
        for node in on:
            if tree.looks_beyond(node):
                refuse("a subquery in the condition of an outer join")
            self.expressions.row(node, env)
        joins = self._joins(on, (a, b), outer)
        if join.asof and (swapped or join.kind == "OUTER"):
            refuse("the nearest row the other way")
        if join.kind == "OUTER":
            return joins.full(a, b)
        if join.kind in ("SEMI", "ANTI"):
            return joins.semi(a, b)
        return joins.left(a, b, len(joins.cast) + len(joins.same) == len(on), join.asof)

    # -- relations -----------------------------------------------------------------------------------------------

    def _table(self, path: tuple[str, ...]) -> Relation:
        base = self.known.tables.get(path)
        if base is None and len(path) == 1:
            return self._named(path[0])
        if base is None:
            refuse("a table that the policy does not name")
        self.scanned.append(base)
        columns = {
            name: Value(self.symbols.fresh(), whole=kind in expressions.WHOLE, public=base.public)
            for name, kind in base.among(self.named).items()
        }
        parts: tuple[Symbol, ...] = ()
        if base.period is not None and base.unit is not None:
            parts = self._pair(base.unit, base.period, columns)
        scanned = {**columns, **dict(zip(("",), map(Value, parts), strict=False))}  # no column has that name
        self.scans |= {value.symbol: (path, name, scanned) for name, value in columns.items()}
        made = Relation(Kind.PUBLIC if base.public else Kind.PRIVATE, _output(columns))
        if base.public:
            return made
        if base.unit is None:
            return replace(made, facts=Facts(rows=((frozenset(), 1),)), owner=False)
        symbol = columns[base.unit].symbol
        if parts:
            pair, *needed = parts
            needs = {pair: (frozenset(needed), self._same_in_period(base, needed[1], columns))}
            return replace(made, weak={pair: base.kind}, needs=needs, orphans=True)
        if base.path:
            return replace(made, pending={symbol: base.path}, orphans=True)
        return replace(made, weak={symbol: base.kind}, orphans=True)

    def _pair(
        self, unit: str, period: tuple[str, str, str], columns: Mapping[str, Value]
    ) -> tuple[Symbol, ...]:
        """Return the pair of a column and the row's period, and its two parts, in the one accepted spelling."""
        function, part, column = period
        when: Expr = Ref("", column)
        if function == "date_trunc":
            when = tree.Call("try", (tree.Call(function, (Literal(part), tree.Call("try", (when,)))),))
        elif function == "week":
            when = tree.Call("try", (tree.Call("date_part", (Literal(function), tree.Call("try", (when,)))),))
        elif function:
            when = tree.Call("date_part", (Literal(function), when))
        parts: tuple[Expr, ...] = (Ref("", unit), when)
        pair = tree.Call("row", parts)
        env = Env(Relation(Kind.PUBLIC, _output(columns)))
        symbol, *rest = (self.expressions.row(node, env).symbol for node in (pair, *parts))
        self.symbols.made.pop(symbol, None)  # the unit is the pair, not its parts
        return symbol, *rest

    def _same_in_period(self, base: tree.Base, period: Symbol, columns: Mapping[str, Value]) -> Set:
        """Return the columns that have one value in all rows of a pair: its period, and the date if the period is a day.

        Different dates have different days, so ``date_trunc('day', d)`` decides a date ``d``. A timestamp has a time, too.
        """
        assert base.period is not None
        function, part, column = base.period
        if function != "date_trunc":
            return frozenset()
        if part == "day" and base.columns.get(column) == "DATE":
            return frozenset({period, columns[column].symbol})
        return frozenset({period})

    def _named(self, name: str) -> Relation:
        if name in self.ctes:
            return self.ctes[name].renamed(self.symbols.renaming())
        if name in self.private:
            return self._totals(self.private[name])
        lent = self.known.lent.get(name)
        if lent is None:
            refuse("an unknown relation")
        columns = {column: Value(self.symbols.fresh(), public=True) for column in lent.columns}
        unique = [] if lent.unique is None else [frozenset({columns[lent.unique].symbol})]
        return Relation(Kind.PUBLIC, _output(columns), count=lent.count, unique=unique)

    def _totals(self, given: LentTotals | Sequence[str]) -> Relation:
        """Derive a relation that the operator passes: bounded totals, or rows of one block."""
        if not isinstance(given, LentTotals):
            return Relation(Kind.OWN, {Ref("", name): Value(self.symbols.fresh()) for name in given})
        columns = {name: Value(self.symbols.fresh(), whole=True) for name in given.keys}
        keys = [value.symbol for value in columns.values()]
        for name, most in given.columns.items():
            total = times(most, given.groups) if given.shares else None
            columns[name] = Value(self.symbols.fresh(), whole=True, weight=most, total=total)
            if name in given.halves:
                rest, steps = given.halves[name]
                columns[name] = Value(self.symbols.fresh(), whole=True, half=(name, 1, steps, most, total))
                columns[rest] = Value(self.symbols.fresh(), whole=True, half=(name, 1, 0, most, total))
        groups = () if given.groups is None or given.shares else ((frozenset(keys), given.groups),)
        facts = Facts(((frozenset(keys), 1),), groups)
        made = Relation(Kind.PRIVATE, _output(columns), facts)
        return replace(made.cells(frozenset(keys)), columns=made.columns, single=True)

    def _values(self, node: tree.Values) -> Relation:
        env = Env(Relation(Kind.PUBLIC, {}))
        rows = [[self.expressions.row(item, env) for item in row] for row in node.rows]
        if any(len(row) != len(node.columns) for row in rows):
            refuse("rows of different lengths")
        given = [expressions.any_of(values, self.symbols.fresh()) for values in zip(*rows, strict=True)]
        columns = {
            Ref("", name): replace(value, nullable=True, public=True)
            for name, value in zip(node.columns, given, strict=True)
        }
        made = Relation(Kind.PUBLIC, columns, count=len(rows))
        if len(columns) == 1 and _different([row[0] for row in node.rows]):
            made.unique = [frozenset(v.symbol for v in columns.values())]
        made.facts = Facts(sizes={v.symbol: len(rows) for v in columns.values()})
        return made

    def _made(self, node: tree.Made) -> Relation:
        if node.name not in tree.TABLES or node.name in self.known.macros or len(node.columns) != 1:
            refuse("a table function")
        for item in node.args:
            self.expressions.row(item, Env(Relation(Kind.PUBLIC, {})))
        column = Value(self.symbols.fresh(), whole=node.name != "unnest")
        made = Relation(Kind.PUBLIC, {Ref("", node.columns[0]): column})
        numbers = [number for item in node.args if (number := tree.integer(item)) is not None]
        if node.name == "range" and len(numbers) == len(node.args) and 1 <= len(numbers) <= 2:
            start, stop = (0, *numbers)[-2:]
            made.count = max(0, stop - start)
            made.facts = Facts(sizes={column.symbol: made.count})
            column.low, column.high = start, stop - 1
        if node.name != "unnest":
            made.unique = [frozenset({column.symbol})]
        return made

    def _condition(self, node: Expr, env: Env) -> None:
        """Filter rows; filtering cells by more than their key drops their sensitivities."""
        self.expressions.row(node, env)
        relation = env.relation
        if relation.kind == Kind.CELLS:
            if not all(env.find(ref).symbol in relation.key for ref in tree.refs(node)):
                relation = relation.plain()
            env.relation = replace(relation, fixed=False)


def _output(columns: Mapping[str, Value]) -> dict[Ref, Value]:
    return {Ref("", name): value for name, value in columns.items()}


def _pairs(conditions: list[Expr], name: str, column: Callable[[Expr], Value | None]) -> Pairs:
    """Return the pairs of columns that top-level conditions make equal."""
    pairs = []
    for node in conditions:
        if isinstance(node, tree.Call) and node.name == name and len(node.args) == 2:
            x, y = map(column, node.args)
            if x is not None and y is not None:
                pairs.append((x.symbol, y.symbol))
    return pairs


def _different(row: Sequence[Expr]) -> bool:
    """Return whether constants certainly differ: integers, texts or booleans of one type, with at most one NULL."""
    kinds, values = set(), set()
    for node in row:
        kind = ""
        if isinstance(node, tree.Cast):
            kind, node = node.type, node.child
        if not isinstance(node, Literal):
            return False
        if node.value is not None:
            kinds.add((kind, type(node.value)))
        values.add(node.value)
    if len(kinds) != 1 or len(values) != len(row):
        return False
    kind, of = kinds.pop()
    if kind == "BOOLEAN":
        return of is bool or values <= {"t", "f", None}  # DuckDB 1.5 writes booleans as texts
    if kind == "":
        return of in (int, str, bool)
    return (of is int and kind in expressions.WHOLE) or (of is str and kind == "VARCHAR")


# -- budgets per period ---------------------------------------------------------------------------------------------------


def _check_paid(base: tree.Base | None, alias: str, conditions: list[Expr], paid: Ranges | None) -> None:
    """Refuse a scan that may read periods that don't pay; ``conditions``, of its own SELECT, limit its days."""
    if base is None or paid is None or base.public:
        return
    if base.undated:
        refuse("rows without a period, which all periods pay for")
    if not base.dated or base.period is None:
        return
    _, part, column = base.period
    days: Ranges = [(_DAYS[0], _DAYS[1])]
    for node in conditions:
        days = _both(days, _days_of(node, Ref(alias, column), base.columns[column]))
    for low, high in days:
        if low <= _DAYS[0] or high >= _DAYS[1]:
            refuse("a scan whose periods have no end")
        start, end = _period_of(low, part)[0], _period_of(high - 1, part)[1]
        if not any(first <= start and end <= last for first, last in paid):
            refuse("a scan of periods that do not pay")


_DAYS = (0, datetime.date.max.toordinal())
"""Days before and after all that can be compared."""
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _days_of(node: Expr, column: Ref, kind: str) -> Ranges:
    """Return the days outside of which a condition is never true; all days for a condition of another form."""
    match node:
        case Call("and", args):
            days: Ranges = [_DAYS]
            for arg in args:
                days = _both(days, _days_of(arg, column, kind))
            return days
        case Call("or", args):
            return [pair for arg in args for pair in _days_of(arg, column, kind)]
        case Call(">=" | "<" as sign, (Ref() as read, constant)) if read == column:
            day = _day(constant, kind)
            if day is not None:
                return [(day, _DAYS[1]) if sign == ">=" else (_DAYS[0], day)]
    return [_DAYS]


def _day(node: Expr, kind: str) -> int | None:
    """Return the day at whose start a constant of the column's own type is; None for any other expression."""
    match node:
        case tree.Cast(Literal(str(text)), type) if type == kind and kind in ("DATE", "TIMESTAMP"):
            date = text.removesuffix(" 00:00:00") if kind == "TIMESTAMP" else text
            if _DAY.fullmatch(date) is not None:
                try:
                    return datetime.date.fromisoformat(date).toordinal()
                except ValueError:
                    return None
    return None


def _both(one: Ranges, other: Ranges) -> Ranges:
    pairs = [(max(a, c), min(b, d)) for a, b in one for c, d in other]
    return [(low, high) for low, high in pairs if low < high]


def _period_of(day: int, part: str) -> tuple[int, int]:
    """Return the first day of a day's period, and the first day after it."""
    date = datetime.date.fromordinal(day)
    if part == "day":
        return day, day + 1
    if part == "week":
        monday = day - (day - 1) % 7  # the first of January of the year 1 was a Monday
        return monday, monday + 7
    length = {"month": 1, "quarter": 3, "year": 12}.get(part) or refuse("a period of another length")
    if date.year == datetime.MAXYEAR:
        refuse("a period without an end")
    month = date.year * 12 + (date.month - 1) // length * length
    first, after = (datetime.date(m // 12, m % 12 + 1, 1).toordinal() for m in (month, month + length))
    return first, after
