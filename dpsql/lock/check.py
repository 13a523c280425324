"""The check: derives from the engine's text how far one privacy unit moves its answer, and compares that with the charge.

It shares no code with the binder that wrote the text. It reads the tree of the engine's own parser, accepts one small normal
form in which names need no scoping rules, and refuses whatever it can't prove. If the binder is deceived and writes a text
that moves further than its operator charges, the check refuses it before anything is paid or read.

It derives, from the inside out:

* the owner of a relation's rows (none, one unit per row, or many units together), and the columns that are the unit;
* the number of rows and groups per unit, and integer bounds of columns;
* how far one unit moves a sum.

Packed rows are one integer each, and their bits are checked instead: the top bits are the row's own unit, each value stays
within its bits, and the operator clamps its sums to at most the charge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from dpsql.late_dataclass import dataclass
from dpsql.lock import expressions, tree
from dpsql.lock.duckdb_reader import read_tree
from dpsql.lock.expressions import Env, Expressions, cap_of
from dpsql.lock.facts import Facts, Kind, Number, Relation, Set, Symbol, Symbols, Value, add, least, times
from dpsql.lock.from_clause import Sources, both_ways, same_type
from dpsql.lock.plan_types import MOST_OF_ONE, fits_38_digits
from dpsql.lock.tree import Call, Cast, Expr, Literal, Ref, Select, Union, Window, conjuncts, refuse
from dpsql.mechanisms import base
from dpsql.mechanisms.base import ClaimedText, CodesClaim, PackingClaim, RowsClaim, UnitPlace


def prove(relation: Relation, claim: base.Claim, symbols: Symbols) -> None:
    """Compare a derived relation with a claim."""
    if isinstance(claim, base.RouteClaim) or relation.kind == Kind.PUBLIC:
        return
    if isinstance(claim, base.PublicClaim):
        refuse("a public text reads private rows")
    if relation.kind == Kind.OWN and isinstance(claim, base.BlocksClaim):
        return
    if relation.kind == Kind.OWN:
        refuse("rows of one block")
    if relation.private and relation.orphans:
        refuse("rows without a unit are read")
    match claim:
        case base.SumsClaim():
            _sums(relation, claim, symbols)
        case base.RowsClaim():
            _rows(relation, claim, symbols)
            if relation.kind == Kind.CELLS and claim.scores is None and not claim.any_function:
                _counts(relation, claim, symbols)
        case base.BlocksClaim():
            _blocks(relation, claim, symbols)
        case base.ParticipationClaim():
            if relation.kind != Kind.CELLS or [*relation.columns] != [Ref("", "most")] or relation.key:
                refuse("not a number of blocks")
        case base.PackingClaim():
            refuse("packed rows")


def _column(relation: Relation, name: str) -> Value:
    return relation.columns.get(Ref("", name)) or refuse("a column that the operator asks for is not there")


def _keys(relation: Relation, names: Iterable[str]) -> list[tuple[Facts, list[Symbol]]]:
    """Return each source's facts with its columns that are the operator's group keys."""
    symbols = [_column(relation, name).symbol for name in names]
    if relation.kind != Kind.CELLS:
        return [(relation.facts, symbols)]
    if any(symbol not in relation.key for symbol in symbols):
        refuse("a group that depends on others' rows")
    sources = enumerate(relation.sources)
    return [(facts, [relation.key[symbol][place] for symbol in symbols]) for place, facts in sources]


def _sums(relation: Relation, claim: base.SumsClaim, symbols: Symbols) -> None:
    if relation.kind != Kind.CELLS or not relation.single:
        refuse("a group may have several rows")
    if len(relation.sources) != 1:
        refuse("sums of several sources")
    by = relation.open | relation.key.keys() if claim.selected else relation.open
    named = frozenset(_column(relation, name).symbol for name in claim.keys)
    if not all(symbols.decided(symbol, by) for symbol in named):
        refuse("a group that depends on others' rows")
    once = any(unique <= named for unique in relation.unique)
    if not once and not all(symbols.decided(symbol, named) for symbol in relation.key):
        refuse("several groups under one key")
    if not claim.selected and not relation.fixed and (claim.keys or relation.key):
        refuse("which groups there are is private" if claim.keys else "more groups than are known")
    keys = list(dict.fromkeys(source for (source,) in relation.key.values()))
    facts = relation.sources[0]
    groups = least(facts.groups_of(keys, symbols.made), relation.count)
    rows = facts.rows_of(keys, symbols.made)
    for name, charged in claim.columns:
        _compare(_column(relation, name), rows, groups, charged)


def _compare(value: Value, rows: Number, groups: Number, charged: base.SensitivityClaim) -> None:
    """Refuse a sum that one unit may move by more than the charge, in L1 or in L2."""
    each, total = times(value.weight, rows), value.total
    if value.halved:
        each = None if each is None else -(-each // 2)
        total = total // 2 if total is not None and value.odd == frozenset() else None
    each = least(each, total)
    if each is None:
        refuse("nothing bounds what one unit moves a sum by")
    whole = least(times(each, groups), total)
    if whole is None:
        refuse("nothing bounds the groups that one unit is in")
    squared = _most_squares(each, whole)
    if whole > charged.steps * charged.groups or squared > charged.steps**2 * charged.groups:
        refuse("one unit moves a sum by more than is charged")


def _most_squares(each: int, whole: int) -> int:
    """Return the largest sum of squares of natural numbers that are at most ``each`` and add up to at most ``whole``.

    Moving 1 from a smaller number to a larger one raises the sum of squares, so the maximum has all but one of them
    at ``each`` or 0.
    """
    if not each:
        return 0
    rest = whole % each
    return (whole - rest) * each + rest * rest


def _rows(relation: Relation, claim: base.RowsClaim, symbols: Symbols) -> None:
    for facts, keys in _keys(relation, claim.keys):
        if claim.in_all:
            whole = facts.rows_of((), symbols.made)
            if whole is None or whole > claim.rows:
                refuse("more rows of one unit than are charged")
            continue
        rows, groups = facts.rows_of(keys, symbols.made), facts.groups_of(keys, symbols.made)
        if (rows is None or rows > claim.rows) and not _each(relation, claim, symbols):
            refuse("more rows of one unit than are charged")
        groups = least(groups, relation.count) if relation.kind == Kind.CELLS and relation.single else groups
        if groups is None or groups > claim.groups:
            refuse("one unit is in more groups than are charged")
    for name, most in claim.within:
        found = _column(relation, name).most
        if found is None or found > most:
            refuse("a value outside its bounds")
    for name, most in claim.moves:
        weight = _column(relation, name).weight
        if weight is None or weight > most:
            refuse("one row moves a sum by more than is charged")


def _counts(relation: Relation, claim: base.RowsClaim, symbols: Symbols) -> None:
    """Refuse counts in which one row could change how often, or as which value, others' values are counted."""
    if not claim.moves:
        refuse("nothing says how often a value is counted")
    moved, key = {name for name, _ in claim.moves}, frozenset(relation.key)
    for ref, value in relation.columns.items():
        if ref.name not in moved and not symbols.decided(value.symbol, key):
            refuse("a value that depends on others' rows")
    if not relation.single:
        refuse("a group may have several rows")


def _each(relation: Relation, claim: base.RowsClaim, symbols: Symbols) -> bool:
    """Return whether the claimed number of rows per unit holds for each public candidate."""
    if claim.each is None or claim.keys:
        return False
    found = [facts.rows_of(keys, symbols.made) for facts, keys in _keys(relation, (claim.each,))]
    return all(rows is not None and rows <= claim.rows for rows in found)


def _blocks(relation: Relation, claim: base.BlocksClaim, symbols: Symbols) -> None:
    for facts, (key,) in _keys(relation, (claim.column,)):
        if claim.most is None:
            continue
        blocks = facts.groups_of((key,), symbols.made)
        if blocks is None or blocks > claim.most:
            refuse("one unit is in more blocks than are charged")
        if key not in symbols.secret:
            refuse("predictable blocks")


# -- packed rows ------------------------------------------------------------------------------------------------------

Evaluate = Callable[[Expr], Value]


def prove_packing(item: Expr | None, value: Evaluate, relation: Relation, claim: base.PackingClaim) -> None:
    """Compare the bits of packed rows with a claim.

    Args:
        item: the packed integer; None if there is only the hash of a unit.
        value: returns the derived value of a part of it.
    """
    if not relation.private or relation.orphans or not relation.owner:
        refuse("packed rows without a unit")
    terms = [] if item is None else [_term(term) for term in tree.addends(item)]
    units = [t for t in terms if _is_unit(t[0], value, relation)]
    if len(units) != (1 if claim.coded is None else 0):
        refuse("packed rows without one unit")
    codes = [t for t in terms if t not in units and _is_code(t[0])]
    values = [t for t in terms if t not in units and t not in codes]
    if len(codes) != claim.keys:
        refuse("packed groups of another number")
    if len(values) not in (0, len(claim.values)):
        refuse("packed values of another number")
    for (node, _), most in zip(values, claim.values, strict=False):
        found = value(node)
        if found.low is None or found.low < 0 or found.high is None or found.high > most or found.nullable:
            refuse("a packed value outside its bits")
    if all(at for _, at in terms):
        top = None if claim.coded is not None else units[0][1]
        _apart([at for _, at in values], [at for _, at in codes], top, claim.values)
    if not claim.keys:
        tallies = dict(claim.tallies)
        for name, charged in claim.charged:
            if name not in tallies or tallies[name] > charged.steps:
                refuse("one unit moves a sum by more than is charged")


def _term(node: Expr) -> tuple[Expr, int]:
    """Return a value and its multiplier; 0 is a multiplier that is filled in at release."""
    match node:
        case Call("*", (inner, tree.Parameter() | Cast(tree.Parameter()))):
            return inner, 0
        case Call("*", (inner, Literal(integer=int(at)) | Cast(Literal(integer=int(at))))) if at >= 1:
            return inner, at
    refuse("packed rows of another shape")


def _is_unit(node: Expr, value: Evaluate, relation: Relation) -> bool:
    """Return whether it is ``CAST(unit AS BIGINT) - least``."""
    match node:
        case Call("-", (Cast(Ref() as unit, "BIGINT") | (Ref() as unit), first)) if _fixed(first):
            found = value(unit)
            return found.symbol in relation.facts.units and found.whole
    return False


def _is_code(node: Expr) -> bool:
    """Return whether it is ``COALESCE(CAST(key AS BIGINT) - least + 1, 0)``, in which 0 means NULL."""
    match node:
        case Call(
            "coalesce",
            (Call("+", (Call("-", (Cast() | Ref(), first)), Literal(integer=1))), Literal(integer=0)),
        ):
            return _fixed(first)
    return False


def _fixed(node: Expr) -> bool:
    inner = node.child if isinstance(node, Cast) else node
    return isinstance(inner, tree.Parameter) or tree.integer(inner) is not None


def _apart(values: list[int], codes: list[int], top: int | None, limits: Sequence[int]) -> None:
    """Refuse parts that share bits.

    Args:
        values: multipliers of the values, lowest first.
        codes: multipliers of the group codes.
        top: multiplier of the unit; None if the unit's code is added when rows are read, which checks for free bits.
    """
    end = 1
    for at, most in zip(values, limits, strict=False):
        if at != end:
            refuse("packed values that share bits")
        end <<= most.bit_length()
    if any(at < end or at & (at - 1) for at in codes):
        refuse("packed groups that share bits with values")
    if top is not None and (top < max([end, *codes]) or top & (top - 1)):
        refuse("the unit shares bits with other parts")


_TIMES = "DATE TIME TIMESTAMP TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS"
_HASHED = frozenset(f"VARCHAR UUID BLOB BIGINT UBIGINT HUGEINT UHUGEINT {_TIMES}".split()) | {
    "TIMESTAMP WITH TIME ZONE"
}
"""Types of units whose equal values have equal hashes. DOUBLE (0.0 and -0.0) and INTERVAL are not among them."""

Serialise = Callable[[str], str]
"""The engine's own parser: returns a text's tree as JSON."""


def check(claimed: ClaimedText, known: tree.Known, serialise: Serialise) -> frozenset[str] | None:
    """Prove that a text does no more than its claim; return its outputs of at most 38 digits (None for packed rows)."""
    return check_tree(read_tree(serialise(claimed.text)), claimed, known)


def check_tree(query: tree.Query, claimed: ClaimedText, known: tree.Known) -> frozenset[str] | None:
    """Prove that a tree does no more than its claim; see :func:`check`."""
    checker = Checker(known, claimed.lent, named=tree.columns_of(query), paid=claimed.periods)
    claim = claimed.claim
    narrow: frozenset[str] | None = None
    if isinstance(claim, RowsClaim) and claim.limit is not None:
        if not isinstance(query, Select) or query.limit != claim.limit:
            refuse("another limit than the operator's")
        query = replace(query, limit=None)  # it omits no row that the operator uses
    if isinstance(claim, PackingClaim):
        checker.prove_packing(query, claim)
    elif isinstance(claim, CodesClaim):
        checker.prove_codes(query, claim.unit)
    else:
        relation = checker.query(query, None)
        prove(relation, claim, checker.symbols)
        narrow = frozenset(ref.name for ref, value in relation.columns.items() if fits_38_digits(value))
        if isinstance(claim, RowsClaim):  # sums of terms bounded by the effect of one row
            narrow |= {name for name, most in claim.moves if most <= MOST_OF_ONE}
        if isinstance(claim, RowsClaim) and claim.scores is not None and checker.outermost is not None:
            from dpsql.lock.scores import prove_scores  # candidates alone have scores

            scope = checker.outermost, checker.leaves, checker.expressions
            prove_scores(query, *scope, claim.scores, known)
            narrow |= {claim.scores.column}  # a sum of terms bounded by the score's sensitivity
    checker.distinct_names()
    return narrow


@dataclass
class Checker(Sources):
    """Reads one text."""

    outermost: Env | None = None
    """The outermost SELECT, which is read last."""

    def query(self, query: tree.Query, outer: Env | None) -> Relation:
        """Derive the relation that a query returns."""
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
        for item in select.order:  # it changes no fact, but its names must be known
            if tree.looks_beyond(item.by) or isinstance(item.by, Literal):
                refuse("ORDER BY a place, a window or a subquery")
            (self.expressions.row if env.groups is None else self.expressions.above)(item.by, env)
        self.outermost = env
        return made

    def prove_packing(self, query: tree.Query, claim: PackingClaim) -> None:
        """Prove the one packed item of a SELECT without groups, and the hash of its unit before it, if it has one."""
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
        """Prove that a text returns one hash for each different unit of a column, without exception.

        Colliding units are then visible as two equal rows, and no condition omits a unit that packed rows may have.
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
        """Prove that an item is the hash of an unchanged unit column of a type with equal hashes for equal values."""
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
        """Return the scope after FROM and WHERE, and the conditions of WHERE."""
        conditions = conjuncts(select.where)
        env = Env(self._from(select.source, conditions, outer), outer)
        env.relation = _present(env, conditions, self.expressions)
        for node in conditions:
            self._condition(node, env)
        return env, conditions

    def _link_outward(self, env: Env, conditions: list[Expr]) -> None:
        """Mark a subquery's private rows as the outer row's own if an equality links their units."""
        relation = env.relation
        joins = self._joins(conditions, (relation,), env.outer)
        mine = {**relation.weak, **relation.facts.units}
        if relation.private and any(
            here in mine and there in joins.around and same_type(mine[here], joins.around[there])
            for here, there in both_ways(joins.pairs)
        ):
            env.relation = replace(relation, kind=Kind.OWN, count=None)

    def _budgeted(self, env: Env, conditions: list[Expr]) -> None:
        """Derive a cap on rows from ``counted > 0``: natural numbers with a bounded total are positive in so few rows."""
        for node in conditions:
            match node:
                case Call(">", (Ref() as counted, Literal(integer=0))):
                    facts, symbol = env.relation.facts, env.find(counted).symbol
                    budget = facts.budgets.get(symbol)
                    if budget is not None:
                        facts = replace(facts, rows=(*facts.rows, (frozenset(), budget)))
                        columns = {  # NULL is not above 0
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
                refuse("a window over rows without a unit")
        if env.parted:  # each row depends on those that agree with it in the keys of all partitions
            made = made.cells(frozenset.intersection(*env.parted))
        return made

    def _first_of(self, node: Expr, env: Env) -> list[Set]:
        """Return the keys of which ``row_number() OVER (PARTITION BY ...) = 1`` keeps one row each."""
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
            refuse("rows without a unit are made distinct")
        return replace(made.cells(symbols), single=True)

    def _grouped(self, select: tree.Select, env: Env) -> Relation:
        relation = env.relation
        if select.qualify is not None:
            refuse("QUALIFY with an aggregate")
        if any(isinstance(node, Literal) or tree.looks_beyond(node) for node in select.groups):
            refuse("a group by its place, or of a window or subquery")
        given = [self.expressions.row(node, env) for node in select.groups]
        if relation.private and relation.orphans:
            refuse("rows without a unit are added up")
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
        """Combine parts column by column; a column is the unit if it is the unit in all parts."""
        if union.limit is not None:
            refuse("a set operation that is cut")
        parts = [self.query(part, outer) for part in union.parts]
        first = parts[0]
        if any(len(part.columns) != len(first.columns) for part in parts):
            refuse("a set operation of different widths")
        given = list(zip(*(part.columns.values() for part in parts), strict=True))
        columns: dict[Ref, Value] = {}
        for name, values, there in zip(first.columns, given, _leave_out_missing(union, given), strict=True):
            value = expressions.any_of(there, self.symbols.fresh())
            columns[name] = replace(value, nullable=True, whole=all(v.whole for v in values))
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
    """Yield each column's values in the parts of a set operation, without the parts that write NULL (unless all do)."""
    listed = [part.items if isinstance(part, Select) else () for part in union.parts]
    for place, values in enumerate(given):
        pairs = zip(values, listed, strict=True)
        there = [v for v, items in pairs if len(items) != len(given) or not _is_missing(items[place][1])]
        yield there or list(values)


def _is_missing(node: Expr) -> bool:
    while isinstance(node, Cast):
        node = node.child
    return isinstance(node, Literal) and node.value is None


def _present(env: Env, conditions: list[Expr], expressions: Expressions) -> Relation:
    """Return the relation with its unit established if WHERE requires that the unit is not NULL."""
    relation = env.relation
    there = [node for node in map(tree.present, conditions) if node is not None]
    present = {env.find(ref).symbol for ref in there if isinstance(ref, Ref)}
    if relation.needs:
        present |= {expressions.row(node, env).symbol for node in there if not tree.looks_beyond(node)}
    found = {s: t for s, t in relation.weak.items() if _needed(relation, s) <= present}
    if not found:
        return relation
    groups = tuple((relation.needs[s][1], 1) for s in found if s in relation.needs)
    relation = replace(relation, needs={s: parts for s, parts in relation.needs.items() if s not in found})
    facts = relation.facts
    facts = replace(facts, units={**facts.units, **found}, groups=facts.groups + groups)
    weak = {s: t for s, t in relation.weak.items() if s not in found}
    return replace(relation, facts=facts, weak=weak, orphans=False)


def _needed(relation: Relation, unit: Symbol) -> Set:
    """Return the columns that must not be NULL where a column is the unit."""
    return relation.needs[unit][0] if unit in relation.needs else frozenset({unit})


def _numbers(node: Expr) -> bool:
    """Return whether a column numbers the rows: ``row_number() OVER (ORDER BY ...)``, plus or minus an integer."""
    if isinstance(node, Call) and node.name in ("+", "-") and isinstance(node.args[-1], Literal):
        node = node.args[0]
    return isinstance(node, Window) and node.name == "row_number" and not node.partition
