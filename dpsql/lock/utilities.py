"""Scores that are no plain sums: how far one row moves a tree of sums, ABS, GREATEST and LEAST, out of the text.

Of each statistic the text says how far one more row lowers and raises it (:mod:`dpsql.lock.running_sums`); that clips of
one base move less together than each alone, the operator says. Whatever it says of the tree itself is not looked at: the text
is.

The operator names pairs of statistics that have no row in common. For each the text must show it: by the conditions of
the rows that were added up, or by the same threshold in running sums of what is below it and of what is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from dpsql.lock import tree
from dpsql.lock.expressions import Env, Expressions
from dpsql.lock.facts import Kind, Relation
from dpsql.lock.running_sums import Statistics, Trail, is_public, multiple_of
from dpsql.lock.tree import (
    Call,
    Expr,
    Literal,
    Ref,
    addends,
    conjuncts,
    integer,
    named_sources,
    refuse,
    widened,
)
from dpsql.mechanisms.base import ScoresClaim

_MORE = "one unit moves a score by more than is charged"
_SHAPE = "a score of another shape"
_SETS = 4096
_EXACT = 1 << 24
"""Integers below this are exact in every numeric type."""

Step = tuple[int, int]
"""The lowest and the highest change that one more row makes to a number."""


def prove_utility(
    query: tree.Query, env: Env, leaves: Mapping[str, Relation], expressions: Expressions, claim: ScoresClaim,
    known: tree.Known,
) -> None:  # fmt: skip
    """Compare.

    Raises:
        Unproved: a score may move by more than is charged, or nothing says that it does not.
    """
    if not isinstance(query, tree.Select):
        refuse(_SHAPE)
    items = dict(query.items)
    if not {claim.column, claim.own or claim.column} <= items.keys():
        refuse("a column that the operator asks for is not there")
    found = _Utility(query, env, leaves, expressions, claim, known)
    low, high = found.move(items[claim.column])
    if max(-low, high, 1) * claim.rows > claim.most:
        refuse(_MORE)
    if claim.monotone and low < 0 < high:
        refuse("scores that move both ways are charged as if they moved one way")
    if claim.own is not None:
        found.prove_own(items[claim.own], items[claim.column], max(-low, high, 1))


@dataclass
class _Utility:
    """One score."""

    query: tree.Select
    env: Env
    leaves: Mapping[str, Relation]
    expressions: Expressions
    claim: ScoresClaim
    known: tree.Known
    places: dict[Ref, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.statistics = Statistics(self.query, self.leaves, self.expressions)

    def move(self, score: Expr) -> Step:
        """Return how far one row moves the score."""
        for ref in tree.refs(score):
            if not is_public(ref, self.leaves):
                self.places.setdefault(ref, len(self.places))
        moves = self.claim.moves or ()
        if len(self.places) != len(moves):
            refuse(_SHAPE)
        if not self.claim.clipped:
            low, high = min((a for a, _ in moves), default=0), max((b for _, b in moves), default=0)
            if any(step is None or step[0] < low or step[1] > high for step in self.expressions.steps):
                refuse(_MORE)
        if self.claim.apart:
            slices, refs = _Slices(self.query, self.leaves, self.known), list(self.places)
            for i, j in self.claim.apart:
                if not slices.exclude(refs[i], refs[j]):
                    refuse("nothing says that two statistics have no row in common")
        found = [self._step(score, kept) for kept in self._sets()]
        return min(low for low, _ in found), max(high for _, high in found)

    def _sets(self) -> Iterator[frozenset[int]]:
        """Yield the sets of statistics that one row may be in."""
        waiting, seen = [frozenset(self.places.values())], set[frozenset[int]]()
        while waiting:
            kept = waiting.pop()
            pair = next((p for p in self.claim.apart if kept.issuperset(p)), None)
            if pair is None:
                yield kept
                continue
            for gone in pair:
                if (left := kept - {gone}) not in seen:
                    seen.add(left)
                    waiting.append(left)
            if len(seen) > _SETS:
                refuse("too many statistics without common rows")

    def _step(self, node: Expr, kept: frozenset[int]) -> Step:
        node = widened(node)
        if is_public(node, self.leaves):
            return 0, 0
        match node:
            case Ref():
                return self._of(node) if self.places[node] in kept else (0, 0)
            case Call("coalesce", (Ref() as ref, Literal(integer=0))):
                return self._step(ref, kept)
            case Call("+", (a, b)):
                one, other = self._step(a, kept), self._step(b, kept)
                return one[0] + other[0], one[1] + other[1]
            case Call("abs", (inner,)):
                low, high = self._step(inner, kept)
                return -max(-low, high), max(-low, high)
            case Call("greatest" | "least", args):
                steps = [self._step(arg, kept) for arg in args]
                return min(low for low, _ in steps), max(high for _, high in steps)
            case Call("*", (factor, inner)) if is_public(factor, self.leaves):
                value = self.expressions.row(factor, self.env)
                if value.low is None or value.high is None:
                    refuse("nothing bounds what one unit moves a score by")
                ends = [f * s for f in (value.low, value.high) for s in self._step(inner, kept)]
                return min(ends), max(ends)
        refuse(_SHAPE)

    def _of(self, ref: Ref) -> Step:
        """Return how far one row moves a statistic."""
        step = self.statistics.find_step(ref)
        said = (self.claim.moves or ())[self.places[ref]]
        nearer = max(-said[0], said[1]) <= max(-step[0], step[1])
        # clips of one base move less together than each alone
        return said if self.claim.clipped and nearer else step

    def prove_own(self, node: Expr, score: Expr, most: int) -> None:
        """Prove ``LEAST(GREATEST(size, 1), most) * rows``, of the very factors of the score."""
        trail = Trail(self.query)
        held, times = multiple_of(trail.follow(node))
        if times < self.claim.rows:
            refuse(_MORE)
        match held:
            case Call("least", (Call("greatest", (size, one)), cap)):
                limit = integer(widened(cap))
                if integer(widened(one)) == 1 and limit is not None and limit >= most:
                    if not self._covers(widened(size), score, trail):
                        refuse(_MORE)
                    return
        refuse(_SHAPE)

    def _covers(self, size: Expr, node: Expr, trail: Trail) -> bool:
        """Return whether a size is at least how far one row moves a node, for each candidate by itself."""
        parts, sizes = self._summands(node), [s for s in addends(size) if integer(s) != 0]
        return len(sizes) == len(parts) and all(
            self._covers_part(widened(s), part, trail) for s, part in zip(sizes, parts, strict=True)
        )

    def _summands(self, node: Expr) -> list[Expr]:
        """Return parts that together move by as much as the node, which ABS changes nothing about."""
        node = widened(node)
        if is_public(node, self.leaves):
            return []
        match node:
            case Call("+", args) | Call("abs", args):
                return [part for arg in args for part in self._summands(arg)]
        return [node]

    def _covers_part(self, size: Expr, node: Expr, trail: Trail) -> bool:
        match node:
            case Call("greatest" | "least", args):
                sizes = size.args if isinstance(size, Call) and size.name == "greatest" else ()
                return len(sizes) == len(args) and all(
                    self._covers(s, arg, trail) for s, arg in zip(sizes, args, strict=True)
                )
            case Call("*", (factor, inner)):
                match size:
                    case Call("*", (Call("abs", (said,)), rest)) if said == trail.follow(factor):
                        ref = _statistic(inner)
                        return self._covers(rest, inner, trail) if ref is None else self._row(ref, rest)
        return False

    def _row(self, ref: Ref, size: Expr) -> bool:
        """Return whether one row moves a statistic by at most an integer."""
        low, high = self._of(ref)
        row = integer(widened(size))
        return row is not None and row >= max(-low, high)


def _statistic(node: Expr) -> Ref | None:
    match widened(node):
        case Call("coalesce", (Ref() as ref, Literal(integer=0))) | (Ref() as ref):
            return ref
    return None


# -- rows that are in one statistic only ------------------------------------------------------------------------------

_SIDES = {"<": {-1}, "<=": {-1, 0}, "=": {0}, ">=": {0, 1}, ">": {1}, "<>": {-1, 1}, "!=": {-1, 1}}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OF_RUN = {"under": "<", "upto": "<="}
_BEYOND_RUN = {"under": ">=", "upto": ">"}


class _Slices:
    """The rows behind each statistic: what holds for every row that moves it."""

    def __init__(self, query: tree.Select, leaves: Mapping[str, Relation], known: tree.Known) -> None:
        self._ctes, self._leaves, self._known = dict(query.ctes), leaves, known
        self._sources = dict(named_sources(query.source))

    def exclude(self, one: Ref, other: Ref) -> bool:
        """Return whether no row moves both of two statistics, for one candidate."""
        mine, theirs = (list(self._facts(ref)) for ref in (one, other))
        return any(self._opposed(a, b) or self._opposed(b, a) for a in mine for b in theirs)

    def _facts(self, ref: Ref) -> Iterator[Expr]:
        query = self._query(self._sources.get(ref.table))
        if query is None:
            return
        item = dict(query.items).get(ref.name)
        inside = dict(named_sources(query.source))
        match item:
            case Call("sum", (Call("case", (condition, _, Literal(integer=0))),), where=None):
                yield from (self._over(part, inside) for part in _flat(condition))
                return
        scans = list(self._scans(query, set()))
        given = [
            [self._over(part, dict(named_sources(scan.source))) for part in _flat(scan.where)]
            for scan in scans
        ]
        if given:
            yield from (part for part in given[0] if all(part in more for more in given[1:]))
        if item is not None:
            yield from self._compared(item, query, [scan for scan in scans if scan.groups])

    def _compared(self, item: Expr, query: tree.Select, scans: list[tree.Select]) -> Iterator[Expr]:
        """Yield the comparisons that running sums, or groups that are looked up, stand for."""
        if len(scans) != 1:
            return
        inside, scan = dict(named_sources(query.source)), scans[0]
        own = dict(named_sources(scan.source))
        conditions = list(_conditions(query.source))
        match item:
            case Call("sum", (Ref(table, "v"),), where=None) if self._query(inside.get(table)) is scan:
                made = dict(scan.items)
                for node in conditions:
                    match node:
                        case Call(name, (Ref(of, key), end)) if (
                            of == table and name in _SIDES and key in made
                        ):
                            yield Call(name, (self._over(made[key], own), self._over(end, inside)))
                return
        x = self._over(scan.groups[0], own)
        ends: dict[str, Expr] = {}
        for node in conditions:
            match node:
                case Call("=", (Ref(table, "t"), end)) if isinstance(inside.get(table), tree.Table):
                    ends[table] = self._over(end, inside)

        def slices(node: Expr) -> Iterator[tuple[str, Expr]]:
            match node:
                case Ref(table, name) if table in ends and name in _OF_RUN:
                    yield _OF_RUN[name], ends[table]
                case Call("-", (Ref(whole, "upto"), Ref(table, name))) if (
                    table in ends and name in _BEYOND_RUN
                ):
                    yield _BEYOND_RUN[name], ends[table]
                    yield from slices(Ref(whole, "upto")) if whole in ends else ()
                case Call("-", (Ref(upper, "under"), Ref(table, name))) if {upper, table} <= ends.keys():
                    yield "<", ends[upper]
                    yield from ((_BEYOND_RUN[name], ends[table]),) if name in _BEYOND_RUN else ()
                case Call("case", (_, inner, Literal(integer=0))):
                    yield from slices(inner)

        for name, end in slices(item):
            yield Call(name, (x, end))

    def _scans(self, query: tree.Query, seen: set[str]) -> Iterator[tree.Select]:
        """Yield the queries over private rows that a query rests on."""
        if isinstance(query, tree.Union):
            for part in query.parts:
                yield from self._scans(part, seen)
            return
        sources = dict(named_sources(query.source))
        if any(a in self._leaves and self._leaves[a].kind == Kind.PRIVATE for a in sources):
            yield query
            return
        inner = [*sources.values()]
        for _, item in query.items:
            inner += [tree.Derived(n.query, "") for n in _subqueries(item)]
        for source in inner:
            match source:
                case tree.Table((path,)) if path in self._ctes and path not in seen:
                    seen.add(path)
                    yield from self._scans(self._ctes[path], seen)
                case tree.Derived(deeper):
                    yield from self._scans(deeper, seen)

    def _query(self, source: tree.Source | None) -> tree.Select | None:
        found = self._ctes.get(source.path[0]) if isinstance(source, tree.Table) else None
        return found if isinstance(found, tree.Select) else None

    def _over(self, node: Expr, inside: Mapping[str, tree.Source]) -> Expr:
        """Return an expression with its columns under the names of the CTEs that they are of."""
        match node:
            case Ref(table, name):
                match inside.get(table):
                    case tree.Table((path,)):
                        return Ref(path, name)
                return node
            case tree.Cast():
                return replace(node, child=self._over(node.child, inside))
            case Call(where=None, order=()):
                return replace(node, args=tuple(self._over(arg, inside) for arg in node.args))
        return node

    # -- conditions ----------------------------------------------------------------------------------------------

    def _opposed(self, a: Expr, b: Expr) -> bool:
        """Return whether no row meets both conditions."""
        match a:
            case Call("not", (inner,)) if inner == b:
                return True
        one, other = _comparison(a), _comparison(b)
        if one is None or other is None or one[0] != other[0]:
            return False
        (x, op, end), (_, op2, end2) = one, other
        if end == end2:
            return not _SIDES[op] & _SIDES[op2]
        match end, end2:
            case Literal(str(text)), Literal(str(text2)):
                return op == op2 == "=" and text != text2 and self._is_text(x)
        number, number2 = integer(end), integer(end2)
        if number is None or number2 is None or not number < number2 or max(-number, number2) >= _EXACT:
            return False
        return op in ("<", "<=", "=") and op2 in (">", ">=", "=")

    def _is_text(self, node: Expr) -> bool:
        """Return whether an expression is a column of the owner's that holds texts."""
        query = self._ctes.get(node.table) if isinstance(node, Ref) else None
        while isinstance(query, tree.Select) and isinstance(node, Ref):
            made = dict(query.items).get(node.name)
            source = dict(named_sources(query.source)).get(made.table) if isinstance(made, Ref) else None
            if made is None or source is None:
                return False
            node, query = made, None
            if isinstance(source, tree.Derived):
                query = source.query
            elif isinstance(source, tree.Table):
                base = self._known.tables.get(source.path)
                if base is not None and isinstance(made, Ref):
                    return base.columns.get(made.name) == "VARCHAR"
                query = self._ctes.get(source.path[0])
        return False


def _comparison(node: Expr) -> tuple[Expr, str, Expr] | None:
    match node:
        case Call(name, (x, end)) if name in _SIDES:
            if isinstance(x, Literal):
                return end, _TURNED.get(name, name), x
            return x, name, end
    return None


def _flat(node: Expr | None) -> Iterator[Expr]:
    """Yield the conditions that must all hold, ranges as their two ends."""
    for part in conjuncts(node):
        match part:
            case Call("between", (x, low, high)):
                yield Call(">=", (x, low))
                yield Call("<=", (x, high))
            case _:
                yield part


def _conditions(source: tree.Source | None) -> Iterator[Expr]:
    if isinstance(source, tree.Join):
        yield from conjuncts(source.on)
        yield from _conditions(source.left)
        yield from _conditions(source.right)


def _subqueries(node: Expr) -> Iterator[tree.Subquery]:
    if isinstance(node, tree.Subquery):
        yield node
    for part in tree.parts(node):
        yield from _subqueries(part)
