"""Scores of public candidates: how far one unit moves each, derived from the text and the operator's public factors.

A score is a public number plus statistics of private rows, each times a public factor; or a tree of ABS, GREATEST and LEAST over
such statistics. The text itself bounds the factors and says how far one row moves a statistic. The operator's claim is used
only for clips of one base, which together move less than each alone.

A sum per group, or per candidate, bounds its own movement. Other statistics are looked up among groups or come from running
sums of them. They are accepted in a few forms only: anything else between a sum and a score is refused.

Running sums take four queries: ``x``, the groups of a number; ``b``, each group in the bin of the last threshold that it
reaches, with groups equal to the threshold apart; ``s``, the bins of each threshold; and ``at``, the sums ``under`` and
``upto`` each threshold.

The operator may claim that two statistics have no row in common. The text must show it: by the conditions on the rows that were
added up, or by one threshold in running sums of the values below it and of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from dpsql.lock import tree
from dpsql.lock.expressions import Env, Expressions
from dpsql.lock.facts import Kind, Relation
from dpsql.lock.tree import Call, Cast, Expr, Literal, Ref, Window, conjuncts, integer, refuse
from dpsql.mechanisms.base import ScoresClaim

Step = tuple[int, int]
"""The lowest and the highest change that one more row causes in a number."""

_UNBOUNDED = "nothing bounds what one unit moves a score by"
_MORE = "one unit moves a score by more than is charged"
_SHAPE = "a score of another shape"
_WIDER = ("HUGEINT", "BIGINT", "DECIMAL")
_SETS = 4096
"""Sets of statistics that one row may be in."""
_EXACT = 1 << 24
"""Integers below this are exact in every numeric type."""


def prove_scores(
    query: tree.Query,
    env: Env,
    leaves: Mapping[str, Relation],
    expressions: Expressions,
    claim: ScoresClaim,
    known: tree.Known,
) -> None:
    """Compare the movement of scores with a claim.

    Args:
        env: its outermost scope.
        leaves: every relation of a FROM by its alias.
    """
    if not isinstance(query, tree.Select):
        refuse(_SHAPE)
    items = dict(query.items)
    if not {claim.column, claim.own or claim.column} <= items.keys():
        refuse("a column that the operator asks for is not there")
    utility, score = _Utility(query, env, leaves, expressions, claim, known), items[claim.column]
    low, high = utility.move(score)
    most = max(-low, high, 1)
    if most * claim.rows > claim.most:
        refuse(_MORE)
    if claim.monotone and low < 0 < high:
        refuse("scores that move both ways are charged as one-way")
    if claim.own is not None:
        utility.prove_own(items[claim.own], score, most)


@dataclass(frozen=True)
class _Prefix:
    """One column of running sums.

    Args:
        at: its relation.
        groups: the query of the groups.
        alias: their alias in the FROM of the bins.
        key: their column that is compared with thresholds; None if it is cast.
        column: the column that is added up.
        equals: whether a threshold's sum includes values equal to it.
    """

    at: tuple[str, ...]
    groups: tree.Select
    alias: str
    key: str | None
    column: str
    equals: bool


class Statistics:
    """The statistics of one query of candidates; arguments as in :func:`prove_scores`."""

    def __init__(self, query: tree.Select, leaves: Mapping[str, Relation], expressions: Expressions) -> None:
        self._ctes, self._leaves, self._expressions = dict(query.ctes), leaves, expressions
        self._query, self._sources = query, dict(tree.named_sources(query.source))
        self._check_above()

    def _check_above(self) -> None:
        """Refuse conditions on scores that depend on private sums."""
        if not _plain(self._query) or self._query.groups:
            refuse(_UNBOUNDED)
        for node in [*_conditions(self._query.source), *conjuncts(self._query.where)]:
            for ref in tree.refs(node):
                if not self._is_public(ref.table) and not self._all_public(
                    _item(self._select(self._sources.get(ref.table)), ref.name)
                ):
                    refuse("a condition on what was added up")
            if tree.looks_beyond(node):
                refuse("a condition on what was added up")

    def find_step(self, ref: Ref) -> Step:
        """Return how far one row lowers and raises a statistic, or refuse it."""
        known = self._known(ref)
        return self._step(ref) if known is None else known

    def _known(self, ref: Ref) -> Step | None:
        """Return the step of a plain sum over rows; None for other statistics."""
        relation = self._leaves.get(ref.table)
        value = None if relation is None else relation.columns.get(ref)
        if value is None or value.halved:
            return None
        return value.step if value.weight is None or value.step is not None else (-value.weight, value.weight)

    def _step(self, ref: Ref) -> Step:
        query = self._select(self._sources.get(ref.table))
        item, sources = _item(query, ref.name), dict(tree.named_sources(query.source))
        conditions = [*_conditions(query.source), *conjuncts(query.where)]
        if query.groups:
            return self._looked_up(query, item, sources, conditions)
        ends = {}
        for node in conditions:
            match node:
                case Call("=", (Ref(table, "t"), end)) | Call("=", (end, Ref(table, "t"))) if (
                    table not in ends and self._all_public(end) and self._is_by_threshold(sources.get(table))
                ):
                    ends[table] = end
                case _ if not self._all_public(node):
                    refuse("a condition on what was added up")
        return self._running(item, sources, ends)

    # -- forms -------------------------------------------------------------------------------------------------------

    def _looked_up(
        self, query: tree.Select, item: Expr, sources: Mapping[str, tree.Source], conditions: list[Expr]
    ) -> Step:
        """Read a candidate's sum over the groups that match it."""
        match item, [alias for alias in sources if not self._is_public(alias)]:
            case Call("sum", (Ref(table) as added,), False, None), [one] if one == table:
                step = self._known(added)
            case _:
                return refuse(_UNBOUNDED)
        by = {self._symbol(node) for node in query.groups}
        others = [self._leaves[alias] for alias in sources if alias != table]
        once = all(any(unique <= by for unique in other.unique) for other in others)
        looked = [ref for node in conditions for ref in tree.refs(node) if ref.table == table]
        keyed = looked and all(self._symbol(ref) in self._identity(table) for ref in looked)
        if step is None or not (once and keyed):
            refuse(_UNBOUNDED)
        return min(step[0], 0), max(step[1], 0)

    def _running(self, item: Expr, sources: Mapping[str, tree.Source], ends: Mapping[str, Expr]) -> Step:
        match item:
            case Call("case", (condition, inner, Literal(integer=0))) if self._all_public(condition):
                return self._between(inner, sources, ends, conjuncts(condition))
            case Call("-", _) | Ref() as inner:
                return self._between(inner, sources, ends, [])
            case Call("+", (Ref(table, "upto"), Call("*", (clip, rest)))) if (
                table in ends and clip == _stripped(ends[table])
            ):
                return self._clipped(table, ends[table], rest, sources)
        return refuse(_UNBOUNDED)

    def _between(
        self, node: Expr, sources: Mapping[str, tree.Source], ends: Mapping[str, Expr], ordered: list[Expr]
    ) -> Step:
        """Read a running sum, the total minus a running sum, or the difference of two."""
        match node:
            case Ref(table, name) if table in ends:
                return self._prefix_step(self._prefix(sources[table], name))
            case Call("-", (Ref(upper, high), Ref(lower, low))) if lower in ends and upper in ends:
                above, below = self._prefix(sources[upper], high), self._prefix(sources[lower], low)
                first, last = self._prefix_step(above)
                if replace(above, equals=below.equals) != below:
                    refuse(_UNBOUNDED)
                pair = _stripped(ends[lower]), _stripped(ends[upper])
                if Call("<", pair) in ordered or (
                    Call("<=", pair) in ordered and (above.equals or not below.equals)
                ):
                    return first, last
                return min(first, -last), max(last, -first)
            case Call("-", (Ref(whole) as total, Ref(lower, low))) if lower in ends and whole in sources:
                below = self._prefix(sources[lower], low)
                all_rows, groups = self._select(sources[whole]), below.groups
                same = (
                    _over(_item(all_rows, total.name), all_rows) == _over(_item(groups, below.column), groups)
                    and _scan(all_rows) == _scan(groups)
                    and _conditions_over(all_rows, None) == _conditions_over(groups, None)
                )
                if same and not all_rows.groups:
                    return self._prefix_step(below)
        return refuse(_UNBOUNDED)

    def _clipped(self, at: str, clip: Expr, rest: Expr, sources: Mapping[str, tree.Source]) -> Step:
        """Read a clipped sum: the sum of values up to a clip, plus the clip for each row above it."""
        match rest:
            case Call("-", (Ref(whole) as total, Ref(table, name))) if table == at and whole in sources:
                below, counted = self._prefix(sources[at], "upto"), self._prefix(sources[at], name)
                all_rows, groups = self._select(sources[whole]), below.groups
            case _:
                refuse(_UNBOUNDED)
        match _item(all_rows, total.name), _item(groups, below.column), _item(groups, counted.column):
            case (
                Call("count", (counts,), False, None),
                Call("sum", (adds,), False, None),
                Call("count_star", (), where=None),
            ):
                amount = _over(adds, groups)
                one = amount == _over(counts, all_rows) and [
                    _over(node, groups) for node in groups.groups
                ] == [amount]
            case _:
                refuse(_UNBOUNDED)
        # A row with an amount is counted in both, and no other row in either.
        there, everywhere = _conditions_over(groups, amount), _conditions_over(all_rows, amount)
        given = len(there) < len(_conditions_over(groups, None)) and there == everywhere
        same = (
            replace(counted, column=below.column) == below
            and below.equals
            and _scan(all_rows) == _scan(groups)
        )
        if not (one and given and same) or all_rows.groups:
            refuse(_UNBOUNDED)
        # The bins must compare the added number itself.
        key = next((name for name, node in groups.items if node == groups.groups[0]), None)
        if key is None or key != below.key:
            refuse(_UNBOUNDED)
        value = self._leaves[below.alias].columns.get(Ref(below.alias, key))
        leaves = [self._leaves[alias] for alias in sources if self._is_public(alias)]
        public = {ref: column for leaf in leaves for ref, column in leaf.columns.items()}
        limit = self._expressions.row(clip, Env(Relation(Kind.PUBLIC, public)))
        if value is None or value.low is None or limit.low is None or limit.high is None:
            refuse(_UNBOUNDED)
        return min(0, value.low, limit.low), max(0, limit.high)

    # -- running sums ------------------------------------------------------------------------------------------------

    def _prefix_step(self, prefix: _Prefix) -> Step:
        step = self._known(Ref(prefix.alias, prefix.column))
        if step is None or not self._identity(prefix.alias):
            refuse(_UNBOUNDED)
        return min(step[0], 0), max(step[1], 0)

    def _prefix(self, source: tree.Source, name: str) -> _Prefix:
        """Read a column of ``at``: the sum of values below all thresholds, and of the bins before (or up to) this one."""
        at = self._select(source)
        terms = tree.addends(_item(at, name))
        match at.source, terms:
            case tree.Table(_, alias) as bins, [first, before, *own] if len(own) < 2 and isinstance(
                source, tree.Table
            ):
                pass
            case _:
                refuse(_UNBOUNDED)
        match before:
            case Window("sum", (Call("+", (Ref() as here, Ref() as after)),), (), (ordered,), "UNBOUNDED_PRECEDING",
                        "EXPR_PRECEDING_ROWS", (_, Literal(integer=1)), None, True) if (
                ordered.by == Ref(alias, "t") and "DESC" not in ordered.how.upper()
                and own in ([], [here]) and {here.table, after.table} == {alias} and at.where is None
            ):  # fmt: skip
                pass
            case _:
                refuse(_UNBOUNDED)
        binned, column = self._bins(self._select(bins), here.name, after.name)
        match first:
            case tree.Subquery(
                "SCALAR", tree.Select(((_, total),), tree.Table(path, far) as rest) as lowest, None
            ) if path == binned.path and lowest.where == Call("is null", (Ref(far, "t"),)):
                if not lowest.groups and _plain(lowest) and _adds(_stripped(total), Ref(far, column)):
                    return self._groups(self._select(rest), source.path, column, bool(own))
        return refuse(_UNBOUNDED)

    def _bins(self, query: tree.Select, own: str, after: str) -> tuple[tree.Table, str]:
        """Read ``s``: for each threshold, the sum of values equal to it, and of those above it."""
        match query.source, query.groups:
            case (
                tree.Join(
                    tree.Table(_, mine), tree.Table(_, bins) as table, "LEFT", Call("=", sides), asof=False
                ),
                (Ref(of, "t") as place,),
            ) if of == mine and set(sides) == {place, Ref(bins, "t")} and query.where is None:
                pass
            case _:
                refuse(_UNBOUNDED)
        public, edge = self._leaves[mine], Ref(bins, "edge")
        once = any(unique <= {self._symbol(place)} for unique in public.unique)
        if public.kind == Kind.PUBLIC and once and _item(query, "t") == place:
            match _item(query, own), _item(query, after):
                case Call("sum", (Ref() as added,), False, at), Call(
                    "sum", (other,), False, Call("not", (above,))
                ):
                    if added == other and at == above == edge and added.table == bins:
                        return table, added.name
        return refuse(_UNBOUNDED)

    def _is_by_threshold(self, source: tree.Source | None) -> bool:
        """Return whether a relation has one row for each public threshold ``t``."""
        if not isinstance(source, tree.Table) or source.path[0] not in self._ctes:
            return False
        at = self._select(source)
        if not isinstance(at.source, tree.Table) or at.groups or at.where is not None:
            return False
        sums, place = self._select(at.source), Ref(at.source.alias, "t")
        return (
            _item(at, "t") == place
            and sums.groups == (_item(sums, "t"),)
            and self._all_public(_item(sums, "t"))
        )

    def _groups(self, query: tree.Select, at: tuple[str, ...], column: str, equals: bool) -> _Prefix:
        """Read ``b``, which puts each group in one bin."""
        match query.source:
            case tree.Join(
                tree.Table(_, alias) as given, tree.Table() | tree.Derived() as bins, "LEFT", on, asof=True
            ):
                ends, edge, place = bins.alias, _item(query, "edge"), _item(query, "t")
            case _:
                refuse(_UNBOUNDED)
        looked = [
            ref for node in (on, edge) if node is not None for ref in tree.refs(node) if ref.table == alias
        ]
        keyed = all(self._symbol(ref) in self._identity(alias) for ref in looked)
        groups = (
            len(query.groups) == 2
            and place == Ref(ends, "t")
            and {repr(_stripped(node)) for node in query.groups} == {repr(place), repr(edge)}
        )
        match _item(query, column):
            case Call("sum", (Ref(table, name),), False, None) if table == alias and (
                keyed and groups and query.where is None and self._is_public(ends)
            ):
                return _Prefix(at, self._select(given), alias, _compared(on, edge, ends), name, equals)
        return refuse(_UNBOUNDED)

    # -- trees -------------------------------------------------------------------------------------------------------

    def _select(self, source: tree.Source | None) -> tree.Select:
        """Return the query of a CTE in FROM, which must not choose rows."""
        found = self._ctes.get(source.path[0]) if isinstance(source, tree.Table) else None
        if not isinstance(found, tree.Select) or not _plain(found):
            refuse(_UNBOUNDED)
        return found

    def _is_public(self, alias: str) -> bool:
        return alias in self._leaves and self._leaves[alias].kind == Kind.PUBLIC

    def _all_public(self, node: Expr) -> bool:
        return is_public(node, self._leaves)

    def _identity(self, alias: str) -> frozenset[object]:
        """Return the group keys if each of their values has one row; empty if that is unknown."""
        relation = self._leaves[alias]
        if relation.kind == Kind.CELLS:
            return frozenset(relation.key) if relation.single else frozenset()
        return frozenset().union(*relation.unique) if len(relation.unique) == 1 else frozenset()

    def _symbol(self, node: Expr) -> object:
        if not isinstance(node, Ref) or node.table not in self._leaves:
            return None
        value = self._leaves[node.table].columns.get(node)
        return None if value is None else value.symbol


def _plain(query: tree.Select) -> bool:
    """Return whether a query has neither DISTINCT, QUALIFY, HAVING nor LIMIT."""
    return not query.distinct and all(x is None for x in (query.qualify, query.having, query.limit))


def _item(query: tree.Select, name: str) -> Expr:
    """Return a column's expression without widening casts."""
    node = dict(query.items).get(name)
    return refuse(_UNBOUNDED) if node is None else _stripped(node)


def _stripped(node: Expr) -> Expr:
    while isinstance(node, Cast) and not node.attempt and node.type in _WIDER:
        node = node.child
    match node:
        case Call():
            where = None if node.where is None else _stripped(node.where)
            node = replace(node, args=tuple(map(_stripped, node.args)), where=where)
            match node:
                case Call("coalesce", (inner, Literal(integer=0))) if isinstance(inner, Window | Call):
                    return inner  # the sum of no rows
        case Window():
            return replace(node, args=tuple(map(_stripped, node.args)))
    return node


def _compared(on: Expr | None, edge: Expr, ends: str) -> str | None:
    """Return the column that bins compare with thresholds; None if it is cast."""
    match conjuncts(on), edge:
        case [Call(">=", (Ref(_, key) as mine, Ref(table, "t")))], Call("=", (other, Ref(place, "t"))) if (
            table == place == ends and mine == other
        ):
            return key
    return None


def _adds(node: Expr, column: Ref) -> bool:
    """Return whether an expression is the sum of a column and nothing else."""
    match node:
        case Call("sum", (one,), False, None):
            return one == column
    return False


def _over(node: Expr, query: tree.Select) -> str:
    """Return an expression over a FROM's only relation as a complete text without the alias."""
    if not isinstance(query.source, tree.Table):
        refuse(_UNBOUNDED)
    return repr(_stripped(node)).replace(f"Ref(table={query.source.alias!r},", "Ref(table='',")


def _conditions_over(query: tree.Select, present: str | None) -> list[str]:
    """Return the conditions of a WHERE, except that this expression is not NULL."""
    nodes = [node for node in conjuncts(query.where) if node != Literal(True)]
    inner = [(node, tree.present(node)) for node in nodes]
    return sorted(_over(node, query) for node, of in inner if of is None or _over(of, query) != present)


def _scan(query: tree.Select) -> tuple[str, ...]:
    """Return the only relation that a query reads."""
    return query.source.path if isinstance(query.source, tree.Table) else refuse(_UNBOUNDED)


def _conditions(source: tree.Source | None) -> Iterator[Expr]:
    if isinstance(source, tree.Join):
        yield from conjuncts(source.on)
        yield from _conditions(source.left)
        yield from _conditions(source.right)


def is_public(node: Expr, leaves: Mapping[str, Relation]) -> bool:
    """Return whether an expression reads only public relations."""
    if tree.has(node, lambda n: isinstance(n, tree.Subquery | tree.Window | tree.Parameter | tree.Varied)):
        return False
    return all(ref.table in leaves and leaves[ref.table].kind == Kind.PUBLIC for ref in tree.refs(node))


def multiple_of(node: Expr) -> tuple[Expr, int]:
    """Return the factors of an expression times an integer."""
    match tree.widened(node):
        case Call("*", (inner, times)) if (found := integer(tree.widened(times))) is not None:
            return tree.widened(inner), found
    refuse(_SHAPE)


class Trail:
    """Traces expressions back to the passed relation of candidates."""

    def __init__(self, select: tree.Select) -> None:
        self._queries = dict(select.ctes)
        self._sources = dict(tree.named_sources(select.source))
        for _, query in select.ctes:
            self._gather(query)

    def _gather(self, query: tree.Query) -> None:
        if isinstance(query, tree.Select):
            for alias, source in tree.named_sources(query.source):
                self._sources[alias] = source
                if isinstance(source, tree.Derived):
                    self._gather(source.query)

    def follow(self, node: Expr) -> Expr:
        """Return the expression with each column replaced by its definition over the passed relation."""
        match node:
            case Ref(table, name):
                query: tree.Query | None = None
                match self._sources.get(table):
                    case tree.Table((path,)):
                        query = self._queries.get(path)
                        if query is None:
                            return Ref(path, name)
                    case tree.Derived(inner):
                        query = inner
                if not isinstance(query, tree.Select) or query.groups:
                    refuse(_SHAPE)
                return self.follow(dict(query.items).get(name) or refuse(_SHAPE))
            case Cast():
                return replace(node, child=self.follow(node.child))
            case Call(where=None, order=()):
                return replace(node, args=tuple(map(self.follow, node.args)))
        return node if isinstance(node, Literal) else refuse(_SHAPE)


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
        moves = self.claim.moves
        if moves is not None and len(self.places) != len(moves):
            refuse(_SHAPE)
        if moves is not None and not self.claim.clipped:
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
        node = tree.widened(node)
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
                    refuse(_UNBOUNDED)
                ends = [f * s for f in (value.low, value.high) for s in self._step(inner, kept)]
                return min(ends), max(ends)
            case Call("*", _):
                refuse("a factor that is not public")
        refuse(_SHAPE)

    def _of(self, ref: Ref) -> Step:
        """Return how far one row moves a statistic."""
        step = self.statistics.find_step(ref)
        if self.claim.moves is None or not self.claim.clipped:
            return step
        said = self.claim.moves[self.places[ref]]
        # together, clips of one base move less than each alone
        return said if max(-said[0], said[1]) <= max(-step[0], step[1]) else step

    def prove_own(self, node: Expr, score: Expr, most: int) -> None:
        """Prove ``GREATEST(size, 1) * rows``, also limited to ``most``, with the score's own factors."""
        trail = Trail(self.query)
        inner, times = multiple_of(trail.follow(node))
        if times < self.claim.rows:
            refuse(_MORE)
        match inner:
            case Call("least", (limited, cap)):
                limit, inner = integer(tree.widened(cap)), limited
                if limit is None or limit < most:
                    refuse(_SHAPE)
        match inner:
            case Call("greatest", (size, one)) if integer(tree.widened(one)) == 1:
                if not self._covers(tree.widened(size), score, trail):
                    refuse(_MORE)
            case _:
                refuse(_SHAPE)

    def _covers(self, size: Expr, node: Expr, trail: Trail) -> bool:
        """Return whether, for each candidate, a size is at least how far one row moves a node."""
        parts, sizes = self._summands(node), [s for s in tree.addends(size) if integer(s) != 0]
        return len(sizes) == len(parts) and all(
            self._covers_part(tree.widened(s), part, trail) for s, part in zip(sizes, parts, strict=True)
        )

    def _summands(self, node: Expr) -> list[Expr]:
        """Return the private terms of a sum, also inside ABS, which moves no further than its argument."""
        node = tree.widened(node)
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
                        ref, row = _statistic(inner), integer(tree.widened(rest))
                        if ref is None:
                            return self._covers(rest, inner, trail)
                        low, high = self._of(ref)
                        return row is not None and row >= max(-low, high)
        return False


def _statistic(node: Expr) -> Ref | None:
    match tree.widened(node):
        case Call("coalesce", (Ref() as ref, Literal(integer=0))) | (Ref() as ref):
            return ref
    return None


# -- statistics without common rows -----------------------------------------------------------------------------------

_SIDES = {"<": {-1}, "<=": {-1, 0}, "=": {0}, ">=": {0, 1}, ">": {1}, "<>": {-1, 1}, "!=": {-1, 1}}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OF_RUN = {"under": "<", "upto": "<="}
_BEYOND_RUN = {"under": ">=", "upto": ">"}


class _Slices:
    """The conditions that hold for every row that moves a statistic."""

    def __init__(self, query: tree.Select, leaves: Mapping[str, Relation], known: tree.Known) -> None:
        self._ctes, self._leaves, self._known = dict(query.ctes), leaves, known
        self._sources = dict(tree.named_sources(query.source))

    def exclude(self, one: Ref, other: Ref) -> bool:
        """Return whether no row moves both statistics of one candidate."""
        mine, theirs = (list(self._facts(ref)) for ref in (one, other))
        return any(self._opposed(a, b) or self._opposed(b, a) for a in mine for b in theirs)

    def _facts(self, ref: Ref) -> Iterator[Expr]:
        query = self._query(self._sources.get(ref.table))
        if query is None:
            return
        item = dict(query.items).get(ref.name)
        inside = dict(tree.named_sources(query.source))
        match item:
            case Call("sum", (Call("case", (condition, _, Literal(integer=0))),), where=None):
                yield from (self._over(part, inside) for part in _flat(condition))
                return
        scans = list(self._scans(query, set()))
        given = [
            [self._over(part, dict(tree.named_sources(scan.source))) for part in _flat(scan.where)]
            for scan in scans
        ]
        if given:
            yield from (part for part in given[0] if all(part in more for more in given[1:]))
        if item is not None:
            yield from self._compared(item, query, [scan for scan in scans if scan.groups])

    def _compared(self, item: Expr, query: tree.Select, scans: list[tree.Select]) -> Iterator[Expr]:
        """Yield the comparisons that running sums, or matched groups, imply."""
        if len(scans) != 1:
            return
        inside, scan = dict(tree.named_sources(query.source)), scans[0]
        own = dict(tree.named_sources(scan.source))
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
        """Yield the queries over private rows that a query reads."""
        if isinstance(query, tree.Union):
            for part in query.parts:
                yield from self._scans(part, seen)
            return
        sources = dict(tree.named_sources(query.source))
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
        """Return an expression with its columns qualified by their CTEs' names."""
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
        """Return whether an expression is a VARCHAR column of a policy's table."""
        query = self._ctes.get(node.table) if isinstance(node, Ref) else None
        while isinstance(query, tree.Select) and isinstance(node, Ref):
            made = dict(query.items).get(node.name)
            source = dict(tree.named_sources(query.source)).get(made.table) if isinstance(made, Ref) else None
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
    """Yield the conditions that AND connects, with BETWEEN split into its two comparisons."""
    for part in conjuncts(node):
        match part:
            case Call("between", (x, low, high)):
                yield Call(">=", (x, low))
                yield Call("<=", (x, high))
            case _:
                yield part


def _subqueries(node: Expr) -> Iterator[tree.Subquery]:
    if isinstance(node, tree.Subquery):
        yield node
    for part in tree.parts(node):
        yield from _subqueries(part)
