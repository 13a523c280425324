"""Scores of public candidates: how far one unit moves each, out of the text and the operator's public factors.

A score is a public number, and public factors times statistics of the private rows. Of the factors the text itself says
between which integers they lie; of a statistic, how far one row moves it, where it is added up from the rows directly. Where
it comes from running sums, the operator says it, and no sum over private rows may add more of one row than that. Where
candidates have sensitivities of their own, each must be made of the very factors of its score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dpsql.mechanisms.base import ScoresClaim
from dpsql.sql.lock.expressions import Env, Expressions, has, refs
from dpsql.sql.lock.facts import PUBLIC, Number, Relation
from dpsql.sql.lock.tree import (
    Call,
    Cast,
    Derived,
    Expr,
    Join,
    Literal,
    Parameter,
    Query,
    Ref,
    Select,
    Source,
    Subquery,
    Table,
    Window,
    refuse,
)

_MORE = "one unit moves a score by more than is charged"
_SHAPE = "a score of another shape"


def prove_scores(
    tree: Query, env: Env, leaves: Mapping[str, Relation], expressions: Expressions, claim: ScoresClaim
) -> None:
    """Compare.

    Args:
        tree: the text. env: its outermost FROM. leaves: every relation of a FROM by its alias.

    Raises:
        Unproved: a score may move by more than is charged, or nothing says that it does not.
    """
    if not isinstance(tree, Select):
        refuse(_SHAPE)
    items = dict(tree.items)
    if claim.column not in items:
        refuse("a column that the operator asks for is not there")
    terms = [_term(node, leaves) for node in _added(items[claim.column])]
    asked = [term for term in terms if term[1] is not None]
    if claim.terms is not None and len(asked) != len(claim.terms):
        refuse(_SHAPE)
    if claim.terms is None and any(added is None for added in expressions.added):
        return  # sums of values held to limits, out of running sums, of which the operator says nothing
    most, sizes = 0, []
    for place, (factor, ref) in enumerate(asked):
        size = 1 if factor is None else expressions.row(factor, env).most
        assert ref is not None
        row = _row(ref, leaves, place, claim)
        if row is None and claim.terms is None:
            row = max((added for added in expressions.added if added is not None), default=None)
        if size is None or row is None:
            refuse("nothing bounds what one unit moves a score by")
        sizes.append((factor, row))
        most += size * row
    if max(most, 1) * claim.rows > claim.most:
        refuse(_MORE)
    if (
        claim.terms is not None
        and not claim.clipped
        and any(a is None or a > max(claim.terms) for a in expressions.added)
    ):
        refuse(_MORE)
    if claim.own is not None:
        _own(tree, items.get(claim.own), sizes, claim.rows)


def _row(ref: Ref, leaves: Mapping[str, Relation], place: int, claim: ScoresClaim) -> Number:
    """How far one row moves a statistic."""
    value = leaves[ref.table].columns.get(ref.name) if ref.table in leaves else None
    weight = None if value is None or value.halved else value.weight
    said = None if claim.terms is None else claim.terms[place]
    if weight is None or (claim.clipped and said is not None and len(claim.terms or ()) > 1):
        return said  # clips of one base move less together than each alone
    return weight


def _added(node: Expr) -> list[Expr]:
    while isinstance(node, Cast) and node.type == "HUGEINT":
        node = node.child
    if isinstance(node, Call) and node.name == "+" and len(node.args) == 2:
        return [*_added(node.args[0]), *_added(node.args[1])]
    return [node]


def _term(node: Expr, leaves: Mapping[str, Relation]) -> tuple[Expr | None, Ref | None]:
    """The factor and the statistic of a term; no statistic where it is public."""
    if _public(node, leaves):
        return None, None
    factor: Expr | None = None
    if isinstance(node, Call) and node.name == "*" and len(node.args) == 2:
        factor, node = node.args
        if not _public(factor, leaves):
            refuse("a factor that is not public")
    if isinstance(node, Call) and node.name == "coalesce" and node.args[1:] == (Literal(0),):
        node = node.args[0]
    return (factor, node) if isinstance(node, Ref) else refuse(_SHAPE)


def _public(node: Expr, leaves: Mapping[str, Relation]) -> bool:
    """Whether an expression looks at public relations alone."""
    if has(node, lambda n: isinstance(n, Subquery | Window | Parameter)):
        return False
    return all(ref.table in leaves and leaves[ref.table].kind == PUBLIC for ref in refs(node))


# -- sensitivities of the candidates' own -----------------------------------------------------------------------------


def _own(tree: Select, node: Expr | None, sizes: list[tuple[Expr | None, int]], rows: int) -> None:
    """``GREATEST(ABS(factor) * row + ..., 1) * rows``, of the same factors and of rows that move it as far."""
    if node is None:
        refuse("a column that the operator asks for is not there")
    trail = Trail(tree)
    made = _bare(trail.follow(node))
    if not (isinstance(made, Call) and made.name == "*" and len(made.args) == 2):
        refuse(_SHAPE)
    held, times = _bare(made.args[0]), _number(made.args[1])
    if times is None or times < rows:
        refuse(_MORE)
    if not (
        isinstance(held, Call)
        and held.name == "greatest"
        and len(held.args) == 2
        and _number(held.args[1]) == 1
    ):
        refuse(_SHAPE)
    said: dict[str, int] = {}
    for part in _added(held.args[0]):
        part = _bare(part)
        if not (isinstance(part, Call) and part.name == "*" and len(part.args) == 2):
            refuse(_SHAPE)
        size, row = _bare(part.args[0]), _number(part.args[1])
        if not (isinstance(size, Call) and size.name == "abs" and row is not None):
            refuse(_SHAPE)
        said[repr(size.args[0])] = said.get(repr(size.args[0]), 0) + row
    for factor, row in sizes:
        key = repr(Literal(1) if factor is None else trail.follow(factor))
        said[key] = said.get(key, 0) - row
    if any(left < 0 for left in said.values()):
        refuse(_MORE)


def _bare(node: Expr) -> Expr:
    while isinstance(node, Cast) and node.type == "HUGEINT":
        node = node.child
    return node


def _number(node: Expr) -> int | None:
    node = _bare(node)
    found = isinstance(node, Literal) and isinstance(node.value, int) and not isinstance(node.value, bool)
    return node.value if found else None  # type: ignore[union-attr,return-value]


class Trail:
    """Leads expressions back to the relation that the candidates were lent in."""

    def __init__(self, tree: Select) -> None:
        self._queries = dict(tree.ctes)
        self._sources = dict(_named(tree.source))
        for _, query in tree.ctes:
            self._gather(query)

    def _gather(self, query: Query) -> None:
        if isinstance(query, Select):
            for alias, source in _named(query.source):
                self._sources[alias] = source
                if isinstance(source, Derived):
                    self._gather(source.query)

    def follow(self, node: Expr) -> Expr:
        """Return the same expression over the columns that were lent; of a column, the expression that made it."""
        if isinstance(node, Ref):
            source = self._sources.get(node.table)
            if isinstance(source, Table) and len(source.path) == 1:
                query: Query | None = self._queries.get(source.path[0])
                if query is None:
                    return Ref(source.path[0], node.name)
            else:
                query = source.query if isinstance(source, Derived) else refuse(_SHAPE)
            made = (
                dict(query.items).get(node.name) if isinstance(query, Select) and not query.groups else None
            )
            return self.follow(made) if made is not None else refuse(_SHAPE)
        if isinstance(node, Cast):
            return replace(node, child=self.follow(node.child))
        if isinstance(node, Call) and node.where is None and not node.order:
            return replace(node, args=tuple(self.follow(arg) for arg in node.args))
        return node if isinstance(node, Literal) else refuse(_SHAPE)


def _named(source: Source | None) -> Iterator[tuple[str, Source]]:
    if isinstance(source, Join):
        yield from _named(source.left)
        yield from _named(source.right)
    elif source is not None:
        yield source.alias, source
