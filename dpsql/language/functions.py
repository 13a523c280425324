"""The names of the catalogue by sqlglot's class."""

from __future__ import annotations

from sqlglot import exp

from dpsql.catalogue.aggregate_names import AGGREGATES, SqlName
from dpsql.catalogue.row_names import REFUSED_NODES, ROW_NAMES, RowName

NAME_OF_CLASS: dict[type[exp.Expr], SqlName] = {
    getattr(exp, kind): row for row in AGGREGATES for kind in row.classes
}
ROW_OF_CLASS: dict[type[exp.Expr], RowName] = {getattr(exp, row.node): row for row in ROW_NAMES if row.node}
REFUSED_CLASSES: dict[type[exp.Expr], str] = {
    getattr(exp, node): name for node, name in REFUSED_NODES.items()
}
"""DuckDB's names of some refused calls."""
MOVING_CLASSES: tuple[type[exp.AggFunc], ...] = tuple(
    getattr(exp, row.classes[0]) for row in AGGREGATES if row.moving
)
"""Aggregates that a window computes over its frame."""
