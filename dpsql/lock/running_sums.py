"""Statistics of candidates, down to the sums over private rows: what one row adds to each, and that it does so once.

A group's sum, or a sum for each candidate, says by itself how far one row moves it. Others are looked up among groups, or
come from running sums of them, and are read in the few forms below: whatever else stands between a sum and a score, a
factor, a sum more or a condition on what was added up, is refused.

Running sums stand in four queries: ``x``, the groups of a number; ``b``, each of them in the bin of the last threshold that
it reaches, those that are equal to it apart; ``s``, the bins of each threshold; and ``at``, the sums ``under`` and ``upto``
each threshold.

Scores of public candidates: how far one unit moves each, out of the text and the operator's public factors.

A score is a public number, and public factors times statistics of the private rows. Of the factors the text itself says
between which integers they lie; of a statistic, how far one row moves it (:mod:`dpsql.lock.running_sums`). Where candidates
have sensitivities of their own, each must be made of the very factors of its score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dpsql.lock import tree
from dpsql.lock.expressions import Env, Expressions
from dpsql.lock.facts import Kind, Relation
from dpsql.lock.tree import (
    Call,
    Cast,
    Expr,
    Literal,
    Ref,
    Window,
    addends,
    conjuncts,
    integer,
    named_sources,
    refuse,
    widened,
)
from dpsql.mechanisms.base import ScoresClaim

Step = tuple[int, int]
"""The lowest and the highest change that one more row makes to a number."""

_UNBOUNDED = "nothing bounds what one unit moves a score by"
_WIDER = ("HUGEINT", "BIGINT", "DECIMAL")


@dataclass(frozen=True)
class _Prefix:
    """One column of running sums.

    Args:
        at: the relation that has it.
        groups: the query of the groups.
        alias: their name in the FROM of the bins.
        key: their column that is compared with thresholds, as it is; None where it is cast.
        column: the column that is added up.
        equals: whether what is equal to a threshold is in its sum.
    """

    at: tuple[str, ...]
    groups: tree.Select
    alias: str
    key: str | None
    column: str
    equals: bool


class Statistics:
    """The statistics of one query of candidates.

    Args:
        query: the text.
        leaves: every relation of a FROM by its alias.
        expressions: what derives expressions.
    """

    def __init__(self, query: tree.Select, leaves: Mapping[str, Relation], expressions: Expressions) -> None:
        self._ctes, self._leaves, self._expressions = dict(query.ctes), leaves, expressions
        self._query, self._sources = query, dict(named_sources(query.source))
        self._check_above()

    def _check_above(self) -> None:
        """Refuse scores that are kept, or left out, by what was added up."""
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
        """Return how far one row lowers and raises a statistic.

        Raises:
            Unproved: it is in no form that is known.
        """
        known = self._known(ref)
        return self._step(ref) if known is None else known

    def _known(self, ref: Ref) -> Step | None:
        """Return what a sum over rows itself says."""
        relation = self._leaves.get(ref.table)
        value = None if relation is None else relation.columns.get(ref)
        if value is None or value.halved:
            return None
        return value.step if value.weight is None or value.step is not None else (-value.weight, value.weight)

    def _step(self, ref: Ref) -> Step:
        query = self._select(self._sources.get(ref.table))
        item, sources = _item(query, ref.name), dict(named_sources(query.source))
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
        """Read the sum, for each candidate, of the groups that it is compared with."""
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
        """Read a running sum, the rest above one, or the difference of two."""
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
        """Read the sum of what is at most a clip, and the clip for each row above it."""
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
        # The bins go by the very number that is added up, as it is.
        key = next((name for name, node in groups.items if node == groups.groups[0]), None)
        if key is None or key != below.key:
            refuse(_UNBOUNDED)
        value = self._leaves[below.alias].columns.get(Ref(below.alias, key))
        public = {
            ref: column for alias in sources if self._is_public(alias)
            for ref, column in self._leaves[alias].columns.items()
        }  # fmt: skip
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
        """Read a column of ``at``: the sum of what lies below all thresholds, and of the bins before, or to, this one."""
        at = self._select(source)
        terms = addends(_item(at, name))
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
            case tree.Subquery("SCALAR", tree.Select(((_, total),), tree.Table(path, far) as rest) as lowest, None) if (
                path == binned.path and lowest.where == Call("is null", (Ref(far, "t"),)) and not lowest.groups
                and _adds(_stripped(total), Ref(far, column)) and _plain(lowest)
            ):  # fmt: skip
                return self._groups(self._select(rest), source.path, column, bool(own))
        return refuse(_UNBOUNDED)

    def _bins(self, query: tree.Select, own: str, after: str) -> tuple[tree.Table, str]:
        """Read ``s``: the bins of each threshold, one number for what is equal to it and one for what is above."""
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
        equal, more = (_item(query, name) for name in (own, after))
        public = self._leaves[mine]
        once = any(unique <= {self._symbol(place)} for unique in public.unique)
        match equal, more:
            case Call("sum", (Ref() as added,), False, Ref() as edge), Call("sum", (other,), False, Call("not", (without,))) if (
                added == other and edge == without == Ref(bins, "edge") and added.table == bins
                and public.kind == Kind.PUBLIC and once and _item(query, "t") == place
            ):  # fmt: skip
                return table, added.name
        return refuse(_UNBOUNDED)

    def _is_by_threshold(self, source: tree.Source | None) -> bool:
        """Return whether a relation's rows are one for each public threshold ``t``."""
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
        """Read ``b``: each group in one bin."""
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
        """Return the query that a part of FROM stands for, which cuts and chooses nothing."""
        found = self._ctes.get(source.path[0]) if isinstance(source, tree.Table) else None
        if not isinstance(found, tree.Select) or not _plain(found):
            refuse(_UNBOUNDED)
        return found

    def _is_public(self, alias: str) -> bool:
        return alias in self._leaves and self._leaves[alias].kind == Kind.PUBLIC

    def _all_public(self, node: Expr) -> bool:
        beyond = tree.has(
            node, lambda n: isinstance(n, tree.Subquery | Window | tree.Parameter | tree.Varied)
        )
        return not beyond and all(self._is_public(ref.table) for ref in tree.refs(node))

    def _identity(self, alias: str) -> frozenset[object]:
        """Return the columns by which groups were made, of which there is one row each; nothing where it is not known."""
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
    """Return whether a query chooses no rows by a window, a group, a number, or that they differ."""
    return not query.distinct and all(x is None for x in (query.qualify, query.having, query.limit))


def _item(query: tree.Select, name: str) -> Expr:
    """Return what a column is, without the casts that only make room for greater integers."""
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
                    return inner  # a sum of nothing
        case Window():
            return replace(node, args=tuple(map(_stripped, node.args)))
    return node


def _compared(on: Expr | None, edge: Expr, ends: str) -> str | None:
    """Return the column of which bins begin at thresholds, and whose equals stand apart; None where it is cast."""
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
    """Return an expression over the only relation of a FROM, as text that says all of it."""
    if not isinstance(query.source, tree.Table):
        refuse(_UNBOUNDED)
    return repr(_stripped(node)).replace(f"Ref(table={query.source.alias!r},", "Ref(table='',")


def _conditions_over(query: tree.Select, present: str | None) -> list[str]:
    """Return the conditions of a WHERE, but those that an expression is there."""
    nodes = [node for node in conjuncts(query.where) if node != Literal(True)]
    inner = [(node, tree.present(node)) for node in nodes]
    return sorted(_over(node, query) for node, of in inner if of is None or _over(of, query) != present)


def _scan(query: tree.Select) -> tuple[str, ...]:
    """Return the relation that a query looks at alone."""
    return query.source.path if isinstance(query.source, tree.Table) else refuse(_UNBOUNDED)


def _conditions(source: tree.Source | None) -> Iterator[Expr]:
    if isinstance(source, tree.Join):
        yield from conjuncts(source.on)
        yield from _conditions(source.left)
        yield from _conditions(source.right)


_MORE = "one unit moves a score by more than is charged"
_SHAPE = "a score of another shape"


def prove_scores(
    query: tree.Query, env: Env, leaves: Mapping[str, Relation], expressions: Expressions, claim: ScoresClaim
) -> None:
    """Compare.

    Args:
        query: the text. env: its outermost FROM. leaves: every relation of a FROM by its alias.

    Raises:
        Unproved: a score may move by more than is charged, or nothing says that it does not.
    """
    if not isinstance(query, tree.Select):
        refuse(_SHAPE)
    items = dict(query.items)
    if not {claim.column, claim.own or claim.column} <= items.keys():
        refuse("a column that the operator asks for is not there")
    terms = [_term(node, leaves) for node in addends(items[claim.column]) if not is_public(node, leaves)]
    statistics = Statistics(query, leaves, expressions)
    most, lowest, highest, sizes = 0, 0, 0, []
    for factor, ref in terms:
        first = last = 1
        if factor is not None:
            value = expressions.row(factor, env)
            if value.low is None or value.high is None:
                refuse("nothing bounds what one unit moves a score by")
            first, last = value.low, value.high
        low, high = statistics.find_step(ref)
        ends = [first * low, first * high, last * low, last * high]
        lowest, highest = lowest + min(ends), highest + max(ends)
        sizes.append((factor, max(-low, high)))
        most += max(-min(ends), max(ends))
    if max(most, 1) * claim.rows > claim.most:
        refuse(_MORE)
    if claim.monotone and lowest < 0 < highest:
        refuse("scores that move both ways are charged as if they moved one way")
    if claim.own is not None:
        _own(query, items[claim.own], sizes, claim.rows)


def _term(node: Expr, leaves: Mapping[str, Relation]) -> tuple[Expr | None, Ref]:
    """Return the factor and the statistic of a term."""
    factor: Expr | None = None
    if isinstance(node, Call) and node.name == "*" and len(node.args) == 2:
        factor, node = node.args
        if not is_public(factor, leaves):
            refuse("a factor that is not public")
    match node:
        case (Ref() as ref) | Call("coalesce", (Ref() as ref, Literal(integer=0))):
            return factor, ref
    refuse(_SHAPE)


def is_public(node: Expr, leaves: Mapping[str, Relation]) -> bool:
    """Return whether an expression looks at public relations alone."""
    if tree.has(node, lambda n: isinstance(n, tree.Subquery | tree.Window | tree.Parameter | tree.Varied)):
        return False
    return all(ref.table in leaves and leaves[ref.table].kind == Kind.PUBLIC for ref in tree.refs(node))


# -- sensitivities of the candidates' own -----------------------------------------------------------------------------


def _own(select: tree.Select, node: Expr, sizes: list[tuple[Expr | None, int]], rows: int) -> None:
    """Prove ``GREATEST(ABS(factor) * row + ..., 1) * rows``, of the same factors and rows that move it as far."""
    trail = Trail(select)
    held, times = multiple_of(trail.follow(node))
    if times < rows:
        refuse(_MORE)
    match held:
        case Call("greatest", (total, one)) if integer(widened(one)) == 1:
            said: Counter[str] = Counter()
        case _:
            refuse(_SHAPE)
    for size, row in map(multiple_of, addends(total)):
        match size:
            case Call("abs", (factor,)):
                said[repr(factor)] += row
            case _:
                refuse(_SHAPE)
    for of, row in sizes:
        said[repr(Literal(1) if of is None else trail.follow(of))] -= row
    if any(left < 0 for left in said.values()):
        refuse(_MORE)


def multiple_of(node: Expr) -> tuple[Expr, int]:
    """Return an expression, and the integer that it is multiplied by."""
    match widened(node):
        case Call("*", (inner, times)) if (found := integer(widened(times))) is not None:
            return widened(inner), found
    refuse(_SHAPE)


class Trail:
    """Leads expressions back to the relation that the candidates were lent in."""

    def __init__(self, select: tree.Select) -> None:
        self._queries = dict(select.ctes)
        self._sources = dict(named_sources(select.source))
        for _, query in select.ctes:
            self._gather(query)

    def _gather(self, query: tree.Query) -> None:
        if isinstance(query, tree.Select):
            for alias, source in named_sources(query.source):
                self._sources[alias] = source
                if isinstance(source, tree.Derived):
                    self._gather(source.query)

    def follow(self, node: Expr) -> Expr:
        """Return the same expression over the columns that were lent; of a column, the expression that made it."""
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
                made = (
                    dict(query.items).get(name)
                    if isinstance(query, tree.Select) and not query.groups
                    else None
                )
                return refuse(_SHAPE) if made is None else self.follow(made)
            case Cast():
                return replace(node, child=self.follow(node.child))
            case Call(where=None, order=()):
                return replace(node, args=tuple(map(self.follow, node.args)))
        return node if isinstance(node, Literal) else refuse(_SHAPE)
