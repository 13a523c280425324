"""Histograms in a statement: maps of noisy counts, with one half width for all counts.

A whole map keeps its bins' intervals while a column only passes it on; one bin, ``h['a']``, is a number with an
interval. A bin missing from the map is NULL, and so are its interval's ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from sqlglot import exp

from dpsql.sql.relations.interval_ends import ColumnEnds
from dpsql.sql.relations.relation import fold
from dpsql.sql.relations.traced_columns import list_sides, read_relation, read_source

BinWidths = Mapping[str, Mapping[str, float]]
"""The half width of a histogram's counts, by relation and column."""

_STEP = Fraction(1)
"""The step of count noise."""
_END = "dpsql_end"
"""Marks a bin in an end of its own interval; such a bin has no interval."""


def find_map_width(tree: exp.Expr, body: exp.Expr | None, name: str, widths: BinWidths) -> float | None:
    """Return the half width of the counts in a column of maps; None unless it is a histogram as released."""
    if not any(widths.values()):
        return None  # without a histogram, names need no comparison
    found = _trace(tree, body, name, widths)
    return found.pop() if len(found) == 1 else None


def find_bin_ends(
    tree: exp.Expr, select: exp.Select, node: exp.Bracket, widths: BinWidths
) -> ColumnEnds | None:
    """Return the interval ends of one bin of a histogram in a SELECT; None for other nodes."""
    key = node.expressions[0] if len(node.expressions) == 1 else None
    if key is None or key.find(exp.Column, exp.Slice) is not None or _END in node.meta:
        return None
    found = _trace_item(tree, select, node.this.unnest(), widths)
    width = found.pop() if len(found) == 1 else None
    if width is None:
        return None
    away, held = exp.Literal.number(repr(width)), node.copy()
    held.meta[_END] = True
    low, high = (
        exp.Paren(this=kind(this=held.copy(), expression=away.copy())) for kind in (exp.Sub, exp.Add)
    )
    return ColumnEnds(low, high, _STEP, whole=True)


def _trace(tree: exp.Expr, body: exp.Expr | None, name: str, widths: BinWidths) -> set[float]:
    """Return the half widths of a query's column; empty if a side is no histogram."""
    sides = list_sides(body) if isinstance(body, exp.Query) else []
    names = [fold(item.alias_or_name) for item in sides[0].expressions] if sides else []
    found: set[float] = set()
    for side in sides:
        star = len(side.expressions) == 1 and side.expressions[0].is_star
        place = 0 if star else names.index(fold(name)) if fold(name) in names else None
        node = None if place is None or place >= len(side.expressions) else side.expressions[place].unalias()
        if star and node is not None:
            node = exp.column(name, node.table if isinstance(node, exp.Column) else None)
        parts = set() if node is None else _trace_item(tree, side, node, widths)
        if not parts:
            return set()
        found |= parts
    return found


def _trace_item(tree: exp.Expr, select: exp.Select, node: exp.Expr, widths: BinWidths) -> set[float]:
    """Return the half widths of an item of a SELECT, a released map or a column from its FROM."""
    if isinstance(node, exp.Map) and isinstance(node.args.get("values"), exp.Column):
        width = widths.get(read_relation(select), {}).get(node.args["values"].name)
        return set() if width is None else {width}
    if not isinstance(node, exp.Column) or select.args.get("from_") is None:
        return set()
    held = widths.get(read_relation(select), {})
    direct = next((width for column, width in held.items() if fold(column) == fold(node.name)), None)
    if direct is not None:
        return {direct}
    places = [select.args["from_"], *(select.args.get("joins") or [])]
    found = [
        _trace(tree, read_source(tree, place.this)[0], node.name, widths)
        for place in places
        if not node.table or fold(node.table) == fold(place.this.alias_or_name)
    ]
    found = [parts for parts in found if parts]
    return found[0] if len(found) == 1 else set()
