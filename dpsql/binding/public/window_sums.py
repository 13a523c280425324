"""Window sums over neighbouring groups of a release: running totals, moving sums and totals.

Recognised are ``SUM(COUNT(*)) OVER (ORDER BY day)`` in the block's own SELECT, and ``SUM(n) OVER (...)`` above a CTE or
subquery that only passes the column on. Other uses count as uses of single cells: this only decides which noise serves
a statement best.

Interval ends of sums over neighbouring groups: the sum, plus and minus a half width from a public relation.

A half width depends on the strategy of the answer, which may be a stored one. So the statement reads it by its position
in the window's order, from a relation that is made with the release.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from functools import cached_property

from sqlglot import exp

from dpsql.binding.public.interval_ends import ColumnEnds, as_double
from dpsql.binding.public.traced_columns import FIRST, LAST, PublicColumns, ReleasedColumn, list_facts
from dpsql.binding.relations.own_names import MakeName
from dpsql.binding.relations.relation import column, fold
from dpsql.language.dialect import table_named
from dpsql.late_dataclass import dataclass
from dpsql.mechanisms.window_widths import WIDTHS_COLUMN, WindowSum, WindowWidths

_CUTS = (*FIRST, *LAST)
"""Clauses above a release that hide or change some of its numbers."""
_THROUGH = (exp.Paren, exp.Cast, exp.TryCast, exp.Neg)


@dataclass(frozen=True)
class OrderedRelease:
    """A release with public groups: its name, its keys, its additive columns, and whether a key may be NULL.

    ``steps`` are the known public numbers of the keys' values.
    """

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
        spec, given = node.args.get("spec"), node
        if (named := node.args.get("alias")) is not None:
            places = (w for w in select.args.get("windows") or [] if fold(w.name) == fold(named.name))
            given = next(places, node)
            spec = given.args.get("spec")
            if given is node or given.args.get("alias") is not None:
                return None
        read = self._read_sum(select, node.this)
        parts = [self._read_key(select, part) for part in given.args.get("partition_by") or []]
        order = given.args.get("order")
        frame = _read_frame(spec, order is not None)
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
        while isinstance(inner, (*_THROUGH, exp.Mul, exp.Div)):
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
    while isinstance(node.parent, (*_THROUGH, exp.Alias, exp.Round, exp.Div)) and node.arg_key == "this":
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
    start = _read_end(spec.args.get("start"), spec.args.get("start_side"))
    given = spec.args.get("end")
    end = (0,) if given is None else _read_end(given, spec.args.get("end_side"))
    if kind not in ("ROWS", "RANGE") or start is None or end is None:
        return None
    if kind == "RANGE" and ({start[0], end[0]} - {None, 0}):
        return None
    first, last = (
        str(spec.args.get(f"{side}_side") or "").upper() == "FOLLOWING" for side in ("start", "end")
    )
    backwards = (start == (None,) and first) or (end == (None,) and not last)
    return None if backwards else (kind == "ROWS", start[0], end[0])


def _read_end(node: object, side: object) -> tuple[int | None] | None:
    """Return a frame end's position in a tuple, None within it for unbounded; None if unknown."""
    text = node if isinstance(node, str) else node.name if isinstance(node, exp.Literal | exp.Var) else ""
    if text.upper() == "CURRENT ROW":
        return (0,)
    if text.upper() == "UNBOUNDED":
        return (None,)
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        return None
    return (int(text) if str(side).upper() == "FOLLOWING" else -int(text),)


MAX_WINDOWS = 8
"""The most windows of a statement with intervals: each reads relations of half widths."""
MAX_TABLES = 16
"""The most relations of half widths in a statement."""


@dataclass
class WindowEnds:
    """The interval ends of a statement's window sums, and their relations.

    ``tree``: the statement, with relations in place of its private blocks.
    """

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
    given = node
    if (named := node.args.get("alias")) is not None:
        given = next(w for w in select.args["windows"] if fold(w.name) == fold(named.name))
    ordered = given.args["order"].expressions[0]
    first = isinstance(ordered, exp.Ordered) and bool(ordered.args.get("nulls_first"))
    if nullable and (window.descending or first):
        return None
    place = node.copy()
    place.set("this", exp.Anonymous(this="dense_rank"))
    place.set("spec", None)
    return place
