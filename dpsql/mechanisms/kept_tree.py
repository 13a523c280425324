"""Stores the noisy tree behind a column's quantiles; later quantiles of the column are free.

Relation, sensitivity and guarantee: :mod:`dpsql.mechanisms.quantile_tree`, here with all nodes drawn. The release is
the noisy counts; quantiles are computed from these and from public numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dpsql.mechanisms import base
from dpsql.mechanisms.aggregation import Together
from dpsql.mechanisms.histograms import GRID_STEP, STEP_ROWS, read_histogram
from dpsql.mechanisms.quantile_tree import QuantileTree
from dpsql.noise.entropy import Entropy
from dpsql.numerics.exact_numbers import Integers, pack_integers, read_integers, unpack_integers

MAX_KEPT_POINTS = 1 << 16
"""The most points of a grid whose whole tree is stored: some 300 KB."""
_NODES = "nodes"


@dataclass(frozen=True)
class KeptTree(Together):
    """Quantiles of one column over all rows, and their noisy tree. ``parts`` is the tree alone, without keys or aggregation."""

    def __post_init__(self) -> None:
        if self.aggregation is not None or len(self.parts) != 1 or self.tree.keys:
            raise ValueError("a tree that is kept stands alone, without groups")

    @property
    def tree(self) -> QuantileTree:
        """The tree, with the requested quantiles."""
        (part,) = self.parts
        if not isinstance(part, QuantileTree):
            raise ValueError("only a tree is kept")
        return part

    def release(self, read: base.Read, entropy: Entropy) -> base.Release:
        reader, tree = base.add_salt(read, self.queries, entropy), self.tree
        route = tree.column_route
        counts = None if route is None else route.take(reader, entropy)
        if counts is not None:
            histogram = tree.list_held(counts)
        else:
            table = reader(tree.query)
            values, rows = (read_integers(table.column(name)) for name in (GRID_STEP, STEP_ROWS))
            histogram = read_histogram(values, rows, tree.low, tree.high)
        return self.read_again(_pack_nodes(tree.draw_all(histogram, entropy)))

    def read_again(self, noisy: pa.Table) -> base.Release:
        """Return the release with quantiles read from a stored tree: post-processing."""
        answered = self.tree.answer_all(unpack_integers(noisy.column(_NODES)))
        return base.Release(pa.table(dict(answered.columns)), answered.event, answered.notes, noisy)

    @property
    def can_show_again(self) -> bool:
        return True

    def show_again(self, released: pa.Table, noisy: pa.Table | None) -> pa.Table:
        if noisy is None:
            raise ValueError("the tree was not kept")
        return self.read_again(noisy).table


def _pack_nodes(noisy: Integers) -> pa.Table:
    """Return a relation of the counts of all nodes, of 32 bits if they fit."""
    small = noisy.dtype == np.int64 and bool((np.abs(noisy) < 1 << 31).all())
    column = pack_integers(noisy)
    return pa.table({_NODES: column.cast(pa.int32()) if small else column})
