"""Expressions of a row, of a group and of a window: what each is, and what can be known of its value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dpsql.sql.lock import ranges, tree
from dpsql.sql.lock.caps import budget_of
from dpsql.sql.lock.facts import Kind, Relation, Set, Symbol, Symbols, Value, least, times
from dpsql.sql.lock.tree import AGGREGATES, Call, Expr, Ref, refuse


@dataclass(slots=True)
class Env:
    """One SELECT: its rows, and the SELECTs around it that its expressions may look at."""

    relation: Relation
    outer: Env | None = None
    groups: dict[Symbol, Value] | None = None
    """The keys of an aggregation."""
    kept: Set | None = None
    """The columns, where rows were chosen by a secret order, that are the same whichever of equals were chosen."""
    parted: list[Set] = field(default_factory=list)
    """Partitions of windows that are not one unit's."""
    reads: list[Relation] = field(default_factory=list)
    """The rows that subqueries look at all of: private rows, or what is made of them."""
    counts: dict[Symbol, Symbol] = field(default_factory=dict)
    """The number of an aggregation's rows that have a value."""

    def get(self, node: Expr) -> Value | None:
        """Return the column, where the expression is one that is there."""
        env: Env | None = self
        while env is not None and isinstance(node, Ref):
            if node in env.relation.columns:
                return env.relation.columns[node]
            env = env.outer
        return None

    def find(self, node: Ref) -> Value:
        """Return the column.

        Raises:
            Unproved: there is none.
        """
        return self.get(node) or refuse("a column that is not there")

    def uncast(self, node: Expr) -> Value | None:
        """Return the column inside casts to integers, which keep integers apart, or the column as it is."""
        if not isinstance(node, tree.Cast) or node.type not in ranges.WHOLE:
            return self.get(node)
        value = self.get(node.child)
        return value if value is not None and value.whole else None


_COUNTS = ("count", "count_star", "count_if", "countif")
_AMONG = ("min", "max", "median", "mode", "any_value", "quantile_disc", "first", "last", "avg")
"""Aggregates that lie between the least and the greatest value."""
_NUMBERING = ("row_number", "rank", "dense_rank", "count")
_LOOKING = ("lag", "lead", "first_value", "last_value", "nth_value", "min", "max")


@dataclass(slots=True)
class Expressions:
    """Evaluates the expressions of one text."""

    symbols: Symbols
    query: Callable[[tree.Query, Env], Relation]
    salt: frozenset[str]
    macros: frozenset[str]
    steps: list[tuple[int, int] | None] = field(default_factory=list)
    """The lowest and the highest change that one more row makes to each sum over private rows."""

    def row(self, node: Expr, env: Env) -> Value:
        """Derive an expression over the rows of a FROM."""
        if isinstance(node, Ref):
            value = env.find(node)
            inside = env.kept is not None and node in env.relation.columns
            if inside and not self.symbols.decided(value.symbol, env.kept or frozenset()):
                refuse("a column that the secret order does not decide")
            return value
        if isinstance(node, tree.Window):
            return self._window(node, env)
        if isinstance(node, Call) and node.name in AGGREGATES:
            refuse("an aggregate among rows")
        return self._made(node, env, self.row)

    def above(self, node: Expr, env: Env) -> Value:
        """Derive an expression over groups: of keys, and of aggregates of their rows."""
        assert env.groups is not None
        if isinstance(node, Call) and node.name in AGGREGATES:
            return self._aggregate(node, env, env.groups)
        if isinstance(node, tree.Window):
            refuse("a window beside an aggregate")
        if not tree.aggregated(node) and not tree.looks_beyond(node):
            value = self.row(node, env)
            if value.symbol in env.groups:
                return env.groups[value.symbol]
        if isinstance(node, Ref):
            return refuse("a column that is not a group") if node in env.relation.columns else env.find(node)
        return self._made(node, env, self.above)

    def _made(self, node: Expr, env: Env, inner: Callable[[Expr, Env], Value]) -> Value:
        match node:
            case tree.Subquery():
                return self._subquery(node, env, inner)
            case tree.Literal(value):
                return ranges.literal(node, self.symbols.constant(("literal", type(value).__name__, value)))
            case tree.Parameter(name):
                return Value(self.symbols.constant(("parameter", name), name in self.salt))
            case tree.Varied(name):
                symbol = self.symbols.constant(("varied", name))
                return Value(symbol, nullable=False, whole=node.whole, low=0 if node.whole else None)
            case tree.Cast(part, kind, attempt, detail):
                child = inner(part, env)
                word = "try cast" if attempt else "cast"
                symbol = self.symbols.call(word, (child.symbol,), (kind, detail))
                return ranges.cast(child, symbol, kind, attempt)
            case Call():
                return self._call(node, env, lambda part: inner(part, env))
        refuse("an expression of another kind")

    def _call(self, node: Call, env: Env, inner: Callable[[Expr], Value]) -> Value:
        if node.name not in tree.SCALARS or node.name in self.macros:
            refuse(f"the function {node.name}")
        if node.distinct or node.where is not None or node.order:
            refuse("a function with the clauses of an aggregate")
        match node:
            case Call("date_trunc", (tree.Literal(str(part)), moment)):  # whose part may stand in either case
                node = replace(node, args=(tree.Literal(part.lower()), moment))
        args = [inner(arg) for arg in node.args]
        symbol = self.symbols.call(
            node.name, [a.symbol for a in args], node.names if any(node.names) else None
        )
        if (found := ranges.distance(node)) is not None:
            return ranges.between(Value(symbol), found[1], found[2], inner(found[0]))
        made = ranges.combine(node.name, args, node.args, symbol)
        match node:
            case Call("case", (condition, _, tree.Literal(None))):
                there = [part for part in map(tree.present, tree.conjuncts(condition)) if part is not None]
                if any(inner(part).symbol == args[1].symbol for part in there):
                    made = replace(made, there=args[0].symbol)
            case Call("least"):
                budget = budget_of(node, args, env.relation, self.symbols, inner)
                if budget:
                    most = least(budget, args[0].high)
                    made = replace(made, low=0, high=most, nullable=False, whole=True, budget=budget)
                    made.times = (symbol, 1, 1)
        return made

    # -- aggregates ----------------------------------------------------------------------------------------------

    def _aggregate(self, node: Call, env: Env, groups: dict[Symbol, Value]) -> Value:
        if node.name in self.macros:
            refuse("a function of the owner's own")
        if tree.has(node, lambda n: isinstance(n, tree.Window)):
            refuse("a window inside an aggregate")
        values = [self.row(part, env) for part in tree.parts(node)]
        name, relation = node.name, env.relation
        made = Value(self.symbols.fresh())
        first = values[0] if node.args else None
        if name in _COUNTS:
            made.nullable, made.whole, made.low = False, True, 0
            made.weight = 1 if relation.private else None
            made.step = (0, 1) if relation.private else None
            if name == "count" and first is not None and not node.distinct and node.where is None:
                made.odd = frozenset({("there", first.symbol)})
                made.symbol = self._count(first, env)
                made.times = (made.symbol, 1, 1)
        elif name in _AMONG and first is not None:
            made.low, made.high, made.whole = first.low, first.high, first.whole and name in ("min", "max")
        elif name == "sum" and first is not None and not node.distinct:
            self._sum(made, node, first, env)
        if relation.private and groups.keys() & relation.facts.units.keys():
            rows = relation.facts.rows_of(groups, self.symbols.made)
            if name in _COUNTS:
                made.high = rows
            elif name == "sum" and first is not None and rows is not None and first.whole:
                made.low = None if first.low is None else min(0, first.low * rows)
                made.high = None if first.high is None else max(0, first.high * rows)
        return made

    def _sum(self, made: Value, node: Call, first: Value, env: Env) -> None:
        relation, inner = env.relation, node.args[0]
        made.whole, made.odd = first.whole, first.odd
        small = isinstance(inner, tree.Cast) and inner.type in ranges.NARROW
        made.narrow = small or (first.whole and first.most is not None and first.most <= 2**92)
        if first.odd:
            found = ranges.distance(inner)
            single = found is not None and first.odd == frozenset({"one"}) and node.where is None
            made.odd = frozenset({("there", self.row(found[0], env).symbol)}) if found and single else None
        if first.whole:
            if relation.private:
                made.weight = first.most
                if first.low is not None and first.high is not None:
                    made.step = min(first.low, 0), max(first.high, 0)
            elif (
                relation.kind == Kind.CELLS
                and relation.single
                and not first.halved
                and self._keyed(node, env)
            ):
                made.weight, made.total, made.step = first.weight, first.total, first.step
            if node.where is None and first.low is not None and first.high is not None:
                strict = not tree.has(inner, lambda n: not _strict(n))
                column = (
                    next(tree.refs(inner), None) if strict else None
                )  # it is there wherever the sum's number is
                count = self._count(first if column is None else self.row(column, env), env)
                made.times = (count, min(first.low, 0), max(first.high, 0))
        if relation.private:
            self.steps.append(made.step)
            if first.times is not None and first.whole:
                symbol, low, high = first.times
                if low is not None and high is not None:
                    made.total = times(relation.facts.budgets.get(symbol), max(abs(low), abs(high)))

    def _keyed(self, node: Call, env: Env) -> bool:
        """Return whether what a sum leaves out of cells is left out whatever their rows are."""
        parts = [] if node.where is None else [*tree.refs(node.where)]
        return all(env.find(ref).symbol in env.relation.key for ref in parts)

    def _count(self, value: Value, env: Env) -> Symbol:
        """Return the symbol of the number of rows of a group that have a value."""
        return env.counts.setdefault(value.there or value.symbol, self.symbols.fresh())

    # -- windows and subqueries ------------------------------------------------------------------------------------

    def _window(self, node: tree.Window, env: Env) -> Value:
        if env.groups is not None:
            refuse("a window beside an aggregate")
        if node.name not in tree.WINDOWS and node.name not in AGGREGATES:
            refuse(f"the window function {node.name}")
        values = [self.row(part, env) for part in tree.parts(node)]
        args, others = values[: len(node.args)], values[len(node.args) :]
        by = frozenset(value.symbol for value in others[: len(node.partition)])
        relation = env.relation
        made = Value(self.symbols.fresh())
        if node.name in _NUMBERING:
            made.low, made.whole, made.nullable = 0, True, False
        elif node.name in _LOOKING and 0 < len(args) < 3:
            made.low, made.high, made.whole = args[0].low, args[0].high, args[0].whole
        elif node.name == "sum" and args:
            made.whole = args[0].whole
        if not relation.foreseen and not (relation.private and by & relation.facts.units.keys()):
            env.parted.append(by)
        return made

    def _subquery(self, node: tree.Subquery, env: Env, inner: Callable[[Expr, Env], Value]) -> Value:
        if node.child is not None:
            inner(node.child, env)
        found = self.query(node.query, env)
        made = Value(self.symbols.fresh())
        if node.kind == "SCALAR":
            first = next(iter(found.columns.values()))
            made.low, made.high, made.whole = first.low, first.high, first.whole
        if not found.foreseen:
            if env.relation.kind in (Kind.PRIVATE, Kind.OWN) or found.private:
                refuse("a subquery looks at other units' rows")
            env.reads.append(found)
        return made


def _strict(node: Expr) -> bool:
    """Return whether an expression is missing where one of its parts is."""
    arithmetic = isinstance(node, Call) and node.name in ("+", "-", "*", "//", "abs")
    return arithmetic or isinstance(node, Ref | tree.Literal | tree.Cast)
