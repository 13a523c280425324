"""Generated names of relations and columns that differ from any of the analyst's.

The SQL above private blocks mixes generated and analyst's names. So each generated name is absent from the statement:
as an identifier, quoted or not; as a string, which PIVOT may turn into a column; and as a column of a kept result or a
table, which a star may include.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
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


def list_taken(tree: exp.Expr, kept: Iterable[KeptResult]) -> frozenset[str]:
    """Return the folded names in a statement that resemble ours, and those of kept results' columns."""
    found = [node.name for node in tree.find_all(exp.Identifier, exp.Literal)]
    found += [name for item in kept for name in (*item.columns, *(end for ends in item.ends for end in ends))]
    return frozenset(name for name in map(fold, found) if name.startswith(_PREFIX))


def find_named(tree: exp.Expr) -> frozenset[str] | None:
    """Return the folded names in a statement; None if it may read columns by place, pattern or as a whole.

    A column that a statement doesn't name decides nothing about its answer: ``*`` passes it on to queries that don't name
    it either, and rows that differ in no named column are interchangeable.
    """
    starred = any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star))
    if tree.find(exp.Columns, exp.Pivot) is not None or any(
        join.args.get("method") for join in tree.find_all(exp.Join)
    ):
        return None
    if any(
        node.args.get("columns") for node in tree.find_all(exp.TableAlias) if starred or not _is_derived(node)
    ):
        return None
    if starred and any(map(_reads_whole_rows, tree.find_all(exp.SetOperation, exp.Select, exp.Group))):
        return None
    modes = {
        str(select.args["mode"].name).upper()
        for select in tree.find_all(exp.Select)
        if select.args.get("mode")
    }
    if not modes <= _BY_NAME:
        return None
    return frozenset(fold(node.name) for node in tree.find_all(exp.Identifier))


_BY_NAME = frozenset(name for name, mode in MODES.items() if mode == MODES["DP"])
"""The modes that read columns by name."""


def _is_derived(alias: exp.TableAlias) -> bool:
    return isinstance(alias.parent, exp.Subquery | exp.CTE)


def _reads_whole_rows(node: exp.Expr) -> bool:
    """Return whether a query or a clause would read all columns of a ``*`` in it."""
    distinct = isinstance(node, exp.Select) and node.args.get("distinct") is not None
    return distinct or isinstance(node, exp.SetOperation) or bool(node.args.get("all"))
