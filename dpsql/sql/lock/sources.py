"""FROM: which rows a SELECT looks at, whose they are, and which of them meet."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dpsql.mechanisms.base import LentTotals
from dpsql.sql.lock import ranges, tree
from dpsql.sql.lock.expressions import Env, Expressions
from dpsql.sql.lock.facts import Facts, Kind, Relation, Symbol, Symbols, Value, times
from dpsql.sql.lock.joins import Joins, Pairs, Scan
from dpsql.sql.lock.tree import Expr, Literal, Ref, refuse


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
    """The relation that each alias of a FROM stands for."""

    def __post_init__(self) -> None:
        self.expressions = Expressions(self.symbols, self.query, self.known.salt, self.known.macros)

    def distinct_names(self) -> None:
        """Refuse an alias that is a column's name too: it could be read as that column, with a field."""
        if not self.aliases.isdisjoint(self.names):
            refuse("an alias that is a column")

    @abstractmethod
    def query(self, node: tree.Query, outer: Env | None) -> Relation:
        """Derive what a query gives."""

    def _alias(self, name: str) -> None:
        folded = name.lower()
        if folded in self.aliases or name in self.known.lent or name in self.private:
            refuse("an alias that occurs twice")
        self.aliases.add(folded)

    # -- FROM ----------------------------------------------------------------------------------------------------

    def _from(self, source: tree.Source | None, conditions: list[Expr], outer: Env | None) -> Relation:
        """Derive the rows of a FROM; ``conditions`` hold for every row that is left of it."""
        if source is None:
            return Relation(Kind.PUBLIC, {}, count=1)
        leaves: list[tree.Source] = []
        flat: list[Expr] = []
        self._flatten(source, leaves, flat)
        conditions = [*conditions, *flat]
        later = [leaf for leaf in leaves if self._sideways(leaf, leaves)]
        parts = [self._leaf(leaf, conditions, outer) for leaf in leaves if leaf not in later]
        whole = self._joins(conditions, parts, outer).inner(parts) if parts else None
        for leaf in later:
            whole = self._beside(leaf, whole, outer)
        assert whole is not None
        env = Env(whole, outer)
        for condition in flat:
            self._condition(condition, env)
        return env.relation

    def _sideways(self, leaf: tree.Source, leaves: list[tree.Source]) -> bool:
        """Return whether a part of FROM looks at those beside it."""
        match leaf:
            case tree.Made(args=args):
                return any(tree.has(arg, lambda n: isinstance(n, Ref)) for arg in args)
            case tree.Derived(query) if len(leaves) > 1:
                named = {alias for other in leaves if other is not leaf for alias in _aliases(other)}
                return not named.isdisjoint(tree.tables_of(query))
        return False

    def _beside(self, leaf: tree.Source, whole: Relation | None, outer: Env | None) -> Relation:
        """Join the elements of a row's own list, or a subquery that looks at the row."""
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
        if not once:  # each row stands beside some of its own making
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
        """Return the joins of parts of FROM under conditions."""
        columns = {ref: value for part in parts for ref, value in part.columns.items()}
        env = Env(Relation(Kind.PUBLIC, columns), outer)
        around: dict[Symbol, str] = {}
        while outer is not None:
            around |= {**outer.relation.facts.units, **outer.relation.weak}
            outer = outer.outer
        return Joins(
            self.symbols, self.scans, around, _pairs(conditions, "=", env.get), _pairs(conditions, "=", env.uncast),
            _pairs(conditions, "is not distinct from", env.get),
        )  # fmt: skip

    def _leaf(self, source: tree.Source, conditions: list[Expr], outer: Env | None) -> Relation:
        if isinstance(source, tree.Join):
            return self._outer(source, conditions, outer)
        self._alias(source.alias)
        match source:
            case tree.Table(path):
                relation = self._table(path)
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
        self.names.update(ref.name.lower() for ref in columns)

    def _outer(self, join: tree.Join, conditions: list[Expr], outer: Env | None) -> Relation:
        """Derive an outer join, or one that takes the nearest row."""
        swapped = join.kind == "RIGHT"
        left, right = (join.right, join.left) if swapped else (join.left, join.right)
        kept = conditions if join.kind in ("LEFT", "RIGHT", "SEMI", "ANTI") and not join.asof else []
        if join.kind == "LEFT" and self._sideways(right, [left, right]):
            if join.on != Literal(True) or join.asof:
                refuse("a condition beside what looks at the row")
            return self._beside(right, self._from(left, kept, outer), outer)
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
        columns = {
            name: Value(self.symbols.fresh(), whole=kind in ranges.WHOLE, public=base.public)
            for name, kind in base.columns.items()
        }
        parts = (
            () if base.period is None or base.unit is None else self._pair(base.unit, base.period, columns)
        )
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
            return replace(made, weak={pair: base.kind}, needs={pair: frozenset(needed)}, orphans=True)
        if base.path:
            return replace(made, pending={symbol: base.path}, orphans=True)
        return replace(made, weak={symbol: base.kind}, orphans=True)

    def _pair(
        self, unit: str, period: tuple[str, str, str], columns: Mapping[str, Value]
    ) -> tuple[Symbol, ...]:
        """Return the pair of a column and of the row's period, and its two parts, in the one spelling that is taken."""
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
        self.symbols.made.pop(symbol, None)  # what is made of the unit is made of it, and not of its parts
        return symbol, *rest

    def _named(self, name: str) -> Relation:
        if name in self.ctes:
            return self.ctes[name].renamed(self.symbols.renaming())
        if name in self.private:
            return self._totals(self.private[name])
        lent = self.known.lent.get(name)
        if lent is None:
            refuse("a relation that nobody lent")
        columns = {column: Value(self.symbols.fresh(), public=True) for column in lent.columns}
        unique = [] if lent.unique is None else [frozenset({columns[lent.unique].symbol})]
        return Relation(Kind.PUBLIC, _output(columns), count=lent.count, unique=unique)

    def _totals(self, given: LentTotals | Sequence[str]) -> Relation:
        """Derive a relation of the operator's own: totals that are held to bounds, or rows of one block."""
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
        columns = {
            Ref("", name): replace(ranges.any_of(values, self.symbols.fresh()), nullable=True, public=True)
            for name, values in zip(node.columns, zip(*rows, strict=True), strict=True)
        }
        made = Relation(Kind.PUBLIC, columns, count=len(rows))
        if len(columns) == 1 and _different([row[0] for row in node.rows]):
            made.unique = [frozenset(v.symbol for v in columns.values())]
        made.facts = Facts(sizes={v.symbol: len(rows) for v in columns.values()})
        return made

    def _made(self, node: tree.Made) -> Relation:
        """Derive range, which is public, or unnest of a constant list."""
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
        """Filter rows; a filter of cells by more than their key leaves nothing known of their sums."""
        self.expressions.row(node, env)
        relation = env.relation
        if relation.kind == Kind.CELLS:
            if not all(env.find(ref).symbol in relation.key for ref in tree.refs(node)):
                relation = relation.plain()
            env.relation = replace(relation, fixed=False)


def _output(columns: Mapping[str, Value]) -> dict[Ref, Value]:
    """Return columns without an alias."""
    return {Ref("", name): value for name, value in columns.items()}


def _pairs(conditions: list[Expr], name: str, column: Callable[[Expr], Value | None]) -> Pairs:
    """Return the columns that conditions make equal at the top level."""
    pairs = []
    for node in conditions:
        if isinstance(node, tree.Call) and node.name == name and len(node.args) == 2:
            x, y = map(column, node.args)
            if x is not None and y is not None:
                pairs.append((x.symbol, y.symbol))
    return pairs


def _aliases(source: tree.Source) -> set[str]:
    """Return the aliases of a part of FROM."""
    if isinstance(source, tree.Join):
        return _aliases(source.left) | _aliases(source.right)
    return {source.alias}


def _different(row: Sequence[Expr]) -> bool:
    """Return whether constants are certain to differ: integers, texts or truths of one type; NULL once."""
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
    truths = of is bool or values <= {"t", "f", None}  # the older DuckDB writes them as texts
    return (of is int and kind in {"", *ranges.WHOLE}) or (of is str and kind in ("", "VARCHAR")) or (
        truths and kind == "BOOLEAN") or (of is bool and kind == "")  # fmt: skip
