"""A second lock: derives from the text that goes to the engine what one privacy unit can do to its answer, and compares.

It shares nothing with the binder, which wrote the text: it reads the tree that the engine's own parser makes of it, takes
one small normal form in which names need no rules, and refuses whatever it can't prove. A binder that is deceived writes a
text that does not hold what its operator charges for; here that is found, before anything is paid or read.

What it derives, from the inside out: whose rows a relation has (nobody's, one unit's each, or many units' together); which
columns are the unit; how many rows and groups one unit has; between which integers a column lies; and, once rows of many
units are added up, how far one unit moves the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from dpsql.mechanisms.base import ClaimedText, CodesClaim, PackingClaim, RowsClaim, UnitPlace
from dpsql.sql.lock import ranges, tree
from dpsql.sql.lock.caps import cap_of
from dpsql.sql.lock.duckdb_reader import read_tree
from dpsql.sql.lock.exits import MOST_OF_ONE, is_held
from dpsql.sql.lock.expressions import Env, Expressions
from dpsql.sql.lock.facts import Facts, Kind, Number, Relation, Set, Symbol, Value, add, least
from dpsql.sql.lock.joins import both_ways, same_type
from dpsql.sql.lock.proof import prove, prove_packing
from dpsql.sql.lock.scores import prove_scores
from dpsql.sql.lock.sources import Sources
from dpsql.sql.lock.tree import Call, Cast, Expr, Literal, Ref, Select, Union, Window, conjuncts, refuse
from dpsql.sql.lock.utilities import prove_utility

_HASHED = frozenset((
    "VARCHAR", "UUID", "BLOB", "BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S",
    "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE",
))  # fmt: skip
"""Types of units whose equal values have one hash: no doubles, of which two are zero, and no intervals."""

Serialise = Callable[[str], str]
"""The engine's own parser: a text, to its tree in JSON."""


def check(claimed: ClaimedText, known: tree.Known, serialise: Serialise) -> frozenset[str] | None:
    """Prove that a text does no more than its claim.

    Returns:
        The outputs that are integers of at most 38 digits; None where all are numbers that are packed into one.

    Raises:
        Unproved: it could not be proved.
    """
    return check_tree(read_tree(serialise(claimed.text)), claimed, known)


def check_pattern(
    claimed: ClaimedText, known: tree.Known, serialise: Serialise, names: frozenset[str]
) -> frozenset[str] | None:
    """Prove that no text of a pattern does more than its claim, and return the same as :func:`check`.

    Args:
        claimed: the pattern, as a text with parameters.
        known: the tables and names.
        serialise: the engine's own parser.
        names: the parameters that stand for values which are left open.

    Raises:
        Unproved: it could not be proved, or the parser reads other parameters in it.
    """
    query = read_tree(serialise(claimed.text))
    if tree.varied(query) != names:
        refuse("a pattern that is read otherwise")
    return check_tree(query, claimed, known)


def check_tree(query: tree.Query, claimed: ClaimedText, known: tree.Known) -> frozenset[str] | None:
    """Prove the same of a tree, whichever parser read it."""
    checker, claim = Checker(known, claimed.lent), claimed.claim
    held: frozenset[str] | None = None
    if isinstance(claim, RowsClaim) and claim.limit is not None:
        query = _unlimited(query, claim.limit)
    if isinstance(claim, PackingClaim):
        checker.prove_packing(query, claim)
    elif isinstance(claim, CodesClaim):
        checker.prove_codes(query, claim.unit)
    else:
        relation = checker.query(query, None)
        prove(relation, claim, checker.symbols)
        held = frozenset(ref.name for ref, value in relation.columns.items() if is_held(value))
        if isinstance(claim, RowsClaim):  # sums of terms that are held to what one row moves them by
            held |= {name for name, most in claim.moves if most <= MOST_OF_ONE}
        if isinstance(claim, RowsClaim) and claim.scores is not None and checker.outermost is not None:
            given = query, checker.outermost, checker.leaves, checker.expressions, claim.scores
            if claim.scores.moves is None:
                prove_scores(*given)
            else:
                prove_utility(*given, known)
            held |= {claim.scores.column}  # a sum of terms that are held to its sensitivity
    checker.distinct_names()
    return held


def _unlimited(query: tree.Query, limit: int) -> tree.Query:
    """Return a query without its LIMIT, which left nothing out of what the operator uses."""
    if not isinstance(query, tree.Select) or query.limit != limit:
        refuse("another limit than the operator's")
    return replace(query, limit=None)


@dataclass
class Checker(Sources):
    """Reads one text."""

    outermost: Env | None = None
    """The FROM that was read last: that around all others."""

    def query(self, query: tree.Query, outer: Env | None) -> Relation:
        """Derive what a query gives."""
        before = dict(self.ctes)
        for name, inner in query.ctes:
            if outer is not None:
                refuse("a CTE in a subquery")
            self._alias(name)
            self.ctes[name] = self.query(inner, None)
        made = self._select(query, outer) if isinstance(query, tree.Select) else self._union(query, outer)
        self.ctes = before
        return made

    # -- one SELECT ----------------------------------------------------------------------------------------------

    def _select(self, select: tree.Select, outer: Env | None) -> Relation:
        env, conditions = self._rows(select, outer)
        self._link_outward(env, conditions)
        self._budgeted(env, conditions)
        added = any(tree.aggregated(item) for _, item in select.items)
        grouped = added or select.groups or select.having is not None
        made = self._grouped(select, env) if grouped else self._projected(select, env)
        if env.reads:
            read = [facts for relation in env.reads for facts in relation.many]
            made = replace(made.cells(), sources=[*made.many, *read])
        if select.distinct:
            made = self._distinct(made)
        if select.limit is not None and not made.foreseen:
            made = made.cells()
        elif select.limit is not None and select.limit >= 0:
            made.count = least(select.limit, made.count)
        for item in select.order:  # it says nothing about a relation, but what it names must be known
            if tree.looks_beyond(item.by) or isinstance(item.by, Literal | tree.Varied):
                refuse("ORDER BY a place, a window or a subquery")
            (self.expressions.row if env.groups is None else self.expressions.above)(item.by, env)
        self.outermost = env
        return made

    def prove_packing(self, query: tree.Query, claim: PackingClaim) -> None:
        """Prove the only item of a SELECT without groups, as it is written, and the hash of its unit before it.

        Raises:
            Unproved: it is none, or is not what the operator takes it for.
        """
        match query:
            case tree.Select(
                items, ctes=(), groups=(), having=None, qualify=None, distinct=False, limit=None
            ):
                env, _ = self._rows(query, None)
                packed: list[Expr | None] = [item for _, item in items]
                if claim.coded is not None:
                    self._prove_hash(items[0][1], env, claim.coded)
                    packed = packed[1:] or [None]
                if len(packed) == 1 and not env.parted and not env.reads:
                    given = lambda node: self.expressions.row(node, env)  # noqa: E731
                    prove_packing(packed[0], given, env.relation, claim)
                    return
        refuse("packed rows of another shape")

    def prove_codes(self, query: tree.Query, place: UnitPlace) -> None:
        """Prove that a text gives the hash of each different unit of a column, once: of all there are.

        Two units of one hash are then seen, for they are two rows, and no condition leaves out a unit that packed rows may have.

        Raises:
            Unproved: it gives anything else.
        """
        match query:
            case tree.Select(
                ((_, hashed),), tree.Derived(tree.Select(
                    ((_, Ref() as unit),), tree.Table(), ctes=(), where=where, groups=(), having=None, qualify=None,
                    distinct=True, limit=None,
                )), ctes=(), where=None, groups=(), having=None, qualify=None, distinct=False, limit=None,
            ) if all(tree.present(node) == unit for node in conjuncts(where)):  # fmt: skip
                env, _ = self._rows(query, None)
                self._prove_hash(hashed, env, place)
                return
        refuse("codes of another shape")

    def _prove_hash(self, node: Expr, env: Env, place: UnitPlace) -> None:
        """Prove that an item is the hash of a unit, of a column as it is, whose equal values have one hash."""
        match node:
            case Call("hash", (Ref() as unit,)):
                self.expressions.row(node, env)
                symbol = env.find(unit).symbol
                path, name, _ = self.scans.get(symbol, ((), "", {}))
                kind = env.relation.facts.units.get(symbol)
                if (path, name) == place and kind in _HASHED and env.relation.private:
                    return
        refuse("the hash of something else than the unit")

    def _rows(self, select: tree.Select, outer: Env | None) -> tuple[Env, list[Expr]]:
        """Return the rows that FROM and WHERE leave, and the conditions of WHERE."""
        conditions = conjuncts(select.where)
        env = Env(self._from(select.source, conditions, outer), outer)
        env.relation = _present(env, conditions, self.expressions)
        for node in conditions:
            self._condition(node, env)
        return env, conditions

    def _link_outward(self, env: Env, conditions: list[Expr]) -> None:
        """Accept private rows of a subquery as those of the same unit as the row around."""
        relation = env.relation
        joins = self._joins(conditions, (relation,), env.outer)
        mine = {**relation.weak, **relation.facts.units}
        if relation.private and any(
            here in mine and there in joins.around and same_type(mine[here], joins.around[there])
            for here, there in both_ways(joins.pairs)
        ):
            env.relation = replace(relation, kind=Kind.OWN, count=None)

    def _budgeted(self, env: Env, conditions: list[Expr]) -> None:
        """Read ``counted > 0``: where counts add up to at most so many, so many rows have one."""
        for node in conditions:
            match node:
                case Call(">", (Ref() as counted, Literal(integer=0))):
                    facts, symbol = env.relation.facts, env.find(counted).symbol
                    budget = facts.budgets.get(symbol)
                    if budget is not None:
                        facts = replace(facts, rows=(*facts.rows, (frozenset(), budget)))
                        columns = {  # where it is missing, it is not above 0
                            ref: replace(value, nullable=False) if value.symbol == symbol else value
                            for ref, value in env.relation.columns.items()
                        }
                        env.relation = replace(env.relation, facts=facts, columns=columns)

    def _projected(self, select: tree.Select, env: Env) -> Relation:
        kept: Set | None = None
        rest = []
        unique: list[Set] = []
        for node in conjuncts(select.qualify):
            cap = None
            if env.relation.private and env.relation.owner:
                cap = cap_of(node, env.relation, self.symbols, lambda n: self.expressions.row(n, env))
            if cap is None:
                rest.append(node)
                if env.relation.foreseen:
                    unique += self._first_of(node, env)
                continue
            if cap.decides is not None:
                kept = cap.decides if kept is None else kept & cap.decides
            facts, more = env.relation.facts, ((cap.columns, cap.most),)
            if cap.groups:
                facts = replace(facts, groups=facts.groups + more)
            else:
                facts = replace(facts, rows=facts.rows + more)
            env.relation = replace(env.relation, facts=facts)
        before = len(env.parted)
        for node in rest:
            self.expressions.row(node, env)
        if len(env.parted) > before or (rest and env.relation.kind == Kind.CELLS):
            env.relation = env.relation.plain()
        env.kept = kept
        columns = self._columns(select, lambda expr: self.expressions.row(expr, env))
        made = replace(env.relation, columns=columns)
        if made.foreseen:
            places = zip(select.items, columns.values(), strict=True)
            numbers = [frozenset({v.symbol}) for (_, node), v in places if _numbers(node)]
            made.unique = [*made.unique, *unique, *numbers]
        if kept is not None:
            made.unique = [u for u in made.unique if u <= kept]
        if made.private:
            budgets = dict(made.facts.budgets)
            for value in columns.values():
                if value.budget is not None and value.times is not None:
                    budgets |= {value.symbol: value.budget, value.times[0]: value.budget}
            made.facts = replace(made.facts, budgets=budgets)
            if made.orphans and env.parted:
                refuse("a window over rows of nobody")
        if env.parted:  # each row is made of those that agree with it in what all windows are divided by
            made = made.cells(frozenset.intersection(*env.parted))
        return made

    def _first_of(self, node: Expr, env: Env) -> list[Set]:
        """Return the columns of which ``row_number() OVER (PARTITION BY ...) = 1`` keeps one row each."""
        match node:
            case Call("=", (Window("row_number", partition=by), Literal(integer=1))):
                return [frozenset(self.expressions.row(part, env).symbol for part in by)]
        return []

    def _columns(self, select: tree.Select, value: Callable[[Expr], Value]) -> dict[Ref, Value]:
        if len({name.lower() for name, _ in select.items}) != len(select.items):
            refuse("two output columns of one name")
        columns = {Ref("", name): value(expr) for name, expr in select.items}
        self._name(columns)
        return columns

    def _distinct(self, made: Relation) -> Relation:
        symbols = frozenset(v.symbol for v in made.columns.values())
        if made.foreseen:
            count = made.facts.groups_of(symbols, {}) if symbols <= made.facts.sizes.keys() else None
            return replace(made, unique=[symbols], count=least(count, made.count))
        if not made.private:
            return made.cells(symbols)
        if symbols & made.facts.units.keys():
            return replace(made, unique=[symbols])
        if made.orphans:
            refuse("rows of nobody are made distinct")
        return replace(made.cells(symbols), single=True)

    def _grouped(self, select: tree.Select, env: Env) -> Relation:
        relation = env.relation
        if select.qualify is not None:
            refuse("QUALIFY beside an aggregate")
        if any(isinstance(node, Literal | tree.Varied) or tree.looks_beyond(node) for node in select.groups):
            refuse("a group by its place, or of a window or subquery")
        given = [self.expressions.row(node, env) for node in select.groups]
        if relation.private and relation.orphans:
            refuse("rows of nobody are added up")
        env.groups = {value.symbol: value.plain() for value in given}
        columns = self._columns(select, lambda expr: self.expressions.above(expr, env))
        by_key = True
        for node in conjuncts(select.having):
            self.expressions.above(node, env)
            keyed = all(env.find(ref).symbol in env.groups for ref in tree.refs(node))
            by_key = by_key and keyed and not tree.aggregated(node)
        made = self._groups(relation, columns, frozenset(env.groups))
        return made if by_key else made.plain()

    def _groups(self, relation: Relation, columns: dict[Ref, Value], keys: Set) -> Relation:
        made = Relation(relation.kind, columns, unique=[keys], count=None if keys else 1)
        facts = relation.facts
        if relation.foreseen:
            return replace(made, facts=Facts(sizes=facts.sizes))
        if relation.private and keys & facts.units.keys():
            total = facts.rows_of((), self.symbols.made)
            rows = ((keys.difference(facts.units), 1), *(() if total is None else ((frozenset(), total),)))
            facts = replace(facts, rows=rows, budgets={})
            return replace(made, facts=facts, followed=dict(relation.followed))
        cells = relation.cells(keys)
        whole = len(cells.key) == len(keys)
        made = replace(made, kind=Kind.CELLS, key=cells.key, single=whole, sources=cells.sources)
        return made if whole else made.plain()

    # -- set operations ------------------------------------------------------------------------------------------

    def _union(self, union: tree.Union, outer: Env | None) -> Relation:
        """Join parts column by column: a column is the unit where it is in all parts."""
        if union.limit is not None:
            refuse("a set operation that is cut")
        parts = [self.query(part, outer) for part in union.parts]
        first = parts[0]
        if any(len(part.columns) != len(first.columns) for part in parts):
            refuse("a set operation of different widths")
        given = list(zip(*(part.columns.values() for part in parts), strict=True))
        columns = {
            name: replace(
                ranges.any_of(there, self.symbols.fresh()), nullable=True, whole=all(v.whole for v in values)
            )
            for name, values, there in zip(
                first.columns, given, _leave_out_missing(union, given), strict=True
            )
        }
        kinds = {part.kind for part in parts}
        if all(part.foreseen for part in parts):
            return Relation(Kind.OWN if Kind.OWN in kinds else Kind.PUBLIC, columns)
        private = [part for part in parts if part.private]
        whole = kinds == {Kind.PRIVATE} or (union.kind != "UNION" and kinds == {Kind.PRIVATE, Kind.PUBLIC})
        if not first.private or not whole or not all(part.owner and not part.orphans for part in private):
            refuse("a set operation of private rows and others")
        units: dict[Symbol, str] = {}
        for value, values in zip(columns.values(), given, strict=True):
            types = [
                part.facts.units.get(v.symbol) for part, v in zip(parts, values, strict=True) if part.private
            ]
            kind = types[0]
            if kind is not None and all(t is not None and same_type(t, kind) for t in types):
                units[value.symbol] = kind
        if not units:
            refuse("a set operation without the unit in the same place")
        total: Number = 0
        for part in private:
            total = add(total, part.facts.rows_of((), self.symbols.made))
        rows: tuple[tuple[Set, int], ...] = () if total is None else ((frozenset(), total),)
        return Relation(Kind.PRIVATE, columns, Facts(rows, units=units))


def _leave_out_missing(union: Union, given: Sequence[tuple[Value, ...]]) -> Iterator[list[Value]]:
    """Yield the values of each column of a set operation, but for parts in which the column is NULL, unless it is in all."""
    missing = [
        [_is_missing(item) for _, item in part.items] if isinstance(part, Select) else None
        for part in union.parts
    ]
    for place, values in enumerate(given):
        there = [
            value
            for value, items in zip(values, missing, strict=True)
            if items is None or len(items) != len(given) or not items[place]
        ]
        yield there or list(values)


def _is_missing(node: Expr) -> bool:
    while isinstance(node, Cast):
        node = node.child
    return isinstance(node, Literal) and node.value is None


def _present(env: Env, conditions: list[Expr], expressions: Expressions) -> Relation:
    """Return rows without those of nobody, where WHERE says that the unit is there."""
    relation = env.relation
    there = [node for node in map(tree.present, conditions) if node is not None]
    present = {env.find(ref).symbol for ref in there if isinstance(ref, Ref)}
    if relation.needs:
        present |= {expressions.row(node, env).symbol for node in there if not tree.looks_beyond(node)}
    found = {s: t for s, t in relation.weak.items() if relation.needs.get(s, frozenset({s})) <= present}
    if not found:
        return relation
    relation = replace(relation, needs={s: parts for s, parts in relation.needs.items() if s not in found})
    facts = replace(relation.facts, units={**relation.facts.units, **found})
    weak = {s: t for s, t in relation.weak.items() if s not in found}
    return replace(relation, facts=facts, weak=weak, orphans=False)


def _numbers(node: Expr) -> bool:
    """Return whether a column numbers the rows: ``row_number() OVER (ORDER BY ...)``, with an integer added or taken off."""
    match node:
        case Window("row_number", partition=()) | Call(
            "+" | "-", (Window("row_number", partition=()), Literal())
        ):
            return True
    return False
