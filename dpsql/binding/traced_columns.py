"""The interpreter of the public statement: what the columns above private blocks are made of.

One walk finds a few facts about each column of each query, from the released columns at the bottom up to the outputs:
its traces to released columns, whether it is one of them unchanged, the step of its noise, the half width of its
histogram's counts. Intervals, windows and errors of outputs all read these facts.

Traces have factors, so that errors add up. Only linear expressions have traces: passed-on columns, sums and
differences, multiples by constants, casts and rounding, ``GREATEST``, ``LEAST`` and ``COALESCE`` with a constant (which
only reduce errors), scalar subqueries, and windows with named errors. An output of a set operation has the traces of
its sides, a list those of its items.

Window sums over neighbouring groups of a release are running totals, moving sums and totals. Recognised are
``SUM(COUNT(*)) OVER (ORDER BY day)`` in the block's own SELECT, and ``SUM(n) OVER (...)`` above a CTE or subquery that
only passes the column on. Other uses count as uses of single cells: this only decides which noise serves a statement
best.

Their interval's ends are the sum, plus and minus a half width from a public relation. A half width depends on the
strategy of the answer, which may be a stored one. So the statement reads it by its position in the window's order, from
a relation that is made with the release.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, cast

from sqlglot import exp

from dpsql.binding.interval_ends import (
    ColumnEnds,
    as_double,
    find_bin_ends,
    is_exact,
    list_leaves,
    read_literal,
)
from dpsql.binding.public_statement import MakeName, from_items
from dpsql.binding.relations.relation import column, fold
from dpsql.language.dialect import table_named
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.window_widths import WIDTHS_COLUMN, WINDOW_ERROR, WindowSum, WindowWidths

TracedTerm = tuple[str, str, float]
"""A release's name, a column of it, and its factor."""
Trace = tuple[TracedTerm, ...]
"""Terms that are added up; empty for a constant."""
TracedColumn = tuple[str, tuple[Trace, ...]]
"""The name of an output column, and its traces."""

NameWindow = Callable[[exp.Select, exp.Window], str | None]
"""Returns the relation with the error of a window's sums; None if unknown."""
_Sum = Mapping[tuple[str, str], float]

_VALUES = (exp.Column, exp.Query, exp.Window)
"""Nodes that an expression treats as units: their inner columns are not its own."""
_THROUGH = (exp.Paren, exp.Cast, exp.Round, exp.Alias)
_HELD = (exp.Greatest, exp.Least, exp.Coalesce)
MAX_TRACES = 256
"""The most traces of one output, for example from nested unions; with more, it has none."""

LAST = ("qualify", "limit", "offset", "distinct")
"""Clauses that a SELECT applies after its windows."""
FIRST = ("where", "group", "having", "joins", "laterals", "sample")
"""Clauses before them: those that hide, change or repeat rows."""


@dataclass(frozen=True)
class ReleasedColumn:
    """A released column that a column passes on.

    Args:
        casts: the casts on the way.
        whole: whether every group is passed on, in one row.
    """

    relation: str
    name: str
    casts: tuple[exp.DataType, ...] = ()
    whole: bool = True


@dataclass(frozen=True)
class Facts:
    """The known facts about a column.

    Args:
        sums: its traces, several for a column of a set operation.
        released: the released column that it is, at most cast.
        step: the step of its noise, for exact numbers with symmetric, log-concave noise, passed on exactly.
        widths: the half widths of the counts of a histogram as released.
        noisy: whether it is made of a number with an interval.
    """

    sums: tuple[_Sum, ...] = ()
    released: ReleasedColumn | None = None
    step: Fraction | None = None
    widths: frozenset[float] = frozenset()
    noisy: bool = False


@dataclass(frozen=True)
class _Columns:
    """The columns of a query or of an item in FROM, in order.

    Args:
        star: a SELECT with a star of unknown columns, by which names may still be found.
    """

    items: tuple[tuple[str, Facts], ...] = ()
    star: exp.Select | None = None

    @cached_property
    def by_name(self) -> Mapping[str, list[Facts]]:
        """The facts about the columns of each folded name."""
        found: dict[str, list[Facts]] = {}
        for name, facts in self.items:
            found.setdefault(fold(name), []).append(facts)
        return found

    def rename(self, names: Sequence[str]) -> _Columns:
        """Return the columns with the first ones under other names."""
        renamed = [(name, facts) for name, (_, facts) in zip(names, self.items, strict=False)]
        return replace(self, items=(*renamed, *self.items[len(renamed) :])) if names else self


_UNKNOWN = _Columns()
_NONE: Mapping[str, Any] = {}
Relations = Mapping[str, Sequence[tuple[str, Facts]]]
"""The columns of releases and kept results, by relation."""


def list_facts(
    relation: str,
    columns: Iterable[str],
    steps: Mapping[str, Fraction] = _NONE,
    widths: Mapping[str, float] = _NONE,
    ends: Container[str] = (),
) -> list[tuple[str, Facts]]:
    """Return the facts about the columns of a release.

    Args:
        steps: the steps of their noise.
        widths: the half widths of histograms' counts.
        ends: the columns with intervals.
    """
    found = []
    for name in columns:
        width = frozenset((widths[name],) if name in widths else ())
        sums = ({(relation, name): 1.0},)
        facts = Facts(sums, ReleasedColumn(relation, name), steps.get(name), width, name in ends)
        found.append((name, facts))
    return found


class PublicColumns:
    """The columns of a statement's queries.

    Facts about a query are found once. A statement may get further columns and aliases later, which change none of them.

    Args:
        tree: the statement, with relations in place of private blocks.
        relations: their columns.
        name_window: names the errors of windows.
    """

    def __init__(
        self, tree: exp.Expr, relations: Relations, name_window: NameWindow = lambda select, node: None
    ) -> None:
        self.tree = tree
        self._relations = {fold(name): _Columns(tuple(columns)) for name, columns in relations.items()}
        self._name_window = name_window
        self._queries: dict[int, tuple[exp.Expr, _Columns]] = {}
        self._froms: dict[int, tuple[exp.Expr, list[tuple[str, _Columns]]]] = {}

    # -- what others ask ------------------------------------------------------------------------------------------

    def trace_outputs(self) -> tuple[TracedColumn, ...]:
        """Return the output columns in order, with their traces; empty if its columns are unknown."""
        listed = self._query(self.tree)
        if listed.star is not None:
            return ()
        return tuple(
            (name, tuple(tuple((*place, factor) for place, factor in one.items()) for one in facts.sums))
            for name, facts in listed.items
        )

    def find_columns(self, query: exp.Expr, name: str) -> list[Facts]:
        """Return the facts about a query's columns of a name."""
        return self._query(query).by_name.get(fold(name), [])

    def find(self, select: exp.Select, node: exp.Column) -> Facts:
        """Return the facts about a column that a SELECT reads; none if the name is unknown or ambiguous."""
        found = list(self._named(select, node))
        return found[0] if len(found) == 1 else Facts()

    def find_term(self, select: exp.Select, node: exp.Column) -> tuple[str, str] | None:
        """Return the release and its column that a name means; None for other names."""
        sums = self.find(select, node).sums
        terms = list(sums[0].items()) if len(sums) == 1 else []
        return terms[0][0] if len(terms) == 1 and terms[0][1] == 1.0 else None

    def find_released(self, select: exp.Select, node: exp.Column) -> ReleasedColumn | None:
        """Return the first released column that a name may mean, also through a star over a join."""
        found = (facts.released for facts in self._named(select, node, loose=True))
        return next((released for released in found if released is not None), None)

    def find_bin(self, select: exp.Select, node: exp.Bracket) -> ColumnEnds | None:
        """Return the interval ends of one bin of a histogram in a SELECT; None for other nodes."""
        widths = self._widths(select, node.this.unnest())
        return find_bin_ends(node, next(iter(widths))) if len(widths) == 1 else None

    def is_noisy(self, select: exp.Select, node: exp.Expr) -> bool:
        """Return whether an expression of a SELECT is made of a number with an interval."""
        for leaf in list_leaves(node):
            if isinstance(leaf, exp.Window):
                noisy = any(self.is_noisy(select, part) for part in leaf.iter_expressions())
            elif isinstance(leaf, exp.Bracket):
                noisy = self.find_bin(select, leaf) is not None
            else:
                noisy = any(facts.noisy for facts in self._named(select, leaf, loose=True))
            if noisy:
                return True
        return False

    # -- names ------------------------------------------------------------------------------------------------------

    def _named(self, select: exp.Select, node: exp.Column, loose: bool = False) -> Iterator[Facts]:
        """Yield the facts about the columns that a name in a SELECT may mean."""
        name, table = fold(node.name), fold(node.table)
        for alias, columns in self._sources(select):
            if table and alias != table:
                continue
            found = columns.by_name.get(name, [])
            if columns.star is None or (loose and found):
                yield from found
            elif loose:
                for facts in self._named(columns.star, exp.column(node.name, quoted=True), loose):
                    yield _pass_on(facts, columns.star)

    def _sources(self, select: exp.Select) -> list[tuple[str, _Columns]]:
        if id(select) not in self._froms:
            found = [(fold(item.alias_or_name), self._source(item)) for item in from_items(select)]
            self._froms[id(select)] = (select, found)
        return self._froms[id(select)][1]

    def _source(self, node: exp.Expr) -> _Columns:
        if any(node.args.get(key) for key in ("pivots", "sample")):
            return _UNKNOWN
        if isinstance(node, exp.Table) and not node.args.get("db"):
            cte = self.find_cte(node)
            found = self._relations.get(fold(node.name), _UNKNOWN) if cte is None else self._cte(cte)
            return found.rename(node.alias_column_names)
        if isinstance(node, exp.Subquery):
            return self._query(node.this).rename(node.alias_column_names)
        return _UNKNOWN

    def find_cte(self, table: exp.Table) -> exp.CTE | None:
        """Return the CTE that a name in FROM means; None for other relations."""
        name, node = fold(table.name), table.parent
        child: exp.Expr = table
        while node is not None and not table.args.get("db"):
            with_ = node if isinstance(node, exp.With) else node.args.get("with_")
            for cte in with_.expressions if with_ is not None and with_ is not child else ():
                itself = cte is child and with_ is not None and with_.args.get("recursive")
                if fold(cte.alias) == name and (itself or cte is not child):
                    return cast(exp.CTE, cte)
                if cte is child:
                    break
            child, node = node, node.parent
        return None

    def _cte(self, cte: exp.CTE) -> _Columns:
        itself = any(fold(table.name) == fold(cte.alias) for table in cte.this.find_all(exp.Table))
        recursive = cte.parent is not None and cte.parent.args.get("recursive")
        return _UNKNOWN if recursive and itself else self._query(cte.this).rename(cte.alias_column_names)

    # -- queries ------------------------------------------------------------------------------------------------------

    def _query(self, tree: exp.Expr | None) -> _Columns:
        if tree is None:
            return _UNKNOWN
        if id(tree) not in self._queries:
            with_ = tree.args.get("with_")
            for cte in with_.expressions if with_ is not None else ():
                self._cte(cte)
            self._queries[id(tree)] = (tree, self._find_columns(tree))
        return self._queries[id(tree)][1]

    def _find_columns(self, tree: exp.Expr) -> _Columns:
        if isinstance(tree, exp.Subquery):
            return self._query(tree.this)
        if isinstance(tree, exp.SetOperation):
            left, right = self._query(tree.left), self._query(tree.right)
            if left.star is not None or right.star is not None or len(left.items) != len(right.items):
                return _UNKNOWN
            changed = tree.args.get("distinct") or tree.args.get("by_name")
            stacked = isinstance(tree, exp.Union) and not changed
            pairs = zip(left.items, right.items, strict=True)
            return _Columns(tuple((name, _unite(one, other, stacked)) for (name, one), (_, other) in pairs))
        return self._select(tree) if isinstance(tree, exp.Select) else _UNKNOWN

    def _select(self, select: exp.Select) -> _Columns:
        sources = self._sources(select)
        found: list[tuple[str, Facts]] = []
        star = None
        for item in select.expressions:
            if not item.is_star:
                found.append((item.alias_or_name, self._item(item.unalias(), select)))
                continue
            table = fold(item.table) if isinstance(item, exp.Column) else ""
            columns = [one for alias, one in sources if not table or alias == table]
            plain = isinstance(item, exp.Column) or not any(item.args.values())
            known = len(columns) == 1 and columns[0].items and columns[0].star is None
            if plain and known and not select.args.get("joins"):
                found += [(name, _pass_on(facts, select)) for name, facts in columns[0].items]
            else:
                star = select if plain and not table else exp.Select()
        return _Columns(tuple(found), star)

    def _item(self, node: exp.Expr, select: exp.Select) -> Facts:
        sums = () if select.args.get("group") else self._alternatives(node, select)
        if select.args.get("distinct"):
            return Facts(sums)
        inner, casts = node, []
        while isinstance(inner, exp.Paren | exp.Cast):
            casts += [inner.to] if isinstance(inner, exp.Cast) else []
            inner = inner.this
        released = step = None
        if isinstance(inner, exp.Column):
            step, released = self.find(select, inner).step, self.find_released(select, inner)
            if released is not None:
                released = replace(released, casts=(*released.casts, *casts))
        elif isinstance(node, exp.Bracket) and (ends := self.find_bin(select, node)) is not None:
            step = ends.step
        if step is not None and not is_exact(node, step):
            step = None
        facts = Facts(sums, released, step, self._widths(select, node), self.is_noisy(select, node))
        return _pass_on(facts, select)

    def _widths(self, select: exp.Select, node: exp.Expr) -> frozenset[float]:
        """Return the half widths of an item that is a histogram as released, or the map that makes one."""
        counts = node.args.get("values") if isinstance(node, exp.Map) else node
        if not isinstance(counts, exp.Column):
            return frozenset()
        found = [facts.widths for facts in self._named(select, counts) if facts.widths]
        return found[0] if len(found) == 1 else frozenset()

    # -- linear expressions -------------------------------------------------------------------------------------------

    def _alternatives(self, node: exp.Expr, select: exp.Select) -> tuple[_Sum, ...]:
        """Return the alternatives of a linear expression: for several columns, if each has only one.

        Those of a list are its items'; the values of a MAP are a list.
        """
        if isinstance(node, exp.Array):
            return tuple(one for item in node.expressions for one in self._alternatives(item, select))
        if isinstance(node, exp.Map | exp.VarMap) and isinstance(values := node.args.get("values"), exp.Expr):
            return self._alternatives(values, select)
        inside = node
        while isinstance(inside, _THROUGH):
            inside = inside.this
        if isinstance(inside, exp.Column):
            return tuple(one for one in self._trace_value(inside, select) if one)
        walked = node.walk(prune=lambda inner: isinstance(inner, _VALUES))
        columns = {
            id(inner): self._trace_value(inner, select) for inner in walked if isinstance(inner, _VALUES)
        }
        widest = max((len(sums) for sums in columns.values()), default=0)
        if len(columns) > 1 and widest > 1 and len({len(sums) for sums in columns.values()}) > 1:
            return ()
        found = (_linear(node, columns, place) for place in range(widest))
        return tuple(one for one in found if one)

    def _trace_value(self, node: exp.Expr, select: exp.Select) -> tuple[_Sum, ...]:
        """Return the alternatives of a column, a window, or a scalar subquery."""
        if isinstance(node, exp.Column):
            return self.find(select, node).sums
        if isinstance(node, exp.Window):
            name = self._name_window(select, node)
            return () if name is None else ({(name, WINDOW_ERROR): 1.0},)
        columns = self._query(node)
        return columns.items[0][1].sums if len(columns.items) == 1 and columns.star is None else ()


def _pass_on(facts: Facts, select: exp.Select) -> Facts:
    """Return the facts about a column after the clauses of a SELECT that passes it on."""
    released = facts.released
    if released is not None and any(select.args.get(key) for key in (*FIRST, *LAST)):
        released = replace(released, whole=False)
    return Facts(facts.sums, released) if select.args.get("distinct") else replace(facts, released=released)


def _unite(one: Facts, other: Facts, stacked: bool) -> Facts:
    """Return the facts about a column of a set operation; ``stacked``: it is a UNION ALL by position."""
    sums = (*one.sums, *other.sums)
    known = stacked and one.widths and other.widths
    widths = one.widths | other.widths if known else frozenset[float]()
    return Facts(sums if len(sums) <= MAX_TRACES else (), widths=widths, noisy=one.noisy)


def _linear(node: exp.Expr, columns: Mapping[int, tuple[_Sum, ...]], place: int) -> _Sum | None:
    """Return the terms of an expression: empty for a constant, None if it is not linear."""
    if isinstance(node, _VALUES):
        sums = columns.get(id(node), ())
        return sums[place] if place < len(sums) else None
    if read_literal(node) is not None:
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
            if (factor := read_literal(other)) is not None:
                return _times(_linear(one, columns, place), factor)
    if isinstance(node, exp.Div) and (divisor := read_literal(node.expression)):
        return _times(_linear(node.this, columns, place), 1 / divisor)
    if isinstance(node, _HELD):
        inner = [child for child in node.iter_expressions() if read_literal(child) is None]
        return _linear(inner[0], columns, place) if len(inner) == 1 else None
    return None


def _times(terms: _Sum | None, factor: float) -> _Sum | None:
    return None if terms is None else {place: factor * value for place, value in terms.items()}


def _plus(left: _Sum | None, right: _Sum | None) -> _Sum | None:
    if left is None or right is None:
        return None
    return {place: left.get(place, 0.0) + right.get(place, 0.0) for place in {**left, **right}}


_CUTS = (*FIRST, *LAST)
"""Clauses above a release that hide or change some of its numbers."""
_INSIDE = (exp.Paren, exp.Cast, exp.TryCast, exp.Neg)


@dataclass(frozen=True)
class OrderedRelease:
    """A release with public groups: name, keys, their known numbers of values, additive columns, whether a key may be NULL."""

    name: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    nullable: bool
    steps: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Uses:
    """A statement's window sums of a release, and the columns whose single cells it uses."""

    windows: tuple[WindowSum, ...] = ()
    cells: tuple[str, ...] = ()


def find_uses(tree: exp.Expr, release: str, keys: Collection[str], values: Collection[str]) -> Uses:
    """Return a statement's uses of a release that determine the best noise.

    A window counts if all of its sums are shown, unchanged or divided, in a separate run of steps.

    ``values``: its columns of sums or counts.
    """
    finder = WindowFinder(tree, release, frozenset(keys), frozenset(values))
    selects = list(tree.find_all(exp.Select))
    cut = any(select.args.get(key) for select in selects for key in _CUTS)
    windows = [] if cut else [found for select in selects for found in finder.weigh_windows(select)]
    cells = [name for select in selects for name in finder.find_cells(select)]
    return Uses(tuple(windows), tuple(cells))


@dataclass
class WindowFinder:
    """Finds the window sums of one release in a statement; the arguments are those of :func:`find_uses`."""

    tree: exp.Expr
    release: str
    keys: frozenset[str]
    values: frozenset[str]
    given: PublicColumns | None = None

    @cached_property
    def columns(self) -> PublicColumns:
        """The facts about the statement's columns."""
        return self.given or PublicColumns(
            self.tree, {self.release: list_facts(self.release, (*self.keys, *self.values))}
        )

    def weigh_windows(self, select: exp.Select) -> Iterator[WindowSum]:
        """Yield the window sums that determine the best noise: ordered, of one run each, and shown unchanged."""
        for node, found in self.read_windows(select):
            one_run = found.order and found.partition == self.keys - {found.order}
            if one_run and node.this.find(exp.Mul, exp.Div) is None and _is_shown(node, select):
                yield found

    def read_windows(self, select: exp.Select) -> Iterator[tuple[exp.Window, WindowSum]]:
        """Yield the windows of a SELECT's own expressions that are sums of the release."""
        for node in _list_own(select):
            if isinstance(node, exp.Window) and (found := self.read_window(select, node)) is not None:
                yield node, found

    def find_cells(self, select: exp.Select) -> Iterator[str]:
        """Yield the columns whose single cells are used here, once per use other than passing them on."""
        inner = {id(part) for node, _ in self.read_windows(select) for part in node.walk()}
        for node in _list_own(select):
            if not isinstance(node, exp.Column) or id(node) in inner:
                continue
            found = self.trace(select, node, strict=False)
            shown = found is not None and (select is self.tree or not _is_passed_on(node, select))
            if found is not None and shown and found.name in self.values:
                yield found.name

    def read_window(self, select: exp.Select, node: exp.Window) -> WindowSum | None:
        """Return a window's sum, if all of it is known."""
        given = _find_definition(select, node)
        if given is None:
            return None
        read = self._read_sum(select, node.this)
        parts = [self._read_key(select, part) for part in given.args.get("partition_by") or []]
        order = given.args.get("order")
        frame = _read_frame(given.args.get("spec"), order is not None)
        if read is None or None in parts or frame is None:
            return None
        value, factor, cast = read
        partition = frozenset(part for part in parts if part is not None)
        mean = isinstance(node.this, exp.Avg)
        if order is None:
            return WindowSum(value, "", partition, None, None, False, mean, factor, cast)
        ordered = order.expressions[0]
        by = ordered.this if isinstance(ordered, exp.Ordered) else ordered
        key = self._read_key(select, by) if len(order.expressions) == 1 else None
        by_rows, start, end = frame
        if key is None or key in partition or (by_rows and partition != self.keys - {key}):
            return None
        falling = bool(ordered.args.get("desc"))
        return WindowSum(value, key, partition, start, end, falling, mean, factor, cast)

    def _read_sum(self, select: exp.Select, node: exp.Expr) -> tuple[str, Fraction, bool] | None:
        """Return the column of a SUM or AVG, the absolute value of its constant factor, and whether it is cast."""
        if not isinstance(node, exp.Sum | exp.Avg):
            return None
        inner, columns, factor, cast = node.this, list(node.this.find_all(exp.Column)), Fraction(1), False
        while isinstance(inner, (*_INSIDE, exp.Mul, exp.Div)):
            if isinstance(inner, exp.Mul | exp.Div):
                constant = _read_constant(inner.expression)
                if constant is None or cast:
                    return None
                factor *= constant if isinstance(inner, exp.Mul) else 1 / constant
            cast = cast or _may_round(inner)
            inner = inner.this
        if not isinstance(inner, exp.Column) or len(columns) != 1:
            return None
        found = self.trace(select, inner)
        if found is None or found.name not in self.values:
            return None
        return found.name, factor, cast or not all(kind.is_type("double") for kind in found.casts)

    def has_ordered(self, keys: Collection[str]) -> bool:
        """Return whether a window of the statement is ordered by one of these keys."""
        for select in self.tree.find_all(exp.Select):
            nodes = (*_list_own(select), *(select.args.get("windows") or []))
            orders = [node.args.get("order") for node in nodes if isinstance(node, exp.Window)]
            columns = (found for order in orders if order is not None for found in order.find_all(exp.Column))
            traced = (self.trace(select, found, strict=False) for found in columns)
            if any(found is not None and found.name in keys for found in traced):
                return True
        return False

    def _read_key(self, select: exp.Select, node: exp.Expr) -> str | None:
        found = self.trace(select, node) if isinstance(node, exp.Column) else None
        return found.name if found is not None and found.name in self.keys else None

    def trace(self, select: exp.Select, node: exp.Column, strict: bool = True) -> ReleasedColumn | None:
        """Return the release's column behind a SELECT's; ``strict``: every group must be passed on, in one row."""
        if strict and any(select.args.get(key) for key in FIRST):
            return None
        found = self.columns.find_released(select, node)
        known = found is not None and found.relation == self.release and (found.whole or not strict)
        return found if known else None


def _find_definition(select: exp.Select, node: exp.Window) -> exp.Expr | None:
    """Return a window, or the one of the WINDOW clause that it names; None for unknown names and chains of names."""
    if (named := node.args.get("alias")) is None:
        return node
    places = (w for w in select.args.get("windows") or [] if fold(w.name) == fold(named.name))
    found: exp.Expr | None = next(places, None)
    return None if found is None or found.args.get("alias") is not None else found


def _read_constant(node: exp.Expr) -> Fraction | None:
    """Return a nonzero literal number."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    try:
        return Fraction(node.name) or None
    except ValueError:
        return None


def _may_round(node: exp.Expr) -> bool:
    """Return whether a node is a cast to another type than DOUBLE, which may change fractions."""
    return isinstance(node, exp.Cast | exp.TryCast) and not node.to.is_type("double")


def _list_own(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the nodes of a SELECT's own expressions, without inner queries and sources."""
    for key, value in select.args.items():
        if key in ("from_", "with_"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, exp.Expr):
                yield from part.walk(prune=lambda n: isinstance(n, exp.Query))


def _is_shown(node: exp.Expr, select: exp.Select) -> bool:
    """Return whether a window is an item of its SELECT, or the dividend of one."""
    while isinstance(node.parent, (*_INSIDE, exp.Alias, exp.Round, exp.Div)) and node.arg_key == "this":
        node = node.parent
    return node.parent is select and node.arg_key == "expressions"


def _is_passed_on(node: exp.Expr, select: exp.Select) -> bool:
    """Return whether a column is an item of a SELECT below, unchanged."""
    while isinstance(node.parent, exp.Paren | exp.Cast | exp.Alias):
        node = node.parent
    return node.parent is select and node.arg_key == "expressions"


def _read_frame(spec: exp.Expr | None, ordered: bool) -> tuple[bool, int | None, int | None] | None:
    """Return whether a frame counts rows, and its ends; None for other frames."""
    if spec is None:
        return (False, None, 0) if ordered else (False, None, None)
    if spec.args.get("exclude") is not None or not ordered:
        return None
    kind = str(spec.args.get("kind") or "").upper()
    start, end = (read_frame_end(spec, key) for key in ("start", "end"))
    if start is None or end is None or start == math.inf or end == -math.inf:
        return None
    if kind not in ("ROWS", "RANGE") or (kind == "RANGE" and not {start, end} <= {-math.inf, 0, math.inf}):
        return None
    if any(_MOST_PLACES <= abs(place) < math.inf for place in (start, end)):
        return None
    return kind == "ROWS", None if start == -math.inf else int(start), None if end == math.inf else int(end)


_MOST_PLACES = 10**9


def read_frame_end(spec: exp.Expr, key: str) -> float | None:
    """Return the ``start`` or ``end`` of a frame in rows from the current one, perhaps infinite; None for other frames."""
    node, side = spec.args.get(key) or "CURRENT ROW", str(spec.args.get(f"{key}_side") or "").upper()
    text = node if isinstance(node, str) else node.name if isinstance(node, exp.Literal | exp.Var) else ""
    if text.upper() == "CURRENT ROW":
        return 0
    digits = text.isascii() and text.isdigit()
    size = math.inf if text.upper() == "UNBOUNDED" else int(text) if digits else None
    return size if size is None or side == "FOLLOWING" else -size


MAX_WINDOWS = 8
"""The most windows of a statement with intervals: each reads relations of half widths."""
MAX_TABLES = 16
"""The most relations of half widths in a statement."""


@dataclass
class WindowEnds:
    """The interval ends of a ``tree``'s window sums, and their relations; its private blocks are relations already."""

    tree: exp.Expr
    releases: Sequence[OrderedRelease]
    noise_steps: Mapping[str, Mapping[str, Fraction]]
    make_name: MakeName
    columns: PublicColumns
    widths: dict[tuple[str, WindowSum], WindowWidths] = field(default_factory=dict)
    """The relations of half widths needed so far."""
    named: dict[tuple[str, WindowSum], WindowWidths] = field(default_factory=dict)
    """The relations of all windows whose errors were requested by name."""

    def name_window(self, select: exp.Select, node: exp.Window) -> str | None:
        """Return a name for the errors of a window's sums; None unless it sums over neighbouring groups."""
        found = self._read(select, node)
        if found is None:
            return None
        release, window = found
        key = release.name, window
        made = self.widths.get(key) or self.named.get(key) or self._make(release, window)
        self.named[key] = made
        return made.relation

    def find(self, select: exp.Select, node: exp.Window) -> ColumnEnds | None:
        """Return the ends of a window of a SELECT; None unless it sums over neighbouring groups."""
        found = self._read(select, node) if self._has_room else None
        return None if found is None else self._write(select, node, *found)

    def _read(self, select: exp.Select, node: exp.Window) -> tuple[OrderedRelease, WindowSum] | None:
        for release in self.releases:
            keys, values = frozenset(release.keys), frozenset(release.values)
            finder = WindowFinder(self.tree, release.name, keys, values, self.columns)
            window = finder.read_window(select, node)
            steps = None if window is None else self.noise_steps.get(release.name, {}).get(window.value)
            if window is not None and steps is not None and (steps == 1 or not window.cast):
                return release, window
        return None

    def _make(self, release: OrderedRelease, window: WindowSum) -> WindowWidths:
        return WindowWidths(self.make_name("widths"), release.name, window, release.keys, release.steps)

    @cached_property
    def _has_room(self) -> bool:
        """Return whether the statement stays within the limits with intervals of windows."""
        windows = sum(1 for _ in self.tree.find_all(exp.Window))
        return windows <= MAX_WINDOWS and sum(1 for _ in self.tree.find_all(exp.Table)) <= MAX_TABLES

    def _write(
        self, select: exp.Select, node: exp.Window, release: OrderedRelease, window: WindowSum
    ) -> ColumnEnds | None:
        place = _write_place(select, node, window, release.nullable)
        if place is None:
            return None
        key = release.name, window
        found = self.widths[key] = self.widths.get(key) or self._make(release, window)
        widths = exp.Select(expressions=[column(WIDTHS_COLUMN)])
        listed = widths.from_(table_named(found.relation), copy=False)
        width = exp.Anonymous(this="list_extract", expressions=[exp.Subquery(this=listed), place])
        middle = as_double(node.copy())
        low, high = (kind(this=middle.copy(), expression=width.copy()) for kind in (exp.Sub, exp.Add))
        return ColumnEnds(exp.Paren(this=low), exp.Paren(this=high))


def _write_place(select: exp.Select, node: exp.Window, window: WindowSum, nullable: bool) -> exp.Expr | None:
    """Return a row's position in a window's order, from 1; None if NULL is ordered differently than by the noise."""
    if not window.order:
        return exp.Literal.number(1)
    given = _find_definition(select, node)
    assert given is not None
    ordered = given.args["order"].expressions[0]
    first = isinstance(ordered, exp.Ordered) and bool(ordered.args.get("nulls_first"))
    if nullable and (window.descending or first):
        return None
    place = node.copy()
    place.set("this", exp.Anonymous(this="dense_rank"))
    place.set("spec", None)
    return place
