"""Generated names of relations and columns that differ from any of the analyst's.

The SQL above private blocks mixes generated and analyst's names. So each generated name is absent from the statement:
as an identifier, quoted or not; as a string, which PIVOT may turn into a column; and as a column of a kept result or a
table, which a star may include.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import field

from sqlglot import exp

from dpsql.binding.public.kept_results import KeptResult
from dpsql.binding.relations.relation import fold
from dpsql.catalogue.aggregate_names import MODES
from dpsql.late_dataclass import dataclass

MakeName = Callable[[str], str]
"""Returns an unused name of a kind."""
_PREFIX = "dpsql_"


@dataclass
class OwnNames:
    """Generates names for one statement, except the folded names ``taken``, as from :func:`list_taken`."""

    taken: Collection[str] = field(default_factory=frozenset)
    _count: int = 0

    def make(self, kind: str, known: Collection[str]) -> str:
        """Return a name of a kind, ``dpsql_block_1``, that is neither taken nor a ``known`` name of the data."""
        while True:
            self._count += 1
            made = f"{_PREFIX}{kind}_{self._count}"
            if made not in self.taken and made not in known:
                return made


def list_taken(nodes: Iterable[exp.Expr], kept: Iterable[KeptResult]) -> frozenset[str]:
    """Return the folded names in a statement that resemble ours, and those of kept results' columns."""
    found = [node.name for node in nodes if isinstance(node, exp.Identifier | exp.Literal)]
    found += [name for item in kept for name in (*item.columns, *(end for ends in item.ends for end in ends))]
    return frozenset(name for name in map(fold, found) if name.startswith(_PREFIX))


def find_named(nodes: Sequence[exp.Expr]) -> frozenset[str] | None:
    """Return the folded names in a statement; None if it may read columns by place, pattern or as a whole.

    A column that a statement doesn't name decides nothing about its answer: ``*`` passes it on to queries that don't name
    it either, and rows that differ in no named column are interchangeable.
    """
    starred = any(isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count) for node in nodes)
    if any(_reads_by_place(node, starred) for node in nodes):
        return None
    return frozenset(fold(node.name) for node in nodes if isinstance(node, exp.Identifier))


_BY_NAME = frozenset(name for name, mode in MODES.items() if mode == MODES["DP"])
"""The modes that read columns by name."""


def _reads_by_place(node: exp.Expr, starred: bool) -> bool:
    """Return whether a part of a statement may read columns that it doesn't name; ``starred``: whether there is a ``*``."""
    args = node.args
    if isinstance(node, exp.Select):
        mode = args.get("mode")
        distinct = starred and args.get("distinct") is not None
        return distinct or (mode is not None and str(mode.name).upper() not in _BY_NAME)
    if isinstance(node, exp.TableAlias):
        return bool(args.get("columns")) and (starred or not isinstance(node.parent, exp.Subquery | exp.CTE))
    if isinstance(node, exp.Join):
        return bool(args.get("method"))
    if isinstance(node, exp.Group):
        return starred and bool(args.get("all"))
    return isinstance(node, exp.Columns | exp.Pivot) or (starred and isinstance(node, exp.SetOperation))
