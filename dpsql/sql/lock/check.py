"""A second lock: derives from the text that goes to the engine what one privacy unit can do to its answer, and compares.

It shares nothing with the binder, which wrote the text: it reads the tree that the engine's own parser makes of it, takes
one small normal form in which names need no rules, and refuses whatever it can't prove. A binder that is deceived writes a
text that does not hold what its operator charges for; here that is found, before anything is paid or read.

What it derives, from the inside out: whose rows a relation has (nobody's, one unit's each, or many units' together); which
columns are the unit; how many rows and groups one unit has; between which integers a column lies; and, once rows of many
units are added up, how far one unit moves the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from dpsql.mechanisms.base import ClaimedText, PackingClaim, RowsClaim
from dpsql.sql.lock.caps import cap_of
from dpsql.sql.lock.duckdb_reader import read_tree
from dpsql.sql.lock.expressions import Env, aggregated, conjuncts, has, refs
from dpsql.sql.lock.facts import CELLS, OWN, PRIVATE, PUBLIC, Facts, Relation, Set, Symbol, Value
from dpsql.sql.lock.joins import same_type, stripped
from dpsql.sql.lock.packing import prove_packing
from dpsql.sql.lock.proof import prove
from dpsql.sql.lock.scores import prove_scores
from dpsql.sql.lock.sources import Sources
from dpsql.sql.lock.tree import (
    Call,
    Expr,
    Known,
    Literal,
    Query,
    Ref,
    Select,
    Subquery,
    Union,
    Window,
    refuse,
)

Serialise = Callable[[str], str]
"""The engine's own parser: a text, to its tree in JSON."""


def check(claimed: ClaimedText, known: Known, serialise: Serialise) -> None:
    """Proves that a text does no more than its claim.

    Raises:
        Unproved: it could not be proved.
    """
    check_tree(read_tree(serialise(claimed.text)), claimed, known)


def check_tree(tree: Query, claimed: ClaimedText, known: Known) -> None:
    """The same for a tree, whichever parser read it."""
    checker = Checker(known, claimed.lent)
    if isinstance(claimed.claim, PackingClaim):
        prove_packing(*checker.rows_and_item(tree), claimed.claim)
    else:
        prove(checker.query(tree, None), claimed.claim, checker.symbols)
        scores = claimed.claim.scores if isinstance(claimed.claim, RowsClaim) else None
        if scores is not None and checker.outermost is not None:
            prove_scores(tree, checker.outermost, checker.leaves, checker.expressions, scores)
    checker.distinct_names()


@dataclass
class Checker(Sources):
    """Reads one text."""

    outermost: Env | None = None
    """The FROM that was read last: that around all others."""

    def query(self, tree: Query, outer: Env | None) -> Relation:
        """What a query gives."""
        before = dict(self.ctes)
        for name, inner in tree.ctes:
            if outer is not None:
                refuse("a CTE in a subquery")
            self._alias(name)
            self.ctes[name] = self.query(inner, None)
        made = self._select(tree, outer) if isinstance(tree, Select) else self._union(tree, outer)
        self.ctes = before
        return made

    # -- one SELECT ----------------------------------------------------------------------------------------------

    def _select(self, tree: Select, outer: Env | None) -> Relation:
        conditions = conjuncts(tree.where)
        joined = self._from(tree.source, conditions, outer)
        env = Env(joined.scope, joined.relation, outer)
        env.relation = self._present(env, conditions)
        for node in conditions:
            self._condition(node, env)
        self._link_outward(env, conditions, outer)
        self._budgeted(env, conditions)
        items = [expr for _, expr in tree.items]
        if tree.groups or any(map(aggregated, items)) or (tree.having is not None):
            made = self._grouped(tree, env)
        else:
            made = self._projected(tree, env)
        if env.reads:
            made = self._global(made, [*env.sources])
        if tree.distinct:
            made = self._distinct(made)
        if tree.limit is not None and made.kind in (PRIVATE, CELLS):
            made = self._global(made, [])
        elif tree.limit is not None and tree.limit >= 0:
            made.count = tree.limit if made.count is None else min(tree.limit, made.count)
        self._ordered(tree, env)
        self.outermost = env
        return made

    def rows_and_item(self, tree: Query) -> tuple[Select, Callable[[Expr], Value], Relation]:
        """The only item of a SELECT without groups, as it is written, and its rows."""
        plain = isinstance(tree, Select) and not (
            tree.groups or tree.having or tree.qualify or tree.distinct or tree.limit is not None
        )
        if not isinstance(tree, Select) or not plain or len(tree.items) != 1 or tree.ctes:
            refuse("packed rows of another shape")
        conditions = conjuncts(tree.where)
        joined = self._from(tree.source, conditions, None)
        env = Env(joined.scope, joined.relation)
        env.relation = self._present(env, conditions)
        for node in conditions:
            self._condition(node, env)
        if env.parted or env.reads:
            refuse("packed rows of another shape")
        return tree, lambda node: self.expressions.row(node, env), env.relation

    def _present(self, env: Env, conditions: list[Expr]) -> Relation:
        """Units that WHERE says are there: the rows of nobody are left out."""
        relation = env.relation
        there = {env.find(ref).symbol for node in conditions if (ref := _not_null(node)) is not None}
        found = {s: t for s, t in relation.weak.items() if s in there}
        if not found:
            return relation
        facts = relation.facts.copy()
        facts.units |= found
        weak = {s: t for s, t in relation.weak.items() if s not in found}
        return replace(relation, facts=facts, weak=weak, orphans=False)

    def _link_outward(self, env: Env, conditions: list[Expr], outer: Env | None) -> None:
        """A subquery over private rows may look at those of the row around it."""
        relation = env.relation
        if not relation.private or outer is None:
            return
        around = self._around(outer)
        mine = {**relation.weak, **relation.facts.units}
        for x, y in self._pairs(conditions, env.scope, outer):
            for here, there in ((x, y), (y, x)):
                if here in mine and there in around and same_type(mine[here], around[there]):
                    env.relation = replace(relation, kind=OWN, count=None)
                    return

    def _budgeted(self, env: Env, conditions: list[Expr]) -> None:
        """``counted > 0``: where counts add up to at most so many, so many rows have one."""
        for node in conditions:
            if isinstance(node, Call) and node.name == ">" and isinstance(node.args[0], Ref):
                zero = node.args[1]
                budget = env.relation.facts.budgets.get(env.find(node.args[0]).symbol)
                if budget is not None and isinstance(zero, Literal) and zero.value == 0:
                    env.relation = replace(env.relation, facts=env.relation.facts.copy())
                    env.relation.facts.rows.append((frozenset(), budget))

    def _projected(self, tree: Select, env: Env) -> Relation:
        kept: Set | None = None
        rest = []
        unique: list[Set] = []
        for node in conjuncts(tree.qualify):
            cap = None
            if env.relation.private and env.relation.owner:
                cap = cap_of(node, env.relation, self.symbols, lambda n: self.expressions.row(n, env))
            if cap is None:
                rest.append(node)
                first = _first_of(node) if env.relation.kind in (PUBLIC, OWN) else None
                if first is not None:
                    unique.append(frozenset(self.expressions.row(part, env).symbol for part in first))
                continue
            if cap.decides is not None:
                kept = cap.decides if kept is None else kept & cap.decides
            facts = env.relation.facts.copy()
            (facts.groups if cap.groups else facts.rows).append((cap.columns, cap.most))
            env.relation = replace(env.relation, facts=facts)
        before = len(env.parted)
        for node in rest:
            self.expressions.row(node, env)
        filtered = len(env.parted) > before or (bool(rest) and env.relation.kind == CELLS)
        if filtered:
            env.scope = stripped(env.scope)
        env.kept = kept
        columns = self._columns(tree, lambda expr: self.expressions.row(expr, env))
        made = replace(env.relation, columns=columns)
        if made.kind in (PUBLIC, OWN):
            places = zip(tree.items, columns.values(), strict=True)
            numbers = [frozenset({v.symbol}) for (_, node), v in places if _numbers(node)]
            made.unique = [*made.unique, *unique, *numbers]
        if kept is not None:
            made.unique = [u for u in made.unique if u <= kept]
        if made.private:
            made.facts = made.facts.copy()
            for value in columns.values():
                if value.budget is not None and value.times is not None:
                    made.facts.budgets |= {value.symbol: value.budget, value.times[0]: value.budget}
            if made.orphans and env.parted:
                refuse("a window over rows of nobody")
        if env.parted:
            made = self._parted(made, env.parted)
        return made

    def _columns(self, tree: Select, value: Callable[[Expr], Value]) -> dict[str, Value]:
        columns: dict[str, Value] = {}
        for name, expr in tree.items:
            if name.lower() in {known.lower() for known in columns}:
                refuse("two output columns of one name")
            columns[name] = value(expr)
        self._name(columns)
        return columns

    def _parted(self, made: Relation, partitions: list[Set]) -> Relation:
        """Rows that know of others: each is made of those that agree with it in what all windows are divided by."""
        common = frozenset.intersection(*partitions)
        key: dict[Symbol, tuple[Symbol, ...]]
        if made.private:
            key = {s: (s,) for s in common}
            return Relation(CELLS, _plain(made.columns), key=key, sources=[made.facts])
        key = {s: t for s, t in made.key.items() if s in common}
        return Relation(CELLS, _plain(made.columns), key=key, sources=made.sources)

    def _global(self, made: Relation, more: list[Relation]) -> Relation:
        """A relation of which every row may look at all."""
        sources = [made.facts] if made.private else list(made.sources)
        for relation in more:
            sources += [relation.facts] if relation.private else relation.sources
        return Relation(CELLS, _plain(made.columns), sources=sources)

    def _distinct(self, made: Relation) -> Relation:
        symbols = frozenset(v.symbol for v in made.columns.values())
        if made.kind in (PUBLIC, OWN):
            count = made.facts.groups_of(symbols, {}) if symbols <= set(made.facts.sizes) else None
            counts = [n for n in (count, made.count) if n is not None]
            return replace(made, unique=[symbols], count=min(counts, default=None))
        if made.private and symbols & set(made.facts.units):
            return replace(made, unique=[symbols])
        if made.private:
            if made.orphans:
                refuse("rows of nobody are made distinct")
            return Relation(
                CELLS, _plain(made.columns), key={s: (s,) for s in symbols}, sources=[made.facts], single=True
            )
        key = {s: t for s, t in made.key.items() if s in symbols}
        return Relation(CELLS, _plain(made.columns), key=key, sources=made.sources)

    def _ordered(self, tree: Select, env: Env) -> None:
        """ORDER BY says nothing about a relation, but what it names must be known."""
        for item in tree.order:
            if has(item.by, lambda n: isinstance(n, Window | Subquery)) or isinstance(item.by, Literal):
                refuse("ORDER BY a place, a window or a subquery")
            (self.expressions.above if env.groups is not None else self.expressions.row)(item.by, env)

    def _grouped(self, tree: Select, env: Env) -> Relation:
        relation = env.relation
        if tree.qualify is not None:
            refuse("QUALIFY beside an aggregate")
        given: list[Value] = []
        for node in tree.groups:
            if isinstance(node, Literal) or has(node, lambda n: isinstance(n, Window | Subquery)):
                refuse("a group by its place, or of a window or subquery")
            given.append(self.expressions.row(node, env))
        keys = {v.symbol: v for v in given}
        if relation.private and relation.orphans:
            refuse("rows of nobody are added up")
        env.groups = {s: replace(v, weight=None, total=None, halved=False) for s, v in keys.items()}
        columns = self._columns(tree, lambda expr: self.expressions.above(expr, env))
        having = conjuncts(tree.having)
        for node in having:
            self.expressions.above(node, env)
        by_key = all(env.find(r).symbol in keys for node in having for r in refs(node)) and not any(
            map(aggregated, having)
        )
        if not by_key:
            columns = {n: replace(v, weight=None, total=None, halved=False) for n, v in columns.items()}
        return self._groups(relation, columns, frozenset(keys))

    def _groups(self, relation: Relation, columns: dict[str, Value], keys: Set) -> Relation:
        count = 1 if not keys else None
        if relation.kind in (PUBLIC, OWN):
            return Relation(
                relation.kind,
                columns,
                unique=[keys],
                count=count,
                facts=Facts(sizes=dict(relation.facts.sizes)),
            )
        units = set(relation.facts.units)
        if relation.private and keys & units:
            facts = Facts([(keys - units, 1)], list(relation.facts.groups), dict(relation.facts.units),
                          dict(relation.facts.sizes))  # fmt: skip
            total = relation.facts.rows_of((), self.symbols.made)
            if total is not None:
                facts.rows.append((frozenset(), total))
            return Relation(PRIVATE, columns, facts, unique=[keys], followed=dict(relation.followed))
        if relation.private:
            return Relation(
                CELLS, columns, key={s: (s,) for s in keys}, single=True, sources=[relation.facts], unique=[keys], count=count
            )  # fmt: skip
        known = {s: t for s, t in relation.key.items() if s in keys}
        whole = len(known) == len(keys)
        if not whole:
            columns = _plain(columns)
        return Relation(
            CELLS, columns, key=known, single=whole, sources=relation.sources, unique=[keys], count=count
        )

    # -- set operations ------------------------------------------------------------------------------------------

    def _union(self, tree: Union, outer: Env | None) -> Relation:
        """Column by column: a column is the unit where it is in all parts."""
        if tree.limit is not None:
            refuse("a set operation that is cut")
        parts = [self.query(part, outer) for part in tree.parts]
        first = parts[0]
        names = list(first.columns)
        if any(len(p.columns) != len(names) for p in parts):
            refuse("a set operation of different widths")
        given = [list(p.columns.values()) for p in parts]
        columns = {
            name: Value(self.symbols.fresh(), whole=all(values[i].whole for values in given)) for i, name in enumerate(names)
        }  # fmt: skip
        kinds = {p.kind for p in parts}
        if kinds <= {PUBLIC, OWN}:
            return Relation(OWN if OWN in kinds else PUBLIC, columns)
        private = first.private and (
            kinds == {PRIVATE} or (tree.kind != "UNION" and kinds == {PRIVATE, PUBLIC})
        )
        if not private or not all(p.owner and not p.orphans for p in parts if p.private):
            refuse("a set operation of private rows and others")
        units: dict[Symbol, str] = {}
        for place, name in enumerate(names):
            types = [
                p.facts.units.get(values[place].symbol) for p, values in zip(parts, given, strict=True) if p.private
            ]  # fmt: skip
            known = [t for t in types if t is not None]
            if len(known) == len(types) and all(same_type(t, known[0]) for t in known):
                units[columns[name].symbol] = known[0]
        if not units:
            refuse("a set operation without the unit in the same place")
        facts = Facts(units=units)
        totals = [p.facts.rows_of((), self.symbols.made) for p in parts if p.private]
        if all(t is not None for t in totals):
            facts.rows.append((frozenset(), sum(t for t in totals if t is not None)))
        return Relation(PRIVATE, columns, facts)


def _plain(columns: dict[str, Value]) -> dict[str, Value]:
    return {name: replace(v, weight=None, total=None, halved=False) for name, v in columns.items()}


def _not_null(node: Expr) -> Ref | None:
    """The column of ``c IS NOT NULL``."""
    if not isinstance(node, Call):
        return None
    if node.name == "not" and isinstance(node.args[0], Call) and node.args[0].name == "is null":
        node = node.args[0]
    elif node.name != "is not null":
        return None
    return node.args[0] if isinstance(node.args[0], Ref) else None


def _first_of(node: Expr) -> tuple[Expr, ...] | None:
    """What ``row_number() OVER (PARTITION BY ...) = 1`` keeps one row of each of."""
    if not (isinstance(node, Call) and node.name == "=" and node.args[1] == Literal(1)):
        return None
    window = node.args[0]
    return window.partition if isinstance(window, Window) and window.name == "row_number" else None


def _numbers(node: Expr) -> bool:
    """Whether a column numbers the rows: ``row_number() OVER (ORDER BY ...)``, with an integer added or taken off."""
    if (
        isinstance(node, Call)
        and node.name in ("+", "-")
        and len(node.args) == 2
        and isinstance(node.args[1], Literal)
    ):
        node = node.args[0]
    return isinstance(node, Window) and node.name == "row_number" and not node.partition
