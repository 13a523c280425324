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

It stands apart from the check, which reads texts of every kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from dpsql.late_dataclass import dataclass
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
_PRIVATE_CONDITION = "a condition on what was added up"
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
    """Compare the movement of scores with a claim; ``env``: the outermost scope; ``leaves``: relations by alias."""
    if not isinstance(query, tree.Select):
        refuse(_SHAPE)
    items = dict(query.items)
    if not {claim.column, claim.own or claim.column} <= items.keys():
        refuse("a column that the operator asks for is not there")
    prover, score = _Prover(query, env, leaves, expressions, claim, known), items[claim.column]
    low, high = prover.move(score)
    most = max(-low, high, 1)
    if most * claim.rows > claim.most:
        refuse(_MORE)
    if claim.monotone and low < 0 < high:
        refuse("scores that move both ways are charged as one-way")
    if claim.own is not None:
        prover.prove_own(items[claim.own], score, most)


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


@dataclass
class _Prover:
    """The scores of one query; the arguments are those of :func:`prove_scores`."""

    query: tree.Select
    env: Env
    leaves: Mapping[str, Relation]
    expressions: Expressions
    claim: ScoresClaim
    known: tree.Known
    places: dict[Ref, int] = field(default_factory=dict)
    """The statistics of the score, numbered."""

    def __post_init__(self) -> None:
        self._ctes, self._sources = dict(self.query.ctes), dict(tree.named_sources(self.query.source))
        if not _plain(self.query) or self.query.groups:
            refuse(_UNBOUNDED)
        for node in _all_conditions(self.query):
            if tree.looks_beyond(node):
                refuse(_PRIVATE_CONDITION)
            for ref in tree.refs(node):
                if not self._is_public(ref):
                    item = _item(self._select(self._sources.get(ref.table)), ref.name)
                    if not self._is_public(item):
                        refuse(_PRIVATE_CONDITION)

    # -- scores ------------------------------------------------------------------------------------------------------

    def move(self, score: Expr) -> Step:
        """Return how far one row moves the score."""
        for ref in tree.refs(score):
            if not self._is_public(ref):
                self.places.setdefault(ref, len(self.places))
        moves = self.claim.moves
        if moves is not None and len(self.places) != len(moves):
            refuse(_SHAPE)
        if moves is not None and not self.claim.clipped:
            low, high = min((a for a, _ in moves), default=0), max((b for _, b in moves), default=0)
            if any(step is None or step[0] < low or step[1] > high for step in self.expressions.steps):
                refuse(_MORE)
        refs = list(self.places)
        for i, j in self.claim.apart:
            if not self._exclude(refs[i], refs[j]):
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
        if self._is_public(node):
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
            case Call("*", (factor, inner)) if self._is_public(factor):
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
        step = self._added(ref) or self._read_statistic(ref)
        if self.claim.moves is None or not self.claim.clipped:
            return step
        said = self.claim.moves[self.places[ref]]
        # together, clips of one base move less than each alone
        return said if max(-said[0], said[1]) <= max(-step[0], step[1]) else step

    # -- statistics --------------------------------------------------------------------------------------------------

    def _added(self, ref: Ref) -> Step | None:
        """Return the step of a plain sum over rows; None for other statistics."""
        relation = self.leaves.get(ref.table)
        value = None if relation is None else relation.columns.get(ref)
        if value is None or value.halved:
            return None
        return value.step if value.weight is None or value.step is not None else (-value.weight, value.weight)

    def _read_statistic(self, ref: Ref) -> Step:
        query = self._select(self._sources.get(ref.table))
        item, sources = _item(query, ref.name), dict(tree.named_sources(query.source))
        conditions = list(_all_conditions(query))
        if query.groups:
            return self._looked_up(query, item, sources, conditions)
        ends = {}
        for node in conditions:
            match node:
                case Call("=", (Ref(table, "t"), end)) | Call("=", (end, Ref(table, "t"))) if (
                    table not in ends and self._is_public(end) and self._is_by_threshold(sources.get(table))
                ):
                    ends[table] = end
                case _ if not self._is_public(node):
                    refuse(_PRIVATE_CONDITION)
        return self._running(item, sources, ends)

    def _looked_up(
        self, query: tree.Select, item: Expr, sources: Mapping[str, tree.Source], conditions: list[Expr]
    ) -> Step:
        """Read a candidate's sum over the groups that match it."""
        match item, [alias for alias in sources if not self._of_public(alias)]:
            case Call("sum", (Ref(table) as added,), False, None), [one] if one == table:
                step = self._added(added)
            case _:
                refuse(_UNBOUNDED)
        by = {self._symbol(node) for node in query.groups}
        others = [self.leaves[alias] for alias in sources if alias != table]
        once = all(any(unique <= by for unique in other.unique) for other in others)
        if step is None or not (once and self._is_keyed(conditions, table, some=True)):
            refuse(_UNBOUNDED)
        return _with_none(step)

    def _running(self, item: Expr, sources: Mapping[str, tree.Source], ends: Mapping[str, Expr]) -> Step:
        match item:
            case Call("case", (condition, inner, Literal(integer=0))) if self._is_public(condition):
                return self._between(inner, sources, ends, conjuncts(condition))
            case Call("-", _) | Ref() as inner:
                return self._between(inner, sources, ends, [])
            case Call("+", (Ref(table, "upto"), Call("*", (clip, rest)))) if (
                table in ends and clip == _stripped(ends[table])
            ):
                return self._clipped(table, ends[table], rest, sources)
        refuse(_UNBOUNDED)

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
                rows, groups = self._select(sources[whole]), below.groups
                same = (
                    _over(_item(rows, total.name), rows) == _over(_item(groups, below.column), groups)
                    and _scan(rows) == _scan(groups)
                    and _conditions_over(rows) == _conditions_over(groups)
                )
                if same and not rows.groups:
                    return self._prefix_step(below)
        refuse(_UNBOUNDED)

    def _clipped(self, at: str, clip: Expr, rest: Expr, sources: Mapping[str, tree.Source]) -> Step:
        """Read a clipped sum: the sum of values up to a clip, plus the clip for each row above it."""
        match rest:
            case Call("-", (Ref(whole) as total, Ref(table, name))) if table == at and whole in sources:
                below, counted = self._prefix(sources[at], "upto"), self._prefix(sources[at], name)
                rows, groups = self._select(sources[whole]), below.groups
            case _:
                refuse(_UNBOUNDED)
        match _item(rows, total.name), _item(groups, below.column), _item(groups, counted.column):
            case (
                Call("count", (counts,), False, None),
                Call("sum", (adds,), False, None),
                Call("count_star", (), where=None),
            ):
                amount = _over(adds, groups)
                one = amount == _over(counts, rows) and [_over(n, groups) for n in groups.groups] == [amount]
            case _:
                refuse(_UNBOUNDED)
        # A row with an amount is counted in both, and no other row in either.
        there = _conditions_over(groups, amount)
        given = len(there) < len(_conditions_over(groups)) and there == _conditions_over(rows, amount)
        same = (
            replace(counted, column=below.column) == below and below.equals and _scan(rows) == _scan(groups)
        )
        # The bins must compare the added number itself.
        key = next((name for name, node in groups.items if node == groups.groups[0]), None) if one else None
        if not (given and same) or rows.groups or key is None or key != below.key:
            refuse(_UNBOUNDED)
        value = self.leaves[below.alias].columns.get(Ref(below.alias, key))
        leaves = [self.leaves[alias] for alias in sources if self._of_public(alias)]
        public = {ref: column for leaf in leaves for ref, column in leaf.columns.items()}
        limit = self.expressions.row(clip, Env(Relation(Kind.PUBLIC, public)))
        if value is None or value.low is None or limit.low is None or limit.high is None:
            refuse(_UNBOUNDED)
        return min(0, value.low, limit.low), max(0, limit.high)

    # -- running sums ------------------------------------------------------------------------------------------------

    def _prefix_step(self, prefix: _Prefix) -> Step:
        step = self._added(Ref(prefix.alias, prefix.column))
        if step is None or not self._identity(prefix.alias):
            refuse(_UNBOUNDED)
        return _with_none(step)

    def _prefix(self, source: tree.Source, name: str) -> _Prefix:
        """Read a column of ``at``: the sum of values below all thresholds, and of the bins before (or up to) this one."""
        at = self._select(source)
        match source, at.source, tree.addends(_item(at, name)):
            case (
                tree.Table(path),
                tree.Table(_, alias) as bins,
                [
                    tree.Subquery("SCALAR", tree.Select(((_, total),), tree.Table(binned, far) as rest) as lowest, None),
                    Window(
                        "sum", (Call("+", (Ref() as here, Ref() as after)),), (), (ordered,), "UNBOUNDED_PRECEDING",
                        "EXPR_PRECEDING_ROWS", (_, Literal(integer=1)), None, True,
                    ),
                    *own,
                ],
            ) if (
                ordered.by == Ref(alias, "t") and "DESC" not in ordered.how.upper()
                and own in ([], [here]) and {here.table, after.table} == {alias} and at.where is None
                and lowest.where == Call("is null", (Ref(far, "t"),)) and not lowest.groups and _plain(lowest)
            ):  # fmt: skip
                there, column = self._bins(self._select(bins), here.name, after.name)
                match _stripped(total):
                    case Call("sum", (one,), False, None) if one == Ref(far, column) and binned == there:
                        return self._groups(self._select(rest), path, column, bool(own))
        refuse(_UNBOUNDED)

    def _bins(self, query: tree.Select, own: str, after: str) -> tuple[tuple[str, ...], str]:
        """Read ``s``: for each threshold, the sum of values equal to it, and of those above it."""
        match query.source, query.groups, _item(query, own), _item(query, after):
            case (
                tree.Join(tree.Table(_, mine), tree.Table(path, bins), "LEFT", Call("=", sides), asof=False),
                (Ref(of, "t") as place,),
                Call("sum", (Ref() as added,), False, at),
                Call("sum", (other,), False, Call("not", (above,))),
            ) if of == mine and query.where is None:
                public, edge, met = self.leaves[mine], Ref(bins, "edge"), Ref(bins, "t")
                once = any(unique <= {self._symbol(place)} for unique in public.unique)
                keyed = public.kind == Kind.PUBLIC and once and _item(query, "t") == place
                joined = sides in ((place, met), (met, place))
                if keyed and joined and added == other and at == above == edge and added.table == bins:
                    return path, added.name
        refuse(_UNBOUNDED)

    def _is_by_threshold(self, source: tree.Source | None) -> bool:
        """Return whether a relation has one row for each public threshold ``t``."""
        if not isinstance(source, tree.Table) or source.path[0] not in self._ctes:
            return False
        at = self._select(source)
        if not isinstance(at.source, tree.Table) or at.groups or at.where is not None:
            return False
        sums, place = self._select(at.source), Ref(at.source.alias, "t")
        threshold = _item(sums, "t")
        return _item(at, "t") == place and sums.groups == (threshold,) and self._is_public(threshold)

    def _groups(self, query: tree.Select, at: tuple[str, ...], column: str, equals: bool) -> _Prefix:
        """Read ``b``, which puts each group in one bin."""
        edge, place = _item(query, "edge"), _item(query, "t")
        match query.source, _item(query, column):
            case (
                tree.Join(
                    tree.Table(_, alias) as given,
                    tree.Table() | tree.Derived() as bins,
                    "LEFT",
                    on,
                    asof=True,
                ),
                Call("sum", (Ref(table, name),), False, None),
            ):
                ends = bins.alias
                groups = (
                    len(query.groups) == 2
                    and place == Ref(ends, "t")
                    and {repr(_stripped(node)) for node in query.groups} == {repr(place), repr(edge)}
                )
                looked = [edge] if on is None else [on, edge]
                keyed = table == alias and groups and self._is_keyed(looked, alias)
                if keyed and query.where is None and self._of_public(ends):
                    key = _compared(on, edge, ends)
                    return _Prefix(at, self._select(given), alias, key, name, equals)
        refuse(_UNBOUNDED)

    # -- relations ---------------------------------------------------------------------------------------------------

    def _cte(self, source: tree.Source | None) -> tree.Select | None:
        found = self._ctes.get(source.path[0]) if isinstance(source, tree.Table) else None
        return found if isinstance(found, tree.Select) else None

    def _select(self, source: tree.Source | None) -> tree.Select:
        """Return the query of a CTE in FROM, which must not choose rows."""
        found = self._cte(source)
        return found if found is not None and _plain(found) else refuse(_UNBOUNDED)

    def _of_public(self, alias: str) -> bool:
        return alias in self.leaves and self.leaves[alias].kind == Kind.PUBLIC

    def _is_public(self, node: Expr) -> bool:
        return not tree.has(node, tree.Subquery, tree.Window, tree.Parameter) and all(
            self._of_public(ref.table) for ref in tree.refs(node)
        )

    def _identity(self, alias: str) -> frozenset[object]:
        """Return the group keys if each of their values has one row; empty if that is unknown."""
        relation = self.leaves[alias]
        if relation.kind == Kind.CELLS:
            return frozenset(relation.key) if relation.single else frozenset()
        return frozenset().union(*relation.unique) if len(relation.unique) == 1 else frozenset()

    def _is_keyed(self, nodes: list[Expr], alias: str, some: bool = False) -> bool:
        """Return whether expressions read a relation by its group keys alone; ``some``: and read it at all."""
        looked = [ref for node in nodes for ref in tree.refs(node) if ref.table == alias]
        keys = self._identity(alias)
        return all(self._symbol(ref) in keys for ref in looked) and (bool(looked) or not some)

    def _symbol(self, node: Expr) -> object:
        if not isinstance(node, Ref) or node.table not in self.leaves:
            return None
        value = self.leaves[node.table].columns.get(node)
        return None if value is None else value.symbol

    # -- a candidate's own sensitivity -------------------------------------------------------------------------------

    def prove_own(self, node: Expr, score: Expr, most: int) -> None:
        """Prove ``GREATEST(size, 1) * rows``, also limited to ``most``, with the score's own factors."""
        trail = _Trail(self.query)
        match tree.widened(trail.follow(node)):
            case Call("*", (inner, rows)) if (times := integer(tree.widened(rows))) is not None:
                inner = tree.widened(inner)
            case _:
                refuse(_SHAPE)
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

    def _covers(self, size: Expr, node: Expr, trail: _Trail) -> bool:
        """Return whether, for each candidate, a size is at least how far one row moves a node."""
        parts, sizes = self._summands(node), [s for s in tree.addends(size) if integer(s) != 0]
        return len(sizes) == len(parts) and all(
            self._covers_part(tree.widened(s), part, trail) for s, part in zip(sizes, parts, strict=True)
        )

    def _summands(self, node: Expr) -> list[Expr]:
        """Return the private terms of a sum, also inside ABS, which moves no further than its argument."""
        node = tree.widened(node)
        if self._is_public(node):
            return []
        match node:
            case Call("+", args) | Call("abs", args):
                return [part for arg in args for part in self._summands(arg)]
        return [node]

    def _covers_part(self, size: Expr, node: Expr, trail: _Trail) -> bool:
        match node, size:
            case Call("greatest" | "least", args), Call("greatest", sizes):
                return len(sizes) == len(args) and all(
                    self._covers(s, arg, trail) for s, arg in zip(sizes, args, strict=True)
                )
            case Call("*", (factor, inner)), Call("*", (Call("abs", (said,)), rest)) if said == trail.follow(
                factor
            ):
                match tree.widened(inner):
                    case Call("coalesce", (Ref() as ref, Literal(integer=0))) | (Ref() as ref):
                        (low, high), row = self._of(ref), integer(tree.widened(rest))
                        return row is not None and row >= max(-low, high)
                return self._covers(rest, inner, trail)
        return False

    # -- statistics without common rows ------------------------------------------------------------------------------

    def _exclude(self, one: Ref, other: Ref) -> bool:
        """Return whether no row moves both statistics of one candidate."""
        mine, theirs = (list(self._facts(ref)) for ref in (one, other))
        return any(self._opposed(a, b) or self._opposed(b, a) for a in mine for b in theirs)

    def _facts(self, ref: Ref) -> Iterator[Expr]:
        """Yield conditions that hold for every row that moves a statistic."""
        query = self._cte(self._sources.get(ref.table))
        if query is None:
            return
        item = dict(query.items).get(ref.name)
        match item:
            case Call("sum", (Call("case", (condition, _, Literal(integer=0))),), where=None):
                yield from (_qualified(part, query) for part in _flat(condition))
                return
        scans = list(self._scans(query, set()))
        given = [[_qualified(part, scan) for part in _flat(scan.where)] for scan in scans]
        if given:
            yield from (part for part in given[0] if all(part in more for more in given[1:]))
        grouped = [scan for scan in scans if scan.groups]
        if item is not None and len(grouped) == 1:
            yield from self._implied(item, query, grouped[0])

    def _implied(self, item: Expr, query: tree.Select, scan: tree.Select) -> Iterator[Expr]:
        """Yield the comparisons that running sums, or matched groups, imply."""
        inside, conditions = dict(tree.named_sources(query.source)), list(_conditions(query.source))
        match item:
            case Call("sum", (Ref(table, "v"),), where=None) if self._cte(inside.get(table)) is scan:
                made = dict(scan.items)
                for node in conditions:
                    match node:
                        case Call(name, (Ref(of, key), end)) if (
                            of == table and name in _SIDES and key in made
                        ):
                            yield Call(name, (_qualified(made[key], scan), _qualified(end, query)))
                return
        x = _qualified(scan.groups[0], scan)
        ends: dict[str, Expr] = {}
        for node in conditions:
            match node:
                case Call("=", (Ref(table, "t"), end)) if isinstance(inside.get(table), tree.Table):
                    ends[table] = _qualified(end, query)
        for name, end in _slices(item, ends):
            yield Call(name, (x, end))

    def _scans(self, query: tree.Query, seen: set[str]) -> Iterator[tree.Select]:
        if isinstance(query, tree.Union):
            for part in query.parts:
                yield from self._scans(part, seen)
            return
        sources = dict(tree.named_sources(query.source))
        if any(a in self.leaves and self.leaves[a].kind == Kind.PRIVATE for a in sources):
            yield query
            return
        asked = (n.query for _, item in query.items for n in _subqueries(item))
        for source in [*sources.values(), *(tree.Derived(inner, "") for inner in asked)]:
            match source:
                case tree.Table((path,)) if path in self._ctes and path not in seen:
                    seen.add(path)
                    yield from self._scans(self._ctes[path], seen)
                case tree.Derived(deeper):
                    yield from self._scans(deeper, seen)

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
            if not isinstance(made, Ref) or not isinstance(source, tree.Derived | tree.Table):
                return False
            node = made
            if isinstance(source, tree.Derived):
                query = source.query
            elif (base := self.known.tables.get(source.path)) is not None:
                return base.columns.get(made.name) == "VARCHAR"
            else:
                query = self._ctes.get(source.path[0])
        return False


def _with_none(step: Step) -> Step:
    """Return a step, or none, as for a row that isn't in the sum."""
    return min(step[0], 0), max(step[1], 0)


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
    if not isinstance(node, Call | Window):
        return node
    node = replace(node, args=tuple(map(_stripped, node.args)))
    match node:
        case Call("coalesce", (Window() | Call() as inner, Literal(integer=0)), where=None):
            return inner  # the sum of no rows
        case Call(where=where) if where is not None:
            return replace(node, where=_stripped(where))
    return node


def _compared(on: Expr | None, edge: Expr, ends: str) -> str | None:
    """Return the column that bins compare with thresholds; None if it is cast."""
    match conjuncts(on), edge:
        case [Call(">=", (Ref(_, key) as mine, Ref(table, "t")))], Call("=", (other, Ref(place, "t"))) if (
            table == place == ends and mine == other
        ):
            return key
    return None


def _over(node: Expr, query: tree.Select) -> str:
    """Return an expression over a FROM's only relation as a complete text without the alias."""
    if not isinstance(query.source, tree.Table):
        refuse(_UNBOUNDED)
    return repr(_stripped(node)).replace(f"Ref(table={query.source.alias!r},", "Ref(table='',")


def _conditions_over(query: tree.Select, present: str | None = None) -> list[str]:
    """Return the conditions of a WHERE, except that this expression is not NULL."""
    nodes = [node for node in conjuncts(query.where) if node != Literal(True)]
    inner = [(node, tree.present(node)) for node in nodes]
    return sorted(_over(node, query) for node, of in inner if of is None or _over(of, query) != present)


def _scan(query: tree.Select) -> tuple[str, ...]:
    return query.source.path if isinstance(query.source, tree.Table) else refuse(_UNBOUNDED)


def _conditions(source: tree.Source | None) -> Iterator[Expr]:
    if isinstance(source, tree.Join):
        yield from conjuncts(source.on)
        yield from _conditions(source.left)
        yield from _conditions(source.right)


def _all_conditions(query: tree.Select) -> Iterator[Expr]:
    yield from _conditions(query.source)
    yield from conjuncts(query.where)


class _Trail:
    """Traces expressions back to the passed relation of candidates."""

    def __init__(self, select: tree.Select) -> None:
        self._queries = dict(select.ctes)
        self._sources = dict(tree.named_sources(select.source))
        for query in self._queries.values():
            self._gather(query)

    def _gather(self, query: tree.Query) -> None:
        if isinstance(query, tree.Select):
            for alias, source in tree.named_sources(query.source):
                self._sources[alias] = source
                if isinstance(source, tree.Derived):
                    self._gather(source.query)

    def follow(self, node: Expr) -> Expr:
        """Return the expression with each column replaced by its definition over the passed relation."""
        return tree.replace_columns(node, self._define, _SHAPE)

    def _define(self, ref: Ref) -> Expr:
        query: tree.Query | None = None
        match self._sources.get(ref.table):
            case tree.Table((path,)):
                query = self._queries.get(path)
                if query is None:
                    return Ref(path, ref.name)
            case tree.Derived(inner):
                query = inner
        if not isinstance(query, tree.Select) or query.groups:
            refuse(_SHAPE)
        return self.follow(dict(query.items).get(ref.name) or refuse(_SHAPE))


# -- conditions -------------------------------------------------------------------------------------------------------

_SIDES = {"<": {-1}, "<=": {-1, 0}, "=": {0}, ">=": {0, 1}, ">": {1}, "<>": {-1, 1}, "!=": {-1, 1}}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OF_RUN = {"under": "<", "upto": "<="}
_BEYOND_RUN = {"under": ">=", "upto": ">"}


def _slices(node: Expr, ends: Mapping[str, Expr]) -> Iterator[tuple[str, Expr]]:
    """Yield the comparisons with thresholds that hold for the rows of running sums, or of a difference of two."""
    match node:
        case Ref(table, name) if table in ends and name in _OF_RUN:
            yield _OF_RUN[name], ends[table]
        case Call("-", (Ref(whole, "upto") as upto, Ref(table, name))) if (
            table in ends and name in _BEYOND_RUN
        ):
            yield _BEYOND_RUN[name], ends[table]
            yield from _slices(upto, ends) if whole in ends else ()
        case Call("-", (Ref(upper, "under"), Ref(table, name))) if {upper, table} <= ends.keys():
            yield "<", ends[upper]
            yield from ((_BEYOND_RUN[name], ends[table]),) if name in _BEYOND_RUN else ()
        case Call("case", (_, inner, Literal(integer=0))):
            yield from _slices(inner, ends)


def _qualified(node: Expr, query: tree.Select) -> Expr:
    """Return an expression of a query with its columns qualified by their CTEs' names."""
    inside = dict(tree.named_sources(query.source))

    def qualify(ref: Ref) -> Ref:
        source = inside.get(ref.table)
        return (
            Ref(source.path[0], ref.name) if isinstance(source, tree.Table) and len(source.path) == 1 else ref
        )

    return tree.replace_columns(node, qualify)


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
