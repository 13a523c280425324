"""Traces of each output column of a statement to released columns, with factors, so that their errors add up.

Only linear expressions are traced: passed-on columns, sums and differences, multiples by constants, casts and rounding,
``GREATEST``, ``LEAST`` and ``COALESCE`` with a constant (which only reduce errors), scalar subqueries, and windows with
named errors. Other outputs have no trace. An output of a set operation has the traces of its sides, a list those of its items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from dpsql.binding.relations.relation import fold
from dpsql.mechanisms.window_widths import WINDOW_ERROR

TracedTerm = tuple[str, str, float]
"""A release's name, a column of it, and its factor."""
Trace = tuple[TracedTerm, ...]
"""Terms that are added up; empty for a constant."""
TracedColumn = tuple[str, tuple[Trace, ...]]
"""The name of an output column, and its traces."""

NameWindow = Callable[[exp.Select, exp.Window], str | None]
"""Returns the relation with the error of a window's sums; None if unknown."""
FindColumn = Callable[[exp.Column], tuple[str, str] | None]
"""Returns the release and its column that a name means; None for other names."""
LookAt = Callable[[exp.Select, FindColumn], None]
_Sum = Mapping[tuple[str, str], float]
_Column = tuple[str, tuple[_Sum, ...]]


@dataclass(frozen=True)
class _Scope:
    """The surroundings of a query: the columns of relations by folded name, and the names of windows."""

    relations: Mapping[str, Sequence[_Column]]
    name_window: NameWindow
    look: LookAt | None = None
    """Called with each SELECT, and the function that finds the released column behind a name in it."""


_Named = Mapping[tuple[str | None, str], Sequence[tuple[_Sum, ...]]]
"""The columns in FROM by folded alias and name; by None and a name, those of all items."""
_VALUES = (exp.Column, exp.Query, exp.Window)
"""Nodes that an expression treats as units: their inner columns are not its own."""
_THROUGH = (exp.Paren, exp.Cast, exp.TryCast, exp.Round, exp.Alias)
_HELD = (exp.Greatest, exp.Least, exp.Coalesce)
MAX_TRACES = 256
"""The most traces of one output, for example from nested unions; with more, it has none."""


def trace_columns(
    tree: exp.Expr,
    releases: Mapping[str, Sequence[str]],
    name_window: NameWindow = lambda select, node: None,
    look: LookAt | None = None,
) -> tuple[TracedColumn, ...]:
    """Return the output columns of a statement, in order, with their traces; empty if its columns are unknown.

    Args:
        tree: the statement, with relations of these names in place of private blocks.
        releases: the columns of each.
        name_window: names the errors of windows.
        look: called with each SELECT that is walked.
    """
    known = {fold(name): [(c, ({(name, c): 1.0},)) for c in columns] for name, columns in releases.items()}
    found = _query(tree, _Scope(known, name_window, look))
    listed = []
    for name, sums in found or ():
        traces = tuple(tuple((*place, factor) for place, factor in one.items()) for one in sums)
        listed.append((name, traces))
    return tuple(listed)


def _query(tree: exp.Expr | None, scope: _Scope) -> list[_Column] | None:
    if tree is None:
        return None
    with_ = tree.args.get("with_")
    if with_ is not None:
        inner = dict(scope.relations)
        for cte in with_.expressions:
            around = _Scope(inner, scope.name_window, scope.look)
            body = None if with_.args.get("recursive") else _query(cte.this, around)
            inner[fold(cte.alias)] = _rename(body or [], cte.alias_column_names)
        scope = _Scope(inner, scope.name_window, scope.look)
    if isinstance(tree, exp.Subquery):
        return _query(tree.this, scope)
    if isinstance(tree, exp.SetOperation):
        left, right = _query(tree.left, scope), _query(tree.right, scope)
        if left is None or right is None or len(left) != len(right):
            return None
        pairs = [(name, (*sums, *others)) for (name, sums), (_, others) in zip(left, right, strict=True)]
        return [(name, sums if len(sums) <= MAX_TRACES else ()) for name, sums in pairs]
    return _select(tree, scope) if isinstance(tree, exp.Select) else None


def _select(select: exp.Select, scope: _Scope) -> list[_Column] | None:
    sources = _sources(select, scope)
    named = _name_columns(sources)
    if scope.look is not None:
        scope.look(select, lambda node: _find_released(node, named))
    aggregates = bool(select.args.get("group"))
    found: list[_Column] = []
    for item in select.expressions:
        if item.is_star:
            columns = list(sources.values())
            table = item.table if isinstance(item, exp.Column) else ""
            if table:
                columns = [sources.get(fold(table), [])]
            plain = isinstance(item, exp.Column) or not any(item.args.values())
            if len(columns) != 1 or not columns[0] or not plain or select.args.get("joins"):
                return None
            found += columns[0]
            continue
        sums = () if aggregates else _alternatives(item.unalias(), select, named, scope)
        found.append((item.alias_or_name, sums))
    return found


def _sources(select: exp.Select, scope: _Scope) -> dict[str, list[_Column]]:
    """Return the columns of the items in FROM and JOIN, by alias; empty if unknown."""
    from_ = select.args.get("from_")
    items = [] if from_ is None else [from_.this, *(join.this for join in select.args.get("joins") or [])]
    found: dict[str, list[_Column]] = {}
    for node in items:
        columns: list[_Column] | None = None
        if isinstance(node, exp.Table) and not node.args.get("db"):
            columns = list(scope.relations.get(fold(node.name), ()))
        elif isinstance(node, exp.Subquery):
            columns = _query(node.this, scope)
        if any(node.args.get(key) for key in ("pivots", "sample")):
            columns = None
        found[fold(node.alias_or_name)] = _rename(columns or [], node.alias_column_names)
    return found


def _rename(columns: list[_Column], names: Sequence[str]) -> list[_Column]:
    renamed = [(name, sums) for name, (_, sums) in zip(names, columns, strict=False)]
    return [*renamed, *columns[len(renamed) :]]


def _name_columns(sources: Mapping[str, list[_Column]]) -> _Named:
    found: dict[tuple[str | None, str], list[tuple[_Sum, ...]]] = {}
    for alias, columns in sources.items():
        for name, sums in columns:
            for table in (alias, None):
                found.setdefault((table, fold(name)), []).append(sums)
    return found


def _alternatives(node: exp.Expr, select: exp.Select, named: _Named, scope: _Scope) -> tuple[_Sum, ...]:
    """Return the alternatives of a linear expression: for several columns, if each has only one.

    Those of a list are its items'; the values of a MAP are a list.
    """
    if isinstance(node, exp.Array):
        return tuple(one for item in node.expressions for one in _alternatives(item, select, named, scope))
    if isinstance(node, exp.Map | exp.VarMap) and isinstance(values := node.args.get("values"), exp.Expr):
        return _alternatives(values, select, named, scope)
    columns = {id(value): _trace_value(value, select, named, scope) for value in _list_values(node)}
    widest = max((len(sums) for sums in columns.values()), default=0)
    if len(columns) > 1 and widest > 1 and len({len(sums) for sums in columns.values()}) > 1:
        return ()
    found = (_linear(node, columns, place) for place in range(widest))
    return tuple(one for one in found if one)


def _list_values(node: exp.Expr) -> list[exp.Expr]:
    """Return the columns, windows and subqueries in an expression, without the subqueries' own columns."""
    walked = node.walk(prune=lambda inner: isinstance(inner, _VALUES))
    return [inner for inner in walked if isinstance(inner, _VALUES)]


def _trace_value(node: exp.Expr, select: exp.Select, named: _Named, scope: _Scope) -> tuple[_Sum, ...]:
    """Return the alternatives of a column, a window, or a scalar subquery."""
    if isinstance(node, exp.Column):
        return _find(node, named)
    if isinstance(node, exp.Window):
        name = scope.name_window(select, node)
        return () if name is None else ({(name, WINDOW_ERROR): 1.0},)
    columns = _query(node, scope) or []
    return columns[0][1] if len(columns) == 1 else ()


def _find(node: exp.Column, named: _Named) -> tuple[_Sum, ...]:
    meant = named.get((fold(node.table) if node.table else None, fold(node.name)), ())
    return meant[0] if len(meant) == 1 else ()


def _find_released(node: exp.Column, named: _Named) -> tuple[str, str] | None:
    sums = _find(node, named)
    terms = list(sums[0].items()) if len(sums) == 1 else []
    return terms[0][0] if len(terms) == 1 and terms[0][1] == 1.0 else None


def _linear(node: exp.Expr, columns: Mapping[int, tuple[_Sum, ...]], place: int) -> _Sum | None:
    """Return the terms of an expression: empty for a constant, None if it is not linear."""
    if isinstance(node, _VALUES):
        sums = columns.get(id(node), ())
        return sums[place] if place < len(sums) else None
    if _constant(node) is not None:
        return {}
    if isinstance(node, _THROUGH):
        return _linear(node.this, columns, place)
    if isinstance(node, exp.Neg):
        return _times(_linear(node.this, columns, place), -1)
    if isinstance(node, exp.Add | exp.Sub):
        left, right = (_linear(side, columns, place) for side in (node.this, node.expression))
        return _plus(left, _times(right, -1 if isinstance(node, exp.Sub) else 1))
    if isinstance(node, exp.Mul):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            if (factor := _constant(other)) is not None:
                return _times(_linear(one, columns, place), factor)
    if isinstance(node, exp.Div) and (divisor := _constant(node.expression)):
        return _times(_linear(node.this, columns, place), 1 / divisor)
    if isinstance(node, _HELD):
        inner = [child for child in node.iter_expressions() if _constant(child) is None]
        return _linear(inner[0], columns, place) if len(inner) == 1 else None
    return None


def _constant(node: exp.Expr) -> float | None:
    sign = 1
    while isinstance(node, exp.Neg | exp.Paren | exp.Cast):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    return sign * float(node.name) if isinstance(node, exp.Literal) and not node.is_string else None


def _times(terms: _Sum | None, factor: float) -> _Sum | None:
    return None if terms is None else {place: factor * value for place, value in terms.items()}


def _plus(left: _Sum | None, right: _Sum | None) -> _Sum | None:
    if left is None or right is None:
        return None
    return {place: left.get(place, 0.0) + right.get(place, 0.0) for place in {**left, **right}}


# -- columns by name ---------------------------------------------------------------------------------------------


def read_relation(select: exp.Select) -> str:
    """Return the name of the one table that a SELECT reads; empty if it reads a query."""
    from_ = select.args.get("from_")
    return str(from_.this.name) if from_ is not None and isinstance(from_.this, exp.Table) else ""


def list_merged(select: exp.Select) -> set[str]:
    """Return the columns merged by USING."""
    joins = select.args.get("joins") or []
    return {fold(name.name) for join in joins for name in join.args.get("using") or []}


def list_sides(body: exp.Query) -> list[exp.Select]:
    """Return a query's SELECT, or those of a UNION ALL; empty for other queries, and if it removes duplicates."""
    if isinstance(body, exp.Select):
        return [] if body.args.get("distinct") else [body]
    if isinstance(body, exp.Subquery) and isinstance(body.this, exp.Query) and not body.args.get("alias"):
        return list_sides(body.this)
    if not isinstance(body, exp.Union) or body.args.get("distinct") or body.args.get("by_name"):
        return []
    sides = [list_sides(side) for side in (body.left, body.right)]
    alike = all(sides) and len({len(side.expressions) for group in sides for side in group}) == 1
    return [side for group in sides for side in group] if alike else []


def find_item(body: exp.Query, name: str) -> exp.Expr | None:
    """Return the item of that name in a query, or in the first side of a UNION ALL."""
    sides = list_sides(body)
    items = sides[0].expressions if sides else []
    return next((item for item in items if fold(item.alias_or_name) == fold(name)), None)


def spell_item(select: exp.Select, name: str) -> str:
    """Return a column's name as the SELECT spells it."""
    item = find_item(select, name)
    return name if item is None else str(item.alias_or_name)


def read_source(tree: exp.Expr, node: exp.Expr) -> tuple[exp.Expr | None, exp.CTE | None]:
    """Return the query that a source of a statement reads, and its CTE, whose columns keep their names."""
    if isinstance(node, exp.Subquery):
        return node.this, None
    if not isinstance(node, exp.Table) or node.args.get("db"):
        return None, None
    ctes = [cte for cte in tree.find_all(exp.CTE) if fold(cte.alias) == fold(node.name)]
    plain = len(ctes) == 1 and not ctes[0].args["alias"].args.get("columns")
    return (ctes[0].this, ctes[0]) if plain else (None, None)


def is_taken_by_name(source: exp.Expr, select: exp.Select | None) -> bool:
    """Return whether a SELECT uses only named columns of an item in its FROM."""
    if select is None or any(source.args.get(key) for key in ("pivots", "sample")):
        return False
    if source.args.get("alias") and source.args["alias"].args.get("columns"):
        return False
    if any(join.args.get("method") for join in select.args.get("joins") or []):
        return False  # NATURAL, POSITIONAL: all columns matter
    names = {fold(source.alias_or_name), fold(source.name)}
    for item in select.find_all(exp.Star, exp.Columns, exp.Column):
        if isinstance(item, exp.Column):
            if not item.table and fold(item.name) in names:
                return False  # a whole row as a value
            continue
        of = item.parent.table if isinstance(item.parent, exp.Column) else ""
        if isinstance(item.parent, exp.Count) or (of and fold(of) != fold(source.alias_or_name)):
            continue
        return False
    return True
