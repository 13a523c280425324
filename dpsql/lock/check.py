"""A second lock: derives from the text that goes to the engine what one privacy unit can do to its answer, and compares.

It shares nothing with the binder, which wrote the text: it reads the tree that the engine's own parser makes of it, takes
one small normal form in which names need no rules, and refuses whatever it can't prove. A binder that is deceived writes a
text that does not hold what its operator charges for; here that is found, before anything is paid or read.

What it derives, from the inside out: whose rows a relation has (nobody's, one unit's each, or many units' together); which
columns are the unit; how many rows and groups one unit has; between which integers a column lies; and, once rows of many
units are added up, how far one unit moves the sum.

The proof: what was derived of a text is within what its operator charges.

Rows that come as one integer each are read out of its bits: the unit, the groups and the values. What is not SQL there is
checked here: that the topmost bits are the unit's, whole and of no other row's making; that each value is held to what its
bits can hold; and that an operator clamps what it adds up to no more than is charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dpsql.lock import expressions, tree
from dpsql.lock.casts import MOST_OF_ONE, is_held
from dpsql.lock.duckdb_reader import read_tree
from dpsql.lock.expressions import Env, Expressions, cap_of
from dpsql.lock.facts import Facts, Kind, Number, Relation, Set, Symbol, Symbols, Value, add, least, times
from dpsql.lock.from_clause import Sources, both_ways, same_type
from dpsql.lock.running_sums import prove_scores
from dpsql.lock.tree import Call, Cast, Expr, Literal, Ref, Select, Union, Window, conjuncts, refuse
from dpsql.lock.utilities import prove_utility
from dpsql.mechanisms import base
from dpsql.mechanisms.base import ClaimedText, CodesClaim, PackingClaim, RowsClaim, UnitPlace


def prove(relation: Relation, claim: base.Claim, symbols: Symbols) -> None:
    """Compare.

    Raises:
        Unproved: the text may do more than its claim, or nothing says that it does not.
    """
    if isinstance(claim, base.RouteClaim) or relation.kind == Kind.PUBLIC:
        return
    if isinstance(claim, base.PublicClaim):
        refuse("a public text reads private rows")
    if relation.kind == Kind.OWN and isinstance(claim, base.BlocksClaim):
        return
    if relation.kind == Kind.OWN:
        refuse("rows of one block")
    if relation.private and relation.orphans:
        refuse("rows of nobody are read")
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
    """Return the columns of each source by which the operator takes groups apart."""
    symbols = [_column(relation, name).symbol for name in names]
    if relation.kind != Kind.CELLS:
        return [(relation.facts, symbols)]
    if any(symbol not in relation.key for symbol in symbols):
        refuse("a group that others' rows decide about")
    return [
        (facts, [relation.key[symbol][place] for symbol in symbols])
        for place, facts in enumerate(relation.sources)
    ]  # fmt: skip


def _sums(relation: Relation, claim: base.SumsClaim, symbols: Symbols) -> None:
    if relation.kind != Kind.CELLS or not relation.single:
        refuse("a group may have several rows")
    if len(relation.sources) != 1:
        refuse("sums of several sources")
    by = relation.open | relation.key.keys() if claim.selected else relation.open
    if not all(symbols.decided(_column(relation, name).symbol, by) for name in claim.keys):
        refuse("a group that others' rows decide about")
    if not claim.selected and not relation.fixed and (claim.keys or relation.key):
        refuse("which groups there are is private" if claim.keys else "more groups than are known")
    keys = list(dict.fromkeys(source for (source,) in relation.key.values()))
    facts = relation.sources[0]
    groups = least(facts.groups_of(keys, symbols.made), relation.count)
    rows = facts.rows_of(keys, symbols.made)
    for name, charged in claim.columns:
        _compare(_column(relation, name), rows, groups, charged)


def _compare(value: Value, rows: Number, groups: Number, charged: base.SensitivityClaim) -> None:
    """Return whether one unit moves a sum by no more than is charged, in L1 and in L2.

    Raises:
        Unproved: it may.
    """
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
    """Return the largest sum of squares of whole numbers up to ``each`` that add up to ``whole`` at most.

    To move 1 from a smaller number to a larger one makes the sum of squares larger, so as many as can be are ``each``.
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
            refuse("a value beyond its bounds")
    for name, most in claim.moves:
        weight = _column(relation, name).weight
        if weight is None or weight > most:
            refuse("one row moves a sum by more than is charged")


def _counts(relation: Relation, claim: base.RowsClaim, symbols: Symbols) -> None:
    """Prove that each row counts in one cell alone, and that nothing but what is counted looks at a cell's rows.

    Raises:
        Unproved: one row may decide how often others' values are counted, or as which values.
    """
    if not claim.moves:
        refuse("nothing says how often a value is counted")
    moved, key = {name for name, _ in claim.moves}, frozenset(relation.key)
    for ref, value in relation.columns.items():
        if ref.name not in moved and not symbols.decided(value.symbol, key):
            refuse("a value that others' rows decide about")
    if not relation.single:
        refuse("a group may have several rows")


def _each(relation: Relation, claim: base.RowsClaim, symbols: Symbols) -> bool:
    """Return whether so many rows of a unit count for each public candidate, of which there may be many."""
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
            refuse("blocks that everybody can foresee")


# -- rows that come as one integer each -------------------------------------------------------------------------------

Evaluate = Callable[[Expr], Value]


def prove_packing(item: Expr | None, value: Evaluate, relation: Relation, claim: base.PackingClaim) -> None:
    """Compare.

    Args:
        item: the integer; None where nothing is packed beside the hash of a unit.
        value: what is known of a part of it.
        relation: its rows.
        claim: what the operator says of it.

    Raises:
        Unproved: the bits are not what the operator takes them for, or it is held to more than is charged.
    """
    if not relation.private or relation.orphans or not relation.owner:
        refuse("packed rows of nobody")
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
        held = value(node)
        if held.low is None or held.low < 0 or held.high is None or held.high > most or held.nullable:
            refuse("a packed value beyond its bits")
    if all(at for _, at in terms):
        top = None if claim.coded is not None else units[0][1]
        _apart([at for _, at in values], [at for _, at in codes], top, claim.values)
    if not claim.keys:
        tallies = dict(claim.tallies)
        for name, charged in claim.charged:
            if name not in tallies or tallies[name] > charged.steps:
                refuse("one unit moves a sum by more than is charged")


def _term(node: Expr) -> tuple[Expr, int]:
    """Return a value and its multiplier, 0 where that is filled in at release."""
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
    """Return whether it is ``COALESCE(CAST(key AS BIGINT) - least + 1, 0)``, where 0 stands for NULL."""
    match node:
        case Call(
            "coalesce",
            (Call("+", (Call("-", (Cast() | Ref(), first)), Literal(integer=1))), Literal(integer=0)),
        ):
            return _fixed(first)
    return False


def _fixed(node: Expr) -> bool:
    inner = node.child if isinstance(node, Cast) else node
    varied = isinstance(inner, tree.Varied) and inner.whole
    return varied or isinstance(inner, tree.Parameter) or tree.integer(inner) is not None


def _apart(values: list[int], codes: list[int], top: int | None, limits: Sequence[int]) -> None:
    """Return whether each part has bits of its own, where the text itself says which.

    Without ``top`` the unit's code is put above them all once the rows are read, which checks that nothing stands there.
    """
    end = 1
    for at, most in zip(values, limits, strict=False):
        if at != end:
            refuse("packed values that share bits")
        end <<= most.bit_length()
    if any(at < end or at & (at - 1) for at in codes):
        refuse("packed groups that share bits with values")
    if top is not None and (top < max([end, *codes]) or top & (top - 1)):
        refuse("the unit shares bits with what is packed beside it")


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
                expressions.any_of(there, self.symbols.fresh()),
                nullable=True,
                whole=all(v.whole for v in values),
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
