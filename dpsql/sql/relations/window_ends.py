"""Interval ends of sums over neighbouring groups: the sum, plus and minus a half width from a public relation.

A half width depends on the strategy of the answer, which may be a stored one. So the statement reads it by its position
in the window's order, from a relation that is made with the release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from sqlglot import exp

from dpsql.mechanisms.window_widths import WIDTHS_COLUMN, WindowSum, WindowWidths
from dpsql.sql.parse.dialect import table_named
from dpsql.sql.relations.interval_ends import ColumnEnds
from dpsql.sql.relations.own_names import MakeName
from dpsql.sql.relations.relation import column, fold
from dpsql.sql.relations.window_sums import OrderedRelease, WindowFinder

MAX_WINDOWS = 8
"""The most windows of a statement with intervals: each reads relations of half widths."""
MAX_TABLES = 16
"""The most relations of half widths in a statement."""
_DOUBLE = exp.DataType.build("DOUBLE", dialect="duckdb")


@dataclass
class WindowEnds:
    """The interval ends of a statement's window sums, and their relations.

    ``tree``: the statement, with relations in place of its private blocks.
    """

    tree: exp.Expr
    releases: Sequence[OrderedRelease]
    noise_steps: Mapping[str, Mapping[str, Fraction]]
    make_name: MakeName
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
        made = self.widths.get((release.name, window)) or self.named.get((release.name, window))
        made = made or self._make(release, window)
        self.named[release.name, window] = made
        return made.relation

    def find(self, select: exp.Select, node: exp.Window) -> ColumnEnds | None:
        """Return the ends of a window of a SELECT; None unless it sums over neighbouring groups."""
        found = self._read(select, node) if self._has_room else None
        return None if found is None else self._write(select, node, *found)

    def _read(self, select: exp.Select, node: exp.Window) -> tuple[OrderedRelease, WindowSum] | None:
        for release in self.releases:
            finder = WindowFinder(self.tree, release.name, frozenset(release.keys), frozenset(release.values))
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
        found = self.widths.get((release.name, window))
        if found is None:
            found = self._make(release, window)
            self.widths[release.name, window] = found
        listed = exp.Select(expressions=[column(WIDTHS_COLUMN)]).from_(
            table_named(found.relation), copy=False
        )
        width = exp.Anonymous(this="list_extract", expressions=[exp.Subquery(this=listed), place])
        low, high = (
            exp.Paren(this=kind(this=exp.Cast(this=node.copy(), to=_DOUBLE.copy()), expression=width.copy()))
            for kind in (exp.Sub, exp.Add)
        )
        return ColumnEnds(low, high)


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
