"""Expressions of a row, of a group and of a window: what each is, and what can be known of its value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from dpsql.sql.lock import ranges
from dpsql.sql.lock.caps import budget_of
from dpsql.sql.lock.facts import CELLS, OWN, PRIVATE, PUBLIC, Number, Relation, Set, Symbol, Symbols, Value
from dpsql.sql.lock.joins import Scope
from dpsql.sql.lock.tree import (
    AGGREGATES,
    SCALARS,
    WINDOWS,
    Call,
    Cast,
    Expr,
    Literal,
    Parameter,
    Query,
    Ref,
    Subquery,
    Window,
    refuse,
)


@dataclass(slots=True)
class Env:
    """One SELECT: its columns, its rows, and the SELECTs around it that its expressions may look at."""

    scope: Scope
    relation: Relation
    outer: Env | None = None
    groups: dict[Symbol, Value] | None = None
    """Of an aggregation: the keys."""
    kept: Set | None = None
    """Where rows were chosen by a secret order: the columns that are the same whichever of equals were chosen."""
    parted: list[Set] = field(default_factory=list)
    """Partitions of windows that are not one unit's."""
    reads: bool = False
    """Whether a subquery looks at all of the private rows."""
    sources: list[Relation] = field(default_factory=list)
    counts: dict[Symbol, Symbol] = field(default_factory=dict)
    """Of an aggregation: how many rows have a value."""

    def find(self, node: Ref) -> Value:
        """The column.

        Raises:
            Unproved: there is none.
        """
        env: Env | None = self
        while env is not None:
            columns = env.scope.get(node.table)
            if columns is not None:
                value = columns.get(node.name)
                if value is None:
                    refuse("a column that is not there")
                return value
            env = env.outer
        refuse("a relation that is not there")


def parts(node: Expr) -> Iterator[Expr]:
    """The expressions inside, subqueries left out."""
    if isinstance(node, Call):
        yield from node.args
        if node.where is not None:
            yield node.where
        yield from (o.by for o in node.order)
    elif isinstance(node, Cast):
        yield node.child
    elif isinstance(node, Window):
        yield from node.args
        yield from node.partition
        yield from (o.by for o in node.order)
        yield from (e for e in node.ends if e is not None)
        if node.where is not None:
            yield node.where
    elif isinstance(node, Subquery) and node.child is not None:
        yield node.child


def has(node: Expr, test: Callable[[Expr], bool]) -> bool:
    """Whether some node of an expression, itself among them, is so."""
    return test(node) or any(has(part, test) for part in parts(node))


def aggregated(node: Expr) -> bool:
    """Whether there is an aggregate in an expression; one with OVER is none."""
    return has(node, lambda n: isinstance(n, Call) and n.name in AGGREGATES)


def conjuncts(node: Expr | None) -> list[Expr]:
    """What must hold, each by itself."""
    if node is None:
        return []
    if isinstance(node, Call) and node.name == "and":
        return [part for arg in node.args for part in conjuncts(arg)]
    return [node]


@dataclass(slots=True)
class Expressions:
    """Evaluates the expressions of one text."""

    symbols: Symbols
    query: Callable[[Query, Env], Relation]
    salt: frozenset[str]
    macros: frozenset[str]
    added: list[Number] = field(default_factory=list)
    """How much of one row each sum over private rows adds at most."""

    def row(self, node: Expr, env: Env) -> Value:
        """An expression over the rows of a FROM."""
        if isinstance(node, Ref):
            value = env.find(node)
            if (
                env.kept is not None
                and node.table in env.scope
                and not self.symbols.decided(value.symbol, env.kept)
            ):
                refuse("a column that the secret order does not decide")
            return value
        if isinstance(node, Window):
            return self._window(node, env)
        if isinstance(node, Subquery):
            return self._subquery(node, env, self.row)
        if isinstance(node, Call) and node.name in AGGREGATES:
            refuse("an aggregate among rows")
        return self._made(node, env, self.row)

    def above(self, node: Expr, env: Env) -> Value:
        """An expression over groups: keys, and aggregates of their rows."""
        assert env.groups is not None
        if isinstance(node, Call) and node.name in AGGREGATES:
            return self._aggregate(node, env)
        if isinstance(node, Window):
            refuse("a window beside an aggregate")
        if isinstance(node, Subquery):
            return self._subquery(node, env, self.above)
        if not aggregated(node) and not has(node, lambda n: isinstance(n, Subquery | Window)):
            value = self.row(node, env)
            if value.symbol in env.groups:
                return env.groups[value.symbol]
        if isinstance(node, Ref):
            if node.table in env.scope:
                refuse("a column that is not a group")
            return env.find(node)
        return self._made(node, env, self.above)

    def _made(self, node: Expr, env: Env, inner: Callable[[Expr, Env], Value]) -> Value:
        if isinstance(node, Literal):
            symbol = self.symbols.constant(("literal", type(node.value).__name__, node.value))
            return ranges.literal(node, symbol)
        if isinstance(node, Parameter):
            symbol = self.symbols.constant(("parameter", node.name), node.name in self.salt)
            return Value(symbol)
        if isinstance(node, Cast):
            child = inner(node.child, env)
            word = "try cast" if node.attempt else "cast"
            symbol = self.symbols.call(word, (child.symbol,), (node.type, node.detail))
            return ranges.cast(child, symbol, node.type, node.attempt)
        if not isinstance(node, Call):
            refuse("an expression of another kind")
        if node.name not in SCALARS or node.name in self.macros:
            refuse(f"the function {node.name}")
        if node.distinct or node.where is not None or node.order:
            refuse("a function with the clauses of an aggregate")
        args = [inner(arg, env) for arg in node.args]
        symbol = self.symbols.call(node.name, [a.symbol for a in args], node.names or None)
        if node.name == "-" and (found := ranges.distance(node.args)) is not None:
            y = inner(found[0], env)
            return ranges.between(Value(symbol), found[1], found[2], y)
        made = ranges.combine(node.name, args, node.args, symbol)
        if node.name == "case" and len(args) == 3 and node.args[2] == Literal(None):
            present = [part for part in map(_present, conjuncts(node.args[0])) if part is not None]
            if any(inner(part, env).symbol == args[1].symbol for part in present):
                made = replace(made, there=args[0].symbol)
        if node.name == "least" and (
            budget := budget_of(node, args, env.relation, self.symbols, lambda n: inner(n, env))
        ):
            made = replace(made, low=0, high=budget, whole=True, nullable=False, budget=budget)
            made.times = (symbol, 1, 1)
        return made

    # -- aggregates ----------------------------------------------------------------------------------------------

    def _aggregate(self, node: Call, env: Env) -> Value:
        if node.name in self.macros:
            refuse("a function of the owner's own")
        assert env.groups is not None
        if any(has(part, lambda n: isinstance(n, Window)) for part in parts(node)):
            refuse("a window inside an aggregate")
        args = [self.row(arg, env) for arg in node.args]
        for other in (*((node.where,) if node.where is not None else ()), *(o.by for o in node.order)):
            self.row(other, env)
        made = Value(self.symbols.fresh())
        first = args[0] if args else None
        name, kind = node.name, env.relation.kind
        if name in ("count", "count_star", "count_if", "countif"):
            made.nullable, made.whole, made.low = False, True, 0
            if name == "count" and first is not None and not node.distinct and node.where is None:
                made.odd = frozenset({("there", first.symbol)})
            made.weight = 1 if kind == PRIVATE else None
            if name == "count" and first is not None and not node.distinct and node.where is None:
                made.symbol = self._count(first, env)
                made.times = (made.symbol, 1, 1)
        elif name in ("min", "max", "median", "mode", "any_value", "quantile_disc", "first", "last"):
            assert first is not None
            made.low, made.high, made.whole = first.low, first.high, first.whole and name in ("min", "max")
        elif name == "avg" and first is not None:
            made.low, made.high = first.low, first.high
        elif name == "sum" and first is not None and not node.distinct:
            made.whole = first.whole
            made.odd = self._odd_sum(node, first, env)
            if first.whole:
                made.weight = (
                    first.most
                    if kind == PRIVATE
                    else first.weight
                    if kind == CELLS and not first.halved
                    else None
                )
                made.total = first.total if kind == CELLS and not first.halved else None
                if node.where is None and first.low is not None and first.high is not None:
                    count = self._count(self._same_rows(node, first, env), env)
                    made.times = (count, min(first.low, 0), max(first.high, 0))
            if kind == PRIVATE:
                self.added.append(made.weight)
            if kind == PRIVATE and first.times is not None:
                self._budgeted(made, first, env.relation)
        if kind == PRIVATE:
            self._of_a_unit(made, name, first, env)
        return made

    def _count(self, value: Value, env: Env) -> Symbol:
        """The symbol of how many rows of a group have a value."""
        return env.counts.setdefault(value.there or value.symbol, self.symbols.fresh())

    def _same_rows(self, node: Call, first: Value, env: Env) -> Value:
        """What is there wherever the argument is: the argument, or a column that arithmetic makes it of."""
        strict = not has(node.args[0], lambda n: not _strict(n))
        found = next(iter(refs(node.args[0])), None) if strict else None
        return first if found is None else self.row(found, env)

    def _odd_sum(self, node: Call, first: Value, env: Env) -> frozenset[object] | None:
        if first.odd is None or not first.odd:
            return first.odd
        inner = node.args[0]
        found = ranges.distance(inner.args) if isinstance(inner, Call) and inner.name == "-" else None
        if first.odd != frozenset({"one"}) or found is None or node.where is not None:
            return None
        return frozenset({("there", self.row(found[0], env).symbol)})

    def _budgeted(self, made: Value, first: Value, relation: Relation) -> None:
        assert first.times is not None
        symbol, low, high = first.times
        budget = relation.facts.budgets.get(symbol)
        if budget is not None and low is not None and high is not None and first.whole:
            made.total = budget * max(abs(low), abs(high))

    def _of_a_unit(self, made: Value, name: str, first: Value | None, env: Env) -> None:
        """Bounds of what one unit's rows come to, where the unit is among the groups."""
        assert env.groups is not None
        if not set(env.groups) & set(env.relation.facts.units):
            return
        rows = env.relation.facts.rows_of(env.groups, self.symbols.made)
        if name.startswith("count"):
            made.high = rows
        if name == "sum" and first is not None and rows is not None and first.whole:
            made.low = None if first.low is None else min(0, first.low * rows)
            made.high = None if first.high is None else max(0, first.high * rows)

    # -- windows -------------------------------------------------------------------------------------------------

    def _window(self, node: Window, env: Env) -> Value:
        if env.groups is not None:
            refuse("a window beside an aggregate")
        if node.name not in WINDOWS and node.name not in AGGREGATES:
            refuse(f"the window function {node.name}")
        args = [self.row(arg, env) for arg in node.args]
        by = [self.row(part, env) for part in node.partition]
        for other in (
            *(o.by for o in node.order),
            *(e for e in node.ends if e),
            *((node.where,) if node.where else ()),
        ):
            self.row(other, env)
        relation = env.relation
        made = Value(self.symbols.fresh())
        if node.name in ("row_number", "rank", "dense_rank", "count"):
            made.low, made.whole, made.nullable = 0, True, False
        elif (
            node.name in ("lag", "lead", "first_value", "last_value", "nth_value", "min", "max")
            and 0 < len(args) < 3
        ):
            made.low, made.high, made.whole = args[0].low, args[0].high, args[0].whole
        elif node.name == "sum" and args:
            made.whole = args[0].whole
        own = relation.private and any(v.symbol in relation.facts.units for v in by)
        if relation.kind in (PUBLIC, OWN) or own:
            return made
        env.parted.append(frozenset(v.symbol for v in by))
        return made

    # -- subqueries ----------------------------------------------------------------------------------------------

    def _subquery(self, node: Subquery, env: Env, inner: Callable[[Expr, Env], Value]) -> Value:
        child = None if node.child is None else inner(node.child, env)
        if node.kind == "ANY" and node.comparison != "COMPARE_EQUAL":
            refuse("a subquery that is compared otherwise")
        found = self.query(node.query, env)
        made = Value(self.symbols.fresh())
        if node.kind == "SCALAR":
            first = next(iter(found.columns.values()))
            made.low, made.high, made.whole = first.low, first.high, first.whole
        if found.kind in (PUBLIC, OWN):
            return made
        if env.relation.kind in (PRIVATE, OWN) or found.kind == PRIVATE:
            refuse("a subquery looks at other units' rows")
        del child
        env.reads = True
        env.sources.append(found)
        return made


def _present(node: Expr) -> Expr | None:
    """What ``IS NOT NULL`` is asked of."""
    if isinstance(node, Call) and node.name == "not" and isinstance(node.args[0], Call):
        return node.args[0].args[0] if node.args[0].name == "is null" else None
    return node.args[0] if isinstance(node, Call) and node.name == "is not null" else None


def _strict(node: Expr) -> bool:
    """Whether an expression is missing where one of its parts is."""
    arithmetic = isinstance(node, Call) and node.name in ("+", "-", "*", "//", "abs")
    return arithmetic or isinstance(node, Ref | Literal | Cast)


def refs(node: Expr) -> Iterator[Ref]:
    """The columns of an expression, those of its subqueries left out."""
    if isinstance(node, Ref):
        yield node
    for part in parts(node):
        yield from refs(part)


def tables_of(query: Query) -> set[str]:
    """The relations that the columns of a query name, those of its subqueries too."""
    found: set[str] = set()
    stack: list[object] = [query]
    while stack:
        node = stack.pop()
        if isinstance(node, Ref):
            found.add(node.table)
        elif isinstance(node, tuple):
            stack.extend(node)
        elif node.__class__.__module__ == Ref.__module__:
            stack.extend(getattr(node, name) for name in node.__slots__)  # type: ignore[attr-defined]
    return found
