"""Scores of public candidates: how far one unit moves each, out of the text and the operator's public factors.

A score is a public number, and public factors times statistics of the private rows. Of the factors the text itself says
between which integers they lie; of a statistic, how far one row moves it (:mod:`dpsql.sql.lock.running_sums`). Where candidates
have sensitivities of their own, each must be made of the very factors of its score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from dpsql.mechanisms.base import ScoresClaim
from dpsql.sql.lock import tree
from dpsql.sql.lock.expressions import Env, Expressions
from dpsql.sql.lock.facts import Kind, Relation
from dpsql.sql.lock.running_sums import Statistics
from dpsql.sql.lock.tree import (
    Call,
    Cast,
    Expr,
    Literal,
    Ref,
    addends,
    integer,
    named_sources,
    refuse,
    widened,
)

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
