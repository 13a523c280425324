"""FROM: which rows a SELECT looks at, whose they are, and which of them meet."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpsql.mechanisms.base import LentTotals
from dpsql.sql.lock.expressions import Env, Expressions, conjuncts, has, refs, tables_of
from dpsql.sql.lock.facts import CELLS, OWN, PRIVATE, PUBLIC, Facts, Relation, Symbol, Symbols, Value
from dpsql.sql.lock.joins import Joined, Joins, Pairs, Scope, stripped
from dpsql.sql.lock.ranges import WHOLE, lower, upper
from dpsql.sql.lock.tree import (
    TABLES,
    Base,
    Call,
    Cast,
    Derived,
    Expr,
    Join,
    Known,
    Literal,
    Made,
    Query,
    Ref,
    Source,
    Subquery,
    Table,
    Values,
    Window,
    refuse,
)


@dataclass
class Sources:
    """Reads the FROM clauses of one text."""

    known: Known
    private: Mapping[str, LentTotals | Sequence[str]] = field(default_factory=dict)
    symbols: Symbols = field(default_factory=Symbols)
    ctes: dict[str, Relation] = field(default_factory=dict)
    scans: dict[Symbol, tuple[tuple[str, ...], str, dict[str, Value]]] = field(default_factory=dict)
    aliases: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    leaves: dict[str, Relation] = field(default_factory=dict)
    """What each alias of a FROM stands for."""

    def __post_init__(self) -> None:
        self.expressions = Expressions(self.symbols, self.query, self.known.salt, self.known.macros)

    def distinct_names(self) -> None:
        """An alias that is a column's name too could be read as that column, with a field."""
        if not self.aliases.isdisjoint(self.names):
            refuse("an alias that is a column")

    @abstractmethod
    def query(self, tree: Query, outer: Env | None) -> Relation:
        """What a query gives."""

    def _alias(self, name: str) -> None:
        folded = name.lower()
        if folded in self.aliases or name in self.known.lent or name in self.private:
            refuse("an alias that occurs twice")
        self.aliases.add(folded)

    # -- FROM ----------------------------------------------------------------------------------------------------

    def _from(self, source: Source | None, conditions: list[Expr], outer: Env | None) -> Joined:
        """The rows of a FROM; ``conditions`` hold for every row that is left of it."""
        if source is None:
            return Joined(Relation(PUBLIC, {}, count=1), {})
        leaves: list[Source] = []
        flat: list[Expr] = []
        self._flatten(source, leaves, flat)
        conditions = [*conditions, *flat]
        later = [leaf for leaf in leaves if self._sideways(leaf, leaves)]
        parts = [self._leaf(leaf, conditions, outer) for leaf in leaves if leaf not in later]
        scope: Scope = {}
        for part in parts:
            scope |= part.scope
        pairs = self._pairs(conditions, scope, outer)
        whole = self._joins(outer, conditions, scope).inner(parts, pairs) if parts else None
        for leaf in later:
            whole = self._beside(leaf, whole, outer)
        assert whole is not None
        env = Env(whole.scope, whole.relation, outer)
        for condition in flat:
            self._condition(condition, env)
        return Joined(env.relation, env.scope)

    def _sideways(self, leaf: Source, leaves: list[Source]) -> bool:
        """Whether a part of FROM looks at those beside it."""
        if isinstance(leaf, Made):
            return any(has(arg, lambda n: isinstance(n, Ref)) for arg in leaf.args)
        if not isinstance(leaf, Derived) or len(leaves) < 2:
            return False
        named: set[str] = set()
        for other in leaves:
            if other is not leaf:
                named |= _aliases(other)
        return not named.isdisjoint(tables_of(leaf.query))

    def _beside(self, leaf: Source, whole: Joined | None, outer: Env | None) -> Joined:
        """What a row's own list holds, or a subquery that looks at the row."""
        if isinstance(leaf, Made):
            return self._unnest(leaf, whole, outer)
        if whole is None or not isinstance(leaf, Derived):
            refuse("a part of FROM that looks at what is not there")
        self._alias(leaf.alias)
        found = self.query(leaf.query, Env(whole.scope, whole.relation, outer))
        if found.kind not in (PUBLIC, OWN):
            refuse("a subquery looks at other units' rows")
        self._name(found.columns)
        return self._repeated(whole, {leaf.alias: found.columns}, found.count == 1)

    def _repeated(self, whole: Joined, more: Scope, once: bool) -> Joined:
        """Each row with some of its own making beside it."""
        relation = replace(whole.relation, columns={})
        if not once:
            relation = replace(relation, unique=[], count=None, single=False, facts=relation.facts.copy())
            relation.facts.rows, relation.facts.budgets = [], {}
        scope = stripped(whole.scope) if relation.kind == CELLS and not once else whole.scope
        return Joined(relation, {**scope, **more})

    def _flatten(self, source: Source, leaves: list[Source], conditions: list[Expr]) -> None:
        if isinstance(source, Join) and source.kind == "INNER" and not source.asof:
            self._flatten(source.left, leaves, conditions)
            self._flatten(source.right, leaves, conditions)
            conditions += conjuncts(source.on)
        else:
            leaves.append(source)

    def _joins(self, outer: Env | None, conditions: list[Expr], scope: Scope) -> Joins:
        same = self._pairs(conditions, scope, outer, "is not distinct from")
        return Joins(
            self.symbols, self.scans, self._casts(conditions, scope, outer), self._around(outer), same
        )  # fmt: skip

    def _casts(self, conditions: list[Expr], scope: Scope, outer: Env | None) -> Pairs:
        """Integers that are equal once they are cast to other integers, which keeps them apart."""
        env = Env(scope, Relation(PUBLIC, {}), outer)
        pairs = []
        for node in conditions:
            if isinstance(node, Call) and node.name == "=":
                sides = [self._uncast(side, env) for side in node.args]
                found = [side for side in sides if side is not None]
                if len(found) == 2:
                    pairs.append((found[0], found[1]))
        return pairs

    def _uncast(self, node: Expr, env: Env) -> Symbol | None:
        cast = isinstance(node, Cast) and node.type in WHOLE
        inner = node.child if isinstance(node, Cast) and cast else node
        if not isinstance(inner, Ref) or not self._seen(inner, env):
            return None
        value = env.find(inner)
        return value.symbol if value.whole or not cast else None

    def _around(self, outer: Env | None) -> dict[Symbol, str]:
        found: dict[Symbol, str] = {}
        while outer is not None:
            found |= outer.relation.facts.units | outer.relation.weak
            outer = outer.outer
        return found

    def _pairs(self, conditions: list[Expr], scope: Scope, outer: Env | None, name: str = "=") -> Pairs:
        """Columns that are equal: both sides as they are, at the top level."""
        env = Env(scope, Relation(PUBLIC, {}), outer)
        pairs = []
        for node in conditions:
            if isinstance(node, Call) and node.name == name and all(isinstance(a, Ref) for a in node.args):
                sides = [a for a in node.args if isinstance(a, Ref)]
                if all(self._seen(side, env) for side in sides):
                    pairs.append((env.find(sides[0]).symbol, env.find(sides[1]).symbol))
        return pairs

    def _seen(self, node: Ref, env: Env | None) -> bool:
        while env is not None:
            if node.table in env.scope:
                return node.name in env.scope[node.table]
            env = env.outer
        return False

    def _leaf(self, source: Source, conditions: list[Expr], outer: Env | None) -> Joined:
        if isinstance(source, Join):
            return self._outer(source, conditions, outer)
        self._alias(source.alias)
        if isinstance(source, Table):
            relation = self._table(source)
        elif isinstance(source, Derived):
            relation = self.query(source.query, outer)
        elif isinstance(source, Values):
            relation = self._values(source)
        else:
            relation = self._made(source)
        self._name(relation.columns)
        self.leaves[source.alias] = relation
        return Joined(replace(relation, columns={}), {source.alias: relation.columns})

    def _name(self, columns: Mapping[str, object]) -> None:
        self.names.update(name.lower() for name in columns)

    def _outer(self, join: Join, conditions: list[Expr], outer: Env | None) -> Joined:
        """An outer join, or one that takes the nearest row."""
        swapped = join.kind == "RIGHT"
        left, right = (join.right, join.left) if swapped else (join.left, join.right)
        kept = conditions if join.kind in ("LEFT", "RIGHT", "SEMI", "ANTI") and not join.asof else []
        if join.kind == "LEFT" and self._sideways(right, [left, right]):
            if join.on != Literal(True) or join.asof:
                refuse("a condition beside what looks at the row")
            return self._beside(right, self._from(left, kept, outer), outer)
        a, b = self._from(left, kept, outer), self._from(right, [], outer)
        on = conjuncts(join.on)
        both = {**a.scope, **b.scope}
        pairs = self._pairs(on, both, outer)
        env = Env(both, Relation(PUBLIC, {}), outer)
        for node in on:
            if has(node, lambda n: isinstance(n, Subquery | Window)):
                refuse("a subquery in the condition of an outer join")
            self.expressions.row(node, env)
        joins = self._joins(outer, on, both)
        if join.asof and (swapped or join.kind == "OUTER"):
            refuse("the nearest row the other way")
        if join.kind == "OUTER":
            return joins.full(a, b, pairs)
        if join.kind in ("SEMI", "ANTI"):
            return joins.semi(a, b, pairs)
        found = joins.left(a, b, pairs, len(joins.cast) + len(joins.same) == len(on), join.asof)
        return found

    def _table(self, node: Table) -> Relation:
        base = self.known.tables.get(node.path)
        if base is None and len(node.path) == 1:
            return self._named(node.path[0])
        if base is None:
            refuse("a table that the policy does not name")
        columns = {
            name: Value(self.symbols.fresh(), whole=kind in WHOLE) for name, kind in base.columns.items()
        }
        for name, value in columns.items():
            self.scans[value.symbol] = (node.path, name, columns)
        if base.public:
            return Relation(PUBLIC, columns)
        return self._scan(base, columns)

    def _scan(self, base: Base, columns: dict[str, Value]) -> Relation:
        if base.unit is None:
            return Relation(PRIVATE, columns, Facts(rows=[(frozenset(), 1)]), owner=False)
        symbol = columns[base.unit].symbol
        if base.path:
            return Relation(PRIVATE, columns, pending={symbol: base.path}, orphans=True)
        return Relation(PRIVATE, columns, weak={symbol: base.kind}, orphans=True)

    def _named(self, name: str) -> Relation:
        if name in self.ctes:
            return self.ctes[name].renamed(self.symbols.renaming())
        if name in self.private:
            return self._totals(self.private[name])
        lent = self.known.lent.get(name)
        if lent is None:
            refuse("a relation that nobody lent")
        columns = {column: Value(self.symbols.fresh()) for column in lent.columns}
        made = Relation(PUBLIC, columns, count=lent.count)
        if lent.unique is not None:
            made.unique = [frozenset({columns[lent.unique].symbol})]
        return made

    def _totals(self, given: LentTotals | Sequence[str]) -> Relation:
        """A relation of the operator's own: totals that are held to bounds, or rows of one block."""
        if not isinstance(given, LentTotals):
            return Relation(OWN, {name: Value(self.symbols.fresh()) for name in given})
        columns = {name: Value(self.symbols.fresh(), whole=True) for name in given.keys}
        for name, most in given.columns.items():
            columns[name] = Value(self.symbols.fresh(), whole=True, weight=most)
            if name in given.halves:
                rest, steps = given.halves[name]
                columns[name] = Value(self.symbols.fresh(), whole=True, half=(name, 1, steps, most))
                columns[rest] = Value(self.symbols.fresh(), whole=True, half=(name, 1, 0, most))
        keys = [columns[name].symbol for name in given.keys]
        facts = Facts(rows=[(frozenset(keys), 1)])
        if given.groups is not None:
            facts.groups.append((frozenset(keys), given.groups))
        return Relation(CELLS, columns, key={s: (s,) for s in keys}, single=True, sources=[facts])

    def _values(self, node: Values) -> Relation:
        env = Env({}, Relation(PUBLIC, {}))
        rows = [[self.expressions.row(item, env) for item in row] for row in node.rows]
        if any(len(row) != len(node.columns) for row in rows):
            refuse("rows of different lengths")
        columns = {
            name: Value(
                self.symbols.fresh(), lower([row[i].low for row in rows]), upper([row[i].high for row in rows]), True,
                all(row[i].whole for row in rows),
            ) for i, name in enumerate(node.columns)
        }  # fmt: skip
        made = Relation(PUBLIC, columns, count=len(rows))
        if len(columns) == 1 and _different([row[0] for row in node.rows]):
            made.unique = [frozenset(v.symbol for v in columns.values())]
        made.facts.sizes = {v.symbol: len(rows) for v in columns.values()}
        return made

    def _made(self, node: Made) -> Relation:
        """range, which is public; unnest of a constant list."""
        if node.name not in TABLES or node.name in self.known.macros or len(node.columns) != 1:
            refuse("a table function")
        env = Env({}, Relation(PUBLIC, {}))
        ends = [self.expressions.row(item, env) for item in node.args]
        column = Value(self.symbols.fresh(), whole=node.name != "unnest")
        made = Relation(PUBLIC, {node.columns[0]: column})
        numbers = [
            item.value for item in node.args if isinstance(item, Literal) and isinstance(item.value, int)
        ]
        if node.name == "range" and len(numbers) == len(ends) and 1 <= len(ends) <= 2:
            start, stop = (0, numbers[0]) if len(numbers) == 1 else numbers
            made.count = max(0, stop - start)
            made.facts.sizes = {column.symbol: made.count}
            column.low, column.high = start, stop - 1
        if node.name != "unnest":
            made.unique = [frozenset({column.symbol})]
        return made

    def _unnest(self, node: Made, whole: Joined | None, outer: Env | None) -> Joined:
        """The elements of a row's own list."""
        if whole is None or node.name != "unnest" or len(node.columns) != 1 or len(node.args) != 1:
            refuse("a table function of columns")
        self._alias(node.alias)
        self.expressions.row(node.args[0], Env(whole.scope, whole.relation, outer))
        column = {node.columns[0]: Value(self.symbols.fresh())}
        self._name(column)
        return self._repeated(whole, {node.alias: column}, False)

    def _condition(self, node: Expr, env: Env) -> None:
        """A filter of rows: of cells it may be by their key only, if sums are to stay what they were."""
        self.expressions.row(node, env)
        relation = env.relation
        if relation.kind == CELLS:
            if not all(env.find(r).symbol in relation.key for r in refs(node)):
                env.scope = stripped(env.scope)
            env.relation = replace(relation, fixed=False)


def _aliases(source: Source) -> set[str]:
    """The aliases of a part of FROM."""
    if isinstance(source, Join):
        return _aliases(source.left) | _aliases(source.right)
    return {source.alias}


def _different(row: Sequence[Expr]) -> bool:
    """Whether constants are certain to differ: integers, texts or truths, all cast to one such type or to none; NULL once."""
    kinds, values = set(), set()
    for node in row:
        kind = ""
        if isinstance(node, Cast):
            kind, node = node.type, node.child
        if not isinstance(node, Literal):
            return False
        if node.value is not None:
            kinds.add((kind, type(node.value)))
        values.add(node.value)
    if len(kinds) != 1 or len(values) != len(row):
        return False
    kind, of = kinds.pop()
    truths = of is bool or values <= {"t", "f", None}  # the older DuckDB writes them as texts
    return (of is int and kind in {"", *WHOLE}) or (of is str and kind in ("", "VARCHAR")) or (
        truths and kind == "BOOLEAN") or (of is bool and kind == "")  # fmt: skip
